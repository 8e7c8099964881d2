//! The command line: what a user may type, and nothing else.
//!
//! Owns the list of commands. Arguments and examples of a command are in its own module, which never imports this one.

use std::ffi::OsStr;
use std::path::Path;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::arguments::DefinitionsOf;
#[cfg(feature = "embedded")]
use crate::up;
use crate::{
    adopt, budgets, convert, doctor, explain, freeze, operate, plan, providers, rollout, simulate, top, web,
};

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
    /// The command line of the program under the name by which it was called: as `kubectl-spokeshave` it is a kubectl plugin, which is reflected in its help.
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
3 `budgets`, `doctor` or `provider-sanity` found an error, `convert` or `adopt` found something to resolve by hand, or an
expectation of `simulate` does not hold; 130 `simulate` was interrupted.
Standard output carries data; messages go to standard error.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole cluster in this process: API server, simulated nodes, all controllers; its state is kept in memory only
    #[cfg(feature = "embedded")]
    #[command(after_help = up::EXAMPLES)]
    Up(up::UpArgs),
    /// Run the controllers against a cluster
    #[command(after_help = operate::EXAMPLES)]
    Operator(operate::OperatorArgs),
    /// Show what would be launched and disrupted, for a dump or the current cluster
    #[command(after_help = plan::EXAMPLES)]
    Plan(plan::PlanArgs),
    /// Explain the state of a node, nodeclaim, nodepool or pod: why it is kept, what it is waiting for, what happens next
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::ExplainArgs),
    /// Show what disruption budgets allow and when, and lint them
    #[command(after_help = budgets::EXAMPLES)]
    Budgets(budgets::BudgetsArgs),
    /// Show the cluster in a browser: nodes, what blocks their removal, what would happen without it, cost over time; read-only
    #[command(after_help = web::EXAMPLES)]
    Web(web::WebArgs),
    /// Show the nodes in the terminal: requests, price, and what blocks the removal of each; `--once` prints one table and exits
    #[command(after_help = top::EXAMPLES)]
    Top(top::TopArgs),
    /// Simulate days or weeks of a cluster under several policies, and compare cost, evictions and waiting times
    #[command(after_help = simulate::EXAMPLES)]
    Simulate(Box<simulate::SimulateArgs>),
    /// Record the workloads of a cluster over time, for `simulate`
    #[command(after_help = simulate::RECORD_EXAMPLES)]
    Record(simulate::RecordArgs),
    /// Find problems that will not resolve on their own, such as budgets that can never allow an eviction and NodePools that no pod can use
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(doctor::DoctorArgs),
    /// Show what would happen if this operator took over a cluster that Karpenter manages, and what must be resolved first
    #[command(after_help = adopt::EXAMPLES)]
    Adopt(adopt::AdoptArgs),
    /// Convert manifests of older versions and of other autoscalers to karpenter.sh/v1, with a report
    #[command(after_help = convert::EXAMPLES)]
    Convert(convert::ConvertArgs),
    /// Stop all voluntary disruption until a time, or until `thaw`
    #[command(after_help = freeze::EXAMPLES)]
    Freeze(freeze::FreezeArgs),
    /// Remove a freeze
    Thaw(freeze::ThawArgs),
    /// Show a staged rollout of drift; pause, resume or approve it
    #[command(after_help = rollout::EXAMPLES)]
    Rollout(rollout::RolloutArgs),
    /// Run the conformance checks against an out-of-process provider
    #[command(after_help = providers::SANITY_EXAMPLES)]
    ProviderSanity(providers::SanityArgs),
    /// Serve a built-in provider to an operator in another process
    #[command(override_usage = providers::SERVE_USAGE)]
    ProviderServe(providers::ServeArgs),
    /// Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`
    Crds {
        /// The cloud whose CRDs are printed in addition to the common ones
        #[arg(long, value_name = "NAME", value_enum, default_value = "kwok")]
        cloud_provider: DefinitionsOf,
    },
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page, for `man -l -`
    Man {
        /// The command to describe; by default the whole program
        command: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::connection::ClusterArgs;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// A command and those below it.
    fn with_its_own(command: &clap::Command) -> Vec<&clap::Command> {
        let below = command.get_subcommands().flat_map(with_its_own);
        std::iter::once(command).chain(below).collect()
    }

    #[test]
    fn what_takes_a_kubeconfig_takes_a_context_and_neither_with_files() {
        let program = Cli::command();
        let mut reaching = Vec::new();
        for command in with_its_own(&program) {
            let find = |id: &str| command.get_arguments().find(|argument| argument.get_id() == id);
            let name = command.get_name();
            // `up` writes one.
            if name == "up" || ClusterArgs::IDS.into_iter().all(|id| find(id).is_none()) {
                continue;
            }
            reaching.push(name);
            for id in ClusterArgs::IDS {
                assert!(find(id).is_some(), "{name} --{id}");
                let Some(filenames) = find("filenames") else {
                    continue;
                };
                let excluded = command.get_arg_conflicts_with(filenames);
                assert!(
                    excluded.iter().any(|argument| argument.get_id() == id),
                    "{name} -f with --{id}"
                );
            }
        }
        for name in ["operator", "plan", "web", "init", "record", "thaw"] {
            assert!(reaching.contains(&name), "{name} of {reaching:?}");
        }
    }

    #[test]
    fn a_dump_is_in_no_context_and_a_context_has_a_name() {
        let refused = |words: &[&str]| {
            let words = [&["spokeshave", "web"], words].concat();
            let error = Cli::try_parse_from(words).expect_err("refused");
            (error.kind(), error.to_string())
        };
        for (flag, value) in [("--kubeconfig", "<FILE>"), ("--context", "<NAME>")] {
            let (kind, text) = refused(&["-f", "dump.yaml", flag, "staging"]);
            assert_eq!(kind, ErrorKind::ArgumentConflict, "{text}");
            assert!(text.contains(&format!("'{flag} {value}'")), "{text}");
            assert_eq!(
                ["--kubeconfig", "--context"].map(|other| text.contains(other)),
                [flag == "--kubeconfig", flag == "--context"],
                "only what was given: {text}"
            );
        }
        // As of a variable that is not set: the current context might be another cluster.
        let (kind, text) = refused(&["--context", ""]);
        assert_eq!(kind, ErrorKind::InvalidValue, "{text}");
    }

    #[test]
    fn a_rollout_takes_its_cluster_before_and_after_the_subcommand() {
        let both = ["--kubeconfig", "file", "--context", "staging"];
        for words in [
            [&["spokeshave", "rollout"], &both[..], &["pause", "careful"]].concat(),
            [&["spokeshave", "rollout", "pause", "careful"], &both[..]].concat(),
        ] {
            let Command::Rollout(args) = Cli::try_parse_from(&words).expect("a command line").command else {
                panic!("{words:?}");
            };
            assert_eq!(args.cluster.context.as_deref(), Some("staging"), "{words:?}");
            let kubeconfig = args.cluster.kubeconfig.as_deref();
            assert_eq!(kubeconfig, Some(Path::new("file")), "{words:?}");
        }
    }

    #[cfg(feature = "embedded")]
    #[test]
    fn demo_needs_the_default_node_pool() {
        assert!(Cli::try_parse_from(["spokeshave", "up", "--demo", "--bare"]).is_err());
    }
}
