//! Commands under way (D §3.5, §3.6): carries each Disruption on by the next writes that `plan` names, until it has ended, and keeps the ledger short.
//!
//! One key a command, so that none waits for another (W-31). It remembers nothing: what it knows of a command stands in the cluster.

mod reads;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use spokeshave_api::constants::{DISRUPTION_HISTORY, DISRUPTION_HISTORY_ENTRIES};
use spokeshave_api::disruption::{Disruption, DisruptionDecision, DisruptionPhase};
use spokeshave_api::{DisruptionReason, NodeClaim, labels};
use spokeshave_model::{Action, Plan, Price};
use spokeshave_plan::disrupt::advance::{
    Advance, Milestone, Present, PresentNode, WaitsFor, advance, is_gone, needs_pods_of_server,
};
use spokeshave_plan::disrupt::beyond_limits;
use spokeshave_plan::disrupt::history::{expired, finished_at};
use spokeshave_plan::disrupt::record::consolidation_type;
use spokeshave_plan::disrupt::words;
use spokeshave_plan::disruption_policy::{frozen, keep};
use spokeshave_plan::report;
use spokeshave_runtime::{ReconcileError, Requeue};

use crate::act::commands::Carried;
use crate::act::error::ExecuteError;
use crate::act::hands::Hands;
use crate::controller::{Controller, Looked, Triggers};
use crate::observe::decision::DecisionKind;
use crate::observe::journal::Journal;
use crate::observe::journal::termination_mode;
use crate::observe::repeats::Repeats;
use crate::options::Options;
use crate::reconcile::unreadable;
use crate::state::cluster::Cluster;

/// Commands that are worked on at once, at one core and at sixty (D-107).
const WORKERS: (usize, usize) = (100, 1000);

/// Pause between two looks at what is kept beyond its time.
const KEPT_LOOK: Duration = Duration::from_secs(3600);

/// The controller of Disruptions.
#[derive(Debug)]
pub(crate) struct Commands {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    /// What could not be read or deleted, as it was said: a command looks once a second.
    unread: Mutex<Repeats>,
}

