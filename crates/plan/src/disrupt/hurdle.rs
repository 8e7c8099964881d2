//! One thing in the way of a method, as ids, and sets of such things that an evaluation is to think away.
//!
//! Every check of every method names its hurdle and passes when that is lifted; this is what makes blockers minimal and counterfactuals cheap.

use super::outcome::PoolScore;
use spokeshave_model::snapshot::{BudgetId, PodId};
use std::collections::BTreeSet;

/// Hurdles to think away.
pub(super) type Lifted = BTreeSet<Hurdle>;

/// One thing in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hurdle {
    InCommand,
    NotManaged,
    NoNode,
    NotInitialized,
    Deleting,
    Nominated,
    NodeDoNotDisrupt,
    NoPoolLabel,
    PoolNotFound,
    PodDoNotDisrupt(PodId),
    PodDisruptionBudget(BudgetId),
    SeveralBudgets(PodId),
    StaticPool,
    /// Emptiness does not apply: there are pods that matter. Consolidation does not apply: there are none.
    NotApplicable,
    ConsolidationDisabled,
    Policy,
    ConsolidateAfter,
    UnknownInstanceType,
    NoCapacityTypeLabel,
    NoZoneLabel,
    UnknownPrice,
    Pod(PodId),
    Limits,
    Neighbours,
    TooManyReplacements,
    NotCheaper,
    MinValues,
    SpotToSpotDisabled,
    SpotToSpotFlexibility,
    Score,
    Patience,
    StaticHeadroom,
    Budget,
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
