//! Underutilized nodes: which are removed, what replaces them, and when it is not worth it.

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use spokeshave_api::conditions::{Conditioned as _, VERDICT};
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::Options;

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

fn machine(family: &str, cores: u32, arch: &str) -> String {
    format!("{family}-{cores}x-{arch}-linux")
}

/// Types that cost less than `c-8x-amd64-linux`, so many of them.
fn cheaper(count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for cores in [1, 2, 4] {
        for family in ["c", "s", "m"] {
            for arch in ["amd64", "arm64"] {
                names.push(machine(family, cores, arch));
            }
        }
    }
    names.truncate(count);
    names.push(machine("c", 8, "amd64"));
    names
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
    three_large_nodes_become_fewer_cores(&cluster).await;
    cluster.assert_at_rest().await;
    let ledger = cluster.ledger().await;
    assert!(
        ledger.iter().any(|one| one.spec.nodes.len() > 1),
        "{:?}",
        cluster.ledger_text().await
    );
    assert!(ledger.iter().all(|one| one.spec.replacements.len() <= 1), "D-144");
}

/// Scenario 4: two large nodes and a small one whose pods all fit the small one: the large ones are removed, and no small one is launched.
#[tokio::test(start_paused = true)]
async fn g_1_4_d_162_what_is_there_already_is_not_bought() {
    let never = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]});
    let cluster = Cluster::new(31, never).await;
    let types = [machine("c", 1, "amd64"), machine("c", 8, "amd64")];
    cluster.sells_only(&types, &["on-demand"]).await;
    let _operator = cluster.operator();
    cluster.deploy("large", 2, "7600m").await;
    cluster.until_running(2).await;
    cluster.deploy("web", 2, "150m").await;
    cluster.until_running(4).await;
    cluster.deploy("tiny", 1, "500m").await;
    cluster.until_running(5).await;
    assert_eq!(cores(&cluster).await, [1, 8, 8]);
    cluster.scale("large", 0).await;
    cluster.until_running(3).await;
    let open = json!({"spec": {"disruption": {"consolidateAfter": "0s"}}});
    cluster.patch::<NodePool>("default", open).await;
    cluster
        .until("one small node", async |cluster| {
            cluster.running().await == 3 && cores(cluster).await == [1]
        })
        .await;
    cluster.pass(60).await;
    cluster.assert_at_rest().await;
    for one in cluster.ledger().await {
        assert!(
            one.spec.replacements.is_empty(),
            "{:?}",
            cluster.ledger_text().await
        );
    }
}

/// Scenario 5: 14 cheaper spot types are too few, of 15 all may be launched.
#[tokio::test(start_paused = true)]
async fn g_1_5_spot_to_spot_needs_fifteen_cheaper_types() {
    for (count, enough) in [(14, false), (15, true)] {
        let cluster = Cluster::new(30, at_once()).await;
        cluster.sells_only(&cheaper(count), &["spot"]).await;
        let _operator = cluster.operator_set(Options {
            spot_to_spot_consolidation: true,
            ..Options::default()
        });
        one_large_node(&cluster).await;
        without_large(&cluster).await;
        if enough {
            cluster.until("one small node", on_one_small_node).await;
            let ledger = cluster.ledger().await;
            let requirements = serde_json::to_value(&ledger[0].spec.replacements[0].spec).unwrap();
            let types = requirements["requirements"]
                .as_array()
                .unwrap()
                .iter()
                .find(|one| one["key"] == "node.kubernetes.io/instance-type")
                .unwrap_or_else(|| panic!("{requirements}"));
            assert_eq!(types["values"].as_array().unwrap().len(), 15, "D-157");
        } else {
            cluster.pass(300).await;
            cluster.assert_no_commands().await;
            cluster.assert_said("Unconsolidatable", "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got 14").await;
        }
    }
}

