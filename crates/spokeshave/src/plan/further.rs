//! What further passes would disrupt, each once the commands of those before it have begun.
//!
//! The first method that has something to start ends a pass (D-063), and the operator makes the next one at once: nodes of commands are on their way out and
//! what comes instead of them is on its way, also while a command waits for its second look. Here each pass is the operator's own function, on a Snapshot
//! that takes in the same changes as the operator's. No command is looked at twice: which of them will stand by then, nobody knows yet.

use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::NodeClaim;
use spokeshave_api::disruption::{Disruption, Replacement};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Applied, Change, InstanceType, LiveSnapshot};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::record::{record, unmade_claim};
use spokeshave_plan::disrupt::{Command, Destination, Outcome, disrupt, revocable};
use spokeshave_plan::in_flight::{Room, stand_in};
use spokeshave_story::prices;

use super::disruption::command_view;
use super::format::CommandView;

/// So many passes are made at most.
const MOST_PASSES: usize = 20;

/// What passes after this outcome would start, until one starts nothing, and whether there may be more. Nothing, where this one does.
pub(super) fn commands(
    live: &mut LiveSnapshot,
    first: Outcome,
    policy: &Policy,
    now: Timestamp,
) -> (Vec<CommandView>, bool) {
    let mut policy = policy.clone();
    policy.disrupt.verdicts = false;
    let mut begun = Vec::new();
    let (mut outcome, mut told) = (first, Vec::new());
    for _ in 0..MOST_PASSES {
        if outcome.commands.is_empty() {
            break;
        }
        let taken = changes(live, &outcome, &mut begun, &policy, now);
        if live.apply(taken) == Applied::Rebuilt {
            // Of the pods only what decisions read is left: they cannot be lowered once more.
            break;
        }
        let snapshot = live.snapshot();
        outcome = disrupt(snapshot, &policy, now, &outcome.frontier);
        let unpriced = prices::unpriced(snapshot);
        let commands = outcome.commands.iter();
        told.extend(commands.map(|command| command_view(snapshot, &unpriced, command)));
    }
    (told, !outcome.commands.is_empty())
}

/// What the operator's next Snapshot takes in once these commands have begun, besides those that have `begun` before.
fn changes(
    live: &LiveSnapshot,
    outcome: &Outcome,
    begun: &mut Vec<Arc<Disruption>>,
    policy: &Policy,
    now: Timestamp,
) -> Vec<Change> {
    let snapshot = live.snapshot();
    // The plan has noted them in the Snapshot alone.
    let noted = snapshot
        .nodes
        .iter()
        .filter(|node| node.nominated_until.is_some());
    let mut changes: Vec<Change> = noted
        .map(|node| Change::Nominated(node.provider_id.clone(), node.nominated_until))
        .collect();
    let mut ledger = snapshot.disruptions.clone();
    for command in &outcome.commands {
        let object = Arc::new(record(snapshot, command, &outcome.budgets, now));
        for node in &command.nodes {
            changes.push(Change::MarkedForDeletion(node.provider_id.clone(), true));
            changes.push(Change::InCommand(node.provider_id.clone(), true));
        }
        for replacement in &object.spec.replacements {
            changes.push(Change::NodeClaim(Arc::new(on_its_way(snapshot, replacement))));
        }
        // Others are written down after their second look.
        if !command.method.is_validated() {
            changes.extend(nominations(command, policy, now));
            ledger.push(Arc::clone(&object));
        }
        begun.push(object);
    }
    if !snapshot.disruption_policies.is_empty() {
        changes.push(Change::Disruptions(ledger));
    }
    let claim = |name: &str| live.node_claim(name).cloned();
    let may_be_taken_back = begun.iter().filter_map(|command| revocable(command, claim));
    changes.push(Change::Revocable(may_be_taken_back.collect()));
    changes
}

/// D-027: the nodes that are to take pods of a command are kept for them.
fn nominations(command: &Command, policy: &Policy, now: Timestamp) -> impl Iterator<Item = Change> {
    let until = policy.nominated_until(now);
    command.moves.iter().filter_map(move |step| match &step.to {
        Destination::Node { provider_id, .. } => Some(Change::Nominated(provider_id.clone(), Some(until))),
        Destination::Replacement(_) => None,
    })
}

/// A replacement as the operator plans with it before it is made.
fn on_its_way(snapshot: &Snapshot, replacement: &Replacement) -> NodeClaim {
    let claim = unmade_claim(replacement);
    let types: &[InstanceType] = match snapshot.find_pool(&replacement.node_pool) {
        Some(pool) => &snapshot.pool(pool).instance_types,
        None => &[],
    };
    stand_in(&claim, types, Room::Open)
}
