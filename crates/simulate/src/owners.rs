//! Workload controllers: how many pods each owner has, what these are called, and how long a Job waits with the next one.
//!
//! Owns the counting. It never creates or deletes a pod: the engine does what follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use spokeshave_model::labels;
use spokeshave_scenario::{Owner, OwnerKind};

use crate::pods::{PodId, with_defaults};
use crate::rollouts::Set;

/// The label that identifies the pods of an owner, if its template has none.
const OWNER_LABEL: &str = "simulate.spokeshave.dev/owner";

/// An owner during a run.
#[derive(Debug)]
pub(crate) struct OwnerState {
    pub(crate) kind: OwnerKind,
    pub(crate) name: String,
    /// What its pods are made from, by the number that the timeline gives them.
    pub(crate) templates: Vec<Template>,
    /// The number of that from which they are made now.
    pub(crate) newest: u32,
    /// The ReplicaSets of a Deployment that have pods or are to have some: the newest is the last one, and the only one where nothing is rolled out.
    pub(crate) sets: Vec<Set>,
    /// How many pods it wants (Deployment, StatefulSet).
    pub(crate) replicas: u32,
    /// The number of the next pod (Deployment).
    pub(crate) next_number: u64,
    /// Pods that exist and are not terminating, by their number.
    pub(crate) active: BTreeMap<u64, PodId>,
    /// Of these, how many are ready.
    pub(crate) ready: u32,
    /// It wants one pod and had a ready one before: without one it is down.
    pub(crate) is_down: bool,
    /// It has had a ready pod since it wants one.
    pub(crate) was_up: bool,
    /// Its pods keep volumes.
    pub(crate) has_volumes: bool,
    /// The zone of the volumes of each ordinal, once it has run.
    pub(crate) zones: BTreeMap<u64, String>,
    /// The specification of pods whose volumes are in a zone, by template and zone.
    pinned: BTreeMap<(u32, String), Arc<PodSpec>>,
    /// Jobs that have lost pods and are not over, by their number.
    losers: BTreeMap<u64, Loser>,
}

/// What pods are made from.
#[derive(Debug)]
pub(crate) struct Template {
    /// Metadata that all of them share.
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Arc<PodSpec>,
    pub(crate) reference: Option<OwnerReference>,
    /// How the scheduler sees them: their position among the samples.
    pub(crate) shape: usize,
}

/// A Job that has lost a pod.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Loser {
    /// How often it has.
    times: u32,
    /// What its pods are made from.
    pub(crate) template: u32,
    /// How long its pods run once they are ready.
    pub(crate) runs_ms: Option<u64>,
    /// When a pod of it was last evicted voluntarily.
    pub(crate) moved_ms: Option<u64>,
}

/// How long the Job controller waits with the successor of the first pod that failed, in milliseconds; twice as long after each further one, up to ten minutes:
/// its documentation says six.
const FIRST_JOB_PAUSE_MS: u64 = 10_000;
const LONGEST_JOB_PAUSE_MS: u64 = 600_000;

impl OwnerState {
    pub(crate) fn new(owner: &Owner, index: usize) -> Self {
        let templates = (0..).zip(owner.templates());
        let common = pod_labels(owner);
        OwnerState {
            kind: owner.kind,
            name: owner.name.clone(),
            templates: templates
                .map(|(number, template)| Template {
                    metadata: metadata(owner, template, &common),
                    spec: Arc::new(with_defaults(template.spec.clone().unwrap_or_default())),
                    reference: reference(owner, index, number),
                    shape: 0,
                })
                .collect(),
            newest: 0,
            sets: vec![Set::default()],
            replicas: 0,
            next_number: 0,
            active: BTreeMap::new(),
            ready: 0,
            is_down: false,
            was_up: false,
            has_volumes: !owner.claims.is_empty(),
            zones: BTreeMap::new(),
            pinned: BTreeMap::new(),
            losers: BTreeMap::new(),
        }
    }

    /// The name of a pod.
    pub(crate) fn pod_name(&self, number: u64) -> String {
        pod_name(self.kind, &self.name, number)
    }

    /// The specification of a pod whose volumes are in this zone: they can be used only there.
    pub(crate) fn pinned_spec(&mut self, template: u32, zone: &str) -> Arc<PodSpec> {
        let spec = &self.templates[template as usize].spec;
        let pinned = self.pinned.entry((template, zone.to_owned())).or_insert_with(|| {
            let mut spec = PodSpec::clone(spec);
            let selector = spec.node_selector.get_or_insert_default();
            selector.insert(labels::ZONE.to_owned(), zone.to_owned());
            Arc::new(spec)
        });
        Arc::clone(pinned)
    }

    /// A Job has lost its pod: how long its controller waits with the next one.
    pub(crate) fn job_lost(
        &mut self,
        number: u64,
        template: u32,
        runs_ms: Option<u64>,
        moved_ms: Option<u64>,
    ) -> u64 {
        let before = self.losers.get(&number).map_or(0, |loser| loser.times);
        let loser = Loser {
            times: before.saturating_add(1),
            template,
            runs_ms,
            moved_ms,
        };
        self.losers.insert(number, loser);
        (FIRST_JOB_PAUSE_MS << before.min(16)).min(LONGEST_JOB_PAUSE_MS)
    }

