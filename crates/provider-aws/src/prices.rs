//! Prices (A4.2, A4.3): the table in the program, what the pricing API says, and the history of spot prices.
//!
//! Owns which price counts. It never asks for prices.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::Value;
use spokeshave_model::Price;

/// The region whose table stands in for regions without one.
const FALLBACK_REGION: &str = "us-east-1";

type RegionPrices = BTreeMap<&'static str, Price>;

static BUILT_IN: LazyLock<BTreeMap<&'static str, RegionPrices>> = LazyLock::new(|| {
    let mut regions: BTreeMap<&str, RegionPrices> = BTreeMap::new();
    let rows = include_str!("../data/on_demand_prices.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'));
    for row in rows {
        let mut columns = row.split('\t');
        if let (Some(region), Some(name), Some(Ok(price))) =
            (columns.next(), columns.next(), columns.next().map(str::parse))
        {
            regions.entry(region).or_default().insert(name, price);
        }
    }
    regions
});

/// What instance types cost in one region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    on_demand: BTreeMap<String, Price>,
    /// By type and zone; `None` before the first answer.
    spot: Option<BTreeMap<String, BTreeMap<String, Price>>>,
    version: u64,
}

impl Prices {
    /// The table of the program for a region; that of us-east-1 where it has none.
    #[must_use]
    pub fn built_in(region: &str) -> Self {
        let table = BUILT_IN.get(region).or_else(|| BUILT_IN.get(FALLBACK_REGION));
        let on_demand = table.into_iter().flatten();
        Prices {
            on_demand: on_demand
                .map(|(name, price)| ((*name).to_owned(), *price))
                .collect(),
            spot: None,
            version: 0,
        }
    }

    /// Whether the program has a table of a region's own.
    #[must_use]
    pub fn has_table(region: &str) -> bool {
        BUILT_IN.contains_key(region)
    }

    /// The on-demand price of a type.
    #[must_use]
    pub fn on_demand(&self, instance_type: &str) -> Option<Price> {
        self.on_demand.get(instance_type).copied()
    }

    /// The spot price of a type in a zone. Before the first answer it is the on-demand price; after it, a zone without an entry has none.
    #[must_use]
    pub fn spot(&self, instance_type: &str, zone: &str) -> Option<Price> {
        match &self.spot {
            None => self.on_demand(instance_type),
            Some(spot) => spot.get(instance_type)?.get(zone).copied(),
        }
    }

    /// Takes over on-demand prices. An answer without any keeps the last table (A-052).
    pub fn set_on_demand(&mut self, prices: BTreeMap<String, Price>) {
        if !prices.is_empty() && prices != self.on_demand {
            self.on_demand = prices;
            self.version += 1;
        }
    }

    /// Takes over a history of spot prices: the newest entry of each type and zone counts. An answer without any keeps the last table.
    pub fn set_spot(&mut self, history: impl IntoIterator<Item = SpotPrice>) {
        let mut newest: BTreeMap<String, BTreeMap<String, (Timestamp, Price)>> = BTreeMap::new();
        for entry in history {
            let zones = newest.entry(entry.instance_type).or_default();
            let known = zones.entry(entry.zone).or_insert((entry.time, entry.price));
            if known.0 < entry.time {
                *known = (entry.time, entry.price);
            }
        }
        let spot: BTreeMap<_, BTreeMap<_, _>> = newest
            .into_iter()
            .map(|(name, zones)| {
                let prices = zones.into_iter().map(|(zone, (_, price))| (zone, price));
                (name, prices.collect())
            })
            .collect();
        if !spot.is_empty() && self.spot.as_ref() != Some(&spot) {
            self.spot = Some(spot);
            self.version += 1;
        }
    }

    /// A number that differs whenever a price has changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// One entry of the history of spot prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpotPrice {
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// Since when.
    pub time: Timestamp,
    /// The price.
    pub price: Price,
}

/// The region of the pricing API for a region of instances (A4.2).
#[must_use]
pub fn pricing_region(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("ap") => "ap-south-1",
        Some("cn") => "cn-northwest-1",
        Some("eu") => "eu-central-1",
        _ => "us-east-1",
    }
}

