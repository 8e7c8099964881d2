//! Planned NodeClaims: whether one takes a further pod, and whether a NodePool can open one (P §6.5, §6.6, §6.12, §6.13).

use super::{ClaimOrder, Engine, MinValuesPolicy, Miss, ReservedPolicy};
use crate::algebra::SetId;
use spokeshave_model::snapshot::{ClassId, PodId};
use std::collections::BTreeMap;

/// Why a template opens no claim; the facts behind it are looked up again for the user only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unopened {
    NodeLimit,
    Limits,
    Taint,
    Labels,
    /// Volumes or topology.
    Place,
    InstanceTypes,
    MinValues,
    Reserved,
}

/// Why no claim opens, and whether that stays whatever else is placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    pub(super) why: Unopened,
    pub(super) is_final: bool,
}

/// A claim that a template could open; types and reservations are in the scratch.
pub(super) struct Opening {
    set: SetId,
    relaxed_min_values: BTreeMap<String, u32>,
}

impl Opening {
    pub(super) fn set(&self) -> SetId {
        self.set
    }
}

impl Engine<'_> {
    /// Puts the pod on the first claim that takes it, fewest pods first (P-083). O(words of 64 claims between the first
    /// and the last with so many pods, for each number of pods), plus the claims looked at.
    pub(super) fn try_claims(&mut self, pod: PodId, class: ClassId, step: usize, bound: bool) -> bool {
        if self.live == self.closed_claims {
            return false;
        }
        let request = self.snapshot.pod(pod).request.index();
        self.refresh(class, step, request);
        let order = self.claim_order;
        let buckets = self.buckets.len();
        for nth in 0..buckets {
            let bucket = if order.is_fullest_first() {
                buckets - 1 - nth
            } else {
                nth
            };
            if order == ClaimOrder::FewestPodsGrownLast && bucket > 1 {
                if self.try_grown_last(pod, class, step, bucket, bound) {
                    return true;
                }
                continue;
            }
            let words = self.buckets[bucket].words();
            for nth in 0..words.len() {
                let position = if order.is_newest_first() {
                    words.end - 1 - nth
                } else {
                    words.start + nth
                };
                let variant = &self.classes[class.index()].variants[step];
                let mut word = self.buckets[bucket].word(position)
                    & !variant.failed_claims.word(position)
                    & !self.claims_too_full[request].bits.word(position);
                if bound {
                    word &= self.scratch.claims.word(position);
                }
                while word != 0 {
                    let bit = if order.is_newest_first() {
                        63 - word.leading_zeros() as usize
                    } else {
                        word.trailing_zeros() as usize
                    };
                    word &= !(1 << bit);
                    let index = position * 64 + bit;
                    self.statistics.claims_tried += 1;
                    if let Some(set) = self.accepts(pod, class, step, index) {
                        self.put_on_claim(pod, class, step, index, set);
                        return true;
                    }
                }
            }
        }
        false
    }

    /// The same for the claims with one number of pods, those that got their last pod last first. O(claims with so many pods, sorted).
    fn try_grown_last(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        bucket: usize,
        bound: bool,
    ) -> bool {
        let request = self.snapshot.pod(pod).request.index();
        let variant = &self.classes[class.index()].variants[step];
        let mut candidates = std::mem::take(&mut self.scratch.candidates);
        candidates.clear();
        let is_open = |index: &usize| {
            *index >= self.closed_claims
                && !variant.failed_claims.contains(*index)
                && !self.claims_too_full[request].bits.contains(*index)
                && (!bound || self.scratch.claims.contains(*index))
        };
        let open = self.buckets[bucket].ones().filter(is_open);
        candidates.extend(open.map(|index| (self.claims[index].grown, index)));
        candidates.sort_unstable_by(|left, right| right.cmp(left));
        let taken = candidates.iter().find_map(|(_, index)| {
            self.statistics.claims_tried += 1;
            let set = self.accepts(pod, class, step, *index)?;
            Some((*index, set))
        });
        self.scratch.candidates = candidates;
        if let Some((index, set)) = taken {
            self.put_on_claim(pod, class, step, index, set);
        }
        taken.is_some()
    }

    /// Forgets failures that something may have undone since.
    pub(super) fn refresh(&mut self, class: ClassId, step: usize, request: usize) {
        let variant = &mut self.classes[class.index()].variants[step];
        if variant.epoch != self.epoch {
            variant.epoch = self.epoch;
            variant.failed_claims.clear();
            variant.closed.clear();
        }
        let full = &mut self.claims_too_full[request];
        if full.epoch != self.epoch {
            full.epoch = self.epoch;
            full.bits.clear();
        }
    }

    fn give_up_claim(&mut self, class: ClassId, step: usize, index: usize) {
        self.classes[class.index()].variants[step]
            .failed_claims
            .insert(index);
    }

    /// Whether a planned claim takes the pod, and its requirements then; its types and reservations are left in the scratch. Remembers
    /// failures that are final.
    pub(super) fn accepts(&mut self, pod: PodId, class: ClassId, step: usize, index: usize) -> Option<SetId> {
        let request = self.snapshot.pod(pod).request.index();
        let requests = &self.snapshot.requests[request];
        let claim = &self.claims[index];
        if !requests.fits(&claim.headroom) {
            self.claims_too_full[request].bits.insert(index);
            return None;
        }
        let variant = &self.classes[class.index()].variants[step];
        let (template, set_before) = (claim.template, claim.set?);
        if !variant.templates.contains(template) || self.numbers.conflict(&claim.ports, &variant.ports) {
            self.give_up_claim(class, step, index);
            return None;
        }
        let Some(joined) = self.algebra.join(set_before, variant.all) else {
            self.give_up_claim(class, step, index);
            return None;
        };
        let set = match self.narrow(class, step, (index, template, joined)) {
            Ok(set) => set,
            Err(is_final) => {
                if is_final {
                    self.give_up_claim(class, step, index);
                }
                return None;
            }
        };
        let (claim, scratch) = (&self.claims[index], &mut self.scratch);
        scratch.total.clone_from(&claim.requests);
        scratch.total.add(requests);
        scratch.types.copy_from(&claim.types);
        scratch.ports.clear();
        scratch.ports.extend_from_slice(&claim.ports);
        let variant = &self.classes[class.index()].variants[step];
        scratch.ports.extend_from_slice(&variant.ports);
        let template_index = template;
        let template = &mut self.templates[template];
        if set != set_before {
            let facts = template.facts(set, &self.algebra);
            scratch.types.intersect(&template.fact(facts).both);
        }
        template.keep_fitting(&mut scratch.types, &scratch.total, &scratch.ports, &self.numbers);
        if scratch.types.is_clear() {
            return None;
        }
        if self.algebra.has_min_values(set)
            && template
                .check_min_values(&scratch.types, self.algebra.get(set))
                .is_err()
        {
            return None;
        }
        self.reserve(Some(index), template_index, set).then_some(set)
    }

    /// Works out the reservations a claim holds or can get with the types in the scratch; false when reserved capacity must not be passed over
    /// and there is none to be had (P §6.12).
    fn reserve(&mut self, claim: Option<usize>, template: usize, set: SetId) -> bool {
        self.scratch.reserved.clear();
        if self.reservations.is_empty() {
            return true;
        }
        let facts = self.templates[template].facts(set, &self.algebra);
        let scratch = &mut self.scratch;
        self.templates[template].reservations(&scratch.types, facts, &mut scratch.reserved);
        let exist = !scratch.reserved.is_empty();
        let held = claim.map_or(&[][..], |claim| self.claims[claim].reserved.as_slice());
        let left = &self.reservations;
        scratch
            .reserved
            .retain(|id| held.contains(id) || left[*id as usize] > 0);
        let passed_over = scratch.reserved.is_empty() && (exist || !held.is_empty());
        self.options.reserved == ReservedPolicy::Fallback || !passed_over
    }

    /// Applies volume alternatives and topology to a joined requirement set.
    pub(super) fn narrow(
        &mut self,
        class: ClassId,
        step: usize,
        (index, template, joined): (usize, usize, SetId),
    ) -> Result<SetId, bool> {
        let variant = &self.classes[class.index()].variants[step];
        if variant.volume_sets.is_empty() {
            if variant.is_free {
                return Ok(joined);
            }
            let place = (index, template, joined);
            let narrowed =
                self.topology
                    .narrow(class, &variant.bindings, variant.strict, place, &mut self.algebra);
            return narrowed.map_err(|refusal| refusal.final_);
        }
        let mut is_final = true;
        for position in 0..variant.volume_sets.len() {
            let variant = &self.classes[class.index()].variants[step];
            let Some(base) = self.algebra.join(joined, variant.volume_sets[position]) else {
                continue;
            };
            let place = (index, template, base);
            let narrowed =
                self.topology
                    .narrow(class, &variant.bindings, variant.strict, place, &mut self.algebra);
            match narrowed {
                Ok(set) => return Ok(set),
                Err(refusal) => is_final &= refusal.final_,
            }
        }
        Err(is_final)
    }

    /// Opens a claim on the first template that can (P-083).
    pub(super) fn try_new_claim(&mut self, pod: PodId, class: ClassId, step: usize) -> Result<(), Miss> {
        let request = self.snapshot.pod(pod).request;
        self.refresh(class, step, request.index());
        let variant = &self.classes[class.index()].variants[step];
        if variant.closed.contains(&request) {
            return Err(Miss::Final);
        }
        // What is refused because heavier NodePools are left out is no final answer.
        let mut is_final = self.first_template == 0;
        for template in self.first_template..self.templates.len() {
            match self.open_on(pod, class, step, template) {
                Ok(opening) => {
                    let place = (template, opening.set);
                    self.open_claim(pod, class, step, place, opening.relaxed_min_values);
                    return Ok(());
                }
                // No lighter pool may win over reserved capacity of a heavier one.
                Err(blocked) if blocked.why == Unopened::Reserved => return Err(Miss::Reserved),
                Err(blocked) => is_final &= blocked.is_final,
            }
        }
        if !is_final {
            return Err(Miss::Open);
        }
        self.classes[class.index()].variants[step].closed.push(request);
        Err(Miss::Final)
    }

    /// Whether a template could open a claim for the pod.
    pub(super) fn open_on(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        template: usize,
    ) -> Result<Opening, Blocked> {
        let blocked = |why, is_final| Err(Blocked { why, is_final });
        let requests = self.snapshot.requests(pod);
        if self.remaining[template].nodes <= 0 {
            return blocked(Unopened::NodeLimit, true);
        }
        self.scratch.types.copy_from(&self.templates[template].eligible);
        self.templates[template].keep_within(&mut self.scratch.types, &self.remaining[template].resources);
        if self.scratch.types.is_clear() {
            return blocked(Unopened::Limits, true);
        }
        let variant = &self.classes[class.index()].variants[step];
        if !variant.templates.contains(template) {
            return blocked(Unopened::Taint, true);
        }
        let Some(joined) = self.algebra.join(self.templates[template].set, variant.all) else {
            return blocked(Unopened::Labels, true);
        };
        let set = match self.narrow(class, step, (self.live, template, joined)) {
            Ok(set) => set,
            Err(is_final) => return blocked(Unopened::Place, is_final),
        };
        let variant = &self.classes[class.index()].variants[step];
        // A domain chosen by topology may be another one next time.
        let stays = set == joined || variant.is_free;
        let facts = self.templates[template].facts(set, &self.algebra);
        let types = &mut self.scratch.types;
        types.intersect(&self.templates[template].fact(facts).both);
        self.templates[template].keep_fitting(types, requests, &variant.ports, &self.numbers);
        if types.is_clear() {
            return blocked(Unopened::InstanceTypes, stays);
        }
        let mut relaxed = BTreeMap::new();
        if self.algebra.has_min_values(set)
            && let Err(reached) = self.templates[template].check_min_values(types, self.algebra.get(set))
        {
            match self.options.min_values {
                MinValuesPolicy::Strict => return blocked(Unopened::MinValues, stays),
                MinValuesPolicy::BestEffort => relaxed = reached,
            }
        }
        let set = if relaxed.is_empty() {
            set
        } else {
            self.lower_min_values(set, &relaxed)
        };
        if !self.reserve(None, template, set) {
            return blocked(Unopened::Reserved, false);
        }
        Ok(Opening {
            set,
            relaxed_min_values: relaxed,
        })
    }

    fn lower_min_values(&mut self, set: SetId, reached: &BTreeMap<String, u32>) -> SetId {
        let mut lowered = self.algebra.get(set).clone();
        for (key, count) in reached {
            if let Some(mut requirement) = lowered.find(key).cloned() {
                requirement.set_min_values(Some(*count));
                lowered.replace(requirement);
            }
        }
        self.algebra.intern(lowered)
    }
}
