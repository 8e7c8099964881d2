//! The second look at a command, on a later Snapshot, before anything is touched (D §3.4).

use super::command::{Command, Method};
use super::emptiness::validate_emptiness;
use crate::policy::Policy;
use jiff::Timestamp;
use spokeshave_model::Event;
use spokeshave_model::snapshot::Snapshot;

/// Why a command, or a node of it, is refused at validation (D-092).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejection {
    /// It is no candidate any more, or not empty any more.
    Churn,
    /// It was nominated meanwhile, or the budget is used up.
    Budget,
    /// Its pods would go elsewhere now, or it would not save money any more.
    Scheduling,
}

impl Rejection {
    /// As in metrics and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Rejection::Churn => "churn",
            Rejection::Budget => "budget",
            Rejection::Scheduling => "scheduling",
        }
    }
}

/// The second look at a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validation {
    /// What is left of the command, with ids of the later Snapshot; `None` rejects it.
    pub command: Option<Command>,
    /// Nodes that fell out, by name, with the reason. Of an emptiness command the others go on; of any other the whole command falls.
    pub dropped: Vec<(String, Rejection)>,
    /// Why the whole command is rejected, if it is.
    pub rejection: Option<Rejection>,
    /// The same in words; empty when it is not rejected.
    pub message: String,
    /// Events to record: `ConsolidationRejected` (D-093), on Node and NodeClaim of every node of a rejected command.
    pub events: Vec<Event>,
}

/// D-087…D-091: evaluates a command again on a later Snapshot. Nodes of the command count as candidates although they may be marked as
/// being in a command.
pub fn validate(command: &Command, snapshot: &Snapshot, policy: &Policy, now: Timestamp) -> Validation {
    let _ = policy;
    match command.method {
        Method::Emptiness => validate_emptiness(command, snapshot, now),
        _ => Validation {
            command: Some(command.clone()),
            dropped: Vec::new(),
            rejection: None,
            message: String::new(),
            events: Vec::new(),
        },
    }
}
