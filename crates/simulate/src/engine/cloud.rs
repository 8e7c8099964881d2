//! The machines of the cloud: when instances launch, join, become ready and end, and spot interruptions.
//!
//! Owns what happens to an instance and when. What is sold is the market's, and why an instance is wanted is not known here.

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use spokeshave_api::labels::unregistered_taint;
use spokeshave_api::{NodeClaim, NodeClaimStatus};
use spokeshave_model::{CapacityType, InstanceType, Offering, labels};
use spokeshave_plan::termination;

use crate::cluster::{Instance, Named as _};
use crate::engine::Engine;
use crate::engine::operator::Launch;
use crate::market::{BELIEVED_MS, node_labels};
use crate::pods::PodId;
use crate::queue::Wake;
use crate::times::whole_seconds;

impl Engine<'_> {
    /// What the operator believes of some offering has become too old.
    pub(crate) fn offerings_change(&mut self) {
        if self.cloud.refresh(self.now_ms) {
            self.types_changed();
        }
    }

    /// Sends a launch call.
    pub(crate) fn send_launch(&mut self, machine: u32) {
        let delay = self.draws.launch_ms(machine, &self.world.delays);
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
        let (draws, now_ms) = (&self.draws, self.now_ms);
        let sale = self
            .cloud
            .launch(&claim, now_ms, |zone| draws.zone(machine, zone));
        if sale.refused_some {
            self.types_changed();
            self.wake_in(BELIEVED_MS, Wake::Offerings);
        }
        let Some((instance_type, offering)) = sale.choice else {
            self.meter.launch_fails();
            self.launch_ends(
                machine,
                Launch::Refused("no capacity for any instance type of the NodeClaim"),
            );
            return;
        };
        let answer = self.answer(&claim, &instance_type, &offering);
        let capacity_type = offering.capacity_type().unwrap_or(CapacityType::OnDemand);
        self.meter.instance_begins(offering.price, capacity_type);
        let zone = offering.zone().unwrap_or_default();
        let line = format!(
            "{} {} {} {zone}",
            instance_type.name, capacity_type, offering.price
        );
        self.log.add(self.now_ms, "launched", claim.name_of(), &line);
        self.savings_are_lost(&claim, offering.price);
        if let Some(found) = self.cluster.machine_mut(machine) {
            found.instance = Some(Instance {
                price: offering.price,
                capacity_type,
                launched_ms: self.now_ms,
                age_ms: 0,
                is_ending: false,
                ended_ms: None,
            });
            found.answer = Some(Box::new(answer));
        }
        let boot = self.draws.boot_ms(machine, &self.world.delays);
        self.wake_in(boot, Wake::NodeJoins(machine));
        self.draw_interruption(machine, capacity_type);
        self.measure_node(machine);
        self.launch_ends(machine, Launch::Succeeded);
    }

    /// A spot instance may be taken back, so long after now.
    pub(super) fn draw_interruption(&mut self, machine: u32, capacity_type: CapacityType) {
        let spot = self.world.spot.filter(|_| capacity_type == CapacityType::Spot);
        let waiting = spot.and_then(|spot| self.draws.spot_ms(machine, &spot));
        if let Some(waiting) = waiting {
            self.wake_in(waiting, Wake::SpotNotice(machine));
        }
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
        let delay = self.draws.node_ready_ms(machine, &self.world.delays);
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
            let delay = self.draws.end_ms(machine, &self.world.delays);
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
        let is_young = now_ms - instance.launched_ms + instance.age_ms < crate::world::HOUR_MS;
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
            self.meter.count(|counted| &mut counted.interruptions);
            self.wake_in(spot.notice_ms, Wake::SpotEnd(machine));
            self.interrupted(machine);
        }
    }

    /// The cloud takes an instance back.
    pub(crate) fn spot_end(&mut self, machine: u32) {
        self.instance_ends(machine);
    }
}
