//! Five-field cron in UTC, as the budgets of NodePools mean it (D-189…D-194); `clocks` has it by the clocks of a time zone, as CronJobs do.
//!
//! Owns a grammar that is exactly robfig/cron's standard parser without time zones. General cron crates accept more (`7`, `L`, six
//! fields) and less (`@midnight`, `5/15`), and a budget that means something else than upstream's is worse than one that is refused.

mod clocks;

use std::str::FromStr;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

/// Years that are searched for a hit before a schedule counts as one that never fires.
const HORIZON_YEARS: i16 = 5;

/// Why a schedule cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Not five fields, or an unknown descriptor.
    #[error(
        "schedule {0:?} needs five fields (minute, hour, day of month, month, day of week) or one of @yearly @annually @monthly @weekly @daily @midnight @hourly"
    )]
    Shape(String),
    /// Time zones are not part of the API.
    #[error("schedule {0:?} names a time zone; schedules are in UTC, without TZ= or CRON_TZ=")]
    TimeZone(String),
    /// A field is out of range or malformed.
    #[error("schedule {schedule:?}: {field} {text:?} {problem}")]
    Field {
        /// The whole schedule.
        schedule: String,
        /// Which field.
        field: &'static str,
        /// Its text.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It is well formed and has no hit.
    #[error("schedule {0:?} has no hit within five years")]
    NeverFires(String),
}

/// A schedule: for each field the set of values that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Day of month and day of week are both restricted, so that either suffices (D-192).
    either_day: bool,
    text: String,
}

struct FieldRange {
    name: &'static str,
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MINUTE: FieldRange = FieldRange {
    name: "minute",
    low: 0,
    high: 59,
    names: &[],
};
const HOUR: FieldRange = FieldRange {
    name: "hour",
    low: 0,
    high: 23,
    names: &[],
};
const DAY: FieldRange = FieldRange {
    name: "day of month",
    low: 1,
    high: 31,
    names: &[],
};
const MONTH: FieldRange = FieldRange {
    name: "month",
    low: 1,
    high: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
const WEEKDAY: FieldRange = FieldRange {
    name: "day of week",
    low: 0,
    high: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            return Err(CronError::TimeZone(text.to_owned()));
        }
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let parts: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = parts[..] else {
            return Err(CronError::Shape(text.to_owned()));
        };
        let (days, any_day) = field(text, day, &DAY)?;
        let (weekdays, any_weekday) = field(text, weekday, &WEEKDAY)?;
        Ok(Self {
            minutes: field(text, minute, &MINUTE)?.0,
            hours: field(text, hour, &HOUR)?.0,
            days,
            months: field(text, month, &MONTH)?.0,
            weekdays,
            either_day: !any_day && !any_weekday,
            text: text.to_owned(),
        })
    }
}

/// The set of a field's values, and whether it is unrestricted.
fn field(schedule: &str, text: &str, range: &FieldRange) -> Result<(u64, bool), CronError> {
    let (mut set, mut any) = (0, false);
    // Empty elements do not count: `1,,2` is `1,2`, as in robfig/cron.
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (part_set, part_any) = element(part, range).map_err(|problem| CronError::Field {
            schedule: schedule.to_owned(),
            field: range.name,
            text: text.to_owned(),
            problem,
        })?;
        set |= part_set;
        any |= part_any;
    }
    Ok((set, any))
}

/// One element of a list: `*`, `N`, `N-M`, each with an optional step.
fn element(text: &str, range: &FieldRange) -> Result<(u64, bool), String> {
    let (base, step_text) = match text.split_once('/') {
        Some((base, step)) => (base, Some(step)),
        None => (text, None),
    };
    let (start_text, end_text) = match base.split_once('-') {
        Some((start, end)) => (start, Some(end)),
        None => (base, None),
    };
    if end_text.is_some_and(|end| end.contains('-')) || step_text.is_some_and(|step| step.contains('/')) {
        return Err("has too many hyphens or slashes".to_owned());
    }
    // Anything after a star is ignored (`*-5` is `*`), as in robfig/cron.
    let star = start_text == "*" || start_text == "?";
    let (low, high) = if star {
        (range.low, range.high)
    } else {
        let start = value(start_text, range)?;
        let end = end_text.map(|end| value(end, range)).transpose()?;
        // `N/step` runs from N to the end of the field.
        (
            start,
            end.unwrap_or(if step_text.is_some() { range.high } else { start }),
        )
    };
    let step = match step_text {
        Some(step) => number(step)?,
        None => 1,
    };
    if step == 0 {
        return Err("has a step of 0".to_owned());
    }
    if low > high {
        return Err(format!("has a range whose start {low} lies after its end {high}"));
    }
    let set = (low..=high)
        .step_by(step as usize)
        .fold(0_u64, |set, value| set | 1 << value);
    Ok((set, star && step == 1))
}

