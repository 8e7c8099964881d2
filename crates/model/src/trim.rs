//! What can be left out of the objects that there are most of, because no decision reads it: memory is mostly pods. And of those that others write
//! most often, because a store takes what differs in nothing else for no change.
//!
//! Only what is never read and never written back. Writes are patches of what has changed, so that what is left out stays as it is.
//! Lists are cut to their length: a list that is read from JSON has room for four elements and nearly always holds one, and a container or a
//! volume takes a kilobyte whether it is there or not.

use crate::Pod;
use crate::pod::{DO_NOT_DISRUPT, POD_DELETION_COST, containers_mut};
use crate::snapshot::Snapshot;
use crate::volumes::{AVAILABLE, BIND_COMPLETED, LOST, ZONE_LABELS, is_claim, is_exclusive, volume_name};
use crate::workload_annotations::read_annotations;
use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, ReplicaSetSpec, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, AzureFilePersistentVolumeSource, CSIPersistentVolumeSource,
    CinderPersistentVolumeSource, Container, ContainerState, ContainerStateTerminated, ContainerStatus,
    GCEPersistentDiskVolumeSource, Namespace, Node, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, PersistentVolumeSpec, PersistentVolumeStatus,
    PodSpec, PortworxVolumeSource, ReplicationController, ReplicationControllerSpec, ResourceRequirements,
    Service, ServiceSpec, Volume, VolumeResourceRequirements, VsphereVirtualDiskVolumeSource,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::conditions::NODE_PLANNED;
use spokeshave_api::labels::{MOVE_WINDOWS, MOVES_PER_DAY, QUIET_TIME};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotations of pods that somebody reads; others can be whole documents.
pub const READ_ANNOTATIONS: [&str; 5] = [
    DO_NOT_DISRUPT,
    POD_DELETION_COST,
    QUIET_TIME,
    MOVES_PER_DAY,
    MOVE_WINDOWS,
];

/// Conditions of pods that somebody reads: whether it has a place, and whether it serves; of one that waits also whether the plan has named its node.
const READ_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "PodResizePending"];

/// Requests, ports of the host, volumes that bind to a place, and what is known of its own place and readiness stay.
pub fn pod(pod: &mut Pod) {
    if pod.spec.is_some() {
        let containers = containers_mut(pod.spec_mut());
        for resources in containers.filter_map(|container| container.resources.as_mut()) {
            resources.limits = None;
        }
    }
    pod_with_limits(pod);
}

/// As [`pod`], for those who tell what containers may use at most; a map of two takes as much memory as one of eleven.
pub fn pod_with_limits(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|name, _| READ_ANNOTATIONS.contains(&name.as_str()));
        if annotations.is_empty() {
            pod.metadata.annotations = None;
        }
    }
    shrink(&mut pod.metadata.owner_references);
    if pod.spec.is_none() {
        return;
    }
    specification(pod.spec_mut());
    let (Some(spec), Some(status)) = (&pod.spec, &mut pod.status) else {
        pod.share();
        return;
    };
    if let Some(conditions) = &mut status.conditions {
        let waits = pod.node_name.is_none();
        conditions.retain(|condition| {
            let name = condition.type_.as_str();
            READ_CONDITIONS.contains(&name) || (waits && name == NODE_PLANNED)
        });
        for condition in conditions.iter_mut() {
            condition.last_probe_time = None;
        }
        conditions.shrink_to_fit();
    }
    status.host_ip = None;
    status.host_ips = None;
    status.pod_ip = None;
    status.pod_ips = None;
    statuses(&mut status.container_statuses, &spec.containers);
    let init = spec.init_containers.as_deref().unwrap_or_default();
    statuses(&mut status.init_container_statuses, init);
    pod.share();
}

/// What a pod says of itself alone, its name in a StatefulSet, goes too: pods of one template share the rest.
fn specification(spec: &mut PodSpec) {
    containers_mut(spec).for_each(container);
    spec.hostname = None;
    spec.subdomain = None;
    spec.ephemeral_containers = None;
    spec.security_context = None;
    spec.dns_config = None;
    spec.host_aliases = None;
    spec.image_pull_secrets = None;
    spec.dns_policy = None;
    spec.service_account = None;
    spec.service_account_name = None;
    spec.containers.shrink_to_fit();
    shrink(&mut spec.init_containers);
    volumes(&mut spec.volumes);
    shrink(&mut spec.tolerations);
    shrink(&mut spec.topology_spread_constraints);
}

