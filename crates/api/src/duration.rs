//! Durations as Go and Karpenter write them.
//!
//! Owns `GoDuration` (Go's `time.ParseDuration` and `String()`) and `NillableDuration` (`Never`). Both write back the text that they were
//! read from, so GitOps tools see no difference (P §1.0), and both compare by value.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("time: {problem} {text:?}")]
pub struct DurationError {
    problem: &'static str,
    text: String,
}

/// A duration in Go's syntax, signed, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct GoDuration {
    nanoseconds: i64,
    /// The text it was read from, when it differs from Go's own spelling.
    text: Option<Box<str>>,
}

impl GoDuration {
    /// A duration of so many seconds.
    #[must_use]
    pub fn from_seconds(seconds: i64) -> Self {
        Self {
            nanoseconds: seconds.saturating_mul(1_000_000_000),
            text: None,
        }
    }

    /// As an object has it: what is longer than Go can hold, 292 years, is read as the longest. Go refuses it, but the patterns of the CRDs do not, and an
    /// object that cannot be read is one that nobody looks after.
    fn of_object(text: &str) -> Result<Self, DurationError> {
        let nanoseconds = parse_go(text)?;
        let longest = if nanoseconds < 0 { i64::MIN } else { i64::MAX };
        Ok(Self::spelt(i64::try_from(nanoseconds).unwrap_or(longest), text))
    }

    fn spelt(nanoseconds: i64, text: &str) -> Self {
        let mut duration = Self {
            nanoseconds,
            text: None,
        };
        if duration.to_string() != text {
            duration.text = Some(text.into());
        }
        duration
    }

    /// Value in nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self) -> i64 {
        self.nanoseconds
    }

    /// The same as a standard duration; `None` when negative.
    #[must_use]
    pub fn to_std(&self) -> Option<Duration> {
        u64::try_from(self.nanoseconds).ok().map(Duration::from_nanos)
    }

    /// The same as a signed duration.
    #[must_use]
    pub fn to_signed(&self) -> jiff::SignedDuration {
        jiff::SignedDuration::from_nanos(self.nanoseconds)
    }
}

impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        Self {
            nanoseconds: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX),
            text: None,
        }
    }
}

impl PartialEq for GoDuration {
    fn eq(&self, other: &Self) -> bool {
        self.nanoseconds == other.nanoseconds
    }
}
impl Eq for GoDuration {}
impl PartialOrd for GoDuration {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for GoDuration {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanoseconds.cmp(&other.nanoseconds)
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        match i64::try_from(parse_go(text)?) {
            Ok(nanoseconds) => Ok(Self::spelt(nanoseconds, text)),
            Err(_) => Err(DurationError {
                problem: "invalid duration",
                text: text.to_owned(),
            }),
        }
    }
}

/// Nanoseconds, which may be more than Go can hold.
fn parse_go(text: &str) -> Result<i128, DurationError> {
    let fail = |problem| DurationError {
        problem,
        text: text.to_owned(),
    };
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(fail("invalid duration"));
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole_end = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (whole_digits, after_whole) = rest.split_at(whole_end);
        let (fraction_digits, after_number) = match after_whole.strip_prefix('.') {
            Some(after_dot) => after_dot.split_at(after_dot.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", after_whole),
        };
        if whole_digits.is_empty() && fraction_digits.is_empty() {
            return Err(fail("invalid duration"));
        }
        let unit_end = after_number
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after_number.len());
        let (unit, next) = after_number.split_at(unit_end);
        let scale: u64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(fail("missing unit in duration")),
            _ => return Err(fail("unknown unit in duration")),
        };
        let whole: u64 = if whole_digits.is_empty() {
            0
        } else {
            // A number that does not fit is too long in any unit.
            whole_digits.parse().unwrap_or(u64::MAX)
        };
        let part = i128::from(whole) * i128::from(scale) + i128::from(fraction_of(fraction_digits, scale));
        total = total.saturating_add(part);
        rest = next;
    }
    Ok(if negative { -total } else { total })
}

/// `0.digits × scale`, cut to whole nanoseconds.
fn fraction_of(digits: &str, scale: u64) -> u64 {
    let mut value: u128 = 0;
    let mut divisor: u128 = 1;
    for digit in digits.bytes().take(18) {
        value = value * 10 + u128::from(digit - b'0');
        divisor *= 10;
    }
    u64::try_from(value * u128::from(scale) / divisor).unwrap_or(0)
}

impl fmt::Display for GoDuration {
    /// Go's `Duration.String()`: `1h30m0s`, `1.5s`, `300ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.nanoseconds.unsigned_abs();
        if self.nanoseconds < 0 {
            f.write_str("-")?;
        }
        if total == 0 {
            return f.write_str("0s");
        }
        if total < 1_000_000_000 {
            let (unit, scale) = match total {
                0..1_000 => ("ns", 1),
                1_000..1_000_000 => ("µs", 1_000),
                _ => ("ms", 1_000_000),
            };
            return write!(f, "{}{unit}", Decimal { value: total, scale });
        }
        let hours = total / 3_600_000_000_000;
        let minutes = total / 60_000_000_000 % 60;
        let rest = total % 60_000_000_000;
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(
            f,
            "{}s",
            Decimal {
                value: rest,
                scale: 1_000_000_000
            }
        )
    }
}

