//! Workload controllers: how many pods each owner has, which of them go when there are too many, and what its PodDisruptionBudget allows.
//!
//! Owns the counting. It never creates or deletes a pod: the engine does what follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use spokeshave_model::labels;
use spokeshave_scenario::{Budget, Owner, OwnerKind};

use crate::pods::{PodId, with_defaults};

/// The label that identifies the pods of an owner, if its template has none.
const OWNER_LABEL: &str = "simulate.spokeshave.dev/owner";

/// An owner during a run.
#[derive(Debug)]
pub(crate) struct OwnerState {
    pub(crate) kind: OwnerKind,
    pub(crate) name: String,
    /// Metadata that all its pods share.
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Arc<PodSpec>,
    pub(crate) reference: Option<OwnerReference>,
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
    /// The specification of pods whose volumes are in a zone, by zone.
    pinned: BTreeMap<String, Arc<PodSpec>>,
    /// Its budget, with what it allows now.
    pub(crate) budget: Option<Arc<PodDisruptionBudget>>,
}

impl OwnerState {
    pub(crate) fn new(owner: &Owner, index: usize) -> Self {
        let template = owner.template.metadata.clone().unwrap_or_default();
        let labels = pod_labels(owner);
        let budget = budget(owner).map(Arc::new);
        OwnerState {
            kind: owner.kind,
            name: owner.name.clone(),
            metadata: ObjectMeta {
                namespace: Some(owner.namespace.clone()),
                labels: Some(labels),
                annotations: template.annotations,
                ..ObjectMeta::default()
            },
            spec: Arc::new(with_defaults(owner.template.spec.clone().unwrap_or_default())),
            reference: reference(owner, index),
            replicas: 0,
            next_number: 0,
            active: BTreeMap::new(),
            ready: 0,
            is_down: false,
            was_up: false,
            has_volumes: !owner.claims.is_empty(),
            zones: BTreeMap::new(),
            pinned: BTreeMap::new(),
            budget,
        }
    }

    /// The name of a pod.
    pub(crate) fn pod_name(&self, number: u64) -> String {
        pod_name(self.kind, &self.name, number)
    }

    /// The specification of a pod whose volumes are in this zone: they can be used only there.
    pub(crate) fn pinned_spec(&mut self, zone: &str) -> Arc<PodSpec> {
        let spec = &self.spec;
        let pinned = self.pinned.entry(zone.to_owned()).or_insert_with(|| {
            let mut spec = PodSpec::clone(spec);
            let selector = spec.node_selector.get_or_insert_default();
            selector.insert(labels::ZONE.to_owned(), zone.to_owned());
            Arc::new(spec)
        });
        Arc::clone(pinned)
    }

    /// How many disruptions the budget allows now; `None` without a budget.
    pub(crate) fn disruptions_allowed(&self) -> Option<i32> {
        let spec = self.budget.as_ref()?.spec.as_ref()?;
        let expected = match self.kind {
            OwnerKind::Deployment | OwnerKind::StatefulSet => i64::from(self.replicas),
            OwnerKind::Job | OwnerKind::Bare => match (&spec.max_unavailable, &spec.min_available) {
                (None, Some(IntOrString::Int(_))) => self.active.len() as i64,
                // Nobody says how many there are to be: a Job has no scale, and pods without a controller are part of nothing.
                _ => return Some(0),
            },
        };
        let desired = match (&spec.max_unavailable, &spec.min_available) {
            (Some(most), _) => (expected - share(most, expected)).max(0),
            (None, least) => share(least.as_ref()?, expected),
        };
        let allowed = (i64::from(self.ready) - desired).max(0);
        Some(if expected == 0 {
            0
        } else {
            i32::try_from(allowed).unwrap_or(i32::MAX)
        })
    }

    /// Writes what the budget allows into its status. True when that has changed.
    pub(crate) fn refresh_budget(&mut self) -> bool {
        let Some(allowed) = self.disruptions_allowed() else {
            return false;
        };
        let Some(budget) = &mut self.budget else {
            return false;
        };
        let known = budget
            .status
            .as_ref()
            .and_then(|status| status.disruptions_allowed);
        if known == Some(allowed) {
            return false;
        }
        Arc::make_mut(budget)
            .status
            .get_or_insert_default()
            .disruptions_allowed = Some(allowed);
        true
    }
}

/// A number of pods, or a percentage of those expected: Kubernetes rounds it up, whether so many may be away or have to stay.
fn share(value: &IntOrString, expected: i64) -> i64 {
    match value {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            expected.saturating_mul(percent).saturating_add(99) / 100
        }
    }
}

/// The name of a pod of an owner. Owners of different kinds may have one name, as a Deployment and its CronJob; their pods have not. Names of pods of
/// Deployments and Jobs sort as they were made.
pub fn pod_name(kind: OwnerKind, owner: &str, number: u64) -> String {
    match kind {
        OwnerKind::Deployment => format!("{owner}-{number:07}"),
        OwnerKind::StatefulSet => format!("{owner}-{number}"),
        OwnerKind::Job => format!("{owner}-j{number:07}"),
        OwnerKind::Bare => format!("{owner}-p{number}"),
    }
}

/// The labels of an owner's pods: by them they are found.
pub fn pod_labels(owner: &Owner) -> BTreeMap<String, String> {
    let template = owner.template.metadata.as_ref();
    let mut labels = template
        .and_then(|template| template.labels.clone())
        .unwrap_or_default();
    if labels.is_empty() {
        labels.insert(OWNER_LABEL.to_owned(), owner.name.clone());
    }
    labels
}

