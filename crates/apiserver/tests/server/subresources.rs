//! Subresources: evictions that disrupt nothing, preconditions of bindings and finalization, and the scale.

use crate::client::{APPLY, Client, MERGE, PODS, pod};
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A pod that stays when it is deleted.
async fn held(client: &Client, name: &str) -> String {
    let mut body = pod(name, json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/held"]);
    client.post(PODS, body).await.ok();
    format!("{PODS}/{name}")
}

async fn evict(client: &Client, path: &str) -> Value {
    let name = path.rsplit('/').next();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let answer = client.post(&format!("{path}/eviction"), eviction).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    client.get(path).await.ok()
}

fn is_disrupted(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "DisruptionTarget")
}

#[tokio::test]
async fn evicting_what_does_not_run_only_deletes_it() {
    let client = Client::new();
    let waiting = held(&client, "waiting").await;
    let ended = held(&client, "ended").await;
    let going = held(&client, "going").await;
    let running = held(&client, "running").await;
    for (path, phase) in [(&ended, "Failed"), (&going, "Running"), (&running, "Running")] {
        let status = json!({"status": {"phase": phase}});
        client.patch(&format!("{path}/status"), MERGE, status).await.ok();
    }
    client.delete(&going).await.ok();
    for (path, disrupts) in [(waiting, false), (ended, false), (going, false), (running, true)] {
        let pod = evict(&client, &path).await;
        assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{path}");
        assert_eq!(is_disrupted(&pod), disrupts, "{path}");
    }
}

#[tokio::test]
async fn an_eviction_says_what_it_is_and_whom_it_is_about() {
    let client = Client::new();
    client.post(PODS, pod("web", json!({}))).await.ok();
    let path = format!("{PODS}/web/eviction");
    for body in [
        json!({"kind": "Binding", "metadata": {"name": "web"}}),
        json!({"kind": "Eviction"}),
        json!({"kind": "Eviction", "metadata": {"name": "other"}}),
    ] {
        client.post(&path, body).await.refused(400, "BadRequest");
    }
    assert!(client.exists(&format!("{PODS}/web")).await);
    let named = json!({"metadata": {"name": "web"}});
    assert_eq!(
        client.post(&path, named).await.code,
        201,
        "the kind may be left out"
    );
}

#[tokio::test]
async fn a_binding_may_be_for_one_version_of_its_pod() {
    let client = Client::new();
    let first = client.post(PODS, pod("web", json!({}))).await.ok();
    let label = json!({"metadata": {"labels": {"app": "web"}}});
    let second = client.patch(&format!("{PODS}/web"), MERGE, label).await.ok();
    let binding = |pod: &Value| {
        let metadata = json!({"name": "web", "resourceVersion": pod["metadata"]["resourceVersion"]});
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": "one"}})
    };
    let path = format!("{PODS}/web/binding");
    client.post(&path, binding(&first)).await.refused(409, "Conflict");
    assert_eq!(client.post(&path, binding(&second)).await.code, 201);
}

#[tokio::test]
async fn a_namespace_is_finalized_in_one_version_and_not_for_a_try() {
    let client = Client::new();
    let path = "/api/v1/namespaces/shop";
    let created = client.namespace("shop").await;
    let current = created["metadata"]["resourceVersion"].clone();
    let without = |name: &str, version: Value| {
        let metadata = json!({"name": name, "resourceVersion": version});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": {"finalizers": []}})
    };
    let finalize = format!("{path}/finalize");
    let tried = client
        .put(
            &format!("{finalize}?dryRun=All"),
            without("shop", current.clone()),
        )
        .await
        .ok();
    assert!(tried["spec"].get("finalizers").is_none(), "{tried}");
    client
        .put(&finalize, without("shop", json!("1")))
        .await
        .refused(409, "Conflict");
    client
        .put(&finalize, without("other", current.clone()))
        .await
        .refused(400, "BadRequest");
    let kept = client.get(path).await.ok();
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]));
    client.put(&finalize, without("shop", current)).await.ok();
    let free = client.get(path).await.ok();
    assert!(free["spec"].get("finalizers").is_none(), "{free}");
}

fn deployment(selector: Value, labels: Value) -> Value {
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}});
    json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": selector, "template": template}})
}

