//! A Snapshot that takes changes in, object by object, instead of being made again.
//!
//! Invariants:
//!
//! 1. After [`LiveSnapshot::apply`] the Snapshot equals `lower` of the same objects, `==`, numbers included. Decisions therefore cannot depend on the
//!    path by which a Snapshot came about: there is nothing in it that remembers one. Pods stay dense and sorted by namespace and name, nodes
//!    initialised first and then by name, classes, requests and kinds numbered by first occurrence ([`numbering`]).
//! 2. Between two changes of one `apply` the order of pods and nodes, what is bound where, and the objects are right; numbers of classes, requests
//!    and kinds may not be canonical yet, and are put right once at the end.
//! 3. What every class and vector depends on is fixed while changes are taken in: the labels that anything observes, the names of resources, the
//!    NodePools' instance types, namespaces, volumes and the nodes that volumes depend on. When a batch changes one of these, everything is lowered from
//!    the objects ([`Applied::Rebuilt`]). The sets are counted per user, so that the last user's leaving is noticed, too.
//!    Which hosts are named may change: their nodes get their kinds once at the end, too.
//! 4. The objects are kept here once: pods in the Snapshot, Nodes and NodeClaims by name, everything else as a [`ClusterState`].
//!
//! A change costs the pods of its node or of itself, and moving small records: ids behind an object that comes or goes shift by one. It reads no clock
//! and decides nothing.

mod nodes;
mod numbering;
mod pods;
mod rest;

use super::intern::{KindKey, Observed, Usage};
use super::{LoweredDaemon, Whole, daemon_owners, lower_whole, meta_key, offered};
use crate::Pod;
use crate::cluster_state::{ClusterState, Revocable};
use crate::constraints::{Constraints, NamespaceLabels};
use crate::distress::Distress;
use crate::ordinals::Ordinals;
use crate::pod;
use crate::pod_object::{PodKey, pod_key};
use crate::resources::{ResourceName, Resources};
use crate::snapshot::{NodeId, Snapshot};
use crate::vector::{ResourceTable, ResourceVector};
use crate::volumes::Around;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::CSINode;
use numbering::{Numbering, permuted};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodePool};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One change of what a Snapshot is made of. Each says how an object is from now on, so that a change given twice is the same as once.
#[derive(Clone, Debug)]
pub enum Change {
    /// A Node is new, or has changed.
    Node(Arc<Node>),
    /// The Node of this name is gone.
    NodeGone(String),
    /// A NodeClaim is new, or has changed.
    NodeClaim(Arc<NodeClaim>),
    /// The NodeClaim of this name is gone.
    NodeClaimGone(String),
    /// A pod is new, is bound, or has changed in any other way.
    Pod(Arc<Pod>),
    /// A pod is gone.
    PodGone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// It was a virtual pod of a CapacityBuffer, which may have the name of one that exists.
        is_virtual: bool,
    },
    /// A PodDisruptionBudget is new, or has changed. A new status is taken in in place.
    PodDisruptionBudget(Arc<PodDisruptionBudget>),
    /// The PodDisruptionBudget of this namespace and name is gone.
    PodDisruptionBudgetGone(String, String),
    /// Until when the node with this provider ID is kept for pods that are expected on it (D-027); `None` ends it.
    Nominated(String, Option<Timestamp>),
    /// Whether the node with this provider ID has been marked for deletion in memory (D-026).
    MarkedForDeletion(String, bool),
    /// Whether the node with this provider ID belongs to a command in the queue (D-023).
    InCommand(String, bool),
    /// The commands that have yet to begin, all of them.
    Revocable(Vec<Revocable>),
    /// A NodePool is new, or has changed. A new status, new limits and a new template are taken in in place.
    NodePool(Arc<NodePool>),
    /// A CSINode is new, or has changed: how many volumes its node can attach (P-117).
    CsiNode(Arc<CSINode>),
    /// The CSINode of this name is gone.
    CsiNodeGone(String),
    /// A DisruptionPolicy is new, or has changed.
    DisruptionPolicy(Arc<DisruptionPolicy>),
    /// The DisruptionPolicy of this name is gone.
    DisruptionPolicyGone(String),
    /// The ledger of commands, all of it.
    Disruptions(Vec<Arc<Disruption>>),
    /// What has failed lately.
    Distress(Distress),
    /// The owners of pods, all of them.
    Owners {
        /// What they ask for.
        annotations: BTreeMap<String, BTreeMap<String, String>>,
        /// Which members StatefulSets want.
        stateful_sets: Arc<BTreeMap<String, Ordinals>>,
        /// They have yet to be read.
        unknown: bool,
    },
    /// Everything anew, for what has no change of its own. The Snapshot is made again.
    Everything(Box<ClusterState>),
}

