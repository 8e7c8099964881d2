//! Resource amounts as vectors of one width per Snapshot: position instead of name, so that sums and comparisons are a few words.

use crate::resources::{ResourceName, Resources};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// The resources of a Snapshot. CPU, memory, ephemeral storage and pods come first, the rest in name order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTable {
    names: Vec<ResourceName>,
}

/// What every table begins with.
const FIRST: [&str; 4] = [
    ResourceName::CPU,
    ResourceName::MEMORY,
    ResourceName::EPHEMERAL_STORAGE,
    ResourceName::PODS,
];

/// Position of CPU in every vector.
pub const CPU: usize = 0;
/// Position of memory in every vector.
pub const MEMORY: usize = 1;
/// Position of ephemeral storage in every vector.
pub const EPHEMERAL_STORAGE: usize = 2;
/// Position of pods in every vector.
pub const PODS: usize = 3;

impl ResourceTable {
    /// A table of every name that occurs.
    pub fn new<'a>(occurring: impl IntoIterator<Item = &'a Resources>) -> Self {
        let mut names: BTreeSet<ResourceName> = BTreeSet::new();
        for resources in occurring {
            for (name, _) in resources.iter().filter(|(name, _)| !FIRST.contains(name)) {
                if !names.contains(name) {
                    names.insert(ResourceName::new(name));
                }
            }
        }
        ResourceTable {
            names: FIRST.into_iter().map(ResourceName::new).chain(names).collect(),
        }
    }

    /// The names that occur, without those that every table has.
    pub(crate) fn occurring(&self) -> &[ResourceName] {
        &self.names[FIRST.len()..]
    }

    /// Whether every table has this name.
    pub(crate) fn is_always_there(name: &str) -> bool {
        FIRST.contains(&name)
    }

    /// How many resources there are.
    pub fn width(&self) -> usize {
        self.names.len()
    }

    /// The name at a position.
    pub fn name(&self, index: usize) -> &str {
        self.names[index].as_str()
    }

    /// The position of a name.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known.as_str() == name)
    }

    /// As a vector; absent names are zero. Names outside the table are dropped.
    pub fn vector(&self, resources: &Resources) -> ResourceVector {
        let mut vector = ResourceVector::zero(self.width());
        for (name, amount) in resources.iter() {
            if let Some(index) = self.index(name) {
                vector.0[index] = amount;
            }
        }
        vector
    }

    /// Back to names; zeroes are dropped.
    pub fn resources(&self, vector: &ResourceVector) -> Resources {
        let named = self
            .names
            .iter()
            .zip(&vector.0)
            .filter(|(_, amount)| **amount != 0);
        named.map(|(name, amount)| (name.clone(), *amount)).collect()
    }
}

/// Amounts by position. All vectors of a Snapshot have the same width. Arithmetic saturates.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVector(pub SmallVec<[i64; 6]>);

impl ResourceVector {
    /// All zero.
    pub fn zero(width: usize) -> Self {
        ResourceVector(SmallVec::from_elem(0, width))
    }

    /// Adds in place.
    pub fn add(&mut self, other: &ResourceVector) {
        for (left, right) in self.0.iter_mut().zip(&other.0) {
            *left = left.saturating_add(*right);
        }
    }

    /// Subtracts in place.
    pub fn subtract(&mut self, other: &ResourceVector) {
        for (left, right) in self.0.iter_mut().zip(&other.0) {
            *left = left.saturating_sub(*right);
        }
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &ResourceVector) -> Self {
        let mut sum = self.clone();
        sum.add(other);
        sum
    }

    /// Element-wise maximum, in place.
    pub fn raise_to(&mut self, other: &ResourceVector) {
        for (left, right) in self.0.iter_mut().zip(&other.0) {
            *left = (*left).max(*right);
        }
    }

    /// Element-wise minimum, in place.
    pub fn lower_to(&mut self, other: &ResourceVector) {
        for (left, right) in self.0.iter_mut().zip(&other.0) {
            *left = (*left).min(*right);
        }
    }

    /// Whether every amount is at most that of `free`.
    pub fn fits(&self, free: &ResourceVector) -> bool {
        self.0.iter().zip(&free.0).all(|(need, free)| need <= free)
    }

    /// Whether any amount is negative. Nothing fits where capacity is overdrawn (P §3).
    pub fn has_negative(&self) -> bool {
        self.0.iter().any(|amount| *amount < 0)
    }
}

impl std::ops::Index<usize> for ResourceVector {
    type Output = i64;

    #[inline]
    fn index(&self, index: usize) -> &i64 {
        &self.0[index]
    }
}
