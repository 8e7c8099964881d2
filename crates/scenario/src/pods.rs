//! What generated and imported pods look like to a scheduler.
//!
//! Owns the making of pod templates and claims from shapes. It knows nothing about time.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, PersistentVolumeClaimSpec, PodSpec, PodTemplateSpec,
    ResourceRequirements, TopologySpreadConstraint, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use spokeshave_api::{Quantity, WireForm};

use crate::workload::Shape;

/// The label by which pods of an owner are found.
pub const OWNER_LABEL: &str = "app";
/// The resource of GPUs.
pub const GPU: &str = "nvidia.com/gpu";
/// The StorageClass of zonal volumes; claims of it wait for their pod.
pub const ZONAL_CLASS: &str = "zonal";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// Whether pods like this have scheduling gates: no scheduler looks at them before some controller has taken these off.
#[must_use]
pub fn has_gates(spec: &PodSpec) -> bool {
    let gates = spec.scheduling_gates.as_ref();
    gates.is_some_and(|gates| !gates.is_empty())
}

/// The template of an owner; `turn` chooses among several sizes.
#[must_use]
pub fn template(owner: &str, shape: &Shape, turn: usize) -> PodTemplateSpec {
    let in_turn = |sizes: &[i64]| match sizes {
        [] => 0,
        sizes => sizes[turn % sizes.len()],
    };
    let requests = requests(
        in_turn(&shape.cpu_milli),
        in_turn(&shape.memory_bytes),
        shape.gpus,
    );
    let mut labels = shape.labels.clone();
    labels.insert(OWNER_LABEL.to_owned(), owner.to_owned());
    let selector = LabelSelector {
        match_labels: Some(BTreeMap::from([(OWNER_LABEL.to_owned(), owner.to_owned())])),
        ..LabelSelector::default()
    };
    let spread = |key: &str| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.to_owned(),
        when_unsatisfiable: "DoNotSchedule".to_owned(),
        label_selector: Some(selector.clone()),
        ..TopologySpreadConstraint::default()
    };
    let mut spec = shape.pod.clone();
    spec.containers = vec![container(requests)];
    let mut constraints = spec.topology_spread_constraints.take().unwrap_or_default();
    if shape.spread_zones {
        constraints.push(spread(ZONE));
    }
    if shape.spread_hosts {
        constraints.push(spread(HOST));
    }
    spec.topology_spread_constraints = (!constraints.is_empty()).then_some(constraints);
    let annotations = shape
        .do_not_disrupt
        .then(|| BTreeMap::from([(DO_NOT_DISRUPT.to_owned(), "true".to_owned())]));
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations,
            ..ObjectMeta::default()
        }),
        spec: Some(spec),
    }
}

/// Requests as a container writes them; what is 0 is left out.
#[must_use]
pub fn requests(cpu_milli: i64, memory_bytes: i64, gpus: i64) -> BTreeMap<String, WireQuantity> {
    let amounts = [
        ("cpu", Quantity::from_milli(cpu_milli)),
        ("memory", Quantity::from_units(memory_bytes)),
        (GPU, Quantity::from_units(gpus)),
    ];
    let some = amounts.into_iter().filter(|(_, amount)| amount.milli() > 0);
    some.map(|(name, amount)| (name.to_owned(), amount.to_wire()))
        .collect()
}

/// The one container of a pod.
#[must_use]
pub fn container(requests: BTreeMap<String, WireQuantity>) -> Container {
    // What is requested of a GPU has to be its limit, too.
    let limits: BTreeMap<String, WireQuantity> = requests
        .iter()
        .filter(|(name, _)| name.contains('/'))
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    Container {
        name: "main".to_owned(),
        image: Some("registry.k8s.io/pause:3.10".to_owned()),
        resources: Some(ResourceRequirements {
            requests: Some(requests),
            limits: (!limits.is_empty()).then_some(limits),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    }
}

/// A volume that is made where its pod first runs.
#[must_use]
pub fn zonal_claim() -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some("data".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: Some(ZONAL_CLASS.to_owned()),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([(
                    "storage".to_owned(),
                    WireQuantity("10Gi".to_owned()),
                )])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}
