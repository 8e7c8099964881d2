//! Clusters in bad company: their operators have a cloud with faults, and a gate between them and the API server.

mod cloud;
mod gate;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use spokeshave_controllers::shadow::{Report, Shadow};
use spokeshave_controllers::{
    DecisionLog, FeatureGates, LeaderElectionOptions, Observer, Operator, Options as OperatorOptions,
};
use spokeshave_ports::{RegistrationHook, SharedClock};
use spokeshave_provider_kwok::{KwokOptions, KwokProvider};
use spokeshave_runtime::client::{ClientOptions, RequestLog, from_service};
use spokeshave_runtime::{Metrics, Readiness, Shutdown};
use spokeshave_sim::invariants::Actor;
use spokeshave_sim::lab::{Lab, LabOptions};

use crate::words::*;
pub use cloud::message;
use cloud::{Faults, Faulty};
pub use gate::Gate;
use gate::Gated;

/// A laboratory in which the checkers watch; what a test does against a promise on purpose, it excuses.
pub struct Cluster {
    pub lab: Arc<Lab>,
    pub shutdown: Shutdown,
    pub faults: Arc<Faults>,
    pub gate: Gate,
    pub excused: Arc<Mutex<BTreeSet<u8>>>,
}

impl std::ops::Deref for Cluster {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

impl Scene for Cluster {
    fn lab(&self) -> &Lab {
        &self.lab
    }

    fn assert_kept(&self) {
        let excused = self.excused.lock().unwrap();
        let mut found = self.invariants.violations();
        found.retain(|one| !excused.contains(&one.invariant));
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// What a test may change of an operator.
pub struct Setup {
    pub options: OperatorOptions,
    pub kwok: KwokOptions,
    pub rate: Option<(f64, u32)>,
    pub identity: &'static str,
    pub log: Option<RequestLog>,
    /// Who is told of decisions.
    pub decisions: DecisionLog,
    /// What the cloud wants done before a Node registers.
    pub hooks: Vec<Arc<dyn RegistrationHook>>,
    /// The operator's clock, if it has a separate one.
    pub clock: Option<SharedClock>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            options: OperatorOptions::default(),
            kwok: KwokOptions {
                termination_delay: Duration::from_secs(3),
                ..KwokOptions::default()
            },
            rate: None,
            identity: "operator",
            log: None,
            decisions: DecisionLog::default(),
            hooks: Vec::new(),
            clock: None,
        }
    }
}

impl Setup {
    pub fn with_cloud(kwok: KwokOptions) -> Self {
        Self {
            kwok,
            ..Self::default()
        }
    }

    pub fn with_options(options: OperatorOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    pub fn with_gates(feature_gates: FeatureGates) -> Self {
        Self::with_options(OperatorOptions {
            feature_gates,
            ..OperatorOptions::default()
        })
    }

    /// One of several, of which one leads.
    pub fn candidate(identity: &'static str) -> Self {
        let election = LeaderElectionOptions {
            namespace: "kube-system".to_owned(),
            name: "karpenter-leader-election".to_owned(),
            identity: identity.to_owned(),
        };
        let options = OperatorOptions {
            leader_election: Some(election),
            ..OperatorOptions::default()
        };
        Self {
            identity,
            ..Self::with_options(options)
        }
    }
}

pub struct Running {
    pub metrics: Metrics,
    pub readiness: Readiness,
    pub observer: Observer,
    /// Ends it in order.
    pub stop: Shutdown,
    pub task: tokio::task::JoinHandle<Result<(), spokeshave_controllers::OperatorError>>,
}

impl Running {
    /// Ends it in order.
    pub async fn end(self) {
        self.stop.request();
        self.task.await.unwrap().unwrap();
    }
}

impl Cluster {
    pub async fn new(seed: u64) -> Self {
        Self::with(seed, spokeshave_cluster::Options::all()).await
    }

    pub async fn with(seed: u64, options: spokeshave_cluster::Options) -> Self {
        let options = LabOptions {
            cluster: options,
            cloud_lives: false,
            ..LabOptions::new(seed)
        };
        let cluster = Self {
            lab: Arc::new(Lab::new(options).await),
            shutdown: Shutdown::new(),
            faults: Arc::default(),
            gate: Gate::default(),
            excused: Arc::default(),
        };
        cluster.node_class().await;
        cluster
    }

    /// A cluster with NodePool `default`, changed by a merge patch of its spec, and an operator.
    pub async fn started(seed: u64, change: Value) -> (Self, Running) {
        Self::started_with(seed, change, Setup::default()).await
    }