/// What nobody reads any more once the pods of a Snapshot were lowered: their containers and volumes, more than half of a pod. For programs that
/// decide once; who takes changed pods in compares them with these.
pub fn lowered(snapshot: &mut Snapshot) {
    let pods = snapshot.pods.iter_mut();
    // What pods share is there once: only who shares nothing is worth it.
    let alone = |spec: &&mut Arc<PodSpec>| Arc::strong_count(spec) == 1;
    for spec in pods
        .filter_map(|view| Arc::get_mut(&mut view.object)?.spec.as_mut())
        .filter(alone)
    {
        let spec = Arc::make_mut(spec);
        spec.containers = Vec::new();
        spec.init_containers = None;
        spec.volumes = None;
    }
}

fn shrink<T>(list: &mut Option<Vec<T>>) {
    if let Some(list) = list {
        list.shrink_to_fit();
    }
}

/// Configuration, secrets and tokens, of which every pod has at least one, are there on any node; claims are not.
fn volumes(list: &mut Option<Vec<Volume>>) {
    keep(list, |volume| is_claim(volume));
}

/// Keeps of a list what is wanted, and no room for more; an empty list is none.
fn keep<T>(list: &mut Option<Vec<T>>, wanted: impl FnMut(&mut T) -> bool) {
    if let Some(all) = list {
        all.retain_mut(wanted);
        all.shrink_to_fit();
    }
    if list.as_ref().is_some_and(Vec::is_empty) {
        *list = None;
    }
}

