//! NodeClaims that will be launched: what they hold, and which of them have how many pods.
//!
//! Each change returns what undoes it; changes are undone in reverse order. It does not decide which pod goes to which claim.

use super::bucket::Bucket;
use crate::algebra::SetId;
use crate::bits::Bits;
use crate::template::{Reservations, Template};
use smallvec::{Array, SmallVec};
use spokeshave_model::vector::ResourceVector;
use std::collections::BTreeMap;

/// A NodeClaim that will be launched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim {
    pub(crate) template: usize,
    pub(crate) set: Option<SetId>,
    /// Variants of instance types that it can still become.
    pub(crate) types: Bits,
    pub(crate) requests: ResourceVector,
    /// What more any of its types could hold, at most.
    pub(crate) headroom: ResourceVector,
    /// Host ports of its pods, by number.
    pub(crate) ports: SmallVec<[u32; 4]>,
    /// Volumes of its pods that count against limits of instance types, by number, each once.
    pub(crate) volumes: Vec<u32>,
    pub(crate) pods: usize,
    /// Placements made before its last pod.
    pub(crate) grown: usize,
    /// Reservations held, by number, in order.
    pub(crate) reserved: Reservations,
    /// minValues lowered for these keys.
    pub(crate) relaxed_min_values: BTreeMap<String, u32>,
}

/// NodeClaims that will be launched, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    /// Those beyond `live` are kept for their memory.
    claims: Vec<Claim>,
    live: usize,
    /// Claims below this number take no further pods.
    closed: usize,
    /// Claims by number of pods.
    buckets: Vec<Bucket>,
    /// What grown claims were before, the youngest last. Those beyond `saved_live` are kept for their memory.
    saved: Vec<Claim>,
    saved_live: usize,
}

/// What a claim becomes with a further pod.
pub(super) struct Growth<'t> {
    pub(super) requests: &'t ResourceVector,
    pub(super) set: SetId,
    pub(super) types: &'t Bits,
    pub(super) ports: &'t [u32],
    /// Those that count against limits of instance types.
    pub(super) volumes: &'t [u32],
    pub(super) reserved: &'t [u32],
    /// Placements made before.
    pub(super) placements: usize,
}

/// A claim got a further pod.
#[derive(Clone, Copy, Debug)]
#[must_use = "without it the change cannot be undone"]
pub(super) struct Grown {
    claim: u32,
}

/// A claim was opened.
#[derive(Clone, Copy, Debug)]
#[must_use = "without it the change cannot be undone"]
pub(super) struct Opened {
    claim: u32,
}

/// Becomes equal to another list, in the memory that it has: a clone of a `SmallVec` goes through its elements one by one, and a pod that joins a claim takes six.
fn copy<A: Array<Item: Copy>>(list: &mut SmallVec<A>, other: &SmallVec<A>) {
    list.clear();
    list.extend_from_slice(other);
}

impl Opened {
    /// Its number.
    pub(super) fn claim(&self) -> usize {
        self.claim as usize
    }
}

