//! The next writes of a command under way, from its object and what is there now (D §3.5, §3.6).
//!
//! Nothing is remembered between two looks but what stands in the objects: a look after a restart, by another leader, or twice in a row leads on
//! from where the writes have come. It decides no command and knows no Snapshot.

use super::obstacles::{before_deletion, lost_destination, unwanted};
use super::record::{realised, replacement_claim};
use super::steps::{condition_patch, taint_patch};
use crate::report::count;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use spokeshave_api::conditions::{Conditioned, INITIALIZED};
use spokeshave_api::constants::{
    COMMAND_START_LIMIT, COMMAND_TAINT_SETTLE, COMMAND_TIMEOUT_MAXIMUM, COMMAND_TIMEOUT_MINIMUM,
    COMMAND_TIMEOUT_PER_NODE,
};
use spokeshave_api::disruption::{Disruption, DisruptionPhase, RollBackCause};
use spokeshave_api::{DisruptionReason, NodeClaim};
use spokeshave_model::Pod;
use spokeshave_model::Price;
use spokeshave_model::{Action, Event, EventType, ObjectKind, ObjectRef, Plan, Subresource};
use std::sync::Arc;
use std::time::Duration;

/// What a command waits for when its nodes are about to be deleted (invariants 8 and 38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// The watch has not told yet of every pod that the API server has on these nodes and on those that are to take pods, so that nobody can say whether
    /// the pods have places.
    Watch,
    /// Another command took a node away that was to take pods, and the nodes that it launches for them are not there yet.
    Places,
}

/// What is there now of a command's objects.
#[derive(Clone, Debug, Default)]
pub struct Present {
    /// For each node of the command, in its order.
    pub nodes: Vec<PresentNode>,
    /// For each replacement: its NodeClaim, if it exists.
    pub replacements: Vec<Option<Arc<NodeClaim>>>,
    /// Each node that is to take pods, those of replacements included, by its name, if it exists; those that another command has taken since, with a
    /// place for every pod, are left out.
    pub destinations: Vec<(String, Option<Arc<Node>>)>,
    /// Why the pods have no places any more, when the nodes are about to be deleted ([`super::last_look`]).
    pub crowded: Option<String>,
    /// Why a node would not be chosen any more, when the nodes are about to be deleted ([`super::last_look`]).
    pub guarded: Option<String>,
    /// Why NodePools have no room under their limits for the replacements that do not exist yet ([`super::beyond_limits`]).
    pub beyond_limits: Option<String>,
    /// What the API server says where it refuses to create a replacement, and would again.
    pub refused: Option<String>,
    /// What has to come before the nodes may be deleted.
    pub waits_for: Option<WaitsFor>,
    /// Nodes in all commands under way, which stretch the time that each has (D-114).
    pub queued_nodes: usize,
    /// The freeze by hand that stands for one of its NodePools, in words.
    pub frozen: Option<String>,
    /// What its replacements cost an hour as they were launched, when its nodes are gone; unknown where the price of one is.
    pub price_after: Option<Price>,
}

/// A watch that is behind is given so much time before it is compared with the API server again.
const WATCH_LAG: Duration = Duration::from_secs(1);

/// What is there now of one node of a command.
#[derive(Clone, Debug, Default)]
pub struct PresentNode {
    /// Its Node.
    pub node: Option<Arc<Node>>,
    /// Its NodeClaim: the one with the UID that the command names.
    pub claim: Option<Arc<NodeClaim>>,
    /// The pods bound to it; as the server has them when [`needs_pods_of_server`] says so.
    pub pods: Vec<Arc<Pod>>,
}

impl PresentNode {
    /// True while nobody has asked for the deletion of its NodeClaim.
    pub fn is_live(&self) -> bool {
        self.live().is_some()
    }

    /// The NodeClaim, while nobody has asked for its deletion.
    pub(super) fn live(&self) -> Option<&Arc<NodeClaim>> {
        self.claim.as_ref().filter(|claim| !claim.is_deleting())
    }
}

/// What happened, for metrics and for people; each is told once, when its writes have succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// All nodes are tainted and all replacements exist.
    Started,
    /// The NodeClaim of the node with this index was asked to go.
    Deleted(usize),
    /// The nodes are gone.
    Succeeded,
    /// The command was taken back; so many replacements were not initialised.
    RolledBack {
        /// Why.
        why: String,
        /// Replacements that never initialised (D-117).
        failed_replacements: usize,
    },
}

