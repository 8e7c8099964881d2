//! The one place where Kubernetes objects become a Snapshot.
//!
//! Each object is read by itself (`pod`, `constraints`, `state_node`), then ids are given out in sorted order. The result depends on the objects
//! only: not on the order in which they arrived, and not on the time. An object that cannot be read loses its own meaning, never others'.

mod building;
mod pods;
mod update;

use crate::Pod;
use crate::constraints::{self, Constraints, NamespaceLabels};
use crate::default_spread::DefaultSpread;
use crate::distress::Distress;
use crate::instance_type::InstanceType;
use crate::labels;
use crate::pod::{self, DoNotDisrupt};
use crate::requirement::{Requirement, RequirementError};
use crate::requirements::Requirements;
use crate::resources::{ResourceName, Resources};
use crate::selector::Selector;
use crate::snapshot::{
    BudgetId, BudgetView, ClassId, DaemonView, InstanceTypesProblem, KindId, NodeId, NodeKind, NodeView,
    PodId, PodView, PoolId, PoolView, RequestId, Seniority, Snapshot,
};
use crate::state_node;
use crate::vector::{ResourceTable, ResourceVector};
use crate::volumes::VolumeObjects;
use crate::workload_annotations;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pods::LoweredPods;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodePool};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A command that is decided and may not stand: both its nodes and what would replace them are among the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotBegun {
    /// Provider IDs of the nodes that would go, marked for deletion.
    pub leaves: BTreeSet<String>,
    /// Provider IDs of the stand-ins for what would come.
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
    /// Topology spread for pods that have none (P-121).
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
    /// Commands that have yet to begin.
    pub not_begun: Vec<NotBegun>,
    /// Provider IDs that belong to a command in the queue (D-023).
    pub in_command: BTreeSet<String>,
    /// What owners of pods ask for their pods by annotation, by `Deployment/shop/web`.
    pub owner_annotations: BTreeMap<String, BTreeMap<String, String>>,
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

impl Requirement {
    /// From an entry of a NodePool or NodeClaim.
    pub fn from_api(entry: &spokeshave_api::Requirement) -> Result<Self, RequirementError> {
        let min_values = entry.min_values.and_then(|count| u32::try_from(count).ok());
        Ok(Self::parse(&entry.key, entry.operator.as_str(), &entry.values)?.with_min_values(min_values))
    }

    /// As entries of a NodePool or NodeClaim (P-039).
    pub fn to_api(&self) -> Vec<spokeshave_api::Requirement> {
        let entry =
            |(operator, values, min_values): (crate::requirement::Operator, Vec<String>, Option<u32>)| {
                spokeshave_api::Requirement {
                    key: self.key().to_owned(),
                    operator: spokeshave_api::Operator::from(operator.as_str()),
                    values,
                    min_values: min_values.and_then(|count| i32::try_from(count).ok()),
                }
            };
        self.to_entries().into_iter().map(entry).collect()
    }
}

impl Requirements {
    /// From the requirements of a NodePool or NodeClaim.
    pub fn from_api<'a>(
        entries: impl IntoIterator<Item = &'a spokeshave_api::Requirement>,
    ) -> Result<Self, RequirementError> {
        entries.into_iter().map(Requirement::from_api).collect()
    }
}