    /// A Job is over: it makes no more pods.
    pub(crate) fn job_ends(&mut self, number: u64) {
        self.losers.remove(&number);
    }

    /// The Job that has lost a pod and is not over.
    pub(crate) fn loser(&self, number: u64) -> Option<Loser> {
        self.losers.get(&number).copied()
    }
}

/// The name of a pod of an owner. Owners of different kinds may have one name, as a Deployment and its CronJob; their pods have not. Names of pods that are made
/// one after the other sort as they were made.
pub fn pod_name(kind: OwnerKind, owner: &str, number: u64) -> String {
    match kind {
        OwnerKind::Deployment => format!("{owner}-{number:07}"),
        OwnerKind::StatefulSet => format!("{owner}-{number}"),
        OwnerKind::Job => format!("{owner}-j{number:07}"),
        OwnerKind::Bare => format!("{owner}-p{number}"),
        OwnerKind::Other => format!("{owner}-o{number:07}"),
    }
}

/// The labels of an owner's pods: by them they are found. Where its templates change, those that pods of all of them have.
pub fn pod_labels(owner: &Owner) -> BTreeMap<String, String> {
    let mut labels = labels_in(&owner.template);
    for later in &owner.later {
        let later = labels_in(later);
        labels.retain(|key, value| later.get(key) == Some(&*value));
    }
    if labels.is_empty() {
        labels.insert(OWNER_LABEL.to_owned(), owner.name.clone());
    }
    labels
}

/// The labels of the pods of an owner that are made from one of its templates. `common`: those that all of its pods have.
pub fn template_labels(
    template: &PodTemplateSpec,
    common: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut labels = common.clone();
    labels.extend(labels_in(template));
    labels
}

fn labels_in(template: &PodTemplateSpec) -> BTreeMap<String, String> {
    let metadata = template.metadata.as_ref();
    metadata
        .and_then(|metadata| metadata.labels.clone())
        .unwrap_or_default()
}

fn metadata(owner: &Owner, template: &PodTemplateSpec, common: &BTreeMap<String, String>) -> ObjectMeta {
    let metadata = template.metadata.as_ref();
    ObjectMeta {
        namespace: Some(owner.namespace.clone()),
        labels: Some(template_labels(template, common)),
        annotations: metadata.and_then(|metadata| metadata.annotations.clone()),
        ..ObjectMeta::default()
    }
}

/// The UID of what controls the pods of an owner. Each template of a Deployment has a ReplicaSet of its own.
pub fn controller_uid(kind: OwnerKind, index: usize, template: u32) -> String {
    match (kind, template) {
        (OwnerKind::Deployment, 1..) => format!("owner-{index}.{template}"),
        _ => format!("owner-{index}"),
    }
}

fn reference(owner: &Owner, index: usize, template: u32) -> Option<OwnerReference> {
    let (api_version, kind) = match owner.kind {
        // A Rollout's pods have one, too, and the full engine gives one to each pod of another controller.
        OwnerKind::Deployment | OwnerKind::Other => ("apps/v1", "ReplicaSet"),
        OwnerKind::StatefulSet => ("apps/v1", "StatefulSet"),
        OwnerKind::Job => ("batch/v1", "Job"),
        OwnerKind::Bare => return None,
    };
    Some(OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: owner.name.clone(),
        uid: controller_uid(owner.kind, index, template),
        controller: Some(true),
        block_owner_deletion: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the Job controller: `DefaultJobPodFailureBackOff` and `MaxJobPodFailureBackOff`.
    #[test]
    fn a_job_waits_ten_minutes_at_most_and_ten_seconds_again_once_it_is_over() {
        let owner = Owner {
            namespace: "shop".to_owned(),
            name: "batch".to_owned(),
            kind: OwnerKind::Job,
            template: Arc::default(),
            ready: spokeshave_scenario::Spread {
                median_ms: 0,
                p99_ms: 0,
            },
            budget: None,
            later: Vec::new(),
            claims: Vec::new(),
        };
        let mut state = OwnerState::new(&owner, 0);
        let pauses: Vec<u64> = (0..9).map(|_| state.job_lost(7, 0, None, None) / 1_000).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        assert_eq!(state.job_lost(8, 0, None, None), 10_000, "another Job");
        state.job_ends(7);
        assert!(state.loser(7).is_none());
        assert_eq!(state.job_lost(7, 0, None, None), 10_000);
    }

    #[test]
    fn owners_of_one_name_have_pods_of_different_names() {
        use std::collections::BTreeSet;
        let kinds = [
            OwnerKind::Deployment,
            OwnerKind::StatefulSet,
            OwnerKind::Job,
            OwnerKind::Bare,
            OwnerKind::Other,
        ];
        // A StatefulSet has at most a million pods.
        let numbers = [0, 7, 999_999];
        let named = |kind: OwnerKind| numbers.map(|number| pod_name(kind, "app", number));
        let names: BTreeSet<String> = kinds.into_iter().flat_map(named).collect();
        assert_eq!(names.len(), kinds.len() * numbers.len(), "{names:?}");
        assert_eq!(pod_name(OwnerKind::Deployment, "app", 7), "app-0000007");
        assert_eq!(
            pod_name(OwnerKind::StatefulSet, "app", 7),
            "app-7",
            "the ordinal, as Kubernetes has it"
        );
    }
}
