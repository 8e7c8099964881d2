//! What pods of owners and DaemonSets look like before there are any: one sample of each shape.
//!
//! Owns the reading of DaemonSets. It makes no pod that runs.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use spokeshave_model::Pod;

use crate::owners::{OwnerState, Template};
use crate::pods::{created, with_defaults};

/// A DaemonSet during a run.
#[derive(Debug)]
pub(crate) struct DaemonState {
    pub(crate) name: String,
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Arc<PodSpec>,
    pub(crate) reference: OwnerReference,
}

impl DaemonState {
    pub(crate) fn new(daemon_set: &DaemonSet) -> Self {
        let template = &daemon_set.spec.template;
        let own = template.metadata.clone().unwrap_or_default();
        let name = daemon_set.metadata.name.clone().unwrap_or_default();
        DaemonState {
            metadata: ObjectMeta {
                namespace: daemon_set.metadata.namespace.clone(),
                labels: own.labels,
                annotations: own.annotations,
                ..ObjectMeta::default()
            },
            spec: Arc::new(with_defaults(template.spec.clone().unwrap_or_default())),
            reference: OwnerReference {
                api_version: "apps/v1".to_owned(),
                kind: "DaemonSet".to_owned(),
                uid: daemon_set.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                name: name.clone(),
                block_owner_deletion: None,
            },
            name,
        }
    }
}

/// One pod of each shape: of the first template of each owner, then of each DaemonSet, and then of the templates that owners have later, which learn here where
/// their samples are.
pub(crate) fn samples(owners: &mut [OwnerState], daemons: &[DaemonState], now: Timestamp) -> Vec<Pod> {
    let mut next = owners.len() + daemons.len();
    for (index, owner) in owners.iter_mut().enumerate() {
        for (number, template) in owner.templates.iter_mut().enumerate() {
            template.shape = match number {
                0 => index,
                _ => {
                    next += 1;
                    next - 1
                }
            };
        }
    }
    let sample = |template: &Template| {
        let (metadata, reference) = (&template.metadata, template.reference.as_ref());
        created(
            metadata,
            &template.spec,
            String::new(),
            String::new(),
            reference,
            now,
        )
    };
    let first = owners.iter().flat_map(|owner| owner.templates.first());
    let later = owners.iter().flat_map(|owner| owner.templates.iter().skip(1));
    let (first, later) = (first.map(sample), later.map(sample));
    let of_daemons = daemons.iter().map(|daemon| {
        let reference = Some(&daemon.reference);
        created(
            &daemon.metadata,
            &daemon.spec,
            String::new(),
            String::new(),
            reference,
            now,
        )
    });
    first.chain(of_daemons).chain(later).collect()
}
