//! Consolidation of single nodes: every candidate is looked at in every pass, and the first that may go, goes (D §4.9).

use super::alike::Likeness;
use super::balanced;
use super::bare::{Bare, Numbered};
use super::budgets::BudgetMapping;
use super::candidates::Candidate;
use super::command::{Command, CommandNode, Method, Replacement};
use super::evaluate::{self, Exchange, qualifies};
use super::ground::{Ground, what_if_options};
use super::hurdle::{Hurdle, Lifted, Stop};
use super::kept::Glance;
use super::outcome::{Frontier, PoolScore, node_key};
use super::patience;
use super::simulate::WhatIf;
use super::threads;
use crate::policy::Policy;
use jiff::Timestamp;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_model::{Event, Price};
use std::cmp::Reverse;
use std::sync::Arc;

/// What a candidate can do alone.
#[derive(Clone, Debug)]
pub(super) struct Alone<'k> {
    bare: &'k Bare<Brief>,
    /// Why what it saves is not worth it now.
    refusal: Option<Box<Stop>>,
    is_able: bool,
    /// Why it stays is told.
    is_told: bool,
    /// What is told where the answer itself says why.
    events: &'k [Arc<Event>],
    /// How many new NodeClaims its pods need; none when a pod has no place at all.
    pub(super) claims: Option<u32>,
}

impl<'k> Alone<'k> {
    /// Whether it may go, and what comes instead.
    pub(super) fn answer(&self) -> Result<&Brief, &Stop> {
        match &self.refusal {
            Some(stop) => Err(stop),
            None => self.bare.found.as_ref(),
        }
    }

    /// Whether it may go.
    pub(super) fn is_able(&self) -> bool {
        self.is_able
    }

    /// The events to be told, where it is refused for the reason that its answer gives.
    pub(super) fn kept_events(&self) -> Option<&'k [Arc<Event>]> {
        (self.is_told && self.refusal.is_none()).then_some(self.events)
    }
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

/// Candidates that pass the common filter, highest savings ratio first.
pub(super) fn candidates<'g>(ground: &'g Ground<'_>) -> Vec<&'g Candidate> {
    let mut candidates = Vec::with_capacity(ground.register.qualified_count());
    candidates.extend(ground.register.qualified());
    candidates
}

/// The others, and why they do not.
pub(super) fn refused<'g>(ground: &'g Ground<'_>) -> impl Iterator<Item = (&'g Candidate, Stop)> {
    let unqualified = ground.register.unqualified();
    unqualified.filter_map(|candidate| {
        let stop = qualifies(ground.snapshot, candidate, &Lifted::new()).err()?;
        Some((candidate, stop))
    })
}

/// Scores of those that are not worth it alone, the hopeless ones left out (D-177, D-179).
pub(super) fn rejected<'c>(
    ground: &Ground<'_>,
    known: impl Iterator<Item = (&'c &'c Candidate, &'c Alone<'c>)>,
) -> Vec<PoolScore> {
    let scored = known.filter_map(|(candidate, alone)| Some((candidate, alone.answer().err()?)));
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
    let ground = Ground::new(snapshot, policy, now);
    let options = what_if_options(policy);
    let mut what_if = WhatIf::new(snapshot, &options, now, &ground.withheld);
    seen(Stage::Begun);
    for candidate in candidates(&ground) {
        // The answer is what a pass would act on; here only making it counts.
        std::hint::black_box(ask_alone(&ground, &mut what_if, candidate));
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
pub(super) fn settled<'k>(
    ground: &Ground<'_>,
    candidate: &Candidate,
    bare: &'k Bare<Brief>,
    glance: &Glance,
    events: &'k [Arc<Event>],
) -> Alone<'k> {
    let refusal = glance.is_found.then(|| {
        let savings = candidate.price.saturating_sub(glance.price_after);
        let is_weighed = !ground.paybacks.is_empty()
            || balanced::is_low(ground, candidate, savings)
            || (glance.replaces && patience::may_wait(ground, candidate, savings));
        let answer = is_weighed.then(|| bare.approved(ground, &[candidate], savings, glance.replaces));
        answer.and_then(Result::err)
    });
    let refusal = refusal.flatten();
    Alone {
        is_able: refusal.is_none() && glance.is_found,
        is_told: refusal.as_ref().map_or(glance.is_told, |stop| !is_silent(stop)),
        refusal: refusal.map(Box::new),
        events,
        claims: glance.claims,
        bare,
    }
}

