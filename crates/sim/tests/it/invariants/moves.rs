//! Voluntary disruption: budgets, and reasons for what goes without them (2), do-not-disrupt (6), a place for every pod (8), which is kept (9), nothing
//! left of what is rolled back (10); and what cannot be known yet (38).

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{KWOKInstance, NodeClaim};

use super::stage::*;
use crate::words::Objects as _;

#[tokio::test(start_paused = true)]
async fn invariant_2_no_more_than_the_budgets_allow() {
    let stage = Stage::new().await;
    stage
        .pool(
            "p",
            json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}}),
        )
        .await;
    for name in ["n", "m"] {
        stage.live_node(name).await;
    }
    stage.pass(5).await;
    stage.disrupt("n", "Empty").await;
    stage.assert_silent();
    stage.disrupt("m", "Empty").await;
    stage.assert_broken(2, "nodeclaim m");
}

#[tokio::test(start_paused = true)]
async fn invariant_2_counts_in_the_order_of_the_decisions() {
    // One may go for being empty, two for being underutilized.
    let budgets = json!([{"nodes": "1", "reasons": ["Empty"]}, {"nodes": "2", "reasons": ["Underutilized"]}]);
    for overdrawn in [false, true] {
        let stage = Stage::new().await;
        let disruption = json!({"consolidateAfter": "0s", "budgets": budgets});
        stage.pool("p", json!({"disruption": disruption})).await;
        for name in ["n", "m"] {
            stage.live_node(name).await;
        }
        stage.pass(5).await;
        // Whatever is decided first, the writes of the other come first.
        let (first, second) = if overdrawn {
            (("n", "Underutilized"), ("m", "Empty"))
        } else {
            (("m", "Empty"), ("n", "Underutilized"))
        };
        stage.command("first", first.0, first.1).await;
        stage.command("second", second.0, second.1).await;
        stage.disrupt(second.0, second.1).await;
        if !overdrawn {
            stage.assert_silent();
        }
        stage.disrupt(first.0, first.1).await;
        if overdrawn {
            stage.assert_broken(2, "nodeclaim m");
        } else {
            stage.assert_silent();
        }
    }
}

/// Why NodeClaim `n` goes, which is up and has a node.
async fn give_reason(stage: &Stage, reason: &str) {
    match reason {
        "a command" => stage.command("c", "n", "Empty").await,
        "a command that was just taken back" | "a command that was taken back long ago" => {
            stage.command("c", "n", "Empty").await;
            stage.pass(10).await;
            let taken_back = json!({"status": {"phase": "RolledBack"}});
            stage.as_operator::<Disruption>("c", taken_back).await;
            let since = if reason.ends_with("long ago") { 60 } else { 2 };
            stage.pass(since).await;
        }
        "a command that a user has just deleted" => {
            stage.command("c", "n", "Empty").await;
            stage.pass(10).await;
            stage.delete::<Disruption>("c").await;
        }
        "a condition" => stage.disrupt("n", "Empty").await,
        "no instance" => stage.delete::<KWOKInstance>("n").await,
        "an instance that is taken back" => {
            stage
                .annotate::<KWOKInstance>("n", "kwok.spokeshave.dev/message", "spot_interrupted")
                .await;
        }
        "a Node that goes" => stage.delete::<Node>("n").await,
        "no Node" => {
            stage.remove_finalizers::<Node>("n").await;
            stage.delete::<Node>("n").await;
        }
        "a broken Node" => {
            let broken = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
            stage.patch_status::<Node>("n", broken).await;
        }
        "a Node that was just broken" => {
            for status in ["Unknown", "True"] {
                let state = json!({"conditions": [{"type": "Ready", "status": status}]});
                stage.patch_status::<Node>("n", state).await;
                stage.pass(2).await;
            }
        }
        "a word of the cloud" => {
            let uid = stage.get::<NodeClaim>("n").await.metadata.uid;
            let event = json!({
                "metadata": {"name": "e", "namespace": "default"}, "reason": "TerminatingOnInterruption", "type": "Warning", "message": "m",
                "involvedObject": {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "n", "uid": uid},
            });
            stage.create::<Event>(event).await;
        }
        _ => {}
    }
}

