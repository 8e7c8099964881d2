//! The disruption loop: passes, second looks, commands that are started (D §3).
//!
//! Owns when a turn takes place: as often as the operator polls, but only when something has changed. What is disrupted is the answer of `plan::disrupt`.

use std::sync::Arc;

use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_model::Snapshot;
use spokeshave_plan::disrupt::record::record;
use spokeshave_plan::disrupt::steps::cleanup_actions;
use spokeshave_plan::disrupt::{BudgetMapping, Command, Destination, disrupt_keeping, validate};
use spokeshave_plan::limit_exceeded;

use super::{Pending, models};
use crate::engine::Engine;
use crate::queue::Wake;
use crate::world::{Model, milliseconds};

/// Pause between two turns while nothing asks for one (D-064).
const POLL_MS: u64 = 10_000;
/// How much longer than the poll of the operator the pause is, for each node beyond a hundred.
const PAUSE_PER_NODE_MS: u64 = 100;
/// What ends sooner than this waits for the next poll.
const LEAST_POLL_MS: u64 = 1_000;

impl Engine<'_> {
    /// An input of decisions has changed: the next poll evaluates it.
    pub(crate) fn changed(&mut self) {
        self.operator.version += 1;
        let last_ms = self.operator.last_turn_ms;
        let pause_ms = self.pause_ms();
        let polls = (self.now_ms - last_ms) / pause_ms + 1;
        self.turn_at(last_ms + polls * pause_ms);
    }

    /// The pause between two turns: as the operator polls, and longer in large clusters, where something changes at every moment and a pass over
    /// every node would nearly always find what the one before has found.
    fn pause_ms(&self) -> u64 {
        POLL_MS.max(self.meter.nodes() * PAUSE_PER_NODE_MS)
    }

    /// A turn now, not at the next poll.
    pub(super) fn turn_now(&mut self) {
        let pause_ms = self.pause_ms();
        if pause_ms > POLL_MS {
            self.turn_at(self.now_ms.max(self.operator.last_turn_ms + pause_ms));
        } else {
            self.turn_at(self.now_ms);
        }
    }

    fn turn_at(&mut self, due_ms: u64) {
        if self.policy.model == Model::None {
            return;
        }
        if self.operator.turn_ms.is_none_or(|known| due_ms < known) {
            self.operator.turn_ms = Some(due_ms);
            self.queue.at(due_ms, Wake::Turn);
        }
    }

    /// One turn: second looks that are due, then a pass if anything has changed.
    pub(crate) fn turn(&mut self) {
        let now_ms = self.now_ms;
        if self.operator.turn_ms.take_if(|due| *due <= now_ms).is_none() {
            return;
        }
        self.operator.last_turn_ms = now_ms;
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
        self.learn();
        let now = self.now();
        if self.policy.model != Model::Ours {
            self.turn_of_model();
            return;
        }
        self.operator.frontier.version = Some(self.operator.version);
        if !self.operator.frontier.is_settled(now) && self.pass() {
            self.turn_at(now_ms);
            return;
        }
        let pause_ms = self.pause_ms();
        let ends = self.operator.frontier.settled_until().map(|until| {
            let left = until.duration_since(now).as_millis();
            u64::try_from(left).unwrap_or(0)
        });
        // What is only a refresh finds nothing new, and the simulated state has no other way to change than by events.
        let is_refresh = self.operator.frontier.is_refresh();
        if let Some(left) = ends.filter(|_| !is_refresh) {
            let wait = if left > LEAST_POLL_MS && pause_ms == POLL_MS {
                left
            } else {
                left.max(pause_ms)
            };
            self.turn_at(now_ms.saturating_add(wait));
        }
        if let Some(due) = self.operator.pending.iter().map(|pending| pending.due_ms).min() {
            self.turn_at(due.max(now_ms));
        }
        if self.operator.frontier.settled_until().is_none() {
            self.turn_at(now_ms + pause_ms);
        }
    }

    /// Reports the results of commands to the frontier (W-10, W-24).
    fn learn(&mut self) {
        let now = self.now();
        let started = std::mem::take(&mut self.operator.started);
        for (id, command) in started {
            let phase = self.cluster.commands.get(&id).map(|object| object.phase());
            match phase {
                None | Some(DisruptionPhase::RolledBack) => self.operator.frontier.failed(&command, now),
                Some(DisruptionPhase::Succeeded | DisruptionPhase::Draining) => {
                    self.operator.frontier.succeeded(&command);
                }
                Some(_) => {
                    self.operator.started.insert(id, command);
                }
            }
        }
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
        self.operator.frontier = outcome.frontier;
        self.begin(&snapshot, outcome.commands, &outcome.budgets)
    }

    /// The turn of a model of another autoscaler.
    fn turn_of_model(&mut self) {
        let now = self.now();
        if self.operator.modelled == Some(self.operator.version) {
            return;
        }
        let version = self.operator.version;
        let waiting = self.waiting_commands();
        let snapshot = self.freeze(&waiting);
        let commands = match self.policy.model {
            Model::Karpenter => models::karpenter(&snapshot, &self.policy.settings, now),
            Model::ClusterAutoscaler => {
                let last_launch_ms = self.operator.last_launch_ms;
                let unneeded = &mut self.operator.unneeded;
                models::cluster_autoscaler(&snapshot, unneeded, last_launch_ms, self.now_ms, now)
            }
            Model::Ours | Model::None => Vec::new(),
        };
        let acted = self.begin(&snapshot, commands, &[]);
        if acted {
            self.turn_at(self.now_ms + POLL_MS);
            return;
        }
        if self.operator.version == version {
            self.operator.modelled = Some(version);
        }
        let due = self.operator.pending.iter().map(|pending| pending.due_ms).min();
        if let Some(due) = due {
            self.turn_at(due.max(self.now_ms));
        }
        // Time alone makes a node unneeded for long enough.
        if let Some(due) =
            models::next_unneeded_ms(&self.operator.unneeded, self.operator.last_launch_ms, self.now_ms)
        {
            self.operator.modelled = None;
            self.turn_at(due);
        }
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
        let waiting = self.waiting_commands();
        let snapshot = self.freeze(&waiting);
        let validation = validate(&pending.command, &snapshot, &self.policy.settings, now);
        let Some(command) = validation.command else {
            let why = validation.rejection.map(|why| why.as_str()).unwrap_or_default();
            let (at_ms, name) = (
                self.now_ms,
                pending.object.metadata.name.clone().unwrap_or_default(),
            );
            self.log.add(at_ms, "rejected", &name, why);
            self.operator.frontier.failed(&pending.command, now);
            return;
        };
        let object = Arc::new(record(&snapshot, &command, &pending.budgets, now));
        self.start(&snapshot, command, object);
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
