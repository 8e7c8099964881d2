//! The provider on an Azure in one process.

mod aks;
mod aks_failures;
mod aks_modes;
mod bad_input;
mod calls;
mod cluster;
mod conformance;
mod document;
mod example_lists;
mod joining;
mod launches;
mod letter_case;
mod mid_launch;
mod openapi;
mod prices;
mod tags;
mod unread;
mod upkeep;
mod wire;
mod world;
