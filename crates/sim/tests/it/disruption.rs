//! Voluntary disruption through the whole stack on virtual time: what a user does, what the ledger says, and what is left.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{NodeClaim, NodePool};

/// D App. G.1, scenario 1: the pod leaves at t, consolidateAfter is 30 s, validation takes 15 s.
#[tokio::test(start_paused = true)]
async fn g_1_1_an_empty_node_goes_after_its_window_and_the_second_look() {
    let cluster = Cluster::new(
        1,
        json!({"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}),
    )
    .await;
    let _operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
    cluster.pass(60).await;
    cluster.scale("web", 0).await;
    cluster
        .until("no pod is left", async |cluster| cluster.running().await == 0)
        .await;
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
    let cluster = Cluster::new(
        2,
        json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}),
    )
    .await;
    let operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
    cluster.scale("web", 0).await;
    cluster
        .until("no pod is left", async |cluster| cluster.running().await == 0)
        .await;
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

#[tokio::test(start_paused = true)]
async fn d_102_d_105_d_112_an_under_used_node_is_replaced_and_the_ledger_says_what_it_saved() {
    let cluster = Cluster::new(4, at_once()).await;
    let operator = cluster.operator();
    one_large_node(&cluster).await;
    without_large(&cluster).await;
    cluster.until("one small node", on_one_small_node).await;
    cluster.pass(60).await;
    let ledger = cluster.ledger().await;
    assert_eq!(ledger.len(), 1, "{:?}", cluster.ledger_text().await);
    let spec = &ledger[0].spec;
    assert_eq!(
        (spec.reason.as_str(), spec.decision.as_str(), spec.evictions),
        ("Underutilized", "Replace", 1)
    );
    let price = |text: &str| text.parse::<f64>().unwrap();
    let saved = price(&spec.price_before) - price(&spec.price_after);
    assert!(saved > 0.0 && (price(&spec.savings) - saved).abs() < 1e-9);
    assert_eq!(ledger[0].phase(), DisruptionPhase::Succeeded);
    // The replacement is the NodeClaim that was named before it was made.
    assert_eq!(
        cluster.names::<NodeClaim>().await,
        [spec.replacements[0].node_claim.clone()]
    );
    cluster.assert_at_rest().await;
    for (reason, message) in [
        ("DisruptionLaunching", "Launching NodeClaim: Underutilized"),
        (
            "DisruptionWaitingReadiness",
            "Waiting on readiness to continue disruption",
        ),
        ("DisruptionTerminating", "Disrupting NodeClaim: Underutilized"),
    ] {
        assert!(
            cluster.events(reason).await.contains(&message.to_owned()),
            "{reason}"
        );
    }
    let text = operator.metrics.render();
    for line in [
        "karpenter_voluntary_disruption_decisions_total{consolidation_type=\"single\",decision=\"replace\",reason=\"underutilized\"} 1",
        "karpenter_nodeclaims_created_total{min_values_relaxed=\"false\",nodepool=\"default\",reason=\"underutilized\"} 1",
    ] {
        let found = text
            .lines()
            .filter(|one| one.starts_with(line.split('{').next().unwrap()));
        assert!(
            text.lines().any(|one| one == line),
            "{line} is not among {:?}",
            found.collect::<Vec<_>>()
        );
    }
}

/// Scenario 3: one command over several nodes, and never two replacements for one.
#[tokio::test(start_paused = true)]
async fn g_1_3_several_under_used_nodes_go_together() {
    let cluster = Cluster::new(5, at_once()).await;
    let _operator = cluster.operator();
    three_large_nodes(&cluster).await;
    without_large(&cluster).await;
    cluster
        .until("three pods on fewer cores", three_pods_on_fewer_cores)
        .await;
    cluster.pass(60).await;
    cluster.assert_at_rest().await;
    let ledger = cluster.ledger().await;
    assert!(
        ledger.iter().any(|one| one.spec.nodes.len() > 1),
        "{:?}",
        cluster.ledger_text().await
    );
    assert!(ledger.iter().all(|one| one.spec.replacements.len() <= 1), "D-144");
}

/// Scenario 16: a changed template label drifts every node, a requirement that still allows them none.
#[tokio::test(start_paused = true)]
async fn g_1_16_template_changes_replace_nodes_and_loosened_requirements_do_not() {
    let cluster = Cluster::new(6, for_drift("1")).await;
    let _operator = cluster.operator();
    two_busy_nodes(&cluster).await;
    let looser = json!({"spec": {"template": {"spec": {"requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux", "windows"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "Exists"},
    ]}}}});
    cluster.patch::<NodePool>("default", looser).await;
    cluster.pass(120).await;
    cluster.assert_no_commands().await;
    new_team(&cluster).await;
    cluster
        .until("the first node is in a command", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    let old = cluster.list::<NodeClaim>().await;
    for claim in old.into_iter().filter(|claim| claim.label("team").is_none()) {
        let conditions = claim.status.unwrap_or_default().conditions;
        let drifted = conditions.iter().find(|one| one.type_ == "Drifted").unwrap();
        assert_eq!(
            (drifted.reason.as_str(), drifted.message.as_str()),
            ("NodePoolDrifted", "NodePoolDrifted")
        );
    }
    cluster
        .until("both nodes are new", two_nodes_of_the_new_team)
        .await;
    cluster.pass(30).await;
    cluster.assert_at_rest().await;
    assert_eq!(cluster.ended("Drifted", DisruptionPhase::Succeeded).await, 2);
    assert!(
        cluster
            .ledger()
            .await
            .iter()
            .all(|one| one.spec.budgets[0].allowed == 1)
    );
}