fn value(text: &str, range: &FieldRange) -> Result<u32, String> {
    let lower = text.to_ascii_lowercase();
    let value = match range.names.iter().position(|name| *name == lower) {
        Some(index) => index as u32 + range.low,
        None => number(text)?,
    };
    if (range.low..=range.high).contains(&value) {
        Ok(value)
    } else {
        Err(format!("is outside {} to {}", range.low, range.high))
    }
}

fn number(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("contains {text:?}, which is not a number"));
    }
    digits
        .parse()
        .map_err(|_| format!("contains {text:?}, which is too large"))
}

fn has(set: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| set >> value & 1 == 1)
}

/// The smallest member of the set at or after `from`.
fn next_in(set: u64, from: i8) -> Option<i8> {
    let from = u32::try_from(from).ok()?;
    let rest = set.checked_shr(from)? << from;
    (rest != 0).then(|| rest.trailing_zeros() as i8)
}

impl Cron {
    /// The first hit strictly after `after`, in UTC, at second 0.
    ///
    /// # Errors
    /// [`CronError::NeverFires`] when there is none within five years (D-194).
    pub fn next_after(&self, after: Timestamp) -> Result<Timestamp, CronError> {
        let never = || CronError::NeverFires(self.text.clone());
        let start = after.to_zoned(TimeZone::UTC).datetime();
        let first = start
            .with()
            .second(0)
            .subsec_nanosecond(0)
            .build()
            .ok()
            .and_then(|minute| minute.checked_add(1.minute()).ok())
            .ok_or_else(never)?;
        let mut date = first.date();
        let (mut hour, mut minute) = (first.hour(), first.minute());
        let last_year = date.year().saturating_add(HORIZON_YEARS);
        while date.year() <= last_year {
            if let Some(time) = self
                .matches_day(date)
                .then(|| self.time_from(hour, minute))
                .flatten()
            {
                let hit = DateTime::from_parts(date, jiff::civil::time(time.0, time.1, 0, 0));
                return hit
                    .to_zoned(TimeZone::UTC)
                    .map(|zoned| zoned.timestamp())
                    .map_err(|_| never());
            }
            date = self.next_day(date).ok_or_else(never)?;
            (hour, minute) = (0, 0);
        }
        Err(never())
    }

