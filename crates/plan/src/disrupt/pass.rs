//! One pass over all methods on one Snapshot (D §3.1).

use super::command::{Decision, Method};
use super::emptiness::emptiness;
use super::outcome::{Frontier, MethodReport, Outcome};
use super::verdict::Verdict;
use crate::policy::Policy;
use jiff::Timestamp;
use spokeshave_model::Price;
use spokeshave_model::snapshot::{NodeId, Snapshot};

/// Decides what is to be disrupted now. Nothing is created or changed; equal inputs give equal outcomes on any number of threads.
pub fn disrupt(snapshot: &Snapshot, policy: &Policy, now: Timestamp, frontier: &Frontier) -> Outcome {
    let _ = policy;
    let empty = emptiness(snapshot, now);
    Outcome {
        eligible: [(Method::Emptiness, empty.eligible)].into(),
        reports: vec![MethodReport {
            method: Method::Emptiness,
            eligible: empty.eligible,
            evaluated: empty.eligible,
            constrained: 0,
            commands: usize::from(empty.command.is_some()),
            scores: Vec::new(),
        }],
        commands: empty.command.into_iter().collect(),
        budgets: empty.budgets.into_iter().collect(),
        events: empty.events,
        frontier: frontier.clone(),
        ..Outcome::default()
    }
}

/// Judges one node: what the first method that would act on it alone would do, and otherwise what is in the way.
pub fn judge(snapshot: &Snapshot, policy: &Policy, now: Timestamp, node: NodeId) -> Verdict {
    let _ = policy;
    let outcome = emptiness(snapshot, now);
    let price = snapshot.node(node).price;
    let deleted = outcome.verdicts[node.index()].blocker.is_none();
    Verdict {
        node,
        decision: if deleted { Decision::Delete } else { Decision::NoOp },
        method: deleted.then_some(Method::Emptiness),
        price_before: price,
        price_after: if deleted { Price::ZERO } else { price },
        replacement: None,
        blockers: Vec::new(),
        if_removed: None,
    }
}
