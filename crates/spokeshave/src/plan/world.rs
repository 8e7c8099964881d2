//! From a dump to the state that decisions are made from, with notes on whatever had to be assumed.
//!
//! It fills in only what a file cannot say: the instance types, and the readiness of a NodePool that was written by hand. It never changes an
//! object that says something.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, TopologySpreadConstraint};
use spokeshave_api::conditions::{Conditioned as _, Status};
use spokeshave_api::validation::LabelRules;
use spokeshave_api::{CapacityBuffer, NodeOverlay, NodePool, labels};
use spokeshave_model::default_spread::DefaultSpread;
use spokeshave_model::snapshot::InstanceTypesProblem;
use spokeshave_model::volumes::VolumeObjects;
use spokeshave_model::{ClusterState, InstanceType};
use spokeshave_plan::buffers::{resolve, virtual_pods};
use spokeshave_plan::overlays::{PoolTypes, Verdict, evaluate};

use super::dump::{Dump, Named, key};

/// What a dump means, and what was assumed.
#[derive(Debug)]
pub(crate) struct World {
    /// The state.
    pub(crate) state: ClusterState,
    /// Sentences for standard error.
    pub(crate) notes: Vec<String>,
}

impl World {
    /// Makes the state at `now`; every NodePool is offered the catalog, except where the file shows that its NodeClass is missing.
    ///
    /// `spread` is what pods without topology spread get.
    pub(crate) fn new(
        dump: Dump,
        catalog: &Arc<[InstanceType]>,
        spread: Vec<TopologySpreadConstraint>,
        now: Timestamp,
    ) -> Self {
        let mut notes = notes(&dump);
        let mut pools = latest(dump.node_pools, |pool| pool.name().to_owned());
        let mut instance_types = BTreeMap::new();
        for pool in pools.values_mut() {
            let class = &pool.spec.template.spec.node_class_ref;
            let same_kind = || {
                let classes = dump.node_classes.iter();
                classes.filter(|known| known.group == class.group && known.kind == class.kind)
            };
            let named = same_kind().find(|known| known.name == class.name);
            let offered = if named.is_none() && same_kind().next().is_some() {
                Err(InstanceTypesProblem::Failed(format!(
                    "{} {:?} is not in the file",
                    class.kind, class.name
                )))
            } else {
                Ok(Arc::clone(catalog))
            };
            let ready = named.is_none_or(|class| class.ready != Some(false));
            if let Some(note) = assume_ready(pool, ready, now) {
                notes.push(note);
            }
            instance_types.insert(pool.name().to_owned(), offered);
        }
        let overlays = latest(dump.node_overlays, |overlay| overlay.name().to_owned());
        notes.extend(overlay(&overlays, &pools, &mut instance_types));
        let mut pods = dump.pods;
        let buffers = latest(dump.capacity_buffers, |buffer| key(&buffer.metadata));
        for (name, buffer) in &buffers {
            let (room, note) = room(name, buffer, &dump.named);
            pods.extend(room);
            notes.push(note);
        }
        let volumes = VolumeObjects {
            claims: latest(dump.persistent_volume_claims, |object| key(&object.metadata)),
            volumes: latest(dump.persistent_volumes, |object| key(&object.metadata)),
            storage_classes: latest(dump.storage_classes, |object| key(&object.metadata)),
            csi_nodes: latest(dump.csi_nodes, |object| key(&object.metadata)),
            ..VolumeObjects::default()
        };
        let default_spread = DefaultSpread {
            constraints: spread,
            services: dump.services,
            controllers: dump.controllers,
        };
        let values = |map: BTreeMap<String, _>| map.into_values().collect();
        let state = ClusterState {
            nodes: latest(dump.nodes, |object| key(&object.metadata))
                .into_values()
                .collect(),
            pods,
            daemon_sets: latest(dump.daemon_sets, |object| key(&object.metadata))
                .into_values()
                .collect(),
            pod_disruption_budgets: latest(dump.pod_disruption_budgets, |object| key(&object.metadata))
                .into_values()
                .collect(),
            namespaces: latest(dump.namespaces, |object| key(&object.metadata))
                .into_values()
                .collect(),
            volumes,
            default_spread,
            node_pools: pools.into_values().collect(),
            node_claims: values(latest(dump.node_claims, |claim| claim.name().to_owned())),
            instance_types,
            ..ClusterState::default()
        };
        Self { state, notes }
    }
}

