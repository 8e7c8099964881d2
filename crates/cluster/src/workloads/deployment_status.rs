//! The status of a Deployment: its counts, whether it is available, and whether its rollout still makes progress.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, ReplicaSet, ReplicaSetStatus};
use serde_json::{Value, json};
use spokeshave_runtime::Requeue;

use super::left;
use super::replica_sets::REPLICA_FAILURE;
use super::rollout::Limits;
use crate::objects::{name, time};

const COMPLETE: &str = "NewReplicaSetAvailable";
const PROGRESSING: &str = "ReplicaSetUpdated";
const EXCEEDED: &str = "ProgressDeadlineExceeded";
/// Reason of a condition and of an event: the newest set could not be made.
pub(super) const SET_REFUSED: &str = "ReplicaSetCreateError";

/// The status, and when to look again although nothing has changed.
pub(super) fn status(
    now: Timestamp,
    deployment: &Deployment,
    newest: &str,
    sets: &[Arc<ReplicaSet>],
) -> (Value, Requeue) {
    let counts = Counts::of(newest, sets);
    let limits = Limits::of(deployment);
    let (progress, again) = progress(now, deployment, newest, counts, limits.wanted);
    let availability = if counts.available >= limits.wanted - limits.unavailable {
        Finding::new(
            "Available",
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.".to_owned(),
        )
    } else {
        Finding::new(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.".to_owned(),
        )
    };
    let mut conditions = vec![
        progress.condition(deployment, now),
        availability.condition(deployment, now),
    ];
    conditions.extend(failure(newest, sets));
    let number = |value: i32| if value == 0 { Value::Null } else { json!(value) };
    let status = json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": number(counts.total), "updatedReplicas": number(counts.updated), "readyReplicas": number(counts.ready), "availableReplicas": number(counts.available),
        "unavailableReplicas": number((limits.wanted - counts.available).max(0)),
        "conditions": conditions,
    });
    (status, again)
}

/// The condition that the newest set, or else another one, has because its pods cannot be made or deleted.
fn failure(newest: &str, sets: &[Arc<ReplicaSet>]) -> Option<Value> {
    let of_set = |set: &Arc<ReplicaSet>| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        let known = conditions
            .iter()
            .find(|one| one.type_.as_deref() == Some(REPLICA_FAILURE))?;
        let since = &known.last_transition_time;
        Some(json!({
            "type": REPLICA_FAILURE, "status": known.status, "reason": known.reason, "message": known.message,
            "lastTransitionTime": since, "lastUpdateTime": since,
        }))
    };
    let (newest, others): (Vec<_>, Vec<_>) = sets.iter().partition(|set| name(&set.metadata) == newest);
    newest.into_iter().chain(others).find_map(of_set)
}

/// The conditions of a Deployment whose newest set could not be made; none where it sets no deadline for progress.
pub(super) fn refused(now: Timestamp, deployment: &Deployment, message: String) -> Option<Value> {
    deadline(deployment)?;
    let finding = Finding::new("Progressing", "False", SET_REFUSED, message);
    let known = deployment
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let others = known
        .into_iter()
        .flatten()
        .filter(|one| one.type_.as_deref() != Some(finding.kind));
    let mut conditions = vec![finding.condition(deployment, now)];
    conditions.extend(others.map(|one| json!(one)));
    Some(json!({"conditions": conditions}))
}

/// How many seconds a rollout may stand still; the largest number means that there is no deadline.
fn deadline(deployment: &Deployment) -> Option<i32> {
    let seconds = deployment.spec.progress_deadline_seconds;
    seconds.filter(|seconds| *seconds != i32::MAX)
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    total: i32,
    updated: i32,
    ready: i32,
    available: i32,
}

impl Counts {
    fn of(newest: &str, sets: &[Arc<ReplicaSet>]) -> Self {
        let sum = |of: fn(&ReplicaSetStatus) -> i32| -> i32 {
            sets.iter().filter_map(|set| set.status.as_ref()).map(of).sum()
        };
        Self {
            total: sum(|status| status.replicas),
            updated: sets
                .iter()
                .filter(|set| name(&set.metadata) == newest)
                .filter_map(|set| set.status.as_ref())
                .map(|status| status.replicas)
                .sum(),
            ready: sum(|status| status.ready_replicas.unwrap_or(0)),
            available: sum(|status| status.available_replicas.unwrap_or(0)),
        }
    }

