//! What hand-written manifests would need: the pods of workloads that a file holds without their pods, and Pods that no cluster has seen.
//!
//! It replaces kube-controller-manager and kube-scheduler before an apply, with a note for each thing that it assumes. A workload whose
//! pods are in the file, or that a cluster with pods has reported on, is unchanged; nothing here is used for a live cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodCondition, PodStatus, PodTemplateSpec,
    Volume,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use spokeshave_model::pod::{default_requests, key};
use spokeshave_model::{Ordinals, Pod};
use spokeshave_plan::report::some_of;

use super::autoscalers::{Autoscaler, by_target};
use super::dump::Dump;
use crate::text::count;

/// Pods of one workload that are planned at most; more change the answer in nothing but its length.
const MOST_PODS: usize = 20_000;

const DEFAULT_NAMESPACE: &str = "default";

/// The namespace that an object of a file goes to.
pub(super) fn or_default(namespace: &str) -> &str {
    match namespace {
        "" => DEFAULT_NAMESPACE,
        namespace => namespace,
    }
}

/// `Deployment/shop/web`.
pub(super) fn workload_key(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{}/{name}", or_default(namespace))
}

/// What a workload says about its pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkloadManifest {
    /// `Deployment`, `StatefulSet`, `ReplicaSet`, `ReplicationController`, `Job` or `CronJob`.
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Another object created it, which is used instead.
    pub(crate) has_owner: bool,
    /// A controller has reported on it: it is from a cluster.
    pub(crate) has_status: bool,
    /// How many pods run at the same time.
    pub(crate) pods: i64,
    /// The ordinal of the first member of a StatefulSet, where it says so.
    pub(crate) start: Option<i32>,
    pub(crate) template: PodTemplateSpec,
    /// What it asks for its pods by annotation.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The volumes that each pod of a StatefulSet gets.
    pub(crate) claims: Vec<PersistentVolumeClaim>,
}

impl Dump {
    /// Whether a policy honors annotations of workloads.
    pub(crate) fn hears_workloads(&self) -> bool {
        let mut policies = self.disruption_policies.iter();
        policies.any(|policy| policy.spec.workloads.is_some())
    }

    /// What owners of pods ask for, by `Deployment/shop/web`.
    pub(crate) fn owner_annotations(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let asking = self.workloads.iter().filter(|one| !one.annotations.is_empty());
        asking.map(|one| (one.key(), one.annotations.clone())).collect()
    }

    /// Which members StatefulSets of a cluster want, by `StatefulSet/shop/db`. What no controller has reported on may never have been applied.
    pub(crate) fn stateful_sets(&self) -> BTreeMap<String, Ordinals> {
        let sets = self.workloads.iter();
        let sets = sets.filter(|one| one.kind == "StatefulSet" && one.has_status);
        let ordinals = |one: &WorkloadManifest| Ordinals {
            start: one.start.and_then(|start| u64::try_from(start).ok()).unwrap_or(0),
            replicas: u64::try_from(one.pods).unwrap_or(0),
        };
        sets.map(|one| (one.key(), ordinals(one))).collect()
    }
}

