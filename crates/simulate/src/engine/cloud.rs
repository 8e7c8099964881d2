//! The cloud and its machines: which offering a launch gets, when instances join, become ready and end, shortages and spot interruptions.
//!
//! Owns prices and capacity as they truly are, and what the operator believes of them after refused launches. It knows nothing of why an instance is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use spokeshave_api::labels::unregistered_taint;
use spokeshave_api::{NodeClaim, NodeClaimStatus};
use spokeshave_model::{CapacityType, InstanceType, Offering, Price, Requirements, Resources, labels};
use spokeshave_plan::termination;

use crate::cluster::{Instance, Named as _};
use crate::engine::Engine;
use crate::engine::operator::Launch;
use crate::pods::{PodId, whole_seconds};
use crate::queue::Wake;
use crate::world::{Policy, World};

/// For how long a refused offering is believed to be unavailable, as the AWS provider does.
const BELIEVED_MS: u64 = 180_000;

/// The cloud.
#[derive(Debug)]
pub(crate) struct Cloud {
    /// What each NodePool can launch, without what can never be had.
    base: BTreeMap<String, Arc<[InstanceType]>>,
    /// The same as the operator sees it now.
    pub(crate) seen: BTreeMap<String, Arc<[InstanceType]>>,
    well_known: BTreeSet<String>,
    /// Instance types by ascending price of their cheapest offering.
    by_price: Vec<String>,
    /// Until when, in milliseconds, the operator believes that a type cannot be had.
    believed: BTreeMap<String, u64>,
    /// Counts changes of what the operator sees.
    pub(crate) generation: u64,
}

impl Cloud {
    pub(crate) fn new(world: &World, policy: &Policy) -> Self {
        let mut base = BTreeMap::new();
        for pool in &policy.node_pools {
            let name = pool.metadata.name.clone().unwrap_or_default();
            let types = without_reservations(world.types_of(&name));
            base.insert(name, types);
        }
        let mut well_known: BTreeSet<String> = labels::WELL_KNOWN.iter().map(ToString::to_string).collect();
        let mut prices: BTreeMap<String, Price> = BTreeMap::new();
        for instance_type in base.values().flat_map(|types| types.iter()) {
            let offerings = instance_type.offerings.iter();
            let sets = offerings.clone().map(|offering| &offering.requirements);
            for requirement in sets
                .chain([&instance_type.requirements])
                .flat_map(Requirements::iter)
            {
                well_known.insert(requirement.key().to_owned());
            }
            let cheapest = offerings
                .map(|offering| offering.price)
                .min()
                .unwrap_or(Price::MAX);
            prices.insert(instance_type.name.clone(), cheapest);
        }
        let mut by_price: Vec<(Price, String)> =
            prices.into_iter().map(|(name, price)| (price, name)).collect();
        by_price.sort();
        Cloud {
            seen: base.clone(),
            base,
            well_known,
            by_price: by_price.into_iter().map(|(_, name)| name).collect(),
            believed: BTreeMap::new(),
            generation: 0,
        }
    }

    /// Brings what the operator sees up to date. True when it has changed.
    fn refresh(&mut self, now_ms: u64) -> bool {
        let before = self.believed.len();
        self.believed.retain(|_, until| *until > now_ms);
        self.believed.len() != before && self.rebuild()
    }

    fn rebuild(&mut self) -> bool {
        self.generation += 1;
        let believed = &self.believed;
        for (pool, types) in &self.base {
            let types = types.iter().map(|instance_type| {
                let mut instance_type = instance_type.clone();
                if believed.contains_key(&instance_type.name) {
                    instance_type
                        .offerings
                        .iter_mut()
                        .for_each(|offering| offering.available = false);
                }
                instance_type
            });
            self.seen.insert(pool.clone(), types.collect());
        }
        true
    }

