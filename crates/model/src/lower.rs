//! The one place where Kubernetes objects become a Snapshot.
//!
//! Each object is read by itself (`pod`, `constraints`, `state_node`), then ids are given out in sorted order. The result depends on the objects
//! only: not on the order in which they arrived, and not on the time. An object that cannot be read loses its own meaning, never others'.

mod intern;
mod live;
mod pods;

use crate::Pod;
use crate::cluster_state::{ClusterState, Revocable};
use crate::constraints::{self, Constraints, NamespaceLabels};
use crate::labels;
use crate::pod;
use crate::requirement::{Requirement, RequirementError};
use crate::requirements::Requirements;
use crate::resources::{ResourceName, Resources};
use crate::scheduler_profiles::SchedulerProfiles;
use crate::selector::Selector;
use crate::snapshot::{BudgetView, DaemonView, InstanceTypesProblem, NodeView, PoolId, PoolView, Snapshot};
use crate::state_node;
use crate::vector::ResourceTable;
use crate::volumes::Around;
use crate::workload_annotations;
use intern::{Observed, Usage, bind_pods, intern_kinds, intern_pods};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
pub use live::{Applied, Change, LiveSnapshot};
use pods::LoweredPods;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{DisruptionPolicy, NodePool};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    lower_whole(state).snapshot
}

/// A Snapshot with what it was made of.
struct Whole {
    snapshot: Snapshot,
    pods: LoweredPods,
    daemons: Vec<LoweredDaemon>,
    namespaces: NamespaceLabels,
    around: Around,
    observed: Observed,
    usage: Vec<Usage>,
}

/// (`namespace/name`, constraints, requests) of a DaemonSet.
type LoweredDaemon = (String, Constraints, Resources);

fn lower_whole(state: &ClusterState) -> Whole {
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
    let around = Around::new(&state.volumes, &nodes, &pods);
    let mut lowered = LoweredPods::new(&pods, &namespaces, state, &around);
    let daemons = lower_daemons(state, &pods, &lowered, &namespaces);
    let table = resource_table(&pools, &nodes, &lowered, &daemons);
    let budgets = lower_budgets(state);

    let observed = Observed::of(&lowered, &daemons);
    let (classes, requests, mut views) = intern_pods(&pods, &mut lowered, &observed, &table, &budgets);
    bind_pods(&mut nodes, &mut views, &table, &requests);
    let kinds = intern_kinds(&mut nodes, &observed);
    let mut usage = vec![Usage::default(); pools.len()];
    for node in nodes.iter().filter(|node| !node.marked_for_deletion) {
        if let Some(pool) = node.counts_in(&pools) {
            usage[pool.index()].add(&node.capacity);
        }
    }
    set_usage(&mut pools, &usage, &state.revocable, || {
        let by_id: BTreeMap<&str, &NodeView> = nodes
            .iter()
            .map(|node| (node.provider_id.as_str(), node))
            .collect();
        move |id: &str| by_id.get(id).copied()
    });
    for node in &mut nodes {
        node.allocatable = table.vector(&node.allocatable_resources);
    }
    let synced = state
        .node_claims
        .iter()
        .all(|claim| claim.provider_id().is_some());
    let snapshot = Snapshot {
        well_known: well_known(&pools),
        daemons: daemons.iter().map(|daemon| daemon_view(daemon, &table)).collect(),
        requests: requests.into(),
        resources: table,
        pools,
        nodes,
        pods: views,
        classes: classes.into(),
        kinds,
        budgets,
        workload_annotations: workload_annotations::of(state),
        stateful_sets: Arc::clone(&state.stateful_sets),
        scheduler_profiles: Arc::clone(&state.scheduler_profiles),
        distress: state.distress.clone(),
        owners_unknown: state.owners_unknown,
        disruption_policies: by_name(&state.disruption_policies, DisruptionPolicy::name),
        disruptions: by_name(&state.disruptions, Disruption::name),
        synced,
    };
    Whole {
        snapshot,
        pods: lowered,
        daemons,
        namespaces,
        around,
        observed,
        usage,
    }
}

