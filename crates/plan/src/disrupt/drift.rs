//! Drift: replace nodes that are no longer what their NodePool asks for, dynamic (D §4.3) and static (D §4.4); and, in the same way, nodes that are
//! older than a DisruptionPolicy wants.

use super::budgets::BudgetMapping;
use super::candidates::{Candidate, DisruptionClass, capitalised, checked};
use super::command::{Command, CommandNode, Method, Replacement};
use super::evaluate::{price_after, worst_of_cheapest};
use super::ground::{Ground, drifted_since};
use super::hurdle::{Hurdle, Lifted, Stop};
use super::simulate::{Moved, WhatIf};
use crate::disruption_policy::{Orders, expiry};
use spokeshave_api::DisruptionReason;
use spokeshave_model::placement::{Launch, PlannedClaim};
use spokeshave_model::snapshot::{NodeId, PoolId, Snapshot};
use spokeshave_model::{Price, ResourceName, Resources};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What comes instead of a drifted node.
pub(super) struct DriftPlan {
    pub(super) claims: Vec<PlannedClaim>,
    pub(super) price_after: Price,
}

/// D-132, D-138: drifted candidates of the eventual class.
pub(super) fn drifted(
    ground: &Ground<'_>,
    node: NodeId,
    is_static: bool,
    lifted: &Lifted,
) -> Result<Candidate, Hurdle> {
    let view = ground.snapshot.node(node);
    let candidate = checked(
        ground.snapshot,
        node,
        DisruptionClass::Eventual,
        ground.now,
        lifted,
    )?;
    if drifted_since(view).is_none() || ground.snapshot.pool(candidate.pool).is_static != is_static {
        return Err(Hurdle::NotApplicable);
    }
    Ok(candidate)
}

/// Nodes that have reached their soft age and have not drifted: what has drifted waits for its waves, and brings the new with it. What must not be
/// disturbed is not disturbed for age; `expireAfter` is there for that.
pub(super) fn expired(
    ground: &Ground<'_>,
    node: NodeId,
    is_static: bool,
    lifted: &Lifted,
) -> Result<Candidate, Hurdle> {
    let snapshot = ground.snapshot;
    let has_drifted = drifted_since(snapshot.node(node)).is_some();
    let due = expiry::soft(snapshot, node).filter(|soft| soft.due <= ground.now && !has_drifted);
    due.ok_or(Hurdle::NotApplicable)?;
    let candidate = checked(snapshot, node, DisruptionClass::Graceful, ground.now, lifted)?;
    if snapshot.pool(candidate.pool).is_static != is_static {
        return Err(Hurdle::NotApplicable);
    }
    Ok(candidate)
}

/// Candidates of drift or expiry. What was taken out of a fixed number of nodes by hand is not replaced in it: that would be one too many.
pub(super) fn candidate(
    ground: &Ground<'_>,
    method: Method,
    node: NodeId,
    lifted: &Lifted,
) -> Result<Candidate, Hurdle> {
    let candidate = if method.reason() == DisruptionReason::Expired {
        expired(ground, node, method.is_static(), lifted)
    } else {
        drifted(ground, node, method.is_static(), lifted)
    }?;
    if ground.snapshot.node(node).is_taken_out(&ground.snapshot.pools) {
        return Err(Hurdle::NotApplicable);
    }
    Ok(candidate)
}

/// What is due first goes first.
pub(super) fn by_age(snapshot: &Snapshot, candidates: &mut [Candidate]) {
    candidates.sort_by_cached_key(|candidate| {
        let due = expiry::soft(snapshot, candidate.node).map(|soft| soft.due);
        (due, snapshot.node(candidate.node).name.as_str())
    });
}

/// D-060: oldest drift first, then nodes without pods that would have to move in front. Where a DisruptionPolicy says how, its nodes go in its order, from where the
/// first of them would have gone.
pub(super) fn in_order(snapshot: &Snapshot, candidates: &mut [Candidate]) {
    let orders = Orders::of(snapshot);
    let turn = |candidate: &Candidate| {
        let view = snapshot.node(candidate.node);
        (candidate.pod_count() > 0, drifted_since(view), view.name.as_str())
    };
    let mut firsts = BTreeMap::new();
    for candidate in candidates.iter() {
        if let Some(group) = orders.group(candidate.node) {
            let own = turn(candidate);
            let first = firsts.entry(group).or_insert(own);
            *first = own.min(*first);
        }
    }
    candidates.sort_by_cached_key(|candidate| {
        let own = turn(candidate);
        let group = orders.group(candidate.node);
        let first = group.and_then(|group| firsts.get(&group)).copied();
        (first.unwrap_or(own), orders.places(candidate.node), own)
    });
}

/// D-133, D-135: any number of replacements at any price, as long as every pod that will leave has a place.
pub(super) fn evaluate(moved: &mut Moved<'_, '_>, candidate: &Candidate) -> Result<DriftPlan, Stop> {
    if let Some(pod) = moved.unplaced.first().copied() {
        return Err(Stop::new(Hurdle::Pod(pod), capitalised(&moved.refusal())));
    }
    let count = moved.claim_count();
    let claims = if count == 0 { Vec::new() } else { moved.claims() };
    if claims.len() < count {
        let text = "Can't replace: too few instance types are left for minValues";
        return Err(Stop::new(Hurdle::MinValues, text));
    }
    let prices = claims.iter().map(|claim| worst_of_cheapest(moved, claim));
    let price_after = price_after(candidate.price, prices);
    Ok(DriftPlan { claims, price_after })
}

