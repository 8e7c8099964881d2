//! CronJobs: a Job for each time of a schedule, as the rules about overlap, lateness and history have it.

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::Cron;
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue};

use super::write_status;
use crate::objects::{is_deleting, name, namespace, owner, time, uid};
use crate::world::{World, ignore_races, is_race};

/// When a Job was due, on the Job.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
const NAME: &str = "cronjob-controller";
/// Missed times that are checked in order; the last of them is the one that runs.
const MOST_MISSED: usize = 10_000;

/// A schedule in its time zone.
struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    fn of(job: &CronJob) -> Result<Self, String> {
        let spec = &job.spec;
        let cron = spec
            .schedule
            .parse::<Cron>()
            .map_err(|error| format!("spec.schedule {:?}: {error}", spec.schedule))?;
        let zone = match spec.time_zone.as_deref() {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|error| format!("spec.timeZone {name:?}: {error}"))?,
        };
        Ok(Self { cron, zone })
    }

    /// The first time after another one. The schedule speaks of the clock on the wall, so it is asked as if that clock were UTC.
    fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let wall = after.to_zoned(self.zone.clone()).datetime();
        let mut from = wall.to_zoned(TimeZone::UTC).ok()?.timestamp();
        // An hour that comes twice may lead back.
        for _ in 0..3 {
            from = self.cron.next_after(from).ok()?;
            let wall = from.to_zoned(TimeZone::UTC).datetime();
            let hit = wall.to_zoned(self.zone.clone()).ok()?.timestamp();
            if hit > after {
                return Some(hit);
            }
        }
        None
    }

    /// The last time that has come since, and the first that has not.
    fn due(&self, since: Timestamp, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
        let (mut last, mut next) = (None, self.next_after(since));
        for _ in 0..MOST_MISSED {
            match next {
                Some(hit) if hit <= now => {
                    last = next;
                    next = self.next_after(hit);
                }
                _ => break,
            }
        }
        (last, next)
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
    if !active.is_empty() && policy == Some("Forbid") {
        return Ok(None);
    }
    if policy == Some("Replace") {
        for job in active.drain(..) {
            delete(world, &job).await?;
        }
    }
    let job = job_of(cron_job, due);
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
