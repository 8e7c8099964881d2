//! Which containers of a pod run: init containers one after the other, then all others. Sidecars, which are init containers that run on, hold up those after
//! them only until they have started.
//!
//! Pure. What becomes of a container that runs is said in `probes`. Other init containers take no time, and end well.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod,
};

use crate::objects::time;
use crate::probes::{Failing, Findings, Look, fresh};
use crate::quantities::is_sidecar;

/// Why a container waits whose turn has not come.
const INITIALIZING: &str = "PodInitializing";

/// How a container ends.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) exit_code: i32,
    pub(crate) reason: &'static str,
}

/// It has done what it was for.
pub(crate) const WELL: End = End {
    exit_code: 0,
    reason: "Completed",
};

/// It was killed.
pub(crate) const KILLED: End = End {
    exit_code: 137,
    reason: "Error",
};

/// The containers of a pod that was started, now.
pub(crate) fn look(pod: &Pod, failing: &Failing, now: Timestamp) -> Findings {
    let mut findings = Findings::default();
    let Some(spec) = &pod.spec else { return findings };
    let restarts = spec.restart_policy.as_deref() != Some("Never");
    let runs = |container: &Container, restarts: bool, findings: &mut Findings| {
        let status = known(pod, container).filter(|status| has_begun(status));
        let status = status.cloned().unwrap_or_else(|| fresh(pod, container, now));
        let look = Look {
            pod,
            container,
            failing,
            now,
            restarts,
        };
        look.container(status, findings)
    };
    // A sidecar that starts again holds up nobody whose turn has come before.
    let has_turn =
        |container: &Container, is_next: bool| is_next || known(pod, container).is_some_and(has_begun);
    let mut is_next = true;
    for container in spec.init_containers.iter().flatten() {
        let status = match has_turn(container, is_next) {
            false => waiting(pod, container),
            true if is_sidecar(container) => runs(container, true, &mut findings),
            true => completed(pod, container, now),
        };
        is_next &= is_initialized(container, &status);
        findings.init_statuses.push(status);
    }
    for container in &spec.containers {
        let status = if has_turn(container, is_next) {
            runs(container, restarts, &mut findings)
        } else {
            waiting(pod, container)
        };
        findings.statuses.push(status);
    }
    if findings.statuses.iter().all(is_terminated) {
        end_all(&mut findings.init_statuses, WELL, now);
    }
    findings
}

/// The status that a pod has of a container.
fn known<'a>(pod: &'a Pod, container: &Container) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let mut statuses = lists.into_iter().flatten().flatten();
    statuses.find(|status| status.name == container.name)
}

/// Whether an init container lets those after it run.
pub(crate) fn is_initialized(container: &Container, status: &ContainerStatus) -> bool {
    if is_sidecar(container) {
        status.started == Some(true)
    } else {
        is_terminated(status)
    }
}

/// Whether the turn of a container had come.
fn has_begun(status: &ContainerStatus) -> bool {
    let state = status.state.as_ref();
    let waiting = state.and_then(|state| state.waiting.as_ref());
    waiting.is_none_or(|waiting| waiting.reason.as_deref() != Some(INITIALIZING))
}

pub(crate) fn is_terminated(status: &ContainerStatus) -> bool {
    status
        .state
        .as_ref()
        .is_some_and(|state| state.terminated.is_some())
}

/// Whether a pod still waits for its init containers.
pub(crate) fn is_initializing(findings: &Findings) -> bool {
    findings.statuses.iter().any(|status| !has_begun(status))
}

/// A container whose turn has not come.
fn waiting(pod: &Pod, container: &Container) -> ContainerStatus {
    // As the server has it, which fills in what is left out here: otherwise it would never say so.
    if let Some(status) = known(pod, container) {
        return status.clone();
    }
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        state: Some(ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(INITIALIZING.to_owned()),
                message: None,
            }),
            ..ContainerState::default()
        }),
        ..ContainerStatus::default()
    }
}

/// An init container that has ended.
fn completed(pod: &Pod, container: &Container, now: Timestamp) -> ContainerStatus {
    if let Some(status) = known(pod, container).filter(|status| is_terminated(status)) {
        return status.clone();
    }
    let mut status = fresh(pod, container, now);
    end(&mut status, WELL, now);
    status.ready = true;
    status
}

