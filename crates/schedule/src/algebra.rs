//! Requirement sets as small integers, with the results of operations on them remembered.
//!
//! The exact algebra of the model is slow on strings; but few distinct sets occur in one pass, so each operation is computed once per
//! pair of sets and looked up afterwards. Complexity: a lookup is O(1); a miss costs the algebra plus one hash of the result.

use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::{Incompatibility, Requirement, Requirements};
use std::collections::BTreeSet;
use std::rc::Rc;

/// An interned requirement set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SetId(u32);

/// The interner.
#[derive(Debug)]
pub(crate) struct Algebra<'a> {
    well_known: &'a BTreeSet<String>,
    sets: Vec<Rc<Requirements>>,
    ids: FxHashMap<Rc<Requirements>, SetId>,
    joins: FxHashMap<(SetId, SetId), Option<SetId>>,
}

impl<'a> Algebra<'a> {
    pub(crate) fn new(well_known: &'a BTreeSet<String>) -> Self {
        Algebra {
            well_known,
            sets: Vec::new(),
            ids: FxHashMap::with_hasher(FxBuildHasher),
            joins: FxHashMap::with_hasher(FxBuildHasher),
        }
    }

    pub(crate) fn well_known(&self) -> &'a BTreeSet<String> {
        self.well_known
    }

    pub(crate) fn intern(&mut self, requirements: Requirements) -> SetId {
        if let Some(id) = self.ids.get(&requirements) {
            return *id;
        }
        let id = SetId(self.sets.len() as u32);
        let shared = Rc::new(requirements);
        self.sets.push(Rc::clone(&shared));
        self.ids.insert(shared, id);
        id
    }

    pub(crate) fn get(&self, id: SetId) -> &Requirements {
        &self.sets[id.0 as usize]
    }

    pub(crate) fn shared(&self, id: SetId) -> Rc<Requirements> {
        Rc::clone(&self.sets[id.0 as usize])
    }

    /// What a planned node of `base` becomes when a pod asks `incoming`, or `None` when they do not go together. Well-known keys may
    /// be undefined (P-035).
    pub(crate) fn join(&mut self, base: SetId, incoming: SetId) -> Option<SetId> {
        if let Some(known) = self.joins.get(&(base, incoming)) {
            return *known;
        }
        let (left, right) = (self.shared(base), self.shared(incoming));
        let joined = left.compatible(&right, self.well_known).is_ok().then(|| {
            let mut joined = (*left).clone();
            joined.add_all(&right);
            self.intern(joined)
        });
        self.joins.insert((base, incoming), joined);
        joined
    }

    /// Why `join` says no.
    pub(crate) fn why_not(&self, base: SetId, incoming: SetId) -> Option<Incompatibility> {
        self.get(base)
            .compatible(self.get(incoming), self.well_known)
            .err()
    }

    /// `base` with one key narrowed further.
    pub(crate) fn narrow(&mut self, base: SetId, requirement: Requirement) -> SetId {
        let mut narrowed = self.get(base).clone();
        narrowed.add(requirement);
        self.intern(narrowed)
    }
}