/// Scenario 17: hashes of another version are re-stamped, and nothing drifts.
#[tokio::test(start_paused = true)]
async fn g_1_17_d_224_another_hash_version_drifts_nothing() {
    let cluster = Cluster::new(7, for_drift("100%")).await;
    let first = cluster.operator();
    two_busy_nodes(&cluster).await;
    first.kill().await;
    let theirs = json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "1234", "karpenter.sh/nodepool-hash-version": "v3"}}});
    cluster.patch::<NodePool>("default", theirs.clone()).await;
    for name in cluster.names::<NodeClaim>().await {
        cluster.patch::<NodeClaim>(&name, theirs.clone()).await;
    }
    new_team(&cluster).await;
    let _again = cluster.operator();
    cluster.pass(600).await;
    cluster.assert_no_commands().await;
    for claim in cluster.list::<NodeClaim>().await {
        assert_eq!(
            claim.annotation("karpenter.sh/nodepool-hash-version"),
            Some(spokeshave_api::hash::VERSION)
        );
        assert_ne!(claim.annotation("karpenter.sh/nodepool-hash"), Some("1234"));
    }
}

/// Scenario 11: ten drifted nodes and a budget of two.
#[tokio::test(start_paused = true)]
async fn g_1_11_never_more_nodes_under_way_than_the_budget_allows() {
    let cluster = Cluster::new(8, for_drift("2")).await;
    let _operator = cluster.operator();
    cluster.deploy("web", 10, "6").await;
    cluster.until_running(10).await;
    new_team(&cluster).await;
    let start = cluster.clock.now();
    loop {
        let claims = cluster.list::<NodeClaim>().await;
        let has = |claim: &NodeClaim, type_: &str| {
            let conditions = claim
                .status
                .as_ref()
                .map(|status| status.conditions.as_slice())
                .unwrap_or_default();
            conditions
                .iter()
                .any(|one| one.type_ == type_ && one.status == "True")
        };
        let under_way = claims
            .iter()
            .filter(|claim| has(claim, "DisruptionReason") && !has(claim, "InstanceTerminating"))
            .count();
        assert!(
            under_way <= 2,
            "{under_way} nodes are under way: {:?}",
            cluster.ledger_text().await
        );
        if cluster.ended("Drifted", DisruptionPhase::Succeeded).await == 10 {
            break;
        }
        assert!(
            cluster.clock.since(start) < Cluster::LIMIT,
            "{:?}",
            cluster.ledger_text().await
        );
        cluster.clock.sleep(Duration::from_millis(500)).await;
    }
    cluster.until_running(10).await;
    cluster.pass(30).await;
    cluster.assert_at_rest().await;
}

