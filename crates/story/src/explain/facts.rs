//! The input of explanations, and helpers that several of them share.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use spokeshave_api::{DisruptionReason, NodeClaim, UNLIMITED};
use spokeshave_model::Pod;
use spokeshave_model::pod::DoNotDisrupt;
use spokeshave_model::snapshot::{BudgetId, NodeView, PodId, PoolId, Snapshot};
use spokeshave_model::{ClusterState, Price, ResourceName, Resources};
use std::sync::Arc;

use super::{Meaning, PodLine, Story, count, whole};
use crate::replicas::Replicas;
use spokeshave_plan::Policy;
use spokeshave_plan::blockers::budget_arithmetic;
use spokeshave_plan::calendar::{Window, next_opening};
use spokeshave_plan::disrupt::{BudgetMapping, PoolBudget};

/// How far ahead openings of budgets are searched.
const HORIZON: SignedDuration = SignedDuration::from_hours(366 * 24);

/// For people: so many of these nodes as a budget allows, which may be more than there are.
pub fn at_most(allowed: i64, nodes: usize) -> i64 {
    allowed.min(i64::try_from(nodes).unwrap_or(i64::MAX))
}

/// A disruption command in progress, according to its object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandFact {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: String,
    /// `Empty`, `Drifted`, `Underutilized`.
    pub reason: String,
    /// `Delete` or `Replace`.
    pub decision: String,
    /// What it is waiting for, or why it ended.
    pub message: String,
    /// When it was decided.
    pub decided_at: Option<Timestamp>,
    /// Names of its Nodes and NodeClaims.
    pub nodes: Vec<String>,
    /// Names of the NodeClaims that come instead.
    pub replacements: Vec<String>,
    /// It has ended.
    pub finished: bool,
}

/// Everything that explanations are made from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The cluster as decisions see it.
    pub snapshot: &'a Snapshot,
    /// The objects it was made of.
    pub state: &'a ClusterState,
    /// The operator's settings.
    pub policy: &'a Policy,
    /// Volume attachments, where they could be read.
    pub attachments: &'a [Arc<VolumeAttachment>],
    /// Disruption commands, where there are any.
    pub commands: &'a [CommandFact],
    /// What NodePools with a fixed number of nodes have too few or too many of.
    pub replicas: &'a Replicas,
    /// The instant.
    pub now: Timestamp,
}

