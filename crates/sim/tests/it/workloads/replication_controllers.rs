//! ReplicationControllers, as manifests of long ago have them: pods as those of a ReplicaSet, where `up` asks for it.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::ResourceExt as _;
use serde_json::json;
use spokeshave_cluster::Options;
use spokeshave_sim::lab::LabOptions;

use super::of_app;
use crate::plain::Cluster;
use crate::words::*;

/// A cluster like that of `up`, with a ReplicationController that names no selector.
async fn with_controller(seed: u64, replicas: i32) -> Cluster {
    let mut options = LabOptions::new(seed);
    options.cluster = Options {
        replication_controllers: true,
        ..Options::all()
    };
    let undisturbed = json!({"disruption": {"consolidateAfter": "Never"}});
    let cluster = Cluster::new(options, undisturbed).await.with_operator();
    let object = json!({"metadata": {"name": "old"}, "spec": {"replicas": replicas, "template": template("old", "100m", json!({}))}});
    cluster.create::<ReplicationController>(object).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_replication_controller_has_as_many_pods_as_it_asks_for() {
    let cluster = with_controller(231, 2).await;
    cluster.until_running_of("old", 2).await;
    let pods = cluster.list::<Pod>().await;
    for pod in of_app(&pods, "old") {
        let owner = &pod.owner_references()[0];
        assert_eq!(
            (owner.api_version.as_str(), owner.kind.as_str()),
            ("v1", "ReplicationController")
        );
    }
    // One that is deleted is replaced.
    let gone = pods[0].name_any();
    cluster.delete::<Pod>(&gone).await;
    cluster.until_gone::<Pod>(&gone).await;
    cluster.until_running_of("old", 2).await;
    for replicas in [3, 1] {
        cluster
            .patch::<ReplicationController>("old", json!({"spec": {"replicas": replicas}}))
            .await;
        cluster
            .until(&format!("{replicas} pods are counted"), async |cluster| {
                let status = cluster.get::<ReplicationController>("old").await.status;
                let status = status.unwrap_or_default();
                status.replicas == replicas
                    && status.ready_replicas == Some(replicas)
                    && status.available_replicas == Some(replicas)
            })
            .await;
    }
    cluster.until_running_of("old", 1).await;
}

/// What is without an owner is adopted, and what is selected no more is let go and replaced.
#[tokio::test(start_paused = true)]
async fn a_replication_controller_has_the_pods_that_it_selects() {
    let cluster = with_controller(232, 1).await;
    cluster.until_running_of("old", 1).await;
    let first = cluster.pod_of("old").await.name_any();
    cluster
        .patch::<Pod>(&first, json!({"metadata": {"labels": {"app": "free"}}}))
        .await;
    cluster
        .until("it is let go", async |cluster| {
            cluster.get::<Pod>(&first).await.owner_references().is_empty()
        })
        .await;
    cluster.until_running_of("old", 1).await;
    cluster
        .patch::<Pod>(&first, json!({"metadata": {"labels": {"app": "old"}}}))
        .await;
    cluster
        .until("one of two goes", async |cluster| {
            let pods = cluster.list::<Pod>().await;
            let ours = of_app(&pods, "old");
            ours.len() == 1 && !ours[0].owner_references().is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_scales_a_replication_controller() {
    let cluster = with_controller(233, 1).await;
    let object = json!({"metadata": {"name": "old"}, "spec": {
        "minReplicas": 3, "maxReplicas": 5, "scaleTargetRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "old"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
    }});
    cluster.create::<HorizontalPodAutoscaler>(object).await;
    cluster.until_running_of("old", 3).await;
}
