//! The status of a Job: its counts, that it is suspended, and how it ends.
//!
//! Owns the conditions. That a Job ends is decided before its last pods are gone, and holds from then on; that it has ended is said when none is left.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::Tally;
use super::indexes::{count_of, intervals};
use crate::objects::{has_ended, is_deleting, is_ready, time};
use crate::workloads::active;

/// The condition of a Job that is suspended.
const SUSPENDED: &str = "Suspended";

/// How a Job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    pub(super) is_success: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl End {
    pub(super) fn success() -> Self {
        Self {
            is_success: true,
            reason: "CompletionsReached".to_owned(),
            message: "Reached expected number of succeeded pods".to_owned(),
        }
    }

    pub(super) fn failure(reason: &str, message: &str) -> Self {
        Self {
            is_success: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    /// The end that the status has told of already.
    pub(super) fn told(job: &Job) -> Option<Self> {
        let of = |is_success: bool| {
            let known = known(job, kinds(is_success)[0]).filter(|one| one.status == "True")?;
            Some(Self {
                is_success,
                reason: known.reason.clone().unwrap_or_default(),
                message: known.message.clone().unwrap_or_default(),
            })
        };
        of(true).or_else(|| of(false))
    }

    fn condition(&self, kind: &str, now: Timestamp) -> JobCondition {
        condition(kind, "True", &self.reason, &self.message, now)
    }
}

/// The conditions of a Job that ends, and of one that has ended.
fn kinds(is_success: bool) -> [&'static str; 2] {
    if is_success {
        ["SuccessCriteriaMet", "Complete"]
    } else {
        ["FailureTarget", "Failed"]
    }
}

/// That a Job has just been suspended or resumed, as its condition and an event tell it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Turn {
    state: &'static str,
    reason: &'static str,
    pub(super) message: &'static str,
    pub(super) event: &'static str,
}

const SUSPENSION: Turn = Turn {
    state: "True",
    reason: "JobSuspended",
    message: "Job suspended",
    event: "Suspended",
};
const RESUMPTION: Turn = Turn {
    state: "False",
    reason: "JobResumed",
    message: "Job resumed",
    event: "Resumed",
};

/// What a Job's status does not tell yet of its suspension. Of one that ends nothing is said.
pub(super) fn turn(job: &Job, spec: &JobSpec, end: Option<&End>) -> Option<&'static Turn> {
    let is_told = known(job, SUSPENDED).is_some_and(|one| one.status == "True");
    match (spec.suspend == Some(true), is_told) {
        _ if end.is_some() => None,
        (true, false) => Some(&SUSPENSION),
        (false, true) => Some(&RESUMPTION),
        _ => None,
    }
}

/// Whether nothing is left of a Job that ends: pods on their way out may still do something.
pub(super) fn is_over(end: Option<&End>, pods: &[Arc<Pod>]) -> bool {
    end.is_some() && pods.iter().all(|pod| has_ended(pod))
}

/// When the Job ended, as far as that is known; `None` while it has not.
pub(super) fn finished(job: &Job) -> Option<Option<Timestamp>> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let last = conditions
        .iter()
        .find(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True")?;
    Some(last.last_transition_time.as_ref().map(|time| time.0))
}

pub(super) fn status(
    job: &Job,
    spec: &JobSpec,
    tally: &Tally,
    pods: &[Arc<Pod>],
    end: Option<&End>,
    now: Timestamp,
) -> Value {
    let running = active(pods);
    let terminating = pods
        .iter()
        .filter(|pod| is_deleting(&pod.metadata) && !has_ended(pod));
    let number = |count: usize| if count == 0 { Value::Null } else { json!(count) };
    let mut status = json!({
        "active": number(running.len()), "ready": running.iter().filter(|pod| is_ready(pod)).count(), "terminating": terminating.count(),
        "succeeded": number(tally.succeeded), "failed": number(tally.failed),
    });
    if count_of(spec).is_some() {
        let done = intervals(&tally.done);
        status["completedIndexes"] = if done.is_empty() { Value::Null } else { json!(done) };
    }
    let started = job
        .status
        .as_ref()
        .is_some_and(|status| status.start_time.is_some());
    if spec.suspend == Some(true) && end.is_none() {
        // The time of a suspended Job begins anew when it is resumed.
        status["startTime"] = Value::Null;
    } else if !started {
        status["startTime"] = json!(time(now));
    }
    let is_over = is_over(end, pods);
    let conditions = conditions(job, spec, end, is_over, now);
    if !conditions.is_empty() {
        status["conditions"] = json!(conditions);
    }
    if is_over && end.is_some_and(|end| end.is_success) {
        status["completionTime"] = json!(time(now));
    }
    status
}

