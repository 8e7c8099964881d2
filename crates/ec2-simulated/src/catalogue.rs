//! What is for sale: instance types with their zones, and what they cost on demand.
//!
//! Owns the table of facts in `data/`. Nothing in it is made up; spot prices, which are, stand in [`market`](crate::market).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;
use spokeshave_model::Price;
use spokeshave_provider_aws::describe::InstanceTypeInfo;
use spokeshave_provider_aws::offerings::Region;
use spokeshave_provider_aws::prices::Prices;

/// The region whose zones and prices the table has.
pub const REGION: &str = "us-east-1";

/// Zones of the table, with the IDs that they have in the simulated account.
pub(crate) const ZONES: [(&str, &str); 4] = [
    ("us-east-1a", "use1-az1"),
    ("us-east-1b", "use1-az2"),
    ("us-east-1c", "use1-az4"),
    ("us-east-1d", "use1-az6"),
];

#[derive(Deserialize)]
struct Row {
    #[serde(rename = "Zones")]
    zones: String,
    #[serde(flatten)]
    info: InstanceTypeInfo,
}

static BUILT_IN: LazyLock<Catalogue> = LazyLock::new(|| {
    let rows = include_str!("../data/instance_types.jsonl")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let rows = rows.filter_map(|line| serde_json::from_str::<Row>(line).ok());
    Catalogue::of(rows.map(|row| {
        let zones = row.zones.chars().map(|zone| format!("{REGION}{zone}"));
        (zones.collect(), row.info)
    }))
});

/// Instance types by name, with the zones that have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Catalogue {
    pub(crate) types: BTreeMap<String, InstanceTypeInfo>,
    pub(crate) zones: BTreeMap<String, BTreeSet<String>>,
}

impl Catalogue {
    pub(crate) fn built_in() -> &'static Catalogue {
        &BUILT_IN
    }

    fn of(rows: impl Iterator<Item = (BTreeSet<String>, InstanceTypeInfo)>) -> Self {
        let mut catalogue = Catalogue::default();
        for (zones, info) in rows {
            catalogue.zones.insert(info.instance_type.clone(), zones);
            catalogue.types.insert(info.instance_type.clone(), info);
        }
        catalogue
    }

    pub(crate) fn is_sold_in(&self, instance_type: &str, zone: &str) -> bool {
        self.zones
            .get(instance_type)
            .is_some_and(|zones| zones.contains(zone))
    }
}

/// The table as a region: [`REGION`] with its instance types and the zones that have each.
#[must_use]
pub fn facts() -> Region {
    let catalogue = Catalogue::built_in();
    Region {
        name: REGION.to_owned(),
        types: catalogue.types.clone(),
        zones: catalogue.zones.clone(),
    }
}

/// On-demand prices of the region.
pub(crate) fn on_demand(instance_type: &str) -> Option<Price> {
    static PRICES: LazyLock<Prices> = LazyLock::new(|| Prices::built_in(REGION));
    PRICES.on_demand(instance_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_read_and_every_type_has_a_price_a_zone_and_an_architecture() {
        let catalogue = Catalogue::built_in();
        let rows = include_str!("../data/instance_types.jsonl").lines();
        assert_eq!(
            catalogue.types.len(),
            rows.filter(|row| !row.starts_with('#')).count()
        );
        assert!(catalogue.types.len() >= 300, "{}", catalogue.types.len());
        let mut generations = BTreeSet::new();
        for (name, info) in &catalogue.types {
            assert!(on_demand(name).is_some(), "{name} has no price");
            assert!(!catalogue.zones[name].is_empty(), "{name} has no zone");
            assert!(
                info.v_cpu_info.default_vcpus > 0 && info.memory_info.size_mib > 0,
                "{name}"
            );
            assert!(!info.network_info.network_cards.is_empty(), "{name}");
            let architectures = info.processor_info.as_ref().map(|it| &it.supported_architectures);
            assert!(architectures.is_some_and(|it| !it.is_empty()), "{name}");
            generations.extend(name.chars().find(char::is_ascii_digit));
        }
        assert!(generations.len() >= 4, "{generations:?}");
        let with = |has: fn(&InstanceTypeInfo) -> bool| catalogue.types.values().filter(|it| has(it)).count();
        assert!(with(|it| it.gpu_info.is_some()) >= 20 && with(|it| it.neuron_info.is_some()) >= 5);
    }
}
