//! The node that waiting pods name as theirs, written after each pass, when a Node joins, and when a scheduler has taken a name away before the Node takes pods.
//!
//! Owns what is remembered of pods between the pass that has planned them and the Node that joins, and of names until they are written. `plan::nominations`
//! decides who names what, and `lost_names` when a lost name is written again.

mod lost_names;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable};
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, REGISTERED};
use spokeshave_model::planned_node::{is_provisionable, planned};
use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_model::{Action, Pod};
use spokeshave_plan::Provisioned;
use spokeshave_plan::lifecycle::Progress;
use spokeshave_plan::nominations::{Nominations, after_loss, at_registration, named_since};
use spokeshave_runtime::{Change, ObjectKey};
use tokio::sync::Notify;

use crate::act::hands::{AT_ONCE, Hands};
use crate::state::cluster::Cluster;
use lost_names::LostNames;

/// Names of nodes that are there, which wait to be written or are under way. Thousands may take half a minute: no pass waits for those of the one before.
#[derive(Debug, Default)]
pub(crate) struct Names {
    unwritten: Mutex<Unwritten>,
    fresh: Notify,
}

#[derive(Debug, Default)]
struct Unwritten {
    waiting: VecDeque<Action>,
    /// The nodes, with what drops the write, by UID of the pod.
    under_way: BTreeMap<String, (String, AbortHandle)>,
    lost: LostNames,
}

impl Unwritten {
    /// Whether the name of another node is being written for a pod: it is newer than one that was lost.
    fn names_another(&self, action: &Action) -> bool {
        named(action).is_some_and(|(pod, node)| {
            let writes = self.under_way.get(pod);
            writes.is_some_and(|(other, _)| other != node)
        })
    }
}

impl Names {
    /// Of these pods, drops the names that are other ones now, so that none is written after a newer one, or after it was taken back. Those that stand, by pod, may
    /// have been lost since the pass began. Returns the names that are new: those on their way may have been written by the time that the others are added.
    fn keep(
        &self,
        about: &BTreeSet<&str>,
        standing: BTreeMap<&str, &str>,
        names: Vec<Action>,
    ) -> Vec<Action> {
        let mut wanted: BTreeMap<&str, &str> = standing;
        wanted.extend(names.iter().filter_map(named));
        let is_wanted =
            |pod: &str, node: &str| !about.contains(pod) || wanted.get(pod).is_some_and(|one| *one == node);
        let mut unwritten = self.lock();
        unwritten
            .waiting
            .retain(|action| named(action).is_some_and(|(pod, node)| is_wanted(pod, node)));
        unwritten.under_way.retain(|pod, (node, write)| {
            let is_kept = is_wanted(pod, node);
            if !is_kept {
                write.abort();
            }
            is_kept
        });
        unwritten.lost.retain(is_wanted);
        let waiting = unwritten.waiting.iter().filter_map(named);
        let waiting = waiting.map(|(pod, _)| pod).chain(unwritten.lost.pods());
        let under_way = unwritten.under_way.keys().cloned();
        let known: BTreeSet<String> = waiting.map(str::to_owned).chain(under_way).collect();
        let is_new = |action: &Action| named(action).is_some_and(|(pod, _)| !known.contains(pod));
        names.into_iter().filter(is_new).collect()
    }

    /// Adds the new names of a pass.
    pub(crate) fn add(&self, names: Vec<Action>) {
        self.lock().waiting.extend(names);
        self.fresh.notify_one();
    }

    /// Hears of every change of a pod: a name that a scheduler has taken away before the node takes pods is written again.
    pub(crate) fn hear(&self, cluster: &Cluster, change: &Change<Pod>) {
        if !cluster.options.nominate_pods {
            return;
        }
        let bound = change.new.as_ref().filter(|pod| !is_provisionable(pod));
        for pod in change.ended().into_iter().chain(bound) {
            self.lock()
                .lost
                .forget(pod.metadata.uid.as_deref().unwrap_or_default());
        }
        if let Some(action) = lost_names::lost(cluster, change) {
            self.lock().lost.add(action, cluster.now());
            self.fresh.notify_one();
        }
    }

    /// Writes them, many at once, for as long as it is polled.
    pub(crate) async fn write(&self, cluster: &Cluster, hands: &Hands) {
        let mut writes = FuturesUnordered::new();
        loop {
            while writes.len() < AT_ONCE
                && let Some(write) = self.begin(cluster, hands)
            {
                writes.push(write);
            }
            tokio::select! {
                biased;
                Some(()) = writes.next() => {}
                () = self.fresh.notified() => {}
                () = self.until_due(cluster), if writes.len() < AT_ONCE => {}
            }
        }
    }