    fn matches_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        has(self.months, date.month())
            && if self.either_day {
                day || weekday
            } else {
                day && weekday
            }
    }

    /// The next day that could match: tomorrow, or the first of the next month when the whole month cannot.
    fn next_day(&self, date: Date) -> Option<Date> {
        if has(self.months, date.month()) {
            date.tomorrow().ok()
        } else {
            date.last_of_month().tomorrow().ok()
        }
    }

    fn time_from(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        if has(self.hours, hour)
            && let Some(minute) = next_in(self.minutes, minute)
        {
            return Some((hour, minute));
        }
        let hour = next_in(self.hours, hour + 1)?;
        Some((hour, next_in(self.minutes, 0)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn d_189_next_hits() {
        for (schedule, after, next) in [
            ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("@midnight", "2026-01-01T23:59:59Z", "2026-01-02T00:00:00Z"),
            ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
            ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@monthly", "2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("0 9 * * mon-fri", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
            ("*/15 * * * *", "2026-01-01T00:07:30Z", "2026-01-01T00:15:00Z"),
            ("5/15 * * * *", "2026-01-01T00:50:00Z", "2026-01-01T01:05:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 ? * SUN", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("0 0 * Feb *", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
        ] {
            assert_eq!(
                schedule.parse::<Cron>().unwrap().next_after(at(after)).unwrap(),
                at(next),
                "{schedule}"
            );
        }
    }

    #[test]
    fn d_192_either_day_matches_when_both_are_restricted() {
        let both: Cron = "0 0 13 * 5".parse().unwrap();
        assert_eq!(
            both.next_after(at("2026-01-01T00:00:00Z")).unwrap(),
            at("2026-01-02T00:00:00Z")
        );
        let starred: Cron = "0 0 */2 * 5".parse().unwrap();
        assert_eq!(
            starred.next_after(at("2026-01-01T00:00:00Z")).unwrap(),
            at("2026-01-02T00:00:00Z"),
            "a star with a step restricts, so that Friday the 2nd matches"
        );
        let only_weekday: Cron = "0 0 * * 5".parse().unwrap();
        assert_eq!(
            only_weekday.next_after(at("2026-01-02T00:00:00Z")).unwrap(),
            at("2026-01-09T00:00:00Z")
        );
    }

    #[test]
    fn d_190_d_191_refused_schedules() {
        for bad in [
            "* * * * 7",
            "0 0 * * fri-mon",
            "TZ=UTC 0 0 * * *",
            "CRON_TZ=Europe/Berlin @daily",
            "@dailyfoo",
            "@daily 5",
            "0 0 0 * * *",
            "0 0 * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 *",
            "*/0 * * * *",
            "a * * * *",
            "1- * * * *",
            "1/2/3 * * * *",
            "-1 * * * *",
            "1-2-3 * * * *",
            "",
            "@every 1h",
            "* * L * *",
            "* * * * 5#2",
        ] {
            assert!(bad.parse::<Cron>().is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn d_191_what_the_standard_parser_lets_pass() {
        for (loose, strict) in [
            ("1,,2 * * * *", "1,2 * * * *"),
            ("*-5 * * * *", "* * * * *"),
            ("+5 0 * * *", "5 0 * * *"),
            ("0\t0  * * *", "0 0 * * *"),
            ("0 0 ? ? ?", "0 0 * * *"),
        ] {
            let (loose, strict): (Cron, Cron) = (loose.parse().unwrap(), strict.parse().unwrap());
            assert_eq!(
                Cron {
                    text: String::new(),
                    ..loose
                },
                Cron {
                    text: String::new(),
                    ..strict
                }
            );
        }
        let nothing: Cron = ", * * * *".parse().unwrap();
        assert!(
            matches!(
                nothing.next_after(at("2026-01-01T00:00:00Z")),
                Err(CronError::NeverFires(_))
            ),
            "an empty list has no hit"
        );
    }

    #[test]
    fn d_194_a_schedule_that_never_fires_is_an_error() {
        let never: Cron = "0 0 31 2 *".parse().unwrap();
        assert!(matches!(
            never.next_after(at("2026-01-01T00:00:00Z")),
            Err(CronError::NeverFires(_))
        ));
    }

    /// The rule of D-191 and D-192 for one minute, written down a second time.
    fn fires_at(cron: &Cron, time: Timestamp) -> bool {
        let time = time.to_zoned(TimeZone::UTC).datetime();
        has(cron.minutes, time.minute()) && has(cron.hours, time.hour()) && cron.matches_day(time.date())
    }

    proptest! {
        #[test]
        fn the_next_hit_is_found_by_walking_minutes_too(
            minute in prop::sample::select(vec!["*", "0", "*/7", "3-9", "59"]),
            hour in prop::sample::select(vec!["*", "0", "*/5", "22-23"]),
            weekday in prop::sample::select(vec!["*", "sun", "1-5", "6"]),
            offset in 0_i64..2_000_000,
        ) {
            let cron: Cron = format!("{minute} {hour} * * {weekday}").parse().unwrap();
            let after = Timestamp::from_second(1_767_225_600 + offset).unwrap();
            let hit = cron.next_after(after).unwrap();
            let mut walk = Timestamp::from_second(after.as_second() / 60 * 60 + 60).unwrap();
            while !fires_at(&cron, walk) {
                walk = Timestamp::from_second(walk.as_second() + 60).unwrap();
            }
            prop_assert_eq!(hit, walk);
        }

        /// An implementation by others, where its grammar and ours mean the same.
        #[test]
        fn croner_finds_the_same_hits(
            minute in prop::sample::select(vec!["*", "0", "*/7", "3-9", "59", "1,2,40-50", "10-50/9"]),
            hour in prop::sample::select(vec!["*", "0", "*/5", "22-23", "1,13"]),
            day in prop::sample::select(vec!["*", "1", "31", "10-12", "15,29"]),
            month in prop::sample::select(vec!["*", "1", "feb-may", "JUN,dec", "*/5", "9-12/3"]),
            weekday in prop::sample::select(vec!["*", "sun", "1-5", "6", "Tue,thu"]),
            second in 0_i64..400_000_000,
        ) {
            let text = format!("{minute} {hour} {day} {month} {weekday}");
            let after = Timestamp::from_second(1_767_225_600 + second).unwrap();
            let ours = text.parse::<Cron>().unwrap().next_after(after);
            let theirs = croner::Cron::from_str(&text).unwrap().find_next_occurrence(&after.to_zoned(TimeZone::UTC), false);
            match (ours, theirs) {
                (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs.timestamp(), "{} after {}", text, after),
                (Ok(ours), Err(error)) => prop_assert!(false, "{text} after {after}: we found {ours}, croner {error}"),
                (Err(_), Ok(theirs)) => prop_assert!(theirs.year() > after.to_zoned(TimeZone::UTC).year() + HORIZON_YEARS),
                (Err(_), Err(_)) => {}
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,30}") {
            let _ = text.parse::<Cron>();
        }

        #[test]
        fn arbitrary_fields_never_panic(text in "([0-9*/,?-]{1,5} ){4}[0-9a-z*/,?-]{1,5}", second in -30_000_000_000_i64..200_000_000_000) {
            if let Ok(cron) = text.parse::<Cron>() {
                let _ = cron.next_after(Timestamp::from_second(second).unwrap());
            }
        }
    }
}
