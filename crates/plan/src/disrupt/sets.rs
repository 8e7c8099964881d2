//! Consolidation of several nodes at once (D §4.8), as a search over sets.
//!
//! Upstream looks at prefixes of one sorted list, so that one node that cannot move hides all behind it. Here the prefix search runs too, and
//! so the answer is never worse than its answer; besides, sweeps go through all candidates and keep every node whose pods still fit: one that
//! only deletes, several with at most one replacement, and exchanges of one node against others. With rounds, more sweeps and exchanges refine what was
//! found, as far as a fixed number of steps goes. All is counted in steps, never in time.

use super::balanced;
use super::bare::{Bare, Numbered};
use super::budgets::BudgetMapping;
use super::candidates::Candidate;
use super::cautious;
use super::command::{Command, Method, Move};
use super::consolidate::{Alone, written};
use super::evaluate::{Exchange, most_replacements};
use super::ground::Ground;
use super::kept::{KeptSets, LONGEST_SWEEP, Reads};
use super::outcome::{Frontier, PoolScore};
use super::patience;
use super::simulate::{Follow, Placed, WhatIf, moves, moving_in_turn};
use spokeshave_api::constants::MULTI_NODE_CANDIDATES;
use spokeshave_model::Price;
use spokeshave_model::snapshot::{PodId, PoolId};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};

/// A set that may go.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) plan: Exchange,
    pub(super) command: Command,
}

/// The plan of a set, before it is scored, and where its pods would go.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    plan: Exchange,
    places: Vec<Placed>,
    /// The same with names, once somebody has asked. They stay what they are for as long as nodes and pods do.
    moves: OnceLock<Arc<Vec<Move>>>,
}

impl Numbered for Whole {
    fn renumber(&mut self, new: &impl Fn(PodId) -> Option<PodId>) -> Option<()> {
        let claims = self.plan.replacements.iter_mut();
        let in_claims = claims.flat_map(|(claim, _)| &mut claim.pods);
        for pod in in_claims.chain(self.places.iter_mut().map(|placed| &mut placed.pod)) {
            *pod = new(*pod)?;
        }
        Some(())
    }
}

/// The best set so far.
#[derive(Clone, Debug)]
struct Best {
    /// Positions into the candidates, ascending.
    members: Vec<usize>,
    bare: Arc<Bare<Whole>>,
    scores: Vec<PoolScore>,
    savings: Price,
    replacements: usize,
}

/// A search over the candidates of one pass.
pub(super) struct Search<'s, 'a> {
    ground: &'s Ground<'a>,
    /// In order of savings ratio; none of them rests.
    candidates: &'s [&'s Candidate],
    answers: &'s [&'s Alone<'s>],
    /// By node, the pods of each candidate in their turn, once a sweep has asked for them: sweeps ask again and again, and those that are kept never.
    moving: Vec<OnceCell<Vec<PodId>>>,
    /// Steps left.
    steps: usize,
    /// Which seeds come next.
    seed: u64,
    cautious: bool,
    best: Option<Best>,
    /// What the last pass has asked, where it is kept.
    kept: Option<&'s mut KeptSets>,
    /// Scores of the last set that was not worth it.
    rejected: Vec<PoolScore>,
}

