//! Providers that are processes of their own: `operator --cloud-provider grpc`, `provider-sanity` and `provider-serve`.
//!
//! Owns where they are and how long the operator waits for one at its start. The protocol is `provider-grpc`'s.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueHint};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use spokeshave_ports::{Entropy, SharedClock, TokioClock};
use spokeshave_provider_grpc::sanity::{SanityOptions, check};
use spokeshave_provider_grpc::{
    ClientOptions, ConnectError, Connector, GrpcProvider, KubeNodeClasses, Server, ServerOptions,
    TlsConnector, UnixConnector, serve_unix,
};
use spokeshave_runtime::{Readiness, Shutdown, TaskGroup};

use crate::arguments::{CloudProviderName, OperatorCloud};
use crate::clouds::{self, Surroundings};
use crate::settings::{Environment, Settings, SettingsArgs};
use crate::{logging, operate, signals};

pub(crate) const SANITY_EXAMPLES: &str = "\
Examples:
  spokeshave provider-sanity --provider-socket /run/provider/provider.sock
  spokeshave provider-sanity --provider-socket provider.sock --node-class small --cluster-uid 1234

A few instances of the cheapest offering are launched and ended. Exit code 0 when every promise is kept; 3 with each broken promise by name.";

/// Name of the condition of readiness (G-019).
const CONDITION: &str = "provider connected";
/// How long the operator waits for its provider at the start.
const START_LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_secs(1);

/// Where a provider is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AddressArgs {
    /// Unix socket of the provider
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "provider_address")]
    pub(crate) provider_socket: Option<PathBuf>,
    /// Host and port of the provider; both sides show certificates
    #[arg(long, value_name = "HOST:PORT", requires_all = ["provider_ca", "provider_cert", "provider_key"])]
    pub(crate) provider_address: Option<String>,
    /// Authority of the provider's certificate, in PEM form
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_ca: Option<PathBuf>,
    /// Certificate that the provider is shown, in PEM form
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM form
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_key: Option<PathBuf>,
}

