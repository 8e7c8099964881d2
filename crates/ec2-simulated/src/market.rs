//! How much of each offering there is, and what spot capacity costs.
//!
//! Owns capacity by (type, zone, capacity type) and the movement of spot prices, which is made up: a share of the on-demand price that differs
//! between zones and moves every hour. The same seed gives the same prices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::hash::digest;
use spokeshave_model::{CapacityType, Price};

use crate::catalogue;
use crate::filters::is_like;

/// How long a spot price stays.
const SPOT_PERIOD_SECONDS: i64 = 3600;
/// The least and the most that spot capacity costs, in thousandths of the on-demand price.
const SPOT_SHARE: (u64, u64) = (280, 620);
/// How far a price moves around its zone's usual one, in thousandths.
const SPOT_MOVEMENT: u64 = 80;

/// An offering.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pool {
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// How it is bought.
    pub capacity_type: CapacityType,
}

/// Offerings as a pattern: `TYPE/ZONE/CAPACITY-TYPE`, in which `*` stands for any text; what is left out stands for all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolPattern {
    instance_type: String,
    zone: String,
    capacity_type: String,
}

impl PoolPattern {
    fn matches(&self, pool: &Pool) -> bool {
        is_like(&self.instance_type, &pool.instance_type)
            && is_like(&self.zone, &pool.zone)
            && is_like(&self.capacity_type, pool.capacity_type.as_str())
    }
}

/// A text that is no pattern of offerings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPattern(String);

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no pattern of offerings; expected TYPE/ZONE/CAPACITY-TYPE such as m5.*/us-east-1a/spot",
            self.0
        )
    }
}

impl std::error::Error for BadPattern {}

impl FromStr for PoolPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        let mut parts = text.trim().split('/').map(str::trim);
        let mut next = || {
            parts
                .next()
                .filter(|part| !part.is_empty())
                .unwrap_or("*")
                .to_owned()
        };
        let pattern = PoolPattern {
            instance_type: next(),
            zone: next(),
            capacity_type: next(),
        };
        let known = ["on-demand", "spot", "reserved"];
        let is_known = known.iter().any(|name| is_like(&pattern.capacity_type, name));
        if text.trim().is_empty() || parts.next().is_some() || !is_known {
            return Err(BadPattern(text.to_owned()));
        }
        Ok(pattern)
    }
}

/// What there is of each offering.
#[derive(Clone, Debug, Default)]
pub(crate) struct Market {
    /// The last rule that matches an offering says how many instances it has; without one there is no end of them.
    limits: Vec<(PoolPattern, u32)>,
    used: BTreeMap<Pool, u32>,
    dark: BTreeSet<String>,
    /// Types that no spot price is told of.
    unpriced: BTreeSet<String>,
    seed: u64,
}

impl Market {
    /// From now on no spot price of a type is told.
    pub(crate) fn forget_price(&mut self, instance_type: &str) {
        self.unpriced.insert(instance_type.to_owned());
    }

    pub(crate) fn new(seed: u64) -> Self {
        Market {
            seed,
            ..Market::default()
        }
    }

    pub(crate) fn limit(&mut self, pattern: PoolPattern, instances: u32) {
        self.limits.retain(|(known, _)| *known != pattern);
        self.limits.push((pattern, instances));
    }

    pub(crate) fn unlimited(&mut self) {
        self.limits.clear();
    }

    /// Takes a zone out, or brings it back.
    pub(crate) fn set_outage(&mut self, zone: &str, is_out: bool) {
        if is_out {
            self.dark.insert(zone.to_owned());
        } else {
            self.dark.remove(zone);
        }
    }

    /// How many more instances of an offering there are.
    pub(crate) fn left(&self, pool: &Pool) -> u32 {
        if self.dark.contains(&pool.zone) {
            return 0;
        }
        let limit = self
            .limits
            .iter()
            .rev()
            .find(|(pattern, _)| pattern.matches(pool));
        let used = self.used.get(pool).copied().unwrap_or_default();
        limit.map_or(u32::MAX, |(_, most)| most.saturating_sub(used))
    }

