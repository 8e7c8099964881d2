//! Elements of EC2's replies as values.

use jiff::Timestamp;
use spokeshave_model::Price;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::fleet::{FleetError, Launched, Place};
use spokeshave_provider_aws::prices::SpotPrice;

use crate::xml::Element;
use spokeshave_provider_aws::replies::{
    CapacityReservation, FleetReply, Image, Instance, InstanceStatus, LaunchTemplate, ScheduledEvent,
    SecurityGroup, StatusDetail, Subnet, Tags, Terminated,
};

type Item<'a, 'input> = Element<'a, 'input>;

fn tags(item: Item<'_, '_>) -> Tags {
    item.items("tagSet")
        .map(|tag| (tag.text("key"), tag.text("value")))
        .collect()
}

fn time(item: Item<'_, '_>, name: &str) -> Option<Timestamp> {
    item.parsed(name)
}

pub(super) fn subnet(item: Item<'_, '_>) -> Subnet {
    Subnet {
        id: item.text("subnetId"),
        zone: item.text("availabilityZone"),
        zone_id: item.text("availabilityZoneId"),
        vpc_id: item.text("vpcId"),
        free_addresses: item.parsed("availableIpAddressCount").unwrap_or(0),
        maps_public_ip: item.is_true("mapPublicIpOnLaunch"),
        ipv6_native: item.is_true("ipv6Native"),
        assigns_ipv6: item.is_true("assignIpv6AddressOnCreation"),
        tags: tags(item),
    }
}

pub(super) fn security_group(item: Item<'_, '_>) -> SecurityGroup {
    SecurityGroup {
        id: item.text("groupId"),
        name: item.text("groupName"),
        vpc_id: item.text("vpcId"),
        tags: tags(item),
    }
}

pub(super) fn image(item: Item<'_, '_>) -> Image {
    Image {
        id: item.text("imageId"),
        name: item.text("name"),
        architecture: item.text("architecture"),
        state: item.text("imageState"),
        owner_id: item.text("imageOwnerId"),
        owner_alias: item.text("imageOwnerAlias"),
        created_at: time(item, "creationDate"),
        deprecated_at: time(item, "deprecationTime"),
        volumes: item
            .items("blockDeviceMapping")
            .map(|device| {
                let size = device.child("ebs").and_then(|ebs| ebs.parsed("volumeSize"));
                (device.text("deviceName"), size)
            })
            .collect(),
        tags: tags(item),
    }
}

pub(super) fn capacity_reservation(item: Item<'_, '_>) -> CapacityReservation {
    CapacityReservation {
        id: item.text("capacityReservationId"),
        owner_id: item.text("ownerId"),
        instance_type: item.text("instanceType"),
        zone: item.text("availabilityZone"),
        zone_id: item.text("availabilityZoneId"),
        state: item.text("state"),
        tenancy: item.text("tenancy"),
        platform: item.text("instancePlatform"),
        instance_match_criteria: item.text("instanceMatchCriteria"),
        reservation_type: item.text("reservationType"),
        interruptible: item.is_true("interruptible"),
        total: item.parsed("totalInstanceCount").unwrap_or(0),
        available: item.parsed("availableInstanceCount").unwrap_or(0),
        ends_at: time(item, "endDate"),
        tags: tags(item),
    }
}

pub(super) fn launch_template(item: Item<'_, '_>) -> LaunchTemplate {
    LaunchTemplate {
        id: item.text("launchTemplateId"),
        name: item.text("launchTemplateName"),
        tags: tags(item),
    }
}

/// A spot price; `None` for what is not one.
pub(super) fn spot_price(item: Item<'_, '_>) -> Option<SpotPrice> {
    Some(SpotPrice {
        instance_type: item.some_text("instanceType")?,
        zone: item.some_text("availabilityZone")?,
        time: time(item, "timestamp")?,
        price: item.parsed::<Price>("spotPrice")?,
    })
}

