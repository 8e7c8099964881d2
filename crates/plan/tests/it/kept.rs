//! A pass that keeps answers of the pass before decides what one decides that keeps none: whole outcomes, verdicts and events included, over random
//! changes of random clusters.

use crate::support::{self, later, on_demand_pool, only, pinned};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::{Budget, Condition, ConsolidationPolicy, NodeClaim, NodePool};
use spokeshave_example::{Dice, bound, instance_type, labelled, node, node_pool, pending_pod};
use spokeshave_model::{ClusterState, InstanceType, Nomination, Pod, Price, Resources, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{
    Destination, DisruptStatistics, Frontier, Kept, Method, Outcome, disrupt, disrupt_keeping,
};
use std::sync::Arc;

const APPS: [&str; 4] = ["web", "db", "cache", "batch"];
const ZONES: [&str; 3] = ["a", "b", "c"];

/// Settings, what there is, and how many objects have come so far.
struct World {
    state: ClusterState,
    policy: Policy,
    types: Vec<InstanceType>,
    second: i64,
    names: usize,
    dice: Dice,
}

fn types() -> Vec<InstanceType> {
    let sizes = (1..=16).map(|size| (format!("s{size:02}"), size, 4 * size));
    sizes
        .map(|(name, cores, memory)| instance_type(&name, cores, memory, &ZONES))
        .collect()
}

fn pool(dice: &mut Dice, name: &str) -> NodePool {
    let mut pool = node_pool(name);
    let disruption = &mut pool.spec.disruption;
    disruption.budgets = Some(match dice.below(4) {
        0 => vec![Budget::always("1")],
        1 => vec![Budget::always("0")],
        _ => Vec::new(),
    });
    if dice.below(4) == 0 {
        disruption.consolidation_policy = ConsolidationPolicy::Balanced;
    }
    let after = ["0s", "1m", "10m"][dice.below(3)];
    disruption.consolidate_after = serde_json::from_value(json!(after)).expect("a duration");
    let requirements = &mut pool.spec.template.spec.requirements;
    if dice.below(3) == 0 {
        let on_demand =
            json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]});
        requirements.push(serde_json::from_value(on_demand).expect("a requirement"));
    }
    if dice.below(4) == 0 {
        let many = json!({"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 3});
        requirements.push(serde_json::from_value(many).expect("a requirement"));
    }
    pool.spec.weight = [None, Some(10)][dice.below(2)];
    pool
}

fn consolidatable() -> Condition {
    Condition {
        type_: "Consolidatable".to_owned(),
        status: "True".to_owned(),
        observed_generation: None,
        last_transition_time: later(0),
        reason: "Consolidatable".to_owned(),
        message: String::new(),
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37) + 77);
        let types = types();
        let mut state = ClusterState::default();
        for name in ["alpha", "beta"] {
            state = state.with_pool(pool(&mut dice, name), types.clone());
        }
        let mut policy = Policy::default();
        policy.disrupt.verdicts = dice.below(4) == 0;
        policy.disrupt.rounds = dice.below(2) == 0;
        policy.disrupt.spot_to_spot = dice.below(2) == 0;
        policy.disrupt.replacements = 1 + dice.below(2);
        policy.disrupt.threads = 1 + dice.below(2);
        let mut world = World {
            state,
            policy,
            types,
            second: 7200,
            names: 0,
            dice,
        };
        (0..4).for_each(|number| world.volume(number, None));
        for _ in 0..6 + world.dice.below(14) {
            world.join();
        }
        for _ in 0..world.state.nodes.len() * 3 {
            world.pod_comes();
        }
        world
    }

    /// A claim with its volume, which can be attached everywhere or in one zone.
    fn volume(&mut self, number: usize, zone: Option<&str>) {
        let name = format!("claim-{number}");
        let claim = json!({"metadata": {"namespace": "default", "name": name}, "spec": {"volumeName": name}});
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("a claim");
        let mut volume =
            json!({"metadata": {"name": name}, "spec": {"csi": {"driver": "disk", "volumeHandle": name}}});
        if let Some(zone) = zone {
            let zone = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
            volume["spec"]["nodeAffinity"] =
                json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}});
        }
        let volume: PersistentVolume = serde_json::from_value(volume).expect("a volume");
        let volumes = &mut self.state.volumes;
        volumes.claims.insert(format!("default/{name}"), Arc::new(claim));
        volumes.volumes.insert(name, Arc::new(volume));
    }

    fn name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    fn join(&mut self) {
        // Not the last by name.
        let name = format!("n{:02}-{}", self.dice.below(100), self.name());
        let size = self.dice.below(10);
        let kind = *self.dice.pick(&["spot", "on-demand", "on-demand"]);
        let (pool, zone) = (*self.dice.pick(&["alpha", "beta"]), *self.dice.pick(&ZONES));
        let built = node(pool, &name, &self.types[size], zone, kind);
        self.state.nodes.push(Arc::new(built.0));
        self.state.node_claims.push(Arc::new(built.1));
    }

    fn leave(&mut self) {
        if self.state.nodes.len() < 4 {
            return;
        }
        let index = self.dice.below(self.state.nodes.len());
        let node = self.state.nodes.remove(index);
        self.state.node_claims.remove(index);
        self.state.pods.retain(|pod| pod.node_name != node.metadata.name);
    }

    fn node_name(&mut self) -> String {
        let index = self.dice.below(self.state.nodes.len());
        self.state.nodes[index].metadata.name.clone().unwrap_or_default()
    }

    fn provider_id(&mut self) -> String {
        format!("kwok://{}", self.node_name())
    }

    fn spec(&mut self, app: &str) -> Value {
        let labels = json!({"matchLabels": {"app": app}});
        let other = json!({"matchLabels": {"app": *self.dice.pick(&APPS)}});
        let spread = |key: &str, when: &str| json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": labels}]);
        let required = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        let (zone, host) = ("topology.kubernetes.io/zone", "kubernetes.io/hostname");
        match self.dice.below(20) {
            0 => json!({"topologySpreadConstraints": spread(zone, "DoNotSchedule")}),
            1 => json!({"topologySpreadConstraints": spread(host, "ScheduleAnyway")}),
            2 => {
                json!({"affinity": {"podAntiAffinity": required(json!({"topologyKey": *self.dice.pick(&[host, zone]), "labelSelector": other}))}})
            }
            3 => {
                json!({"affinity": {"podAffinity": required(json!({"topologyKey": zone, "labelSelector": other}))}})
            }
            4 => json!({"nodeSelector": {zone: *self.dice.pick(&ZONES)}}),
            5 => {
                json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": format!("claim-{}", self.dice.below(4))}}]})
            }
            _ => json!({}),
        }
    }

    fn pod(&mut self) -> Pod {
        let app = *self.dice.pick(&APPS);
        let spec = self.spec(app);
        let cpu = *self.dice.pick(&["100m", "300m", "500m", "900m", "1500m", "3"]);
        let memory = *self.dice.pick(&["128Mi", "512Mi", "2Gi"]);
        // Neither the first nor the last by name.
        let name = format!("{app}-{:02}-{}", self.dice.below(100), self.name());
        let mut pod = labelled(pending_pod(&name, cpu, memory, &spec), &[("app", app)]);
        if self.dice.below(25) == 0
            && let Some(container) = pod.spec_mut().containers.first_mut()
        {
            container.ports = serde_json::from_value(json!([{"containerPort": 80, "hostPort": 8080}])).ok();
        }
        pod
    }

    fn pod_comes(&mut self) {
        let (pod, node) = (self.pod(), self.node_name());
        self.state.pods.push(Arc::new(bound(pod, &node)));
    }

    fn some_pod(&mut self) -> Option<&mut Pod> {
        let count = self.state.pods.len();
        let index = self.dice.below(count);
        self.state.pods.get_mut(index).map(Arc::make_mut)
    }

    fn some_claim(&mut self) -> &mut NodeClaim {
        let index = self.dice.below(self.state.node_claims.len());
        Arc::make_mut(&mut self.state.node_claims[index])
    }

    fn some_pool(&mut self) -> &mut NodePool {
        let index = self.dice.below(self.state.node_pools.len());
        Arc::make_mut(&mut self.state.node_pools[index])
    }

    /// One change of those that happen all the time.
    fn small_change(&mut self) {
        match self.dice.below(12) {
            0..=2 => self.pod_comes(),
            3..=5 if !self.state.pods.is_empty() => {
                let index = self.dice.below(self.state.pods.len());
                self.state.pods.remove(index);
            }
            6 => {
                let node = self.node_name();
                if let Some(pod) = self.some_pod().filter(|pod| pod.node_name.is_some()) {
                    pod.node_name = Some(node);
                }
            }
            7 => {
                let (phase, at) = (*self.dice.pick(&["Running", "Leaving", "Succeeded"]), self.second);
                if let Some(pod) = self.some_pod() {
                    if phase == "Leaving" {
                        pod.metadata.deletion_timestamp = Some(Time(later(at)));
                        pod.metadata.deletion_grace_period_seconds = Some(at % 7 * 60);
                    } else if let Some(status) = &mut pod.status {
                        status.phase = Some(phase.to_owned());
                    }
                }
            }
            8 => {
                let at = self.second;
                self.some_claim()
                    .status
                    .get_or_insert_default()
                    .last_pod_event_time = Some(Time(later(at)));
            }
            9 => self.second += [1, 30, 61, 700][self.dice.below(4)],
            10 => {
                // What a kubelet says again and again.
                let index = self.dice.below(self.state.nodes.len());
                let node = Arc::make_mut(&mut self.state.nodes[index]);
                node.metadata.resource_version = Some(self.names.to_string());
            }
            _ => {
                let mut pod = self.pod();
                if self.dice.below(3) == 0 {
                    // A scheduler is binding it.
                    pod.status.get_or_insert_default().nominated_node_name = Some(self.node_name());
                }
                self.state.pods.push(Arc::new(pod));
            }
        }
    }

    /// One change of those that happen now and then.
    fn change(&mut self) {
        match self.dice.below(18) {
            0 => self.join(),
            1 => self.leave(),
            2 => {
                let limit = Resources::parse([("cpu", *self.dice.pick(&["20", "60", "200"]))]);
                self.some_pool().spec.limits = limit.ok().map(|limits| limits.to_quantities());
            }
            3 => {
                let index = self.dice.below(self.types.len());
                let price = Price(10_000_000 * (1 + self.dice.below(40) as i64));
                self.types[index].offerings[0].price = price;
                let types = Ok(Arc::from(self.types.clone()));
                self.state.instance_types.insert("alpha".to_owned(), types);
            }
            4 => {
                let id = self.provider_id();
                if !self.state.marked_for_deletion.remove(&id) {
                    self.state.marked_for_deletion.insert(id);
                }
            }
            5 => {
                let id = self.provider_id();
                if !self.state.in_command.remove(&id) {
                    self.state.in_command.insert(id);
                }
            }
            6 => {
                let until = later(self.second + 60);
                let id = self.provider_id();
                self.state.nominations.insert(id, Nomination { until });
            }
            7 => {
                let app = *self.dice.pick(&APPS);
                let name = format!("pdb-{}", self.dice.below(3));
                let value = json!({"metadata": {"namespace": "default", "name": name, "uid": name},
                    "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 1},
                    "status": {"disruptionsAllowed": self.dice.below(2), "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
                let budget: PodDisruptionBudget = serde_json::from_value(value).expect("a budget");
                let all = &mut self.state.pod_disruption_budgets;
                all.retain(|known| known.metadata.name != budget.metadata.name);
                all.push(Arc::new(budget));
            }
            8 => {
                let claim = self.some_claim();
                let conditions = &mut claim.status.get_or_insert_default().conditions;
                let before = conditions.len();
                conditions.retain(|condition| condition.type_ != "Consolidatable");
                if conditions.len() == before {
                    conditions.push(consolidatable());
                }
            }
            9 => {
                let value = *self.dice.pick(&["true", "10m", "3h"]);
                if let Some(pod) = self.some_pod() {
                    let annotations = pod.metadata.annotations.get_or_insert_default();
                    annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), value.to_owned());
                }
            }
            10 => {
                let app = (*self.dice.pick(&APPS)).to_owned();
                if let Some(pod) = self.some_pod() {
                    pod.metadata.labels = Some([("app".to_owned(), app)].into());
                }
            }
            11 => {
                let (name, count) = (self.node_name(), 1 + self.dice.below(2));
                let value = json!({"metadata": {"name": name}, "spec": {"drivers": [
                    {"name": "disk", "nodeID": name, "allocatable": {"count": count}}]}});
                let csi: CSINode = serde_json::from_value(value).expect("a CSINode");
                self.state.volumes.csi_nodes.insert(name, Arc::new(csi));
            }
            12 => {
                let (number, zone) = (self.dice.below(4), *self.dice.pick(&ZONES));
                self.volume(number, Some(zone));
                let claim = self
                    .state
                    .volumes
                    .claims
                    .get_mut(&format!("default/claim-{number}"));
                if let (0, Some(claim)) = (self.dice.below(2), claim) {
                    Arc::make_mut(claim).metadata.deletion_timestamp = Some(Time(later(0)));
                }
            }
            13 => {
                let cpu = *self.dice.pick(&["700m", "2", "6"]);
                let index = self.dice.below(self.state.nodes.len());
                let status = Arc::make_mut(&mut self.state.nodes[index])
                    .status
                    .get_or_insert_default();
                let allocatable = status.allocatable.get_or_insert_default();
                let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(cpu.to_owned());
                allocatable.insert("cpu".to_owned(), quantity);
            }
            14 => {
                let zone = *self.dice.pick(&ZONES);
                let index = self.dice.below(self.state.nodes.len());
                let labels = &mut Arc::make_mut(&mut self.state.nodes[index]).metadata.labels;
                let labels = labels.get_or_insert_default();
                labels.insert("topology.kubernetes.io/zone".to_owned(), zone.to_owned());
            }
            15 => {
                let budgets = *self.dice.pick(&["0", "1", "100%"]);
                self.some_pool().spec.disruption.budgets = Some(vec![Budget::always(budgets)]);
            }
            16 => self.policy.disrupt.spot_to_spot = !self.policy.disrupt.spot_to_spot,
            _ => self.policy.disrupt.verdicts = !self.policy.disrupt.verdicts,
        }
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
fn passes_with_kept_answers_decide_what_passes_without_do() {
    let (mut kept_answers, mut asked, mut commands) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        let (mut kept, mut frontier) = (Kept::default(), Frontier::default());
        for step in 0..STEPS {
            let snapshot = lower(&world.state);
            let now = later(world.second);
            let with = disrupt_keeping(&snapshot, &world.policy, now, &frontier, &mut kept, &mut |_| {});
            let without = disrupt(&snapshot, &world.policy, now, &frontier);
            assert_eq!(decided(&with), decided(&without), "seed {seed}, step {step}");
            kept_answers += with.statistics.kept;
            asked += with.statistics.what_ifs;
            commands += with.commands.len();
            frontier = with.frontier;
            if world.dice.below(5) == 0 {
                world.change();
            } else {
                for _ in 0..1 + world.dice.below(2) {
                    world.small_change();
                }
            }
        }
    }
    // Something must be kept, and something decided, or the property says nothing.
    println!("{kept_answers} kept answers, {asked} what-ifs, {commands} commands");
    assert!(
        kept_answers > 2_000,
        "{kept_answers} kept answers, {asked} what-ifs"
    );
    assert!(commands > 100, "{commands} commands");
}

/// Where the pods of the only command go, when pods `c` and `d` are moved off their nodes.
fn destinations(outcome: &Outcome) -> Vec<&Destination> {
    let moves = outcome.commands.iter().flat_map(|command| command.moves.iter());
    moves.map(|step| &step.to).collect()
}

/// A pass that begins with nothing but kept answers.
fn keeping(world: &support::World, kept: &mut Kept) -> Outcome {
    let (snapshot, frontier) = (world.snapshot(), Frontier::default());
    disrupt_keeping(&snapshot, &world.policy, world.now, &frontier, kept, &mut |_| {})
}

#[test]
fn a_kept_set_is_asked_again_when_a_node_that_its_pods_passed_over_has_room() {
    let mut world = support::World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "large")
        .node("c", "small")
        .node("d", "small")
        .pod_with("full", "a", "1500m", &pinned("a"))
        .pod_with("stays", "a", "100m", &pinned("a"))
        .pod_with("other", "b", "9", &pinned("b"))
        .pod("p", "c", "600m")
        .pod("q", "d", "600m");
    world.policy = only(Method::MultiNodeConsolidation);
    let mut kept = Kept::default();
    let mut pass = |world: &support::World| keeping(world, &mut kept);
    let to = |name: &str| Destination::Node {
        name: name.to_owned(),
        provider_id: format!("kwok://{name}"),
    };
    assert_eq!(destinations(&pass(&world)), [&to("b"), &to("b")]);
    let again = pass(&world);
    assert_eq!(destinations(&again), [&to("b"), &to("b")]);
    assert_eq!(again.statistics.what_ifs, 0, "nothing has changed");
    world
        .state
        .pods
        .retain(|pod| pod.metadata.name.as_deref() != Some("full"));
    assert_eq!(destinations(&pass(&world)), [&to("a"), &to("a")]);
}

