//! Answers that are kept from one pass to the next, each for as long as nothing has changed that it has read.
//!
//! What is kept are the answers of what-ifs, of each candidate alone and of sets: where their pods would go and what would come instead ([`Bare`]). What depends on totals of
//! NodePools, on budgets or on the time is worked out anew in every pass, from these. Beside each answer stands what it has read: its pods, the nodes that
//! took them, the least that one of those asks for that no node took, and the classes whose rules of topology it followed. An answer is dropped
//!
//! - when its node, its pods or their price have changed;
//! - when a node that took one of its pods has less room, has become another or is gone. Where another node has less room, nothing changes: pods take the first node that has room, and
//!   each node before that one had too little already;
//! - when a node has more room, has become another or has come, and a pod that looked at it before it found a place, or that found none, may fit there now;
//! - when pods came or went that a rule of its pods counts, or whose anti-affinity keeps its pods away; and where there are other nodes, when any rule binds its
//!   pods, or it says why one has no place;
//! - when nodes say something else of what nodes of their type attach, and its pods have volumes: what would come instead is limited by it, and so is a node that
//!   says nothing itself.
//!
//! Of nearly all answers a glance says that they hold ([`singles`]); events about nodes are kept beside them.
//!
//! What was said about sets is dropped when nodes have other numbers. When anything else differs (NodePools, instance types, limits, DaemonSets, settings),
//! everything is, and so it is after a pass that has asked for no answer, because a method before consolidation had a command. So a pass with kept answers
//! decides what one without decides, bit for bit; debug builds compare the two for small clusters. It knows no clock.

mod counts;
mod marks;
mod nodes;
mod pieces;
mod reads;
mod seen;
mod sets;
mod singles;

pub(super) use marks::Renumbered;
pub(super) use nodes::NodeNumbers;
pub(super) use reads::Reads;
pub(super) use seen::Delta;
pub(super) use sets::{KeptSets, LONGEST_SWEEP};
pub(super) use singles::{Glance, Singles};

use super::candidates::Candidate;
use super::ground::Ground;
use super::register::Register;
use crate::policy::Policy;
use counts::Recounts;
use jiff::Timestamp;
use reads::Asked;
use seen::Seen;
use spokeshave_model::snapshot::{NodeId, PodId, PodView, Snapshot};
use spokeshave_schedule::{Difference, Start};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// What one pass leaves to the next so that the next is faster: it has no influence on what is decided, and is safe to lose.
#[derive(Clone, Default)]
pub struct Kept(Option<Box<Last>>);

/// What the last pass has seen, and what it found.
#[derive(Clone)]
struct Last {
    seen: Seen,
    register: Arc<Register>,
    /// How that differs from what answers are about.
    news: Option<News>,
    answers: Option<Answers>,
}

/// What has changed since answers were last looked at.
#[derive(Clone)]
struct News {
    delta: Delta,
    /// Nodes whose candidate may be another, in order.
    changed: Vec<NodeId>,
}

/// Answers of what-ifs.
#[derive(Clone)]
struct Answers {
    policy: Policy,
    /// Pods that wait or move anyway open host ports or attach volumes: which are taken where, nobody compares.
    base_is_special: bool,
    start: Start,
    alone: Singles,
    sets: KeptSets,
}

/// Nodes that an answer is about, and their pods.
#[derive(Clone)]
struct Own {
    nodes: Vec<NodeId>,
    asked: Asked,
}

/// What has changed that answers may have read.
struct Read<'r> {
    snapshot: &'r Snapshot,
    difference: &'r Difference,
    recounts: &'r Recounts,
    /// Nodes have come, gone or become others.
    has_other_nodes: bool,
    /// Nodes say something else of the attach limits of others.
    has_other_lent_limits: bool,
}

