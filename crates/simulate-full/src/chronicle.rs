//! What happens in the cluster, seen at the API server and at the cloud: the event log, the figures, and when pods and nodes get on.
//!
//! Owns the bookkeeping, in the words and by the meter of the fast engine. It is told of every write in order; it changes nothing and decides nothing.

mod machines;
mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::mpsc::UnboundedSender;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::Value;
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_apiserver::{Commit, Identity};
use spokeshave_cluster::Pace;
use spokeshave_model::{InstanceType, Offering, Price};
use spokeshave_ports::SharedClock;
use spokeshave_scenario::Timeline;
use spokeshave_simulate::draws::Draws;
use spokeshave_simulate::least::Least;
use spokeshave_simulate::log::{Line, LogDigest, command_text};
use spokeshave_simulate::meter::Meter;
use spokeshave_simulate::savings::Savings;
use spokeshave_simulate::{Engine, Run, StandingNode, WorkDone, World};
use tokio::sync::Notify;

use crate::names::Names;
use machines::Machine;
use pods::{OwnerTally, PodTally};

const HOUR_MS: u64 = 3_600_000;

/// A pod by namespace and name.
pub(crate) type PodKey = (String, String);

/// Takes the lines of the event log.
pub(crate) type Lines = Box<dyn FnMut(Line<'_>) + Send>;

/// A pod of a Job, or a bare one, that has completed: what made it can go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Completed {
    pub(crate) owner: u32,
    pub(crate) pod: u64,
}

/// The bookkeeping. Everybody who is told something shares it.
pub(crate) struct Chronicle {
    clock: SharedClock,
    start: Timestamp,
    world: Arc<World>,
    timeline: Arc<Timeline>,
    state: Mutex<State>,
    /// Writes so far.
    commits: AtomicU64,
    /// Requests of the operator that are not reads, so far.
    operator_writes: AtomicU64,
    stirred: Notify,
}

/// What is known.
struct State {
    names: Names,
    draws: Draws,
    meter: Meter,
    least: Least,
    log: LogDigest,
    lines: Option<Lines>,
    owners: Vec<OwnerTally>,
    /// The last owner of which far more pods were made than it wants.
    restless: Option<u32>,
    down: u64,
    pods: BTreeMap<PodKey, PodTally>,
    machines: BTreeMap<String, Machine>,
    /// The NodeClaim of each Node that does not have its name.
    claims_of_nodes: BTreeMap<String, String>,
    /// What is made now stands from the start.
    is_standing: bool,
    /// What is left of the time of pods that stand, by owner and number, in milliseconds.
    left_ms: BTreeMap<(u32, u64), u64>,
    /// Machines that ended because disruption that could have waited removed them.
    disrupted: BTreeSet<String>,
    /// Pods that the operator evicts at this moment.
    evicting: BTreeSet<PodKey>,
    /// Pods whose eviction was refused.
    refused: BTreeSet<PodKey>,
    /// Phases of commands, by name.
    commands: BTreeMap<String, DisruptionPhase>,
    /// What commands have saved lately.
    savings: Savings,
    completed: UnboundedSender<Completed>,
}

impl fmt::Debug for Chronicle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chronicle").finish_non_exhaustive()
    }
}

/// So many writes are worth a look from outside.
const COMMITS_OF_A_STIR: u64 = 16;

/// Controllers make pods at once.
const LONGEST_WITHOUT_PODS_MS: u64 = 600_000;

impl Chronicle {
    pub(crate) fn new(
        clock: SharedClock,
        (world, timeline): (Arc<World>, Arc<Timeline>),
        least: Least,
        seed: u64,
        lines: Option<Lines>,
        completed: UnboundedSender<Completed>,
    ) -> Self {
        let state = State {
            names: Names::new(&timeline, seed),
            draws: Draws::new(seed),
            meter: Meter::new(world.warmup_ms, world.curve_step_ms),
            least,
            log: LogDigest::default(),
            lines,
            owners: timeline.owners.iter().map(OwnerTally::new).collect(),
            restless: None,
            down: 0,
            pods: BTreeMap::new(),
            machines: BTreeMap::new(),
            claims_of_nodes: BTreeMap::new(),
            is_standing: false,
            left_ms: BTreeMap::new(),
            disrupted: BTreeSet::new(),
            evicting: BTreeSet::new(),
            refused: BTreeSet::new(),
            commands: BTreeMap::new(),
            savings: Savings::default(),
            completed,
        };
        Chronicle {
            start: world.start,
            clock,
            world,
            timeline,
            state: Mutex::new(state),
            commits: AtomicU64::new(0),
            operator_writes: AtomicU64::new(0),
            stirred: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the start.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.since(self.start).as_millis()).unwrap_or(u64::MAX)
    }

