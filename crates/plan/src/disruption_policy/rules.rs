//! From policies and the state of the cluster to limits: one list for each reason of disruption.

use super::convergence;
use super::hold::{self, Held};
use super::limits::{Left, Limit, Limits, Rule};
use super::memo::Memo;
use super::{breakers, budget, rollout, status, workloads};
use jiff::Timestamp;
use spokeshave_api::disruption_policy::{Freeze, Hold, PolicyScope};
use spokeshave_api::{DisruptionPolicy, DisruptionReason};
use spokeshave_model::snapshot::{NodeId, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// What one policy is looked at with.
pub(super) struct Scene<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) policy: &'a DisruptionPolicy,
    pub(super) now: Timestamp,
    pub(super) memo: &'a Memo<'a>,
    /// Nodes, by provider ID, that use nothing up by being in a command: it is the one that is looked at.
    pub(super) own: &'a BTreeSet<&'a str>,
    /// For each node, whether the policy applies to it.
    covered: Vec<bool>,
}

impl<'a> Scene<'a> {
    fn new(
        snapshot: &'a Snapshot,
        policy: &'a DisruptionPolicy,
        own: &'a BTreeSet<&'a str>,
        memo: &'a Memo<'a>,
        now: Timestamp,
    ) -> Self {
        let mut scene = Scene {
            snapshot,
            policy,
            now,
            memo,
            own,
            covered: Vec::new(),
        };
        let pools: Vec<bool> = snapshot
            .pools
            .iter()
            .map(|pool| scene.selects(&pool.name))
            .collect();
        let covers = |node: NodeId| {
            let view = snapshot.node(node);
            view.is_managed() && view.pool.is_some_and(|pool| pools[pool.index()])
        };
        scene.covered = snapshot.node_ids().map(covers).collect();
        scene
    }

    pub(super) fn covers(&self, node: NodeId) -> bool {
        self.covered[node.index()]
    }

    /// Whether the policy applies to a NodePool, by its name.
    pub(super) fn selects(&self, pool: &str) -> bool {
        let found = self.snapshot.pools.iter().find(|view| view.name == pool);
        let labels = found.and_then(|view| view.object.metadata.labels.as_ref());
        match labels {
            Some(labels) => self.policy.selects(pool, labels),
            None => self.policy.selects(pool, &BTreeMap::new()),
        }
    }

    /// Not Ready, on its way out, or in another command.
    pub(super) fn is_disrupting(&self, node: NodeId) -> bool {
        let view = self.snapshot.node(node);
        let in_other = view.in_command && !self.own.contains(view.provider_id.as_str());
        view.marked_for_deletion || in_other || (view.initialized && !view.ready)
    }
}

