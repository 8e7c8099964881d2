//! Answers outlive nodes that come, go or get into commands: a pass that keeps them decides what one without does, and has something to keep.

use crate::support::{self, later, on_demand_pool, only, pinned};
use serde_json::json;
use spokeshave_example::{Dice, bound, instance_type, labelled, node, node_pool, pending_pod};
use spokeshave_model::{ClusterState, InstanceType, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{
    DisruptStatistics, Frontier, Kept, Method, Outcome, disrupt, disrupt_keeping,
};
use std::sync::Arc;

/// Nodes and pods, most of which nothing binds.
struct World {
    state: ClusterState,
    types: Vec<InstanceType>,
    names: usize,
    dice: Dice,
}

impl World {
    fn new(seed: u64) -> Self {
        let zones = ["a", "b"];
        let sizes = [2, 3, 4, 6, 8, 12];
        let types = sizes.map(|size| instance_type(&format!("s{size:02}"), size, 4 * size, &zones));
        let mut pool = node_pool("default");
        pool.spec.disruption.budgets = Some(Vec::new());
        pool.spec.disruption.consolidate_after = serde_json::from_value(json!("0s")).expect("a duration");
        let mut world = World {
            state: ClusterState::default().with_pool(pool, types.to_vec()),
            types: types.to_vec(),
            names: 0,
            dice: Dice(seed.wrapping_mul(0x9e37) + 5),
        };
        (0..12).for_each(|_| world.join(true));
        (0..50).for_each(|_| world.pod_comes());
        world
    }

    fn join(&mut self, is_initialized: bool) {
        self.names += 1;
        // Not the last by name.
        let name = format!("n{:02}-{}", self.dice.below(100), self.names);
        let (size, zone) = (self.dice.below(self.types.len()), *self.dice.pick(&["a", "b"]));
        let (mut node, claim) = node("default", &name, &self.types[size], zone, "on-demand");
        if !is_initialized && let Some(labels) = &mut node.metadata.labels {
            labels.remove("karpenter.sh/initialized");
        }
        self.state.nodes.push(Arc::new(node));
        self.state.node_claims.push(Arc::new(claim));
    }

    /// The last of those that are not initialised is.
    fn initialize(&mut self) {
        let label = "karpenter.sh/initialized";
        let mut nodes = self.state.nodes.iter_mut().rev();
        let labels = |node: &mut Arc<_>| {
            let node: &mut k8s_openapi::api::core::v1::Node = Arc::make_mut(node);
            let labels = node.metadata.labels.get_or_insert_default();
            (!labels.contains_key(label)).then(|| labels.insert(label.to_owned(), "true".to_owned()))
        };
        nodes.find_map(labels);
    }

    fn leave(&mut self) {
        if self.state.nodes.len() > 4 {
            let index = self.dice.below(self.state.nodes.len());
            let node = self.state.nodes.remove(index);
            self.state.node_claims.remove(index);
            self.state.pods.retain(|pod| pod.node_name != node.metadata.name);
        }
    }

    fn node_name(&mut self) -> String {
        let index = self.dice.below(self.state.nodes.len());
        self.state.nodes[index].metadata.name.clone().unwrap_or_default()
    }

    fn pod_comes(&mut self) {
        self.names += 1;
        let (name, node) = (
            format!("p{:02}-{}", self.dice.below(100), self.names),
            self.node_name(),
        );
        let cpu = *self.dice.pick(&["100m", "250m", "250m", "500m", "1", "2"]);
        let spec = match self.dice.below(20) {
            0 => {
                json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]})
            }
            1 => pinned(&node),
            _ => json!({}),
        };
        let pod = labelled(pending_pod(&name, cpu, "64Mi", &spec), &[("app", "web")]);
        let pod = if self.dice.below(12) == 0 {
            pod
        } else {
            bound(pod, &node)
        };
        self.state.pods.push(Arc::new(pod));
    }

    /// Another machine under the name of one that is gone, with or without its provider ID, its size and its pods.
    fn replace(&mut self) {
        let index = self.dice.below(self.state.nodes.len());
        let name = self.state.nodes[index].metadata.name.clone().unwrap_or_default();
        self.names += 1;
        let (size, zone) = (self.dice.below(self.types.len()), *self.dice.pick(&["a", "b"]));
        let (mut node, mut claim) = node("default", &name, &self.types[size], zone, "on-demand");
        node.metadata.uid = Some(format!("uid-{name}-{}", self.names));
        claim.metadata.uid = Some(format!("uid-claim-{name}-{}", self.names));
        if self.dice.below(2) == 0 {
            let id = format!("kwok://{name}-{}", self.names);
            node.spec.get_or_insert_default().provider_id = Some(id.clone());
            claim.status.get_or_insert_default().provider_id = Some(id);
        }
        self.state.nodes[index] = Arc::new(node);
        self.state.node_claims[index] = Arc::new(claim);
        if self.dice.below(2) == 0 {
            let is_there = |pod: &Arc<spokeshave_model::Pod>| pod.node_name.as_deref() == Some(name.as_str());
            self.state.pods.retain(|pod| !is_there(pod));
        }
    }

    fn change(&mut self) {
        match self.dice.below(10) {
            0 => self.join(true),
            1 => self.join(false),
            2 => self.initialize(),
            3 => self.leave(),
            4 | 5 => {
                let id = format!("kwok://{}", self.node_name());
                if !self.state.in_command.remove(&id) {
                    self.state.in_command.insert(id.clone());
                }
                if !self.state.marked_for_deletion.remove(&id) {
                    self.state.marked_for_deletion.insert(id);
                }
            }
            6 | 7 => self.pod_comes(),
            _ if self.state.pods.is_empty() => self.pod_comes(),
            _ => {
                let index = self.dice.below(self.state.pods.len());
                self.state.pods.remove(index);
            }
        }
    }
}

