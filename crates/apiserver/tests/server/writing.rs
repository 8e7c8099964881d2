//! create and replace: names, defaults, preconditions, dry runs, subresources.

use crate::client::{Client, JSON, MAPS, MERGE, PODS, names, pod};
use serde_json::json;

#[tokio::test]
async fn created_objects_get_an_identity() {
    let client = Client::new();
    let created = client.map("a", json!({})).await;
    let metadata = &created["metadata"];
    assert_eq!(created["kind"], "ConfigMap");
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["creationTimestamp"], "2027-01-15T08:00:00Z");
    assert_eq!(metadata["uid"].as_str().map(str::len), Some(36));
    assert_eq!(metadata["managedFields"][0]["manager"], "tests");
    assert_eq!(client.get(&format!("{MAPS}/a")).await.ok(), created);
    client
        .post(MAPS, json!({"metadata": {"name": "a"}}))
        .await
        .refused(409, "AlreadyExists");
}

#[tokio::test]
async fn generated_names_are_free_and_repeat_with_the_seed() {
    let run = async || {
        let client = Client::new();
        let mut made = Vec::new();
        for _ in 0..20 {
            let created = client
                .post(MAPS, json!({"metadata": {"generateName": "job-"}}))
                .await
                .ok();
            made.push(created["metadata"]["name"].as_str().unwrap().to_owned());
        }
        made
    };
    let made = run().await;
    assert!(
        made.iter()
            .all(|name| name.starts_with("job-") && name.len() == 9),
        "{made:?}"
    );
    let mut different = made.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 20);
    assert_eq!(made, run().await, "one seed, one sequence");
}

