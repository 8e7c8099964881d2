//! NodeClaims: launch, registration, initialisation, consolidateAfter, expiry and termination, as decided by `plan::lifecycle` and `plan::termination`.
//!
//! Owns the looks at NodeClaims and the writes to NodeClaims and Nodes, with what follows from them for others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::conditions::{CONSOLIDATABLE, Conditioned as _, DRIFTED, INITIALIZED, LAUNCHED};
use spokeshave_api::constants::{CONSISTENCY_PERIOD, POD_EVENT_DEDUPLICATION};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::labels::{self, disrupted_taint};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::taint::same_taint;
use spokeshave_model::{Action, ObjectKind};
use spokeshave_plan::consolidatable::{disturbed_node, pod_event_wait, with_condition, with_pod_event};
use spokeshave_plan::drift;
use spokeshave_plan::lifecycle::{self, Liveness};
use spokeshave_plan::termination::{self, ClaimStep};

use crate::cluster::{Named as _, patched};
use crate::engine::Engine;
use crate::pods::PodId;
use crate::queue::Wake;
use crate::times::whole_seconds;
use crate::world::milliseconds;

/// After so long the interruption controller looks whether its write is seen, in milliseconds.
const SEEN_AGAIN_MS: u64 = 50;

/// How a launch call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launch {
    /// There is an instance.
    Succeeded,
    /// The cloud has none, for this reason.
    Refused(&'static str),
}

/// NodeClaims that are looked at later.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// At which machine; by when, and the place among those of one instant.
    due: BTreeMap<(u64, u64), u32>,
    /// How many were asked for.
    asked: u64,
    /// The timer that stands: those that were set before it bring nothing.
    timer: u64,
}

