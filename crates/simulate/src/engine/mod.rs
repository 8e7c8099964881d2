//! The engine: takes the next event off the queue, advances time, and calls its handler.
//!
//! Owns the state of a run and the dispatch. What the operator does is in `operator`, what the cloud and the kubelets do in `cloud` and `kubelets`, and what
//! workloads do in `workloads`; each adds methods to [`Engine`].

mod cloud;
mod operator;
mod rollouts;
mod standing;
mod workloads;

use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_scenario::Timeline;

use crate::budgets::Budgets;
use crate::cluster::{Cluster, Machine, after};
use crate::draws::Draws;
use crate::engine::operator::Operator;
use crate::least::Least;
use crate::log::{Log, Sink};
use crate::market::Market;
use crate::meter::{Meter, Share};
use crate::objects::Objects;
use crate::owners::OwnerState;
use crate::pods::{self, Parent, PodId, Pods, Turn};
use crate::queue::{Queue, Wake};
use crate::run::{Engine as Name, Run, WorkDone};
use crate::scheduler::Scheduler;
use crate::shapes::{DaemonState, samples};
use crate::world::{Policy, World};

/// Lives one policy under one seed.
pub fn live(world: &World, timeline: &Timeline, policy: &Policy, seed: u64) -> Run {
    live_watched(world, timeline, policy, seed, &|| false, Watch::default())
}

/// The observer of a run, which does not affect it.
#[derive(Default)]
pub struct Watch<'a> {
    /// Takes the lines of the event log, in order.
    pub lines: Option<Sink<'a>>,
    /// Takes the cluster's objects once.
    pub objects: Option<ObjectsAt<'a>>,
}

/// Who takes the cluster's objects, and when.
pub struct ObjectsAt<'a> {
    /// Milliseconds since the scenario's start; everything that happens until then, then included, has happened.
    pub at_ms: u64,
    /// Takes them.
    pub take: &'a mut dyn FnMut(&Objects),
}

/// The same with an observer, until it is interrupted: `is_interrupted` is asked after everything that happens, and the run is then marked as partial.
pub fn live_watched<'a>(
    world: &'a World,
    timeline: &'a Timeline,
    policy: &'a Policy,
    seed: u64,
    is_interrupted: &dyn Fn() -> bool,
    watch: Watch<'a>,
) -> Run {
    let mut engine = Engine::new(world, timeline, policy, seed, watch.lines);
    engine.objects_at = watch.objects;
    engine.run(is_interrupted)
}

/// A run under way.
pub(crate) struct Engine<'a> {
    pub(crate) world: &'a World,
    pub(crate) timeline: &'a Timeline,
    pub(crate) policy: &'a Policy,
    pub(crate) seed: u64,
    pub(crate) draws: Draws,
    pub(crate) now_ms: u64,
    pub(crate) queue: Queue,
    pub(crate) pods: Pods,
    /// Pods without a node, in the order in which the scheduler takes them.
    pub(crate) waiting: std::collections::BTreeSet<(Turn, PodId)>,
    /// The state of the scheduler in which refusals were last written.
    pub(crate) refusals_written: Option<u64>,
    pub(crate) owners: Vec<OwnerState>,
    pub(crate) budgets: Budgets,
    pub(crate) daemons: Vec<DaemonState>,
    /// Position of the next event in the timeline.
    pub(crate) cursor: usize,
    /// How many owners that want one pod have none that is ready.
    pub(crate) down: u64,
    pub(crate) cluster: Cluster,
    pub(crate) scheduler: Scheduler,
    /// The scheduler is due to look.
    pub(crate) is_scheduling: bool,
    pub(crate) cloud: Market,
    pub(crate) operator: Operator,
    pub(crate) least: Least,
    pub(crate) meter: Meter,
    pub(crate) log: Log<'a>,
    /// What each node contributes to the meter.
    shares: std::collections::BTreeMap<u32, Share>,
    objects_at: Option<ObjectsAt<'a>>,
    is_over: bool,
}

