//! Values that are read off the stores when somebody scrapes (P §16): per NodePool always, per node, pod and instance type only when asked for.
//!
//! Nothing is refreshed in between, and what is gone is not in the next scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::{NodePool, Quantity, QuantityMap, WireForm, labels};
use spokeshave_model::Pod;
use spokeshave_model::Resources;
use spokeshave_model::pod::{is_daemon, is_terminal, limits, node_name, requests};
use spokeshave_ports::{CloudProvider as _, Measurement, WatchFailures};
use spokeshave_runtime::{Gauge, Metrics, watch_failures};

use crate::observe::conditions::{show_blocked, show_each};
use crate::observe::ended_pools;
use crate::observe::gauges::{Series, metric_label, seconds, with};
use crate::observe::journal::Journal;
use crate::observe::pod_times::PodTimes;
use crate::state::cluster::Cluster;

/// Which build this is, by the commit that it was made from where that is known.
pub(crate) fn show_build(metrics: &Metrics, commit: &str) {
    metrics
        .gauge(
            "karpenter_build_info",
            "A metric with a constant '1' value labeled by version, goversion, goarch, commit.",
            &["version", "goversion", "goarch", "commit"],
        )
        .set(
            // By "none", alerts and boards tell us from Karpenter.
            &[
                env!("CARGO_PKG_VERSION"),
                "none",
                goarch(std::env::consts::ARCH),
                commit,
            ],
            1.0,
        );
}

/// What Go calls an architecture; others than these we build for none.
fn goarch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Registers everything that a term shows; `objects` asks for series per node, pod, condition of an object, and instance type.
pub(crate) fn register(journal: &Arc<Journal>, metrics: &Metrics, objects: bool) {
    let pools = Pools::new(metrics);
    let weak = Arc::downgrade(journal);
    metrics.before_render(move || with(&weak, |journal| pools.refresh(journal)));
    let weak = Arc::downgrade(journal);
    metrics.before_render(move || with(&weak, unfinished_work));
    let cluster = &journal.cluster;
    let (weak, copies) = (Arc::downgrade(cluster), metrics.copies());
    copies.replace(measured(cluster, objects));
    metrics.before_render(move || with(&weak, |cluster| copies.replace(measured(cluster, objects))));
    let (weak, failures) = (Arc::downgrade(cluster), watch_failures(metrics));
    metrics.before_render(move || {
        with(&weak, |cluster| {
            let taken = cluster.cloud.watch_failures().map(WatchFailures::take);
            for (kind, count) in taken.unwrap_or_default() {
                failures.add(&[&kind], f64::from(count));
            }
        });
    });
    ended_pools::forget(cluster, metrics);
    show_blocked(cluster, metrics);
    if !objects {
        return;
    }
    let nodes = Nodes::new(metrics, &cluster.options.label_rules.well_known);
    let weak = Arc::downgrade(cluster);
    metrics.before_render(move || with(&weak, |cluster| nodes.refresh(cluster)));
    let pods = Pods::new(metrics);
    let (weak, times) = (Arc::downgrade(cluster), journal.pod_times.clone());
    metrics.before_render(move || with(&weak, |cluster| pods.refresh(cluster, &times)));
    show_each(cluster, metrics, |cluster| &cluster.stores.node_claims);
    show_each(cluster, metrics, |cluster| &cluster.stores.node_pools);
    show_each(cluster, metrics, |cluster| &cluster.stores.nodes);
    if cluster.options.feature_gates.capacity_buffer {
        show_each(cluster, metrics, |cluster| &cluster.stores.buffers.buffers);
    }
}

/// What the provider measures. Of instance types there are hundreds, and thousands of offerings: families that name them are for those who ask for
/// series of single objects.
fn measured(cluster: &Cluster, objects: bool) -> Vec<Measurement> {
    let mut measured = cluster.cloud.measurements();
    measured.retain(|one| objects || !one.labels.contains(&"instance_type"));
    measured
}

/// A run that hangs shows here before it is over.
fn unfinished_work(journal: &Journal) {
    let now = journal.now();
    let run = journal.under_way();
    let series = run.map(|(run, since)| (vec!["provisioner".to_owned(), run], seconds(since, now)));
    journal.families.unfinished_work.replace_all(series);
}

