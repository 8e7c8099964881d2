//! A shadow beside an operator: it sees the same, says what it would do, and sends nothing but reads.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::disruption_policy::RolloutPhase;
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodePool};
use spokeshave_controllers::shadow::Report;
use spokeshave_runtime::client::RequestLog;

use crate::faulty::Cluster;
use crate::words::*;

fn row(report: &Report) -> Value {
    report.json()["nodePools"][0].clone()
}

fn only_reads(log: &RequestLog) {
    let text = log.text();
    assert!(text.lines().count() > 10, "{text}");
    let writes: Vec<&str> = text.lines().filter(|line| !line.starts_with("GET ")).collect();
    assert!(writes.is_empty(), "{writes:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_shadow_launches_what_the_operator_launches_and_writes_nothing() {
    let cluster = Cluster::new(81).await;
    cluster
        .pool(
            "default",
            json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}),
        )
        .await;
    let log = RequestLog::new();
    let (report, _) = cluster.shadow(&log);
    let operator = cluster.operator(crate::faulty::Setup::default());
    cluster.pass(30).await;
    assert_eq!(report.json()["nodePools"], json!([]));

    cluster.run("web", 6, "3").await;
    cluster.pass(30).await;
    let then = row(&report);
    assert!(then["other"]["launches"].as_u64() > Some(0), "{then}");
    assert_eq!(then["shadow"]["launches"], then["other"]["launches"]);
    assert_eq!(then["shadow"]["launchPrice"], then["other"]["launchPrice"]);

    cluster.scale("web", 1).await;
    cluster.pass(300).await;
    let now = row(&report);
    assert!(now["other"]["nodesDisrupted"].as_u64() > Some(0), "{now}");
    assert_eq!(
        now["nodesDisruptedByBoth"],
        now["other"]["nodesDisrupted"],
        "{}",
        report.text()
    );
    let whole = report.json();
    assert_eq!(
        whole["price"], whole["priceAtRest"],
        "the operator has come to rest: {whole}"
    );
    only_reads(&log);
    operator.end().await;
}

#[tokio::test(start_paused = true)]
async fn where_nobody_acts_a_shadow_says_what_it_would_do_and_counts_it_once() {
    let (cluster, operator) = Cluster::started(
        82,
        json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}}),
    )
    .await;
    cluster.run("web", 6, "3").await;
    cluster.scale("web", 1).await;
    cluster.pass(60).await;
    operator.end().await;
    let log = RequestLog::new();
    let (report, _) = cluster.shadow(&log);
    cluster.pass(60).await;
    assert_eq!(report.json()["nodePools"], json!([]), "its budgets are closed");
    let open = json!({"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}});
    cluster.patch::<NodePool>("default", open).await;
    cluster.pass(1200).await;
    let now = row(&report);
    let (ours, others) = (&now["shadow"]["nodesDisrupted"], &now["other"]["nodesDisrupted"]);
    assert!(ours.as_u64() > Some(0), "{}", report.text());
    assert_eq!(others, 0);
    let whole = report.json();
    let (price, at_rest) = (whole["price"].as_f64(), whole["priceAtRest"].as_f64());
    assert!(at_rest < price && at_rest > Some(0.0), "a pod is left: {whole}");
    let differences = whole["differences"].as_array().expect("a list");
    assert_eq!(
        Some(differences.len() as u64),
        ours.as_u64(),
        "each node once: {whole}"
    );
    only_reads(&log);
}

/// Age, an interruption, a repair and a user end a node whoever runs the cluster: here the same program on both sides.
#[tokio::test(start_paused = true)]
async fn a_node_that_expires_or_is_deleted_by_hand_is_no_difference() {
    let expiring = json!({"template": {"spec": {"expireAfter": "10m"}}});
    let (cluster, operator, first) = Cluster::one_node(85, expiring).await;
    let log = RequestLog::new();
    let (report, _) = cluster.shadow(&log);
    cluster.pass(30).await;
    cluster.delete::<NodeClaim>(&first).await;
    cluster.until_gone::<NodeClaim>(&first).await;
    cluster.until_running_of("web", 1).await;
    let second = cluster.claim_of_pod("web").await;
    cluster.until_gone::<NodeClaim>(&second).await;
    cluster.until_running_of("web", 1).await;
    cluster.pass(60).await;
    let now = row(&report);
    let text = report.text();
    for side in ["shadow", "other"] {
        assert_eq!(now[side]["nodesDisrupted"], 0, "{side}: {text}");
        assert_eq!(now[side]["podsMoved"], 0, "{side}: {text}");
    }
    assert_eq!(now["nodesEndedOtherwise"], 2, "{text}");
    assert_eq!(report.json()["differences"], json!([]), "{text}");
    only_reads(&log);
    operator.end().await;
}

/// Before 1.2 Karpenter wrote no condition: the taint that comes before the deletion tells a command from another end.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_tainted_before_its_nodeclaim_is_deleted_was_disrupted() {
    let (cluster, operator, claim) = Cluster::one_node(86, json!({})).await;
    operator.end().await;
    let (report, _) = cluster.shadow(&RequestLog::new());
    cluster.pass(30).await;
    let node = cluster.node_of("web").await;
    let taints = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}});
    cluster.patch::<Node>(&node, taints).await;
    cluster.pass(5).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(5).await;
    let now = row(&report);
    let text = report.text();
    assert_eq!(now["other"]["nodesDisrupted"], 1, "{text}");
    assert_eq!(now["other"]["podsMoved"], 1, "{text}");
    assert_eq!(now["nodesEndedOtherwise"], 0, "{text}");
    assert_eq!(report.json()["differences"][0]["other"], "disrupted", "{text}");
}

