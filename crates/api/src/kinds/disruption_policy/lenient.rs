//! Policies that an API server accepts and whose values these types do not hold: they are read as far as they go.
//!
//! Owns how they are read. That nothing is disrupted while one cannot be read is decided in `plan`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{DisruptionPolicy, DisruptionPolicySpec, DisruptionPolicyStatus};

/// The last days that a time may have, of which some instants are later than can be counted: people write them for "never".
const LAST_DAYS: [&str; 3] = ["9999-12-29", "9999-12-30", "9999-12-31"];
/// A day of which all instants can be counted.
const EARLIER_DAY: &str = "9999-12-01";

/// Reads a time. What is later than can be counted is the latest that can.
pub(super) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let time = text.map(|text| instant(&text).map(Time));
    time.transpose().map_err(D::Error::custom)
}

/// Reads times by name, each as [`time`] does.
pub(super) fn times<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Time>, D::Error> {
    let texts = BTreeMap::<String, String>::deserialize(deserializer)?;
    let times = texts
        .into_iter()
        .map(|(name, text)| instant(&text).map(|at| (name, Time(at))));
    times.collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn instant(text: &str) -> Result<Timestamp, jiff::Error> {
    text.parse::<Timestamp>().or_else(|error| {
        let rest = LAST_DAYS.iter().find_map(|day| text.strip_prefix(day));
        let is_time = rest.is_some_and(|rest| format!("{EARLIER_DAY}{rest}").parse::<Timestamp>().is_ok());
        if is_time { Ok(Timestamp::MAX) } else { Err(error) }
    })
}

impl DisruptionPolicy {
    /// What stands for an object that cannot be read. Without what is at fault in its status, if only that is, which is written anew; otherwise with no rules but
    /// [`unreadable`](DisruptionPolicySpec::unreadable), for the NodePools that it selects, or for all where that cannot be read either. `None` when not even its
    /// metadata can be read.
    #[must_use]
    pub fn salvaged(object: &Value) -> Option<Self> {
        let part = |name: &str| object.get(name).cloned().unwrap_or_default();
        let metadata = serde_json::from_value(part("metadata")).ok()?;
        let spec = part("spec");
        let node_pools = spec.get("nodePools").cloned().unwrap_or_default();
        let spec = serde_json::from_value(spec).unwrap_or_else(|error| DisruptionPolicySpec {
            node_pools: serde_json::from_value(node_pools).unwrap_or_default(),
            unreadable: Some(error.to_string()),
            ..DisruptionPolicySpec::default()
        });
        let mut policy = Self::new("", spec);
        policy.metadata = metadata;
        policy.status = match part("status") {
            Value::Object(fields) => Some(status(fields)),
            _ => None,
        };
        Some(policy)
    }
}

/// As much of a status as can be read. Of other fields only the names are kept, with no value, so that whoever writes the next status takes them away.
fn status(fields: Map<String, Value>) -> DisruptionPolicyStatus {
    let read = |fields| serde_json::from_value::<DisruptionPolicyStatus>(Value::Object(fields));
    let is_readable = |(name, value): &(String, Value)| {
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        read(alone).is_ok()
    };
    let (readable, others): (Vec<_>, Vec<_>) = fields.into_iter().partition(is_readable);
    let mut status = read(Map::from_iter(readable)).unwrap_or_default();
    let others = others.into_iter().map(|(name, _)| (name, Value::Null));
    status.extra.extend(others);
    status
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn frozen_until(until: &str) -> Value {
        json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"nodePools": {"names": ["a"]}, "freeze": {"reason": "r", "until": until}}})
    }

    /// The definition lets pass every year of four digits, with any offset.
    #[test]
    fn a_freeze_until_the_end_of_time_is_one() {
        for (until, expected) in [
            ("9999-12-31T23:59:59Z", "9999-12-30T22:00:00.999999999Z"),
            ("9999-12-30T23:00:00.5-01:00", "9999-12-30T22:00:00.999999999Z"),
            ("9999-12-29T23:59:59-24:00", "9999-12-30T22:00:00.999999999Z"),
            ("9999-12-30T21:00:00Z", "9999-12-30T21:00:00Z"),
            ("2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00Z"),
        ] {
            let policy: DisruptionPolicy = serde_json::from_value(frozen_until(until)).expect(until);
            let until = policy.spec.freeze.and_then(|freeze| freeze.until);
            assert_eq!(until.map(|until| until.0.to_string()).as_deref(), Some(expected));
        }
        for wrong in [
            "9999-12-31",
            "9999-12-31T25:00:00Z",
            "9999-12-32T00:00:00Z",
            "soon",
        ] {
            assert!(
                serde_json::from_value::<DisruptionPolicy>(frozen_until(wrong)).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_roll_out_that_an_approval_is_of_may_begin_at_the_end_of_time() {
        let mut object = json!({"metadata": {"name": "p"}, "spec": {"rollout": {"approvedFor": {"a": "9999-12-31T23:59:59Z"}}}});
        let policy: DisruptionPolicy = serde_json::from_value(object.clone()).expect("a policy");
        let rollout = policy.spec.rollout.expect("a roll-out");
        assert_eq!(rollout.approved_for["a"].0, Timestamp::MAX);
        object["spec"]["rollout"]["approvedFor"]["a"] = json!("soon");
        assert!(serde_json::from_value::<DisruptionPolicy>(object).is_err());
    }

    #[test]
    fn of_what_cannot_be_read_what_can_is_kept() {
        let labels = BTreeMap::new();
        let mut object = frozen_until("2026-01-01T00:00:00+99:00");
        object["status"] = json!({"summary": "frozen"});
        let policy = DisruptionPolicy::salvaged(&object).expect("a policy");
        assert_eq!(policy.uid(), "u");
        assert!(policy.spec.unreadable.is_some() && policy.spec.freeze.is_none());
        assert!(policy.selects("a", &labels) && !policy.selects("b", &labels));
        assert_eq!(
            policy.status.and_then(|status| status.summary).as_deref(),
            Some("frozen")
        );
        object["spec"]["nodePools"] = json!("a");
        let policy = DisruptionPolicy::salvaged(&object).expect("a policy");
        assert!(policy.selects("b", &labels), "all of them");
        let mut object = frozen_until("2026-01-01T00:00:00Z");
        object["status"] = json!({"summary": 7, "nodePools": ["a"]});
        let policy = DisruptionPolicy::salvaged(&object).expect("a policy");
        assert!(policy.spec.unreadable.is_none() && policy.spec.freeze.is_some());
        let status = serde_json::to_value(&policy.status).expect("JSON");
        assert_eq!(status, json!({"summary": null, "nodePools": ["a"]}));
        assert!(DisruptionPolicy::salvaged(&json!({"metadata": 7})).is_none());
    }
}
