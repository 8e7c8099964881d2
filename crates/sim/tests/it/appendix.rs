//! D App. G.1, scenarios 16 and 18 to 25, through the whole stack on virtual time, with the checkers watching.
//!
//! 14, 15 and 17 are tested with the commands of disruption. A message of the kwok cloud is an annotation on a KWOKInstance.

use std::time::Duration;

use crate::plain::Cluster;
use crate::words::*;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, NodeClaim, NodePool};
use spokeshave_provider_kwok::keys::MESSAGE;
use spokeshave_sim::lab::LabOptions;

async fn drifted(cluster: &Cluster) -> Vec<String> {
    let mut reasons = Vec::new();
    for claim in cluster.names::<NodeClaim>().await {
        if let Some((status, reason, _)) = cluster.condition(&claim, "Drifted").await
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
    let wider = json!({"spec": {"template": {"spec": {"requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["17"]},
    ]}}}});
    cluster.patch::<NodePool>("default", wider).await;
    cluster.pass(600).await;
    assert_eq!(drifted(&cluster).await, Vec::<String>::new(), "D-228");
    let label = json!({"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}});
    cluster.patch::<NodePool>("default", label).await;
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

/// 18: expiry ignores budgets; the drain respects them.
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
    assert!(!cluster.get::<NodeClaim>(claim.name()).await.is_deleting());
    cluster.pass(15).await;
    assert!(
        cluster.get::<NodeClaim>(claim.name()).await.is_deleting(),
        "D-247"
    );
    cluster.pass(1800).await;
    assert_eq!(
        cluster.node_of("web").await,
        node,
        "D-322: the pod was not evicted"
    );
    for pod in cluster.running_pods().await {
        cluster
            .annotate::<Pod>(&pod.name_any(), "karpenter.sh/do-not-disrupt", Value::Null)
            .await;
    }
    cluster.pass(300).await;
    assert_eq!(cluster.node_of("web").await, node, "the budget still holds");
    cluster.delete::<PodDisruptionBudget>("web").await;
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

/// 19: terminationGracePeriod 1h; a pod with 10 minutes of grace behind a budget is deleted at 50 minutes, a protected one with an hour and a half at once, one with
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
        cluster.pod(name, "100m", spec).await;
    }
    cluster.until_running(3).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete::<NodeClaim>(&claim).await;
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

/// 20: four pods, one of each tier; no pod is evicted before the previous tier is gone.
#[tokio::test(start_paused = true)]
async fn g_1_20_tiers_leave_one_after_the_other() {
    let mut options = LabOptions::new(20);
    options.cluster.pod_stop_time = Duration::from_secs(60);
    let cluster = Cluster::new(options, json!({})).await.with_operator();
    let daemon = |name: &str, class: Value| {
        json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"priorityClassName": class, "terminationGracePeriodSeconds": 5, "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}},
            ]},
        }}})
    };
    cluster.create::<DaemonSet>(daemon("daemon", json!(null))).await;
    cluster
        .create::<DaemonSet>(daemon("critical-daemon", json!("system-node-critical")))
        .await;
    cluster
        .pod(
            "plain",
            "100m",
            json!({"spec": {"terminationGracePeriodSeconds": 60}}),
        )
        .await;
    let critical =
        json!({"spec": {"terminationGracePeriodSeconds": 5, "priorityClassName": "system-cluster-critical"}});
    cluster.pod("critical", "100m", critical).await;
    cluster.until_running(4).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete::<NodeClaim>(&claim).await;
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

/// 21: past the deadline tiers are not waited for.
#[tokio::test(start_paused = true)]
async fn g_1_21_past_the_deadline_all_tiers_go_at_once() {
    let cluster = Cluster::started(
        21,
        json!({"template": {"spec": {"terminationGracePeriod": "2m"}}}),
    )
    .await;
    let protected = json!({"karpenter.sh/do-not-disrupt": "true"});
    let grace = |class: Value| json!({"metadata": {"annotations": protected}, "spec": {"terminationGracePeriodSeconds": 0, "priorityClassName": class}});
    cluster.pod("plain", "100m", grace(json!(null))).await;
    cluster
        .pod("critical", "100m", grace(json!("system-cluster-critical")))
        .await;
    cluster.until_running(2).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(110).await;
    assert_eq!(cluster.running().await, 2, "before the deadline both stay");
    let took = cluster
        .until("both are asked to go", async |cluster| {
            cluster.running().await == 0
        })
        .await;
    assert!(took <= Duration::from_secs(25), "D-336: {took:?}");
    cluster.until_gone::<NodeClaim>(&claim).await;
}

