//! A model of Karpenter: one pass of its disruption loop (D §3.1, §4).
//!
//! Owns the order of methods and candidates, budgets, and the two searches of consolidation. When a pass takes place, and the wait before the second look, is up to
//! the engine; prices of replacements are in `exchange`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::ConsolidationPolicy;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED, INITIALIZED};
use spokeshave_api::constants::{COMMAND_NODES, MULTI_NODE_CANDIDATES};
use spokeshave_model::labels;
use spokeshave_model::snapshot::{NodeId, NodeView, PoolId, Snapshot};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{
    BalancedPools, BudgetMapping, Candidate, Command, DisruptionClass, Frontier, Method, candidates,
    consolidates, cost, disrupt,
};
use spokeshave_schedule::{PackOptions, ReservedPolicy};

use super::Answer;
use super::exchange::Exchange;
use super::search::{Search, command};

/// D-168: single nodes that are evaluated within the limit of three minutes, at 0.93 s a simulation. A search over sets takes seven simulations at most, and so never
/// comes to its limit of one minute (D-163).
const MOST_SINGLE: usize = 193;

/// What the model remembers from pass to pass.
#[derive(Debug, Default)]
pub(in crate::engine::operator) struct Memory {
    /// NodePools of which the last search of single nodes that ran out of time has tried none (D-169).
    unreached: BTreeSet<String>,
    /// Whose command did not stand: the pass goes on with the methods after it (D-095).
    rejected: Option<Method>,
}

impl Memory {
    /// A command did not stand at its second look.
    pub(in crate::engine::operator) fn reject(&mut self, method: Method) {
        self.rejected = Some(method);
    }

    /// Whether the next pass is the rest of one whose last command did not stand.
    pub(in crate::engine::operator) fn is_in_a_pass(&self) -> bool {
        self.rejected.is_some()
    }
}

/// What Karpenter would do: the commands of the first method that has one (D-062, D-063).
pub(in crate::engine::operator) fn karpenter(
    snapshot: &Snapshot,
    settings: &Policy,
    now: Timestamp,
    memory: &mut Memory,
) -> Answer {
    let rejected = memory.rejected.take();
    let has_turn = |method: Method| rejected.is_none_or(|rejected| method > rejected);
    if has_turn(Method::Emptiness) {
        let commands = emptiness(snapshot, now);
        if !commands.is_empty() {
            return Answer {
                commands,
                what_ifs: 0,
            };
        }
    }
    let mut what_ifs = 0;
    if has_turn(Method::StaticDrift) && has_drifted(snapshot) {
        let outcome = disrupt(snapshot, &only_drift(settings), now, &Frontier::default());
        what_ifs = outcome.statistics.what_ifs;
        if !outcome.commands.is_empty() {
            return Answer {
                commands: outcome.commands,
                what_ifs,
            };
        }
    }
    let mut found = candidates_of(snapshot, now, |candidate| is_underused(snapshot, candidate));
    if found.is_empty() || !has_turn(Method::SingleNodeConsolidation) {
        return Answer {
            commands: Vec::new(),
            what_ifs,
        };
    }
    cost::sort_by_savings_ratio(snapshot, &mut found);
    let options = pack_options(settings);
    let mut search = Search::new(snapshot, &options, now);
    search.withhold(resting(snapshot, now));
    let mut consolidation = Consolidation {
        search,
        exchange: Exchange::new(snapshot, settings.disrupt.spot_to_spot),
        balanced: weighs(snapshot).then(|| BalancedPools::of(snapshot, settings, now)),
        budget: BudgetMapping::build(snapshot, &Method::SingleNodeConsolidation.reason(), now),
    };
    let mut best = None;
    if has_turn(Method::MultiNodeConsolidation) {
        best = consolidation.longest_prefix(&found);
    }
    if best.is_none() {
        best = consolidation.first_single(&found, &mut memory.unreached);
    }
    Answer {
        commands: best.into_iter().collect(),
        what_ifs: what_ifs + consolidation.search.what_ifs,
    }
}

/// How Karpenter packs when it asks what if (D-077).
pub(super) fn pack_options(settings: &Policy) -> PackOptions {
    PackOptions {
        reserved: ReservedPolicy::Fallback,
        preferences: settings.preferences,
        min_values: settings.min_values,
        instance_types_per_claim: settings.instance_types_per_claim,
        tables: settings.tables.clone(),
    }
}

