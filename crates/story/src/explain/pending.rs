//! Why a pod has no node, counted per node and NodePool, and what would help.

use std::collections::BTreeMap;

use spokeshave_model::constraints::PodProblem;
use spokeshave_model::derivation::Blocker;
use spokeshave_model::reason::{FilterFailure, Obstacle, PoolRefusal, Reason, TopologyKind};
use spokeshave_model::scheduler_profiles::SchedulerProfile;
use spokeshave_model::snapshot::{NodeId, PodId, PodView, PoolId, Snapshot};
use spokeshave_model::{Requirements, Resources, planned_node, taint};

use super::facts::requested;
use super::{Facts, Story, Wait, age, count};
use crate::doctor::is_unjudged;
use crate::replicas::takes_no_part;
use spokeshave_plan::Provisioned;
use spokeshave_plan::report::{planned_launch, some_of};
use spokeshave_plan::standing::{asked_pools, unknown_resources};

/// Why no node is planned for a pod of a DaemonSet.
pub const DAEMONS_GET_NO_NODES: &str = "pods of DaemonSets get no nodes of their own";

/// Why none is planned for a static pod.
pub const STATIC_PODS_GET_NO_NODES: &str = "static pods run where their kubelet is, and get no nodes";

/// Where a pod without a node will run, or why nowhere.
pub(super) fn tell(facts: &Facts<'_>, id: PodId, provisioned: &Provisioned, story: &mut Story) {
    let view = facts.snapshot.pod(id);
    if view.terminal {
        story.summary = "has finished".to_owned();
        return;
    }
    if let Some((_, problem)) = provisioned.ignored.iter().find(|(pod, _)| *pod == id) {
        story.summary = match problem {
            PodProblem::Volume(_) => "has no node: its volumes cannot be used as they are".to_owned(),
            _ => "is not considered until it is changed".to_owned(),
        };
        story.waits.push(wait("Pod", problem.to_string()));
        return;
    }
    if let Some(node) = view.node.filter(|_| view.promised) {
        let node = &facts.snapshot.node(node).name;
        story.summary =
            format!("is expected on {node}; kube-scheduler makes room there, or is about to bind it");
        let message =
            "has nominated the node for it, which is kept for that, for a quarter of an hour at most";
        story.waits.push(wait("kube-scheduler", message.to_owned()));
        return;
    }
    if !view.provisionable {
        story
            .waits
            .push(wait("kube-scheduler", not_provisionable(facts, id)));
        if view.daemon {
            of_daemon(view, story);
        } else if view.mirror {
            story.summary = format!("has no node yet: {STATIC_PODS_GET_NO_NODES}");
        } else {
            story.summary = "is not reported unschedulable, so no node is planned for it".to_owned();
        }
        return;
    }
    if let Some(node) = planned_node::nominated_by_others(&view.object) {
        let message =
            format!("names node {node}, which is not there or on its way out: that is of no account");
        story.waits.push(wait("Pod", message));
    }
    let planned = provisioned
        .placements
        .claims
        .iter()
        .find(|claim| claim.pods.contains(&id));
    if let Some(claim) = planned {
        let pool = facts.snapshot.pool(claim.pool);
        story.summary = match is_unjudged(&pool.object) {
            true => format!(
                "waits for a node, and no operator has judged NodePool {} yet: it is launched once one does",
                pool.name
            ),
            false => "waits for a node that is about to be launched".to_owned(),
        };
        story.next(None, planned_launch(facts.snapshot, claim).to_string());
        return;
    }
    let existing = provisioned
        .placements
        .existing
        .iter()
        .find(|(_, pods)| pods.contains(&id));
    if let Some((node, _)) = existing {
        let node = facts.snapshot.node(*node);
        story.summary = format!(
            "has room on {}; kube-scheduler is expected to bind it there",
            node.name
        );
        if !node.initialized {
            story.next(None, format!("{} becomes initialised", node.name));
        }
        return;
    }
    no_place(facts, id, provisioned, story);
}