/// Autoscalers choose pods by it.
#[tokio::test]
async fn a_scale_has_the_whole_selector() {
    let client = Client::new();
    let selector = json!({
        "matchLabels": {"b": "1"},
        "matchExpressions": [
            {"key": "e", "operator": "NotIn", "values": ["z"]},
            {"key": "d", "operator": "DoesNotExist"},
            {"key": "c", "operator": "Exists"},
            {"key": "a", "operator": "In", "values": ["y", "x"]},
        ],
    });
    let labels = json!({"a": "x", "b": "1", "c": ""});
    client.post(DEPLOYMENTS, deployment(selector, labels)).await.ok();
    let scale = client.get(&format!("{DEPLOYMENTS}/web/scale")).await.ok();
    assert_eq!(scale["status"]["selector"], "a in (x,y),b=1,c,!d,e notin (z)");
    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let controller = deployment(
        json!({"app": "web", "tier": "front"}),
        json!({"app": "web", "tier": "front"}),
    );
    client.post(controllers, controller).await.ok();
    let scale = client.get(&format!("{controllers}/web/scale")).await.ok();
    assert_eq!(scale["status"]["selector"], "app=web,tier=front");
}

#[tokio::test]
async fn applying_a_scale_names_its_manager_and_meets_conflicts() {
    let client = Client::new();
    let labels = json!({"app": "web"});
    client
        .post(DEPLOYMENTS, deployment(json!({"matchLabels": labels}), labels))
        .await
        .ok();
    let apply = async |query: &str, replicas: i64| {
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": replicas}});
        let path = format!("{DEPLOYMENTS}/web/scale{query}");
        client.patch(&path, APPLY, scale).await
    };
    apply("", 5).await.refused(422, "Invalid");
    let conflict = apply("?fieldManager=x", 5).await.refused(409, "Conflict");
    let cause = &conflict["details"]["causes"][0];
    assert_eq!(cause["field"], ".spec.replicas");
    assert_eq!(cause["message"], r#"conflict with "tests" using autoscaling/v1"#);
    let replicas = async || client.get(&format!("{DEPLOYMENTS}/web")).await.ok()["spec"]["replicas"].clone();
    assert_eq!(replicas().await, 2);
    // The same number may have several owners, who all must agree to another one.
    apply("?fieldManager=y", 2).await.ok();
    let conflict = apply("?fieldManager=x", 5).await.refused(409, "Conflict");
    assert_eq!(conflict["details"]["causes"].as_array().map(Vec::len), Some(2));
    apply("?fieldManager=x&force=True", 5).await.ok();
    assert_eq!(replicas().await, 5);
    apply("?fieldManager=x", 6).await.ok();
    let conflict = apply("?fieldManager=y", 7).await.refused(409, "Conflict");
    assert_eq!(
        conflict["details"]["causes"][0]["message"],
        r#"conflict with "x" with subresource "scale""#
    );
    assert_eq!(replicas().await, 6);
}

/// kubectl reads what it patches: `kubectl patch --subresource=resize`.
#[tokio::test]
async fn parts_of_a_pod_are_read_through_their_subresources() {
    let client = Client::new();
    client.post(PODS, pod("web", json!({}))).await.ok();
    let whole = client.get(&format!("{PODS}/web")).await.ok();
    for part in ["status", "resize", "ephemeralcontainers"] {
        let read = client.get(&format!("{PODS}/web/{part}")).await.ok();
        assert_eq!(read, whole, "{part}");
        client
            .get(&format!("{PODS}/none/{part}"))
            .await
            .refused(404, "NotFound");
    }
}

/// What discovery offers, the server does, or says why not.
#[tokio::test]
async fn no_verb_that_discovery_names_is_unknown() {
    let client = Client::new();
    let groups = client.get("/apis").await.ok();
    let versions = groups["groups"].as_array().unwrap().iter();
    let versions = versions.flat_map(|group| group["versions"].as_array().unwrap());
    let mut paths: Vec<String> = versions
        .map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()))
        .collect();
    paths.push("/api/v1".to_owned());
    let mut asked = 0;
    for path in paths {
        let list = client.get(&path).await.ok();
        for resource in list["resources"].as_array().unwrap() {
            let Some((plural, part)) = resource["name"].as_str().unwrap().split_once('/') else {
                continue;
            };
            let within = if resource["namespaced"] == true {
                "/namespaces/default"
            } else {
                ""
            };
            let place = format!("{path}{within}/{plural}/some/{part}");
            for verb in resource["verbs"].as_array().unwrap() {
                let method = match verb.as_str().unwrap() {
                    "get" => "GET",
                    "create" => "POST",
                    "update" => "PUT",
                    "patch" => "PATCH",
                    _ => "DELETE",
                };
                let answer = client.text(method, &place, MERGE, "{}").await;
                assert_ne!(answer.code, 405, "{method} {place}");
                asked += 1;
            }
        }
    }
    assert!(asked > 50, "{asked}");
}
