//! The last Snapshot and what it was made of: while nothing of that has changed, everybody gets the same, and what has changed is taken in.
//!
//! Owns the comparison only, which is also the answer to "has anything changed since the last pass?" ([`Inputs::is_same`]): the two cannot disagree.
//! At 5,000 nodes it saves an idle operator nearly all of its work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spokeshave_api::disruption::Disruption;
use spokeshave_model::Distress;
use spokeshave_model::snapshot::{InstanceTypesProblem, Snapshot};
use spokeshave_model::{InstanceType, LiveSnapshot, Nomination, Revocable};
use spokeshave_runtime::ObjectKey;

use crate::state::store_list::Versions;

/// What a NodePool can launch.
type TypesOfPool = Result<Arc<[InstanceType]>, InstanceTypesProblem>;
/// Instance types by NodePool.
pub(crate) type InstanceTypes = BTreeMap<String, TypesOfPool>;

/// Everything that a Snapshot depends on; objects in stores by the number of their changes, instance types with their prices and offerings by
/// identity (see [`CloudProvider::instance_types`](spokeshave_ports::CloudProvider::instance_types)).
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) versions: Versions,
    pub(crate) pending: Vec<Arc<Disruption>>,
    pub(crate) instance_types: InstanceTypes,
    pub(crate) nominations: BTreeMap<String, Nomination>,
    /// Pods that wait for NodeClaims which were made for them, by UID, with the provider IDs of these NodeClaims' stand-ins: planning sees them there.
    pub(crate) assigned: BTreeMap<String, Arc<str>>,
    /// Pods that somebody else has promised a node for so long that it counts no more, by UID: planning sees them without its name.
    pub(crate) withdrawn: BTreeMap<String, ObjectKey>,
    /// NodeClaims without instance that were made for pods of which some do not wait any more: the others, and those that have come in their place, are
    /// planned onto them.
    pub(crate) claims_with_room: BTreeSet<String>,
    pub(crate) in_command: BTreeSet<String>,
    pub(crate) marked_for_deletion: BTreeSet<String>,
    /// Commands that may yet be taken back.
    pub(crate) revocable: Vec<Revocable>,
    /// What has failed lately, where policies look at it.
    pub(crate) distress: Distress,
    /// A policy hears what owners of pods ask for, and they have not been read yet.
    pub(crate) owners_unknown: bool,
}

impl Inputs {
    /// Equal for certain; shared values are compared by identity, which is cheap and errs on the side of looking again.
    pub(crate) fn is_same(&self, other: &Inputs) -> bool {
        self.versions.is_same(&other.versions) && self.is_same_but_for_objects(other)
    }

    /// Whether these are the others after so many writes to NodeClaims, and nothing else has changed.
    pub(crate) fn are_after_claim_writes(&self, before: &Inputs, writes: u64) -> bool {
        let expected = Versions {
            node_claims: before.versions.node_claims.wrapping_add(writes),
            ..before.versions
        };
        self.versions.is_same(&expected) && self.is_same_but_for_objects(before)
    }

    fn is_same_but_for_objects(&self, other: &Inputs) -> bool {
        self.nominations == other.nominations
            && self.assigned == other.assigned
            && self.withdrawn == other.withdrawn
            && self.claims_with_room == other.claims_with_room
            && self.in_command == other.in_command
            && self.marked_for_deletion == other.marked_for_deletion
            && self.revocable == other.revocable
            && self.owners_unknown == other.owners_unknown
            && self.distress == other.distress
            && self.pending.len() == other.pending.len()
            && self
                .pending
                .iter()
                .zip(&other.pending)
                .all(|(one, other)| Arc::ptr_eq(one, other))
            && self.has_same_types(other)
    }

    /// Whether NodePools have the same instance types, prices and offerings included.
    pub(crate) fn has_same_types(&self, other: &Inputs) -> bool {
        let is_same_answer = |types: &TypesOfPool, other: &TypesOfPool| match (types, other) {
            (Ok(types), Ok(other)) => Arc::ptr_eq(types, other),
            (Err(problem), Err(other)) => problem == other,
            _ => false,
        };
        self.instance_types.keys().eq(other.instance_types.keys())
            && self
                .instance_types
                .values()
                .zip(other.instance_types.values())
                .all(|(types, other)| is_same_answer(types, other))
    }
}

