//! Where a pod's volumes can be reached (P §6.10): validation, and the alternatives they leave for the node.
//!
//! Alternatives constrain the node, never the pod's own affinity, so that spread counting is unaffected.

mod around;
mod ready_made;
#[cfg(test)]
mod tests;

pub(crate) use around::{Around, is_exclusive};
pub(crate) use ready_made::AVAILABLE;

use crate::Pod;
use crate::labels;
use crate::pod;
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::snapshot::STAND_IN;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    EphemeralVolumeSource, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
    Volume,
};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The annotation of a claim whose binding to its volume is complete.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The phase of a claim whose volume does not exist any more.
pub(crate) const LOST: &str = "Lost";
/// Labels of a volume that say where it is: kube-scheduler compares them with those of a node, whatever the volume's node affinity says.
pub(crate) const ZONE_LABELS: [&str; 4] = [
    labels::ZONE,
    labels::REGION,
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

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

/// A claim that a pod uses.
struct Use<'p> {
    /// `namespace/name`.
    key: String,
    /// It is made with the pod, and goes with it.
    ephemeral: Option<&'p EphemeralVolumeSource>,
}

/// The claims that a pod uses: named ones, and ephemeral ones, which are called `<pod>-<volume>`.
fn uses(pod: &Pod) -> impl Iterator<Item = Use<'_>> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
    let pod_name = pod.metadata.name.as_deref().unwrap_or("");
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| {
        let (name, ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => (claim.claim_name.clone(), None),
            (None, Some(source)) => (format!("{pod_name}-{}", volume.name), Some(source)),
            (None, None) => return None,
        };
        Some(Use {
            key: format!("{namespace}/{name}"),
            ephemeral,
        })
    })
}

/// `namespace/name` of each PersistentVolumeClaim a pod uses.
pub fn claim_keys(pod: &Pod) -> Vec<String> {
    uses(pod).map(|used| used.key).collect()
}

/// The volume that a claim is bound to, or is to be bound to.
pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref();
    name.filter(|name| !name.is_empty())
}

/// The class that a claim asks for.
fn class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

fn created(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.creation_timestamp.as_ref().map(|time| time.0)
}

/// P-115: what keeps a pod from being scheduled until its volumes are put right.
pub(crate) fn validate(pod: &Pod, objects: &VolumeObjects, around: &Around) -> Result<(), String> {
    for key in claim_keys(pod) {
        validate_claim(&key, objects)
            .and_then(|()| around.check_use(&key, pod))
            .map_err(|problem| format!("persistentvolumeclaim {key:?}, {problem}"))?;
    }
    Ok(())
}

/// What keeps the successor of a pod that runs from being scheduled, whatever node there is: a claim that goes with the last pod that uses it, or that has
/// lost its volume. What else a pod that waits is asked is no question where the volumes are in use; and what is made with a pod is made anew with the next.
pub(crate) fn validate_successor(pod: &Pod, objects: &VolumeObjects) -> Result<(), String> {
    for used in uses(pod).filter(|used| used.ephemeral.is_none()) {
        if let Some(claim) = objects.claims.get(&used.key) {
            if claim.metadata.deletion_timestamp.is_some() && is_made_anew(&used.key, pod) {
                continue;
            }
            check_stays(claim, objects)
                .map_err(|problem| format!("persistentvolumeclaim {:?}, {problem}", used.key))?;
        }
    }
    Ok(())
}

/// Whether a claim comes of a template of the pod's StatefulSet, which makes it anew for the next pod once it is gone: who deletes the claim and then the pod
/// moves it to another volume.
fn is_made_anew(claim: &str, pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let name = pod.metadata.name.as_deref().unwrap_or("");
    let of_pod = claim.strip_suffix(name).is_some_and(|rest| rest.ends_with('-'));
    of_pod && owners.any(|owner| owner.kind == "StatefulSet" && owner.controller == Some(true))
}

/// Whether a claim, and the volume that it has, are there to stay.
fn check_stays(claim: &PersistentVolumeClaim, objects: &VolumeObjects) -> Result<(), String> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("is being deleted".to_owned());
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(LOST) {
        return Err("is lost: its volume does not exist any more".to_owned());
    }
    let volume = volume_name(claim).and_then(|name| Some((name, objects.volumes.get(name)?)));
    match volume {
        Some((name, volume)) if volume.metadata.deletion_timestamp.is_some() => {
            Err(format!("persistentvolume {name:?} is being deleted"))
        }
        _ => Ok(()),
    }
}

