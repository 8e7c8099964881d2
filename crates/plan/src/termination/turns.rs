//! In which order pods of nodes that disruption removes are evicted: the large ones first, across nodes (W-63).
//!
//! Owns who waits for whom and for how long. It never evicts, and what is said of a pod here holds nothing up for longer than [`LONGEST_WAIT`].

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, DISRUPTION_REASON};
use spokeshave_model::Pod;
use spokeshave_model::pod::{self, is_evictable, is_terminating};

use super::own_deadline;
use super::pods::{delete_after, tier};
use crate::durations::signed;

/// No pod waits longer for larger ones.
pub const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long smaller pods wait once the eviction of the last larger one was accepted: its replacement is created and scheduled meanwhile.
const BINDING: Duration = Duration::from_secs(1);
/// The nodes of one command begin to drain one after the other: nobody goes before no pod has been added for this long …
const BEGINNING: Duration = Duration::from_millis(500);
/// … but waits for that no longer than this.
const LONGEST_BEGINNING: Duration = Duration::from_secs(2);
/// Pause between two looks while larger pods are yet to be accepted; so much longer for every [`LOOK_PODS`] that wait.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_PODS: usize = 2_000;

/// How large a pod is: the power of two of what it requests. Pods of one size go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u32);

impl Size {
    /// The size of a pod: milli-cores, and memory at 4 GiB a core.
    fn of(pod: &Pod) -> Self {
        let requests = pod::requests(pod);
        let milli = requests.get("cpu").max(0).unsigned_abs();
        let bytes = requests.get("memory").max(0).unsigned_abs();
        let amount = milli.saturating_add(bytes / (4 << 20));
        // In 1,024ths of a core, so that a whole core is where a size begins.
        Self((amount.saturating_mul(128) / 125).checked_ilog2().unwrap_or(0))
    }

    /// The size of a pod that [takes its turn](takes_turn).
    #[must_use]
    pub fn of_turn(
        pod: &Pod,
        claim: Option<&NodeClaim>,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Self> {
        takes_turn(pod, claim, deadline, now).then(|| Self::of(pod))
    }
}

/// Whether a pod takes its turn: it is on a node that a command removes, and its controller creates another as soon as it terminates. Others go as soon as they
/// may, and nobody waits for them: those of other nodes and of nodes that are interrupted, DaemonSet and critical pods, what cannot be evicted, what would be
/// deleted for its deadline meanwhile, and what nobody replaces, or only once it is gone (StatefulSets, Jobs).
#[must_use]
pub fn takes_turn(pod: &Pod, claim: Option<&NodeClaim>, deadline: Option<Timestamp>, now: Timestamp) -> bool {
    let is_removed = |claim: &NodeClaim| claim.is_true(DISRUPTION_REASON) && !is_interrupted(claim, deadline);
    let soon = now.saturating_add(signed(LONGEST_WAIT)).unwrap_or(now);
    claim.is_some_and(is_removed)
        && is_replaced_at_once(pod)
        && tier(pod) == 1
        && is_evictable(pod, now)
        && !is_terminating(pod)
        && delete_after(pod, deadline).is_none_or(|due| due > soon)
}

/// Whether somebody else has said when the node ends than its own terminationGracePeriod, as a cloud that takes the machine back does (invariant 33).
fn is_interrupted(claim: &NodeClaim, deadline: Option<Timestamp>) -> bool {
    deadline.is_some() && deadline != own_deadline(claim)
}

fn is_replaced_at_once(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners
        .find(|owner| owner.controller == Some(true))
        .is_some_and(|owner| !matches!(owner.kind.as_str(), "StatefulSet" | "Job"))
}

/// Pods that take turns, by UID. Whoever forgets them (a restart) begins anew.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    pods: BTreeMap<String, Turn>,
    sizes: BTreeMap<Size, Going>,
    /// Who was added when, in that order; some have left meanwhile.
    added: VecDeque<(Timestamp, String)>,
    /// Whose eviction was accepted when, in that order.
    accepted: VecDeque<(Timestamp, String)>,
    /// When a pod was last added.
    last_added: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    size: Size,
    since: Timestamp,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It waits, and smaller ones wait for it.
    Waits,
    /// It has waited for as long as it had to, and nobody waits for it any more.
    Overdue,
    /// Its eviction was accepted, and its replacement has its second.
    Accepted,
    /// Its eviction was accepted when nobody waited for it any more. It is known for as long as the other, because news of its end may come late.
    AcceptedLate,
}

/// What goes on among the pods of one size.
#[derive(Clone, Copy, Debug, Default)]
struct Going {
    /// How many wait, without those that are overdue.
    waiting: usize,
    /// How many replacements have their second.
    binding: usize,
    /// When an eviction was last accepted.
    accepted: Option<Timestamp>,
}

