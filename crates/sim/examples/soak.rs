//! Runs many seeds of simulated cluster life: `cargo run --release -p spokeshave-sim --example soak -- 200 [--first-seed S]`.
//!
//! Without `--first-seed` the seeds are fresh ones: derived from the commit in `--commit`, so that they are reproducible, or random. A
//! failing seed prints what it broke and the command that runs it again; `--log FILE` writes the log of a single seed. `--seconds N` judges what was begun in
//! N seconds: who ends the program from outside loses what it has found.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser as _;
use spokeshave_provider_grpc::Way;
use spokeshave_sim::examples::{Patience, command, each, log_of_one, processors};
use spokeshave_sim::rehearsal;
use spokeshave_sim::soak::{self, RunOptions, SeedResult};

/// Most of a run is small objects that come and go.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Lives seeds of simulated cluster life, with the invariants checked at every step.
#[derive(clap::Parser)]
#[command(name = "soak")]
struct Arguments {
    /// How many seeds
    #[arg(default_value_t = 20)]
    count: u64,
    /// The first of them; without it they are fresh ones, drawn from the commit if it is named and else from chance
    #[arg(long = "first-seed", value_name = "SEED")]
    first: Option<u64>,
    /// Draw the first of them from chance, although the commit is named
    #[arg(long, conflicts_with = "first")]
    fresh: bool,
    /// The version that is run, as the summary says it
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,
    /// Begin no further seed after so many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Seeds at once; by default as many as there are processors
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// File for the log of a single seed: COUNT has to be 1
    #[arg(long, value_name = "FILE")]
    log: Option<String>,
    /// The cloud that the seeds live on
    #[arg(long, value_name = "NAME", default_value = "kwok")]
    cloud: CloudName,
    /// Let operators reach their provider through the provider protocol, as if it ran out of process
    #[arg(long)]
    protocol: bool,
    /// The same over a genuine unix socket; two runs of a seed may differ
    #[arg(long, conflicts_with = "protocol")]
    socket: bool,
    /// Let waiting pods name the nodes that they were planned on
    #[arg(long)]
    nominate: bool,
    /// Write into the log what scheduler, kubelets and workload controllers do, too
    #[arg(long, requires = "log")]
    log_cluster: bool,
    /// Say on standard error what the operator says
    #[arg(long)]
    trace: bool,
}

/// A cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CloudName {
    /// Nodes without machines
    Kwok,
    /// The AWS provider on the simulated EC2
    Aws,
    /// The provider for Azure on the simulated Azure
    Azure,
}

impl CloudName {
    fn run(self, seed: u64, options: RunOptions) -> SeedResult {
        match self {
            Self::Kwok => soak::run_with(seed, options),
            Self::Aws => rehearsal::run_with(rehearsal::CloudName::Aws, seed, options),
            Self::Azure => rehearsal::run_with(rehearsal::CloudName::Azure, seed, options),
        }
    }
}

/// Below this are the seeds that were fixed until they passed: they only catch regressions.
const FIRST_FRESH: u64 = 1_000_000;
/// Draws are this far apart, so that two ranges hardly overlap.
const DRAWS_APART: u64 = 10_000;

/// The first of the fresh seeds of a draw.
fn drawn(number: u64) -> u64 {
    FIRST_FRESH + (number % 1_000_000_000) * DRAWS_APART
}

/// A number that names a commit.
fn fingerprint(commit: &str) -> u64 {
    let start: u64 = 0xcbf2_9ce4_8422_2325;
    let hash = commit.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 29)
}

impl Arguments {
    /// Arguments that say where seeds live.
    fn world(&self) -> String {
        let cloud = match self.cloud {
            CloudName::Kwok => "",
            CloudName::Aws => " --cloud aws",
            CloudName::Azure => " --cloud azure",
        };
        let protocol = match self.way() {
            Way::InProcess => "",
            Way::Pipe => " --protocol",
            Way::UnixSocket => " --socket",
        };
        let nominate = if self.nominate { " --nominate" } else { "" };
        format!("{cloud}{protocol}{nominate}")
    }

    fn way(&self) -> Way {
        match (self.protocol, self.socket) {
            (_, true) => Way::UnixSocket,
            (true, false) => Way::Pipe,
            (false, false) => Way::InProcess,
        }
    }

