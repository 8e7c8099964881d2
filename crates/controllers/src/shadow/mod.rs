//! A shadow: decides beside another operator on the state that the other makes, and changes nothing.
//!
//! Owns when it decides and what it compares; the sums are the ledger's. Its client sends nothing but reads, and its cloud is only asked: it holds no Lease,
//! writes no event and no status. Drift and consolidatability are read from conditions, which the other writes.

mod cloud;
mod launches;
mod ledger;
mod metrics;
mod moves;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use spokeshave_ports::{CloudProvider, Entropy, SharedClock};
use spokeshave_runtime::{EventRecorder, Metrics, Readiness, Shutdown, TaskGroup, read_only};

use crate::definitions::definitions_served;
use crate::observe::observability;
use crate::operator::{Operator, OperatorError};
use crate::options::Options;
use crate::reconcile::Term;
use crate::shadow::cloud::ReadOnlyCloud;
use crate::shadow::launches::Launches;
use crate::shadow::metrics::ShadowFamilies;
use crate::shadow::moves::Moves;
use crate::state::store_list::Wanted;

pub use ledger::{Deeds, Difference, Gone, Ledger, Opinion, PoolDeeds, Side};

/// Group and version of our own kinds, which a cluster of another operator need not serve.
const OWN_KINDS: &str = "spokeshave.dev/v1alpha1";

/// The ledger of a shadow, for whoever shows it.
#[derive(Clone, Debug)]
pub struct Report {
    ledger: Arc<Mutex<Ledger>>,
    clock: SharedClock,
}

impl Report {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        self.lock().text(self.clock.now())
    }

    /// For machines.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        self.lock().json(self.clock.now())
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registers what a shadow counts, without a shadow: for the reference of metrics.
pub fn register(metrics: &Metrics) {
    drop(ShadowFamilies::new(metrics));
}

/// A shadow, not yet running.
pub struct Shadow {
    operator: Operator,
    client: Client,
    provider: Arc<dyn CloudProvider>,
    clock: SharedClock,
    entropy: Entropy,
    options: Options,
    report: Report,
}

impl std::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadow")
            .field("operator", &self.operator)
            .finish_non_exhaustive()
    }
}

impl Shadow {
    /// A shadow in the cluster of the client, with one cloud. Whatever the client may do, it only reads.
    ///
    /// Prices are the cloud's own: NodeOverlays are judged by a controller that writes, and so left out.
    #[must_use]
    pub fn new(
        client: &Client,
        provider: Arc<dyn CloudProvider>,
        clock: SharedClock,
        entropy: Entropy,
        options: Options,
        metrics: Metrics,
    ) -> Self {
        let client = read_only(client.clone());
        let provider: Arc<dyn CloudProvider> = Arc::new(ReadOnlyCloud(provider));
        let mut options = Options {
            leader_election: None,
            ..options
        };
        options.feature_gates.node_overlay = false;
        // It initialises no node.
        options.dynamic_resources = false;
        let operator = Operator::new(
            client.clone(),
            provider.clone(),
            clock.clone(),
            entropy.clone(),
            options.clone(),
        )
        .with_metrics(metrics);
        Self {
            operator,
            client,
            provider,
            report: Report {
                ledger: Arc::default(),
                clock: clock.clone(),
            },
            clock,
            entropy,
            options,
        }
    }

    /// Tells whether it sees the cluster where that has been asked since before it was made, see [`Operator::unready`].
    #[must_use]
    pub fn with_readiness(mut self, readiness: Readiness) -> Self {
        self.operator = self.operator.with_readiness(readiness);
        self
    }

    /// Its report, also while it runs.
    #[must_use]
    pub fn report(&self) -> Report {
        self.report.clone()
    }

    /// Its metrics, to be served.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        self.operator.metrics()
    }

    /// Runs until shutdown.
    ///
    /// # Errors
    /// A task panicked: what it does would be missing from the report.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), OperatorError> {
        let shutdown = shutdown.child();
        let mut tasks = TaskGroup::new();
        let (client, clock, readiness) = (
            self.client.clone(),
            self.clock.clone(),
            self.operator.readiness().clone(),
        );
        let until = shutdown.clone();
        tasks.spawn("definitions", async move {
            until.cut(definitions_served(client, clock, readiness)).await;
        });
        observability::show_build(self.operator.metrics(), self.options.commit);
        let term = self.operator.term(&self.client, EventRecorder::silent(), None);
        let cluster = &term.cluster;
        let wanted = Wanted {
            own_kinds: serves_own_kinds(&self.client).await,
            ..Wanted::of(&self.options)
        };
        cluster.stores.watch(
            wanted,
            &self.client,
            &self.clock,
            &self.entropy,
            self.operator.metrics(),
            &mut tasks,
            &shutdown,
        );
        for kind in self.provider.supported_node_classes() {
            let watch = cluster.node_classes.clone().watch(
                self.client.clone(),
                kind.clone(),
                self.clock.clone(),
                self.operator.metrics().clone(),
                shutdown.clone(),
            );
            tasks.spawn(format!("watch {}", kind.kind), watch);
        }
        let (cloud, until) = (self.provider.clone(), shutdown.clone());
        tasks.spawn("cloud", async move {
            until.cut(cloud.follow()).await;
        });
        let begin = |tasks: &mut TaskGroup| self.compare(&term, tasks, &shutdown);
        self.operator.work(cluster, wanted, tasks, &shutdown, begin).await
    }

    /// Begins to decide and to compare.
    fn compare(&self, term: &Term, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        self.report.lock().begin(term.cluster.now());
        let families = ShadowFamilies::new(self.operator.metrics());
        let ledger = self.report.ledger.clone();
        self.operator.metrics().before_render({
            let ledger = ledger.clone();
            move || families.show(&ledger.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let launches = Launches::new(term.cluster.clone(), ledger.clone());
        tasks.spawn("shadow launches", launches.run(shutdown.clone()));
        let moves = Moves::new(term.cluster.clone(), ledger);
        tasks.spawn("shadow moves", moves.run(shutdown.clone()));
    }
}

async fn serves_own_kinds(client: &Client) -> bool {
    let served = client.list_api_group_resources(OWN_KINDS).await;
    let served = served.map(|list| list.resources).unwrap_or_default();
    ["disruptions", "disruptionpolicies"]
        .iter()
        .all(|plural| served.iter().any(|resource| resource.name == **plural))
}
