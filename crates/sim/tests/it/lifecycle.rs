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
mod lost_ids;
mod namesakes;
mod orphan_nodes;
mod other_clouds;
mod outages;
mod prices_at_launch;
mod readiness;
mod repair;
mod returning_nodes;
mod shadow;
mod static_pools;
mod taken_out;
mod unreadable;
mod unwritten;
mod zones;