/// How a look at a command carries it on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// What the success of each action of the plan completes.
    pub milestones: Vec<Option<Milestone>>,
    /// When to look again if nothing changes before; `None` when nothing is left to wait for.
    pub again: Option<Duration>,
    /// What follows a deletion that fails is done all the same: the command is taken back, and what it could not delete is collected later.
    pub goes_on: bool,
}

/// Writes, each with what it completes.
type Steps = Vec<(Action, Option<Milestone>)>;

fn plan(steps: Steps, events: Vec<Event>, again: Option<Duration>) -> Plan<Advance> {
    let (actions, milestones) = steps.into_iter().unzip();
    Plan {
        events,
        actions,
        report: Advance {
            milestones,
            again,
            goes_on: false,
        },
    }
}

/// One look at a command.
pub fn advance(disruption: &Disruption, present: &Present, now: Timestamp) -> Plan<Advance> {
    match disruption.phase() {
        DisruptionPhase::Starting => start(disruption, present, now),
        DisruptionPhase::Replacing => replace(disruption, present, now),
        DisruptionPhase::Deleting => delete(disruption, present, now),
        DisruptionPhase::Draining => drain(disruption, present, now),
        // A phase of a later version is that version's affair.
        DisruptionPhase::Succeeded | DisruptionPhase::RolledBack | DisruptionPhase::Other(_) => {
            Plan::default()
        }
    }
}

/// Whether the next look deletes nodes, so that what the watch has told of their pods is not enough (invariant 7).
pub fn needs_pods_of_server(disruption: &Disruption, now: Timestamp) -> bool {
    disruption.phase() == DisruptionPhase::Deleting && unsettled(disruption, now).is_none()
}

/// For how long the taints have to stand yet before pods are looked at for the last time.
fn unsettled(disruption: &Disruption, now: Timestamp) -> Option<Duration> {
    let started = disruption.status.as_ref()?.started_at.as_ref()?.0;
    // A clock that went back starts the wait again, which is short.
    let passed = Duration::try_from(now.duration_since(started)).unwrap_or(Duration::ZERO);
    COMMAND_TAINT_SETTLE
        .checked_sub(passed)
        .filter(|left| !left.is_zero())
}

/// Time since a command was decided.
fn age(disruption: &Disruption, now: Timestamp) -> Duration {
    // A clock that went back makes a command young, not old.
    Duration::try_from(now.duration_since(disruption.spec.decided_at.0)).unwrap_or(Duration::ZERO)
}

/// D-114: 80 ms for each queued node, within 10 minutes and an hour.
pub fn time_limit(queued_nodes: usize) -> Duration {
    let nodes = u32::try_from(queued_nodes).unwrap_or(u32::MAX);
    COMMAND_TIMEOUT_PER_NODE
        .saturating_mul(nodes)
        .clamp(COMMAND_TIMEOUT_MINIMUM, COMMAND_TIMEOUT_MAXIMUM)
}

/// How long the first steps may take: two writes for each node, as if an API server answered one after the other.
fn start_limit(nodes: usize) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    COMMAND_START_LIMIT.max(COMMAND_TIMEOUT_PER_NODE.saturating_mul(nodes).saturating_mul(2))
}

