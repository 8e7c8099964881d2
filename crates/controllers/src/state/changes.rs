//! Which changes make the last Snapshot's objects those of now: what the stores say has changed, and what is in memory.
//!
//! Owns the way from stores to [`Change`]s, object by object, and when there is none, so that everything is lowered. What is compared, and what a
//! Snapshot is made of, belong to `state::frozen` and `state::cluster`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Resource;
use spokeshave_api::conditions::{Conditioned, INITIALIZED};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::planned_node::{is_provisionable, promised, without_nomination};
use spokeshave_model::snapshot::{NodeId, PodView};
use spokeshave_model::{Applied, Change, Distress, LiveSnapshot, Pod};
use spokeshave_plan::disrupt::record::unmade_claim;
use spokeshave_plan::in_flight::{Room, expected_on, stand_in, without_room};
use spokeshave_runtime::{Object, ObjectKey, Store};

use crate::state::cluster::{Cluster, for_drift};
use crate::state::frozen::{Inputs, Taken};
use crate::state::store_list::Versions;

/// Changes beyond which lowering everything is not much dearer than taking them in one by one.
const MOST_CHANGES: usize = 2_000;

impl Cluster {
    /// The NodeClaims that commands have yet to make.
    pub(crate) fn unmade_claims(&self, pending: &[Arc<Disruption>]) -> Vec<Arc<NodeClaim>> {
        let mut unmade = self.stores.disruptions.snapshot();
        unmade.retain(|disruption| disruption.phase() == DisruptionPhase::Starting);
        unmade.extend(pending.iter().cloned());
        let replacements = unmade.iter().flat_map(|disruption| &disruption.spec.replacements);
        let missing = replacements.filter(|one| self.stores.node_claims.get_named(&one.node_claim).is_none());
        missing
            .map(|replacement| Arc::new(unmade_claim(replacement)))
            .collect()
    }

    /// A NodeClaim as planning sees it: itself, or what stands in for it.
    pub(crate) fn planned_claim(&self, claim: Arc<NodeClaim>, inputs: &Inputs) -> Arc<NodeClaim> {
        if let Some(id) = claim.provider_id() {
            // Who is initialised has had a Node, and its own watch has shown it.
            let torn = claim.is_true(INITIALIZED) && self.stores.nodes_by_provider_id.count(id) == 0;
            return if torn {
                Arc::new(without_room(&claim))
            } else {
                claim
            };
        }
        if claim.is_deleting() {
            return claim;
        }
        let types = claim
            .node_pool()
            .and_then(|pool| inputs.instance_types.get(pool)?.as_deref().ok())
            .unwrap_or_default();
        // A replacement is there for the pods of its command, which planning sees on the nodes that go.
        let replaces = claim.annotation(labels::DISRUPTION).is_some();
        let has_room = inputs.claims_with_room.contains(claim.name());
        let room = if self.created.contains(claim.name()) && !replaces && !has_room {
            Room::Taken
        } else {
            Room::Open
        };
        Arc::new(stand_in(&claim, types, room))
    }

    /// Lowers everything.
    pub(crate) fn lower_all(&self, inputs: &Inputs) -> Taken {
        // Before the objects are read: what changes meanwhile is taken in twice, not never.
        let marks = self.versions();
        let state = self.cluster_state(inputs);
        let own = |claim: &NodeClaim| self.stores.node_claims.get_named(claim.name());
        let made_up = state
            .node_claims
            .iter()
            .filter(|claim| own(claim).is_none_or(|own| !Arc::ptr_eq(&own, claim)))
            .map(|claim| claim.name().to_owned())
            .collect();
        Taken {
            live: LiveSnapshot::new(state),
            marks,
            made_up,
        }
    }

    /// Takes in what has changed since. False when everything must be lowered: what was taken is of no use then.
    pub(crate) fn take_in(&self, taken: &mut Taken, known: &Inputs, inputs: &Inputs) -> bool {
        let marks = self.versions();
        let before = taken.marks;
        if marks.others != before.others || !known.has_same_types(inputs) {
            return false;
        }
        let mut changes = Vec::new();
        let all = self.pod_changes(taken, known, inputs, &mut changes)
            && self.node_changes(taken, inputs, &mut changes)
            && self.other_changes(before, &mut changes);
        if !all || changes.len() > MOST_CHANGES {
            return false;
        }
        self.memory_changes((before, marks), known, inputs, &mut changes);
        if taken.live.apply(changes) == Applied::Rebuilt {
            self.snapshots_made.inc(&[]);
        }
        taken.marks = marks;
        true
    }

