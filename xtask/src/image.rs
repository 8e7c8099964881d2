//! `cargo xtask image`: writes a container image as an OCI layout, from binaries and nothing else.
//!
//! Owns what is in the image: the static binary, the certificate authorities of Mozilla's programme, and the names of the unprivileged user. The same binaries make
//! the same bytes: files have no timestamps, and nothing is read from the build machine. It needs no container daemon and no network.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const USAGE: &str =
    "usage: cargo xtask image --output DIR --version VERSION --binary amd64=FILE [--binary arm64=FILE]";

/// Whom the program runs as, in the image and in the chart.
const USER: u64 = 65532;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// What the image is made of.
#[derive(Debug, Default)]
struct Request {
    output: PathBuf,
    version: String,
    /// Binaries by architecture, as Go calls it.
    binaries: BTreeMap<String, PathBuf>,
}

/// Reads arguments and writes the layout.
///
/// # Errors
/// An argument is missing or unknown, or a file cannot be read or written.
pub fn run(arguments: &[String]) -> Result<()> {
    let request = read(arguments)?;
    write(&request)?;
    println!(
        "{}: {}",
        request.output.display(),
        request.binaries.keys().cloned().collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

fn read(arguments: &[String]) -> Result<Request> {
    let mut request = Request::default();
    for pair in arguments.chunks(2) {
        let [flag, value] = pair else {
            bail!("{USAGE}");
        };
        match flag.as_str() {
            "--output" => request.output = value.into(),
            "--version" => value.clone_into(&mut request.version),
            "--binary" => {
                let (architecture, path) = value.split_once('=').context(USAGE)?;
                if !["amd64", "arm64"].contains(&architecture) {
                    bail!("--binary {value}: expected amd64=FILE or arm64=FILE");
                }
                request.binaries.insert(architecture.to_owned(), path.into());
            }
            _ => bail!("{USAGE}"),
        }
    }
    if request.output.as_os_str().is_empty() || request.version.is_empty() || request.binaries.is_empty() {
        bail!("{USAGE}");
    }
    Ok(request)
}

fn write(request: &Request) -> Result<()> {
    let layout = Layout::new(&request.output)?;
    let mut manifests = Vec::new();
    for (architecture, path) in &request.binaries {
        let binary = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let layer = layer(&binary)?;
        let mut descriptor = image(&layout, architecture, &request.version, &layer)?;
        descriptor["platform"] = json!({"architecture": architecture, "os": "linux"});
        manifests.push(descriptor);
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    let mut named = layout.blob(INDEX, &serde_json::to_vec(&index)?)?;
    named["annotations"] = json!({"org.opencontainers.image.ref.name": request.version});
    let top = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]});
    layout.file("index.json", &serde_json::to_vec(&top)?)?;
    layout.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)
}

/// The image of one architecture; its descriptor.
fn image(layout: &Layout, architecture: &str, version: &str, layer: &[u8]) -> Result<Value> {
    let compressed = compress(layer)?;
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/spokeshave"],
            "Env": ["SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "spokeshave",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.source": "https://github.com/spokeshave/spokeshave",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask image"}],
    });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": layout.blob(CONFIG, &serde_json::to_vec(&config)?)?,
        "layers": [layout.blob(LAYER, &compressed)?],
    });
    layout.blob(MANIFEST, &serde_json::to_vec(&manifest)?)
}