/// What a pod that is gone kept away is free again, although no class says so any more, and although the node that it leaves has no room for it.
#[test]
fn a_kept_answer_is_asked_again_when_the_last_pod_that_kept_its_pods_away_is_gone() {
    let types = vec![instance_type("small", 2, 4, &["a", "b"])];
    let zone = "topology.kubernetes.io/zone";
    let app = |name: &'static str| {
        move |pod: &mut Pod| pod.metadata.labels = Some([("app".into(), name.into())].into())
    };
    let spread = json!({"nodeSelector": {"kubernetes.io/hostname": "c"}, "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "db"}}}]});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": zone}]}});
    let mut world = support::World::with_types(on_demand_pool("default"), types)
        .node("a", "small")
        .label_node("a", zone, "b")
        .node("b", "small")
        .node("c", "small")
        .pod("web", "a", "1")
        .edit_pod("web", app("web"))
        .pod_with("full", "b", "1300m", &pinned("b"))
        .pod_with("db", "c", "100m", &spread)
        .edit_pod("db", app("db"))
        .pending("apart", "400m")
        .edit_pod("apart", |pod| {
            let mut spec = pod.spec.as_deref().cloned().unwrap_or_default();
            spec.affinity = serde_json::from_value(apart.clone()).expect("an affinity");
            pod.spec = Some(spec.into());
        });
    world.policy = only(Method::SingleNodeConsolidation);
    let mut kept = Kept::default();
    let mut deleted = |world: &support::World| {
        let outcome = keeping(world, &mut kept);
        let nodes = outcome.commands.iter().flat_map(|command| &command.nodes);
        nodes.map(|node| node.provider_id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        deleted(&world),
        Vec::<String>::new(),
        "`apart` keeps `web` out of zone a"
    );
    world
        .state
        .pods
        .retain(|pod| pod.metadata.name.as_deref() != Some("apart"));
    assert_eq!(deleted(&world), ["kwok://a"]);
}

