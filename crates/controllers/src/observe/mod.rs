//! What people and machines are told: metrics, events of conditions, decisions, and what the page sees.
//!
//! Nothing here decides, and no decision reads it.

pub(crate) mod budget_faults;
pub(crate) mod conditions;
pub(crate) mod decision;
pub(crate) mod disruption_gauges;
pub(crate) mod ended_pools;
pub(crate) mod gauges;
pub(crate) mod journal;
pub(crate) mod landings;
pub(crate) mod metrics;
pub(crate) mod notices;
pub(crate) mod observability;
pub(crate) mod observer;
pub(crate) mod pod_times;
pub(crate) mod repeats;