/// What a resource is called in metrics (P §16): `ephemeral_storage`, `nvidia.com/gpu`.
fn resource_type(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

/// CPU in cores, the rest in base units.
#[expect(clippy::cast_precision_loss, reason = "a gauge")]
fn amount(name: &str, amount: i64) -> f64 {
    if name == "cpu" {
        amount as f64 / 1000.0
    } else {
        amount as f64
    }
}

/// What is there once, or once a NodePool.
struct Pools {
    node_count: Gauge,
    synced: Gauge,
    unsynced: Gauge,
    cost: Gauge,
    utilization: Gauge,
    limit: Gauge,
    usage: Gauge,
}

impl Pools {
    fn new(metrics: &Metrics) -> Self {
        Self {
            node_count: metrics.gauge(
                "karpenter_cluster_state_node_count",
                "Current count of nodes in cluster state",
                &[],
            ),
            synced: metrics.gauge(
                "karpenter_cluster_state_synced",
                "1 when no NodeClaim waits for its launch.",
                &[],
            ),
            unsynced: metrics.gauge(
                "karpenter_cluster_state_unsynced_time_seconds",
                "For how long some NodeClaim has been waiting for its launch. Nobody else waits for it.",
                &[],
            ),
            cost: metrics.gauge(
                "karpenter_nodepools_cost_total",
                "The total cost per hour of the nodes of a nodepool.",
                &["nodepool"],
            ),
            utilization: metrics.gauge(
                "karpenter_cluster_utilization_percent",
                "Utilization of allocatable resources by pod requests.",
                &["resource_type"],
            ),
            limit: metrics.gauge(
                "karpenter_nodepools_limit",
                "Limits of nodepools.",
                &["resource_type", "nodepool"],
            ),
            usage: metrics.gauge(
                "karpenter_nodepools_usage",
                "Usage of nodepools.",
                &["resource_type", "nodepool"],
            ),
        }
    }

    /// Cost, limits and usage of every NodePool that is there; what others noted of NodePools that are gone goes.
    #[expect(clippy::cast_precision_loss, reason = "a gauge")]
    fn refresh_node_pools(&self, journal: &Journal) {
        let value = |name: &str, quantity: Quantity| match name {
            "cpu" => quantity.to_milli() as f64 / 1000.0,
            _ => quantity.to_units() as f64,
        };
        let series = |pool: &NodePool, amounts: Option<&QuantityMap>| -> Series {
            let amounts = amounts.into_iter().flatten().filter_map(|(name, amount)| {
                let quantity = Quantity::from_wire(amount).ok()?;
                let labels = vec![resource_type(name), pool.name().to_owned()];
                Some((labels, value(name, quantity)))
            });
            amounts.collect()
        };
        let (mut limits, mut usage, mut there) = (Series::new(), Series::new(), BTreeSet::new());
        journal.cluster.stores.node_pools.for_each(|_, pool| {
            there.insert(pool.name().to_owned());
            limits.extend(series(pool, pool.spec.limits.as_ref()));
            usage.extend(series(pool, pool.status.as_ref().map(|status| &status.resources)));
        });
        self.limit.replace_all(limits);
        self.usage.replace_all(usage);
        let prices = journal.pool_prices();
        let cost = |pool: &String| prices.get(pool).map_or(0.0, |price| price.dollars());
        self.cost
            .replace_all(there.iter().map(|pool| (vec![pool.clone()], cost(pool))));
        let families = &journal.families;
        for gauge in [&families.allowed_disruptions, &families.consuming_budgets] {
            gauge.retain(|labels| there.contains(&labels[0]));
        }
    }

    fn refresh(&self, journal: &Journal) {
        self.refresh_node_pools(journal);
        let now = journal.now();
        let mut oldest: Option<Timestamp> = None;
        let mut known = BTreeSet::new();
        journal.cluster.stores.node_claims.for_each(|_, claim| {
            if !journal.cluster.is_ours(claim) {
                return;
            }
            if let Some(id) = claim.provider_id() {
                known.insert(id.to_owned());
            } else if !claim.is_deleting() {
                let created = claim
                    .metadata
                    .creation_timestamp
                    .as_ref()
                    .map_or(now, |time| time.0);
                oldest = Some(oldest.map_or(created, |oldest| oldest.min(created)));
            }
        });
        let mut available = Resources::new();
        journal.cluster.stores.nodes.for_each(|name, node| {
            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
            known.insert(id.unwrap_or_else(|| name.name.clone()));
            let status = node
                .status
                .as_ref()
                .and_then(|status| status.allocatable.as_ref());
            available.add(&Resources::from_quantities_lossy(status));
        });
        let mut used = Resources::new();
        journal.cluster.stores.pods.for_each(|_, pod| {
            if node_name(pod).is_some() && !is_terminal(pod) {
                used.add(&requests(pod));
            }
        });
        #[expect(clippy::cast_precision_loss, reason = "a gauge")]
        self.node_count.set(&[], known.len() as f64);
        self.synced.set(&[], f64::from(u8::from(oldest.is_none())));
        self.unsynced
            .set(&[], oldest.map_or(0.0, |oldest| seconds(oldest, now)));
        self.utilization
            .replace_all(
                available
                    .iter()
                    .filter(|(_, whole)| *whole > 0)
                    .map(|(name, whole)| {
                        let share = 100.0 * amount(name, used.get(name)) / amount(name, whole);
                        (vec![resource_type(name)], share)
                    }),
            );
    }
}

/// The labels of a node that metrics carry, and what they are called there.
fn label_name(key: &str) -> String {
    let name = key.rsplit('/').next().unwrap_or(key);
    metric_label(&name.to_lowercase())
}

/// What gauges of nodes have beside labels of the node.
const OF_NODES: [&str; 4] = ["node_name", "phase", "managed", "resource_type"];

struct Nodes {
    keys: Vec<String>,
    allocatable: Gauge,
    pod_requests: Gauge,
    pod_limits: Gauge,
    daemon_requests: Gauge,
    daemon_limits: Gauge,
    overhead: Gauge,
    lifetime: Gauge,
}

impl Nodes {
    fn new(metrics: &Metrics, further: &[String]) -> Self {
        let mut keys: Vec<String> = labels::WELL_KNOWN.map(str::to_owned).to_vec();
        keys.extend(further.iter().cloned());
        // Of two that have one name the first is shown; a name twice would cost the whole scrape.
        let mut seen: BTreeSet<String> = OF_NODES.map(str::to_owned).into();
        keys.retain(|key| seen.insert(label_name(key)));
        let mut names: Vec<String> = OF_NODES.map(str::to_owned).to_vec();
        names.extend(keys.iter().map(|key| label_name(key)));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let without: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| *name != "resource_type")
            .collect();
        let gauge = |name: &str, help: &str| metrics.gauge(name, help, &names);
        Self {
            allocatable: gauge(
                "karpenter_nodes_allocatable",
                "Node allocatable are the resources allocatable by nodes.",
            ),
            pod_requests: gauge(
                "karpenter_nodes_total_pod_requests",
                "Node total pod requests are the resources requested by pods bound to nodes, including the DaemonSet pods.",
            ),
            pod_limits: gauge(
                "karpenter_nodes_total_pod_limits",
                "Node total pod limits are the resources specified by pod limits, including the DaemonSet pods.",
            ),
            daemon_requests: gauge(
                "karpenter_nodes_total_daemon_requests",
                "Node total daemon requests are the resources requested by DaemonSet pods bound to nodes.",
            ),
            daemon_limits: gauge(
                "karpenter_nodes_total_daemon_limits",
                "Node total daemon limits are the resources specified by DaemonSet pod limits.",
            ),
            overhead: gauge(
                "karpenter_nodes_system_overhead",
                "Node system daemon overhead are the resources reserved for system overhead.",
            ),
            lifetime: metrics.gauge(
                "karpenter_nodes_current_lifetime_seconds",
                "Node age in seconds.",
                &without,
            ),
            keys,
        }
    }

    fn refresh(&self, cluster: &Cluster) {
        let now = cluster.now();
        let nodes = cluster.stores.nodes.snapshot();
        let mut all: [Series; 6] = Default::default();
        let mut ages = Series::new();
        for node in &nodes {
            let name = node.metadata.name.clone().unwrap_or_default();
            let phase = node.status.as_ref().and_then(|status| status.phase.clone());
            let own = node.metadata.labels.clone().unwrap_or_default();
            let managed = own.contains_key(labels::NODE_POOL).to_string();
            let head = vec![name.clone(), phase.unwrap_or_default(), managed];
            let tail: Vec<String> = self
                .keys
                .iter()
                .map(|key| own.get(key).cloned().unwrap_or_default())
                .collect();
            let created = node
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(now, |time| time.0);
            ages.push(([head.clone(), tail.clone()].concat(), seconds(created, now)));
            let pods = cluster.stores.pods_by_node.get(&name);
            for (series, resources) in all.iter_mut().zip(of_node(node, &pods)) {
                series.extend(resources.iter().map(|(resource, value)| {
                    let key = [head.clone(), vec![resource_type(resource)], tail.clone()].concat();
                    (key, amount(resource, value))
                }));
            }
        }
        let gauges = [
            &self.allocatable,
            &self.pod_requests,
            &self.pod_limits,
            &self.daemon_requests,
            &self.daemon_limits,
            &self.overhead,
        ];
        for (gauge, series) in gauges.into_iter().zip(all) {
            gauge.replace_all(series);
        }
        self.lifetime.replace_all(ages);
    }
}

