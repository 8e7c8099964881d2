//! Events of the controllers about an object: launches without capacity, interruptions, its deletion.
//!
//! Owns the reading of Events and which of them a story repeats. A NodeClaim whose launch found no capacity is deleted at once: its Events are all that is
//! left of it.

use std::cmp::Reverse;

use jiff::Timestamp;
use serde_json::Value;
use spokeshave_story::explain::{Fact, Story, age};

/// As many Events a story repeats, the latest ones.
const LATEST: usize = 5;

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
    found.truncate(LATEST);
    found
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
