//! `spokeshave provider-sanity` and `spokeshave provider-serve`: both ends of the protocol for providers that are processes of their own.
//!
//! Owns the commands only. The protocol is `provider-grpc`'s.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::{Args, ValueHint};
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use spokeshave_aws_cloud::minor_version;
use spokeshave_ports::{Entropy, SharedClock, SystemClock, TokioClock};
use spokeshave_provider_grpc::sanity::{Restart, SanityOptions, Untried, check};
use spokeshave_provider_grpc::{FileAcceptor, Server, ServerOptions, serve_tls, serve_unix};
use spokeshave_runtime::{ClientWrites, Shutdown, TaskGroup};
use tokio::net::TcpListener;

use crate::arguments::ServedCloud;
use crate::clouds::{self, Surroundings};
use crate::connection::{ClusterArgs, certificates, configuration, connect, seed};
use crate::operate::clock;
use crate::remote_provider::{AddressArgs, paper_files};
use crate::settings::{Environment, Settings, SettingsArgs};
use crate::{logging, signals};

pub(crate) const SANITY_EXAMPLES: &str = "\
Examples:
  spokeshave provider-sanity --provider-socket /run/provider/provider.sock
  spokeshave provider-sanity --provider-socket p.sock --node-class small --cluster-uid 1234
  spokeshave provider-sanity --provider-socket p.sock --node-class-file class.yaml --changed-node-class-file changed.yaml
  spokeshave provider-sanity --provider-socket p.sock --restart-command 'systemctl restart p'

It launches and terminates a few instances of the cheapest offering, without outdating an operator that uses the provider. Exit code 0 when every check passes; 3 with the name of each failed check.";

pub(crate) const SERVE_USAGE: &str = "\
spokeshave provider-serve [OPTIONS] --socket <FILE> --cloud-provider <NAME>
       spokeshave provider-serve [OPTIONS] --listen-address <IP:PORT> --client-ca <FILE> --cert <FILE> --key <FILE> --cloud-provider <NAME>";

/// Arguments of `provider-sanity`.
#[derive(Debug, Args)]
pub(crate) struct SanityArgs {
    #[command(flatten)]
    address: AddressArgs,
    /// Name of a NodeClass that the provider accepts; it is of the first kind of the provider's handshake and has an empty spec
    #[arg(long, value_name = "NAME", default_value = "default")]
    node_class: String,
    /// Manifest of a NodeClass that the provider accepts, in YAML or JSON, for providers that need a spec
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "node_class")]
    node_class_file: Option<PathBuf>,
    /// Manifest of the same NodeClass with another spec, by which instances of the first have drifted; needed for providers that decide about drift
    /// themselves, for others a field is added
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    changed_node_class_file: Option<PathBuf>,
    /// Command for sh -c that stops the provider and starts it again; without it no restart is tried
    #[arg(long, value_name = "COMMAND")]
    restart_command: Option<String>,
    /// UID of the cluster that the provider serves
    #[arg(long, value_name = "UID", default_value = "sanity")]
    cluster_uid: String,
}

/// A shell command that restarts the provider.
#[derive(Debug)]
struct RestartCommand(String);

impl Restart for RestartCommand {
    fn restart(&self) -> BoxFuture<'_, std::result::Result<(), String>> {
        Box::pin(async move {
            // What the command starts in the background may keep its standard streams open: only its own end is waited for.
            let status = tokio::process::Command::new("sh")
                .args(["-c", &self.0])
                .status()
                .await;
            match status {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => Err(format!("the restart command {:?} has failed: {status}", self.0)),
                Err(error) => Err(format!("the restart command {:?} cannot be run: {error}", self.0)),
            }
        })
    }
}

/// A NodeClass of a file.
fn node_class(path: &Path) -> Result<DynamicObject> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let class: DynamicObject = serde_saphyr::from_str(&text)
        .map_err(|error| anyhow!("{} is not the manifest of a NodeClass: {error}", path.display()))?;
    let has_name = class.metadata.name.as_ref().is_some_and(|name| !name.is_empty());
    ensure!(
        class.types.is_some() && has_name,
        "{} needs apiVersion, kind and metadata.name, as a NodeClass in a cluster has",
        path.display()
    );
    Ok(class)
}

/// What a check has found.
pub(crate) struct Findings {
    pub(crate) text: String,
    pub(crate) has_errors: bool,
}

/// Checks a provider.
///
/// # Errors
/// The address is incomplete, or the NodeClass cannot be read.
pub(crate) async fn sanity(args: &SanityArgs) -> Result<Findings> {
    let clock: SharedClock = TokioClock::wall(1.0).shared();
    let options = SanityOptions {
        connector: args.address.connector()?,
        node_class: args.node_class_file.as_deref().map(node_class).transpose()?,
        changed_node_class: args
            .changed_node_class_file
            .as_deref()
            .map(node_class)
            .transpose()?,
        node_class_name: args.node_class.clone(),
        cluster_uid: args.cluster_uid.clone(),
        run: clock.now().as_millisecond().to_string(),
        restart: args
            .restart_command
            .clone()
            .map(|command| Arc::new(RestartCommand(command)) as Arc<dyn Restart>),
        is_time_virtual: false,
    };
    Ok(match check(&options, &clock).await {
        Ok(untried) => Findings {
            text: passed(&options.connector.address(), &untried),
            has_errors: false,
        },
        Err(failures) => Findings {
            text: format!("{failures}\n"),
            has_errors: true,
        },
    })
}

