//! Nodes and pods as a pass has read them, small enough to be remembered, and what has become of them on another Snapshot.
//!
//! Objects are compared by identity first: while they are held here no other object has their address. It decides nothing.

use k8s_openapi::api::core::v1::Node;
use rustc_hash::FxHashMap;
use spokeshave_api::NodeClaim;
use spokeshave_model::constraints::Constraints;
use spokeshave_model::snapshot::{
    ClassId, KindId, NodeId, NodeView, PodId, PodView, PoolId, RequestId, Snapshot,
};
use spokeshave_model::vector::ResourceVector;
use spokeshave_model::{Pod, Price};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node, as far as what-ifs read it beside the pods that are on it.
#[derive(Clone)]
pub(super) struct NodeMark {
    node: Option<Arc<Node>>,
    claim: Option<Arc<NodeClaim>>,
    facts: NodeFacts,
    attach_limits: BTreeMap<String, i64>,
}

/// What is not in the objects of a node alone.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NodeFacts {
    kind: KindId,
    pool: Option<PoolId>,
    instance_type: Option<usize>,
    price: Price,
    registered: bool,
    initialized: bool,
    marked_for_deletion: bool,
    in_command: bool,
}

impl NodeFacts {
    fn of(view: &NodeView) -> Self {
        NodeFacts {
            kind: view.kind,
            pool: view.pool,
            instance_type: view.instance_type,
            price: view.price,
            registered: view.registered,
            initialized: view.initialized,
            marked_for_deletion: view.marked_for_deletion,
            in_command: view.in_command,
        }
    }
}

impl NodeMark {
    fn of(view: &NodeView) -> Self {
        NodeMark {
            node: view.node.clone(),
            claim: view.claim.clone(),
            facts: NodeFacts::of(view),
            attach_limits: view.attach_limits.clone(),
        }
    }

    /// Those of all nodes, in order.
    pub(super) fn all(snapshot: &Snapshot) -> Vec<Self> {
        snapshot.nodes.iter().map(NodeMark::of).collect()
    }

    /// Whether what-ifs read the same of a node; remembers its objects, which may be other versions.
    fn follow(&mut self, view: &NodeView) -> bool {
        if self.facts != NodeFacts::of(view) || self.attach_limits != view.attach_limits {
            return false;
        }
        let is_same_node = match (&self.node, &view.node) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || is_same_node(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let is_same_claim = match (&self.claim, &view.claim) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || is_same_claim(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        if is_same_node && is_same_claim {
            self.node.clone_from(&view.node);
            self.claim.clone_from(&view.claim);
        }
        is_same_node && is_same_claim
    }

    /// Whether these are the nodes of a Snapshot, all of them and in this order. Where they are not, some are other versions already.
    pub(super) fn follow_all(marks: &mut [Self], snapshot: &Snapshot) -> bool {
        let is_as_long = marks.len() == snapshot.nodes.len();
        let mut both = marks.iter_mut().zip(&snapshot.nodes);
        is_as_long && both.all(|(mark, view)| mark.follow(view))
    }
}

/// All but conditions and what else a kubelet says again and again.
fn is_same_node(one: &Node, other: &Node) -> bool {
    let (meta, known) = (&one.metadata, &other.metadata);
    let capacity = |node: &Node| {
        let status = node.status.as_ref();
        status.map(|status| (status.capacity.clone(), status.allocatable.clone()))
    };
    meta.name == known.name
        && meta.labels == known.labels
        && one.spec == other.spec
        && capacity(one) == capacity(other)
}

/// All but conditions and when pods came or went.
fn is_same_claim(one: &NodeClaim, other: &NodeClaim) -> bool {
    let (meta, known) = (&one.metadata, &other.metadata);
    let status = |claim: &NodeClaim| {
        let status = claim.status.as_ref();
        status.map(|status| {
            let names = (status.node_name.clone(), status.provider_id.clone());
            (names, status.capacity.clone(), status.allocatable.clone())
        })
    };
    meta.name == known.name
        && meta.labels == known.labels
        && one.spec == other.spec
        && status(one) == status(other)
}

/// A pod, as far as what-ifs read it.
#[derive(Clone)]
pub(super) struct PodMark {
    object: Arc<Pod>,
    facts: PodFacts,
    attachments: Option<Box<[(String, String)]>>,
}

/// What is not in the object of a pod alone, and what is looked at often.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PodFacts {
    class: ClassId,
    request: RequestId,
    node: Option<NodeId>,
    active: bool,
    terminal: bool,
    reschedulable: bool,
}

impl PodFacts {
    fn of(view: &PodView) -> Self {
        PodFacts {
            class: view.class,
            request: view.request,
            node: view.node,
            active: view.active,
            terminal: view.terminal,
            reschedulable: view.reschedulable,
        }
    }
}

impl PodMark {
    fn of(view: &PodView) -> Self {
        let attachments = view.attachments();
        PodMark {
            object: Arc::clone(&view.object),
            facts: PodFacts::of(view),
            attachments: (!attachments.is_empty()).then(|| attachments.into()),
        }
    }

