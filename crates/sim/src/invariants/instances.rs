//! Machines: one a NodeClaim and none leaked (11), registered or ended (12), confirmed terminated before a finalizer is removed (14), within the limits
//! of the pool (15).

use std::time::Duration;

use super::view::{Change, Instance, Pair, View, later};
use super::{Checker, Report, RequestInfo};

/// Garbage collection looks every two minutes and asks the cloud; a call that hangs costs a minute.
const LEAK_LIMIT: Duration = Duration::from_secs(10 * 60);
/// For so long after a launch a cloud may answer that there is no such machine.
const UNSEEN: Duration = Duration::from_secs(60);
/// The registration time-out (15 minutes), and time to begin the end.
const REGISTRATION_LIMIT: Duration = Duration::from_secs(20 * 60);

#[derive(Debug)]
pub(super) struct Instances;

impl Checker for Instances {
    fn changed(&mut self, view: &View, change: &Change, request: &RequestInfo, report: &mut Report) {
        match change {
            Change::Instance(Pair {
                before,
                after: Some(instance),
            }) => {
                if before.is_none() && instance.of_kwok {
                    single(view, instance, report);
                }
                let was_known = before.as_ref().is_some_and(|before| !before.capacity.is_empty());
                if !was_known && !instance.capacity.is_empty() {
                    within_limits(view, instance, report);
                }
            }
            Change::Claim(Pair {
                before: Some(before),
                after,
            }) if request.by_operator() && before.has_finalizer => {
                let kept = after.as_ref().is_some_and(|after| after.has_finalizer);
                let alive = view
                    .instances
                    .values()
                    .filter(|instance| is_visible(view, instance))
                    .find(|instance| instance.claim_uid == before.uid || instance.name == before.instance());
                // Also where its launch was not written down: the kwok cloud knows the instance by the NodeClaim's UID.
                if let Some(instance) = alive.filter(|_| !kept) {
                    report.fail(
                        14,
                        format!("nodeclaim {}", before.name),
                        format!("loses its finalizer while instance {} exists", instance.name),
                    );
                }
            }
            Change::Node(Pair {
                before: Some(before),
                after,
            }) if request.by_operator() && before.has_finalizer => {
                let kept = after.as_ref().is_some_and(|after| after.has_finalizer);
                // Without a NodeClaim the instance is garbage collection's (D-317).
                if !kept
                    && view.claim_of_node(before).is_some()
                    && let Some(instance) = view.instances.get(before.instance())
                    && is_visible(view, instance)
                {
                    report.fail(
                        14,
                        format!("node {}", before.name),
                        format!("loses its finalizer while instance {} exists", instance.name),
                    );
                }
            }
            _ => {}
        }
    }

    fn ticked(&mut self, view: &View, report: &mut Report) {
        for instance in view
            .instances
            .values()
            .filter(|instance| instance.ending.is_none())
        {
            match view.claim_with_uid(&instance.claim_uid) {
                None if instance.of_kwok
                    && view.has_lasted(instance.created, LEAK_LIMIT)
                    && self.leaked(view, instance) =>
                {
                    report.fail(
                        11,
                        format!("instance {}", instance.name),
                        format!(
                            "belongs to NodeClaim {}, which does not exist",
                            instance.claim_name
                        ),
                    );
                }
                Some(claim)
                    if claim.deletion.is_none()
                        && !claim.is("Registered", "True")
                        && view.has_lasted(instance.created, REGISTRATION_LIMIT) =>
                {
                    report.fail(
                        12,
                        format!("instance {}", instance.name),
                        format!(
                            "was launched at {} and is neither registered nor ended",
                            instance.created
                        ),
                    );
                }
                _ => {}
            }
        }
        for claim in view.claims.values().filter(|claim| claim.deletion.is_none()) {
            let launched = claim
                .conditions
                .get("Launched")
                .filter(|one| one.status == "True");
            if let Some(launched) = launched
                && !claim.provider_id.is_empty()
                && !view.instances.contains_key(claim.instance())
                && view.has_lasted(launched.since, REGISTRATION_LIMIT)
                && view.is_calm_for(REGISTRATION_LIMIT)
            {
                report.fail(
                    11,
                    format!("nodeclaim {}", claim.name),
                    format!("says that it runs on {}, which does not exist", claim.provider_id),
                );
            }
        }
    }
}

impl Instances {
    /// Whether the NodeClaim has been gone long enough: its deletion is the last time at which it can have been seen.
    fn leaked(&self, view: &View, instance: &Instance) -> bool {
        view.gone_claims
            .get(&instance.claim_uid)
            .is_none_or(|gone| view.has_lasted(*gone, LEAK_LIMIT))
    }
}

/// Whether its cloud tells of it whenever it is asked. Others than the kwok cloud may take a moment after a launch, and an operator that has died since has not
/// told the next one of it.
fn is_visible(view: &View, instance: &Instance) -> bool {
    instance.of_kwok || later(instance.created, UNSEEN) <= view.now
}

/// 11: no second machine for a NodeClaim.
fn single(view: &View, instance: &Instance, report: &mut Report) {
    let other = view
        .instances
        .values()
        .find(|other| other.claim_uid == instance.claim_uid && other.name != instance.name);
    if let Some(other) = other {
        report.fail(
            11,
            format!("instance {}", instance.name),
            format!(
                "is the second of NodeClaim {}, beside {}",
                instance.claim_name, other.name
            ),
        );
    }
}

/// 15: what the pool has launched stays within its limits. Machines that are to go, or to be replaced, do not count: from
/// the moment in which that was written down, because what is decided next in that moment builds on it. So a machine does not
/// count, either, that was to go when this launch was decided, and stays because its command was rolled back in the meantime;
/// for launches that are decided after that it counts. Nor does one count that was taken out of its pool by the label of its claim.
fn within_limits(view: &View, instance: &Instance, report: &mut Report) {
    let Some(claim) = view.claim_with_uid(&instance.claim_uid) else {
        return;
    };
    let decided = view.decided(claim);
    for (resource, limit) in &claim.limits {
        let counts = |other: &&std::sync::Arc<Instance>| {
            other.pool == instance.pool
                && other.ending.is_none()
                && view.claim_with_uid(&other.claim_uid).is_some_and(|claim| {
                    let tainted = view
                        .node_of_claim(claim)
                        .is_some_and(|node| node.disrupted_since.is_some());
                    let was_to_go = decided.is_some_and(|then| view.was_chosen_at(claim, then));
                    let is_part = claim.pool == other.pool && claim.deletion.is_none();
                    is_part && !tainted && !was_to_go && view.chosen_by(claim).is_none()
                })
        };
        let used: i128 = view
            .instances
            .values()
            .filter(counts)
            .map(|other| match resource.as_str() {
                "nodes" => 1000,
                resource => other.capacity.get(resource).copied().unwrap_or(0),
            })
            .sum();
        if used > *limit {
            report.fail(
                15,
                format!("instance {}", instance.name),
                format!(
                    "brings nodepool {} to {used} thousandths of {resource}, and its limit is {limit}",
                    instance.pool
                ),
            );
        }
    }
}