/// The containers of a pod of which all end now that run.
pub(crate) fn ended(pod: &Pod, how: End, now: Timestamp) -> Findings {
    let mut findings = look(pod, &Failing::default(), now);
    end_all(&mut findings.statuses, how, now);
    end_all(&mut findings.init_statuses, how, now);
    findings
}

/// All of these containers that run end now.
fn end_all(statuses: &mut [ContainerStatus], how: End, now: Timestamp) {
    let running = statuses
        .iter_mut()
        .filter(|status| has_begun(status) && !is_terminated(status));
    running.for_each(|status| end(status, how, now));
}

fn end(status: &mut ContainerStatus, how: End, now: Timestamp) {
    let state = status.state.take();
    let started_at = state.and_then(|state| state.running?.started_at);
    (status.ready, status.started) = (false, Some(false));
    status.state = Some(ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: how.exit_code,
            reason: Some(how.reason.to_owned()),
            started_at,
            finished_at: Some(time(now)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    /// `setup`, then `proxy`, which has started after ten seconds, then `last`, then `main`.
    fn pod(main: &Value) -> Pod {
        let proxy =
            json!({"name": "proxy", "restartPolicy": "Always", "startupProbe": {"initialDelaySeconds": 10}});
        let mut main = main.clone();
        main["name"] = json!("main");
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"restartPolicy": "Never", "initContainers": [{"name": "setup"}, proxy, {"name": "last"}], "containers": [main]},
        }))
        .unwrap()
    }

    /// One word a container after a look at this second, which the pod keeps.
    fn words(pod: &mut Pod, failing: &Failing, second: i64) -> Vec<&'static str> {
        let findings = look(pod, failing, at(second));
        let all = findings.init_statuses.iter().chain(&findings.statuses);
        let word = |status: &ContainerStatus| match status.state.as_ref().unwrap() {
            state if state.terminated.is_some() => "ended",
            state if state.waiting.is_some() => "waits",
            _ if status.ready => "ready",
            _ => "runs",
        };
        let words = all.map(word).collect();
        let status = pod.status.get_or_insert_default();
        status.init_container_statuses = Some(findings.init_statuses);
        status.container_statuses = Some(findings.statuses);
        words
    }

    #[test]
    fn a_sidecar_holds_up_those_after_it_until_it_has_started() {
        let (mut pod, none) = (pod(&json!({})), Failing::default());
        assert_eq!(words(&mut pod, &none, 0), ["ended", "runs", "waits", "waits"]);
        assert_eq!(look(&pod, &none, at(3)).next, Some(at(10)));
        assert!(is_initializing(&look(&pod, &none, at(9))));
        assert_eq!(words(&mut pod, &none, 10), ["ended", "ready", "ended", "ready"]);
        let restarts =
            |pod: &Pod| pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count;
        assert_eq!(restarts(&pod), 0, "to wait for one's turn is no restart");
    }

    #[test]
    fn what_waits_is_as_the_server_has_it() {
        let (mut pod, none) = (pod(&json!({})), Failing::default());
        words(&mut pod, &none, 0);
        let status = pod.status.as_mut().unwrap();
        let main = &mut status.container_statuses.as_mut().unwrap()[0];
        main.last_state = Some(ContainerState::default());
        let known = status.container_statuses.clone();
        assert_eq!(Some(look(&pod, &none, at(3)).statuses), known);
    }

    #[test]
    fn a_sidecar_that_starts_again_stops_nobody() {
        let mut pod = pod(&json!({}));
        let sidecars = pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap();
        sidecars[1].liveness_probe =
            Some(serde_json::from_value(json!({"periodSeconds": 10, "failureThreshold": 1})).unwrap());
        let none = Failing::default();
        words(&mut pod, &none, 0);
        words(&mut pod, &none, 10);
        let failing = Failing {
            text: "proxy/liveness".to_owned(),
            since: Some(at(20)),
        };
        assert_eq!(words(&mut pod, &failing, 30), ["ended", "runs", "ended", "ready"]);
        assert!(!is_initializing(&look(&pod, &none, at(31))));
    }

    #[test]
    fn sidecars_end_with_the_last_of_the_others() {
        let main = json!({"livenessProbe": {"periodSeconds": 10, "failureThreshold": 1}});
        let mut pod = pod(&main);
        words(&mut pod, &Failing::default(), 0);
        words(&mut pod, &Failing::default(), 10);
        let failing = Failing {
            text: "main/liveness".to_owned(),
            since: Some(at(20)),
        };
        assert_eq!(words(&mut pod, &failing, 30), ["ended"; 4]);
    }
}
