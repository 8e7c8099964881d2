//! What a shadow would launch, beside what is launched.
//!
//! Pods that become pending are collected as an operator collects them. They are planned for as they were seen first, and as if the NodeClaims that have come
//! since were not there: those are the other's answer to the same question.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::NodeClaim;
use spokeshave_model::Pod;
use spokeshave_model::snapshot::PodId;
use spokeshave_model::{ClusterState, lower, planned_node, pod};
use spokeshave_plan::{provision_only, report};
use spokeshave_runtime::Shutdown;
use tokio::sync::Notify;

use super::{Ledger, Side};
use crate::audited::{Sound, decide_soundly};
use crate::state::cluster::Cluster;

/// Pods that wait for a decision, as they were seen first, by UID.
#[derive(Debug, Default)]
struct Waiting {
    pods: BTreeMap<String, Arc<Pod>>,
    /// UIDs that were decided about: what stays pending is not counted again.
    decided: BTreeSet<String>,
}

/// Decides about launches.
pub(super) struct Launches {
    cluster: Arc<Cluster>,
    ledger: Arc<Mutex<Ledger>>,
    waiting: Mutex<Waiting>,
    fresh: Notify,
}

impl Launches {
    pub(super) fn new(cluster: Arc<Cluster>, ledger: Arc<Mutex<Ledger>>) -> Arc<Self> {
        let this = Arc::new(Self {
            cluster,
            ledger,
            waiting: Mutex::default(),
            fresh: Notify::new(),
        });
        let on_pod = this.clone();
        this.cluster.stores.pods.on_change(move |change| {
            if let Some(pod) = change.ended() {
                on_pod.forget(pod);
            }
            if let Some(pod) = &change.new {
                on_pod.look_at(pod);
            }
        });
        this
    }

    fn look_at(&self, pod: &Arc<Pod>) {
        if !planned_node::is_provisionable(pod) {
            return;
        }
        let Some(uid) = pod.metadata.uid.clone() else {
            return;
        };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.decided.contains(&uid) || waiting.pods.contains_key(&uid) {
            return;
        }
        waiting.pods.insert(uid, pod.clone());
        self.fresh.notify_one();
    }

    fn forget(&self, pod: &Pod) {
        if let Some(uid) = &pod.metadata.uid {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.decided.remove(uid);
            waiting.pods.remove(uid);
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until shutdown.
    pub(super) async fn run(self: Arc<Self>, shutdown: Shutdown) {
        while shutdown.cut(self.fresh.notified()).await.is_some() {
            // An operator that is quick needs a second at least: what is there now is not its answer.
            let known: BTreeSet<String> = self
                .cluster
                .stores
                .node_claims
                .keys()
                .into_iter()
                .map(|key| key.name)
                .collect();
            if shutdown.cut(self.window()).await.is_none() {
                return;
            }
            self.decide(&known).await;
        }
    }

    /// Completes when no further pod has come for a while, or the longest time is over.
    async fn window(&self) {
        let (clock, options) = (&self.cluster.clock, &self.cluster.options);
        let mut end = clock.sleep(options.batch_max_duration);
        loop {
            tokio::select! {
                biased;
                () = self.fresh.notified() => {}
                () = &mut end => return,
                () = clock.sleep(options.batch_idle_duration) => return,
            }
        }
    }

    async fn decide(&self, known: &BTreeSet<String>) {
        let pods = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let pods = std::mem::take(&mut waiting.pods);
            waiting.decided.extend(pods.keys().cloned());
            pods
        };
        if pods.is_empty() {
            return;
        }
        let inputs = self.cluster.inputs(&[]).await;
        let answers = Answers::to(&pods, known, self.cluster.now());
        let state = before(self.cluster.cluster_state(&inputs), &answers, &pods);
        let snapshot = lower(&state);
        let now = self.cluster.now();
        let is_asked = |id: &PodId| pods.contains_key(snapshot.pod(*id).uid());
        let decide = |refused: &BTreeMap<PodId, String>| {
            let is_meant = |id| is_asked(&id) && !refused.contains_key(&id);
            let outcome = provision_only(&snapshot, &self.cluster.policy, now, is_meant);
            (outcome, ())
        };
        let mut problem = String::new();
        let sound = decide_soundly(&snapshot, decide, |violations| {
            if let Some(violation) = violations.first() {
                tracing::error!(%violation, "the plan breaks a rule and counts for nothing");
                problem = violation.to_string();
            }
        });
        let mut ledger = self.ledger();
        let Some(Sound { outcome, refused, .. }) = sound else {
            let asked: Vec<PodId> = snapshot.pod_ids().filter(is_asked).collect();
            ledger.refused(&report::first_pods(&snapshot, &asked, 3), &problem, now);
            return;
        };
        let mut problems: BTreeMap<&str, Vec<PodId>> = BTreeMap::new();
        for (pod, problem) in &refused {
            problems.entry(problem).or_default().push(*pod);
        }
        for (problem, pods) in problems {
            ledger.refused(&report::first_pods(&snapshot, &pods, 3), problem, now);
        }
        for planned in &outcome.placements.claims {
            let pool = &snapshot.pool(planned.pool).name;
            let told = report::planned_launch(&snapshot, planned);
            tracing::info!(
                NodePool = pool,
                launch = told.what,
                pods = told.pods,
                "would launch"
            );
            ledger.launched(Side::Shadow, pool);
            if let Some(launch) = planned.launches.first() {
                ledger.launch_price(Side::Shadow, pool, launch.price);
            }
        }
        let mut reasons: BTreeMap<Arc<str>, Vec<_>> = BTreeMap::new();
        for (unplaced, reason) in outcome.worded(&snapshot, &self.cluster.policy) {
            reasons.entry(reason).or_default().push(unplaced.pod);
        }
        for (reason, mut pods) in reasons {
            pods.sort_unstable();
            ledger.unplaced(&report::first_pods(&snapshot, &pods, 3), pods.len(), &reason, now);
        }
    }
}

/// A NodeClaim that is older than this is no answer to pods that have just been seen.
const ANSWERED_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// Tells the other's answer to some pods from what was there before, also when this process has seen the pods late.
struct Answers<'a> {
    known: &'a BTreeSet<String>,
    first: Option<Timestamp>,
    now: Timestamp,
}

