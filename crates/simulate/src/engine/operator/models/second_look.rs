//! The second look of the model of Karpenter at a command, before it is carried out (D §3.4).
//!
//! Owns what has to be as it was: candidates, budgets, and that their pods still have places with what was chosen. Prices and scores are not looked at again (D-090).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_model::placement::{Launch, PlannedClaim};
use spokeshave_model::snapshot::{NodeId, Snapshot};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{
    BudgetMapping, Candidate, Command, CommandNode, DisruptionClass, Hurdle, Method, Rejection, Replacement,
    candidate,
};

use super::karpenter::{is_empty, is_underused, pack_options, resting};
use super::search::Search;

/// The command as it is carried out, on the Snapshot of now, in which its nodes are in no command.
///
/// # Errors
/// Why it does not stand (D-092).
pub(in crate::engine::operator) fn second_look(
    command: &Command,
    snapshot: &Snapshot,
    settings: &Policy,
    now: Timestamp,
) -> Result<Command, Rejection> {
    let mut look = Look {
        snapshot,
        now,
        method: command.method,
        budget: BudgetMapping::build(snapshot, &command.method.reason(), now),
        nodes: snapshot
            .node_ids()
            .map(|node| (snapshot.node(node).provider_id.as_str(), node))
            .collect(),
    };
    if command.method == Method::Emptiness {
        return still_empty(command, &mut look);
    }
    // D-088.
    let set = command.nodes.iter().map(|node| look.survivor(node));
    let set = set.collect::<Result<Vec<Candidate>, Rejection>>()?;
    let options = pack_options(settings);
    let mut search = Search::new(snapshot, &options, now);
    search.withhold(resting(snapshot, now));
    let moved = search.without(&set, 1).ok_or(Rejection::Scheduling)?;
    let replacements = match (&command.replacements[..], &moved.placements.claims[..]) {
        ([], []) => Vec::new(),
        ([chosen], [claim]) => vec![kept(snapshot, chosen, claim).ok_or(Rejection::Scheduling)?],
        _ => return Err(Rejection::Scheduling),
    };
    Ok(Command {
        replacements,
        moves: Arc::new(moved.moves(snapshot)),
        ..command.clone()
    })
}

/// D-089: the nodes that are still empty and within the budget; the first reason where none is.
fn still_empty(command: &Command, look: &mut Look<'_>) -> Result<Command, Rejection> {
    let (mut kept, mut first) = (BTreeSet::new(), None);
    for node in &command.nodes {
        match look.survivor(node) {
            Ok(_) => {
                kept.insert(node.provider_id.as_str());
            }
            Err(rejection) => first = first.or(Some(rejection)),
        }
    }
    if kept.is_empty() {
        return Err(first.unwrap_or(Rejection::Churn));
    }
    Ok(command.reduced(|node| kept.contains(node.provider_id.as_str())))
}

/// D-090: what was chosen, if all of its instance types would be among those of the new node now.
fn kept(snapshot: &Snapshot, chosen: &Replacement, claim: &PlannedClaim) -> Option<Replacement> {
    let pool = snapshot.find_pool(&chosen.pool)?;
    let types = snapshot.pool(pool).instance_types.iter();
    let positions: BTreeMap<&str, usize> = types.map(|one| one.name.as_str()).zip(0..).collect();
    let types = &snapshot.pool(claim.pool).instance_types;
    let suitable = claim.launches.iter();
    let suitable: BTreeSet<&str> = suitable
        .map(|launch| types[launch.instance_type].name.as_str())
        .collect();
    let launches = chosen.claim.launches.iter().zip(&chosen.instance_types);
    let launches = launches.map(|(launch, name)| {
        let instance_type = *positions.get(name.as_str())?;
        suitable.contains(name.as_str()).then(|| Launch {
            instance_type,
            ..launch.clone()
        })
    });
    let claim = PlannedClaim {
        pool,
        pods: claim.pods.clone(),
        launches: launches.collect::<Option<Vec<Launch>>>()?.into(),
        requests: claim.requests.clone(),
        ..chosen.claim.clone()
    };
    Some(Replacement::of(snapshot, claim, chosen.price))
}

/// What a second look knows of the cluster.
struct Look<'a> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    method: Method,
    /// What is left of the budgets.
    budget: BudgetMapping,
    /// By provider ID.
    nodes: BTreeMap<&'a str, NodeId>,
}

impl Look<'_> {
    /// The candidate that a node of the command is now, which takes its part of the budget.
    fn survivor(&mut self, node: &CommandNode) -> Result<Candidate, Rejection> {
        let snapshot = self.snapshot;
        let id = self.nodes.get(node.provider_id.as_str()).copied();
        let id = id.ok_or(Rejection::Churn)?;
        let claim = snapshot.node(id).claim.as_ref();
        if claim.is_none_or(|claim| claim.uid() != node.node_claim_uid) {
            return Err(Rejection::Churn);
        }
        let found = candidate(snapshot, id, DisruptionClass::Graceful, self.now);
        let found = found.map_err(|hurdle| match hurdle {
            Hurdle::Nominated => Rejection::Budget,
            _ => Rejection::Churn,
        })?;
        let is_fit = if self.method == Method::Emptiness {
            is_empty(snapshot, &found)
        } else {
            is_underused(snapshot, &found)
        };
        if !is_fit {
            return Err(Rejection::Churn);
        }
        if self.budget.take(found.pool) {
            Ok(found)
        } else {
            Err(Rejection::Budget)
        }
    }
}

#[cfg(test)]
mod tests;
