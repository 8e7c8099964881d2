//! What this operator would have done, beside what another has done, in numbers and names.
//!
//! Pure: it is told, and it adds up. It keeps a bounded number of nodes and differences; totals are whole.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_model::Price;
use spokeshave_plan::report::count;

/// Most differences that are kept; the oldest go first.
const DIFFERENCES: usize = 200;
/// Most nodes that are remembered; the oldest go first.
const NODES: usize = 20_000;
/// The version of the report for machines.
const API_VERSION: &str = "shadow.spokeshave.dev/v1alpha1";

/// Who did something, or would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This operator, which only decides.
    Shadow,
    /// Whoever runs the cluster.
    Other,
}

impl Side {
    /// Value of the label `operator` of metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Side::Shadow => "shadow",
            Side::Other => "other",
        }
    }
}

/// What one side did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// NodeClaims made.
    pub launches: u64,
    /// What those cost per hour, as far as known.
    pub launch_price: Price,
    /// Nodes disrupted.
    pub disrupted: u64,
    /// Pods that have to move because of that.
    pub moves: u64,
}

/// Both sides of one NodePool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolDeeds {
    /// This operator.
    pub shadow: Deeds,
    /// The other.
    pub other: Deeds,
    /// Nodes that both disrupted, or that the other disrupted and this operator would have.
    pub disrupted_by_both: u64,
    /// Nodes that ended without being disrupted: of their age, by an interruption, a repair or a deletion by hand. Neither side has decided that.
    pub ended_otherwise: u64,
}

impl PoolDeeds {
    fn of(&mut self, side: Side) -> &mut Deeds {
        match side {
            Side::Shadow => &mut self.shadow,
            Side::Other => &mut self.other,
        }
    }
}

/// A node that goes, or would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Provider ID, which names it for good.
    pub provider_id: String,
    /// The Node's name.
    pub node: String,
    /// Its NodePool.
    pub pool: String,
    /// Why.
    pub reason: String,
    /// Pods that have to move.
    pub pods: usize,
}

/// What this operator thinks of a node: whether it would go, and in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion {
    /// It would be disrupted.
    pub goes: bool,
    /// Why, or what keeps it.
    pub text: String,
}

/// Where the two differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// When it was seen.
    pub time: Timestamp,
    /// What it is about: a Node, or pods.
    pub object: String,
    /// What this operator would do.
    pub shadow: String,
    /// What the other did.
    pub other: String,
}

/// Which sides have disrupted a node, and whether it has ended otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct Sides {
    shadow: bool,
    other: bool,
    ended: bool,
}

/// The ledger.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    since: Option<Timestamp>,
    pools: BTreeMap<String, PoolDeeds>,
    nodes: BTreeMap<String, Sides>,
    /// Provider IDs in the order in which they came.
    order: VecDeque<String>,
    differences: VecDeque<Difference>,
    price_now: Price,
    price_at_rest: Option<Price>,
    moves_to_rest: usize,
    unplaced: u64,
    refused_by_audit: u64,
}

impl Ledger {
    /// Begins.
    pub fn begin(&mut self, now: Timestamp) {
        self.since = Some(now);
    }

    /// Both sides by NodePool.
    #[must_use]
    pub fn pools(&self) -> &BTreeMap<String, PoolDeeds> {
        &self.pools
    }

    /// Where the two differ, oldest first.
    pub fn differences(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter()
    }

    /// What the cluster costs per hour now, and what it would cost after every move that this operator would make, with how many nodes those take.
    pub fn price(&mut self, now: Price, at_rest: Option<(Price, usize)>) {
        self.price_now = now;
        if let Some((price, moves)) = at_rest {
            (self.price_at_rest, self.moves_to_rest) = (Some(price), moves);
        }
    }

    /// A NodeClaim that was made, or would have been.
    pub fn launched(&mut self, side: Side, pool: &str) {
        self.pools.entry(pool.to_owned()).or_default().of(side).launches += 1;
    }

    /// What a launch costs, once that is known.
    pub fn launch_price(&mut self, side: Side, pool: &str, price: Price) {
        let deeds = self.pools.entry(pool.to_owned()).or_default().of(side);
        deeds.launch_price = deeds.launch_price.saturating_add(price);
    }

    /// Pods that this operator has no place for.
    pub fn unplaced(&mut self, pods: &str, number: usize, reason: &str, now: Timestamp) {
        self.unplaced += number as u64;
        self.differ(Difference {
            time: now,
            object: format!("pods {pods}"),
            shadow: format!("has no place: {reason}"),
            other: "not compared".to_owned(),
        });
    }

