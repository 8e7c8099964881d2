//! Arguments of `spokeshave up`.
//!
//! Owns how they are written and read. What is done with them is the command's.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use crate::arguments::{DefinitionsOf, parse_duration};
use crate::settings::{FeatureGates, parse_feature_gates};

/// Shown below the help of the command.
pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave up --demo                              run the scripted demo (about five minutes)
  spokeshave up                                     then: KUBECONFIG=spokeshave.kubeconfig kubectl get nodes -w
  spokeshave up --bare -f my-nodepools.yaml         your own NodePools only
  spokeshave up --speed 60 -f cluster/              an hour of cluster time in each minute";

/// Arguments of `up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Where to write the kubeconfig once the server is up; it is removed at exit. A file that points to another running cluster is not overwritten
    #[arg(long, value_name = "FILE", default_value = "spokeshave.kubeconfig", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: PathBuf,
    /// Manifests to apply at the start: a YAML or JSON file, or a directory of them; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) filenames: Vec<PathBuf>,
    /// Run a workload that grows and shrinks, and print what happens
    #[arg(long)]
    pub(crate) demo: bool,
    /// The cloud that the cluster runs on: kwok, whose nodes are only objects, or EC2 or Azure, simulated in this process
    #[arg(long, value_name = "NAME", value_enum, default_value = "kwok")]
    pub(crate) cloud: DefinitionsOf,
    /// Name of the cluster, with --cloud aws (value of the tag karpenter.sh/discovery on its subnets and security groups) and azure
    #[arg(long, value_name = "NAME", default_value = "rehearsal")]
    pub(crate) cluster_name: String,
    /// Do not create the default NodePool and NodeClass
    #[arg(long, conflicts_with = "demo")]
    pub(crate) bare: bool,
    /// Do not start the operator; run it separately with spokeshave operator --kubeconfig FILE
    #[arg(long, conflicts_with = "demo")]
    pub(crate) no_operator: bool,
    /// Run cluster time this many times faster than the wall clock
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_speed)]
    pub(crate) speed: f64,
    /// Instance-type catalog to use, in the format of instance_types.json; by default the kwok provider's 144 types. Only with --cloud kwok
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) catalog: Option<PathBuf>,
    /// Feature gates, as for `operator`: NodeOverlay=true,CapacityBuffer=true
    #[arg(long, value_name = "GATES", value_parser = parse_feature_gates, conflicts_with = "no_operator")]
    pub(crate) feature_gates: Option<FeatureGates>,
    /// Exit after this much wall-clock time, such as 90s or 2m; with --demo as soon as its story is told, and with an error if it is not told by then
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) exit_after: Option<Duration>,
    /// Address of the web page; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) web: SocketAddr,
    /// Do not serve the web page
    #[arg(long, conflicts_with = "web")]
    pub(crate) no_web: bool,
    /// Seed of everything random: names, identifiers, jitter
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// How much the controllers log to standard error, besides the lines about decisions
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "error")]
    pub(crate) log_level: UpLogLevel,
}

/// Log levels of `up`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UpLogLevel {
    /// Everything, for developers
    Debug,
    /// One line per state change
    Info,
    /// Errors only
    Error,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if speed.is_finite() && (0.01..=100_000.0).contains(&speed) {
        Ok(speed)
    } else {
        Err("expected a number from 0.01 to 100000".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_a_positive_number() {
        assert_eq!(parse_speed("20"), Ok(20.0));
        assert_eq!(parse_speed("0.5"), Ok(0.5));
        for bad in ["0", "-1", "NaN", "inf", "fast", ""] {
            assert!(parse_speed(bad).is_err(), "{bad:?} must be refused");
        }
    }
}
