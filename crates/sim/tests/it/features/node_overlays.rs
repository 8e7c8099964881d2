//! NodeOverlays (P §13): another price, another choice; other capacities, other nodes; and nothing while the feature gate is off.

use kube::api::DeleteParams;
use serde_json::{Value, json};
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodeClaim, NodeOverlay};
use spokeshave_controllers::FeatureGates;

use super::{consolidated, on_demand};
use crate::faulty;
use crate::plain::Cluster;
use crate::words::*;

const CHEAP: &str = "c-2x-amd64-linux";
const DEAR: &str = "m-2x-amd64-linux";

/// A cluster that may launch one of two types, with the given feature gate.
async fn cluster(seed: u64, gate: bool) -> Cluster {
    let set = |gates: &mut FeatureGates| gates.node_overlay = gate;
    consolidated(seed, &[CHEAP, DEAR], set).await
}

fn about(instance_type: &str, change: Value) -> Value {
    let mut spec = json!({"requirements": [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [instance_type]},
    ]});
    json_patch::merge(&mut spec, &change);
    spec
}

async fn overlay(cluster: &impl Scene, name: &str, spec: Value) {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    cluster.create::<NodeOverlay>(object).await;
}

/// Types of the nodes that there are.
async fn types(cluster: &impl Scene) -> Vec<String> {
    let claims = cluster.list::<NodeClaim>().await;
    let of = |claim: &NodeClaim| {
        claim
            .label("node.kubernetes.io/instance-type")
            .unwrap_or_default()
            .to_owned()
    };
    claims.iter().map(of).collect()
}

async fn verdict(cluster: &impl Scene, name: &str) -> Option<(String, String)> {
    let overlay = cluster.find::<NodeOverlay>(name).await?;
    let condition = overlay.condition("ValidationSucceeded")?;
    Some((condition.status.clone(), condition.reason.clone()))
}

