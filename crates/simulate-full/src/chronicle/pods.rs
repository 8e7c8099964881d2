//! Pods and their owners in the chronicle.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use spokeshave_apiserver::Commit;
use spokeshave_model::{Resources, pod};
use spokeshave_plan::termination;
use spokeshave_scenario::{Owner, OwnerKind};

use super::machines::Machine;
use super::{Chronicle, Completed, HOUR_MS, PodKey, State};

/// An owner.
#[derive(Debug)]
pub(super) struct OwnerTally {
    kind: OwnerKind,
    replicas: u32,
    /// The most that it ever wanted; of one whose pods begin one by one, how many have.
    most: u32,
    /// When it was last scaled up from nothing.
    wanted_since_ms: u64,
    /// It has had a pod.
    had_pods: bool,
    /// Since when its pods are counted, and how many were made since: for a minute, and then anew.
    born: (u64, u64),
    ready: u32,
    was_up: bool,
    is_down: bool,
    /// How long single pods run, by number.
    runs_ms: BTreeMap<u64, u64>,
    /// Pods that are to be replaced: when they were moved voluntarily.
    owed: VecDeque<Option<u64>>,
    /// The same for pods that keep their number.
    owed_numbers: BTreeMap<u64, Option<u64>>,
}

/// Pods that may be made in one minute beside twice the most that are wanted: it is scaled down and up again, and nodes go.
const SPARE_BIRTHS: u64 = 1_000;

const MINUTE_MS: u64 = 60_000;

impl OwnerTally {
    pub(super) fn new(owner: &Owner) -> Self {
        OwnerTally {
            kind: owner.kind,
            replicas: 0,
            most: 0,
            wanted_since_ms: 0,
            had_pods: false,
            born: (0, 0),
            ready: 0,
            was_up: false,
            is_down: false,
            runs_ms: BTreeMap::new(),
            owed: VecDeque::new(),
            owed_numbers: BTreeMap::new(),
        }
    }

    /// A single pod of this number is going to be made, which runs so long.
    pub(super) fn begins(&mut self, number: u64, runs_ms: Option<u64>) {
        self.most = self.most.saturating_add(1);
        if let Some(runs_ms) = runs_ms {
            self.runs_ms.insert(number, runs_ms);
        }
    }

    /// One more pod is made.
    fn bears(&mut self, now_ms: u64) {
        let (since_ms, number) = self.born;
        self.born = if now_ms - since_ms < MINUTE_MS {
            (since_ms, number + 1)
        } else {
            (now_ms, 1)
        };
        self.had_pods = true;
    }

    /// Far more pods were made within a minute than it ever wanted. Jobs wait with the next one, and single pods are not made again.
    fn is_restless(&self) -> bool {
        let is_counted = !matches!(self.kind, OwnerKind::Job | OwnerKind::Bare);
        is_counted && self.born.1 > 2 * u64::from(self.most) + SPARE_BIRTHS
    }

    fn owes(&mut self, number: u64, moved_ms: Option<u64>) {
        match self.kind {
            OwnerKind::Deployment => self.owed.push_back(moved_ms),
            OwnerKind::StatefulSet | OwnerKind::Job | OwnerKind::Other => {
                self.owed_numbers.insert(number, moved_ms);
            }
            OwnerKind::Bare => {}
        }
    }

    /// What a new pod replaces; `None` when it is an additional one.
    fn predecessor(&mut self, number: u64) -> Option<Option<u64>> {
        match self.kind {
            OwnerKind::Deployment => self.owed.pop_front(),
            _ => self.owed_numbers.remove(&number),
        }
    }
}

/// A pod.
#[derive(Debug)]
pub(super) struct PodTally {
    /// Its owner and its number there; `None` for pods of DaemonSets.
    pub(super) owner: Option<(u32, u64)>,
    /// From which template of its owner it was made.
    template: u32,
    pub(super) node: Option<String>,
    pub(super) since_ms: u64,
    requests: Resources,
    replaces: bool,
    moved_ms: Option<u64>,
    is_ready: bool,
    is_stopping: bool,
    /// It has completed, or is otherwise done with.
    has_left: bool,
    pub(super) starts_at: Option<Timestamp>,
    pub(super) ends_at: Option<Timestamp>,
    pub(super) stops_at: Option<Timestamp>,
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

impl Chronicle {
    /// What is known of a pod.
    pub(super) fn tally<T>(&self, pod: &Pod, of: impl FnOnce(&PodTally) -> Option<T>) -> Option<T> {
        let key = (pod.metadata.namespace.clone()?, pod.metadata.name.clone()?);
        of(self.lock().pods.get(&key)?)
    }

