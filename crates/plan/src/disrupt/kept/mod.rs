//! Answers that are kept from one pass to the next, each for as long as nothing has changed that it has read.
//!
//! What is kept are the answers of what-ifs, of each candidate alone and of sets: where their pods would go and what would come instead ([`Bare`]). What depends on totals of
//! NodePools, on budgets or on the time is worked out anew in every pass, from these. Beside each answer stands what it has read: its pods, the nodes that
//! took them, the least that one of those asks for that no node took, and the classes whose rules of topology it followed. An answer is dropped
//!
//! - when its node, its pods or their price have changed;
//! - when a node that took one of its pods has less room. Where another node has less room, nothing changes: pods take the first node that has room, and
//!   each node before that one had too little already;
//! - when a node has more room, and a pod that looked at it before it found a place, or that found none, may fit there now;
//! - when pods came or went that a rule of its pods counts, or whose anti-affinity keeps its pods away.
//!
//! When anything else differs (NodePools, instance types, limits, DaemonSets, nodes that join, leave or change, settings), everything is dropped. So a pass with
//! kept answers decides what one without decides, bit for bit; debug builds compare the two for small clusters. It knows no clock.

mod counts;
mod marks;
mod reads;
mod sets;

pub(super) use reads::Reads;
pub(super) use sets::{KeptSets, LONGEST_SWEEP};

use super::bare::{Bare, Numbered as _};
use super::candidates::Candidate;
use super::consolidate::Brief;
use super::ground::Ground;
use crate::policy::Policy;
use marks::{NodeMark, Pods, Renumbered};
use reads::Asked;
use spokeshave_model::Price;
use spokeshave_model::constraints::Constraints;
use spokeshave_model::snapshot::{
    ClassId, DaemonView, NodeId, NodeKind, PodId, PodView, PoolId, PoolView, Snapshot,
};
use spokeshave_model::vector::ResourceTable;
use spokeshave_schedule::{Difference, Start};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// What one pass leaves to the next so that the next is faster: it has no influence on what is decided, and is safe to lose.
#[derive(Clone, Default)]
pub struct Kept(Option<Box<Memory>>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answers = self
            .0
            .as_deref()
            .map_or(0, |memory| memory.alone.iter().flatten().count());
        f.debug_struct("Kept").field("answers", &answers).finish()
    }
}

/// More changed pods or nodes than this are not looked at one by one: everything is dropped.
const MOST_CHANGES: usize = 64;

#[derive(Clone)]
struct Memory {
    all: WholeMarks,
    classes: Vec<Constraints>,
    nodes: Vec<NodeMark>,
    pods: Pods,
    start: Start,
    /// By node.
    alone: Vec<Option<(Own, Bare<Brief>)>>,
    sets: KeptSets,
}

/// What every answer depends on.
#[derive(Clone)]
struct WholeMarks {
    policy: Policy,
    resources: ResourceTable,
    well_known: BTreeSet<String>,
    pools: Vec<PoolView>,
    kinds: Vec<NodeKind>,
    daemons: Vec<DaemonView>,
    /// Pods that wait or move anyway open host ports or attach volumes: which are taken where, nobody compares.
    base_is_special: bool,
}

/// Nodes that an answer is about, and their pods.
#[derive(Clone)]
struct Own {
    /// Each with its NodePool, its price, and how many pods there are up to its last.
    nodes: Vec<(NodeId, PoolId, Price, usize)>,
    moving: Vec<PodId>,
    asked: Asked,
}

/// What has changed that answers may have read.
struct Read<'r> {
    difference: &'r Difference,
    counted_otherwise: &'r [bool],
}

impl Kept {
    /// What is kept where it may be used; where it may not it goes, because answers hold the objects that they were about.
    pub(super) fn only_if(is_used: bool, kept: Option<&mut Kept>) -> Option<&mut Kept> {
        let kept = kept?;
        if !is_used {
            *kept = Kept::default();
            return None;
        }
        Some(kept)
    }