/// Looks at every candidate alone, on as many threads as the policy says. Answers are in the order of the candidates and do not depend on
/// the number of threads: every what-if leaves the engine as it was. Of candidates that are alike one is asked about.
pub(super) fn all_alone<'a>(
    ground: &Ground<'a>,
    what_if: &mut WhatIf<'a>,
    candidates: &[&Candidate],
) -> Vec<Arc<Bare<Brief>>> {
    let mut firsts: FxHashMap<*const Likeness, usize> = FxHashMap::with_hasher(FxBuildHasher);
    let mut asked: Vec<&Candidate> = Vec::new();
    let mut source: Vec<usize> = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let known = match ground.register.likeness(candidate.node) {
            Some(likeness) => *firsts.entry(likeness).or_insert(asked.len()),
            None => asked.len(),
        };
        if known == asked.len() {
            asked.push(candidate);
        }
        source.push(known);
    }
    let mut answers = ask_all(ground, what_if, &asked);
    // A refusal that names a pod is about that pod.
    let own: Vec<usize> = (0..candidates.len())
        .filter(|position| {
            let first = source[*position];
            answers[first].names_pods() && asked[first].node != candidates[*position].node
        })
        .collect();
    let others: Vec<&Candidate> = own.iter().map(|position| candidates[*position]).collect();
    let more = ask_all(ground, what_if, &others);
    for (position, answer) in own.into_iter().zip(more) {
        source[position] = answers.len();
        answers.push(answer);
    }
    what_if.statistics.shared += (candidates.len() - answers.len()) as u64;
    #[cfg(debug_assertions)]
    if ground.snapshot.pods.len() <= super::pass::COMPARED_PODS {
        let statistics = what_if.statistics;
        for (candidate, source) in candidates.iter().zip(&source) {
            if asked
                .get(*source)
                .is_some_and(|first| first.node != candidate.node)
            {
                let (own, answer) = (ask_alone(ground, what_if, candidate), &answers[*source]);
                let both = ((&own.found, own.claims), (&answer.found, answer.claims));
                assert_eq!(both.0, both.1, "what is said of one is true of what is like it");
            }
        }
        what_if.statistics = statistics;
    }
    source
        .into_iter()
        .map(|source| Arc::clone(&answers[source]))
        .collect()
}

fn ask_all<'a>(
    ground: &Ground<'a>,
    what_if: &mut WhatIf<'a>,
    candidates: &[&Candidate],
) -> Vec<Arc<Bare<Brief>>> {
    let threads = ground.policy.disrupt.threads.clamp(1, 1 + candidates.len() / 64);
    if threads == 1 {
        let ask = |candidate: &&Candidate| Arc::new(ask_alone(ground, what_if, candidate));
        return candidates.iter().map(ask).collect();
    }
    let done = threads::in_chunks(
        candidates,
        threads,
        || what_if.worker(),
        |mut what_if, chunk: &[&Candidate]| {
            let ask = |candidate: &&Candidate| Arc::new(ask_alone(ground, &mut what_if, candidate));
            let answers: Vec<Arc<Bare<Brief>>> = chunk.iter().map(ask).collect();
            (answers, what_if.statistics)
        },
    );
    let (answers, work): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    for statistics in work {
        what_if.statistics.add(statistics);
    }
    answers.into_iter().flatten().collect()
}

/// The candidates that may go, in fair order or, with rounds, what is worth most first, and how many were passed over because of a budget.
pub(super) fn able_alone(
    ground: &Ground<'_>,
    candidates: &[&Candidate],
    answers: &[&Alone<'_>],
) -> (Vec<usize>, usize) {
    let budgets: &BudgetMapping = ground.budget(&Method::SingleNodeConsolidation.reason());
    let mut constrained = 0;
    // D-059: the best of each NodePool, then the second best of each, and so on.
    let mut ranks: Vec<usize> = vec![0; ground.snapshot.pools.len()];
    let mut able: Vec<(usize, usize)> = Vec::new();
    for (position, candidate) in candidates.iter().enumerate() {
        let rank = &mut ranks[candidate.pool.index()];
        *rank += 1;
        if !budgets.allows(candidate.place()) {
            constrained += 1;
        } else if answers[position].is_able() {
            able.push((*rank, position));
        }
    }
    able.sort_unstable();
    let mut able: Vec<usize> = able.into_iter().map(|(_, position)| position).collect();
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
    answers: &[&Alone<'_>],
) -> Option<Vec<PoolScore>> {
    if !ground.policy.disrupt.rounds || frontier.is_cautious() {
        return None;
    }
    let (able, _) = able_alone(ground, candidates, answers);
    let best = *able.first()?;
    Some(scores(ground, candidates[best], answers[best]))
}

/// What a candidate scores alone.
fn scores(ground: &Ground<'_>, candidate: &Candidate, alone: &Alone<'_>) -> Vec<PoolScore> {
    let answer = alone.answer();
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
        &pods_of(ground.snapshot, set),
        &Lifted::new(),
        &mut None,
        |moved, plan| {
            let command = written(ground, method, set, &plan, Arc::new(moved.moves(set)));
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

/// Whether the last command for a candidate did not stand, and it rests: for a time, and where its pods had lost their places until something changes. What has
/// no pods any more has no places to lose.
pub(super) fn rests(frontier: &Frontier, ground: &Ground<'_>, candidate: &Candidate) -> bool {
    let provider_id = &ground.snapshot.node(candidate.node).provider_id;
    if candidate.moving_count() > 0 && frontier.has_lost_places(provider_id) {
        return true;
    }
    let until = || frontier.node_rests_until(&node_key(provider_id), provider_id, ground.now);
    !frontier.back_offs.is_empty() && until().is_some()
}

/// The pods of a set that need places.
pub(super) fn pods_of(snapshot: &Snapshot, set: &[&Candidate]) -> Vec<PodId> {
    set.iter()
        .flat_map(|candidate| candidate.moving(snapshot).into_owned())
        .collect()
}

/// A command as names.
pub(super) fn written(
    ground: &Ground<'_>,
    method: Method,
    set: &[&Candidate],
    plan: &Exchange,
    moves: Arc<Vec<super::command::Move>>,
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
pub(super) fn told<'a>(alone: &'a Alone<'_>) -> Option<&'a str> {
    if !alone.is_told {
        return None;
    }
    alone.answer().err().map(|stop| stop.text.as_str())
}

/// Whether nobody is told why.
pub(super) fn is_silent(stop: &Stop) -> bool {
    let is_passing = matches!(
        stop.hurdle,
        Hurdle::Score | Hurdle::Patience | Hurdle::DisruptionPolicy
    );
    is_passing || stop.text.is_empty()
}