    pub(super) fn pod_committed(&self, commit: &Commit<'_>) {
        let key: PodKey = (commit.namespace.to_owned(), commit.name.to_owned());
        let (mut state, now_ms) = self.now();
        let state = &mut *state;
        if commit.old.is_none() {
            state.born(now_ms, &key, commit.new);
        }
        if commit.deleted {
            state.removed(now_ms, &key);
            return;
        }
        let node = state.machine_of(commit.new["spec"]["nodeName"].as_str().unwrap_or_default());
        let Some(tally) = state.pods.get_mut(&key) else {
            return;
        };
        if tally.node.is_none() && !node.is_empty() {
            if let Some((owner, number)) = tally.owner.filter(|_| !state.is_standing) {
                let spread = self.timeline.owners[owner as usize].ready;
                let delay = state.draws.pod_ready_ms(owner, number, spread);
                tally.starts_at = Some(self.after(delay));
            } else {
                tally.starts_at = Some(self.clock.now());
            }
            state.bound(now_ms, &key, &node);
        }
        let Some(tally) = state.pods.get_mut(&key) else {
            return;
        };
        if is_ready(commit.new) && !tally.is_ready && !tally.is_stopping {
            if let Some((owner, number)) = tally.owner {
                let left_ms = state.left_ms.remove(&(owner, number));
                let runs_ms = state.owners[owner as usize].runs_ms.get(&number).copied();
                tally.ends_at = left_ms.or(runs_ms).map(|runs_ms| self.after(runs_ms));
            }
            state.started(now_ms, &key);
        }
        if commit.new["status"]["phase"] == "Succeeded" {
            state.completed(now_ms, &key);
            return;
        }
        let metadata = &commit.new["metadata"];
        let Some(tally) = state.pods.get_mut(&key) else {
            return;
        };
        if !metadata["deletionTimestamp"].is_null() && !tally.is_stopping {
            let grace = metadata["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
            let wait = self.world.delays.pod_stop_ms.min(grace.saturating_mul(1_000));
            tally.stops_at = Some(self.after(wait));
            state.stopping(now_ms, &key);
        }
    }
}

impl State {
    /// The first owner of which pods have been asked for so long in vain.
    pub(super) fn without_pods(&self, before_ms: u64) -> Option<usize> {
        let is_late =
            |owner: &OwnerTally| owner.replicas > 0 && !owner.had_pods && owner.wanted_since_ms <= before_ms;
        self.owners.iter().position(is_late)
    }

    /// An owner whose pods are made without end.
    pub(super) fn restless(&self) -> Option<u32> {
        let is_restless = |owner: &u32| self.owners[*owner as usize].is_restless();
        self.restless.filter(is_restless)
    }

    pub(super) fn scaled(&mut self, now_ms: u64, owner: u32, replicas: u32) {
        let state = &mut self.owners[owner as usize];
        if state.replicas == 0 {
            state.wanted_since_ms = now_ms;
        }
        state.replicas = replicas;
        state.most = state.most.max(replicas);
        if replicas != 1 {
            state.was_up = false;
        }
        self.owner_changed(owner);
    }

    fn note_pod(&mut self, now_ms: u64, what: &str, key: &PodKey, more: &str) {
        if self.pods.get(key).is_some_and(|pod| pod.owner.is_some()) {
            self.note(now_ms, what, &format!("{}/{}", key.0, key.1), more);
        }
    }

    fn born(&mut self, now_ms: u64, key: &PodKey, object: &Value) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let owner = self.names.pod(uid);
        let requests = serde_json::from_value::<spokeshave_model::Pod>(object.clone());
        let predecessor = owner.and_then(|(owner, number)| self.owners[owner as usize].predecessor(number));
        let tally = PodTally {
            owner,
            template: self.names.template(uid),
            node: None,
            since_ms: now_ms,
            requests: requests.map(|pod| pod::requests(&pod)).unwrap_or_default(),
            replaces: predecessor.is_some(),
            moved_ms: predecessor.flatten(),
            is_ready: false,
            is_stopping: false,
            has_left: false,
            starts_at: None,
            ends_at: None,
            stops_at: None,
        };
        self.pods.insert(key.clone(), tally);
        if let Some((owner, _)) = owner {
            let tally = &mut self.owners[owner as usize];
            tally.bears(now_ms);
            if tally.is_restless() {
                self.restless = Some(owner);
            }
            self.meter.pod_begins(owner);
            self.note_pod(now_ms, "born", key, "");
        }
    }

    fn bound(&mut self, now_ms: u64, key: &PodKey, node: &str) {
        let Some(tally) = self.pods.get_mut(key) else {
            return;
        };
        tally.node = Some(node.to_owned());
        let (owner, waited_ms, replaces) = (tally.owner, now_ms - tally.since_ms, tally.replaces);
        let (requests, template) = (tally.requests.clone(), tally.template);
        let what = if self.is_standing { "placed" } else { "bound" };
        self.note_pod(now_ms, what, key, node);
        if let Some((owner, _)) = owner {
            if self.is_standing {
                self.meter.pod_stands();
            } else {
                self.meter.pod_bound(waited_ms, replaces);
            }
            let bound = self.least.add(owner, template);
            self.meter.set_bound(bound);
        }
        self.takes(node, &requests, owner.is_some(), true);
    }

    fn started(&mut self, now_ms: u64, key: &PodKey) {
        let Some(tally) = self.pods.get_mut(key) else {
            return;
        };
        tally.is_ready = true;
        let owner = tally.owner;
        // Of one that stands, that has been said.
        if !self.is_standing {
            self.note_pod(now_ms, "started", key, "");
        }
        if let Some((owner, _)) = owner {
            self.owners[owner as usize].ready += 1;
            self.owner_changed(owner);
        }
    }