    /// Pods that have changed, those that begin or cease to wait for a NodeClaim of their own, and those whose node is promised to them no more.
    fn pod_changes(&self, taken: &Taken, known: &Inputs, inputs: &Inputs, changes: &mut Vec<Change>) -> bool {
        let store = &self.stores.pods;
        let Some(mut keys) = store.changed_since(taken.marks.pods) else {
            return false;
        };
        let assigned = &inputs.assigned;
        if known.assigned != *assigned {
            let differs = |pod: &Pod| known.assigned.get(uid_of(pod)) != assigned.get(uid_of(pod));
            // Virtual pods are in no store.
            let mut pods = self.virtual_pods.join(Vec::new(), &self.stores.buffers);
            pods.retain(|pod| differs(pod));
            changes.extend(pods.into_iter().map(|pod| Change::Pod(as_seen(pod, inputs))));
            let snapshot = taken.live.snapshot();
            // Who is on a node waits for no NodeClaim, and its object need not be read.
            let is_stand_in = |node: NodeId| snapshot.nodes[node.index()].is_stand_in();
            let waits = |view: &&PodView| !view.is_virtual && view.node.is_none_or(is_stand_in);
            let waiting = snapshot.pods.iter().filter(waits).map(|view| &*view.object);
            keys.extend(waiting.filter(|pod| differs(pod)).map(ObjectKey::of));
        }
        for (one, other) in [
            (&known.withdrawn, &inputs.withdrawn),
            (&inputs.withdrawn, &known.withdrawn),
        ] {
            let only = one.iter().filter(|(uid, _)| !other.contains_key(*uid));
            keys.extend(only.map(|(_, key)| key.clone()));
        }
        for key in keys {
            changes.push(match store.get(&key) {
                Some(pod) => Change::Pod(as_seen(pod, inputs)),
                None => Change::PodGone {
                    namespace: key.namespace,
                    name: key.name,
                    is_virtual: false,
                },
            });
        }
        true
    }

    /// Nodes and NodeClaims that have changed, and NodeClaims that are seen otherwise because of a Node or a command.
    fn node_changes(&self, taken: &mut Taken, inputs: &Inputs, changes: &mut Vec<Change>) -> bool {
        let stores = &self.stores;
        let (Some(nodes), Some(claims)) = (
            stores.nodes.changed_since(taken.marks.nodes),
            stores.node_claims.changed_since(taken.marks.node_claims),
        ) else {
            return false;
        };
        let mut names: BTreeSet<String> = claims.into_iter().map(|key| key.name).collect();
        names.append(&mut taken.made_up);
        for key in nodes {
            let (old, new) = (taken.live.node(&key.name).cloned(), stores.nodes.get(&key));
            for node in [&old, &new].into_iter().flatten() {
                let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
                let claims = id.map(|id| stores.claims_by_provider_id.get(id));
                let claims = claims.into_iter().flatten();
                names.extend(claims.map(|claim| claim.name().to_owned()));
            }
            changes.push(match new {
                Some(node) => Change::Node(node),
                None => Change::NodeGone(key.name),
            });
        }
        let unmade = self.unmade_claims(&inputs.pending);
        let mut unmade: BTreeMap<String, Arc<NodeClaim>> = unmade
            .into_iter()
            .map(|claim| (claim.name().to_owned(), claim))
            .collect();
        names.extend(unmade.keys().cloned());
        for name in names {
            let own = stores.node_claims.get_named(&name);
            let claim = own.clone().or_else(|| unmade.remove(&name));
            let claim = claim.filter(|claim| self.is_ours(claim));
            let Some(claim) = claim else {
                changes.push(Change::NodeClaimGone(name));
                continue;
            };
            let seen = self.planned_claim(claim, inputs);
            if own.is_none_or(|own| !Arc::ptr_eq(&own, &seen)) {
                taken.made_up.insert(name.clone());
            }
            // What is made up is made up anew each time.
            if taken.live.node_claim(&name).is_none_or(|known| *known != seen) {
                changes.push(Change::NodeClaim(seen));
            }
        }
        true
    }

