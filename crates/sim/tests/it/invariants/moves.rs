//! Voluntary disruption: budgets (2), do-not-disrupt (6), a place for every pod (8), nothing left of what is rolled back (10); and what cannot be
//! known yet (38).

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::KWOKInstance;

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
