//! Validation of values against a compiled schema, error for error as kube-openapi finds and words them.
//!
//! An error in a part that an update has not touched is no error (ratcheting): objects that were stored under laxer rules stay editable.

use serde_json::{Map, Number, Value};

use super::path::Path;
use super::structural::{Bound, Kind, ListType, Structural};
use crate::cause::{Cause, NO_FIELD, go_float};

/// The result of validating a value. `matches` counts valid parts: of several alternatives that all fail, the best one is explained.
#[derive(Debug, Default)]
struct Findings {
    errors: Vec<Cause>,
    matches: usize,
}

impl Findings {
    fn add(&mut self, cause: Cause) {
        if !self.errors.contains(&cause) {
            self.errors.push(cause);
        }
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        other.errors.into_iter().for_each(|cause| self.add(cause));
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

/// Everything wrong with a value; `old` is the value that it replaces.
pub(crate) fn validate(
    schema: &Structural,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
) -> Vec<Cause> {
    schema.check(value, old, path).errors
}

/// What Go's decoder makes of a JSON value: its type's name in schemas, and the format that it implies.
fn go_type(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
    }
}

fn problem(path: &Path<'_>, text: &str) -> String {
    format!("{path} in body {text}")
}

/// An error that belongs to no field.
fn general(text: String) -> Cause {
    Cause::invalid(NO_FIELD, &Value::from(""), &text)
}

fn wrong_type(path: &Path<'_>, wanted: &str, found: &str) -> Cause {
    let found = Value::from(found);
    Cause::type_invalid(
        path,
        &found,
        &problem(path, &format!("must be of type {wanted}: {found}")),
    )
}

impl Structural {
    fn check(&self, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Findings {
        let mut outcome = self.check_anew(value, old, path);
        if !outcome.is_valid() && old == Some(value) {
            outcome.errors.clear();
        }
        outcome
    }

    fn check_anew(&self, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Findings {
        let mut outcome = Findings::default();
        self.check_type(value, path, &mut outcome);
        if value.is_null() {
            self.check_enumeration(value, path, &mut outcome);
            return outcome;
        }
        self.check_combinations(value, old, path, &mut outcome);
        match value {
            Value::String(text) => self.check_text(text, value, path, &mut outcome),
            Value::Number(number) => self.check_number(number, value, path, &mut outcome),
            Value::Array(list) => self.check_list(list, old, path, &mut outcome),
            _ => {}
        }
        self.check_enumeration(value, path, &mut outcome);
        if let Value::Object(map) = value {
            self.check_object(map, old, path, &mut outcome);
        }
        // One for each check that applies, as kube-openapi counts.
        outcome.matches += match value {
            Value::String(_) => 5 + usize::from(self.text_format.is_some()),
            _ => 5,
        };
        outcome
    }

    fn check_type(&self, value: &Value, path: &Path<'_>, outcome: &mut Findings) {
        let allowed = |name: &str| match self.int_or_string {
            true => matches!(name, "integer" | "string"),
            false => self.kind.is_some_and(|kind| kind.name() == name),
        };
        let declared = || {
            if self.int_or_string {
                "integer,string"
            } else {
                self.kind.map_or("", Kind::name)
            }
        };
        if self.kind.is_none() && !self.int_or_string {
            return;
        }
        let (name, implied) = go_type(value);
        if value.is_null() {
            match self.nullable {
                true => outcome.matches += 1,
                false => outcome.add(wrong_type(path, declared(), "null")),
            }
            return;
        }
        let whole = name == "number"
            && value.as_f64().is_some_and(|number| number.fract() == 0.0)
            && allowed("integer");
        let widened = name == "integer" && allowed("number");
        let text_or_list = value.is_string() || value.is_array();
        if let Some(format) = &self.format {
            if !(text_or_list || allowed(name) || implied == format || whole || widened) {
                return outcome.add(wrong_type(path, format, implied));
            }
            if !(allowed("number") || allowed("integer")) && text_or_list {
                outcome.matches += 1;
                return;
            }
        }
        match allowed(name) || whole || widened {
            true => outcome.matches += 1,
            false => outcome.add(wrong_type(path, declared(), name)),
        }
    }

    fn check_enumeration(&self, value: &Value, path: &Path<'_>, outcome: &mut Findings) {
        if self.enumeration.is_empty()
            || self
                .enumeration
                .iter()
                .any(|allowed| same(allowed, value) && !value.is_null())
        {
            return;
        }
        let allowed: Vec<String> = self
            .enumeration
            .iter()
            .map(|allowed| {
                allowed
                    .as_str()
                    .map_or_else(|| allowed.to_string(), str::to_owned)
            })
            .collect();
        outcome.add(Cause::not_supported(
            path,
            value,
            allowed.iter().map(String::as_str),
        ));
    }

    /// Only the first error about the length or pattern of a string is reported.
    fn check_text(&self, text: &str, value: &Value, path: &Path<'_>, outcome: &mut Findings) {
        let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(most) = self.max_length.filter(|most| length() > *most) {
            outcome.add(Cause::too_long(path, most));
        } else if let Some(least) = self.min_length.filter(|least| length() < *least) {
            outcome.add(Cause::invalid(
                path,
                value,
                &problem(path, &format!("should be at least {least} chars long")),
            ));
        } else if let Some((source, Some(pattern))) = &self.pattern
            && !pattern.is_match(text)
        {
            outcome.add(Cause::invalid(
                path,
                value,
                &problem(path, &format!("should match '{source}'")),
            ));
        }
        if let (Some(format), Some(name)) = (self.text_format, &self.format)
            && !format.accepts(text)
        {
            outcome.add(wrong_type(path, name, text));
        }
    }

    fn check_number(&self, number: &Number, value: &Value, path: &Path<'_>, outcome: &mut Findings) {
        let integer = self.kind == Some(Kind::Integer) && !self.int_or_string;
        let format = self.format.as_deref().unwrap_or_default();
        let in_range = |value: f64, exact: Option<i64>| match format {
            _ if !integer => format != "float" || value.abs() <= f64::from(f32::MAX),
            "int32" => value.fract() == 0.0 && (-2_147_483_648.0..=2_147_483_647.0).contains(&value),
            _ => exact.is_some() || value.fract() == 0.0 && value.abs() < 9.2e18,
        };
        let out_of_range = |what: &str| {
            let kind = if integer { "integer" } else { "number" };
            let format = if format.is_empty() {
                "(default format)".to_owned()
            } else {
                format!("with format {format}")
            };
            general(format!("{what} value must be of type {kind} {format} in {path}"))
        };
        let (exact, data) = (number.as_i64(), number.as_f64().unwrap_or(f64::NAN));
        if !in_range(data, exact) {
            outcome.add(out_of_range("Checked"));
        }
        if let Some(factor) = self.multiple_of {
            if !in_range(factor, None) {
                outcome.add(out_of_range("MultipleOf"));
            }
            if !is_multiple(exact, data, factor) {
                outcome.add(Cause::invalid(
                    path,
                    value,
                    &problem(path, &format!("should be a multiple of {}", go_float(factor))),
                ));
            }
        }
        let mut bound = |bound: Option<Bound>,
                         what: &str,
                         exceeds: fn(f64, f64) -> bool,
                         inclusive: &str,
                         exclusive: &str| {
            let Some(Bound {
                value: limit,
                exclusive: strict,
            }) = bound
            else {
                return;
            };
            if !in_range(limit, None) {
                outcome.add(out_of_range(what));
            }
            if exceeds(data, limit) || strict && data == limit {
                let words = if strict { exclusive } else { inclusive };
                outcome.add(Cause::invalid(
                    path,
                    value,
                    &problem(path, &format!("should be {words} {}", go_float(limit))),
                ));
            }
        };
        bound(
            self.minimum,
            "Minimum boundary",
            |data, limit| data < limit,
            "greater than or equal to",
            "greater than",
        );
        bound(
            self.maximum,
            "Maximum boundary",
            |data, limit| data > limit,
            "less than or equal to",
            "less than",
        );
        outcome.matches += 1;
    }

    fn check_list(&self, list: &[Value], old: Option<&Value>, path: &Path<'_>, outcome: &mut Findings) {
        if let Some(items) = &self.items {
            for (index, item) in list.iter().enumerate() {
                outcome.merge(items.check(item, self.old_item(item, old), &path.index(index)));
            }
        }
        let count = i64::try_from(list.len()).unwrap_or(i64::MAX);
        if let Some(least) = self.min_items.filter(|least| count < *least) {
            outcome.add(Cause::invalid(
                path,
                &Value::from(count),
                &problem(path, &format!("should have at least {least} items")),
            ));
        }
        if let Some(most) = self.max_items.filter(|most| count > *most) {
            outcome.add(Cause::too_many(path, list.len(), most));
        }
        outcome.matches += 1;
    }

    /// The element of the old list with the same keys; only lists of type map have keys.
    pub(crate) fn old_item<'v>(&self, item: &Value, old: Option<&'v Value>) -> Option<&'v Value> {
        let ListType::Map(keys) = &self.list else {
            return None;
        };
        let same_keys = |other: &&Value| keys.iter().all(|key| other.get(key) == item.get(key));
        old?.as_array()?.iter().find(same_keys)
    }