/// Corrects the instance types as the operator does with the feature gate NodeOverlay on, and says what became of each overlay.
fn overlay(
    overlays: &BTreeMap<String, Arc<NodeOverlay>>,
    pools: &BTreeMap<String, Arc<NodePool>>,
    instance_types: &mut BTreeMap<String, Result<Arc<[InstanceType]>, InstanceTypesProblem>>,
) -> Vec<String> {
    if overlays.is_empty() {
        return Vec::new();
    }
    let offered = pools.values().filter_map(|pool| {
        let types = instance_types.get(pool.name())?.as_ref().ok()?;
        Some(PoolTypes {
            pool: Arc::clone(pool),
            types: Arc::clone(types),
        })
    });
    let offered: Vec<PoolTypes> = offered.collect();
    let overlays: Vec<Arc<NodeOverlay>> = overlays.values().cloned().collect();
    let evaluation = evaluate(&overlays, &offered, &LabelRules::default());
    for PoolTypes { pool, types } in &offered {
        let corrected = evaluation.in_force.decorate(pool, types);
        instance_types.insert(pool.name().to_owned(), Ok(corrected));
    }
    let (mut in_force, mut notes) = (Vec::new(), Vec::new());
    for (overlay, verdict) in &evaluation.verdicts {
        let name = overlay.name();
        match verdict {
            Verdict::InForce => in_force.push(name),
            Verdict::Invalid(failures) => notes.push(format!(
                "NodeOverlay {name} is invalid and has no effect: {failures}"
            )),
            Verdict::Conflict(conflict) => {
                notes.push(format!("NodeOverlay {name} has no effect: {conflict}"));
            }
        }
    }
    if !in_force.is_empty() {
        notes.push(format!(
            "NodeOverlay(s) {} in force, as with the feature gate NodeOverlay on",
            spokeshave_plan::report::first_few(&in_force, 5)
        ));
    }
    notes
}

/// The virtual pods of a CapacityBuffer, as the operator plans for them with the feature gate CapacityBuffer on, and what to say of them.
fn room(name: &str, buffer: &CapacityBuffer, named: &Named) -> (Vec<Arc<Pod>>, String) {
    if buffer.metadata.deletion_timestamp.is_some() {
        let note = format!("CapacityBuffer {name} is being deleted: no room is kept for it");
        return (Vec::new(), note);
    }
    match resolve(buffer, named) {
        Ok(resolved) => {
            let pods = virtual_pods(buffer, &resolved);
            let note = format!(
                "CapacityBuffer {name} keeps room for {} pod(s), as with the feature gate CapacityBuffer on",
                pods.len()
            );
            (pods.into_iter().map(Arc::new).collect(), note)
        }
        Err(unresolved) => {
            let note = format!("CapacityBuffer {name} keeps no room: {}", unresolved.message);
            (Vec::new(), note)
        }
    }
}

/// By name; of two objects with one name the later one counts.
fn latest<T>(objects: Vec<Arc<T>>, name: impl Fn(&T) -> String) -> BTreeMap<String, Arc<T>> {
    objects
        .into_iter()
        .map(|object| (name(&object), object))
        .collect()
}

/// A NodePool without any condition was written by hand: it counts as ready, unless its NodeClass is not.
fn assume_ready(pool: &mut Arc<NodePool>, class_ready: bool, now: Timestamp) -> Option<String> {
    let says_something = pool
        .status
        .as_ref()
        .is_some_and(|status| !status.conditions.is_empty());
    if says_something || !class_ready {
        return None;
    }
    let mut ready = NodePool::clone(pool);
    ready.set("Ready", Status::True, "Ready", "", now);
    *pool = Arc::new(ready);
    Some(format!("NodePool {} has no status: taken as ready", pool.name()))
}

fn notes(dump: &Dump) -> Vec<String> {
    let mut notes = Vec::new();
    for unreadable in &dump.unreadable {
        notes.push(format!("{unreadable}; planned as if it were absent"));
    }
    // Not read here, but told by `explain`.
    let told = ["VolumeAttachment", "Disruption"];
    let skipped = dump
        .skipped
        .iter()
        .filter(|((kind, _), _)| !told.contains(&kind.as_str()));
    for ((kind, version), count) in skipped {
        let objects = if *count == 1 { "object" } else { "objects" };
        notes.push(format!(
            "skipped {count} {objects} of kind {kind} ({version}), which no decision reads"
        ));
    }
    let waiting: Vec<&str> = dump
        .node_claims
        .iter()
        .filter(|claim| claim.provider_id().is_none() && !claim.is_deleting())
        .map(|claim| claim.name())
        .collect();
    if !waiting.is_empty() {
        notes.push(format!(
            "{} NodeClaim(s) have no instance yet ({}): pods that wait for them are planned again",
            waiting.len(),
            spokeshave_plan::report::first_few(&waiting, 3)
        ));
    }
    let pools: BTreeSet<&str> = dump.node_pools.iter().map(|pool| pool.name()).collect();
    let mut orphans: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &dump.nodes {
        let pool = node
            .metadata
            .labels
            .as_ref()
            .and_then(|map| map.get(labels::NODE_POOL));
        if let Some(pool) = pool.filter(|pool| !pools.contains(pool.as_str())) {
            *orphans.entry(pool).or_default() += 1;
        }
    }
    for (pool, count) in orphans {
        notes.push(format!(
            "{count} node(s) belong to NodePool {pool}, which is not in the file: they stay"
        ));
    }
    notes
}
