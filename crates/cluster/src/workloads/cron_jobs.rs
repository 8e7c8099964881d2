//! CronJobs: a Job for each time of a schedule, as the rules about overlap, lateness and history have it.

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::{Cron, DurationError, GoDuration};
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue};

use super::write_status;
use crate::objects::{is_deleting, name, namespace, owner, time, uid};
use crate::world::{World, ignore_races, is_race};

/// When a Job was due, on the Job.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
const NAME: &str = "cronjob-controller";
/// How far back the last of many missed times is looked for at first.
const FIRST_REACH: SignedDuration = SignedDuration::from_hours(1);

/// When a CronJob runs.
enum Schedule {
    /// By the clocks of a time zone.
    Clocks(Cron, TimeZone),
    /// Again and again after so many seconds.
    Every(i64),
}

impl Schedule {
    fn of(job: &CronJob) -> Result<Self, String> {
        let spec = &job.spec;
        let zone = match spec.time_zone.as_deref() {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|error| format!("spec.timeZone {name:?}: {error}"))?,
        };
        if let Some(period) = spec.schedule.strip_prefix("@every ") {
            let period: GoDuration = period
                .parse()
                .map_err(|error: DurationError| format!("spec.schedule {:?}: {error}", spec.schedule))?;
            // Whole seconds, and at least one.
            return Ok(Self::Every((period.nanoseconds() / 1_000_000_000).max(1)));
        }
        let cron = spec
            .schedule
            .parse::<Cron>()
            .map_err(|error| format!("spec.schedule {:?}: {error}", spec.schedule))?;
        Ok(Self::Clocks(cron, zone))
    }

    /// The last time that has come since, and the first that has not.
    fn due(&self, since: Timestamp, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
        let (cron, zone) = match self {
            Self::Clocks(cron, zone) => (cron, zone),
            Self::Every(seconds) => return every(*seconds, since, now),
        };
        let first = cron.hits_by(zone, since).next();
        if first.is_none_or(|first| first > now) {
            return (None, first);
        }
        // From the end, because nobody could walk through all that a schedule misses while it is suspended for years.
        let mut reach = FIRST_REACH;
        loop {
            let from = now.checked_sub(reach).map_or(since, |from| from.max(since));
            let mut hits = cron.hits_by(zone, from);
            let (mut last, mut next) = (None, hits.next());
            while let Some(hit) = next.filter(|hit| *hit <= now) {
                last = Some(hit);
                next = hits.next();
            }
            if last.is_some() || from == since {
                return (last, next);
            }
            reach = reach.saturating_mul(2);
        }
    }
}

/// The same of a schedule that names a period, and no times.
fn every(seconds: i64, since: Timestamp, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
    let times = (now.as_second() - since.as_second()) / seconds;
    let time = |number: i64| {
        let passed = seconds.saturating_mul(number);
        Timestamp::from_second(since.as_second().saturating_add(passed)).ok()
    };
    if times > 0 {
        (time(times), time(times + 1))
    } else {
        (None, time(1))
    }
}

fn ended(job: &Job) -> Option<&'static str> {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut kinds = conditions
        .into_iter()
        .flatten()
        .filter(|one| one.status == "True")
        .map(|one| one.type_.as_str());
    kinds.find_map(|kind| match kind {
        "Complete" => Some("Complete"),
        "Failed" => Some("Failed"),
        _ => None,
    })
}

pub(super) async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(cron_job) = world.cron_jobs.get(&key) else {
        return Ok(Requeue::Done);
    };
    let spec = &cron_job.spec;
    if is_deleting(&cron_job.metadata) {
        return Ok(Requeue::Done);
    }
    let mut jobs = world.jobs_by_owner.get(uid(&cron_job.metadata));
    jobs.sort_by_key(|job| {
        (
            job.metadata.creation_timestamp.clone(),
            name(&job.metadata).to_owned(),
        )
    });
    clean_up(
        &world,
        spec.successful_jobs_history_limit.unwrap_or(3),
        "Complete",
        &jobs,
    )
    .await?;
    clean_up(
        &world,
        spec.failed_jobs_history_limit.unwrap_or(1),
        "Failed",
        &jobs,
    )
    .await?;
    let mut active: Vec<Arc<Job>> = jobs.iter().filter(|job| ended(job).is_none()).cloned().collect();
    let status = cron_job.status.as_ref();
    let mut last_run = status
        .and_then(|status| status.last_schedule_time.as_ref())
        .map(|time| time.0);
    let mut again = Requeue::Done;
    if spec.suspend != Some(true) {
        match Schedule::of(&cron_job) {
            Ok(schedule) => {
                let now = world.clock.now();
                let (due, next) = schedule.due(since(&cron_job, last_run, now), now);
                if let Some(due) = due
                    && let Some(job) = start(&world, &cron_job, due, &mut active).await?
                {
                    active.extend(job);
                    last_run = Some(due);
                }
                again = next.map_or(Requeue::Done, |next| Requeue::After(world.clock.until(next)));
            }
            Err(problem) => {
                tracing::warn!(cron_job = %key, problem, "a CronJob cannot run");
                world
                    .tell_of(NAME, &*cron_job, ("Warning", "UnparseableSchedule", &problem))
                    .await;
            }
        }
    }
    let success = jobs
        .iter()
        .filter(|job| ended(job) == Some("Complete"))
        .filter_map(|job| job.status.as_ref()?.completion_time.as_ref().map(|time| time.0))
        .max()
        .or(status
            .and_then(|status| status.last_successful_time.as_ref())
            .map(|time| time.0));
    let references: Vec<Value> = active.iter().map(|job| reference(&job.metadata)).collect();
    let after = json!({
        "active": if references.is_empty() { Value::Null } else { json!(references) },
        "lastScheduleTime": last_run.map(time), "lastSuccessfulTime": success.map(time),
    });
    let before = serde_json::to_value(&cron_job.status).unwrap_or(Value::Null);
    write_status(&world, &world.cron_jobs, &*cron_job, &before, after).await?;
    Ok(again)
}

