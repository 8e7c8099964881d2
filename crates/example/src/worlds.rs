//! Whole clusters: the shapes that what-ifs are measured on, and small random worlds in which every rule of placement occurs.

use crate::{Dice, bound, daemon_set, instance_type, labelled, node, node_pool, pending_pod};
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use spokeshave_api::Requirement;
use spokeshave_model::Pod;
use spokeshave_model::{ClusterState, InstanceType, Resources, labels};

const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];

/// A kind of cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Five node types, pods of many small deployments, 55 % utilised.
    Plain,
    /// Two deployments with a replica on every node each, and anti-affinity to themselves; nothing can be consolidated.
    HostnameAntiAffinity,
    /// 20 NodePools; every deployment spreads over zones (hard) and hosts (soft), every fourth must share a zone with another.
    Spread,
    /// Nodes filled to the last millicore: nothing can be consolidated.
    Full,
}

impl Shape {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Shape); 4] = [
        ("plain", Shape::Plain),
        ("hostname-anti-affinity", Shape::HostnameAntiAffinity),
        ("spread", Shape::Spread),
        ("full", Shape::Full),
    ];
}

/// Twelve sizes of three families, in four zones.
pub fn catalog() -> Vec<InstanceType> {
    let sizes = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256];
    let families = [("c", 2), ("s", 4), ("m", 8)];
    let of = |(family, ratio): (&str, i64)| {
        sizes.map(|size| instance_type(&format!("{family}-{size}x"), size, size * ratio, &ZONES))
    };
    families.into_iter().flat_map(of).collect()
}

struct Deployment {
    name: String,
    cpu: i64,
    memory: i64,
    spec: Value,
}

impl Deployment {
    /// Requests within half of the mean.
    fn new(dice: &mut Dice, name: String, (cpu, memory): (i64, i64)) -> Self {
        let mut around = |mean: i64| mean / 2 + dice.below(mean as usize + 1) as i64;
        Deployment {
            name,
            cpu: around(cpu),
            memory: around(memory),
            spec: json!({}),
        }
    }

    fn selector(&self) -> Value {
        json!({"matchLabels": {"app": self.name}})
    }

    fn pod(&self, number: usize) -> Pod {
        let name = format!("{}-{number:06}", self.name);
        let (cpu, memory) = (format!("{}m", self.cpu), format!("{}Mi", self.memory));
        let mut pod = labelled(
            pending_pod(&name, &cpu, &memory, &self.spec),
            &[("app", &self.name)],
        );
        pod.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: self.name.clone(),
            uid: format!("replicaset/{}", self.name),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        pod
    }
}

struct Room {
    name: String,
    zone: usize,
    cores: i64,
    cpu: i64,
    memory: i64,
    pods: i64,
}

impl Room {
    /// Takes a pod if it fits.
    fn take(&mut self, deployment: &Deployment) -> bool {
        let fits = self.cpu >= deployment.cpu && self.memory >= deployment.memory && self.pods > 0;
        if fits {
            self.cpu -= deployment.cpu;
            self.memory -= deployment.memory;
            self.pods -= 1;
        }
        fits
    }
}

struct Builder {
    dice: Dice,
    state: ClusterState,
    types: Vec<InstanceType>,
    rooms: Vec<Room>,
    pods: usize,
}

impl Builder {
    fn pool(&mut self, name: &str) {
        let mut pool = node_pool(name);
        pool.spec.template.spec.requirements = vec![Requirement {
            key: labels::CAPACITY_TYPE.to_owned(),
            operator: spokeshave_api::Operator::In,
            values: vec!["on-demand".to_owned()],
            min_values: None,
        }];
        self.state = std::mem::take(&mut self.state).with_pool(pool, self.types.clone());
    }

    fn node(&mut self, pool: &str, sizes: &[&str], zone: usize) {
        let size = *self.dice.pick(sizes);
        let Some(instance_type) = self.types.iter().find(|known| known.name == size) else {
            return;
        };
        let name = format!("{pool}-{:05}", self.rooms.len());
        let allocatable = instance_type.allocatable();
        self.rooms.push(Room {
            name: name.clone(),
            zone,
            cores: instance_type.capacity.get("cpu") / 1000,
            cpu: allocatable.get("cpu"),
            memory: allocatable.get("memory") >> 20,
            pods: allocatable.get("pods"),
        });
        let built = node(pool, &name, instance_type, ZONES[zone], "on-demand");
        self.state = std::mem::take(&mut self.state).with_node(built);
    }

