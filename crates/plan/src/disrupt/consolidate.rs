//! Consolidation of single nodes: every candidate is looked at in every pass, and the first that may go, goes (D §4.9).

use super::balanced;
use super::bare::{Bare, Numbered};
use super::budgets::BudgetMapping;
use super::candidates::Candidate;
use super::command::{Command, CommandNode, Method, Replacement};
use super::cost;
use super::evaluate::{self, Exchange, qualifies};
use super::ground::{Ground, what_if_options};
use super::hurdle::{Hurdle, Lifted, Stop};
use super::outcome::{Frontier, PoolScore};
use super::patience;
use super::simulate::WhatIf;
use super::threads;
use crate::policy::Policy;
use jiff::Timestamp;
use spokeshave_model::Price;
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::snapshot::{PodId, PoolId, Snapshot};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What a candidate can do alone.
#[derive(Clone, Debug)]
pub(super) struct Alone {
    /// Whether it may go, and what comes instead.
    pub(super) answer: Result<Brief, Stop>,
    /// How many new NodeClaims its pods need; none when a pod has no place at all.
    pub(super) claims: Option<usize>,
}

/// A plan, as far as it is kept for every candidate of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Brief {
    /// The cheapest instance type of what comes instead; none for a delete.
    pub(super) replacement: Option<String>,
    /// What that costs.
    pub(super) price_after: Price,
}

impl Brief {
    pub(super) fn of(snapshot: &Snapshot, plan: &Exchange) -> Self {
        let first = |claim: &PlannedClaim| {
            let types = &snapshot.pool(claim.pool).instance_types;
            let launch = claim.launches.first();
            launch.map_or_else(String::new, |launch| types[launch.instance_type].name.clone())
        };
        Brief {
            replacement: plan.replacements.first().map(|(claim, _)| first(claim)),
            price_after: plan.price_after,
        }
    }
}

impl Numbered for Brief {
    /// It names no pods.
    fn renumber(&mut self, _: &impl Fn(PodId) -> Option<PodId>) -> Option<()> {
        Some(())
    }
}

/// Candidates that pass the common filter, highest savings ratio first, and the refusals of the others.
pub(super) fn candidates<'g>(ground: &'g Ground<'_>) -> (Vec<&'g Candidate>, Vec<(&'g Candidate, Stop)>) {
    let mut passed = Vec::new();
    let mut refused = Vec::new();
    for candidate in ground.graceful.iter().flatten() {
        match qualifies(ground.snapshot, candidate, &Lifted::new()) {
            Ok(()) => passed.push(candidate),
            Err(stop) => refused.push((candidate, stop)),
        }
    }
    // What is compared often lies together.
    let mut sorted: Vec<(cost::Ratio, &Candidate)> = passed
        .into_iter()
        .map(|candidate| (cost::Ratio::of(candidate), candidate))
        .collect();
    sorted.sort_by(|(left, one), (right, other)| {
        let name = |candidate: &Candidate| ground.snapshot.node(candidate.node).name.as_str();
        right.cmp(left).then_with(|| name(one).cmp(name(other)))
    });
    (
        sorted.into_iter().map(|(_, candidate)| candidate).collect(),
        refused,
    )
}

/// Scores of those that are not worth it alone, the hopeless ones left out (D-177, D-179).
pub(super) fn rejected<'c>(
    ground: &Ground<'_>,
    known: impl Iterator<Item = (&'c &'c Candidate, &'c Alone)>,
) -> Vec<PoolScore> {
    let scored = known.filter_map(|(candidate, alone)| Some((candidate, alone.answer.as_ref().err()?)));
    scored
        .filter(|(candidate, stop)| !stop.scores.is_empty() && balanced::best_case_passes(ground, candidate))
        .flat_map(|(_, stop)| stop.scores.iter().cloned())
        .collect()
}

/// Where `decide_each_alone` stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What all candidates share is there.
    Begun,
    /// One more candidate is decided about.
    Decided,
}

