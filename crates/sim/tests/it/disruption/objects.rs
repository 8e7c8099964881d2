//! External influences: health checks on objects in rollouts, and a failing cloud.

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::conditions::{Conditioned as _, VALIDATION_SUCCEEDED};
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::{DisruptionPolicy, NodeClaim};
use spokeshave_provider_kwok::{Failures, KwokOptions};

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

async fn policy(cluster: &Cluster, spec: Value) {
    let object = json!({"metadata": {"name": "careful"}, "spec": spec});
    let _: DisruptionPolicy = cluster.create(object).await;
}

async fn blue(cluster: &Cluster) -> usize {
    let nodes = cluster.list::<Node>().await;
    let blue = nodes
        .iter()
        .filter(|node| node.labels().get("team").is_some_and(|team| team == "blue"));
    blue.count()
}

fn in_sync(expression: &str) -> Value {
    let object = json!({"apiVersion": "v1", "resource": "configmaps", "namespace": "default", "name": "db", "expression": expression});
    json!({"rollout": {"soak": "1m", "health": {"objects": [object]}}})
}

/// A wave starts only while the expression over the object is true.
#[tokio::test(start_paused = true)]
async fn a_wave_waits_for_an_object_that_has_a_say() {
    let cluster = Cluster::new(281, for_drift("100%")).await;
    policy(&cluster, in_sync("self.data.synced == 'yes'")).await;
    let _operator = cluster.operator();
    two_busy_nodes(&cluster).await;
    new_team(&cluster).await;
    cluster.pass(600).await;
    assert_eq!(blue(&cluster).await, 0, "there is no such object");
    let waits = async || {
        let policy: DisruptionPolicy = cluster.get("careful").await;
        let rollouts = policy.status.map(|status| status.rollouts).unwrap_or_default();
        rollouts
            .first()
            .and_then(|rollout| rollout.waits_for.clone())
            .unwrap_or_default()
    };
    assert!(
        waits().await.contains("configmaps default/db cannot be read"),
        "{}",
        waits().await
    );
    let _: ConfigMap = cluster
        .create(json!({"metadata": {"name": "db"}, "data": {"synced": "no"}}))
        .await;
    cluster.pass(600).await;
    assert_eq!(blue(&cluster).await, 0, "it is not in sync");
    assert!(waits().await.contains("is false"), "{}", waits().await);
    cluster
        .patch::<ConfigMap>("db", json!({"data": {"synced": "yes"}}))
        .await;
    cluster
        .until("the canary has gone", async |cluster| blue(cluster).await == 1)
        .await;
    cluster
        .patch::<ConfigMap>("db", json!({"data": {"synced": "no"}}))
        .await;
    cluster.pass(900).await;
    assert_eq!(blue(&cluster).await, 1, "out of sync, the next wave waits");
    cluster
        .patch::<ConfigMap>("db", json!({"data": {"synced": "yes"}}))
        .await;
    cluster.until("all have gone", two_nodes_of_the_new_team).await;
}

/// An expression that is no CEL, or might not end, is named, and lets nothing drift.
#[tokio::test(start_paused = true)]
async fn an_expression_that_is_broken_or_too_dear_is_named_and_lets_nothing_go() {
    let dear = "self.data.all(a, self.data.all(b, self.data.all(c, self.data.all(d, a == b && c == d))))";
    for (seed, expression) in [(282, "self.data."), (283, dear)] {
        let cluster = Cluster::new(seed, for_drift("100%")).await;
        policy(&cluster, in_sync(expression)).await;
        let _operator = cluster.operator();
        two_busy_nodes(&cluster).await;
        new_team(&cluster).await;
        cluster.pass(900).await;
        assert_eq!(blue(&cluster).await, 0, "{expression}");
        let policy: DisruptionPolicy = cluster.get("careful").await;
        let condition = policy.condition(VALIDATION_SUCCEEDED).expect("a condition");
        assert_eq!(condition.status, "False");
        assert!(
            condition
                .message
                .contains("spec.rollout.health.objects[0].expression"),
            "{}",
            condition.message
        );
        // Forceful disruption continues.
        let claim = cluster.names::<NodeClaim>().await.remove(0);
        cluster.delete::<NodeClaim>(&claim).await;
        cluster.until_gone::<NodeClaim>(&claim).await;
        cluster.delete::<DisruptionPolicy>("careful").await;
        cluster
            .until("without it, all go", two_nodes_of_the_new_team)
            .await;
        cluster.shutdown.request();
    }
}

