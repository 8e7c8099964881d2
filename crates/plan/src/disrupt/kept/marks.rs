//! Pods as a pass has read them, small enough to be remembered, and what has become of them on another Snapshot.
//!
//! Objects are compared by identity first: while they are held here no other object has their address. It decides nothing.

use super::counts::Recounted;
use super::nodes::NodeNumbers;
use super::pieces::Pieces;
use crate::disrupt::register::is_restless;
use crate::disrupt::signature::shape;
use rustc_hash::FxHashMap;
use spokeshave_model::constraints::{Constraints, PodProblem};
use spokeshave_model::pod::DoNotDisrupt;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId, PodView, RequestId, Snapshot};
use spokeshave_model::vector::ResourceVector;
use spokeshave_model::{Classes, Pod};
use std::cmp::Ordering;
use std::sync::Arc;

/// A pod, as far as what-ifs read it. Small, because what comes or goes moves those behind it.
#[derive(Clone)]
pub(super) struct PodMark {
    object: Arc<Pod>,
    facts: PodFacts,
    /// Nearly all have none of it, and a mark is to be small.
    rare: Option<Box<Rare>>,
}

/// What few pods have.
#[derive(Clone)]
struct Rare {
    attachments: Vec<(String, String)>,
    problem: Option<PodProblem>,
}

/// What is not in the object of a pod alone, and what is looked at often.
#[derive(Clone, Copy)]
struct PodFacts {
    class: ClassId,
    request: RequestId,
    /// The number of its node; `NONE` without one, `GONE` where that is there no more.
    node: u32,
    traits: u8,
}

/// No node.
const NONE: u32 = u32::MAX;
/// A node that is there no more.
const GONE: u32 = u32::MAX - 1;

/// The number of a node, or `NONE`.
fn number(node: Option<NodeId>) -> u32 {
    node.map_or(NONE, |node| node.0)
}

const ACTIVE: u8 = 1;
const TERMINAL: u8 = 2;
const RESCHEDULABLE: u8 = 4;
const RESTLESS: u8 = 8;
/// It is neither protected nor under a PodDisruptionBudget.
const PLAIN: u8 = 16;
/// It has nothing of what most pods have nothing of.
const COMMON: u8 = 32;
/// Affinity and anti-affinity count it.
const COUNTED: u8 = 64;

fn is_plain(view: &PodView) -> bool {
    view.budgets().is_empty() && matches!(view.do_not_disrupt(), DoNotDisrupt::Absent)
}

impl PodFacts {
    fn of(view: &PodView) -> Self {
        let traits = [
            (ACTIVE, view.active),
            (TERMINAL, view.terminal),
            (RESCHEDULABLE, view.reschedulable),
            (RESTLESS, is_restless(view)),
            (PLAIN, is_plain(view)),
            (COMMON, view.is_common()),
            (COUNTED, view.is_counted()),
        ];
        let traits = traits.into_iter().filter(|(_, has)| *has);
        PodFacts {
            class: view.class,
            request: view.request,
            node: number(view.node),
            traits: traits.fold(0, |all, (one, _)| all | one),
        }
    }

    fn has(&self, which: u8) -> bool {
        self.traits & which != 0
    }

    fn node(&self) -> Option<NodeId> {
        (self.node < GONE).then_some(NodeId(self.node))
    }

    /// The number that its node has now.
    fn node_by(&self, nodes: &NodeNumbers) -> u32 {
        self.node()
            .map_or(self.node, |node| nodes.of(node).map_or(GONE, |node| node.0))
    }
}

impl PodMark {
    fn of(view: &PodView) -> Self {
        let (attachments, problem) = (view.attachments().to_vec(), view.problem().cloned());
        let has_rare = !attachments.is_empty() || problem.is_some();
        PodMark {
            object: Arc::clone(&view.object),
            facts: PodFacts::of(view),
            rare: has_rare.then(|| Box::new(Rare { attachments, problem })),
        }
    }