/// The files, in the order of their names.
fn layer(binary: &[u8]) -> Result<Vec<u8>> {
    let authorities = authorities();
    let passwd =
        format!("root:x:0:0:root:/:/sbin/nologin\nspokeshave:x:{USER}:{USER}:spokeshave:/:/sbin/nologin\n");
    let group = format!("root:x:0:\nspokeshave:x:{USER}:\n");
    let mut archive = tar::Builder::new(Vec::new());
    for folder in ["etc/", "etc/ssl/", "etc/ssl/certs/"] {
        append(&mut archive, folder, tar::EntryType::Directory, 0o755, &[])?;
        if folder == "etc/" {
            append(
                &mut archive,
                "etc/group",
                tar::EntryType::Regular,
                0o644,
                group.as_bytes(),
            )?;
            append(
                &mut archive,
                "etc/passwd",
                tar::EntryType::Regular,
                0o644,
                passwd.as_bytes(),
            )?;
        }
    }
    let path = "etc/ssl/certs/ca-certificates.crt";
    append(
        &mut archive,
        path,
        tar::EntryType::Regular,
        0o644,
        authorities.as_bytes(),
    )?;
    append(&mut archive, "spokeshave", tar::EntryType::Regular, 0o755, binary)?;
    Ok(archive.into_inner()?)
}

fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    data: &[u8],
) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(data.len() as u64);
    header.set_cksum();
    Ok(archive.append(&header, data)?)
}

/// The certificates as PEM.
fn authorities() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let encoded = STANDARD.encode(certificate);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// Without name and time in the header.
fn compress(data: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new()
        .mtime(0)
        .operating_system(255)
        .write(Vec::new(), Compression::best());
    encoder.write_all(data)?;
    Ok(encoder.finish()?)
}

