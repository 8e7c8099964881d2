//! One pass over all methods on one Snapshot (D §3.1).
//!
//! The first method that has something to start ends the pass (D-063). Nothing is created or changed, nothing waits, and equal inputs give
//! equal outcomes on any number of threads.

mod consolidation;
mod verdicts;

use super::candidates::{Candidate, blocked_events};
use super::cautious;
use super::command::{Command, Method, Move};
use super::emptiness;
use super::events;
use super::ground::{Ground, what_if_options};
use super::headroom;
use super::hurdle::{Hurdle, Lifted};
use super::judge::{Judge, Unlimited};
use super::kept::{Kept, Singles};
use super::outcome::{DisruptStatistics, Frontier, MethodReport, Outcome, Settled, drift_key};
use super::register::Register;
use super::simulate::{Follow, WhatIf};
use super::verdict::Verdict;
use super::{consolidate, cost, drift, rounds};
use crate::policy::Policy;
use consolidation::Known;
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::DisruptionReason;
use spokeshave_api::constants::COMMAND_NODES;
use spokeshave_model::Event;
use spokeshave_model::snapshot::{NodeId, PoolId, Snapshot};
use spokeshave_schedule::PackOptions;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
        let mut fresh = Kept::default();
        let anew = pass(snapshot, policy, now, frontier, Some(&mut fresh), &mut |_| {});
        kept.assert_refuses_as(&fresh);
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
pub(super) const COMPARED_PODS: usize = 100;

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
    // Where virtual pods would go is decided anew in every pass, so that nothing can be kept that looks at them.
    let mut kept = Kept::only_if(settled.is_none(), kept);
    let snapshot = settled.as_ref().unwrap_or(snapshot);
    let options = what_if_options(policy);
    let register = match &mut kept {
        Some(kept) => kept.register(snapshot, now),
        None => Arc::new(Register::of(snapshot, now)),
    };
    let ground = Ground::upon(snapshot, policy, now, &BTreeSet::new(), register);
    let unlimited = Unlimited::new();
    let (closed, rounds) = if policy.disrupt.rounds {
        rounds::observe(snapshot, &ground.busy_pools(), &frontier.rounds, now)
    } else {
        Default::default()
    };
    let frontier = &Frontier {
        calm: cautious::observe(snapshot, &ground.register, frontier.calm.as_ref(), now),
        lost: frontier
            .lost
            .among(|| cautious::standing(snapshot, &ground.register)),
        rounds,
        ..frontier.clone()
    };
    let singles = OnceCell::new();
    let mut pass = Pass {
        kept: kept.as_deref_mut(),
        singles: &singles,
        ground: &ground,
        options: &options,
        frontier,
        closed,
        outcome: Outcome {
            frontier: frontier.clone(),
            reasons: ground.budgets.keys().cloned().collect(),
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
    let outcome = pass.finish();
    if let Some((kept, singles)) = kept.zip(singles.into_inner()) {
        kept.put_singles(singles);
    }
    outcome
}

/// Judges one node: what the first method that would act on it alone would do, and otherwise what is in the way.
pub fn judge(snapshot: &Snapshot, policy: &Policy, now: Timestamp, node: NodeId) -> Verdict {
    let settled = headroom::settle(snapshot, policy, now);
    let snapshot = settled.as_ref().unwrap_or(snapshot);
    let options = what_if_options(policy);
    let ground = Ground::new(snapshot, policy, now);
    let unlimited = Unlimited::new();
    let what_if = WhatIf::new(snapshot, &options, now, &ground.withheld);
    Judge::new(&ground, &options, &unlimited, what_if).verdict(node, None)
}

struct Pass<'k, 'g, 'a> {
    kept: Option<&'k mut Kept>,
    /// What is said of each candidate alone, once that is asked for.
    singles: &'g OnceCell<Singles>,
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
        for (node, candidate) in snapshot.node_ids().zip(self.ground.register.graceful()) {
            if let Err(hurdle) = candidate {
                self.tell(blocked_events(snapshot, node, *hurdle));
            }
        }
        self.tell(events::protections(
            snapshot,
            &self.ground.register,
            self.ground.now,
        ));
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
            let events = budget.events(self.ground.snapshot);
            self.outcome.events.extend(events.into_iter().map(Arc::new));
            self.outcome.budgets.push(budget.clone());
        }
    }

    fn settled(&mut self) -> WhatIf<'a> {
        match self.settled.take() {
            Some(what_if) => what_if,
            None => WhatIf::of(self.ground, self.options),
        }
    }

    fn tell<E: Into<Arc<Event>>>(&mut self, events: Vec<E>) {
        self.outcome.events.extend(events.into_iter().map(Into::into));
    }

    /// D-129: all empty nodes that budgets allow, as one command; as several where its object would not fit.
    fn emptiness(&mut self) -> Said {
        let (ground, snapshot) = (self.ground, self.ground.snapshot);
        let mut empty: Vec<Candidate> = Vec::new();
        for candidate in ground.register.graceful().iter().flatten() {
            match emptiness::empty(snapshot, candidate, &Lifted::new()) {
                // What did not stand a moment ago rests (W-10).
                Ok(()) if consolidate::rests(self.frontier, ground, candidate) => {}
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
            empty.iter().partition(|candidate| candidate.moving_count() == 0);
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
            let command = emptiness::command(snapshot, &taken, moves);
            said.commands = command.in_parts(COMMAND_NODES);
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
            .flat_map(|candidate| candidate.moving(self.ground.snapshot).into_owned())
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
        let mut candidates = self.replaceable(method);
        let eligible = candidates.len();
        // What rests takes neither headroom nor budget from others.
        candidates.retain(|candidate| !self.replacement_rests(candidate));
        Said {
            eligible,
            evaluated: candidates.len(),
            constrained: eligible - candidates.len(),
            commands: drift::static_commands(ground, method, &candidates),
            ..Said::default()
        }
    }

    /// Nodes that drifted, or are older than a policy wants, in the order in which they go.
    fn replaceable(&self, method: Method) -> Vec<Candidate> {
        let ground = self.ground;
        let is_expiry = method.reason() == DisruptionReason::Expired;
        let mut candidates: Vec<Candidate> = ground
            .register
            .entries()
            .filter(|(_, entry)| is_expiry || entry.is_drifted)
            .filter_map(|(node, _)| drift::candidate(ground, method, node, &Lifted::new()).ok())
            .collect();
        if is_expiry {
            drift::by_age(ground.snapshot, &mut candidates);
        } else {
            drift::in_order(ground.snapshot, &mut candidates);
        }
        candidates
    }

    /// Whether the NodePool of a node that is to be replaced rests, or the node itself.
    fn replacement_rests(&self, candidate: &Candidate) -> bool {
        let (snapshot, now) = (self.ground.snapshot, self.ground.now);
        let of_pool = drift_key(&snapshot.pool(candidate.pool).name);
        let provider_id = &snapshot.node(candidate.node).provider_id;
        let until = self.frontier.node_rests_until(&of_pool, provider_id, now);
        until.is_some()
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
            if !budgets.allows(candidate.place()) || self.replacement_rests(candidate) {
                said.constrained += 1;
                continue;
            }
            said.evaluated += 1;
            match drift::command(ground, method, &mut what_if, candidate) {
                Ok(command) if self.frontier.expects_refusal(&command, ground.now) => said.constrained += 1,
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
                // Plans may be trusted again then.
                let (snapshot, register) = (self.ground.snapshot, &self.ground.register);
                let distrusts = frontier.calm.as_ref().filter(|calm| calm.disappointed);
                let trusts = distrusts.map(|calm| {
                    let patience = cautious::end_of_patience(snapshot, register, now);
                    [calm.awaits, patience].into_iter().flatten()
                });
                let ends = self.closed.values().copied();
                let ends = ends.chain(trusts.into_iter().flatten());
                let (until, changes_at) = events::next_change(self.ground, &frontier.back_offs, ends);
                frontier.settled = Some(Settled {
                    version,
                    until,
                    changes_at,
                });
            }
        } else {
            frontier.seed = 0;
            if let Some(calm) = &mut frontier.calm {
                let commands = &self.outcome.commands;
                calm.acts(
                    commands,
                    cautious::end_of_absence(self.ground.snapshot, commands, now),
                );
            }
        }
        self.outcome
    }
}
