//! A verdict as a condition of the NodeClaim: `kubectl describe nodeclaim` tells why a node stays (issue of many users).
//!
//! It changes when the verdict does, and not when a price moves: what is compared leaves the money out. Passing states (nominated, under way) are not
//! verdicts about a node and are never written.

use super::command::Decision;
use super::verdict::{BlockerKind, Verdict};
use jiff::Timestamp;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, Status, VERDICT};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::state_node::is_free;
use spokeshave_model::{Action, Price, Subresource};

/// Longest message; a NodeClaim is no place for a novel.
const MESSAGE_CHARACTERS: usize = 1024;

/// What the condition is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictCondition {
    /// True when the node would go.
    pub status: Status,
    /// `Delete`, `Replace` or `Keep`.
    pub reason: &'static str,
    /// The smallest set of things in the way and what would happen without them, or what is to happen.
    pub message: String,
}

impl VerdictCondition {
    /// The condition of a verdict; `None` for a state that passes by itself.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        let passing = |kind: BlockerKind| {
            matches!(
                kind,
                BlockerKind::InCommand
                    | BlockerKind::Deleting
                    | BlockerKind::Nominated
                    | BlockerKind::NoNode
                    | BlockerKind::NotInitialized
                    | BlockerKind::NotManaged
            )
        };
        if verdict.blockers.iter().any(|blocker| passing(blocker.kind)) {
            return None;
        }
        let saves = verdict.saving_text();
        let method = verdict.method.map_or("", |method| method.as_str());
        let waits = verdict
            .waits
            .as_ref()
            .map(|why| format!("; {why}"))
            .unwrap_or_default();
        let (status, reason, message) = match verdict.decision {
            Decision::NoOp => (Status::False, "Keep", keep_text(verdict)),
            Decision::Delete => (Status::True, "Delete", format!("{method}: {saves}{waits}")),
            Decision::Replace => {
                let by = verdict.replacement.as_deref().unwrap_or("another node");
                (
                    Status::True,
                    "Replace",
                    format!("{method}: by {by}, {saves}{waits}"),
                )
            }
        };
        let message = message.chars().take(MESSAGE_CHARACTERS).collect();
        Some(VerdictCondition {
            status,
            reason,
            message,
        })
    }

    /// The same of a verdict of a pass over this Snapshot. Decisions take a node to cost nothing whose price nobody knows: what it saves is not known then.
    pub fn in_pass(snapshot: &Snapshot, verdict: &Verdict) -> Option<Self> {
        let node = snapshot.node(verdict.node);
        if node.price > Price::ZERO || is_free(node, &snapshot.pools) {
            return Self::of(verdict);
        }
        Self::of(&Verdict {
            price_unknown: true,
            ..verdict.clone()
        })
    }

    /// The write that brings the condition up to date; none while it says the same but for the money.
    pub fn action(&self, claim: &NodeClaim, now: Timestamp) -> Option<Action> {
        let same = claim.condition(VERDICT).is_some_and(|there| {
            there.status == self.status.as_str()
                && there.reason == self.reason
                && without_money(&there.message) == without_money(&self.message)
        });
        if same {
            return None;
        }
        let mut after = claim.clone();
        if !after.set(VERDICT, self.status, self.reason, &self.message, now) {
            return None;
        }
        Action::patch(
            crate::lifecycle::claim_ref(claim),
            Subresource::Status,
            claim,
            &after,
            true,
        )
    }
}

fn keep_text(verdict: &Verdict) -> String {
    let blockers: Vec<&str> = verdict
        .blockers
        .iter()
        .map(|blocker| blocker.message.as_str())
        .collect();
    let what = blockers.join("; ");
    let then = verdict.if_removed_text();
    if then.is_empty() {
        what
    } else {
        format!("{what}; {then}")
    }
}

