//! D App. G.1, scenarios 16 and 18 to 21, through the whole stack on virtual time, with the checkers watching.
//!
//! 14, 15 and 17 are told beside the commands of disruption; 24 and 25 are about messages of a cloud's queue, which the kwok cloud does not have.

mod common;

use std::time::Duration;

use common::{Cluster, template};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_sim::lab::LabOptions;

async fn drifted(cluster: &Cluster) -> Vec<String> {
    let mut reasons = Vec::new();
    for claim in cluster.names::<NodeClaim>().await {
        if let Some((status, reason)) = cluster.condition(&claim, "Drifted").await
            && status == "True"
        {
            reasons.push(reason);
        }
    }
    reasons
}

/// 16: a label of the template is drift; a requirement that still allows the nodes is none.
#[tokio::test(start_paused = true)]
async fn g_1_16_what_drifts_and_what_does_not() {
    let cluster = Cluster::started(16, json!({"disruption": {"budgets": [{"nodes": "0"}]}})).await;
    cluster.deploy("web", 2, "6").await;
    cluster.until_running(2).await;
    let pools = cluster.all::<NodePool>();
    let wider = json!({"spec": {"template": {"spec": {"requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["17"]},
    ]}}}});
    cluster.merge(&pools, "default", wider).await.unwrap();
    cluster.pass(600).await;
    assert_eq!(drifted(&cluster).await, Vec::<String>::new(), "D-228");
    let label = json!({"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}});
    cluster.merge(&pools, "default", label).await.unwrap();
    cluster
        .until("both nodes drift", async |cluster| {
            drifted(cluster).await.len() == 2
        })
        .await;
    assert_eq!(
        drifted(&cluster).await,
        ["NodePoolDrifted", "NodePoolDrifted"],
        "D-221"
    );
}

/// 18: expiry asks nobody; the drain does.
#[tokio::test(start_paused = true)]
async fn g_1_18_d_015_expiry_starts_on_time_and_the_drain_waits_for_the_pod() {
    let change =
        json!({"template": {"spec": {"expireAfter": "1h"}}, "disruption": {"budgets": [{"nodes": "0"}]}});
    let cluster = Cluster::started(18, change).await;
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    cluster
        .deploy_with("web", 1, template("web", "1", protected))
        .await;
    cluster.budget("web", json!({"maxUnavailable": 0})).await;
    cluster.until_running(1).await;
    let node = cluster.node_of("web").await;
    let claim = cluster.claim_of(&node).await;
    let born = claim.metadata.creation_timestamp.as_ref().unwrap().0;
    let until = |seconds: u64| {
        Duration::from_secs(seconds)
            .saturating_sub(cluster.clock.since(born))
            .as_secs()
    };
    cluster.pass(until(3600 - 5)).await;
    assert!(
        cluster
            .claim(claim.name())
            .await
            .metadata
            .deletion_timestamp
            .is_none()
    );
    cluster.pass(15).await;
    assert!(
        cluster
            .claim(claim.name())
            .await
            .metadata
            .deletion_timestamp
            .is_some(),
        "D-247"
    );
    cluster.pass(1800).await;
    assert_eq!(
        cluster.node_of("web").await,
        node,
        "D-322: the pod was not evicted"
    );
    for pod in cluster.running().await {
        let free = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": null}}});
        cluster
            .merge(&cluster.here::<Pod>(), &pod.name_any(), free)
            .await
            .unwrap();
    }
    cluster.pass(300).await;
    assert_eq!(cluster.node_of("web").await, node, "the budget still holds");
    cluster
        .here::<k8s_openapi::api::policy::v1::PodDisruptionBudget>()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    cluster.until_gone::<NodeClaim>(claim.name()).await;
    cluster.until_running(1).await;
    cluster.assert_tidy().await;
}

/// When each pod was asked to go and with how many seconds, from the moment the NodeClaim was deleted, watched each second.
async fn departures(cluster: &Cluster, seconds: u64) -> Vec<(String, u64, i64)> {
    let mut seen: Vec<(String, u64, i64)> = Vec::new();
    for second in 0..seconds {
        for pod in cluster.list::<Pod>().await {
            let (name, grace) = (pod.name_any(), pod.metadata.deletion_grace_period_seconds);
            if let Some(grace) = grace.filter(|_| pod.metadata.deletion_timestamp.is_some())
                && !seen.iter().any(|(known, ..)| *known == name)
            {
                seen.push((name, second, grace));
            }
        }
        cluster.pass(1).await;
    }
    seen
}

/// A pod of its own, bound by the scheduler.
async fn pod(cluster: &Cluster, name: &str, spec: Value) {
    let mut object = json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]},
    });
    json_patch::merge(&mut object, &spec);
    cluster.create(&cluster.here::<Pod>(), object).await.unwrap();
}

