//! Machines: one a NodeClaim and none leaked (11), registered or ended (12), gone before their finalizers (14), within limits (15).

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{KWOKInstance, NodeClaim};

use super::stage::*;
use crate::words::Objects as _;

#[tokio::test(start_paused = true)]
async fn invariant_11_one_instance_a_claim() {
    let stage = with_node().await;
    stage.assert_silent();
    let claim: NodeClaim = stage.get("n").await;
    stage.instance("second", &claim, "4").await;
    stage.assert_broken(11, "instance second");
}

#[tokio::test(start_paused = true)]
async fn invariant_11_no_instance_is_leaked() {
    let stage = with_node().await;
    stage.pod("w", "n", json!({})).await;
    stage.remove_finalizers::<NodeClaim>("n").await;
    stage.delete::<NodeClaim>("n").await;
    stage.pass(9 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    stage.assert_broken(11, "instance n");
}

#[tokio::test(start_paused = true)]
async fn invariant_12_an_instance_registers_in_time_or_ends() {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    stage.claim("n", &["Launched"], "4").await;
    stage.pass(19 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    stage.assert_broken(12, "instance n");
}

#[tokio::test(start_paused = true)]
async fn invariant_14_finalizers_go_after_the_instance() {
    for gone in [true, false] {
        for node_too in [true, false] {
            let stage = with_node().await;
            if gone {
                stage.delete::<KWOKInstance>("n").await;
            }
            let without = json!({"metadata": {"finalizers": null}});
            if node_too {
                stage.as_operator::<Node>("n", without).await;
            } else {
                stage.as_operator::<NodeClaim>("n", without).await;
            }
            if gone {
                stage.assert_silent();
            } else {
                stage.assert_broken(14, if node_too { "node n" } else { "nodeclaim n" });
            }
        }
    }
}

/// Nobody wrote down what was launched: the machine says for whom.
#[tokio::test(start_paused = true)]
async fn invariant_14_finalizers_go_after_an_instance_that_the_claim_does_not_name() {
    for gone in [true, false] {
        let stage = with_node().await;
        stage
            .patch_status::<NodeClaim>("n", json!({"providerID": null}))
            .await;
        if gone {
            stage.delete::<KWOKInstance>("n").await;
        }
        let without = json!({"metadata": {"finalizers": null}});
        stage.as_operator::<NodeClaim>("n", without).await;
        if gone {
            stage.assert_silent();
        } else {
            stage.assert_broken(14, "nodeclaim n");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_15_limits_hold_for_every_launch() {
    let stage = Stage::new().await;
    stage.pool("p", json!({"limits": {"cpu": "8"}})).await;
    stage.claim("n", LIVE, "8").await;
    stage.assert_silent();
    stage.claim("m", LIVE, "1").await;
    stage.assert_broken(15, "instance m");
}

/// A launch was decided when another node was to go, and that node stays after all: the surge was allowed, and lasts. What is decided
/// after that counts all existing ones.
#[tokio::test(start_paused = true)]
async fn invariant_15_what_was_decided_before_a_roll_back_counted_on_a_node_to_go() {
    let stage = Stage::new().await;
    stage.pool("p", json!({"limits": {"cpu": "8"}})).await;
    for (node, command) in [("n", "first"), ("m", "second")] {
        stage.live_node(node).await;
        stage.command(command, node, "Drifted").await;
    }
    stage.replacement("instead-of-n", "first", "4").await;
    stage.pass(10).await;
    stage
        .as_operator::<Disruption>("first", json!({"status": {"phase": "RolledBack"}}))
        .await;
    stage.pass(10).await;
    stage.replacement("instead-of-m", "second", "4").await;
    stage.assert_silent();
    stage.claim("one-more", LIVE, "1").await;
    stage.assert_broken(15, "instance one-more");
}
