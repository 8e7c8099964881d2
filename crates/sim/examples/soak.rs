//! Runs many seeds of simulated cluster life: `cargo run --release -p spokeshave-sim --example soak -- 200 [--first-seed S]`.
//!
//! A failing seed prints what it broke and the command that runs it again; `--log FILE` writes the log of a single seed.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser as _;
use spokeshave_sim::soak::{Outcome, RunOptions, run_with};

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
    /// The first of them
    #[arg(long = "first-seed", value_name = "SEED", default_value_t = 1)]
    first: u64,
    /// Seeds at once; by default as many as there are processors
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Where the log of a single seed goes
    #[arg(long, value_name = "FILE")]
    log: Option<String>,
    /// Say on standard error what the operator says
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or_else(processors, usize::from);
    if arguments.trace {
        let filter = tracing_subscriber::EnvFilter::new("debug,kube=warn,tower=warn");
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .without_time()
            .with_writer(std::io::stderr)
            .init();
    }
    let next = AtomicU64::new(arguments.first);
    let end = arguments.first + arguments.count;
    // Logs are large; only a single seed's is asked for.
    let options = RunOptions {
        keep_log: arguments.log.is_some() && arguments.count == 1,
        ..RunOptions::default()
    };
    let outcomes: Mutex<BTreeMap<u64, Result<Outcome, ()>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let outcome = catch_unwind(AssertUnwindSafe(|| run_with(seed, options))).map_err(drop);
                    tell(seed, outcome.as_ref().ok());
                    let mut outcomes = outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    outcomes.insert(seed, outcome);
                    progress(&outcomes);
                }
            });
        }
    });
    let outcomes = outcomes
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(file) = &arguments.log
        && let Some(Ok(outcome)) = outcomes.values().next()
        && let Err(error) = std::fs::write(file, &outcome.log)
    {
        eprintln!("soak: cannot write {file}: {error}");
        return ExitCode::FAILURE;
    }
    summary(&outcomes)
}

fn tell(seed: u64, outcome: Option<&Outcome>) {
    let Some(outcome) = outcome else {
        println!("seed {seed}: panicked\n  again: just soak 1 --first-seed {seed}");
        return;
    };
    if outcome.is_clean() {
        return;
    }
    println!("{}", outcome.scenario);
    for violation in &outcome.violations {
        println!("  {violation}");
    }
    if let Some(stuck) = &outcome.stuck {
        println!("  {stuck}");
    }
    println!("  again: just soak 1 --first-seed {seed}");
}

/// A word now and then to whoever waits.
fn progress(outcomes: &BTreeMap<u64, Result<Outcome, ()>>) {
    if outcomes.len().is_multiple_of(20) {
        let clean = outcomes
            .values()
            .filter(|outcome| matches!(outcome, Ok(outcome) if outcome.is_clean()));
        eprintln!("soak: {} seeds lived, {} clean", outcomes.len(), clean.count());
    }
}

fn summary(outcomes: &BTreeMap<u64, Result<Outcome, ()>>) -> ExitCode {
    let done = outcomes.values().filter_map(|outcome| outcome.as_ref().ok());
    let hours: u64 = done.clone().map(|outcome| outcome.lasted.as_secs() / 3600).sum();
    let steps: usize = done.clone().map(|outcome| outcome.steps).sum();
    let requests: u64 = done.clone().map(|outcome| outcome.requests).sum();
    let clean = done.filter(|outcome| outcome.is_clean()).count();
    let failed = outcomes.len() - clean;
    println!(
        "soak: {} seeds, {clean} clean, {failed} failed; {hours} hours of cluster life, {steps} troubles, {requests} requests",
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
