//! Clouds that keep their own books: what the checkers are told of their machines.
//!
//! Owns the terms. What follows from a machine is for the checkers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// A machine of a cloud that keeps its own books.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// As in the last part of its provider ID, in lower case.
    pub id: String,
    /// When it was launched, if the cloud says so.
    pub launched_at: Option<Timestamp>,
    /// Whether its termination was requested.
    pub is_ending: bool,
    /// Whether the cloud has said that it takes the machine back.
    pub is_taken_back: bool,
    /// When it does so, if it has said that as well.
    pub ends_at: Option<Timestamp>,
    /// Whether the cloud has said anything else for which operators end it: maintenance, checks that fail, a launch that has failed after all.
    pub is_warned: bool,
    /// How long such words may be on their way.
    pub word_takes: Duration,
}

/// Says which machines there are, whenever it is asked.
pub type Census = Arc<dyn Fn() -> Vec<Machine> + Send + Sync>;

/// Where a cloud keeps its machines.
pub(super) struct Books(pub(super) Census);

impl fmt::Debug for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Books")
    }
}
