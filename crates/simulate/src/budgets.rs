//! PodDisruptionBudgets: whose pods each of them selects, how many of these there should be, and how many may go.
//!
//! Owns the counting, as Kubernetes' disruption controller does it. It neither evicts nor refuses anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use spokeshave_scenario::pods::OWNER_LABEL;
use spokeshave_scenario::{Budget, Owner, OwnerKind, Timeline};

use crate::owners::{OwnerState, pod_labels};

/// The PodDisruptionBudgets of a timeline, each with the owners whose pods it selects: those of single owners in their order, then the others by namespace and
/// name. None is allowed to go until they are counted. One that selects nobody's pods is left out.
pub fn budgets(timeline: &Timeline) -> Vec<(PodDisruptionBudget, Vec<u32>)> {
    let budgets = objects(timeline);
    let owners = selected(&budgets, &timeline.owners);
    let budgets = budgets.into_iter().zip(owners);
    budgets.filter(|(_, owners)| !owners.is_empty()).collect()
}

/// All of them. One of an owner gives way to one of its name, of which there can be but one.
fn objects(timeline: &Timeline) -> Vec<PodDisruptionBudget> {
    let mut taken: BTreeSet<(String, String)> = timeline.budgets.keys().cloned().collect();
    let mut all = Vec::new();
    for owner in &timeline.owners {
        let Some(amount) = &owner.budget else { continue };
        let mut name = (owner.namespace.clone(), name_of(owner));
        while !taken.insert(name.clone()) {
            name.1.push_str("-own");
        }
        let selector = LabelSelector {
            match_labels: Some(pod_labels(owner)),
            ..LabelSelector::default()
        };
        all.push(object(name, selector, Some(amount)));
    }
    let others = timeline.budgets.iter();
    all.extend(
        others.map(|(name, budget)| object(name.clone(), budget.selector.clone(), budget.amount.as_ref())),
    );
    all
}

/// Owners of different kinds may have one name.
fn name_of(owner: &Owner) -> String {
    match owner.kind {
        OwnerKind::Deployment => owner.name.clone(),
        OwnerKind::StatefulSet => format!("{}-statefulset", owner.name),
        OwnerKind::Job => format!("{}-jobs", owner.name),
        OwnerKind::Bare => format!("{}-pods", owner.name),
        OwnerKind::Other => format!("{}-others", owner.name),
    }
}

fn object(
    (namespace, name): (String, String),
    selector: LabelSelector,
    amount: Option<&Budget>,
) -> PodDisruptionBudget {
    let value = |text: &str| match text.parse() {
        Ok(number) => IntOrString::Int(number),
        Err(_) => IntOrString::String(text.to_owned()),
    };
    let (max_unavailable, min_available) = match amount {
        Some(Budget::MaxUnavailable(most)) => (Some(value(most)), None),
        Some(Budget::MinAvailable(least)) => (None, Some(value(least))),
        None => (None, None),
    };
    PodDisruptionBudget {
        metadata: ObjectMeta {
            namespace: Some(namespace),
            name: Some(name),
            ..ObjectMeta::default()
        },
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable,
            min_available,
            selector: Some(selector),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: Some(Count::default().status(0, 0, 0)),
    }
}

/// Namespace and selector of a budget.
fn whom(budget: &PodDisruptionBudget) -> Option<(&str, &LabelSelector)> {
    let selector = budget.spec.as_ref()?.selector.as_ref()?;
    Some((budget.metadata.namespace.as_deref()?, selector))
}

/// A label that all pods of a selector have, if it names one; best the one by which pods of an owner are found, which few others have.
fn mark(selector: &LabelSelector) -> Option<(&str, &str)> {
    let labels = selector.match_labels.as_ref()?;
    let own = labels.get_key_value(OWNER_LABEL);
    let (key, value) = own.or_else(|| labels.first_key_value())?;
    Some((key.as_str(), value.as_str()))
}

