//! Planned NodeClaims: whether one takes a further pod, and whether a NodePool can open one (P §6.5, §6.6, §6.12, §6.13).
//!
//! Each is first asked with the first place for the pod's volumes that topology admits and the domains that topology names. What refuses that, and why, is what
//! is told. Who looks further asks for every place and every domain (`find_way`): what is for sale there is looked at for each.

use super::{ClaimOrder, Engine, NoPlace, Scratch};
use crate::algebra::{Algebra, SetId};
use crate::ledger::Prospect;
use crate::options::MinValuesPolicy;
use crate::tables::{Tables, VariantId};
use crate::topology::Ways;
use spokeshave_model::snapshot::PodId;
use std::collections::BTreeMap;

/// Why a template opens no claim; the facts behind it are looked up again for the user only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CannotOpen {
    NodeLimit,
    Limits,
    Taint,
    Labels,
    /// Volumes or topology.
    Place,
    InstanceTypes,
    /// No type that is left attaches so many volumes.
    VolumeLimit,
    MinValues,
    Reserved,
}

/// Why no claim opens, and whether that stays whatever else is placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    pub(super) why: CannotOpen,
    pub(super) is_final: bool,
}

/// A claim that a template could open; types and reservations are in the scratch.
pub(super) struct Opening {
    set: SetId,
    relaxed_min_values: BTreeMap<String, u32>,
}

/// Keeps of the types in the scratch those that attach the volumes of the pod beside what is there (P-117); whether there are any.
fn keep_attachable(
    scratch: &mut Scratch,
    tables: &Tables<'_>,
    pod: PodId,
    template: usize,
    attached: &[u32],
) -> bool {
    let attachments = &tables.attachments;
    let more = attachments.of_planned(pod);
    if more.is_empty() {
        return true;
    }
    let before = scratch.types.count();
    attachments.keep_attachable(&mut scratch.types, template, (attached, more), &tables.numbers);
    let left = scratch.types.count();
    scratch.met_attach_limit |= left < before;
    left > 0
}

impl Opening {
    pub(super) fn set(&self) -> SetId {
        self.set
    }
}

