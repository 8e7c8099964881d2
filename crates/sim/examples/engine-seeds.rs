//! Random worlds in the fast engine of `simulate`, each judged by the independent checker of its event log:
//! `cargo run --release -p spokeshave-sim --example engine-seeds -- 200 [--first-seed S]`.
//!
//! A seed that breaks a promise prints which, and the command that runs it again; `--log FILE` writes the event log of a single seed. `--seconds N` judges what was
//! begun in N seconds. The checker is that of the tests of `simulate`, whose debug build lives ten seeds.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser as _;
use spokeshave_sim::examples::{Patience, command, each, log_of_one, processors};

#[path = "../../simulate/tests/it/promises/mod.rs"]
mod promises;

use promises::report::{Entry, Report, never_judged, tally};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The first worlds, so many of them, have all that there is to judge: the tests of `simulate` live them.
const ENOUGH_FROM_THE_FIRST: usize = 10;
/// Elsewhere ten in a row may leave something out by chance, which so many do not.
const ENOUGH: usize = 100;

/// Lives random worlds in the fast engine, and judges them by their event logs.
#[derive(clap::Parser)]
#[command(name = "engine-seeds")]
struct Arguments {
    /// How many seeds
    #[arg(default_value_t = 200)]
    count: u64,
    /// The first of them
    #[arg(long = "first-seed", value_name = "SEED", default_value_t = 1)]
    first: u64,
    /// Begin no further seed after so many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Seeds at once; by default as many as there are processors
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// File for the event log of a single seed: COUNT has to be 1
    #[arg(long, value_name = "FILE")]
    log: Option<String>,
}

/// What comes of a seed; none if it panicked.
type Outcome = Option<Judged>;

struct Judged {
    report: Report,
    /// Empty where nobody asks for it: logs are large.
    log: Vec<Entry>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let patience = Patience::begin(arguments.seconds);
    let end = arguments.first.saturating_add(arguments.count);
    let jobs = arguments.jobs.map_or_else(processors, usize::from);
    let file = match log_of_one(arguments.log.as_deref(), arguments.count) {
        Ok(file) => file,
        Err(problem) => {
            eprintln!("engine-seeds: {problem}");
            return ExitCode::from(2);
        }
    };
    let run = |seed: u64| {
        let judged = catch_unwind(AssertUnwindSafe(|| promises::judge(seed))).ok();
        let outcome = judged.map(|(lived, report)| Judged {
            report,
            log: if file.is_some() { lived.log } else { Vec::new() },
        });
        tell(seed, &outcome);
        outcome
    };
    let outcomes = each(arguments.first..end, jobs, patience, run, |_| {});
    let code = summary(&arguments, &outcomes);
    if let Some(file) = file
        && let Some(Some(judged)) = outcomes.values().next()
        && let Err(error) = write(file, &judged.log)
    {
        eprintln!("engine-seeds: cannot write {file}: {error}");
        return ExitCode::FAILURE;
    }
    code
}

fn write(file: &str, log: &[Entry]) -> std::io::Result<()> {
    let lines = log
        .iter()
        .map(|one| format!("{} {} {} {}\n", one.at_ms, one.what, one.of, one.more));
    std::fs::write(file, lines.collect::<String>())
}

fn is_clean(outcome: &Outcome) -> bool {
    outcome
        .as_ref()
        .is_some_and(|judged| judged.report.broken.is_empty())
}

/// Whether what was never judged, among so many from there, says that nothing judges it any more.
fn is_enough(first: u64, lived: usize) -> bool {
    let enough = if first == 1 { ENOUGH_FROM_THE_FIRST } else { ENOUGH };
    lived >= enough
}

fn tell(seed: u64, outcome: &Outcome) {
    if is_clean(outcome) {
        return;
    }
    match outcome {
        None => println!("seed {seed}: panicked"),
        Some(judged) => {
            println!("seed {seed}:");
            for broken in &judged.report.broken {
                println!("  {broken}");
            }
        }
    }
    println!("  again: {} 1 --first-seed {seed}", command("engine-seeds"));
}

fn summary(arguments: &Arguments, outcomes: &BTreeMap<u64, Outcome>) -> ExitCode {
    let (lived, count) = (outcomes.len(), arguments.count);
    let reports = outcomes.values().flatten().map(|judged| &judged.report);
    let judged = tally(reports);
    let clean = outcomes.values().filter(|outcome| is_clean(outcome)).count();
    println!(
        "engine-seeds: {clean} of {lived} seeds from {} are clean; {} promises were judged {} times",
        arguments.first,
        judged.len(),
        judged.values().sum::<u64>()
    );
    if let Some(seconds) = arguments.seconds
        && u64::try_from(lived).is_ok_and(|lived| lived < count)
    {
        println!("engine-seeds: {lived} of {count} seeds lived; no further one was begun after {seconds} s");
    }
    let never = never_judged(&judged);
    if !never.is_empty() {
        println!("engine-seeds: never judged: {never:?}");
    }
    let has_judged_all = never.is_empty() || !is_enough(arguments.first, lived);
    if clean == lived && has_judged_all && (lived > 0 || count == 0) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
