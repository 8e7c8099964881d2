//! Look-ups and small changes of A13: what is described by which filters, what is tagged.
//!
//! Pages are the caller's: [`page_size`] says how large one may be.

use serde::{Deserialize, Serialize};

use super::Tags;

/// How many entries a page holds, as EC2 allows for each call (A13).
pub mod page_size {
    /// `DescribeImages`.
    pub const IMAGES: u32 = 1_000;
    /// `DescribeInstances`.
    pub const INSTANCES: u32 = 1_000;
    /// `DescribeInstanceTypes`.
    pub const INSTANCE_TYPES: u32 = 100;
    /// `DescribeInstanceTypeOfferings`.
    pub const INSTANCE_TYPE_OFFERINGS: u32 = 1_000;
    /// `DescribeLaunchTemplates`.
    pub const LAUNCH_TEMPLATES: u32 = 200;
    /// `DescribeSecurityGroups`.
    pub const SECURITY_GROUPS: u32 = 500;
    /// `DescribeSpotPriceHistory`.
    pub const SPOT_PRICES: u32 = 2_000;
    /// `DescribeSubnets`.
    pub const SUBNETS: u32 = 500;
}

/// A filter: the named property has one of these values. Filters of one request all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Filter {
    /// The property, such as `tag:team`.
    pub name: String,
    /// Values; `*` and `?` match any text.
    #[serde(rename = "Value")]
    pub values: Vec<String>,
}

impl Filter {
    /// The property has one of these values.
    #[must_use]
    pub fn new<T: Into<String>>(name: &str, values: impl IntoIterator<Item = T>) -> Self {
        Filter {
            name: name.to_owned(),
            values: values.into_iter().map(Into::into).collect(),
        }
    }

    /// A tag has this value; with `*` it only has to be there (A2.1).
    #[must_use]
    pub fn tag(key: &str, value: &str) -> Self {
        match value {
            "*" => Filter::new("tag-key", [key]),
            value => Filter::new(&format!("tag:{key}"), [value]),
        }
    }
}

/// `DescribeSubnets` and `DescribeSecurityGroups`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FilterRequest {
    /// Filters.
    #[serde(rename = "Filter", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
}

/// `DescribeImages`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImagesRequest {
    /// Filters.
    #[serde(rename = "Filter", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
    /// Accounts that own them, or `self`, `amazon`; none for any.
    #[serde(rename = "Owner", skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// Always: deprecated images are found as well.
    pub include_deprecated: bool,
}

/// `DescribeInstances`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct InstancesRequest {
    /// These instances; none for all that the filters match.
    #[serde(rename = "InstanceId", skip_serializing_if = "Vec::is_empty")]
    pub instance_ids: Vec<String>,
    /// Filters.
    #[serde(rename = "Filter", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
}

/// `DescribeLaunchTemplates`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LaunchTemplatesRequest {
    /// Templates of these names; none for all that the filters match.
    #[serde(rename = "LaunchTemplateName", skip_serializing_if = "Vec::is_empty")]
    pub launch_template_names: Vec<String>,
    /// Filters.
    #[serde(rename = "Filter", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
}

/// `DescribeCapacityReservations`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CapacityReservationsRequest {
    /// These reservations; none for all that the filters match.
    #[serde(rename = "CapacityReservationId", skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservation_ids: Vec<String>,
    /// Filters.
    #[serde(rename = "Filter", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
}

/// `CreateTags`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TagsRequest {
    /// What is tagged.
    #[serde(rename = "ResourceId")]
    pub resource_ids: Vec<String>,
    /// The tags; others stay.
    #[serde(rename = "Tag")]
    pub tags: Tags,
}
