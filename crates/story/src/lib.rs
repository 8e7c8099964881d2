//! Answers to what users ask about a cluster: why a node is kept, what it costs, what is stopped, what is wrong for good, what a take-over would do.
//!
//! Owns values with documented JSON that commands and the page print. It decides nothing: decisions come from `plan`, and no controller needs this
//! crate.

pub mod adopt;
pub mod doctor;
mod durations;
pub mod expired;
pub mod explain;
mod limits;
pub mod prices;
pub mod replicas;
pub mod settings;
pub mod stops;
pub mod verdict;
