//! Jobs: pods that run to completion, with a given parallelism and number of completions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use spokeshave_runtime::{ObjectKey, ReconcileError, Requeue};

use super::{active, create_pod, delete_pod, pod_of, write_status};
use crate::objects::{controller_of, is_deleting, is_ready, name, namespace, owner, phase, time, uid};
use crate::world::World;

/// How long a Job waits with the successor of the first pod that failed; twice as long after each further one, up to six minutes.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(6 * 60);

/// Results of the pods of a Job, by UID. Pods that were deleted before completion have failed, unless the Job itself deleted them.
#[derive(Default)]
struct Record {
    failed: BTreeSet<String>,
    succeeded: BTreeSet<String>,
    spared: BTreeSet<String>,
    /// Failures since the last success, and when the last was.
    in_a_row: u32,
    last_failure: Option<Timestamp>,
}

impl Record {
    fn note(&mut self, pod: &Pod, gone: bool, now: Timestamp) {
        let uid = uid(&pod.metadata);
        if phase(pod) == "Succeeded" {
            if self.succeeded.insert(uid.to_owned()) {
                self.in_a_row = 0;
            }
            return;
        }
        let failed = phase(pod) == "Failed" || gone || is_deleting(&pod.metadata);
        if failed && !self.spared.contains(uid) && self.failed.insert(uid.to_owned()) {
            self.in_a_row = self.in_a_row.saturating_add(1);
            self.last_failure = Some(now);
        }
    }

    /// How long no pod is to be made.
    fn waits(&self, now: Timestamp) -> Duration {
        let Some(last) = self.last_failure.filter(|_| self.in_a_row > 0) else {
            return Duration::ZERO;
        };
        let doublings = (self.in_a_row - 1).min(16);
        let length = FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF);
        let passed = now.duration_since(last).max(SignedDuration::ZERO);
        length.saturating_sub(Duration::try_from(passed).unwrap_or_default())
    }
}

/// What became of the pods of all Jobs, by the Job's UID.
#[derive(Clone, Default)]
pub(super) struct Records(Arc<Mutex<BTreeMap<String, Record>>>);

impl Records {
    pub(super) fn new(world: &Arc<World>) -> Self {
        let records = Self::default();
        let (own, jobs, clock) = (records.clone(), world.jobs.clone(), world.clock.clone());
        world.pods.on_change(move |change| {
            let Some(pod) = change.object() else { return };
            let Some(owner) = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job") else {
                return;
            };
            let job = jobs.get(&ObjectKey::namespaced(namespace(&pod.metadata), &owner.name));
            if job.is_some_and(|job| uid(&job.metadata) == owner.uid) {
                let mut records = own.lock();
                let record = records.entry(owner.uid.clone()).or_default();
                record.note(pod, change.new.is_none(), clock.now());
            }
        });
        let own = records.clone();
        world.jobs.on_change(move |change| {
            if let (Some(old), None) = (change.old.as_deref(), change.new.as_deref()) {
                own.lock().remove(uid(&old.metadata));
            }
        });
        records
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn sync(
    world: Arc<World>,
    records: Records,
    key: ObjectKey,
) -> Result<Requeue, ReconcileError> {
    let Some(job) = world.jobs.get(&key) else {
        return Ok(Requeue::Done);
    };
    let finished = job
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten()
        .any(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True");
    if is_deleting(&job.metadata) || finished {
        return Ok(Requeue::Done);
    }
    let Some(spec) = &job.spec else {
        return Ok(Requeue::Done);
    };
    let pods = world.pods_by_owner.get(uid(&job.metadata));
    let succeeded = pods.iter().filter(|pod| phase(pod) == "Succeeded").count();
    let known = job.status.as_ref().and_then(|status| status.failed).unwrap_or(0);
    let (failed, waits) = {
        let mut records = records.lock();
        let record = records.entry(uid(&job.metadata).to_owned()).or_default();
        // A pod may have ended before its Job was seen.
        for pod in &pods {
            record.note(pod, false, world.clock.now());
        }
        let known = usize::try_from(known).unwrap_or(0);
        (record.failed.len().max(known), record.waits(world.clock.now()))
    };
    let mut running = active(&pods);
    let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or(0);
    let completions = spec.completions.map(|count| usize::try_from(count).unwrap_or(0));
    let complete = completions.map_or(succeeded > 0 && running.is_empty(), |count| succeeded >= count);
    let given_up = failed > usize::try_from(spec.backoff_limit.unwrap_or(6)).unwrap_or(6);
    let suspended = spec.suspend == Some(true);
    let wanted = if suspended || complete || given_up {
        0
    } else {
        match completions {
            Some(count) => parallelism.min(count - succeeded),
            // Pods that share one queue of work: after the first success the others only finish.
            None if succeeded > 0 => running.len(),
            None => parallelism,
        }
    };
    let missing = if waits.is_zero() {
        wanted.saturating_sub(running.len())
    } else {
        0
    };
    let again = if running.len() < wanted && !waits.is_zero() {
        Requeue::After(waits)
    } else {
        Requeue::Done
    };
    for _ in 0..missing {
        let mut pod = pod_of(
            &spec.template,
            namespace(&job.metadata),
            owner("batch/v1", "Job", &job.metadata),
        );
        pod.metadata.generate_name = Some(format!("{}-", name(&job.metadata)));
        create_pod(&world, &pod).await?;
    }
    if running.len() > wanted {
        for pod in running.split_off(wanted) {
            if let Some(record) = records.lock().get_mut(uid(&job.metadata)) {
                record.spared.insert(uid(&pod.metadata).to_owned());
            }
            delete_pod(&world, &pod).await?;
        }
    }
    let running = active(&world.pods_by_owner.get(uid(&job.metadata)));
    let now = time(world.clock.now());
    let number = |count: usize| if count == 0 { Value::Null } else { json!(count) };
    let mut status = json!({
        "active": number(running.len()), "ready": running.iter().filter(|pod| is_ready(pod)).count(), "succeeded": number(succeeded), "failed": number(failed),
    });
    if !suspended
        && job
            .status
            .as_ref()
            .is_none_or(|status| status.start_time.is_none())
    {
        status["startTime"] = json!(now);
    }
    let condition = |kind: &str, reason: &str| json!([{"type": kind, "status": "True", "reason": reason, "lastProbeTime": now, "lastTransitionTime": now}]);
    if complete {
        status["conditions"] = condition("Complete", "CompletionsReached");
        status["completionTime"] = json!(now);
    } else if given_up {
        status["conditions"] = condition("Failed", "BackoffLimitExceeded");
    }
    let before = serde_json::to_value(&job.status).unwrap_or(Value::Null);
    write_status(&world, &world.jobs, &*job, &before, status).await?;
    Ok(again)
}
