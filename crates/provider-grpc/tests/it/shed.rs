//! A cloud in memory that keeps its promises.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::{NodeClaim, NodeClaimSpec, NodeClassRef, NodePool, NodePoolSpec, labels};
use spokeshave_example as example;
use spokeshave_model::{InstanceType, PriceFeed, Requirements};
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, HookAnswer, Interruption, Interruptions, NodeClassKind,
    RegistrationHook, RepairPolicy, SharedClock, SharedWrites, TokioClock,
};
use spokeshave_provider_grpc::{ClientOptions, Connector};

pub(crate) fn clock() -> SharedClock {
    TokioClock::new("2026-01-01T00:00:00Z".parse().expect("a time"), 1.0).shared()
}

/// Of an operator of the cluster `uid`, without access to Kubernetes.
pub(crate) fn options(connector: Arc<dyn Connector>) -> ClientOptions {
    ClientOptions {
        connector,
        cluster_name: "a".into(),
        cluster_uid: "uid".into(),
        kubernetes_version: String::new(),
        node_classes: None,
        nodes: None,
    }
}

pub(crate) fn class() -> NodeClassRef {
    NodeClassRef {
        group: "shed.example".into(),
        kind: "ShedClass".into(),
        name: "default".into(),
    }
}

pub(crate) fn pool() -> NodePool {
    let mut pool = NodePool::new("general", NodePoolSpec::default());
    pool.spec.template.spec.node_class_ref = class();
    pool
}

pub(crate) fn claim(name: &str) -> NodeClaim {
    let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
    claim.metadata.uid = Some(format!("uid-of-{name}"));
    claim.spec.node_class_ref = class();
    claim
}

#[derive(Debug)]
pub(crate) struct Shed {
    clock: SharedClock,
    kinds: Vec<NodeClassKind>,
    pub(crate) types: Mutex<Arc<[InstanceType]>>,
    /// What the next launch finds out about them.
    pub(crate) found_out: Mutex<Option<Arc<[InstanceType]>>>,
    /// Instance, and for how many more questions it lasts once it ends.
    instances: Mutex<BTreeMap<String, (NodeClaim, Option<u32>)>>,
    /// Messages that are not acknowledged.
    pub(crate) messages: Mutex<Vec<Interruption>>,
    /// What a termination is answered, if it may not begin.
    pub(crate) refusal: Mutex<Option<CloudError>>,
    pub(crate) prices: Mutex<PriceFeed>,
    hooks: Vec<Arc<dyn RegistrationHook>>,
    /// Held by each who leads.
    lead: Arc<()>,
}

/// Lets Nodes register from the second minute on.
#[derive(Debug)]
struct Gate(SharedClock);

impl RegistrationHook for Gate {
    fn name(&self) -> &str {
        "gate"
    }
    fn registered<'a>(&'a self, _claim: &'a NodeClaim) -> CloudFuture<'a, HookAnswer> {
        let is_open = self.0.now().as_second() % 86_400 >= 60;
        let answer = if is_open {
            HookAnswer::Ready
        } else {
            HookAnswer::AskAgain(Duration::from_secs(7))
        };
        async move { Ok(answer) }.boxed()
    }
}

impl Shed {
    pub(crate) fn new(clock: SharedClock) -> Arc<Self> {
        let types = [
            example::instance_type("large", 8, 32, &["a", "b"]),
            example::instance_type("small", 2, 8, &["a", "b"]),
        ];
        Arc::new(Self {
            clock: clock.clone(),
            kinds: vec![NodeClassKind {
                group: "shed.example".into(),
                version: "v1".into(),
                kind: "ShedClass".into(),
                plural: "shedclasses".into(),
            }],
            types: Mutex::new(types.into()),
            found_out: Mutex::default(),
            instances: Mutex::default(),
            messages: Mutex::default(),
            refusal: Mutex::default(),
            prices: Mutex::default(),
            hooks: vec![Arc::new(Gate(clock.clone()))],
            lead: Arc::default(),
        })
    }

    /// How many lead now.
    pub(crate) fn leaders(&self) -> usize {
        Arc::strong_count(&self.lead) - 1
    }

    fn given(&self) -> Arc<[InstanceType]> {
        self.types.lock().expect("no panic").clone()
    }

