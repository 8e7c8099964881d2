//! `spokeshave simulate`: weeks of a cluster's life under several policies, side by side.
//!
//! It reads what a scenario names, hands it to the engine, and prints what `comparison` makes of the runs. It decides nothing and measures nothing.

mod args;
mod as_recorded;
mod budgets;
mod check;
mod cluster;
mod document;
mod engine;
mod hashing;
mod imports;
mod init;
mod inputs;
mod inventory;
mod manifests;
mod misfits;
mod of_operator;
mod offers;
mod outdated;
mod overwriting;
mod owners;
mod processor_time;
mod recorder;
mod recording;
mod runs;
mod standing;
mod templates;
mod unshown;
mod watch;
mod without_file;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use spokeshave_comparison::{Comparison, Expectation, Policy, Setting};
use spokeshave_scenario::Scenario;
use spokeshave_scenario::file::{MODELS, ModelName, PolicySpec, SettingsSpec};

use crate::arguments::OutputFormat;
use crate::settings::cores;
use crate::signals::Signals;
use crate::text::{self, say};
use check::Check;
use document::{Document, Wrong};
use runs::RunList;
use watch::Outputs;

pub(crate) use args::{EXAMPLES, SimulateArgs};
pub(crate) use recorder::{EXAMPLES as RECORD_EXAMPLES, RecordArgs, run as record};

use args::SimulateCommand;

/// An expectation does not hold.
const CONTRADICTED: u8 = 3;
/// The scenario is wrong, as a command line would be.
const WRONG: u8 = 2;
/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs the command.
///
/// # Errors
/// A file cannot be read or written, or the cluster does not answer.
pub(crate) async fn run(args: Box<SimulateArgs>) -> Result<ExitCode> {
    if let Some(SimulateCommand::Init(args)) = &args.command {
        let text = init::run(args).await?;
        return crate::print(&text).map(|()| ExitCode::SUCCESS);
    }
    match simulate(&args).await {
        Err(error) if error.is::<Wrong>() => {
            say(&format!("error: {error}"));
            Ok(ExitCode::from(WRONG))
        }
        answer => answer,
    }
}

