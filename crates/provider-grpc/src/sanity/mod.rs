//! The kit that checks a provider from outside (G-024): every promise of the protocol that can be tried, and those of the port over the protocol.
//!
//! Owns the checks; what is broken is reported by the name of the promise. It launches a few instances of the cheapest offering and ends them, whatever they
//! have shown; what it cannot end it names. It calls in the leader's term that the provider has seen last, so that it outdates no operator.

mod class;
mod launches;
mod leftovers;
mod noting;
mod required;
mod restart;
mod snapshot;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use spokeshave_api::{NodeClaim, NodeClaimSpec, NodeClassRef, NodePool, Operator, Requirement, labels};
use spokeshave_model::InstanceType;
use spokeshave_ports::conformance::{Failure, Failures, Harness, check_all};
use spokeshave_ports::{CloudProvider, SharedClock};

use crate::client::{ClientOptions, GrpcProvider};
use crate::errors::ConnectError;
use crate::link;
use crate::transport::Connector;

use class::GivenClass;
use leftovers::Launched;
use noting::Noting;
use wire::Wire;

pub use restart::Restart;

/// What the kit needs to know.
#[derive(Clone, Debug)]
pub struct SanityOptions {
    /// Where the provider is.
    pub connector: Arc<dyn Connector>,
    /// A NodeClass that the provider accepts, with apiVersion, kind and name. By default one of the first kind of the handshake whose spec is empty.
    pub node_class: Option<DynamicObject>,
    /// The same NodeClass in another state, in which instances of the first have drifted. By default one more field is in its spec, unless the provider
    /// decides about drift itself.
    pub changed_node_class: Option<DynamicObject>,
    /// The name of that default.
    pub node_class_name: String,
    /// UID of the cluster that the provider serves.
    pub cluster_uid: String,
    /// Distinguishes the instances of this run from those of others.
    pub run: String,
    /// How the provider is restarted; without it no restart is tried.
    pub restart: Option<Arc<dyn Restart>>,
    /// Whether minutes pass without anybody waiting for them. Where they do not, no launch is repeated minutes later.
    pub is_time_virtual: bool,
}

type Shortcomings = Vec<Failure>;

fn failure(check: &'static str, message: impl Into<String>) -> Failure {
    Failure {
        check,
        message: message.into(),
    }
}

/// A promise that was not tried: the kit was not told how, or it would take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untried {
    /// What a provider that decides about drift itself says of a NodeClass that has changed.
    DriftOfAChangedClass,
    /// What is known after a restart.
    Restart,
    /// Whether a launch that is repeated minutes later finds its instance.
    LaunchMinutesLater,
}

/// Checks a provider, and tells what was not tried.
///
/// # Errors
/// All broken promises.
pub async fn check(options: &SanityOptions, clock: &SharedClock) -> Result<Vec<Untried>, Failures> {
    let mut failures = Shortcomings::new();
    let hello = link::hello("sanity", &options.cluster_uid, "");
    let shaken = match link::connect(&*options.connector, clock, &hello).await {
        Ok(shaken) => shaken,
        Err(ConnectError::Refused { reason, .. }) => {
            return Err(Failures(vec![failure("handshake_is_complete", reason)]));
        }
        Err(unreachable) => {
            return Err(Failures(vec![failure(
                "provider_answers",
                unreachable.to_string(),
            )]));
        }
    };
    let class = match GivenClass::new(options, &shaken.identity) {
        Ok(class) => class,
        Err(reason) => return Err(Failures(vec![failure("node_class_is_served", reason)])),
    };
    if let Some(mode) = options.connector.file_mode().filter(|mode| mode & 0o077 != 0) {
        let address = options.connector.address();
        let message =
            format!("{address} has mode {mode:o}, so that others may launch instances; expected 600");
        failures.push(failure("sockets_are_private", message));
    }
    let rules = shaken.identity.problems.iter();
    failures.extend(rules.map(|problem| failure("handshake_rules_are_whole", problem.as_str())));
    let untried = [
        class.changed.is_none().then_some(Untried::DriftOfAChangedClass),
        options.restart.is_none().then_some(Untried::Restart),
        (!options.is_time_virtual).then_some(Untried::LaunchMinutesLater),
    ];
    let mut wire = Wire {
        options,
        clock,
        hello,
        // A provider that has seen none is called in the first, so that it has one to be outdated by.
        term: shaken.seen_term.max(1),
        class,
        shaken,
        launched: Launched::default(),
    };
    let _follower = wire.follow().await;
    wire.handshake(&mut failures).await;
    wire.capabilities(&mut failures).await;
    let can_end_instances = wire.can_end_instances(&mut failures).await;
    if let Some(types) = wire.catalog(&mut failures).await
        && can_end_instances
    {
        wire.strangers(&mut failures).await;
        wire.launches(&types, &mut failures).await;
        // Nothing of it comes or goes while the suite counts.
        wire.end_launched(&mut failures).await;
        let has_all_calls = failures.iter().all(|one| one.check != required::CHECK);
        if has_all_calls && let Err(broken) = over_the_port(options, clock, &wire, &types).await {
            failures.extend(broken.0);
        }
        wire.end_launched(&mut failures).await;
    }
    if failures.is_empty() {
        Ok(untried.into_iter().flatten().collect())
    } else {
        Err(Failures(failures))
    }
}

