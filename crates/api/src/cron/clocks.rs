//! Schedules by the clocks of a time zone, as CronJobs mean them.
//!
//! Owns what becomes of times on the days on which clocks are changed. Budgets never ask: their schedules are in UTC.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Cron, HORIZON_YEARS};

impl Cron {
    /// The hits strictly after `after` by the clocks of a time zone, as robfig/cron finds them for CronJobs: each instant at which they show the time. One that a
    /// change of the clocks leaves out never comes, and one that comes twice counts twice. It ends where there is none within five years.
    pub fn hits_by(&self, zone: &TimeZone, after: Timestamp) -> impl Iterator<Item = Timestamp> {
        // Before 1970 the second of an instant is not behind it.
        let mut since = after.as_second() - i64::from(after.subsec_nanosecond() < 0);
        let mut offset = zone.to_offset(after);
        let mut changes = zone.following(after).peekable();
        std::iter::from_fn(move || {
            let mut last_year = None;
            loop {
                // Until the clocks are changed the schedule is followed on their face, as if that were UTC.
                let ahead = i64::from(offset.seconds());
                let face = Timestamp::from_second(since + ahead).ok()?;
                let shown = self.next_after(face).ok()?;
                let last_year = *last_year.get_or_insert_with(|| year(face).saturating_add(HORIZON_YEARS));
                let hit = shown.as_second() - ahead;
                let change = changes
                    .peek()
                    .map(|change| (change.timestamp().as_second(), change.offset()));
                if let Some((at, next)) = change
                    && at <= hit
                {
                    (since, offset) = (at - 1, next);
                    changes.next();
                } else if year(shown) > last_year {
                    return None;
                } else {
                    since = hit;
                    return Timestamp::from_second(hit).ok();
                }
            }
        })
    }
}

fn year(time: Timestamp) -> i16 {
    time.to_zoned(TimeZone::UTC).year()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The days on which clocks change, as robfig/cron's own tests have them.
    #[test]
    fn hits_by_clocks_that_are_changed_are_those_of_robfig_cron() {
        for (zone, schedule, after, next) in [
            // Put forward at 02:00, 07:00 in UTC.
            (
                "America/New_York",
                "0 * * * *",
                "2012-03-11T06:00:00Z",
                "2012-03-11T07:00:00Z",
            ),
            (
                "America/New_York",
                "*/15 * * * *",
                "2012-03-11T06:45:00Z",
                "2012-03-11T07:00:00Z",
            ),
            (
                "America/New_York",
                "0 1 * * *",
                "2012-03-11T06:00:00Z",
                "2012-03-12T05:00:00Z",
            ),
            (
                "America/New_York",
                "0 2 * * *",
                "2012-03-11T05:00:00Z",
                "2012-03-12T06:00:00Z",
            ),
            (
                "America/New_York",
                "30 2 11 3 *",
                "2012-03-11T05:00:00Z",
                "2013-03-11T06:30:00Z",
            ),
            // Put back at 02:00, 06:00 in UTC.
            (
                "America/New_York",
                "*/15 * * * *",
                "2012-11-04T05:45:00Z",
                "2012-11-04T06:00:00Z",
            ),
            (
                "America/New_York",
                "30 1 4 11 *",
                "2012-11-04T05:45:00Z",
                "2012-11-04T06:30:00Z",
            ),
            (
                "America/New_York",
                "0 1 * * *",
                "2012-11-04T04:00:00Z",
                "2012-11-04T05:00:00Z",
            ),
            (
                "America/New_York",
                "0 1 * * *",
                "2012-11-04T05:00:00Z",
                "2012-11-04T06:00:00Z",
            ),
            (
                "America/New_York",
                "0 1 * * *",
                "2012-11-04T06:00:00Z",
                "2012-11-05T06:00:00Z",
            ),
            (
                "America/New_York",
                "0 2 * * *",
                "2012-11-04T04:00:00Z",
                "2012-11-04T07:00:00Z",
            ),
            (
                "America/New_York",
                "0 2 * * *",
                "2012-11-04T07:00:00Z",
                "2012-11-05T07:00:00Z",
            ),
            (
                "America/New_York",
                "0 3 3 * *",
                "2012-11-04T04:00:00Z",
                "2012-12-03T08:00:00Z",
            ),
            // Put forward at midnight, which does not come then.
            (
                "America/Sao_Paulo",
                "0 9 10 * *",
                "2018-10-17T09:00:00Z",
                "2018-11-10T11:00:00Z",
            ),
            (
                "America/Sao_Paulo",
                "0 0 * * *",
                "2018-11-03T12:00:00Z",
                "2018-11-05T02:00:00Z",
            ),
            (
                "UTC",
                "0 9 10 * *",
                "2018-10-17T09:00:00.5Z",
                "2018-11-10T09:00:00Z",
            ),
        ] {
            let zone = TimeZone::get(zone).unwrap();
            let cron: Cron = schedule.parse().unwrap();
            let found = cron.hits_by(&zone, at(after)).next();
            assert_eq!(found, Some(at(next)), "{schedule} after {after} in {zone:?}");
        }
    }

    #[test]
    fn hits_by_clocks_end_where_none_is_within_five_years() {
        let zone = TimeZone::get("America/New_York").unwrap();
        let hits = |schedule: &str, after: &str| {
            let cron: Cron = schedule.parse().unwrap();
            cron.hits_by(&zone, at(after)).next()
        };
        assert_eq!(hits("0 0 31 2 *", "2026-01-01T00:00:00Z"), None);
        // A leap year is left out at the end of a century.
        assert_eq!(hits("0 0 29 2 *", "2096-03-01T05:00:00Z"), None);
        assert_eq!(
            hits("0 0 29 2 *", "2092-03-01T05:00:00Z"),
            Some(at("2096-02-29T05:00:00Z"))
        );
    }
}