impl<'s, 'a> Search<'s, 'a> {
    pub(super) fn new(
        ground: &'s Ground<'a>,
        candidates: &'s [&'s Candidate],
        answers: &'s [&'s Alone<'s>],
        frontier: &Frontier,
        kept: Option<&'s mut KeptSets>,
    ) -> Self {
        Search {
            kept,
            ground,
            candidates,
            answers,
            moving: Vec::new(),
            steps: ground.policy.disrupt.search_steps,
            seed: frontier.seed,
            cautious: frontier.is_cautious(),
            best: None,
            rejected: Vec::new(),
        }
    }

    /// How many passes it takes until every seed has had its turn; a handful at most.
    pub(super) fn rounds(&self) -> u64 {
        let needy = self.answers.iter().filter(|answer| answer.claims == Some(1));
        u64::try_from(needy.count().div_ceil(SEEDS))
            .unwrap_or(1)
            .min(ROUNDS)
    }

    /// The best set found; where there is none, the scores of the last set that was not worth it.
    pub(super) fn run(mut self, what_if: &mut WhatIf<'a>) -> Result<Found, Vec<PoolScore>> {
        if self.candidates.len() >= 2 {
            let nodes = self.ground.snapshot.nodes.len();
            self.moving.resize_with(nodes, OnceCell::new);
            self.search(what_if);
        }
        let best = self.best.take().and_then(|best| self.written(best));
        best.ok_or(self.rejected)
    }

    fn set(&self, members: &[usize]) -> Vec<&'s Candidate> {
        members
            .iter()
            .map(|position| self.candidates[*position])
            .collect()
    }

    fn written(&self, best: Best) -> Option<Found> {
        let whole = best.bare.found.as_ref().ok()?;
        let plan = Exchange {
            scores: best.scores,
            ..whole.plan.clone()
        };
        let command = self.command(&self.set(&best.members), whole);
        Some(Found { plan, command })
    }

    fn command(&self, set: &[&Candidate], whole: &Whole) -> Command {
        let moves = whole
            .moves
            .get_or_init(|| Arc::new(moves(self.ground.snapshot, &whole.places)));
        written(
            self.ground,
            Method::MultiNodeConsolidation,
            set,
            &whole.plan,
            Arc::clone(moves),
        )
    }

    fn search(&mut self, what_if: &mut WhatIf<'a>) {
        self.prefixes(what_if);
        // What a node's pods need alone, they need no less of when other nodes go too.
        let most = most_replacements(self.ground, self.candidates.len());
        let within = |most: usize| -> Vec<usize> {
            (0..self.candidates.len())
                .filter(|position| {
                    self.answers[*position]
                        .claims
                        .is_some_and(|claims| claims as usize <= most)
                        && balanced::best_case_passes(self.ground, self.candidates[*position])
                })
                .collect()
        };
        let (deletable, movable) = (within(0), within(most));
        if self.ground.policy.disrupt.rounds {
            // Nodes that cost less than their evictions weigh are left out at first: they take the pods of the others.
            let worthy = |positions: &[usize]| -> Vec<usize> {
                let may_be =
                    |position: &usize| patience::may_be_worth_it(self.ground, self.candidates[*position]);
                positions.iter().copied().filter(may_be).collect()
            };
            let (deletable, movable) = (worthy(&deletable), worthy(&movable));
            self.sweeps(what_if, most, &deletable, &movable);
            self.refine(what_if, most, &movable);
            if self
                .best
                .as_ref()
                .is_some_and(|best| patience::is_worth_it(&best.scores))
            {
                return;
            }
        }
        self.sweeps(what_if, most, &deletable, &movable);
        if self.ground.policy.disrupt.rounds {
            self.refine(what_if, most, &movable);
        }
    }

    /// Where the cluster is small enough to be gone through many times: sweeps in order of the money that stands idle, and exchanges for as long as one of
    /// them finds something better.
    fn refine(&mut self, what_if: &mut WhatIf<'a>, most: usize, movable: &[usize]) {
        let end = self.steps.saturating_sub(REFINING_STEPS);
        let mut idlest = movable.to_vec();
        idlest.sort_by_cached_key(|position| (Reverse(self.idle(*position)), *position));
        for claims in 0..=most {
            if self.steps < end + idlest.len() {
                return;
            }
            self.sweep(what_if, claims, Follow::All, &idlest);
        }
        while let Some(best) = self.best.clone() {
            for dropped in &best.members {
                let order = turn_of_others(&best.members, *dropped, &idlest);
                for claims in 0..=most {
                    if self.steps < end + order.len() {
                        return;
                    }
                    self.sweep(what_if, claims, Follow::All, &order);
                }
            }
            if self.best.as_ref().is_some_and(|now| now.members == best.members) {
                return;
            }
        }
    }

    /// What is paid for the part of a node that nobody asked for, by the resource of which most is asked for.
    fn idle(&self, position: usize) -> i128 {
        let candidate = self.candidates[position];
        let view = self.ground.snapshot.node(candidate.node);
        let price = i128::from(candidate.price.0);
        let shares = view.allocatable.0.iter().zip(&view.requested.0);
        let idle = shares
            .filter(|(all, asked)| **all > 0 && **asked > 0)
            .map(|(all, asked)| price * i128::from((all - asked).max(0)) / i128::from(*all));
        idle.min().unwrap_or(price)
    }

    /// Sweeps that only delete, sweeps with replacements, and exchanges of what was found.
    fn sweeps(&mut self, what_if: &mut WhatIf<'a>, most: usize, deletable: &[usize], movable: &[usize]) {
        self.sweep(what_if, 0, Follow::Own, deletable);
        for seed in self.seeds(movable) {
            if self.steps < movable.len() {
                break;
            }
            let others = movable.iter().copied().filter(|other| *other != seed);
            let order: Vec<usize> = std::iter::once(seed).chain(others).collect();
            for claims in 1..=most {
                self.sweep(what_if, claims, Follow::Own, &order);
            }
        }
        let replaces = self.best.as_ref().is_some_and(|best| best.replacements > 0);
        self.exchange(what_if, if replaces { movable } else { deletable });
    }

    /// Candidates whose pods need one new NodeClaim: where a sweep with a replacement may start. A few, others in each pass.
    fn seeds(&self, movable: &[usize]) -> Vec<usize> {
        let needy: Vec<usize> = movable
            .iter()
            .copied()
            .filter(|position| self.answers[*position].claims == Some(1))
            .collect();
        let count = needy.len().min(SEEDS);
        let start = usize::try_from(self.seed).unwrap_or(0).wrapping_mul(SEEDS);
        (0..count)
            .map(|index| needy[start.wrapping_add(index) % needy.len()])
            .collect()
    }

    /// D-159: upstream's binary search over the length of a prefix.
    fn prefixes(&mut self, what_if: &mut WhatIf<'a>) {
        let mut budgets = self.budgets();
        let taken: Vec<usize> = (0..self.candidates.len())
            .filter(|position| budgets.take_node(self.candidates[*position].place()))
            .take(MULTI_NODE_CANDIDATES)
            .collect();
        if taken.len() < 2 {
            return;
        }
        let (mut low, mut high) = (1, (taken.len() - 1).min(MULTI_NODE_CANDIDATES - 1));
        while low <= high {
            let middle = usize::midpoint(low, high);
            let members = &taken[..=middle];
            if self.whole(what_if, members) {
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
    }

    /// Evaluates one set from scratch; true when it may go.
    fn whole(&mut self, what_if: &mut WhatIf<'a>, members: &[usize]) -> bool {
        let set = self.set(members);
        self.steps = self.steps.saturating_sub(members.len());
        let bare = self.bare(what_if, &set);
        let found = match &bare.found {
            Ok(whole) => {
                let (savings, replacements) = (whole.plan.savings(), whole.plan.replacements.len());
                let approved = bare.approved(self.ground, &set, savings, replacements > 0);
                approved.map(|scores| (scores, savings, replacements))
            }
            Err(stop) => Err(stop.clone()),
        };
        let is_trusted = |whole: &Whole| {
            !self.cautious || cautious::is_safe(self.ground, &set, &self.command(&set, whole))
        };
        match found {
            Ok((scores, savings, replacements)) if bare.found.as_ref().is_ok_and(is_trusted) => {
                self.offer(Best {
                    members: members.to_vec(),
                    bare,
                    scores,
                    savings,
                    replacements,
                });
                true
            }
            Ok(_) => false,
            Err(stop) => {
                if !stop.scores.is_empty() {
                    self.rejected = stop.scores;
                }
                false
            }
        }
    }

    /// What is said about a set before it is weighed, now or in the last pass.
    fn bare(&mut self, what_if: &mut WhatIf<'a>, set: &[&Candidate]) -> Arc<Bare<Whole>> {
        if let Some(known) = self.kept.as_mut().and_then(|kept| kept.whole(set)) {
            what_if.statistics.kept += 1;
            return known;
        }
        let bare = Arc::new(Bare::ask(self.ground, what_if, set, |moved, plan| Whole {
            plan,
            places: moved.places(set),
            moves: OnceLock::new(),
        }));
        if let Some(kept) = &mut self.kept {
            kept.keep_whole(self.ground.snapshot, set, &bare);
        }
        bare
    }

    fn budgets(&self) -> BudgetMapping {
        self.ground
            .budget(&Method::MultiNodeConsolidation.reason())
            .clone()
    }

    /// Goes through candidates in order and keeps each whose pods still find places with at most so many replacements.
    fn sweep(&mut self, what_if: &mut WhatIf<'a>, claims: usize, follow: Follow, order: &[usize]) {
        let budgets = self.budgets();
        let pools = (0..self.ground.snapshot.pools.len()).map(PoolId::from);
        let offers = Offers {
            candidates: self.candidates,
            open: pools.map(|pool| budgets.remaining(pool) > 0).collect(),
            budgets,
            order,
            next: 0,
            trying: None,
            kept: Vec::new(),
            steps: self.steps,
        };
        let offers = self.go_through(what_if, claims, follow, offers);
        self.steps = offers.steps;
        let mut kept = offers.kept;
        kept.sort_unstable();
        // Placed all together, as they will be: pods in order of size. Where that fails, one node fewer often does.
        while kept.len() >= 2 && !self.whole(what_if, &kept) {
            if self.steps < kept.len() || kept.len() > SHRINK_LIMIT {
                break;
            }
            kept.pop();
        }
    }

    /// Makes a sweep, or takes it from the last pass.
    fn go_through<'o>(
        &mut self,
        what_if: &mut WhatIf<'a>,
        claims: usize,
        follow: Follow,
        offers: Offers<'o>,
    ) -> Offers<'o>
    where
        's: 'o,
    {
        if let Some(known) = &mut self.kept {
            let mut replayed = offers.clone();
            if known.replay(claims, follow, |was_kept| replayed.next(was_kept)) {
                what_if.statistics.kept += 1;
                return replayed;
            }
        }
        let mut offers = offers;
        let (mut tried, mut fits, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        let keeps = self.kept.is_some();
        let (ground, moving) = (self.ground, &self.moving);
        let in_vain = what_if.watched_sweep(
            claims,
            follow,
            |candidate| {
                let known = &moving[candidate.node.index()];
                let pods = known.get_or_init(|| moving_in_turn(ground.snapshot, candidate));
                let likeness = ground.register.likeness(candidate.node);
                (Cow::Borrowed(pods.as_slice()), likeness)
            },
            |was_kept, taken| {
                if keeps && tried.len() <= LONGEST_SWEEP {
                    fits.extend(was_kept);
                    nodes.extend_from_slice(taken);
                }
                let candidate = offers.next(was_kept);
                if keeps && tried.len() <= LONGEST_SWEEP {
                    tried.extend(candidate);
                }
                candidate
            },
            |moved| moved.in_vain().cloned(),
        );
        if let Some(kept) = &mut self.kept
            && tried.len() <= LONGEST_SWEEP
        {
            let mut reads = Reads::default();
            reads.add(nodes.into_iter(), in_vain.as_ref());
            kept.keep_sweep(self.ground.snapshot, (claims, follow), &tried, fits, reads);
        }
        offers
    }

    /// Drops one node of the best set and lets others take its turn.
    fn exchange(&mut self, what_if: &mut WhatIf<'a>, movable: &[usize]) {
        let Some(best) = self.best.clone() else { return };
        let claims = best.replacements;
        let count = best.members.len().min(EXCHANGES);
        let start = usize::try_from(self.seed).unwrap_or(0);
        for index in 0..count {
            if self.steps < movable.len() {
                return;
            }
            let dropped = best.members[start.wrapping_add(index) % best.members.len()];
            let order = turn_of_others(&best.members, dropped, movable);
            self.sweep(what_if, claims, Follow::Own, &order);
        }
    }

    /// Keeps the better one: more savings, with rounds beyond what the evictions weigh, then fewer nodes, then the earlier candidates.
    fn offer(&mut self, found: Best) {
        let by_worth = self.ground.policy.disrupt.rounds;
        let rank = |found: &Best| {
            let worth = if by_worth {
                patience::worth(&found.scores)
            } else {
                i128::from(found.savings.0)
            };
            (
                worth,
                Reverse(found.members.len()),
                Reverse(found.members.clone()),
            )
        };
        if self.best.as_ref().is_none_or(|best| rank(best) < rank(&found)) {
            self.best = Some(found);
        }
    }
}

/// Which candidates a sweep tries: in order, those that budgets allow, until enough are kept.
#[derive(Clone)]
struct Offers<'o> {
    candidates: &'o [&'o Candidate],
    budgets: BudgetMapping,
    /// By NodePool, whether its budgets have something left.
    open: Vec<bool>,
    order: &'o [usize],
    next: usize,
    trying: Option<usize>,
    kept: Vec<usize>,
    /// Steps left.
    steps: usize,
}

