//! What the server knows about single kinds, one file a kind or family: defaults, checks, admission, and the columns of `kubectl get`.
//!
//! A kind that is not in the table of [`rules`] is served by its schema alone. Custom kinds bring their own rules (`crd`). Nothing here reads a
//! request or writes to the store: `verbs` asks.

pub(crate) mod columns;
pub(crate) mod conversion;
pub(crate) mod service_account;

mod admission;
mod autoscaler;
mod cron_job;
mod daemon_set;
mod definition;
mod deployment;
mod disruption_budget;
mod event;
mod filling;
mod job;
mod keeping;
mod keyed_data;
mod lease;
mod namespace;
mod node;
mod placement;
mod pod;
mod pod_template;
mod pod_update;
mod priority_class;
mod replica_set;
mod replication_controller;
mod runtime_class;
mod service;
mod stateful_set;
mod volumes;
mod workload;

use jiff::Timestamp;
use serde_json::Value;

use crate::cause::Cause;
use crate::error::ApiResult;
use crate::store::state::State;

use columns::{AGE, Column, NAME, created, name};

/// The rules of one kind.
pub(crate) struct KindRules {
    /// Fills in what a user may leave out.
    pub(crate) default: fn(&mut Value),
    /// What is wrong with an object; the second one is the one that it replaces. A status is no part of it.
    pub(crate) check: fn(&Value, Option<&Value>, &mut Vec<Cause>),
    /// What the server sets in a new object, or refuses, by the state of the cluster.
    pub(crate) admit: fn(&State, &mut Value) -> ApiResult<()>,
    /// What the server sets in an object (second) that replaces another (first) through the resource itself.
    pub(crate) update: fn(&Value, &mut Value),
    /// The same by the state of the cluster, after that; or what it refuses.
    pub(crate) admit_update: fn(&State, &mut Value) -> ApiResult<()>,
    /// Puts back what of an object (third) is as it was (second) when a part of its spec is written through a subresource (first).
    pub(crate) keep: fn(&str, &Value, &mut Value),
    /// What is wrong with an object (second) a part of whose spec is written through a subresource (first); the third is the one that it replaces.
    pub(crate) check_part: fn(&str, &Value, &Value, &mut Vec<Cause>),
    /// Whether a status that comes with a new object is kept.
    pub(crate) keeps_status: bool,
    /// Whether a change of annotations alone counts as one of the desired state.
    pub(crate) counts_annotations: bool,
    /// The columns of a table.
    pub(crate) columns: &'static [Column],
    /// An object's cells, one for each column.
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// A kind of which nothing is known but its schema.
const PLAIN: KindRules = KindRules {
    default: |_| {},
    check: |_, _, _| {},
    admit: |_, _| Ok(()),
    update: |_, _| {},
    admit_update: |_, _| Ok(()),
    keep: |_, _, _| {},
    check_part: |_, _, _, _| {},
    keeps_status: false,
    counts_annotations: false,
    columns: &[NAME, AGE],
    cells: |object, now| vec![name(object), created(object, now)],
};

/// The rules of a kind of a group.
pub(crate) fn rules(group: &str, kind: &str) -> &'static KindRules {
    match (group, kind) {
        ("", "ConfigMap") => &keyed_data::CONFIG_MAP,
        ("", "Namespace") => &namespace::RULES,
        ("", "Node") => &node::RULES,
        ("", "PersistentVolume") => &volumes::VOLUME,
        ("", "PersistentVolumeClaim") => &volumes::CLAIM,
        ("", "Pod") => &pod::RULES,
        ("", "ReplicationController") => &replication_controller::RULES,
        ("", "Secret") => &keyed_data::SECRET,
        ("", "Service") => &service::RULES,
        ("" | "events.k8s.io", "Event") => &event::RULES,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => &admission::POLICY,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => &admission::BINDING,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &definition::RULES,
        ("apps", "DaemonSet") => &daemon_set::RULES,
        ("apps", "Deployment") => &deployment::RULES,
        ("apps", "ReplicaSet") => &replica_set::RULES,
        ("apps", "StatefulSet") => &stateful_set::RULES,
        ("autoscaling", "HorizontalPodAutoscaler") => &autoscaler::RULES,
        ("batch", "CronJob") => &cron_job::RULES,
        ("batch", "Job") => &job::RULES,
        ("coordination.k8s.io", "Lease") => &lease::RULES,
        ("node.k8s.io", "RuntimeClass") => &runtime_class::RULES,
        ("policy", "PodDisruptionBudget") => &disruption_budget::RULES,
        ("scheduling.k8s.io", "PriorityClass") => &priority_class::RULES,
        ("storage.k8s.io", "StorageClass") => &volumes::STORAGE_CLASS,
        ("storage.k8s.io", "VolumeAttachment") => &volumes::ATTACHMENT,
        _ => &PLAIN,
    }
}
