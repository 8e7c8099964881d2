//! How a life begins where a cluster stands: its nodes are there, and pods of workloads are on them.
//!
//! Owns what is there before anything happens. Which nodes these are is said in the world, and which pods in the timeline.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::NodeClaim;
use spokeshave_scenario::{Change, OwnerKind, Placement};

use super::workloads::Predecessor;
use crate::cluster::{Instance, Named as _};
use crate::engine::Engine;
use crate::fixed;
use crate::pods::{self, Stage};
use crate::queue::Wake;
use crate::standing::{StandingNode, name_of};
use crate::times::whole_seconds;

impl Engine<'_> {
    /// Takes over the nodes that stand at the start with their pods, and what workloads want then. It comes before everything else, so that no decision is made
    /// on a part of the cluster.
    pub(super) fn take_over(&mut self) {
        let world = self.world;
        let mut machines: BTreeMap<&str, u32> = BTreeMap::new();
        for standing in &world.standing.nodes {
            let machine = self.take_over_node(standing);
            machines.insert(name_of(&standing.node), machine);
        }
        // In the order in which they are looked at.
        let of_claims: Vec<u32> = machines.values().copied().collect();
        for (name, node) in world.standing.fixed_names().zip(&world.standing.fixed) {
            machines.insert(name, self.take_over_fixed(name, node));
        }
        self.take_over_pods(&machines);
        self.follow_timeline();
        for machine in of_claims {
            self.look_at_claim_now(machine);
        }
    }

    /// A Node of no NodePool takes pods and runs daemons as others do. It has no NodeClaim, so that nothing removes it, and no instance, so that it is in no figure of
    /// nodes and money.
    fn take_over_fixed(&mut self, name: &str, node: &Node) -> u32 {
        self.log.add(self.now_ms, "fixed", name, &fixed::said(node));
        let machine = self.cluster.add_fixed();
        self.set_node(machine, node.clone());
        self.start_daemons(machine);
        machine
    }

    fn take_over_node(&mut self, standing: &StandingNode) -> u32 {
        let (price, capacity_type) = (standing.price, standing.capacity_type);
        let claim = NodeClaim::clone(&standing.claim);
        self.log
            .add(self.now_ms, "standing", claim.name_of(), &standing.said());
        self.count_later(&claim);
        let machine = self.cluster.add_claim(claim);
        self.meter.instance_stands(price, capacity_type);
        if let Some(found) = self.cluster.machine_mut(machine) {
            found.instance = Some(Instance {
                price,
                capacity_type,
                launched_ms: self.now_ms,
                age_ms: standing.age_ms(self.world.start),
                is_ending: false,
                ended_ms: None,
            });
        }
        self.draw_interruption(machine, capacity_type);
        self.set_node(machine, Node::clone(&standing.node));
        self.start_daemons(machine);
        self.measure_node(machine);
        machine
    }

    /// Puts pods on the machines of the nodes that they name.
    fn take_over_pods(&mut self, machines: &BTreeMap<&str, u32>) {
        let timeline = self.timeline;
        let mut lengths: BTreeMap<(u32, u64), Option<u64>> = BTreeMap::new();
        for event in timeline.events.iter().take_while(|event| event.at_ms == 0) {
            match event.change {
                // Budgets count from the first pod on.
                Change::Replicas(replicas) => {
                    if let Some(state) = self.owners.get_mut(event.owner.0 as usize) {
                        state.replicas = replicas;
                    }
                }
                Change::Begin { pod, runs_ms } => {
                    lengths.insert((event.owner.0, pod), runs_ms);
                }
                _ => {}
            }
        }
        for placement in &timeline.placements {
            let Some(machine) = machines.get(placement.node.as_str()) else {
                continue;
            };
            let length = lengths.get(&(placement.owner.0, placement.pod));
            self.take_over_pod(placement, *machine, length.copied().flatten());
        }
    }

    fn take_over_pod(&mut self, placement: &Placement, machine: u32, runs_ms: Option<u64>) {
        let owner = placement.owner.0;
        let Some(state) = self.owners.get_mut(owner as usize) else {
            return;
        };
        let number = match state.kind {
            // They follow each other, also where nodes of some do not stand.
            OwnerKind::Deployment => state.next_number,
            _ => placement.pod,
        };
        if state.active.contains_key(&number) {
            return;
        }
        state.next_number = state.next_number.max(number.saturating_add(1));
        self.birth(owner, number, runs_ms, Predecessor::default());
        let node = self.cluster.machine(machine).and_then(|found| found.node_name());
        let Some(node) = node.map(str::to_owned) else {
            return;
        };
        let Some(id) = self.owners[owner as usize].active.get(&number).copied() else {
            return;
        };
        let Some(pod) = self.pods.get_mut(id) else { return };
        self.waiting.remove(&(pods::turn(&pod.object), id));
        pod.machine = Some(machine);
        pod.stage = Stage::Ready;
        let start = self.world.start;
        let since = placement
            .since
            .map_or(start, |since| self.world.standing.moved(since, start));
        self.place_volumes(id, machine);
        self.change_pod(id, |pod| {
            pod.metadata.creation_timestamp = Some(Time(whole_seconds(since)));
            if pods::is_gated(pod) {
                // Of this one they had been taken off.
                Arc::make_mut(pod.spec.get_or_insert_default()).scheduling_gates = None;
            }
            pods::bound(pod, &node, since);
            pods::ready(pod);
        });
        self.note_pod("placed", id, &node);
        let shape = self.pods.get(id).map_or(0, |pod| pod.shape);
        self.scheduler.bind(shape, machine);
        if let Some(found) = self.cluster.machine_mut(machine) {
            found.pods.push(id);
        }
        self.meter.pod_stands();
        let bound = self.least.add(owner, 0);
        self.meter.set_bound(bound);
        if let Some(runs_ms) = runs_ms {
            let left_ms = self.world.standing.left_ms(placement, runs_ms);
            self.wake_in(left_ms, Wake::PodEnds(id));
        }
        self.owners[owner as usize].ready += 1;
        self.owner_changed(owner);
        self.measure_node(machine);
    }
}