    /// The requests with which so many pods use 55 % of the nodes.
    fn mean_requests(&self, pods: usize) -> (i64, i64) {
        let total =
            |of: fn(&Room) -> i64| self.rooms.iter().map(of).sum::<i64>() * 55 / 100 / pods.max(1) as i64;
        (total(|room| room.cpu), total(|room| room.memory))
    }

    fn place(&mut self, deployment: &Deployment, room: usize) -> bool {
        if !self.rooms[room].take(deployment) {
            return false;
        }
        let pod = bound(deployment.pod(self.pods), &self.rooms[room].name);
        self.pods += 1;
        self.state = std::mem::take(&mut self.state).with_pod(pod);
        true
    }
}

/// A running cluster of a shape, with about `pods` pods (two a node for `HostnameAntiAffinity`).
pub fn cluster(shape: Shape, nodes: usize, pods: usize, seed: u64) -> ClusterState {
    let mut builder = Builder {
        dice: Dice(seed),
        state: ClusterState::default(),
        types: catalog(),
        rooms: Vec::new(),
        pods: 0,
    };
    match shape {
        Shape::Plain => plain(&mut builder, nodes, pods),
        Shape::HostnameAntiAffinity => hostname_anti_affinity(&mut builder, nodes),
        Shape::Spread => spread(&mut builder, nodes, pods),
        Shape::Full => full(&mut builder, nodes, pods),
    }
    builder.state
}

fn plain(builder: &mut Builder, nodes: usize, pods: usize) {
    builder.pool("default");
    for _ in 0..nodes {
        let zone = builder.dice.below(ZONES.len());
        builder.node("default", &["s-4x", "s-8x", "s-16x", "c-8x", "m-8x"], zone);
    }
    let mean = builder.mean_requests(pods);
    let deployments: Vec<Deployment> = (0..=pods / 10)
        .map(|index| Deployment::new(&mut builder.dice, format!("app-{index:04}"), mean))
        .collect();
    let total: i64 = builder.rooms.iter().map(|room| room.cores).sum();
    for room in 0..builder.rooms.len() {
        for _ in 0..pods as i64 * builder.rooms[room].cores / total.max(1) {
            let deployment = builder.dice.below(deployments.len());
            builder.place(&deployments[deployment], room);
        }
    }
}

fn hostname_anti_affinity(builder: &mut Builder, nodes: usize) {
    builder.pool("default");
    for index in 0..nodes {
        builder.node("default", &["s-4x"], index % ZONES.len());
    }
    for (name, cpu, memory) in [("web", 3000, 12_000), ("cache", 200, 500)] {
        let mut deployment = Deployment {
            name: name.to_owned(),
            cpu,
            memory,
            spec: json!({}),
        };
        deployment.spec = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": labels::HOSTNAME, "labelSelector": deployment.selector()}]}}});
        for room in 0..builder.rooms.len() {
            builder.place(&deployment, room);
        }
    }
}

fn spread(builder: &mut Builder, nodes: usize, pods: usize) {
    const POOLS: usize = 20;
    const REPLICAS: usize = 20;
    for pool in 0..POOLS {
        builder.pool(&format!("pool-{pool:02}"));
    }
    for index in 0..nodes {
        let pool = format!("pool-{:02}", builder.dice.below(POOLS));
        builder.node(&pool, &["s-4x", "s-8x", "s-16x"], index % ZONES.len());
    }
    let mean = builder.mean_requests(pods);
    let by_zone: Vec<Vec<usize>> = (0..ZONES.len())
        .map(|zone| {
            let rooms = builder.rooms.iter().enumerate();
            rooms
                .filter(|(_, room)| room.zone == zone)
                .map(|(index, _)| index)
                .collect()
        })
        .collect();
    let mut partner: Option<Value> = None;
    for index in 0..pods.div_ceil(REPLICAS) {
        let mut deployment = Deployment::new(&mut builder.dice, format!("app-{index:04}"), mean);
        let selector = deployment.selector();
        let constraint = |key: &str, when: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector});
        deployment.spec = json!({"topologySpreadConstraints": [
            constraint(labels::ZONE, "DoNotSchedule"), constraint(labels::HOSTNAME, "ScheduleAnyway")]});
        if let (Some(partner), 0) = (&partner, index % 4) {
            deployment.spec["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": labels::ZONE, "labelSelector": partner}]}});
        }
        partner = Some(selector.clone());
        for replica in 0..REPLICAS.min(pods - index * REPLICAS) {
            let rooms = &by_zone[replica % ZONES.len()];
            if rooms.is_empty() {
                continue;
            }
            let tries: Vec<usize> = (0..20).map(|_| *builder.dice.pick(rooms)).collect();
            tries.into_iter().any(|room| builder.place(&deployment, room));
        }
    }
}

