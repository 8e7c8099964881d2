//! Which part of a Job each pod does: which pods are still to be made, and which are too many.
//!
//! Owns the indexes of Indexed Jobs, and how a status writes them. Pods without an index are all alike.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::Pod;

use crate::objects::{condition, name};
use crate::workloads::pods::standing;

/// Which part of an Indexed Job a pod does: an annotation and a label.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(super) fn completions(spec: &JobSpec) -> Option<usize> {
    spec.completions.map(|count| usize::try_from(count).unwrap_or(0))
}

/// How many indexes there are; none of a Job that is not Indexed.
pub(super) fn count_of(spec: &JobSpec) -> Option<usize> {
    let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
    is_indexed.then(|| completions(spec).unwrap_or(0))
}

pub(super) fn index_of(pod: &Pod) -> Option<usize> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(INDEX)?.parse().ok()
}

/// The pods to make, at most `count`: those of an Indexed Job have the lowest indexes that are neither done nor taken.
pub(super) fn openings(
    spec: &JobSpec,
    done: &BTreeSet<usize>,
    running: &[Arc<Pod>],
    count: usize,
) -> Vec<Option<usize>> {
    let Some(indexes) = count_of(spec) else {
        return vec![None; count];
    };
    let taken: BTreeSet<usize> = running.iter().filter_map(|pod| index_of(pod)).collect();
    (0..indexes)
        .filter(|index| !taken.contains(index) && !done.contains(index))
        .take(count)
        .map(Some)
        .collect()
}

/// The pods that go so that `wanted` are left. Those of an Indexed Job without an index of their own that it still has go in any case.
pub(super) fn surplus(spec: &JobSpec, running: &[Arc<Pod>], wanted: usize) -> Vec<Arc<Pod>> {
    // Each look asks, and seldom is one too many.
    if running.len() <= wanted && have_own_parts(spec, running) {
        return Vec::new();
    }
    let mut ranked = least_valuable(running);
    let mut going = Vec::new();
    if let Some(indexes) = count_of(spec) {
        let mut taken = BTreeSet::new();
        // Of several with one index the most valuable stays.
        ranked.reverse();
        (ranked, going) = ranked
            .into_iter()
            .partition(|pod| takes_part(pod, indexes, &mut taken));
        ranked.reverse();
    }
    let more = ranked.len().saturating_sub(wanted);
    going.extend(ranked.into_iter().take(more));
    going
}

/// Whether no pod of an Indexed Job lacks an index of its own that the Job still has.
fn have_own_parts(spec: &JobSpec, running: &[Arc<Pod>]) -> bool {
    let Some(indexes) = count_of(spec) else {
        return true;
    };
    let mut taken = BTreeSet::new();
    running.iter().all(|pod| takes_part(pod, indexes, &mut taken))
}

/// Takes the index of a pod. Whether that is one of so many, and none that was taken before.
fn takes_part(pod: &Pod, indexes: usize, taken: &mut BTreeSet<usize>) -> bool {
    let index = index_of(pod).filter(|index| *index < indexes);
    index.is_some_and(|index| taken.insert(index))
}

/// Those that have come less far first, then those that have been ready for less long, then the young: as little work as possible is lost.
fn least_valuable(pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let mut ranked = pods.to_vec();
    ranked.sort_by_cached_key(|pod| {
        (
            standing(pod),
            Reverse(ready_since(pod)),
            Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)),
            name(&pod.metadata).to_owned(),
        )
    });
    ranked
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Numbers as a Job's status writes them: `0,2-4`.
pub(super) fn intervals(numbers: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let texts: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    texts.join(",")
}

/// The same read again, without those that are `below` or more.
pub(super) fn numbers(text: &str, below: usize) -> BTreeSet<usize> {
    let mut numbers = BTreeSet::new();
    for run in text.split(',') {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            numbers.extend(first..last.saturating_add(1).min(below));
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::jobs::testing::{job, pod, spec};
    use serde_json::{Value, json};

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().map(|pod| name(&pod.metadata)).collect()
    }

    /// A pod on a node, if any, that has been there, and Ready, since a time of day.
    fn placed(pod_name: &str, node: &str, created: &str, ready: Option<&str>) -> Arc<Pod> {
        let time = |clock: &str| format!("2026-03-02T{clock}:00Z");
        let ready = ready
            .map(|clock| json!([{"type": "Ready", "status": "True", "lastTransitionTime": time(clock)}]));
        let phase = if ready.is_some() { "Running" } else { "Pending" };
        let object = json!({
            "metadata": {"name": pod_name, "creationTimestamp": time(created)}, "spec": {"containers": [], "nodeName": node},
            "status": {"phase": phase, "conditions": ready},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn pods_that_have_done_least_go_first() {
        let plain = job(&json!({"completions": 9}), &Value::Null);
        let pods = [
            placed("a", "n1", "08:00", Some("08:01")),
            placed("b", "", "07:00", None),
            placed("c", "n1", "07:00", Some("09:00")),
            placed("d", "n2", "09:00", None),
            placed("e", "n2", "08:30", Some("08:01")),
        ];
        assert_eq!(names(&surplus(spec(&plain), &pods, 4)), ["b"], "it has no node");
        let going = surplus(spec(&plain), &pods, 1);
        assert_eq!(
            names(&going),
            ["b", "d", "c", "e"],
            "the longest ready stays, and of two the older"
        );
        assert!(surplus(spec(&plain), &pods, 5).is_empty());
        assert_eq!(surplus(spec(&plain), &pods, 0).len(), 5);
    }

    #[test]
    fn pods_of_an_indexed_job_without_an_index_that_it_has_go_in_any_case() {
        let indexed = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3});
        let indexed = job(&indexed, &Value::Null);
        let of = |pod_name: &str, index: Option<usize>| Arc::new(pod(pod_name, "Running", index));
        let some = [
            of("a", Some(0)),
            of("b", Some(1)),
            of("c", Some(10)),
            of("d", Some(2)),
            of("e", None),
        ];
        assert_eq!(names(&surplus(spec(&indexed), &some, 3)), ["e", "c"]);
        assert_eq!(names(&surplus(spec(&indexed), &some, 2)), ["e", "c", "a"]);
        let twice = [of("a", Some(1)), of("b", Some(1)), of("c", Some(2))];
        assert_eq!(names(&surplus(spec(&indexed), &twice, 3)), ["a"], "one is enough");
    }

    #[test]
    fn indexes_are_written_as_intervals() {
        let some: BTreeSet<usize> = [0, 2, 3, 4, 9].into();
        assert_eq!(intervals(&some), "0,2-4,9");
        assert_eq!(numbers("0,2-4,9", 10), some);
        assert_eq!(numbers("", 10), BTreeSet::new());
        assert_eq!(numbers("0,2-18446744073709551615", 4), BTreeSet::from([0, 2, 3]));
    }
}
