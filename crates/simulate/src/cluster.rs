//! The objects of the simulated cluster other than workloads: NodeClaims, Nodes and commands, and how a write of the operator changes them.
//!
//! Owns the objects and their indexes. It never decides and never waits: the engine schedules what follows from a write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use spokeshave_api::NodeClaim;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::{CapacityType, Price};
use spokeshave_plan::in_flight::stand_in_id;

use crate::pods::PodId;

/// An instance of the cloud.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    /// What it costs per hour.
    pub(crate) price: Price,
    /// Its capacity type.
    pub(crate) capacity_type: CapacityType,
    /// When the launch call succeeded, in milliseconds.
    pub(crate) launched_ms: u64,
    /// How long it had been there before the start, in milliseconds.
    pub(crate) age_ms: u64,
    /// The cloud was asked to end it.
    pub(crate) is_ending: bool,
    /// When it ended, in milliseconds.
    pub(crate) ended_ms: Option<u64>,
}

/// A NodeClaim with its instance and its Node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    pub(crate) claim: Option<Arc<NodeClaim>>,
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) instance: Option<Instance>,
    /// The response of the cloud, until it is in the NodeClaim.
    pub(crate) answer: Option<Box<NodeClaim>>,
    /// The pods on it, in the order in which they came.
    pub(crate) pods: Vec<PodId>,
    /// The launch call is under way.
    pub(crate) is_launching: bool,
    /// The pods that it was made for, with their UIDs, until it has an instance.
    pub(crate) assigned: Vec<(String, PodId)>,
    /// When the NodeClaim is reconciled next, in milliseconds, and the place among those of the same instant.
    pub(crate) claim_look: Option<(u64, u64)>,
    /// When the Node is reconciled next, in milliseconds.
    pub(crate) node_look_ms: Option<u64>,
    /// The state of the offerings at the last drift check.
    pub(crate) drift_seen: Option<u64>,
    /// When the operator last looked whether the node has what was promised of it, in milliseconds.
    pub(crate) checked_ms: Option<u64>,
    /// The daemons were started.
    pub(crate) has_daemons: bool,
    /// The cloud has announced that it takes the instance back.
    pub(crate) is_interrupted: bool,
}

impl Machine {
    /// The name of its Node.
    pub(crate) fn node_name(&self) -> Option<&str> {
        self.node.as_ref().and_then(|node| node.metadata.name.as_deref())
    }

    /// Whether the cloud still has its instance.
    pub(crate) fn has_instance(&self) -> bool {
        self.instance
            .as_ref()
            .is_some_and(|instance| instance.ended_ms.is_none())
    }
}

/// NodeClaims that were made for pods and have no instance yet, as planning sees them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InFlight {
    /// UIDs of the pods that wait for such a NodeClaim, with the provider ID of its stand-in, on which they are seen.
    pub(crate) assigned: BTreeMap<String, (PodId, Arc<str>)>,
    /// Those of whose pods some do not wait any more: the others, and those that have come in their place, are planned onto them.
    pub(crate) with_room: BTreeSet<u32>,
}

/// The number of the first machine of no NodePool; there are never as many NodeClaims.
const FIRST_FIXED: u32 = 1 << 31;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// By number, of which none is used twice.
    machines: BTreeMap<u32, Machine>,
    made: u32,
    by_claim: BTreeMap<String, u32>,
    by_node: BTreeMap<String, u32>,
    /// How many machines are of no NodePool.
    fixed: u32,
    /// Commands by position; finished ones are dropped when the ledger is cut.
    pub(crate) commands: BTreeMap<u32, Arc<Disruption>>,
    commands_made: u32,
    /// Machines with pods assigned.
    launching: BTreeSet<u32>,
}

impl Cluster {
    pub(crate) fn machine(&self, id: u32) -> Option<&Machine> {
        self.machines.get(&id)
    }

    pub(crate) fn machine_mut(&mut self, id: u32) -> Option<&mut Machine> {
        self.machines.get_mut(&id)
    }

    pub(crate) fn machines(&self) -> impl Iterator<Item = (u32, &Machine)> {
        self.machines.iter().map(|(id, machine)| (*id, machine))
    }

