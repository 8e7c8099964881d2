//! Which pods a kubelet does not take: those that were made with their node and met no scheduler, if the node lacks what they ask for, or is none that they
//! ask for.
//!
//! Whom a scheduler has bound is never refused: it has counted what was there, and a kubelet knows no more than it. Nor is a pod that is critical, for which a
//! kubelet makes room instead.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};

use super::has_begun;
use crate::objects::{condition, has_ended, is_deleting, key, name, uid};
use crate::quantities::{self, Amounts};
use crate::rules;
use crate::world::World;

/// From this priority on a pod is critical (`SystemCriticalPriority`).
const CRITICAL: i32 = 2_000_000_000;
/// What is counted, in the order in which a kubelet looks, and how many thousandths of a unit one is that its messages count.
const RESOURCES: [(&str, i128); 3] = [("pods", 1000), ("cpu", 1), ("memory", 1000)];

/// Why a pod is not taken: reason, and message.
pub(super) type Rejection = (String, String);

/// Why a pod that has not begun is not taken. O(pods of the node), for a pod that is judged at all.
pub(super) fn rejection(world: &World, pod: &Pod, node: &Node) -> Option<Rejection> {
    if !is_judged(pod) {
        return None;
    }
    judge(pod, node, &world.pods_by_node.get(name(&node.metadata)))
}

fn is_judged(pod: &Pod) -> bool {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
    condition(pod, "PodScheduled").is_none() && priority.unwrap_or(0) < CRITICAL
}

/// Judges all that have not begun in the order in which they came, so that who is refused takes no room from those after it, whichever is looked at first.
fn judge(pod: &Pod, node: &Node, others: &[Arc<Pod>]) -> Option<Rejection> {
    let status = node.status.as_ref();
    let allocatable = quantities::amounts(status.and_then(|status| status.allocatable.as_ref()));
    let there = others.iter().filter(|other| !has_ended(other));
    let (mut coming, there): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        there.partition(|other| is_judged(other) && !has_begun(other));
    let mut used = Amounts::new();
    for spec in there.iter().filter_map(|other| other.spec.as_ref()) {
        quantities::add(&mut used, &quantities::pod_requests(spec));
    }
    coming.retain(|other| !is_deleting(&other.metadata));
    coming.sort_by_cached_key(|other| {
        let created = other.metadata.creation_timestamp.as_ref();
        (created.map(|time| time.0), key(&other.metadata))
    });
    for other in coming {
        let Some(spec) = &other.spec else { continue };
        let requests = quantities::pod_requests(spec);
        let found = mismatch(spec, node).or_else(|| lack(&requests, &used, &allocatable));
        if uid(&other.metadata) == uid(&pod.metadata) {
            return found;
        }
        if found.is_none() {
            quantities::add(&mut used, &requests);
        }
    }
    None
}

fn mismatch(spec: &PodSpec, node: &Node) -> Option<Rejection> {
    let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    (!rules::accepts_node(spec, node)).then(|| ("NodeAffinity".to_owned(), message.to_owned()))
}

/// What the node has too little of. Of what it does not speak it has enough.
fn lack(wanted: &Amounts, used: &Amounts, allocatable: &Amounts) -> Option<Rejection> {
    RESOURCES.into_iter().find_map(|(resource, unit)| {
        let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or(0) / unit;
        let capacity = allocatable.get(resource)? / unit;
        let (wanted, used) = (of(wanted), of(used));
        (wanted > 0 && used + wanted > capacity).then(|| {
            let message = format!(
                "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
            );
            (format!("OutOf{resource}"), message)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(pod_name: &str, cpu: &str, change: Value) -> Arc<Pod> {
        let mut whole = json!({
            "metadata": {"name": pod_name, "namespace": "default", "uid": pod_name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]},
        });
        for (part, fields) in change.as_object().into_iter().flatten() {
            for (field, value) in fields.as_object().into_iter().flatten() {
                whole[part][field] = value.clone();
            }
        }
        Arc::new(serde_json::from_value(whole).unwrap())
    }

    /// Four processors, as much memory, and three pods.
    fn node() -> Node {
        let room = json!({"cpu": "4", "memory": "4Gi", "pods": "3"});
        serde_json::from_value(
            json!({"metadata": {"name": "n", "labels": {"disk": "fast"}}, "status": {"allocatable": room}}),
        )
        .unwrap()
    }

    /// The reasons for which some of these pods are refused, which are all that the node has.
    fn reasons(pods: &[Arc<Pod>]) -> Vec<String> {
        let found = pods.iter().map(|pod| judge(pod, &node(), pods));
        found
            .map(|found| found.map(|(reason, _)| reason).unwrap_or_default())
            .collect()
    }

    #[test]
    fn a_pod_that_met_no_scheduler_is_refused_where_it_does_not_fit() {
        let other = json!({"spec": {"nodeSelector": {"disk": "slow"}}});
        for (pods, expected) in [
            (vec![pod("a", "4", json!({}))], vec![""]),
            (vec![pod("a", "4001m", json!({}))], vec!["OutOfcpu"]),
            (vec![pod("a", "1", other)], vec!["NodeAffinity"]),
            // Who is refused takes no room from the next one.
            (
                vec![
                    pod("a", "500", json!({})),
                    pod("b", "3", json!({})),
                    pod("c", "2", json!({})),
                ],
                vec!["OutOfcpu", "", "OutOfcpu"],
            ),
            (
                Vec::from(["a", "b", "c", "d"].map(|own| pod(own, "1m", json!({})))),
                vec!["", "", "", "OutOfpods"],
            ),
        ] {
            assert_eq!(reasons(&pods), expected);
        }
        let (_, message) = judge(&pod("a", "5", json!({})), &node(), &[pod("a", "5", json!({}))]).unwrap();
        assert_eq!(
            message,
            "Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000"
        );
    }

    #[test]
    fn what_is_there_counts_and_who_is_bound_or_critical_is_not_judged() {
        let scheduled = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}});
        let runs = json!({"status": {"phase": "Running"}});
        let ended = json!({"status": {"phase": "Succeeded"}});
        for (change, expected) in [(scheduled.clone(), "OutOfcpu"), (runs, "OutOfcpu"), (ended, "")] {
            let (there, late) = (pod("z", "3", change), pod("a", "2", json!({})));
            let found = judge(&late, &node(), &[there, late.clone()]);
            assert_eq!(found.map(|(reason, _)| reason).unwrap_or_default(), expected);
        }
        assert!(is_judged(&pod("a", "5", json!({}))));
        assert!(!is_judged(&pod("a", "5", scheduled)));
        assert!(!is_judged(&pod(
            "a",
            "5",
            json!({"spec": {"priority": CRITICAL}})
        )));
    }
}
