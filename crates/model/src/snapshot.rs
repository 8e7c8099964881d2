//! The Snapshot: one dense, ordered picture of the cluster, from which every decision is made.
//!
//! Decisions read it. Its owner may change it: [`LiveSnapshot`](crate::LiveSnapshot) takes in changes of objects, and a plan that disrupts after it has
//! provisioned notes which nodes the pods went to. What the packing engine tries it does to tables of its own.
//!
//! Objects have ids in sorted order; pods that no constraint can tell apart share a class, equal requests share an id, nodes that
//! no pod can tell apart share a kind. It owns no clock: whatever depends on time is kept as a time and asked with `now`.

use crate::Pod;
use crate::classes::Classes;
use crate::constraints::{Constraints, PodProblem};
use crate::distress::Distress;
use crate::instance_type::InstanceType;
use crate::ordinals::Ordinals;
use crate::pod::DoNotDisrupt;
use crate::price::Price;
use crate::requirements::Requirements;
use crate::resources::Resources;
use crate::scheduler_profiles::SchedulerProfiles;
use crate::selector::Selector;
use crate::vector::{ResourceTable, ResourceVector};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodePool};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use crate::classes::ClassId;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            fn from(index: usize) -> Self {
                // A Snapshot never holds four billion of anything: memory ends long before.
                $name(index as u32)
            }
        }
    };
}

id!(
    /// A node, in the order of `Snapshot::nodes`: initialised first, then by name.
    NodeId
);
id!(
    /// A pod, in order of namespace and name.
    PodId
);
id!(
    /// A NodePool, in order of weight descending, then name descending (P-060).
    PoolId
);
id!(
    /// A distinct vector of requests.
    RequestId
);
id!(
    /// A kind of node: equal observed labels and effective taints.
    KindId
);
id!(
    /// A PodDisruptionBudget, in order of namespace and name.
    BudgetId
);

/// A pod as decisions see it. One line of a processor's cache: there are many, decisions look at them again and again, and what comes or goes moves
/// those behind it. What few pods have is kept elsewhere.
#[derive(Clone, Debug, PartialEq)]
#[repr(align(64))]
pub struct PodView {
    /// The object.
    pub object: Arc<Pod>,
    /// Its constraints.
    pub class: ClassId,
    /// Its requests.
    pub request: RequestId,
    /// The node it is bound to or that is promised to it, or the stand-in of the NodeClaim that it waits for, if that is in the Snapshot.
    pub node: Option<NodeId>,
    /// D-007: waits for a place, and none is promised to it.
    pub provisionable: bool,
    /// It waits, and somebody else than the plan has named its node, which is there and stays (P-056). It counts there as if it were bound.
    pub promised: bool,
    /// Neither terminal nor terminating.
    pub active: bool,
    /// Failed or Succeeded.
    pub terminal: bool,
    /// D-003.
    pub reschedulable: bool,
    /// Owned by a DaemonSet.
    pub daemon: bool,
    /// Owned by a Node.
    pub mirror: bool,
    /// Tolerates `karpenter.sh/disrupted:NoSchedule`.
    pub tolerates_disrupted_taint: bool,
    /// Condition Ready is False.
    pub ready_false: bool,
    /// In units of 2^-27 (D-050): ten of them at the most, or of their opposite.
    pub eviction_cost: i32,
    /// What most pods have nothing of.
    pub(crate) particulars: Option<Box<Particulars>>,
    /// P-185: a virtual pod of a CapacityBuffer. Nobody evicts it, counts it or tells of it.
    pub is_virtual: bool,
    /// Where it stands among pods that ask for as much (P-080).
    pub seniority: Seniority,
}

const _: () = assert!(size_of::<PodView>() == 64);

/// What most pods have nothing of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Particulars {
    pub(crate) do_not_disrupt: DoNotDisrupt,
    pub(crate) attachments: Vec<(String, String)>,
    pub(crate) problem: Option<PodProblem>,
    pub(crate) budgets: Vec<BudgetId>,
}