/// One of several pods that others want to be near makes no difference to them; the last one does.
#[test]
fn a_kept_answer_holds_until_the_last_pod_that_its_pods_want_to_be_near_is_gone() {
    let types = vec![instance_type("small", 2, 4, &["a", "b"])];
    let zone = "topology.kubernetes.io/zone";
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": zone}]}}});
    let mut world = support::World::with_types(on_demand_pool("default"), types)
        .node("a", "small")
        .label_node("a", zone, "a")
        .node("c", "small")
        .label_node("c", zone, "a")
        .pod_with("web", "c", "300m", &near);
    for name in ["db-1", "db-2", "db-3"] {
        world = world
            .pod_with(name, "a", "100m", &pinned("a"))
            .edit_pod(name, |pod| {
                pod.metadata.labels = Some([("app".into(), "db".into())].into());
            });
    }
    world.policy = only(Method::SingleNodeConsolidation);
    let mut kept = Kept::default();
    let mut pass = |world: &support::World| {
        let outcome = keeping(world, &mut kept);
        let nodes = outcome.commands.iter().flat_map(|command| &command.nodes);
        let nodes: Vec<String> = nodes.map(|node| node.provider_id.clone()).collect();
        (nodes, outcome.statistics.kept)
    };
    let near_db = vec!["kwok://c".to_owned()];
    assert_eq!(pass(&world), (near_db.clone(), 0));
    let without = |world: &mut support::World, name: &str| {
        let pods = &mut world.state.pods;
        pods.retain(|pod| pod.metadata.name.as_deref() != Some(name));
    };
    without(&mut world, "db-3");
    assert_eq!(
        pass(&world),
        (near_db.clone(), 1),
        "of node a something is asked, of c nothing"
    );
    without(&mut world, "db-2");
    assert_eq!(pass(&world).0, near_db);
    without(&mut world, "db-1");
    assert_eq!(pass(&world), (Vec::new(), 0), "nobody is left to be near");
}