/// Makes a Snapshot.
pub fn lower(state: &ClusterState) -> Snapshot {
    let namespaces: NamespaceLabels = state
        .namespaces
        .iter()
        .map(|namespace| {
            (
                name(&namespace.metadata),
                namespace.metadata.labels.clone().unwrap_or_default(),
            )
        })
        .collect();
    let mut pods: Vec<Arc<Pod>> = state.pods.clone();
    pods.sort_by(|left, right| {
        let names = meta_key(&left.metadata).cmp(&meta_key(&right.metadata));
        // A pod that exists comes before a virtual one of the same name.
        names.then_with(|| pod::is_virtual(left).cmp(&pod::is_virtual(right)))
    });
    pods.dedup_by(|left, right| meta_key(&left.metadata) == meta_key(&right.metadata));
    let mut pools = lower_pools(state);
    let mut nodes = state_node::join(state, &pools);
    let lowered = LoweredPods::new(&pods, &namespaces, &state.volumes, &state.default_spread);
    let daemons = lower_daemons(state, &pods, &lowered, &namespaces);
    let table = resource_table(&pools, &nodes, &lowered, &daemons);
    let budgets = lower_budgets(state);

    let observed = Observed::of(&lowered, &daemons);
    let (classes, requests, mut views) = intern_pods(&pods, lowered, &observed, &table, &budgets);
    bind_pods(&mut nodes, &mut views, &table, &requests);
    let kinds = intern_kinds(&mut nodes, &observed);
    for pool in &mut pools {
        pool.usage = Resources::new();
    }
    for node in nodes.iter().filter(|node| !node.marked_for_deletion) {
        if let Some(pool) = node.pool {
            let usage = &mut pools[pool.index()].usage;
            usage.add(&node.capacity);
            usage.add(&Resources::from_amounts([(ResourceName::NODES, 1)]));
        }
    }
    for command in &state.not_begun {
        count_as_it_may_end(&mut pools, &nodes, command);
    }
    for node in &mut nodes {
        node.allocatable = table.vector(&node.allocatable_resources);
    }
    let synced = state
        .node_claims
        .iter()
        .all(|claim| claim.provider_id().is_some());
    Snapshot {
        well_known: well_known(&pools),
        daemons: daemons
            .into_iter()
            .map(|daemon| DaemonView {
                key: daemon.0,
                constraints: daemon.1,
                requests: table.vector(&daemon.2),
            })
            .collect(),
        requests,
        resources: table,
        pools,
        nodes,
        pods: views,
        classes,
        kinds,
        budgets,
        workload_annotations: workload_annotations::of(state),
        distress: state.distress.clone(),
        owners_unknown: state.owners_unknown,
        disruption_policies: by_name(&state.disruption_policies, DisruptionPolicy::name),
        disruptions: by_name(&state.disruptions, Disruption::name),
        synced,
    }
}

fn by_name<T>(objects: &[Arc<T>], name: fn(&T) -> &str) -> Vec<Arc<T>> {
    let mut sorted = objects.to_vec();
    sorted.sort_by(|left, right| name(left).cmp(name(right)));
    sorted
}

fn name(meta: &ObjectMeta) -> String {
    meta.name.clone().unwrap_or_default()
}

fn meta_key(meta: &ObjectMeta) -> (&str, &str) {
    (
        meta.namespace.as_deref().unwrap_or(""),
        meta.name.as_deref().unwrap_or(""),
    )
}

fn lower_pools(state: &ClusterState) -> Vec<PoolView> {
    let mut pools: Vec<PoolView> = state
        .node_pools
        .iter()
        .map(|pool| lower_pool(pool, state))
        .collect();
    pools.sort_by(|left, right| {
        right
            .weight
            .cmp(&left.weight)
            .then_with(|| right.name.cmp(&left.name))
    });
    pools
}

fn lower_pool(pool: &Arc<NodePool>, state: &ClusterState) -> PoolView {
    let template = &pool.spec.template;
    let class = &template.spec.node_class_ref;
    let requirements = Requirements::from_api(&template.spec.requirements);
    // A requirement from a future version means that we do not understand which nodes the pool wants: launch none.
    let understood = requirements.is_ok();
    let mut requirements = requirements.unwrap_or_default();
    requirements.add_all(&Requirements::from_labels(&template.metadata.labels));
    requirements.add(Requirement::is(labels::NODE_POOL, pool.name()));
    requirements.add(Requirement::is(&class.label_key(), &class.name));
    let supported = state.supported_node_classes.is_empty()
        || state
            .supported_node_classes
            .iter()
            .any(|(group, kind)| *group == class.group && *kind == class.kind);
    let conditions = pool
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    let (instance_types, problem) = match state.instance_types.get(pool.name()) {
        Some(Ok(types)) => (Arc::clone(types), None),
        Some(Err(problem)) => (Arc::from(Vec::new()), Some(problem.clone())),
        None => (Arc::from(Vec::new()), Some(InstanceTypesProblem::Unevaluated)),
    };
    PoolView {
        name: pool.name().to_owned(),
        uid: pool.uid().to_owned(),
        weight: pool.weight(),
        is_static: pool.is_static(),
        ready: conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        deleting: pool.is_deleting(),
        supported: supported && understood,
        requirements,
        taints: template.spec.taints.clone(),
        limits: Resources::from_quantities_lossy(pool.spec.limits.as_ref()),
        usage: Resources::new(),
        instance_types,
        instance_types_problem: problem,
        object: Arc::clone(pool),
    }
}

fn well_known(pools: &[PoolView]) -> BTreeSet<String> {
    let mut keys: BTreeSet<String> = labels::WELL_KNOWN.iter().map(ToString::to_string).collect();
    for instance_type in pools.iter().flat_map(|pool| pool.instance_types.iter()) {
        let offered = instance_type
            .offerings
            .iter()
            .map(|offering| &offering.requirements);
        for requirements in std::iter::once(&instance_type.requirements).chain(offered) {
            for key in requirements.iter().map(Requirement::key) {
                if !keys.contains(key) {
                    keys.insert(key.to_owned());
                }
            }
        }
    }
    keys
}

