//! Events of the controllers about an object: launches without capacity, interruptions, its deletion.
//!
//! Owns the reading of Events and which of them a story repeats. A NodeClaim whose launch found no capacity is deleted at once: its Events are all that is
//! left of it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;
use spokeshave_story::explain::{Fact, Story, age};

/// As many Events a story repeats: of those that say why the object goes, and then of all others, the latest of each reason; and then others, the latest first.
const LATEST: usize = 5;

/// Why an object goes that no command has asked to go.
const WHY: [&str; 7] = [
    "SpotInterrupted",
    "CapacityReservationInstanceInterrupted",
    "InstanceStopping",
    "InstanceTerminating",
    "InstanceUnhealthy",
    "TerminatingOnInterruption",
    "TerminationGracePeriodExpiring",
];

/// An Event of the controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    kind: String,
    /// As stories name their objects: pods as `namespace/name`.
    name: String,
    reason: String,
    message: String,
    at: Timestamp,
    /// Its version, which tells apart what was written within a second; zero where a file has none.
    version: u64,
}

/// Reads an Event; `None` for one from another source, or without a time.
pub(crate) fn read(object: &Value) -> Option<Told> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if object["source"]["component"] != "karpenter" {
        return None;
    }
    let times = [
        &object["lastTimestamp"],
        &object["eventTime"],
        &object["metadata"]["creationTimestamp"],
    ];
    let about = &object["involvedObject"];
    let (kind, mut name) = (text(&about["kind"]), text(&about["name"]));
    if kind == "Pod" {
        name = format!("{}/{name}", text(&about["namespace"]));
    }
    let version = object["metadata"]["resourceVersion"].as_str();
    Some(Told {
        kind,
        name,
        reason: text(&object["reason"]),
        message: text(&object["message"]),
        at: times.into_iter().find_map(|time| time.as_str()?.parse().ok())?,
        version: version.and_then(|text| text.parse().ok()).unwrap_or_default(),
    })
}

fn about<'a>(told: &'a [Told], kind: &str, name: &str) -> Vec<&'a Told> {
    let mut found: Vec<&Told> = told
        .iter()
        .filter(|one| one.kind == kind && one.name == name)
        .collect();
    found.sort_by_key(|one| (Reverse((one.at, one.version)), &one.reason, &one.message));
    keep_telling(&mut found);
    found
}

/// Leaves as many as a story repeats, in their order. What is said again and again, of each pod that a drain waits for, does not crowd out what was said once.
fn keep_telling(found: &mut Vec<&Told>) {
    let mut said = BTreeSet::new();
    let mut ranks: Vec<(u8, usize)> = Vec::with_capacity(found.len());
    for (place, one) in found.iter().enumerate() {
        let is_first = said.insert(one.reason.as_str());
        let rank = match is_first {
            true if place == 0 || WHY.contains(&one.reason.as_str()) => 0,
            true => 1,
            false => 2,
        };
        ranks.push((rank, place));
    }
    ranks.sort_unstable();
    let mut kept: Vec<usize> = ranks.into_iter().take(LATEST).map(|(_, place)| place).collect();
    kept.sort_unstable();
    *found = kept.into_iter().map(|place| found[place]).collect();
}

/// Adds the events about the explained object.
pub(crate) fn add(story: &mut Story, told: &[Told], now: Timestamp) {
    for one in about(told, story.object_kind, &story.name) {
        story.facts.push(Fact {
            name: "told",
            value: format!("{} ago, {}: {}", age(one.at, now), one.reason, one.message),
        });
    }
}

