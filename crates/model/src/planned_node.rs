//! The node that a waiting pod names in `status.nominatedNodeName`, and whether it was the plan that named it or a scheduler that makes room there.
//!
//! The API has one field for both. What the plan names is told apart by a condition of our own beside the field, which says which node it was. Functions
//! of one Pod object; when a node is named is `plan`'s.
//!
//! A node that somebody else has named is promised: a scheduler ends other pods there for this one, or is about to bind it, which takes as long as its volumes
//! take (Kubernetes 1.35 names the node first, so that nobody removes it meanwhile). The API does not say when a node was named, and nobody may ever clear the
//! field: a scheduler dies, or somebody has written it by hand. So the operator counts from when it saw the name first and withdraws it after a while (its
//! `state::promises`); who looks only once, as `plan` does at a file, takes it as it stands.

use crate::Pod;
use crate::pod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::conditions::NODE_PLANNED;
use spokeshave_api::whole_seconds;

/// Reason of the condition while the pod is planned on the node.
const PLANNED: &str = "Planned";
/// Reason of the condition when the plan puts the pod elsewhere now.
const PLAN_CHANGED: &str = "PlanChanged";
/// Reason of the condition when the scheduler has left the node although it could run pods.
const NOT_TAKEN: &str = "NotTaken";
/// How the message begins; the name of the node follows.
const ON_NODE: &str = "planned on node ";

/// Why the name of a node is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenBack {
    /// The plan puts the pod elsewhere, or nowhere.
    PlanChanged,
    /// The node could have run it for long enough; it is not named again.
    NotTaken,
}

/// The node that a pod names, whoever has named it.
fn nominated(pod: &Pod) -> Option<&str> {
    let name = pod.status.as_ref()?.nominated_node_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

/// Our condition, and the node that it is about.
fn condition(pod: &Pod) -> Option<(&PodCondition, &str)> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let own = conditions
        .iter()
        .find(|condition| condition.type_ == NODE_PLANNED)?;
    let rest = own.message.as_deref()?.strip_prefix(ON_NODE)?;
    Some((own, rest.split(' ').next().unwrap_or(rest)))
}

/// The node that our condition says the pod is planned on, with when it was named, whatever the pod names now.
pub fn said(pod: &Pod) -> Option<(&str, Timestamp)> {
    let (condition, of) = condition(pod)?;
    let since = condition.last_transition_time.as_ref();
    (condition.status == "True").then(|| (of, since.map_or(Timestamp::MIN, |time| time.0)))
}

/// The node that the plan has named for a pod and that stands there still, with when that was.
pub fn planned(pod: &Pod) -> Option<(&str, Timestamp)> {
    said(pod).filter(|(of, _)| nominated(pod) == Some(*of))
}

/// The node that the plan has named for a pod and that was taken away since, with when it was named: a scheduler does that when it tries the pod and
/// nothing can take it, also while the node only gets ready.
pub fn emptied(pod: &Pod) -> Option<(&str, Timestamp)> {
    said(pod).filter(|_| nominated(pod).is_none())
}

/// D-007, P-056, whatever node it names: reported unschedulable, bound nowhere, neither daemon nor mirror. A pod that the plan has named a node for waits
/// like any other: should that node never take it, it gets another.
pub fn waits(pod: &Pod) -> bool {
    if pod::node_name(pod).is_some() {
        return false;
    }
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let is_unschedulable = conditions.unwrap_or_default().iter().any(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    });
    is_unschedulable && !pod::is_daemon(pod) && !pod::is_mirror(pod)
}

/// The node on which a scheduler makes room for a pod, or is about to bind it.
pub fn nominated_by_others(pod: &Pod) -> Option<&str> {
    nominated(pod).filter(|_| planned(pod).is_none())
}

/// D-007, P-056: waits for a place, and nobody but the plan has named a node for it. Whether a name that somebody else has given counts depends on that node,
/// which `lower` knows.
pub fn is_provisionable(pod: &Pod) -> bool {
    waits(pod) && nominated_by_others(pod).is_none()
}

/// The node that is promised to a pod which has none yet: where there is such a node and it stays, the pod counts as if it were bound there. Reported
/// unschedulable or not: a scheduler that has found a place at the first try says nothing else. Pods of DaemonSets are expected on their nodes anyway.
pub fn promised(pod: &Pod) -> Option<&str> {
    if pod::node_name(pod).is_some() {
        return None;
    }
    let node = nominated_by_others(pod)?;
    let is_meant = pod::is_active(pod) && !pod::is_daemon(pod) && !pod::is_mirror(pod);
    is_meant.then_some(node)
}

