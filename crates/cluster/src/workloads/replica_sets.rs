//! ReplicaSets: the requested number of pods; the least valuable are removed first.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use spokeshave_runtime::{ObjectKey, ReconcileError, Requeue};

use super::pods::{create_pod, delete_pod, pod_of, standing};
use super::{active, claims, count_available, still, write_status};
use crate::objects::{is_deleting, is_ready, name, node_of, time, uid};
use crate::world::World;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The condition of a set whose pods cannot be made or deleted.
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

pub(super) async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(set) = world.replica_sets.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&set.metadata) {
        return Ok(Requeue::Done);
    }
    if !claims::settle_pods(&world, &*set).await? {
        return Ok(Requeue::Stale);
    }
    // While pods were claimed, it may have been scaled or deleted.
    let Some(set) = still(&world.replica_sets, &key, &*set) else {
        return Ok(Requeue::Done);
    };
    let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
    let pods = active(&world.pods_by_owner.get(uid(&set.metadata)));
    let failure = resize(&world, &set, &pods, wanted).await.err();
    let pods = active(&world.pods_by_owner.get(uid(&set.metadata)));
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let now = world.clock.now();
    let (available, again) = count_available(&pods, set.spec.min_ready_seconds, now);
    let mut status = json!({
        "replicas": pods.len(), "fullyLabeledReplicas": pods.len(), "readyReplicas": ready, "availableReplicas": available, "observedGeneration": set.metadata.generation,
    });
    let problem = failure
        .as_ref()
        .map(|error| (pods.len() < wanted, error.to_string()));
    if let Some(conditions) = conditions(&set, problem, now) {
        status["conditions"] = conditions;
    }
    let before = serde_json::to_value(&set.status).unwrap_or(Value::Null);
    write_status(&world, &world.replica_sets, &*set, &before, status).await?;
    match failure {
        Some(error) => Err(error),
        None => Ok(again),
    }
}

/// Makes pods, or deletes some, until the first that cannot be made or deleted.
async fn resize(
    world: &World,
    set: &ReplicaSet,
    pods: &[Arc<Pod>],
    wanted: usize,
) -> Result<(), ReconcileError> {
    if let Some(template) = &set.spec.template {
        for _ in pods.len()..wanted {
            let mut pod = pod_of(set, template);
            pod.metadata.generate_name = Some(format!("{}-", name(&set.metadata)));
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

/// The conditions of a set, where they change: whether pods are missing that cannot be made, or are there that cannot be deleted, and why.
fn conditions(set: &ReplicaSet, problem: Option<(bool, String)>, now: Timestamp) -> Option<Value> {
    let status = set.status.iter();
    let known: Vec<&ReplicaSetCondition> = status
        .flat_map(|status| status.conditions.iter().flatten())
        .collect();
    let is_failure = |one: &ReplicaSetCondition| one.type_.as_deref() == Some(REPLICA_FAILURE);
    if known.iter().any(|one| is_failure(one)) == problem.is_some() {
        return None;
    }
    let others = known.into_iter().filter(|one| !is_failure(one));
    let mut conditions: Vec<Value> = others.map(|one| json!(one)).collect();
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
        let set = |conditions: Value| -> ReplicaSet {
            let object =
                json!({"spec": {"selector": {}}, "status": {"replicas": 0, "conditions": conditions}});
            serde_json::from_value(object).unwrap()
        };
        let refused = || Some((true, "no quota".to_owned()));
        let first = conditions(&set(Value::Null), refused(), now).unwrap();
        assert_eq!(first[0]["type"], "ReplicaFailure");
        assert_eq!(
            [&first[0]["reason"], &first[0]["message"]],
            ["FailedCreate", "no quota"]
        );
        assert_eq!(
            conditions(&set(first.clone()), refused(), now),
            None,
            "it is known"
        );
        assert_eq!(conditions(&set(first), None, now), Some(Value::Null));
        assert_eq!(conditions(&set(Value::Null), None, now), None);
    }
}