impl AddressArgs {
    fn connector(&self) -> Result<Arc<dyn Connector>> {
        if let Some(path) = &self.provider_socket {
            return Ok(Arc::new(UnixConnector(path.clone())));
        }
        let Some(address) = &self.provider_address else {
            bail!("where is the provider? Give --provider-socket FILE or --provider-address HOST:PORT");
        };
        let read = |path: &Option<PathBuf>| {
            let path = path.clone().unwrap_or_default();
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (ca, cert, key) = (
            read(&self.provider_ca)?,
            read(&self.provider_cert)?,
            read(&self.provider_key)?,
        );
        let connector = TlsConnector::new(address, &ca, &cert, &key).map_err(anyhow::Error::msg)?;
        Ok(Arc::new(connector))
    }
}

/// Connects the operator to its provider, which may start after it.
pub(crate) async fn connect(
    address: &AddressArgs,
    settings: &Settings,
    surroundings: &Surroundings,
) -> Result<GrpcProvider> {
    let connector = address.connector()?;
    let namespaces: Api<Namespace> = Api::all(surroundings.client.clone());
    let system = namespaces
        .get_opt("kube-system")
        .await
        .context("get namespace kube-system")?;
    let options = ClientOptions {
        connector,
        cluster_name: settings.cluster_name.clone().unwrap_or_default(),
        cluster_uid: system.and_then(|system| system.uid()).unwrap_or_default(),
        kubernetes_version: surroundings.version.clone(),
        node_classes: Some(Arc::new(KubeNodeClasses(surroundings.client.clone()))),
    };
    let clock = &surroundings.clock;
    let started = clock.now();
    loop {
        match GrpcProvider::connect(options.clone(), clock.clone()).await {
            Ok(provider) => {
                tracing::info!(address = options.connector.address(), "connected to the provider");
                return Ok(provider);
            }
            Err(error @ ConnectError::Unreachable { .. }) if clock.since(started) < START_LIMIT => {
                tracing::warn!(%error, "waiting for the provider");
                clock.sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Says whether the provider is there, until the operator stops.
pub(crate) async fn watch_readiness(
    provider: GrpcProvider,
    readiness: Readiness,
    clock: SharedClock,
    stop: Shutdown,
) {
    readiness.declare(CONDITION);
    loop {
        readiness.set(CONDITION, provider.is_ready());
        tokio::select! {
            biased;
            () = stop.requested() => return,
            () = clock.sleep(PAUSE) => {}
        }
    }
}

/// Arguments of `provider-sanity`.
#[derive(Debug, Args)]
pub(crate) struct SanityArgs {
    #[command(flatten)]
    address: AddressArgs,
    /// Name of a NodeClass that the provider accepts
    #[arg(long, value_name = "NAME", default_value = "default")]
    node_class: String,
    /// UID of the cluster that the provider serves
    #[arg(long, value_name = "UID", default_value = "sanity")]
    cluster_uid: String,
}

/// What a check has found.
pub(crate) struct Findings {
    pub(crate) text: String,
    pub(crate) has_errors: bool,
}

/// Checks a provider.
///
/// # Errors
/// The address is incomplete.
pub(crate) async fn sanity(args: &SanityArgs) -> Result<Findings> {
    let clock: SharedClock = TokioClock::wall(1.0).shared();
    let options = SanityOptions {
        connector: args.address.connector()?,
        node_class: args.node_class.clone(),
        cluster_uid: args.cluster_uid.clone(),
        run: clock.now().as_millisecond().to_string(),
    };
    Ok(match check(&options, &clock).await {
        Ok(()) => Findings {
            text: format!("{} keeps its promises\n", options.connector.address()),
            has_errors: false,
        },
        Err(failures) => Findings {
            text: format!("{failures}\n"),
            has_errors: true,
        },
    })
}

/// Arguments of `provider-serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Unix socket, which only this user may open
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    socket: PathBuf,
    /// Kubeconfig of the cluster; by default $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    kubeconfig: Option<PathBuf>,
    /// The provider
    #[arg(long, value_name = "NAME", value_enum)]
    cloud_provider: CloudProviderName,
    /// Settings of the provider
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Serves a provider until it is told to stop.
///
/// # Errors
/// A malformed setting, a cluster that cannot be reached, or a socket that somebody serves.
pub(crate) async fn serve(args: ServeArgs, environment: &Environment) -> Result<()> {
    let settings = Settings::resolve(&args.settings, environment)?;
    let clock: SharedClock = TokioClock::wall(1.0).shared();
    let (level, format) = (settings.log_level, settings.log_format);
    logging::install(level, format, &settings.log_output_paths, clock.clone())?;
    let config = operate::configuration(args.kubeconfig.as_deref()).await?;
    let rate = Some((f64::from(settings.kube_client_qps), settings.kube_client_burst));
    let client = operate::connect(&config, rate, &clock, None)?;
    let version = client.apiserver_version().await;
    let version =
        version.with_context(|| format!("the cluster at {} does not answer", config.cluster_url))?;
    let (shutdown, mut tasks) = (Shutdown::new(), TaskGroup::new());
    let surroundings = Surroundings {
        client,
        minor: clouds::minor_version(&version.minor),
        version: version.git_version,
        reads_only: false,
        clock: clock.clone(),
        entropy: Entropy::new(operate::seed()),
        shutdown: shutdown.clone(),
    };
    let name = match args.cloud_provider {
        CloudProviderName::Kwok => OperatorCloud::Kwok,
        CloudProviderName::Aws => OperatorCloud::Aws,
    };
    let cloud = clouds::start(
        name,
        &AddressArgs::default(),
        &settings,
        &surroundings,
        &mut tasks,
    )
    .await?;
    let options = ServerOptions {
        label_rules: cloud.label_rules,
        ..ServerOptions::default()
    };
    let server = Server::new(cloud.provider, clock, options);
    tracing::info!(socket = %args.socket.display(), "the provider is served");
    let served = tokio::select! {
        biased;
        () = signals::wait(None) => Ok(()),
        served = serve_unix(server, &args.socket) => served.with_context(|| format!("cannot serve {}", args.socket.display())),
    };
    shutdown.request();
    drop(std::fs::remove_file(&args.socket));
    served
}
