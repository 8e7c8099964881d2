//! Jobs: pods that run to completion, with a given parallelism and number of completions.

mod indexes;
mod records;
mod status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use spokeshave_runtime::{ObjectKey, ReconcileError, Requeue};

use self::indexes::{INDEX, completions, count_of, numbers, openings, surplus};
use self::records::Record;
pub(super) use self::records::Records;
use self::status::{End, finished, is_over, status, turn};
use super::claims::{self, Claimant as _};
use super::pods::{create_pod, delete_pod, pod_of};
use super::{active, cron_jobs, left, sooner, still, write_status};
use crate::objects::{is_deleting, name, uid};
use crate::world::World;

pub(super) async fn sync(
    world: Arc<World>,
    records: Records,
    key: ObjectKey,
) -> Result<Requeue, ReconcileError> {
    let Some(job) = world.jobs.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&job.metadata) {
        return Ok(Requeue::Done);
    }
    let Some(spec) = &job.spec else {
        return Ok(Requeue::Done);
    };
    let now = world.clock.now();
    if let Some(since) = finished(&job) {
        return retire(&world, &job, spec, since.unwrap_or(now)).await;
    }
    if !claims::settle_pods(&world, &*job).await? {
        return Ok(Requeue::Stale);
    }
    if still(&world.jobs, &key, &*job).is_none() {
        return Ok(Requeue::Done);
    }
    let pods = world.pods_by_owner.get(uid(&job.metadata));
    let tally = {
        let mut records = records.lock();
        let record = records.entry(uid(&job.metadata).to_owned()).or_default();
        // A pod may have ended before its Job was seen.
        for pod in &pods {
            record.note(pod, false, now);
        }
        if let Some(count) = count_of(spec) {
            record.forget_from(count);
        }
        Tally::of(record, &job, now)
    };
    let running = active(&pods);
    let overtime = overtime(&job, spec, now);
    let end = End::told(&job).or_else(|| tally.end(spec, running.len(), overtime));
    let suspended = spec.suspend == Some(true);
    let wanted = if suspended || end.is_some() {
        0
    } else {
        tally.wanted(spec, running.len())
    };
    let mut again = Requeue::Done;
    if let Some(rest) = overtime.filter(|_| end.is_none()) {
        again = sooner(again, Requeue::After(rest));
    }
    let mut failure = None;
    let surplus = surplus(spec, &running, wanted);
    if surplus.is_empty() && running.len() < wanted {
        if tally.waits.is_zero() {
            for index in openings(spec, &tally.done, &running, wanted - running.len()) {
                failure = create_pod(&world, &*job, &new_pod(&job, spec, index)).await.err();
                if failure.is_some() {
                    break;
                }
            }
        } else {
            again = sooner(again, Requeue::After(tally.waits));
        }
    }
    for pod in surplus {
        if let Some(record) = records.lock().get_mut(uid(&job.metadata)) {
            record.spared.insert(uid(&pod.metadata).to_owned());
        }
        failure = failure.or(delete_pod(&world, &*job, &pod).await.err());
    }
    let pods = world.pods_by_owner.get(uid(&job.metadata));
    let status = status(&job, spec, &tally, &pods, end.as_ref(), world.clock.now());
    let before = serde_json::to_value(&job.status).unwrap_or(Value::Null);
    write_status(&world, &world.jobs, &*job, &before, status).await?;
    if let Some(turn) = turn(&job, spec, end.as_ref()) {
        world
            .record(Job::COMPONENT, &*job, turn.event, turn.message)
            .await;
    }
    if let Some(error) = failure {
        return Err(error);
    }
    if let Some(end) = end.filter(|end| is_over(Some(end), &pods)) {
        tell_end(&world, &job, &end).await;
    }
    Ok(again)
}

/// Says how a Job has ended.
async fn tell_end(world: &World, job: &Job, end: &End) {
    if end.is_success {
        world
            .record(Job::COMPONENT, job, "Completed", "Job completed")
            .await;
    } else if world.keeps_records() {
        let event = ("Warning", end.reason.as_str(), end.message.as_str());
        world.note(Job::COMPONENT, job, event).await;
    }
}

/// Deletes a Job that has ended, `ttlSecondsAfterFinished` later.
async fn retire(
    world: &World,
    job: &Job,
    spec: &JobSpec,
    since: Timestamp,
) -> Result<Requeue, ReconcileError> {
    let Some(seconds) = spec.ttl_seconds_after_finished else {
        return Ok(Requeue::Done);
    };
    let left = left(since, i64::from(seconds), world.clock.now());
    if !left.is_zero() {
        return Ok(Requeue::After(left));
    }
    cron_jobs::delete(world, job).await?;
    Ok(Requeue::Done)
}

