//! What consolidation costs and moves when workloads shrink, on virtual time: `cargo run --release -p spokeshave-sim --example settle -- [SCENARIO…]`.
//!
//! Prints a Markdown table of the mean over the seeds of each scenario, and fails when a figure is worse than in `crates/sim/figures.json`; `--write`
//! writes them there instead.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser as _;
use spokeshave_sim::performance::figures::{Figures, Table};
use spokeshave_sim::performance::settle::{Moment, Options, Scenario, live, scenarios};

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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

fn run(scenario: &Scenario, seed: u64, arguments: &Arguments) -> Result<Figures, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
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

/// All runs, as many at once as there are processors; by scenario.
fn run_all(wanted: &[Scenario], arguments: &Arguments) -> Vec<Vec<Result<Figures, String>>> {
    let jobs: Vec<(usize, u64)> = wanted
        .iter()
        .enumerate()
        .flat_map(|(index, scenario)| {
            let seeds = arguments
                .seed
                .map_or_else(|| scenario.seeds.to_vec(), |seed| vec![seed]);
            seeds.into_iter().map(move |seed| (index, seed))
        })
        .collect();
    let next = Mutex::new(jobs.iter().enumerate());
    let done: Mutex<Vec<(usize, usize, Result<Figures, String>)>> = Mutex::default();
    let poisoned = "a run panicked";
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some((place, (index, seed))) = next.lock().expect(poisoned).next() else {
                        break;
                    };
                    let result = run(&wanted[*index], *seed, arguments);
                    done.lock().expect(poisoned).push((place, *index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect(poisoned);
    done.sort_by_key(|(place, ..)| *place);
    let mut by_scenario: Vec<Vec<Result<Figures, String>>> = wanted.iter().map(|_| Vec::new()).collect();
    for (_, index, result) in done {
        by_scenario[index].push(result);
    }
    by_scenario
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
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
    let mut fine = true;
    for (scenario, results) in wanted.iter().zip(run_all(&wanted, &arguments)) {
        let runs: Result<Vec<Figures>, String> = results.into_iter().collect();
        let sum = match runs {
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
    if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