impl Commands {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands, journal: Arc<Journal>) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            hands,
            journal,
            unread: Mutex::default(),
        })
    }

    /// What is there now of a command's objects.
    fn present(&self, disruption: &Disruption) -> Present {
        let stores = &self.cluster.stores;
        let nodes = disruption.spec.nodes.iter().map(|node| PresentNode {
            node: stores.nodes.get_named(&node.name),
            claim: stores
                .node_claims
                .get_named(&node.node_claim)
                .filter(|claim| claim.uid() == node.node_claim_uid),
            pods: stores.pods_by_node.get(&node.name),
        });
        let ours = |claim: &Arc<NodeClaim>| claim.annotation(labels::DISRUPTION) == Some(disruption.name());
        let replacements = disruption
            .spec
            .replacements
            .iter()
            .map(|replacement| stores.node_claims.get_named(&replacement.node_claim).filter(ours));
        let replacements: Vec<Option<Arc<NodeClaim>>> = replacements.collect();
        let mut queued_nodes = 0;
        stores.disruptions.for_each(|_, other| {
            if other.holds_nodes() {
                queued_nodes += other.spec.nodes.len();
            }
        });
        Present {
            nodes: nodes.collect(),
            destinations: self.destinations(disruption, &replacements),
            replacements,
            crowded: None,
            guarded: None,
            beyond_limits: None,
            refused: None,
            waits_for: None,
            queued_nodes,
            frozen: self.frozen(disruption),
            price_after: None,
        }
    }

    /// What the replacements cost an hour as they were launched; unknown where one is gone or has no price.
    async fn price_after(&self, disruption: &Disruption) -> Option<Price> {
        let replacements = &disruption.spec.replacements;
        if replacements.is_empty() {
            return Some(Price::ZERO);
        }
        let snapshot = self.cluster.snapshot().await;
        let price = |name: &str| {
            let mut nodes = snapshot.nodes.iter();
            let node = nodes.find(|node| node.claim_name() == Some(name))?;
            Some(node.price).filter(|price| *price > Price::ZERO)
        };
        let prices = replacements.iter().map(|one| price(&one.node_claim));
        prices
            .collect::<Option<Vec<Price>>>()
            .map(|prices| prices.into_iter().sum())
    }

    /// The freeze by hand that stands for one of its NodePools, or the halt of its roll-out.
    fn frozen(&self, disruption: &Disruption) -> Option<String> {
        let stores = &self.cluster.stores;
        let policies = stores.disruption_policies.snapshot();
        let now = self.cluster.now();
        disruption.spec.nodes.iter().find_map(|node| {
            let pool = stores.node_pools.get_named(&node.node_pool);
            let labels = pool.map(|pool| pool.metadata.labels.clone().unwrap_or_default());
            frozen(
                policies.iter().map(|policy| &**policy),
                &node.node_pool,
                labels.as_ref(),
                &disruption.spec.reason,
                now,
            )
        })
    }

    /// The nodes that are to take pods, without those that another command has taken since: it has found places for these pods, too. One that had ended before
    /// this one was decided says nothing: a node that is there now only has an old name.
    fn destinations(
        &self,
        disruption: &Disruption,
        replacements: &[Option<Arc<NodeClaim>>],
    ) -> Vec<(String, Option<Arc<Node>>)> {
        let stores = &self.cluster.stores;
        let there = disruption.spec.destinations.iter().map(String::as_str);
        let new = replacements
            .iter()
            .flatten()
            .filter_map(|claim| claim.node_name());
        let mut names: BTreeSet<&str> = there.chain(new).collect();
        stores.disruptions.for_each(|_, other| {
            let ended_before = other.is_finished() && finished_at(other) <= disruption.spec.decided_at.0;
            if other.phase() != DisruptionPhase::RolledBack && !ended_before {
                for node in &other.spec.nodes {
                    names.remove(node.name.as_str());
                }
            }
        });
        let nodes = names
            .into_iter()
            .map(|name| (name.to_owned(), stores.nodes.get_named(name)));
        nodes.collect()
    }

    /// Finished commands stay for a while, and not too many of them. One that cannot be deleted keeps no other; it is tried again in its own look, and in those of
    /// others when they are due.
    async fn keep_ledger(&self, disruption: &Disruption) -> Result<Requeue, ReconcileError> {
        let now = self.cluster.now();
        let all = self.cluster.stores.disruptions.snapshot();
        let policies = self.cluster.stores.disruption_policies.snapshot();
        let gone = expired(
            all.iter().map(|disruption| &**disruption),
            DISRUPTION_HISTORY,
            DISRUPTION_HISTORY_ENTRIES,
            |one| keep(one, &policies, now),
            now,
        );
        let is_gone = gone.iter().any(|target| target.uid == disruption.uid());
        let mut failure = None;
        for target in gone {
            let is_own = target.uid == disruption.uid();
            match self.hands.run(&Action::delete(target)).await {
                Ok(()) => {}
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) if is_own => failure = Some(error),
                Err(error) => {
                    if self.is_line_due(error.to_string()) {
                        tracing::warn!(%error, "a disruption that has ended stays longer than it should");
                    }
                }
            }
        }
        if let Some(error) = failure {
            return Err(error.into());
        }
        let passed =
            Duration::try_from(now.duration_since(finished_at(disruption))).unwrap_or(Duration::ZERO);
        let left = DISRUPTION_HISTORY.saturating_sub(passed);
        Ok(if is_gone {
            Requeue::Done
        } else {
            // What a roll-out keeps for longer is looked at again later.
            Requeue::After(if left.is_zero() { KEPT_LOOK } else { left })
        })
    }

    fn is_line_due(&self, line: String) -> bool {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        unread.is_due(line, self.cluster.now())
    }

    fn created(&self, disruption: &Disruption, claim: &NodeClaim, reason: &str) {
        let replacements = disruption.spec.replacements.iter();
        let planned = replacements
            .filter(|one| one.node_claim == claim.name())
            .map(|one| price(&one.price));
        self.journal.note_planned_price(claim, planned.sum());
        let relaxed = claim.annotation(labels::MIN_VALUES_RELAXED).unwrap_or("false");
        let pool = claim.node_pool().unwrap_or_default();
        self.journal.families.claims_created.inc(&[reason, pool, relaxed]);
        tracing::info!(
            NodePool = pool,
            NodeClaim = claim.name(),
            reason,
            "created nodeclaim"
        );
    }

    /// Writes what follows of a look, and tells of what that completes.
    async fn carry_out(
        &self,
        disruption: &Disruption,
        present: &Present,
        next: &Plan<Advance>,
    ) -> Result<Carried, ExecuteError> {
        let done = |index: usize| {
            if let Action::CreateNodeClaim { claim, reason } = &next.actions[index] {
                self.created(disruption, claim, reason);
            }
            if let Some(milestone) = &next.report.milestones[index] {
                self.reached(disruption, present, milestone);
            }
        };
        self.hands.carry_out_each(next, done).await
    }

    /// Metrics, logs and lines for people; a restart may tell one a second time, and never loses a write for it.
    fn reached(&self, disruption: &Disruption, present: &Present, milestone: &Milestone) {
        match milestone {
            Milestone::Started => self.started(disruption),
            Milestone::Deleted(index) => self.deleted(disruption, present, *index),
            Milestone::Succeeded => {
                tracing::info!(Disruption = disruption.name(), "disrupted node(s) are gone");
            }
            Milestone::RolledBack {
                why,
                failed_replacements,
            } => self.rolled_back(disruption, why, *failed_replacements),
        }
    }

    /// D-105, D-106.
    fn started(&self, disruption: &Disruption) {
        let spec = &disruption.spec;
        let (decision, reason, kind) = labels_of(disruption);
        self.journal.families.decisions.inc(&[decision, &reason, kind]);
        let mut pools: Vec<&str> = spec.nodes.iter().map(|node| node.node_pool.as_str()).collect();
        pools.sort_unstable();
        pools.dedup();
        for pool in pools {
            self.journal
                .families
                .decisions_by_pool
                .inc(&[pool, decision, &reason, kind]);
        }
        tracing::info!(
            Disruption = disruption.name(),
            command = words::text(disruption),
            decision,
            "disrupted-node-count" = spec.nodes.len(),
            "replacement-node-count" = spec.replacements.len(),
            "pod-count" = spec.evictions,
            "disrupted-nodes" = %words::disrupted_nodes(spec),
            "replacement-nodes" = %words::replacement_nodes(spec),
            "disrupting node(s)"
        );
        let names: Vec<&str> = spec.nodes.iter().map(|node| node.name.as_str()).collect();
        let change = price(&spec.price_after).saturating_sub(price(&spec.price_before));
        let what = match spec.replacements.len() {
            0 => format!("delete {}", report::count(names.len(), "node")),
            _ => format!(
                "replace {} by {}",
                report::count(names.len(), "node"),
                spec.replacement_summary
            ),
        };
        self.journal.note(
            DecisionKind::Disrupt,
            &report::some_of(&names, 3),
            what,
            why(disruption),
            Some(change),
        );
    }

    /// D-113.
    fn deleted(&self, disruption: &Disruption, present: &Present, index: usize) {
        let (Some(node), Some(claim)) = (
            disruption.spec.nodes.get(index),
            present.nodes.get(index).and_then(|node| node.claim.as_ref()),
        ) else {
            return;
        };
        let policy = self
            .cluster
            .stores
            .node_pools
            .get_named(&node.node_pool)
            .filter(|_| {
                !matches!(
                    disruption.spec.reason,
                    DisruptionReason::Drifted | DisruptionReason::Expired
                )
            })
            .map(|pool| snake_case(pool.spec.disruption.consolidation_policy.as_str()))
            .unwrap_or_default();
        let reason = disruption.spec.reason.to_string().to_lowercase();
        let values = [
            reason.as_str(),
            &node.node_pool,
            node.capacity_type.as_deref().unwrap_or_default(),
            &policy,
            termination_mode(claim),
        ];
        self.journal.families.claims_disrupted.inc(&values);
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
        self.journal
            .families
            .pods_disruption_initiated
            .add(&values, node.pods as f64);
    }

    /// D-116, D-117.
    fn rolled_back(&self, disruption: &Disruption, why: &str, failed_replacements: usize) {
        let (decision, reason, kind) = labels_of(disruption);
        #[expect(clippy::cast_precision_loss, reason = "counts of nodes are far below 2^52")]
        self.journal
            .families
            .queue_failures
            .add(&[decision, &reason, kind], failed_replacements as f64);
        tracing::error!(
            Disruption = disruption.name(),
            error = why,
            "disruption rolled back; its nodes stay"
        );
        self.journal.note(
            DecisionKind::Trouble,
            &disruption.spec.node_summary,
            "stays after all",
            why,
            None,
        );
    }
}

