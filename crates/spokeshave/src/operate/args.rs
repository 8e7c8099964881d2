//! Arguments of `spokeshave operator`.
//!
//! Owns how they are written; those that Karpenter knows too are `settings`'. What is done with them is the command's.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::arguments::OperatorCloud;
use crate::remote_provider::AddressArgs;
use crate::settings::SettingsArgs;

/// Shown below the help of the command.
pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave crds | kubectl apply --server-side -f -
  spokeshave operator --cloud-provider kwok         with the current kubeconfig or the pod's service account
  spokeshave operator --cloud-provider grpc --provider-socket /run/provider/provider.sock
                                                    nodes of a provider that runs beside it (docs/providers.md)
  spokeshave operator --cloud-provider kwok --simulate-kubelets
                                                    where no kubelet runs: fake nodes become Ready, fake pods run
  spokeshave operator --cloud-provider aws --shadow
                                                    beside a running Karpenter: what this operator would do instead

Every setting can also come from the environment, under the name in brackets. A flag wins over its variable.";

/// Arguments of `operator`.
#[derive(Debug, Args)]
pub(crate) struct OperatorArgs {
    /// Kubeconfig of the cluster; by default $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where nodes come from
    #[arg(long, value_name = "NAME", value_enum)]
    pub(crate) cloud_provider: OperatorCloud,
    /// Where the provider of `--cloud-provider grpc` is
    #[command(flatten)]
    pub(crate) provider: AddressArgs,
    /// Only decide, beside an operator that runs the cluster, and report how the two differ, under /shadow on the metrics port: no request is sent but
    /// get, list and watch, and there is no Lease
    #[arg(long, conflicts_with_all = ["simulate_kubelets", "web"])]
    pub(crate) shadow: bool,
    /// Let fake nodes become Ready and fake pods run, for a cluster without kubelets
    #[arg(long)]
    pub(crate) simulate_kubelets: bool,
    /// Serve the page at this address, such as 127.0.0.1:8090; off by default. Its address with the token is logged
    #[arg(long, value_name = "ADDR")]
    pub(crate) web: Option<SocketAddr>,
    /// A further name under which a browser may ask for the page; may be repeated
    #[arg(long, value_name = "NAME", requires = "web")]
    pub(crate) web_host: Vec<String>,
    /// Settings that Karpenter knows too
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}