    /// Adds a NodeClaim, which has a name.
    pub(crate) fn add_claim(&mut self, claim: NodeClaim) -> u32 {
        let id = self.made;
        self.made += 1;
        let name = claim.metadata.name.clone().unwrap_or_default();
        self.by_claim.insert(name, id);
        let machine = Machine {
            claim: Some(Arc::new(claim)),
            ..Machine::default()
        };
        self.machines.insert(id, machine);
        id
    }

    /// Adds the machine of a Node of no NodePool, which is yet to be set. It has no NodeClaim and no instance, and NodeClaims have the numbers that they would have
    /// without it, by which their luck is drawn.
    pub(crate) fn add_fixed(&mut self) -> u32 {
        let id = FIRST_FIXED.saturating_add(self.fixed);
        self.fixed += 1;
        self.machines.insert(id, Machine::default());
        id
    }

    /// A NodeClaim is made for these pods; none once it has an instance.
    pub(crate) fn assign(&mut self, id: u32, pods: Vec<(String, PodId)>) {
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        if pods.is_empty() {
            self.launching.remove(&id);
        } else {
            self.launching.insert(id);
        }
        machine.assigned = pods;
    }

    /// What is known of NodeClaims without an instance that were made for pods; `waits` says of which pods a place is still sought.
    pub(crate) fn in_flight(&self, waits: impl Fn(PodId) -> bool) -> InFlight {
        let mut known = InFlight::default();
        for id in &self.launching {
            let Some(machine) = self.machines.get(id) else {
                continue;
            };
            let Some(claim) = &machine.claim else { continue };
            if !machine.assigned.iter().all(|(_, pod)| waits(*pod)) {
                known.with_room.insert(*id);
                continue;
            }
            let stand_in: Arc<str> = stand_in_id(claim.uid()).into();
            let pods = machine.assigned.iter();
            let pods = pods.map(|(uid, pod)| (uid.clone(), (*pod, Arc::clone(&stand_in))));
            known.assigned.extend(pods);
        }
        known
    }

    /// How many NodeClaims were ever made.
    pub(crate) fn made(&self) -> u32 {
        self.made
    }

    pub(crate) fn of_claim(&self, name: &str) -> Option<u32> {
        self.by_claim.get(name).copied()
    }

    pub(crate) fn of_node(&self, name: &str) -> Option<u32> {
        self.by_node.get(name).copied()
    }

    pub(crate) fn set_claim(&mut self, id: u32, claim: NodeClaim) {
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.claim = Some(Arc::new(claim));
        }
    }

    pub(crate) fn set_node(&mut self, id: u32, node: Node) {
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        if machine.node.is_none() {
            let name = node.metadata.name.clone().unwrap_or_default();
            self.by_node.insert(name, id);
        }
        machine.node = Some(Arc::new(node));
    }

    pub(crate) fn remove_claim(&mut self, id: u32) {
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        self.launching.remove(&id);
        if let Some(claim) = machine.claim.take() {
            self.by_claim.remove(claim.name_of());
        }
        self.forget(id);
    }

    pub(crate) fn remove_node(&mut self, id: u32) {
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        if let Some(node) = machine.node.take() {
            self.by_node
                .remove(node.metadata.name.as_deref().unwrap_or_default());
        }
        self.forget(id);
    }

    /// Drops a machine of which nothing is left.
    pub(crate) fn forget(&mut self, id: u32) {
        let is_empty = self.machines.get(&id).is_some_and(|machine| {
            machine.claim.is_none() && machine.node.is_none() && !machine.has_instance()
        });
        if is_empty {
            self.machines.remove(&id);
        }
    }

    pub(crate) fn add_command(&mut self, command: Arc<Disruption>) -> u32 {
        let id = self.commands_made;
        self.commands_made += 1;
        self.commands.insert(id, command);
        id
    }

    /// The command of this name, if it is still in the ledger.
    pub(crate) fn of_command(&self, name: &str) -> Option<u32> {
        let mut found = self
            .commands
            .iter()
            .filter(|(_, command)| command.name_of() == name);
        found.next().map(|(id, _)| *id)
    }
}

/// The name of an object, empty when it has none.
pub(crate) trait Named {
    fn name_of(&self) -> &str;
}

