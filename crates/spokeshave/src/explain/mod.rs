//! `spokeshave explain`: the story of a Node, NodeClaim, NodePool or pod in a screenful.
//!
//! It finds the object, asks `story::explain`, and prints. What the story says is decided there; nothing is changed.

mod args;
mod class;
mod object;
pub(crate) mod source;
mod table;
mod told;

#[cfg(test)]
mod tests;

use anyhow::{Context as _, Result};
use serde::Serialize;
use spokeshave_model::lower;
use spokeshave_model::snapshot::NodeId;
use spokeshave_plan::disrupt::{Verdict, judge};
use spokeshave_plan::provision;
use spokeshave_story::expired::Expired;
use spokeshave_story::explain::{self, Document, Facts, Story};
use spokeshave_story::settings::SettingsInForce;
use spokeshave_story::verdict;

pub(crate) use args::{EXAMPLES, ExplainArgs};
use object::{Kind, Wanted};

use source::Source;

use crate::arguments::OutputFormat;
use crate::text::visible;

/// The answer for machines: a story, and the settings by which it was decided.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    document: Document<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<&'a SettingsInForce>,
}

/// Runs the command and returns the text for standard output.
///
/// # Errors
/// The cluster or the file cannot be read, or there is no such object; then near matches are named.
pub(crate) async fn run(args: &ExplainArgs) -> Result<String> {
    let wanted = Wanted::parse(&args.object, args.namespace.as_deref())?;
    let source = source::load(&args.source).await?;
    let story = match tell(&source, &wanted) {
        Ok(mut story) => {
            told::add(&mut story, &source.told, source.now);
            class::add(&mut story, &source).await;
            story
        }
        // Its Events outlive a NodeClaim.
        Err(error) => match wanted.node_claim() {
            Some(name) => told::gone(&source.told, name, source.now).ok_or(error)?,
            None => return Err(error),
        },
    };
    match args.output {
        OutputFormat::Table => Ok(visible(&table::render(&story, source.now)).into_owned()),
        output => {
            let document = Answer {
                document: Document::of(&story, source.now),
                settings: source.in_force.told.as_ref(),
            };
            match output {
                OutputFormat::Yaml => {
                    serde_saphyr::to_string(&document).context("the story cannot be written as YAML")
                }
                _ => Ok(format!("{}\n", serde_json::to_string_pretty(&document)?)),
            }
        }
    }
}

fn tell(source: &Source, wanted: &Wanted) -> Result<Story> {
    let mut snapshot = lower(&source.state);
    let policy = source.in_force.policy();
    let provisioned = provision(&snapshot, &policy, source.now);
    let nominated = provisioned.nominate(&mut snapshot, source.now);
    let snapshot = snapshot;
    let facts = Facts {
        snapshot: &snapshot,
        state: &source.state,
        policy: &policy,
        attachments: &source.attachments,
        commands: &source.commands,
        replicas: &source.replicas,
        now: source.now,
    };
    let expired = Expired::of(&source.state, source.now);
    let verdict = |id: Option<NodeId>| -> Option<Verdict> {
        let id = id.filter(|id| snapshot.node(*id).is_managed())?;
        let found = judge(&snapshot, &policy, source.now, id);
        let mut told = verdict::told(&snapshot, &policy, found, &nominated);
        source.replicas.tell(&snapshot, std::slice::from_mut(&mut told));
        expired.tell(&snapshot, std::slice::from_mut(&mut told));
        Some(told)
    };
    let (kind, name) = wanted.find(&source.state)?;
    Ok(match kind {
        Kind::Node => {
            let id = snapshot.find_node(&name);
            match id {
                Some(id) => explain::node(&facts, id, verdict(Some(id)).as_ref()),
                None => explain::untracked_node(&facts, &name),
            }
        }
        Kind::NodeClaim => {
            let claim = facts.find_claim(&name).context("the NodeClaim has vanished")?;
            let initialized = snapshot
                .find_node(&name)
                .filter(|id| snapshot.node(*id).initialized);
            explain::node_claim(&facts, claim, verdict(initialized).as_ref())
        }
        Kind::NodePool => {
            let id = snapshot.find_pool(&name).context("the NodePool has vanished")?;
            explain::node_pool(&facts, id)
        }
        Kind::Pod => {
            let id = snapshot
                .pod_ids()
                .find(|id| snapshot.pod(*id).key() == name)
                .context("the pod has vanished")?;
            let verdict = verdict(snapshot.pod(id).node);
            explain::pod(&facts, id, &provisioned, verdict.as_ref())
        }
    })
}
