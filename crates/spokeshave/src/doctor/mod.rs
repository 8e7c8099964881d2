//! `spokeshave doctor`: what is wrong with a cluster or a dump for good, with proof, cost and the line to change.
//!
//! It reads what `plan` reads, asks `story::doctor`, and prints. It decides nothing and changes nothing.

pub(crate) mod table;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use spokeshave_model::lower;
use spokeshave_story::adopt::OldObjects;
use spokeshave_story::doctor::{self, Finding, Level};
use spokeshave_story::settings::SettingsInForce;

use crate::arguments::OutputFormat;
use crate::plan::world::World;
use crate::plan::{self, SourceArgs, live};
use crate::text::{say, visible};

/// Shown after the help.
pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave doctor                                 the cluster of the current kubeconfig
  kubectl get nodes,pods,nodepools,nodeclaims,daemonsets,pdb,hpa -A -o yaml | spokeshave doctor -f -
  spokeshave doctor -f app/ -f nodepools.yaml       manifests, before they are applied
  spokeshave doctor -o json                         for programs; docs/doctor.md lists every field

It is read-only. Exit code 0 without findings or with warnings and notes only; 3 with a finding of level error.";

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Examine the current cluster; the default without --filename
    #[arg(long, conflicts_with = "filenames")]
    pub(crate) live: bool,
    /// What to print
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "table")]
    pub(crate) output: OutputFormat,
}

/// What the command has to say.
pub(crate) struct Answer {
    /// For standard output.
    pub(crate) text: String,
    /// There is a finding of level error.
    pub(crate) has_errors: bool,
}

/// The answer for machines. Documented in `docs/doctor.md`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Diagnosis {
    api_version: &'static str,
    kind: &'static str,
    now: Timestamp,
    findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<SettingsInForce>,
}

impl Diagnosis {
    pub(crate) fn of(world: &World, now: Timestamp) -> Self {
        let state = &world.state;
        let mut findings = doctor::doctor(state, &lower(state), &world.most_replicas, now);
        findings.extend(not_looked_at(world));
        doctor::sort(&mut findings);
        Self {
            api_version: "doctor.spokeshave.dev/v1alpha1",
            kind: "Diagnosis",
            now,
            findings,
            settings: None,
        }
    }
}

/// Objects that are there and in no state: what is not known of them cannot be called fine.
pub(crate) fn not_looked_at(world: &World) -> Vec<Finding> {
    let left_out = world.left_out.iter();
    let left_out = left_out.map(|one| doctor::left_out(one.object.clone(), &one.place, &one.why));
    left_out
        .chain(world.outdated.iter().map(OldObjects::finding))
        .collect()
}

/// Runs the command.
///
/// # Errors
/// The files or the catalog cannot be read, or the cluster does not answer.
pub(crate) async fn run(args: &DoctorArgs) -> Result<Answer> {
    let mut loaded = plan::load(&args.source).await?;
    if let Some(client) = &loaded.client {
        match live::autoscalers(client).await {
            Ok(autoscalers) => loaded.world.scale_up_to(&autoscalers),
            Err(why) => say(&format!("note: {why}")),
        }
    }
    let mut diagnosis = Diagnosis::of(&loaded.world, loaded.now);
    diagnosis.settings = loaded.in_force.told;
    let text = match args.output {
        OutputFormat::Table => visible(&table::render(&diagnosis.findings)).into_owned(),
        OutputFormat::Json => format!("{}\n", serde_json::to_string_pretty(&diagnosis)?),
        OutputFormat::Yaml => serde_saphyr::to_string(&diagnosis)?,
    };
    Ok(Answer {
        text,
        has_errors: diagnosis
            .findings
            .iter()
            .any(|finding| finding.level == Level::Error),
    })
}
