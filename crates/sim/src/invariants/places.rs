//! A place for every pod of a removed node (8): room, selectors, tolerations, spread and affinity, by the rules of the Kubernetes
//! documentation.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::core::ObjectMeta;

use super::Report;
use super::view::{Node, Pod, View};
use spokeshave_cluster::neighbours::{Neighbours, Placed};
use spokeshave_cluster::rules;

/// 8: as far as machines can tell, the node's pods have room on others that are ready, each on one that its selectors, tolerations, spread
/// and affinity accept. Pods that came after the command count as having come after the room was reserved; in which order pods take their
/// places is the scheduler's.
///
/// Pods that are `kept` stay until the deadline of their node.
pub(super) fn found(
    view: &View,
    leaving: &Node,
    since: Timestamp,
    kept: &dyn Fn(&Pod) -> bool,
    report: &mut Report,
) {
    let targets: Vec<&Node> = view
        .nodes
        .values()
        .map(|node| &**node)
        .filter(|node| {
            node.name != leaving.name
                && node.ready
                && !node.unschedulable
                && node.deletion.is_none()
                && node.disrupted_since.is_none()
                && (node.is_initialized() || !node.labels.contains_key(super::view::POOL))
        })
        .collect();
    let (mut wanted, mut free): (BTreeMap<&str, i128>, BTreeMap<&str, i128>) = Default::default();
    let moving: Vec<&Pod> = view
        .pods_on(&leaving.name)
        .map(|pod| &**pod)
        // What protects itself is not evicted before the deadline of its node.
        .filter(|pod| pod.protected_since(view.now).is_none())
        .filter(|pod| !kept(pod))
        .filter(|pod| pod.moves() && pod.bound.is_some_and(|bound| bound < since))
        .collect();
    let rules = Rules::new(view, &targets, &leaving.name, since);
    for pod in &moving {
        for resource in ["cpu", "memory"] {
            *wanted.entry(resource).or_default() += pod.shape.requests.get(resource).copied().unwrap_or(0);
        }
        let fits = targets.iter().any(|node| {
            ["cpu", "memory"].iter().all(|resource| {
                pod.shape.requests.get(*resource).copied().unwrap_or(0)
                    <= node.allocatable.get(*resource).copied().unwrap_or(0)
            }) && accepts(pod, node)
        });
        let fits = fits && rules.accepts(pod, &moving, &targets);
        if !fits {
            report.fail(
                8,
                format!("node {}", leaving.name),
                format!(
                    "goes although pod {}/{} could be on no other node that is ready",
                    pod.key.0, pod.key.1
                ),
            );
            return;
        }
    }
    for node in &targets {
        for resource in ["cpu", "memory"] {
            let used: i128 = view
                .pods_on(&node.name)
                .filter(|pod| !pod.has_ended())
                // With a stalled watch, operators use the last known state; the scheduler decides.
                .filter(|pod| {
                    pod.bound
                        .is_some_and(|bound| bound < since && view.is_known(bound))
                })
                .map(|pod| pod.shape.requests.get(resource).copied().unwrap_or(0))
                .sum();
            let room = node.allocatable.get(resource).copied().unwrap_or(0) - used;
            *free.entry(resource).or_default() += room.max(0);
        }
    }
    for (resource, wanted) in wanted {
        let free = free.get(resource).copied().unwrap_or(0);
        if wanted > free {
            report.fail(
                8,
                format!("node {}", leaving.name),
                format!(
                    "goes with {wanted} thousandths of {resource} on it, and the ready nodes have {free} free"
                ),
            );
        }
    }
}

/// The pods that stay, as neighbours of those that move.
struct Rules {
    placed: Vec<Placed>,
    shy: Vec<Placed>,
    nodes: BTreeMap<String, Arc<core::Node>>,
    /// Whether a pod was removed since the decision, or another node is being removed: then the decision had other inputs.
    changed: bool,
}

impl Rules {
    fn new(view: &View, targets: &[&Node], leaving: &str, since: Timestamp) -> Self {
        let nodes: BTreeMap<String, Arc<core::Node>> = view
            .nodes
            .values()
            .filter(|node| node.name != leaving)
            .map(|node| (node.name.clone(), Arc::new(as_node(node))))
            .collect();
        let stays = view.pods.values().filter(|pod| {
            pod.deletion.is_none() && !pod.has_ended() && pod.bound.is_some_and(|bound| bound < since)
        });
        let placed: Vec<Placed> = stays
            .filter_map(|pod| Some((Arc::new(as_pod(pod)), nodes.get(&pod.node)?.clone())))
            .collect();
        let shy = placed.iter().filter(|(pod, _)| {
            let spec = pod.spec.as_ref();
            spec.is_some_and(|spec| !rules::required_anti_affinity(spec).is_empty())
        });
        Self {
            shy: shy.cloned().collect(),
            changed: targets
                .iter()
                .any(|node| view.has_lost_pods_since(&node.name, since))
                || view.nodes.values().any(|node| {
                    node.name != leaving && (node.deletion.is_some() || node.disrupted_since.is_some())
                }),
            placed,
            nodes,
        }
    }

    /// Whether some target's neighbourhood accepts a pod. One that a rule ties to another pod of its own node is left to the scheduler:
    /// where it may run depends on the other pod.
    fn accepts(&self, pod: &Pod, moving: &[&Pod], targets: &[&Node]) -> bool {
        let spec = &pod.shape.spec;
        let free = spec.topology_spread_constraints.is_none()
            && rules::required_affinity(spec).is_empty()
            && rules::required_anti_affinity(spec).is_empty();
        let tied = !free
            && moving
                .iter()
                .any(|other| other.uid != pod.uid && other.labels == pod.labels);
        if self.changed || tied || free && self.shy.is_empty() {
            return true;
        }
        let nodes: Vec<&core::Node> = self.nodes.values().map(|node| &**node).collect();
        let neighbours = Neighbours::new(
            &as_pod(pod),
            spec,
            &nodes,
            &self.placed,
            &self.shy,
            &BTreeMap::new(),
        );
        targets.iter().any(|target| {
            accepts(pod, target)
                && self
                    .nodes
                    .get(&target.name)
                    .is_some_and(|node| neighbours.refusal(node).is_none())
        })
    }
}

fn as_pod(pod: &Pod) -> core::Pod {
    core::Pod {
        metadata: ObjectMeta {
            namespace: Some(pod.key.0.clone()),
            name: Some(pod.key.1.clone()),
            labels: Some(pod.labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(pod.shape.spec.clone()),
        status: None,
    }
}

fn as_node(node: &Node) -> core::Node {
    let taint = |(key, value, effect): &(String, String, String)| core::Taint {
        key: key.clone(),
        value: Some(value.clone()),
        effect: effect.clone(),
        ..core::Taint::default()
    };
    core::Node {
        metadata: ObjectMeta {
            name: Some(node.name.clone()),
            labels: Some(node.labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(core::NodeSpec {
            taints: Some(node.taints.iter().map(taint).collect()),
            ..core::NodeSpec::default()
        }),
        status: None,
    }
}

/// Selectors, node affinity and taints.
fn accepts(pod: &Pod, node: &Node) -> bool {
    let object = as_node(node);
    rules::accepts_node(&pod.shape.spec, &object)
        && rules::untolerated(&pod.shape.spec, &object, &["NoSchedule", "NoExecute"]).is_none()
}
