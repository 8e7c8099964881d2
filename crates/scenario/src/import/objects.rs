//! Kubernetes objects as recordings hold them: the desired workloads, and the existing pods.
//!
//! Owns the reading of single objects. It keeps only what a simulation needs: no environment, no image but the name, no status but phase and times.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;

use crate::timeline;

/// Which object, and whose.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Its namespace; empty for the default one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// By which it is told from others that have its name before or after it.
    pub uid: Option<String>,
    /// Labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations.
    pub annotations: Option<BTreeMap<String, String>>,
    /// What made it.
    pub owner_references: Option<Vec<OwnerReference>>,
    /// When it was made.
    pub creation_timestamp: Option<Timestamp>,
    /// When its deletion was requested.
    pub deletion_timestamp: Option<Timestamp>,
}

/// What made an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Its group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Whether it is the one that manages the object.
    pub controller: Option<bool>,
}

impl OwnerReference {
    /// Its kind, if Kubernetes itself has it, as is taken of one without a version. Empty for those of others, of which some have the same names: there are a
    /// Job of Volcano and a StatefulSet of OpenKruise.
    #[must_use]
    pub fn own_kind(&self) -> &str {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        match group {
            "" | "apps" | "batch" => &self.kind,
            _ => "",
        }
    }
}

impl Meta {
    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or("default")
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// What manages the object.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        let owners = self.owner_references.as_deref().unwrap_or_default();
        let managing = owners.iter().find(|owner| owner.controller == Some(true));
        managing.or(owners.first())
    }
}

/// Something that makes pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Workload {
    /// `Deployment`, `StatefulSet`, `ReplicaSet`, `ReplicationController`, `Job` or `CronJob`.
    pub kind: String,
    /// Which one.
    pub meta: Meta,
    /// How many pods it wants at the same time.
    pub replicas: u32,
    /// How many of its pods have to succeed (Job, CronJob).
    pub completions: Option<u32>,
    /// What its pods are made from.
    pub template: Option<PodTemplateSpec>,
    /// Volumes of each pod.
    pub claims: Vec<PersistentVolumeClaim>,
    /// When it runs (CronJob); none when suspended.
    pub schedule: Option<String>,
    /// By the clocks of which time zone it does; UTC where it does not say.
    pub time_zone: Option<String>,
    /// What it does at a time at which its last run is not over (CronJob).
    pub concurrency: Concurrency,
    /// How late a run may begin that was due while it could not (CronJob); at any time where it does not say.
    pub starts_within_ms: Option<u64>,
    /// When it began (Job).
    pub started: Option<Timestamp>,
    /// When it was complete or had failed (Job).
    pub ended: Option<Timestamp>,
}

/// What a CronJob does at a time of its schedule at which its last run is not over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// It begins another one.
    #[default]
    Allow,
    /// It begins none until the last one is over.
    Forbid,
    /// It ends the last one and begins another one.
    Replace,
}

