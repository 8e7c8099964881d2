//! Traces of SimKube, version 2: MessagePack of objects that were applied and deleted.
//!
//! Owns the format. CronJobs run by their schedule, time zone and `concurrencyPolicy` until they are deleted or the trace ends, but for the time in which they are
//! suspended. Owners of other kinds are left out, with a note.

use std::collections::BTreeMap;
use std::io::Read as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rmpv::Value;
use spokeshave_api::Cron;

use super::crons::Crons;
use super::inventory::RUNS_MS;
use super::lines::reader;
use super::objects::{Concurrency, Object};
use super::packed::{Broken, Packed};
use super::runs::Turns;
use super::stream::Stream;
use super::{ImportError, Place};
use crate::generate::hits_in;

/// The version of the format.
const VERSION: u64 = 2;
const MOST_BYTES: u64 = 256 << 20;
/// Of one object; Kubernetes takes 1.5 MiB of JSON.
const MOST_OBJECT_BYTES: usize = 4 << 20;
/// Nesting of values; objects of Kubernetes have some twenty levels.
const MOST_DEPTH: usize = 100;
/// Runs of CronJobs in one trace.
const MOST_RUNS: u64 = 5_000_000;

/// How far back the last time of a schedule is looked for first.
const LOOK_BACK_MS: i64 = 3_600_000;

/// An existing CronJob.
struct Scheduled {
    since: i64,
    /// Its schedule, and by whose clocks it runs; none while it is suspended.
    when: Option<(Cron, TimeZone)>,
    /// In milliseconds since 1970, as is when its last run began.
    turns: Turns,
    last_ms: Option<u64>,
    /// The Job that each run is.
    job: serde_json::Value,
}

impl Scheduled {
    /// One that is applied. If there was one before, what it has begun still runs, and what was due while it was suspended was missed.
    fn new(
        instant: i64,
        when: Option<(Cron, TimeZone)>,
        object: &serde_json::Value,
        before: Option<Self>,
    ) -> Self {
        let policy = object.pointer("/spec/concurrencyPolicy");
        let policy = policy.and_then(serde_json::Value::as_str).unwrap_or_default();
        let seconds = object.pointer("/spec/startingDeadlineSeconds");
        let seconds = seconds.and_then(serde_json::Value::as_u64);
        let within_ms = seconds.map(|seconds| seconds.saturating_mul(1_000));
        let (turns, last_ms, suspended) = before.map_or_else(Default::default, |before| {
            let suspended = before.when.is_none().then_some(before.since);
            (before.turns, before.last_ms, suspended)
        });
        let mut turns: Turns = turns
            .with(Concurrency::named(policy), within_ms)
            .since(u64::try_from(instant).unwrap_or(0));
        let missed = when.as_ref().zip(suspended);
        let missed = missed.and_then(|((cron, zone), from)| last_between(cron, zone, from, instant));
        if let Some(missed) = missed {
            turns.missed(missed);
        }
        Self {
            // One that stays suspended is so since it was first.
            since: suspended.filter(|_| when.is_none()).unwrap_or(instant),
            when,
            turns,
            last_ms,
            job: object.pointer("/spec/jobTemplate").cloned().unwrap_or_default(),
        }
    }

    /// When it begins runs after `from` and until `to`, each with the beginning of one that it ends then.
    fn begins(&mut self, from: i64, to: i64, runs: &mut u64) -> Result<Vec<(u64, Option<u64>)>, ImportError> {
        let Some((cron, zone)) = &self.when else {
            return Ok(Vec::new());
        };
        let start = Timestamp::from_millisecond(from.max(self.since)).unwrap_or_default();
        let from = u64::try_from(start.as_millisecond()).unwrap_or(0);
        let after = u64::try_from(to).unwrap_or(0).saturating_add(1);
        let (turns, last_ms) = (&mut self.turns, &mut self.last_ms);
        let mut found = Vec::new();
        let mut begin = |turns: &mut Turns, at: u64| {
            let is_ended = turns.is_replaced() && at < turns.over_ms();
            let before = last_ms.replace(at).filter(|_| is_ended);
            turns.until(at.saturating_add(RUNS_MS));
            found.push((at, before));
        };
        for hit in hits_in(zone, cron, start, after.saturating_sub(from)) {
            // What is due in the instant of an event ran before it.
            if hit == 0 {
                continue;
            }
            *runs += 1;
            if *runs > MOST_RUNS {
                return Err(ImportError::whole(format!(
                    "has CronJobs that run more than {MOST_RUNS} times"
                )));
            }
            let at = from.saturating_add(hit);
            if let Some(late) = turns.made_up_for(at) {
                begin(turns, late);
            }
            if turns.is_taken(at) {
                begin(turns, at);
            }
        }
        if let Some(late) = turns.made_up_for(after) {
            begin(turns, late);
        }
        Ok(found)
    }
}