impl Named for NodeClaim {
    fn name_of(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl Named for Disruption {
    fn name_of(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

/// An object that merge patches change.
pub(crate) trait Patched: Clone + Serialize + DeserializeOwned {
    /// Changes one of its fields; none when it is none of those that are read and written apart from the others.
    fn patch_field(&mut self, name: &str, change: &Value) -> Option<serde_json::Result<()>>;
}

macro_rules! patched_by_field {
    ($kind:ty) => {
        impl Patched for $kind {
            fn patch_field(&mut self, name: &str, change: &Value) -> Option<serde_json::Result<()>> {
                match name {
                    "metadata" => Some(patch_field(&mut self.metadata, change)),
                    "spec" => Some(patch_field(&mut self.spec, change)),
                    "status" => Some(patch_field(&mut self.status, change)),
                    _ => None,
                }
            }
        }
    };
}

patched_by_field!(NodeClaim);
patched_by_field!(Node);
patched_by_field!(Disruption);

fn patch_field<F: Serialize + DeserializeOwned>(field: &mut F, change: &Value) -> serde_json::Result<()> {
    let mut tree = serde_json::to_value(&*field)?;
    merge(&mut tree, change);
    *field = serde_json::from_value(tree)?;
    Ok(())
}

/// An object after a JSON merge patch (RFC 7386); unchanged when the result would be no object of its kind. Only the fields that the patch names are
/// made a tree: most patches write one condition of a status.
pub(crate) fn patched<T: Patched>(object: &T, patch: &Value) -> T {
    let mut after = object.clone();
    if let Value::Object(changes) = patch {
        let mut fields = changes.iter();
        let done = fields.try_for_each(|(name, change)| {
            let is_patched = after.patch_field(name, change)?;
            is_patched.ok()
        });
        if done.is_some() {
            return after;
        }
    }
    patched_whole(object, patch)
}

fn patched_whole<T: Serialize + DeserializeOwned + Clone>(object: &T, patch: &Value) -> T {
    let Ok(mut tree) = serde_json::to_value(object) else {
        return object.clone();
    };
    merge(&mut tree, patch);
    serde_json::from_value(tree).unwrap_or_else(|_| object.clone())
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

/// Now plus so many milliseconds.
pub(crate) fn after(time: Timestamp, milliseconds: u64) -> Timestamp {
    let span = i64::try_from(milliseconds).unwrap_or(i64::MAX);
    time.saturating_add(jiff::SignedDuration::from_millis(span))
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_patch_sets_removes_and_replaces_lists_whole() {
        let before =
            json!({"metadata": {"name": "n", "labels": {"a": "1", "b": "2"}}, "spec": {"taints": [1, 2]}});
        let patch = json!({"metadata": {"labels": {"b": null, "c": "3"}}, "spec": {"taints": [3]}, "status": {"x": 1}});
        let expected = json!({"metadata": {"name": "n", "labels": {"a": "1", "c": "3"}}, "spec": {"taints": [3]}, "status": {"x": 1}});
        assert_eq!(patched_whole(&before, &patch), expected);
    }

    #[test]
    fn a_patch_of_single_fields_is_a_patch_of_the_whole_object() {
        let claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "n", "labels": {"a": "1", "b": "2"}, "finalizers": ["x"]},
            "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []},
        }))
        .expect("a NodeClaim");
        let patches = [
            json!({"status": {"nodeName": "one", "conditions": [
                {"type": "Launched", "status": "True", "reason": "Launched", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
            json!({"metadata": {"labels": {"a": null, "c": "3"}, "finalizers": null}}),
            json!({"metadata": {"name": "n"}, "status": {"nodeName": "two"}, "spec": {"expireAfter": "1h"}}),
            json!({"status": {"nodeName": 7}}),
            json!({"metadata": {"labels": {"a": "9"}}, "status": {"nodeName": 7}}),
            json!({"kind": "NodeClaim", "metadata": {"labels": {"d": "4"}}}),
            json!(null),
        ];
        let mut before = claim;
        for patch in patches {
            let after = patched(&before, &patch);
            assert_eq!(after, patched_whole(&before, &patch), "{patch}");
            before = after;
        }
    }
}