/// Decides about each candidate of single-node consolidation alone, in one thread, as a pass does, and calls `seen` on the way: for whoever wants to
/// know how long a decision takes. The answers are those of a pass, and dropped.
pub fn decide_each_alone(snapshot: &Snapshot, policy: &Policy, now: Timestamp, mut seen: impl FnMut(Stage)) {
    let ground = Ground::new(snapshot, policy, now, &BTreeSet::new());
    let options = what_if_options(policy);
    let mut what_if = WhatIf::new(snapshot, &options, now, &ground.withheld);
    let (passed, _) = candidates(&ground);
    seen(Stage::Begun);
    for candidate in passed {
        // The answer is what a pass would act on; here only making it counts.
        std::hint::black_box(alone(&ground, &mut what_if, candidate));
        seen(Stage::Decided);
    }
}

/// What is said about one candidate before anything is weighed.
fn ask_alone<'a>(ground: &Ground<'a>, what_if: &mut WhatIf<'a>, candidate: &Candidate) -> Bare<Brief> {
    Bare::ask(ground, what_if, &[candidate], |_, plan| {
        Brief::of(ground.snapshot, &plan)
    })
}

/// The answer about a candidate now.
pub(super) fn settled(ground: &Ground<'_>, candidate: &Candidate, bare: &Bare<Brief>) -> Alone {
    let answer = bare.found.clone().and_then(|brief| {
        let savings = candidate.price.saturating_sub(brief.price_after);
        let replaces = brief.replacement.is_some();
        let is_weighed = balanced::is_balanced(ground, candidate.pool)
            || !ground.paybacks.is_empty()
            || ground.policy.disrupt.rounds;
        if !is_weighed {
            return Ok(brief);
        }
        bare.approved(ground, &[candidate], savings, replaces)?;
        Ok(brief)
    });
    Alone {
        answer,
        claims: bare.claims,
    }
}

/// Looks at one candidate alone.
fn alone<'a>(ground: &Ground<'a>, what_if: &mut WhatIf<'a>, candidate: &Candidate) -> Alone {
    let bare = ask_alone(ground, what_if, candidate);
    settled(ground, candidate, &bare)
}

/// Looks at every candidate alone, on as many threads as the policy says. Answers are in the order of the candidates and do not depend on
/// the number of threads: every what-if leaves the engine as it was.
pub(super) fn all_alone<'a>(
    ground: &Ground<'a>,
    what_if: &mut WhatIf<'a>,
    candidates: &[&Candidate],
) -> Vec<Bare<Brief>> {
    let threads = ground.policy.disrupt.threads.clamp(1, 1 + candidates.len() / 64);
    if threads == 1 {
        return candidates
            .iter()
            .map(|candidate| ask_alone(ground, what_if, candidate))
            .collect();
    }
    let done = threads::in_chunks(
        candidates,
        threads,
        || what_if.worker(),
        |mut what_if, chunk: &[&Candidate]| {
            let answers: Vec<Bare<Brief>> = chunk
                .iter()
                .map(|candidate| ask_alone(ground, &mut what_if, candidate))
                .collect();
            (answers, what_if.statistics)
        },
    );
    let (answers, work): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    for statistics in work {
        what_if.statistics.add(statistics);
    }
    answers.into_iter().flatten().collect()
}

/// D-059: the best of each NodePool, then the second best of each, and so on. Positions into `candidates`, which are in order of ratio.
pub(super) fn fair_order(candidates: &[&Candidate]) -> Vec<usize> {
    let mut rank_in_pool: BTreeMap<PoolId, usize> = BTreeMap::new();
    let mut order: Vec<(usize, usize)> = candidates
        .iter()
        .enumerate()
        .map(|(position, candidate)| {
            let rank = rank_in_pool.entry(candidate.pool).or_default();
            *rank += 1;
            (*rank, position)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, position)| position).collect()
}

