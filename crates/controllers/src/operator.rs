//! The operator: puts the controllers together and runs them for as long as this replica leads.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use spokeshave_ports::{CloudProvider, Entropy, SharedClock};
use spokeshave_runtime::{
    ElectionOutcome, Epoch, EventRecorder, EventRecorderOptions, EventWriter, LeaderElection, Leadership,
    LeaseOptions, Metrics, Readiness, Shutdown, TaskGroup, client,
};
use tokio::task::JoinSet;

use crate::act::for_provider::TermHands;
use crate::act::hands::Hands;
use crate::cloud::Measured;
use crate::cloud::overlays::Overlays;
use crate::definitions::{CACHES_SYNCED, DEFINITIONS_SERVED, definitions_served, drivers_served};
use crate::observe::decision::DecisionLog;
use crate::observe::journal::Journal;
use crate::observe::metrics::ControllerFamilies;
use crate::observe::observer::Observer;
use crate::observe::pod_times::PodTimes;
use crate::observe::{conditions, observability};
use crate::options::Options;
use crate::reconcile::{Term, controllers};
use crate::state::cluster::Cluster;
use crate::state::distress::Failures;
use crate::state::store_list::Wanted;
use crate::state::stores::Stores;

/// How long events are written after all else of a term has ended.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// Why the operator has ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// Another replica leads now; the process should end, so that nothing of the old term lives on.
    #[error("leader election lost: another replica may lead now")]
    LeadershipLost,
    /// The thread that renews the Lease could not be started.
    #[error("cannot start leader election: {0}")]
    LeaseThread(String),
    /// A task that runs for as long as a term has panicked; without it the others would seem to do all that there is to do. The process should end and begin
    /// anew, or another replica lead.
    #[error("task {0:?} panicked: this is a defect of Spokeshave, and standard error says where")]
    TaskPanicked(String),
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
type Connect = Box<dyn FnOnce() -> Result<Client, String> + Send + Sync>;

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
        Self {
            client,
            provider,
            clock,
            entropy,
            options,
            metrics,
            readiness: Self::unready(),
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
        connect: impl FnOnce() -> Result<Client, E> + Send + Sync + 'static,
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

    /// The readiness of an operator that has yet to be made, such as while its cloud is waited for: its conditions, none of which holds (P-204).
    #[must_use]
    pub fn unready() -> Readiness {
        let readiness = Readiness::new();
        readiness.declare(DEFINITIONS_SERVED);
        readiness.declare(CACHES_SYNCED);
        readiness
    }

    /// Tells whether it is ready where that has been asked since before it was [made](Self::unready).
    #[must_use]
    pub fn with_readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
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
    /// Leadership was lost, or a task panicked.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), OperatorError> {
        // Also of a standby: in the middle of a rollout both versions are there.
        observability::show_build(&self.metrics, self.options.commit);
        let mut looking = JoinSet::new();
        let (client, clock) = (self.client.clone(), self.clock.clone());
        looking.spawn(definitions_served(client, clock, self.readiness.clone()));
        let Some(election) = self.options.leader_election.clone() else {
            let leadership = Leadership::always(self.clock.clone(), "single");
            return self.lead(leadership, &shutdown.child()).await;
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
            outcome = self.lead(leadership.clone(), &work).await;
            watchdog.abort_all();
            if !shutdown.is_requested() {
                outcome = outcome.and(Err(OperatorError::LeadershipLost));
            }
        }
        // The Lease is given back only after the last write.
        lease_shutdown.request();
        tokio::select! {
            biased;
            ended = competition.join_next() => if matches!(ended, Some(Ok(ElectionOutcome::Lost))) { outcome = outcome.and(Err(OperatorError::LeadershipLost)) },
            () = clock.sleep(Duration::from_secs(5)) => {}
        }
        outcome
    }

    /// One term, until shutdown.
    async fn lead(mut self, leadership: Leadership, shutdown: &Shutdown) -> Result<(), OperatorError> {
        let Some(epoch) = leadership.epoch() else {
            return Ok(());
        };
        self.readiness.set(CACHES_SYNCED, false);
        if self.options.dynamic_resources {
            let served = drivers_served(&self.client, &self.clock);
            let Some(served) = shutdown.cut(served).await else {
                return Ok(());
            };
            self.options.dynamic_resources = served;
        }
        let writer = client::fenced(self.client.clone(), leadership.clone(), epoch.clone());
        let (mut tasks, mut telling) = (TaskGroup::new(), TaskGroup::new());
        let (recorder, event_writer) = self.event_recorder(&writer);
        // What is finished at shutdown is told too.
        let all_is_done = Shutdown::new();
        let until = all_is_done.clone();
        telling.spawn("events", async move { event_writer.run(until).await });
        let term = self.term(&writer, recorder, Some((leadership, epoch.clone())));
        let cluster = &term.cluster;
        let controllers = controllers(&term, &self.metrics);
        let wanted = Wanted::of(&self.options);
        cluster.stores.watch(
            wanted,
            &self.client,
            &self.clock,
            &self.entropy,
            &self.metrics,
            &mut tasks,
            shutdown,
        );
        for kind in self.provider.supported_node_classes() {
            let watch = cluster.node_classes.clone().watch(
                self.client.clone(),
                kind.clone(),
                self.clock.clone(),
                self.metrics.clone(),
                shutdown.clone(),
            );
            tasks.spawn(format!("watch {}", kind.kind), watch);
        }
        let (cloud, until) = (self.provider.clone(), shutdown.clone());
        let hands = term.hands.clone();
        let writes = Arc::new(TermHands { hands, epoch });
        tasks.spawn("cloud", async move {
            until.cut(cloud.lead(writes)).await;
        });
        let begin = |tasks: &mut TaskGroup| controllers.start(tasks, shutdown);
        let mut work = std::pin::pin!(self.work(cluster, wanted, tasks, shutdown, begin));
        let outcome = tokio::select! {
            biased;
            outcome = &mut work => outcome,
            name = telling.panicked() => {
                shutdown.request();
                work.await.and(Err(OperatorError::TaskPanicked(name)))
            }
        };
        all_is_done.request();
        self.end_in_time(telling, LAST_EVENTS).await;
        outcome
    }

    /// Waits for the stores that are watched, begins, and goes on until shutdown. A task that panics ends it, and requests that all of it ends.
    pub(crate) async fn work(
        &self,
        cluster: &Arc<Cluster>,
        wanted: Wanted,
        mut tasks: TaskGroup,
        shutdown: &Shutdown,
        begin: impl FnOnce(&mut TaskGroup),
    ) -> Result<(), OperatorError> {
        let panicked = tasks.panicked();
        let working = async {
            let filled = cluster.stores.filled(wanted, &self.clock);
            if shutdown.cut(filled).await.is_some() {
                self.readiness.set(CACHES_SYNCED, true);
                self.observer.look_at(cluster);
                begin(&mut tasks);
                shutdown.requested().await;
            }
        };
        let outcome = tokio::select! {
            biased;
            () = working => Ok(()),
            name = panicked => {
                shutdown.request();
                Err(OperatorError::TaskPanicked(name))
            }
        };
        self.end_in_time(tasks, self.options.shutdown_limit).await;
        outcome
    }

    /// Waits for tasks that were asked to end, and cuts off those that are late.
    async fn end_in_time(&self, tasks: TaskGroup, limit: Duration) {
        let late = tasks.drain(&self.clock, limit).await;
        if !late.is_empty() {
            tracing::warn!(tasks = late.join(", "), "cut off at shutdown");
        }
    }

    fn event_recorder(&self, writer: &Client) -> (EventRecorder, EventWriter) {
        EventRecorder::new(
            writer.clone(),
            "karpenter",
            self.clock.clone(),
            &self.entropy,
            &self.metrics,
            EventRecorderOptions::default(),
        )
    }

    /// What one term knows, writes with and tells; nothing runs yet. Whoever only looks has none of its own.
    pub(crate) fn term(
        &self,
        writer: &Client,
        recorder: EventRecorder,
        held: Option<(Leadership, Epoch)>,
    ) -> Term {
        let families = ControllerFamilies::new(&self.metrics);
        let failures = Failures::new(self.clock.clone());
        let mut cloud = Measured::new(
            self.provider.clone(),
            self.clock.clone(),
            families.clone(),
            failures.clone(),
            self.options.cloud_call_limit,
        );
        if let Some((leadership, epoch)) = held {
            cloud = cloud.in_term(leadership, epoch);
        }
        if self.options.feature_gates.node_overlay {
            cloud = cloud.under(Overlays::default());
        }
        if !self.options.feature_gates.reserved_capacity {
            cloud = cloud.without_reserved();
        }
        let cluster = Arc::new(Cluster::new(
            Stores::new(self.options.object_metrics),
            cloud,
            failures,
            self.clock.clone(),
            &self.options,
            families.snapshots_made.clone(),
        ));
        let hands = Hands::new(writer.clone(), &cluster, recorder);
        let pod_times = PodTimes::new(&self.metrics, self.clock.clone());
        let journal = Arc::new(Journal::new(
            cluster.clone(),
            families,
            pod_times,
            self.decisions.clone(),
        ));
        journal.pod_times.listen(&cluster.stores.pods);
        journal.landings.listen(&cluster.stores);
        conditions::observe(&cluster, &hands, &self.metrics);
        observability::register(&journal, &self.metrics, self.options.object_metrics);
        Term {
            cluster,
            hands,
            journal,
        }
    }
}
