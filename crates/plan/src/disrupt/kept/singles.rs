//! What is said of each node alone, and, side by side in memory, the little of it that every pass looks at.
//!
//! A pass goes through all answers twice: to see which of them still hold, and to weigh them. Answers themselves lie all over memory, so that going there
//! takes longer than everything else. A [`Glance`] says of nearly every answer that it holds, and of each all that is weighed. It is made from the answer
//! alone; only where it cannot tell is the answer asked.
//! It decides nothing: whether an answer holds is said by [`Read`], and what it is worth now by `consolidate`.

use super::nodes::NodeNumbers;
use super::reads::{Asked, Reads};
use super::{News, Read};
use crate::disrupt::bare::{Bare, Numbered as _};
use crate::disrupt::candidates::Candidate;
use crate::disrupt::consolidate::{Brief, is_silent};
use crate::disrupt::events;
use rustc_hash::FxHashMap;
use spokeshave_model::snapshot::{ClassId, NodeId, Snapshot};
use spokeshave_model::vector::ResourceVector;
use spokeshave_model::{Event, Price};
use std::sync::Arc;

/// Answers of what-ifs about single nodes, by node.
#[derive(Clone, Default)]
pub(in crate::disrupt) struct Singles {
    bares: Vec<Option<Arc<Bare<Brief>>>>,
    asked: Vec<Option<Arc<Asked>>>,
    glances: Vec<Glance>,
    /// What was last told about each node, for as long as the node is the same: most say the same again and again.
    told: Vec<Vec<Arc<Event>>>,
    /// By resource, the least that a pod of each node asks for, `width` numbers each.
    least: Vec<i64>,
    /// The same of the pods that looked at all nodes in vain.
    in_vain: Vec<i64>,
    width: usize,
}

/// What is looked at of every answer in every pass.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::disrupt) struct Glance {
    /// The nodes that took pods, several to a bit.
    nodes: Bloom,
    /// The classes of the pods, several to a bit.
    classes: Bloom,
    /// The number after that of the last node that took a pod; nothing where none did.
    end: u32,
    /// How many new NodeClaims the pods need; none when one has no place at all.
    pub(in crate::disrupt) claims: Option<u32>,
    /// What is paid for what would come instead.
    pub(in crate::disrupt) price_after: Price,
    /// There is a plan.
    pub(in crate::disrupt) is_found: bool,
    /// Something would come instead.
    pub(in crate::disrupt) replaces: bool,
    /// Why there is no plan is told.
    pub(in crate::disrupt) is_told: bool,
    names_pods: bool,
}

/// A set of numbers that may say of one that is not in it that it is, never the other way round.
#[derive(Clone, Copy, Debug, Default)]
struct Bloom([u64; 2]);

impl Bloom {
    fn insert(&mut self, number: usize) {
        self.0[number / 64 % 2] |= 1 << (number % 64);
    }

    #[inline]
    fn meets(&self, other: &Bloom) -> bool {
        (self.0[0] & other.0[0]) | (self.0[1] & other.0[1]) != 0
    }
}

impl Glance {
    fn of(bare: &Bare<Brief>) -> Self {
        let mut glance = Glance {
            claims: bare
                .claims
                .map(|claims| u32::try_from(claims).unwrap_or(u32::MAX)),
            names_pods: bare.names_pods(),
            ..Glance::default()
        };
        match &bare.found {
            Ok(brief) => {
                glance.is_found = true;
                glance.replaces = brief.replacement.is_some();
                glance.price_after = brief.price_after;
            }
            Err(stop) => glance.is_told = !is_silent(stop),
        }
        glance
    }

    fn reading(mut self, reads: &Reads, classes: &[ClassId]) -> Self {
        for node in reads.nodes() {
            self.nodes.insert(node.index());
            self.end = self.end.max(node.0 + 1);
        }
        for class in classes {
            self.classes.insert(class.index());
        }
        self
    }
}

impl Singles {
    /// With nothing known.
    pub(in crate::disrupt) fn of(snapshot: &Snapshot) -> Self {
        let (nodes, width) = (snapshot.nodes.len(), snapshot.resources.width());
        Singles {
            bares: vec![None; nodes],
            asked: vec![None; nodes],
            glances: vec![Glance::default(); nodes],
            told: vec![Vec::new(); nodes],
            least: Vec::new(),
            in_vain: Vec::new(),
            width,
        }
    }

    /// Whether there is a place for an answer about each node.
    pub(super) fn is_of(&self, snapshot: &Snapshot) -> bool {
        self.bares.len() == snapshot.nodes.len()
    }

    /// How many answers there are.
    pub(super) fn len(&self) -> usize {
        self.bares.iter().flatten().count()
    }

