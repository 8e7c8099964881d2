//! The second look at a command, on a later Snapshot, before anything is touched (D §3.4).
//!
//! It is the same evaluation as the first (W-35): whatever would keep a node now rejects the command, and so does a higher price.

use super::budgets::BudgetMapping;
use super::candidates::Candidate;
use super::command::{Command, CommandNode, Method, Move};
use super::consolidate::{pods_of, written};
use super::emptiness;
use super::evaluate::{self, Exchange, qualifies, worst_of_cheapest};
use super::events;
use super::ground::{Ground, is_under_consolidate_after, what_if_options};
use super::headroom;
use super::hurdle::{Hurdle, Lifted};
use super::outcome::PoolScore;
use super::rounds::has_leaving_pods;
use super::simulate::{Moved, WhatIf};
use super::{cost, drift};
use crate::policy::Policy;
use jiff::Timestamp;
use spokeshave_model::Event;
use spokeshave_model::snapshot::{NodeId, NodeView, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a command, or a node of it, is refused at validation (D-092).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejection {
    /// It is no candidate any more, or not empty any more.
    Churn,
    /// It was nominated meanwhile, or the budget is used up.
    Budget,
    /// Its pods would go elsewhere now, or it would not save money any more.
    Scheduling,
}

impl Rejection {
    /// As in metrics and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Rejection::Churn => "churn",
            Rejection::Budget => "budget",
            Rejection::Scheduling => "scheduling",
        }
    }
}

/// The second look at a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validation {
    /// What is left of the command, with ids of the later Snapshot; `None` rejects it.
    pub command: Option<Command>,
    /// Nodes that fell out, by name, with the reason. Of an emptiness command the others go on; of any other the whole command falls.
    pub dropped: Vec<(String, Rejection)>,
    /// Why the whole command is rejected, if it is.
    pub rejection: Option<Rejection>,
    /// The same in words; empty when it is not rejected.
    pub message: String,
    /// Events to record: `ConsolidationRejected` (D-093), on Node and NodeClaim of every node of a rejected command, or
    /// `ConsolidationApproved` (D-178).
    pub events: Vec<Event>,
}

/// D-087…D-091: evaluates a command again on a later Snapshot. Nodes of the command count as candidates although they may be marked as
/// being in a command.
pub fn validate(command: &Command, snapshot: &Snapshot, policy: &Policy, now: Timestamp) -> Validation {
    let own: BTreeSet<&str> = command
        .nodes
        .iter()
        .map(|node| node.provider_id.as_str())
        .collect();
    // What-ifs take nodes of commands for gone; those of this one are still there.
    let released = released(snapshot, &own);
    let snapshot = released.as_ref().unwrap_or(snapshot);
    let settled = headroom::settle(snapshot, policy, now);
    let snapshot = settled.as_ref().unwrap_or(snapshot);
    let look = Look {
        ground: Ground::of_second_look(snapshot, policy, now, &own),
        ids: ids(snapshot, &own),
        command,
    };
    match command.method {
        Method::Emptiness => look.emptiness(),
        Method::StaticDrift | Method::StaticExpiry => look.static_replacement(),
        Method::Drift | Method::Expiry => look.replacement(),
        Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => look.consolidation(),
    }
}

/// Whether the NodePools of a command are at rest, commands under way aside. A command that was decided at rest and is to start when they no longer are,
/// because workloads have grown or shrunk since, was decided for pods and room that are there no more: it is decided again in the next round. True of
/// commands that do not wait for rounds.
pub fn is_calm(snapshot: &Snapshot, policy: &Policy, command: &Command, now: Timestamp) -> bool {
    let waits = matches!(
        command.method,
        Method::MultiNodeConsolidation | Method::SingleNodeConsolidation
    );
    if !policy.disrupt.rounds || !waits {
        return true;
    }
    let is_busy = |view: &NodeView| {
        let apart = !view.is_managed() || view.in_command || view.marked_for_deletion || !view.initialized;
        !apart && (has_leaving_pods(snapshot, view) || is_under_consolidate_after(snapshot, view, now))
    };
    let pools: BTreeSet<&str> = command.nodes.iter().map(|node| node.pool.as_str()).collect();
    let views = snapshot.nodes.iter();
    let mut of_pools =
        views.filter(|view| view.pool_name.as_deref().is_some_and(|pool| pools.contains(pool)));
    !of_pools.any(is_busy)
}