impl Particulars {
    /// Nothing where there is nothing, so that equal pods have equal views.
    pub(crate) fn kept(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// Older pods come first, pods of one age in the order of their UIDs. Kept beside the object, because to read it there is to wait for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seniority {
    /// Creation in nanoseconds since 1970; least when it is not known.
    created_nanoseconds: i64,
    /// The first eight bytes of the UID. Of random UIDs they tell any two apart; others differ later, if at all.
    uid_head: u64,
}

impl Seniority {
    /// That of a pod.
    pub fn of(pod: &Pod) -> Self {
        let created = pod.metadata.creation_timestamp.as_ref();
        let nanoseconds = created.map(|time| i64::try_from(time.0.as_nanosecond()).unwrap_or(i64::MAX));
        let mut head = [0; 8];
        let uid = pod.metadata.uid.as_deref().unwrap_or_default().as_bytes();
        for (to, from) in head.iter_mut().zip(uid) {
            *to = *from;
        }
        Self {
            created_nanoseconds: nanoseconds.unwrap_or(i64::MIN),
            uid_head: u64::from_be_bytes(head),
        }
    }

    /// When the pod was created, where that is known.
    pub fn created(self) -> Option<Timestamp> {
        let nanoseconds = Some(self.created_nanoseconds).filter(|nanoseconds| *nanoseconds != i64::MIN)?;
        Timestamp::from_nanosecond(i128::from(nanoseconds)).ok()
    }
}

impl PodView {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        crate::pod::key(&self.object)
    }

    /// The UID.
    pub fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or("")
    }

    /// It has nothing of what most pods have nothing of: no do-not-disrupt annotation, no volumes, no problem and no PodDisruptionBudgets.
    #[inline]
    pub fn is_common(&self) -> bool {
        self.particulars.is_none()
    }

    /// Its do-not-disrupt annotation.
    pub fn do_not_disrupt(&self) -> &DoNotDisrupt {
        let known = self.particulars.as_ref();
        known.map_or(&DoNotDisrupt::Absent, |known| &known.do_not_disrupt)
    }

    /// (CSI driver, claim) of its volumes (P-117).
    pub fn attachments(&self) -> &[(String, String)] {
        let known = self.particulars.as_ref();
        known.map_or(&[], |known| &known.attachments)
    }

    /// From now on it has no volumes.
    pub fn forget_attachments(&mut self) {
        if let Some(mut known) = self.particulars.take() {
            known.attachments.clear();
            self.particulars = known.kept();
        }
    }

    /// From now on it has this problem, or none.
    pub(crate) fn set_problem(&mut self, problem: Option<PodProblem>) {
        let known = self.particulars.take().map(|known| *known);
        let particulars = Particulars {
            problem,
            ..known.unwrap_or_default()
        };
        self.particulars = particulars.kept();
    }

    /// Why it cannot be considered, if so (P §5.2); of one that runs, why its successor could not.
    pub fn problem(&self) -> Option<&PodProblem> {
        self.particulars.as_ref()?.problem.as_ref()
    }

    /// The PodDisruptionBudgets that select it.
    pub fn budgets(&self) -> &[BudgetId] {
        let known = self.particulars.as_ref();
        known.map_or(&[], |known| &known.budgets)
    }

    /// P-107: affinity and anti-affinity count it. One that is soon gone they do not. O(1); objects are only read of those that leave.
    #[inline]
    pub fn is_counted(&self) -> bool {
        self.active || (!self.terminal && crate::pod::lingers(&self.object))
    }

    /// D-004.
    pub fn is_evictable(&self, now: Timestamp) -> bool {
        self.active
            && !self.tolerates_disrupted_taint
            && !self.mirror
            && !self.do_not_disrupt().is_active(now)
    }
}

/// A PodDisruptionBudget as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Which pods.
    pub selector: Selector,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
    /// How many pods may be away at once when all are healthy, whatever is left of that now; nobody knows before its status says it.
    pub most_away: Option<i32>,
    /// It can never allow a disruption (D-020), and does not do so now.
    pub fully_blocking: bool,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    pub always_allows_unhealthy: bool,
}

/// How provider IDs of stand-ins begin, under which NodeClaims without an instance are among the nodes. No cloud has such, and no Node such a name.
pub const STAND_IN: &str = "in-flight://";

/// Why a NodePool offers no instance types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceTypesProblem {
    /// The provider has not looked at the pool yet: skip it quietly (P-061).
    Unevaluated,
    /// The provider failed.
    Failed(String),
    /// The operator of the cluster knows them, and this program brings none along.
    KnownElsewhere,
}

