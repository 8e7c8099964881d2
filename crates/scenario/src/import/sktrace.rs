//! Traces of SimKube, version 2: MessagePack of objects that were applied and deleted.
//!
//! Owns the format. CronJobs run by their schedule, time zone and `concurrencyPolicy` until they are deleted or the trace ends, but for the time in which they are
//! suspended. Owners of other kinds are read where the configuration says where their templates are, and left out otherwise, with a note.

use std::collections::BTreeMap;

use rmpv::Value;

use super::crons::Crons;
use super::lines::whole;
use super::lives::{Ends, Fate, Lives};
use super::objects::{Object, is_read};
use super::packed::{Broken, Packed};
use super::scheduled::{Begin, Scheduled};
use super::stream::{Identity, Stream};
use super::templates::Templates;
use super::{ImportError, Place};

/// The version of the format.
const VERSION: u64 = 2;
const MOST_BYTES: u64 = 256 << 20;
/// Of one object; Kubernetes takes 1.5 MiB of JSON.
const MOST_OBJECT_BYTES: usize = 4 << 20;
/// Nesting of values; objects of Kubernetes have some twenty levels.
const MOST_DEPTH: usize = 100;

pub(crate) fn read(bytes: &[u8], stream: &mut Stream) -> Result<Vec<String>, ImportError> {
    let bytes = whole(bytes, MOST_BYTES, |read| Place::Byte(read.len() as u64))?;
    let Parts {
        mut events,
        lives,
        templates,
    } = parts(&bytes)?;
    let count = events.list().map_err(|broken| no_trace(&broken))?;
    let mut trace = Trace {
        stream,
        lives,
        templates,
        crons: BTreeMap::new(),
        read_crons: Crons::default(),
        ends: Ends::default(),
        foreign: BTreeMap::new(),
        others: BTreeMap::new(),
        runs: 0,
    };
    let mut last = None;
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
            trace.fire(last, instant)?;
        }
        last = Some(instant);
        for (list, is_there) in [(event.applied, true), (event.deleted, false)] {
            let Some(mut objects) = list else { continue };
            // What is no list has no objects.
            for _ in 0..objects.list().unwrap_or(0) {
                let object = object(&mut objects).map_err(&wrong)?;
                trace
                    .object(instant, &object, is_there)
                    .map_err(|problem| problem.of(&wrong))?;
            }
        }
    }
    trace.ends.until(i64::MAX, trace.stream)?;
    Ok(trace.notes())
}

/// Why an object is refused.
enum Refused {
    /// It cannot be read.
    Unread(String),
    /// What it says does not fit.
    Whole(ImportError),
}

impl Refused {
    fn of(self, wrong: &impl Fn(String) -> ImportError) -> ImportError {
        match self {
            Refused::Unread(problem) => wrong(problem),
            Refused::Whole(error) => error,
        }
    }
}

impl From<ImportError> for Refused {
    fn from(error: ImportError) -> Self {
        Refused::Whole(error)
    }
}

/// What is known of a trace at an event.
struct Trace<'s> {
    stream: &'s mut Stream,
    lives: Lives,
    templates: Templates,
    crons: BTreeMap<(String, String), Scheduled>,
    read_crons: Crons,
    /// What ends, as its pods did.
    ends: Ends,
    /// What the workloads of an object of another group are called.
    foreign: BTreeMap<Identity, Vec<Identity>>,
    /// Objects that are left out, by kind.
    others: BTreeMap<String, u64>,
    runs: u64,
}

