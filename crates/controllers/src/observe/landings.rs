//! Whether pods land where they were planned (W-62).
//!
//! Owns where the last pass has planned each pod that waits, until it is bound or gone, so that memory is bounded by the pods that wait. A pod whose plan is not
//! known, such as one that was planned before a restart, is not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spokeshave_model::Pod;
use spokeshave_model::planned_node::waits;
use spokeshave_model::pod::node_name;
use spokeshave_model::snapshot::{NodeView, PodId, Snapshot};
use spokeshave_plan::Provisioned;
use spokeshave_runtime::{Change, Counter, ObjectKey};

use crate::state::memory::AssignedPod;
use crate::state::stores::Stores;

/// Where a pod was planned.
#[derive(Clone, Debug)]
enum Place {
    /// On the Node of a NodeClaim, which may have yet to join.
    Claim(String),
    /// On a Node without a NodeClaim.
    Node(String),
}

impl Place {
    fn on(node: &NodeView) -> Self {
        match node.claim_name() {
            Some(claim) => Self::Claim(claim.to_owned()),
            None => Self::Node(node.name.clone()),
        }
    }

    /// Whether it is this Node.
    fn is(&self, node: &str, stores: &Stores) -> bool {
        match self {
            Self::Claim(claim) => {
                let node = stores.nodes.get_named(node);
                let own = node.and_then(|node| stores.claim_of_node(&node));
                own.is_some_and(|own| own.name() == claim)
            }
            Self::Node(planned) => planned == node,
        }
    }
}

/// The places of pods that wait. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Landings {
    planned: Arc<Mutex<BTreeMap<String, Place>>>,
    landed: Counter,
}