/// A pod of a DaemonSet, for which no node is planned.
fn of_daemon(view: &PodView, story: &mut Story) {
    let status = view.object.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    // It may have room, and nobody has looked yet; or scheduling gates hold it.
    let is_refused = conditions.unwrap_or_default().iter().any(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    });
    let waits = if is_refused {
        "waits for room on its node"
    } else {
        "has no node yet"
    };
    story.summary = format!("{waits}: {DAEMONS_GET_NO_NODES}");
    if is_refused {
        let hint = "larger instance types in the NodePool of its node, or a higher priority (priorityClassName: system-node-critical)";
        push_hint(story, Some(hint.to_owned()));
    }
}

/// How many NodePools are listed individually if the pod selects none of them; of more only the number is shown.
const FEW_POOLS: usize = 5;

/// Names that are shown as examples in a count of NodePools.
const NAMES: usize = 3;

fn no_place(facts: &Facts<'_>, id: PodId, provisioned: &Provisioned, story: &mut Story) {
    let snapshot = facts.snapshot;
    let unplaced = provisioned
        .unschedulable
        .iter()
        .find(|unplaced| unplaced.pod == id);
    let reason = unplaced.map(|unplaced| &*unplaced.reason);
    let asked = asked_pools(snapshot, id);
    let minimal = in_the_way(facts, id, provisioned);
    for blocker in &minimal {
        push_hint(story, Some(way_out(snapshot, id, blocker)));
    }
    let none: &[PoolRefusal] = &[];
    let refusals = match reason {
        Some(Reason::Pools(refusals)) => refusals.as_slice(),
        _ => none,
    };
    let mut pools: BTreeMap<&str, Vec<&Obstacle>> = BTreeMap::new();
    for refusal in refusals {
        pools.entry(&refusal.pool).or_default().push(&refusal.obstacle);
    }
    let names: Vec<&str> = asked
        .iter()
        .map(|pool| snapshot.pool(*pool).name.as_str())
        .collect();
    story.summary = match names.as_slice() {
        [] => "has no place, and no NodePool can make one".to_owned(),
        names => format!(
            "has no place: it asks for {}, which cannot make one",
            pool_list(names)
        ),
    };
    for pool in &asked {
        let name = snapshot.pool(*pool).name.as_str();
        let obstacles = pools.remove(name);
        asked_pool(facts, id, *pool, obstacles.as_deref(), &minimal, story);
    }
    existing_nodes(facts, id, story);
    if asked.is_empty() && pools.len() <= FEW_POOLS {
        for (pool, obstacles) in &pools {
            pool_says(facts, id, pool, obstacles, &minimal, story);
        }
    } else {
        folded(&pools, story);
    }
    match reason {
        None => story
            .waits
            .push(wait("Pod", "it was not part of this pass".to_owned())),
        Some(Reason::Pools(_)) => {}
        Some(Reason::NoNodePools) => {
            story.waits.push(wait(
                "NodePools",
                "there is none that is Ready and dynamic".to_owned(),
            ));
            for pool in snapshot.pools.iter().take(FEW_POOLS) {
                push_hint(story, Some(format!("spokeshave explain nodepool {}", pool.name)));
            }
        }
        Some(Reason::NoTemplates) if !asked.is_empty() => {}
        Some(Reason::NoTemplates) => {
            for pool in (0..snapshot.pools.len()).map(PoolId::from).take(FEW_POOLS) {
                asked_pool(facts, id, pool, None, &minimal, story);
            }
        }
        Some(other) => story.waits.push(wait("Pod", other.to_string())),
    }
    push_hint(story, nothing_has(snapshot, id));
}

/// What is said of resources that a pod asks for and no instance type has; none where all are known.
fn nothing_has(snapshot: &Snapshot, id: PodId) -> Option<String> {
    if snapshot.pools.is_empty() {
        return Some("add a NodePool: there is none".to_owned());
    }
    if snapshot.pools.iter().all(|pool| pool.instance_types.is_empty()) {
        return Some("the instance types of no NodePool are known".to_owned());
    }
    let unknown = unknown_resources(snapshot, id);
    (!unknown.is_empty()).then(|| format!("no instance type of any NodePool has {}", unknown.join(" or ")))
}