    /// The answer about a candidate, if it is known.
    #[inline]
    pub(in crate::disrupt) fn find(&self, candidate: &Candidate) -> Option<(&Bare<Brief>, &Glance)> {
        let bare = self.bares[candidate.node.index()].as_ref()?;
        Some((bare, &self.glances[candidate.node.index()]))
    }

    /// Takes in answers, which candidates may share that are alike; for this pass, or for those to come, too.
    pub(in crate::disrupt) fn take_in(
        &mut self,
        snapshot: &Snapshot,
        candidates: &[&Candidate],
        answers: Vec<Arc<Bare<Brief>>>,
        is_kept: bool,
    ) {
        if is_kept {
            self.least.resize(self.bares.len() * self.width, 0);
            self.in_vain.resize(self.bares.len() * self.width, 0);
        }
        // Of shared answers, the node about which each was taken in first.
        let mut firsts: FxHashMap<*const Bare<Brief>, usize> = FxHashMap::default();
        for (candidate, bare) in candidates.iter().zip(answers) {
            let node = candidate.node.index();
            let is_shared = Arc::strong_count(&bare) > 1;
            let first = is_shared.then(|| *firsts.entry(Arc::as_ptr(&bare)).or_insert(node));
            match first.filter(|first| *first != node) {
                Some(first) => self.copy(first, node, is_kept),
                None => self.read(snapshot, candidate, &bare, is_kept),
            }
            if self.glances[node].is_told
                && let Err(stop) = &bare.found
            {
                self.tell(snapshot, candidate.node, &stop.text);
            }
            self.bares[node] = Some(bare);
        }
    }

    /// What is known of an answer besides itself.
    fn read(&mut self, snapshot: &Snapshot, candidate: &Candidate, bare: &Bare<Brief>, is_kept: bool) {
        let (node, width) = (candidate.node.index(), self.width);
        self.glances[node] = Glance::of(bare);
        if !is_kept {
            return;
        }
        let asked = Asked::by(snapshot, candidate.moving(snapshot).iter().copied());
        let row = node * width..(node + 1) * width;
        self.least[row.clone()].copy_from_slice(&asked.least().0);
        match bare.reads.in_vain() {
            Some(in_vain) => self.in_vain[row].copy_from_slice(&in_vain.0),
            // No room is enough.
            None => self.in_vain[row].fill(i64::MAX),
        }
        self.glances[node] = self.glances[node].reading(&bare.reads, asked.classes());
        self.asked[node] = Some(Arc::new(asked));
    }

    /// The same of one that two share: their pods ask for the same.
    fn copy(&mut self, from: usize, to: usize, is_kept: bool) {
        self.glances[to] = self.glances[from];
        if is_kept {
            self.asked[to] = self.asked[from].clone();
            let row = from * self.width..(from + 1) * self.width;
            self.least.copy_within(row.clone(), to * self.width);
            self.in_vain.copy_within(row, to * self.width);
        }
    }

    fn tell(&mut self, snapshot: &Snapshot, node: NodeId, text: &str) {
        let told = &mut self.told[node.index()];
        if told.first().is_none_or(|event| event.message != text) {
            *told = events::unconsolidatable(snapshot, node, text);
        }
    }

    /// The events about a candidate that its answer gives rise to.
    pub(in crate::disrupt) fn told(&self, candidate: &Candidate) -> &[Arc<Event>] {
        &self.told[candidate.node.index()]
    }

    fn drop(&mut self, node: usize) {
        (self.bares[node], self.asked[node]) = (None, None);
    }

    /// Gives nodes the numbers that they have now. What is said of nodes that are not there any more goes, and so does what has read one of them.
    pub(super) fn renumber_nodes(mut self, snapshot: &Snapshot, nodes: &NodeNumbers) -> Self {
        let width = self.width;
        let mut new = Singles::of(snapshot);
        if !self.least.is_empty() {
            new.least.resize(new.bares.len() * width, 0);
            new.in_vain.resize(new.bares.len() * width, 0);
        }
        for was in 0..self.bares.len() {
            let Some(node) = nodes.of(NodeId::from(was)).map(NodeId::index) else {
                continue;
            };
            new.told[node] = std::mem::take(&mut self.told[was]);
            let (Some(mut bare), Some(asked)) = (self.bares[was].take(), self.asked[was].take()) else {
                continue;
            };
            new.glances[node] = self.glances[was];
            let read = bare.reads.nodes();
            if read.iter().any(|read| nodes.of(*read) != Some(*read)) {
                if Arc::make_mut(&mut bare).reads.renumber(nodes).is_none() {
                    continue;
                }
                new.glances[node] = Glance::of(&bare).reading(&bare.reads, asked.classes());
            }
            let (from, to) = (was * width..(was + 1) * width, node * width..(node + 1) * width);
            new.least[to.clone()].copy_from_slice(&self.least[from.clone()]);
            new.in_vain[to].copy_from_slice(&self.in_vain[from]);
            (new.bares[node], new.asked[node]) = (Some(bare), Some(asked));
        }
        new
    }