impl Turns {
    /// A pod is to be evicted. One that is known keeps its place.
    pub fn add(&mut self, uid: &str, size: Size, now: Timestamp) {
        self.pass(now);
        if self.pods.contains_key(uid) {
            return;
        }
        let turn = Turn {
            size,
            since: now,
            standing: Standing::Waits,
        };
        self.pods.insert(uid.to_owned(), turn);
        self.sizes.entry(size).or_default().waiting += 1;
        self.added.push_back((now, uid.to_owned()));
        self.last_added = Some(now);
    }

    /// Whether a pod is known: it waits, or its eviction was accepted a moment ago.
    #[must_use]
    pub fn contains(&mut self, uid: &str, now: Timestamp) -> bool {
        self.pass(now);
        self.pods.contains_key(uid)
    }

    /// How long a pod still waits before it is looked at again; zero when it may go now, also for a pod that takes no turn.
    #[must_use]
    pub fn wait(&mut self, uid: &str, now: Timestamp) -> Duration {
        self.pass(now);
        let waits = |turn: &&Turn| turn.standing == Standing::Waits;
        let Some(turn) = self.pods.get(uid).filter(waits) else {
            return Duration::ZERO;
        };
        let begins = self
            .last_added
            .map_or(Duration::ZERO, |last| until(last, BEGINNING, now))
            .min(until(turn.since, LONGEST_BEGINNING, now));
        let look = LOOK.saturating_mul(u32::try_from(1 + self.pods.len() / LOOK_PODS).unwrap_or(u32::MAX));
        let larger = self.sizes.iter().rev().take_while(|(size, _)| **size > turn.size);
        let larger = larger.map(|(_, going)| {
            let binds = going.accepted.filter(|_| going.binding > 0);
            let binds = binds.map_or(Duration::ZERO, |accepted| until(accepted, BINDING, now));
            if going.waiting > 0 { binds.max(look) } else { binds }
        });
        larger
            .fold(begins, Duration::max)
            .min(until(turn.since, LONGEST_WAIT, now))
    }

    /// The eviction of a pod was accepted.
    pub fn accept(&mut self, uid: &str, now: Timestamp) {
        self.pass(now);
        let Some(turn) = self.pods.get_mut(uid) else {
            return;
        };
        match turn.standing {
            Standing::Accepted | Standing::AcceptedLate => return,
            Standing::Overdue => turn.standing = Standing::AcceptedLate,
            Standing::Waits => {
                turn.standing = Standing::Accepted;
                let going = self.sizes.entry(turn.size).or_default();
                going.waiting -= 1;
                going.binding += 1;
                going.accepted = Some(now);
            }
        }
        self.accepted.push_back((now, uid.to_owned()));
    }

    /// Nobody waits for a pod any more, nor it for others: it was refused, is protected or gone, or its node is interrupted. One whose eviction was accepted stays
    /// until its replacement has had its second.
    pub fn leave(&mut self, uid: &str) {
        let is_accepted = |turn: &Turn| matches!(turn.standing, Standing::Accepted | Standing::AcceptedLate);
        if !self.pods.get(uid).is_some_and(is_accepted) {
            self.remove(uid);
        }
    }

    /// Time passes: replacements have had their second, and pods have waited for as long as they had to.
    fn pass(&mut self, now: Timestamp) {
        while let Some((accepted, _)) = self.accepted.front()
            && until(*accepted, BINDING, now).is_zero()
            && let Some((_, uid)) = self.accepted.pop_front()
        {
            self.remove(&uid);
        }
        while let Some((added, _)) = self.added.front()
            && until(*added, LONGEST_WAIT, now).is_zero()
            && let Some((added, uid)) = self.added.pop_front()
        {
            let Some(turn) = self.pods.get_mut(&uid) else {
                continue;
            };
            if turn.since == added && turn.standing == Standing::Waits {
                turn.standing = Standing::Overdue;
                let size = turn.size;
                self.count(size, |going| going.waiting -= 1);
            }
        }
    }

    fn remove(&mut self, uid: &str) {
        let Some(turn) = self.pods.remove(uid) else { return };
        match turn.standing {
            Standing::Waits => self.count(turn.size, |going| going.waiting -= 1),
            Standing::Overdue | Standing::AcceptedLate => {}
            Standing::Accepted => self.count(turn.size, |going| going.binding -= 1),
        }
    }

    fn count(&mut self, size: Size, change: impl FnOnce(&mut Going)) {
        let Some(going) = self.sizes.get_mut(&size) else {
            return;
        };
        change(going);
        if going.waiting == 0 && going.binding == 0 {
            self.sizes.remove(&size);
        }
    }
}

/// What is left of a duration that began at an instant.
fn until(since: Timestamp, duration: Duration, now: Timestamp) -> Duration {
    let left = signed(duration).saturating_sub(now.duration_since(since));
    Duration::try_from(left).unwrap_or(Duration::ZERO).min(duration)
}
