//! What consolidation costs and moves when workloads shrink, on virtual time: `cargo run --release -p spokeshave-sim --example settle -- [SCENARIO…]`.
//!
//! Prints a Markdown table of the mean over the seeds of each scenario, and fails when a figure is worse than in `crates/sim/figures.json`; `--write`
//! writes them there instead. `--seconds N` compares what is through after N seconds, and says what is not. A run that stands still then fails: it takes up to 90
//! seconds more to know of each that is under way. Where none is through it ends with 3, as nothing can be said.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use clap::Parser as _;
use spokeshave_sim::examples::{Patience, UnderWay, processors};
use spokeshave_sim::performance::figures::{Figures, Table};
use spokeshave_sim::performance::settle::{Moment, Options, Scenario, live, scenarios};

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whoever has been at one instant of virtual time for so many seconds does not leave it.
const STANDSTILL_SECONDS: u64 = 90;
/// Status of a program that could compare nothing in its time.
const NOTHING_COMPARED: u8 = 3;

/// What consolidation costs and moves when workloads shrink.
#[derive(clap::Parser)]
#[command(name = "settle")]
struct Arguments {
    /// Scenarios; all of them unless named
    scenarios: Vec<String>,
    /// Write the figures down instead of comparing them
    #[arg(long)]
    write: bool,
    /// Let waiting pods name the nodes that they were planned on, and compare nothing
    #[arg(long, conflicts_with = "write")]
    nominate: bool,
    /// Live this seed only, and compare nothing
    #[arg(long)]
    seed: Option<u64>,
    /// Compare what is through after so many seconds, and leave the rest, once it is known that none of it stands still
    #[arg(long, value_name = "SECONDS", conflicts_with = "write")]
    seconds: Option<u64>,
    /// Print the progress of each run to standard error
    #[arg(long)]
    moments: bool,
    /// Print there, too, which pods share which nodes whenever that has changed
    #[arg(long, requires = "moments")]
    layouts: bool,
    /// Say on standard error what the operator says
    #[arg(long)]
    trace: bool,
}

fn committed() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("figures.json")
}

/// A run: the place of its scenario among those that are wanted, and its seed.
type Run = (usize, u64);

/// Lives one run. `rests` hears of every moment in which nothing is left to do.
fn run(
    scenario: &Scenario,
    seed: u64,
    arguments: &Arguments,
    rests: impl Fn() + Send + Sync + 'static,
) -> Result<Figures, String> {
    // Time passes only when nothing is left to do, which is when the thread rests.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_park(rests)
        .build()
        .map_err(|error| error.to_string())?;
    let tell = |moment: &Moment| {
        if arguments.moments {
            eprintln!(
                "{} {seed}: {:>4} s, {}, {:>3} launched, {:>3} ended, {:>4} moved, {:>3} commands",
                scenario.name,
                moment.seconds,
                dollars(moment.price, 1),
                moment.launched,
                moment.ended,
                moment.moved,
                moment.commands
            );
            if let Some(layout) = &moment.layout {
                eprint!("{layout}");
            }
        }
    };
    let options = Options {
        nominate_pods: arguments.nominate,
        layouts: arguments.layouts,
    };
    runtime.block_on(live(scenario, seed, options, tell))
}

#[expect(clippy::cast_precision_loss, reason = "for reading")]
fn dollars(micros: i64, runs: usize) -> String {
    format!("${:.2}", micros as f64 / 1e6 / runs as f64)
}

#[expect(clippy::cast_precision_loss, reason = "for reading")]
fn mean(count: usize, runs: usize) -> String {
    if runs == 1 {
        count.to_string()
    } else {
        format!("{:.1}", count as f64 / runs as f64)
    }
}

fn line(name: &str, figures: &Figures, runs: usize) -> String {
    let mean = |count| mean(count, runs);
    format!(
        "| {name} | {runs} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        mean(figures.launch_nodes),
        dollars(figures.launch_price, runs),
        mean(figures.nodes),
        dollars(figures.price, runs),
        mean(figures.moved),
        mean(figures.commands),
        mean(figures.launched),
        mean(figures.disrupted_again),
        mean(usize::try_from(figures.seconds).unwrap_or(0)),
        dollars(figures.paid, runs),
    )
}

/// Seeds that a scenario is run with.
fn seeds(scenario: &Scenario, arguments: &Arguments) -> Vec<u64> {
    arguments
        .seed
        .map_or_else(|| scenario.seeds.to_vec(), |seed| vec![seed])
}

