//! How a provider listens: on a unix socket, or on TCP where both sides show certificates (G-003).
//!
//! Owns sockets and connections of a server. What is answered is the provider's.

use std::fmt::Debug;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinSet;

use crate::transport::{ByteStream, certificates, roots};
use crate::wire::provider_server::{Provider, ProviderServer};

/// Who connects and does not say who they are within this time is left.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Serves any implementation of the protocol on one connection.
///
/// # Errors
/// The other side does not speak HTTP/2.
pub async fn serve_connection<P: Provider>(
    provider: P,
    stream: impl ByteStream + 'static,
) -> Result<(), String> {
    let service = TowerToHyperService::new(ProviderServer::new(provider));
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    served.map_err(|error| error.to_string())
}

/// Serves on a unix socket that only this user may open (G-003), until the future is dropped. A socket that nobody listens on is replaced.
///
/// # Errors
/// The socket cannot be made.
pub async fn serve_unix<P: Provider + Clone>(provider: P, path: &Path) -> io::Result<()> {
    let listener = bind_unix(path)?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let provider = provider.clone();
                connections.spawn(async move { note_end(serve_connection(provider, stream).await) });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves on TCP, until the future is dropped. Whoever shows no certificate of the authority is not heard.
///
/// # Errors
/// The listener has failed.
pub async fn serve_tls<P: Provider + Clone>(
    provider: P,
    listener: TcpListener,
    acceptor: TlsAcceptor,
) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let (provider, acceptor) = (provider.clone(), acceptor.clone());
                connections.spawn(async move {
                    let served = async { serve_connection(provider, acceptor.accept(stream).await?).await };
                    note_end(served.await);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

fn note_end(end: Result<(), String>) {
    if let Err(error) = end {
        tracing::debug!(error, "a connection has ended");
    }
}

/// The provider's end of TCP connections: what it shows, and whose certificates it takes (G-003). There is no way to do without.
#[derive(Clone)]
pub struct TlsAcceptor(tokio_rustls::TlsAcceptor);

impl Debug for TlsAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsAcceptor")
    }
}

impl TlsAcceptor {
    /// An acceptor, with PEM texts: the CA of the operators' certificates, our certificate, and its key.
    ///
    /// # Errors
    /// What cannot be read of them.
    pub fn new(authority: &[u8], certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let authority = roots("the authority of the operator", authority)?;
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(authority), ring.clone())
            .build()
            .map_err(|error| format!("the authority of the operator: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("the key of the provider: {error}"))?;
        let mut config = rustls::ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(clients)
            .with_single_cert(certificates("the certificate of the provider", certificate)?, key)
            .map_err(|error| format!("certificate and key of the provider: {error}"))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self(Arc::new(config).into()))
    }

    /// A connection whose other end has shown its certificate.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<impl ByteStream + use<>, String> {
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        match tokio::time::timeout(HANDSHAKE, self.0.accept(stream)).await {
            Ok(accepted) => accepted.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no certificate within {} s", HANDSHAKE.as_secs())),
        }
    }
}

pub(crate) fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("somebody serves {} already", path.display()),
        ));
    }
    // Bound under a name that nobody looks for, so that it is never open to others under its own.
    let hidden = path.with_extension(format!("{}.tmp", std::process::id()));
    drop(std::fs::remove_file(&hidden));
    let listener = UnixListener::bind(&hidden)?;
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&hidden, path)?;
    Ok(listener)
}