    fn completed(&mut self, now_ms: u64, key: &PodKey) {
        let Some(tally) = self.pods.get(key).filter(|tally| !tally.has_left) else {
            return;
        };
        if let Some((owner, pod)) = tally.owner {
            drop(self.completed.unbounded_send(Completed { owner, pod }));
        }
        self.leaves(now_ms, key);
    }

    fn stopping(&mut self, now_ms: u64, key: &PodKey) {
        if self.evicting.remove(key) {
            self.evicted(now_ms, key);
        }
        let Some(tally) = self.pods.get_mut(key).filter(|tally| !tally.has_left) else {
            return;
        };
        tally.is_stopping = true;
        let (owner, was_ready) = (tally.owner, std::mem::take(&mut tally.is_ready));
        self.note_pod(now_ms, "stopping", key, "");
        if let Some((owner, _)) = owner {
            let state = &mut self.owners[owner as usize];
            state.ready = state.ready.saturating_sub(u32::from(was_ready));
            self.owner_changed(owner);
        }
    }

    /// The operator has evicted a pod.
    fn evicted(&mut self, now_ms: u64, key: &PodKey) {
        self.refused.remove(key);
        let Some(tally) = self.pods.get(key) else { return };
        let machine = tally.node.as_ref().and_then(|node| self.machines.get(node));
        let claim = machine.and_then(Machine::claim);
        let reason = termination::eviction_reason(claim.as_ref());
        let is_voluntary = termination::could_have_waited(claim.as_ref());
        self.note(now_ms, "evicted", &format!("{}/{}", key.0, key.1), &reason);
        self.lost(now_ms, key, is_voluntary);
    }

    /// A pod is taken from its owner.
    fn lost(&mut self, now_ms: u64, key: &PodKey, is_voluntary: bool) {
        let Some(tally) = self.pods.get(key) else { return };
        let Some((owner, number)) = tally.owner else {
            return;
        };
        let before = tally.moved_ms;
        self.meter.evicted(owner, is_voluntary);
        if is_voluntary && before.is_some_and(|before| now_ms - before < HOUR_MS) {
            self.meter.count(|counted| &mut counted.moved_again);
        }
        let moved_ms = is_voluntary.then_some(now_ms).or(before);
        self.owners[owner as usize].owes(number, moved_ms);
    }

    /// The object is gone.
    fn removed(&mut self, now_ms: u64, key: &PodKey) {
        let Some(tally) = self.pods.get(key) else { return };
        if !tally.has_left {
            let was_evicted = self.evicting.contains(key);
            let machine = tally.node.as_ref().map(|node| self.machines.get(node));
            let was_killed =
                machine.is_some_and(|machine| machine.is_none_or(|machine| !machine.has_instance()));
            let is_voluntary = tally
                .node
                .as_ref()
                .is_some_and(|node| self.disrupted.contains(node));
            let (is_stopping, is_workload) = (tally.is_stopping, tally.owner.is_some());
            if was_killed && is_workload {
                self.meter.count(|counted| &mut counted.pods_cut_short);
                self.note_pod(now_ms, "killed", key, "");
            }
            if !is_stopping && was_evicted {
                self.stopping(now_ms, key);
            } else if !is_stopping && was_killed {
                self.lost(now_ms, key, is_voluntary);
            }
            self.leaves(now_ms, key);
        }
        self.pods.remove(key);
        self.refused.remove(key);
    }

    /// A pod takes part no more.
    fn leaves(&mut self, now_ms: u64, key: &PodKey) {
        let Some(tally) = self.pods.get_mut(key) else {
            return;
        };
        tally.has_left = true;
        let was_ready = std::mem::take(&mut tally.is_ready);
        let (owner, node, requests) = (tally.owner, tally.node.clone(), tally.requests.clone());
        let template = tally.template;
        let waited_ms = node.is_none().then(|| now_ms - tally.since_ms);
        self.note_pod(now_ms, "left", key, "");
        if let Some(node) = &node {
            self.takes(node, &requests, owner.is_some(), false);
        }
        let Some((owner, _)) = owner else { return };
        self.meter.pod_ends(waited_ms);
        if node.is_some() {
            let bound = self.least.remove(owner, template);
            self.meter.set_bound(bound);
        }
        let state = &mut self.owners[owner as usize];
        state.ready = state.ready.saturating_sub(u32::from(was_ready));
        self.owner_changed(owner);
    }

    /// Whether an owner that wants one pod is down.
    fn owner_changed(&mut self, owner: u32) {
        let state = &mut self.owners[owner as usize];
        if state.ready > 0 && state.replicas == 1 {
            state.was_up = true;
        }
        let is_down = state.replicas == 1 && state.was_up && state.ready == 0;
        if is_down != state.is_down {
            state.is_down = is_down;
            self.down = if is_down { self.down + 1 } else { self.down - 1 };
            self.meter.set_down(self.down);
        }
    }
}
