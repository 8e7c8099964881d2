//! Probes of containers, as far as a kubelet without containers can have them: when a container has started, when it is ready, when it is
//! killed and when it runs again.
//!
//! Pure: the status of a container and the time of its next change follow from the pod, the probes that are asked to fail, and now. Which containers of a
//! pod run is said in `containers`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, Pod, Probe,
};

use crate::objects::{name, namespace, time, uid};

/// Annotation of a pod with the probes that fail: `readiness`, or `web/liveness` for one container, with commas between several.
pub(crate) const FAILING_PROBES: &str = "sim.spokeshave.dev/failing-probes";
/// A container that has run for so long starts again without waiting.
const FORGIVEN_AFTER: SignedDuration = SignedDuration::from_mins(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);

/// Which probes of a pod fail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Failing {
    /// The annotation.
    pub(crate) text: String,
    /// When the annotation changed under the running pod; `None` when it has been so from the beginning.
    pub(crate) since: Option<Timestamp>,
}

impl Failing {
    fn has(&self, container: &Container, probe: &str) -> bool {
        self.text.split(',').map(str::trim).any(|one| {
            one == probe
                || one
                    .split_once('/')
                    .is_some_and(|(own, kind)| own == container.name && kind == probe)
        })
    }
}

/// An event: type, reason, message.
pub(crate) type Said = (&'static str, &'static str, String);

/// What a kubelet finds when it looks at the containers of a pod.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Of the init containers, sidecars among them.
    pub(crate) init_statuses: Vec<ContainerStatus>,
    /// Of all others.
    pub(crate) statuses: Vec<ContainerStatus>,
    /// When to look again.
    pub(crate) next: Option<Timestamp>,
    pub(crate) events: Vec<Said>,
}

impl Findings {
    fn look_at(&mut self, due: Timestamp) {
        self.next = Some(self.next.map_or(due, |next| next.min(due)));
    }

    fn say(&mut self, kind: &'static str, reason: &'static str, message: String) {
        self.events.push((kind, reason, message));
    }
}

/// A container that starts now.
pub(crate) fn fresh(pod: &Pod, container: &Container, now: Timestamp) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        container_id: Some(format!("fake://{}", uid(&pod.metadata))),
        started: Some(false),
        state: Some(running(now)),
        ..ContainerStatus::default()
    }
}

fn running(since: Timestamp) -> ContainerState {
    ContainerState {
        running: Some(ContainerStateRunning {
            started_at: Some(time(since)),
        }),
        ..ContainerState::default()
    }
}

/// The numbers of a probe.
struct Rhythm {
    delay: SignedDuration,
    period: SignedDuration,
    failures: i32,
    successes: i32,
}

impl Rhythm {
    fn of(probe: &Probe) -> Self {
        let seconds = |value: Option<i32>, otherwise: i32| {
            SignedDuration::from_secs(value.unwrap_or(otherwise).max(0).into())
        };
        Self {
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds.filter(|period| *period > 0), 10),
            failures: probe.failure_threshold.unwrap_or(3).max(1),
            successes: probe.success_threshold.unwrap_or(1).max(1),
        }
    }
}

fn after(start: Timestamp, delay: SignedDuration) -> Timestamp {
    start.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

/// A look at a container.
pub(crate) struct Look<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) container: &'a Container,
    pub(crate) failing: &'a Failing,
    pub(crate) now: Timestamp,
    /// Whether it runs again after it has ended.
    pub(crate) restarts: bool,
}

