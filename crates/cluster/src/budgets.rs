//! Status of PodDisruptionBudgets, as the disruption controller keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use spokeshave_runtime::{Object, ObjectKey, ReconcileError, Requeue, Shutdown, Store, TaskGroup, WorkQueue};

use crate::objects::{controller_of, is_deleting, is_ready, name, namespace, selects, time, uid};
use crate::shares::{Rounded, share};
use crate::world::World;

/// A disruption that was granted and not seen counts for so long.
const GRANT: Duration = Duration::from_secs(120);
const ALLOWED: &str = "DisruptionAllowed";
/// Reason of the condition where pods cannot be counted.
const SYNC_FAILED: &str = "SyncFailed";
const WORKERS: usize = 8;

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
        world.start(tasks, shutdown, "disruption", self.queue, WORKERS, sync);
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
        .filter(|pod| selects(selector, pod.metadata.labels.as_ref()))
        .collect();
    let (granted, wait) = granted(&world, &budget, &pods);
    let (status, wait) = match expectations(&world, &budget, &pods) {
        Ok(expectations) => {
            let healthy = pods.iter().filter(|pod| {
                is_ready(pod) && !is_deleting(&pod.metadata) && !granted.contains_key(name(&pod.metadata))
            });
            let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
            (counted(&world, &budget, expectations, healthy, &granted), wait)
        }
        // The next change of a pod or of the budget is when it is counted again.
        Err(problem) => (failed(&world, &budget, &problem), None),
    };
    if let Some(status) = status {
        let patch =
            json!({"metadata": {"resourceVersion": budget.metadata.resource_version}, "status": status});
        world.patch_status(&world.budgets, &*budget, patch).await?;
    }
    Ok(wait.map_or(Requeue::Done, Requeue::After))
}

/// The status of a budget whose pods could be counted; `None` where it says so already.
fn counted(
    world: &World,
    budget: &PodDisruptionBudget,
    (expected, desired): (i32, i32),
    healthy: i32,
    granted: &Grants,
) -> Option<serde_json::Value> {
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
            && condition(budget).is_none_or(|known| known.reason != SYNC_FAILED)
    });
    let reason = if allowed > 0 {
        "SufficientPods"
    } else {
        "InsufficientPods"
    };
    let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
    (!same).then(|| {
        json!({
            "expectedPods": expected, "desiredHealthy": desired, "currentHealthy": healthy, "disruptionsAllowed": allowed,
            "observedGeneration": budget.metadata.generation,
            "disruptedPods": replaced(disrupted, granted),
            "conditions": [allowance(world, budget, allowed > 0, reason, "", budget.metadata.generation)],
        })
    })
}

/// The status of a budget whose pods cannot be counted: nothing is allowed, and the rest stays as it was. `None` where it says so already.
fn failed(world: &World, budget: &PodDisruptionBudget, problem: &str) -> Option<serde_json::Value> {
    let status = budget.status.clone().unwrap_or_default();
    let same = status.disruptions_allowed == Some(0)
        && condition(budget).is_some_and(|known| known.reason == SYNC_FAILED && known.message == problem);
    (!same).then(|| {
        json!({
            "expectedPods": status.expected_pods.unwrap_or_default(),
            "desiredHealthy": status.desired_healthy.unwrap_or_default(),
            "currentHealthy": status.current_healthy.unwrap_or_default(),
            "disruptionsAllowed": 0,
            "conditions": [allowance(world, budget, false, SYNC_FAILED, problem, status.observed_generation)],
        })
    })
}

fn condition(budget: &PodDisruptionBudget) -> Option<&Condition> {
    let conditions = budget.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_ == ALLOWED)
}

