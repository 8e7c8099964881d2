//! Building the indexes of a template: variants by resource, by label value, and by the DaemonSets that run on them.

use super::{DaemonGroup, KeyIndex, Numbers, Offer, OfferingAt, Rank, Template, TypeIndex, Variant};
use crate::algebra::Algebra;
use crate::bits::Bits;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::vector::{ResourceTable, ResourceVector};
use spokeshave_model::{CapacityType, InstanceType, Offering, Requirement, Requirements, taint};
use std::collections::BTreeMap;
use std::sync::Arc;

impl OfferingAt {
    pub(super) fn find(self, types: &[InstanceType]) -> &Offering {
        &types[self.0 as usize].offerings[self.1 as usize]
    }
}

impl TypeIndex {
    pub(super) fn new(types: &Arc<[InstanceType]>, table: &ResourceTable) -> Self {
        let mut index = TypeIndex {
            types: Arc::clone(types),
            table: table.clone(),
            variants: Vec::new(),
            usable: Bits::default(),
            ranks: Vec::new(),
            capacities: Vec::new(),
            keys: BTreeMap::new(),
            offers: Vec::new(),
            sold_out: Vec::new(),
            reservations: Vec::new(),
            largest: ResourceVector::zero(table.width()),
        };
        index.index_variants(types, table);
        index.index_sold_out(types);
        index.index_keys();
        index
    }

    /// Whether it is the index of these types, with vectors of this table.
    pub(super) fn is_of(&self, types: &Arc<[InstanceType]>, table: &ResourceTable) -> bool {
        Arc::ptr_eq(&self.types, types) && self.table == *table
    }

    /// Whether a type or an offering, be it to be had now or not, says anything about a label.
    pub(super) fn declares(&self, key: &str) -> bool {
        let mut offerings = self.types.iter().flat_map(|one| &one.offerings);
        self.keys.contains_key(key) || offerings.any(|offering| offering.requirements.contains(key))
    }

    /// What an offer asks for.
    pub(super) fn requirements(&self, offer: &Offer) -> &Requirements {
        &offer.at.find(&self.types).requirements
    }

    fn index_variants(&mut self, types: &[InstanceType], table: &ResourceTable) {
        let mut reservation_ids: FxHashMap<(&str, &str), u32> = FxHashMap::with_hasher(FxBuildHasher);
        let mut allocatables: Vec<ResourceVector> = Vec::new();
        let mut usable: Vec<bool> = Vec::new();
        let mut offer_ids: FxHashMap<&Requirements, u32> = FxHashMap::with_hasher(FxBuildHasher);
        let mut offer_members: Vec<Vec<usize>> = Vec::new();
        // The requirements of an offering are mostly those of the type before, at the same place.
        let mut before: Vec<Option<u32>> = Vec::new();
        for (type_index, instance_type) in types.iter().enumerate() {
            before.resize(instance_type.offerings.len(), None);
            for group in instance_type.allocatable_groups() {
                let variant = self.variants.len();
                let mut offerings = Vec::new();
                for index in &group.offerings {
                    let offering = &instance_type.offerings[*index];
                    let same = before[*index].filter(|id| {
                        let offer = &self.offers[*id as usize];
                        offer.reservation.is_none() && *self.requirements(offer) == offering.requirements
                    });
                    if let (Some(id), true) = (same, offering.available) {
                        offer_members[id as usize].push(variant);
                        offerings.push((id, offering.price));
                        continue;
                    }
                    let reserved = offering.capacity_type() == Some(CapacityType::Reserved);
                    let reservation = offering
                        .reservation_id_label
                        .as_deref()
                        .zip(offering.reservation_id());
                    // A reservation that cannot be told from others cannot be counted, so it is not used.
                    if !offering.available || (reserved && reservation.is_none()) {
                        continue;
                    }
                    let at = OfferingAt(type_index as u32, *index as u32);
                    let reservation = reservation.filter(|_| reserved).map(|id| {
                        *reservation_ids.entry(id).or_insert_with(|| {
                            self.reservations.push(at);
                            self.reservations.len() as u32 - 1
                        })
                    });
                    let id = *offer_ids.entry(&offering.requirements).or_insert_with(|| {
                        self.offers.push(Offer {
                            at,
                            members: Bits::default(),
                            reservation,
                        });
                        offer_members.push(Vec::new());
                        self.offers.len() as u32 - 1
                    });
                    before[*index] = Some(id);
                    offer_members[id as usize].push(variant);
                    offerings.push((id, offering.price));
                }
                let allocatable = table.vector(&group.allocatable);
                let capacity = table.vector(&group.capacity);
                self.largest.raise_to(&capacity);
                usable.push(!allocatable.has_negative());
                allocatables.push(allocatable);
                self.variants.push(Variant {
                    instance_type: type_index as u32,
                    capacity,
                    offerings,
                });
            }
        }
        let count = self.variants.len();
        self.usable = Bits::of(
            count,
            usable
                .iter()
                .enumerate()
                .filter(|(_, usable)| **usable)
                .map(|(index, _)| index),
        );
        for (offer, members) in self.offers.iter_mut().zip(offer_members) {
            offer.members = Bits::of(count, members);
        }
        for resource in 0..table.width() {
            let amounts: Vec<i64> = allocatables.iter().map(|vector| vector[resource]).collect();
            self.ranks.push(Rank::new(count, &amounts));
            let amounts: Vec<i64> = self
                .variants
                .iter()
                .map(|variant| variant.capacity[resource])
                .collect();
            self.capacities.push(Rank::new(count, &amounts));
        }
    }

