//! The end of a node: it says what it waits for (13), and its machine ends after volumes (29) and pods (31).

use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::json;
use spokeshave_api::NodeClaim;

use super::stage::*;
use crate::words::Objects as _;

#[tokio::test(start_paused = true)]
async fn invariant_13_an_end_that_takes_long_says_what_it_waits_for() {
    let stage = with_node().await;
    stage.pod("w", "n", json!({})).await;
    stage.delete_claim("n").await;
    stage.pass(60).await;
    let waits = json!({"status": {"conditions": [stage.condition("Drained", "Unknown", "Draining")]}});
    stage.as_operator::<NodeClaim>("n", waits).await;
    stage.pass(30 * 60).await;
    stage.assert_silent();
    stage
        .as_operator::<NodeClaim>("n", json!({"status": {"conditions": []}}))
        .await;
    stage.pass(60).await;
    stage.assert_broken(13, "nodeclaim n");
}

// W-30: only a cloud that postponed the call may keep an instance, and only as long as the NodeClaim shows it.
#[tokio::test(start_paused = true)]
async fn invariant_13_an_end_that_the_cloud_postpones_is_reported() {
    let stage = with_node().await;
    stage.delete_claim("n").await;
    let blocked = async |status: &str, reason: &str| {
        let conditions = [
            stage.condition("Drained", "True", "Drained"),
            stage.condition("VolumesDetached", "True", "VolumesDetached"),
            stage.condition("spokeshave.dev/TerminationBlocked", status, reason),
        ];
        let status = json!({"status": {"conditions": conditions}});
        stage.as_operator::<NodeClaim>("n", status).await;
    };
    blocked("True", "TerminationPostponed").await;
    stage.pass(30 * 60).await;
    stage.assert_silent();
    blocked("True", "ProviderError").await;
    stage.pass(6 * 60).await;
    stage.assert_broken(13, "nodeclaim n");
}

#[tokio::test(start_paused = true)]
async fn invariant_13_a_drain_with_nobody_left_ends() {
    let stage = with_node().await;
    stage.delete_claim("n").await;
    let waits = json!({"status": {"conditions": [stage.condition("Drained", "Unknown", "Draining")]}});
    stage.as_operator::<NodeClaim>("n", waits).await;
    stage.pass(4 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    stage.assert_broken(13, "nodeclaim n");
}

#[tokio::test(start_paused = true)]
async fn invariant_29_volumes_leave_before_the_machine() {
    for detached in [true, false] {
        let stage = with_node().await;

        let attachment = json!({"metadata": {"name": "va"}, "spec": {"attacher": "x", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}});
        stage.create::<VolumeAttachment>(attachment).await;
        stage.pass(5).await;
        if detached {
            stage.delete::<VolumeAttachment>("va").await;
        }
        stage.end_instance("n").await;
        if detached {
            stage.assert_silent();
        } else {
            stage.assert_broken(29, "instance n");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_31_a_machine_does_not_end_under_its_pods() {
    let stage = with_node().await;
    let tolerating = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    stage.pod("stays", "n", tolerating).await;
    stage.pass(5).await;
    stage.end_instance("n").await;
    stage.assert_silent();
    stage.live_node("m").await;
    stage.pod("w", "m", json!({})).await;
    stage.pass(5).await;
    stage.end_instance("m").await;
    stage.assert_broken(31, "instance m");
}