impl<'a> Facts<'a> {
    /// The Node of a name, also one that decisions do not track.
    pub fn find_node(&self, name: &str) -> Option<&'a Arc<Node>> {
        self.state
            .nodes
            .iter()
            .find(|node| node.metadata.name.as_deref() == Some(name))
    }

    /// The NodeClaim of a name.
    pub fn find_claim(&self, name: &str) -> Option<&'a Arc<NodeClaim>> {
        self.state.node_claims.iter().find(|claim| claim.name() == name)
    }

    /// The NodeClaim that a Node belongs to, by provider ID.
    pub(super) fn claim_of(&self, node: &Node) -> Option<&'a Arc<NodeClaim>> {
        let id = node.spec.as_ref()?.provider_id.as_deref()?;
        self.state
            .node_claims
            .iter()
            .find(|claim| claim.provider_id() == Some(id))
    }

    /// The Nodes of a NodeClaim, by provider ID.
    pub(super) fn nodes_of(&self, claim: &NodeClaim) -> Vec<&'a Arc<Node>> {
        let Some(id) = claim.provider_id() else {
            return Vec::new();
        };
        let same = |node: &&Arc<Node>| {
            let spec = node.spec.as_ref();
            spec.and_then(|spec| spec.provider_id.as_deref()) == Some(id)
        };
        self.state.nodes.iter().filter(same).collect()
    }

    /// The pods that are bound to a Node.
    pub(super) fn pods_on(&self, node: &str) -> Vec<&'a Arc<Pod>> {
        let bound = |pod: &&Arc<Pod>| spokeshave_model::pod::node_name(pod) == Some(node);
        self.state.pods.iter().filter(bound).collect()
    }

    /// The command under way that a node or claim belongs to, and whether it is the replacement of other nodes.
    pub(super) fn command_of(&self, names: &[&str]) -> Option<(&'a CommandFact, bool)> {
        let open = self.commands.iter().filter(|command| !command.finished);
        open.clone()
            .find(|command| command.nodes.iter().any(|name| names.contains(&name.as_str())))
            .map(|command| (command, false))
            .or_else(|| {
                let mut open = open;
                open.find(|command| {
                    command
                        .replacements
                        .iter()
                        .any(|name| names.contains(&name.as_str()))
                })
                .map(|command| (command, true))
            })
    }

    /// What a pod means for the node that it runs on (D §1.1–1.3).
    pub(super) fn meaning(&self, id: PodId) -> PodLine {
        let pod = self.snapshot.pod(id);
        let (meaning, message) = self.meaning_and_why(id);
        let blocks = matches!(
            meaning,
            Meaning::DoNotDisrupt | Meaning::Budget | Meaning::MultipleBudgets
        );
        PodLine {
            pod: pod.key(),
            meaning,
            blocks,
            message,
        }
    }

    fn meaning_and_why(&self, id: PodId) -> (Meaning, String) {
        let pod = self.snapshot.pod(id);
        if pod.terminal {
            return (Meaning::Finished, "has finished; nothing waits for it".to_owned());
        }
        if pod.active && pod.do_not_disrupt().is_active(self.now) {
            let until = match pod.do_not_disrupt() {
                DoNotDisrupt::Until(end) => format!("until {}", whole(*end)),
                _ => "for as long as it is there".to_owned(),
            };
            return (
                Meaning::DoNotDisrupt,
                format!("karpenter.sh/do-not-disrupt {until}"),
            );
        }
        if !pod.active {
            return (Meaning::Stopping, self.stopping(&pod.object));
        }
        match self.snapshot.blocking_budgets(id, self.now) {
            [] => {}
            [only] => return (Meaning::Budget, self.budget_text(*only)),
            several => {
                let names: Vec<String> = several.iter().map(|budget| self.budget_name(*budget)).collect();
                let message = format!(
                    "selected by {} PodDisruptionBudgets ({}); Kubernetes evicts only pods of one",
                    several.len(),
                    names.join(", ")
                );
                return (Meaning::MultipleBudgets, message);
            }
        }
        if pod.mirror {
            return (Meaning::Static, "static pod; ends with the node".to_owned());
        }
        if pod.daemon && pod.tolerates_disrupted_taint {
            return (Meaning::Daemon, "DaemonSet pod; ends with the node".to_owned());
        }
        if pod.daemon {
            return (
                Meaning::Daemon,
                "DaemonSet pod; is evicted after the others".to_owned(),
            );
        }
        if pod.tolerates_disrupted_taint {
            let message = "tolerates karpenter.sh/disrupted; is not evicted and ends with the node";
            return (Meaning::Tolerates, message.to_owned());
        }
        let mut message = match comes_back(&pod.object) {
            true => "may move".to_owned(),
            false => "is evicted and does not come back: nothing recreates it".to_owned(),
        };
        if let [only] = pod.budgets() {
            message.push_str(&format!("; {}", self.budget_text(*only)));
        }
        if let DoNotDisrupt::Invalid(why) = pod.do_not_disrupt() {
            message.push_str(&format!(
                "; its karpenter.sh/do-not-disrupt protects nothing: {why}"
            ));
        }
        if let DoNotDisrupt::Until(end) = pod.do_not_disrupt() {
            message.push_str(&format!(
                "; its karpenter.sh/do-not-disrupt ended {}",
                whole(*end)
            ));
        }
        (Meaning::Movable, message)
    }

    /// How long a pod may still take to terminate, and what else blocks it.
    pub(super) fn stopping(&self, pod: &Pod) -> String {
        let due = pod
            .metadata
            .deletion_timestamp
            .as_ref()
            .map_or(self.now, |due| due.0);
        let held = match pod.metadata.finalizers.as_deref() {
            None | Some([]) => String::new(),
            Some(finalizers) => format!(", held by finalizer {}", finalizers.join(", ")),
        };
        if due > self.now {
            format!("is stopping, has time until {}{held}", whole(due))
        } else {
            format!("should have stopped by {}{held}", whole(due))
        }
    }

    fn budget_name(&self, id: BudgetId) -> String {
        let budget = &self.snapshot.budgets[id.index()];
        format!("{}/{}", budget.namespace, budget.name)
    }

    /// `PodDisruptionBudget shop/web: 0 of 3 may be down: minAvailable 3, 3 healthy`.
    fn budget_text(&self, id: BudgetId) -> String {
        let view = &self.snapshot.budgets[id.index()];
        let object = self.state.pod_disruption_budgets.iter().find(|budget| {
            budget.metadata.name.as_deref() == Some(&view.name)
                && budget.metadata.namespace.as_deref().unwrap_or_default() == view.namespace
        });
        let arithmetic = object.map(|budget| budget_arithmetic(budget)).unwrap_or_default();
        format!("PodDisruptionBudget {}: {arithmetic}", self.budget_name(id))
    }

    /// The current budget of a NodePool for a reason.
    pub(super) fn budget(&self, pool: PoolId, reason: &DisruptionReason) -> Option<PoolBudget> {
        BudgetMapping::build(self.snapshot, reason, self.now)
            .pools
            .remove(&pool)
    }

    /// `Empty, Drifted: 1 of 9 at once, 0 disrupting, 1 left; Underutilized: no limit`. A budget above the number of nodes lets all of them go.
    pub(super) fn budget_summary(&self, pool: PoolId, reasons: &[DisruptionReason], noun: &str) -> String {
        let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
        for reason in reasons {
            let Some(budget) = self.budget(pool, reason) else {
                continue;
            };
            let text = match &budget.error {
                Some(error) => format!("nothing: {error}"),
                None if budget.allowed == UNLIMITED => "no limit".to_owned(),
                None => {
                    let noun = match budget.nodes {
                        1 => noun.replacen("nodes", "node", 1),
                        _ => noun.to_owned(),
                    };
                    let staying = budget.nodes.saturating_sub(budget.disrupting);
                    format!(
                        "{} of {} {noun}, {} disrupting, {} left",
                        at_most(budget.allowed, budget.nodes),
                        budget.nodes,
                        budget.disrupting,
                        at_most(budget.remaining, staying)
                    )
                }
            };
            match lines.iter_mut().find(|(known, _)| *known == text) {
                Some((_, reasons)) => reasons.push(reason.as_str()),
                None => lines.push((text, vec![reason.as_str()])),
            }
        }
        let lines: Vec<String> = lines
            .into_iter()
            .map(|(text, reasons)| format!("{}: {text}", reasons.join(", ")))
            .collect();
        lines.join("; ")
    }

    /// When closed budgets open; reasons that open together share a line.
    pub(super) fn openings(&self, pool: PoolId, reasons: &[DisruptionReason], story: &mut Story) {
        let mut openings: Vec<(Option<Timestamp>, Vec<&str>)> = Vec::new();
        for reason in reasons {
            let closed = |budget: PoolBudget| budget.remaining == 0 && budget.nodes > 0;
            if !self.budget(pool, reason).is_some_and(closed) {
                continue;
            }
            let at = self.next_opening(pool, reason);
            match openings.iter_mut().find(|(known, _)| *known == at) {
                Some((_, reasons)) => reasons.push(reason.as_str()),
                None => openings.push((at, vec![reason.as_str()])),
            }
        }
        let name = &self.snapshot.pool(pool).name;
        for (at, reasons) in openings {
            let reasons = reasons.join(", ");
            match at {
                Some(_) => story.next(at, format!("the budgets of NodePool {name} allow {reasons}")),
                None => story.next(
                    None,
                    format!(
                        "the budgets of NodePool {name} do not allow {reasons} within a year, as things are"
                    ),
                ),
            }
        }
    }

    /// When the budgets of a NodePool next allow more for a reason than is used now.
    pub(super) fn next_opening(&self, pool: PoolId, reason: &DisruptionReason) -> Option<Timestamp> {
        let budget = self.budget(pool, reason)?;
        let range = Window {
            from: self.now,
            until: self.now.saturating_add(HORIZON).unwrap_or(Timestamp::MAX),
        };
        let budgets = self.snapshot.pool(pool).object.budgets();
        next_opening(&budgets, reason, budget.nodes, budget.disrupting, range)
    }
}

