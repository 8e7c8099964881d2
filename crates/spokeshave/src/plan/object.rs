//! From the text of one object, as JSON, to one typed object.
//!
//! The kind decides the type, and is nearly always near the front: reading stops there, and restarts with the right type. It knows which kinds
//! decisions read, and nothing about files. Every type is read from one kind of source, text, because each further one is another
//! copy of the decoders of all Kubernetes types in the program.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSetOrdinals};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, PodTemplate, PodTemplateSpec, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{CapacityBuffer, DisruptionPolicy, EC2NodeClass, NodeClaim, NodeOverlay, NodePool};
use spokeshave_model::default_spread::controller_key;
use spokeshave_model::pod::default_requests;
use spokeshave_model::{Pod, read_annotations, trim};
use spokeshave_plan::buffers::{Workload, WorkloadKind};

use super::autoscalers::{self, Autoscaler};
use super::workloads::{WorkloadManifest, or_default};
use super::world::is_outdated;

/// The outside of a JSON document: whether it is a list, and the text of its items.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub(super) api_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

/// What decisions need of a NodeClass of any provider.
#[derive(Clone, Debug)]
pub(crate) struct NodeClass {
    /// API group.
    pub(crate) group: String,
    /// Kind.
    pub(crate) kind: String,
    /// Name.
    pub(crate) name: String,
    /// Its condition Ready, if it has one.
    pub(crate) ready: Option<bool>,
    /// The whole class, where instance types depend on it.
    pub(crate) ec2: Option<Arc<EC2NodeClass>>,
}

/// One object.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and nearly always a pod"
)]
#[derive(Clone, Debug)]
pub(super) enum Found {
    Node(Arc<Node>),
    Pod(Pod),
    NodePool(Arc<NodePool>),
    NodeClaim(Arc<NodeClaim>),
    NodeClass(NodeClass),
    DaemonSet(Arc<DaemonSet>),
    PodDisruptionBudget(Arc<PodDisruptionBudget>),
    Namespace(Arc<Namespace>),
    PersistentVolume(Arc<PersistentVolume>),
    PersistentVolumeClaim(Arc<PersistentVolumeClaim>),
    StorageClass(Arc<StorageClass>),
    CsiNode(Arc<CSINode>),
    DisruptionPolicy(Arc<DisruptionPolicy>),
    Disruption(Arc<Disruption>),
    NodeOverlay(Arc<NodeOverlay>),
    Service(Arc<Service>),
    CapacityBuffer(Arc<CapacityBuffer>),
    PodTemplate(Arc<PodTemplate>),
    /// What a controller of pods selects, by its key, and the pods that it would make.
    Controller(String, LabelSelector, WorkloadManifest),
    /// A workload that buffers may name.
    Workload(Controlled),
    /// Another one that runs pods.
    Runs(WorkloadManifest),
    /// What bounds the size of one.
    Autoscaler(Autoscaler),
    /// A kind that owns pods: known, but not read.
    Owner,
    /// A kind of Karpenter's in a version that is no longer read, with the object's name.
    Outdated((String, String), String),
    /// Another kind, with its version.
    Unknown((String, String)),
    /// A list that could not be taken apart as text.
    List {
        default: Option<(String, String)>,
        items: Vec<Box<RawValue>>,
    },
}

/// What decisions read of a workload.
#[derive(Clone, Debug)]
pub(super) struct Controlled {
    pub(super) kind: WorkloadKind,
    /// `namespace/name`.
    pub(super) name: String,
    /// What its pods look like, and how many there are.
    pub(super) workload: Workload,
    /// What it selects, by its key, where it owns pods itself.
    pub(super) selects: Option<(String, LabelSelector)>,
    /// The pods that it would make.
    pub(super) manifest: WorkloadManifest,
}

impl Found {
    /// Version and kind of an object that is also needed as it was written.
    pub(super) fn kept_as_written(&self) -> Option<(Cow<'static, str>, Cow<'static, str>)> {
        match self {
            Found::NodePool(_) => Some(("karpenter.sh/v1".into(), "NodePool".into())),
            Found::DisruptionPolicy(_) => Some((LEDGER.into(), "DisruptionPolicy".into())),
            Found::Disruption(_) => Some((LEDGER.into(), "Disruption".into())),
            Found::Unknown((kind, version)) | Found::Outdated((kind, version), _)
                if AS_WRITTEN.contains(&kind.as_str()) =>
            {
                Some((version.clone().into(), kind.clone().into()))
            }
            _ => None,
        }
    }
}

/// The version of EC2NodeClasses that is read.
const EC2_VERSION: &str = "karpenter.k8s.aws/v1";

/// The version of DisruptionPolicies, and of the ledger that they look back on.
const LEDGER: &str = "spokeshave.dev/v1alpha1";

