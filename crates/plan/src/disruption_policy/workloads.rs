//! Quiet time for workloads: how long a pod rests after it has come, how many pods of a workload move within a day, in which windows, and one member
//! of a StatefulSet at a time (invariants 18 and 28).
//!
//! Users ask for it by annotation on pods, their owners and namespaces; a policy says where it is heard, and how much may be asked. A pod that was
//! moved is a new pod, so that its creation says when it moved; how many moved follows from the ledger. Nothing is remembered besides.

use super::annotations::{Notes, Wishes};
use super::convergence::DAY;
use super::limits::{Left, Limit, Rule, Weights};
use super::rules::{Scene, rule};
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::disruption::{DisruptedNode, Disruption, MovedWorkload};
use spokeshave_api::disruption_policy::{StatefulSetMoves, WorkloadRules, WorkloadsStatus};
use spokeshave_api::labels as api_labels;
use spokeshave_model::pod;
use spokeshave_model::snapshot::{BudgetId, NodeId, NodeView, PodView, Snapshot};
use spokeshave_model::{Ordinals, Pod};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const FIELD: &str = "spec.workloads";
/// Faults that a status names; there may be as many as pods.
const NAMED_FAULTS: usize = 20;

/// What workloads leave of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Workloads {
    /// Nodes with a pod that rests, by position: of several the one that rests longest.
    resting: BTreeMap<usize, Arc<Rule>>,
    /// What each node holds of those that are counted: position in `counted`, and how many pods.
    on: BTreeMap<usize, Vec<(usize, i64)>>,
    counted: Vec<Counted>,
}

/// A workload of which only so many pods may move.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    rule: Arc<Rule>,
    left: i64,
    /// Nothing was taken: one node may go that holds more than is left.
    is_unused: bool,
}

impl Workloads {
    /// What keeps a node.
    pub(super) fn blocker(&self, node: NodeId) -> Option<&Rule> {
        let counted = self.on.get(&node.index()).into_iter().flatten();
        let full = counted.filter_map(|(index, pods)| {
            let one = &self.counted[*index];
            let fits = one.left > 0 && (*pods <= one.left || one.is_unused);
            (!fits).then_some(&*one.rule)
        });
        let resting = self.resting.get(&node.index()).map(|rule| &**rule);
        resting
            .into_iter()
            .chain(full)
            .max_by_key(|rule| rule.until.unwrap_or(Timestamp::MAX))
    }

    /// Takes what a node holds.
    pub(super) fn take(&mut self, node: NodeId) {
        for (index, pods) in self.on.get(&node.index()).into_iter().flatten() {
            let one = &mut self.counted[*index];
            one.left -= pods;
            one.is_unused = false;
        }
    }
}

/// The workload of a pod: its Deployment, StatefulSet, Job and so on, else itself; `Deployment/shop/web`.
pub fn workload(pod: &PodView) -> String {
    workload_of(&pod.object)
}

/// The same of a pod that is in no snapshot.
pub fn workload_of(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let mut owners = meta.owner_references.iter().flatten();
    let Some(owner) = owners.find(|owner| owner.controller == Some(true)) else {
        return format!("Pod/{namespace}/{}", meta.name.as_deref().unwrap_or_default());
    };
    let deployment = deployment_of(pod, &owner.kind, &owner.name);
    match deployment {
        Some(name) => format!("Deployment/{namespace}/{name}"),
        None => format!("{}/{namespace}/{}", owner.kind, owner.name),
    }
}

/// The Deployment of a ReplicaSet: its name goes before the hash that its pods are labelled with.
pub(super) fn deployment_of<'a>(pod: &Pod, kind: &str, name: &'a str) -> Option<&'a str> {
    let labels = pod.metadata.labels.as_ref()?;
    let hash = labels.get("pod-template-hash").filter(|_| kind == "ReplicaSet")?;
    name.strip_suffix(hash.as_str())?.strip_suffix('-')
}

fn is_moved(pod: &PodView) -> bool {
    pod.reschedulable && pod.active && !pod.is_virtual
}

