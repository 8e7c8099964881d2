//! Nodes from their launch to their end, in good company and in bad. Each test says what goes wrong, what must be said about it, and that nobody else
//! is hurt.

mod blocked_ends;
mod ends;
mod expiry;
mod interruptions;
mod launches;
mod leadership;
mod leaks;
mod readiness;
mod repair;
mod shadow;
mod static_pools;
mod zones;
