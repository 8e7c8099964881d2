//! What default topology spread looks at besides pods (P §6.15): Services and the controllers of pods.
//!
//! Owns their stores. They are watched only when the operator was given constraints, because in most clusters nobody needs them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use spokeshave_model::default_spread::{DefaultSpread, controller_key};
use spokeshave_runtime::Store;

/// The stores.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpreadSources {
    pub(crate) services: Store<Service>,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) stateful_sets: Store<StatefulSet>,
    pub(crate) replication_controllers: Store<ReplicationController>,
}

impl SpreadSources {
    /// Completes when every store has been filled once.
    pub(crate) async fn ready(&self) {
        self.services.ready().await;
        self.replica_sets.ready().await;
        self.stateful_sets.ready().await;
        self.replication_controllers.ready().await;
    }

    /// How often any of them has changed.
    pub(crate) fn changes(&self) -> u64 {
        let changes = [
            self.services.changes(),
            self.replica_sets.changes(),
            self.stateful_sets.changes(),
            self.replication_controllers.changes(),
        ];
        changes
            .iter()
            .fold(0, |sum: u64, changes| sum.wrapping_add(*changes))
    }

    /// What pods without topology spread get.
    pub(crate) fn default_spread(&self, constraints: &[TopologySpreadConstraint]) -> DefaultSpread {
        if constraints.is_empty() {
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
            constraints: constraints.to_vec(),
            services,
            controllers,
        }
    }
}
