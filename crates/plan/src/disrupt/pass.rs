//! One pass over all methods on one Snapshot (D §3.1).
//!
//! The first method that has something to start ends the pass (D-063). Nothing is created or changed, nothing waits, and equal inputs give
//! equal outcomes on any number of threads.

mod verdicts;

use super::candidates::{Candidate, blocked_events};
use super::cautious;
use super::command::{Command, Method, Move};
use super::consolidate::{self, Alone};
use super::emptiness;
use super::evaluate::{self, Exchange};
use super::events;
use super::ground::{Ground, drifted_since, what_if_options};
use super::headroom;
use super::hurdle::{Hurdle, Lifted};
use super::judge::{Judge, Unlimited};
use super::kept::Kept;
use super::outcome::{DisruptStatistics, Frontier, MethodReport, Outcome, Settled};
use super::sets::Search;
use super::simulate::{Follow, WhatIf};
use super::verdict::Verdict;
use super::{cost, drift, patience, rounds};
use crate::policy::Policy;
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::DisruptionReason;
use spokeshave_model::Event;
use spokeshave_model::snapshot::{NodeId, PoolId, Snapshot};
use spokeshave_schedule::PackOptions;
use std::collections::{BTreeMap, BTreeSet};

/// Decides what is to be disrupted now.
pub fn disrupt(snapshot: &Snapshot, policy: &Policy, now: Timestamp, frontier: &Frontier) -> Outcome {
    disrupt_watched(snapshot, policy, now, frontier, &mut |_| {})
}

/// The same, with answers of the last pass, which are asked for again only where what they have read has changed. It decides what `disrupt` decides, and
/// `kept` is then for the next pass. Debug builds compare, where the cluster is small.
pub fn disrupt_keeping(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    frontier: &Frontier,
    kept: &mut Kept,
    evaluated: &mut dyn FnMut(Method),
) -> Outcome {
    let outcome = pass(snapshot, policy, now, frontier, Some(kept), evaluated);
    #[cfg(debug_assertions)]
    if snapshot.pods.len() <= COMPARED_PODS {
        let anew = disrupt(snapshot, policy, now, frontier);
        let statistics = outcome.statistics;
        assert_eq!(
            outcome,
            Outcome { statistics, ..anew },
            "a pass with kept answers decides what one without does"
        );
    }
    outcome
}

/// Clusters of up to so many pods are compared in debug builds.
#[cfg(debug_assertions)]
const COMPARED_PODS: usize = 100;

/// The same as `disrupt`; `evaluated` is called after the evaluation of each method, so that the caller can time it (D-067). It has no influence on the outcome.
pub fn disrupt_watched(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    frontier: &Frontier,
    evaluated: &mut dyn FnMut(Method),
) -> Outcome {
    pass(snapshot, policy, now, frontier, None, evaluated)
}

fn pass(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    frontier: &Frontier,
    kept: Option<&mut Kept>,
    evaluated: &mut dyn FnMut(Method),
) -> Outcome {
    if frontier.is_settled(now) {
        return Outcome {
            frontier: frontier.clone(),
            statistics: DisruptStatistics {
                idle: true,
                ..DisruptStatistics::default()
            },
            ..Outcome::default()
        };
    }
    let settled = headroom::settle(snapshot, policy, now);
    let snapshot = settled.as_ref().unwrap_or(snapshot);
    let options = what_if_options(policy);
    let ground = Ground::new(snapshot, policy, now, &BTreeSet::new());
    let unlimited = Unlimited::new();
    let (closed, rounds) = if policy.disrupt.rounds {
        rounds::observe(snapshot, &ground.unsettled(), &frontier.rounds, now)
    } else {
        Default::default()
    };
    let frontier = &Frontier {
        calm: cautious::observe(snapshot, frontier.calm.as_ref()),
        rounds,
        ..frontier.clone()
    };
    let mut pass = Pass {
        // Where virtual pods would go is decided anew in every pass, so that nothing can be kept that looks at them.
        kept: Kept::only_if(settled.is_none(), kept),
        ground: &ground,
        options: &options,
        frontier,
        closed,
        outcome: Outcome {
            frontier: frontier.clone(),
            ..Outcome::default()
        },
        settled: None,
        alone: None,
        rounds: 0,
    };
    pass.run(evaluated);
    if policy.disrupt.verdicts {
        pass.judge(&unlimited);
    }
    pass.finish()
}