/// Fifty nodes that are half empty, and larger machines for sale: what is left must have room for all pods.
#[tokio::test(start_paused = true)]
async fn the_price_at_rest_pays_for_every_pod() {
    let sizes = |sizes: &[&str]| {
        json!([
            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": sizes},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        ])
    };
    let closed = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}, "template": {"spec": {"requirements": sizes(&["4"])}}});
    let (cluster, operator) = Cluster::started(83, closed).await;
    cluster.run("web", 20, "2").await;
    let open = json!({"spec": {"disruption": {"budgets": [{"nodes": "10%"}]}, "template": {"spec": {"requirements": sizes(&["4", "8", "16"])}}}});
    cluster.pass(30).await;
    operator.end().await;
    cluster.patch::<NodePool>("default", open).await;
    let (report, _) = cluster.shadow(&RequestLog::new());
    cluster.pass(120).await;
    let whole = report.json();
    let (price, at_rest) = (
        whole["price"].as_f64().unwrap(),
        whole["priceAtRest"].as_f64().unwrap(),
    );
    // Twenty pods of two cores on twenty machines of four: more than half is paid for pods.
    assert!(at_rest < price * 0.9 && at_rest > price * 0.5, "{whole}");
}

// As the operator itself: a pod whose place the audit refuses leaves the others in the report, also those who would share its node.
#[tokio::test(start_paused = true)]
async fn invariant_22_a_shadow_counts_launches_beside_a_pod_whose_place_the_audit_refuses() {
    let (cluster, operator) = Cluster::started(84, json!({})).await;
    cluster.pass(10).await;
    operator.end().await;
    let (report, _) = cluster.shadow(&RequestLog::new());
    cluster.pass(10).await;
    let odd = template("odd", "5", without_place());
    cluster.deploy_with("odd", 3, odd).await;
    cluster.deploy("web", 1, "1").await;
    cluster.pass(60).await;
    let whole = report.json();
    assert!(whole["refusedByAudit"].as_u64() > Some(0), "{whole}");
    assert_eq!(row(&report)["shadow"]["launches"], 1, "{whole}");
}

/// Nodes of this NodePool are not what it asks for any more.
async fn new_team(cluster: &Cluster) {
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}});
    cluster.patch::<NodePool>("default", labels).await;
}

async fn roll_out(cluster: &Cluster) {
    let waves = json!({"metadata": {"name": "waves"}, "spec": {"rollout": {"soak": "1h"}}});
    cluster.create::<DisruptionPolicy>(waves).await;
}

