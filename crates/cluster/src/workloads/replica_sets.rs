//! ReplicaSets and, as they are the same but for their selector, ReplicationControllers: the requested number of pods; the least valuable are removed first.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, ReplicationController};
use serde_json::{Value, json};
use spokeshave_runtime::{ObjectKey, ReconcileError, Requeue, Store};

use super::claims::Claimant;
use super::pods::{create_pod, delete_pod, pod_of, standing};
use super::{active, claims, count_available, still, write_status};
use crate::objects::{is_deleting, is_ready, name, node_of, time, uid};
use crate::world::World;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The condition of a set whose pods cannot be made or deleted.
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// What keeps a number of pods from one template.
pub(super) trait Replicas: Claimant {
    /// Where those of its kind are.
    fn store(world: &World) -> &Store<Self>;

    /// How many pods it is to have.
    fn replicas(&self) -> Option<i32>;

    /// What its pods are made from.
    fn template(&self) -> Option<&PodTemplateSpec>;

    /// For how long its pods have to be ready to be available.
    fn min_ready_seconds(&self) -> Option<i32>;

    /// What is known of its status.
    fn status(&self) -> Value;
}

impl Replicas for ReplicaSet {
    fn store(world: &World) -> &Store<Self> {
        &world.replica_sets
    }

    fn replicas(&self) -> Option<i32> {
        self.spec.replicas
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.template.as_ref()
    }

    fn min_ready_seconds(&self) -> Option<i32> {
        self.spec.min_ready_seconds
    }

    fn status(&self) -> Value {
        serde_json::to_value(&self.status).unwrap_or(Value::Null)
    }
}

impl Replicas for ReplicationController {
    fn store(world: &World) -> &Store<Self> {
        &world.replication_controllers
    }

    fn replicas(&self) -> Option<i32> {
        self.spec.as_ref()?.replicas
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn min_ready_seconds(&self) -> Option<i32> {
        self.spec.as_ref()?.min_ready_seconds
    }

    fn status(&self) -> Value {
        serde_json::to_value(&self.status).unwrap_or(Value::Null)
    }
}

pub(super) async fn sync<R: Replicas>(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let store = R::store(&world);
    let Some(set) = store.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(set.meta()) {
        return Ok(Requeue::Done);
    }
    if !claims::settle_pods(&world, &*set).await? {
        return Ok(Requeue::Stale);
    }
    // While pods were claimed, it may have been scaled or deleted.
    let Some(set) = still(store, &key, &*set) else {
        return Ok(Requeue::Done);
    };
    let wanted = usize::try_from(set.replicas().unwrap_or(1)).unwrap_or(0);
    let pods = active(&world.pods_by_owner.get(uid(set.meta())));
    let failure = resize(&world, &*set, &pods, wanted).await.err();
    let pods = active(&world.pods_by_owner.get(uid(set.meta())));
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let now = world.clock.now();
    let (available, again) = count_available(&pods, set.min_ready_seconds(), now);
    let mut status = json!({
        "replicas": pods.len(), "fullyLabeledReplicas": pods.len(), "readyReplicas": ready, "availableReplicas": available, "observedGeneration": set.meta().generation,
    });
    let before = set.status();
    let problem = failure
        .as_ref()
        .map(|error| (pods.len() < wanted, error.to_string()));
    if let Some(conditions) = conditions(&before, problem, now) {
        status["conditions"] = conditions;
    }
    write_status(&world, store, &*set, &before, status).await?;
    match failure {
        Some(error) => Err(error),
        None => Ok(again),
    }
}

/// Makes pods, or deletes some, until the first that cannot be made or deleted.
async fn resize(
    world: &World,
    set: &impl Replicas,
    pods: &[Arc<Pod>],
    wanted: usize,
) -> Result<(), ReconcileError> {
    if let Some(template) = set.template() {
        for _ in pods.len()..wanted {
            let mut pod = pod_of(set, template);
            pod.metadata.generate_name = Some(format!("{}-", name(set.meta())));
            create_pod(world, set, &pod).await?;
        }
    }
    if pods.len() > wanted {
        for pod in least_valuable(pods, pods.len() - wanted) {
            delete_pod(world, set, &pod).await?;
        }
    }
    Ok(())
}

/// The conditions in a status, where they change: whether pods are missing that cannot be made, or are there that cannot be deleted, and why.
fn conditions(status: &Value, problem: Option<(bool, String)>, now: Timestamp) -> Option<Value> {
    let known = status["conditions"].as_array();
    let known = known.map(Vec::as_slice).unwrap_or_default();
    let is_failure = |one: &Value| one["type"] == REPLICA_FAILURE;
    if known.iter().any(is_failure) == problem.is_some() {
        return None;
    }
    let others = known.iter().filter(|one| !is_failure(one));
    let mut conditions: Vec<Value> = others.cloned().collect();
    if let Some((are_missing, message)) = problem {
        let reason = if are_missing {
            "FailedCreate"
        } else {
            "FailedDelete"
        };
        conditions.push(json!({
            "type": REPLICA_FAILURE, "status": "True", "reason": reason, "message": message, "lastTransitionTime": time(now),
        }));
    }
    Some(if conditions.is_empty() {
        Value::Null
    } else {
        json!(conditions)
    })
}

/// Unassigned before assigned, pending before running, not ready before ready, cheap before dear, crowded before lonely, young before old.
fn least_valuable(pods: &[Arc<Pod>], count: usize) -> Vec<Arc<Pod>> {
    let mut ranked = pods.to_vec();
    let neighbours = |pod: &Pod| pods.iter().filter(|other| node_of(other) == node_of(pod)).count();
    let cost = |pod: &Pod| -> i64 {
        let annotations = pod.metadata.annotations.as_ref();
        annotations
            .and_then(|annotations| annotations.get(DELETION_COST))
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    ranked.sort_by_cached_key(|pod| {
        (
            standing(pod),
            cost(pod),
            Reverse(neighbours(pod)),
            Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)),
            name(&pod.metadata).to_owned(),
        )
    });
    ranked.truncate(count);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, cost: &str) -> Arc<Pod> {
        let value = json!({"metadata": {"name": name, "annotations": {DELETION_COST: cost}}, "spec": {"containers": [], "nodeName": node}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn unassigned_then_cheap_then_crowded() {
        let pods = [
            pod("a", "n1", "5"),
            pod("b", "n1", "0"),
            pod("c", "", "9"),
            pod("d", "n2", "0"),
        ];
        let names: Vec<String> = least_valuable(&pods, 3)
            .iter()
            .map(|pod| name(&pod.metadata).to_owned())
            .collect();
        assert_eq!(names, ["c", "b", "d"]);
    }

    #[test]
    fn what_cannot_be_made_is_a_condition_until_it_can() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let with = |conditions: Value| json!({"replicas": 0, "conditions": conditions});
        let refused = || Some((true, "no quota".to_owned()));
        let first = conditions(&Value::Null, refused(), now).unwrap();
        assert_eq!(first[0]["type"], "ReplicaFailure");
        assert_eq!(
            [&first[0]["reason"], &first[0]["message"]],
            ["FailedCreate", "no quota"]
        );
        assert_eq!(
            conditions(&with(first.clone()), refused(), now),
            None,
            "it is known"
        );
        assert_eq!(conditions(&with(first), None, now), Some(Value::Null));
        assert_eq!(conditions(&with(Value::Null), None, now), None);
    }
}
