//! A cluster at rest: what wakes disruption again, and that nothing else costs anything.
//!
//! Elapsed times are virtual. Each test begins right after a refresh (D-123), so that events within four minutes are not caused by the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::{DisruptionPolicy, NodeClaim};
use spokeshave_controllers::{FeatureGates, Options};
use spokeshave_model::scheduler_profiles::SchedulerProfiles;
use spokeshave_model::{InstanceType, Price};
use spokeshave_provider_kwok::KwokOptions;
use spokeshave_runtime::Metrics;

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

const PASSES: &str = "spokeshave_voluntary_disruption_passes_total";
const SNAPSHOTS: &str = "spokeshave_snapshots_made_total";
/// Kinds that wake disruption in other tests: something of the first four comes or goes in nearly each of them, `disruption::policies` and
/// `disruption::quiet` are about the next two and owners of pods, and `p_121_…` about those that default spread reads.
const WAKE_ELSEWHERE: [&str; 12] = [
    "nodeclaims",
    "nodepools",
    "nodes",
    "pods",
    "disruptionpolicies",
    "disruptions",
    "deployments",
    "jobs",
    "replicasets",
    "statefulsets",
    "replicationcontrollers",
    "services",
];
/// Kinds of which no Snapshot is made, or only through what is compared by itself: instance types, virtual pods, whether a NodePool is ready.
const WAKE_NOBODY: [&str; 6] = [
    "capacitybuffers",
    "kwoknodeclasses",
    "nodeoverlays",
    "podtemplates",
    "resourceslices",
    "volumeattachments",
];
/// What is found in this time was not found by a refresh.
const BEFORE_THE_NEXT_REFRESH: Duration = Duration::from_secs(240);

fn passes(metrics: &Metrics, cause: &str) -> f64 {
    value(metrics, PASSES, cause)
}

/// Passes for a change, and Snapshots that were made from scratch.
fn looks(operator: &Running) -> (f64, f64) {
    (
        passes(&operator.metrics, "change"),
        sum(&operator.metrics, SNAPSHOTS),
    )
}

/// Whatever may be consolidated is at once, on demand and on these types only.
fn at_once(types: &[&str]) -> Value {
    let requirements = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]},
    ]);
    json!({
        "template": {"spec": {"requirements": requirements}},
        "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
    })
}

/// Waits until nothing is left to do, and a refresh has just said so.
async fn until_refreshed(cluster: &Cluster, operator: &Running) {
    let before = passes(&operator.metrics, "refresh");
    cluster
        .until("disruption is at rest", async |_| {
            passes(&operator.metrics, "refresh") >= before + 2.0
        })
        .await;
}

async fn types_of_nodes(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.list::<Node>().await;
    let label = |node: &Node| {
        node.metadata
            .labels
            .as_ref()?
            .get("node.kubernetes.io/instance-type")
            .cloned()
    };
    nodes.iter().filter_map(label).collect()
}

/// Requests of an operator that may have changed something, by kind of request.
fn writes(cluster: &Cluster) -> BTreeMap<String, u64> {
    let mut kinds: BTreeMap<String, u64> = cluster.traffic.kinds().into_iter().collect();
    kinds.retain(|kind, _| {
        kind.starts_with("operator") && !kind.contains(" GET ") && !kind.contains(" WATCH ")
    });
    kinds
}