    /// Drops what does not hold on another Snapshot, and takes its numbers.
    pub(super) fn renew(&mut self, news: &News, read: &Read<'_>) {
        for node in &news.changed {
            self.drop(node.index());
            self.told[node.index()].clear();
        }
        let looked_at = LookedAt::of(news, read);
        for node in 0..self.bares.len() {
            if self.bares[node].is_none() {
                continue;
            }
            if !self.surely_holds(node, &looked_at) {
                self.look(node, news, read);
                continue;
            }
            debug_assert!(
                self.bares[node]
                    .as_ref()
                    .zip(self.asked[node].as_ref())
                    .is_some_and(|(bare, asked)| is_same(node, bare, asked, read)),
                "what a glance lets through holds"
            );
        }
    }

    #[cfg(debug_assertions)]
    pub(super) fn assert_refuses_as(&self, other: &Singles) {
        for (node, (own, other)) in self.bares.iter().zip(&other.bares).enumerate() {
            if let Some((own, other)) = own.as_ref().zip(other.as_ref()) {
                assert_eq!(
                    own.hurdles(),
                    other.hurdles(),
                    "what is kept of node {node} is what is said of it anew"
                );
            }
        }
    }

    /// Whether nothing that an answer has read has changed, as far as a glance can tell.
    #[inline]
    fn surely_holds(&self, node: usize, looked_at: &LookedAt<'_>) -> bool {
        let glance = &self.glances[node];
        let row = node * self.width..(node + 1) * self.width;
        let may_have_gained = |(at, room): &(NodeId, ResourceVector)| {
            fits(&self.in_vain[row.clone()], room)
                || (at.0 < glance.end && fits(&self.least[row.clone()], room))
        };
        let is_unsettled = looked_at.unsettles_all || (looked_at.unsettles_named && glance.names_pods);
        let may_have_changed = is_unsettled
            || glance.nodes.meets(&looked_at.lost)
            || glance.classes.meets(&looked_at.classes)
            || looked_at.gained.iter().any(may_have_gained);
        !may_have_changed
    }

    /// Looks at an answer itself.
    fn look(&mut self, node: usize, news: &News, read: &Read<'_>) {
        let both = self.bares[node].as_mut().zip(self.asked[node].as_mut());
        let holds = both.and_then(|(bare, asked)| {
            if !news.delta.has_same_classes() {
                Arc::make_mut(asked).renumber(&news.delta)?;
            }
            if !is_same(node, bare, asked, read) {
                return None;
            }
            let pods = &news.delta.pods;
            if !pods.is_same() && bare.names_pods() {
                Arc::make_mut(bare).renumber(&|pod| pods.of(pod))?;
            }
            Some(Glance::of(bare).reading(&bare.reads, asked.classes()))
        });
        match holds {
            Some(glance) => self.glances[node] = glance,
            None => self.drop(node),
        }
    }
}

/// Whether an answer about a node stays what it is.
fn is_same(node: usize, bare: &Bare<Brief>, asked: &Asked, read: &Read<'_>) -> bool {
    read.is_same(&[NodeId::from(node)], asked, &bare.reads, bare.names_pods())
}

/// Whether a room is large enough. Most Snapshots have the first four resources only: these are compared without a loop.
#[inline]
fn fits(asked: &[i64], room: &ResourceVector) -> bool {
    match (asked, room.0.as_slice()) {
        ([a, b, c, d], [e, f, g, h]) => (a <= e) & (b <= f) & (c <= g) & (d <= h),
        (asked, room) => asked.iter().zip(room).all(|(asked, room)| asked <= room),
    }
}

/// What a glance looks for.
struct LookedAt<'r> {
    lost: Bloom,
    gained: &'r [(NodeId, ResourceVector)],
    classes: Bloom,
    /// Classes have other numbers, or nodes say something else of attach limits: which pods have volumes is not seen at a glance.
    unsettles_all: bool,
    /// What names pods may have to name others, or say otherwise why they have no place.
    unsettles_named: bool,
}

impl<'r> LookedAt<'r> {
    fn of(news: &News, read: &Read<'r>) -> Self {
        let mut looked_at = LookedAt {
            lost: Bloom::default(),
            gained: &read.difference.gained,
            classes: Bloom::default(),
            unsettles_all: !news.delta.has_same_classes() || read.has_other_lent_limits,
            unsettles_named: !news.delta.pods.is_same() || read.has_other_nodes,
        };
        for node in &read.difference.lost {
            looked_at.lost.insert(node.index());
        }
        for class in read.recounts.classes() {
            looked_at.classes.insert(class.index());
        }
        looked_at
    }
}
