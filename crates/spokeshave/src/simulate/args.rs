//! The command line of `simulate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::hashing::HashArgs;
use crate::arguments::OutputFormat;
use crate::connection::ClusterArgs;
use crate::plan::in_force::container::DeploymentName;

pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave simulate examples/simulate/quick.yaml          three policies, three seeds, one table
  spokeshave simulate month.yaml --check                    what the file means: pods a day, peak cores, events
  spokeshave simulate month.yaml --policy patient --seeds 2 one policy, two seeds
  spokeshave simulate month.yaml --report month.html        charts and figures in one file
  spokeshave simulate month.yaml --events month.jsonl       what was decided and what happened, one JSON object a line
  spokeshave simulate day.yaml --engine full                the operator itself, slower
  spokeshave simulate month.yaml --snapshot-at 12d --snapshot then.json  the cluster then, a dump
  spokeshave simulate -f dump.yaml --for 7d                 a week of the workloads of a dump, without a scenario file
  spokeshave simulate init -f dump.yaml > shop.yaml         a scenario file to edit, from a dump or the cluster

It is read-only. Exit code 0 when every expectation holds; 1 when a file cannot be read; 2 when the scenario is wrong;
3 when an expectation does not hold; 130 after Ctrl-C, with the results of the runs that finished.";

/// What lives a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum EngineName {
    /// An event queue that calls the decision code: weeks in minutes
    #[default]
    Fast,
    /// The operator itself, with an API server, a scheduler and kubelets on virtual time: some tens of times slower
    Full,
}

/// Arguments of `simulate`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SimulateArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SimulateCommand>,
    /// The scenario file
    #[arg(value_name = "SCENARIO", required_unless_present = "filenames", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: Option<PathBuf>,
    /// Instead of a scenario file: a dump whose workloads run as they are, under its own NodePools; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR", value_hint = ValueHint::AnyPath, conflicts_with = "scenario")]
    pub(crate) filenames: Vec<PathBuf>,
    /// How long to simulate a dump, such as 7d or 36h; by default 7d
    #[arg(long = "for", value_name = "DURATION", requires = "filenames", conflicts_with = "scenario", value_parser = duration)]
    pub(crate) duration_ms: Option<u64>,
    /// Run only this policy and the baseline; may be repeated
    #[arg(long = "policy", value_name = "NAME")]
    pub(crate) policies: Vec<String>,
    /// Run seeds 1 to N instead of those in the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) seeds: Option<u32>,
    /// What lives the scenario
    #[arg(long, value_name = "ENGINE", value_enum, default_value = "fast")]
    pub(crate) engine: EngineName,
    /// How many runs in parallel; by default one per core. Does not affect results
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// What to print
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "table")]
    pub(crate) output: OutputFormat,
    /// Write charts and figures to an HTML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    /// Write what was decided and what happened in every run to a file, one JSON object a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) events: Option<PathBuf>,
    /// Write a trace for Perfetto or chrome://tracing to a file: nodes, commands and curves of seed 1 of the first --policy, or else of the baseline
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) perfetto: Option<PathBuf>,
    /// When to write --snapshot, from the start of the scenario, such as 12d9h
    #[arg(long, value_name = "TIME", requires = "snapshot", value_parser = duration)]
    pub(crate) snapshot_at: Option<u64>,
    /// Write the cluster at --snapshot-at to a file, as a dump for plan, explain and web -f: of the same run as --perfetto
    #[arg(long, value_name = "FILE", requires = "snapshot_at", value_hint = ValueHint::FilePath)]
    pub(crate) snapshot: Option<PathBuf>,
    /// Say what the file means and run nothing
    #[arg(long, conflicts_with_all = ["report", "events", "perfetto", "snapshot"])]
    pub(crate) check: bool,
}

/// What `simulate` does besides simulating.
#[derive(Debug, Subcommand)]
pub(crate) enum SimulateCommand {
    /// Write a scenario file for the workloads of a dump or of the cluster
    Init(InitArgs),
}

/// Arguments of `simulate init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Dump or manifests to read: YAML or JSON, a file or a directory; may be repeated. By default the cluster of the kubeconfig
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE|DIR",
        value_hint = ValueHint::AnyPath,
        conflicts_with_all = ClusterArgs::IDS,
        conflicts_with = "hash_names"
    )]
    pub(crate) filenames: Vec<PathBuf>,
    /// The cluster
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Where to write the cluster's workloads and NodePools, which the scenario begins with; by default cluster.json, which must not exist yet
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "filenames")]
    pub(crate) dump: Option<PathBuf>,
    /// Configuration of kube-scheduler (KubeSchedulerConfiguration), as YAML or JSON: the scenario scores nodes as the profile default-scheduler does
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) scheduler_config: Option<PathBuf>,
    /// Deployment of the operator whose settings the policies get; by default the only one in the cluster that runs an operator
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "filenames")]
    pub(crate) operator: Option<DeploymentName>,
    /// Without names
    #[command(flatten)]
    pub(crate) hash: HashArgs,
}

fn duration(text: &str) -> Result<u64, String> {
    match spokeshave_scenario::duration_ms(text) {
        Ok(0) => Err("is 0; expected a duration such as 7d or 36h".to_owned()),
        Ok(milliseconds) if milliseconds > 366 * 86_400_000 => Err("is more than a year (366d)".to_owned()),
        Ok(milliseconds) => Ok(milliseconds),
        Err(problem) => Err(format!("{problem}; expected a duration such as 7d or 36h")),
    }
}
