//! The command line of `convert`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use spokeshave_convert::ClassRef;

use crate::connection::ClusterArgs;

/// Shown after the help.
pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave convert -f provisioners/ > v1.yaml     manifests of v1alpha5 or v1beta1; the report is on standard error
  spokeshave convert -f old.yaml --role NodeRole    for AWSNodeTemplates that relied on a default instance profile
  spokeshave convert -f ca.yaml --node-class karpenter.azure.com/AKSNodeClass/default
                                                    cluster-autoscaler's Deployment or Helm values as NodePools
  spokeshave convert --live --report report.txt     objects of older versions that a cluster still has

The cluster is not changed. Exit code 0 when everything is converted; 3 when something must be resolved by hand: a line of the
report is an error, and an object that would be rejected is omitted. docs/convert.md lists what each field becomes.";

/// Arguments of `convert`.
#[derive(Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["filenames", "live"]))]
pub(crate) struct ConvertArgs {
    /// Manifests to convert: YAML or JSON, a file or a directory, - for standard input; may be repeated
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE|DIR",
        value_hint = ValueHint::AnyPath,
        conflicts_with_all = ClusterArgs::IDS
    )]
    pub(crate) filenames: Vec<PathBuf>,
    /// Convert the objects of the current cluster
    #[arg(long, conflicts_with = "filenames")]
    pub(crate) live: bool,
    /// The cluster
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// NodeClass for NodePools that name none; by default the only one in the input
    #[arg(long, value_name = "GROUP/KIND/NAME")]
    pub(crate) node_class: Option<ClassRef>,
    /// IAM role for EC2NodeClasses that name neither a role nor an instance profile
    #[arg(long, value_name = "NAME")]
    pub(crate) role: Option<String>,
    /// Write the report to a file instead of standard error
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    /// What to print
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "yaml")]
    pub(crate) output: ConvertFormat,
}

/// How a conversion is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConvertFormat {
    /// Manifests, for `kubectl apply -f -`
    Yaml,
    /// Manifests and report in one document, for programs
    Json,
}
