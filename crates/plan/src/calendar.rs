//! When a NodePool's budgets allow how many nodes: intervals of constant allowance between two instants (D §5.2, D §5.3).
//!
//! The hits of each schedule and its duration give windows, windows give the instants at which anything can change, and between two such
//! instants the allowance is the minimum over the budgets in force. Nothing is sampled. A budget that cannot be evaluated allows nothing
//! for the reasons that it covers, and says nothing about others. Times are UTC, as the schedules are (D-189). Rules of other places join as lanes.

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use spokeshave_api::{Budget, BudgetError, Cron, CronError, DisruptionReason, UNLIMITED};

/// The reasons of voluntary disruption, in the order of the methods.
pub const REASONS: [DisruptionReason; 3] = [
    DisruptionReason::Empty,
    DisruptionReason::Drifted,
    DisruptionReason::Underutilized,
];

/// A stretch of time, without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Window {
    /// First instant.
    pub from: Timestamp,
    /// First instant that no longer belongs to it.
    pub until: Timestamp,
}

/// When one budget is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Where it is in force: ordered, apart from each other, inside the range asked for.
    pub windows: Vec<Window>,
    /// From when on it cannot be evaluated, and why. The windows end before that.
    pub fault: Option<(Timestamp, BudgetError)>,
}

/// A stretch of time with one allowance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interval {
    /// First instant.
    pub from: Timestamp,
    /// First instant that no longer belongs to it.
    pub until: Timestamp,
    /// How many nodes may be disrupting at once, before those that already are.
    #[serde(serialize_with = "null_when_unlimited")]
    pub allowed: i64,
    /// Indexes of the budgets that set this limit, at any time of the interval; empty when nothing limits.
    pub limited_by: Vec<usize>,
    /// Rules of other places that set it, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyRule>,
}

/// A rule beside the budgets of a NodePool: its name, and what it allows when. Where it has no segment it does not limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The rule.
    pub rule: PolicyRule,
    /// Ordered, apart from each other.
    pub segments: Vec<(Window, i64)>,
}

/// A rule of a DisruptionPolicy. As text and in JSON it is such as `DisruptionPolicy calm budgets[0]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRule {
    /// Name of the policy.
    pub policy: String,
    /// The field under `spec`.
    pub field: String,
}

impl std::fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DisruptionPolicy {} {}", self.policy, self.field)
    }
}

impl Serialize for PolicyRule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The calendar of one NodePool for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReasonCalendar {
    /// The reason.
    #[serde(serialize_with = "as_text")]
    pub reason: DisruptionReason,
    /// The intervals: they follow each other without gap, and neighbours differ in what they allow.
    pub intervals: Vec<Interval>,
}

fn null_when_unlimited<S: Serializer>(allowed: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    match *allowed {
        UNLIMITED => serializer.serialize_none(),
        allowed => serializer.serialize_i64(allowed),
    }
}

fn as_text<S: Serializer>(reason: &DisruptionReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.as_str())
}

impl Activity {
    /// When `budget` is in force from `range.from` until `range.until`. Cost: one step per hit of the schedule.
    pub fn of(budget: &Budget, range: Window) -> Self {
        let (schedule, duration) = match (&budget.schedule, &budget.duration) {
            (None, None) => {
                return Activity {
                    windows: vec![range],
                    fault: None,
                };
            }
            (Some(schedule), Some(duration)) => (schedule, duration.to_signed()),
            _ => return Activity::faulty(range.from, BudgetError::HalfSchedule),
        };
        let cron: Cron = match schedule.parse() {
            Ok(cron) => cron,
            Err(error) => return Activity::faulty(range.from, BudgetError::Schedule(error)),
        };
        let mut activity = Activity::default();
        let mut after = range.from.saturating_sub(duration).unwrap_or(Timestamp::MIN);
        loop {
            let hit = match cron.next_after(after) {
                Ok(hit) => hit,
                Err(error) => {
                    activity.fail(after, duration, range, error);
                    return activity;
                }
            };
            if hit >= range.until {
                return activity;
            }
            let end = hit.saturating_add(duration).unwrap_or(Timestamp::MAX);
            activity.push(Window {
                from: hit.max(range.from),
                until: end.min(range.until),
            });
            after = hit;
        }
    }

