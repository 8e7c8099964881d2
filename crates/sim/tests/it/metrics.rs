//! The metrics of P §16 and D App. D, as a scrape of a whole cluster shows them: what they are, what they count, and that series go with their objects.

mod amounts;
mod honest;
mod queries;
mod reference;
mod series;
mod shapes;
mod types;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::Options as OperatorOptions;

use crate::faulty::{Cluster, Setup};
use crate::words::*;

/// Series of single objects too.
pub fn with_object_metrics() -> Setup {
    Setup::with_options(OperatorOptions {
        object_metrics: true,
        ..OperatorOptions::default()
    })
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
            "operator_nodeclaim_status_condition_count{{karpenter_kwok_sh_kwoknodeclass=\"default\",karpenter_sh_nodepool=\"default\",name=\"{claim}\",namespace=\"\",reason=\"Initialized\",status=\"True\",type=\"Initialized\"}} 1"
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
    let metrics = &operator.metrics;
    let of_claims = "karpenter_kwok_sh_kwoknodeclass=\"default\",karpenter_sh_nodepool=\"default\"";
    assert_counted_once(
        metrics,
        "operator_nodeclaim_termination_duration_seconds_count",
        of_claims,
    );
    let of_nodes = "karpenter_sh_initialized=\"true\",karpenter_sh_nodepool=\"default\"";
    assert_counted_once(
        metrics,
        "operator_node_termination_duration_seconds_count",
        of_nodes,
    );
    cluster.delete::<NodePool>("default").await;
    cluster.pass(30).await;
    let text = operator.metrics.render();
    let left: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("karpenter_nodepools_") && line.contains("nodepool=\"default\""))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What `SpokeshaveDrainHangs` asks for, also without the series of single objects: it grows while a node hangs, and goes with the last one that does.
#[tokio::test(start_paused = true)]
async fn d_331_the_oldest_termination_that_is_held_up_has_its_age_by_reason() {
    const LONGEST: &str = "spokeshave_termination_blocked_longest_seconds";
    let (cluster, operator) = Cluster::started(168, json!({})).await;
    let longest = |reason: &str| reading(&operator.metrics, LONGEST, reason);
    cluster.run("web", 3, "1").await;
    cluster.budget("web", json!({"minAvailable": 3})).await;
    cluster.pass(5).await;
    assert_eq!(longest(""), None, "nothing is held up");
    let claim = cluster.claim_of_pod("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_blocked(&claim, "PodDisruptionBudget").await;
    cluster.pass(3_600).await;
    let age = longest("reason=\"PodDisruptionBudget\"").expect("a series");
    assert!((3_600.0..3_700.0).contains(&age), "{age}");
    let looser = json!({"spec": {"minAvailable": 1}});
    cluster.patch::<PodDisruptionBudget>("web", looser).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.pass(5).await;
    assert_eq!(longest(""), None, "nothing is held up any more");
}
