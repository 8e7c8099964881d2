//! The operator: puts the controllers together and runs them for as long as this replica leads.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use spokeshave_ports::{CloudProvider, Entropy, SharedClock};
use spokeshave_runtime::{
    ControllerMetrics, ElectionOutcome, EventRecorder, EventRecorderOptions, EventWriter, LeaderElection,
    Leadership, LeaseOptions, Metrics, QueueOptions, RateLimit, Readiness, ReconcileError, Requeue, Shutdown,
    TaskGroup, WorkQueue, client, run_controller, run_singleton,
};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::act::execute::Execute;
use crate::cloud::Measured;
use crate::cloud::overlays::Overlays;
use crate::definitions::{CACHES_SYNCED, DEFINITIONS_SERVED, definitions_served};
use crate::observe::blocked::Told;
use crate::observe::decision::DecisionLog;
use crate::observe::metrics::ControllerFamilies;
use crate::observe::observer::Observer;
use crate::observe::pod_times::PodTimes;
use crate::observe::{conditions, observability};
use crate::options::Options;
use crate::reconcile::capacity_buffers::CapacityBuffers;
use crate::reconcile::claims::Claims;
use crate::reconcile::disruption::DisruptionLoop;
use crate::reconcile::disruption_commands::Commands;
use crate::reconcile::disruption_policies::DisruptionPolicies;
use crate::reconcile::drift::Drift;
use crate::reconcile::eviction::Evictions;
use crate::reconcile::garbage::Garbage;
use crate::reconcile::identity::Identity;
use crate::reconcile::interruption::Interruptions;
use crate::reconcile::node_overlays::NodeOverlays;
use crate::reconcile::node_pools::NodePools;
use crate::reconcile::node_repair::NodeRepair;
use crate::reconcile::node_termination::NodeTermination;
use crate::reconcile::provisioner::Provisioner;
use crate::reconcile::static_pools::{self, StaticPools};
use crate::shared::{Memory, Shared};
use crate::state::distress::Failures;
use crate::state::frozen::Frozen;
use crate::state::node_classes::NodeClasses;
use crate::state::store_list::Wanted;
use crate::state::stores::Stores;
use crate::state::virtual_pods::VirtualPods;

/// NodeClaims that are worked on at once, at one core and at sixty.
const CLAIM_WORKERS: (usize, usize) = (1000, 5000);
/// Nodes and evictions that are worked on at once, at one core and at sixty (D-318, D-327).
const TERMINATION_WORKERS: (usize, usize) = (100, 5000);
/// D-107.
const COMMAND_WORKERS: (usize, usize) = (100, 1000);
/// Pools and the like that are worked on at once.
const WORKERS: usize = 100;

/// CapacityBuffers that are worked on at once (P §12).
const BUFFER_WORKERS: usize = 10;

/// Why the operator has ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// Another replica leads now; the process should end, so that nothing of the old term lives on.
    #[error("leader election lost: another replica may lead now")]
    LeadershipLost,
    /// The thread that renews the Lease could not be started.
    #[error("cannot start leader election: {0}")]
    LeaseThread(String),
}

/// The controllers, not yet running.
pub struct Operator {
    client: Client,
    provider: Arc<dyn CloudProvider>,
    clock: SharedClock,
    entropy: Entropy,
    options: Options,
    metrics: Metrics,
    readiness: Readiness,
    decisions: DecisionLog,
    observer: Observer,
    /// Makes the client of the Lease, where that has a thread of its own.
    lease_client: Option<Connect>,
}