fn full(builder: &mut Builder, nodes: usize, pods: usize) {
    builder.pool("default");
    let per_node = (pods / nodes.max(1)).max(1) as i64;
    for room in 0..nodes {
        let zone = builder.dice.below(ZONES.len());
        builder.node("default", &["s-4x", "s-8x", "s-16x"], zone);
        let deployment = Deployment {
            name: format!("app-{}", builder.rooms[room].cores),
            cpu: builder.rooms[room].cpu / per_node,
            memory: builder.rooms[room].memory / per_node,
            spec: json!({}),
        };
        for _ in 0..per_node {
            builder.place(&deployment, room);
        }
    }
}

/// A small cluster in which any rule of placement may occur: bound and pending pods, several NodePools with weights, taints, limits and minValues,
/// DaemonSets, host ports, spreads, affinity and anti-affinity of every kind. The pods on its nodes need not have been schedulable there.
pub fn random_world(seed: u64) -> ClusterState {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9) ^ 0x5eed);
    let types: Vec<InstanceType> = [
        ("small", 2, 8),
        ("medium", 4, 16),
        ("large", 16, 32),
        ("huge", 64, 256),
    ]
    .map(|(name, cores, memory)| instance_type(name, cores, memory, &ZONES[..1 + dice.below(3)]))
    .into();
    let mut state = ClusterState::default();
    let pools = 1 + dice.below(3);
    for index in 0..pools {
        state = state.with_pool(random_pool(&mut dice, &format!("pool-{index}")), types.clone());
    }
    let nodes = dice.below(12);
    for index in 0..nodes {
        let (instance_type, zone) = (dice.below(types.len()), dice.below(3));
        let pool = format!("pool-{}", dice.below(pools));
        let capacity_type = *dice.pick(&["spot", "on-demand"]);
        let mut built = node(
            &pool,
            &format!("node-{index:02}"),
            &types[instance_type],
            ZONES[zone],
            capacity_type,
        );
        if dice.below(8) == 0 {
            for labels in [&mut built.0.metadata.labels, &mut built.1.metadata.labels] {
                labels
                    .get_or_insert_default()
                    .insert("rack".to_owned(), format!("r{}", dice.below(3)));
            }
        }
        if dice.below(12) == 0 {
            for labels in [&mut built.0.metadata.labels, &mut built.1.metadata.labels] {
                labels.get_or_insert_default().remove(labels::INITIALIZED);
            }
        }
        if dice.below(10) == 0 {
            built.0.spec.get_or_insert_default().taints = Some(vec![taint(
                "team",
                dice.pick::<&str>(&["NoSchedule", "PreferNoSchedule"]),
            )]);
        }
        state = state.with_node(built);
    }
    for index in 0..dice.below(3) {
        let (cpu, memory) = (
            format!("{}m", 50 * (1 + dice.below(4))),
            format!("{}Mi", 64 * (1 + dice.below(4))),
        );
        state = state.with_daemon_set(daemon_set(&format!("daemon-{index}"), &cpu, &memory, &json!({})));
    }
    let shapes: Vec<(Value, String, String, &str)> = (0..2 + dice.below(5))
        .map(|_| {
            let cpu = (*dice.pick(&["100m", "500m", "1", "1500m", "3"])).to_owned();
            let memory = (*dice.pick(&["128Mi", "1Gi", "3Gi"])).to_owned();
            let app = *dice.pick(&["web", "db", "cache"]);
            (random_spec(&mut dice), cpu, memory, app)
        })
        .collect();
    for index in 0..dice.below(40) {
        let (spec, cpu, memory, app) = dice.pick(&shapes).clone();
        let pod = labelled(
            pending_pod(&format!("pod-{index:03}"), &cpu, &memory, &spec),
            &[("app", app)],
        );
        let goes = nodes > 0 && dice.below(3) > 0;
        let pod = if goes {
            bound(pod, &format!("node-{:02}", dice.below(nodes)))
        } else {
            pod
        };
        state = state.with_pod(pod);
    }
    state
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        value: Some("ml".to_owned()),
        ..Taint::default()
    }
}

