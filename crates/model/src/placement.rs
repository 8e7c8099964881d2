//! What packing decides, as values that planning, checking and rendering share.

use crate::instance_type::CapacityType;
use crate::price::Price;
use crate::requirements::Requirements;
use crate::resources::Resources;
use crate::snapshot::{NodeId, PodId, PoolId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
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

/// The ways to launch a node. NodeClaims of one plan have few different lists, so they share them; changing one copies it first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launches(Arc<Vec<Launch>>);

impl Deref for Launches {
    type Target = Vec<Launch>;
    fn deref(&self) -> &Vec<Launch> {
        &self.0
    }
}

impl DerefMut for Launches {
    fn deref_mut(&mut self) -> &mut Vec<Launch> {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Vec<Launch>> for Launches {
    fn from(launches: Vec<Launch>) -> Self {
        Launches(Arc::new(launches))
    }
}

impl FromIterator<Launch> for Launches {
    fn from_iter<I: IntoIterator<Item = Launch>>(launches: I) -> Self {
        launches.into_iter().collect::<Vec<Launch>>().into()
    }
}

impl<'a> IntoIterator for &'a Launches {
    type Item = &'a Launch;
    type IntoIter = std::slice::Iter<'a, Launch>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
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
