//! Nodes of a recording: those at its beginning, whole, and from when to when each NodeClaim had an instance.
//!
//! Owns what lines about Nodes and NodeClaims mean. What an instance costs, and with which nodes a simulation can begin, is not its business.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use spokeshave_api::labels;

use super::objects::Meta;
use super::record::broken;
use super::{ImportError, MOST_OWNERS};

/// An instance of a NodeClaim. What a recording does not say of it is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    /// Whose NodeClaim it is.
    pub node_pool: String,
    /// Its instance type.
    pub instance_type: String,
    /// Where it is.
    pub zone: String,
    /// How it was bought.
    pub capacity_type: String,
    /// When it was first seen, in milliseconds after the beginning of the recording.
    pub from_ms: u64,
    /// When it was first seen to be gone, in milliseconds after the beginning; `None`: it never was.
    pub until_ms: Option<u64>,
}

/// What a recording has of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedNodes {
    /// When the recording begins, by the clock of its cluster.
    pub begun: Timestamp,
    /// Nodes and NodeClaims that were there then, each as JSON.
    pub at_start: Vec<String>,
    /// Instances of NodeClaims, in the order in which they were first seen.
    pub instances: Vec<Instance>,
}

impl RecordedNodes {
    /// Whether the recording has nothing of nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at_start.is_empty() && self.instances.is_empty()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    api_version: String,
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Claim {
    metadata: Meta,
    status: ClaimStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimStatus {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

/// Whether an object is a Node or a NodeClaim. One that says no version is taken for theirs.
fn is_node(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match kind {
        "Node" => group.is_empty(),
        "NodeClaim" => matches!(group, "" | "karpenter.sh"),
        _ => false,
    }
}

/// Nodes of a recording that is being read.
#[derive(Debug, Default)]
pub(crate) struct NodeReader {
    found: RecordedNodes,
    /// When the recording begins, in milliseconds since 1970.
    base_ms: Option<i64>,
    /// The NodeClaims whose instances are there, with the places of these.
    running: BTreeMap<String, usize>,
}

impl NodeReader {
    /// An object of any kind was applied or deleted: the recording begins with the first.
    pub(crate) fn looked(&mut self, at: Timestamp) {
        if self.base_ms.is_none() {
            self.base_ms = Some(at.as_millisecond());
            self.found.begun = at;
        }
    }

    /// Milliseconds after the beginning.
    fn after(&self, at: Timestamp) -> u64 {
        let at_ms = at.as_millisecond();
        let base = self.base_ms.unwrap_or(at_ms);
        u64::try_from(at_ms.saturating_sub(base)).unwrap_or(0)
    }

    /// An object was added or changed that makes no pods and is none. What is neither a Node nor a NodeClaim is passed over.
    ///
    /// # Errors
    /// A NodeClaim cannot be read, or there are more than fit into memory.
    pub(crate) fn applied(&mut self, at: Timestamp, json: &str) -> Result<(), ImportError> {
        let unread = |error: serde_json::Error| ImportError::whole(broken(&error));
        // What is of some other form is of some other kind.
        let head: Head = serde_json::from_str(json).unwrap_or_default();
        if !is_node(&head.api_version, &head.kind) {
            return Ok(());
        }
        let at_ms = self.after(at);
        if at_ms == 0 {
            self.found.at_start.push(json.to_owned());
        }
        if head.kind == "Node" {
            return Ok(());
        }
        let claim: Claim = serde_json::from_str(json).map_err(unread)?;
        if claim.status.provider_id.as_deref().unwrap_or_default().is_empty() {
            return Ok(());
        }
        let name = claim.metadata.name().to_owned();
        let place = match self.running.get(&name) {
            Some(place) => *place,
            None => self.began(name, at_ms)?,
        };
        let label = |key: &str| {
            let labels = claim.metadata.labels.as_ref();
            labels
                .and_then(|labels| labels.get(key))
                .cloned()
                .unwrap_or_default()
        };
        let instance = &mut self.found.instances[place];
        instance.node_pool = label(labels::NODE_POOL);
        instance.instance_type = label(labels::INSTANCE_TYPE);
        instance.zone = label(labels::ZONE);
        instance.capacity_type = label(labels::CAPACITY_TYPE);
        Ok(())
    }

    /// A NodeClaim has an instance from now on, which gets this place.
    fn began(&mut self, name: String, at_ms: u64) -> Result<usize, ImportError> {
        let place = self.found.instances.len();
        if place >= MOST_OWNERS {
            return Err(ImportError::whole(format!(
                "has more than {MOST_OWNERS} NodeClaims; expected a recording of one cluster"
            )));
        }
        self.found.instances.push(Instance {
            from_ms: at_ms,
            ..Instance::default()
        });
        self.running.insert(name, place);
        Ok(place)
    }

    /// An object is gone that made no pods and was none.
    pub(crate) fn deleted(&mut self, at: Timestamp, api_version: &str, kind: &str, name: &str) {
        if kind != "NodeClaim" || !is_node(api_version, kind) {
            return;
        }
        if let Some(place) = self.running.remove(name) {
            self.found.instances[place].until_ms = Some(self.after(at));
        }
    }

    /// What was recorded.
    pub(crate) fn finish(self) -> RecordedNodes {
        self.found
    }
}