/// More nodes with other room than this are not looked at one by one: everything is dropped.
const MOST_CHANGES: usize = 256;

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answers = self.answers().map_or(0, |answers| answers.alone.len());
        f.debug_struct("Kept").field("answers", &answers).finish()
    }
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

    /// The register of this Snapshot, from that of the last. Debug builds compare the two, where the cluster is small.
    pub(super) fn register(&mut self, snapshot: &Snapshot, now: Timestamp) -> Arc<Register> {
        if let Some(last) = &mut self.0
            && let Some(delta) = last.seen.follow(snapshot)
        {
            let changed = Arc::make_mut(&mut last.register).renew(snapshot, now, &delta);
            #[cfg(debug_assertions)]
            if snapshot.pods.len() <= super::pass::COMPARED_PODS {
                let anew = Register::of(snapshot, now);
                assert_eq!(
                    *last.register, anew,
                    "a register that was kept is one that is made anew"
                );
            }
            if last.news.is_some() {
                // No answer was asked for in the last pass, so that none has learnt of what was new to it.
                last.answers = None;
            }
            last.news = Some(News { delta, changed });
            return Arc::clone(&last.register);
        }
        let register = Arc::new(Register::of(snapshot, now));
        self.0 = Some(Box::new(Last {
            seen: Seen::of(snapshot),
            register: Arc::clone(&register),
            news: None,
            answers: None,
        }));
        register
    }

    /// Drops all answers: nobody asks for them.
    pub(super) fn forget_answers(&mut self) {
        if let Some(last) = &mut self.0 {
            (last.answers, last.news) = (None, None);
        }
    }

    /// The answers of before that still hold, by node. From now on what is kept belongs to this Snapshot, whose register was made, and whose what-ifs start
    /// from `start`. O(answers).
    pub(super) fn renew(&mut self, ground: &Ground<'_>, start: Start) {
        let Some(last) = &mut self.0 else { return };
        let both = last.answers.take().zip(last.news.take());
        let renewed = both.and_then(|(answers, news)| answers.renewed(ground, &start, &news));
        let mut answers = match renewed {
            Some(answers) => Answers { start, ..answers },
            None => Answers::new(ground, start),
        };
        answers.sets.begin();
        last.answers = Some(answers);
    }

    /// The answers about single nodes that still hold, to be added to and put back; nothing known where nobody has asked yet.
    pub(super) fn take_singles(&mut self, snapshot: &Snapshot) -> Singles {
        let answers = self.0.as_mut().and_then(|last| last.answers.as_mut());
        answers.map_or_else(
            || Singles::of(snapshot),
            |answers| std::mem::take(&mut answers.alone),
        )
    }

    /// Puts answers back where they were taken.
    pub(super) fn put_singles(&mut self, singles: Singles) {
        let answers = self.0.as_mut().and_then(|last| last.answers.as_mut());
        if let Some(answers) = answers {
            answers.alone = singles;
        }
    }

    /// Of what is known about single nodes here and there, nothing is refused for another reason, another pod among them.
    #[cfg(debug_assertions)]
    pub(super) fn assert_refuses_as(&self, other: &Kept) {
        if let Some((own, other)) = self.answers().zip(other.answers()) {
            own.alone.assert_refuses_as(&other.alone);
        }
    }

    fn answers(&self) -> Option<&Answers> {
        self.0.as_ref()?.answers.as_ref()
    }

    /// What the search over sets has asked.
    pub(super) fn sets(&mut self) -> Option<&mut KeptSets> {
        let answers = self.0.as_mut()?.answers.as_mut()?;
        Some(&mut answers.sets)
    }
}

/// Whether a pod that waits or moves anyway opens a host port or attaches a volume.
fn has_special_base(ground: &Ground<'_>) -> bool {
    let (snapshot, register) = (ground.snapshot, &ground.register);
    let is_special = |view: &PodView| {
        !view.attachments().is_empty() || !snapshot.classes[view.class.index()].host_ports.is_empty()
    };
    let leaving = register.leaving().flat_map(|node| &snapshot.node(node).pods);
    let mut moving = leaving.map(|pod| snapshot.pod(*pod));
    let mut waiting = register.restless(snapshot).filter(|(_, view)| view.provisionable);
    moving.any(is_special) || waiting.any(|(_, view)| is_special(view))
}

/// A policy, as far as answers depend on it.
fn of_answers(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    // Whether nodes are judged as well, and on how many threads, changes no answer.
    (policy.disrupt.verdicts, policy.disrupt.threads) = (false, 1);
    policy
}

