//! What churning clusters launch, move and pay with and without a DisruptionPolicy: `cargo run --release -p spokeshave-sim --example policies -- [CASE…]`.
//!
//! Prints the tables of docs/policies.md and fails when a figure is worse than in `crates/sim/policies.json` and `crates/sim/guards.json`; `--write` writes
//! all of them instead.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser as _;
use spokeshave_sim::examples::processors;
use spokeshave_sim::performance::churn::{CASES, Case, Churn, POLICIES, Table, live, markdown};
use spokeshave_sim::performance::guard::{
    GUARD_CASES, GuardCase, GuardTable, Guarded, guard_markdown, live_guarded,
};

/// As in the product.
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
    /// Print the commands of each run
    #[arg(long)]
    commands: bool,
}

const SEED: u64 = 1;

fn block_on<T>(future: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(future)
}

/// All runs, as many at once as there are processors, each by what it is of.
fn run_all<J: Copy + Send + Sync, T: std::fmt::Debug + Send>(
    jobs: &[J],
    name: impl Fn(J) -> String + Sync,
    live: impl Fn(J) -> Result<T, String> + Sync,
) -> Vec<(J, Result<T, String>)> {
    let next = Mutex::new(jobs.iter());
    let done: Mutex<Vec<(J, Result<T, String>)>> = Mutex::default();
    let poisoned = "a run panicked";
    std::thread::scope(|scope| {
        for _ in 0..processors() {
            scope.spawn(|| {
                loop {
                    let Some(job) = next.lock().expect(poisoned).next() else {
                        break;
                    };
                    let answer = live(*job);
                    eprintln!("{}: {answer:?}", name(*job));
                    done.lock().expect(poisoned).push((*job, answer));
                }
            });
        }
    });
    done.into_inner().expect(poisoned)
}

/// Figures as they are committed; none where there are none yet, for those that are written for the first time.
fn committed<T: serde::de::DeserializeOwned>(path: &str) -> Result<T, String> {
    let text = std::fs::read_to_string(file(path)).unwrap_or_else(|_| "{}".to_owned());
    serde_json::from_str(&text).map_err(|error| format!("crates/sim/{path}: {error}"))
}

fn write_figures(path: &str, figures: &impl serde::Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(figures).map_err(|error| error.to_string())? + "\n";
    std::fs::write(file(path), text).map_err(|error| error.to_string())
}

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Replaces the text between the marks of a name in docs/policies.md.
fn publish(name: &str, table: &str) -> Result<(), String> {
    let path = file("../../docs/policies.md");
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let (first, last) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let missing = || format!("docs/policies.md has no marks {name:?}");
    let (head, rest) = text.split_once(&first).ok_or_else(missing)?;
    let (_, tail) = rest.split_once(&last).ok_or_else(missing)?;
    std::fs::write(path, format!("{head}{first}{table}{last}{tail}")).map_err(|error| error.to_string())
}

/// How clusters that churn come to rest. False when a figure is worse than it was, or a run was broken.
fn churn(cases: &[Case], arguments: &Arguments) -> Result<bool, String> {
    let jobs: Vec<(&Case, (&str, Option<&str>))> = cases
        .iter()
        .flat_map(|case| POLICIES.iter().map(move |policy| (case, *policy)))
        .collect();
    let seed = arguments.seed.unwrap_or(SEED);
    let runs = run_all(
        &jobs,
        |(case, (name, _))| format!("{} with {name}", case.name),
        |(case, (name, policy))| {
            let log = |line: &str| eprintln!("{} with {name}: {line}", case.name);
            let log: &(dyn Fn(&str) + Sync) = &log;
            block_on(live(case, policy, seed, arguments.commands.then_some(log)))
        },
    );
    let mut table: Table = committed("policies.json")?;
    let (mut found, mut fine) = (Table::new(), true);
    for ((case, (policy, _)), churn) in runs {
        let churn: Churn = match churn {
            Ok(churn) => churn,
            Err(why) => {
                println!("{} with {policy}: {why}", case.name);
                fine = false;
                continue;
            }
        };
        found
            .entry(case.name.to_owned())
            .or_default()
            .insert(policy.to_owned(), churn);
        let known = table.entry(case.name.to_owned()).or_default();
        match known.get(policy) {
            _ if arguments.seed.is_some() => {}
            _ if arguments.write => drop(known.insert(policy.to_owned(), churn)),
            Some(before) => {
                for worse in churn.worse_than(before) {
                    println!("{} with {policy}: {worse}", case.name);
                    fine = false;
                }
            }
            None => {
                let name = case.name;
                println!("{name} with {policy}: no committed figures; --write makes them");
                fine = false;
            }
        }
    }
    println!("{}", markdown(&found));
    if arguments.write && fine && arguments.seed.is_none() {
        write_figures("policies.json", &table)?;
        publish("figures", &markdown(&table))?;
    }
    Ok(fine)
}

