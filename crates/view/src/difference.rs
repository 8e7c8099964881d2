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
    price: Price,
    without_price: usize,
}

impl Bill {
    fn of(judged: &Judged) -> Self {
        let claims = &judged.provisioned.placements.claims;
        let cheapest = claims.iter().filter_map(|claim| claim.launches.first());
        let mut this = Self {
            launches: claims.len(),
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
            this.launches += missing.nodes;
            match missing.price(&judged.snapshot) {
                Some(price) => {
                    let nodes = i64::try_from(missing.nodes).unwrap_or(i64::MAX);
                    this.price = this.price.saturating_add(Price(price.0.saturating_mul(nodes)));
                }
                None => this.without_price += missing.nodes,
            }
        }
        this
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
            unplaced_before: unplaced(before),
            unplaced_after: unplaced(after),
            verdicts,
            regrouped: regrouped.map(|row| row.name.clone()).collect(),
            absent: Vec::new(),
            unknown: after.world.unknown(),
        }
    }
}