/// Makes a client.
type Connect = Box<dyn FnOnce() -> Result<Client, String> + Send>;

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator")
            .field("provider", &self.provider)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// An operator for the cluster of the client, with one cloud.
    #[must_use]
    pub fn new(
        client: Client,
        provider: Arc<dyn CloudProvider>,
        clock: SharedClock,
        entropy: Entropy,
        options: Options,
    ) -> Self {
        let metrics = Metrics::new(clock.clone());
        let readiness = Readiness::new();
        readiness.declare(DEFINITIONS_SERVED);
        readiness.declare(CACHES_SYNCED);
        Self {
            client,
            provider,
            clock,
            entropy,
            options,
            metrics,
            readiness,
            decisions: DecisionLog::default(),
            observer: Observer::default(),
            lease_client: None,
        }
    }

    /// Competes for the Lease on a thread and runtime of its own, with a client that is made there: whatever keeps the controllers' threads busy, the
    /// Lease is renewed in time. On the real clock only.
    #[must_use]
    pub fn with_lease_thread<E: std::fmt::Display>(
        mut self,
        connect: impl FnOnce() -> Result<Client, E> + Send + 'static,
    ) -> Self {
        self.lease_client = Some(Box::new(move || connect().map_err(|error| format!("{error:#}"))));
        self
    }

    /// Counts in a registry that others count in too. Give it before anybody asks for it.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Tells decisions to somebody.
    #[must_use]
    pub fn with_decisions(mut self, decisions: DecisionLog) -> Self {
        self.decisions = decisions;
        self
    }

    /// For those who only look at what it sees.
    #[must_use]
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// Its metrics, to be served.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether it is ready, to be served.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Runs until shutdown; with leader election, competes first.
    ///
    /// # Errors
    /// Leadership was lost.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), OperatorError> {
        let mut looking = JoinSet::new();
        let (client, clock) = (self.client.clone(), self.clock.clone());
        looking.spawn(definitions_served(client, clock, self.readiness.clone()));
        let Some(election) = self.options.leader_election.clone() else {
            let leadership = Leadership::always(self.clock.clone(), "single");
            self.lead(leadership, &shutdown).await;
            return Ok(());
        };
        let lease = LeaseOptions::new(&election.namespace, &election.name, &election.identity);
        let candidate = LeaderElection::new(
            self.client.clone(),
            lease,
            self.clock.clone(),
            &self.entropy,
            &self.metrics,
        );
        let leadership = candidate.leadership();
        // A standby is ready: it has no caches to fill before it leads.
        self.readiness.set(CACHES_SYNCED, true);
        let lease_shutdown = Shutdown::new();
        let (competing, clock) = (lease_shutdown.clone(), self.clock.clone());
        // In sets, so that an operator that is dropped takes its competition along instead of holding the Lease for ever.
        let (mut competition, mut watchdog) = (JoinSet::new(), JoinSet::new());
        match self.lease_client.take() {
            None => drop(competition.spawn(async move { candidate.run(competing).await })),
            Some(connect) => {
                let apart = candidate
                    .start_apart(connect, competing)
                    .await
                    .map_err(OperatorError::LeaseThread)?;
                competition.spawn(apart.ended());
            }
        }
        let mut outcome = Ok(());
        if let Some(epoch) = shutdown.cut(leadership.acquired()).await {
            let work = shutdown.child();
            let lost = leadership.clone();
            let watched = work.clone();
            watchdog.spawn(async move {
                lost.lost(&epoch).await;
                watched.request();
            });
            self.lead(leadership.clone(), &work).await;
            watchdog.abort_all();
            if !shutdown.is_requested() {
                outcome = Err(OperatorError::LeadershipLost);
            }
        }
        // The Lease is given back only after the last write.
        lease_shutdown.request();
        tokio::select! {
            biased;
            ended = competition.join_next() => if matches!(ended, Some(Ok(ElectionOutcome::Lost))) { outcome = Err(OperatorError::LeadershipLost) },
            () = clock.sleep(Duration::from_secs(5)) => {}
        }
        outcome
    }

    async fn lead(self, leadership: Leadership, shutdown: &Shutdown) {
        let Some(epoch) = leadership.epoch() else { return };
        self.readiness.set(CACHES_SYNCED, false);
        let writer = client::fenced(self.client.clone(), leadership, epoch);
        let limit = self.options.shutdown_limit;
        let clock = self.clock.clone();
        let mut tasks = TaskGroup::new();
        let (recorder, event_writer) = self.event_recorder(&writer);
        let until = shutdown.clone();
        tasks.spawn("events", async move { event_writer.run(until).await });
        let shared = self.share(&writer, recorder);
        let parts = self.parts(&shared);
        let wanted = Wanted::of(&self.options);
        shared.stores.watch(
            wanted,
            &self.client,
            &self.clock,
            &self.entropy,
            &self.metrics,
            &mut tasks,
            shutdown,
        );
        for kind in self.provider.supported_node_classes() {
            let watch = shared.node_classes.clone().watch(
                self.client.clone(),
                kind.clone(),
                self.clock.clone(),
                shutdown.clone(),
            );
            tasks.spawn(format!("watch {}", kind.kind), watch);
        }
        let (cloud, until) = (self.provider.clone(), shutdown.clone());
        tasks.spawn("cloud", async move {
            until.cut(cloud.lead()).await;
        });
        if shutdown
            .cut(shared.stores.filled(wanted, &self.clock))
            .await
            .is_some()
        {
            self.readiness.set(CACHES_SYNCED, true);
            self.observer.look_at(&shared);
            parts.start(&self.clock, &self.metrics, &mut tasks, shutdown);
            shutdown.requested().await;
        }
        let late = tasks.drain(&clock, limit).await;
        if !late.is_empty() {
            tracing::warn!(tasks = late.join(", "), "cut off at shutdown");
        }
    }

    pub(crate) fn event_recorder(&self, writer: &Client) -> (EventRecorder, EventWriter) {
        EventRecorder::new(
            writer.clone(),
            "karpenter",
            self.clock.clone(),
            &self.entropy,
            &self.metrics,
            EventRecorderOptions::default(),
        )
    }

    /// What the controllers of one term share; nothing runs yet.
    pub(crate) fn share(&self, writer: &Client, recorder: EventRecorder) -> Arc<Shared> {
        let stores = Stores::new(self.options.object_metrics);
        let families = ControllerFamilies::new(&self.metrics);
        let failures = Failures::new(self.clock.clone());
        let cloud = Measured::new(
            self.provider.clone(),
            self.clock.clone(),
            families.clone(),
            failures.clone(),
            self.options.cloud_call_limit,
        );
        let cloud = if self.options.feature_gates.node_overlay {
            cloud.under(Overlays::default())
        } else {
            cloud
        };
        let cloud = if self.options.feature_gates.reserved_capacity {
            cloud
        } else {
            cloud.without_reserved()
        };
        let shared = Arc::new(Shared {
            execute: Execute::new(writer.clone(), stores.clone(), recorder, failures.clone()),
            failures,
            stores,
            provider: Arc::new(cloud.clone()),
            cloud,
            clock: self.clock.clone(),
            policy: self.options.policy(),
            options: self.options.clone(),
            families,
            node_classes: NodeClasses::new(),
            decisions: self.decisions.clone(),
            memory: Mutex::new(Memory::default()),
            virtual_pods: VirtualPods::default(),
            told: Told::default(),
            frozen: Frozen::default(),
            pod_times: PodTimes::new(&self.metrics, self.clock.clone()),
            started: self.clock.now(),
        });
        shared.pod_times.listen(&shared.stores.pods);
        conditions::observe(&shared, &self.metrics);
        let objects = self.options.object_metrics;
        observability::register(&shared, &self.metrics, &shared.pod_times, objects);
        shared
    }

    /// The controllers of one term; none runs yet.
    pub(crate) fn parts(&self, shared: &Arc<Shared>) -> Parts {
        Parts::new(shared, &self.clock, &self.metrics)
    }
}

