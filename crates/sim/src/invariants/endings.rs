//! The end of a node: it comes in time or says what it waits for (13), and the machine ends after its pods and volumes (29, 31).

use std::collections::BTreeSet;
use std::time::Duration;

use super::view::{Change, Claim, Instance, Pair, View, later};
use super::{Checker, Expectations, Report, RequestInfo};

/// A blocker has a name at the latest after so long.
const NAMED_WITHIN: Duration = Duration::from_secs(5 * 60);

#[derive(Debug)]
pub(super) struct Endings {
    expectations: Expectations,
}

impl Endings {
    pub(super) fn new(expectations: Expectations) -> Self {
        Self { expectations }
    }
}

impl Checker for Endings {
    fn changed(&mut self, view: &View, change: &Change, request: &RequestInfo, report: &mut Report) {
        let Change::Instance(Pair {
            before: Some(before),
            after,
        }) = change
        else {
            return;
        };
        let ends = before.ending.is_none() && after.as_ref().is_none_or(|after| after.ending.is_some());
        if ends && matches!(request.actor, super::Actor::CloudCalls(_)) {
            ended(view, before, report);
        }
    }

    fn ticked(&mut self, view: &View, report: &mut Report) {
        for claim in view.claims.values() {
            if let Some(deletion) = claim
                .deletion
                .filter(|asked| view.has_lasted(*asked, NAMED_WITHIN))
            {
                self.named(view, claim, deletion, report);
            }
        }
    }
}

impl Endings {
    /// 13: a condition shows the progress of the termination, and the last step does not stall.
    fn named(&self, view: &View, claim: &Claim, deletion: jiff::Timestamp, report: &mut Report) {
        if !claim.has_finalizer {
            return;
        }
        // The cloud postponed the call (W-30), and the NodeClaim shows it. Ending the shift is not up to the operator; that the instance
        // then terminates is checked after all faults have ended.
        let is_postponed = claim
            .conditions
            .get("spokeshave.dev/TerminationBlocked")
            .is_some_and(|one| one.status == "True" && one.reason == "TerminationPostponed");
        if is_postponed {
            return;
        }
        let object = format!("nodeclaim {}", claim.name);
        let node = view.node_of_claim(claim);
        let last_step = later(
            claim.since("InstanceTerminating").unwrap_or(deletion),
            self.expectations.termination_delay,
        );
        if claim.is("InstanceTerminating", "True") || node.is_none() && !claim.is("Registered", "True") {
            if view.has_lasted(last_step, NAMED_WITHIN) {
                report.fail(
                    13,
                    object,
                    format!("has been deleted since {deletion}, and only its instance's end is missing"),
                );
            }
            return;
        }
        let open = ["Drained", "VolumesDetached"].iter().find_map(|kind| {
            claim
                .conditions
                .get(*kind)
                .filter(|one| one.status != "True" && !one.reason.is_empty())
        });
        if open.is_none() {
            report.fail(
                13,
                object,
                format!("has been deleted since {deletion}, and no condition says what it waits for"),
            );
            return;
        }
        // A reported drain must have a pod to wait for.
        if let Some(node) = node
            && claim
                .conditions
                .get("Drained")
                .is_some_and(|one| one.status != "True" && view.has_lasted(one.since, NAMED_WITHIN))
            && !view.pods_on(&node.name).any(|pod| {
                pod.is_waited_for(view.now)
                    || pod
                        .bound
                        .is_some_and(|bound| !view.has_lasted(bound, NAMED_WITHIN))
            })
            && view.pods_gone_for(&node.name, NAMED_WITHIN)
        {
            report.fail(
                13,
                object,
                format!("drains node {}, on which no pod is left", node.name),
            );
        }
    }
}

/// 29 and 31: at the end of a machine no pod and no volume is left on its node, unless the deadline has passed.
fn ended(view: &View, instance: &Instance, report: &mut Report) {
    let Some(node) = view.nodes.values().find(|node| node.instance() == instance.name) else {
        return;
    };
    // An instance without NodeClaim is a leak, and one that never registered has nothing to drain.
    let Some(claim) = view.claim_with_uid(&instance.claim_uid) else {
        return;
    };
    if !node.is_registered() || !claim.is("Registered", "True") {
        return;
    }
    let object = format!("instance {}", instance.name);
    let minute = Duration::from_secs(61);
    for pod in view.pods_on(&node.name).filter(|pod| pod.is_waited_for(view.now)) {
        // After the deadline a pod has a second, and a minute more if its kubelet does not answer.
        let given_up = claim
            .deadline
            .is_some_and(|deadline| later(deadline, minute) < view.now);
        if pod.bound.is_some_and(|bound| view.is_known(bound)) && !given_up {
            report.fail(
                31,
                object.clone(),
                format!(
                    "ends while pod {}/{} is on node {}",
                    pod.key.0, pod.key.1, node.name
                ),
            );
        }
    }
    if claim
        .deadline
        .is_some_and(|deadline| deadline <= later(view.now, Duration::from_secs(1)))
    {
        return;
    }
    let kept: BTreeSet<&str> =
        view.pods_on(&node.name)
            .filter(|pod| !pod.is_waited_for(view.now))
            .flat_map(|pod| {
                let names =
                    pod.shape.spec.volumes.iter().flatten().filter_map(|volume| {
                        Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone())
                    });
                names.filter_map(|name| view.volumes.get(&(pod.key.0.clone(), name)))
            })
            .map(String::as_str)
            .collect();
    let left = view.attachments.values().find(|attachment| {
        attachment.node == node.name
            && !attachment.volume.is_empty()
            && !kept.contains(attachment.volume.as_str())
            && view.is_known(attachment.since)
    });
    if let Some(attachment) = left {
        report.fail(
            29,
            object,
            format!(
                "ends while volume {} is attached to node {} ({})",
                attachment.volume, node.name, attachment.name
            ),
        );
    }
}