impl Landings {
    pub(crate) fn new(landed: Counter) -> Self {
        Self {
            planned: Arc::default(),
            landed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Place>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears of every change of a pod.
    pub(crate) fn listen(&self, stores: &Stores) {
        let (this, looked_at) = (self.clone(), stores.clone());
        stores.pods.on_change(move |change| this.saw(change, &looked_at));
    }

    fn saw(&self, change: &Change<Pod>, stores: &Stores) {
        if let Some(gone) = change.ended() {
            self.lock()
                .remove(gone.metadata.uid.as_deref().unwrap_or_default());
        }
        let Some(pod) = change.new.as_deref() else { return };
        let Some(node) = node_name(pod) else { return };
        let place = self
            .lock()
            .remove(pod.metadata.uid.as_deref().unwrap_or_default());
        if let Some(place) = place {
            let is_planned = place.is(node, stores);
            self.landed
                .inc(&[if is_planned { "planned" } else { "elsewhere" }]);
        }
    }

    /// What a pass has decided about its pods, but for those whose NodeClaims have yet to be created: of these nothing is known until they are.
    pub(crate) fn decided(&self, snapshot: &Snapshot, outcome: &Provisioned, stores: &Stores) {
        for (place, pods) in steps(snapshot, outcome) {
            self.take(snapshot, place.as_ref(), &pods, stores);
        }
    }

    /// These pods of a pass go there, or to no node that is there.
    fn take(&self, snapshot: &Snapshot, place: Option<&Place>, pods: &[PodId], stores: &Stores) {
        let mut planned = self.lock();
        for pod in pods {
            let view = snapshot.pod(*pod);
            let Some(place) = place else {
                planned.remove(view.uid());
                continue;
            };
            let key = ObjectKey::of(&*view.object);
            note(&mut planned, view.uid(), &key, place, stores);
        }
    }

    /// A NodeClaim was made for these pods.
    pub(crate) fn assigned(&self, claim: &str, pods: &[AssignedPod], stores: &Stores) {
        let mut planned = self.lock();
        let place = Place::Claim(claim.to_owned());
        for pod in pods {
            if let Some(key) = &pod.key {
                note(&mut planned, &pod.uid, key, &place, stores);
            }
        }
    }
}

/// Where the pods of a pass go, node by node: whoever hears of pods does not wait for tens of thousands. Each pod is in one step, so that one which is bound
/// between two of them still has the place of the pass before. Those without a node that is there come first.
fn steps(snapshot: &Snapshot, outcome: &Provisioned) -> impl Iterator<Item = (Option<Place>, Vec<PodId>)> {
    let nominated = outcome.nominated_nodes(snapshot);
    let placed: BTreeSet<PodId> = nominated.iter().flat_map(|(_, pods)| pods).copied().collect();
    let mut others = outcome.real_pods(snapshot);
    others.retain(|pod| !placed.contains(pod));
    let on_nodes = nominated
        .into_iter()
        .map(|(node, pods)| (Some(Place::on(snapshot.node(node))), pods));
    iter::once((None, others)).chain(on_nodes)
}

/// Remembers the place of a pod that still waits: one that was bound meanwhile is not heard of again, and one that has a node was planned for where it would go if
/// that ended. The places are locked while this is looked up, so that no binding is missed.
fn note(planned: &mut BTreeMap<String, Place>, uid: &str, key: &ObjectKey, place: &Place, stores: &Stores) {
    let current = stores.pods.get(key);
    if current.is_some_and(|pod| pod.metadata.uid.as_deref() == Some(uid) && waits(&pod)) {
        planned.insert(uid.to_owned(), place.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;
    use spokeshave_api::{NodeClaim, NodeClaimSpec};
    use spokeshave_model::snapshot::NodeId;
    use spokeshave_model::{ClusterState, lower};
    use spokeshave_ports::TokioClock;
    use spokeshave_runtime::Metrics;

    fn pod(name: &str, version: &str, node: Option<&str>) -> Pod {
        let mut pod = json!({
            "metadata": {"namespace": "default", "name": name, "uid": name, "resourceVersion": version},
            "spec": {"containers": []},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        });
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        serde_json::from_value(pod).unwrap()
    }

    fn claim(name: &str) -> NodeClaim {
        let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
        claim.metadata.resource_version = Some("1".to_owned());
        claim.status.get_or_insert_default().provider_id = Some(format!("kwok://{name}"));
        claim
    }

    fn node(claim: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": format!("node-of-{claim}"), "uid": claim, "resourceVersion": "1"},
            "spec": {"providerID": format!("kwok://{claim}")},
        }))
        .unwrap()
    }

    #[test]
    fn w_62_a_pod_that_was_planned_is_counted_once_by_where_it_was_bound() {
        let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
        let landed = Metrics::new(clock).counter("landed", "Landed.", &["where"]);
        let landings = Landings::new(landed.clone());
        let stores = Stores::new(false);
        landings.listen(&stores);
        for name in ["a", "b"] {
            stores.node_claims.note_written(claim(name));
            stores.nodes.note_written(node(name));
        }
        let assigned = |name: &str| AssignedPod {
            uid: name.to_owned(),
            key: Some(ObjectKey::namespaced("default", name)),
        };
        for name in ["there", "elsewhere", "gone", "unplanned"] {
            stores.pods.note_written(pod(name, "1", None));
        }
        stores.pods.note_written(pod("late", "1", Some("node-of-a")));
        let planned = ["there", "elsewhere", "gone", "late"].map(assigned);
        landings.assigned("a", &planned, &stores);
        let at = |name: &str, node: &str, version: &str| {
            stores.pods.note_written(pod(name, version, Some(node)));
        };
        at("there", "node-of-a", "2");
        at("elsewhere", "node-of-b", "2");
        at("unplanned", "node-of-a", "2");
        // What else happens to them is no landing.
        at("there", "node-of-a", "3");
        at("late", "node-of-a", "2");
        let key = ObjectKey::namespaced("default", "gone");
        stores.pods.note_gone(&key, "gone");
        let counts = (landed.get(&["planned"]), landed.get(&["elsewhere"]));
        assert_eq!(counts, (1.0, 1.0));
        assert!(
            landings.lock().is_empty(),
            "nothing is remembered of pods that do not wait"
        );
    }

    /// Pods are bound at any time, also while it is noted where a pass has planned them.
    #[test]
    fn w_62_a_pod_that_is_bound_while_the_next_pass_is_noted_is_counted() {
        let kind = spokeshave_example::instance_type("m", 8, 32, &["a"]);
        let pool = spokeshave_example::node_pool("default");
        let mut state = ClusterState::default().with_pool(pool, vec![kind.clone()]);
        let stores = Stores::new(false);
        for name in ["x", "y"] {
            let (mut node, mut claim) = spokeshave_example::node("default", name, &kind, "a", "on-demand");
            node.metadata.resource_version = Some("1".to_owned());
            claim.metadata.resource_version = Some("1".to_owned());
            state = state.with_node((node.clone(), claim.clone()));
            stores.nodes.note_written(node);
            stores.node_claims.note_written(claim);
        }
        for name in ["first", "second", "third"] {
            stores.pods.note_written(pod(name, "1", None));
            state = state.with_pod(pod(name, "1", None));
        }
        let snapshot = lower(&state);
        let pods: Vec<PodId> = snapshot.pod_ids().collect();
        let on = |name: &str| {
            let place = snapshot
                .nodes
                .iter()
                .position(|node| node.node_name() == Some(name));
            NodeId::from(place.unwrap())
        };
        let pass = |existing: Vec<(NodeId, Vec<PodId>)>| {
            let mut outcome = Provisioned {
                pods: pods.clone(),
                ..Provisioned::default()
            };
            outcome.placements.existing = existing.into_iter().collect();
            outcome
        };

        let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
        let landed = Metrics::new(clock).counter("landed", "Landed.", &["where"]);
        let landings = Landings::new(landed.clone());
        landings.listen(&stores);
        landings.decided(&snapshot, &pass(vec![(on("x"), pods.clone())]), &stores);
        assert_eq!(landings.lock().len(), 3);

        let next = pass(vec![(on("x"), vec![pods[0]]), (on("y"), vec![pods[1]])]);
        for (number, (place, of_step)) in steps(&snapshot, &next).enumerate() {
            landings.take(&snapshot, place.as_ref(), &of_step, &stores);
            if number == 0 {
                // The second one goes where the first pass has planned it.
                stores.pods.note_written(pod("second", "2", Some("x")));
            }
        }
        assert_eq!(landed.get(&["planned"]), 1.0);
        stores.pods.note_written(pod("first", "2", Some("x")));
        stores.pods.note_written(pod("third", "2", Some("x")));
        let counts = (landed.get(&["planned"]), landed.get(&["elsewhere"]));
        assert_eq!(counts, (2.0, 0.0), "the third has no place any more");
        assert!(landings.lock().is_empty());
    }
}