fn allowance(
    world: &World,
    budget: &PodDisruptionBudget,
    is_allowed: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
) -> serde_json::Value {
    let state = if is_allowed { "True" } else { "False" };
    let since = condition(budget)
        .filter(|known| known.status == state)
        .map_or_else(
            || time(world.clock.now()),
            |known| known.last_transition_time.clone(),
        );
    json!({"type": ALLOWED, "status": state, "reason": reason, "message": message, "lastTransitionTime": since, "observedGeneration": generation.unwrap_or_default()})
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
///
/// # Errors
/// The scale of a controller is asked for and cannot be known.
fn expectations(
    world: &World,
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
) -> Result<(i32, i32), String> {
    let count = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let Some(spec) = &budget.spec else {
        return Ok((0, 0));
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(unavailable), _) => {
            let expected = scale_of(world, pods)?;
            Ok((
                expected,
                (expected - share(unavailable, expected, Rounded::Up)).max(0),
            ))
        }
        (None, Some(IntOrString::Int(least))) => Ok((count, *least)),
        (None, Some(percent)) => {
            let expected = scale_of(world, pods)?;
            Ok((expected, share(percent, expected, Rounded::Up)))
        }
        // A budget that asks for nothing expects nobody, and lets nobody go.
        (None, None) => Ok((0, 0)),
    }
}

/// Replicas of the pods' controllers. Pods without one count for nothing, and of kinds that this cluster does not run each pod counts, as if it were scaled
/// to what there is.
///
/// # Errors
/// A controller has no scale, or is not there.
fn scale_of(world: &World, pods: &[Arc<Pod>]) -> Result<i32, String> {
    let mut seen = BTreeSet::new();
    let mut total = 0_i32;
    for pod in pods {
        let Some(owner) = controller_of(&pod.metadata) else {
            continue;
        };
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let scaled = match (group, owner.kind.as_str()) {
            ("apps", "ReplicaSet") => of_replica_set(world, pod, owner),
            ("apps", "StatefulSet") => {
                let set = meant(&world.stateful_sets, &**pod, owner);
                set.map(|set| Scaled::new(&set.metadata, set.spec.replicas))
            }
            ("", "ReplicationController") if world.options.replication_controllers => {
                let found = meant(&world.replication_controllers, &**pod, owner);
                found.map(|found| {
                    let replicas = found.spec.as_ref().and_then(|spec| spec.replicas);
                    Scaled::new(&found.metadata, replicas)
                })
            }
            ("apps", "DaemonSet") | ("batch", "Job") => None,
            _ => Some(Scaled::new(&pod.metadata, Some(1))),
        };
        let scaled =
            scaled.ok_or_else(|| format!("found no controllers for pod {:?}", name(&pod.metadata)))?;
        if seen.insert(scaled.uid) {
            total = total.saturating_add(scaled.replicas);
        }
    }
    Ok(total)
}

/// What is scaled, and to how many pods.
struct Scaled {
    uid: String,
    replicas: i32,
}

impl Scaled {
    fn new(metadata: &ObjectMeta, replicas: Option<i32>) -> Self {
        Self {
            uid: uid(metadata).to_owned(),
            replicas: replicas.unwrap_or(1),
        }
    }
}

/// The object that a reference means, which is none that has come since under the name of another.
fn meant<K: Object>(store: &Store<K>, of: &impl Object, owner: &OwnerReference) -> Option<Arc<K>> {
    let found = store.get(&ObjectKey::namespaced(namespace(of.meta()), &owner.name))?;
    (uid(found.meta()) == owner.uid).then_some(found)
}

/// Of a ReplicaSet, or of the Deployment that it belongs to. One whose Deployment is gone is what it was scaled to last.
fn of_replica_set(world: &World, pod: &Pod, owner: &OwnerReference) -> Option<Scaled> {
    let set = meant(&world.replica_sets, pod, owner)?;
    let deployment = controller_of(&set.metadata)
        .filter(|owner| owner.kind == "Deployment")
        .and_then(|owner| meant(&world.deployments, &*set, owner));
    Some(match deployment {
        Some(deployment) => Scaled::new(&deployment.metadata, deployment.spec.replicas),
        None => Scaled::new(&set.metadata, set.spec.replicas),
    })
}