/// D-129: empty nodes as long as the budgets last, whether their pods, which nobody minds to lose, have places or not. One command, or several where its object would
/// not fit.
fn emptiness(snapshot: &Snapshot, now: Timestamp) -> Vec<Command> {
    let mut found = candidates_of(snapshot, now, |candidate| is_empty(snapshot, candidate));
    cost::sort_by_savings_ratio(snapshot, &mut found);
    let mut budget = BudgetMapping::build(snapshot, &Method::Emptiness.reason(), now);
    found.retain(|candidate| budget.take(candidate.pool));
    if found.is_empty() {
        return Vec::new();
    }
    let whole = command(snapshot, Method::Emptiness, &found, Vec::new(), Vec::new());
    whole.in_parts(COMMAND_NODES)
}

/// Candidates of the graceful class that a method accepts.
fn candidates_of(
    snapshot: &Snapshot,
    now: Timestamp,
    accepts: impl Fn(&Candidate) -> bool,
) -> Vec<Candidate> {
    let (mut found, _) = candidates(snapshot, DisruptionClass::Graceful, now);
    found.retain(accepts);
    found
}

/// D-127: whether a candidate goes as empty.
pub(super) fn is_empty(snapshot: &Snapshot, candidate: &Candidate) -> bool {
    let disruption = &snapshot.pool(candidate.pool).object.spec.disruption;
    let is_known = !matches!(disruption.consolidation_policy, ConsolidationPolicy::Other(_));
    is_known && may_be_consolidated(snapshot, candidate) && cost::is_empty(candidate)
}

/// D-142: whether a candidate takes part in consolidation.
pub(super) fn is_underused(snapshot: &Snapshot, candidate: &Candidate) -> bool {
    let view = snapshot.node(candidate.node);
    let disruption = &snapshot.pool(candidate.pool).object.spec.disruption;
    let has_label = |key: &str| view.labels.get(key).is_some_and(|value| !value.is_empty());
    view.instance_type.is_some()
        && has_label(labels::CAPACITY_TYPE)
        && has_label(labels::ZONE)
        && consolidates(&disruption.consolidation_policy)
        && may_be_consolidated(snapshot, candidate)
        && !cost::is_empty(candidate)
}

/// What both ask for.
fn may_be_consolidated(snapshot: &Snapshot, candidate: &Candidate) -> bool {
    let pool = snapshot.pool(candidate.pool);
    let disruption = &pool.object.spec.disruption;
    !pool.is_static
        && !disruption.consolidate_after.is_never()
        && snapshot.node(candidate.node).consolidatable
}

/// Whether some node has drifted.
fn has_drifted(snapshot: &Snapshot) -> bool {
    let mut claims = snapshot.nodes.iter().filter_map(|view| view.claim.as_ref());
    claims.any(|claim| claim.is_true(DRIFTED))
}

/// Spokeshave's own code for drift, which follows the same rules (D §4.3, §4.4), and for nothing else.
fn only_drift(settings: &Policy) -> Policy {
    let mut settings = settings.clone();
    settings.disrupt.methods = [Method::StaticDrift, Method::Drift].into();
    settings.disrupt.rounds = false;
    settings.disrupt.verdicts = false;
    settings
}

/// D-044: nodes inside their consolidateAfter, which take no pods of nodes that are consolidated.
pub(super) fn resting(snapshot: &Snapshot, now: Timestamp) -> impl Iterator<Item = NodeId> {
    let nodes = snapshot.node_ids();
    nodes.filter(move |node| is_resting(snapshot, snapshot.node(*node), now).unwrap_or(false))
}

/// D-040; none where nothing says so.
fn is_resting(snapshot: &Snapshot, view: &NodeView, now: Timestamp) -> Option<bool> {
    let pool = snapshot.pool(view.pool?);
    let window = pool.object.spec.disruption.consolidate_after.duration()?;
    let window = SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX);
    let claim = view.claim.as_ref()?;
    let initialized = claim.true_condition(INITIALIZED)?.last_transition_time;
    let status = claim.status.as_ref()?;
    let event = status.last_pod_event_time.as_ref().map(|time| time.0);
    let passed = now.duration_since(event.unwrap_or(initialized));
    Some(pool.is_provisionable() && passed < window)
}