impl Look<'_> {
    /// What becomes of the container that had this status.
    pub(crate) fn container(&self, mut status: ContainerStatus, findings: &mut Findings) -> ContainerStatus {
        let state = status.state.clone().unwrap_or_default();
        if state.terminated.is_some() {
            return status;
        }
        if state.waiting.is_some() {
            let due = self.runs_again(&status);
            if self.now < due {
                findings.look_at(due);
                return status;
            }
            self.run_again(&mut status);
        }
        // A killed one may restart at once, and is then probed again.
        for _ in 0..2 {
            let restarts = status.restart_count;
            self.running(&mut status, findings);
            if status.restart_count == restarts {
                break;
            }
        }
        status
    }

    fn running(&self, status: &mut ContainerStatus, findings: &mut Findings) {
        let since = status
            .state
            .as_ref()
            .and_then(|state| state.running.as_ref()?.started_at.as_ref())
            .map_or(self.now, |time| time.0);
        if let Some(started) = self.started(status, since, findings)
            && !self.is_killed_by_liveness(status, since, started, findings)
        {
            self.ready(status, since, started, findings);
        }
    }

    /// Since when the container counts as started; `None` while it does not.
    fn started(
        &self,
        status: &mut ContainerStatus,
        since: Timestamp,
        findings: &mut Findings,
    ) -> Option<Timestamp> {
        let Some(probe) = &self.container.startup_probe else {
            status.started = Some(true);
            return Some(since);
        };
        let rhythm = Rhythm::of(probe);
        let first = after(since, rhythm.delay);
        if status.started == Some(true) {
            return Some(first);
        }
        let first = self.failing.since.map_or(first, |changed| first.max(changed));
        if self.failing.has(self.container, "startup") {
            let due = after(first, rhythm.period * (rhythm.failures - 1));
            if self.now < due {
                findings.look_at(due);
            } else {
                self.kill(status, since, "Startup", findings);
            }
            return None;
        }
        if self.now < first {
            findings.look_at(first);
            return None;
        }
        status.started = Some(true);
        Some(first)
    }

    fn is_killed_by_liveness(
        &self,
        status: &mut ContainerStatus,
        since: Timestamp,
        started: Timestamp,
        findings: &mut Findings,
    ) -> bool {
        let Some(probe) = &self.container.liveness_probe else {
            return false;
        };
        if !self.failing.has(self.container, "liveness") {
            return false;
        }
        let rhythm = Rhythm::of(probe);
        let first = after(since, rhythm.delay).max(started);
        let first = self
            .failing
            .since
            .map_or(first, |changed| first.max(after(changed, rhythm.period)));
        let due = after(first, rhythm.period * (rhythm.failures - 1));
        if self.now < due {
            findings.look_at(due);
            return false;
        }
        self.kill(status, since, "Liveness", findings);
        true
    }

    fn ready(
        &self,
        status: &mut ContainerStatus,
        since: Timestamp,
        started: Timestamp,
        findings: &mut Findings,
    ) {
        let Some(probe) = &self.container.readiness_probe else {
            status.ready = true;
            return;
        };
        let rhythm = Rhythm::of(probe);
        if self.failing.has(self.container, "readiness") {
            if !status.ready {
                return;
            }
            let due = self
                .failing
                .since
                .map_or(since, |changed| after(changed, rhythm.period * rhythm.failures));
            if self.now < due {
                findings.look_at(due);
                return;
            }
            status.ready = false;
            let text = format!("Readiness probe failed: {FAILING_PROBES} says so");
            findings.say("Warning", "Unhealthy", text);
            return;
        }
        let first = after(since, rhythm.delay).max(started);
        let first = self.failing.since.map_or(first, |changed| first.max(changed));
        let due = after(first, rhythm.period * (rhythm.successes - 1));
        if !status.ready && self.now < due {
            findings.look_at(due);
        } else {
            status.ready = true;
        }
    }

    /// The container ends; it waits, runs again at once, or stays ended.
    fn kill(&self, status: &mut ContainerStatus, since: Timestamp, probe: &str, findings: &mut Findings) {
        let own = &self.container.name;
        let lower = probe.to_lowercase();
        findings.say(
            "Warning",
            "Unhealthy",
            format!("{probe} probe failed: {FAILING_PROBES} says so"),
        );
        let fate = if self.restarts { ", will be restarted" } else { "" };
        findings.say(
            "Normal",
            "Killing",
            format!("Container {own} failed {lower} probe{fate}"),
        );
        let ended = ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: 137,
                reason: Some("Error".to_owned()),
                started_at: Some(time(since)),
                finished_at: Some(time(self.now)),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        };
        (status.ready, status.started) = (false, Some(false));
        if !self.restarts {
            status.state = Some(ended);
            return;
        }
        status.last_state = Some(ended);
        let wait = back_off(status.restart_count, self.now.duration_since(since));
        if wait.is_zero() {
            self.run_again(status);
            return;
        }
        let metadata = &self.pod.metadata;
        let whole = format!("{}_{}({})", name(metadata), namespace(metadata), uid(metadata));
        let seconds = wait.as_secs();
        status.state = Some(ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some("CrashLoopBackOff".to_owned()),
                message: Some(format!(
                    "back-off {seconds}s restarting failed container={own} pod={whole}"
                )),
            }),
            ..ContainerState::default()
        });
        findings.say(
            "Warning",
            "BackOff",
            format!("Back-off restarting failed container {own} in pod {whole}"),
        );
        findings.look_at(self.runs_again(status));
    }

    /// When a container in back-off restarts.
    fn runs_again(&self, status: &ContainerStatus) -> Timestamp {
        let ended = status
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref()?.finished_at.as_ref());
        let wait = back_off(status.restart_count, SignedDuration::ZERO);
        let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::ZERO);
        ended.map_or(self.now, |ended| after(ended.0, wait))
    }

    fn run_again(&self, status: &mut ContainerStatus) {
        status.restart_count += 1;
        (status.ready, status.started) = (false, Some(false));
        status.state = Some(running(self.now));
    }
}

