//! Voluntary disruption (D §3): clean up, decide, wait, look again, carry out. One command is in preparation at a time, and none blocks the loop.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::labels;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Action, ObjectKind, Price};
use spokeshave_plan::disrupt::steps::{cleanup_actions, delete_actions, mark_actions, terminating_events};
use spokeshave_plan::disrupt::{Command, EmptinessOutcome, emptiness, validate_emptiness};
use spokeshave_runtime::Shutdown;
use tokio::sync::Notify;

use crate::claims::termination_mode;
use crate::decision::DecisionKind;
use crate::shared::Shared;

/// Pause after a pass without a command (D-064).
const POLL: Duration = spokeshave_api::constants::DISRUPTION_POLL;
/// With nothing changed, a pass is due all the same after this long: budgets open and close by the clock.
const STILLNESS: Duration = Duration::from_secs(60);

/// A command that waits for its second look.
#[derive(Debug)]
struct Pending {
    command: Command,
    due: Timestamp,
}

/// The disruption loop.
#[derive(Debug)]
pub(crate) struct Disruption {
    shared: Arc<Shared>,
    wake: Notify,
}

impl Disruption {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        let this = Arc::new(Self {
            shared,
            wake: Notify::new(),
        });
        // A node that becomes consolidatable is looked at soon, not at the next poll.
        let woken = this.clone();
        this.shared.stores.node_claims.on_change(move |change| {
            let is = |claim: Option<&spokeshave_api::NodeClaim>| {
                claim.is_some_and(|claim| {
                    spokeshave_model::state_node::has_condition(
                        claim,
                        spokeshave_api::conditions::CONSOLIDATABLE,
                    )
                })
            };
            if is(change.new.as_deref()) && !is(change.old.as_deref()) {
                woken.wake.notify_one();
            }
        });
        this
    }

    /// Works until shutdown.
    pub(crate) async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let mut pending: Option<Pending> = None;
        let (mut seen, mut last_pass) = (u64::MAX, Timestamp::MIN);
        loop {
            let now = self.shared.now();
            let due = pending.as_ref().is_some_and(|pending| pending.due <= now);
            let version = self.shared.stores.version();
            let still = version == seen
                && now.duration_since(last_pass)
                    < SignedDuration::try_from(STILLNESS).unwrap_or(SignedDuration::ZERO);
            if due && let Some(waiting) = pending.take() {
                self.carry_out(waiting.command).await;
            } else if !still {
                (seen, last_pass) = (version, now);
                let fresh = self.pass(pending.is_some()).await;
                pending = pending.or(fresh);
            }
            let wait = pending
                .as_ref()
                .map_or(POLL, |pending| POLL.min(self.shared.clock.until(pending.due)));
            let sleep = async {
                tokio::select! {
                    biased;
                    () = self.shared.clock.sleep(wait) => {}
                    () = self.wake.notified(), if pending.is_none() => {}
                }
            };
            if shutdown.cut(sleep).await.is_none() {
                return;
            }
        }
    }

    /// Cleans up after commands that are no more, then looks for a new one.
    async fn pass(&self, has_pending: bool) -> Option<Pending> {
        let shared = &self.shared;
        let snapshot = shared.freeze().await;
        let now = shared.now();
        self.forget_finished(&snapshot);
        for action in cleanup_actions(&snapshot, now) {
            if let Err(error) = shared.execute.run(&action).await {
                tracing::debug!(%error, "cleaning up after a command; the next pass tries again");
            }
        }
        if has_pending {
            return None;
        }
        let outcome = emptiness(&snapshot, now);
        self.observe(&snapshot, &outcome);
        let command = outcome.command?;
        let due = now
            .saturating_add(
                SignedDuration::try_from(shared.policy.validation_delay).unwrap_or(SignedDuration::ZERO),
            )
            .ok()?;
        tracing::debug!(
            command = command.text("pending"),
            "command waits for its validation"
        );
        Some(Pending { command, due })
    }

    /// Nodes whose claims are going (or gone) no longer need to be remembered.
    fn forget_finished(&self, snapshot: &Snapshot) {
        let going = |id: &str| {
            snapshot
                .nodes
                .iter()
                .find(|node| node.provider_id == id)
                .is_none_or(|node| node.claim.as_ref().is_none_or(|claim| claim.is_deleting()))
        };
        self.shared.memory().in_command.retain(|id| !going(id));
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of nodes are far below 2^52")]
    fn observe(&self, snapshot: &Snapshot, outcome: &EmptinessOutcome) {
        let families = &self.shared.families;
        families.eligible_nodes.set(&["empty"], outcome.eligible as f64);
        if let Some(budgets) = &outcome.budgets {
            let reason = budgets.reason.to_string();
            for (pool, budget) in &budgets.pools {
                let pool = &snapshot.pool(*pool).name;
                families
                    .allowed_disruptions
                    .set(&[pool, &reason], budget.allowed as f64);
                families
                    .consuming_budgets
                    .set(&[pool, &reason], budget.disrupting as f64);
                if let Some(error) = &budget.error {
                    tracing::error!(NodePool = pool, %error, "a budget cannot be evaluated, so nothing of this nodepool is disrupted");
                }
            }
        }
        for event in &outcome.events {
            self.shared.execute.tell(event);
        }
    }

    /// The second look (D-087…D-089), and then the steps of D-098 and D-111.
    async fn carry_out(&self, command: Command) {
        let shared = &self.shared;
        let snapshot = shared.freeze().await;
        let now = shared.now();
        let validation = validate_emptiness(&command, &snapshot, now);
        if !validation.dropped.is_empty() {
            #[expect(clippy::cast_precision_loss, reason = "counts of nodes are far below 2^52")]
            shared.families.failed_validations.add(
                &[command.method.consolidation_type()],
                validation.dropped.len() as f64,
            );
            for (node, rejection) in &validation.dropped {
                tracing::debug!(
                    Node = node,
                    reason = rejection.as_str(),
                    "fell out of a command at validation"
                );
            }
        }
        let Some(command) = validation.command else { return };
        let ids: Vec<String> = command
            .nodes
            .iter()
            .map(|node| node.provider_id.clone())
            .collect();
        shared.memory().in_command.extend(ids.clone());
        let Some(marked) = self.mark(&snapshot, &command, now).await else {
            shared.memory().in_command.retain(|id| !ids.contains(id));
            return;
        };
        self.announce(&snapshot, &marked);
        for (action, node) in delete_actions(&marked).iter().zip(&marked.nodes) {
            match shared.execute.run(action).await {
                Ok(()) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    // D-116: what cannot be deleted is released, and the next pass decides anew.
                    tracing::error!(NodeClaim = node.node_claim, %error, "deleting a candidate; it is released");
                    shared.memory().in_command.remove(&node.provider_id);
                }
            }
        }
        for event in terminating_events(&snapshot, &marked) {
            shared.execute.tell(&event);
        }
    }

    /// D-099, D-101: a delete goes on with those that could be marked.
    async fn mark(&self, snapshot: &Snapshot, command: &Command, now: Timestamp) -> Option<Command> {
        let mut failed: Vec<String> = Vec::new();
        for action in mark_actions(snapshot, command, now) {
            if let Err(error) = self.shared.execute.run(&action).await {
                let Action::Patch { target, .. } = &action else {
                    continue;
                };
                tracing::warn!(%error, "marking a candidate; it is left out");
                failed.push(target.name.clone());
                if target.kind == ObjectKind::Node {
                    self.shared.memory().in_command.retain(|id| {
                        !command
                            .nodes
                            .iter()
                            .any(|node| node.node == target.name && node.provider_id == *id)
                    });
                }
            }
        }
        let marked =
            command.reduced(|node| !failed.contains(&node.node) && !failed.contains(&node.node_claim));
        (!marked.nodes.is_empty()).then_some(marked)
    }

    fn announce(&self, snapshot: &Snapshot, command: &Command) {
        let shared = &self.shared;
        let (decision, reason) = (
            command.decision().as_str(),
            command.method.reason().to_string().to_lowercase(),
        );
        let kind = command.method.consolidation_type();
        shared.families.decisions.inc(&[decision, &reason, kind]);
        let mut pools: Vec<&str> = command.nodes.iter().map(|node| node.pool.as_str()).collect();
        pools.sort_unstable();
        pools.dedup();
        for pool in pools {
            shared
                .families
                .decisions_by_pool
                .inc(&[pool, decision, &reason, kind]);
        }
        for node in &command.nodes {
            self.count(
                snapshot,
                node.provider_id.as_str(),
                &reason,
                node.reschedulable_pods,
            );
        }
        let id = command
            .nodes
            .first()
            .map_or("", |node| node.node_claim_uid.as_str());
        tracing::info!(
            command = command.text(id),
            decision,
            "disrupted-node-count" = command.nodes.len(),
            "disrupting node(s)"
        );
        let names: Vec<&str> = command.nodes.iter().map(|node| node.node.as_str()).collect();
        let cluster: Price = snapshot
            .nodes
            .iter()
            .filter(|node| node.is_managed())
            .map(|node| node.price)
            .sum();
        let change = Price(-command.savings().0);
        let what = format!("{decision} {} node(s)", names.len());
        let subject = spokeshave_plan::report::first_few(&names, 3);
        shared.tell(
            DecisionKind::Disrupt,
            &subject,
            what,
            reason,
            Some(change),
            Price(cluster.0 + change.0),
        );
    }

    fn count(&self, snapshot: &Snapshot, provider_id: &str, reason: &str, pods: usize) {
        let Some(view) = snapshot.nodes.iter().find(|view| view.provider_id == provider_id) else {
            return;
        };
        let Some(claim) = &view.claim else { return };
        let policy = view
            .pool
            .map(|pool| {
                snake_case(
                    snapshot
                        .pool(pool)
                        .object
                        .spec
                        .disruption
                        .consolidation_policy
                        .as_str(),
                )
            })
            .unwrap_or_default();
        let capacity = claim.label(labels::CAPACITY_TYPE).unwrap_or_default();
        let values = [
            reason,
            claim.node_pool().unwrap_or_default(),
            capacity,
            &policy,
            termination_mode(claim),
        ];
        self.shared.families.claims_disrupted.inc(&values);
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
        self.shared
            .families
            .pods_disruption_initiated
            .add(&values, pods as f64);
    }
}

/// `WhenEmptyOrUnderutilized` → `when_empty_or_underutilized` (D-113).
fn snake_case(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if character.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(character.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_113_policies_in_snake_case() {
        assert_eq!(
            snake_case("WhenEmptyOrUnderutilized"),
            "when_empty_or_underutilized"
        );
        assert_eq!(snake_case("Balanced"), "balanced");
    }
}
