//! Instances as NodeClaims (A6): what EC2 says of an instance, and what a launch has made, in the words of core.
//!
//! Owns provider IDs, labels and annotations. It calls nothing.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::{EC2NodeClass, NodeClaim, NodeClaimSpec, labels as api};
use spokeshave_model::{CapacityType, InstanceType, Offering};
use spokeshave_provider_common::claims;

use crate::class_hash::STAMP;
use crate::fleet::Launched;
use crate::launch::Template;
use crate::replies::Instance;
use crate::{labels, profiles, tags};

/// The clocks of EC2 and of the operator may differ by so much.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);

/// States in which an instance still exists.
pub const LIVE_STATES: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];

/// `aws:///<zone>/<instance ID>`.
#[must_use]
pub fn provider_id(zone: &str, instance_id: &str) -> String {
    format!("aws:///{zone}/{instance_id}")
}

/// The instance of a provider ID; `None` for what is not one of AWS.
#[must_use]
pub fn instance_id(provider_id: &str) -> Option<&str> {
    let (zone, id) = provider_id.strip_prefix("aws:///")?.split_once('/')?;
    let is_id = id
        .strip_prefix("i-")
        .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|it| it.is_ascii_alphanumeric()));
    (!zone.is_empty() && is_id).then_some(id)
}

/// The zone of a provider ID.
#[must_use]
pub fn zone(provider_id: &str) -> Option<&str> {
    let (zone, _) = provider_id.strip_prefix("aws:///")?.split_once('/')?;
    Some(zone)
}

/// How an instance was bought.
#[must_use]
pub fn capacity_type(instance: &Instance) -> CapacityType {
    let is_reserved = instance.capacity_reservation_id.is_some()
        && instance.capacity_reservation_preference == "capacity-reservations-only";
    if instance.spot_request_id.is_some() || instance.lifecycle == "spot" {
        CapacityType::Spot
    } else if is_reserved || instance.lifecycle == "capacity-block" {
        CapacityType::Reserved
    } else {
        CapacityType::OnDemand
    }
}

/// Whether an instance is one of this cluster's nodes. EC2 was asked for these only; what is deleted is checked again (A14.4).
#[must_use]
pub fn is_ours(instance: &Instance, cluster_name: &str) -> bool {
    let tag = |key: &str| instance.tags.get(key);
    tag(tags::CLUSTER_NAME).is_some_and(|cluster| cluster == cluster_name)
        && tag(tags::NODE_POOL).is_some()
        && tag(tags::NODE_CLASS).is_some()
        && LIVE_STATES.contains(&instance.state.as_str())
}

/// The capacity reservation that an instance was bought from. One that an open reservation took in by itself is on-demand and has none: it would
/// drift, and so would whatever replaces it.
#[must_use]
pub fn reservation(instance: &Instance) -> Option<&str> {
    let id = instance.capacity_reservation_id.as_deref();
    id.filter(|_| capacity_type(instance) == CapacityType::Reserved)
}

/// Labels of which a type's requirements allow one value. Its reservations are left out: what is bought otherwise has none.
fn labels_of_type(instance_type: &InstanceType) -> std::collections::BTreeMap<String, String> {
    let mut node_labels = claims::single_valued([&instance_type.requirements]);
    for key in [
        labels::CAPACITY_RESERVATION_ID,
        labels::CAPACITY_RESERVATION_TYPE,
        labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
    ] {
        node_labels.remove(key);
    }
    node_labels
}

/// Fabric adapters are a resource of an instance that was launched with some, not of every instance of its type.
fn without_fabric_adapters(claim: &mut NodeClaim) {
    if let Some(status) = &mut claim.status {
        status.capacity.remove(labels::EFA);
        status.allocatable.remove(labels::EFA);
    }
}

/// `default` where EC2 names none.
fn tenancy(name: &str) -> String {
    let name = if name.is_empty() { "default" } else { name };
    name.to_owned()
}

