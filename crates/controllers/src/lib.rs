//! The controllers: watch events fold into stores, pure functions decide, `act` writes.
//!
//! Owns when decisions are made and that they are carried out; what is decided lives in `spokeshave-plan`. Nothing here keeps a fact that a
//! restart would miss: what is in memory only (nominations, the command in preparation) is rebuilt or not needed.

mod act;
mod audited;
mod cloud;
mod controller;
mod definitions;
mod observe;
mod operator;
mod options;
mod reconcile;
pub mod shadow;
mod state;

pub use observe::decision::{Decision, DecisionKind, DecisionLog};
pub use observe::observer::{Observed, Observer, Seen};
pub use operator::{Operator, OperatorError};
pub use options::{EvictionRate, FeatureGates, LeaderElectionOptions, Options};
pub use state::stores::Stores;
