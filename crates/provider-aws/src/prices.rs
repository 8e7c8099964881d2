//! Prices (A4.2, A4.3): the table in the program, what the pricing API says, the history of spot prices, and what NodeOverlays say of types that none of
//! these knows.
//!
//! Owns which price counts. It never asks for prices.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::Value;
use spokeshave_api::conditions::{Conditioned as _, VALIDATION_SUCCEEDED};
use spokeshave_api::{NodeOverlay, Operator, labels as api};
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
    /// By type: instead of a price that nobody knows.
    overlaid: BTreeMap<String, Price>,
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
            ..Prices::default()
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

    /// The price that a NodeOverlay gives to a type of which no other is known.
    #[must_use]
    pub fn overlaid(&self, instance_type: &str) -> Option<Price> {
        self.overlaid.get(instance_type).copied()
    }

    /// Takes over on-demand prices. What the answer leaves out keeps its last price (A-052): price lists lag behind.
    pub fn set_on_demand(&mut self, prices: BTreeMap<String, Price>) {
        let is_news = |(name, price): (&String, &Price)| self.on_demand.get(name) != Some(price);
        if prices.iter().any(is_news) {
            self.on_demand.extend(prices);
            self.version += 1;
        }
    }

    /// Takes over a history of spot prices: the newest entry of each type and zone counts. Zones that the answer leaves out keep their last price.
    pub fn set_spot(&mut self, history: impl IntoIterator<Item = SpotPrice>) {
        let mut newest: BTreeMap<String, BTreeMap<String, (Timestamp, Price)>> = BTreeMap::new();
        for entry in history {
            let zones = newest.entry(entry.instance_type).or_default();
            let known = zones.entry(entry.zone).or_insert((entry.time, entry.price));
            if known.0 < entry.time {
                *known = (entry.time, entry.price);
            }
        }
        if newest.is_empty() {
            return;
        }
        let mut is_news = self.spot.is_none();
        let spot = self.spot.get_or_insert_default();
        for (name, zones) in newest {
            let known = spot.entry(name).or_default();
            for (zone, (_, price)) in zones {
                is_news |= known.insert(zone, price) != Some(price);
            }
        }
        self.version += u64::from(is_news);
    }

    /// Takes over what NodeOverlays say.
    pub fn set_overlaid(&mut self, prices: BTreeMap<String, Price>) {
        if prices != self.overlaid {
            self.overlaid = prices;
            self.version += 1;
        }
    }

    /// A number that differs whenever a price has changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// Prices that NodeOverlays give to types by name: those that are valid, and that require nothing but the type, as upstream takes them (A4.1). Of several for
/// a type the heaviest counts. Whatever else overlays say is core's.
#[must_use]
pub fn of_overlays<'a>(overlays: impl IntoIterator<Item = &'a NodeOverlay>) -> BTreeMap<String, Price> {
    let mut valid: Vec<(i32, Price, &[String])> = Vec::new();
    for overlay in overlays {
        let [of_type] = &overlay.spec.requirements[..] else {
            continue;
        };
        let price = overlay.spec.price.as_deref().map(str::parse::<Price>);
        if let Some(Ok(price)) = price
            && of_type.key == api::INSTANCE_TYPE
            && of_type.operator == Operator::In
            && overlay.is_true(VALIDATION_SUCCEEDED)
        {
            valid.push((overlay.spec.weight.unwrap_or(0), price, &of_type.values[..]));
        }
    }
    valid.sort_by_key(|(weight, ..)| *weight);
    let prices = valid.into_iter();
    let prices = prices.flat_map(|(_, price, names)| names.iter().map(move |name| (name.clone(), price)));
    prices.collect()
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
    use serde_json::json;

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
        prices.set_spot([
            spot("m5.large", "a", 30, "0.02"),
            spot("m5.xlarge", "a", 30, "0.07"),
        ]);
        assert_eq!(prices.spot("m5.large", "a"), Some("0.02".parse().unwrap()));
        assert_eq!(
            prices.spot("m5.large", "b"),
            Some("0.04".parse().unwrap()),
            "it was left out"
        );
        assert_eq!(prices.version(), 2);
        prices.set_spot([spot("m5.large", "a", 40, "0.02")]);
        assert_eq!(prices.version(), 2, "nothing is new");
    }

    #[test]
    fn a_050_overlays_give_prices_to_types_that_they_name_and_nothing_else() {
        let overlay = |weight: i32, mut spec: Value| {
            spec["weight"] = weight.into();
            let mut overlay = NodeOverlay::new("overlay", serde_json::from_value(spec).unwrap());
            overlay.set_true(VALIDATION_SUCCEEDED, Timestamp::UNIX_EPOCH);
            overlay
        };
        let of = |names: &[&str]| json!([{"key": api::INSTANCE_TYPE, "operator": "In", "values": names}]);
        let zone = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]});
        let mut two = of(&["zonal.large"]);
        two.as_array_mut().unwrap().push(zone);
        let not_in = json!([{"key": api::INSTANCE_TYPE, "operator": "NotIn", "values": ["other.large"]}]);
        let mut refused = overlay(9, json!({"requirements": of(&["refused.large"]), "price": "1"}));
        refused.status = None;
        let overlays = [
            overlay(
                5,
                json!({"requirements": of(&["new.large", "new.xlarge"]), "price": "1.20"}),
            ),
            overlay(1, json!({"requirements": of(&["new.large"]), "price": "9"})),
            overlay(9, json!({"requirements": two, "price": "1"})),
            overlay(9, json!({"requirements": not_in, "price": "1"})),
            overlay(
                9,
                json!({"requirements": of(&["adjusted.large"]), "priceAdjustment": "+1"}),
            ),
            refused,
        ];
        let price = || "1.20".parse().unwrap();
        let expected = ["new.large", "new.xlarge"].map(|name| (name.to_owned(), price()));
        assert_eq!(of_overlays(&overlays), BTreeMap::from(expected));
        let mut prices = Prices::built_in("us-east-1");
        prices.set_overlaid(of_overlays(&overlays));
        assert_eq!(
            (prices.overlaid("new.large"), prices.version()),
            (Some(price()), 1)
        );
        assert_eq!(
            prices.on_demand("new.large"),
            None,
            "reservations are not priced by it"
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
        let table = Prices::built_in("us-east-1");
        assert_eq!(
            prices.on_demand("m5.metal"),
            table.on_demand("m5.metal"),
            "the answer left it out"
        );
        assert!(prices.on_demand("m5.metal").is_some());
    }

    #[test]
    fn regions_of_other_partitions_have_tables_of_their_own() {
        let china = Prices::built_in("cn-north-1").on_demand("m5.large");
        assert!(china.is_some() && china != Prices::built_in("us-east-1").on_demand("m5.large"));
    }
}
