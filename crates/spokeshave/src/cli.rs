//! The command line: what a user may type, and nothing else.
//!
//! Owns argument parsing and help texts. It never does work: each command becomes a plain struct for its module.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use jiff::Timestamp;

use crate::arguments::{OperatorCloud, OutputFormat, parse_duration};
use crate::settings::{FeatureGates, SettingsArgs, parse_feature_gates};
use crate::{adopt, convert, doctor, explain, freeze, plan, providers, rollout, simulate, top, web};

/// A node autoscaler for Kubernetes, compatible with Karpenter.
///
/// Spokeshave launches nodes for pods that do not fit and removes nodes that are no longer needed. It reads YAML written for
/// karpenter.sh/v1 unchanged.
#[derive(Debug, Parser)]
#[command(
    name = "spokeshave",
    version,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The command line of the program under the name by which it was called: as `kubectl-spokeshave` it is a plugin of kubectl, and help says so.
    pub(crate) fn called_as(program: Option<&OsStr>) -> clap::Command {
        let command = Self::command();
        match program.map(Path::new).and_then(Path::file_stem) {
            Some(name) if name == "kubectl-spokeshave" => command.bin_name("kubectl spokeshave"),
            _ => command,
        }
    }
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, or stopped by Ctrl-C or SIGTERM; 1 failed, with the reason on standard error; 2 the command line is wrong;
3 `budgets`, `doctor` or `provider-sanity` has found an error, `convert` or `adopt` something that has to be settled by hand, or an
expectation of `simulate` does not hold; 130 `simulate` was interrupted.
Standard output carries data, standard error carries everything that is said to you.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bring up a whole cluster in this process: API server, simulated nodes, all controllers; its state is in memory only
    #[command(after_help = UP_EXAMPLES)]
    Up(UpArgs),
    /// Run the controllers against a cluster
    #[command(after_help = OPERATOR_EXAMPLES)]
    Operator(OperatorArgs),
    /// Show what would be launched and disrupted, for a dump or for the cluster that is there
    #[command(after_help = plan::EXAMPLES)]
    Plan(plan::PlanArgs),
    /// Tell the story of a node, nodeclaim, nodepool or pod: what keeps it, what it waits for, what comes next
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::ExplainArgs),
    /// Show what disruption budgets allow and when, and what is wrong with them
    #[command(after_help = BUDGETS_EXAMPLES)]
    Budgets(BudgetsArgs),
    /// Show the cluster in a browser: nodes, what keeps them, what would happen without that, cost over time; read-only
    #[command(after_help = web::EXAMPLES)]
    Web(web::WebArgs),
    /// Show the nodes in the terminal: requests, price, and what keeps each; `--once` prints them and ends
    #[command(after_help = top::EXAMPLES)]
    Top(top::TopArgs),
    /// Live days or weeks of a cluster under several policies, and compare cost, evictions and waiting
    #[command(after_help = simulate::EXAMPLES)]
    Simulate(Box<simulate::SimulateArgs>),
    /// Write down what the workloads of a cluster do, for `simulate`
    #[command(after_help = simulate::RECORD_EXAMPLES)]
    Record(simulate::RecordArgs),
    /// Find what is wrong for good: budgets that can never allow an eviction, NodePools that nothing can use, and the like
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(doctor::DoctorArgs),
    /// Find what would happen if this operator took over a cluster that Karpenter runs, and what has to be settled first
    #[command(after_help = adopt::EXAMPLES)]
    Adopt(adopt::AdoptArgs),
    /// Turn manifests of older versions and of other autoscalers into karpenter.sh/v1, with a report
    #[command(after_help = convert::EXAMPLES)]
    Convert(convert::ConvertArgs),
    /// Stop all voluntary disruption until a time, or until `thaw`
    #[command(after_help = freeze::EXAMPLES)]
    Freeze(freeze::FreezeArgs),
    /// Take a freeze away
    Thaw(freeze::ThawArgs),
    /// Show drift in waves, pause it, let it go on, approve its next wave
    #[command(after_help = rollout::EXAMPLES)]
    Rollout(rollout::RolloutArgs),
    /// Check a provider that is a process of its own: every promise that it breaks, by name
    #[command(after_help = providers::SANITY_EXAMPLES)]
    ProviderSanity(providers::SanityArgs),
    /// Serve a provider of this program to an operator in another process
    ProviderServe(providers::ServeArgs),
    /// Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`
    Crds {
        /// The cloud whose kinds are printed besides the common ones
        #[arg(long, value_name = "NAME", value_enum, default_value = "kwok")]
        cloud_provider: PrintedDefinitions,
    },
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page, for `man -l -`
    Man {
        /// The command that it is about; by default the program as a whole
        command: Option<String>,
    },
}

const UP_EXAMPLES: &str = "\
Examples:
  spokeshave up --demo                              watch a story of about a minute
  spokeshave up                                     then: KUBECONFIG=spokeshave.kubeconfig kubectl get nodes -w
  spokeshave up --bare -f my-nodepools.yaml         your own NodePools only
  spokeshave up --speed 60 -f cluster/              an hour of cluster time in each minute";

const OPERATOR_EXAMPLES: &str = "\
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

const BUDGETS_EXAMPLES: &str = "\
Examples:
  spokeshave budgets                                the next two weeks of every NodePool of the cluster
  spokeshave budgets -f nodepools.yaml --nodes 20   before it is applied, for pools of 20 nodes
  spokeshave budgets -f nodepools.yaml -o json      for machines; docs/budgets.md names every field