/// How changes were taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// In place.
    InPlace,
    /// Everything was lowered, because something that all of it depends on has changed.
    Rebuilt,
}

/// An object, with the provider ID under which it has an entry.
#[derive(Clone, Debug)]
struct Tracked<K> {
    object: Arc<K>,
    id: Option<String>,
}

/// What a Node and a NodeClaim with one provider ID make together. Of several the last by name counts.
#[derive(Clone, Debug, Default)]
struct Entry {
    nodes: SmallVec<[Arc<Node>; 1]>,
    claims: SmallVec<[Arc<NodeClaim>; 1]>,
    /// Whether the view in the Snapshot is initialised, and its name: where it is found.
    shown: Option<(bool, String)>,
}

/// Distinct constraints with all labels, and how many pods have them.
#[derive(Clone, Debug)]
struct Shapes {
    ids: FxHashMap<Arc<Constraints>, u32>,
    list: Vec<(Arc<Constraints>, u32)>,
    free: Vec<u32>,
}

/// A Snapshot and the indexes by which it takes changes in. See the module for what holds.
#[derive(Clone, Debug)]
pub struct LiveSnapshot {
    snapshot: Arc<Snapshot>,
    /// All objects but Nodes, NodeClaims and pods.
    rest: ClusterState,
    namespaces: NamespaceLabels,
    /// What volumes depend on beside their own objects.
    around: Around,
    /// By which labels classes and kinds are told apart.
    observed: Observed,
    /// Which labels are observed as of the last change.
    observed_now: Observed,
    shapes: Shapes,
    /// Of each pod, in order, its position in `shapes`.
    shape_of: Vec<u32>,
    classes: Numbering<Arc<Constraints>>,
    requests: Numbering<ResourceVector>,
    kinds: Numbering<KindKey>,
    /// Resource names that NodePools offer.
    offered: BTreeSet<ResourceName>,
    /// How often nodes, pods and DaemonSets name others.
    named: BTreeMap<ResourceName, u32>,
    /// By pool.
    usage: Vec<Usage>,
    usage_changed: bool,
    entries: FxHashMap<String, Entry>,
    nodes: FxHashMap<String, Tracked<Node>>,
    claims: FxHashMap<String, Tracked<NodeClaim>>,
    /// NodeClaims without a provider ID.
    unlaunched: usize,
    /// Provider IDs by the names of the Nodes and stand-ins in the Snapshot.
    shown_nodes: FxHashMap<String, String>,
    /// Pods by the names of Nodes that are not in the Snapshot, and by those of Nodes on their way out, which are promised to them no more.
    waiting: FxHashMap<String, BTreeSet<PodKey>>,
    /// Virtual pods behind pods of the same name.
    hidden: BTreeMap<PodKey, Arc<Pod>>,
    /// Active pods of DaemonSets by their UIDs, the newest first.
    daemon_pods: FxHashMap<String, BTreeSet<(Reverse<Option<Timestamp>>, PodKey)>>,
    /// UIDs of DaemonSets whose newest pod may be another.
    daemons_changed: BTreeSet<String>,
    daemons: Vec<LoweredDaemon>,
}

