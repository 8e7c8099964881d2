//! Jobs: pods that run to their end, so many at a time, so many in all.

use std::sync::Arc;

use serde_json::{Value, json};
use spokeshave_runtime::{ObjectKey, ReconcileError, Requeue};

use super::{active, create_pod, delete_pod, pod_of, write_status};
use crate::objects::{is_deleting, is_ready, name, namespace, owner, phase, time, uid};
use crate::world::World;

pub(super) async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
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
    let failed = pods.iter().filter(|pod| phase(pod) == "Failed").count();
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
    for _ in running.len()..wanted {
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
    write_status(&world, &world.jobs, &*job, &before, status).await
}
