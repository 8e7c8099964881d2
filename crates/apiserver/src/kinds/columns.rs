//! The cells of tables: texts, ages and selectors as `kubectl get` shows them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json_path::json_path;

/// A column: its name, type and priority (0 always, 1 with `-o wide`).
#[derive(Clone, Copy)]
pub(crate) struct Column(pub(crate) &'static str, pub(crate) &'static str, pub(crate) u8);

pub(crate) const NAME: Column = Column("Name", "string", 0);
pub(crate) const AGE: Column = Column("Age", "string", 0);

/// The name of an object.
pub(crate) fn name(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

/// A text as it is, anything else as JSON.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A duration as kubectl shows it: `45s`, `5m30s`, `3h`, `2d`, `1y20d`.
pub(crate) fn human(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, "m", seconds % 60, "s")
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        pair(days, "d", hours % 24, "h")
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        pair(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

pub(crate) fn age(text: &str, now: Timestamp) -> String {
    match text.parse::<Timestamp>() {
        Ok(time) => human(now.as_second() - time.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

pub(crate) fn created(object: &Value, now: Timestamp) -> Value {
    json!(
        object["metadata"]["creationTimestamp"]
            .as_str()
            .map_or_else(|| "<unknown>".to_owned(), |text| age(text, now))
    )
}

pub(crate) fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

pub(crate) fn number(value: &Value) -> Value {
    json!(value.as_i64().unwrap_or(0))
}

pub(crate) fn texts(value: &Value, path: &str) -> String {
    json_path(value, path)
        .iter()
        .map(|value| plain(value))
        .collect::<Vec<_>>()
        .join(",")
}

pub(crate) fn selector(value: &Value) -> String {
    let mut parts: Vec<String> = value["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    for expression in value["matchExpressions"].as_array().into_iter().flatten() {
        let values = texts(expression, ".values[*]");
        parts.push(format!(
            "{} {} ({values})",
            plain(&expression["key"]),
            plain(&expression["operator"]).to_lowercase()
        ));
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_kubectl() {
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (10_799, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (50 * 3600, "2d2h"),
            (9 * 86_400, "9d"),
            (800 * 86_400, "2y70d"),
            (9 * 365 * 86_400, "9y"),
            (-5, "0s"),
        ] {
            assert_eq!(human(seconds), shown);
        }
    }
}
