//! Azure as a cloud provider: launches of network interface and machine, machines, lists, what is left over, what classes' status says.
//!
//! Owns the order in which Azure is asked, and when again. It decides nothing that a function of values can decide: those are `provider-azure`'s. It
//! sends nothing itself: whoever makes a provider says who does ([`Outside`]).

mod aks;
mod aks_launch;
mod calls;
mod client;
mod cluster;
mod described;
mod galleries;
mod launch;
mod left_over;
mod listed;
mod machines;
mod market;
mod objects;
mod options;
mod ports;
mod provider;
mod retag;
mod throttling;
mod tokens;
mod upkeep;

pub use options::{AzureOptions, Endpoints};
pub use ports::{Assertion, Http, Outside, Request, Response};
pub use provider::AzureProvider;
