//! How many CSI volumes a node can have attached: what CSINodes say, how the scheduler counts, and the CSINodes that kubelets publish.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::PostParams;
use serde_json::{Value, json};
use spokeshave_runtime::{Api, ObjectKey, ReconcileError};

use crate::objects::{name, namespace, uid};
use crate::volumes::{claim_names, class_of};
use crate::world::{World, noted};

/// Annotation of a CSIDriver: the volume limit per node that kubelets report.
const ATTACH_LIMIT: &str = "sim.spokeshave.dev/attach-limit";

/// A driver, and a volume of it or a claim that will get one.
pub(crate) type CsiVolume = (String, String);

/// The CSI volumes that a pod brings to its node.
pub(crate) fn volumes_of(world: &World, pod: &Pod) -> Vec<CsiVolume> {
    let one = |claim_name: String| {
        let key = ObjectKey::namespaced(namespace(&pod.metadata), claim_name);
        let claim = world.claims.get(&key)?;
        match claim.spec.as_ref()?.volume_name.as_deref() {
            Some(volume_name) => {
                let volume = world.volumes.get_named(volume_name)?;
                let driver = volume.spec.as_ref()?.csi.as_ref()?.driver.clone();
                Some((driver, volume_name.to_owned()))
            }
            None => Some((class_of(world, &claim)?.provisioner.clone(), key.to_string())),
        }
    };
    claim_names(pod).into_iter().filter_map(one).collect()
}

/// Limits of a node by driver; drivers without one are not named.
pub(crate) fn limits(world: &World, node_name: &str) -> BTreeMap<String, usize> {
    let drivers = world.csi_nodes.get_named(node_name);
    let drivers = drivers.iter().flat_map(|csi_node| &csi_node.spec.drivers);
    drivers
        .filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((driver.name.clone(), usize::try_from(count).unwrap_or(0)))
        })
        .collect()
}

/// Whether a node with some volumes cannot have others as well. What it has already counts once.
pub(crate) fn are_exceeded(
    limits: &BTreeMap<String, usize>,
    used: &BTreeSet<CsiVolume>,
    wanted: &[CsiVolume],
) -> bool {
    limits.iter().any(|(driver, limit)| {
        let of_driver = |volume: &&CsiVolume| volume.0 == *driver;
        let new: BTreeSet<&CsiVolume> = wanted
            .iter()
            .filter(of_driver)
            .filter(|volume| !used.contains(*volume))
            .collect();
        !new.is_empty() && used.iter().filter(of_driver).count() + new.len() > *limit
    })
}

/// The CSINode of a node that comes up, with the drivers that the cluster knows.
pub(crate) async fn publish(world: &World, node: &Node) -> Result<(), ReconcileError> {
    let (node_name, mut drivers) = (name(&node.metadata), Vec::<Value>::new());
    for driver in world.csi_drivers.snapshot() {
        let annotations = driver.metadata.annotations.as_ref();
        let limit = annotations.and_then(|annotations| annotations.get(ATTACH_LIMIT));
        let mut entry = json!({"name": name(&driver.metadata), "nodeID": node_name});
        match limit.map(|text| text.parse::<u32>()) {
            Some(Ok(count)) => entry["allocatable"] = json!({"count": count}),
            Some(Err(_)) => tracing::warn!(
                driver = name(&driver.metadata),
                "annotation {ATTACH_LIMIT} is not a whole number; nodes have no limit for the driver"
            ),
            None => {}
        }
        drivers.push(entry);
    }
    if drivers.is_empty() || world.csi_nodes.get_named(node_name).is_some() {
        return Ok(());
    }
    let csi_node: CSINode = serde_json::from_value(json!({
        "metadata": {"name": node_name, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": uid(&node.metadata)}]},
        "spec": {"drivers": drivers},
    }))?;
    let api: Api<CSINode> = Api::all(world.kubelet_client.clone());
    let answer = api.create(&PostParams::default(), &csi_node).await;
    noted(&world.csi_nodes, answer)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_a_node_has_already_count_once() {
        let volume = |driver: &str, name: &str| (driver.to_owned(), name.to_owned());
        let limits = BTreeMap::from([("a".to_owned(), 2)]);
        let used = BTreeSet::from([
            volume("a", "1"),
            volume("b", "1"),
            volume("b", "2"),
            volume("b", "3"),
        ]);
        for (wanted, exceeded) in [
            (vec![volume("a", "2")], false),
            (vec![volume("a", "2"), volume("a", "3")], true),
            (vec![volume("a", "2"), volume("a", "2")], false),
            (vec![volume("a", "1"), volume("a", "2")], false),
            (vec![volume("b", "4"), volume("c", "1")], false),
        ] {
            assert_eq!(are_exceeded(&limits, &used, &wanted), exceeded, "{wanted:?}");
        }
        let full = BTreeSet::from([volume("a", "1"), volume("a", "2"), volume("a", "3")]);
        assert!(
            !are_exceeded(&limits, &full, &[volume("a", "1")]),
            "a limit that came late drives nobody out"
        );
    }
}