/// Adds what workloads leave.
pub(super) fn add(scene: &Scene<'_>, rules: &WorkloadRules, limits: &mut Vec<Limit>) {
    let mut workloads = Workloads::default();
    let notes = Notes::new(scene.snapshot, scene.policy, rules, scene.now);
    if !notes.is_empty() {
        let mut quotas: BTreeMap<String, (i64, String)> = BTreeMap::new();
        let mut held: BTreeMap<usize, BTreeMap<String, i64>> = BTreeMap::new();
        for node in scene.snapshot.node_ids().filter(|node| scene.covers(*node)) {
            for pod in &scene.snapshot.node(node).pods {
                let pod = scene.snapshot.pod(*pod);
                if !is_moved(pod) {
                    continue;
                }
                let wishes = notes.of(pod);
                rest(scene, node, pod, &wishes, &mut workloads);
                if let Some(quota) = wishes.quota {
                    let name = workload(pod);
                    *held
                        .entry(node.index())
                        .or_default()
                        .entry(name.clone())
                        .or_default() += 1;
                    // The nearest annotation of any of its pods; of several the strictest.
                    let known = quotas.entry(name).or_insert_with(|| quota.clone());
                    if quota.0 < known.0 {
                        *known = quota;
                    }
                }
            }
        }
        add_quotas(scene, &quotas, &held, &mut workloads);
    }
    if rules.stateful_sets == Some(StatefulSetMoves::OneAtATime) {
        add_sets(scene, &mut workloads);
    }
    if workloads != Workloads::default() {
        limits.push(Limit {
            rule: rule(scene, FIELD, "pods rest", Weights::None).into(),
            left: Left::Workloads(workloads.into()),
        });
    }
}

fn said(scene: &Scene<'_>, message: String, until: Option<Timestamp>) -> Rule {
    Rule {
        policy: scene.policy.name().to_owned(),
        field: FIELD.to_owned(),
        domain: None,
        message,
        since: None,
        until,
        weights: Weights::None,
        within: None,
        details: BTreeMap::new(),
    }
}

/// A pod that came too lately, or whose windows are shut.
fn rest(scene: &Scene<'_>, node: NodeId, pod: &PodView, wishes: &Wishes, workloads: &mut Workloads) {
    let Some((until, why)) = &wishes.rests else { return };
    let known = workloads.resting.get(&node.index()).and_then(|rule| rule.until);
    if known.is_none_or(|known| known < *until) {
        let message = format!("pod {} {why}", pod.key());
        let rule = said(scene, message, Some(*until));
        workloads.resting.insert(node.index(), rule.into());
    }
}

/// Commands of the last day that were not taken back, with their nodes other than those that are looked at.
fn moved_lately<'a>(scene: &'a Scene<'_>) -> impl Iterator<Item = (&'a DisruptedNode, Timestamp)> + 'a {
    let recent = scene
        .snapshot
        .disruptions
        .iter()
        .filter(move |one| one.is_counted() && scene.now.duration_since(one.spec.decided_at.0) < DAY);
    recent.flat_map(move |one| {
        let nodes = one.spec.nodes.iter();
        nodes
            .filter(|node| !scene.own.contains(node.provider_id.as_str()))
            .map(|node| (node, one.spec.decided_at.0))
    })
}

