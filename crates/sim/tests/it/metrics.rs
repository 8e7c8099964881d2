//! The metrics of P §16 and D App. D: every name is registered with its type, and what does not name single objects stays few.

use std::collections::BTreeSet;

use crate::faulty::{Cluster, Setup};
use crate::words::*;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_controllers::Options as OperatorOptions;

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

#[tokio::test(start_paused = true)]
async fn p_149_p_207_every_metric_has_upstreams_name_and_type() {
    let cluster = Cluster::new(50).await;
    cluster.pool("default", json!({})).await;
    let operator = cluster.operator(Setup {
        options: OperatorOptions {
            object_metrics: true,
            ..OperatorOptions::default()
        },
        ..Setup::default()
    });
    cluster.deploy("web", 2, "6").await;
    cluster.until_running_of("web", 2).await;
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
