//! Zones in which no node ever joins: pods that may run elsewhere do, those that may not wait and say so, and the zone is tried again.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::faulty::{Cluster, Setup, pool};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_provider_kwok::KwokOptions;

const CUT_OFF: &str = "test-zone-a";
const ZONE: &str = "topology.kubernetes.io/zone";

/// An operator whose cloud launches instances in one zone that never join.
fn cut_off() -> Setup {
    Setup {
        kwok: KwokOptions {
            never_register: vec![format!("*/{CUT_OFF}").parse().unwrap()],
            termination_delay: Duration::from_secs(3),
            ..KwokOptions::default()
        },
        ..Setup::default()
    }
}

/// A NodePool in these zones.
fn pool_in(zones: &[&str]) -> Value {
    let requirements = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
        {"key": ZONE, "operator": "In", "values": zones},
    ]);
    pool(
        "default",
        json!({"spec": {"template": {"spec": {"requirements": requirements}}}}),
    )
}

/// A pod template's spec that would rather be spread over zones.
fn rather_spread(app: &str) -> Value {
    let constraint = json!({
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": app}},
    });
    json!({"spec": {"topologySpreadConstraints": [constraint]}})
}

#[tokio::test(start_paused = true)]
async fn p_169_p_182_pods_that_would_rather_be_in_a_cut_off_zone_run_elsewhere_after_one_try() {
    let cluster = Cluster::new(81).await;
    cluster
        .create::<NodePool>(pool_in(&[CUT_OFF, "test-zone-b"]))
        .await;
    let _operator = cluster.operator(cut_off());
    let start = cluster.clock.now();
    cluster.deploy("web", 2, "5", rather_spread("web")).await;
    cluster.until_running("web", 2).await;
    let took = cluster.clock.since(start);
    assert!(
        (900..1020).contains(&took.as_secs()),
        "one launch was waited for, and no second: {took:?}"
    );
    for node in cluster.list::<Node>().await {
        assert_eq!(node.labels()[ZONE], "test-zone-b");
    }
    let told = cluster.events("ZoneAvoided").await;
    assert!(
        told.iter()
            .any(|(about, text)| about == "NodePool/default" && text.contains(CUT_OFF)),
        "{told:?}"
    );
    // What comes within ten minutes knows it.
    let start = cluster.clock.now();
    cluster.deploy("late", 1, "5", rather_spread("late")).await;
    cluster.until_running("late", 1).await;
    assert!(cluster.clock.since(start) < Duration::from_secs(60));
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn p_169_plain_pods_are_launched_in_zones_where_nodes_join() {
    let cluster = Cluster::new(82).await;
    cluster
        .create::<NodePool>(pool_in(&[CUT_OFF, "test-zone-b"]))
        .await;
    let _operator = cluster.operator(cut_off());
    for one in 0..6 {
        let name = format!("web-{one}");
        cluster.deploy(&name, 1, "5", json!({})).await;
    }
    let start = cluster.clock.now();
    for one in 0..6 {
        cluster.until_running(&format!("web-{one}"), 1).await;
    }
    let took = cluster.clock.since(start);
    assert!(
        took < Duration::from_secs(1020),
        "nobody waits for a second launch: {took:?}"
    );
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn p_169_pods_of_a_cut_off_zone_wait_and_the_zone_is_tried_again() {
    let cluster = Cluster::new(83).await;
    cluster
        .create::<NodePool>(pool_in(&[CUT_OFF, "test-zone-b"]))
        .await;
    let operator = cluster.operator(cut_off());
    let pinned = json!({"spec": {"nodeSelector": {ZONE: CUT_OFF}}});
    cluster.deploy("pinned", 1, "5", pinned).await;
    cluster.pass(1000).await;
    assert!(
        cluster.list::<NodeClaim>().await.is_empty(),
        "the zone is avoided"
    );
    assert!(!cluster.events("FailedScheduling").await.is_empty());
    cluster.pass(600).await;
    assert_eq!(
        cluster.list::<NodeClaim>().await.len(),
        1,
        "ten minutes later it is tried again"
    );
    operator.stop.request();
    operator.task.await.unwrap().unwrap();
    // The zone is mended; a new operator knows nothing of the past.
    let _operator = cluster.operator(Setup::default());
    cluster.until_running("pinned", 1).await;
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn p_169_a_nodepool_with_one_zone_goes_on_trying_it() {
    let cluster = Cluster::new(84).await;
    cluster.create::<NodePool>(pool_in(&[CUT_OFF])).await;
    let _operator = cluster.operator(cut_off());
    cluster.deploy("web", 1, "5", json!({})).await;
    let mut tried = BTreeSet::new();
    for _ in 0..3 {
        cluster.pass(5).await;
        tried.extend(cluster.claims().await);
        cluster.pass(925).await;
    }
    assert_eq!(tried.len(), 3, "{tried:?}");
}
