//! How long commands that have ended stay in the ledger.

use std::time::Duration;

use serde_json::json;
use spokeshave_api::disruption::Disruption;
use spokeshave_plan::disrupt::history::expired;
use spokeshave_plan::disruption_policy::Keep;

use crate::support::command_world::{at, command};

#[test]
fn the_ledger_keeps_the_newest_within_time_and_number() {
    let ended = |name: &str, second: i64| {
        let mut one = command(&["a"], &[], "Emptiness");
        one.metadata.name = Some(name.to_owned());
        let status = json!({"phase": "Succeeded", "finishedAt": at(second).to_string()});
        one.status = Some(serde_json::from_value(status).unwrap());
        one
    };
    let mut all: Vec<Disruption> = (0..5).map(|index| ended(&format!("d{index}"), index)).collect();
    all.push(command(&["a"], &[], "Emptiness"));
    let names = |keep, entries, now| -> Vec<String> {
        expired(&all, Duration::from_secs(keep), entries, |_| Keep::No, at(now))
            .into_iter()
            .map(|one| one.name)
            .collect()
    };
    assert_eq!(names(100, 10, 50), Vec::<String>::new());
    assert_eq!(names(100, 3, 50), ["d0", "d1"], "too many");
    assert_eq!(names(100, 10, 102), ["d0", "d1", "d2"], "too old");
    // What still counts for a rate stays, up to ten times as many.
    let counting = |entries| {
        let counts = |one: &Disruption| {
            if one.name() == "d0" {
                Keep::WhileFew
            } else {
                Keep::No
            }
        };
        let gone = expired(&all, Duration::from_secs(100), entries, counts, at(50));
        gone.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(counting(3), ["d1"]);
    assert_eq!(counting(0), ["d0", "d1", "d2", "d3", "d4"], "not without end");
    assert_eq!(
        names(0, 0, 500),
        ["d0", "d1", "d2", "d3", "d4"],
        "what is under way is never forgotten"
    );
    // What a wave counts stays, however old and however many.
    let of_wave = |one: &Disruption| {
        if one.name() == "d1" {
            Keep::Always
        } else {
            Keep::WhileFew
        }
    };
    let gone = expired(&all, Duration::ZERO, 0, of_wave, at(500));
    assert_eq!(
        gone.iter().map(|one| &*one.name).collect::<Vec<_>>(),
        ["d0", "d2", "d3", "d4"]
    );
}
