//! What a malformed part of a budget was probably meant to be, as YAML to put in its place.
//!
//! Every schedule, duration and number proposed here can itself be evaluated; where nothing sensible can be proposed, nothing is.

use crate::calendar::{Activity, REASONS, Window};
use jiff::tz::TimeZone;
use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};
use serde_json::Value;
use spokeshave_api::{Budget, Cron, DisruptionReason, GoDuration};
use std::collections::BTreeMap;

const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Stands in a proposed budget where its reasons belong, until it is known which reasons a finding is about.
pub(crate) const ONLY: &str = "{only}";

/// A value for a sentence: a text without quotes.
pub(crate) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A value as YAML for a field that takes a text: `*/5 * * * *` would be read as an alias, and `10` as a number.
pub(crate) fn text_value(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => value.to_string(),
        Value::Null => String::new(),
        other => text(&scalar(other)),
    }
}

/// A text as YAML. A text of JSON is one of YAML as well.
fn text(text: &str) -> String {
    if is_text_without_quotes(text) {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

/// On the safe side: what some version of YAML reads as a number, a date or a word of its own has quotes.
fn is_text_without_quotes(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let words = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    let is_number =
        lower.parse::<f64>().is_ok() || ["0x", "0o", "0b"].iter().any(|prefix| lower.starts_with(prefix));
    text.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-' | '/'))
        && text.contains(|letter: char| letter.is_ascii_alphabetic())
        && !is_number
        && !words.contains(&lower.as_str())
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(items: &[&str]) -> String {
    match items {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [many @ .., last] => format!("{} and {last}", many.join(", ")),
    }
}

/// Number of single-letter edits between two words, without regard to case.
pub(crate) fn distance(left: &str, right: &str) -> usize {
    strsim::levenshtein(&left.to_lowercase(), &right.to_lowercase())
}

/// The word that is at most two edits away.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate));
    near.filter(|(distance, _)| *distance <= 2)
        .min()
        .map(|(_, candidate)| candidate)
}

/// What a word that is no reason was meant to be.
pub(crate) enum ReasonRepair {
    /// This reason.
    Is(DisruptionReason),
    /// Something that budgets never limit (D-209).
    NeverLimited,
    /// Nobody knows.
    Unknown,
}

pub(crate) fn reason(word: &str) -> ReasonRepair {
    let lower = word.trim().to_lowercase();
    for (reason, stems) in [
        (DisruptionReason::Empty, &["empt"][..]),
        (DisruptionReason::Drifted, &["drift"]),
        (DisruptionReason::Underutilized, &["underutil", "consolid"]),
    ] {
        if distance(&lower, reason.as_str()) <= 2 || stems.iter().any(|stem| lower.starts_with(stem)) {
            return ReasonRepair::Is(reason);
        }
    }
    if lower.starts_with("expir") || nearest(&lower, &["expired", "expiration"]).is_some() {
        ReasonRepair::NeverLimited
    } else {
        ReasonRepair::Unknown
    }
}

/// `reasons: [Empty]` for whatever was written under a misspelt field.
pub(crate) fn reasons_line(value: &Value) -> String {
    let words: Vec<String> = match value {
        Value::Array(entries) => entries.iter().map(scalar).collect(),
        other => vec![scalar(other)],
    };
    let named = words.iter().map(|word| match reason(word) {
        ReasonRepair::Is(reason) => reason.to_string(),
        ReasonRepair::NeverLimited | ReasonRepair::Unknown => text(word),
    });
    format!("reasons: [{}]", named.collect::<Vec<_>>().join(", "))
}

/// The number or percentage that is meant.
pub(crate) fn nodes(text: &str) -> Option<String> {
    let compact: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    let (number, percent) = match compact.strip_suffix('%') {
        Some(number) => (number, "%"),
        None => (compact.as_str(), ""),
    };
    if number.starts_with('-') {
        return Some(format!("0{percent}"));
    }
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    let whole: u32 = digits.parse().ok()?;
    let fraction = number.strip_prefix(digits.as_str())?.strip_prefix('.');
    let more = fraction.is_some_and(|fraction| fraction.bytes().any(|byte| byte != b'0'));
    let value = whole.saturating_add(u32::from(more));
    let value = if percent.is_empty() { value } else { value.min(100) };
    Some(format!("{value}{percent}"))
}

/// What is to be said about a duration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DurationRepair {
    Fine,
    Is(String),
    Zero,
}

/// D-186: hours and minutes.
pub(crate) fn duration(text: &str) -> DurationRepair {
    let compact: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    if let Ok(duration) = compact.parse::<GoDuration>() {
        let minutes = duration.nanoseconds().unsigned_abs().div_ceil(60_000_000_000);
        return match i64::try_from(minutes) {
            Ok(0) => DurationRepair::Zero,
            Ok(_) if is_plain(text) => DurationRepair::Fine,
            Ok(minutes) => DurationRepair::Is(hours_and_minutes(SignedDuration::from_mins(minutes))),
            Err(_) => DurationRepair::Is("8h".to_owned()),
        };
    }
    let digits: String = compact.chars().take_while(char::is_ascii_digit).collect();
    let number: i64 = digits.parse().unwrap_or(0);
    let unit = compact[digits.len()..].to_lowercase();
    let minutes = match unit.chars().next() {
        Some('w') => number.saturating_mul(7 * 24 * 60),
        Some('d') => number.saturating_mul(24 * 60),
        Some('h') => number.saturating_mul(60),
        // A bare number cannot be hours or seconds for sure; minutes are what is left after `30`.
        Some('m') | None => number,
        _ => 0,
    };
    match minutes {
        1..=10_000_000 => DurationRepair::Is(hours_and_minutes(SignedDuration::from_mins(minutes))),
        _ => DurationRepair::Is("8h".to_owned()),
    }
}

/// The pattern `^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$`.
fn is_plain(text: &str) -> bool {
    let text = text.strip_suffix("0s").unwrap_or(text);
    let after_number = |text: &str, unit: char| -> Option<String> {
        let rest = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
        (rest.len() < text.len()).then_some(())?;
        rest.strip_prefix(unit).map(str::to_owned)
    };
    match after_number(text, 'h') {
        Some(rest) => rest.is_empty() || after_number(&rest, 'm').as_deref() == Some(""),
        None => after_number(text, 'm').as_deref() == Some(""),
    }
}

/// `8h`, `30m`, `1h30m`; seconds are dropped.
pub(crate) fn hours_and_minutes(duration: SignedDuration) -> String {
    let minutes = duration.as_mins();
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes}m"),
        (hours, 0) => format!("{hours}h"),
        (hours, minutes) => format!("{hours}h{minutes}m"),
    }
}