impl<'o> Offers<'o> {
    /// The next candidate, when the last one was kept or not.
    fn next(&mut self, was_kept: Option<bool>) -> Option<&'o Candidate> {
        if was_kept == Some(true)
            && let Some(position) = self.trying
        {
            let (pool, node) = self.candidates[position].place();
            self.budgets.take_node((pool, node));
            self.open[pool.index()] = self.budgets.remaining(pool) > 0;
            self.kept.push(position);
        }
        if self.kept.len() >= MULTI_NODE_CANDIDATES || self.steps == 0 {
            return None;
        }
        self.steps -= 1;
        self.trying = None;
        while let Some(position) = self.order.get(self.next).copied() {
            self.next += 1;
            let (pool, node) = self.candidates[position].place();
            if self.open[pool.index()] && self.budgets.policies.permits(node) {
                self.trying = Some(position);
                break;
            }
        }
        self.trying.map(|position| self.candidates[position])
    }
}

/// Sweeps with a replacement per pass.
const SEEDS: usize = 3;
/// Passes over an unchanged cluster that try new seeds.
const ROUNDS: u64 = 4;
/// Exchanges per pass.
const EXCHANGES: usize = 3;
/// The order of a sweep that keeps a set, whose members are in order, but for one of them, and tries the others in their order after it.
fn turn_of_others(members: &[usize], dropped: usize, others: &[usize]) -> Vec<usize> {
    let mut is_member = vec![false; members.last().map_or(0, |last| last + 1)];
    members.iter().for_each(|member| is_member[*member] = true);
    let rest = members.iter().filter(|member| **member != dropped);
    let others = others
        .iter()
        .filter(|position| !is_member.get(**position).copied().unwrap_or(false));
    rest.chain(others).copied().collect()
}

/// Steps of sweeps and exchanges beyond those that every cluster gets.
const REFINING_STEPS: usize = 4_000;
/// Sets up to this size are made smaller node by node when they do not fit together.
const SHRINK_LIMIT: usize = 12;