impl Controller for Commands {
    const NAME: &'static str = "disruption.queue";
    const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
    type Key = String;

    fn workers(options: &Options) -> usize {
        options.scaled(WORKERS.0, WORKERS.1)
    }

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        on.change(
            |stores| &stores.disruptions,
            |_, change| change.object().map(|disruption| disruption.name().to_owned()),
        );
        on.change(
            |stores| &stores.disruption_policies,
            |stores, _| {
                // A freeze takes back what has deleted nothing yet.
                let mut under_way = stores.disruptions.snapshot();
                under_way.retain(|disruption| !disruption.is_finished());
                names(under_way)
            },
        );
        on.change(
            |stores| &stores.node_claims,
            |stores, change| {
                let claim = change.object();
                let its_own = claim.and_then(|claim| claim.annotation(labels::DISRUPTION).map(str::to_owned));
                let others = claim.map(|claim| stores.disruptions_by_claim.get(claim.uid()));
                its_own.into_iter().chain(names(others.unwrap_or_default()))
            },
        );
        on.change(
            |stores| &stores.nodes,
            |stores, change| {
                let name = change.object().and_then(|node| node.metadata.name.clone());
                names(stores.disruptions_by_node.get(&name.unwrap_or_default()))
            },
        );
        on.change(
            |stores| &stores.pods,
            |stores, change| {
                let node = change.new.as_deref().and_then(spokeshave_model::pod::node_name);
                names(stores.disruptions_by_node.get(node.unwrap_or_default()))
            },
        );
    }

    /// One look at a command.
    async fn reconcile(self: Arc<Self>, name: String) -> Looked {
        let Some(disruption) = self.cluster.stores.disruptions.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        if disruption.is_finished() {
            return self.keep_ledger(&disruption).await;
        }
        // It takes time, and comes first: what nodes are deleted by is not older than it.
        let now = self.cluster.now();
        let is_last_look = needs_pods_of_server(&disruption, now);
        let is_early = is_last_look && self.waits_for_places(&disruption, now).await;
        let claims = &self.cluster.stores.node_claims;
        let (mut present, unreadable) = unreadable::beside(claims, || self.present(&disruption));
        if let Some(claim) = unreadable::claim_of_command(&disruption, &unreadable) {
            // It is not gone: a command that took it for gone would end while its nodes stay.
            if self.is_line_due(format!("{name}: {claim}")) {
                tracing::warn!(
                    Disruption = name,
                    NodeClaim = claim,
                    "waits for a nodeclaim that cannot be read"
                );
            }
            return Ok(Requeue::After(unreadable::PAUSE));
        }
        if is_early {
            present.waits_for = Some(WaitsFor::Places);
        } else if is_last_look {
            self.look_at_server(&disruption, &mut present, now).await;
        }
        if let Some(waits_for) = present.waits_for {
            tracing::debug!(
                Disruption = name,
                ?waits_for,
                "waits before its nodes are deleted"
            );
        }
        let there: Vec<bool> = present.replacements.iter().map(Option::is_some).collect();
        if disruption.phase() == DisruptionPhase::Starting && there.contains(&false) {
            let snapshot = self.cluster.snapshot_with(&[]).await;
            let claim = |name: &str| self.cluster.stores.node_claims.get_named(name);
            present.beyond_limits = beyond_limits(&disruption, &there, &snapshot, claim);
        }
        if is_gone(&disruption, &present) {
            present.price_after = self.price_after(&disruption).await;
        }
        let mut next = advance(&disruption, &present, now);
        let mut carried = self.carry_out(&disruption, &present, &next).await?;
        if let Carried::Refused(words) = carried {
            // The stores know what this look has written already.
            let present = Present {
                refused: Some(words),
                ..self.present(&disruption)
            };
            next = advance(&disruption, &present, now);
            carried = self.carry_out(&disruption, &present, &next).await?;
        }
        Ok(match carried {
            Carried::Whole => next.report.again.map_or(Requeue::Done, Requeue::After),
            Carried::Stale | Carried::Refused(_) => Requeue::Stale,
        })
    }
}

