//! A pod as it is kept: there are more of them than of all other objects together.
//!
//! Owns the copy in memory, and the table by which pods of one template share their specification. Never looks at what a pod means (`pod` does),
//! and never talks to an API server: requests are made with the type of `k8s-openapi`.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rustc_hash::{FxHashMap, FxHasher};
use serde::{Deserialize, Serialize};

/// A pod. Reads and writes JSON as the API does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "core::Pod", into = "core::Pod")]
pub struct Pod {
    /// Name, labels, owners.
    pub metadata: ObjectMeta,
    /// What its template says: shared with pods of the same template, once [`share`](Pod::share) was called. The node is not part of it.
    pub spec: Option<Arc<PodSpec>>,
    /// The node it is bound to.
    pub node_name: Option<String>,
    /// What its kubelet and the scheduler say.
    pub status: Option<PodStatus>,
}

/// The namespace and the name of a pod.
pub(crate) type PodKey = (String, String);

/// Those of this one.
pub(crate) fn pod_key(pod: &Pod) -> PodKey {
    let part = |value: &Option<String>| value.clone().unwrap_or_default();
    (part(&pod.metadata.namespace), part(&pod.metadata.name))
}

impl Pod {
    /// Its specification, to be changed: a copy of its own where others share it, an empty one where it has none.
    pub fn spec_mut(&mut self) -> &mut PodSpec {
        Arc::make_mut(self.spec.get_or_insert_default())
    }

    /// Takes the specification that an earlier pod has shared, if that says the same.
    pub fn share(&mut self) {
        if let Some(spec) = &mut self.spec {
            let mut templates = TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner);
            templates.share(spec);
        }
    }
}

impl From<core::Pod> for Pod {
    fn from(pod: core::Pod) -> Self {
        let mut spec = pod.spec;
        let node_name = spec.as_mut().and_then(|spec| spec.node_name.take());
        Self {
            metadata: pod.metadata,
            spec: spec.map(Arc::new),
            node_name,
            status: pod.status,
        }
    }
}

impl From<Pod> for core::Pod {
    fn from(pod: Pod) -> Self {
        let mut spec = pod.spec.map(Arc::unwrap_or_clone);
        if pod.node_name.is_some() {
            spec.get_or_insert_default().node_name = pod.node_name;
        }
        Self {
            metadata: pod.metadata,
            spec,
            status: pod.status,
        }
    }
}