    pub async fn started_with(seed: u64, change: Value, setup: Setup) -> (Self, Running) {
        let cluster = Self::new(seed).await;
        cluster.pool("default", change).await;
        let operator = cluster.operator(setup);
        (cluster, operator)
    }

    /// The same with one node, on which the only pod of `web` runs, and the name of its NodeClaim.
    pub async fn one_node(seed: u64, change: Value) -> (Self, Running, String) {
        let (cluster, operator) = Self::started(seed, change).await;
        let claim = cluster.run_one_pod().await;
        (cluster, operator, claim)
    }

    /// Deploys `web` with one pod, waits until it runs, and returns the NodeClaim that was made for it.
    pub async fn run_one_pod(&self) -> String {
        self.run("web", 1, "1").await;
        self.claim_of_pod("web").await
    }

    /// Starts an operator and, for it, a cloud.
    pub fn operator(&self, setup: Setup) -> Running {
        let clock = setup.clock.unwrap_or_else(|| self.clock.clone());
        let metrics = Metrics::new(clock.clone());
        let options = ClientOptions {
            rate: setup.rate,
            log: setup.log,
            metrics: Some(metrics.clone()),
            ..ClientOptions::default()
        };
        self.invariants.disturb();
        let name = setup.identity.to_owned();
        let gated = Gated {
            inner: self.lab.way(Actor::Operator(name.clone())),
            gate: self.gate.clone(),
        };
        let client = from_service(gated, "default", &options, self.clock.clone());
        let provider = Arc::new(KwokProvider::new(
            self.lab.client_as(Actor::CloudCalls(name)),
            self.clock.clone(),
            &self.entropy.child("kwok"),
            setup.kwok,
        ));
        let cloud = Arc::new(Faulty {
            inner: provider.clone(),
            faults: self.faults.clone(),
            hooks: setup.hooks,
        });
        let operator = Operator::new(
            client,
            cloud,
            clock,
            self.entropy.child(setup.identity),
            setup.options,
        )
        .with_metrics(metrics.clone())
        .with_decisions(setup.decisions);
        let readiness = operator.readiness().clone();
        let observer = operator.observer();
        let stop = self.shutdown.child();
        let until = stop.clone();
        tokio::spawn(async move { provider.run(until.requested()).await });
        let until = stop.clone();
        let task = tokio::spawn(async move { operator.run(until).await });
        Running {
            metrics,
            readiness,
            observer,
            stop,
            task,
        }
    }

    /// Starts a shadow, with the operator's permissions and a separate cloud; returns its report and its metrics.
    pub fn shadow(&self, log: &RequestLog) -> (Report, Metrics) {
        let options = ClientOptions {
            rate: None,
            log: Some(log.clone()),
            ..ClientOptions::default()
        };
        let client = from_service(
            self.lab.way(Actor::Operator("shadow".to_owned())),
            "default",
            &options,
            self.clock.clone(),
        );
        let (clock, entropy) = (self.clock.clone(), self.entropy.child("shadow"));
        let kwok = KwokProvider::new(client.clone(), clock.clone(), &entropy, KwokOptions::default());
        let metrics = Metrics::new(clock.clone());
        let options = OperatorOptions::default();
        let shadow = Shadow::new(&client, Arc::new(kwok), clock, entropy, options, metrics.clone());
        let report = shadow.report();
        tokio::spawn(shadow.run(self.shutdown.child()));
        (report, metrics)
    }

    /// NodePools `a` and `b`, each with the label `team` of its name; launches for `a` never answer.
    pub async fn teams_a_and_b_where_launches_of_a_hang(&self) {
        for team in ["a", "b"] {
            let labels = json!({"template": {"metadata": {"labels": {"team": team}}}});
            self.pool(team, labels).await;
        }
        let mut hanging = self.faults.hanging_pools.lock().unwrap();
        hanging.insert("a".to_owned());
    }

    /// The test breaks this promise on purpose.
    pub fn excuse(&self, invariant: u8) {
        self.excused.lock().unwrap().insert(invariant);
    }

    pub async fn blocked(&self, claim: &str) -> Option<(String, String)> {
        let (_, reason, message) = self.condition(claim, "spokeshave.dev/TerminationBlocked").await?;
        Some((reason, message))
    }

    pub async fn until_blocked(&self, claim: &str, reason: &str) -> String {
        self.until(&format!("{claim} says {reason}"), async |cluster| {
            cluster
                .blocked(claim)
                .await
                .is_some_and(|(found, _)| found == reason)
        })
        .await;
        self.blocked(claim).await.unwrap().1
    }
}
