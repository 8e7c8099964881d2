//! The objects and in-memory facts that a Snapshot is made of, as they are before anything is lowered.
//!
//! Owns the list of them. What they mean is read in `lower`, `state_node` and `workload_annotations`.

mod building;

use crate::Pod;
use crate::default_spread::DefaultSpread;
use crate::distress::Distress;
use crate::instance_type::InstanceType;
use crate::ordinals::Ordinals;
use crate::scheduler_profiles::SchedulerProfiles;
use crate::snapshot::InstanceTypesProblem;
use crate::volumes::VolumeObjects;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodePool};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A command that may yet be taken back: both its nodes and what is to replace them are among the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocable {
    /// Provider IDs of the nodes that are to go, marked for deletion.
    pub leaves: BTreeSet<String>,
    /// Provider IDs of what comes and would go again, stand-ins included.
    pub comes: BTreeSet<String>,
}

/// The objects and in-memory facts that a Snapshot is made of. Order does not matter.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// Nodes.
    pub nodes: Vec<Arc<Node>>,
    /// Pods.
    pub pods: Vec<Arc<Pod>>,
    /// DaemonSets.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// PodDisruptionBudgets.
    pub pod_disruption_budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Namespaces; only their labels matter.
    pub namespaces: Vec<Arc<Namespace>>,
    /// PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes.
    pub volumes: VolumeObjects,
    /// What kube-scheduler is configured to add to pods (B-60).
    pub scheduler_profiles: Arc<SchedulerProfiles>,
    /// Whom the topology spread counts that it gives to pods without (P-121).
    pub default_spread: DefaultSpread,
    /// NodePools.
    pub node_pools: Vec<Arc<NodePool>>,
    /// NodeClaims of supported NodeClass kinds.
    pub node_claims: Vec<Arc<NodeClaim>>,
    /// Instance types by NodePool name, as the provider answered. A pool that is missing counts as not yet evaluated.
    pub instance_types: BTreeMap<String, Result<Arc<[InstanceType]>, InstanceTypesProblem>>,
    /// NodeClass kinds the provider supports, as (group, kind). Empty means all.
    pub supported_node_classes: Vec<(String, String)>,
    /// Nominations by provider ID (D-027).
    pub nominations: BTreeMap<String, Nomination>,
    /// Provider IDs that a command has marked for deletion in memory (D-026).
    pub marked_for_deletion: BTreeSet<String>,
    /// Commands that may yet be taken back.
    pub revocable: Vec<Revocable>,
    /// Provider IDs that belong to a command in the queue (D-023).
    pub in_command: BTreeSet<String>,
    /// What owners of pods ask for their pods by annotation, by `Deployment/shop/web`.
    pub owner_annotations: BTreeMap<String, BTreeMap<String, String>>,
    /// Which members StatefulSets want, by `StatefulSet/shop/db`; of one that is missing here nobody knows.
    pub stateful_sets: Arc<BTreeMap<String, Ordinals>>,
    /// They have not been read yet, although a policy asks for them.
    pub owners_unknown: bool,
    /// What has failed lately around the cluster.
    pub distress: Distress,
    /// DisruptionPolicies.
    pub disruption_policies: Vec<Arc<DisruptionPolicy>>,
    /// The ledger of commands, which DisruptionPolicies look back on; empty where there are none.
    pub disruptions: Vec<Arc<Disruption>>,
}

/// Until when a node is kept for a pod that is expected on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nomination {
    /// The end of the window.
    pub until: Timestamp,
}