/// (key, constraints, requests) per DaemonSet, by namespace and name.
fn lower_daemons(
    state: &ClusterState,
    pods: &[Arc<Pod>],
    lowered: &LoweredPods,
    namespaces: &NamespaceLabels,
) -> Vec<(String, Constraints, Resources)> {
    let mut newest: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, pod) in pods
        .iter()
        .enumerate()
        .filter(|(_, pod)| pod::is_active(pod) && pod::is_daemon(pod))
    {
        let owners = pod
            .metadata
            .owner_references
            .iter()
            .flatten()
            .filter(|owner| owner.kind == "DaemonSet");
        for owner in owners {
            let entry = newest.entry(owner.uid.as_str()).or_insert(index);
            if pods[*entry].metadata.creation_timestamp < pod.metadata.creation_timestamp {
                *entry = index;
            }
        }
    }
    let mut daemons: Vec<(String, Constraints, Resources)> = state
        .daemon_sets
        .iter()
        .filter(|daemon_set| daemon_set.metadata.deletion_timestamp.is_none())
        .map(|daemon_set| {
            let (namespace, name) = meta_key(&daemon_set.metadata);
            let template = Pod {
                metadata: ObjectMeta {
                    namespace: Some(namespace.to_owned()),
                    ..daemon_set.spec.template.metadata.clone().unwrap_or_default()
                },
                spec: daemon_set.spec.template.spec.clone().map(Arc::new),
                ..Pod::default()
            };
            let from_template = constraints::lower(&template, namespaces);
            let live = daemon_set
                .metadata
                .uid
                .as_deref()
                .and_then(|uid| newest.get(uid))
                .map(|index| lowered.of(*index));
            let (constraints, requests) = match live {
                // The live pod is pinned to its host; the template's required affinity undoes that (P-062).
                Some((constraints, requests)) => (
                    Constraints {
                        required_terms: from_template.required_terms,
                        ..constraints.clone()
                    },
                    requests.clone(),
                ),
                None => {
                    let spec = template.spec.as_deref();
                    let requests = spec.map(pod::requests_of_template);
                    (from_template, requests.unwrap_or_default())
                }
            };
            (format!("{namespace}/{name}"), constraints, requests)
        })
        .collect();
    daemons.sort_by(|left, right| left.0.cmp(&right.0));
    daemons
}

fn resource_table(
    pools: &[PoolView],
    nodes: &[NodeView],
    pods: &LoweredPods,
    daemons: &[(String, Constraints, Resources)],
) -> ResourceTable {
    let types = pools.iter().flat_map(|pool| pool.instance_types.iter());
    let overrides = types
        .clone()
        .flat_map(|instance_type| &instance_type.offerings)
        .filter_map(|offering| offering.overrides.as_ref().map(|overrides| &overrides.capacity));
    let occurring = types
        .map(|instance_type| &instance_type.capacity)
        .chain(overrides)
        .chain(
            nodes
                .iter()
                .flat_map(|node| [&node.capacity, &node.allocatable_resources]),
        )
        .chain(&pods.requests)
        .chain(daemons.iter().map(|daemon| &daemon.2));
    ResourceTable::new(occurring)
}

/// A command that does not stand leaves its nodes, one that does brings others: limits must hold either way.
fn count_as_it_may_end(pools: &mut [PoolView], nodes: &[NodeView], command: &NotBegun) {
    let mut totals: BTreeMap<PoolId, [Resources; 2]> = BTreeMap::new();
    for node in nodes {
        let Some(pool) = node.pool else { continue };
        for (side, ids) in [&command.leaves, &command.comes].into_iter().enumerate() {
            if ids.contains(&node.provider_id) {
                let total = &mut totals.entry(pool).or_default()[side];
                total.add(&node.capacity);
                total.add(&Resources::from_amounts([(ResourceName::NODES, 1)]));
            }
        }
    }
    for (pool, [leaves, comes]) in totals {
        let mut most = comes.clone();
        most.raise_to(&leaves);
        let usage = &mut pools[pool.index()].usage;
        usage.subtract(&comes);
        usage.add(&most);
    }
}

