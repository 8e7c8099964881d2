//! DisruptionPolicies: what they let voluntary disruption do now, and why not.
//!
//! Everything follows from objects that are in the cluster (creation times, the ledger), so that a restart changes nothing. Owns no clock and
//! writes nothing. What is forceful (interruption, expiry, repair) never asks here.

mod annotations;
mod blocked;
mod breakers;
mod budget;
mod convergence;
pub mod expiry;
pub mod expressions;
pub mod forecast;
mod health;
mod hold;
mod keeping;
mod limits;
mod lint;
mod memo;
mod order;
mod rollout;
mod rollout_times;
mod rules;
mod status;
mod wave;
pub mod windows;
pub mod workloads;

pub use annotations::flaw;
pub use convergence::FIELD as OSCILLATION;
pub(crate) use convergence::{Payback, claimed, is_judged, paybacks};
pub use keeping::{Keep, keep};
pub use limits::{Limits, Rule};
pub use lint::{PolicyFinding, lint};
pub use memo::Memo;
pub(crate) use order::Orders;
pub use rules::{frozen, limits, limits_with};
pub use status::{Fault, faults, status, status_with};

#[cfg(test)]
mod tests;
