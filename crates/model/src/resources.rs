//! Named resource amounts as 64-bit integers: CPU in milli-cores, everything else in its base unit (bytes, counts).
//!
//! `Resources` is the edge form, keyed by name. A Snapshot turns it into vectors of fixed width.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use spokeshave_syntax::QuantityError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of a resource, such as `cpu` or `nvidia.com/gpu`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// `cpu`, counted in milli-cores.
    pub const CPU: &'static str = "cpu";
    /// `memory`, counted in bytes.
    pub const MEMORY: &'static str = "memory";
    /// `ephemeral-storage`, counted in bytes.
    pub const EPHEMERAL_STORAGE: &'static str = "ephemeral-storage";
    /// `pods`, a count.
    pub const PODS: &'static str = "pods";
    /// `nodes`, the pseudo resource that NodePool limits may name (P §8.1).
    pub const NODES: &'static str = "nodes";

    /// Wraps a name.
    pub fn new(name: &str) -> Self {
        ResourceName(Arc::from(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The amount that a quantity's text means for this resource, in its unit, rounded away from zero as Kubernetes does. What 64 bits do not hold is cut, as upstream
    /// does: a capped capacity is safer than a refused node.
    ///
    /// # Errors
    /// The text is not a quantity.
    pub fn parse(name: &str, text: &str) -> Result<i64, QuantityError> {
        let quantity: spokeshave_syntax::Quantity = text.parse()?;
        Ok(if name == Self::CPU {
            quantity.to_milli()
        } else {
            quantity.to_units()
        })
    }

    /// True for huge page sizes, which are carved out of memory (P §3).
    pub fn is_huge_pages(name: &str) -> bool {
        name.starts_with("hugepages-")
    }

    /// One amount of this resource as canonical quantity text.
    pub fn format(name: &str, amount: i64) -> String {
        if name == Self::CPU {
            format_milli(amount)
        } else if name == Self::MEMORY || name.ends_with("ephemeral-storage") || Self::is_huge_pages(name) {
            format_binary(amount)
        } else {
            amount.to_string()
        }
    }
}

/// Formats milli-units in decimal notation: `1500` is `1500m`, `2000` is `2`.
fn format_milli(milli: i64) -> String {
    if milli % 1000 == 0 {
        (milli / 1000).to_string()
    } else {
        format!("{milli}m")
    }
}

/// Formats bytes with the largest binary suffix that divides them exactly: `268435456` is `256Mi`.
fn format_binary(bytes: i64) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut value = bytes;
    let mut index = 0;
    while value != 0 && value % 1024 == 0 && index + 1 < SUFFIXES.len() {
        value /= 1024;
        index += 1;
    }
    let mut text = value.to_string();
    text.push_str(SUFFIXES[index]);
    text
}

impl std::borrow::Borrow<str> for ResourceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ResourceName {
    fn from(name: &str) -> Self {
        ResourceName::new(name)
    }
}

impl std::fmt::Display for ResourceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Amounts by resource name. An absent name means zero; a present zero is kept, because it is part of what the user wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Resources(BTreeMap<ResourceName, i64>);

impl Resources {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// From amounts in base units (CPU in milli-cores).
    pub fn from_amounts<'a>(amounts: impl IntoIterator<Item = (&'a str, i64)>) -> Self {
        Resources(
            amounts
                .into_iter()
                .map(|(name, amount)| (ResourceName::new(name), amount))
                .collect(),
        )
    }

    /// From quantity texts such as `("memory", "2Gi")`.
    pub fn parse<'a>(
        quantities: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, QuantityError> {
        quantities
            .into_iter()
            .map(|(name, text)| Ok((ResourceName::new(name), ResourceName::parse(name, text)?)))
            .collect::<Result<BTreeMap<_, _>, _>>()
            .map(Resources)
    }

    /// From a Kubernetes resource list.
    pub fn from_quantities(quantities: &BTreeMap<String, Quantity>) -> Result<Self, QuantityError> {
        Self::parse(
            quantities
                .iter()
                .map(|(name, quantity)| (name.as_str(), quantity.0.as_str())),
        )
    }

    /// From an optional Kubernetes resource list; an entry that is not a quantity is left out (the API server admits none).
    pub fn from_quantities_lossy(quantities: Option<&BTreeMap<String, Quantity>>) -> Self {
        let parsed = quantities.into_iter().flatten().filter_map(|(name, quantity)| {
            let amount = ResourceName::parse(name, &quantity.0).ok()?;
            Some((ResourceName::new(name), amount))
        });
        Resources(parsed.collect())
    }

    /// As a Kubernetes resource list with canonical quantities.
    pub fn to_quantities(&self) -> BTreeMap<String, Quantity> {
        self.iter()
            .map(|(name, amount)| (name.to_owned(), Quantity(ResourceName::format(name, amount))))
            .collect()
    }

    /// The amount of one resource; zero when absent.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Whether the resource is named at all, even with zero.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Sets one amount.
    pub fn set(&mut self, name: &str, amount: i64) {
        self.0.insert(ResourceName::new(name), amount);
    }

    /// Removes one resource.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Names and amounts in name order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// True when nothing is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many resources are named.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds every amount of `other`, saturating.
    pub fn add(&mut self, other: &Resources) {
        for (name, amount) in &other.0 {
            let entry = self.0.entry(name.clone()).or_insert(0);
            *entry = entry.saturating_add(*amount);
        }
    }

    /// Subtracts the amounts of `other` from the names present here; names only in `other` become negative amounts.
    pub fn subtract(&mut self, other: &Resources) {
        for (name, amount) in &other.0 {
            let entry = self.0.entry(name.clone()).or_insert(0);
            *entry = entry.saturating_sub(*amount);
        }
    }

    /// Takes the larger amount per resource.
    pub fn raise_to(&mut self, other: &Resources) {
        for (name, amount) in &other.0 {
            let entry = self.0.entry(name.clone()).or_insert(*amount);
            *entry = (*entry).max(*amount);
        }
    }

    /// Lets every amount named by `other` replace the one here (offering overrides, P §14).
    pub fn override_with(&mut self, other: &Resources) {
        self.0
            .extend(other.0.iter().map(|(name, amount)| (name.clone(), *amount)));
    }

    /// P §3: whether `self` fits into `total`: false when `total` has a negative entry, otherwise every entry of `self` must
    /// be at most that of `total` (absent = 0).
    pub fn fits(&self, total: &Resources) -> bool {
        total.0.values().all(|amount| *amount >= 0)
            && self
                .0
                .iter()
                .all(|(name, amount)| *amount <= total.get(name.as_str()))
    }

    /// The JSON object that upstream's error texts carry: `{"cpu":"1","memory":"256Mi"}`.
    pub fn to_json_text(&self) -> String {
        let map: BTreeMap<&str, String> = self
            .iter()
            .map(|(name, amount)| (name, ResourceName::format(name, amount)))
            .collect();
        serde_json::to_string(&map).unwrap_or_default()
    }
}

