//! The shipped provider on the simulated EC2.

mod classes;
mod conformance;
mod launches;
mod messages;
mod nodes;
mod world;
