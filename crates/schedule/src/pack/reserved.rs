//! Reserved capacity: which reservations a claim holds, and what it is launched as with them (P §6.12).
//!
//! A claim that holds reservations is launched from these alone. It has fewer instance types then than without them, and these must be enough for its
//! minValues, or the NodeClaim would be refused in every pass.

use super::Engine;
use crate::algebra::SetId;
use crate::bits::Bits;
use crate::options::{MinValuesPolicy, ReservedPolicy};
use crate::tables::Tables;
use spokeshave_model::{CapacityType, Requirement, labels};
use std::collections::{BTreeMap, BTreeSet};

impl Engine<'_> {
    /// Reserves for a claim that is to be opened with the types in the scratch, and says what it asks for then; `None` when it has to wait for reserved
    /// capacity. Where the reservations alone are not enough for its minValues, Strict gives them up for what anybody can buy, if that is enough; otherwise
    /// minValues are lowered to what the reservations reach, which `relaxed` learns.
    pub(super) fn reserve_anew(
        &mut self,
        template: usize,
        set: SetId,
        relaxed: &mut BTreeMap<String, u32>,
    ) -> Option<SetId> {
        let may_give_up = self.tables.algebra.has_min_values(set)
            && self.tables.options.min_values == MinValuesPolicy::Strict;
        if !self.reserve(None, template, set) {
            if !may_give_up {
                return None;
            }
            // Who would give a reservation up does not wait for one.
            self.find_reservations(template, set);
            let gives_up = self.check_reserved(template, set).is_err();
            self.scratch.reserved.clear();
            return gives_up
                .then(|| self.without_reservations(template, set))
                .flatten();
        }
        let Err(reached) = self.check_reserved(template, set) else {
            return Some(set);
        };
        if may_give_up && let Some(other) = self.without_reservations(template, set) {
            return Some(other);
        }
        let lowered = self.tables.algebra.lower_min_values(set, &reached);
        relaxed.extend(reached);
        Some(lowered)
    }

    /// Reserves for a claim that gets a further pod and has the types in the scratch then; false when it would lose its reservations, or they would not be
    /// enough for its minValues any more.
    pub(super) fn reserve_again(&mut self, claim: usize, template: usize, set: SetId) -> bool {
        self.reserve(Some(claim), template, set) && self.check_reserved(template, set).is_ok()
    }

    /// Works out the reservations a claim holds or can get with the types in the scratch; false when reserved capacity must not be passed over
    /// and there is none to be had (P §6.12).
    fn reserve(&mut self, claim: Option<usize>, template: usize, set: SetId) -> bool {
        self.scratch.reserved.clear();
        if self.ledgers.budget().reservations().is_empty() {
            return true;
        }
        self.find_reservations(template, set);
        let (left, scratch) = (self.ledgers.budget().reservations(), &mut self.scratch);
        let exist = !scratch.reserved.is_empty();
        let claims = self.ledgers.claims();
        let held = claim.map_or(&[][..], |claim| claims.get(claim).reserved.as_slice());
        scratch
            .reserved
            .retain(|id| held.contains(id) || left[*id as usize] > 0);
        let passed_over = scratch.reserved.is_empty() && (exist || !held.is_empty());
        self.tables.options.reserved == ReservedPolicy::Fallback || !passed_over
    }

    /// Leaves in the scratch the reservations that the types in it could draw on.
    fn find_reservations(&mut self, template: usize, set: SetId) {
        let (tables, scratch) = (&mut self.tables, &mut self.scratch);
        let facts = tables.templates[template].facts(set, &tables.algebra);
        tables.templates[template].reservations(&scratch.types, facts, &mut scratch.reserved);
    }

    /// Whether what is launched from the reservations in the scratch is enough for minValues; the keys for which it is not, with the counts reached.
    fn check_reserved(&mut self, template: usize, set: SetId) -> Result<(), BTreeMap<String, u32>> {
        let (tables, scratch) = (&mut self.tables, &self.scratch);
        if scratch.reserved.is_empty() || !tables.algebra.has_min_values(set) {
            return Ok(());
        }
        let (set, types) = pinned(tables, template, set, scratch.types.clone(), &scratch.reserved);
        let template = &mut tables.templates[template];
        let facts = template.facts(set, &tables.algebra);
        template.check_min_values(&types, tables.algebra.get(set), facts)
    }

    /// What a claim asks for that is not launched from reservations, with the types in the scratch that are left then; `None`, and nothing is changed, where
    /// they are not enough for its minValues.
    fn without_reservations(&mut self, template: usize, set: SetId) -> Option<SetId> {
        let (tables, scratch) = (&mut self.tables, &mut self.scratch);
        let others = [CapacityType::Spot.as_str(), CapacityType::OnDemand.as_str()];
        let set = tables
            .algebra
            .narrow(set, Requirement::one_of(labels::CAPACITY_TYPE, others));
        let template = &mut tables.templates[template];
        let facts = template.facts(set, &tables.algebra);
        let mut types = scratch.types.clone();
        types.intersect(&template.fact(facts).both);
        let wanted = tables.algebra.get(set);
        if types.is_clear() || template.check_min_values(&types, wanted, facts).is_err() {
            return None;
        }
        scratch.types = types;
        scratch.reserved.clear();
        Some(set)
    }
}

/// What a claim that holds reservations is launched as: from them and nothing else (P §6.12), whatever minValues asks of its capacity types.
pub(super) fn pinned(
    tables: &mut Tables<'_>,
    template: usize,
    mut set: SetId,
    mut types: Bits,
    reserved: &[u32],
) -> (SetId, Bits) {
    let names: Vec<_> = reserved
        .iter()
        .map(|id| tables.numbers.reservation_name(*id))
        .collect();
    let capacity_type = Requirement::is(labels::CAPACITY_TYPE, CapacityType::Reserved.as_str());
    set = tables.algebra.narrow(set, capacity_type);
    let least = tables.algebra.get(set).min_values(labels::CAPACITY_TYPE);
    if least.is_some_and(|least| least > 1) {
        // There is one left to choose from, and Strict would refuse the claim in every pass.
        let one = BTreeMap::from([(labels::CAPACITY_TYPE.to_owned(), 1)]);
        set = tables.algebra.lower_min_values(set, &one);
    }
    let labels: BTreeSet<&str> = names.iter().map(|(label, _)| *label).collect();
    for label in labels {
        let ids = names
            .iter()
            .filter(|(other, _)| *other == label)
            .map(|(_, id)| *id);
        set = tables.algebra.narrow(set, Requirement::one_of(label, ids));
    }
    let template = &mut tables.templates[template];
    let facts = template.facts(set, &tables.algebra);
    types.intersect(&template.fact(facts).offering);
    (set, types)
}
