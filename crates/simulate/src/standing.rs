//! The nodes that a simulation begins with.
//!
//! Owns what a run knows of them. Which nodes of a dump these are is decided in `dumped`. It reads no file, and knows of pods only how long one goes on that ran
//! already.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_model::{CapacityType, Price, labels as well_known};
use spokeshave_scenario::Placement;

use crate::times::milliseconds_between;
use crate::times::whole_seconds;

/// The nodes at the start.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// When they were seen, by the clock of their cluster. Whatever was then is at the simulation's start.
    pub taken_at: Timestamp,
    /// Those of NodePools, in the order in which their NodeClaims were made.
    pub nodes: Vec<StandingNode>,
    /// Those that no NodePool owns, by name: capacity that stays to the end and is in no bill. Times in them are those of the simulation, too.
    pub fixed: Vec<Arc<Node>>,
}

/// A node at the start. Times in its objects are those of the simulation, and lie before its start.
#[derive(Debug, Clone)]
pub struct StandingNode {
    /// Its NodeClaim, which is initialized.
    pub claim: Arc<NodeClaim>,
    /// The Node, which is ready.
    pub node: Arc<Node>,
    /// What it costs per hour.
    pub price: Price,
    /// How it was bought.
    pub capacity_type: CapacityType,
}

impl StandingNode {
    /// What it is: instance type, capacity type, price and zone, as the event log has them of a launch.
    #[must_use]
    pub fn said(&self) -> String {
        let told = |key: &str| {
            self.claim
                .label(key)
                .or_else(|| label(&self.node, key))
                .unwrap_or_default()
        };
        let (instance_type, zone) = (told(well_known::INSTANCE_TYPE), told(well_known::ZONE));
        format!("{instance_type} {} {} {zone}", self.capacity_type, self.price)
    }

    /// How old it is at a start, in milliseconds.
    #[must_use]
    pub fn age_ms(&self, start: Timestamp) -> u64 {
        let created = self.claim.metadata.creation_timestamp.as_ref();
        created.map_or(0, |created| milliseconds_between(created.0, start))
    }
}

impl Standing {
    /// Whether a run begins without nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.fixed.is_empty()
    }

    /// The names of all Nodes.
    #[must_use]
    pub fn node_names(&self) -> BTreeSet<&str> {
        let of_pools = self.nodes.iter().map(|one| name_of(&one.node));
        of_pools.chain(self.fixed_names()).collect()
    }

    /// The names of the Nodes that no NodePool owns, in order.
    pub fn fixed_names(&self) -> impl Iterator<Item = &str> {
        self.fixed.iter().map(|node| name_of(node))
    }

    /// For how long a pod goes on, in milliseconds, that stays where it is and runs so long in all.
    #[must_use]
    pub fn left_ms(&self, placement: &Placement, runs_ms: u64) -> u64 {
        let since = placement.works_since;
        let done_ms = since.map_or(0, |since| milliseconds_between(since, self.taken_at));
        runs_ms.saturating_sub(done_ms)
    }

    /// Whether one of its NodeClaims or Nodes has this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let mut of_pools = self.nodes.iter();
        of_pools.any(|one| one.claim.name() == name || name_of(&one.node) == name)
            || self.fixed_names().any(|own| own == name)
    }

    /// When something was, in a simulation that starts then. Nothing of a dump is later than the dump.
    #[must_use]
    pub fn moved(&self, time: Timestamp, start: Timestamp) -> Timestamp {
        let before = time.min(self.taken_at).duration_since(self.taken_at);
        whole_seconds(start.saturating_add(before).unwrap_or(start))
    }
}

/// The name of a Node.
pub(crate) fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// What a label of a Node says.
pub(crate) fn label<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
