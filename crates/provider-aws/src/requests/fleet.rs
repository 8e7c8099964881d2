//! `CreateFleet`, and `RunInstances` as a rehearsal of it (A5.4, A2.4).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use spokeshave_model::Price;

use super::TagSpecification;

/// The version of a launch template that launches use.
const LATEST: &str = "$Latest";

/// A fleet that is launched at once, whole or in part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FleetRequest {
    /// Always `instant`.
    #[serde(rename = "Type")]
    pub type_: String,
    /// Only whether it would be allowed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Of requests with the same token EC2 carries out one; absent, every request counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_token: Option<String>,
    /// Reserved for AWS; the class's `context`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// From what, and where.
    pub launch_template_configs: Vec<LaunchTemplateConfig>,
    /// How many.
    pub target_capacity_specification: TargetCapacity,
    /// For spot capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_options: Option<Allocation>,
    /// For on-demand capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_demand_options: Option<Allocation>,
    /// For interruptible reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_capacity_options: Option<ReservedCapacity>,
    /// Tags of what it makes.
    #[serde(rename = "TagSpecification")]
    pub tag_specifications: Vec<TagSpecification>,
}

impl FleetRequest {
    /// Whether one call can serve both: they are the same but for the number of instances.
    #[must_use]
    pub fn is_same_but_for_count(&self, other: &FleetRequest) -> bool {
        let of_one = |request: &FleetRequest| {
            let mut request = request.clone();
            request.target_capacity_specification.total_target_capacity = 1;
            request
        };
        of_one(self) == of_one(other)
    }
}

/// A launch template with the places at which its instances may be launched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LaunchTemplateConfig {
    /// The template.
    pub launch_template_specification: LaunchTemplateReference,
    /// The places, any of which will do.
    pub overrides: Vec<Override>,
}

/// A launch template by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LaunchTemplateReference {
    /// The name.
    pub launch_template_name: String,
    /// Always `$Latest`.
    pub version: String,
}

impl LaunchTemplateReference {
    /// The latest version of the template of this name.
    #[must_use]
    pub fn latest(name: &str) -> Self {
        LaunchTemplateReference {
            launch_template_name: name.to_owned(),
            version: LATEST.to_owned(),
        }
    }
}

/// A place at which an instance may be launched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Override {
    /// The instance type.
    pub instance_type: String,
    /// The subnet.
    pub subnet_id: String,
    /// The subnet's zone: errors of the reply name it. Empty in rehearsals.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub availability_zone: String,
    /// The image. Empty in rehearsals.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    /// Its price: what strategies with priorities go by, lowest first.
    #[serde(
        serialize_with = "write_price",
        deserialize_with = "read_price",
        skip_serializing_if = "Option::is_none"
    )]
    pub priority: Option<Price>,
}

fn write_price<S: Serializer>(price: &Option<Price>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&price.unwrap_or_default().dollars())
}

fn read_price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Price>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let price = text.parse().map(Price::from_dollars);
    price.map(Some).map_err(de::Error::custom)
}

/// How many instances, and how they are bought.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TargetCapacity {
    /// `spot`, `on-demand`, `capacity-block` or `reserved-capacity`.
    pub default_target_capacity_type: String,
    /// How many.
    pub total_target_capacity: u32,
}

/// How EC2 chooses among the places.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Allocation {
    /// `price-capacity-optimized` or `capacity-optimized-prioritized` for spot, `lowest-price` or `prioritized` for on-demand capacity.
    pub allocation_strategy: String,
}

/// Which reservations are used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReservedCapacity {
    /// `interruptible-capacity-reservation`.
    #[serde(rename = "ReservationType")]
    pub reservation_types: Vec<String>,
}

/// `RunInstances` as a rehearsal: whether an instance of a template would be allowed in a subnet (A2.4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RunInstancesRequest {
    /// Always: nothing is launched.
    pub dry_run: bool,
    /// At least this many.
    pub min_count: u32,
    /// At most this many.
    pub max_count: u32,
    /// The template.
    pub launch_template: LaunchTemplateReference,
    /// The instance type.
    pub instance_type: String,
    /// Where: the subnet of each interface.
    #[serde(rename = "NetworkInterface")]
    pub network_interfaces: Vec<SubnetInterface>,
    /// Tags of what it would make.
    #[serde(rename = "TagSpecification")]
    pub tag_specifications: Vec<TagSpecification>,
}

/// An interface in a subnet; the rest is the template's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SubnetInterface {
    /// The card; absent for the one interface of an ordinary instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_card_index: Option<i32>,
    /// Its place on the card.
    pub device_index: i32,
    /// `interface` or `efa-only`; absent is `interface`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_type: Option<String>,
    /// The subnet.
    pub subnet_id: String,
}
