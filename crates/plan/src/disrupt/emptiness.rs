//! Emptiness: nodes without pods that matter go, as many at once as budgets allow (D §4.2), and the second look before they do (D-087, D-089).

use super::budgets::BudgetMapping;
use super::candidates::{Candidate, DisruptionClass, Ineligible, blocked_events, candidates, objects};
use super::command::{Command, CommandNode, Decision, Method};
use super::cost;
use super::validate::{Rejection, Validation};
use jiff::Timestamp;
use spokeshave_model::snapshot::{NodeId, Snapshot};
use spokeshave_model::{Event, EventType, Price};
use std::collections::BTreeSet;

/// Why a node is not deleted as empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// It is no candidate.
    Blocked(Ineligible),
    /// Its NodePool is static.
    StaticPool,
    /// `consolidateAfter: Never` (D-128).
    ConsolidationDisabled {
        /// The NodePool.
        pool: String,
    },
    /// It runs pods that would have to move.
    NotEmpty {
        /// How many reschedulable pods it has.
        pods: usize,
    },
    /// consolidateAfter has not passed (D-041).
    NotYetConsolidatable,
    /// Its NodePool's budgets allow no more now.
    Budget {
        /// The NodePool.
        pool: String,
    },
}

impl std::fmt::Display for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Keep::Blocked(blocker) => write!(f, "{blocker}"),
            Keep::StaticPool => f.write_str("nodepool is static"),
            Keep::ConsolidationDisabled { pool } => write!(f, "NodePool {pool:?} has consolidation disabled"),
            Keep::NotEmpty { pods } => write!(f, "node has {pods} pod(s) that would have to move"),
            Keep::NotYetConsolidatable => {
                f.write_str("consolidateAfter has not passed since the last change of its pods")
            }
            Keep::Budget { pool } => write!(f, "disruption budget of NodePool {pool:?} is used up"),
        }
    }
}

/// What emptiness says about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The node.
    pub node: NodeId,
    /// Delete, or no-op for a node that stays.
    pub decision: Decision,
    /// The first thing in the way of deletion; none when it is deleted.
    pub blocker: Option<Keep>,
}

/// The result of one evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptinessOutcome {
    /// One delete command over all nodes taken (D-129).
    pub command: Option<Command>,
    /// For every node of the Snapshot, in node order.
    pub verdicts: Vec<Verdict>,
    /// Nodes that qualify, whatever the budgets: the gauge `eligible_nodes`.
    pub eligible: usize,
    /// The budgets, after what the command takes; `None` when nothing was eligible (D-208).
    pub budgets: Option<BudgetMapping>,
    /// Events to record.
    pub events: Vec<Event>,
}

/// D-127: whether a candidate qualifies.
fn qualifies(snapshot: &Snapshot, candidate: &Candidate) -> Result<(), Keep> {
    let pool = snapshot.pool(candidate.pool);
    if pool.is_static {
        return Err(Keep::StaticPool);
    }
    if pool.object.spec.disruption.consolidate_after.is_never() {
        return Err(Keep::ConsolidationDisabled {
            pool: pool.name.clone(),
        });
    }
    if !cost::is_empty(candidate) {
        return Err(Keep::NotEmpty {
            pods: candidate.pods.len(),
        });
    }
    if !snapshot.node(candidate.node).consolidatable {
        return Err(Keep::NotYetConsolidatable);
    }
    Ok(())
}