impl Trace<'_> {
    fn object(&mut self, instant: i64, object: &serde_json::Value, is_there: bool) -> Result<(), Refused> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
        };
        let (version, kind) = (text("/apiVersion"), text("/kind"));
        let namespace = match text("/metadata/namespace") {
            "" => "default",
            namespace => namespace,
        };
        let key = (namespace.to_owned(), text("/metadata/name").to_owned());
        let tracked = (format!("{version}.{kind}"), key.0.clone(), key.1.clone());
        let is_own = is_read(version, kind) && kind != "ReplicationController";
        if !is_own && self.templates.are_known(&tracked.0) {
            return self.foreign(instant, &tracked, object, is_there);
        }
        match (kind, is_there) {
            ("CronJob", _) if is_own => {
                self.cron(instant, key, &tracked, object, is_there);
                Ok(())
            }
            (kind, false) if is_own => {
                let (namespace, name) = key;
                let identity = (kind.to_owned(), namespace, name);
                self.ends.forget(&identity);
                self.stream.deleted(instant, kind, &identity.1, &identity.2)?;
                Ok(())
            }
            (_, false) => Ok(self.stream.applied(instant, Object::Other)?),
            (kind, true) => self.applied(instant, (kind, is_own), key, &tracked, object),
        }
    }

    fn applied(
        &mut self,
        instant: i64,
        (kind, is_own): (&str, bool),
        (namespace, name): (String, String),
        tracked: &Identity,
        object: &serde_json::Value,
    ) -> Result<(), Refused> {
        let read = Object::read(&object.to_string(), None)
            .map_err(|error| Refused::Unread(format!("{kind} {namespace}/{name} cannot be read: {error}")))?;
        if !is_own || read == Object::Other {
            *self.others.entry(kind.to_owned()).or_default() += 1;
        }
        let fate = match kind {
            "Pod" if is_own => self.lives.of_pod(tracked, instant),
            "Job" if is_own => self.lives.of_all(tracked, instant),
            _ => Fate::Unknown,
        };
        match fate {
            // It is changed once more when its pods are gone.
            Fate::IsOver => return Ok(self.stream.applied(instant, Object::Other)?),
            Fate::Ends(end) => self.ends.at(end, (kind.to_owned(), namespace, name)),
            Fate::RunsOn => self.stream.runs_on((kind.to_owned(), namespace, name)),
            Fate::Unknown => {}
        }
        Ok(self.stream.applied(instant, read)?)
    }

    fn cron(
        &mut self,
        instant: i64,
        key: (String, String),
        tracked: &Identity,
        object: &serde_json::Value,
        is_there: bool,
    ) {
        let before = self.crons.remove(&key);
        if !is_there {
            return;
        }
        let suspend = object.pointer("/spec/suspend");
        let is_suspended = suspend.and_then(serde_json::Value::as_bool) == Some(true);
        let text = |pointer: &str| object.pointer(pointer).and_then(serde_json::Value::as_str);
        // What is suspended may say what it wants.
        let when = if is_suspended {
            None
        } else {
            let schedule = text("/spec/schedule").unwrap_or_default();
            self.read_crons.schedule(&key, schedule, text("/spec/timeZone"))
        };
        if is_suspended || when.is_some() {
            let lengths = self.lives.lengths(tracked);
            let scheduled = Scheduled::new(instant, when, object, lengths, before);
            self.crons.insert(key, scheduled);
        }
    }

    /// An object of another group whose templates are where the configuration says.
    fn foreign(
        &mut self,
        instant: i64,
        tracked: &Identity,
        object: &serde_json::Value,
        is_there: bool,
    ) -> Result<(), Refused> {
        let (kind, namespace, name) = tracked;
        let fate = self.lives.of_all(tracked, instant);
        let workloads = if is_there && fate != Fate::IsOver {
            let read = self.templates.of(tracked, object);
            read.map_err(|error| {
                Refused::Unread(format!("{kind} {namespace}/{name} cannot be read: {error}"))
            })?
        } else {
            Vec::new()
        };
        let identity = |name: &str| (kind.clone(), namespace.clone(), name.to_owned());
        let now = workloads.iter().map(|workload| identity(workload.meta.name()));
        let now: Vec<Identity> = now.collect();
        for gone in self.foreign.remove(tracked).unwrap_or_default() {
            if !now.contains(&gone) {
                self.ends.forget(&gone);
                self.stream.deleted(instant, &gone.0, &gone.1, &gone.2)?;
            }
        }
        for (workload, identity) in workloads.iter().zip(&now) {
            self.stream.foreign(instant, workload)?;
            if let Fate::Ends(end) = fate {
                self.ends.at(end, identity.clone());
            }
        }
        if !now.is_empty() {
            self.foreign.insert(tracked.clone(), now);
        }
        Ok(())
    }

    /// What happens between two events: CronJobs run, and what is over ends.
    fn fire(&mut self, from: i64, to: i64) -> Result<(), ImportError> {
        let (stream, ends) = (&mut *self.stream, &mut self.ends);
        let mut due: Vec<(Begin, &(String, String), &Scheduled)> = Vec::new();
        for (key, scheduled) in &mut self.crons {
            let begins = scheduled.begins(from, to, &mut self.runs)?;
            let scheduled = &*scheduled;
            due.extend(begins.into_iter().map(|begin| (begin, key, scheduled)));
        }
        due.sort_by_key(|(begin, key, _)| (begin.at_ms, *key));
        for (begin, (namespace, name), scheduled) in due {
            let instant = i64::try_from(begin.at_ms).unwrap_or(i64::MAX);
            let run = |at: u64| format!("{name}-{}", at / 60_000);
            let identity = |at: u64| ("Job".to_owned(), namespace.clone(), run(at));
            ends.until(instant, stream)?;
            if let Some(ended) = begin.ended_ms {
                ends.forget(&identity(ended));
                stream.deleted(instant, "Job", namespace, &run(ended))?;
            }
            let job = serde_json::json!({
                "kind": "Job",
                "metadata": {
                    "namespace": namespace,
                    "name": run(begin.at_ms),
                    "ownerReferences": [{"kind": "CronJob", "name": name, "controller": true}],
                },
                "spec": scheduled.job.get("spec"),
            });
            let read = Object::read(&job.to_string(), None).map_err(|error| {
                ImportError::whole(format!("CronJob {namespace}/{name} cannot be read: {error}"))
            })?;
            stream.applied(instant, read)?;
            if let Some(length) = begin.length_ms {
                let end = instant.saturating_add_unsigned(length);
                ends.at(end, identity(begin.at_ms));
            }
        }
        ends.until(to, stream)
    }

    /// What had to be assumed, and what is left out.
    fn notes(&self) -> Vec<String> {
        let left: Vec<String> = self
            .others
            .iter()
            .map(|(kind, count)| format!("{count} of {kind:?}"))
            .collect();
        let mut notes = self.read_crons.notes();
        if !left.is_empty() {
            notes.push(format!(
                "objects of kinds that are not read are left out: {}",
                left.join(", ")
            ));
        }
        notes
    }
}

