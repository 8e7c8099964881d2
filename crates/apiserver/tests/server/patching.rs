//! The four patches, and who owns what.

use crate::client::{APPLY, Client, DEFINITIONS, JSON_PATCH, MAPS, MERGE, PODS, STRATEGIC, pod, widgets};
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

#[tokio::test]
async fn json_patches_work_in_order_or_not_at_all() {
    let client = Client::new();
    client.map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    let patched = client
        .patch(
            &path,
            JSON_PATCH,
            json!([
                {"op": "test", "path": "/data/key", "value": "value"},
                {"op": "add", "path": "/data/second", "value": "2"},
                {"op": "copy", "from": "/data/key", "path": "/data/copied"},
                {"op": "move", "from": "/data/second", "path": "/data/moved"},
                {"op": "replace", "path": "/data/key", "value": "new"},
            ]),
        )
        .await
        .ok();
    assert_eq!(
        patched["data"],
        json!({"key": "new", "copied": "value", "moved": "2"})
    );
    let failing =
        json!([{"op": "remove", "path": "/data/key"}, {"op": "test", "path": "/data/moved", "value": "3"}]);
    client
        .patch(&path, JSON_PATCH, failing)
        .await
        .refused(422, "Invalid");
    assert_eq!(client.get(&path).await.ok()["data"], patched["data"]);
}

#[tokio::test]
async fn merge_patches_replace_lists_and_remove_nulls() {
    let client = Client::new();
    client
        .post(
            MAPS,
            json!({"metadata": {"name": "a", "finalizers": ["example.com/x"]}, "data": {"a": "1", "b": "2"}}),
        )
        .await
        .ok();
    let patch = json!({"metadata": {"finalizers": ["example.com/y"]}, "data": {"a": null, "c": "3"}});
    let patched = client.patch(&format!("{MAPS}/a"), MERGE, patch).await.ok();
    assert_eq!(
        (&patched["data"], &patched["metadata"]["finalizers"]),
        (&json!({"b": "2", "c": "3"}), &json!(["example.com/y"]))
    );
}

#[tokio::test]
async fn strategic_patches_merge_lists_by_their_keys() {
    let client = Client::new();
    let mut body = pod("web", json!({"app": "web"}));
    body["spec"]["tolerations"] = json!([{"key": "a", "operator": "Exists"}]);
    client.post(PODS, body).await.ok();
    let path = format!("{PODS}/web");
    let patched = client
        .patch(
            &path,
            STRATEGIC,
            json!({"spec": {"containers": [{"name": "main", "image": "example.com/app:2"}]}}),
        )
        .await
        .ok();
    let containers = patched["spec"]["containers"].as_array().unwrap();
    assert_eq!(
        (
            containers.len(),
            &containers[0]["image"],
            &containers[0]["imagePullPolicy"]
        ),
        (1, &json!("example.com/app:2"), &json!("IfNotPresent"))
    );
    let conditions = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    client
        .patch(&format!("{path}/status"), STRATEGIC, conditions)
        .await
        .ok();
    let conditions = json!({"status": {"conditions": [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "True"}]}});
    let patched = client
        .patch(&format!("{path}/status"), STRATEGIC, conditions)
        .await
        .ok();
    let mut shown: Vec<String> = patched["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| {
            format!(
                "{}={}",
                condition["type"].as_str().unwrap(),
                condition["status"].as_str().unwrap()
            )
        })
        .collect();
    shown.sort();
    assert_eq!(shown, ["ContainersReady=True", "Ready=True"]);
    let patched = client
        .patch(
            &path,
            STRATEGIC,
            json!({"metadata": {"labels": {"$patch": "replace", "only": "this"}}}),
        )
        .await
        .ok();
    assert_eq!(patched["metadata"]["labels"], json!({"only": "this"}));
}

fn deployment(replicas: Option<u32>, image: &str) -> serde_json::Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}},
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = json!(replicas);
    }
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