/// The schedule that is meant; it fires.
pub(crate) fn schedule(text: &str) -> Option<String> {
    let text = match text.split_once('=') {
        Some((_, rest)) => rest.split_once(char::is_whitespace)?.1.trim(),
        None => text.trim(),
    };
    let lower = text.to_lowercase();
    let descriptors = [
        "@annually",
        "@yearly",
        "@monthly",
        "@weekly",
        "@daily",
        "@midnight",
        "@hourly",
    ];
    let mut candidates: Vec<String> = descriptors
        .iter()
        .filter(|descriptor| lower.starts_with(**descriptor))
        .map(|descriptor| (*descriptor).to_owned())
        .collect();
    candidates.extend(lower.strip_prefix("@every ").and_then(every));
    let fields: Vec<&str> = lower.split_whitespace().collect();
    let five: Option<&[&str]> = match fields.len() {
        5 => Some(&fields),
        // Seconds come first where six fields are usual, unless the last one looks like a year.
        6 if fields[5] == "*" || fields[5].len() == 4 => Some(&fields[..5]),
        6 => Some(&fields[1..]),
        7 => Some(&fields[1..6]),
        _ => None,
    };
    if let Some([minute, hour, day, month, weekday]) = five {
        let weekday = week_days(weekday);
        candidates.push(format!("{minute} {hour} {day} {month} {weekday}"));
        for last_day in [30, 28] {
            candidates.push(format!("{minute} {hour} {last_day} {month} {weekday}"));
        }
    }
    candidates.into_iter().find(|candidate| fires(candidate))
}

fn fires(schedule: &str) -> bool {
    let start = Timestamp::from_second(1_767_225_600).unwrap_or_default();
    schedule
        .parse::<Cron>()
        .is_ok_and(|cron| cron.next_after(start).is_ok())
}

