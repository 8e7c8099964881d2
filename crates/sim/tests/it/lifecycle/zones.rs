//! Zones in which no node ever joins: pods that may run elsewhere do, those that may not are launched there again.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PodTemplate};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::{CapacityBuffer, NodeClaim, NodePool};
use spokeshave_controllers::FeatureGates;
use spokeshave_provider_kwok::KwokOptions;

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

const CUT_OFF: &str = "test-zone-a";
const SOUND: &str = "test-zone-b";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Requirements of a NodePool in these zones.
fn requirements(zones: &[&str]) -> Value {
    json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
        {"key": ZONE, "operator": "In", "values": zones},
    ])
}

/// A cluster with one NodePool in these zones, and a cloud whose instances never join in one of them.
async fn cut_off(seed: u64, zones: &[&str]) -> (Cluster, Running) {
    cut_off_with(seed, zones, FeatureGates::default()).await
}

/// The same with these features.
async fn cut_off_with(seed: u64, zones: &[&str], gates: FeatureGates) -> (Cluster, Running) {
    let change = json!({"template": {"spec": {"requirements": requirements(zones)}}});
    let setup = Setup {
        kwok: KwokOptions {
            never_register: vec![format!("*/{CUT_OFF}").parse().unwrap()],
            ..KwokOptions::default()
        },
        ..Setup::with_gates(gates)
    };
    Cluster::started_with(seed, change, setup).await
}

/// A pod of an app that would rather be spread over zones.
fn rather_spread(app: &str) -> Value {
    let constraint = json!({
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": app}},
    });
    template(
        app,
        "5",
        json!({"spec": {"topologySpreadConstraints": [constraint]}}),
    )
}