#[tokio::test(start_paused = true)]
async fn d_121_d_122_w_26_w_27_every_kind_that_decisions_read_wakes_disruption() {
    let (cluster, operator) = Cluster::started(61, at_once(&["c-2x-amd64-linux"])).await;
    cluster.run_one_pod().await;
    until_refreshed(&cluster, &operator).await;
    let quiet = passes(&operator.metrics, "change");
    cluster.pass(60).await;
    assert!(
        (passes(&operator.metrics, "change") - quiet).abs() < 0.5,
        "at rest nothing is looked at"
    );

    async fn wakes<K: objects::Kind>(cluster: &Cluster, operator: &Running, object: Value) -> String {
        let before = passes(&operator.metrics, "change");
        cluster.create::<K>(object).await;
        // One poll, and a second for the watch.
        cluster.pass(11).await;
        assert!(
            passes(&operator.metrics, "change") > before,
            "a new {} wakes nobody",
            K::kind(&())
        );
        cluster.pass(30).await;
        K::plural(&()).into_owned()
    }
    let mut woken = BTreeSet::new();
    let metadata = json!({"name": "late"});
    let class = json!({"metadata": metadata, "provisioner": "example.com/disk"});
    woken.insert(wakes::<StorageClass>(&cluster, &operator, class).await);
    let volume = json!({"metadata": metadata, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}});
    woken.insert(wakes::<PersistentVolume>(&cluster, &operator, volume).await);
    let claim = json!({"metadata": metadata, "spec": {"storageClassName": "none", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    woken.insert(wakes::<PersistentVolumeClaim>(&cluster, &operator, claim).await);
    let drivers = json!({"metadata": metadata, "spec": {"drivers": []}});
    woken.insert(wakes::<CSINode>(&cluster, &operator, drivers).await);
    let namespace = json!({"metadata": metadata});
    woken.insert(wakes::<Namespace>(&cluster, &operator, namespace).await);
    let budget = json!({"metadata": metadata, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "late"}}}});
    woken.insert(wakes::<PodDisruptionBudget>(&cluster, &operator, budget).await);
    let nowhere = json!({"spec": {"nodeSelector": {"nobody": "has-it"}}});
    let daemons = json!({"metadata": metadata, "spec": {"selector": {"matchLabels": {"app": "late"}}, "template": template("late", "10m", nowhere)}});
    woken.insert(wakes::<DaemonSet>(&cluster, &operator, daemons).await);

    // The list is whole: whatever an operator watches with everything on is in it, or is known not to belong there.
    operator.end().await;
    let hears = json!({"metadata": {"name": "hears"}, "spec": {"workloads": {}}});
    cluster.create::<DisruptionPolicy>(hears).await;
    let _operator = cluster.operator(Setup::with_options(everything()));
    cluster.pass(30).await;
    let watched = cluster.traffic.asked().into_iter();
    let watched = watched.filter(|asked| asked.verb == "watch");
    let watched: BTreeSet<String> = watched.map(|asked| asked.resource).collect();
    let mut known = woken;
    known.extend(WAKE_ELSEWHERE.map(str::to_owned));
    known.extend(WAKE_NOBODY.map(str::to_owned));
    assert_eq!(watched, known, "left: what is watched, right: what is known of");
}

/// Every feature that makes an operator watch more.
fn everything() -> Options {
    Options {
        dynamic_resources: true,
        scheduler_profiles: Arc::new(spread_over_zones()),
        feature_gates: FeatureGates {
            node_overlay: true,
            capacity_buffer: true,
            ..FeatureGates::default()
        },
        ..Options::default()
    }
}

/// Default spread, for which Services and controllers of pods are read.
fn spread_over_zones() -> SchedulerProfiles {
    let zones = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
    SchedulerProfiles::of_all(serde_json::from_value(zones).unwrap())
}

/// A rule between pods that only a label of a Namespace makes: without it two nodes become one.
#[tokio::test(start_paused = true)]
async fn w_27_a_label_of_a_namespace_is_a_reason_to_look_again() {
    let (cluster, operator) = Cluster::started(62, at_once(&["c-1x-amd64-linux"])).await;
    cluster
        .create::<Namespace>(json!({"metadata": {"name": "blue", "labels": {"team": "blue"}}}))
        .await;
    let apart = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "other"}},
        "namespaceSelector": {"matchLabels": {"team": "blue"}},
    }]}}}});
    cluster
        .deploy_with("web", 1, template("web", "200m", apart))
        .await;
    let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), "blue");
    let other = json!({"metadata": {"name": "other"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "other"}}, "template": template("other", "200m", json!({})),
    }});
    let created: Deployment = serde_json::from_value(other).unwrap();
    api.create(&Default::default(), &created).await.unwrap();
    cluster
        .until("two nodes", async |cluster| {
            cluster.names::<Node>().await.len() == 2
        })
        .await;
    until_refreshed(&cluster, &operator).await;
    cluster.assert_no_commands().await;
    let green = json!({"metadata": {"labels": {"team": "green"}}});
    cluster.patch::<Namespace>("blue", green).await;
    let took = cluster
        .until("one node", async |cluster| {
            cluster.names::<Node>().await.len() == 1
        })
        .await;
    assert!(took < BEFORE_THE_NEXT_REFRESH, "{took:?}");
}

