//! Pods whose NodeClaim is still launching, as rules of topology see them: they count where their node will be, for pods that come a batch later.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodTemplate;
use serde_json::{Value, json};
use spokeshave_api::{CapacityBuffer, NodeClaim};
use spokeshave_plan::in_flight::is_expected;
use spokeshave_provider_kwok::KwokOptions;

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

const ZONE: &str = "topology.kubernetes.io/zone";

/// A cloud whose launches take a minute.
fn slow_cloud() -> Setup {
    Setup::with_cloud(KwokOptions {
        launch_delay: Duration::from_secs(60),
        ..KwokOptions::default()
    })
}

/// A cluster with one NodePool in two zones, whose launches take a minute.
async fn slow(seed: u64) -> (Cluster, Running) {
    let requirements = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
        {"key": ZONE, "operator": "In", "values": ["test-zone-a", "test-zone-b"]},
    ]);
    let change = json!({"template": {"spec": {"requirements": requirements}}});
    Cluster::started_with(seed, change, slow_cloud()).await
}

/// The zones that each NodeClaim asks for, in order.
async fn zones(cluster: &Cluster) -> Vec<Vec<String>> {
    let claims = cluster.list::<NodeClaim>().await;
    let of = |claim: &NodeClaim| {
        let mut requirements = claim.spec.requirements.iter();
        let zone = requirements.find(|one| one.key == ZONE);
        zone.map(|zone| zone.values.clone()).unwrap_or_default()
    };
    let mut zones: Vec<Vec<String>> = claims.iter().map(of).collect();
    zones.sort();
    zones
}

/// A required term over zones of pods with this label, of `podAffinity` or `podAntiAffinity`.
fn required(kind: &str, label: &str, value: &str) -> Value {
    let term = json!({"topologyKey": ZONE, "labelSelector": {"matchLabels": {label: value}}});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

#[tokio::test(start_paused = true)]
async fn p_107_a_spread_counts_pods_whose_nodeclaim_is_launching() {
    let (cluster, _operator) = slow(107).await;
    let constraint = json!({"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    let spread = json!({"spec": {"topologySpreadConstraints": [constraint]}});
    cluster.deploy_with("web", 1, template("web", "5", spread)).await;
    cluster.pass(20).await;
    assert_eq!(zones(&cluster).await, [["test-zone-a"]]);
    cluster.scale("web", 2).await;
    cluster.pass(20).await;
    assert_eq!(zones(&cluster).await, [["test-zone-a"], ["test-zone-b"]]);
    cluster.until_running_of("web", 2).await;
    assert_eq!(cluster.faults.launches.load(Ordering::Relaxed), 2);
}

/// Who only looks sees which NodeClaim such a pod waits for.
#[tokio::test(start_paused = true)]
async fn p_107_an_observer_sees_a_pod_on_the_stand_in_of_its_nodeclaim() {
    let (cluster, operator) = slow(110).await;
    cluster.deploy("web", 1, "5").await;
    cluster.pass(20).await;
    let seen = operator.observer.observe().await.expect("it leads");
    let claims = seen.state.node_claims.iter();
    let claims: Vec<Option<&str>> = claims.map(|claim| claim.provider_id()).collect();
    let awaited = seen.state.pods.iter().filter(|pod| is_expected(pod));
    let awaited: Vec<Option<&str>> = awaited.map(|pod| pod.node_name.as_deref()).collect();
    assert!(claims.len() == 1 && claims[0].is_some(), "{claims:?}");
    assert_eq!(awaited, claims);
}

#[tokio::test(start_paused = true)]
async fn p_108_an_affinity_finds_pods_whose_nodeclaim_is_launching() {
    let (cluster, _operator) = slow(108).await;
    let pinned = json!({"spec": {"nodeSelector": {ZONE: "test-zone-b"}}});
    cluster.deploy_with("web", 1, template("web", "5", pinned)).await;
    cluster.pass(20).await;
    let near = json!({"spec": required("podAffinity", "app", "web")});
    cluster.deploy_with("near", 1, template("near", "5", near)).await;
    cluster.pass(20).await;
    assert_eq!(zones(&cluster).await, [["test-zone-b"], ["test-zone-b"]]);
    cluster.until_running_of("near", 1).await;
}

// P-109: as long as it is open in which of its zones a NodeClaim will be, a pod that must not be near those waiting for it waits, too.
#[tokio::test(start_paused = true)]
async fn p_109_an_anti_affinity_keeps_away_from_pods_whose_nodeclaim_is_launching() {
    let (cluster, _operator) = slow(109).await;
    let apart = || {
        let spec = required("podAntiAffinity", "group", "g");
        json!({"metadata": {"labels": {"group": "g"}}, "spec": spec})
    };
    cluster.deploy_with("one", 1, template("one", "5", apart())).await;
    cluster.pass(20).await;
    cluster.deploy_with("two", 1, template("two", "5", apart())).await;
    cluster.pass(20).await;
    assert_eq!(zones(&cluster).await, [["test-zone-a", "test-zone-b"]]);
    cluster.until_running_of("one", 1).await;
    cluster.until_running_of("two", 1).await;
    assert_eq!(
        cluster.faults.launches.load(Ordering::Relaxed),
        2,
        "no node was in vain"
    );
    let nodes = BTreeSet::from([cluster.node_of("one").await, cluster.node_of("two").await]);
    assert_eq!(nodes.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn p_185_room_that_is_launching_is_not_launched_again() {
    let mut setup = slow_cloud();
    setup.options.feature_gates.capacity_buffer = true;
    let (cluster, _operator) = Cluster::started_with(185, json!({}), setup).await;
    let room = json!({"metadata": {"name": "room"}, "template": template("room", "5", json!({}))});
    cluster.create::<PodTemplate>(room).await;
    let spec = json!({"podTemplateRef": {"name": "room"}, "replicas": 2});
    cluster
        .create::<CapacityBuffer>(json!({"metadata": {"name": "b"}, "spec": spec}))
        .await;
    cluster.pass(20).await;
    assert_eq!(cluster.names::<NodeClaim>().await.len(), 2);
    cluster.deploy("late", 1, "5").await;
    cluster.pass(20).await;
    assert_eq!(cluster.names::<NodeClaim>().await.len(), 3, "one for the pod");
}
