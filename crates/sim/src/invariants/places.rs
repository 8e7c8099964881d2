//! A place for every pod of the nodes that a command removes (8): room, selectors, tolerations, spread and affinity, by the rules of the Kubernetes
//! documentation.
//!
//! Owns what contradicts a plan beyond doubt. Which pod goes where is not tried out: what is compared can only be too kind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::core::ObjectMeta;

use super::Report;
use super::view::{DISRUPTED, Node, POOL, Pod, RECENT, View, later, tainted};
use spokeshave_cluster::neighbours::{Neighbours, Placed};
use spokeshave_cluster::rules;

/// What pods take of a node, and what they are told to be short of.
const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];

/// Thousandths of each of the [`RESOURCES`].
type Room = [i128; RESOURCES.len()];

/// A node that goes for a command.
pub(super) struct Leaving<'a> {
    pub(super) node: &'a Node,
    /// Its pods that need another place.
    pub(super) pods: Vec<&'a Pod>,
    /// When it was tainted.
    pub(super) since: Timestamp,
    /// Up to when operators must have known then what was written.
    pub(super) known_until: Timestamp,
}

/// 8: as far as machines can tell, the node's pods have room on others that are ready, each on one that its selectors, tolerations, spread
/// and affinity accept; and together with those of `others`, which go for the same command, they have it as well. Pods that came after the command count as
/// having come after the room was reserved; in which order pods take their places is the scheduler's.
pub(super) fn found(view: &View, leaving: &Leaving<'_>, others: &[Leaving<'_>], report: &mut Report) {
    let all: Vec<&Leaving<'_>> = std::iter::once(leaving).chain(others).collect();
    let names: BTreeSet<&str> = all.iter().map(|one| one.node.name.as_str()).collect();
    let stays = |node: &&Node| !names.contains(node.name.as_str());
    let nodes = || view.nodes.values().map(|node| &**node).filter(stays);
    let targets: Vec<&Node> = nodes().filter(|node| is_target(node)).collect();
    let moving: Vec<&Pod> = all.iter().flat_map(|one| one.pods.iter().copied()).collect();
    let rules = Rules::new(view, &targets, &names, leaving.since);
    let nowhere = leaving.pods.iter().find(|pod| {
        let fits = targets
            .iter()
            .any(|node| holds(&allocatable(node), &wanted(pod)) && rules.selects(pod, node));
        !(fits && rules.accepts(pod, &moving, &targets))
    });
    let text = if let Some(pod) = nowhere {
        let (namespace, name) = &pod.key;
        Some(format!(
            "goes although pod {namespace}/{name} could be on no other node that is ready"
        ))
    } else {
        // What has befallen a node in the last moments whoever counted on its room did not know.
        let ended = view
            .ended_nodes
            .iter()
            .filter(|(_, at)| later(*at, RECENT) >= view.now)
            .map(|(node, _)| &**node)
            .filter(stays);
        let takers = nodes().filter(|node| may_be_target(view, node)).chain(ended);
        let known_until = others.iter().map(|one| one.known_until);
        let known_until = known_until.fold(leaving.known_until, Timestamp::min);
        let free = takers.map(|node| (before_that(node), left(view, node, known_until)));
        short_of_room(&moving, &free.collect::<Vec<_>>())
    };
    if let Some(text) = text {
        report.fail(8, format!("node {}", leaving.node.name), text);
    }
}

fn is_initialized(node: &Node) -> bool {
    node.is_initialized() || !node.labels.contains_key(POOL)
}

fn is_target(node: &Node) -> bool {
    node.ready
        && node.unschedulable_since.is_none()
        && node.deletion.is_none()
        && node.disrupted_since.is_none()
        && is_initialized(node)
}

/// Whether it is one, or was until a moment ago and ceased to be one by another hand. Whoever chooses a node for a command knows that; the taint of one that is
/// being deleted follows from that.
fn may_be_target(view: &View, node: &Node) -> bool {
    let lately = |since: Option<Timestamp>| since.is_none_or(|since| view.is_news(since));
    let is_chosen = node.disrupted_since.is_some() && node.deletion.is_none();
    (node.ready || view.is_news(node.ready_changed))
        && lately(node.unschedulable_since)
        && lately(node.deletion)
        && !is_chosen
        && is_initialized(node)
}