/// Others write to Namespaces what they have seen, and binding alone writes a volume and its claim half a dozen times.
#[tokio::test(start_paused = true)]
async fn w_27_what_nobody_reads_of_namespaces_and_volumes_is_no_reason_to_look_again() {
    let (cluster, operator) = Cluster::started(69, at_once(&["c-2x-amd64-linux"])).await;
    let metadata = json!({"name": "late"});
    cluster.create::<Namespace>(json!({"metadata": metadata})).await;
    let volume = json!({"metadata": metadata, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}});
    cluster.create::<PersistentVolume>(volume).await;
    let claim = json!({"metadata": metadata, "spec": {"storageClassName": "none", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create::<PersistentVolumeClaim>(claim).await;
    cluster.run_one_pod().await;
    until_refreshed(&cluster, &operator).await;
    let before = looks(&operator);
    let seen = "example.com/seen-at";
    cluster.annotate::<Namespace>("late", seen, "12:00").await;
    cluster.annotate::<PersistentVolume>("late", seen, "12:00").await;
    cluster
        .annotate::<PersistentVolumeClaim>("late", seen, "12:00")
        .await;
    let checked = json!({"message": "checked"});
    cluster.patch_status::<PersistentVolume>("late", checked).await;
    let capacity = json!({"capacity": {"storage": "1Gi"}});
    cluster
        .patch_status::<PersistentVolumeClaim>("late", capacity)
        .await;
    cluster.pass(30).await;
    assert_eq!(looks(&operator), before, "nobody reads any of it");
    let lost = json!({"phase": "Lost"});
    cluster.patch_status::<PersistentVolumeClaim>("late", lost).await;
    cluster.pass(11).await;
    assert!(looks(&operator).0 > before.0, "that a claim is lost is read");
}

/// Of Services and controllers of pods only whom they select is read, for default spread. The rest changes with every pod that comes or goes.
#[tokio::test(start_paused = true)]
async fn p_121_w_27_whom_services_and_controllers_select_is_a_reason_to_look_again_and_nothing_else_is() {
    let setup = Setup::with_options(Options {
        scheduler_profiles: Arc::new(spread_over_zones()),
        ..Options::default()
    });
    let (cluster, operator) = Cluster::started_with(68, at_once(&["c-2x-amd64-linux"]), setup).await;
    let (metadata, labels) = (json!({"name": "late"}), json!({"app": "late"}));
    let pods = template("late", "10m", json!({}));
    let service = json!({"metadata": metadata, "spec": {"selector": labels, "ports": [{"port": 80}]}});
    cluster.create::<Service>(service).await;
    let controller =
        json!({"metadata": metadata, "spec": {"replicas": 0, "selector": labels, "template": pods}});
    cluster.create::<ReplicationController>(controller).await;
    let set = json!({"metadata": metadata, "spec": {
        "replicas": 0, "serviceName": "late", "selector": {"matchLabels": labels}, "template": pods,
    }});
    cluster.create::<StatefulSet>(set).await;
    cluster.run_one_pod().await;
    until_refreshed(&cluster, &operator).await;
    let before = looks(&operator);
    let address = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}});
    cluster.patch_status::<Service>("late", address).await;
    let observed = json!({"replicas": 0, "observedGeneration": 7});
    cluster
        .patch_status::<ReplicationController>("late", observed.clone())
        .await;
    cluster.patch_status::<StatefulSet>("late", observed).await;
    let observed = json!({"observedGeneration": 7});
    for name in cluster.names::<ReplicaSet>().await {
        cluster.patch_status::<ReplicaSet>(&name, observed.clone()).await;
    }
    cluster.pass(30).await;
    assert_eq!(looks(&operator), before, "how many there are is read of the pods");
    let others = json!({"spec": {"selector": {"app": "web"}}});
    cluster.patch::<Service>("late", others).await;
    cluster.pass(11).await;
    assert!(
        looks(&operator).0 > before.0,
        "whom a Service selects is read of it"
    );
}