    /// The first seed, and where it comes from.
    fn first_seed(&self) -> (u64, String) {
        match (self.first, &self.commit) {
            (Some(first), _) => (first, "as asked for".to_owned()),
            (None, Some(commit)) if !self.fresh => {
                (drawn(fingerprint(commit)), format!("drawn from commit {commit}"))
            }
            _ => (
                drawn(RandomState::new().build_hasher().finish()),
                "drawn from chance".to_owned(),
            ),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let log = match log_of_one(arguments.log.as_deref(), arguments.count) {
        Ok(log) => log,
        Err(problem) => {
            eprintln!("soak: {problem}");
            return ExitCode::from(2);
        }
    };
    let patience = Patience::begin(arguments.seconds);
    let (first, source) = arguments.first_seed();
    let end = first.saturating_add(arguments.count);
    // Printed at once, so that an aborted run can be repeated.
    eprintln!("soak: {} seed(s) from {first}, {source}", arguments.count);
    let jobs = arguments.jobs.map_or_else(processors, usize::from);
    if arguments.trace {
        let filter = tracing_subscriber::EnvFilter::new("debug,kube=warn,tower=warn");
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .without_time()
            .with_writer(std::io::stderr)
            .init();
    }
    let options = RunOptions {
        keep_log: log.is_some(),
        log_cluster: arguments.log_cluster,
        provider_way: arguments.way(),
        nominate_pods: arguments.nominate,
        ..RunOptions::default()
    };
    let run = |seed: u64| {
        let outcome = catch_unwind(AssertUnwindSafe(|| arguments.cloud.run(seed, options))).map_err(drop);
        tell(seed, outcome.as_ref().ok(), &arguments.world());
        outcome
    };
    let outcomes = each(first..end, jobs, patience, run, progress);
    if let Some(file) = log
        && let Some(Ok(outcome)) = outcomes.values().next()
        && let Err(error) = std::fs::write(file, &outcome.log)
    {
        eprintln!("soak: cannot write {file}: {error}");
        return ExitCode::FAILURE;
    }
    let lived = outcomes.len();
    let count = usize::try_from(arguments.count).unwrap_or(usize::MAX);
    if let Some(seconds) = arguments.seconds
        && lived < count
    {
        println!("soak: {lived} of {count} seeds lived; no further one was begun after {seconds} s");
    }
    if lived == 0 && count > 0 {
        return ExitCode::FAILURE;
    }
    let version = arguments.commit.as_deref().unwrap_or("a version without name");
    summary(&outcomes, version)
}

fn tell(seed: u64, outcome: Option<&SeedResult>, world: &str) {
    let again = again(seed, world);
    let Some(outcome) = outcome else {
        println!("seed {seed}: panicked\n  again: {again}");
        return;
    };
    if outcome.is_clean() {
        return;
    }
    println!("{}", outcome.scenario);
    for violation in &outcome.violations {
        println!("  {violation}");
    }
    for problem in outcome.refused.iter().chain(&outcome.stuck) {
        println!("  {problem}");
    }
    println!("  again: {again}");
}

/// The command that runs a seed again.
fn again(seed: u64, world: &str) -> String {
    let program = command("soak");
    format!("{program} 1 --first-seed {seed}{world}")
}

/// Progress output.
fn progress(outcomes: &BTreeMap<u64, Result<SeedResult, ()>>) {
    if outcomes.len().is_multiple_of(20) {
        let clean = outcomes
            .values()
            .filter(|outcome| matches!(outcome, Ok(outcome) if outcome.is_clean()));
        eprintln!("soak: {} seeds lived, {} clean", outcomes.len(), clean.count());
    }
}

fn summary(outcomes: &BTreeMap<u64, Result<SeedResult, ()>>, version: &str) -> ExitCode {
    let done = outcomes.values().filter_map(|outcome| outcome.as_ref().ok());
    let hours: u64 = done.clone().map(|outcome| outcome.lasted.as_secs() / 3600).sum();
    let steps: usize = done.clone().map(|outcome| outcome.steps).sum();
    let requests: u64 = done.clone().map(|outcome| outcome.requests).sum();
    let clean = done.filter(|outcome| outcome.is_clean()).count();
    let failed = outcomes.len() - clean;
    println!(
        "soak: seeds {} to {} with {version}: {} run, {clean} clean, {failed} failed; {hours} hours of cluster life, {steps} troubles, {requests} requests",
        outcomes.keys().next().copied().unwrap_or_default(),
        outcomes.keys().next_back().copied().unwrap_or_default(),
        outcomes.len()
    );
    let mut broken: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (seed, outcome) in outcomes {
        match outcome {
            Err(()) => broken.entry("panicked".to_owned()).or_default().push(*seed),
            Ok(outcome) => {
                for violation in &outcome.violations {
                    let seeds = broken
                        .entry(format!("invariant {}", violation.invariant))
                        .or_default();
                    if seeds.last() != Some(seed) {
                        seeds.push(*seed);
                    }
                }
                if outcome.refused.is_some() {
                    let seeds = broken.entry("refused by the audit".to_owned());
                    seeds.or_default().push(*seed);
                }
                if outcome.stuck.is_some() {
                    broken.entry("not settled".to_owned()).or_default().push(*seed);
                }
            }
        }
    }
    for (what, seeds) in &broken {
        let few: Vec<String> = seeds.iter().take(12).map(u64::to_string).collect();
        println!("  {what}: {} seed(s): {}", seeds.len(), few.join(" "));
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