impl LiveSnapshot {
    /// Lowers the objects.
    pub fn new(mut state: ClusterState) -> Self {
        let whole = lower_whole(&state);
        let hidden = hidden_pods(&state.pods);
        let (nodes, claims) = (
            std::mem::take(&mut state.nodes),
            std::mem::take(&mut state.node_claims),
        );
        state.pods = Vec::new();
        let Whole {
            snapshot,
            pods,
            daemons,
            namespaces,
            around,
            observed,
            usage,
        } = whole;
        let classes = snapshot.classes.iter().cloned();
        let classes = Numbering::new(classes, snapshot.pods.iter().map(|pod| pod.class.0));
        let requests = Numbering::new(
            snapshot.requests.iter().cloned(),
            snapshot.pods.iter().map(|pod| pod.request.0),
        );
        let kinds = Numbering::new([], std::iter::empty());
        let mut live = LiveSnapshot {
            offered: names(offered(&snapshot.pools)).map(ResourceName::new).collect(),
            named: BTreeMap::new(),
            shape_of: pods.pods.iter().map(|pod| pod.constraints as u32).collect(),
            shapes: Shapes::new(pods.constraints),
            rest: state,
            namespaces,
            around,
            observed_now: observed.clone(),
            observed,
            classes,
            requests,
            kinds,
            usage,
            usage_changed: false,
            entries: FxHashMap::with_hasher(FxBuildHasher),
            nodes: FxHashMap::with_hasher(FxBuildHasher),
            claims: FxHashMap::with_hasher(FxBuildHasher),
            unlaunched: 0,
            shown_nodes: FxHashMap::with_hasher(FxBuildHasher),
            waiting: FxHashMap::with_hasher(FxBuildHasher),
            hidden,
            daemon_pods: FxHashMap::with_hasher(FxBuildHasher),
            daemons_changed: BTreeSet::new(),
            daemons,
            snapshot: Arc::new(snapshot),
        };
        live.index_shapes();
        live.index_nodes(nodes, claims);
        live.index_pods(&pods.pods, &pods.requests);
        live
    }

    /// The Snapshot, to look at it as if something were otherwise: what is changed must be changed back before the next change is taken in.
    pub fn snapshot_for_a_look(&mut self) -> &mut Snapshot {
        Arc::make_mut(&mut self.snapshot)
    }

