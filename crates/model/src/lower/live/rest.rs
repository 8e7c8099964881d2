//! Changes of objects that are neither pods nor nodes: NodePools, PodDisruptionBudgets, DaemonSets' newest pods, what policies read.

use super::super::{by_name, daemon_view, lower_budget, lower_daemon, lower_pool, meta_key, set_usage};
use super::{Applied, LiveSnapshot};
use crate::ordinals::Ordinals;
use crate::workload_annotations;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{DisruptionPolicy, NodePool};
use std::collections::BTreeMap;
use std::sync::Arc;

impl LiveSnapshot {
    /// In place unless another set of pods is selected.
    pub(super) fn set_budget(&mut self, budget: Arc<PodDisruptionBudget>) -> Applied {
        let key = meta_key(&budget.metadata);
        let all = &mut self.rest.pod_disruption_budgets;
        let known = all.iter_mut().find(|one| meta_key(&one.metadata) == key);
        let Some(known) = known else {
            all.push(budget);
            return Applied::Rebuilt;
        };
        let view = lower_budget(&budget);
        *known = budget;
        let budgets = &mut Arc::make_mut(&mut self.snapshot).budgets;
        let place = budgets.binary_search_by(|one| {
            (one.namespace.as_str(), one.name.as_str()).cmp(&(&view.namespace, &view.name))
        });
        match place {
            Ok(index) if budgets[index].selector == view.selector => {
                budgets[index] = view;
                Applied::InPlace
            }
            _ => Applied::Rebuilt,
        }
    }

    pub(super) fn remove_budget(&mut self, namespace: &str, name: &str) -> Applied {
        let all = &mut self.rest.pod_disruption_budgets;
        let before = all.len();
        all.retain(|one| meta_key(&one.metadata) != (namespace, name));
        if all.len() == before {
            Applied::InPlace
        } else {
            Applied::Rebuilt
        }
    }

    /// In place unless the order of NodePools changes, or which nodes one counts.
    pub(super) fn set_pool(&mut self, pool: Arc<NodePool>) -> Applied {
        let all = &mut self.rest.node_pools;
        let known = all.iter_mut().find(|one| one.name() == pool.name());
        let Some(known) = known else {
            all.push(pool);
            return Applied::Rebuilt;
        };
        *known = Arc::clone(&pool);
        let mut view = lower_pool(&pool, &self.rest);
        let pools = &mut Arc::make_mut(&mut self.snapshot).pools;
        match pools.iter_mut().find(|one| one.name == view.name) {
            Some(old) if (old.weight, old.is_static) == (view.weight, view.is_static) => {
                view.usage = std::mem::take(&mut old.usage);
                *old = view;
                Applied::InPlace
            }
            _ => Applied::Rebuilt,
        }
    }

    pub(super) fn set_policy(&mut self, policy: Arc<DisruptionPolicy>) {
        let all = &mut self.rest.disruption_policies;
        match all.iter_mut().find(|one| one.name() == policy.name()) {
            Some(known) => *known = policy,
            None => all.push(policy),
        }
        self.policies_changed();
    }

    pub(super) fn remove_policy(&mut self, name: &str) {
        self.rest.disruption_policies.retain(|one| one.name() != name);
        self.policies_changed();
    }

    fn policies_changed(&mut self) {
        let snapshot = Arc::make_mut(&mut self.snapshot);
        snapshot.disruption_policies = by_name(&self.rest.disruption_policies, DisruptionPolicy::name);
    }

    pub(super) fn set_disruptions(&mut self, disruptions: Vec<Arc<Disruption>>) {
        let snapshot = Arc::make_mut(&mut self.snapshot);
        snapshot.disruptions = by_name(&disruptions, Disruption::name);
        self.rest.disruptions = disruptions;
    }

    pub(super) fn set_owners(
        &mut self,
        annotations: BTreeMap<String, BTreeMap<String, String>>,
        stateful_sets: Arc<BTreeMap<String, Ordinals>>,
        unknown: bool,
    ) {
        self.rest.owner_annotations = annotations;
        self.rest.stateful_sets = stateful_sets;
        self.rest.owners_unknown = unknown;
        let snapshot = Arc::make_mut(&mut self.snapshot);
        snapshot.workload_annotations = workload_annotations::of(&self.rest);
        snapshot.stateful_sets = Arc::clone(&self.rest.stateful_sets);
        snapshot.owners_unknown = unknown;
    }

    /// DaemonSets whose newest pod may be another are read again.
    pub(super) fn settle_daemons(&mut self) {
        for uid in std::mem::take(&mut self.daemons_changed) {
            let sets = self.rest.daemon_sets.iter();
            let mut sets = sets.filter(|set| set.metadata.deletion_timestamp.is_none());
            let Some(set) = sets.find(|set| set.metadata.uid.as_deref() == Some(uid.as_str())) else {
                continue;
            };
            let newest = self.daemon_pods.get(&uid).and_then(|pods| pods.first());
            let newest = newest.and_then(|(_, (namespace, name))| self.find_pod(namespace, name).ok());
            let profiles = &self.rest.scheduler_profiles;
            let requests = newest.map(|index| profiles.requests(&self.snapshot.pods[index].object));
            let constraints = newest.map(|index| &self.shapes.list[self.shape_of[index] as usize].0);
            let live = constraints
                .zip(requests.as_ref())
                .map(|(constraints, requests)| (&**constraints, requests));
            let new = lower_daemon(set, live, &self.namespaces, profiles);
            let Ok(index) = self.daemons.binary_search_by(|one| one.0.cmp(&new.0)) else {
                continue;
            };
            if self.daemons[index] == new {
                continue;
            }
            let old = std::mem::replace(&mut self.daemons[index], new);
            self.observed_now.remove(&old.1);
            self.unname(&old.2);
            let new = self.daemons[index].clone();
            self.observed_now.add(&new.1);
            self.name(&new.2);
            let snapshot = Arc::make_mut(&mut self.snapshot);
            snapshot.daemons[index] = daemon_view(&new, &snapshot.resources);
        }
    }

    /// What NodePools use, from the sums.
    pub(super) fn settle_usage(&mut self) {
        let revocable = std::mem::take(&mut self.rest.revocable);
        let mut pools = std::mem::take(&mut Arc::make_mut(&mut self.snapshot).pools);
        set_usage(&mut pools, &self.usage, &revocable, || {
            |id: &str| Some(self.snapshot.node(self.shown_entry(id)?))
        });
        Arc::make_mut(&mut self.snapshot).pools = pools;
        self.rest.revocable = revocable;
    }
}