/// A Snapshot that takes changes in, and which changes it has.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) live: LiveSnapshot,
    /// How often stores had changed when their objects were taken in.
    pub(crate) marks: Versions,
    /// NodeClaims that are not seen as they are stored, by name.
    pub(crate) made_up: BTreeSet<String>,
}

/// The last Snapshot, if there was one.
#[derive(Debug, Default)]
pub(crate) struct Frozen(Mutex<Last>);

/// The last Snapshot, and what it was made of.
#[derive(Debug, Default)]
pub(crate) struct Last(Option<(Arc<Inputs>, Taken)>);

impl Frozen {
    /// Waits until nobody else freezes.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    /// The last Snapshot, when it was made of the same.
    pub(crate) fn find(&self, inputs: &Inputs) -> Option<Arc<Snapshot>> {
        let (known, taken) = self.0.as_ref()?;
        known.is_same(inputs).then(|| Arc::clone(taken.live.snapshot()))
    }

    /// Takes the last Snapshot away, so that one which is changed half is never seen.
    pub(crate) fn take(&mut self) -> Option<(Arc<Inputs>, Taken)> {
        self.0.take()
    }

    /// Keeps a Snapshot.
    pub(crate) fn keep(&mut self, inputs: Arc<Inputs>, taken: Taken) {
        self.0 = Some((inputs, taken));
    }
}

/// In what two Snapshots of equal stores differ. A store counts as no change when an object only has a new resourceVersion, as after a heartbeat
/// of a kubelet, so that the older Snapshot may hold the older one; in all else the objects must be equal.
#[cfg(debug_assertions)]
pub(crate) fn differences(one: &Snapshot, other: &Snapshot) -> Vec<&'static str> {
    let other = with_versions_of(one, other);
    macro_rules! compared {
        ($($field:ident)*) => {{
            // Names all fields, so that none is forgotten.
            let Snapshot { $($field: _),* } = one;
            [$((stringify!($field), one.$field == other.$field)),*]
        }};
    }
    let fields = compared!(
        resources well_known pools nodes pods classes requests kinds daemons budgets workload_annotations stateful_sets scheduler_profiles distress owners_unknown disruption_policies disruptions synced
    );
    fields
        .into_iter()
        .filter_map(|(field, same)| (!same).then_some(field))
        .collect()
}

