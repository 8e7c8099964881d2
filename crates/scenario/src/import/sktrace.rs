//! Traces of SimKube, version 2: MessagePack of objects that were applied and deleted.
//!
//! Owns the format. CronJobs run by their schedule until they are deleted or the trace ends; owners of other kinds are left out, with a note.

use std::collections::BTreeMap;
use std::io::Read as _;

use jiff::Timestamp;
use rmpv::Value;
use spokeshave_api::Cron;

use super::lines::reader;
use super::objects::Object;
use super::stream::Stream;
use super::{ImportError, Place};

/// The version of the format.
const VERSION: u64 = 2;
const MOST_BYTES: u64 = 256 << 20;
/// Nesting of values; objects of Kubernetes have some twenty levels.
const MOST_DEPTH: usize = 100;
/// Runs of CronJobs in one trace.
const MOST_RUNS: u64 = 5_000_000;

/// An existing CronJob.
struct Scheduled {
    since: i64,
    cron: Cron,
    /// The Job that each run is.
    job: serde_json::Value,
}

pub(crate) fn read(bytes: &[u8], stream: &mut Stream) -> Result<Vec<String>, ImportError> {
    let mut whole = Vec::new();
    reader(bytes)
        .take(MOST_BYTES)
        .read_to_end(&mut whole)
        .map_err(|error| ImportError::whole(format!("cannot be read: {error}")))?;
    let mut rest = whole.as_slice();
    let trace = rmpv::decode::read_value_with_max_depth(&mut rest, MOST_DEPTH).map_err(|error| {
        let offset = (whole.len() - rest.len()) as u64;
        ImportError::new(
            Place::Byte(offset),
            format!("is not MessagePack: {error}; the file seems to be cut off or something else"),
        )
    })?;
    match field(&trace, "version").and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(version) => {
            return Err(ImportError::whole(format!(
                "is of version {version}; expected a trace of version {VERSION}"
            )));
        }
        None => return Err(ImportError::whole("is not a trace of SimKube: it has no version")),
    }
    let Some(events) = field(&trace, "events").and_then(Value::as_array) else {
        return Err(ImportError::whole("is not a trace of SimKube: it has no events"));
    };
    let mut crons: BTreeMap<(String, String), Scheduled> = BTreeMap::new();
    let mut others: BTreeMap<String, u64> = BTreeMap::new();
    let (mut last, mut runs) = (None, 0);
    for (index, event) in events.iter().enumerate() {
        let wrong = |problem: String| ImportError::whole(format!("event {}: {problem}", index + 1));
        let Some(seconds) = field(event, "ts")
            .and_then(Value::as_i64)
            .filter(|seconds| (0..=100_000_000_000).contains(seconds))
        else {
            return Err(wrong("has no ts, an instant in seconds since 1970".to_owned()));
        };
        let instant = seconds * 1_000;
        if last.is_some_and(|last| instant < last) {
            return Err(wrong(
                "is earlier than the event before it; expected events in order of time".to_owned(),
            ));
        }
        if let Some(last) = last {
            fire(&crons, last, instant, &mut runs, stream)?;
        }
        last = Some(instant);
        for (list, is_there) in [("applied_objs", true), ("deleted_objs", false)] {
            let objects = field(event, list)
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            for object in objects {
                let object = json(object, 0).map_err(&wrong)?;
                let text = |pointer: &str| {
                    object
                        .pointer(pointer)
                        .and_then(serde_json::Value::as_str)
                        .unwrap_or_default()
                };
                let kind = text("/kind").to_owned();
                let namespace = match text("/metadata/namespace") {
                    "" => "default",
                    namespace => namespace,
                };
                let key = (namespace.to_owned(), text("/metadata/name").to_owned());
                if kind == "CronJob" {
                    crons.remove(&key);
                    if let (true, Ok(cron)) = (is_there, text("/spec/schedule").parse::<Cron>()) {
                        let job = object.pointer("/spec/jobTemplate").cloned().unwrap_or_default();
                        crons.insert(
                            key,
                            Scheduled {
                                since: instant,
                                cron,
                                job,
                            },
                        );
                    }
                    continue;
                }
                if !is_there {
                    stream.deleted(instant, &kind, &key.0, &key.1)?;
                    continue;
                }
                let read = Object::read(&object.to_string(), None)
                    .map_err(|error| wrong(format!("{kind} {}/{} cannot be read: {error}", key.0, key.1)))?;
                if read == Object::Other {
                    *others.entry(kind).or_default() += 1;
                }
                stream.applied(instant, read)?;
            }
        }
    }
    let left: Vec<String> = others
        .iter()
        .map(|(kind, count)| format!("{count} of {kind:?}"))
        .collect();
    Ok(match left.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "objects without pods of their own are left out: {}",
            left.join(", ")
        )],
    })
}