/// The Snapshot as if these nodes were in no command; `None` when they are in none.
fn released(snapshot: &Snapshot, own: &BTreeSet<&str>) -> Option<Snapshot> {
    let is_own = |id: &str| own.contains(id);
    let any = snapshot
        .nodes
        .iter()
        .any(|node| node.in_command && is_own(&node.provider_id));
    any.then(|| {
        let mut released = snapshot.clone();
        for node in &mut released.nodes {
            node.in_command &= !is_own(&node.provider_id);
        }
        released
    })
}

/// The nodes of these provider IDs.
fn ids<'a>(snapshot: &'a Snapshot, own: &BTreeSet<&str>) -> BTreeMap<&'a str, NodeId> {
    let nodes = snapshot
        .node_ids()
        .map(|node| (snapshot.node(node).provider_id.as_str(), node));
    nodes.filter(|(id, _)| own.contains(id)).collect()
}

struct Look<'a> {
    ground: Ground<'a>,
    ids: BTreeMap<&'a str, NodeId>,
    command: &'a Command,
}

impl Look<'_> {
    /// The candidate that a node of the command is now, or why it is none.
    fn survivor(
        &self,
        node: &CommandNode,
        budgets: &mut BudgetMapping,
        is_fit: impl Fn(&Candidate) -> bool,
        find: impl Fn(NodeId) -> Result<Candidate, Hurdle>,
    ) -> Result<Candidate, Rejection> {
        let id = self.ids.get(node.provider_id.as_str()).ok_or(Rejection::Churn)?;
        let same = self.ground.snapshot.node(*id).claim.as_ref();
        if same.is_none_or(|claim| claim.uid() != node.node_claim_uid) {
            return Err(Rejection::Churn);
        }
        match find(*id) {
            Ok(candidate) if !is_fit(&candidate) => Err(Rejection::Churn),
            Ok(candidate) if budgets.take_node(candidate.place()) => Ok(candidate),
            Ok(_) | Err(Hurdle::Nominated) => Err(Rejection::Budget),
            Err(_) => Err(Rejection::Churn),
        }
    }

    fn budgets(&self) -> BudgetMapping {
        self.ground.budget(&self.command.method.reason()).clone()
    }

    fn graceful(&self, node: NodeId) -> Result<Candidate, Hurdle> {
        self.ground.register.graceful()[node.index()].clone()
    }

    /// D-089: reduced to the nodes that are still empty, not nominated and within budget.
    fn emptiness(&self) -> Validation {
        let snapshot = self.ground.snapshot;
        let mut budgets = self.budgets();
        let mut dropped = Vec::new();
        let mut kept: BTreeMap<&str, Candidate> = BTreeMap::new();
        let is_empty = |candidate: &Candidate| {
            cost::is_empty(candidate) && emptiness::empty(snapshot, candidate, &Lifted::new()).is_ok()
        };
        for node in &self.command.nodes {
            match self.survivor(node, &mut budgets, is_empty, |id| self.graceful(id)) {
                Ok(candidate) => drop(kept.insert(&node.provider_id, candidate)),
                Err(rejection) => dropped.push((node.node.clone(), rejection)),
            }
        }
        let places = if kept.values().any(|candidate| candidate.moving_count() > 0) {
            self.keep_placed(&mut kept, &mut dropped)
        } else {
            Vec::new()
        };
        let mut reduced = self
            .command
            .reduced(|node| kept.contains_key(node.provider_id.as_str()));
        // Where their pods find room now, not where they did at first.
        reduced.moves = Arc::new(places);
        let first = dropped
            .first()
            .map_or(Rejection::Churn, |(_, rejection)| *rejection);
        let rejection = reduced.nodes.is_empty().then_some(first);
        Validation {
            command: rejection.is_none().then_some(reduced),
            dropped,
            rejection,
            message: rejection.map_or_else(String::new, |_| "no node of it is still empty".to_owned()),
            events: Vec::new(),
        }
    }

    /// W-36: nodes with pods fall out together when those pods have no places any more. Returns the places.
    fn keep_placed(
        &self,
        kept: &mut BTreeMap<&str, Candidate>,
        dropped: &mut Vec<(String, Rejection)>,
    ) -> Vec<Move> {
        let ground = &self.ground;
        let options = what_if_options(ground.policy);
        let mut what_if = WhatIf::new(ground.snapshot, &options, ground.now, &ground.withheld);
        let nodes: Vec<NodeId> = kept.values().map(|candidate| candidate.node).collect();
        let pods: Vec<_> = kept
            .values()
            .flat_map(|candidate| candidate.moving(ground.snapshot).into_owned())
            .collect();
        let candidates: Vec<&Candidate> = kept.values().collect();
        let places = what_if.without(&nodes, &pods, |moved| {
            let fits = emptiness::places(moved, &Lifted::new()).is_ok();
            fits.then(|| moved.moves(&candidates))
        });
        places.unwrap_or_else(|| {
            let snapshot = ground.snapshot;
            let lost = kept.values().filter(|candidate| candidate.moving_count() > 0);
            dropped.extend(lost.map(|candidate| {
                let name = snapshot.node(candidate.node).name.clone();
                (name, Rejection::Scheduling)
            }));
            kept.retain(|_, candidate| candidate.moving_count() == 0);
            Vec::new()
        })
    }

    /// D-088, D-090, W-35: all candidates survive, and the same evaluation gives the same answer at no higher price.
    fn consolidation(&self) -> Validation {
        let ground = &self.ground;
        let set = match self.all(|candidate| qualifies(ground.snapshot, candidate, &Lifted::new()).is_ok()) {
            Ok(set) => set,
            Err(validation) => return validation,
        };
        let set: Vec<&Candidate> = set.iter().collect();
        let options = what_if_options(ground.policy);
        let mut what_if = WhatIf::new(ground.snapshot, &options, ground.now, &ground.withheld);
        let answer = evaluate::what_if(
            ground,
            &mut what_if,
            &set,
            &pods_of(self.ground.snapshot, &set),
            &Lifted::new(),
            &mut None,
            |moved, mut plan| {
                self.keep_to_choice(moved, &mut plan)?;
                let moves = Arc::new(moved.moves(&set));
                let fresh = written(ground, self.command.method, &set, &plan, moves);
                Ok((fresh, plan.scores))
            },
        );
        let answer = answer.map_err(|stop| stop.text).and_then(|answer| answer);
        match answer {
            Ok((fresh, _)) if fresh.replacements.len() != self.command.replacements.len() => {
                self.reject(Rejection::Scheduling, "more or fewer replacements are needed now")
            }
            Ok((fresh, _)) if fresh.price_after > self.command.price_after => {
                self.reject(Rejection::Scheduling, "the replacement is dearer now")
            }
            Ok((fresh, scores)) => self.accept(fresh, &scores),
            Err(text) => self.reject(Rejection::Scheduling, &text),
        }
    }

    /// D-090: what comes may be launched as what was chosen at first, and as nothing else.
    fn keep_to_choice(&self, moved: &mut Moved<'_, '_>, plan: &mut Exchange) -> Result<(), String> {
        let old = &self.command.replacements;
        for ((claim, price), old) in plan.replacements.iter_mut().zip(old) {
            let types = &self.ground.snapshot.pool(claim.pool).instance_types;
            let chosen: BTreeSet<&str> = old.instance_types.iter().map(String::as_str).collect();
            claim
                .launches
                .retain(|launch| chosen.contains(types[launch.instance_type].name.as_str()));
            if claim.launches.len() < chosen.len() {
                return Err("the replacement's instance types are not all suitable any more".to_owned());
            }
            *price = worst_of_cheapest(moved, claim);
        }
        plan.price_after = plan.replacements.iter().map(|(_, price)| *price).sum();
        Ok(())
    }

    fn all(&self, is_fit: impl Fn(&Candidate) -> bool) -> Result<Vec<Candidate>, Validation> {
        let mut budgets = self.budgets();
        let mut set = Vec::new();
        let mut dropped = Vec::new();
        for node in &self.command.nodes {
            match self.survivor(node, &mut budgets, &is_fit, |id| self.graceful(id)) {
                Ok(candidate) => set.push(candidate),
                Err(rejection) => dropped.push((node.node.clone(), rejection)),
            }
        }
        match dropped.first() {
            None => Ok(set),
            Some((node, rejection)) => {
                let text = match rejection {
                    Rejection::Churn => format!("node {node} is no candidate any more"),
                    _ => format!("node {node} is nominated or its budget is used up"),
                };
                let rejection = *rejection;
                Err(Validation {
                    dropped,
                    ..self.reject(rejection, &text)
                })
            }
        }
    }

    /// Drift is started at once upstream (D-086); who looks again gets the same answer as a pass would give.
    fn replacement(&self) -> Validation {
        let ground = &self.ground;
        let mut budgets = self.budgets();
        let nothing = Lifted::new();
        let find = |id: NodeId| drift::candidate(ground, self.command.method, id, &nothing);
        let options = what_if_options(ground.policy);
        let mut what_if = WhatIf::new(ground.snapshot, &options, ground.now, &BTreeSet::new());
        let Some(node) = self.command.nodes.first() else {
            return self.reject(Rejection::Churn, "it names no node");
        };
        match self.survivor(node, &mut budgets, |_| true, find) {
            Err(rejection) => self.reject(rejection, "its node is no candidate any more"),
            Ok(candidate) => match drift::command(ground, self.command.method, &mut what_if, &candidate) {
                Ok(fresh) => self.accept(fresh, &[]),
                Err(stop) => self.reject(Rejection::Scheduling, &stop.text),
            },
        }
    }

    fn static_replacement(&self) -> Validation {
        let ground = &self.ground;
        let mut budgets = self.budgets();
        let nothing = Lifted::new();
        let find = |id: NodeId| drift::candidate(ground, self.command.method, id, &nothing);
        let Some(node) = self.command.nodes.first() else {
            return self.reject(Rejection::Churn, "it names no node");
        };
        match self.survivor(node, &mut budgets, |_| true, find) {
            Err(rejection) => self.reject(rejection, "its node is no candidate any more"),
            Ok(candidate) => match drift::static_commands(ground, self.command.method, &[candidate]).pop() {
                Some(fresh) => self.accept(fresh, &[]),
                None => self.reject(Rejection::Budget, "its static NodePool has no headroom any more"),
            },
        }
    }

    fn accept(&self, fresh: Command, scores: &[PoolScore]) -> Validation {
        Validation {
            events: events::approved(self.ground.snapshot, &fresh, scores),
            command: Some(fresh),
            dropped: Vec::new(),
            rejection: None,
            message: String::new(),
        }
    }

    fn reject(&self, rejection: Rejection, text: &str) -> Validation {
        let told = matches!(
            self.command.method,
            Method::MultiNodeConsolidation | Method::SingleNodeConsolidation
        );
        Validation {
            command: None,
            dropped: Vec::new(),
            rejection: Some(rejection),
            message: text.to_owned(),
            events: if told {
                events::rejected(self.ground.snapshot, self.command, rejection)
            } else {
                Vec::new()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_092_reasons_as_in_metrics() {
        let all = [Rejection::Churn, Rejection::Budget, Rejection::Scheduling];
        assert_eq!(all.map(Rejection::as_str), ["churn", "budget", "scheduling"]);
    }
}