/// Of containers' statuses only that they have ended, when they ended last, how often they were restarted, and what was allocated, is read; and what was
/// allocated only where it differs from what was asked for (in-place resize): kubelets say it of every container.
fn statuses(list: &mut Option<Vec<ContainerStatus>>, containers: &[Container]) {
    keep(list, |status| {
        let named = containers.iter().find(|container| container.name == status.name);
        let asked = named.and_then(|container| container.resources.as_ref()?.requests.as_ref());
        let differs = |other: &BTreeMap<String, Quantity>| !other.is_empty() && Some(other) != asked;
        let allocated = status.allocated_resources.take().filter(differs);
        let actual = status.resources.take().and_then(|resources| resources.requests);
        let actual = actual.filter(differs).map(|requests| ResourceRequirements {
            requests: Some(requests),
            ..ResourceRequirements::default()
        });
        let ended = status.state.take().filter(|state| state.terminated.is_some());
        // Of the time before it was restarted only its end is read (health of roll-outs).
        let last = status.last_state.take();
        let last_end = last.and_then(|state| state.terminated?.finished_at);
        let last = last_end.map(|finished_at| ContainerState {
            terminated: Some(ContainerStateTerminated {
                finished_at: Some(finished_at),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        });
        let wanted = allocated.is_some() || actual.is_some() || ended.is_some() || status.restart_count > 0;
        *status = ContainerStatus {
            name: std::mem::take(&mut status.name),
            allocated_resources: allocated,
            resources: actual,
            state: ended,
            last_state: last,
            restart_count: status.restart_count,
            ..ContainerStatus::default()
        };
        wanted
    });
}

fn container(container: &mut Container) {
    container.image = None;
    container.image_pull_policy = None;
    container.termination_message_path = None;
    container.termination_message_policy = None;
    container.args = None;
    container.command = None;
    container.env = None;
    container.env_from = None;
    container.lifecycle = None;
    container.liveness_probe = None;
    container.readiness_probe = None;
    container.security_context = None;
    container.startup_probe = None;
    container.volume_mounts = None;
    // Others bind nothing of the node.
    keep(&mut container.ports, |port| {
        port.host_port.is_some_and(|number| number != 0)
    });
}

/// A kubelet lists every image that it has, and says every few minutes that nothing has changed: when a condition changed its status is read (for
/// repair), when it was last reported is not.
pub fn node(node: &mut Node) {
    node.metadata.managed_fields = None;
    if let Some(status) = &mut node.status {
        status.images = None;
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
    }
}

/// How many pods of a DaemonSet run changes with every node, and is read of the pods themselves.
pub fn daemon_set(set: &mut DaemonSet) {
    set.metadata.managed_fields = None;
    set.status = None;
}

/// What identifies an object, and what stores compare.
#[must_use]
pub fn identity(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        ..ObjectMeta::default()
    }
}

/// Rules between pods choose namespaces by their labels, and policies read a few annotations. Others write annotations to Namespaces all the time.
pub fn namespace(namespace: &mut Namespace) {
    let mut meta = std::mem::take(&mut namespace.metadata);
    *namespace = Namespace {
        metadata: ObjectMeta {
            annotations: read_annotations(&meta),
            labels: meta.labels.take(),
            ..identity(meta)
        },
        ..Namespace::default()
    };
}

/// What [`crate::volumes`] and the end of a Node read: the claim's volume or class, whether it is bound, whether one pod alone may use it, and that it is
/// lost or goes; of one without a volume also what it asks for, and since when. Binding alone writes a claim half a dozen times.
pub fn persistent_volume_claim(claim: &mut PersistentVolumeClaim) {
    let is_unbound = volume_name(claim).is_none();
    let mut meta = std::mem::take(&mut claim.metadata);
    let bound = meta.annotations.take();
    let bound = bound.and_then(|mut all| all.remove_entry(BIND_COMPLETED));
    let phase = claim.status.take().and_then(|status| status.phase);
    *claim = PersistentVolumeClaim {
        metadata: ObjectMeta {
            annotations: bound.map(|entry| BTreeMap::from([entry])),
            creation_timestamp: meta.creation_timestamp.take().filter(|_| is_unbound),
            deletion_timestamp: meta.deletion_timestamp.take(),
            ..identity(meta)
        },
        spec: claim.spec.take().map(|spec| claim_spec(spec, is_unbound)),
        status: phase
            .filter(|phase| phase == LOST)
            .map(|phase| PersistentVolumeClaimStatus {
                phase: Some(phase),
                ..PersistentVolumeClaimStatus::default()
            }),
    };
}

fn claim_spec(spec: PersistentVolumeClaimSpec, is_unbound: bool) -> PersistentVolumeClaimSpec {
    let has_modes = is_unbound || is_exclusive(&spec);
    let kept = PersistentVolumeClaimSpec {
        access_modes: spec.access_modes.filter(|_| has_modes),
        storage_class_name: spec.storage_class_name,
        volume_name: spec.volume_name,
        ..PersistentVolumeClaimSpec::default()
    };
    if !is_unbound {
        return kept;
    }
    let requests = spec.resources.and_then(|resources| resources.requests);
    PersistentVolumeClaimSpec {
        resources: requests.map(|requests| VolumeResourceRequirements {
            requests: Some(requests),
            limits: None,
        }),
        selector: spec.selector,
        volume_mode: spec.volume_mode,
        ..kept
    }
}

/// What [`crate::volumes`] reads: from where a volume can be reached, whose driver attaches it, its class, and that it goes; of one that is free also which
/// claims it can serve.
pub fn persistent_volume(volume: &mut PersistentVolume) {
    let mut meta = std::mem::take(&mut volume.metadata);
    let phase = volume.status.take().and_then(|status| status.phase);
    let phase = phase.filter(|phase| phase == AVAILABLE);
    let mut labels = meta.labels.take().unwrap_or_default();
    if phase.is_none() {
        labels.retain(|key, _| ZONE_LABELS.contains(&key.as_str()));
    }
    let is_free = phase.is_some();
    *volume = PersistentVolume {
        metadata: ObjectMeta {
            deletion_timestamp: meta.deletion_timestamp.take(),
            labels: (!labels.is_empty()).then_some(labels),
            ..identity(meta)
        },
        spec: volume.spec.take().map(|spec| volume_spec(spec, is_free)),
        status: phase.map(|phase| PersistentVolumeStatus {
            phase: Some(phase),
            ..PersistentVolumeStatus::default()
        }),
    };
}

fn volume_spec(spec: PersistentVolumeSpec, is_free: bool) -> PersistentVolumeSpec {
    let kept = PersistentVolumeSpec {
        aws_elastic_block_store: spec.aws_elastic_block_store,
        // Of these only that they are such is read.
        azure_disk: spec.azure_disk.map(|_| AzureDiskVolumeSource::default()),
        azure_file: spec
            .azure_file
            .map(|_| AzureFilePersistentVolumeSource::default()),
        cinder: spec.cinder.map(|_| CinderPersistentVolumeSource::default()),
        csi: spec.csi.map(|csi| CSIPersistentVolumeSource {
            driver: csi.driver,
            ..CSIPersistentVolumeSource::default()
        }),
        gce_persistent_disk: spec
            .gce_persistent_disk
            .map(|_| GCEPersistentDiskVolumeSource::default()),
        host_path: spec.host_path,
        local: spec.local,
        node_affinity: spec.node_affinity,
        portworx_volume: spec.portworx_volume.map(|_| PortworxVolumeSource::default()),
        storage_class_name: spec.storage_class_name,
        vsphere_volume: spec
            .vsphere_volume
            .map(|_| VsphereVirtualDiskVolumeSource::default()),
        ..PersistentVolumeSpec::default()
    };
    if !is_free {
        return kept;
    }
    PersistentVolumeSpec {
        access_modes: spec.access_modes,
        capacity: spec.capacity,
        claim_ref: spec.claim_ref,
        volume_mode: spec.volume_mode,
        ..kept
    }
}

/// Default topology spread reads only whom it selects.
pub fn service(service: &mut Service) {
    let whole = std::mem::take(service);
    *service = Service {
        metadata: identity(whole.metadata),
        spec: whole.spec.map(|spec| ServiceSpec {
            selector: spec.selector,
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
}

/// Default topology spread reads only whom it selects: the rest changes with every pod that comes or goes.
pub fn replica_set(set: &mut ReplicaSet) {
    let whole = std::mem::take(set);
    *set = ReplicaSet {
        metadata: identity(whole.metadata),
        spec: ReplicaSetSpec {
            selector: whole.spec.selector,
            ..ReplicaSetSpec::default()
        },
        ..ReplicaSet::default()
    };
}

/// As [`replica_set`].
pub fn stateful_set(set: &mut StatefulSet) {
    let whole = std::mem::take(set);
    *set = StatefulSet {
        metadata: identity(whole.metadata),
        spec: StatefulSetSpec {
            selector: whole.spec.selector,
            ..StatefulSetSpec::default()
        },
        ..StatefulSet::default()
    };
}

/// As [`replica_set`].
pub fn replication_controller(controller: &mut ReplicationController) {
    let whole = std::mem::take(controller);
    *controller = ReplicationController {
        metadata: identity(whole.metadata),
        spec: whole.spec.map(|spec| ReplicationControllerSpec {
            selector: spec.selector,
            ..ReplicationControllerSpec::default()
        }),
        ..ReplicationController::default()
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::requests;
    use serde_json::json;

    #[test]
    fn what_decisions_read_stays() {
        let value = json!({
            "metadata": {"name": "p", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "karpenter.sh/do-not-disrupt": "true"}, "managedFields": [{}]},
            "spec": {
                "tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"},
                "volumes": [{"name": "t", "projected": {"sources": []}}, {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {}}],
                "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}], "args": ["x"], "ports": [{"containerPort": 1, "hostPort": 2}, {"containerPort": 3}],
                    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "readinessProbe": {"httpGet": {"path": "/", "port": 80}}},
                    {"name": "d", "resources": {"requests": {"cpu": "1"}}}, {"name": "e", "resources": {"requests": {"cpu": "1"}}}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}], "containerStatuses": [
                {"name": "c", "image": "i", "imageID": "s", "ready": true, "restartCount": 7, "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "1"}},
                    "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}},
                {"name": "d", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}, "allocatedResources": {"cpu": "1"}},
                {"name": "e", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}},
            ]},
        });
        let whole: Pod = serde_json::from_value(value).unwrap();
        let mut trimmed = whole.clone();
        pod(&mut trimmed);
        assert_eq!(
            trimmed.spec.as_ref().map(|spec| spec.containers.capacity()),
            Some(3)
        );
        assert_eq!(requests(&trimmed), requests(&whole));
        let mut expected = whole.status.clone().unwrap();
        // What differs from what was asked for.
        let statuses = json!([
            {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 7, "allocatedResources": {"cpu": "2"},
                "lastState": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:00Z"}}},
            {"name": "e", "image": "", "imageID": "", "ready": false, "restartCount": 0, "resources": {"requests": {"cpu": "4"}}},
        ]);
        expected.container_statuses = serde_json::from_value(statuses).unwrap();
        expected.conditions.as_mut().unwrap().remove(0);
        (expected.pod_ip, expected.pod_ips) = (None, None);
        assert_eq!(trimmed.status, Some(expected), "what was allocated");
        assert!(
            trimmed.metadata.managed_fields.is_none()
                && trimmed
                    .metadata
                    .annotations
                    .as_ref()
                    .is_some_and(|all| all.len() == 1)
        );
        let (left, mut all) = (
            trimmed.spec.unwrap(),
            PodSpec::clone(whole.spec.as_ref().unwrap()),
        );
        all.volumes.as_mut().unwrap().remove(0);
        assert_eq!(
            (&left.tolerations, &left.volumes, &left.node_selector),
            (&all.tolerations, &all.volumes, &all.node_selector)
        );
        all.containers[0].ports.as_mut().unwrap().pop();
        assert_eq!(left.containers[0].ports, all.containers[0].ports);
        let limits = |pod: &Pod| {
            pod.spec.as_ref()?.containers[0]
                .resources
                .as_ref()?
                .limits
                .clone()
        };
        let mut with_limits = whole.clone();
        pod_with_limits(&mut with_limits);
        assert_eq!(limits(&with_limits), limits(&whole));
        assert!(
            left.containers[0]
                .resources
                .as_ref()
                .is_some_and(|all| all.limits.is_none())
        );
        assert_eq!(left.containers[0].image, None);
        assert!(left.containers[0].env.is_none() && left.containers[0].readiness_probe.is_none());
    }
}
