//! A number that changes when the pods that need places change: how many there are of each size and set of constraints.
//!
//! It is kept from pass to pass, and worked out anew only for what has changed. It must be the same on every machine, and must not depend on how pods are
//! numbered.

use super::kept::Delta;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_api::hash::digest_of;
use spokeshave_model::snapshot::{ClassId, PodId, PodView, RequestId, Snapshot};

type Shape = (ClassId, RequestId);

/// A sum of FNV-1a over the shapes of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signature {
    pods: FxHashMap<Shape, u64>,
    sum: u64,
}

impl Signature {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut pods: FxHashMap<Shape, u64> = FxHashMap::with_hasher(FxBuildHasher);
        for shape in snapshot.pods.iter().filter_map(shape) {
            *pods.entry(shape).or_default() += 1;
        }
        let sum = pods
            .iter()
            .map(|(shape, count)| of_shape(snapshot, *shape, *count));
        Signature {
            sum: sum.fold(0, u64::wrapping_add),
            pods,
        }
    }

    /// Becomes the signature of another Snapshot, which differs in so much.
    pub(super) fn renew(&mut self, snapshot: &Snapshot, delta: &Delta) {
        if delta.are_shapes_renumbered() {
            *self = Signature::of(snapshot);
            return;
        }
        for (before, now) in delta.pods.shapes(snapshot) {
            if before != now {
                before
                    .into_iter()
                    .for_each(|shape| self.change(snapshot, shape, false));
                now.into_iter()
                    .for_each(|shape| self.change(snapshot, shape, true));
            }
        }
    }

    fn change(&mut self, snapshot: &Snapshot, shape: Shape, comes: bool) {
        let known = self.pods.entry(shape).or_default();
        let before = *known;
        *known = if comes {
            before + 1
        } else {
            before.saturating_sub(1)
        };
        let value = |count: u64| of_shape(snapshot, shape, count);
        self.sum = self.sum.wrapping_sub(value(before)).wrapping_add(value(*known));
        if *known == 0 {
            self.pods.remove(&shape);
        }
    }

    pub(super) fn value(&self) -> u64 {
        self.sum
    }

    /// The number that there would be without these of the pods that need places.
    pub(super) fn without(&self, snapshot: &Snapshot, pods: &[PodId]) -> u64 {
        let mut left_out: FxHashMap<Shape, u64> = FxHashMap::with_hasher(FxBuildHasher);
        for shape in pods.iter().filter_map(|pod| shape(snapshot.pod(*pod))) {
            *left_out.entry(shape).or_default() += 1;
        }
        left_out.into_iter().fold(self.sum, |sum, (shape, count)| {
            let all = self.pods.get(&shape).copied().unwrap_or(0);
            let value = |count: u64| of_shape(snapshot, shape, count);
            sum.wrapping_sub(value(all))
                .wrapping_add(value(all.saturating_sub(count)))
        })
    }
}

/// The shape of a pod that needs a place.
pub(super) fn shape(view: &PodView) -> Option<Shape> {
    view.reschedulable.then_some((view.class, view.request))
}

fn of_shape(snapshot: &Snapshot, (_, request): Shape, count: u64) -> u64 {
    if count == 0 {
        return 0;
    }
    let amounts = &snapshot.requests[request.index()].0;
    let numbers = amounts.iter().map(|amount| amount.cast_unsigned());
    digest_of(numbers.chain([count]).flat_map(u64::to_le_bytes))
}