fn random_pool(dice: &mut Dice, name: &str) -> spokeshave_api::NodePool {
    let mut pool = node_pool(name);
    pool.spec.weight = [None, Some(10), Some(50)][dice.below(3)];
    let mut require = |key: &str, values: &[&str], min_values: Option<i32>| {
        pool.spec.template.spec.requirements.push(Requirement {
            key: key.to_owned(),
            operator: if values.is_empty() {
                spokeshave_api::Operator::Exists
            } else {
                spokeshave_api::Operator::In
            },
            values: values.iter().map(ToString::to_string).collect(),
            min_values,
        });
    };
    if dice.below(3) == 0 {
        require(labels::CAPACITY_TYPE, &["on-demand"], None);
    }
    if dice.below(4) == 0 {
        require(labels::ZONE, &ZONES[..2], None);
    }
    if dice.below(5) == 0 {
        require(labels::INSTANCE_TYPE, &[], Some(2));
    }
    if dice.below(4) == 0 {
        pool.spec.template.spec.taints = vec![taint(
            "team",
            dice.pick::<&str>(&["NoSchedule", "PreferNoSchedule"]),
        )];
    }
    if dice.below(3) == 0 {
        let cpu = (8 + 8 * dice.below(12)).to_string();
        pool.spec.limits = Resources::parse([("cpu", cpu.as_str())])
            .ok()
            .map(|limits| limits.to_quantities());
    }
    if dice.below(6) == 0 {
        let nodes = dice.below(6).to_string();
        let limits = Resources::parse([("nodes", nodes.as_str())])
            .ok()
            .map(|limits| limits.to_quantities());
        pool.spec
            .limits
            .get_or_insert_default()
            .extend(limits.unwrap_or_default());
    }
    pool
}

fn random_spec(dice: &mut Dice) -> Value {
    let mut spec = json!({});
    let key = |dice: &mut Dice| *dice.pick(&[labels::ZONE, labels::HOSTNAME, labels::CAPACITY_TYPE, "rack"]);
    let selector = |dice: &mut Dice| json!({"matchLabels": {"app": dice.pick(&["web", "db", "cache"])}});
    if dice.below(3) == 0 {
        let constraints: Vec<Value> = (0..1 + dice.below(2))
            .map(|_| {
                json!({"maxSkew": 1 + dice.below(2), "topologyKey": key(dice), "labelSelector": selector(dice),
                    "whenUnsatisfiable": dice.pick(&["DoNotSchedule", "ScheduleAnyway"]),
                    "nodeTaintsPolicy": dice.pick(&["Honor", "Ignore"])})
            })
            .collect();
        spec["topologySpreadConstraints"] = json!(constraints);
    }
    let mut affinity = json!({});
    for kind in ["podAffinity", "podAntiAffinity"] {
        let term = |dice: &mut Dice| json!({"topologyKey": key(dice), "labelSelector": selector(dice)});
        if dice.below(4) == 0 {
            affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term(dice)]);
        } else if dice.below(5) == 0 {
            affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": 1 + dice.below(100), "podAffinityTerm": term(dice)}]);
        }
    }
    if dice.below(5) == 0 {
        let term = |zone: usize| json!({"matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": [ZONES[zone]]}]});
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
            json!([term(dice.below(3)), term(dice.below(3))]);
    }
    if dice.below(6) == 0 {
        affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([{"weight": 1,
            "preference": {"matchExpressions": [{"key": labels::CAPACITY_TYPE, "operator": "In", "values": ["spot"]}]}}]);
    }
    spec["affinity"] = affinity;
    if dice.below(6) == 0 {
        spec["nodeSelector"] = json!({labels::ZONE: ZONES[dice.below(3)]});
    }
    if dice.below(3) == 0 {
        spec["tolerations"] = json!([{"key": "team", "operator": "Exists"}]);
    }
    if dice.below(8) == 0 {
        spec["hostNetwork"] = json!(false);
        spec["initContainers"] = json!([{"name": "init", "resources": {"requests": {"cpu": "2"}}}]);
    }
    spec
}
