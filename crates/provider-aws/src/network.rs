//! Facts about the network of instance types that EC2's API does not tell as numbers (A1.7, A3.2), from `data/network.tsv`.
//!
//! A type that is not in the table has no bandwidth label, no branch interfaces and no addresses for Windows pods.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Facts about one instance type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkFacts {
    /// Bandwidth in Mbit/s.
    pub bandwidth_mbps: Option<i64>,
    /// Branch network interfaces, where the type can have them.
    pub branch_interfaces: Option<i64>,
    /// IPv4 addresses of an interface.
    pub ipv4_addresses_per_interface: Option<i64>,
}

static FACTS: LazyLock<BTreeMap<&'static str, NetworkFacts>> = LazyLock::new(|| {
    let rows = include_str!("../data/network.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| {
        let mut columns = line.split('\t');
        let name = columns.next()?;
        let mut number = || columns.next().and_then(|text| text.parse().ok());
        Some((
            name,
            NetworkFacts {
                bandwidth_mbps: number(),
                branch_interfaces: number(),
                ipv4_addresses_per_interface: number(),
            },
        ))
    })
    .collect()
});

/// What is known about an instance type; nothing when it is not in the table.
#[must_use]
pub fn facts(instance_type: &str) -> NetworkFacts {
    FACTS.get(instance_type).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_and_without_numbers() {
        assert_eq!(
            facts("m5.large"),
            NetworkFacts {
                bandwidth_mbps: Some(750),
                branch_interfaces: Some(9),
                ipv4_addresses_per_interface: Some(10)
            }
        );
        assert_eq!(
            facts("t1.micro").bandwidth_mbps,
            None,
            "AWS gives only the word \"Very Low\""
        );
        assert_eq!(facts("no.such"), NetworkFacts::default());
        assert!(FACTS.len() > 1_300);
    }
}
