//! The queue: largest pods first, again and again until a whole round makes no progress (P-080, P-081). Pods that are left then are tried once with every domain
//! and every place for their volumes, and where that helps one of them the rounds begin anew. Only the first of pods that want their own kind near them is tried
//! so in its turn: those behind it would settle on a domain in which it has no place.

use super::{Engine, NoPlace, Unplaced};
use rustc_hash::FxHashMap;
use spokeshave_model::snapshot::{ClassId, PodId, RequestId, Seniority, Snapshot};
use spokeshave_model::vector::{CPU, MEMORY};
use std::cmp::{Ordering, Reverse};
use std::collections::VecDeque;

/// A pod was not pushed back yet.
const FRESH: usize = usize::MAX;

type SortKey = (Reverse<i64>, Reverse<i64>, Seniority);

fn sort_key(snapshot: &Snapshot, pod: PodId) -> SortKey {
    let requests = snapshot.requests(pod);
    let seniority = snapshot.pod(pod).seniority;
    (Reverse(requests[CPU]), Reverse(requests[MEMORY]), seniority)
}

fn by_turn(snapshot: &Snapshot, (left, a): &(SortKey, PodId), (right, b): &(SortKey, PodId)) -> Ordering {
    let uid = |pod: &PodId| snapshot.pod(*pod).uid();
    left.cmp(right)
        .then_with(|| uid(a).cmp(uid(b)))
        .then_with(|| a.cmp(b))
}

/// Puts pods in the order in which places are looked for: largest first, and of those that ask for as much the oldest (P-080). Who asks for the same pods
/// many times is faster with it.
pub fn sort_by_turn(snapshot: &Snapshot, pods: &mut [PodId]) {
    let mut order: Vec<(SortKey, PodId)> = pods.iter().map(|pod| (sort_key(snapshot, *pod), *pod)).collect();
    order.sort_unstable_by(|left, right| by_turn(snapshot, left, right));
    for (pod, (_, in_turn)) in pods.iter_mut().zip(order) {
        *pod = in_turn;
    }
}

/// Buffers of one run, kept for their memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    order: Vec<(SortKey, PodId)>,
    /// Pods to try, each with the length of the queue when it was pushed back.
    waiting: VecDeque<(PodId, usize)>,
    /// Shapes that failed.
    failed: FxHashMap<(ClassId, RequestId), Failed>,
    placements: u64,
}

/// How a shape failed.
#[derive(Clone, Copy, Debug)]
struct Failed {
    /// After how many placements.
    placements: u64,
    no_place: NoPlace,
    /// A domain or a place for volumes was named of which there are more.
    had_choice: bool,
    /// All that there was to choose from was tried.
    looked_further: bool,
}

