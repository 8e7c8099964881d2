//! Feature gates that change what decisions are made from: which objects count, and which offerings can be had.
//!
//! Owns what each of them leaves out and the notes about it. A gate of which nothing is known changes nothing: what an operator has made of its objects tells then.

use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::NodePool;
use spokeshave_api::conditions::{Conditioned as _, LAUNCHABLE, READY, Status};
use spokeshave_model::{CapacityType, ClusterState, InstanceType};
use spokeshave_plan::pool_conditions::CannotLaunch;
use spokeshave_plan::report::some_of;

use crate::plan::dump::{Dump, key};
use crate::plan::world::plural;
use crate::settings::{FeatureGates, said_of_gate};

/// What is known of gates: on, off, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gates {
    node_overlay: Option<bool>,
    capacity_buffer: Option<bool>,
    static_capacity: Option<bool>,
    reserved_capacity: Option<bool>,
}

impl Gates {
    /// All of them, as an operator has them.
    pub(super) fn of_operator(gates: FeatureGates) -> Self {
        Self {
            node_overlay: Some(gates.node_overlay),
            capacity_buffer: Some(gates.capacity_buffer),
            static_capacity: Some(gates.static_capacity),
            reserved_capacity: Some(gates.reserved_capacity),
        }
    }

    /// Those that a text mentions.
    pub(super) fn said(text: &str) -> Self {
        Self {
            node_overlay: said_of_gate(text, |gates| gates.node_overlay),
            capacity_buffer: said_of_gate(text, |gates| gates.capacity_buffer),
            static_capacity: said_of_gate(text, |gates| gates.static_capacity),
            reserved_capacity: said_of_gate(text, |gates| gates.reserved_capacity),
        }
    }

    /// Takes objects out of a dump that an operator with these gates does not look at.
    pub(crate) fn leave_out(self, dump: &mut Dump) -> Vec<String> {
        let mut notes = Vec::new();
        if self.node_overlay == Some(false) && !dump.node_overlays.is_empty() {
            let overlays = std::mem::take(&mut dump.node_overlays);
            let names: Vec<&str> = overlays.iter().map(|overlay| overlay.name()).collect();
            notes.push(format!(
                "{} {} {} not in force: the feature gate NodeOverlay is off",
                plural(names.len(), "NodeOverlay", "NodeOverlays"),
                some_of(&names, 5),
                plural(names.len(), "is", "are")
            ));
        }
        if self.capacity_buffer == Some(false) && !dump.capacity_buffers.is_empty() {
            let buffers = std::mem::take(&mut dump.capacity_buffers);
            let names: Vec<String> = buffers.iter().map(|buffer| key(&buffer.metadata)).collect();
            notes.push(format!(
                "no room is kept for {} {}: the feature gate CapacityBuffer is off",
                plural(names.len(), "CapacityBuffer", "CapacityBuffers"),
                some_of(&names, 5)
            ));
        }
        notes
    }

    /// Changes a state as an operator with these gates has it.
    pub(crate) fn apply(self, state: &mut ClusterState, now: Timestamp) -> Vec<String> {
        if self.reserved_capacity == Some(false) {
            for types in state.instance_types.values_mut().flatten() {
                hide_reserved(types);
            }
        }
        if self.static_capacity != Some(false) {
            return Vec::new();
        }
        let pools = state.node_pools.iter_mut();
        let fixed: Vec<&mut Arc<NodePool>> = pools
            .filter(|pool| pool.is_static() && !pool.is_deleting())
            .collect();
        let mut names = Vec::new();
        for pool in fixed {
            names.push(pool.name().to_owned());
            switch_off(pool, now);
        }
        if names.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "the number of nodes of {} {} is not kept: the feature gate StaticCapacity is off",
            plural(names.len(), "NodePool", "NodePools"),
            some_of(&names, 5)
        )]
    }
}

/// Reserved offerings keep their price and are never available.
fn hide_reserved(types: &mut Arc<[InstanceType]>) {
    let is_reserved = |capacity: Option<CapacityType>| capacity == Some(CapacityType::Reserved);
    let mut offerings = types.iter().flat_map(|one| &one.offerings);
    if !offerings.any(|one| one.available && is_reserved(one.capacity_type())) {
        return;
    }
    let mut hidden = types.to_vec();
    for offering in hidden.iter_mut().flat_map(|one| &mut one.offerings) {
        offering.available &= !is_reserved(offering.capacity_type());
    }
    *types = hidden.into();
}

/// Says of a NodePool what our operator says of it while the gate is off; Karpenter's says nothing.
fn switch_off(pool: &mut Arc<NodePool>, now: Timestamp) {
    let was_ready = pool.is_true(READY);
    let why = CannotLaunch::gate_is_off();
    let mut off = NodePool::clone(pool);
    off.set(LAUNCHABLE, Status::False, why.reason, &why.message, now);
    // One that was taken as ready has no other condition that says so.
    if was_ready {
        off.set(READY, Status::True, READY, "", now);
    }
    *pool = Arc::new(off);
}

#[cfg(test)]
mod tests {
    use spokeshave_model::lower;
    use spokeshave_provider_kwok::Catalog;
    use spokeshave_story::replicas::Replicas;

    use super::*;
    use crate::plan::dump::read;
    use crate::plan::world::{Origin, World};

    const OBJECTS: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: fixed}
spec: {replicas: 2, template: {spec: {requirements: [], nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: dear}
spec: {requirements: [], price: '77'}
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare, namespace: shop}
spec: {podTemplateRef: {name: web}, replicas: 2}
";

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().expect("an instant")
    }

    fn off() -> Gates {
        Gates::said("NodeOverlay=false,CapacityBuffer=false,StaticCapacity=false,ReservedCapacity=false")
    }

    #[test]
    fn p_187_p_203_what_a_gate_is_off_for_counts_no_more() {
        for (gates, left, said) in [
            (off(), 0, 2),
            (Gates::default(), 1, 0),
            (Gates::said("NodeRepair=false"), 1, 0),
        ] {
            let mut dump = read("test", OBJECTS.as_bytes()).expect("a dump");
            let notes = gates.leave_out(&mut dump);
            assert_eq!(
                (dump.node_overlays.len(), dump.capacity_buffers.len()),
                (left, left)
            );
            assert_eq!(notes.len(), said, "{notes:?}");
        }
    }

    #[test]
    fn d_353_a_number_of_nodes_is_not_kept_where_its_gate_is_off_and_the_nodepool_stays_ready() {
        for (gates, launched) in [
            (off(), 0),
            (Gates::default(), 2),
            (Gates::said("StaticCapacity=true"), 2),
        ] {
            let dump = read("test", OBJECTS.as_bytes()).expect("a dump");
            let origin = Origin::Files { own_catalog: false };
            let catalog = Catalog::default();
            let mut world = World::new(
                dump,
                origin,
                catalog.instance_types(),
                None,
                Arc::default(),
                now(),
            );
            let notes = gates.apply(&mut world.state, now());
            assert_eq!(notes.is_empty(), launched > 0, "{notes:?}");
            let replicas = Replicas::of(&world.state, &[], now());
            let snapshot = lower(&world.state);
            let launches = replicas.missing.iter().map(|one| one.launches(&snapshot).nodes);
            assert_eq!(launches.sum::<usize>(), launched);
            assert!(snapshot.pools[0].ready);
        }
    }
}
