//! Workload controllers: what turns Deployments, ReplicaSets, ReplicationControllers, StatefulSets, DaemonSets, Jobs and CronJobs into pods, and what says how many.

mod autoscalers;
mod claims;
mod cron_jobs;
mod daemon_rollout;
mod daemon_sets;
mod deployment_status;
mod deployments;
mod jobs;
mod pods;
mod replica_sets;
mod retention;
mod revisions;
mod rollout;
mod stateful_sets;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, ReplicationController};
use serde_json::Value;
use spokeshave_runtime::{Object, ObjectKey, ReconcileError, Requeue, Shutdown, Store, TaskGroup, WorkQueue};

use crate::objects::{condition, controller_of, has_ended, is_deleting, namespace};
use crate::world::World;
use claims::Claimant;

const WORKERS: usize = 8;

/// The queues, one a kind.
pub(crate) struct Workloads {
    deployments: WorkQueue<ObjectKey>,
    replica_sets: WorkQueue<ObjectKey>,
    replication_controllers: WorkQueue<ObjectKey>,
    stateful_sets: WorkQueue<ObjectKey>,
    daemon_sets: WorkQueue<ObjectKey>,
    jobs: WorkQueue<ObjectKey>,
    job_records: jobs::Records,
    cron_jobs: WorkQueue<ObjectKey>,
    autoscalers: WorkQueue<ObjectKey>,
}

impl Workloads {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let this = Self {
            deployments: world.queue("deployment"),
            replica_sets: world.queue("replicaset"),
            replication_controllers: world.queue("replicationcontroller"),
            stateful_sets: world.queue("statefulset"),
            daemon_sets: world.queue("daemonset"),
            jobs: world.queue("job"),
            // Before the pod is queued, so that the reconciliation of its Job sees it.
            job_records: jobs::Records::new(world),
            cron_jobs: world.queue("cronjob"),
            autoscalers: world.queue("autoscaler"),
        };
        follow(&world.cron_jobs, &this.cron_jobs);
        follow(&world.autoscalers, &this.autoscalers);
        let cron_jobs = this.cron_jobs.clone();
        world.jobs.on_change(move |change| {
            if let Some(job) = change.object()
                && let Some(owner) = controller_of(&job.metadata).filter(|owner| owner.kind == "CronJob")
            {
                cron_jobs.add(ObjectKey::namespaced(namespace(&job.metadata), &owner.name));
            }
        });
        follow(&world.deployments, &this.deployments);
        follow(&world.replica_sets, &this.replica_sets);
        follow(&world.replication_controllers, &this.replication_controllers);
        follow(&world.stateful_sets, &this.stateful_sets);
        follow(&world.daemon_sets, &this.daemon_sets);
        follow(&world.jobs, &this.jobs);
        let deployments = this.deployments.clone();
        world.replica_sets.on_change(move |change| {
            for owner in claims::controllers(change) {
                if owner.kind == "Deployment" {
                    deployments.add(ObjectKey::namespaced(&change.key.namespace, &owner.name));
                }
            }
        });
        let queues = [
            ("ReplicaSet", &this.replica_sets),
            ("ReplicationController", &this.replication_controllers),
            ("StatefulSet", &this.stateful_sets),
            ("DaemonSet", &this.daemon_sets),
            ("Job", &this.jobs),
        ];
        let queues: Vec<(&'static str, WorkQueue<ObjectKey>)> = queues
            .into_iter()
            .map(|(kind, queue)| (kind, queue.clone()))
            .collect();
        world.pods.on_change(move |change| {
            // Whoever has lost a pod looks as well.
            for owner in claims::controllers(change) {
                if let Some((_, queue)) = queues.iter().find(|(kind, _)| *kind == owner.kind) {
                    queue.add(ObjectKey::namespaced(&change.key.namespace, &owner.name));
                }
            }
        });
        let (queue, sets, owners) = (
            this.deployments.clone(),
            world.replica_sets.clone(),
            world.deployments.clone(),
        );
        world.pods.on_change(move |change| {
            // The numbers of a set tell nothing of the end of a pod that was asked to go before.
            let ended = change.new.as_ref().filter(|pod| has_ended(pod));
            let ended = change.ended().or(ended);
            if let Some(key) = ended.and_then(|pod| deployments::waiting_for(pod, &sets, &owners)) {
                queue.add(key);
            }
        });
        follow_orphans(&world.pods, &world.replica_sets, &this.replica_sets);
        follow_orphans(
            &world.pods,
            &world.replication_controllers,
            &this.replication_controllers,
        );
        follow_orphans(&world.pods, &world.stateful_sets, &this.stateful_sets);
        follow_orphans(&world.pods, &world.daemon_sets, &this.daemon_sets);
        follow_orphans(&world.replica_sets, &world.deployments, &this.deployments);
        let (queue, store) = (this.stateful_sets.clone(), world.stateful_sets.clone());
        world.pods.on_change(move |change| {
            // A pod of somebody else may have had the name of one of its own.
            let key = change.ended().and_then(|_| stateful_sets::set_of(&change.key));
            if let Some(key) = key.filter(|key| store.get(key).is_some()) {
                queue.add(key);
            }
        });
        let (daemon_sets, store) = (this.daemon_sets.clone(), world.daemon_sets.clone());
        world
            .nodes
            .on_change(move |_| store.keys().into_iter().for_each(|key| daemon_sets.add(key)));
        this
    }

