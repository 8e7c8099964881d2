//! The event log of a run: what was decided and what happened, one line each, and its digest.
//!
//! Owns the order and the bytes. It keeps a running digest only; the lines are passed to observers.

use serde::Serialize;
use sha2::{Digest, Sha256};
use spokeshave_api::disruption::Disruption;

use crate::run::{Curve, Measured};

/// One thing that was decided or that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line<'a> {
    /// Milliseconds since the scenario's start.
    pub at_ms: u64,
    /// What: `standing`, `fixed`, `nodeclaim`, `launched`, `refused`, `joined`, `ready`, `ended`, `gone`, `expired`, `interrupted`; `command`, `phase`, `rejected`, `rolled back`;
    /// `born`, `placed`, `bound`, `started`, `evicted`, `stopping`, `left`, `killed`.
    pub what: &'a str,
    /// To which object, by name; pods by namespace and name.
    pub of: &'a str,
    /// The rest, by kind of line: the instance and its price, the node, the reason, the phase.
    pub more: &'a str,
}

/// Takes the lines of a run, in order.
pub type Sink<'a> = &'a mut dyn FnMut(Line<'_>);

/// The digest of a log.
#[derive(Default)]
pub struct LogDigest(Sha256);

impl LogDigest {
    /// Takes a line in.
    pub fn add(&mut self, line: &Line<'_>) {
        self.0.update(line.at_ms.to_le_bytes());
        for part in [line.what, line.of, line.more] {
            self.0.update(part.as_bytes());
            self.0.update([0]);
        }
    }

    /// SHA-256 over the lines and the figures, in hexadecimal.
    pub fn finish(mut self, measured: &Measured, curve: &Curve) -> String {
        // Serialising integers and lists of integers cannot fail.
        let figures = serde_json::to_vec(&(measured, curve)).unwrap_or_default();
        self.0.update(figures);
        let digest = self.0.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The log.
#[derive(Default)]
pub(crate) struct Log<'a> {
    digest: LogDigest,
    sink: Option<Sink<'a>>,
}

impl<'a> Log<'a> {
    pub(crate) fn new(sink: Option<Sink<'a>>) -> Self {
        Log {
            digest: LogDigest::default(),
            sink,
        }
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, at_ms: u64, what: &str, of: &str, more: &str) {
        let line = Line {
            at_ms,
            what,
            of,
            more,
        };
        self.digest.add(&line);
        if let Some(sink) = &mut self.sink {
            sink(line);
        }
    }

    /// The digest of lines and figures.
    pub(crate) fn digest(self, measured: &Measured, curve: &Curve) -> String {
        self.digest.finish(measured, curve)
    }
}

/// A command in one line: method, nodes, replacements and what it saves per hour.
pub fn command_text(command: &Disruption) -> String {
    let spec = &command.spec;
    let nodes: Vec<&str> = spec.nodes.iter().map(|node| node.name.as_str()).collect();
    let new: Vec<&str> = spec
        .replacements
        .iter()
        .map(|one| one.node_claim.as_str())
        .collect();
    format!(
        "{:?} nodes={} replacements={} savings={}",
        spec.method,
        nodes.join(","),
        new.join(","),
        spec.savings
    )
}