#[tokio::test]
async fn applying_creates_owns_conflicts_and_releases() {
    let client = Client::new();
    let path = |manager: &str| format!("{DEPLOYMENTS}/web?fieldManager={manager}");
    assert_eq!(
        client
            .patch(&path("one"), APPLY, deployment(Some(3), "example.com/app:1"))
            .await
            .code,
        201
    );
    let again = client
        .patch(&path("one"), APPLY, deployment(Some(3), "example.com/app:1"))
        .await;
    assert_eq!(again.code, 200);
    let version = again.ok()["metadata"]["resourceVersion"].clone();
    assert_eq!(
        client.get(&format!("{DEPLOYMENTS}/web")).await.ok()["metadata"]["resourceVersion"],
        version
    );

    let conflict = client
        .patch(&path("two"), APPLY, deployment(Some(3), "example.com/app:2"))
        .await
        .refused(409, "Conflict");
    assert_eq!(conflict["details"]["causes"][0]["reason"], "FieldManagerConflict");
    assert_eq!(
        conflict["details"]["causes"][0]["field"],
        ".spec.template.spec.containers[name=\"main\"].image"
    );
    let forced = client
        .patch(
            &format!("{}&force=true", path("two")),
            APPLY,
            deployment(Some(3), "example.com/app:2"),
        )
        .await
        .ok();
    assert_eq!(
        forced["spec"]["template"]["spec"]["containers"][0]["image"],
        "example.com/app:2"
    );

    // Both own the replicas, so they stay when one lets go, and fall back to the default when both have.
    client
        .patch(&path("two"), APPLY, deployment(None, "example.com/app:2"))
        .await
        .ok();
    assert_eq!(
        client.get(&format!("{DEPLOYMENTS}/web")).await.ok()["spec"]["replicas"],
        3
    );
    let released = client
        .patch(
            &format!("{}&force=true", path("one")),
            APPLY,
            deployment(None, "example.com/app:2"),
        )
        .await
        .ok();
    assert_eq!(released["spec"]["replicas"], 1);
}

