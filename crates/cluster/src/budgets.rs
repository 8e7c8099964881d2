//! Status of PodDisruptionBudgets, as the disruption controller keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use spokeshave_runtime::{
    Api, ControllerMetrics, ObjectKey, ReconcileError, Requeue, Shutdown, TaskGroup, WorkQueue,
    run_controller,
};

use crate::objects::{controller_of, has_ended, is_deleting, is_ready, name, namespace, selects, time, uid};
use crate::world::{World, is_race};

/// A disruption that was granted and not seen counts for so long.
const GRANT: Duration = Duration::from_secs(120);

/// The controller.
pub(crate) struct Budgets {
    queue: WorkQueue<ObjectKey>,
}

impl Budgets {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let queue: WorkQueue<ObjectKey> = world.queue("disruption");
        let (keys, budgets) = (queue.clone(), world.budgets.clone());
        world.pods.on_change(move |change| {
            let Some(pod) = change.object() else { return };
            for budget in budgets.in_namespace(namespace(&pod.metadata)) {
                let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
                if selects(selector, pod.metadata.labels.as_ref()) {
                    keys.add(ObjectKey::of(&*budget));
                }
            }
        });
        let keys = queue.clone();
        world.budgets.on_change(move |change| {
            if let Some(budget) = change.new.as_deref() {
                keys.add(ObjectKey::of(budget));
            }
        });
        Self { queue }
    }

    pub(crate) fn start(self, world: &Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let shared = world.clone();
        let work = move |key| sync(shared.clone(), key);
        tasks.spawn(
            "disruption",
            run_controller(
                "disruption",
                self.queue,
                8,
                work,
                shutdown.clone(),
                ControllerMetrics::new(&world.metrics),
            ),
        );
    }
}

async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(budget) = world.budgets.get(&key) else {
        return Ok(Requeue::Done);
    };
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let in_namespace = world.pods.in_namespace(namespace(&budget.metadata));
    let pods: Vec<Arc<Pod>> = in_namespace
        .into_iter()
        .filter(|pod| selects(selector, pod.metadata.labels.as_ref()) && !has_ended(pod))
        .collect();
    let (expected, desired) = expectations(&world, &budget, &pods);
    let (granted, wait) = granted(&world, &budget, &pods);
    let healthy = pods
        .iter()
        .filter(|pod| {
            is_ready(pod) && !is_deleting(&pod.metadata) && !granted.contains_key(name(&pod.metadata))
        })
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let allowed = if expected == 0 {
        0
    } else {
        (healthy - desired).max(0)
    };
    let status = budget.status.as_ref();
    let same = status.is_some_and(|status| {
        status.expected_pods == Some(expected)
            && status.desired_healthy == Some(desired)
            && status.current_healthy == Some(healthy)
            && status.disruptions_allowed == Some(allowed)
            && status.observed_generation == budget.metadata.generation
            && status.disrupted_pods.clone().unwrap_or_default().len() == granted.len()
    });
    if !same {
        let reason = if allowed > 0 {
            "SufficientPods"
        } else {
            "InsufficientPods"
        };
        let known = status
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten()
            .find(|one| one.type_ == "DisruptionAllowed");
        let state = if allowed > 0 { "True" } else { "False" };
        let since = known.filter(|known| known.status == state).map_or_else(
            || time(world.clock.now()),
            |known| known.last_transition_time.clone(),
        );
        let patch = json!({
            "metadata": {"resourceVersion": budget.metadata.resource_version},
            "status": {
                "expectedPods": expected, "desiredHealthy": desired, "currentHealthy": healthy, "disruptionsAllowed": allowed,
                "observedGeneration": budget.metadata.generation,
                "disruptedPods": replaced(status.and_then(|status| status.disrupted_pods.as_ref()), &granted),
                "conditions": [{"type": "DisruptionAllowed", "status": state, "reason": reason, "message": "", "lastTransitionTime": since, "observedGeneration": budget.metadata.generation}],
            },
        });
        let api: Api<PodDisruptionBudget> =
            Api::namespaced(world.client.clone(), namespace(&budget.metadata));
        match api
            .patch_status(
                name(&budget.metadata),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await
        {
            Ok(written) => world.budgets.note_written(written),
            Err(error) if is_race(&error) => {}
            Err(error) => return Err(Box::new(error)),
        }
    }
    Ok(wait.map_or(Requeue::Done, Requeue::After))
}