#[tokio::test]
async fn pods_get_the_defaults_that_schedulers_read() {
    let client = Client::new();
    let mut body = pod("web", json!({}));
    body["spec"]["priorityClassName"] = json!("system-node-critical");
    body["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "0.5", "memory": "1024Mi"}});
    let created = client.post(PODS, body).await.ok();
    let spec = &created["spec"];
    assert_eq!(spec["priority"], 2_000_001_000_i64);
    assert_eq!(spec["restartPolicy"], "Always");
    assert_eq!(spec["schedulerName"], "default-scheduler");
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(
        spec["containers"][0]["resources"]["requests"],
        json!({"cpu": "500m", "memory": "1Gi"}),
        "limits are requests too, in their stored spelling"
    );
    let tolerations = spec["tolerations"].as_array().unwrap();
    assert_eq!(tolerations.len(), 2, "not-ready and unreachable for 300 s");
    assert_eq!(
        (&created["status"]["phase"], &created["status"]["qosClass"]),
        (&json!("Pending"), &json!("Guaranteed"))
    );
    let mut body = pod("bad", json!({}));
    body["spec"]["priorityClassName"] = json!("none");
    client.post(PODS, body).await.refused(403, "Forbidden");
}

/// As kube-apiserver has it: what waits behind a gate says so from its first version on, and `kubectl get` shows it.
#[tokio::test]
async fn a_pod_behind_a_gate_says_so() {
    let client = Client::new();
    let mut body = pod("gated", json!({}));
    body["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    let created = client.post(PODS, body).await.ok();
    let condition = &created["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("PodScheduled"), &json!("False"), &json!("SchedulingGated")),
    );
    let open = client.post(PODS, pod("open", json!({}))).await.ok();
    assert_eq!(open["status"]["conditions"], json!(null));
}

#[tokio::test]
async fn replacing_needs_the_newest_version() {
    let client = Client::new();
    let created = client.map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    let mut newer = created.clone();
    newer["data"]["key"] = json!("other");
    let replaced = client.put(&path, newer.clone()).await.ok();
    assert_ne!(
        replaced["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    let body = client.put(&path, newer).await.refused(409, "Conflict");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("the object has been modified"),
        "{body}"
    );
    let mut blind = created;
    blind["metadata"]["resourceVersion"] = json!("");
    blind["data"] = json!({"last": "wins"});
    assert_eq!(
        client.put(&path, blind).await.ok()["data"],
        json!({"last": "wins"})
    );
}

#[tokio::test]
async fn a_replacement_that_changes_nothing_writes_nothing() {
    let client = Client::new();
    let created = client.map("a", json!({})).await;
    let replaced = client.put(&format!("{MAPS}/a"), created.clone()).await.ok();
    assert_eq!(
        replaced["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn dry_runs_answer_and_change_nothing() {
    let client = Client::new();
    let before = client.get(MAPS).await.ok()["metadata"]["resourceVersion"].clone();
    assert_eq!(
        client
            .post(
                &format!("{MAPS}?dryRun=All"),
                json!({"metadata": {"name": "dry"}})
            )
            .await
            .code,
        201
    );
    assert!(!client.exists(&format!("{MAPS}/dry")).await);
    assert_eq!(client.get(MAPS).await.ok()["metadata"]["resourceVersion"], before);
    client.map("wet", json!({})).await;
    let path = format!("{MAPS}/wet?dryRun=All");
    assert_eq!(
        client
            .patch(&path, MERGE, json!({"data": {"key": "dry"}}))
            .await
            .ok()["data"]["key"],
        "dry"
    );
    client.delete(&path).await.ok();
    assert_eq!(
        client.get(&format!("{MAPS}/wet")).await.ok()["data"]["key"],
        "value"
    );
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let client = Client::new();
    client.post(PODS, pod("web", json!({}))).await.ok();
    let path = format!("{PODS}/web");
    let patched = client
        .patch(
            &path,
            MERGE,
            json!({"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}}),
        )
        .await
        .ok();
    assert_eq!(
        (&patched["status"]["phase"], &patched["metadata"]["labels"]["a"]),
        (&json!("Pending"), &json!("b"))
    );
    let patch = json!({"status": {"phase": "Running"}, "spec": {"schedulerName": "other"}});
    let patched = client.patch(&format!("{path}/status"), MERGE, patch).await.ok();
    assert_eq!(
        (&patched["status"]["phase"], &patched["spec"]["schedulerName"]),
        (&json!("Running"), &json!("default-scheduler"))
    );
    let body = client
        .patch(&path, MERGE, json!({"spec": {"schedulerName": "other"}}))
        .await
        .refused(422, "Invalid");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("pod updates may not change fields other than"),
        "{body}"
    );
}

#[tokio::test]
async fn binding_gives_a_pod_its_node_once() {
    let client = Client::new();
    client.post(PODS, pod("web", json!({}))).await.ok();
    let binding = |node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": {"kind": "Node", "name": node}});
    assert_eq!(
        client
            .post(&format!("{PODS}/web/binding"), binding("one"))
            .await
            .code,
        201
    );
    let bound = client.get(&format!("{PODS}/web")).await.ok();
    assert_eq!(bound["spec"]["nodeName"], "one");
    assert!(
        bound["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|condition| condition["type"] == "PodScheduled" && condition["status"] == "True")
    );
    client
        .post(&format!("{PODS}/web/binding"), binding("two"))
        .await
        .refused(409, "Conflict");
}

#[tokio::test]
async fn scale_reads_and_writes_replicas() {
    let client = Client::new();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}});
    client.post(path, json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}})).await.ok();
    let scale = client.get(&format!("{path}/web/scale")).await.ok();
    assert_eq!(
        (
            &scale["kind"],
            &scale["spec"]["replicas"],
            &scale["status"]["selector"]
        ),
        (&json!("Scale"), &json!(1), &json!("app=web"))
    );
    let scaled = client
        .patch(
            &format!("{path}/web/scale"),
            MERGE,
            json!({"spec": {"replicas": 5}}),
        )
        .await
        .ok();
    assert_eq!(scaled["spec"]["replicas"], 5);
    let deployment = client.get(&format!("{path}/web")).await.ok();
    assert_eq!(
        (
            &deployment["spec"]["replicas"],
            &deployment["metadata"]["generation"]
        ),
        (&json!(5), &json!(2))
    );
    client
        .patch(
            &format!("{path}/web/scale"),
            MERGE,
            json!({"spec": {"replicas": -1}}),
        )
        .await
        .refused(422, "Invalid");
}

#[tokio::test]
async fn leases_and_both_event_apis() {
    let client = Client::new();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease = client.post(leases, json!({"metadata": {"name": "n"}, "spec": {"holderIdentity": "n", "renewTime": "2027-01-15T08:00:00.123456Z"}})).await.ok();
    assert_eq!(lease["spec"]["renewTime"], "2027-01-15T08:00:00.123456Z");
    client.new_event("e", "tests").await;
    let old = client
        .get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dweb,reason%3DSeen")
        .await
        .ok();
    assert_eq!(names(&old), ["e"]);
    assert_eq!(
        (
            &old["items"][0]["message"],
            &old["items"][0]["involvedObject"]["kind"]
        ),
        (&json!("a note"), &json!("Pod"))
    );
}

#[tokio::test]
async fn yaml_is_read_and_unknown_fields_are_judged_as_asked() {
    let client = Client::new();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: written}\ndata: {key: 'yes'}\nextra: 1\n";
    let warned = client
        .text(
            "POST",
            &format!("{MAPS}?fieldValidation=Warn"),
            "application/yaml",
            yaml,
        )
        .await;
    assert_eq!(warned.warnings, ["299 - \"unknown field \\\"extra\\\"\""]);
    assert_eq!(warned.ok()["data"]["key"], "yes");
    let strict = client
        .text(
            "POST",
            &format!("{MAPS}?fieldValidation=Strict"),
            "application/yaml",
            yaml.replace("name: written", "name: strict"),
        )
        .await;
    let body = strict.refused(400, "BadRequest");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("strict decoding error: unknown field \"extra\""),
        "{body}"
    );
    let twice = r#"{"metadata": {"name": "t"}, "data": {"a": "1"}, "data": {"a": "2"}}"#;
    client
        .text("POST", &format!("{MAPS}?fieldValidation=Strict"), JSON, twice)
        .await
        .refused(400, "BadRequest");
}