    fn faulty(from: Timestamp, error: BudgetError) -> Self {
        Activity {
            windows: Vec::new(),
            fault: Some((from, error)),
        }
    }

    /// Windows that touch or overlap are one (D-193).
    fn push(&mut self, window: Window) {
        if window.from >= window.until {
            return;
        }
        match self.windows.last_mut() {
            Some(last) if last.until >= window.from => last.until = last.until.max(window.until),
            _ => self.windows.push(window),
        }
    }

    /// No hit follows `after` within five years: from the end of that hit's window on, the budget cannot be evaluated (D-194).
    fn fail(&mut self, after: Timestamp, duration: jiff::SignedDuration, range: Window, error: CronError) {
        let from = after.saturating_add(duration).unwrap_or(Timestamp::MAX);
        let from = from.max(range.from);
        if from < range.until {
            self.fault = Some((from, BudgetError::Schedule(error)));
        }
    }

    /// True when the budget is in force at every instant of the range.
    pub fn covers(&self, range: Window) -> bool {
        self.windows == [range]
    }
}

/// The calendar of a set of budgets for one reason, with percentages of `nodes` nodes.
pub fn calendar(
    budgets: &[Budget],
    reason: &DisruptionReason,
    nodes: usize,
    range: Window,
) -> ReasonCalendar {
    calendar_with(budgets, Vec::new(), reason, nodes, range)
}

/// The same, with rules of other places: the least of all holds.
pub fn calendar_with(
    budgets: &[Budget],
    further: Vec<Lane>,
    reason: &DisruptionReason,
    nodes: usize,
    range: Window,
) -> ReasonCalendar {
    let covering = budgets
        .iter()
        .enumerate()
        .filter(|(_, budget)| budget.covers(reason));
    let mut tracks: Vec<Track> = covering
        .map(|(index, budget)| Track::of(index, budget, nodes, range))
        .collect();
    let mut rules = Vec::new();
    for (offset, lane) in further.into_iter().enumerate() {
        tracks.push(Track::new(budgets.len() + offset, lane.segments));
        rules.push(lane.rule);
    }
    let mut intervals = sweep(tracks, range);
    for interval in &mut intervals {
        let named = interval.limited_by.iter().filter_map(|index| {
            let offset = index.checked_sub(budgets.len())?;
            rules.get(offset).cloned()
        });
        interval.policies = named.collect();
        interval.limited_by.retain(|index| *index < budgets.len());
    }
    ReasonCalendar {
        reason: reason.clone(),
        intervals,
    }
}

/// The first instant at or after `range.from` at which more than `disrupting` nodes are allowed; `None` when there is none in the range.
pub fn next_opening(
    budgets: &[Budget],
    reason: &DisruptionReason,
    nodes: usize,
    disrupting: usize,
    range: Window,
) -> Option<Timestamp> {
    let used = i64::try_from(disrupting).unwrap_or(i64::MAX);
    let intervals = calendar(budgets, reason, nodes, range).intervals;
    intervals
        .into_iter()
        .find(|interval| interval.allowed > used)
        .map(|interval| interval.from)
}

/// One budget or rule on its way through the range: where it limits, and to what.
struct Track {
    index: usize,
    segments: Vec<(Window, i64)>,
    position: usize,
}

impl Track {
    fn new(index: usize, segments: Vec<(Window, i64)>) -> Self {
        Track {
            index,
            segments,
            position: 0,
        }
    }

    fn of(index: usize, budget: &Budget, nodes: usize, range: Window) -> Self {
        let segments = match budget.allowed(nodes) {
            // What cannot be evaluated allows nothing (D-197).
            Err(_) => vec![(range, 0)],
            Ok(limit) => {
                let activity = Activity::of(budget, range);
                let windows = activity.windows.into_iter().map(|window| (window, limit));
                let fault = activity.fault.map(|(from, _)| {
                    let rest = Window {
                        from,
                        until: range.until,
                    };
                    (rest, 0)
                });
                windows.chain(fault).collect()
            }
        };
        Track::new(index, segments)
    }

    /// The limit at `time`, which never goes back; `None` where the budget is not in force.
    fn limit_at(&mut self, time: Timestamp) -> Option<i64> {
        while self.segments.get(self.position)?.0.until <= time {
            self.position += 1;
        }
        let (window, limit) = self.segments[self.position];
        (window.from <= time).then_some(limit)
    }
}