    fn attaches_as(&self, view: &PodView) -> bool {
        self.attachments.as_deref().unwrap_or_default() == view.attachments()
    }

    /// Whether it is this pod, with the same volumes. Numbers are compared by the caller.
    fn is(&self, view: &PodView) -> bool {
        Arc::ptr_eq(&self.object, &view.object) && self.attaches_as(view)
    }
}

/// All pods, in order.
#[derive(Clone)]
pub(super) struct Pods {
    marks: Vec<PodMark>,
    requests: Vec<ResourceVector>,
}

/// What has become of a pod.
pub(super) struct Changed {
    /// As it was; none when it is new.
    before: Option<PodMark>,
    /// What it is; none when it is gone.
    now: Option<PodId>,
}

/// What has become of all pods.
#[derive(Default)]
pub(super) struct Renumbered {
    changed: Vec<Changed>,
    /// The number that a pod which has not changed has now; empty when nothing has changed.
    new: Vec<Option<PodId>>,
}

impl Renumbered {
    /// Whether every pod is what it was.
    pub(super) fn is_same(&self) -> bool {
        self.changed.is_empty()
    }

    /// The number of a pod now, if it has not changed.
    pub(super) fn of(&self, pod: PodId) -> Option<PodId> {
        if self.is_same() {
            return Some(pod);
        }
        self.new.get(pod.index()).copied().flatten()
    }

    /// Whether host ports or volumes in use have changed somewhere: which they are on each node is not compared. `classes` are those of before.
    pub(super) fn are_special(&self, snapshot: &Snapshot, classes: &[Constraints]) -> bool {
        self.changed.iter().any(|changed| {
            let now = changed.now.map(|pod| snapshot.pod(pod));
            let opens = |class: &Constraints| !class.host_ports.is_empty();
            let was = changed
                .before
                .as_ref()
                .is_some_and(|mark| mark.attachments.is_some() || opens(&classes[mark.facts.class.index()]));
            let is = now.is_some_and(|view| {
                !view.attachments().is_empty() || opens(&snapshot.classes[view.class.index()])
            });
            let in_place = changed.before.as_ref().zip(now).is_some_and(|(mark, view)| {
                mark.facts.node == view.node
                    && mark.facts.terminal == view.terminal
                    && mark.attaches_as(view)
                    && classes[mark.facts.class.index()].host_ports
                        == snapshot.classes[view.class.index()].host_ports
            });
            (was || is) && !in_place
        })
    }

