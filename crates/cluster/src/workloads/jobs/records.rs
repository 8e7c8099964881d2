//! What became of the pods of Jobs, noted as it happens: a pod that is gone tells nobody any more how it ended.
//!
//! Owns failures, successes and the pause after failures, for as long as the process and the Job live. Statuses are read and written elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use spokeshave_runtime::{Change, ObjectKey};

use super::indexes::index_of;
use crate::objects::{controller_of, is_deleting, namespace, phase, uid};
use crate::world::{World, lock};

/// How long a Job waits with the next pod when the first has failed; twice as long after each further one, up to ten minutes (by its code; documents say six).
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10 * 60);

/// Results of the pods of a Job, by UID. Pods that were deleted before completion have failed, unless the Job itself deleted them.
#[derive(Default)]
pub(super) struct Record {
    pub(super) failed: BTreeSet<String>,
    pub(super) succeeded: BTreeSet<String>,
    /// Indexes of the pods that succeeded.
    pub(super) indexes: BTreeSet<usize>,
    pub(super) spared: BTreeSet<String>,
    /// Failures since the last success, and when the last was.
    in_a_row: u32,
    last_failure: Option<Timestamp>,
}

impl Record {
    pub(super) fn note(&mut self, pod: &Pod, gone: bool, now: Timestamp) {
        let uid = uid(&pod.metadata);
        if phase(pod) == "Succeeded" {
            if self.succeeded.insert(uid.to_owned()) {
                self.in_a_row = 0;
                self.indexes.extend(index_of(pod));
            }
            return;
        }
        let failed = phase(pod) == "Failed" || gone || is_deleting(&pod.metadata);
        if failed && !self.spared.contains(uid) && self.failed.insert(uid.to_owned()) {
            self.in_a_row = self.in_a_row.saturating_add(1);
            self.last_failure = Some(now);
        }
    }

    /// Indexes that a smaller Job does not have any more are to be done again when it is larger.
    pub(super) fn forget_from(&mut self, count: usize) {
        self.indexes.retain(|index| *index < count);
    }

    /// How long no pod is to be made.
    pub(super) fn waits(&self, now: Timestamp) -> Duration {
        let Some(last) = self.last_failure.filter(|_| self.in_a_row > 0) else {
            return Duration::ZERO;
        };
        let doublings = (self.in_a_row - 1).min(16);
        let length = FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF);
        let passed = now.duration_since(last).max(SignedDuration::ZERO);
        length.saturating_sub(Duration::try_from(passed).unwrap_or_default())
    }
}

/// What became of the pods of all Jobs, by the Job's UID.
#[derive(Clone, Default)]
pub(crate) struct Records(Arc<Mutex<BTreeMap<String, Record>>>);

impl Records {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let records = Self::default();
        let (own, jobs, clock) = (records.clone(), world.jobs.clone(), world.clock.clone());
        world.pods.on_change(move |change| {
            for (pod, is_gone) in news(change) {
                let Some(owner) = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job") else {
                    continue;
                };
                let job = jobs.get(&ObjectKey::namespaced(namespace(&pod.metadata), &owner.name));
                if job.is_some_and(|job| uid(&job.metadata) == owner.uid) {
                    let mut records = own.lock();
                    let record = records.entry(owner.uid.clone()).or_default();
                    record.note(pod, is_gone, clock.now());
                }
            }
        });
        let own = records.clone();
        world.jobs.on_change(move |change| own.forget(change));
        records
    }

    /// The record of a Job ends with it, also when another one has its name.
    fn forget(&self, change: &Change<Job>) {
        if let Some(old) = change.ended() {
            self.lock().remove(uid(&old.metadata));
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        lock(&self.0)
    }
}

/// The pods of which a change tells, and whether they are gone: first the one that is no more, then the one that has its name.
fn news(change: &Change<Pod>) -> Vec<(&Pod, bool)> {
    let gone = change.ended().map(|pod| (&**pod, true));
    let here = change.new.as_deref().map(|pod| (pod, false));
    gone.into_iter().chain(here).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::jobs::testing::{at, job, pod};
    use serde_json::{Value, json};

    /// `DefaultJobPodFailureBackOff` and `MaxJobPodFailureBackOff` of the Job controller.
    #[test]
    fn the_successor_of_a_pod_that_failed_waits_ten_minutes_at_most_and_not_after_a_success() {
        let mut record = Record::default();
        let waits = (0..8).map(|number| {
            record.note(&pod(&number.to_string(), "Failed", None), false, at(0));
            record.waits(at(0)).as_secs()
        });
        assert_eq!(waits.collect::<Vec<_>>(), [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(record.waits(at(590)), Duration::from_secs(10));
        record.note(&pod("good", "Succeeded", None), false, at(595));
        assert!(record.waits(at(595)).is_zero());
    }

    #[test]
    fn who_has_ended_is_noted_also_when_another_one_has_its_name() {
        let pods = [pod("a", "Running", None), pod("b", "Running", None)].map(Arc::new);
        let change = |old: Option<usize>, new: Option<usize>| {
            let of = |number: Option<usize>| number.map(|number| pods[number].clone());
            Change {
                key: ObjectKey::namespaced("default", "j-0"),
                old: of(old),
                new: of(new),
            }
        };
        let told = |change: &Change<Pod>| -> Vec<(String, bool)> {
            let news = news(change).into_iter();
            news.map(|(pod, is_gone)| (uid(&pod.metadata).to_owned(), is_gone))
                .collect()
        };
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(told(&change(None, Some(0))), [(a.clone(), false)]);
        assert_eq!(told(&change(Some(0), Some(0))), [(a.clone(), false)]);
        assert_eq!(told(&change(Some(0), None)), [(a.clone(), true)]);
        assert_eq!(told(&change(Some(0), Some(1))), [(a, true), (b, false)]);

        let named = |job_uid: &str| {
            let mut job = job(&json!({}), &Value::Null);
            job.metadata.uid = Some(job_uid.to_owned());
            Some(Arc::new(job))
        };
        let records = Records::default();
        records.lock().insert("old".to_owned(), Record::default());
        let key = ObjectKey::namespaced("default", "j");
        let mut of_job = Change {
            key,
            old: named("old"),
            new: named("old"),
        };
        records.forget(&of_job);
        assert!(records.lock().contains_key("old"), "it has changed");
        of_job.new = named("new");
        records.forget(&of_job);
        assert!(records.lock().is_empty());
    }
}