/// Scenario 28: what little it saves is not worth moving every pod of the pool under `Balanced`; under the policy that takes any advantage it is.
#[tokio::test(start_paused = true)]
async fn g_1_28_d_173_d_179_d_180_a_small_saving_is_not_worth_all_pods() {
    for (policy, goes) in [("Balanced", false), ("WhenEmptyOrUnderutilized", true)] {
        let disruption =
            json!({"consolidateAfter": "0s", "consolidationPolicy": policy, "budgets": [{"nodes": "100%"}]});
        let cluster = Cluster::new(34, disruption).await;
        // Only the machine with much memory is available at first.
        cluster
            .sells_only(&[machine("m", 8, "amd64")], &["on-demand"])
            .await;
        let operator = cluster.operator();
        one_busy_node(&cluster).await;
        let both = [machine("m", 8, "amd64"), machine("s", 8, "amd64")];
        cluster.sells_only(&both, &["on-demand"]).await;
        if goes {
            cluster
                .until("the cheaper machine", async |cluster| {
                    cluster.ended("Underutilized", DisruptionPhase::Succeeded).await == 1
                })
                .await;
        } else {
            cluster.pass(300).await;
            cluster.assert_no_commands().await;
            let claim = cluster.list::<NodeClaim>().await.remove(0);
            let verdict = claim.condition(VERDICT).unwrap();
            assert!(verdict.message.starts_with("score 0."), "{}", verdict.message);
        }
        let decision = if goes { "approved" } else { "rejected" };
        let labels = format!("{{decision=\"{decision}\",nodepool=\"default\",policy=\"{policy}\"}}");
        let metrics = operator.metrics.render();
        assert!(
            metrics.contains(&format!("karpenter_consolidation_moves_total{labels} ")),
            "{labels}"
        );
        let scored = metrics.contains(&format!("karpenter_consolidation_score_count{labels} "));
        assert_eq!(
            scored,
            policy == "Balanced",
            "D-180: only where the policy asks for a score"
        );
    }
}

/// Scenario 29: a neighbour whose pods have just changed takes no pods of consolidation, and does take those of drift.
#[tokio::test(start_paused = true)]
async fn g_1_29_d_044_a_restless_neighbour_takes_pods_of_drift_only() {
    let cluster = Cluster::new(
        35,
        json!({"consolidateAfter": "10m", "budgets": [{"nodes": "100%"}]}),
    )
    .await;
    cluster
        .sells_only(&[machine("c", 8, "amd64")], &["on-demand"])
        .await;
    let _operator = cluster.operator();
    two_nodes_and_web(&cluster, ["left", "right"]).await;
    let quiet = cluster.node_of("web").await;
    let [emptied, other] = beside_web_and_apart(&cluster, ["left", "right"]).await;
    let restless = cluster.node_of(other).await;
    assert_ne!(quiet, restless);
    cluster.scale(emptied, 0).await;
    for round in 0..5 {
        let pod = json!({"metadata": {"name": format!("tick-{round}")}, "spec": {
            "nodeName": restless, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}]}});
        cluster.create::<Pod>(pod).await;
        cluster.pass(4 * 60).await;
    }
    cluster.assert_no_commands().await;
    let claims = cluster.list::<NodeClaim>().await;
    let verdicts: Vec<&String> = claims
        .iter()
        .filter_map(|claim| Some(&claim.condition(VERDICT)?.message))
        .collect();
    assert!(
        verdicts.iter().any(|text| text.contains("consolidateAfter")),
        "{verdicts:?}"
    );
    new_team(&cluster).await;
    cluster
        .until("drift moves pods to a neighbour", async |cluster| {
            cluster
                .ledger()
                .await
                .iter()
                .any(|one| one.spec.reason.as_str() == "Drifted" && one.spec.replacements.is_empty())
        })
        .await;
}

/// D-049, D-067, D-104…D-106, D-118: what can be read off a replace and a delete.
#[tokio::test(start_paused = true)]
async fn d_049_d_067_d_104_d_105_d_118_metrics_and_nominations_of_commands() {
    let cluster = Cluster::new(39, at_once()).await;
    let operator = cluster.operator();
    three_large_nodes_become_fewer_cores(&cluster).await;
    let metrics = &operator.metrics;
    let value = |family: &str, labels: &str| {
        reading(metrics, family, labels).unwrap_or_else(|| panic!("{family} is not among the metrics"))
    };
    assert!((value("karpenter_cluster_state_synced", "") - 1.0).abs() < 1e-9);
    assert!(value("karpenter_cluster_state_unsynced_time_seconds", "") < 1.0);
    let nodes = cluster.list::<Node>().await.len();
    assert_eq!(value("karpenter_cluster_state_node_count", "") as usize, nodes);
    assert!(
        value(
            "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count",
            "{consolidation_type=\"multi\",reason=\"underutilized\"}"
        ) > 0.0
    );
    let commands = cluster.ledger().await.len();
    let decisions = sum(metrics, "karpenter_voluntary_disruption_decisions_total");
    assert_eq!(decisions as usize, commands, "{:?}", cluster.ledger_text().await);
    let by_pool = sum(
        metrics,
        "karpenter_voluntary_disruption_decisions_by_nodepool_total",
    );
    assert_eq!(by_pool as usize, commands, "one NodePool");
    assert!(
        cluster
            .events("Nominated")
            .await
            .iter()
            .any(|message| message.starts_with("Pod should schedule on: ")),
        "{:?}",
        cluster.events("Nominated").await
    );
    for one in cluster.ledger().await {
        assert_eq!(one.phase(), DisruptionPhase::Succeeded);
    }
}