fn hex_digest(data: &[u8]) -> String {
    Sha256::digest(data)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn digest(data: &[u8]) -> String {
    format!("sha256:{}", hex_digest(data))
}

/// A folder that becomes the layout; what was there before is replaced.
struct Layout {
    folder: PathBuf,
}

impl Layout {
    fn new(folder: &Path) -> Result<Self> {
        let is_layout = folder.join("oci-layout").exists();
        if folder.exists() && !is_layout && folder.read_dir()?.next().is_some() {
            bail!("{} is not empty and no OCI layout", folder.display());
        }
        if is_layout {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder.join("blobs/sha256"))?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    fn file(&self, name: &str, data: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        std::fs::write(&path, data).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes a blob; its descriptor.
    fn blob(&self, media_type: &str, data: &[u8]) -> Result<Value> {
        self.file(&format!("blobs/sha256/{}", hex_digest(data)), data)?;
        Ok(json!({"mediaType": media_type, "digest": digest(data), "size": data.len()}))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn made(folder: &Path, binaries: &[(&str, &[u8])]) -> PathBuf {
        let output = folder.join("layout");
        let mut arguments = vec!["--output".to_owned(), output.display().to_string()];
        arguments.extend(["--version".to_owned(), "1.2.3".to_owned()]);
        for (architecture, data) in binaries {
            let path = folder.join(architecture);
            std::fs::write(&path, data).expect("a binary");
            arguments.extend([
                "--binary".to_owned(),
                format!("{architecture}={}", path.display()),
            ]);
        }
        run(&arguments).expect("the image is written");
        output
    }

    fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
        let name = descriptor["digest"].as_str().expect("a digest");
        let data = std::fs::read(
            layout
                .join("blobs/sha256")
                .join(name.trim_start_matches("sha256:")),
        )
        .expect("a blob");
        assert_eq!(digest(&data), name);
        assert_eq!(descriptor["size"], data.len());
        data
    }

    fn read_json(data: &[u8]) -> Value {
        serde_json::from_slice(data).expect("JSON")
    }

    #[test]
    fn the_layout_unpacks_to_a_binary_authorities_and_an_unprivileged_user() {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = made(folder.path(), &[("amd64", b"for amd"), ("arm64", b"for arm")]);
        let top = read_json(&std::fs::read(layout.join("index.json")).expect("an index"));
        let named = &top["manifests"][0];
        assert_eq!(named["annotations"]["org.opencontainers.image.ref.name"], "1.2.3");
        let index = read_json(&blob(&layout, named));
        for (number, (architecture, binary)) in [("amd64", "for amd"), ("arm64", "for arm")]
            .into_iter()
            .enumerate()
        {
            let descriptor = &index["manifests"][number];
            assert_eq!(descriptor["platform"]["architecture"], architecture);
            let manifest = read_json(&blob(&layout, descriptor));
            let config = read_json(&blob(&layout, &manifest["config"]));
            assert_eq!(config["architecture"], architecture);
            assert_eq!(config["config"]["User"], "65532:65532");
            assert_eq!(config["config"]["Entrypoint"], json!(["/spokeshave"]));
            let mut plain = Vec::new();
            let compressed = blob(&layout, &manifest["layers"][0]);
            flate2::read::GzDecoder::new(&compressed[..])
                .read_to_end(&mut plain)
                .expect("gzip");
            assert_eq!(config["rootfs"]["diff_ids"][0], digest(&plain));
            let mut found = BTreeMap::new();
            for entry in tar::Archive::new(&plain[..]).entries().expect("an archive") {
                let mut entry = entry.expect("an entry");
                let header = entry.header();
                assert_eq!(
                    (
                        header.uid().unwrap(),
                        header.gid().unwrap(),
                        header.mtime().unwrap()
                    ),
                    (0, 0, 0)
                );
                let (path, mode) = (
                    entry.path().unwrap().display().to_string(),
                    header.mode().unwrap(),
                );
                let mut text = String::new();
                entry.read_to_string(&mut text).expect("text");
                assert!(found.insert(path, (mode, text)).is_none());
            }
            let modes: Vec<(&str, u32)> = found
                .iter()
                .map(|(path, (mode, _))| (path.as_str(), *mode))
                .collect();
            let wanted = [
                ("etc/", 0o755),
                ("etc/group", 0o644),
                ("etc/passwd", 0o644),
                ("etc/ssl/", 0o755),
                ("etc/ssl/certs/", 0o755),
                ("etc/ssl/certs/ca-certificates.crt", 0o644),
                ("spokeshave", 0o755),
            ];
            assert_eq!(modes, wanted);
            assert_eq!(found["spokeshave"].1, binary);
            assert!(found["etc/passwd"].1.contains("spokeshave:x:65532:65532:"));
            let authorities = &found["etc/ssl/certs/ca-certificates.crt"].1;
            assert!(authorities.matches("-----BEGIN CERTIFICATE-----\n").count() > 100);
        }
    }

    #[test]
    fn the_same_binary_makes_the_same_bytes() {
        let everything = |layout: &Path| {
            let mut all = BTreeMap::new();
            for folder in [layout.to_owned(), layout.join("blobs/sha256")] {
                for entry in folder.read_dir().expect("a folder") {
                    let path = entry.expect("an entry").path();
                    if path.is_file() {
                        all.insert(
                            path.strip_prefix(layout).unwrap().to_owned(),
                            std::fs::read(&path).unwrap(),
                        );
                    }
                }
            }
            all
        };
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = everything(&made(one.path(), &[("amd64", b"binary")]));
        assert_eq!(first.len(), 6);
        assert_eq!(first, everything(&made(other.path(), &[("amd64", b"binary")])));
        // Writing it again leaves nothing of what was there.
        let again = everything(&made(one.path(), &[("amd64", b"another")]));
        assert_eq!(again.len(), 6);
        assert_ne!(first, again);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("mine"), "precious").expect("a file");
        let to = |arguments: &[&str]| run(&arguments.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        let output = folder.path().display().to_string();
        let own = folder.path().join("mine").display().to_string();
        let binary = format!("amd64={own}");
        let error = to(&["--output", &output, "--version", "1", "--binary", &binary]).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
        let error = to(&["--output", &output, "--version", "1", "--binary", "sparc=x"]).unwrap_err();
        assert!(
            error.to_string().contains("expected amd64=FILE or arm64=FILE"),
            "{error}"
        );
        assert!(to(&["--output", &output]).is_err());
        assert!(to(&["--output"]).is_err());
        assert_eq!(std::fs::read_to_string(&own).unwrap(), "precious");
    }
}
