//! Nodes that are being deleted: the steps of `plan::termination`, and the eviction queue.
//!
//! Owns the looks at such Nodes, and which evictions are queued. A PodDisruptionBudget refuses here as the Eviction API does.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use spokeshave_model::Action;
use spokeshave_plan::termination::{self, EvictionStep, NodeEnd, NodeNext, Size};

use crate::engine::Engine;
use crate::pods::{Parent, PodId, Stage};
use crate::queue::Wake;
use crate::times::milliseconds_between;
use crate::world::{Model, milliseconds};

/// First and longest delay after a refusal, in milliseconds (D-327).
const FIRST_DELAY_MS: u64 = 100;
const LONGEST_DELAY_MS: u64 = 10_000;
/// How often a protected pod is checked again before its deadline, in milliseconds.
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
        let takes_turns = self.policy.model == Model::Ours && !found.is_interrupted;
        if !found.has_instance() {
            return self.release_node(node);
        }
        let pods = self.pods_on(found);
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
                .filter(|pod| takes_turns && pod.eviction_ms.is_none())
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
        if self.pods.get(id).is_some_and(|pod| pod.eviction_ms.is_none()) {
            self.try_to_evict_in(id, 0);
        }
    }

    /// The next try is due in so many milliseconds, and none before.
    fn try_to_evict_in(&mut self, id: PodId, milliseconds: u64) {
        let due = self.now_ms.saturating_add(milliseconds);
        if let Some(pod) = self.pods.get_mut(id) {
            pod.eviction_ms = Some(due);
            self.wake_in(milliseconds, Wake::Evict(id));
        }
    }

    /// A try to evict a pod was due now, and has not been put off.
    pub(crate) fn eviction_is_due(&mut self, id: PodId) {
        let due = self.pods.get(id).and_then(|pod| pod.eviction_ms);
        if due.is_some_and(|due| due <= self.now_ms) {
            self.evict(id);
        }
    }

    /// The cloud takes a machine back: its pods wait for no larger ones any more (W-63).
    pub(super) fn hurry_evictions(&mut self, machine: u32) {
        let now = self.now();
        let Some(found) = self.cluster.machine_mut(machine) else {
            return;
        };
        found.is_interrupted = true;
        for id in found.pods.clone() {
            let uid = self.pods.get(id).and_then(|pod| pod.object.metadata.uid.clone());
            let uid = uid.unwrap_or_default();
            if !self.operator.turns.wait(&uid, now).is_zero() {
                self.operator.turns.leave(&uid);
                self.try_to_evict_in(id, 0);
            }
        }
    }

    /// One try to evict a pod.
    fn evict(&mut self, id: PodId) {
        let now = self.now();
        let Some(pod) = self.pods.get(id) else { return };
        let claim = pod
            .machine
            .and_then(|machine| self.cluster.machine(machine)?.claim.clone());
        let deadline = claim
            .as_deref()
            .and_then(|claim| termination::deadline(claim).ok().flatten());
        let reason = termination::eviction_reason(claim.as_deref());
        let is_voluntary = termination::could_have_waited(claim.as_deref());
        let key = spokeshave_model::pod::key(&pod.object);
        let uid = pod.object.metadata.uid.clone().unwrap_or_default();
        let due = termination::delete_after(&pod.object, deadline)
            .map_or(u64::MAX, |due| milliseconds_between(now, due).saturating_add(1));
        let wait = self.operator.turns.wait(&uid, now);
        let grace = match termination::eviction_step(&pod.object, deadline, now) {
            EvictionStep::Drop => {
                self.operator.turns.leave(&uid);
                self.leave_queue(id);
                return;
            }
            EvictionStep::Evict(_) if !wait.is_zero() => {
                self.try_to_evict_in(id, milliseconds(wait).max(1).min(due));
                return;
            }
            EvictionStep::Keep => {
                self.operator.turns.leave(&uid);
                self.try_to_evict_in(id, PROTECTED_MS.min(due));
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
                self.try_to_evict_in(id, delay.min(due));
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
            pod.eviction_ms = None;
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
        pod.stage == Stage::Waiting || self.budgets.allow(owner)
    }

    /// A pod is lost with its instance or its Node, before its grace period has ended. One that tolerates the taint of disruption is never evicted (D-319): it is
    /// moved by what removes its node.
    pub(crate) fn kill(&mut self, id: PodId) {
        let Some(pod) = self.pods.get(id) else { return };
        if let Parent::Owner(_) = pod.parent {
            let found = pod.machine.and_then(|machine| self.cluster.machine(machine));
            let is_voluntary = found.is_some_and(|found| {
                !found.is_interrupted && termination::could_have_waited(found.claim.as_deref())
            });
            self.meter.count(|counted| &mut counted.pods_cut_short);
            self.note_pod("killed", id, "");
            self.replace(id, Some(0), is_voluntary);
        }
        self.pod_gone(id);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use serde_json::json;
    use spokeshave_scenario::{Change, Event, Owner, OwnerId, OwnerKind, Spread, Timeline};

    use super::*;
    use crate::log::Line;
    use crate::world::{Delays, HOUR_MS, Policy, SpotInterruptions, World};

    fn owner(name: &str, cpu: &str) -> Owner {
        let requests = json!({"cpu": cpu, "memory": "256Mi"});
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}});
        Owner {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            kind: OwnerKind::Deployment,
            template: Arc::new(serde_json::from_value(template).unwrap()),
            ready: Spread {
                median_ms: 0,
                p99_ms: 0,
            },
            budget: None,
            later: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Two nodes with three pods each, of which the largest go after an hour: one node is enough then, and two pods of the other are evicted.
    fn shrinking() -> Timeline {
        let owners = [("filler", "2500m"), ("medium", "800m"), ("small", "400m")];
        let changes = [(0, 0, 2), (0, 1, 2), (0, 2, 2), (HOUR_MS, 0, 0)];
        let events = changes.map(|(at_ms, owner, replicas)| Event {
            at_ms,
            owner: OwnerId(owner),
            change: Change::Replicas(replicas),
        });
        Timeline {
            owners: owners.map(|(name, cpu)| owner(name, cpu)).into(),
            events: events.into(),
            ..Timeline::default()
        }
    }

    /// When the two pods are evicted. The cloud announces to take their machine back after so many evictions, once a command removes the node.
    fn evictions(interrupted_after: usize) -> Vec<u64> {
        let mut pool = spokeshave_example::node_pool("default");
        let on_demand =
            json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]);
        pool.spec.template.spec.requirements = serde_json::from_value(on_demand).unwrap();
        pool.spec.disruption.consolidate_after = serde_json::from_value(json!("30s")).unwrap();
        let types = vec![spokeshave_example::instance_type("c4", 4, 16, &["zone-a"])];
        let mut world = World::new(spokeshave_example::epoch(), 3 * HOUR_MS, types.into());
        world.delays = Delays::exactly(60_000);
        let (timeline, policy) = (shrinking(), Policy::new("now", vec![Arc::new(pool)]));
        // Nothing is taken back by chance: the notice comes when the test says so.
        world.spot = Some(SpotInterruptions {
            per_million_node_hours: 0,
            notice_ms: 120_000,
        });
        let evicted = Rc::new(RefCell::new(Vec::new()));
        let told = Rc::clone(&evicted);
        let mut sink = move |line: Line<'_>| {
            if line.what == "evicted" {
                told.borrow_mut().push(line.at_ms);
            }
        };
        let mut engine = Engine::new(&world, &timeline, &policy, 1, Some(&mut sink));
        engine.turn_now();
        engine.wake_for_timeline();
        let count = || evicted.borrow().len();
        let mut is_interrupted = false;
        while count() < 2
            && let Some((at_ms, wake)) = engine.queue.pop()
            && at_ms < world.duration_ms
        {
            engine.happens(at_ms, wake);
            let removed = engine.cluster.commands.values().find_map(|command| {
                let node = command.spec.nodes.first()?;
                engine.cluster.of_node(&node.name)
            });
            if let Some(machine) = removed
                && !is_interrupted
                && count() == interrupted_after
            {
                engine.spot_notice(machine);
                is_interrupted = true;
            }
        }
        evicted.take()
    }

    #[test]
    fn w_63_pods_of_an_interrupted_machine_wait_for_nobody() {
        let gap = |evictions: &[u64]| {
            let [first, second] = evictions else {
                panic!("{evictions:?}");
            };
            second - first
        };
        let never = usize::MAX;
        assert_eq!(
            gap(&evictions(never)),
            1_000,
            "the smaller one has its turn later"
        );
        assert_eq!(gap(&evictions(1)), 0, "it waits no longer");
        assert_eq!(gap(&evictions(0)), 0, "none begins to wait");
    }
}