/// Allocatable, pod requests, pod limits, daemon requests, daemon limits, overhead.
fn of_node(node: &Node, pods: &[Arc<Pod>]) -> [Resources; 6] {
    let status = node.status.as_ref();
    let capacity = Resources::from_quantities_lossy(status.and_then(|status| status.capacity.as_ref()));
    let allocatable = Resources::from_quantities_lossy(status.and_then(|status| status.allocatable.as_ref()));
    let mut sums: [Resources; 4] = Default::default();
    for pod in pods.iter().filter(|pod| !is_terminal(pod)) {
        let (asked, bound) = (requests(pod), limits(pod));
        // The totals include DaemonSet pods.
        for first in [Some(0), is_daemon(pod).then_some(2)].into_iter().flatten() {
            sums[first].add(&asked);
            sums[first + 1].add(&bound);
        }
    }
    let overhead = capacity
        .iter()
        .map(|(name, whole)| {
            (
                spokeshave_model::ResourceName::new(name),
                whole - allocatable.get(name),
            )
        })
        .collect();
    let [pod_requests, pod_limits, daemon_requests, daemon_limits] = sums;
    [
        allocatable,
        pod_requests,
        pod_limits,
        daemon_requests,
        daemon_limits,
        overhead,
    ]
}

const POD_LABELS: [&str; 13] = [
    "name",
    "namespace",
    "owner",
    "node",
    "scheduled",
    "nodepool",
    "zone",
    "arch",
    "capacity_type",
    "instance_type",
    "phase",
    "ready",
    "managed",
];