type Grants = BTreeMap<String, k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>;

/// Merge patches delete by null.
fn replaced(before: Option<&Grants>, after: &Grants) -> serde_json::Value {
    let mut map = serde_json::Map::new();
    for name in before.into_iter().flatten().map(|(name, _)| name) {
        map.insert(name.clone(), serde_json::Value::Null);
    }
    for (name, granted) in after {
        map.insert(name.clone(), json!(granted));
    }
    serde_json::Value::Object(map)
}

/// Disruptions that were granted and whose pods have not begun to go yet.
fn granted(world: &World, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> (Grants, Option<Duration>) {
    let mut kept = Grants::new();
    let mut wait: Option<Duration> = None;
    for (pod_name, since) in budget
        .status
        .iter()
        .filter_map(|status| status.disrupted_pods.as_ref())
        .flatten()
    {
        let age = world.clock.since(since.0);
        let waiting = pods
            .iter()
            .any(|pod| name(&pod.metadata) == pod_name && !is_deleting(&pod.metadata));
        if waiting && age < GRANT {
            kept.insert(pod_name.clone(), since.clone());
            let left = GRANT - age;
            wait = Some(wait.map_or(left, |wait| wait.min(left)));
        }
    }
    (kept, wait)
}

/// How many pods there should be, and how many of them must be healthy.
fn expectations(world: &World, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> (i32, i32) {
    let count = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let Some(spec) = &budget.spec else {
        return (count, 0);
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(unavailable), _) => {
            let expected = scale_of(world, pods).unwrap_or(count);
            (expected, (expected - share(unavailable, expected)).max(0))
        }
        (None, Some(IntOrString::Int(least))) => (count, *least),
        (None, Some(percent)) => {
            let expected = scale_of(world, pods).unwrap_or(count);
            (expected, share(percent, expected))
        }
        (None, None) => (count, 0),
    }
}

/// A number, or a percentage rounded up.
fn share(value: &IntOrString, of: i32) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            i32::try_from((i64::from(of) * percent + 99) / 100).unwrap_or(i32::MAX)
        }
    }
}

/// Replicas of the pods' controllers; `None` when one of them cannot be scaled.
fn scale_of(world: &World, pods: &[Arc<Pod>]) -> Option<i32> {
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for pod in pods {
        let owner = controller_of(&pod.metadata)?;
        if !seen.insert(owner.uid.clone()) {
            continue;
        }
        let key = ObjectKey::namespaced(namespace(&pod.metadata), &owner.name);
        total += match owner.kind.as_str() {
            "ReplicaSet" => {
                let set = world.replica_sets.get(&key)?;
                match controller_of(&set.metadata) {
                    Some(deployment) if deployment.kind == "Deployment" => {
                        if !seen.insert(deployment.uid.clone()) {
                            continue;
                        }
                        let deployment = world
                            .deployments
                            .get(&ObjectKey::namespaced(namespace(&pod.metadata), &deployment.name))?;
                        debug_assert!(!uid(&deployment.metadata).is_empty());
                        deployment.spec.replicas.unwrap_or(1)
                    }
                    _ => set.spec.replicas.unwrap_or(1),
                }
            }
            "StatefulSet" => world.stateful_sets.get(&key)?.spec.replicas.unwrap_or(1),
            _ => return None,
        };
    }
    (total > 0).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_up() {
        assert_eq!(share(&IntOrString::String("25%".to_owned()), 10), 3);
        assert_eq!(share(&IntOrString::String("50%".to_owned()), 0), 0);
        assert_eq!(share(&IntOrString::Int(2), 10), 2);
    }
}