    /// Those that the Deployment's status already tells.
    fn told(deployment: &Deployment) -> Self {
        let status = deployment.status.as_ref();
        let count = |of: fn(&k8s_openapi::api::apps::v1::DeploymentStatus) -> Option<i32>| {
            status.and_then(of).unwrap_or(0)
        };
        Self {
            total: count(|status| status.replicas),
            updated: count(|status| status.updated_replicas),
            ready: count(|status| status.ready_replicas),
            available: count(|status| status.available_replicas),
        }
    }

    /// Whether a rollout is further than it was.
    fn is_ahead_of(self, other: Self) -> bool {
        self.updated > other.updated
            || self.total - self.updated < other.total - other.updated
            || self.ready > other.ready
            || self.available > other.available
    }
}

/// What a condition is to say.
#[derive(Debug)]
struct Finding {
    kind: &'static str,
    state: &'static str,
    reason: &'static str,
    message: String,
    /// Whether it was found anew, although it may say what it said before.
    fresh: bool,
}

impl Finding {
    fn new(kind: &'static str, state: &'static str, reason: &'static str, message: String) -> Self {
        Self {
            kind,
            state,
            reason,
            message,
            fresh: false,
        }
    }

    fn condition(&self, deployment: &Deployment, now: Timestamp) -> Value {
        let now = time(now);
        let same_state = known(deployment, self.kind).filter(|one| one.status.as_deref() == Some(self.state));
        let transition = same_state.and_then(|one| one.last_transition_time.clone());
        let update = same_state
            .filter(|one| !self.fresh && one.reason.as_deref() == Some(self.reason))
            .and_then(|one| one.last_update_time.clone());
        json!({
            "type": self.kind, "status": self.state, "reason": self.reason, "message": self.message,
            "lastTransitionTime": transition.as_ref().unwrap_or(&now), "lastUpdateTime": update.as_ref().unwrap_or(&now),
        })
    }
}

fn known<'a>(deployment: &'a Deployment, kind: &str) -> Option<&'a DeploymentCondition> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_.as_deref() == Some(kind))
}