struct Pods {
    state: Gauge,
    unstarted: Gauge,
    unbound: Gauge,
    provisioning_unstarted: Gauge,
    provisioning_unbound: Gauge,
    undecided: Gauge,
}

impl Pods {
    fn new(metrics: &Metrics) -> Self {
        let waiting = |name: &str, help: &str| metrics.gauge(name, help, &["name", "namespace"]);
        Self {
            state: metrics.gauge(
                "karpenter_pods_state",
                "Pod state is the current state of pods.",
                &POD_LABELS,
            ),
            unstarted: waiting(
                "karpenter_pods_unstarted_time_seconds",
                "The time from pod creation until now, while the pod is not ready.",
            ),
            unbound: waiting(
                "karpenter_pods_unbound_time_seconds",
                "The time from pod creation until now, while the pod is not bound.",
            ),
            provisioning_unstarted: waiting(
                "karpenter_pods_provisioning_unstarted_time_seconds",
                "The time since a place for the pod was found, while the pod is not ready.",
            ),
            provisioning_unbound: waiting(
                "karpenter_pods_provisioning_unbound_time_seconds",
                "The time since a place for the pod was found, while the pod is not bound.",
            ),
            undecided: waiting(
                "karpenter_pods_provisioning_scheduling_undecided_time_seconds",
                "The time since the pod was first seen, while nothing was decided about it.",
            ),
        }
    }

