//! How a cluster is reached: kubeconfig, service account, client.
//!
//! Owns the order in which they are looked for. What is asked of the cluster is others' affair.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, Error, Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::client::AuthError;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use spokeshave_ports::SharedClock;
use spokeshave_runtime::Metrics;
use spokeshave_runtime::client::{ClientOptions, from_config};

/// A client; `rate` is requests a second and how many may come at once. `kubeconfig` is the file that the configuration comes from, for messages.
pub(crate) fn connect(
    config: &kube::Config,
    kubeconfig: Option<&Path>,
    rate: Option<(f64, u32)>,
    clock: &SharedClock,
    metrics: Option<Metrics>,
) -> Result<Client> {
    let options = ClientOptions {
        rate,
        metrics,
        ..ClientOptions::default()
    };
    let made = from_config(config.clone(), &options, clock.clone());
    made.map_err(|error| match &error {
        kube::Error::Auth(AuthError::AuthExecStart(why)) => without_program(config, kubeconfig, why),
        kube::Error::Auth(AuthError::AuthExecRun { cmd, out }) => {
            program_failed(config, kubeconfig, cmd, out)
        }
        kube::Error::Auth(AuthError::AuthExecParse(_)) => anyhow!(
            "{} has its credentials from the program {:?}, whose answer is no ExecCredential",
            named(kubeconfig),
            program(config)
        ),
        _ => Error::from(error).context("cannot make a client of the cluster"),
    })
}

/// The program that has the credentials cannot be run: the library names neither it nor the kubeconfig.
fn without_program(config: &kube::Config, kubeconfig: Option<&Path>, why: &io::Error) -> Error {
    let program = program(config);
    let exec = config.auth_info.exec.as_ref();
    let hint = exec
        .and_then(|exec| exec.install_hint.as_deref())
        .unwrap_or_default();
    let words: Vec<&str> = hint.split_whitespace().collect();
    let hint = match words.is_empty() {
        true => String::new(),
        false => format!(" ({})", words.join(" ")),
    };
    anyhow!(
        "{} has its credentials from the program {program:?}, which cannot be run: {why}; install it{hint}, or name another kubeconfig with --kubeconfig",
        named(kubeconfig)
    )
}

/// The program that has the credentials ended with an error, as it does where a session has expired. What it wrote to standard output may be a token: the library
/// tells all of it.
fn program_failed(config: &kube::Config, kubeconfig: Option<&Path>, command: &str, output: &Output) -> Error {
    let program = match program(config) {
        // That of an `auth-provider`.
        "" => command.split_whitespace().next().unwrap_or_default(),
        program => program,
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let mut lines = said.lines().rev().map(str::trim);
    let last = lines.find(|line| !line.is_empty());
    let last = last.map(|line| format!(": {line}")).unwrap_or_default();
    anyhow!(
        "{} has its credentials from the program {program:?}, which ended with {}{last}",
        named(kubeconfig),
        output.status
    )
}

/// The program that a kubeconfig has its credentials from.
fn program(config: &kube::Config) -> &str {
    let exec = config.auth_info.exec.as_ref();
    exec.and_then(|exec| exec.command.as_deref()).unwrap_or_default()
}

/// The kubeconfig in a sentence: the given one, those of `$KUBECONFIG`, or that of the home directory.
fn named(given: Option<&Path>) -> String {
    let given = given.map(|path| path.display().to_string());
    let variable = || std::env::var("KUBECONFIG").ok().filter(|files| !files.is_empty());
    let shown = given.or_else(variable);
    format!("the kubeconfig {}", shown.as_deref().unwrap_or("~/.kube/config"))
}

/// What a kubeconfig, or else the environment, says about a cluster.
pub(crate) async fn configuration(path: Option<&Path>) -> Result<kube::Config> {
    let Some(path) = path else {
        return kube::Config::infer().await.map_err(not_inferred);
    };
    let file = Kubeconfig::read_from(PathBuf::from(path))
        .with_context(|| format!("cannot read {}", named(Some(path))))?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|error| match without_context(&error) {
            Some(said) => anyhow!(said),
            None => Error::from(error),
        })
        .with_context(|| format!("{} cannot be used", named(Some(path))))
}

/// Why neither a kubeconfig nor a service account leads to a cluster. Where a kubeconfig is there and lacks its context, it is what is to be mended.
fn not_inferred(error: InferConfigError) -> Error {
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<KubeconfigError>());
    match cause.and_then(without_context) {
        Some(said) => anyhow!(said).context(format!("{} cannot be used", named(None))),
        None => {
            Error::from(error).context("no kubeconfig and no service account; name a file with --kubeconfig")
        }
    }
}

/// Of a kubeconfig without a current context the library says an empty name.
fn without_context(error: &KubeconfigError) -> Option<&'static str> {
    let is_empty = match error {
        KubeconfigError::CurrentContextNotSet => true,
        KubeconfigError::LoadContext(name) => name.is_empty(),
        _ => false,
    };
    is_empty.then_some("it has no current-context; `kubectl config use-context NAME` sets one")
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
