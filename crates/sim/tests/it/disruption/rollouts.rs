//! Drift in waves through the whole stack: a canary first, each wave healthy before the next, and a halt when what came is not.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::disruption_policy::{RolloutPhase, RolloutStatus};
use spokeshave_api::{DisruptionPolicy, NodePool};

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

const NODES: usize = 7;

async fn policy(cluster: &Cluster, rollout: Value) {
    let object = json!({"metadata": {"name": "waves"}, "spec": {"rollout": rollout}});
    let _: DisruptionPolicy = cluster.create(object).await;
}

async fn rollout(cluster: &Cluster) -> Option<RolloutStatus> {
    let policy: DisruptionPolicy = cluster.get("waves").await;
    policy.status?.rollouts.into_iter().next()
}

/// So many nodes, each with one pod that has a readiness probe.
async fn busy_nodes(cluster: &Cluster, number: usize) {
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1});
    let containers = json!([{"name": "c", "readinessProbe": probe}]);
    let template = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    for index in 0..number {
        let name = format!("web{index}");
        cluster.deploy(&name, 0, "6500m").await;
        cluster
            .api::<Deployment>()
            .patch(
                &name,
                &PatchParams::default(),
                &Patch::Strategic(template.clone()),
            )
            .await
            .unwrap();
        cluster.scale(&name, 1).await;
        cluster.until_running(index + 1).await;
    }
    assert_eq!(cluster.list::<Node>().await.len(), number);
}

fn is_blue(node: &Node) -> bool {
    node.labels().get("team").is_some_and(|team| team == "blue")
}

async fn blue(cluster: &Cluster) -> usize {
    cluster
        .list::<Node>()
        .await
        .iter()
        .filter(|node| is_blue(node))
        .count()
}

async fn all_blue(cluster: &Cluster) -> bool {
    let nodes = cluster.list::<Node>().await;
    nodes.len() == NODES && nodes.iter().all(is_blue) && cluster.running().await == NODES
}

/// Seven nodes go in waves of 1, 2 and 4, with a rest after each, although the operator is killed in the middle of it.
#[tokio::test(start_paused = true)]
async fn seven_nodes_go_in_three_waves_and_a_restart_forgets_none() {
    let cluster = Cluster::new(211, for_drift("100%")).await;
    policy(&cluster, json!({"soak": "3m"})).await;
    let mut operator = Some(cluster.operator());
    busy_nodes(&cluster, NODES).await;
    new_team(&cluster).await;
    let mut waves: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    let mut most_blue: BTreeMap<i64, usize> = BTreeMap::new();
    for look in 0..720 {
        if let Some(status) = rollout(&cluster).await {
            let begun = waves.entry(status.wave).or_insert((status.size, 0));
            begun.1 = begun.1.max(status.begun);
            let seen = most_blue.entry(status.wave).or_default();
            *seen = (*seen).max(blue(&cluster).await);
            if status.wave == 2 && status.begun == 1 && look % 7 == 0 {
                operator.take().expect("it runs").kill().await;
                operator = Some(cluster.operator());
            }
        } else if all_blue(&cluster).await {
            break;
        }
        cluster.pass(5).await;
    }
    assert!(all_blue(&cluster).await, "all have gone");
    assert!(rollout(&cluster).await.is_none(), "and it is over");
    assert_eq!(
        waves.into_iter().collect::<Vec<_>>(),
        [(1, (1, 1)), (2, (2, 2)), (3, (4, 4))]
    );
    assert_eq!(most_blue[&1], 1, "the canary alone");
    assert!(most_blue[&2] <= 3, "{most_blue:?}");
    cluster.pass(60).await;
    cluster.assert_at_rest().await;
}

/// Pods that land on new nodes fail these probes.
async fn break_pods_on_new_nodes(cluster: &Cluster, probes: Value) {
    let nodes = cluster.list::<Node>().await;
    let new: Vec<String> = nodes
        .iter()
        .filter(|node| is_blue(node))
        .map(|node| node.name_any())
        .collect();
    break_pods_on(cluster, &new, probes).await;
}

async fn break_pods_on(cluster: &Cluster, new: &[String], probes: Value) {
    for pod in cluster.list::<Pod>().await {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if node.is_some_and(|node| new.contains(node)) {
            cluster
                .annotate::<Pod>(
                    &pod.name_any(),
                    "sim.spokeshave.dev/failing-probes",
                    probes.clone(),
                )
                .await;
        }
    }
}

