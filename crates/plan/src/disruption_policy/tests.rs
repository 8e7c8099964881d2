//! Policies piece by piece: windows against every minute around changes of clocks, holds, freezes, and bad input.

use super::hold::{Held, held};
use super::windows::{Windows, time_zone};
use super::{faults, frozen};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption_policy::{Hold, PolicyWindow};
use std::collections::BTreeMap;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn policy(spec: &Value) -> DisruptionPolicy {
    DisruptionPolicy::new("p", serde_json::from_value(spec.clone()).unwrap())
}

fn windows(zone: &str, windows: &Value, except: &[&str]) -> Windows {
    let windows: Vec<PolicyWindow> = serde_json::from_value(windows.clone()).unwrap();
    let except: Vec<String> = except.iter().map(ToString::to_string).collect();
    Windows::read(time_zone(Some(zone)).unwrap(), &windows, &except).unwrap()
}

#[test]
fn a_window_follows_the_clock_on_the_wall_through_both_changes() {
    let night = windows("Europe/Berlin", &json!([{"from": "22:00", "to": "06:00"}]), &[]);
    // Winter: UTC+1, summer: UTC+2.
    assert!(night.is_open(at("2026-01-10T21:00:00Z")) && !night.is_open(at("2026-01-10T20:59:00Z")));
    assert!(night.is_open(at("2026-07-10T20:00:00Z")) && !night.is_open(at("2026-07-10T19:59:00Z")));
    let gap = windows("Europe/Berlin", &json!([{"from": "02:15", "to": "02:45"}]), &[]);
    let next = gap.next_change(at("2026-03-28T12:00:00Z"));
    assert_eq!(
        next,
        Some(at("2026-03-30T00:15:00Z")),
        "the clock skips it on the 29th"
    );
    let next = gap.next_change(at("2026-10-25T00:30:00Z"));
    assert_eq!(next, Some(at("2026-10-25T00:45:00Z")));
    let next = gap.next_change(at("2026-10-25T00:50:00Z"));
    assert_eq!(next, Some(at("2026-10-25T01:15:00Z")), "the clock shows it twice");
}

/// Greenland's clocks went from 23:00 to midnight: a boundary in the hour that was skipped hid the midnight at which the next day's window began.
#[test]
fn a_clock_that_changes_just_before_midnight_hides_no_change() {
    let list = json!([{"days": ["Sun"], "from": "00:00", "to": "01:00"}, {"from": "23:59", "to": "00:01"}]);
    let next = windows("America/Godthab", &list, &[]).next_change(at("2024-03-30T12:00:00Z"));
    assert_eq!(next, Some(at("2024-03-31T01:00:00Z")));
}

#[test]
fn days_dates_and_exceptions_are_those_on_which_a_window_begins() {
    let friday = windows(
        "UTC",
        &json!([{"days": ["Fri"], "from": "23:00", "to": "01:00"}]),
        &["2026-12-25"],
    );
    assert!(
        friday.is_open(at("2026-12-19T00:30:00Z")),
        "Saturday, begun on Friday"
    );
    assert!(
        !friday.is_open(at("2026-12-26T00:30:00Z")),
        "not begun on the 25th"
    );
    let once = windows(
        "UTC",
        &json!([{"dates": ["2026-12-24"], "from": "00:00", "to": "24:00"}]),
        &[],
    );
    assert_eq!(
        once.next_change(at("2026-12-01T00:00:00Z")),
        Some(at("2026-12-24T00:00:00Z"))
    );
    assert!(!once.ever_opens(at("2026-12-25T00:00:00Z")));
}

/// Membership as a table of local minutes, made without asking the code under test.
fn oracle(zone: &str, windows: &Value, moment: Timestamp) -> bool {
    let local = moment.in_tz(zone).unwrap();
    let minute = i64::from(local.hour()) * 60 + i64::from(local.minute());
    let names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let today = usize::try_from(local.weekday().to_monday_zero_offset()).unwrap();
    let read = |text: &Value| {
        let text = text.as_str().unwrap();
        text[..2].parse::<i64>().unwrap() * 60 + text[3..].parse::<i64>().unwrap()
    };
    windows.as_array().unwrap().iter().any(|window| {
        let is_day = |day: usize| {
            window["days"]
                .as_array()
                .unwrap()
                .iter()
                .any(|name| name == names[day % 7])
        };
        let (from, to) = (read(&window["from"]), read(&window["to"]));
        let mut hits = (0..1440).filter(|at| *at == minute);
        hits.any(|at| {
            let first = is_day(today) && at >= from && (from >= to || at < to);
            let second = from >= to && is_day(today + 6) && at < to;
            first || second
        })
    })
}