/// Owners of different kinds may have one name.
fn budget_name(owner: &Owner) -> String {
    match owner.kind {
        OwnerKind::Deployment => owner.name.clone(),
        OwnerKind::StatefulSet => format!("{}-statefulset", owner.name),
        OwnerKind::Job => format!("{}-jobs", owner.name),
        OwnerKind::Bare => format!("{}-pods", owner.name),
    }
}

/// The PodDisruptionBudget over an owner's pods; none is allowed to go until they are counted.
pub fn budget(owner: &Owner) -> Option<PodDisruptionBudget> {
    let labels = pod_labels(owner);
    let value = |text: &str| match text.parse() {
        Ok(number) => IntOrString::Int(number),
        Err(_) => IntOrString::String(text.to_owned()),
    };
    let (max_unavailable, min_available) = match owner.budget.as_ref()? {
        Budget::MaxUnavailable(most) => (Some(value(most)), None),
        Budget::MinAvailable(least) => (None, Some(value(least))),
    };
    Some(PodDisruptionBudget {
        metadata: ObjectMeta {
            namespace: Some(owner.namespace.clone()),
            name: Some(budget_name(owner)),
            ..ObjectMeta::default()
        },
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable,
            min_available,
            selector: Some(LabelSelector {
                match_labels: Some(labels),
                ..LabelSelector::default()
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: Some(PodDisruptionBudgetStatus {
            disruptions_allowed: Some(0),
            ..PodDisruptionBudgetStatus::default()
        }),
    })
}

fn reference(owner: &Owner, index: usize) -> Option<OwnerReference> {
    let (api_version, kind) = match owner.kind {
        OwnerKind::Deployment => ("apps/v1", "ReplicaSet"),
        OwnerKind::StatefulSet => ("apps/v1", "StatefulSet"),
        OwnerKind::Job => ("batch/v1", "Job"),
        OwnerKind::Bare => return None,
    };
    Some(OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: owner.name.clone(),
        uid: format!("owner-{index}"),
        controller: Some(true),
        block_owner_deletion: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_scenario::Spread;

    fn owner(budget: Budget, replicas: u32, ready: u32) -> OwnerState {
        let owner = Owner {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            kind: OwnerKind::Deployment,
            template: Arc::default(),
            ready: Spread {
                median_ms: 0,
                p99_ms: 0,
            },
            budget: Some(budget),
            claims: Vec::new(),
        };
        let mut state = OwnerState::new(&owner, 0);
        state.replicas = replicas;
        state.ready = ready;
        state
    }

    /// Of this kind, with so many pods, all of them ready.
    fn unscaled(kind: OwnerKind, budget: Budget, pods: u32) -> OwnerState {
        let mut state = owner(budget, 0, pods);
        state.kind = kind;
        let ids = (0..pods).map(|slot| (u64::from(slot), PodId { slot, life: 0 }));
        state.active = ids.collect();
        state
    }

    fn most(text: &str) -> Budget {
        Budget::MaxUnavailable(text.to_owned())
    }

    #[test]
    fn a_budget_allows_as_kubernetes_counts() {
        assert_eq!(owner(most("2"), 10, 10).disruptions_allowed(), Some(2));
        assert_eq!(owner(most("2"), 10, 9).disruptions_allowed(), Some(1));
        assert_eq!(owner(most("2"), 10, 7).disruptions_allowed(), Some(0));
        assert_eq!(
            owner(most("25%"), 10, 10).disruptions_allowed(),
            Some(3),
            "rounded up"
        );
        assert_eq!(
            owner(most("25%"), 0, 0).disruptions_allowed(),
            Some(0),
            "nobody is there"
        );
        let mut web = owner(most("1"), 2, 2);
        assert!(web.refresh_budget());
        assert!(!web.refresh_budget(), "nothing has changed since");
        web.ready = 1;
        assert!(web.refresh_budget());
    }

    #[test]
    fn owners_of_one_name_have_pods_of_different_names() {
        use std::collections::BTreeSet;
        let kinds = [
            OwnerKind::Deployment,
            OwnerKind::StatefulSet,
            OwnerKind::Job,
            OwnerKind::Bare,
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

    /// Of Jobs and bare pods only a number that has to stay can be counted.
    #[test]
    fn a_budget_of_pods_that_nobody_scales_counts_a_minimum_only() {
        for kind in [OwnerKind::Job, OwnerKind::Bare] {
            let least = |text: &str| Budget::MinAvailable(text.to_owned());
            for (budget, pods, allowed) in [
                (most("1"), 1, 0),
                (most("100%"), 4, 0),
                (least("0%"), 4, 0),
                (least("1"), 2, 1),
                (least("0"), 3, 3),
                (least("0"), 0, 0),
            ] {
                let case = format!("{kind:?}: {budget:?} of {pods}");
                let owner = unscaled(kind, budget, pods);
                assert_eq!(owner.disruptions_allowed(), Some(allowed), "{case}");
            }
        }
    }

    /// What has to stay is not what may go, taken from the whole: both are rounded up, and a number stays what it is when the replicas change.
    #[test]
    fn what_has_to_stay_is_rounded_up_as_well() {
        for (least, replicas, allowed) in [
            ("50%", 1, 0),
            ("50%", 3, 1),
            ("51%", 3, 1),
            ("50%", 4, 2),
            ("5", 40, 35),
            ("5", 7, 2),
            ("5", 4, 0),
            ("0", 4, 4),
        ] {
            let budget = Budget::MinAvailable(least.to_owned());
            let web = owner(budget, replicas, replicas);
            assert_eq!(web.disruptions_allowed(), Some(allowed), "{least} of {replicas}");
        }
    }
}
