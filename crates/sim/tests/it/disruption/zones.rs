//! Zones: a roll-out that never touches two at once while one NodePool fails, and a zone that is lost, in which and beside which nothing is disrupted.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{DisruptionPolicy, NodePool};
use spokeshave_provider_kwok::KwokOptions;

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

const ZONE: &str = "topology.kubernetes.io/zone";
const POOL: &str = "karpenter.sh/nodepool";
const ZONES: [&str; 3] = ["test-zone-a", "test-zone-b", "test-zone-c"];

async fn policy(cluster: &Cluster, spec: Value) {
    let object = json!({"metadata": {"name": "zones"}, "spec": spec});
    let _: DisruptionPolicy = cluster.create(object).await;
}

fn label<'a>(node: &'a Node, key: &str) -> &'a str {
    node.labels().get(key).map_or("", String::as_str)
}

/// A NodePool of machines of eight cores of one kind, and a pod for each of its nodes, `each` in each zone.
async fn pool_in_zones(cluster: &Cluster, name: &str, disruption: &Value, each: usize) {
    cluster.disrupted_pool(name, disruption.clone()).await;
    let template = json!({"spec": {"template": {"spec": {"taints": [{"key": "pool", "value": name, "effect": "NoSchedule"}]}}}});
    cluster.patch::<NodePool>(name, template).await;
    for zone in ZONES {
        let app = format!("{name}-{zone}");
        let spec = json!({"spec": {
            "nodeSelector": {ZONE: zone, POOL: name},
            "tolerations": [{"key": "pool", "operator": "Equal", "value": name, "effect": "NoSchedule"}],
        }});
        cluster
            .deploy_with(&app, i32::try_from(each).unwrap(), template_of(&app, spec))
            .await;
    }
}

fn template_of(app: &str, spec: Value) -> Value {
    crate::words::template(app, "6", spec)
}

/// Where commands are under way.
async fn open_zones(cluster: &Cluster) -> BTreeSet<String> {
    let ledger = cluster.list::<Disruption>().await;
    let open = ledger.iter().filter(|one| !one.is_finished());
    let nodes = open.flat_map(|one| &one.spec.nodes);
    nodes.filter_map(|node| node.zone.clone()).collect()
}