/// One entry of GetProducts: (instance type, price). `None` when it is not an on-demand price of an instance type.
#[must_use]
pub fn parse_product(entry: &str, region: &str) -> Option<(String, Price)> {
    let entry: Value = serde_json::from_str(entry).ok()?;
    let name = entry.pointer("/product/attributes/instanceType")?.as_str()?;
    let currency = if region.starts_with("cn-") { "CNY" } else { "USD" };
    let terms = entry.pointer("/terms/OnDemand")?.as_object()?;
    let dimensions = terms
        .values()
        .filter_map(|term| term.get("priceDimensions")?.as_object());
    let prices = dimensions
        .flat_map(|dimensions| dimensions.values())
        .filter_map(|dimension| {
            let text = dimension.get("pricePerUnit")?.get(currency)?.as_str()?;
            text.parse::<Price>().ok().filter(|price| *price > Price(0))
        });
    prices.max().map(|price| (name.to_owned(), price))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(name: &str, zone: &str, second: i64, dollars: &str) -> SpotPrice {
        SpotPrice {
            instance_type: name.into(),
            zone: zone.into(),
            time: Timestamp::from_second(second).unwrap(),
            price: dollars.parse().unwrap(),
        }
    }

    #[test]
    fn a_054_spot_prices_are_the_newest_of_a_zone_and_on_demand_before_the_first_answer() {
        let mut prices = Prices::built_in("us-west-2");
        let on_demand = prices.on_demand("m5.large");
        assert_eq!(on_demand, Some("0.096".parse().unwrap()));
        assert_eq!(prices.spot("m5.large", "a"), on_demand);
        prices.set_spot([
            spot("m5.large", "a", 20, "0.03"),
            spot("m5.large", "a", 10, "0.09"),
            spot("m5.large", "b", 1, "0.04"),
        ]);
        assert_eq!(prices.spot("m5.large", "a"), Some("0.03".parse().unwrap()));
        assert_eq!(prices.spot("m5.large", "b"), Some("0.04".parse().unwrap()));
        assert_eq!(prices.spot("m5.large", "c"), None, "no entry, no offering");
        assert_eq!(prices.version(), 1);
        prices.set_spot([]);
        assert_eq!(
            (prices.version(), prices.spot("m5.large", "b").is_some()),
            (1, true),
            "an empty answer keeps the table"
        );
    }

    #[test]
    fn a_052_prices_of_the_api_are_read_and_an_empty_answer_keeps_the_table() {
        let product = |currency: &str| {
            format!(
                r#"{{"product": {{"attributes": {{"instanceType": "m5.large"}}}}, "terms": {{"OnDemand": {{"A.B": {{"priceDimensions": {{"A.B.C": {{"unit": "Hrs", "pricePerUnit": {{"{currency}": "0.1070000000"}}}}}}}}}}}}}}"#
            )
        };
        let price = ("m5.large".to_owned(), "0.107".parse().unwrap());
        assert_eq!(parse_product(&product("USD"), "eu-west-1"), Some(price.clone()));
        assert_eq!(parse_product(&product("CNY"), "cn-north-1"), Some(price.clone()));
        assert_eq!(parse_product(&product("CNY"), "eu-west-1"), None);
        assert_eq!(parse_product("no JSON", "eu-west-1"), None);
        assert_eq!(parse_product("{}", "eu-west-1"), None);
        for (region, expected) in [
            ("ap-northeast-1", "ap-south-1"),
            ("cn-north-1", "cn-northwest-1"),
            ("eu-west-1", "eu-central-1"),
            ("us-west-2", "us-east-1"),
            ("sa-east-1", "us-east-1"),
        ] {
            assert_eq!(pricing_region(region), expected);
        }
        let mut prices = Prices::built_in("mars-north-1");
        assert_eq!(
            prices.on_demand("m5.large"),
            Prices::built_in("us-east-1").on_demand("m5.large")
        );
        prices.set_on_demand(BTreeMap::new());
        assert_eq!(prices.version(), 0);
        prices.set_on_demand(BTreeMap::from([price]));
        assert_eq!(
            (prices.version(), prices.on_demand("m5.large")),
            (1, Some("0.107".parse().unwrap()))
        );
    }

    #[test]
    fn regions_of_other_partitions_have_tables_of_their_own() {
        let china = Prices::built_in("cn-north-1").on_demand("m5.large");
        assert!(china.is_some() && china != Prices::built_in("us-east-1").on_demand("m5.large"));
    }
}
