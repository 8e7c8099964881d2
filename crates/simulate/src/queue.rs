//! The event queue: what wakes up when, in whole milliseconds.
//!
//! Owns the order: by time; at one instant first what follows at once from what has just happened, then what was due then anyway, each in the order in which it
//! was added. It never looks at what an entry means.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::pods::PodId;

/// What wakes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wake {
    /// The next entry of the timeline is due.
    Timeline,
    /// A pod on a node becomes ready.
    PodReady(PodId),
    /// A pod completes.
    PodEnds(PodId),
    /// A deleted pod has terminated.
    PodStopped(PodId),
    /// A Job makes another pod of this number, by position of its owner.
    JobGoesOn(u32, u64),
    /// The scheduler looks at pods that wait.
    Schedule,
    /// The cloud answers a launch.
    LaunchAnswered(u32),
    /// The kubelet of an instance joins.
    NodeJoins(u32),
    /// The node of an instance becomes ready.
    NodeReady(u32),
    /// The cloud announces that it takes an instance back.
    SpotNotice(u32),
    /// The cloud takes an instance back, whatever still runs on it.
    SpotEnd(u32),
    /// A deleted instance has terminated.
    InstanceEnds(u32),
    /// A NodeClaim is reconciled.
    Claim(u32),
    /// The timer of NodeClaims, by its number.
    Claims(u64),
    /// A pod event that came too soon after another is written on the NodeClaim of its node.
    PodEvent(u32),
    /// A Node that is being deleted is reconciled.
    Node(u32),
    /// A queued eviction is tried.
    Evict(PodId),
    /// The batching window may close.
    Batch(u64),
    /// A provisioning pass that waits for no window.
    Urge,
    /// Pods that still wait ask for another provisioning pass.
    Retrigger,
    /// The nodes of a NodePool are counted, by its position.
    Count(usize),
    /// A NodePool with a fixed number of nodes is reconciled, by its position.
    StaticPool(usize),
    /// The disruption loop takes a turn, by its number.
    Turn(u64),
    /// A command in progress is advanced.
    Command(u32),
    /// The offerings that the cloud has capacity for, or that the operator believes it has, change.
    Offerings,
    /// The scenario is over.
    End,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(u64, bool, u64, Wake)>>,
    added: u64,
}

impl Queue {
    /// Adds an entry that is due at this time, in milliseconds since the start.
    pub(crate) fn at(&mut self, at_ms: u64, wake: Wake) {
        self.heap.push(Reverse((at_ms, true, self.added, wake)));
        self.added += 1;
    }

    /// Adds an entry that follows at once, now, before everything else that is due now.
    pub(crate) fn at_once(&mut self, now_ms: u64, wake: Wake) {
        self.heap.push(Reverse((now_ms, false, self.added, wake)));
        self.added += 1;
    }

    /// Takes the next entry out.
    pub(crate) fn pop(&mut self) -> Option<(u64, Wake)> {
        self.heap.pop().map(|Reverse((at_ms, _, _, wake))| (at_ms, wake))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_instant_come_out_in_the_order_in_which_they_went_in() {
        let mut queue = Queue::default();
        queue.at(5, Wake::Turn(1));
        queue.at(3, Wake::Schedule);
        queue.at(5, Wake::Timeline);
        queue.at(5, Wake::Claim(0));
        queue.at_once(5, Wake::Command(1));
        let order: Vec<(u64, Wake)> = std::iter::from_fn(|| queue.pop()).collect();
        let expected = [
            (3, Wake::Schedule),
            (5, Wake::Command(1)),
            (5, Wake::Turn(1)),
            (5, Wake::Timeline),
            (5, Wake::Claim(0)),
        ];
        assert_eq!(order, expected);
    }
}