/// The story of a NodeClaim of which only Events are left; `None` when there are none.
pub(crate) fn gone(told: &[Told], name: &str, now: Timestamp) -> Option<Story> {
    let latest = about(told, "NodeClaim", name).into_iter().next()?;
    let mut story = Story {
        object_kind: "NodeClaim",
        name: name.to_owned(),
        summary: format!(
            "is gone; the last word, {} ago, was {}",
            age(latest.at, now),
            latest.reason
        ),
        ..Story::default()
    };
    add(&mut story, told, now);
    Some(story)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(reason: &str, at: &str, component: &str) -> Value {
        json!({
            "kind": "Event", "reason": reason, "message": format!("{reason} happened"), "lastTimestamp": at,
            "source": {"component": component}, "involvedObject": {"kind": "NodeClaim", "name": "default-1"},
        })
    }

    #[test]
    fn a_077_a_nodeclaim_that_found_no_capacity_is_told_of_when_it_is_gone() {
        let events = [
            event("InsufficientCapacityError", "2026-03-02T11:59:00Z", "karpenter"),
            event("Finalized", "2026-03-02T11:58:00Z", "karpenter"),
            event("Scheduled", "2026-03-02T11:59:30Z", "scheduler"),
        ];
        let told: Vec<Told> = events.iter().filter_map(read).collect();
        let now = "2026-03-02T12:00:00Z".parse().unwrap();
        let story = gone(&told, "default-1", now).unwrap();
        assert_eq!(
            story.summary,
            "is gone; the last word, 1m ago, was InsufficientCapacityError"
        );
        let facts: Vec<&str> = story.facts.iter().map(|fact| fact.value.as_str()).collect();
        assert_eq!(
            facts,
            [
                "1m ago, InsufficientCapacityError: InsufficientCapacityError happened",
                "2m ago, Finalized: Finalized happened"
            ]
        );
        assert!(gone(&told, "default-2", now).is_none());
    }

    /// A drain that waits is told of for each of its pods, again and again: why the node goes is told all the same, once.
    #[test]
    fn d_282_an_interruption_is_told_whatever_is_said_after_it() {
        let mut events = vec![
            event("Launched", "2026-03-02T10:00:00Z", "karpenter"),
            event("SpotInterrupted", "2026-03-02T11:50:00Z", "karpenter"),
            event("TerminatingOnInterruption", "2026-03-02T11:50:00Z", "karpenter"),
            event("DisruptionBlocked", "2026-03-02T11:51:00Z", "karpenter"),
        ];
        for minute in 52..60 {
            let at = format!("2026-03-02T11:{minute}:00Z");
            events.push(event("FailedDraining", &at, "karpenter"));
        }
        let said = |events: &[Value]| -> Vec<String> {
            let told: Vec<Told> = events.iter().filter_map(read).collect();
            let story = gone(&told, "default-1", "2026-03-02T12:00:00Z".parse().unwrap()).unwrap();
            let reason = |fact: &Fact| {
                let (_, rest) = fact.value.split_once(", ").unwrap();
                rest.split_once(':').unwrap().0.to_owned()
            };
            story.facts.iter().map(reason).collect()
        };
        // Each reason once, the latest first.
        let each = [
            "FailedDraining",
            "DisruptionBlocked",
            "SpotInterrupted",
            "TerminatingOnInterruption",
            "Launched",
        ];
        assert_eq!(said(&events), each);
        // More reasons than are told: those that say why it goes are among them, and so is the last word.
        for (minute, reason) in ["Unconsolidatable", "EvictionRejected", "Finalized"]
            .into_iter()
            .enumerate()
        {
            let at = format!("2026-03-02T11:59:{}Z", 30 + minute);
            events.push(event(reason, &at, "karpenter"));
        }
        let many = said(&events);
        assert_eq!(many.len(), LATEST);
        for told in ["Finalized", "SpotInterrupted", "TerminatingOnInterruption"] {
            assert!(many.iter().any(|reason| reason == told), "{told}: {many:?}");
        }
        // Few that repeat each other are all told.
        assert_eq!(said(&events[4..8]), ["FailedDraining"; 4]);
    }

    /// Times of Events are whole seconds.
    #[test]
    fn what_was_said_within_a_second_is_told_in_the_order_in_which_it_was_said() {
        let said = ["9", "10", "11"].into_iter().zip(["Kept", "Stopping", "Kept"]);
        let told = said.map(|(version, reason)| {
            let mut event = event(reason, "2026-03-02T11:59:00Z", "karpenter");
            event["metadata"] = json!({"resourceVersion": version});
            event["message"] = json!(format!("by {version}"));
            read(&event).unwrap()
        });
        let told: Vec<Told> = told.collect();
        let story = gone(&told, "default-1", "2026-03-02T12:00:00Z".parse().unwrap()).unwrap();
        let facts: Vec<&str> = story.facts.iter().map(|fact| fact.value.as_str()).collect();
        assert_eq!(
            facts,
            [
                "1m ago, Kept: by 11",
                "1m ago, Stopping: by 10",
                "1m ago, Kept: by 9"
            ]
        );
    }
}