async fn until_judged(cluster: &impl Scene, name: &str, expected: (&str, &str)) {
    cluster
        .until("the overlay is judged", async |cluster| {
            let verdict = verdict(cluster, name).await;
            verdict
                .as_ref()
                .map(|(status, reason)| (status.as_str(), reason.as_str()))
                == Some(expected)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn d_364_d_366_p_187_a_price_makes_the_other_type_win_and_consolidation_settles() {
    let cluster = cluster(187, true).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    assert_eq!(types(&cluster).await, [CHEAP]);
    let first = cluster.claim_of(&cluster.node_of("web").await).await;
    assert_eq!(first.annotation("karpenter.sh/price-overlay-applied"), None);
    overlay(&cluster, "reserved", about(DEAR, json!({"price": "0.0001"}))).await;
    // D-366: a fruitless look at the cluster is taken again.
    cluster
        .until("the other type takes over", async |cluster| {
            types(cluster).await == [DEAR]
        })
        .await;
    cluster.until_running(1).await;
    let second = cluster.claim_of(&cluster.node_of("web").await).await;
    assert_eq!(
        second.annotation("karpenter.sh/price-overlay-applied"),
        Some("true")
    );
    assert_eq!(second.annotation("karpenter.sh/capacity-overlay-applied"), None);
    until_judged(&cluster, "reserved", ("True", "ValidationSucceeded")).await;
    let commands = cluster.list::<Disruption>().await.len();
    cluster.pass(900).await;
    assert_eq!(cluster.list::<Disruption>().await.len(), commands, "it settles");
    assert_eq!(types(&cluster).await, [DEAR], "D-368: not drifted either");
    cluster.delete::<NodeOverlay>("reserved").await;
    cluster
        .until("the cheap one is cheap again", async |cluster| {
            types(cluster).await == [CHEAP]
        })
        .await;
    cluster.until_running(1).await;
    cluster.assert_tidy().await;
}

/// A new leader evaluates the overlays before it plans.
#[tokio::test(start_paused = true)]
async fn d_365_p_061_p_187_a_restart_forgets_no_overlay() {
    let mut cluster = cluster(188, true).await;
    overlay(&cluster, "reserved", about(DEAR, json!({"price": "0.0001"}))).await;
    until_judged(&cluster, "reserved", ("True", "ValidationSucceeded")).await;
    cluster.lab.kill("a").await;
    cluster.deploy("web", 3, "1500m").await;
    cluster.pass(5).await;
    cluster.lab.start("a");
    cluster.until_running(3).await;
    assert_eq!(types(&cluster).await, [DEAR, DEAR, DEAR]);
    assert_eq!(
        cluster.list::<Disruption>().await.len(),
        0,
        "never the wrong one first"
    );
    let failed = cluster.events("FailedScheduling").await;
    let ours = failed
        .iter()
        .filter(|message| message.starts_with("Failed to schedule pod"));
    assert_eq!(ours.count(), 0, "P-061: skipped quietly; {failed:?}");
}

/// Invariant 22: one object whose status cannot be written stops neither the others nor any launch, also just after a start.
#[tokio::test(start_paused = true)]
async fn p_061_p_187_a_status_that_cannot_be_written_keeps_no_overlay_out_of_force() {
    let cluster = faulty::Cluster::new(194).await;
    cluster.pool("default", on_demand(&[CHEAP, DEAR])).await;
    overlay(&cluster, "refused", about(DEAR, json!({"price": "0.0001"}))).await;
    overlay(
        &cluster,
        "judged",
        about(CHEAP, json!({"priceAdjustment": "+1%"})),
    )
    .await;
    cluster.gate.trip("/nodeoverlays/refused/status", 500, u32::MAX);
    let gates = FeatureGates {
        node_overlay: true,
        ..FeatureGates::default()
    };
    let _operator = cluster.operator(faulty::Setup::with_gates(gates));
    cluster.run("web", 1, "1").await;
    assert_eq!(types(&cluster).await, [DEAR], "it counts already");
    until_judged(&cluster, "judged", ("True", "ValidationSucceeded")).await;
    assert_eq!(verdict(&cluster, "refused").await, None);
    cluster.gate.stumbles.lock().unwrap().clear();
    until_judged(&cluster, "refused", ("True", "ValidationSucceeded")).await;
}

/// What it said last stays in force, also beside one that comes meanwhile, until it is deleted.
#[tokio::test(start_paused = true)]
async fn p_187_an_overlay_that_cannot_be_read_keeps_its_prices() {
    let cluster = cluster(192, true).await;
    overlay(&cluster, "reserved", about(DEAR, json!({"price": "0.0001"}))).await;
    until_judged(&cluster, "reserved", ("True", "ValidationSucceeded")).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    assert_eq!(types(&cluster).await, [DEAR]);
    cluster.spoil::<NodeOverlay>("reserved").await;
    overlay(&cluster, "b", about(CHEAP, json!({"priceAdjustment": "+1%"}))).await;
    until_judged(&cluster, "b", ("True", "ValidationSucceeded")).await;
    cluster.pass(900).await;
    assert_eq!(types(&cluster).await, [DEAR]);
    assert_eq!(cluster.list::<Disruption>().await.len(), 0);
    cluster.mend::<NodeOverlay>("reserved").await;
    until_judged(&cluster, "reserved", ("True", "ValidationSucceeded")).await;
    // It goes while it cannot be read.
    cluster.spoil::<NodeOverlay>("reserved").await;
    cluster.pass(60).await;
    assert_eq!(types(&cluster).await, [DEAR]);
    let overlays = cluster.api::<NodeOverlay>();
    drop(overlays.delete("reserved", &DeleteParams::default()).await);
    cluster
        .until("the cheap one is cheap again", async |cluster| {
            types(cluster).await == [CHEAP]
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn d_368_p_187_a_capacity_makes_room_for_an_extended_resource() {
    let cluster = cluster(189, true).await;
    let needy = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {
        "requests": {"cpu": "1", "example.com/fpga": "2"}, "limits": {"example.com/fpga": "2"}}}]}});
    cluster
        .deploy_with("needy", 1, template("needy", "1", needy))
        .await;
    cluster.pass(30).await;
    assert_eq!(types(&cluster).await.len(), 0, "nobody has it");
    overlay(
        &cluster,
        "fpga",
        about(DEAR, json!({"capacity": {"example.com/fpga": "4"}})),
    )
    .await;
    cluster.until_running(1).await;
    let claim = cluster.claim_of(&cluster.node_of("needy").await).await;
    assert_eq!(
        claim.annotation("karpenter.sh/capacity-overlay-applied"),
        Some("true")
    );
    assert_eq!(claim.annotation("karpenter.sh/price-overlay-applied"), None);
    assert_eq!(types(&cluster).await, [DEAR]);
    cluster.pass(300).await;
    assert_eq!(cluster.list::<Disruption>().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn d_367_p_187_conflicts_and_mistakes_are_told_and_undone() {
    let cluster = cluster(190, true).await;
    overlay(&cluster, "b", about(DEAR, json!({"price": "0.0001"}))).await;
    overlay(
        &cluster,
        "a",
        json!({"requirements": [], "priceAdjustment": "+10%"}),
    )
    .await;
    until_judged(&cluster, "b", ("True", "ValidationSucceeded")).await;
    until_judged(&cluster, "a", ("False", "Conflict")).await;
    // What the schema lets pass and no node will ever have.
    let nonsense = json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["cheap"]}]);
    overlay(&cluster, "c", json!({"requirements": nonsense, "price": "1"})).await;
    until_judged(&cluster, "c", ("False", "RuntimeValidation")).await;
    let heavier = json!({"spec": {"weight": 3}});
    cluster.patch::<NodeOverlay>("a", heavier).await;
    until_judged(&cluster, "a", ("True", "ValidationSucceeded")).await;
    cluster.pass(60).await;
    let versions = async || {
        let overlays = cluster.list::<NodeOverlay>().await;
        let version = |one: NodeOverlay| one.metadata.resource_version;
        overlays.into_iter().map(version).collect::<Vec<_>>()
    };
    let before = versions().await;
    cluster.pass(7 * 3600).await;
    assert_eq!(versions().await, before, "judged again, and nothing to write");
}

#[tokio::test(start_paused = true)]
async fn p_013_without_the_gate_overlays_have_no_effect() {
    let cluster = cluster(191, false).await;
    overlay(&cluster, "reserved", about(DEAR, json!({"price": "0.0001"}))).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    cluster.pass(300).await;
    assert_eq!(types(&cluster).await, [CHEAP]);
    assert_eq!(verdict(&cluster, "reserved").await, None, "nobody judges it");
}