fn daemon_view((key, constraints, requests): &LoweredDaemon, table: &ResourceTable) -> DaemonView {
    DaemonView {
        key: key.clone(),
        constraints: constraints.clone(),
        requests: table.vector(requests),
    }
}

/// What NodePools use: the sums over their nodes, and what commands that may not stand can add to them. `finder` makes what finds a node by its
/// provider ID, when it is needed.
fn set_usage<'a, F: Fn(&str) -> Option<&'a NodeView>>(
    pools: &mut [PoolView],
    usage: &[Usage],
    revocable: &[Revocable],
    finder: impl FnOnce() -> F,
) {
    for (pool, usage) in pools.iter_mut().zip(usage) {
        pool.usage = usage.total();
    }
    if !revocable.is_empty() {
        let find = finder();
        for command in revocable {
            count_as_it_may_end(pools, &find, command);
        }
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

/// DaemonSets, by namespace and name.
fn lower_daemons(
    state: &ClusterState,
    pods: &[Arc<Pod>],
    lowered: &LoweredPods,
    namespaces: &NamespaceLabels,
) -> Vec<LoweredDaemon> {
    let mut newest: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, pod) in pods.iter().enumerate() {
        for owner in daemon_owners(pod) {
            let entry = newest.entry(owner).or_insert(index);
            if pods[*entry].metadata.creation_timestamp < pod.metadata.creation_timestamp {
                *entry = index;
            }
        }
    }
    let mut daemons: Vec<LoweredDaemon> = state
        .daemon_sets
        .iter()
        .filter(|daemon_set| daemon_set.metadata.deletion_timestamp.is_none())
        .map(|daemon_set| {
            let uid = daemon_set.metadata.uid.as_deref();
            let live = uid.and_then(|uid| newest.get(uid));
            let live = live.map(|index| lowered.of(*index));
            lower_daemon(daemon_set, live, namespaces, &state.scheduler_profiles)
        })
        .collect();
    daemons.sort_by(|left, right| left.0.cmp(&right.0));
    daemons
}

/// UIDs of the DaemonSets that an active pod stands for.
fn daemon_owners(pod: &Pod) -> impl Iterator<Item = &str> {
    let stands = pod::is_active(pod) && pod::is_daemon(pod);
    let owners = pod.metadata.owner_references.iter().flatten();
    let owners = owners.filter(move |owner| stands && owner.kind == "DaemonSet");
    owners.map(|owner| owner.uid.as_str())
}

/// A DaemonSet with the constraints and requests of its newest pod, if it has one.
fn lower_daemon(
    daemon_set: &DaemonSet,
    live: Option<(&Constraints, &Resources)>,
    namespaces: &NamespaceLabels,
    profiles: &SchedulerProfiles,
) -> LoweredDaemon {
    let (namespace, name) = meta_key(&daemon_set.metadata);
    let template = Pod {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            ..daemon_set.spec.template.metadata.clone().unwrap_or_default()
        },
        spec: daemon_set.spec.template.spec.clone().map(Arc::new),
        ..Pod::default()
    };
    let mut from_template = constraints::lower(&template, namespaces);
    let profile = profiles.of(&template);
    if let Some(profile) = profile {
        profile.add_affinity(&mut from_template);
    }
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
            let mut requests = requests.unwrap_or_default();
            if let Some(profile) = profile {
                profile.ignored_resources.take_from(&mut requests);
            }
            (from_template, requests)
        }
    };
    (format!("{namespace}/{name}"), constraints, requests)
}

/// Capacities that NodePools offer.
fn offered(pools: &[PoolView]) -> impl Iterator<Item = &Resources> {
    let types = pools.iter().flat_map(|pool| pool.instance_types.iter());
    let overrides = types
        .clone()
        .flat_map(|instance_type| &instance_type.offerings)
        .filter_map(|offering| offering.overrides.as_ref().map(|overrides| &overrides.capacity));
    types
        .map(|instance_type| &instance_type.capacity)
        .chain(overrides)
}