/// A NodePool as decisions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolView {
    /// The object.
    pub object: Arc<NodePool>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Weight; 0 when absent.
    pub weight: i32,
    /// `spec.replicas` is set.
    pub is_static: bool,
    /// Condition Ready is True.
    pub ready: bool,
    /// Has a deletion timestamp.
    pub deleting: bool,
    /// The provider supports its NodeClass kind.
    pub supported: bool,
    /// Template requirements and labels, the pool's name and the NodeClass label, as one set.
    pub requirements: Requirements,
    /// Template taints.
    pub taints: Vec<Taint>,
    /// Limits by resource name, `nodes` included.
    pub limits: Resources,
    /// What its nodes not marked for deletion use, `nodes` included (P §8.4).
    pub usage: Resources,
    /// Its instance types, in the provider's order.
    pub instance_types: Arc<[InstanceType]>,
    /// Why there are none.
    pub instance_types_problem: Option<InstanceTypesProblem>,
}

impl PoolView {
    /// P-059: whether new nodes may come from this pool.
    pub fn is_provisionable(&self) -> bool {
        self.supported && !self.is_static && self.ready && !self.deleting
    }
}

/// A node, an in-flight NodeClaim, or both joined by provider ID (P §8.1).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    /// The Node, once there is one.
    pub node: Option<Arc<Node>>,
    /// The NodeClaim; none for unmanaged nodes.
    pub claim: Option<Arc<NodeClaim>>,
    /// NodeClaim name until registered, then Node name.
    pub name: String,
    /// The provider ID, or the node's name when an unmanaged node has none.
    pub provider_id: String,
    /// The hostname label, else the name.
    pub hostname: String,
    /// The value of label `karpenter.sh/nodepool`.
    pub pool_name: Option<String>,
    /// The pool, if it is in the Snapshot.
    pub pool: Option<PoolId>,
    /// NodeClaim's until registered, then the Node's.
    pub labels: BTreeMap<String, String>,
    /// NodeClaim's until registered, then the Node's.
    pub annotations: BTreeMap<String, String>,
    /// Effective taints (P §6.11).
    pub taints: Vec<Taint>,
    /// Whether the Node carries `karpenter.sh/registered=true`; always for unmanaged nodes.
    pub registered: bool,
    /// Whether the Node carries `karpenter.sh/initialized=true`; always for unmanaged nodes.
    pub initialized: bool,
    /// The Node's condition Ready is True.
    pub ready: bool,
    /// D-026.
    pub marked_for_deletion: bool,
    /// Part of a command that is being carried out (D-023).
    pub in_command: bool,
    /// The NodeClaim's condition InstanceTerminating is True.
    pub instance_terminating: bool,
    /// The NodeClaim's condition Consolidatable is True (D-041).
    pub consolidatable: bool,
    /// Nominated for a pending pod until then (D-027).
    pub nominated_until: Option<Timestamp>,
    /// One of its pods is not bound yet: the node is promised to it.
    pub promised: bool,
    /// Its kind.
    pub kind: KindId,
    /// Capacity (P §8.1).
    pub capacity: Resources,
    /// Allocatable by name (P §8.1).
    pub allocatable_resources: Resources,
    /// Allocatable as a vector.
    pub allocatable: ResourceVector,
    /// Requests of the non-terminal pods bound to it, and of those that it is promised to.
    pub requested: ResourceVector,
    /// Of these, the requests of DaemonSet pods.
    pub daemon_requested: ResourceVector,
    /// The pods bound to it, terminal ones included, and those that it is promised to, in order; those that wait for it where it is a stand-in.
    pub pods: Vec<PodId>,
    /// How many volumes of each CSI driver can be attached (P-117).
    pub attach_limits: BTreeMap<String, i64>,
    /// Index into its pool's instance types (D-031).
    pub instance_type: Option<usize>,
    /// What it costs (D-032); zero when unknown.
    pub price: Price,
}

impl NodeView {
    /// Whether a NodeClaim belongs to it.
    pub fn is_managed(&self) -> bool {
        self.claim.is_some()
    }