    /// Constraints of the pods that are counted now where they were not, or the other way round.
    pub(super) fn recounted<'c>(
        &self,
        classes: &'c [Constraints],
        snapshot: &'c Snapshot,
    ) -> Vec<&'c Constraints> {
        let mut recounted = Vec::new();
        for changed in &self.changed {
            let before = changed.before.as_ref();
            let before = before.map(|mark| {
                (
                    &classes[mark.facts.class.index()],
                    mark.facts.node,
                    mark.facts.active,
                )
            });
            let now = changed.now.map(|pod| {
                let view = snapshot.pod(pod);
                (snapshot.constraints(pod), view.node, view.active)
            });
            if before != now {
                recounted.extend(before.into_iter().chain(now).map(|(class, _, _)| class));
            }
        }
        recounted
    }
}

impl Pods {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Pods {
            marks: snapshot.pods.iter().map(PodMark::of).collect(),
            requests: snapshot.requests.clone(),
        }
    }

    /// Becomes the pods of another Snapshot, and says what has become of each; none when more than so many have changed. `class` says which class a class
    /// of before is now.
    pub(super) fn follow(
        &mut self,
        snapshot: &Snapshot,
        class: impl Fn(ClassId) -> Option<ClassId>,
        most: usize,
    ) -> Option<Renumbered> {
        let requests = renumbered(&self.requests, &snapshot.requests);
        let request = |request: RequestId| match &requests {
            None => Some(request),
            Some(new) => new[request.index()].map(RequestId),
        };
        let is_same = |mark: &PodMark, view: &PodView| {
            let (then, now) = (mark.facts, PodFacts::of(view));
            let renumbered = class(then.class)
                .zip(request(then.request))
                .map(|(class, request)| PodFacts {
                    class,
                    request,
                    ..then
                });
            mark.is(view) && renumbered == Some(now)
        };
        let (mut old, mut new) = (0, 0);
        // Which of the old is replaced, taken out, or preceded by a new one.
        let mut steps: Vec<(usize, Option<usize>, bool)> = Vec::new();
        while old < self.marks.len() || new < snapshot.pods.len() {
            let (mark, view) = (self.marks.get(old), snapshot.pods.get(new));
            let order = match (mark, view) {
                (Some(mark), Some(view)) if is_same(mark, view) => {
                    (old, new) = (old + 1, new + 1);
                    continue;
                }
                (Some(mark), Some(view)) => place(&mark.object).cmp(&place(&view.object)),
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
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
        if requests.is_some() {
            self.requests.clone_from(&snapshot.requests);
        }
        Some(self.replace(snapshot, &steps))
    }

    /// Takes in what was found to have changed.
    fn replace(&mut self, snapshot: &Snapshot, steps: &[(usize, Option<usize>, bool)]) -> Renumbered {
        let mut result = Renumbered::default();
        if !steps.is_empty() {
            result.new = vec![None; self.marks.len()];
            let (mut old, mut new) = (0, 0);
            for (at, now, takes) in steps.iter().copied().chain([(self.marks.len(), None, false)]) {
                for (from, to) in (old..at).zip(new..) {
                    result.new[from] = Some(PodId::from(to));
                }
                new += at - old + usize::from(now.is_some());
                old = at + usize::from(takes);
            }
        }
        // From the back, so that positions before stay what they are.
        for (at, now, takes) in steps.iter().rev().copied() {
            let mark = now.map(|now| PodMark::of(&snapshot.pods[now]));
            let before = match (mark, takes) {
                (Some(mark), true) => Some(std::mem::replace(&mut self.marks[at], mark)),
                (Some(mark), false) => {
                    self.marks.insert(at, mark);
                    None
                }
                (None, _) => Some(self.marks.remove(at)),
            };
            result.changed.push(Changed {
                before,
                now: now.map(PodId::from),
            });
        }
        for (mark, view) in self.marks.iter_mut().zip(&snapshot.pods) {
            (mark.facts.class, mark.facts.request) = (view.class, view.request);
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

/// Which class each class of before is now; none when all are what they were.
pub(super) fn renumbered_classes(
    before: &[Constraints],
    now: &[Constraints],
) -> Option<Vec<Option<ClassId>>> {
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
