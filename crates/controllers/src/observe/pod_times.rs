//! How long pods take: to be decided about, to be bound, to be ready (P §8.5, P §16).
//!
//! Owns what is remembered of pods that wait; it forgets each as soon as it runs, ends or goes, so that memory is bounded by the pods that wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use spokeshave_model::Pod;
use spokeshave_model::planned_node::is_provisionable;
use spokeshave_model::pod::{is_terminal, node_name, true_since};
use spokeshave_ports::SharedClock;
use spokeshave_runtime::{Histogram, Metrics, STANDARD_BUCKETS, Store, Summary};

/// What is known of a pod that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) created: Timestamp,
    /// When it was first seen to need a node.
    pub(crate) acknowledged: Option<Timestamp>,
    /// When it was first decided about.
    pub(crate) decided: Option<Timestamp>,
    /// When a place for it was first found.
    pub(crate) schedulable: Option<Timestamp>,
    pub(crate) bound: bool,
    /// Only pods that were seen pending are timed.
    pending: bool,
}

#[derive(Debug)]
struct Families {
    startup: Summary,
    bound: Histogram,
    provisioning_bound: Histogram,
    provisioning_startup: Histogram,
    decision: Histogram,
}

/// The clocks of pods. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct PodTimes {
    waiting: Arc<Mutex<BTreeMap<String, (String, String, Times)>>>,
    families: Arc<Families>,
    clock: SharedClock,
}

impl PodTimes {
    pub(crate) fn new(metrics: &Metrics, clock: SharedClock) -> Self {
        let histogram = |name: &str, help: &str| metrics.histogram(name, help, &[], &STANDARD_BUCKETS);
        let families = Families {
            startup: metrics.summary(
                "karpenter_pods_startup_duration_seconds",
                "The time from pod creation until the pod is ready.",
                &[],
            ),
            bound: histogram(
                "karpenter_pods_bound_duration_seconds",
                "The time from pod creation until the pod is bound.",
            ),
            provisioning_bound: histogram(
                "karpenter_pods_provisioning_bound_duration_seconds",
                "The time from when a place for the pod was found until the pod is bound.",
            ),
            provisioning_startup: histogram(
                "karpenter_pods_provisioning_startup_duration_seconds",
                "The time from when a place for the pod was found until the pod is ready.",
            ),
            decision: histogram(
                "karpenter_pods_scheduling_decision_duration_seconds",
                "The time from the first sight of a pod until the first decision about it.",
            ),
        };
        Self {
            waiting: Arc::default(),
            families: Arc::new(families),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (String, String, Times)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears of every change of a pod.
    pub(crate) fn listen(&self, pods: &Store<Pod>) {
        let this = self.clone();
        pods.on_change(move |change| {
            if let Some(gone) = change.ended() {
                let uid = gone.metadata.uid.as_deref().unwrap_or_default();
                this.lock().remove(uid);
            }
            if let Some(pod) = change.new.as_deref() {
                this.saw(pod);
            }
        });
    }

    fn saw(&self, pod: &Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let now = self.clock.now();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let mut waiting = self.lock();
        let known = waiting.contains_key(&uid);
        if is_terminal(pod) || (!known && !matches!(phase, None | Some("" | "Pending"))) {
            waiting.remove(&uid);
            return;
        }
        let created = pod
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(now, |time| time.0);
        let (_, _, times) = waiting.entry(uid.clone()).or_insert_with(|| {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let times = Times {
                created,
                acknowledged: None,
                decided: None,
                schedulable: None,
                bound: node_name(pod).is_some(),
                pending: true,
            };
            (text(&pod.metadata.namespace), text(&pod.metadata.name), times)
        });
        if times.acknowledged.is_none() && is_provisionable(pod) {
            times.acknowledged = Some(now);
        }
        let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64().max(0.0);
        if !times.bound && node_name(pod).is_some() {
            times.bound = true;
            let at = true_since(pod, "PodScheduled").unwrap_or(now);
            self.families.bound.observe(&[], seconds(times.created, at));
            if let Some(schedulable) = times.schedulable {
                self.families
                    .provisioning_bound
                    .observe(&[], seconds(schedulable, at));
            }
        }
        if let Some(ready) = true_since(pod, "Ready").filter(|_| times.pending) {
            self.families.startup.observe(&[], seconds(times.created, ready));
            if let Some(schedulable) = times.schedulable {
                self.families
                    .provisioning_startup
                    .observe(&[], seconds(schedulable, ready));
            }
            waiting.remove(&uid);
        }
    }

    /// A planning pass has looked at a pod; `placed` tells whether it found a place.
    pub(crate) fn decided(&self, uid: &str, placed: bool) {
        let now = self.clock.now();
        let mut waiting = self.lock();
        let Some((_, _, times)) = waiting.get_mut(uid) else {
            return;
        };
        if times.decided.is_none() {
            times.decided = Some(now);
            let since = times.acknowledged.unwrap_or(now);
            self.families
                .decision
                .observe(&[], now.duration_since(since).as_secs_f64().max(0.0));
        }
        times.schedulable = placed.then(|| times.schedulable.unwrap_or(now));
    }

    /// Namespace, name and times of every pod that waits.
    pub(crate) fn waiting(&self) -> Vec<(String, String, Times)> {
        self.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use spokeshave_ports::TokioClock;

    fn pod(spec: Value, conditions: Value, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec,
            "status": {"phase": phase, "conditions": conditions},
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn p_16_a_pod_is_timed_from_creation_to_ready_and_then_forgotten() {
        let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
        let metrics = Metrics::new(clock.clone());
        let times = PodTimes::new(&metrics, clock.clone());
        let unbound = json!({"containers": []});
        let bound = json!({"containers": [], "nodeName": "n"});
        let wait = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
        times.saw(&pod(unbound, wait, "Pending"));
        clock.sleep(std::time::Duration::from_secs(5)).await;
        times.decided("u", true);
        times.decided("u", true);
        let scheduled =
            json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z"}]);
        times.saw(&pod(bound.clone(), scheduled, "Pending"));
        let ready = json!([
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:40Z"},
        ]);
        times.saw(&pod(bound.clone(), ready.clone(), "Running"));
        times.saw(&pod(bound, ready, "Running"));
        let families = &times.families;
        assert_eq!(families.decision.get(&[]), (1, 5.0));
        assert_eq!(families.bound.get(&[]), (1, 30.0));
        assert_eq!(families.provisioning_bound.get(&[]), (1, 25.0));
        assert_eq!(families.startup.get(&[]), (1, 40.0));
        assert_eq!(families.provisioning_startup.get(&[]), (1, 35.0));
        assert!(
            times.waiting().is_empty(),
            "nothing is remembered of a pod that runs"
        );
    }

    /// A pod of a StatefulSet that was made anew while the watch was down comes as a change of the old one.
    #[test]
    fn p_16_a_pod_that_was_replaced_under_its_name_is_forgotten() {
        let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
        let times = PodTimes::new(&Metrics::new(clock.clone()), clock);
        let pods = Store::<Pod>::default();
        times.listen(&pods);
        for (uid, version) in [("first", "1"), ("second", "2")] {
            let mut one = pod(json!({"containers": []}), json!([]), "Pending");
            one.metadata.uid = Some(uid.to_owned());
            one.metadata.resource_version = Some(version.to_owned());
            pods.note_written(one);
            let known: Vec<String> = times.lock().keys().cloned().collect();
            assert_eq!(known, [uid]);
        }
    }
}
