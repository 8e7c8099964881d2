//! Windows and the forecast of budgets against every minute around every change of every clock, in all IANA time zones, for five years.
//!
//! The oracle shares nothing with the code under test: offsets are a table that another program has read from the data base, and days are counted.

use jiff::tz::TimeZoneDatabase;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_api::{DisruptionPolicy, DisruptionReason};
use spokeshave_plan::calendar::Window;
use spokeshave_plan::disruption_policy::forecast::{PoolNodes, lanes};
use spokeshave_plan::disruption_policy::windows::{Windows, time_zone};
use std::collections::{BTreeMap, BTreeSet};

const TABLE: &str = include_str!("../data/time_zones.txt");
/// 2021-01-01 and 2026-01-01, UTC.
const RANGE: std::ops::Range<i64> = 1_609_459_200..1_767_225_600;
const DAY: i64 = 86_400;
const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The clock of some zones.
struct Clock {
    names: Vec<&'static str>,
    first: i64,
    changes: Vec<(i64, i64)>,
}

impl Clock {
    fn all() -> Vec<Clock> {
        let number = |text: &str| text.parse::<i64>().expect("a number");
        let read = |line: &'static str| {
            let mut words = line.split(' ');
            let first = number(words.next().expect("an offset"));
            let changes = words
                .next()
                .filter(|changes| *changes != "-")
                .into_iter()
                .flat_map(|all| all.split(','));
            let changes = changes.map(|one| one.split_once(':').expect("an instant and an offset"));
            Clock {
                first,
                changes: changes.map(|(at, offset)| (number(at), number(offset))).collect(),
                names: words.collect(),
            }
        };
        TABLE
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(read)
            .collect()
    }

    /// Days since 1970-01-01 and minutes of the day, as the clock shows them.
    fn shows(&self, at: i64) -> (i64, i64) {
        let offset = self
            .changes
            .iter()
            .rev()
            .find(|(from, _)| *from <= at)
            .map_or(self.first, |(_, offset)| *offset);
        ((at + offset).div_euclid(DAY), (at + offset).rem_euclid(DAY) / 60)
    }
}

/// A date as it is written, by counting years and months.
fn date(mut days: i64) -> String {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + i64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

/// Windows as an oracle reads them: on which days one begins, and when.
struct Wanted {
    list: Value,
    except: Vec<String>,
}

impl Wanted {
    fn is_open(&self, (day, minute): (i64, i64)) -> bool {
        let begins = |window: &Value, day: i64| {
            let has = |field: &str, text: &str| {
                window[field]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one == text))
            };
            let is_any = window["days"].is_null() && window["dates"].is_null();
            // 1970-01-01 was a Thursday.
            let name = NAMES[usize::try_from((day + 3).rem_euclid(7)).expect("a day")];
            let written = date(day);
            (is_any || has("days", name) || has("dates", &written)) && !self.except.contains(&written)
        };
        let read = |text: &Value| {
            let text = text.as_str().expect("a time");
            text[..2].parse::<i64>().expect("hours") * 60 + text[3..].parse::<i64>().expect("minutes")
        };
        self.list.as_array().expect("windows").iter().any(|window| {
            let (from, to) = (read(&window["from"]), read(&window["to"]));
            if from < to {
                (from..to).contains(&minute) && begins(window, day)
            } else {
                (minute >= from && begins(window, day)) || (minute < to && begins(window, day - 1))
            }
        })
    }
}

/// Windows around one instant: in the hours in which clocks change, over midnight, by days, by dates of these days and without them.
fn wanted(clock: &Clock, around: i64, kind: usize) -> Wanted {
    let (day, minute) = clock.shows(around);
    let time = |minute: i64| {
        let minute = minute.rem_euclid(1440);
        format!("{:02}:{:02}", minute / 60, minute % 60)
    };
    let name = |day: i64| NAMES[usize::try_from((day + 3).rem_euclid(7)).expect("a day")];
    let list = match kind % 5 {
        0 => json!([{"from": time(minute - 95), "to": time(minute + 25)}]),
        1 => {
            json!([{"days": [name(day - 1)], "from": "22:00", "to": "06:00"}, {"days": [name(day)], "from": "12:30", "to": "24:00"}])
        }
        2 => {
            json!([{"dates": [date(day)], "from": "00:00", "to": "24:00"}, {"from": time(minute - 30), "to": time(minute - 29)}])
        }
        3 => {
            json!([{"days": [name(day), name(day + 1)], "from": time(minute), "to": time(minute + 60)}, {"from": "23:59", "to": "00:01"}])
        }
        _ => {
            json!([{"from": time(minute - 60), "to": time(minute)}, {"dates": [date(day - 1)], "from": time(minute + 61), "to": time(minute + 60)}])
        }
    };
    let except = if kind.is_multiple_of(3) {
        vec![date(day + 1)]
    } else {
        Vec::new()
    };
    Wanted { list, except }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("an instant")
}

