//! When consolidation that moves pods may start: in rounds, for each NodePool, once its nodes have come to rest.
//!
//! A move that is judged while pods are leaving or arriving is judged too early: the node that takes a pod may be about to be empty itself, and the pod that
//! was moved moves again a minute later. So a round begins when no node of the NodePool is inside its consolidateAfter or still without the condition that
//! says it has passed, none comes or goes, and no pod is leaving it; then everything that is worth doing starts at once, each command knowing those before it, until a pass finds nothing more. Where a NodePool
//! never rests, a round begins all the same after its longest wait.
//!
//! NodePools with `consolidateAfter: 0s` have said that they do not wait. Emptiness and drift are never asked to.

use super::command::Command;
use crate::durations::signed;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_model::snapshot::{NodeView, PoolId, Snapshot};

/// A window of consolidateAfter is waited for so long at the most.
const LONGEST_WINDOW: Duration = Duration::from_secs(240);
/// What is left under way when the windows have closed may take so much longer.
const MORE: Duration = Duration::from_secs(60);

/// Where a NodePool stands between rounds. Safe to lose: it waits anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Something is under way since.
    Waiting(Timestamp),
    /// Commands start.
    Open,
    /// Commands start, and some have that are worth their evictions: others wait for the next round, which may have no need of them (W-61).
    Started,
}

impl Round {
    fn is_open(&self) -> bool {
        matches!(self, Round::Open | Round::Started)
    }
}

/// W-61: a command whose evictions weigh too much for what it saves is not started in one round with others that are worth theirs: when these are done,
/// there may be something better. The round learns of those that are.
pub(super) fn may_start(rounds: &mut BTreeMap<String, Round>, command: &Command, is_worth_it: bool) -> bool {
    for node in &command.nodes {
        let Some(round) = rounds.get_mut(&node.pool) else {
            continue;
        };
        match *round {
            Round::Started if !is_worth_it => return false,
            Round::Open if is_worth_it => *round = Round::Started,
            _ => {}
        }
    }
    true
}

/// The NodePools that must not start a command now, each with the time when it has waited long enough whatever is under way; and what the next pass is to
/// know. `busy` are the NodePools with nodes that have not come to rest.
pub(super) fn observe(
    snapshot: &Snapshot,
    busy: &BTreeSet<PoolId>,
    before: &BTreeMap<String, Round>,
    now: Timestamp,
) -> (BTreeMap<PoolId, Timestamp>, BTreeMap<String, Round>) {
    let mut closed = BTreeMap::new();
    let mut rounds = BTreeMap::new();
    for (index, pool) in snapshot.pools.iter().enumerate() {
        let Some(window) = window(pool.object.spec.disruption.consolidate_after.duration()) else {
            continue;
        };
        let since = match before.get(&pool.name) {
            Some(Round::Open | Round::Started) => None,
            Some(Round::Waiting(since)) => Some(*since),
            None => Some(now),
        };
        let since = since.filter(|_| busy.contains(&PoolId::from(index)));
        let end = since.map(|since| after(since, window));
        let round = match end.filter(|end| now < *end) {
            Some(end) => {
                closed.insert(PoolId::from(index), end);
                // A clock that went back starts the wait again.
                Round::Waiting(since.unwrap_or(now).min(now))
            }
            None if before.get(&pool.name) == Some(&Round::Started) => Round::Started,
            None => Round::Open,
        };
        rounds.insert(pool.name.clone(), round);
    }
    (closed, rounds)
}

/// A pass that found nothing ends the rounds: what comes to rest from now on is waited for.
pub(super) fn end(rounds: &mut BTreeMap<String, Round>, now: Timestamp) {
    for round in rounds.values_mut().filter(|round| round.is_open()) {
        *round = Round::Waiting(now);
    }
}

/// Only NodePools that wait for pods to settle wait for each other's moves, too.
fn window(consolidate_after: Option<Duration>) -> Option<Duration> {
    consolidate_after.filter(|window| *window > Duration::ZERO)
}

fn after(since: Timestamp, window: Duration) -> Timestamp {
    let wait = window.min(LONGEST_WINDOW).saturating_add(MORE);
    let wait = signed(wait);
    since.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// Whether pods are leaving a node.
pub(super) fn has_leaving_pods(snapshot: &Snapshot, view: &NodeView) -> bool {
    view.pods.iter().any(|pod| {
        let pod = snapshot.pod(*pod);
        !pod.active && !pod.terminal && !pod.daemon
    })
}
