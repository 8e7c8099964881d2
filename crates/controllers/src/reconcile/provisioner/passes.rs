//! What a pass plans for whom, and after whom.
//!
//! Where NodePools avoid zones in which nodes do not join, who has a place elsewhere goes there, and the others are planned for in every zone, once the
//! NodeClaims of these count. Room for CapacityBuffers is kept of what all of them leave over (P-186).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_plan::Provisioned;
use spokeshave_plan::buffers::{Tally, tally};

use super::audited::Decision;
use super::{Provisioner, existing};

/// Whom a step of a pass is about.
#[derive(Clone, Copy)]
enum Whom<'a> {
    /// All pods that wait.
    All,
    /// The virtual ones, after those that exist. These are planned for once more, so that nobody else takes their places, but for some that have none where
    /// nodes join, by UID.
    Room(&'a BTreeSet<String>),
}

/// What the steps of a pass have found so far.
#[derive(Default)]
struct Found {
    /// How many pods will be in each zone.
    zones: BTreeMap<String, usize>,
    /// What was found for each buffer, once all that are virtual were planned for.
    tallies: Option<BTreeMap<String, Tally>>,
    /// How many pods that exist wait for NodeClaims that are held up.
    held_up: usize,
}

impl Provisioner {
    pub(super) async fn pass(&self) {
        let mut found = Found::default();
        if let Some(left) = self.plan_for(Whom::All, &mut found).await {
            self.plan_for(Whom::Room(&left), &mut found).await;
        }
        // NodeClaims come first, and the next pass: what buffers say of their room may take its time, or not be writable at all.
        if let Some(tallies) = found.tallies {
            self.reports.add(tallies);
        }
    }

    /// Plans for pods where nodes join, and then for those without a place there in every zone. Returns these where virtual ones are left for another step.
    async fn plan_for(&self, whom: Whom<'_>, found: &mut Found) -> Option<BTreeSet<String>> {
        let elsewhere = self.cluster.snapshot_where_nodes_join().await;
        let avoids_zones = elsewhere.is_some();
        let snapshot = match elsewhere {
            Some(snapshot) => Arc::new(snapshot),
            None => self.cluster.snapshot().await,
        };
        let is_meant = |pod: PodId| match whom {
            Whom::All => true,
            Whom::Room(left) => !left.contains(snapshot.pod(pod).uid()),
        };
        let mut decision = self.decide_soundly(&snapshot, is_meant)?;
        let leaves_room = match whom {
            Whom::All => avoids_zones && is_room_in_the_way(&snapshot, &decision.outcome),
            Whom::Room(_) => {
                keep_room(&snapshot, &mut decision);
                false
            }
        };
        if leaves_room {
            decision = self.decide_soundly(&snapshot, |pod| !snapshot.pod(pod).is_virtual)?;
        } else if self.cluster.options.feature_gates.capacity_buffer {
            found.tallies = Some(tally(&snapshot, &decision.outcome));
        }
        let failed = without_place(&snapshot, &decision);
        // Who has a place where nodes join goes there. The others are planned for in every zone.
        let left = if avoids_zones {
            decision.outcome.take_unschedulable()
        } else {
            Vec::new()
        };
        self.count_zones(&mut found.zones, &decision, &left);
        let left: BTreeSet<String> = left
            .into_iter()
            .map(|pod| snapshot.pod(pod).uid().to_owned())
            .collect();
        // Creations may wait for the API server for long: who waits for a place is known already.
        if failed > 0 {
            self.count_waiting(failed + found.held_up, whom);
        }
        found.held_up += self.carry_out(&snapshot, decision).await;
        self.count_waiting(failed + found.held_up, whom);
        if !left.is_empty() {
            self.carry_out_elsewhere(&left, whom, found).await;
        }
        leaves_room.then_some(left)
    }

    /// Plans for these pods in every zone, once the new NodeClaims of the others count. What was found so far is of the others.
    async fn carry_out_elsewhere(&self, left: &BTreeSet<String>, whom: Whom<'_>, found: &mut Found) {
        let snapshot = self.cluster.snapshot().await;
        let is_left = |pod| left.contains(snapshot.pod(pod).uid());
        if let Some(decision) = self.decide_soundly(&snapshot, is_left) {
            let failed = without_place(&snapshot, &decision);
            self.count_zones(&mut found.zones, &decision, &[]);
            found.held_up += self.carry_out(&snapshot, decision).await;
            self.count_waiting(failed + found.held_up, whom);
        }
    }

    /// Counts the pods that get no node for now, once it is known whose NodeClaims are held up: a scrape in between would see nobody wait. A step that is not
    /// about pods that exist says nothing of them.
    fn count_waiting(&self, waiting: usize, whom: Whom<'_>) {
        if let Whom::Room(_) = whom {
            return;
        }
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        let gauge = &self.journal.families.unschedulable_pods;
        gauge.set(&["provisioner"], f64::from(waiting));
    }

    /// P-123: adds the pods of a decision to those that the pass has decided about before, without those that are left for its next half. Also where there are
    /// none: while a node drains there is a pass every few seconds, and those that waited before wait no longer.
    fn count_zones(&self, counts: &mut BTreeMap<String, usize>, decision: &Decision, left: &[PodId]) {
        for (zone, pods) in &decision.more {
            // They are in pod order.
            let own = pods.iter().filter(|pod| left.binary_search(pod).is_err());
            let own = own.count();
            if own > 0 {
                *counts.entry(zone.clone()).or_default() += own;
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
        let series = |(zone, count): (&String, &usize)| {
            let labels = vec!["provisioner".to_owned(), zone.clone()];
            (labels, *count as f64)
        };
        let gauge = &self.journal.families.pods_by_effective_zone;
        gauge.replace_all(counts.iter().map(series));
    }
}

/// How many pods that exist have no place, or one that the audit has refused.
fn without_place(snapshot: &Snapshot, decision: &Decision) -> usize {
    let failed = decision.outcome.unschedulable.iter().map(|one| &one.pod);
    existing(snapshot, failed.chain(decision.refused.keys()))
}

/// Whether nodes would be launched for virtual pods while pods that exist have no place where nodes join: in other zones these may need what limits leave.
fn is_room_in_the_way(snapshot: &Snapshot, outcome: &Provisioned) -> bool {
    let is_virtual = |pod: PodId| snapshot.pod(pod).is_virtual;
    let mut launched = outcome.placements.claims.iter().flat_map(|claim| &claim.pods);
    let mut failed = outcome.unschedulable.iter();
    failed.any(|one| !is_virtual(one.pod)) && launched.any(|pod| is_virtual(*pod))
}

/// Leaves of a decision what it says of virtual pods: those that exist have been told of.
fn keep_room(snapshot: &Snapshot, decision: &mut Decision) {
    let is_virtual = |pod: &PodId| snapshot.pod(*pod).is_virtual;
    decision.more.clear();
    decision.refused.retain(|pod, _| is_virtual(pod));
    let outcome = &mut decision.outcome;
    outcome.report.pending_pods = 0;
    outcome.pods.retain(is_virtual);
    outcome.unschedulable.retain(|one| is_virtual(&one.pod));
    let placements = &mut outcome.placements;
    for pods in placements.existing.values_mut() {
        pods.retain(is_virtual);
    }
    placements.existing.retain(|_, pods| !pods.is_empty());
    // What is for pods that exist as well could not be created a moment ago.
    placements
        .claims
        .retain(|claim| claim.pods.iter().all(is_virtual));
}
