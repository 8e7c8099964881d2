//! The cloud of the full engine: it sells what the fast engine's market sells, with the same delays, and its machines join the cluster.
//!
//! Owns the instances. It decides nothing but which offering a launch gets, which is the market's answer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::labels::unregistered_taint;
use spokeshave_api::{KWOKNodeClass, NodeClaim, NodeClaimStatus, NodePool, labels};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_model::{CapacityType, InstanceType, Offering};
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, Interruption, Interruptions, NodeClassKind, RepairPolicy,
    SharedClock,
};
use spokeshave_runtime::Api;
use spokeshave_simulate::draws::Draws;
use spokeshave_simulate::market::{Market, node_labels};
use spokeshave_simulate::{StandingNode, World};

use crate::chronicle::Chronicle;

/// What marks a Node whose kubelet lives in this process.
pub(crate) const FAKE_NODE: &str = "kwok.x-k8s.io/node";
/// Where provider IDs begin.
const SCHEME: &str = "simulated://";

/// An instance.
#[derive(Clone, Debug)]
struct Instance {
    claim: NodeClaim,
    /// The name of its Node.
    node: String,
    machine: u32,
    launched: Time,
    is_ending: bool,
}

/// The cloud. Clones share it.
#[derive(Clone)]
pub(crate) struct Cloud(Arc<Inner>);

