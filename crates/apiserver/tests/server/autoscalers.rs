//! HorizontalPodAutoscalers and CronJobs as users write and see them; what they do is the business of controllers.

use crate::client::{Client, MERGE};
use serde_json::{Value, json};

const V1: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const V2: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// As `kubectl autoscale deployment web --min=2 --max=5 --cpu-percent=60` writes it.
fn old_form() -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
           "spec": {"minReplicas": 2, "maxReplicas": 5, "targetCPUUtilizationPercentage": 60,
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}})
}

#[tokio::test]
async fn both_versions_show_the_same_autoscaler() {
    let client = Client::new();
    client.post(V1, old_form()).await.ok();
    let new = client.get(&format!("{V2}/web")).await.ok();
    assert_eq!(new["apiVersion"], "autoscaling/v2");
    assert_eq!(
        new["spec"]["metrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}])
    );
    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
    let patch = json!({"spec": {"maxReplicas": 7, "metrics": [memory]}});
    client.patch(&format!("{V2}/web"), MERGE, patch).await.ok();
    let old = client.get(&format!("{V1}/web")).await.ok();
    assert_eq!(
        (&old["apiVersion"], &old["spec"]["maxReplicas"]),
        (&json!("autoscaling/v1"), &json!(7))
    );
    assert!(
        old["spec"].get("targetCPUUtilizationPercentage").is_none(),
        "{old}"
    );
    let list = client.get(V1).await.ok();
    assert_eq!(list["items"][0]["spec"], old["spec"]);
    client
        .patch(&format!("{V1}/web"), MERGE, json!({"spec": {"minReplicas": 3}}))
        .await
        .ok();
    let new = client.get(&format!("{V2}/web")).await.ok();
    assert_eq!(
        (&new["spec"]["metrics"], &new["spec"]["minReplicas"]),
        (&json!([memory]), &json!(3)),
        "a write through the old form keeps what only the new one knows"
    );
    let group = client.get("/apis/autoscaling").await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v2");
}

#[tokio::test]
async fn an_autoscaler_needs_a_range_and_a_target() {
    let client = Client::new();
    let mut bad = old_form();
    bad["spec"] =
        json!({"minReplicas": 5, "maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": ""}});
    let status = client.post(V1, bad).await.refused(422, "Invalid");
    let causes = status["details"]["causes"].as_array().expect("causes");
    let fields: Vec<&str> = causes
        .iter()
        .filter_map(|cause| cause["field"].as_str())
        .collect();
    assert_eq!(fields, ["spec.maxReplicas", "spec.scaleTargetRef.name"]);
}

#[tokio::test]
async fn tables_show_what_kubectl_shows() {
    let client = Client::new();
    client.post(V1, old_form()).await.ok();
    let status = json!({"status": {"currentReplicas": 2, "desiredReplicas": 2, "currentMetrics": [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 31, "averageValue": "31m"}}}]}});
    client
        .patch(&format!("{V2}/web/status"), MERGE, status)
        .await
        .ok();
    let container = json!({"name": "main", "image": "example.com/app:1"});
    let job = json!({"metadata": {"name": "nightly"}, "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [container]}}}}}});
    client.post(CRON_JOBS, job.clone()).await.ok();
    let tables = client.accepting(TABLE);
    let cells = |table: Value| table["rows"][0]["cells"].clone();
    assert_eq!(
        cells(tables.get(V2).await.ok()),
        json!(["web", "Deployment/web", "cpu: 31%/60%", "2", 5, 2, "0s"])
    );
    assert_eq!(
        cells(tables.get(CRON_JOBS).await.ok()),
        json!([
            "nightly",
            "0 3 * * *",
            "<none>",
            "False",
            0,
            "<none>",
            "0s",
            "main",
            "example.com/app:1",
            "<none>"
        ])
    );
    let mut bad = job;
    bad["metadata"]["name"] = json!("bad");
    bad["spec"]["schedule"] = json!("0 3 * *");
    let status = client.post(CRON_JOBS, bad).await.refused(422, "Invalid");
    assert_eq!(status["details"]["causes"][0]["field"], "spec.schedule");
}
