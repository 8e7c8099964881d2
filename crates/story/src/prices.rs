//! What nodes cost, as far as it is known, and what has to be said with a price.
//!
//! Where there are no prices of spot capacity, decisions take a spot node to cost what one on demand does. Owns what is told instead: what the node cost when it
//! was launched. It changes no decision.

use std::collections::BTreeSet;

use spokeshave_api::labels;
use spokeshave_model::snapshot::{InstanceTypesProblem, NodeView, Snapshot};
use spokeshave_model::state_node::{is_free, price_at_launch};
use spokeshave_model::{CapacityType, Price, PriceFeed};
use spokeshave_plan::disrupt::Command;

/// What a node costs, as far as it is known: a price and what has to be said with it, or why there is none. Where there are no prices of spot capacity, that of
/// on-demand is not told for it.
///
/// # Errors
/// It is not known; says why.
pub fn cost(snapshot: &Snapshot, node: &NodeView) -> Result<(Price, &'static str), &'static str> {
    if is_taken_for_on_demand(snapshot, node) {
        return at_launch(node)
            .map(|price| (price, ", the price of spot when it was launched"))
            .ok_or("unknown: prices of spot are not known here, and the NodeClaim does not say what it cost at its launch; what it is said to save is by the price of on-demand");
    }
    let pool = node.pool.map(|pool| snapshot.pool(pool));
    let is_elsewhere =
        pool.is_some_and(|pool| pool.instance_types_problem == Some(InstanceTypesProblem::KnownElsewhere));
    match (node.price, is_elsewhere) {
        (Price::ZERO, true) => Err("unknown: prices are known to the operator only"),
        (Price::ZERO, false) if is_free(node, &snapshot.pools) => Ok((Price::ZERO, "")),
        (Price::ZERO, false) => Err(match pool.map(|pool| &pool.instance_types_problem) {
            None => "unknown: its NodePool is not there",
            Some(Some(_)) => "unknown: its NodePool has no instance types",
            Some(None) => "unknown: the catalogue has no offering of this type in this zone",
        }),
        // All that is left to decisions is what the NodeClaim says (W-07).
        (price, true) => Ok((price, ", the price when it was launched")),
        (price, false) => Ok((price, "")),
    }
}

/// Whether nobody knows what a node costs: decisions take it to cost nothing, and sums are without it. What has not been launched yet costs nothing.
pub fn is_unknown(snapshot: &Snapshot, node: &NodeView) -> bool {
    let is_priced = node.price > Price::ZERO || instead(snapshot, node).is_some();
    node.is_managed() && !node.is_stand_in() && !is_priced && cost(snapshot, node).is_err()
}

/// A sum over nodes: a lower bound while the prices of some are not known, and no price at all while none is. `money` is how an amount is written.
pub fn known_sum(price: Price, without_price: usize, money: impl Fn(Price) -> String) -> String {
    match (price, without_price) {
        (Price::ZERO, 1..) => "price unknown".to_owned(),
        (_, 0) => money(price),
        _ => format!(">= {}", money(price)),
    }
}

/// Whether decisions take a node to cost what one on demand does: it is spot, and prices of spot are not known here.
pub fn is_taken_for_on_demand(snapshot: &Snapshot, node: &NodeView) -> bool {
    let capacity_type = node.labels.get(labels::CAPACITY_TYPE);
    snapshot.distress.prices == PriceFeed::WithoutSpot
        && capacity_type.is_some_and(|own| own == CapacityType::Spot.as_str())
}

/// What is told as the price of a node where decisions take another one: what it cost when it was launched, if its NodeClaim says so.
pub fn instead(snapshot: &Snapshot, node: &NodeView) -> Option<Price> {
    at_launch(node).filter(|_| is_taken_for_on_demand(snapshot, node))
}

/// What a node counts with in sums that are told: `instead`, or the price that decisions take.
pub fn told(snapshot: &Snapshot, node: &NodeView) -> Price {
    instead(snapshot, node).unwrap_or(node.price)
}

/// What the nodes of a command cost. Where nothing comes instead, spot nodes count with what they cost when they were launched, if that is known; what comes
/// instead is priced by on-demand, and they are compared with it by the same prices.
pub fn price_before(snapshot: &Snapshot, command: &Command) -> Price {
    if snapshot.distress.prices != PriceFeed::WithoutSpot || !command.replacements.is_empty() {
        return command.price_before;
    }
    let too_much: Price = going(snapshot, command)
        .filter_map(|node| Some(node.price.saturating_sub(instead(snapshot, node)?)))
        .sum();
    command.price_before.saturating_sub(too_much)
}

/// The provider IDs of the nodes of which nobody knows what they cost. Who asks about many commands looks through all nodes once.
pub fn unpriced(snapshot: &Snapshot) -> BTreeSet<&str> {
    let unknown = snapshot.nodes.iter().filter(|node| is_unknown(snapshot, node));
    unknown.map(|node| node.provider_id.as_str()).collect()
}

/// Whether what comes instead of the nodes of a command is compared with them by prices of on-demand, although that is not what they cost.
pub fn is_by_on_demand(snapshot: &Snapshot, command: &Command) -> bool {
    !command.replacements.is_empty()
        && snapshot.distress.prices == PriceFeed::WithoutSpot
        && going(snapshot, command).any(|node| is_taken_for_on_demand(snapshot, node))
}

fn going<'a>(snapshot: &'a Snapshot, command: &'a Command) -> impl Iterator<Item = &'a NodeView> {
    let nodes = command.nodes.iter();
    let ids: BTreeSet<&str> = nodes.map(|node| node.provider_id.as_str()).collect();
    let views = snapshot.nodes.iter();
    views.filter(move |node| ids.contains(node.provider_id.as_str()))
}

fn at_launch(node: &NodeView) -> Option<Price> {
    price_at_launch(node.claim.as_deref()?)
}
