//! Whether two engines say the same: commands in order, cost, evictions.
//!
//! Owns what counts as the same. It runs nothing.

use spokeshave_simulate::{Line, Run};

/// One line of an event log, kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptLine {
    /// Milliseconds since the start.
    pub at_ms: u64,
    /// What.
    pub what: String,
    /// To which object.
    pub of: String,
    /// The rest.
    pub more: String,
}

impl From<Line<'_>> for KeptLine {
    fn from(line: Line<'_>) -> Self {
        KeptLine {
            at_ms: line.at_ms,
            what: line.what.to_owned(),
            of: line.of.to_owned(),
            more: line.more.to_owned(),
        }
    }
}

impl KeptLine {
    /// The line as it was.
    pub fn as_line(&self) -> Line<'_> {
        Line {
            at_ms: self.at_ms,
            what: &self.what,
            of: &self.of,
            more: &self.more,
        }
    }
}

/// A run with its event log.
#[derive(Debug, Clone)]
pub struct Told {
    /// The figures.
    pub run: Run,
    /// The log.
    pub lines: Vec<KeptLine>,
}

impl Told {
    /// The commands that were written down, in order: method, nodes and replacements. Names of objects are the same in both engines; when a command was
    /// written, and what it was thought to save to the last digit, is not part of it.
    pub fn commands(&self) -> Vec<String> {
        let written = self.lines.iter().filter(|line| line.what == "command");
        let text = |line: &KeptLine| {
            let end = line.more.find(" savings=").unwrap_or(line.more.len());
            line.more[..end].to_owned()
        };
        written.map(text).collect()
    }

    /// What all instances cost, in micro-dollars.
    pub fn cost(&self) -> u64 {
        let measured = &self.run.measured;
        measured.cost_on_demand_micros + measured.cost_spot_micros + measured.cost_reserved_micros
    }

    /// Pods evicted, for whatever reason.
    pub fn evictions(&self) -> u64 {
        let measured = &self.run.measured;
        measured.evictions_voluntary + measured.evictions_involuntary
    }
}

/// How many commands of two lists agree from the beginning; equal lists agree to the end.
pub fn common(fast: &[String], full: &[String]) -> usize {
    let pairs = fast.iter().zip(full);
    pairs.take_while(|(fast, full)| fast == full).count()
}