    pub(crate) fn start(self, world: &Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        macro_rules! start {
            ($name:literal, $queue:expr, $sync:path) => {
                world.start(tasks, shutdown, $name, $queue, WORKERS, $sync);
            };
        }
        start!("deployment", self.deployments, deployments::sync);
        start!("replicaset", self.replica_sets, replica_sets::sync::<ReplicaSet>);
        if world.options.replication_controllers {
            start!(
                "replicationcontroller",
                self.replication_controllers,
                replica_sets::sync::<ReplicationController>
            );
        }
        start!("statefulset", self.stateful_sets, stateful_sets::sync);
        start!("daemonset", self.daemon_sets, daemon_sets::sync);
        let records = self.job_records;
        let sync_job = move |world, key| jobs::sync(world, records.clone(), key);
        start!("job", self.jobs, sync_job);
        start!("cronjob", self.cron_jobs, cron_jobs::sync);
        let recommended = autoscalers::Recommended::default();
        let sync_autoscaler = move |world, key| autoscalers::sync(world, recommended.clone(), key);
        start!("autoscaler", self.autoscalers, sync_autoscaler);
    }
}

fn follow<K: Object>(store: &Store<K>, queue: &WorkQueue<ObjectKey>) {
    let queue = queue.clone();
    store.on_change(move |change| {
        if let Some(object) = change.new.as_deref() {
            queue.add(ObjectKey::of(object));
        }
    });
}

/// A controller looks at what has become an orphan that it selects, or has got other labels as one. A Job selects by a label that no orphan has.
fn follow_orphans<C: Claimant, D: Object>(
    dependents: &Store<D>,
    claimants: &Store<C>,
    queue: &WorkQueue<ObjectKey>,
) {
    let (claimants, queue) = (claimants.clone(), queue.clone());
    dependents.on_change(move |change| {
        let Some(orphan) = claims::new_orphan(change) else {
            return;
        };
        for claimant in claimants.in_namespace(&change.key.namespace) {
            if claimant.takes(orphan) {
                queue.add(ObjectKey::of(&*claimant));
            }
        }
    });
}

/// The object as it is now, if it is still that one and stays.
fn still<K: Object>(store: &Store<K>, key: &ObjectKey, before: &K) -> Option<Arc<K>> {
    let now = store.get(key)?;
    let is_same = now.meta().uid == before.meta().uid && !is_deleting(now.meta());
    is_same.then_some(now)
}

/// Pods of an owner that count: neither ended nor on their way out.
fn active(pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    pods.iter().filter(|pod| is_active(pod)).cloned().collect()
}

fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && !is_deleting(&pod.metadata)
}

