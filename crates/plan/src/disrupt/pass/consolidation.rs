//! Consolidation in a pass: every candidate alone, then sets, then single nodes.
//!
//! Owns which answers are asked for and which are kept from the pass before, and which command starts. What an answer is, is `consolidate`'s and `sets`'.

use super::{Pass, Said};
use crate::disrupt::candidates::Candidate;
use crate::disrupt::command::{Command, Method};
use crate::disrupt::consolidate::{self, Alone};
use crate::disrupt::evaluate::{self, Exchange};
use crate::disrupt::kept::Singles;
use crate::disrupt::sets::Search;
use crate::disrupt::simulate::WhatIf;
use crate::disrupt::{cautious, events, patience, rounds};
use std::sync::Arc;

/// What consolidation knows about its candidates.
#[derive(Default)]
pub(super) struct Known<'g> {
    /// Candidates whose NodePool waits for its next round; the others follow.
    waiting: usize,
    pub(super) candidates: Vec<&'g Candidate>,
    pub(super) answers: Vec<Alone<'g>>,
}

impl<'g, 'a> Pass<'_, 'g, 'a> {
    /// Looks at every candidate of consolidation alone, once per pass. The what-if is made only when there is something to ask it: its tables are dear.
    fn know(&mut self) -> Option<WhatIf<'a>> {
        let ground = self.ground;
        if self.alone.is_none() {
            let candidates = consolidate::candidates(ground);
            for (candidate, stop) in consolidate::refused(ground) {
                if evaluate::is_told(&stop) {
                    let events = events::unconsolidatable(ground.snapshot, candidate.node, &stop.text);
                    self.outcome.events.extend(events);
                }
            }
            let (all, mut candidates) = (candidates.len(), candidates);
            if !self.closed.is_empty() {
                candidates.retain(|candidate| !self.closed.contains_key(&candidate.pool));
            }
            let mut answers = Vec::new();
            if !candidates.is_empty() {
                let mut what_if = self.settled();
                answers = self.ask_alone(&mut what_if, &candidates);
                self.settled = Some(what_if);
            } else if let Some(kept) = &mut self.kept {
                kept.forget_answers();
            }
            // Most have a Node and a NodeClaim to be told of.
            self.outcome.events.reserve(2 * candidates.len());
            for (candidate, alone) in candidates.iter().zip(&answers) {
                let events = &mut self.outcome.events;
                if let Some(kept) = alone.kept_events() {
                    events.extend_from_slice(kept);
                } else if let Some(text) = consolidate::told(alone) {
                    events.extend(events::unconsolidatable(ground.snapshot, candidate.node, text));
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
    fn ask_alone(&mut self, what_if: &mut WhatIf<'a>, candidates: &[&Candidate]) -> Vec<Alone<'g>> {
        let ground = self.ground;
        let mut singles = match self.kept.as_mut() {
            Some(kept) => {
                kept.renew(ground, what_if.start());
                kept.take_singles(ground.snapshot)
            }
            None => Singles::of(ground.snapshot),
        };
        let is_unknown = |candidate: &&Candidate| singles.find(candidate).is_none();
        let unknown: Vec<&Candidate> = candidates.iter().copied().filter(is_unknown).collect();
        what_if.statistics.kept += (candidates.len() - unknown.len()) as u64;
        let answers = consolidate::all_alone(ground, what_if, &unknown);
        singles.take_in(ground.snapshot, &unknown, answers, self.kept.is_some());
        let singles = self.singles.get_or_init(|| singles);
        let mut settled = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let Some((bare, glance)) = singles.find(candidate) else {
                debug_assert!(false, "each was found or has just been kept");
                return Vec::new();
            };
            let events = singles.told(candidate);
            settled.push(consolidate::settled(ground, candidate, bare, glance, events));
        }
        settled
    }

    pub(super) fn sets(&mut self) -> Said {
        let (ground, frontier) = (self.ground, self.frontier);
        let mut what_if = self.know();
        let known = self.alone.get_or_insert_default();
        let mut awake: Vec<usize> = (0..known.candidates.len()).collect();
        awake.retain(|position| !consolidate::rests(frontier, ground, known.candidates[*position]));
        let candidates: Vec<&Candidate> = awake.iter().map(|position| known.candidates[*position]).collect();
        let answers: Vec<&Alone<'_>> = awake.iter().map(|position| &known.answers[*position]).collect();
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
            Some(Ok(found)) if frontier.expects_refusal(&found.command, ground.now) => {}
            Some(Ok(found)) if !self.may_start(&found.command, &found.plan) => {}
            Some(Ok(found)) => {
                let events = events::candidates(ground.snapshot, &found.command);
                self.outcome.events.extend(events.into_iter().map(Arc::new));
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

    pub(super) fn single(&mut self) -> Said {
        let (ground, frontier) = (self.ground, self.frontier);
        let mut what_if = self.know();
        let known = self.alone.get_or_insert_default();
        let answers: Vec<&Alone<'_>> = known.answers.iter().collect();
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
            if frontier.expects_refusal(&command, ground.now) {
                continue;
            }
            if frontier.is_cautious() && !cautious::is_safe(ground, &[candidate], &command) {
                continue;
            }
            if !self.may_start(&command, &plan) {
                continue;
            }
            let events = events::candidates(ground.snapshot, &command);
            self.outcome.events.extend(events.into_iter().map(Arc::new));
            said.scores.extend(plan.scores);
            said.commands.push(command);
            break;
        }
        self.settled = what_if;
        said
    }
}
