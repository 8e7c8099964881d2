//! Arguments of `spokeshave operator`.
//!
//! Owns how they are written; those that Karpenter knows too are `settings`'. What is done with them is the command's.

use std::net::SocketAddr;

use clap::Args;

use crate::arguments::OperatorCloud;
use crate::connection::ClusterArgs;
use crate::remote_provider::AddressArgs;
use crate::settings::SettingsArgs;

/// Shown below the help of the command.
pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave crds | kubectl apply --server-side -f -
  spokeshave operator --cloud-provider kwok         with the current kubeconfig or the pod's service account
  spokeshave operator --cloud-provider grpc --provider-socket /run/provider/provider.sock
                                                    an out-of-process provider (docs/providers.md)
  spokeshave operator --cloud-provider kwok --simulate-kubelets
                                                    where no kubelet runs: simulated nodes become Ready, their pods run
  spokeshave operator --cloud-provider aws --shadow
                                                    beside a running Karpenter: what this operator would do instead

Every setting can also be set through the environment variable in brackets. A flag overrides its variable.";

/// Arguments of `operator`.
#[derive(Debug, Args)]
pub(crate) struct OperatorArgs {
    /// The cluster
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Where nodes come from
    #[arg(long, value_name = "NAME", value_enum)]
    pub(crate) cloud_provider: OperatorCloud,
    /// Where the provider of `--cloud-provider grpc` is
    #[command(flatten)]
    pub(crate) provider: AddressArgs,
    /// Only decide, next to an operator that manages the cluster, and report the differences under /shadow on the metrics port: sends only
    /// get, list and watch requests, and takes no Lease
    #[arg(long, conflicts_with_all = ["simulate_kubelets", "web"])]
    pub(crate) shadow: bool,
    /// Simulate kubelets: nodes become Ready and their pods run, for a cluster without kubelets
    #[arg(long)]
    pub(crate) simulate_kubelets: bool,
    /// Serve the web page at this address, such as 127.0.0.1:8090; off by default. The URL with its token is logged
    #[arg(long, value_name = "ADDR")]
    pub(crate) web: Option<SocketAddr>,
    /// Additional host name that browsers may use for the page; may be repeated
    #[arg(long, value_name = "NAME", requires = "web")]
    pub(crate) web_host: Vec<String>,
    /// Settings that Karpenter knows too
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}
