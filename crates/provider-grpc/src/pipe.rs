//! A provider through the whole protocol within one process: what tests and simulations use, on virtual time.
//!
//! Owns the two ends. Every call is encoded, framed, sent and decoded as it would be between processes.

use std::sync::Arc;

use spokeshave_ports::{CloudProvider, SharedClock};

use crate::client::{ClientOptions, GrpcProvider};
use crate::errors::ConnectError;
use crate::server::{Server, ServerOptions};
use crate::transport::DuplexConnector;

/// The provider as a client sees it. The server lives as long as the client.
///
/// # Errors
/// The provider's identity is incomplete.
pub async fn over_pipe(
    provider: Arc<dyn CloudProvider>,
    clock: SharedClock,
    options: ServerOptions,
) -> Result<GrpcProvider, ConnectError> {
    let (connector, mut connections) = DuplexConnector::new();
    let server = Server::new(provider, clock.clone(), options);
    tokio::spawn(async move {
        while let Some(stream) = connections.recv().await {
            let server = server.clone();
            tokio::spawn(async move { server.serve(stream).await });
        }
    });
    let options = ClientOptions {
        connector: Arc::new(connector),
        cluster_name: "pipe".to_owned(),
        cluster_uid: "pipe".to_owned(),
        kubernetes_version: String::new(),
        node_classes: None,
        nodes: None,
    };
    GrpcProvider::connect(options, clock).await
}
