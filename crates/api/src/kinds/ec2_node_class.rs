//! EC2NodeClass (A1): what an EC2 machine is made from.
//!
//! Owns the type only. What the selectors find, what drifts and what is launched is `provider-aws`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, Requirement, UnknownFields, kind, open_enum};

kind! {
    /// Configuration of EC2 instances (A1.1).
    EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus,
    group: "karpenter.k8s.aws", version: "v1", plural: "ec2nodeclasses", scope: k8s_openapi::ClusterResourceScope
}

open_enum! {
    /// The operating system of an image, which decides its user data (A2.2, A5.3).
    AmiFamily {
        /// Amazon Linux 2.
        Al2 = "AL2",
        /// Amazon Linux 2023.
        Al2023 = "AL2023",
        /// Bottlerocket.
        Bottlerocket = "Bottlerocket",
        /// An image of which nothing is known.
        Custom = "Custom",
        /// Windows Server 2019.
        Windows2019 = "Windows2019",
        /// Windows Server 2022.
        Windows2022 = "Windows2022",
        /// Windows Server 2025.
        Windows2025 = "Windows2025",
    }
}

open_enum! {
    /// Use of the instance store disks.
    InstanceStorePolicy {
        /// One array of all of them holds pods' ephemeral storage.
        Raid0 = "RAID0",
    }
}

open_enum! {
    /// The traffic of a network interface.
    InterfaceType {
        /// Ordinary traffic.
        Interface = "interface",
        /// Elastic Fabric Adapter traffic only, without an IP address.
        EfaOnly = "efa-only",
    }
}

/// Configuration of the instances of this class (A1.2).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassSpec {
    /// Subnets, by any of these terms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Security groups, by any of these terms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Capacity reservations, by any of these terms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    /// The placement group of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// Images, by any of these terms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// Family of the images; by default that of the alias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,
    /// IAM role of the instances, for which an instance profile is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Name of an existing instance profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// User data, merged with what the AMI family needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Whether the primary interface gets a public address; unset leaves it to the subnet.
    #[serde(
        default,
        rename = "associatePublicIPAddress",
        skip_serializing_if = "Option::is_none"
    )]
    pub associate_public_ip_address: Option<bool>,
    /// How many prefixes of addresses the primary interface is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_prefix_count: Option<i32>,
    /// Tags of everything that is created.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Kubelet configuration; checked by the controller, not by the schema (A1.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<Value>,
    /// Volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// Use of the disks that the instance type brings along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// Network interfaces, instead of one on card 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_interfaces: Vec<NetworkInterface>,
    /// Metrics of the instance every minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// The instance metadata service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_options: Option<MetadataOptions>,
    /// Time-outs of tracked connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// Options of the processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
    /// Passed on as CreateFleet's `Context`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Chooses subnets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetSelectorTerm {
    /// Tags, all of which must match; `*` matches any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The ID. With an ID, tags are ignored (A1.3, quirk 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Chooses security groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroupSelectorTerm {
    /// Tags, all of which must match; `*` matches any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The group's name, which is not its tag `Name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Chooses capacity reservations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservationSelectorTerm {
    /// Tags, all of which must match; `*` matches any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Account that owns the reservation.
    #[serde(default, rename = "ownerID", skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    /// `open` or `targeted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_match_criteria: Option<String>,
}

/// Chooses the placement group: one of name and ID.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementGroupSelector {
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Chooses images.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AmiSelectorTerm {
    /// `family@version`, such as `al2023@latest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Tags, all of which must match; `*` matches any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name; `*` and `?` match any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Account that owns the image, or `self`, `amazon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Name of an SSM parameter that holds the ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
}

/// A volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceMapping {
    /// Name of the device, such as `/dev/xvda`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// The EBS volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebs: Option<BlockDevice>,
    /// Whether pods' ephemeral storage is on this volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub root_volume: bool,
}

/// An EBS volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockDevice {
    /// Whether it ends with its instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether it is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Operations a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// Key with which it is encrypted.
    #[serde(default, rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// Snapshot from which it is made.
    #[serde(default, rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// MiB a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// MiB a second at which a snapshot is read in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_initialization_rate: Option<i32>,
    /// Size, such as `20Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<WireQuantity>,
    /// Type, such as `gp3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// The card.
    pub network_card_index: i32,
    /// Its place on the card.
    pub device_index: i32,
    /// Its traffic.
    pub interface_type: InterfaceType,
}

/// The instance metadata service; the schema gives each field its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// `enabled` or `disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    /// `enabled` or `disabled`.
    #[serde(default, rename = "httpProtocolIPv6", skip_serializing_if = "Option::is_none")]
    pub http_protocol_ipv6: Option<String>,
    /// Maximum number of network hops of a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_put_response_hop_limit: Option<i64>,
    /// `required` or `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<String>,
}

/// Time-outs of tracked connections, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionTracking {
    /// Idle TCP connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_established_timeout: Option<i32>,
    /// UDP flows with more than one request and response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_stream_timeout: Option<i32>,
    /// Other UDP flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_timeout: Option<i32>,
}

/// Options of the processors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuOptions {
    /// `enabled` or `disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<String>,
}

/// What the selectors resolve to, and whether the class may be used (A1.5).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassStatus {
    /// Subnets, most free addresses first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,
    /// Security groups, by ID.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroup>,
    /// Capacity reservations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// Images, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<Ami>,
    /// Name of the instance profile in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// A subnet that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// Its ID.
    pub id: String,
    /// Its zone.
    pub zone: String,
    /// ID of its zone, which is the same in every account.
    #[serde(default, rename = "zoneID", skip_serializing_if = "String::is_empty")]
    pub zone_id: String,
}

/// A security group that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// Its ID.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A capacity reservation that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// Its ID.
    pub id: String,
    /// Its zone.
    pub availability_zone: String,
    /// Its instance type.
    pub instance_type: String,
    /// `open` or `targeted`.
    pub instance_match_criteria: String,
    /// Account that owns it.
    #[serde(rename = "ownerID")]
    pub owner_id: String,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    /// `default` or `capacity-block`.
    pub reservation_type: String,
    /// Whether its instances may be reclaimed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interruptible: bool,
    /// `active` or `expiring`.
    pub state: String,
}

/// An image that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ami {
    /// Its ID.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Whether it is deprecated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    /// Which instance types it is for; written even when it is for all.
    #[serde(default)]
    pub requirements: Vec<Requirement>,
}

impl EC2NodeClass {
    /// The alias of the image selector as (family, version), when there is one.
    #[must_use]
    pub fn alias(&self) -> Option<(&str, &str)> {
        self.spec
            .ami_selector_terms
            .iter()
            .find_map(|term| term.alias.as_deref())
            .and_then(|alias| alias.split_once('@'))
    }

    /// The family of the images: the field, else that of the alias (A1.2); `Custom` when neither says one, which admission refuses.
    #[must_use]
    pub fn resolved_ami_family(&self) -> AmiFamily {
        if let Some(family) = &self.spec.ami_family {
            return family.clone();
        }
        match self.alias().map(|(family, _)| family) {
            Some("al2") => AmiFamily::Al2,
            Some("al2023") => AmiFamily::Al2023,
            Some("bottlerocket") => AmiFamily::Bottlerocket,
            Some("windows2019") => AmiFamily::Windows2019,
            Some("windows2022") => AmiFamily::Windows2022,
            Some("windows2025") => AmiFamily::Windows2025,
            _ => AmiFamily::Custom,
        }
    }
}