/// `@every 15m` as a step, where it divides the hour or the day.
fn every(period: &str) -> Option<String> {
    let minutes = period.trim().parse::<GoDuration>().ok()?.to_signed().as_mins();
    match (minutes / 60, minutes % 60) {
        (0, step) if step > 0 && 60 % step == 0 => Some(format!("*/{step} * * * *")),
        (1, 0) => Some("0 * * * *".to_owned()),
        (24, 0) => Some("0 0 * * *".to_owned()),
        (step, 0) if (2..24).contains(&step) && 24 % step == 0 => Some(format!("0 */{step} * * *")),
        _ => None,
    }
}

/// A day-of-week field with Sunday as 0, ranges that go forward, and short names.
fn week_days(field: &str) -> String {
    let mut text = field.to_owned();
    for (name, short) in [
        ("sunday", "sun"),
        ("monday", "mon"),
        ("tuesday", "tue"),
        ("wednesday", "wed"),
        ("thursday", "thu"),
        ("friday", "fri"),
        ("saturday", "sat"),
    ] {
        text = text.replace(name, short);
    }
    let number = |word: &str| -> Option<usize> {
        let named = DAYS.iter().position(|day| *day == word);
        named.or_else(|| word.parse().ok().filter(|number| *number <= 7))
    };
    let part = |part: &str| -> String {
        let Some((start, end)) = part.split_once('-') else {
            return if part == "7" {
                "0".to_owned()
            } else {
                part.to_owned()
            };
        };
        let (Some(first), Some(last)) = (number(start), number(end)) else {
            return part.to_owned();
        };
        match (first % 7, last) {
            (first, last) if first <= last && last <= 6 => part.to_owned(),
            (6, 7 | 0) => "6,0".to_owned(),
            (first, 7 | 0) => format!("{first}-6,0"),
            (6, last) => format!("6,0-{last}"),
            (first, last) => format!("{first}-6,0-{last}"),
        }
    };
    text.split(',').map(part).collect::<Vec<_>>().join(",")
}

/// The shortest time between two hits that follow each other, over the range.
pub(crate) fn shortest_period(schedule: &str, range: Window) -> Option<SignedDuration> {
    let cron: Cron = schedule.parse().ok()?;
    let mut shortest: Option<SignedDuration> = None;
    let mut previous = cron.next_after(range.from).ok()?;
    while let Ok(hit) = cron.next_after(previous) {
        let period = hit.duration_since(previous);
        shortest = Some(shortest.map_or(period, |shortest| shortest.min(period)));
        // A minute cannot be undercut.
        if hit >= range.until || period <= SignedDuration::from_mins(1) {
            break;
        }
        previous = hit;
    }
    shortest
}

fn reasons_in_line(reasons: Option<&Vec<DisruptionReason>>) -> String {
    reasons.map_or_else(String::new, |reasons| {
        let names: Vec<&str> = reasons.iter().map(DisruptionReason::as_str).collect();
        format!("\n  reasons: [{}]", names.join(", "))
    })
}

/// The same budget, always in force.
pub(crate) fn budget_without_schedule(budget: &Budget) -> String {
    format!(
        "- nodes: \"{}\"{}",
        budget.nodes,
        reasons_in_line(budget.reasons.as_ref())
    )
}

/// The reasons of `budget` that `other` does not cover.
pub(crate) fn reasons_without(budget: &Budget, other: &Budget) -> Option<Vec<DisruptionReason>> {
    let left = REASONS
        .iter()
        .filter(|reason| budget.covers(reason) && !other.covers(reason));
    let left: Vec<DisruptionReason> = left.cloned().collect();
    (!left.is_empty()).then_some(left)
}

/// The same budget for these reasons only.
pub(crate) fn budget_with_reasons(budget: &Budget, reasons: &[DisruptionReason]) -> String {
    let schedule = match (&budget.schedule, &budget.duration) {
        (Some(schedule), Some(duration)) => {
            let duration = hours_and_minutes(duration.to_signed());
            format!("\n  schedule: \"{schedule}\"\n  duration: {duration}")
        }
        _ => String::new(),
    };
    let reasons = reasons_in_line(Some(&reasons.to_vec()));
    format!("- nodes: \"{}\"{reasons}{schedule}", budget.nodes)
}

