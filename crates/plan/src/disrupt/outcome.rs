//! The result of a disruption pass as values, and the little that one pass leaves to the next.

use super::budgets::BudgetMapping;
use super::command::{Command, Method};
use super::rounds::Round;
use super::verdict::Verdict;
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::DisruptionReason;
use spokeshave_api::disruption::{Disruption, RollBackCause};
use spokeshave_api::hash::digest;
use spokeshave_model::{Event, Price};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How voluntary disruption is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptOptions {
    /// The methods that run; all of them unless told otherwise.
    pub methods: BTreeSet<Method>,
    /// Feature gate `SpotToSpotConsolidation` (D-153).
    pub spot_to_spot: bool,
    /// How many nodes may come in place of a set of nodes that go, always fewer than go; one, as upstream, unless told otherwise (W-03).
    pub replacements: usize,
    /// Whether every node is judged, with its minimal blockers.
    pub verdicts: bool,
    /// How many steps the search over sets may take in one pass; a step is one node tried.
    pub search_steps: usize,
    /// Whether moves wait until the nodes of their NodePool have come to rest, and then all start in one round; off, as upstream, unless told otherwise
    /// (W-60).
    pub rounds: bool,
    /// On how many threads candidates are looked at. It changes nothing but the time it takes.
    pub threads: usize,
}

impl Default for DisruptOptions {
    fn default() -> Self {
        DisruptOptions {
            methods: Method::ALL.into_iter().collect(),
            spot_to_spot: false,
            replacements: 1,
            verdicts: false,
            search_steps: 20_000,
            rounds: false,
            threads: 1,
        }
    }
}

/// What one pass decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What is to be started now: the commands of the first method that has one (D-063). One, except for static drift and for more empty nodes than one takes.
    pub commands: Vec<Command>,
    /// What is said about each node taken alone, in node order. Empty unless asked for.
    pub verdicts: Vec<Verdict>,
    /// The budgets as they are before the commands, one per reason that some method has a candidate for (D-208).
    pub budgets: Vec<BudgetMapping>,
    /// The reasons for which nodes can be disrupted at all, whether a method has a candidate or not: that of expiry only where a policy has one. Empty where nothing
    /// was looked at.
    pub reasons: BTreeSet<DisruptionReason>,
    /// Candidates per method that ran, whatever the budgets: the gauge `eligible_nodes`.
    pub eligible: BTreeMap<Method, usize>,
    /// Events to record; those that the pass before has told, too, are the same.
    pub events: Vec<Arc<Event>>,
    /// What each method that ran did, in order.
    pub reports: Vec<MethodReport>,
    /// To be given to the next pass.
    pub frontier: Frontier,
    /// Work done; equal inputs give equal counts.
    pub statistics: DisruptStatistics,
}

/// What one method did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodReport {
    /// The method.
    pub method: Method,
    /// Candidates that passed its filter.
    pub eligible: usize,
    /// Of these, how many were evaluated.
    pub evaluated: usize,
    /// Of these, how many were passed over because of a budget.
    pub constrained: usize,
    /// Commands that it found.
    pub commands: usize,
    /// Scores of policy `Balanced` and approvals of the other policies, for metrics (D-179, D-180).
    pub scores: Vec<PoolScore>,
}

/// How a command scored for one NodePool (D §4.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolScore {
    /// The NodePool that loses nodes.
    pub pool: String,
    /// Its policy.
    pub policy: String,
    /// Whether the score is enough, or the policy asks for none.
    pub approved: bool,
    /// The pool's share of the savings per hour.
    pub savings: Price,
    /// What the pool costs per hour.
    pub total_cost: Price,
    /// Disruption cost of the nodes that go, in units of 2^-27.
    pub disruption_cost: i64,
    /// Disruption cost of the whole pool, in units of 2^-27.
    pub total_disruption_cost: i64,
}

/// Work done by a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisruptStatistics {
    /// What-ifs: sets of nodes whose removal was tried.
    pub what_ifs: u64,
    /// Single nodes removed or put back in the search over sets.
    pub steps: u64,
    /// Pods for which a place was looked for.
    pub pods: u64,
    /// Answers of what-ifs that were kept from the pass before.
    pub kept: u64,
    /// Candidates of which nothing was asked because one that is like them had an answer.
    pub shared: u64,
    /// Whether the pass did nothing because nothing had changed.
    pub idle: bool,
}

impl DisruptStatistics {
    pub(crate) fn add(&mut self, other: DisruptStatistics) {
        self.what_ifs += other.what_ifs;
        self.steps += other.steps;
        self.pods += other.pods;
        self.kept += other.kept;
        self.shared += other.shared;
    }
}

