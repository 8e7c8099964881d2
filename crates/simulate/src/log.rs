//! The event log of a run: what was decided and what happened, one line each, and its digest.
//!
//! Owns the order and the bytes. It keeps a running digest only; the lines are passed to observers.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::run::{Curve, Measured};

/// One thing that was decided or that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line<'a> {
    /// Milliseconds since the scenario's start.
    pub at_ms: u64,
    /// What: `nodeclaim`, `launched`, `refused`, `joined`, `ready`, `ended`, `gone`, `expired`, `interrupted`; `command`, `phase`, `rejected`, `rolled back`;
    /// `born`, `bound`, `started`, `evicted`, `stopping`, `left`, `killed`.
    pub what: &'a str,
    /// To which object, by name; pods by namespace and name.
    pub of: &'a str,
    /// The rest, by kind of line: the instance and its price, the node, the reason, the phase.
    pub more: &'a str,
}

/// Takes the lines of a run, in order.
pub type Sink<'a> = &'a mut dyn FnMut(Line<'_>);

/// The log.
#[derive(Default)]
pub(crate) struct Log<'a> {
    hasher: Sha256,
    sink: Option<Sink<'a>>,
}

impl<'a> Log<'a> {
    pub(crate) fn new(sink: Option<Sink<'a>>) -> Self {
        Log {
            hasher: Sha256::new(),
            sink,
        }
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, at_ms: u64, what: &str, of: &str, more: &str) {
        self.hasher.update(at_ms.to_le_bytes());
        for part in [what, of, more] {
            self.hasher.update(part.as_bytes());
            self.hasher.update([0]);
        }
        if let Some(sink) = &mut self.sink {
            sink(Line {
                at_ms,
                what,
                of,
                more,
            });
        }
    }

    /// SHA-256 over the lines and the figures, in hexadecimal.
    pub(crate) fn digest(mut self, measured: &Measured, curve: &Curve) -> String {
        // Serialising integers and lists of integers cannot fail.
        let figures = serde_json::to_vec(&(measured, curve)).unwrap_or_default();
        self.hasher.update(figures);
        let digest = self.hasher.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
