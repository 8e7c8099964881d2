//! Instances that the cloud reclaims (33): their NodeClaims go at once, their pods have what is left of the time and not more, and what
//! they need is requested at once.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::view::{Change, Instance, Pair, View, later};
use super::{Checker, Report, RequestInfo};

/// An event travels, and a write follows.
const AT_ONCE: Duration = Duration::from_secs(3);
/// The Node is asked to go, and its termination taints it.
const DRAINING: Duration = Duration::from_secs(6);

/// An operator may have been killed, and another may have to wait for the Lease.
const CALM: Duration = Duration::from_secs(180);

#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Instance → when it was reported.
    told: BTreeMap<String, Timestamp>,
}

impl Checker for Notices {
    fn changed(&mut self, view: &View, change: &Change, _request: &RequestInfo, report: &mut Report) {
        match change {
            Change::Instance(Pair { before, after }) => match after {
                None => {
                    if let Some(before) = before {
                        self.told.remove(&before.name);
                    }
                }
                Some(after) if after.taken_back => self.note(view, after),
                Some(_) => {}
            },
            Change::Node(_) | Change::Claim(_) => self.look(view, report),
            _ => {}
        }
    }

    fn ticked(&mut self, view: &View, report: &mut Report) {
        self.look(view, report);
    }
}

impl Notices {
    /// A notice counts when it comes in calm, about an instance whose launch operators know of.
    fn note(&mut self, view: &View, instance: &Instance) {
        let claim = view.claim_with_uid(&instance.claim_uid);
        let known = claim.is_some_and(|claim| {
            let launched = claim.since("Launched");
            !claim.provider_id.is_empty() && launched.is_some_and(|since| view.is_known(since))
        });
        if known && view.is_calm_for(CALM) {
            self.told.entry(instance.name.clone()).or_insert(view.now);
        }
    }

    fn look(&self, view: &View, report: &mut Report) {
        for (name, told) in &self.told {
            if view.disturbed > *told {
                continue;
            }
            let Some(instance) = view.instances.get(name) else {
                continue;
            };
            let Some(claim) = view.claim_with_uid(&instance.claim_uid) else {
                continue;
            };
            let object = format!("nodeclaim {}", claim.name);
            // Through a queue, or on a Node, a word of the cloud takes its time.
            let is_over = |within: Duration| view.has_lasted(*told, within + instance.word_takes);
            if claim.deletion.is_none() && is_over(AT_ONCE) && view.is_known(*told) {
                report.fail(
                    33,
                    object,
                    format!("is not asked to go, although its instance has been taken back since {told}"),
                );
                continue;
            }
            if let Some(ends_at) = instance.ends_at
                && claim.deletion.is_some()
                && is_over(AT_ONCE)
                && claim
                    .deadline
                    .is_none_or(|deadline| deadline > later(ends_at, AT_ONCE))
            {
                report.fail(
                    33,
                    object.clone(),
                    format!(
                        "has the deadline {:?}, and its instance ends at {ends_at}",
                        claim.deadline
                    ),
                );
            }
            let drains = |node: &super::view::Node| {
                node.deletion.is_some() && node.disrupted_since.is_some() || !node.has_finalizer
            };
            if let Some(node) = view.node_of_claim(claim)
                && claim.is("Registered", "True")
                && !drains(node)
                && is_over(DRAINING)
                && later(node.created, DRAINING) < view.now
                && view.is_known(*told)
            {
                report.fail(
                    33,
                    object,
                    format!("node {} does not drain, told at {told}", node.name),
                );
            }
        }
    }
}
