//! What cannot be told because something could not be read: the kinds that each part of a view depends on.
//!
//! A figure without one of its kinds is neither zero nor a bound, and a verdict without one is none: constraints that nobody has seen may forbid what it allows.

use crate::world::World;

/// Prices, with the NodeClasses of NodePools.
const PRICES: &[&str] = &[
    "nodes",
    "nodeclaims.karpenter.sh",
    "nodeoverlays.karpenter.sh",
    "nodepools.karpenter.sh",
];

const PODS: &[&str] = &["pods"];

/// What decides where a pod may run, besides the above; the last ones are what CapacityBuffers name and default spread goes by.
const PLACES: &[&str] = &[
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

/// Commands of the past: rates, holds and waves of DisruptionPolicies go by them, and nothing else does.
const LEDGER: &str = "disruptions.spokeshave.dev";

/// What forbids a disruption, besides.
const DISRUPTION: &[&str] = &[
    "disruptionpolicies.spokeshave.dev",
    LEDGER,
    "jobs.batch",
    "poddisruptionbudgets.policy",
];

/// Who is managed, and how many nodes a NodePool has.
const MANAGED: &[&str] = &["nodes", "nodeclaims.karpenter.sh"];

const POOLS: &[&str] = &["nodepools.karpenter.sh"];

/// A part of a view, with the kinds that it needs, and whether it needs the NodeClasses of NodePools, too.
struct Part {
    name: &'static str,
    kinds: &'static [&'static [&'static str]],
    needs_classes: bool,
}

const fn part(name: &'static str, kinds: &'static [&'static [&'static str]], needs_classes: bool) -> Part {
    Part {
        name,
        kinds,
        needs_classes,
    }
}

/// Fields of the header by their names, then what stands elsewhere: verdicts of nodes, what budgets allow, places of pending pods.
const PARTS: [Part; 11] = [
    part("price", &[PRICES], true),
    part("nodesWithoutPrice", &[PRICES], true),
    part("idle", &[PRICES, PODS], true),
    part("couldSave", &[PRICES, PODS, PLACES, DISRUPTION], true),
    part("nextSaves", &[PRICES, PODS, PLACES, DISRUPTION], true),
    part("pools", &[POOLS], false),
    part("coming", &[MANAGED], false),
    part("unmanaged", &[MANAGED], false),
    part("verdict", &[PRICES, PODS, PLACES, DISRUPTION], true),
    part("budgets", &[MANAGED, POOLS], false),
    part("place", &[PRICES, PODS, PLACES], true),
];

/// The parts that depend on something missing.
pub(crate) fn unknown(world: &World) -> Vec<&'static str> {
    if world.missing.is_empty() {
        return Vec::new();
    }
    let looks_back = !world.state.disruption_policies.is_empty();
    let is_missing = |kind: &str| {
        let counts = kind != LEDGER || looks_back;
        counts && world.missing.iter().any(|one| one.resource == kind)
    };
    let lacks_a_class = world.missing.iter().any(|one| is_class(world, &one.resource));
    let is_unknown = |part: &&Part| {
        let mut kinds = part.kinds.iter().flat_map(|kinds| kinds.iter());
        (part.needs_classes && lacks_a_class) || kinds.any(|kind| is_missing(kind))
    };
    PARTS.iter().filter(is_unknown).map(|part| part.name).collect()
}

/// Whether a part is known.
pub(crate) fn knows(world: &World, part: &str) -> bool {
    !unknown(world).contains(&part)
}

/// Whether a resource is that of the NodeClasses of a NodePool: what it does not name, such as the classes of another cloud, decides nothing here.
fn is_class(world: &World, resource: &str) -> bool {
    let Some((_, group)) = resource.split_once('.') else {
        return false;
    };
    let mut pools = world.state.node_pools.iter();
    pools.any(|pool| pool.spec.template.spec.node_class_ref.group == group)
}
