//! What a pass starts from: room on nodes, room under limits, pods that count (P §6.1, P-107).

use super::Remaining;
use crate::template::daemon_alternatives;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::HostPort;
use spokeshave_model::snapshot::{ClassId, KindId, NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::vector::ResourceVector;
use spokeshave_model::{ResourceName, taint};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn remaining(snapshot: &Snapshot, pool: PoolId, without: &BTreeSet<NodeId>) -> Remaining {
    let view = snapshot.pool(pool);
    let mut usage = view.usage.clone();
    let freed = without.iter().map(|node| snapshot.node(*node));
    for node in freed.filter(|node| node.pool == Some(pool) && !node.marked_for_deletion) {
        let mut capacity = node.capacity.clone();
        capacity.set(ResourceName::NODES, 1);
        usage.subtract(&capacity);
    }
    let left = |name: &str| {
        view.limits
            .contains(name)
            .then(|| view.limits.get(name).saturating_sub(usage.get(name)))
    };
    Remaining {
        resources: (0..snapshot.resources.width())
            .map(|index| left(snapshot.resources.name(index)))
            .collect(),
        nodes: left(ResourceName::NODES),
    }
}

/// Instances left per reservation (label and ID); of duplicates the smallest (P §6.1).
pub(super) fn reservations(snapshot: &Snapshot) -> BTreeMap<(String, String), i64> {
    let mut left: BTreeMap<(String, String), i64> = BTreeMap::new();
    let offerings = snapshot
        .pools
        .iter()
        .flat_map(|pool| pool.instance_types.iter())
        .flat_map(|instance_type| &instance_type.offerings);
    for offering in offerings {
        if let Some((label, id)) = offering
            .reservation_id_label
            .as_ref()
            .zip(offering.reservation_id())
        {
            let entry = left
                .entry((label.clone(), id.to_owned()))
                .or_insert(offering.reservation_capacity);
            *entry = (*entry).min(offering.reservation_capacity);
        }
    }
    left
}

/// P §6.1: allocatable minus what is bound minus what DaemonSets will still take.
pub(super) fn free_capacity(snapshot: &Snapshot) -> Vec<ResourceVector> {
    let width = snapshot.resources.width();
    let mut expected: FxHashMap<KindId, ResourceVector> = FxHashMap::with_hasher(FxBuildHasher);
    let none = BTreeSet::new();
    let free = snapshot.nodes.iter().map(|node| {
        let daemons = expected.entry(node.kind).or_insert_with(|| {
            let kind = &snapshot.kinds[node.kind.index()];
            let mut sum = ResourceVector::zero(width);
            for daemon in snapshot
                .daemons
                .iter()
                .filter(|daemon| !daemon.constraints.uses_resource_claims)
            {
                let tolerated =
                    taint::first_untolerated(&kind.taints, &daemon.constraints.tolerations).is_none();
                let wanted = daemon_alternatives(daemon);
                if tolerated
                    && wanted
                        .iter()
                        .any(|strict| kind.requirements.compatible(strict, &none).is_ok())
                {
                    sum.add(&daemon.requests);
                }
            }
            sum
        });
        let mut free = node.allocatable.clone();
        free.subtract(&node.requested);
        for (index, left) in free.0.iter_mut().enumerate() {
            *left = left.saturating_sub((daemons[index] - node.daemon_requested[index]).max(0));
        }
        free
    });
    free.collect()
}

/// Bound, running pods outside the batch, by class and node (P-107).
pub(super) fn counted_pods(snapshot: &Snapshot, batch: &BTreeSet<PodId>) -> Vec<(ClassId, NodeId, u32)> {
    let mut counted: BTreeMap<(ClassId, NodeId), u32> = BTreeMap::new();
    for pod in snapshot.pod_ids().filter(|pod| !batch.contains(pod)) {
        let view = snapshot.pod(pod);
        if let (Some(node), true) = (view.node, view.active) {
            *counted.entry((view.class, node)).or_insert(0) += 1;
        }
    }
    counted
        .into_iter()
        .map(|((class, node), number)| (class, node, number))
        .collect()
}

pub(super) fn node_ports(snapshot: &Snapshot, batch: &BTreeSet<PodId>) -> Vec<Vec<HostPort>> {
    let ports = snapshot.nodes.iter().map(|node| {
        let pods = node
            .pods
            .iter()
            .filter(|pod| !batch.contains(pod) && !snapshot.pod(**pod).terminal);
        pods.flat_map(|pod| snapshot.constraints(*pod).host_ports.iter().cloned())
            .collect()
    });
    ports.collect()
}

/// Claims attached to each node that has attach limits, outside the batch, by CSI driver (P-117).
pub(super) fn node_attachments(
    snapshot: &Snapshot,
    batch: &BTreeSet<PodId>,
) -> Vec<BTreeSet<(String, String)>> {
    let attached = snapshot.nodes.iter().map(|node| {
        if node.attach_limits.is_empty() {
            return BTreeSet::new();
        }
        let pods = node
            .pods
            .iter()
            .filter(|pod| !batch.contains(pod) && !snapshot.pod(**pod).terminal);
        pods.flat_map(|pod| snapshot.pod(*pod).attachments.iter().cloned())
            .collect()
    });
    attached.collect()
}

/// Whether a node's attach limits admit further volumes. The same claim used by several pods counts once.
pub(super) fn attachable(
    limits: &BTreeMap<String, i64>,
    attached: &BTreeSet<(String, String)>,
    more: &[(String, String)],
) -> bool {
    more.iter().all(|(driver, _)| {
        let Some(limit) = limits.get(driver) else {
            return true;
        };
        let present = attached.iter().filter(|(other, _)| other == driver).count();
        let new = more
            .iter()
            .filter(|entry| entry.0 == *driver && !attached.contains(*entry))
            .count();
        i64::try_from(present + new).is_ok_and(|count| count <= *limit)
    })
}