/// The pod, as if nobody had named a node for it.
#[must_use]
pub fn without_nomination(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    if let Some(status) = &mut pod.status {
        status.nominated_node_name = None;
    }
    pod
}

/// Whether the plan has named this node before, and it was taken back for good: by us, because the pod was not put there, or by somebody else. It is
/// not named again, so that nobody argues about it.
pub fn is_spent(pod: &Pod, node: &str) -> bool {
    condition(pod).is_some_and(|(condition, of)| {
        let stands = condition.status == "True";
        of == node && (stands || condition.reason.as_deref() == Some(NOT_TAKEN))
    })
}

/// The condition beside the name of a node.
pub fn names(node: &str, now: Timestamp) -> PodCondition {
    ours("True", PLANNED, format!("{ON_NODE}{node}"), now)
}

/// The condition beside a name that was taken back.
pub fn no_longer(node: &str, why: TakenBack, now: Timestamp) -> PodCondition {
    let (reason, text) = match why {
        TakenBack::PlanChanged => (PLAN_CHANGED, "no longer: the plan has changed"),
        TakenBack::NotTaken => (NOT_TAKEN, "no longer: the scheduler has not put it there"),
    };
    ours("False", reason, format!("{ON_NODE}{node} {text}"), now)
}

fn ours(status: &str, reason: &str, message: String, now: Timestamp) -> PodCondition {
    PodCondition {
        type_: NODE_PLANNED.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: Some(Time(whole_seconds(now))),
        ..PodCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodStatus;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(node: Option<&str>, conditions: Vec<PodCondition>) -> Pod {
        Pod {
            status: Some(PodStatus {
                nominated_node_name: node.map(str::to_owned),
                conditions: Some(conditions),
                ..PodStatus::default()
            }),
            ..Pod::default()
        }
    }

    #[test]
    fn p_056_a_name_is_the_plans_only_where_its_condition_names_the_same_node() {
        let own = pod(Some("a"), vec![names("a", at(7))]);
        assert_eq!(planned(&own), Some(("a", at(7))));
        assert_eq!(nominated_by_others(&own), None);
        // A scheduler makes room for it elsewhere, or made it before; a name that begins alike is another's.
        for other in [
            pod(Some("b"), vec![names("a", at(7))]),
            pod(Some("a"), Vec::new()),
            pod(Some("a"), vec![names("a-1", at(7))]),
            pod(Some("a"), vec![no_longer("a", TakenBack::PlanChanged, at(7))]),
        ] {
            assert_eq!(planned(&other), None);
            assert_eq!(
                nominated_by_others(&other),
                other.status.as_ref().unwrap().nominated_node_name.as_deref()
            );
        }
        for nowhere in [pod(None, vec![names("a", at(7))]), pod(Some(""), Vec::new())] {
            assert_eq!((planned(&nowhere), nominated_by_others(&nowhere)), (None, None));
        }
    }

    #[test]
    fn p_056_a_node_is_promised_to_who_has_none_by_somebody_else() {
        let named = || pod(Some("a"), Vec::new());
        assert_eq!(promised(&named()), Some("a"));
        assert_eq!(promised(&without_nomination(&named())), None);
        assert_eq!(
            promised(&pod(Some("a"), vec![names("a", at(7))])),
            None,
            "by the plan"
        );
        let mut bound = named();
        bound.node_name = Some("a".to_owned());
        let mut ended = named();
        ended.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        let mut daemon = named();
        let owner =
            serde_json::json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "u"}]);
        daemon.metadata.owner_references = serde_json::from_value(owner).unwrap();
        for other in [bound, ended, daemon] {
            assert_eq!(promised(&other), None, "{other:?}");
        }
    }

    #[test]
    fn p_056_what_was_taken_back_for_good_is_not_named_again() {
        let gone = |why| pod(None, vec![no_longer("a", why, at(7))]);
        assert!(is_spent(&gone(TakenBack::NotTaken), "a"));
        assert!(!is_spent(&gone(TakenBack::NotTaken), "b"));
        assert!(!is_spent(&gone(TakenBack::PlanChanged), "a"));
        // Somebody else has emptied the field.
        let without = pod(None, vec![names("a", at(7))]);
        assert!(is_spent(&without, "a"));
        assert_eq!(emptied(&without), Some(("a", at(7))));
        assert_eq!(emptied(&pod(Some("b"), vec![names("a", at(7))])), None);
        assert!(!is_spent(&pod(None, Vec::new()), "a"));
    }
}
