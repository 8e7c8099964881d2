//! What nodes come to together: the sums that the header, the groups of the page and `top` show are worked out here, once for all of them.

use crate::nodes::{NodeRow, Nodes, share};
use serde::Serialize;
use spokeshave_model::Price;
use std::collections::BTreeMap;

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

/// Sums over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How many, those on their way in and out included.
    pub nodes: usize,
    /// What they cost an hour, as far as their prices are known. What has not been launched yet costs nothing, and what nodes cost that are not managed is not known.
    pub price: Price,
    /// Those that have been launched and whose price is not known: `price` is a lower bound while there are any.
    pub without_price: usize,
    /// CPU.
    pub cpu: Use,
    /// Memory.
    pub memory: Use,
}

impl Total {
    /// The sums over some nodes.
    pub fn of<'r>(rows: impl IntoIterator<Item = &'r NodeRow>) -> Self {
        let mut total = Self::default();
        for row in rows {
            total.add(row);
        }
        total
    }

    fn add(&mut self, row: &NodeRow) {
        self.nodes += 1;
        self.cpu.add(row.cpu);
        self.memory.add(row.memory);
        if !row.is_launched {
            return;
        }
        match row.price.filter(|_| row.is_managed) {
            Some(price) => self.price = self.price.saturating_add(price.0),
            None => self.without_price += 1,
        }
    }
}

impl NodeRow {
    /// What nodes without a NodePool are told under. No NodePool can be called that: it has a space.
    pub const NO_POOL: &'static str = "no NodePool";

    /// The NodePool under which a node is told; those without one are told under [`NodeRow::NO_POOL`].
    pub fn pool_title(&self) -> &str {
        self.pool.as_deref().unwrap_or(Self::NO_POOL)
    }
}

impl Nodes {
    /// The sums of each NodePool that has nodes, by [`NodeRow::pool_title`].
    pub fn totals_by_pool(&self) -> BTreeMap<&str, Total> {
        let mut totals: BTreeMap<&str, Total> = BTreeMap::new();
        for row in &self.0 {
            totals.entry(row.pool_title()).or_default().add(row);
        }
        totals
    }
}