    /// The answers of before that still hold, by node. From now on what is kept belongs to this Snapshot, whose what-ifs start from `start`. O(pods), to
    /// compare them with those of before.
    pub(super) fn renew(&mut self, ground: &Ground<'_>, start: Start) {
        let before = self.0.take();
        let (snapshot, all) = (ground.snapshot, WholeMarks::of(ground));
        let renewed = before.and_then(|before| before.renewed(snapshot, &all, &start));
        let mut memory = match renewed {
            Some(mut memory) => {
                (memory.all, memory.start) = (all, start);
                memory
            }
            None => Box::new(Memory::new(snapshot, all, start)),
        };
        memory.sets.begin();
        self.0 = Some(memory);
    }

    /// The answer about a candidate, if it is known.
    pub(super) fn find(&self, candidate: &Candidate) -> Option<&Bare<Brief>> {
        let known = self.0.as_ref()?.alone.get(candidate.node.index())?;
        let (own, bare) = known.as_ref()?;
        own.is(&[candidate]).then_some(bare)
    }

    /// Keeps an answer.
    pub(super) fn keep(&mut self, snapshot: &Snapshot, candidate: &Candidate, bare: Bare<Brief>) {
        if let Some(memory) = &mut self.0 {
            memory.alone[candidate.node.index()] = Some((Own::of(snapshot, &[candidate]), bare));
        }
    }

    /// What the search over sets has asked.
    pub(super) fn sets(&mut self) -> Option<&mut KeptSets> {
        self.0.as_mut().map(|memory| &mut memory.sets)
    }
}

impl WholeMarks {
    fn of(ground: &Ground<'_>) -> Self {
        let snapshot = ground.snapshot;
        let mut policy = ground.policy.clone();
        // Whether nodes are judged as well, and on how many threads, changes no answer.
        (policy.disrupt.verdicts, policy.disrupt.threads) = (false, 1);
        WholeMarks {
            policy,
            resources: snapshot.resources.clone(),
            well_known: snapshot.well_known.clone(),
            pools: snapshot.pools.clone(),
            kinds: snapshot.kinds.clone(),
            daemons: snapshot.daemons.clone(),
            base_is_special: has_special_base(snapshot),
        }
    }

    /// Whether what-ifs read the same of both.
    fn is_same(&self, other: &Self) -> bool {
        let both = self.pools.iter().zip(&other.pools);
        self.policy == other.policy
            && self.resources == other.resources
            && self.well_known == other.well_known
            && self.kinds == other.kinds
            && self.daemons == other.daemons
            && self.pools.len() == other.pools.len()
            && both.into_iter().all(|(one, other)| is_same_pool(one, other))
            && !self.base_is_special
            && !other.base_is_special
    }
}

/// Whether a pod that waits or moves anyway opens a host port or attaches a volume.
fn has_special_base(snapshot: &Snapshot) -> bool {
    let is_special = |view: &PodView| {
        !view.attachments().is_empty() || !snapshot.classes[view.class.index()].host_ports.is_empty()
    };
    let leaving = snapshot
        .nodes
        .iter()
        .filter(|view| view.in_command || view.marked_for_deletion);
    let mut moving = leaving.flat_map(|view| &view.pods).map(|pod| snapshot.pod(*pod));
    moving.any(is_special)
        || snapshot
            .pods
            .iter()
            .any(|view| view.provisionable && is_special(view))
}

/// Whether two NodePools are the same but for what nobody plans with: their status and the versions of the objects. What they use is compared as what is left
/// of their limits.
fn is_same_pool(one: &PoolView, other: &PoolView) -> bool {
    let is_same_object = Arc::ptr_eq(&one.object, &other.object)
        || (one.object.spec == other.object.spec
            && one.object.metadata.labels == other.object.metadata.labels
            && one.object.metadata.annotations == other.object.metadata.annotations);
    is_same_object
        && one.name == other.name
        && one.uid == other.uid
        && one.weight == other.weight
        && one.is_static == other.is_static
        && one.ready == other.ready
        && one.deleting == other.deleting
        && one.supported == other.supported
        && one.requirements == other.requirements
        && one.taints == other.taints
        && one.limits == other.limits
        && (Arc::ptr_eq(&one.instance_types, &other.instance_types)
            || (one.instance_types.is_empty() && other.instance_types.is_empty()))
        && one.instance_types_problem == other.instance_types_problem
}

