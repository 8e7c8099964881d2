//! The command line of `plan`, and of where a state comes from.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use jiff::Timestamp;
use spokeshave_plan::disrupt::Method;

use super::in_force::container::DeploymentName;
use crate::arguments::OutputFormat;
use crate::connection::ClusterArgs;
use crate::settings::DecidingArgs;

pub(crate) const EXAMPLES: &str = "\
Examples:
  kubectl get nodes,pods,nodepools,nodeclaims,daemonsets,pdb,pv,pvc,sc,csinodes,ns -A -o yaml > dump.yaml
  spokeshave plan -f dump.yaml                      what would be launched, for which pods, and what would be removed
  spokeshave plan -f nodepools.yaml -f app/         what manifests would need, before they are applied
  spokeshave plan -f dump.yaml -o json --stats      for programs, with times; docs/plan.md lists every field
  spokeshave plan --live --verdicts                 the cluster of the current kubeconfig, with a verdict for each node
  spokeshave plan --live --context staging          that of another context
  spokeshave plan --live --feature-gates SpotToSpotConsolidation=true
                                                    what the operator would do with another setting

It is read-only. Exit code 0 even when pods cannot be placed; 1 when the dump or the catalog cannot be read, or the
cluster does not answer.";

/// Where a state comes from, for the commands that decide about one.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SourceArgs {
    /// Dump or manifests to read: YAML or JSON, a file or a directory, - for standard input; may be repeated
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE|DIR",
        value_hint = ValueHint::AnyPath,
        conflicts_with_all = ClusterArgs::IDS
    )]
    pub(crate) filenames: Vec<PathBuf>,
    /// The cluster
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Instance types and prices, in the format of instance_types.json; by default EC2's for EC2NodeClasses, else the kwok provider's 144 types
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) catalog: Option<PathBuf>,
    /// AWS region whose zones and prices NodePools of EC2NodeClasses get; by default that of the nodes
    #[arg(long, value_name = "REGION", conflicts_with = "catalog")]
    pub(crate) region: Option<String>,
    /// Configuration of kube-scheduler (KubeSchedulerConfiguration), as YAML or JSON: what it adds to pods counts; or podTopologySpread.defaultConstraints alone
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) scheduler_config: Option<PathBuf>,
    /// The time at which to decide, such as 2026-01-31T12:00:00Z; by default now
    #[arg(long, value_name = "RFC3339")]
    pub(crate) now: Option<Timestamp>,
    /// Deployment of the operator whose settings hold; by default the only one in the cluster that runs an operator, of Spokeshave or Karpenter
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "filenames")]
    pub(crate) operator: Option<DeploymentName>,
    /// Settings that hold instead of those of the operator
    #[command(flatten)]
    pub(crate) settings: DecidingArgs,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[group(id = "from", required = true, multiple = true, args = ["filenames", "live"])]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Plan for the current cluster
    #[arg(long, conflicts_with = "filenames")]
    pub(crate) live: bool,
    /// What to print
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "table")]
    pub(crate) output: OutputFormat,
    /// Add the time of each phase, counts and peak memory
    #[arg(long)]
    pub(crate) stats: bool,
    /// Evaluate every node on its own, and name what blocks its removal
    #[arg(long)]
    pub(crate) verdicts: bool,
    /// Run only these disruption methods; by default all, in order
    #[arg(long, value_name = "METHOD", value_enum, value_delimiter = ',')]
    pub(crate) methods: Vec<MethodName>,
}

/// The disruption methods, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodName {
    /// Delete empty nodes
    Emptiness,
    /// Replace drifted nodes of static NodePools
    StaticDrift,
    /// Replace drifted nodes
    Drift,
    /// Replace nodes of static NodePools that are older than a DisruptionPolicy allows
    StaticExpiry,
    /// Replace nodes that are older than a DisruptionPolicy allows
    Expiry,
    /// Replace several nodes with at most one
    MultiNode,
    /// Replace one node with at most one
    SingleNode,
}

impl MethodName {
    pub(crate) fn method(self) -> Method {
        match self {
            MethodName::Emptiness => Method::Emptiness,
            MethodName::StaticDrift => Method::StaticDrift,
            MethodName::Drift => Method::Drift,
            MethodName::StaticExpiry => Method::StaticExpiry,
            MethodName::Expiry => Method::Expiry,
            MethodName::MultiNode => Method::MultiNodeConsolidation,
            MethodName::SingleNode => Method::SingleNodeConsolidation,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::Cli;

    #[test]
    fn a_plan_is_for_a_file_or_for_the_cluster() {
        let parse = |words: &[&str]| Cli::try_parse_from([&["spokeshave", "plan"], words].concat());
        assert!(parse(&[]).is_err(), "one of them is needed");
        assert!(parse(&["-f", "x", "--live"]).is_err(), "not both");
        assert!(parse(&["-f", "x", "-f", "y"]).is_ok(), "several files");
        assert!(parse(&["-f", "x"]).is_ok() && parse(&["--live", "--kubeconfig", "k"]).is_ok());
    }

    #[test]
    fn an_operator_is_in_a_cluster_and_has_a_namespace() {
        let parse = |words: &[&str]| Cli::try_parse_from([&["spokeshave"], words].concat());
        for command in [
            &["plan", "--live"][..],
            &["explain", "a"],
            &["doctor"],
            &["web"],
            &["top"],
        ] {
            let with = |more: &[&str]| parse(&[command, more].concat());
            assert!(
                with(&["--operator", "kube-system/karpenter"]).is_ok(),
                "{command:?}"
            );
            assert!(with(&["--operator", "karpenter"]).is_err(), "{command:?}");
            assert!(
                with(&["--feature-gates", "NodeOverlay=true"]).is_ok(),
                "{command:?}"
            );
        }
        assert!(parse(&["plan", "-f", "x", "--operator", "a/b"]).is_err());
        assert!(parse(&["plan", "-f", "x", "--reserved-enis", "1"]).is_ok());
    }
}