impl FromIterator<(ResourceName, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (ResourceName, i64)>>(iter: I) -> Self {
        Resources(iter.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_refuses_negative_totals_and_accepts_absent_zeroes() {
        let request = Resources::from_amounts([("cpu", 100), ("example.com/a", 0)]);
        assert!(request.fits(&Resources::from_amounts([("cpu", 100)])));
        assert!(!request.fits(&Resources::from_amounts([("cpu", 99)])));
        assert!(!request.fits(&Resources::from_amounts([("cpu", 100), ("memory", -1)])));
    }

    #[test]
    fn quantities_round_trip() {
        let resources = Resources::parse([
            ("cpu", "1500m"),
            ("memory", "2Gi"),
            ("pods", "110"),
            ("nvidia.com/gpu", "2"),
        ]);
        let text = resources.map(|value| value.to_json_text());
        assert_eq!(
            text,
            Ok(r#"{"cpu":"1500m","memory":"2Gi","nvidia.com/gpu":"2","pods":"110"}"#.to_owned())
        );
    }

    #[test]
    fn amounts_are_rounded_up_to_the_unit_and_cut_at_64_bits() {
        for (name, text, expected) in [
            ("cpu", "1", 1000),
            ("cpu", "100n", 1),
            ("cpu", ".5", 500),
            ("memory", "1500m", 2),
            ("memory", "1.5Gi", 1_610_612_736),
            ("memory", "0.5Ki", 512),
            ("memory", "10000000Gi", 10_000_000 << 30),
            ("memory", "8Ei", i64::MAX),
            ("pods", "12e-1", 2),
            ("pods", "0.000000000001", 1),
            ("pods", "9999999999999999999999999", i64::MAX),
            ("pods", "-2Mi", -2_097_152),
        ] {
            assert_eq!(ResourceName::parse(name, text), Ok(expected), "{name} {text}");
        }
        for text in ["", "x", "1.2.3", "1Kb", "--1", "1e", "Gi"] {
            assert!(ResourceName::parse("pods", text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_written_canonically() {
        for (name, amount, expected) in [
            ("cpu", 1500, "1500m"),
            ("cpu", 2000, "2"),
            ("memory", 256 << 20, "256Mi"),
            ("memory", 0, "0"),
            ("memory", 1000, "1000"),
            ("pods", 1000, "1000"),
        ] {
            assert_eq!(ResourceName::format(name, amount), expected);
        }
    }
}