    fn check_object(
        &self,
        map: &Map<String, Value>,
        old: Option<&Value>,
        path: &Path<'_>,
        outcome: &mut Findings,
    ) {
        let count = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(least) = self.min_properties.filter(|least| count < *least) {
            outcome.add(Cause::invalid(
                path,
                &Value::from(count),
                &problem(path, &format!("should have at least {least} properties")),
            ));
        }
        if let Some(most) = self.max_properties.filter(|most| count > *most) {
            outcome.add(Cause::too_many(path, map.len(), most));
        }
        for (key, value) in map {
            if let Some(node) = self.field(key) {
                outcome.merge(node.check(value, old.and_then(|old| old.get(key)), &path.field(key)));
            }
        }
        for name in self.required.iter().filter(|name| !map.contains_key(*name)) {
            outcome.add(Cause::required(path.field(name), ""));
        }
    }

    fn check_combinations(
        &self,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        outcome: &mut Findings,
    ) {
        if !self.any_of.is_empty() {
            let (valid, explained) = alternatives(&self.any_of, value, old, path, true);
            if valid == 0 {
                outcome.add(general(format!(
                    "\"{path}\" must validate at least one schema (anyOf)"
                )));
            }
            outcome.merge(explained);
        }
        if !self.one_of.is_empty() {
            let (valid, explained) = alternatives(&self.one_of, value, old, path, false);
            let found = match valid {
                1 => None,
                0 => Some("Found none valid".to_owned()),
                many => Some(format!("Found {many} valid alternatives")),
            };
            if let Some(found) = &found {
                outcome.add(general(format!(
                    "\"{path}\" must validate one and only one schema (oneOf). {found}"
                )));
            }
            if valid < 2 {
                outcome.merge(explained);
            }
        }
        let mut valid = 0;
        for part in &self.all_of {
            let found = part.check(value, old, path);
            valid += usize::from(found.is_valid());
            outcome.merge(found);
        }
        if valid != self.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            outcome.add(general(format!(
                "\"{path}\" must validate all the schemas (allOf){none}"
            )));
        }
        if self
            .not
            .as_ref()
            .is_some_and(|not| not.check(value, old, path).is_valid())
        {
            outcome.add(general(format!("\"{path}\" must not validate the schema (not)")));
        }
    }
}