/// All conditions, in the order in which they came.
fn conditions(
    job: &Job,
    spec: &JobSpec,
    end: Option<&End>,
    is_over: bool,
    now: Timestamp,
) -> Vec<JobCondition> {
    let known = job.status.as_ref().and_then(|status| status.conditions.clone());
    let mut conditions = known.unwrap_or_default();
    if let Some(turn) = turn(job, spec, end) {
        let suspended = condition(SUSPENDED, turn.state, turn.reason, turn.message, now);
        set(&mut conditions, suspended);
    }
    if let Some(end) = end {
        let [ending, ended] = kinds(end.is_success);
        if End::told(job).as_ref() != Some(end) {
            set(&mut conditions, end.condition(ending, now));
        }
        if is_over {
            set(&mut conditions, end.condition(ended, now));
        }
    }
    conditions
}

fn set(conditions: &mut Vec<JobCondition>, new: JobCondition) {
    conditions.retain(|one| one.type_ != new.type_);
    conditions.push(new);
}

fn condition(kind: &str, state: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: state.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(time(now)),
        last_transition_time: Some(time(now)),
    }
}

fn known<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_ == kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::jobs::Record;
    use crate::workloads::jobs::testing::{at, job, pod, spec};

    /// Writes the status, and returns types and states of the conditions.
    fn look(job: &mut Job, pods: &[Arc<Pod>], end: Option<&End>, second: i64) -> Vec<(String, String)> {
        let tally = Tally::of(&Record::default(), job, at(second));
        let after = status(job, spec(job), &tally, pods, end, at(second));
        job.status = Some(serde_json::from_value(after).unwrap());
        let status = job.status.as_ref().unwrap();
        let conditions = status.conditions.iter().flatten();
        conditions
            .map(|one| (one.type_.clone(), one.status.clone()))
            .collect()
    }

    fn told(conditions: &[(&str, &str)]) -> Vec<(String, String)> {
        let conditions = conditions.iter();
        conditions
            .map(|(kind, state)| ((*kind).to_owned(), (*state).to_owned()))
            .collect()
    }

    #[test]
    fn a_job_has_ended_when_its_last_condition_says_so() {
        let mut j = job(&json!({"completions": 1}), &Value::Null);
        assert_eq!(finished(&j), None);
        let end = End::failure("DeadlineExceeded", "");
        look(&mut j, &[], Some(&end), 7);
        assert_eq!(finished(&j), Some(Some(at(7))));
        assert_eq!(End::told(&j), Some(end));
    }

    #[test]
    fn a_job_has_not_ended_while_pods_are_on_their_way_out() {
        let mut j = job(&json!({"completions": 1}), &Value::Null);
        let mut going = pod("a", "Running", None);
        going.metadata.deletion_timestamp = Some(time(at(0)));
        let (going, gone) = ([Arc::new(going)], [Arc::new(pod("a", "Failed", None))]);
        let end = End::failure("BackoffLimitExceeded", "");
        let found = look(&mut j, &going, Some(&end), 1);
        assert_eq!(found, told(&[("FailureTarget", "True")]));
        assert_eq!(finished(&j), None);
        let status = j.status.clone().unwrap();
        assert_eq!((status.active, status.terminating), (None, Some(1)));
        assert_eq!(End::told(&j), Some(end.clone()), "it stays so, whatever comes");
        let decided = End::told(&j);
        let found = look(&mut j, &gone, decided.as_ref(), 61);
        assert_eq!(found, told(&[("FailureTarget", "True"), ("Failed", "True")]));
        assert_eq!(finished(&j), Some(Some(at(61))));
        let status = j.status.clone().unwrap();
        assert_eq!((status.terminating, status.completion_time), (Some(0), None));

        let mut well = job(&json!({"completions": 1}), &Value::Null);
        let found = look(&mut well, &[], Some(&End::success()), 5);
        assert_eq!(
            found,
            told(&[("SuccessCriteriaMet", "True"), ("Complete", "True")])
        );
        assert_eq!(well.status.unwrap().completion_time, Some(time(at(5))));
    }

    #[test]
    fn a_job_says_that_it_is_suspended_and_resumed() {
        let mut j = job(&json!({"completions": 1, "suspend": true}), &Value::Null);
        assert_eq!(turn(&j, spec(&j), None), Some(&SUSPENSION));
        assert_eq!(look(&mut j, &[], None, 1), told(&[("Suspended", "True")]));
        assert_eq!(turn(&j, spec(&j), None), None, "it is known");
        let first = j.status.clone();
        assert_eq!(look(&mut j, &[], None, 9), told(&[("Suspended", "True")]));
        assert_eq!(j.status, first);
        j.spec.as_mut().unwrap().suspend = Some(false);
        assert_eq!(turn(&j, spec(&j), None), Some(&RESUMPTION));
        assert_eq!(turn(&j, spec(&j), Some(&End::success())), None, "it ends");
        assert_eq!(look(&mut j, &[], None, 20), told(&[("Suspended", "False")]));
        let status = j.status.clone().unwrap();
        assert_eq!(status.start_time, Some(time(at(20))));
        let transition = status.conditions.unwrap().remove(0).last_transition_time;
        assert_eq!(transition, Some(time(at(20))));
        let never = job(&json!({"completions": 1}), &Value::Null);
        assert_eq!(turn(&never, spec(&never), None), None, "there is nothing to say");
    }
}