/// Kinds that no decision reads but that are reported: older names and versions of NodePools, and kinds that only `explain` reads.
pub(super) const AS_WRITTEN: [&str; 5] = [
    "NodePool",
    "Provisioner",
    "VolumeAttachment",
    "Disruption",
    "Event",
];

/// Kinds that own pods or belong to Karpenter, and that no decision reads.
const SILENT: [(&str, &str); 3] = [
    ("apps/v1", "ControllerRevision"),
    ("coordination.k8s.io/v1", "Lease"),
    ("policy/v1", "Eviction"),
];

/// Reads one object; items of a typed list take version and kind from it.
///
/// # Errors
/// It is not JSON, no Kubernetes object, or a field has another type than its kind says; the line counts from the beginning of the text.
pub(super) fn read(text: &str, default: Option<&(String, String)>) -> Result<Found, serde_json::Error> {
    if let Some((api_version, kind)) = default {
        return typed(api_version, kind, text);
    }
    let mut head = Head::default();
    let whole = serde_json::Deserializer::from_str(text).deserialize_map(&mut head);
    match (head.api_version, head.kind) {
        (Some(api_version), Some(kind)) => typed(&api_version, &kind, text),
        (api_version, kind) => {
            whole?;
            let said = foreign(&head.others, api_version.is_some(), kind.as_deref());
            Err(serde_json::Error::custom(said))
        }
    }
}

/// What is read of an object until its version and kind are known.
#[derive(Default)]
struct Head {
    api_version: Option<String>,
    kind: Option<String>,
    /// Names of other fields on the way.
    others: Vec<String>,
}

