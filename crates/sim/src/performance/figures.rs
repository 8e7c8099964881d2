//! The figures of a scenario, and how they compare with those that were committed. Less is better in each of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a scenario has cost; of several seeds the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// NodeClaims made until all pods ran.
    pub launch_nodes: usize,
    /// Price of the nodes then, in micro-dollars an hour.
    pub launch_price: i64,
    /// Price of the nodes at rest, in micro-dollars an hour.
    pub price: i64,
    /// Nodes at rest.
    pub nodes: usize,
    /// Micro-dollars paid in the first 15 minutes after the workloads have shrunk.
    pub paid: i64,
    /// Pods evicted since.
    pub moved: usize,
    /// Commands since.
    pub commands: usize,
    /// NodeClaims made since.
    pub launched: usize,
    /// Replacements that were disrupted again.
    pub disrupted_again: usize,
    /// Seconds until nothing changed any more.
    pub seconds: u64,
}

/// By scenario.
pub type Table = BTreeMap<String, Figures>;

/// What an unrelated change may move a figure by, without being noticed: a share in thousandths, and an amount for small counts.
struct Slack {
    thousandths: i64,
    amount: i64,
}

const PRICE: Slack = Slack {
    thousandths: 10,
    amount: 0,
};
// Which nodes come to rest together is chance: one more task in the operator moved the sum of three runs by half. What this must catch was four times as much.
const COUNT: Slack = Slack {
    thousandths: 500,
    amount: 6,
};
const TIME: Slack = Slack {
    thousandths: 750,
    amount: 60,
};

impl Figures {
    /// The sum of several runs.
    #[must_use]
    pub fn sum(runs: &[Figures]) -> Figures {
        let add = |sum: Figures, one: &Figures| Figures {
            launch_nodes: sum.launch_nodes + one.launch_nodes,
            launch_price: sum.launch_price + one.launch_price,
            price: sum.price + one.price,
            nodes: sum.nodes + one.nodes,
            paid: sum.paid + one.paid,
            moved: sum.moved + one.moved,
            commands: sum.commands + one.commands,
            launched: sum.launched + one.launched,
            disrupted_again: sum.disrupted_again + one.disrupted_again,
            seconds: sum.seconds + one.seconds,
        };
        runs.iter().fold(Figures::default(), add)
    }

    fn named(&self) -> [(&'static str, i64, Slack); 9] {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        [
            ("launchPrice", self.launch_price, PRICE),
            ("price", self.price, PRICE),
            ("paid", self.paid, PRICE),
            ("nodes", count(self.nodes), COUNT),
            ("moved", count(self.moved), COUNT),
            ("commands", count(self.commands), COUNT),
            ("launched", count(self.launched), COUNT),
            ("disruptedAgain", count(self.disrupted_again), COUNT),
            ("seconds", i64::try_from(self.seconds).unwrap_or(i64::MAX), TIME),
        ]
    }

    /// What is worse than it was, one line each.
    #[must_use]
    pub fn worse_than(&self, committed: &Figures) -> Vec<String> {
        let pairs = self.named().into_iter().zip(committed.named());
        pairs
            .filter_map(|((name, now, slack), (_, before, _))| {
                let limit = before + (before * slack.thousandths / 1000).max(slack.amount);
                (now > limit).then(|| format!("{name} is {now}, was {before} and may be {limit}"))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_worse_beyond_what_chance_moves() {
        let committed = Figures {
            price: 25_000_000,
            moved: 40,
            seconds: 300,
            ..Figures::default()
        };
        assert!(committed.worse_than(&committed).is_empty());
        let better = Figures {
            price: 24_000_000,
            moved: 42,
            ..committed
        };
        assert!(better.worse_than(&committed).is_empty());
        let worse = Figures {
            price: 25_251_000,
            moved: 61,
            seconds: 526,
            ..committed
        };
        let lines = worse.worse_than(&committed);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[1].contains("moved is 61, was 40 and may be 60"),
            "{lines:?}"
        );
    }

    #[test]
    fn sums_are_of_each_figure() {
        let one = Figures {
            moved: 3,
            price: 5,
            ..Figures::default()
        };
        let sum = Figures::sum(&[one, one]);
        assert_eq!((sum.moved, sum.price, sum.nodes), (6, 10, 0));
    }
}
