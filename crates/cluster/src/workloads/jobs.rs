//! Jobs: pods that run to completion, with a given parallelism and number of completions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use spokeshave_runtime::{Change, ObjectKey, ReconcileError, Requeue};

use super::claims::{self, Claimant as _};
use super::pods::{create_pod, delete_pod, pod_of};
use super::{active, cron_jobs, left, sooner, still, write_status};
use crate::objects::{controller_of, is_deleting, is_ready, name, namespace, phase, time, uid};
use crate::world::World;

/// How long a Job waits with the next pod when the first has failed; twice as long after each further one, up to ten minutes (by its code; documents say six).
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10 * 60);
/// Which part of an Indexed Job a pod does: an annotation and a label.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Results of the pods of a Job, by UID. Pods that were deleted before completion have failed, unless the Job itself deleted them.
#[derive(Default)]
struct Record {
    failed: BTreeSet<String>,
    succeeded: BTreeSet<String>,
    /// Indexes of the pods that succeeded.
    indexes: BTreeSet<usize>,
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
                self.indexes.extend(index_of(pod));
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
            for (pod, is_gone) in news(change) {
                let Some(owner) = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job") else {
                    continue;
                };
                let job = jobs.get(&ObjectKey::namespaced(namespace(&pod.metadata), &owner.name));
                if job.is_some_and(|job| uid(&job.metadata) == owner.uid) {
                    let mut records = own.lock();
                    let record = records.entry(owner.uid.clone()).or_default();
                    record.note(pod, is_gone, clock.now());
                }
            }
        });
        let own = records.clone();
        world.jobs.on_change(move |change| own.forget(change));
        records
    }

    /// The record of a Job ends with it, also when another one has its name.
    fn forget(&self, change: &Change<Job>) {
        if let Some(old) = change.ended() {
            self.lock().remove(uid(&old.metadata));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pods of which a change tells, and whether they are gone: first the one that is no more, then the one that has its name.
fn news(change: &Change<Pod>) -> Vec<(&Pod, bool)> {
    let gone = change.ended().map(|pod| (&**pod, true));
    let here = change.new.as_deref().map(|pod| (pod, false));
    gone.into_iter().chain(here).collect()
}

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
        Tally::of(record, &job, now)
    };
    let mut running = active(&pods);
    let overtime = overtime(&job, spec, now);
    let end = tally.end(spec, running.len(), overtime);
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
    if running.len() < wanted {
        if tally.waits.is_zero() {
            for index in openings(spec, &tally, &running, wanted - running.len()) {
                failure = create_pod(&world, &*job, &new_pod(&job, spec, index)).await.err();
                if failure.is_some() {
                    break;
                }
            }
        } else {
            again = sooner(again, Requeue::After(tally.waits));
        }
    } else {
        for pod in running.split_off(wanted) {
            if let Some(record) = records.lock().get_mut(uid(&job.metadata)) {
                record.spared.insert(uid(&pod.metadata).to_owned());
            }
            failure = failure.or(delete_pod(&world, &*job, &pod).await.err());
        }
    }
    let running = active(&world.pods_by_owner.get(uid(&job.metadata)));
    let status = status(&job, spec, &tally, &running, end.as_ref(), world.clock.now());
    let before = serde_json::to_value(&job.status).unwrap_or(Value::Null);
    write_status(&world, &world.jobs, &*job, &before, status).await?;
    if let Some(error) = failure {
        return Err(error);
    }
    if let Some(end) = end {
        tell_end(&world, &job, end).await;
    }
    Ok(again)
}

/// Says how a Job has ended.
async fn tell_end(world: &World, job: &Job, (kind, reason, message): End) {
    if kind == "Complete" {
        world
            .record(Job::COMPONENT, job, "Completed", "Job completed")
            .await;
    } else if world.keeps_records() {
        world
            .note(Job::COMPONENT, job, ("Warning", reason, message))
            .await;
    }
}

