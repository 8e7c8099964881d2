//! What a what-if changes: two worlds compared, each with the decisions about it.

use crate::Dollars;
use crate::nodes::{NodeRow, Nodes};
use crate::world::Judged;
use serde::Serialize;
use spokeshave_model::Price;

/// What becomes of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictChange {
    /// The node.
    pub node: String,
    /// What is said of it.
    pub before: Option<&'static str>,
    /// What would be; none when it would be gone.
    pub after: Option<&'static str>,
    /// What its going would save.
    pub saves: Option<Dollars>,
    /// The type of node that would come instead.
    pub replacement: Option<String>,
}

/// Nodes that a NodePool would lack of its fixed number for as long as none can be launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotLaunched {
    /// The NodePool.
    pub node_pool: String,
    /// How many, beside those that it lacks now in the same way.
    pub nodes: usize,
    /// Why they are not launched.
    pub message: String,
}

/// What a what-if changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// What the nodes cost now.
    pub price_before: Dollars,
    /// What those that would be left cost, with the nodes that would be launched.
    pub price_after: Dollars,
    /// What could be saved now: by nodes each taken alone, or by the next commands together, whichever is more.
    pub could_save_before: Dollars,
    /// What could be saved then.
    pub could_save_after: Dollars,
    /// Nodes that may go and whose price is not known: `could_save_before` is a lower bound while there are any.
    #[serde(skip)]
    pub savings_without_price_before: usize,
    /// The same of `could_save_after`.
    #[serde(skip)]
    pub savings_without_price_after: usize,
    /// Nodes whose price is not known, those that would be launched included: `price_before` is a lower bound while there are any.
    pub nodes_without_price_before: usize,
    /// The same of `price_after`.
    pub nodes_without_price_after: usize,
    /// Nodes that would be launched at once, for pods or for a fixed number of nodes, and were not before.
    pub launches: usize,
    /// Nodes of fixed numbers that would be missing, would not be launched, and are not missing now. They are in no price.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_launched: Vec<NotLaunched>,
    /// Pods without any place now.
    pub unplaced_before: usize,
    /// Pods without any place then.
    pub unplaced_after: usize,
    /// Nodes of which something else would be said, those that save most first.
    pub verdicts: Vec<VerdictChange>,
    /// Other nodes that would go in the next commands, or not any more, or with more or fewer others: what is said of each is about it alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regrouped: Vec<String>,
    /// What was not assumed away because it is not there any more, as values of `without=` and `gone=`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// What depends on something that could not be read and means nothing, as in the header of a view.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<&'static str>,
}

/// What managed nodes cost, with those that would be launched at once, for pods and for fixed numbers of nodes, each at its cheapest.
struct Bill {
    launches: usize,
    not_launched: Vec<NotLaunched>,
    price: Price,
    without_price: usize,
}

impl Bill {
    fn of(judged: &Judged) -> Self {
        let claims = &judged.provisioned.placements.claims;
        let cheapest = claims.iter().filter_map(|claim| claim.launches.first());
        let mut this = Self {
            launches: claims.len(),
            not_launched: Vec::new(),
            price: judged.provisioned.report.price,
            without_price: cheapest.filter(|launch| !launch.price.is_known()).count(),
        };
        for node in judged.snapshot.nodes.iter().filter(|node| node.is_managed()) {
            match judged.cost(node) {
                Some(price) => this.price = this.price.saturating_add(price),
                None => this.without_price += 1,
            }
        }
        for missing in &judged.replicas.missing {
            let launches = missing.launches(&judged.snapshot);
            this.launches += launches.nodes;
            match missing.price(&judged.snapshot) {
                Some(price) => {
                    let nodes = i64::try_from(launches.nodes).unwrap_or(i64::MAX);
                    this.price = this.price.saturating_add(Price(price.0.saturating_mul(nodes)));
                }
                None => this.without_price += launches.nodes,
            }
            if let Some(message) = launches.why_not_all {
                this.not_launched.push(NotLaunched {
                    node_pool: missing.node_pool.clone(),
                    nodes: missing.missing.saturating_sub(launches.nodes),
                    message,
                });
            }
        }
        this
    }

    /// What is not launched beyond what is not launched before.
    fn not_launched_since(self, before: &Self) -> Vec<NotLaunched> {
        let known = |pool: &str| {
            let mut known = before.not_launched.iter();
            known.find(|one| one.node_pool == pool).map_or(0, |one| one.nodes)
        };
        let mut more = self.not_launched;
        for one in &mut more {
            one.nodes = one.nodes.saturating_sub(known(&one.node_pool));
        }
        more.retain(|one| one.nodes > 0);
        more
    }
}

impl Difference {
    /// Compares what is with what would be.
    pub fn between(before: &Judged, after: &Judged) -> Self {
        let (left, right) = (Nodes::of(before), Nodes::of(after));
        let (bill, bill_then) = (Bill::of(before), Bill::of(after));
        let mut verdicts: Vec<VerdictChange> = left
            .0
            .iter()
            .filter_map(|row| {
                let then = right.find(&row.name);
                let after = then.and_then(|then| then.verdict);
                (then.is_none() || after != row.verdict).then(|| VerdictChange {
                    node: row.name.clone(),
                    before: row.verdict,
                    after,
                    saves: then.and_then(|then| then.saves),
                    replacement: then.and_then(|then| then.replacement.clone()),
                })
            })
            .collect();
        let is_regrouped = |row: &&NodeRow| {
            let then = right.find(&row.name);
            then.is_some_and(|then| then.verdict == row.verdict && then.in_next != row.in_next)
        };
        let regrouped = left.0.iter().filter(is_regrouped);
        let could_save = |nodes: &Nodes, judged: &Judged| nodes.could_save().max(judged.next_savings());
        verdicts.sort_by(|left, right| (right.saves, &left.node).cmp(&(left.saves, &right.node)));
        let unplaced = |judged: &Judged| judged.provisioned.left_over().count();
        Self {
            price_before: Dollars(bill.price),
            price_after: Dollars(bill_then.price),
            could_save_before: Dollars(could_save(&left, before)),
            could_save_after: Dollars(could_save(&right, after)),
            savings_without_price_before: left.savings_without_price(),
            savings_without_price_after: right.savings_without_price(),
            nodes_without_price_before: bill.without_price,
            nodes_without_price_after: bill_then.without_price,
            launches: bill_then.launches.saturating_sub(bill.launches),
            not_launched: bill_then.not_launched_since(&bill),
            unplaced_before: unplaced(before),
            unplaced_after: unplaced(after),
            verdicts,
            regrouped: regrouped.map(|row| row.name.clone()).collect(),
            absent: Vec::new(),
            unknown: after.world.unknown(),
        }
    }
}
