//! How the kwok cloud behaves, and the failures that a test or a demonstration asks of it.
//!
//! Every failure is a function of the seed, of names and of the number of the attempt, so that a run can be repeated.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use spokeshave_ports::Entropy;

use crate::Catalog;

/// How long an offering that had no capacity is reported as unavailable; AWS' value (D-283).
const UNAVAILABLE_FOR: Duration = Duration::from_secs(3 * 60);
/// How long before its end a spot instance is told; AWS' value.
const INTERRUPTION_NOTICE: Duration = Duration::from_secs(120);
/// Time after which a client of a real cloud gives up waiting.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Behaviour of the kwok cloud.
#[derive(Clone, Debug)]
pub struct KwokOptions {
    /// What is for sale.
    pub catalog: Catalog,
    /// Name of the cluster, for the instances' tags.
    pub cluster_name: String,
    /// How long a launch call takes, after the instance has come into being.
    pub launch_delay: Duration,
    /// Time between launch and Node when the NodeClass does not say (`spec.nodeRegistrationDelay`).
    pub registration_delay: Duration,
    /// Time between the first deletion call and the end of the instance.
    pub termination_delay: Duration,
    /// Offerings that cannot be had. A launch that meets one takes the next cheapest.
    pub insufficient_capacity: Vec<OfferingPattern>,
    /// How long an offering that was found without capacity is listed as unavailable.
    pub unavailable_for: Duration,
    /// Launch calls that fail before anything has happened.
    pub launch_errors: Failures,
    /// Launch calls that never answer, although the instance came into being; the client gives up after `call_timeout`.
    pub hanging_calls: Failures,
    /// How long the client waits for a call that hangs.
    pub call_timeout: Duration,
    /// Time between the message that a spot instance is taken back and its end.
    pub interruption_notice: Duration,
    /// Instances whose Node never appears.
    pub never_register: Vec<OfferingPattern>,
    /// Instances whose Node never appears, by chance or count.
    pub never_register_failures: Failures,
    /// Instances whose Node appears late.
    pub slow_register: Vec<SlowRegistration>,
}

impl Default for KwokOptions {
    fn default() -> Self {
        Self {
            catalog: Catalog::default(),
            cluster_name: "kwok".to_owned(),
            launch_delay: Duration::ZERO,
            registration_delay: Duration::ZERO,
            termination_delay: Duration::ZERO,
            insufficient_capacity: Vec::new(),
            unavailable_for: UNAVAILABLE_FOR,
            launch_errors: Failures::None,
            hanging_calls: Failures::None,
            call_timeout: CALL_TIMEOUT,
            interruption_notice: INTERRUPTION_NOTICE,
            never_register: Vec::new(),
            never_register_failures: Failures::None,
            slow_register: Vec::new(),
        }
    }
}

/// Offerings by `type/zone/capacity-type`, in which `*` stands for any text and missing parts for anything: `m5.*`, `*/test-zone-a`,
/// `*/*/spot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferingPattern {
    instance_type: String,
    zone: String,
    capacity_type: String,
}

/// A pattern that is not of the form `type/zone/capacity-type`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct PatternError {
    text: String,
    expected: &'static str,
}

impl FromStr for OfferingPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let parts: Vec<&str> = text.split('/').collect();
        if parts.len() > 3 || parts.iter().any(|part| part.is_empty()) {
            let expected = "a pattern TYPE[/ZONE[/CAPACITY-TYPE]], such as m5.*/test-zone-a/spot";
            return Err(PatternError {
                text: text.to_owned(),
                expected,
            });
        }
        let part = |index: usize| parts.get(index).copied().unwrap_or("*").to_owned();
        Ok(Self {
            instance_type: part(0),
            zone: part(1),
            capacity_type: part(2),
        })
    }
}

impl fmt::Display for OfferingPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.instance_type, self.zone, self.capacity_type)
    }
}

impl OfferingPattern {
    /// Whether an offering is meant.
    #[must_use]
    pub fn matches(&self, instance_type: &str, zone: &str, capacity_type: &str) -> bool {
        glob(&self.instance_type, instance_type)
            && glob(&self.zone, zone)
            && glob(&self.capacity_type, capacity_type)
    }
}