/// How long until `seconds` after `since`; zero when that has passed.
fn left(since: Timestamp, seconds: i64, now: Timestamp) -> Duration {
    let left = SignedDuration::from_secs(seconds).saturating_sub(now.duration_since(since));
    Duration::try_from(left).unwrap_or_default()
}

/// How long until a pod has been Ready for `minReadySeconds`; zero when it is available, `None` when it is not Ready.
fn until_available(pod: &Pod, min_ready: Option<i32>, now: Timestamp) -> Option<Duration> {
    let ready = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    let min_ready = i64::from(min_ready.unwrap_or(0));
    if min_ready <= 0 {
        return Some(Duration::ZERO);
    }
    Some(left(ready.last_transition_time.as_ref()?.0, min_ready, now))
}

fn is_available(pod: &Pod, min_ready: Option<i32>, now: Timestamp) -> bool {
    until_available(pod, min_ready, now).is_some_and(|wait| wait.is_zero())
}

/// How many of these pods are available, and when to look at the others again: that a pod has been Ready for long enough is no change of it.
fn count_available<'a>(
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
    min_ready: Option<i32>,
    now: Timestamp,
) -> (usize, Requeue) {
    let (mut available, mut again) = (0, Requeue::Done);
    for wait in pods
        .into_iter()
        .filter_map(|pod| until_available(pod, min_ready, now))
    {
        if wait.is_zero() {
            available += 1;
        } else {
            again = sooner(again, Requeue::After(wait));
        }
    }
    (available, again)
}

/// The look that comes first.
fn sooner(one: Requeue, other: Requeue) -> Requeue {
    match (one, other) {
        (Requeue::After(one), Requeue::After(other)) => Requeue::After(one.min(other)),
        (Requeue::Done, other) => other,
        (one, _) => one,
    }
}

/// Writes a status when it differs from the known one.
async fn write_status<K>(
    world: &World,
    store: &Store<K>,
    object: &K,
    before: &Value,
    after: Value,
) -> Result<Requeue, ReconcileError>
where
    K: Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
{
    let mut merged = before.clone();
    if let (Value::Object(merged), Value::Object(after)) = (&mut merged, &after) {
        for (key, value) in after {
            if value.is_null() {
                merged.remove(key);
            } else {
                merged.insert(key.clone(), value.clone());
            }
        }
    } else {
        merged = after.clone();
    }
    if merged == *before {
        return Ok(Requeue::Done);
    }
    let patch = serde_json::json!({"metadata": {"uid": object.meta().uid}, "status": after});
    world.patch_status(store, object, patch).await?;
    Ok(Requeue::Done)
}

/// A short hash of a template, for names and labels: another one for each time that such a name was found to be taken.
fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut text = serde_json::to_string(template).unwrap_or_default();
    if let Some(collisions) = collisions {
        text.push_str(&collisions.to_string());
    }
    let hash = text.bytes().fold(2_166_136_261_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    let letters = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rest = hash;
    let mut out = String::new();
    for _ in 0..8 {
        out.push(char::from(letters[(rest % 27) as usize]));
        rest = (rest / 27) ^ (rest << 3);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_are_available_when_they_have_been_ready_for_long_enough() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let pod = |state: &str, second: i64| -> Arc<Pod> {
            let condition = json!({"type": "Ready", "status": state, "lastTransitionTime": crate::objects::time(at(second))});
            Arc::new(serde_json::from_value(json!({"status": {"conditions": [condition]}})).unwrap())
        };
        let pods = [pod("True", 0), pod("True", 10), pod("False", 0), pod("True", 20)];
        let look = |min_ready: Option<i32>, second: i64| count_available(&pods, min_ready, at(second));
        let after = |seconds: u64| Requeue::After(Duration::from_secs(seconds));
        assert_eq!(look(None, 20), (3, Requeue::Done));
        assert_eq!(look(Some(30), 20), (0, after(10)));
        assert_eq!(look(Some(30), 30), (1, after(10)));
        assert_eq!(look(Some(30), 45), (2, after(5)));
        assert_eq!(look(Some(30), 50), (3, Requeue::Done));
    }
}
