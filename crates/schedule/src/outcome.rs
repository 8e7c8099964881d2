//! What a packing pass decided: values only.

use crate::template::SkippedPool;
use spokeshave_model::placement::Placements;
use spokeshave_model::reason::Reason;
use spokeshave_model::snapshot::{PodId, PoolId};
use std::sync::Arc;

/// A pod without a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnplacedPod {
    /// The pod.
    pub pod: PodId,
    /// Why. Shared by pods of one shape.
    pub reason: Arc<Reason>,
}

/// Counts of work done, for `--stats`; equal inputs give equal counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Attempts to place a pod, relaxations and retries included.
    pub attempts: u64,
    /// Existing nodes looked at.
    pub nodes_tried: u64,
    /// Planned NodeClaims looked at.
    pub claims_tried: u64,
}

/// The result of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Where pods go.
    pub placements: Placements,
    /// Pods without a place, in pod order.
    pub unplaced: Vec<UnplacedPod>,
    /// NodePools that could not take part, in pool order.
    pub skipped_pools: Vec<(PoolId, SkippedPool)>,
    /// Work done.
    pub statistics: Statistics,
}
