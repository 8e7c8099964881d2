//! Whether pods land where they were planned (W-62).
//!
//! Owns where the last pass has planned each pod that waits, until it is bound or gone, so that memory is bounded by the pods that wait. A pod whose plan is not
//! known, such as one that was planned before a restart, is not counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spokeshave_model::Pod;
use spokeshave_model::planned_node::waits;
use spokeshave_model::pod::node_name;
use spokeshave_model::snapshot::Snapshot;
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
        let mut planned = self.lock();
        for pod in outcome.real_pods(snapshot) {
            planned.remove(snapshot.pod(pod).uid());
        }
        drop(planned);
        for (node, pods) in outcome.nominated_nodes(snapshot) {
            let view = snapshot.node(node);
            let place = match view.claim_name() {
                Some(claim) => Place::Claim(claim.to_owned()),
                None => Place::Node(view.name.clone()),
            };
            // Node by node: whoever hears of pods does not wait for tens of thousands.
            let mut planned = self.lock();
            for pod in pods {
                let view = snapshot.pod(pod);
                note(
                    &mut planned,
                    view.uid(),
                    &ObjectKey::of(&*view.object),
                    &place,
                    stores,
                );
            }
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
}