/// The controllers.
pub(crate) struct Parts {
    claims: Arc<Claims>,
    disturbed: WorkQueue<String>,
    termination: Arc<NodeTermination>,
    evictions: Arc<Evictions>,
    pools: Arc<NodePools>,
    provisioner: Arc<Provisioner>,
    disruption: Arc<DisruptionLoop>,
    commands: Arc<Commands>,
    drift: Arc<Drift>,
    garbage: Arc<Garbage>,
    policies: Arc<DisruptionPolicies>,
    identity: Arc<Identity>,
    interruptions: Arc<Interruptions>,
    repair: Option<Arc<NodeRepair>>,
    static_pools: Option<Arc<StaticPools>>,
    overlays: Option<Arc<NodeOverlays>>,
    buffers: Option<Arc<CapacityBuffers>>,
    workers: Workers,
}

/// How many keys are worked on at once.
#[derive(Clone, Copy)]
struct Workers {
    claims: usize,
    commands: usize,
    termination: usize,
}

fn queue_of<Key: Ord + Clone + Send + 'static>(
    name: &str,
    base: Duration,
    max: Duration,
    clock: &SharedClock,
    metrics: &Metrics,
) -> WorkQueue<Key> {
    let options = QueueOptions {
        rate_limit: RateLimit {
            base,
            max,
            ..RateLimit::DEFAULT
        },
    };
    WorkQueue::new(name, clock.clone(), options, metrics)
}