/// The candidates that may go, in fair order or, with rounds, what is worth most first, and how many were passed over because of a budget.
pub(super) fn able_alone(
    ground: &Ground<'_>,
    candidates: &[&Candidate],
    answers: &[&Alone],
) -> (Vec<usize>, usize) {
    let budgets: &BudgetMapping = ground.budget(&Method::SingleNodeConsolidation.reason());
    let mut constrained = 0;
    let mut able = Vec::new();
    for position in fair_order(candidates) {
        if !budgets.allows(candidates[position].place()) {
            constrained += 1;
        } else if answers[position].answer.is_ok() {
            able.push(position);
        }
    }
    if ground.policy.disrupt.rounds {
        able.sort_by_cached_key(|position| {
            let scores = scores(ground, candidates[*position], answers[*position]);
            Reverse(patience::worth(&scores))
        });
    }
    (able, constrained)
}

/// With rounds, the scores of the best candidate that the search of single nodes will start; none while only moves are made that cannot disappoint, which
/// it looks at one by one.
pub(super) fn best_alone(
    ground: &Ground<'_>,
    frontier: &Frontier,
    candidates: &[&Candidate],
    answers: &[&Alone],
) -> Option<Vec<PoolScore>> {
    if !ground.policy.disrupt.rounds || frontier.is_cautious() {
        return None;
    }
    let (able, _) = able_alone(ground, candidates, answers);
    let best = *able.first()?;
    Some(scores(ground, candidates[best], answers[best]))
}

/// What a candidate scores alone.
fn scores(ground: &Ground<'_>, candidate: &Candidate, alone: &Alone) -> Vec<PoolScore> {
    let answer = alone.answer.as_ref();
    let after = answer.map_or(candidate.price, |brief| brief.price_after);
    balanced::scores(ground, &[candidate], candidate.price.saturating_sub(after))
}

/// Evaluates a set once more and writes the command down, with the place of every pod.
pub(super) fn command<'a>(
    ground: &Ground<'a>,
    what_if: &mut WhatIf<'a>,
    method: Method,
    set: &[&Candidate],
) -> Result<(Command, Exchange), Stop> {
    evaluate::what_if(
        ground,
        what_if,
        set,
        &pods_of(set),
        &Lifted::new(),
        &mut None,
        |moved, plan| {
            let command = written(ground, method, set, &plan, moved.moves(set));
            (command, plan)
        },
    )
}

/// How many of the candidates the budgets leave no room for.
pub(super) fn over_budget(ground: &Ground<'_>, candidates: &[&Candidate]) -> usize {
    let mut budgets = ground.budget(&Method::MultiNodeConsolidation.reason()).clone();
    let over = candidates
        .iter()
        .filter(|candidate| !budgets.take_node(candidate.place()));
    over.count()
}

/// Whether the last command for a candidate did not stand, and it rests.
pub(super) fn rests(frontier: &Frontier, ground: &Ground<'_>, candidate: &Candidate) -> bool {
    let view = ground.snapshot.node(candidate.node);
    frontier.rests(&format!("node/{}", view.provider_id), ground.now)
}

/// The pods of a set that need places.
pub(super) fn pods_of(set: &[&Candidate]) -> Vec<PodId> {
    set.iter()
        .flat_map(|candidate| candidate.moving.iter().copied())
        .collect()
}

/// A command as names.
pub(super) fn written(
    ground: &Ground<'_>,
    method: Method,
    set: &[&Candidate],
    plan: &Exchange,
    moves: Vec<super::command::Move>,
) -> Command {
    Command {
        method,
        nodes: set
            .iter()
            .map(|candidate| CommandNode::of(ground.snapshot, candidate.node))
            .collect(),
        replacements: plan
            .replacements
            .iter()
            .map(|(claim, price)| Replacement::of(ground.snapshot, claim.clone(), *price))
            .collect(),
        moves,
        price_before: plan.price_before,
        price_after: plan.price_after,
    }
}

/// Whether a candidate alone is refused for good reason to tell: `Unconsolidatable` (D §4.6).
pub(super) fn told(answer: &Result<Brief, Stop>) -> Option<&str> {
    let stop = answer.as_ref().err()?;
    let silent = matches!(
        stop.hurdle,
        Hurdle::Score | Hurdle::Patience | Hurdle::DisruptionPolicy
    ) || stop.text.is_empty();
    (!silent).then_some(stop.text.as_str())
}