/// From when on times count: the last run, or else its creation; with a deadline nothing that is later than that.
fn since(cron_job: &CronJob, last_run: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let created = cron_job
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(now, |time| time.0);
    let since = last_run.unwrap_or(created);
    let deadline = cron_job.spec.starting_deadline_seconds;
    let earliest = deadline.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
    earliest.map_or(since, |earliest| since.max(earliest))
}

fn reference(metadata: &ObjectMeta) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
           "resourceVersion": metadata.resource_version})
}

/// Makes the Job of a time, unless one of an earlier time still runs and is not to be joined. `None` when nothing was decided; the Job is left out
/// if it already exists.
async fn start(
    world: &World,
    cron_job: &CronJob,
    due: Timestamp,
    active: &mut Vec<Arc<Job>>,
) -> Result<Option<Option<Arc<Job>>>, ReconcileError> {
    let policy = cron_job.spec.concurrency_policy.as_deref();
    let job = job_of(cron_job, due);
    // Several times of a short period lie in one minute, and share its Job.
    if active.iter().any(|one| one.metadata.name == job.metadata.name) {
        return Ok(Some(None));
    }
    if !active.is_empty() && policy == Some("Forbid") {
        return Ok(None);
    }
    if policy == Some("Replace") {
        for job in active.drain(..) {
            delete(world, &job).await?;
        }
    }
    let api: Api<Job> = Api::namespaced(world.client.clone(), namespace(&cron_job.metadata));
    match api.create(&PostParams::default(), &job).await {
        Ok(job) => {
            let text = format!("Created job {}", name(&job.metadata));
            world
                .tell_of(NAME, cron_job, ("Normal", "SuccessfulCreate", &text))
                .await;
            world.jobs.note_written(job.clone());
            Ok(Some(Some(Arc::new(job))))
        }
        Err(error) if is_race(&error) => Ok(Some(None)),
        Err(error) => Err(Box::new(error)),
    }
}