Nothing is changed. Exit code 0 when nothing is wrong or only warnings and notes are due; 3 with a finding of level error.";

/// Arguments of `budgets`.
#[derive(Debug, Args)]
pub(crate) struct BudgetsArgs {
    /// NodePools to look at; by default all
    #[arg(value_name = "NODEPOOL")]
    pub(crate) node_pools: Vec<String>,
    /// Read NodePools (and Nodes and NodeClaims, if there are any) from a YAML or JSON file or a directory instead of the cluster, - for
    /// standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) filenames: Vec<PathBuf>,
    /// Kubeconfig of the cluster; by default $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "filenames")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How many days to look ahead
    #[arg(long, value_name = "N", default_value = "14", value_parser = clap::value_parser!(u16).range(1..=366))]
    pub(crate) days: u16,
    /// Take percentages of this many nodes instead of those that are there
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,
    /// The instant to begin at, such as 2026-01-31T12:00:00Z; by default the present
    #[arg(long, value_name = "RFC3339")]
    pub(crate) now: Option<Timestamp>,
    /// What to print
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "table")]
    pub(crate) output: OutputFormat,
}

/// Arguments of `up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Where to write the kubeconfig, once the server answers; it is removed again at the end, and refused while it leads to a cluster that runs
    #[arg(long, value_name = "FILE", default_value = "spokeshave.kubeconfig", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: PathBuf,
    /// Manifests to apply at the start: a YAML or JSON file, or a directory of them; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) filenames: Vec<PathBuf>,
    /// Run a workload that grows and shrinks, and tell what happens
    #[arg(long)]
    pub(crate) demo: bool,
    /// The cloud that the cluster runs on: kwok, whose nodes are objects, or an EC2 or an Azure that is simulated in this process
    #[arg(long, value_name = "NAME", value_enum, default_value = "kwok")]
    pub(crate) cloud: DefinitionsOf,
    /// Name of the cluster, with --cloud aws (value of the tag karpenter.sh/discovery on its subnets and security groups) and azure
    #[arg(long, value_name = "NAME", default_value = "rehearsal")]
    pub(crate) cluster_name: String,
    /// Do not create the default NodePool and NodeClass
    #[arg(long, conflicts_with = "demo")]
    pub(crate) bare: bool,
    /// Everything but the operator, for one that runs apart: spokeshave operator --kubeconfig FILE
    #[arg(long, conflicts_with = "demo")]
    pub(crate) no_operator: bool,
    /// Run cluster time this many times faster than the wall clock
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_speed)]
    pub(crate) speed: f64,
    /// Instance types to sell, in the format of instance_types.json; by default the kwok provider's 144 types. Only with --cloud kwok
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) catalog: Option<PathBuf>,
    /// What is off unless asked for, as for the operator: NodeOverlay=true,CapacityBuffer=true
    #[arg(long, value_name = "GATES", value_parser = parse_feature_gates, conflicts_with = "no_operator")]
    pub(crate) feature_gates: Option<FeatureGates>,
    /// Stop after this much wall time, such as 90s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) exit_after: Option<Duration>,
    /// Address of the page; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) web: SocketAddr,
    /// Serve no page
    #[arg(long, conflicts_with = "web")]
    pub(crate) no_web: bool,
    /// Seed of everything random: names, identifiers, jitter
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// How much the controllers log to standard error, beside the lines of decisions
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
    /// Only what went wrong
    Error,
}

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
    pub(crate) provider: providers::AddressArgs,
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

/// Clouds that have kinds of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DefinitionsOf {
    /// Nodes without machines: KWOKNodeClass and KWOKInstance
    Kwok,
    /// EC2: EC2NodeClass
    Aws,
    /// Azure's virtual machines: AKSNodeClass
    Azure,
}

impl From<DefinitionsOf> for spokeshave_api::crds::Cloud {
    fn from(cloud: DefinitionsOf) -> Self {
        match cloud {
            DefinitionsOf::Kwok => Self::Kwok,
            DefinitionsOf::Aws => Self::Aws,
            DefinitionsOf::Azure => Self::Azure,
        }
    }
}

/// Clouds whose kinds can be printed: also those that the operator cannot launch nodes at yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrintedDefinitions {
    /// Nodes without machines: KWOKNodeClass and KWOKInstance
    Kwok,
    /// EC2: EC2NodeClass
    Aws,
    /// Azure: AKSNodeClass, so that manifests with it apply
    Azure,
}

impl From<PrintedDefinitions> for spokeshave_api::crds::Cloud {
    fn from(cloud: PrintedDefinitions) -> Self {
        match cloud {
            PrintedDefinitions::Kwok => Self::Kwok,
            PrintedDefinitions::Aws => Self::Aws,
            PrintedDefinitions::Azure => Self::Azure,
        }
    }
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
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn speed_is_a_positive_number() {
        assert_eq!(parse_speed("20"), Ok(20.0));
        assert_eq!(parse_speed("0.5"), Ok(0.5));
        for bad in ["0", "-1", "NaN", "inf", "fast", ""] {
            assert!(parse_speed(bad).is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn demo_needs_the_default_node_pool() {
        assert!(Cli::try_parse_from(["spokeshave", "up", "--demo", "--bare"]).is_err());
    }
}