    /// The offerings that a claim allows, cheapest first; of equal prices the first type, and of its zones one by the claim's name.
    fn candidates(&self, claim: &NodeClaim, draw: impl Fn(&str) -> u64) -> Vec<(&InstanceType, &Offering)> {
        let Ok(requirements) = Requirements::from_api(&claim.spec.requirements) else {
            return Vec::new();
        };
        let Some(types) = claim.node_pool().and_then(|pool| self.base.get(pool)) else {
            return Vec::new();
        };
        let requests = Resources::from_quantities_lossy(Some(&claim.spec.resources.requests));
        let wanted = requirements.get(labels::INSTANCE_TYPE);
        let mut found: Vec<(Price, &str, u64, (&InstanceType, &Offering))> = Vec::new();
        for instance_type in types.iter().filter(|one| wanted.has(&one.name)) {
            let fits = instance_type.requirements.intersects(&requirements).is_ok()
                && requests.fits(&instance_type.allocatable());
            if !fits {
                continue;
            }
            let sold = instance_type.offerings.iter().filter(|offering| {
                let compatible = requirements.compatible(&offering.requirements, &self.well_known);
                offering.available && compatible.is_ok()
            });
            for offering in sold {
                let draw = draw(offering.zone().unwrap_or_default());
                found.push((
                    offering.price,
                    &instance_type.name,
                    draw,
                    (instance_type, offering),
                ));
            }
        }
        found.sort_by(|left, right| (left.0, left.1, left.2).cmp(&(right.0, right.1, right.2)));
        found.into_iter().map(|(.., choice)| choice).collect()
    }
}

/// Reservations have a count that this cloud does not keep, so they are not for sale.
fn without_reservations(types: &Arc<[InstanceType]>) -> Arc<[InstanceType]> {
    let reserved = |offering: &Offering| offering.capacity_type() == Some(CapacityType::Reserved);
    if !types.iter().any(|one| one.offerings.iter().any(reserved)) {
        return Arc::clone(types);
    }
    let kept = types.iter().map(|one| {
        let mut one = one.clone();
        one.offerings.retain(|offering| !reserved(offering));
        one
    });
    kept.collect()
}

/// The labels of a node: the claim's, its single-valued requirements, those of type and offering.
fn node_labels(
    claim: &NodeClaim,
    instance_type: &InstanceType,
    offering: &Offering,
) -> BTreeMap<String, String> {
    let mut own = claim.metadata.labels.clone().unwrap_or_default();
    let requirements = Requirements::from_api(&claim.spec.requirements).unwrap_or_default();
    for set in [&requirements, &instance_type.requirements, &offering.requirements] {
        for requirement in set.iter() {
            if let Some(value) = requirement.single_value() {
                own.insert(requirement.key().to_owned(), value.to_owned());
            }
        }
    }
    let both = requirements
        .get(labels::OS)
        .intersection(&instance_type.requirements.get(labels::OS));
    if let Some(os) = both.any() {
        own.insert(labels::OS.to_owned(), os);
    }
    own.insert(labels::INSTANCE_TYPE.to_owned(), instance_type.name.clone());
    own.insert(labels::HOSTNAME.to_owned(), claim.name_of().to_owned());
    own
}

