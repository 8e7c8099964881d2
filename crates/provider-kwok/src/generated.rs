//! The built-in instance types, by rule (P §14.1): 12 sizes × 3 memory ratios × 2 operating systems × 2 architectures.

use spokeshave_api::labels;
use spokeshave_model::{CapacityType, InstanceType, Offering, Price, Requirement, ResourceName, Resources};

use crate::instance_type::Machine;

const CPUS: [i64; 12] = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256];
/// GiB of memory per vCPU, with the letter of the family.
const RATIOS: [(i64, char); 3] = [(2, 'c'), (4, 's'), (8, 'm')];
const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
const MOST_PODS: i64 = 1024;

/// The 144 types in order of name; each has eight offerings: four zones, spot and on-demand.
#[must_use]
pub fn instance_types() -> Vec<InstanceType> {
    let mut types = Vec::with_capacity(144);
    for cpu in CPUS {
        for (ratio, family) in RATIOS {
            for os in ["linux", "windows"] {
                for architecture in ["amd64", "arm64"] {
                    let name = format!("{family}-{cpu}x-{architecture}-{os}");
                    types.push(machine(&name, architecture, os, cpu, cpu * ratio * (1 << 30)));
                }
            }
        }
    }
    types.sort_by(|a, b| a.name.cmp(&b.name));
    types
}

fn machine(name: &str, architecture: &str, os: &str, cpu: i64, memory_bytes: i64) -> InstanceType {
    let offerings = ZONES.iter().flat_map(|zone| {
        [CapacityType::Spot, CapacityType::OnDemand].map(|capacity_type| Offering {
            requirements: [
                Requirement::is(labels::CAPACITY_TYPE, capacity_type.as_str()),
                Requirement::is(labels::ZONE, zone),
            ]
            .into_iter()
            .collect(),
            price: price(cpu, memory_bytes, capacity_type),
            available: true,
            ..Offering::default()
        })
    });
    Machine {
        name,
        architecture,
        operating_systems: vec![os.to_owned()],
        capacity: Resources::from_amounts([
            (ResourceName::CPU, cpu * 1000),
            (ResourceName::MEMORY, memory_bytes),
            (ResourceName::EPHEMERAL_STORAGE, 20 << 30),
            (ResourceName::PODS, (16 * cpu).clamp(0, MOST_PODS)),
        ]),
        offerings: offerings.collect(),
    }
    .build()
}

/// 0.025 dollars per vCPU and 0.001 per 10⁹ bytes; spot is 0.7 of it. Exact, then rounded to the nano-dollar.
fn price(cpu: i64, memory_bytes: i64, capacity_type: CapacityType) -> Price {
    let pico_dollars = cpu * 25_000_000_000 + memory_bytes;
    let tenths = if capacity_type == CapacityType::Spot {
        7
    } else {
        10
    };
    Price((pico_dollars * tenths + 5_000) / 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str) -> InstanceType {
        instance_types()
            .into_iter()
            .find(|it| it.name == name)
            .expect("a built-in type")
    }

    #[test]
    fn p_201_there_are_144_types_with_eight_offerings_each() {
        let types = instance_types();
        assert_eq!(types.len(), 144);
        assert!(types.is_sorted_by(|a, b| a.name < b.name));
        assert!(types.iter().all(|it| it.offerings.len() == 8));
    }

    #[test]
    fn p_201_sizes_and_overhead() {
        let small = find("c-1x-amd64-linux");
        assert_eq!(
            small.capacity.to_json_text(),
            r#"{"cpu":"1","ephemeral-storage":"20Gi","memory":"2Gi","pods":"16"}"#
        );
        assert_eq!(
            small.allocatable().to_json_text(),
            r#"{"cpu":"900m","ephemeral-storage":"20Gi","memory":"2038Mi","pods":"16"}"#
        );
        let large = find("m-256x-arm64-windows");
        assert_eq!(
            large.capacity.to_json_text(),
            r#"{"cpu":"256","ephemeral-storage":"20Gi","memory":"2Ti","pods":"1024"}"#
        );
        let memory = large
            .requirements
            .find(crate::keys::INSTANCE_MEMORY)
            .and_then(Requirement::single_value);
        assert_eq!(memory, Some("2Ti"));
    }

    #[test]
    fn p_201_prices_are_exact_to_the_nano_dollar() {
        let small = find("c-1x-amd64-linux");
        assert_eq!(
            small.price_of("test-zone-a", "on-demand"),
            Some(Price(27_147_484))
        );
        assert_eq!(small.price_of("test-zone-d", "spot"), Some(Price(19_003_239)));
        assert_eq!(small.price_of("test-zone-e", "spot"), None);
    }
}
