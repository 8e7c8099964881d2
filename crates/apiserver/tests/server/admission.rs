//! What a new object takes over from others, and what is refused because of them: default StorageClasses, RuntimeClasses, service accounts.

use crate::client::{Client, MERGE, PODS, names, pod};
use serde_json::{Value, json};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const RUNTIME_CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

async fn storage_class(client: &Client, name: &str, annotations: Value) {
    let class =
        json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": "example.com/disk"});
    client.post(STORAGE_CLASSES, class).await.ok();
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

/// The class of a claim once it is made.
async fn class_of_new(client: &Client, claim: Value) -> Value {
    let created = client.post(CLAIMS, claim).await.ok();
    created["spec"]["storageClassName"].clone()
}

#[tokio::test]
async fn claims_without_a_class_get_the_newest_default_one() {
    let client = Client::new();
    storage_class(&client, "plain", json!({})).await;
    assert_eq!(class_of_new(&client, claim("early")).await, Value::Null);
    storage_class(&client, "old", json!({IS_DEFAULT: "true"})).await;
    storage_class(&client, "off", json!({IS_DEFAULT: "false"})).await;
    assert_eq!(class_of_new(&client, claim("a")).await, "old");
    client.pass_seconds(5);
    let beta = "storageclass.beta.kubernetes.io/is-default-class";
    storage_class(&client, "new-b", json!({beta: "true"})).await;
    storage_class(&client, "new-a", json!({IS_DEFAULT: "true"})).await;
    assert_eq!(
        class_of_new(&client, claim("b")).await,
        "new-a",
        "the newest, then the first by name"
    );
    for (name, class) in [("none", ""), ("named", "plain")] {
        let mut claim = claim(name);
        claim["spec"]["storageClassName"] = json!(class);
        assert_eq!(class_of_new(&client, claim).await, class);
    }
    let mut annotated = claim("annotated");
    annotated["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "plain"});
    assert_eq!(class_of_new(&client, annotated).await, Value::Null);
    let path = format!("{CLAIMS}/early");
    let early = client.get(&path).await.ok();
    assert_eq!(
        early["spec"]["storageClassName"],
        Value::Null,
        "only when it is made"
    );
    // Later a controller may say.
    let later = json!({"spec": {"storageClassName": "new-a"}});
    client.patch(&path, MERGE, later).await.ok();
}

async fn runtime_class(client: &Client, name: &str, change: Value) {
    let mut class = json!({"metadata": {"name": name}, "handler": "kata"});
    for (field, value) in change.as_object().expect("an object") {
        class[field] = value.clone();
    }
    client.post(RUNTIME_CLASSES, class).await.ok();
}

fn pod_of_class(name: &str, class: &str, change: Value) -> Value {
    let mut pod = pod(name, json!({}));
    pod["spec"]["runtimeClassName"] = json!(class);
    for (field, value) in change.as_object().expect("an object") {
        pod["spec"][field] = value.clone();
    }
    pod
}

#[tokio::test]
async fn a_pod_takes_over_what_its_runtime_class_asks_for() {
    let client = Client::new();
    let kata = json!({
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
    });
    runtime_class(&client, "kata", kata).await;
    runtime_class(&client, "plain", json!({})).await;
    let own = json!({
        "nodeSelector": {"disk": "ssd"}, "overhead": {"cpu": "0.25", "memory": "120Mi"},
        "tolerations": [{"key": "kata", "operator": "Equal", "value": "a", "effect": "NoSchedule"}],
    });
    let created = client.post(PODS, pod_of_class("a", "kata", own)).await.ok();
    let spec = &created["spec"];
    assert_eq!(spec["overhead"], json!({"cpu": "250m", "memory": "120Mi"}));
    assert_eq!(spec["nodeSelector"], json!({"disk": "ssd", "kata": "yes"}));
    let keys: Vec<&Value> = spec["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["key"])
        .collect();
    assert_eq!(
        keys,
        [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
            "kata"
        ],
        "its own is part of the class's"
    );
    let plain = client
        .post(PODS, pod_of_class("b", "plain", json!({})))
        .await
        .ok();
    for field in ["overhead", "nodeSelector"] {
        assert_eq!(plain["spec"][field], Value::Null, "{field}");
    }
}

#[tokio::test]
async fn a_pod_that_contradicts_its_runtime_class_is_refused() {
    let client = Client::new();
    let kata =
        json!({"overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": {"nodeSelector": {"kata": "yes"}}});
    runtime_class(&client, "kata", kata).await;
    runtime_class(&client, "plain", json!({})).await;
    let without = "Pod Overhead set without corresponding RuntimeClass defined Overhead";
    let mut nameless = pod("p", json!({}));
    nameless["spec"]["overhead"] = json!({"cpu": "1"});
    for (pod, problem) in [
        (
            pod_of_class("p", "nope", json!({})),
            "pod rejected: RuntimeClass \"nope\" not found".to_owned(),
        ),
        (
            pod_of_class("p", "kata", json!({"overhead": {"cpu": "1"}})),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned(),
        ),
        (
            pod_of_class("p", "kata", json!({"nodeSelector": {"kata": "no"}})),
            "conflict: runtimeClass.scheduling.nodeSelector[kata] = yes; pod.spec.nodeSelector[kata] = no"
                .to_owned(),
        ),
        (
            pod_of_class("p", "plain", json!({"overhead": {"cpu": "1"}})),
            format!("pod rejected: {without}"),
        ),
        (nameless, format!("pod rejected: {without}")),
    ] {
        let refusal = client.post(PODS, pod.clone()).await.refused(403, "Forbidden");
        assert_eq!(
            refusal["message"],
            format!("pods \"p\" is forbidden: {problem}"),
            "{pod}"
        );
    }
}

#[tokio::test]
async fn a_runtime_class_keeps_its_handler_and_shows_it() {
    let client = Client::new();
    for handler in [json!("No_Label"), json!(""), Value::Null] {
        let class = json!({"metadata": {"name": "bad"}, "handler": handler});
        client.post(RUNTIME_CLASSES, class).await.refused(422, "Invalid");
    }
    runtime_class(&client, "kata", json!({})).await;
    let path = format!("{RUNTIME_CLASSES}/kata");
    client
        .patch(&path, MERGE, json!({"handler": "other"}))
        .await
        .refused(422, "Invalid");
    let table = client.accepting("application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = table.get(RUNTIME_CLASSES).await.ok();
    assert_eq!(table["rows"][0]["cells"][1], "kata");
}

#[tokio::test]
async fn the_account_of_a_pod_is_there_and_lends_its_secrets() {
    let client = Client::new();
    let mut other = pod("other", json!({}));
    other["spec"]["serviceAccountName"] = json!("robot");
    let refusal = client.post(PODS, other.clone()).await.refused(403, "Forbidden");
    assert_eq!(
        refusal["message"],
        "pods \"other\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found"
    );
    let robot = json!({"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "registry"}]});
    client.post(ACCOUNTS, robot).await.ok();
    let created = client.post(PODS, other).await.ok();
    for field in ["serviceAccountName", "serviceAccount"] {
        assert_eq!(created["spec"][field], "robot");
    }
    assert_eq!(created["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    // The older name of the field, and secrets of its own.
    let mut older = pod("older", json!({}));
    older["spec"]["serviceAccount"] = json!("robot");
    older["spec"]["imagePullSecrets"] = json!([{"name": "mine"}]);
    let older = client.post(PODS, older).await.ok();
    assert_eq!(older["spec"]["serviceAccountName"], "robot");
    assert_eq!(older["spec"]["imagePullSecrets"], json!([{"name": "mine"}]));
    let plain = client.post(PODS, pod("plain", json!({}))).await.ok();
    assert_eq!(plain["spec"]["serviceAccountName"], "default");
    assert_eq!(plain["spec"]["imagePullSecrets"], Value::Null);
    let mut mirror = pod("mirror", json!({}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let mirror = client.post(PODS, mirror).await.ok();
    assert_eq!(mirror["spec"]["serviceAccountName"], Value::Null);
}

#[tokio::test]
async fn every_namespace_keeps_its_default_account() {
    let client = Client::new();
    client.namespace("shop").await;
    let accounts = "/api/v1/namespaces/shop/serviceaccounts";
    let first = client.get(&format!("{accounts}/default")).await.ok();
    client.delete(&format!("{accounts}/default")).await.ok();
    let second = client.get(&format!("{accounts}/default")).await.ok();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    client.delete(accounts).await.ok();
    assert_eq!(names(&client.get(accounts).await.ok()), ["default"]);
    client.delete("/api/v1/namespaces/shop").await.ok();
    assert!(!client.exists("/api/v1/namespaces/shop").await);
    assert!(!client.exists(&format!("{accounts}/default")).await);
}
