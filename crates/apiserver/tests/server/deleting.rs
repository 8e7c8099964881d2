//! Deletion: preconditions, finalizers, grace periods, owners, namespaces, collections, eviction.

use crate::client::{Client, DEFINITIONS, MAPS, MERGE, PODS, names, pod, widgets};
use serde_json::{Value, json};

#[tokio::test]
async fn preconditions_protect() {
    let client = Client::new();
    let created = client.map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    client
        .delete_with(&path, json!({"preconditions": {"uid": "another"}}))
        .await
        .refused(409, "Conflict");
    client
        .delete_with(&path, json!({"preconditions": {"resourceVersion": "1"}}))
        .await
        .refused(409, "Conflict");
    let gone = client
        .delete_with(
            &path,
            json!({"preconditions": {"uid": created["metadata"]["uid"]}}),
        )
        .await
        .ok();
    assert_eq!(
        (&gone["kind"], &gone["status"]),
        (&json!("Status"), &json!("Success"))
    );
    client.delete(&path).await.refused(404, "NotFound");
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_off() {
    let client = Client::new();
    client
        .post(
            MAPS,
            json!({"metadata": {"name": "a", "finalizers": ["example.com/one", "example.com/two"]}}),
        )
        .await
        .ok();
    let path = format!("{MAPS}/a");
    let held = client.delete(&path).await.ok();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    client
        .patch(
            &path,
            MERGE,
            json!({"metadata": {"finalizers": ["example.com/one", "example.com/three"]}}),
        )
        .await
        .refused(422, "Invalid");
    client
        .patch(
            &path,
            MERGE,
            json!({"metadata": {"finalizers": ["example.com/two"]}}),
        )
        .await
        .ok();
    assert!(client.exists(&path).await);
    client
        .patch(&path, MERGE, json!({"metadata": {"finalizers": null}}))
        .await
        .ok();
    assert!(!client.exists(&path).await);
}

#[tokio::test]
async fn bound_pods_end_in_two_steps() {
    let client = Client::new();
    let mut body = pod("web", json!({}));
    body["spec"]["nodeName"] = json!("one");
    client.post(PODS, body).await.ok();
    let path = format!("{PODS}/web");
    let ending = client.delete(&path).await.ok();
    assert_eq!(
        (
            &ending["metadata"]["deletionGracePeriodSeconds"],
            &ending["metadata"]["deletionTimestamp"]
        ),
        (&json!(30), &json!("2027-01-15T08:00:30Z"))
    );
    let sooner = client
        .delete_with(&path, json!({"gracePeriodSeconds": 5}))
        .await
        .ok();
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
    let later = client
        .delete_with(&path, json!({"gracePeriodSeconds": 60}))
        .await
        .ok();
    assert_eq!(
        later["metadata"]["deletionGracePeriodSeconds"], 5,
        "a grace period only becomes shorter"
    );
    client
        .delete_with(&path, json!({"gracePeriodSeconds": 0}))
        .await
        .ok();
    assert!(!client.exists(&path).await);
    client.post(PODS, pod("never-bound", json!({}))).await.ok();
    client.delete(&format!("{PODS}/never-bound")).await.ok();
    assert!(!client.exists(&format!("{PODS}/never-bound")).await);
}

async fn owned(client: &Client) -> Value {
    let owner = client.map("owner", json!({})).await;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true});
    client
        .post(
            MAPS,
            json!({"metadata": {"name": "child", "ownerReferences": [reference]}}),
        )
        .await
        .ok();
    owner
}

/// An owner that goes in the foreground once its child, which is held, has gone.
async fn going(client: &Client) -> Value {
    let owner = owned(client).await;
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    client.patch(&format!("{MAPS}/child"), MERGE, held).await.ok();
    let foreground = json!({"propagationPolicy": "Foreground"});
    client
        .delete_with(&format!("{MAPS}/owner"), foreground)
        .await
        .ok();
    owner
}

#[tokio::test]
async fn owners_take_their_dependents_in_the_background() {
    let client = Client::new();
    owned(&client).await;
    let child = client.get(&format!("{MAPS}/child")).await.ok();
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "child", "uid": child["metadata"]["uid"]});
    client
        .post(
            MAPS,
            json!({"metadata": {"name": "grandchild", "ownerReferences": [reference]}}),
        )
        .await
        .ok();
    client
        .delete_with(
            &format!("{MAPS}/owner"),
            json!({"propagationPolicy": "Background"}),
        )
        .await
        .ok();
    assert!(names(&client.get(MAPS).await.ok()).is_empty());
}