/// On the new image nodes are Ready and pods are not: only the canary is affected, the condition has the reason, and the rest is replaced after a user
/// has fixed it and resumed the rollout.
#[tokio::test(start_paused = true)]
async fn invariant_25_an_image_on_which_pods_fail_hits_the_canary_only() {
    let cluster = Cluster::new(212, for_drift("100%")).await;
    policy(&cluster, json!({"soak": "10m"})).await;
    let _operator = cluster.operator();
    busy_nodes(&cluster, NODES).await;
    new_team(&cluster).await;
    for _ in 0..360 {
        break_pods_on_new_nodes(&cluster, json!("readiness")).await;
        cluster.pass(5).await;
    }
    assert_eq!(blue(&cluster).await, 1, "half an hour, and one node");
    assert_eq!(cluster.ended("Drifted", DisruptionPhase::Succeeded).await, 1);
    let status = rollout(&cluster).await.expect("a roll-out");
    assert_eq!((status.phase, status.wave), (RolloutPhase::Halted, 1));
    let message = status.message.expect("what it has seen");
    assert!(
        message.contains("pod default/web") && message.contains("is not ready for 5 minutes"),
        "{message}"
    );
    let policy: DisruptionPolicy = cluster.get("waves").await;
    let conditions = policy.status.expect("a status").conditions;
    let healthy = conditions.iter().find(|one| one.type_ == "RolloutHealthy");
    let healthy = healthy.expect("the condition");
    assert_eq!(
        (healthy.status.as_str(), healthy.reason.as_str()),
        ("False", "Halted")
    );
    break_pods_on_new_nodes(&cluster, Value::Null).await;
    cluster.pass(600).await;
    assert_eq!(blue(&cluster).await, 1, "nobody has said that it may go on");
    let resumed = json!({"spec": {"rollout": {"resumedAt": cluster.clock.now().to_string(), "soak": "1m"}}});
    cluster.patch::<DisruptionPolicy>("waves", resumed).await;
    cluster.until("all have gone", all_blue).await;
}

/// Each wave after the canary waits for approval, and a pause stops everything.
#[tokio::test(start_paused = true)]
async fn waves_wait_for_approval_and_a_pause_keeps_all() {
    let cluster = Cluster::new(213, for_drift("100%")).await;
    let manual = json!({"soak": "1m", "approval": "Manual", "waves": ["100%"], "paused": true});
    policy(&cluster, manual).await;
    let _operator = cluster.operator();
    busy_nodes(&cluster, NODES).await;
    new_team(&cluster).await;
    cluster.pass(600).await;
    assert_eq!(blue(&cluster).await, 0, "paused");
    let patch = async |rollout: Value| {
        let spec = json!({"spec": {"rollout": rollout}});
        cluster.patch::<DisruptionPolicy>("waves", spec).await;
    };
    patch(json!({"paused": null})).await;
    cluster.pass(1_200).await;
    assert_eq!(blue(&cluster).await, 1, "the canary");
    let status = rollout(&cluster).await.expect("a roll-out");
    assert_eq!(status.phase, RolloutPhase::WaitingForApproval);
    patch(json!({"approved": {"default": 2}})).await;
    cluster.until("all have gone", all_blue).await;
}

/// The policy is deleted in the middle of a wave: nothing is left half done, and what is left drifts by the budgets of its NodePool alone.
#[tokio::test(start_paused = true)]
async fn a_policy_that_is_deleted_in_mid_wave_leaves_drift_to_the_budgets() {
    let cluster = Cluster::new(216, for_drift("2")).await;
    policy(&cluster, json!({"soak": "10h"})).await;
    let _operator = cluster.operator();
    busy_nodes(&cluster, NODES).await;
    new_team(&cluster).await;
    until_replacing(&cluster).await;
    cluster.delete::<DisruptionPolicy>("waves").await;
    let mut most = 0;
    for _ in 0..360 {
        let ledger = cluster.ledger().await;
        // Nodes whose instances are ending count for no budget any more (D-199).
        let open = ledger.iter().filter(|one| one.holds_nodes());
        most = most.max(open.map(|one| one.spec.nodes.len()).sum());
        if all_blue(&cluster).await {
            break;
        }
        cluster.pass(5).await;
    }
    assert!(
        all_blue(&cluster).await,
        "ten hours of soak are over with the policy"
    );
    assert!(
        (1..=2).contains(&most),
        "{most} at once, beyond the budget of the NodePool"
    );
    assert_eq!(cluster.ended("Drifted", DisruptionPhase::RolledBack).await, 0);
    cluster.pass(60).await;
    cluster.assert_at_rest().await;
}

const ZONE: &str = "topology.kubernetes.io/zone";