async fn annotate_pods(cluster: &Cluster, value: Value) {
    for pod in cluster.names::<Pod>().await {
        cluster
            .annotate::<Pod>(&pod, "karpenter.sh/do-not-disrupt", value.clone())
            .await;
    }
}

/// Scenario 6: protection for ten minutes from the start of the pod.
#[tokio::test(start_paused = true)]
async fn g_1_6_a_duration_protects_for_that_long() {
    let cluster = Cluster::new(9, at_once()).await;
    let _operator = cluster.operator();
    one_large_node(&cluster).await;
    let start = cluster.clock.now();
    annotate_pods(&cluster, json!("10m")).await;
    without_large(&cluster).await;
    cluster.pass(9 * 60).await;
    cluster.assert_no_commands().await;
    assert!(
        cluster
            .events("DisruptionBlocked")
            .await
            .iter()
            .any(|text| text.starts_with("Pod has \"karpenter.sh/do-not-disrupt\" annotation"))
    );
    cluster.until("one small node", on_one_small_node).await;
    assert!(cluster.clock.since(start) >= Duration::from_secs(9 * 60 + 30));
}

/// Scenarios 7 and 8: with a terminationGracePeriod drift passes protected pods, never a protected node; consolidation passes neither.
#[tokio::test(start_paused = true)]
async fn g_1_7_g_1_8_drift_with_a_grace_period() {
    for protect_node in [true, false] {
        let cluster = Cluster::new(10, for_drift("100%")).await;
        let grace = json!({"spec": {"template": {"spec": {"terminationGracePeriod": "60s"}}}});
        cluster.patch::<NodePool>("default", grace).await;
        let _operator = cluster.operator();
        cluster.deploy("web", 1, "6").await;
        cluster.until_running(1).await;
        if protect_node {
            let name = cluster.names::<Node>().await.remove(0);
            cluster
                .annotate::<Node>(&name, "karpenter.sh/do-not-disrupt", "true")
                .await;
        } else {
            annotate_pods(&cluster, json!("true")).await;
        }
        new_team(&cluster).await;
        if protect_node {
            cluster.pass(600).await;
            cluster.assert_no_commands().await;
        } else {
            cluster
                .until("the node is replaced", async |cluster| {
                    cluster.ended("Drifted", DisruptionPhase::Succeeded).await == 1
                        && cluster.running().await == 1
                })
                .await;
        }
    }
}

/// A pod annotated do-not-disrupt between decision and taint: nothing is touched. Without the annotation it goes on.
#[tokio::test(start_paused = true)]
async fn a_pod_protected_between_decision_and_taint_keeps_its_node() {
    let cluster = Cluster::new(15, at_once()).await;
    let _operator = cluster.operator();
    one_large_node(&cluster).await;
    without_large(&cluster).await;
    cluster
        .until("the large pod is gone", async |cluster| {
            cluster.list::<Pod>().await.len() == 1
        })
        .await;
    cluster.pass(12).await;
    annotate_pods(&cluster, json!("true")).await;
    cluster.pass(120).await;
    cluster.assert_no_commands().await;
    cluster.assert_tidy().await;
    annotate_pods(&cluster, Value::Null).await;
    cluster.until("one small node", on_one_small_node).await;
}

async fn until_replacing(cluster: &Cluster) {
    cluster
        .until("a replacement is on its way", async |cluster| {
            cluster
                .ledger()
                .await
                .iter()
                .any(|one| one.phase() == DisruptionPhase::Replacing)
        })
        .await;
}

