//! Holds: rest after nodes have come or gone, from the times in objects.

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
    let has = |trigger: HoldTrigger| match &hold.triggers {
        None => trigger == HoldTrigger::Launch,
        Some(wanted) => wanted.contains(&trigger),
    };
    let is_here = |name: Option<&str>| pool.is_none() || pool == name;
    let mut times = Vec::new();
    if has(HoldTrigger::Launch) {
        let here = |node: &NodeId| {
            let view = snapshot.node(*node);
            view.is_managed() && is_here(view.pool_name.as_deref())
        };
        let nodes = snapshot.node_ids().filter(here);
        times.extend(nodes.filter_map(|node| memo.born(node)));
    }
    let touches = |one: &&std::sync::Arc<Disruption>| {
        let mut nodes = one.spec.nodes.iter();
        nodes.any(|node| is_here(Some(&node.node_pool)))
    };
    for one in snapshot.disruptions.iter().filter(touches) {
        let Some(status) = &one.status else { continue };
        let is_back = one.phase() == DisruptionPhase::RolledBack;
        if has(HoldTrigger::FailedLaunch) && launch_failed(one) {
            times.extend(status.finished_at.as_ref().map(|time| time.0));
        }
        if !is_back && has(HoldTrigger::ScaleDown) {
            times.extend(status.deleted_at.as_ref().map(|time| time.0));
        }
    }
    times
}

/// Whether a command was rolled back because a replacement was lost or late.
pub(super) fn launch_failed(one: &Disruption) -> bool {
    let cause = one
        .status
        .as_ref()
        .and_then(|status| status.roll_back_cause.as_ref());
    let is_of_launch = matches!(
        cause,
        Some(RollBackCause::ReplacementLost | RollBackCause::ReplacementLate)
    );
    one.phase() == DisruptionPhase::RolledBack && is_of_launch
}

/// When a node came: its Node, or its NodeClaim while there is none.
pub(super) fn born(node: &NodeView) -> Option<Timestamp> {
    let of_node = node.node.as_ref().map(|node| &node.metadata);
    let of_claim = node.claim.as_ref().map(|claim| &claim.metadata);
    let created = of_node.or(of_claim)?.creation_timestamp.as_ref()?;
    Some(created.0)
}

/// The hold that stands at `now`. `known` is what was last said of it: nodes that have gone since took their times along.
pub(super) fn held(times: &[Timestamp], hold: &Hold, known: Option<Held>, now: Timestamp) -> Option<Held> {
    let after = |time: Timestamp, duration: &GoDuration| {
        time.saturating_add(duration.to_signed())
            .unwrap_or(Timestamp::MAX)
    };
    // Most of the time the last of them is long over, and then no chain of them reaches until now.
    let last = times.iter().max()?;
    let delayed = hold
        .initial_delay
        .as_ref()
        .map_or(*last, |delay| after(*last, delay));
    if after(delayed, &hold.duration) <= now {
        return None;
    }
    let mut spans: Vec<Held> = times
        .iter()
        .map(|time| {
            // By a clock that was set back, what has come comes later: it has just come, as far as anybody can tell (invariant 43).
            let is_ahead = now.duration_since(*time) < -SKEW;
            let delayed = hold
                .initial_delay
                .as_ref()
                .map_or(*time, |delay| after(*time, delay));
            let since = if is_ahead { now } else { delayed };
            Held {
                since,
                until: after(since, &hold.duration),
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
    if let Some(maximum) = &hold.maximum {
        found.until = found.until.min(after(found.since, maximum));
    }
    (now < found.until).then_some(found)
}