impl Concurrency {
    /// As `concurrencyPolicy` names it.
    #[must_use]
    pub fn named(policy: &str) -> Self {
        match policy {
            "Forbid" => Self::Forbid,
            "Replace" => Self::Replace,
            _ => Self::Allow,
        }
    }
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pod {
    /// Which one.
    pub meta: Meta,
    /// Its specification.
    pub spec: PodSpec,
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub phase: String,
    /// When its kubelet took it up.
    pub started: Option<Timestamp>,
    /// When the last of its containers ended.
    pub finished: Option<Timestamp>,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Budget {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whom it is for.
    pub selector: LabelSelector,
    /// How many may be away: a number or a percentage.
    pub max_unavailable: Option<String>,
    /// How many have to be there.
    pub min_available: Option<String>,
    /// When it was made.
    pub created: Option<Timestamp>,
}

impl Budget {
    /// Its namespace and name, and what it says.
    #[must_use]
    pub fn told(&self) -> ((String, String), timeline::DisruptionBudget) {
        let most = self.max_unavailable.clone().map(timeline::Budget::MaxUnavailable);
        let least = self.min_available.clone().map(timeline::Budget::MinAvailable);
        let told = timeline::DisruptionBudget {
            selector: self.selector.clone(),
            amount: most.or(least),
        };
        ((self.namespace.clone(), self.name.clone()), told)
    }
}

/// An object of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// Something that makes pods.
    Workload(Box<Workload>),
    /// A pod.
    Pod(Box<Pod>),
    /// A PodDisruptionBudget.
    Budget(Budget),
    /// Anything else.
    Other,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    api_version: String,
    kind: String,
}

/// Kinds that are read, and their groups. Deployments and ReplicaSets were in `extensions` once.
const KINDS: [(&str, &[&str]); 8] = [
    ("Deployment", &["apps", "extensions"]),
    ("StatefulSet", &["apps"]),
    ("ReplicaSet", &["apps", "extensions"]),
    ("ReplicationController", &[""]),
    ("Job", &["batch"]),
    ("CronJob", &["batch"]),
    ("Pod", &[""]),
    ("PodDisruptionBudget", &["policy"]),
];

/// Whether an object of this version and kind is read. Others have kinds of the same names; one that says no version is taken for Kubernetes' own.
#[must_use]
pub fn is_read(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let groups = KINDS.iter().find(|(known, _)| *known == kind);
    groups.is_some_and(|(_, groups)| api_version.is_empty() || groups.contains(&group))
}

impl Object {
    /// Reads an object from its JSON. `default` is the kind of one that does not say it, as the items of a `PodList`. One of another group is none of these, even
    /// where its kind has the same name.
    ///
    /// # Errors
    /// It is not JSON, or a field that is needed has the wrong type.
    pub fn read(json: &str, default: Option<&str>) -> Result<Self, serde_json::Error> {
        let head: Head = serde_json::from_str(json)?;
        let kind = match head.kind.as_str() {
            "" => default.unwrap_or_default(),
            kind => kind,
        };
        if !is_read(&head.api_version, kind) {
            return Ok(Object::Other);
        }
        Ok(match kind {
            "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController" | "Job" | "CronJob" => {
                Object::Workload(Box::new(workload(kind, serde_json::from_str(json)?)))
            }
            "Pod" => Object::Pod(Box::new(pod(serde_json::from_str(json)?))),
            "PodDisruptionBudget" => {
                budget(serde_json::from_str(json)?).map_or(Object::Other, Object::Budget)
            }
            _ => Object::Other,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AnyWorkload {
    metadata: Meta,
    spec: AnySpec,
    status: AnyStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AnySpec {
    replicas: Option<i32>,
    template: Option<PodTemplateSpec>,
    volume_claim_templates: Option<Vec<PersistentVolumeClaim>>,
    parallelism: Option<i32>,
    completions: Option<i32>,
    suspend: Option<bool>,
    schedule: Option<String>,
    time_zone: Option<String>,
    concurrency_policy: Option<String>,
    starting_deadline_seconds: Option<i64>,
    job_template: Option<JobTemplate>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobTemplate {
    spec: JobSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobSpec {
    parallelism: Option<i32>,
    completions: Option<i32>,
    template: Option<PodTemplateSpec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AnyStatus {
    start_time: Option<Timestamp>,
    completion_time: Option<Timestamp>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    last_transition_time: Option<Timestamp>,
}

impl AnyStatus {
    /// When a Job ended. One that has failed has no completion time, only a condition.
    fn ended(&self) -> Option<Timestamp> {
        let is_end =
            |one: &&Condition| matches!(one.type_.as_str(), "Failed" | "Complete") && one.status == "True";
        let since = self.conditions.iter().flatten().find(is_end);
        self.completion_time
            .or_else(|| since.map(|one| one.last_transition_time.unwrap_or_default()))
    }
}

fn workload(kind: &str, read: AnyWorkload) -> Workload {
    let spec = read.spec;
    let suspended = spec.suspend == Some(true);
    let at_once = |parallelism: Option<i32>, completions: Option<i32>| {
        let parallelism = parallelism.unwrap_or(1);
        parallelism.min(completions.unwrap_or(parallelism))
    };
    let job = spec.job_template.as_ref().map(|job| &job.spec);
    let completions = job.map_or(spec.completions, |job| job.completions);
    let (replicas, template) = match (kind, spec.job_template) {
        ("CronJob", Some(job)) => (
            at_once(job.spec.parallelism, job.spec.completions),
            job.spec.template,
        ),
        ("CronJob", None) => (0, None),
        ("Job", _) => (at_once(spec.parallelism, spec.completions), spec.template),
        _ => (spec.replicas.unwrap_or(1), spec.template),
    };
    let is_off = suspended && matches!(kind, "Job" | "CronJob");
    Workload {
        kind: kind.to_owned(),
        meta: read.metadata,
        replicas: if is_off {
            0
        } else {
            u32::try_from(replicas).unwrap_or(0)
        },
        completions: completions.and_then(|all| u32::try_from(all).ok()),
        template,
        claims: spec.volume_claim_templates.unwrap_or_default(),
        schedule: spec.schedule.filter(|_| !suspended),
        time_zone: spec.time_zone,
        concurrency: Concurrency::named(spec.concurrency_policy.as_deref().unwrap_or_default()),
        starts_within_ms: spec
            .starting_deadline_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(|seconds| seconds.saturating_mul(1_000)),
        started: read.status.start_time,
        ended: read.status.ended(),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnyPod {
    metadata: Meta,
    spec: Option<PodSpec>,
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: String,
    start_time: Option<Timestamp>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    terminated: Option<Terminated>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    finished_at: Option<Timestamp>,
}

fn pod(read: AnyPod) -> Pod {
    let statuses = read.status.container_statuses.unwrap_or_default();
    let finished = statuses
        .into_iter()
        .filter_map(|status| status.state.terminated?.finished_at)
        .max();
    Pod {
        meta: read.metadata,
        spec: read.spec.unwrap_or_default(),
        phase: read.status.phase,
        started: read.status.start_time,
        finished,
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnyBudget {
    metadata: Meta,
    spec: BudgetSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BudgetSpec {
    selector: Option<LabelSelector>,
    max_unavailable: Option<IntOrString>,
    min_available: Option<IntOrString>,
}

/// Without a selector it is for no pod; an empty one selects all.
fn budget(read: AnyBudget) -> Option<Budget> {
    let text = |value: Option<IntOrString>| {
        value.map(|value| match value {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => text,
        })
    };
    Some(Budget {
        namespace: read.metadata.namespace().to_owned(),
        name: read.metadata.name().to_owned(),
        selector: read.spec.selector?,
        max_unavailable: text(read.spec.max_unavailable),
        min_available: text(read.spec.min_available),
        created: read.metadata.creation_timestamp,
    })
}
