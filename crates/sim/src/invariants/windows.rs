//! When a budget with a schedule is in force (D-189…D-194), by checking every minute: slow, simple, and independent.

use std::time::Duration;

use jiff::{Timestamp, ToSpan as _, civil::DateTime, tz::TimeZone};

/// Longest duration that is looked through, in minutes; schedules of scenarios are shorter.
const LONGEST_MINUTES: u64 = 31 * 24 * 60;

/// Whether a window that began at a hit of the schedule is open: some hit lies in (now − duration, now]. `None` when the schedule cannot
/// be read.
pub(super) fn is_open(schedule: &str, duration: Duration, now: Timestamp) -> Option<bool> {
    let fields = Fields::read(schedule)?;
    let moment = now.to_zoned(TimeZone::UTC).datetime();
    let minute = DateTime::from_parts(moment.date(), moment.time())
        .with()
        .second(0)
        .subsec_nanosecond(0)
        .build()
        .ok()?;
    let into_minute = Duration::try_from(moment.duration_since(minute)).ok()?;
    let minutes = (duration.as_secs() / 60).min(LONGEST_MINUTES);
    Some((0..=minutes).any(|back| {
        let since = into_minute + Duration::from_secs(back * 60);
        let Ok(back) = i64::try_from(back) else {
            return false;
        };
        since < duration && minute.checked_sub(back.minutes()).is_ok_and(|at| fields.hit(at))
    }))
}

/// Minutes, hours, days of the month, months, days of the week that are meant, as sets.
struct Fields {
    sets: [Vec<i64>; 5],
    /// Whether days of the month and days of the week are restricted (D-192).
    restricted: (bool, bool),
}

impl Fields {
    fn read(schedule: &str) -> Option<Self> {
        let text = match schedule {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = parts[..] else {
            return None;
        };
        const MONTHS: [&str; 12] = [
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ];
        const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
        let free = |text: &str| {
            text.split(',')
                .any(|one| matches!(one, "*" | "?" | "*/1" | "?/1"))
        };
        Some(Self {
            sets: [
                set(minute, 0, 59, &[])?,
                set(hour, 0, 23, &[])?,
                set(day, 1, 31, &[])?,
                set(month, 1, 12, &MONTHS)?,
                set(weekday, 0, 6, &DAYS)?,
            ],
            restricted: (!free(day), !free(weekday)),
        })
    }

    fn hit(&self, at: DateTime) -> bool {
        let [minutes, hours, days, months, weekdays] = &self.sets;
        let day = days.contains(&i64::from(at.day()));
        let weekday = weekdays.contains(&i64::from(at.weekday().to_sunday_zero_offset()));
        let date = if self.restricted == (true, true) {
            day || weekday
        } else {
            day && weekday
        };
        minutes.contains(&i64::from(at.minute()))
            && hours.contains(&i64::from(at.hour()))
            && months.contains(&i64::from(at.month()))
            && date
    }
}

/// The numbers of a field: lists of `*`, `n`, `n-m`, each perhaps with `/step`.
fn set(field: &str, least: i64, most: i64, names: &[&str]) -> Option<Vec<i64>> {
    let number = |text: &str| {
        let name = text.to_ascii_lowercase();
        let named = names.iter().position(|one| *one == name);
        let value = match named {
            Some(index) => i64::try_from(index).ok()? + least,
            None => text.parse().ok()?,
        };
        (least..=most).contains(&value).then_some(value)
    };
    let mut found = Vec::new();
    for part in field.split(',') {
        let (range, step) = part
            .split_once('/')
            .map_or((part, None), |(range, step)| (range, Some(step)));
        let step: usize = step.map_or(Some(1), |step| step.parse().ok().filter(|step| *step > 0))?;
        let (from, to) = match range {
            "*" | "?" => (least, most),
            range => match range.split_once('-') {
                Some((from, to)) => (number(from)?, number(to)?),
                None if part.contains('/') => (number(range)?, most),
                None => (number(range)?, number(range)?),
            },
        };
        if from > to {
            return None;
        }
        found.extend((from..=to).step_by(step));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of D §5.2.
    #[test]
    fn d_193_windows_are_open_from_a_hit_for_their_duration() {
        let table = [
            ("@daily", 10, "2026-03-02T00:00:00Z", true),
            ("@daily", 10, "2026-03-02T00:09:59Z", true),
            ("@daily", 10, "2026-03-02T00:10:00Z", false),
            ("0 9 * * mon-fri", 480, "2026-03-02T09:00:00Z", true),
            ("0 9 * * mon-fri", 480, "2026-03-06T16:59:00Z", true),
            ("0 9 * * mon-fri", 480, "2026-03-02T17:00:00Z", false),
            ("0 9 * * mon-fri", 480, "2026-03-07T12:00:00Z", false),
            ("0 0 * * 6", 2880, "2026-03-08T23:59:00Z", true),
            ("0 0 * * 6", 2880, "2026-03-09T00:00:00Z", false),
            ("@hourly", 90, "2026-03-02T12:34:56Z", true),
            ("*/20 * * * *", 7, "2026-03-02T12:46:59Z", true),
            ("*/20 * * * *", 7, "2026-03-02T12:47:00Z", false),
            // D-192: either day will do.
            ("0 0 13 * fri", 60, "2026-03-13T00:30:00Z", true),
            ("0 0 13 * fri", 60, "2026-03-06T00:30:00Z", true),
            ("0 0 13 * fri", 60, "2026-03-07T00:30:00Z", false),
        ];
        for (schedule, minutes, now, open) in table {
            let found = is_open(schedule, Duration::from_secs(minutes * 60), now.parse().unwrap());
            assert_eq!(found, Some(open), "{schedule} for {minutes} minutes at {now}");
        }
        for schedule in [
            "",
            "* * * *",
            "60 * * * *",
            "0 0 * * 7",
            "0 0 * * fri-mon",
            "TZ=UTC 0 0 * * *",
        ] {
            let found = is_open(
                schedule,
                Duration::from_secs(60),
                "2026-03-02T12:00:00Z".parse().unwrap(),
            );
            assert_eq!(found, None, "{schedule}");
        }
    }
}