/// D-127…D-131: finds the empty nodes and takes as many as the budgets allow, highest savings ratio first.
pub fn emptiness(snapshot: &Snapshot, now: Timestamp) -> EmptinessOutcome {
    let (passed, blocked) = candidates(snapshot, DisruptionClass::Graceful, now);
    let mut events: Vec<Event> = blocked
        .iter()
        .flat_map(|(node, blocker)| blocked_events(snapshot, *node, blocker))
        .collect();
    let keep = |node, why| Verdict {
        node,
        decision: Decision::NoOp,
        blocker: Some(why),
    };
    let mut verdicts: Vec<Verdict> = blocked
        .into_iter()
        .map(|(node, blocker)| keep(node, Keep::Blocked(blocker)))
        .collect();
    let mut empty = Vec::new();
    for candidate in passed {
        match qualifies(snapshot, &candidate) {
            Ok(()) => empty.push(candidate),
            Err(why) => {
                if matches!(why, Keep::ConsolidationDisabled { .. }) {
                    events.extend(unconsolidatable_events(
                        snapshot,
                        candidate.node,
                        &why.to_string(),
                    ));
                }
                verdicts.push(keep(candidate.node, why));
            }
        }
    }
    cost::sort_by_savings_ratio(snapshot, &mut empty);
    let eligible = empty.len();
    let budgets = (eligible > 0).then(|| BudgetMapping::build(snapshot, &Method::Emptiness.reason(), now));
    events.extend(budgets.iter().flat_map(|budgets| budgets.events(snapshot)));
    let mut budgets = budgets;
    let mut nodes = Vec::new();
    for candidate in &empty {
        if budgets
            .as_mut()
            .is_some_and(|budgets| budgets.take(candidate.pool))
        {
            nodes.push(CommandNode::of(snapshot, candidate.node));
            verdicts.push(Verdict {
                node: candidate.node,
                decision: Decision::Delete,
                blocker: None,
            });
        } else {
            verdicts.push(keep(
                candidate.node,
                Keep::Budget {
                    pool: snapshot.pool(candidate.pool).name.clone(),
                },
            ));
        }
    }
    verdicts.sort_by_key(|verdict| verdict.node);
    let command = (!nodes.is_empty()).then(|| Command {
        method: Method::Emptiness,
        price_before: nodes.iter().map(|node| node.price).sum(),
        price_after: Price::ZERO,
        replacements: Vec::new(),
        moves: Vec::new(),
        nodes,
    });
    EmptinessOutcome {
        command,
        verdicts,
        eligible,
        budgets,
        events,
    }
}

/// D-035: `Unconsolidatable` on Node and NodeClaim, one message per object and 15 minutes.
fn unconsolidatable_events(snapshot: &Snapshot, node: NodeId, message: &str) -> Vec<Event> {
    let event =
        |object| Event::new(object, EventType::Normal, "Unconsolidatable", message).within_seconds(900);
    objects(snapshot, node).into_iter().map(event).collect()
}

/// D-087, D-089: re-evaluates on a later Snapshot and reduces the command to the nodes that are still empty, not nominated, and within budget.
pub fn validate_emptiness(command: &Command, snapshot: &Snapshot, now: Timestamp) -> Validation {
    let (passed, blocked) = candidates(snapshot, DisruptionClass::Graceful, now);
    let mut budgets = BudgetMapping::build(snapshot, &command.method.reason(), now);
    let mut kept: BTreeSet<&str> = BTreeSet::new();
    let mut dropped = Vec::new();
    for node in &command.nodes {
        let same = |id: NodeId| snapshot.node(id).provider_id == node.provider_id;
        let survivor = passed
            .iter()
            .find(|candidate| same(candidate.node))
            .filter(|candidate| qualifies(snapshot, candidate).is_ok());
        let nominated = blocked
            .iter()
            .any(|(id, blocker)| same(*id) && *blocker == Ineligible::Nominated);
        match survivor {
            Some(candidate) if budgets.take(candidate.pool) => {
                kept.insert(&node.provider_id);
            }
            Some(_) => dropped.push((node.node.clone(), Rejection::Budget)),
            None if nominated => dropped.push((node.node.clone(), Rejection::Budget)),
            None => dropped.push((node.node.clone(), Rejection::Churn)),
        }
    }
    let reduced = command.reduced(|node| kept.contains(node.provider_id.as_str()));
    Validation {
        rejection: reduced.nodes.is_empty().then(|| {
            dropped
                .first()
                .map_or(Rejection::Churn, |(_, rejection)| *rejection)
        }),
        command: (!reduced.nodes.is_empty()).then_some(reduced),
        dropped,
        message: String::new(),
        events: Vec::new(),
    }
}
