//! Permanent and temporary problems of a cluster: budgets that can never allow an eviction, pods that protect themselves for
//! ever, NodePools that nothing can use. Each finding with its object, its proof, what it costs and the line to change.
//!
//! It reads state and decides nothing. Arithmetic of PodDisruptionBudgets is in `pdb`, of NodePools in `pools`, of pods in `pods`;
//! NodeClaims that are too old in `ages`; what is wrong with DisruptionPolicies, and with what workloads ask of them, in `policies`.

mod ages;
pub mod pdb;
mod pods;
mod policies;
mod pools;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use spokeshave_api::NodePool;
use spokeshave_api::conditions::{Conditioned as _, READY};
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use spokeshave_model::{ClusterState, Price};

pub(crate) use ages::expired;
pub use spokeshave_plan::budget_lint::Level;

use crate::expired::Expired;
use crate::prices;

/// Hours of an average month.
const HOURS_A_MONTH: f64 = 730.0;

/// The reason of a condition Ready that no operator has written: the NodePool is in a cluster, has no condition of its own, and counts as ready so that it can be
/// planned with.
pub const NOT_JUDGED: &str = "NotJudged";

/// Whether a NodePool counts as ready although no operator has said so.
pub fn is_unjudged(pool: &NodePool) -> bool {
    let condition = pool.condition(READY);
    condition.is_some_and(|condition| condition.reason == NOT_JUDGED)
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Severity: an error persists until it is fixed, a note may resolve on its own.
    pub level: Level,
    /// One word for machines; the list is in `docs/doctor.md`.
    pub code: &'static str,
    /// `PodDisruptionBudget shop/web`.
    pub object: String,
    /// The field, if one is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// One sentence.
    pub message: String,
    /// The arithmetic, or the evidence.
    pub proof: String,
    /// The fix: what to write, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Price of the nodes that it keeps from being emptied, in dollars a month; absent when it keeps none whose price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeps_dollars_per_month: Option<f64>,
    /// Those nodes, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

impl Finding {
    pub(crate) fn new(
        level: Level,
        code: &'static str,
        object: String,
        message: String,
        proof: String,
    ) -> Self {
        Self {
            level,
            code,
            object,
            field: None,
            message,
            proof,
            suggestion: None,
            keeps_dollars_per_month: None,
            nodes: Vec::new(),
        }
    }

    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Adds the managed nodes on which these pods are, and what they cost.
    fn keeps(mut self, snapshot: &Snapshot, pods: &[PodId]) -> Self {
        let nodes: BTreeSet<NodeId> = pods.iter().filter_map(|pod| snapshot.pod(*pod).node).collect();
        self.keep_nodes(snapshot, &nodes);
        self
    }

    fn keep_nodes(&mut self, snapshot: &Snapshot, nodes: &BTreeSet<NodeId>) {
        let managed = nodes
            .iter()
            .map(|id| snapshot.node(*id))
            .filter(|node| node.is_managed());
        let mut price = Price::ZERO;
        for node in managed {
            price = price.saturating_add(prices::told(snapshot, node));
            self.nodes.push(node.name.clone());
        }
        self.nodes.sort();
        self.keeps_dollars_per_month =
            (price > Price::ZERO).then(|| (price.dollars() * HOURS_A_MONTH * 100.0).round() / 100.0);
    }
}

/// Everything that is wrong: errors first, of one level by object and code.
///
/// `snapshot` must be made from `state`. `most_replicas` says how many pods workloads may have once they are scaled up, by `Deployment/shop/web`.
#[must_use]
pub fn doctor(
    state: &ClusterState,
    snapshot: &Snapshot,
    most_replicas: &BTreeMap<String, i64>,
    now: Timestamp,
) -> Vec<Finding> {
    let standing = pdb::standing(state, most_replicas);
    let mut findings = pdb::findings(&standing, snapshot);
    findings.extend(pods::findings(snapshot));
    findings.extend(pools::findings(&standing, snapshot, now));
    findings.extend(policies::findings(snapshot, now));
    findings.extend(expired(&Expired::of(state, now)));
    sort(&mut findings);
    findings
}

/// An object that is in no state, because it is not what its kind has to be; `place` is its file and line.
#[must_use]
pub fn left_out(object: String, place: &str, why: &str) -> Finding {
    Finding::new(
        Level::Error,
        "object-left-out",
        object,
        "it is not examined, and everything else is as if it were absent".to_owned(),
        format!("{place}: {why}"),
    )
    .suggest("correct it, and run this again")
}

/// Brings findings in the order of [`doctor`].
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by(|left, right| {
        let key = |finding: &Finding| (finding.level, finding.object.clone(), finding.code);
        key(left).cmp(&key(right))
    });
}