fn resource_table(
    pools: &[PoolView],
    nodes: &[NodeView],
    pods: &LoweredPods,
    daemons: &[LoweredDaemon],
) -> ResourceTable {
    let of_nodes = nodes
        .iter()
        .flat_map(|node| [&node.capacity, &node.allocatable_resources]);
    let occurring = offered(pools)
        .chain(of_nodes)
        .chain(&pods.requests)
        .chain(daemons.iter().map(|daemon| &daemon.2));
    ResourceTable::new(occurring)
}

/// A command that is taken back leaves its nodes, one that stands brings others: limits must hold either way.
fn count_as_it_may_end<'a>(
    pools: &mut [PoolView],
    find: impl Fn(&str) -> Option<&'a NodeView>,
    command: &Revocable,
) {
    for (pool, surplus) in surplus(pools, find, command) {
        pools[pool.index()].usage.add(&surplus);
    }
}

/// What a command leaves, if it is taken back, beyond what it brings if it stands, by NodePool; the latter counts anyway.
fn surplus<'a>(
    pools: &[PoolView],
    find: impl Fn(&str) -> Option<&'a NodeView>,
    command: &Revocable,
) -> BTreeMap<PoolId, Resources> {
    let mut totals: BTreeMap<PoolId, [Resources; 2]> = BTreeMap::new();
    for (side, ids) in [&command.leaves, &command.comes].into_iter().enumerate() {
        for node in ids.iter().filter_map(|id| find(id)) {
            let Some(pool) = node.counts_in(pools) else {
                continue;
            };
            let total = &mut totals.entry(pool).or_default()[side];
            total.add(&node.capacity);
            total.add(&Resources::from_amounts([(ResourceName::NODES, 1)]));
        }
    }
    let beyond = |[leaves, comes]: [Resources; 2]| {
        let mut beyond = comes.clone();
        beyond.raise_to(&leaves);
        beyond.subtract(&comes);
        beyond
    };
    totals
        .into_iter()
        .map(|(pool, sides)| (pool, beyond(sides)))
        .collect()
}

impl Snapshot {
    /// What a NodePool uses if this command, which is among those that may yet be taken back, stands.
    pub fn usage_if_it_stands(&self, pool: PoolId, command: &Revocable) -> Resources {
        let find = |id: &str| self.nodes.iter().find(|node| node.provider_id == id);
        let mut usage = self.pool(pool).usage.clone();
        if let Some(surplus) = surplus(&self.pools, find, command).get(&pool) {
            usage.subtract(surplus);
        }
        usage
    }
}

fn lower_budgets(state: &ClusterState) -> Vec<BudgetView> {
    let budgets = state.pod_disruption_budgets.iter();
    let mut budgets: Vec<BudgetView> = budgets.map(|budget| lower_budget(budget)).collect();
    budgets.sort_by(|left, right| (&left.namespace, &left.name).cmp(&(&right.namespace, &right.name)));
    budgets
}

fn lower_budget(budget: &PodDisruptionBudget) -> BudgetView {
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
    let expected = status.and_then(|status| status.expected_pods);
    let desired = status.and_then(|status| status.desired_healthy);
    let counted = expected.filter(|expected| *expected > 0).zip(desired);
    let never = unavailable == "0" || unavailable == "\"0%\"" || available == "\"100%\"";
    BudgetView {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        selector: understood.unwrap_or_else(Selector::everything),
        disruptions_allowed,
        most_away: counted.map(|(expected, desired)| expected.saturating_sub(desired)),
        // A workload that was scaled down has more healthy pods than it wants, and for so long the API server lets some go.
        fully_blocking: never && disruptions_allowed <= 0,
        always_allows_unhealthy: is_understood && policy == Some("AlwaysAllow"),
    }
}
