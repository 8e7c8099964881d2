//! What a pass decides is checked before it is carried out, and pods whose places break a rule hold up nobody else: it is decided again without them.

use std::collections::BTreeMap;

use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_plan::{Provisioned, failed_scheduling_event, report};

use super::{Provisioner, Zones};
use crate::observe::decision::DecisionKind;

/// How often a pass is decided again, each time without further pods. After that something is wrong with more than some pods.
const MOST_RETRIES: usize = 2;

/// An outcome that the audit has nothing against.
pub(super) struct Decision {
    pub(super) outcome: Provisioned,
    pub(super) zones: Zones,
    /// Pods of the pass that were left out, each with the violation because of which it was.
    pub(super) refused: BTreeMap<PodId, String>,
}

impl Provisioner {
    /// Decides about the pods that are meant. `None` when what remains breaks a rule however many pods are left out: nothing is carried out then.
    pub(super) fn decide_soundly(
        &self,
        snapshot: &Snapshot,
        is_meant: impl Fn(PodId) -> bool,
    ) -> Option<Decision> {
        let mut refused: BTreeMap<PodId, String> = BTreeMap::new();
        for _ in 0..=MOST_RETRIES {
            let is_left = |pod| is_meant(pod) && !refused.contains_key(&pod);
            let (mut outcome, zones) = self.decide(snapshot, is_left);
            let suspects = self.suspects(snapshot, &outcome)?;
            if suspects.is_empty() {
                outcome.pods.extend(refused.keys());
                outcome.pods.sort_unstable();
                return Some(Decision {
                    outcome,
                    zones,
                    refused,
                });
            }
            refused.extend(suspects);
        }
        None
    }

    /// The pods because of which an independent check has something against the plan: none if it has nothing, and no answer if it cannot tell.
    fn suspects(&self, snapshot: &Snapshot, outcome: &Provisioned) -> Option<BTreeMap<PodId, String>> {
        let (pods, placements) = (&outcome.pods, &outcome.placements);
        if pods.is_empty() {
            // Nothing is carried out: the check would go through all nodes for it.
            return Some(BTreeMap::new());
        }
        let violations = spokeshave_audit::check_placements(snapshot, pods, placements);
        if violations.is_empty() {
            return Some(BTreeMap::new());
        }
        for violation in violations.iter().take(5) {
            tracing::error!(%violation, "the plan breaks a rule and is not carried out");
        }
        self.journal.families.audit_violations.add(&[], 1.0);
        let suspects = spokeshave_audit::suspects(snapshot, pods, placements, &violations);
        (!suspects.is_empty()).then_some(suspects)
    }

    /// Tells of the pods that were left out. They are tried again in the next pass, as all that stay pending.
    pub(super) fn tell_of_refused(
        &self,
        snapshot: &Snapshot,
        outcome: &Provisioned,
        refused: &BTreeMap<PodId, String>,
    ) {
        let real = |pod: &PodId| !snapshot.pod(*pod).is_virtual;
        let mut reasons: BTreeMap<String, Vec<PodId>> = BTreeMap::new();
        for (pod, violation) in refused.iter().filter(|(pod, _)| real(pod)) {
            let reason = format!("the audit has refused the place planned for it, {violation}");
            self.hands.tell(&failed_scheduling_event(snapshot, *pod, &reason));
            reasons.entry(reason).or_default().push(*pod);
        }
        let count: usize = reasons.values().map(Vec::len).sum();
        if count == 0 {
            return;
        }
        let failed = outcome.unschedulable.iter().map(|one| &one.pod);
        let failed = count + failed.filter(|pod| real(pod)).count();
        let failed = u32::try_from(failed).unwrap_or(u32::MAX);
        let gauge = &self.journal.families.unschedulable_pods;
        gauge.set(&["provisioner"], f64::from(failed));
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