struct Inner {
    world: Arc<World>,
    draws: Draws,
    market: Mutex<Market>,
    chronicle: Arc<Chronicle>,
    client: Client,
    clock: SharedClock,
    instances: Mutex<BTreeMap<String, Instance>>,
    messages: UnboundedSender<Interruption>,
    listener: Mutex<Option<UnboundedReceiver<Interruption>>>,
    kinds: [NodeClassKind; 1],
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl Cloud {
    pub(crate) fn new(
        world: Arc<World>,
        market: Market,
        seed: u64,
        chronicle: Arc<Chronicle>,
        client: Client,
        clock: SharedClock,
    ) -> Self {
        let (messages, listener) = unbounded();
        Cloud(Arc::new(Inner {
            world,
            draws: Draws::new(seed),
            market: Mutex::new(market),
            chronicle,
            client,
            clock,
            instances: Mutex::default(),
            messages,
            listener: Mutex::new(Some(listener)),
            kinds: [NodeClassKind {
                group: KWOKNodeClass::GROUP.to_owned(),
                version: KWOKNodeClass::VERSION.to_owned(),
                kind: KWOKNodeClass::KIND.to_owned(),
                plural: KWOKNodeClass::PLURAL.to_owned(),
            }],
        }))
    }

    /// Launches a NodeClaim, from these instance types where the operator has corrected them.
    async fn launch(
        &self,
        claim: &NodeClaim,
        corrected: Option<&[InstanceType]>,
    ) -> Result<NodeClaim, CloudError> {
        let inner = &self.0;
        let name = claim.metadata.name.clone().unwrap_or_default();
        let id = format!("{SCHEME}{name}");
        if let Some(known) = lock(&inner.instances).get(&id) {
            return Ok(known.claim.clone());
        }
        let machine = inner.chronicle.machine(&name).ok_or_else(|| {
            CloudError::Other(format!(
                "NodeClaim {name} was not made by this cluster's API server"
            ))
        })?;
        let delay = inner.draws.launch_ms(machine, &inner.world.delays);
        inner.clock.sleep(milliseconds(delay)).await;
        let now_ms = inner.chronicle.now_ms();
        let sale = {
            let mut market = lock(&inner.market);
            let draw = |zone: &str| inner.draws.zone(machine, zone);
            match corrected {
                Some(types) => market.launch_from(claim, types, now_ms, draw),
                None => market.launch(claim, now_ms, draw),
            }
        };
        let Some((instance_type, offering)) = sale.choice else {
            inner.chronicle.refused(&name);
            return Err(CloudError::InsufficientCapacity(
                "no capacity for any instance type of the NodeClaim".to_owned(),
            ));
        };
        let answer = answer(claim, &id, &instance_type, &offering);
        inner.chronicle.launched(&name, &instance_type, &offering);
        let instance = Instance {
            claim: answer.clone(),
            node: name,
            machine,
            launched: Time(inner.clock.now()),
            is_ending: false,
        };
        lock(&inner.instances).insert(id.clone(), instance);
        let (cloud, joins) = (self.clone(), id.clone());
        tokio::spawn(async move { cloud.join(&joins).await });
        if offering.capacity_type() == Some(CapacityType::Spot) {
            let cloud = self.clone();
            tokio::spawn(async move { cloud.take_back(&id).await });
        }
        Ok(answer)
    }

    /// An instance is there from the start.
    pub(crate) fn stand(&self, standing: &StandingNode) {
        let inner = &self.0;
        let claim = &standing.claim;
        let id = claim.provider_id().map(str::to_owned);
        let Some((id, machine)) = id.zip(inner.chronicle.machine(claim.name())) else {
            return;
        };
        let made = claim.metadata.creation_timestamp.clone();
        let instance = Instance {
            claim: NodeClaim::clone(claim),
            node: standing.node.metadata.name.clone().unwrap_or_default(),
            machine,
            launched: made.unwrap_or_else(|| Time(inner.clock.now())),
            is_ending: false,
        };
        lock(&inner.instances).insert(id.clone(), instance);
        if standing.capacity_type == CapacityType::Spot {
            let cloud = self.clone();
            tokio::spawn(async move { cloud.take_back(&id).await });
        }
    }

    fn instance(&self, id: &str) -> Option<Instance> {
        lock(&self.0.instances).get(id).cloned()
    }

    /// The kubelet of an instance joins the cluster, after it has booted.
    async fn join(&self, id: &str) {
        let inner = &self.0;
        let Some(instance) = self.instance(id) else { return };
        let boot = inner.draws.boot_ms(instance.machine, &inner.world.delays);
        inner.clock.sleep(milliseconds(boot)).await;
        let Some(instance) = self.instance(id).filter(|instance| !instance.is_ending) else {
            return;
        };
        let claim = &instance.claim;
        let name = claim.metadata.name.clone().unwrap_or_default();
        let ready = inner.draws.node_ready_ms(instance.machine, &inner.world.delays);
        inner.chronicle.will_be_ready(&name, ready);
        let node = node_of(claim, id);
        let Ok(node) = serde_json::from_value::<Node>(node) else {
            return;
        };
        let nodes: Api<Node> = Api::all(inner.client.clone());
        drop(nodes.create(&PostParams::default(), &node).await);
        if !claim.spec.startup_taints.is_empty() {
            inner.clock.sleep(milliseconds(ready)).await;
            self.finish_start(&nodes, &name, claim).await;
        }
    }

    /// What startup taints wait for is done when the node is ready.
    async fn finish_start(&self, nodes: &Api<Node>, name: &str, claim: &NodeClaim) {
        let Ok(node) = nodes.get(name).await else { return };
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let kept: Vec<_> = taints
            .into_iter()
            .filter(|taint| !claim.spec.startup_taints.contains(taint))
            .collect();
        let patch = Patch::Merge(json!({"spec": {"taints": kept}}));
        drop(nodes.patch(name, &PatchParams::default(), &patch).await);
    }

    /// The cloud announces that it takes a spot instance back, and takes it.
    async fn take_back(&self, id: &str) {
        let inner = &self.0;
        let Some(instance) = self.instance(id) else { return };
        let spot = inner.world.spot;
        let Some((spot, wait)) = spot.and_then(|spot| {
            let wait = inner.draws.spot_ms(instance.machine, &spot)?;
            Some((spot, wait))
        }) else {
            return;
        };
        inner.clock.sleep(milliseconds(wait)).await;
        if self.instance(id).is_none() {
            return;
        }
        let notice = milliseconds(spot.notice_ms);
        let now = inner.clock.now();
        inner
            .chronicle
            .interrupted(instance.claim.metadata.name.as_deref().unwrap_or_default());
        drop(inner.messages.unbounded_send(Interruption {
            id: id.to_owned(),
            provider_id: id.to_owned(),
            kind: Ok(InterruptionKind::SpotInterrupted),
            sent_at: Some(now),
            ends_at: now.saturating_add(notice).ok(),
        }));
        inner.clock.sleep(notice).await;
        self.end(id).await;
    }

    /// An instance has ended; its kubelet falls silent.
    async fn end(&self, id: &str) {
        let inner = &self.0;
        let Some(instance) = lock(&inner.instances).remove(id) else {
            return;
        };
        let name = instance.claim.metadata.name.unwrap_or_default();
        inner.chronicle.ended(&name);
        let nodes: Api<Node> = Api::all(inner.client.clone());
        let now = Time(inner.clock.now());
        let patch = Patch::Strategic(json!({"status": {"conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "the kubelet has fallen silent",
            "lastTransitionTime": now,
        }]}}));
        let parameters = PatchParams::default();
        drop(nodes.patch_status(&instance.node, &parameters, &patch).await);
    }
}

