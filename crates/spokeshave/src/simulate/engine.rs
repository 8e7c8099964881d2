//! The two engines behind one call.
//!
//! Owns which engine runs what, and what the full one refuses. It decides nothing else.

use anyhow::Result;
use spokeshave_simulate::{Model, Policy, Run, Watch, live_watched};

use super::args::{EngineName, SimulateArgs};
use super::document::Wrong;
use super::watch::Life;

/// Refuses what the full engine cannot run, before anything is run.
///
/// # Errors
/// What was asked for needs the fast engine.
pub(crate) fn check(args: &SimulateArgs, policies: &[Policy], baseline: &str) -> Result<()> {
    if args.engine == EngineName::Fast {
        return Ok(());
    }
    let mut problems = Vec::new();
    if !cfg!(feature = "embedded") {
        problems.push("--engine full: this program was built without the embedded cluster".to_owned());
    }
    for policy in policies.iter().filter(|policy| policy.model != Model::Ours) {
        let instead = if policy.name == baseline {
            "choose another `baseline`"
        } else {
            "leave it out with --policy"
        };
        problems.push(format!(
            "--engine full: policy {:?} is a model, and the full engine runs Spokeshave's own controllers; {instead}, or use --engine fast",
            policy.name
        ));
    }
    if args.snapshot_at.is_some() {
        problems.push("--engine full: --snapshot-at needs --engine fast".to_owned());
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(Wrong(problems).into())
}

/// Lives one run.
///
/// # Errors
/// The simulated cluster is not in order.
pub(crate) fn live<'a>(engine: EngineName, life: &Life<'a>, watch: Watch<'a>) -> Result<Run> {
    match engine {
        EngineName::Fast => Ok(live_watched(
            life.world,
            life.timeline,
            life.policy,
            life.seed,
            life.is_stopped,
            watch,
        )),
        EngineName::Full => live_full(life, watch),
    }
}

#[cfg(not(feature = "embedded"))]
fn live_full(_: &Life<'_>, _: Watch<'_>) -> Result<Run> {
    anyhow::bail!("--engine full: this program was built without the embedded cluster")
}

/// The full engine's lines are kept until it has ended, because it lives in a runtime of its own.
#[cfg(feature = "embedded")]
fn live_full(life: &Life<'_>, watch: Watch<'_>) -> Result<Run> {
    use std::sync::{Arc, Mutex, PoisonError};

    use spokeshave_simulate_full::agreement::KeptLine;

    let kept: Arc<Mutex<Vec<KeptLine>>> = Arc::default();
    let sink = kept.clone();
    let take: Box<dyn FnMut(spokeshave_simulate::Line<'_>) + Send> = Box::new(move |line| {
        sink.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(KeptLine::from(line));
    });
    let whole = spokeshave_simulate_full::Life {
        world: Arc::new(life.world.clone()),
        timeline: Arc::new(life.timeline.clone()),
        policy: life.policy.clone(),
        // Whoever has read them has corrected the instance types of the policy.
        overlays: Vec::new(),
        seed: life.seed,
    };
    let lines = watch.lines.is_some().then_some(take);
    let run = spokeshave_simulate_full::live(&whole, life.is_stopped, lines)?;
    if let Some(sink) = watch.lines {
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().for_each(|line| sink(line.as_line()));
    }
    Ok(run)
}