fn passed(address: &str, untried: &[Untried]) -> String {
    let mut text = format!("{address} passes all checks\n");
    for one in untried {
        text.push_str(match one {
            Untried::DriftOfAChangedClass => {
                "not tried: whether instances drift when their NodeClass changes; the provider decides by which changes: --changed-node-class-file FILE\n"
            }
            Untried::Restart => "not tried: a restart of the provider: --restart-command COMMAND\n",
            Untried::LaunchMinutesLater => {
                "not tried: whether a launch that is repeated minutes later finds its instance; that would take minutes\n"
            }
        });
    }
    text
}

/// Where a provider listens.
#[derive(Debug, Args)]
struct ListenArgs {
    /// Unix socket to listen on; only the current user may open it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "listen_address", required_unless_present = "listen_address")]
    socket: Option<PathBuf>,
    /// Address and port to listen on; both sides authenticate with certificates
    #[arg(long, value_name = "IP:PORT", requires_all = ["client_ca", "cert", "key"])]
    listen_address: Option<SocketAddr>,
    /// CA of the operators' certificates, in PEM format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    client_ca: Option<PathBuf>,
    /// Certificate of the provider, in PEM format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cert: Option<PathBuf>,
    /// Key of that certificate, in PEM format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: Option<PathBuf>,
}

impl ListenArgs {
    /// Serves until the future is dropped.
    async fn serve(&self, server: Server) -> Result<()> {
        let Some(address) = self.listen_address else {
            let path = self.socket.clone().unwrap_or_default();
            let served = serve_unix(server, &path).await;
            return served.with_context(|| format!("cannot serve {}", path.display()));
        };
        let files = paper_files([&self.client_ca, &self.cert, &self.key]);
        let acceptor = FileAcceptor::new(files).map_err(anyhow::Error::msg)?;
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        tracing::info!(address = %address, "the provider is served");
        serve_tls(server, listener, || acceptor.now()).await;
        Ok(())
    }
}

/// Arguments of `provider-serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// The cluster
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The provider
    #[arg(long, value_name = "NAME", value_enum)]
    cloud_provider: ServedCloud,
    /// Settings of the provider
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Serves a provider until it is stopped.
///
/// # Errors
/// A malformed setting, a cluster that cannot be reached, a socket that is in use, a task that panicked, or a system clock that was set by minutes.
pub(crate) async fn serve(args: ServeArgs, environment: &Environment) -> Result<()> {
    let settings = Settings::resolve(&args.settings, environment)?;
    let system = SystemClock::new();
    let clock: SharedClock = system.clone().shared();
    let (level, format) = (settings.log_level, settings.log_format);
    logging::install(level, format, &settings.log_output_paths, clock.clone())?;
    let (shutdown, mut tasks) = (signals::shutdown(), TaskGroup::new());
    let mut off = std::pin::pin!(clock::too_far_off(system));
    let starting = start(&args, &settings, &clock, &mut tasks, &shutdown);
    let started = tokio::select! {
        biased;
        why = &mut off => Some(Err(why)),
        started = shutdown.cut(starting) => started,
    };
    let Some(server) = started else {
        // It was told to stop before it had begun.
        return Ok(());
    };
    let server = server?;
    let served = tokio::select! {
        biased;
        () = shutdown.requested() => Ok(()),
        name = tasks.panicked() => Err(anyhow!("task {name:?} of the provider panicked: this is a defect of Spokeshave, and standard error says where")),
        why = off => Err(why),
        served = args.listen.serve(server) => served,
    };
    shutdown.request();
    served
}

/// Connects the provider with its cluster and its cloud.
///
/// # Errors
/// A cluster that cannot be reached, or a cloud that cannot be started.
async fn start(
    args: &ServeArgs,
    settings: &Settings,
    clock: &SharedClock,
    tasks: &mut TaskGroup,
    shutdown: &Shutdown,
) -> Result<Server> {
    let config = configuration(&args.cluster).await?;
    let rate = Some((f64::from(settings.kube_client_qps), settings.kube_client_burst));
    let client = connect(&config, &args.cluster, rate, clock, None)?;
    let version = client.apiserver_version().await;
    let version =
        version.with_context(|| format!("the cluster at {} does not answer", config.cluster_url))?;
    let surroundings = Surroundings {
        client,
        certificates: certificates(&config),
        minor: minor_version(&version.minor).unwrap_or(0),
        version: version.git_version,
        reads_only: false,
        clock: clock.clone(),
        entropy: Entropy::new(seed()),
        shutdown: shutdown.clone(),
    };
    let cloud = clouds::start(
        args.cloud_provider.into(),
        &AddressArgs::default(),
        settings,
        &surroundings,
        tasks,
    )
    .await?;
    let options = ServerOptions {
        label_rules: cloud.label_rules,
        writes: Arc::new(ClientWrites::new(surroundings.client.clone())),
        ..ServerOptions::default()
    };
    Ok(Server::new(cloud.provider, clock.clone(), options))
}