    /// A decision that an independent check has refused: it counts for nothing else.
    pub fn refused(&mut self, what: &str, problem: &str, now: Timestamp) {
        self.refused_by_audit += 1;
        self.differ(Difference {
            time: now,
            object: what.to_owned(),
            shadow: format!("refused by its own check: {problem}"),
            other: "not compared".to_owned(),
        });
    }

    /// What the cluster costs per hour now, and at rest, if that is known.
    #[must_use]
    pub fn prices(&self) -> (Price, Option<Price>) {
        (self.price_now, self.price_at_rest)
    }

    /// This operator would disrupt a node; true when that is new. A node counts once, however often it is decided.
    pub fn would_disrupt(&mut self, gone: &Gone, now: Timestamp) -> bool {
        let sides = self.sides(&gone.provider_id);
        if sides.shadow || sides.ended {
            return false;
        }
        sides.shadow = true;
        let by_both = sides.other;
        let row = self.pools.entry(gone.pool.clone()).or_default();
        row.shadow.disrupted += 1;
        row.shadow.moves += gone.pods as u64;
        row.disrupted_by_both += u64::from(by_both);
        if !by_both {
            self.differ(Difference {
                time: now,
                object: format!("node {}", gone.node),
                shadow: gone.reason.clone(),
                other: "not yet".to_owned(),
            });
        }
        true
    }

    /// The other disrupts a node. `opinion` is what this operator thought of it last.
    pub fn was_disrupted(&mut self, gone: &Gone, opinion: Option<&Opinion>, now: Timestamp) {
        let sides = self.sides(&gone.provider_id);
        if sides.other {
            return;
        }
        sides.other = true;
        let decided_before = sides.shadow;
        let agrees = !decided_before && opinion.is_some_and(|opinion| opinion.goes);
        sides.shadow |= agrees;
        let row = self.pools.entry(gone.pool.clone()).or_default();
        row.other.disrupted += 1;
        row.other.moves += gone.pods as u64;
        if agrees {
            row.shadow.disrupted += 1;
            row.shadow.moves += gone.pods as u64;
        }
        if decided_before || agrees {
            row.disrupted_by_both += 1;
            let object = format!("node {}", gone.node);
            self.differences.retain(|difference| difference.object != object);
            return;
        }
        self.differ(Difference {
            time: now,
            object: format!("node {}", gone.node),
            shadow: opinion.map_or_else(
                || "keeps it".to_owned(),
                |opinion| format!("keeps it: {}", opinion.text),
            ),
            other: gone.reason.clone(),
        });
    }

    /// A node ends without being disrupted: whoever runs the cluster, it would have ended then, and so it is not compared.
    pub fn ended_otherwise(&mut self, provider_id: &str, node: &str, pool: &str) {
        let sides = self.sides(provider_id);
        if sides.other || sides.ended {
            return;
        }
        sides.ended = true;
        self.pools.entry(pool.to_owned()).or_default().ended_otherwise += 1;
        let object = format!("node {node}");
        for difference in self.differences.iter_mut().filter(|one| one.object == object) {
            "ended otherwise".clone_into(&mut difference.other);
        }
    }

    fn sides(&mut self, provider_id: &str) -> &mut Sides {
        if !self.nodes.contains_key(provider_id) {
            self.order.push_back(provider_id.to_owned());
            if self.order.len() > NODES
                && let Some(oldest) = self.order.pop_front()
            {
                self.nodes.remove(&oldest);
            }
        }
        self.nodes.entry(provider_id.to_owned()).or_default()
    }

    fn differ(&mut self, difference: Difference) {
        self.differences.push_back(difference);
        if self.differences.len() > DIFFERENCES {
            self.differences.pop_front();
        }
    }