/// How long the Job may still be active; `None` when there is no limit or its time does not run.
fn overtime(job: &Job, spec: &JobSpec, now: Timestamp) -> Option<Duration> {
    if spec.suspend == Some(true) {
        return None;
    }
    let seconds = spec.active_deadline_seconds?;
    let status = job.status.as_ref();
    let start = status.and_then(|status| status.start_time.as_ref());
    Some(left(start.map_or(now, |start| start.0), seconds, now))
}

/// What came of a Job's pods so far.
#[derive(Debug)]
struct Tally {
    succeeded: usize,
    failed: usize,
    /// Indexes that are done, of an Indexed Job.
    done: BTreeSet<usize>,
    waits: Duration,
}

impl Tally {
    /// Pods that are gone count as well; and what the status already says, since the record does not outlive this process.
    fn of(record: &Record, job: &Job, now: Timestamp) -> Self {
        let status = job.status.as_ref();
        let told = |count: Option<i32>| usize::try_from(count.unwrap_or(0)).unwrap_or(0);
        let done = job.spec.as_ref().and_then(count_of).map(|count| {
            let told = status.and_then(|status| status.completed_indexes.as_deref());
            let mut done = numbers(told.unwrap_or_default(), count);
            done.extend(record.indexes.iter().filter(|index| **index < count));
            done
        });
        let succeeded = record
            .succeeded
            .len()
            .max(told(status.and_then(|status| status.succeeded)));
        Self {
            succeeded: done.as_ref().map_or(succeeded, BTreeSet::len),
            failed: record
                .failed
                .len()
                .max(told(status.and_then(|status| status.failed))),
            done: done.unwrap_or_default(),
            waits: record.waits(now),
        }
    }

    fn end(&self, spec: &JobSpec, running: usize, overtime: Option<Duration>) -> Option<End> {
        let complete = match completions(spec) {
            Some(count) => self.succeeded >= count,
            None => self.succeeded > 0 && running == 0,
        };
        let limit = usize::try_from(spec.backoff_limit.unwrap_or(6)).unwrap_or(6);
        if complete {
            Some(End::success())
        } else if self.failed > limit {
            Some(End::failure(
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            ))
        } else if overtime.is_some_and(|rest| rest.is_zero()) {
            Some(End::failure(
                "DeadlineExceeded",
                "Job was active longer than specified deadline",
            ))
        } else {
            None
        }
    }

    /// How many pods are to run, of which `running` do.
    fn wanted(&self, spec: &JobSpec, running: usize) -> usize {
        let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or(0);
        match completions(spec) {
            Some(count) => parallelism.min(count.saturating_sub(self.succeeded)),
            // Pods that share one queue of work: after the first success the others only finish.
            None if self.succeeded > 0 => running,
            None => parallelism,
        }
    }
}

fn new_pod(job: &Job, spec: &JobSpec, index: Option<usize>) -> Pod {
    let mut pod = pod_of(job, &spec.template);
    let mut prefix = format!("{}-", name(&job.metadata));
    if let Some(index) = index {
        prefix = format!("{prefix}{index}-");
        for map in [&mut pod.metadata.annotations, &mut pod.metadata.labels] {
            map.get_or_insert_default()
                .insert(INDEX.to_owned(), index.to_string());
        }
    }
    pod.metadata.generate_name = Some(prefix);
    pod
}

#[cfg(test)]
mod testing {
    use super::*;
    use serde_json::json;

    pub(super) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    pub(super) fn job(spec: &Value, status: &Value) -> Job {
        let mut object =
            json!({"metadata": {"name": "j", "namespace": "default"}, "spec": spec, "status": status});
        object["spec"]["template"] = json!({});
        serde_json::from_value(object).unwrap()
    }

