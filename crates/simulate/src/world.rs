//! What a simulated cluster consists of, and what is tried out on it.
//!
//! Owns the inputs of a run: the cloud's catalog, delays and failures ([`World`]), and the configuration under test ([`Policy`]). Nothing here changes
//! during a run, and nothing here is random: what varies between seeds is drawn by the engine from these parameters.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use spokeshave_api::validation::LabelRules;
use spokeshave_api::{DisruptionPolicy, NodeOverlay, NodePool};
use spokeshave_model::InstanceType;
use spokeshave_plan::overlays::{PoolTypes, evaluate};
use spokeshave_scenario::{Scenario, Spread};

use crate::standing::Standing;

/// The cluster and the cloud around it, equal for all policies.
#[derive(Debug, Clone)]
pub struct World {
    /// The instant at which the simulated clock starts; schedules of budgets go by it.
    pub start: Timestamp,
    /// How long the cluster lives, warm-up included, in milliseconds.
    pub duration_ms: u64,
    /// The warm-up, which is simulated but not counted, in milliseconds.
    pub warmup_ms: u64,
    /// The instance types that the cloud offers to every NodePool, with their offerings and prices.
    pub instance_types: Arc<[InstanceType]>,
    /// DaemonSets that run on every node that they tolerate and select.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// How long the cloud and the kubelets take.
    pub delays: Delays,
    /// Interruptions of spot instances; `None`: there are none.
    pub spot: Option<SpotInterruptions>,
    /// Times in which the cloud has no capacity for some offerings.
    pub shortages: Vec<Shortage>,
    /// How the scheduler ranks the nodes on which a pod fits.
    pub scoring: Scoring,
    /// Milliseconds that a point of the curves of a run is the mean of; zero is read as an hour.
    pub curve_step_ms: u64,
    /// The nodes that are there at the start; none where a cluster begins empty.
    pub standing: Standing,
}

impl World {
    /// A cluster that begins empty, with the delays of an ordinary cloud and none of its failures.
    pub fn new(start: Timestamp, duration_ms: u64, instance_types: Arc<[InstanceType]>) -> Self {
        World {
            start,
            duration_ms,
            warmup_ms: 0,
            instance_types,
            daemon_sets: Vec::new(),
            delays: Delays::default(),
            spot: None,
            shortages: Vec::new(),
            scoring: Scoring::default(),
            curve_step_ms: HOUR_MS,
            standing: Standing::default(),
        }
    }

    /// The cluster of a scenario: its times, its cloud and its scheduler. DaemonSets and standing nodes are for its reader to add.
    pub fn of_scenario(scenario: &Scenario, instance_types: Arc<[InstanceType]>) -> Self {
        let mut world = World::new(scenario.start, scenario.duration_ms, instance_types);
        world.warmup_ms = scenario.warmup_ms;
        world.curve_step_ms = curve_step_ms(scenario.duration_ms);
        if let Some(boot) = scenario.cloud.boot {
            world.delays.boot = boot;
        }
        world.spot = scenario.cloud.spot.map(|spot| SpotInterruptions {
            per_million_node_hours: spot.per_million_node_hours,
            notice_ms: spot.notice_ms,
        });
        let shortages = scenario.cloud.shortages.iter().map(|shortage| Shortage {
            at_ms: shortage.at_ms,
            for_ms: shortage.for_ms,
            cheapest: shortage.cheapest as usize,
        });
        world.shortages = shortages.collect();
        if scenario.cluster.most_allocated {
            world.scoring = Scoring::MostAllocated;
        }
        world
    }
}

/// Milliseconds of an hour.
pub(crate) const HOUR_MS: u64 = 3_600_000;

/// Steps of curves, in minutes: each divides an hour, so that a point mostly begins where a warm-up ends.
const CURVE_STEPS: [u64; 8] = [1, 2, 3, 5, 6, 10, 15, 30];

/// As many points as a chart can show.
const CURVE_POINTS: u64 = 240;

/// The step of the curves of a life of this length: an hour, or less where that would leave few points.
fn curve_step_ms(duration_ms: u64) -> u64 {
    let steps = CURVE_STEPS.iter().map(|minutes| minutes * 60_000);
    let mut enough = steps.filter(|step| duration_ms <= CURVE_POINTS * step);
    enough.next().unwrap_or(HOUR_MS)
}

/// How long things take that neither the operator nor the workloads decide. Each is drawn for every instance or pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// From the launch call to its answer.
    pub launch: Spread,
    /// From the answer of the launch call until the kubelet joins the cluster.
    pub boot: Spread,
    /// From joining until the node is ready.
    pub node_ready: Spread,
    /// From the termination call until the instance is gone; it is paid for until then.
    pub instance_end: Spread,
    /// How long a pod takes to terminate, in milliseconds; never longer than its grace period.
    pub pod_stop_ms: u64,
}

impl Default for Delays {
    fn default() -> Self {
        Delays {
            launch: Spread {
                median_ms: 1_500,
                p99_ms: 4_000,
            },
            boot: Spread {
                median_ms: 35_000,
                p99_ms: 90_000,
            },
            node_ready: Spread {
                median_ms: 5_000,
                p99_ms: 15_000,
            },
            instance_end: Spread {
                median_ms: 5_000,
                p99_ms: 20_000,
            },
            pod_stop_ms: 1_000,
        }
    }
}