#[tokio::test]
async fn owners_wait_for_their_dependents_in_the_foreground() {
    let client = Client::new();
    owned(&client).await;
    client
        .patch(
            &format!("{MAPS}/child"),
            MERGE,
            json!({"metadata": {"finalizers": ["example.com/held"]}}),
        )
        .await
        .ok();
    let waiting = client
        .delete_with(
            &format!("{MAPS}/owner"),
            json!({"propagationPolicy": "Foreground"}),
        )
        .await
        .ok();
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(client.get(&format!("{MAPS}/child")).await.ok()["metadata"]["deletionTimestamp"].is_string());
    client
        .patch(
            &format!("{MAPS}/child"),
            MERGE,
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .ok();
    assert!(
        names(&client.get(MAPS).await.ok()).is_empty(),
        "the owner goes after its last dependent"
    );
}

#[tokio::test]
async fn a_dependent_that_comes_late_does_not_hold_an_owner_in_the_foreground() {
    let client = Client::new();
    let owner = going(&client).await;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true});
    client
        .post(
            MAPS,
            json!({"metadata": {"name": "late", "ownerReferences": [reference]}}),
        )
        .await
        .ok();
    assert!(
        !client.exists(&format!("{MAPS}/late")).await,
        "its owner is going"
    );
    let free = json!({"metadata": {"finalizers": null}});
    client.patch(&format!("{MAPS}/child"), MERGE, free).await.ok();
    assert!(
        names(&client.get(MAPS).await.ok()).is_empty(),
        "the owner has gone as well"
    );
}

#[tokio::test]
async fn an_owner_in_the_foreground_keeps_no_dependent_whose_other_owner_goes() {
    let client = Client::new();
    let owner = going(&client).await;
    let other = client.map("other", json!({})).await;
    let reference = |owner: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true});
    client
        .post(
            MAPS,
            json!({"metadata": {"name": "late", "ownerReferences": [reference(&owner), reference(&other)]}}),
        )
        .await
        .ok();
    let free = json!({"metadata": {"finalizers": null}});
    client.patch(&format!("{MAPS}/child"), MERGE, free).await.ok();
    assert_eq!(
        names(&client.get(MAPS).await.ok()),
        ["late", "other", "owner"],
        "the other owner keeps it, and it holds the one that is going"
    );
    client.delete(&format!("{MAPS}/other")).await.ok();
    assert!(
        names(&client.get(MAPS).await.ok()).is_empty(),
        "it goes, and the owner that waited for it"
    );
}

#[tokio::test]
async fn the_foreground_waits_for_dependents_of_dependents() {
    let client = Client::new();
    owned(&client).await;
    let child = client.get(&format!("{MAPS}/child")).await.ok();
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "child", "uid": child["metadata"]["uid"], "blockOwnerDeletion": true});
    client
        .post(
            MAPS,
            json!({"metadata": {"name": "grandchild", "ownerReferences": [reference], "finalizers": ["example.com/held"]}}),
        )
        .await
        .ok();
    client
        .delete_with(
            &format!("{MAPS}/owner"),
            json!({"propagationPolicy": "Foreground"}),
        )
        .await
        .ok();
    let child = client.get(&format!("{MAPS}/child")).await.ok();
    assert_eq!(child["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(client.exists(&format!("{MAPS}/owner")).await);
    client
        .patch(
            &format!("{MAPS}/grandchild"),
            MERGE,
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .ok();
    assert!(
        names(&client.get(MAPS).await.ok()).is_empty(),
        "each goes after its own dependents"
    );
}

#[tokio::test]
async fn a_circle_of_owners_in_the_foreground_waits_for_nobody() {
    let client = Client::new();
    owned(&client).await;
    let child = client.get(&format!("{MAPS}/child")).await.ok();
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "child", "uid": child["metadata"]["uid"], "blockOwnerDeletion": true});
    client
        .patch(
            &format!("{MAPS}/owner"),
            MERGE,
            json!({"metadata": {"ownerReferences": [reference]}}),
        )
        .await
        .ok();
    client
        .delete_with(
            &format!("{MAPS}/owner"),
            json!({"propagationPolicy": "Foreground"}),
        )
        .await
        .ok();
    assert!(names(&client.get(MAPS).await.ok()).is_empty());
}