impl<'a> Engine<'a> {
    fn new(
        world: &'a World,
        timeline: &'a Timeline,
        policy: &'a Policy,
        seed: u64,
        sink: Option<Sink<'a>>,
    ) -> Self {
        let mut owners: Vec<OwnerState> = timeline
            .owners
            .iter()
            .enumerate()
            .map(|(index, owner)| OwnerState::new(owner, index))
            .collect();
        let daemons: Vec<DaemonState> = world
            .daemon_sets
            .iter()
            .map(|daemon_set| DaemonState::new(daemon_set))
            .collect();
        let shapes = samples(&mut owners, &daemons, world.start);
        let types = policy.node_pools.iter().flat_map(|pool| {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            policy.types_of(world, name).iter()
        });
        let scheduler = Scheduler::new(
            shapes.iter(),
            types.map(|instance_type| &instance_type.capacity),
            world.scoring,
        );
        let draws = Draws::new(seed);
        let least = Least::of(world, timeline, policy);
        Engine {
            now_ms: 0,
            queue: Queue::default(),
            pods: Pods::default(),
            waiting: std::collections::BTreeSet::new(),
            refusals_written: None,
            cursor: 0,
            down: 0,
            cluster: Cluster::default(),
            is_scheduling: false,
            cloud: Market::new(world, policy),
            operator: Operator::new(world, policy),
            least,
            meter: Meter::new(world.warmup_ms, world.curve_step_ms),
            log: Log::new(sink),
            shares: std::collections::BTreeMap::new(),
            objects_at: None,
            is_over: false,
            world,
            timeline,
            policy,
            seed,
            draws,
            owners,
            budgets: Budgets::new(timeline, &world.daemon_sets),
            daemons,
            scheduler,
        }
    }

    /// The simulated time.
    pub(crate) fn now(&self) -> Timestamp {
        after(self.world.start, self.now_ms)
    }

    /// Something is due in so many milliseconds.
    pub(crate) fn wake_in(&mut self, milliseconds: u64, wake: Wake) {
        self.queue.at(self.now_ms.saturating_add(milliseconds), wake);
    }

    /// Something is due then: before everything else of this instant where that is now.
    pub(crate) fn wake_at(&mut self, due_ms: u64, wake: Wake) {
        if due_ms <= self.now_ms {
            self.queue.at_once(self.now_ms, wake);
        } else {
            self.queue.at(due_ms, wake);
        }
    }

    fn run(&mut self, is_interrupted: &dyn Fn() -> bool) -> Run {
        self.queue.at(self.world.duration_ms, Wake::End);
        let begins_empty = self.world.standing.is_empty();
        if !begins_empty {
            self.take_over();
        }
        self.look_at_static_pools();
        self.turn_now();
        if begins_empty {
            self.wake_for_timeline();
        }
        let mut partial = false;
        while let Some((at_ms, wake)) = self.queue.pop() {
            self.happens(at_ms, wake);
            if self.is_over {
                break;
            }
            // Simulated time says nothing of how long it takes: an hour of many pods may be minutes.
            if is_interrupted() {
                partial = true;
                break;
            }
        }
        if !partial {
            self.show_objects(u64::MAX);
        }
        self.finish(partial)
    }

    /// Time passes until something is due, which then happens.
    fn happens(&mut self, at_ms: u64, wake: Wake) {
        self.show_objects(at_ms);
        self.meter.advance(at_ms);
        self.now_ms = at_ms;
        self.dispatch(wake);
    }

    /// Passes the objects to observers that requested an earlier time, since which nothing has changed.
    fn show_objects(&mut self, before_ms: u64) {
        if let Some(wanted) = self.objects_at.take_if(|wanted| wanted.at_ms < before_ms) {
            // Nothing reads the time until the next event sets it.
            self.now_ms = wanted.at_ms.min(self.world.duration_ms);
            (wanted.take)(&self.objects());
        }
    }

    /// The objects as they are.
    fn objects(&self) -> Objects {
        let machines = || self.cluster.machines().map(|(_, found)| found);
        Objects {
            now: self.now(),
            node_pools: self.operator.node_pools.values().cloned().collect(),
            node_claims: machines().filter_map(|found| found.claim.clone()).collect(),
            nodes: machines().filter_map(|found| found.node.clone()).collect(),
            pods: self.pods.iter().map(|(_, pod)| Arc::clone(&pod.object)).collect(),
            daemon_sets: self.world.daemon_sets.clone(),
            pod_disruption_budgets: self.budgets.counted_objects(),
            disruption_policies: self.policy.disruption_policies.clone(),
            disruptions: self.cluster.commands.values().cloned().collect(),
        }
    }

