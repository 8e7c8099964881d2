//! `--hash-names`: names of a cluster become short hashes before anything is written, with a key that is not written with them.
//!
//! Owns the key and the hash. Which texts are names is decided by `names` of the crate `scenario`.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueHint};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use spokeshave_scenario::import::hash_names;

/// Where the system has bytes that nobody can guess.
const RANDOM: &str = "/dev/urandom";
/// Bytes of a block of SHA-256, for which HMAC makes its two keys.
const BLOCK: usize = 64;
/// A shorter key could be guessed.
const SHORTEST_KEY: usize = 16;
/// Letters of a hash, five bits each: a million names are all different but for one chance in two million.
const LETTERS: usize = 12;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Arguments of commands that write what is in a cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct HashArgs {
    /// Write hashes instead of names: of namespaces, workloads, pods, containers, claims and nodes, and values of pods' labels. NodePools, what nodes say of themselves (labels, taints, types, zones) and keys of labels stay
    #[arg(long)]
    pub(crate) hash_names: bool,
    /// Key of --hash-names, made where it is missing: under one key a name has one hash; keep it to yourself. By default a random one that nobody keeps
    #[arg(long, value_name = "FILE", requires = "hash_names", value_hint = ValueHint::FilePath)]
    pub(crate) hash_key: Option<PathBuf>,
}

/// By what names are hashed.
#[derive(Clone)]
pub(crate) struct NameHash {
    inner: [u8; BLOCK],
    outer: [u8; BLOCK],
}

impl NameHash {
    /// That of a command line; none where names stay as they are.
    ///
    /// # Errors
    /// The file with the key cannot be read or made, or its key is too short.
    pub(crate) fn of(args: &HashArgs) -> Result<Option<Self>> {
        if !args.hash_names {
            return Ok(None);
        }
        let key = match &args.hash_key {
            Some(path) => key_of(path)?,
            None => random()?,
        };
        Ok(Some(Self::with(key.as_bytes())))
    }

    /// That of a key.
    fn with(key: &[u8]) -> Self {
        let key = Sha256::digest(key);
        let padded = |with: u8| {
            let mut block = [with; BLOCK];
            for (byte, own) in block.iter_mut().zip(key.iter()) {
                *byte ^= *own;
            }
            block
        };
        NameHash {
            inner: padded(0x36),
            outer: padded(0x5c),
        }
    }

    /// The hash of a name: a name itself, as Kubernetes wants it (HMAC-SHA-256, cut off).
    fn hashed(&self, name: &str) -> String {
        let mut inner = Sha256::new();
        inner.update(self.inner);
        inner.update(name.as_bytes());
        let mut outer = Sha256::new();
        outer.update(self.outer);
        outer.update(inner.finalize());
        let digest = outer.finalize();
        let letters = digest.iter().take(LETTERS);
        let letters = letters.map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
        // A name begins with a letter.
        std::iter::once('h').chain(letters).collect()
    }

    /// Replaces the names in an object that has been redacted.
    pub(crate) fn hash(&self, object: &mut Value) {
        hash_names(object, &|name| self.hashed(name));
    }
}

/// A key that nobody knows.
fn random() -> Result<String> {
    let mut key = [0_u8; 32];
    let read = File::open(RANDOM).and_then(|mut file| file.read_exact(&mut key));
    read.with_context(|| format!("cannot read {RANDOM}"))?;
    Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The key in a file, which is made where there is none: for its owner alone.
fn key_of(path: &Path) -> Result<String> {
    let shown = path.display();
    let key = match std::fs::read_to_string(path) {
        Ok(key) => key.trim().to_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let key = random()?;
            let written = new_file(path).and_then(|mut file| writeln!(file, "{key}"));
            written.with_context(|| format!("cannot write {shown}"))?;
            key
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    if key.len() < SHORTEST_KEY {
        bail!(
            "--hash-key {shown}: has a key of {} bytes; expected at least {SHORTEST_KEY}, or no such file, so that a random one is made",
            key.len()
        );
    }
    Ok(key)
}

fn new_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn arguments(hash_key: Option<PathBuf>) -> HashArgs {
        HashArgs {
            hash_names: true,
            hash_key,
        }
    }

    /// The expected letters are those of an independent HMAC-SHA-256, under the SHA-256 of the key.
    #[test]
    fn a_hash_is_an_hmac_of_the_name() {
        let hash = NameHash::with(b"Jefe");
        let hashed = hash.hashed("what do ya want for nothing?");
        assert_eq!(hashed, "hum7nhyzxjktr");
        assert_ne!(NameHash::with(b"jefe").hashed("web"), hash.hashed("web"));
    }

    #[test]
    fn a_hash_is_a_name_that_kubernetes_takes() {
        let hash = NameHash::with(b"key");
        for name in ["web", "", "10", "a.b-c", "ü"] {
            let hashed = hash.hashed(name);
            assert_eq!(hashed.len(), 1 + LETTERS);
            let mut letters = hashed.bytes();
            assert!(
                letters.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()),
                "{hashed}"
            );
            assert!(hashed.starts_with('h'), "{hashed}");
        }
    }

    #[test]
    fn a_key_is_not_written_through_a_link() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (link, target) = (folder.path().join("key"), folder.path().join("elsewhere"));
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        assert!(NameHash::of(&arguments(Some(link))).is_err());
        assert!(!target.exists());
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("key");
        let of = || {
            let hash = NameHash::of(&arguments(Some(path.clone()))).expect("a key");
            hash.expect("names are hashed").hashed("web")
        };
        let first = of();
        assert_eq!(first, of());
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        let random = NameHash::of(&arguments(None))
            .expect("a key")
            .expect("names are hashed");
        assert_ne!(random.hashed("web"), first);
        std::fs::write(&path, "guess").expect("written");
        let error = NameHash::of(&arguments(Some(path.clone())))
            .err()
            .expect("refused");
        assert!(error.to_string().contains("expected at least 16"), "{error}");
        let none = HashArgs {
            hash_names: false,
            hash_key: None,
        };
        assert!(NameHash::of(&none).expect("nothing is read").is_none());
    }
}