    /// The report for people.
    #[must_use]
    pub fn text(&self, now: Timestamp) -> String {
        let Some(since) = self.since else {
            return "The shadow has not begun: its view of the cluster is not complete yet.\n".to_owned();
        };
        let minutes = now.duration_since(since).as_secs() / 60;
        let mut out = format!(
            "Shadow since {since:.0}, {}. Nothing has been changed.\n\n",
            count(usize::try_from(minutes).unwrap_or(0), "minute")
        );
        if self.pools.is_empty() {
            out.push_str("Neither operator has launched or disrupted a node since.\n");
        }
        for (pool, row) in &self.pools {
            let line =
                |what: &str, shadow: String, other: String| format!("  {what:<24}{shadow:>12}{other:>12}\n");
            out.push_str(&line(
                &format!("NodePool {pool}"),
                "shadow".to_owned(),
                "other".to_owned(),
            ));
            let (ours, theirs) = (&row.shadow, &row.other);
            out.push_str(&line(
                "launches",
                ours.launches.to_string(),
                theirs.launches.to_string(),
            ));
            let money = |price: Price| format!("${}", price.to_cents_text());
            out.push_str(&line(
                "their price per hour",
                money(ours.launch_price),
                money(theirs.launch_price),
            ));
            out.push_str(&line(
                "nodes disrupted",
                ours.disrupted.to_string(),
                theirs.disrupted.to_string(),
            ));
            out.push_str(&line(
                "of these, the same",
                row.disrupted_by_both.to_string(),
                row.disrupted_by_both.to_string(),
            ));
            out.push_str(&line(
                "pods that move",
                ours.moves.to_string(),
                theirs.moves.to_string(),
            ));
            if row.ended_otherwise > 0 {
                let ended = row.ended_otherwise.to_string();
                out.push_str(&line("ended otherwise", "-".to_owned(), ended));
            }
        }
        out.push_str(&format!(
            "\nThe cluster costs ${} per hour",
            self.price_now.to_cents_text()
        ));
        match self.price_at_rest {
            Some(price) => out.push_str(&format!(
                "; after every move that this operator would make, of {}: ${}.\n",
                count(self.moves_to_rest, "node"),
                price.to_cents_text()
            )),
            None => out.push_str(".\n"),
        }
        if self.unplaced > 0 {
            out.push_str(&format!("Pods without a place: {}.\n", self.unplaced));
        }
        if self.refused_by_audit > 0 {
            out.push_str(&format!(
                "Decisions refused by its own check: {}.\n",
                self.refused_by_audit
            ));
        }
        if self.differences.is_empty() {
            out.push_str("\nNo differences.\n");
            return out;
        }
        out.push_str("\nDifferences, latest first:\n");
        for one in self.differences.iter().rev() {
            out.push_str(&format!(
                "  {:.0}  {}\n    shadow: {}\n    other:  {}\n",
                one.time, one.object, one.shadow, one.other
            ));
        }
        out
    }

