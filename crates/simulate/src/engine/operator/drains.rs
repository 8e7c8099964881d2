//! Nodes that are being deleted: the steps of `plan::termination`, and the eviction queue.
//!
//! Owns the looks at such Nodes, and which evictions are queued. A PodDisruptionBudget refuses here as the Eviction API does.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use spokeshave_model::{Action, Pod};
use spokeshave_plan::termination::{self, EvictionStep, NodeEnd, NodeNext, Size};

use crate::engine::Engine;
use crate::pods::{Parent, PodId, Stage};
use crate::queue::Wake;
use crate::world::{Model, milliseconds};

/// First and longest delay after a refusal, in milliseconds (D-327).
const FIRST_DELAY_MS: u64 = 100;
const LONGEST_DELAY_MS: u64 = 10_000;
/// How often a protected pod is checked again, in milliseconds.
const PROTECTED_MS: u64 = 10_000;

impl Engine<'_> {
    /// A timer of a Node has run out.
    pub(crate) fn node_is_due(&mut self, machine: u32) {
        let now_ms = self.now_ms;
        if let Some(found) = self.cluster.machine_mut(machine)
            && found.node_look_ms.take_if(|due| *due <= now_ms).is_some()
        {
            self.look_at_node_now(machine);
        }
    }

    pub(super) fn look_at_node_in(&mut self, machine: u32, milliseconds: u64) {
        let due = self.now_ms.saturating_add(milliseconds);
        let Some(found) = self.cluster.machine_mut(machine) else {
            return;
        };
        if found.node_look_ms.is_none_or(|known| due < known) {
            found.node_look_ms = Some(due);
            self.wake_at(due, Wake::Node(machine));
        }
    }

    /// A pod has left a node: a drain may go on.
    pub(crate) fn drain_goes_on(&mut self, machine: u32) {
        let found = self
            .cluster
            .machine(machine)
            .and_then(|found| found.node.as_ref());
        if found.is_some_and(|node| node.metadata.deletion_timestamp.is_some()) {
            self.look_at_node_in(machine, 0);
        }
    }

    /// One look at a Node that is being deleted, and as many more as follow at once.
    pub(crate) fn look_at_node_now(&mut self, machine: u32) {
        while let Some(node) = self.cluster.machine(machine).and_then(|found| found.node.clone()) {
            if node.metadata.deletion_timestamp.is_none() || !self.end_node(machine, &node) {
                return;
            }
        }
    }

    /// True when another look follows at once.
    fn end_node(&mut self, machine: u32, node: &Arc<Node>) -> bool {
        let now = self.now();
        let Some(found) = self.cluster.machine(machine) else {
            return false;
        };
        let claim = found.claim.clone();
        if !found.has_instance() {
            return self.release_node(node);
        }
        let pods: Vec<Arc<Pod>> = found
            .pods
            .iter()
            .filter_map(|id| Some(Arc::clone(&self.pods.get(*id)?.object)))
            .collect();
        let end = NodeEnd {
            node,
            claim: claim.as_deref(),
            pods: &pods,
            attachments: &[],
            kept_volumes: &BTreeSet::new(),
        };
        let Ok(step) = termination::node_step(&end, now) else {
            return false;
        };
        step.actions.iter().for_each(|action| self.apply(action));
        let takes_turns = self.policy.model == Model::Ours;
        let deadline = claim.as_deref();
        let deadline = deadline.and_then(|claim| termination::deadline(claim).ok().flatten());
        for target in &step.report.evict {
            let found = self.cluster.machine(machine).and_then(|found| {
                let mut pods = found.pods.iter().copied();
                pods.find(|id| {
                    let pod = self.pods.get(*id);
                    pod.is_some_and(|pod| pod.object.metadata.uid.as_deref() == Some(&target.uid))
                })
            });
            let Some(id) = found else { continue };
            let size = self
                .pods
                .get(id)
                .filter(|pod| takes_turns && !pod.queued)
                .and_then(|pod| Size::of_turn(&pod.object, claim.as_deref(), deadline, now));
            if let Some(size) = size {
                self.operator.turns.add(&target.uid, size, now);
            }
            self.queue_eviction(id);
        }
        match step.report.next {
            NodeNext::Wait(wait) if wait.is_zero() => true,
            NodeNext::Wait(wait) => {
                self.look_at_node_in(machine, milliseconds(wait).max(1));
                false
            }
            NodeNext::TerminateInstance => self.end_instance(machine) && self.release_node(node),
            NodeNext::Release => self.release_node(node),
        }
    }

    fn release_node(&mut self, node: &Arc<Node>) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let Some(machine) = self.cluster.of_node(name) else {
            return false;
        };
        let Some(current) = self.cluster.machine(machine).and_then(|found| found.node.clone()) else {
            return false;
        };
        if let Some(action) = termination::release_node(&current) {
            self.apply(&action);
            self.look_at_claim_now(machine);
        }
        false
    }

    /// A pod is handed to the eviction queue; one that waits for its next try keeps waiting.
    fn queue_eviction(&mut self, id: PodId) {
        let Some(pod) = self.pods.get_mut(id) else { return };
        if !std::mem::replace(&mut pod.queued, true) {
            self.wake_in(0, Wake::Evict(id));
        }
    }

    /// One try to evict a pod.
    pub(crate) fn evict(&mut self, id: PodId) {
        let now = self.now();
        let Some(pod) = self.pods.get(id) else { return };
        let claim = pod
            .machine
            .and_then(|machine| self.cluster.machine(machine)?.claim.clone());
        let deadline = claim
            .as_deref()
            .and_then(|claim| termination::deadline(claim).ok().flatten());
        let reason = termination::eviction_reason(claim.as_deref());
        let is_voluntary = !reason.is_empty() && reason != "Forceful Termination";
        let key = spokeshave_model::pod::key(&pod.object);
        let uid = pod.object.metadata.uid.clone().unwrap_or_default();
        let due = termination::delete_after(&pod.object, deadline).map_or(u64::MAX, |due| {
            let left = due.duration_since(now).as_millis();
            u64::try_from(left).unwrap_or(0).saturating_add(1)
        });
        let wait = self.operator.turns.wait(&uid, now);
        let grace = match termination::eviction_step(&pod.object, deadline, now) {
            EvictionStep::Drop => {
                self.operator.turns.leave(&uid);
                self.leave_queue(id);
                return;
            }
            EvictionStep::Evict(_) if !wait.is_zero() => {
                self.wake_in(milliseconds(wait).max(1).min(due), Wake::Evict(id));
                return;
            }
            EvictionStep::Keep => {
                self.operator.turns.leave(&uid);
                self.wake_in(PROTECTED_MS, Wake::Evict(id));
                return;
            }
            EvictionStep::Evict(_) if !self.budget_allows(id) => {
                let refusals = pod.refusals;
                if refusals == 0 {
                    self.meter.count(|counted| &mut counted.budget_waits);
                }
                let delay = (FIRST_DELAY_MS << refusals.min(10)).min(LONGEST_DELAY_MS);
                self.operator.turns.leave(&uid);
                if let Some(pod) = self.pods.get_mut(id) {
                    pod.refusals = pod.refusals.saturating_add(1);
                }
                self.wake_in(delay.min(due), Wake::Evict(id));
                return;
            }
            EvictionStep::Evict(_) => None,
            EvictionStep::Delete(action, _) => match action {
                Action::Delete {
                    grace_period_seconds, ..
                } => grace_period_seconds,
                _ => None,
            },
        };
        self.operator.turns.accept(&uid, now);
        self.leave_queue(id);
        self.log.add(self.now_ms, "evicted", &key, &reason);
        self.replace(id, grace, is_voluntary);
    }

    fn leave_queue(&mut self, id: PodId) {
        if let Some(pod) = self.pods.get_mut(id) {
            pod.queued = false;
            pod.refusals = 0;
        }
    }

    /// What the Eviction API says: a pod that is not ready, of a budget that is not met, may not go either.
    fn budget_allows(&self, id: PodId) -> bool {
        let Some(pod) = self.pods.get(id) else { return true };
        let Parent::Owner(owner) = pod.parent else {
            return true;
        };
        // A pod without a node, or that has not started, is not counted by its budget.
        pod.stage == Stage::Waiting
            || self.owners[owner as usize]
                .disruptions_allowed()
                .is_none_or(|allowed| allowed > 0)
    }

    /// A pod is lost with its instance or its Node, before its grace period has ended.
    pub(crate) fn kill(&mut self, id: PodId) {
        let Some(pod) = self.pods.get(id) else { return };
        if let Parent::Owner(_) = pod.parent {
            self.meter.count(|counted| &mut counted.interruptions);
            self.note_pod("killed", id, "");
            self.replace(id, Some(0), false);
        }
        self.pod_gone(id);
    }
}
