//! Nodes from their launch to their termination, with and without faults. Each test defines the fault, what must be reported about it, and that nothing else
//! is hurt.

mod blocked_ends;
mod ends;
mod expiry;
mod in_flight;
mod interruptions;
mod launches;
mod leadership;
mod leaks;
mod readiness;
mod repair;
mod shadow;
mod static_pools;
mod unreadable;
mod zones;
