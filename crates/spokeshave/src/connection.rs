//! How a cluster is reached: kubeconfig and context, service account, client.
//!
//! Owns the arguments that say which, and the order in which they are looked for. What is asked of the cluster is others' affair.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::Output;

use anyhow::{Context as _, Error, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueHint};
use kube::Client;
use kube::client::AuthError;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use spokeshave_plan::report::some_of;
use spokeshave_ports::SharedClock;
use spokeshave_runtime::Metrics;
use spokeshave_runtime::client::{ClientOptions, from_config};
use spokeshave_story::explain::near_matches;

/// How many contexts of a kubeconfig a message lists: whoever has an account in every region may have hundreds.
const MOST_CONTEXTS: usize = 20;

/// Which cluster a command is about. All commands that reach one flatten it, so that none has a kubeconfig without a context.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig of the cluster; by default $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; by default its current-context
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) context: Option<String>,
}

impl ClusterArgs {
    /// The ids of both arguments: what is read instead of a cluster conflicts with them.
    pub(crate) const IDS: [&str; 2] = ["kubeconfig", "context"];

    /// The file in a sentence: the given one, those of `$KUBECONFIG`, or that of the home directory.
    fn file(&self) -> String {
        let given = self.kubeconfig.as_ref().map(|path| path.display().to_string());
        let variable = || listed().and_then(|files| files.into_string().ok());
        let shown = given.or_else(variable);
        format!("the kubeconfig {}", shown.as_deref().unwrap_or("~/.kube/config"))
    }

    /// What leads to the cluster, in a sentence: the file, with the context if one was given.
    fn named(&self) -> String {
        match &self.context {
            Some(context) => format!("the context {context:?} of {}", self.file()),
            None => self.file(),
        }
    }
}

/// A client; `rate` is requests a second and how many may come at once. `cluster` is where the configuration comes from, for messages.
pub(crate) fn connect(
    config: &kube::Config,
    cluster: &ClusterArgs,
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
        kube::Error::Auth(AuthError::AuthExecStart(why)) => without_program(config, cluster, why),
        kube::Error::Auth(AuthError::AuthExecRun { cmd, out }) => program_failed(config, cluster, cmd, out),
        kube::Error::Auth(AuthError::AuthExecParse(_)) => anyhow!(
            "{} has its credentials from the program {:?}, whose answer is no ExecCredential",
            cluster.named(),
            program(config)
        ),
        _ => Error::from(error).context("cannot make a client of the cluster"),
    })
}

/// The program that has the credentials cannot be run: the library names neither it nor the kubeconfig.
fn without_program(config: &kube::Config, cluster: &ClusterArgs, why: &io::Error) -> Error {
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
        cluster.named()
    )
}

/// The program that has the credentials ended with an error, as it does where a session has expired. What it wrote to standard output may be a token: the library
/// tells all of it.
fn program_failed(config: &kube::Config, cluster: &ClusterArgs, command: &str, output: &Output) -> Error {
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
        cluster.named(),
        output.status
    )
}

/// The program that a kubeconfig has its credentials from.
fn program(config: &kube::Config) -> &str {
    let exec = config.auth_info.exec.as_ref();
    exec.and_then(|exec| exec.command.as_deref()).unwrap_or_default()
}

/// What a kubeconfig, or else the environment, says about a cluster.
///
/// # Errors
/// No kubeconfig can be read, it has no such context, or the context does not lead to a cluster; or there is neither a kubeconfig nor a service account.
pub(crate) async fn configuration(cluster: &ClusterArgs) -> Result<kube::Config> {
    let file = match (&cluster.kubeconfig, &cluster.context) {
        (None, None) => return inferred().await,
        (None, Some(context)) => at_hand().map_err(|error| not_found(error, cluster, context))?,
        (Some(path), _) => {
            Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", cluster.file()))?
        }
    };
    if let Some(context) = &cluster.context {
        refuse_unknown(context, &file, cluster)?;
    }
    let options = KubeConfigOptions {
        context: cluster.context.clone(),
        ..KubeConfigOptions::default()
    };
    let found = kube::Config::from_custom_kubeconfig(file, &options).await;
    found.map_err(|error| unusable(error, cluster))
}

/// The kubeconfig that the environment leads to: what `$KUBECONFIG` lists or, where it lists nothing, the file of the home directory.
fn at_hand() -> Result<Kubeconfig, KubeconfigError> {
    match files_listed() {
        files if files.is_empty() => Kubeconfig::read(),
        files => merged(&files),
    }
}