/// How many alternatives accept the value (at most one when the first is enough), and the first success or the best failure.
fn alternatives(
    schemas: &[Structural],
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    first_is_enough: bool,
) -> (usize, Findings) {
    let (mut valid, mut success, mut failure) = (0, None, None::<Findings>);
    for schema in schemas {
        let found = schema.check(value, old, path);
        if found.is_valid() {
            valid += 1;
            success.get_or_insert(found);
            if first_is_enough {
                break;
            }
        } else if failure.as_ref().is_none_or(|best| found.matches > best.matches) {
            failure = Some(found);
        }
    }
    (valid, success.or(failure).unwrap_or_default())
}

/// Equal as Go sees them after conversion: 1 and 1.0 are.
fn same(a: &Value, b: &Value) -> bool {
    a == b || a.is_number() && b.is_number() && a.as_f64() == b.as_f64()
}

fn is_multiple(exact: Option<i64>, data: f64, factor: f64) -> bool {
    if factor <= 0.0 {
        return false;
    }
    match exact {
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
        Some(data) if factor.fract() == 0.0 && factor < 9e15 => data % (factor as i64) == 0,
        _ => (data / factor).fract().abs() < 1e-9,
    }
}

/// Lists that are sets or maps must not have an element twice.
pub(crate) fn validate_lists(schema: &Structural, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if !schema.has_keyed_lists {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                match (schema.properties.get(key), &schema.additional) {
                    (Some(node), _) => validate_lists(node, child, &path.field(key), causes),
                    (None, Some(node)) => validate_lists(node, child, &path.key(key), causes),
                    _ => {}
                }
            }
        }
        Value::Array(list) => {
            match &schema.list {
                ListType::Atomic => {}
                ListType::Set => unique(list.to_vec(), path, causes),
                ListType::Map(keys) => {
                    match list.iter().position(|item| !item.is_object() && !item.is_null()) {
                        Some(index) => {
                            causes.push(Cause::invalid(
                                path.index(index),
                                &list[index],
                                "must be an object for an array of list-type map",
                            ));
                        }
                        None => unique(
                            list.iter().map(|item| identity(item, keys)).collect(),
                            path,
                            causes,
                        ),
                    }
                }
            }
            if let Some(items) = &schema.items {
                for (index, item) in list.iter().enumerate() {
                    validate_lists(items, item, &path.index(index), causes);
                }
            }
        }
        _ => {}
    }
}

fn identity(item: &Value, keys: &[String]) -> Value {
    let present = keys
        .iter()
        .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    Value::Object(present.collect())
}

/// Reports the second appearance of each element that appears again.
fn unique(items: Vec<Value>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for (index, item) in items.iter().enumerate() {
        if items[..index].iter().filter(|other| *other == item).count() == 1 {
            causes.push(Cause::duplicate(path.index(index), item));
        }
    }
}
