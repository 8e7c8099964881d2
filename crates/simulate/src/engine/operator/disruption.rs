//! The disruption loop: passes, second looks, commands that are started (D §3).
//!
//! Owns when a turn takes place: as often as the operator polls, but only when something has changed. What is disrupted is the answer of `plan::disrupt`, or of a model of
//! another autoscaler.

use std::collections::BTreeSet;
use std::sync::Arc;

use spokeshave_api::constants::CONSOLIDATED_MEMO;
use spokeshave_api::disruption::{Disruption, DisruptionMethod, DisruptionPhase};
use spokeshave_model::Snapshot;
use spokeshave_plan::disrupt::record::record;
use spokeshave_plan::disrupt::steps::cleanup_actions;
use spokeshave_plan::disrupt::{BudgetMapping, Command, Destination, disrupt_keeping, is_calm, validate};
use spokeshave_plan::limit_exceeded;

use super::{NextTurn, Pending, models};
use crate::engine::Engine;
use crate::queue::Wake;
use crate::times::milliseconds_between;
use crate::world::{Model, milliseconds};

/// Pause between two turns while nothing asks for one (D-064).
const POLL_MS: u64 = 10_000;
/// How much longer than the poll of the operator the pause is, for each node beyond a hundred.
const PAUSE_PER_NODE_MS: u64 = 100;
/// What ends sooner than this waits for the next poll.
const LEAST_POLL_MS: u64 = 1_000;
/// The operator judges every node so long after the last time at the earliest, and looks again for that.
const JUDGED_EVERY_MS: u64 = 30_000;