    /// The Snapshot of the objects as they are.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The Node of a name, as it was given.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name).map(|node| &node.object)
    }

    /// The NodeClaim of a name, as it was given.
    pub fn node_claim(&self, name: &str) -> Option<&Arc<NodeClaim>> {
        self.claims.get(name).map(|claim| &claim.object)
    }

    /// The objects, as `lower` takes them. O(objects).
    pub fn state(&self) -> ClusterState {
        let pods = self.snapshot.pods.iter().map(|view| &view.object);
        ClusterState {
            nodes: self.nodes.values().map(|node| node.object.clone()).collect(),
            node_claims: self.claims.values().map(|claim| claim.object.clone()).collect(),
            pods: pods.chain(self.hidden.values()).cloned().collect(),
            ..self.rest.clone()
        }
    }

    /// Takes changes in, one after the other. The Snapshot is copied first where somebody else holds it.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> Applied {
        let mut rebuild = false;
        for change in changes {
            rebuild |= self.take(change) == Applied::Rebuilt;
        }
        if rebuild || !self.settle() {
            *self = Self::new(self.state());
            return Applied::Rebuilt;
        }
        Applied::InPlace
    }

    /// Takes one change into objects and indexes. `Rebuilt` asks for a rebuild when all changes are in.
    fn take(&mut self, change: Change) -> Applied {
        match change {
            Change::Node(node) => self.set_node(node),
            Change::NodeGone(name) => self.remove_node(&name),
            Change::NodeClaim(claim) => self.set_claim(claim),
            Change::NodeClaimGone(name) => self.remove_claim(&name),
            Change::Pod(pod) => self.set_pod(pod),
            Change::PodGone {
                namespace,
                name,
                is_virtual,
            } => self.remove_pod((namespace, name), is_virtual),
            Change::Nominated(id, until) => self.set_nominated(id, until),
            Change::MarkedForDeletion(id, marked) => self.set_marked(id, marked),
            Change::InCommand(id, held) => self.set_in_command(id, held),
            Change::Revocable(revocable) => {
                self.rest.revocable = revocable;
                self.usage_changed = true;
            }
            Change::CsiNode(object) => {
                let name = object.metadata.name.clone().unwrap_or_default();
                self.rest.volumes.csi_nodes.insert(name.clone(), object);
                self.refresh_named(&name);
            }
            Change::CsiNodeGone(name) => {
                self.rest.volumes.csi_nodes.remove(&name);
                self.refresh_named(&name);
            }
            Change::PodDisruptionBudget(budget) => return self.set_budget(budget),
            Change::PodDisruptionBudgetGone(namespace, name) => {
                return self.remove_budget(&namespace, &name);
            }
            Change::NodePool(pool) => return self.set_pool(pool),
            Change::DisruptionPolicy(policy) => self.set_policy(policy),
            Change::DisruptionPolicyGone(name) => self.remove_policy(&name),
            Change::Disruptions(disruptions) => self.set_disruptions(disruptions),
            Change::Distress(distress) => {
                self.rest.distress = distress;
                Arc::make_mut(&mut self.snapshot).distress = self.rest.distress.clone();
            }
            Change::Owners {
                annotations,
                stateful_sets,
                unknown,
            } => self.set_owners(annotations, stateful_sets, unknown),
            Change::Everything(state) => *self = Self::new(*state),
        }
        Applied::InPlace
    }

    /// Puts right what is put right once for all changes. False when everything must be lowered.
    fn settle(&mut self) -> bool {
        self.settle_daemons();
        let is_same =
            self.around.is_current() && self.observed.is_same(&self.observed_now) && self.has_same_names();
        if !is_same {
            return false;
        }
        // Before kinds are numbered.
        self.settle_hosts();
        let snapshot = Arc::make_mut(&mut self.snapshot);
        if let Some(new) = self.classes.renumber(snapshot.pods.iter().map(|pod| pod.class.0)) {
            let classes = snapshot.classes.take();
            snapshot.classes = permuted(classes, &new).into();
            for pod in &mut snapshot.pods {
                pod.class.0 = new[pod.class.index()].unwrap_or_default();
            }
        }
        if let Some(new) = self
            .requests
            .renumber(snapshot.pods.iter().map(|pod| pod.request.0))
        {
            let requests = Arc::unwrap_or_clone(std::mem::take(&mut snapshot.requests));
            snapshot.requests = permuted(requests, &new).into();
            for pod in &mut snapshot.pods {
                pod.request.0 = new[pod.request.index()].unwrap_or_default();
            }
        }
        if let Some(new) = self.kinds.renumber(snapshot.nodes.iter().map(|node| node.kind.0)) {
            snapshot.kinds = permuted(std::mem::take(&mut snapshot.kinds), &new);
            for node in &mut snapshot.nodes {
                node.kind.0 = new[node.kind.index()].unwrap_or_default();
            }
        }
        snapshot.synced = self.unlaunched == 0;
        if std::mem::take(&mut self.usage_changed) {
            self.settle_usage();
        }
        true
    }

    /// Whether the names of resources are those of the table.
    fn has_same_names(&self) -> bool {
        let known = self.snapshot.resources.occurring();
        let has = |name: &ResourceName| self.offered.contains(name) || self.named.contains_key(name);
        // Each known name is still there, and no other is.
        let others = self
            .named
            .keys()
            .filter(|name| known.binary_search(name).is_err());
        others.count() == 0 && known.iter().all(has)
    }

    /// Counts the names of resources.
    fn name(&mut self, resources: &Resources) {
        for name in names([resources]) {
            match self.named.get_mut(name) {
                Some(count) => *count += 1,
                None => _ = self.named.insert(ResourceName::new(name), 1),
            }
        }
    }

    /// Takes back what [`name`](Self::name) has counted.
    fn unname(&mut self, resources: &Resources) {
        for name in names([resources]) {
            let Some(count) = self.named.get_mut(name) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.named.remove(name);
            }
        }
    }

    /// The node in the Snapshot that a Node of this name is.
    fn shown_node(&self, name: &str) -> Option<NodeId> {
        self.shown_entry(self.shown_nodes.get(name)?)
    }
}

/// Names of resources that not every table has.
fn names<'a>(all: impl IntoIterator<Item = &'a Resources>) -> impl Iterator<Item = &'a str> {
    let names = all
        .into_iter()
        .flat_map(|resources| resources.iter().map(|(name, _)| name));
    names.filter(|name| !ResourceTable::is_always_there(name))
}

/// Virtual pods that have the name of a pod that exists.
fn hidden_pods(pods: &[Arc<Pod>]) -> BTreeMap<PodKey, Arc<Pod>> {
    if !pods.iter().any(|pod| pod::is_virtual(pod)) {
        return BTreeMap::new();
    }
    let exists: BTreeSet<(&str, &str)> = pods
        .iter()
        .filter(|pod| !pod::is_virtual(pod))
        .map(|pod| meta_key(&pod.metadata))
        .collect();
    let hidden = pods
        .iter()
        .filter(|pod| pod::is_virtual(pod) && exists.contains(&meta_key(&pod.metadata)));
    hidden.map(|pod| (pod_key(pod), pod.clone())).collect()
}