impl Engine<'_> {
    /// Puts the pod on the first claim that takes it, fewest pods first (P-083). O(words of 64 claims between the first
    /// and the last with so many pods, for each number of pods), plus the claims looked at.
    pub(super) fn try_claims(&mut self, pod: PodId, variant: VariantId, bound: bool) -> bool {
        let claims = self.ledgers.claims();
        if claims.count() == claims.first_open() {
            return false;
        }
        let request = self.tables.snapshot.pod(pod).request;
        let buckets = claims.buckets().len();
        self.failures.refresh(variant, request, self.ledgers.epoch());
        let order = self.claim_order;
        for nth in 0..buckets {
            let bucket = if order.is_fullest_first() {
                buckets - 1 - nth
            } else {
                nth
            };
            if order == ClaimOrder::FewestPodsGrownLast && bucket > 1 {
                if self.try_grown_last(pod, variant, bucket, bound) {
                    return true;
                }
                continue;
            }
            let words = self.ledgers.claims().buckets()[bucket].words();
            for nth in 0..words.len() {
                let position = if order.is_newest_first() {
                    words.end - 1 - nth
                } else {
                    words.start + nth
                };
                let mut word = self.ledgers.claims().buckets()[bucket].word(position)
                    & !self.failures.word(variant, request, position);
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
                    if let Some(set) = self.accepts(pod, variant, index) {
                        self.put_on_claim(pod, variant, index, set);
                        return true;
                    }
                }
            }
        }
        false
    }

    /// The same for the claims with one number of pods, those that got their last pod last first. O(claims with so many pods, sorted).
    fn try_grown_last(&mut self, pod: PodId, variant: VariantId, bucket: usize, bound: bool) -> bool {
        let request = self.tables.snapshot.pod(pod).request;
        let claims = self.ledgers.claims();
        let mut candidates = std::mem::take(&mut self.scratch.candidates);
        candidates.clear();
        let is_open = |index: &usize| {
            *index >= claims.first_open()
                && !self.failures.contains(variant, request, *index)
                && (!bound || self.scratch.claims.contains(*index))
        };
        let open = claims.buckets()[bucket].ones().filter(is_open);
        candidates.extend(open.map(|index| (claims.get(index).grown, index)));
        candidates.sort_unstable_by(|left, right| right.cmp(left));
        let taken = candidates.iter().find_map(|(_, index)| {
            self.statistics.claims_tried += 1;
            let set = self.accepts(pod, variant, *index)?;
            Some((*index, set))
        });
        self.scratch.candidates = candidates;
        if let Some((index, set)) = taken {
            self.put_on_claim(pod, variant, index, set);
        }
        taken.is_some()
    }

    /// A further pod for a claim, which becomes what the scratch says.
    pub(super) fn put_on_claim(&mut self, pod: PodId, variant: VariantId, index: usize, set: SetId) {
        let prospect = Prospect {
            set,
            types: &self.scratch.types,
            reserved: &self.scratch.reserved,
        };
        self.ledgers
            .put_on_claim(pod, variant, index, &prospect, &mut self.tables);
    }

    /// Whether a planned claim takes the pod, and its requirements then; its types and reservations are left in the scratch. Remembers
    /// failures that are final.
    pub(super) fn accepts(&mut self, pod: PodId, id: VariantId, index: usize) -> Option<SetId> {
        let request = self.tables.snapshot.pod(pod).request;
        let requests = &self.tables.snapshot.requests[request.index()];
        let (claim, tables) = (self.ledgers.claims().get(index), &mut self.tables);
        if !requests.fits(&claim.headroom) {
            self.failures.is_too_full(request, index);
            return None;
        }
        let variant = &tables.variants[id];
        let (template_index, set_before) = (claim.template, claim.set?);
        if !variant.templates.contains(template_index)
            || tables.numbers.conflict(&claim.ports, &variant.ports)
        {
            self.failures.refuses(id, index);
            return None;
        }
        let Some(joined) = tables.algebra.join(set_before, variant.all) else {
            self.failures.refuses(id, index);
            return None;
        };
        let place = (index, template_index, joined);
        let narrowed = self.narrow(id, place);
        if let Ok(set) = narrowed
            && self.becomes(pod, id, index, set)
        {
            return Some(set);
        }
        if narrowed == Err(true) {
            self.failures.refuses(id, index);
            return None;
        }
        if !self.looks_further {
            return None;
        }
        self.find_way(
            id,
            place,
            |engine, set| engine.keep_types_of(pod, id, index, set),
            |engine, set| engine.becomes(pod, id, index, set).then_some(set),
        )
    }

    /// Whether a planned claim with these requirements can hold the pod, too; its types and reservations are left in the scratch.
    fn becomes(&mut self, pod: PodId, id: VariantId, index: usize, set: SetId) -> bool {
        if !self.keep_types_of(pod, id, index, set) {
            return false;
        }
        let template_index = self.ledgers.claims().get(index).template;
        let tables = &mut self.tables;
        if tables.algebra.has_min_values(set) {
            let template = &mut tables.templates[template_index];
            let facts = template.facts(set, &tables.algebra);
            let types = &self.scratch.types;
            if template
                .check_min_values(types, tables.algebra.get(set), facts)
                .is_err()
            {
                return false;
            }
        }
        self.reserve_again(index, template_index, set)
    }

    /// Leaves in the scratch the types that a planned claim with these requirements could be of and that hold the pod, too; whether there are any.
    fn keep_types_of(&mut self, pod: PodId, id: VariantId, index: usize, set: SetId) -> bool {
        let (claim, tables, scratch) = (
            self.ledgers.claims().get(index),
            &mut self.tables,
            &mut self.scratch,
        );
        scratch.total.0.clear();
        scratch.total.0.extend_from_slice(&claim.requests.0);
        scratch.total.add(tables.snapshot.requests(pod));
        scratch.types.copy_from(&claim.types);
        scratch.ports.clear();
        scratch.ports.extend_from_slice(&claim.ports);
        scratch.ports.extend_from_slice(&tables.variants[id].ports);
        let template = &mut tables.templates[claim.template];
        if claim.set != Some(set) {
            let facts = template.facts(set, &tables.algebra);
            scratch.types.intersect(&template.fact(facts).both);
        }
        template.keep_fitting(
            &mut scratch.types,
            &scratch.total,
            &scratch.ports,
            &tables.numbers,
        );
        !scratch.types.is_clear() && keep_attachable(scratch, tables, pod, claim.template, &claim.volumes)
    }

    /// Applies volume alternatives and topology to a joined requirement set. The error says whether it stays so.
    pub(super) fn narrow(
        &mut self,
        variant: VariantId,
        (index, template, joined): (usize, usize, SetId),
    ) -> Result<SetId, bool> {
        let Tables {
            algebra,
            variants,
            topology,
            ..
        } = &mut self.tables;
        let variant = &variants[variant];
        let (counts, choice) = (self.ledgers.counts(), &mut self.scratch.choice);
        let mut narrow = |base: SetId, algebra: &mut Algebra<'_>| {
            let place = (index, template, base);
            let narrowed = choice.narrow(
                variant.class,
                &variant.bindings,
                variant.strict,
                place,
                (topology, counts),
                algebra,
            );
            narrowed.map_err(|refusal| refusal.is_final)
        };
        if variant.volume_sets.is_empty() {
            if variant.is_free {
                return Ok(joined);
            }
            return narrow(joined, algebra);
        }
        let mut is_final = true;
        for volumes in &variant.volume_sets {
            let Some(base) = algebra.join(joined, *volumes) else {
                continue;
            };
            match narrow(base, algebra) {
                Ok(set) => return Ok(set),
                Err(stays) => is_final &= stays,
            }
        }
        Err(is_final)
    }

    /// The first answer to a way of narrowing a claim for the pod, among all that its volumes and topology leave. What volumes leave is passed over unless it
    /// `may_fit`, in whichever domain; where there are too many ways, so is each domain. O(ways).
    fn find_way<T>(
        &mut self,
        id: VariantId,
        (index, template, joined): (usize, usize, SetId),
        may_fit: impl Fn(&mut Self, SetId) -> bool,
        answer: impl Fn(&mut Self, SetId) -> Option<T>,
    ) -> Option<T> {
        // Without volumes there is one place for them, which is any.
        for place in 0..self.tables[id].volume_sets.len().max(1) {
            let volumes = self.tables[id].volume_sets.get(place).copied();
            let base = match volumes {
                Some(volumes) => self.tables.algebra.join(joined, volumes),
                None => Some(joined),
            };
            let Some(base) = base.filter(|base| may_fit(self, *base)) else {
                continue;
            };
            let Some(mut ways) = self.ways(id, (index, template, base)) else {
                continue;
            };
            if ways.are_too_many() {
                ways.keep(|one| {
                    let tables = &mut self.tables;
                    let set = one.narrowed(&mut tables.topology, &mut tables.algebra);
                    may_fit(self, set)
                });
            }
            for nth in 0..ways.count() {
                let tables = &mut self.tables;
                let set = ways.narrowed(nth, &mut tables.topology, &mut tables.algebra);
                let found = answer(self, set);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// The ways in which topology lets a claim be narrowed; none where there is no way.
    fn ways(&mut self, id: VariantId, place: (usize, usize, SetId)) -> Option<Ways> {
        let Tables {
            algebra,
            variants,
            topology,
            ..
        } = &mut self.tables;
        let variant = &variants[id];
        self.scratch.choice.ways(
            variant.class,
            &variant.bindings,
            variant.strict,
            place,
            (topology, self.ledgers.counts()),
            algebra,
        )
    }

    /// Opens a claim on the first template that can (P-083). With the first domain only: a lighter NodePool that sells in it comes before a heavier one that does
    /// not. But where others have to follow, the heavier one is asked about the other domains before.
    pub(super) fn try_new_claim(&mut self, pod: PodId, variant: VariantId) -> Result<(), NoPlace> {
        let request = self.tables.snapshot.pod(pod).request;
        self.failures.refresh(variant, request, self.ledgers.epoch());
        if self.failures.is_unopenable(variant, request) {
            return Err(NoPlace::ForGood);
        }
        // What is refused because heavier NodePools are left out is no final answer.
        let mut is_final = self.first_template == 0;
        for template in self.first_template..self.tables.templates.len() {
            let mut opened = self.open_on(pod, variant, template);
            let goes_on = matches!(&opened, Err(blocked) if blocked.why != CannotOpen::Reserved);
            let is_last = template + 1 == self.tables.templates.len();
            if goes_on && !is_last && !self.looks_further && self.scratch.choice.has_begun() {
                opened = self.looking_further(|engine| engine.open_on(pod, variant, template));
            }
            match opened {
                Ok(opening) => {
                    let prospect = Prospect {
                        set: opening.set,
                        types: &self.scratch.types,
                        reserved: &self.scratch.reserved,
                    };
                    let relaxed = opening.relaxed_min_values;
                    self.ledgers
                        .open_claim(pod, variant, template, &prospect, relaxed, &mut self.tables);
                    return Ok(());
                }
                // No lighter pool may win over reserved capacity of a heavier one.
                Err(blocked) if blocked.why == CannotOpen::Reserved => return Err(NoPlace::Reserved),
                Err(blocked) => is_final &= blocked.is_final,
            }
        }
        if !is_final {
            return Err(NoPlace::ForNow);
        }
        // Who attaches volumes may be refused because of these alone.
        if self.tables.attachments.of_planned(pod).is_empty() {
            self.failures.cannot_open(variant, request);
        }
        Err(NoPlace::ForGood)
    }

    /// Whether a template could open a claim for the pod.
    pub(super) fn open_on(&mut self, pod: PodId, id: VariantId, template: usize) -> Result<Opening, Blocked> {
        let blocked = |why, is_final| Err(Blocked { why, is_final });
        if self.ledgers.budget().remaining(template).nodes <= 0 {
            return blocked(CannotOpen::NodeLimit, true);
        }
        self.keep_affordable(template);
        if self.scratch.types.is_clear() {
            return blocked(CannotOpen::Limits, true);
        }
        let tables = &mut self.tables;
        let variant = &tables.variants[id];
        if !variant.templates.contains(template) {
            return blocked(CannotOpen::Taint, true);
        }
        let Some(joined) = tables.algebra.join(tables.templates[template].set, variant.all) else {
            return blocked(CannotOpen::Labels, true);
        };
        let place = (self.ledgers.claims().count(), template, joined);
        let first = match self.narrow(id, place) {
            Ok(set) => self.open_with(pod, id, (template, joined), set),
            Err(is_final) => blocked(CannotOpen::Place, is_final),
        };
        if !self.looks_further {
            return first;
        }
        let refusal = match first {
            Err(refusal) if refusal.why != CannotOpen::Reserved => refusal,
            first => return first,
        };
        let found = self.find_way(
            id,
            place,
            |engine, set| {
                engine.keep_affordable(template);
                engine.keep_types(pod, id, template, set)
            },
            |engine, set| {
                engine.keep_affordable(template);
                let opened = engine.open_with(pod, id, (template, joined), set);
                let goes_on = matches!(&opened, Err(refusal) if refusal.why != CannotOpen::Reserved);
                (!goes_on).then_some(opened)
            },
        );
        found.unwrap_or_else(|| {
            // Where topology has no say, all that there was to choose has been tried now.
            let is_final = refusal.is_final || self.tables[id].is_free;
            Err(Blocked { is_final, ..refusal })
        })
    }

    /// Leaves in the scratch the types that limits leave to a template.
    fn keep_affordable(&mut self, template: usize) {
        let remaining = self.ledgers.budget().remaining(template);
        let (template, types) = (&self.tables.templates[template], &mut self.scratch.types);
        types.copy_from(&template.eligible);
        template.keep_within(types, &remaining.resources);
    }

    /// Keeps of the types in the scratch those that a new claim with these requirements could be of and that hold the pod; whether there are any.
    fn keep_types(&mut self, pod: PodId, id: VariantId, template: usize, set: SetId) -> bool {
        let (tables, types) = (&mut self.tables, &mut self.scratch.types);
        let requests = tables.snapshot.requests(pod);
        let template = &mut tables.templates[template];
        let facts = template.facts(set, &tables.algebra);
        types.intersect(&template.fact(facts).both);
        template.keep_fitting(types, requests, &tables.variants[id].ports, &tables.numbers);
        !types.is_clear()
    }

    /// What a template opens for the pod with requirements that were narrowed, of the types in the scratch.
    fn open_with(
        &mut self,
        pod: PodId,
        id: VariantId,
        (template, joined): (usize, SetId),
        set: SetId,
    ) -> Result<Opening, Blocked> {
        let blocked = |why, is_final| Err(Blocked { why, is_final });
        let has_types = self.keep_types(pod, id, template, set);
        if has_types && !keep_attachable(&mut self.scratch, &self.tables, pod, template, &[]) {
            return blocked(CannotOpen::VolumeLimit, false);
        }
        let (tables, types) = (&mut self.tables, &self.scratch.types);
        let variant = &tables.variants[id];
        // A domain chosen by topology may be another one next time, and volumes may have another place.
        let stays = set == joined || (variant.is_free && variant.volume_sets.len() < 2);
        if !has_types {
            return blocked(CannotOpen::InstanceTypes, stays);
        }
        let mut relaxed = BTreeMap::new();
        if tables.algebra.has_min_values(set) {
            let facts = tables.templates[template].facts(set, &tables.algebra);
            let wanted = tables.algebra.get(set);
            if let Err(reached) = tables.templates[template].check_min_values(types, wanted, facts) {
                match tables.options.min_values {
                    MinValuesPolicy::Strict => return blocked(CannotOpen::MinValues, stays),
                    MinValuesPolicy::BestEffort => relaxed = reached,
                }
            }
        }
        let set = if relaxed.is_empty() {
            set
        } else {
            tables.algebra.lower_min_values(set, &relaxed)
        };
        let Some(set) = self.reserve_anew(template, set, &mut relaxed) else {
            return blocked(CannotOpen::Reserved, false);
        };
        Ok(Opening {
            set,
            relaxed_min_values: relaxed,
        })
    }
}