#[tokio::test]
async fn an_update_takes_fields_from_who_applied_them() {
    let client = Client::new();
    client
        .patch(
            &format!("{DEPLOYMENTS}/web?fieldManager=one"),
            APPLY,
            deployment(Some(3), "example.com/app:1"),
        )
        .await
        .ok();
    client
        .patch(
            &format!("{DEPLOYMENTS}/web/scale"),
            MERGE,
            json!({"spec": {"replicas": 7}}),
        )
        .await
        .ok();
    let conflict = client
        .patch(
            &format!("{DEPLOYMENTS}/web?fieldManager=one"),
            APPLY,
            deployment(Some(3), "example.com/app:1"),
        )
        .await
        .refused(409, "Conflict");
    assert_eq!(conflict["details"]["causes"][0]["field"], ".spec.replicas");
    let shown = client.get(&format!("{DEPLOYMENTS}/web")).await.ok();
    let scaler = shown["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["subresource"] == "scale")
        .expect("an entry of who scaled")
        .clone();
    assert_eq!(
        (&scaler["manager"], &scaler["operation"], &scaler["fieldsV1"]),
        (
            &json!("tests"),
            &json!("Update"),
            &json!({"f:spec": {"f:replicas": {}}})
        )
    );
}

/// Templates of manifests leave keys without a value. Such a null is an empty map or list: of what others have written in it, nothing goes.
#[tokio::test]
async fn a_null_map_takes_only_what_its_manager_had_applied() {
    let client = Client::new();
    client.map("a", json!({"app": "a"})).await;
    let path = format!("{MAPS}/a?fieldManager=helm");
    let mut applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": null, "annotations": null}, "data": {"own": "1"}});
    let first = client.patch(&path, APPLY, applied.clone()).await.ok();
    assert_eq!(first["data"], json!({"key": "value", "own": "1"}));
    applied["data"] = json!(null);
    let shown = client.patch(&path, APPLY, applied).await.ok();
    assert_eq!(shown["data"], json!({"key": "value"}));
    assert_eq!(shown["metadata"]["labels"], json!({"app": "a"}));
    let entries = shown["metadata"]["managedFields"].as_array().unwrap();
    let creator = entries.iter().find(|entry| entry["manager"] == "tests");
    let owned = &creator.expect("an entry of who created it")["fieldsV1"];
    assert_eq!(owned["f:data"], json!({".": {}, "f:key": {}}));
}

#[tokio::test]
async fn a_null_list_or_struct_takes_nothing_and_a_null_for_a_whole_is_a_conflict() {
    let client = Client::new();
    let mut made = deployment(Some(2), "example.com/app:1");
    let env = json!([{"name": "A", "value": "1"}]);
    let resources = json!({"requests": {"cpu": "1"}});
    let template = &mut made["spec"]["template"]["spec"];
    template["containers"][0]["env"] = env.clone();
    template["containers"][0]["resources"] = resources.clone();
    template["nodeSelector"] = json!({"disk": "ssd"});
    client.post(DEPLOYMENTS, made).await.ok();
    let path = format!("{DEPLOYMENTS}/web?fieldManager=helm");
    let mut applied = deployment(None, "example.com/app:1");
    let template = &mut applied["spec"]["template"]["spec"];
    template["volumes"] = json!(null);
    template["containers"][0]["env"] = json!(null);
    template["containers"][0]["resources"] = json!(null);
    let shown = client.patch(&path, APPLY, applied.clone()).await.ok();
    let container = &shown["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["env"], &container["resources"]), (&env, &resources));
    assert_eq!(shown["metadata"]["generation"], 1, "nothing has changed");
    // A node selector has one owner for all of it.
    applied["spec"]["template"]["spec"]["nodeSelector"] = json!(null);
    let conflict = client.patch(&path, APPLY, applied).await.refused(409, "Conflict");
    assert_eq!(
        conflict["details"]["causes"][0]["field"],
        ".spec.template.spec.nodeSelector"
    );
}

#[tokio::test]
async fn a_null_in_a_custom_object_takes_nothing_from_others() {
    let client = Client::new();
    let mut definition = widgets();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["tags"] =
        json!({"type": "object", "additionalProperties": {"type": "string"}});
    client.post(DEFINITIONS, definition).await.ok();
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    let written = json!({"tags": {"team": "a"}, "parts": [{"name": "wheel"}], "open": {"any": {"thing": 1}}});
    client.post(path, widget(written)).await.ok();
    let applied = widget(json!({"tags": null, "parts": null, "open": {"any": null}}));
    let shown = client
        .patch(&format!("{path}/w?fieldManager=helm"), APPLY, applied)
        .await
        .ok();
    let spec = &shown["spec"];
    assert_eq!(
        (&spec["tags"], &spec["parts"], &spec["open"]),
        (
            &json!({"team": "a"}),
            &json!([{"name": "wheel", "count": 2}]),
            &json!({"any": {"thing": 1}})
        )
    );
}

#[tokio::test]
async fn patches_that_are_none_are_refused_and_nothing_changes() {
    let client = Client::new();
    let before = client.map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    for (content_type, body, code) in [
        (MERGE, "[]", 400),
        (MERGE, "{", 400),
        (JSON_PATCH, "{}", 400),
        (
            JSON_PATCH,
            r#"[{"op": "add", "path": "/nope/deeper", "value": 1}]"#,
            422,
        ),
        (STRATEGIC, "17", 400),
        (APPLY, "- a\n- b\n", 400),
        ("text/plain", "{}", 415),
    ] {
        let answer = client
            .text("PATCH", &format!("{path}?fieldManager=x"), content_type, body)
            .await;
        assert_eq!(
            (answer.code, answer.body["kind"].as_str()),
            (code, Some("Status")),
            "{content_type} {body}: {}",
            answer.body
        );
    }
    client
        .patch(
            &path,
            APPLY,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        )
        .await
        .refused(422, "Invalid");
    assert_eq!(client.get(&path).await.ok(), before);
    client
        .patch(&format!("{MAPS}/none"), MERGE, json!({}))
        .await
        .refused(404, "NotFound");
}

#[tokio::test]
async fn a_patch_with_a_stale_version_is_a_conflict() {
    let client = Client::new();
    let first = client.map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    client
        .patch(&path, MERGE, json!({"data": {"key": "x"}}))
        .await
        .ok();
    let stale =
        json!({"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"key": "y"}});
    client.patch(&path, MERGE, stale).await.refused(409, "Conflict");
    client
        .patch(&path, MERGE, json!({"metadata": {"name": "b"}}))
        .await
        .refused(400, "BadRequest");
}

/// A patch that names another UID is a change of a field that may not change; a replacement is for the object that it names.
#[tokio::test]
async fn a_patch_with_another_uid_is_invalid_and_a_replacement_a_conflict() {
    let client = Client::new();
    let first = client.map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    let other = json!({"metadata": {"uid": "another"}, "data": {"key": "x"}});
    for kind in [MERGE, STRATEGIC] {
        let body = client
            .patch(&path, kind, other.clone())
            .await
            .refused(422, "Invalid");
        assert_eq!(
            body["message"],
            r#"ConfigMap "a" is invalid: metadata.uid: Invalid value: "another": field is immutable"#
        );
        assert_eq!(body["details"]["causes"][0]["field"], "metadata.uid");
    }
    let mut stale = other.clone();
    stale["metadata"]["resourceVersion"] = json!("999999");
    client.patch(&path, MERGE, stale).await.refused(409, "Conflict");
    let mut replacement = first.clone();
    replacement["metadata"]["uid"] = json!("another");
    client.put(&path, replacement).await.refused(409, "Conflict");
    assert_eq!(client.get(&path).await.ok(), first);
    for uid in [json!(null), first["metadata"]["uid"].clone()] {
        let same = json!({"metadata": {"uid": uid}, "data": {"key": "x"}});
        let patched = client.patch(&path, MERGE, same).await.ok();
        assert_eq!(patched["metadata"]["uid"], first["metadata"]["uid"]);
    }
}