impl Claims {
    /// How many there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.live
    }

    /// The number of the first that takes pods.
    #[inline]
    pub(crate) fn first_open(&self) -> usize {
        self.closed
    }

    /// All there are.
    pub(crate) fn all(&self) -> &[Claim] {
        &self.claims[..self.live]
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> &Claim {
        &self.claims[index]
    }

    /// Claims that take pods, by number of pods.
    #[inline]
    pub(crate) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Opens a claim without a pod; `grow` gives it its first.
    pub(super) fn open(
        &mut self,
        template: usize,
        width: usize,
        relaxed_min_values: BTreeMap<String, u32>,
    ) -> Opened {
        let index = self.live;
        if self.claims.len() == index {
            self.claims.push(Claim::default());
        }
        self.live += 1;
        let claim = &mut self.claims[index];
        claim.template = template;
        claim.requests.0.clear();
        claim.requests.0.resize(width, 0);
        claim.ports.clear();
        claim.volumes.clear();
        claim.reserved.clear();
        claim.pods = 0;
        claim.relaxed_min_values = relaxed_min_values;
        Opened { claim: index as u32 }
    }

    /// Removes the youngest claim, which has one pod. Returns the reservations that it held.
    pub(super) fn undo_open(&mut self, Opened { claim }: Opened) -> Reservations {
        let index = claim as usize;
        debug_assert_eq!(index + 1, self.live, "the youngest claim is removed first");
        let pods = std::mem::take(&mut self.claims[index].pods);
        self.move_bucket(index, pods, 0);
        self.live = index;
        std::mem::take(&mut self.claims[index].reserved)
    }

    /// Gives a claim a further pod. It becomes what `growth` says.
    pub(super) fn grow(&mut self, index: usize, growth: &Growth<'_>, template: &Template) {
        let claim = &mut self.claims[index];
        let has_same_types = claim.pods > 0 && claim.types == *growth.types;
        claim.requests.add(growth.requests);
        claim.pods += 1;
        claim.grown = growth.placements;
        claim.set = Some(growth.set);
        claim.ports.extend_from_slice(growth.ports);
        for volume in growth.volumes {
            if !claim.volumes.contains(volume) {
                claim.volumes.push(*volume);
            }
        }
        claim.reserved = Reservations::from_slice(growth.reserved);
        if has_same_types {
            claim.headroom.subtract(growth.requests);
        } else {
            claim.types.copy_from(growth.types);
            template.set_headroom(&claim.types, growth.requests.0.len(), &mut claim.headroom);
            claim.headroom.subtract(&claim.requests);
        }
        let pods = claim.pods;
        self.move_bucket(index, pods - 1, pods);
    }

    /// Saves what a claim is, before it grows.
    pub(super) fn save(&mut self, index: usize) -> Grown {
        if self.saved.len() == self.saved_live {
            self.saved.push(Claim::default());
        }
        let saved = &mut self.saved[self.saved_live];
        // Every field, so that a further one cannot be forgotten. What a claim is opened with does not change.
        let Claim {
            template: _,
            set,
            types,
            requests,
            headroom,
            ports,
            volumes,
            pods,
            grown,
            reserved,
            relaxed_min_values: _,
        } = &self.claims[index];
        saved.set = *set;
        saved.types.copy_from(types);
        copy(&mut saved.requests.0, &requests.0);
        copy(&mut saved.headroom.0, &headroom.0);
        copy(&mut saved.ports, ports);
        if !(volumes.is_empty() && saved.volumes.is_empty()) {
            saved.volumes.clone_from(volumes);
        }
        saved.pods = *pods;
        saved.grown = *grown;
        copy(&mut saved.reserved, reserved);
        self.saved_live += 1;
        Grown { claim: index as u32 }
    }

    /// Makes a claim what it was when it was saved. Returns its number and the reservations that it held until now.
    pub(super) fn undo_grow(&mut self, Grown { claim }: Grown) -> (usize, Reservations) {
        let index = claim as usize;
        self.saved_live -= 1;
        let saved = &mut self.saved[self.saved_live];
        let Claim {
            template: _,
            set,
            types,
            requests,
            headroom,
            ports,
            volumes,
            pods,
            grown,
            reserved,
            relaxed_min_values: _,
        } = &mut self.claims[index];
        *set = saved.set;
        std::mem::swap(types, &mut saved.types);
        copy(&mut requests.0, &saved.requests.0);
        copy(&mut headroom.0, &saved.headroom.0);
        copy(ports, &saved.ports);
        std::mem::swap(volumes, &mut saved.volumes);
        *grown = saved.grown;
        let held = std::mem::replace(reserved, std::mem::take(&mut saved.reserved));
        let (pods_after, pods_before) = (saved.pods, std::mem::replace(pods, saved.pods));
        self.move_bucket(index, pods_before, pods_after);
        (index, held)
    }

    /// What claims were before they grew is never asked for again.
    pub(super) fn forget_saved(&mut self) {
        self.saved_live = 0;
    }

    /// The claims there are take no further pods.
    pub(super) fn close(&mut self) {
        self.closed = self.live;
        self.buckets.clear();
    }

    /// Replaces all claims, when nothing will be placed any more.
    pub(super) fn replace(&mut self, claims: Vec<Claim>) {
        self.live = claims.len();
        self.claims = claims;
    }

    fn move_bucket(&mut self, index: usize, from: usize, to: usize) {
        if let Some(bucket) = self.buckets.get_mut(from) {
            bucket.remove(index);
        }
        if to > 0 {
            if self.buckets.len() <= to {
                self.buckets.resize_with(to + 1, Default::default);
            }
            self.buckets[to].insert(index);
        }
    }

    /// Everything that undoing must bring back.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn fingerprint(&self) -> String {
        let Claims {
            claims: _,
            live: _,
            closed,
            buckets,
            saved: _,
            saved_live,
        } = self;
        let describe = |claim: &Claim| {
            // Every field, so that a further one cannot be forgotten.
            let Claim {
                template,
                set,
                types,
                requests,
                headroom,
                ports,
                volumes,
                pods,
                grown,
                reserved,
                relaxed_min_values,
            } = claim;
            let types: Vec<usize> = types.ones().collect();
            format!(
                "{template} {set:?} {types:?} {requests:?} {headroom:?} {ports:?} {volumes:?} {pods} {grown} {reserved:?} {relaxed_min_values:?}"
            )
        };
        let claims: Vec<String> = self.all().iter().map(describe).collect();
        let buckets = buckets.iter().map(|bucket| bucket.ones().collect::<Vec<usize>>());
        let buckets: Vec<Vec<usize>> = buckets.filter(|bucket| !bucket.is_empty()).collect();
        format!("{claims:?} {closed} {buckets:?} {saved_live}")
    }
}