/// `other`, with the objects of `one` where they differ in nothing but their resourceVersion.
#[cfg(debug_assertions)]
fn with_versions_of(one: &Snapshot, other: &Snapshot) -> Snapshot {
    fn adopt<K: kube::Resource + Clone + PartialEq>(own: &mut Arc<K>, known: &Arc<K>) {
        if Arc::ptr_eq(own, known) || own.meta().resource_version == known.meta().resource_version {
            return;
        }
        let mut as_known = K::clone(own);
        as_known
            .meta_mut()
            .resource_version
            .clone_from(&known.meta().resource_version);
        if as_known == **known {
            *own = Arc::clone(known);
        }
    }
    let mut bare = other.clone();
    for (node, known) in bare.nodes.iter_mut().zip(&one.nodes) {
        for (own, known) in node.node.iter_mut().zip(&known.node) {
            adopt(own, known);
        }
        for (own, known) in node.claim.iter_mut().zip(&known.claim) {
            adopt(own, known);
        }
    }
    for (pool, known) in bare.pools.iter_mut().zip(&one.pools) {
        adopt(&mut pool.object, &known.object);
    }
    for (pod, known) in bare.pods.iter_mut().zip(&one.pods) {
        adopt(&mut pod.object, &known.object);
    }
    for (own, known) in bare.disruption_policies.iter_mut().zip(&one.disruption_policies) {
        adopt(own, known);
    }
    for (own, known) in bare.disruptions.iter_mut().zip(&one.disruptions) {
        adopt(own, known);
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    /// A heartbeat changes the resourceVersion and nothing else; any other difference is one.
    #[test]
    fn snapshots_that_differ_in_resource_versions_say_the_same() {
        let at = |version: &str, label: &str| {
            let mut node = Node {
                metadata: ObjectMeta {
                    name: Some("n".to_owned()),
                    ..ObjectMeta::default()
                },
                ..Node::default()
            };
            node.metadata.resource_version = Some(version.to_owned());
            node.metadata.labels = Some(BTreeMap::from([("team".to_owned(), label.to_owned())]));
            spokeshave_model::lower(&spokeshave_model::ClusterState {
                nodes: vec![Arc::new(node)],
                ..spokeshave_model::ClusterState::default()
            })
        };
        assert_ne!(at("1", "a"), at("2", "a"));
        assert!(differences(&at("1", "a"), &at("2", "a")).is_empty());
        assert_eq!(differences(&at("1", "a"), &at("1", "b")), ["nodes"]);
    }

    fn inputs(pods: u64, types: &Arc<[InstanceType]>) -> Inputs {
        Inputs {
            versions: Versions {
                pods,
                ..Versions::default()
            },
            pending: Vec::new(),
            instance_types: BTreeMap::from([("p".to_owned(), Ok(types.clone()))]),
            nominations: BTreeMap::new(),
            assigned: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            claims_with_room: BTreeSet::new(),
            in_command: BTreeSet::new(),
            marked_for_deletion: BTreeSet::new(),
            revocable: Vec::new(),
            owners_unknown: false,
            distress: Distress::default(),
        }
    }

    #[test]
    fn a_snapshot_is_given_again_until_something_changes() {
        let types: Arc<[InstanceType]> = Vec::new().into();
        let frozen = Frozen::default();
        assert!(frozen.lock().find(&inputs(1, &types)).is_none());
        let taken = Taken {
            live: LiveSnapshot::new(spokeshave_model::ClusterState::default()),
            marks: Versions::default(),
            made_up: BTreeSet::new(),
        };
        let snapshot = Arc::clone(taken.live.snapshot());
        frozen.lock().keep(inputs(1, &types).into(), taken);
        let again = frozen.lock().find(&inputs(1, &types)).unwrap();
        assert!(Arc::ptr_eq(&again, &snapshot));
        assert!(
            frozen.lock().find(&inputs(2, &types)).is_none(),
            "a pod has changed"
        );
        let others: Arc<[InstanceType]> = vec![InstanceType::default()].into();
        assert!(
            frozen.lock().find(&inputs(1, &others)).is_none(),
            "prices have changed"
        );
        let mut marked = inputs(1, &types);
        marked.in_command.insert("id".to_owned());
        assert!(frozen.lock().find(&marked).is_none(), "a command has begun");
    }

    #[test]
    fn writes_to_claims_explain_only_changes_of_claims() {
        let types: Arc<[InstanceType]> = Vec::new().into();
        let before = inputs(1, &types);
        let after = |claims: u64, others: u64| Inputs {
            versions: Versions {
                node_claims: claims,
                others,
                ..before.versions
            },
            ..inputs(1, &types)
        };
        assert!(after(2, 0).are_after_claim_writes(&before, 2));
        assert!(
            !after(3, 0).are_after_claim_writes(&before, 2),
            "another has written, too"
        );
        assert!(
            !after(2, 1).are_after_claim_writes(&before, 2),
            "a Node has changed"
        );
        assert!(!after(1, 1).are_after_claim_writes(&before, 2), "no sum of both");
        let dearer: Arc<[InstanceType]> = vec![InstanceType::default()].into();
        assert!(
            !inputs(1, &dearer).are_after_claim_writes(&before, 0),
            "a price has changed"
        );
    }

    #[test]
    fn a_command_that_waits_is_the_same_command_until_it_is_decided_again() {
        let types: Arc<[InstanceType]> = Vec::new().into();
        let waiting = |one: &Arc<Disruption>| Inputs {
            pending: vec![one.clone()],
            ..inputs(1, &types)
        };
        let spec = serde_json::json!({
            "method": "SingleNodeConsolidation", "reason": "Underutilized", "decision": "Delete", "decidedAt": "2026-01-01T00:00:00.000000Z", "nodes": [],
            "priceBefore": "1", "priceAfter": "0", "savings": "1", "evictions": 0, "nodeSummary": "", "replacementSummary": "",
        });
        let one = Arc::new(Disruption::new("d", serde_json::from_value(spec).unwrap()));
        assert!(waiting(&one).is_same(&waiting(&one)));
        assert!(!waiting(&one).is_same(&waiting(&Arc::new(Disruption::clone(&one)))));
        assert!(!waiting(&one).is_same(&inputs(1, &types)));
    }
}