/// A node that is up goes for a reason that stands in the cluster, or in an event. Users need none.
#[tokio::test(start_paused = true)]
async fn invariant_2_whatever_goes_without_a_budget_has_a_reason_that_anybody_can_see() {
    for reason in [
        "nothing",
        "having come for a command",
        "the user",
        "a command",
        "a command that was just taken back",
        "a command that was taken back long ago",
        "a command that a user has just deleted",
        "a condition",
        "its age",
        "no instance",
        "an instance that is taken back",
        "a Node that goes",
        "no Node",
        "a broken Node",
        "a Node that was just broken",
        "a word of the cloud",
        "a fixed number",
    ] {
        let (mut pool, mut change) = (json!({}), json!({}));
        match reason {
            "having come for a command" => change = launched_for("gone"),
            "its age" => change = json!({"spec": {"expireAfter": "30s"}}),
            "a fixed number" => pool = json!({"replicas": 1}),
            _ => {}
        }
        let stage = Stage::new().await;
        stage.pool("p", pool).await;
        stage.claim_with("n", LIVE, "4", change).await;
        stage.node("n", json!({})).await;
        stage.pass(60).await;
        give_reason(&stage, reason).await;
        if reason == "the user" {
            stage.delete::<NodeClaim>("n").await;
        } else {
            stage.delete_claim("n").await;
        }
        stage.pass(60).await;
        let is_none = matches!(reason, "nothing" | "having come for a command");
        if is_none || reason.ends_with("long ago") {
            stage.assert_broken(2, "nodeclaim n");
        } else {
            stage.assert_silent();
        }
    }
}

/// What is not up goes when its launch fails, when its time to join is over, or with the command that it came for; not because it is not up.
#[tokio::test(start_paused = true)]
async fn invariant_2_a_nodeclaim_that_may_still_come_up_has_its_time() {
    let table: [(&[&str], Value, u64, bool); 5] = [
        (&[], json!({}), 60, true),
        (&["Launched"], json!({}), 60, false),
        (&["Launched"], launched_for("gone"), 60, true),
        (&["Launched"], json!({}), 15 * 60, true),
        (&["Launched", "Registered"], json!({}), 15 * 60, false),
    ];
    for (conditions, change, seconds, may_go) in table {
        let stage = Stage::new().await;
        stage.pool("p", json!({})).await;
        stage.claim_with("n", conditions, "4", change).await;
        if conditions.contains(&"Registered") {
            stage.node("n", json!({})).await;
        }
        stage.pass(seconds).await;
        stage.delete_claim("n").await;
        stage.pass(60).await;
        if may_go {
            stage.assert_silent();
        } else {
            stage.assert_broken(2, "nodeclaim n");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_6_nobody_who_said_do_not_disrupt_is_chosen() {
    let stage = with_node().await;
    stage.pass(5).await;
    stage.taint("n").await;
    stage.assert_silent();
    stage.claim("kept", LIVE, "4").await;
    stage
        .node("kept", json!({"karpenter.sh/do-not-disrupt": "true"}))
        .await;
    stage.pass(5).await;
    stage.taint("kept").await;
    stage.assert_broken(6, "node kept");
}

#[tokio::test(start_paused = true)]
async fn invariant_6_nor_one_with_a_pod_that_said_so() {
    let stage = with_node().await;
    let annotated = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "10m"}}});
    stage.pod("w", "n", annotated).await;
    stage.pass(5).await;
    stage.taint("n").await;
    stage.assert_broken(6, "node n");
}

