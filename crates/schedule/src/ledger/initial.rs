//! What ledgers start from: room on nodes, room under limits, ports and volumes in use (P §6.1).

use super::budget::Remaining;
use crate::tables::Attachments;
use crate::template::{Numbers, UNLIMITED};
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::snapshot::{KindId, NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::vector::ResourceVector;
use spokeshave_model::{Requirements, ResourceName, taint};
use std::collections::BTreeMap;

pub(super) fn remaining(snapshot: &Snapshot, pool: PoolId) -> Remaining {
    let view = snapshot.pool(pool);
    let left = |name: &str| {
        if view.limits.contains(name) {
            view.limits.get(name).saturating_sub(view.usage.get(name))
        } else {
            UNLIMITED
        }
    };
    Remaining {
        resources: (0..snapshot.resources.width())
            .map(|index| left(snapshot.resources.name(index)))
            .collect(),
        nodes: left(ResourceName::NODES),
    }
}

/// Instances left per reservation; of duplicates the smallest (P §6.1).
pub(super) fn reservations(snapshot: &Snapshot, numbers: &Numbers<'_>) -> Vec<i64> {
    if numbers.reservation_count() == 0 {
        return Vec::new();
    }
    let mut left: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    let offerings = snapshot
        .pools
        .iter()
        .flat_map(|pool| pool.instance_types.iter())
        .flat_map(|instance_type| &instance_type.offerings);
    for offering in offerings {
        if let Some(name) = offering
            .reservation_id_label
            .as_deref()
            .zip(offering.reservation_id())
        {
            let entry = left.entry(name).or_insert(offering.reservation_capacity);
            *entry = (*entry).min(offering.reservation_capacity);
        }
    }
    (0..numbers.reservation_count() as u32)
        .map(|id| left.get(&numbers.reservation_name(id)).copied().unwrap_or(0))
        .collect()
}

/// P §6.1: allocatable minus what is bound minus what DaemonSets will still take.
pub(super) fn free_capacity(snapshot: &Snapshot) -> Vec<i64> {
    let width = snapshot.resources.width();
    let daemons = snapshot.daemons.iter();
    let wanted: Vec<_> = daemons.map(|daemon| daemon.constraints.alternatives()).collect();
    let mut expected: Vec<Option<ResourceVector>> = vec![None; snapshot.kinds.len()];
    let mut all = Vec::with_capacity(width * snapshot.nodes.len());
    for node in &snapshot.nodes {
        let expected =
            expected[node.kind.index()].get_or_insert_with(|| expected_daemons(snapshot, &wanted, node.kind));
        let amounts = node.allocatable.0.iter().zip(&node.requested.0);
        let daemons = expected.0.iter().zip(&node.daemon_requested.0);
        all.extend(
            amounts
                .zip(daemons)
                .map(|((allocatable, requested), (expected, running))| {
                    let left = allocatable.saturating_sub(*requested);
                    left.saturating_sub((expected - running).max(0))
                }),
        );
    }
    all
}

/// What DaemonSets ask for on nodes of a kind; `wanted` says what each may select.
fn expected_daemons(snapshot: &Snapshot, wanted: &[Vec<Requirements>], kind: KindId) -> ResourceVector {
    let kind = &snapshot.kinds[kind.index()];
    let mut sum = ResourceVector::zero(snapshot.resources.width());
    for (daemon, wanted) in snapshot.daemons.iter().zip(wanted) {
        if daemon.constraints.uses_resource_claims {
            continue;
        }
        // Soft taints keep no DaemonSet away: kube-scheduler places its pods there all the same.
        let tolerated =
            taint::first_untolerated_hard(&kind.taints, &daemon.constraints.tolerations).is_none();
        let goes = |strict: &Requirements| kind.requirements.satisfy(strict);
        if tolerated && wanted.iter().any(goes) {
            sum.add(&daemon.requests);
        }
    }
    sum
}

/// Host ports in use on each node, by number.
pub(super) fn ports_in_use<'a>(
    snapshot: &'a Snapshot,
    numbers: &mut Numbers<'a>,
) -> FxHashMap<NodeId, Vec<u32>> {
    let mut ports: FxHashMap<NodeId, Vec<u32>> = FxHashMap::with_hasher(FxBuildHasher);
    if !snapshot.classes.has_host_ports() {
        return ports;
    }
    for view in snapshot.pods.iter().filter(|view| !view.terminal) {
        let opened = &snapshot.classes[view.class.index()].host_ports;
        if let (Some(node), false) = (view.node, opened.is_empty()) {
            let opened = opened.iter().map(|port| numbers.port(port));
            ports.entry(node).or_default().extend(opened);
        }
    }
    ports
}

/// Volumes attached to each node, if some node has attach limits, by number (P-117).
pub(super) fn attached_volumes(
    snapshot: &Snapshot,
    attachments: &Attachments,
) -> FxHashMap<NodeId, Vec<u32>> {
    let mut attached: FxHashMap<NodeId, Vec<u32>> = FxHashMap::with_hasher(FxBuildHasher);
    if attachments.are_unlimited() {
        return attached;
    }
    for (index, view) in snapshot.pods.iter().enumerate() {
        if let (Some(node), false) = (view.node, view.terminal || view.attachments().is_empty())
            && let Some(volumes) = attachments.of_pod(PodId::from(index))
        {
            let on_node = attached.entry(node).or_default();
            for volume in volumes {
                if !on_node.contains(volume) {
                    on_node.push(*volume);
                }
            }
        }
    }
    attached
}