    /// Offerings that are not to be had now. O(1) for each that is.
    fn index_sold_out(&mut self, types: &[InstanceType]) {
        let count = self.variants.len();
        let mut positions: FxHashMap<&Requirements, usize> = FxHashMap::with_hasher(FxBuildHasher);
        for (variant, entry) in self.variants.iter().enumerate() {
            let of_type = types[entry.instance_type as usize].offerings.iter().enumerate();
            for (index, offering) in of_type.filter(|(_, offering)| !offering.available) {
                let position = *positions.entry(&offering.requirements).or_insert_with(|| {
                    self.sold_out.push(Offer {
                        at: OfferingAt(entry.instance_type, index as u32),
                        members: Bits::new(count),
                        reservation: None,
                    });
                    self.sold_out.len() - 1
                });
                self.sold_out[position].members.insert(variant);
            }
        }
    }

    fn index_keys(&mut self) {
        let count = self.variants.len();
        let types = Arc::clone(&self.types);
        let mut slots: Vec<Slot<'_>> = Vec::new();
        let mut by_name: FxHashMap<&str, usize> = FxHashMap::with_hasher(FxBuildHasher);
        // Types have the same keys in the same order, mostly.
        let mut sequence: Vec<usize> = Vec::new();
        for (variant, entry) in self.variants.iter().enumerate() {
            let requirements = types[entry.instance_type as usize].requirements.iter();
            for (place, requirement) in requirements.enumerate() {
                let name = requirement.key();
                let expected = sequence.get(place).copied();
                let slot = expected
                    .filter(|slot| slots[*slot].name == name)
                    .unwrap_or_else(|| {
                        *by_name.entry(name).or_insert_with(|| {
                            slots.push(Slot::new(name, count));
                            slots.len() - 1
                        })
                    });
                match sequence.get_mut(place) {
                    Some(known) => *known = slot,
                    None => sequence.push(slot),
                }
                slots[slot].add(variant, requirement);
            }
        }
        for slot in slots {
            let mut undefined = Bits::full(count);
            undefined.subtract(&slot.defined);
            let index = KeyIndex {
                undefined,
                distinct: slot.distinct,
            };
            self.keys.insert(slot.name.to_owned(), index);
        }
    }
}

/// A key while it is indexed.
struct Slot<'a> {
    name: &'a str,
    defined: Bits,
    distinct: Vec<(Requirement, Bits)>,
    positions: FxHashMap<&'a Requirement, usize>,
    /// Position of what the variant before said.
    last: usize,
    count: usize,
}

impl<'a> Slot<'a> {
    fn new(name: &'a str, count: usize) -> Self {
        Slot {
            name,
            defined: Bits::new(count),
            distinct: Vec::new(),
            positions: FxHashMap::with_hasher(FxBuildHasher),
            last: 0,
            count,
        }
    }

    fn add(&mut self, variant: usize, requirement: &'a Requirement) {
        self.defined.insert(variant);
        let is_last = self
            .distinct
            .get(self.last)
            .is_some_and(|(known, _)| known == requirement);
        if !is_last {
            self.last = *self.positions.entry(requirement).or_insert_with(|| {
                self.distinct.push((requirement.clone(), Bits::new(self.count)));
                self.distinct.len() - 1
            });
        }
        self.distinct[self.last].1.insert(variant);
    }
}

impl Template {
    /// All variants, each with the name of its instance type.
    pub(crate) fn variant_types(&self) -> impl Iterator<Item = (usize, &str)> {
        let variants = self.index.variants.iter().enumerate();
        variants.map(|(index, variant)| {
            let instance_type = &self.index.types[variant.instance_type as usize];
            (index, instance_type.name.as_str())
        })
    }

    /// Groups the variants by the DaemonSets that would run on them (P §6.1).
    pub(super) fn group_daemons<'a>(
        &mut self,
        snapshot: &'a Snapshot,
        algebra: &mut Algebra<'_>,
        numbers: &mut Numbers<'a>,
    ) {
        let count = self.index.variants.len();
        let taints = &snapshot.pool(self.pool).taints;
        let mut runs: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (daemon_index, daemon) in snapshot.daemons.iter().enumerate() {
            let constraints = &daemon.constraints;
            if constraints.uses_resource_claims
                || taint::first_untolerated_hard(taints, &constraints.tolerations).is_some()
            {
                continue;
            }
            let mut members = Bits::new(count);
            for strict in constraints.alternatives() {
                if algebra
                    .get(self.set)
                    .compatible(&strict, algebra.well_known())
                    .is_ok()
                {
                    members.union(&self.matching_types(&strict));
                }
            }
            for variant in members.ones() {
                runs[variant].push(daemon_index);
            }
        }
        let mut positions: BTreeMap<&[usize], usize> = BTreeMap::new();
        for (variant, daemons) in runs.iter().enumerate() {
            let position = *positions.entry(daemons).or_insert_with(|| {
                let mut overhead = ResourceVector::zero(snapshot.resources.width());
                let mut host_ports = Vec::new();
                for daemon in daemons.iter().map(|index| &snapshot.daemons[*index]) {
                    overhead.add(&daemon.requests);
                    host_ports.extend(
                        daemon
                            .constraints
                            .host_ports
                            .iter()
                            .map(|port| numbers.port(port)),
                    );
                }
                self.groups.push(DaemonGroup {
                    overhead,
                    host_ports,
                    members: Bits::new(count),
                });
                self.groups.len() - 1
            });
            self.groups[position].members.insert(variant);
        }
    }
}