fn validate_claim(key: &str, objects: &VolumeObjects) -> Result<(), String> {
    let claim = objects.claims.get(key).ok_or("not found")?;
    check_stays(claim, objects)?;
    if let Some(volume) = volume_name(claim) {
        if !objects.volumes.contains_key(volume) {
            return Err(format!("persistentvolume {volume:?} not found"));
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
    let class = class_name(claim).filter(|name| !name.is_empty());
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
pub(crate) fn terms(pod: &Pod, objects: &VolumeObjects, around: &Around) -> Vec<Requirements> {
    let mut combined: Vec<Requirements> = Vec::new();
    for used in uses(pod) {
        let alternatives = claim_terms(&used, pod, objects, around);
        if alternatives.is_empty() {
            continue;
        }
        if combined.is_empty() {
            combined = distinct(alternatives);
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
        let joined = if compatible.is_empty() {
            pairs().map(join).collect()
        } else {
            compatible
        };
        combined = distinct(joined);
    }
    // An alternative without conditions makes the others moot.
    if combined.iter().any(Requirements::is_empty) {
        Vec::new()
    } else {
        combined
    }
}

/// Terms in their order, each once: what several claims have in common must not multiply.
fn distinct(mut terms: Vec<Requirements>) -> Vec<Requirements> {
    if terms.len() > 1 {
        let mut seen = BTreeSet::new();
        terms.retain(|term| seen.insert(term.clone()));
    }
    terms
}

fn claim_terms(used: &Use<'_>, pod: &Pod, objects: &VolumeObjects, around: &Around) -> Vec<Requirements> {
    let claim = objects.claims.get(&used.key);
    let class = claim.and_then(|claim| class_name(claim));
    if let Some(source) = used.ephemeral.filter(|_| is_on_a_node(pod)) {
        // It goes with the pod, whose successor gets another one wherever that can be made.
        let template = source.volume_claim_template.as_ref();
        let asked = template.and_then(|template| template.spec.storage_class_name.as_deref());
        return allowed_topologies(class.or(asked), objects);
    }
    let Some(claim) = claim else {
        return Vec::new();
    };
    if let Some(volume) = volume_name(claim) {
        let volume = objects.volumes.get(volume);
        let reached = |volume: &Arc<PersistentVolume>| reach(volume, |term| around.has_host_of(term));
        return volume.map(reached).unwrap_or_default();
    }
    let since = created(&claim.metadata).or_else(|| created(&pod.metadata));
    let allowed = allowed_topologies(class, objects);
    around.terms_of_unbound((&used.key, claim), since, allowed)
}

/// Whether a pod runs, rather than waits for a node that is to come.
fn is_on_a_node(pod: &Pod) -> bool {
    pod::node_name(pod).is_some_and(|name| !name.starts_with(STAND_IN))
}

/// Where a class has volumes made: one of these must hold; empty when anywhere.
fn allowed_topologies(class: Option<&str>, objects: &VolumeObjects) -> Vec<Requirements> {
    let class = class.and_then(|name| objects.storage_classes.get(name));
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

/// From where a volume can be reached: one of these must hold; empty when from anywhere. The host of one that is on a host counts where `counts_host` says so.
fn reach(volume: &PersistentVolume, counts_host: impl Fn(&Requirements) -> bool) -> Vec<Requirements> {
    let is_local = is_local(volume);
    let zones = labelled_zones(volume);
    let term = |term: &NodeSelectorTerm| {
        let mut requirements = Requirements::from_term(term).unwrap_or_default();
        if is_local && !counts_host(&requirements) {
            requirements.remove(labels::HOSTNAME);
        }
        requirements.add_all(&zones);
        requirements
    };
    let terms: Vec<Requirements> = node_terms(volume).iter().map(term).collect();
    if terms.is_empty() && !zones.is_empty() {
        return vec![zones];
    }
    terms
}

/// The terms of a volume's node affinity.
fn node_terms(volume: &PersistentVolume) -> &[NodeSelectorTerm] {
    let spec = volume.spec.as_ref();
    let required = spec
        .and_then(|spec| spec.node_affinity.as_ref())
        .and_then(|affinity| affinity.required.as_ref());
    required
        .map(|required| required.node_selector_terms.as_slice())
        .unwrap_or_default()
}

/// Whether a volume is on one host.
fn is_local(volume: &PersistentVolume) -> bool {
    let spec = volume.spec.as_ref();
    spec.is_some_and(|spec| spec.local.is_some() || spec.host_path.is_some())
}

/// The hosts that a volume's node affinity names.
fn named_hosts(volume: &PersistentVolume) -> impl Iterator<Item = &String> {
    let terms = node_terms(volume).iter();
    let expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
    let of_host = expressions.filter(|one| one.key == labels::HOSTNAME && one.operator == "In");
    of_host.flat_map(|one| one.values.iter().flatten())
}

/// What labels of a volume say of where it is; several values of one are separated by `__`.
fn labelled_zones(volume: &PersistentVolume) -> Requirements {
    let own = volume.metadata.labels.iter().flatten();
    let zones = own.filter(|(key, _)| ZONE_LABELS.contains(&key.as_str()));
    zones
        .filter_map(|(key, value)| {
            let values = value.split("__").filter(|one| !one.is_empty());
            let values: BTreeSet<&str> = values.collect();
            (!values.is_empty()).then(|| Requirement::one_of(key, values))
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
    let claim = objects.claims.get(key)?;
    if let Some(volume) = volume_name(claim) {
        let volume = objects.volumes.get(volume)?.spec.as_ref()?;
        return attacher(volume).map(ToOwned::to_owned);
    }
    let class = objects.storage_classes.get(class_name(claim)?)?;
    Some(csi_name(&class.provisioner).to_owned())
}

/// The CSI driver that attaches a volume, also where it has taken over from what was built in.
fn attacher(volume: &PersistentVolumeSpec) -> Option<&str> {
    if let Some(csi) = &volume.csi {
        return Some(&csi.driver);
    }
    let built_in = [
        (volume.aws_elastic_block_store.is_some(), "kubernetes.io/aws-ebs"),
        (volume.azure_disk.is_some(), "kubernetes.io/azure-disk"),
        (volume.azure_file.is_some(), "kubernetes.io/azure-file"),
        (volume.cinder.is_some(), "kubernetes.io/cinder"),
        (volume.gce_persistent_disk.is_some(), "kubernetes.io/gce-pd"),
        (volume.portworx_volume.is_some(), "kubernetes.io/portworx-volume"),
        (volume.vsphere_volume.is_some(), "kubernetes.io/vsphere-volume"),
    ];
    let of_this = built_in.into_iter().find(|(is_this, _)| *is_this);
    of_this.map(|(_, provisioner)| csi_name(provisioner))
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