impl Delays {
    /// Everything takes exactly so long, for tests that compute by hand: boot in milliseconds, all other delays none.
    pub fn exactly(boot_ms: u64) -> Self {
        let always = |ms| Spread {
            median_ms: ms,
            p99_ms: ms,
        };
        Delays {
            launch: always(0),
            boot: always(boot_ms),
            node_ready: always(0),
            instance_end: always(0),
            pod_stop_ms: 0,
        }
    }
}

/// How often spot instances are reclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpotInterruptions {
    /// Interruptions per million node hours.
    pub per_million_node_hours: u64,
    /// Milliseconds between the notice and the end of the instance.
    pub notice_ms: u64,
}

/// A time without capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Milliseconds since the scenario's start.
    pub at_ms: u64,
    /// For how long, in milliseconds.
    pub for_ms: u64,
    /// How many of the cheapest instance types, by the price of their cheapest offering, cannot be launched.
    pub cheapest: usize,
}

/// How the scheduler ranks nodes, as `NodeResourcesFit` of kube-scheduler names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scoring {
    /// The emptiest node first; the default of kube-scheduler.
    #[default]
    LeastAllocated,
    /// The fullest node first.
    MostAllocated,
}

/// Whose decisions are simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Model {
    /// Spokeshave's own decision code.
    #[default]
    Ours,
    /// Nodes are launched as Spokeshave launches them, and never removed voluntarily.
    None,
    /// A model of the documented behaviour of Karpenter 1.14; not the product.
    Karpenter,
    /// The same where NodePools that consolidate do so by the policy `Balanced`.
    KarpenterBalanced,
    /// A model of the documented behaviour of cluster-autoscaler; not the product.
    ClusterAutoscaler,
}

/// A configuration under test.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Its name in results.
    pub name: String,
    /// Who decides.
    pub model: Model,
    /// NodePools, as a cluster has them after the policy's patches.
    pub node_pools: Vec<Arc<NodePool>>,
    /// Instance types of single NodePools, by name, where they differ from those of the [`World`]: what its NodeClass and NodeOverlays make of them.
    pub instance_types_of_pools: BTreeMap<String, Arc<[InstanceType]>>,
    /// DisruptionPolicies.
    pub disruption_policies: Vec<Arc<DisruptionPolicy>>,
    /// The operator's settings.
    pub settings: spokeshave_plan::Policy,
    /// `--batch-idle-duration`, in milliseconds.
    pub batch_idle_ms: u64,
    /// `--batch-max-duration`, in milliseconds.
    pub batch_max_ms: u64,
}

impl Policy {
    /// Spokeshave with its default settings on these NodePools.
    pub fn new(name: &str, node_pools: Vec<Arc<NodePool>>) -> Self {
        let mut settings = spokeshave_plan::Policy::default();
        // `--consolidation-rounds` is on unless it is turned off.
        settings.disrupt.rounds = true;
        Policy {
            name: name.to_owned(),
            model: Model::Ours,
            node_pools,
            instance_types_of_pools: BTreeMap::new(),
            disruption_policies: Vec::new(),
            settings,
            batch_idle_ms: milliseconds(spokeshave_api::constants::BATCH_IDLE),
            batch_max_ms: milliseconds(spokeshave_api::constants::BATCH_MAXIMUM),
        }
    }

    /// The same policy where these NodeOverlays correct what its NodePools can launch, as the operator does with the feature gate NodeOverlay on: what is
    /// bought costs what they say. Those that are invalid, or in conflict with another, change nothing.
    #[must_use]
    pub fn under(&self, world: &World, overlays: &[Arc<NodeOverlay>], rules: &LabelRules) -> Self {
        let pools = self.node_pools.iter().map(|pool| PoolTypes {
            pool: Arc::clone(pool),
            types: Arc::clone(self.types_of(world, pool.name())),
        });
        let pools: Vec<PoolTypes> = pools.collect();
        let in_force = evaluate(overlays, &pools, rules).in_force;
        let corrected = pools.iter().map(|PoolTypes { pool, types }| {
            let types = in_force.decorate(pool, types);
            (pool.name().to_owned(), types)
        });
        Policy {
            instance_types_of_pools: corrected.collect(),
            ..self.clone()
        }
    }

    /// The DisruptionPolicies that whoever decides knows of: other autoscalers know of none.
    pub(crate) fn known_disruption_policies(&self) -> &[Arc<DisruptionPolicy>] {
        if self.model == Model::Ours {
            &self.disruption_policies
        } else {
            &[]
        }
    }

    /// The instance types that a NodePool can launch.
    pub fn types_of<'a>(&'a self, world: &'a World, pool: &str) -> &'a Arc<[InstanceType]> {
        self.instance_types_of_pools
            .get(pool)
            .unwrap_or(&world.instance_types)
    }
}

/// Whole milliseconds of a duration.
pub(crate) fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lives_have_curves_of_finer_steps() {
        for (hours, minutes) in [
            (1, 1),
            (4, 1),
            (12, 3),
            (24, 6),
            (72, 30),
            (120, 30),
            (121, 60),
            (720, 60),
        ] {
            assert_eq!(curve_step_ms(hours * HOUR_MS), minutes * 60_000, "{hours} h");
        }
    }
}
