//! Where a pod's volumes can be reached (P §6.10): validation, and the alternatives they leave for the node.
//!
//! Alternatives constrain the node, never the pod's own affinity, so that spread counting is unaffected.

use crate::Pod;
use crate::labels;
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Volume};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The annotation of a claim whose binding to its volume is complete.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The phase of a claim whose volume does not exist any more.
pub(crate) const LOST: &str = "Lost";

/// The objects that volumes refer to.
#[derive(Clone, Debug, Default)]
pub struct VolumeObjects {
    /// By `namespace/name`.
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    /// By name.
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// By name.
    pub storage_classes: BTreeMap<String, Arc<StorageClass>>,
    /// By node name.
    pub csi_nodes: BTreeMap<String, Arc<CSINode>>,
    /// What the provider's nodes cannot use.
    pub unsupported: Unsupported,
}

/// Volumes that a provider's nodes cannot use (P-118).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsupported {
    /// Provisioners of StorageClasses, and CSI drivers of volumes.
    pub provisioners: BTreeSet<String>,
    /// Keys of `allowedTopologies`.
    pub topology_keys: BTreeSet<String>,
}

impl Unsupported {
    fn check_driver(&self, driver: &str) -> Result<(), String> {
        if self.provisioners.contains(driver) {
            return Err(format!(
                "provisioner {driver:?} is not supported by the nodes of this provider"
            ));
        }
        Ok(())
    }

    fn check_class(&self, class: &StorageClass) -> Result<(), String> {
        self.check_driver(&class.provisioner)?;
        let terms = class.allowed_topologies.iter().flatten();
        let mut keys = terms
            .flat_map(|term| term.match_label_expressions.iter().flatten())
            .map(|expression| expression.key.as_str());
        match keys.find(|key| self.topology_keys.contains(*key)) {
            Some(key) => Err(format!(
                "allowedTopologies of storageclass {:?} use label {key:?}, which nodes of this provider do not have",
                class.metadata.name.as_deref().unwrap_or_default()
            )),
            None => Ok(()),
        }
    }
}

/// Whether a volume is a claim, which may bind its pod to a place: named, or made with the pod. All others are there on any node.
pub fn is_claim(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
}

/// `namespace/name` of each PersistentVolumeClaim a pod uses: named ones, and ephemeral ones, which are called `<pod>-<volume>`.
pub fn claim_keys(pod: &Pod) -> Vec<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
    let pod_name = pod.metadata.name.as_deref().unwrap_or("");
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let names = volumes.filter_map(
        |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => Some(format!("{pod_name}-{}", volume.name)),
            (None, None) => None,
        },
    );
    names.map(|name| format!("{namespace}/{name}")).collect()
}

/// P-115: what keeps a pod from being scheduled until its volumes are put right.
pub fn validate(pod: &Pod, objects: &VolumeObjects) -> Result<(), String> {
    for key in claim_keys(pod) {
        validate_claim(&key, objects)
            .map_err(|problem| format!("persistentvolumeclaim {key:?}, {problem}"))?;
    }
    Ok(())
}

fn validate_claim(key: &str, objects: &VolumeObjects) -> Result<(), String> {
    let claim = objects.claims.get(key).ok_or("not found")?;
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("is being deleted".to_owned());
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(LOST) {
        return Err("is lost: its volume does not exist any more".to_owned());
    }
    let spec = claim.spec.as_ref();
    if let Some(volume) = spec
        .and_then(|spec| spec.volume_name.as_deref())
        .filter(|name| !name.is_empty())
    {
        let volume_object = objects
            .volumes
            .get(volume)
            .ok_or_else(|| format!("persistentvolume {volume:?} not found"))?;
        if volume_object.metadata.deletion_timestamp.is_some() {
            return Err(format!("persistentvolume {volume:?} is being deleted"));
        }
        let annotations = claim.metadata.annotations.as_ref();
        if !annotations.is_some_and(|annotations| annotations.contains_key(BIND_COMPLETED)) {
            return Err("binding to its volume is not completed".to_owned());
        }
        return match driver_of(key, objects) {
            Some(driver) => objects.unsupported.check_driver(&driver),
            None => Ok(()),
        };
    }
    let class = spec
        .and_then(|spec| spec.storage_class_name.as_deref())
        .filter(|name| !name.is_empty());
    let class = class.ok_or("unbound pvc must define a storage class")?;
    let class = objects
        .storage_classes
        .get(class)
        .ok_or_else(|| format!("storageclass {class:?} not found"))?;
    if class.volume_binding_mode.as_deref().unwrap_or("Immediate") == "Immediate" {
        return Err("pvc with immediate volume binding mode must be bound".to_owned());
    }
    objects.unsupported.check_class(class)
}