    pub(super) fn pod(pod_uid: &str, pod_phase: &str, index: Option<usize>) -> Pod {
        let annotations = index.map(|index| json!({INDEX: index.to_string()}));
        let metadata = json!({"name": pod_uid, "uid": pod_uid, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "status": {"phase": pod_phase}})).unwrap()
    }

    pub(super) fn spec(job: &Job) -> &JobSpec {
        job.spec.as_ref().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{at, job, pod, spec};
    use super::*;
    use crate::objects::time;
    use serde_json::json;

    #[test]
    fn completions_are_remembered_when_the_pods_are_gone() {
        let j = job(&json!({"completions": 3, "parallelism": 3}), &Value::Null);
        let mut record = Record::default();
        for name in ["a", "b"] {
            record.note(&pod(name, "Succeeded", None), false, at(0));
            record.note(&pod(name, "Succeeded", None), true, at(1));
        }
        let tally = Tally::of(&record, &j, at(2));
        assert_eq!((tally.succeeded, tally.failed), (2, 0));
        assert_eq!(tally.wanted(spec(&j), 0), 1, "only the third is missing");
        assert_eq!(tally.end(spec(&j), 0, None), None);
        let told = job(&json!({"completions": 3}), &json!({"succeeded": 3}));
        let tally = Tally::of(&Record::default(), &told, at(2));
        assert_eq!(tally.succeeded, 3, "what the status says holds without a record");
        assert_eq!(tally.end(spec(&told), 0, None), Some(End::success()));
    }

    #[test]
    fn a_job_may_not_be_active_longer_than_its_deadline() {
        let limits = json!({"completions": 1, "activeDeadlineSeconds": 60});
        let started = json!({"startTime": time(at(0))});
        let mut j = job(&limits, &started);
        let tally = Tally::of(&Record::default(), &j, at(0));
        let rest = |job: &Job, second: i64| overtime(job, spec(job), at(second));
        assert_eq!(rest(&j, 50), Some(Duration::from_secs(10)));
        assert_eq!(tally.end(spec(&j), 1, rest(&j, 50)), None);
        let end = tally.end(spec(&j), 1, rest(&j, 60)).unwrap();
        assert_eq!((end.is_success, end.reason.as_str()), (false, "DeadlineExceeded"));
        j.spec.get_or_insert_default().suspend = Some(true);
        assert_eq!(rest(&j, 500), None, "the time of a suspended Job does not run");
        let status = status(&j, spec(&j), &tally, &[], None, at(500));
        assert_eq!(status["startTime"], Value::Null);
        let fresh = job(&limits, &Value::Null);
        assert_eq!(rest(&fresh, 500), Some(Duration::from_secs(60)));
    }

    #[test]
    fn an_indexed_job_runs_the_lowest_indexes_that_are_free() {
        let indexed = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 3});
        let j = job(&indexed, &json!({"completedIndexes": "0"}));
        let mut record = Record::default();
        record.note(&pod("c", "Succeeded", Some(2)), true, at(0));
        // The same index twice is one completion.
        record.note(&pod("d", "Succeeded", Some(2)), true, at(0));
        let tally = Tally::of(&record, &j, at(1));
        assert_eq!((tally.succeeded, tally.wanted(spec(&j), 1)), (2, 3));
        let running = [Arc::new(pod("b", "Running", Some(1)))];
        assert_eq!(openings(spec(&j), &tally.done, &running, 2), [Some(3), Some(4)]);
        let made = new_pod(&j, spec(&j), Some(3));
        assert_eq!(made.metadata.generate_name.as_deref(), Some("j-3-"));
        assert_eq!(indexes::index_of(&made), Some(3));
        assert_eq!(
            made.metadata
                .labels
                .unwrap_or_default()
                .get(INDEX)
                .map(String::as_str),
            Some("3")
        );
        let plain = job(&json!({"completions": 5}), &Value::Null);
        assert_eq!(openings(spec(&plain), &tally.done, &[], 2), [None, None]);
    }

    #[test]
    fn indexes_that_a_smaller_job_does_not_have_are_not_done() {
        let indexed = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 5});
        let j = job(&indexed, &json!({"completedIndexes": "7-8", "succeeded": 2}));
        let mut record = Record::default();
        record.note(&pod("k", "Succeeded", Some(10)), true, at(0));
        let tally = Tally::of(&record, &j, at(1));
        assert_eq!((tally.succeeded, tally.wanted(spec(&j), 0)), (0, 5));
        let after = status(&j, spec(&j), &tally, &[], None, at(1));
        assert_eq!(after["completedIndexes"], Value::Null, "nor are they told of");
        // When it is large again they are done again.
        record.forget_from(5);
        let large = json!({"completionMode": "Indexed", "completions": 12, "parallelism": 12});
        let tally = Tally::of(&record, &job(&large, &Value::Null), at(2));
        assert_eq!(tally.succeeded, 0);
    }
}