fn decided(outcome: &Outcome) -> Outcome {
    Outcome {
        statistics: DisruptStatistics::default(),
        ..outcome.clone()
    }
}

#[test]
fn what_is_kept_of_other_nodes_is_what_is_said_anew() {
    let (mut kept_answers, mut commands) = (0, 0);
    for seed in 0..60 {
        let mut world = World::new(seed);
        let mut policy = Policy::default();
        policy.disrupt.rounds = seed % 2 == 0;
        policy.disrupt.verdicts = seed % 5 == 0;
        let (mut kept, mut frontier) = (Kept::default(), Frontier::default());
        for step in 0..25 {
            let (snapshot, now) = (lower(&world.state), later(7_200));
            let with = disrupt_keeping(&snapshot, &policy, now, &frontier, &mut kept, &mut |_| {});
            let without = disrupt(&snapshot, &policy, now, &frontier);
            assert_eq!(decided(&with), decided(&without), "seed {seed}, step {step}");
            kept_answers += with.statistics.kept;
            commands += with.commands.len();
            frontier = with.frontier;
            for _ in 0..1 + world.dice.below(2) {
                world.change();
            }
        }
    }
    println!("{kept_answers} kept answers, {commands} commands");
    assert!(kept_answers > 500, "{kept_answers} kept answers");
    assert!(commands > 100, "{commands} commands");
}

/// A name that comes again is another node, also where others come and go at the same moment.
#[test]
fn what_is_kept_of_a_node_is_not_said_of_another_of_its_name() {
    let mut kept_answers = 0;
    for seed in 0..40 {
        let mut world = World::new(1_000 + seed);
        let mut policy = Policy::default();
        policy.disrupt.rounds = seed % 2 == 0;
        let (mut kept, mut frontier) = (Kept::default(), Frontier::default());
        for step in 0..20 {
            let (snapshot, now) = (lower(&world.state), later(7_200));
            let with = disrupt_keeping(&snapshot, &policy, now, &frontier, &mut kept, &mut |_| {});
            let without = disrupt(&snapshot, &policy, now, &frontier);
            assert_eq!(decided(&with), decided(&without), "seed {seed}, step {step}");
            kept_answers += with.statistics.kept;
            frontier = with.frontier;
            world.replace();
            for _ in 0..world.dice.below(3) {
                world.change();
            }
        }
    }
    assert!(kept_answers > 0, "nothing is kept");
}

/// Nodes are full but for one, so that nothing is said of the others that another node would change.
#[test]
fn answers_outlive_a_node_that_comes_and_one_that_gets_into_a_command() {
    let full = |world: support::World, name: &str| {
        world
            .node(name, "small")
            .pod_with(&format!("pod-{name}"), name, "1900m", &json!({}))
    };
    let mut world = support::World::new(on_demand_pool("default"));
    for name in ["a", "c", "e", "g"] {
        world = full(world, name);
    }
    world.policy = only(Method::SingleNodeConsolidation);
    let mut kept = Kept::default();
    let mut pass = |world: &support::World| {
        let (snapshot, frontier) = (world.snapshot(), Frontier::default());
        disrupt_keeping(
            &snapshot,
            &world.policy,
            world.now,
            &frontier,
            &mut kept,
            &mut |_| {},
        )
        .statistics
        .kept
    };
    assert_eq!(pass(&world), 0);
    world = full(world, "b");
    assert_eq!(
        pass(&world),
        4,
        "the node that has come stands among the others, and has no room for their pods"
    );
    world.state.in_command.insert("kwok://a".to_owned());
    world.state.marked_for_deletion.insert("kwok://a".to_owned());
    assert_eq!(
        pass(&world),
        4,
        "nobody's pods were to go to a, and its own find no room elsewhere"
    );
    world = world.node("d", "medium");
    assert_eq!(pass(&world), 0, "there is room on d");
}
