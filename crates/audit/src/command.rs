//! Re-checks a disruption command from first principles: each displaced pod has a place, the budget holds, the price falls.
//!
//! Budgets are counted and prices are looked up again here, from objects and offerings; nothing of how the command was found is used.

use crate::{Violation, check_placements};
use spokeshave_api::DisruptionReason;
use spokeshave_model::placement::{Placements, PlannedClaim};
use spokeshave_model::snapshot::{NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::{CapacityType, Price, ResourceName, Resources, labels};
use std::collections::{BTreeMap, BTreeSet};

/// A command, as far as it can be checked without knowing how it was made.
#[derive(Clone, Debug)]
pub struct CommandCheck<'a> {
    /// The nodes that go.
    pub nodes: &'a [NodeId],
    /// Where their pods go.
    pub placements: &'a Placements,
    /// The reason whose budgets it is charged to.
    pub reason: DisruptionReason,
    /// Pods that block must not be disturbed, and what comes must be cheaper: everything but drift.
    pub is_consolidation: bool,
    /// Whether pods were placed at all: not for static drift.
    pub places_pods: bool,
}

/// Checks a command at `now`. An empty answer means that every rule holds.
pub fn check_command(snapshot: &Snapshot, check: &CommandCheck<'_>, now: jiff::Timestamp) -> Vec<Violation> {
    let mut violations = Vec::new();
    check_nodes(snapshot, check, now, &mut violations);
    check_budget(snapshot, check, now, &mut violations);
    if check.places_pods {
        check_places(snapshot, check, now, &mut violations);
    }
    if check.is_consolidation {
        check_price(snapshot, check, &mut violations);
    }
    violations.sort();
    violations.dedup();
    violations
}

fn about_node(snapshot: &Snapshot, node: NodeId, problem: impl Into<String>) -> Violation {
    Violation {
        place: snapshot.node(node).name.clone(),
        pod: None,
        problem: problem.into(),
    }
}

fn check_nodes(
    snapshot: &Snapshot,
    check: &CommandCheck<'_>,
    now: jiff::Timestamp,
    violations: &mut Vec<Violation>,
) {
    for node in check.nodes {
        let view = snapshot.node(*node);
        let mut report = |problem: &str| violations.push(about_node(snapshot, *node, problem));
        let Some(claim) = &view.claim else {
            report("goes although it has no NodeClaim");
            continue;
        };
        let annotations = view
            .node
            .as_ref()
            .and_then(|node| node.metadata.annotations.as_ref());
        let protection = annotations.and_then(|annotations| annotations.get("karpenter.sh/do-not-disrupt"));
        if protection.is_some_and(|value| value == "true") {
            report("goes although it is annotated do-not-disrupt");
        }
        if view.marked_for_deletion {
            report("goes although it is going already");
        }
        if !view.initialized {
            report("goes although it is not initialized");
        }
        if view.promised {
            report("goes although a scheduler is about to put a pod there");
        }
        let tolerant = !check.is_consolidation && claim.spec.termination_grace_period.is_some();
        if tolerant {
            continue;
        }
        for pod in &view.pods {
            let pod_view = snapshot.pod(*pod);
            let problem = if pod_view.active && pod_view.do_not_disrupt().is_active(now) {
                "is protected by do-not-disrupt"
            } else if !snapshot.blocking_budgets(*pod, now).is_empty() {
                "is kept by a PodDisruptionBudget"
            } else {
                continue;
            };
            violations.push(Violation {
                place: view.name.clone(),
                pod: Some(pod_view.key()),
                problem: problem.to_owned(),
            });
        }
    }
}

/// D §5.4, counted independently.
fn check_budget(
    snapshot: &Snapshot,
    check: &CommandCheck<'_>,
    now: jiff::Timestamp,
    violations: &mut Vec<Violation>,
) {
    let mut taken: BTreeMap<PoolId, i64> = BTreeMap::new();
    for node in check.nodes {
        if let Some(pool) = snapshot.node(*node).pool {
            *taken.entry(pool).or_default() += 1;
        }
    }
    let going: BTreeSet<NodeId> = check.nodes.iter().copied().collect();
    for (pool, count) in taken {
        let members = snapshot.node_ids().filter(|node| {
            let view = snapshot.node(*node);
            view.pool == Some(pool) && view.claim.is_some() && view.initialized && !view.instance_terminating
        });
        let members: Vec<NodeId> = members.collect();
        let busy = members.iter().filter(|node| {
            let view = snapshot.node(**node);
            view.marked_for_deletion || !view.ready
        });
        let busy_others = busy.clone().filter(|node| !going.contains(node)).count();
        let busy_own = busy.count() - busy_others;
        let object = &snapshot.pool(pool).object;
        let allowed = object
            .allowed_disruptions(&check.reason, members.len(), now)
            .unwrap_or(0);
        let used = i64::try_from(busy_others + busy_own).unwrap_or(i64::MAX);
        if count.saturating_add(used) > allowed {
            violations.push(Violation {
                place: format!("nodepool {}", object.name()),
                pod: None,
                problem: format!(
                    "{count} node(s) would go as {} and {used} are disrupted, but budgets allow {allowed}",
                    check.reason
                ),
            });
        }
    }
}

