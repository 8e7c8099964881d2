//! The event log as a trace that Perfetto and `chrome://tracing` draw: nodes and commands as bars, nodes, waiting pods and dollars an hour as curves.
//!
//! Owns the form, Chrome's Trace Event Format with complete (`X`) and counter (`C`) events only. It measures nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use spokeshave_model::Price;

use crate::log::Line;

/// Curves have at most one point in so many milliseconds.
const STEP_MS: u64 = 60_000;

/// The rows of nodes, those of commands, and the curves, each as a process of the trace.
const NODES: u32 = 1;
const COMMANDS: u32 = 2;
const CLUSTER: u32 = 3;

/// Rows: bars that overlap are drawn in different ones.
#[derive(Debug, Default)]
struct Rows {
    made: u32,
    free: BTreeSet<u32>,
}

impl Rows {
    fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.made += 1;
            self.made
        })
    }
}

/// A bar that has begun.
#[derive(Debug)]
struct Bar {
    row: u32,
    began_ms: u64,
    name: String,
    detail: String,
    price: Price,
}

/// Makes the trace of one run from the lines of its log.
#[derive(Debug, Default)]
pub struct Trace {
    events: Vec<Value>,
    nodes: BTreeMap<String, Bar>,
    node_rows: Rows,
    commands: BTreeMap<String, Bar>,
    command_rows: Rows,
    waiting: BTreeSet<String>,
    price: Price,
    /// Since when the curves have been different from their last point.
    changed_ms: Option<u64>,
    shown_ms: Option<u64>,
    /// When the last line was taken.
    last_ms: u64,
}

impl Trace {
    /// Takes the next line.
    pub fn take(&mut self, line: &Line<'_>) {
        self.show_curves(line.at_ms, false);
        self.last_ms = line.at_ms;
        match line.what {
            "launched" | "standing" => self.launched(line),
            "ended" => self.node_ends(line.of, line.at_ms),
            "command" => self.command(line),
            "phase" if matches!(line.more, "Succeeded" | "RolledBack") => {
                self.command_ends(line.of, line.at_ms, line.more);
            }
            "born" => _ = self.waiting.insert(line.of.to_owned()),
            "bound" | "placed" | "left" => _ = self.waiting.remove(line.of),
            _ => return,
        }
        self.changed_ms.get_or_insert(line.at_ms);
    }

    /// The whole trace; what has not ended by then ends there. Without an end the run was interrupted: the trace goes to its last line, and says so.
    pub fn finish(mut self, end_ms: Option<u64>) -> Value {
        let is_partial = end_ms.is_none();
        let end_ms = end_ms.unwrap_or(self.last_ms);
        self.show_curves(end_ms, true);
        let nodes: Vec<String> = self.nodes.keys().cloned().collect();
        for name in nodes {
            self.node_ends(&name, end_ms);
        }
        let commands: Vec<String> = self.commands.keys().cloned().collect();
        for name in commands {
            self.command_ends(&name, end_ms, "unfinished");
        }
        let mut trace = json!({"displayTimeUnit": "ms", "traceEvents": self.events});
        if is_partial {
            trace["otherData"] = json!({"partial": true});
        }
        trace
    }

    fn launched(&mut self, line: &Line<'_>) {
        let mut words = line.more.split(' ');
        let name = words.next().unwrap_or_default().to_owned();
        let price = words.nth(1).and_then(|price| price.parse().ok());
        let bar = Bar {
            row: self.node_rows.take(),
            began_ms: line.at_ms,
            name,
            detail: line.more.to_owned(),
            price: price.unwrap_or(Price::ZERO),
        };
        self.price = self.price.saturating_add(bar.price);
        self.nodes.insert(line.of.to_owned(), bar);
    }

    fn node_ends(&mut self, name: &str, at_ms: u64) {
        if let Some(bar) = self.nodes.remove(name) {
            self.price = self.price.saturating_sub(bar.price);
            self.node_rows.free.insert(bar.row);
            let details = json!({"node": name, "instance": bar.detail});
            self.add_bar(NODES, &bar, at_ms, details);
        }
    }

    fn command(&mut self, line: &Line<'_>) {
        let method = line.more.split(' ').next().unwrap_or_default();
        let bar = Bar {
            row: self.command_rows.take(),
            began_ms: line.at_ms,
            name: method.to_owned(),
            detail: line.more.to_owned(),
            price: Price::ZERO,
        };
        self.commands.insert(line.of.to_owned(), bar);
    }

    fn command_ends(&mut self, name: &str, at_ms: u64, phase: &str) {
        if let Some(bar) = self.commands.remove(name) {
            self.command_rows.free.insert(bar.row);
            let details = json!({"command": name, "what": bar.detail, "phase": phase});
            self.add_bar(COMMANDS, &bar, at_ms, details);
        }
    }

    fn add_bar(&mut self, process: u32, bar: &Bar, end_ms: u64, details: Value) {
        self.events.push(json!({
            "ph": "X",
            "name": bar.name,
            "cat": if process == NODES { "node" } else { "command" },
            "pid": process,
            "tid": bar.row,
            // Microseconds.
            "ts": bar.began_ms * 1_000,
            "dur": end_ms.saturating_sub(bar.began_ms) * 1_000,
            "args": details,
        }));
    }

    /// Emits changes once time has advanced.
    fn show_curves(&mut self, now_ms: u64, is_end: bool) {
        let Some(since_ms) = self.changed_ms.filter(|since_ms| *since_ms < now_ms || is_end) else {
            return;
        };
        let at_ms = match self.shown_ms.map(|shown_ms| shown_ms + STEP_MS) {
            // A point that follows too closely is moved to the next step.
            Some(next_ms) if since_ms < next_ms => next_ms,
            _ => since_ms,
        };
        if now_ms <= at_ms && !is_end && at_ms > since_ms {
            return;
        }
        let at_ms = at_ms.min(now_ms.max(since_ms));
        let point = |name: &str, value: Value| json!({"ph": "C", "name": name, "pid": CLUSTER, "tid": 0, "ts": at_ms * 1_000, "args": {name: value}});
        self.events.push(point("nodes", json!(self.nodes.len())));
        self.events.push(point("waiting pods", json!(self.waiting.len())));
        let dollars = self.price.0 as f64 / 1e9;
        self.events.push(point("$ an hour", json!(dollars)));
        self.shown_ms = Some(at_ms);
        self.changed_ms = None;
    }
}