/// When the Job ended, as far as that is known; `None` while it has not.
fn finished(job: &Job) -> Option<Option<Timestamp>> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let last = conditions
        .iter()
        .find(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True")?;
    Some(last.last_transition_time.as_ref().map(|time| time.0))
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

/// How a Job ends: type, reason and message of its last condition.
type End = (&'static str, &'static str, &'static str);

impl Tally {
    /// Pods that are gone count as well; and what the status already says, since the record does not outlive this process.
    fn of(record: &Record, job: &Job, now: Timestamp) -> Self {
        let status = job.status.as_ref();
        let told = |count: Option<i32>| usize::try_from(count.unwrap_or(0)).unwrap_or(0);
        let mut done = record.indexes.clone();
        done.extend(
            status
                .and_then(|status| status.completed_indexes.as_deref())
                .map(numbers)
                .unwrap_or_default(),
        );
        let succeeded = record
            .succeeded
            .len()
            .max(told(status.and_then(|status| status.succeeded)));
        Self {
            succeeded: if job.spec.as_ref().is_some_and(is_indexed) {
                done.len()
            } else {
                succeeded
            },
            failed: record
                .failed
                .len()
                .max(told(status.and_then(|status| status.failed))),
            done,
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
            Some((
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            ))
        } else if self.failed > limit {
            Some((
                "Failed",
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            ))
        } else if overtime.is_some_and(|rest| rest.is_zero()) {
            Some((
                "Failed",
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

fn completions(spec: &JobSpec) -> Option<usize> {
    spec.completions.map(|count| usize::try_from(count).unwrap_or(0))
}

fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

fn index_of(pod: &Pod) -> Option<usize> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(INDEX)?.parse().ok()
}

/// The pods to make, at most `count`: those of an Indexed Job have the lowest indexes that are neither done nor taken.
fn openings(spec: &JobSpec, tally: &Tally, running: &[Arc<Pod>], count: usize) -> Vec<Option<usize>> {
    if !is_indexed(spec) {
        return vec![None; count];
    }
    let taken: BTreeSet<usize> = running.iter().filter_map(|pod| index_of(pod)).collect();
    (0..completions(spec).unwrap_or(0))
        .filter(|index| !taken.contains(index) && !tally.done.contains(index))
        .take(count)
        .map(Some)
        .collect()
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

fn status(
    job: &Job,
    spec: &JobSpec,
    tally: &Tally,
    running: &[Arc<Pod>],
    end: Option<&End>,
    now: Timestamp,
) -> Value {
    let now = time(now);
    let number = |count: usize| if count == 0 { Value::Null } else { json!(count) };
    let mut status = json!({
        "active": number(running.len()), "ready": running.iter().filter(|pod| is_ready(pod)).count(),
        "succeeded": number(tally.succeeded), "failed": number(tally.failed),
    });
    if is_indexed(spec) && !tally.done.is_empty() {
        status["completedIndexes"] = json!(intervals(&tally.done));
    }
    let started = job
        .status
        .as_ref()
        .is_some_and(|status| status.start_time.is_some());
    if spec.suspend == Some(true) {
        // The time of a suspended Job begins anew when it is resumed.
        status["startTime"] = Value::Null;
    } else if !started {
        status["startTime"] = json!(now);
    }
    if let Some((kind, reason, message)) = end {
        status["conditions"] = json!([{"type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": now, "lastTransitionTime": now}]);
        if *kind == "Complete" {
            status["completionTime"] = json!(now);
        }
    }
    status
}

/// Numbers as a Job's status writes them: `0,2-4`.
fn intervals(numbers: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let texts: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    texts.join(",")
}

fn numbers(text: &str) -> BTreeSet<usize> {
    let mut numbers = BTreeSet::new();
    for run in text.split(',') {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            numbers.extend(first..=last);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn job(spec: &Value, status: &Value) -> Job {
        let mut object =
            json!({"metadata": {"name": "j", "namespace": "default"}, "spec": spec, "status": status});
        object["spec"]["template"] = json!({});
        serde_json::from_value(object).unwrap()
    }

    fn pod(pod_uid: &str, pod_phase: &str, index: Option<usize>) -> Pod {
        let annotations = index.map(|index| json!({INDEX: index.to_string()}));
        let metadata = json!({"name": pod_uid, "uid": pod_uid, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "status": {"phase": pod_phase}})).unwrap()
    }

    fn spec(job: &Job) -> &JobSpec {
        job.spec.as_ref().unwrap()
    }

    /// `DefaultJobPodFailureBackOff` and `MaxJobPodFailureBackOff` of the Job controller.
    #[test]
    fn the_successor_of_a_pod_that_failed_waits_ten_minutes_at_most_and_not_after_a_success() {
        let mut record = Record::default();
        let waits = (0..8).map(|number| {
            record.note(&pod(&number.to_string(), "Failed", None), false, at(0));
            record.waits(at(0)).as_secs()
        });
        assert_eq!(waits.collect::<Vec<_>>(), [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(record.waits(at(590)), Duration::from_secs(10));
        record.note(&pod("good", "Succeeded", None), false, at(595));
        assert!(record.waits(at(595)).is_zero());
    }

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
        let end = tally.end(spec(&told), 0, None).map(|end| end.1);
        assert_eq!(end, Some("CompletionsReached"));
    }

    #[test]
    fn who_has_ended_is_noted_also_when_another_one_has_its_name() {
        let pods = [pod("a", "Running", None), pod("b", "Running", None)].map(Arc::new);
        let change = |old: Option<usize>, new: Option<usize>| {
            let of = |number: Option<usize>| number.map(|number| pods[number].clone());
            Change {
                key: ObjectKey::namespaced("default", "j-0"),
                old: of(old),
                new: of(new),
            }
        };
        let told = |change: &Change<Pod>| -> Vec<(String, bool)> {
            let news = news(change).into_iter();
            news.map(|(pod, is_gone)| (uid(&pod.metadata).to_owned(), is_gone))
                .collect()
        };
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(told(&change(None, Some(0))), [(a.clone(), false)]);
        assert_eq!(told(&change(Some(0), Some(0))), [(a.clone(), false)]);
        assert_eq!(told(&change(Some(0), None)), [(a.clone(), true)]);
        assert_eq!(told(&change(Some(0), Some(1))), [(a, true), (b, false)]);

        let named = |job_uid: &str| {
            let mut job = job(&json!({}), &Value::Null);
            job.metadata.uid = Some(job_uid.to_owned());
            Some(Arc::new(job))
        };
        let records = Records::default();
        records.lock().insert("old".to_owned(), Record::default());
        let key = ObjectKey::namespaced("default", "j");
        let mut of_job = Change {
            key,
            old: named("old"),
            new: named("old"),
        };
        records.forget(&of_job);
        assert!(records.lock().contains_key("old"), "it has changed");
        of_job.new = named("new");
        records.forget(&of_job);
        assert!(records.lock().is_empty());
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
        let end = tally.end(spec(&j), 1, rest(&j, 60)).map(|end| (end.0, end.1));
        assert_eq!(end, Some(("Failed", "DeadlineExceeded")));
        j.spec.get_or_insert_default().suspend = Some(true);
        assert_eq!(rest(&j, 500), None, "the time of a suspended Job does not run");
        let status = status(&j, spec(&j), &tally, &[], None, at(500));
        assert_eq!(status["startTime"], Value::Null);
        let fresh = job(&limits, &Value::Null);
        assert_eq!(rest(&fresh, 500), Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_job_has_ended_when_its_last_condition_says_so() {
        let j = job(&json!({"completions": 1}), &Value::Null);
        assert_eq!(finished(&j), None);
        let tally = Tally::of(&Record::default(), &j, at(0));
        let end = ("Failed", "DeadlineExceeded", "");
        let after = status(&j, spec(&j), &tally, &[], Some(&end), at(7));
        assert_eq!(finished(&job(&json!({}), &after)), Some(Some(at(7))));
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
        assert_eq!(openings(spec(&j), &tally, &running, 2), [Some(3), Some(4)]);
        let made = new_pod(&j, spec(&j), Some(3));
        assert_eq!(made.metadata.generate_name.as_deref(), Some("j-3-"));
        assert_eq!(index_of(&made), Some(3));
        assert_eq!(
            made.metadata
                .labels
                .unwrap_or_default()
                .get(INDEX)
                .map(String::as_str),
            Some("3")
        );
        let plain = job(&json!({"completions": 5}), &Value::Null);
        assert_eq!(openings(spec(&plain), &tally, &[], 2), [None, None]);
    }

    #[test]
    fn indexes_are_written_as_intervals() {
        let some: BTreeSet<usize> = [0, 2, 3, 4, 9].into();
        assert_eq!(intervals(&some), "0,2-4,9");
        assert_eq!(numbers("0,2-4,9"), some);
        assert_eq!(numbers(""), BTreeSet::new());
    }
}
