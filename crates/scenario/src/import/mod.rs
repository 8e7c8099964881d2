//! Recordings of others as timelines.
//!
//! Owns the limits within which a recording is read, the words for a broken one, and how a recording is bent to size. Each format has its own file; all
//! take bytes or readers and open nothing.

mod audit;
mod bend;
mod builder;
mod copies;
mod crons;
mod dumps;
mod elements;
pub mod inventory;
mod kubereplay;
mod lines;
mod lives;
mod names;
mod nodes;
pub mod objects;
mod packed;
mod prometheus;
pub mod record;
mod recording;
pub mod redact;
mod runs;
mod scheduled;
mod sktrace;
mod stream;
mod table;
mod templates;
mod versions;

use std::fmt;

pub use bend::bend;
pub(crate) use builder::{Builder, Key};
pub use names::hash_names;
pub use nodes::{Instance, RecordedNodes};
pub use recording::{Recorded, Recording};

/// Owners that a recording may have; more is a recording that is something else.
pub const MOST_OWNERS: usize = 500_000;

/// Where in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// As a whole.
    Whole,
    /// A line, counted from 1.
    Line(u64),
    /// An offset in bytes.
    Byte(u64),
}

/// Why a recording cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError {
    /// Where.
    pub place: Place,
    /// What is wrong there, and what was expected.
    pub problem: String,
}

impl ImportError {
    /// An error at a place.
    pub fn new(place: Place, problem: impl Into<String>) -> Self {
        Self {
            place,
            problem: problem.into(),
        }
    }

    /// An error that concerns no single place.
    pub fn whole(problem: impl Into<String>) -> Self {
        Self::new(Place::Whole, problem)
    }

    /// The same error, with its place if it has none.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        if self.place == Place::Whole {
            self.place = place;
        }
        self
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Whole => f.write_str(&self.problem),
            Place::Line(line) => write!(f, "line {line}: {}", self.problem),
            Place::Byte(offset) => write!(f, "byte {offset}: {}", self.problem),
        }
    }
}

impl std::error::Error for ImportError {}
