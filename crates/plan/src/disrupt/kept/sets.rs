//! What the search over sets has asked in one pass: sets that were evaluated, and sweeps, each in the order in which they were asked.
//!
//! Passes over a cluster of which little has changed ask nearly the same, one after the other; so the n-th question of a pass is looked for at the n-th of the
//! pass before. Long sweeps are not kept: a change anywhere would drop them.

use super::reads::Reads;
use super::{News, Own, Read};
use crate::disrupt::bare::{Bare, Numbered as _};
use crate::disrupt::candidates::Candidate;
use crate::disrupt::sets::Whole;
use crate::disrupt::simulate::Follow;
use spokeshave_model::snapshot::Snapshot;
use std::sync::Arc;

/// Sweeps that try more nodes than this are not kept.
pub(in crate::disrupt) const LONGEST_SWEEP: usize = 256;

/// What the search has asked.
#[derive(Clone, Default)]
pub(in crate::disrupt) struct KeptSets {
    wholes: Vec<Option<(Own, Arc<Bare<Whole>>)>>,
    sweeps: Vec<Option<Sweep>>,
    /// How many of each have been asked in this pass.
    whole: usize,
    sweep: usize,
}

/// A sweep and how it went.
#[derive(Clone)]
struct Sweep {
    claims: usize,
    follow: Follow,
    /// The nodes that were tried, in order.
    own: Own,
    fits: Vec<bool>,
    reads: Reads,
}

impl KeptSets {
    /// Begins a pass.
    pub(super) fn begin(&mut self) {
        (self.whole, self.sweep) = (0, 0);
    }

    /// What was said about a set when this was asked in the last pass, if it was this set. What is said now must be kept if this is not known.
    pub(in crate::disrupt) fn whole(&mut self, set: &[&Candidate]) -> Option<Arc<Bare<Whole>>> {
        self.whole += 1;
        let (own, bare) = self.wholes.get(self.whole - 1)?.as_ref()?;
        own.is(set).then(|| Arc::clone(bare))
    }

    /// Keeps what was said about a set that was just asked for.
    pub(in crate::disrupt) fn keep_whole(
        &mut self,
        snapshot: &Snapshot,
        set: &[&Candidate],
        bare: &Arc<Bare<Whole>>,
    ) {
        let kept = (Own::of(snapshot, set), Arc::clone(bare));
        put(&mut self.wholes, self.whole - 1, kept);
    }

    /// How a sweep went when it was asked for in the last pass: `next` is told whether the last node was kept, and names the next one; the sweep is the
    /// same as long as it names the same. Whether it was the same to the end.
    pub(in crate::disrupt) fn replay<'c>(
        &mut self,
        claims: usize,
        follow: Follow,
        mut next: impl FnMut(Option<bool>) -> Option<&'c Candidate>,
    ) -> bool {
        self.sweep += 1;
        let known = self.sweeps.get(self.sweep - 1).and_then(Option::as_ref);
        let Some(known) = known.filter(|known| known.claims == claims && known.follow == follow) else {
            return false;
        };
        let (mut was_kept, mut tried) = (None, 0);
        while let Some(candidate) = next(was_kept) {
            if known.own.nodes.get(tried) != Some(&candidate.node) {
                return false;
            }
            was_kept = known.fits.get(tried).copied();
            tried += 1;
        }
        tried == known.fits.len()
    }

    /// Keeps how a sweep went that was just asked for.
    pub(in crate::disrupt) fn keep_sweep(
        &mut self,
        snapshot: &Snapshot,
        (claims, follow): (usize, Follow),
        tried: &[&Candidate],
        fits: Vec<bool>,
        reads: Reads,
    ) {
        let sweep = Sweep {
            claims,
            follow,
            own: Own::of(snapshot, tried),
            fits,
            reads,
        };
        put(&mut self.sweeps, self.sweep - 1, sweep);
    }

    /// Drops what does not hold on another Snapshot, and takes its numbers.
    pub(super) fn renew(&mut self, news: &News, read: &Read<'_>) {
        let pods = &news.delta.pods;
        for known in &mut self.wholes {
            *known = known.take().and_then(|(mut own, mut bare)| {
                own.renew(news)?;
                if !pods.is_same() {
                    Arc::make_mut(&mut bare).renumber(&|pod| pods.of(pod))?;
                }
                let is_same = read.is_same(&own.nodes, &own.asked, &bare.reads, bare.names_pods());
                is_same.then_some((own, bare))
            });
        }
        for known in &mut self.sweeps {
            *known = known.take().and_then(|mut sweep| {
                sweep.own.renew(news)?;
                let own = &sweep.own;
                let is_same = read.is_same(&own.nodes, &own.asked, &sweep.reads, false);
                is_same.then_some(sweep)
            });
        }
    }
}

fn put<T>(list: &mut Vec<Option<T>>, at: usize, value: T) {
    if list.len() <= at {
        list.resize_with(at + 1, || None);
    }
    list[at] = Some(value);
}
