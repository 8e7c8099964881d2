//! Holds: rest after nodes have come or gone, from the times in objects, and from what the status remembers of those that are gone.

use super::convergence::deleted_at;
use super::memo::Memo;
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::GoDuration;
use spokeshave_api::disruption::{Disruption, DisruptionPhase, RollBackCause};
use spokeshave_api::disruption_policy::{Hold, HoldTrigger};
use spokeshave_model::snapshot::{NodeId, NodeView, Snapshot};

/// Clocks of the API server and of the operator may differ by that much.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// A stretch of time in which nothing is disrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
}

/// The instants that start a hold, of one NodePool or of all.
pub(super) fn triggers(
    snapshot: &Snapshot,
    memo: &Memo<'_>,
    hold: &Hold,
    pool: Option<&str>,
) -> Vec<Timestamp> {
    let is_here = |name: Option<&str>| pool.is_none() || pool == name;
    let mut times = Vec::new();
    if has(hold, &HoldTrigger::Launch) {
        let here = |node: &NodeId| {
            let view = snapshot.node(*node);
            // A NodeClaim alone has added nothing yet, and of a machine that cannot join it never will.
            view.is_managed() && view.node.is_some() && is_here(view.pool_name.as_deref())
        };
        let nodes = snapshot.node_ids().filter(here);
        times.extend(nodes.filter_map(|node| memo.born(node)));
    }
    let touches = |one: &&std::sync::Arc<Disruption>| {
        let mut nodes = one.spec.nodes.iter();
        nodes.any(|node| is_here(Some(&node.node_pool)))
    };
    let commands = snapshot.disruptions.iter().filter(touches);
    times.extend(commands.flat_map(|one| of_command(one, hold)));
    times
}

fn has(hold: &Hold, trigger: &HoldTrigger) -> bool {
    match &hold.triggers {
        None => *trigger == HoldTrigger::Launch,
        Some(wanted) => wanted.contains(trigger),
    }
}

/// When a command starts a hold.
fn of_command(one: &Disruption, hold: &Hold) -> impl Iterator<Item = Timestamp> {
    let failed = launch_failed_at(one).filter(|_| has(hold, &HoldTrigger::FailedLaunch));
    let removed = deleted_at(one).filter(|_| has(hold, &HoldTrigger::ScaleDown));
    [failed, removed].into_iter().flatten()
}

/// Whether a command may still hold something, so that it has to be kept.
pub(super) fn still_holds(one: &Disruption, hold: &Hold, now: Timestamp) -> bool {
    of_command(one, hold).any(|time| now < end(begin(time, hold), hold))
}

/// When a command was rolled back because a replacement was lost or late.
pub(super) fn launch_failed_at(one: &Disruption) -> Option<Timestamp> {
    let status = one.status.as_ref()?;
    let is_of_launch = matches!(
        status.roll_back_cause,
        Some(RollBackCause::ReplacementLost | RollBackCause::ReplacementLate)
    );
    let is_back = one.phase() == DisruptionPhase::RolledBack;
    let finished = status.finished_at.as_ref()?;
    (is_back && is_of_launch).then_some(finished.0)
}

/// When a node came: its Node, or its NodeClaim while there is none.
pub(super) fn born(node: &NodeView) -> Option<Timestamp> {
    let of_node = node.node.as_ref().map(|node| &node.metadata);
    let of_claim = node.claim.as_ref().map(|claim| &claim.metadata);
    let created = of_node.or(of_claim)?.creation_timestamp.as_ref()?;
    Some(created.0)
}

fn after(time: Timestamp, duration: &GoDuration) -> Timestamp {
    time.saturating_add(duration.to_signed())
        .unwrap_or(Timestamp::MAX)
}

/// When the hold of a trigger begins.
fn begin(trigger: Timestamp, hold: &Hold) -> Timestamp {
    hold.initial_delay
        .as_ref()
        .map_or(trigger, |delay| after(trigger, delay))
}

/// When a hold that begins then ends, unless a trigger comes before that.
fn end(since: Timestamp, hold: &Hold) -> Timestamp {
    after(since, &hold.duration)
}

/// The triggers of which each came before the hold of those before it was over, up to `now`, as the hold that they are without a maximum. `known` is what was
/// last said of it: nodes that have gone since took their times along.
fn chain(times: &[Timestamp], hold: &Hold, known: Option<Held>, now: Timestamp) -> Option<Held> {
    // Most of the time the last of them is long over, and then no chain of them reaches until now.
    let last = times.iter().max()?;
    if end(begin(*last, hold), hold) <= now {
        return None;
    }
    let mut spans: Vec<Held> = times
        .iter()
        .map(|time| {
            // By a clock that was set back, what has come comes later: it has just come, as far as anybody can tell (invariant 43).
            let is_ahead = now.duration_since(*time) < -SKEW;
            let since = if is_ahead { now } else { begin(*time, hold) };
            Held {
                since,
                until: end(since, hold),
            }
        })
        .collect();
    spans.sort_unstable_by_key(|span| (span.since, span.until));
    let mut chain: Option<Held> = None;
    for span in spans {
        match &mut chain {
            Some(open) if span.since <= open.until => open.until = open.until.max(span.until),
            // What comes later is of no interest once one is found that stands now.
            Some(open) if open.until > now => break,
            _ => chain = Some(span),
        }
    }
    let mut found = chain.filter(|span| span.since <= now && now < span.until)?;
    if let Some(known) = known.filter(|known| known.until >= found.since) {
        found.since = found.since.min(known.since);
    }
    Some(found)
}

/// The hold that stands at `now`; also one whose triggers are all gone, as far as it is known.
pub(super) fn held(times: &[Timestamp], hold: &Hold, known: Option<Held>, now: Timestamp) -> Option<Held> {
    let mut found = remembered(times, hold, known, now)?;
    if let Some(maximum) = &hold.maximum {
        found.until = found.until.min(after(found.since, maximum));
    }
    (now < found.until).then_some(found)
}

/// What is to be known at the next look: the chain of triggers also after the maximum has ended its hold, until a whole duration has passed without one.
pub(super) fn remembered(
    times: &[Timestamp],
    hold: &Hold,
    known: Option<Held>,
    now: Timestamp,
) -> Option<Held> {
    // By a clock that was set back, or with a duration that was shortened, what is known lasts no longer than what a trigger of this moment would begin.
    let latest = end(begin(now, hold), hold);
    let known = known.map(|known| Held {
        since: known.since.min(now),
        until: known.until.min(latest),
    });
    match (chain(times, hold, known, now), known) {
        // The last trigger may be gone as well.
        (Some(found), Some(known)) if known.until >= found.since => Some(Held {
            since: found.since,
            until: found.until.max(known.until),
        }),
        (Some(found), _) => Some(found),
        (None, known) => known.filter(|known| now < known.until),
    }
}
