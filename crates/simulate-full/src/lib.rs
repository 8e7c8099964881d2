//! The full engine of simulations: the operator's controllers, an API server, a scheduler, kubelets and workload controllers on virtual time.
//!
//! Owns how these are put together for a scenario, and the bookkeeping of what happens. It decides nothing: the operator is the product's, and the cluster is
//! the one that `up` runs. Cloud and workloads are those of the fast engine, with the same luck, so that the two can be compared.

pub mod agreement;
mod chronicle;
mod clock;
mod cloud;
mod names;
mod standing;
mod user;
mod way;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::channel::mpsc::unbounded;
use kube::Client;
use spokeshave_api::NodeOverlay;
use spokeshave_api::validation::LabelRules;
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_controllers::{FeatureGates, Operator, Options};
use spokeshave_ports::{Entropy, SharedClock};
use spokeshave_runtime::client::{ClientOptions, from_service};
use spokeshave_runtime::{Shutdown, TaskGroup};
use spokeshave_scenario::Timeline;
use spokeshave_simulate::least::Least;
use spokeshave_simulate::market::Market;
use spokeshave_simulate::{Line, Model, Policy, Run, Scoring, World};

use chronicle::{Chronicle, Lines};
use clock::VirtualClock;
use cloud::Cloud;
use standing::{Past, placed};
use user::User;
use way::OperatorWay;