#[tokio::test]
async fn orphans_stay_and_forget_their_owner() {
    let client = Client::new();
    owned(&client).await;
    client
        .delete_with(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Orphan"}))
        .await
        .ok();
    let child = client.get(&format!("{MAPS}/child")).await.ok();
    assert!(child["metadata"].get("ownerReferences").is_none(), "{child}");
    assert!(!client.exists(&format!("{MAPS}/owner")).await);
}

#[tokio::test]
async fn a_dependent_with_another_owner_stays() {
    let client = Client::new();
    let first = owned(&client).await;
    let second = client.map("second", json!({})).await;
    let reference = |owner: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]});
    client
        .patch(
            &format!("{MAPS}/child"),
            MERGE,
            json!({"metadata": {"ownerReferences": [reference(&first), reference(&second)]}}),
        )
        .await
        .ok();
    client.delete(&format!("{MAPS}/owner")).await.ok();
    assert!(client.exists(&format!("{MAPS}/child")).await);
    client.delete(&format!("{MAPS}/second")).await.ok();
    assert!(!client.exists(&format!("{MAPS}/child")).await);
}

#[tokio::test]
async fn a_namespace_empties_itself_and_waits_for_what_is_held() {
    let client = Client::new();
    client.namespace("shop").await;
    let maps = "/api/v1/namespaces/shop/configmaps";
    client
        .post(maps, json!({"metadata": {"name": "free"}}))
        .await
        .ok();
    client
        .post(
            maps,
            json!({"metadata": {"name": "held", "finalizers": ["example.com/x"]}}),
        )
        .await
        .ok();
    client.delete("/api/v1/namespaces/shop").await.ok();
    let namespace = client.get("/api/v1/namespaces/shop").await.ok();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert_eq!(names(&client.get(maps).await.ok()), ["held"]);
    let body = client
        .post(maps, json!({"metadata": {"name": "late"}}))
        .await
        .refused(403, "Forbidden");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("because it is being terminated"),
        "{body}"
    );
    client
        .patch(
            &format!("{maps}/held"),
            MERGE,
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .ok();
    assert!(!client.exists("/api/v1/namespaces/shop").await);
}

#[tokio::test]
async fn collections_go_by_selector() {
    let client = Client::new();
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        client.map(name, json!({"app": app})).await;
    }
    client.delete(&format!("{MAPS}?labelSelector=app%3Dx")).await.ok();
    assert_eq!(names(&client.get(MAPS).await.ok()), ["c"]);
}

#[tokio::test]
async fn a_definition_takes_its_objects_along() {
    let client = Client::new();
    client.post(DEFINITIONS, widgets()).await.ok();
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |name: &str, finalizers: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "finalizers": finalizers}, "spec": {}});
    client.post(path, widget("free", json!([]))).await.ok();
    client
        .post(path, widget("held", json!(["example.com/x"])))
        .await
        .ok();
    client
        .delete(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .ok();
    assert_eq!(names(&client.get(path).await.ok()), ["held"]);
    assert_eq!(
        client.post(path, widget("late", json!([]))).await.code,
        405,
        "nothing new under a definition that is going"
    );
    client
        .patch(
            &format!("{path}/held"),
            MERGE,
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .ok();
    assert!(!client.exists(&format!("{DEFINITIONS}/widgets.example.com")).await);
}

async fn with_budget(budget: Value, allowed: i64) -> Client {
    let client = Client::new();
    for name in ["one", "two"] {
        let mut body = pod(name, json!({"app": "web"}));
        body["spec"]["nodeName"] = json!("node");
        client.post(PODS, body).await.ok();
        let ready =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        client
            .patch(&format!("{PODS}/{name}/status"), MERGE, ready)
            .await
            .ok();
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    client
        .post(budgets, json!({"metadata": {"name": "budget"}, "spec": budget}))
        .await
        .ok();
    let status = json!({"status": {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2 - allowed, "expectedPods": 2, "observedGeneration": 1}});
    client
        .patch(&format!("{budgets}/budget/status"), MERGE, status)
        .await
        .ok();
    client
}

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}})
}

