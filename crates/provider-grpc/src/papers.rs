//! Authority, certificate and key of one end of a TCP connection, in files (G-003): what is renewed there counts for the next connection, without a restart.
//!
//! Owns the reading, and what was whole last. How the two ends use them is `transport`'s and `serving`'s.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use futures::future::BoxFuture;

use crate::serving::TlsAcceptor;
use crate::transport::{ByteStream, Connector, TlsConnector};

/// Where the papers of one end are, in PEM format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaperFiles {
    /// The authority of the other end's certificate.
    pub authority: PathBuf,
    /// The certificate that this end shows.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

#[derive(PartialEq, Eq)]
struct Texts {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl PaperFiles {
    fn read(&self) -> Result<Texts, String> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        Ok(Texts {
            authority: read(&self.authority)?,
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
        })
    }
}

type Make<T> = Box<dyn Fn(&Texts) -> Result<T, String> + Send + Sync>;

/// What is made of papers, as they are in their files now.
struct Papers<T> {
    files: PaperFiles,
    make: Make<T>,
    last: Mutex<Whole<T>>,
}

/// Papers that could be used.
struct Whole<T> {
    texts: Texts,
    made: T,
    /// Why those that are there now cannot be, as it was logged.
    problem: Option<String>,
}

impl<T: Clone> Papers<T> {
    fn new(files: PaperFiles, make: Make<T>) -> Result<Self, String> {
        let texts = files.read()?;
        let made = make(&texts)?;
        let last = Mutex::new(Whole {
            texts,
            made,
            problem: None,
        });
        Ok(Self { files, make, last })
    }

    /// By the files of now, or of when they were last whole: they may be read while somebody replaces them.
    fn now(&self) -> T {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let renewed = match self.files.read() {
            Ok(texts) if texts == last.texts => {
                last.problem = None;
                return last.made.clone();
            }
            Ok(texts) => (self.make)(&texts).map(|made| (texts, made)),
            Err(problem) => Err(problem),
        };
        match renewed {
            Ok((texts, made)) => {
                let certificate = self.files.certificate.display();
                tracing::info!(%certificate, "certificates for the provider's connections are renewed");
                *last = Whole {
                    texts,
                    made,
                    problem: None,
                };
            }
            Err(problem) if last.problem.as_ref() != Some(&problem) => {
                tracing::warn!(
                    problem,
                    "certificates for the provider's connections cannot be renewed; those of before are used"
                );
                last.problem = Some(problem);
            }
            Err(_) => {}
        }
        last.made.clone()
    }
}

/// A way to a provider over TCP ([`TlsConnector`]) whose papers are in files, which each connection reads anew.
pub struct FileConnector {
    address: String,
    papers: Papers<TlsConnector>,
}

impl Debug for FileConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileConnector")
            .field("address", &self.address)
            .field("files", &self.papers.files)
            .finish_non_exhaustive()
    }
}

impl FileConnector {
    /// A connector to `host:port`.
    ///
    /// # Errors
    /// What cannot be read of the files.
    pub fn new(address: &str, files: PaperFiles) -> Result<Self, String> {
        let to = address.to_owned();
        let make: Make<TlsConnector> =
            Box::new(move |texts| TlsConnector::new(&to, &texts.authority, &texts.certificate, &texts.key));
        Ok(Self {
            address: address.to_owned(),
            papers: Papers::new(files, make)?,
        })
    }
}

impl Connector for FileConnector {
    fn connect(&self) -> BoxFuture<'_, std::io::Result<Box<dyn ByteStream>>> {
        let connector = self.papers.now();
        Box::pin(async move { connector.connect().await })
    }

    fn address(&self) -> String {
        format!("tcp:{}", self.address)
    }
}

/// The provider's end of TCP connections ([`TlsAcceptor`]) whose papers are in files, which each connection reads anew.
pub struct FileAcceptor(Papers<TlsAcceptor>);

impl Debug for FileAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FileAcceptor").field(&self.0.files).finish()
    }
}

impl FileAcceptor {
    /// An acceptor.
    ///
    /// # Errors
    /// What cannot be read of the files.
    pub fn new(files: PaperFiles) -> Result<Self, String> {
        let make: Make<TlsAcceptor> =
            Box::new(|texts| TlsAcceptor::new(&texts.authority, &texts.certificate, &texts.key));
        Ok(Self(Papers::new(files, make)?))
    }

    /// The acceptor of the next connection.
    #[must_use]
    pub fn now(&self) -> TlsAcceptor {
        self.0.now()
    }
}
