//! How long commands that have ended stay in the ledger.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption::Disruption;
use spokeshave_plan::disrupt::history::expired;
use spokeshave_plan::disruption_policy::{Keep, keep};

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

const HOUR: i64 = 3600;

/// A command that ended at the beginning, with this in its status.
fn ended(status: &Value) -> Disruption {
    let mut one = command(&["a"], &[], "SingleNodeConsolidation");
    let mut all = json!({"finishedAt": at(0).to_string()});
    for (key, value) in status.as_object().expect("an object") {
        all[key] = value.clone();
    }
    one.status = serde_json::from_value(all).expect("a status");
    one
}

/// What a policy says about "within a day" or `within` would be about an hour if the ledger forgot what it looks at.
#[test]
fn what_breakers_holds_and_convergence_look_at_stays_for_as_long_as_they_do() {
    let lost = ended(&json!({"phase": "RolledBack", "rollBackCause": "ReplacementLost"}));
    let refused = ended(&json!({"phase": "RolledBack", "rollBackCause": "LimitExceeded"}));
    let done = ended(&json!({"phase": "Succeeded", "deletedAt": at(0).to_string()}));
    let breaker = json!({"circuitBreakers": {"failedLaunches": {"count": 3, "within": "30h"}}});
    let after_scale_down =
        json!({"hold": {"duration": "3h", "initialDelay": "1h", "triggers": ["ScaleDown"]}});
    let after_failure = json!({"hold": {"duration": "3h", "triggers": ["FailedLaunch"]}});
    let after_launch = json!({"hold": {"duration": "3h"}});
    let convergence = json!({"convergence": {}});
    let rate = json!({"budgets": [{"perHour": 1}]});
    // For how many hours.
    for (spec, one, until) in [
        (&breaker, &lost, 30),
        (&breaker, &refused, 1),
        (&breaker, &done, 1),
        (&after_scale_down, &done, 4),
        (&after_scale_down, &lost, 1),
        (&after_failure, &lost, 3),
        (&after_failure, &done, 1),
        (&after_launch, &done, 1),
        (&convergence, &done, 24),
        (&convergence, &lost, 1),
        (&rate, &done, 1),
    ] {
        let spec = serde_json::from_value(spec.clone()).expect("a spec");
        let policies = [Arc::new(DisruptionPolicy::new("p", spec))];
        let kept = |now: Timestamp| keep(one, &policies, now);
        let looks = [kept(at(until * HOUR - 1)), kept(at(until * HOUR))];
        assert_eq!(looks, [Keep::WhileFew, Keep::No], "{policies:?} {one:?}");
    }
}

/// A breaker may look further back than the ledger goes otherwise.
#[test]
fn what_still_counts_is_not_too_old() {
    let one = ended(&json!({"phase": "Succeeded"}));
    let gone = |keep: Keep| expired([&one], Duration::from_secs(100), 1, |_| keep, at(101)).len();
    assert_eq!([Keep::No, Keep::WhileFew].map(gone), [1, 0]);
}
