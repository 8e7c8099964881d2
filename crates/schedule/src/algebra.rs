//! Requirement sets as small integers, with the results of operations on them remembered.
//!
//! The exact algebra of the model is slow on strings; but few distinct sets occur, so each operation is computed once per pair of sets and
//! looked up afterwards. Complexity: a lookup is O(1); a miss costs the algebra plus one hash of the result.
//!
//! Several sets of which one must hold are a set, too, for whoever asks about one label at a time.

use crate::bits::Bits;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::{Incompatibility, Requirement, Requirements};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An interned requirement set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SetId(u32);

impl SetId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The interner.
#[derive(Clone, Debug)]
pub(crate) struct Algebra<'a> {
    well_known: &'a BTreeSet<String>,
    sets: Vec<Arc<Requirements>>,
    ids: FxHashMap<Arc<Requirements>, SetId>,
    joins: FxHashMap<(SetId, SetId), Option<SetId>>,
    /// Per set, whether it has minValues.
    min_values: Vec<bool>,
    /// Narrowings of a set to some domains of a key, most recent last: a set has few.
    narrowings: FxHashMap<(SetId, u32), Vec<(Bits, SetId)>>,
    /// Sets that stand for several of which one must hold.
    unions: FxHashMap<Vec<SetId>, SetId>,
    /// The several that a set stands for.
    alternatives: FxHashMap<SetId, Vec<SetId>>,
}

impl<'a> Algebra<'a> {
    pub(crate) fn new(well_known: &'a BTreeSet<String>) -> Self {
        Algebra {
            well_known,
            sets: Vec::new(),
            ids: FxHashMap::with_hasher(FxBuildHasher),
            joins: FxHashMap::with_hasher(FxBuildHasher),
            min_values: Vec::new(),
            narrowings: FxHashMap::with_hasher(FxBuildHasher),
            unions: FxHashMap::with_hasher(FxBuildHasher),
            alternatives: FxHashMap::with_hasher(FxBuildHasher),
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
        self.min_values.push(requirements.has_min_values());
        let shared = Arc::new(requirements);
        self.sets.push(Arc::clone(&shared));
        self.ids.insert(shared, id);
        id
    }

    /// A set that stands for several of which one must hold. What `get` says of it is for readers: values that one of them lists. Nothing may be joined to it.
    pub(crate) fn any_of(&mut self, sets: Vec<SetId>) -> SetId {
        if let [only] = sets.as_slice() {
            return *only;
        }
        if let Some(known) = self.unions.get(&sets) {
            return *known;
        }
        let id = SetId(self.sets.len() as u32);
        self.min_values.push(false);
        self.sets.push(Arc::new(self.listed_by_any(&sets)));
        self.alternatives.insert(id, sets.clone());
        self.unions.insert(sets, id);
        id
    }

    /// The several that a set stands for; none where it is one.
    pub(crate) fn alternatives(&self, set: SetId) -> &[SetId] {
        self.alternatives.get(&set).map_or(&[], Vec::as_slice)
    }

    /// The values that sets list for labels of which each of them lists some.
    fn listed_by_any(&self, sets: &[SetId]) -> Requirements {
        let mut listed = Requirements::new();
        let Some((first, others)) = sets.split_first() else {
            return listed;
        };
        for requirement in self.get(*first).iter() {
            let key = requirement.key();
            let others = others.iter().map(|other| self.get(*other).find(key));
            let all: Option<Vec<&Requirement>> = std::iter::once(Some(requirement)).chain(others).collect();
            if let Some(all) = all.filter(|all| all.iter().all(|one| !one.is_complement())) {
                let values = all.into_iter().flat_map(Requirement::values);
                listed.add(Requirement::one_of(key, values.cloned()));
            }
        }
        listed
    }

    pub(crate) fn get(&self, id: SetId) -> &Requirements {
        &self.sets[id.index()]
    }

    pub(crate) fn has_min_values(&self, id: SetId) -> bool {
        self.min_values[id.index()]
    }

    /// What a planned node of `base` becomes when a pod asks `incoming`, or `None` when they do not go together. Well-known keys may
    /// be undefined (P-035).
    pub(crate) fn join(&mut self, base: SetId, incoming: SetId) -> Option<SetId> {
        if let Some(known) = self.joins.get(&(base, incoming)) {
            return *known;
        }
        let (left, right) = (
            Arc::clone(&self.sets[base.index()]),
            Arc::clone(&self.sets[incoming.index()]),
        );
        let joined = self.go_together(&left, &right).is_ok().then(|| {
            let mut joined = (*left).clone();
            joined.add_all(&right);
            self.intern(joined)
        });
        self.joins.insert((base, incoming), joined);
        joined
    }

    /// Why `join` says no.
    pub(crate) fn why_not(&self, base: SetId, incoming: SetId) -> Option<Incompatibility> {
        self.go_together(self.get(base), self.get(incoming)).err()
    }

    /// Upstream's answer, but that nothing goes with what contradicts itself: a node would come up without the label, and the pod would not run on it. Of
    /// well-known keys the instance types say so.
    fn go_together(&self, base: &Requirements, incoming: &Requirements) -> Result<(), Incompatibility> {
        base.compatible(incoming, self.well_known)?;
        let mut contradictions = incoming.iter().filter(|one| one.is_contradiction());
        match contradictions.find(|one| !self.well_known.contains(one.key())) {
            None => Ok(()),
            Some(one) => Err(Incompatibility::UndefinedLabel {
                key: one.key().to_owned(),
                typo_of: None,
            }),
        }
    }

    /// `base` with one key narrowed further.
    pub(crate) fn narrow(&mut self, base: SetId, requirement: Requirement) -> SetId {
        let mut narrowed = self.get(base).clone();
        narrowed.add(requirement);
        self.intern(narrowed)
    }

    /// A set with minValues of these keys lowered to what is reached.
    pub(crate) fn lower_min_values(&mut self, set: SetId, reached: &BTreeMap<String, u32>) -> SetId {
        let mut lowered = self.get(set).clone();
        for (key, count) in reached {
            if let Some(mut requirement) = lowered.find(key).cloned() {
                requirement.lower_min_values(*count);
                lowered.replace(requirement);
            }
        }
        self.intern(lowered)
    }

    /// `base` with a topology key, known by its number, narrowed to some of its domains.
    pub(crate) fn narrow_to(
        &mut self,
        base: SetId,
        key: u32,
        domains: &Bits,
        requirement: impl FnOnce() -> Requirement,
    ) -> SetId {
        let known = self.narrowings.get(&(base, key));
        if let Some((_, set)) = known.and_then(|known| known.iter().rev().find(|(other, _)| other == domains))
        {
            return *set;
        }
        let set = self.narrow(base, requirement());
        self.narrowings
            .entry((base, key))
            .or_default()
            .push((domains.clone(), set));
        set
    }
}
