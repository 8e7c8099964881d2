//! How pods leave a node that goes: through the Eviction API (1), in tiers (30), with their grace (31).

use std::time::Duration;

use super::view::{Change, Claim, MOMENT, Pair, Pod, SOON, View, later};
use super::{Checker, Report, RequestInfo};

#[derive(Debug)]
pub(super) struct Evictions;

fn object(pod: &Pod) -> String {
    format!("pod {}/{}", pod.key.0, pod.key.1)
}

/// The NodeClaim of the pod's node.
fn claim_of<'a>(view: &'a View, pod: &Pod) -> Option<&'a Claim> {
    let node = view.nodes.get(&pod.node)?;
    view.claim_of_node(node).map(|claim| &**claim)
}

impl Checker for Evictions {
    fn changed(&mut self, view: &View, change: &Change, request: &RequestInfo, report: &mut Report) {
        let Change::Pod(Pair {
            before: Some(before),
            after,
        }) = change
        else {
            return;
        };
        // An eviction writes a condition first; only the end is judged.
        let goes = after.as_deref().is_none_or(|after| after.deletion.is_some());
        if !goes || !request.by_operator() || before.has_ended() || before.node.is_empty() {
            return;
        }
        if !is_going(view, before) {
            report.fail(
                1,
                object(before),
                format!("is removed from node {}, which stays", before.node),
            );
        }
        let began = before.deletion.is_none();
        let deadline = claim_of(view, before).and_then(|claim| claim.deadline);
        // Up to a second is lost where times are kept in whole seconds.
        let second = Duration::from_secs(1);
        let forced = deadline.is_some_and(|deadline| {
            later(later(view.now, before.shape.grace), second) >= deadline
                || before.deletion.is_some_and(|deletion| deletion > deadline)
        });
        if request.is_eviction() {
            if began {
                allowed(view, before, report);
            }
        } else if !forced {
            let deadline = deadline.map_or("no deadline".to_owned(), |deadline| {
                format!("deadline {deadline}")
            });
            report.fail(
                1,
                object(before),
                format!(
                    "{} {} removes it without the Eviction API, and its node has {deadline}",
                    request.method, request.path
                ),
            );
        }
        if began && !forced {
            in_order(view, before, report);
        }
        granted(view, before, after.as_deref(), deadline, report);
    }
}

/// 1: whether the pod's node is on its way out, or may have been when its drain began. One that is gone was; a kubelet may have registered it again since,
/// and its NodeClaim goes then, or is gone as well.
fn is_going(view: &View, pod: &Pod) -> bool {
    let Some(node) = view.nodes.get(&pod.node) else {
        return true;
    };
    let without_claim = claim_of(view, pod).is_none_or(|claim| claim.deletion.is_some());
    node.deletion.is_some() || without_claim || view.is_news(node.created)
}

/// 1: the budget allows the eviction.
fn allowed(view: &View, pod: &Pod, report: &mut Report) {
    // Kubernetes allows evicting pods that are not running yet.
    if pod.phase == "Pending" || pod.phase.is_empty() {
        return;
    }
    // What happened in this very moment the disruption controller has not counted, and neither do we: the server allows evictions by the status
    // that this controller wrote last, and no operator can know better.
    let settled = |pod: &Pod| later(pod.ready_changed, MOMENT) <= view.now;
    for budget in view.budgets.values().filter(|budget| budget.covers(pod)) {
        // Unready pods go if the budget's policy lets them, or if it is met without them. One that was ready a moment ago was still counted, and where
        // pods cannot be counted the server goes by numbers that nobody keeps.
        if !pod.ready && (budget.always_allows_unready || budget.sync_failed || !settled(pod)) {
            continue;
        }
        let healthy = view
            .pods
            .values()
            .chain(view.just_vanished())
            .filter(|other| other.uid != pod.uid && budget.covers(other))
            .filter(|other| {
                let asked = other.asked.is_some_and(|asked| later(asked, MOMENT) <= view.now);
                !other.has_ended() && !asked && (other.ready || !settled(other))
            })
            .count();
        let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
        if healthy < budget.desired_healthy && later(budget.changed, SOON) <= view.now {
            report.fail(
                1,
                object(pod),
                format!(
                    "evicted although budget {} needs {} healthy pods and only {healthy} others are",
                    budget.key.1, budget.desired_healthy
                ),
            );
        }
    }
}

/// 30: no pod of an earlier tier is left.
fn in_order(view: &View, pod: &Pod, report: &mut Report) {
    let earlier = view.pods_on(&pod.node).find(|other| {
        other.key != pod.key
            && other.tier() < pod.tier()
            && other.is_waited_for(view.now)
            && other.bound.is_some_and(|bound| view.is_known(bound))
    });
    if let Some(other) = earlier {
        report.fail(
            30,
            object(pod),
            format!(
                "of tier {} leaves node {} while {} of tier {} is still there",
                pod.tier(),
                pod.node,
                object(other),
                other.tier()
            ),
        );
    }
}

/// 31: the whole grace, or what the deadline leaves of it.
fn granted(
    view: &View,
    before: &Pod,
    after: Option<&Pod>,
    deadline: Option<jiff::Timestamp>,
    report: &mut Report,
) {
    let left = deadline.map(|deadline| {
        let left = Duration::try_from(deadline.duration_since(view.now)).unwrap_or(Duration::ZERO);
        left.max(Duration::from_secs(1))
    });
    let due = left.map_or(before.shape.grace, |left| left.min(before.shape.grace));
    let had = after.map_or(0, |after| after.deletion_grace_seconds);
    let had = Duration::from_secs(u64::try_from(had).unwrap_or(0));
    // A pod that no kubelet has seen is removed at once, whatever its grace period.
    let seen = !before.phase.is_empty() && before.phase != "Pending";
    if had + Duration::from_secs(1) < due && (after.is_some() || seen) {
        report.fail(
            31,
            object(before),
            format!(
                "has {had:?} to stop; it asks for {:?} and {due:?} are possible",
                before.shape.grace
            ),
        );
    }
}
