//! Garbage collection: owners that are not there, that come and go by updates, that wait; what stays behind where nobody asks for its deletion; namespaces.

use crate::client::{Client, JOBS, MAPS, MERGE, PODS, job, names, pod};
use serde_json::{Value, json};

const NAMESPACES: &str = "/api/v1/namespaces";
const NODES: &str = "/api/v1/nodes";

fn reference(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"], "blockOwnerDeletion": true,
    })
}

fn owned(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

/// An owner that nobody has made.
fn absent(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": "web", "uid": "11111111-1111-1111-1111-111111111111"})
}

/// An owner may wait for a dependent that stops holding it without going, or goes in the same moment.
#[tokio::test]
async fn an_owner_in_the_foreground_goes_when_an_update_releases_it() {
    let changes: [fn(&mut Value); 3] = [
        |child| child["ownerReferences"] = json!(null),
        |child| child["ownerReferences"][0]["blockOwnerDeletion"] = json!(false),
        |child| {
            child["ownerReferences"] = json!(null);
            child["finalizers"] = json!(null);
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let client = Client::new();
        let owner = client.map("owner", json!({})).await;
        let mut child = owned("child", &[reference(&owner)]);
        child["metadata"]["finalizers"] = json!(["example.com/held"]);
        client.post(MAPS, child.clone()).await.ok();
        let foreground = json!({"propagationPolicy": "Foreground"});
        client
            .delete_with(&format!("{MAPS}/owner"), foreground)
            .await
            .ok();
        assert_eq!(names(&client.get(MAPS).await.ok()), ["child", "owner"]);
        let metadata = &mut child["metadata"];
        change(metadata);
        let patch = json!({"metadata": metadata});
        client.patch(&format!("{MAPS}/child"), MERGE, patch).await.ok();
        let left: &[&str] = if number == 2 { &[] } else { &["child"] };
        assert_eq!(names(&client.get(MAPS).await.ok()), left, "{number}");
    }
}

/// A collector cannot look for a kind that its cluster does not have, and deletes nothing then.
#[tokio::test]
async fn an_owner_of_an_unknown_kind_keeps_its_dependents() {
    let client = Client::new();
    let unknown = absent("argoproj.io/v1alpha1", "Rollout");
    let known = absent("apps/v1", "ReplicaSet");
    let there = client.map("owner", json!({})).await;
    for (name, owners) in [
        ("unknown", vec![unknown.clone()]),
        ("known", vec![known.clone()]),
        ("both", vec![known, unknown.clone()]),
        ("half", vec![reference(&there), unknown]),
    ] {
        let mut body = pod(name, json!({}));
        body["metadata"]["ownerReferences"] = json!(owners);
        client.post(PODS, body).await.ok();
    }
    client.delete(&format!("{MAPS}/owner")).await.ok();
    assert_eq!(
        names(&client.get(PODS).await.ok()),
        ["both", "half", "unknown"],
        "only the owner of one is known to be absent"
    );
}

#[tokio::test]
async fn an_update_may_give_an_object_an_owner_that_is_not_there() {
    let client = Client::new();
    let owner = client.map("owner", json!({})).await;
    client.map("child", json!({})).await;
    let path = format!("{MAPS}/child");
    let owners = |owners: &[Value]| json!({"metadata": {"ownerReferences": owners}});
    let nobody = absent("v1", "ConfigMap");
    for kept in [vec![reference(&owner)], vec![reference(&owner), nobody.clone()]] {
        client.patch(&path, MERGE, owners(&kept)).await.ok();
        assert!(client.exists(&path).await, "{kept:?}");
    }
    client.patch(&path, MERGE, owners(&[nobody])).await.ok();
    assert!(!client.exists(&path).await);
}

/// An owner is one of that kind and name, in the namespace of its dependent or in none.
#[tokio::test]
async fn an_owner_that_is_elsewhere_or_another_is_none() {
    let client = Client::new();
    client.namespace("other").await;
    let elsewhere = format!("{NAMESPACES}/other/configmaps");
    let far = client
        .post(&elsewhere, json!({"metadata": {"name": "far"}}))
        .await
        .ok();
    let near = client.map("near", json!({})).await;
    let node = client
        .post(NODES, json!({"metadata": {"name": "node"}}))
        .await
        .ok();
    let with = |field: &str, value: &str| {
        let mut reference = reference(&near);
        reference[field] = json!(value);
        reference
    };
    for (name, owner) in [
        ("of-far", reference(&far)),
        ("of-near", reference(&near)),
        ("of-node", reference(&node)),
        ("of-another-name", with("name", "far")),
        ("of-another-kind", with("kind", "Secret")),
        ("of-another-group", with("apiVersion", "apps/v1")),
    ] {
        client.post(MAPS, owned(name, &[owner])).await.ok();
    }
    // There is no ConfigMap in apps/v1, so nobody can look for it.
    assert_eq!(
        names(&client.get(MAPS).await.ok()),
        ["near", "of-another-group", "of-near", "of-node"]
    );
    client.delete(&format!("{NODES}/node")).await.ok();
    assert!(!client.exists(&format!("{MAPS}/of-node")).await);
}

/// What is in no namespace has no namespace in which to look for an owner.
#[tokio::test]
async fn an_object_in_no_namespace_outlives_an_owner_that_is_in_one() {
    let client = Client::new();
    let owner = client.map("owner", json!({})).await;
    client.post(NODES, owned("node", &[reference(&owner)])).await.ok();
    client.delete(&format!("{MAPS}/owner")).await.ok();
    assert!(client.exists(&format!("{NODES}/node")).await);
}

/// A Job with a pod of its own.
async fn with_job() -> Client {
    let client = Client::new();
    let job = client.post(JOBS, job("job")).await.ok();
    let mut body = pod("worker", json!({}));
    body["metadata"]["ownerReferences"] = json!([reference(&job)]);
    client.post(PODS, body).await.ok();
    client
}

#[tokio::test]
async fn jobs_leave_their_pods_behind_unless_they_are_told_otherwise() {
    let warning = r#"299 - "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning""#;
    let job = format!("{JOBS}/job");
    for (path, options, stays, warnings) in [
        (&*job, json!({}), true, &[warning][..]),
        (JOBS, json!({}), true, &[warning]),
        (&*job, json!({"propagationPolicy": "Orphan"}), true, &[]),
        (&*job, json!({"orphanDependents": true}), true, &[]),
        (&*job, json!({"propagationPolicy": "Background"}), false, &[]),
        (&*job, json!({"propagationPolicy": "Foreground"}), false, &[]),
        (&*job, json!({"orphanDependents": false}), false, &[]),
    ] {
        let client = with_job().await;
        let answer = client.delete_with(path, options.clone()).await;
        assert_eq!(answer.warnings, warnings, "{options}");
        answer.ok();
        assert!(!client.exists(&job).await, "{options}");
        let worker = client.get(&format!("{PODS}/worker")).await;
        assert_eq!(worker.code == 200, stays, "{options}");
        assert!(worker.body["metadata"].get("ownerReferences").is_none());
    }
    let client = with_job().await;
    client.delete(&format!("{job}?orphanDependents=False")).await.ok();
    assert!(!client.exists(&format!("{PODS}/worker")).await, "as an option");
}

/// The finalizers of a namespace belong to its own subresource: what replaces it says nothing of them.
#[tokio::test]
async fn a_namespace_that_was_replaced_takes_its_contents_along() {
    let client = Client::new();
    let shop = format!("{NAMESPACES}/shop");
    let body = json!({"metadata": {"name": "shop"}});
    client.post(NAMESPACES, body.clone()).await.ok();
    let map = format!("{shop}/configmaps/a");
    client
        .post(&format!("{shop}/configmaps"), json!({"metadata": {"name": "a"}}))
        .await
        .ok();
    let replaced = client.put(&shop, body).await.ok();
    assert_eq!(replaced["spec"], json!({"finalizers": ["kubernetes"]}));
    for spec in [json!(null), json!({"finalizers": ["example.com/more"]})] {
        let patched = client.patch(&shop, MERGE, json!({"spec": spec})).await.ok();
        assert_eq!(patched["spec"], json!({"finalizers": ["kubernetes"]}));
    }
    client.delete(&shop).await.ok();
    assert!(!client.exists(&shop).await);
    assert!(!client.exists(&map).await);
}
