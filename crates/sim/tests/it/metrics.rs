//! The metrics of P §16 and D App. D: every name is registered with its type, and what does not name single objects stays few.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::Options as OperatorOptions;

use crate::faulty::{Cluster, Setup};
use crate::words::*;

/// Names after `karpenter_`, by type.
const COUNTERS: &str = "nodeclaims_created_total nodeclaims_terminated_total nodeclaims_disrupted_total pods_disruption_initiated_total
    nodeclaims_unhealthy_disrupted_total nodes_created_total nodes_terminated_total nodes_drained_total nodepools_cost_tracker_errors_total
    pods_eviction_requests_total pods_drained_total cloudprovider_errors_total voluntary_disruption_decisions_total
    voluntary_disruption_decisions_by_nodepool_total voluntary_disruption_consolidation_timeouts_total
    voluntary_disruption_failed_validations_total voluntary_disruption_queue_failures_total
    consolidation_moves_total";
const GAUGES: &str = "build_info nodes_allocatable nodes_total_pod_requests nodes_total_pod_limits nodes_total_daemon_requests
    nodes_total_daemon_limits nodes_system_overhead nodes_current_lifetime_seconds cluster_utilization_percent nodepools_limit nodepools_usage
    nodepools_cost_total nodepools_allowed_disruptions nodepools_nodes_consuming_budgets pods_state pods_unstarted_time_seconds
    pods_unbound_time_seconds pods_provisioning_unbound_time_seconds pods_provisioning_unstarted_time_seconds
    pods_provisioning_scheduling_undecided_time_seconds scheduler_queue_depth scheduler_unfinished_work_seconds scheduler_ignored_pods_count
    scheduler_unschedulable_pods_count cluster_state_node_count cluster_state_synced cluster_state_unsynced_time_seconds
    voluntary_disruption_eligible_nodes scheduler_pending_pods_by_effective_zone_count";
const HISTOGRAMS: &str = "nodeclaims_termination_duration_seconds nodeclaims_instance_termination_duration_seconds
    nodes_lifetime_duration_seconds pods_bound_duration_seconds pods_provisioning_bound_duration_seconds
    pods_provisioning_startup_duration_seconds pods_scheduling_decision_duration_seconds scheduler_scheduling_duration_seconds
    cloudprovider_duration_seconds voluntary_disruption_decision_evaluation_duration_seconds consolidation_score";
const SUMMARIES: &str = "nodes_termination_duration_seconds pods_startup_duration_seconds";

fn names(list: &str) -> impl Iterator<Item = String> {
    list.split_whitespace().map(|name| format!("karpenter_{name}"))
}

/// Series of single objects too.
fn with_object_metrics() -> Setup {
    Setup::with_options(OperatorOptions {
        object_metrics: true,
        ..OperatorOptions::default()
    })
}

#[tokio::test(start_paused = true)]
async fn p_149_p_207_every_metric_has_upstreams_name_and_type() {
    let (cluster, operator) = Cluster::started_with(50, json!({}), with_object_metrics()).await;
    cluster.run("web", 2, "6").await;
    let node = cluster.names::<Node>().await.remove(0);
    cluster.delete::<Node>(&node).await;
    cluster.pass(60).await;
    cluster.until_running_of("web", 2).await;
    let text = operator.metrics.render();
    let registered: BTreeSet<String> = operator.metrics.names().into_iter().collect();
    for (list, kind) in [
        (COUNTERS, "counter"),
        (GAUGES, "gauge"),
        (HISTOGRAMS, "histogram"),
        (SUMMARIES, "summary"),
    ] {
        for name in names(list) {
            assert!(registered.contains(&name), "{name} is not registered");
            // Families without series are not rendered.
            if text.contains(&format!("# TYPE {name} ")) {
                assert!(
                    text.contains(&format!("# TYPE {name} {kind}\n")),
                    "{name} is no {kind}"
                );
            }
        }
    }
    for name in names(SUMMARIES) {
        let quantile = if name.contains("nodes") {
            format!("{name}{{nodepool=\"default\",quantile=\"0.99\"}}")
        } else {
            format!("{name}{{quantile=\"0.99\"}}")
        };
        assert!(text.contains(&quantile), "{quantile}:\n{text}");
    }
    for kind in ["nodeclaim", "nodepool", "node"] {
        for name in [
            "status_condition_transition_seconds",
            "status_condition_count",
            "status_condition_current_status_seconds",
            "status_condition_transitions_total",
            "termination_current_time_seconds",
            "termination_duration_seconds",
        ] {
            let name = format!("operator_{kind}_{name}");
            assert!(registered.contains(&name), "{name} is not registered");
        }
    }
    // What is gone is not in the next scrape.
    assert!(!text.contains(&format!("node_name=\"{node}\"")), "{node} is gone");
}

#[tokio::test(start_paused = true)]
async fn p_208_w_51_series_of_single_objects_are_asked_for_and_go_with_their_objects() {
    let (cluster, operator) = Cluster::started_with(35, json!({}), with_object_metrics()).await;
    let claim = cluster.run_one_pod().await;
    let node = cluster.names::<Node>().await.remove(0);
    let pod = cluster.names::<Pod>().await.remove(0);
    let text = operator.metrics.render();
    for line in [
        "karpenter_nodes_allocatable{arch=\"amd64\",capacity_type=".to_owned(),
        format!("node_name=\"{node}\""),
        "karpenter_nodes_total_pod_requests{".to_owned(),
        "karpenter_nodes_current_lifetime_seconds{".to_owned(),
        "karpenter_pods_state{".to_owned(),
        format!("name=\"{pod}\""),
        format!(
            "operator_nodeclaim_status_condition_count{{name=\"{claim}\",namespace=\"\",reason=\"Initialized\",status=\"True\",type=\"Initialized\"}} 1"
        ),
        "operator_nodepool_status_condition_current_status_seconds{name=\"default\"".to_owned(),
        "operator_nodeclaim_status_condition_transitions_total{".to_owned(),
        "karpenter_pods_startup_duration_seconds{quantile=".to_owned(),
        "karpenter_pods_bound_duration_seconds_count 1".to_owned(),
        "karpenter_pods_scheduling_decision_duration_seconds_count 1".to_owned(),
        "karpenter_cluster_state_synced 1".to_owned(),
        "karpenter_cluster_state_node_count 1".to_owned(),
        "karpenter_nodepools_cost_total{nodepool=\"default\"} 0.".to_owned(),
        "karpenter_build_info{".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    cluster.delete::<Deployment>("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster
        .until("the pod is gone", async |cluster| {
            cluster.list::<Pod>().await.is_empty()
        })
        .await;
    cluster.pass(5).await;
    let text = operator.metrics.render();
    for name in [&claim, &node, &pod] {
        assert!(!text.contains(name.as_str()), "{name} is still in\n{text}");
    }
    assert!(text.contains("operator_nodeclaim_termination_duration_seconds_count 1"));
    cluster.delete::<NodePool>("default").await;
    cluster.pass(30).await;
    let text = operator.metrics.render();
    let left: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("karpenter_nodepools_") && line.contains("nodepool=\"default\""))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