/// D-029, D-136: with a terminationGracePeriod drift asks no pods, and nothing else has that right because a node has drifted as well.
#[tokio::test(start_paused = true)]
async fn invariant_6_and_8_only_drift_asks_no_pods_of_a_node_that_has_drifted() {
    for (reason, is_annotated) in [
        ("Drifted", true),
        ("Underutilized", true),
        ("Drifted", false),
        ("Underutilized", false),
    ] {
        let stage = Stage::new().await;
        stage.pool("p", json!({})).await;
        let conditions = [LIVE, &["Drifted"]].concat();
        let patient = json!({"spec": {"terminationGracePeriod": "1h"}});
        stage.claim_with("n", &conditions, "4", patient).await;
        stage.node("n", json!({})).await;
        if is_annotated {
            let annotated = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
            stage.pod("w", "n", annotated).await;
        } else {
            stage.pod("w", "n", json!({})).await;
            let budget = json!({"metadata": {"name": "w"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "w"}}}});
            stage.create::<PodDisruptionBudget>(budget).await;
        }
        stage.pass(5).await;
        stage.command("c", "n", reason).await;
        stage.taint("n").await;
        if !is_annotated {
            // There is no other node for it.
            stage.disrupt("n", reason).await;
            stage.delete_claim("n").await;
        }
        if reason == "Drifted" {
            stage.assert_silent();
        } else {
            stage.assert_broken(if is_annotated { 6 } else { 8 }, "node n");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_8_pods_have_a_place_before_their_node_goes() {
    for has_place in [true, false] {
        let stage = with_node().await;
        stage.pod("w", "n", json!({})).await;
        if has_place {
            stage.live_node("other").await;
        }
        stage.pass(5).await;
        stage.taint("n").await;
        stage.disrupt("n", "Underutilized").await;
        stage.delete_claim("n").await;
        if has_place {
            stage.assert_silent();
        } else {
            stage.assert_broken(8, "node n");
        }
    }
}

/// An instance that the cloud reclaims is removed whether or not its pods fit elsewhere (33), even if a command has chosen its node before.
#[tokio::test(start_paused = true)]
async fn invariant_8_asks_for_no_places_when_the_cloud_takes_the_instance_back() {
    for message in ["spot_interrupted", "rebalance_recommendation"] {
        let stage = with_node().await;
        stage.pod("w", "n", json!({})).await;
        stage.pass(5).await;
        stage.taint("n").await;
        stage.disrupt("n", "Drifted").await;
        stage
            .annotate::<KWOKInstance>("n", "kwok.spokeshave.dev/message", message)
            .await;
        stage.delete_claim("n").await;
        if message == "spot_interrupted" {
            stage.assert_silent();
        } else {
            stage.assert_broken(8, "node n");
        }
    }
}

/// The node that has come for the pods of a command is empty until they come. It may go for other reasons, when they have come, and when they do not come for long.
#[tokio::test(start_paused = true)]
async fn invariant_9_no_replacement_goes_as_empty_while_its_command_is_under_way() {
    let drains = |since: &str| json!({"status": {"phase": "Draining", "deletedAt": since}});
    for (reason, status, may_go) in [
        ("Empty", json!({"status": {"phase": "Replacing"}}), false),
        ("Empty", drains("2026-01-01T00:10:00.000000Z"), false),
        ("Empty", drains("2026-01-01T00:01:00.000000Z"), true),
        ("Empty", json!({"status": {"phase": "Succeeded"}}), true),
        ("Drifted", json!({"status": {"phase": "Replacing"}}), true),
    ] {
        let stage = with_node().await;
        stage.command("first", "n", "Drifted").await;
        stage.replacement("r", "first", "4").await;
        stage.node("r", json!({})).await;
        stage.as_operator::<Disruption>("first", status).await;
        stage.pass(12 * 60).await;
        stage.command("second", "r", reason).await;
        stage.taint("r").await;
        if may_go {
            stage.assert_silent();
        } else {
            stage.assert_broken(9, "node r");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_10_a_command_that_is_given_up_leaves_no_taint() {
    let stage = with_node().await;
    stage.pod("w", "n", json!({})).await;
    stage.pass(5).await;
    stage.taint("n").await;
    stage.pass(30 * 60).await;
    stage.assert_silent();
    stage.pass(15 * 60).await;
    stage.assert_broken(10, "node n");
}

/// What an operator cannot know yet is not held against it.
#[tokio::test(start_paused = true)]
async fn invariant_38_a_gap_in_the_watch_excuses_and_its_end_ends_the_excuse() {
    let mut stage = with_node().await;
    stage.pass(120).await;
    stage.lab.weather("a").hold_watches(Duration::from_secs(60));
    stage.pass(5).await;
    stage
        .annotate::<Node>("n", "karpenter.sh/do-not-disrupt", "true")
        .await;
    stage.pass(30).await;
    stage.taint("n").await;
    stage.assert_silent();
    stage
        .as_operator::<Node>("n", json!({"spec": {"taints": null}}))
        .await;
    stage.pass(120).await;
    stage.taint("n").await;
    stage.assert_broken(6, "node n");
}