fn add_quotas(
    scene: &Scene<'_>,
    quotas: &BTreeMap<String, (i64, String)>,
    held: &BTreeMap<usize, BTreeMap<String, i64>>,
    workloads: &mut Workloads,
) {
    let mut used: BTreeMap<&str, (i64, Timestamp)> = BTreeMap::new();
    let mut written: BTreeSet<&str> = BTreeSet::new();
    for (node, at) in moved_lately(scene) {
        written.insert(&node.provider_id);
        for one in &node.workloads {
            let (sum, first) = used.entry(&one.name).or_insert((0, at));
            *sum += one.pods;
            *first = (*first).min(at);
        }
    }
    // Commands that are decided and not written down yet.
    for (index, on) in held {
        let view = &scene.snapshot.nodes[*index];
        let id = view.provider_id.as_str();
        if view.in_command && !scene.own.contains(id) && !written.contains(id) {
            for (name, pods) in on {
                used.entry(name).or_insert((0, scene.now)).0 += pods;
            }
        }
    }
    let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, (quota, source)) in quotas {
        let (sum, first) = used.get(name.as_str()).copied().unwrap_or((0, scene.now));
        let until = first.saturating_add(DAY).unwrap_or(Timestamp::MAX);
        let message = format!("{quota} pods of {name} may move within a day, and {sum} have ({source})");
        positions.insert(name, workloads.counted.len());
        workloads.counted.push(Counted {
            rule: said(scene, message, (sum > 0).then_some(until)).into(),
            left: quota - sum,
            is_unused: sum == 0,
        });
    }
    for (node, on) in held {
        let counted = on.iter().map(|(name, pods)| (positions[name.as_str()], *pods));
        workloads.on.entry(*node).or_default().extend(counted);
    }
}

/// One StatefulSet with where its members are.
#[derive(Default)]
struct Members {
    nodes: BTreeMap<usize, Shared>,
    ordinals: BTreeSet<u64>,
    /// A member that is not there, not Ready, or on its way.
    busy: Option<String>,
}

/// Members of one StatefulSet on one node.
#[derive(Default)]
struct Shared {
    members: usize,
    /// PodDisruptionBudgets that select all of them and never let more than one be away: they go one after the other where there is such a budget.
    turns: Vec<BudgetId>,
}

impl Shared {
    fn add(&mut self, snapshot: &Snapshot, pod: &PodView) {
        // What it allows now may be more as soon as another pod has recovered, and is more while there are pods too many.
        let is_strict = |budget: &&BudgetId| {
            let budget = &snapshot.budgets[budget.index()];
            budget.disruptions_allowed <= 1 && budget.most_away.is_some_and(|most| most <= 1)
        };
        if self.members == 0 {
            self.turns = pod.budgets().iter().filter(is_strict).copied().collect();
        } else {
            self.turns.retain(|budget| pod.budgets().contains(budget));
        }
        self.members += 1;
    }

    /// All of them would be evicted at once.
    fn go_together(&self) -> bool {
        self.members > 1 && self.turns.is_empty()
    }
}

impl Members {
    /// Whether none is missing, by what the StatefulSet wants where that is known, and else by those that are there: of these, one between others.
    fn are_whole(&self, wanted: Option<&Ordinals>) -> bool {
        if let Some(wanted) = wanted {
            return wanted.are_among(&self.ordinals);
        }
        let ends = self.ordinals.first().zip(self.ordinals.last());
        let span = ends.map_or(0, |(first, last)| (last - first).saturating_add(1));
        span == self.ordinals.len() as u64
    }
}

/// Invariant 28: while a member is on its way, not Ready or not there, no other is moved, and of several on one node none, unless they go one after the other.
fn add_sets(scene: &Scene<'_>, workloads: &mut Workloads) {
    let mut sets: BTreeMap<String, Members> = BTreeMap::new();
    for view in scene
        .snapshot
        .pods
        .iter()
        .filter(|pod| !pod.is_virtual && !pod.terminal)
    {
        let name = workload(view);
        if !name.starts_with("StatefulSet/") {
            continue;
        }
        let members = sets.entry(name).or_default();
        let meta = &view.object.metadata;
        let ordinal: Option<u64> = meta
            .name
            .as_deref()
            .and_then(|name| name.rsplit('-').next()?.parse().ok());
        members.ordinals.extend(ordinal);
        let node = view.node.map(|node| (node, scene.snapshot.node(node)));
        if let Some(why) = why_busy(scene, view, node.map(|(_, view)| view)) {
            members.busy.get_or_insert(format!("pod {} {why}", view.key()));
        }
        if let Some((node, _)) = node {
            members
                .nodes
                .entry(node.index())
                .or_default()
                .add(scene.snapshot, view);
        }
    }
    let mut add = |message: String, left: i64, nodes: Vec<usize>| {
        let index = workloads.counted.len();
        workloads.counted.push(Counted {
            rule: said(scene, message, None).into(),
            left,
            is_unused: true,
        });
        for node in nodes {
            workloads.on.entry(node).or_default().push((index, 1));
        }
    };
    for (name, members) in sets {
        let is_whole = members.are_whole(scene.snapshot.stateful_sets.get(&name));
        let busy = members
            .busy
            .or_else(|| (!is_whole).then(|| "a member is not there".to_owned()));
        let together: Vec<usize> = members
            .nodes
            .iter()
            .filter_map(|(node, shared)| shared.go_together().then_some(*node))
            .collect();
        let now = busy.as_deref().unwrap_or("another is chosen");
        let message = format!("one member of {name} at a time, and {now}");
        let nodes = members.nodes.into_keys().collect();
        add(message, i64::from(busy.is_none()), nodes);
        if !together.is_empty() {
            let message = format!(
                "one member of {name} at a time, and several are on this node, without a PodDisruptionBudget that lets them go one by one"
            );
            add(message, 0, together);
        }
    }
}