fn lower_budgets(state: &ClusterState) -> Vec<BudgetView> {
    let mut budgets: Vec<BudgetView> = state
        .pod_disruption_budgets
        .iter()
        .map(|budget| {
            let spec = budget.spec.as_ref();
            let text = |value: Option<&IntOrString>| match value {
                Some(IntOrString::Int(number)) => number.to_string(),
                Some(IntOrString::String(text)) => format!("\"{text}\""),
                None => String::new(),
            };
            let unavailable = text(spec.and_then(|spec| spec.max_unavailable.as_ref()));
            let available = text(spec.and_then(|spec| spec.min_available.as_ref()));
            let policy = spec.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
            let (namespace, name) = meta_key(&budget.metadata);
            let status = budget.status.as_ref();
            // D-016: nobody knows whom it was meant to protect, so it protects its whole namespace.
            let understood = Selector::understand(spec.and_then(|spec| spec.selector.as_ref()));
            let is_understood = understood.is_some();
            let allowed = status.and_then(|status| status.disruptions_allowed).unwrap_or(0);
            let disruptions_allowed = if is_understood { allowed } else { 0 };
            let never = unavailable == "0" || unavailable == "\"0%\"" || available == "\"100%\"";
            BudgetView {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                selector: understood.unwrap_or_else(Selector::everything),
                disruptions_allowed,
                // A workload that was scaled down has more healthy pods than it wants, and for so long the API server lets some go.
                fully_blocking: never && disruptions_allowed <= 0,
                always_allows_unhealthy: is_understood && policy == Some("AlwaysAllow"),
            }
        })
        .collect();
    budgets.sort_by(|left, right| (&left.namespace, &left.name).cmp(&(&right.namespace, &right.name)));
    budgets
}

/// Which labels anything in the cluster looks at.
struct Observed {
    pod_labels: BTreeSet<String>,
    node_labels: BTreeSet<String>,
    any_selector: bool,
}

impl Observed {
    fn of(pods: &LoweredPods, daemons: &[(String, Constraints, Resources)]) -> Self {
        let mut observed = Observed {
            pod_labels: BTreeSet::new(),
            node_labels: BTreeSet::new(),
            any_selector: false,
        };
        let add = |set: &mut BTreeSet<String>, key: &str| {
            if !set.contains(key) {
                set.insert(key.to_owned());
            }
        };
        let all = pods
            .constraints
            .iter()
            .chain(daemons.iter().map(|daemon| &daemon.1));
        for constraints in all {
            for selector in constraints.selectors() {
                observed.any_selector = true;
                selector.keys().for_each(|key| add(&mut observed.pod_labels, key));
            }
            let terms = constraints.required_terms.iter().chain(&constraints.volume_terms);
            let terms = terms.chain(constraints.preferred_terms.iter().map(|(_, term)| term));
            for requirements in std::iter::once(&constraints.node_selector).chain(terms) {
                requirements
                    .iter()
                    .for_each(|requirement| add(&mut observed.node_labels, requirement.key()));
            }
        }
        observed
    }
}

fn intern_pods(
    pods: &[Arc<Pod>],
    lowered: LoweredPods,
    observed: &Observed,
    table: &ResourceTable,
    budgets: &[BudgetView],
) -> (Vec<Constraints>, Vec<ResourceVector>, Vec<PodView>) {
    let mut classes: Vec<Constraints> = Vec::new();
    let mut class_ids: FxHashMap<Arc<Constraints>, ClassId> = FxHashMap::with_hasher(FxBuildHasher);
    let mut requests: Vec<ResourceVector> = Vec::new();
    let mut request_ids: FxHashMap<ResourceVector, RequestId> = FxHashMap::with_hasher(FxBuildHasher);
    let mut views = Vec::with_capacity(pods.len());
    let mut class_of: Vec<Option<ClassId>> = vec![None; lowered.constraints.len()];
    let mut request_of: Vec<Option<RequestId>> = vec![None; lowered.requests.len()];
    for (object, pod) in pods.iter().zip(lowered.pods) {
        let labels = object.metadata.labels.as_ref();
        let class = *class_of[pod.constraints].get_or_insert_with(|| {
            let mut constraints = lowered.constraints[pod.constraints].clone();
            if observed.any_selector {
                constraints
                    .labels
                    .retain(|key, _| observed.pod_labels.contains(key));
            } else {
                constraints.labels.clear();
                constraints.namespace.clear();
            }
            class_ids.get(&constraints).copied().unwrap_or_else(|| {
                let id = ClassId::from(classes.len());
                classes.push(constraints.clone());
                class_ids.insert(Arc::new(constraints), id);
                id
            })
        });
        let request = *request_of[pod.requests].get_or_insert_with(|| {
            let vector = table.vector(&lowered.requests[pod.requests]);
            request_ids.get(&vector).copied().unwrap_or_else(|| {
                let id = RequestId::from(requests.len());
                requests.push(vector.clone());
                request_ids.insert(vector, id);
                id
            })
        });
        let (namespace, _) = meta_key(&object.metadata);
        let empty = BTreeMap::new();
        // Budgets are sorted by namespace, so those of this pod are one run.
        let first = budgets.partition_point(|budget| budget.namespace.as_str() < namespace);
        let same_namespace = budgets[first..]
            .iter()
            .take_while(|budget| budget.namespace == namespace);
        let selected = (first..)
            .zip(same_namespace)
            .filter(|(_, budget)| budget.selector.matches(labels.unwrap_or(&empty)));
        let budgets = selected.map(|(index, _)| BudgetId::from(index)).collect();
        let mut view = pod_view(object, class, request, budgets);
        view.attachments = pod.attachments;
        view.problem = pod.problem;
        views.push(view);
    }
    (classes, requests, views)
}

