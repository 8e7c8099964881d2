//! The components of a cluster: scheduler, kubelets, workload controllers; everything through a Kubernetes client, on the Clock.
//!
//! Owns an implementation of Kubernetes' own rules that shares no code with our scheduling, so a shared bug cannot mask itself. It knows nothing
//! of Karpenter and nothing of the API server behind the client. It ships: `spokeshave up` and the full engine of `simulate` run it, and `operator` runs
//! its kubelets for nodes without machines. The laboratory that drives it on virtual time, with faults and checks, is the crate `sim`.

mod attach_limits;
mod budgets;
mod containers;
mod endpoints;
mod events;
mod fake_nodes;
mod heartbeats;
mod kubelets;
pub mod neighbours;
mod node_lifecycle;
pub mod objects;
mod pace;
mod pod_status;
mod probes;
pub mod quantities;
mod resizes;
pub mod rules;
mod scheduler;
mod shares;
mod stopping;
mod volumes;
mod workloads;
mod world;

use std::time::Duration;

use kube::Client;
use spokeshave_ports::{Entropy, SharedClock};
use spokeshave_runtime::{Metrics, Shutdown, TaskGroup};

pub use crate::pace::{Pace, SharedPace};
use crate::world::World;

/// Which parts run, and how fast they are.
#[derive(Debug, Clone)]
pub struct Options {
    /// The scheduler.
    pub scheduler: bool,
    /// Kubelets of fake nodes.
    pub kubelets: bool,
    /// Deployment, ReplicaSet, StatefulSet, DaemonSet and Job.
    pub workloads: bool,
    /// ReplicationControllers as well, which manifests of long ago have. `up` turns it on; elsewhere nobody makes any, and each request more is one more in the
    /// order of what happens.
    pub replication_controllers: bool,
    /// Whether workload controllers also write what no decision depends on: events of what went well, ControllerRevisions, Endpoints and EndpointSlices. `up`
    /// turns it on; elsewhere each would be one more write in the order from which names and UIDs are drawn.
    pub records: bool,
    /// Taints that follow a Node's readiness, and pods of silent and vanished Nodes.
    pub node_lifecycle: bool,
    /// Status of PodDisruptionBudgets.
    pub disruption_budgets: bool,
    /// Binding of PersistentVolumeClaims, and VolumeAttachments of CSI volumes.
    pub volumes: bool,
    /// Whether kubelets give signs of life: a Lease every ten seconds and their status every five minutes, as genuine ones do. Comparisons and
    /// the full engine of `simulate` turn it off.
    pub heartbeats: bool,
    /// Time from binding to Running.
    pub pod_start_delay: Duration,
    /// Time that a pod takes to stop, at most its grace period.
    pub pod_stop_time: Duration,
    /// Time from the appearance of a Node to its readiness.
    pub node_ready_delay: Duration,
    /// Maximum random delay added to each of these three, for every pod and node: in a real cluster nothing happens at exactly the same time.
    pub spread: Duration,
    /// When things happen on fake nodes, instead of after these delays.
    pub pace: Option<SharedPace>,
    /// For how long the scheduler collects changes before a pass.
    pub scheduler_pause: Duration,
    /// Whether the scheduler fills the fullest node first, and not the emptiest.
    pub most_allocated: bool,
}

impl Options {
    /// Everything but records, for a cluster without any other component.
    #[must_use]
    pub fn all() -> Self {
        Self {
            scheduler: true,
            kubelets: true,
            workloads: true,
            replication_controllers: false,
            records: false,
            node_lifecycle: true,
            disruption_budgets: true,
            volumes: true,
            heartbeats: true,
            pod_start_delay: Duration::from_secs(1),
            pod_stop_time: Duration::from_secs(2),
            node_ready_delay: Duration::from_secs(1),
            spread: Duration::ZERO,
            pace: None,
            scheduler_pause: Duration::from_millis(100),
            most_allocated: false,
        }
    }

    /// Kubelets only, for a cluster whose other components are real.
    #[must_use]
    pub fn kubelets_only() -> Self {
        Self {
            scheduler: false,
            workloads: false,
            node_lifecycle: false,
            disruption_budgets: false,
            volumes: false,
            ..Self::all()
        }
    }
}