/// All nodes of `pools` NodePools in three zones drift; machines of one NodePool never join any more. The others finish, and never are nodes of two
/// zones on their way out at once.
async fn drift(seed: u64, pools: usize, each: usize, hours: u64) {
    let cluster = Cluster::new(seed, by_hand_only()).await;
    let operator = cluster.operator();
    let names: Vec<String> = (0..pools).map(|index| format!("p{index}")).collect();
    for name in &names {
        pool_in_zones(&cluster, name, &for_drift("100%"), each).await;
    }
    cluster.until_running(pools * each * ZONES.len()).await;
    // The last NodePool asks for machines of which none joins.
    let failing = names.last().expect("a NodePool").clone();
    let only = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m-8x-amd64-linux"]},
    ]);
    operator.kill().await;
    let cloud = KwokOptions {
        never_register: vec!["m-8x-amd64-linux".parse().unwrap()],
        ..KwokOptions::default()
    };
    for name in &names {
        let others = json!({"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["m-8x-amd64-linux"]});
        let pool: NodePool = cluster.get(name).await;
        let mut requirements = serde_json::to_value(&pool.spec.template.spec.requirements).expect("JSON");
        requirements.as_array_mut().expect("a list").push(others);
        let wanted = if *name == failing {
            only.clone()
        } else {
            requirements
        };
        let template = json!({"metadata": {"labels": {"team": "blue"}}, "spec": {"requirements": wanted}});
        cluster
            .patch::<NodePool>(name, json!({"spec": {"template": template}}))
            .await;
    }
    let budgets = json!([{"scope": "Zone", "oneAtATime": true}]);
    policy(
        &cluster,
        json!({"budgets": budgets, "rollout": {"soak": "1m", "canary": 2}}),
    )
    .await;
    let _operator = cluster.operator_with(cloud);
    let start = cluster.clock.now();
    let (mut seen, mut most) = (BTreeSet::new(), 0);
    loop {
        cluster.pass(5).await;
        let open = open_zones(&cluster).await;
        assert!(open.len() <= 1, "{open:?} at once");
        seen.extend(open.iter().cloned());
        most = most.max(open.len());
        let nodes = cluster.list::<Node>().await;
        let old = nodes.iter().filter(|node| {
            label(node, "team") != "blue" && label(node, POOL) != failing && label(node, POOL) != "default"
        });
        let old = old.count();
        if old == 0 {
            break;
        }
        if cluster.clock.since(start).as_secs() > hours * 3600 {
            let mut left: BTreeMap<&str, usize> = BTreeMap::new();
            for node in &nodes {
                *left.entry(label(node, POOL)).or_default() += usize::from(label(node, "team") != "blue");
            }
            panic!("{old} are left: {left:?}; {:#?}", cluster.ledger_text().await);
        }
    }
    assert_eq!(most, 1);
    assert_eq!(seen.len(), ZONES.len(), "all zones had their turn");
    let nodes = cluster.list::<Node>().await;
    let kept = nodes
        .iter()
        .filter(|node| label(node, POOL) == failing && label(node, "team") != "blue");
    assert_eq!(
        kept.count(),
        each * ZONES.len(),
        "the NodePool that fails keeps what it has"
    );
    cluster.until_running(pools * each * ZONES.len()).await;
}

/// Three hundred nodes in ten NodePools with `FULL_SIZE` in the environment, which takes minutes.
#[tokio::test(start_paused = true)]
async fn invariant_26_drift_goes_zone_by_zone_past_a_nodepool_that_always_fails() {
    let is_full = std::env::var_os("FULL_SIZE").is_some();
    let (pools, each, hours) = if is_full { (10, 10, 200) } else { (3, 2, 12) };
    drift(271, pools, each, hours).await;
}

/// Half of a zone's nodes are not Ready any more: nothing is disrupted anywhere, though nodes have drifted and others are empty; what has no place
/// any more gets one in another zone; and when the zone is back, it continues.
#[tokio::test(start_paused = true)]
async fn nothing_voluntary_happens_while_a_zone_is_lost_and_pods_go_to_healthy_ones() {
    let cluster = Cluster::new(273, by_hand_only()).await;
    pool_in_zones(&cluster, "p", &for_drift("100%"), 2).await;
    policy(
        &cluster,
        json!({"circuitBreakers": {"notReady": {"percent": 50, "scope": "Zone"}}}),
    )
    .await;
    let operator = cluster.operator();
    cluster.until_running(6).await;
    let nodes = cluster.list::<Node>().await;
    let lost: Vec<String> = nodes
        .iter()
        .filter(|node| label(node, ZONE) == ZONES[0])
        .map(|node| node.name_any())
        .collect();
    let ready = async |status: &str| {
        for name in &lost {
            cluster.say_ready(name, status).await;
        }
    };
    ready("Unknown").await;
    operator.kill().await;
    let cloud = KwokOptions {
        never_register: vec!["*/test-zone-a".parse().unwrap()],
        ..KwokOptions::default()
    };
    let _operator = cluster.operator_with(cloud);
    cluster.pass(15).await;
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}});
    cluster.patch::<NodePool>("p", labels).await;
    // Pods that may run anywhere are placed in an available zone.
    let anywhere = json!({"spec": {"tolerations": [{"key": "pool", "operator": "Exists"}], "nodeSelector": {POOL: "p"}, "topologySpreadConstraints": []}});
    cluster
        .deploy_with("anywhere", 2, template_of("anywhere", anywhere))
        .await;
    cluster.pass(2700).await;
    assert_eq!(cluster.running_of("anywhere").await, 2, "they have places");
    assert!(
        cluster.ledger().await.is_empty(),
        "{:?}",
        cluster.ledger_text().await
    );
    let policy: DisruptionPolicy = cluster.get("zones").await;
    let summary = policy
        .status
        .and_then(|status| status.summary)
        .unwrap_or_default();
    assert!(
        summary.contains("2 of 2 nodes in zone \"test-zone-a\" are not Ready"),
        "{summary}"
    );
    for pod in cluster.list::<Pod>().await {
        let node = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default();
        let is_new = pod.labels().get("app").is_some_and(|app| app == "anywhere");
        assert!(
            !is_new || !lost.contains(&node),
            "{} is on {node}",
            pod.name_any()
        );
    }
    ready("True").await;
    cluster
        .until("the zone is back, and drift goes on", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
}
