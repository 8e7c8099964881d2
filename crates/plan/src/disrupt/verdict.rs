//! What is said about one node: delete, replace or keep, the smallest set of things in the way, and what would happen without them.
//!
//! Values only; `judge` finds them, and the command line and conditions render them.

use super::command::{Decision, Method};
use spokeshave_model::Price;
use spokeshave_model::snapshot::NodeId;
use std::fmt;

/// What sort of thing keeps a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockerKind {
    /// It belongs to a command that is being carried out.
    InCommand,
    /// It has no NodeClaim.
    NotManaged,
    /// Its NodeClaim has no Node yet.
    NoNode,
    /// It is not initialised.
    NotInitialized,
    /// It is on its way out already.
    Deleting,
    /// It is kept for a pending pod.
    Nominated,
    /// The Node carries `karpenter.sh/do-not-disrupt: "true"`.
    NodeDoNotDisrupt,
    /// A label that every managed node has is missing.
    MissingLabel,
    /// Its NodePool does not exist or offers no instance types.
    NodePoolNotFound,
    /// Its NodePool has `spec.replicas`.
    StaticNodePool,
    /// A pod carries `karpenter.sh/do-not-disrupt`.
    PodDoNotDisrupt,
    /// A PodDisruptionBudget allows nothing now.
    PodDisruptionBudget,
    /// Several PodDisruptionBudgets select one pod; Kubernetes refuses its eviction.
    MultiplePodDisruptionBudgets,
    /// `consolidateAfter: Never`.
    ConsolidationDisabled,
    /// consolidateAfter has not passed.
    ConsolidateAfter,
    /// The policy forbids it: `WhenEmpty` on a node with pods, or a policy of a future version.
    ConsolidationPolicy,
    /// The disruption budgets of the NodePool allow no more now.
    Budget,
    /// A DisruptionPolicy allows no more now.
    DisruptionPolicy,
    /// The instance type is not in the NodePool's catalogue.
    UnknownInstanceType,
    /// What the node costs is unknown, so nothing can be shown to be cheaper.
    UnknownPrice,
    /// A pod has nowhere to go.
    Pod,
    /// A limit of a NodePool leaves no room for a replacement.
    Limits,
    /// Neighbours that could take the pods changed too recently (D-044).
    Neighbours,
    /// More than one node would have to come.
    TooManyReplacements,
    /// No instance type that could take the pods is cheaper.
    NotCheaper,
    /// Too few cheaper types are left for minValues.
    MinValues,
    /// The feature gate SpotToSpotConsolidation is off.
    SpotToSpotDisabled,
    /// Fewer than 15 cheaper spot types.
    SpotToSpotFlexibility,
    /// The saving is not worth the disruption under policy `Balanced`.
    Score,
    /// The saving is worth its evictions only once its pods have not changed for longer (W-61).
    Patience,
    /// A static NodePool has no headroom for a replacement, or is not at its number of replicas.
    StaticHeadroom,
}

impl fmt::Display for BlockerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The object that a blocker is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Its kind: `Node`, `NodeClaim`, `NodePool`, `Pod`, `PodDisruptionBudget`.
    pub kind: &'static str,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Subject {
    pub(crate) fn cluster(kind: &'static str, name: &str) -> Self {
        Subject {
            kind,
            namespace: String::new(),
            name: name.to_owned(),
        }
    }

    /// From `namespace/name`.
    pub(crate) fn namespaced(kind: &'static str, key: &str) -> Self {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        Subject {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Subject {
    /// `PodDisruptionBudget shop/web`, `NodePool default`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// One thing in the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blocker {
    /// What sort of thing.
    pub kind: BlockerKind,
    /// The object to change.
    pub object: Subject,
    /// What is wrong, in upstream's words where upstream has some.
    pub message: String,
    /// What would have to hold, as in "if …": `PodDisruptionBudget shop/web allowed 1`.
    pub condition: String,
}

/// What would happen if exactly the blockers of a verdict were gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterfactual {
    /// Delete or replace.
    pub decision: Decision,
    /// By which method.
    pub method: Method,
    /// What the node costs.
    pub price_before: Price,
    /// What would come instead, at its cheapest; zero for a delete.
    pub price_after: Price,
    /// The cheapest instance type of the replacement, if any.
    pub replacement: Option<String>,
}