/// The text without amounts of dollars: `saves $0.19/h` → `saves $/h`.
fn without_money(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_amount = false;
    for character in text.chars() {
        in_amount = character == '$' || (in_amount && (character.is_ascii_digit() || character == '.'));
        if character == '$' || !in_amount {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::command::Method;
    use super::super::verdict::{Blocker, Counterfactual, Subject};
    use super::*;
    use spokeshave_example::{instance_type, node, node_pool};
    use spokeshave_model::snapshot::NodeId;
    use spokeshave_model::{ClusterState, lower};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn keep(kind: BlockerKind, dollars: f64) -> Verdict {
        let price = Price::from_dollars(dollars);
        Verdict {
            node: NodeId(0),
            decision: Decision::NoOp,
            method: None,
            price_before: price,
            price_after: price,
            replacement: None,
            blockers: vec![Blocker {
                kind,
                object: Subject {
                    kind: "PodDisruptionBudget",
                    namespace: "shop".to_owned(),
                    name: "web".to_owned(),
                },
                message: "pdb prevents pod evictions (PodDisruptionBudget=[shop/web])".to_owned(),
                condition: "PodDisruptionBudget shop/web allowed 1".to_owned(),
            }],
            waits: None,
            if_removed: Some(Counterfactual {
                decision: Decision::Delete,
                method: Method::SingleNodeConsolidation,
                price_before: price,
                price_after: Price::ZERO,
                replacement: None,
            }),
            by_on_demand: false,
            price_unknown: false,
        }
    }

    #[test]
    fn the_condition_names_blockers_and_what_would_happen_without() {
        let condition = VerdictCondition::of(&keep(BlockerKind::PodDisruptionBudget, 0.19)).unwrap();
        assert_eq!((condition.status, condition.reason), (Status::False, "Keep"));
        assert_eq!(
            condition.message,
            "pdb prevents pod evictions (PodDisruptionBudget=[shop/web]); if PodDisruptionBudget shop/web allowed 1: delete, saves $0.19/h"
        );
    }

    #[test]
    fn a_price_that_moves_writes_nothing_and_another_blocker_does() {
        let mut claim = NodeClaim::new("c", Default::default());
        let of = |verdict: &Verdict, claim: &NodeClaim| {
            VerdictCondition::of(verdict).unwrap().action(claim, at(5))
        };
        let first = keep(BlockerKind::PodDisruptionBudget, 0.19);
        assert!(of(&first, &claim).is_some());
        let said = VerdictCondition::of(&first).unwrap();
        claim.set(VERDICT, said.status, said.reason, &said.message, at(1));
        assert_eq!(of(&first, &claim), None);
        assert_eq!(of(&keep(BlockerKind::PodDisruptionBudget, 0.23), &claim), None);
        let mut other = first;
        other.blockers[0].message = "something else".to_owned();
        assert!(of(&other, &claim).is_some());
    }

    #[test]
    fn a_node_that_may_go_and_waits_says_for_what() {
        let mut verdict = keep(BlockerKind::Budget, 0.19);
        verdict.decision = Decision::Delete;
        verdict.method = Some(Method::SingleNodeConsolidation);
        verdict.price_after = Price::ZERO;
        let message = |verdict: &Verdict| VerdictCondition::of(verdict).unwrap().message;
        assert_eq!(message(&verdict), "SingleNodeConsolidation: saves $0.19/h");
        verdict.waits = Some("it rests after a command that failed".to_owned());
        assert_eq!(
            message(&verdict),
            "SingleNodeConsolidation: saves $0.19/h; it rests after a command that failed"
        );
    }

    #[test]
    fn z_024_what_nobody_knows_the_price_of_is_not_said_to_save_nothing() {
        let mut verdict = keep(BlockerKind::Budget, 0.0);
        verdict.decision = Decision::Delete;
        verdict.method = Some(Method::Emptiness);
        let message = |verdict: &Verdict| VerdictCondition::of(verdict).unwrap().message;
        assert_eq!(message(&verdict), "Emptiness: saves nothing", "it is free");
        verdict.price_unknown = true;
        assert_eq!(message(&verdict), "Emptiness: saves an unknown amount");
        verdict.decision = Decision::Replace;
        verdict.method = Some(Method::Drift);
        verdict.replacement = Some("m5.large".to_owned());
        assert_eq!(
            message(&verdict),
            "Drift: by m5.large, changes the price by an unknown amount"
        );
        verdict.decision = Decision::NoOp;
        assert!(message(&verdict).ends_with(": delete, saves an unknown amount"));
    }

    #[test]
    fn z_024_a_pass_knows_of_which_nodes_nobody_knows_the_price() {
        let [known, odd] = ["known", "odd"].map(|name| instance_type(name, 2, 8, &["a"]));
        let state = ClusterState::default()
            .with_pool(node_pool("default"), vec![known.clone()])
            .with_node(node("default", "n", &known, "a", "spot"))
            .with_node(node("default", "o", &odd, "a", "spot"));
        let snapshot = lower(&state);
        let mut verdict = keep(BlockerKind::Budget, 0.0);
        verdict.decision = Decision::Delete;
        verdict.method = Some(Method::Emptiness);
        for (name, told) in [("n", "saves nothing"), ("o", "saves an unknown amount")] {
            verdict.node = snapshot.find_node(name).unwrap();
            let message = VerdictCondition::in_pass(&snapshot, &verdict).unwrap().message;
            assert_eq!(message, format!("Emptiness: {told}"), "{name}");
        }
    }

    #[test]
    fn passing_states_are_not_written() {
        for kind in [
            BlockerKind::Nominated,
            BlockerKind::InCommand,
            BlockerKind::NotInitialized,
        ] {
            assert_eq!(VerdictCondition::of(&keep(kind, 0.1)), None);
        }
    }
}
