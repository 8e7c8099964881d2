//! What the status of a pod says: its phase and its conditions, as they follow from its containers and its readiness gates.
//!
//! Pure. Which containers run is said in `containers`.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::containers::{is_initialized, is_initializing, is_terminated};
use crate::objects::{condition, is_ready, phase, time};
use crate::probes::Findings;
use crate::quantities::is_sidecar;

/// The status of a pod whose containers are so.
pub(crate) fn status_of(pod: &Pod, findings: &Findings, now: Timestamp) -> Value {
    status_in(pod, phase_of(findings), findings, now)
}

/// The status of a pod that has failed, whatever its containers say: reason and message.
pub(crate) fn failed(
    pod: &Pod,
    findings: &Findings,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> Value {
    let mut status = status_in(pod, "Failed", findings, now);
    status["reason"] = json!(reason);
    status["message"] = json!(message);
    status
}

/// Whether a pod's status says already what its containers are like.
pub(crate) fn is_told(pod: &Pod, findings: &Findings) -> bool {
    let status = pod.status.as_ref();
    let known = status.and_then(|status| status.container_statuses.as_ref());
    let known_first = status.and_then(|status| status.init_container_statuses.as_deref());
    phase(pod) == phase_of(findings)
        && known == Some(&findings.statuses)
        && known_first.unwrap_or_default() == findings.init_statuses
        && is_ready(pod) == (unready(pod, findings).is_empty() && closed_gates(pod).is_empty())
}

fn phase_of(findings: &Findings) -> &'static str {
    let is_well = |status: &ContainerStatus| {
        let state = status.state.as_ref();
        let ended = state.and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code == 0)
    };
    if is_initializing(findings) {
        "Pending"
    } else if !findings.statuses.iter().all(is_terminated) {
        "Running"
    } else if findings.statuses.iter().all(is_well) {
        "Succeeded"
    } else {
        "Failed"
    }
}

fn status_in(pod: &Pod, phase: &str, findings: &Findings, now: Timestamp) -> Value {
    let mut status = json!({
        "phase": phase, "containerStatuses": findings.statuses, "conditions": conditions(pod, phase, findings, &time(now)),
    });
    if !findings.init_statuses.is_empty() {
        status["initContainerStatuses"] = json!(findings.init_statuses);
    }
    status
}

/// Names of the init containers of which this holds.
fn init_containers<'a>(
    pod: &'a Pod,
    findings: &'a Findings,
    such: impl Fn(&Container, &ContainerStatus) -> bool,
) -> Vec<&'a str> {
    let containers = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let pairs = containers.zip(&findings.init_statuses);
    let found = pairs.filter(|pair| such(pair.0, pair.1));
    found.map(|(_, status)| status.name.as_str()).collect()
}

/// Names of containers that are not ready. Of init containers only sidecars have to be.
fn unready<'a>(pod: &'a Pod, findings: &'a Findings) -> Vec<&'a str> {
    let mut names = init_containers(pod, findings, |container, status| {
        is_sidecar(container) && !status.ready
    });
    let others = findings.statuses.iter().filter(|status| !status.ready);
    names.extend(others.map(|status| status.name.as_str()));
    names
}

/// Readiness gates of a pod whose conditions do not hold.
fn closed_gates(pod: &Pod) -> Vec<&str> {
    let gates = pod
        .spec
        .iter()
        .flat_map(|spec| spec.readiness_gates.iter().flatten());
    gates
        .map(|gate| gate.condition_type.as_str())
        .filter(|gate| condition(pod, gate).is_none_or(|condition| condition.status != "True"))
        .collect()
}

