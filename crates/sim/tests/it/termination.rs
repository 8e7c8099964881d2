//! The end of nodes through the whole stack (D §7.1–7.5, §8): what is deleted, in which order, what is counted and told.

use std::time::Duration;

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_controllers::{EvictionRate, Options as OperatorOptions};
use spokeshave_provider_kwok::KwokOptions;

fn finalizers(claim: &NodeClaim) -> Vec<String> {
    claim.metadata.finalizers.clone().unwrap_or_default()
}

async fn one_node(seed: u64, change: Value) -> (Cluster, Running, String) {
    let cluster = Cluster::new(seed).await;
    cluster.pool("default", change).await;
    let operator = cluster.operator(Setup::default());
    cluster.deploy("web", 1, "1").await;
    cluster.until_running_of("web", 1).await;
    let claim = cluster.claim_of_pod("web").await;
    (cluster, operator, claim)
}

#[tokio::test(start_paused = true)]
async fn d_297_d_298_d_308_d_310_d_316_d_332_d_333_d_348_d_350_deleting_the_node_ends_its_claim_and_both_carry_the_finalizer()
 {
    let (cluster, operator, name) = one_node(21, json!({})).await;
    let claim = cluster.get::<NodeClaim>(&name).await;
    assert_eq!(finalizers(&claim), ["karpenter.sh/termination"]);
    let node = claim.status.unwrap().node_name.unwrap();
    let object = cluster.get::<Node>(&node).await;
    assert!(
        object
            .finalizers()
            .iter()
            .any(|one| one == "karpenter.sh/termination")
    );
    cluster.delete::<Node>(&node).await;
    cluster.pass(2).await;
    // D-308: the claim is deleted at the beginning of the node's termination; D-310: taint and label.
    let claim = cluster.get::<NodeClaim>(&name).await;
    assert!(claim.is_deleting(), "at the beginning, not after the drain");
    let object = cluster.get::<Node>(&node).await;
    assert_eq!(
        object
            .labels()
            .get("node.kubernetes.io/exclude-from-external-load-balancers"),
        Some(&"karpenter".to_owned())
    );
    cluster.until_gone::<NodeClaim>(&name).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
    // D-316, D-332, D-333, D-350, D-348: what is counted.
    let metrics = &operator.metrics;
    assert!(
        (value(
            metrics,
            "karpenter_nodes_terminated_total",
            "nodepool=\"default\""
        ) - 1.0)
            .abs()
            < 0.1
    );
    assert!(
        (value(
            metrics,
            "karpenter_nodes_termination_duration_seconds_count",
            "default"
        ) - 1.0)
            .abs()
            < 0.1
    );
    assert!(
        (value(
            metrics,
            "karpenter_nodes_lifetime_duration_seconds_count",
            "default"
        ) - 1.0)
            .abs()
            < 0.1
    );
    assert!((value(metrics, "karpenter_nodes_drained_total", "default") - 1.0).abs() < 0.1);
    assert!((value(metrics, "karpenter_nodeclaims_terminated_total", "default") - 1.0).abs() < 0.1);
    assert!(
        (value(
            metrics,
            "karpenter_nodeclaims_termination_duration_seconds_count",
            "default"
        ) - 1.0)
            .abs()
            < 0.1
    );
    assert!(
        (value(
            metrics,
            "karpenter_nodeclaims_instance_termination_duration_seconds_count",
            "default"
        ) - 1.0)
            .abs()
            < 0.1
    );
    assert!((value(metrics, "karpenter_pods_eviction_requests_total", "code=\"200\"") - 1.0).abs() < 0.1);
    assert!(
        (value(
            metrics,
            "karpenter_pods_drained_total",
            "reason=\"Forceful Termination\""
        ) - 1.0)
            .abs()
            < 0.1
    );
    let told = cluster.told("Evicted").await;
    assert!(
        told.iter()
            .any(|(_, text)| text == "Evicted pod: Forceful Termination"),
        "{told:?}"
    );
    // P §17: conditions and finalizers are told as they change.
    assert!(!cluster.events("Drained").await.is_empty());
    let told = cluster.told("Initialized").await;
    assert!(
        told.iter().any(|(about, text)| about.starts_with("NodeClaim/")
            && text == "Status condition transitioned, Type: Initialized, Status: Unknown -> True, Reason: Initialized"),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn d_300_deleting_a_nodepool_ends_its_nodes() {
    let (cluster, _operator, claim) = one_node(22, json!({})).await;
    cluster.delete::<NodePool>("default").await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster
        .until("no node is left", async |cluster| {
            cluster.list::<Node>().await.is_empty() && cluster.list::<KWOKInstance>().await.is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn d_299_nodes_of_others_are_left_alone_even_with_our_finalizer() {
    let cluster = Cluster::new(23).await;
    let _operator = cluster.operator(Setup::default());
    cluster
        .create::<Node>(json!({"metadata": {"name": "theirs", "finalizers": ["karpenter.sh/termination"]}, "spec": {"providerID": "aws:///a/i-1"}}))
        .await;
    cluster.delete::<Node>("theirs").await;
    cluster.pass(600).await;
    let node = cluster.get::<Node>("theirs").await;
    assert!(
        node.finalizers()
            .iter()
            .any(|one| one == "karpenter.sh/termination")
    );
    let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
    assert!(
        taints.iter().all(|taint| taint.key != "karpenter.sh/disrupted"),
        "{taints:?}"
    );
}

// D-241, D-243, D-245, D-247, D-248.
#[tokio::test(start_paused = true)]
async fn d_241_d_242_d_243_d_246_d_247_d_248_expiry_asks_nobody_and_the_drain_still_respects_budgets() {
    let expiring =
        json!({"template": {"spec": {"expireAfter": "1h"}}, "disruption": {"budgets": [{"nodes": "0"}]}});
    let (cluster, operator, claim) = one_node(24, expiring).await;
    cluster.budget("web", json!({"minAvailable": 1})).await;
    for node in cluster.names::<Node>().await {
        cluster
            .annotate::<Node>(&node, "karpenter.sh/do-not-disrupt", "true")
            .await;
    }
    let created = cluster.get::<NodeClaim>(&claim).await;
    let due = created.metadata.creation_timestamp.unwrap().0 + Duration::from_secs(3600);
    cluster.clock.sleep(cluster.clock.until(due)).await;
    cluster.pass(2).await;
    let object = cluster.get::<NodeClaim>(&claim).await;
    assert!(
        object.is_deleting(),
        "D-246: exactly on time, whatever budgets and annotations say"
    );
    cluster.pass(600).await;
    assert_eq!(
        cluster.running_of("web").await,
        1,
        "the drain respects the PodDisruptionBudget"
    );
    let metrics = &operator.metrics;
    let labels = "reason=\"expired\"";
    assert!(
        (value(metrics, "karpenter_nodeclaims_disrupted_total", labels) - 1.0).abs() < 0.1,
        "D-248: counted once"
    );
    assert!(
        (value(metrics, "karpenter_pods_disruption_initiated_total", labels) - 1.0).abs() < 0.1,
        "D-243"
    );
    // D-242: nothing was launched in advance, but room for the pods that will have to move is bought.
    cluster
        .until("a second node waits for the pod", async |cluster| {
            cluster.list::<Node>().await.len() == 2
        })
        .await;
    cluster.delete::<PodDisruptionBudget>("web").await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn d_249_d_309_a_node_whose_machine_is_gone_is_released_at_once() {
    let (cluster, _operator, claim) = one_node(25, json!({})).await;
    // A pod that would hold the drain for ever.
    let pod = cluster.names::<Pod>().await.remove(0);
    cluster
        .annotate::<Pod>(&pod, "karpenter.sh/do-not-disrupt", "true")
        .await;
    let instance = cluster.names::<KWOKInstance>().await.remove(0);
    cluster.delete::<KWOKInstance>(&instance).await;
    cluster
        .until("the node has fallen silent", async |cluster| {
            cluster.list::<Node>().await.iter().any(|node| {
                let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
                conditions
                    .into_iter()
                    .flatten()
                    .any(|one| one.type_ == "Ready" && one.status != "True")
            }) || !cluster.names::<NodeClaim>().await.contains(&claim)
        })
        .await;
    let start = cluster.clock.now();
    cluster.until_gone::<NodeClaim>(&claim).await;
    // D-249: found by garbage collection, at most two minutes later; then no drain.
    assert!(cluster.clock.since(start) < Duration::from_secs(150));
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

// D-243, D-244, D-266, D-267, D-268: the classes of errors at launch.
#[tokio::test(start_paused = true)]
async fn d_244_d_266_no_capacity_ends_the_claim_and_another_offering_is_tried() {
    let cluster = Cluster::new(26).await;
    cluster.pool("default", json!({})).await;
    let setup = Setup {
        kwok: KwokOptions {
            insufficient_capacity: vec!["*/*/spot".parse().unwrap(), "*/test-zone-a".parse().unwrap()],
            ..KwokOptions::default()
        },
        ..Setup::default()
    };
    let _operator = cluster.operator(setup);
    cluster.deploy("web", 1, "1").await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
    let starved = Cluster::new(27).await;
    starved.pool("default", json!({})).await;
    let setup = Setup {
        kwok: KwokOptions {
            insufficient_capacity: vec!["*".parse().unwrap()],
            ..KwokOptions::default()
        },
        ..Setup::default()
    };
    let operator = starved.operator(setup);
    starved.deploy("web", 1, "1").await;
    starved
        .until("the shortage is told", async |cluster| {
            !cluster.events("InsufficientCapacityError").await.is_empty()
        })
        .await;
    let (about, text) = starved.told("InsufficientCapacityError").await.remove(0);
    assert!(
        about.starts_with("NodeClaim/") && text.starts_with("NodeClaim ") && text.contains(" event: "),
        "{text}"
    );
    let labels = "reason=\"insufficient_capacity\"";
    assert!(value(&operator.metrics, "karpenter_nodeclaims_disrupted_total", labels) >= 1.0);
    let text = operator.metrics.render();
    assert!(text.contains("termination_mode=\"graceful\""), "D-244");
    assert!(text.contains("error=\"InsufficientCapacityError\""));
}

#[tokio::test(start_paused = true)]
async fn d_267_p_163_a_class_that_is_not_ready_ends_the_claim_and_d_268_other_errors_are_tried_again() {
    let cluster = Cluster::new(28).await;
    cluster.pool("default", json!({})).await;
    let setup = Setup {
        kwok: KwokOptions {
            launch_errors: "first:2".parse().unwrap(),
            ..KwokOptions::default()
        },
        ..Setup::default()
    };
    let operator = cluster.operator(setup);
    cluster.deploy("web", 1, "1").await;
    cluster
        .until("the failure is on the claim", async |cluster| {
            let Some(claim) = cluster.names::<NodeClaim>().await.into_iter().next() else {
                return false;
            };
            let launched = cluster.condition(&claim, "Launched").await;
            launched.is_some_and(|(status, reason, message)| {
                status == "Unknown"
                    && reason == "InjectedLaunchError"
                    && message.contains("injected failure of attempt")
            })
        })
        .await;
    cluster.until_running_of("web", 1).await;
    assert_eq!(
        cluster.names::<NodeClaim>().await.len(),
        1,
        "the same claim was tried again"
    );
    // A class that turns unready after planning.
    let unready = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "Broken", "message": "no subnets", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    cluster.deploy("more", 1, "6").await;
    cluster
        .until("a second claim is made", async |cluster| {
            cluster.names::<NodeClaim>().await.len() == 2
        })
        .await;
    cluster.patch_status::<KWOKNodeClass>("default", unready).await;
    cluster.pass(60).await;
    let counted = value(
        &operator.metrics,
        "karpenter_nodeclaims_disrupted_total",
        "reason=\"nodeclass_not_ready\"",
    );
    assert!(counted >= 1.0, "{counted}");
    assert_eq!(
        cluster.running_of("web").await,
        1,
        "who runs already is not touched"
    );
}

#[tokio::test(start_paused = true)]
async fn d_263_a_launch_that_never_succeeds_is_given_up_after_five_minutes() {
    let cluster = Cluster::new(29).await;
    cluster.pool("default", json!({})).await;
    let setup = Setup {
        kwok: KwokOptions {
            launch_errors: "1.0".parse().unwrap(),
            ..KwokOptions::default()
        },
        ..Setup::default()
    };
    let operator = cluster.operator(setup);
    cluster.deploy("web", 1, "1").await;
    cluster
        .until("a claim exists", async |cluster| {
            !cluster.names::<NodeClaim>().await.is_empty()
        })
        .await;
    let first = cluster.names::<NodeClaim>().await.remove(0);
    let start = cluster.clock.now();
    cluster.until_gone::<NodeClaim>(&first).await;
    let took = cluster.clock.since(start);
    assert!(
        took >= Duration::from_secs(290) && took <= Duration::from_secs(370),
        "{took:?}"
    );
    let labels = "reason=\"launch_timeout\"";
    assert!(value(&operator.metrics, "karpenter_nodeclaims_disrupted_total", labels) >= 1.0);
}

// D-301, D-305, D-338, D-339, D-346: the deadline through the whole stack.
#[tokio::test(start_paused = true)]
async fn d_301_d_302_d_305_d_338_d_339_d_346_the_deadline_overrules_budget_and_annotation_and_says_so() {
    let grace = json!({"template": {"spec": {"terminationGracePeriod": "10m"}}});
    let (cluster, operator, claim) = one_node(30, grace).await;
    cluster.budget("web", json!({"minAvailable": 1})).await;
    // D-305: the claim keeps what it was made with.
    let later = json!({"spec": {"template": {"spec": {"terminationGracePeriod": "5h"}}}});
    cluster.patch::<NodePool>("default", later).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(2).await;
    let object = cluster.get::<NodeClaim>(&claim).await;
    let deadline = object
        .annotation("karpenter.sh/nodeclaim-termination-timestamp")
        .unwrap()
        .to_owned();
    let deleted = object.metadata.deletion_timestamp.unwrap().0;
    assert_eq!(deadline, (deleted + Duration::from_secs(600)).to_string());
    let told = cluster.told("TerminationGracePeriodExpiring").await;
    for object in ["Node/", "NodeClaim/"] {
        assert!(
            told.iter()
                .any(|(about, text)| about.starts_with(object) && text.ends_with(&deadline)),
            "D-302: {told:?}"
        );
    }
    cluster.pass(500).await;
    assert_eq!(cluster.running_of("web").await, 1);
    cluster.until_gone::<NodeClaim>(&claim).await;
    let late = cluster.clock.since(deleted);
    assert!(late <= Duration::from_secs(630), "{late:?}");
    let told = cluster.told("Disrupted").await;
    assert!(
        told.iter().any(
            |(_, text)| text.starts_with("Deleting the pod to accommodate the terminationTime ")
                && text.ends_with("This bypasses the PDB of the pod and the do-not-disrupt annotation.")
        ),
        "{told:?}"
    );
    assert!(
        (value(&operator.metrics, "karpenter_pods_drained_total", "reason") - 1.0).abs() < 0.1,
        "D-339"
    );
    cluster.until_running_of("web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn d_262_the_kwok_cloud_gives_nodes_ten_minutes() {
    use spokeshave_ports::CloudProvider as _;
    let cluster = Cluster::new(33).await;
    let provider = spokeshave_provider_kwok::KwokProvider::new(
        cluster.client.clone(),
        cluster.clock.clone(),
        &cluster.entropy,
        KwokOptions::default(),
    );
    let policies: Vec<_> = provider
        .repair_policies()
        .iter()
        .map(|policy| {
            (
                policy.condition_type.as_str(),
                policy.condition_status.as_str(),
                policy.toleration.as_secs(),
            )
        })
        .collect();
    assert_eq!(policies, [("Ready", "False", 600), ("Ready", "Unknown", 600)]);
}

// D-254: without the gate nothing is repaired; D-265: no time-out for initialisation.
#[tokio::test(start_paused = true)]
async fn d_254_without_the_gate_a_broken_node_stays() {
    let (cluster, _operator, claim) = one_node(31, json!({})).await;
    let node = cluster.names::<Node>().await.remove(0);
    let broken = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "Broken", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    cluster.patch_status::<Node>(&node, broken).await;
    cluster.pass(3600).await;
    assert!(cluster.names::<NodeClaim>().await.contains(&claim));
}

#[tokio::test(start_paused = true)]
async fn d_265_a_node_that_never_initialises_stays() {
    let cluster = Cluster::new(32).await;
    let starting = json!({"template": {"spec": {"startupTaints": [{"key": "example.com/prepare", "effect": "NoSchedule"}]}}});
    cluster.pool("default", starting).await;
    let _operator = cluster.operator(Setup::default());
    cluster.deploy("web", 1, "1").await;
    cluster.pass(3600).await;
    let claims = cluster.names::<NodeClaim>().await;
    assert_eq!(claims.len(), 1, "one node was launched, and no other");
    let (status, reason, message) = cluster.condition(&claims[0], "Initialized").await.unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("Unknown", "StartupTaintsExist")
    );
    assert!(message.contains("example.com/prepare:NoSchedule"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn d_327_evictions_keep_to_the_rate_that_was_set() {
    let cluster = Cluster::new(34).await;
    cluster.pool("default", json!({})).await;
    let setup = Setup {
        options: OperatorOptions {
            eviction_rate: Some(EvictionRate {
                per_second: 1.0,
                burst: 1,
            }),
            ..OperatorOptions::default()
        },
        ..Setup::default()
    };
    let operator = cluster.operator(setup);
    cluster.deploy("web", 30, "100m").await;
    cluster.until_running_of("web", 30).await;
    let claim = cluster.claim_of_pod("web").await;
    let on_node = cluster.list::<Pod>().await.len();
    let start = cluster.clock.now();
    cluster.delete::<NodeClaim>(&claim).await;
    let mut evicted = 0.0;
    while cluster.names::<NodeClaim>().await.contains(&claim) {
        evicted = value(
            &operator.metrics,
            "karpenter_pods_eviction_requests_total",
            "code=\"200\"",
        );
        let seconds = cluster.clock.since(start).as_secs_f64();
        assert!(evicted <= seconds + 2.0, "{evicted} evictions in {seconds} s");
        cluster.pass(1).await;
        assert!(
            cluster.clock.since(start) < Duration::from_secs(600),
            "the drain goes on"
        );
    }
    assert!(on_node >= 30 && evicted >= 10.0, "{evicted} of {on_node}");
    cluster.until_running_of("web", 30).await;
}

#[tokio::test(start_paused = true)]
async fn p_16_series_of_single_objects_are_asked_for_and_go_with_their_objects() {
    let cluster = Cluster::new(35).await;
    cluster.pool("default", json!({})).await;
    let setup = Setup {
        options: OperatorOptions {
            object_metrics: true,
            ..OperatorOptions::default()
        },
        ..Setup::default()
    };
    let operator = cluster.operator(setup);
    cluster.deploy("web", 1, "1").await;
    cluster.until_running_of("web", 1).await;
    let claim = cluster.claim_of_pod("web").await;
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