    fn refresh(&self, cluster: &Cluster, times: &PodTimes) {
        let mut states = Series::new();
        cluster.stores.pods.for_each(|key, pod| {
            let name = node_name(pod).unwrap_or_default();
            let node = cluster.stores.nodes.get_named(name);
            states.push((pod_values(&key.namespace, pod, name, node.as_deref()), 1.0));
        });
        self.state.replace_all(states);
        let now = cluster.now();
        let waiting = times.waiting();
        let of = |pick: &dyn Fn(&crate::observe::pod_times::Times) -> Option<Timestamp>| -> Series {
            let series = waiting.iter().filter_map(|(namespace, name, times)| {
                let since = pick(times)?;
                Some((vec![name.clone(), namespace.clone()], seconds(since, now)))
            });
            series.collect()
        };
        self.unstarted.replace_all(of(&|times| Some(times.created)));
        self.unbound
            .replace_all(of(&|times| (!times.bound).then_some(times.created)));
        self.provisioning_unstarted
            .replace_all(of(&|times| times.schedulable));
        self.provisioning_unbound
            .replace_all(of(&|times| times.schedulable.filter(|_| !times.bound)));
        self.undecided.replace_all(of(&|times| {
            times
                .acknowledged
                .filter(|_| times.decided.is_none() && !times.bound)
        }));
    }
}

fn pod_values(namespace: &str, pod: &Pod, node: &str, object: Option<&Node>) -> Vec<String> {
    let owner = pod
        .metadata
        .owner_references
        .iter()
        .flatten()
        .next()
        .map(|owner| {
            format!(
                "/apis/{}/namespaces/{namespace}/{}s/{}",
                owner.api_version,
                owner.kind.to_lowercase(),
                owner.name
            )
        });
    let own: BTreeMap<String, String> = object
        .and_then(|node| node.metadata.labels.clone())
        .unwrap_or_default();
    let label = |key: &str| own.get(key).cloned().unwrap_or_default();
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is = |type_: &str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions
            .any(|condition| condition.type_ == type_ && condition.status == "True")
            .to_string()
    };
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
    vec![
        pod.metadata.name.clone().unwrap_or_default(),
        namespace.to_owned(),
        owner.unwrap_or_default(),
        node.to_owned(),
        is("PodScheduled"),
        label(labels::NODE_POOL),
        label(labels::ZONE),
        label(labels::ARCH),
        label(labels::CAPACITY_TYPE),
        label(labels::INSTANCE_TYPE),
        phase.unwrap_or_default(),
        is("Ready"),
        own.contains_key(labels::NODE_POOL).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_16_labels_of_nodes_are_called_by_their_last_part() {
        assert_eq!(label_name("karpenter.sh/capacity-type"), "capacity_type");
        assert_eq!(label_name("node.kubernetes.io/instance-type"), "instance_type");
        assert_eq!(label_name("topology.kubernetes.io/zone"), "zone");
    }

    /// Keys of labels may have what names of labels in metrics may not.
    #[test]
    fn p_16_names_of_labels_are_such_that_a_scrape_can_be_read() {
        for (key, name) in [
            ("example.com/cpu.model", "cpu_model"),
            ("example.com/4k-disks", "_4k_disks"),
            ("example.com/Größe", "gr__e"),
            ("example.com/", "_"),
        ] {
            assert_eq!(label_name(key), name);
        }
    }

    #[test]
    fn p_16_architectures_are_called_as_in_go() {
        assert_eq!(
            ["x86_64", "aarch64", "s390x"].map(goarch),
            ["amd64", "arm64", "s390x"]
        );
    }

    #[test]
    fn p_16_cpu_is_shown_in_cores() {
        assert!((amount("cpu", 1500) - 1.5).abs() < f64::EPSILON);
        assert!((amount("memory", 1024) - 1024.0).abs() < f64::EPSILON);
    }
}