impl Parts {
    fn new(shared: &Arc<Shared>, clock: &SharedClock, metrics: &Metrics) -> Self {
        let (fast, second, ten, minute) = (
            Duration::from_millis(100),
            Duration::from_secs(1),
            Duration::from_secs(10),
            Duration::from_secs(60),
        );
        let claims = Claims::new(
            shared.clone(),
            queue_of("nodeclaim.lifecycle", second, minute, clock, metrics),
        );
        let disturbed = queue_of("nodeclaim.podevents", fast, minute, clock, metrics);
        claims.watch_pods(disturbed.clone());
        let evictions = Evictions::new(
            shared.clone(),
            queue_of("eviction-queue", fast, ten, clock, metrics),
        );
        let provisioner = Provisioner::new(shared.clone());
        Self {
            buffers: CapacityBuffers::new(
                shared.clone(),
                provisioner.clone(),
                queue_of("capacitybuffer", fast, minute, clock, metrics),
            ),
            overlays: NodeOverlays::new(
                shared.clone(),
                provisioner.clone(),
                queue_of("nodeoverlay.controller", fast, minute, clock, metrics),
            ),
            interruptions: Interruptions::new(
                shared.clone(),
                provisioner.clone(),
                queue_of("interruption", second, minute, clock, metrics),
            ),
            termination: NodeTermination::new(
                shared.clone(),
                queue_of("node.termination", fast, ten, clock, metrics),
                evictions.clone(),
            ),
            pools: NodePools::new(
                shared.clone(),
                queue_of("nodepool.status", fast, minute, clock, metrics),
            ),
            provisioner,
            disruption: DisruptionLoop::new(shared.clone()),
            commands: Commands::new(
                shared.clone(),
                queue_of("disruption.queue", second, ten, clock, metrics),
            ),
            drift: Drift::new(
                shared.clone(),
                queue_of("nodeclaim.disruption", second, minute, clock, metrics),
            ),
            garbage: Garbage::new(shared.clone()),
            policies: DisruptionPolicies::new(shared.clone()),
            identity: Identity::new(
                shared.clone(),
                queue_of("node.identity", second, minute, clock, metrics),
            ),
            repair: NodeRepair::new(
                shared.clone(),
                queue_of("node.health", second, minute, clock, metrics),
            ),
            static_pools: StaticPools::new(
                shared.clone(),
                queue_of(
                    "static.capacity",
                    static_pools::FIRST_RETRY,
                    minute,
                    clock,
                    metrics,
                ),
            ),
            workers: Workers {
                claims: shared.options.scaled(CLAIM_WORKERS.0, CLAIM_WORKERS.1),
                commands: shared.options.scaled(COMMAND_WORKERS.0, COMMAND_WORKERS.1),
                termination: shared
                    .options
                    .scaled(TERMINATION_WORKERS.0, TERMINATION_WORKERS.1),
            },
            claims,
            disturbed,
            evictions,
        }
    }