    /// Whether somebody has taken it out of the fixed number of nodes of its NodePool: these are those whose NodeClaims bear its label (D-355), which users change, and
    /// the label of the Node stays as it was.
    pub fn is_taken_out(&self, pools: &[PoolView]) -> bool {
        let pool = self.pool.map(|pool| &pools[pool.index()]);
        let fixed = pool.filter(|pool| pool.is_static).zip(self.claim.as_ref());
        fixed.is_some_and(|(pool, claim)| claim.node_pool() != Some(pool.name.as_str()))
    }

    /// The NodePool in whose usage it is.
    pub(crate) fn counts_in(&self, pools: &[PoolView]) -> Option<PoolId> {
        self.pool.filter(|_| !self.is_taken_out(pools))
    }

    /// D-027: pods are expected on it, by the plan or by a scheduler.
    pub fn is_nominated(&self, now: Timestamp) -> bool {
        self.promised || self.nominated_until.is_some_and(|until| now < until)
    }

    /// The name of the Node object, if there is one.
    pub fn node_name(&self) -> Option<&str> {
        self.node.as_ref().and_then(|node| node.metadata.name.as_deref())
    }

    /// It stands in for a NodeClaim that has no instance yet. Its pods are those that the NodeClaim was made for, which wait for it.
    pub fn is_stand_in(&self) -> bool {
        self.node.is_none() && self.provider_id.starts_with(STAND_IN)
    }

    /// The pods that are on it, and those that it is promised to: on a stand-in none is yet.
    pub fn present_pods(&self) -> &[PodId] {
        if self.is_stand_in() { &[] } else { &self.pods }
    }

    /// What pods on it, or promised to it, name as their node: its Node, or the provider ID of a stand-in.
    pub(crate) fn bound_name(&self) -> Option<&str> {
        let stand_in = || self.is_stand_in().then_some(self.provider_id.as_str());
        self.node_name().or_else(stand_in)
    }

    /// The name of the NodeClaim, if there is one.
    pub fn claim_name(&self) -> Option<&str> {
        self.claim
            .as_ref()
            .and_then(|claim| claim.metadata.name.as_deref())
    }
}

/// What nodes of one kind look like to pods.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeKind {
    /// Labels that some constraint observes, as requirements.
    pub requirements: Requirements,
    /// Effective taints.
    pub taints: Vec<Taint>,
}

/// A DaemonSet, as the overhead it puts on nodes (P §5.3).
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonView {
    /// `namespace/name`.
    pub key: String,
    /// Constraints of its newest pod with the template's required affinity, or of the template.
    pub constraints: Constraints,
    /// Requests.
    pub requests: ResourceVector,
}

/// One picture of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Names of the resource positions.
    pub resources: ResourceTable,
    /// Labels that may be undefined on a planned node: the core's and every key that instance types or offerings declare.
    pub well_known: BTreeSet<String>,
    /// NodePools, by weight descending, then name descending.
    pub pools: Vec<PoolView>,
    /// Nodes: initialised first, then by name.
    pub nodes: Vec<NodeView>,
    /// Pods, by namespace and name.
    pub pods: Vec<PodView>,
    /// Pod classes.
    pub classes: Classes,
    /// Distinct requests, shared with who keeps them.
    pub requests: Arc<Vec<ResourceVector>>,
    /// Node kinds.
    pub kinds: Vec<NodeKind>,
    /// DaemonSets, by namespace and name.
    pub daemons: Vec<DaemonView>,
    /// PodDisruptionBudgets, by namespace and name.
    pub budgets: Vec<BudgetView>,
    /// DisruptionPolicies, by name.
    pub disruption_policies: Vec<Arc<DisruptionPolicy>>,
    /// What owners of pods and namespaces ask for their pods, by `Deployment/shop/web` and `Namespace/shop`: only annotations that policies read.
    pub workload_annotations: BTreeMap<String, BTreeMap<String, String>>,
    /// Which members StatefulSets want, by `StatefulSet/shop/db`, of those that are known.
    pub stateful_sets: Arc<BTreeMap<String, Ordinals>>,
    /// What kube-scheduler is configured to add to pods, which their constraints and requests have taken in.
    pub scheduler_profiles: Arc<SchedulerProfiles>,
    /// What has failed lately around the cluster.
    pub distress: Distress,
    /// The owners of pods have not been read yet, although a policy asks for them.
    pub owners_unknown: bool,
    /// The ledger of commands, by name; empty where there are no DisruptionPolicies.
    pub disruptions: Vec<Arc<Disruption>>,
    /// P §8.2: no tracked NodeClaim is without a provider ID.
    pub synced: bool,
}

