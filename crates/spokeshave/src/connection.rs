//! How a cluster is reached: kubeconfig, service account, client.
//!
//! Owns the order in which they are looked for. What is asked of the cluster is others' affair.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use spokeshave_ports::SharedClock;
use spokeshave_runtime::Metrics;
use spokeshave_runtime::client::{ClientOptions, from_config};

/// A client; `rate` is requests a second and how many may come at once.
pub(crate) fn connect(
    config: &kube::Config,
    rate: Option<(f64, u32)>,
    clock: &SharedClock,
    metrics: Option<Metrics>,
) -> Result<Client> {
    let options = ClientOptions {
        rate,
        metrics,
        ..ClientOptions::default()
    };
    from_config(config.clone(), &options, clock.clone()).context("cannot make a client of the cluster")
}

/// What a kubeconfig, or else the environment, says about a cluster.
pub(crate) async fn configuration(path: Option<&Path>) -> Result<kube::Config> {
    let Some(path) = path else {
        return kube::Config::infer()
            .await
            .context("no kubeconfig and no service account; name a file with --kubeconfig");
    };
    let shown = path.display().to_string();
    let file = Kubeconfig::read_from(PathBuf::from(path))
        .with_context(|| format!("cannot read the kubeconfig {shown}"))?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("the kubeconfig {shown} cannot be used"))
}

/// The certificates by which a cluster's API server is known, PEM in base64; `None` where those of the system are, or where none is looked at.
pub(crate) fn certificates(config: &kube::Config) -> Option<String> {
    // They need not be the API server's then.
    if config.accept_invalid_certs {
        return None;
    }
    let certificates = config.root_cert.as_ref().filter(|all| !all.is_empty())?;
    let mut pem = String::new();
    for certificate in certificates {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        // Lines of 64 characters.
        for line in certificate.chunks(48) {
            pem.push_str(&STANDARD.encode(line));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    Some(STANDARD.encode(pem))
}

/// Files by which this or another command reaches a cluster: the given one, those of `$KUBECONFIG`, and that of the home directory.
pub(crate) fn kubeconfigs(given: Option<&Path>) -> Vec<PathBuf> {
    let variable = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let named = std::env::split_paths(&variable).filter(|path| !path.as_os_str().is_empty());
    let at_home = std::env::home_dir().map(|home| home.join(".kube").join("config"));
    let given = given.map(Path::to_owned);
    given.into_iter().chain(named).chain(at_home).collect()
}

/// Names and jitter of a production run differ from run to run.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_070_certificates_are_handed_on_as_pem_in_base64() {
        let mut config = kube::Config::new("https://cluster.example".parse().unwrap());
        assert_eq!(certificates(&config), None);
        config.root_cert = Some(vec![vec![0; 60], vec![1, 2, 3]]);
        let pem = STANDARD.decode(certificates(&config).unwrap()).unwrap();
        let first = format!("{}\n{}", "A".repeat(64), "A".repeat(16));
        let expected = [first.as_str(), "AQID"]
            .map(|body| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"));
        assert_eq!(String::from_utf8(pem).unwrap(), expected.concat());
        config.accept_invalid_certs = true;
        assert_eq!(certificates(&config), None, "nobody has tried them");
    }
}
