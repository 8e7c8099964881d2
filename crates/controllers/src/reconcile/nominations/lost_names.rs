//! Names that a scheduler has taken away before their node takes pods, until they are written again.
//!
//! Owns how soon that is. A scheduler tries waiting pods again whenever a node comes up or a pod ends, and empties the name of each that nothing takes, also while
//! its own node only gets ready: without the name the room there is anybody's, a moment later. Hence the name is written again at once. It is not woken by that; but
//! kube-scheduler takes an emptied name for the end of a pod there, and tries those again for which something was full, with their new names. That goes round, so
//! that it is bounded, for a pod and for all of them together, and slows down where a node does not get ready. Lost with the process: the next pass, and the step that finds the node ready, write what is missing.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::conditions::{Conditioned as _, INITIALIZED};
use spokeshave_model::planned_node::emptied;
use spokeshave_model::{Action, Pod};
use spokeshave_plan::nominations::after_loss;
use spokeshave_runtime::{Change, ObjectKey};

use super::named;
use crate::state::cluster::Cluster;

/// Losses of a pod that are made good at once, while no more than a hundred wait: nodes that were planned together come up within moments of one another, and each
/// may empty the names of all who wait for the others.
const LOSSES_AT_ONCE: usize = 10;
/// The same of all of them. Of more pods than that each loss but the first waits.
const ALL_AT_ONCE: usize = 1000;
/// Beyond that, one in so long.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// Where many wait, all of them together make good so many in a second.
const IN_A_SECOND: usize = 50;
/// A pod that goes on losing the name of one node waits for this part of the time since it lost it first: the node may never get ready.
const PART: i32 = 30;
/// No pod waits longer, however many there are.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// What a pod has lost.
#[derive(Debug, Default)]
struct Lost {
    node: String,
    /// When that name was lost first.
    first: Option<Timestamp>,
    /// Until when its losses use up what they may, one pause each.
    used_until: Timestamp,
    /// When the name is written again; `None` once it was.
    due: Option<Timestamp>,
}

impl Lost {
    /// One more loss, of so many pods that have lost theirs. Returns when it is made good.
    fn count(&mut self, pods: usize, now: Timestamp) -> Timestamp {
        let at_once = (ALL_AT_ONCE / pods.max(1)).clamp(1, LOSSES_AT_ONCE);
        let shared = i64::try_from(pods / IN_A_SECOND).map_or(SignedDuration::MAX, SignedDuration::from_secs);
        let since = now.duration_since(*self.first.get_or_insert(now));
        let pause = shared.max(since / PART).clamp(PAUSE, LONGEST_PAUSE);
        let later = |time: Timestamp, by: SignedDuration| time.saturating_add(by).unwrap_or(Timestamp::MAX);
        let free = i32::try_from(at_once - 1).unwrap_or_default();
        let due = now.max(later(self.used_until, -(pause * free)));
        self.used_until = later(self.used_until.max(now), pause);
        due
    }
}

/// Losses of pods that wait, by UID.
#[derive(Debug, Default)]
pub(super) struct LostNames {
    lost: BTreeMap<String, Lost>,
    /// What is to be written, by when and by the UID of the pod.
    again: BTreeMap<(Timestamp, String), Action>,
}

impl LostNames {
    /// A name was lost: it is written by this action, once its pause is over.
    pub(super) fn add(&mut self, action: Action, now: Timestamp) {
        let Some((uid, node)) = named(&action) else {
            return;
        };
        let uid = uid.to_owned();
        let pods = self.lost.len();
        let lost = self.lost.entry(uid.clone()).or_default();
        if lost.node != node {
            // Another node is another matter.
            *lost = Lost {
                node: node.to_owned(),
                due: lost.due,
                ..Lost::default()
            };
        }
        let due = lost.count(pods, now);
        if let Some(before) = lost.due.replace(due) {
            self.again.remove(&(before, uid.clone()));
        }
        self.again.insert((due, uid), action);
    }

    /// A pod does not wait any more.
    pub(super) fn forget(&mut self, uid: &str) {
        if let Some(Lost { due: Some(due), .. }) = self.lost.remove(uid) {
            self.again.remove(&(due, uid.to_owned()));
        }
    }

    /// Drops the names that are not wanted any more, by pod and node.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&str, &str) -> bool) {
        self.lost.retain(|uid, lost| is_wanted(uid, &lost.node));
        self.again.retain(|(_, uid), _| self.lost.contains_key(uid));
    }

    /// The pods whose names are to be written again.
    pub(super) fn pods(&self) -> impl Iterator<Item = &str> {
        self.again.keys().map(|(_, uid)| uid.as_str())
    }

    /// When the first is to be written.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.again.keys().next().map(|(due, _)| *due)
    }

    /// One that is to be written now.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<Action> {
        let first = self.again.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, uid), action) = first.remove_entry();
        if let Some(lost) = self.lost.get_mut(&uid) {
            lost.due = None;
        }
        Some(action)
    }
}

