//! What is said of one candidate is said of those that are alike, without asking again. Debug builds ask all the same and compare; here are clusters in which
//! many are alike, or nearly, and change at random.

use crate::support::{later, on_demand_pool};
use serde_json::{Value, json};
use spokeshave_example::{Dice, Shape, bound, cluster, instance_type, labelled, node, pending_pod};
use spokeshave_model::{Change, ClusterState, InstanceType, LiveSnapshot, Pod, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{DisruptStatistics, Frontier, Kept, Outcome, disrupt, disrupt_keeping};
use std::sync::Arc;

const ZONES: [&str; 3] = ["a", "b", "c"];
const SEEDS: u64 = 24;
const STEPS: usize = 8;

fn types() -> Vec<InstanceType> {
    [1, 2, 3, 4, 8, 16]
        .map(|size| instance_type(&format!("s{size:02}"), size, 4 * size, &ZONES))
        .into()
}

/// A Deployment of which every node has some pods.
struct App {
    name: String,
    cpu: String,
    spec: Value,
}

impl App {
    fn new(dice: &mut Dice, number: usize) -> Self {
        let name = format!("app-{number}");
        let term = |app: &str, key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
        let required = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
        let spec = match dice.below(12) {
            0..=3 => json!({"affinity": {"podAntiAffinity": required(term(&name, host))}}),
            4 => json!({"affinity": {"podAntiAffinity": required(term("app-0", host))}}),
            5 => json!({"affinity": {"podAntiAffinity": required(term("app-0", zone))}}),
            6 => json!({"affinity": {"podAffinity": required(term("app-0", zone))}}),
            7 => json!({"nodeSelector": {zone: *dice.pick(&ZONES)}}),
            _ => json!({}),
        };
        let cpu = (*dice.pick(&["200m", "400m", "400m", "900m", "1300m"])).to_owned();
        App { name, cpu, spec }
    }

    fn pod(&self, number: usize) -> Pod {
        let pod = pending_pod(
            &format!("{}-{number:03}", self.name),
            &self.cpu,
            "256Mi",
            &self.spec,
        );
        labelled(pod, &[("app", &self.name)])
    }
}

struct World {
    apps: Vec<App>,
    nodes: Vec<String>,
    live: LiveSnapshot,
    pods: usize,
    dice: Dice,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x51_7c) + 5);
        let types = types();
        let mut state = ClusterState::default().with_pool(on_demand_pool("default"), types.clone());
        let apps: Vec<App> = (0..1 + dice.below(3))
            .map(|number| App::new(&mut dice, number))
            .collect();
        let each: Vec<usize> = apps.iter().map(|_| 1 + dice.below(2)).collect();
        let sizes = [1 + dice.below(2), 1 + dice.below(3)];
        let (mut nodes, mut pods) = (Vec::new(), 0);
        for number in 0..6 + dice.below(6) {
            let name = format!("n{number:02}");
            let size = if dice.below(4) == 0 { sizes[0] } else { sizes[1] };
            let zone = *dice.pick(&ZONES[..1 + (seed as usize % 3)]);
            state = state.with_node(node("default", &name, &types[size], zone, "on-demand"));
            for (app, count) in apps.iter().zip(&each) {
                // Some are not quite like the others.
                let count = if dice.below(8) == 0 { count - 1 } else { *count };
                for _ in 0..count {
                    pods += 1;
                    state = state.with_pod(bound(app.pod(pods), &name));
                }
            }
            nodes.push(name);
        }
        let live = LiveSnapshot::new(state);
        World {
            apps,
            nodes,
            live,
            pods,
            dice,
        }
    }

    fn change(&mut self) {
        let count = self.live.snapshot().pods.len();
        let change = if self.dice.below(2) == 0 && count > 0 {
            let pod = &self.live.snapshot().pods[self.dice.below(count)].object.metadata;
            Change::PodGone {
                namespace: pod.namespace.clone().unwrap_or_default(),
                name: pod.name.clone().unwrap_or_default(),
                is_virtual: false,
            }
        } else {
            self.pods += 1;
            let pod = self.apps[self.dice.below(self.apps.len())].pod(self.pods);
            let node = self.dice.pick(&self.nodes).clone();
            Change::Pod(Arc::new(if self.dice.below(5) == 0 {
                pod
            } else {
                bound(pod, &node)
            }))
        };
        self.live.apply([change]);
    }
}

/// What must be equal: all but the work done.
fn decided(outcome: &Outcome) -> Outcome {
    Outcome {
        statistics: DisruptStatistics::default(),
        ..outcome.clone()
    }
}

#[test]
fn clusters_of_nodes_that_are_alike_are_decided_about_as_if_each_were_asked_about() {
    let mut shared = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        let mut policy = Policy::default();
        policy.disrupt.rounds = seed % 2 == 0;
        let (mut kept, mut frontier) = (Kept::default(), Frontier::default());
        for step in 0..STEPS {
            let snapshot = world.live.snapshot();
            let now = later(7_200 + step as i64);
            let with = disrupt_keeping(snapshot, &policy, now, &frontier, &mut kept, &mut |_| {});
            let without = disrupt(snapshot, &policy, now, &frontier);
            assert_eq!(decided(&with), decided(&without), "seed {seed}, step {step}");
            shared += without.statistics.shared;
            frontier = with.frontier;
            world.change();
        }
    }
    // Some must be alike, or the property says nothing.
    assert!(shared > 300, "{shared} answers were shared");
}

#[test]
fn of_nodes_that_are_alike_few_are_asked_about() {
    for shape in [Shape::HostnameAntiAffinity, Shape::Full] {
        let snapshot = lower(&cluster(shape, 60, 720, 1));
        let outcome = disrupt(&snapshot, &Policy::default(), later(0), &Frontier::default());
        let statistics = outcome.statistics;
        let (asked, shared) = (statistics.what_ifs + statistics.steps, statistics.shared);
        assert!(shared > 40, "{shape:?}: {shared} shared");
        assert!(asked < 200, "{shape:?}: {asked} asked");
    }
}
