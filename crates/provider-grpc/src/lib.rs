//! Providers that are processes of their own: the protocol `spokeshave.provider.v1alpha1`, its client, a server for any provider, and the kit that
//! checks one.
//!
//! Owns the messages (`proto/provider.proto`), what they mean as values of the port, the connection and what is kept while it is broken. It knows no cloud
//! and decides nothing about nodes.

mod agenda;
mod catalog;
mod class_hash;
mod classes;
mod client;
mod conditions;
mod convert;
mod errors;
mod events;
mod feed;
mod gate;
mod held_time;
mod identity;
mod instance_list;
mod kinds;
mod launch;
mod link;
mod nodes;
mod opening;
mod papers;
mod pipe;

pub mod sanity;
mod server;
mod server_catalog;
mod serving;
mod transport;
pub mod wire;

pub use classes::{KubeNodeClasses, NodeClasses};
pub use client::{ClientOptions, GrpcProvider};
pub use errors::ConnectError;
pub use nodes::KubeNodes;
pub use papers::{FileAcceptor, FileConnector, PaperFiles};
pub use pipe::{Way, over_pipe, over_tcp, piped};
pub use server::{Server, ServerOptions};
pub use serving::{TlsAcceptor, serve_connection, serve_tls, serve_unix};
pub use transport::{ByteStream, Connector, DuplexConnector, TlsConnector, UnixConnector};

/// Versions of the protocol that this program speaks, newest first.
pub const VERSIONS: [&str; 1] = ["v1alpha1"];

/// No message is longer (G-006); a longer one is refused by name.
pub const LONGEST_MESSAGE_BYTES: usize = 1 << 20;