impl k8s_openapi::Resource for Pod {
    const API_VERSION: &'static str = <core::Pod as k8s_openapi::Resource>::API_VERSION;
    const GROUP: &'static str = <core::Pod as k8s_openapi::Resource>::GROUP;
    const KIND: &'static str = <core::Pod as k8s_openapi::Resource>::KIND;
    const VERSION: &'static str = <core::Pod as k8s_openapi::Resource>::VERSION;
    const URL_PATH_SEGMENT: &'static str = <core::Pod as k8s_openapi::Resource>::URL_PATH_SEGMENT;
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for Pod {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Specifications whose hashes are equal are compared one by one; where more than these differ, further ones stay with their pods.
const MOST_OF_ONE_HASH: usize = 8;
/// Specifications of which nobody knows whether a pod still has them, before they are looked through.
const LEAST_SWEPT: usize = 1_024;

/// Shared specifications. What a pod says never depends on it: only where the bytes are.
static TEMPLATES: LazyLock<Mutex<Templates>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Templates {
    by_hash: FxHashMap<u64, Vec<Weak<PodSpec>>>,
    /// Added since the last sweep.
    added: usize,
    /// Left by the last sweep.
    left: usize,
}

impl Templates {
    fn share(&mut self, spec: &mut Arc<PodSpec>) {
        let same_hash = self.by_hash.entry(hash(spec)).or_default();
        let known = same_hash
            .iter()
            .filter_map(Weak::upgrade)
            .find(|known| *known == *spec);
        if let Some(known) = known {
            *spec = known;
            return;
        }
        same_hash.retain(|one| one.strong_count() > 0);
        if same_hash.len() < MOST_OF_ONE_HASH {
            same_hash.push(Arc::downgrade(spec));
            self.added += 1;
        }
        if self.added > self.left.max(LEAST_SWEPT) {
            self.sweep();
        }
    }

    /// Forgets what no pod has any more. What is left is as much work as what was added since the last time, at the least.
    fn sweep(&mut self) {
        self.by_hash.retain(|_, same_hash| {
            same_hash.retain(|one| one.strong_count() > 0);
            !same_hash.is_empty()
        });
        self.added = 0;
        self.left = self.by_hash.values().map(Vec::len).sum();
    }
}

/// Of what differs from template to template as a rule: equal specifications have equal hashes.
fn hash(spec: &PodSpec) -> u64 {
    let mut hasher = FxHasher::default();
    let init = spec.init_containers.iter().flatten();
    spec.containers
        .iter()
        .chain(init)
        .for_each(|one| hash_container(one, &mut hasher));
    spec.node_selector.hash(&mut hasher);
    spec.priority_class_name.hash(&mut hasher);
    spec.termination_grace_period_seconds.hash(&mut hasher);
    for toleration in spec.tolerations.iter().flatten() {
        (&toleration.key, &toleration.value).hash(&mut hasher);
    }
    for volume in spec.volumes.iter().flatten() {
        let claim = volume.persistent_volume_claim.as_ref();
        (&volume.name, claim.map(|claim| &claim.claim_name)).hash(&mut hasher);
    }
    for spread in spec.topology_spread_constraints.iter().flatten() {
        let labels = spread
            .label_selector
            .as_ref()
            .map(|selector| &selector.match_labels);
        (&spread.topology_key, labels).hash(&mut hasher);
    }
    if let Some(affinity) = &spec.affinity {
        format!("{affinity:?}").hash(&mut hasher);
    }
    hasher.finish()
}

fn hash_container(container: &Container, hasher: &mut FxHasher) {
    container.name.hash(hasher);
    let requests = container.resources.as_ref().and_then(|one| one.requests.as_ref());
    for (name, quantity) in requests.into_iter().flatten() {
        (name, &quantity.0).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn whole(name: &str, node: Option<&str>, cpu: &str) -> Value {
        let mut spec = json!({"containers": [{"name": "web", "resources": {"requests": {"cpu": cpu}}}]});
        if let Some(node) = node {
            spec["nodeName"] = node.into();
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": {"phase": "Running"}})
    }

    fn shared(name: &str, node: Option<&str>, cpu: &str) -> Pod {
        let mut pod: Pod = serde_json::from_value(whole(name, node, cpu)).unwrap();
        pod.share();
        pod
    }

    #[test]
    fn json_is_that_of_the_api() {
        for node in [None, Some("a")] {
            let pod = shared("web", node, "1");
            assert_eq!(serde_json::to_value(&pod).unwrap(), whole("web", node, "1"));
            assert_eq!(pod.node_name.as_deref(), node);
        }
        let bare = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}});
        let pod: Pod = serde_json::from_value(bare.clone()).unwrap();
        assert_eq!(serde_json::to_value(&pod).unwrap(), bare);
    }

    #[test]
    fn pods_of_one_template_share_what_it_says_wherever_they_run() {
        let (one, other) = (shared("one", Some("a"), "71"), shared("other", Some("b"), "71"));
        let (one, other) = (one.spec.unwrap(), other.spec.unwrap());
        assert!(Arc::ptr_eq(&one, &other));
        let different = shared("third", None, "72").spec.unwrap();
        assert_ne!(one, different);
    }

    #[test]
    fn who_changes_a_shared_specification_changes_his_own() {
        let (one, mut other) = (shared("one", None, "73"), shared("other", None, "73"));
        other.spec_mut().priority = Some(7);
        assert_eq!(one.spec.unwrap().priority, None);
        assert_eq!(other.spec.unwrap().priority, Some(7));
    }

    #[test]
    fn what_no_pod_has_any_more_is_forgotten_and_hashes_that_collide_stay_apart() {
        let mut templates = Templates::default();
        let spec = |number: i32| {
            Arc::new(PodSpec {
                priority: Some(number),
                ..PodSpec::default()
            })
        };
        // `priority` is not part of the hash: all collide.
        let mut kept: Vec<Arc<PodSpec>> = (0..20).map(spec).collect();
        kept.iter_mut().for_each(|one| templates.share(one));
        assert!(
            kept.iter()
                .zip(0..)
                .all(|(one, number)| one.priority == Some(number))
        );
        let mut again = spec(3);
        templates.share(&mut again);
        assert!(Arc::ptr_eq(&again, &kept[3]));
        drop((kept, again));
        templates.sweep();
        assert_eq!((templates.left, templates.by_hash.len()), (0, 0));
    }
}