impl Snapshot {
    /// A node by id.
    pub fn node(&self, id: NodeId) -> &NodeView {
        &self.nodes[id.index()]
    }

    /// A pod by id.
    pub fn pod(&self, id: PodId) -> &PodView {
        &self.pods[id.index()]
    }

    /// A pool by id.
    pub fn pool(&self, id: PoolId) -> &PoolView {
        &self.pools[id.index()]
    }

    /// The constraints of a pod.
    pub fn constraints(&self, id: PodId) -> &Constraints {
        &self.classes[self.pod(id).class.index()]
    }

    /// The requests of a pod.
    pub fn requests(&self, id: PodId) -> &ResourceVector {
        &self.requests[self.pod(id).request.index()]
    }

    /// Ids of all pods.
    pub fn pod_ids(&self) -> impl Iterator<Item = PodId> + use<> {
        (0..self.pods.len()).map(PodId::from)
    }

    /// Ids of all nodes.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::from)
    }

    /// Finds a node by its StateNode, Node or NodeClaim name.
    pub fn find_node(&self, name: &str) -> Option<NodeId> {
        let same = |view: &NodeView| {
            view.name == name || view.node_name() == Some(name) || view.claim_name() == Some(name)
        };
        self.nodes.iter().position(same).map(NodeId::from)
    }

    /// Finds a pool by name.
    pub fn find_pool(&self, name: &str) -> Option<PoolId> {
        self.pools
            .iter()
            .position(|pool| pool.name == name)
            .map(PoolId::from)
    }

    /// P-186: whether a rule of `owner` counts `other`. Pods that exist do not see virtual ones.
    pub fn sees(&self, owner: PodId, other: PodId) -> bool {
        self.pod(owner).is_virtual || !self.pod(other).is_virtual
    }

    /// D-008: reschedulable, not protected, and not under a PodDisruptionBudget that never allows anything.
    pub fn is_currently_reschedulable(&self, id: PodId, now: Timestamp) -> bool {
        let pod = self.pod(id);
        if !pod.reschedulable || (pod.active && pod.do_not_disrupt().is_active(now)) {
            return false;
        }
        if !pod.is_evictable(now) {
            return true;
        }
        match pod.budgets() {
            [] => true,
            [budget] => {
                let budget = &self.budgets[budget.index()];
                !budget.fully_blocking || (budget.always_allows_unhealthy && pod.ready_false)
            }
            _ => false,
        }
    }

    /// D-011, D-017…D-021: the PodDisruptionBudgets that keep an evictable pod from being evicted now. Empty when it may go; one when a
    /// budget allows nothing; all of them when several match, because Kubernetes then refuses.
    pub fn blocking_budgets(&self, id: PodId, now: Timestamp) -> &[BudgetId] {
        let pod = self.pod(id);
        if !pod.is_evictable(now) {
            return &[];
        }
        match pod.budgets() {
            [only] => {
                let budget = &self.budgets[only.index()];
                let exempt = budget.always_allows_unhealthy && pod.ready_false;
                let may_go = budget.disruptions_allowed > 0 || exempt;
                if may_go { &[] } else { pod.budgets() }
            }
            several => several,
        }
    }

    /// D-052: reschedule disruption cost in units of 2^-27: one for the node, plus the positive eviction cost of its reschedulable pods.
    pub fn disruption_cost(&self, id: NodeId) -> i64 {
        let pods = self.node(id).pods.iter().map(|pod| self.pod(*pod));
        let costs = pods
            .filter(|pod| pod.reschedulable)
            .map(|pod| i64::from(pod.eviction_cost.max(0)));
        costs.fold(crate::pod::EVICTION_COST_UNIT, i64::saturating_add)
    }
}

/// The pool with this name.
pub(crate) fn pool_id(pools: &[PoolView], name: &str) -> Option<PoolId> {
    pools.iter().position(|pool| pool.name == name).map(PoolId::from)
}
