//! What an explanation is made from: the state that `plan` decides about, and beside it volume attachments and disruption commands.

use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::Value;
use spokeshave_model::ClusterState;
use spokeshave_story::explain::CommandFact;

use super::told::{self, Told};
use crate::field;
use crate::plan;
use crate::plan::SourceArgs;
use crate::text::say;

/// Everything that was read.
pub(crate) struct Source {
    /// The state.
    pub(crate) state: ClusterState,
    /// Volume attachments.
    pub(crate) attachments: Vec<Arc<VolumeAttachment>>,
    /// Disruption commands.
    pub(crate) commands: Vec<CommandFact>,
    /// Events of the controllers.
    pub(crate) told: Vec<Told>,
    /// NodeClasses of a file, as they are written.
    pub(crate) classes: Vec<Value>,
    /// Where NodeClasses of a cluster can be had.
    pub(crate) client: Option<Client>,
    /// The instant.
    pub(crate) now: Timestamp,
}

/// Reads the file or the cluster.
///
/// # Errors
/// The file cannot be read, or the cluster does not answer.
pub(crate) async fn load(args: &SourceArgs) -> Result<Source> {
    let loaded = plan::load(args).await?;
    let beside = match &loaded.client {
        Some(client) => {
            let mut found = beside_in_cluster(client).await;
            let own = ListParams::default().fields("source=karpenter");
            found.extend(list_some(client, ("", "v1", "Event", "events"), &own).await);
            found
        }
        None => loaded.written.into_iter().map(|written| written.object).collect(),
    };
    let mut source = Source {
        state: loaded.world.state,
        attachments: Vec::new(),
        commands: Vec::new(),
        told: Vec::new(),
        classes: Vec::new(),
        client: loaded.client,
        now: loaded.now,
    };
    for object in beside {
        match object["kind"].as_str() {
            Some("VolumeAttachment") => {
                let read = read_beside::<VolumeAttachment>(&object, "told");
                source.attachments.extend(read);
            }
            Some("Disruption") => source.commands.push(command(&object)),
            Some("Event") => source.told.extend(told::read(&object)),
            Some(kind) if kind.ends_with("NodeClass") => source.classes.push(object),
            _ => {}
        }
    }
    mark(&mut source);
    Ok(source)
}

/// The memory of a command is its object: nodes of commands under way count as the controllers count them.
fn mark(source: &mut Source) {
    let names: Vec<&str> = source
        .commands
        .iter()
        .filter(|command| !command.finished)
        .flat_map(|command| command.nodes.iter().map(String::as_str))
        .collect();
    let ids: Vec<String> = source
        .state
        .node_claims
        .iter()
        .filter(|claim| names.contains(&claim.name()))
        .filter_map(|claim| claim.provider_id().map(str::to_owned))
        .collect();
    source.state.in_command.extend(ids.iter().cloned());
    source.state.marked_for_deletion.extend(ids);
}

/// Objects that decisions do not read.
pub(crate) async fn beside_in_cluster(client: &Client) -> Vec<Value> {
    let mut found = list(
        client,
        "storage.k8s.io",
        "v1",
        "VolumeAttachment",
        "volumeattachments",
    )
    .await;
    found.extend(list(client, "spokeshave.dev", "v1alpha1", "Disruption", "disruptions").await);
    found
}

/// Reads one of them. One that cannot be read is named on standard error, with how: `told` or `shown` as if it were absent.
pub(crate) fn read_beside<T: DeserializeOwned>(object: &Value, how: &str) -> Option<Arc<T>> {
    match field::read(&object.to_string()) {
        Ok(read) => Some(Arc::new(read)),
        Err(problem) => {
            let kind = object["kind"].as_str().unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap_or("without a name");
            say(&format!(
                "note: {kind} {name} cannot be read: {problem}; {how} as if it were absent"
            ));
            None
        }
    }
}

/// A kind that the cluster does not know, or does not show, leaves its part of the story out.
async fn list(client: &Client, group: &str, version: &str, kind: &str, plural: &str) -> Vec<Value> {
    list_some(client, (group, version, kind, plural), &ListParams::default()).await
}

async fn list_some(
    client: &Client,
    (group, version, kind, plural): (&str, &str, &str, &str),
    params: &ListParams,
) -> Vec<Value> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let Ok(found) = api.list(params).await else {
        return Vec::new();
    };
    let values = found.items.iter().filter_map(|object| {
        let mut value = serde_json::to_value(object).ok()?;
        value["kind"] = Value::from(kind);
        Some(value)
    });
    values.collect()
}

/// Reads a Disruption leniently, so that one of another version is not an error.
fn command(object: &Value) -> CommandFact {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (spec, status) = (&object["spec"], &object["status"]);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let phase = match status["phase"].as_str() {
        Some(phase) => phase.to_owned(),
        None => "Starting".to_owned(),
    };
    let nodes = list(&spec["nodes"]);
    let nodes = nodes
        .iter()
        .flat_map(|node| [text(&node["name"]), text(&node["nodeClaim"])]);
    CommandFact {
        name: text(&object["metadata"]["name"]),
        finished: matches!(phase.as_str(), "Succeeded" | "RolledBack"),
        phase,
        reason: text(&spec["reason"]),
        decision: text(&spec["decision"]),
        message: text(&status["message"]),
        decided_at: spec["decidedAt"].as_str().and_then(|time| time.parse().ok()),
        nodes: nodes.filter(|name| !name.is_empty()).collect(),
        replacements: list(&spec["replacements"])
            .iter()
            .map(|one| text(&one["nodeClaim"]))
            .collect(),
    }
}
