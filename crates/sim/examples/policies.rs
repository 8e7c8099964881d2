//! What churning clusters launch, move and pay with and without a DisruptionPolicy: `cargo run --release -p spokeshave-sim --example policies -- [CASE…]`.
//!
//! Prints the table of docs/policies.md and fails when a figure is worse than in `crates/sim/policies.json`; `--write` writes both instead.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser as _;
use spokeshave_sim::performance::churn::{CASES, Case, Churn, POLICIES, Table, live, markdown};

/// As in the product; unoptimised it is slower than the system's.
#[cfg(not(debug_assertions))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What churning clusters launch, move and pay with and without a DisruptionPolicy.
#[derive(clap::Parser)]
#[command(name = "policies")]
struct Arguments {
    /// Cases; all of them unless named
    cases: Vec<String>,
    /// Write figures and table down instead of comparing them
    #[arg(long)]
    write: bool,
    /// Live this seed, and compare nothing
    #[arg(long)]
    seed: Option<u64>,
}

const SEED: u64 = 1;

fn run(case: &Case, policy: Option<&str>, seed: u64) -> Result<Churn, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(live(case, policy, seed))
}

type Done = (&'static str, &'static str, Result<Churn, String>);

/// All runs, as many at once as there are processors.
fn run_all(cases: &[Case], seed: u64) -> Vec<Done> {
    let jobs: Vec<(Case, (&'static str, Option<&'static str>))> = cases
        .iter()
        .flat_map(|case| POLICIES.iter().map(move |policy| (*case, *policy)))
        .collect();
    let next = Mutex::new(jobs.iter());
    let done: Mutex<Vec<Done>> = Mutex::default();
    let poisoned = "a run panicked";
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some((case, (name, policy))) = next.lock().expect(poisoned).next() else {
                        break;
                    };
                    let churn = run(case, *policy, seed);
                    eprintln!("{} with {name}: {churn:?}", case.name);
                    done.lock().expect(poisoned).push((case.name, name, churn));
                }
            });
        }
    });
    done.into_inner().expect(poisoned)
}

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Replaces what stands between the marks in docs/policies.md.
fn publish(table: &Table) -> Result<(), String> {
    let path = file("../../docs/policies.md");
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let (head, rest) = text
        .split_once("<!-- figures -->\n")
        .ok_or("docs/policies.md has no mark `figures`")?;
    let (_, tail) = rest
        .split_once("<!-- end of figures -->")
        .ok_or("docs/policies.md has no mark `end of figures`")?;
    let text = format!(
        "{head}<!-- figures -->\n{}<!-- end of figures -->{tail}",
        markdown(table)
    );
    std::fs::write(path, text).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let wanted: Vec<Case> = CASES
        .into_iter()
        .filter(|case| arguments.cases.is_empty() || arguments.cases.iter().any(|name| name == case.name))
        .collect();
    if wanted.is_empty() {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        eprintln!("policies: no such case; there are: {}", names.join(", "));
        return ExitCode::from(2);
    }
    let text = std::fs::read_to_string(file("policies.json")).unwrap_or_else(|_| "{}".to_owned());
    let mut table: Table = match serde_json::from_str(&text) {
        Ok(table) => table,
        Err(error) => {
            eprintln!("policies: crates/sim/policies.json: {error}");
            return ExitCode::from(2);
        }
    };
    let mut found = Table::new();
    let mut fine = true;
    for (case, policy, churn) in run_all(&wanted, arguments.seed.unwrap_or(SEED)) {
        match churn {
            Ok(churn) => {
                found
                    .entry(case.to_owned())
                    .or_default()
                    .insert(policy.to_owned(), churn);
            }
            Err(why) => {
                println!("{case} with {policy}: {why}");
                fine = false;
            }
        }
    }
    println!("{}", markdown(&found));
    if arguments.seed.is_some() {
        return if fine {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    for (case, runs) in found {
        for (policy, churn) in runs {
            let before = table.get(&case).and_then(|runs| runs.get(&policy));
            match before.filter(|_| !arguments.write) {
                Some(before) => {
                    for worse in churn.worse_than(before) {
                        println!("{case} with {policy}: {worse}");
                        fine = false;
                    }
                }
                None if arguments.write => {
                    table.entry(case.clone()).or_default().insert(policy, churn);
                }
                None => println!("{case} with {policy}: no committed figures yet; --write makes them"),
            }
        }
    }
    if arguments.write && fine {
        let text = serde_json::to_string_pretty(&table).unwrap_or_default() + "\n";
        let written = std::fs::write(file("policies.json"), text).map_err(|error| error.to_string());
        if let Err(error) = written.and_then(|()| publish(&table)) {
            eprintln!("policies: {error}");
            fine = false;
        }
    }
    if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