/// A few kinds are made by a replacement, as clients expect that hold Leases or replace what was deleted.
#[tokio::test]
async fn a_replacement_makes_what_is_not_there_where_a_real_server_does() {
    let client = Client::new();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease =
        json!({"metadata": {"name": "held", "resourceVersion": "7"}, "spec": {"holderIdentity": "me"}});
    let answer = client.put(&format!("{leases}/held"), lease).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert_eq!(answer.body["metadata"]["managedFields"][0]["operation"], "Update");
    let of_another = json!({"metadata": {"name": "gone", "uid": "4"}, "spec": {"holderIdentity": "me"}});
    let refusal = client.put(&format!("{leases}/gone"), of_another).await;
    refusal.refused(409, "Conflict");
    let service =
        json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}});
    let services = "/api/v1/namespaces/default/services";
    let answer = client
        .put(&format!("{services}/web?dryRun=All"), service.clone())
        .await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert!(!client.exists(&format!("{services}/web")).await, "only tried");
    assert_eq!(
        client.put(&format!("{services}/web"), service.clone()).await.code,
        201
    );
    assert_eq!(client.put(&format!("{services}/web"), service).await.code, 200);
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = json!({"metadata": {"name": "all"}, "rules": []});
    assert_eq!(client.put(&format!("{roles}/all"), role).await.code, 201);
    client
        .put(&format!("{MAPS}/none"), json!({"metadata": {"name": "none"}}))
        .await
        .refused(404, "NotFound");
    client
        .put(
            &format!("{services}/none/status"),
            json!({"metadata": {"name": "none"}}),
        )
        .await
        .refused(404, "NotFound");
}