#[tokio::test]
async fn evictions_spend_a_budget_and_then_are_429_with_its_cause() {
    let client = with_budget(
        json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}),
        1,
    )
    .await;
    assert_eq!(
        client
            .post(&format!("{PODS}/one/eviction"), eviction("one"))
            .await
            .code,
        201
    );
    assert!(client.get(&format!("{PODS}/one")).await.ok()["metadata"]["deletionTimestamp"].is_string());
    let budget = client
        .get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/budget")
        .await
        .ok();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["one"].is_string());
    let fewer = json!({"status": {"currentHealthy": 1}});
    let status = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/budget/status";
    client.patch(status, MERGE, fewer).await.ok();
    let refused = client
        .post(&format!("{PODS}/two/eviction"), eviction("two"))
        .await;
    let body = refused.refused(429, "TooManyRequests");
    assert_eq!(
        body["message"],
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    assert_eq!(body["details"]["causes"][0]["reason"], "DisruptionBudget");
    assert!(
        body["details"]["causes"][0]["message"]
            .as_str()
            .unwrap()
            .starts_with("The disruption budget budget needs 1 healthy pods and has 1 currently"),
        "{body}"
    );
    assert!(
        client.get(&format!("{PODS}/two")).await.ok()["metadata"]
            .get("deletionTimestamp")
            .is_none()
    );
}

#[tokio::test]
async fn evictions_that_need_no_budget() {
    let client = with_budget(
        json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}),
        0,
    )
    .await;
    client
        .post(&format!("{PODS}/one/eviction?dryRun=All"), eviction("one"))
        .await
        .refused(429, "TooManyRequests");
    client
        .post(PODS, pod("pending", json!({"app": "web"})))
        .await
        .ok();
    client
        .post(&format!("{PODS}/pending/eviction"), eviction("pending"))
        .await
        .ok();
    client
        .post(PODS, pod("other", json!({"app": "other"})))
        .await
        .ok();
    client
        .post(&format!("{PODS}/other/eviction"), eviction("other"))
        .await
        .ok();
    client
        .post(&format!("{PODS}/none/eviction"), eviction("none"))
        .await
        .refused(404, "NotFound");
}

const BUDGET: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/budget";

/// The budget covers pod `two`, which is not ready; its status says what is healthy, what must be, and how many may go.
async fn with_unready_pod(policy: Value, healthy: i64, desired: i64, allowed: i64) -> Client {
    let budget = json!({"minAvailable": 1, "unhealthyPodEvictionPolicy": policy, "selector": {"matchLabels": {"app": "web"}}});
    let client = with_budget(budget, allowed).await;
    let counted = json!({"status": {"currentHealthy": healthy, "desiredHealthy": desired}});
    client
        .patch(&format!("{BUDGET}/status"), MERGE, counted)
        .await
        .ok();
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    client
        .patch(&format!("{PODS}/two/status"), MERGE, unready)
        .await
        .ok();
    client
}

#[tokio::test]
async fn evictions_of_unready_pods_are_up_to_the_policy_of_their_budget() {
    // Healthy, needed, allowed; and what is left of that when it has gone.
    for (policy, healthy, desired, allowed, left) in [
        (Value::Null, 1, 1, 0, Some(0)),
        (json!("IfHealthyBudget"), 2, 1, 1, Some(1)),
        (Value::Null, 1, 2, 0, None),
        (Value::Null, 0, 0, 0, None),
        (Value::Null, 0, 0, 1, Some(0)),
        (json!("AlwaysAllow"), 0, 2, 0, Some(0)),
    ] {
        let client = with_unready_pod(policy.clone(), healthy, desired, allowed).await;
        let answer = client
            .post(&format!("{PODS}/two/eviction"), eviction("two"))
            .await;
        if let Some(left) = left {
            assert_eq!(answer.code, 201, "{policy} {healthy} {desired} {allowed}");
            let budget = client.get(BUDGET).await.ok();
            assert_eq!(budget["status"]["disruptionsAllowed"], left);
        } else {
            let body = answer.refused(429, "TooManyRequests");
            assert_eq!(body["details"]["causes"][0]["reason"], "DisruptionBudget");
        }
    }
}

/// Nobody knows what a budget allows that has changed since it was looked at, except for pods that need not be counted.
#[tokio::test]
async fn evictions_wait_for_a_budget_that_is_still_being_processed() {
    let client = with_unready_pod(json!("AlwaysAllow"), 1, 1, 1).await;
    let changed = json!({"spec": {"minAvailable": 0}});
    client.patch(BUDGET, MERGE, changed).await.ok();
    let refused = client
        .post(&format!("{PODS}/one/eviction"), eviction("one"))
        .await;
    let body = refused.refused(429, "TooManyRequests");
    assert_eq!(body["details"]["retryAfterSeconds"], 10);
    assert_eq!(
        body["details"]["causes"][0]["message"],
        "The disruption budget budget is still being processed by the server."
    );
    client
        .post(&format!("{PODS}/two/eviction"), eviction("two"))
        .await
        .ok();
}
