//! Windows of local time: whether one is open at an instant, and when that changes.
//!
//! A window is open by what clocks on the wall show, so that it follows daylight saving by itself: an hour that a clock skips opens nothing, an
//! hour that it shows twice counts twice.

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use spokeshave_api::disruption_policy::PolicyWindow;

/// How many days ahead a change is looked for: dates of next year are found.
const HORIZON_DAYS: i32 = 400;
const DAY_MINUTES: i16 = 24 * 60;

/// Windows in their time zone, ready to be asked.
#[derive(Clone, Debug)]
pub struct Windows {
    zone: TimeZone,
    windows: Vec<Window>,
    except: Vec<Date>,
}

#[derive(Clone, Debug)]
struct Window {
    days: Vec<Weekday>,
    dates: Vec<Date>,
    /// Minutes of the day.
    from: i16,
    to: i16,
}

/// What is wrong with a window: the field below the budget, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowFault {
    /// Such as `windows[1].from`.
    pub field: String,
    /// What was expected.
    pub message: String,
}

impl WindowFault {
    fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        WindowFault {
            field: field.into(),
            message: message.into(),
        }
    }
}

/// The time zone of an IANA name; UTC without one.
///
/// # Errors
/// There is no such zone.
pub fn time_zone(name: Option<&str>) -> Result<TimeZone, String> {
    match name {
        None => Ok(TimeZone::UTC),
        Some(name) => TimeZone::get(name).map_err(|_| {
            format!("{name:?} is no IANA time zone; write one such as \"Europe/Kyiv\" or \"UTC\"")
        }),
    }
}

impl Windows {
    /// Reads windows and the dates on which none begins.
    ///
    /// # Errors
    /// What cannot be read, field by field.
    pub fn read(
        zone: TimeZone,
        windows: &[PolicyWindow],
        except: &[String],
    ) -> Result<Self, Vec<WindowFault>> {
        let mut faults = Vec::new();
        let read: Vec<Window> = windows
            .iter()
            .enumerate()
            .map(|(index, window)| read_window(window, &format!("windows[{index}]"), &mut faults))
            .collect();
        let except = read_dates(except, "exceptDates", &mut faults);
        if faults.is_empty() {
            Ok(Windows {
                zone,
                windows: read,
                except,
            })
        } else {
            Err(faults)
        }
    }

    /// Whether a window is open.
    pub fn is_open(&self, at: Timestamp) -> bool {
        let local = self.zone.to_datetime(at);
        let (date, minute) = (local.date(), minute_of_day(local.time()));
        let before = date.checked_sub(1.day()).ok();
        self.windows.iter().any(|window| {
            let begins = |date: Date| self.begins(window, date);
            if window.from < window.to {
                begins(date) && (window.from..window.to).contains(&minute)
            } else {
                (begins(date) && minute >= window.from) || (before.is_some_and(begins) && minute < window.to)
            }
        })
    }

    fn begins(&self, window: &Window, date: Date) -> bool {
        let is_any = window.days.is_empty() && window.dates.is_empty();
        let is_named = window.days.contains(&date.weekday()) || window.dates.contains(&date);
        (is_any || is_named) && !self.except.contains(&date)
    }

