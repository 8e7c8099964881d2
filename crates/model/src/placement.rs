//! What packing decides, as values that planning, checking and rendering share.

use crate::instance_type::CapacityType;
use crate::price::Price;
use crate::requirements::Requirements;
use crate::resources::Resources;
use crate::snapshot::{NodeId, PodId, PoolId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;
use std::sync::Arc;

/// The cheapest way to launch one instance type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Index into the pool's instance types.
    pub instance_type: usize,
    /// The zone of its cheapest offering, if it has one.
    pub zone: Option<String>,
    /// Its capacity type.
    pub capacity_type: Option<CapacityType>,
    /// Its price.
    pub price: Price,
}

/// The ways to launch a node: some of a list in order of price. Plans have thousands of NodeClaims and few such lists, so they share them, and each
/// keeps positions only.
#[derive(Clone, Debug, Default)]
pub struct Launches {
    order: Arc<Vec<Launch>>,
    kept: Arc<Vec<u32>>,
}

impl Launches {
    /// Those at some positions of a list, in order.
    pub fn of(order: Arc<Vec<Launch>>, kept: impl IntoIterator<Item = usize>) -> Self {
        let kept = kept
            .into_iter()
            .filter_map(|position| u32::try_from(position).ok());
        Launches {
            kept: Arc::new(kept.collect()),
            order,
        }
    }

    /// In order of price.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Launch> + DoubleEndedIterator + Clone {
        self.kept.iter().map(|position| &self.order[*position as usize])
    }

    /// The cheapest.
    pub fn first(&self) -> Option<&Launch> {
        self.iter().next()
    }

    /// Lists that are shared have the same one, as long as they live; to look up what was worked out for one already.
    pub fn identity(&self) -> (usize, usize) {
        (Arc::as_ptr(&self.order).addr(), Arc::as_ptr(&self.kept).addr())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Drops all but the first so many.
    pub fn truncate(&mut self, count: usize) {
        if count < self.kept.len() {
            Arc::make_mut(&mut self.kept).truncate(count);
        }
    }

    /// Drops those that do not pass.
    pub fn retain(&mut self, mut pass: impl FnMut(&Launch) -> bool) {
        let order = &self.order;
        Arc::make_mut(&mut self.kept).retain(|position| pass(&order[*position as usize]));
    }

    /// How many pass, when those that pass come first.
    pub fn partition_point(&self, mut pass: impl FnMut(&Launch) -> bool) -> usize {
        self.kept
            .partition_point(|position| pass(&self.order[*position as usize]))
    }
}

impl PartialEq for Launches {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Launches {}

impl Index<usize> for Launches {
    type Output = Launch;
    fn index(&self, index: usize) -> &Launch {
        &self.order[self.kept[index] as usize]
    }
}

impl From<Vec<Launch>> for Launches {
    fn from(launches: Vec<Launch>) -> Self {
        let count = launches.len();
        Launches::of(Arc::new(launches), 0..count)
    }
}

impl FromIterator<Launch> for Launches {
    fn from_iter<I: IntoIterator<Item = Launch>>(launches: I) -> Self {
        launches.into_iter().collect::<Vec<Launch>>().into()
    }
}

/// A node that should be launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedClaim {
    /// The NodePool it comes from.
    pub pool: PoolId,
    /// The pods placed on it, in the order of placement.
    pub pods: Vec<PodId>,
    /// The ways to launch it, cheapest instance type first, at most 600 (P-064). Never empty.
    pub launches: Launches,
    /// What its node must look like; without hostname and simulation keys (P-069).
    pub requirements: Requirements,
    /// Capacity types available among the launches (P-067).
    pub capacity_types: BTreeSet<String>,
    /// Requests of its pods plus the least daemon overhead (P-095).
    pub requests: Resources,
    /// Whether minValues had to be lowered (P-120).
    pub min_values_relaxed: bool,
}

/// Where pods go: the part of a plan that can be checked without knowing how it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placements {
    /// Nodes to launch, in order of creation.
    pub claims: Vec<PlannedClaim>,
    /// Pods placed on existing nodes, in node order.
    pub existing: BTreeMap<NodeId, Vec<PodId>>,
}