impl Failed {
    /// Whether to try again is vain.
    #[inline]
    fn still_fails(&self, placements: u64, looks_further: bool) -> bool {
        let is_as_thorough = self.looked_further || !looks_further;
        self.no_place == NoPlace::ForGood || (self.placements == placements && is_as_thorough)
    }
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
        let order = self.claim_order;
        self.claim_order = self.room_order.unwrap_or(order);
        self.place_all(&headroom);
        self.claim_order = order;
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
        self.most_claims = Some(most_claims);
        let is_through = self.place_all(pods);
        self.most_claims = None;
        is_through
    }

    /// Whether the caller wants more: where it gives up early, not after a pod that has no place for good, or a claim too many.
    fn goes_on(&self) -> bool {
        self.most_claims
            .is_none_or(|most| self.unplaced.is_empty() && self.claim_count() <= most)
    }

    /// Places pods, and after each looks whether to go on; whether it did to the end.
    fn place_all(&mut self, pods: &[PodId]) -> bool {
        let mut queue = std::mem::take(&mut self.queue);
        queue.waiting.clear();
        queue.failed.clear();
        queue.placements = 0;
        self.unplaced.clear();
        self.sort(pods, &mut queue);
        self.place_nominated(&mut queue.waiting);
        loop {
            let is_through = self.place_in_rounds(&mut queue);
            let placements = queue.placements;
            if !is_through || !self.place_elsewhere(&mut queue) {
                self.queue = queue;
                return false;
            }
            if queue.placements == placements {
                break;
            }
        }
        for (pod, _) in queue.waiting.drain(..) {
            let view = self.tables.snapshot.pod(pod);
            let known = queue.failed.get(&(view.class, view.request));
            let no_place = known.map_or(NoPlace::ForNow, |failed| failed.no_place);
            self.unplaced.push(Unplaced { pod, no_place });
        }
        self.unplaced.sort_unstable_by_key(|unplaced| unplaced.pod);
        self.queue = queue;
        true
    }

    /// Tries pods until a whole round makes no progress; whether it goes on.
    fn place_in_rounds(&mut self, queue: &mut Queue) -> bool {
        while let Some((pod, pushed_at)) = queue.waiting.pop_front() {
            if pushed_at == queue.waiting.len() + 1 {
                // A whole round without progress.
                queue.waiting.push_front((pod, pushed_at));
                break;
            }
            let no_place = self.place_or_recall(pod, queue, false);
            let length = queue.waiting.len() + 1;
            self.note(pod, no_place, length, queue);
            if !self.goes_on() {
                return false;
            }
        }
        true
    }

    /// Tries each pod that is left once, with every domain and every place for its volumes; whether it goes on. O(pods) where none had a choice.
    fn place_elsewhere(&mut self, queue: &mut Queue) -> bool {
        for _ in 0..queue.waiting.len() {
            let Some((pod, _)) = queue.waiting.pop_front() else {
                break;
            };
            let view = self.tables.snapshot.pod(pod);
            let failed = queue.failed.get(&(view.class, view.request));
            let no_place = match failed.filter(|failed| !failed.had_choice) {
                Some(failed) => Some(failed.no_place),
                None => self.place_or_recall(pod, queue, true),
            };
            self.note(pod, no_place, FRESH, queue);
            if !self.goes_on() {
                return false;
            }
        }
        true
    }

    /// What became of a pod: it is placed, has no place for good, or waits until others have been tried.
    #[inline]
    fn note(&mut self, pod: PodId, no_place: Option<NoPlace>, pushed_at: usize, queue: &mut Queue) {
        match no_place {
            None => queue.placements += 1,
            Some(NoPlace::ForGood) => self.unplaced.push(Unplaced {
                pod,
                no_place: NoPlace::ForGood,
            }),
            Some(_) => queue.waiting.push_back((pod, pushed_at)),
        }
    }

    fn sort(&mut self, pods: &[PodId], queue: &mut Queue) {
        let snapshot = self.tables.snapshot;
        queue.order.clear();
        queue
            .order
            .extend(pods.iter().map(|pod| (sort_key(snapshot, *pod), *pod)));
        queue
            .order
            .sort_unstable_by(|left, right| by_turn(snapshot, left, right));
        queue
            .waiting
            .extend(queue.order.iter().map(|(_, pod)| (*pod, FRESH)));
    }

    /// Tries a pod, unless one of its shape failed and nothing has changed since.
    fn place_or_recall(&mut self, pod: PodId, queue: &mut Queue, looks_further: bool) -> Option<NoPlace> {
        let view = self.tables.snapshot.pod(pod);
        let shape = (view.class, view.request);
        let known = queue.failed.get(&shape).copied();
        if let Some(failed) = known.filter(|failed| failed.still_fails(queue.placements, looks_further)) {
            return Some(failed.no_place);
        }
        self.scratch.met_attach_limit = false;
        // What comes first need not be tried once more where nothing has been placed since: only a choice that is left is a reason to try again then.
        let is_choice_left = known.is_some_and(|failed| failed.placements == queue.placements);
        let mut placed = if is_choice_left {
            Err(NoPlace::ForNow)
        } else {
            self.place_first(pod)
        };
        let had_choice = is_choice_left || (placed == Err(NoPlace::ForNow) && self.had_choice(pod));
        let looks_on = had_choice && (looks_further || self.scratch.choice.has_begun());
        if looks_on {
            placed = self.look_further(pod);
        }
        let no_place = placed.err()?;
        // Volumes tell pods of one shape apart: what one cannot for their sake, another may.
        if !self.scratch.met_attach_limit {
            let failed = Failed {
                placements: queue.placements,
                no_place,
                had_choice,
                looked_further: looks_on || !had_choice,
            };
            queue.failed.insert(shape, failed);
        }
        Some(no_place)
    }

    /// Tries a pod; where it finds no place with what comes first, with every domain and every place for its volumes.
    pub(super) fn place_one(&mut self, pod: PodId) -> Result<(), NoPlace> {
        let placed = self.place_first(pod);
        if placed != Err(NoPlace::ForNow) || !self.had_choice(pod) {
            return placed;
        }
        self.look_further(pod)
    }

    /// Tries a pod for which no existing node and nothing that comes first will do.
    fn look_further(&mut self, pod: PodId) -> Result<(), NoPlace> {
        self.looking_further(|engine| engine.place_relaxing(pod))
    }

    /// Asks claims about every domain and every place for volumes.
    pub(super) fn looking_further<T>(&mut self, ask: impl FnOnce(&mut Self) -> T) -> T {
        self.looks_further = true;
        let answer = ask(self);
        self.looks_further = false;
        answer
    }

    /// Tries a pod with the domains and the place for its volumes that come first.
    fn place_first(&mut self, pod: PodId) -> Result<(), NoPlace> {
        let class = self.tables.snapshot.pod(pod).class;
        if self.tables.snapshot.classes[class.index()].uses_resource_claims {
            return Err(NoPlace::ForGood);
        }
        self.scratch.choice.forget_named();
        self.place_relaxing(pod)
    }

    /// Whether something was named for the pod that was tried last of which there may be more. What only its preferences have named does not count: without them
    /// it could go to every domain, and has no place either. But terms of node affinity are given up before preferences, so with several these may be in the way.
    fn had_choice(&mut self, pod: PodId) -> bool {
        let class = self.tables.snapshot.pod(pod).class;
        let Some(first) = self.variant(class, 0) else {
            return false;
        };
        let constraints = &self.tables[first].constraints;
        let (places, terms) = (constraints.volume_terms.len(), constraints.required_terms.len());
        if places > 1 || !self.scratch.choice.has_named() {
            return places > 1;
        }
        let last = self.most_relaxed(class);
        terms > 1 || last.is_none_or(|last| !self.tables[last].is_free)
    }

    /// Tries a pod with all its preferences, then with one fewer at a time.
    fn place_relaxing(&mut self, pod: PodId) -> Result<(), NoPlace> {
        let class = self.tables.snapshot.pod(pod).class;
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