/// D-098: taints, then conditions, then replacements, then the status that says so.
fn start(disruption: &Disruption, present: &Present, now: Timestamp) -> Plan<Advance> {
    let spec = &disruption.spec;
    let live = || {
        present
            .nodes
            .iter()
            .filter(|node| node.live().is_some() && node.node.is_some())
    };
    if age(disruption, now) > start_limit(spec.nodes.len()) {
        let why = "its first steps were interrupted; it is decided again";
        return roll_back(disruption, present, RollBackCause::Interrupted, why, now);
    }
    if live().next().is_none() {
        let why = "its nodes are gone or are being deleted already";
        return roll_back(disruption, present, RollBackCause::NodesGone, why, now);
    }
    if !spec.replacements.is_empty() && live().count() < spec.nodes.len() {
        // D-101: replacements were computed for all of them.
        let why = "one of its nodes is gone or is being deleted already";
        return roll_back(disruption, present, RollBackCause::NodesGone, why, now);
    }
    if let Some((cause, why)) = unwanted(disruption, present, now) {
        return roll_back(disruption, present, cause, &why, now);
    }
    if let Some(why) = &present.beyond_limits {
        return roll_back(disruption, present, RollBackCause::LimitExceeded, why, now);
    }
    if let Some(words) = &present.refused {
        // D-102. What is asked for again and again would only keep the nodes tainted, and the budget used, until the time for the first steps is over.
        let why = format!("the API server refuses a replacement: {words}");
        return roll_back(disruption, present, RollBackCause::ReplacementRefused, &why, now);
    }
    let reason = spec.reason.to_string();
    let taints = live().filter_map(|node| taint_patch(node.node.as_ref()?, true));
    let conditions = live().filter_map(|node| condition_patch(node.live()?, Some(&reason), now));
    let missing = spec
        .replacements
        .iter()
        .zip(&present.replacements)
        .filter(|(_, there)| there.is_none());
    let creations = missing.map(|(replacement, _)| Action::CreateNodeClaim {
        claim: Box::new(replacement_claim(replacement)),
        reason: reason.to_lowercase(),
    });
    let mut steps: Vec<_> = taints
        .chain(conditions)
        .chain(creations)
        .map(|action| (action, None))
        .collect();
    let phase = if spec.replacements.is_empty() {
        DisruptionPhase::Deleting
    } else {
        DisruptionPhase::Replacing
    };
    let message = match spec.replacements.len() {
        0 => format!("deleting {}", count(spec.nodes.len(), "node")),
        number => format!("waiting for {} to be initialised", count(number, "replacement")),
    };
    steps.extend(status(disruption, phase, &message, now).map(|action| (action, Some(Milestone::Started))));
    plan(steps, Vec::new(), Some(Duration::ZERO))
}

/// D-108…D-110, D-114: waits for the replacements, and takes the command back when one is lost or the time is up.
fn replace(disruption: &Disruption, present: &Present, now: Timestamp) -> Plan<Advance> {
    let spec = &disruption.spec;
    for (replacement, claim) in spec.replacements.iter().zip(&present.replacements) {
        if claim.as_ref().is_none_or(|claim| claim.is_deleting()) {
            let why = format!(
                "replacement {} is gone before it was initialised",
                replacement.node_claim
            );
            return roll_back(disruption, present, RollBackCause::ReplacementLost, &why, now);
        }
    }
    if present.nodes.iter().all(|node| node.live().is_none()) {
        // Somebody else has deleted them all: nothing is left to wait for.
        return to_deleting(disruption, now);
    }
    if let Some((cause, why)) = unwanted(disruption, present, now) {
        return roll_back(disruption, present, cause, &why, now);
    }
    let waiting: Vec<&Arc<NodeClaim>> = present
        .replacements
        .iter()
        .flatten()
        .filter(|claim| !claim.is_true(INITIALIZED))
        .collect();
    if waiting.is_empty() {
        return match lost_destination(present) {
            Some(why) => roll_back(disruption, present, RollBackCause::PlaceLost, &why, now),
            None => to_deleting(disruption, now),
        };
    }
    let limit = time_limit(present.queued_nodes);
    let age = age(disruption, now);
    if age > limit {
        let why = format!(
            "{} of {} not initialised after {} minutes",
            waiting.len(),
            count(spec.replacements.len(), "replacement"),
            limit.as_secs() / 60
        );
        return roll_back(disruption, present, RollBackCause::ReplacementLate, &why, now);
    }
    let events = waiting
        .iter()
        .flat_map(|claim| waiting_events(claim, &spec.reason))
        .collect();
    let again = (limit - age).saturating_add(Duration::from_secs(1));
    plan(Steps::new(), events, Some(again))
}

fn to_deleting(disruption: &Disruption, now: Timestamp) -> Plan<Advance> {
    let message = format!("deleting {}", count(disruption.spec.nodes.len(), "node"));
    let steps = status(disruption, DisruptionPhase::Deleting, &message, now);
    let steps = steps.map(|action| (action, None)).into_iter().collect();
    plan(steps, Vec::new(), Some(Duration::ZERO))
}