/// Runs that are through, as many at once as there are processors; by scenario. Those that are not when time is up go on until the program ends, and fail where
/// they stand still.
fn run_all(
    wanted: &Arc<Vec<Scenario>>,
    arguments: &Arc<Arguments>,
    patience: Patience,
) -> Vec<Vec<Result<Figures, String>>> {
    let standstill = Duration::from_secs(STANDSTILL_SECONDS);
    let under_way: Arc<UnderWay<Run>> = Arc::new(UnderWay::new(standstill));
    let numbered = wanted.iter().enumerate();
    let jobs: Vec<Run> = numbered
        .flat_map(|(index, scenario)| {
            let seeds = seeds(scenario, arguments).into_iter();
            seeds.map(move |seed| (index, seed))
        })
        .collect();
    let next = Arc::new(Mutex::new(jobs.into_iter().enumerate()));
    let (sender, receiver) = mpsc::channel();
    for _ in 0..processors() {
        let (next, wanted, arguments) = (next.clone(), wanted.clone(), arguments.clone());
        let (sender, under_way) = (sender.clone(), under_way.clone());
        std::thread::spawn(move || {
            loop {
                let job = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((place, (index, seed))) = job else {
                    break;
                };
                let scenario = &wanted[index];
                under_way.goes_on((index, seed));
                let resting = under_way.clone();
                let rests = move || resting.goes_on((index, seed));
                let lived = || run(scenario, seed, &arguments, rests);
                let result = catch_unwind(AssertUnwindSafe(lived));
                under_way.has_ended((index, seed));
                let panicked = |_| Err(format!("{} seed {seed}: panicked", scenario.name));
                let result = result.unwrap_or_else(panicked);
                if sender.send((place, index, result)).is_err() {
                    break;
                }
            }
        });
    }
    drop(sender);
    let mut done: Vec<(usize, usize, Result<Figures, String>)> = Vec::new();
    while let Some(one) = received(&receiver, patience) {
        done.push(one);
    }
    done.sort_by_key(|(place, ..)| *place);
    let mut by_scenario: Vec<Vec<Result<Figures, String>>> = wanted.iter().map(|_| Vec::new()).collect();
    for (_, index, result) in done {
        by_scenario[index].push(result);
    }
    for (index, seed) in under_way.stuck() {
        let name = wanted[index].name;
        by_scenario[index].push(Err(format!(
            "{name} seed {seed}: has stood still for {STANDSTILL_SECONDS} s and more"
        )));
    }
    by_scenario
}

/// The next one; `None` when there is none any more, or patience is over.
fn received<T>(receiver: &mpsc::Receiver<T>, patience: Patience) -> Option<T> {
    match patience.left() {
        Some(left) => receiver.recv_timeout(left).ok(),
        None => receiver.recv().ok(),
    }
}

fn main() -> ExitCode {
    let arguments = Arc::new(Arguments::parse());
    let patience = Patience::begin(arguments.seconds);
    if arguments.trace {
        let filter = tracing_subscriber::EnvFilter::new("debug,kube=warn,tower=warn");
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .without_time()
            .with_writer(std::io::stderr)
            .init();
    }
    let mut wanted = scenarios();
    let names: Vec<&str> = wanted.iter().map(|scenario| scenario.name).collect();
    if let Some(unknown) = arguments
        .scenarios
        .iter()
        .find(|name| !names.contains(&name.as_str()))
    {
        eprintln!("settle: no scenario {unknown}; there are: {}", names.join(", "));
        return ExitCode::from(2);
    }
    if !arguments.scenarios.is_empty() {
        wanted.retain(|scenario| arguments.scenarios.iter().any(|name| name == scenario.name));
    }
    let wanted = Arc::new(wanted);
    let text = std::fs::read_to_string(committed()).unwrap_or_else(|_| "{}".to_owned());
    let mut table: Table = match serde_json::from_str(&text) {
        Ok(table) => table,
        Err(error) => {
            eprintln!("settle: {}: {error}", committed().display());
            return ExitCode::from(2);
        }
    };
    println!(
        "| Scenario | Runs | Launched first | Price then | Nodes at rest | Price at rest | Pods moved | Commands | Launched since | Disrupted again | Seconds | Paid in 15 minutes |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let (mut fine, mut compared) = (true, 0);
    for (scenario, results) in wanted.iter().zip(run_all(&wanted, &arguments, patience)) {
        let runs: Result<Vec<Figures>, String> = results.into_iter().collect();
        let asked = seeds(scenario, &arguments).len();
        let sum = match runs {
            Ok(runs) if runs.len() < asked => {
                let (name, through) = (scenario.name, runs.len());
                println!("{name}: {through} of {asked} run(s) through when time was up; nothing is compared");
                continue;
            }
            Ok(runs) => {
                println!("{}", line(scenario.name, &Figures::sum(&runs), runs.len()));
                Figures::sum(&runs)
            }
            Err(why) => {
                println!("{why}");
                fine = false;
                continue;
            }
        };
        if arguments.seed.is_some() || arguments.nominate {
            continue;
        }
        match table.get(scenario.name).filter(|_| !arguments.write) {
            Some(before) => {
                compared += 1;
                for worse in sum.worse_than(before) {
                    println!("{}: {worse}", scenario.name);
                    fine = false;
                }
            }
            None if arguments.write => drop(table.insert(scenario.name.to_owned(), sum)),
            None => {
                println!("{}: no committed figures; --write makes them", scenario.name);
                fine = false;
            }
        }
    }
    if arguments.write && fine {
        let text = serde_json::to_string_pretty(&table).unwrap_or_default();
        if let Err(error) = std::fs::write(committed(), text + "\n") {
            eprintln!("settle: {}: {error}", committed().display());
            fine = false;
        }
    }
    // Nothing is to be compared of a single seed, or where pods name their nodes.
    let is_comparison = !arguments.write && arguments.seed.is_none() && !arguments.nominate;
    if is_comparison {
        println!("settle: {compared} of {} scenario(s) compared", wanted.len());
    }
    match fine {
        true if is_comparison && compared == 0 => ExitCode::from(NOTHING_COMPARED),
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
