//! An Azure in one process: login, resource manager, Resource Graph and retail prices, on the caller's clock.
//!
//! Owns what such an Azure does with a request. It refuses what ARM refuses (no token, no version of the API, a size, zone or network interface that
//! does not exist, quota), answers as ARM does (pages, operations that go on after the reply, a graph that lags behind), and fails as it is told to.
//! Machines join a cluster as Nodes where they are let ([`Azure::join`]); kubelets are somebody else's.

mod aks;
mod azure;
mod graph;
mod images;
mod lifeline;
mod machine_facts;
mod machines;
mod nodes;
mod options;
mod prices;
mod replies;
mod server;
mod settings;
mod sizes;
mod state;

pub use azure::Azure;
pub use lifeline::Lifeline;
pub use machine_facts::TEMPLATE;
pub use nodes::MESSAGE;
pub use options::{Options, Refusal};
pub use server::serve;
pub use settings::SETTINGS;
