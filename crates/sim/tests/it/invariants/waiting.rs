//! Pods that wait (22), and daemons, which keep no node and have room on a new one (34).

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use spokeshave_api::NodeClaim;

use super::stage::*;
use crate::words::Objects as _;

/// Pod `w`, of which the stage says that a NodePool can hold it.
async fn pod_that_fits(stage: &Stage) {
    let fits = json!({"metadata": {"annotations": {spokeshave_sim::invariants::FITS: "yes"}}});
    stage.pod("w", "", fits).await;
}

#[tokio::test(start_paused = true)]
async fn invariant_22_a_pod_that_fits_gets_a_nodeclaim() {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    stage.pass(60).await;
    pod_that_fits(&stage).await;
    stage.pod("too-large", "", json!({})).await;
    stage.pass(4 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    stage.assert_broken(22, "default/w");
}

// Azure leaves out for an hour what it has refused: when that is everything, there is nothing to make a NodeClaim from.
#[tokio::test(start_paused = true)]
async fn invariant_22_a_pod_may_wait_while_everything_is_left_out() {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    stage.pass(60).await;
    stage.lab.invariants.run_out(std::time::Duration::from_secs(3600));
    pod_that_fits(&stage).await;
    stage.pass(64 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    stage.assert_broken(22, "default/w");
}

// A machine that never joins is the cloud's fault, and costs a quarter of an hour; a pod that is never placed is ours.
#[tokio::test(start_paused = true)]
async fn invariant_22_a_pod_that_fits_is_placed_in_the_end() {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    pod_that_fits(&stage).await;
    stage.claim("c", &["Launched"], "2").await;
    stage.pass(16 * 60).await;
    stage.delete_claim("c").await;
    // There is always another on its way, which cannot be launched.
    for name in ["d", "e", "f", "g"] {
        stage.claim(name, &[], "2").await;
        stage.pass(14 * 60 + 30).await;
        stage.delete_claim(name).await;
    }
    assert!(!stage.broken().contains(&22), "an hour and a quarter");
    stage.claim("h", &[], "2").await;
    stage.pass(4 * 60).await;
    assert!(stage.broken().contains(&22));
}

// What others wait for does not help a pod, and what is said of others' machines does not excuse that it is forgotten.
#[tokio::test(start_paused = true)]
async fn invariant_22_only_a_machine_that_a_pod_could_run_on_excuses() {
    let zone =
        |zone: &str| json!([{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]);
    let taint = json!([{"key": "gpu", "effect": "NoSchedule"}]);
    for (spec, status, may_wait) in [
        (json!({}), json!({}), true),
        (json!({"requirements": zone("here")}), json!({}), true),
        (json!({"requirements": zone("there")}), json!({}), false),
        (json!({"taints": taint}), json!({}), false),
        (json!({}), json!({"capacity": {"cpu": "2"}}), true),
        (json!({}), json!({"capacity": {"cpu": "500m"}}), false),
    ] {
        let stage = Stage::new().await;
        stage.pool("p", json!({})).await;
        stage
            .claim_with("c", &["Launched"], "2", json!({"spec": spec}))
            .await;
        stage.patch_status::<NodeClaim>("c", status).await;
        stage.pass(5).await;
        let here = json!({
            "metadata": {"annotations": {spokeshave_sim::invariants::FITS: "yes"}},
            "spec": {"nodeSelector": {"topology.kubernetes.io/zone": "here"}},
        });
        stage.pod("w", "", here).await;
        stage.pass(6 * 60).await;
        if may_wait {
            stage.assert_silent();
        } else {
            stage.assert_broken(22, "default/w");
        }
    }
}

// Others may be quicker than a pod for which a machine has come, but not for ever.
#[tokio::test(start_paused = true)]
async fn invariant_22_machines_that_come_up_excuse_a_few_times() {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    stage.pass(5).await;
    pod_that_fits(&stage).await;
    for name in ["a", "b", "c", "d"] {
        stage.pass(4 * 60).await;
        stage.claim(name, LIVE, "2").await;
    }
    stage.pass(4 * 60).await;
    stage.assert_silent();
    stage.claim("e", LIVE, "2").await;
    stage.pass(2 * 60).await;
    stage.assert_broken(22, "default/w");
}

// A Node is deleted before it is registered: pods wait for its machine until that is abandoned.
#[tokio::test(start_paused = true)]
async fn invariant_22_a_pod_may_wait_for_a_machine_that_was_there_before_it() {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    stage.claim("c", &["Launched"], "2").await;
    stage.pass(60).await;
    pod_that_fits(&stage).await;
    stage.pass(14 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    stage.assert_broken(22, "default/w");
}

// What it has waited for is given up after a quarter of an hour: then the time for a launch begins, which is no longer than for others.
#[tokio::test(start_paused = true)]
async fn invariant_22_a_pod_may_wait_for_another_launch_when_a_machine_is_given_up() {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    stage.claim("c", &["Launched"], "2").await;
    stage.pass(5).await;
    pod_that_fits(&stage).await;
    stage.pass(15 * 60).await;
    stage.delete_claim("c").await;
    stage.pass(4 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    // The stage has no operator that ends the machine (13).
    assert!(stage.broken().contains(&22));
}

#[tokio::test(start_paused = true)]
async fn invariant_34_daemons_do_not_keep_a_node() {
    let stage = with_node().await;
    let owner = stage.daemon_set().await;
    stage
        .pod("d", "n", json!({"metadata": {"ownerReferences": [owner]}}))
        .await;
    stage.pass(25 * 60).await;
    stage.assert_silent();
    assert!(stage.pods().get("d").await.is_ok());
    stage.pass(10 * 60).await;
    stage.assert_broken(34, "node n");
}

#[tokio::test(start_paused = true)]
async fn invariant_34_a_new_node_has_room_for_daemons() {
    let stage = with_node().await;
    stage.pod("busy", "n", json!({})).await;
    let field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
    let daemon = json!({
        "metadata": {"ownerReferences": [stage.daemon_set().await]},
        "spec": {
            "priorityClassName": "system-node-critical",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field]}}},
        },
    });
    stage.pod("d", "", daemon).await;
    stage.pass(6 * 60).await;
    stage.assert_silent();
    let refused = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu."}]});
    stage.patch_status::<Pod>("d", refused).await;
    stage.pass(60).await;
    stage.assert_broken(34, "default/d");
}