/// What one pass leaves to the next: never needed for safety, and safe to lose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    /// The version of the state that the next Snapshot is made of, if the caller knows one. With it, a pass over what was found fruitless
    /// before is free.
    pub version: Option<u64>,
    /// The version that was found fruitless, until when that holds, and what was found.
    pub(crate) settled: Option<Settled>,
    /// Where the search over sets goes on.
    pub(crate) seed: u64,
    /// What failed lately, by what it was about, with the time before which it is not tried again (W-10, W-24).
    pub(crate) back_offs: BTreeMap<String, BackOff>,
    /// Where each NodePool stands between rounds of consolidation, by its name.
    pub(crate) rounds: BTreeMap<String, Round>,
    /// The lowest price with the present pods, and whether a command has disappointed since (invariant 17).
    pub(crate) calm: Option<Calm>,
    /// Nodes that have stayed because their pods had no places in the end. Whether the cluster is at rest has no say in it: one that is busy never is.
    pub(crate) lost: LostPlaces,
}

/// The cluster at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calm {
    /// When it was last seen so.
    pub(crate) at: Timestamp,
    /// What pods need places, without those that nobody waits for any more.
    pub(crate) workload: u64,
    /// The same with them, as it was when this workload was seen for the first time.
    pub(crate) whole: u64,
    /// How many pods that need places are on nodes.
    pub(crate) placed: usize,
    /// The lowest price, and the fewest nodes at that price.
    pub(crate) lowest: (Price, usize),
    /// A command that is to save something has been started since.
    pub(crate) acted: bool,
    /// The nodes that commands have begun to take since, as `prices` has them, in order.
    pub(crate) taken: Vec<u64>,
    /// Of these, those that go because they have drifted or expired, in order.
    pub(crate) renewed: Vec<u64>,
    /// Nodes that commands have taken before to save something and that hang while they leave, in order, each with what it cost.
    pub(crate) hanging: Vec<(u64, Price)>,
    /// Until when pods are awaited that commands have moved and that are not there again at once.
    pub(crate) awaits: Option<Timestamp>,
    /// A command has not made things better.
    pub(crate) disappointed: bool,
    /// What each node cost, by a hash of its provider ID, in order: prices also change by themselves.
    pub(crate) prices: Vec<(u64, Price)>,
    /// By how much they have done so since a command has not made things better, rises and falls added up.
    pub(crate) shifted: Price,
}

/// Nodes whose commands were taken back because the places of their pods were lost. As long as everything is as it was then, another command for them would end
/// in the same way: the plan does not know what the cluster knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostPlaces {
    /// By a hash of their provider IDs.
    nodes: BTreeSet<u64>,
    /// What pods needed and the nodes with pods were like when they were looked at for the first time since.
    among: Option<u64>,
}

impl LostPlaces {
    /// What is left of it where pods and the nodes with pods are like this now.
    pub(crate) fn among(&self, present: impl FnOnce() -> u64) -> Self {
        if self.nodes.is_empty() {
            return Self::default();
        }
        let present = present();
        if self.among.is_some_and(|among| among != present) {
            return Self::default();
        }
        LostPlaces {
            nodes: self.nodes.clone(),
            among: Some(present),
        }
    }
}

impl Calm {
    /// Whether it has the price of a node, by the hash of its provider ID.
    pub(crate) fn knows(&self, node: u64) -> bool {
        price_in(&self.prices, node).is_some()
    }

    /// Whether it has left a node out because that hangs although a command has taken it.
    pub(crate) fn hangs(&self, node: u64) -> bool {
        price_in(&self.hanging, node).is_some()
    }

    /// What a node cost that a command has begun to take to save something, and that has not been seen to be gone.
    pub(crate) fn price_to_save(&self, node: u64) -> Option<Price> {
        let is_in = |nodes: &[u64]| nodes.binary_search(&node).is_ok();
        let is_taken = is_in(&self.taken) && !is_in(&self.renewed);
        let taken = || price_in(&self.prices, node).filter(|_| is_taken);
        price_in(&self.hanging, node).or_else(taken)
    }

    /// Commands are started; of their pods some are awaited until then. Those that take nothing but nodes that no pod has used have nothing to make better, nor
    /// have those for drift and expiry.
    pub(crate) fn acts(&mut self, commands: &[Command], awaits: Option<Timestamp>) {
        for command in commands {
            let renews = command.method.is_maintenance();
            for node in command.nodes.iter().map(|node| digest(&node.provider_id)) {
                if !self.knows(node) {
                    continue;
                }
                self.acted |= !renews;
                insert(&mut self.taken, node);
                if renews {
                    insert(&mut self.renewed, node);
                }
            }
        }
        self.awaits = self.awaits.max(awaits);
    }