impl<'de> Visitor<'de> for &mut Head {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object with apiVersion and kind")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while self.api_version.is_none() || self.kind.is_none() {
            let Some(key) = map.next_key::<String>()? else {
                break;
            };
            match key.as_str() {
                "apiVersion" => self.api_version = Some(map.next_value::<String>()?),
                "kind" => self.kind = Some(map.next_value::<String>()?),
                _ => {
                    self.others.push(key);
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

fn foreign(others: &[String], has_version: bool, kind: Option<&str>) -> String {
    let keys: Vec<&str> = others.iter().take(4).map(String::as_str).collect();
    let (missing, there) = match (has_version, kind) {
        (true, _) => ("kind", "apiVersion"),
        (false, Some(_)) => ("apiVersion", "kind"),
        (false, None) => ("apiVersion and kind", "an empty object"),
    };
    let found = if keys.is_empty() {
        there.to_owned()
    } else {
        keys.join(", ")
    };
    format!("is not a Kubernetes object: expected {missing}, found only {found}")
}

fn typed(api_version: &str, kind: &str, text: &str) -> Result<Found, serde_json::Error> {
    Ok(match (api_version, kind) {
        ("v1", "Pod") => {
            let mut pod: Pod = serde_json::from_str(text)?;
            let is_seen = pod.status.as_ref().is_some_and(|status| status.phase.is_some());
            if pod.spec.is_some() && !is_seen {
                // As the API server does when a pod is created; of one that it has seen, limits are not needed any more.
                default_requests(pod.spec_mut());
            }
            trim::pod(&mut pod);
            place(&mut pod.metadata);
            Found::Pod(pod)
        }
        ("v1", "Node") => {
            let mut node: Node = serde_json::from_str(text)?;
            trim::node(&mut node);
            Found::Node(Arc::new(node))
        }
        ("v1", "Service") => Found::Service(Arc::new(placed(text)?)),
        ("apps/v1", "Deployment") => workload(WorkloadKind::Deployment, serde_json::from_str(text)?),
        ("apps/v1", "StatefulSet") => workload(WorkloadKind::StatefulSet, serde_json::from_str(text)?),
        ("apps/v1", "ReplicaSet") => workload(WorkloadKind::ReplicaSet, serde_json::from_str(text)?),
        ("v1", "ReplicationController") => replication_controller(serde_json::from_str(text)?),
        ("batch/v1", "Job") => Found::Runs(job(serde_json::from_str(text)?)),
        ("batch/v1", "CronJob") => Found::Runs(cron_job(serde_json::from_str(text)?)),
        ("autoscaling/v1" | "autoscaling/v2", autoscalers::KIND) => {
            Found::Autoscaler(serde_json::from_str(text)?)
        }
        ("karpenter.sh/v1", "NodePool") => Found::NodePool(Arc::new(serde_json::from_str(text)?)),
        ("karpenter.sh/v1", "NodeClaim") => Found::NodeClaim(Arc::new(serde_json::from_str(text)?)),
        ("apps/v1", "DaemonSet") => Found::DaemonSet(Arc::new(placed(text)?)),
        ("policy/v1", "PodDisruptionBudget") => Found::PodDisruptionBudget(Arc::new(placed(text)?)),
        ("v1", "Namespace") => Found::Namespace(Arc::new(serde_json::from_str(text)?)),
        ("v1", "PersistentVolume") => Found::PersistentVolume(Arc::new(serde_json::from_str(text)?)),
        ("v1", "PersistentVolumeClaim") => Found::PersistentVolumeClaim(Arc::new(placed(text)?)),
        ("storage.k8s.io/v1", "StorageClass") => Found::StorageClass(Arc::new(serde_json::from_str(text)?)),
        ("storage.k8s.io/v1", "CSINode") => Found::CsiNode(Arc::new(serde_json::from_str(text)?)),
        (version, "DisruptionPolicy") if version.starts_with("spokeshave.dev/") => {
            Found::DisruptionPolicy(Arc::new(serde_json::from_str(text)?))
        }
        (LEDGER, "Disruption") => Found::Disruption(Arc::new(serde_json::from_str(text)?)),
        (version, "NodeOverlay") if version.starts_with("karpenter.sh/") => {
            Found::NodeOverlay(Arc::new(serde_json::from_str(text)?))
        }
        (version, "CapacityBuffer") if version.starts_with("autoscaling.x-k8s.io/") => {
            Found::CapacityBuffer(Arc::new(placed(text)?))
        }
        ("v1", "PodTemplate") => Found::PodTemplate(Arc::new(placed(text)?)),
        (version, kind) if is_outdated(version) && !kind.ends_with("List") => {
            let object: AnyObject = serde_json::from_str(text)?;
            let name = object.metadata.name;
            Found::Outdated(
                (kind.to_owned(), version.to_owned()),
                name.unwrap_or_else(|| "without a name".to_owned()),
            )
        }
        (version, kind) if kind.ends_with("NodeClass") => {
            let class: AnyNodeClass = serde_json::from_str(text)?;
            Found::NodeClass(NodeClass {
                group: version.split_once('/').map_or("", |(group, _)| group).to_owned(),
                kind: kind.to_owned(),
                name: class.metadata.name,
                ec2: match (version, kind) {
                    (EC2_VERSION, EC2NodeClass::KIND) => Some(Arc::new(serde_json::from_str(text)?)),
                    _ => None,
                },
                ready: class
                    .status
                    .conditions
                    .iter()
                    .find(|condition| condition.type_ == "Ready")
                    .map(|condition| condition.status == "True"),
            })
        }
        (version, kind) if kind.ends_with("List") => {
            let list: AnyList = serde_json::from_str(text)?;
            let default = kind
                .strip_suffix("List")
                .filter(|kind| !kind.is_empty())
                .map(|kind| (version.to_owned(), kind.to_owned()));
            Found::List {
                default,
                items: list.items,
            }
        }
        identity if SILENT.contains(&identity) => Found::Owner,
        (version, kind) => Found::Unknown((kind.to_owned(), version.to_owned())),
    })
}

/// An object of a kind that is in namespaces.
fn placed<K: DeserializeOwned + Resource>(text: &str) -> Result<K, serde_json::Error> {
    let mut object: K = serde_json::from_str(text)?;
    place(object.meta_mut());
    Ok(object)
}

/// What names no namespace goes to the default one, as with `kubectl apply`, and so is the same object as one that names it.
fn place(meta: &mut ObjectMeta) {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    if namespace.is_empty() {
        meta.namespace = Some(or_default(namespace).to_owned());
    }
}

fn workload(kind: WorkloadKind, read: AnyController<LabelSelector>) -> Found {
    let key = read.key(kind.as_str());
    let name = format!("{}/{}", read.metadata.namespace(), read.metadata.name);
    let selector = read.spec.selector.unwrap_or_default();
    let template = read.spec.template.unwrap_or_default();
    let manifest = WorkloadManifest {
        kind: kind.as_str(),
        has_status: read.status.observed_generation.is_some(),
        pods: i64::from(read.spec.replicas.unwrap_or(1)),
        start: read.spec.ordinals.and_then(|ordinals| ordinals.start),
        template: template.clone(),
        claims: read.spec.volume_claim_templates,
        ..read.metadata.manifest()
    };
    Found::Workload(Controlled {
        kind,
        name,
        manifest,
        workload: Workload {
            template,
            replicas: read.spec.replicas,
        },
        // The pods of a Deployment are its ReplicaSets'.
        selects: (kind != WorkloadKind::Deployment).then_some((key, selector)),
    })
}

fn replication_controller(read: AnyController<BTreeMap<String, String>>) -> Found {
    const KIND: &str = "ReplicationController";
    let key = read.key(KIND);
    let manifest = WorkloadManifest {
        kind: KIND,
        has_status: read.status.observed_generation.is_some(),
        pods: i64::from(read.spec.replicas.unwrap_or(1)),
        template: read.spec.template.unwrap_or_default(),
        // Policies do not hear this kind.
        annotations: BTreeMap::new(),
        ..read.metadata.manifest()
    };
    let selector = LabelSelector {
        match_labels: read.spec.selector,
        ..LabelSelector::default()
    };
    Found::Controller(key, selector, manifest)
}

fn job(read: AnyJob) -> WorkloadManifest {
    WorkloadManifest {
        kind: "Job",
        has_status: read.status.start_time.is_some(),
        pods: read.spec.pods_at_once(),
        template: read.spec.template.unwrap_or_default(),
        ..read.metadata.manifest()
    }
}

/// One run of it.
fn cron_job(read: AnyCronJob) -> WorkloadManifest {
    let job = read.spec.job_template.spec;
    WorkloadManifest {
        kind: "CronJob",
        has_status: read.status.last_schedule_time.is_some(),
        pods: if read.spec.suspend { 0 } else { job.pods_at_once() },
        template: job.template.unwrap_or_default(),
        ..read.metadata.manifest()
    }
}

#[derive(Default, Deserialize)]
struct AnyJob {
    #[serde(default)]
    metadata: ControllerName,
    #[serde(default)]
    spec: JobSpec,
    #[serde(default)]
    status: ControllerStatus,
}

#[derive(Default, Deserialize)]
struct JobSpec {
    parallelism: Option<i32>,
    completions: Option<i32>,
    #[serde(default)]
    suspend: bool,
    template: Option<PodTemplateSpec>,
}

impl JobSpec {
    fn pods_at_once(&self) -> i64 {
        let parallelism = self.parallelism.unwrap_or(1);
        let completions = self.completions.unwrap_or(parallelism);
        if self.suspend {
            0
        } else {
            i64::from(parallelism.min(completions))
        }
    }
}

#[derive(Default, Deserialize)]
struct AnyCronJob {
    #[serde(default)]
    metadata: ControllerName,
    #[serde(default)]
    spec: CronJobSpec,
    #[serde(default)]
    status: ControllerStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CronJobSpec {
    #[serde(default)]
    suspend: bool,
    #[serde(default)]
    job_template: JobTemplate,
}

#[derive(Default, Deserialize)]
struct JobTemplate {
    #[serde(default)]
    spec: JobSpec,
}

/// What only a controller writes.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ControllerStatus {
    observed_generation: Option<i64>,
    start_time: Option<String>,
    last_schedule_time: Option<String>,
}

/// What decisions need of a controller.
#[derive(Deserialize)]
struct AnyController<S> {
    #[serde(default)]
    metadata: ControllerName,
    #[serde(default)]
    status: ControllerStatus,
    #[serde(default = "ControllerSpec::none")]
    spec: ControllerSpec<S>,
}

#[derive(Default, Deserialize)]
struct ControllerName {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "ownerReferences")]
    owner_references: Vec<OwnerReference>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl ControllerName {
    fn namespace(&self) -> &str {
        or_default(&self.namespace)
    }

    fn manifest(self) -> WorkloadManifest {
        let namespace = self.namespace().to_owned();
        let has_owner = !self.owner_references.is_empty();
        let read = read_annotations(&ObjectMeta {
            annotations: Some(self.annotations),
            owner_references: Some(self.owner_references),
            ..ObjectMeta::default()
        });
        WorkloadManifest {
            namespace,
            name: self.name,
            has_owner,
            annotations: read.unwrap_or_default(),
            ..WorkloadManifest::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ControllerSpec<S> {
    selector: Option<S>,
    template: Option<PodTemplateSpec>,
    replicas: Option<i32>,
    ordinals: Option<StatefulSetOrdinals>,
    #[serde(default)]
    volume_claim_templates: Vec<PersistentVolumeClaim>,
}

impl<S> ControllerSpec<S> {
    fn none() -> Self {
        Self {
            selector: None,
            template: None,
            replicas: None,
            ordinals: None,
            volume_claim_templates: Vec::new(),
        }
    }
}

impl<S> AnyController<S> {
    fn key(&self, kind: &str) -> String {
        controller_key(kind, self.metadata.namespace(), &self.metadata.name)
    }
}

#[derive(Deserialize)]
struct AnyObject {
    #[serde(default)]
    metadata: AnyMetadata,
}

#[derive(Default, Deserialize)]
struct AnyMetadata {
    name: Option<String>,
}

#[derive(Deserialize)]
struct AnyNodeClass {
    metadata: AnyName,
    #[serde(default)]
    status: AnyStatus,
}

#[derive(Deserialize)]
struct AnyName {
    name: String,
}

#[derive(Default, Deserialize)]
struct AnyStatus {
    #[serde(default)]
    conditions: Vec<AnyCondition>,
}

#[derive(Deserialize)]
struct AnyCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

#[derive(Deserialize)]
struct AnyList {
    #[serde(default)]
    items: Vec<Box<RawValue>>,
}
