//! Genuine sockets (G-003): a unix socket that only its owner may open, and TCP on which both sides show certificates.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_grpc::{
    Connector, FileAcceptor, FileConnector, GrpcProvider, PaperFiles, Server, ServerOptions, TlsAcceptor,
    TlsConnector, UnixConnector, serve_tls, serve_unix,
};
use tokio::net::TcpListener;

use crate::shed::{Shed, clock, options};

fn server() -> Server {
    let clock = clock();
    Server::new(Shed::new(clock.clone()), clock, ServerOptions::default())
}

#[tokio::test]
async fn g_003_the_socket_is_of_its_owner_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("provider.sock");
    let serving = tokio::spawn({
        let path = path.clone();
        async move { serve_unix(server(), &path).await }
    });
    let connector = UnixConnector(path.clone());
    while connector.connect().await.is_err() {
        assert!(!serving.is_finished(), "it serves");
        tokio::task::yield_now().await;
    }
    let mode = std::fs::metadata(&path).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let provider = GrpcProvider::connect(options(Arc::new(connector)), clock())
        .await
        .expect("a connection");
    assert_eq!((provider.name(), provider.list().await), ("shed", Ok(Vec::new())));
    let connector = UnixConnector(path.clone());
    assert_eq!(connector.file_mode(), Some(0o600));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    assert_eq!(connector.file_mode(), Some(0o755));
    let taken = serve_unix(server(), &path).await.expect_err("somebody serves it");
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    assert!(path.exists(), "whoever is refused leaves it");
    serving.abort();
    assert!(serving.await.is_err_and(|error| error.is_cancelled()));
    assert!(!path.exists(), "it goes with its server");
}

#[tokio::test]
async fn only_a_socket_that_nobody_serves_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("precious.txt");
    std::fs::write(&path, "precious").expect("a file");
    let refused = serve_unix(server(), &path).await.expect_err("it is a file");
    assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists);
    let said = format!("{} exists and is no socket; name another file", path.display());
    assert_eq!(refused.to_string(), said);
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), "precious");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
    let left = folder.path().join("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).expect("a socket"));
    let serving = tokio::spawn({
        let left = left.clone();
        async move { serve_unix(server(), &left).await }
    });
    let connector = UnixConnector(left.clone());
    while connector.connect().await.is_err() {
        assert!(!serving.is_finished(), "it serves");
        tokio::task::yield_now().await;
    }
    // What another process has put in its place is not removed.
    std::fs::remove_file(&left).expect("the socket");
    std::fs::write(&left, "another's").expect("a file");
    serving.abort();
    assert!(serving.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(std::fs::read_to_string(&left).expect("the file"), "another's");
}

struct Papers {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Papers {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(parameters, key).expect("an authority");
        Self { issuer }
    }

    /// Certificate and key for a name.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// The same in files of this folder, with the authority: in those of before, if there are any.
    fn write(&self, folder: &Path, name: &str) -> PaperFiles {
        let (certificate, key) = self.issue(name);
        let file = |suffix: &str, text: String| {
            let path = folder.join(format!("{name}.{suffix}"));
            std::fs::write(&path, text).expect("a file");
            path
        };
        PaperFiles {
            authority: file("ca", self.issuer.pem()),
            certificate: file("crt", certificate),
            key: file("key", key),
        }
    }
}

#[tokio::test]
async fn g_003_over_tcp_both_sides_show_certificates() {
    let papers = Papers::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("localhost:{}", listener.local_addr().expect("an address").port());
    let (certificate, key) = papers.issue("localhost");
    let authority = papers.issuer.pem();
    let acceptor = TlsAcceptor::new(authority.as_bytes(), certificate.as_bytes(), key.as_bytes());
    let acceptor = acceptor.expect("papers");
    let serving = tokio::spawn(serve_tls(server(), listener, move || acceptor.clone()));
    let with = |issuer: &Papers| {
        let (certificate, key) = issuer.issue("operator");
        let authority = papers.issuer.pem();
        TlsConnector::new(
            &address,
            authority.as_bytes(),
            certificate.as_bytes(),
            key.as_bytes(),
        )
        .expect("papers")
    };
    let ours = GrpcProvider::connect(options(Arc::new(with(&papers))), clock()).await;
    assert_eq!(ours.expect("a connection").name(), "shed");
    let stranger = Papers::new();
    let refused = GrpcProvider::connect(options(Arc::new(with(&stranger))), clock()).await;
    let error = refused
        .expect_err("a certificate of another authority")
        .to_string();
    // What the other side has said about the certificate, not only that the connection is gone.
    assert!(error.contains("fatal alert"), "{error}");
    serving.abort();
}

/// Certificates last for weeks, processes for longer.
#[tokio::test]
async fn g_003_certificates_that_are_renewed_count_for_the_next_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (Papers::new(), Papers::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("localhost:{}", listener.local_addr().expect("an address").port());
    let of_provider = old.write(folder.path(), "localhost");
    let acceptor = FileAcceptor::new(of_provider.clone()).expect("papers");
    let serving = tokio::spawn(serve_tls(server(), listener, move || acceptor.now()));
    let of_operator = old.write(folder.path(), "operator");
    let connector = FileConnector::new(&address, of_operator).expect("papers");
    let connector: Arc<dyn Connector> = Arc::new(connector);
    let connect = || GrpcProvider::connect(options(connector.clone()), clock());
    connect().await.expect("a connection");

    std::fs::write(&of_provider.certificate, "half of one").expect("a file");
    std::fs::remove_file(&of_provider.key).expect("there was one");
    connect().await.expect("with those of before");

    let of_before = old.write(folder.path(), "of-before");
    new.write(folder.path(), "localhost");
    new.write(folder.path(), "operator");
    connect().await.expect("with those of now");
    let late = FileConnector::new(&address, of_before).expect("papers");
    let refused = GrpcProvider::connect(options(Arc::new(late)), clock()).await;
    refused.expect_err("the provider is of another authority now");
    serving.abort();
}

#[test]
fn papers_that_cannot_be_read_are_named() {
    let error = TlsConnector::new("localhost:1", b"", b"", b"").expect_err("no papers");
    assert!(error.contains("the authority of the provider"), "{error}");
    let error = TlsAcceptor::new(b"", b"", b"").expect_err("no papers");
    assert!(error.contains("the authority of the operator"), "{error}");
    let error = FileAcceptor::new(PaperFiles::default()).expect_err("no files");
    assert!(error.starts_with("cannot read"), "{error}");
}