/// Every minute of a stretch: whether a window is open, when that changes, and what the forecast of a budget with these windows allows.
fn compare(clock: &Clock, name: &str, wanted: &Wanted, from: i64, minutes: i64) {
    let list = serde_json::from_value::<Vec<_>>(wanted.list.clone()).expect("windows");
    let windows = Windows::read(time_zone(Some(name)).expect("a zone"), &list, &wanted.except)
        .expect("windows that can be read");
    let open: Vec<bool> = (0..minutes)
        .map(|minute| wanted.is_open(clock.shows(from + minute * 60)))
        .collect();
    for (minute, open) in (0_i64..).zip(&open) {
        let moment = at(from + minute * 60);
        assert_eq!(windows.is_open(moment), *open, "{name} {moment} {}", wanted.list);
    }
    let flips = (1..open.len()).filter(|minute| open[*minute] != open[*minute - 1]);
    let mut looked = 0;
    for flip in flips {
        let moment = |minute: usize| at(from + i64::try_from(minute).expect("a minute") * 60);
        assert_eq!(
            windows.next_change(moment(looked)),
            Some(moment(flip)),
            "{name} from {} {}",
            moment(looked),
            wanted.list
        );
        looked = flip;
    }
    let spec = json!({"timeZone": name, "budgets": [{"limit": "3", "windows": wanted.list, "exceptDates": wanted.except}]});
    let policy = DisruptionPolicy::new("p", serde_json::from_value(spec).expect("a spec"));
    let pool = PoolNodes {
        name: "default".to_owned(),
        labels: BTreeMap::new(),
        nodes: 100,
        budgets: Vec::new(),
        expire_after: spokeshave_api::NillableDuration::default_expire_after(),
    };
    let range = Window {
        from: at(from),
        until: at(from + minutes * 60),
    };
    let lanes = lanes(
        [&policy],
        std::slice::from_ref(&pool),
        &pool,
        &DisruptionReason::Drifted,
        range,
    );
    let [lane] = lanes.as_slice() else {
        panic!("one lane: {lanes:?}")
    };
    let mut segments = lane.segments.iter().peekable();
    for (minute, open) in (0_i64..).zip(&open) {
        let moment = at(from + minute * 60);
        while segments.next_if(|(window, _)| window.until <= moment).is_some() {}
        let allowed = segments
            .peek()
            .filter(|(window, _)| window.from <= moment)
            .map(|(_, allowed)| *allowed);
        assert_eq!(
            allowed,
            Some(if *open { 3 } else { 0 }),
            "{name} {moment} {}",
            wanted.list
        );
    }
}

#[test]
fn every_name_of_the_data_base_is_known_and_shows_the_time_of_the_table() {
    let (mut zones, mut changes) = (0, 0);
    for clock in Clock::all() {
        for name in &clock.names {
            let zone = time_zone(Some(name)).unwrap_or_else(|error| panic!("{error}"));
            zones += 1;
            // Just before and at each change, and once a season.
            let around = clock.changes.iter().flat_map(|(change, _)| [change - 1, *change]);
            for moment in around.chain(RANGE.step_by(usize::try_from(91 * DAY).expect("a step"))) {
                let local = zone.to_datetime(at(moment));
                let (day, minute) = clock.shows(moment);
                let shown = format!("{} {:02}:{:02}", date(day), minute / 60, minute % 60);
                assert_eq!(
                    local.strftime("%Y-%m-%d %H:%M").to_string(),
                    shown,
                    "{name} {}",
                    at(moment)
                );
            }
        }
        changes += clock.changes.len() * clock.names.len();
    }
    assert!(zones > 590 && changes > 2_000, "{zones} zones, {changes} changes");
}

/// An image holds the program and no files of time zones; what is not in the program is not there.
#[test]
fn every_name_of_the_data_base_is_part_of_the_program() {
    let bundled = TimeZoneDatabase::bundled();
    for name in Clock::all().iter().flat_map(|clock| &clock.names) {
        assert!(bundled.get(name).is_ok(), "{name}");
    }
    assert!(bundled.get("UTC").is_ok());
}

#[test]
fn windows_and_forecast_agree_with_every_minute_around_every_change_of_five_years() {
    // Zones that go through the same change with the same clock are looked at once.
    let mut seen = BTreeSet::new();
    let mut kind = 0;
    for clock in Clock::all() {
        let name = clock.names[0];
        for (index, (change, offset)) in clock.changes.iter().enumerate() {
            let before = index
                .checked_sub(1)
                .map_or(clock.first, |before| clock.changes[before].1);
            if seen.insert((*change, before, *offset)) {
                kind += 1;
                let wanted = wanted(&clock, *change, kind);
                compare(&clock, name, &wanted, change - 26 * 3600, 52 * 60);
            }
        }
        // And days on which nothing happens.
        for sample in 0..4 {
            kind += 1;
            let day =
                RANGE.start + (i64::try_from(kind).expect("a number") * 7_919 % 1_820) * DAY + sample * 3_660;
            let wanted = wanted(&clock, day + DAY / 2, kind);
            compare(&clock, name, &wanted, day, 1_440);
        }
    }
    assert!(seen.len() > 250, "{} changes", seen.len());
}

#[test]
fn the_oracle_counts_days_as_calendars_do() {
    assert_eq!(
        [date(0), date(18_628), date(19_782), date(20_454)],
        ["1970-01-01", "2021-01-01", "2024-02-29", "2026-01-01"]
    );
    let first = at(RANGE.start) + SignedDuration::from_hours(24);
    assert_eq!(first.strftime("%Y-%m-%d").to_string(), date(18_629));
}