    /// A command has not taken its nodes after all.
    fn spares(&mut self, command: &Command) {
        for node in command.nodes.iter().map(|node| digest(&node.provider_id)) {
            for nodes in [&mut self.taken, &mut self.renewed] {
                if let Ok(at) = nodes.binary_search(&node) {
                    nodes.remove(at);
                }
            }
        }
        self.acted &= self.taken.len() > self.renewed.len();
    }
}

/// The price of a node among those that are in order.
fn price_in(prices: &[(u64, Price)], node: u64) -> Option<Price> {
    let found = prices.binary_search_by_key(&node, |(other, _)| *other);
    found.ok().map(|at| prices[at].1)
}

/// Adds a node to those that are in order.
fn insert(nodes: &mut Vec<u64>, node: u64) {
    if let Err(at) = nodes.binary_search(&node) {
        nodes.insert(at, node);
    }
}

/// A fruitless pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) version: u64,
    pub(crate) until: Timestamp,
    /// When the clock alone changes something that a decision reads; none if it does not. The state may be looked at again before.
    pub(crate) changes_at: Option<Timestamp>,
}

/// How long what has failed rests at first, in seconds.
const SHORTEST_REST: i64 = 60;

/// How often something failed, and until when it rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackOff {
    pub(crate) failures: u32,
    pub(crate) until: Timestamp,
}

impl Frontier {
    /// Says of which version of the state the next Snapshot is made.
    #[must_use]
    pub fn at(mut self, version: u64) -> Self {
        self.version = Some(version);
        self
    }

    /// Whether the next pass only repeats a fruitless one: neither an object nor the time has changed an answer since (D-123).
    pub fn is_refresh(&self) -> bool {
        let is_early = |settled: &Settled| settled.changes_at.is_none_or(|change| settled.until < change);
        self.settled_here().is_some_and(is_early)
    }

    /// Whether a pass at this time would only repeat a fruitless one, however long ago that was.
    pub fn is_repeated(&self, now: Timestamp) -> bool {
        self.settled_here()
            .is_some_and(|settled| settled.changes_at.is_none_or(|change| now < change))
    }

    /// What was found fruitless, if that is the state of which the next Snapshot is made.
    fn settled_here(&self) -> Option<&Settled> {
        let settled = self.settled.as_ref();
        settled.filter(|settled| self.version == Some(settled.version))
    }

    /// Nothing that a decision reads has changed up to this version: what was settled stays so.
    pub fn carry_to(&mut self, version: u64) {
        let present = self.version;
        if let Some(settled) = self
            .settled
            .as_mut()
            .filter(|settled| Some(settled.version) == present)
        {
            settled.version = version;
        }
        self.version = Some(version);
    }

    /// A command was rejected at validation, or failed while it was carried out: what it was about rests for a minute, twice as long after each
    /// further failure, at most ten minutes, so that others get their turn (W-10, W-24).
    pub fn failed(&mut self, command: &Command, now: Timestamp) {
        self.rest(command, back_off_keys(command), now);
    }

    /// An independent check has refused a command: that is about its nodes, whatever they were to go for, and others of their NodePools get their turn.
    pub fn refused(&mut self, command: &Command, now: Timestamp) {
        self.rest(command, refused_keys(command), now);
    }

    fn rest(&mut self, command: &Command, keys: Vec<String>, now: Timestamp) {
        self.settled = None;
        // Nothing was done, so nothing could have become better.
        if let Some(calm) = &mut self.calm {
            calm.spares(command);
        }
        for key in keys {
            let entry = self.back_offs.entry(key).or_insert(BackOff {
                failures: 0,
                until: now,
            });
            entry.failures = entry.failures.saturating_add(1);
            let seconds = (SHORTEST_REST << (entry.failures - 1).min(4)).min(600);
            entry.until = after(now, seconds);
        }
    }