fn job_of(cron_job: &CronJob, due: Timestamp) -> Job {
    let template = &cron_job.spec.job_template;
    let given = template.metadata.clone().unwrap_or_default();
    let mut annotations = given.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), due.to_string());
    Job {
        metadata: ObjectMeta {
            // The minute is part of the name, so no time runs twice.
            name: Some(format!("{}-{}", name(&cron_job.metadata), due.as_second() / 60)),
            namespace: cron_job.metadata.namespace.clone(),
            labels: given.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![owner("batch/v1", "CronJob", &cron_job.metadata)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Of the Jobs that ended so, only the newest stay.
async fn clean_up(world: &World, limit: i32, how: &str, jobs: &[Arc<Job>]) -> Result<(), ReconcileError> {
    let old: Vec<&Arc<Job>> = jobs.iter().filter(|job| ended(job) == Some(how)).collect();
    let surplus = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    for job in &old[..surplus] {
        delete(world, job).await?;
    }
    Ok(())
}

/// Deletes a Job and, in the background, its pods.
pub(super) async fn delete(world: &World, job: &Job) -> Result<(), ReconcileError> {
    if is_deleting(&job.metadata) {
        return Ok(());
    }
    let api: Api<Job> = Api::namespaced(world.client.clone(), namespace(&job.metadata));
    ignore_races(api.delete(name(&job.metadata), &DeleteParams::background()).await)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In New York the clocks are put forward on 8 March 2026 at 07:00 UTC, and back on 1 November at 06:00.
    #[test]
    fn schedules_follow_clocks_that_are_changed() {
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        let due = |cron: &str, since: &str, now: &str| {
            let spec = json!({"schedule": cron, "timeZone": "America/New_York", "jobTemplate": {}});
            let job: CronJob = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            Schedule::of(&job).unwrap().due(at(since), at(now))
        };
        for (cron, since, now, last, next) in [
            // An hour that comes twice is no pause, and an hourly time in it comes twice.
            (
                "*/15 * * * *",
                "2026-11-01T05:45:00Z",
                "2026-11-01T05:50:00Z",
                None,
                "2026-11-01T06:00:00Z",
            ),
            (
                "*/15 * * * *",
                "2026-11-01T05:45:00Z",
                "2026-11-01T06:20:00Z",
                Some("2026-11-01T06:15:00Z"),
                "2026-11-01T06:30:00Z",
            ),
            (
                "30 1 * * *",
                "2026-11-01T05:00:00Z",
                "2026-11-01T05:30:00Z",
                Some("2026-11-01T05:30:00Z"),
                "2026-11-01T06:30:00Z",
            ),
            // A time that does not come is no time.
            (
                "30 2 * * *",
                "2026-03-08T06:00:00Z",
                "2026-03-08T12:00:00Z",
                None,
                "2026-03-09T06:30:00Z",
            ),
            (
                "*/15 * * * *",
                "2026-03-08T06:30:00Z",
                "2026-03-08T06:50:00Z",
                Some("2026-03-08T06:45:00Z"),
                "2026-03-08T07:00:00Z",
            ),
        ] {
            let expected = (last.map(at), Some(at(next)));
            assert_eq!(due(cron, since, now), expected, "{cron} since {since}");
        }
    }

    fn schedule(text: &str) -> Result<Schedule, String> {
        let object = json!({"metadata": {}, "spec": {"schedule": text, "jobTemplate": {}}});
        Schedule::of(&serde_json::from_value(object).unwrap())
    }

    fn due(text: &str, since: &str, now: &str) -> [Option<String>; 2] {
        let time = |text: &str| -> Timestamp { text.parse().unwrap() };
        let (last, next) = schedule(text).unwrap().due(time(since), time(now));
        [last, next].map(|found| found.map(|found| found.to_string()))
    }

    fn times<const COUNT: usize>(times: [&str; COUNT]) -> [Option<String>; COUNT] {
        times.map(|time| Some(time.to_owned()))
    }

    #[test]
    fn a_period_counts_from_the_last_time() {
        let since = "2026-03-02T10:00:07Z";
        let first = due("@every 90s", since, "2026-03-02T10:01:36.9Z");
        assert_eq!(first, [None, Some("2026-03-02T10:01:37Z".to_owned())]);
        let second = due("@every 90s", since, "2026-03-02T10:01:37Z");
        assert_eq!(second, times(["2026-03-02T10:01:37Z", "2026-03-02T10:03:07Z"]));
        let missed = due("@every 1m30s", since, "2026-03-12T10:00:00Z");
        assert_eq!(missed, times(["2026-03-12T09:58:37Z", "2026-03-12T10:00:07Z"]));
        // Parts of seconds do not count, and less than one is one.
        for (text, next) in [
            ("@every 1999ms", "08"),
            ("@every 1ms", "08"),
            ("@every -1h", "08"),
            ("@every 2s", "09"),
        ] {
            let found = due(text, since, since);
            assert_eq!(found, [None, Some(format!("2026-03-02T10:00:{next}Z"))], "{text}");
        }
        // Later than any time.
        assert_eq!(
            due("@every 2562047h", "9990-01-01T00:00:00Z", "9990-01-02T00:00:00Z"),
            [None, None]
        );
        for text in ["@every", "@every ", "@every soon", "@every 5"] {
            assert!(
                schedule(text).is_err_and(|problem| problem.contains(text)),
                "{text:?}"
            );
        }
    }

    #[test]
    fn of_all_missed_times_the_last_is_due() {
        let since = "2016-01-01T00:00:00Z";
        let found = due("* * * * *", since, "2026-12-31T12:00:30Z");
        assert_eq!(found, times(["2026-12-31T12:00:00Z", "2026-12-31T12:01:00Z"]));
        let found = due("0 0 29 2 *", since, "2026-12-31T12:00:30Z");
        assert_eq!(found, times(["2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"]));
        let found = due("* * 1 1 *", since, "2026-12-31T12:00:30Z");
        assert_eq!(found, times(["2026-01-01T23:59:00Z", "2027-01-01T00:00:00Z"]));
        let found = due("0 0 31 2 *", since, "2026-12-31T12:00:30Z");
        assert_eq!(found, [None, None]);
    }
}