/// 19: terminationGracePeriod 1h; a pod with 10 minutes of grace behind a budget goes at 50 minutes, a protected one with an hour and a half at once, one with
/// 30 seconds at 59:30, each with what is left.
#[tokio::test(start_paused = true)]
async fn g_1_19_the_deadline_minute_by_minute() {
    let cluster = Cluster::started(
        19,
        json!({"template": {"spec": {"terminationGracePeriod": "1h"}}}),
    )
    .await;
    let protected = json!({"karpenter.sh/do-not-disrupt": "true"});
    for (name, grace) in [("short", 30), ("long", 600), ("too-long", 5400)] {
        let spec =
            json!({"metadata": {"annotations": protected}, "spec": {"terminationGracePeriodSeconds": grace}});
        pod(&cluster, name, spec).await;
    }
    cluster.until_running(3).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete_claim(&claim).await;
    let departures = departures(&cluster, 3700).await;
    let of = |name: &str| {
        let found = departures.iter().find(|(known, ..)| known == name);
        found
            .map(|(_, at, grace)| (*at, *grace))
            .unwrap_or_else(|| panic!("{name} stays: {departures:?}"))
    };
    let near = |(at, grace): (u64, i64), expected: (u64, i64)| {
        assert!(
            at.abs_diff(expected.0) <= 12 && (grace - expected.1).abs() <= 12,
            "at {at} s with {grace} s instead of {expected:?}: {departures:?}"
        );
    };
    near(of("too-long"), (0, 3600));
    near(of("long"), (3000, 600));
    near(of("short"), (3570, 30));
    cluster.until_gone::<NodeClaim>(&claim).await;
}

/// 20: four pods, one of each tier; nobody goes before the tier before it is gone.
#[tokio::test(start_paused = true)]
async fn g_1_20_tiers_leave_one_after_the_other() {
    let mut options = LabOptions::new(20);
    options.cluster.pod_stop_time = Duration::from_secs(60);
    let mut cluster = Cluster::new(options, json!({})).await;
    cluster.lab.start("a");
    let daemon = |name: &str, class: Value| {
        json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"priorityClassName": class, "terminationGracePeriodSeconds": 5, "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}},
            ]},
        }}})
    };
    let sets = cluster.here::<k8s_openapi::api::apps::v1::DaemonSet>();
    cluster
        .create(&sets, daemon("daemon", json!(null)))
        .await
        .unwrap();
    cluster
        .create(&sets, daemon("critical-daemon", json!("system-node-critical")))
        .await
        .unwrap();
    pod(
        &cluster,
        "plain",
        json!({"spec": {"terminationGracePeriodSeconds": 60}}),
    )
    .await;
    let critical =
        json!({"spec": {"terminationGracePeriodSeconds": 5, "priorityClassName": "system-cluster-critical"}});
    pod(&cluster, "critical", critical).await;
    cluster.until_running(4).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete_claim(&claim).await;
    let departures = departures(&cluster, 150).await;
    let at = |app: &str| {
        let found = departures.iter().find(|(name, ..)| {
            name == app
                || name.starts_with(&format!("{app}-"))
                    && name.starts_with("critical-daemon") == app.starts_with("critical-daemon")
        });
        found
            .map(|(_, at, _)| *at)
            .unwrap_or_else(|| panic!("{app} stays: {departures:?}"))
    };
    assert!(at("plain") <= 3, "{departures:?}");
    assert!(at("daemon") >= 60, "D-320: {departures:?}");
    assert!(at("critical") > at("daemon"), "{departures:?}");
    assert!(at("critical-daemon") > at("critical"), "{departures:?}");
    cluster.until_gone::<NodeClaim>(&claim).await;
}

/// 21: past the deadline nobody waits for a tier any more.
#[tokio::test(start_paused = true)]
async fn g_1_21_past_the_deadline_all_tiers_go_at_once() {
    let cluster = Cluster::started(
        21,
        json!({"template": {"spec": {"terminationGracePeriod": "2m"}}}),
    )
    .await;
    let protected = json!({"karpenter.sh/do-not-disrupt": "true"});
    let grace = |class: Value| json!({"metadata": {"annotations": protected}, "spec": {"terminationGracePeriodSeconds": 0, "priorityClassName": class}});
    pod(&cluster, "plain", grace(json!(null))).await;
    pod(&cluster, "critical", grace(json!("system-cluster-critical"))).await;
    cluster.until_running(2).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete_claim(&claim).await;
    cluster.pass(110).await;
    assert_eq!(cluster.running().await.len(), 2, "before the deadline both stay");
    let took = cluster
        .until("both are asked to go", async |cluster| {
            cluster.running().await.is_empty()
        })
        .await;
    assert!(took <= Duration::from_secs(25), "D-336: {took:?}");
    cluster.until_gone::<NodeClaim>(&claim).await;
}