    /// The report for machines.
    #[must_use]
    pub fn json(&self, now: Timestamp) -> Value {
        let deeds = |deeds: &Deeds| {
            json!({
                "launches": deeds.launches,
                "launchPrice": deeds.launch_price.dollars(),
                "nodesDisrupted": deeds.disrupted,
                "podsMoved": deeds.moves,
            })
        };
        let pools: Vec<Value> = self
            .pools
            .iter()
            .map(|(name, row)| {
                json!({
                    "name": name,
                    "shadow": deeds(&row.shadow),
                    "other": deeds(&row.other),
                    "nodesDisruptedByBoth": row.disrupted_by_both,
                    "nodesEndedOtherwise": row.ended_otherwise,
                })
            })
            .collect();
        let differences: Vec<Value> = self
            .differences
            .iter()
            .map(|one| json!({"time": one.time.to_string(), "object": one.object, "shadow": one.shadow, "other": one.other}))
            .collect();
        json!({
            "apiVersion": API_VERSION,
            "kind": "ShadowReport",
            "since": self.since.map(|since| since.to_string()),
            "now": now.to_string(),
            "nodePools": pools,
            "price": self.price_now.dollars(),
            "priceAtRest": self.price_at_rest.map(Price::dollars),
            "nodesMovedToRest": self.moves_to_rest,
            "podsWithoutPlace": self.unplaced,
            "refusedByAudit": self.refused_by_audit,
            "differences": differences,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn gone(name: &str) -> Gone {
        Gone {
            provider_id: format!("kwok://{name}"),
            node: name.to_owned(),
            pool: "web".to_owned(),
            reason: "Underutilized".to_owned(),
            pods: 3,
        }
    }

    fn begun() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.begin(at(0));
        ledger
    }

    #[test]
    fn a_node_counts_once_for_each_side_whoever_is_first() {
        let mut ledger = begun();
        for _ in 0..3 {
            ledger.would_disrupt(&gone("a"), at(1));
        }
        assert_eq!(ledger.differences().count(), 1);
        ledger.was_disrupted(&gone("a"), None, at(2));
        ledger.was_disrupted(&gone("a"), None, at(3));
        let row = &ledger.pools()["web"];
        assert_eq!(
            (row.shadow.disrupted, row.other.disrupted, row.disrupted_by_both),
            (1, 1, 1)
        );
        assert_eq!((row.shadow.moves, row.other.moves), (3, 3));
        assert_eq!(ledger.differences().count(), 0, "they agree now");
    }

    #[test]
    fn what_the_other_disrupts_is_a_difference_unless_this_one_would_too() {
        let mut ledger = begun();
        let opinion = |goes: bool, text: &str| Opinion {
            goes,
            text: text.to_owned(),
        };
        ledger.was_disrupted(&gone("a"), Some(&opinion(true, "delete")), at(1));
        ledger.was_disrupted(&gone("b"), Some(&opinion(false, "budget web allows 0")), at(2));
        ledger.was_disrupted(&gone("c"), None, at(3));
        // Decided only after the other did it: it agrees.
        ledger.would_disrupt(&gone("a"), at(4));
        let row = &ledger.pools()["web"];
        assert_eq!(
            (row.shadow.disrupted, row.other.disrupted, row.disrupted_by_both),
            (1, 3, 1)
        );
        let texts: Vec<&str> = ledger.differences().map(|one| one.shadow.as_str()).collect();
        assert_eq!(texts, ["keeps it: budget web allows 0", "keeps it"]);
    }

    #[test]
    fn a_node_that_ends_otherwise_is_nobodys_disruption_and_counts_once() {
        let mut ledger = begun();
        ledger.would_disrupt(&gone("a"), at(1));
        ledger.was_disrupted(&gone("b"), None, at(2));
        for name in ["a", "a", "b", "c"] {
            ledger.ended_otherwise(&gone(name).provider_id, name, "web");
        }
        assert!(!ledger.would_disrupt(&gone("c"), at(3)), "it is gone");
        let row = &ledger.pools()["web"];
        assert_eq!(
            (row.shadow.disrupted, row.other.disrupted, row.ended_otherwise),
            (1, 1, 2)
        );
        assert_eq!((row.shadow.moves, row.other.moves), (3, 3));
        let texts: Vec<&str> = ledger.differences().map(|one| one.other.as_str()).collect();
        assert_eq!(texts, ["ended otherwise", "Underutilized"]);
        let text = ledger.text(at(60));
        let line = text.lines().find(|line| line.contains("ended otherwise"));
        let words: Vec<&str> = line.into_iter().flat_map(str::split_whitespace).collect();
        assert_eq!(words, ["ended", "otherwise", "-", "2"]);
    }

    #[test]
    fn launches_and_prices_add_up_and_the_report_says_them() {
        let mut ledger = begun();
        ledger.launched(Side::Shadow, "web");
        ledger.launch_price(Side::Shadow, "web", Price::from_dollars(0.5));
        for _ in 0..2 {
            ledger.launched(Side::Other, "web");
            ledger.launch_price(Side::Other, "web", Price::from_dollars(0.4));
        }
        ledger.price(Price::from_dollars(12.0), Some((Price::from_dollars(10.5), 4)));
        let text = ledger.text(at(600));
        for part in [
            "since 1970-01-01T00:00:00Z, 10 minutes",
            "$12.00 per hour; after every move that this operator would make, of 4 nodes: $10.50",
            "No differences.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let value = ledger.json(at(600));
        assert_eq!(value["nodePools"][0]["other"]["launches"], 2);
        assert_eq!(value["nodePools"][0]["shadow"]["launchPrice"], 0.5);
        assert_eq!(value["priceAtRest"], 10.5);
    }

    #[test]
    fn what_is_kept_is_bounded_and_totals_are_whole() {
        let mut ledger = begun();
        for number in 0..(NODES + 10) {
            ledger.would_disrupt(&gone(&format!("n{number}")), at(1));
        }
        assert_eq!(ledger.differences().count(), DIFFERENCES);
        assert_eq!((ledger.nodes.len(), ledger.order.len()), (NODES, NODES));
        assert_eq!(ledger.pools()["web"].shadow.disrupted, (NODES + 10) as u64);
    }

    #[test]
    fn every_field_of_the_report_is_documented() {
        const MANUAL: &str = include_str!("../../../../docs/migrate.md");
        let mut ledger = begun();
        ledger.would_disrupt(&gone("a"), at(1));
        let mut pending = vec![ledger.json(at(2))];
        let mut fields = 0;
        while let Some(value) = pending.pop() {
            for (name, inner) in value.as_object().into_iter().flatten() {
                assert!(
                    MANUAL.contains(&format!("`{name}`")),
                    "{name} is not in docs/migrate.md"
                );
                pending.push(inner.clone());
                fields += 1;
            }
            pending.extend(value.as_array().into_iter().flatten().cloned());
        }
        assert!(fields > 20, "{fields}");
    }

    #[test]
    fn before_it_has_begun_the_report_says_so() {
        assert!(
            Ledger::default()
                .text(at(5))
                .starts_with("The shadow has not begun")
        );
    }
}
