//! Owners of pods: Deployments, StatefulSets, ReplicaSets and Jobs, of which only names and a few annotations are kept, and of StatefulSets which members they want.
//!
//! Owns their stores. They are watched from the moment on at which a DisruptionPolicy hears workloads, because in most clusters none does.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption_policy::StatefulSetMoves;
use spokeshave_model::trim::identity;
use spokeshave_model::{Ordinals, read_annotations};
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
    replica_sets: ReplicaSet;
    jobs: Job;
}

fn stateful_sets(_: bool) -> StoreOptions<StatefulSet> {
    StoreOptions::trimmed(|object: &mut StatefulSet| {
        let spec = std::mem::take(&mut object.spec);
        *object = StatefulSet {
            metadata: bare(std::mem::take(&mut object.metadata)),
            spec: StatefulSetSpec {
                ordinals: spec.ordinals,
                replicas: spec.replicas,
                ..StatefulSetSpec::default()
            },
            ..StatefulSet::default()
        };
    })
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

/// `Deployment/shop/web`.
fn key(kind: &str, meta: &ObjectMeta) -> String {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let name = meta.name.as_deref().unwrap_or_default();
    format!("{kind}/{namespace}/{name}")
}

/// Whether a policy hears what workloads ask for.
pub(crate) fn hears_workloads(policy: &DisruptionPolicy) -> bool {
    policy.spec.workloads.is_some()
}

fn moves_one_at_a_time(policy: &DisruptionPolicy) -> bool {
    let rules = policy.spec.workloads.as_ref();
    let sets = rules.and_then(|rules| rules.stateful_sets.as_ref());
    sets == Some(&StatefulSetMoves::OneAtATime)
}

impl OwnerSources {
    /// What they ask for, by `Deployment/shop/web`.
    pub(crate) fn annotations(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut all = BTreeMap::new();
        let mut add = |kind: &str, meta: &ObjectMeta| {
            if let Some(annotations) = meta.annotations.clone() {
                all.insert(key(kind, meta), annotations);
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

    /// Which members StatefulSets want, by `StatefulSet/shop/db`; none where no policy moves them one at a time.
    pub(crate) fn ordinals(&self, policies: &Store<DisruptionPolicy>) -> Arc<BTreeMap<String, Ordinals>> {
        let mut is_asked = false;
        policies.for_each(|_, policy| is_asked |= moves_one_at_a_time(policy));
        let mut all = BTreeMap::new();
        if is_asked {
            self.stateful_sets.for_each(|_, one| {
                all.insert(key("StatefulSet", &one.metadata), Ordinals::of(one));
            });
        }
        Arc::new(all)
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