/// The last time of a schedule after `from` and until `to`, sought further and further back: a schedule may be due each minute of a year.
fn last_between(cron: &Cron, zone: &TimeZone, from: i64, to: i64) -> Option<u64> {
    let mut back_ms = LOOK_BACK_MS;
    loop {
        let after = from.max(to.saturating_sub(back_ms));
        let first = Timestamp::from_millisecond(after.saturating_add(1)).ok()?;
        let last = hits_in(zone, cron, first, to.abs_diff(after)).last();
        if let Some(hit) = last {
            return u64::try_from(first.as_millisecond()).ok()?.checked_add(hit);
        }
        if after == from {
            return None;
        }
        back_ms = back_ms.saturating_mul(8);
    }
}

pub(crate) fn read(bytes: &[u8], stream: &mut Stream) -> Result<Vec<String>, ImportError> {
    let mut whole = Vec::new();
    reader(bytes)
        .take(MOST_BYTES + 1)
        .read_to_end(&mut whole)
        .map_err(|error| ImportError::whole(format!("cannot be read: {error}")))?;
    if whole.len() as u64 > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        return Err(ImportError::whole(format!(
            "is larger than {most} MiB without compression; cut the trace into pieces"
        )));
    }
    let mut events = events(&whole)?;
    let count = events.list().map_err(|broken| no_trace(&broken))?;
    let mut crons: BTreeMap<(String, String), Scheduled> = BTreeMap::new();
    let mut read_crons = Crons::default();
    let mut others: BTreeMap<String, u64> = BTreeMap::new();
    let (mut last, mut runs) = (None, 0);
    for number in 1..=count {
        let wrong = |problem: String| ImportError::whole(format!("event {number}: {problem}"));
        let event = Event::next(&mut events).map_err(|broken| no_trace(&broken))?;
        let Some(seconds) = event
            .seconds
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
            fire(&mut crons, last, instant, &mut runs, stream)?;
        }
        last = Some(instant);
        for (list, is_there) in [(event.applied, true), (event.deleted, false)] {
            let Some(mut objects) = list else { continue };
            // What is no list has no objects.
            for _ in 0..objects.list().unwrap_or(0) {
                let object = object(&mut objects).map_err(&wrong)?;
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
                    let before = crons.remove(&key);
                    if !is_there {
                        continue;
                    }
                    let suspend = object.pointer("/spec/suspend");
                    let is_suspended = suspend.and_then(serde_json::Value::as_bool) == Some(true);
                    let zone = object.pointer("/spec/timeZone");
                    let zone = zone.and_then(serde_json::Value::as_str);
                    // What is suspended may say what it wants.
                    let when = if is_suspended {
                        None
                    } else {
                        read_crons.schedule(&key, text("/spec/schedule"), zone)
                    };
                    if is_suspended || when.is_some() {
                        crons.insert(key, Scheduled::new(instant, when, &object, before));
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
    let mut notes = read_crons.notes();
    if !left.is_empty() {
        notes.push(format!(
            "objects without pods of their own are left out: {}",
            left.join(", ")
        ));
    }
    Ok(notes)
}

/// The events of a trace of our version, which may be anywhere in it.
fn events(whole: &[u8]) -> Result<Packed<'_>, ImportError> {
    let mut trace = Packed::new(whole);
    let pairs = trace.map().map_err(|broken| no_trace(&broken))?;
    let (mut version, mut events) = (None, None);
    for _ in 0..pairs {
        let key = trace.value().map_err(|broken| no_trace(&broken))?;
        let found = trace;
        let value = trace.value().map_err(|broken| no_trace(&broken))?;
        match small(key).as_ref().and_then(Value::as_str) {
            Some("version") => version = small(value).as_ref().and_then(Value::as_u64),
            Some("events") => events = Some(found),
            _ => {}
        }
    }
    match version {
        Some(VERSION) => {}
        Some(version) => {
            return Err(ImportError::whole(format!(
                "is of version {version}; expected a trace of version {VERSION}"
            )));
        }
        None => return Err(ImportError::whole("is not a trace of SimKube: it has no version")),
    }
    events.ok_or_else(|| ImportError::whole("is not a trace of SimKube: it has no events"))
}

/// An event: when it was, and where its lists of objects are.
#[derive(Default)]
struct Event<'b> {
    seconds: Option<i64>,
    applied: Option<Packed<'b>>,
    deleted: Option<Packed<'b>>,
}

