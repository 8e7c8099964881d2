//! The provider on an Azure in one process.

mod calls;
mod cluster;
mod conformance;
mod launches;
mod upkeep;
mod wire;
mod world;