fn conditions(pod: &Pod, phase: &str, findings: &Findings, now: &Time) -> Value {
    let state = |kind: &str, refusal: Option<(&str, String)>| {
        let status = if refusal.is_none() { "True" } else { "False" };
        let since = condition(pod, kind)
            .filter(|known| known.status == status)
            .and_then(|known| known.last_transition_time.clone());
        let mut value = json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since.as_ref().unwrap_or(now),
            "reason": null, "message": null});
        if let Some((reason, message)) = refusal {
            value["reason"] = json!(reason);
            if !message.is_empty() {
                value["message"] = json!(message);
            }
        }
        value
    };
    let unready = unready(pod, findings);
    let containers = match phase {
        "Succeeded" => Some(("PodCompleted", String::new())),
        "Failed" => Some(("PodFailed", String::new())),
        _ if unready.is_empty() => None,
        _ => Some((
            "ContainersNotReady",
            format!("containers with unready status: [{}]", unready.join(" ")),
        )),
    };
    let gates = closed_gates(pod);
    let gates = (!gates.is_empty()).then(|| {
        let text: Vec<String> = gates
            .iter()
            .map(|gate| format!("corresponding condition of pod readiness gate {gate:?} does not exist or is not \"True\"."))
            .collect();
        ("ReadinessGatesNotReady", text.join(" "))
    });
    let has_ended = matches!(phase, "Succeeded" | "Failed");
    let ended = has_ended.then(|| (containers.clone().map_or("", |(reason, _)| reason), String::new()));
    let waits = is_initializing(findings).then(|| {
        let left = init_containers(pod, findings, |container, status| {
            !is_initialized(container, status)
        });
        let text = format!("containers with incomplete status: [{}]", left.join(" "));
        ("ContainersNotInitialized", text)
    });
    let mut list = vec![
        state("PodReadyToStartContainers", ended),
        state("Initialized", waits),
        state("Ready", containers.clone().or(gates)),
        state("ContainersReady", containers),
    ];
    // A pod that was made with its node never met a scheduler.
    list.push(
        condition(pod, "PodScheduled")
            .map_or_else(|| state("PodScheduled", None), |scheduled| json!(scheduled)),
    );
    json!(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::look;
    use crate::probes::Failing;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    /// With a sidecar that has started and is ready after ten seconds.
    fn pod() -> Pod {
        let slow = json!({"initialDelaySeconds": 10});
        let proxy = json!({"name": "proxy", "restartPolicy": "Always", "startupProbe": slow, "readinessProbe": {"initialDelaySeconds": 15}});
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"restartPolicy": "Never", "initContainers": [{"name": "setup"}, proxy], "containers": [{"name": "main"}]},
        }))
        .unwrap()
    }

    /// Phase, and for each condition what speaks against it.
    fn told(status: &Value) -> Vec<String> {
        let conditions = status["conditions"].as_array().unwrap();
        let refused = conditions.iter().filter(|one| one["status"] == "False");
        let refused = refused.map(|one| format!("{} {} {}", one["type"], one["reason"], one["message"]));
        let phase = status["phase"].as_str().unwrap().to_owned();
        let texts = std::iter::once(phase).chain(refused);
        texts.map(|text| text.replace('"', "")).collect()
    }

    #[test]
    fn a_pod_is_pending_until_its_init_containers_let_it_run_and_ready_with_its_sidecars() {
        let mut pod = pod();
        let mut look_at = |second: i64| {
            let findings = look(&pod, &Failing::default(), at(second));
            let status = status_of(&pod, &findings, at(second));
            pod.status = Some(serde_json::from_value(status.clone()).unwrap());
            assert!(is_told(&pod, &findings));
            told(&status)
        };
        let unready = |names: &str| {
            let text = format!("ContainersNotReady containers with unready status: [{names}]");
            ["Ready", "ContainersReady"].map(|kind| format!("{kind} {text}"))
        };
        let [ready, containers] = unready("proxy main");
        let waits =
            "Initialized ContainersNotInitialized containers with incomplete status: [proxy]".to_owned();
        assert_eq!(look_at(0), ["Pending".to_owned(), waits, ready, containers]);
        let [ready, containers] = unready("proxy");
        assert_eq!(look_at(10), ["Running".to_owned(), ready, containers]);
        assert_eq!(look_at(15), ["Running"]);
    }

    #[test]
    fn a_pod_fails_whatever_its_containers_say() {
        let pod = pod();
        let findings = look(&pod, &Failing::default(), at(0));
        let status = failed(&pod, &findings, ("DeadlineExceeded", "too long"), at(0));
        assert_eq!(
            (&status["reason"], &status["message"]),
            (&json!("DeadlineExceeded"), &json!("too long"))
        );
        let told = told(&status);
        assert_eq!(told[0], "Failed");
        assert!(told.contains(&"Ready PodFailed null".to_owned()), "{told:?}");
    }
}
