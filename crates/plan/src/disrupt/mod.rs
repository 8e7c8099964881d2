//! Voluntary disruption: which nodes may go, in which order, how many, and the Command that says so (D §1–§5).
//!
//! Each method is a file. All work on one Snapshot and create nothing; a Command carries names, because it outlives its Snapshot
//! until its validation is due.

pub mod budgets;
pub mod candidates;
pub mod command;
pub mod cost;
pub mod emptiness;
pub mod steps;

pub use budgets::{BudgetMapping, PoolBudget};
pub use candidates::{Blocker, Candidate, DisruptionClass, candidate, candidates};
pub use command::{Command, CommandNode, Decision, Method};
pub use emptiness::{EmptinessOutcome, Keep, Rejection, Validation, Verdict, emptiness, validate_emptiness};
