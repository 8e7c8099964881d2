//! What an explanation is made from: the state that `plan` decides about, and beside it volume attachments and disruption commands.

use std::sync::Arc;

use anyhow::Result;
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::Value;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::ClusterState;
use spokeshave_story::explain::CommandFact;
use spokeshave_story::replicas::Replicas;

use super::told::{self, Told};
use crate::field;
use crate::plan;
use crate::plan::SourceArgs;
use crate::plan::in_force::InForce;
use crate::plan::world::mark_held;
use crate::text::say;

/// Everything that was read.
pub(crate) struct Source {
    /// The state.
    pub(crate) state: ClusterState,
    /// Volume attachments.
    pub(crate) attachments: Vec<Arc<VolumeAttachment>>,
    /// Disruption commands.
    pub(crate) commands: Vec<CommandFact>,
    /// What NodePools with a fixed number of nodes have too few or too many of; nothing where a command cannot be read.
    pub(crate) replicas: Replicas,
    /// Events of the controllers.
    pub(crate) told: Vec<Told>,
    /// NodeClasses of a file, as they are written.
    pub(crate) classes: Vec<Value>,
    /// Where NodeClasses of a cluster can be had.
    pub(crate) client: Option<Client>,
    /// The settings to decide with.
    pub(crate) in_force: InForce,
    /// The instant.
    pub(crate) now: Timestamp,
}

/// Reads the file or the cluster.
///
/// # Errors
/// The file cannot be read, or the cluster does not answer.
pub(crate) async fn load(args: &SourceArgs) -> Result<Source> {
    let loaded = plan::load(args).await?;
    let (beside, unlisted) = match &loaded.client {
        Some(client) => {
            let (mut found, unlisted) = beside_in_cluster(client).await;
            let own = ListParams::default().fields("source=karpenter");
            found.extend(list_some(client, ("", "v1", "Event", "events"), &own).await);
            (found, unlisted)
        }
        None => {
            let written = loaded.written.into_iter();
            (written.map(|written| written.object).collect(), None)
        }
    };
    let can_read_all = loaded.world.knows_commands();
    let mut source = Source {
        state: loaded.world.state,
        attachments: Vec::new(),
        commands: Vec::new(),
        replicas: Replicas::default(),
        told: Vec::new(),
        classes: Vec::new(),
        client: loaded.client,
        in_force: loaded.in_force,
        now: loaded.now,
    };
    let mut disruptions: Vec<Arc<Disruption>> = Vec::new();
    for object in beside {
        match object["kind"].as_str() {
            Some("VolumeAttachment") => {
                let read = read_beside::<VolumeAttachment>(&object, "told");
                source.attachments.extend(read);
            }
            Some("Disruption") => {
                source.commands.push(command(&object));
                let read = read_beside::<Disruption>(&object, "decided");
                disruptions.extend(read);
            }
            Some("Event") => source.told.extend(told::read(&object)),
            Some(kind) if kind.ends_with("NodeClass") => source.classes.push(object),
            _ => {}
        }
    }
    mark_held(&mut source.state, &disruptions);
    // One that cannot be listed or read may be replacing what looks like one node too many.
    if can_read_all && unlisted.is_none() && disruptions.len() == source.commands.len() {
        source.replicas = Replicas::of(&source.state, &disruptions, source.now);
    }
    Ok(source)
}

/// Objects that decisions do not read; and why nobody knows the Disruptions, where these cannot be listed.
pub(crate) async fn beside_in_cluster(client: &Client) -> (Vec<Value>, Option<String>) {
    let all = ListParams::default();
    let attachments = ("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments");
    let mut found = list_some(client, attachments, &all).await;
    let disruptions = ("spokeshave.dev", "v1alpha1", "Disruption", "disruptions");
    match list(client, disruptions, &all).await {
        Ok(commands) => {
            found.extend(commands);
            (found, None)
        }
        Err(why) => (found, Some(why)),
    }
}

/// Reads one of them. One that cannot be read is named on standard error, with how: `told`, `shown` or `decided` as if it were absent.
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

/// A kind that the cluster does not show leaves its part of the story out.
async fn list_some(client: &Client, kind: (&str, &str, &str, &str), params: &ListParams) -> Vec<Value> {
    list(client, kind, params).await.unwrap_or_default()
}

/// The objects of a kind, or why they cannot be listed. A cluster that does not know it has none.
async fn list(
    client: &Client,
    (group, version, kind, plural): (&str, &str, &str, &str),
    params: &ListParams,
) -> Result<Vec<Value>, String> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = match api.list(params).await {
        Ok(found) => found.items,
        Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16() => Vec::new(),
        Err(error) => return Err(error.to_string()),
    };
    let values = found.iter().filter_map(|object| {
        let mut value = serde_json::to_value(object).ok()?;
        value["kind"] = Value::from(kind);
        Some(value)
    });
    Ok(values.collect())
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