    fn after(&self, milliseconds: u64) -> Timestamp {
        let span = SignedDuration::from_millis(i64::try_from(milliseconds).unwrap_or(i64::MAX));
        self.clock.now().saturating_add(span).unwrap_or(Timestamp::MAX)
    }

    /// The state, with its figures at this instant.
    fn now(&self) -> (MutexGuard<'_, State>, u64) {
        let now_ms = self.now_ms();
        let mut state = self.lock();
        state.meter.advance(now_ms);
        (state, now_ms)
    }

    /// Chooses the identity of a new object.
    pub(crate) fn identify(&self, plural: &str, object: &Value) -> Identity {
        let now_ms = self.now_ms();
        self.lock().names.identify(plural, object, now_ms)
    }

    /// A Job or bare pod of this name is this pod of its owner.
    pub(crate) fn expect(&self, namespace: &str, name: &str, pod: (u32, u64), runs_ms: Option<u64>) {
        let mut state = self.lock();
        state.names.expect(namespace, name, pod);
        if let Some(owner) = state.owners.get_mut(pod.0 as usize) {
            owner.begins(pod.1, runs_ms);
        }
    }

    /// The number of a machine.
    pub(crate) fn machine(&self, name: &str) -> Option<u32> {
        self.lock().names.machine(name)
    }

    /// What is made from now on stands from the start, or not.
    pub(crate) fn stands(&self, is_standing: bool) {
        self.lock().is_standing = is_standing;
    }

    /// The Node of this name will be that of a NodeClaim.
    pub(crate) fn node_is_of(&self, node: &str, claim: &str) {
        let mut state = self.lock();
        state.names.node_is_of(node, claim);
        if node != claim {
            state.claims_of_nodes.insert(node.to_owned(), claim.to_owned());
        }
    }

    /// The instance of a NodeClaim stands from the start, and is so old.
    pub(crate) fn instance_stands(&self, name: &str, standing: &StandingNode, age_ms: u64) {
        let (mut state, now_ms) = self.now();
        state.instance_stands(now_ms, name, standing, age_ms);
    }

    /// A Node of no NodePool stands from the start.
    pub(crate) fn fixed(&self, node: &Node) {
        let (mut state, now_ms) = self.now();
        state.fixed(now_ms, node);
    }

    /// So much of the time of a pod that stands is left; one that comes in its place has all of it.
    pub(crate) fn goes_on(&self, pod: (u32, u64), left_ms: u64) {
        self.lock().left_ms.insert(pod, left_ms);
    }

    /// An owner makes its pods from another of its templates from now on.
    pub(crate) fn renewed(&self, owner: u32, template: u32) {
        self.lock().names.renew(owner, template);
    }

    /// An owner wants so many pods from now on.
    pub(crate) fn scaled(&self, owner: u32, replicas: u32) {
        let (mut state, now_ms) = self.now();
        state.scaled(now_ms, owner, replicas);
    }

    /// A workload that has had no pod at all for ten minutes although it should: what the API server refused, or a controller that is gone.
    pub(crate) fn without_pods(&self) -> Option<String> {
        let before_ms = self.now_ms().checked_sub(LONGEST_WITHOUT_PODS_MS)?;
        let owner = self.lock().without_pods(before_ms)?;
        let owner = self.timeline.owners.get(owner)?;
        Some(format!("{}/{}", owner.namespace, owner.name))
    }

    /// Completes each time that some more has been written, whether time passes or not.
    pub(crate) async fn stirs(&self) {
        self.stirred.notified().await;
    }

    /// A controller makes pods anew as fast as they fail, and time would hardly pass, or not at all.
    ///
    /// # Errors
    /// Names the workload of which far more pods have been made within a minute than it wants.
    pub(crate) fn check_births(&self) -> Result<(), String> {
        let restless = self.lock().restless();
        match restless.and_then(|owner| self.timeline.owners.get(owner as usize)) {
            None => Ok(()),
            Some(owner) => Err(format!(
                "the pods of {}/{} fail as soon as they are made, and others are made in their place without end: they need something that is not simulated, such as a node that is named; run the scenario with --engine fast",
                owner.namespace, owner.name
            )),
        }
    }

    /// A write, told by the API server.
    pub(crate) fn committed(&self, commit: &Commit<'_>) {
        let before = self.commits.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(COMMITS_OF_A_STIR) {
            self.stirred.notify_one();
        }
        match (commit.group, commit.plural) {
            ("", "pods") => self.pod_committed(commit),
            ("", "nodes") => self.node_committed(commit),
            ("karpenter.sh", "nodeclaims") => self.claim_committed(commit),
            (_, "disruptions") => self.command_committed(commit),
            _ => {}
        }
    }

