//! The node that waiting pods name as theirs, written after each pass and when a Node joins.
//!
//! Owns what is remembered of pods between the pass that has planned them and the Node that joins, and of names until they are written. `plan::nominations`
//! decides who names what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable};
use futures::stream::FuturesUnordered;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, REGISTERED};
use spokeshave_model::planned_node::{is_provisionable, planned};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Action, Pod};
use spokeshave_plan::Provisioned;
use spokeshave_plan::lifecycle::Progress;
use spokeshave_plan::nominations::{Nominations, at_initialization, at_registration};
use spokeshave_runtime::ObjectKey;
use tokio::sync::Notify;

use crate::act::hands::{AT_ONCE, Hands};
use crate::state::cluster::Cluster;

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
}

impl Names {
    /// Of these pods, drops the names that are other ones now, so that none is written after a newer one, or after it was taken back. Returns the names that
    /// are new: those on their way may have been written by the time that the others are added.
    fn keep(&self, about: &BTreeSet<&str>, names: Vec<Action>) -> Vec<Action> {
        let wanted: BTreeMap<&str, &str> = names.iter().filter_map(named).collect();
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
        let waiting = unwritten.waiting.iter().filter_map(named);
        let under_way = unwritten.under_way.keys().cloned();
        let known: BTreeSet<String> = waiting.map(|(pod, _)| pod.to_owned()).chain(under_way).collect();
        let is_new = |action: &Action| named(action).is_some_and(|(pod, _)| !known.contains(pod));
        names.into_iter().filter(is_new).collect()
    }

    /// Adds the new names of a pass.
    pub(crate) fn add(&self, names: Vec<Action>) {
        self.lock().waiting.extend(names);
        self.fresh.notify_one();
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
            }
        }
    }

    /// The next write for which its pod still waits. It is under way from now on.
    fn begin(&self, cluster: &Cluster, hands: &Hands) -> Option<impl Future<Output = ()>> {
        let mut unwritten = self.lock();
        let action = loop {
            let action = unwritten.waiting.pop_front()?;
            if still_waits(cluster, &action) {
                break action;
            }
        };
        let (pod, node) = named(&action)?;
        let (pod, node) = (pod.to_owned(), node.to_owned());
        let (handle, registration) = AbortHandle::new_pair();
        unwritten.under_way.insert(pod.clone(), (node, handle));
        drop(unwritten);
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

/// Whether the pod of a name is there and without a node. Passes speak no more of those that are not, so that `keep` would retain their names.
fn still_waits(cluster: &Cluster, action: &Action) -> bool {
    let Action::NominatePod { target, .. } = action else {
        return false;
    };
    let key = ObjectKey::namespaced(target.namespace.as_str(), target.name.as_str());
    let pod = cluster.stores.pods.get(&key);
    pod.is_some_and(|pod| pod.metadata.uid.as_ref() == Some(&target.uid) && is_provisionable(&pod))
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
    let nominations = Nominations::of(snapshot, outcome, cluster.now());
    let about: BTreeSet<&str> = outcome.pods.iter().map(|pod| snapshot.pod(*pod).uid()).collect();
    let places = nominations.expected.into_iter().map(|(pod, claim)| {
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
    let (names, taken_back): (Vec<Action>, Vec<Action>) = nominations
        .actions
        .into_iter()
        .partition(|action| named(action).is_some());
    let new = unwritten.keep(&about, names);
    hands.nominate_all(&taken_back).await;
    new
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
            Progress::Registered { node } => {
                let expected = cluster.memory().expected.take(claim.name());
                nominations.extend(expected.into_iter().filter_map(|(uid, key)| {
                    let pod = cluster.stores.pods.get(&key)?;
                    let is_same = pod.metadata.uid.as_deref() == Some(&uid);
                    is_same.then(|| at_registration(&pod, node, now)).flatten()
                }));
            }
            Progress::Initialized { node } => {
                let named = cluster.stores.pods_by_planned_node.get(node).into_iter();
                nominations.extend(named.filter_map(|pod| at_initialization(&pod, node, now)));
            }
            // No pod is planned onto it before it can run pods.
            Progress::Rejoined { .. } => {}
        }
    }
    hands.nominate_all(&nominations).await;
}

/// Whether all that has changed for planning is the node that a waiting pod names: that was decided in the pass before, and asks for none.
pub(crate) fn is_nomination(before: Option<&Pod>, after: Option<&Pod>) -> bool {
    let (Some(before), Some(after)) = (before, after) else {
        return false;
    };
    let name = |pod| planned(pod).map(|(name, _)| name.to_owned());
    is_provisionable(before) && is_provisionable(after) && name(before) != name(after)
}
