//! Voluntary disruption (D §3): clean up, decide, wait, look again, write the command down. Carrying it out is another's work (`disruption_commands`),
//! so that nothing here ever waits for a node.
//!
//! In memory are only commands that were not written down yet: a restart decides them anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{CONSOLIDATABLE, Conditioned as _, DRIFTED};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_audit::{CommandCheck, check_command};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Action, Event, EventType, ObjectKind, ObjectRef};
use spokeshave_plan::disrupt::record::{command_of, record};
use spokeshave_plan::disrupt::steps::cleanup_actions;
use spokeshave_plan::disrupt::{
    BudgetMapping, Command, Destination, Frontier, Kept, Method, Outcome, disrupt_keeping, is_calm, validate,
};
use spokeshave_plan::report::first_few;
use spokeshave_plan::{Policy, limit_exceeded, nominated_event};
use spokeshave_runtime::Shutdown;
use tokio::sync::Notify;

use crate::act::hands::Hands;
use crate::observe::budget_faults::BudgetFaults;
use crate::observe::disruption_gauges;
use crate::observe::journal::Journal;
use crate::observe::repeats::Repeats;
use crate::reconcile::disruption_questions::{are_budgets_known, settle};
use crate::reconcile::disruption_verdicts::Verdicts;
use crate::reconcile::unreadable;
use crate::state::cluster::Cluster;
use crate::state::frozen::Inputs;

/// The time after which it is worth a word that nothing has been looked at (D-068).
const LONG: SignedDuration = SignedDuration::from_mins(15);

/// Pause after a pass without a command (D-064).
const POLL: Duration = spokeshave_api::constants::DISRUPTION_POLL;
/// What changes sooner than this waits for the next poll, so that passes do not follow each other closely.
const LEAST_POLL: Duration = Duration::from_secs(1);

/// A command that waits for its second look.
#[derive(Debug)]
struct Pending {
    command: Command,
    /// As it would be written down now; others plan as if it were.
    object: Arc<Disruption>,
    budgets: Vec<BudgetMapping>,
    /// Its NodePools were at rest when it was decided.
    is_calm: bool,
    due: Timestamp,
}

/// What the loop remembers between passes, and may forget.
#[derive(Debug, Default)]
struct Thread {
    pending: Vec<Pending>,
    /// NodePools whose pods this loop has begun to move since commands began to wait: pods that come and go there are no news to those that still wait.
    moving: BTreeSet<String>,
    frontier: Frontier,
    /// Answers of the last pass.
    kept: Kept,
    /// Commands under way whose end the frontier has not been told, by the name of their object.
    started: BTreeMap<String, Command>,
    /// The name of a command whose creation had no answer.
    unanswered: Option<String>,
    /// When the last pass was, however short.
    last_pass: Option<Timestamp>,
    /// Something was not cleaned up yet: a pass is due whatever has changed.
    unclean: bool,
    /// Conditions to be written.
    verdicts: Verdicts,
    /// What the last turn looked at, with the number that the frontier knows it by.
    seen: Option<(Arc<Inputs>, u64)>,
    /// Budgets that cannot be evaluated.
    faults: BudgetFaults,
    /// Commands that cannot be read, as it was said.
    unread: Repeats,
}

impl Thread {
    /// The number of these inputs: that of the last turn while nothing has changed, and otherwise a new one.
    fn number(&mut self, inputs: &Arc<Inputs>) -> u64 {
        let number = match self.seen.take() {
            Some((seen, number)) if seen.is_same(inputs) => number,
            Some((_, number)) => number + 1,
            None => 0,
        };
        self.seen = Some((inputs.clone(), number));
        number
    }

    /// Commands that wait, as others plan with them.
    fn waiting(&self) -> Vec<Arc<Disruption>> {
        self.pending.iter().map(|one| one.object.clone()).collect()
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.pending.iter().map(|pending| pending.due).min()
    }
}

/// The disruption loop.
#[derive(Debug)]
pub(crate) struct DisruptionLoop {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    wake: Arc<Notify>,
}

