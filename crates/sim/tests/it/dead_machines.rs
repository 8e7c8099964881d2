//! Machines that die: nobody answers for their pods or says that one has stopped, and nobody unmounts their volumes, until the Node goes or somebody says that
//! nothing runs there any more. And volumes that only one node may have.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, EvictParams};
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, NodeClaim};
use spokeshave_cluster::objects::{is_deleting, is_ready, node_of};

use crate::plain::Cluster;
use crate::words::*;

impl Cluster {
    /// How many pods of `web` its budget counts as healthy, and how many it allows to go.
    async fn counted(&self) -> (i32, i32) {
        let status = self.get::<PodDisruptionBudget>("web").await.status.unwrap();
        let number = |value: Option<i32>| value.unwrap_or_default();
        (number(status.current_healthy), number(status.disruptions_allowed))
    }

    async fn ready_replicas(&self) -> i32 {
        let status = self.get::<Deployment>("web").await.status.unwrap();
        status.ready_replicas.unwrap_or_default()
    }

    /// The first pod of the StatefulSet `db`, and its UID.
    async fn database(&self) -> (Pod, String) {
        let pod = self.get::<Pod>("db-0").await;
        let uid = pod.uid().unwrap();
        (pod, uid)
    }

    /// Nodes that have a volume.
    async fn with_volumes(&self) -> Vec<String> {
        let attachments = self.list::<VolumeAttachment>().await.into_iter();
        attachments.map(|one| one.spec.node_name).collect()
    }
}

/// A cluster of one node, on which two pods of `web` and one of `db` run.
async fn with_node(seed: u64) -> (Cluster, String) {
    let cluster = Cluster::undisturbed(seed).await;
    cluster.run("web", 2, "100m").await;
    cluster
        .stateful_set("db", 1, template("db", "100m", json!({})))
        .await;
    cluster.until_running(3).await;
    let node = cluster.node_of("web").await;
    assert_eq!(cluster.names::<Node>().await, [node.as_str()]);
    (cluster, node)
}

/// What counts pods that are Ready counts none of them, and one that is deleted stays until its kubelet is back.
#[tokio::test(start_paused = true)]
async fn nobody_answers_for_the_pods_of_a_node_that_has_fallen_silent() {
    let (cluster, node) = with_node(301).await;
    cluster.budget("web", json!({"maxUnavailable": 1})).await;
    cluster.pass(5).await;
    assert_eq!(
        (cluster.counted().await, cluster.ready_replicas().await),
        ((2, 1), 2)
    );
    cluster.say_ready(&node, "Unknown").await;
    cluster.pass(5).await;
    assert!(!cluster.list::<Pod>().await.iter().any(is_ready));
    assert_eq!(
        (cluster.counted().await, cluster.ready_replicas().await),
        ((0, 0), 0)
    );
    let web = cluster.pod_of("web").await.name_any();
    let refused = cluster.api::<Pod>().evict(&web, &EvictParams::default()).await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 429),
        "{refused:?}"
    );
    let (_, uid) = cluster.database().await;
    cluster.delete::<Pod>("db-0").await;
    cluster.pass(120).await;
    let (pod, still) = cluster.database().await;
    assert_eq!(still, uid, "a StatefulSet has no second pod of a name");
    assert!(is_deleting(&pod.metadata), "nobody says that it has stopped");
    cluster.say_ready(&node, "True").await;
    let took = cluster
        .until("the kubelet is back", async |cluster| {
            let pod = cluster.find::<Pod>("db-0").await;
            let is_next = pod.is_some_and(|pod| pod.uid().as_ref() != Some(&uid) && is_ready(&pod));
            is_next && cluster.ready_replicas().await == 2
        })
        .await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    cluster.pass(5).await;
    assert_eq!(cluster.counted().await, (2, 1));
}

// D-319: pods go when they tolerate the silence no longer, and stay until their Node goes; a drain waits for none longer than its end and a minute.
#[tokio::test(start_paused = true)]
async fn d_319_pods_of_a_dead_machine_stay_until_its_node_goes_and_keep_it_for_a_minute() {
    let cluster = Cluster::undisturbed(302).await;
    let soon = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60});
    let template_of =
        |app: &str, tolerations: Value| template(app, "100m", json!({"spec": {"tolerations": tolerations}}));
    cluster
        .deploy_with("web", 1, template_of("web", json!([soon])))
        .await;
    cluster.until_running(1).await;
    cluster.stateful_set("db", 1, template_of("db", json!([]))).await;
    cluster.until_running(2).await;
    let node = cluster.node_of("db").await;
    let web = cluster.pod_of("web").await.name_any();
    assert_eq!(cluster.node_of("web").await, node);
    let claim = cluster.claim_of(&node).await.name().to_owned();
    let (_, uid) = cluster.database().await;
    cluster.say_ready(&node, "Unknown").await;
    let silent = cluster.clock.now();
    cluster.pass(50).await;
    assert!(
        !cluster
            .list::<Pod>()
            .await
            .iter()
            .any(|pod| is_deleting(&pod.metadata))
    );
    cluster.pass(20).await;
    assert!(
        is_deleting(&cluster.get::<Pod>(&web).await.metadata),
        "its own toleration is over"
    );
    cluster.until_running_of("web", 1).await;
    assert_ne!(cluster.node_of("web").await, node);
    cluster
        .until("db is to go, too", async |cluster| {
            is_deleting(&cluster.database().await.0.metadata)
        })
        .await;
    let after = cluster.clock.since(silent).as_secs();
    assert!((299..=303).contains(&after), "{after}");
    cluster.pass(30).await;
    assert_eq!(cluster.database().await.1, uid, "it has no successor yet");
    assert!(
        cluster.exists::<Pod>(&web).await,
        "nobody says that it has stopped"
    );
    cluster.delete::<NodeClaim>(&claim).await;
    let took = cluster.until_gone::<Node>(&node).await;
    assert!(
        (50..=80).contains(&took.as_secs()),
        "its grace is over, and a minute: {took:?}"
    );
    cluster.until_running(2).await;
    assert_ne!(cluster.database().await.1, uid);
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.assert_tidy().await;
}