/// Judges one node: what the first method that would act on it alone would do, and otherwise what is in the way.
pub fn judge(snapshot: &Snapshot, policy: &Policy, now: Timestamp, node: NodeId) -> Verdict {
    let settled = headroom::settle(snapshot, policy, now);
    let snapshot = settled.as_ref().unwrap_or(snapshot);
    let options = what_if_options(policy);
    let ground = Ground::new(snapshot, policy, now, &BTreeSet::new());
    let unlimited = Unlimited::new();
    let what_if = WhatIf::new(snapshot, &options, now, &ground.withheld);
    Judge::new(&ground, &options, &unlimited, what_if).verdict(node, None)
}

/// What consolidation knows about its candidates.
#[derive(Default)]
struct Known<'g> {
    /// Candidates whose NodePool waits for its next round; the others follow.
    waiting: usize,
    candidates: Vec<&'g Candidate>,
    answers: Vec<Alone>,
}

struct Pass<'k, 'g, 'a> {
    kept: Option<&'k mut Kept>,
    ground: &'g Ground<'a>,
    options: &'a PackOptions,
    frontier: &'g Frontier,
    /// NodePools that wait for their next round of consolidation, and until when at the latest.
    closed: BTreeMap<PoolId, Timestamp>,
    outcome: Outcome,
    settled: Option<WhatIf<'a>>,
    alone: Option<Known<'g>>,
    /// How many passes it takes until the search over sets has used every seed.
    rounds: u64,
}

/// What one method has to say.
#[derive(Default)]
struct Said {
    eligible: usize,
    evaluated: usize,
    constrained: usize,
    commands: Vec<Command>,
    scores: Vec<super::PoolScore>,
}