/// Every pod that will leave has exactly one place, on a node that stays and is ready for it, and keeps every scheduling rule there.
fn check_places(
    snapshot: &Snapshot,
    check: &CommandCheck<'_>,
    now: jiff::Timestamp,
    violations: &mut Vec<Violation>,
) {
    let going: BTreeSet<NodeId> = check.nodes.iter().copied().collect();
    let batch: Vec<PodId> = check
        .nodes
        .iter()
        .flat_map(|node| snapshot.node(*node).pods.iter().copied())
        .filter(|pod| snapshot.is_currently_reschedulable(*pod, now))
        .collect();
    let placed: BTreeSet<PodId> = check
        .placements
        .existing
        .values()
        .flatten()
        .chain(check.placements.claims.iter().flat_map(|claim| &claim.pods))
        .copied()
        .collect();
    for pod in batch.iter().filter(|pod| !placed.contains(pod)) {
        violations.push(Violation {
            place: "command".to_owned(),
            pod: Some(snapshot.pod(*pod).key()),
            problem: "would leave its node without having a place".to_owned(),
        });
    }
    for node in check.placements.existing.keys() {
        if going.contains(node) {
            violations.push(about_node(snapshot, *node, "receives pods although it goes"));
        } else if !snapshot.node(*node).initialized {
            violations.push(about_node(
                snapshot,
                *node,
                "receives pods although it is not initialized",
            ));
        }
    }
    let after = without(snapshot, check.nodes);
    violations.extend(check_placements(&after, &batch, check.placements));
}

/// The Snapshot as it is once the nodes are gone: they take nothing, and their capacity counts against no limit.
fn without(snapshot: &Snapshot, nodes: &[NodeId]) -> Snapshot {
    let mut after = snapshot.clone();
    for node in nodes {
        let view = &mut after.nodes[node.index()];
        if let Some(pool) = view.pool.filter(|_| !view.marked_for_deletion) {
            let mut freed = view.capacity.clone();
            freed.add(&Resources::from_amounts([(ResourceName::NODES, 1)]));
            after.pools[pool.index()].usage.subtract(&freed);
        }
        after.nodes[node.index()].marked_for_deletion = true;
    }
    after
}

/// Whatever type each replacement is launched as, all of them together cost less than the removed nodes.
fn check_price(snapshot: &Snapshot, check: &CommandCheck<'_>, violations: &mut Vec<Violation>) {
    if check.placements.claims.is_empty() {
        return;
    }
    let before: i128 = check
        .nodes
        .iter()
        .map(|node| i128::from(price_of(snapshot, *node).0))
        .sum();
    let after: i128 = check
        .placements
        .claims
        .iter()
        .map(|claim| i128::from(worst_price(snapshot, claim).0))
        .sum();
    if after >= before {
        violations.push(Violation {
            place: "command".to_owned(),
            pod: None,
            problem: format!("what comes could cost {after} n$/h, what goes costs {before} n$/h"),
        });
    }
}

fn price_of(snapshot: &Snapshot, node: NodeId) -> Price {
    let view = snapshot.node(node);
    let label = |key: &str| view.labels.get(key).map(String::as_str);
    let offered = || {
        let pool = snapshot.pool(view.pool?);
        let wanted = label(labels::INSTANCE_TYPE)?;
        let instance_type = pool
            .instance_types
            .iter()
            .find(|instance_type| instance_type.name == wanted)?;
        let offering = instance_type.offerings.iter().find(|offering| {
            offering.zone() == label(labels::ZONE)
                && offering.capacity_type().map(CapacityType::as_str) == label(labels::CAPACITY_TYPE)
        })?;
        let is_free = offering.available || offering.overlaid;
        let is_priced = offering.price.is_known() || (is_free && offering.price == Price::ZERO);
        is_priced.then_some(offering.price)
    };
    // A node whose offering is gone, or without a price, keeps the price it was launched at.
    offered().unwrap_or(view.price)
}

/// The dearest way to launch the claim, given that for each type the first capacity type that is to be had is used.
fn worst_price(snapshot: &Snapshot, claim: &PlannedClaim) -> Price {
    let types = &snapshot.pool(claim.pool).instance_types;
    let mut worst = Price::ZERO;
    for launch in claim.launches.iter() {
        let mut by_kind: BTreeMap<CapacityType, Price> = BTreeMap::new();
        for offering in types[launch.instance_type]
            .offerings
            .iter()
            .filter(|offering| offering.available)
        {
            let kind = offering.capacity_type();
            let allowed = kind.is_some_and(|kind| claim.capacity_types.contains(kind.as_str()))
                && claim
                    .requirements
                    .compatible(&offering.requirements, &snapshot.well_known)
                    .is_ok();
            if let Some(kind) = kind.filter(|_| allowed) {
                let known = by_kind.entry(kind).or_default();
                *known = (*known).max(offering.price);
            }
        }
        let first = CapacityType::ALL.iter().find_map(|kind| by_kind.get(kind));
        worst = worst.max(first.copied().unwrap_or(Price::ZERO));
    }
    worst
}