impl WorkloadManifest {
    /// For a sentence.
    pub(super) fn shown(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace(), self.name)
    }

    /// As `workload_key` has it.
    pub(super) fn key(&self) -> String {
        workload_key(self.kind, &self.namespace, &self.name)
    }

    fn namespace(&self) -> &str {
        or_default(&self.namespace)
    }

    /// The pod is one that this workload made, directly or through a ReplicaSet or Job.
    fn owns(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let made_by = |owner: &OwnerReference| {
            let through = match self.kind {
                "Deployment" => Some("ReplicaSet"),
                "CronJob" => Some("Job"),
                _ => None,
            };
            let direct = owner.kind == self.kind && owner.name == self.name;
            // A Deployment's ReplicaSets and a CronJob's Jobs have its name and one more part.
            let rest = owner.name.strip_prefix(&self.name);
            let rest = rest.and_then(|rest| rest.strip_prefix('-'));
            let indirect =
                Some(owner.kind.as_str()) == through && rest.is_some_and(|rest| !rest.contains('-'));
            direct || indirect
        };
        namespace == self.namespace() && pod.metadata.owner_references.iter().flatten().any(made_by)
    }

    fn pod(&self, number: usize) -> Pod {
        let meta = self.template.metadata.as_ref();
        let name = format!("{}-{number}", self.name);
        let mut spec = self.template.spec.clone().unwrap_or_default();
        default_requests(&mut spec);
        let mut pod = Pod {
            metadata: ObjectMeta {
                uid: Some(format!("{}/{name}", self.shown())),
                namespace: Some(self.namespace().to_owned()),
                name: Some(name),
                labels: meta.and_then(|meta| meta.labels.clone()),
                annotations: meta.and_then(|meta| meta.annotations.clone()),
                owner_references: Some(vec![OwnerReference {
                    kind: if self.kind == "CronJob" { "Job" } else { self.kind }.to_owned(),
                    name: self.name.clone(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: Some(Arc::new(spec)),
            ..Pod::default()
        };
        wait_for_a_node(&mut pod);
        pod
    }
}

/// Adds to a dump the pods that its manifests would make, and makes Pods without status wait for a node. Returns what was assumed.
pub(crate) fn expand(dump: &mut Dump) -> Vec<String> {
    let mut notes: Vec<String> = by_hand(&mut dump.pods).into_iter().collect();
    let workloads = std::mem::take(&mut dump.workloads);
    let has_reported_pods = dump.pods.iter().any(|pod| !is_by_hand(pod));
    let classes: BTreeMap<String, Arc<StorageClass>> = dump
        .storage_classes
        .iter()
        .filter_map(|class| Some((class.metadata.name.clone()?, Arc::clone(class))))
        .collect();
    let autoscalers = by_target(&dump.autoscalers);
    for workload in &workloads {
        let is_known = workload.has_owner || (workload.has_status && has_reported_pods);
        let has_template = workload.template.spec.is_some();
        if is_known || !has_template || dump.pods.iter().any(|pod| workload.owns(pod)) {
            continue;
        }
        let (asked, asks) = size(workload, &autoscalers);
        let wanted = usize::try_from(asked).unwrap_or(0);
        let made = wanted.min(MOST_PODS);
        let (claims, left_out) = usable_claims(workload, &classes);
        for number in 0..made {
            let mut pod = workload.pod(number);
            for claim in &claims {
                dump.persistent_volume_claims
                    .push(Arc::new(mount(&mut pod, claim)));
            }
            dump.pods.push(Arc::new(pod));
        }
        notes.push(note(&asks, wanted, made));
        notes.extend(left_out);
    }
    notes
}

/// How many pods a workload has, and who asks for that many.
fn size(workload: &WorkloadManifest, autoscalers: &BTreeMap<String, &Autoscaler>) -> (i64, String) {
    let autoscaler = autoscalers.get(&workload.key());
    let bounded = autoscaler.map(|one| (one.bounded(workload.pods), one));
    match bounded.filter(|(pods, _)| *pods != workload.pods) {
        Some((pods, one)) => (pods, format!("{} for {}", one.shown(), workload.shown())),
        None => (workload.pods, workload.shown()),
    }
}

fn note(asks: &str, wanted: usize, made: usize) -> String {
    match (wanted, made) {
        (0, _) => format!("{asks} asks for no pods"),
        (wanted, made) if made < wanted => format!(
            "{asks} asks for {wanted} pods, and none of them is in the file: {made} are taken as pending"
        ),
        (1, _) => format!("{asks} asks for 1 pod, which is not in the file: taken as pending"),
        (wanted, _) => {
            format!("{asks} asks for {wanted} pods, and none of them is in the file: taken as pending")
        }
    }
}

/// Claims whose StorageClass waits for a pod; the others do not restrict where the pod can run, and are noted.
fn usable_claims(
    workload: &WorkloadManifest,
    classes: &BTreeMap<String, Arc<StorageClass>>,
) -> (Vec<PersistentVolumeClaim>, Option<String>) {
    let waits = |claim: &&PersistentVolumeClaim| {
        let class = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.storage_class_name.as_ref());
        let class = class.and_then(|class| classes.get(class));
        class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
    };
    let (usable, others): (Vec<&PersistentVolumeClaim>, Vec<_>) = workload.claims.iter().partition(waits);
    let names: Vec<&str> = others
        .iter()
        .filter_map(|claim| claim.metadata.name.as_deref())
        .collect();
    let note = (!others.is_empty()).then(|| {
        format!(
            "the volumes of {} ({}) are taken to be possible in every zone: their StorageClass is not in the file, or does not wait for pods",
            workload.shown(),
            some_of(&names, 3)
        )
    });
    (usable.into_iter().cloned().collect(), note)
}

/// Gives a pod its own claim from a template, as the StatefulSet controller does.
fn mount(pod: &mut Pod, template: &PersistentVolumeClaim) -> PersistentVolumeClaim {
    let volume = template.metadata.name.clone().unwrap_or_default();
    let claim = format!("{volume}-{}", pod.metadata.name.as_deref().unwrap_or_default());
    let spec = pod.spec_mut();
    let volumes = spec.volumes.get_or_insert_default();
    volumes.retain(|known| known.name != volume);
    volumes.push(Volume {
        name: volume,
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.clone(),
            ..PersistentVolumeClaimVolumeSource::default()
        }),
        ..Volume::default()
    });
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim),
            namespace: pod.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        ..template.clone()
    }
}

/// No cluster has seen it: it has neither a status nor a node.
fn is_by_hand(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let said = status.is_some_and(|status| status.phase.is_some() || status.conditions.is_some());
    let bound = pod.node_name.is_some();
    !said && !bound && pod.metadata.deletion_timestamp.is_none()
}

fn by_hand(pods: &mut [Arc<Pod>]) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for (number, pod) in pods.iter_mut().enumerate().filter(|(_, pod)| is_by_hand(pod)) {
        let mut waiting = Pod::clone(pod);
        let meta = &mut waiting.metadata;
        if meta.namespace.as_deref().unwrap_or_default().is_empty() {
            meta.namespace = Some(DEFAULT_NAMESPACE.to_owned());
        }
        if meta.name.is_none() {
            let stem = meta.generate_name.as_deref().unwrap_or("pod-");
            meta.name = Some(format!("{stem}{number}"));
        }
        if meta.uid.is_none() {
            meta.uid = Some(format!("pod-{number}"));
        }
        wait_for_a_node(&mut waiting);
        names.push(key(&waiting));
        *pod = Arc::new(waiting);
    }
    let verb = if names.len() == 1 { "has" } else { "have" };
    (!names.is_empty()).then(|| {
        format!(
            "{} {verb} no status ({}): taken as pending",
            count(names.len(), "Pod"),
            some_of(&names, 3)
        )
    })
}

/// The condition that kube-scheduler sets on a pod that fits nowhere; it ignores one with scheduling gates.
fn wait_for_a_node(pod: &mut Pod) {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    let reason = match gates.is_some_and(|gates| !gates.is_empty()) {
        true => "SchedulingGated",
        false => "Unschedulable",
    };
    pod.status = Some(PodStatus {
        phase: Some("Pending".to_owned()),
        conditions: Some(vec![PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some(reason.to_owned()),
            ..PodCondition::default()
        }]),
        ..PodStatus::default()
    });
}
