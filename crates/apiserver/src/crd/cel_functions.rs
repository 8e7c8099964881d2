//! Functions of expressions: Kubernetes' own, which come from kube-cel; what the CEL crate lacks or has otherwise (sizes of texts, conversions, parts
//! of times in a zone, types as values); and those that only rewritten expressions call (`cel_rewriting`), whose names begin with `@`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};
use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, Expr};
use kube_cel::cel::common::types::CelMap;
use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::objects::{Key, KeyRef, Map, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, IdedExpr, Value as Cel, functions};

/// What is at a key of a map or a list, as an optional.
pub(super) const AT_KEY: &str = "@at_key";
/// Keys with their values, of a map or a list.
pub(super) const ENTRIES: &str = "@entries";
/// Whether something is a map.
pub(super) const IS_MAP: &str = "@is_map";
/// The keys of a map.
pub(super) const KEYS: &str = "@keys";
/// A map of keys with their values.
pub(super) const MAP_OF: &str = "@map_of";
/// One map of several, whose keys differ.
pub(super) const MERGED: &str = "@merged";
/// The format of a name, as an optional.
pub(super) const NAMED_FORMAT: &str = "@named_format";
/// Whether two values are alike: optionals, or numbers of two types, too.
pub(super) const SAME: &str = "@same";
/// A value as a text.
pub(super) const TEXT: &str = "@text";

const TYPES: [&str; 11] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "uint",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
];

thread_local! {
    static FUNCTIONS: Context<'static> = context();
}

/// The functions, for evaluating expressions.
pub(crate) fn with_functions<R>(evaluate: impl FnOnce(&Context<'static>) -> R) -> R {
    FUNCTIONS.with(evaluate)
}

/// Whether there is a function of this name.
pub(super) fn is_declared(name: &str) -> bool {
    // A function asks for its argument, which is nowhere; one that there is not is not even found.
    let call = call(name, vec![plain(Expr::Ident("@nowhere".to_owned()))]);
    with_functions(
        |functions| !matches!(functions.resolve(&call), Err(ExecutionError::UndeclaredReference(missing)) if *missing == name),
    )
}

/// A call of a function.
pub(super) fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    plain(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    }))
}

/// An expression of which no place in a text is known.
pub(super) fn plain(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn context() -> Context<'static> {
    let mut context = Context::default().with_all();
    for name in TYPES {
        context.add_variable_from_value(name, type_value(name));
    }
    context.add_function("type", type_of);
    context.add_function("dyn", |value: Cel| -> Result<Cel, ExecutionError> { Ok(value) });
    context.add_function("size", size);
    context.add_function("bool", to_bool);
    context.add_function("int", to_int);
    context.add_function("duration", to_duration);
    context.add_function("timestamp", to_timestamp);
    for (name, part) in PARTS {
        context.add_function(
            name,
            move |This(this): This<Cel>, Arguments(arguments): Arguments| {
                part_of(name, part, &this, &arguments)
            },
        );
    }
    context.add_function("optional.unwrap", unwrapped);
    context.add_function("unwrapOpt", unwrapped);
    context.add_function(AT_KEY, at_key);
    context.add_function(ENTRIES, entries);
    context.add_function(IS_MAP, is_map);
    context.add_function(KEYS, keys);
    context.add_function(MAP_OF, map_of);
    context.add_function(MERGED, merged);
    context.add_function(NAMED_FORMAT, named_format);
    context.add_function(SAME, |one: Cel, other: Cel| one == other);
    context.add_function(TEXT, to_text);
    context
}

/// The CEL crate has no types as values: `type(self) == string`.
fn type_value(name: &str) -> Cel {
    Cel::String(Arc::new(format!("type({name})")))
}

fn type_of(value: Cel) -> Result<Cel, ExecutionError> {
    Ok(type_value(match value {
        Cel::Bool(_) => "bool",
        Cel::Bytes(_) => "bytes",
        Cel::Float(_) => "double",
        Cel::Int(_) => "int",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        Cel::String(_) => "string",
        Cel::UInt(_) => "uint",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        _ => "type",
    }))
}

