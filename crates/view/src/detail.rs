//! One object in detail: its explanation, and its blockers that can be assumed away.

use crate::suppose;
use crate::world::Judged;
use serde::Serialize;
use spokeshave_story::explain::{self, Story};

/// A blocker, and whether it can be assumed away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Toggle {
    /// Its kind.
    pub code: String,
    /// The object to change.
    pub object: String,
    /// The problem.
    pub message: String,
    /// The value of `without=`; none when no change of an object would remove it.
    pub without: Option<String>,
}

/// A node in detail.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// Its explanation, as in `spokeshave explain node`.
    pub story: Story,
    /// Its blockers.
    pub toggles: Vec<Toggle>,
}

/// The story of a node by its name in the view; none when there is no such node.
pub fn detail(judged: &Judged, name: &str) -> Option<Detail> {
    let facts = judged.facts();
    let found = judged
        .snapshot
        .node_ids()
        .find(|id| judged.snapshot.node(*id).name == name);
    let Some(id) = found else {
        facts.find_node(name)?;
        return Some(Detail {
            story: explain::untracked_node(&facts, name),
            toggles: Vec::new(),
        });
    };
    let verdict = judged
        .verdict(id)
        .filter(|_| judged.snapshot.node(id).is_managed());
    let blockers = verdict
        .map(|verdict| verdict.blockers.as_slice())
        .unwrap_or_default();
    let toggles = blockers.iter().map(|blocker| {
        let (code, object) = (blocker.kind.to_string(), blocker.object.to_string());
        Toggle {
            without: suppose::key(&code, &object),
            code,
            object,
            message: blocker.message.clone(),
        }
    });
    Some(Detail {
        toggles: toggles.collect(),
        story: explain::node(&facts, id, verdict),
    })
}

/// The story of a pod, by `namespace/name`.
pub fn pod_story(judged: &Judged, key: &str) -> Option<Story> {
    let id = judged
        .snapshot
        .pod_ids()
        .find(|id| judged.snapshot.pod(*id).key() == key)?;
    let node = judged.snapshot.pod(id).node;
    let verdict = node.and_then(|node| judged.verdict(node));
    Some(explain::pod(&judged.facts(), id, &judged.provisioned, verdict))
}

/// The story of a NodePool.
pub fn pool_story(judged: &Judged, name: &str) -> Option<Story> {
    let id = judged.snapshot.find_pool(name)?;
    Some(explain::node_pool(&judged.facts(), id))
}