    fn attachments(&self) -> &[(String, String)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.attachments)
    }

    fn attaches_as(&self, view: &PodView) -> bool {
        self.attachments() == view.attachments()
    }

    /// Whether it is this pod with the same numbers. Of the many that have nothing rare it is said without a branch for each part, because it is asked of all pods
    /// in every pass.
    #[inline]
    fn is_unchanged(&self, view: &PodView) -> bool {
        let facts = &self.facts;
        let object = Arc::as_ptr(&self.object).addr() ^ Arc::as_ptr(&view.object).addr();
        let node = facts.node ^ number(view.node);
        let numbers = (facts.class.0 ^ view.class.0) | (facts.request.0 ^ view.request.0) | node;
        let is_surely = (object == 0) & (numbers == 0) & facts.has(COMMON) & view.is_common();
        is_surely || self.is(view, Some(facts.class), Some(facts.request), facts.node)
    }

    fn has_rarities_of(&self, view: &PodView) -> bool {
        let problem = self.rare.as_ref().and_then(|rare| rare.problem.as_ref());
        self.facts.has(PLAIN) == is_plain(view) && self.attaches_as(view) && problem == view.problem()
    }

    /// Whether it is this pod, where its numbers have become these. What follows from the object alone is the same for the same object.
    #[inline]
    fn is(&self, view: &PodView, class: Option<ClassId>, request: Option<RequestId>, node: u32) -> bool {
        let facts = &self.facts;
        let is_same = Arc::ptr_eq(&self.object, &view.object)
            && class == Some(view.class)
            && request == Some(view.request)
            && node == number(view.node)
            && if view.is_common() {
                facts.has(COMMON) || self.has_rarities_of(view)
            } else {
                self.has_rarities_of(view)
            };
        debug_assert!(
            !is_same || (facts.traits | COMMON) == (PodFacts::of(view).traits | COMMON),
            "what an object says of its pod is always the same"
        );
        is_same
    }
}

/// All pods, in order.
#[derive(Clone)]
pub(super) struct Pods {
    marks: Pieces<PodMark>,
    requests: Arc<Vec<ResourceVector>>,
}

/// What has become of a pod.
#[derive(Clone)]
struct Changed {
    /// As it was, with the number that its node has now; none when it is new.
    before: Option<PodMark>,
    /// What it is; none when it is gone.
    now: Option<PodId>,
}

/// What has become of all pods.
#[derive(Clone, Default)]
pub(in crate::disrupt) struct Renumbered {
    changed: Vec<Changed>,
    /// Which of the pods of before have changed or gone, in order.
    taken: Vec<usize>,
    /// By how much the numbers of the others have grown, each from a number of before on, in order.
    shifts: Vec<(usize, isize)>,
    /// Requests have other numbers.
    pub(super) has_other_requests: bool,
}

/// At which pod of before the two lists differ, which pod stands there now, and whether the one of before is replaced or gone. One that is not is preceded by
/// the new one.
type Step = (usize, Option<usize>, bool);

impl Renumbered {
    /// The numbers after these steps, in order.
    fn by(steps: &[Step]) -> Self {
        let mut result = Self::default();
        let mut shift = 0;
        for (at, now, takes) in steps.iter().copied() {
            match (now, takes) {
                (Some(_), true) => {}
                (Some(_), false) => {
                    shift += 1;
                    result.shifts.push((at, shift));
                }
                (None, _) => {
                    shift -= 1;
                    result.shifts.push((at + 1, shift));
                }
            }
            if takes {
                result.taken.push(at);
            }
        }
        result
    }

    /// Whether every pod is what it was.
    pub(in crate::disrupt) fn is_same(&self) -> bool {
        self.changed.is_empty()
    }