/// The fewest things without which the pod would have a place, which `plan` and the page name as well; none where nothing that can be lifted would help.
fn in_the_way(facts: &Facts<'_>, id: PodId, provisioned: &Provisioned) -> Vec<Blocker> {
    let mut alone = provisioned.clone();
    alone.unschedulable.retain(|unplaced| unplaced.pod == id);
    let derivations = alone.explain(facts.snapshot, facts.policy);
    let derivation = derivations.get(&id);
    derivation
        .map(|derivation| derivation.minimal.clone())
        .unwrap_or_default()
}

/// What would help a pod against one of them, in view of the NodePools that it asks for and the instance types that there are.
pub fn way_out(snapshot: &Snapshot, id: PodId, blocker: &Blocker) -> String {
    let hint = own_way_out(snapshot, id, blocker);
    let profile = snapshot.scheduler_profiles.of(&snapshot.pod(id).object);
    let added = profile.and_then(SchedulerProfile::required_affinity);
    match blocker {
        // B-60: it need not have any of its own.
        Blocker::NodeAffinity if added.is_some() => {
            format!("{hint}; its scheduler adds node affinity (addedAffinity)")
        }
        _ => hint,
    }
}

/// The same, as if it had written all of that itself.
fn own_way_out(snapshot: &Snapshot, id: PodId, blocker: &Blocker) -> String {
    let field = match blocker {
        Blocker::NodeSelector => "spec.nodeSelector",
        Blocker::NodeAffinity => "the required node affinity",
        Blocker::Requests => {
            return nothing_has(snapshot, id).unwrap_or_else(|| blocker.hint().to_owned());
        }
        _ => return blocker.hint().to_owned(),
    };
    match asked_pools(snapshot, id).first() {
        Some(pool) => {
            let pool = &snapshot.pool(*pool).name;
            format!("change {field}, or NodePool {pool}, which it asks for")
        }
        None => blocker.hint().to_owned(),
    }
}

/// `NodePool a`, `NodePools a, b and 1 other`.
fn pool_list(names: &[&str]) -> String {
    let noun = if names.len() == 1 { "NodePool" } else { "NodePools" };
    format!("{noun} {}", some_of(names, NAMES))
}

/// The result for a NodePool that the pod selects: its obstacles, or why it is not used.
fn asked_pool(
    facts: &Facts<'_>,
    id: PodId,
    pool: PoolId,
    obstacles: Option<&[&Obstacle]>,
    minimal: &[Blocker],
    story: &mut Story,
) {
    let name = &facts.snapshot.pool(pool).name;
    if let Some(obstacles) = obstacles {
        pool_says(facts, id, name, obstacles, minimal, story);
        return;
    }
    let why = takes_no_part(facts.snapshot, pool, facts.policy.min_values);
    let why = why.unwrap_or_else(|| "it was not part of this pass".to_owned());
    story.waits.push(wait(&format!("NodePool {name}"), why));
    push_hint(story, Some(format!("spokeshave explain nodepool {name}")));
}

/// What a NodePool says, and what to do about it: nothing where the pod would not have a place without it either.
fn pool_says(
    facts: &Facts<'_>,
    id: PodId,
    pool: &str,
    obstacles: &[&Obstacle],
    minimal: &[Blocker],
    story: &mut Story,
) {
    let texts: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    story
        .waits
        .push(wait(&format!("NodePool {pool}"), texts.join("; ")));
    let has_unknown = !unknown_resources(facts.snapshot, id).is_empty();
    let is_held = minimal.contains(&Blocker::Limits) && is_held_by_limits(facts, id, pool);
    for obstacle in obstacles {
        // A value that no NodePool has is reported once, for all NodePools.
        let is_told = has_unknown && matches!(obstacle, Obstacle::InstanceTypes { .. });
        let obstacle = match obstacle {
            Obstacle::InstanceTypes {
                failure: FilterFailure::Resources { .. },
                ..
            } if is_held => &Obstacle::Limits,
            other => *other,
        };
        let lifted = counts_as(obstacle);
        let helps = minimal.is_empty() || lifted.iter().any(|one| minimal.contains(one));
        push_hint(story, hint(pool, obstacle).filter(|_| helps && !is_told));
    }
}