/// D-109.
fn waiting_events(claim: &NodeClaim, reason: &DisruptionReason) -> [Event; 2] {
    let object = || ObjectRef::cluster(ObjectKind::NodeClaim, claim.name(), claim.uid());
    let launching = format!("Launching NodeClaim: {reason}");
    [
        Event::new(object(), EventType::Normal, "DisruptionLaunching", launching)
            .deduped_by([claim.uid().to_owned(), reason.to_string()]),
        Event::new(
            object(),
            EventType::Normal,
            "DisruptionWaitingReadiness",
            "Waiting on readiness to continue disruption",
        ),
    ]
}

/// D-111, D-112: each NodeClaim that is there and not going is deleted, once, unless something keeps it.
fn delete(disruption: &Disruption, present: &Present, now: Timestamp) -> Plan<Advance> {
    if let Some(left) = unsettled(disruption, now) {
        return plan(Steps::new(), Vec::new(), Some(left));
    }
    // Where all are deleted there is nothing to take back: their pods are on their way, also to replacements that are not up yet.
    if present.nodes.iter().any(PresentNode::is_live)
        && let Some(kept) = keep(disruption, present, now)
    {
        return kept;
    }
    let mut steps = Vec::new();
    let mut events = Vec::new();
    for (index, node) in present.nodes.iter().enumerate() {
        let Some(claim) = node.live() else { continue };
        let target = ObjectRef::cluster(ObjectKind::NodeClaim, claim.name(), claim.uid());
        steps.push((Action::delete(target), Some(Milestone::Deleted(index))));
        events.extend(terminating_events(node, &disruption.spec.reason));
    }
    let draining = status(
        disruption,
        DisruptionPhase::Draining,
        "its nodes drain and end",
        now,
    );
    steps.extend(draining.map(|action| (action, None)));
    plan(steps, events, Some(Duration::ZERO))
}

/// Whether nodes that are about to be deleted are kept: for good, or until more is known.
fn keep(disruption: &Disruption, present: &Present, now: Timestamp) -> Option<Plan<Advance>> {
    if let Some((cause, why)) = before_deletion(disruption, present, now) {
        return Some(roll_back(disruption, present, cause, &why, now));
    }
    if let Some(waits_for) = present.waits_for {
        return Some(wait(disruption, present, waits_for, now));
    }
    if deleting_for(disruption, now) > COMMAND_TIMEOUT_MINIMUM {
        // Deletions that are refused do not keep nodes tainted, and the budget used, for ever (D-114, D-115). What was deleted goes on.
        let stay = present.nodes.iter().filter(|node| node.is_live()).count();
        let why = format!(
            "{} could not be deleted within {}",
            count(stay, "node"),
            minutes(COMMAND_TIMEOUT_MINIMUM)
        );
        return Some(roll_back(disruption, present, RollBackCause::TimedOut, &why, now));
    }
    None
}

/// Time since the nodes of a command were to be deleted.
fn deleting_for(disruption: &Disruption, now: Timestamp) -> Duration {
    let since = disruption
        .status
        .as_ref()
        .and_then(|status| status.deleted_at.as_ref());
    let passed = since.and_then(|since| Duration::try_from(now.duration_since(since.0)).ok());
    passed.unwrap_or(Duration::ZERO)
}

fn minutes(duration: Duration) -> String {
    count(
        usize::try_from(duration.as_secs() / 60).unwrap_or(usize::MAX),
        "minute",
    )
}

/// Looks again soon; what never comes does not keep nodes tainted for ever.
fn wait(disruption: &Disruption, present: &Present, waits_for: WaitsFor, now: Timestamp) -> Plan<Advance> {
    let limit = time_limit(present.queued_nodes).saturating_add(COMMAND_TIMEOUT_MINIMUM);
    if age(disruption, now) > limit {
        let what = match waits_for {
            WaitsFor::Watch => "the watch of pods is still behind",
            WaitsFor::Places => "places that another command was to make are still missing",
        };
        let why = format!("{what} {} after the decision", minutes(limit));
        return roll_back(disruption, present, RollBackCause::TimedOut, &why, now);
    }
    plan(Steps::new(), Vec::new(), Some(WATCH_LAG))
}

fn terminating_events(node: &PresentNode, reason: &DisruptionReason) -> Vec<Event> {
    let event = |object: ObjectRef, kind: &str| {
        let values = [object.uid.clone(), reason.to_string()];
        Event::new(
            object,
            EventType::Normal,
            "DisruptionTerminating",
            format!("Disrupting {kind}: {reason}"),
        )
        .deduped_by(values)
    };
    let on_node = node
        .node
        .as_ref()
        .map(|node| event(crate::lifecycle::node_ref(node), "Node"));
    let on_claim = node
        .claim
        .as_ref()
        .map(|claim| event(crate::lifecycle::claim_ref(claim), "NodeClaim"));
    on_node.into_iter().chain(on_claim).collect()
}