fn arbitrary_window() -> impl Strategy<Value = Value> {
    let time = || (0_u32..48).prop_map(|half| format!("{:02}:{:02}", half / 2, half % 2 * 30));
    let names = vec!["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let days = proptest::sample::subsequence(names, 1..=7);
    (days, time(), time())
        .prop_filter("opens", |(_, from, to)| from != to)
        .prop_map(|(days, from, to)| json!({"days": days, "from": from, "to": to}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Around each change of the clock of five years in any zone, minute by minute: whether a window is open, and when that changes next.
    #[test]
    fn windows_agree_with_a_look_at_every_minute(
        zone in 0_usize..10_000,
        change in 0_usize..20,
        list in proptest::collection::vec(arbitrary_window(), 1..3),
    ) {
        let names: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
        prop_assert!(names.len() > 300, "the data base of zones is there");
        let name = &names[zone % names.len()];
        let zone = time_zone(Some(name)).unwrap();
        let start = at("2024-01-01T00:00:00Z");
        let end = at("2029-01-01T00:00:00Z");
        let changes: Vec<Timestamp> =
            zone.following(start).map(|change| change.timestamp()).take_while(|at| *at < end).collect();
        let middle = if changes.is_empty() { start } else { changes[change % changes.len()] };
        let list = json!(list);
        let windows = windows(name, &list, &[]);
        let first = middle.saturating_sub(SignedDuration::from_hours(30)).unwrap();
        let minutes: Vec<Timestamp> =
            (0..3_600).map(|minute| first + SignedDuration::from_mins(minute)).collect();
        let open: Vec<bool> = minutes.iter().map(|moment| oracle(name, &list, *moment)).collect();
        for (moment, open) in minutes.iter().zip(&open) {
            prop_assert_eq!(windows.is_open(*moment), *open, "{} {}", name, moment);
        }
        for index in (0..minutes.len()).step_by(97) {
            let wanted = (index + 1..minutes.len()).find(|later| open[*later] != open[index]);
            if let Some(wanted) = wanted {
                let (now, then) = (minutes[index], minutes[wanted]);
                prop_assert_eq!(windows.next_change(now), Some(then), "{} from {}", name, now);
                prop_assert_eq!(windows.next_change_before(now, then), None, "{} from {}", name, now);
                let later = then + SignedDuration::from_secs(1);
                prop_assert_eq!(windows.next_change_before(now, later), Some(then), "{} from {}", name, now);
            }
        }
    }
}

fn hold(spec: &Value) -> Hold {
    serde_json::from_value(spec.clone()).unwrap()
}

#[test]
fn each_new_node_starts_a_hold_anew_up_to_the_maximum() {
    let minute = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
    let span = |since: i64, until: i64| {
        Some(Held {
            since: minute(since),
            until: minute(until),
        })
    };
    let plain = hold(&json!({"duration": "20m", "initialDelay": "1m"}));
    let times = [minute(0), minute(15)];
    assert_eq!(
        held(&times[..1], &plain, None, minute(0)),
        None,
        "it has not begun"
    );
    assert_eq!(held(&times, &plain, None, minute(15)), span(1, 36));
    assert_eq!(held(&times, &plain, None, minute(36)), None, "it ends by itself");
    let bounded = hold(&json!({"duration": "20m", "maximum": "30m"}));
    let often: Vec<Timestamp> = (0..10).map(|step| minute(step * 10)).collect();
    assert_eq!(held(&often, &bounded, None, minute(29)), span(0, 30));
    assert_eq!(held(&often, &bounded, None, minute(30)), None);
    // The node that began it is gone; what was said of it counts.
    assert_eq!(held(&often[2..], &bounded, span(0, 30), minute(29)), span(0, 30));
    assert_eq!(held(&[], &bounded, None, minute(5)), None);
    // All of them are gone: their hold lasts as long as it would have with them, and no longer than its maximum.
    assert_eq!(held(&[], &bounded, span(0, 20), minute(19)), span(0, 20));
    assert_eq!(held(&[], &bounded, span(0, 20), minute(20)), None);
    assert_eq!(held(&[], &bounded, span(0, 40), minute(29)), span(0, 30));
    assert_eq!(held(&[], &bounded, span(0, 40), minute(30)), None);
    assert_eq!(held(&often[..1], &plain, span(1, 36), minute(30)), span(1, 36));
    let short = hold(&json!({"duration": "5m"}));
    assert_eq!(
        held(&[], &short, span(0, 20), minute(2)),
        span(0, 7),
        "it was shortened"
    );
    // Invariant 43: a clock that was set back ends no hold early, and neither does one that runs a moment behind.
    assert!(held(&times, &plain, None, minute(-120)).is_some_and(|held| held.since == minute(-120)));
}

#[test]
fn bad_input_is_named_and_never_panics() {
    let spec = json!({
        "timeZone": "Europe/Atlantis",
        "hold": {"duration": "20m", "scope": "Planet"},
        "budgets": [
            {"limit": "many"},
            {"limit": "1", "scope": "Label"},
            {"oneAtATime": true},
            {"perHour": 1, "unit": "CPU"},
        ],
    });
    let fields: Vec<String> = faults(&policy(&spec))
        .into_iter()
        .map(|fault| fault.field)
        .collect();
    let wanted = [
        "spec.timeZone",
        "spec.hold.scope",
        "spec.budgets[0].limit",
        "spec.budgets[1].label",
        "spec.budgets[2].oneAtATime",
        "spec.budgets[3].perHour",
    ];
    assert_eq!(fields, wanted);
    let spec = json!({"budgets": [{"windows": [{"days": ["Funday"], "from": "25:00", "to": "6"}], "exceptDates": ["2026-02-30"]}]});
    let fields: Vec<String> = faults(&policy(&spec))
        .into_iter()
        .map(|fault| fault.field)
        .collect();
    let at = |field: &str| format!("spec.budgets[0].{field}");
    assert_eq!(
        fields,
        [
            at("windows[0].days[0]"),
            at("windows[0].from"),
            at("windows[0].to"),
            at("exceptDates[0]")
        ]
    );
}

#[test]
fn a_freeze_is_about_its_node_pools_and_ends_by_itself() {
    let until = "2026-01-01T02:00:00Z";
    let frozen_by = |selector: Value, pool: &str, now: &str| {
        let mut spec = json!({"freeze": {"reason": "incident 42", "until": until}});
        if !selector.is_null() {
            spec["nodePools"] = selector;
        }
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let reason = spokeshave_api::DisruptionReason::Empty;
        frozen([&policy(&spec)], pool, Some(&labels), &reason, at(now))
    };
    let (early, late) = ("2026-01-01T01:00:00Z", until);
    let said = frozen_by(Value::Null, "x", early).unwrap();
    assert_eq!(said, "DisruptionPolicy p: frozen: incident 42");
    assert!(frozen_by(json!({"names": ["y"]}), "x", early).is_none());
    assert!(frozen_by(json!({"matchLabels": {"team": "a"}}), "x", early).is_some());
    assert!(
        frozen_by(json!({}), "x", early).is_none(),
        "an empty selector selects none"
    );
    assert!(frozen_by(Value::Null, "x", late).is_none());
}

/// Of a NodePool that cannot be read nobody knows the labels.
#[test]
fn a_freeze_by_labels_may_be_about_a_node_pool_whose_labels_are_not_known() {
    let is_frozen = |selector: Value| {
        let spec = json!({"freeze": {"reason": "incident 42"}, "nodePools": selector});
        let reason = spokeshave_api::DisruptionReason::Empty;
        frozen([&policy(&spec)], "x", None, &reason, at("2026-01-01T00:00:00Z")).is_some()
    };
    assert!(is_frozen(json!({"matchLabels": {"team": "a"}})));
    assert!(is_frozen(json!({"names": ["x"]})));
    assert!(is_frozen(Value::Null), "all of them");
    assert!(!is_frozen(json!({"names": ["y"]})));
    assert!(!is_frozen(json!({})), "none");
}

#[test]
fn a_policy_that_cannot_be_read_is_a_fault_and_may_be_a_freeze() {
    let object = json!({"metadata": {"name": "p"}, "spec": {"nodePools": {"names": ["x"]}, "budgets": 7}});
    let policy = DisruptionPolicy::salvaged(&object).unwrap();
    let found = faults(&policy);
    let [fault] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((fault.field.as_str(), &fault.reasons), ("spec", &None));
    assert!(fault.message.starts_with("cannot be read: "), "{}", fault.message);
    let frozen_at = |pool: &str| {
        let reason = spokeshave_api::DisruptionReason::Empty;
        frozen(
            [&policy],
            pool,
            Some(&BTreeMap::new()),
            &reason,
            at("2026-01-01T00:00:00Z"),
        )
    };
    let said = "DisruptionPolicy p: cannot be read, and may be a freeze";
    assert_eq!(frozen_at("x").as_deref(), Some(said));
    assert_eq!(frozen_at("y"), None);
}