impl Engine<'_> {
    /// An input of decisions has changed. The operator finds it at its next poll; a model is woken for it.
    pub(crate) fn changed(&mut self) {
        self.operator.version += 1;
        if self.policy.model != Model::Ours {
            let last_ms = self.operator.last_turn_ms;
            let pause_ms = self.pause_ms();
            let polls = (self.now_ms - last_ms) / pause_ms + 1;
            self.turn_at(last_ms + polls * pause_ms);
        }
    }

    /// The pause between two turns: as the operator polls, and longer in large clusters, where something changes at every moment and a pass over
    /// every node would nearly always find what the one before has found.
    fn pause_ms(&self) -> u64 {
        POLL_MS.max(self.meter.nodes() * PAUSE_PER_NODE_MS)
    }

    /// The loop turns more rarely than the operator's.
    pub(super) fn is_large(&self) -> bool {
        self.pause_ms() > POLL_MS
    }

    /// A turn now, not at the next poll: before everything else that is due at this instant, which is another's time.
    pub(crate) fn turn_now(&mut self) {
        if self.is_large() {
            let pause_ms = self.pause_ms();
            self.turn_at(self.now_ms.max(self.operator.last_turn_ms + pause_ms));
            return;
        }
        if self.policy.model == Model::None {
            return;
        }
        if self.operator.turn.is_some_and(|turn| turn.is_at_once) {
            self.operator.is_woken_again = self.policy.model == Model::Ours;
            return;
        }
        let wake = self.next_turn(self.now_ms, true);
        self.queue.at_once(self.now_ms, wake);
    }

    /// The same, because of what was written to a NodeClaim: whose look that was, sleeps only after the turn.
    pub(super) fn turn_for_claim(&mut self) {
        self.operator.is_woken_by_claim = true;
        self.turn_now();
    }

    /// A turn then, as a timer would have it: where that is now, after what was due at this instant before.
    fn turn_at(&mut self, due_ms: u64) {
        if self.policy.model == Model::None || self.operator.turn.is_some_and(|turn| turn.due_ms <= due_ms) {
            return;
        }
        let wake = self.next_turn(due_ms, false);
        self.queue.at(due_ms.max(self.now_ms), wake);
    }

    fn next_turn(&mut self, due_ms: u64, is_at_once: bool) -> Wake {
        self.operator.turns_asked += 1;
        let number = self.operator.turns_asked;
        self.operator.turn = Some(NextTurn {
            due_ms,
            number,
            is_at_once,
        });
        Wake::Turn(number)
    }

    /// One turn, unless another was asked for since: second looks that are due, then a pass if anything has changed.
    pub(crate) fn turn(&mut self, number: u64) {
        let now_ms = self.now_ms;
        if self.operator.turn.take_if(|turn| turn.number == number).is_none() {
            return;
        }
        if std::mem::take(&mut self.operator.is_woken_again) {
            self.turn_now();
        }
        let is_woken_by_claim = std::mem::take(&mut self.operator.is_woken_by_claim);
        self.operator.last_turn_ms = now_ms;
        self.second_looks();
        self.learn();
        let now = self.now();
        if self.policy.model != Model::Ours {
            self.turn_of_model();
            return;
        }
        self.look_at_nominations();
        self.operator.frontier.version = Some(self.operator.version);
        let is_large = self.is_large();
        // In a large cluster, what is only a refresh is left out: it finds nothing new before the clock changes something.
        let is_settled =
            self.operator.frontier.is_settled(now) || is_large && self.operator.frontier.is_repeated(now);
        if !is_settled && self.pass() {
            self.turn_at(now_ms);
            return;
        }
        let wait_ms = self.rest_ms();
        self.turn_at(now_ms.saturating_add(wait_ms));
        if is_woken_by_claim {
            self.set_timer_of_claims();
        }
    }

    /// That nodes are kept for pods, for longer or no more, is a change.
    fn look_at_nominations(&mut self) {
        self.forget_nominations();
        let nominated = self.nominated();
        if nominated != self.operator.nominated_before {
            self.operator.nominated_before = nominated;
            self.operator.version += 1;
        }
    }

    /// How long the loop rests after a turn that has found nothing.
    fn rest_ms(&self) -> u64 {
        let now = self.now();
        let left = |until: jiff::Timestamp| milliseconds_between(now, until);
        // The end of a nomination or of a back-off need not wait for the next poll.
        let unsettled = self.operator.frontier.settled_until().map(left);
        let unsettled = unsettled.filter(|left| *left > LEAST_POLL_MS && !self.is_large());
        let due = self.second_look_ms();
        let due = due.map(|due| due.saturating_sub(self.now_ms));
        due.into_iter().chain(unsettled).fold(self.pause_ms(), u64::min)
    }

    /// Second looks at commands that are due.
    fn second_looks(&mut self) {
        let now_ms = self.now_ms;
        let (due, waiting): (Vec<Pending>, Vec<Pending>) = std::mem::take(&mut self.operator.pending)
            .into_iter()
            .partition(|pending| pending.due_ms <= now_ms);
        self.operator.pending = waiting;
        if !due.is_empty() {
            self.operator.version += 1;
        }
        for pending in due {
            self.second_look(pending);
        }
        if self.operator.pending.is_empty() {
            self.operator.moving.clear();
        }
    }

    /// Reports the results of commands to the frontier (W-10, W-24).
    fn learn(&mut self) {
        let now = self.now();
        let started = std::mem::take(&mut self.operator.started);
        for (id, command) in started {
            let one = self.cluster.commands.get(&id).cloned();
            match one.as_deref().map(Disruption::phase) {
                None | Some(DisruptionPhase::RolledBack) => {
                    self.operator.frontier.undone(&command, one.as_deref(), now);
                }
                Some(DisruptionPhase::Succeeded | DisruptionPhase::Draining) => {
                    self.operator.frontier.succeeded(&command);
                }
                Some(_) => {
                    self.operator.started.insert(id, command);
                }
            }
        }
    }

    /// When the first of the commands that wait has its second look.
    fn second_look_ms(&self) -> Option<u64> {
        self.operator.pending.iter().map(|pending| pending.due_ms).min()
    }

    pub(super) fn waiting_commands(&self) -> Vec<Arc<Disruption>> {
        self.operator
            .pending
            .iter()
            .map(|one| Arc::clone(&one.object))
            .collect()
    }

    /// True when it found a command.
    fn pass(&mut self) -> bool {
        let now = self.now();
        let waiting = self.waiting_commands();
        let snapshot = self.freeze(&waiting);
        for action in cleanup_actions(&snapshot, now) {
            self.apply(&action);
        }
        let (settings, operator) = (&self.policy.settings, &mut self.operator);
        let (frontier, kept) = (&operator.frontier, &mut operator.kept);
        let outcome = disrupt_keeping(&snapshot, settings, now, frontier, kept, &mut |_| {});
        self.operator.what_ifs += outcome.statistics.what_ifs;
        self.operator.frontier = outcome.frontier;
        self.judge(!snapshot.nodes.is_empty());
        self.begin(&snapshot, outcome.commands, &outcome.budgets)
    }

    /// When nodes are judged no decision depends on, but when the operator looks again does.
    fn judge(&mut self, has_nodes: bool) {
        if self.is_large() {
            return;
        }
        let judged = self.operator.judged_ms;
        let again_ms = judged.map_or(self.now_ms, |judged| judged + JUDGED_EVERY_MS);
        if again_ms > self.now_ms {
            let again = crate::cluster::after(self.world.start, again_ms);
            self.operator.frontier.rest_until(again);
        } else if has_nodes {
            self.operator.judged_ms = Some(self.now_ms);
        }
    }

    /// The turn of a model of another autoscaler.
    fn turn_of_model(&mut self) {
        if let Some(due_ms) = self.second_look_ms() {
            // D-086: while a command waits, nothing else is decided.
            self.turn_at(due_ms);
            return;
        }
        let (version, now) = (self.operator.version, self.now());
        if let Some((modelled, until_ms)) = self.operator.modelled
            && modelled == version
            && self.now_ms < until_ms
        {
            self.turn_at(until_ms);
            return;
        }
        let is_in_a_pass = self.operator.karpenter.is_in_a_pass();
        let snapshot = self.freeze(&[]);
        let found = match self.policy.model {
            Model::Karpenter | Model::KarpenterBalanced => {
                let memory = &mut self.operator.karpenter;
                models::karpenter(&snapshot, &self.policy.settings, now, memory)
            }
            Model::ClusterAutoscaler => {
                let (last_launch_ms, under_way) = (self.operator.last_launch_ms, self.removals_under_way());
                let unneeded = &mut self.operator.unneeded;
                models::cluster_autoscaler(&snapshot, unneeded, last_launch_ms, under_way, self.now_ms, now)
            }
            Model::Ours | Model::None => models::Answer::default(),
        };
        self.operator.what_ifs += found.what_ifs;
        if self.begin(&snapshot, found.commands, &[]) {
            // D-063: a pass that has started something is followed by the next at once. cluster-autoscaler looks every ten seconds.
            let is_autoscaler = self.policy.model == Model::ClusterAutoscaler;
            let pause_ms = if is_autoscaler { POLL_MS } else { 0 };
            let due = self.second_look_ms();
            self.turn_at(due.unwrap_or(self.now_ms + pause_ms));
            return;
        }
        // D-064, D-095: what did not stand is looked at again in the next pass, and so is all else when something changes.
        let again_ms = if is_in_a_pass {
            self.now_ms + self.pause_ms()
        } else {
            self.model_looks_again_ms()
        };
        let is_settled = !is_in_a_pass && self.operator.version == version;
        self.operator.modelled = is_settled.then_some((version, again_ms));
        self.turn_at(again_ms);
    }

    /// Nodes that commands are removing.
    fn removals_under_way(&self) -> models::UnderWay {
        let commands = self.cluster.commands.values();
        let unfinished = commands.filter(|command| !command.is_finished());
        let mut under_way = models::UnderWay::default();
        for command in unfinished {
            if command.spec.method == DisruptionMethod::Emptiness {
                under_way.empty += command.spec.nodes.len();
            } else {
                under_way.drained += command.spec.nodes.len();
            }
        }
        under_way
    }

    /// The poll at which time alone may have made something of what a model found nothing in: nodes are no longer kept for pods, or have been unneeded for long enough.
    /// It looks again at the latest when nobody would remember any more that nothing was found (D-123).
    fn model_looks_again_ms(&self) -> u64 {
        let (now, now_ms) = (self.now(), self.now_ms);
        let kept = self.nominated().into_values().filter(|until| *until > now);
        let ends = kept.map(|until| now_ms.saturating_add(milliseconds_between(now, until)));
        let unneeded =
            models::next_unneeded_ms(&self.operator.unneeded, self.operator.last_launch_ms, now_ms);
        let forgotten_ms = now_ms + milliseconds(CONSOLIDATED_MEMO);
        let due_ms = ends.chain(unneeded).fold(forgotten_ms, u64::min);
        let pause_ms = self.pause_ms();
        now_ms + due_ms.saturating_sub(now_ms).div_ceil(pause_ms).max(1) * pause_ms
    }

    /// Notes commands for their second look, or starts those that have none. True when there is one.
    fn begin(&mut self, snapshot: &Snapshot, commands: Vec<Command>, budgets: &[BudgetMapping]) -> bool {
        let now = self.now();
        let mut acted = false;
        for command in commands {
            let object = Arc::new(record(snapshot, &command, budgets, now));
            if command.method.is_validated() && self.policy.model != Model::ClusterAutoscaler {
                let delay = milliseconds(self.policy.settings.validation_delay);
                self.operator.pending.push(Pending {
                    due_ms: self.now_ms.saturating_add(delay),
                    is_calm: is_calm(snapshot, &self.policy.settings, &command, now),
                    budgets: budgets.to_vec(),
                    command,
                    object,
                });
                self.operator.version += 1;
                acted = true;
            } else {
                acted |= self.start(snapshot, command, object);
            }
        }
        acted
    }

    /// The validation of a command (D-087…D-091); a valid one is started.
    fn second_look(&mut self, pending: Pending) {
        let now = self.now();
        // Commands that wait were decided after this one, with its pods in their places: they have no say in whether it stands.
        let snapshot = self.freeze(&[]);
        let pools: BTreeSet<String> = pending
            .command
            .budget_use()
            .into_keys()
            .map(ToOwned::to_owned)
            .collect();
        let settings = &self.policy.settings;
        let is_news = pending.is_calm && !pools.is_subset(&self.operator.moving);
        if self.policy.model == Model::Ours && is_news && !is_calm(&snapshot, settings, &pending.command, now)
        {
            // Pods came or went since it was decided: it is decided again once they have come to rest.
            self.note_rejected(&pending, "not calm");
            return;
        }
        let looked = if self.policy.model == Model::Ours {
            let validation = validate(&pending.command, &snapshot, settings, now);
            let why = validation.rejection.map(|why| why.as_str()).unwrap_or_default();
            validation.command.ok_or(why)
        } else {
            models::second_look(&pending.command, &snapshot, settings, now).map_err(|why| why.as_str())
        };
        let command = match looked {
            Ok(command) => command,
            Err(why) => {
                self.note_rejected(&pending, why);
                self.operator.frontier.failed(&pending.command, now);
                if self.policy.model != Model::Ours {
                    self.operator.karpenter.reject(pending.command.method);
                }
                return;
            }
        };
        let object = Arc::new(record(&snapshot, &command, &pending.budgets, now));
        let moves_pods = !command.moves.is_empty();
        if self.start(&snapshot, command, object) && moves_pods {
            self.operator.moving.extend(pools);
        }
    }

    fn note_rejected(&mut self, pending: &Pending, why: &str) {
        let name = pending.object.metadata.name.as_deref().unwrap_or_default();
        self.log.add(self.now_ms, "rejected", name, why);
    }

    /// Writes a command down; from then on it is carried out. True when it was written.
    fn start(&mut self, snapshot: &Snapshot, command: Command, object: Arc<Disruption>) -> bool {
        let now = self.now();
        let exceeds = command.replacements.iter().any(|replacement| {
            let view = snapshot
                .find_pool(&replacement.pool)
                .map(|pool| snapshot.pool(pool));
            let current = self.operator.node_pools.get(&replacement.pool);
            let pair = view.zip(current);
            pair.is_some_and(|(view, current)| limit_exceeded(current, &view.usage).is_some())
        });
        if exceeds {
            self.operator.frontier.failed(&command, now);
            return false;
        }
        let id = self.create_command(object);
        for step in command.moves.iter() {
            if let Destination::Node { provider_id, .. } = &step.to {
                self.nominate(provider_id.clone());
            }
        }
        self.operator.started.insert(id, command);
        true
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use spokeshave_scenario::Timeline;

    use super::*;
    use crate::world::{HOUR_MS, Policy, World};

    /// A cluster in which nothing happens, but that a node is kept for pods for 25 seconds.
    #[test]
    fn d_123_a_model_looks_again_in_five_minutes_or_when_a_node_is_no_longer_kept() {
        let types = vec![spokeshave_example::instance_type("c4", 4, 16, &["zone-a"])];
        let world = World::new(spokeshave_example::epoch(), HOUR_MS, types.into());
        let pool = spokeshave_example::node_pool("default");
        let mut policy = Policy::new("model", vec![Arc::new(pool)]);
        policy.model = Model::Karpenter;
        let timeline = Timeline::default();
        let mut engine = Engine::new(&world, &timeline, &policy, 1, None);
        assert_eq!(engine.model_looks_again_ms(), 300_000);
        let until = engine.now() + SignedDuration::from_secs(25);
        engine.operator.nominations.insert("kwok://a".to_owned(), until);
        assert_eq!(engine.model_looks_again_ms(), 30_000, "at the next poll");
        engine.turn_now();
        while let Some((at_ms, wake)) = engine.queue.pop()
            && at_ms <= 400_000
        {
            engine.happens(at_ms, wake);
        }
        assert_eq!(engine.operator.last_turn_ms, 330_000);
    }
}