/// Of a text, the number of its characters.
fn size(This(this): This<Cel>) -> Result<i64, ExecutionError> {
    let count = match &this {
        Cel::List(list) => list.len(),
        Cel::Map(map) => map.map.len(),
        Cel::String(text) => text.chars().count(),
        Cel::Bytes(bytes) => bytes.len(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(i64::try_from(count).unwrap_or(i64::MAX))
}

fn to_bool(value: Cel) -> Result<Cel, ExecutionError> {
    match value {
        Cel::Bool(value) => Ok(Cel::Bool(value)),
        Cel::String(text) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Cel::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Cel::Bool(false)),
            _ => Err(ExecutionError::function_error(
                "bool",
                "type conversion error from 'string' to 'bool'",
            )),
        },
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn to_int(context: &FunctionContext<'_, '_>, value: Cel) -> Result<Cel, ExecutionError> {
    match value {
        Cel::Timestamp(time) => Ok(Cel::Int(time.timestamp())),
        Cel::Duration(span) => match span.num_nanoseconds() {
            Some(nanoseconds) => Ok(Cel::Int(nanoseconds)),
            None => Err(ExecutionError::function_error("int", "integer overflow")),
        },
        other => functions::int(context, This(other)),
    }
}

fn to_duration(value: Cel) -> Result<Cel, ExecutionError> {
    match value {
        Cel::Duration(span) => Ok(Cel::Duration(span)),
        Cel::String(text) => functions::duration(text),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn to_timestamp(value: Cel) -> Result<Cel, ExecutionError> {
    let seconds = match value {
        Cel::Timestamp(time) => return Ok(Cel::Timestamp(time)),
        Cel::String(text) => return functions::timestamp(text),
        Cel::Int(seconds) => seconds,
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let out_of_range = || ExecutionError::function_error("timestamp", "timestamp out of range");
    let text = Timestamp::from_second(seconds)
        .map_err(|_| out_of_range())?
        .to_string();
    functions::timestamp(Arc::new(text))
}

/// As `string` has it, and what kube-cel's lacks or writes otherwise.
fn to_text(context: &FunctionContext<'_, '_>, value: Cel) -> Result<Cel, ExecutionError> {
    let text = match value {
        Cel::Bool(value) => value.to_string(),
        Cel::Duration(span) => {
            let seconds = span.num_seconds() as f64 + f64::from(span.subsec_nanos()) / 1e9;
            format!("{seconds}s")
        }
        Cel::Timestamp(time) => time_as_text(&time.to_rfc3339()),
        _ => return context.ptx.resolve(&call("string", context.args.to_vec())),
    };
    Ok(Cel::String(Arc::new(text)))
}

/// UTC is `Z`, and no fraction of a second ends with a zero.
fn time_as_text(text: &str) -> String {
    let (time, zone) = match text.strip_suffix("+00:00") {
        Some(time) => (time, "Z"),
        None => text.split_at(text.len().saturating_sub("+00:00".len())),
    };
    match time.contains('.') {
        true => format!("{}{zone}", time.trim_end_matches('0')),
        false => format!("{time}{zone}"),
    }
}

/// kube-cel's function answers with null for a name that it does not know.
fn named_format(context: &FunctionContext<'_, '_>, _: Arc<String>) -> Result<Cel, ExecutionError> {
    let found = context
        .ptx
        .resolve(&call("format.named", context.args.to_vec()))?;
    Ok(match found {
        Cel::Null => optional(None),
        format => optional(Some(format)),
    })
}

type Part = fn(&Zoned) -> i64;

const PARTS: [(&str, Part); 10] = [
    ("getFullYear", |time| i64::from(time.year())),
    ("getMonth", |time| i64::from(time.month()) - 1),
    ("getDayOfYear", |time| i64::from(time.day_of_year()) - 1),
    ("getDayOfMonth", |time| i64::from(time.day()) - 1),
    ("getDate", |time| i64::from(time.day())),
    ("getDayOfWeek", |time| {
        i64::from(time.weekday().to_sunday_zero_offset())
    }),
    ("getHours", |time| i64::from(time.hour())),
    ("getMinutes", |time| i64::from(time.minute())),
    ("getSeconds", |time| i64::from(time.second())),
    ("getMilliseconds", |time| i64::from(time.millisecond())),
];

/// A part of a time in a zone, which is UTC where none is named; of a duration, all of it in a unit.
fn part_of(name: &str, part: Part, this: &Cel, arguments: &[Cel]) -> Result<i64, ExecutionError> {
    let span = match (this, arguments) {
        (Cel::Timestamp(time), _) => {
            let zone = match arguments {
                [] => TimeZone::UTC,
                [Cel::String(zone)] => zone_of(zone)?,
                _ => return Err(ExecutionError::NoSuchOverload),
            };
            let nanoseconds = i32::try_from(time.timestamp_subsec_nanos()).unwrap_or(0);
            let time = Timestamp::new(time.timestamp(), nanoseconds)
                .map_err(|error| ExecutionError::function_error(name, error))?;
            return Ok(part(&time.to_zoned(zone)));
        }
        (Cel::Duration(span), []) => span,
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    match name {
        "getHours" => Ok(span.num_hours()),
        "getMinutes" => Ok(span.num_minutes()),
        "getSeconds" => Ok(span.num_seconds()),
        "getMilliseconds" => Ok(span.num_milliseconds()),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// `Europe/Berlin`, or an offset such as `-05:30`.
fn zone_of(name: &str) -> Result<TimeZone, ExecutionError> {
    let unknown = || ExecutionError::function_error("timezone", format!("unknown time zone {name}"));
    let Some((hours, minutes)) = name.split_once(':') else {
        return match name {
            "" | "UTC" => Ok(TimeZone::UTC),
            name => TimeZone::get(name).map_err(|_| unknown()),
        };
    };
    let number = |text: &str| text.parse::<i8>().map(i32::from);
    let (Ok(hours), Ok(minutes)) = (number(hours), number(minutes)) else {
        return Err(unknown());
    };
    let minutes = if name.starts_with('-') { -minutes } else { minutes };
    let offset = Offset::from_seconds((hours * 60 + minutes) * 60);
    offset.map(TimeZone::fixed).map_err(|_| unknown())
}

/// An optional that holds a value, or nothing.
pub(super) fn optional(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(
        value.map_or_else(OptionalValue::none, OptionalValue::of),
    ))
}

/// What an optional holds; `None` for what is none.
fn held(value: &Cel) -> Option<Option<Cel>> {
    let optional = <&OptionalValue>::try_from(value).ok()?;
    Some(optional.value().cloned())
}

/// The items of a list that are none, without those optionals that hold nothing.
fn unwrapped(This(this): This<Cel>) -> Result<Cel, ExecutionError> {
    let Cel::List(list) = this else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let items = list.iter().filter_map(|item| held(item).flatten());
    Ok(Cel::List(Arc::new(items.collect())))
}

/// Nothing is at a key of what has no keys, nor of an optional that holds nothing.
fn at_key(value: Cel, key: Cel) -> Result<Cel, ExecutionError> {
    let value = match held(&value) {
        Some(None) => return Ok(optional(None)),
        Some(Some(held)) => held,
        None => value,
    };
    let found = match (&value, &key) {
        (Cel::Map(map), key) => {
            let key = KeyRef::try_from(key).map_err(ExecutionError::unsupported_key_type)?;
            map.get(&key).cloned()
        }
        (Cel::List(list), key) => {
            let index = match key {
                Cel::Int(index) => usize::try_from(*index).ok(),
                Cel::UInt(index) => usize::try_from(*index).ok(),
                _ => return Err(ExecutionError::NoSuchOverload),
            };
            index.and_then(|index| list.get(index).cloned())
        }
        _ => None,
    };
    Ok(optional(found))
}

/// What is in a map by its keys. The CEL crate's maps have an order of their own in each run.
fn sorted(map: &Map) -> BTreeMap<&Key, &Cel> {
    map.map.iter().collect()
}

/// Lists, which most ranges of macros are, are not copied for that.
fn is_map(context: &FunctionContext<'_, '_>) -> Result<bool, ExecutionError> {
    let [range] = context.args else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let range = Cel::resolve_val(range, context.ptx)?;
    Ok(range.downcast_ref::<CelMap>().is_some())
}

/// In their order.
fn keys(map: Cel) -> Result<Cel, ExecutionError> {
    let Cel::Map(map) = &map else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let keys = sorted(map).into_keys().map(Cel::from);
    Ok(Cel::List(Arc::new(keys.collect())))
}

/// In the order of their keys, which are indexes in a list.
fn entries(range: Cel) -> Result<Cel, ExecutionError> {
    let pair = |key: Cel, value: &Cel| Cel::List(Arc::new(vec![key, value.clone()]));
    let pairs: Vec<Cel> = match &range {
        Cel::List(list) => {
            let indexed = (0_i64..).zip(list.iter());
            indexed.map(|(index, item)| pair(Cel::Int(index), item)).collect()
        }
        Cel::Map(map) => {
            let entries = sorted(map).into_iter();
            entries.map(|(key, value)| pair(Cel::from(key), value)).collect()
        }
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(Cel::List(Arc::new(pairs)))
}

fn map_of(pairs: Cel) -> Result<Cel, ExecutionError> {
    let Cel::List(pairs) = pairs else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let mut map: HashMap<Key, Cel> = HashMap::with_capacity(pairs.len());
    for pair in pairs.iter() {
        let Cel::List(pair) = pair else {
            return Err(ExecutionError::NoSuchOverload);
        };
        let [key, value] = &pair[..] else {
            return Err(ExecutionError::NoSuchOverload);
        };
        let key: Result<Key, Cel> = key.clone().try_into();
        let key = key.map_err(ExecutionError::unsupported_key_type)?;
        map.insert(key, value.clone());
    }
    Ok(Cel::Map(Map { map: Arc::new(map) }))
}

fn merged(maps: Cel) -> Result<Cel, ExecutionError> {
    let Cel::List(maps) = maps else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let mut all: HashMap<Key, Cel> = HashMap::new();
    for map in maps.iter() {
        let Cel::Map(map) = map else {
            return Err(ExecutionError::NoSuchOverload);
        };
        for (key, value) in sorted(map) {
            if all.insert(key.clone(), value.clone()).is_some() {
                let problem = format!("insert failed: key {key} already exists");
                return Err(ExecutionError::function_error("transformMapEntry", problem));
            }
        }
    }
    Ok(Cel::Map(Map { map: Arc::new(all) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_their_names() {
        for name in [
            "size",
            "dyn",
            "matches",
            "quantity",
            "strings.quote",
            "math.greatest",
            "format.dns1123Label",
            "optional.none",
            "getHours",
            "unwrapOpt",
            AT_KEY,
            IS_MAP,
            KEYS,
            MERGED,
        ] {
            assert!(is_declared(name), "{name}");
        }
        for name in ["quote", "optMap", "all", "bind", "allowed", ""] {
            assert!(!is_declared(name), "{name}");
        }
    }
}