/// What the files say together, the first to say something before the others. As for kubectl, those that are not there say nothing, unless none is: a list is
/// often the same on every machine. The library takes no list with a missing file.
fn merged(files: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    let mut whole: Option<Kubeconfig> = None;
    let mut absent = None;
    for file in files {
        match Kubeconfig::read_from(file) {
            Ok(next) => whole = Some(whole.unwrap_or_default().merge(next)?),
            Err(error) if is_absent(&error) => absent = absent.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    whole.ok_or_else(|| absent.unwrap_or(KubeconfigError::FindPath))
}

/// There is no such file.
fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(why, _) => why.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

/// The cluster of the kubeconfig at hand or, where there is none or it has no current context, that of the pod's service account, as for kubectl. Also where the
/// file of the home directory is broken: unlike one that is listed, nobody has named it.
async fn inferred() -> Result<kube::Config> {
    let found = match at_hand() {
        Ok(file) => kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await,
        Err(error) => Err(error),
    };
    let mut config = match found {
        Ok(config) => config,
        Err(error) => in_pod(error)?,
    };
    config.apply_debug_overrides();
    Ok(config)
}

/// The cluster of the pod's service account, in place of a kubeconfig with this error. Whoever has listed one that is broken means another cluster.
fn in_pod(error: KubeconfigError) -> Result<kube::Config> {
    let is_broken = !is_absent(&error) && without_context(&error).is_none();
    if is_broken && listed().is_some() {
        return Err(unusable(error, &ClusterArgs::default()));
    }
    kube::Config::incluster().map_err(|in_cluster| not_inferred(error, &in_cluster))
}

/// Why there is no kubeconfig to take a context from. Without one, a pod's service account would be taken in its place, perhaps of another cluster than is meant.
fn not_found(error: KubeconfigError, cluster: &ClusterArgs, context: &str) -> Error {
    // One that the user has named is not merely absent.
    let said = if is_absent(&error) && listed().is_none() {
        format!(
            "--context {context}: there is no kubeconfig, and a pod's service account has no contexts; name a file with --kubeconfig, or leave --context out"
        )
    } else {
        format!("cannot read {}", cluster.file())
    };
    Error::from(error).context(said)
}

/// Refuses a context that the kubeconfig does not have, and names those that it has.
fn refuse_unknown(context: &str, file: &Kubeconfig, cluster: &ClusterArgs) -> Result<()> {
    let known: Vec<&str> = file.contexts.iter().map(|one| one.name.as_str()).collect();
    if known.contains(&context) {
        return Ok(());
    }
    let near = near_matches(context, known.iter().copied());
    let all = some_of(&known, MOST_CONTEXTS);
    let hint = match (near.is_empty(), known.is_empty()) {
        (_, true) => "it has none at all".to_owned(),
        (true, false) => format!("it has: {all}"),
        (false, false) => format!("did you mean {}? it has: {all}", near.join(", ")),
    };
    bail!("{} has no context {context:?}; {hint}", cluster.file())
}

/// Why neither a kubeconfig nor a service account leads to a cluster. Where a kubeconfig is there, it is what is to be mended.
fn not_inferred(error: KubeconfigError, in_cluster: &InClusterError) -> Error {
    if !is_absent(&error) {
        return unusable(error, &ClusterArgs::default());
    }
    Error::from(error).context(format!(
        "no kubeconfig and no service account ({in_cluster}); name a file with --kubeconfig"
    ))
}

/// Why a kubeconfig that is there leads to no cluster.
fn unusable(error: KubeconfigError, cluster: &ClusterArgs) -> Error {
    let error = match without_context(&error) {
        Some(said) => anyhow!(said),
        None => Error::from(error),
    };
    error.context(format!("{} cannot be used", cluster.named()))
}

/// Of a kubeconfig without a current context the library says an empty name.
fn without_context(error: &KubeconfigError) -> Option<&'static str> {
    let is_empty = match error {
        KubeconfigError::CurrentContextNotSet => true,
        KubeconfigError::LoadContext(name) => name.is_empty(),
        _ => false,
    };
    is_empty.then_some(
        "it has no current-context; `kubectl config use-context NAME` sets one, or name one with --context",
    )
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

/// What `$KUBECONFIG` says, where it lists a file.
fn listed() -> Option<OsString> {
    std::env::var_os("KUBECONFIG").filter(|list| !files_of(list).is_empty())
}

/// The files that it lists.
fn files_listed() -> Vec<PathBuf> {
    files_of(&listed().unwrap_or_default())
}

fn files_of(list: &OsStr) -> Vec<PathBuf> {
    let files = std::env::split_paths(list);
    files.filter(|path| !path.as_os_str().is_empty()).collect()
}

/// Files by which this or another command reaches a cluster: the given one, those of `$KUBECONFIG`, and that of the home directory.
pub(crate) fn kubeconfigs(cluster: &ClusterArgs) -> Vec<PathBuf> {
    let at_home = std::env::home_dir().map(|home| home.join(".kube").join("config"));
    let given = cluster.kubeconfig.clone();
    given.into_iter().chain(files_listed()).chain(at_home).collect()
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

    /// Two clusters under their own names, one under a name that no cluster has, and no current context.
    const CONTEXTS: &str = "\
apiVersion: v1
kind: Config
clusters:
- {name: production, cluster: {server: \"https://production.example\"}}
- {name: staging, cluster: {server: \"https://staging.example\"}}
users: [{name: sam, user: {token: x}}]
contexts:
- {name: production, context: {cluster: production, user: sam}}
- {name: staging, context: {cluster: staging, user: sam}}
- {name: torn-down, context: {cluster: gone, user: sam}}
";

    /// The host that a kubeconfig leads to, or what is said of it, without the path.
    async fn reached(text: &str, context: Option<&str>) -> Result<String, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let cluster = ClusterArgs {
            kubeconfig: Some(file.path().to_owned()),
            context: context.map(str::to_owned),
        };
        let path = file.path().display().to_string();
        match configuration(&cluster).await {
            Ok(config) => Ok(config.cluster_url.host().unwrap_or_default().to_owned()),
            Err(error) => Err(format!("{error:#}").replace(&path, "FILE")),
        }
    }

    #[tokio::test]
    async fn a_context_names_one_cluster_of_a_kubeconfig() {
        for (current, context, host) in [
            ("staging", None, "staging.example"),
            ("staging", Some("production"), "production.example"),
            ("torn-down", Some("staging"), "staging.example"),
            ("no-such", Some("staging"), "staging.example"),
        ] {
            let text = format!("{CONTEXTS}current-context: {current}\n");
            let reached = reached(&text, context).await;
            assert_eq!(reached.as_deref(), Ok(host), "{current}, {context:?}");
        }
        let reached = reached(CONTEXTS, Some("staging")).await;
        assert_eq!(reached.as_deref(), Ok("staging.example"), "without a current one");
    }

    #[tokio::test]
    async fn a_context_that_leads_nowhere_is_named() {
        let all = "it has: production, staging, torn-down";
        let none = "apiVersion: v1\nkind: Config\n";
        for (text, context, expected) in [
            (
                CONTEXTS,
                Some("stagin"),
                format!("the kubeconfig FILE has no context \"stagin\"; did you mean staging? {all}"),
            ),
            (
                CONTEXTS,
                Some("elsewhere"),
                format!("the kubeconfig FILE has no context \"elsewhere\"; {all}"),
            ),
            (
                none,
                Some("staging"),
                "the kubeconfig FILE has no context \"staging\"; it has none at all".to_owned(),
            ),
            (
                CONTEXTS,
                Some("torn-down"),
                "the context \"torn-down\" of the kubeconfig FILE cannot be used: failed to load the cluster of context: gone".to_owned(),
            ),
            (
                CONTEXTS,
                None,
                "the kubeconfig FILE cannot be used: it has no current-context; `kubectl config use-context NAME` sets one, or name one with --context".to_owned(),
            ),
        ] {
            assert_eq!(reached(text, context).await, Err(expected), "{context:?}");
        }
    }

    /// As kubectl: a list is often the same on every machine.
    #[test]
    fn of_a_list_of_kubeconfigs_those_that_are_not_there_are_passed_over_unless_all_are() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        std::fs::write(place("first"), format!("{CONTEXTS}current-context: staging\n")).unwrap();
        let second = "contexts: [{name: more}]\ncurrent-context: more\n";
        std::fs::write(place("second"), second).unwrap();
        std::fs::write(place("broken"), "contexts: 3\n").unwrap();
        let read = |names: &[&str]| -> Result<(usize, String), String> {
            let files: Vec<PathBuf> = names.iter().map(|name| place(name)).collect();
            let whole = merged(&files).map_err(|error| format!("{error:#}"))?;
            Ok((whole.contexts.len(), whole.current_context.unwrap_or_default()))
        };
        let both = Ok((4, "staging".to_owned()));
        assert_eq!(read(&["first", "second"]), both);
        assert_eq!(read(&["none", "first", "gone", "second"]), both);
        assert_eq!(read(&["second", "none"]), Ok((1, "more".to_owned())));
        let refused = |names: &[&str]| -> String { read(names).expect_err("none can be read") };
        assert!(refused(&["none", "gone"]).contains(&place("none").display().to_string()));
        assert!(refused(&["none", "broken", "first"]).contains("parse"));
    }

    /// Of a file that is there, nobody says that there is none.
    #[test]
    fn a_kubeconfig_that_is_broken_is_no_absent_one() {
        let nowhere = InClusterError::ReadEnvironmentVariable(std::env::VarError::NotPresent);
        let said = |error: KubeconfigError| not_inferred(error, &nowhere).to_string();
        let broken = Kubeconfig::from_yaml("contexts: 3\n").expect_err("it is none");
        assert!(said(broken).ends_with(" cannot be used"));
        assert!(said(KubeconfigError::CurrentContextNotSet).ends_with(" cannot be used"));
        assert!(said(KubeconfigError::FindPath).starts_with("no kubeconfig and no service account ("));
        let lists = ["", ":", ":first::second:"].map(|list| files_of(OsStr::new(list)).len());
        assert_eq!(lists, [0, 0, 2]);
    }

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