/// What the cloud tells of an instance.
fn answer(claim: &NodeClaim, id: &str, instance_type: &InstanceType, offering: &Offering) -> NodeClaim {
    let mut answer = NodeClaim::new(
        claim.metadata.name.as_deref().unwrap_or_default(),
        claim.spec.clone(),
    );
    answer.metadata.labels = Some(node_labels(claim, instance_type, offering));
    answer.status = Some(NodeClaimStatus {
        provider_id: Some(id.to_owned()),
        capacity: instance_type.capacity.to_quantities(),
        allocatable: instance_type.allocatable().to_quantities(),
        ..NodeClaimStatus::default()
    });
    answer
}

/// The Node of an instance, as its kubelet writes it first.
fn node_of(claim: &NodeClaim, id: &str) -> serde_json::Value {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let mut own = claim.metadata.labels.clone().unwrap_or_default();
    own.insert(labels::HOSTNAME.to_owned(), name.to_owned());
    let taints: Vec<_> = [unregistered_taint()]
        .into_iter()
        .chain(claim.spec.startup_taints.clone())
        .collect();
    let status = claim.status.as_ref();
    json!({
        "metadata": {"name": name, "labels": own, "annotations": {FAKE_NODE: "fake"}},
        "spec": {"providerID": id, "taints": taints},
        "status": {
            "capacity": status.map(|status| &status.capacity), "allocatable": status.map(|status| &status.allocatable),
        },
    })
}

fn not_found(id: &str) -> CloudError {
    CloudError::NodeClaimNotFound(format!("there is no instance {id}"))
}

impl CloudProvider for Cloud {
    fn name(&self) -> &str {
        "simulated"
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        &self.0.kinds
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        Box::pin(self.launch(claim, None))
    }

    fn create_from<'a>(
        &'a self,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> CloudFuture<'a, NodeClaim> {
        Box::pin(self.launch(claim, Some(types)))
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        Box::pin(async move {
            // Of a launch whose answer was not written, the name is known.
            let named = || format!("{SCHEME}{}", claim.metadata.name.as_deref().unwrap_or_default());
            let id = claim.provider_id().map_or_else(named, str::to_owned);
            let (machine, is_first) = {
                let mut instances = lock(&self.0.instances);
                let instance = instances.get_mut(&id).ok_or_else(|| not_found(&id))?;
                (
                    instance.machine,
                    !std::mem::replace(&mut instance.is_ending, true),
                )
            };
            if is_first {
                let delay = self.0.draws.end_ms(machine, &self.0.world.delays);
                let cloud = self.clone();
                tokio::spawn(async move {
                    cloud.0.clock.sleep(milliseconds(delay)).await;
                    cloud.end(&id).await;
                });
            }
            Ok(())
        })
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        let found = self.instance(provider_id).map(|instance| instance.claim);
        Box::pin(async move { found.ok_or_else(|| not_found(provider_id)) })
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        let now = Time(self.0.clock.now());
        let instances: Vec<NodeClaim> = lock(&self.0.instances)
            .values()
            .map(|instance| {
                let mut claim = instance.claim.clone();
                claim.metadata.creation_timestamp = Some(instance.launched.clone());
                claim.metadata.deletion_timestamp = instance.is_ending.then(|| now.clone());
                claim
            })
            .collect();
        Box::pin(async move { Ok(instances) })
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        let now_ms = self.0.chronicle.now_ms();
        let mut market = lock(&self.0.market);
        market.refresh(now_ms);
        let types = market.seen(pool.metadata.name.as_deref().unwrap_or_default());
        let types = types.cloned().unwrap_or_else(|| Arc::from(Vec::new()));
        Box::pin(async move { Ok(types) })
    }

    fn is_drifted<'a>(
        &'a self,
        _: &'a NodeClaim,
        _: Option<&'a kube::core::DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        Box::pin(async { Ok(None) })
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        &[]
    }

    fn interruptions(&self) -> Option<Interruptions<'_>> {
        let listener = lock(&self.0.listener).take()?;
        Some(listener.boxed())
    }
}