    fn launch(&self, claim: &NodeClaim) -> Result<NodeClaim, CloudError> {
        let mut wanted = Requirements::new();
        for one in &claim.spec.requirements {
            let read = spokeshave_model::Requirement::parse(&one.key, one.operator.as_str(), &one.values);
            wanted.add(read.expect("a requirement"));
        }
        if let Some(types) = self.found_out.lock().expect("no panic").take() {
            *self.types.lock().expect("no panic") = types;
        }
        let types = self.given();
        let well_known = labels::WELL_KNOWN.iter().map(|key| (*key).to_owned()).collect();
        let chosen = types
            .iter()
            .filter(|one| one.requirements.intersects(&wanted).is_ok())
            .find_map(|one| Some((one, one.cheapest_offering(&wanted, &well_known)?)));
        let Some((chosen, offering)) = chosen else {
            return Err(CloudError::InsufficientCapacity("nothing suits".into()));
        };
        let id = format!("shed://{}", claim.uid());
        let mut created = claim.clone();
        let values = [
            (labels::INSTANCE_TYPE, chosen.name.as_str()),
            (labels::ZONE, offering.zone().unwrap_or_default()),
            (
                labels::CAPACITY_TYPE,
                offering.capacity_type().map_or("", |it| it.as_str()),
            ),
            (labels::ARCH, "amd64"),
            (labels::OS, "linux"),
        ];
        let values = values.map(|(key, value)| (key.to_owned(), value.to_owned()));
        created.metadata.labels.get_or_insert_default().extend(values);
        created.metadata.creation_timestamp = Some(Time(self.clock.now()));
        let status = created.status.get_or_insert_default();
        status.provider_id = Some(id.clone());
        status.capacity = chosen.capacity.to_quantities();
        status.allocatable = chosen.allocatable().to_quantities();
        let mut instances = self.instances.lock().expect("no panic");
        Ok(instances.entry(id).or_insert((created, None)).0.clone())
    }

    fn terminate(&self, id: &str) -> Result<(), CloudError> {
        if let Some(refusal) = self.refusal.lock().expect("no panic").clone() {
            return Err(refusal);
        }
        let mut instances = self.instances.lock().expect("no panic");
        let Some((_, left)) = instances.get_mut(id) else {
            return Err(CloudError::NodeClaimNotFound(id.to_owned()));
        };
        match left {
            None => *left = Some(2),
            Some(0) => drop(instances.remove(id)),
            Some(left) => *left -= 1,
        }
        Ok(())
    }
}

impl CloudProvider for Shed {
    fn name(&self) -> &str {
        "shed"
    }
    fn supported_node_classes(&self) -> &[NodeClassKind] {
        &self.kinds
    }
    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        async move { self.launch(claim) }.boxed()
    }
    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        async move { self.terminate(claim.provider_id().unwrap_or_default()) }.boxed()
    }
    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        async move {
            let instances = self.instances.lock().expect("no panic");
            let found = instances.get(provider_id).map(|(claim, _)| claim.clone());
            found.ok_or_else(|| CloudError::NodeClaimNotFound(provider_id.to_owned()))
        }
        .boxed()
    }
    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        let instances = self.instances.lock().expect("no panic");
        let all: Vec<NodeClaim> = instances.values().map(|(claim, _)| claim.clone()).collect();
        async move { Ok(all) }.boxed()
    }
    fn instance_types<'a>(&'a self, _pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        async move { Ok(self.given()) }.boxed()
    }
    /// All instances have the image `a`, which a class need not name.
    fn is_drifted<'a>(
        &'a self,
        _claim: &'a NodeClaim,
        class: Option<&'a kube::api::DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        let image = class.and_then(|class| class.data.pointer("/spec/image"));
        let has_drifted = image.is_some_and(|image| image != "a");
        async move { Ok(has_drifted.then(|| "ImageDrift".to_owned())) }.boxed()
    }
    fn registration_hooks(&self) -> &[Arc<dyn RegistrationHook>] {
        &self.hooks
    }
    fn lead(&self, _writes: SharedWrites) -> BoxFuture<'_, ()> {
        let lead = self.lead.clone();
        async move {
            let _lead = lead;
            std::future::pending().await
        }
        .boxed()
    }
    fn repair_policies(&self) -> &[RepairPolicy] {
        &[]
    }
    fn price_feed(&self) -> PriceFeed {
        *self.prices.lock().expect("no panic")
    }
    fn interruptions(&self) -> Option<Interruptions<'_>> {
        let waiting = self.messages.lock().expect("no panic").clone();
        Some(futures::StreamExt::boxed(futures::StreamExt::chain(
            futures::stream::iter(waiting),
            futures::stream::pending(),
        )))
    }
    fn acknowledge<'a>(&'a self, message: &'a Interruption) -> CloudFuture<'a, ()> {
        self.messages
            .lock()
            .expect("no panic")
            .retain(|one| one.id != message.id);
        async { Ok(()) }.boxed()
    }
}
