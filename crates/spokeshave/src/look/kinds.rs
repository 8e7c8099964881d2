//! The kinds that are looked at, by the resource of their list; and objects that cannot be read, under the resource of their kind.

use std::collections::BTreeMap;

use spokeshave_plan::report::count;
use spokeshave_runtime::ObjectKey;
use spokeshave_view::{AS_LAST_READ, Missing};

use crate::plan::live;
use crate::plan::schema::LeftOut;

/// Resources, as rights name them, and their kinds.
const KINDS: [(&str, &str); 28] = [
    ("aksnodeclasses.karpenter.azure.com", "AKSNodeClass"),
    ("capacitybuffers.autoscaling.x-k8s.io", "CapacityBuffer"),
    ("cronjobs.batch", "CronJob"),
    ("csinodes.storage.k8s.io", "CSINode"),
    ("daemonsets.apps", "DaemonSet"),
    ("deployments.apps", "Deployment"),
    ("disruptionpolicies.spokeshave.dev", "DisruptionPolicy"),
    ("disruptions.spokeshave.dev", "Disruption"),
    ("ec2nodeclasses.karpenter.k8s.aws", "EC2NodeClass"),
    ("jobs.batch", "Job"),
    ("kwoknodeclasses.karpenter.kwok.sh", "KWOKNodeClass"),
    ("namespaces", "Namespace"),
    ("nodeclaims.karpenter.sh", "NodeClaim"),
    ("nodeoverlays.karpenter.sh", "NodeOverlay"),
    ("nodepools.karpenter.sh", "NodePool"),
    ("nodes", "Node"),
    ("persistentvolumeclaims", "PersistentVolumeClaim"),
    ("persistentvolumes", "PersistentVolume"),
    ("poddisruptionbudgets.policy", "PodDisruptionBudget"),
    ("pods", "Pod"),
    ("podtemplates", "PodTemplate"),
    ("replicasets.apps", "ReplicaSet"),
    ("replicationcontrollers", "ReplicationController"),
    ("resourceslices.resource.k8s.io", "ResourceSlice"),
    ("services", "Service"),
    ("statefulsets.apps", "StatefulSet"),
    ("storageclasses.storage.k8s.io", "StorageClass"),
    ("volumeattachments.storage.k8s.io", "VolumeAttachment"),
];

/// Objects of one kind that are named. What is wrong with the others is rarely something else.
const NAMED: usize = 3;

/// Version and kind of the objects of a list: `/apis/apps/v1/daemonsets` → (`apps/v1`, `DaemonSet`).
pub(super) fn identity(path: &str) -> Option<(String, String)> {
    let (version, _) = path.trim_start_matches('/').rsplit_once('/')?;
    let version = version
        .strip_prefix("apis/")
        .or_else(|| version.strip_prefix("api/"))?;
    let resource = live::resource(path);
    let (_, kind) = KINDS.iter().find(|(known, _)| *known == resource)?;
    Some((version.to_owned(), (*kind).to_owned()))
}

/// Objects that count as absent because they cannot be read: what depends on their kind is unknown. One that an API server would refuse is in no cluster, and
/// hides nothing.
pub(super) fn missing(left_out: &[LeftOut]) -> Vec<Missing> {
    grouped(left_out, false)
}

/// The same; of some kinds an operator goes by what it read last: an object that it cannot read any more does not count as absent.
fn grouped(left_out: &[LeftOut], is_of_operator: bool) -> Vec<Missing> {
    let mut by_kind: BTreeMap<&str, Vec<&LeftOut>> = BTreeMap::new();
    for one in left_out {
        if let Some(kind) = &one.unread {
            by_kind.entry(kind).or_default().push(one);
        }
    }
    let missing = by_kind.into_iter().map(|(kind, objects)| {
        let known = KINDS.iter().find(|(_, known)| *known == kind);
        let resource = known.map_or(kind, |(resource, _)| *resource);
        let becomes = if is_of_operator && AS_LAST_READ.contains(&resource) {
            "counts as it was last read, if it was"
        } else {
            "is left out"
        };
        let named = objects.iter().take(NAMED);
        let named: Vec<String> = named
            .map(|one| format!("{} {becomes}, because {}", one.object, one.why))
            .collect();
        let mut message = named.join("; ");
        let others = objects.len().saturating_sub(NAMED);
        if others > 0 {
            message.push_str(&format!("; and {}", count(others, "other")));
        }
        Missing {
            resource: resource.to_owned(),
            message,
        }
    });
    missing.collect()
}

/// The same of what an operator cannot read, by kind, key and reason.
pub(super) fn unreadable(objects: impl IntoIterator<Item = (String, ObjectKey, String)>) -> Vec<Missing> {
    let left_out = objects.into_iter().map(|(kind, key, why)| LeftOut {
        object: format!("{kind} {key}"),
        place: String::new(),
        why: format!("it cannot be read: {why}"),
        unread: Some(kind),
    });
    grouped(&left_out.collect::<Vec<_>>(), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_cannot_read_is_missing_under_the_resource_of_its_kind() {
        let object = |kind: &str, key: ObjectKey| (kind.to_owned(), key, "spec: wrong".to_owned());
        let told: Vec<(String, String)> = unreadable([
            object("Disruption", ObjectKey::cluster("d1")),
            object("NodeOverlay", ObjectKey::cluster("cheap")),
            object("PodDisruptionBudget", ObjectKey::namespaced("shop", "web")),
        ])
        .into_iter()
        .map(|one| (one.resource, one.message))
        .collect();
        let said = |resource: &str, object: &str| {
            let message = format!("{object}, because it cannot be read: spec: wrong");
            (resource.to_owned(), message)
        };
        assert_eq!(
            told,
            [
                said("disruptions.spokeshave.dev", "Disruption d1 is left out"),
                said(
                    "nodeoverlays.karpenter.sh",
                    "NodeOverlay cheap counts as it was last read, if it was"
                ),
                said(
                    "poddisruptionbudgets.policy",
                    "PodDisruptionBudget shop/web is left out"
                ),
            ]
        );
    }

    #[test]
    fn a_kind_is_missing_once_however_many_objects_of_it_cannot_be_read() {
        let left_out = |kind: &str, name: String| LeftOut {
            object: format!("{kind} {name}"),
            place: "/api/v1/pods".to_owned(),
            why: "it cannot be read: spec: wrong".to_owned(),
            unread: Some(kind.to_owned()),
        };
        let mut all: Vec<LeftOut> = (1..=5)
            .map(|number| left_out("Pod", format!("shop/web-{number}")))
            .collect();
        all.push(left_out("NodePool", "big".to_owned()));
        let told: Vec<(String, String)> = missing(&all)
            .into_iter()
            .map(|one| (one.resource, one.message))
            .collect();
        let said = |object: &str| format!("{object} is left out, because it cannot be read: spec: wrong");
        let pods = ["Pod shop/web-1", "Pod shop/web-2", "Pod shop/web-3"].map(said);
        assert_eq!(
            told,
            [
                ("nodepools.karpenter.sh".to_owned(), said("NodePool big")),
                ("pods".to_owned(), format!("{}; and 2 others", pods.join("; "))),
            ]
        );
    }
}
