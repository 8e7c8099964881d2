//! Log lines in JSON with upstream's keys (P-205): `level`, `time`, `logger`, `caller` (at level debug), `message`, `commit`, then what the controller
//! and the event say.
//!
//! Owns the keys, their order, how objects are named, and sampling. Where lines go is another's choice.

use std::fmt;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_ports::SharedClock;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The name of upstream's logger.
const LOGGER: &str = "controller";

/// Keys whose value is the name of an object, perhaps after its namespace.
const OBJECTS: [&str; 8] = [
    "CapacityBuffer",
    "Disruption",
    "Node",
    "NodeClaim",
    "NodeClass",
    "NodeOverlay",
    "NodePool",
    "Pod",
];

/// Keys whose value is JSON already.
const STRUCTURED: [&str; 2] = ["disrupted-nodes", "replacement-nodes"];

/// The key of a field that is called like the text of the line: queries of logs look for the text.
const SECOND_MESSAGE: &str = "detail";

/// Lines of one level and message in a second before sampling begins, and of which every how many-th is written from then on (P §15.3).
const FIRST: u64 = 100;
const THEREAFTER: u64 = 100;
const SECOND_NANOS: i128 = 1_000_000_000;

/// Writes events as lines of JSON.
pub(crate) struct JsonLines<W> {
    out: Mutex<W>,
    clock: SharedClock,
    sampler: Sampler,
    commit: Option<&'static str>,
    with_caller: bool,
}

impl<W: Write> JsonLines<W> {
    /// `commit` is that of the build, if it is known; `with_caller` says where in the code an event comes from.
    pub(crate) fn new(out: W, clock: SharedClock, commit: Option<&'static str>, with_caller: bool) -> Self {
        Self {
            out: Mutex::new(out),
            clock,
            sampler: Sampler::default(),
            commit,
            with_caller,
        }
    }

    fn line(&self, metadata: &Metadata<'_>, now: Timestamp, context: Fields, event: Fields) -> String {
        let mut pairs: Vec<(&str, Value)> = vec![
            ("level", json!(level_name(*metadata.level()))),
            ("time", json!(now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())),
            ("logger", json!(LOGGER)),
        ];
        if let (true, Some(file), Some(line)) = (self.with_caller, metadata.file(), metadata.line()) {
            let parts: Vec<&str> = file.rsplitn(3, '/').take(2).collect();
            let short: Vec<&str> = parts.into_iter().rev().collect();
            pairs.push(("caller", json!(format!("{}:{line}", short.join("/")))));
        }
        pairs.push(("message", json!(event.text())));
        if let Some(commit) = self.commit {
            pairs.push(("commit", json!(commit)));
        }
        let mut seen: Vec<&str> = pairs.iter().map(|(key, _)| *key).collect();
        let mut further: Vec<(&str, Value)> = Vec::new();
        // What the event says counts before what its controller says.
        for (key, value) in event.pairs.iter().chain(&context.pairs) {
            if !seen.contains(key) {
                seen.push(key);
                further.push((key, named(key, value.clone())));
            }
        }
        let (of_event, of_context): (Vec<_>, Vec<_>) = further
            .into_iter()
            .partition(|(key, _)| event.pairs.iter().any(|(own, _)| own == key));
        let all = pairs.into_iter().chain(of_context).chain(of_event);
        let texts: Vec<String> = all
            .map(|(key, value)| format!("{}:{value}", json!(key)))
            .collect();
        format!("{{{}}}\n", texts.join(","))
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        _ => "DEBUG",
    }
}

/// Objects are logged under their kind: `"NodeClaim":{"name":"default-x"}`; what is structured stays so.
fn named(key: &str, value: Value) -> Value {
    match value {
        Value::String(text) if OBJECTS.contains(&key) => match text.split_once('/') {
            Some((namespace, name)) => json!({"name": name, "namespace": namespace}),
            None => json!({"name": text}),
        },
        Value::String(text) if STRUCTURED.contains(&key) => {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        value => value,
    }
}

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    W: Write + Send + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let now = self.clock.now();
        let mut own = Fields::default();
        event.record(&mut own);
        if !self.sampler.admits(*event.metadata().level(), own.text(), now) {
            return;
        }
        let mut around = Fields::default();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<Fields>() {
                around.pairs.extend(fields.pairs.iter().cloned());
            }
        }
        let line = self.line(event.metadata(), now, around, own);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // There is nowhere to report a log that cannot be written.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// What an event or a controller says, in order.
#[derive(Debug, Default)]
struct Fields {
    message: Option<String>,
    pairs: Vec<(&'static str, Value)>,
}

impl Fields {
    fn text(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    fn push(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            // The text of the line comes before all of its fields.
            ("message", value) if self.message.is_some() => self.pairs.push((SECOND_MESSAGE, value)),
            ("message", Value::String(text)) => self.message = Some(text),
            ("message", other) => self.message = Some(other.to_string()),
            // Metadata of libraries that log through `log`.
            (name, _) if name.starts_with("log.") => {}
            (name, value) => self.pairs.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, json!(format!("{value:?}")));
    }
}

/// Thins out lines that come in floods, as zap does: per level and message, the first hundred of a second, then every hundredth.
struct Sampler {
    /// When the count begins again, in nanoseconds, and the count, by level and hash of the message. Two messages may share one.
    counters: Mutex<Vec<(i128, u64)>>,
}

const SLOTS: usize = 4096;
const LEVELS: usize = 4;

impl Default for Sampler {
    fn default() -> Self {
        Self {
            counters: Mutex::new(vec![(0, 0); SLOTS * LEVELS]),
        }
    }
}

impl Sampler {
    fn admits(&self, level: Level, message: &str, now: Timestamp) -> bool {
        let level = match level {
            Level::ERROR => 0,
            Level::WARN => 1,
            Level::INFO => 2,
            _ => 3,
        };
        let hash = message.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        let slot = level * SLOTS + hash as usize % SLOTS;
        let now = now.as_nanosecond();
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let (resets_at, count) = &mut counters[slot];
        if *resets_at > now {
            *count += 1;
        } else {
            *count = 1;
            *resets_at = now + SECOND_NANOS;
        }
        *count <= FIRST || (*count - FIRST).is_multiple_of(THEREAFTER)
    }
}
