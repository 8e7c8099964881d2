//! Nodes without pods: when they go, and what keeps them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodePool};

use crate::faulty;
use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

/// D App. G.1, scenario 1: the pod leaves at t, consolidateAfter is 30 s, validation takes 15 s.
#[tokio::test(start_paused = true)]
async fn g_1_1_an_empty_node_goes_after_its_window_and_the_second_look() {
    let cluster = Cluster::new(
        1,
        json!({"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}),
    )
    .await;
    let _operator = cluster.operator();
    one_busy_node(&cluster).await;
    cluster.pass(60).await;
    without_web(&cluster).await;
    let left = cluster.clock.now();
    cluster
        .until("the node is told to go", async |cluster| {
            cluster
                .list::<NodeClaim>()
                .await
                .iter()
                .all(NodeClaim::is_deleting)
        })
        .await;
    let took = cluster.clock.since(left).as_secs();
    assert!((40..=62).contains(&took), "deleted {took} s after its pod");
    cluster.until_empty().await;
    cluster.pass(10).await;
    let ledger = cluster.ledger().await;
    assert_eq!(ledger.len(), 1, "{:?}", cluster.ledger_text().await);
    let spec = &ledger[0].spec;
    assert_eq!(
        (
            spec.reason.as_str(),
            spec.decision.as_str(),
            spec.replacements.len(),
            spec.evictions
        ),
        ("Empty", "Delete", 0, 0)
    );
    assert_eq!(ledger[0].phase(), DisruptionPhase::Succeeded);
    assert_eq!(spec.price_after, "0");
    assert_eq!(spec.savings, spec.price_before);
    assert_eq!((spec.budgets[0].allowed, spec.budgets[0].charged), (1, 1));
    assert!(
        cluster
            .events("DisruptionTerminating")
            .await
            .contains(&"Disrupting Node: Empty".to_owned())
    );
    cluster.assert_at_rest().await;
}

/// Scenario 2: a pod comes back during the wait; nothing is touched.
#[tokio::test(start_paused = true)]
async fn g_1_2_d_094_a_pod_that_comes_back_keeps_the_node() {
    let cluster = Cluster::new(2, at_once()).await;
    let operator = cluster.operator();
    one_busy_node(&cluster).await;
    without_web(&cluster).await;
    cluster.pass(8).await;
    cluster.scale("web", 1).await;
    cluster.until_running(1).await;
    cluster.pass(60).await;
    cluster.assert_no_commands().await;
    assert_eq!(cluster.list::<Node>().await.len(), 1);
    let text = operator.metrics.render();
    assert!(
        text.lines().any(|line| line.starts_with(
            "karpenter_voluntary_disruption_failed_validations_total{consolidation_type=\"empty\"} 1"
        )),
        "D-094: {}",
        text.lines()
            .filter(|line| line.contains("failed_validations"))
            .collect::<String>()
    );
}

/// D-043, D-064: a change of the NodePool reaches the condition at once, and a pass that found nothing is followed by one ten seconds later.
#[tokio::test(start_paused = true)]
async fn d_043_d_064_changes_of_the_nodepool_are_seen_at_once_and_acted_on_within_ten_seconds() {
    let cluster = Cluster::new(37, json!({"consolidateAfter": "1h", "budgets": [{"nodes": "0"}]})).await;
    let _operator = cluster.operator();
    one_busy_node(&cluster).await;
    cluster.scale("web", 0).await;
    cluster.pass(60).await;
    let consolidatable = async || cluster.list::<NodeClaim>().await[0].is_true("Consolidatable");
    assert!(!consolidatable().await);
    let short = json!({"spec": {"disruption": {"consolidateAfter": "30s"}}});
    cluster.patch::<NodePool>("default", short).await;
    cluster.pass(2).await;
    assert!(consolidatable().await);
    cluster.pass(60).await;
    cluster.assert_no_commands().await;
    let open = json!({"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}});
    let start = cluster.clock.now();
    cluster.patch::<NodePool>("default", open).await;
    cluster
        .until("the command is written", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    let took = cluster.clock.since(start);
    // Ten seconds to the next pass at most, fifteen to the second look.
    assert!(
        (Duration::from_secs(15)..=Duration::from_secs(27)).contains(&took),
        "{took:?}"
    );
}

/// D-086, D-096: a command that waits for its second look when the operator ends was never there.
#[tokio::test(start_paused = true)]
async fn d_086_d_096_w_11_a_command_that_waits_ends_with_its_operator() {
    let cluster = Cluster::new(38, at_once()).await;
    let operator = cluster.operator();
    one_busy_node(&cluster).await;
    without_web(&cluster).await;
    cluster.pass(10).await;
    operator.kill().await;
    cluster.pass(60).await;
    cluster.assert_no_commands().await;
    cluster.assert_tidy().await;
    assert_eq!(cluster.list::<Node>().await.len(), 1);
    let _again = cluster.operator();
    cluster.until_empty().await;
}

/// Twenty nodes without a pod, of which no budget lets one go.
async fn twenty_kept_nodes(seed: u64) -> (faulty::Cluster, faulty::Running) {
    let closed = json!({"disruption": {
        "consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "0"}],
    }});
    let (cluster, operator) = faulty::Cluster::started(seed, closed).await;
    cluster.run("web", 20, "5").await;
    cluster.scale("web", 0).await;
    cluster.pass(60).await;
    (cluster, operator)
}

/// Opens the budget, until the nodes are deleted.
async fn let_go(cluster: &faulty::Cluster) {
    let open = json!({"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}});
    cluster.patch::<NodePool>("default", open).await;
    cluster
        .until("its nodes are deleted", async |cluster| {
            let are_deleted = |one: &Disruption| {
                matches!(
                    one.phase(),
                    DisruptionPhase::Draining | DisruptionPhase::Succeeded
                )
            };
            cluster.ledger().await.iter().any(are_deleted)
        })
        .await;
}

/// One after the other, the marks of twenty nodes would take twenty seconds.
#[tokio::test(start_paused = true)]
async fn d_098_d_111_the_nodes_of_a_command_are_marked_and_deleted_together() {
    let (cluster, _operator) = twenty_kept_nodes(111).await;
    *cluster.gate.slow.lock().unwrap() = Some(("/status", Duration::from_secs(1)));
    let_go(&cluster).await;
    let ledger = cluster.ledger().await;
    assert_eq!(ledger.len(), 1, "{:?}", cluster.ledger_text().await);
    assert_eq!(ledger[0].spec.nodes.len(), 20);
    let took = cluster.clock.now().duration_since(ledger[0].spec.decided_at.0);
    assert!(took.as_secs() < 10, "{took:?}");
}

// One after the other, the first mark that fails keeps the others from being asked for.
#[tokio::test(start_paused = true)]
async fn d_098_marks_that_fail_together_are_one_failure_for_circuit_breakers() {
    let (cluster, _operator) = twenty_kept_nodes(98).await;
    let breaker = json!({"circuitBreakers": {"apiServer": {"count": 2, "within": "20m"}}});
    let _: DisruptionPolicy = cluster
        .create(json!({"metadata": {"name": "careful"}, "spec": breaker}))
        .await;
    cluster.gate.trip("/nodes/", 500, 20);
    let_go(&cluster).await;
    cluster.gate.assert_tripped();
    cluster.pass(60).await;
    let policy: DisruptionPolicy = cluster.get("careful").await;
    let active = policy.status.map(|status| status.active).unwrap_or_default();
    let trips = |field: &str| field == "spec.circuitBreakers.apiServer";
    assert!(!active.iter().any(|rule| trips(&rule.field)), "{active:?}");
}