impl DisruptionLoop {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands, journal: Arc<Journal>) -> Arc<Self> {
        let wake = Arc::new(Notify::new());
        // A node that becomes a candidate is looked at soon, not at the next poll.
        let woken = wake.clone();
        cluster.stores.node_claims.on_change(move |change| {
            let has = |claim: Option<&NodeClaim>, condition: &str| {
                claim.is_some_and(|claim| claim.is_true(condition))
            };
            if [CONSOLIDATABLE, DRIFTED]
                .iter()
                .any(|one| has(change.new.as_deref(), one) && !has(change.old.as_deref(), one))
            {
                woken.notify_one();
            }
        });
        // So is what is left by a command that has ended.
        let woken = wake.clone();
        cluster.stores.disruptions.on_change(move |change| {
            if change.new.as_deref().is_none_or(Disruption::is_finished) {
                woken.notify_one();
            }
        });
        Arc::new(Self {
            cluster,
            hands,
            journal,
            wake,
        })
    }

    /// Works until shutdown.
    pub(crate) async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let mut thread = self.pick_up();
        loop {
            let acted = self.turn(&mut thread).await;
            let now = self.cluster.now();
            let wait = if acted {
                Duration::ZERO
            } else {
                let until = |due| self.cluster.clock.until(due);
                // The end of a nomination or of a back-off need not wait for the next poll.
                let unsettled = thread.frontier.settled_until().map(until);
                let unsettled = unsettled.filter(|wait| *wait > LEAST_POLL);
                let due = thread.next_due().map(until);
                due.into_iter().chain(unsettled).fold(POLL, Duration::min)
            };
            tracing::trace!(?wait, %now, "disruption rests");
            let sleep = async {
                tokio::select! {
                    biased;
                    () = self.cluster.clock.sleep(wait) => {}
                    () = self.wake.notified() => {}
                }
            };
            if shutdown.cut(sleep).await.is_none() {
                return;
            }
        }
    }

    /// What the ledger tells of the time before: what was taken back lately rests now, too (W-24).
    fn pick_up(&self) -> Thread {
        let mut thread = Thread::default();
        let mut failed: Vec<Arc<Disruption>> = self.cluster.stores.disruptions.snapshot();
        failed.sort_by_key(|one| spokeshave_plan::disrupt::history::finished_at(one));
        for disruption in failed {
            let command = command_of(&disruption);
            match disruption.phase() {
                DisruptionPhase::RolledBack => {
                    let ended = spokeshave_plan::disrupt::history::finished_at(&disruption);
                    thread.frontier.undone(&command, Some(&disruption), ended);
                }
                DisruptionPhase::Succeeded => thread.frontier.succeeded(&command),
                _ => {
                    thread.started.insert(disruption.name().to_owned(), command);
                }
            }
        }
        thread
    }

    /// One turn: second looks that are due, then a pass if anything has changed. True when another turn should follow at once (D-063).
    async fn turn(&self, thread: &mut Thread) -> bool {
        settle(&self.cluster, &self.hands, &mut thread.unanswered).await;
        let now = self.cluster.now();
        let mut unread = unreadable::names(&self.cluster.stores.disruptions);
        if !unread.is_empty() {
            // What waits has no second look now; it is decided again.
            thread.pending.clear();
        }
        let pending = std::mem::take(&mut thread.pending).into_iter();
        let (due, waiting): (Vec<Pending>, _) = pending.partition(|pending| pending.due <= now);
        thread.pending = waiting;
        for pending in due {
            self.second_look(thread, pending).await;
        }
        if thread.pending.is_empty() {
            thread.moving.clear();
        }
        if is_overdue(thread.last_pass.replace(now), now) {
            tracing::debug!("disruption has not been looked at for more than 15 minutes");
        }
        thread
            .faults
            .report(&self.cluster.stores.node_pools.snapshot(), now);
        unread.extend(unreadable::names(&self.cluster.stores.disruptions));
        self.learn(thread, &unread);
        let inputs = Arc::new(self.cluster.inputs(&thread.waiting()).await);
        unread.extend(unreadable::names(&self.cluster.stores.disruptions));
        let version = thread.number(&inputs);
        thread.frontier.version = Some(version);
        // A state that was found fruitless is not even looked at, until it or the hour changes it.
        let is_due = thread.unanswered.is_none() && (thread.unclean || !thread.frontier.is_settled(now));
        if self.is_ledger_known(thread, &unread) && is_due && self.pass(thread, &inputs).await {
            return true;
        }
        let writes = thread.verdicts.write(&self.cluster, &self.hands).await;
        if writes > 0 {
            // No decision reads verdicts: what was fruitless before they were written still is.
            let after = Arc::new(self.cluster.inputs(&thread.waiting()).await);
            if after.are_after_claim_writes(&inputs, writes) {
                let version = thread.number(&after);
                thread.frontier.carry_to(version);
            }
        }
        false
    }

    /// Invariants 2, 8 and 10: commands that cannot be read hold nodes, use budgets up and wait for replacements, and nobody knows which.
    fn is_ledger_known(&self, thread: &mut Thread, unread: &BTreeSet<String>) -> bool {
        if unread.is_empty() {
            return true;
        }
        let names = first_few(&Vec::from_iter(unread), 5);
        if thread.unread.is_due(names.clone(), self.cluster.now()) {
            tracing::warn!(Disruptions = names, "these cannot be read: nothing is disrupted");
        }
        false
    }

    /// Tells the frontier how commands have ended (W-10, W-24).
    fn learn(&self, thread: &mut Thread, unread: &BTreeSet<String>) {
        let now = self.cluster.now();
        let frontier = &mut thread.frontier;
        thread.started.retain(|name, command| {
            let one = self.cluster.stores.disruptions.get_named(name);
            match one.as_deref().map(Disruption::phase) {
                None if unread.contains(name) => return true,
                None | Some(DisruptionPhase::RolledBack) => frontier.undone(command, one.as_deref(), now),
                Some(DisruptionPhase::Succeeded | DisruptionPhase::Draining) => frontier.succeeded(command),
                Some(_) => return true,
            }
            false
        });
    }

    /// Cleans up after commands that are no more, then looks for new ones. True when it found one.
    async fn pass(&self, thread: &mut Thread, inputs: &Arc<Inputs>) -> bool {
        let snapshot = self.cluster.snapshot_of(inputs.clone());
        let now = self.cluster.now();
        let is_news = !thread.frontier.is_repeated(now);
        self.journal
            .families
            .disruption_passes
            .inc(&[if is_news { "change" } else { "refresh" }]);
        thread.unclean = false;
        for action in cleanup_actions(&snapshot, now) {
            if let Err(error) = self.hands.run(&action).await {
                thread.unclean = true;
                tracing::debug!(%error, "cleaning up after a command; the next pass tries again");
            }
        }
        let judged_again = thread.verdicts.judged_again(now);
        let mut policy = self.cluster.policy.clone();
        policy.disrupt.verdicts &= judged_again <= now;
        let outcome = self.decide(&snapshot, &policy, now, &thread.frontier, &mut thread.kept);
        disruption_gauges::show(&self.journal.families, &snapshot, &outcome);
        // What a refresh finds again has been said before.
        if is_news || !outcome.commands.is_empty() {
            for event in &outcome.events {
                self.hands.tell(event);
            }
        }
        thread.frontier = outcome.frontier;
        if policy.disrupt.verdicts {
            thread.verdicts.learn(&snapshot, &outcome.verdicts, now);
        } else if self.cluster.policy.disrupt.verdicts {
            thread.frontier.rest_until(judged_again);
        }
        let mut acted = false;
        for command in outcome.commands {
            let object = Arc::new(record(&snapshot, &command, &outcome.budgets, now));
            if command.method.is_validated() {
                tracing::debug!(
                    command = command.text(object.name()),
                    "command waits for its validation"
                );
                thread.pending.push(Pending {
                    due: now
                        .saturating_add(
                            SignedDuration::try_from(self.cluster.policy.validation_delay)
                                .unwrap_or(SignedDuration::ZERO),
                        )
                        .unwrap_or(Timestamp::MAX),
                    budgets: outcome.budgets.clone(),
                    is_calm: is_calm(&snapshot, &self.cluster.policy, &command, now),
                    command,
                    object,
                });
                acted = true;
            } else {
                acted |= self.start(thread, &snapshot, command, object).await;
            }
        }
        acted
    }

    /// Asks every method, and times each (D-067).
    fn decide(
        &self,
        snapshot: &Snapshot,
        policy: &Policy,
        now: Timestamp,
        frontier: &Frontier,
        kept: &mut Kept,
    ) -> Outcome {
        let (families, clock) = (&self.journal.families, &self.cluster.clock);
        let started = clock.now();
        let mut since = started;
        let mut evaluated = |method: Method| {
            let reason = method.reason().to_string().to_lowercase();
            let seconds = clock.since(since).as_secs_f64();
            let labels = [&*reason, method.consolidation_type()];
            families.evaluation_duration.observe(&labels, seconds);
            since = clock.now();
        };
        let outcome = disrupt_keeping(snapshot, policy, now, frontier, kept, &mut evaluated);
        if outcome.statistics.what_ifs > 0 {
            let seconds = clock.since(started).as_secs_f64();
            families.scheduling_duration.observe(&["disruption"], seconds);
        }
        outcome
    }

    /// The second look (D-087…D-091); what stands is started.
    async fn second_look(&self, thread: &mut Thread, pending: Pending) {
        // Commands that wait were decided after this one, with its pods in their places: they have no say in whether it stands.
        let snapshot = self.cluster.snapshot().await;
        let now = self.cluster.now();
        let policy = &self.cluster.policy;
        let pools = pools_of(&pending.command);
        let is_news = pending.is_calm && !pools.is_subset(&thread.moving);
        if is_news && !is_calm(&snapshot, policy, &pending.command, now) {
            tracing::debug!(
                command = pending.command.text("rejected"),
                "pods came or went since it was decided; it is decided again once they have come to rest"
            );
            self.count_failed(&pending.command, pending.command.nodes.len());
            return;
        }
        let validation = validate(&pending.command, &snapshot, policy, now);
        self.count_rejections(&pending.command, &validation);
        for event in &validation.events {
            self.hands.tell(event);
        }
        let Some(command) = validation.command else {
            thread.frontier.failed(&pending.command, now);
            return;
        };
        let object = Arc::new(record(&snapshot, &command, &pending.budgets, now));
        let moves_pods = !command.moves.is_empty();
        if self.start(thread, &snapshot, command, object).await && moves_pods {
            thread.moving.extend(pools);
        }
    }

    /// D-094, W-59: every way to be rejected counts.
    fn count_rejections(&self, command: &Command, validation: &spokeshave_plan::disrupt::Validation) {
        for (node, rejection) in &validation.dropped {
            tracing::debug!(Node = node, reason = rejection.as_str(), "fell out at validation");
        }
        let rejected = match validation.rejection {
            Some(rejection) => {
                let (reason, detail) = (rejection.as_str(), &validation.message);
                tracing::debug!(
                    command = command.text("rejected"),
                    reason,
                    detail,
                    "command does not stand at its second look"
                );
                command.nodes.len()
            }
            None => validation.dropped.len(),
        };
        self.count_failed(command, rejected);
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of nodes are far below 2^52")]
    fn count_failed(&self, command: &Command, nodes: usize) {
        if nodes > 0 {
            self.journal
                .families
                .failed_validations
                .add(&[command.method.consolidation_type()], nodes as f64);
        }
    }

    /// Writes a command down; from then on it is carried out. True when it was written.
    async fn start(
        &self,
        thread: &mut Thread,
        snapshot: &Snapshot,
        command: Command,
        object: Arc<Disruption>,
    ) -> bool {
        // D-103: the limits may be others since they were looked at.
        let exceeded = command.replacements.iter().find_map(|replacement| {
            let view = snapshot.pool(snapshot.find_pool(&replacement.pool)?);
            let current = self.cluster.stores.node_pools.get_named(&replacement.pool)?;
            limit_exceeded(&current, &view.usage).map(|exceeded| (replacement.pool.clone(), exceeded))
        });
        if let Some((pool, exceeded)) = exceeded {
            tracing::error!(NodePool = pool, error = %exceeded, "disruption not started");
            thread.frontier.failed(&command, self.cluster.now());
            return false;
        }
        if thread.unanswered.is_some() {
            // The Snapshot does not have that one, should it exist.
            thread.unclean = true;
            return false;
        }
        if !self.stands_up(snapshot, &command) {
            thread.frontier.refused(&command, self.cluster.now());
            return false;
        }
        if !are_budgets_known(&self.cluster, &self.hands, &command).await {
            thread.frontier.failed(&command, self.cluster.now());
            return false;
        }
        let action = Action::CreateDisruption {
            disruption: Box::new(Disruption::clone(&object)),
        };
        if let Err(error) = self.hands.run(&action).await {
            tracing::error!(%error, "writing a disruption down; it is decided again");
            thread.unanswered = error.may_exist().then(|| object.name().to_owned());
            thread.frontier.failed(&command, self.cluster.now());
            return false;
        }
        self.nominate(snapshot, &command);
        thread.started.insert(object.name().to_owned(), command);
        true
    }

    /// An independent check from first principles; a command that fails it is refused, and says so.
    fn stands_up(&self, snapshot: &Snapshot, command: &Command) -> bool {
        let problems = problems_of(snapshot, command, self.cluster.now());
        let Some(first) = problems.first() else {
            return true;
        };
        self.journal
            .families
            .refused_commands
            .inc(&[command.method.consolidation_type()]);
        for problem in problems.iter().take(5) {
            tracing::error!(
                command = command.text("refused"),
                problem,
                "the command breaks a rule and is not started"
            );
        }
        for node in &command.nodes {
            let object = ObjectRef::cluster(ObjectKind::NodeClaim, &node.node_claim, &node.node_claim_uid);
            let message = format!("Disruption refused by an independent check: {first}");
            let event = Event::new(object, EventType::Warning, "DisruptionRefused", message);
            self.hands.tell(&event);
        }
        false
    }

    /// D-104: the nodes that are to take the pods are kept for them.
    fn nominate(&self, snapshot: &Snapshot, command: &Command) {
        let views = snapshot.nodes.iter();
        let nodes: BTreeMap<&str, _> = views.map(|view| (view.provider_id.as_str(), view)).collect();
        let own = command.nodes.iter();
        let own = own.filter_map(|node| nodes.get(node.provider_id.as_str()));
        let pods: BTreeMap<&str, _> = own
            .flat_map(|view| view.pods.iter())
            .map(|id| (snapshot.pod(*id).uid(), *id))
            .collect();
        for one in command.moves.iter() {
            let Destination::Node { provider_id, .. } = &one.to else {
                continue;
            };
            self.cluster.nominate(provider_id);
            if let (Some(view), Some(pod)) = (nodes.get(provider_id.as_str()), pods.get(one.uid.as_str())) {
                let event = nominated_event(snapshot, *pod, view.claim_name(), view.node_name());
                self.hands.tell(&event);
            }
        }
    }
}

