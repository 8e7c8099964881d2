//! Builders of fictional clusters, for tests, benchmarks and generated worlds. Deterministic; no part of the product.

mod worlds;

pub use worlds::{Shape, catalog, cluster, random_world};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Node, NodeCondition, NodeSpec, NodeStatus, PodCondition, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};
use spokeshave_api::{
    Budget, Condition, NodeClaim, NodeClaimSpec, NodeClaimStatus, NodeClassRef, NodePool, NodePoolSpec,
};
use spokeshave_model::instance_type::{InstanceType, Offering, Overhead};
use spokeshave_model::{
    ClusterState, Pod, Price, Requirement, Requirements, ResourceName, Resources, labels,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// When the examples play: 2026-01-01T00:00:00Z, a Thursday.
pub fn epoch() -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_767_225_600).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// A small generator for example data (SplitMix64). Not for anything that matters.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 when that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 {
            0
        } else {
            (self.roll() % limit as u64) as usize
        }
    }

    /// One of the choices.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// An offering in one zone.
pub fn offering(zone: &str, capacity_type: &str, price: Price) -> Offering {
    let requirements = [
        Requirement::is(labels::ZONE, zone),
        Requirement::is(labels::CAPACITY_TYPE, capacity_type),
    ];
    Offering {
        requirements: requirements.into_iter().collect(),
        price,
        available: true,
        ..Offering::default()
    }
}

/// A type with the given size, offered on-demand and spot in the given zones; one core and 2 GiB cost 0.04 $/h, spot 70 % of that.
pub fn instance_type(name: &str, cores: i64, memory_gib: i64, zones: &[&str]) -> InstanceType {
    let price = Price(cores * 25_000_000 + memory_gib * 7_500_000);
    let spot = Price(price.0 * 7 / 10);
    let offerings = zones
        .iter()
        .flat_map(|zone| [offering(zone, "on-demand", price), offering(zone, "spot", spot)]);
    let requirements = [
        Requirement::is(labels::INSTANCE_TYPE, name),
        Requirement::is(labels::ARCH, "amd64"),
        Requirement::is(labels::OS, "linux"),
        Requirement::one_of(labels::ZONE, zones.iter().copied()),
        Requirement::one_of(labels::CAPACITY_TYPE, ["on-demand", "spot"]),
    ];
    InstanceType {
        name: name.to_owned(),
        requirements: requirements.into_iter().collect(),
        offerings: offerings.collect(),
        capacity: Resources::from_amounts([
            ("cpu", cores * 1000),
            ("memory", memory_gib << 30),
            ("pods", 110),
        ]),
        overhead: Overhead {
            kube_reserved: Resources::from_amounts([("cpu", 100), ("memory", 10 << 20)]),
            ..Overhead::default()
        },
        ..InstanceType::default()
    }
}

/// The fake types of the scheduler benchmark (P App. C.1): type `i` has `i+1` cores, twice as many GiB, ten times as many pods.
pub fn fake_instance_types(count: i64) -> Vec<InstanceType> {
    let fake = |index: i64| {
        let (cpu, memory) = (index + 1, (2 * (index + 1)) << 30);
        let price = Price(cpu * 100_000_000 + memory / 10);
        let size = if cpu > 4 { "large" } else { "small" };
        let offerings = [("test-zone-1", "spot"), ("test-zone-2", "spot")]
            .into_iter()
            .chain(["test-zone-1", "test-zone-2", "test-zone-3"].map(|zone| (zone, "on-demand")))
            .map(|(zone, capacity_type)| offering(zone, capacity_type, price));
        let name = format!("fake-it-{index}");
        let mut requirements: Requirements = [
            Requirement::is(labels::INSTANCE_TYPE, &name),
            Requirement::is(labels::ARCH, "amd64"),
            Requirement::one_of(labels::OS, ["linux", "windows", "darwin"]),
            Requirement::one_of(labels::ZONE, ["test-zone-1", "test-zone-2", "test-zone-3"]),
            Requirement::one_of(labels::CAPACITY_TYPE, ["spot", "on-demand"]),
            Requirement::is("size", size),
            Requirement::is("integer", &cpu.to_string()),
        ]
        .into_iter()
        .collect();
        requirements.add(if cpu > 4 {
            Requirement::is("special", "optional")
        } else {
            Requirement::does_not_exist("special")
        });
        InstanceType {
            name,
            requirements,
            offerings: offerings.collect(),
            capacity: Resources::from_amounts([("cpu", cpu * 1000), ("memory", memory), ("pods", 10 * cpu)]),
            overhead: Overhead {
                kube_reserved: Resources::from_amounts([("cpu", 100), ("memory", 10 << 20)]),
                ..Overhead::default()
            },
            ..InstanceType::default()
        }
    };
    (0..count).map(fake).collect()
}

