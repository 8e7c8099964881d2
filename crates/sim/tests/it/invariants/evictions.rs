//! How pods leave a node that goes: through the Eviction API (1), in tiers (30), with their grace (31).

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
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

/// The namesake of a pod that was to go runs on another node, and so does what was never to go.
#[tokio::test(start_paused = true)]
async fn invariant_1_pods_leave_only_nodes_that_go() {
    for by_claim in [true, false] {
        let stage = with_node().await;
        stage.live_node("m").await;
        for (pod, node) in [("goes", "n"), ("stays", "m"), ("deleted", "m")] {
            stage.pod(pod, node, json!({})).await;
        }
        stage.pass(60).await;
        if by_claim {
            stage.delete::<NodeClaim>("n").await;
        } else {
            stage.delete::<Node>("n").await;
        }
        stage.pass(60).await;
        stage.evict("goes").await;
        stage.assert_silent();
        if by_claim {
            stage.evict("stays").await;
            stage.assert_broken(1, "default/stays");
        } else {
            let over = json!({"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": "2026-01-01T00:00:00Z"}}});
            stage.as_operator::<NodeClaim>("m", over).await;
            let pods = stage.pods();
            pods.delete("deleted", &DeleteParams::default()).await.unwrap();
            stage.assert_broken(1, "default/deleted");
        }
    }
}

/// A server that asks nobody about unready pods lets them go by a count that is too high.
#[tokio::test(start_paused = true)]
async fn invariant_1_unready_pods_go_where_the_budget_is_met_without_them_or_does_not_ask() {
    for (policy, ready, reason, may_go) in [
        ("IfHealthyBudget", 1, "InsufficientPods", false),
        ("IfHealthyBudget", 2, "InsufficientPods", true),
        ("AlwaysAllow", 1, "InsufficientPods", true),
        // Nobody counts these pods any more: the server goes by what was counted last.
        ("IfHealthyBudget", 1, "SyncFailed", true),
    ] {
        let stage = with_node().await;
        stage.pod("sick", "n", json!({})).await;
        let unready = json!({"conditions": [{"type": "Ready", "status": "False"}]});
        stage.patch_status::<Pod>("sick", unready).await;
        for number in 0..ready {
            stage.pod(&format!("well-{number}"), "n", json!({})).await;
        }
        let budget = json!({"metadata": {"name": "w"}, "spec": {
            "minAvailable": 2, "unhealthyPodEvictionPolicy": policy, "selector": {"matchLabels": {"app": "w"}},
        }});
        stage.create::<PodDisruptionBudget>(budget).await;
        let allowed = stage.condition("DisruptionAllowed", "False", reason);
        let status = json!({"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 3, "observedGeneration": 1,
            "conditions": [allowed]});
        stage.patch_status::<PodDisruptionBudget>("w", status).await;
        stage.pass(5).await;
        stage.evict("sick").await;
        if may_go {
            stage.assert_silent();
        } else {
            stage.assert_broken(1, "default/sick");
        }
    }
}

/// What a budget asks for follows from its specification and from what the controllers of its pods are to have, whatever its status says.
#[tokio::test(start_paused = true)]
async fn invariant_1_a_budget_of_a_percentage_is_one_of_what_is_to_be() {
    for share in [json!({"minAvailable": "50%"}), json!({"maxUnavailable": "30%"})] {
        let stage = with_node().await;
        let owner = stage.replica_set(4).await;
        for name in ["one", "two", "three"] {
            let owned = json!({"metadata": {"ownerReferences": [owner]}});
            stage.pod(name, "n", owned).await;
        }
        stage.pass(5).await;
        let mut budget =
            json!({"metadata": {"name": "w"}, "spec": {"selector": {"matchLabels": {"app": "w"}}}});
        json_patch::merge(&mut budget["spec"], &share);
        stage.create::<PodDisruptionBudget>(budget).await;
        // Of the three that there are, not of the four that there should be, and rounded down.
        let status = json!({"disruptionsAllowed": 2, "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3, "observedGeneration": 1});
        stage.patch_status::<PodDisruptionBudget>("w", status).await;
        stage.pass(5).await;
        stage.evict("one").await;
        stage.assert_silent();
        stage.pass(5).await;
        stage.evict("two").await;
        stage.assert_broken(1, "default/two");
    }
}

/// Nobody counts pods because a workload has been scaled: until there are more, a budget asks for no more of them.
#[tokio::test(start_paused = true)]
async fn invariant_1_a_workload_that_grows_has_its_pods_counted_when_they_come() {
    let stage = with_node().await;
    stage.delete::<NodeClaim>("n").await;
    let owner = stage.replica_set(2).await;
    for name in ["one", "two", "three"] {
        let owned = json!({"metadata": {"ownerReferences": [owner]}});
        stage.pod(name, "n", owned).await;
    }
    stage.pass(5).await;
    let budget = json!({"metadata": {"name": "w"}, "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"app": "w"}}}});
    stage.create::<PodDisruptionBudget>(budget).await;
    let status = json!({"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 2, "observedGeneration": 1});
    stage.patch_status::<PodDisruptionBudget>("w", status).await;
    stage.pass(5).await;
    stage
        .patch::<Deployment>("w", json!({"spec": {"replicas": 5}}))
        .await;
    stage.pass(60).await;
    stage.evict("one").await;
    stage.assert_silent();
    // Whoever counts now counts for five.
    stage.pass(5).await;
    let status = json!({"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1});
    stage.patch_status::<PodDisruptionBudget>("w", status).await;
    stage.evict("two").await;
    stage.assert_broken(1, "default/two");
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
