//! ReplicaSets: the requested number of pods; the least valuable are removed first.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use spokeshave_runtime::{ObjectKey, ReconcileError, Requeue};

use super::{active, claims, count_available, create_pod, delete_pod, pod_of, write_status};
use crate::objects::{is_deleting, is_ready, name, namespace, node_of, owner, phase, uid};
use crate::world::World;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(super) async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(set) = world.replica_sets.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&set.metadata) {
        return Ok(Requeue::Done);
    }
    if !claims::settle(&world, &set).await? {
        return Ok(Requeue::Stale);
    }
    // While pods were claimed, it may have been scaled or deleted.
    let is_same = |now: &Arc<ReplicaSet>| now.metadata.uid == set.metadata.uid && !is_deleting(&now.metadata);
    let Some(set) = world.replica_sets.get(&key).filter(is_same) else {
        return Ok(Requeue::Done);
    };
    let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
    let pods = active(&world.pods_by_owner.get(uid(&set.metadata)));
    if pods.len() < wanted
        && let Some(template) = &set.spec.template
    {
        for _ in pods.len()..wanted {
            let mut pod = pod_of(
                template,
                namespace(&set.metadata),
                owner("apps/v1", "ReplicaSet", &set.metadata),
            );
            pod.metadata.generate_name = Some(format!("{}-", name(&set.metadata)));
            create_pod(&world, &pod).await?;
        }
    }
    if pods.len() > wanted {
        for pod in least_valuable(&pods, pods.len() - wanted) {
            delete_pod(&world, &pod).await?;
        }
    }
    let pods = active(&world.pods_by_owner.get(uid(&set.metadata)));
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let (available, again) = count_available(&pods, set.spec.min_ready_seconds, world.clock.now());
    let status = json!({
        "replicas": pods.len(), "fullyLabeledReplicas": pods.len(), "readyReplicas": ready, "availableReplicas": available, "observedGeneration": set.metadata.generation,
    });
    let before = serde_json::to_value(&set.status).unwrap_or(Value::Null);
    write_status(&world, &world.replica_sets, &*set, &before, status).await?;
    Ok(again)
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
            !node_of(pod).is_empty(),
            phase(pod) == "Running",
            is_ready(pod),
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
}