impl Own {
    fn of(snapshot: &Snapshot, set: &[&Candidate]) -> Self {
        let mut moving: Vec<PodId> = Vec::new();
        let mut nodes = Vec::with_capacity(set.len());
        for candidate in set {
            moving.extend(&candidate.moving);
            nodes.push((candidate.node, candidate.pool, candidate.price, moving.len()));
        }
        Own {
            asked: Asked::by(snapshot, moving.iter().copied()),
            nodes,
            moving,
        }
    }

    /// Whether these are the nodes, in this order, with the same pods.
    fn is(&self, set: &[&Candidate]) -> bool {
        let mut candidates = set.iter().enumerate();
        self.nodes.len() == set.len()
            && candidates.all(|(position, candidate)| self.is_at(position, candidate))
    }

    /// Whether a node stands at this place, with the same pods.
    fn is_at(&self, position: usize, candidate: &Candidate) -> bool {
        let start = match position.checked_sub(1) {
            Some(before) => self.nodes.get(before).map_or(0, |node| node.3),
            None => 0,
        };
        self.nodes.get(position).is_some_and(|(node, pool, price, end)| {
            (*node, *pool, *price) == (candidate.node, candidate.pool, candidate.price)
                && self.moving[start..*end] == candidate.moving
        })
    }

    /// Takes the numbers of another Snapshot; none when one of the pods has changed.
    fn renumber(&mut self, pods: &Renumbered, class: impl Fn(ClassId) -> Option<ClassId>) -> Option<()> {
        if !pods.is_same() {
            for pod in &mut self.moving {
                *pod = pods.of(*pod)?;
            }
        }
        self.asked.renumber(class)
    }
}

impl Read<'_> {
    /// Whether an answer about these nodes that has read so much stays what it is.
    fn is_same(&self, own: &Own, reads: &Reads) -> bool {
        own.asked.survives(reads, self.difference, self.counted_otherwise)
    }
}

impl Memory {
    /// With nothing known.
    fn new(snapshot: &Snapshot, all: WholeMarks, start: Start) -> Self {
        Memory {
            all,
            classes: snapshot.classes.clone(),
            nodes: NodeMark::all(snapshot),
            pods: Pods::of(snapshot),
            start,
            alone: vec![None; snapshot.nodes.len()],
            sets: KeptSets::default(),
        }
    }

    /// What is left of it on another Snapshot; none when nothing is.
    fn renewed(
        mut self: Box<Self>,
        snapshot: &Snapshot,
        all: &WholeMarks,
        start: &Start,
    ) -> Option<Box<Self>> {
        if !self.all.is_same(all) || !NodeMark::follow_all(&mut self.nodes, snapshot) {
            return None;
        }
        let classes = marks::renumbered_classes(&self.classes, &snapshot.classes);
        let class = |class: ClassId| match &classes {
            None => Some(class),
            Some(new) => new.get(class.index()).copied().flatten(),
        };
        let difference = start.difference(&self.start, class)?;
        if difference.lost.len() + difference.gained.len() > MOST_CHANGES {
            return None;
        }
        let pods = self.pods.follow(snapshot, class, MOST_CHANGES)?;
        if pods.are_special(snapshot, &self.classes) {
            return None;
        }
        // What the pods that are gone kept away is known from their classes of before alone.
        let mut counted_otherwise = counts::affected(snapshot, &pods.recounted(&self.classes, snapshot));
        if difference.base {
            for (class, is_bound) in counted_otherwise.iter_mut().zip(counts::bound(snapshot)) {
                *class |= is_bound;
            }
        }
        let read = Read {
            difference: &difference,
            counted_otherwise: &counted_otherwise,
        };
        for known in &mut self.alone {
            *known = known.take().and_then(|(mut own, mut bare)| {
                own.renumber(&pods, class)?;
                if !pods.is_same() {
                    bare.renumber(&|pod| pods.of(pod))?;
                }
                read.is_same(&own, &bare.reads).then_some((own, bare))
            });
        }
        self.sets.renew(&pods, &class, &read);
        if classes.is_some() {
            self.classes.clone_from(&snapshot.classes);
        }
        Some(self)
    }
}