fn why_busy(scene: &Scene<'_>, view: &PodView, node: Option<&NodeView>) -> Option<&'static str> {
    let Some(node) = node else {
        return Some("has no node");
    };
    let in_other = node.in_command && !scene.own.contains(node.provider_id.as_str());
    if view.object.metadata.deletion_timestamp.is_some() || node.marked_for_deletion || in_other {
        return Some("is on its way");
    }
    (!pod::is_ready(&view.object)).then_some("is not Ready")
}

/// What the ledger has to know of a node that goes: pods of workloads with a quota, by workload. Empty where no policy hears them.
pub fn moved(snapshot: &Snapshot, node: &NodeView, now: Timestamp) -> Vec<MovedWorkload> {
    let mut moved: BTreeMap<String, i64> = BTreeMap::new();
    for policy in &snapshot.disruption_policies {
        let Some(rules) = &policy.spec.workloads else {
            continue;
        };
        let notes = Notes::new(snapshot, policy, rules, now);
        for pod in node.pods.iter().map(|pod| snapshot.pod(*pod)) {
            if is_moved(pod) && notes.of(pod).quota.is_some() {
                *moved.entry(workload(pod)).or_default() += 1;
            }
        }
        if !moved.is_empty() {
            break;
        }
    }
    let entries = moved.into_iter();
    entries.map(|(name, pods)| MovedWorkload { name, pods }).collect()
}

/// How many pods rest now, and which annotations cannot be read, on nodes that the policy covers.
pub(super) fn status(scene: &Scene<'_>) -> Option<WorkloadsStatus> {
    let rules = scene.policy.spec.workloads.as_ref()?;
    let notes = Notes::new(scene.snapshot, scene.policy, rules, scene.now);
    let mut status = WorkloadsStatus::default();
    let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
    let mut faults: BTreeSet<String> = BTreeSet::new();
    if notes.is_empty() {
        return Some(status);
    }
    let is_there = |node: &NodeId| scene.covers(*node) && !scene.snapshot.node(*node).is_stand_in();
    for pod in scene.snapshot.pods.iter().filter(|pod| is_moved(pod)) {
        let Some(node) = pod.node.filter(is_there) else {
            continue;
        };
        let wishes = notes.of(pod);
        if wishes.rests.is_some() {
            status.resting_pods += 1;
            nodes.insert(node);
        }
        faults.extend(wishes.faults);
    }
    status.resting_nodes = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
    status.faults = faults.into_iter().take(NAMED_FAULTS).collect();
    Some(status)
}

/// Whether a command of the ledger still counts for some quota or rate, so that it has to be kept.
pub(super) fn still_counts(one: &Disruption, now: Timestamp) -> bool {
    let age = now.duration_since(one.spec.decided_at.0);
    let has_workloads = one.spec.nodes.iter().any(|node| !node.workloads.is_empty());
    age < SignedDuration::from_hours(1) || (has_workloads && age < DAY)
}

/// The annotations that are read.
pub(super) const READ: [&str; 3] = [
    api_labels::QUIET_TIME,
    api_labels::MOVES_PER_DAY,
    api_labels::MOVE_WINDOWS,
];
