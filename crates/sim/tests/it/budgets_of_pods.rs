//! What PodDisruptionBudgets count where nobody says how many pods there are to be.

use crate::plain::Cluster;
use crate::words::*;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use serde_json::{Value, json};

fn of_app(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}})
}

async fn allowed(cluster: &Cluster, name: &str, app: &str, share: Value) -> (i32, String) {
    cluster.budget_named(name, app, share).await;
    cluster.pass(5).await;
    let status = cluster.get::<PodDisruptionBudget>(name).await.status;
    let status = status.expect("it was counted");
    let conditions = status.conditions.unwrap_or_default();
    let reason = conditions.iter().map(|condition| condition.reason.clone());
    (status.disruptions_allowed.unwrap_or_default(), reason.collect())
}

/// Pods without a controller are part of no percentage and of no maximum: such a budget lets none of them go. A number of pods that must stay can be counted.
#[tokio::test(start_paused = true)]
async fn pods_without_a_controller_count_for_a_minimum_only() {
    let cluster = Cluster::undisturbed(79).await;
    for name in ["one", "two"] {
        cluster.pod(name, "100m", of_app("bare")).await;
    }
    cluster.until_running(2).await;
    let held = (0, "InsufficientPods".to_owned());
    assert_eq!(
        allowed(&cluster, "maximum", "bare", json!({"maxUnavailable": 1})).await,
        held
    );
    assert_eq!(
        allowed(&cluster, "share", "bare", json!({"maxUnavailable": "100%"})).await,
        held
    );
    let minimum = allowed(&cluster, "minimum", "bare", json!({"minAvailable": 1})).await;
    assert_eq!(minimum, (1, "SufficientPods".to_owned()));
    // A budget that asks for neither expects nobody.
    assert_eq!(allowed(&cluster, "neither", "bare", json!({})).await, held);
    // Beside pods of a Deployment they count when they are ready, and not among those that there are to be.
    cluster.run("bare-beside", 3, "100m").await;
    cluster.pod("three", "100m", of_app("bare-beside")).await;
    cluster.until_running(6).await;
    let beside = allowed(&cluster, "beside", "bare-beside", json!({"maxUnavailable": 1})).await;
    assert_eq!(
        beside,
        (2, "SufficientPods".to_owned()),
        "four of three are ready"
    );
}

/// A controller that cannot be scaled leaves the number unknown: nothing is allowed, and the condition says why, until the budget asks for something else.
#[tokio::test(start_paused = true)]
async fn a_budget_of_pods_that_nobody_scales_allows_nothing() {
    let cluster = Cluster::undisturbed(80).await;
    cluster.run("web", 2, "100m").await;
    let object = json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}}, "template": template("agent", "50m", json!({})),
    }});
    cluster.create::<DaemonSet>(object).await;
    cluster.pass(60).await;
    let pods = cluster.running_pods().await;
    assert!(pods.iter().any(|pod| pod.labels()["app"] == "agent"));
    let failed = allowed(&cluster, "agents", "agent", json!({"maxUnavailable": 1})).await;
    assert_eq!(failed, (0, "SyncFailed".to_owned()));
    cluster
        .patch::<PodDisruptionBudget>(
            "agents",
            json!({"spec": {"maxUnavailable": null, "minAvailable": 0}}),
        )
        .await;
    cluster.pass(5).await;
    let status = cluster.get::<PodDisruptionBudget>("agents").await.status.unwrap();
    assert!(status.disruptions_allowed > Some(0), "{status:?}");
    assert_eq!(status.conditions.unwrap()[0].reason, "SufficientPods");
}

/// Pods that have ended are pods all the same: a number counts them among those that there are to be, and a Job has no scale when it is done either.
#[tokio::test(start_paused = true)]
async fn pods_that_have_ended_count_among_those_that_there_are_to_be() {
    let cluster = Cluster::undisturbed(81).await;
    cluster.run("web", 2, "100m").await;
    let ends = json!({"metadata": {"annotations": {"sim.spokeshave.dev/run-duration": "1m"}}, "spec": {"restartPolicy": "Never"}});
    let object =
        json!({"metadata": {"name": "migrate"}, "spec": {"template": template("web", "100m", ends)}});
    cluster.create::<Job>(object).await;
    cluster
        .until("the job is done", async |cluster| {
            let status = cluster.get::<Job>("migrate").await.status.unwrap_or_default();
            status.succeeded == Some(1)
        })
        .await;
    let maximum = allowed(&cluster, "maximum", "web", json!({"maxUnavailable": 1})).await;
    assert_eq!(maximum, (0, "SyncFailed".to_owned()));
    let minimum = allowed(&cluster, "minimum", "web", json!({"minAvailable": 1})).await;
    assert_eq!(minimum, (1, "SufficientPods".to_owned()), "two are ready");
    let status = cluster
        .get::<PodDisruptionBudget>("minimum")
        .await
        .status
        .unwrap();
    assert_eq!(status.expected_pods, Some(3));
}

/// Of a ReplicaSet whose Deployment is gone it is the ReplicaSet that is scaled.
#[tokio::test(start_paused = true)]
async fn a_replica_set_outlives_its_deployment_with_its_own_scale() {
    let cluster = Cluster::undisturbed(82).await;
    cluster.run("web", 3, "100m").await;
    let set = cluster.names::<ReplicaSet>().await.remove(0);
    let kept = json!({"metadata": {"finalizers": ["example.com/kept"]}});
    cluster.patch::<ReplicaSet>(&set, kept).await;
    cluster.delete::<Deployment>("web").await;
    cluster.pass(5).await;
    assert!(!cluster.exists::<Deployment>("web").await && cluster.exists::<ReplicaSet>(&set).await);
    let maximum = allowed(&cluster, "maximum", "web", json!({"maxUnavailable": 1})).await;
    assert_eq!(maximum, (1, "SufficientPods".to_owned()));
}

/// Pods of a controller that is gone are not those of another that has its name now.
#[tokio::test(start_paused = true)]
async fn a_controller_that_has_the_name_of_another_does_not_count_its_pods() {
    let cluster = Cluster::undisturbed(83).await;
    let template = template("db", "100m", json!({}));
    cluster.stateful_set("db", 1, template.clone()).await;
    cluster.until_running_of("db", 1).await;
    let kept = json!({"metadata": {"finalizers": ["example.com/kept"]}});
    cluster.patch::<Pod>("db-0", kept).await;
    cluster.delete::<StatefulSet>("db").await;
    cluster.stateful_set("db", 1, template).await;
    let maximum = allowed(&cluster, "maximum", "db", json!({"maxUnavailable": 1})).await;
    assert_eq!(maximum, (0, "SyncFailed".to_owned()));
}