/// The command for one node of a dynamic NodePool.
pub(super) fn command(
    ground: &Ground<'_>,
    method: Method,
    what_if: &mut WhatIf<'_>,
    candidate: &Candidate,
) -> Result<Command, Stop> {
    what_if.without(&[candidate.node], &candidate.moving(ground.snapshot), |moved| {
        let plan = evaluate(moved, candidate)?;
        Ok(Command {
            method,
            nodes: vec![CommandNode::of(ground.snapshot, candidate.node)],
            moves: Arc::new(moved.moves(&[candidate])),
            replacements: plan
                .claims
                .into_iter()
                .map(|claim| {
                    let price = worst_of_cheapest(moved, &claim);
                    Replacement::of(ground.snapshot, claim, price)
                })
                .collect(),
            price_before: candidate.price,
            price_after: plan.price_after,
        })
    })
}

/// How many nodes a NodePool counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Members {
    all: i64,
    /// Those that are not marked for deletion.
    running: i64,
}

/// The same of all NodePools that have any.
pub(super) fn count_members(snapshot: &Snapshot) -> BTreeMap<PoolId, Members> {
    let mut counted: BTreeMap<PoolId, Members> = BTreeMap::new();
    for view in &snapshot.nodes {
        let name = view.claim.as_ref().and_then(|claim| claim.node_pool());
        if let Some(pool) = name.and_then(|name| snapshot.find_pool(name)) {
            let members = counted.entry(pool).or_default();
            members.all += 1;
            members.running += i64::from(!view.marked_for_deletion);
        }
    }
    counted
}

/// Whether a static NodePool has more nodes than it is to have. A node of a command is marked from the start and does not count; what comes instead does, before it
/// exists. So only a scale-down ends before nodes are replaced: earlier replacements hold up the next one by the budget, and by the limit on nodes.
pub(super) fn has_excess(ground: &Ground<'_>, pool: PoolId) -> bool {
    let replicas = ground.snapshot.pool(pool).object.spec.replicas;
    replicas.is_some_and(|replicas| ground.members(pool).running > replicas)
}

/// D-139, D-140: how many nodes of a static NodePool may be replaced now.
pub(super) fn static_headroom(ground: &Ground<'_>, pool: PoolId) -> i64 {
    let limits = &ground.snapshot.pool(pool).limits;
    if has_excess(ground, pool) {
        0
    } else if limits.contains(ResourceName::NODES) {
        (limits.get(ResourceName::NODES) - ground.members(pool).all).max(0)
    } else {
        i64::MAX
    }
}

/// D-141: what stands in for a node of a static NodePool while its command is judged. The NodeClaim itself comes from the template and names no
/// instance type (D-139): what is cheapest now is only what it is expected to be, and nothing, when nothing is available.
pub(super) fn static_claim(snapshot: &Snapshot, pool: PoolId, limit: usize) -> PlannedClaim {
    let view = snapshot.pool(pool);
    let mut launches: Vec<Launch> = view
        .instance_types
        .iter()
        .enumerate()
        .filter(|(_, instance_type)| {
            view.requirements
                .compatible(&instance_type.requirements, &snapshot.well_known)
                .is_ok()
        })
        .filter_map(|(index, instance_type)| {
            let offering = instance_type.cheapest_offering(&view.requirements, &snapshot.well_known)?;
            Some(Launch {
                instance_type: index,
                zone: offering.zone().map(ToOwned::to_owned),
                capacity_type: offering.capacity_type(),
                price: offering.price,
            })
        })
        .collect();
    launches.sort_by_key(|launch| (launch.price, launch.instance_type));
    launches.truncate(limit);
    let kinds = launches.iter().flat_map(|launch| {
        let instance_type = &view.instance_types[launch.instance_type];
        instance_type
            .available_offerings(&view.requirements, &snapshot.well_known)
            .filter_map(|offering| offering.capacity_type())
    });
    PlannedClaim {
        pool,
        pods: Vec::new(),
        capacity_types: kinds.map(|kind| kind.as_str().to_owned()).collect(),
        launches: launches.into(),
        requirements: view.requirements.clone(),
        requests: Resources::new(),
        min_values_relaxed: false,
    }
}

/// D-139: one command for each node of static NodePools that may be replaced now.
pub(super) fn static_commands(ground: &Ground<'_>, method: Method, candidates: &[Candidate]) -> Vec<Command> {
    let snapshot = ground.snapshot;
    let mut budgets: BudgetMapping = ground.budget(&method.reason()).clone();
    let mut headroom: BTreeMap<PoolId, i64> = BTreeMap::new();
    let mut commands = Vec::new();
    for candidate in candidates {
        let left = headroom
            .entry(candidate.pool)
            .or_insert_with(|| static_headroom(ground, candidate.pool));
        if *left <= 0 || !budgets.allows(candidate.place()) {
            continue;
        }
        let limit = ground.policy.instance_types_per_claim;
        let claim = static_claim(snapshot, candidate.pool, limit);
        *left -= 1;
        budgets.take_node(candidate.place());
        let price = claim.launches.first().map_or(Price::ZERO, |launch| launch.price);
        let replacement = Replacement::of(snapshot, claim, price);
        let price_after = price_after(candidate.price, [price].into_iter());
        commands.push(Command {
            method,
            nodes: vec![CommandNode::of(snapshot, candidate.node)],
            moves: Arc::default(),
            price_before: candidate.price,
            price_after,
            replacements: vec![Replacement {
                price: price_after,
                ..replacement
            }],
        });
    }
    commands
}