/// P-116: alternatives for the node, one of which must hold; empty when the volumes do not care. Several volumes give the compatible
/// combinations; when no combination is compatible, all are kept, so that the pod fails later with a normal reason.
pub fn terms(pod: &Pod, objects: &VolumeObjects) -> Vec<Requirements> {
    let mut combined: Vec<Requirements> = Vec::new();
    for key in claim_keys(pod) {
        let alternatives = claim_terms(&key, objects);
        if alternatives.is_empty() {
            continue;
        }
        if combined.is_empty() {
            combined = alternatives;
            continue;
        }
        let pairs = || {
            combined
                .iter()
                .flat_map(|left| alternatives.iter().map(move |right| (left, right)))
        };
        let join = |(left, right): (&Requirements, &Requirements)| {
            let mut both = left.clone();
            both.add_all(right);
            both
        };
        let compatible: Vec<Requirements> = pairs()
            .filter(|(left, right)| left.intersects(right).is_ok())
            .map(join)
            .collect();
        combined = if compatible.is_empty() {
            pairs().map(join).collect()
        } else {
            compatible
        };
    }
    combined.dedup();
    // An alternative without conditions makes the others moot.
    if combined.iter().any(Requirements::is_empty) {
        Vec::new()
    } else {
        combined
    }
}

fn claim_terms(key: &str, objects: &VolumeObjects) -> Vec<Requirements> {
    let Some(claim) = objects.claims.get(key) else {
        return Vec::new();
    };
    let spec = claim.spec.as_ref();
    if let Some(volume) = spec
        .and_then(|spec| spec.volume_name.as_deref())
        .filter(|name| !name.is_empty())
    {
        return objects
            .volumes
            .get(volume)
            .map(|volume| volume_terms(volume))
            .unwrap_or_default();
    }
    let class = spec
        .and_then(|spec| spec.storage_class_name.as_deref())
        .and_then(|name| objects.storage_classes.get(name));
    let topologies = class
        .and_then(|class| class.allowed_topologies.as_deref())
        .unwrap_or_default();
    let term = |topology: &k8s_openapi::api::core::v1::TopologySelectorTerm| -> Requirements {
        let expressions = topology.match_label_expressions.iter().flatten();
        expressions
            .map(|expression| Requirement::one_of(&expression.key, expression.values.iter().cloned()))
            .collect()
    };
    topologies.iter().map(term).collect()
}

fn volume_terms(volume: &PersistentVolume) -> Vec<Requirements> {
    let spec = volume.spec.as_ref();
    let local = spec.is_some_and(|spec| spec.local.is_some() || spec.host_path.is_some());
    let required = spec
        .and_then(|spec| spec.node_affinity.as_ref())
        .and_then(|affinity| affinity.required.as_ref());
    let terms = required
        .map(|required| required.node_selector_terms.as_slice())
        .unwrap_or_default();
    terms
        .iter()
        .map(|term| {
            let mut requirements = Requirements::from_term(term).unwrap_or_default();
            if local {
                requirements.remove(labels::HOSTNAME);
            }
            requirements
        })
        .collect()
}

/// (CSI driver, claim) of each claim whose driver is known, sorted: what counts towards a node's attach limits (P-117). In-tree
/// provisioners count under the CSI driver that took over from them; volumes that are not attached by a driver do not count.
pub fn attachments(pod: &Pod, objects: &VolumeObjects) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = claim_keys(pod)
        .into_iter()
        .filter_map(|key| Some((driver_of(&key, objects)?, key)))
        .collect();
    found.sort();
    found.dedup();
    found
}

