//! `CreateLaunchTemplate`: from what the instances of a launch are made (A5.2).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::TagSpecification;

/// A launch template to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LaunchTemplateRequest {
    /// Its name, a function of everything else.
    pub launch_template_name: String,
    /// What its instances are made from.
    pub launch_template_data: LaunchTemplateData,
    /// Tags of the template itself.
    #[serde(rename = "TagSpecification")]
    pub tag_specifications: Vec<TagSpecification>,
}

/// What the instances of a launch template are made from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LaunchTemplateData {
    /// The image.
    pub image_id: String,
    /// User data as text; EC2 is told it in base64.
    #[serde(serialize_with = "write_base64", deserialize_with = "read_base64")]
    pub user_data: String,
    /// Volumes.
    #[serde(rename = "BlockDeviceMapping", skip_serializing_if = "Vec::is_empty")]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// The role of the instances.
    pub iam_instance_profile: InstanceProfileName,
    /// Metrics every minute.
    pub monitoring: Enabled,
    /// Nitro enclaves.
    pub enclave_options: Enabled,
    /// Options of the processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
    /// The instance metadata service.
    pub metadata_options: MetadataOptions,
    /// Network interfaces; security groups are theirs.
    #[serde(rename = "NetworkInterface")]
    pub network_interfaces: Vec<NetworkInterface>,
    /// On which hardware.
    pub placement: Placement,
    /// Use of capacity reservations; absent leaves open reservations to EC2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_reservation_specification: Option<CapacityReservationSpecification>,
    /// A market other than on-demand and spot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_market_options: Option<InstanceMarketOptions>,
    /// Tags of what the template's launches make, besides what the fleet tags.
    #[serde(rename = "TagSpecification")]
    pub tag_specifications: Vec<TagSpecification>,
}

fn write_base64<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(text))
}

fn read_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let bytes = STANDARD
        .decode(String::deserialize(deserializer)?)
        .map_err(de::Error::custom)?;
    String::from_utf8(bytes).map_err(de::Error::custom)
}

/// Something that is on or off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Enabled {
    /// Whether it is on.
    pub enabled: bool,
}

/// An instance profile by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InstanceProfileName {
    /// The name.
    pub name: String,
}

/// A volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BlockDeviceMapping {
    /// Name of the device, such as `/dev/xvda`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// The EBS volume.
    pub ebs: EbsVolume,
}

/// An EBS volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EbsVolume {
    /// Whether it ends with its instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether it is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Operations a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// Key with which it is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// Snapshot from which it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// MiB a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// MiB a second at which the snapshot is read in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_initialization_rate: Option<i32>,
    /// Size in GiB.
    #[serde(rename = "VolumeSize", skip_serializing_if = "Option::is_none")]
    pub volume_size_gib: Option<i64>,
    /// Type, such as `gp3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
}

/// Options of the processors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CpuOptions {
    /// `enabled` or `disabled`.
    pub nested_virtualization: String,
}

/// The instance metadata service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MetadataOptions {
    /// `enabled` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    /// `enabled` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_protocol_ipv6: Option<String>,
    /// How many hops an answer may travel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_put_response_hop_limit: Option<i64>,
    /// `required` or `optional`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<String>,
    /// Always `disabled`: keys of our tags cannot be paths of the metadata service.
    pub instance_metadata_tags: String,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkInterface {
    /// The card; absent for the one interface of an ordinary instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_card_index: Option<i32>,
    /// Its place on the card.
    pub device_index: i32,
    /// `interface`, `efa` or `efa-only`; absent is `interface`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_type: Option<String>,
    /// Whether it gets a public address; absent leaves it to the subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,
    /// How many prefixes of IPv4 addresses it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_prefix_count: Option<i32>,
    /// How many prefixes of IPv6 addresses it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_prefix_count: Option<i32>,
    /// Whether its first IPv6 address stays the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_ipv6: Option<bool>,
    /// How many IPv6 addresses it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_address_count: Option<i32>,
    /// Time-outs of tracked connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_tracking_specification: Option<ConnectionTracking>,
    /// Security groups.
    #[serde(rename = "SecurityGroupId")]
    pub security_group_ids: Vec<String>,
}

/// Time-outs of tracked connections, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ConnectionTracking {
    /// Idle TCP connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_established_timeout: Option<i32>,
    /// UDP flows that have seen more than one request and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_stream_timeout: Option<i32>,
    /// Other UDP flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_timeout: Option<i32>,
}

/// On which hardware.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Placement {
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// ID of the placement group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_id: Option<String>,
    /// Partition of the placement group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_number: Option<i32>,
}

/// Use of capacity reservations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CapacityReservationSpecification {
    /// `none` or `capacity-reservations-only`.
    pub capacity_reservation_preference: String,
    /// The reservation, with `capacity-reservations-only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_reservation_target: Option<CapacityReservationTarget>,
}

/// A capacity reservation by ID.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CapacityReservationTarget {
    /// The ID.
    pub capacity_reservation_id: String,
}

/// A market other than on-demand and spot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct InstanceMarketOptions {
    /// `capacity-block` or `interruptible-capacity-reservation`.
    pub market_type: String,
}
