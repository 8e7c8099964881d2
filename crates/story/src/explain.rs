//! The story of one object as data: what it is, what happens to it, what is in the way, and what comes next.
//!
//! Owns the questions and the words of the answers; the command line renders them. Every statement is read off the Snapshot, the objects or the
//! decisions that the controllers themselves make. It changes nothing, and what it cannot know it leaves out.

mod ending;
mod facts;
mod node;
mod node_claim;
mod node_pool;
mod pending;
mod pod;

#[cfg(test)]
mod tests;

pub use facts::{CommandFact, Facts, at_most};
pub use node::{node, untracked_node};
pub use node_claim::node_claim;
pub use node_pool::node_pool;
pub use pending::{DAEMONS_GET_NO_NODES, STATIC_PODS_GET_NO_NODES, way_out};
pub use pod::{awaited_pod, pod};

use jiff::Timestamp;
use serde::Serialize;
use spokeshave_plan::report::count;

/// The explanation of one object. Sections without content are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Story {
    /// `Node`, `NodeClaim`, `NodePool` or `Pod`.
    pub object_kind: &'static str,
    /// Name, or `namespace/name`.
    pub name: String,
    /// The one sentence that matters most.
    pub summary: String,
    /// Dollars per hour, where it has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
    /// Facts about it, by name.
    pub facts: Vec<Fact>,
    /// Its progress, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Current blockers, the longest-lasting first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// Its pods, those that keep it first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodLine>,
    /// The verdict of disruption about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictStory>,
    /// What happens next, in order of time; entries without a time are last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Next>,
    /// Possible actions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

/// The version of [`Document`]. Fields may be added, but are never removed.
pub const API_VERSION: &str = "plan.spokeshave.dev/v1alpha1";

/// A story with its version, as `spokeshave explain` prints it and the page answers it. Documented in `docs/operations.md`.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    now: Timestamp,
    #[serde(flatten)]
    story: &'a Story,
}

impl<'a> Document<'a> {
    /// A story as it was at an instant.
    #[must_use]
    pub fn of(story: &'a Story, now: Timestamp) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "Story",
            now,
            story,
        }
    }
}

/// One thing known about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Its object.
    pub name: &'static str,
    /// Its message.
    pub value: String,
}

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    /// It is over.
    Done,
    /// It is what is going on.
    Active,
    /// Its turn has not come.
    Waiting,
    /// It has failed or was cut short.
    Failed,
}

/// One step on the way of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// Its state.
    pub state: StepState,
    /// Since when it is in this state, where that is written down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// More about it; may be empty.
    pub detail: String,
}

/// Something that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// The object, as `Pod shop/web-1`.
    pub object: String,
    /// Its detail.
    pub message: String,
    /// Since when, where that is written down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// The effect of a pod on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Meaning {
    /// It carries do-not-disrupt.
    DoNotDisrupt,
    /// Several PodDisruptionBudgets select it.
    MultipleBudgets,
    /// Its PodDisruptionBudget allows nothing.
    Budget,
    /// It is stopping.
    Stopping,
    /// It would be evicted, and placed elsewhere where a controller makes it again.
    Movable,
    /// It tolerates the disrupted taint and is left alone.
    Tolerates,
    /// A pod of a DaemonSet.
    Daemon,
    /// A static pod of the node.
    Static,
    /// It has finished.
    Finished,
}

/// A pod on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLine {
    /// `namespace/name`.
    pub pod: String,
    /// Its effect on the node.
    pub meaning: Meaning,
    /// Whether it keeps the node from being disrupted now.
    pub blocks: bool,
    /// Why.
    pub message: String,
}

/// The verdict of disruption about a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictStory {
    /// `delete`, `replace` or `keep`.
    pub decision: &'static str,
    /// The method that would act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The cheapest instance type of a replacement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    /// Dollars per hour now.
    pub price_before: f64,
    /// Dollars per hour afterwards.
    pub price_after: f64,
    /// What a replacement saves, in words, where both prices are those of on-demand and the node costs another one.
    #[serde(skip)]
    pub by_on_demand: Option<String>,
    /// A minimal set of things in the way: while any of them remains, the node is kept.
    pub blockers: Vec<BlockerLine>,
    /// Why it does not go at once although it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// What would happen without them; empty if unknown.
    pub if_removed: String,
}

/// One thing in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockerLine {
    /// Its kind, one word.
    pub kind: String,
    /// The object to change.
    pub object: String,
    /// The problem.
    pub message: String,
}

/// Something that is going to happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Next {
    /// When, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// What.
    pub what: String,
}

impl Story {
    fn new(object_kind: &'static str, name: &str) -> Self {
        Story {
            object_kind,
            name: name.to_owned(),
            ..Story::default()
        }
    }

    fn fact(&mut self, name: &'static str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.facts.push(Fact { name, value });
        }
    }

    fn next(&mut self, at: Option<Timestamp>, what: impl Into<String>) {
        self.next.push(Next {
            at: at.map(whole),
            what: what.into(),
        });
    }

    /// Puts the sections into the order that readers expect.
    fn sorted(mut self) -> Self {
        self.next.sort_by_key(|next| (next.at.is_none(), next.at));
        self.pods.sort_by(|left, right| {
            (!left.blocks, left.meaning, &left.pod).cmp(&(!right.blocks, right.meaning, &right.pod))
        });
        self
    }
}

/// Whole seconds, as Kubernetes writes times.
fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// `3d2h`, `2h10m`, `45s`: as kubectl shows ages, at most two units.
pub fn age(from: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(from).as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{}", tail(seconds % 60, "s")),
        (0, hours, minutes) => format!("{hours}h{}", tail(minutes, "m")),
        (days, hours, _) => format!("{days}d{}", tail(hours, "h")),
    }
}

fn tail(number: i64, unit: &str) -> String {
    match number {
        0 => String::new(),
        number => format!("{number}{unit}"),
    }
}

/// The names that the user may have meant: those that contain what was typed, then those that differ in few letters; at most five.
pub fn near_matches<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let lower = typed.to_lowercase();
    let limit = (typed.chars().count() / 3).clamp(2, 6);
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|name| {
            let contains = name.to_lowercase().contains(&lower);
            let distance = if contains {
                0
            } else {
                strsim::levenshtein(&typed.to_lowercase(), &name.to_lowercase())
            };
            (distance <= limit).then_some((distance, name))
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().map(|(_, name)| name).take(5).collect()
}