/// Whether `text` matches a pattern in which `*` stands for any text.
fn glob(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = pieces.next_back() else {
        return rest.is_empty();
    };
    for piece in pieces {
        match rest.find(piece) {
            Some(start) => rest = &rest[start + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Nodes that appear later than others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRegistration {
    /// Which.
    pub pattern: OfferingPattern,
    /// How much later.
    pub delay: Duration,
}

/// Which calls fail.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Failures {
    /// None.
    #[default]
    None,
    /// Each with this probability, drawn from the seed, the NodeClaim's name and the number of its attempt.
    Rate(f64),
    /// Every n-th call of the provider's life, counted from 1.
    EveryNth(u64),
    /// The first n attempts of every NodeClaim.
    FirstAttempts(u64),
}

impl FromStr for Failures {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let count = |digits: &str| digits.parse::<u64>().ok().filter(|count| *count > 0);
        let parsed = if let Some(nth) = text.strip_prefix("1/") {
            count(nth).map(Failures::EveryNth)
        } else if let Some(first) = text.strip_prefix("first:") {
            count(first).map(Failures::FirstAttempts)
        } else {
            text.parse::<f64>()
                .ok()
                .filter(|rate| (0.0..=1.0).contains(rate))
                .map(Failures::Rate)
        };
        let expected =
            "a probability such as 0.1, a share such as 1/5, or a number of first attempts such as first:2";
        parsed.ok_or_else(|| PatternError {
            text: text.to_owned(),
            expected,
        })
    }
}

impl Failures {
    /// Whether a call fails; `call` and `attempt` count from 1, over all calls and over those for `name`.
    pub(crate) fn strike(self, entropy: &Entropy, name: &str, call: u64, attempt: u64) -> bool {
        match self {
            Failures::None => false,
            Failures::EveryNth(nth) => nth > 0 && call.is_multiple_of(nth),
            Failures::FirstAttempts(count) => attempt <= count,
            Failures::Rate(rate) => {
                // The upper 53 bits, as a fraction of one.
                let drawn = entropy.number(&format!("{name}/{attempt}")) >> 11;
                (drawn as f64) / ((1_u64 << 53) as f64) < rate
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_by_part() {
        for (pattern, expected) in [
            ("*", true),
            ("m5.*", true),
            ("m5.large", true),
            ("m5", false),
            ("*large", true),
            ("*5*r*", true),
            ("m*5.large*m", false),
            ("*/zone-a", true),
            ("*/zone-b", false),
            ("*/*/spot", true),
            ("*/*/on-demand", false),
        ] {
            let parsed: OfferingPattern = pattern.parse().expect(pattern);
            assert_eq!(
                parsed.matches("m5.large", "zone-a", "spot"),
                expected,
                "{pattern}"
            );
        }
        for bad in ["", "a//c", "a/b/c/d"] {
            let error = bad.parse::<OfferingPattern>().expect_err(bad).to_string();
            assert!(error.contains("is not a pattern TYPE"), "{error}");
        }
    }

    #[test]
    fn failures_are_read_and_struck_by_rule() {
        let entropy = Entropy::new(1);
        assert_eq!("1/3".parse(), Ok(Failures::EveryNth(3)));
        assert_eq!("first:2".parse(), Ok(Failures::FirstAttempts(2)));
        assert_eq!("0.25".parse(), Ok(Failures::Rate(0.25)));
        for bad in ["", "2", "-1", "1/0", "first:", "NaN"] {
            assert!(bad.parse::<Failures>().is_err(), "{bad}");
        }
        let struck = |failures: Failures| {
            (1..=1000)
                .filter(|n| failures.strike(&entropy, "claim", *n, *n))
                .count()
        };
        assert_eq!(struck(Failures::EveryNth(4)), 250);
        assert_eq!(struck(Failures::FirstAttempts(2)), 2);
        assert_eq!(
            (struck(Failures::Rate(0.0)), struck(Failures::Rate(1.0))),
            (0, 1000)
        );
        let quarter = struck(Failures::Rate(0.25));
        assert!((200..300).contains(&quarter), "{quarter} of 1000");
    }
}