fn condition(condition_type: &str) -> Condition {
    Condition {
        type_: condition_type.to_owned(),
        status: "True".to_owned(),
        observed_generation: None,
        last_transition_time: epoch(),
        reason: condition_type.to_owned(),
        message: String::new(),
    }
}

/// A ready NodePool of the kwok provider, without requirements. Budgets and policies are the API's defaults.
pub fn node_pool(name: &str) -> NodePool {
    let mut spec = NodePoolSpec::default();
    spec.template.spec.node_class_ref = NodeClassRef {
        group: "karpenter.kwok.sh".to_owned(),
        kind: "KWOKNodeClass".to_owned(),
        name: "default".to_owned(),
    };
    let mut pool = NodePool::new(name, spec);
    pool.metadata.uid = Some(format!("uid-{name}"));
    pool.status = Some(spokeshave_api::NodePoolStatus {
        conditions: vec![condition("Ready")],
        ..Default::default()
    });
    pool
}

/// A pod that the scheduler could not place. `spec` is merged over a container with the given requests.
pub fn pending_pod(name: &str, cpu: &str, memory: &str, spec: &Value) -> Pod {
    let mut merged =
        json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]});
    if let (Some(into), Some(from)) = (merged.as_object_mut(), spec.as_object()) {
        into.extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    let spec: PodSpec = serde_json::from_value(merged).unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            namespace: Some("default".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(format!("uid-{name}")),
            creation_timestamp: Some(Time(epoch())),
            ..ObjectMeta::default()
        },
        spec: Some(Arc::new(spec)),
        node_name: None,
        status: Some(PodStatus {
            phase: Some("Pending".to_owned()),
            conditions: Some(vec![PodCondition {
                type_: "PodScheduled".to_owned(),
                status: "False".to_owned(),
                reason: Some("Unschedulable".to_owned()),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        }),
    }
}

/// The same pod, running on a node.
pub fn bound(mut pod: Pod, node: &str) -> Pod {
    pod.node_name = Some(node.to_owned());
    pod.status = Some(PodStatus {
        phase: Some("Running".to_owned()),
        start_time: Some(Time(epoch())),
        ..PodStatus::default()
    });
    pod
}

/// With labels.
pub fn labelled(mut pod: Pod, labels: &[(&str, &str)]) -> Pod {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    pod.metadata.labels.get_or_insert_default().extend(labels);
    pod
}

/// A node that registered and initialised, and its NodeClaim. Labels: pool, zone, capacity type, instance type, arch, os, hostname.
pub fn node(
    pool: &str,
    name: &str,
    instance_type: &InstanceType,
    zone: &str,
    capacity_type: &str,
) -> (Node, NodeClaim) {
    let labels: BTreeMap<String, String> = [
        (labels::NODE_POOL, pool),
        (labels::ZONE, zone),
        (labels::CAPACITY_TYPE, capacity_type),
        (labels::INSTANCE_TYPE, &instance_type.name),
        (labels::ARCH, "amd64"),
        (labels::OS, "linux"),
        (labels::HOSTNAME, name),
        (labels::REGISTERED, "true"),
        (labels::INITIALIZED, "true"),
        ("karpenter.kwok.sh/kwoknodeclass", "default"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    let capacity = instance_type.capacity.to_quantities();
    let allocatable = instance_type.allocatable().to_quantities();
    let meta = |name: String| ObjectMeta {
        uid: Some(format!("uid-{name}")),
        name: Some(name),
        labels: Some(labels.clone()),
        creation_timestamp: Some(Time(epoch())),
        ..ObjectMeta::default()
    };
    let ready = NodeCondition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        ..NodeCondition::default()
    };
    let node = Node {
        metadata: meta(name.to_owned()),
        spec: Some(NodeSpec {
            provider_id: Some(format!("kwok://{name}")),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(capacity.clone()),
            allocatable: Some(allocatable.clone()),
            conditions: Some(vec![ready]),
            ..NodeStatus::default()
        }),
    };
    let mut claim = NodeClaim::new(&format!("claim-{name}"), NodeClaimSpec::default());
    claim.metadata = meta(format!("claim-{name}"));
    claim.status = Some(NodeClaimStatus {
        provider_id: Some(format!("kwok://{name}")),
        node_name: Some(name.to_owned()),
        conditions: ["Launched", "Registered", "Initialized", "Consolidatable"]
            .map(condition)
            .into(),
        capacity,
        allocatable,
        ..NodeClaimStatus::default()
    });
    (node, claim)
}

/// Two nodes whose pods fit on neither, and a larger type that takes the pods of both for less: each alone would stay.
pub fn better_together() -> ClusterState {
    let on_demand = |name: &str, cores: i64, memory_gib: i64| {
        let mut kind = instance_type(name, cores, memory_gib, &["a"]);
        kind.offerings.truncate(1);
        kind
    };
    let (big, huge) = (on_demand("big", 8, 16), on_demand("huge", 11, 12));
    let mut pool = node_pool("default");
    pool.spec.disruption.budgets = Some(vec![Budget::always("100%")]);
    let mut state = ClusterState::default().with_pool(pool, vec![big.clone(), huge]);
    for name in ["x", "y"] {
        state = state.with_node(node("default", name, &big, "a", "on-demand"));
        let pod = pending_pod(&format!("p-{name}"), "5", "1Gi", &json!({}));
        state = state.with_pod(bound(pod, name));
    }
    state
}

/// A DaemonSet whose pods request this much.
pub fn daemon_set(name: &str, cpu: &str, memory: &str, spec: &Value) -> DaemonSet {
    let pod = pending_pod(name, cpu, memory, spec);
    let value = json!({
        "metadata": {"namespace": "kube-system", "name": name, "uid": format!("uid-{name}")},
        "spec": {"selector": {}, "template": {"spec": pod.spec}}
    });
    serde_json::from_value(value).unwrap_or_default()
}

/// The pods of the scheduler benchmark (P App. C.1): five equal shares, the remainder generic.
pub fn diverse_pods(count: usize, seed: u64) -> Vec<Pod> {
    let mut dice = Dice(seed);
    let share = count / 5;
    (0..count)
        .map(|index| {
            let cpu = *dice.pick(&["100m", "250m", "500m", "1", "1500m"]);
            let memory = *dice.pick(&["100Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi"]);
            let value = *dice.pick(&["a", "b", "c", "d", "e", "f", "g"]);
            let other = *dice.pick(&["a", "b", "c", "d", "e", "f", "g"]);
            let spread = |key: &str| {
                json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"my-label": other}}}]})
            };
            let term = |label: &str, value: &str, key: &str| {
                json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": {"matchLabels": {label: value}}}]})
            };
            let (label, spec) = match index.checked_div(share).unwrap_or(5) {
                0 => (("my-label", value), spread(labels::ZONE)),
                1 => (("my-label", value), spread(labels::HOSTNAME)),
                2 => (("my-affininity", value), json!({"affinity": {"podAffinity": term("my-affininity", value, labels::ZONE)}})),
                3 => (("app", "nginx"), json!({"affinity": {"podAntiAffinity": term("app", "nginx", labels::HOSTNAME)}})),
                _ => (("my-label", value), json!({})),
            };
            labelled(pending_pod(&format!("pod-{index:06}"), cpu, memory, &spec), &[label])
        })
        .collect()
}

/// The NodePool of the scheduler benchmark, with limits that never bind.
pub fn benchmark_pool() -> NodePool {
    let mut pool = node_pool("benchmark");
    let limits = Resources::from_amounts([
        (ResourceName::CPU, 10_000_000_000),
        (ResourceName::MEMORY, 10_000_000 << 30),
    ]);
    pool.spec.limits = Some(limits.to_quantities());
    pool
}