impl<'a> Answers<'a> {
    fn to(pods: &BTreeMap<String, Arc<Pod>>, known: &'a BTreeSet<String>, now: Timestamp) -> Self {
        let created = pods
            .values()
            .filter_map(|pod| pod.metadata.creation_timestamp.as_ref());
        let first = created.map(|time| time.0).min();
        Self { known, first, now }
    }

    /// The NodeClaim has come since, or was made after the first of the pods and just now.
    fn has(&self, claim: &NodeClaim) -> bool {
        let made = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let is_later = made.is_some_and(|made| {
            self.first.is_some_and(|first| made >= first) && self.now.duration_since(made) < ANSWERED_WITHIN
        });
        is_later || !self.known.contains(claim.name())
    }
}

/// The cluster without the other's answers, and with these pods as they were seen first. A pod that has gone meanwhile does not come back.
fn before(mut state: ClusterState, answers: &Answers<'_>, pods: &BTreeMap<String, Arc<Pod>>) -> ClusterState {
    let (new, old): (Vec<_>, Vec<_>) = state
        .node_claims
        .into_iter()
        .partition(|claim| answers.has(claim));
    state.node_claims = old;
    let new: BTreeSet<&str> = new.iter().filter_map(|claim| claim.provider_id()).collect();
    let mut hidden = BTreeSet::new();
    state.nodes.retain(|node| {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        let stays = !id.is_some_and(|id| new.contains(id));
        if !stays {
            hidden.extend(node.metadata.name.clone());
        }
        stays
    });
    for pod in &mut state.pods {
        if let Some(first) = pod.metadata.uid.as_ref().and_then(|uid| pods.get(uid)) {
            *pod = first.clone();
        }
    }
    state
        .pods
        .retain(|pod| !pod::node_name(pod).is_some_and(|name| hidden.contains(name)));
    state
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: Option<&str>) -> Arc<Pod> {
        let value = json!({"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {"nodeName": node, "containers": []}});
        Arc::new(serde_json::from_value(value).expect("a pod"))
    }

    fn node(name: &str) -> Arc<k8s_openapi::api::core::v1::Node> {
        let value = json!({"metadata": {"name": name}, "spec": {"providerID": format!("kwok://{name}")}});
        Arc::new(serde_json::from_value(value).expect("a node"))
    }

    fn claim(name: &str, node: &str) -> Arc<NodeClaim> {
        let value = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}},
            "status": {"providerID": format!("kwok://{node}")},
        });
        Arc::new(serde_json::from_value(value).expect("a NodeClaim"))
    }

    #[test]
    fn what_has_come_since_is_not_there_and_pods_are_as_they_were() {
        let state = ClusterState {
            nodes: vec![node("old"), node("new")],
            node_claims: vec![claim("c-old", "old"), claim("c-new", "new")],
            pods: vec![
                pod("waited", Some("new")),
                pod("daemon", Some("new")),
                pod("stays", Some("old")),
            ],
            ..ClusterState::default()
        };
        let known = BTreeSet::from(["c-old".to_owned()]);
        let seen_first = BTreeMap::from([
            ("waited".to_owned(), pod("waited", None)),
            ("deleted".to_owned(), pod("deleted", None)),
        ]);
        let then = before(
            state,
            &Answers::to(&seen_first, &known, Timestamp::UNIX_EPOCH),
            &seen_first,
        );
        let names: Vec<_> = then.node_claims.iter().map(|claim| claim.name()).collect();
        assert_eq!(names, ["c-old"]);
        let nodes: Vec<_> = then
            .nodes
            .iter()
            .filter_map(|node| node.metadata.name.as_deref())
            .collect();
        assert_eq!(nodes, ["old"]);
        let pods: Vec<_> = then
            .pods
            .iter()
            .map(|one| (one.metadata.uid.as_deref().unwrap(), pod::node_name(one)))
            .collect();
        assert_eq!(pods, [("waited", None), ("stays", Some("old"))]);
    }

    #[test]
    fn what_was_made_for_pods_that_were_seen_late_is_an_answer_to_them() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let created = |second: i64| json!({"metadata": {"name": "a", "uid": "a", "creationTimestamp": at(second).to_string()}});
        let pods = BTreeMap::from([(
            "a".to_owned(),
            Arc::new(serde_json::from_value(created(1000)).expect("a pod")),
        )]);
        let known = BTreeSet::from(["c".to_owned()]);
        let made = |second: i64| {
            let mut claim = NodeClaim::clone(&claim("c", "n"));
            let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(second));
            claim.metadata.creation_timestamp = Some(time);
            claim
        };
        let soon = Answers::to(&pods, &known, at(1010));
        assert!(
            soon.has(&made(1002)),
            "known by the time the pod was seen, and made after it"
        );
        assert!(!soon.has(&made(999)), "made before the pod");
        let much_later = Answers::to(&pods, &known, at(5000));
        assert!(!much_later.has(&made(1002)), "the pod waits for something else");
    }
}