    fn command_committed(&self, commit: &Commit<'_>) {
        if commit.deleted {
            return;
        }
        let Ok(command) = serde_json::from_value::<Disruption>(commit.new.clone()) else {
            return;
        };
        let (mut state, now_ms) = self.now();
        let name = commit.name.to_owned();
        if commit.old.is_none() {
            state.note(now_ms, "command", &name, &command_text(&command));
            state.commands.insert(name, command.phase());
            return;
        }
        let phase = command.phase();
        let before = state.commands.insert(name.clone(), phase.clone());
        if before.as_ref() == Some(&phase) {
            return;
        }
        state.note(now_ms, "phase", &name, &format!("{phase:?}"));
        if before == Some(DisruptionPhase::Starting) && phase != DisruptionPhase::RolledBack {
            state.meter.command_starts();
            state.savings.note(now_ms, &command);
        }
    }

    /// The operator asks the API server for something that is not a read.
    pub(crate) fn operator_writes(&self) {
        self.operator_writes.fetch_add(1, Ordering::Relaxed);
    }

    /// The operator begins to evict a pod.
    pub(crate) fn eviction_begins(&self, pod: &PodKey) {
        self.lock().evicting.insert(pod.clone());
    }

    /// The answer to an eviction.
    pub(crate) fn eviction_ends(&self, pod: &PodKey, status: u16) {
        let mut state = self.lock();
        state.evicting.remove(pod);
        if status == 429 && state.refused.insert(pod.clone()) {
            state.meter.count(|counted| &mut counted.budget_waits);
        }
    }

    /// A launch has succeeded.
    pub(crate) fn launched(&self, name: &str, instance_type: &InstanceType, offering: &Offering) {
        let (mut state, now_ms) = self.now();
        state.launched(now_ms, name, instance_type, offering);
    }

    /// A launch was refused.
    pub(crate) fn refused(&self, name: &str) {
        let (mut state, now_ms) = self.now();
        state.meter.launch_fails();
        let why = "no capacity for any instance type of the NodeClaim";
        state.note(now_ms, "refused", name, why);
    }

    /// The node of an instance that joins will be ready after so long.
    pub(crate) fn will_be_ready(&self, name: &str, milliseconds: u64) {
        let at = self.after(milliseconds);
        if let Some(machine) = self.lock().machines.get_mut(name) {
            machine.ready_at = Some(at);
        }
    }

    /// The cloud has announced the end of an instance.
    pub(crate) fn interrupted(&self, name: &str) {
        let (mut state, now_ms) = self.now();
        state.interrupted(now_ms, name);
    }

    /// An instance has ended.
    pub(crate) fn ended(&self, name: &str) {
        let (mut state, now_ms) = self.now();
        state.ended(now_ms, name);
    }

    /// The run, at its end.
    pub(crate) fn finish(&self, policy: &str, seed: u64, partial: bool) -> Run {
        let (mut state, now_ms) = self.now();
        let state = &mut *state;
        let waiting: Vec<u64> = state
            .pods
            .values()
            .filter(|pod| pod.owner.is_some() && pod.node.is_none())
            .map(|pod| now_ms - pod.since_ms)
            .collect();
        let meter = std::mem::replace(&mut state.meter, Meter::new(0, 0));
        let work = WorkDone {
            api_writes: Some(self.operator_writes.load(Ordering::Relaxed)),
            ..meter.work
        };
        let (measured, curve) = meter.finish(waiting.into_iter());
        let log = std::mem::take(&mut state.log);
        Run {
            policy: policy.to_owned(),
            seed,
            engine: Engine::Full,
            digest: log.finish(&measured, &curve),
            work,
            measured,
            curve,
            partial,
        }
    }
}

impl State {
    /// The machine of a Node, by which it is known.
    fn machine_of(&self, node: &str) -> String {
        let claim = self.claims_of_nodes.get(node).map(String::as_str);
        claim.unwrap_or(node).to_owned()
    }

    fn note(&mut self, at_ms: u64, what: &str, of: &str, more: &str) {
        let line = Line {
            at_ms,
            what,
            of,
            more,
        };
        self.log.add(&line);
        if let Some(lines) = &mut self.lines {
            lines(line);
        }
    }

    /// A NodePool has launched an instance for waiting pods: it costs what was saved before.
    fn savings_are_lost(&mut self, now_ms: u64, pool: &str, price: Price) {
        for _ in 0..self.savings.bought(now_ms, pool, price) {
            self.meter.count(|counted| &mut counted.savings_lost);
        }
    }
}

impl Pace for Chronicle {
    fn node_ready(&self, node: &Node) -> Option<Timestamp> {
        let state = self.lock();
        state.machines.get(node.metadata.name.as_deref()?)?.ready_at
    }

    fn pod_starts(&self, pod: &Pod) -> Option<Timestamp> {
        self.tally(pod, |tally| tally.starts_at)
    }

    fn pod_ends(&self, pod: &Pod) -> Option<Timestamp> {
        self.tally(pod, |tally| tally.ends_at)
    }

    fn pod_stops(&self, pod: &Pod) -> Option<Timestamp> {
        self.tally(pod, |tally| tally.stops_at)
    }
}