/// Of several terms all have to select a pod for it to count: pods that one of them selects are nobody to rely on.
#[test]
fn a_kept_answer_is_asked_again_when_the_last_pod_that_all_terms_select_is_gone() {
    let types = vec![instance_type("small", 2, 4, &["a", "b"])];
    let zone = "topology.kubernetes.io/zone";
    let term =
        |key: &str, value: &str| json!({"labelSelector": {"matchLabels": {key: value}}, "topologyKey": zone});
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        term("app", "db"), term("tier", "hot")]}}});
    let mut world = support::World::with_types(on_demand_pool("default"), types)
        .node("a", "small")
        .label_node("a", zone, "a")
        .node("c", "small")
        .label_node("c", zone, "a")
        .pod_with("web", "c", "300m", &near);
    for (name, tier) in [("db-1", "hot"), ("db-2", "cold"), ("db-3", "cold")] {
        world = world
            .pod_with(name, "a", "100m", &pinned("a"))
            .edit_pod(name, |pod| {
                let labels = [("app", "db"), ("tier", tier)];
                let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
                pod.metadata.labels = Some(labels.into());
            });
    }
    world.policy = only(Method::SingleNodeConsolidation);
    let mut kept = Kept::default();
    let mut goes = |world: &support::World| {
        let outcome = keeping(world, &mut kept);
        let nodes = outcome.commands.iter().flat_map(|command| &command.nodes);
        nodes.map(|node| node.provider_id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(goes(&world), ["kwok://c"]);
    let pods = &mut world.state.pods;
    pods.retain(|pod| pod.metadata.name.as_deref() != Some("db-1"));
    assert_eq!(goes(&world), Vec::<String>::new());
}

const SEEDS: u64 = 40;
const STEPS: usize = 30;
