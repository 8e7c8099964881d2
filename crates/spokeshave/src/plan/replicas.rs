//! How a plan tells of NodePools with a fixed number of nodes: of nodes that are missing, and of those that are too many.
//!
//! Which these are, and which of them can be launched, is known to `story::replicas`, which `explain`, `top` and the page ask as well.

use serde::Serialize;
use spokeshave_model::Price;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_plan::disrupt::CommandNode;
use spokeshave_plan::report::some_of;
use spokeshave_story::prices;
use spokeshave_story::replicas::{Replicas, TooFew, TooMany};

use super::format::{Dollars, Plan, SkippedNodePool};
use super::world::plural;
use crate::text::count;

/// Nodes that a NodePool with a fixed number of nodes lacks, and how many of them would be launched.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplicaLaunches {
    pub(crate) node_pool: String,
    pub(crate) replicas: i64,
    pub(crate) missing: usize,
    pub(crate) nodes: usize,
    /// Why not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Nothing can be launched from the NodePool, which is among those that are skipped.
    #[serde(skip)]
    pub(crate) takes_no_part: bool,
}

/// Nodes that a NodePool with a fixed number of nodes has too many of, in the order in which they go.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScaleDown {
    pub(crate) node_pool: String,
    pub(crate) replicas: i64,
    pub(crate) nodes: Vec<String>,
    pub(crate) price: Dollars,
    /// Of one of these nodes nobody knows the price, which is without it.
    #[serde(skip)]
    pub(crate) is_price_unknown: bool,
    pub(crate) evictions: usize,
}

/// Whether the operator does so depends on a setting of its own, except where it does nothing anyway. `snapshot` is made of the same state.
pub(super) fn note(replicas: &Replicas, snapshot: &Snapshot) -> Option<String> {
    let missing = replicas.missing.iter();
    let missing = missing.filter(|one| !one.launches(snapshot).takes_no_part);
    let names: Vec<&str> = missing
        .map(|one| one.node_pool.as_str())
        .chain(replicas.excess.iter().map(|one| one.node_pool.as_str()))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "spec.replicas of {} {} in force, as with the feature gate StaticCapacity on",
            plural(names.len(), "NodePool", "NodePools"),
            some_of(&names, 5)
        )
    })
}

/// Tells of it in a plan. `snapshot` is made of the same state.
pub(super) fn tell(replicas: Replicas, snapshot: &Snapshot, plan: &mut Plan) {
    let excess = replicas.excess.iter();
    plan.disruption.scale_down = excess.map(|one| scale_down(one, snapshot)).collect();
    let missing = replicas.missing.into_iter();
    let provisioning = &mut plan.provisioning;
    provisioning.replicas = missing.map(|one| launches(one, snapshot)).collect();
    for one in provisioning.replicas.iter().filter(|one| one.takes_no_part) {
        skip(one, &mut provisioning.skipped_node_pools);
    }
}

fn launches(one: TooFew, snapshot: &Snapshot) -> ReplicaLaunches {
    let launches = one.launches(snapshot);
    ReplicaLaunches {
        node_pool: one.node_pool,
        replicas: one.replicas,
        missing: one.missing,
        nodes: launches.nodes,
        message: launches.why_not_all,
        takes_no_part: launches.takes_no_part,
    }
}

/// Names it among the NodePools that launch nothing, unless it is there because pods wait.
fn skip(one: &ReplicaLaunches, skipped: &mut Vec<SkippedNodePool>) {
    if skipped.iter().all(|known| known.node_pool != one.node_pool) {
        skipped.push(SkippedNodePool {
            node_pool: one.node_pool.clone(),
            message: one.message.clone().unwrap_or_default(),
        });
    }
}

impl ReplicaLaunches {
    /// For people: a title, and what is told beneath it.
    pub(super) fn text(&self) -> (String, Vec<String>) {
        let pool = format!("NodePool {} (spec.replicas {})", self.node_pool, self.replicas);
        let are_missing = |nodes: usize| plural(nodes, "is missing", "are missing");
        match &self.message {
            Some(why) if self.takes_no_part => {
                let all = count(self.missing, "node");
                let beneath = format!("{all} {}, and none is launched", are_missing(self.missing));
                (format!("{pool} takes no part: {why}"), vec![beneath])
            }
            Some(why) if self.nodes == 0 => {
                let title = format!("LAUNCH none of the nodes that {pool} lacks: {why}");
                (title, Vec::new())
            }
            why => {
                let title = format!("LAUNCH {} of {pool}", count(self.nodes, "node"));
                let chosen = "whatever pods wait; the cloud chooses among its instance types";
                let mut beneath = vec![chosen.to_owned()];
                if let Some(why) = why {
                    let rest = self.missing.saturating_sub(self.nodes);
                    beneath.push(format!("{rest} more {}: {why}", are_missing(rest)));
                }
                (title, beneath)
            }
        }
    }
}

fn scale_down(one: &TooMany, snapshot: &Snapshot) -> ScaleDown {
    let mut told = ScaleDown {
        node_pool: one.node_pool.clone(),
        replicas: one.replicas,
        nodes: Vec::new(),
        price: Dollars(Price::ZERO),
        is_price_unknown: false,
        evictions: 0,
    };
    for (name, node) in one.nodes(snapshot) {
        told.nodes.push(name);
        if let Some(node) = node {
            let view = snapshot.node(node);
            told.price = Dollars(told.price.0.saturating_add(prices::told(snapshot, view)));
            told.is_price_unknown |= prices::is_unknown(snapshot, view);
            told.evictions += CommandNode::of(snapshot, node).reschedulable_pods;
        }
    }
    told
}
