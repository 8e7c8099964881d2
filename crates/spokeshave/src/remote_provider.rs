//! The operator's side of an out-of-process provider.
//!
//! Owns where it is and how long the operator waits for it at its start. The protocol is `provider-grpc`'s.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueHint};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use spokeshave_ports::SharedClock;
use spokeshave_provider_grpc::{
    ClientOptions, ConnectError, Connector, FileConnector, GrpcProvider, KubeNodeClasses, KubeNodes,
    PaperFiles, UnixConnector,
};
use spokeshave_runtime::{Readiness, Shutdown};

use crate::settings::Settings;

/// Name of the condition of readiness (G-019).
const CONDITION: &str = "provider connected";
/// How long the operator waits for its provider at the start.
const START_LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_secs(1);

/// Where a provider is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AddressArgs {
    /// Unix socket of the provider
    #[arg(long, alias = "socket", value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "provider_address")]
    pub(crate) provider_socket: Option<PathBuf>,
    /// Host and port of the provider; both sides authenticate with certificates
    #[arg(long, value_name = "HOST:PORT", requires_all = ["provider_ca", "provider_cert", "provider_key"])]
    pub(crate) provider_address: Option<String>,
    /// CA of the provider's certificate, in PEM format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_ca: Option<PathBuf>,
    /// Client certificate for the provider, in PEM format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) provider_key: Option<PathBuf>,
}

impl AddressArgs {
    /// How it is reached.
    ///
    /// # Errors
    /// No address, or certificates that cannot be read.
    pub(crate) fn connector(&self) -> Result<Arc<dyn Connector>> {
        if let Some(path) = &self.provider_socket {
            return Ok(Arc::new(UnixConnector(path.clone())));
        }
        let Some(address) = &self.provider_address else {
            bail!("no provider given; set --provider-socket FILE or --provider-address HOST:PORT");
        };
        let files = paper_files([&self.provider_ca, &self.provider_cert, &self.provider_key]);
        let connector = FileConnector::new(address, files).map_err(anyhow::Error::msg)?;
        Ok(Arc::new(connector))
    }
}

/// A CA, a certificate and its key, whose names the command line has asked for.
pub(crate) fn paper_files(paths: [&Option<PathBuf>; 3]) -> PaperFiles {
    let [authority, certificate, key] = paths.map(|path| path.clone().unwrap_or_default());
    PaperFiles {
        authority,
        certificate,
        key,
    }
}

/// Connects the operator to its provider, which may start after it.
pub(crate) async fn connect(
    address: &AddressArgs,
    settings: &Settings,
    client: &Client,
    kubernetes_version: &str,
    clock: &SharedClock,
) -> Result<GrpcProvider> {
    let connector = address.connector()?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let system = namespaces
        .get_opt("kube-system")
        .await
        .context("get namespace kube-system")?;
    let options = ClientOptions {
        connector,
        cluster_name: settings.cluster_name.clone().unwrap_or_default(),
        cluster_uid: system.and_then(|system| system.uid()).unwrap_or_default(),
        kubernetes_version: kubernetes_version.to_owned(),
        node_classes: Some(Arc::new(KubeNodeClasses(client.clone()))),
        nodes: Some(KubeNodes::new(client.clone())),
    };
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

/// Reports whether the provider is connected, until the operator stops.
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
