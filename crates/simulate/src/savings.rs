//! What commands have saved, and how much of it is bought again soon after, for the figure `savings_lost`.
//!
//! Owns the balance of the last hour. It decides nothing.

use spokeshave_api::disruption::Disruption;
use spokeshave_model::Price;

/// A launch within this time takes back what a command has saved.
const WITHIN_MS: u64 = 3_600_000;

/// What the commands of the last hour have saved, as far as it has not been bought again.
#[derive(Debug, Default)]
pub struct Savings(Vec<Saved>);

#[derive(Debug)]
struct Saved {
    at_ms: u64,
    pool: String,
    left: Price,
}

impl Savings {
    /// A command has started.
    pub fn note(&mut self, now_ms: u64, command: &Disruption) {
        self.forget_before(now_ms);
        let saved: Option<Price> = command.spec.savings.parse().ok();
        let node = command.spec.nodes.first();
        if let Some((left, node)) = saved.filter(|saved| *saved > Price::ZERO).zip(node) {
            self.0.push(Saved {
                at_ms: now_ms,
                pool: node.node_pool.clone(),
                left,
            });
        }
    }

    /// A NodePool has launched an instance of this price for waiting pods: so much of what was saved in it within the last hour is gone, of the newest command
    /// first. Returns of how many commands nothing is left.
    pub fn bought(&mut self, now_ms: u64, pool: &str, price: Price) -> u64 {
        self.forget_before(now_ms);
        let mut price = price;
        for saved in self.0.iter_mut().rev().filter(|saved| saved.pool == pool) {
            let taken = saved.left.min(price);
            saved.left = saved.left.saturating_sub(taken);
            price = price.saturating_sub(taken);
        }
        let before = self.0.len();
        self.0.retain(|saved| saved.left > Price::ZERO);
        (before - self.0.len()) as u64
    }

    /// What was saved longer ago has paid.
    fn forget_before(&mut self, now_ms: u64) {
        self.0.retain(|saved| now_ms - saved.at_ms < WITHIN_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn saving(pool: &str, savings: &str) -> Disruption {
        let node = json!({"name": "n", "nodeClaim": "n", "nodeClaimUID": "u", "providerID": "p", "nodePool": pool, "price": "1", "pods": 0});
        serde_json::from_value(json!({
            "metadata": {"name": "d"},
            "spec": {"method": "Emptiness", "reason": "Empty", "decision": "Delete", "decidedAt": "2026-03-02T00:00:00.000000Z", "nodes": [node],
                     "replacements": [], "priceBefore": "1", "priceAfter": "0", "savings": savings, "evictions": 0, "nodeSummary": "", "replacementSummary": ""},
        }))
        .unwrap()
    }

    fn dollars(text: &str) -> Price {
        text.parse().unwrap()
    }

    #[test]
    fn a_launch_takes_back_no_more_than_it_costs() {
        let mut savings = Savings::default();
        for (minute, pool, saved) in [(0, "a", "0.3"), (1, "a", "0.1"), (2, "b", "0.1"), (3, "a", "0")] {
            savings.note(minute * 60_000, &saving(pool, saved));
        }
        let minute = |minute: u64| minute * 60_000;
        assert_eq!(
            savings.bought(minute(4), "c", dollars("5")),
            0,
            "another NodePool"
        );
        assert_eq!(
            savings.bought(minute(5), "a", dollars("0.1")),
            1,
            "the newest first"
        );
        assert_eq!(
            savings.bought(minute(6), "a", dollars("0.2")),
            0,
            "a part of the other one"
        );
        assert_eq!(savings.bought(minute(7), "a", dollars("0.2")), 1, "and the rest");
        assert_eq!(
            savings.bought(minute(62), "b", dollars("1")),
            0,
            "an hour later it has paid"
        );
    }
}
