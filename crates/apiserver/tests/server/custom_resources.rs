//! Kinds that come at run time: validation, pruning, defaults, rules, subresources. Single schemas are tested against recorded vectors.

use crate::client::{Client, DEFINITIONS, MERGE, causes, names, widgets};
use serde_json::{Value, json};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn with_widgets() -> Client {
    let client = Client::new();
    let definition = client.post(DEFINITIONS, widgets()).await.ok();
    assert_eq!(definition["spec"]["names"]["listKind"], "WidgetList");
    let definition = client
        .get(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .ok();
    let established = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
    assert!(
        definition["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(established)
    );
    client
}

#[tokio::test]
async fn objects_are_pruned_and_defaulted() {
    let client = with_widgets().await;
    let spec = json!({"parts": [{"name": "a"}, {"name": "b", "count": 5, "extra": 1}], "open": {"kept": [1, {"x": null}]}, "unknown": true});
    let answer = client.post(WIDGETS, widget("w", spec)).await;
    assert_eq!(
        answer.warnings,
        [
            r#"299 - "unknown field \"spec.parts[1].extra\"""#,
            r#"299 - "unknown field \"spec.unknown\"""#
        ]
    );
    let spec = &answer.ok()["spec"];
    assert_eq!(
        spec,
        &json!({"size": 1, "parts": [{"name": "a", "count": 2}, {"name": "b", "count": 5}], "open": {"kept": [1, {"x": null}]}})
    );
    client
        .post(
            &format!("{WIDGETS}?fieldValidation=Strict"),
            widget("strict", json!({"unknown": true})),
        )
        .await
        .refused(400, "BadRequest");
}

#[tokio::test]
async fn wrong_values_are_named_with_their_places() {
    let client = with_widgets().await;
    let body = client
        .post(WIDGETS, widget("w", json!({"size": 11, "colour": "blue"})))
        .await
        .refused(422, "Invalid");
    assert_eq!(
        causes(&body),
        [
            "spec.colour: Unsupported value: \"blue\": supported values: \"red\", \"green\"",
            "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>()
    );
    let body = client
        .post(WIDGETS, widget("w", json!({"size": "many"})))
        .await
        .refused(422, "Invalid");
    assert!(
        causes(&body)[0]
            .starts_with("spec.size: Invalid value: \"string\": spec.size in body must be of type integer"),
        "{body}"
    );
    client
        .post(
            WIDGETS,
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}),
        )
        .await
        .refused(422, "Invalid");
}

#[tokio::test]
async fn rules_judge_objects_and_transitions() {
    let client = with_widgets().await;
    let body = client
        .post(WIDGETS, widget("w", json!({"size": 7, "colour": "red"})))
        .await
        .refused(422, "Invalid");
    assert_eq!(causes(&body), ["spec: Invalid value: red widgets are small"]);
    client
        .post(
            WIDGETS,
            widget("w", json!({"size": 4, "colour": "red", "owner": "one"})),
        )
        .await
        .ok();
    let path = format!("{WIDGETS}/w");
    let body = client
        .patch(&path, MERGE, json!({"spec": {"owner": "two"}}))
        .await
        .refused(422, "Invalid");
    assert_eq!(
        causes(&body),
        ["spec.owner: Invalid value: \"two\": owner is immutable"]
    );
    client
        .patch(&path, MERGE, json!({"spec": {"size": 5}}))
        .await
        .refused(422, "Invalid");
    let patched = client
        .patch(&path, MERGE, json!({"spec": {"size": 5, "colour": "green"}}))
        .await
        .ok();
    assert_eq!(
        (&patched["metadata"]["generation"], &patched["spec"]["owner"]),
        (&json!(2), &json!("one"))
    );
}

#[tokio::test]
async fn a_stricter_definition_tolerates_what_is_stored_and_untouched() {
    let client = with_widgets().await;
    client.post(WIDGETS, widget("w", json!({"size": 9}))).await.ok();
    let mut stricter = widgets();
    stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]
        ["maximum"] = json!(5);
    client
        .patch(
            &format!("{DEFINITIONS}/widgets.example.com"),
            MERGE,
            json!({"spec": stricter["spec"]}),
        )
        .await
        .ok();
    let path = format!("{WIDGETS}/w");
    client
        .patch(&path, MERGE, json!({"spec": {"colour": "green"}}))
        .await
        .ok();
    client
        .patch(&path, MERGE, json!({"spec": {"size": 8}}))
        .await
        .refused(422, "Invalid");
    client
        .post(WIDGETS, widget("new", json!({"size": 9})))
        .await
        .refused(422, "Invalid");
}

