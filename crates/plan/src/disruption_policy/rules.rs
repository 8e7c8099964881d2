//! From policies and the state of the cluster to limits: one list for each reason of disruption.

use super::convergence;
use super::hold::{self, Held};
use super::limits::{Left, Limit, Limits, Rule, Weights};
use super::memo::Memo;
use super::status::Fault;
use super::{blocked, breakers, budget, rollout, workloads};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::disruption_policy::{DisruptionPolicySpec, Freeze, Hold, HoldStatus, PolicyScope};
use spokeshave_api::{DisruptionPolicy, DisruptionReason, whole_seconds};
use spokeshave_model::snapshot::{NodeId, PoolView, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What one policy is looked at with.
pub(super) struct Scene<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) policy: &'a DisruptionPolicy,
    pub(super) now: Timestamp,
    pub(super) memo: &'a Memo<'a>,
    /// Nodes, by provider ID, that use nothing up by being in a command: it is the one that is looked at.
    pub(super) own: &'a BTreeSet<&'a str>,
    /// For each node, whether the policy applies to it.
    covered: Arc<[bool]>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, policy: &'a DisruptionPolicy, memo: &'a Memo<'a>) -> Self {
        let selected = snapshot.pools.iter().map(|pool| selects(policy, pool));
        Scene {
            snapshot,
            policy,
            now: memo.now,
            memo,
            own: memo.own,
            covered: memo.covered(selected.collect()),
        }
    }

    pub(super) fn covers(&self, node: NodeId) -> bool {
        self.covered[node.index()]
    }

    /// Whether the policy applies to a NodePool by its name. To one that is not there it does where it may: what has gone of it counts then, which leaves too
    /// little rather than too much of what the policy allows.
    pub(super) fn selects(&self, name: &str) -> bool {
        match self.snapshot.pools.iter().find(|pool| pool.name == name) {
            Some(pool) => selects(self.policy, pool),
            None => may_select(self.policy, name),
        }
    }

    /// Not Ready, on its way out, or in another command.
    pub(super) fn is_disrupting(&self, node: NodeId) -> bool {
        self.memo.on_its_way(node).is_disrupting
    }

    /// All nodes that the policy covers count one each.
    pub(super) fn all(&self) -> Weights {
        Weights::One(self.covered.clone())
    }

    /// Some of the nodes that the policy covers count one each.
    pub(super) fn only(&self, is_meant: impl Fn(NodeId) -> bool) -> Weights {
        let nodes = self.snapshot.node_ids();
        Weights::One(nodes.map(|node| self.covers(node) && is_meant(node)).collect())
    }

    /// All nodes that the policy covers count so much each.
    pub(super) fn amounts(&self, amounts: &Arc<[i64]>) -> Weights {
        Weights::Amounts {
            covered: self.covered.clone(),
            amounts: amounts.clone(),
        }
    }
}

/// Whether a policy applies to a NodePool.
pub(super) fn selects(policy: &DisruptionPolicy, pool: &PoolView) -> bool {
    policy.selects_pool(&pool.object)
}

/// Whether a policy may apply to a NodePool whose labels nobody knows, because it cannot be read or is gone: they may be those that the policy asks for.
fn may_select(policy: &DisruptionPolicy, name: &str) -> bool {
    let selector = policy.spec.node_pools.as_ref();
    selector.is_none_or(|selector| {
        !selector.match_labels.is_empty() || selector.names.iter().any(|wanted| wanted == name)
    })
}

/// Whether a NodePool is not there while nodes of it are, and the policy may apply to it. It may be one that cannot be read: what the status remembers
/// of it is needed when it can be read again. One that is deleted loses its nodes, and with the last of them what is remembered.
pub(super) fn is_out_of_sight(policy: &DisruptionPolicy, snapshot: &Snapshot, name: &str) -> bool {
    let mut nodes = snapshot.nodes.iter();
    may_select(policy, name)
        && snapshot.pools.iter().all(|pool| pool.name != name)
        && nodes.any(|node| node.pool_name.as_deref() == Some(name))
}

/// A rule about the nodes of a scene.
pub(super) fn rule(scene: &Scene<'_>, field: &str, message: &str, weights: Weights) -> Rule {
    Rule {
        policy: scene.policy.name().to_owned(),
        field: field.to_owned(),
        domain: None,
        message: message.to_owned(),
        since: None,
        until: None,
        weights,
        within: None,
        details: BTreeMap::new(),
    }
}

/// The limits of all policies for one reason. Nodes of `own`, by provider ID, count as not being in a command.
pub fn limits(
    snapshot: &Snapshot,
    reason: &DisruptionReason,
    now: Timestamp,
    own: &BTreeSet<&str>,
) -> Limits {
    limits_with(snapshot, reason, &Memo::new(snapshot, now, own))
}

/// The same, with what was found for another reason already.
pub fn limits_with(snapshot: &Snapshot, reason: &DisruptionReason, memo: &Memo<'_>) -> Limits {
    let mut limits = Vec::new();
    for policy in &snapshot.disruption_policies {
        of_policy(snapshot, policy, reason, memo, &mut limits);
    }
    Limits { limits }
}

