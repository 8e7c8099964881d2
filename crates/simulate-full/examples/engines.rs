//! Both engines on the same scenarios: do they give the same commands in order, the same cost, the same evictions?
//! Run with `just engines`, or `cargo run --release -p spokeshave-simulate-full --example engines -- [OPTIONS] [SCENARIO…]`.

#![allow(clippy::disallowed_methods, reason = "an example that reads the clock")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use clap::Parser;
use spokeshave_api::validation::LabelRules;
use spokeshave_simulate::{Watch, live_watched};
use spokeshave_simulate_full::agreement::{KeptLine, Told, common};
use spokeshave_simulate_full::{Life, live};

#[path = "../tests/read/mod.rs"]
mod read;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs both engines.
#[derive(Parser)]
struct Args {
    /// Scenario files; by default those of crates/simulate-full/scenarios
    scenarios: Vec<PathBuf>,
    /// How many seeds
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Write both event logs of every seed to this directory
    #[arg(long)]
    logs: Option<PathBuf>,
}

/// Lives a scenario in the fast engine.
fn fast(life: &Life) -> Told {
    let mut lines = Vec::new();
    let mut take = |line: spokeshave_simulate::Line<'_>| lines.push(KeptLine::from(line));
    let watch = Watch {
        lines: Some(&mut take),
        objects: None,
    };
    let policy = life
        .policy
        .under(&life.world, &life.overlays, &LabelRules::default());
    let run = live_watched(&life.world, &life.timeline, &policy, life.seed, &|| false, watch);
    Told { run, lines }
}

/// Lives it in the full engine.
fn full(life: &Life) -> Result<Told, Box<dyn Error>> {
    let lines: Arc<Mutex<Vec<KeptLine>>> = Arc::default();
    let sink = lines.clone();
    let take = move |line: spokeshave_simulate::Line<'_>| {
        if let Ok(mut sink) = sink.lock() {
            sink.push(KeptLine::from(line));
        }
    };
    let run = live(life, &|| false, Some(Box::new(take)))?;
    let lines = lines
        .lock()
        .map(|mut lines| std::mem::take(&mut *lines))
        .unwrap_or_default();
    Ok(Told { run, lines })
}

fn write(path: &Path, told: &Told) -> std::io::Result<()> {
    let lines = told.lines.iter();
    let lines = lines.map(|line| {
        format!(
            "{:>10.3} {} {} {}\n",
            line.at_ms as f64 / 1e3,
            line.what,
            line.of,
            line.more
        )
    });
    std::fs::write(path, lines.collect::<String>())
}

fn percent(part: i128, whole: i128) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    100.0 * part as f64 / whole as f64
}

/// Sums over the seeds of a scenario.
#[derive(Default)]
struct Sums {
    seeds: usize,
    agreeing: usize,
    cost: [u64; 2],
    evictions: [u64; 2],
    commands: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let mut files = args.scenarios.clone();
    if files.is_empty() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            let has_pools = name.to_string_lossy().starts_with("pools");
            if !has_pools {
                files.push(path);
            }
        }
        files.sort();
    }
    for file in files {
        let scene = read::scene(&file)?;
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut sums = Sums::default();
        for seed in args.first_seed..args.first_seed + args.seeds {
            let timeline = spokeshave_scenario::generate(&scene.scenario, seed, &BTreeMap::new())?;
            let timeline = Arc::new(timeline);
            for policy in &scene.policies {
                let life = Life {
                    world: scene.world.clone(),
                    timeline: timeline.clone(),
                    policy: policy.clone(),
                    overlays: scene.overlays.clone(),
                    seed,
                };
                one(&name, &life, &args, &mut sums)?;
            }
        }
        let [fast, full] = sums.cost.map(i128::from);
        let [fast_evictions, full_evictions] = sums.evictions.map(i128::from);
        println!(
            "{name}: {} of {} the same commands in order ({} commands of the full engine); cost {:+.3} %, evictions {:+.2} % ({fast_evictions} against {full_evictions})",
            sums.agreeing,
            sums.seeds,
            sums.commands,
            percent(fast - full, full),
            percent(fast_evictions - full_evictions, full_evictions),
        );
    }
    Ok(())
}

fn one(name: &str, life: &Life, args: &Args, sums: &mut Sums) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let fast = fast(life);
    let middle = Instant::now();
    let full = full(life)?;
    let seconds = middle.elapsed().as_secs_f64();
    let (of_fast, of_full) = (fast.commands(), full.commands());
    let same = common(&of_fast, &of_full);
    let agrees = of_fast == of_full;
    sums.seeds += 1;
    sums.agreeing += usize::from(agrees);
    sums.commands += of_full.len();
    sums.cost[0] += fast.cost();
    sums.cost[1] += full.cost();
    sums.evictions[0] += fast.evictions();
    sums.evictions[1] += full.evictions();
    println!(
        "  {name} {} seed {}: {} ({same} of {} and {} commands), cost {:.4} and {:.4}, evictions {} and {}, launches {} and {}; {:.2} s and {seconds:.2} s",
        life.policy.name,
        life.seed,
        if agrees { "same" } else { "DIFFERENT" },
        of_fast.len(),
        of_full.len(),
        fast.cost() as f64 / 1e6,
        full.cost() as f64 / 1e6,
        fast.evictions(),
        full.evictions(),
        fast.run.measured.launches,
        full.run.measured.launches,
        middle.duration_since(began).as_secs_f64(),
    );
    if let Some(folder) = &args.logs {
        std::fs::create_dir_all(folder)?;
        let stem = format!("{name}-{}-{}", life.policy.name, life.seed);
        write(&folder.join(format!("{stem}.fast")), &fast)?;
        write(&folder.join(format!("{stem}.full")), &full)?;
    }
    Ok(())
}