/// The budgets that allow what `opener` says in its windows, and nothing outside them; `None` when its windows do not repeat weekly.
pub(crate) fn only_in_windows(opener: &Budget, range: Window) -> Option<String> {
    let activity = Activity::of(opener, range);
    let closed = weekly_gaps(&activity.windows)?;
    let reasons = reasons_in_line(opener.reasons.as_ref());
    let mut text = budget_without_schedule(opener);
    for (schedule, duration) in closed {
        text.push_str(&format!(
            "\n- nodes: \"0\"{reasons}\n  schedule: \"{schedule}\"\n  duration: {duration}"
        ));
    }
    Some(text)
}

/// A budget of zero for the times at which none of `covering` is in force.
pub(crate) fn closed_between(budgets: &[Budget], covering: &[usize], range: Window) -> Option<String> {
    let mut windows: Vec<Window> = covering
        .iter()
        .flat_map(|index| Activity::of(&budgets[*index], range).windows)
        .collect();
    windows.sort_unstable();
    let mut merged: Vec<Window> = Vec::new();
    for window in windows {
        match merged.last_mut() {
            Some(last) if last.until >= window.from => last.until = last.until.max(window.until),
            _ => merged.push(window),
        }
    }
    let lines = weekly_gaps(&merged)?;
    let line = |(schedule, duration): (String, String)| {
        format!("- nodes: \"0\"{ONLY}\n  schedule: \"{schedule}\"\n  duration: {duration}")
    };
    Some(lines.into_iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// The times between windows as schedules and durations, when they are the same every week.
fn weekly_gaps(windows: &[Window]) -> Option<Vec<(String, String)>> {
    let gaps: Vec<Window> = windows
        .windows(2)
        .map(|pair| Window {
            from: whole_minute(pair[0].until),
            until: pair[1].from,
        })
        .filter(|gap| gap.from < gap.until)
        .collect();
    let start = gaps.first()?.from;
    let of_week = |week: i32| -> Vec<Window> {
        let from = start + WEEK * week;
        let inside = gaps
            .iter()
            .filter(|gap| gap.from >= from && gap.from < from + WEEK);
        let shifted = inside.map(|gap| Window {
            from: gap.from - WEEK * week,
            until: gap.until - WEEK * week,
        });
        shifted.collect()
    };
    let first = of_week(0);
    if (1..8).any(|week| of_week(week) != first) {
        return None;
    }
    // By time of day and length, the days on which such a gap begins.
    let mut groups: BTreeMap<(i8, i8, SignedDuration), Vec<i8>> = BTreeMap::new();
    for gap in first {
        let begin = gap.from.to_zoned(TimeZone::UTC);
        let day = begin.weekday().to_sunday_zero_offset();
        let length = gap.until.duration_since(gap.from);
        groups
            .entry((begin.hour(), begin.minute(), length))
            .or_default()
            .push(day);
    }
    let line = |((hour, minute, length), days): ((i8, i8, SignedDuration), Vec<i8>)| {
        let schedule = format!("{minute} {hour} * * {}", days_field(days));
        (schedule, hours_and_minutes(length))
    };
    Some(groups.into_iter().map(line).collect())
}

/// The end of a window by what its duration is to be instead of one with seconds, which no API server takes (D-186).
fn whole_minute(end: Timestamp) -> Timestamp {
    let up = TimestampRound::new().smallest(Unit::Minute).mode(RoundMode::Ceil);
    end.round(up).unwrap_or(end)
}

/// `*`, `1-5`, `0,6`.
fn days_field(mut days: Vec<i8>) -> String {
    days.sort_unstable();
    days.dedup();
    if days.len() == 7 {
        return "*".to_owned();
    }
    let mut runs: Vec<(i8, i8)> = Vec::new();
    for day in days {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == day => *last = day,
            _ => runs.push((day, day)),
        }
    }
    let run = |(first, last): (i8, i8)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    runs.into_iter().map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_185_numbers_are_repaired() {
        for (bad, good) in [
            ("10.5%", Some("11%")),
            ("10.0%", Some("10%")),
            ("101%", Some("100%")),
            ("-1", Some("0")),
            ("-10%", Some("0%")),
            ("5", Some("5")),
            ("10 %", Some("10%")),
            ("ten", None),
            ("", None),
        ] {
            assert_eq!(nodes(bad).as_deref(), good, "{bad:?}");
        }
    }

    #[test]
    fn d_186_durations_are_repaired() {
        for fine in ["30m", "160h", "10h5m", "10h5m0s", "8h0s"] {
            assert_eq!(duration(fine), DurationRepair::Fine, "{fine:?}");
        }
        for (bad, good) in [
            ("2d", "48h"),
            ("1w", "168h"),
            ("30s", "1m"),
            ("1h1m1s", "1h2m"),
            ("90", "1h30m"),
            ("8 hours", "8h"),
            ("-8h", "8h"),
            ("1.5h", "1h30m"),
            ("tomorrow", "8h"),
        ] {
            assert_eq!(duration(bad), DurationRepair::Is(good.to_owned()), "{bad:?}");
        }
        assert_eq!(duration("0m"), DurationRepair::Zero);
    }

    #[test]
    fn d_190_d_191_schedules_are_repaired() {
        for (bad, good) in [
            ("TZ=Europe/Berlin 0 9 * * 1-5", Some("0 9 * * 1-5")),
            ("CRON_TZ=UTC @daily", Some("@daily")),
            ("* * * * 7", Some("* * * * 0")),
            ("0 0 * * 5-7", Some("0 0 * * 5-6,0")),
            ("0 0 * * fri-mon", Some("0 0 * * 5-6,0-1")),
            ("0 0 * * SAT-SUN", Some("0 0 * * 6,0")),
            ("0 0 * * Saturday", Some("0 0 * * sat")),
            ("0 0 9 * * 1-5", Some("0 9 * * 1-5")),
            ("0 9 * * 1-5 *", Some("0 9 * * 1-5")),
            ("@dailyfoo", Some("@daily")),
            ("@Daily", Some("@daily")),
            ("@every 15m", Some("*/15 * * * *")),
            ("@every 6h", Some("0 */6 * * *")),
            ("0 0 31 2 *", Some("0 0 28 2 *")),
            ("0 0 31 4 *", Some("0 0 30 4 *")),
            ("0 9 * *", None),
            ("", None),
            ("whenever", None),
        ] {
            assert_eq!(schedule(bad).as_deref(), good, "{bad:?}");
        }
    }

    #[test]
    fn what_is_to_be_written_is_read_as_the_same_text() {
        for (value, written) in [
            (serde_json::json!("*/5 * * * *"), "\"*/5 * * * *\""),
            (serde_json::json!("@daily"), "\"@daily\""),
            (serde_json::json!("10"), "\"10\""),
            (serde_json::json!(10), "\"10\""),
            (serde_json::json!("10%"), "\"10%\""),
            (serde_json::json!(true), "\"true\""),
            (serde_json::json!("No"), "\"No\""),
            (serde_json::json!("1e3"), "\"1e3\""),
            (serde_json::json!("0x1f"), "\"0x1f\""),
            (serde_json::json!("2026-01-01"), "\"2026-01-01\""),
            (serde_json::json!("a: \"b\""), "\"a: \\\"b\\\"\""),
            (serde_json::json!(""), "\"\""),
            (serde_json::json!("8h"), "8h"),
            (serde_json::json!("Never"), "Never"),
            (serde_json::json!(["Empty"]), "[\"Empty\"]"),
            (Value::Null, ""),
        ] {
            assert_eq!(text_value(&value), written, "{value}");
        }
        assert_eq!(
            reasons_line(&serde_json::json!(["drift", "*"])),
            "reasons: [Drifted, \"*\"]"
        );
    }

    #[test]
    fn words_are_recognised() {
        assert_eq!(nearest("reason", &["nodes", "reasons"]), Some("reasons"));
        assert_eq!(
            nearest("timeZone", &["nodes", "reasons", "schedule", "duration"]),
            None
        );
        for (word, expected) in [
            ("empty", DisruptionReason::Empty),
            ("Emptyness", DisruptionReason::Empty),
            ("drift", DisruptionReason::Drifted),
            ("underutilised", DisruptionReason::Underutilized),
            ("Consolidation", DisruptionReason::Underutilized),
        ] {
            assert!(
                matches!(reason(word), ReasonRepair::Is(reason) if reason == expected),
                "{word:?}"
            );
        }
        assert!(matches!(reason("Expired"), ReasonRepair::NeverLimited));
        assert!(matches!(reason("Moon"), ReasonRepair::Unknown));
    }
}
