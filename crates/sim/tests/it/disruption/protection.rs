//! What keeps a node: annotations on it and its pods, and the budgets over these; and what it says while it stays.

use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_provider_kwok::KwokOptions;
use spokeshave_runtime::client::RequestLog;

use crate::faulty;
use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

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
        one_busy_node(&cluster).await;
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

/// A pod annotated do-not-disrupt between decision and taint: nothing is changed. Without the annotation it continues.
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

/// Annotated during the launch of the replacement: the command is rolled back, and the replacement is removed.
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
        .until("the command is rolled back", async |cluster| {
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

/// During the launch of the replacement another pod takes its capacity: no pod is evicted that fits nowhere.
#[tokio::test(start_paused = true)]
async fn invariant_8_a_place_that_others_have_taken_takes_the_command_back() {
    let cluster = Cluster::new(16, at_once()).await;
    let _operator = cluster.operator();
    one_large_node(&cluster).await;
    let old = cluster.names::<Node>().await.remove(0);
    without_large(&cluster).await;
    until_replacing(&cluster).await;
    cluster
        .until("the replacement has a node", async |cluster| {
            cluster.names::<Node>().await.len() == 2
        })
        .await;
    let nodes = cluster.names::<Node>().await;
    let new = nodes.into_iter().find(|name| *name != old).unwrap();
    let greedy = json!({"metadata": {"name": "greedy"}, "spec": {"nodeName": new, "containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "900m"}}}]}});
    cluster.create::<Pod>(greedy).await;
    cluster
        .until("the command is rolled back", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    let message = cluster.ledger().await[0].status.clone().unwrap().message.unwrap();
    assert!(message.contains("others have taken their places"), "{message}");
    let claims = cluster.list::<NodeClaim>().await;
    let kept = claims
        .iter()
        .find(|claim| claim.node_name() == Some(old.as_str()))
        .unwrap();
    assert!(!kept.is_deleting());
}

/// The node that was to take a pod goes behind a watch of Nodes that stands still: the API server is asked before the pod's node is deleted.
#[tokio::test(start_paused = true)]
async fn invariant_8_a_place_that_went_behind_a_watch_that_stands_still_is_missed() {
    let types = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-8x-amd64-linux"]}]);
    let template = json!({"spec": {"requirements": types, "expireAfter": null}});
    let pool = json!({"template": template, "disruption": {"consolidateAfter": "60s"}});
    let (cluster, _operator) = faulty::Cluster::started(16, pool).await;
    two_nodes_and_web(&cluster, ["left", "right"]).await;
    let [beside, apart] = beside_web_and_apart(&cluster, ["left", "right"]).await;
    let place = cluster.node_of(apart).await;
    let claim = cluster.claim_of_pod("web").await;
    cluster.scale(beside, 0).await;
    cluster
        .until("the pod is to move", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    assert!(cluster.ledger().await[0].spec.destinations.contains(&place));
    cluster.gate.still.lock().unwrap().insert("/nodes");
    cluster.delete::<Node>(&place).await;
    cluster
        .until("the command is rolled back", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    let message = cluster.ledger().await[0].status.clone().unwrap().message.unwrap();
    assert_eq!(
        message,
        format!("node {place}, which was to take pods, is going itself")
    );
    assert!(!cluster.find::<NodeClaim>(&claim).await.unwrap().is_deleting());
}

/// Another command, decided at the same time as this one: it replaces a node by one of the same NodeClaim.
async fn replace_by_hand(cluster: &faulty::Cluster, node: &str, like: &Disruption) {
    let claim = cluster.claim_of(node).await;
    let pool: NodePool = cluster.get("default").await;
    let metadata = json!({"labels": {"karpenter.sh/nodepool": "default"}, "annotations": {"spokeshave.dev/disruption": "by-hand"}});
    let mut spec = json!(like.spec);
    spec["decision"] = json!("Replace");
    spec["destinations"] = json!([]);
    spec["nodes"] = json!([{"name": node, "nodeClaim": claim.name(), "nodeClaimUID": claim.uid(), "providerID": claim.provider_id(),
        "nodePool": "default", "price": "1", "pods": 1}]);
    spec["replacements"] = json!([{"nodeClaim": "default-by-hand", "nodePool": "default", "nodePoolUID": pool.metadata.uid, "price": "1",
        "metadata": metadata, "spec": claim.spec}]);
    let _: Disruption = cluster
        .create(json!({"metadata": {"name": "by-hand"}, "spec": spec}))
        .await;
}

/// A command whose place another one has taken waits for that one's replacement: the API server is asked for pods once there are places, not in every look.
#[tokio::test(start_paused = true)]
async fn invariant_8_a_command_that_waits_for_places_asks_for_pods_once_they_are_there() {
    let types = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-8x-amd64-linux"]}]);
    let template = json!({"spec": {"requirements": types, "expireAfter": null}});
    let disruption = json!({"consolidateAfter": "60s", "budgets": [{"nodes": "100%"}]});
    let pool = json!({"template": template, "disruption": disruption});
    let log = RequestLog::new();
    let setup = faulty::Setup {
        log: Some(log.clone()),
        ..faulty::Setup::with_cloud(KwokOptions {
            termination_delay: Duration::from_secs(3),
            ..KwokOptions::default()
        })
    };
    let (cluster, _operator) = faulty::Cluster::started_with(16, pool, setup).await;
    two_nodes_and_web(&cluster, ["left", "right"]).await;
    // What is launched from now on takes its time.
    let late = json!({"spec": {"nodeRegistrationDelay": "120s"}});
    cluster.patch::<KWOKNodeClass>("default", late).await;
    let [beside, apart] = beside_web_and_apart(&cluster, ["left", "right"]).await;
    let (node, place) = (cluster.node_of("web").await, cluster.node_of(apart).await);
    // The first steps take so long that the other command comes in between.
    *cluster.gate.slow.lock().unwrap() = Some(("/status", Duration::from_secs(3)));
    cluster.scale(beside, 0).await;
    cluster
        .until("the pod is to move", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    let first = cluster.ledger().await.remove(0);
    assert!(first.spec.destinations.contains(&place));
    replace_by_hand(&cluster, &place, &first).await;
    *cluster.gate.slow.lock().unwrap() = None;
    cluster.pass(60).await;
    let lists = || {
        let list = format!("fieldSelector=spec.nodeName%3D{node}");
        log.text().matches(&list).count()
    };
    let waiting: Disruption = cluster.get(first.name()).await;
    assert_eq!(
        waiting.phase(),
        DisruptionPhase::Deleting,
        "{:?}",
        cluster.ledger().await
    );
    assert_eq!(lists(), 0, "there is nothing to be deleted yet");
    cluster
        .until("the command has ended", async |cluster| {
            cluster.get::<Disruption>(first.name()).await.is_finished()
        })
        .await;
    assert!(lists() > 0, "nothing is deleted by what the watch has told alone");
}

/// A pod whose budget never lets it go is bound behind a watch of pods that stands still, before its node is chosen: with a terminationGracePeriod it would be
/// deleted against its budget.
#[tokio::test(start_paused = true)]
async fn invariant_1_a_guarded_pod_behind_a_watch_that_stands_still_keeps_its_node() {
    let types = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-8x-amd64-linux"]}]);
    let template =
        json!({"spec": {"requirements": types, "expireAfter": null, "terminationGracePeriod": "30s"}});
    let pool = json!({"template": template, "disruption": {"consolidateAfter": "60s"}});
    let (cluster, _operator) = faulty::Cluster::started(16, pool).await;
    two_nodes_and_web(&cluster, ["left", "right"]).await;
    let [beside, _] = beside_web_and_apart(&cluster, ["left", "right"]).await;
    let claim = cluster.claim_of_pod("web").await;
    cluster
        .budget_named("guarded", "guarded", json!({"maxUnavailable": 0}))
        .await;
    cluster.scale(beside, 0).await;
    cluster.until_running(2).await;
    cluster.gate.still.lock().unwrap().insert("/pods");
    let here = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": claim}}});
    cluster
        .deploy_with("guarded", 1, crate::words::template("guarded", "100m", here))
        .await;
    cluster.until_running(3).await;
    cluster
        .until("its node is chosen", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    cluster.pass(30).await;
    cluster.gate.still.lock().unwrap().clear();
    cluster
        .until("the command is rolled back", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    let message = cluster.ledger().await[0].status.clone().unwrap().message.unwrap();
    assert!(
        message.starts_with("no eviction of pod default/guarded-"),
        "{message}"
    );
    assert!(!cluster.find::<NodeClaim>(&claim).await.unwrap().is_deleting());
}

/// Scenario 9: two budgets over one pod, both of which allow its eviction: Kubernetes refuses it, so the node stays.
#[tokio::test(start_paused = true)]
async fn g_1_9_d_018_two_budgets_over_one_pod_keep_its_node() {
    let cluster = Cluster::new(32, at_once()).await;
    let _operator = cluster.operator();
    one_large_node(&cluster).await;
    for name in ["one", "two"] {
        cluster
            .budget_named(name, "web", json!({"maxUnavailable": 1}))
            .await;
    }
    cluster.pass(5).await;
    without_large(&cluster).await;
    cluster.pass(300).await;
    cluster.assert_no_commands().await;
    cluster
        .assert_said(
            "DisruptionBlocked",
            "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[default/one default/two])",
        )
        .await;
    cluster.delete::<PodDisruptionBudget>("two").await;
    cluster.until("one small node", on_one_small_node).await;
}

/// Gives the only pod of a Deployment a readiness probe, on the node where it was.
async fn with_readiness_probe(cluster: &Cluster, name: &str) {
    let running = cluster.running().await;
    cluster.scale(name, 0).await;
    cluster.until_running(running - 1).await;
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1});
    let containers = json!([{"name": "c", "readinessProbe": probe}]);
    cluster
        .api::<Deployment>()
        .patch(
            name,
            &PatchParams::default(),
            &Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": containers}}}})),
        )
        .await
        .unwrap();
    cluster.scale(name, 1).await;
    cluster.until_running(running).await;
}

/// Scenario 10: a budget that allows nothing does not hold a pod that is not ready under `AlwaysAllow`.
#[tokio::test(start_paused = true)]
async fn g_1_10_d_021_an_unhealthy_pod_under_always_allow_does_not_block() {
    for policy in ["AlwaysAllow", "IfHealthyBudget"] {
        let cluster = Cluster::new(33, at_once()).await;
        let _operator = cluster.operator();
        one_large_node(&cluster).await;
        with_readiness_probe(&cluster, "web").await;
        let budget = json!({"minAvailable": 1, "unhealthyPodEvictionPolicy": policy});
        cluster.budget("web", budget).await;
        let web = cluster.pod_of("web").await.name_any();
        cluster
            .annotate::<Pod>(&web, "sim.spokeshave.dev/failing-probes", "readiness")
            .await;
        cluster.pass(5).await;
        without_large(&cluster).await;
        if policy == "AlwaysAllow" {
            cluster.until("one small node", on_one_small_node).await;
        } else {
            cluster.pass(200).await;
            cluster.assert_no_commands().await;
            cluster
                .assert_said(
                    "DisruptionBlocked",
                    "Pdb prevents pod evictions (PodDisruptionBudget=[default/web])",
                )
                .await;
        }
    }
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

/// D-197, W-45, invariant 5: a budget that cannot be evaluated is on the NodePool for all to see until it is corrected; `Ready` stays as it is.
#[tokio::test(start_paused = true)]
async fn d_197_w_45_invariant_5_a_budget_that_cannot_be_evaluated_is_a_condition_on_its_nodepool() {
    let never = json!({"nodes": "0", "schedule": "0 0 31 2 *", "duration": "1h", "reasons": ["Drifted"]});
    let cluster = Cluster::new(
        66,
        json!({"consolidateAfter": "Never", "budgets": [{"nodes": "10%"}, never]}),
    )
    .await;
    let _operator = cluster.operator();
    let said = async |cluster: &Cluster| {
        let pool = cluster.list::<NodePool>().await.remove(0);
        let ready = pool.is_true("Ready");
        let one = pool.condition("spokeshave.dev/BudgetsEvaluated").cloned();
        (ready, one.map(|one| (one.status, one.reason, one.message)))
    };
    // Without a node and without a pass of disruption.
    cluster.pass(30).await;
    let (ready, condition) = said(&cluster).await;
    assert!(ready);
    let (status, reason, message) = condition.expect("a condition");
    assert_eq!((&*status, &*reason), ("False", "BudgetNotEvaluated"));
    assert!(
        message.starts_with("spec.disruption.budgets[1].schedule: "),
        "{message}"
    );
    assert!(
        message.contains("\"0 0 31 2 *\" has no hit within five years"),
        "{message}"
    );
    assert!(message.ends_with("nothing is disrupted as Drifted"), "{message}");
    let name = cluster.names::<NodePool>().await.remove(0);
    let mended = json!({"spec": {"disruption": {"budgets": [{"nodes": "10%"}]}}});
    cluster.patch::<NodePool>(&name, mended).await;
    cluster.pass(30).await;
    assert_eq!(said(&cluster).await, (true, None));
}
