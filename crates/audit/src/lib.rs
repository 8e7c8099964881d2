//! Re-checks a finished plan against its Snapshot, without the code that made the plan.
//!
//! The rules are Kubernetes' own, applied the slow and obvious way to concrete nodes: each instance type that a planned NodeClaim may be
//! launched as is turned into the node it would become, and every pod on it is checked against that node. It never imports `schedule` or
//! `plan`, so a bug there cannot mask itself here. It reads pods and nodes as `model` lowers them: a mistake in lowering is the same here, and
//! is for the tests of `model` and the invariants of the simulated cluster to find.

mod command;
mod node;
mod pods;
mod spread;
mod suspects;

pub use command::{CommandCheck, check_command};
pub use suspects::suspects;

use node::{ConcreteNode, claim_nodes, existing_node};
use spokeshave_model::placement::{Placements, PlannedClaim};
use spokeshave_model::snapshot::{NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::{ResourceName, Resources};
use std::collections::{BTreeMap, BTreeSet};

/// Something a plan must not do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Where: an existing node by name, or `claim <number> (<pool>)`, or `nodepool <name>`.
    pub place: String,
    /// The pod, if it is about one.
    pub pod: Option<String>,
    /// What is wrong.
    pub problem: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(pod) = &self.pod {
            write!(f, "pod {pod}: ")?;
        }
        f.write_str(&self.problem)
    }
}

/// Checks placements of a batch of pods. An empty answer means that every rule holds.
pub fn check_placements(snapshot: &Snapshot, batch: &[PodId], placements: &Placements) -> Vec<Violation> {
    let mut violations = Vec::new();
    check_once(snapshot, batch, placements, &mut violations);
    let mut hosts: Vec<Host> = Vec::new();
    let batch: BTreeSet<PodId> = batch.iter().copied().collect();
    for node in snapshot.node_ids() {
        let arrivals = placements.existing.get(&node).cloned().unwrap_or_default();
        hosts.push(check_existing(snapshot, node, &batch, arrivals, &mut violations));
    }
    for (number, claim) in placements.claims.iter().enumerate() {
        let place = claim_place(snapshot, number, claim);
        if claim.launches.is_empty() {
            violations.push(Violation {
                place: place.clone(),
                pod: None,
                problem: "no instance type is left".to_owned(),
            });
        }
        let mut nodes = Vec::new();
        for candidate in claim_nodes(snapshot, claim) {
            match candidate {
                Ok(candidate) => {
                    check_node(snapshot, &place, &candidate, &claim.pods, &mut violations);
                    nodes.push(candidate);
                }
                Err(problem) => violations.push(Violation {
                    place: place.clone(),
                    pod: None,
                    problem,
                }),
            }
        }
        let possible = nodes.into_iter().flat_map(|node| node.possible_labels);
        hosts.push(Host {
            place,
            residents: Vec::new(),
            arrivals: claim.pods.clone(),
            possible: possible.collect(),
        });
    }
    check_limits(snapshot, placements, &mut violations);
    pods::check_pod_terms(snapshot, &hosts, &mut violations);
    spread::check_spread(snapshot, &hosts, &mut violations);
    spread::check_attachments(snapshot, &hosts, &mut violations);
    spread::check_reservations(snapshot, placements, &mut violations);
    violations.sort();
    violations.dedup();
    violations
}

/// What a planned claim is called.
pub(crate) fn claim_place(snapshot: &Snapshot, number: usize, claim: &PlannedClaim) -> String {
    format!("claim {number} ({})", snapshot.pool(claim.pool).name)
}

/// What a NodePool is called.
pub(crate) fn pool_place(snapshot: &Snapshot, pool: PoolId) -> String {
    format!("nodepool {}", snapshot.pool(pool).name)
}

/// A node or a future node with its pods, for rules that relate pods to each other.
pub(crate) struct Host {
    pub(crate) place: String,
    /// Pods already there that stay.
    pub(crate) residents: Vec<PodId>,
    /// Pods that the plan puts there.
    pub(crate) arrivals: Vec<PodId>,
    /// The label sets it may turn out to have.
    pub(crate) possible: Vec<BTreeMap<String, String>>,
}

/// Each pod of the batch is placed at most once, and nothing else is.
fn check_once(
    snapshot: &Snapshot,
    batch: &[PodId],
    placements: &Placements,
    violations: &mut Vec<Violation>,
) {
    let mut seen = BTreeSet::new();
    let on_nodes = placements
        .existing
        .iter()
        .flat_map(|(node, pods)| pods.iter().map(|pod| (snapshot.node(*node).name.clone(), *pod)));
    let on_claims = placements.claims.iter().enumerate().flat_map(|(number, claim)| {
        claim
            .pods
            .iter()
            .map(move |pod| (claim_place(snapshot, number, claim), *pod))
    });
    for (place, pod) in on_nodes.chain(on_claims) {
        let problem = if !seen.insert(pod) {
            "is placed more than once"
        } else if !batch.contains(&pod) {
            "is not part of the batch"
        } else {
            continue;
        };
        violations.push(Violation {
            place,
            pod: Some(snapshot.pod(pod).key()),
            problem: problem.to_owned(),
        });
    }
}

