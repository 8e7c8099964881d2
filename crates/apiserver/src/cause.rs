//! What is wrong with an object, in Kubernetes' words: the causes of a 422 Status, and how they show values.

use std::fmt;

use serde_json::Value;

/// One thing wrong with an object; the causes of a 422 Status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    /// Path of the field.
    pub field: String,
    /// What is wrong, without the path.
    pub message: String,
}

/// Field of a cause that concerns no field.
pub(crate) const NO_FIELD: &str = "<nil>";

impl Cause {
    /// `field: message`, as in the Status's message.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }

    fn new(reason: &'static str, field: impl fmt::Display, message: String) -> Self {
        let field = field.to_string();
        let field = if field.is_empty() {
            NO_FIELD.to_owned()
        } else {
            field
        };
        Self {
            reason,
            field,
            message,
        }
    }

    pub(crate) fn invalid(field: impl fmt::Display, value: &Value, problem: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {}: {problem}", shown(value)),
        )
    }

    /// An invalid value that is not shown, such as an object.
    pub(crate) fn invalid_unshown(field: impl fmt::Display, problem: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {problem}"))
    }

    pub(crate) fn type_invalid(field: impl fmt::Display, value: &Value, problem: &str) -> Self {
        Self::new(
            "FieldValueTypeInvalid",
            field,
            format!("Invalid value: {}: {problem}", shown(value)),
        )
    }

    pub(crate) fn required(field: impl fmt::Display, problem: &str) -> Self {
        Self::new("FieldValueRequired", field, with("Required value", problem))
    }

    pub(crate) fn forbidden(field: impl fmt::Display, problem: &str) -> Self {
        Self::new("FieldValueForbidden", field, with("Forbidden", problem))
    }

    /// A duplicate that is not shown, such as an object.
    pub(crate) fn duplicate_unshown(field: impl fmt::Display) -> Self {
        Self::new("FieldValueDuplicate", field, "Duplicate value".to_owned())
    }

    pub(crate) fn duplicate(field: impl fmt::Display, value: &Value) -> Self {
        Self::new(
            "FieldValueDuplicate",
            field,
            format!("Duplicate value: {}", shown(value)),
        )
    }

    pub(crate) fn too_long(field: impl fmt::Display, most: i64) -> Self {
        Self::new("FieldValueTooLong", field, {
            let bytes = if most == 1 { "byte" } else { "bytes" };
            format!("Too long: may not be more than {most} {bytes}")
        })
    }

    pub(crate) fn too_many(field: impl fmt::Display, count: usize, most: i64) -> Self {
        let items = if most == 1 { "item" } else { "items" };
        Self::new(
            "FieldValueTooMany",
            field,
            format!("Too many: {count}: must have at most {most} {items}"),
        )
    }

    pub(crate) fn not_supported<'a>(
        field: impl fmt::Display,
        value: &Value,
        allowed: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let allowed: Vec<String> = allowed.into_iter().map(quoted).collect();
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            shown(value),
            allowed.join(", ")
        );
        Self::new("FieldValueNotSupported", field, message)
    }

    /// True when rules cannot be evaluated on the object.
    pub(crate) fn blocks_rules(&self) -> bool {
        matches!(
            self.reason,
            "FieldValueNotSupported"
                | "FieldValueRequired"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
                | "FieldValueTypeInvalid"
        )
    }
}

fn with(what: &str, problem: &str) -> String {
    if problem.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {problem}")
    }
}

/// Text in Go's double quotes.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other if other.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(other))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// A value as Go's errors show it.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(float)) => go_float(float),
            _ => number.to_string(),
        },
        other => go_json(other),
    }
}

/// JSON as Go writes it.
pub(crate) fn go_json(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// A number as Go's `%v` shows it: 1000, 0.5, 1e+21.
pub(crate) fn go_float(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_shown_as_go_shows_them() {
        for (value, text) in [
            (json!("a\"b\n"), "\"a\\\"b\\n\""),
            (json!(1000.0), "1000"),
            (json!(0.5), "0.5"),
            (json!(1e21), "1e+21"),
            (json!(-1.5e-7), "-1.5e-07"),
            (json!(true), "true"),
            (json!({"b": 1, "a": "x"}), r#"{"a":"x","b":1}"#),
            (json!(null), "null"),
        ] {
            assert_eq!(shown(&value), text);
        }
    }
}
