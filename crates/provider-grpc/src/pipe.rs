//! A provider through the whole protocol within one process: what tests and simulations use, on virtual time.
//!
//! Owns the two ends, with a pipe or a genuine socket between them. Every call is encoded, framed, sent and decoded as it would be between processes.

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use spokeshave_ports::{CloudProvider, SharedClock};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::client::{ClientOptions, GrpcProvider};
use crate::errors::ConnectError;
use crate::held_time::HeldTime;
use crate::link::Task;
use crate::server::{Server, ServerOptions};
use crate::serving::{TlsAcceptor, bind_unix};
use crate::transport::{ByteStream, Connector, DuplexConnector, TlsConnector, UnixConnector};

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
    GrpcProvider::connect(client_options(Arc::new(connector)), clock).await
}

/// The provider as a client sees it over a unix socket that is made at `path`, as [`serve_unix`](crate::serve_unix) makes it. It may be on paused time, which
/// stands still while a byte is on its way. The server lives as long as the client.
///
/// # Errors
/// The socket cannot be made, or the provider's identity is incomplete.
pub async fn over_unix_socket(
    provider: Arc<dyn CloudProvider>,
    clock: SharedClock,
    options: ServerOptions,
    path: &Path,
) -> Result<GrpcProvider, ConnectError> {
    let connector = UnixConnector(path.to_owned());
    let listener = bind_unix(path).map_err(|error| ConnectError::Unreachable {
        address: connector.address(),
        reason: error.to_string(),
    })?;
    let server = Server::new(provider, clock.clone(), options);
    let time = HeldTime::new();
    let held = time.clone();
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (server, stream) = (server.clone(), held.stream(stream));
            tokio::spawn(async move { server.serve(stream).await });
        }
    });
    connect(&time, Arc::new(connector), serving, clock).await
}

/// The same over TCP, where both ends show certificates.
///
/// # Errors
/// The provider's identity is incomplete, or an end does not accept the other's certificate.
pub async fn over_tcp(
    provider: Arc<dyn CloudProvider>,
    clock: SharedClock,
    options: ServerOptions,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
) -> Result<GrpcProvider, ConnectError> {
    let server = Server::new(provider, clock.clone(), options);
    let time = HeldTime::new();
    let held = time.clone();
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                let (server, stream) = (server.clone(), held.stream(stream));
                tokio::spawn(async move { server.serve(stream).await });
            }
        }
    });
    connect(&time, Arc::new(connector), serving, clock).await
}

/// On time that stands still while a byte is on its way.
async fn connect(
    time: &HeldTime,
    connector: Arc<dyn Connector>,
    serving: JoinHandle<()>,
    clock: SharedClock,
) -> Result<GrpcProvider, ConnectError> {
    let connector = Served {
        connector: time.connector(connector),
        _serving: Task(serving),
    };
    GrpcProvider::connect(client_options(Arc::new(connector)), clock).await
}

/// The way to a server that ends with it.
#[derive(Debug)]
struct Served {
    connector: Arc<dyn Connector>,
    _serving: Task,
}

impl Connector for Served {
    fn connect(&self) -> BoxFuture<'_, std::io::Result<Box<dyn ByteStream>>> {
        self.connector.connect()
    }

    fn pings(&self) -> bool {
        self.connector.pings()
    }

    fn address(&self) -> String {
        self.connector.address()
    }

    fn file_mode(&self) -> Option<u32> {
        self.connector.file_mode()
    }
}

fn client_options(connector: Arc<dyn Connector>) -> ClientOptions {
    ClientOptions {
        connector,
        cluster_name: "pipe".to_owned(),
        cluster_uid: "pipe".to_owned(),
        kubernetes_version: String::new(),
        node_classes: None,
        nodes: None,
    }
}