/// The NodePools that lose nodes by a command.
pub(crate) fn pools_of(command: &Command) -> BTreeSet<String> {
    let pools = command.budget_use().into_keys();
    pools.map(ToOwned::to_owned).collect()
}

/// What an independent check from first principles has against a command.
pub(crate) fn problems_of(snapshot: &Snapshot, command: &Command, now: Timestamp) -> Vec<String> {
    match command.resolve(snapshot) {
        None => vec!["a node or pod of it is not there any more".to_owned()],
        Some((nodes, placements)) => {
            let check = CommandCheck {
                nodes: &nodes,
                placements: &placements,
                reason: command.method.reason(),
                is_consolidation: !command.method.is_maintenance(),
                places_pods: !command.method.is_static(),
            };
            let violations = check_command(snapshot, &check, now);
            violations.iter().map(ToString::to_string).collect()
        }
    }
}

/// D-068: a loop that was held up says so.
fn is_overdue(last: Option<Timestamp>, now: Timestamp) -> bool {
    last.is_some_and(|last| now.duration_since(last) > LONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_068_a_loop_that_stood_still_is_told() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(!is_overdue(None, at(5_000)), "the first pass");
        assert!(!is_overdue(Some(at(0)), at(900)));
        assert!(is_overdue(Some(at(0)), at(901)));
        assert!(!is_overdue(Some(at(901)), at(0)), "a clock that went back");
    }
}