/// Whether a NodePool has types that are large enough for a pod, of which its limits leave too little.
fn is_held_by_limits(facts: &Facts<'_>, id: PodId, pool: &str) -> bool {
    let snapshot = facts.snapshot;
    let Some(pool) = snapshot.find_pool(pool).map(|pool| snapshot.pool(pool)) else {
        return false;
    };
    let wanted = snapshot.scheduler_profiles.requests(&snapshot.pod(id).object);
    let is_enough = |capacity: &Resources| wanted.iter().all(|(name, amount)| amount <= capacity.get(name));
    !pool.limits.is_empty() && pool.instance_types.iter().any(|one| is_enough(&one.capacity))
}

/// The things in the way of a pod that what a NodePool says may come from.
fn counts_as(obstacle: &Obstacle) -> &'static [Blocker] {
    match obstacle {
        Obstacle::Taint(_) => &[Blocker::Taints],
        Obstacle::Incompatible(_) => &[Blocker::NodeSelector, Blocker::NodeAffinity],
        Obstacle::Volume(_) | Obstacle::VolumeLimit { .. } => &[Blocker::Volumes],
        Obstacle::HostPort(_) => &[Blocker::HostPorts],
        Obstacle::NodeLimit | Obstacle::Limits => &[Blocker::Limits, Blocker::OtherPods],
        Obstacle::InstanceTypes {
            failure: FilterFailure::Resources { .. },
            ..
        }
        | Obstacle::NodeResources => &[Blocker::Requests],
        Obstacle::InstanceTypes { .. } | Obstacle::ReservedOfferings => {
            &[Blocker::Requests, Blocker::NodeSelector, Blocker::NodeAffinity]
        }
        Obstacle::Topology { kind, .. } => match kind {
            TopologyKind::Spread => &[Blocker::TopologySpread],
            TopologyKind::Affinity => &[Blocker::PodAffinity],
            TopologyKind::AntiAffinity => &[Blocker::PodAntiAffinity, Blocker::OthersAntiAffinity],
        },
    }
}

/// The NodePools that the pod does not ask for, counted by what they say.
fn folded(pools: &BTreeMap<&str, Vec<&Obstacle>>, story: &mut Story) {
    let mut groups: BTreeMap<&'static str, Vec<&str>> = BTreeMap::new();
    for (pool, obstacles) in pools {
        if let Some(first) = obstacles.first() {
            groups.entry(in_few_words(first)).or_default().push(pool);
        }
    }
    let mut groups: Vec<(&str, Vec<&str>)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, pools)| std::cmp::Reverse(pools.len()));
    let texts = groups
        .iter()
        .map(|(what, pools)| format!("{} {what} ({})", pools.len(), some_of(pools, NAMES)));
    let texts: Vec<String> = texts.collect();
    if !texts.is_empty() {
        let object = count(pools.len(), "other NodePool");
        story.waits.push(wait(&object, texts.join(", ")));
    }
}

fn in_few_words(obstacle: &Obstacle) -> &'static str {
    match obstacle {
        Obstacle::Taint(_) => "with a taint that it does not tolerate",
        Obstacle::Incompatible(_) => "whose labels do not satisfy it",
        Obstacle::Volume(_) => "without the zones of its volumes",
        Obstacle::VolumeLimit { .. } => "with no room for its volumes",
        Obstacle::HostPort(_) => "with its host port in use",
        Obstacle::NodeResources => "with too little on their nodes",
        Obstacle::NodeLimit | Obstacle::Limits => "at their limits",
        Obstacle::InstanceTypes { .. } => "without an instance type for it",
        Obstacle::ReservedOfferings => "with no reservation left",
        Obstacle::Topology { .. } => "closed by its spread or affinity",
    }
}

fn wait(object: &str, message: String) -> Wait {
    Wait {
        object: object.to_owned(),
        message,
        since: None,
    }
}

fn push_hint(story: &mut Story, hint: Option<String>) {
    if let Some(hint) = hint.filter(|hint| !story.hints.contains(hint)) {
        story.hints.push(hint);
    }
}