/// With what the parts talk to the API server. It takes the owner of a field from the name under which a program writes: whose writes are to be told apart has
/// a client for each program of a genuine cluster.
#[derive(Clone)]
pub struct Clients {
    /// Of everything that the controller manager runs, and of all watches.
    pub controllers: Client,
    /// Of kubelets.
    pub kubelets: Client,
    /// Of the scheduler.
    pub scheduler: Client,
}

impl Clients {
    /// The clients of programs with these values of `User-Agent`.
    pub fn named(client: impl Fn(&str) -> Client) -> Self {
        let of = |program: &str| client(&format!("{program}/{}", kubelets::VERSION));
        Self {
            controllers: of("kube-controller-manager"),
            kubelets: of("kubelet"),
            scheduler: of("kube-scheduler"),
        }
    }
}

impl From<Client> for Clients {
    /// One for all.
    fn from(client: Client) -> Self {
        Self {
            controllers: client.clone(),
            kubelets: client.clone(),
            scheduler: client,
        }
    }
}

/// Longest time that the parts may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Runs the parts until shutdown.
pub async fn run(
    clients: impl Into<Clients>,
    clock: SharedClock,
    entropy: Entropy,
    options: Options,
    shutdown: Shutdown,
) {
    let metrics = Metrics::new(clock.clone());
    let mut tasks = TaskGroup::new();
    let world = World::new(clients.into(), clock.clone(), &entropy, options, metrics);
    let parts = Parts::new(&world);
    world.watch(&entropy, &mut tasks, &shutdown);
    if shutdown.cut(world.ready()).await.is_some() {
        parts.start(&world, &mut tasks, &shutdown);
        shutdown.requested().await;
    }
    drop(tasks.drain(&clock, STOP_LIMIT).await);
}

/// The parts, subscribed to the stores before these are filled.
struct Parts {
    kubelets: Option<kubelets::Kubelets>,
    resizes: Option<resizes::Resizes>,
    scheduler: Option<std::sync::Arc<scheduler::Scheduler>>,
    workloads: Option<workloads::Workloads>,
    endpoints: Option<endpoints::EndpointControllers>,
    budgets: Option<budgets::Budgets>,
    node_lifecycle: Option<node_lifecycle::NodeLifecycle>,
    volumes: Option<volumes::Volumes>,
}

impl Parts {
    fn new(world: &std::sync::Arc<World>) -> Self {
        let options = &world.options;
        Self {
            kubelets: options.kubelets.then(|| kubelets::Kubelets::new(world)),
            resizes: options.kubelets.then(|| resizes::Resizes::new(world)),
            scheduler: options.scheduler.then(|| scheduler::Scheduler::new(world)),
            workloads: options.workloads.then(|| workloads::Workloads::new(world)),
            endpoints: world
                .keeps_records()
                .then(|| endpoints::EndpointControllers::new(world)),
            budgets: options.disruption_budgets.then(|| budgets::Budgets::new(world)),
            node_lifecycle: options
                .node_lifecycle
                .then(|| node_lifecycle::NodeLifecycle::new(world)),
            volumes: options.volumes.then(|| volumes::Volumes::new(world)),
        }
    }

    fn start(self, world: &std::sync::Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        if let Some(kubelets) = self.kubelets {
            kubelets.start(world, tasks, shutdown);
        }
        if let Some(resizes) = self.resizes {
            resizes.start(world, tasks, shutdown);
        }
        if let Some(scheduler) = self.scheduler {
            tasks.spawn("scheduler", scheduler.run(shutdown.clone()));
        }
        if let Some(workloads) = self.workloads {
            workloads.start(world, tasks, shutdown);
        }
        if let Some(endpoints) = self.endpoints {
            endpoints.start(world, tasks, shutdown);
        }
        if let Some(budgets) = self.budgets {
            budgets.start(world, tasks, shutdown);
        }
        if let Some(node_lifecycle) = self.node_lifecycle {
            node_lifecycle.start(world, tasks, shutdown);
        }
        if let Some(volumes) = self.volumes {
            volumes.start(world, tasks, shutdown);
        }
    }
}
