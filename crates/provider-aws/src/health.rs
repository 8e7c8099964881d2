//! Which instances are broken, as `DescribeInstanceStatus` says (A9.4).
//!
//! Owns what counts. What is asked for is checked again in the answer: nothing is ended because somebody on the way has lost a filter.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::replies::{InstanceStatus, StatusDetail};
use crate::requests::Filter;

/// A check that fails counts after this long: reboots and short troubles pass by themselves.
const IMPAIRED_FOR: SignedDuration = SignedDuration::from_secs(120);

/// Codes of planned events that end an instance, or its rest.
const EVENTS: [&str; 5] = [
    "instance-reboot",
    "system-reboot",
    "system-maintenance",
    "instance-retirement",
    "instance-stop",
];

/// What of an instance is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// A check of the instance.
    Instance,
    /// A check of the hardware below it.
    System,
    /// Something is planned for it.
    Event,
}

impl Category {
    /// All of them.
    pub const ALL: [Category; 3] = [Category::Instance, Category::System, Category::Event];

    /// Its name in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Category::Instance => "InstanceStatus",
            Category::System => "SystemStatus",
            Category::Event => "EventStatus",
        }
    }

    /// The filter that finds such instances.
    #[must_use]
    pub fn filter(self) -> Filter {
        match self {
            Category::Instance => Filter::new("instance-status.status", ["impaired"]),
            Category::System => Filter::new("system-status.status", ["impaired"]),
            Category::Event => Filter::new("event.code", EVENTS),
        }
    }

    fn is_in(self, status: &InstanceStatus, now: Timestamp) -> bool {
        let has_failed = |details: &[StatusDetail]| details.iter().any(|detail| has_failed(detail, now));
        match self {
            Category::Instance => has_failed(&status.instance),
            Category::System => has_failed(&status.system),
            Category::Event => status.events.iter().any(|event| {
                EVENTS.contains(&event.code.as_str()) && !event.description.starts_with("[Completed]")
            }),
        }
    }
}

fn has_failed(detail: &StatusDetail, now: Timestamp) -> bool {
    let since = detail.impaired_since;
    detail.status == "failed" && since.is_some_and(|since| now.duration_since(since) >= IMPAIRED_FOR)
}

/// The instances that an answer to the filter of a category shows to be broken.
#[must_use]
pub fn broken(category: Category, statuses: &[InstanceStatus], now: Timestamp) -> BTreeSet<String> {
    let broken = statuses.iter().filter(|status| category.is_in(status, now));
    broken.map(|status| status.id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replies::ScheduledEvent;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn detail(status: &str, seconds: Option<i64>) -> StatusDetail {
        let since = seconds.map(|seconds| now() - SignedDuration::from_secs(seconds));
        StatusDetail {
            name: "reachability".to_owned(),
            status: status.to_owned(),
            impaired_since: since,
        }
    }

    #[test]
    fn a_116_d_289_failed_checks_count_after_two_minutes_and_healthy_instances_never() {
        for (status, seconds, counts) in [
            ("failed", Some(120), true),
            ("failed", Some(119), false),
            ("failed", None, false),
            ("passed", Some(900), false),
            ("insufficient-data", Some(900), false),
            ("initializing", Some(900), false),
        ] {
            let instance = InstanceStatus {
                id: "i-1".to_owned(),
                instance: vec![detail("passed", None), detail(status, seconds)],
                ..InstanceStatus::default()
            };
            assert_eq!(
                !broken(Category::Instance, std::slice::from_ref(&instance), now()).is_empty(),
                counts,
                "{status}"
            );
            assert!(
                broken(Category::System, &[instance], now()).is_empty(),
                "it is not the hardware"
            );
        }
    }

    #[test]
    fn a_116_d_289_planned_events_count_at_once_until_they_are_over() {
        for (code, description, counts) in [
            ("instance-retirement", "degraded hardware", true),
            ("instance-retirement", "[Completed] degraded hardware", false),
            ("instance-reboot", "", true),
            ("something-new", "", false),
        ] {
            let event = ScheduledEvent {
                code: code.to_owned(),
                description: description.to_owned(),
                not_before: None,
            };
            let status = InstanceStatus {
                id: "i-1".to_owned(),
                events: vec![event],
                ..InstanceStatus::default()
            };
            assert_eq!(
                !broken(Category::Event, &[status], now()).is_empty(),
                counts,
                "{code} {description}"
            );
        }
    }
}