#[tokio::test(start_paused = true)]
async fn w_27_a_price_that_falls_is_a_reason_to_look_again() {
    let types = ["c-2x-amd64-linux", "m-2x-amd64-linux"];
    let (cluster, operator) = Cluster::started(63, at_once(&types)).await;
    cluster.run_one_pod().await;
    until_refreshed(&cluster, &operator).await;
    assert_eq!(types_of_nodes(&cluster).await, [types[0]]);
    let mut catalog: Vec<InstanceType> = KwokOptions::default().catalog.instance_types().to_vec();
    for offering in catalog
        .iter_mut()
        .filter(|one| one.name == types[1])
        .flat_map(|one| &mut one.offerings)
    {
        offering.price = Price(offering.price.0 / 10);
    }
    *cluster.faults.catalog.lock().unwrap() = Some(catalog.into());
    let took = cluster
        .until("a node of the type that is cheap now", async |cluster| {
            types_of_nodes(cluster).await == [types[1]]
        })
        .await;
    assert!(took < BEFORE_THE_NEXT_REFRESH, "{took:?}");
}

/// The replacement cannot be launched; the cloud treats its offering as unavailable for three minutes. Then it is retried.
#[tokio::test(start_paused = true)]
async fn w_27_an_offering_that_comes_back_is_a_reason_to_look_again() {
    let setup = Setup::with_cloud(KwokOptions {
        insufficient_capacity: vec!["c-1x-amd64-linux".parse().unwrap()],
        termination_delay: Duration::from_secs(3),
        ..KwokOptions::default()
    });
    let pool = at_once(&["c-1x-amd64-linux", "c-8x-amd64-linux"]);
    let (cluster, _operator) = Cluster::started_with(64, pool, setup).await;
    cluster.deploy("large", 1, "6").await;
    cluster.deploy("web", 1, "500m").await;
    cluster.until_running(2).await;
    cluster.scale("large", 0).await;
    cluster
        .until("the replacement is not to be had", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    let took = cluster
        .until("it is tried again", async |cluster| {
            cluster.ledger().await.len() == 2
        })
        .await;
    let limits = Duration::from_secs(170)..BEFORE_THE_NEXT_REFRESH;
    assert!(
        limits.contains(&took),
        "not while it is sold out, and soon after: {took:?}"
    );
}

/// D-123, with the kubelets of a genuine cluster: they renew their Leases and report their status, and none of that is a change.
#[tokio::test(start_paused = true)]
async fn d_123_an_hour_of_rest_costs_a_refresh_every_five_minutes_and_nothing_else() {
    let (cluster, operator) = Cluster::started(65, at_once(&["c-2x-amd64-linux", "c-4x-amd64-linux"])).await;
    cluster.deploy("web", 6, "1").await;
    cluster.until_running(6).await;
    // Events are repeated while their cause lasts: until the first of them have been recorded.
    cluster.pass(1800).await;
    let heartbeats = async |cluster: &Cluster| {
        let nodes = cluster.list::<Node>().await;
        let of = |node: &Node| {
            node.status
                .as_ref()?
                .conditions
                .as_ref()?
                .first()?
                .last_heartbeat_time
                .clone()
        };
        nodes
            .iter()
            .map(|node| of(node).map(|time| time.0))
            .collect::<Vec<_>>()
    };
    let (snapshots, changes, refreshes) = (
        sum(&operator.metrics, SNAPSHOTS),
        passes(&operator.metrics, "change"),
        passes(&operator.metrics, "refresh"),
    );
    let (written, beaten) = (writes(&cluster), heartbeats(&cluster).await);
    cluster.pass(3600).await;
    let later = heartbeats(&cluster).await;
    assert!(
        !beaten.is_empty() && beaten.iter().zip(&later).all(|(before, after)| before < after),
        "kubelets report: {beaten:?} {later:?}"
    );
    assert_eq!(writes(&cluster), written, "nothing is written");
    assert!(
        (sum(&operator.metrics, SNAPSHOTS) - snapshots).abs() < 0.5,
        "no Snapshot is made"
    );
    assert!(
        (passes(&operator.metrics, "change") - changes).abs() < 0.5,
        "no pass for a change"
    );
    let refreshed = passes(&operator.metrics, "refresh") - refreshes;
    assert!(
        (11.0..=12.0).contains(&refreshed),
        "{refreshed} refreshes in an hour"
    );
}

/// Changes reported by a kubelet are seen, with or without heartbeats.
#[tokio::test(start_paused = true)]
async fn a_condition_of_a_node_that_changes_is_no_heartbeat() {
    let (cluster, operator) = Cluster::started(66, at_once(&["c-2x-amd64-linux"])).await;
    cluster.run_one_pod().await;
    until_refreshed(&cluster, &operator).await;
    let name = cluster.names::<Node>().await.remove(0);
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let report = async |status: &str, heartbeat: &str, since: &str| {
        let condition = json!({"type": "DiskPressure", "status": status, "lastHeartbeatTime": heartbeat, "lastTransitionTime": since});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        nodes
            .patch_status(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
        cluster.pass(11).await;
    };
    report("False", "2026-01-01T02:00:00Z", "2026-01-01T00:00:00Z").await;
    let before = passes(&operator.metrics, "change");
    report("False", "2026-01-01T02:05:00Z", "2026-01-01T00:00:00Z").await;
    assert!(
        (passes(&operator.metrics, "change") - before).abs() < 0.5,
        "a heartbeat is no news"
    );
    report("True", "2026-01-01T02:05:00Z", "2026-01-01T02:05:00Z").await;
    assert!(passes(&operator.metrics, "change") > before, "a condition is");
}

/// D-049, P-142: also a store that only some features need.
#[tokio::test(start_paused = true)]
async fn d_049_p_142_nothing_is_decided_before_every_store_that_is_watched_is_filled() {
    let cluster = Cluster::new(67).await;
    cluster.pool("default", at_once(&["c-2x-amd64-linux"])).await;
    cluster.gate.silent.lock().unwrap().push("resourceslices");
    let with_devices = Options {
        dynamic_resources: true,
        ..Options::default()
    };
    let silent = cluster.operator(Setup::with_options(with_devices.clone()));
    cluster.deploy("web", 1, "1").await;
    cluster.pass(300).await;
    assert!(
        cluster.names::<NodeClaim>().await.is_empty(),
        "ResourceSlices are not known"
    );
    silent.end().await;
    cluster.gate.silent.lock().unwrap().clear();
    let _operator = cluster.operator(Setup::with_options(with_devices));
    cluster.until_running(1).await;
}

/// Nodes that come for pods, register, become ready and take them are taken into the Snapshot one by one.
#[tokio::test(start_paused = true)]
async fn nodes_that_join_do_not_lower_the_whole_cluster_again() {
    let (cluster, operator) = Cluster::started(66, at_once(&["c-2x-amd64-linux", "c-4x-amd64-linux"])).await;
    cluster.deploy("web", 4, "1").await;
    cluster.until_running(4).await;
    cluster.pass(60).await;
    let (nodes, lowered) = (
        cluster.list::<Node>().await.len(),
        sum(&operator.metrics, SNAPSHOTS),
    );
    cluster.deploy("more", 8, "1").await;
    cluster.until_running(12).await;
    cluster.pass(60).await;
    assert!(cluster.list::<Node>().await.len() > nodes, "some have come");
    let again = sum(&operator.metrics, SNAPSHOTS) - lowered;
    assert!(again < 0.5, "{again} Snapshots were made from scratch");
}
