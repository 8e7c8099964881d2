//! Prices as integer nano-dollars per hour, converted once at the edge. No float takes part in a decision.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A price in nano-dollars per hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Price(pub i64);

/// A price text that is not a decimal number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("price {0:?} is not a decimal number of dollars per hour, such as 0.0425")]
pub struct ParsePriceError(pub String);

const NANOS: i64 = 1_000_000_000;

impl Price {
    /// No cost.
    pub const ZERO: Price = Price(0);
    /// "No offering": sorts after every real price (P §14).
    pub const MAX: Price = Price(i64::MAX);
    /// Of an offering whose price nobody knows: dear enough that it is chosen last (Z4). It orders offerings and is never shown, added up or recorded.
    pub const UNKNOWN: Price = Price(999 * NANOS);

    /// Whether it says what something costs: neither nothing nor [`UNKNOWN`](Self::UNKNOWN).
    pub fn is_known(self) -> bool {
        self > Price::ZERO && self != Price::UNKNOWN
    }

    /// Zero where it is not known, as prices of nodes that nobody knows are.
    pub fn known_or_zero(self) -> Price {
        if self == Price::UNKNOWN { Price::ZERO } else { self }
    }

    /// Whole nano-dollars from dollars per hour. Not-a-number and negative values count as zero, as D-032 asks for unknown prices.
    pub fn from_dollars(dollars: f64) -> Self {
        if dollars.is_nan() || dollars <= 0.0 {
            return Price::ZERO;
        }
        // `as` saturates at the ends, which is what a price beyond nine billion dollars deserves.
        Price((dollars * NANOS as f64).round() as i64)
    }

    /// Dollars per hour, for display and metrics only.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / NANOS as f64
    }

    /// Sum that stops at the largest price instead of wrapping.
    pub fn saturating_add(self, other: Price) -> Price {
        Price(self.0.saturating_add(other.0))
    }

    /// Difference that stops at the ends instead of wrapping.
    pub fn saturating_sub(self, other: Price) -> Price {
        Price(self.0.saturating_sub(other.0))
    }

    /// With exactly two decimals, as upstream prints savings (D-106): `0.19`.
    pub fn to_cents_text(self) -> String {
        let cents = (i128::from(self.0) + if self.0 < 0 { -5_000_000 } else { 5_000_000 }) / 10_000_000;
        format!(
            "{}{}.{:02}",
            if cents < 0 { "-" } else { "" },
            cents.abs() / 100,
            cents.abs() % 100
        )
    }
}

impl std::iter::Sum for Price {
    fn sum<I: Iterator<Item = Price>>(iter: I) -> Price {
        iter.fold(Price::ZERO, Price::saturating_add)
    }
}

impl std::str::FromStr for Price {
    type Err = ParsePriceError;

    /// Exact for up to nine decimals; further decimals are dropped.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParsePriceError(text.to_owned());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if (whole.is_empty() && fraction.is_empty())
            || !whole
                .bytes()
                .chain(fraction.bytes())
                .all(|byte| byte.is_ascii_digit())
        {
            return Err(fail());
        }
        let whole: i64 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| fail())?
        };
        let digits = &fraction[..fraction.len().min(9)];
        let nanos: i64 = if digits.is_empty() {
            0
        } else {
            digits.parse::<i64>().map_err(|_| fail())? * 10i64.pow(9 - digits.len() as u32)
        };
        whole
            .checked_mul(NANOS)
            .and_then(|value| value.checked_add(nanos))
            .map(Price)
            .ok_or_else(fail)
    }
}

impl fmt::Display for Price {
    /// Dollars with as many decimals as needed: `0.0425`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        let (whole, nanos) = (magnitude / NANOS as u64, magnitude % NANOS as u64);
        let sign = if self.0 < 0 { "-" } else { "" };
        if nanos == 0 {
            return write!(f, "{sign}{whole}");
        }
        let fraction = format!("{nanos:09}");
        write!(f, "{sign}{whole}.{}", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_round_trip_through_text() {
        for text in ["0", "1", "0.0425", "12.000000001"] {
            assert_eq!(
                text.parse::<Price>().map(|price| price.to_string()),
                Ok(text.to_owned())
            );
        }
        assert_eq!("0.0000000019".parse(), Ok(Price(1)));
        for text in ["", ".", "-1", "1e3", "99999999999999"] {
            assert!(text.parse::<Price>().is_err(), "{text}");
        }
        assert_eq!(Price(194_999_999).to_cents_text(), "0.19");
        assert_eq!(Price(-195_000_000).to_cents_text(), "-0.20");
        assert_eq!(Price::from_dollars(f64::NAN), Price::ZERO);
        assert_eq!(Price::from_dollars(0.1), Price(100_000_000));
    }
}
