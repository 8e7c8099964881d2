//! The controllers: watch events fold into stores, pure functions decide, `execute` writes.
//!
//! Owns when decisions are made and that they are carried out; what is decided lives in `spokeshave-plan`. Nothing here keeps a fact that a
//! restart would miss: what is in memory only (nominations, the command in preparation) is rebuilt or not needed.

mod blocked;
mod budget_faults;
mod capacity_buffers;
mod claims;
mod cloud;
mod conditions;
mod creation;
mod decision;
mod definitions;
mod disruption;
mod disruption_commands;
mod disruption_policies;
mod disruption_verdicts;
mod distress;
mod drift;
mod eviction;
mod execute;
mod frozen;
mod garbage;
mod gauges;
mod health_objects;
mod identity;
mod instance_end;
mod interruption;
mod metrics;
mod node_classes;
mod node_pools;
mod node_repair;
mod node_termination;
mod observability;
mod observer;
mod operator;
mod options;
mod overlays;
mod owners;
mod pod_times;
mod provisioner;
mod registration_hooks;
mod repeats;
mod reserved;
pub mod shadow;
mod shared;
mod spread;
mod static_pools;
mod store_list;
mod stores;
mod vain_launches;
mod virtual_pods;
mod zones;

pub use decision::{Decision, DecisionKind, DecisionLog};
pub use observer::{Observed, Observer, Seen};
pub use operator::{Operator, OperatorError};
pub use options::{EvictionRate, FeatureGates, LeaderElectionOptions, Options};
pub use stores::Stores;
