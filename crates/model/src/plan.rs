//! A plan: what a pure function answers and the shell makes true.
//!
//! Owns the shape only. What is in it is decided in `plan`; `controllers::act` carries it out and nobody else does.

use crate::action::{Action, Event};

/// Events, writes, and a report of its own for each question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan<Report = ()> {
    /// Events, recorded before anything is written, whether the writes succeed or not.
    pub events: Vec<Event>,
    /// Writes, in order; the first that fails ends the plan.
    pub actions: Vec<Action>,
    /// What holds once all writes have succeeded, or what comes next.
    pub report: Report,
}

impl<Report> Plan<Report> {
    /// A plan that writes nothing.
    pub fn of(report: Report) -> Self {
        Self {
            events: Vec::new(),
            actions: Vec::new(),
            report,
        }
    }
}

impl Plan {
    /// Writes without events.
    #[must_use]
    pub fn writing(actions: Vec<Action>) -> Self {
        Self {
            actions,
            ..Self::default()
        }
    }
}