/// Whether a controller makes a pod again that is evicted.
pub(super) fn comes_back(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true))
}

/// `cpu 3.2 of 7.9 (40%), memory …, 13 of 110 pods`.
pub(super) fn usage_text(used: &Resources, total: &Resources) -> String {
    let mut parts = Vec::new();
    for name in ["cpu", "memory"] {
        let (used, total) = (used.get(name), total.get(name));
        if total > 0 {
            let percent = i128::from(used) * 100 / i128::from(total);
            parts.push(format!(
                "{name} {} of {} ({percent}%)",
                short_amount(name, used),
                short_amount(name, total)
            ));
        }
    }
    let pods = total.get(ResourceName::PODS);
    if pods > 0 {
        parts.push(format!("{} of {pods} pods", used.get(ResourceName::PODS)));
    }
    parts.join(", ")
}

/// An amount that a person can read: memory in the largest unit with one decimal, the rest as Kubernetes writes it.
pub(super) fn short_amount(name: &str, amount: i64) -> String {
    const UNITS: [(&str, f64); 3] = [
        ("Ti", (1_u64 << 40) as f64),
        ("Gi", (1_u64 << 30) as f64),
        ("Mi", (1_u64 << 20) as f64),
    ];
    let bytes = matches!(name, "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !bytes {
        return ResourceName::format(name, amount);
    }
    let value = amount as f64;
    match UNITS.iter().find(|(_, size)| value >= *size) {
        Some((unit, size)) => {
            let text = format!("{:.1}", value / size);
            format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
        }
        None => ResourceName::format(name, amount),
    }
}

