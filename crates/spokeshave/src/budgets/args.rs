//! Arguments of `spokeshave budgets`.
//!
//! Owns how they are written. What is done with them is the command's.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use jiff::Timestamp;

use crate::arguments::OutputFormat;
use crate::connection::ClusterArgs;

/// Shown below the help of the command.
pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave budgets                                the next two weeks of every NodePool of the cluster
  spokeshave budgets -f nodepools.yaml --nodes 20   before it is applied, for pools of 20 nodes
  spokeshave budgets -f nodepools.yaml -o json      for programs; docs/budgets.md lists every field

It is read-only. Exit code 0 without findings or with warnings and notes only; 3 with a finding of level error.";

/// Arguments of `budgets`.
#[derive(Debug, Args)]
pub(crate) struct BudgetsArgs {
    /// NodePools to show; by default all
    #[arg(value_name = "NODEPOOL")]
    pub(crate) node_pools: Vec<String>,
    /// Read NodePools (and Nodes and NodeClaims, if there are any) from a YAML or JSON file or a directory instead of the cluster, - for
    /// standard input; may be repeated
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
    /// How many days to look ahead
    #[arg(long, value_name = "N", default_value = "14", value_parser = clap::value_parser!(u16).range(1..=366))]
    pub(crate) days: u16,
    /// Compute percentages of this many nodes instead of those in the cluster
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,
    /// The time at which to start, such as 2026-01-31T12:00:00Z; by default now
    #[arg(long, value_name = "RFC3339")]
    pub(crate) now: Option<Timestamp>,
    /// What to print
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "table")]
    pub(crate) output: OutputFormat,
}