/// A node with one pod, for each value of a label that nodes are chosen by.
async fn busy_nodes_by(cluster: &Cluster, label: &str, values: &[&str], each: usize) {
    for index in 0..each {
        for value in values {
            let name = format!("{value}-{index}");
            let choice = json!({"spec": {"nodeSelector": {label: value}}});
            cluster
                .deploy_with(&name, 1, template(&name, "6500m", choice))
                .await;
            cluster.until_running_of(&name, 1).await;
        }
    }
    assert_eq!(cluster.list::<Node>().await.len(), each * values.len());
}

/// Three zones, one after the other: nodes of two of them are never on their way out at once.
#[tokio::test(start_paused = true)]
async fn invariant_26_waves_go_through_one_zone_after_the_other() {
    let cluster = Cluster::new(214, for_drift("100%")).await;
    let spec = json!({
        "rollout": {"waves": ["100%"], "soak": "1m", "order": ["Zone"]},
        "budgets": [{"scope": "Zone", "oneAtATime": true}],
    });
    let object = json!({"metadata": {"name": "waves"}, "spec": spec});
    let _: DisruptionPolicy = cluster.create(object).await;
    let _operator = cluster.operator();
    let zones = ["test-zone-a", "test-zone-b", "test-zone-c"];
    busy_nodes_by(&cluster, ZONE, &zones, 2).await;
    new_team(&cluster).await;
    let mut sequence: Vec<String> = Vec::new();
    for _ in 0..360 {
        let ledger = cluster.ledger().await;
        let open = ledger.iter().filter(|one| !one.is_finished());
        let mut open: Vec<String> = open
            .flat_map(|one| one.spec.nodes.iter().filter_map(|node| node.zone.clone()))
            .collect();
        open.sort_unstable();
        open.dedup();
        assert!(open.len() <= 1, "{open:?} at once");
        if let Some(zone) = open.pop().filter(|zone| sequence.last() != Some(zone)) {
            sequence.push(zone);
        }
        if blue(&cluster).await == 6 && cluster.list::<Node>().await.len() == 6 {
            break;
        }
        cluster.pass(5).await;
    }
    assert_eq!(blue(&cluster).await, 6, "all have gone");
    assert_eq!(sequence, zones);
}

/// Of two NodePools one gets nodes on which pods fail: it is halted at its canary, and the other is completed anyway.
#[tokio::test(start_paused = true)]
async fn a_nodepool_whose_roll_out_is_halted_holds_up_no_other() {
    let cluster = Cluster::new(215, for_drift("100%")).await;
    cluster.disrupted_pool("other", for_drift("100%")).await;
    policy(&cluster, json!({"soak": "1m", "health": {"readyWithin": "30s"}})).await;
    let _operator = cluster.operator();
    busy_nodes_by(&cluster, "karpenter.sh/nodepool", &["default", "other"], 3).await;
    for name in ["default-0", "default-1", "default-2"] {
        let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1});
        let containers = json!([{"name": "c", "readinessProbe": probe}]);
        let template = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        cluster.scale(name, 0).await;
        cluster.until_running(5).await;
        cluster
            .api::<Deployment>()
            .patch(name, &PatchParams::default(), &Patch::Strategic(template))
            .await
            .unwrap();
        cluster.scale(name, 1).await;
        cluster.until_running(6).await;
    }
    new_team(&cluster).await;
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}});
    cluster.patch::<NodePool>("other", labels).await;
    for _ in 0..240 {
        let nodes = cluster.list::<Node>().await;
        let new = nodes.iter().filter(|node| {
            is_blue(node)
                && node
                    .labels()
                    .get("karpenter.sh/nodepool")
                    .is_some_and(|pool| pool == "default")
        });
        let new: Vec<String> = new.map(|node| node.name_any()).collect();
        break_pods_on(&cluster, &new, json!("readiness")).await;
        cluster.pass(5).await;
    }
    let nodes = cluster.list::<Node>().await;
    let of = |pool: &str| {
        let own = nodes.iter().filter(|node| {
            let label = node.labels().get("karpenter.sh/nodepool");
            is_blue(node) && label.is_some_and(|own| own == pool)
        });
        own.count()
    };
    assert_eq!((of("default"), of("other")), (1, 3));
    let policy: DisruptionPolicy = cluster.get("waves").await;
    let rollouts = policy.status.expect("a status").rollouts;
    assert_eq!(rollouts.len(), 1, "that of the other is over: {rollouts:?}");
    assert_eq!(
        (rollouts[0].node_pool.as_str(), rollouts[0].phase.clone()),
        ("default", RolloutPhase::Halted)
    );
}
