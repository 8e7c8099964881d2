//! Voluntary disruption: which nodes may go, in which order, how many, and the Command that says so (D §1–§5).
//!
//! Each method is a file. All work on one Snapshot and create nothing; a Command carries names, because it outlives its Snapshot
//! until its validation is due. `disrupt` is one pass, `validate` the second look, `judge` what is said about one node.

pub mod advance;
mod alike;
mod balanced;
mod balanced_pools;
mod bare;
pub mod budgets;
pub mod candidates;
mod cautious;
mod cheaper_pools;
pub mod command;
pub mod condition;
mod consolidate;
pub mod cost;
mod drift;
mod emptiness;
mod evaluate;
mod events;
mod ground;
mod headroom;
pub mod history;
mod hurdle;
mod judge;
mod kept;
mod last_look;
mod limits_left;
mod obstacles;
mod outcome;
mod pass;
mod patience;
pub mod record;
mod register;
mod render;
mod replacements;
mod revocable;
mod rounds;
mod sets;
mod signature;
mod simulate;
pub mod steps;
mod threads;
mod validate;
mod verdict;
pub mod words;

pub use balanced_pools::BalancedPools;
pub use budgets::{BudgetMapping, PoolBudget};
pub use candidates::{Candidate, DisruptionClass, candidate, candidates};
pub use command::{Command, CommandNode, Decision, Destination, Method, Move, Replacement};
pub use consolidate::{Stage, decide_each_alone};
pub use ground::consolidates;
pub use hurdle::Hurdle;
pub use kept::Kept;
pub use last_look::{LastLook, last_look, last_look_in};
pub use limits_left::beyond_limits;
pub use outcome::{DisruptOptions, DisruptStatistics, Frontier, MethodReport, Outcome, PoolScore};
pub use pass::{disrupt, disrupt_keeping, disrupt_watched, judge};
pub use replacements::kept_until;
pub use revocable::revocable;
pub use validate::{Rejection, Validation, is_calm, validate};
pub use verdict::{Blocker, BlockerKind, Counterfactual, Subject, Verdict};
pub use verdict::{money_text, share_text};