impl Engine<'_> {
    /// The types that truly cannot be launched now.
    fn short_types(&self) -> BTreeSet<String> {
        let now_ms = self.now_ms;
        let active = self.world.shortages.iter().filter(|shortage| {
            shortage.at_ms <= now_ms && now_ms < shortage.at_ms.saturating_add(shortage.for_ms)
        });
        let count = active.map(|shortage| shortage.cheapest).max().unwrap_or(0);
        self.cloud.by_price.iter().take(count).cloned().collect()
    }

    /// What the operator believes of some offering has become too old.
    pub(crate) fn offerings_change(&mut self) {
        if self.cloud.refresh(self.now_ms) {
            self.types_changed();
        }
    }

    /// Sends a launch call.
    pub(crate) fn send_launch(&mut self, machine: u32) {
        let delay = self
            .luck
            .child("launch")
            .duration_ms(&format!("{machine}"), self.world.delays.launch);
        if let Some(found) = self.cluster.machine_mut(machine) {
            found.is_launching = true;
        }
        self.wake_in(delay, Wake::LaunchAnswered(machine));
    }

    /// The answer of the cloud to a launch call.
    pub(crate) fn launch_answered(&mut self, machine: u32) {
        let Some(claim) = self
            .cluster
            .machine(machine)
            .and_then(|found| found.claim.clone())
        else {
            return;
        };
        if let Some(found) = self.cluster.machine_mut(machine) {
            found.is_launching = false;
        }
        let short = self.short_types();
        let zones = self.luck.child("zone");
        let candidates = self
            .cloud
            .candidates(&claim, |zone| zones.number(&format!("{machine}/{zone}")));
        let mut refused: BTreeSet<String> = BTreeSet::new();
        let mut choice = None;
        for (instance_type, offering) in candidates {
            if short.contains(&instance_type.name) {
                refused.insert(instance_type.name.clone());
            } else {
                choice = Some((instance_type.clone(), offering.clone()));
                break;
            }
        }
        if !refused.is_empty() {
            let until = self.now_ms + BELIEVED_MS;
            for name in refused {
                self.cloud.believed.insert(name, until);
            }
            self.cloud.rebuild();
            self.types_changed();
            self.wake_in(BELIEVED_MS, Wake::Offerings);
        }
        let Some((instance_type, offering)) = choice else {
            self.meter.count(|counted| &mut counted.failed_launches);
            self.launch_ends(
                machine,
                Launch::Refused("no capacity for any instance type of the NodeClaim"),
            );
            return;
        };
        let answer = self.answer(&claim, &instance_type, &offering);
        let capacity_type = offering.capacity_type().unwrap_or(CapacityType::OnDemand);
        self.meter.count(|counted| &mut counted.launches);
        self.meter.instance_begins(offering.price, capacity_type);
        let zone = offering.zone().unwrap_or_default();
        let line = format!(
            "{} {} {} {zone}",
            instance_type.name, capacity_type, offering.price
        );
        self.log.add(self.now_ms, "launched", claim.name_of(), &line);
        if let Some(found) = self.cluster.machine_mut(machine) {
            found.instance = Some(Instance {
                price: offering.price,
                capacity_type,
                launched_ms: self.now_ms,
                is_ending: false,
                ended_ms: None,
            });
            found.answer = Some(Box::new(answer));
        }
        let boot = self
            .luck
            .child("boot")
            .duration_ms(&format!("{machine}"), self.world.delays.boot);
        self.wake_in(boot, Wake::NodeJoins(machine));
        let spot = self.world.spot.filter(|_| capacity_type == CapacityType::Spot);
        let waiting = spot.and_then(|spot| {
            let luck = self.luck.child("spot");
            luck.waiting_ms(&format!("{machine}"), spot.per_million_node_hours)
        });
        if let Some(waiting) = waiting {
            self.wake_in(waiting, Wake::SpotNotice(machine));
        }
        self.measure_node(machine);
        self.launch_ends(machine, Launch::Succeeded);
    }

    fn answer(&self, claim: &NodeClaim, instance_type: &InstanceType, offering: &Offering) -> NodeClaim {
        let mut answer = NodeClaim::new(claim.name_of(), claim.spec.clone());
        answer.metadata.labels = Some(node_labels(claim, instance_type, offering));
        answer.status = Some(NodeClaimStatus {
            provider_id: Some(format!("simulated://{}", claim.name_of())),
            capacity: instance_type.capacity.to_quantities(),
            allocatable: instance_type.allocatable().to_quantities(),
            ..NodeClaimStatus::default()
        });
        answer
    }

    /// The kubelet of an instance joins the cluster.
    pub(crate) fn node_joins(&mut self, machine: u32) {
        let now = self.now();
        let Some(found) = self.cluster.machine(machine).filter(|found| found.has_instance()) else {
            return;
        };
        let is_ending = found.instance.as_ref().is_some_and(|instance| instance.is_ending);
        let Some(claim) = found.claim.clone().filter(|_| !is_ending && found.node.is_none()) else {
            return;
        };
        let status = claim.status.as_ref();
        let taints = [unregistered_taint()]
            .into_iter()
            .chain(claim.spec.startup_taints.clone());
        let node = Node {
            metadata: ObjectMeta {
                name: Some(claim.name_of().to_owned()),
                uid: Some(format!("node-{machine}")),
                labels: claim.metadata.labels.clone().map(|mut own| {
                    own.insert(labels::HOSTNAME.to_owned(), claim.name_of().to_owned());
                    own
                }),
                creation_timestamp: Some(Time(whole_seconds(now))),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                provider_id: status.and_then(|status| status.provider_id.clone()),
                taints: Some(taints.collect()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                capacity: status.map(|status| status.capacity.clone()),
                allocatable: status.map(|status| status.allocatable.clone()),
                conditions: Some(vec![NodeCondition {
                    type_: "Ready".to_owned(),
                    status: "False".to_owned(),
                    ..NodeCondition::default()
                }]),
                ..NodeStatus::default()
            }),
        };
        self.log.add(self.now_ms, "joined", claim.name_of(), "");
        self.set_node(machine, node);
        let spread = self.world.delays.node_ready;
        let delay = self.luck.child("node").duration_ms(&format!("{machine}"), spread);
        self.wake_in(delay, Wake::NodeReady(machine));
        self.look_at_claim_now(machine);
    }

    /// A node becomes ready. What startup taints wait for is taken to be done by then.
    pub(crate) fn node_ready(&mut self, machine: u32) {
        let Some(found) = self.cluster.machine(machine).filter(|found| found.has_instance()) else {
            return;
        };
        let (Some(node), Some(claim)) = (&found.node, &found.claim) else {
            return;
        };
        let mut node = Node::clone(node);
        for condition in node
            .status
            .iter_mut()
            .flat_map(|status| status.conditions.iter_mut().flatten())
        {
            if condition.type_ == "Ready" {
                condition.status = "True".to_owned();
            }
        }
        let startup = claim.spec.startup_taints.clone();
        let name = claim.name_of().to_owned();
        if let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
            taints.retain(|taint| !startup.contains(taint));
        }
        self.log.add(self.now_ms, "ready", &name, "");
        self.set_node(machine, node);
        self.look_at_claim_now(machine);
        self.start_daemons(machine);
        self.wake_scheduler();
    }

    /// The cloud is asked to end an instance. True when it is gone already.
    pub(crate) fn end_instance(&mut self, machine: u32) -> bool {
        let now = self.now();
        let Some(found) = self.cluster.machine_mut(machine) else {
            return true;
        };
        let claim = found.claim.clone();
        let (gone, first) = match &mut found.instance {
            Some(instance) if instance.ended_ms.is_none() => {
                (false, !std::mem::replace(&mut instance.is_ending, true))
            }
            _ => (true, false),
        };
        if let Some(action) = claim
            .filter(|claim| claim.provider_id().is_some())
            .and_then(|claim| termination::instance_terminating(&claim, now))
        {
            self.apply(&action);
        }
        if first {
            let spread = self.world.delays.instance_end;
            let delay = self.luck.child("end").duration_ms(&format!("{machine}"), spread);
            self.wake_in(delay, Wake::InstanceEnds(machine));
        }
        gone
    }

    /// An instance has ended.
    pub(crate) fn instance_ends(&mut self, machine: u32) {
        let now_ms = self.now_ms;
        let Some(found) = self.cluster.machine_mut(machine) else {
            return;
        };
        let name = found.claim.as_ref().map(|claim| claim.name_of().to_owned());
        let Some(instance) = found
            .instance
            .as_mut()
            .filter(|instance| instance.ended_ms.is_none())
        else {
            return;
        };
        instance.ended_ms = Some(now_ms);
        let (price, capacity_type) = (instance.price, instance.capacity_type);
        let is_young = now_ms - instance.launched_ms < crate::world::HOUR_MS;
        self.meter.instance_ends(price, capacity_type);
        if is_young {
            self.meter.count(|counted| &mut counted.short_lived_nodes);
        }
        self.log
            .add(now_ms, "ended", name.as_deref().unwrap_or_default(), "");
        self.lose_pods(machine);
        self.measure_node(machine);
        self.look_at_node_now(machine);
        self.look_at_claim_now(machine);
        self.cluster.forget(machine);
    }

    /// The pods of an instance that has ended are gone with it.
    fn lose_pods(&mut self, machine: u32) {
        let pods: Vec<PodId> = self
            .cluster
            .machine(machine)
            .map(|found| found.pods.clone())
            .unwrap_or_default();
        for id in pods {
            self.kill(id);
        }
        let Some(node) = self.cluster.machine(machine).and_then(|found| found.node.clone()) else {
            return;
        };
        let mut node = Node::clone(&node);
        for condition in node
            .status
            .iter_mut()
            .flat_map(|status| status.conditions.iter_mut().flatten())
        {
            if condition.type_ == "Ready" {
                condition.status = "Unknown".to_owned();
            }
        }
        self.set_node(machine, node);
    }

    /// The cloud announces that it takes an instance back.
    pub(crate) fn spot_notice(&mut self, machine: u32) {
        let Some(spot) = self.world.spot else { return };
        if self
            .cluster
            .machine(machine)
            .is_some_and(|found| found.has_instance())
        {
            self.wake_in(spot.notice_ms, Wake::SpotEnd(machine));
            self.interrupted(machine);
        }
    }

    /// The cloud takes an instance back.
    pub(crate) fn spot_end(&mut self, machine: u32) {
        self.instance_ends(machine);
    }
}