impl<'b> Event<'b> {
    fn next(events: &mut Packed<'b>) -> Result<Self, Broken> {
        let mut event = Self::default();
        for _ in 0..events.map()? {
            let key = events.value()?;
            let found = *events;
            let value = events.value()?;
            match small(key).as_ref().and_then(Value::as_str) {
                Some("ts") => event.seconds = small(value).as_ref().and_then(Value::as_i64),
                Some("applied_objs") => event.applied = Some(found),
                Some("deleted_objs") => event.deleted = Some(found),
                _ => {}
            }
        }
        Ok(event)
    }
}

/// The next object of an event. A value takes up to forty times as much memory as its bytes, so that they are bounded first.
fn object(objects: &mut Packed<'_>) -> Result<serde_json::Value, String> {
    let mut bytes = objects.value().map_err(|broken| broken.problem.to_owned())?;
    if bytes.len() > MOST_OBJECT_BYTES {
        let most = MOST_OBJECT_BYTES >> 20;
        return Err(format!(
            "holds an object of more than {most} MiB, which Kubernetes does not take"
        ));
    }
    let value = rmpv::decode::read_value_with_max_depth(&mut bytes, MOST_DEPTH)
        .map_err(|error| format!("holds an object that cannot be read: {error}"))?;
    json(&value, 0)
}

/// A value of a few bytes.
fn small(mut bytes: &[u8]) -> Option<Value> {
    let read = (bytes.len() < 64).then(|| rmpv::decode::read_value_with_max_depth(&mut bytes, MOST_DEPTH));
    read?.ok()
}

fn no_trace(broken: &Broken) -> ImportError {
    ImportError::new(
        Place::Byte(broken.at as u64),
        format!(
            "is not a trace in MessagePack: {}; the file seems to be cut off or something else",
            broken.problem
        ),
    )
}

/// What CronJobs do between two events.
fn fire(
    crons: &mut BTreeMap<(String, String), Scheduled>,
    from: i64,
    to: i64,
    runs: &mut u64,
    stream: &mut Stream,
) -> Result<(), ImportError> {
    let mut due: Vec<(u64, &(String, String), &Scheduled, Option<u64>)> = Vec::new();
    for (key, scheduled) in crons {
        let begins = scheduled.begins(from, to, runs)?;
        let scheduled = &*scheduled;
        due.extend(begins.into_iter().map(|(at, ended)| (at, key, scheduled, ended)));
    }
    due.sort_by_key(|(at, key, ..)| (*at, *key));
    for (at, (namespace, name), scheduled, ended) in due {
        let instant = i64::try_from(at).unwrap_or(i64::MAX);
        let run = |at: u64| format!("{name}-{}", at / 60_000);
        if let Some(ended) = ended {
            stream.deleted(instant, "Job", namespace, &run(ended))?;
        }
        let job = serde_json::json!({
            "kind": "Job",
            "metadata": {
                "namespace": namespace,
                "name": run(at),
                "ownerReferences": [{"kind": "CronJob", "name": name, "controller": true}],
            },
            "spec": scheduled.job.get("spec"),
        });
        let read = Object::read(&job.to_string(), None).map_err(|error| {
            ImportError::whole(format!("CronJob {namespace}/{name} cannot be read: {error}"))
        })?;
        stream.applied(instant, read)?;
    }
    Ok(())
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