/// How long a container that ended waits before it runs again: not at all the first time, then 10 s, doubled up to five minutes.
fn back_off(restarts: i32, ran: SignedDuration) -> Duration {
    if restarts <= 0 || ran >= FORGIVEN_AFTER {
        return Duration::ZERO;
    }
    let doublings = u32::try_from(restarts - 1).unwrap_or(0).min(5);
    (Duration::from_secs(10) * 2_u32.pow(doublings)).min(LONGEST_BACK_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::look;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn pod(container: &Value, policy: &str) -> Pod {
        let mut container = container.clone();
        container["name"] = json!("c");
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"restartPolicy": policy, "containers": [container]},
        }))
        .unwrap()
    }

    /// Looks at a pod whenever it asks for it, and at given times at which its annotation changes: `(second, ready, started, restarts, state)`
    /// of each change.
    fn story(
        mut pod: Pod,
        annotations: &[(i64, &str)],
        end: i64,
    ) -> Vec<(i64, bool, bool, i32, &'static str)> {
        let mut failing = Failing::default();
        let (mut told, mut second) = (Vec::new(), 0);
        while second <= end {
            if let Some((from, text)) = annotations.iter().rev().find(|(from, _)| *from <= second)
                && failing.text != *text
            {
                failing = Failing {
                    text: (*text).to_owned(),
                    since: (second > 0).then(|| at(*from)),
                };
            }
            let findings = look(&pod, &failing, at(second));
            let status = findings.statuses[0].clone();
            let state = status.state.clone().unwrap();
            let word = match (&state.running, &state.waiting) {
                (Some(_), _) => "running",
                (_, Some(_)) => "waiting",
                _ => "ended",
            };
            let line = (
                second,
                status.ready,
                status.started.unwrap(),
                status.restart_count,
                word,
            );
            if told.last().is_none_or(|(_, ready, started, restarts, word)| {
                (*ready, *started, *restarts, *word) != (line.1, line.2, line.3, line.4)
            }) {
                told.push(line);
            }
            pod.status.get_or_insert_default().container_statuses = Some(findings.statuses);
            let asked = findings.next.map(|next| next.duration_since(at(0)).as_secs());
            let changes = annotations.iter().map(|(from, _)| *from);
            let next = changes.chain(asked).filter(|next| *next > second).min();
            match next {
                Some(next) => second = next,
                None => break,
            }
        }
        told
    }

    #[test]
    fn containers_without_probes_are_ready_at_once() {
        assert_eq!(
            story(pod(&json!({}), "Always"), &[], 1000),
            [(0, true, true, 0, "running")]
        );
    }

    #[test]
    fn startup_comes_before_readiness() {
        let container = json!({
            "startupProbe": {"initialDelaySeconds": 7, "periodSeconds": 5},
            "readinessProbe": {"initialDelaySeconds": 3, "periodSeconds": 4, "successThreshold": 2},
        });
        assert_eq!(
            story(pod(&container, "Always"), &[], 1000),
            [
                (0, false, false, 0, "running"),
                (7, false, true, 0, "running"),
                (11, true, true, 0, "running")
            ]
        );
    }

    #[test]
    fn a_readiness_probe_that_fails_takes_the_pod_out_until_it_passes_again() {
        let container =
            json!({"readinessProbe": {"initialDelaySeconds": 5, "periodSeconds": 2, "failureThreshold": 3}});
        let annotations = [(100, "readiness"), (200, "")];
        assert_eq!(
            story(pod(&container, "Always"), &annotations, 1000),
            [
                (0, false, true, 0, "running"),
                (5, true, true, 0, "running"),
                (106, false, true, 0, "running"),
                (200, true, true, 0, "running")
            ]
        );
        assert_eq!(
            story(pod(&container, "Always"), &[(0, "other/readiness")], 1000).len(),
            2,
            "it names another container"
        );
        assert_eq!(
            story(pod(&container, "Always"), &[(0, "c/readiness")], 1000),
            [(0, false, true, 0, "running")]
        );
    }

    #[test]
    fn a_liveness_probe_that_fails_restarts_the_container_ever_later() {
        let container = json!({"livenessProbe": {"periodSeconds": 10, "failureThreshold": 3}});
        assert_eq!(
            story(pod(&container, "Always"), &[(0, "liveness")], 130),
            [
                (0, true, true, 0, "running"),
                (20, true, true, 1, "running"),
                (40, false, false, 1, "waiting"),
                (50, true, true, 2, "running"),
                (70, false, false, 2, "waiting"),
                (90, true, true, 3, "running"),
                (110, false, false, 3, "waiting"),
            ]
        );
    }

    #[test]
    fn a_container_that_never_starts_is_killed_and_one_without_restarts_stays_ended() {
        let container =
            json!({"startupProbe": {"initialDelaySeconds": 1, "periodSeconds": 10, "failureThreshold": 2}});
        assert_eq!(
            story(pod(&container, "Never"), &[(0, "startup")], 1000),
            [(0, false, false, 0, "running"), (11, false, false, 0, "ended")]
        );
        assert_eq!(
            story(pod(&container, "Always"), &[(0, "startup"), (5, "")], 1000),
            [(0, false, false, 0, "running"), (5, true, true, 0, "running")]
        );
    }

    #[test]
    fn the_back_off_doubles_up_to_five_minutes_and_is_forgiven() {
        let waits =
            [0, 1, 2, 3, 4, 5, 6, 60].map(|restarts| back_off(restarts, SignedDuration::ZERO).as_secs());
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert!(back_off(6, FORGIVEN_AFTER).is_zero());
    }
}