/// Six drifted nodes, and an operator that writes down how far the roll-out is, but no command: the API server refuses those. What the shadow has decided counts
/// for the canary as the operator's own would, and so does what the operator takes once it may.
#[tokio::test(start_paused = true)]
async fn invariant_25_beside_an_operator_that_writes_a_roll_out_a_shadow_takes_one_wave() {
    let drift = json!({"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}});
    let (cluster, operator) = Cluster::started(87, drift).await;
    roll_out(&cluster).await;
    cluster.run("web", 6, "6").await;
    let log = RequestLog::new();
    let (report, _) = cluster.shadow(&log);
    cluster.pass(30).await;
    cluster.gate.trip("/disruptions", 403, u32::MAX);
    new_team(&cluster).await;
    cluster.pass(200).await;
    let policy: DisruptionPolicy = cluster.get("waves").await;
    let rollouts = policy.status.expect("a status").rollouts;
    let waves: Vec<_> = rollouts
        .iter()
        .map(|one| (one.phase.clone(), one.size, one.begun))
        .collect();
    assert_eq!(waves, [(RolloutPhase::Rolling, 1, 0)]);
    let now = row(&report);
    assert_eq!(now["shadow"]["nodesDisrupted"], 1, "{}", report.text());
    assert_eq!(now["other"]["nodesDisrupted"], 0, "{}", report.text());
    cluster.gate.stumbles.lock().unwrap().clear();
    cluster
        .until("the operator has taken its canary", async |cluster| {
            cluster.ended("Drifted", DisruptionPhase::Succeeded).await == 1
        })
        .await;
    cluster.pass(60).await;
    let now = row(&report);
    assert_eq!(now["shadow"]["nodesDisrupted"], 1, "{}", report.text());
    assert_eq!(now["other"]["nodesDisrupted"], 1, "{}", report.text());
    only_reads(&log);
    operator.end().await;
}

/// Beside an operator that knows no policies nobody writes how far a roll-out is. Empty nodes, where emptiness is stopped, go for their drift and count for it.
#[tokio::test(start_paused = true)]
async fn invariant_25_empty_nodes_that_a_shadow_takes_for_drift_count_for_its_canary() {
    let closed = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}});
    let (cluster, operator) = Cluster::started(88, closed).await;
    cluster.run("web", 3, "6").await;
    cluster.scale("web", 0).await;
    new_team(&cluster).await;
    cluster.pass(60).await;
    operator.end().await;
    roll_out(&cluster).await;
    let (report, _) = cluster.shadow(&RequestLog::new());
    cluster.pass(30).await;
    assert_eq!(report.json()["nodePools"], json!([]), "its budgets are closed");
    let for_drift = json!([{"nodes": "0", "reasons": ["Empty", "Underutilized"]}, {"nodes": "100%"}]);
    let open = json!({"spec": {"disruption": {"budgets": for_drift}}});
    cluster.patch::<NodePool>("default", open).await;
    cluster.pass(200).await;
    let now = row(&report);
    assert_eq!(now["shadow"]["nodesDisrupted"], 1, "{}", report.text());
}

/// One of two nodes is too large for what is left on it. Between the first look and the second a pod comes to the other or leaves it, as the operator has
/// noted it.
#[tokio::test(start_paused = true)]
async fn w_60_a_shadow_decides_a_move_again_where_pods_have_come_or_gone_since() {
    // A spot node is replaced by no cheaper one.
    let on_demand = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]);
    let closed = json!({"disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "0"}]}, "template": {"spec": {"requirements": on_demand}}});
    let (cluster, operator) = Cluster::started(89, closed).await;
    cluster.deploy("large", 1, "6").await;
    cluster.deploy("web", 1, "500m").await;
    cluster.until_running(2).await;
    // It leaves no room for `web` on its node.
    cluster.run("full", 1, "7600m").await;
    let restless = cluster.claim_of_pod("full").await;
    assert_ne!(restless, cluster.claim_of_pod("web").await);
    cluster.scale("large", 0).await;
    cluster.until_running(2).await;
    cluster.pass(60).await;
    operator.end().await;
    let (report, _) = cluster.shadow(&RequestLog::new());
    cluster.pass(20).await;
    let open = json!({"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}});
    cluster.patch::<NodePool>("default", open).await;
    // By now it has been decided, and it waits for its second look for some seconds more.
    cluster.pass(12).await;
    let event = json!({"lastPodEventTime": cluster.clock.now().to_string()});
    cluster.patch_status::<NodeClaim>(&restless, event).await;
    cluster.pass(18).await;
    assert_eq!(report.json()["nodePools"], json!([]), "{}", report.text());
    cluster.pass(150).await;
    let now = row(&report);
    assert_eq!(now["shadow"]["nodesDisrupted"], 1, "{}", report.text());
}