/// How the rollout to the newest set fares; nothing happens at the deadline itself, so somebody must look then.
fn progress(
    now: Timestamp,
    deployment: &Deployment,
    newest: &str,
    counts: Counts,
    wanted: i32,
) -> (Finding, Requeue) {
    let finding = |state, reason, message| Finding::new("Progressing", state, reason, message);
    if deployment.spec.paused == Some(true) {
        let message = "Deployment is paused".to_owned();
        return (finding("Unknown", "DeploymentPaused", message), Requeue::Done);
    }
    // What was said of another set says nothing of this one.
    let about = format!("ReplicaSet \"{newest}\" ");
    let before = known(deployment, "Progressing").filter(|one| {
        let message = one.message.as_deref();
        message.is_some_and(|message| message.starts_with(&about))
    });
    let reason = before.and_then(|one| one.reason.as_deref()).unwrap_or_default();
    let complete = counts.updated == wanted && counts.total == wanted && counts.available == wanted;
    // A rollout that has ended does not begin again when a pod is lost.
    if complete || (reason == COMPLETE && counts.total == counts.updated) {
        let message = format!("{about}has successfully progressed.");
        return (finding("True", COMPLETE, message), Requeue::Done);
    }
    let timed_out = || finding("False", EXCEEDED, format!("{about}has timed out progressing."));
    let mut goes_on = finding("True", PROGRESSING, format!("{about}is progressing."));
    goes_on.fresh = before.is_none() || counts.is_ahead_of(Counts::told(deployment));
    if !goes_on.fresh && reason == EXCEEDED {
        return (timed_out(), Requeue::Done);
    }
    let Some(deadline) = deadline(deployment) else {
        return (goes_on, Requeue::Done);
    };
    let since = before
        .filter(|_| !goes_on.fresh && reason == PROGRESSING)
        .and_then(|one| one.last_update_time.as_ref())
        .map_or(now, |time| time.0);
    let left = left(since, i64::from(deadline), now);
    if left.is_zero() {
        (timed_out(), Requeue::Done)
    } else {
        (goes_on, Requeue::After(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn deployment() -> Deployment {
        let object = json!({"metadata": {"name": "web"}, "spec": {
            "replicas": 2, "progressDeadlineSeconds": 60, "selector": {}, "template": {},
        }});
        serde_json::from_value(object).unwrap()
    }

    fn set(set_name: &str, replicas: i32, available: i32) -> Arc<ReplicaSet> {
        let status =
            json!({"replicas": replicas, "readyReplicas": available, "availableReplicas": available});
        let object = json!({"metadata": {"name": set_name}, "spec": {"replicas": replicas, "selector": {}}, "status": status});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    /// Notes the status and returns status and reason of `Progressing`, and the time until the next look.
    fn look(deployment: &mut Deployment, second: i64, sets: &[Arc<ReplicaSet>]) -> (String, String, Requeue) {
        let newest = sets.last().map(|set| name(&set.metadata).to_owned()).unwrap();
        let (status, again) = status(at(second), deployment, &newest, sets);
        let progress = status["conditions"][0].clone();
        deployment.status = Some(serde_json::from_value(status).unwrap());
        let text = |key: &str| progress[key].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), again)
    }

    fn told(state: &str, reason: &str, again: Option<u64>) -> (String, String, Requeue) {
        let again = again.map_or(Requeue::Done, |seconds| {
            Requeue::After(Duration::from_secs(seconds))
        });
        (state.to_owned(), reason.to_owned(), again)
    }

    #[test]
    fn a_rollout_that_stands_still_exceeds_its_deadline() {
        let mut web = deployment();
        let (none, one, both) = ([set("web-a", 2, 0)], [set("web-a", 2, 1)], [set("web-a", 2, 2)]);
        assert_eq!(look(&mut web, 0, &none), told("True", PROGRESSING, Some(60)));
        assert_eq!(look(&mut web, 40, &none), told("True", PROGRESSING, Some(20)));
        assert_eq!(
            look(&mut web, 50, &one),
            told("True", PROGRESSING, Some(60)),
            "progress begins the time anew"
        );
        assert_eq!(look(&mut web, 109, &one), told("True", PROGRESSING, Some(1)));
        assert_eq!(look(&mut web, 110, &one), told("False", EXCEEDED, None));
        assert_eq!(look(&mut web, 500, &one), told("False", EXCEEDED, None));
        assert_eq!(look(&mut web, 510, &both), told("True", COMPLETE, None));
        assert_eq!(
            look(&mut web, 900, &one),
            told("True", COMPLETE, None),
            "a lost pod is no rollout"
        );
        let next = [set("web-a", 2, 2), set("web-b", 1, 0)];
        assert_eq!(look(&mut web, 1000, &next), told("True", PROGRESSING, Some(60)));
    }

    #[test]
    fn a_deployment_that_recreates_is_not_available_without_its_pods() {
        let mut web = deployment();
        let available = |web: &Deployment, ready: i32| {
            let (status, _) = status(at(0), web, "web-a", &[set("web-a", 2, ready)]);
            status["conditions"][1].clone()
        };
        web.spec.strategy = serde_json::from_value(json!({"type": "Recreate"})).unwrap();
        for (ready, state) in [(0, "False"), (1, "False"), (2, "True")] {
            let found = available(&web, ready);
            assert_eq!(
                [&found["type"], &found["status"]],
                ["Available", state],
                "{ready}"
            );
        }
    }

    #[test]
    fn the_deadline_does_not_run_while_the_deployment_is_paused() {
        let mut web = deployment();
        let none = [set("web-a", 2, 0)];
        assert_eq!(look(&mut web, 0, &none), told("True", PROGRESSING, Some(60)));
        web.spec.paused = Some(true);
        assert_eq!(
            look(&mut web, 50, &none),
            told("Unknown", "DeploymentPaused", None)
        );
        web.spec.paused = None;
        assert_eq!(look(&mut web, 500, &none), told("True", PROGRESSING, Some(60)));
    }
}