impl<'g, 'a> Pass<'_, 'g, 'a> {
    fn run(&mut self, evaluated: &mut dyn FnMut(Method)) {
        let snapshot = self.ground.snapshot;
        for (node, candidate) in snapshot.node_ids().zip(&self.ground.graceful) {
            if let Err(hurdle) = candidate {
                self.outcome
                    .events
                    .extend(blocked_events(snapshot, node, *hurdle));
            }
        }
        self.tell(events::protections(snapshot, self.ground.now));
        for method in Method::ALL {
            if !self.ground.policy.disrupt.methods.contains(&method) || !self.ground.has(method) {
                continue;
            }
            let said = match method {
                Method::Emptiness => self.emptiness(),
                Method::StaticDrift | Method::StaticExpiry => self.static_replacements(method),
                Method::Drift | Method::Expiry => self.replacement(method),
                Method::MultiNodeConsolidation => self.sets(),
                Method::SingleNodeConsolidation => self.single(),
            };
            evaluated(method);
            self.outcome.eligible.insert(method, said.eligible);
            self.outcome.reports.push(MethodReport {
                method,
                eligible: said.eligible,
                evaluated: said.evaluated,
                constrained: said.constrained,
                commands: said.commands.len(),
                scores: said.scores,
            });
            if said.eligible > 0 {
                self.show_budget(method);
            }
            if !said.commands.is_empty() {
                self.outcome.commands = said.commands;
                break;
            }
        }
    }

    /// D-207, D-208.
    fn show_budget(&mut self, method: Method) {
        let reason = method.reason();
        if self.outcome.budgets.iter().all(|budget| budget.reason != reason) {
            let budget = self.ground.budget(&reason);
            self.outcome.events.extend(budget.events(self.ground.snapshot));
            self.outcome.budgets.push(budget.clone());
        }
    }

    fn settled(&mut self) -> WhatIf<'a> {
        match self.settled.take() {
            Some(what_if) => what_if,
            None => WhatIf::new(
                self.ground.snapshot,
                self.options,
                self.ground.now,
                &self.ground.withheld,
            ),
        }
    }

    fn tell(&mut self, events: Vec<Event>) {
        self.outcome.events.extend(events);
    }

    /// D-129: all empty nodes that budgets allow, as one command.
    fn emptiness(&mut self) -> Said {
        let (ground, snapshot) = (self.ground, self.ground.snapshot);
        let mut empty: Vec<Candidate> = Vec::new();
        for candidate in ground.graceful.iter().flatten() {
            match emptiness::empty(snapshot, candidate, &Lifted::new()) {
                Ok(()) => empty.push(candidate.clone()),
                Err(stop) if matches!(stop.hurdle, Hurdle::ConsolidationDisabled | Hurdle::Policy) => {
                    let events = events::unconsolidatable(snapshot, candidate.node, &stop.text);
                    self.outcome.events.extend(events);
                }
                Err(_) => {}
            }
        }
        cost::sort_by_savings_ratio(snapshot, &mut empty);
        let mut said = Said {
            eligible: empty.len(),
            evaluated: empty.len(),
            ..Said::default()
        };
        let mut budgets = ground.budget(&Method::Emptiness.reason()).clone();
        let (bare, with_pods): (Vec<&Candidate>, Vec<&Candidate>) =
            empty.iter().partition(|candidate| candidate.moving.is_empty());
        let mut taken: Vec<&Candidate> = bare
            .into_iter()
            .filter(|candidate| {
                let fits = budgets.take_node(candidate.place());
                said.constrained += usize::from(!fits);
                fits
            })
            .collect();
        let moves = if with_pods.is_empty() {
            Vec::new()
        } else {
            self.empty_with_pods(&with_pods, &mut budgets, &mut taken)
        };
        for candidate in with_pods {
            let stays = taken.iter().all(|taken| taken.node != candidate.node);
            if stays && headroom::holds(snapshot, candidate) {
                // D-128.
                let text = format!("Node {:?} has buffer pods", snapshot.node(candidate.node).name);
                self.tell(events::unconsolidatable(snapshot, candidate.node, &text));
            }
        }
        if !taken.is_empty() {
            said.commands.push(emptiness::command(snapshot, &taken, moves));
        }
        said
    }

    /// W-36: nodes whose pods nobody minds to lose go too, if those pods have places on nodes that stay.
    fn empty_with_pods<'c>(
        &mut self,
        candidates: &[&'c Candidate],
        budgets: &mut super::BudgetMapping,
        taken: &mut Vec<&'c Candidate>,
    ) -> Vec<Move> {
        let mut what_if = self.settled();
        let mut order = candidates.iter().copied();
        let mut trying: Option<&Candidate> = None;
        let mut kept: Vec<&Candidate> = Vec::new();
        // Nodes without pods go first: no pod may be sent to one of them.
        for candidate in taken.iter() {
            what_if.remove_for_good(candidate.node);
        }
        what_if.sweep(
            0,
            Follow::Own,
            |was_kept| {
                if let Some(candidate) = trying.filter(|_| was_kept == Some(true)) {
                    budgets.take_node(candidate.place());
                    kept.push(candidate);
                }
                trying = order.find(|candidate| budgets.allows(candidate.place()));
                trying
            },
            |_| (),
        );
        let nodes: Vec<NodeId> = kept.iter().map(|candidate| candidate.node).collect();
        let pods: Vec<_> = kept
            .iter()
            .flat_map(|candidate| candidate.moving.iter().copied())
            .collect();
        let moves = what_if.without(&nodes, &pods, |moved| {
            let fits = emptiness::places(moved, &Lifted::new()).is_ok();
            fits.then(|| moved.moves(&kept))
        });
        let moves = moves.filter(|moves| {
            let command = emptiness::command(self.ground.snapshot, &kept, moves.clone());
            !self.frontier.is_cautious() || cautious::is_safe(self.ground, &kept, &command)
        });
        self.outcome.statistics.add(what_if.statistics);
        match moves {
            Some(moves) => {
                taken.extend(kept);
                moves
            }
            None => Vec::new(),
        }
    }

    fn static_replacements(&mut self, method: Method) -> Said {
        let ground = self.ground;
        let candidates: Vec<Candidate> = self.replaceable(method);
        let commands = drift::static_commands(ground, method, &candidates)
            .into_iter()
            .filter(|command| !self.pool_rests(command))
            .collect();
        Said {
            eligible: candidates.len(),
            evaluated: candidates.len(),
            commands,
            ..Said::default()
        }
    }

    /// Nodes that drifted, or are older than a policy wants, in the order in which they go.
    fn replaceable(&self, method: Method) -> Vec<Candidate> {
        let ground = self.ground;
        let is_expiry = method.reason() == DisruptionReason::Expired;
        let mut candidates: Vec<Candidate> = ground
            .snapshot
            .node_ids()
            .filter(|node| is_expiry || drifted_since(ground.snapshot.node(*node)).is_some())
            .filter_map(|node| drift::candidate(ground, method, node, &Lifted::new()).ok())
            .collect();
        if is_expiry {
            drift::by_age(ground.snapshot, &mut candidates);
        } else {
            drift::in_order(ground.snapshot, &mut candidates);
        }
        candidates
    }

    fn pool_rests(&self, command: &Command) -> bool {
        command.nodes.iter().any(|node| {
            self.frontier
                .rests(&format!("drift/{}", node.pool), self.ground.now)
        })
    }

    /// D-133: the first drifted or expired node whose pods all have places.
    fn replacement(&mut self, method: Method) -> Said {
        let (ground, snapshot) = (self.ground, self.ground.snapshot);
        let candidates = self.replaceable(method);
        let mut said = Said {
            eligible: candidates.len(),
            ..Said::default()
        };
        if candidates.is_empty() {
            return said;
        }
        let mut what_if = WhatIf::new(snapshot, self.options, ground.now, &BTreeSet::new());
        let budgets = ground.budget(&method.reason());
        for candidate in &candidates {
            let pool = &snapshot.pool(candidate.pool).name;
            if !budgets.allows(candidate.place()) || self.frontier.rests(&format!("drift/{pool}"), ground.now)
            {
                said.constrained += 1;
                continue;
            }
            said.evaluated += 1;
            match drift::command(ground, method, &mut what_if, candidate) {
                Ok(command) => {
                    said.commands.push(command);
                    break;
                }
                Err(stop) => self.tell(events::blocked(snapshot, candidate.node, &stop.text)),
            }
        }
        self.outcome.statistics.add(what_if.statistics);
        said
    }

    /// Looks at every candidate of consolidation alone, once per pass. The what-if is made only when there is something to ask it: its tables are dear.
    fn know(&mut self) -> Option<WhatIf<'a>> {
        let ground = self.ground;
        if self.alone.is_none() {
            let (candidates, refused) = consolidate::candidates(ground);
            for (candidate, stop) in &refused {
                if evaluate::is_told(stop) {
                    let events = events::unconsolidatable(ground.snapshot, candidate.node, &stop.text);
                    self.outcome.events.extend(events);
                }
            }
            let all = candidates.len();
            let candidates: Vec<&Candidate> = candidates
                .into_iter()
                .filter(|candidate| !self.closed.contains_key(&candidate.pool))
                .collect();
            let mut answers = Vec::new();
            if !candidates.is_empty() {
                let mut what_if = self.settled();
                answers = self.ask_alone(&mut what_if, &candidates);
                self.settled = Some(what_if);
            } else if let Some(kept) = &mut self.kept {
                **kept = Kept::default();
            }
            for (candidate, alone) in candidates.iter().zip(&answers) {
                if let Some(text) = consolidate::told(&alone.answer) {
                    let events = events::unconsolidatable(ground.snapshot, candidate.node, text);
                    self.outcome.events.extend(events);
                }
            }
            self.alone = Some(Known {
                waiting: all - candidates.len(),
                candidates,
                answers,
            });
        }
        self.settled.take()
    }

    /// Asks about each candidate alone, where the answer is not known from the last pass.
    fn ask_alone(&mut self, what_if: &mut WhatIf<'a>, candidates: &[&Candidate]) -> Vec<Alone> {
        let ground = self.ground;
        let Some(kept) = self.kept.as_mut() else {
            let answers = consolidate::all_alone(ground, what_if, candidates);
            let both = candidates.iter().zip(&answers);
            return both
                .map(|(candidate, bare)| consolidate::settled(ground, candidate, bare))
                .collect();
        };
        kept.renew(ground, what_if.start());
        let is_unknown = |candidate: &&Candidate| kept.find(candidate).is_none();
        let unknown: Vec<&Candidate> = candidates.iter().copied().filter(is_unknown).collect();
        what_if.statistics.kept += (candidates.len() - unknown.len()) as u64;
        let answers = consolidate::all_alone(ground, what_if, &unknown);
        for (candidate, bare) in unknown.iter().zip(answers) {
            kept.keep(ground.snapshot, candidate, bare);
        }
        let settled = candidates.iter().map(|candidate| {
            let bare = kept.find(candidate);
            bare.map(|bare| consolidate::settled(ground, candidate, bare))
        });
        // Each was found or has just been kept.
        settled.collect::<Option<Vec<Alone>>>().unwrap_or_default()
    }

    fn sets(&mut self) -> Said {
        let (ground, frontier) = (self.ground, self.frontier);
        let mut what_if = self.know();
        let known = self.alone.get_or_insert_default();
        let awake: Vec<usize> = (0..known.candidates.len())
            .filter(|position| !consolidate::rests(frontier, ground, known.candidates[*position]))
            .collect();
        let candidates: Vec<&Candidate> = awake.iter().map(|position| known.candidates[*position]).collect();
        let answers: Vec<&Alone> = awake.iter().map(|position| &known.answers[*position]).collect();
        let mut said = Said {
            eligible: known.waiting + known.candidates.len(),
            evaluated: candidates.len(),
            constrained: consolidate::over_budget(ground, &candidates),
            ..Said::default()
        };
        let kept = self.kept.as_mut().and_then(|kept| kept.sets());
        let search = Search::new(ground, &candidates, &answers, frontier, kept);
        let rounds = search.rounds();
        let alone = consolidate::best_alone(ground, frontier, &candidates, &answers);
        match what_if.as_mut().map(|what_if| search.run(what_if)) {
            // One node that goes alone and is worth more goes first; without a what-if there is no candidate.
            Some(Ok(found))
                if alone
                    .as_ref()
                    .is_some_and(|alone| patience::goes_before(alone, &found.plan.scores)) => {}
            Some(Ok(found)) if !self.may_start(&found.command, &found.plan) => {}
            Some(Ok(found)) => {
                let events = events::candidates(ground.snapshot, &found.command);
                self.outcome.events.extend(events);
                said.scores = found.plan.scores;
                said.commands.push(found.command);
            }
            Some(Err(scores)) => said.scores = scores,
            None => {}
        }
        self.rounds = rounds;
        self.settled = what_if;
        said
    }

    /// Whether a command may start in this round, which learns of it.
    fn may_start(&mut self, command: &Command, plan: &Exchange) -> bool {
        let is_worth_it = patience::is_worth_it(&plan.scores);
        rounds::may_start(&mut self.outcome.frontier.rounds, command, is_worth_it)
    }

    fn single(&mut self) -> Said {
        let (ground, frontier) = (self.ground, self.frontier);
        let mut what_if = self.know();
        let known = self.alone.get_or_insert_default();
        let answers: Vec<&Alone> = known.answers.iter().collect();
        let (able, constrained) = consolidate::able_alone(ground, &known.candidates, &answers);
        let able: Vec<&Candidate> = able
            .into_iter()
            .map(|position| known.candidates[position])
            .filter(|candidate| !consolidate::rests(frontier, ground, candidate))
            .collect();
        let mut said = Said {
            eligible: known.waiting + known.candidates.len(),
            evaluated: known.candidates.len(),
            constrained,
            scores: consolidate::rejected(ground, known.candidates.iter().zip(&known.answers)),
            ..Said::default()
        };
        for candidate in able {
            let method = Method::SingleNodeConsolidation;
            let Some(what_if) = &mut what_if else { break };
            let Ok((command, plan)) = consolidate::command(ground, what_if, method, &[candidate]) else {
                continue;
            };
            if frontier.is_cautious() && !cautious::is_safe(ground, &[candidate], &command) {
                continue;
            }
            if !self.may_start(&command, &plan) {
                continue;
            }
            let events = events::candidates(ground.snapshot, &command);
            self.outcome.events.extend(events);
            said.scores.extend(plan.scores);
            said.commands.push(command);
            break;
        }
        self.settled = what_if;
        said
    }

    fn finish(mut self) -> Outcome {
        if let Some(what_if) = &self.settled {
            self.outcome.statistics.add(what_if.statistics);
        }
        let frontier = &mut self.outcome.frontier;
        let now = self.ground.now;
        frontier.back_offs.retain(|_, back_off| {
            // What has been quiet for an hour has been forgotten.
            now.duration_since(back_off.until) < SignedDuration::from_hours(1)
        });
        frontier.settled = None;
        if self.outcome.commands.is_empty() {
            frontier.seed += 1;
            rounds::end(&mut frontier.rounds, now);
            if let Some(version) = frontier.version.filter(|_| frontier.seed >= self.rounds) {
                let (until, is_refresh) =
                    events::next_change(self.ground, &frontier.back_offs, self.closed.values().copied());
                frontier.settled = Some(Settled {
                    version,
                    until,
                    is_refresh,
                });
            }
        } else {
            frontier.seed = 0;
            if let Some(calm) = &mut frontier.calm {
                calm.acted = true;
            }
        }
        self.outcome
    }
}