/// `value / scale` without trailing zeros.
struct Decimal {
    value: u64,
    scale: u64,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value / self.scale)?;
        let fraction = self.value % self.scale;
        if fraction == 0 {
            return Ok(());
        }
        let width = self.scale.ilog10() as usize;
        let digits = format!("{fraction:0width$}");
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.text {
            Some(text) => serializer.serialize_str(text),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::of_object(&text).map_err(serde::de::Error::custom)
    }
}

/// A duration, or `Never` (P §1.0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NillableDuration(Option<GoDuration>);

impl NillableDuration {
    /// No duration at all.
    pub const NEVER: NillableDuration = NillableDuration(None);

    /// `0s`.
    #[must_use]
    pub fn zero() -> Self {
        Self(Some(GoDuration::from_seconds(0)))
    }

    /// `720h`, the default age at which a node expires (P-003).
    #[must_use]
    pub fn default_expire_after() -> Self {
        Self(Some(GoDuration {
            nanoseconds: 720 * 3_600_000_000_000,
            text: Some("720h".into()),
        }))
    }

    /// The duration; `None` for `Never`. Negative ones count as zero.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        self.0
            .as_ref()
            .map(|duration| duration.to_std().unwrap_or(Duration::ZERO))
    }

    /// True for `Never`.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.0.is_none()
    }
}

impl Default for NillableDuration {
    fn default() -> Self {
        Self::NEVER
    }
}

impl From<GoDuration> for NillableDuration {
    fn from(duration: GoDuration) -> Self {
        Self(Some(duration))
    }
}

impl FromStr for NillableDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        if text == "Never" {
            Ok(Self::NEVER)
        } else {
            text.parse().map(|duration| Self(Some(duration)))
        }
    }
}

impl fmt::Display for NillableDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(duration) => duration.fmt(f),
            None => f.write_str("Never"),
        }
    }
}

impl Serialize for NillableDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(duration) => duration.serialize(serializer),
            None => serializer.serialize_str("Never"),
        }
    }
}

impl<'de> Deserialize<'de> for NillableDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "Never" {
            return Ok(Self::NEVER);
        }
        let duration = GoDuration::of_object(&text).map_err(serde::de::Error::custom)?;
        Ok(Self(Some(duration)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_and_writes_as_go_does() {
        for (text, nanoseconds, shown) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("-5m", -300_000_000_000, "-5m0s"),
            ("300ms", 300_000_000, "300ms"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("2us", 2_000, "2µs"),
            ("7ns", 7, "7ns"),
            (".5s", 500_000_000, "500ms"),
            ("+3s", 3_000_000_000, "3s"),
            ("720h", 2_592_000_000_000_000, "720h0m0s"),
        ] {
            let duration: GoDuration = text.parse().unwrap();
            assert_eq!(duration.nanoseconds(), nanoseconds, "{text}");
            assert_eq!(duration.to_string(), shown, "{text}");
        }
        for bad in [
            "",
            "1d",
            "300",
            "h",
            "1h-5m",
            ".",
            "1..5s",
            "9223372036854775808ns",
            "Never",
            "1 s",
            "١s",
        ] {
            assert!(bad.parse::<GoDuration>().is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn p_004_the_text_is_written_back_unchanged() {
        for text in ["24h", "1440m", "0s", "90s", "Never", "1h1m"] {
            let duration: NillableDuration = serde_json::from_value(serde_json::json!(text)).unwrap();
            assert_eq!(serde_json::to_value(&duration).unwrap(), serde_json::json!(text));
        }
        let day: NillableDuration = "24h".parse().unwrap();
        assert_eq!(
            day,
            "1440m".parse().unwrap(),
            "equal durations are equal however they are spelt"
        );
    }

    #[test]
    fn p_004_what_the_pattern_lets_pass_is_read_and_written_back_however_long_it_is() {
        for (text, nanoseconds) in [
            ("9999999h", i64::MAX),
            ("99999999999999999999999999h", i64::MAX),
            ("2562047h9999999999999999999s", i64::MAX),
            ("-9999999h", i64::MIN),
            ("2562047h47m16s", 9_223_372_036_000_000_000),
        ] {
            let object = serde_json::json!(text);
            let duration: GoDuration = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(duration.nanoseconds(), nanoseconds, "{text}");
            assert_eq!(serde_json::to_value(&duration).unwrap(), object);
            let duration: NillableDuration = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(serde_json::to_value(&duration).unwrap(), object);
        }
        let long: NillableDuration = serde_json::from_value(serde_json::json!("9999999h")).unwrap();
        assert_eq!(
            long.duration(),
            Some(Duration::from_nanos(i64::MAX.unsigned_abs()))
        );
        assert!("9999999h".parse::<GoDuration>().is_err(), "Go refuses it");
    }

    proptest! {
        #[test]
        fn what_go_would_print_is_read_back(nanoseconds in any::<i64>().prop_filter("Go's minimum", |n| *n != i64::MIN)) {
            let duration = GoDuration { nanoseconds, text: None };
            prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap().nanoseconds(), nanoseconds);
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,24}") {
            let _ = text.parse::<NillableDuration>();
        }

        #[test]
        fn arbitrary_durationlike_text_never_panics(text in "[-+]?([0-9]{0,20}(\\.[0-9]{0,25})?(ns|us|ms|s|m|h|d)?){0,4}") {
            if let Ok(duration) = text.parse::<GoDuration>() {
                prop_assert_eq!(serde_json::to_value(&duration).unwrap(), serde_json::json!(text));
            }
        }
    }
}