// D-249, D-309: a machine that the cloud does not know any more takes its Node and its pods along, whatever keeps them.
#[tokio::test(start_paused = true)]
async fn d_249_d_309_the_pods_of_a_lost_machine_are_replaced_once_its_node_is_collected() {
    let (cluster, node) = with_node(303).await;
    cluster.budget("web", json!({"maxUnavailable": 0})).await;
    let instance = cluster.names::<KWOKInstance>().await.remove(0);
    cluster.delete::<KWOKInstance>(&instance).await;
    cluster.pass(5).await;
    assert!(!cluster.list::<Pod>().await.iter().any(is_ready));
    let took = cluster.until_gone::<Node>(&node).await;
    assert!(took < Duration::from_secs(5 * 60), "{took:?}");
    cluster.until_running(3).await;
    assert_eq!(cluster.ready_replicas().await, 2);
    cluster.assert_tidy().await;
}

/// A cluster in which one pod of `db` runs with a volume, and its node.
async fn with_volume(seed: u64) -> (Cluster, String) {
    let cluster = Cluster::undisturbed(seed).await;
    cluster.storage_class().await;
    let set = json!({"metadata": {"name": "db"}, "spec": {
        "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db", "100m", json!({})),
        "volumeClaimTemplates": [volume_claim("data")],
    }});
    cluster.create::<StatefulSet>(set).await;
    cluster.until_running(1).await;
    let node = cluster.node_of("db").await;
    cluster
        .until("its volume is there", async |cluster| {
            cluster.with_volumes().await == [node.as_str()]
        })
        .await;
    (cluster, node)
}

/// Waits until `db` runs on another node, with its volume.
async fn until_elsewhere(cluster: &Cluster, node: &str) -> Duration {
    cluster
        .until("db runs elsewhere", async |cluster| {
            let pods = cluster.running_pods().await;
            let nodes: Vec<&str> = pods.iter().map(node_of).collect();
            !nodes.is_empty() && !nodes.contains(&node) && cluster.with_volumes().await == nodes
        })
        .await
}

/// A pod that was deleted by force may still write: its successor waits until the volume is detached by force.
#[tokio::test(start_paused = true)]
async fn a_volume_stays_with_a_dead_machine_for_six_minutes() {
    let (cluster, node) = with_volume(304).await;
    cluster.say_ready(&node, "Unknown").await;
    cluster.pass(10).await;
    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    cluster.api::<Pod>().delete("db-0", &at_once).await.unwrap();
    let forced = cluster.clock.now();
    cluster.pass(300).await;
    let (pod, _) = cluster.database().await;
    let next = node_of(&pod);
    assert!(!next.is_empty() && next != node, "it has another node: {next:?}");
    assert_eq!(cluster.running().await, 0, "and waits for its volume");
    assert_eq!(cluster.with_volumes().await, [node.as_str()]);
    until_elsewhere(&cluster, &node).await;
    let took = cluster.clock.since(forced).as_secs();
    assert!((360..=370).contains(&took), "{took}");
}

/// Whoever says that nothing runs on a node any more need not wait for anything.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_out_of_service_gives_back_its_pods_and_volumes_at_once() {
    let (cluster, node) = with_volume(305).await;
    cluster.say_ready(&node, "Unknown").await;
    cluster.delete::<Pod>("db-0").await;
    cluster.pass(120).await;
    assert!(is_deleting(&cluster.database().await.0.metadata));
    let mut taints = cluster.get::<Node>(&node).await.spec.unwrap().taints.unwrap();
    let out_of_service =
        json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
    taints.push(serde_json::from_value(out_of_service).unwrap());
    cluster
        .patch::<Node>(&node, json!({"spec": {"taints": taints}}))
        .await;
    let took = until_elsewhere(&cluster, &node).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// Pods on three nodes share a volume that one node may have: who is first has it, though all ask at the same moment.
#[tokio::test(start_paused = true)]
async fn a_volume_of_one_node_is_attached_once_when_several_ask_for_it() {
    let cluster = Cluster::undisturbed(306).await;
    cluster.storage_class().await;
    let apart = |app: &str| {
        let term =
            json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"});
        let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        json!({"affinity": apart, "nodeSelector": {"topology.kubernetes.io/zone": "test-zone-a"}})
    };
    // They have their nodes already.
    let first = template("base", "100m", json!({"spec": apart("base")}));
    cluster.deploy_with("base", 3, first).await;
    cluster.until_running(3).await;
    for app in ["a", "b", "c"] {
        cluster.create::<PersistentVolumeClaim>(volume_claim(app)).await;
        let mut spec = apart(app);
        spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": app}}]);
        let template = template(app, "100m", json!({"spec": spec}));
        cluster.deploy_with(app, 3, template).await;
    }
    cluster.pass(60).await;
    let pods = cluster.list::<Pod>().await;
    assert_eq!(pods.len(), 12);
    assert!(pods.iter().all(|pod| !node_of(pod).is_empty()));
    for app in ["a", "b", "c"] {
        assert_eq!(cluster.running_of(app).await, 1, "{app}");
    }
    assert_eq!(cluster.with_volumes().await.len(), 3);
}
