//! What a pass decides is checked before it is carried out, and what is told of pods whose places break a rule.

use std::collections::BTreeMap;

use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_plan::{failed_scheduling_event, report};

use super::{Provisioner, Zones};
use crate::audited::{Sound, decide_soundly};
use crate::observe::decision::DecisionKind;

/// What a pass has decided, with its pods by the zone that they will be in.
pub(super) type Decision = Sound<Zones>;

impl Provisioner {
    /// Decides about the pods that are meant. `None` when nothing may be carried out.
    pub(super) fn decide_soundly(
        &self,
        snapshot: &Snapshot,
        is_meant: impl Fn(PodId) -> bool,
    ) -> Option<Decision> {
        decide_soundly(
            snapshot,
            |refused| self.decide(snapshot, |pod| is_meant(pod) && !refused.contains_key(&pod)),
            |violations| {
                for violation in violations.iter().take(5) {
                    tracing::error!(%violation, "the plan breaks a rule and is not carried out");
                }
                self.journal.families.audit_violations.add(&[], 1.0);
            },
        )
    }

    /// Tells of the pods that were left out. They are tried again in the next pass, as all that stay pending.
    pub(super) fn tell_of_refused(&self, snapshot: &Snapshot, refused: &BTreeMap<PodId, String>) {
        let mut reasons: BTreeMap<String, Vec<PodId>> = BTreeMap::new();
        for (pod, violation) in refused.iter().filter(|(pod, _)| !snapshot.pod(**pod).is_virtual) {
            let reason = format!("the audit has refused the place planned for it, {violation}");
            self.hands.tell(&failed_scheduling_event(snapshot, *pod, &reason));
            reasons.entry(reason).or_default().push(*pod);
        }
        for (reason, pods) in reasons {
            let pods = report::first_pods(snapshot, &pods, 3);
            if !self.is_line_due(format!("{pods}: {reason}")) {
                continue;
            }
            tracing::error!(Pods = pods, error = reason, "could not schedule pod");
            let kind = DecisionKind::Unschedulable;
            self.journal.note(kind, &pods, "cannot be placed", reason, None);
        }
    }
}