/// 22: an attachment that stays is waited for, and after the deadline no longer.
#[tokio::test(start_paused = true)]
async fn g_1_22_a_volume_that_stays_is_waited_for_until_the_deadline() {
    let cluster = Cluster::started(
        22,
        json!({"template": {"spec": {"terminationGracePeriod": "10m"}}}),
    )
    .await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    let node = cluster.node_of("web").await;
    let claim = cluster.claim_of_pod("web").await;
    let attachment = json!({"metadata": {"name": "stuck", "finalizers": ["example.com/held"]}, "spec": {
        "attacher": "manual", "nodeName": node, "source": {"persistentVolumeName": "nobody-detaches-it"},
    }});
    cluster.create::<VolumeAttachment>(attachment).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(300).await;
    assert!(
        cluster.exists::<VolumeAttachment>("stuck").await,
        "the attachment was to stay"
    );
    let (status, reason, _) = cluster.condition(&claim, "VolumesDetached").await.unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("Unknown", "AwaitingVolumeDetachment"),
        "D-343"
    );
    let instances = cluster.list::<KWOKInstance>().await;
    assert!(
        instances.iter().any(|one| node == one.spec.node_name),
        "the instance waits"
    );
    let start = cluster.clock.now();
    let mut given_up = None;
    while cluster.exists::<NodeClaim>(&claim).await {
        assert!(cluster.clock.since(start) < Cluster::LIMIT);
        given_up = cluster.condition(&claim, "VolumesDetached").await.or(given_up);
        cluster.pass(1).await;
    }
    let (status, reason, _) = given_up.unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "TerminationGracePeriodElapsed"),
        "D-345"
    );
}

/// 23: a machine that is gone needs no drain once its Node is not ready; one whose Node is ready gets all of it.
#[tokio::test(start_paused = true)]
async fn g_1_23_a_lost_instance_needs_no_drain() {
    let cluster = Cluster::started(23, json!({})).await;
    cluster.deploy("web", 1, "1").await;
    cluster.budget("web", json!({"maxUnavailable": 0})).await;
    cluster.until_running(1).await;
    let node = cluster.node_of("web").await;
    let claim = cluster.claim_of_pod("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(120).await;
    assert!(
        cluster.exists::<Node>(&node).await,
        "ready: the budget holds the drain"
    );
    let instance = cluster.list::<KWOKInstance>().await.remove(0);
    cluster.delete::<KWOKInstance>(instance.name()).await;
    let took = cluster.until_gone::<Node>(&node).await;
    assert!(took <= Duration::from_secs(30), "D-309: {took:?}");
    cluster.until_gone::<NodeClaim>(&claim).await;
}

/// A message about the only instance.
async fn message(cluster: &Cluster, text: &str) -> KWOKInstance {
    let instance = cluster.names::<KWOKInstance>().await.remove(0);
    cluster.annotate(&instance, MESSAGE, text).await
}

/// 24: a reclaimed spot instance: its NodeClaim is deleted at once with the instance's deadline, another offering replaces it, and the
/// message is deleted.
#[tokio::test(start_paused = true)]
async fn g_1_24_d_279_d_283_invariant_33_a_spot_interruption_is_answered_at_once() {
    let spot = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
    ]);
    let cluster = Cluster::started(24, json!({"template": {"spec": {"requirements": spot}}})).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    let claim = cluster.list::<NodeClaim>().await.remove(0);
    let told = cluster.clock.now();
    let instance = message(&cluster, "spot_interrupted").await;
    let asked = cluster
        .until("the claim is asked to go, and another is made", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            claims.len() == 2
                && claims
                    .iter()
                    .any(|one| one.name() == claim.name() && one.is_deleting())
        })
        .await;
    assert!(asked <= Duration::from_secs(1), "invariant 33: {asked:?}");
    let ends_at = cluster
        .get::<NodeClaim>(claim.name())
        .await
        .annotation("karpenter.sh/nodeclaim-termination-timestamp")
        .and_then(|text| text.parse::<jiff::Timestamp>().ok())
        .unwrap();
    let left = ends_at.duration_since(told).as_secs();
    assert!((119..=120).contains(&left), "two minutes of notice: {left}");
    cluster.until_gone::<NodeClaim>(claim.name()).await;
    assert!(
        cluster.clock.now().duration_since(told).as_secs() <= 130,
        "the instance's own deadline"
    );
    cluster.until_running(1).await;
    let replacement = cluster.list::<KWOKInstance>().await.remove(0);
    let offering = |one: &KWOKInstance| (one.spec.instance_type.clone(), one.spec.zone.clone());
    assert_ne!(
        offering(&replacement),
        offering(&instance),
        "D-283: not the offering that was taken back"
    );
    for reason in ["SpotInterrupted", "TerminatingOnInterruption"] {
        assert!(!cluster.events(reason).await.is_empty(), "D-282: {reason}");
    }
    cluster.assert_tidy().await;
}

/// 25: an invalid message is deleted and terminates nothing; a recommendation is reported and terminates nothing.
#[tokio::test(start_paused = true)]
async fn g_1_25_d_277_a_malformed_message_is_deleted_without_action() {
    let cluster = Cluster::started(25, json!({})).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    let before = cluster.names::<NodeClaim>().await;
    for text in ["{\"detail\": 7", "rebalance_recommendation"] {
        message(&cluster, text).await;
        cluster
            .until("the message is deleted", async |cluster| {
                let instance = cluster.list::<KWOKInstance>().await.remove(0);
                !instance.annotations().contains_key(MESSAGE)
            })
            .await;
    }
    cluster.pass(300).await;
    assert_eq!(cluster.names::<NodeClaim>().await, before);
    assert_eq!(
        cluster.events("SpotRebalanceRecommendation").await.len(),
        2,
        "D-285: NodeClaim and Node"
    );
    cluster.assert_tidy().await;
}
