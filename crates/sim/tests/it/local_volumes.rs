//! Volumes that somebody makes beforehand, as for the disks of nodes: a pod goes where one is free for it, or waits; and claims that nothing serves.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::NodePool;

use crate::plain::Cluster;
use crate::words::*;

const NO_DISK: &str = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.";

/// A claim of class `local`, under which nothing makes volumes.
fn claim(name: &str) -> Value {
    let mut claim = volume_claim(name);
    claim["spec"]["storageClassName"] = json!("local");
    claim
}

/// A pod that uses claims.
async fn pod_with(cluster: &Cluster, name: &str, claims: &[&str], change: Value) {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    let mut spec = json!({"volumes": volumes});
    json_patch::merge(&mut spec, &change);
    cluster.pod(name, "100m", json!({"spec": spec})).await;
}

impl Cluster {
    /// StorageClass `local`, with a mode of binding.
    async fn local_class(&self, mode: &str) {
        let class = json!({"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode});
        self.create::<StorageClass>(class).await;
    }

    /// A disk of a node.
    async fn disk(&self, name: &str, node: &str) {
        let host = self.get::<Node>(node).await.labels()["kubernetes.io/hostname"].clone();
        let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [host]});
        let volume = json!({"metadata": {"name": name}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "local": {"path": "/disk"},
            "persistentVolumeReclaimPolicy": "Retain", "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }});
        self.create::<PersistentVolume>(volume).await;
    }

    /// Two nodes with room, beside which no other can be had, and class `local`, which waits for pods.
    async fn with_two_nodes(seed: u64) -> (Self, [String; 2]) {
        let cluster = Self::undisturbed(seed).await;
        cluster.run("web", 2, "6").await;
        let limit = json!({"spec": {"limits": {"cpu": "1"}}});
        cluster.patch::<NodePool>("default", limit).await;
        cluster.local_class("WaitForFirstConsumer").await;
        let nodes = cluster.names::<Node>().await;
        (cluster, nodes.try_into().unwrap())
    }

    /// What the scheduler says of a pod.
    async fn why(&self, pod: &str) -> String {
        let status = self.get::<Pod>(pod).await.status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        let scheduled = conditions.find(|one| one.type_ == "PodScheduled");
        scheduled.and_then(|one| one.message).unwrap_or_default()
    }

    /// The volume of a claim, once both say so.
    async fn volume_of(&self, claim: &str) -> Option<String> {
        let claim: PersistentVolumeClaim = self.get(claim).await;
        let phase = claim.status.and_then(|status| status.phase);
        let volume = claim.spec.and_then(|spec| spec.volume_name);
        volume.filter(|_| phase.as_deref() == Some("Bound"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_goes_where_a_disk_is_free_and_each_disk_is_for_one() {
    let (cluster, nodes) = Cluster::with_two_nodes(421).await;
    for name in ["first", "second"] {
        cluster.create::<PersistentVolumeClaim>(claim(name)).await;
        pod_with(&cluster, name, &[name], json!({})).await;
    }
    cluster.pass(10).await;
    assert_eq!(
        [cluster.why("first").await, cluster.why("second").await],
        [NO_DISK; 2]
    );
    cluster.disk("disk-0", &nodes[0]).await;
    cluster.until_running_of("first", 1).await;
    assert_eq!(cluster.node_of("first").await, nodes[0]);
    assert_eq!(cluster.volume_of("first").await.as_deref(), Some("disk-0"));
    cluster.pass(60).await;
    assert_eq!(cluster.why("second").await, NO_DISK);
    cluster.disk("disk-1", &nodes[1]).await;
    cluster.until_running_of("second", 1).await;
    assert_eq!(cluster.node_of("second").await, nodes[1]);
    assert_eq!(cluster.volume_of("second").await.as_deref(), Some("disk-1"));
}

/// One disk does not serve two claims of a pod, nor do disks of two nodes.
#[tokio::test(start_paused = true)]
async fn a_pod_with_two_claims_needs_two_disks_on_a_node() {
    let (cluster, nodes) = Cluster::with_two_nodes(422).await;
    for name in ["logs", "data"] {
        cluster.create::<PersistentVolumeClaim>(claim(name)).await;
    }
    pod_with(&cluster, "db", &["logs", "data"], json!({})).await;
    for (index, node) in nodes.iter().enumerate() {
        cluster.disk(&format!("disk-{index}"), node).await;
    }
    cluster.pass(60).await;
    assert_eq!(cluster.why("db").await, NO_DISK);
    cluster.disk("disk-2", &nodes[1]).await;
    cluster.until_running_of("db", 1).await;
    assert_eq!(cluster.node_of("db").await, nodes[1]);
    let mut volumes = [cluster.volume_of("logs").await, cluster.volume_of("data").await];
    volumes.sort_unstable();
    assert_eq!(volumes, ["disk-1", "disk-2"].map(|disk| Some(disk.to_owned())));
}

/// Also a pod that nobody had to find a node for.
#[tokio::test(start_paused = true)]
async fn a_pod_is_not_started_before_its_claim_has_a_volume() {
    let cluster = Cluster::undisturbed(423).await;
    cluster.run("web", 1, "1").await;
    let node = cluster.node_of("web").await;
    cluster.local_class("Immediate").await;
    cluster.create::<PersistentVolumeClaim>(claim("data")).await;
    pod_with(&cluster, "direct", &["data"], json!({"nodeName": node})).await;
    cluster.pass(60).await;
    assert_eq!(cluster.running_of("direct").await, 0);
    cluster.disk("disk", &node).await;
    let took = cluster.until_running_of("direct", 1).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(cluster.volume_of("data").await.as_deref(), Some("disk"));
}

/// Its volume was to be made for a node that has gone meanwhile.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_node_has_gone_gets_another() {
    const SELECTED: &str = "volume.kubernetes.io/selected-node";
    let cluster = Cluster::undisturbed(424).await;
    cluster.run("web", 1, "1").await;
    cluster.storage_class().await;
    let mut claim = volume_claim("data");
    claim["metadata"]["annotations"] = json!({SELECTED: "gone"});
    cluster.create::<PersistentVolumeClaim>(claim).await;
    pod_with(&cluster, "db", &["data"], json!({})).await;
    cluster.until_running_of("db", 1).await;
    assert!(cluster.volume_of("data").await.is_some());
    let claim: PersistentVolumeClaim = cluster.get("data").await;
    assert_eq!(claim.annotations()[SELECTED], cluster.node_of("db").await);
}

/// As when somebody applies both, the claim first.
#[tokio::test(start_paused = true)]
async fn a_claim_that_names_its_volume_gets_it_once_it_is_there() {
    let cluster = Cluster::undisturbed(425).await;
    cluster.run("web", 1, "1").await;
    let node = cluster.node_of("web").await;
    cluster.local_class("Immediate").await;
    let mut claim = claim("data");
    claim["spec"]["volumeName"] = json!("disk");
    cluster.create::<PersistentVolumeClaim>(claim).await;
    pod_with(&cluster, "db", &["data"], json!({})).await;
    cluster.pass(10).await;
    assert_eq!(cluster.running_of("db").await, 0);
    cluster.disk("disk", &node).await;
    cluster.until_running_of("db", 1).await;
    assert_eq!(cluster.volume_of("data").await.as_deref(), Some("disk"));
    let claim: PersistentVolumeClaim = cluster.get("data").await;
    assert_eq!(claim.annotations()["pv.kubernetes.io/bind-completed"], "yes");
}