    /// The first instant after `now` at which [`Windows::is_open`] has another answer; `None` when there is none within 400 days.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.next_change_before(now, Timestamp::MAX)
    }

    /// The same, where it comes before `end`: what is later is not looked for.
    pub fn next_change_before(&self, now: Timestamp, end: Timestamp) -> Option<Timestamp> {
        let open = self.is_open(now);
        let mut date = self.zone.to_datetime(now).date().checked_sub(1.day()).ok()?;
        let mut before = Vec::new();
        for _ in 0..HORIZON_DAYS {
            let instants = self.boundaries(date);
            date = date.checked_add(1.day()).ok()?;
            // Where a clock changes near midnight, boundaries of one date lie among those of the next.
            let midnight = self.midnight(date);
            let both = before.iter().chain(&instants).copied();
            let here = both.filter(|at| *at > now && midnight.is_none_or(|midnight| *at < midnight));
            let changed = here.filter(|at| self.is_open(*at) != open).min();
            if changed.is_some() {
                return changed.filter(|at| *at < end);
            }
            // What is left is not before that midnight.
            if midnight.is_some_and(|midnight| midnight >= end) {
                return None;
            }
            before = instants;
        }
        None
    }

    /// Whether a window opens within 400 days, or is open.
    pub fn ever_opens(&self, now: Timestamp) -> bool {
        self.is_open(now) || self.next_change(now).is_some()
    }

    fn midnight(&self, date: Date) -> Option<Timestamp> {
        let midnight = self.zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0));
        midnight.earlier().ok()
    }

    /// All instants of a local date at which the answer may change: its midnight, each boundary (twice where a clock shows it twice), and each
    /// change of the clock.
    fn boundaries(&self, date: Date) -> Vec<Timestamp> {
        let of_windows = self.windows.iter().flat_map(|window| [window.from, window.to]);
        let minutes = of_windows.chain([0]).filter(|minute| *minute < DAY_MINUTES);
        let mut instants: Vec<Timestamp> = minutes
            .filter_map(|minute| {
                let hour = i8::try_from(minute / 60).ok()?;
                let minute = i8::try_from(minute % 60).ok()?;
                Some(date.at(hour, minute, 0, 0))
            })
            .flat_map(|local| {
                let earlier = self.zone.to_ambiguous_timestamp(local).earlier().ok();
                let later = self.zone.to_ambiguous_timestamp(local).later().ok();
                [earlier, later]
            })
            .flatten()
            .collect();
        let next = date
            .checked_add(1.day())
            .ok()
            .and_then(|next| self.midnight(next));
        if let (Some(start), Some(end)) = (self.midnight(date), next) {
            let before = start
                .saturating_sub(SignedDuration::from_secs(1))
                .unwrap_or(start);
            let changes = self.zone.following(before).map(|change| change.timestamp());
            instants.extend(changes.take_while(|at| *at < end));
        }
        instants
    }
}

fn minute_of_day(time: Time) -> i16 {
    i16::from(time.hour()) * 60 + i16::from(time.minute())
}

fn read_window(window: &PolicyWindow, at: &str, faults: &mut Vec<WindowFault>) -> Window {
    let mut days = Vec::new();
    for (index, day) in window.days.iter().enumerate() {
        match read_day(day) {
            Some(day) => days.push(day),
            None => faults.push(WindowFault::new(
                format!("{at}.days[{index}]"),
                format!("{day:?} is no day; write Mon, Tue, Wed, Thu, Fri, Sat or Sun"),
            )),
        }
    }
    let dates = read_dates(&window.dates, &format!("{at}.dates"), faults);
    let mut minute = |text: &str, field: &str, is_end: bool| {
        let read = read_time(text).filter(|minute| *minute < DAY_MINUTES || is_end);
        read.unwrap_or_else(|| {
            let message = format!("{text:?} is no local time; write hours and minutes, such as \"22:00\"");
            faults.push(WindowFault::new(format!("{at}.{field}"), message));
            0
        })
    };
    let from = minute(&window.from, "from", false);
    let to = minute(&window.to, "to", true);
    if from == to && faults.is_empty() {
        let message =
            "begins and ends at the same time, so that it never opens; the whole day is 00:00 to 24:00";
        faults.push(WindowFault::new(at, message));
    }
    Window {
        days,
        dates,
        from,
        to,
    }
}

fn read_dates(dates: &[String], at: &str, faults: &mut Vec<WindowFault>) -> Vec<Date> {
    let mut read = Vec::new();
    for (index, date) in dates.iter().enumerate() {
        match date.parse::<Date>() {
            Ok(date) => read.push(date),
            Err(_) => faults.push(WindowFault::new(
                format!("{at}[{index}]"),
                format!("{date:?} is no date; write year, month and day, such as \"2026-12-24\""),
            )),
        }
    }
    read
}

fn read_day(day: &str) -> Option<Weekday> {
    Some(match day {
        "Mon" => Weekday::Monday,
        "Tue" => Weekday::Tuesday,
        "Wed" => Weekday::Wednesday,
        "Thu" => Weekday::Thursday,
        "Fri" => Weekday::Friday,
        "Sat" => Weekday::Saturday,
        "Sun" => Weekday::Sunday,
        _ => return None,
    })
}

/// `22:00` as minutes of the day; `24:00` is its end.
fn read_time(text: &str) -> Option<i16> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hour) || !digits(minute) {
        return None;
    }
    let (hour, minute): (i16, i16) = (hour.parse().ok()?, minute.parse().ok()?);
    let whole = hour * 60 + minute;
    (minute < 60 && whole <= DAY_MINUTES).then_some(whole)
}