/// Why these pods cannot all have room on these nodes. A pod needs it on one node, and those that can only be on some nodes have no more than there is on them.
fn short_of_room(moving: &[&Pod], free: &[(core::Node, Room)]) -> Option<String> {
    // Pods of one spec go to the same nodes: they are summed up before these are compared.
    let mut places: Vec<(&Pod, BTreeSet<usize>, Room)> = Vec::new();
    for &pod in moving {
        let mut known = places.iter_mut();
        if let Some((_, _, sum)) = known.find(|(known, ..)| known.shape.spec == pod.shape.spec) {
            add(sum, &wanted(pod));
            continue;
        }
        let nodes = free.iter().enumerate();
        let own: BTreeSet<usize> = nodes
            .filter(|(_, (node, room))| holds(room, &wanted(pod)) && accepts(pod, node))
            .map(|(index, _)| index)
            .collect();
        if own.is_empty() {
            let (namespace, name) = &pod.key;
            return Some(format!(
                "goes although pod {namespace}/{name} has room on none of {} nodes that are ready",
                free.len()
            ));
        }
        places.push((pod, own, wanted(pod)));
    }
    let mut sums: BTreeMap<&BTreeSet<usize>, Room> = BTreeMap::new();
    for (_, own, sum) in &places {
        add(sums.entry(own).or_default(), sum);
    }
    sums.keys().find_map(|own| {
        let (mut needed, mut there) = (Room::default(), Room::default());
        for (_, sum) in sums.iter().filter(|(other, _)| other.is_subset(own)) {
            add(&mut needed, sum);
        }
        for index in *own {
            add(&mut there, &free[*index].1);
        }
        let short = (0..RESOURCES.len()).find(|index| needed[*index] > there[*index])?;
        Some(format!(
            "goes with others of its command, if any: their pods need {} thousandths of {} on {} nodes that are ready, which have {} free",
            needed[short],
            RESOURCES[short],
            own.len(),
            there[short]
        ))
    })
}

fn add(sum: &mut Room, more: &Room) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

fn holds(room: &Room, wanted: &Room) -> bool {
    room.iter().zip(wanted).all(|(room, wanted)| wanted <= room)
}

fn wanted(pod: &Pod) -> Room {
    RESOURCES.map(|resource| match resource {
        "pods" => 1000,
        _ => pod.shape.requests.get(resource).copied().unwrap_or(0),
    })
}

/// A node that does not say how many pods it takes takes any number.
fn allocatable(node: &Node) -> Room {
    RESOURCES.map(|resource| {
        let unsaid = if resource == "pods" {
            i128::from(i64::MAX)
        } else {
            0
        };
        node.allocatable.get(resource).copied().unwrap_or(unsaid)
    })
}

/// What pods leave of a node that operators must have known to be there. Pods that are on their way out take nothing: whoever counts on them counts on less.
fn left(view: &View, node: &Node, known_until: Timestamp) -> Room {
    let stays = view.pods_on(&node.name).filter(|pod| {
        let is_known = pod.bound.is_some_and(|bound| bound <= known_until);
        is_known && !pod.has_ended() && pod.deletion.is_none()
    });
    let mut room = allocatable(node);
    for pod in stays {
        for (room, taken) in room.iter_mut().zip(wanted(pod)) {
            *room -= taken;
        }
    }
    room.map(|room| room.max(0))
}

/// The pods that stay, as neighbours of those that move.
struct Rules {
    placed: Vec<Placed>,
    shy: Vec<Placed>,
    nodes: BTreeMap<String, Arc<core::Node>>,
    /// Whether a pod was removed since the decision, or a node that is not of the same command is being removed or, if that takes several, has come: then the
    /// decision had other inputs.
    changed: bool,
}

impl Rules {
    fn new(view: &View, targets: &[&Node], leaving: &BTreeSet<&str>, since: Timestamp) -> Self {
        let nodes: BTreeMap<String, Arc<core::Node>> = view
            .nodes
            .values()
            .filter(|node| !leaving.contains(node.name.as_str()))
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
                    let goes = node.deletion.is_some() || node.disrupted_since.is_some();
                    let comes = leaving.len() > 1 && node.created >= since;
                    !leaving.contains(node.name.as_str()) && (goes || comes)
                }),
            placed,
            nodes,
        }
    }

    /// Whether some target's neighbourhood accepts a pod. One that a rule ties to another pod that moves is left to the scheduler: where it may run
    /// depends on the other pod.
    fn accepts(&self, pod: &Pod, moving: &[&Pod], targets: &[&Node]) -> bool {
        let spec = &pod.shape.spec;
        let follows = !rules::required_affinity(spec).is_empty();
        let free = !follows
            && spec.topology_spread_constraints.is_none()
            && rules::required_anti_affinity(spec).is_empty();
        let tied = !free
            && moving
                .iter()
                .any(|other| other.uid != pod.uid && (follows || other.labels == pod.labels));
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
            let node = self.nodes.get(&target.name);
            node.is_some_and(|node| accepts(pod, node) && neighbours.refusal(node).is_none())
        })
    }

    /// Whether a node accepts a pod, whoever its neighbours are.
    fn selects(&self, pod: &Pod, node: &Node) -> bool {
        let node = self.nodes.get(&node.name);
        node.is_some_and(|node| accepts(pod, node))
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
    core::Node {
        metadata: ObjectMeta {
            name: Some(node.name.clone()),
            labels: Some(node.labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(tainted(&node.taints)),
        status: None,
    }
}

/// Without the taints that follow from what has just befallen it.
fn before_that(node: &Node) -> core::Node {
    let mut object = as_node(node);
    let taints = object.spec.as_mut().and_then(|spec| spec.taints.as_mut());
    if let Some(taints) = taints {
        taints.retain(|taint| !taint.key.starts_with("node.kubernetes.io/") && taint.key != DISRUPTED);
    }
    object
}

/// Selectors, node affinity and taints.
fn accepts(pod: &Pod, node: &core::Node) -> bool {
    rules::accepts_node(&pod.shape.spec, node)
        && rules::untolerated(&pod.shape.spec, node, &["NoSchedule", "NoExecute"]).is_none()
}