/// A part of a policy, whose limits are the same for each reason that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Fault(usize),
    Freeze,
    Hold,
    Budget(usize),
    Rollout,
    BlockedDrains,
    Convergence { is_empty: bool },
    Workloads,
    Breakers,
}

/// The parts of a policy that cover a reason.
fn parts(spec: &DisruptionPolicySpec, faults: &[Fault], reason: &DisruptionReason) -> Vec<Part> {
    let mut parts = Vec::new();
    for (index, fault) in faults.iter().enumerate() {
        if covers(fault.reasons.as_ref(), reason) {
            parts.push(Part::Fault(index));
        }
    }
    if spec.freeze.is_some() {
        parts.push(Part::Freeze);
    }
    if spec
        .hold
        .as_ref()
        .is_some_and(|hold| covers(hold.reasons.as_ref(), reason))
    {
        parts.push(Part::Hold);
    }
    for (index, budget) in spec.budgets.iter().enumerate() {
        if covers(budget.reasons.as_ref(), reason) {
            parts.push(Part::Budget(index));
        }
    }
    if spec.rollout.is_some() && *reason == DisruptionReason::Drifted {
        parts.push(Part::Rollout);
    }
    if spec.blocked_drains.is_some() && *reason == DisruptionReason::Drifted {
        parts.push(Part::BlockedDrains);
    }
    let is_empty = *reason == DisruptionReason::Empty;
    if spec.convergence.is_some() && (is_empty || *reason == DisruptionReason::Underutilized) {
        parts.push(Part::Convergence { is_empty });
    }
    if spec.workloads.is_some() {
        parts.push(Part::Workloads);
    }
    if spec.circuit_breakers.is_some() {
        parts.push(Part::Breakers);
    }
    parts
}

/// Adds the limits of one policy for one reason.
pub(super) fn of_policy(
    snapshot: &Snapshot,
    policy: &DisruptionPolicy,
    reason: &DisruptionReason,
    memo: &Memo<'_>,
    limits: &mut Vec<Limit>,
) {
    let faults = memo.faults(policy);
    let parts = parts(&policy.spec, &faults, reason);
    if parts.is_empty() {
        return;
    }
    let scene = Scene::new(snapshot, policy, memo);
    for part in parts {
        let found = memo.part(policy, part, || of_part(&scene, part, &faults));
        limits.extend(found.iter().cloned());
    }
}

/// The limits of one part of a policy.
fn of_part(scene: &Scene<'_>, part: Part, faults: &[Fault]) -> Vec<Limit> {
    let spec = &scene.policy.spec;
    let mut limits = Vec::new();
    match part {
        Part::Fault(index) => {
            let fault = &faults[index];
            let message = format!("cannot be evaluated, so nothing is disrupted: {}", fault.message);
            shut(rule(scene, &fault.field, &message, scene.all()), &mut limits);
        }
        Part::Freeze => {
            if let Some((freeze, text)) = spec
                .freeze
                .as_ref()
                .and_then(|freeze| Some((freeze, frozen_text(freeze, scene.now)?)))
            {
                let mut stands = rule(scene, "spec.freeze", &text, scene.all());
                stands.until = freeze.until.as_ref().map(|until| until.0);
                shut(stands, &mut limits);
            }
        }
        Part::Hold => {
            if let Some(hold) = &spec.hold {
                add_holds(scene, hold, &mut limits);
            }
        }
        Part::Budget(index) => budget::add(scene, index, &spec.budgets[index], &mut limits),
        Part::Rollout => {
            if let Some(waves) = &spec.rollout {
                rollout::add(scene, waves, &mut limits);
            }
        }
        Part::BlockedDrains => {
            if let Some(drains) = &spec.blocked_drains {
                blocked::add(scene, drains, &mut limits);
            }
        }
        Part::Convergence { is_empty } => {
            if let Some(judged) = &spec.convergence {
                convergence::add(scene, judged, scene.memo.facts(), is_empty, &mut limits);
            }
        }
        Part::Workloads => {
            if let Some(rules) = &spec.workloads {
                if scene.snapshot.owners_unknown {
                    let message = "Deployments, StatefulSets, ReplicaSets and Jobs have not been read yet, so that nobody knows what they ask for";
                    shut(rule(scene, "spec.workloads", message, scene.all()), &mut limits);
                }
                workloads::add(scene, rules, &mut limits);
            }
        }
        Part::Breakers => {
            if let Some(all) = &spec.circuit_breakers {
                breakers::add(scene, all, &mut limits);
            }
        }
    }
    limits
}

fn shut(rule: Rule, limits: &mut Vec<Limit>) {
    limits.push(Limit {
        rule: rule.into(),
        left: Left::Nothing,
    });
}

/// Whether a list of reasons covers one; a reason of a later version might be any, so that it covers all.
pub(super) fn covers(reasons: Option<&Vec<DisruptionReason>>, reason: &DisruptionReason) -> bool {
    reasons.is_none_or(|reasons| {
        let mut named = reasons.iter();
        named.any(|named| named == reason || matches!(named, DisruptionReason::Other(_)))
    })
}

