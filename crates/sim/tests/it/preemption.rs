//! Pods that matter more than others take their room: who has to go for them, when, and that nobody else does.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};
use spokeshave_api::NodePool;

use crate::plain::Cluster;
use crate::words::*;

/// A cluster in which two pods of three processors, which take so long to stop, share the only node that can be had, of eight.
async fn full(seed: u64, pods: [&str; 2], seconds_to_stop: u64) -> Cluster {
    let cluster = Cluster::undisturbed(seed).await;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    cluster.create::<PriorityClass>(class).await;
    let delay = format!("{seconds_to_stop}s");
    let slow = json!({"metadata": {"annotations": {"pod-delete.stage.kwok.x-k8s.io/delay": delay}},
        "spec": {"terminationGracePeriodSeconds": 3600}});
    for pod in pods {
        cluster.pod(pod, "3", slow.clone()).await;
    }
    cluster.until_running(2).await;
    assert_eq!(cluster.node_of(pods[0]).await, cluster.node_of(pods[1]).await);
    let limit = json!({"spec": {"limits": {"cpu": "1"}}});
    cluster.patch::<NodePool>("default", limit).await;
    cluster
}

/// A pod that matters more, changed by a merge patch of its spec.
async fn important(cluster: &Cluster, name: &str, cpu: &str, change: Value) {
    let mut spec = json!({"priorityClassName": "high"});
    json_patch::merge(&mut spec, &change);
    cluster.pod(name, cpu, json!({"spec": spec})).await;
}

/// All that is missing stops at the same time, whoever has asked for a part of it.
#[tokio::test(start_paused = true)]
async fn a_pod_takes_what_it_needs_beside_a_pod_that_is_stopping() {
    let cluster = full(411, ["low-a", "low-b"], 500).await;
    let node = cluster.node_of("low-b").await;
    cluster.delete::<Pod>("low-a").await;
    cluster.pass(60).await;
    important(&cluster, "vip", "6", json!({})).await;
    cluster.pass(5).await;
    let low: Pod = cluster.get("low-b").await;
    assert!(low.metadata.deletion_timestamp.is_some(), "it is in the way, too");
    let vip: Pod = cluster.get("vip").await;
    assert_eq!(vip.status.unwrap().nominated_node_name, Some(node));
    let took = cluster.until_running_of("vip", 1).await;
    assert!(took < Duration::from_secs(600), "{took:?}");
    let asked = cluster.told("Preempted").await;
    assert_eq!(
        asked.len(),
        1,
        "who goes already is not asked, and nobody twice: {asked:?}"
    );
    assert_eq!(asked[0].0, "Pod/low-b");
}

/// The second of two that come together sees whose room the first one gets.
#[tokio::test(start_paused = true)]
async fn each_of_two_pods_has_room_made_for_it_at_once() {
    let cluster = full(412, ["low-a", "low-b"], 500).await;
    for vip in ["vip-a", "vip-b"] {
        important(&cluster, vip, "3", json!({})).await;
    }
    let took = cluster
        .until("both run", async |cluster| {
            cluster.running_of("vip-a").await + cluster.running_of("vip-b").await == 2
        })
        .await;
    assert!(took < Duration::from_secs(600), "{took:?}");
}

/// Not only resources can be in somebody else's hands.
#[tokio::test(start_paused = true)]
async fn a_pod_drives_out_whom_it_cannot_be_beside_and_nobody_else() {
    let cluster = full(413, ["quiet", "noisy"], 2).await;
    let node = cluster.node_of("noisy").await;
    let noisy =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "noisy"}}});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [noisy]}});
    important(&cluster, "shy", "1", json!({"affinity": apart})).await;
    cluster.until_running_of("shy", 1).await;
    assert_eq!(cluster.node_of("shy").await, node);
    assert!(!cluster.exists::<Pod>("noisy").await);
    assert_eq!(cluster.running_of("quiet").await, 1);
}

/// Where the one that it has to be beside matters less, nobody goes: the kube-scheduler thinks all of those away before it spares any.
#[tokio::test(start_paused = true)]
async fn a_pod_does_not_drive_out_whom_it_has_to_be_beside() {
    let cluster = full(414, ["low-a", "low-b"], 2).await;
    let low =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "low-a"}}});
    let beside =
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [low]}}});
    // One needs the room of both, the other only that of the one with which it has nothing to do.
    for (name, cpu) in [("lost", "6"), ("friend", "4")] {
        important(&cluster, name, cpu, beside.clone()).await;
        cluster.pass(60).await;
        assert_eq!(cluster.running().await, 2, "nobody goes in vain for {name}");
    }
    assert!(cluster.told("Preempted").await.is_empty());
    cluster.delete::<Pod>("low-b").await;
    cluster.until_running_of("friend", 1).await;
    assert_eq!(cluster.running_of("low-a").await, 1);
}
