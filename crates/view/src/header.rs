//! The numbers that come first.

use crate::Dollars;
use crate::history::{History, Range};
use crate::ledger::Sums;
use crate::nodes::{NodeRow, Phase, share};
use crate::world::{Judged, Missing};
use jiff::Timestamp;
use serde::Serialize;
use spokeshave_model::Price;

/// Requested and allocatable amounts of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Use {
    /// Allocatable on all existing nodes: millicores, bytes, pods.
    pub allocatable: i64,
    /// Their requests.
    pub requested: i64,
}

impl Use {
    /// In percent, rounded down.
    pub fn percent(self) -> i64 {
        share((self.allocatable, self.requested)) / 10
    }

    fn add(&mut self, (allocatable, requested): (i64, i64)) {
        self.allocatable = self.allocatable.saturating_add(allocatable);
        self.requested = self.requested.saturating_add(requested);
    }
}

/// The cluster in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// When this was true, by the cluster's clock.
    pub now: Timestamp,
    /// Dollars per hour of all managed nodes whose price is known.
    pub price: Dollars,
    /// Managed nodes whose price is not: `price` is a lower bound while there are any.
    pub nodes_without_price: usize,
    /// The price a day ago; none without samples from then.
    pub price_a_day_ago: Option<Dollars>,
    /// The part of the price that no pod requests.
    pub idle: Dollars,
    /// Savings of the nodes that may be disrupted, each on its own: an upper bound of the possible savings.
    pub could_save: Dollars,
    /// The saving of the command that would be decided now.
    pub next_saves: Dollars,
    /// NodePools.
    pub pools: usize,
    /// Nodes, those on their way in and out included.
    pub nodes: usize,
    /// Nodes that have joined and are Ready.
    pub ready: usize,
    /// Nodes on their way in.
    pub coming: usize,
    /// Nodes on their way out.
    pub leaving: usize,
    /// Nodes that have joined and are not Ready.
    pub broken: usize,
    /// Nodes that are not managed by this operator.
    pub unmanaged: usize,
    /// Pods with a node that have not ended.
    pub pods: usize,
    /// Pods without a node.
    pub pending: usize,
    /// CPU.
    pub cpu: Use,
    /// Memory.
    pub memory: Use,
    /// Commands since this program looks.
    pub done: Sums,
    /// Objects that could not be read; everything that depends on them is unknown.
    pub missing: Vec<Missing>,
    /// Fields of this header that depend on something missing, as JSON names them; their numbers mean nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<&'static str>,
}

/// Fields of the header that need a kind.
const NEEDED: [(&str, &[&str]); 5] = [
    (
        "price",
        &["nodes", "nodeclaims.karpenter.sh", "nodepools.karpenter.sh"],
    ),
    (
        "idle",
        &[
            "nodes",
            "pods",
            "nodeclaims.karpenter.sh",
            "nodepools.karpenter.sh",
        ],
    ),
    (
        "couldSave",
        &[
            "nodes",
            "pods",
            "nodeclaims.karpenter.sh",
            "nodepools.karpenter.sh",
            "poddisruptionbudgets.policy",
        ],
    ),
    ("pools", &["nodepools.karpenter.sh"]),
    ("unmanaged", &["nodeclaims.karpenter.sh"]),
];

fn unknown(missing: &[Missing]) -> Vec<&'static str> {
    let is_missing = |kind: &&str| missing.iter().any(|one| one.resource == **kind);
    let lacking = NEEDED.iter().filter(|(_, kinds)| kinds.iter().any(is_missing));
    lacking.map(|(field, _)| *field).collect()
}

impl Header {
    pub(crate) fn of(judged: &Judged, rows: &[NodeRow], done: Sums, day_ago: Option<Price>) -> Self {
        let snapshot = &judged.snapshot;
        let count = |phase: Phase| rows.iter().filter(|row| row.phase == phase).count();
        let managed = || snapshot.nodes.iter().filter(|node| node.is_managed());
        let (mut cpu, mut memory) = (Use::default(), Use::default());
        for row in rows {
            cpu.add(row.cpu);
            memory.add(row.memory);
        }
        let real = || snapshot.pods.iter().filter(|pod| pod.active && !pod.is_virtual);
        let leaving = |row: &&NodeRow| row.phase != Phase::Leaving;
        Self {
            now: judged.world.now,
            price: Dollars(managed().map(|node| node.price).sum()),
            nodes_without_price: managed().filter(|node| node.price <= Price::ZERO).count(),
            price_a_day_ago: day_ago.map(Dollars),
            idle: Dollars(rows.iter().map(NodeRow::idle).sum()),
            could_save: Dollars(
                rows.iter()
                    .filter(leaving)
                    .filter_map(|row| row.saves)
                    .map(|saves| saves.0.max(Price::ZERO))
                    .sum(),
            ),
            next_saves: Dollars(judged.disrupted.commands.iter().map(|one| one.savings()).sum()),
            pools: snapshot.pools.len(),
            nodes: rows.len(),
            ready: count(Phase::Ready),
            coming: count(Phase::Coming),
            leaving: count(Phase::Leaving),
            broken: count(Phase::Broken),
            unmanaged: rows.len() - managed().count(),
            pods: real().filter(|pod| pod.node.is_some()).count(),
            pending: real().filter(|pod| pod.provisionable).count() + judged.world.awaited.len(),
            cpu,
            memory,
            done,
            missing: judged.world.missing.clone(),
            unknown: unknown(&judged.world.missing),
        }
    }

    /// What the history says that the nodes cost: while no node's price is known, what it said last. They do not cost nothing.
    pub(crate) fn known_price(&self, history: &History) -> Option<Price> {
        if self.price.0 > Price::ZERO || self.nodes_without_price == 0 {
            return Some(self.price.0);
        }
        history
            .samples(Range::Hour)
            .next_back()
            .map(|sample| sample.price)
    }

    /// Whether a field is known, by its name in JSON.
    pub fn knows(&self, field: &str) -> bool {
        !self.unknown.contains(&field)
    }
}
