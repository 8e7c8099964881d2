//! How bytes reach a provider: a unix socket, TCP with both certificates checked, or a pipe within one process.
//!
//! Owns connecting and the HTTP/2 session on a connection. It knows no message.

use std::fmt::Debug;
use std::future::Future;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use spokeshave_ports::causes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tonic::body::Body;

/// Pause between two pings of the other side, and the time it has to answer one.
pub(crate) const PING: Duration = Duration::from_secs(10);

/// A connection.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Where a provider is reached.
pub trait Connector: Debug + Send + Sync {
    /// A new connection.
    fn connect(&self) -> BoxFuture<'_, std::io::Result<Box<dyn ByteStream>>>;

    /// Whether the other side is pinged. A pipe within one process cannot fall silent, and virtual time passes at once.
    fn pings(&self) -> bool {
        true
    }

    /// The address, for messages.
    fn address(&self) -> String;

    /// The mode of the file that it is, if it is one.
    fn file_mode(&self) -> Option<u32> {
        None
    }
}

/// A unix socket (G-003).
#[derive(Clone, Debug)]
pub struct UnixConnector(pub PathBuf);

impl Connector for UnixConnector {
    fn connect(&self) -> BoxFuture<'_, std::io::Result<Box<dyn ByteStream>>> {
        Box::pin(async move {
            let stream = UnixStream::connect(&self.0).await?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }

    fn address(&self) -> String {
        format!("unix:{}", self.0.display())
    }

    fn file_mode(&self) -> Option<u32> {
        let file = std::fs::metadata(&self.0).ok()?;
        Some(file.permissions().mode() & 0o777)
    }
}

/// TCP on which both sides show a certificate of one authority (G-003). There is no way to do without.
#[derive(Clone)]
pub struct TlsConnector {
    address: String,
    name: ServerName<'static>,
    connector: tokio_rustls::TlsConnector,
}

impl Debug for TlsConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsConnector")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl TlsConnector {
    /// A connector to `host:port`, with PEM texts: the CA of the provider's certificate, our certificate, and its key.
    ///
    /// # Errors
    /// What cannot be read of them.
    pub fn new(address: &str, authority: &[u8], certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| format!("provider address {address:?}: {error}; expected host:port"))?;
        let roots = roots("the authority of the provider", authority)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("the key for the provider: {error}"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                certificates("the certificate for the provider", certificate)?,
                key,
            )
            .map_err(|error| format!("certificate and key for the provider: {error}"))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self {
            address: address.to_owned(),
            name,
            connector: Arc::new(config).into(),
        })
    }
}

pub(crate) fn roots(what: &str, pem: &[u8]) -> Result<rustls::RootCertStore, String> {
    let mut roots = rustls::RootCertStore::empty();
    for root in certificates(what, pem)? {
        roots.add(root).map_err(|error| format!("{what}: {error}"))?;
    }
    Ok(roots)
}

pub(crate) fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| format!("{what}: {error}"))?;
    if read.is_empty() {
        return Err(format!("{what}: no certificate in PEM form"));
    }
    Ok(read)
}

impl Connector for TlsConnector {
    fn connect(&self) -> BoxFuture<'_, std::io::Result<Box<dyn ByteStream>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let stream = self.connector.connect(self.name.clone(), stream).await?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }

    fn address(&self) -> String {
        format!("tcp:{}", self.address)
    }
}

/// A pipe to a server in the same process: the whole protocol, on virtual time if need be.
#[derive(Clone, Debug)]
pub struct DuplexConnector(mpsc::UnboundedSender<tokio::io::DuplexStream>);

impl DuplexConnector {
    /// A connector, and where its connections arrive.
    #[must_use]
    pub fn new() -> (Self, mpsc::UnboundedReceiver<tokio::io::DuplexStream>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }
}

impl Connector for DuplexConnector {
    fn connect(&self) -> BoxFuture<'_, std::io::Result<Box<dyn ByteStream>>> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let refused = || std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "nobody serves the pipe");
        let sent = self.0.send(theirs).map_err(|_| refused());
        Box::pin(std::future::ready(
            sent.map(|()| Box::new(ours) as Box<dyn ByteStream>),
        ))
    }

    fn pings(&self) -> bool {
        false
    }

    fn address(&self) -> String {
        "a pipe".to_owned()
    }
}

/// An HTTP/2 session, as the generated client wants it.
#[derive(Clone)]
pub(crate) struct Session {
    sender: http2::SendRequest<Body>,
    answered: Arc<AtomicU64>,
}

impl Session {
    /// How many calls were answered so far with more than an error: it counts on.
    pub(crate) fn answered(&self) -> Arc<AtomicU64> {
        self.answered.clone()
    }

    /// The same session, for calls that do not count.
    pub(crate) fn uncounted(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            answered: Arc::default(),
        }
    }
}

impl Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

/// Completes when the session has ended, with the reason.
pub(crate) type Ended = BoxFuture<'static, String>;

/// Opens a session on a new connection.
pub(crate) async fn open(connector: &dyn Connector) -> Result<(Session, Ended), String> {
    let stream = connector.connect().await.map_err(|error| error.to_string())?;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    if connector.pings() {
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .keep_alive_while_idle(true);
    }
    let (sender, connection) = builder
        .handshake::<_, Body>(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let ended = async move {
        match connection.await {
            Ok(()) => "it has closed the connection".to_owned(),
            Err(error) => causes(&error),
        }
    };
    let session = Session {
        sender,
        answered: Arc::default(),
    };
    Ok((session, Box::pin(ended)))
}

impl tower::Service<Request<Body>> for Session {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.sender.send_request(request);
        let answered = self.answered.clone();
        Box::pin(async move {
            let answer = answer.await?;
            if !is_error(&answer) {
                answered.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer)
        })
    }
}

/// Whether an answer is nothing but an error: it has its status in its headers.
fn is_error(answer: &Response<Incoming>) -> bool {
    let status = answer.headers().get("grpc-status");
    !answer.status().is_success() || status.is_some_and(|status| status != "0")
}
