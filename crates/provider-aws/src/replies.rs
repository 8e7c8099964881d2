//! What AWS replies that anybody reads, as plain values (A13).
//!
//! Owns their shape. Absent fields are empty; nothing is interpreted here.

use std::collections::BTreeMap;

use crate::fleet::{FleetError, Launched};
use jiff::Timestamp;

/// Tags by key.
pub type Tags = BTreeMap<String, String>;

/// A subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subnet {
    /// ID.
    pub id: String,
    /// Name of its zone, such as `eu-west-3a`.
    pub zone: String,
    /// ID of its zone, such as `euw3-az1`: the same in all accounts.
    pub zone_id: String,
    /// The network.
    pub vpc_id: String,
    /// Addresses that nobody has.
    pub free_addresses: i64,
    /// Whether instances get a public address unless told otherwise.
    pub maps_public_ip: bool,
    /// Whether it has IPv6 addresses only.
    pub ipv6_native: bool,
    /// Whether instances get an IPv6 address.
    pub assigns_ipv6: bool,
    /// Tags.
    pub tags: Tags,
}

/// A security group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityGroup {
    /// ID.
    pub id: String,
    /// Name.
    pub name: String,
    /// The network.
    pub vpc_id: String,
    /// Tags.
    pub tags: Tags,
}

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// ID.
    pub id: String,
    /// Name.
    pub name: String,
    /// `x86_64`, `arm64`; empty where the image does not say.
    pub architecture: String,
    /// `available` and others.
    pub state: String,
    /// Account that owns it.
    pub owner_id: String,
    /// Alias of the owner, such as `amazon`.
    pub owner_alias: String,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// From when on it is deprecated.
    pub deprecated_at: Option<Timestamp>,
    /// Devices: name and size in GiB.
    pub volumes: Vec<(String, Option<i64>)>,
    /// Tags.
    pub tags: Tags,
}

/// A capacity reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityReservation {
    /// ID.
    pub id: String,
    /// Account that owns it.
    pub owner_id: String,
    /// Its instance type.
    pub instance_type: String,
    /// Name of its zone.
    pub zone: String,
    /// ID of its zone.
    pub zone_id: String,
    /// `active` and others.
    pub state: String,
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// Operating system.
    pub platform: String,
    /// `open` or `targeted`.
    pub instance_match_criteria: String,
    /// `default` or `capacity-block`.
    pub reservation_type: String,
    /// Whether its owner may take it back.
    pub interruptible: bool,
    /// How many instances it holds.
    pub total: i64,
    /// How many of these are free.
    pub available: i64,
    /// When it ends.
    pub ends_at: Option<Timestamp>,
    /// Tags.
    pub tags: Tags,
}

/// A launch template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchTemplate {
    /// ID.
    pub id: String,
    /// Name.
    pub name: String,
    /// Tags.
    pub tags: Tags,
}

/// An instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// ID.
    pub id: String,
    /// `pending`, `running`, `shutting-down`, …
    pub state: String,
    /// Why it came to this state; empty when it just runs.
    pub state_reason: String,
    /// Its type.
    pub instance_type: String,
    /// Its image.
    pub image_id: String,
    /// When it was launched.
    pub launched_at: Option<Timestamp>,
    /// Name of its zone.
    pub zone: String,
    /// ID of its zone.
    pub zone_id: String,
    /// Its subnet.
    pub subnet_id: String,
    /// IDs of its security groups.
    pub security_group_ids: Vec<String>,
    /// Whether it has Elastic Fabric Adapters.
    pub has_efa: bool,
    /// `spot`, `capacity-block`, …; empty for on-demand.
    pub lifecycle: String,
    /// The request for spot capacity that it fulfils.
    pub spot_request_id: Option<String>,
    /// The capacity reservation that it runs in.
    pub capacity_reservation_id: Option<String>,
    /// `open`, `none`, `capacity-reservations-only`.
    pub capacity_reservation_preference: String,
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// ID of its placement group.
    pub placement_group_id: Option<String>,
    /// Partition of its placement group.
    pub partition: Option<i64>,
    /// Name in the private network.
    pub private_dns_name: String,
    /// Tags.
    pub tags: Tags,
}

/// What a fleet launched, and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReply {
    /// ID of the fleet.
    pub fleet_id: String,
    /// Instances, one entry each.
    pub launched: Vec<Launched>,
    /// Errors.
    pub errors: Vec<FleetError>,
}

/// What termination did to an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terminated {
    /// ID of the instance.
    pub id: String,
    /// State after the call.
    pub state: String,
}

/// A check of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusDetail {
    /// Name, such as `reachability`.
    pub name: String,
    /// `passed`, `failed`, …
    pub status: String,
    /// Since when it fails.
    pub impaired_since: Option<Timestamp>,
}

/// Something that is planned for an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduledEvent {
    /// `instance-retirement` and others.
    pub code: String,
    /// Description; begins with `[Completed]` when it is over.
    pub description: String,
    /// When it begins at the earliest.
    pub not_before: Option<Timestamp>,
}

/// The health of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceStatus {
    /// ID of the instance.
    pub id: String,
    /// Checks of the instance.
    pub instance: Vec<StatusDetail>,
    /// Checks of the machine below it.
    pub system: Vec<StatusDetail>,
    /// What is planned.
    pub events: Vec<ScheduledEvent>,
}

/// An instance profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// Path, such as `/karpenter/eu-west-3/cluster/`.
    pub path: String,
    /// Names of its roles; IAM allows one.
    pub roles: Vec<String>,
    /// Tags.
    pub tags: Tags,
}

/// What nodes and settings need of a cluster, as EKS describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Address of the API server.
    pub endpoint: String,
    /// Certificates of the API server, PEM in base64.
    pub certificate_authority: String,
    /// Version of Kubernetes, such as `1.34`.
    pub version: String,
    /// ARN.
    pub arn: String,
    /// Addresses of Services, IPv4.
    pub service_ipv4_cidr: Option<String>,
    /// Addresses of Services, IPv6.
    pub service_ipv6_cidr: Option<String>,
    /// Whether EKS may shift traffic, and capacity, away from zones.
    pub zonal_shift: bool,
}

/// A message of the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// ID, the same whenever it is delivered.
    pub message_id: String,
    /// Text.
    pub body: String,
    /// What this delivery is deleted by.
    pub receipt_handle: String,
    /// When it was sent.
    pub sent_at: Option<Timestamp>,
}
