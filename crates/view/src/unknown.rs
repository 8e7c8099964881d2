//! What cannot be told because something could not be read: the kinds that each part of a view depends on.
//!
//! A figure without one of its kinds is neither zero nor a bound, and a verdict without one is none: constraints that nobody has seen may forbid what it allows.

use serde::Serialize;
use spokeshave_model::ClusterState;

/// Something that may not or cannot be read: what depends on it is unknown, not zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// What is missing, as a plural resource with its group: `nodepools.karpenter.sh`.
    pub resource: String,
    /// The reason given by the component that rejected it.
    pub message: String,
}

/// Prices. What needs them needs the NodeClasses of NodePools, too.
const PRICES: &[&str] = &[
    "nodes",
    "nodeclaims.karpenter.sh",
    "nodeoverlays.karpenter.sh",
    "nodepools.karpenter.sh",
];

const PODS: &[&str] = &["pods"];

/// What decides where a pod may run, besides the above; the last ones are what CapacityBuffers name and default spread goes by.
const PLACES: &[&str] = &[
    "resourceslices.resource.k8s.io",
    "capacitybuffers.autoscaling.x-k8s.io",
    "csinodes.storage.k8s.io",
    "daemonsets.apps",
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses.storage.k8s.io",
    "deployments.apps",
    "podtemplates",
    "replicasets.apps",
    "replicationcontrollers",
    "services",
    "statefulsets.apps",
];

/// Commands of the past: rates, holds and waves of DisruptionPolicies go by them; and an operator disrupts nothing while it cannot read one.
const LEDGER: &str = "disruptions.spokeshave.dev";

/// An operator that cannot read one of these goes by what it read of it last: so do its decisions, and what is shown of them. After a restart it has read none, and
/// what cannot be read has no effect: prices are those without it.
pub const AS_LAST_READ: [&str; 2] = [
    "capacitybuffers.autoscaling.x-k8s.io",
    "nodeoverlays.karpenter.sh",
];

const POLICIES: &str = "disruptionpolicies.spokeshave.dev";

/// What forbids a disruption, besides.
const DISRUPTION: &[&str] = &[POLICIES, LEDGER, "jobs.batch", "poddisruptionbudgets.policy"];

/// What leaves less of budgets than they say.
const RULES: &[&str] = &[POLICIES, LEDGER];

/// Who is managed, and how many nodes a NodePool has.
const MANAGED: &[&str] = &["nodes", "nodeclaims.karpenter.sh"];

const POOLS: &[&str] = &["nodepools.karpenter.sh"];

/// The name of a part of a view, and the kinds that it needs.
type Part = (&'static str, &'static [&'static [&'static str]]);

/// Fields of the header by their names, then what stands elsewhere: verdicts of nodes, what budgets allow, places of pending pods.
const PARTS: [Part; 11] = [
    ("price", &[PRICES]),
    ("nodesWithoutPrice", &[PRICES]),
    ("idle", &[PRICES, PODS]),
    ("couldSave", &[PRICES, PODS, PLACES, DISRUPTION]),
    ("nextSaves", &[PRICES, PODS, PLACES, DISRUPTION]),
    ("pools", &[POOLS]),
    ("coming", &[MANAGED]),
    ("unmanaged", &[MANAGED]),
    ("verdict", &[PRICES, PODS, PLACES, DISRUPTION]),
    ("budgets", &[MANAGED, POOLS, RULES]),
    ("place", &[PRICES, PODS, PLACES]),
];

/// The parts that depend on something missing, in a view of any cluster or of an operator's.
pub(crate) fn unknown(missing: &[Missing], state: &ClusterState, is_of_operator: bool) -> Vec<&'static str> {
    if missing.is_empty() {
        return Vec::new();
    }
    let looks_back = is_of_operator || !state.disruption_policies.is_empty();
    let is_missing = |kind: &str| {
        let lasts = is_of_operator && AS_LAST_READ.contains(&kind);
        let counts = kind != LEDGER || looks_back;
        counts && !lasts && missing.iter().any(|one| one.resource == kind)
    };
    let lacks_a_class = missing.iter().any(|one| is_class(state, &one.resource));
    let is_unknown = |(_, needed): &&Part| {
        let mut kinds = needed.iter().flat_map(|kinds| kinds.iter());
        (lacks_a_class && needed.contains(&PRICES)) || kinds.any(|kind| is_missing(kind))
    };
    PARTS.iter().filter(is_unknown).map(|(name, _)| *name).collect()
}

/// Whether all commands could be read, those of the past too.
pub(crate) fn knows_commands(missing: &[Missing]) -> bool {
    missing.iter().all(|one| one.resource != LEDGER)
}

/// Whether a resource is that of the NodeClasses of a NodePool: what it does not name, such as the classes of another cloud, decides nothing here.
fn is_class(state: &ClusterState, resource: &str) -> bool {
    let Some((_, group)) = resource.split_once('.') else {
        return false;
    };
    let mut pools = state.node_pools.iter();
    pools.any(|pool| pool.node_class_ref().group == group)
}
