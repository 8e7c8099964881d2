//! The node that a waiting pod names in `status.nominatedNodeName`, and whether it was the plan that named it or a scheduler that makes room there.
//!
//! The API has one field for both. What the plan names is told apart by a condition of our own beside the field, which says which node it was. Functions
//! of one Pod object; when a node is named is `plan`'s.

use crate::Pod;
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

/// The node on which a scheduler makes room for a pod.
pub fn nominated_by_others(pod: &Pod) -> Option<&str> {
    nominated(pod).filter(|_| planned(pod).is_none())
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