/// The owners whose pods each budget selects. There may be a hundred thousand owners that have a budget each: only those are compared that may fit.
fn selected(budgets: &[PodDisruptionBudget], owners: &[Owner]) -> Vec<Vec<u32>> {
    let mut by_mark: BTreeMap<(&str, Option<(&str, &str)>), Vec<(usize, &LabelSelector)>> = BTreeMap::new();
    for (place, budget) in budgets.iter().enumerate() {
        if let Some((namespace, selector)) = whom(budget) {
            let known = by_mark.entry((namespace, mark(selector))).or_default();
            known.push((place, selector));
        }
    }
    let mut selected = vec![Vec::new(); budgets.len()];
    for (id, owner) in (0..).zip(owners) {
        let labels = pod_labels(owner);
        let marks = labels
            .iter()
            .map(|(key, value)| Some((key.as_str(), value.as_str())));
        for mark in marks.chain([None]) {
            let near = by_mark.get(&(owner.namespace.as_str(), mark));
            for (place, selector) in near.into_iter().flatten() {
                if spokeshave_api::selects(selector, &labels) {
                    selected[*place].push(id);
                }
            }
        }
    }
    selected
}

/// Whether a budget selects pods of a DaemonSet.
fn selects_daemons(budget: &PodDisruptionBudget, daemon_sets: &[Arc<DaemonSet>]) -> bool {
    let Some((namespace, selector)) = whom(budget) else {
        return false;
    };
    daemon_sets.iter().any(|set| {
        let metadata = set.spec.template.metadata.as_ref();
        let labels = metadata.and_then(|metadata| metadata.labels.clone());
        let is_near = set.metadata.namespace.as_deref().unwrap_or("default") == namespace;
        is_near && spokeshave_api::selects(selector, &labels.unwrap_or_default())
    })
}

/// Pods that a budget counts, of an owner or of all that it selects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    /// As many as controllers with a scale want.
    scale: i64,
    /// As many as there are, without those that stop.
    there: i64,
    /// Of these, how many have a controller without a scale.
    unscaled: i64,
    /// Of these, how many are ready.
    ready: i64,
}

impl Count {
    fn of(owner: &OwnerState) -> Self {
        let there = owner.active.len() as i64;
        let (scale, unscaled) = match owner.kind {
            OwnerKind::Deployment | OwnerKind::StatefulSet => (i64::from(owner.replicas), 0),
            OwnerKind::Other => (there, 0),
            OwnerKind::Job => (0, there),
            // They have no controller, and are counted nowhere but among the ready ones.
            OwnerKind::Bare => (0, 0),
        };
        Count {
            scale,
            there,
            unscaled,
            ready: i64::from(owner.ready),
        }
    }

    /// An owner that was counted like this is counted like that.
    fn exchange(&mut self, before: Count, now: Count) {
        self.scale += now.scale - before.scale;
        self.there += now.there - before.there;
        self.unscaled += now.unscaled - before.unscaled;
        self.ready += now.ready - before.ready;
    }

    /// How many pods there should be, and how many have to be ready; none where a scale is asked for and a controller has none.
    fn expectations(&self, spec: &PodDisruptionBudgetSpec, has_daemons: bool) -> Option<(i64, i64)> {
        let scale = (self.unscaled == 0 && !has_daemons).then_some(self.scale);
        match (&spec.max_unavailable, &spec.min_available) {
            (Some(most), _) => {
                let scale = scale?;
                Some((scale, (scale - share(most, scale)?).max(0)))
            }
            (None, Some(IntOrString::Int(least))) => Some((self.there, i64::from(*least))),
            (None, Some(percentage)) => {
                let scale = scale?;
                Some((scale, share(percentage, scale)?))
            }
            // A budget that asks for nothing expects nobody.
            (None, None) => Some((0, 0)),
        }
    }

    fn status(&self, expected: i64, desired: i64, allowed: i64) -> PodDisruptionBudgetStatus {
        let number = |number: i64| Some(i32::try_from(number).unwrap_or(i32::MAX));
        PodDisruptionBudgetStatus {
            current_healthy: number(self.ready),
            desired_healthy: number(desired),
            expected_pods: number(expected),
            disruptions_allowed: number(allowed),
            ..PodDisruptionBudgetStatus::default()
        }
    }
}

/// A number of pods, or a percentage of those expected: Kubernetes rounds it up, whether so many may be away or have to stay. None where it is neither.
fn share(value: &IntOrString, expected: i64) -> Option<i64> {
    match value {
        IntOrString::Int(number) => Some(i64::from(*number)),
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            Some(expected.saturating_mul(percent).saturating_add(99) / 100)
        }
    }
}