impl Engine<'_> {
    /// The NodePool of a claim.
    pub(super) fn pool_of(&self, claim: &NodeClaim) -> Option<Arc<NodePool>> {
        self.operator.node_pools.get(claim.node_pool()?).cloned()
    }

    /// A NodeClaim is to be looked at now.
    pub(crate) fn claim_is_due(&mut self, machine: u32) {
        let now_ms = self.now_ms;
        if let Some(found) = self.cluster.machine_mut(machine)
            && let Some(look) = found.claim_look.take_if(|(due_ms, _)| *due_ms <= now_ms)
        {
            self.operator.looks.due.remove(&look);
            self.look_at_claim_now(machine);
        }
    }

    /// NodeClaims share one timer, as keys of one work queue do: who is woken by what comes of one has what comes of all.
    pub(crate) fn claims_are_due(&mut self, timer: u64) {
        if self.operator.looks.timer != timer {
            return;
        }
        let later = self.operator.looks.due.split_off(&(self.now_ms + 1, 0));
        let due = std::mem::replace(&mut self.operator.looks.due, later);
        for (look, machine) in due {
            if let Some(found) = self.cluster.machine_mut(machine)
                && found.claim_look.take_if(|known| *known == look).is_some()
            {
                self.look_at_claim_now(machine);
            }
        }
        self.set_timer_of_claims();
    }

    /// A NodeClaim is to be looked at in so many milliseconds. Where that is later, it is for who looks now to set the timer anew.
    fn look_at_claim_in(&mut self, machine: u32, milliseconds: u64) {
        let due_ms = self.now_ms.saturating_add(milliseconds);
        let looks = &mut self.operator.looks;
        let Some(found) = self.cluster.machine_mut(machine) else {
            return;
        };
        if found.claim_look.is_some_and(|(known_ms, _)| known_ms <= due_ms) {
            return;
        }
        looks.asked += 1;
        let look = (due_ms, looks.asked);
        if let Some(before) = found.claim_look.replace(look) {
            looks.due.remove(&before);
        }
        looks.due.insert(look, machine);
        if milliseconds == 0 {
            self.queue.at_once(due_ms, Wake::Claim(machine));
        }
    }

    /// Whoever serves a queue sleeps anew after each key.
    pub(super) fn set_timer_of_claims(&mut self) {
        let looks = &mut self.operator.looks;
        let Some(((due_ms, _), _)) = looks.due.first_key_value() else {
            return;
        };
        looks.timer += 1;
        self.queue
            .at((*due_ms).max(self.now_ms), Wake::Claims(looks.timer));
    }

    /// One look at a NodeClaim, and as many more as follow at once.
    pub(crate) fn look_at_claim_now(&mut self, machine: u32) {
        while let Some(claim) = self
            .cluster
            .machine(machine)
            .and_then(|found| found.claim.clone())
        {
            let again = if claim.is_deleting() {
                self.end_claim(machine, &claim)
            } else {
                self.live_claim(machine, &claim)
            };
            if !again {
                break;
            }
        }
        self.set_timer_of_claims();
    }

    /// The time to the next look at what a node has. Nodes here have what was promised of them, but whoever waits for the next NodeClaim sleeps anew.
    fn until_check(&mut self, machine: u32) -> Duration {
        let (now_ms, period_ms) = (self.now_ms, milliseconds(CONSISTENCY_PERIOD));
        let Some(found) = self.cluster.machine_mut(machine) else {
            return CONSISTENCY_PERIOD;
        };
        let checked_ms = found.checked_ms.get_or_insert(now_ms);
        if now_ms - *checked_ms >= period_ms {
            *checked_ms = now_ms;
        }
        Duration::from_millis(*checked_ms + period_ms - now_ms)
    }

    /// True when another look follows at once.
    fn live_claim(&mut self, machine: u32, claim: &Arc<NodeClaim>) -> bool {
        let now = self.now();
        if let Some(action) = lifecycle::prepare_action(claim) {
            self.apply(&action);
            return true;
        }
        if lifecycle::until_expiry(claim, now).is_some_and(|left| left.is_zero()) {
            self.log.add(self.now_ms, "expired", claim.name_of(), "");
            self.apply(&Action::delete(lifecycle::claim_ref(claim)));
            return true;
        }
        if !claim.is_true(LAUNCHED) || claim.provider_id().is_none() {
            return self.launch(machine, claim);
        }
        let node = self.cluster.machine(machine).and_then(|found| found.node.clone());
        let nodes: Vec<Arc<Node>> = node.into_iter().collect();
        let is_initialized = claim.is_true(INITIALIZED);
        if !is_initialized {
            let outcome = lifecycle::advance(claim, &nodes, None, &[], now);
            let is_news = !outcome.actions.is_empty();
            outcome.actions.iter().for_each(|action| self.apply(action));
            if is_news {
                return true;
            }
        }
        let mut wait = match lifecycle::liveness(claim, now) {
            Liveness::TimedOut(_) => {
                self.apply(&Action::delete(lifecycle::claim_ref(claim)));
                return true;
            }
            Liveness::Within(left) => Some(left),
            Liveness::Fine => None,
        };
        let pool = self.pool_of(claim);
        let (after, window) = with_condition(claim, pool.as_deref(), now);
        if let Some(after) = after {
            self.write_claim(machine, after);
            return true;
        }
        if is_initialized && self.look_for_drift(machine, claim, pool.as_deref()) {
            return true;
        }
        let check = is_initialized.then(|| self.until_check(machine));
        for due in [window, check, lifecycle::until_expiry(claim, now)]
            .into_iter()
            .flatten()
        {
            wait = Some(wait.map_or(due, |wait| wait.min(due)));
        }
        if let Some(wait) = wait {
            self.look_at_claim_in(machine, milliseconds(wait).max(1));
        }
        false
    }

    /// Drift: the NodePools of a run do not change, so only what is offered can make a node drift that did not stand at the start. True when something was written.
    fn look_for_drift(&mut self, machine: u32, claim: &NodeClaim, pool: Option<&NodePool>) -> bool {
        let now = self.now();
        let generation = self.cloud.generation;
        let Some(found) = self.cluster.machine_mut(machine) else {
            return false;
        };
        if found.drift_seen.replace(generation) == Some(generation) {
            return false;
        }
        let types = claim.node_pool().and_then(|pool| self.cloud.seen(pool)).cloned();
        let reason = match drift::check(claim, pool, types.as_deref(), now) {
            Ok(drift::Finding::Drifted(reason)) => Some(reason),
            Ok(drift::Finding::Leave) | Err(_) => return false,
            Ok(_) => None,
        };
        let action = drift::condition_action(claim, reason, now);
        if let Some(action) = &action {
            self.apply(action);
        }
        action.is_some()
    }

    fn launch(&mut self, machine: u32, claim: &Arc<NodeClaim>) -> bool {
        let now = self.now();
        if let Liveness::TimedOut(_) = lifecycle::liveness(claim, now) {
            self.apply(&Action::delete(lifecycle::claim_ref(claim)));
            return true;
        }
        let Some(found) = self.cluster.machine_mut(machine) else {
            return false;
        };
        if let Some(answer) = found.answer.take() {
            let after = lifecycle::launched(claim, &answer, now);
            self.cluster.assign(machine, Vec::new());
            self.write_claim(machine, after);
            return true;
        }
        if !found.is_launching && found.instance.is_none() {
            self.send_launch(machine);
        }
        false
    }

    /// A launch call was answered.
    pub(crate) fn launch_ends(&mut self, machine: u32, launch: Launch) {
        let now = self.now();
        let Some(claim) = self
            .cluster
            .machine(machine)
            .and_then(|found| found.claim.clone())
        else {
            return;
        };
        match launch {
            Launch::Succeeded => self.operator.launches.succeeded(&claim),
            Launch::Refused(why) => {
                self.operator.launches.failed(&claim, why, now);
                self.log.add(self.now_ms, "refused", claim.name_of(), why);
                self.apply(&Action::delete(lifecycle::claim_ref(&claim)));
            }
        }
        self.look_at_claim_now(machine);
    }

    /// True when another look follows at once.
    fn end_claim(&mut self, machine: u32, claim: &Arc<NodeClaim>) -> bool {
        let node = self.cluster.machine(machine).and_then(|found| found.node.clone());
        let nodes: Vec<Arc<Node>> = node.into_iter().collect();
        match termination::claim_step(claim, &nodes) {
            ClaimStep::Write(plan) => {
                plan.actions.iter().for_each(|action| self.apply(action));
                true
            }
            ClaimStep::WaitForNodes => false,
            ClaimStep::TerminateInstance | ClaimStep::RemoveFinalizer => {
                // A launch call that is under way is answered first.
                let is_launching = self
                    .cluster
                    .machine(machine)
                    .is_some_and(|found| found.is_launching);
                if is_launching || !self.end_instance(machine) {
                    return false;
                }
                let Some(current) = self
                    .cluster
                    .machine(machine)
                    .and_then(|found| found.claim.clone())
                else {
                    return false;
                };
                if let Some(action) = termination::release_claim(&current) {
                    self.apply(&action);
                }
                // A Node that joined and never registered is removed with its NodeClaim.
                false
            }
        }
    }

    /// The cloud has announced the end of a spot instance: its NodeClaim is deleted, as the interruption controller does.
    pub(crate) fn interrupted(&mut self, machine: u32) {
        self.hurry_evictions(machine);
        let Some(claim) = self
            .cluster
            .machine(machine)
            .and_then(|found| found.claim.clone())
        else {
            return;
        };
        if !claim.is_deleting() {
            self.log.add(self.now_ms, "interrupted", claim.name_of(), "");
            self.apply(&Action::delete(lifecycle::claim_ref(&claim)));
            self.look_at_claim_now(machine);
            // Its pods need another node now, not when the next window of the batch closes.
            self.wake_in(SEEN_AGAIN_MS, Wake::Urge);
        }
    }

    /// A pod on a node has come, stops or has ended: that restarts the node's clock.
    pub(crate) fn pod_disturbs(&mut self, id: PodId, machine: u32) {
        let now = self.now();
        let Some(pod) = self.pods.get(id) else { return };
        if disturbed_node(None, Some(&pod.object)).is_none() {
            return;
        }
        let Some(claim) = self
            .cluster
            .machine(machine)
            .and_then(|found| found.claim.clone())
        else {
            return;
        };
        let events = self.operator.pod_events.entry(machine).or_default();
        events.newest = events.newest.max(Some(now));
        self.write_pod_event(machine);
        self.command_of_claim_changes(&claim);
    }

    /// Writes the newest pod event of a node; one that comes too soon after another is written later (W-42).
    pub(crate) fn write_pod_event(&mut self, machine: u32) {
        let (now, now_ms) = (self.now(), self.now_ms);
        let claim = self
            .cluster
            .machine(machine)
            .and_then(|found| found.claim.clone());
        let Some(events) = self.operator.pod_events.get_mut(&machine) else {
            return;
        };
        let newest = events.newest;
        let (Some(claim), Some(newest)) = (claim, newest) else {
            if now_ms >= events.paused_until_ms {
                self.operator.pod_events.remove(&machine);
            }
            return;
        };
        if now_ms < events.paused_until_ms {
            return;
        }
        let Some(wait) = pod_event_wait(&claim, newest, now) else {
            self.operator.pod_events.remove(&machine);
            return;
        };
        let is_written = wait.is_zero();
        let pause = milliseconds(if is_written { POD_EVENT_DEDUPLICATION } else { wait });
        events.newest = events.newest.filter(|_| !is_written);
        events.paused_until_ms = now_ms.saturating_add(pause);
        self.wake_in(pause, Wake::PodEvent(machine));
        if is_written {
            self.write_claim(machine, with_pod_event(&claim, newest));
            self.look_at_claim_now(machine);
        }
    }

    /// Writes a NodeClaim.
    pub(super) fn write_claim(&mut self, machine: u32, mut after: NodeClaim) {
        let Some(before) = self
            .cluster
            .machine(machine)
            .and_then(|found| found.claim.clone())
        else {
            return;
        };
        self.count_later(&before);
        let finalizers = after.metadata.finalizers.as_deref().unwrap_or_default();
        if after.is_deleting() && finalizers.is_empty() {
            self.cluster.remove_claim(machine);
            self.log.add(self.now_ms, "gone", before.name_of(), "");
            self.static_claim_changes(Some(&before), None);
            self.node_changed(machine);
            self.command_of_claim_changes(&before);
            self.remove_orphan(machine);
            return;
        }
        let fresh = |condition: &str| after.is_true(condition) && !before.is_true(condition);
        let wakes = fresh(CONSOLIDATABLE) || fresh(DRIFTED);
        let concerns_command = fresh(INITIALIZED) || after.is_deleting() != before.is_deleting();
        if let Some(status) = &mut after.status {
            // What an API server would have made of it.
            status.conditions.iter_mut().for_each(|condition| {
                condition.last_transition_time = whole_seconds(condition.last_transition_time);
            });
            if let Some(time) = &mut status.last_pod_event_time {
                time.0 = whole_seconds(time.0);
            }
        }
        self.static_claim_changes(Some(&before), Some(&after));
        self.cluster.set_claim(machine, after);
        self.node_changed(machine);
        if concerns_command {
            self.command_of_claim_changes(&before);
        }
        if wakes {
            self.turn_for_claim();
        }
    }

    /// A Node whose NodeClaim is gone and whose instance has ended is deleted by Kubernetes' own controller.
    fn remove_orphan(&mut self, machine: u32) {
        let gone = self
            .cluster
            .machine(machine)
            .is_some_and(|found| found.node.is_some() && !found.has_instance());
        if gone {
            self.remove_node(machine);
        }
    }

    /// A Node comes or changes.
    pub(crate) fn set_node(&mut self, machine: u32, node: Node) {
        let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
        if node.metadata.deletion_timestamp.is_some() && finalizers.is_empty() {
            self.remove_node(machine);
            return;
        }
        self.scheduler.set_node(machine, &node);
        let disrupted = disrupted_taint();
        let taints = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.as_deref())
            .unwrap_or_default();
        let is_disrupted = taints.iter().any(|taint| same_taint(taint, &disrupted));
        let uid = node.metadata.uid.clone().unwrap_or_default();
        self.cluster.set_node(machine, node);
        self.node_changed(machine);
        if is_disrupted {
            self.node_asks(uid);
        }
        self.wake_scheduler();
    }

    /// A Node was removed, with the pods on it.
    pub(super) fn remove_node(&mut self, machine: u32) {
        let pods = self
            .cluster
            .machine(machine)
            .map(|found| found.pods.clone())
            .unwrap_or_default();
        for id in pods {
            self.kill(id);
        }
        self.scheduler.remove_node(machine);
        self.cluster.remove_node(machine);
        self.node_changed(machine);
        self.wake_scheduler();
        self.look_at_claim_now(machine);
    }

    /// Carries a write of the operator out.
    pub(crate) fn apply(&mut self, action: &Action) {
        let now = self.now();
        match action {
            Action::CreateNodeClaim { claim, .. } => self.create_claim(NodeClaim::clone(claim), Vec::new()),
            Action::CreateDisruption { disruption } => {
                self.create_command(Arc::new(Disruption::clone(disruption)));
            }
            Action::Patch { target, patch, .. } => match target.kind {
                ObjectKind::NodeClaim => {
                    if let Some(machine) = self.cluster.of_claim(&target.name)
                        && let Some(claim) = self
                            .cluster
                            .machine(machine)
                            .and_then(|found| found.claim.clone())
                    {
                        self.write_claim(machine, patched(&*claim, patch));
                    }
                }
                ObjectKind::Node => {
                    if let Some(machine) = self.cluster.of_node(&target.name)
                        && let Some(node) = self.cluster.machine(machine).and_then(|found| found.node.clone())
                    {
                        self.set_node(machine, patched(&*node, patch));
                    }
                }
                ObjectKind::Disruption => self.patch_command(&target.name, patch),
                _ => {}
            },
            Action::Delete { target, .. } => match target.kind {
                ObjectKind::NodeClaim => {
                    let Some(machine) = self.cluster.of_claim(&target.name) else {
                        return;
                    };
                    let Some(claim) = self
                        .cluster
                        .machine(machine)
                        .and_then(|found| found.claim.clone())
                    else {
                        return;
                    };
                    if claim.is_deleting() {
                        return;
                    }
                    let mut after = NodeClaim::clone(&claim);
                    after.metadata.deletion_timestamp = Some(Time(whole_seconds(now)));
                    self.write_claim(machine, after);
                    self.look_at_claim_in(machine, 0);
                }
                ObjectKind::Node => {
                    let Some(machine) = self.cluster.of_node(&target.name) else {
                        return;
                    };
                    let Some(node) = self.cluster.machine(machine).and_then(|found| found.node.clone())
                    else {
                        return;
                    };
                    let mut after = Node::clone(&node);
                    after.metadata.deletion_timestamp = Some(Time(whole_seconds(now)));
                    self.set_node(machine, after);
                    self.look_at_node_in(machine, 0);
                }
                _ => {}
            },
            Action::EvictPod { .. } | Action::NominatePod { .. } | Action::Event(_) => {}
        }
    }

    /// A NodeClaim is created; `assigned` are the pods that it is made for.
    pub(super) fn create_claim(&mut self, mut claim: NodeClaim, assigned: Vec<(String, PodId)>) {
        let now = self.now();
        let number = self.cluster.made();
        let name = claim.metadata.name.clone().unwrap_or_else(|| {
            let prefix = claim.metadata.generate_name.clone().unwrap_or_default();
            // Nor is the name of a node that stood at the start given again: a dump that this seed has made has names of it.
            let is_free =
                |name: &String| self.cluster.of_claim(name).is_none() && !self.world.standing.has(name);
            let first = format!("{prefix}{}", self.draws.claim_suffix(number));
            // Two of thousands are the same by chance: then another is drawn, as the operator's next pass has one drawn by the API server.
            let more =
                (1..).map(|attempt| format!("{prefix}{}", self.draws.claim_suffix_again(number, attempt)));
            std::iter::once(first)
                .chain(more)
                .find(is_free)
                .unwrap_or_default()
        });
        if self.cluster.of_claim(&name).is_some() {
            return;
        }
        claim.metadata.name = Some(name);
        claim.metadata.generate_name = None;
        claim.metadata.uid = Some(format!("claim-{number}"));
        claim.metadata.creation_timestamp = Some(Time(whole_seconds(now)));
        let more = claim
            .annotation(labels::DISRUPTION)
            .unwrap_or_default()
            .to_owned();
        self.log.add(self.now_ms, "nodeclaim", claim.name_of(), &more);
        self.count_later(&claim);
        self.static_claim_changes(None, Some(&claim));
        let machine = self.cluster.add_claim(claim);
        self.cluster.assign(machine, assigned);
        self.node_changed(machine);
        self.look_at_claim_in(machine, 0);
    }
}