    /// Other objects that a Snapshot takes in.
    fn other_changes(&self, before: Versions, changes: &mut Vec<Change>) -> bool {
        let stores = &self.stores;
        let pools = changed(&stores.node_pools, before.node_pools);
        let budgets = changed(&stores.pod_disruption_budgets, before.budgets);
        let csi_nodes = changed(&stores.csi_nodes, before.csi_nodes);
        let policies = changed(&stores.disruption_policies, before.policies);
        let (Some(pools), Some(budgets), Some(csi_nodes), Some(policies)) =
            (pools, budgets, csi_nodes, policies)
        else {
            return false;
        };
        for (_, pool) in pools {
            let Some(pool) = pool else { return false };
            changes.push(Change::NodePool(pool));
        }
        changes.extend(budgets.into_iter().map(|(key, budget)| match budget {
            Some(budget) => Change::PodDisruptionBudget(budget),
            None => Change::PodDisruptionBudgetGone(key.namespace, key.name),
        }));
        changes.extend(csi_nodes.into_iter().map(|(key, node)| match node {
            Some(node) => Change::CsiNode(node),
            None => Change::CsiNodeGone(key.name),
        }));
        changes.extend(policies.into_iter().map(|(key, policy)| match policy {
            Some(policy) => Change::DisruptionPolicy(policy),
            None => Change::DisruptionPolicyGone(key.name),
        }));
        true
    }

    /// What is kept in memory, or follows from commands.
    fn memory_changes(
        &self,
        (before, marks): (Versions, Versions),
        known: &Inputs,
        inputs: &Inputs,
        changes: &mut Vec<Change>,
    ) {
        let differing = |one: &BTreeSet<String>, other: &BTreeSet<String>| -> Vec<String> {
            one.symmetric_difference(other).cloned().collect()
        };
        if (marks.disruptions, marks.policies) != (before.disruptions, before.policies)
            || for_drift(&known.pending).ne(for_drift(&inputs.pending))
        {
            changes.push(Change::Disruptions(self.ledger(&inputs.pending)));
        }
        for id in differing(&known.in_command, &inputs.in_command) {
            let held = inputs.in_command.contains(&id);
            changes.push(Change::InCommand(id, held));
        }
        for id in differing(&known.marked_for_deletion, &inputs.marked_for_deletion) {
            let marked = inputs.marked_for_deletion.contains(&id);
            changes.push(Change::MarkedForDeletion(id, marked));
        }
        for (id, nomination) in &inputs.nominations {
            if known.nominations.get(id) != Some(nomination) {
                changes.push(Change::Nominated(id.clone(), Some(nomination.until)));
            }
        }
        let ended = known.nominations.keys();
        for id in ended.filter(|id| !inputs.nominations.contains_key(*id)) {
            changes.push(Change::Nominated(id.clone(), None));
        }
        if known.revocable != inputs.revocable {
            changes.push(Change::Revocable(inputs.revocable.clone()));
        }
        if known.distress != inputs.distress {
            changes.push(Change::Distress(Distress::clone(&inputs.distress)));
        }
        // Policies say what of them is asked for.
        if (marks.owners, marks.policies) != (before.owners, before.policies)
            || known.owners_unknown != inputs.owners_unknown
        {
            changes.push(Change::Owners {
                annotations: self.stores.owners.annotations(),
                stateful_sets: self.stores.owners.ordinals(&self.stores.disruption_policies),
                unknown: inputs.owners_unknown,
            });
        }
    }
}

/// A pod as planning sees it: on what stands in for the NodeClaim that was made for it, while it waits for that; and without the name of a node that somebody
/// else has promised to it for too long.
pub(super) fn as_seen(pod: Arc<Pod>, inputs: &Inputs) -> Arc<Pod> {
    let uid = uid_of(&pod);
    if inputs.withdrawn.contains_key(uid) && promised(&pod).is_some() {
        return Arc::new(without_nomination(&pod));
    }
    match inputs.assigned.get(uid) {
        Some(stand_in) if is_provisionable(&pod) => Arc::new(expected_on(&pod, stand_in)),
        _ => pod,
    }
}

fn uid_of(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// What has changed in a store, with the objects as they are now; `None` when that is too long ago.
fn changed<K: Object + Resource>(store: &Store<K>, since: u64) -> Option<Vec<(ObjectKey, Option<Arc<K>>)>> {
    let keys = store.changed_since(since)?.into_iter();
    Some(
        keys.map(|key| {
            let object = store.get(&key);
            (key, object)
        })
        .collect(),
    )
}