    /// The pods that are new or have changed.
    pub(in crate::disrupt) fn changed_now(&self) -> impl Iterator<Item = PodId> + '_ {
        self.changed.iter().filter_map(|changed| changed.now)
    }

    /// The nodes that pods which have changed are or were on.
    pub(super) fn nodes<'n>(&'n self, snapshot: &'n Snapshot) -> impl Iterator<Item = NodeId> + 'n {
        self.changed.iter().flat_map(|changed| {
            let before = changed.before.as_ref().and_then(|mark| mark.facts.node());
            let now = changed.now.and_then(|pod| snapshot.pod(pod).node);
            before.into_iter().chain(now)
        })
    }

    /// Class and request of each pod that has changed, as far as it needs a place: before, by the numbers of then, and now.
    pub(in crate::disrupt) fn shapes<'n>(
        &'n self,
        snapshot: &'n Snapshot,
    ) -> impl Iterator<Item = (Option<(ClassId, RequestId)>, Option<(ClassId, RequestId)>)> + 'n {
        self.changed.iter().map(|changed| {
            let before = changed.before.as_ref().map(|mark| mark.facts);
            let before = before.filter(|facts| facts.has(RESCHEDULABLE));
            let now = changed.now.and_then(|pod| shape(snapshot.pod(pod)));
            (before.map(|facts| (facts.class, facts.request)), now)
        })
    }

    /// The number of a pod now, if it has not changed.
    pub(in crate::disrupt) fn of(&self, pod: PodId) -> Option<PodId> {
        let was = pod.index();
        if self.taken.binary_search(&was).is_ok() {
            return None;
        }
        let steps = self.shifts.partition_point(|(from, _)| *from <= was);
        let shift = steps.checked_sub(1).map_or(0, |last| self.shifts[last].1);
        was.checked_add_signed(shift).map(PodId::from)
    }

    /// Whether host ports or volumes in use have changed somewhere: which they are on each node is not compared. `classes` are those of before.
    pub(super) fn are_special(&self, snapshot: &Snapshot, classes: &[Arc<Constraints>]) -> bool {
        self.changed.iter().any(|changed| {
            let now = changed.now.map(|pod| snapshot.pod(pod));
            let opens = |class: &Constraints| !class.host_ports.is_empty();
            let was = changed.before.as_ref().is_some_and(|mark| {
                !mark.attachments().is_empty() || opens(&classes[mark.facts.class.index()])
            });
            let is = now.is_some_and(|view| {
                !view.attachments().is_empty() || opens(&snapshot.classes[view.class.index()])
            });
            let in_place = changed.before.as_ref().zip(now).is_some_and(|(mark, view)| {
                mark.facts.node == number(view.node)
                    && mark.facts.has(TERMINAL) == view.terminal
                    && mark.attaches_as(view)
                    && classes[mark.facts.class.index()].host_ports
                        == snapshot.classes[view.class.index()].host_ports
            });
            (was || is) && !in_place
        })
    }

    /// The pods that are counted now where they were not, or the other way round: as they were, and as they are.
    pub(super) fn recounted<'c>(
        &self,
        classes: &'c [Arc<Constraints>],
        snapshot: &'c Snapshot,
    ) -> Vec<Recounted<'c>> {
        let mut recounted = Vec::new();
        for changed in &self.changed {
            // What has ended, or soon will, does not count. What waits has no node, but may keep others away from the one that it will get.
            let before = changed.before.as_ref().map(|mark| mark.facts);
            let before = before.filter(|facts| facts.has(COUNTED)).map(|facts| {
                let place = (&*classes[facts.class.index()], facts.node);
                (place, facts.has(ACTIVE))
            });
            let now = changed.now.map(|pod| (pod, snapshot.pod(pod)));
            let now = now.filter(|(_, view)| view.is_counted());
            let now = now.map(|(pod, view)| ((snapshot.constraints(pod), number(view.node)), view.active));
            if before == now {
                continue;
            }
            let has_moved = before.map(|(place, _)| place) != now.map(|(place, _)| place);
            let both = before.into_iter().chain(now);
            recounted.extend(both.map(|((constraints, node), is_active)| Recounted {
                constraints,
                node: (node < GONE).then_some(NodeId(node)),
                by_spreads: is_active,
                by_terms: has_moved,
            }));
        }
        recounted
    }
}