    /// Completes when a lost name is to be written again.
    async fn until_due(&self, cluster: &Cluster) {
        let due = self.lock().lost.next_due();
        match due {
            Some(due) => cluster.clock.sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// The next write for which its pod still waits. It is under way from now on.
    fn begin(&self, cluster: &Cluster, hands: &Hands) -> Option<impl Future<Output = ()>> {
        let mut unwritten = self.lock();
        while let Some(action) = unwritten.lost.take_due(cluster.now()) {
            if lost_names::is_still_lost(cluster, &action) && !unwritten.names_another(&action) {
                unwritten.waiting.push_back(action);
            }
        }
        let action = loop {
            let action = unwritten.waiting.pop_front()?;
            if still_waits(cluster, &action) {
                break action;
            }
        };
        let (pod, node) = named(&action)?;
        let (pod, node) = (pod.to_owned(), node.to_owned());
        let (handle, registration) = AbortHandle::new_pair();
        let before = unwritten.under_way.insert(pod.clone(), (node, handle));
        drop(unwritten);
        if let Some((_, earlier)) = before {
            // It was written and lost before its answer came.
            earlier.abort();
        }
        Some(async move {
            let write = hands.nominate_all(slice::from_ref(&action));
            // Where it was dropped, the entry may be that of a newer name.
            if Abortable::new(write, registration).await.is_ok() {
                self.lock().under_way.remove(&pod);
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The UID of a pod, and the node that it is to name.
fn named(action: &Action) -> Option<(&str, &str)> {
    match action {
        Action::NominatePod {
            target,
            node: Some(node),
            ..
        } => Some((target.uid.as_str(), node.as_str())),
        _ => None,
    }
}

/// The UID of the pod of a nomination.
fn about_pod(action: &Action) -> Option<&str> {
    match action {
        Action::NominatePod { target, .. } => Some(target.uid.as_str()),
        _ => None,
    }
}

/// Whether the pod of a name is there and without a node, and does not name it yet. Passes speak no more of those that are not, so that `keep` would retain their names.
fn still_waits(cluster: &Cluster, action: &Action) -> bool {
    let Action::NominatePod { target, node, .. } = action else {
        return false;
    };
    let key = ObjectKey::namespaced(target.namespace.as_str(), target.name.as_str());
    let pod = cluster.stores.pods.get(&key);
    pod.is_some_and(|pod| {
        let is_written = planned(&pod).is_some_and(|(name, _)| Some(name) == node.as_deref());
        pod.metadata.uid.as_ref() == Some(&target.uid) && is_provisionable(&pod) && !is_written
    })
}

/// After a pass: who is planned on a node that comes is remembered, and names that the plan does not bear out any more are taken back, or not written after all.
/// That is done before the pass's NodeClaims are created: taken back later, a name could be the one that a pod has got meanwhile, when its new node joined.
/// Returns the new names of nodes that are there, for the caller to add.
pub(crate) async fn follow(
    cluster: &Cluster,
    hands: &Hands,
    unwritten: &Names,
    snapshot: &Snapshot,
    outcome: &Provisioned,
) -> Vec<Action> {
    if !cluster.options.nominate_pods {
        return Vec::new();
    }
    let now = cluster.now();
    let nominations = Nominations::of(snapshot, outcome, now);
    let about: BTreeSet<&str> = outcome.pods.iter().map(|pod| snapshot.pod(*pod).uid()).collect();
    let (coming, joined) = part(cluster, nominations.expected);
    let places = coming.into_iter().map(|(pod, claim)| {
        let view = snapshot.pod(pod);
        (claim, view.uid().to_owned(), ObjectKey::of(&*view.object))
    });
    let claims = &cluster.stores.node_claims;
    let joins = |name: &str| {
        claims
            .get_named(name)
            .is_some_and(|claim| !claim.is_true(REGISTERED))
    };
    cluster.memory().expected.decided(&about, places, joins);
    let (mut names, taken_back): (Vec<Action>, Vec<Action>) = nominations
        .actions
        .into_iter()
        .partition(|action| named(action).is_some());
    names.extend(
        joined
            .iter()
            .filter_map(|(pod, node)| at_registration(&snapshot.pod(*pod).object, node, now)),
    );
    let given_up: BTreeSet<&str> = taken_back.iter().filter_map(about_pod).collect();
    let standing = standing(snapshot, outcome)
        .filter(|(pod, _)| !given_up.contains(pod))
        .collect();
    let new = unwritten.keep(&about, standing, names);
    hands.nominate_all(&taken_back).await;
    new
}

/// By UID, the pods that are planned where they have been named already, so that the pass writes nothing for them, with the node.
fn standing<'a>(
    snapshot: &'a Snapshot,
    outcome: &'a Provisioned,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let existing = outcome.placements.existing.iter();
    let places = existing.flat_map(|(node, pods)| pods.iter().map(move |pod| (*pod, *node)));
    places.filter_map(move |(pod, node)| {
        let (pod, node) = (snapshot.pod(pod), snapshot.node(node));
        named_since(&pod.object, node)?;
        Some((pod.uid(), node.node_name()?))
    })
}

/// Pods that are planned on nodes which have yet to join, with the NodeClaim of each, and those whose node has joined while the pass went on, with its name: nobody asks
/// any more for whom it has come.
fn part(cluster: &Cluster, expected: Vec<(PodId, String)>) -> (Vec<(PodId, String)>, Vec<(PodId, String)>) {
    let (mut coming, mut joined) = (Vec::new(), Vec::new());
    for (pod, claim) in expected {
        match joined_as(cluster, &claim) {
            Some(node) => joined.push((pod, node)),
            None => coming.push((pod, claim)),
        }
    }
    (coming, joined)
}

/// The name of the Node of a NodeClaim that is registered.
fn joined_as(cluster: &Cluster, claim: &str) -> Option<String> {
    let claim = cluster.stores.node_claims.get_named(claim)?;
    let node = claim.status.as_ref()?.node_name.clone();
    node.filter(|_| claim.is_true(REGISTERED))
}

/// Before a Node takes pods: those that were planned on it name it, once when it joins, and once more, should the scheduler have tried them meanwhile,
/// when it can run them.
pub(crate) async fn before_pods_come(
    cluster: &Cluster,
    hands: &Hands,
    claim: &NodeClaim,
    steps: &[Progress],
) {
    if !cluster.options.nominate_pods {
        return;
    }
    let now = cluster.now();
    let mut nominations: Vec<Action> = Vec::new();
    for step in steps {
        match step {
            Progress::Registered { node } => nominations.extend(of_expected(cluster, claim, node, now)),
            Progress::Initialized { node } => {
                // A pass may have expected some more while the Node was registered.
                nominations.extend(of_expected(cluster, claim, node, now));
                let named = cluster.stores.pods_by_planned_node.get(node).into_iter();
                nominations.extend(named.filter_map(|pod| after_loss(&pod, node, now)));
            }
            // No pod is planned onto it before it can run pods.
            Progress::Rejoined { .. } => {}
        }
    }
    hands.nominate_all(&nominations).await;
}

/// The names of the pods that are expected on a NodeClaim, once.
fn of_expected(cluster: &Cluster, claim: &NodeClaim, node: &str, now: Timestamp) -> Vec<Action> {
    let expected = cluster.memory().expected.take(claim.name());
    let name = |(uid, key): (String, ObjectKey)| {
        let pod = cluster.stores.pods.get(&key)?;
        let is_same = pod.metadata.uid.as_deref() == Some(&uid);
        is_same.then(|| at_registration(&pod, node, now)).flatten()
    };
    expected.into_iter().filter_map(name).collect()
}

/// Whether all that has changed for planning is the node that a waiting pod names: that was decided in the pass before, and asks for none.
pub(crate) fn is_nomination(before: Option<&Pod>, after: Option<&Pod>) -> bool {
    let (Some(before), Some(after)) = (before, after) else {
        return false;
    };
    let name = |pod| planned(pod).map(|(name, _)| name.to_owned());
    is_provisionable(before) && is_provisionable(after) && name(before) != name(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_model::{ObjectKind, ObjectRef};

    #[test]
    fn w_62_a_name_that_is_lost_while_a_pass_goes_on_is_written_unless_the_plan_has_changed() {
        let now = Timestamp::UNIX_EPOCH;
        let action = Action::NominatePod {
            target: ObjectRef::namespaced(ObjectKind::Pod, "default", "p", "p"),
            node: Some("a".to_owned()),
            condition: Box::new(spokeshave_model::planned_node::names("a", now)),
        };
        let unwritten = Names::default();
        unwritten.lock().lost.add(action, now);
        let about = BTreeSet::from(["p"]);
        // The pass has seen the name, so that it has none to write.
        let new = unwritten.keep(&about, BTreeMap::from([("p", "a")]), Vec::new());
        assert!(new.is_empty());
        assert_eq!(unwritten.lock().lost.pods().count(), 1);
        let new = unwritten.keep(&about, BTreeMap::from([("p", "b")]), Vec::new());
        assert!(new.is_empty());
        assert_eq!(unwritten.lock().lost.pods().count(), 0);
    }
}