fn names(disruptions: Vec<Arc<Disruption>>) -> impl Iterator<Item = String> {
    disruptions
        .into_iter()
        .map(|disruption| disruption.name().to_owned())
}

/// Why, in the words of the ledger.
fn why(disruption: &Disruption) -> String {
    let spec = &disruption.spec;
    match &spec.reason {
        DisruptionReason::Empty => "empty".to_owned(),
        DisruptionReason::Drifted => "drifted from what the NodePool asks for".to_owned(),
        DisruptionReason::Expired => "older than its DisruptionPolicy allows".to_owned(),
        DisruptionReason::Underutilized if spec.replacements.is_empty() => {
            under_used(disruption, "fits", "fit", "on other nodes")
        }
        DisruptionReason::Underutilized => under_used(disruption, "runs", "run", "cheaper there"),
        other => other.to_string(),
    }
}

fn under_used(disruption: &Disruption, one: &str, several: &str, rest: &str) -> String {
    let spec = &disruption.spec;
    let pods = usize::try_from(spec.evictions).unwrap_or_default();
    let whose = if spec.nodes.len() == 1 { "its" } else { "their" };
    let verb = if pods == 1 { one } else { several };
    format!("under-used: {whose} {} {verb} {rest}", report::count(pods, "pod"))
}

/// The label values decision, reason and consolidation_type.
fn labels_of(disruption: &Disruption) -> (&'static str, String, &'static str) {
    let spec = &disruption.spec;
    let decision = match spec.decision {
        DisruptionDecision::Replace => "replace",
        _ => "delete",
    };
    (
        decision,
        spec.reason.to_string().to_lowercase(),
        consolidation_type(&spec.method),
    )
}

fn price(text: &str) -> Price {
    text.parse().unwrap_or(Price::ZERO)
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