/// Whether a command has come to its end: its nodes are gone, and the ledger is about to say so.
pub fn is_gone(disruption: &Disruption, present: &Present) -> bool {
    disruption.phase() == DisruptionPhase::Draining && present.nodes.iter().all(|node| node.claim.is_none())
}

/// Waits until the NodeClaims are gone; termination does the work, and this look writes the end into the ledger.
fn drain(disruption: &Disruption, present: &Present, now: Timestamp) -> Plan<Advance> {
    if !is_gone(disruption, present) {
        return Plan::default();
    }
    let (realised, message) = realised(disruption, present.price_after);
    let mut ended = disruption.clone();
    ended.status.get_or_insert_default().realised_savings = realised;
    let steps = status_from(disruption, ended, DisruptionPhase::Succeeded, &message, now);
    let steps = steps
        .map(|action| (action, Some(Milestone::Succeeded)))
        .into_iter()
        .collect();
    plan(steps, Vec::new(), None)
}

/// D-116, W-33: replacements that are not up go again, the ledger says why, and the nodes are as they were. Nodes on their way out keep the taint.
fn roll_back(
    disruption: &Disruption,
    present: &Present,
    cause: RollBackCause,
    why: &str,
    now: Timestamp,
) -> Plan<Advance> {
    let unfinished: Vec<&Arc<NodeClaim>> = present
        .replacements
        .iter()
        .flatten()
        .filter(|claim| !claim.is_true(INITIALIZED) && !claim.is_deleting())
        .collect();
    let missing = present
        .replacements
        .iter()
        .filter(|claim| claim.as_ref().is_none_or(|claim| !claim.is_true(INITIALIZED)));
    let milestone = Milestone::RolledBack {
        why: why.to_owned(),
        failed_replacements: missing.count(),
    };
    let deletes = unfinished
        .iter()
        .map(|claim| (Action::delete(crate::lifecycle::claim_ref(claim)), None));
    let mut after = disruption.clone();
    let ended = after.status.get_or_insert_default();
    ended.roll_back_cause = Some(cause);
    if present.nodes.iter().all(PresentNode::is_live) {
        // It was written when they were to be deleted, and none was: rates, quotas and waves do not count the command.
        ended.deleted_at = None;
    }
    let status = status_from(disruption, after, DisruptionPhase::RolledBack, why, now)
        .map(|action| (action, Some(milestone)));
    let staying = || present.nodes.iter().filter(|node| node.live().is_some());
    let taints = staying().filter_map(|node| {
        let node = node
            .node
            .as_ref()
            .filter(|node| node.metadata.deletion_timestamp.is_none())?;
        taint_patch(node, false)
    });
    let conditions = staying().filter_map(|node| condition_patch(node.live()?, None, now));
    let clean = taints.chain(conditions).map(|action| (action, None));
    let mut plan = plan(deletes.chain(status).chain(clean).collect(), Vec::new(), None);
    plan.report.goes_on = true;
    plan
}

fn status(disruption: &Disruption, phase: DisruptionPhase, message: &str, now: Timestamp) -> Option<Action> {
    status_from(disruption, disruption.clone(), phase, message, now)
}

/// The same; `after` is the object with what else changes in its status.
fn status_from(
    disruption: &Disruption,
    mut after: Disruption,
    phase: DisruptionPhase,
    message: &str,
    now: Timestamp,
) -> Option<Action> {
    let status = after.status.get_or_insert_default();
    let time = Some(MicroTime(now));
    match phase {
        DisruptionPhase::Replacing => status.started_at = time,
        DisruptionPhase::Deleting => {
            status.started_at = status.started_at.take().or_else(|| time.clone());
            status.deleted_at = time;
        }
        DisruptionPhase::Succeeded | DisruptionPhase::RolledBack => status.finished_at = time,
        _ => {}
    }
    status.phase = Some(phase);
    status.message = Some(message.to_owned());
    let target = ObjectRef::cluster(ObjectKind::Disruption, disruption.name(), disruption.uid());
    Action::patch(target, Subresource::Status, disruption, &after, true)
}