    fn dispatch(&mut self, wake: Wake) {
        match wake {
            Wake::Timeline => self.follow_timeline(),
            Wake::PodReady(pod) => self.pod_ready(pod),
            Wake::PodEnds(pod) => self.pod_ends(pod),
            Wake::PodStopped(pod) => self.pod_gone(pod),
            Wake::JobGoesOn(owner, number) => self.job_goes_on(owner, number),
            Wake::Schedule => self.schedule(),
            Wake::LaunchAnswered(machine) => self.launch_answered(machine),
            Wake::NodeJoins(machine) => self.node_joins(machine),
            Wake::NodeReady(machine) => self.node_ready(machine),
            Wake::SpotNotice(machine) => self.spot_notice(machine),
            Wake::SpotEnd(machine) => self.spot_end(machine),
            Wake::InstanceEnds(machine) => self.instance_ends(machine),
            Wake::Claim(machine) => self.claim_is_due(machine),
            Wake::Claims(timer) => self.claims_are_due(timer),
            Wake::PodEvent(machine) => self.write_pod_event(machine),
            Wake::Node(machine) => self.node_is_due(machine),
            Wake::Evict(pod) => self.eviction_is_due(pod),
            Wake::Batch(batch) => self.batch_closes(batch),
            Wake::Urge => self.urge(),
            Wake::Retrigger => self.retrigger(),
            Wake::Count(pool) => self.count_nodes(pool),
            Wake::StaticPool(pool) => self.look_at_static_pool(pool),
            Wake::Turn(number) => self.turn(number),
            Wake::Command(command) => self.look_at_command(command),
            Wake::Offerings => self.offerings_change(),
            Wake::End => self.is_over = true,
        }
    }

    fn finish(&mut self, partial: bool) -> Run {
        let now_ms = self.now_ms;
        let queued = self.waiting.iter();
        let queued = queued.filter_map(|(.., pod)| self.pods.get(*pod));
        let gated = self.pods.iter().map(|(_, pod)| pod);
        let gated = gated.filter(|pod| pods::is_gated(&pod.object));
        let waiting: Vec<u64> = queued
            .chain(gated)
            .map(|pod| now_ms - pod.waits_since_ms)
            .collect();
        let meter = std::mem::replace(&mut self.meter, Meter::new(0, 0));
        let work = WorkDone {
            what_ifs: Some(self.operator.what_ifs),
            ..meter.work
        };
        let (measured, curve) = meter.finish(waiting.into_iter());
        let log = std::mem::take(&mut self.log);
        Run {
            policy: self.policy.name.clone(),
            seed: self.seed,
            engine: Name::Fast,
            digest: log.digest(&measured, &curve),
            work,
            measured,
            curve,
            partial,
        }
    }

    /// A node contributes something else to the meter, perhaps.
    pub(crate) fn measure_node(&mut self, machine: u32) {
        let found = self.cluster.machine(machine).filter(|found| found.has_instance());
        let after = found.and_then(|found| {
            let price = found.instance.as_ref()?.price;
            let has_workload = found.pods.iter().any(|pod| {
                let pod = self.pods.get(*pod);
                pod.is_some_and(|pod| matches!(pod.parent, Parent::Owner(_)))
            });
            Some(Share {
                price,
                wasted: 1_000 - self.scheduler.share_thousandths(machine),
                is_idle: !has_workload,
            })
        });
        let before = self.shares.get(&machine).copied();
        if before == after {
            return;
        }
        self.meter.share(before, after);
        match after {
            Some(share) => self.shares.insert(machine, share),
            None => self.shares.remove(&machine),
        };
    }

    /// The shape of pods of a DaemonSet.
    pub(crate) fn daemon_shape(&self, daemon: u32) -> usize {
        self.owners.len() + daemon as usize
    }

    /// The pods on a machine.
    pub(crate) fn pods_on(&self, machine: &Machine) -> Vec<Arc<spokeshave_model::Pod>> {
        let pods = machine.pods.iter().filter_map(|id| self.pods.get(*id));
        pods.map(|pod| Arc::clone(&pod.object)).collect()
    }

    /// The object of a pod, after a change.
    pub(crate) fn change_pod(&mut self, id: PodId, change: impl FnOnce(&mut spokeshave_model::Pod)) {
        let Some(pod) = self.pods.get_mut(id) else { return };
        change(Arc::make_mut(&mut pod.object));
        self.pod_changed(id);
    }
}