impl Own {
    fn of(snapshot: &Snapshot, set: &[&Candidate]) -> Self {
        let moving: Vec<PodId> = set
            .iter()
            .flat_map(|candidate| candidate.moving(snapshot).into_owned())
            .collect();
        Own {
            nodes: set.iter().map(|candidate| candidate.node).collect(),
            asked: Asked::by(snapshot, moving.into_iter()),
        }
    }

    /// Whether these are the nodes, in this order. Their pods are what they were, or the answer were gone.
    fn is(&self, set: &[&Candidate]) -> bool {
        let nodes = set.iter().map(|candidate| &candidate.node);
        self.nodes.iter().eq(nodes)
    }

    /// Takes the numbers of another Snapshot; none when one of the nodes has changed.
    fn renew(&mut self, news: &News) -> Option<()> {
        let is_changed = |node: &NodeId| news.changed.binary_search(node).is_ok();
        if self.nodes.iter().any(is_changed) {
            return None;
        }
        self.asked.renumber(&news.delta)
    }
}

impl Read<'_> {
    /// Whether an answer about these nodes that has read so much stays what it is; `tells_counts` when it may say how many pods are where.
    fn is_same(&self, nodes: &[NodeId], asked: &Asked, reads: &Reads, tells_counts: bool) -> bool {
        let classes = asked.classes();
        // Why a pod has no place may be told by the nodes that there are.
        let is_named = tells_counts && self.has_other_nodes;
        let is_limited = self.has_other_lent_limits && attach(self.snapshot, nodes);
        !is_named
            && !is_limited
            && asked.survives(reads, self.difference)
            && !self
                .recounts
                .may_change(self.snapshot, classes, nodes, tells_counts)
    }
}

/// Whether a pod of these nodes attaches a volume.
fn attach(snapshot: &Snapshot, nodes: &[NodeId]) -> bool {
    let mut pods = nodes.iter().flat_map(|node| &snapshot.node(*node).pods);
    pods.any(|pod| !snapshot.pod(*pod).attachments().is_empty())
}

impl Answers {
    /// With nothing known.
    fn new(ground: &Ground<'_>, start: Start) -> Self {
        Answers {
            policy: of_answers(ground.policy),
            base_is_special: has_special_base(ground),
            start,
            alone: Singles::of(ground.snapshot),
            sets: KeptSets::default(),
        }
    }

    /// What is left of them on another Snapshot; none when nothing is.
    fn renewed(mut self, ground: &Ground<'_>, start: &Start, news: &News) -> Option<Self> {
        let (snapshot, delta) = (ground.snapshot, &news.delta);
        let is_special = self.base_is_special || has_special_base(ground);
        if is_special || self.policy != of_answers(ground.policy) {
            return None;
        }
        let mut before = Cow::Borrowed(&self.start);
        if !delta.nodes.are_same() {
            before = Cow::Owned(before.renumbered(snapshot.nodes.len(), |node| delta.nodes.of(node)));
            let alone = std::mem::take(&mut self.alone);
            self.alone = alone.renumber_nodes(snapshot, &delta.nodes);
            self.sets = KeptSets::default();
        }
        // A pass that panicked has not put its answers back.
        if !self.alone.is_of(snapshot) {
            return None;
        }
        let difference = start.difference(&before, &delta.others, |class| delta.class(class))?;
        if difference.lost.len() + difference.gained.len() > MOST_CHANGES {
            return None;
        }
        if delta.pods.are_special(snapshot, &delta.classes) {
            return None;
        }
        // What the pods that are gone kept away is known from their classes of before alone.
        let recounted = delta.pods.recounted(&delta.classes, snapshot);
        let has_other_nodes = delta.has_other_nodes();
        let recounts = if difference.base || has_other_nodes {
            Recounts::of_all_bound(snapshot, &recounted)
        } else {
            let is_leaving = |node: NodeId| ground.register.entry(node).is_leaving();
            Recounts::of(snapshot, &recounted, is_leaving)
        };
        let read = Read {
            snapshot,
            difference: &difference,
            recounts: &recounts,
            has_other_nodes,
            has_other_lent_limits: delta.has_other_lent_limits,
        };
        self.alone.renew(news, &read);
        self.sets.renew(news, &read);
        Some(self)
    }
}