#[tokio::test(start_paused = true)]
async fn p_169_p_182_pods_that_would_rather_be_in_a_cut_off_zone_run_elsewhere_after_one_try() {
    let (cluster, _operator) = cut_off(81, &[CUT_OFF, SOUND]).await;
    cluster.deploy_with("web", 2, rather_spread("web")).await;
    let took = cluster.until_running_of("web", 2).await;
    assert!(
        (900..1020).contains(&took.as_secs()),
        "one launch was waited for, and no second: {took:?}"
    );
    for node in cluster.list::<Node>().await {
        assert_eq!(node.labels()[ZONE], SOUND);
    }
    let told = cluster.told("ZoneAvoided").await;
    assert!(
        told.iter()
            .any(|(about, text)| about == "NodePool/default" && text.contains(CUT_OFF)),
        "{told:?}"
    );
    // What comes within the hour knows it.
    cluster.deploy_with("late", 1, rather_spread("late")).await;
    let took = cluster.until_running_of("late", 1).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn p_169_plain_pods_are_launched_in_zones_where_nodes_join() {
    let (cluster, _operator) = cut_off(82, &[CUT_OFF, SOUND]).await;
    for one in 0..6 {
        cluster.deploy(&format!("web-{one}"), 1, "5").await;
    }
    let took = cluster.until_running(6).await;
    assert!(
        (900..1020).contains(&took.as_secs()),
        "nobody waits for a second launch: {took:?}"
    );
    cluster.assert_no_leak().await;
}

// Invariant 22: a pod that fits has a NodeClaim within seconds, wherever it has to be.
#[tokio::test(start_paused = true)]
async fn p_169_pods_that_can_run_nowhere_else_keep_nobody_back_and_are_tried_again_at_once() {
    let (cluster, operator) = cut_off(83, &[CUT_OFF, SOUND]).await;
    let pinned = template("pinned", "5", json!({"spec": {"nodeSelector": {ZONE: CUT_OFF}}}));
    cluster.deploy_with("pinned", 1, pinned).await;
    cluster.pass(895).await;
    let first = cluster.names::<NodeClaim>().await;
    cluster.pass(30).await;
    let second = cluster.names::<NodeClaim>().await;
    assert_eq!(second.len(), 1, "it is tried again");
    assert_ne!(first, second);
    cluster.deploy_with("web", 2, rather_spread("web")).await;
    let took = cluster.until_running_of("web", 2).await;
    assert!(took < Duration::from_secs(60), "others go elsewhere: {took:?}");
    operator.stop.request();
    operator.task.await.unwrap().unwrap();
    // The zone has recovered.
    let _operator = cluster.operator(Setup::default());
    cluster.until_running_of("pinned", 1).await;
    cluster.assert_no_leak().await;
}

// The NodeClaim is gone, and nobody has heard that its deletion was accepted.
#[tokio::test(start_paused = true)]
async fn p_169_a_node_that_did_not_join_counts_though_the_answer_to_its_end_was_lost() {
    let (cluster, _operator) = cut_off(87, &[CUT_OFF]).await;
    cluster.deploy("web", 1, "5").await;
    cluster.pass(880).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    *cluster.gate.lost.lock().unwrap() = Some("/nodeclaims/");
    cluster.until_gone::<NodeClaim>(&claim).await;
    *cluster.gate.lost.lock().unwrap() = None;
    cluster.pass(10).await;
    let told = cluster.told("ZoneAvoided").await;
    assert!(
        told.iter().any(|(about, _)| about == "NodePool/default"),
        "{told:?}"
    );
}

/// Those that go where nodes join are planned for first, and the others once the NodeClaims of these are created: whoever is planned for waits in one zone, and
/// neither half hides the other.
#[tokio::test(start_paused = true)]
async fn p_123_p_169_a_pass_that_avoids_zones_counts_each_pod_by_zone_once_it_is_planned_for() {
    const ZONES: &str = "karpenter_scheduler_pending_pods_by_effective_zone_count";
    let (cluster, operator) = cut_off(86, &[CUT_OFF, SOUND]).await;
    cluster.deploy_with("web", 2, rather_spread("web")).await;
    cluster.until_running_of("web", 2).await;
    *cluster.gate.slow.lock().unwrap() = Some(("/nodeclaims", Duration::from_secs(20)));
    let pinned = template("pinned", "5", json!({"spec": {"nodeSelector": {ZONE: CUT_OFF}}}));
    cluster.deploy_with("pinned", 1, pinned).await;
    cluster.deploy("late", 1, "5").await;
    let by_zone = || {
        let labels = [CUT_OFF, "flexible"].map(|zone| format!("zone=\"{zone}\""));
        labels.map(|zone| value(&operator.metrics, ZONES, &zone))
    };
    cluster.pass(10).await;
    assert_eq!(by_zone(), [0.0, 1.0], "a NodeClaim of the first half is created");
    cluster.pass(22).await;
    assert_eq!(by_zone(), [1.0, 1.0], "one of the second half is");
}

/// The same with CapacityBuffers on, once the operator avoids the one zone.
async fn avoiding(seed: u64) -> (Cluster, Running) {
    let gates = FeatureGates {
        capacity_buffer: true,
        ..FeatureGates::default()
    };
    let (cluster, operator) = cut_off_with(seed, &[CUT_OFF, SOUND], gates).await;
    cluster.deploy_with("web", 2, rather_spread("web")).await;
    cluster.until_running_of("web", 2).await;
    (cluster, operator)
}

/// A CapacityBuffer for one pod that wants a node of its own.
async fn keep_room(cluster: &Cluster) {
    let chunk = json!({"metadata": {"name": "chunk"}, "template": template("chunk", "5", json!({}))});
    cluster.create::<PodTemplate>(chunk).await;
    let buffer =
        json!({"metadata": {"name": "b"}, "spec": {"podTemplateRef": {"name": "chunk"}, "replicas": 1}});
    cluster.create::<CapacityBuffer>(buffer).await;
}

/// Room for pods to come is planned where nodes join, and a pod that can only be in the other zone after that: the last node that limits leave is for the pod.
#[tokio::test(start_paused = true)]
async fn p_169_p_186_room_takes_no_node_from_a_pod_that_can_only_be_in_an_avoided_zone() {
    let (cluster, operator) = avoiding(87).await;
    let limits = |nodes: &str| json!({"spec": {"limits": {"nodes": nodes}}});
    cluster.patch::<NodePool>("default", limits("2")).await;
    keep_room(&cluster).await;
    let pinned = template("pinned", "5", json!({"spec": {"nodeSelector": {ZONE: CUT_OFF}}}));
    cluster.deploy_with("pinned", 1, pinned).await;
    cluster.pass(30).await;
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 2, "both wait");
    let failed = || {
        value(
            &operator.metrics,
            "karpenter_scheduler_unschedulable_pods_count",
            "",
        )
    };
    assert_eq!(failed(), 1.0);
    cluster.patch::<NodePool>("default", limits("3")).await;
    cluster.pass(30).await;
    let claims = cluster.list::<NodeClaim>().await;
    assert_eq!(claims.len(), 3);
    let is_cut_off = |claim: &&NodeClaim| claim.labels().get(ZONE).is_some_and(|zone| zone == CUT_OFF);
    assert_eq!(claims.iter().filter(is_cut_off).count(), 1, "{claims:?}");
    // Room that is planned for after it says nothing of pods that exist.
    cluster.patch::<NodePool>("default", limits("4")).await;
    cluster.pass(30).await;
    assert_eq!(
        cluster.list::<NodeClaim>().await.len(),
        4,
        "then there is room, too"
    );
    assert_eq!(failed(), 0.0);
}

// Two such zones: neither is forgotten before the other is known.
#[tokio::test(start_paused = true)]
async fn p_169_the_one_zone_of_three_in_which_nodes_join_is_found() {
    let setup = Setup::with_cloud(KwokOptions {
        never_register: [CUT_OFF, SOUND]
            .map(|zone| format!("*/{zone}").parse().unwrap())
            .into(),
        ..KwokOptions::default()
    });
    let change =
        json!({"template": {"spec": {"requirements": requirements(&[CUT_OFF, SOUND, "test-zone-c"])}}});
    let (cluster, _operator) = Cluster::started_with(85, change, setup).await;
    cluster.deploy_with("web", 3, rather_spread("web")).await;
    let took = cluster.until_running_of("web", 3).await;
    assert!(took < Duration::from_secs(1900), "{took:?}");
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn p_169_a_nodepool_with_one_zone_goes_on_trying_it() {
    let (cluster, _operator) = cut_off(84, &[CUT_OFF]).await;
    cluster.deploy("web", 1, "5").await;
    let mut tried = BTreeSet::new();
    for _ in 0..3 {
        cluster.pass(5).await;
        tried.extend(cluster.names::<NodeClaim>().await);
        cluster.pass(925).await;
    }
    assert_eq!(tried.len(), 3, "{tried:?}");
}