/// Launches that fail stop everything voluntary for a while, and the status says until when.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_fails_stops_all_and_it_thaws_by_itself() {
    let cluster = Cluster::new(284, at_once()).await;
    policy(
        &cluster,
        json!({"circuitBreakers": {"cloud": {"count": 2, "within": "20m"}}}),
    )
    .await;
    let operator = cluster.operator();
    one_large_node(&cluster).await;
    operator.kill().await;
    let cloud = KwokOptions {
        launch_errors: Failures::FirstAttempts(3),
        ..KwokOptions::default()
    };
    let _operator = cluster.operator_with(cloud);
    without_large(&cluster).await;
    cluster
        .until("the breaker has tripped", async |cluster| {
            let policy: DisruptionPolicy = cluster.get("careful").await;
            let active = policy.status.map(|status| status.active).unwrap_or_default();
            active
                .iter()
                .any(|rule| rule.field == "spec.circuitBreakers.cloud" && rule.until.is_some())
        })
        .await;
    assert!(cluster.ended("Underutilized", DisruptionPhase::Succeeded).await <= 1);
    cluster.pass(1500).await;
    cluster.until("it goes on by itself", on_one_small_node).await;
    let policy: DisruptionPolicy = cluster.get("careful").await;
    assert!(policy.status.is_some_and(|status| status.active.is_empty()));
}

/// A policy that is removed in mid-wave leaves nothing behind: drift continues within budgets.
#[tokio::test(start_paused = true)]
async fn a_policy_that_goes_in_mid_wave_leaves_drift_to_budgets() {
    let cluster = Cluster::new(285, for_drift("100%")).await;
    policy(&cluster, json!({"rollout": {"soak": "2h"}})).await;
    let _operator = cluster.operator();
    two_busy_nodes(&cluster).await;
    new_team(&cluster).await;
    cluster
        .until("the canary has gone", async |cluster| blue(cluster).await == 1)
        .await;
    cluster.pass(900).await;
    assert_eq!(blue(&cluster).await, 1, "it soaks");
    cluster.delete::<DisruptionPolicy>("careful").await;
    cluster.until("all have gone", two_nodes_of_the_new_team).await;
    cluster.pass(60).await;
    cluster.assert_at_rest().await;
}

/// Invariant 43: an operator whose clock is an hour behind or ahead. Behind, a hold ends no earlier; either way nothing panics and nothing is left.
#[tokio::test(start_paused = true)]
async fn invariant_43_a_clock_that_jumps_ends_no_hold_early() {
    let cluster = Cluster::new(286, at_once()).await;
    policy(
        &cluster,
        json!({"hold": {"duration": "20m"}, "timeZone": "Europe/Kyiv"}),
    )
    .await;
    let operator = cluster.operator();
    one_busy_node(&cluster).await;
    operator.kill().await;
    let behind = cluster.operator_off_by(-3600);
    without_web(&cluster).await;
    cluster.pass(1000).await;
    assert_eq!(
        cluster.list::<Node>().await.len(),
        1,
        "an hour behind, it has only just come"
    );
    behind.kill().await;
    // The hold is over by every clock but that one.
    cluster.pass(300).await;
    let _ahead = cluster.operator_off_by(3600);
    cluster.until_empty().await;
}