    pub(crate) fn take(&mut self, pool: &Pool) {
        *self.used.entry(pool.clone()).or_default() += 1;
    }

    pub(crate) fn give_back(&mut self, pool: &Pool) {
        if let Some(used) = self.used.get_mut(pool) {
            *used = used.saturating_sub(1);
        }
    }

    /// What spot capacity of a type costs in a zone, and since when.
    pub(crate) fn spot_price(
        &self,
        instance_type: &str,
        zone: &str,
        now: Timestamp,
    ) -> Option<(Price, Timestamp)> {
        if self.unpriced.contains(instance_type) {
            return None;
        }
        let on_demand = catalogue::on_demand(instance_type)?;
        let step = now.as_second().div_euclid(SPOT_PERIOD_SECONDS);
        let seed = self.seed;
        let (least, most) = SPOT_SHARE;
        let usual = least + digest(&format!("{seed}/{instance_type}/{zone}")) % (most - least);
        let movement = digest(&format!("{seed}/{instance_type}/{zone}/{step}")) % (2 * SPOT_MOVEMENT);
        let share = i64::try_from(usual + movement).unwrap_or_default()
            - i64::try_from(SPOT_MOVEMENT).unwrap_or_default();
        let price = Price::from_dollars(on_demand.dollars() * (share as f64) / 1000.0);
        let since = now - SignedDuration::from_secs(now.as_second().rem_euclid(SPOT_PERIOD_SECONDS));
        Some((price, since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(instance_type: &str, zone: &str, capacity_type: CapacityType) -> Pool {
        Pool {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity_type,
        }
    }

    #[test]
    fn patterns_are_read_and_nonsense_is_named() {
        for (text, matches) in [
            ("m5.*/us-east-1a/spot", true),
            ("m5.large", true),
            ("*/*/spot", true),
            ("c5.*//", false),
        ] {
            let pattern: PoolPattern = text.parse().unwrap();
            assert_eq!(
                pattern.matches(&pool("m5.large", "us-east-1a", CapacityType::Spot)),
                matches,
                "{text}"
            );
        }
        for text in ["", "a/b/c/d", "m5.large/us-east-1a/cheap"] {
            let error = text.parse::<PoolPattern>().unwrap_err().to_string();
            assert!(error.contains("expected TYPE/ZONE/CAPACITY-TYPE"), "{error}");
        }
    }

    #[test]
    fn capacity_runs_out_comes_back_and_goes_with_its_zone() {
        let mut market = Market::new(1);
        let one = pool("m5.large", "us-east-1a", CapacityType::Spot);
        assert_eq!(market.left(&one), u32::MAX);
        market.limit("m5.large/*/spot".parse().unwrap(), 1);
        market.take(&one);
        assert_eq!(market.left(&one), 0);
        assert_eq!(
            market.left(&pool("m5.large", "us-east-1b", CapacityType::Spot)),
            1
        );
        market.give_back(&one);
        assert_eq!(market.left(&one), 1);
        market.set_outage("us-east-1a", true);
        assert_eq!(market.left(&one), 0);
        market.set_outage("us-east-1a", false);
        market.unlimited();
        assert_eq!(market.left(&one), u32::MAX);
    }

    #[test]
    fn spot_prices_move_by_the_hour_and_stay_below_on_demand() {
        let market = Market::new(7);
        let at = |text: &str| {
            market
                .spot_price("m5.large", "us-east-1a", text.parse().unwrap())
                .unwrap()
        };
        let (price, since) = at("2026-01-01T10:20:00Z");
        assert_eq!(
            (price, since.to_string()),
            (at("2026-01-01T10:59:59Z").0, "2026-01-01T10:00:00Z".to_owned())
        );
        assert_ne!(price, at("2026-01-01T11:00:00Z").0);
        assert!(price < catalogue::on_demand("m5.large").unwrap() && price > Price(0));
        assert!(market.spot_price("no.such", "us-east-1a", since).is_none());
    }
}