/// Whether some NodePool weighs what a move saves.
fn weighs(snapshot: &Snapshot) -> bool {
    let mut pools = snapshot.pools.iter();
    pools.any(|pool| pool.object.spec.disruption.consolidation_policy == ConsolidationPolicy::Balanced)
}

/// D-059: the best of each NodePool, then the second best of each, and so on. Those of `first` come first.
fn in_turn<'c>(snapshot: &Snapshot, found: &'c [Candidate], first: &BTreeSet<String>) -> Vec<&'c Candidate> {
    let mut ranks: BTreeMap<PoolId, usize> = BTreeMap::new();
    let ranked = found.iter().map(|candidate| {
        let rank = ranks.entry(candidate.pool).or_default();
        *rank += 1;
        let is_later = !first.contains(&snapshot.pool(candidate.pool).name);
        ((*rank, is_later, candidate.pool), candidate)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(turn, _)| *turn);
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

/// The searches of one pass.
struct Consolidation<'a> {
    search: Search<'a>,
    exchange: Exchange<'a>,
    /// What says whether a move is worth it, where a NodePool asks for that.
    balanced: Option<BalancedPools<'a>>,
    /// What NodePools allow, before anything is taken.
    budget: BudgetMapping,
}

impl Consolidation<'_> {
    /// The longest prefix of what the budgets leave that can be consolidated, by halving (D-159, D-160).
    fn longest_prefix(&mut self, found: &[Candidate]) -> Option<Command> {
        let mut budget = self.budget.clone();
        let within = found.iter().filter(|candidate| budget.take(candidate.pool));
        let set: Vec<Candidate> = within.take(MULTI_NODE_CANDIDATES).cloned().collect();
        let mut best = None;
        let (mut least, mut most) = (2, set.len());
        while least <= most {
            let middle = usize::midpoint(least, most);
            match self.approved(&set[..middle], Method::MultiNodeConsolidation) {
                Some(command) => {
                    best = Some(command);
                    least = middle + 1;
                }
                None => most = middle - 1,
            }
        }
        best
    }

    /// The first node that can be consolidated alone (D-167). Of NodePools whose budget is used up, and of nodes that could not be worth it (D-177), none is tried,
    /// and they take none of the time; one that is tried in vain takes nothing from the budget.
    fn first_single(&mut self, found: &[Candidate], unreached: &mut BTreeSet<String>) -> Option<Command> {
        let snapshot = self.search.snapshot;
        let name_of = |candidate: &Candidate| snapshot.pool(candidate.pool).name.clone();
        let mut missing: BTreeSet<String> = found.iter().map(name_of).collect();
        let mut tried = 0;
        for candidate in in_turn(snapshot, found, unreached) {
            if tried == MOST_SINGLE {
                *unreached = missing;
                return None;
            }
            missing.remove(&snapshot.pool(candidate.pool).name);
            let pools = self.balanced.as_ref();
            let is_hopeless = pools.is_some_and(|pools| !pools.may_approve(candidate));
            if is_hopeless || self.budget.remaining(candidate.pool) == 0 {
                continue;
            }
            tried += 1;
            let one = std::slice::from_ref(candidate);
            if let Some(command) = self.approved(one, Method::SingleNodeConsolidation) {
                return Some(command);
            }
        }
        unreached.clear();
        None
    }

    /// The command that takes these nodes away, if all NodePools that weigh what is saved find it worth the disruption (D-176).
    fn approved(&mut self, set: &[Candidate], method: Method) -> Option<Command> {
        let command = self.evaluate(set, method)?;
        let pools = self.balanced.as_ref();
        let is_worth_it = pools.is_none_or(|pools| pools.approves(set, command.savings()));
        is_worth_it.then_some(command)
    }

    /// The command that takes these nodes away, if their pods have places on nodes that stay and at most one new one that is cheaper (D-144, D §4.6).
    fn evaluate(&mut self, set: &[Candidate], method: Method) -> Option<Command> {
        let snapshot = self.search.snapshot;
        let moved = self.search.without(set, 1)?;
        let mut replacements = Vec::new();
        for claim in &moved.placements.claims {
            replacements.push(self.exchange.replacement(set, claim)?);
        }
        Some(command(
            snapshot,
            method,
            set,
            replacements,
            moved.moves(snapshot),
        ))
    }
}

#[cfg(test)]
mod tests;