fn frozen_text(freeze: &Freeze, now: Timestamp) -> Option<String> {
    let is_over = freeze.until.as_ref().is_some_and(|until| until.0 <= now);
    (!is_over).then(|| format!("frozen: {}", freeze.reason))
}

/// The freeze by hand that stands for a NodePool, or the halt of its roll-out, in words: a command that has deleted no node yet is taken back
/// for it. A policy that cannot be read may be a freeze. Where the NodePool is not there, or cannot be read, nobody knows its labels: `None`; any policy that
/// asks for some may mean it then.
pub fn frozen<'a>(
    policies: impl IntoIterator<Item = &'a DisruptionPolicy>,
    pool: &str,
    labels: Option<&BTreeMap<String, String>>,
    reason: &DisruptionReason,
    now: Timestamp,
) -> Option<String> {
    let is_drift = *reason == DisruptionReason::Drifted;
    let mut selecting = policies.into_iter().filter(|policy| match labels {
        Some(labels) => policy.selects(pool, labels),
        None => may_select(policy, pool),
    });
    selecting.find_map(|policy| {
        let unreadable = policy.spec.unreadable.as_ref();
        let unreadable = unreadable.map(|_| "cannot be read, and may be a freeze".to_owned());
        let freeze = policy.spec.freeze.as_ref();
        let frozen = freeze.and_then(|freeze| frozen_text(freeze, now));
        let halted = is_drift.then(|| rollout::halted(policy, pool)).flatten();
        let text = unreadable.or(frozen).or(halted)?;
        Some(format!("DisruptionPolicy {}: {text}", policy.name()))
    })
}

/// What the status has said of a hold; that of an earlier version only while it stood.
fn known_hold(policy: &DisruptionPolicy, pool: Option<&str>) -> Option<Held> {
    let status = policy.status.as_ref()?;
    let mut holds = status.holds.iter();
    if let Some(known) = holds.find(|known| known.node_pool.as_deref() == pool) {
        return Some(Held {
            since: known.since.0,
            until: known.until.0,
        });
    }
    let mut active = status.active.iter();
    let entry = active.find(|entry| entry.field == "spec.hold" && entry.domain.as_deref() == pool)?;
    Some(Held {
        since: entry.since.as_ref()?.0,
        until: entry.until.as_ref()?.0,
    })
}

/// The NodePools that are held each by its own triggers; one `None` where all are held together.
fn held_apart<'a>(scene: &Scene<'a>, hold: &Hold) -> Vec<Option<&'a str>> {
    if hold.scope != Some(PolicyScope::NodePool) {
        return vec![None];
    }
    let pools = scene.snapshot.pools.iter();
    let selected = pools.filter(|pool| selects(scene.policy, pool));
    selected.map(|pool| Some(pool.name.as_str())).collect()
}

fn add_holds(scene: &Scene<'_>, hold: &Hold, limits: &mut Vec<Limit>) {
    for pool in held_apart(scene, hold) {
        let times = hold::triggers(scene.snapshot, scene.memo, hold, pool);
        let known = known_hold(scene.policy, pool);
        let Some(held) = hold::held(&times, hold, known, scene.now) else {
            continue;
        };
        let (message, weights) = match pool {
            None => (
                "nodes have changed lately, so that all rest".to_owned(),
                scene.all(),
            ),
            Some(pool) => {
                let pools = scene.memo.pools();
                (
                    format!("nodes of NodePool {pool:?} have changed lately, so that it rests"),
                    scene.only(|node| pools.name(pools.domain(node)) == pool),
                )
            }
        };
        let mut stands = rule(scene, "spec.hold", &message, weights);
        stands.domain = pool.map(str::to_owned);
        (stands.since, stands.until) = (Some(held.since), Some(held.until));
        shut(stands, limits);
    }
}

/// The holds that the status of a policy should name now; also those of NodePools that are [out of sight](is_out_of_sight), of whose nodes triggers are known.
pub(super) fn holds(scene: &Scene<'_>) -> Vec<HoldStatus> {
    let Some(hold) = &scene.policy.spec.hold else {
        return Vec::new();
    };
    let remembered = |pool: Option<&str>| {
        let times = hold::triggers(scene.snapshot, scene.memo, hold, pool);
        let held = hold::remembered(&times, hold, known_hold(scene.policy, pool), scene.now)?;
        Some(HoldStatus {
            node_pool: pool.map(str::to_owned),
            since: Time(whole_seconds(held.since)),
            until: Time(whole_seconds(held.until)),
        })
    };
    let is_apart = hold.scope == Some(PolicyScope::NodePool);
    let written = scene.policy.status.iter().flat_map(|status| &status.holds);
    let written = written.filter_map(|known| known.node_pool.as_deref());
    let unseen = written.filter(|pool| is_apart && is_out_of_sight(scene.policy, scene.snapshot, pool));
    let apart = held_apart(scene, hold).into_iter().chain(unseen.map(Some));
    apart.filter_map(remembered).collect()
}
