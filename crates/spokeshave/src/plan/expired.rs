//! How a plan tells of nodes whose `expireAfter` has passed: which ones go, and what their drains wait for.
//!
//! Which these are is known to `story::expired`, which `explain`, `top`, the page, `doctor` and `adopt` ask as well.

use std::sync::Arc;

use serde::Serialize;
use spokeshave_api::NodeClaim;
use spokeshave_model::Price;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_plan::disrupt::CommandNode;
use spokeshave_story::expired::Expired;
use spokeshave_story::prices;
use spokeshave_story::replicas::nodes_of;

use super::format::{Dollars, Plan};

/// Nodes of a NodePool that are deleted for their age, all at once.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExpiredNodes {
    /// None of NodeClaims that were made by hand.
    pub(crate) node_pool: Option<String>,
    pub(crate) nodes: Vec<String>,
    pub(crate) price: Dollars,
    /// How many of them nobody knows the price of, which is without them.
    pub(crate) nodes_without_price: usize,
    pub(crate) evictions: usize,
    pub(crate) held: Vec<HeldNode>,
}

/// One of them whose drain waits for pods.
#[derive(Debug, Serialize)]
pub(crate) struct HeldNode {
    pub(crate) node: String,
    pub(crate) message: String,
}

/// Tells of them in a plan. `snapshot` is made of the same state.
pub(super) fn tell(expired: &Expired, snapshot: &Snapshot, plan: &mut Plan) {
    let pools = expired.by_pool().into_iter();
    let told = pools.map(|(pool, claims)| of_pool(expired, pool, claims, snapshot));
    plan.disruption.expired = told.collect();
}

fn of_pool(
    expired: &Expired,
    pool: Option<&str>,
    claims: &[Arc<NodeClaim>],
    snapshot: &Snapshot,
) -> ExpiredNodes {
    let mut told = ExpiredNodes {
        node_pool: pool.map(str::to_owned),
        nodes: Vec::new(),
        price: Dollars(Price::ZERO),
        nodes_without_price: 0,
        evictions: 0,
        held: Vec::new(),
    };
    for (name, node) in nodes_of(claims, snapshot) {
        told.nodes.push(name.clone());
        // One that never got an instance costs nothing, and nothing is on it.
        let Some(id) = node.filter(|id| !snapshot.node(*id).is_stand_in()) else {
            continue;
        };
        let view = snapshot.node(id);
        told.price = Dollars(told.price.0.saturating_add(prices::told(snapshot, view)));
        told.nodes_without_price += usize::from(prices::is_unknown(snapshot, view));
        told.evictions += CommandNode::of(snapshot, id).reschedulable_pods;
        if let Some(message) = expired.drain(snapshot, id) {
            told.held.push(HeldNode { node: name, message });
        }
    }
    told
}