pub(super) fn instance(item: Item<'_, '_>) -> Instance {
    let placement = item.child("placement");
    let placed = |name: &str| {
        placement
            .map(|placement| placement.text(name))
            .unwrap_or_default()
    };
    let reservation = item.child("capacityReservationSpecification");
    Instance {
        id: item.text("instanceId"),
        state: item
            .child("instanceState")
            .map(|state| state.text("name"))
            .unwrap_or_default(),
        state_reason: item
            .child("stateReason")
            .map(|reason| reason.text("message"))
            .unwrap_or_default(),
        instance_type: item.text("instanceType"),
        image_id: item.text("imageId"),
        launched_at: time(item, "launchTime"),
        zone: placed("availabilityZone"),
        zone_id: placed("availabilityZoneId"),
        subnet_id: item.text("subnetId"),
        security_group_ids: item
            .items("groupSet")
            .map(|group| group.text("groupId"))
            .collect(),
        has_efa: item
            .items("networkInterfaceSet")
            .any(|interface| interface.text("interfaceType").starts_with("efa")),
        lifecycle: item.text("instanceLifecycle"),
        spot_request_id: item.some_text("spotInstanceRequestId"),
        capacity_reservation_id: item.some_text("capacityReservationId"),
        capacity_reservation_preference: reservation
            .map(|reservation| reservation.text("capacityReservationPreference"))
            .unwrap_or_default(),
        tenancy: placed("tenancy"),
        placement_group_id: Some(placed("groupId")).filter(|id| !id.is_empty()),
        partition: placement.and_then(|placement| placement.parsed("partitionNumber")),
        private_dns_name: item.text("privateDnsName"),
        tags: tags(item),
    }
}

/// The instances of a page of `DescribeInstances`, which groups them by reservation.
pub(super) fn instances(root: Item<'_, '_>) -> Vec<Instance> {
    let reservations = root.items("reservationSet");
    reservations
        .flat_map(|reservation| {
            reservation
                .items("instancesSet")
                .map(instance)
                .collect::<Vec<_>>()
        })
        .collect()
}

fn place(entry: Item<'_, '_>) -> Place {
    let overrides = entry
        .child("launchTemplateAndOverrides")
        .and_then(|both| both.child("overrides"));
    // The entry of a launched instance says it as well as the override that it came from, and what it says is what is.
    let text = |name: &str| {
        let own = entry.some_text(name);
        own.or_else(|| overrides?.some_text(name)).unwrap_or_default()
    };
    Place {
        instance_type: text("instanceType"),
        zone: text("availabilityZone"),
        subnet_id: text("subnetId"),
    }
}

pub(super) fn fleet(root: Item<'_, '_>) -> FleetReply {
    let launched = root.items("fleetInstanceSet").flat_map(|entry| {
        let place = place(entry);
        let ids = entry.texts("instanceIds").into_iter().filter(|id| !id.is_empty());
        ids.map(move |instance_id| Launched {
            instance_id,
            place: place.clone(),
        })
        .collect::<Vec<_>>()
    });
    FleetReply {
        fleet_id: root.text("fleetId"),
        launched: launched.collect(),
        errors: root
            .items("errorSet")
            .map(|entry| FleetError {
                error: ApiError::new(&entry.text("errorCode"), &entry.text("errorMessage")),
                place: place(entry),
            })
            .collect(),
    }
}

pub(super) fn terminated(item: Item<'_, '_>) -> Terminated {
    Terminated {
        id: item.text("instanceId"),
        state: item
            .child("currentState")
            .map(|state| state.text("name"))
            .unwrap_or_default(),
    }
}

pub(super) fn instance_status(item: Item<'_, '_>) -> InstanceStatus {
    let details = |name: &str| {
        let found = item
            .child(name)
            .into_iter()
            .flat_map(|status| status.items("details"));
        found
            .map(|detail| StatusDetail {
                name: detail.text("name"),
                status: detail.text("status"),
                impaired_since: time(detail, "impairedSince"),
            })
            .collect()
    };
    InstanceStatus {
        id: item.text("instanceId"),
        instance: details("instanceStatus"),
        system: details("systemStatus"),
        events: item
            .items("eventsSet")
            .map(|event| ScheduledEvent {
                code: event.text("code"),
                description: event.text("description"),
                not_before: time(event, "notBefore"),
            })
            .collect(),
    }
}