/// Runs of CronJobs between two events.
fn fire(
    crons: &BTreeMap<(String, String), Scheduled>,
    from: i64,
    to: i64,
    runs: &mut u64,
    stream: &mut Stream,
) -> Result<(), ImportError> {
    let mut due: Vec<(i64, &(String, String), &Scheduled)> = Vec::new();
    for (key, scheduled) in crons {
        let mut after = Timestamp::from_millisecond(from.max(scheduled.since)).unwrap_or_default();
        while let Ok(hit) = scheduled.cron.next_after(after) {
            if hit.as_millisecond() > to {
                break;
            }
            due.push((hit.as_millisecond(), key, scheduled));
            after = hit;
            *runs += 1;
            if *runs > MOST_RUNS {
                return Err(ImportError::whole(format!(
                    "has CronJobs that run more than {MOST_RUNS} times"
                )));
            }
        }
    }
    due.sort_by_key(|(at, key, _)| (*at, *key));
    for (at, (namespace, name), scheduled) in due {
        let job = serde_json::json!({
            "kind": "Job",
            "metadata": {
                "namespace": namespace,
                "name": format!("{name}-{}", at / 60_000),
                "ownerReferences": [{"kind": "CronJob", "name": name, "controller": true}],
            },
            "spec": scheduled.job.get("spec"),
        });
        let read = Object::read(&job.to_string(), None).map_err(|error| {
            ImportError::whole(format!("CronJob {namespace}/{name} cannot be read: {error}"))
        })?;
        stream.applied(at, read)?;
    }
    Ok(())
}

/// A field of a map whose keys are texts.
fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let entries = value.as_map()?;
    entries
        .iter()
        .find(|(key, _)| key.as_str() == Some(name))
        .map(|(_, value)| value)
}

/// An object as JSON.
fn json(value: &Value, depth: usize) -> Result<serde_json::Value, String> {
    if depth > MOST_DEPTH {
        return Err("is nested too deeply".to_owned());
    }
    Ok(match value {
        Value::Nil => serde_json::Value::Null,
        Value::Boolean(value) => (*value).into(),
        Value::Integer(value) => match (value.as_i64(), value.as_u64()) {
            (Some(value), _) => value.into(),
            (None, Some(value)) => value.into(),
            (None, None) => serde_json::Value::Null,
        },
        Value::F32(value) => f64::from(*value).into(),
        Value::F64(value) => (*value).into(),
        Value::String(text) => match text.as_str() {
            Some(text) => text.into(),
            None => return Err("holds a text that is not UTF-8".to_owned()),
        },
        Value::Array(items) => {
            let items: Result<Vec<_>, _> = items.iter().map(|item| json(item, depth + 1)).collect();
            items?.into()
        }
        Value::Map(entries) => {
            let mut map = serde_json::Map::new();
            for (key, value) in entries {
                let Some(key) = key.as_str() else {
                    return Err("holds an object with a key that is not a text".to_owned());
                };
                map.insert(key.to_owned(), json(value, depth + 1)?);
            }
            map.into()
        }
        Value::Binary(_) | Value::Ext(..) => return Err("holds binary data in an object".to_owned()),
    })
}
