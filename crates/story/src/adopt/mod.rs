//! What would happen if this operator took over a cluster from Karpenter: what must be resolved first, and what it would do on its own.
//!
//! It reads state and what surrounds it, and decides nothing. Who runs the cluster today (operators, Leases, definitions, webhooks) is in
//! `surroundings`, what there is of nodes in `nodes`.

mod nodes;
mod surroundings;

use jiff::Timestamp;
use serde::Serialize;
use spokeshave_model::ClusterState;

use crate::doctor::{Finding, Level};

pub use surroundings::{Definition, Leader, NotExamined, OldObjects, Operator, Surroundings, Webhook};

/// The provider that is to take over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Successor {
    /// NodeClass kinds that it supports, as (group, kind).
    pub node_classes: Vec<(String, String)>,
    /// The prefix of its provider IDs, such as `aws:///`.
    pub provider_id_prefix: String,
    /// Names of the instances that its own records have, where it keeps records; `None` where the cloud is asked.
    pub recorded_instances: Option<Vec<String>>,
    /// Names of instances that have no record yet and get one when it meets them.
    pub adoptable_instances: Vec<String>,
    /// Namespace in which it is to run, if that is known.
    pub namespace: Option<String>,
}

/// The findings of a takeover.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TakeOver {
    /// NodePools there.
    pub node_pools: usize,
    /// NodeClaims there.
    pub node_claims: usize,
    /// NodeClaims that would become drifted and are not yet.
    pub would_drift: usize,
    /// NodeClaims that are older than their `expireAfter`: they are deleted at once.
    pub would_expire: usize,
    /// NodeClaims and NodePools whose hash annotations are from another version of the algorithm: they are updated, which causes no drift.
    pub would_stamp: usize,
    /// Blockers and notes, errors first.
    pub findings: Vec<Finding>,
}

impl TakeOver {
    /// Whether something has to be settled first.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == Level::Error)
    }

    /// Adds findings, and brings all of them in order.
    pub fn add(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
        // Stable: within a level, in the order in which they were looked for.
        self.findings.sort_by_key(|finding| finding.level);
    }
}

/// Looks at everything.
#[must_use]
pub fn check(
    state: &ClusterState,
    surroundings: &Surroundings,
    successor: &Successor,
    now: Timestamp,
) -> TakeOver {
    let mut take_over = TakeOver {
        node_pools: state.node_pools.len(),
        node_claims: state.node_claims.len(),
        ..TakeOver::default()
    };
    surroundings::look(surroundings, successor, now, &mut take_over.findings);
    nodes::look(state, successor, now, &mut take_over);
    take_over.add([]);
    take_over
}

/// The first names, and how many more there are.
fn some(names: &[String]) -> String {
    spokeshave_plan::report::some_of(names, 3)
}
