//! What workloads do: owners follow the timeline, pods are born, replaced and deleted, DaemonSets fill nodes, the scheduler binds what waits.
//!
//! Owns the lifecycle of a pod. It never decides which node is removed.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec;
use spokeshave_model::labels;
use spokeshave_scenario::{Change, OwnerKind};

use crate::draws::{daemon_uid, pod_uid};
use crate::engine::Engine;
use crate::pods::{self, Parent, PodId, SimulatedPod, Stage, created};
use crate::queue::Wake;

/// What a new pod continues.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Predecessor {
    /// It was evicted, or lost otherwise.
    is_there: bool,
    /// When it was evicted voluntarily.
    moved_ms: Option<u64>,
    /// What the new pod is made from, as it was; none: what its owner makes pods from now.
    template: Option<u32>,
}

impl Engine<'_> {
    /// Wakes for the next event of the timeline.
    pub(crate) fn wake_for_timeline(&mut self) {
        if let Some(event) = self.timeline.events.get(self.cursor) {
            self.queue.at(event.at_ms.max(self.now_ms), Wake::Timeline);
        }
    }

    /// Everything that is due in the timeline.
    pub(crate) fn follow_timeline(&mut self) {
        let timeline = self.timeline;
        while let Some(event) = timeline
            .events
            .get(self.cursor)
            .filter(|event| event.at_ms <= self.now_ms)
        {
            self.cursor += 1;
            let owner = event.owner.0;
            if owner as usize >= self.owners.len() {
                continue;
            }
            match &event.change {
                Change::Replicas(replicas) => self.scale(owner, *replicas),
                Change::Template(template) => self.template_changes(owner, *template),
                Change::Begin { pod, runs_ms } => self.birth(owner, *pod, *runs_ms, Predecessor::default()),
                Change::End { pod } => {
                    self.owners[owner as usize].job_ends(*pod);
                    if let Some(id) = self.owners[owner as usize].active.get(pod).copied() {
                        self.stop(id, None);
                    }
                }
            }
        }
        self.wake_for_timeline();
    }

    fn scale(&mut self, owner: u32, replicas: u32) {
        self.resize_sets(owner, replicas);
        let state = &mut self.owners[owner as usize];
        state.replicas = replicas;
        if replicas != 1 {
            state.was_up = false;
        }
        self.fill(owner, Predecessor::default());
        self.shed(owner);
        self.owner_changed(owner);
        self.roll_out(owner);
    }

    /// Creates what an owner lacks.
    pub(super) fn fill(&mut self, owner: u32, predecessor: Predecessor) {
        let state = &self.owners[owner as usize];
        match state.kind {
            OwnerKind::Deployment => {
                for index in 0..state.sets.len() {
                    let set = self.owners[owner as usize].sets[index];
                    for _ in self.pods_of_set(owner, set)..set.asked as usize {
                        let state = &mut self.owners[owner as usize];
                        let number = state.next_number;
                        state.next_number += 1;
                        let template = Some(set.template);
                        let continued = Predecessor {
                            template,
                            ..predecessor
                        };
                        self.birth(owner, number, None, continued);
                    }
                }
            }
            OwnerKind::StatefulSet => {
                for number in 0..u64::from(state.replicas) {
                    // A pod that stops still has the name of its successor.
                    if !self.has_pod(owner, number) {
                        self.birth(owner, number, None, predecessor);
                    }
                }
            }
            OwnerKind::Job | OwnerKind::Bare | OwnerKind::Other => {}
        }
    }

    fn has_pod(&self, owner: u32, number: u64) -> bool {
        let state = &self.owners[owner as usize];
        state.active.contains_key(&number) || self.operator.stopping_ordinals.contains(&(owner, number))
    }

    pub(super) fn birth(&mut self, owner: u32, number: u64, runs_ms: Option<u64>, predecessor: Predecessor) {
        let now = self.now();
        let state = &self.owners[owner as usize];
        if state.active.contains_key(&number) {
            return;
        }
        let uid = pod_uid(owner, number, self.now_ms);
        let mut name = state.pod_name(number);
        if matches!(state.kind, OwnerKind::Job | OwnerKind::Other) && predecessor.is_there {
            // The pod that was lost may still have the name.
            name = format!("{name}r{}", self.now_ms);
        }
        let zone = state.zones.get(&number).cloned();
        let number_of_template = predecessor.template.unwrap_or(state.newest);
        let (spec, shape) = self.spec_and_shape(owner, number_of_template, zone.as_deref());
        let template = &self.owners[owner as usize].templates[number_of_template as usize];
        let reference = template.reference.as_ref();
        let mut object = created(&template.metadata, &spec, name, uid, reference, now);
        let is_gated = pods::is_gated(&object);
        if is_gated {
            pods::held_back(&mut object);
        }
        let id = self.pods.insert(SimulatedPod {
            object: Arc::new(object),
            parent: Parent::Owner(owner),
            number,
            template: number_of_template,
            shape,
            stage: Stage::Waiting,
            machine: None,
            waits_since_ms: self.now_ms,
            replaces: predecessor.is_there,
            moved_ms: predecessor.moved_ms,
            runs_ms,
            refusals: 0,
            eviction_ms: None,
            unschedulable: false,
            refusal: 0,
        });
        self.note_pod("born", id, "");
        self.owners[owner as usize].active.insert(number, id);
        // Nobody takes the gates off here: the scheduler never looks at it, as in the full engine.
        if !is_gated {
            self.waits(id);
        }
        self.meter.pod_begins(owner);
        self.pod_added(id);
        self.wake_scheduler();
        self.owner_changed(owner);
    }

    /// The scheduler looks at what waits, once for everything that happens at this instant.
    pub(crate) fn wake_scheduler(&mut self) {
        if !self.is_scheduling && !self.waiting.is_empty() {
            self.is_scheduling = true;
            self.wake_in(0, Wake::Schedule);
        }
    }

    fn waits(&mut self, id: PodId) {
        if let Some(pod) = self.pods.get(id) {
            self.waiting.insert((pods::turn(&pod.object), id));
        }
    }

    /// One pass of the scheduler.
    pub(crate) fn schedule(&mut self) {
        self.is_scheduling = false;
        let waiting: Vec<PodId> = self.waiting.iter().map(|(.., id)| *id).collect();
        for id in waiting {
            let Some(pod) = self.pods.get(id) else { continue };
            match self.scheduler.choose(pod.shape) {
                Some(machine) => self.bind(id, machine),
                None if !pod.unschedulable => {
                    if let Some(pod) = self.pods.get_mut(id) {
                        pod.unschedulable = true;
                    }
                    self.change_pod(id, pods::unschedulable);
                }
                None => {}
            }
        }
        self.write_refusals();
    }

    /// The scheduler writes why a pod waits whenever that has changed, and whoever follows pods sees it.
    fn write_refusals(&mut self) {
        let changes = self.scheduler.changes();
        let is_new = self.refusals_written.replace(changes) != Some(changes);
        let mut numbers: std::collections::BTreeMap<usize, u64> = std::collections::BTreeMap::new();
        let waiting: Vec<PodId> = self.waiting.iter().map(|(.., id)| *id).collect();
        for id in waiting {
            let Some(pod) = self.pods.get(id).filter(|pod| is_new || pod.refusal == 0) else {
                continue;
            };
            let shape = pod.shape;
            let number = *numbers
                .entry(shape)
                .or_insert_with(|| self.scheduler.refusals(shape).number().max(1));
            if let Some(pod) = self.pods.get_mut(id)
                && pod.refusal != number
            {
                pod.refusal = number;
                self.changed();
                self.pod_asks(id);
            }
        }
    }

    fn bind(&mut self, id: PodId, machine: u32) {
        let now = self.now();
        let now_ms = self.now_ms;
        let Some(node) = self.cluster.machine(machine).and_then(|found| found.node_name()) else {
            return;
        };
        let node = node.to_owned();
        let Some(pod) = self.pods.get_mut(id) else { return };
        self.waiting.remove(&(pods::turn(&pod.object), id));
        let waited_ms = now_ms - pod.waits_since_ms;
        pod.machine = Some(machine);
        pod.stage = Stage::Starting;
        let (parent, replaces, number) = (pod.parent, pod.replaces, pod.number);
        let template = pod.template;
        self.place_volumes(id, machine);
        self.change_pod(id, |pod| pods::bound(pod, &node, now));
        self.note_pod("bound", id, &node);
        let shape = self.pods.get(id).map_or(0, |pod| pod.shape);
        self.scheduler.bind(shape, machine);
        if let Some(found) = self.cluster.machine_mut(machine) {
            found.pods.push(id);
        }
        if let Parent::Owner(owner) = parent {
            self.meter.pod_bound(waited_ms, replaces);
            let bound = self.least.add(owner, template);
            self.meter.set_bound(bound);
            let spread = self.timeline.owners[owner as usize].ready;
            let delay = self.draws.pod_ready_ms(owner, number, spread);
            self.wake_in(delay, Wake::PodReady(id));
        }
        self.pod_disturbs(id, machine);
        self.measure_node(machine);
    }

    fn spec_and_shape(&mut self, owner: u32, template: u32, zone: Option<&str>) -> (Arc<PodSpec>, usize) {
        let state = &mut self.owners[owner as usize];
        let known = &state.templates[template as usize];
        let shape = known.shape;
        match zone {
            Some(zone) => (
                state.pinned_spec(template, zone),
                self.scheduler.pinned(shape, zone),
            ),
            None => (Arc::clone(&known.spec), shape),
        }
    }

    /// The volumes of a pod are created in the zone in which its ordinal first runs, and keep it there.
    pub(super) fn place_volumes(&mut self, id: PodId, machine: u32) {
        let Some(pod) = self.pods.get(id) else { return };
        let Parent::Owner(owner) = pod.parent else { return };
        let (number, template) = (pod.number, pod.template);
        let state = &mut self.owners[owner as usize];
        if !state.has_volumes || state.kind != OwnerKind::StatefulSet || state.zones.contains_key(&number) {
            return;
        }
        let node = self
            .cluster
            .machine(machine)
            .and_then(|found| found.node.as_ref());
        let own = node.and_then(|node| node.metadata.labels.as_ref());
        let Some(zone) = own.and_then(|own| own.get(labels::ZONE)).cloned() else {
            return;
        };
        state.zones.insert(number, zone.clone());
        let (spec, shape) = self.spec_and_shape(owner, template, Some(&zone));
        if let Some(pod) = self.pods.get_mut(id) {
            Arc::make_mut(&mut pod.object).spec = Some(spec);
            pod.shape = shape;
        }
    }

    /// Starts the pods of DaemonSets on a node that is ready.
    pub(crate) fn start_daemons(&mut self, machine: u32) {
        let now = self.now();
        let Some(found) = self.cluster.machine_mut(machine) else {
            return;
        };
        if std::mem::replace(&mut found.has_daemons, true) {
            return;
        }
        let node = found.node_name().unwrap_or_default().to_owned();
        for index in 0..self.daemons.len() as u32 {
            let shape = self.daemon_shape(index);
            if !self.scheduler.suits(shape, machine) {
                continue;
            }
            let daemon = &self.daemons[index as usize];
            let name = format!("{}-{node}", daemon.name);
            let uid = daemon_uid(index, machine);
            let mut object = created(
                &daemon.metadata,
                &daemon.spec,
                name,
                uid,
                Some(&daemon.reference),
                now,
            );
            pods::bound(&mut object, &node, now);
            pods::ready(&mut object);
            let id = self.pods.insert(SimulatedPod {
                object: Arc::new(object),
                parent: Parent::Daemon(index),
                number: u64::from(machine),
                template: 0,
                shape,
                stage: Stage::Ready,
                machine: Some(machine),
                waits_since_ms: self.now_ms,
                replaces: false,
                moved_ms: None,
                runs_ms: None,
                refusals: 0,
                eviction_ms: None,
                unschedulable: false,
                refusal: 0,
            });
            self.scheduler.bind(shape, machine);
            if let Some(found) = self.cluster.machine_mut(machine) {
                found.pods.push(id);
            }
            self.pod_added(id);
        }
        self.measure_node(machine);
    }

    /// A pod has started.
    pub(crate) fn pod_ready(&mut self, id: PodId) {
        let Some(pod) = self.pods.get_mut(id).filter(|pod| pod.stage == Stage::Starting) else {
            return;
        };
        pod.stage = Stage::Ready;
        let (parent, runs_ms) = (pod.parent, pod.runs_ms);
        self.change_pod(id, pods::ready);
        self.note_pod("started", id, "");
        if let Some(runs_ms) = runs_ms {
            self.wake_in(runs_ms, Wake::PodEnds(id));
        }
        if let Parent::Owner(owner) = parent {
            self.owners[owner as usize].ready += 1;
            self.owner_changed(owner);
            self.roll_out(owner);
        }
    }

    /// A pod has completed. Completed pods are removed at once: no decision reads them.
    pub(crate) fn pod_ends(&mut self, id: PodId) {
        let Some(pod) = self.pods.get(id).filter(|pod| pod.stage == Stage::Ready) else {
            return;
        };
        if let (Parent::Owner(owner), number) = (pod.parent, pod.number) {
            let state = &mut self.owners[owner as usize];
            state.active.remove(&number);
            state.ready = state.ready.saturating_sub(1);
            state.job_ends(number);
        }
        if let Some(machine) = pod.machine {
            self.pod_disturbs(id, machine);
        }
        self.pod_gone(id);
    }

    /// A pod is deleted: at once when it has no node, otherwise within its grace period or the one given, in seconds.
    pub(crate) fn stop(&mut self, id: PodId, grace_seconds: Option<i64>) {
        let now = self.now();
        let Some(pod) = self.pods.get_mut(id).filter(|pod| pod.stage != Stage::Stopping) else {
            return;
        };
        let was = std::mem::replace(&mut pod.stage, Stage::Stopping);
        let (parent, number, machine) = (pod.parent, pod.number, pod.machine);
        let grace = grace_seconds.unwrap_or_else(|| pods::grace_seconds(&pod.object));
        if let Parent::Owner(owner) = parent {
            let state = &mut self.owners[owner as usize];
            state.active.remove(&number);
            if was == Stage::Ready {
                state.ready = state.ready.saturating_sub(1);
            }
            if state.kind == OwnerKind::StatefulSet && machine.is_some() {
                self.operator.stopping_ordinals.insert((owner, number));
            }
        }
        let Some(machine) = machine else {
            self.pod_gone(id);
            return;
        };
        self.change_pod(id, |pod| pods::stopping(pod, grace, now));
        self.note_pod("stopping", id, "");
        let shape = self.pods.get(id).map_or(0, |pod| pod.shape);
        self.scheduler.stop(shape, machine);
        self.wake_scheduler();
        let longest = u64::try_from(grace).unwrap_or(0).saturating_mul(1_000);
        self.wake_in(self.world.delays.pod_stop_ms.min(longest), Wake::PodStopped(id));
        self.pod_disturbs(id, machine);
        if let Parent::Owner(owner) = parent {
            self.owner_changed(owner);
        }
    }

    /// A pod is taken from its owner by an eviction or the loss of its node: the owner makes another.
    pub(crate) fn replace(&mut self, id: PodId, grace_seconds: Option<i64>, is_voluntary: bool) {
        let Some(pod) = self.pods.get(id).filter(|pod| pod.stage != Stage::Stopping) else {
            return;
        };
        let (parent, number, runs_ms) = (pod.parent, pod.number, pod.runs_ms);
        let template = pod.template;
        let moved_before = pod.moved_ms;
        let Parent::Owner(owner) = parent else {
            self.stop(id, grace_seconds);
            return;
        };
        self.meter.evicted(owner, is_voluntary);
        let again = moved_before.is_some_and(|before| self.now_ms - before < crate::world::HOUR_MS);
        if is_voluntary && again {
            self.meter.count(|counted| &mut counted.moved_again);
        }
        let predecessor = Predecessor {
            is_there: true,
            moved_ms: is_voluntary.then_some(self.now_ms).or(moved_before),
            template: Some(template),
        };
        self.stop(id, grace_seconds);
        match self.owners[owner as usize].kind {
            OwnerKind::Deployment => self.fill(owner, predecessor),
            OwnerKind::Job => {
                let state = &mut self.owners[owner as usize];
                let pause_ms = state.job_lost(number, template, runs_ms, predecessor.moved_ms);
                self.wake_in(pause_ms, Wake::JobGoesOn(owner, number));
            }
            OwnerKind::Other => self.birth(owner, number, runs_ms, predecessor),
            // Its successor has the same name, and comes when it is gone.
            OwnerKind::StatefulSet => {
                self.operator
                    .moved_ordinals
                    .insert((owner, number), predecessor.moved_ms);
            }
            OwnerKind::Bare => {}
        }
    }

    /// A Job that has lost its pod makes another, unless it is over.
    pub(crate) fn job_goes_on(&mut self, owner: u32, number: u64) {
        if let Some(loser) = self.owners[owner as usize].loser(number) {
            let predecessor = Predecessor {
                is_there: true,
                moved_ms: loser.moved_ms,
                template: Some(loser.template),
            };
            self.birth(owner, number, loser.runs_ms, predecessor);
        }
    }

    /// A pod was removed.
    pub(crate) fn pod_gone(&mut self, id: PodId) {
        let Some(pod) = self.pods.get(id) else { return };
        let (parent, number, machine, turn) = (pod.parent, pod.number, pod.machine, pods::turn(&pod.object));
        let (shape, was_stopping) = (pod.shape, pod.stage == Stage::Stopping);
        let template = pod.template;
        let waited_ms = machine.is_none().then(|| self.now_ms - pod.waits_since_ms);
        let is_queued = pod.eviction_ms.is_some();
        if let Some(uid) = pod.object.metadata.uid.as_deref().filter(|_| is_queued) {
            self.operator.turns.leave(uid);
        }
        self.pod_removed(id);
        self.note_pod("left", id, "");
        self.pods.remove(id);
        if let Some(machine) = machine {
            self.scheduler.release(shape, machine, was_stopping);
            if let Some(found) = self.cluster.machine_mut(machine) {
                found.pods.retain(|one| *one != id);
            }
            self.measure_node(machine);
        } else {
            self.waiting.remove(&(turn, id));
        }
        if let Parent::Owner(owner) = parent {
            self.meter.pod_ends(waited_ms);
            if machine.is_some() {
                let bound = self.least.remove(owner, template);
                self.meter.set_bound(bound);
            }
            if self.operator.stopping_ordinals.remove(&(owner, number)) {
                let moved = self.operator.moved_ordinals.remove(&(owner, number));
                let predecessor = Predecessor {
                    is_there: moved.is_some(),
                    moved_ms: moved.flatten(),
                    template: None,
                };
                self.fill(owner, predecessor);
            }
            self.owner_changed(owner);
        }
        self.wake_scheduler();
        if let Some(machine) = machine {
            self.drain_goes_on(machine);
        }
    }

    /// Notes a workload pod in the log.
    pub(crate) fn note_pod(&mut self, what: &str, id: PodId, more: &str) {
        if let Some(pod) = self
            .pods
            .get(id)
            .filter(|pod| matches!(pod.parent, Parent::Owner(_)))
        {
            let key = spokeshave_model::pod::key(&pod.object);
            self.log.add(self.now_ms, what, &key, more);
        }
    }

    /// What the budgets over an owner's pods allow, and whether it is down.
    pub(super) fn owner_changed(&mut self, owner: u32) {
        let state = &mut self.owners[owner as usize];
        if state.ready > 0 && state.replicas == 1 {
            state.was_up = true;
        }
        let is_down = state.replicas == 1 && state.was_up && state.ready == 0;
        if is_down != state.is_down {
            state.is_down = is_down;
            if is_down {
                self.down += 1;
            } else {
                self.down -= 1;
            }
            self.meter.set_down(self.down);
        }
        for budget in self.budgets.count(owner, &self.owners[owner as usize]) {
            self.budget_changed(budget);
        }
    }
}
