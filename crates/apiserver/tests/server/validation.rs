//! Values that no API server accepts, and changes that it refuses: each is named with its place, in a real server's words, and nothing is stored.

use crate::client::{
    APPLY, Client, JOBS, JSON_PATCH, MAPS, MERGE, PODS, STRATEGIC, causes, names, pod, refused, template,
};
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const SPEC_STAYS: &str =
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,";

/// A pod with these fields in its spec.
fn pod_with(name: &str, fields: &Value) -> Value {
    let mut body = pod(name, json!({}));
    for (field, value) in fields.as_object().expect("fields") {
        body["spec"][field] = value.clone();
    }
    body
}

fn of_nodes(requirement: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}}})
}

fn spread(change: Value) -> Value {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"});
    for (field, value) in change.as_object().expect("fields") {
        constraint[field] = value.clone();
    }
    json!({"topologySpreadConstraints": [constraint]})
}

fn tolerating(toleration: Value) -> Value {
    json!({"tolerations": [toleration]})
}

#[tokio::test]
async fn rules_of_placement_that_mean_nothing_are_refused() {
    let client = Client::new();
    let terms = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    let one = format!("{terms}[0].matchExpressions[0]");
    for (fields, cause) in [
        (
            tolerating(json!({"key": "a", "operator": "Equals"})),
            r#"spec.tolerations[0].operator: Unsupported value: "Equals": supported values: "Equal", "Exists""#.to_owned(),
        ),
        (
            tolerating(json!({"key": "a", "operator": "Exists", "effect": "NoScheduled"})),
            r#"spec.tolerations[0].effect: Unsupported value: "NoScheduled": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#.to_owned(),
        ),
        (
            tolerating(json!({"key": "a", "operator": "Exists", "value": "b"})),
            r#"spec.tolerations[0].operator: Invalid value: "b": value must be empty when `operator` is 'Exists'"#.to_owned(),
        ),
        (
            tolerating(json!({"value": "b"})),
            r#"spec.tolerations[0].operator: Invalid value: "": operator must be Exists when `key` is empty, which means "match all values and all keys""#.to_owned(),
        ),
        (
            tolerating(json!({"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5})),
            r#"spec.tolerations[0].effect: Invalid value: "NoSchedule": effect must be 'NoExecute' when `tolerationSeconds` is set"#.to_owned(),
        ),
        (
            spread(json!({"maxSkew": 0})),
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero".to_owned(),
        ),
        (
            spread(json!({"whenUnsatisfiable": "DoNotSchdule"})),
            r#"spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "DoNotSchdule": supported values: "DoNotSchedule", "ScheduleAnyway""#.to_owned(),
        ),
        (
            spread(json!({"topologyKey": ""})),
            "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty".to_owned(),
        ),
        (
            spread(json!({"minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"})),
            "spec.topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway".to_owned(),
        ),
        (
            spread(json!({"matchLabelKeys": ["app"]})),
            "spec.topologySpreadConstraints[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set".to_owned(),
        ),
        (
            of_nodes(json!({"key": "a", "operator": "in", "values": ["b"]})),
            format!(r#"{one}.operator: Invalid value: "in": not a valid selector operator"#),
        ),
        (
            of_nodes(json!({"key": "a", "operator": "In"})),
            format!("{one}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'"),
        ),
        (
            of_nodes(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
            format!("{one}.values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
        ),
        (
            of_nodes(json!({"key": "a", "operator": "Gt", "values": ["1", "2"]})),
            format!("{one}.values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"),
        ),
        (
            json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}),
            format!("{terms}: Required value: must have at least one node selector term"),
        ),
        (
            json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "podAffinityTerm": {"topologyKey": "zone"}}]}}}),
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100".to_owned(),
        ),
        (
            json!({"restartPolicy": "Sometimes"}),
            r#"spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never""#.to_owned(),
        ),
        (
            json!({"nodeName": "one", "schedulingGates": [{"name": "example.com/wait"}]}),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared".to_owned(),
        ),
        (
            json!({"schedulingGates": [{"name": "example.com/wait"}, {"name": "example.com/wait"}]}),
            r#"spec.schedulingGates[1]: Duplicate value: "example.com/wait""#.to_owned(),
        ),
        (
            json!({"ephemeralContainers": [{"name": "debug", "image": "example.com/debug"}]}),
            "spec.ephemeralContainers: Forbidden: cannot be set on create".to_owned(),
        ),
    ] {
        let answer = client.post(PODS, pod_with("x", &fields)).await;
        assert_eq!(causes(&answer.refused(422, "Invalid")), [cause], "{fields}");
    }
    let apart = json!({"affinity": {"podAntiAffinity": {REQUIRED: [{"labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    for (fields, place, problem) in [
        (apart, "topologyKey", "Required value: can not be empty"),
        (
            json!({"nodeSelector": {"a b": "c"}}),
            "nodeSelector",
            r#"Invalid value: "a b""#,
        ),
        (
            json!({"nodeSelector": {"a": "c d"}}),
            "nodeSelector",
            r#"Invalid value: "c d""#,
        ),
    ] {
        let answer = client.post(PODS, pod_with("x", &fields)).await;
        let causes = causes(&answer.refused(422, "Invalid"));
        let is_it = |cause: &String| cause.contains(place) && cause.contains(problem);
        assert!(causes.iter().any(is_it), "{place}: {causes:?}");
    }
    assert!(names(&client.get(PODS).await.ok()).is_empty());
}

/// What a scheduler can make something of is accepted, however rare it is.
#[tokio::test]
async fn rules_of_placement_that_mean_something_are_accepted() {
    let client = Client::new();
    let selector =
        json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
    let fields = json!({
        "nodeSelector": {"kubernetes.io/os": "linux", "empty": ""},
        "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b"}, {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "minDomains": 3, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, "matchLabelKeys": ["hash"],
             "nodeTaintsPolicy": "Honor"},
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
        ],
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["one.example.com"]}]},
                                                 {"matchExpressions": [{"key": "cpu", "operator": "Gt", "values": ["4"]}]}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["no label"]}]}}],
            },
            "podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector, "mismatchLabelKeys": ["tenant"], "namespaces": ["shop"]}]},
        },
    });
    client.post(PODS, pod_with("x", &fields)).await.ok();
}

