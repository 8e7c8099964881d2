//! The HTTPS listener: a generated authority, HTTP/1.1 and HTTP/2, bearer tokens, and a kubeconfig to connect with.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use spokeshave_watched as watch;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::store::state::ApiServer;

/// Why the listener did not start.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// Addresses beyond this machine are refused unless allowed: there is no authorisation behind the token.
    #[error(
        "{0} is not a loopback address; this server gives every right to clients that have its token, so it listens on loopback only"
    )]
    NotLoopback(SocketAddr),
    /// The certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(String),
}

/// Key and certificates of a server, made for one run.
pub struct TlsIdentity {
    ca_pem: String,
    config: Arc<rustls::ServerConfig>,
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

impl TlsIdentity {
    /// A new authority and a certificate for localhost and the address.
    ///
    /// # Errors
    /// The cryptography library refused.
    pub fn generate(address: SocketAddr) -> Result<Self, ListenerError> {
        Self::try_generate(address).map_err(ListenerError::Certificate)
    }

    fn try_generate(address: SocketAddr) -> Result<Self, String> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        authority
            .distinguished_name
            .push(DnType::CommonName, "spokeshave");
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let authority = CertifiedIssuer::self_signed(authority, key).map_err(|error| error.to_string())?;
        let names = [
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "::1".to_owned(),
            address.ip().to_string(),
            "kubernetes.default.svc".to_owned(),
        ];
        let mut server = CertificateParams::new(names).map_err(|error| error.to_string())?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let certificate = server
            .signed_by(&key, &authority)
            .map_err(|error| error.to_string())?;
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            ca_pem: authority.pem(),
            config: Arc::new(config),
        })
    }
}

/// A server that is listening.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    identity: TlsIdentity,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Listener {
    /// Starts listening on a loopback address (port 0 takes a free one).
    ///
    /// # Errors
    /// The address is not loopback, is in use, or the certificate could not be made.
    pub async fn start(server: &Arc<ApiServer>, address: SocketAddr) -> Result<Self, ListenerError> {
        if !address.ip().is_loopback() {
            return Err(ListenerError::NotLoopback(address));
        }
        let socket = TcpListener::bind(address)
            .await
            .map_err(|source| ListenerError::Bind { address, source })?;
        let address = socket
            .local_addr()
            .map_err(|source| ListenerError::Bind { address, source })?;
        let identity = TlsIdentity::generate(address)?;
        let acceptor = TlsAcceptor::from(identity.config.clone());
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(accept(socket, acceptor, server.clone(), stopped));
        Ok(Self {
            address,
            identity,
            stop,
            task,
        })
    }

    /// The address that is listened on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The authority's certificate.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.identity.ca_pem
    }

    /// Stops accepting, and gives connections a moment to end.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(Duration::from_secs(2), self.task)
            .await
            .is_err()
        {
            tracing::debug!("connections were cut");
        }
    }
}

async fn accept(
    socket: TcpListener,
    acceptor: TlsAcceptor,
    server: Arc<ApiServer>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            _ = stopped.changed() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors or the like: others still have to be served.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let (acceptor, service) = (acceptor.clone(), server.guarded_service());
        let mut stopped = stopped.clone();
        connections.spawn(async move {
            drop(stream.set_nodelay(true));
            let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(10), acceptor.accept(stream)).await
            else {
                return;
            };
            let builder = Builder::new(TokioExecutor::new());
            let connection =
                builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            tokio::pin!(connection);
            tokio::select! {
                biased;
                _ = stopped.changed() => {
                    connection.as_mut().graceful_shutdown();
                    drop(tokio::time::timeout(Duration::from_millis(500), connection).await);
                }
                _ = connection.as_mut() => {}
            }
        });
    }
    while connections.join_next().await.is_some() {}
}

/// A kubeconfig for the server.
#[must_use]
pub fn kubeconfig(address: SocketAddr, ca_pem: &str, token: &str) -> String {
    let authority = BASE64_STANDARD.encode(ca_pem.as_bytes());
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: spokeshave\n  cluster:\n    server: https://{address}\n    certificate-authority-data: {authority}\nusers:\n- name: admin\n  user:\n    token: {token}\ncontexts:\n- name: spokeshave\n  context:\n    cluster: spokeshave\n    user: admin\ncurrent-context: spokeshave\n"
    )
}
