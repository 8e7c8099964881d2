//! What EC2 is asked for: launch templates, fleets, look-ups and tags as plain values (A5.2, A5.4, A13).
//!
//! Owns the shape of requests, under the names that EC2's query protocol gives their parameters: serialised, a request *is* its parameters, and
//! [`query`] writes them as the protocol wants. It decides nothing and calls nothing.

pub mod fleet;
pub mod launch_template;
pub mod look_up;
pub mod query;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use fleet::{FleetRequest, RunInstancesRequest};
pub use launch_template::{LaunchTemplateData, LaunchTemplateRequest};
pub use look_up::Filter;

/// Tags by key. EC2 is told them as a list of keys and values.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tags(pub BTreeMap<String, String>);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tag {
    key: String,
    #[serde(default)]
    value: String,
}

impl Serialize for Tags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(key, value)| Tag {
            key: key.clone(),
            value: value.clone(),
        }))
    }
}

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tags = Vec::<Tag>::deserialize(deserializer)?;
        Ok(Tags(tags.into_iter().map(|tag| (tag.key, tag.value)).collect()))
    }
}

impl FromIterator<(String, String)> for Tags {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(tags: I) -> Self {
        Tags(tags.into_iter().collect())
    }
}

/// Something that a launch makes and that is tagged when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceType {
    /// A fleet.
    Fleet,
    /// An instance.
    Instance,
    /// A launch template.
    LaunchTemplate,
    /// A network interface.
    NetworkInterface,
    /// A request for a spot instance.
    SpotInstancesRequest,
    /// A volume.
    Volume,
}

/// The tags of what a launch makes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TagSpecification {
    /// What is tagged.
    pub resource_type: ResourceType,
    /// Its tags.
    #[serde(rename = "Tag")]
    pub tags: Tags,
}

/// The same tags for several kinds of things.
#[must_use]
pub fn tag_specifications(resource_types: &[ResourceType], tags: &Tags) -> Vec<TagSpecification> {
    let specification = |resource_type: &ResourceType| TagSpecification {
        resource_type: *resource_type,
        tags: tags.clone(),
    };
    resource_types.iter().map(specification).collect()
}