    fn start(self, clock: &SharedClock, metrics: &Metrics, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let mut starter = Starter {
            driver: ControllerMetrics::new(metrics),
            tasks,
            shutdown,
        };
        let Workers {
            claims,
            commands,
            termination,
        } = self.workers;
        let (it, queue) = (self.claims.clone(), self.claims.queue.clone());
        starter.start("nodeclaim.lifecycle", queue, claims, move |name| {
            it.clone().reconcile(name)
        });
        let it = self.claims;
        starter.start("nodeclaim.podevents", self.disturbed, WORKERS, move |node| {
            it.clone().disturbed(node)
        });
        let (it, queue) = (self.termination.clone(), self.termination.queue.clone());
        starter.start("node.termination", queue, termination, move |name| {
            it.clone().reconcile(name)
        });
        let (it, queue) = (self.evictions.clone(), self.evictions.queue.clone());
        starter.start("eviction-queue", queue, termination, move |key| {
            it.clone().reconcile(key)
        });
        let (it, queue) = (self.pools.clone(), self.pools.queue.clone());
        starter.start("nodepool.status", queue, WORKERS, move |name| {
            it.clone().reconcile(name)
        });
        let (it, queue) = (self.commands.clone(), self.commands.queue.clone());
        starter.start("disruption.queue", queue, commands, move |name| {
            it.clone().reconcile(name)
        });
        let (it, queue) = (self.drift.clone(), self.drift.queue.clone());
        starter.start("nodeclaim.disruption", queue, WORKERS, move |name| {
            it.clone().reconcile(name)
        });
        let (it, queue) = (self.identity.clone(), self.identity.queue.clone());
        starter.start("node.identity", queue, WORKERS, move |name| {
            it.clone().reconcile(name)
        });
        let (it, queue) = (self.interruptions.clone(), self.interruptions.queue.clone());
        starter.start("interruption", queue, WORKERS, move |id| it.clone().reconcile(id));
        if let Some(it) = self.repair {
            let queue = it.queue.clone();
            starter.start("node.health", queue, WORKERS, move |name| {
                it.clone().reconcile(name)
            });
        }
        if let Some(it) = self.static_pools {
            let queue = it.queue.clone();
            starter.start("static.capacity", queue, WORKERS, move |name| {
                it.clone().reconcile(name)
            });
        }
        if let Some(it) = self.overlays {
            let (queue, name) = (it.queue.clone(), "nodeoverlay.nodeclasses");
            starter
                .tasks
                .spawn(name, it.clone().follow_node_classes(shutdown.clone()));
            starter.start("nodeoverlay.controller", queue, 1, move |all| {
                it.clone().reconcile(all)
            });
        }
        if let Some(it) = self.buffers {
            let queue = it.queue.clone();
            starter.start("capacitybuffer", queue, BUFFER_WORKERS, move |key| {
                it.clone().reconcile(key)
            });
        }
        let (garbage, driver) = (self.garbage, starter.driver.clone());
        let stop = || shutdown.clone();
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let name = "nodeclaim.garbagecollection";
        let singleton = queue_of(name, second, minute, clock, metrics);
        let work = move || garbage.clone().collect();
        tasks.spawn(name, run_singleton(name, singleton, work, stop(), driver));
        tasks.spawn("disruptionpolicy.status", self.policies.run(stop()));
        tasks.spawn("interruption.messages", self.interruptions.listen(stop()));
        tasks.spawn("nodeclaim.nodeclasses", self.drift.follow_node_classes(stop()));
        tasks.spawn("nodepool.nodeclasses", self.pools.follow_node_classes(stop()));
        let named = |controller: &'static str| tracing::error_span!("run", controller);
        let provisioner = self.provisioner.run(stop());
        tasks.spawn("provisioner", provisioner.instrument(named("provisioner")));
        let disruption = self.disruption.run(stop());
        tasks.spawn("disruption", disruption.instrument(named("disruption")));
    }
}

/// Starts controllers, each with its queue.
struct Starter<'a> {
    driver: ControllerMetrics,
    tasks: &'a mut TaskGroup,
    shutdown: &'a Shutdown,
}

impl Starter<'_> {
    fn start<Key, Work>(
        &mut self,
        name: &'static str,
        queue: WorkQueue<Key>,
        workers: usize,
        reconcile: impl Fn(Key) -> Work + Send + Sync + 'static,
    ) where
        Key: Ord + Clone + std::fmt::Display + Send + Sync + 'static,
        Work: Future<Output = Result<Requeue, ReconcileError>> + Send + 'static,
    {
        let (stop, driver) = (self.shutdown.clone(), self.driver.clone());
        self.tasks.spawn(
            name,
            run_controller(name, queue, workers, reconcile, stop, driver),
        );
    }
}