impl Pods {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Pods {
            marks: snapshot.pods.iter().map(PodMark::of).collect(),
            requests: Arc::clone(&snapshot.requests),
        }
    }

    /// Becomes the pods of another Snapshot, and says what has become of each; none when more than so many have changed. `classes` says which class each class
    /// of before is now, if not the same, and `nodes` which node each node is.
    pub(super) fn follow(
        &mut self,
        snapshot: &Snapshot,
        classes: Option<&[Option<ClassId>]>,
        nodes: &NodeNumbers,
        most: usize,
    ) -> Option<Renumbered> {
        let requests = if self.requests == snapshot.requests {
            None
        } else {
            renumbered(&self.requests, &snapshot.requests)
        };
        let request = |request: RequestId| match &requests {
            None => Some(request),
            Some(new) => new[request.index()].map(RequestId),
        };
        let is_renumbered = classes.is_some() || requests.is_some() || !nodes.are_same();
        let class = |class: ClassId| match classes {
            None => Some(class),
            Some(new) => new.get(class.index()).copied().flatten(),
        };
        let is_same = |mark: &PodMark, view: &PodView| {
            let facts = &mark.facts;
            mark.is(
                view,
                class(facts.class),
                request(facts.request),
                facts.node_by(nodes),
            )
        };
        let (mut old, mut new) = (0, 0);
        let mut steps: Vec<Step> = Vec::new();
        loop {
            let rest = &snapshot.pods[new..];
            let same = if is_renumbered {
                self.marks.same_from(old, rest, is_same)
            } else {
                self.marks.same_from(old, rest, PodMark::is_unchanged)
            };
            (old, new) = (old + same, new + same);
            let order = match (self.marks.get(old), snapshot.pods.get(new)) {
                (Some(mark), Some(view)) => place(&mark.object).cmp(&place(&view.object)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            if steps.len() >= most {
                return None;
            }
            steps.push((
                old,
                (order != Ordering::Less).then_some(new),
                order != Ordering::Greater,
            ));
            old += usize::from(order != Ordering::Greater);
            new += usize::from(order != Ordering::Less);
        }
        let mut result = self.replace(snapshot, &steps, nodes);
        result.has_other_requests = requests.is_some();
        self.requests = Arc::clone(&snapshot.requests);
        if is_renumbered {
            for (mark, view) in self.marks.iter_mut().zip(&snapshot.pods) {
                (mark.facts.class, mark.facts.request) = (view.class, view.request);
                mark.facts.node = number(view.node);
            }
        }
        Some(result)
    }

    /// Takes in what was found to have changed.
    fn replace(&mut self, snapshot: &Snapshot, steps: &[Step], nodes: &NodeNumbers) -> Renumbered {
        let mut result = Renumbered::by(steps);
        // From the back, so that positions before stay what they are.
        for (at, now, takes) in steps.iter().rev().copied() {
            let mark = now.map(|now| PodMark::of(&snapshot.pods[now]));
            let mut before = match (mark, takes) {
                (Some(mark), true) => self.marks.replace(at, mark),
                (Some(mark), false) => {
                    self.marks.insert(at, mark);
                    None
                }
                (None, _) => self.marks.remove(at),
            };
            if let Some(before) = &mut before {
                before.facts.node = before.facts.node_by(nodes);
            }
            result.changed.push(Changed {
                before,
                now: now.map(PodId::from),
            });
        }
        result
    }
}

/// Where a pod stands among all.
fn place(pod: &Pod) -> (&str, &str) {
    let meta = &pod.metadata;
    (
        meta.namespace.as_deref().unwrap_or(""),
        meta.name.as_deref().unwrap_or(""),
    )
}

/// Which class each class of before is now; none when all are what they were. One that is not found is not there any more, or was made anew.
pub(super) fn renumbered_classes(before: &Classes, now: &Classes) -> Option<Vec<Option<ClassId>>> {
    if before == now {
        return None;
    }
    let by_place: FxHashMap<*const Constraints, u32> = now.iter().map(Arc::as_ptr).zip(0..).collect();
    let is_shared = before
        .iter()
        .any(|class| by_place.contains_key(&Arc::as_ptr(class)));
    if is_shared {
        let number = |class: &Arc<Constraints>| by_place.get(&Arc::as_ptr(class)).copied().map(ClassId);
        return Some(before.iter().map(number).collect());
    }
    let numbers = renumbered(before, now)?;
    Some(numbers.into_iter().map(|number| number.map(ClassId)).collect())
}

/// Which number each of these values has now; none when all have the one that they had.
fn renumbered<T: Eq + std::hash::Hash>(before: &[T], now: &[T]) -> Option<Vec<Option<u32>>> {
    if before == now {
        return None;
    }
    let numbers: FxHashMap<&T, u32> = now.iter().zip(0..).collect();
    Some(before.iter().map(|value| numbers.get(value).copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a walk through both lists. Each pod of before stays (0, 1), changes (2) or goes (3), and so many come before it, or right after it when it goes.
        #[test]
        fn numbers_are_those_of_the_pods_that_stay(pods in prop::collection::vec((0..4_u8, 0..3_usize, 0..2_usize), 0..40), last in 0..3_usize) {
            let (mut steps, mut expected, mut next) = (Vec::new(), Vec::new(), 0);
            let comes = |at: usize, steps: &mut Vec<Step>, count: usize, next: &mut usize| {
                for _ in 0..count {
                    steps.push((at, Some(*next), false));
                    *next += 1;
                }
            };
            for (at, (fate, before, after)) in pods.iter().copied().enumerate() {
                comes(at, &mut steps, before, &mut next);
                match fate {
                    3 => {
                        steps.push((at, None, true));
                        expected.push(None);
                        comes(at + 1, &mut steps, after, &mut next);
                        continue;
                    }
                    2 => {
                        steps.push((at, Some(next), true));
                        expected.push(None);
                    }
                    _ => expected.push(Some(PodId::from(next))),
                }
                next += 1;
            }
            comes(pods.len(), &mut steps, last, &mut next);
            let renumbered = Renumbered::by(&steps);
            let found: Vec<Option<PodId>> = (0..pods.len()).map(|was| renumbered.of(PodId::from(was))).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
