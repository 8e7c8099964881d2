//! How pods leave a node: through the Eviction API (1), in tiers (30), with their grace (31).

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::NodeClaim;
use spokeshave_runtime::Api;

use super::stage::*;
use crate::words::Objects as _;

#[tokio::test(start_paused = true)]
async fn invariant_1_pods_leave_through_the_eviction_api() {
    let stage = with_node().await;
    stage.pod("evicted", "n", json!({})).await;
    stage.pod("deleted", "n", json!({})).await;
    stage.pass(5).await;
    stage.evict("evicted").await;
    stage.assert_silent();
    stage
        .pods()
        .delete("deleted", &DeleteParams::default())
        .await
        .unwrap();
    stage.assert_broken(1, "default/deleted");
}

#[tokio::test(start_paused = true)]
async fn invariant_1_no_eviction_takes_more_than_the_budget_gives() {
    let stage = with_node().await;
    stage.pod("one", "n", json!({})).await;
    stage.pod("two", "n", json!({})).await;

    let budget = json!({"metadata": {"name": "w"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "w"}}}});
    stage.create::<PodDisruptionBudget>(budget).await;
    // A disruption controller that counts wrongly allows both.
    let status = json!({"disruptionsAllowed": 2, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "observedGeneration": 1});
    stage.patch_status::<PodDisruptionBudget>("w", status).await;
    stage.pass(5).await;
    stage.evict("one").await;
    stage.assert_silent();
    stage.pass(5).await;
    stage.evict("two").await;
    stage.assert_broken(1, "default/two");
}

/// Seed 880261: pods vanish, and in the same instant the server allows an eviction by a status that counts them.
#[tokio::test(start_paused = true)]
async fn invariant_1_what_vanished_in_the_same_moment_is_not_counted_yet() {
    let stage = with_node().await;
    for name in ["one", "two", "three"] {
        stage.pod(name, "n", json!({})).await;
    }
    let budget = json!({"metadata": {"name": "w"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "w"}}}});
    stage.create::<PodDisruptionBudget>(budget).await;
    let status = json!({"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3, "observedGeneration": 1});
    stage
        .patch_status::<PodDisruptionBudget>("w", status.clone())
        .await;
    stage.pass(5).await;
    let users: Api<Pod> = Api::default_namespaced(stage.lab.client.clone());
    let at_once = DeleteParams::default().grace_period(0);
    users.delete("three", &at_once).await.unwrap();
    stage.evict("two").await;
    stage.assert_silent();
    // Seconds later a controller that has not noticed counts wrongly.
    stage.pass(5).await;
    stage.patch_status::<PodDisruptionBudget>("w", status).await;
    stage.evict("one").await;
    stage.assert_broken(1, "default/one");
}

#[tokio::test(start_paused = true)]
async fn invariant_30_tiers_leave_in_order() {
    let stage = with_node().await;
    stage
        .pod(
            "ordinary",
            "n",
            json!({"spec": {"terminationGracePeriodSeconds": 600}}),
        )
        .await;
    stage
        .pod(
            "critical",
            "n",
            json!({"spec": {"priorityClassName": "system-cluster-critical"}}),
        )
        .await;
    stage.pass(5).await;
    stage.evict("ordinary").await;
    stage.assert_silent();
    stage.evict("critical").await;
    stage.assert_broken(30, "default/critical");
}

#[tokio::test(start_paused = true)]
async fn invariant_31_pods_have_their_grace() {
    let stage = with_node().await;
    stage
        .pod(
            "patient",
            "n",
            json!({"spec": {"terminationGracePeriodSeconds": 60}}),
        )
        .await;
    stage
        .pod("cut", "n", json!({"spec": {"terminationGracePeriodSeconds": 60}}))
        .await;
    stage.pass(5).await;
    let evict = async |name: &str, seconds: Option<i64>| {
        let eviction = Eviction {
            metadata: kube::core::ObjectMeta {
                name: Some(name.to_owned()),
                ..Default::default()
            },
            delete_options: Some(DeleteOptions {
                grace_period_seconds: seconds,
                ..DeleteOptions::default()
            }),
        };
        let answer = stage
            .pods()
            .create_subresource::<Eviction, Value>("eviction", name, &PostParams::default(), &eviction)
            .await;
        answer.unwrap()
    };
    evict("patient", None).await;
    stage.assert_silent();
    evict("cut", Some(5)).await;
    stage.assert_broken(31, "default/cut");
}

/// A pod is not deleted before the deadline minus its grace period; after it, with the remaining time.
#[tokio::test(start_paused = true)]
async fn invariant_1_and_31_the_deadline_allows_deletes() {
    let stage = with_node().await;
    for name in ["late", "early"] {
        stage
            .pod(name, "n", json!({"spec": {"terminationGracePeriodSeconds": 60}}))
            .await;
    }
    let deadline = json!({"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": "2026-01-01T00:10:00Z"}}});
    stage.as_operator::<NodeClaim>("n", deadline).await;
    stage.delete_claim("n").await;
    stage.pass(8 * 60).await;
    let with_grace = |seconds| DeleteParams {
        grace_period_seconds: Some(seconds),
        ..DeleteParams::default()
    };
    stage.pods().delete("early", &with_grace(60)).await.unwrap();
    assert!(stage.broken().contains(&1), "{:?}", stage.broken());
    let before = stage.lab.invariants.violations().len();
    stage.pass(90).await;
    stage.pods().delete("late", &with_grace(30)).await.unwrap();
    let about_late = stage.lab.invariants.violations();
    assert!(
        about_late[before..]
            .iter()
            .all(|one| !one.object.contains("late")),
        "{about_late:?}"
    );
}