/// What is said about one node, taken alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The node.
    pub node: NodeId,
    /// What the first method that would act on this node alone would do; `NoOp` keeps it.
    pub decision: Decision,
    /// That method; none when the node is kept.
    pub method: Option<Method>,
    /// What the node costs.
    pub price_before: Price,
    /// What would come instead, at its cheapest; the same as before when the node is kept, zero for a delete.
    pub price_after: Price,
    /// The cheapest instance type of the replacement, if any.
    pub replacement: Option<String>,
    /// A minimal set: while any of them stands, the node is kept; without all of them it is not. Empty when the node is not kept.
    pub blockers: Vec<Blocker>,
    /// Why it does not go at once although it may; none when nothing is waited for, or the node is kept.
    pub waits: Option<String>,
    /// What would happen without them; none when the node is not kept, or when a blocker cannot be thought away.
    pub if_removed: Option<Counterfactual>,
    /// Whether what comes instead is compared by prices of on-demand, because those of spot, which is what the node costs, are not known to whoever tells it.
    pub by_on_demand: bool,
    /// Whether nobody knows what the node costs, so that the prices here say nothing of what is saved; known to whoever tells it.
    pub price_unknown: bool,
}

impl Verdict {
    /// Whether the node stays.
    pub fn is_keep(&self) -> bool {
        self.decision == Decision::NoOp
    }

    /// The verdict as if no pod were expected on the node; where it would go then, `waits` says that it does so later. For nominations that the same
    /// run has made, and that say nothing about the state that was asked about.
    #[must_use]
    pub fn without_nomination(mut self, waits: &str) -> Self {
        let before = self.blockers.len();
        self.blockers
            .retain(|blocker| blocker.kind != BlockerKind::Nominated);
        if self.blockers.len() == before || !self.blockers.is_empty() {
            return self;
        }
        let Some(then) = self.if_removed.take() else {
            return self;
        };
        Verdict {
            decision: then.decision,
            method: Some(then.method),
            price_after: then.price_after,
            replacement: then.replacement,
            waits: Some(waits.to_owned()),
            ..self
        }
    }

    /// `delete`, `replace` or `keep`.
    pub fn decision_text(&self) -> &'static str {
        match self.decision {
            Decision::NoOp => "keep",
            other => other.as_str(),
        }
    }

    /// What it saves to take it away now, as in `saves $0.19/h`.
    pub fn saving_text(&self) -> String {
        self.in_words(self.decision, self.price_before, self.price_after)
    }

    fn in_words(&self, decision: Decision, before: Price, after: Price) -> String {
        match decision {
            Decision::Replace if self.price_unknown => "changes the price by an unknown amount".to_owned(),
            _ if self.price_unknown => "saves an unknown amount".to_owned(),
            Decision::Replace if self.by_on_demand => share_text(before, after),
            _ => money_text(before.saturating_sub(after)),
        }
    }

    /// `if PodDisruptionBudget shop/web allowed 1: delete, saves $0.19/h`; empty when there is no counterfactual.
    pub fn if_removed_text(&self) -> String {
        let Some(then) = &self.if_removed else {
            return String::new();
        };
        let conditions: Vec<&str> = self
            .blockers
            .iter()
            .map(|blocker| blocker.condition.as_str())
            .collect();
        let is_dear = |blocker: &Blocker| blocker.kind == BlockerKind::NotCheaper;
        let money = if self.blockers.iter().any(is_dear) {
            // What something cheaper would cost is not known.
            "saves the difference".to_owned()
        } else {
            self.in_words(then.decision, then.price_before, then.price_after)
        };
        format!(
            "if {}: {}, {money}",
            conditions.join(" and "),
            then.decision.as_str()
        )
    }
}

/// `saves 42% by prices of on-demand`: how much that is of what the node costs nobody knows.
pub fn share_text(before: Price, after: Price) -> String {
    let saved = i128::from(before.saturating_sub(after).0);
    let percent = saved * 100 / i128::from(before.0.max(1));
    let text = match percent {
        0 if saved == 0 => return "saves nothing".to_owned(),
        0 if saved > 0 => "saves less than 1%".to_owned(),
        0 => "costs less than 1% more".to_owned(),
        1.. => format!("saves {percent}%"),
        _ => format!("costs {}% more", -percent),
    };
    format!("{text} by prices of on-demand")
}

/// `saves $0.19/h`, `costs $0.05/h more`, `saves nothing`.
pub fn money_text(saved: Price) -> String {
    match saved.0 {
        0 => "saves nothing".to_owned(),
        1..5_000_000 => "saves less than $0.01/h".to_owned(),
        5_000_000.. => format!("saves ${}/h", saved.to_cents_text()),
        _ => format!(
            "costs ${}/h more",
            Price(saved.0.saturating_neg()).to_cents_text()
        ),
    }
}