/// An instance that exists.
#[must_use]
pub fn as_node_claim(instance: &Instance, instance_type: Option<&InstanceType>) -> NodeClaim {
    let name = instance
        .tags
        .get(tags::NODE_CLAIM)
        .map_or(instance.id.as_str(), String::as_str);
    let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
    let mut node_labels = instance_type.map(labels_of_type).unwrap_or_default();
    let own = [
        (api::INSTANCE_TYPE, instance.instance_type.clone()),
        (api::ZONE, instance.zone.clone()),
        (labels::ZONE_ID, instance.zone_id.clone()),
        (api::CAPACITY_TYPE, capacity_type(instance).as_str().to_owned()),
        (labels::INSTANCE_TENANCY, tenancy(&instance.tenancy)),
        (
            api::NODE_POOL,
            instance.tags.get(tags::NODE_POOL).cloned().unwrap_or_default(),
        ),
        (
            labels::CAPACITY_RESERVATION_ID,
            reservation(instance).unwrap_or_default().to_owned(),
        ),
    ];
    let own = own.into_iter().filter(|(_, value)| !value.is_empty());
    node_labels.extend(own.map(|(key, value)| (key.to_owned(), value)));
    claim.metadata.labels = Some(node_labels);
    claim.metadata.creation_timestamp = instance.launched_at.map(Time);
    if instance.state == "shutting-down" || instance.state == "terminated" {
        claim.metadata.deletion_timestamp = instance.launched_at.map(Time);
    }
    let id = provider_id(&instance.zone, &instance.id);
    claim.status = Some(claims::status(id, instance.image_id.clone(), instance_type));
    if !instance.has_efa {
        without_fabric_adapters(&mut claim);
    }
    claim
}

/// Makes those that were launched `since` a call which is not answered yet as young as can be, as long as nobody knows for which NodeClaim: it may be that
/// call's. Garbage collection leaves alone what is young.
pub fn spare_unheard(listed: &mut [NodeClaim], since: Timestamp, now: Timestamp) {
    let is_nobodys = |claim: &NodeClaim| {
        let id = claim.provider_id().and_then(instance_id);
        claim.metadata.uid.is_none() && id == Some(claim.name())
    };
    for claim in listed.iter_mut().filter(|claim| is_nobodys(claim)) {
        let launched = claim
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(now, |time| time.0);
        if since.duration_since(launched) <= CLOCKS_DIFFER {
            claim.metadata.creation_timestamp = Some(Time(now));
        }
    }
}