/// D-007: what the scheduler has said so far.
fn not_provisionable(facts: &Facts<'_>, id: PodId) -> String {
    let pod = &facts.snapshot.pod(id).object;
    let status = pod.status.as_ref();
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_deref())
        .unwrap_or_default();
    if !gates.is_empty() {
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        return format!("is held by scheduling gates: {}", names.join(", "));
    }
    let scheduled = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
        .iter()
        .find(|condition| condition.type_ == "PodScheduled");
    match scheduled {
        None => "has not looked at it yet".to_owned(),
        Some(condition) => {
            let since = condition.last_transition_time.as_ref();
            let since = since
                .map(|time| format!(" for {}", age(time.0, facts.now)))
                .unwrap_or_default();
            format!(
                "says {}{since}: {}",
                condition.reason.as_deref().unwrap_or(&condition.status),
                condition.message.as_deref().unwrap_or("nothing more")
            )
        }
    }
}

/// The reasons of existing nodes, counted: `12 nodes: 7 have too little left, 5 carry taint …`.
fn existing_nodes(facts: &Facts<'_>, id: PodId, story: &mut Story) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let total = facts.snapshot.nodes.len();
    for node in facts.snapshot.node_ids() {
        *counts.entry(refusal(facts, id, node)).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    let parts: Vec<String> = counts
        .into_iter()
        .map(|(why, number)| format!("{number} {why}"))
        .collect();
    if total > 0 {
        story
            .waits
            .push(wait(&format!("{} there", count(total, "node")), parts.join(", ")));
    }
}

fn refusal(facts: &Facts<'_>, id: PodId, node: NodeId) -> String {
    let (pod, view) = (facts.snapshot.pod(id), facts.snapshot.node(node));
    if view.marked_for_deletion {
        return "on the way out".to_owned();
    }
    let spec = pod.object.spec.as_ref();
    let tolerations = spec
        .and_then(|spec| spec.tolerations.as_deref())
        .unwrap_or_default();
    if let Some(taint) = taint::first_untolerated(&view.taints, tolerations) {
        return format!("with taint {}", taint::format_taint(taint));
    }
    let constraints = facts.snapshot.constraints(id);
    let kind = &facts.snapshot.kinds[view.kind.index()];
    let goes = |wanted: &Requirements| kind.requirements.satisfy(wanted);
    let terms = &constraints.required_terms;
    if !goes(&constraints.node_selector) || (!terms.is_empty() && !terms.iter().any(goes)) {
        return "whose labels do not satisfy it".to_owned();
    }
    let mut free = view.allocatable_resources.clone();
    free.subtract(&requested(facts.snapshot, view));
    let wanted = facts.snapshot.scheduler_profiles.requests(&pod.object);
    let lacking: Vec<&str> = wanted
        .iter()
        .filter(|(name, amount)| *amount > free.get(name))
        .map(|(name, _)| name)
        .collect();
    match lacking.as_slice() {
        [] => "refused by affinity to pods, spread, ports or volumes".to_owned(),
        lacking => format!("with too little {}", lacking.join(" and ")),
    }
}

/// How to fix an obstacle of a NodePool.
fn hint(pool: &str, obstacle: &Obstacle) -> Option<String> {
    Some(match obstacle {
        Obstacle::Taint(taint) => {
            format!("add a toleration for {taint}, if the pod may run on NodePool {pool}")
        }
        Obstacle::Incompatible(_) => {
            format!("compare the pod's nodeSelector and affinity with the requirements of NodePool {pool}")
        }
        Obstacle::Volume(_) => "its volumes are bound to a zone that the NodePool cannot use".to_owned(),
        Obstacle::NodeLimit | Obstacle::Limits => {
            format!("raise spec.limits of NodePool {pool}, or use another pool")
        }
        Obstacle::InstanceTypes { failure, .. } => match failure {
            FilterFailure::Resources { cpu_typo: true } => {
                "the CPU request looks like a slip: m (thousandths) or M (millions)?".to_owned()
            }
            FilterFailure::Resources { .. } => {
                format!("no instance type of NodePool {pool} is large enough for the pod and the DaemonSets")
            }
            _ => format!("widen the requirements of NodePool {pool}, or those of the pod"),
        },
        Obstacle::Topology { kind, key, .. } => {
            format!("the pod's {kind} over {key} leaves no domain; see how many pods each has")
        }
        Obstacle::HostPort(_) => "two pods cannot share a host port; spread them or drop the port".to_owned(),
        Obstacle::NodeResources | Obstacle::VolumeLimit { .. } | Obstacle::ReservedOfferings => return None,
    })
}