/// The name that a change has taken from a pod too early, as it is to be written again.
pub(super) fn lost(cluster: &Cluster, change: &Change<Pod>) -> Option<Action> {
    let pod = change.new.as_deref()?;
    let (node, since) = emptied(pod)?;
    // What else happens to a pod while it has no name is no new loss.
    let is_known = change.old.as_deref().and_then(emptied) == Some((node, since));
    let action = after_loss(pod, node, cluster.now()).filter(|_| !is_known)?;
    is_early(cluster, &action).then_some(action)
}

/// Whether a name is to be written again that was lost: its pod has got no other since, and its node does not take pods yet.
pub(super) fn is_still_lost(cluster: &Cluster, action: &Action) -> bool {
    let Action::NominatePod { target, node, .. } = action else {
        return false;
    };
    let key = ObjectKey::namespaced(target.namespace.as_str(), target.name.as_str());
    let pod = cluster.stores.pods.get(&key);
    let is_lost = pod.is_some_and(|pod| emptied(&pod).is_some_and(|(lost, _)| Some(lost) == node.as_deref()));
    is_lost && is_early(cluster, action)
}

/// Whether the node of a name is there, stays, and does not take pods yet. After that the scheduler has the last word.
fn is_early(cluster: &Cluster, action: &Action) -> bool {
    let node = named(action).and_then(|(_, node)| cluster.stores.nodes.get_named(node));
    let claim = node.and_then(|node| cluster.stores.claim_of_node(&node));
    claim.is_some_and(|claim| !claim.is_true(INITIALIZED) && !claim.is_deleting())
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_model::planned_node::names;
    use spokeshave_model::{ObjectKind, ObjectRef};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn name(pod: &str, node: &str) -> Action {
        Action::NominatePod {
            target: ObjectRef::namespaced(ObjectKind::Pod, "default", pod, pod),
            node: Some(node.to_owned()),
            condition: Box::new(names(node, at(0))),
        }
    }

    /// All that is to be written by then.
    fn taken(names: &mut LostNames, now: Timestamp) -> Vec<String> {
        let due = std::iter::from_fn(|| names.take_due(now));
        due.map(|action| named(&action).unwrap().0.to_owned()).collect()
    }

    #[test]
    fn w_62_ten_losses_are_made_good_at_once_and_then_one_a_second() {
        let mut names = LostNames::default();
        let mut now = at(100);
        for pause in [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1] {
            names.add(name("p", "a"), now);
            let due = now + SignedDuration::from_secs(pause);
            assert_eq!(names.next_due(), Some(due));
            assert!(taken(&mut names, due - SignedDuration::from_nanos(1)).is_empty());
            assert_eq!(taken(&mut names, due), ["p"]);
            assert_eq!(names.next_due(), None);
            now = due;
        }
        // After a while without a loss it may lose as many at once again.
        now += SignedDuration::from_secs(60);
        for _ in 0..10 {
            names.add(name("p", "a"), now);
            assert_eq!(taken(&mut names, now), ["p"]);
        }
        names.add(name("p", "a"), now);
        assert!(taken(&mut names, now).is_empty());
    }

    #[test]
    fn w_62_of_a_node_that_never_gets_ready_names_are_written_less_and_less_often() {
        let mut names = LostNames::default();
        let (mut now, mut writes) = (at(0), 0);
        while now < at(24 * 3600) {
            names.add(name("p", "a"), now);
            now = names.next_due().unwrap();
            assert_eq!(taken(&mut names, now), ["p"]);
            writes += 1;
        }
        assert!((400..600).contains(&writes), "{writes} writes in a day");
        // Another node is another matter.
        for _ in 0..10 {
            names.add(name("p", "b"), now);
            assert_eq!(taken(&mut names, now), ["p"]);
        }
        names.add(name("p", "b"), now);
        assert_eq!(names.next_due(), Some(now + PAUSE));
    }

    #[test]
    fn w_62_of_many_pods_each_loss_is_made_good_and_all_together_at_a_bounded_rate() {
        let mut names = LostNames::default();
        for pod in 0..=1000 {
            names.add(name(&format!("p-{pod}"), "a"), at(0));
        }
        assert_eq!(taken(&mut names, at(0)).len(), 1001, "the first of each at once");
        names.add(name("p-1000", "a"), at(0));
        assert_eq!(names.next_due(), Some(at(20)), "1000 pods, 50 in a second");
    }

    #[test]
    fn w_62_a_name_is_lost_once_however_often_that_is_said_and_not_at_all_by_who_waits_no_more() {
        let mut names = LostNames::default();
        for pod in ["p", "q", "r"] {
            names.add(name(pod, "a"), at(0));
        }
        names.add(name("p", "a"), at(0));
        assert_eq!(names.pods().count(), 3);
        names.forget("q");
        names.retain(|pod, node| pod != "r" || node == "b");
        assert_eq!(taken(&mut names, at(1)), ["p"]);
        // Whoever waits again begins anew.
        names.forget("p");
        names.add(name("p", "a"), at(2));
        assert_eq!(taken(&mut names, at(2)), ["p"]);
    }
}