async fn simulate(args: &SimulateArgs) -> Result<ExitCode> {
    let document = match &args.scenario {
        Some(path) => Document::read(path)?,
        None => {
            // Only the fast engine has models of other autoscalers, and of none.
            let models = args.engine == args::EngineName::Fast;
            without_file::document(&args.filenames, args.duration_ms, models)?
        }
    };
    overwriting::refuse(args, &document)?;
    let scenario = &document.scenario;
    let seeds = args.seeds.unwrap_or(scenario.seeds);
    let chosen = chosen(scenario, &args.policies)?;
    let names: Vec<&str> = chosen.iter().map(|policy| policy.name.as_str()).collect();
    let expectations = expectations(&document, &names)?;
    templates::refuse_wrong(&document).await?;
    let mut setting = cluster::read(&document, &args.filenames)?;
    for note in &setting.notes {
        say(&format!("note: {note}"));
    }
    let every_policy = setting.policies.clone();
    setting
        .policies
        .retain(|policy| names.contains(&policy.name.as_str()));
    engine::check(args, &setting.policies, &scenario.baseline)?;
    let outputs = outputs(args, scenario, &setting.policies)?;
    let mut recordings = imports::read(&document, &args.filenames, &setting.budgets)?;
    for note in &recordings.notes {
        say(&format!("note: {note}"));
    }
    let clusters = &recordings.clusters;
    let beginning = as_recorded::begin(&mut setting, scenario, clusters, &every_policy)?;
    let dumped = recordings.timelines.get("");
    let has_dumped = dumped.is_some_and(|timeline| !timeline.owners.is_empty());
    let (as_recorded, why_not) =
        as_recorded::beside(clusters, scenario, has_dumped, &setting.world, &every_policy);
    owners::settle(&document, &args.filenames, &mut recordings.timelines)?;
    let mut caveats = cluster::caveats(&setting.policies);
    caveats.extend(setting.roomless);
    let plan = RunList {
        scenario: scenario.clone(),
        recordings: recordings.timelines,
        budgets: setting.budgets,
        world: setting.world,
        policies: setting.policies,
        seeds,
    };
    let timeline = plan.timeline(1)?;
    let (standing, left_out) = (&plan.world.standing, &setting.left_out);
    let begun = standing::notes(beginning.whence, standing, left_out, &timeline);
    caveats.extend(begun);
    caveats.extend(beginning.why_not);
    caveats.extend(why_not);
    caveats.extend(misfits::notes(&plan.world, &plan.policies, &timeline));
    caveats.extend(budgets::note(&timeline));
    let has_dumps = !args.filenames.is_empty() || !scenario.cluster.snapshot.is_empty();
    let nodes_end = unshown::nodes_end(&plan.world, &plan.policies);
    caveats.extend(unshown::notes(
        &timeline,
        has_dumps && plan.world.standing.is_empty(),
        nodes_end,
        scenario.warmup_ms,
    ));
    for caveat in &caveats {
        say(&format!("note: {caveat}"));
    }
    if args.check {
        for doubt in check::doubts(&timeline) {
            say(&format!("note: {doubt}"));
        }
        let check = Check::of(scenario, &chosen, seeds, &timeline, as_recorded);
        return crate::print(&check.print(args.output)?).map(|()| ExitCode::SUCCESS);
    }
    let jobs = args.jobs.map_or_else(cores, usize::from);
    let facts = Setting {
        scenario: scenario.name.clone(),
        scenario_sha256: document.sha256.clone(),
        start: scenario.start.to_string(),
        duration_ms: scenario.duration_ms,
        warmup_ms: scenario.warmup_ms,
        seeds,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        policies: chosen.iter().map(|policy| described(policy)).collect(),
        baseline: scenario.baseline.clone(),
        inputs: recordings.inputs,
        alterations: recordings.alterations,
        notes: caveats,
        as_recorded,
    };
    // Now, and not after hours of work.
    outputs.try_all()?;
    if let Some(path) = &args.report {
        may_be_written(path)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let outputs = Arc::new(outputs);
    let interrupt = tokio::spawn(interrupted(
        Signals::listen(),
        Arc::clone(&stop),
        Arc::clone(&outputs),
        plan.count(),
    ));
    let working = {
        let stop = Arc::clone(&stop);
        tokio::task::spawn_blocking(move || plan.live(timeline, jobs, &stop, &outputs))
    };
    let (runs, unwritten) = working.await.context("the simulation has broken")??;
    let was_interrupted = stop.load(Ordering::Relaxed);
    if !was_interrupted {
        interrupt.abort();
    }
    if runs.is_empty() {
        say("Interrupted before anything had been simulated.");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let comparison = Comparison::of(facts, &runs, &expectations)?;
    let answer = match args.output {
        OutputFormat::Table => comparison.to_text(text::width()),
        OutputFormat::Json => comparison.to_json(),
        OutputFormat::Yaml => serde_saphyr::to_string(&comparison)?,
    };
    crate::print(&answer)?;
    if let Some(path) = &args.report {
        write(path, &comparison.to_html())?;
    }
    if let Some(error) = unwritten {
        return Err(error);
    }
    Ok(match (was_interrupted, comparison.contradicted()) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::from(CONTRADICTED),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// The first signal stops all runs where they are, so that what they have found is written; the second one ends the process, which leaves no parts of its log.
async fn interrupted(mut signals: Signals, stop: Arc<AtomicBool>, outputs: Arc<Outputs>, runs: usize) {
    signals.next().await;
    stop.store(true, Ordering::Relaxed);
    say("Interrupted: writing what has been simulated so far. Ctrl-C again ends it at once.");
    signals.next().await;
    outputs.remove_parts(runs);
    std::process::exit(i32::from(INTERRUPTED));
}

/// Whether a file can be written; what it holds stays as it is until then.
fn may_be_written(path: &Path) -> Result<()> {
    // A link to nothing yet is there: it is not to be removed.
    let is_new = path.symlink_metadata().is_err();
    if !is_new && !path.is_file() && !path.is_dir() {
        // Who reads from a pipe would take the attempt for all there is.
        return Ok(());
    }
    let mut options = std::fs::OpenOptions::new();
    let tried = options.append(true).create(true).open(path).and_then(|_| {
        // An interrupted run would leave an empty report behind.
        if is_new {
            std::fs::remove_file(path)
        } else {
            Ok(())
        }
    });
    tried.with_context(|| format!("cannot write {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The requested policies, and always the baseline.
fn chosen<'s>(scenario: &'s Scenario, asked: &[String]) -> Result<Vec<&'s PolicySpec>> {
    for name in asked {
        if scenario.policy(name).is_none() {
            let known: Vec<&str> = scenario
                .policies
                .iter()
                .map(|policy| policy.name.as_str())
                .collect();
            return Err(Wrong(vec![format!(
                "--policy {name}: the scenario has no policy of that name; its policies are {}",
                known.join(", ")
            )])
            .into());
        }
    }
    let is_meant = |policy: &&PolicySpec| {
        asked.is_empty() || policy.name == scenario.baseline || asked.contains(&policy.name)
    };
    Ok(scenario.policies.iter().filter(is_meant).collect())
}

/// What is written besides the figures.
fn outputs(
    args: &SimulateArgs,
    scenario: &Scenario,
    policies: &[spokeshave_simulate::Policy],
) -> Result<Outputs> {
    if let Some(at_ms) = args.snapshot_at.filter(|at_ms| *at_ms > scenario.duration_ms) {
        let (at, end) = (shown(at_ms), shown(scenario.duration_ms));
        return Err(Wrong(vec![format!(
            "--snapshot-at {at}: the scenario ends after {end}; expected no later time, such as {end}"
        )])
        .into());
    }
    let chosen = args.policies.first().unwrap_or(&scenario.baseline);
    let position = policies.iter().position(|policy| policy.name == *chosen);
    Ok(Outputs::new(args, position.unwrap_or(0)))
}

/// A duration as it is written: `12d9h`.
fn shown(milliseconds: u64) -> String {
    let mut rest = milliseconds;
    let mut text = String::new();
    for (unit, length) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ] {
        if rest >= length {
            text.push_str(&format!("{}{unit}", rest / length));
            rest %= length;
        }
    }
    text
}

/// The expectations about policies that are simulated.
fn expectations(document: &Document, names: &[&str]) -> Result<Vec<Expectation>> {
    let scenario = &document.scenario;
    let all: Vec<&str> = scenario
        .policies
        .iter()
        .map(|policy| policy.name.as_str())
        .collect();
    let mut found = Vec::new();
    for expect in &scenario.expect {
        Expectation::parse(&expect.text, &all)
            .map_err(|error| document.wrong(&expect.path, error.to_string()))?;
        // With --policy, what is said of the others is left out.
        found.extend(Expectation::parse(&expect.text, names).ok());
    }
    Ok(found)
}

/// The name of another product's model, where a policy is one.
fn model_of(spec: &PolicySpec) -> Option<&'static str> {
    let is_product = match spec.model {
        ModelName::Ours | ModelName::None => false,
        ModelName::Karpenter | ModelName::KarpenterBalanced | ModelName::ClusterAutoscaler => true,
    };
    MODELS
        .iter()
        .find(|(_, model)| is_product && *model == spec.model)
        .map(|(name, _)| *name)
}

fn described(spec: &PolicySpec) -> Policy {
    let mut parts: Vec<String> = spec
        .merge
        .iter()
        .map(|merge| match &merge.name {
            Some(name) => format!("{}/{name} {}", merge.kind, merge.patch),
            None => format!("{} {}", merge.kind, merge.patch),
        })
        .collect();
    parts.extend(spec.manifests.iter().map(|file| format!("with {file}")));
    parts.extend(settings(&spec.settings));
    if spec.model == ModelName::None {
        parts.push("nothing is removed voluntarily".to_owned());
    }
    Policy {
        name: spec.name.clone(),
        model: model_of(spec).map(str::to_owned),
        summary: (!parts.is_empty()).then(|| parts.join(", ")),
    }
}

/// The operator's settings that a policy changes, as the scenario has them.
fn settings(spec: &SettingsSpec) -> Vec<String> {
    let flag = |value: Option<bool>| value.map(|is_on| is_on.to_string());
    let length = |milliseconds: Option<u64>| match milliseconds? {
        0 => Some("0s".to_owned()),
        milliseconds => Some(shown(milliseconds)),
    };
    let named = [
        ("spotToSpotConsolidation", flag(spec.spot_to_spot)),
        (
            "consolidationReplacements",
            spec.replacements.map(|number| number.to_string()),
        ),
        ("consolidationRounds", flag(spec.rounds)),
        ("batchIdleDuration", length(spec.batch_idle_ms)),
        ("batchMaxDuration", length(spec.batch_max_ms)),
    ];
    let changed = named.into_iter();
    changed
        .filter_map(|(name, value)| Some(format!("{name}: {}", value?)))
        .collect()
}