/// Requests of the non-terminal pods of a node.
pub(super) fn requested(snapshot: &Snapshot, view: &NodeView) -> Resources {
    let mut sum = Resources::new();
    for pod in view.present_pods() {
        let pod = snapshot.pod(*pod);
        if !pod.terminal {
            sum.add(&snapshot.scheduler_profiles.requests(&pod.object));
        }
    }
    sum
}

/// `4 movable, 2 of DaemonSets, 1 static`.
pub(super) fn pod_summary(pods: &[PodLine]) -> String {
    let number = |meanings: &[Meaning]| pods.iter().filter(|pod| meanings.contains(&pod.meaning)).count();
    let parts = [
        (
            number(&[Meaning::DoNotDisrupt, Meaning::Budget, Meaning::MultipleBudgets]),
            "keeping it",
        ),
        (number(&[Meaning::Movable]), "movable"),
        (number(&[Meaning::Stopping]), "stopping"),
        (
            number(&[Meaning::Daemon, Meaning::Static, Meaning::Tolerates]),
            "ending with it",
        ),
        (number(&[Meaning::Finished]), "finished"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    match parts.is_empty() {
        true => "none".to_owned(),
        false => format!("{}: {}", count(pods.len(), "pod"), parts.join(", ")),
    }
}

/// Dollars per hour, rounded for comparison.
pub(super) fn dollars(price: Price) -> String {
    format!("${:.4}/h", price.dollars())
}