    /// A command was rolled back, or is gone from the ledger. Where places were lost, its nodes are left alone until something changes that could give them
    /// back (invariant 17). Where the API server has refused a replacement (D-102), the NodePools that the replacements were
    /// to come from rest, too, for a minute: it may refuse those of the other nodes just as fast, one after the other.
    pub fn undone(&mut self, command: &Command, ledger: Option<&Disruption>, now: Timestamp) {
        self.failed(command, now);
        let status = ledger.and_then(|one| one.status.as_ref());
        let cause = status.and_then(|status| status.roll_back_cause.as_ref());
        if cause == Some(&RollBackCause::PlaceLost) && !command.method.is_maintenance() {
            let nodes = command.nodes.iter().map(|node| digest(&node.provider_id));
            self.lost.nodes.extend(nodes);
            self.lost.among = None;
        }
        let is_refused = cause == Some(&RollBackCause::ReplacementRefused);
        let refused = ledger.filter(|_| is_refused).into_iter();
        for new in refused.flat_map(|one| &one.spec.replacements) {
            // Never longer: where only those for this node are refused, others get their turn while the node itself rests.
            let rest = BackOff {
                failures: 1,
                until: after(now, SHORTEST_REST),
            };
            self.back_offs.insert(refusal_key(&new.node_pool), rest);
        }
    }

    /// A command was carried out: what it was about rests no more.
    pub fn succeeded(&mut self, command: &Command) {
        for key in back_off_keys(command).into_iter().chain(refused_keys(command)) {
            self.back_offs.remove(&key);
        }
        for replacement in &command.replacements {
            self.back_offs.remove(&refusal_key(&replacement.pool));
        }
    }

    /// Whether a replacement of this command would come from a NodePool that rests because one was refused.
    pub(crate) fn expects_refusal(&self, command: &Command, now: Timestamp) -> bool {
        let mut replacements = command.replacements.iter();
        replacements.any(|one| self.rests_until(&refusal_key(&one.pool), now).is_some())
    }

    /// Whether the pods of a node had no places in the end when its last command was carried out, and nothing has changed since.
    pub(crate) fn has_lost_places(&self, provider_id: &str) -> bool {
        !self.lost.nodes.is_empty() && self.lost.nodes.contains(&digest(provider_id))
    }

    /// Whether only commands may start that cannot disappoint.
    pub(crate) fn is_cautious(&self) -> bool {
        self.calm.as_ref().is_some_and(|calm| calm.disappointed)
    }

    /// Whether the state is the one that was found fruitless, and the clock has changed nothing since.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        self.settled_here().is_some_and(|settled| now < settled.until)
    }

    /// A rest that a fruitless pass has brought ends then at the latest: the caller left something for later.
    pub fn rest_until(&mut self, due: Timestamp) {
        if let Some(settled) = self.settled.as_mut().filter(|settled| due < settled.until) {
            settled.until = due;
        }
    }

    /// When the clock alone ends the rest that a fruitless pass has brought.
    pub fn settled_until(&self) -> Option<Timestamp> {
        self.settled.as_ref().map(|settled| settled.until)
    }

    /// Until when a node rests: by the key of the method that would take it, or because an independent check has refused a command for it, whatever that was to
    /// go for.
    pub(super) fn node_rests_until(
        &self,
        of_method: &str,
        provider_id: &str,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let refused = refused_key(provider_id);
        let keys = [of_method, refused.as_str()].into_iter();
        keys.filter_map(|key| self.rests_until(key, now)).max()
    }

    /// Until when something rests, if it does.
    fn rests_until(&self, key: &str, now: Timestamp) -> Option<Timestamp> {
        let until = self.back_offs.get(key)?.until;
        (now < until).then_some(until)
    }
}

/// So many seconds later.
fn after(now: Timestamp, seconds: i64) -> Timestamp {
    now.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}

/// For a NodePool whose replacements the API server refuses.
fn refusal_key(pool: &str) -> String {
    format!("replacement/{pool}")
}

/// Drift and expiry fail by NodePool (its new nodes do not come up); everything else by node.
fn back_off_keys(command: &Command) -> Vec<String> {
    if command.method.is_maintenance() {
        return command.budget_use().into_keys().map(drift_key).collect();
    }
    keys_of_nodes(command, node_key)
}

/// What an independent check has refused rests whatever its nodes were to go for.
fn refused_keys(command: &Command) -> Vec<String> {
    keys_of_nodes(command, refused_key)
}

fn keys_of_nodes(command: &Command, key: fn(&str) -> String) -> Vec<String> {
    let nodes = command.nodes.iter();
    nodes.map(|node| key(&node.provider_id)).collect()
}

/// For a NodePool whose nodes could not be replaced.
pub(super) fn drift_key(pool: &str) -> String {
    format!("drift/{pool}")
}

/// For a node whose consolidation failed.
pub(super) fn node_key(provider_id: &str) -> String {
    format!("node/{provider_id}")
}

/// For a node of which an independent check has refused a command.
fn refused_key(provider_id: &str) -> String {
    format!("refused/{provider_id}")
}
