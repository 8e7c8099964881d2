//! A whole cluster on virtual time: the embedded API server, cluster components, the kwok cloud, and operators that start and stop, with
//! the checkers watching.
//!
//! It runs in one thread of a runtime whose time is paused, so one seed determines one run.

mod asked;
mod life;
mod mortal;
mod observed;
mod refusals;
mod weather;

pub use asked::Asked;
pub use life::Operators;
pub(crate) use life::{live, tell};
pub use mortal::Lifeline;
pub use observed::{Observed, RunLog, Traffic};
pub use refusals::REFUSED_COMMANDS;
pub use weather::{Rates, Weather};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::Value;
use spokeshave_api::crds::{Cloud, crds, crds_of};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_controllers::{LeaderElectionOptions, Operator, Options as OperatorOptions};
use spokeshave_ports::{CloudProvider, Entropy, SharedClock, TokioClock};
use spokeshave_provider_grpc::{ServerOptions, Way};
use spokeshave_provider_kwok::{KwokOptions, KwokProvider};
use spokeshave_runtime::client::{ClientOptions, from_service};
use spokeshave_runtime::{Api, ClientWrites, Metrics, Shutdown, TaskGroup};
use tokio::task::JoinHandle;

use crate::invariants::{Actor, Expectations, Invariants};
use mortal::Mortal;
use observed::Pace;
use refusals::Refusals;
use weather::Exposed;

/// How often checkers look at the time.
const TICK: Duration = Duration::from_secs(10);

/// How a laboratory is set up.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Names the run.
    pub seed: u64,
    /// The components of the cluster.
    pub cluster: spokeshave_cluster::Options,
    /// How the cloud behaves.
    pub cloud: KwokOptions,
    /// Settings of the operators.
    pub operator: OperatorOptions,
    /// Whether operators compete for a lease.
    pub leader_election: bool,
    /// Changes that the API server keeps of each kind; few make watches start afresh after a gap.
    pub history_limit: usize,
    /// What the checkers expect.
    pub expectations: Expectations,
    /// First instant.
    pub epoch: &'static str,
    /// Whether the log is kept, and with it which requests there were.
    pub keep_log: bool,
    /// Whether the log includes writes of scheduler, kubelets and workload controllers.
    pub log_cluster: bool,
    /// The maximum latency of a write of an operator, the cloud or cluster components; zero means no latency.
    pub write_time: Duration,
    /// Whether the cloud runs on its own; otherwise a provider must be run.
    pub cloud_lives: bool,
    /// How operators reach their providers.
    pub provider_way: Way,
}

impl LabOptions {
    /// A cluster with everything, and a cloud without failures whose machines take three seconds to end.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let expectations = Expectations::default();
        Self {
            seed,
            cluster: spokeshave_cluster::Options::all(),
            cloud: KwokOptions {
                termination_delay: expectations.termination_delay,
                ..KwokOptions::default()
            },
            operator: OperatorOptions::default(),
            leader_election: false,
            history_limit: 5_000,
            expectations,
            epoch: "2026-01-01T00:00:00Z",
            keep_log: true,
            log_cluster: false,
            write_time: Duration::ZERO,
            cloud_lives: true,
            provider_way: Way::default(),
        }
    }
}

/// An operator that runs.
#[derive(Debug)]
struct Replica {
    tasks: Vec<JoinHandle<()>>,
    /// Ends with the controllers.
    ended: Arc<std::sync::atomic::AtomicBool>,
    shutdown: Shutdown,
    metrics: Metrics,
}