/// What of a pod depends on nothing but itself.
fn pod_view(object: &Arc<Pod>, class: ClassId, request: RequestId, budgets: Vec<BudgetId>) -> PodView {
    let is_virtual = pod::is_virtual(object);
    PodView {
        class,
        request,
        node: None,
        provisionable: pod::is_provisionable(object),
        active: pod::is_active(object),
        terminal: pod::is_terminal(object),
        reschedulable: pod::is_reschedulable(object),
        daemon: pod::is_daemon(object),
        mirror: pod::is_mirror(object),
        tolerates_disrupted_taint: pod::tolerates_disrupted_taint(object),
        do_not_disrupt: DoNotDisrupt::of(object),
        ready_false: pod::is_ready_false(object),
        // D-374: room that is kept costs nobody anything to move.
        eviction_cost: if is_virtual { 0 } else { pod::eviction_cost(object) },
        attachments: Vec::new(),
        problem: None,
        budgets: if is_virtual { Vec::new() } else { budgets },
        is_virtual,
        seniority: Seniority::of(object),
        object: Arc::clone(object),
    }
}

fn bind_pods(
    nodes: &mut [NodeView],
    pods: &mut [PodView],
    table: &ResourceTable,
    requests: &[ResourceVector],
) {
    let by_name: FxHashMap<String, usize> = nodes
        .iter()
        .enumerate()
        .filter_map(|(index, node)| Some((node.node_name()?.to_owned(), index)))
        .collect();
    for node in nodes.iter_mut() {
        node.requested = ResourceVector::zero(table.width());
        node.daemon_requested = ResourceVector::zero(table.width());
    }
    for (index, pod) in pods.iter_mut().enumerate() {
        let Some(node) = pod::node_name(&pod.object).and_then(|name| by_name.get(name)) else {
            continue;
        };
        pod.node = Some(NodeId::from(*node));
        let node = &mut nodes[*node];
        node.pods.push(PodId::from(index));
        if !pod.terminal {
            let request = &requests[pod.request.index()];
            node.requested.add(request);
            if pod.daemon {
                node.daemon_requested.add(request);
            }
        }
    }
}

fn intern_kinds(nodes: &mut [NodeView], observed: &Observed) -> Vec<NodeKind> {
    let mut kinds: Vec<NodeKind> = Vec::new();
    let mut ids: FxHashMap<(Requirements, String), KindId> = FxHashMap::with_hasher(FxBuildHasher);
    for node in nodes {
        let seen = node
            .labels
            .iter()
            .filter(|(key, _)| observed.node_labels.contains(labels::normalize(key)));
        let mut requirements = Requirements::from_labels(seen);
        if observed.node_labels.contains(labels::HOSTNAME) {
            requirements.replace(Requirement::is(labels::HOSTNAME, &node.hostname));
        }
        let taints: Vec<String> = node.taints.iter().map(crate::taint::format_taint).collect();
        let key = (requirements, taints.join(","));
        node.kind = ids.get(&key).copied().unwrap_or_else(|| {
            let id = KindId::from(kinds.len());
            kinds.push(NodeKind {
                requirements: key.0.clone(),
                taints: node.taints.clone(),
            });
            ids.insert(key, id);
            id
        });
    }
    kinds
}

/// The pool with this name.
pub(crate) fn pool_id(pools: &[PoolView], name: &str) -> Option<PoolId> {
    pools.iter().position(|pool| pool.name == name).map(PoolId::from)
}
