//! From the description of a machine to the model's `InstanceType`: labels and overhead (P §14.1).

use std::collections::BTreeSet;

use spokeshave_api::{Quantity, labels};
use spokeshave_model::{
    InstanceType, Offering, Operator, Overhead, Requirement, Requirements, ResourceName, Resources,
};

use crate::keys;

/// Sizes of AWS that have no number.
const PLAIN_SIZES: [&str; 7] = ["nano", "micro", "small", "medium", "large", "xlarge", "metal"];

/// A machine as the rule or the catalog file describes it.
pub(crate) struct Machine<'a> {
    pub(crate) name: &'a str,
    pub(crate) architecture: &'a str,
    pub(crate) operating_systems: Vec<String>,
    pub(crate) capacity: Resources,
    pub(crate) offerings: Vec<Offering>,
}

impl Machine<'_> {
    /// The type with its labels and overhead: 100m CPU and 10Mi of memory for Kubernetes, nothing else.
    pub(crate) fn build(self) -> InstanceType {
        let values = |key: &str| -> BTreeSet<String> {
            let requirements = self
                .offerings
                .iter()
                .filter_map(|offering| offering.requirements.find(key));
            requirements
                .flat_map(|requirement| requirement.values().iter().cloned())
                .collect()
        };
        let cpu = quantity_text(&self.capacity, ResourceName::CPU);
        let memory = quantity_text(&self.capacity, ResourceName::MEMORY);
        let requirements: Requirements = [
            Requirement::is(labels::INSTANCE_TYPE, self.name),
            Requirement::is(labels::ARCH, self.architecture),
            Requirement::new(labels::OS, Operator::In, self.operating_systems),
            Requirement::new(labels::ZONE, Operator::In, values(labels::ZONE)),
            Requirement::new(labels::CAPACITY_TYPE, Operator::In, values(labels::CAPACITY_TYPE)),
            Requirement::is(keys::INSTANCE_SIZE, size_of(self.name).unwrap_or(&cpu)),
            Requirement::is(keys::INSTANCE_FAMILY, family_of(self.name)),
            Requirement::is(keys::INSTANCE_CPU, &cpu),
            Requirement::is(keys::INSTANCE_MEMORY, &memory),
        ]
        .into_iter()
        .collect();
        InstanceType {
            name: self.name.to_owned(),
            requirements,
            offerings: self.offerings,
            capacity: self.capacity,
            overhead: Overhead {
                kube_reserved: Resources::from_amounts([
                    (ResourceName::CPU, 100),
                    (ResourceName::MEMORY, 10 << 20),
                ]),
                ..Overhead::default()
            },
            ..InstanceType::default()
        }
    }
}

/// Canonical quantity text, which is what labels carry: `4`, `8Gi`.
fn quantity_text(capacity: &Resources, resource: &str) -> String {
    let text = ResourceName::format(resource, capacity.get(resource));
    text.parse::<Quantity>()
        .map_or(text, |quantity| quantity.to_string())
}

/// The size in a name of the form `family.size`, if it is one that AWS uses.
fn size_of(name: &str) -> Option<&str> {
    let (_, size) = name.split_once('.')?;
    let numbered = size
        .strip_suffix("xlarge")
        .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    (numbered || PLAIN_SIZES.contains(&size)).then_some(size)
}

/// What stands before the first `.` or `-`, otherwise the first character.
fn family_of(name: &str) -> &str {
    match name.find(['.', '-']) {
        Some(end) => &name[..end],
        None => name.char_indices().nth(1).map_or(name, |(end, _)| &name[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str, key: &str) -> Option<String> {
        let machine = Machine {
            name,
            architecture: "amd64",
            operating_systems: vec!["linux".to_owned()],
            capacity: Resources::from_amounts([("cpu", 4000), ("memory", 8 << 30)]),
            offerings: Vec::new(),
        };
        let built = machine.build();
        built
            .requirements
            .find(key)
            .and_then(Requirement::single_value)
            .map(str::to_owned)
    }

    #[test]
    fn example_24_labels_of_kwok_types() {
        for (name, size, family) in [
            ("c-4x-amd64-linux", "4", "c"),
            ("m5.large", "large", "m5"),
            ("m5.24xlarge", "24xlarge", "m5"),
            ("m5.xlarge", "xlarge", "m5"),
            ("m5.metal", "metal", "m5"),
            ("m5.metal-24xl", "4", "m5"),
            ("m5.huge", "4", "m5"),
            ("standard", "4", "s"),
            ("äb", "4", "ä"),
        ] {
            assert_eq!(label(name, keys::INSTANCE_SIZE).as_deref(), Some(size), "{name}");
            assert_eq!(
                label(name, keys::INSTANCE_FAMILY).as_deref(),
                Some(family),
                "{name}"
            );
            assert_eq!(label(name, keys::INSTANCE_CPU).as_deref(), Some("4"));
            assert_eq!(label(name, keys::INSTANCE_MEMORY).as_deref(), Some("8Gi"));
        }
    }
}
