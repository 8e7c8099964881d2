//! What default topology spread looks at besides pods (P §6.15): Services and the controllers of pods, of which only names and selectors are kept.
//!
//! Owns their stores. They are watched only when the operator was given constraints, because in most clusters nobody needs them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use spokeshave_model::default_spread::{DefaultSpread, controller_key};
use spokeshave_model::scheduler_profiles::SchedulerProfiles;
use spokeshave_model::trim;
use spokeshave_runtime::StoreOptions;

use crate::state::store_list::stores;

stores! {
    /// The stores.
    pub(crate) struct SpreadSources {
        pub(crate) services: Service, spread, others, |_| StoreOptions::trimmed(trim::service);
        pub(crate) replica_sets: ReplicaSet, spread, others, |_| StoreOptions::trimmed(trim::replica_set);
        pub(crate) stateful_sets: StatefulSet, spread, others, |_| StoreOptions::trimmed(trim::stateful_set);
        pub(crate) replication_controllers: ReplicationController, spread, others, |_| StoreOptions::trimmed(trim::replication_controller);
    }
    indexes {}
    groups {}
}

impl SpreadSources {
    /// What the selectors of default constraints are deduced from; nothing where there are none.
    pub(crate) fn default_spread(&self, profiles: &SchedulerProfiles) -> DefaultSpread {
        if !profiles.have_default_constraints() {
            return DefaultSpread::default();
        }
        let mut controllers = BTreeMap::new();
        let mut add = |kind: &str, meta: &ObjectMeta, selector: LabelSelector| {
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            let name = meta.name.as_deref().unwrap_or_default();
            controllers.insert(controller_key(kind, namespace, name), selector);
        };
        self.replica_sets.for_each(|_, set| {
            add("ReplicaSet", &set.metadata, set.spec.selector.clone());
        });
        self.stateful_sets.for_each(|_, set| {
            add("StatefulSet", &set.metadata, set.spec.selector.clone());
        });
        self.replication_controllers.for_each(|_, controller| {
            let selector = LabelSelector {
                match_labels: controller.spec.as_ref().and_then(|spec| spec.selector.clone()),
                ..LabelSelector::default()
            };
            add("ReplicationController", &controller.metadata, selector);
        });
        let services: Vec<Arc<Service>> = self.services.snapshot();
        DefaultSpread {
            services,
            controllers,
        }
    }
}