/// Puts another definition of Widgets in the place of the one that is there.
async fn redefine(client: &Client, definition: &Value) {
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let patch = json!({"spec": definition["spec"]});
    client.patch(&path, MERGE, patch).await.ok();
}

/// As on a real server, which reads what it has stored by the schema of the day. No object is written by that.
#[tokio::test]
async fn what_is_stored_is_shown_by_the_present_definition() {
    let client = with_widgets().await;
    let spec = json!({"size": 2, "owner": "one", "parts": [{"name": "wheel"}]});
    let made = client.post(WIDGETS, widget("w", spec)).await.ok();
    let mut newer = widgets();
    let schema = &mut newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let fields = schema["properties"].as_object_mut().unwrap();
    fields.remove("owner");
    fields.insert("mode".to_owned(), json!({"type": "string", "default": "fast"}));
    fields["parts"]["items"]["properties"]["round"] = json!({"type": "boolean", "default": true});
    redefine(&client, &newer).await;
    let mut expected = made.clone();
    expected["spec"] =
        json!({"size": 2, "mode": "fast", "parts": [{"name": "wheel", "count": 2, "round": true}]});
    let path = format!("{WIDGETS}/w");
    assert_eq!(client.get(&path).await.ok(), expected);
    assert_eq!(client.get(WIDGETS).await.ok()["items"], json!([expected]));
    let mut watch = client
        .watch(&format!("{WIDGETS}?watch=true&resourceVersion=0"))
        .await;
    assert_eq!(watch.next().await.expect("an event")["object"], expected);
    // Nobody has written the default, nor taken the field away that was unknown for a while.
    let mut slower = newer.clone();
    let schema = &mut slower["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    schema["properties"]["mode"]["default"] = json!("slow");
    redefine(&client, &slower).await;
    assert_eq!(client.get(&path).await.ok()["spec"]["mode"], "slow");
    redefine(&client, &widgets()).await;
    assert_eq!(client.get(&path).await.ok(), made);
    redefine(&client, &newer).await;
    assert_eq!(client.get(&path).await.ok(), expected);
    // The next write finds it so, and stores it.
    let patched = client
        .patch(&path, MERGE, json!({"spec": {"size": 3}}))
        .await
        .ok();
    assert_eq!(patched["spec"]["mode"], "fast");
    assert_eq!(patched["metadata"]["generation"], 2);
    redefine(&client, &slower).await;
    assert_eq!(client.get(&path).await.ok()["spec"]["mode"], "fast");
    redefine(&client, &widgets()).await;
    let spec = json!({"size": 3, "parts": [{"name": "wheel", "count": 2}]});
    assert_eq!(client.get(&path).await.ok()["spec"], spec);
}

#[tokio::test]
async fn lists_are_called_as_the_definition_says() {
    let client = Client::new();
    let mut definition = widgets();
    definition["spec"]["names"]["listKind"] = json!("WidgetCollection");
    client.post(DEFINITIONS, definition).await.ok();
    assert_eq!(client.get(WIDGETS).await.ok()["kind"], "WidgetCollection");
    let client = with_widgets().await;
    assert_eq!(client.get(WIDGETS).await.ok()["kind"], "WidgetList");
}

/// Of a custom resource, only the status is taken from a patch of its status: no UID is compared.
#[tokio::test]
async fn a_patch_of_the_status_may_name_another_uid() {
    let client = with_widgets().await;
    let made = client.post(WIDGETS, widget("w", json!({}))).await.ok();
    let path = format!("{WIDGETS}/w");
    let patch = json!({"metadata": {"uid": "another"}, "spec": {"size": 2}, "status": {"phase": "Told"}});
    let body = client.patch(&path, MERGE, patch.clone()).await;
    let causes = causes(&body.refused(422, "Invalid"));
    assert!(
        causes.contains(&r#"metadata.uid: Invalid value: "another": field is immutable"#.to_owned()),
        "{causes:?}"
    );
    let told = client.patch(&format!("{path}/status"), MERGE, patch).await.ok();
    assert_eq!(told["status"]["phase"], "Told");
    assert_eq!(told["metadata"]["uid"], made["metadata"]["uid"]);
}

#[tokio::test]
async fn status_and_scale_are_subresources() {
    let client = with_widgets().await;
    let mut body = widget("w", json!({"size": 2}));
    body["status"] = json!({"phase": "Ignored"});
    assert!(client.post(WIDGETS, body).await.ok().get("status").is_none());
    let path = format!("{WIDGETS}/w");
    let patched = client
        .patch(
            &format!("{path}/status"),
            MERGE,
            json!({"status": {"size": 2, "selector": "app=w"}, "spec": {"size": 9}}),
        )
        .await
        .ok();
    assert_eq!(
        (
            &patched["spec"]["size"],
            &patched["status"]["size"],
            &patched["metadata"]["generation"]
        ),
        (&json!(2), &json!(2), &json!(1))
    );
    let scale = client.get(&format!("{path}/scale")).await.ok();
    assert_eq!(
        (&scale["spec"]["replicas"], &scale["status"]["selector"]),
        (&json!(2), &json!("app=w"))
    );
    client
        .patch(&format!("{path}/scale"), MERGE, json!({"spec": {"replicas": 4}}))
        .await
        .ok();
    assert_eq!(client.get(&path).await.ok()["spec"]["size"], 4);
}

#[tokio::test]
async fn declared_fields_are_selectable() {
    let client = with_widgets().await;
    for (name, colour) in [("a", "red"), ("b", "green")] {
        client
            .post(WIDGETS, widget(name, json!({"colour": colour})))
            .await
            .ok();
    }
    assert_eq!(
        names(
            &client
                .get(&format!("{WIDGETS}?fieldSelector=spec.colour%3Dgreen"))
                .await
                .ok()
        ),
        ["b"]
    );
    client
        .get(&format!("{WIDGETS}?fieldSelector=spec.size%3D1"))
        .await
        .refused(400, "BadRequest");
}

#[tokio::test]
async fn a_faulty_definition_is_refused_with_its_places() {
    let client = Client::new();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut definition = widgets();
        change(&mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
        definition
    };
    for (definition, place) in [
        (
            with(&|spec| spec["properties"]["size"]["default"] = json!(99)),
            "properties[size].default: Invalid value: 99",
        ),
        (
            with(&|spec| spec["x-kubernetes-validations"][0]["rule"] = json!("self.nope > 1")),
            "x-kubernetes-validations[0].rule: Invalid value",
        ),
        (
            with(&|spec| spec["x-kubernetes-validations"][0]["rule"] = json!("self.size >")),
            "x-kubernetes-validations[0].rule: Invalid value",
        ),
        (
            with(&|spec| spec["properties"]["colour"]["type"] = json!("colour")),
            "properties[colour].type: Unsupported value: \"colour\"",
        ),
    ] {
        let body = client.post(DEFINITIONS, definition).await.refused(422, "Invalid");
        let causes = causes(&body);
        assert!(
            causes.iter().any(|cause| cause.contains(place)),
            "{place} is not in {causes:#?}"
        );
    }
    assert!(!client.exists(&format!("{DEFINITIONS}/widgets.example.com")).await);
}

#[tokio::test]
async fn defaults_of_a_status_survive_creation() {
    let client = Client::new();
    let mut definition = widgets();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["default"] =
        json!({"phase": "Ready"});
    client.post(DEFINITIONS, definition).await.ok();
    let created = client.post(WIDGETS, widget("w", json!({}))).await.ok();
    assert_eq!(created["status"], json!({"phase": "Ready"}));
}
