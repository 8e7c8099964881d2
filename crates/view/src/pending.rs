//! Pods without a node, grouped: five hundred replicas that ask for the same are one line.

use crate::world::Judged;
use jiff::Timestamp;
use serde::Serialize;
use spokeshave_model::pod::{is_daemon, is_virtual, key, node_name};
use spokeshave_model::snapshot::{ClassId, PodId, PodView, RequestId};
use spokeshave_model::{Pod, ResourceName, Resources, planned_node};
use spokeshave_story::explain::{DAEMONS_GET_NO_NODES, STATIC_PODS_GET_NO_NODES, way_out};
use std::collections::{BTreeMap, BTreeSet};

/// Where pods of a group will run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum Place {
    /// A node is being made for them.
    Awaited,
    /// It fits on an existing node.
    Node {
        /// Its name.
        name: String,
    },
    /// A node would be launched.
    New {
        /// Its NodePool.
        pool: String,
        /// The cheapest type that it may be.
        instance_type: String,
    },
    /// None.
    Nowhere {
        /// Why, as the pods' events say it.
        message: String,
        /// The fewest things without which they would have a place.
        in_the_way: Vec<String>,
        /// The fix.
        hints: Vec<String>,
    },
    /// No place is sought for them.
    Unplanned {
        /// Why not.
        message: String,
    },
    /// It depends on something that could not be read.
    Unknown,
}

/// Pods of one owner that ask for the same and go the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// `ReplicaSet shop/web-5d9`, or the pod if it has no owner.
    pub owner: String,
    /// How many pods.
    pub pods: usize,
    /// One of them, as `namespace/name`: its explanation has the details.
    pub example: String,
    /// Since when the oldest waits.
    pub since: Option<Timestamp>,
    /// The requests of each.
    pub requests: BTreeMap<String, String>,
    /// Where they will run.
    pub place: Place,
}

type Key = (String, Option<(ClassId, RequestId)>, Place);

/// A pod without a node, for which none is planned: kube-scheduler has not said that it is unschedulable, or pods of its kind get none.
pub(crate) fn is_unplanned(pod: &PodView) -> bool {
    pod.active && !pod.is_virtual && !pod.provisionable && node_name(&pod.object).is_none()
}

/// The groups, those without a place first, then the largest; last those for which none is sought.
pub(crate) fn groups(judged: &Judged) -> Vec<Group> {
    let mut found: BTreeMap<Key, Group> = BTreeMap::new();
    let places = places(judged);
    let unread = Place::Unknown;
    let is_known = judged.world.knows("place");
    let snapshot = &judged.snapshot;
    let pending: BTreeSet<PodId> = snapshot
        .pod_ids()
        .filter(|id| {
            let pod = snapshot.pod(*id);
            pod.provisionable && pod.active && !pod.is_virtual
        })
        .collect();
    for id in pending {
        let view = snapshot.pod(id);
        let Some(place) = places.get(&id) else { continue };
        let place = if is_known { place } else { &unread };
        let signature = Some((view.class, view.request));
        let requests = snapshot.resources.resources(snapshot.requests(id));
        add(&mut found, &view.object, signature, place, &requests);
    }
    for id in snapshot.pod_ids().filter(|id| is_unplanned(snapshot.pod(*id))) {
        let view = snapshot.pod(id);
        let place = Place::Unplanned {
            message: why_unplanned(view),
        };
        let signature = Some((view.class, view.request));
        let requests = snapshot.resources.resources(snapshot.requests(id));
        add(&mut found, &view.object, signature, &place, &requests);
    }
    for pod in judged.world.awaited().filter(|pod| !is_virtual(pod)) {
        let requests = spokeshave_model::pod::requests(pod);
        add(&mut found, pod, None, &Place::Awaited, &requests);
    }
    let mut groups: Vec<Group> = found.into_values().collect();
    let rank = |group: &Group| match group.place {
        Place::Nowhere { .. } => 0,
        Place::Unplanned { .. } => 2,
        _ => 1,
    };
    groups.sort_by(|left, right| {
        (rank(left), right.pods, &left.owner, &left.place).cmp(&(
            rank(right),
            left.pods,
            &right.owner,
            &right.place,
        ))
    });
    groups
}

/// The same for pods of one owner at any time, so that these stay one group.
fn why_unplanned(view: &PodView) -> String {
    let pod = &*view.object;
    if is_daemon(pod) {
        return DAEMONS_GET_NO_NODES.to_owned();
    }
    if view.mirror {
        return STATIC_PODS_GET_NO_NODES.to_owned();
    }
    let promised = planned_node::promised(pod).filter(|_| view.promised);
    if let Some(node) = promised {
        return format!("kube-scheduler is making room on {node}, or is about to bind them there");
    }
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_deref());
    let names = gates.into_iter().flatten().map(|gate| gate.name.as_str());
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "kube-scheduler has not said that they are unschedulable".to_owned()
    } else {
        format!("held by scheduling gates: {}", names.join(", "))
    }
}

fn add(
    found: &mut BTreeMap<Key, Group>,
    pod: &Pod,
    signature: Option<(ClassId, RequestId)>,
    place: &Place,
    requests: &Resources,
) {
    let owner = owner(pod);
    let since = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let group = found
        .entry((owner.clone(), signature, place.clone()))
        .or_insert_with(|| Group {
            owner,
            pods: 0,
            example: key(pod),
            since,
            requests: requests
                .iter()
                .filter(|(name, _)| *name != ResourceName::PODS)
                .map(|(name, amount)| (name.to_owned(), ResourceName::format(name, amount)))
                .collect(),
            place: place.clone(),
        });
    group.pods += 1;
    group.since = match (group.since, since) {
        (Some(known), Some(other)) => Some(known.min(other)),
        (known, other) => known.or(other),
    };
}

fn owner(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    match owners.iter().find(|owner| owner.controller == Some(true)) {
        Some(owner) => format!("{} {namespace}/{}", owner.kind, owner.name),
        None => format!("Pod {}", key(pod)),
    }
}

fn places(judged: &Judged) -> BTreeMap<PodId, Place> {
    let snapshot = &judged.snapshot;
    let outcome = &judged.provisioned;
    let mut places = BTreeMap::new();
    for (node, pods) in &outcome.placements.existing {
        let name = &snapshot.node(*node).name;
        places.extend(pods.iter().map(|pod| (*pod, Place::Node { name: name.clone() })));
    }
    for claim in &outcome.placements.claims {
        let pool = snapshot.pool(claim.pool);
        let cheapest = claim.launches.first();
        let place = Place::New {
            pool: pool.name.clone(),
            instance_type: cheapest
                .map(|launch| pool.instance_types[launch.instance_type].name.clone())
                .unwrap_or_default(),
        };
        places.extend(claim.pods.iter().map(|pod| (*pod, place.clone())));
    }
    let derivations = outcome.explain(snapshot, &judged.policy);
    for (pod, message) in outcome.left_over() {
        let minimal = derivations
            .get(&pod)
            .map(|derivation| derivation.minimal.as_slice());
        let minimal = minimal.unwrap_or_default();
        places.insert(
            pod,
            Place::Nowhere {
                message: message.to_string(),
                in_the_way: minimal.iter().map(ToString::to_string).collect(),
                hints: minimal
                    .iter()
                    .map(|blocker| way_out(snapshot, pod, blocker))
                    .collect(),
            },
        );
    }
    places
}
