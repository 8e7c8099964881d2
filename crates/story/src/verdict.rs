//! Verdicts as people are told them: what decisions do without here is said, where upstream's words or a price of another kind would mislead.
//!
//! Owns those words. Whether a node goes is decided in `plan`, and stays as it was decided.

use std::collections::BTreeSet;

use spokeshave_model::snapshot::{InstanceTypesProblem, NodeId, PoolView, Snapshot};
use spokeshave_plan::disrupt::{BlockerKind, Decision, Verdict};
use spokeshave_plan::standing::{KNOWN_ELSEWHERE, not_supported};
use spokeshave_plan::{MinValuesPolicy, Policy};

use crate::prices;
use crate::replicas::no_instance_type;

/// A verdict as it is told, wherever that is: by `plan`, `explain`, `top` and the page. One on a node that the same plan has just nominated is about the node as
/// it was before. Upstream calls a NodePool "not found" also where it is there and has no instance types: what is missing is named instead.
/// A spot node is told with its price at launch where prices of spot are not known and nothing comes instead: a replacement has the price of on-demand, and
/// what it saves is told as a share of that. What a node saves of which nobody knows the price, nobody knows.
#[must_use]
pub fn told(
    snapshot: &Snapshot,
    policy: &Policy,
    mut verdict: Verdict,
    nominated: &BTreeSet<NodeId>,
) -> Verdict {
    if nominated.contains(&verdict.node) {
        verdict = verdict.without_nomination("not in this plan, which sends pending pods to it");
    }
    let node = snapshot.node(verdict.node);
    let pool = node.pool.map(|pool| snapshot.pool(pool));
    for blocker in &mut verdict.blockers {
        if blocker.kind == BlockerKind::NodePoolNotFound
            && let Some(why) = pool.and_then(|pool| without_types(snapshot, pool, policy.min_values))
        {
            blocker.kind = BlockerKind::UnknownInstanceType;
            blocker.message = format!("exists, but {why}");
        }
    }
    // A pass finds them in another order than whoever asks about this node alone.
    verdict
        .blockers
        .sort_by_key(|blocker| blocker.kind != BlockerKind::Budget);
    verdict.by_on_demand = prices::is_taken_for_on_demand(snapshot, node);
    verdict.price_unknown = prices::is_unknown(snapshot, node);
    if let Some(price) = prices::instead(snapshot, node) {
        if verdict.is_keep() {
            verdict.price_after = price;
        }
        if verdict.decision != Decision::Replace {
            verdict.price_before = price;
        }
        let then = verdict.if_removed.as_mut();
        if let Some(then) = then.filter(|then| then.decision == Decision::Delete) {
            then.price_before = price;
        }
    }
    verdict
}

/// The verdicts of a plan as they are told.
#[must_use]
pub fn all_told(
    snapshot: &Snapshot,
    policy: &Policy,
    verdicts: Vec<Verdict>,
    nominated: &BTreeSet<NodeId>,
) -> Vec<Verdict> {
    let verdicts = verdicts.into_iter();
    verdicts
        .map(|verdict| told(snapshot, policy, verdict, nominated))
        .collect()
}

/// Why nothing can be said of the nodes of a NodePool that is there.
fn without_types(snapshot: &Snapshot, pool: &PoolView, min_values: MinValuesPolicy) -> Option<String> {
    if !pool.supported {
        return Some(not_supported(pool));
    }
    if pool.instance_types_problem == Some(InstanceTypesProblem::KnownElsewhere) {
        return Some(format!(
            "nothing can be judged without its instance types: {KNOWN_ELSEWHERE}"
        ));
    }
    no_instance_type(snapshot, pool, min_values)
}
