//! The operator: puts the controllers together and runs them for as long as this replica leads.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use spokeshave_ports::{CloudProvider, Entropy, SharedClock};
use spokeshave_runtime::{
    ControllerMetrics, ElectionOutcome, EventRecorder, EventRecorderOptions, LeaderElection, Leadership,
    LeaseOptions, Metrics, QueueOptions, RateLimit, Readiness, Shutdown, TaskGroup, WorkQueue, client,
    run_controller, run_singleton,
};

use crate::claims::Claims;
use crate::decision::DecisionLog;
use crate::disruption::DisruptionLoop;
use crate::disruption_commands::Commands;
use crate::drift::Drift;
use crate::eviction::Evictions;
use crate::execute::Execute;
use crate::garbage::Garbage;
use crate::metrics::ControllerFamilies;
use crate::node_classes::NodeClasses;
use crate::node_pools::NodePools;
use crate::node_termination::NodeTermination;
use crate::options::Options;
use crate::provisioner::Provisioner;
use crate::shared::{Memory, Shared};
use crate::stores::Stores;

/// NodeClaims that are worked on at once.
const CLAIM_WORKERS: usize = 1000;
/// Nodes, evictions and pools that are worked on at once.
const WORKERS: usize = 100;

/// Why the operator has ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// Another replica leads now; the process should end, so that nothing of the old term lives on.
    #[error("leader election lost: another replica may lead now")]
    LeadershipLost,
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
}

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
        readiness.declare("caches");
        Self {
            client,
            provider,
            clock,
            entropy,
            options,
            metrics,
            readiness,
            decisions: DecisionLog::default(),
        }
    }

    /// Tells decisions to somebody.
    #[must_use]
    pub fn with_decisions(mut self, decisions: DecisionLog) -> Self {
        self.decisions = decisions;
        self
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
    pub async fn run(self, shutdown: Shutdown) -> Result<(), OperatorError> {
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
        // A standby is ready: it has nothing to fill.
        self.readiness.set("caches", true);
        let lease_shutdown = Shutdown::new();
        let (competing, clock) = (lease_shutdown.clone(), self.clock.clone());
        let competition = tokio::spawn(async move { candidate.run(competing).await });
        let mut outcome = Ok(());
        if let Some(epoch) = shutdown.cut(leadership.acquired()).await {
            let work = shutdown.child();
            let lost = leadership.clone();
            let watched = work.clone();
            let watchdog = tokio::spawn(async move {
                lost.lost(&epoch).await;
                watched.request();
            });
            self.lead(leadership.clone(), &work).await;
            watchdog.abort();
            if !shutdown.is_requested() {
                outcome = Err(OperatorError::LeadershipLost);
            }
        }
        // The Lease is given back only after the last write.
        lease_shutdown.request();
        tokio::select! {
            biased;
            ended = competition => if matches!(ended, Ok(ElectionOutcome::Lost)) { outcome = Err(OperatorError::LeadershipLost) },
            () = clock.sleep(Duration::from_secs(5)) => {}
        }
        outcome
    }

    async fn lead(self, leadership: Leadership, shutdown: &Shutdown) {
        let Some(epoch) = leadership.epoch() else { return };
        let writer = client::fenced(self.client.clone(), leadership, epoch);
        let limit = self.options.shutdown_limit;
        let clock = self.clock.clone();
        let mut tasks = TaskGroup::new();
        let (recorder, event_writer) = EventRecorder::new(
            writer.clone(),
            "karpenter",
            self.clock.clone(),
            &self.entropy,
            &self.metrics,
            EventRecorderOptions::default(),
        );
        let until = shutdown.clone();
        tasks.spawn("events", async move { event_writer.run(until).await });
        let stores = Stores::new();
        let shared = Arc::new(Shared {
            execute: Execute::new(writer.clone(), stores.clone(), recorder),
            stores,
            provider: self.provider.clone(),
            clock: self.clock.clone(),
            policy: self.options.policy(),
            options: self.options.clone(),
            families: ControllerFamilies::new(&self.metrics),
            node_classes: NodeClasses::new(),
            decisions: self.decisions.clone(),
            memory: Mutex::new(Memory::default()),
            started: self.clock.now(),
        });
        let parts = Parts::new(&shared, &self.clock, &self.metrics);
        shared.stores.watch(
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
        if shutdown.cut(shared.stores.ready()).await.is_some() {
            self.readiness.set("caches", true);
            parts.start(&self.clock, &self.metrics, &mut tasks, shutdown);
            shutdown.requested().await;
        }
        let late = tasks.drain(&clock, limit).await;
        if !late.is_empty() {
            tracing::warn!(tasks = late.join(", "), "cut off at shutdown");
        }
    }
}

struct Parts {
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
}

fn queue<Key: Ord + Clone + Send + 'static>(
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
            queue("nodeclaim.lifecycle", second, minute, clock, metrics),
        );
        let disturbed = queue("nodeclaim.podevents", fast, minute, clock, metrics);
        claims.watch_pods(disturbed.clone());
        let evictions = Evictions::new(shared.clone(), queue("eviction-queue", fast, ten, clock, metrics));
        Self {
            termination: NodeTermination::new(
                shared.clone(),
                queue("node.termination", fast, ten, clock, metrics),
                evictions.clone(),
            ),
            pools: NodePools::new(
                shared.clone(),
                queue("nodepool.status", fast, minute, clock, metrics),
            ),
            provisioner: Provisioner::new(shared.clone()),
            disruption: DisruptionLoop::new(shared.clone()),
            commands: Commands::new(
                shared.clone(),
                queue("disruption.queue", second, ten, clock, metrics),
            ),
            drift: Drift::new(
                shared.clone(),
                queue("nodeclaim.disruption", second, minute, clock, metrics),
            ),
            garbage: Garbage::new(shared.clone()),
            claims,
            disturbed,
            evictions,
        }
    }

    fn start(self, clock: &SharedClock, metrics: &Metrics, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let driver = ControllerMetrics::new(metrics);
        let stop = || shutdown.clone();
        let claims = self.claims.clone();
        let work = move |name| claims.clone().reconcile(name);
        tasks.spawn(
            "nodeclaim.lifecycle",
            run_controller(
                "nodeclaim.lifecycle",
                self.claims.queue.clone(),
                CLAIM_WORKERS,
                work,
                stop(),
                driver.clone(),
            ),
        );
        let claims = self.claims.clone();
        let work = move |node| claims.clone().disturbed(node);
        tasks.spawn(
            "nodeclaim.podevents",
            run_controller(
                "nodeclaim.podevents",
                self.disturbed,
                WORKERS,
                work,
                stop(),
                driver.clone(),
            ),
        );
        let termination = self.termination.clone();
        let work = move |name| termination.clone().reconcile(name);
        tasks.spawn(
            "node.termination",
            run_controller(
                "node.termination",
                self.termination.queue.clone(),
                WORKERS,
                work,
                stop(),
                driver.clone(),
            ),
        );
        let evictions = self.evictions.clone();
        let work = move |key| evictions.clone().reconcile(key);
        tasks.spawn(
            "eviction-queue",
            run_controller(
                "eviction-queue",
                self.evictions.queue.clone(),
                WORKERS,
                work,
                stop(),
                driver.clone(),
            ),
        );
        let pools = self.pools.clone();
        let work = move |name| pools.clone().reconcile(name);
        tasks.spawn(
            "nodepool.status",
            run_controller(
                "nodepool.status",
                self.pools.queue.clone(),
                WORKERS,
                work,
                stop(),
                driver.clone(),
            ),
        );
        let commands = self.commands.clone();
        let work = move |name| commands.clone().reconcile(name);
        tasks.spawn(
            "disruption.queue",
            run_controller(
                "disruption.queue",
                self.commands.queue.clone(),
                WORKERS,
                work,
                stop(),
                driver.clone(),
            ),
        );
        let drift = self.drift.clone();
        let work = move |name| drift.clone().reconcile(name);
        tasks.spawn(
            "nodeclaim.disruption",
            run_controller(
                "nodeclaim.disruption",
                self.drift.queue.clone(),
                WORKERS,
                work,
                stop(),
                driver.clone(),
            ),
        );
        tasks.spawn("nodeclaim.nodeclasses", self.drift.follow_node_classes(stop()));
        tasks.spawn("nodepool.nodeclasses", self.pools.follow_node_classes(stop()));
        let garbage = self.garbage;
        let singleton = queue(
            "nodeclaim.garbagecollection",
            Duration::from_secs(1),
            Duration::from_secs(60),
            clock,
            metrics,
        );
        let work = move || garbage.clone().collect();
        tasks.spawn(
            "nodeclaim.garbagecollection",
            run_singleton("nodeclaim.garbagecollection", singleton, work, stop(), driver),
        );
        tasks.spawn("provisioner", self.provisioner.run(stop()));
        tasks.spawn("disruption", self.disruption.run(stop()));
    }
}