fn driver_of(key: &str, objects: &VolumeObjects) -> Option<String> {
    let spec = objects.claims.get(key)?.spec.as_ref()?;
    if let Some(volume) = spec.volume_name.as_deref().filter(|name| !name.is_empty()) {
        let volume = objects.volumes.get(volume)?.spec.as_ref()?;
        let in_tree = volume
            .aws_elastic_block_store
            .as_ref()
            .map(|_| "ebs.csi.aws.com".to_owned());
        return volume.csi.as_ref().map(|csi| csi.driver.clone()).or(in_tree);
    }
    let class = objects.storage_classes.get(spec.storage_class_name.as_deref()?)?;
    Some(csi_name(&class.provisioner).to_owned())
}

fn csi_name(provisioner: &str) -> &str {
    match provisioner {
        "kubernetes.io/aws-ebs" => "ebs.csi.aws.com",
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/azure-file" => "file.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        "kubernetes.io/vsphere-volume" => "csi.vsphere.vmware.com",
        other => other,
    }
}

/// How many volumes of each CSI driver a node can attach; drivers without a limit are absent.
pub fn attach_limits(node: &str, objects: &VolumeObjects) -> BTreeMap<String, i64> {
    let drivers = objects
        .csi_nodes
        .get(node)
        .map(|node| node.spec.drivers.as_slice())
        .unwrap_or_default();
    let limit = |driver: &k8s_openapi::api::storage::v1::CSINodeDriver| {
        Some((
            driver.name.clone(),
            i64::from(driver.allocatable.as_ref()?.count?),
        ))
    };
    drivers.iter().filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trim;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, from_value, json};

    fn object<T: DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(from_value(value).expect("an object written by hand"))
    }

    fn class(name: &str, mode: Option<&str>) -> (String, Arc<StorageClass>) {
        let topologies = json!([{"matchLabelExpressions": [{"key": "rack", "values": ["1"]}]}]);
        let value = json!({"metadata": {"name": name}, "provisioner": format!("{name}.example"),
            "volumeBindingMode": mode, "allowedTopologies": topologies});
        (name.to_owned(), object(value))
    }

    fn volume(name: &str, deleted: Option<&str>) -> (String, Arc<PersistentVolume>) {
        let spec = json!({"csi": {"driver": "disk.example", "volumeHandle": "h"}});
        let value = json!({"metadata": {"name": name, "deletionTimestamp": deleted}, "spec": spec});
        (name.to_owned(), object(value))
    }

    const GONE: Option<&str> = Some("2026-01-01T00:00:00Z");

    fn objects(claim: Option<Value>) -> VolumeObjects {
        VolumeObjects {
            claims: claim
                .map(|claim| ("shop/data".to_owned(), object(claim)))
                .into_iter()
                .collect(),
            volumes: [volume("v", None), volume("leaving", GONE)].into(),
            storage_classes: [
                class("late", Some("WaitForFirstConsumer")),
                class("now", Some("Immediate")),
                class("unsaid", None),
            ]
            .into(),
            ..VolumeObjects::default()
        }
    }

    /// As a store keeps them.
    fn kept(mut objects: VolumeObjects) -> VolumeObjects {
        for claim in objects.claims.values_mut() {
            trim::persistent_volume_claim(Arc::make_mut(claim));
        }
        for volume in objects.volumes.values_mut() {
            trim::persistent_volume(Arc::make_mut(volume));
        }
        objects
    }

    fn pod() -> Pod {
        let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
        let value = json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": [], "volumes": volumes}});
        from_value(value).expect("a pod written by hand")
    }

    fn problem(objects: &VolumeObjects) -> String {
        let problem = validate(&pod(), objects).err().unwrap_or_default();
        let rest = problem.strip_prefix("persistentvolumeclaim \"shop/data\", ");
        rest.map_or(problem.clone(), ToOwned::to_owned)
    }

    #[test]
    fn p_115_what_keeps_a_pod_with_claims_from_being_planned() {
        let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
        let cases = [
            (None, "not found"),
            (
                Some(json!({"metadata": {"deletionTimestamp": GONE}})),
                "is being deleted",
            ),
            (
                Some(json!({"metadata": {}, "status": {"phase": "Lost"}})),
                "is lost: its volume does not exist any more",
            ),
            (
                Some(json!({"metadata": {}, "spec": {"volumeName": "gone"}})),
                "persistentvolume \"gone\" not found",
            ),
            (
                Some(json!({"metadata": {"annotations": bound}, "spec": {"volumeName": "leaving"}})),
                "persistentvolume \"leaving\" is being deleted",
            ),
            (
                Some(json!({"metadata": {}, "spec": {"volumeName": "v"}})),
                "binding to its volume is not completed",
            ),
            (
                Some(json!({"metadata": {"annotations": bound}, "spec": {"volumeName": "v"}})),
                "",
            ),
            (
                Some(json!({"metadata": {}, "spec": {}})),
                "unbound pvc must define a storage class",
            ),
            (
                Some(json!({"metadata": {}, "spec": {"storageClassName": ""}})),
                "unbound pvc must define a storage class",
            ),
            (
                Some(json!({"metadata": {}, "spec": {"storageClassName": "gone"}})),
                "storageclass \"gone\" not found",
            ),
            (
                Some(json!({"metadata": {}, "spec": {"storageClassName": "now"}})),
                "pvc with immediate volume binding mode must be bound",
            ),
            (
                Some(json!({"metadata": {}, "spec": {"storageClassName": "unsaid"}})),
                "pvc with immediate volume binding mode must be bound",
            ),
            (
                Some(json!({"metadata": {}, "spec": {"storageClassName": "late"}})),
                "",
            ),
        ];
        for (claim, expected) in cases {
            let whole = objects(claim.clone());
            assert_eq!(problem(&whole), expected, "{claim:?}");
            assert_eq!(problem(&kept(whole)), expected, "as a store keeps {claim:?}");
        }
    }

    #[test]
    fn p_118_a_provider_may_rule_out_provisioners_and_topology_keys() {
        let late = Some(json!({"metadata": {}, "spec": {"storageClassName": "late"}}));
        let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
        let bound = Some(json!({"metadata": {"annotations": bound}, "spec": {"volumeName": "v"}}));
        let with = |claim: &Option<Value>, provisioner: &str, key: &str| {
            let mut objects = objects(claim.clone());
            objects.unsupported.provisioners.insert(provisioner.to_owned());
            objects.unsupported.topology_keys.insert(key.to_owned());
            problem(&objects)
        };
        assert_eq!(with(&late, "other.example", "row"), "");
        assert!(with(&late, "late.example", "row").contains("provisioner \"late.example\" is not supported"));
        assert!(with(&late, "other.example", "rack").contains("storageclass \"late\" use label \"rack\""));
        assert!(
            with(&bound, "disk.example", "row").contains("provisioner \"disk.example\" is not supported")
        );
        assert_eq!(with(&bound, "late.example", "rack"), "");
    }

    #[test]
    fn p_116_p_117_what_stores_keep_of_volumes_says_where_and_by_whom_they_are_attached() {
        let bound = json!({BIND_COMPLETED: "yes"});
        let claim = json!({"metadata": {"annotations": bound}, "spec": {"volumeName": "v"}});
        let places = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]},
            {"key": "rack", "operator": "In", "values": ["1"]},
        ]}]}});
        let sources = [
            ("csi", json!({"driver": "disk.example", "volumeHandle": "h"})),
            ("awsElasticBlockStore", json!({"volumeID": "v"})),
            ("local", json!({"path": "/x"})),
            ("hostPath", json!({"path": "/x"})),
        ];
        for (source, value) in sources {
            let spec = json!({source: value, "nodeAffinity": places});
            let mut whole = objects(Some(claim.clone()));
            let volume = object(json!({"metadata": {"name": "v"}, "spec": spec}));
            whole.volumes.insert("v".to_owned(), volume);
            let kept = kept(whole.clone());
            assert_eq!(terms(&pod(), &whole).len(), 1, "{source}");
            assert_eq!(terms(&pod(), &kept), terms(&pod(), &whole), "{source}");
            let attached = attachments(&pod(), &whole);
            assert_eq!(attachments(&pod(), &kept), attached, "{source}");
        }
    }
}