/// A rule about the nodes of a scene that `weight` names.
pub(super) fn rule(
    scene: &Scene<'_>,
    field: &str,
    message: &str,
    weight: impl Fn(NodeId) -> Option<i64>,
) -> Rule {
    let of = |node: NodeId| scene.covers(node).then(|| weight(node)).flatten();
    Rule {
        policy: scene.policy.name().to_owned(),
        field: field.to_owned(),
        domain: None,
        message: message.to_owned(),
        since: None,
        until: None,
        weights: scene.snapshot.node_ids().map(of).collect(),
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
    limits_with(snapshot, reason, now, own, &Memo::new(snapshot, now))
}

/// The same, with what was found for another reason already.
pub fn limits_with(
    snapshot: &Snapshot,
    reason: &DisruptionReason,
    now: Timestamp,
    own: &BTreeSet<&str>,
    memo: &Memo<'_>,
) -> Limits {
    let mut limits = Vec::new();
    for policy in &snapshot.disruption_policies {
        of_policy(snapshot, policy, reason, now, own, memo, &mut limits);
    }
    Limits { limits }
}

/// Adds the limits of one policy for one reason.
pub(super) fn of_policy(
    snapshot: &Snapshot,
    policy: &DisruptionPolicy,
    reason: &DisruptionReason,
    now: Timestamp,
    own: &BTreeSet<&str>,
    memo: &Memo<'_>,
    limits: &mut Vec<Limit>,
) {
    let scene = Scene::new(snapshot, policy, own, memo, now);
    let spec = &policy.spec;
    for fault in status::faults(policy) {
        if fault
            .reasons
            .as_ref()
            .is_none_or(|reasons| covers(Some(reasons), reason))
        {
            let message = format!("cannot be evaluated, so nothing is disrupted: {}", fault.message);
            shut(rule(&scene, &fault.field, &message, |_| Some(1)), limits);
        }
    }
    if let Some(text) = spec.freeze.as_ref().and_then(|freeze| frozen_text(freeze, now)) {
        let mut stands = rule(&scene, "spec.freeze", &text, |_| Some(1));
        let until = spec.freeze.as_ref().and_then(|freeze| freeze.until.as_ref());
        stands.until = until.map(|until| until.0);
        shut(stands, limits);
    }
    if let Some(hold) = spec
        .hold
        .as_ref()
        .filter(|hold| covers(hold.reasons.as_ref(), reason))
    {
        add_holds(&scene, hold, limits);
    }
    for (index, budget) in spec.budgets.iter().enumerate() {
        if covers(budget.reasons.as_ref(), reason) {
            budget::add(&scene, index, budget, limits);
        }
    }
    if let Some(waves) = spec
        .rollout
        .as_ref()
        .filter(|_| *reason == DisruptionReason::Drifted)
    {
        rollout::add(&scene, waves, limits);
    }
    if let Some(judged) = &spec.convergence {
        convergence::add(&scene, judged, memo.facts(), reason, limits);
    }
    if let Some(rules) = &spec.workloads {
        if snapshot.owners_unknown {
            let message = "Deployments, StatefulSets, ReplicaSets and Jobs have not been read yet, so that nobody knows what they ask for";
            shut(rule(&scene, "spec.workloads", message, |_| Some(1)), limits);
        }
        workloads::add(&scene, rules, limits);
    }
    if let Some(breakers) = &spec.circuit_breakers {
        breakers::add(&scene, breakers, limits);
    }
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
/// for it.
pub fn frozen<'a>(
    policies: impl IntoIterator<Item = &'a DisruptionPolicy>,
    pool: &str,
    labels: &BTreeMap<String, String>,
    reason: &DisruptionReason,
    now: Timestamp,
) -> Option<String> {
    let is_drift = *reason == DisruptionReason::Drifted;
    let mut selecting = policies.into_iter().filter(|policy| policy.selects(pool, labels));
    selecting.find_map(|policy| {
        let freeze = policy.spec.freeze.as_ref();
        let frozen = freeze.and_then(|freeze| frozen_text(freeze, now));
        let halted = is_drift.then(|| rollout::halted(policy, pool)).flatten();
        let text = frozen.or(halted)?;
        Some(format!("DisruptionPolicy {}: {text}", policy.name()))
    })
}

/// What the status has said of a hold.
fn known_hold(policy: &DisruptionPolicy, pool: Option<&str>) -> Option<Held> {
    let mut active = policy.status.as_ref()?.active.iter();
    let entry = active.find(|entry| entry.field == "spec.hold" && entry.domain.as_deref() == pool)?;
    Some(Held {
        since: entry.since.as_ref()?.0,
        until: entry.until.as_ref()?.0,
    })
}

fn add_holds(scene: &Scene<'_>, hold: &Hold, limits: &mut Vec<Limit>) {
    let snapshot = scene.snapshot;
    let mut add = |pool: Option<&str>, message: &str| {
        let times = hold::triggers(snapshot, scene.memo, hold, pool);
        let known = known_hold(scene.policy, pool);
        let Some(held) = hold::held(&times, hold, known, scene.now) else {
            return;
        };
        let mut stands = rule(scene, "spec.hold", message, |node| {
            let own = snapshot.node(node).pool_name.as_deref();
            (pool.is_none() || pool == own).then_some(1)
        });
        stands.domain = pool.map(str::to_owned);
        (stands.since, stands.until) = (Some(held.since), Some(held.until));
        shut(stands, limits);
    };
    if hold.scope == Some(PolicyScope::NodePool) {
        for pool in snapshot.pools.iter().filter(|pool| scene.selects(&pool.name)) {
            let message = format!(
                "nodes of NodePool {:?} have changed lately, so that it rests",
                pool.name
            );
            add(Some(&pool.name), &message);
        }
    } else {
        add(None, "nodes have changed lately, so that all rest");
    }
}