/// What a launch has made, for the NodeClaim that it was made for. From the reply alone: EC2 may not know the instance yet.
#[must_use]
pub fn launched(
    claim: &NodeClaim,
    class: &EC2NodeClass,
    (instance, template): (&Launched, &Template<'_>),
    (instance_type, offering): (&InstanceType, &Offering),
    capacity_type: CapacityType,
) -> NodeClaim {
    let mut claim = claim.clone();
    let data = &template.request.launch_template_data;
    let mut node_labels = claim.metadata.labels.take().unwrap_or_default();
    node_labels.extend(labels_of_type(instance_type));
    node_labels.extend(claims::single_valued([&offering.requirements]));
    node_labels.extend([
        (api::INSTANCE_TYPE.to_owned(), instance_type.name.clone()),
        (api::ZONE.to_owned(), instance.place.zone.clone()),
        (api::CAPACITY_TYPE.to_owned(), capacity_type.as_str().to_owned()),
        (
            labels::INSTANCE_TENANCY.to_owned(),
            tenancy(&data.placement.tenancy),
        ),
    ]);
    claim.metadata.labels = Some(node_labels);
    STAMP.copy(&class.metadata, &mut claim);
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.insert(api::PRICE_AT_LAUNCH.to_owned(), offering.price.to_string());
    annotations.insert(
        profiles::ANNOTATION.to_owned(),
        data.iam_instance_profile.name.clone(),
    );
    let mut status = claim.status.take().unwrap_or_default();
    status.provider_id = Some(provider_id(&instance.place.zone, &instance.instance_id));
    status.image_id = Some(data.image_id.clone());
    status.capacity = instance_type.capacity.to_quantities();
    status.allocatable = instance_type.allocatable().to_quantities();
    claim.status = Some(status);
    // `efa` and `efa-only`; others name no type.
    let mut interfaces = data.network_interfaces.iter();
    let has_efa = interfaces.any(|one| {
        one.interface_type
            .as_deref()
            .is_some_and(|kind| kind.starts_with("efa"))
    });
    if !has_efa {
        without_fabric_adapters(&mut claim);
    }
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_093_provider_ids_of_aws_and_no_others_name_an_instance() {
        assert_eq!(instance_id(&provider_id("eu-west-3a", "i-0abc")), Some("i-0abc"));
        for wrong in [
            "",
            "kwok://x",
            "aws:///eu-west-3a/",
            "aws:///i-0abc",
            "aws:////i-0abc",
            "aws:///a/b/i-1",
            "azure:///a/i-1",
            "aws:///a/i-",
        ] {
            assert_eq!(instance_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_081_only_what_a_call_without_an_answer_may_have_launched_is_young() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        let listed = |id: &str, second: i64, tag: Option<&str>| {
            let tag = tag.map(|name| (tags::NODE_CLAIM.to_owned(), name.to_owned()));
            let instance = Instance {
                id: id.to_owned(),
                zone: "eu-west-3a".to_owned(),
                launched_at: Some(at(second)),
                tags: tag.into_iter().collect(),
                ..Instance::default()
            };
            as_node_claim(&instance, None)
        };
        let mut known = listed("i-4", 500, None);
        known.metadata.uid = Some("uid".to_owned());
        let mut all = vec![
            listed("i-1", 500, None),
            listed("i-2", 439, None),
            listed("i-3", 500, Some("joined")),
            known,
            listed("i-5", 441, None),
        ];
        spare_unheard(&mut all, at(500), at(540));
        let created = |claim: &NodeClaim| {
            let time = claim.metadata.creation_timestamp.as_ref().unwrap();
            time.0.duration_since(at(0)).as_secs()
        };
        let created: Vec<i64> = all.iter().map(created).collect();
        assert_eq!(created, [540, 439, 500, 500, 540]);
    }

    #[test]
    fn a_094_spot_is_known_by_its_request_or_by_its_lifecycle() {
        let with = |change: fn(&mut Instance)| {
            let mut instance = Instance::default();
            change(&mut instance);
            capacity_type(&instance)
        };
        assert_eq!(with(|_| ()), CapacityType::OnDemand);
        assert_eq!(
            with(|it| it.spot_request_id = Some("sir-1".to_owned())),
            CapacityType::Spot
        );
        assert_eq!(with(|it| it.lifecycle = "spot".to_owned()), CapacityType::Spot);
        let open = |it: &mut Instance| it.capacity_reservation_id = Some("cr-1".to_owned());
        assert_eq!(
            with(open),
            CapacityType::OnDemand,
            "an open reservation took it in by itself"
        );
        assert_eq!(
            with(|it| {
                it.capacity_reservation_id = Some("cr-1".to_owned());
                it.capacity_reservation_preference = "capacity-reservations-only".to_owned();
            }),
            CapacityType::Reserved
        );
    }

    #[test]
    fn a_015_a_100_an_instance_that_an_open_reservation_took_in_is_on_demand_without_one() {
        let mut instance = Instance {
            capacity_reservation_id: Some("cr-1".to_owned()),
            capacity_reservation_preference: "open".to_owned(),
            ..Instance::default()
        };
        assert_eq!(reservation(&instance), None);
        let labels_of = |instance: &Instance| as_node_claim(instance, None).metadata.labels.unwrap();
        let said = labels_of(&instance);
        assert_eq!(said.get(labels::CAPACITY_RESERVATION_ID), None);
        assert_eq!(said[labels::INSTANCE_TENANCY], "default", "EC2 named none");
        instance.capacity_reservation_preference = "capacity-reservations-only".to_owned();
        instance.tenancy = "dedicated".to_owned();
        assert_eq!(reservation(&instance), Some("cr-1"));
        let said = labels_of(&instance);
        assert_eq!(said[labels::CAPACITY_RESERVATION_ID], "cr-1");
        assert_eq!(said[labels::INSTANCE_TENANCY], "dedicated");
    }

    #[test]
    fn a_090_instances_of_others_and_ended_ones_are_not_ours() {
        let mut instance = Instance {
            state: "running".to_owned(),
            tags: [
                (tags::CLUSTER_NAME, "c"),
                (tags::NODE_POOL, "default"),
                (tags::NODE_CLASS, "default"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
            ..Instance::default()
        };
        assert!(is_ours(&instance, "c"));
        assert!(!is_ours(&instance, "other"));
        instance.state = "terminated".to_owned();
        assert!(!is_ours(&instance, "c"));
    }
}
