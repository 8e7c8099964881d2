//! A provider through the whole protocol within one process: what tests and simulations use, on virtual time.
//!
//! Owns the two ends, with a pipe or a genuine socket between them. Every call is encoded, framed, sent and decoded as it would be between processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use spokeshave_ports::{CloudProvider, SharedClock};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::client::{ClientOptions, GrpcProvider};
use crate::errors::ConnectError;
use crate::held_time::HeldTime;
use crate::link::Task;
use crate::server::{Server, ServerOptions};
use crate::serving::{TlsAcceptor, bind_unix, serve_within_process};
use crate::transport::{ByteStream, Connector, DuplexConnector, TlsConnector, UnixConnector};
use crate::wire::provider_server::Provider;

/// How a provider is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// It is a part of the program.
    #[default]
    InProcess,
    /// Through the whole protocol, over a pipe.
    Pipe,
    /// The same over a genuine unix socket. The kernel says when its bytes are there, so that two runs may differ.
    UnixSocket,
}

impl Way {
    /// The provider as its user sees it. It may be on paused time, which stands still while a byte is on its way. A server lives as long as its client.
    ///
    /// # Errors
    /// The socket cannot be made, or the provider's identity is incomplete.
    pub async fn to(
        self,
        provider: Arc<dyn CloudProvider>,
        clock: SharedClock,
        options: ServerOptions,
    ) -> Result<Arc<dyn CloudProvider>, ConnectError> {
        let remote = match self {
            Self::InProcess => return Ok(provider),
            Self::Pipe => over_pipe(provider, clock, options).await?,
            Self::UnixSocket => over_unix_socket(provider, clock, options).await?,
        };
        Ok(Arc::new(remote))
    }
}

/// A way to a provider that serves every connection of a pipe, for as long as the way is there.
pub fn piped<P: Provider + Clone>(provider: P) -> DuplexConnector {
    let (connector, mut connections) = DuplexConnector::new();
    tokio::spawn(async move {
        while let Some(stream) = connections.recv().await {
            tokio::spawn(serve_within_process(provider.clone(), stream));
        }
    });
    connector
}

/// The provider as a client sees it. The server lives as long as the client.
///
/// # Errors
/// The provider's identity is incomplete.
pub async fn over_pipe(
    provider: Arc<dyn CloudProvider>,
    clock: SharedClock,
    options: ServerOptions,
) -> Result<GrpcProvider, ConnectError> {
    let connector = piped(Server::new(provider, clock.clone(), options));
    GrpcProvider::connect(client_options(Arc::new(connector)), clock).await
}

/// The provider as a client sees it over a unix socket, as [`serve_unix`](crate::serve_unix) makes it.
async fn over_unix_socket(
    provider: Arc<dyn CloudProvider>,
    clock: SharedClock,
    options: ServerOptions,
) -> Result<GrpcProvider, ConnectError> {
    let socket = SocketFile::new();
    let connector = UnixConnector(socket.0.clone());
    let listener = bind_unix(&socket.0).map_err(|error| ConnectError::Unreachable {
        address: connector.address(),
        reason: error.to_string(),
    })?;
    let server = Server::new(provider, clock.clone(), options);
    let time = HeldTime::new();
    let held = time.clone();
    let serving = tokio::spawn(async move {
        // It can be connected to anew for as long as it is served.
        let _socket = socket;
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_within_process(server.clone(), held.stream(stream)));
        }
    });
    connect(&time, Arc::new(connector), serving, clock).await
}

/// A name for a socket that no other has, removed with it.
struct SocketFile(PathBuf);

impl SocketFile {
    fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("spokeshave-{}-{number}.sock", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
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
                tokio::spawn(serve_within_process(server.clone(), held.stream(stream)));
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
