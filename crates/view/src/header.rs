//! The numbers that come first.

use crate::Dollars;
use crate::account::{Account, is_paid};
use crate::ledger::Sums;
use crate::nodes::{NodeRow, Nodes, Phase};
use crate::pending::is_unplanned;
use crate::total::{Total, Use};
use crate::unknown::{Missing, knows_commands};
use crate::world::Judged;
use jiff::Timestamp;
use serde::Serialize;
use spokeshave_model::Price;
use spokeshave_model::pod::is_virtual;
use spokeshave_model::snapshot::NodeId;

/// The cluster in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// When this was true, by the cluster's clock.
    pub now: Timestamp,
    /// Dollars per hour of all managed nodes that have been launched and whose price is known.
    pub price: Dollars,
    /// Such nodes whose price is not: `price` is a lower bound while there are any.
    pub nodes_without_price: usize,
    /// The price a day ago; none without samples from then.
    pub price_a_day_ago: Option<Dollars>,
    /// The part of the price that no pod requests.
    pub idle: Dollars,
    /// Savings of the nodes that may be disrupted, each on its own. Together some of them may save less, and sets of others more.
    pub could_save: Dollars,
    /// The saving of the commands that would be decided now.
    pub next_saves: Dollars,
    /// Nodes that may go, each on its own or by these commands, whose price is not known: `could_save` and `next_saves` are lower bounds while there are any. Programs find
    /// them among the nodes.
    #[serde(skip)]
    pub savings_without_price: usize,
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
    /// Pods with a node that have not ended, also those that are stopping. They request what `cpu` and `memory` say, with those that a scheduler has named a node for and
    /// that are counted as `unplanned`.
    pub pods: usize,
    /// Pods without a node that wait for one.
    pub pending: usize,
    /// Pods without a node for which none is planned: gated ones, and those of which kube-scheduler has not said that they are unschedulable.
    pub unplanned: usize,
    /// CPU.
    pub cpu: Use,
    /// Memory.
    pub memory: Use,
    /// Commands that were kept when this program began to look, and all since.
    pub done: Sums,
    /// Why the price is what it is; none while no price is known, or while prices or commands could not be read.
    pub account: Option<Account>,
    /// Why this is old, where it is: only for who asks for the whole; `/api/changes` tells it as `trouble`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_up_to_date: Option<String>,
    /// Objects that could not be read; everything that depends on them is unknown.
    pub missing: Vec<Missing>,
    /// What depends on something missing and means nothing: fields of this header, as JSON names them, and `verdict` (of nodes, with what it would save),
    /// `budgets` (what they allow) and `place` (of pending pods).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<&'static str>,
}

impl Header {
    pub(crate) fn of(
        judged: &Judged,
        nodes: &Nodes,
        done: Sums,
        account: Option<Account>,
        day_ago: Option<Price>,
    ) -> Self {
        let (snapshot, rows) = (&judged.snapshot, &nodes.0);
        let count = |phase: Phase| rows.iter().filter(|row| row.phase == phase).count();
        let managed = snapshot.nodes.iter().filter(|node| node.is_managed()).count();
        let paid = || snapshot.nodes.iter().filter(|node| is_paid(node));
        let launched = rows.iter().filter(|row| row.is_launched && row.is_managed);
        let total = Total::of(rows);
        let real = || snapshot.pods.iter().filter(|pod| !pod.is_virtual);
        let is_there = |node: NodeId| !snapshot.node(node).is_stand_in();
        let awaited = judged.world.awaited().filter(|pod| !is_virtual(pod));
        Self {
            now: judged.world.now,
            price: Dollars(paid().filter_map(|node| judged.cost(node)).sum()),
            nodes_without_price: paid().filter(|node| judged.cost(node).is_none()).count(),
            price_a_day_ago: day_ago.map(Dollars),
            idle: Dollars(launched.map(NodeRow::idle).sum()),
            could_save: Dollars(nodes.could_save()),
            next_saves: Dollars(judged.next_savings()),
            savings_without_price: nodes.savings_without_price(),
            pools: snapshot.pools.len(),
            nodes: rows.len(),
            ready: count(Phase::Ready),
            coming: count(Phase::Coming) + count(Phase::Unknown),
            leaving: count(Phase::Leaving),
            broken: count(Phase::Broken),
            unmanaged: rows.len() - managed,
            pods: real()
                .filter(|pod| !pod.terminal && !pod.promised && pod.node.is_some_and(is_there))
                .count(),
            pending: real().filter(|pod| pod.active && pod.provisionable).count() + awaited.count(),
            unplanned: snapshot.pods.iter().filter(|pod| is_unplanned(pod)).count(),
            cpu: total.cpu,
            memory: total.memory,
            done,
            account,
            not_up_to_date: None,
            missing: judged.world.missing.clone(),
            unknown: judged.world.unknown(),
        }
    }

    /// Whether sums of prices say something: they do not where there are nodes and the price of none is known, and prices are those of managed nodes.
    pub fn is_priced(&self) -> bool {
        let is_known = self.price.0 > Price::ZERO || self.nodes_without_price == 0;
        self.knows("price") && self.has_managed_nodes() && is_known
    }

    /// Whether there are managed nodes, or no nodes at all: what others cost nobody knows.
    pub fn has_managed_nodes(&self) -> bool {
        !self.knows("unmanaged") || self.nodes == 0 || self.nodes > self.unmanaged
    }

    /// What could be saved: by nodes that go each alone, or by the commands that would be decided now, of which some are about sets of nodes. It is neither the
    /// least nor the most: nodes that go each alone may save less together, and sets that are not among those commands more.
    pub fn possible_savings(&self) -> Price {
        self.could_save.0.max(self.next_saves.0)
    }

    /// What the history says that the nodes cost: while no node's price is known, what it said `last`. They do not cost nothing. Managed nodes that have all
    /// gone do, and where there never were any there is nothing to tell.
    pub fn known_price(&self, last: Option<Price>) -> Option<Price> {
        if self.is_priced() {
            return Some(self.price.0);
        }
        let is_held = self.has_managed_nodes();
        last.map(|last| if is_held { last } else { Price::ZERO })
    }

    /// Whether the commands of the past could be read. Where they cannot, those that were seen before are told still.
    pub fn knows_commands(&self) -> bool {
        knows_commands(&self.missing)
    }

    /// Whether a field is known, by its name in JSON; or a part of the rest, by its name in `unknown`.
    pub fn knows(&self, field: &str) -> bool {
        !self.unknown.contains(&field)
    }
}
