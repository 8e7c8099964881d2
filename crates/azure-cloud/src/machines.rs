//! Machines as NodeClaims: what ARM says of one, in the words of core. It calls nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::{AKSNodeClass, NodeClaim, NodeClaimSpec, labels as api};
use spokeshave_model::{CapacityType, InstanceType, Offering};
use spokeshave_provider_azure::aks_machines::MACHINE_ID_ANNOTATION;
use spokeshave_provider_azure::class_hash::STAMP;
use spokeshave_provider_azure::{names, tags};
use spokeshave_provider_common::claims::{self, single_valued};

use crate::described::Machine;
use crate::options::AzureOptions;

/// How a machine was bought.
pub(crate) fn capacity_type(machine: &Machine) -> CapacityType {
    if machine.properties.priority.eq_ignore_ascii_case("spot") {
        CapacityType::Spot
    } else {
        CapacityType::OnDemand
    }
}

/// Label value of a machine's zone.
pub(crate) fn zone(machine: &Machine, options: &AzureOptions) -> String {
    let zone = machine.zones.iter().flatten().next();
    names::zone_label(&options.settings.region, zone.map(String::as_str))
}

/// The offering of a type under which a machine runs.
pub(crate) fn offering<'a>(
    instance_type: &'a InstanceType,
    zone: &str,
    capacity_type: CapacityType,
) -> Option<&'a Offering> {
    instance_type
        .offerings
        .iter()
        .find(|offering| offering.zone() == Some(zone) && offering.capacity_type() == Some(capacity_type))
}

/// When a machine was made: as ARM says, or as its tag does while ARM does not.
pub(crate) fn created_at(machine: &Machine) -> Option<Timestamp> {
    let tagged = || machine.tag(tags::CREATED_AT)?.parse().ok();
    machine.properties.time_created.or_else(tagged)
}

/// Annotations of a NodeClaim: where AKS has its machine.
pub(crate) fn annotations(machine: &Machine) -> Option<BTreeMap<String, String>> {
    let aks = machine.aks.as_ref().filter(|aks| !aks.id.is_empty())?;
    Some([(MACHINE_ID_ANNOTATION.to_owned(), aks.id.clone())].into())
}

/// A machine that exists.
pub(crate) fn as_node_claim(
    machine: &Machine,
    instance_type: Option<&InstanceType>,
    options: &AzureOptions,
    now: Timestamp,
) -> NodeClaim {
    let name = machine
        .tag(tags::NODE_CLAIM)
        .or_else(|| names::node_claim(&machine.name));
    let mut claim = NodeClaim::new(name.unwrap_or(&machine.name), NodeClaimSpec::default());
    let (zone, capacity_type) = (zone(machine, options), capacity_type(machine));
    let bought = instance_type.and_then(|it| offering(it, &zone, capacity_type));
    let requirements = instance_type.map(|it| &it.requirements).into_iter();
    let mut node_labels = single_valued(requirements.chain(bought.map(|it| &it.requirements)));
    node_labels.extend([
        (
            api::INSTANCE_TYPE.to_owned(),
            machine.properties.hardware_profile.vm_size.clone(),
        ),
        (api::ZONE.to_owned(), zone),
        (api::CAPACITY_TYPE.to_owned(), capacity_type.as_str().to_owned()),
    ]);
    if let Some(pool) = machine.tag(tags::NODE_POOL) {
        node_labels.insert(api::NODE_POOL.to_owned(), pool.to_owned());
    }
    claim.metadata.uid = machine.tag(tags::NODE_CLAIM_UID).map(str::to_owned);
    claim.metadata.annotations = annotations(machine);
    claim.metadata.labels = Some(node_labels);
    claim.metadata.creation_timestamp = created_at(machine).map(Time);
    claim.metadata.deletion_timestamp = machine.is_deleting().then_some(Time(now));
    let id = options.place.provider_id(&machine.name);
    claim.status = Some(claims::status(id, machine.image_id().to_owned(), instance_type));
    claim
}

/// The NodeClaim that a launch answers: what it asked for, with what it got.
pub(crate) fn launched(asked: &NodeClaim, class: &AKSNodeClass, got: NodeClaim) -> NodeClaim {
    let mut claim = asked.clone();
    let mut node_labels = asked.metadata.labels.clone().unwrap_or_default();
    node_labels.extend(got.metadata.labels.unwrap_or_default());
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.extend(got.metadata.annotations.unwrap_or_default());
    claim.metadata.labels = Some(node_labels);
    STAMP.copy(&class.metadata, &mut claim);
    claim.status = got.status;
    claim
}