fn sweep(mut lanes: Vec<Track>, range: Window) -> Vec<Interval> {
    let mut changes: Vec<Timestamp> = lanes
        .iter()
        .flat_map(|lane| &lane.segments)
        .flat_map(|(window, _)| [window.from, window.until])
        .chain([range.from, range.until])
        .filter(|time| (range.from..=range.until).contains(time))
        .collect();
    changes.sort_unstable();
    changes.dedup();
    let mut intervals: Vec<Interval> = Vec::new();
    for pair in changes.windows(2) {
        let limits: Vec<(usize, i64)> = lanes
            .iter_mut()
            .filter_map(|lane| lane.limit_at(pair[0]).map(|limit| (lane.index, limit)))
            .collect();
        let allowed = limits.iter().map(|(_, limit)| *limit).min().unwrap_or(UNLIMITED);
        let limiting = limits
            .iter()
            .filter(|(_, limit)| *limit == allowed && allowed < UNLIMITED);
        let limited_by: Vec<usize> = limiting.map(|(index, _)| *index).collect();
        match intervals.last_mut() {
            Some(last) if last.allowed == allowed => {
                last.until = pair[1];
                last.limited_by.extend(limited_by);
                last.limited_by.sort_unstable();
                last.limited_by.dedup();
            }
            _ => intervals.push(Interval {
                from: pair[0],
                until: pair[1],
                allowed,
                limited_by,
                policies: Vec::new(),
            }),
        }
    }
    intervals
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use jiff::tz::TimeZone;
    use proptest::prelude::*;
    use std::str::FromStr as _;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn budget(nodes: &str, schedule: &str, duration: &str) -> Budget {
        Budget {
            schedule: Some(schedule.to_owned()),
            duration: Some(duration.parse().unwrap()),
            ..Budget::always(nodes)
        }
    }

    fn range(from: &str, days: i64) -> Window {
        let from = at(from);
        Window {
            from,
            until: from + SignedDuration::from_hours(24 * days),
        }
    }

    fn shown(budgets: &[Budget], nodes: usize, range: Window) -> Vec<(String, i64)> {
        let intervals = calendar(budgets, &DisruptionReason::Empty, nodes, range).intervals;
        intervals
            .iter()
            .map(|interval| (interval.from.to_string(), interval.allowed))
            .collect()
    }

    #[test]
    fn d_390_business_hours_are_closed() {
        let budgets = [Budget::always("10%"), budget("0", "0 9 * * 1-5", "8h")];
        // 1 January 2026 is a Thursday.
        assert_eq!(
            shown(&budgets, 19, range("2026-01-01T12:00:00Z", 4)),
            [
                ("2026-01-01T12:00:00Z".to_owned(), 0),
                ("2026-01-01T17:00:00Z".to_owned(), 2),
                ("2026-01-02T09:00:00Z".to_owned(), 0),
                ("2026-01-02T17:00:00Z".to_owned(), 2),
                ("2026-01-05T09:00:00Z".to_owned(), 0),
            ]
        );
    }

    #[test]
    fn d_380_the_weekend_example_never_opens() {
        let budgets = [budget("50%", "0 0 * * 6", "48h"), Budget::always("0")];
        let range = range("2026-01-01T00:00:00Z", 366);
        assert_eq!(
            shown(&budgets, 10, range),
            [("2026-01-01T00:00:00Z".to_owned(), 0)]
        );
        assert_eq!(
            next_opening(&budgets, &DisruptionReason::Empty, 10, 0, range),
            None
        );
    }

    #[test]
    fn d_380_the_gradual_rollout_is_unlimited_between_its_windows() {
        let budgets = [budget("1", "0 2 * * *", "2h"), budget("3", "0 4 * * *", "4h")];
        assert_eq!(
            shown(&budgets, 10, range("2026-01-01T00:00:00Z", 1)),
            [
                ("2026-01-01T00:00:00Z".to_owned(), UNLIMITED),
                ("2026-01-01T02:00:00Z".to_owned(), 1),
                ("2026-01-01T04:00:00Z".to_owned(), 3),
                ("2026-01-01T08:00:00Z".to_owned(), UNLIMITED),
            ]
        );
    }

    #[test]
    fn d_188_d_197_a_fault_closes_what_its_budget_covers_and_no_more() {
        let drifted = Budget {
            reasons: Some(vec![DisruptionReason::Drifted]),
            ..budget("5", "* * * * 7", "1h")
        };
        let budgets = [Budget::always("2"), drifted];
        let range = range("2026-01-01T00:00:00Z", 1);
        let of = |reason| calendar(&budgets, &reason, 10, range).intervals;
        assert_eq!(of(DisruptionReason::Drifted)[0].allowed, 0);
        assert_eq!(of(DisruptionReason::Drifted)[0].limited_by, [1]);
        assert_eq!(of(DisruptionReason::Empty)[0].allowed, 2);
        assert_eq!(of(DisruptionReason::Empty)[0].limited_by, [0]);
        let mut pool = spokeshave_api::NodePool::new("pool", spokeshave_api::NodePoolSpec::default());
        pool.spec.disruption.budgets = Some(budgets.to_vec());
        for reason in &REASONS {
            let controllers = pool.allowed_disruptions(reason, 10, range.from).unwrap_or(0);
            assert_eq!(of(reason.clone())[0].allowed, controllers, "{reason}");
        }
    }

    #[test]
    fn d_194_after_the_last_hit_within_five_years_nothing_is_allowed() {
        let budgets = [budget("3", "0 0 29 2 *", "24h")];
        let range = range("2096-02-28T00:00:00Z", 10);
        assert_eq!(
            shown(&budgets, 10, range),
            [
                ("2096-02-28T00:00:00Z".to_owned(), UNLIMITED),
                ("2096-02-29T00:00:00Z".to_owned(), 3),
                ("2096-03-01T00:00:00Z".to_owned(), 0),
            ]
        );
    }

    #[test]
    fn next_opening_waits_for_more_than_is_used() {
        let budgets = [Budget::always("3"), budget("1", "@daily", "6h")];
        let range = range("2026-01-01T01:00:00Z", 14);
        let next = |disrupting| next_opening(&budgets, &DisruptionReason::Empty, 10, disrupting, range);
        assert_eq!(next(0), Some(at("2026-01-01T01:00:00Z")));
        assert_eq!(next(1), Some(at("2026-01-01T06:00:00Z")));
        assert_eq!(next(3), None);
    }

    /// One budget as the oracle reads it: croner's hits, minutes, and the formula of D §5.3 in floating point.
    #[derive(Debug, Clone)]
    struct Plain {
        percent: bool,
        number: u32,
        schedule: Option<(String, i64)>,
        reasons: Option<Vec<DisruptionReason>>,
    }

    impl Plain {
        fn budget(&self) -> Budget {
            Budget {
                nodes: format!("{}{}", self.number, if self.percent { "%" } else { "" }),
                reasons: self.reasons.clone(),
                schedule: self.schedule.as_ref().map(|(schedule, _)| schedule.clone()),
                duration: self
                    .schedule
                    .as_ref()
                    .map(|(_, minutes)| format!("{minutes}m").parse().unwrap()),
                ..Budget::always("0")
            }
        }

        fn limit(&self, nodes: usize) -> i64 {
            if self.percent {
                (f64::from(self.number) / 100.0 * nodes as f64 - 1e-9).ceil() as i64
            } else {
                i64::from(self.number)
            }
        }

        /// For each minute of the range, whether the budget is in force: every minute that fires marks the minutes of its duration.
        fn minutes_in_force(&self, first: Timestamp, minutes: i64) -> Vec<bool> {
            let Some((schedule, duration)) = &self.schedule else {
                return vec![true; minutes as usize];
            };
            let cron = croner::Cron::from_str(schedule).unwrap();
            let mut marked = vec![false; minutes as usize];
            for minute in -duration..minutes {
                let time = first + SignedDuration::from_mins(minute);
                if cron.is_time_matching(&time.to_zoned(TimeZone::UTC)).unwrap() {
                    for covered in minute.max(0)..(minute + duration).min(minutes) {
                        marked[covered as usize] = true;
                    }
                }
            }
            marked
        }
    }

    fn plain_budget() -> impl Strategy<Value = Plain> {
        let schedule = (
            prop::sample::select(vec!["0", "30", "*/20", "7,53", "*"]),
            prop::sample::select(vec!["*", "9", "0", "22-23", "*/6", "3,15"]),
            prop::sample::select(vec!["*", "*", "*", "1", "10-12", "29"]),
            prop::sample::select(vec!["*", "*", "*", "2", "jan-mar"]),
            prop::sample::select(vec!["*", "*", "1-5", "6", "sun", "mon,thu"]),
            prop::sample::select(vec![0_i64, 1, 10, 60, 90, 480, 1440, 2880, 4000]),
        )
            .prop_map(|(minute, hour, day, month, weekday, duration)| {
                (format!("{minute} {hour} {day} {month} {weekday}"), duration)
            });
        (
            any::<bool>(),
            prop::sample::select(vec![0_u32, 1, 3, 10, 33, 100]),
            prop::option::weighted(0.8, schedule),
            prop::option::of(prop::sample::subsequence(REASONS.to_vec(), 0..=3)),
        )
            .prop_map(|(percent, number, schedule, reasons)| Plain {
                percent,
                number,
                schedule,
                reasons,
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// The intervals say for every minute what the formula of D §5.3 says for that minute, with the hits of another cron library.
        #[test]
        fn d_195_intervals_are_those_of_a_minute_by_minute_oracle(
            plain in prop::collection::vec(plain_budget(), 0..5),
            nodes in 0_usize..40,
            start in 0_i64..2_000_000,
        ) {
            const MINUTES: i64 = 6 * 24 * 60;
            let first = Timestamp::from_second(1_767_225_600 + start * 60).unwrap();
            let range = Window { from: first, until: first + SignedDuration::from_mins(MINUTES) };
            let budgets: Vec<Budget> = plain.iter().map(Plain::budget).collect();
            let in_force: Vec<Vec<bool>> = plain.iter().map(|one| one.minutes_in_force(first, MINUTES)).collect();
            for reason in &REASONS {
                let intervals = calendar(&budgets, reason, nodes, range).intervals;
                prop_assert_eq!(intervals[0].from, range.from);
                prop_assert_eq!(intervals[intervals.len() - 1].until, range.until);
                for pair in intervals.windows(2) {
                    prop_assert_eq!(pair[0].until, pair[1].from);
                    prop_assert_ne!(pair[0].allowed, pair[1].allowed);
                }
                let mut current = intervals.iter().peekable();
                for minute in 0..MINUTES {
                    let time = first + SignedDuration::from_mins(minute);
                    let mut expected = UNLIMITED;
                    for (one, in_force) in plain.iter().zip(&in_force) {
                        let speaks = one.reasons.as_ref().is_none_or(|reasons| reasons.contains(reason));
                        if speaks && in_force[minute as usize] {
                            expected = expected.min(one.limit(nodes));
                        }
                    }
                    while current.peek().is_some_and(|interval| interval.until <= time) {
                        current.next();
                    }
                    let said = current.peek().unwrap();
                    prop_assert!(said.from <= time);
                    prop_assert_eq!(said.allowed, expected, "{} at {} with {:?}", reason, time, budgets);
                    for index in &said.limited_by {
                        prop_assert!(plain[*index].limit(nodes) == expected);
                    }
                    prop_assert_eq!(said.limited_by.is_empty(), expected == UNLIMITED);
                }
            }
        }

        /// The calendar and the controllers' own arithmetic agree at any second.
        #[test]
        fn d_193_intervals_agree_with_the_budget_arithmetic_of_the_controllers(
            plain in prop::collection::vec(plain_budget(), 0..5),
            nodes in 0_usize..40,
            start in 0_i64..120_000_000,
            probes in prop::collection::vec(0_i64..14 * 86_400, 20),
        ) {
            let first = Timestamp::from_second(1_767_225_600 + start).unwrap();
            let range = Window { from: first, until: first + SignedDuration::from_hours(14 * 24) };
            let budgets: Vec<Budget> = plain.iter().map(Plain::budget).collect();
            let mut pool = spokeshave_api::NodePool::new("pool", spokeshave_api::NodePoolSpec::default());
            pool.spec.disruption.budgets = Some(budgets.clone());
            for reason in &REASONS {
                let intervals = calendar(&budgets, reason, nodes, range).intervals;
                for probe in &probes {
                    let time = first + SignedDuration::from_secs(*probe);
                    let said = intervals.iter().find(|interval| interval.from <= time && time < interval.until).unwrap();
                    prop_assert_eq!(Ok(said.allowed), pool.allowed_disruptions(reason, nodes, time));
                }
            }
        }
    }
}
