//! NodeClaims whose `expireAfter` has passed: the operator deletes all of them at once.
//!
//! Neither budgets nor DisruptionPolicies, PodDisruptionBudgets or do-not-disrupt are asked, of pods or of nodes (D-247). Owns what `plan`, `explain`, `top`, the page,
//! `doctor` and `adopt` know of them, and what their drains then wait for: pods that are protected are not evicted, until terminationGracePeriod is over (D-321, D-322).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::NodeClaim;
use spokeshave_model::ClusterState;
use spokeshave_model::snapshot::{NodeId, NodeView, PodId, Snapshot};
use spokeshave_plan::disrupt::Verdict;
use spokeshave_plan::lifecycle::until_expiry;
use spokeshave_plan::report::count;

use crate::durations::short;
use crate::replicas::is_looked_after;

/// The NodeClaims that have expired and are not being deleted yet.
#[derive(Clone, Debug, Default)]
pub struct Expired {
    /// By NodePool, and by name.
    pub claims: Vec<Arc<NodeClaim>>,
    now: Timestamp,
}

impl Expired {
    /// Looks at all NodeClaims, as the operator does: those that never got a Node expire, too (D-246).
    #[must_use]
    pub fn of(state: &ClusterState, now: Timestamp) -> Self {
        let claims = state.node_claims.iter();
        let mut claims: Vec<Arc<NodeClaim>> = claims
            .filter(|claim| is_expired(state, claim, now))
            .cloned()
            .collect();
        claims.sort_by(|left, right| (left.node_pool(), left.name()).cmp(&(right.node_pool(), right.name())));
        Self { claims, now }
    }

    /// The same of each NodePool; of none are NodeClaims that were made by hand.
    #[must_use]
    pub fn by_pool(&self) -> Vec<(Option<&str>, &[Arc<NodeClaim>])> {
        let of_pools = self
            .claims
            .chunk_by(|left, right| left.node_pool() == right.node_pool());
        of_pools
            .filter_map(|claims| Some((claims.first()?.node_pool(), claims)))
            .collect()
    }

    /// Says with the verdicts on their nodes that they go, whatever else is said of them. `snapshot` is made of the same state.
    pub fn tell(&self, snapshot: &Snapshot, verdicts: &mut [Verdict]) {
        let going: BTreeSet<&str> = self.claims.iter().map(|claim| claim.name()).collect();
        if going.is_empty() {
            return;
        }
        for verdict in verdicts {
            let view = snapshot.node(verdict.node);
            let claim = view.claim.as_deref().filter(|claim| going.contains(claim.name()));
            if let Some(claim) = claim {
                let drain = drain(snapshot, view, self.now, self.now);
                let drain = drain.map(|drain| format!("; {drain}")).unwrap_or_default();
                verdict.waits = Some(goes(claim) + &drain);
            }
        }
    }

    /// What the drain of one of their nodes waits for; none where nothing holds it.
    #[must_use]
    pub fn drain(&self, snapshot: &Snapshot, node: NodeId) -> Option<String> {
        drain(snapshot, snapshot.node(node), self.now, self.now)
    }
}

/// Whether the operator deletes a NodeClaim now for its age.
pub(crate) fn is_expired(state: &ClusterState, claim: &NodeClaim, now: Timestamp) -> bool {
    !claim.is_deleting()
        && is_looked_after(&state.supported_node_classes, &claim.spec.node_class_ref)
        && until_expiry(claim, now).is_some_and(|left| left.is_zero())
}

/// What becomes of each of them.
pub(crate) fn goes(claim: &NodeClaim) -> String {
    format!(
        "is deleted at once, whatever budgets and do-not-disrupt say: expireAfter {} has passed",
        short(&claim.spec.expire_after)
    )
}

/// What the drain of a node waits for whose NodeClaim is deleted `at` that time, and for how long; none where nothing holds it. What PodDisruptionBudgets allow by
/// then, nobody knows before, except of those that never allow anything.
pub(crate) fn drain(snapshot: &Snapshot, view: &NodeView, now: Timestamp, at: Timestamp) -> Option<String> {
    let claim = view.claim.as_deref()?;
    let pods = view.present_pods().iter();
    let held: Vec<String> = pods
        .filter_map(|pod| protected(snapshot, *pod, now, at))
        .collect();
    let (first, others) = held.split_first()?;
    let pods = match others.len() {
        0 => first.clone(),
        others => format!("{first} and {}", count(others, "other")),
    };
    Some(match &claim.spec.termination_grace_period {
        None => {
            format!("its drain waits for {pods} however long that takes: it has no terminationGracePeriod")
        }
        Some(period) if period.nanoseconds() <= 0 => {
            format!(
                "its drain does not wait for {pods}: terminationGracePeriod is {}",
                short(period)
            )
        }
        Some(period) => format!(
            "its drain waits for {pods} until terminationGracePeriod {} is over, which overrules them",
            short(period)
        ),
    })
}

/// Whether PodDisruptionBudgets keep a pod from being evicted at that time, as far as that is known now.
fn holds(snapshot: &Snapshot, id: PodId, now: Timestamp, at: Timestamp) -> bool {
    match snapshot.blocking_budgets(id, now) {
        [] => false,
        [only] => at <= now || snapshot.budgets[only.index()].fully_blocking,
        // Kubernetes evicts only pods of one.
        _ => true,
    }
}

/// A pod that is not evicted, and why: `Pod shop/web-1 (do-not-disrupt)`.
fn protected(snapshot: &Snapshot, id: PodId, now: Timestamp, at: Timestamp) -> Option<String> {
    let pod = snapshot.pod(id);
    if !pod.active || pod.promised || pod.mirror || pod.tolerates_disrupted_taint || pod.is_virtual {
        return None;
    }
    let why = if pod.do_not_disrupt().is_active(at) {
        "do-not-disrupt"
    } else if holds(snapshot, id, now, at) {
        "PodDisruptionBudget"
    } else {
        return None;
    };
    Some(format!("Pod {} ({why})", pod.key()))
}