/// Annotated while the replacement comes: the command is taken back, and what was bought for it goes again.
#[tokio::test(start_paused = true)]
async fn a_pod_protected_in_mid_command_takes_it_back() {
    let cluster = Cluster::new(16, at_once()).await;
    let _operator = cluster.operator();
    one_large_node(&cluster).await;
    let node = cluster.names::<Node>().await;
    without_large(&cluster).await;
    until_replacing(&cluster).await;
    annotate_pods(&cluster, json!("true")).await;
    cluster
        .until("the command is taken back", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    cluster
        .until("only the old node is left", async |cluster| {
            cluster.names::<Node>().await == node && cluster.list::<NodeClaim>().await.len() == 1
        })
        .await;
    cluster.pass(30).await;
    cluster.assert_at_rest().await;
    let message = cluster.ledger().await[0].status.clone().unwrap().message.unwrap();
    assert!(
        message.ends_with("is annotated karpenter.sh/do-not-disrupt"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_or_cordoned_by_hand_in_mid_command() {
    for by_hand in ["delete node", "delete nodeclaim", "cordon", "delete disruption"] {
        let cluster = Cluster::new(17, at_once()).await;
        let _operator = cluster.operator();
        one_large_node(&cluster).await;
        let (node, claim) = (
            cluster.names::<Node>().await.remove(0),
            cluster.names::<NodeClaim>().await.remove(0),
        );
        without_large(&cluster).await;
        until_replacing(&cluster).await;
        match by_hand {
            "delete node" => cluster.delete::<Node>(&node).await,
            "delete nodeclaim" => cluster.delete::<NodeClaim>(&claim).await,
            "delete disruption" => {
                let name = cluster.names::<Disruption>().await.remove(0);
                cluster.delete::<Disruption>(&name).await;
            }
            _ => {
                cluster
                    .patch::<Node>(&node, json!({"spec": {"unschedulable": true}}))
                    .await;
            }
        }
        cluster
            .until(
                &format!("one small node in spite of: {by_hand}"),
                on_one_small_node,
            )
            .await;
        cluster.pass(60).await;
        cluster.assert_at_rest().await;
        assert!(on_one_small_node(&cluster).await, "{by_hand}");
    }
}

/// Scenario 14: a replacement that never registers takes the command back; the node stays as it was, and what was bought goes again.
#[tokio::test(start_paused = true)]
async fn g_1_14_d_115_d_116_d_117_d_270_w_50_a_replacement_that_never_registers() {
    let cluster = Cluster::new(18, at_once()).await;
    let first = cluster.operator();
    one_large_node(&cluster).await;
    first.kill().await;
    let broken = cluster.operator_with(never_registers());
    let start = cluster.clock.now();
    without_large(&cluster).await;
    cluster
        .until("the command is taken back", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    assert!(cluster.clock.since(start) >= Duration::from_secs(600), "D-114");
    cluster.pass(10).await;
    assert_eq!((cluster.running().await, cores(&cluster).await), (1, vec![8]));
    cluster.assert_at_rest().await;
    let text = broken.metrics.render();
    let failures = "karpenter_voluntary_disruption_queue_failures_total{consolidation_type=\"single\",decision=\"replace\",reason=\"underutilized\"} 1";
    assert!(text.lines().any(|line| line == failures), "D-117");
    broken.kill().await;
    let _whole = cluster.operator();
    cluster.until("one small node", on_one_small_node).await;
}

/// A new leader whose clock is wrong, in mid-command: ahead, the command looks too old and is taken back; behind, it goes on,
/// or its replacement is given up and another one comes.
/// The simulated cloud keeps the operator's time, so a clock that is far behind would only make the cloud wait.
#[tokio::test(start_paused = true)]
async fn a_leader_with_a_wrong_clock_finishes_or_takes_back() {
    for off_by in [240, -120] {
        let cluster = Cluster::new(20, at_once()).await;
        let first = cluster.operator();
        one_large_node(&cluster).await;
        without_large(&cluster).await;
        until_replacing(&cluster).await;
        first.kill().await;
        cluster.pass(420).await;
        let _again = cluster.operator_off_by(off_by);
        cluster
            .until(
                &format!("one small node by a clock off by {off_by} s"),
                on_one_small_node,
            )
            .await;
        cluster.pass(60).await;
        cluster.assert_at_rest().await;
        let taken_back = cluster.ended("Underutilized", DisruptionPhase::RolledBack).await;
        let expected = if off_by > 0 { 1..=1 } else { 0..=1 };
        assert!(
            expected.contains(&taken_back),
            "{:?}",
            cluster.ledger_text().await
        );
    }
}

/// A restart in mid-command goes on with it: the same replacement, one command.
#[tokio::test(start_paused = true)]
async fn g_1_15_d_072_a_restart_in_mid_command_goes_on() {
    let cluster = Cluster::new(21, at_once()).await;
    let first = cluster.operator();
    one_large_node(&cluster).await;
    without_large(&cluster).await;
    until_replacing(&cluster).await;
    first.kill().await;
    cluster.pass(60).await;
    let _again = cluster.operator();
    cluster.until("one small node", on_one_small_node).await;
    cluster.pass(30).await;
    cluster.assert_at_rest().await;
    let ledger = cluster.ledger().await;
    assert_eq!(
        (ledger.len(), ledger[0].phase()),
        (1, DisruptionPhase::Succeeded),
        "{:?}",
        cluster.ledger_text().await
    );
}

/// A cluster at rest is left in peace, and each node that stays says why.
#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written_and_the_verdict_stands_on_the_node_claim() {
    let cluster = Cluster::new(22, at_once()).await;
    let (_operator, writes_left) = cluster.counted_operator();
    one_large_node(&cluster).await;
    annotate_pods(&cluster, json!("true")).await;
    without_large(&cluster).await;
    cluster.pass(300).await;
    let claim = cluster.list::<NodeClaim>().await.remove(0);
    let conditions = claim.status.unwrap_or_default().conditions;
    let verdict = conditions
        .iter()
        .find(|one| one.type_ == "spokeshave.dev/Disruptable")
        .unwrap_or_else(|| panic!("no verdict among {conditions:?}"));
    assert_eq!(
        (verdict.status.as_str(), verdict.reason.as_str()),
        ("False", "Keep")
    );
    assert!(
        verdict.message.contains("do-not-disrupt") && verdict.message.contains("; if "),
        "{}",
        verdict.message
    );
    let before = writes_left.load(Ordering::Relaxed);
    cluster.pass(3 * 3600).await;
    assert_eq!(
        before - writes_left.load(Ordering::Relaxed),
        0,
        "writes in three hours at rest"
    );
}

/// The ledger is short: what has ended is kept for a day.
#[tokio::test(start_paused = true)]
async fn the_ledger_forgets_after_a_day() {
    let cluster = Cluster::new(
        3,
        json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}),
    )
    .await;
    let operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
    cluster.scale("web", 0).await;
    cluster.until_empty().await;
    cluster.pass(5).await;
    let names = cluster.names::<Disruption>().await;
    assert!(
        names.len() == 1 && names[0].starts_with("20260101-0"),
        "{names:?}"
    );
    // The one who forgets need not be the one who wrote.
    operator.kill().await;
    let _again = cluster.operator();
    cluster.pass(23 * 3600).await;
    assert_eq!(cluster.ledger().await.len(), 1);
    cluster.pass(3700).await;
    cluster.assert_no_commands().await;
    assert!(
        cluster
            .list::<Node>()
            .await
            .iter()
            .all(|node| node.name_any().is_empty())
    );
}

/// Two commands are decided in one instant: the second leaves room for the replacement that the first has yet to make.
#[tokio::test(start_paused = true)]
async fn invariant_15_a_limit_holds_for_replacements_that_are_decided_together() {
    let cluster = Cluster::new(41, for_drift("100%")).await;
    let _operator = cluster.operator();
    two_busy_nodes(&cluster).await;
    cluster.disrupted_pool("small", for_drift("100%")).await;
    // It is preferred, and has room for one of the two.
    let small = json!({"spec": {"weight": 10, "limits": {"cpu": "8"}}});
    cluster.patch::<NodePool>("small", small).await;
    cluster.pass(60).await;
    new_team(&cluster).await;
    let mut most = 0;
    cluster
        .until("both nodes are replaced", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            let in_small = claims
                .iter()
                .filter(|claim| claim.label("karpenter.sh/nodepool") == Some("small"));
            most = most.max(in_small.count());
            cluster.ended("Drifted", DisruptionPhase::Succeeded).await == 2
        })
        .await;
    assert_eq!(most, 1, "{:?}", cluster.ledger_text().await);
}