#[tokio::test]
async fn templates_are_checked_as_pods_are() {
    let client = Client::new();
    let mut bad = template();
    bad["spec"]["tolerations"] = json!([{"key": "a", "operator": "Equals"}]);
    let problem = r#"operator: Unsupported value: "Equals": supported values: "Equal", "Exists""#;
    let workload = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": bad}});
    let answer = client.post(DEPLOYMENTS, workload).await;
    let place = "spec.template.spec.tolerations[0]";
    assert_eq!(
        causes(&answer.refused(422, "Invalid")),
        [format!("{place}.{problem}")]
    );
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": bad}});
    let answer = client.post(JOBS, job).await;
    assert_eq!(
        causes(&answer.refused(422, "Invalid")),
        [
            format!("{place}.{problem}"),
            r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#
                .to_owned(),
        ]
    );
}

#[tokio::test]
async fn budgets_that_no_number_of_pods_satisfies_are_refused() {
    let client = Client::new();
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    for (spec, cause) in [
        (
            json!({"minAvailable": "fifty"}),
            r#"spec.minAvailable: Invalid value: "fifty": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"#,
        ),
        (
            json!({"maxUnavailable": -1}),
            "spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"minAvailable": "101%"}),
            r#"spec.minAvailable: Invalid value: "101%": must not be greater than 100%"#,
        ),
        (
            json!({"minAvailable": 1, "unhealthyPodEvictionPolicy": "Always"}),
            r#"spec.unhealthyPodEvictionPolicy: Unsupported value: "Always": supported values: "AlwaysAllow", "IfHealthyBudget""#,
        ),
        (
            json!({"minAvailable": 1, "selector": selector}),
            r#"spec.selector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator"#,
        ),
    ] {
        let body = json!({"metadata": {"name": "x"}, "spec": spec});
        let answer = client.post(BUDGETS, body).await;
        assert_eq!(causes(&answer.refused(422, "Invalid")), [cause], "{spec}");
    }
    let body = json!({"metadata": {"name": "x"}, "spec": {"minAvailable": "100%", "selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    client.post(BUDGETS, body).await.ok();
}

/// Nothing but a scheduler's binding gives a pod its node, and nothing but its subresources changes resources or debugging containers.
#[tokio::test]
async fn what_may_not_change_in_a_pod_stays() {
    let client = Client::new();
    let fields = json!({"tolerations": [{"key": "own", "operator": "Exists"}], "activeDeadlineSeconds": 100});
    let made = client.post(PODS, pod_with("p", &fields)).await.ok();
    let path = format!("{PODS}/p");
    for (operation, field, value, cause) in [
        ("add", "nodeName", json!("mine"), SPEC_STAYS),
        (
            "replace",
            "tolerations",
            json!([]),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            "add",
            "tolerations/0/effect",
            json!("NoExecute"),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        ("replace", "terminationGracePeriodSeconds", json!(600), SPEC_STAYS),
        (
            "add",
            "containers/0/resources/requests",
            json!({"cpu": "7"}),
            SPEC_STAYS,
        ),
        (
            "add",
            "schedulingGates",
            json!([{"name": "example.com/wait"}]),
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'example.com/wait'",
        ),
        (
            "add",
            "ephemeralContainers",
            json!([{"name": "debug", "image": "example.com/debug"}]),
            SPEC_STAYS,
        ),
        (
            "add",
            "containers/-",
            json!({"name": "second", "image": "example.com/app:1"}),
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        (
            "replace",
            "activeDeadlineSeconds",
            json!(200),
            "spec.activeDeadlineSeconds: Invalid value: 200: must be less than or equal to previous value",
        ),
        (
            "remove",
            "activeDeadlineSeconds",
            json!(null),
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
        ),
    ] {
        let patch = json!([{"op": operation, "path": format!("/spec/{field}"), "value": value}]);
        let causes = refused(&client, &path, JSON_PATCH, patch).await;
        assert!(
            causes.len() == 1 && causes[0].starts_with(cause),
            "{field}: {causes:?}"
        );
    }
    assert_eq!(client.get(&path).await.ok(), made);
}

#[tokio::test]
async fn what_may_change_in_a_pod_changes() {
    let client = Client::new();
    let fields = json!({"terminationGracePeriodSeconds": -1, "tolerations": [{"key": "own", "operator": "Exists", "effect": "NoExecute"}]});
    client.post(PODS, pod_with("p", &fields)).await.ok();
    let path = format!("{PODS}/p");
    let patch = json!([
        {"op": "replace", "path": "/spec/containers/0/image", "value": "example.com/app:2"},
        {"op": "add", "path": "/spec/tolerations/0/tolerationSeconds", "value": 5},
        {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "more", "operator": "Exists"}},
        {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 60},
        {"op": "replace", "path": "/spec/terminationGracePeriodSeconds", "value": 1},
    ]);
    let mut changed = client.patch(&path, JSON_PATCH, patch).await.ok();
    let spec = &changed["spec"];
    assert_eq!(spec["containers"][0]["image"], "example.com/app:2");
    assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(4));
    assert_eq!(
        (
            &spec["activeDeadlineSeconds"],
            &spec["terminationGracePeriodSeconds"]
        ),
        (&json!(60), &json!(1))
    );
    let shorter = json!({"spec": {"activeDeadlineSeconds": 30}});
    client.patch(&path, MERGE, shorter).await.ok();
    let longer = json!({"spec": {"terminationGracePeriodSeconds": 2}});
    refused(&client, &path, MERGE, longer).await;
    // A replacement may leave out what admission has set.
    changed["metadata"]["resourceVersion"] = json!("");
    let spec = changed["spec"].as_object_mut().unwrap();
    spec.insert("activeDeadlineSeconds".to_owned(), json!(30));
    for field in ["priority", "preemptionPolicy"] {
        spec.remove(field);
    }
    let replaced = client.put(&path, changed).await.ok();
    assert_eq!(
        (
            &replaced["spec"]["priority"],
            &replaced["spec"]["preemptionPolicy"]
        ),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
}

/// What waits behind a gate may still be told where not to run, and no more.
#[tokio::test]
async fn a_pod_behind_a_gate_only_becomes_choosier() {
    let client = Client::new();
    let mut fields = of_nodes(json!({"key": "a", "operator": "Exists"}));
    fields["nodeSelector"] = json!({"disk": "ssd"});
    fields["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    client.post(PODS, pod_with("p", &fields)).await.ok();
    let path = format!("{PODS}/p");
    let terms = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    for (operation, field, value, cause) in [
        (
            "add",
            "containers/-",
            json!({"name": "second", "image": "example.com/app:1"}),
            "spec.containers: Forbidden: pod updates may not add or remove containers".to_owned(),
        ),
        ("replace", "restartPolicy", json!("Never"), SPEC_STAYS.to_owned()),
        ("add", "nodeName", json!("mine"), SPEC_STAYS.to_owned()),
        (
            "replace",
            "nodeSelector/disk",
            json!("hdd"),
            r#"spec.nodeSelector: Invalid value: {"disk":"hdd"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)"#.to_owned(),
        ),
        (
            "remove",
            "affinity",
            json!(null),
            format!("{terms}: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed"),
        ),
        (
            "replace",
            &format!("affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms/0/matchExpressions/0/key"),
            json!("b"),
            format!(r#"{terms}[0]: Invalid value: {{"matchExpressions":[{{"key":"b","operator":"Exists"}}]}}: only additions are allowed (no mutations or deletions)"#),
        ),
    ] {
        let patch = json!([{"op": operation, "path": format!("/spec/{field}"), "value": value}]);
        let causes = refused(&client, &path, JSON_PATCH, patch).await;
        assert!(causes.len() == 1 && causes[0].starts_with(&cause), "{field}: {causes:?}");
    }
    let more = json!([
        {"op": "add", "path": "/spec/nodeSelector/zone", "value": "a"},
        {"op": "add", "path": format!("/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms/0/matchExpressions/-"), "value": {"key": "b", "operator": "Exists"}},
    ]);
    client.patch(&path, JSON_PATCH, more).await.ok();
    let open = json!({"spec": {"schedulingGates": null}});
    client.patch(&path, MERGE, open).await.ok();
    let late = json!({"spec": {"nodeSelector": {"late": "yes"}}});
    let causes = refused(&client, &path, MERGE, late).await;
    assert!(causes[0].starts_with(SPEC_STAYS), "{causes:?}");
}

#[tokio::test]
async fn resources_change_through_resize_and_nothing_else_does() {
    let client = Client::new();
    let mut body = pod("p", json!({}));
    body["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    client.post(PODS, body).await.ok();
    let path = format!("{PODS}/p/resize");
    let resources = |requests: Value| json!({"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}});
    let mut patch = resources(json!({"cpu": "2"}));
    patch["metadata"] = json!({"labels": {"through": "resize"}});
    patch["spec"]["nodeName"] = json!("mine");
    patch["spec"]["containers"][0]["image"] = json!("example.com/app:2");
    let resized = client.patch(&path, STRATEGIC, patch).await.ok();
    let container = &resized["spec"]["containers"][0];
    assert_eq!(container["resources"], json!({"requests": {"cpu": "2"}}));
    assert_eq!(container["image"], "example.com/app:1");
    assert_eq!(
        (
            &resized["spec"]["nodeName"],
            &resized["metadata"]["labels"]["through"]
        ),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(resized["metadata"]["generation"], 2);
    let causes = refused(
        &client,
        &path,
        STRATEGIC,
        resources(json!({"example.com/gpu": "1"})),
    )
    .await;
    assert_eq!(
        causes,
        ["spec: Forbidden: only cpu and memory resources are mutable"]
    );
    let without = json!([{"op": "remove", "path": "/spec/containers/0/resources/requests"}]);
    assert_eq!(
        refused(&client, &path, JSON_PATCH, without).await,
        [
            r#"spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing"#,
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ]
    );
    let renamed = json!([{"op": "replace", "path": "/spec/containers/0/name", "value": "other"}]);
    assert_eq!(
        refused(&client, &path, JSON_PATCH, renamed).await,
        ["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"]
    );
}

/// Who changes a part of a pod owns what he has changed, and takes nothing from others that stays as it is.
#[tokio::test]
async fn a_part_of_a_pod_is_written_without_the_ownership_of_the_rest() {
    let client = Client::new();
    let mut body = pod("p", json!({}));
    body["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    client.post(PODS, body).await.ok();
    let change = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"through": "part"}},
        "spec": {
            "containers": [{"name": "main", "image": "example.com/app:2", "resources": {"requests": {"cpu": "2"}}}],
            "ephemeralContainers": [{"name": "debug", "image": "example.com/debug:1"}],
        },
    });
    let fields = |pod: &Value, subresource: Option<&str>, operation: &str| {
        let entries = pod["metadata"]["managedFields"].as_array().expect("entries");
        let found = entries
            .iter()
            .find(|entry| entry["subresource"].as_str() == subresource && entry["operation"] == operation);
        found.unwrap_or_else(|| panic!("{subresource:?}: {entries:?}"))["fieldsV1"].clone()
    };
    let main = r#"k:{"name":"main"}"#;
    let resized = client
        .patch(&format!("{PODS}/p/resize"), STRATEGIC, change.clone())
        .await
        .ok();
    assert_eq!(
        fields(&resized, Some("resize"), "Update"),
        json!({"f:spec": {"f:containers": {main: {"f:resources": {"f:requests": {"f:cpu": {}}}}}}})
    );
    let maker = fields(&resized, None, "Update");
    let of_container = &maker["f:spec"]["f:containers"][main];
    assert_eq!(of_container["f:image"], json!({}));
    assert_eq!(of_container["f:resources"]["f:requests"].get("f:cpu"), None);
    // An image that does not change conflicts with nobody's.
    let applied = client
        .patch(
            &format!("{PODS}/p/resize?fieldManager=applier"),
            APPLY,
            change.clone(),
        )
        .await
        .ok();
    assert_eq!(
        fields(&applied, Some("resize"), "Apply"),
        json!({"f:spec": {"f:containers": {main: {".": {}, "f:resources": {"f:requests": {"f:cpu": {}}}}}}})
    );
    let debugged = client
        .patch(&format!("{PODS}/p/ephemeralcontainers"), STRATEGIC, change)
        .await
        .ok();
    let owned = fields(&debugged, Some("ephemeralcontainers"), "Update");
    assert!(owned["f:spec"]["f:ephemeralContainers"].is_object(), "{owned}");
    let sizes = [&owned, &owned["f:spec"]].map(|set| set.as_object().map(serde_json::Map::len));
    assert_eq!(sizes, [Some(1), Some(1)], "{owned}");
}

#[tokio::test]
async fn debugging_containers_come_through_their_subresource_and_stay() {
    let client = Client::new();
    client.post(PODS, pod("p", json!({}))).await.ok();
    let path = format!("{PODS}/p/ephemeralcontainers");
    let debug = |image: &str| json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": image}]}});
    let mut patch = debug("example.com/debug:1");
    patch["spec"]["containers"] = json!([{"name": "main", "image": "example.com/app:2"}]);
    let changed = client.patch(&path, STRATEGIC, patch).await.ok();
    let spec = &changed["spec"];
    assert_eq!(spec["ephemeralContainers"][0]["image"], "example.com/debug:1");
    assert_eq!(spec["containers"][0]["image"], "example.com/app:1");
    assert_eq!(
        refused(&client, &path, STRATEGIC, debug("example.com/debug:2")).await,
        [r#"spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be changed"#]
    );
    let gone = json!([{"op": "remove", "path": "/spec/ephemeralContainers"}]);
    assert_eq!(
        refused(&client, &path, JSON_PATCH, gone).await,
        ["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not be removed\n"]
    );
}

#[tokio::test]
async fn annotations_are_no_place_for_files() {
    let client = Client::new();
    let map = |bytes: usize| json!({"metadata": {"name": "a", "annotations": {"file": "x".repeat(bytes)}}});
    let answer = client.post(MAPS, map(256 * 1024 - 3)).await;
    assert_eq!(
        causes(&answer.refused(422, "Invalid")),
        ["metadata.annotations: Too long: may not be more than 262144 bytes"]
    );
    client.post(MAPS, map(256 * 1024 - 4)).await.ok();
}