/// What a trace is made of.
struct Parts<'b> {
    events: Packed<'b>,
    lives: Lives,
    templates: Templates,
}

/// The parts of a trace of our version, which may be anywhere in it.
fn parts(whole: &[u8]) -> Result<Parts<'_>, ImportError> {
    let mut trace = Packed::new(whole);
    let pairs = trace.map().map_err(|broken| no_trace(&broken))?;
    let (mut version, mut events, mut lives, mut config) = (None, None, None, None);
    for _ in 0..pairs {
        let key = trace.value().map_err(|broken| no_trace(&broken))?;
        let found = trace;
        let value = trace.value().map_err(|broken| no_trace(&broken))?;
        match small(key).as_ref().and_then(Value::as_str) {
            Some("version") => version = small(value).as_ref().and_then(Value::as_u64),
            Some("events") => events = Some(found),
            Some("pod_lifecycles") => lives = Some(found),
            Some("config") => config = Some(found),
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
    let events = events.ok_or_else(|| ImportError::whole("is not a trace of SimKube: it has no events"))?;
    // What cannot be read says nothing of templates.
    let config = config.and_then(|mut config| object(&mut config).ok());
    Ok(Parts {
        events,
        lives: lives.map(Lives::read).transpose()?.unwrap_or_default(),
        templates: config.as_ref().map(Templates::read).unwrap_or_default(),
    })
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

pub(super) fn no_trace(broken: &Broken) -> ImportError {
    ImportError::new(
        Place::Byte(broken.at as u64),
        format!(
            "is not a trace in MessagePack: {}; the file seems to be cut off or something else",
            broken.problem
        ),
    )
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
