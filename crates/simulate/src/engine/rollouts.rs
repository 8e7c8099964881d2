//! Pods that go because their owner wants fewer, or makes them from another template: roll-outs of Deployments and StatefulSets.
//!
//! Owns which pods these are. How many pods a ReplicaSet has at each step is said by `rollouts`; no pod is evicted for a roll-out, and no budget is asked.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use spokeshave_scenario::OwnerKind;

use crate::engine::Engine;
use crate::engine::workloads::Predecessor;
use crate::pods::{PodId, Stage};
use crate::rollouts::{self, Set};

impl Engine<'_> {
    /// An owner makes its pods from another of its templates from now on.
    pub(super) fn template_changes(&mut self, owner: u32, template: u32) {
        let state = &mut self.owners[owner as usize];
        if template as usize >= state.templates.len() || template == state.newest {
            return;
        }
        state.newest = template;
        if state.kind == OwnerKind::Deployment {
            self.renew_sets(owner, template);
        }
        self.roll_out(owner);
    }

    /// The ReplicaSet of this template is the newest of its Deployment.
    fn renew_sets(&mut self, owner: u32, template: u32) {
        let state = &mut self.owners[owner as usize];
        // It may have pods of this one still, from before.
        let known = state.sets.iter().position(|set| set.template == template);
        let set = match known {
            Some(index) => state.sets.remove(index),
            None => Set { template, asked: 0 },
        };
        state.sets.push(set);
        self.forget_sets(owner);
    }

    /// The next step of a roll-out, if one is under way.
    pub(super) fn roll_out(&mut self, owner: u32) {
        let state = &self.owners[owner as usize];
        match state.kind {
            OwnerKind::Deployment if state.sets.len() > 1 => self.roll_sets(owner),
            OwnerKind::StatefulSet if state.templates.len() > 1 => self.roll_ordinals(owner),
            _ => {}
        }
    }

    /// Old ReplicaSets get fewer pods, and the newest one more, as far as enough of them are ready.
    fn roll_sets(&mut self, owner: u32) {
        let ready = self.ready_of_sets(owner);
        let state = &mut self.owners[owner as usize];
        let wanted = state.replicas;
        if rollouts::roll(wanted, &mut state.sets, &ready) {
            // So that there are never more than there may be.
            self.shed(owner);
            self.fill(owner, Predecessor::default());
            self.owner_changed(owner);
        }
        self.forget_sets(owner);
    }

    /// The last pod that was made from another template goes, once all pods are there and ready: its successor is made when it is gone.
    fn roll_ordinals(&mut self, owner: u32) {
        let state = &self.owners[owner as usize];
        let mut outdated = None;
        for number in 0..u64::from(state.replicas) {
            let id = state.active.get(&number).copied();
            let Some((id, pod)) = id.and_then(|id| Some((id, self.pods.get(id)?))) else {
                return;
            };
            if pod.stage != Stage::Ready {
                return;
            }
            if pod.template != state.newest {
                outdated = Some(id);
            }
        }
        if let Some(id) = outdated {
            self.stop(id, None);
        }
    }

    /// A Deployment wants another number of pods: its ReplicaSets get their parts of it.
    pub(super) fn resize_sets(&mut self, owner: u32, replicas: u32) {
        let state = &self.owners[owner as usize];
        if state.kind != OwnerKind::Deployment {
            return;
        }
        let ready = self.ready_of_sets(owner);
        let state = &mut self.owners[owner as usize];
        rollouts::resize(state.replicas, replicas, &mut state.sets, &ready);
    }

    /// Deletes pods of which there are too many.
    pub(super) fn shed(&mut self, owner: u32) {
        let state = &self.owners[owner as usize];
        if state.kind != OwnerKind::Deployment {
            let surplus = state.active.len().saturating_sub(state.replicas as usize);
            self.stop_all(&self.surplus(owner, None, surplus));
            return;
        }
        let is_rolled = state.sets.len() > 1;
        for set in state.sets.clone() {
            let surplus = self.pods_of_set(owner, set).saturating_sub(set.asked as usize);
            let template = is_rolled.then_some(set.template);
            self.stop_all(&self.surplus(owner, template, surplus));
        }
    }

    /// The pods that a controller deletes when there are too many, in order: those that wait, then those that are not ready, then those on nodes with more pods
    /// of the same controller, then the youngest by the second, then by name. Of a StatefulSet the highest ordinals. `template`: only those that are made from it.
    fn surplus(&self, owner: u32, template: Option<u32>, count: usize) -> Vec<PodId> {
        if count == 0 {
            return Vec::new();
        }
        let state = &self.owners[owner as usize];
        let is_own =
            |id: &PodId| template.is_none() || self.pods.get(*id).map(|pod| pod.template) == template;
        let active = state.active.iter().rev().map(|(_, id)| *id).filter(is_own);
        if state.kind == OwnerKind::StatefulSet {
            return active.take(count).collect();
        }
        let mut per_node: BTreeMap<u32, usize> = BTreeMap::new();
        let own = state.active.values().copied().filter(is_own);
        for pod in own.filter_map(|id| self.pods.get(id)) {
            if let Some(machine) = pod.machine {
                *per_node.entry(machine).or_default() += 1;
            }
        }
        let rank = |id: &PodId| {
            let Some(pod) = self.pods.get(*id) else {
                return (0, 0, Reverse(0), 0);
            };
            let neighbours = pod
                .machine
                .and_then(|machine| per_node.get(&machine))
                .copied()
                .unwrap_or(0);
            let stage = match pod.stage {
                Stage::Waiting => 0,
                Stage::Starting => 1,
                Stage::Ready | Stage::Stopping => 2,
            };
            let created = pod.object.metadata.creation_timestamp.as_ref();
            let second = created.map_or(0, |created| created.0.as_second());
            (stage, usize::MAX - neighbours, Reverse(second), pod.number)
        };
        let mut ranked: Vec<PodId> = active.collect();
        ranked.sort_by_key(rank);
        ranked.truncate(count);
        ranked
    }

    fn stop_all(&mut self, pods: &[PodId]) {
        for id in pods {
            self.stop(*id, None);
        }
    }

    /// How many pods a ReplicaSet has that do not stop.
    pub(super) fn pods_of_set(&self, owner: u32, set: Set) -> usize {
        let state = &self.owners[owner as usize];
        // They need not be counted where there is but one.
        if state.sets.len() < 2 {
            return state.active.len();
        }
        let pods = state.active.values().filter_map(|id| self.pods.get(*id));
        pods.filter(|pod| pod.template == set.template).count()
    }

    /// How many ready pods each ReplicaSet has.
    fn ready_of_sets(&self, owner: u32) -> Vec<u32> {
        let state = &self.owners[owner as usize];
        if let [_] = state.sets[..] {
            return vec![state.ready];
        }
        let mut ready = vec![0; state.sets.len()];
        for pod in state.active.values().filter_map(|id| self.pods.get(*id)) {
            let set = state.sets.iter().position(|set| set.template == pod.template);
            if let Some(set) = set.filter(|_| pod.stage == Stage::Ready) {
                ready[set] += 1;
            }
        }
        ready
    }

    /// Old ReplicaSets without pods take no part any more.
    fn forget_sets(&mut self, owner: u32) {
        let state = &self.owners[owner as usize];
        let newest = state.newest;
        let sets = state.sets.iter().copied();
        let kept =
            sets.filter(|set| set.template == newest || set.asked > 0 || self.pods_of_set(owner, *set) > 0);
        let kept: Vec<Set> = kept.collect();
        self.owners[owner as usize].sets = kept;
    }
}
