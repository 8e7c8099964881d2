//! One object in detail: its explanation, and its blockers that can be assumed away.

use crate::nodes::{Phase, phase};
use crate::suppose;
use crate::world::Judged;
use serde::Serialize;
use spokeshave_model::pod;
use spokeshave_plan::report::some_of;
use spokeshave_story::explain::{self, Fact, Story};
use std::collections::BTreeSet;

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
    let view = judged.snapshot.node(id);
    let verdict = judged.verdict(id);
    let blockers = verdict
        .map(|verdict| verdict.blockers.as_slice())
        .unwrap_or_default();
    let toggles = blockers.iter().map(|blocker| {
        let (code, object) = (blocker.kind.to_string(), blocker.object.to_string());
        let without = suppose::key(&code, &object);
        // One switch for all policies that select the NodePool.
        let elsewhere = without
            .as_deref()
            .map_or_else(Vec::new, |key| suppose::pools_beside(&judged.world.state, key));
        let mut message = blocker.message.clone();
        if !elsewhere.is_empty() {
            message += &format!(
                " (assumed away, the policies that select it are lifted for {} too)",
                some_of(&elsewhere, 3)
            );
        }
        Toggle {
            without,
            code,
            object,
            message,
        }
    });
    let mut story = explain::node(&facts, id, verdict);
    let is_managed = view.is_managed() || !judged.world.knows("unmanaged");
    let is_known = judged.world.knows("verdict");
    if !is_known && is_managed && matches!(phase(view), Phase::Ready | Phase::Broken) {
        "runs; whether it may go depends on something that could not be read".clone_into(&mut story.summary);
    }
    Some(Detail {
        toggles: toggles.collect(),
        story: as_far_as_read(judged, story),
    })
}

/// The story of a pod, by `namespace/name`. One that waits for a NodeClaim which was made for it is told with that.
pub fn pod_story(judged: &Judged, key: &str) -> Option<Story> {
    let facts = judged.facts();
    if let Some(pod) = judged.world.awaited().find(|pod| pod::key(pod) == key) {
        let stand_in = pod::node_name(pod);
        let mut claims = judged.world.state.node_claims.iter();
        let claim = claims.find(|claim| stand_in.is_some() && claim.provider_id() == stand_in);
        let story = explain::awaited_pod(&facts, pod, claim.map(|claim| &**claim));
        return Some(as_far_as_read(judged, story));
    }
    let id = judged
        .snapshot
        .pod_ids()
        .find(|id| judged.snapshot.pod(*id).key() == key)?;
    let node = judged.snapshot.pod(id).node;
    let verdict = node.and_then(|node| judged.verdict(node));
    let story = explain::pod(&facts, id, &judged.provisioned, verdict);
    Some(as_far_as_read(judged, story))
}

/// The story of a NodePool.
pub fn pool_story(judged: &Judged, name: &str) -> Option<Story> {
    let id = judged.snapshot.find_pool(name)?;
    let story = explain::node_pool(&judged.facts(), id);
    Some(as_far_as_read(judged, story))
}

/// Facts that count nodes, or tell who is managed.
const COUNTED: [&str; 5] = ["budgets", "budgets now", "limits", "nodes", "state"];

/// Says what could not be read, and leaves out what would be zero or false without it.
fn as_far_as_read(judged: &Judged, mut story: Story) -> Story {
    let world = &judged.world;
    if world.missing.is_empty() {
        return story;
    }
    if !world.knows("price") {
        story.price_per_hour = None;
        story.facts.retain(|fact| fact.name != "price");
    }
    if !world.knows("unmanaged") {
        story.facts.retain(|fact| !COUNTED.contains(&fact.name));
    }
    let missing: BTreeSet<&str> = world.missing.iter().map(|one| one.resource.as_str()).collect();
    let missing: Vec<&str> = missing.into_iter().collect();
    let so = if world.unknown().is_empty() {
        ""
    } else {
        "; what depends on it is unknown"
    };
    let not_observed = Fact {
        name: "not observed",
        value: format!("{}{so}", missing.join(", ")),
    };
    story.facts.insert(0, not_observed);
    story
}