fn check_existing(
    snapshot: &Snapshot,
    node: NodeId,
    batch: &BTreeSet<PodId>,
    arrivals: Vec<PodId>,
    violations: &mut Vec<Violation>,
) -> Host {
    let view = snapshot.node(node);
    let residents: Vec<PodId> = view
        .pods
        .iter()
        .copied()
        .filter(|pod| !snapshot.pod(*pod).terminal && !batch.contains(pod))
        .collect();
    let concrete = existing_node(snapshot, node, &residents);
    if !arrivals.is_empty() {
        if view.marked_for_deletion {
            violations.push(Violation {
                place: view.name.clone(),
                pod: None,
                problem: "receives pods while it is going away".to_owned(),
            });
        }
        check_node(snapshot, &view.name, &concrete, &arrivals, violations);
    }
    Host {
        place: view.name.clone(),
        residents,
        arrivals,
        possible: concrete.possible_labels,
    }
}

/// Resources, taints, node affinity, host ports: the rules between a pod and a node.
fn check_node(
    snapshot: &Snapshot,
    place: &str,
    node: &ConcreteNode,
    arrivals: &[PodId],
    violations: &mut Vec<Violation>,
) {
    let mut total = node.used.clone();
    for pod in arrivals {
        let object = &snapshot.pod(*pod).object;
        total.add(&snapshot.scheduler_profiles.requests(object));
        let mut report = |problem: String| {
            violations.push(Violation {
                place: place.to_owned(),
                pod: Some(snapshot.pod(*pod).key()),
                problem,
            });
        };
        if let Some(taint) = pods::untolerated(object, &node.taints) {
            report(format!("does not tolerate {taint} of {}", node.name));
        }
        if !node
            .possible_labels
            .iter()
            .all(|labels| pods::node_affinity_matches(&snapshot.scheduler_profiles, object, labels))
        {
            report(format!(
                "its node selector or affinity does not match {}",
                node.name
            ));
        }
        let volumes = &snapshot.constraints(*pod).volume_terms;
        let reachable = |labels: &BTreeMap<String, String>| {
            volumes.is_empty() || volumes.iter().any(|term| pods::volume_term_matches(term, labels))
        };
        if !node.possible_labels.iter().all(reachable) {
            report(format!("its volumes cannot be reached from {}", node.name));
        }
    }
    for (resource, amount) in total
        .iter()
        .filter(|(resource, amount)| *amount > node.allocatable.get(resource))
    {
        let text = |amount| ResourceName::format(resource, amount);
        let problem = format!(
            "{} needs {resource} {} but {} has {}",
            place,
            text(amount),
            node.name,
            text(node.allocatable.get(resource))
        );
        violations.push(Violation {
            place: place.to_owned(),
            pod: None,
            problem,
        });
    }
    let mut taken: Vec<_> = node.ports.clone();
    for pod in arrivals {
        for port in &snapshot.constraints(*pod).host_ports {
            if taken.iter().any(|other| other.conflicts_with(port)) {
                let problem = format!("host port {port} is taken on {}", node.name);
                violations.push(Violation {
                    place: place.to_owned(),
                    pod: Some(snapshot.pod(*pod).key()),
                    problem,
                });
            }
        }
        taken.extend(snapshot.constraints(*pod).host_ports.iter().cloned());
    }
}

/// Whatever type each claim is launched as, no NodePool exceeds its limits.
fn check_limits(snapshot: &Snapshot, placements: &Placements, violations: &mut Vec<Violation>) {
    let mut usage: BTreeMap<PoolId, Resources> = BTreeMap::new();
    for claim in &placements.claims {
        let pool = snapshot.pool(claim.pool);
        let total = usage.entry(claim.pool).or_insert_with(|| pool.usage.clone());
        let mut largest = Resources::new();
        for launch in claim.launches.iter() {
            largest.raise_to(&pool.instance_types[launch.instance_type].capacity);
        }
        largest.set(ResourceName::NODES, 1);
        total.add(&largest);
    }
    for (id, usage) in usage {
        let pool = snapshot.pool(id);
        for (resource, limit) in pool
            .limits
            .iter()
            .filter(|(resource, limit)| usage.get(resource) > *limit)
        {
            let text = |amount| ResourceName::format(resource, amount);
            let problem = format!(
                "limit {resource} {} could be exceeded: {}",
                text(limit),
                text(usage.get(resource))
            );
            violations.push(Violation {
                place: pool_place(snapshot, id),
                pod: None,
                problem,
            });
        }
    }
}