/// The suite of the port, on the client that the operator uses.
async fn over_the_port(
    options: &SanityOptions,
    clock: &SharedClock,
    wire: &Wire<'_>,
    types: &[InstanceType],
) -> Result<(), Failures> {
    let client = ClientOptions {
        connector: options.connector.clone(),
        cluster_name: "sanity".to_owned(),
        cluster_uid: options.cluster_uid.clone(),
        kubernetes_version: String::new(),
        node_classes: Some(Arc::new(wire.class.clone())),
        nodes: None,
    };
    let provider = GrpcProvider::connect(client, clock.clone()).await;
    let provider =
        provider.map_err(|error| Failures(vec![failure("handshake_is_complete", error.to_string())]))?;
    let harness = Kit {
        provider: Noting {
            provider,
            launched: wire.launched.clone(),
        },
        clock: clock.clone(),
        class: wire.class.clone(),
        run: options.run.clone(),
        cheapest: cheapest(types),
        is_time_virtual: options.is_time_virtual,
    };
    check_all(&harness).await
}

fn cheapest(types: &[InstanceType]) -> String {
    let priced = types.iter().filter_map(|one| {
        let available = one.offerings.iter().filter(|offering| offering.available);
        Some((available.map(|offering| offering.price).min()?, &one.name))
    });
    priced.min().map(|(_, name)| name.clone()).unwrap_or_default()
}

/// What the suite of the port is lent.
struct Kit {
    provider: Noting,
    clock: SharedClock,
    class: GivenClass,
    run: String,
    cheapest: String,
    is_time_virtual: bool,
}

fn claim(class: &NodeClassRef, name: &str, run: &str, requirements: Vec<Requirement>) -> NodeClaim {
    let spec = NodeClaimSpec {
        requirements,
        node_class_ref: class.clone(),
        ..NodeClaimSpec::default()
    };
    let name = format!("{name}-{run}");
    let mut claim = NodeClaim::new(&name, spec);
    claim.metadata.uid = Some(format!("uid-of-{name}"));
    claim.metadata.labels = Some(BTreeMap::from([(
        labels::NODE_POOL.to_owned(),
        "sanity".to_owned(),
    )]));
    claim
}

impl Harness for Kit {
    fn provider(&self) -> &dyn CloudProvider {
        &self.provider
    }
    fn clock(&self) -> SharedClock {
        self.clock.clone()
    }
    fn is_time_virtual(&self) -> bool {
        self.is_time_virtual
    }
    fn node_pool(&self) -> NodePool {
        crate::server::pool_of(&self.class.reference())
    }
    fn node_claim(&self, name: &str) -> NodeClaim {
        let cheapest = Requirement::new(labels::INSTANCE_TYPE, Operator::In, &[&self.cheapest]);
        claim(&self.class.reference(), name, &self.run, vec![cheapest])
    }
    fn impossible_node_claim(&self, name: &str) -> NodeClaim {
        let nowhere = Requirement::new(labels::ZONE, Operator::In, &["sanity-nowhere"]);
        claim(&self.class.reference(), name, &self.run, vec![nowhere])
    }
    fn node_claim_without_class(&self, _name: &str) -> Option<NodeClaim> {
        None
    }
    /// Of a form that a provider may demand, and never another instance's, of which there may be some already.
    fn unknown_provider_id(&self, real: &str) -> String {
        format!("{real}00000000")
    }
    fn node_class(&self) -> BoxFuture<'_, Option<DynamicObject>> {
        std::future::ready(Some(self.class.object.clone())).boxed()
    }
    fn change_node_class(&self, class: &mut DynamicObject) {
        if let Some(changed) = &self.class.changed {
            class.clone_from(changed);
        }
    }
}