/// Why the full engine does not run something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It is a model of another autoscaler: the full engine runs Spokeshave's own controllers.
    Model(String),
    /// The simulated cluster is not in order.
    Broken(String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Model(policy) => write!(
                f,
                "policy {policy:?} is a model of another autoscaler, and the full engine runs Spokeshave's own controllers; run it with --engine fast"
            ),
            Refused::Broken(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refused {}

/// How much of a run is lived between two looks at whether the cluster is still whole.
const STEP: Duration = Duration::from_secs(3_600);

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Life {
    /// Cluster and cloud.
    pub world: Arc<World>,
    /// What workloads do.
    pub timeline: Arc<Timeline>,
    /// The configuration under test.
    pub policy: Policy,
    /// NodeOverlays that the operator itself applies to the instance types of world and policy; none where these are corrected already.
    pub overlays: Vec<Arc<NodeOverlay>>,
    /// The seed.
    pub seed: u64,
}

/// Lives one policy under one seed, in this thread, until it is interrupted; `lines` takes the event log.
///
/// # Errors
/// The policy is a model of another autoscaler, or the simulated cluster refuses an object of the scenario.
pub fn live(
    life: &Life,
    is_interrupted: &dyn Fn() -> bool,
    lines: Option<Box<dyn FnMut(Line<'_>) + Send>>,
) -> Result<Run, Refused> {
    if life.policy.model != Model::Ours {
        return Err(Refused::Model(life.policy.name.clone()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .map_err(|error| Refused::Broken(format!("there is no runtime: {error}")))?;
    runtime
        .block_on(lived(life, is_interrupted, lines))
        .map_err(Refused::Broken)
}

/// The client of one part of the cluster; in one process no request is held back.
fn client_of(server: &Arc<ApiServer>, clock: &SharedClock) -> Client {
    from_service(server.service(), "default", &unlimited(), clock.clone())
}

fn unlimited() -> ClientOptions {
    ClientOptions {
        rate: None,
        ..ClientOptions::default()
    }
}

async fn lived(life: &Life, is_interrupted: &dyn Fn() -> bool, lines: Option<Lines>) -> Result<Run, String> {
    let (world, timeline, policy) = (&life.world, &life.timeline, &life.policy);
    let rules = LabelRules::default();
    let corrected = policy.under(world, &life.overlays, &rules);
    let panics = spokeshave_runtime::panics_here();
    let time = VirtualClock::new(world.start);
    let clock: SharedClock = time.clone();
    let entropy = Entropy::new(life.seed).child("full");
    let (completes, completed) = unbounded();
    let chronicle = Arc::new(Chronicle::new(
        clock.clone(),
        (world.clone(), timeline.clone()),
        Least::of(world, timeline, &corrected),
        life.seed,
        lines,
        completes,
    ));
    let past = Past::default();
    let server = server(&clock, &entropy, &chronicle, &past);
    let user = Arc::new(User {
        client: client_of(&server, &clock),
        clock: clock.clone(),
        chronicle: chronicle.clone(),
        timeline: timeline.clone(),
        placed: placed(world, timeline),
    });
    user.furnish(world, policy).await?;
    user.make_overlays(&life.overlays).await?;
    user.make_standing(world, policy, &past).await?;
    let shutdown = Shutdown::new();
    let mut tasks = TaskGroup::new();
    tasks.spawn("time", time.run());
    tasks.spawn(
        "cluster",
        spokeshave_cluster::run(
            client_of(&server, &clock),
            clock.clone(),
            entropy.child("cluster"),
            cluster(world, &chronicle),
            shutdown.clone(),
        ),
    );
    start_operator(life, &server, &clock, &entropy, &chronicle, &mut tasks, &shutdown);
    let failure: Arc<OnceLock<String>> = Arc::default();
    let (told, following, start) = (failure.clone(), user.clone(), world.start);
    let mut users = TaskGroup::new();
    users.spawn("user", async move {
        if let Err(error) = following.follow(start).await {
            drop(told.set(error));
        }
    });
    tasks.spawn("completed", async move { user.tidy(completed).await });
    let parts = Parts {
        running: tasks.running(),
        panics,
        tasks: &tasks,
        failure: &failure,
    };
    let partial = pass(&clock, &chronicle, world, is_interrupted, &parts).await?;
    let run = chronicle.finish(&policy.name, life.seed, partial);
    // What runs ends with its runtime.
    shutdown.request();
    drop((users, tasks));
    Ok(run)
}

/// What must go on for as long as a cluster lives.
struct Parts<'t> {
    tasks: &'t TaskGroup,
    /// How many there were at the start.
    running: usize,
    /// How many have panicked on this thread in other lives.
    panics: usize,
    /// What the user was refused.
    failure: &'t OnceLock<String>,
}

impl Parts<'_> {
    /// Figures of a cluster of which a part is missing would be wrong.
    fn check(&self, chronicle: &Chronicle) -> Result<(), String> {
        if let Some(error) = self.failure.get() {
            return Err(error.clone());
        }
        if self.tasks.running() < self.running || spokeshave_runtime::panics_here() > self.panics {
            return Err("a part of the simulated cluster has ended: this is a defect of Spokeshave, and standard error says more".to_owned());
        }
        match chronicle.without_pods() {
            None => Ok(()),
            Some(owner) => Err(format!(
                "the simulated cluster makes no pods for {owner}: its API server refuses them, or they need something that is not simulated; run the scenario with --engine fast"
            )),
        }
    }
}

/// Time passes until the end; true when it was interrupted before.
async fn pass(
    clock: &SharedClock,
    chronicle: &Chronicle,
    world: &World,
    is_interrupted: &dyn Fn() -> bool,
    parts: &Parts<'_>,
) -> Result<bool, String> {
    loop {
        let left = world.duration_ms.saturating_sub(chronicle.now_ms());
        if left == 0 {
            return Ok(false);
        }
        let mut step = clock.sleep(STEP.min(Duration::from_millis(left)));
        let mut is_over = false;
        while !is_over {
            is_over = tokio::select! {
                biased;
                () = &mut step => true,
                // Time may stand still while something goes on and on.
                () = chronicle.stirs() => false,
            };
            if chronicle.now_ms() < world.duration_ms && is_interrupted() {
                // Figures until then are printed, too.
                parts.check(chronicle)?;
                return Ok(true);
            }
            chronicle.check_births()?;
        }
        parts.check(chronicle)?;
    }
}

fn server(clock: &SharedClock, entropy: &Entropy, chronicle: &Arc<Chronicle>, past: &Past) -> Arc<ApiServer> {
    let (time, past) = (clock.clone(), past.clone());
    let (observer, names) = (chronicle.clone(), chronicle.clone());
    ApiServer::new(Config {
        observer: Some(Arc::new(move |commit| observer.committed(commit))),
        identities: Some(Arc::new(move |plural, object| names.identify(plural, object))),
        ..Config::new(
            Arc::new(move || past.or(time.now())),
            entropy.child("apiserver").number("seed"),
        )
    })
}

/// The cluster's components. Signs of life of kubelets change nothing here, and a real scheduler takes no tenth of a second.
fn cluster(world: &World, chronicle: &Arc<Chronicle>) -> spokeshave_cluster::Options {
    spokeshave_cluster::Options {
        heartbeats: false,
        pace: Some(chronicle.clone()),
        scheduler_pause: Duration::ZERO,
        most_allocated: world.scoring == Scoring::MostAllocated,
        ..spokeshave_cluster::Options::all()
    }
}

fn start_operator(
    life: &Life,
    server: &Arc<ApiServer>,
    clock: &SharedClock,
    entropy: &Entropy,
    chronicle: &Arc<Chronicle>,
    tasks: &mut TaskGroup,
    shutdown: &Shutdown,
) {
    let market = Market::new(&life.world, &life.policy);
    let options = options(life, market.well_known());
    let cloud = Cloud::new(
        life.world.clone(),
        market,
        life.seed,
        chronicle.clone(),
        client_of(server, clock),
        clock.clone(),
    );
    for standing in &life.world.standing.nodes {
        cloud.stand(standing);
    }
    let way = OperatorWay {
        inner: server.service(),
        chronicle: chronicle.clone(),
    };
    let operator = Operator::new(
        from_service(way, "default", &unlimited(), clock.clone()),
        Arc::new(cloud),
        clock.clone(),
        entropy.child("operator"),
        options,
    );
    let stop = shutdown.clone();
    tasks.spawn("operator", async move { drop(operator.run(stop).await) });
}

/// The operator's settings, as a policy has them; what it needs beyond them is on.
fn options(life: &Life, well_known: &BTreeSet<String>) -> Options {
    let policy = &life.policy;
    let disrupt = &policy.settings.disrupt;
    Options {
        batch_idle_duration: Duration::from_millis(policy.batch_idle_ms),
        batch_max_duration: Duration::from_millis(policy.batch_max_ms),
        spot_to_spot_consolidation: disrupt.spot_to_spot,
        consolidation_replacements: disrupt.replacements,
        consolidation_rounds: disrupt.rounds,
        label_rules: LabelRules {
            well_known: well_known.iter().cloned().collect(),
            ..LabelRules::default()
        },
        feature_gates: FeatureGates {
            static_capacity: policy.node_pools.iter().any(|pool| pool.is_static()),
            node_overlay: !life.overlays.is_empty(),
            ..FeatureGates::default()
        },
        ..Options::default()
    }
}
