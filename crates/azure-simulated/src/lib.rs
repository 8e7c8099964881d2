//! An Azure in one process: login, resource manager, Resource Graph and retail prices, on the caller's clock.
//!
//! Owns what such an Azure does with a request. It refuses what ARM refuses (no token, no version of the API, a size, zone or network interface that
//! does not exist, quota), answers as ARM does (pages, operations that go on after the reply, a graph that lags behind), and fails as it is told to.
//! It starts no nodes.

mod azure;
mod machines;
mod options;
mod replies;
mod server;
mod state;

pub use azure::Azure;
pub use options::{Options, Refusal};
pub use server::serve;