/// A budget during a run.
#[derive(Debug)]
struct BudgetState {
    /// Its status says what was allowed when that last changed.
    object: Arc<PodDisruptionBudget>,
    /// It selects pods of DaemonSets, which have no scale. Nobody evicts them, and where no scale is asked for they are not counted.
    has_daemons: bool,
    count: Count,
}

impl BudgetState {
    fn status(&self) -> PodDisruptionBudgetStatus {
        let spec = self.object.spec.as_ref();
        let expectations = spec.and_then(|spec| self.count.expectations(spec, self.has_daemons));
        let (expected, desired) = expectations.unwrap_or_default();
        let allowed = if expected == 0 {
            0
        } else {
            (self.count.ready - desired).max(0)
        };
        self.count.status(expected, desired, allowed)
    }

    fn allowed(&self) -> i32 {
        let status = self.object.status.as_ref();
        let allowed = status.and_then(|status| status.disruptions_allowed);
        allowed.unwrap_or(0)
    }

    /// Writes what the budget allows into its status. True when that has changed.
    fn refresh(&mut self) -> bool {
        let status = self.status();
        let has_changed = status.disruptions_allowed != Some(self.allowed());
        if has_changed {
            Arc::make_mut(&mut self.object).status = Some(status);
        }
        has_changed
    }
}

/// The budgets of a run.
#[derive(Debug)]
pub(crate) struct Budgets {
    budgets: Vec<BudgetState>,
    /// By owner, the budgets that select its pods: labels of pods do not change.
    of_owners: Vec<Vec<u32>>,
    /// What they have counted of each owner.
    counted: Vec<Count>,
}

impl Budgets {
    pub(crate) fn new(timeline: &Timeline, daemon_sets: &[Arc<DaemonSet>]) -> Self {
        let mut of_owners = vec![Vec::new(); timeline.owners.len()];
        let mut all = Vec::new();
        for (id, (budget, owners)) in (0..).zip(budgets(timeline)) {
            for owner in owners {
                of_owners[owner as usize].push(id);
            }
            all.push(BudgetState {
                has_daemons: selects_daemons(&budget, daemon_sets),
                object: Arc::new(budget),
                count: Count::default(),
            });
        }
        Budgets {
            budgets: all,
            counted: vec![Count::default(); of_owners.len()],
            of_owners,
        }
    }

    /// Counts an owner anew, and tells which budgets allow something else since.
    pub(crate) fn count(&mut self, owner: u32, state: &OwnerState) -> Vec<u32> {
        let mut changed = Vec::new();
        let over = &self.of_owners[owner as usize];
        if over.is_empty() {
            return changed;
        }
        let now = Count::of(state);
        let before = std::mem::replace(&mut self.counted[owner as usize], now);
        if now == before {
            return changed;
        }
        for id in over {
            let budget = &mut self.budgets[*id as usize];
            budget.count.exchange(before, now);
            if budget.refresh() {
                changed.push(*id);
            }
        }
        changed
    }

    /// Whether one more pod of an owner may be evicted. Those that several budgets select may never be: the Eviction API does not support it.
    pub(crate) fn allow(&self, owner: u32) -> bool {
        match self.of_owners[owner as usize][..] {
            [] => true,
            [only] => self.budgets[only as usize].allowed() > 0,
            _ => false,
        }
    }

    /// One of them, as it is seen by whoever reads what it allows.
    pub(crate) fn object(&self, budget: u32) -> Arc<PodDisruptionBudget> {
        Arc::clone(&self.budgets[budget as usize].object)
    }

    /// All of them, as they are seen by whoever reads what they allow.
    pub(crate) fn objects(&self) -> Vec<Arc<PodDisruptionBudget>> {
        let objects = self.budgets.iter().map(|budget| Arc::clone(&budget.object));
        objects.collect()
    }

    /// All of them with what was counted last.
    pub(crate) fn counted_objects(&self) -> Vec<Arc<PodDisruptionBudget>> {
        let counted = self.budgets.iter().map(|budget| {
            Arc::new(PodDisruptionBudget {
                status: Some(budget.status()),
                ..PodDisruptionBudget::clone(&budget.object)
            })
        });
        counted.collect()
    }
}

#[cfg(test)]
mod tests;
