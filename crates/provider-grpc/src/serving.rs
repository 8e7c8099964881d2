//! How a provider listens: on a unix socket, or on TCP where both sides show certificates (G-003).
//!
//! Owns sockets and connections of a server. What is answered is the provider's.

use std::fmt::Debug;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinSet;

use crate::transport::{ByteStream, PING, certificates, roots};
use crate::wire::provider_server::{Provider, ProviderServer};

/// Who connects and does not say who they are within this time is left.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause after a connection that could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Serves any implementation of the protocol on one connection. The other end is pinged: a machine that dies closes nothing, and would lead for ever (G-003).
///
/// # Errors
/// The other side does not speak HTTP/2, or answers no ping.
pub async fn serve_connection<P: Provider>(
    provider: P,
    stream: impl ByteStream + 'static,
) -> Result<(), String> {
    let mut builder = builder();
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    serve(builder, provider, stream).await
}

/// The same without pings, within one process: there no end falls silent, and virtual time passes at once.
///
/// # Errors
/// The other side does not speak HTTP/2.
pub(crate) async fn serve_within_process<P: Provider>(
    provider: P,
    stream: impl ByteStream + 'static,
) -> Result<(), String> {
    serve(builder(), provider, stream).await
}

fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    // Each NodeClass holds a call for as long as it is used, and each launch one until it is done: with a limit, some of them would wait for ever.
    builder.max_concurrent_streams(None::<u32>);
    builder
}

async fn serve<P: Provider>(
    builder: http2::Builder<TokioExecutor>,
    provider: P,
    stream: impl ByteStream + 'static,
) -> Result<(), String> {
    let service = TowerToHyperService::new(ProviderServer::new(provider));
    let served = builder.serve_connection(TokioIo::new(stream), service).await;
    served.map_err(|error| error.to_string())
}

/// The next connection. What keeps one from being taken, such as too many open files, passes; those that are open go on meanwhile.
async fn next<C>(mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<C>>) -> C {
    loop {
        match std::future::poll_fn(&mut accept).await {
            Ok(connection) => return connection,
            Err(error) => {
                tracing::warn!(%error, "a connection of an operator cannot be taken; it is tried again in a second");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves on a unix socket that only this user may open (G-003), until the future is dropped, which removes it. A socket that nobody listens on is replaced.
///
/// # Errors
/// The socket cannot be made.
pub async fn serve_unix<P: Provider + Clone>(provider: P, path: &Path) -> io::Result<()> {
    let listener = bind_unix(path)?;
    let _made = Made::new(path)?;
    tracing::info!(socket = %path.display(), "the provider is served");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            (stream, _) = next(|context| listener.poll_accept(context)) => {
                let provider = provider.clone();
                connections.spawn(async move { note_end(serve_connection(provider, stream).await) });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves on TCP, until the future is dropped. Whoever shows no certificate of the authority is not heard. Each connection has an acceptor of its own, so
/// that certificates may be renewed.
pub async fn serve_tls<P: Provider + Clone>(
    provider: P,
    listener: TcpListener,
    acceptor: impl Fn() -> TlsAcceptor,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            (stream, _) = next(|context| listener.poll_accept(context)) => {
                let (provider, acceptor) = (provider.clone(), acceptor());
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

/// A socket in its place, removed with this unless somebody else has put another file there.
struct Made<'a> {
    path: &'a Path,
    inode: u64,
}

impl<'a> Made<'a> {
    fn new(path: &'a Path) -> io::Result<Self> {
        let inode = std::fs::symlink_metadata(path)?.ino();
        Ok(Self { path, inode })
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(self.path);
        if found.is_ok_and(|found| found.ino() == self.inode) {
            drop(std::fs::remove_file(self.path));
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
    if std::fs::metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} exists and is no socket; name another file", path.display()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_cannot_be_taken_does_not_end_the_server() {
        let begun = tokio::time::Instant::now();
        let mut answers = vec![Ok("a connection"), Err(24), Err(23)];
        let accepted = next(|_| {
            let answer = answers.pop().expect("no more than it needs");
            Poll::Ready(answer.map_err(io::Error::from_raw_os_error))
        });
        assert_eq!(accepted.await, "a connection");
        assert_eq!(begun.elapsed(), 2 * ACCEPT_PAUSE, "it pauses in between");
    }
}
