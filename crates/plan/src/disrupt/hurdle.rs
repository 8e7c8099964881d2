//! One thing in the way of a method, as ids, and sets of such things that an evaluation is to think away.
//!
//! Every check of every method names its hurdle and passes when that is lifted; this is what makes blockers minimal and counterfactuals cheap.

use super::outcome::PoolScore;
use spokeshave_model::snapshot::{BudgetId, NodeId, PodId, Snapshot};
use std::collections::BTreeSet;

/// Hurdles to think away.
pub(super) type Lifted = BTreeSet<Hurdle>;

/// Why a node is not disrupted: one thing in the way, as an id. The first twelve are the checks that make a node a candidate (D §1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hurdle {
    /// Check 1: it belongs to a command that is being carried out.
    InCommand,
    /// Check 2: it has no NodeClaim.
    NotManaged,
    /// Check 3: its NodeClaim has no Node yet.
    NoNode,
    /// Check 4: it is not initialised.
    NotInitialized,
    /// Check 5: it is on its way out already.
    Deleting,
    /// Check 6: it is kept for a pending pod.
    Nominated,
    /// Check 7: the Node carries `karpenter.sh/do-not-disrupt: "true"`.
    NodeDoNotDisrupt,
    /// Check 8: the label of its NodePool is missing.
    NoPoolLabel,
    /// Check 9: its NodePool is unknown or has no instance types.
    PoolNotFound,
    /// Check 10: a pod carries `karpenter.sh/do-not-disrupt`.
    PodDoNotDisrupt(PodId),
    /// Check 11: a PodDisruptionBudget allows nothing now.
    PodDisruptionBudget(BudgetId),
    /// Check 12: several PodDisruptionBudgets select one pod; Kubernetes refuses its eviction.
    SeveralBudgets(PodId),
    /// Its NodePool has `spec.replicas`.
    StaticPool,
    /// Emptiness does not apply: there are pods that matter. Consolidation does not apply: there are none.
    NotApplicable,
    /// `consolidateAfter: Never`.
    ConsolidationDisabled,
    /// The consolidation policy forbids it.
    Policy,
    /// consolidateAfter has not passed.
    ConsolidateAfter,
    /// The instance type is not in the NodePool's catalogue.
    UnknownInstanceType,
    /// The label of its capacity type is missing.
    NoCapacityTypeLabel,
    /// The label of its zone is missing.
    NoZoneLabel,
    /// What the node costs is unknown, so nothing can be shown to be cheaper.
    UnknownPrice,
    /// A pod has nowhere to go.
    Pod(PodId),
    /// A limit of a NodePool leaves no room for a replacement.
    Limits,
    /// Neighbours that could take the pods changed too recently (D-044).
    Neighbours,
    /// More than one replacement would be needed.
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
    /// The disruption budgets of the NodePool allow no more now.
    Budget,
    /// A DisruptionPolicy allows no more now.
    DisruptionPolicy,
}

impl Hurdle {
    /// Whether it can be thought away.
    pub(super) fn is_removable(self) -> bool {
        !matches!(
            self,
            Hurdle::InCommand
                | Hurdle::NotManaged
                | Hurdle::NoNode
                | Hurdle::Deleting
                | Hurdle::NoPoolLabel
                | Hurdle::PoolNotFound
                | Hurdle::StaticPool
                | Hurdle::NotApplicable
                | Hurdle::UnknownInstanceType
                | Hurdle::NoCapacityTypeLabel
                | Hurdle::NoZoneLabel
        )
    }
}

impl Hurdle {
    /// One of the twelve checks of a node, in upstream's words.
    pub fn words(self, snapshot: &Snapshot, node: NodeId) -> String {
        let budget_name = |budget: BudgetId| {
            let budget = &snapshot.budgets[budget.index()];
            format!("{}/{}", budget.namespace, budget.name)
        };
        match self {
            Hurdle::InCommand => "candidate is already being disrupted".to_owned(),
            Hurdle::NotManaged => "node isn't managed by karpenter".to_owned(),
            Hurdle::NoNode => "nodeclaim does not have an associated node".to_owned(),
            Hurdle::NotInitialized => "node isn't initialized".to_owned(),
            Hurdle::Nominated => "node is nominated for a pending pod".to_owned(),
            Hurdle::NodeDoNotDisrupt => {
                "disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation".to_owned()
            }
            Hurdle::NoPoolLabel => {
                "node doesn't have required label (label=karpenter.sh/nodepool)".to_owned()
            }
            Hurdle::PoolNotFound => {
                let pool = snapshot.node(node).pool_name.as_deref().unwrap_or_default();
                format!("NodePool not found (NodePool={pool})")
            }
            Hurdle::PodDoNotDisrupt(pod) => format!(
                "pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod={})",
                snapshot.pod(pod).key()
            ),
            Hurdle::PodDisruptionBudget(budget) => format!(
                "pdb prevents pod evictions (PodDisruptionBudget=[{}])",
                budget_name(budget)
            ),
            Hurdle::SeveralBudgets(pod) => {
                let budgets = snapshot.pod(pod).budgets().iter();
                let names: Vec<String> = budgets.map(|budget| budget_name(*budget)).collect();
                format!(
                    "eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{}])",
                    names.join(" ")
                )
            }
            // The twelve checks raise no others.
            _ => "node is deleting or marked for deletion".to_owned(),
        }
    }
}

/// The first hurdle that a method met, with words for it where the words depend on more than the hurdle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) hurdle: Hurdle,
    pub(super) text: String,
    /// What was scored, where a score was too low (D-179).
    pub(super) scores: Vec<PoolScore>,
}

impl From<Hurdle> for Stop {
    fn from(hurdle: Hurdle) -> Self {
        Stop::new(hurdle, String::new())
    }
}

impl Stop {
    pub(super) fn new(hurdle: Hurdle, text: impl Into<String>) -> Self {
        Stop {
            hurdle,
            text: text.into(),
            scores: Vec::new(),
        }
    }
}
