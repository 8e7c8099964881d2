//! Nodes that cannot be drained now: drift leaves them alone until the time that an administrator has set has come, so that no replacement waits beside them.
//!
//! Without a policy a NodePool with `terminationGracePeriod` replaces such nodes (D-029): the replacement is paid for while the drain waits for its deadline. What
//! ends a drain is never decided here, and expiry, interruption and repair are never asked.

use super::limits::{Detail, Left, Limit};
use super::rules::{Scene, rule};
use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED};
use spokeshave_api::disruption_policy::BlockedDrains;
use spokeshave_model::snapshot::{NodeId, NodeView, Snapshot};
use std::collections::BTreeMap;

const FIELD: &str = "spec.blockedDrains";

/// Adds the nodes that drift has to leave alone.
pub(super) fn add(scene: &Scene<'_>, blocked: &BlockedDrains, limits: &mut Vec<Limit>) {
    let mut details: BTreeMap<NodeId, Detail> = BTreeMap::new();
    for node in scene.snapshot.node_ids().filter(|node| scene.covers(*node)) {
        let view = scene.snapshot.node(node);
        let Some(since) = drifted_since(view) else {
            continue;
        };
        let until = match &blocked.escalate_after {
            Some(after) => since.saturating_add(after.to_signed()).unwrap_or(Timestamp::MAX),
            None => Timestamp::MAX,
        };
        if until <= scene.now {
            continue;
        }
        if let Some(message) = in_the_way(scene.snapshot, view, scene.now) {
            details.insert(node, Detail { until, message });
        }
    }
    let Some(first) = details.values().map(|detail| detail.until).min() else {
        return;
    };
    let nodes = crate::report::count(details.len(), "drifted node");
    let message = format!("{nodes} cannot be drained now; no replacement is launched");
    let weights = scene.only(|node| details.contains_key(&node));
    let mut stands = rule(scene, FIELD, &message, weights);
    stands.until = (first < Timestamp::MAX).then_some(first);
    stands.details = details;
    limits.push(Limit {
        rule: stands.into(),
        left: Left::Nothing,
    });
}

fn drifted_since(view: &NodeView) -> Option<Timestamp> {
    let claim = view.claim.as_ref()?;
    let drifted = claim.true_condition(DRIFTED)?;
    Some(drifted.last_transition_time)
}

/// What a drain would wait for, in words.
fn in_the_way(snapshot: &Snapshot, view: &NodeView, now: Timestamp) -> Option<String> {
    view.pods.iter().find_map(|pod| {
        let pod = snapshot.pod(*pod);
        let keeps = |what: String| Some(format!("a drain would wait for pod {}, which {what}", pod.key()));
        if pod.active && pod.do_not_disrupt().is_active(now) {
            return keeps("is annotated karpenter.sh/do-not-disrupt".to_owned());
        }
        if !pod.is_evictable(now) {
            return None;
        }
        match pod.budgets() {
            [] => None,
            [only] => {
                let budget = &snapshot.budgets[only.index()];
                let is_exempt = budget.always_allows_unhealthy && pod.ready_false;
                let name = format!("{}/{}", budget.namespace, budget.name);
                let is_shut = budget.disruptions_allowed <= 0 && !is_exempt;
                is_shut
                    .then(|| keeps(format!("PodDisruptionBudget {name} keeps")))
                    .flatten()
            }
            _ => keeps("more than one PodDisruptionBudget selects".to_owned()),
        }
    })
}