/// The laboratory.
pub struct Lab {
    /// The API server.
    pub server: Arc<ApiServer>,
    /// A client of the user.
    pub client: Client,
    /// Virtual time.
    pub clock: SharedClock,
    /// Chance.
    pub entropy: Entropy,
    /// The checkers.
    pub invariants: Invariants,
    /// What happened.
    pub log: RunLog,
    /// How much was asked of the server.
    pub traffic: Traffic,
    options: LabOptions,
    replicas: BTreeMap<String, Replica>,
    weather: BTreeMap<String, Weather>,
    starts: BTreeMap<String, u64>,
    /// Of replicas that are no more.
    refused: Refusals,
    /// All so far.
    operators: Operators,
    shutdown: Shutdown,
    _tasks: TaskGroup,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Lab {
    /// A cluster with our definitions and nothing else. It must be made inside a runtime whose time is paused.
    ///
    /// # Panics
    /// The cluster does not take our own definitions.
    pub async fn new(options: LabOptions) -> Self {
        let epoch = options.epoch.parse().unwrap_or_default();
        let clock: SharedClock = TokioClock::new(epoch, 1.0).shared();
        let entropy = Entropy::new(options.seed);
        let invariants = Invariants::new(clock.clone(), options.seed, options.expectations);
        let log = RunLog::new(clock.clone(), options.keep_log);
        let traffic = Traffic::new(options.keep_log);
        let (time, observer) = (clock.clone(), invariants.clone());
        let server = ApiServer::new(Config {
            history_limit: options.history_limit,
            observer: Some(Arc::new(move |commit| observer.committed(commit))),
            ..Config::new(Arc::new(move || time.now()), options.seed)
        });
        let shutdown = Shutdown::new();
        let mut tasks = TaskGroup::new();
        let (clock_, invariants_) = (clock.clone(), invariants.clone());
        tasks.spawn("checkers", async move {
            loop {
                clock_.sleep(TICK).await;
                invariants_.tick();
            }
        });
        let client_of = |actor: Actor, logged| {
            let pace = pace_of(&options, &entropy, &clock, &actor);
            let way = observed(&server, &invariants, &log, &traffic, actor, logged);
            plain(Observed { pace, ..way }, &clock)
        };
        let client = client_of(Actor::User, true);
        let definitions: Api<CustomResourceDefinition> = Api::all(client_of(Actor::User, false));
        for definition in crds() {
            if let Err(error) = definitions.create(&PostParams::default(), &definition).await {
                panic!("the API server refuses our definitions: {error}");
            }
        }
        tasks.spawn(
            "cluster",
            spokeshave_cluster::run(
                client_of(Actor::Cluster, options.log_cluster),
                clock.clone(),
                entropy.child("sim"),
                options.cluster.clone(),
                shutdown.clone(),
            ),
        );
        let cloud = KwokProvider::new(
            client_of(Actor::Cloud, true),
            clock.clone(),
            &entropy.child("cloud"),
            options.cloud.clone(),
        );
        let stop = shutdown.clone();
        if options.cloud_lives {
            tasks.spawn("cloud", async move { cloud.run(stop.requested()).await });
        }
        Self {
            server,
            client,
            clock,
            entropy,
            invariants,
            log,
            traffic,
            options,
            replicas: BTreeMap::new(),
            weather: BTreeMap::new(),
            starts: BTreeMap::new(),
            refused: Refusals::default(),
            operators: Operators::default(),
            shutdown,
            _tasks: tasks,
        }
    }

    /// The server for a given actor, for inserting layers in between.
    #[must_use]
    pub fn way(&self, actor: Actor) -> Observed {
        let pace = pace_of(&self.options, &self.entropy, &self.clock, &actor);
        let way = observed(
            &self.server,
            &self.invariants,
            &self.log,
            &self.traffic,
            actor,
            true,
        );
        Observed { pace, ..way }
    }

    /// A client for a given actor.
    #[must_use]
    pub fn client_as(&self, actor: Actor) -> Client {
        plain(self.way(actor), &self.clock)
    }

    /// The weather between a replica and the API server.
    pub fn weather(&mut self, name: &str) -> Weather {
        let chance = self.entropy.child("weather").rng(name);
        self.weather
            .entry(name.to_owned())
            .or_insert_with(|| {
                Weather::new(
                    name,
                    chance,
                    self.clock.clone(),
                    self.invariants.clone(),
                    self.log.clone(),
                )
            })
            .clone()
    }

    /// A client of a replica, exposed to its [`weather`](Self::weather).
    #[must_use]
    pub fn client_outside(&mut self, name: &str) -> Client {
        let inner = self.way(Actor::Operator(name.to_owned()));
        let weather = self.weather(name);
        let exposed = Exposed { inner, weather };
        from_service(exposed, "default", &unlimited(), self.clock.clone())
    }

    /// Starts a replica, unless it runs.
    pub fn start(&mut self, name: &str) {
        if self.is_running(name) {
            return;
        }
        let client = self.client_outside(name);
        let cloud = self.client_as(Actor::CloudCalls(name.to_owned()));
        self.start_with(name, client, cloud);
    }

    /// Starts a replica that dies after so many writes, to Kubernetes or to its cloud. What is left of it must still be killed.
    pub fn start_mortal(&mut self, name: &str, writes: u64) -> Lifeline {
        let lifeline = Lifeline::new(writes);
        let client = |actor: Actor| {
            let mortal = Mortal {
                inner: self.way(actor),
                lifeline: lifeline.clone(),
            };
            from_service(mortal, "default", &unlimited(), self.clock.clone())
        };
        let (kubernetes, cloud) = (
            client(Actor::Operator(name.to_owned())),
            client(Actor::CloudCalls(name.to_owned())),
        );
        self.start_with(name, kubernetes, cloud);
        lifeline
    }

    fn start_with(&mut self, name: &str, client: Client, cloud: Client) {
        let provider = Arc::new(KwokProvider::new(
            cloud,
            self.clock.clone(),
            &self.entropy.child("cloud"),
            self.options.cloud.clone(),
        ));
        self.start_provider(name, client, provider);
    }

    /// Starts a replica with a given provider.
    pub fn start_provider(&mut self, name: &str, client: Client, provider: Arc<dyn CloudProvider>) {
        self.operators.add(Arc::downgrade(&provider));
        let starts = self.starts.entry(name.to_owned()).or_insert(0);
        *starts += 1;
        let entropy = self.entropy.child("operator").child(&format!("{name}/{starts}"));
        self.log.note(&format!("operator {name} starts"));
        self.invariants.disturb();
        let mut options = self.options.operator.clone();
        if self.options.leader_election {
            options.leader_election = Some(LeaderElectionOptions {
                namespace: "kube-system".to_owned(),
                name: "karpenter-leader-election".to_owned(),
                identity: name.to_owned(),
            });
        }
        let (clock, way) = (self.clock.clone(), self.options.provider_way);
        let shutdown = Shutdown::new();
        let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (stop, done) = (shutdown.clone(), ended.clone());
        let metrics = Metrics::new(self.clock.clone());
        let counted = metrics.clone();
        let (log, invariants, who) = (self.log.clone(), self.invariants.clone(), name.to_owned());
        let served = ServerOptions {
            writes: Arc::new(ClientWrites::new(client.clone())),
            ..ServerOptions::default()
        };
        let task = tokio::spawn(async move {
            let provider = match way.to(provider, clock.clone(), served).await {
                Ok(provider) => provider,
                Err(error) => {
                    log.note(&format!("operator {who} does not reach its provider: {error}"));
                    done.store(true, std::sync::atomic::Ordering::Relaxed);
                    return;
                }
            };
            let operator = Operator::new(client, provider, clock, entropy, options);
            let outcome = operator.with_metrics(counted).run(stop).await;
            log.note(&format!("operator {who} has ended: {outcome:?}"));
            invariants.disturb();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let replica = Replica {
            tasks: vec![task],
            ended,
            shutdown,
            metrics,
        };
        if let Some(before) = self.replicas.insert(name.to_owned(), replica) {
            self.refused.add(&before.metrics);
        }
    }

    /// Whether a replica was started and has not ended.
    #[must_use]
    pub fn is_running(&self, name: &str) -> bool {
        self.replicas
            .get(name)
            .is_some_and(|replica| !replica.ended.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// What a replica counts, if it was started and not ended from outside.
    #[must_use]
    pub fn metrics(&self, name: &str) -> Option<&Metrics> {
        self.replicas.get(name).map(|replica| &replica.metrics)
    }

    /// Ends a replica as `kill -9` does: nothing is said and nothing is finished.
    pub async fn kill(&mut self, name: &str) {
        let Some(replica) = self.replicas.remove(name) else {
            return;
        };
        self.log.note(&format!("operator {name} is killed"));
        self.invariants.disturb();
        for task in &replica.tasks {
            task.abort();
        }
        self.ended(replica).await;
    }

    /// Ends a replica in order.
    pub async fn stop(&mut self, name: &str) {
        let Some(replica) = self.replicas.remove(name) else {
            return;
        };
        self.log.note(&format!("operator {name} is stopped"));
        self.invariants.disturb();
        replica.shutdown.request();
        self.ended(replica).await;
    }

    /// Waits until a replica has ended, and remembers what its audit has refused.
    async fn ended(&mut self, replica: Replica) {
        for task in replica.tasks {
            drop(task.await);
        }
        self.refused.add(&replica.metrics);
    }

    /// What is wrong when the audit has refused commands of any replica so far, those that are no more included.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        let mut refused = self.refused.clone();
        for replica in self.replicas.values() {
            refused.add(&replica.metrics);
        }
        refused.told()
    }

    /// Ends everything: what the checkers found stays. Gives all operators that there were.
    pub async fn end(&mut self) -> Operators {
        let names: Vec<String> = self.replicas.keys().cloned().collect();
        for name in names {
            self.kill(&name).await;
        }
        self.shutdown.request();
        std::mem::take(&mut self.operators)
    }

    /// Defines the kinds of a cloud that are not defined from the beginning.
    ///
    /// # Errors
    /// The server's.
    pub async fn define(&self, cloud: Cloud) -> kube::Result<()> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let known = crds();
        for definition in crds_of(cloud) {
            let is_same = |known: &CustomResourceDefinition| known.metadata.name == definition.metadata.name;
            if !known.iter().any(is_same) {
                definitions.create(&PostParams::default(), &definition).await?;
            }
        }
        Ok(())
    }

    /// Creates an object as the user; `kind` and `apiVersion` may be left out.
    ///
    /// # Errors
    /// The server's.
    pub async fn create<K>(&self, api: &Api<K>, value: Value) -> kube::Result<K>
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let object = serde_json::from_value(value).map_err(kube::Error::SerdeError)?;
        api.create(&PostParams::default(), &object).await
    }

    /// Patches an object as the user.
    ///
    /// # Errors
    /// The server's.
    pub async fn merge<K>(&self, api: &Api<K>, name: &str, patch: Value) -> kube::Result<K>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// Every object of a kind.
    pub async fn list<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        api.list(&ListParams::default())
            .await
            .map(|list| list.items)
            .unwrap_or_default()
    }

    /// Every object of a kind as JSON.
    pub async fn list_values<K>(&self) -> Vec<Value>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let kind = kube::api::ApiResource::erase::<K>(&());
        let api: kube::Api<DynamicObject> = kube::Api::all_with(self.client.clone(), &kind);
        let list = api.list(&ListParams::default()).await;
        list.map(|list| list.items)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|object| serde_json::to_value(object).ok())
            .collect()
    }
}

fn unlimited() -> ClientOptions {
    ClientOptions {
        rate: None,
        ..ClientOptions::default()
    }
}

fn observed(
    server: &Arc<ApiServer>,
    invariants: &Invariants,
    log: &RunLog,
    traffic: &Traffic,
    actor: Actor,
    logged: bool,
) -> Observed {
    Observed {
        pace: None,
        inner: server.service(),
        actor,
        invariants: invariants.clone(),
        log: log.clone(),
        traffic: traffic.clone(),
        logged,
    }
}

/// How long an actor's writes take. The user's are instructions of the scenario, which take no time.
fn pace_of(options: &LabOptions, entropy: &Entropy, clock: &SharedClock, actor: &Actor) -> Option<Pace> {
    if *actor == Actor::User {
        return None;
    }
    let chance = entropy.child("pace").rng(&actor.to_string());
    Pace::new(options.write_time, chance, clock)
}

fn plain(service: Observed, clock: &SharedClock) -> Client {
    from_service(service, "default", &unlimited(), clock.clone())
}
