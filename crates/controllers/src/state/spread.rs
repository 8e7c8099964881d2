//! What default topology spread looks at besides pods (P §6.15): Services and the controllers of pods, of which only names and selectors are kept.
//!
//! Owns their stores. They are watched only when the operator was given constraints, because in most clusters nobody needs them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    ReplicationController, ReplicationControllerSpec, Service, ServiceSpec, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use spokeshave_model::default_spread::{DefaultSpread, controller_key};
use spokeshave_model::trim::identity;
use spokeshave_runtime::StoreOptions;

use crate::state::store_list::stores;

/// Of each kind what identifies an object, and a specification with nothing but its selector: the rest changes with every pod that comes or goes.
macro_rules! selecting {
    ($($name:ident: $kind:ident, |$whole:ident| $spec:expr;)+) => {
        $(fn $name(_: bool) -> StoreOptions<$kind> {
            StoreOptions::trimmed(|object: &mut $kind| {
                let $whole = std::mem::take(object);
                *object = $kind {
                    spec: $spec,
                    metadata: identity($whole.metadata),
                    ..$kind::default()
                };
            })
        })+
    };
}

selecting! {
    services: Service, |whole| whole.spec.map(|spec| ServiceSpec {
        selector: spec.selector,
        ..ServiceSpec::default()
    });
    replica_sets: ReplicaSet, |whole| ReplicaSetSpec {
        selector: whole.spec.selector,
        ..ReplicaSetSpec::default()
    };
    stateful_sets: StatefulSet, |whole| StatefulSetSpec {
        selector: whole.spec.selector,
        ..StatefulSetSpec::default()
    };
    replication_controllers: ReplicationController, |whole| whole.spec.map(|spec| ReplicationControllerSpec {
        selector: spec.selector,
        ..ReplicationControllerSpec::default()
    });
}

stores! {
    /// The stores.
    pub(crate) struct SpreadSources {
        pub(crate) services: Service, spread, others, services;
        pub(crate) replica_sets: ReplicaSet, spread, others, replica_sets;
        pub(crate) stateful_sets: StatefulSet, spread, others, stateful_sets;
        pub(crate) replication_controllers: ReplicationController, spread, others, replication_controllers;
    }
    indexes {}
    groups {}
}

impl SpreadSources {
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
