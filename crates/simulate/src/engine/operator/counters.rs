//! The status of NodePools: how many nodes each has, and what they amount to, as the operator writes it a moment after its NodeClaims have changed.
//!
//! Owns when they are counted. No decision reads what is written, but each write is a change after which disruption looks again.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use spokeshave_api::constants::NODE_POOL_COUNTERS;
use spokeshave_api::{NodeClaim, QuantityMap};
use spokeshave_plan::nodepool::count;

use crate::engine::Engine;
use crate::queue::Wake;
use crate::world::{Model, milliseconds};

/// What the status of a NodePool says.
#[derive(Debug, Default)]
pub(super) struct Counted {
    told: (usize, QuantityMap),
    /// When its nodes are counted next, in milliseconds.
    due_ms: Option<u64>,
}

impl Engine<'_> {
    /// A NodeClaim has come, changed or gone: the nodes of its NodePool are counted later, with all that changes until then.
    pub(crate) fn count_later(&mut self, claim: &NodeClaim) {
        // In a large cluster, and for models, passes come when they come.
        if self.policy.model != Model::Ours || self.is_large() {
            return;
        }
        let Some(pool) = claim.node_pool() else { return };
        let Some(position) = self.operator.node_pools.keys().position(|name| name == pool) else {
            return;
        };
        self.count_again(position);
    }

    fn count_again(&mut self, position: usize) {
        let due_ms = self.now_ms.saturating_add(milliseconds(NODE_POOL_COUNTERS));
        let Some(counted) = self.operator.counted.get_mut(position) else {
            return;
        };
        if counted.due_ms.is_none() {
            counted.due_ms = Some(due_ms);
            self.queue.at(due_ms, Wake::Count(position));
        }
    }

    /// The nodes of a NodePool are counted.
    pub(crate) fn count_nodes(&mut self, position: usize) {
        let Some(pool) = self.operator.node_pools.keys().nth(position).cloned() else {
            return;
        };
        let mut claims: Vec<&NodeClaim> = Vec::new();
        let mut nodes: BTreeMap<&str, &Arc<Node>> = BTreeMap::new();
        for (_, found) in self.cluster.machines() {
            let claim = found.claim.as_deref();
            let Some(claim) = claim.filter(|claim| claim.node_pool() == Some(pool.as_str())) else {
                continue;
            };
            claims.push(claim);
            nodes.extend(claim.provider_id().zip(found.node.as_ref()));
        }
        let leaving = self.held_nodes(&[]);
        let node_of = |id: &str| nodes.get(id).map(|node| Arc::clone(node));
        let present = count(&claims, node_of, |id| leaving.contains(id));
        let Some(counted) = self.operator.counted.get_mut(position) else {
            return;
        };
        counted.due_ms = None;
        if counted.told != present {
            counted.told = present;
            self.changed();
            self.count_again(position);
        }
    }
}
