//! Owners of pods: Deployments, StatefulSets, ReplicaSets and Jobs, of which only names and a few annotations are kept.
//!
//! Owns their stores. They are watched from the moment on at which a DisruptionPolicy hears workloads, because in most clusters none does.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::DisruptionPolicy;
use spokeshave_model::read_annotations;
use spokeshave_model::trim::identity;
use spokeshave_runtime::{Store, StoreOptions};

use crate::state::store_list::stores;

/// Keeps what identifies an object, and the annotations that policies read.
fn bare(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        annotations: read_annotations(&meta),
        ..identity(meta)
    }
}

macro_rules! trimmed {
    ($($name:ident: $kind:ident;)+) => {
        $(fn $name(_: bool) -> StoreOptions<$kind> {
            StoreOptions::trimmed(|object: &mut $kind| {
                *object = $kind {
                    metadata: bare(std::mem::take(&mut object.metadata)),
                    ..$kind::default()
                };
            })
        })+
    };
}

trimmed! {
    deployments: Deployment;
    stateful_sets: StatefulSet;
    replica_sets: ReplicaSet;
    jobs: Job;
}

stores! {
    /// The stores.
    pub(crate) struct OwnerSources {
        pub(crate) deployments: Deployment, on_demand, owners, deployments;
        pub(crate) stateful_sets: StatefulSet, on_demand, owners, stateful_sets;
        pub(crate) replica_sets: ReplicaSet, on_demand, owners, replica_sets;
        pub(crate) jobs: Job, on_demand, owners, jobs;
    }
    indexes {}
    groups {}
}

/// Whether a policy hears what workloads ask for.
pub(crate) fn hears_workloads(policy: &DisruptionPolicy) -> bool {
    policy.spec.workloads.is_some()
}

impl OwnerSources {
    /// What they ask for, by `Deployment/shop/web`.
    pub(crate) fn annotations(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut all = BTreeMap::new();
        let mut add = |kind: &str, meta: &ObjectMeta| {
            if let Some(annotations) = meta.annotations.clone() {
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                let name = meta.name.as_deref().unwrap_or_default();
                all.insert(format!("{kind}/{namespace}/{name}"), annotations);
            }
        };
        self.deployments
            .for_each(|_, one| add("Deployment", &one.metadata));
        self.stateful_sets
            .for_each(|_, one| add("StatefulSet", &one.metadata));
        self.replica_sets
            .for_each(|_, one| add("ReplicaSet", &one.metadata));
        self.jobs.for_each(|_, one| add("Job", &one.metadata));
        all
    }

    /// A policy hears them, and not all of them were read yet.
    pub(crate) fn are_unknown(&self, policies: &Store<DisruptionPolicy>) -> bool {
        let ready = [
            self.deployments.is_ready(),
            self.stateful_sets.is_ready(),
            self.replica_sets.is_ready(),
            self.jobs.is_ready(),
        ];
        let mut is_asked = false;
        policies.for_each(|_, policy| is_asked |= hears_workloads(policy));
        is_asked && ready.contains(&false)
    }
}
