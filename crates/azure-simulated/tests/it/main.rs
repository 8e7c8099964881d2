//! The provider on an Azure in one process.

mod calls;
mod cluster;
mod conformance;
mod joining;
mod launches;
mod upkeep;
mod wire;
mod world;
