//! Nodes for pods that do not fit: the batching window, the pass, NodeClaims.
//!
//! Owns when a pass takes place. What is launched is the answer of `plan::provision`.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::Snapshot;
use spokeshave_model::placement::PlannedClaim;
use spokeshave_plan::launch_backoff::Admission;
use spokeshave_plan::{limit_exceeded, provision, to_node_claim};

use crate::engine::Engine;
use crate::pods::PodId;
use crate::queue::Wake;
use crate::world::{Model, milliseconds};

impl Engine<'_> {
    /// A pod that the scheduler could not place asks for a pass.
    pub(crate) fn pod_asks(&mut self, id: PodId) {
        if let Some(pod) = self.pods.get(id) {
            let uid = pod.object.metadata.uid.clone().unwrap_or_default();
            self.ask(uid);
        }
    }

    /// A node that is about to go asks for a pass.
    pub(super) fn node_asks(&mut self, uid: String) {
        self.ask(uid);
    }

    /// P-050: the first that asks opens the window, each new one keeps it open a little longer.
    fn ask(&mut self, uid: String) {
        let now_ms = self.now_ms;
        let batch = &mut self.operator.batch;
        if !batch.seen.insert(uid) {
            return;
        }
        let opened = *batch.opened_ms.get_or_insert(now_ms);
        batch.number += 1;
        let number = batch.number;
        let longest = opened.saturating_add(self.policy.batch_max_ms);
        let due = now_ms.saturating_add(self.policy.batch_idle_ms).min(longest);
        self.queue.at(due.max(now_ms), Wake::Batch(number));
    }

    /// Closes the window, unless it was triggered since the timer was set.
    pub(crate) fn batch_closes(&mut self, number: u64) {
        if self.operator.batch.number != number || self.operator.batch.opened_ms.is_none() {
            return;
        }
        self.pass_now();
    }

    /// A pass that waits for no window: an instance is taken back.
    pub(crate) fn urge(&mut self) {
        self.operator.batch.number += 1;
        self.pass_now();
    }

    fn pass_now(&mut self) {
        self.operator.batch.seen.clear();
        self.operator.batch.opened_ms = None;
        // What the last pass has seen, it need not see again.
        if self.operator.batch.fruitless != Some(self.operator.version) {
            self.provision();
        }
        self.retrigger_later();
    }

    /// P-052: what still waits so long after the last pass asks again.
    fn retrigger_later(&mut self) {
        let due = self.now_ms + milliseconds(spokeshave_api::constants::PROVISIONING_RETRIGGER);
        self.operator.batch.retrigger_ms = due;
        self.queue.at(due, Wake::Retrigger);
    }

    /// P-052: what still waits asks again, unless something has asked since.
    pub(crate) fn retrigger(&mut self) {
        let batch = &self.operator.batch;
        if batch.retrigger_ms != self.now_ms || batch.opened_ms.is_some() {
            return;
        }
        let has_nothing = self.waiting.is_empty() && self.disrupted_nodes().is_empty();
        if has_nothing {
            return;
        }
        let waiting: Vec<PodId> = self.waiting.iter().map(|(.., id)| *id).collect();
        for id in waiting {
            if self.pods.get(id).is_some_and(|pod| pod.unschedulable) {
                self.pod_asks(id);
            }
        }
        let nodes: Vec<String> = self.disrupted_nodes();
        for uid in nodes {
            self.ask(uid);
        }
    }

    /// One pass.
    fn provision(&mut self) {
        let now = self.now();
        let version = self.operator.version;
        let snapshot = self.freeze(&[]);
        let outcome = provision(&snapshot, &self.policy.settings, now);
        let mut nominates = false;
        for (node, _) in outcome.nominated_nodes(&snapshot) {
            let id = snapshot.node(node).provider_id.clone();
            self.nominate(id);
            nominates = true;
        }
        let known = self.pods_of(&snapshot, &outcome.placements.claims);
        let mut delayed = false;
        for planned in &outcome.placements.claims {
            let view = snapshot.pool(planned.pool);
            let current = self.operator.node_pools.get(&view.name);
            if current.is_none_or(|pool| limit_exceeded(pool, &view.usage).is_some()) {
                continue;
            }
            let claim = to_node_claim(&snapshot, planned);
            if let Admission::NotBefore(_) = self.operator.launches.admit(&claim, now) {
                delayed = true;
                continue;
            }
            let pods = planned.pods.iter().filter_map(|id| {
                let uid = snapshot.pod(*id).uid();
                Some((uid.to_owned(), *known.get(uid)?))
            });
            let pods = pods.collect();
            self.create_claim(claim, pods);
            self.operator.last_launch_ms = Some(self.now_ms);
        }
        // A nomination is to be renewed.
        let is_fruitless = !delayed && !nominates && self.operator.version == version;
        self.operator.batch.fruitless = is_fruitless.then_some(version);
    }

    /// The pods that NodeClaims are planned for, by UID: those that wait, and those on nodes that go.
    fn pods_of(&self, snapshot: &Snapshot, planned: &[PlannedClaim]) -> BTreeMap<String, PodId> {
        let planned = planned.iter().flat_map(|claim| &claim.pods);
        let uids: BTreeSet<&str> = planned.map(|id| snapshot.pod(*id).uid()).collect();
        if uids.is_empty() {
            return BTreeMap::new();
        }
        let find = |id: PodId| {
            let uid = self.pods.get(id)?.object.metadata.uid.as_deref()?;
            uids.contains(uid).then(|| (uid.to_owned(), id))
        };
        let waiting = self.waiting.iter().filter_map(|(.., id)| find(*id));
        let mut pods: BTreeMap<String, PodId> = waiting.collect();
        if pods.len() < uids.len() {
            pods.extend(self.pods.iter().filter_map(|(id, _)| find(id)));
        }
        pods
    }

    /// D-027: a node is kept for the pods that are expected on it.
    pub(super) fn nominate(&mut self, provider_id: String) {
        let until = self.policy.settings.nominated_until(self.now());
        self.operator.nominations.insert(provider_id, until);
        // Ours looks at all that are kept, by whatever.
        if self.policy.model != Model::Ours {
            self.changed();
        }
    }

    fn disrupted_nodes(&self) -> Vec<String> {
        let disrupted = spokeshave_api::labels::disrupted_taint();
        let nodes = self
            .cluster
            .machines()
            .filter_map(|(_, found)| found.node.as_ref());
        let tainted = nodes.filter(|node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
            let mut taints = taints.unwrap_or_default().iter();
            taints.any(|taint| spokeshave_model::taint::same_taint(taint, &disrupted))
        });
        tainted.filter_map(|node| node.metadata.uid.clone()).collect()
    }
}
