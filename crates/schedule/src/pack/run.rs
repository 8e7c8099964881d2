//! The queue: largest pods first, again and again until a whole round makes no progress (P-080, P-081).

use super::{Engine, NoPlace, Unplaced};
use rustc_hash::FxHashMap;
use spokeshave_model::snapshot::{ClassId, PodId, RequestId, Seniority};
use spokeshave_model::vector::{CPU, MEMORY};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// A pod was not pushed back yet.
const FRESH: usize = usize::MAX;

type SortKey = (Reverse<i64>, Reverse<i64>, Seniority);

/// Buffers of one run, kept for their memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    order: Vec<(SortKey, PodId)>,
    /// Pods to try, each with the length of the queue when it was pushed back.
    waiting: VecDeque<(PodId, usize)>,
    /// Shapes that failed: after how many placements, and how.
    failed: FxHashMap<(ClassId, RequestId), (u64, NoPlace)>,
    placements: u64,
}

impl Engine<'_> {
    /// Places pods on usable nodes and on claims, planned or new ones. O(pods × log pods) to sort; then each pod costs O(nodes ÷ 64) words plus
    /// its groups, unless it finds a place on the way. Virtual pods take what is left: room that is kept for pods to come is never in the way of
    /// pods that are there (P-186).
    pub(crate) fn place(&mut self, pods: &[PodId]) {
        self.release(pods);
        let is_virtual = |pod: &PodId| self.tables.snapshot.pod(*pod).is_virtual;
        if !pods.iter().any(is_virtual) {
            self.place_all(pods);
            return;
        }
        let (headroom, real): (Vec<PodId>, Vec<PodId>) = pods.iter().partition(|pod| is_virtual(pod));
        self.place_all(&real);
        let left = std::mem::take(&mut self.unplaced);
        self.place_all(&headroom);
        self.unplaced.extend(left);
        self.unplaced.sort_unstable_by_key(|unplaced| unplaced.pod);
    }

    /// Places pods until one of them has no place for good, or more claims than so many are planned; whether it came so far. What is placed then is a
    /// beginning, which the caller has to revert.
    pub(crate) fn place_within(&mut self, pods: &[PodId], most_claims: usize) -> bool {
        if pods.iter().any(|pod| self.tables.snapshot.pod(*pod).is_virtual) {
            // Those may be left over for the others' sake: all are placed first.
            self.place(pods);
            return true;
        }
        self.release(pods);
        self.place_until(pods, |engine| {
            engine.unplaced.is_empty() && engine.claim_count() <= most_claims
        })
    }

    fn place_all(&mut self, pods: &[PodId]) {
        self.place_until(pods, |_| true);
    }

    /// Places pods for as long as `goes_on` says after each; whether it did to the end.
    fn place_until(&mut self, pods: &[PodId], goes_on: impl Fn(&Self) -> bool) -> bool {
        let mut queue = std::mem::take(&mut self.queue);
        queue.waiting.clear();
        queue.failed.clear();
        queue.placements = 0;
        self.unplaced.clear();
        self.sort(pods, &mut queue);
        self.place_nominated(&mut queue.waiting);
        while let Some((pod, pushed_at)) = queue.waiting.pop_front() {
            if pushed_at == queue.waiting.len() + 1 {
                // A whole round without progress.
                queue.waiting.push_front((pod, pushed_at));
                break;
            }
            let no_place = self.place_or_recall(pod, &mut queue);
            match no_place {
                None => queue.placements += 1,
                Some(NoPlace::ForGood) => self.unplaced.push(Unplaced {
                    pod,
                    no_place: NoPlace::ForGood,
                }),
                Some(_) => {
                    let length = queue.waiting.len() + 1;
                    queue.waiting.push_back((pod, length));
                }
            }
            if !goes_on(self) {
                self.queue = queue;
                return false;
            }
        }
        for (pod, _) in queue.waiting.drain(..) {
            let view = self.tables.snapshot.pod(pod);
            let known = queue.failed.get(&(view.class, view.request));
            let no_place = known.map_or(NoPlace::ForNow, |(_, no_place)| *no_place);
            self.unplaced.push(Unplaced { pod, no_place });
        }
        self.unplaced.sort_unstable_by_key(|unplaced| unplaced.pod);
        self.queue = queue;
        true
    }

    fn sort(&mut self, pods: &[PodId], queue: &mut Queue) {
        let snapshot = self.tables.snapshot;
        queue.order.clear();
        queue.order.extend(pods.iter().map(|pod| {
            let requests = snapshot.requests(*pod);
            let seniority = snapshot.pod(*pod).seniority;
            (
                (Reverse(requests[CPU]), Reverse(requests[MEMORY]), seniority),
                *pod,
            )
        }));
        queue.order.sort_unstable_by(|(left, a), (right, b)| {
            let uid = |pod: &PodId| snapshot.pod(*pod).uid();
            left.cmp(right)
                .then_with(|| uid(a).cmp(uid(b)))
                .then_with(|| a.cmp(b))
        });
        queue
            .waiting
            .extend(queue.order.iter().map(|(_, pod)| (*pod, FRESH)));
    }

    /// Tries a pod, unless one of its shape failed and nothing has changed since.
    fn place_or_recall(&mut self, pod: PodId, queue: &mut Queue) -> Option<NoPlace> {
        let view = self.tables.snapshot.pod(pod);
        let shape = (view.class, view.request);
        // Attach limits tell pods of one shape apart, so what one could not, another may.
        if self.tables.attachments.of_pod(pod).is_none()
            && let Some((placements, no_place)) = queue.failed.get(&shape)
            && (*no_place == NoPlace::ForGood || *placements == queue.placements)
        {
            return Some(*no_place);
        }
        let no_place = self.place_one(pod).err();
        if let Some(no_place) = no_place {
            queue.failed.insert(shape, (queue.placements, no_place));
        }
        no_place
    }

    /// Tries a pod with all its preferences, then with one fewer at a time.
    pub(super) fn place_one(&mut self, pod: PodId) -> Result<(), NoPlace> {
        let class = self.tables.snapshot.pod(pod).class;
        if self.tables.snapshot.classes[class.index()].uses_resource_claims {
            return Err(NoPlace::ForGood);
        }
        let mut is_final = true;
        let (mut step, mut last) = (0, None);
        while let Some(variant) = self.variant(class, step) {
            self.statistics.attempts += 1;
            match self.attempt(pod, variant) {
                Ok(()) => return Ok(()),
                // No relaxation: the pod waits for a pass in which the reservation is free or gone (P-119).
                Err(NoPlace::Reserved) => return Err(NoPlace::Reserved),
                Err(NoPlace::ForGood) => {}
                Err(NoPlace::ForNow) => is_final = false,
            }
            step += 1;
            last = Some(variant);
        }
        // A pod bound by topology to existing or planned hosts may find one later.
        let is_bound = last.is_some_and(|last| !self.tables[last].bindings.groups.is_empty());
        if is_final && !is_bound {
            Err(NoPlace::ForGood)
        } else {
            Err(NoPlace::ForNow)
        }
    }
}
