//! Prices (Z5): the table in the program, and what the retail price API says.
//!
//! Owns which price counts. It never asks for prices.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use spokeshave_model::{CapacityType, Price};

/// Version of the API whose replies are read here.
pub const API_VERSION: &str = "2023-01-01-preview";

/// Known sizes with their price in eastus.
static KNOWN: LazyLock<BTreeMap<&'static str, Option<Price>>> = LazyLock::new(|| {
    let rows = include_str!("../data/known_sizes.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'));
    rows.skip(1)
        .filter_map(|row| {
            let mut cells = row.split('\t');
            let (name, price) = (cells.next()?, cells.nth(1)?);
            Some((name, price.parse().ok()))
        })
        .collect()
});

/// Whether a size is known to work as a node.
#[must_use]
pub fn is_known(size: &str) -> bool {
    KNOWN.contains_key(size)
}

/// What the API is asked for a region: `$filter`, without encoding.
#[must_use]
pub fn filter(region: &str) -> String {
    format!(
        "priceType eq 'Consumption' and currencyCode eq 'USD' and serviceFamily eq 'Compute' and serviceName eq 'Virtual Machines' and armRegionName eq '{}'",
        region.replace('\'', "")
    )
}

/// A page of the API's reply.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Page {
    /// Prices.
    pub items: Vec<Item>,
    /// Address of the next page; empty or absent on the last.
    pub next_page_link: Option<String>,
}

/// A price.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Name of the size.
    #[serde(default)]
    pub arm_sku_name: String,
    /// Region.
    #[serde(default)]
    pub arm_region_name: String,
    /// Such as `D4s v5 Spot`.
    #[serde(default)]
    pub sku_name: String,
    /// Such as `D4s v5 Low Priority`.
    #[serde(default)]
    pub meter_name: String,
    /// Such as `Virtual Machines Dsv5 Series Windows`.
    #[serde(default)]
    pub product_name: String,
    /// Price.
    pub retail_price: serde_json::Number,
    /// What it is for, `1 Hour` for machines.
    #[serde(default)]
    pub unit_of_measure: String,
}

/// What sizes cost in one region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    on_demand: BTreeMap<String, Price>,
    spot: BTreeMap<String, Price>,
    version: u64,
}

impl Prices {
    /// The table of the program: on-demand prices of eastus. There are no spot prices in it: until the API names one, spot counts as on-demand.
    #[must_use]
    pub fn built_in() -> Self {
        Prices {
            on_demand: KNOWN
                .iter()
                .filter_map(|(name, price)| Some(((*name).to_owned(), (*price)?)))
                .collect(),
            ..Prices::default()
        }
    }

    /// What a size costs an hour, [`Price::UNKNOWN`] when nobody says or the size is not known to work. Spot capacity without a price of its own has that of
    /// on-demand capacity, which it never exceeds.
    #[must_use]
    pub fn price(&self, size: &str, capacity_type: CapacityType) -> Price {
        let spot = match capacity_type {
            CapacityType::Spot => self.spot.get(size),
            CapacityType::OnDemand | CapacityType::Reserved => None,
        };
        spot.or_else(|| self.on_demand.get(size))
            .copied()
            .filter(|_| is_known(size))
            .unwrap_or(Price::UNKNOWN)
    }

    /// Changes whenever a price does.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes what the API has said over, any number of pages of it. What it does not name keeps its price. Returns whether anything changed.
    pub fn update(&mut self, items: &[Item]) -> bool {
        let mut changed = false;
        for (name, capacity_type, price) in items.iter().filter_map(read) {
            let prices = match capacity_type {
                CapacityType::Spot => &mut self.spot,
                CapacityType::OnDemand | CapacityType::Reserved => &mut self.on_demand,
            };
            changed |= prices.insert(name.to_owned(), price) != Some(price);
        }
        self.version += u64::from(changed);
        changed
    }
}

/// The price of an item that is one of a Linux machine per hour.
fn read(item: &Item) -> Option<(&str, CapacityType, Price)> {
    if item.arm_sku_name.is_empty()
        || item.product_name.ends_with(" Windows")
        || item.meter_name.ends_with(" Low Priority")
        || !(item.unit_of_measure.is_empty() || item.unit_of_measure == "1 Hour")
    {
        return None;
    }
    let price: Price = item.retail_price.to_string().parse().ok()?;
    if price <= Price::ZERO {
        return None;
    }
    let capacity_type = if item.sku_name.ends_with(" Spot") {
        CapacityType::Spot
    } else {
        CapacityType::OnDemand
    };
    Some((&item.arm_sku_name, capacity_type, price))
}