/// What policies keep from happening. False when a figure is worse than it was, or a run was broken.
fn guards(cases: &[GuardCase], arguments: &Arguments) -> Result<bool, String> {
    let jobs: Vec<(&GuardCase, bool)> = cases
        .iter()
        .flat_map(|case| [(case, false), (case, true)])
        .collect();
    let seed = arguments.seed.unwrap_or(SEED);
    let runs = run_all(
        &jobs,
        |(case, with_policy)| {
            format!(
                "{} {} its policy",
                case.name,
                if with_policy { "with" } else { "without" }
            )
        },
        |(case, with_policy)| block_on(live_guarded(case, with_policy, seed)),
    );
    let mut table: GuardTable = committed("guards.json")?;
    let (mut found, mut fine) = (GuardTable::new(), true);
    for ((case, with_policy), run) in runs {
        match run {
            Ok(run) => {
                let runs: &mut [Guarded; 2] = found.entry(case.name.to_owned()).or_default();
                runs[usize::from(with_policy)] = run;
            }
            Err(why) => {
                println!("{}: {why}", case.name);
                fine = false;
            }
        }
    }
    println!("{}", guard_markdown(&found));
    if arguments.seed.is_some() {
        return Ok(fine);
    }
    for (case, runs) in &found {
        // Without a policy, only what the table claims counts: that it is worse.
        let [without, with] = runs;
        if without.at_once <= with.at_once && without.harm <= with.harm {
            println!("{case} without its policy: no worse than with it");
            fine = false;
        }
        match table.get(case).filter(|_| !arguments.write) {
            Some([_, before]) => {
                for worse in with.worse_than(before) {
                    println!("{case} with its policy: {worse}");
                    fine = false;
                }
            }
            None if arguments.write => drop(table.insert(case.clone(), *runs)),
            None => {
                println!("{case}: no committed figures; --write makes them");
                fine = false;
            }
        }
    }
    if arguments.write && fine {
        write_figures("guards.json", &table)?;
        publish("guards", &guard_markdown(&table))?;
    }
    Ok(fine)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let is_wanted =
        |name: &str| arguments.cases.is_empty() || arguments.cases.iter().any(|wanted| wanted == name);
    let cases: Vec<Case> = CASES.into_iter().filter(|case| is_wanted(case.name)).collect();
    let guard_cases: Vec<GuardCase> = GUARD_CASES
        .into_iter()
        .filter(|case| is_wanted(case.name))
        .collect();
    if cases.is_empty() && guard_cases.is_empty() {
        let names: Vec<&str> = CASES
            .iter()
            .map(|case| case.name)
            .chain(GUARD_CASES.iter().map(|case| case.name))
            .collect();
        eprintln!("policies: no such case; there are: {}", names.join(", "));
        return ExitCode::from(2);
    }
    let mut fine = true;
    for answer in [churn(&cases, &arguments), guards(&guard_cases, &arguments)] {
        match answer {
            Ok(kept) => fine &= kept,
            Err(why) => {
                eprintln!("policies: {why}");
                fine = false;
            }
        }
    }
    if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
