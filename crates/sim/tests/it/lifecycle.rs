//! Nodes that begin and end in bad company: clouds that lie, hang or run dry, claims and nodes that people edit, evictions that webhooks refuse, a
//! thousand nodes due at once, two operators. Each test says what goes wrong, what must be said about it, and that nobody else is hurt.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::faulty::{Cluster, Gate, Setup};
use crate::words::*;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::{KWOKInstance, NodeClaim, NodePool};
use spokeshave_controllers::{FeatureGates, LeaderElectionOptions, Options as OperatorOptions};
use spokeshave_ports::{CloudError, CloudFuture, HookAnswer, RegistrationHook};
use spokeshave_provider_kwok::KwokOptions;
use spokeshave_runtime::client::RequestLog;

/// Deploys `web` with one pod, waits until it runs, and returns the NodeClaim that was made for it.
async fn run_one_pod(cluster: &Cluster) -> String {
    cluster.deploy("web", 1, "1").await;
    cluster.until_running_of("web", 1).await;
    cluster.claim_of_pod("web").await
}

/// The NodePool has an event that names the NodeClaim whose instance was left over.
async fn assert_told_of_leaked(cluster: &Cluster, claim: &str) {
    let told = cluster.told("LeakedInstanceTerminated").await;
    assert!(
        told.iter()
            .any(|(about, text)| about == "NodePool/default" && text.contains(claim)),
        "{told:?}"
    );
}

// W-22, invariant 22: a launch that hangs, in one NodePool, delays no pod of another.
#[tokio::test(start_paused = true)]
async fn d_045_d_046_d_047_d_048_w_22_a_stuck_nodeclaim_delays_nobody_else() {
    let cluster = Cluster::new(1).await;
    cluster.teams_a_and_b_where_launches_of_a_hang().await;
    let _operator = cluster.operator(Setup::default());
    let of = |team: &str| json!({"spec": {"nodeSelector": {"team": team}}});
    cluster
        .deploy_with("stuck", 1, template("stuck", "1", of("a")))
        .await;
    cluster.pass(30).await;
    assert_eq!(
        cluster.names::<NodeClaim>().await.len(),
        1,
        "the launch in pool a hangs"
    );
    let start = cluster.clock.now();
    cluster
        .deploy_with("free", 2, template("free", "1", of("b")))
        .await;
    cluster.until_running_of("free", 2).await;
    assert!(
        cluster.clock.since(start) < Duration::from_secs(40),
        "pool b waited for pool a"
    );
    // D-263: the hanging launch is given up, and tried anew; when the cloud answers again the pod runs.
    cluster.pass(600).await;
    assert_eq!(cluster.running_of("stuck").await, 0);
    cluster.faults.hanging_pools.lock().unwrap().clear();
    cluster.until_running_of("stuck", 1).await;
    cluster.assert_no_leak().await;
}

// W-22, issue 6: what blocks a drain is named with the arithmetic of the budget, and cleared when it no longer does.
#[tokio::test(start_paused = true)]
async fn d_331_w_28_a_blocked_drain_names_its_budget_and_says_since_when() {
    let cluster = Cluster::new(2).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::default());
    cluster.deploy("web", 3, "1").await;
    cluster.until_running_of("web", 3).await;
    cluster.budget("web", json!({"minAvailable": 3})).await;
    cluster.pass(5).await;
    let claim = cluster.claim_of_pod("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    let message = cluster.until_blocked(&claim, "PodDisruptionBudget").await;
    assert!(
        message.ends_with("PodDisruptionBudget default/web: 0 of 3 may be down: minAvailable 3, 3 healthy"),
        "{message}"
    );
    let told = cluster.told("TerminationBlocked").await;
    for object in ["Node/", "NodeClaim/"] {
        assert!(
            told.iter().any(|(about, text)| about.starts_with(object)
                && text.contains("0 of 3 may be down")
                && text.contains(", since 2026-01-01T")),
            "{object}: {told:?}"
        );
    }
    // Written when it changes, and only then.
    let version = async || cluster.get::<NodeClaim>(&claim).await.resource_version();
    let before = version().await;
    cluster.pass(1200).await;
    assert_eq!(
        before,
        version().await,
        "nothing has changed, and nothing was written"
    );
    let looser = json!({"spec": {"minAvailable": 1}});
    cluster.patch::<PodDisruptionBudget>("web", looser).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 3).await;
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn d_331_two_budgets_over_one_pod_are_named_and_the_rest_drains() {
    let cluster = Cluster::new(3).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::default());
    cluster.deploy("web", 1, "1").await;
    cluster.deploy("other", 1, "1").await;
    cluster.until_running_of("web", 1).await;
    cluster.until_running_of("other", 1).await;
    for name in ["first", "second"] {
        cluster
            .budget_named(name, "web", json!({"minAvailable": 0}))
            .await;
    }
    cluster.pass(5).await;
    let claim = cluster.claim_of_pod("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    let message = cluster
        .until_blocked(&claim, "MultiplePodDisruptionBudgets")
        .await;
    assert!(message.contains("(default/first, default/second)"), "{message}");
    cluster.until_running_of("other", 1).await;
    cluster.delete::<PodDisruptionBudget>("second").await;
    cluster.until_gone::<NodeClaim>(&claim).await;
}

// D-330: a webhook's 403 is quoted, tried again with back-off, and holds nobody else up.
#[tokio::test(start_paused = true)]
async fn d_324_d_330_an_eviction_that_a_webhook_forbids_is_told_and_tried_again_slowly() {
    let cluster = Cluster::new(4).await;
    cluster.pool("default", json!({})).await;
    let operator = cluster.operator(Setup::default());
    cluster.deploy("web", 1, "1").await;
    cluster.deploy("other", 1, "1").await;
    cluster.until_running_of("web", 1).await;
    cluster.until_running_of("other", 1).await;
    let holy = cluster.pod_of("web").await.name_any();
    cluster.gate.refused.lock().unwrap().insert(holy.clone(), 403);
    let claim = cluster.claim_of_pod("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    let message = cluster.until_blocked(&claim, "EvictionRefused").await;
    assert!(
        message.contains("answered 403") && message.contains("guard.example.com"),
        "{message}"
    );
    assert!(!cluster.events("EvictionRejected").await.is_empty());
    let asked = || {
        let family = "karpenter_pods_eviction_requests_total";
        value(&operator.metrics, family, "{code=\"403\"}")
    };
    let before = asked();
    cluster.pass(600).await;
    let tries = asked() - before;
    assert!(
        (50.0..=70.0).contains(&tries),
        "{tries} tries in ten minutes, every 10 s are due"
    );
    cluster.gate.refused.lock().unwrap().insert(holy.clone(), 500);
    cluster.pass(60).await;
    cluster.gate.refused.lock().unwrap().clear();
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

// D-314, D-351: a cloud that cannot end an instance is named, for as long as it cannot.
#[tokio::test(start_paused = true)]
async fn d_314_d_351_a_cloud_that_fails_or_hangs_at_the_end_is_named() {
    let cluster = Cluster::new(5).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::default());
    let claim = run_one_pod(&cluster).await;
    *cluster.faults.delete_error.lock().unwrap() = Some("quota of API calls is used up".to_owned());
    cluster.delete::<NodeClaim>(&claim).await;
    let message = cluster.until_blocked(&claim, "ProviderError").await;
    assert!(message.contains("quota of API calls is used up"), "{message}");
    cluster.until_running_of("web", 1).await;
    *cluster.faults.delete_error.lock().unwrap() = None;
    cluster.faults.hang.store(true, Ordering::Relaxed);
    cluster
        .until("the claim says that the cloud hangs", async |cluster| {
            cluster
                .blocked(&claim)
                .await
                .is_some_and(|(_, message)| message.contains("has not answered Delete within 120 s"))
        })
        .await;
    // Meanwhile others come and go.
    cluster.deploy("late", 1, "6").await;
    cluster.until_running_of("late", 1).await;
    cluster.faults.hang.store(false, Ordering::Relaxed);
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.assert_no_leak().await;
}

// D-252, D-253, invariant 11: a cloud that says "gone" of an instance that runs cannot make us lose it.
#[tokio::test(start_paused = true)]
async fn d_253_a_cloud_that_lies_about_the_end_is_found_out() {
    let cluster = Cluster::new(6).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::default());
    let claim = run_one_pod(&cluster).await;
    // The finalizer goes on the cloud's word, and the cloud lies.
    cluster.excuse(14);
    cluster.faults.lies.store(true, Ordering::Relaxed);
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.faults.lies.store(false, Ordering::Relaxed);
    cluster
        .until("the instance that was lied about is ended", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            let instances = cluster.list::<KWOKInstance>().await;
            instances.iter().all(|instance| {
                claims
                    .iter()
                    .any(|claim| claim.uid() == instance.spec.node_claim_uid)
            })
        })
        .await;
    cluster.until_running_of("web", 1).await;
    assert_told_of_leaked(&cluster, &claim).await;
}

// D-252: an instance that ends at once when it is asked to is told of, and its Node goes with it.
#[tokio::test(start_paused = true)]
async fn d_252_a_leaked_instance_that_ends_at_once_takes_its_node_along() {
    let cluster = Cluster::new(62).await;
    cluster.pool("default", json!({})).await;
    let at_once = || Setup {
        kwok: KwokOptions::default(),
        ..Setup::default()
    };
    let first = cluster.operator(at_once());
    let claim = run_one_pod(&cluster).await;
    let node = cluster.names::<Node>().await.remove(0);
    first.stop.request();
    first.task.await.unwrap().unwrap();
    // Somebody takes the NodeClaim away and leaves its Node, while nobody looks.
    cluster.excuse(14);
    cluster.clock.sleep(Duration::from_secs(60)).await;
    cluster.remove_finalizers::<NodeClaim>(&claim).await;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    cluster.api::<NodeClaim>().delete(&claim, &orphan).await.unwrap();
    let _second = cluster.operator(at_once());
    cluster.until_gone::<Node>(&node).await;
    cluster.until_running_of("web", 1).await;
    assert_told_of_leaked(&cluster, &claim).await;
    cluster.assert_no_leak().await;
}

// D-253: a Node that somebody took away, finalizers and all, is missed, told and replaced, though its instance runs on.
#[tokio::test(start_paused = true)]
async fn d_253_a_claim_whose_node_was_taken_away_is_told_and_goes_after_fifteen_minutes() {
    let cluster = Cluster::new(63).await;
    cluster.pool("default", json!({})).await;
    let first = cluster.operator(Setup::default());
    let claim = run_one_pod(&cluster).await;
    let node = cluster.names::<Node>().await.remove(0);
    first.stop.request();
    first.task.await.unwrap().unwrap();
    cluster.excuse(14);
    cluster.remove_finalizers::<Node>(&node).await;
    cluster.delete::<Node>(&node).await;
    let _second = cluster.operator(Setup::default());
    cluster.pass(5 * 60).await;
    let about = format!("NodeClaim/{claim}");
    let told = cluster.told("NodeMissing").await;
    assert!(
        told.iter()
            .any(|(object, text)| *object == about && text.contains(&node)),
        "{told:?}"
    );
    cluster.pass(9 * 60).await;
    assert!(
        cluster.names::<NodeClaim>().await.contains(&claim),
        "its Node may still come back"
    );
    cluster.pass(4 * 60).await;
    assert!(
        !cluster.names::<NodeClaim>().await.contains(&claim),
        "{:?}",
        cluster.names::<NodeClaim>().await
    );
    assert!(!cluster.events("NodeMissingTooLong").await.is_empty());
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

// D-249, D-250: lists that come late or twice end nothing that runs.
#[tokio::test(start_paused = true)]
async fn d_249_late_and_doubled_lists_end_nothing_that_runs() {
    let cluster = Cluster::new(7).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::default());
    cluster.faults.duplicates.store(true, Ordering::Relaxed);
    cluster.deploy("web", 3, "6").await;
    cluster.until_running_of("web", 3).await;
    let before = cluster.names::<NodeClaim>().await;
    let ids = cluster.list::<NodeClaim>().await;
    let ids = ids
        .iter()
        .filter_map(|claim| claim.provider_id().map(str::to_owned));
    cluster.faults.unlisted.lock().unwrap().extend(ids);
    cluster.pass(600).await;
    assert_eq!(cluster.names::<NodeClaim>().await, before);
    assert_eq!(cluster.running_of("web").await, 3);
}

#[tokio::test(start_paused = true)]
async fn nodes_without_or_with_a_foreign_provider_id_are_told_and_left_alone() {
    let cluster = Cluster::new(8).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::default());
    let labels = json!({"karpenter.sh/nodepool": "default"});
    for (name, spec) in [
        ("nameless", json!({})),
        ("foreign", json!({"providerID": "aws:///zone-a/i-0123"})),
    ] {
        cluster
            .create::<Node>(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))
            .await;
    }
    cluster.deploy("web", 1, "1").await;
    cluster.until_running_of("web", 1).await;
    cluster.pass(120).await;
    let about = |told: Vec<(String, String)>| told.into_iter().map(|(about, _)| about).collect::<Vec<_>>();
    assert_eq!(about(cluster.told("ProviderIDMissing").await), ["Node/nameless"]);
    assert_eq!(about(cluster.told("NodeClaimMissing").await), ["Node/foreign"]);
    let nodes = cluster.names::<Node>().await;
    assert!(nodes.contains(&"nameless".to_owned()) && nodes.contains(&"foreign".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn d_307_claims_edited_by_hand_are_mended_or_told() {
    let cluster = Cluster::new(9).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::default());
    cluster.deploy("web", 2, "6").await;
    cluster.until_running_of("web", 2).await;
    let claims = cluster.names::<NodeClaim>().await;
    let [one, two] = &claims[..] else {
        panic!("two claims: {claims:?}")
    };
    let id = async |name: &str| {
        let claim = cluster.get::<NodeClaim>(name).await;
        claim.provider_id().map(str::to_owned)
    };
    // A provider ID that somebody took away is found again.
    let own = id(one).await;
    cluster
        .patch_status::<NodeClaim>(one, json!({"providerID": null}))
        .await;
    cluster
        .until("the provider ID is back", async |_| id(one).await == own)
        .await;
    // A finalizer that somebody took away is put back.
    cluster.remove_finalizers::<NodeClaim>(one).await;
    cluster
        .until("the finalizer is back", async |cluster| {
            let claim = cluster.get::<NodeClaim>(one).await;
            claim
                .finalizers()
                .iter()
                .any(|name| name == "karpenter.sh/termination")
        })
        .await;
    // Another's provider ID is told, and the other's instance outlives the claim.
    // Whose finalizer goes is not told by its own instance any more; that one is collected as garbage.
    cluster.excuse(14);
    let stolen = id(two).await.unwrap();
    cluster
        .patch_status::<NodeClaim>(one, json!({"providerID": stolen}))
        .await;
    cluster.pass(30).await;
    assert!(!cluster.events("ProviderIDShared").await.is_empty());
    cluster.delete::<NodeClaim>(one).await;
    cluster.until_gone::<NodeClaim>(one).await;
    cluster.pass(300).await;
    assert!(
        cluster.names::<NodeClaim>().await.contains(two),
        "the other was not touched"
    );
    let instances = cluster.list::<KWOKInstance>().await;
    assert!(
        instances.iter().any(|instance| stolen.ends_with(instance.name())),
        "the other's instance runs on"
    );
    cluster.until_running_of("web", 2).await;
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn d_303_an_unreadable_deadline_is_named_and_can_be_mended() {
    let cluster = Cluster::new(10).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::default());
    let claim = run_one_pod(&cluster).await;
    let key = "karpenter.sh/nodeclaim-termination-timestamp";
    cluster.annotate::<NodeClaim>(&claim, key, "tomorrow").await;
    cluster.delete::<NodeClaim>(&claim).await;
    let message = cluster.until_blocked(&claim, "InvalidTerminationTimestamp").await;
    assert!(
        message.contains("\"tomorrow\"") && message.contains("RFC 3339"),
        "{message}"
    );
    cluster.annotate::<NodeClaim>(&claim, key, Value::Null).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn d_319_a_pod_that_never_ends_and_foreign_finalizers_are_told() {
    let cluster = Cluster::new(11).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::default());
    cluster
        .deploy_with(
            "web",
            1,
            template(
                "web",
                "1",
                json!({"metadata": {"finalizers": ["example.com/hold"]}}),
            ),
        )
        .await;
    cluster.until_running_of("web", 1).await;
    let claim = cluster.claim_of_pod("web").await;
    let node = cluster.names::<Node>().await.remove(0);
    let hold = json!({"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/audit"]}});
    cluster.patch::<Node>(&node, hold).await;
    cluster.delete::<NodeClaim>(&claim).await;
    let message = cluster.until_blocked(&claim, "PodTerminating").await;
    assert!(
        message.contains("held by finalizer example.com/hold"),
        "{message}"
    );
    // A minute after its end the drain goes on without it; then the Node is held by somebody else's finalizer.
    let message = cluster.until_blocked(&claim, "NodeFinalizers").await;
    assert!(
        message.contains(&format!("{node} (example.com/audit)")),
        "{message}"
    );
    assert!(!cluster.events("PodStuckTerminating").await.is_empty());
    cluster.remove_finalizers::<Node>(&node).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.assert_no_leak().await;
}

// D-254…D-260: broken nodes are replaced after their time, but not when many are broken.
#[tokio::test(start_paused = true)]
async fn d_257_d_258_d_259_d_260_d_261_node_repair_replaces_one_broken_node_and_stops_at_many() {
    let options = spokeshave_sim::Options {
        kubelets: true,
        ..spokeshave_sim::Options::all()
    };
    let cluster = Cluster::with(12, options).await;
    // D-260: a budget of nothing does not keep a broken node, nor does an annotation.
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let closed = json!({"disruption": {"budgets": [{"nodes": "0"}]}, "template": protected});
    cluster.pool("default", closed).await;
    let setup = Setup {
        options: OperatorOptions {
            feature_gates: FeatureGates {
                node_repair: true,
                ..FeatureGates::default()
            },
            ..OperatorOptions::default()
        },
        ..Setup::default()
    };
    let operator = cluster.operator(setup);
    cluster.deploy("web", 5, "6").await;
    cluster.until_running_of("web", 5).await;
    let nodes = cluster.names::<Node>().await;
    let fell = cluster.clock.now();
    let break_node = async |name: &str| {
        let since = fell.to_string();
        let status = json!({"conditions": [
            {"type": "Ready", "status": "Unknown", "reason": "Broken", "message": "", "lastTransitionTime": since, "lastHeartbeatTime": since},
        ]});
        cluster.patch_status::<Node>(name, status).await;
    };
    // Three of five are more than 20 %, and so are three of eight, when their pods have got new nodes.
    for name in &nodes[..3] {
        break_node(name).await;
    }
    cluster.pass(900).await;
    let left = cluster.list::<Node>().await;
    assert!(
        nodes
            .iter()
            .all(|name| left.iter().any(|node| node.name_any() == *name)),
        "repair is blocked"
    );
    assert!(!cluster.events("NodeRepairBlocked").await.is_empty());
    // One is not.
    let well = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Well", "message": "", "lastTransitionTime": cluster.clock.now().to_string()}]});
    for name in &nodes[1..3] {
        cluster.patch_status::<Node>(name, well.clone()).await;
    }
    cluster.until_gone::<Node>(&nodes[0]).await;
    cluster.until_running_of("web", 5).await;
    let text = operator.metrics.render();
    assert!(
        text.contains("karpenter_nodeclaims_unhealthy_disrupted_total{capacity_type=")
            && text.contains("condition=\"ready\""),
        "D-261"
    );
    cluster.assert_no_leak().await;
}

// D-353…D-359, D-361: static NodePools.
#[tokio::test(start_paused = true)]
async fn d_356_d_357_a_static_pool_keeps_its_number() {
    let cluster = Cluster::new(13).await;
    let setup = Setup {
        options: OperatorOptions {
            feature_gates: FeatureGates {
                static_capacity: true,
                ..FeatureGates::default()
            },
            ..OperatorOptions::default()
        },
        ..Setup::default()
    };
    cluster
        .pool("fixed", json!({"replicas": 3, "limits": {"nodes": "4"}}))
        .await;
    let _operator = cluster.operator(setup);
    let ready = async |cluster: &Cluster| {
        let claims = cluster.list::<NodeClaim>().await;
        let alive = claims.iter().filter(|claim| !claim.is_deleting());
        alive.filter(|claim| claim.is_true("Initialized")).count()
    };
    cluster
        .until("three nodes", async |cluster| ready(cluster).await == 3)
        .await;
    assert_eq!(cluster.names::<NodeClaim>().await.len(), 3);
    let victim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete::<NodeClaim>(&victim).await;
    cluster.until_gone::<NodeClaim>(&victim).await;
    cluster
        .until("three again", async |cluster| ready(cluster).await == 3)
        .await;
    let scale = async |replicas: i64| {
        let patch = json!({"spec": {"replicas": replicas}});
        cluster.patch::<NodePool>("fixed", patch).await;
    };
    scale(6).await;
    cluster.pass(120).await;
    assert_eq!(cluster.names::<NodeClaim>().await.len(), 4, "limits.nodes");
    scale(1).await;
    cluster
        .until("one is left", async |cluster| {
            cluster.names::<NodeClaim>().await.len() == 1
        })
        .await;
    cluster.pass(120).await;
    assert_eq!(ready(&cluster).await, 1);
    cluster.assert_no_leak().await;
}

// D-233: as the last check the cloud is asked, and what it answers is the reason, in its words (D-234…D-240); an error is no drift; kwok never drifts.
#[tokio::test(start_paused = true)]
async fn d_233_to_d_240_what_the_cloud_says_is_the_reason() {
    let cluster = Cluster::new(16).await;
    let spec = json!({"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}});
    cluster.pool("default", spec).await;
    let _operator = cluster.operator(Setup::default());
    cluster.deploy("web", 1, "1").await;
    cluster.until_running_of("web", 1).await;
    let name = cluster.names::<NodeClaim>().await.remove(0);
    cluster.pass(600).await;
    assert_eq!(cluster.condition(&name, "Drifted").await, None, "kwok");
    for reason in [
        "NodeClassDrift",
        "AMIDrift",
        "SecurityGroupDrift",
        "SubnetDrift",
        "CapacityReservationDrift",
        "PlacementGroupDrift",
        "K8sVersionDrift",
        "KubeletIdentityDrift",
        "ImageDrift",
        "ClusterConfigDrift",
    ] {
        *cluster.faults.drift.lock().unwrap() = Some(reason.to_owned());
        cluster.pass(310).await;
        let (status, said, message) = cluster.condition(&name, "Drifted").await.unwrap();
        assert_eq!(
            (status.as_str(), said.as_str(), message.as_str()),
            ("True", reason, reason)
        );
    }
    *cluster.faults.drift.lock().unwrap() = None;
    cluster.pass(310).await;
    assert_eq!(cluster.condition(&name, "Drifted").await, None);
    *cluster.faults.drift.lock().unwrap() = Some(String::new());
    cluster.pass(310).await;
    assert_eq!(
        cluster.condition(&name, "Drifted").await,
        None,
        "an error is no drift"
    );
}

// P-182, D-269, P-169.
#[tokio::test(start_paused = true)]
async fn p_182_nodes_that_never_join_make_their_pool_unhealthy_until_one_does() {
    let cluster = Cluster::new(14).await;
    cluster.pool("default", json!({})).await;
    let setup = Setup {
        kwok: KwokOptions {
            never_register_failures: "first:1".parse().unwrap(),
            termination_delay: Duration::from_secs(3),
            ..KwokOptions::default()
        },
        ..Setup::default()
    };
    let doomed = cluster.operator(setup);
    cluster.deploy("web", 2, "6").await;
    let health = async |cluster: &Cluster| {
        let pool = cluster.get::<NodePool>("default").await;
        let one = pool.condition("NodeRegistrationHealthy").cloned();
        one.map(|one| (one.status, one.reason)).unwrap_or_default()
    };
    cluster
        .until("the pool says that its nodes do not join", async |cluster| {
            health(cluster).await == ("False".to_owned(), "RegistrationFailed".to_owned())
        })
        .await;
    let text = doomed.metrics.render();
    assert!(text.contains("reason=\"registration_timeout\""));
    doomed.stop.request();
    doomed.task.await.unwrap().unwrap();
    let _again = cluster.operator(Setup::default());
    cluster.until_running_of("web", 2).await;
    // Two of the last four have failed still; the third success decides.
    cluster.deploy("more", 1, "6").await;
    cluster
        .until("the pool has recovered", async |cluster| {
            health(cluster).await.0 == "True"
        })
        .await;
    cluster.assert_no_leak().await;
}

/// A hook that is ready when somebody says so, and until then fails, hangs or asks for patience.
#[derive(Debug)]
struct Hook {
    name: &'static str,
    ready: Arc<AtomicBool>,
    until_then: Mood,
}

#[derive(Clone, Copy, Debug)]
enum Mood {
    Patient,
    Failing,
    Hanging,
}

impl RegistrationHook for Hook {
    fn name(&self) -> &str {
        self.name
    }

    fn registered<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, HookAnswer> {
        let ready = self.ready.load(Ordering::Relaxed);
        match self.until_then {
            _ if ready => async { Ok(HookAnswer::Ready) }.boxed(),
            Mood::Patient => async { Ok(HookAnswer::AskAgain(Duration::from_secs(3))) }.boxed(),
            Mood::Failing => async { Err(CloudError::Other("not reachable".to_owned())) }.boxed(),
            Mood::Hanging => std::future::pending().boxed(),
        }
    }
}

// P-167: until every hook is ready the Node keeps its taint, and the NodeClaim names who is waited for; then it registers by itself.
#[tokio::test(start_paused = true)]
async fn p_167_a_node_registers_when_every_hook_of_the_provider_is_ready() {
    let cluster = Cluster::new(61).await;
    cluster.pool("default", json!({})).await;
    let ready = Arc::new(AtomicBool::new(false));
    let hook = |name, until_then| -> Arc<dyn RegistrationHook> {
        let ready = ready.clone();
        Arc::new(Hook {
            name,
            ready,
            until_then,
        })
    };
    let _operator = cluster.operator(Setup {
        hooks: vec![
            hook("disks", Mood::Patient),
            hook("network", Mood::Failing),
            hook("audit", Mood::Hanging),
        ],
        ..Setup::default()
    });
    cluster.deploy("web", 1, "1").await;
    cluster.pass(180).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    let (status, reason, message) = cluster.condition(&claim, "Registered").await.unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str(), message.as_str()),
        ("Unknown", "RegistrationHookPending", "disks, network, audit")
    );
    let node = cluster.list::<Node>().await.remove(0);
    assert!(
        node.metadata.finalizers.is_some(),
        "the Node has what its NodeClaim says"
    );
    let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
    assert!(
        taints
            .iter()
            .any(|taint| taint.key == "karpenter.sh/unregistered")
    );
    assert_eq!(cluster.running_of("web").await, 0);
    ready.store(true, Ordering::Relaxed);
    cluster.until_running_of("web", 1).await;
    assert_eq!(cluster.condition(&claim, "Registered").await.unwrap().0, "True");
    cluster.assert_no_leak().await;
}

// W-20: nodes of one age are all told to go within a minute. A tenth of a thousand nodes at a tenth of the default rate of requests; the whole
// thousand is `scale -- 1000 0 --expire`.
#[tokio::test(start_paused = true)]
async fn w_20_nodes_that_expire_at_once_all_start_within_a_minute() {
    const NODES: usize = 100;
    let options = spokeshave_sim::Options {
        workloads: false,
        scheduler: false,
        volumes: false,
        disruption_budgets: false,
        ..spokeshave_sim::Options::all()
    };
    let cluster = Cluster::with(15, options).await;
    let spec = json!({"replicas": NODES, "template": {"spec": {"expireAfter": "1h"}}});
    cluster.pool("fixed", spec).await;
    let setup = Setup {
        options: OperatorOptions {
            feature_gates: FeatureGates {
                static_capacity: true,
                ..FeatureGates::default()
            },
            ..OperatorOptions::default()
        },
        rate: Some((20.0, 30)),
        ..Setup::default()
    };
    let operator = cluster.operator(setup);
    let count = async |cluster: &Cluster| cluster.list::<NodeClaim>().await.len();
    while count(&cluster).await < NODES {
        cluster.pass(10).await;
    }
    let claims = cluster.list::<NodeClaim>().await;
    let created = |claim: &NodeClaim| claim.metadata.creation_timestamp.as_ref().unwrap().0;
    let last = claims.iter().map(created).max().unwrap();
    let names: BTreeSet<String> = claims.iter().map(|claim| claim.name().to_owned()).collect();
    // P §16, invariant 41: the number of series does not grow with the nodes.
    let text = operator.metrics.render();
    let series = operator.metrics.series_count();
    assert!(series <= 500, "{series} series:\n{text}");
    assert!(
        !text.contains(names.first().unwrap()),
        "a series names a NodeClaim"
    );
    let deadline = last + Duration::from_secs(3600 + 60);
    cluster.clock.sleep(cluster.clock.until(deadline)).await;
    let idle = cluster
        .list::<NodeClaim>()
        .await
        .iter()
        .filter(|claim| names.contains(claim.name()) && !claim.is_deleting())
        .count();
    assert_eq!(
        idle, 0,
        "{idle} of {NODES} were not told to go a minute after the last was due"
    );
}

// Invariant 36: only the leader writes, and one that is cut off from its Lease stops before the next one starts.
#[tokio::test(start_paused = true)]
async fn invariant_36_two_operators_only_the_leader_writes() {
    let cluster = Cluster::new(16).await;
    cluster.pool("default", json!({})).await;
    let log = |identity: &'static str, log: &RequestLog| Setup {
        options: OperatorOptions {
            leader_election: Some(LeaderElectionOptions {
                namespace: "kube-system".to_owned(),
                name: "karpenter-leader-election".to_owned(),
                identity: identity.to_owned(),
            }),
            ..OperatorOptions::default()
        },
        identity,
        log: Some(log.clone()),
        ..Setup::default()
    };
    let (first_log, second_log) = (RequestLog::new(), RequestLog::new());
    let first = cluster.operator(log("first", &first_log));
    cluster.deploy("web", 2, "6").await;
    cluster.until_running_of("web", 2).await;
    // The second shares the server, but not the gate that will be shut on the first.
    let gate = std::mem::take(&mut cluster.gate.clone());
    let mut apart = Cluster {
        lab: cluster.lab.clone(),
        shutdown: cluster.shutdown.clone(),
        faults: cluster.faults.clone(),
        gate: Gate::default(),
        excused: cluster.excused.clone(),
    };
    apart.gate.refused = gate.refused.clone();
    let second = apart.operator(log("second", &second_log));
    let writes = |log: &RequestLog| -> Vec<String> {
        log.text()
            .lines()
            .filter(|line| !line.starts_with("GET ") && !line.contains("/leases"))
            .map(str::to_owned)
            .collect()
    };
    cluster.pass(60).await;
    cluster.deploy("more", 1, "6").await;
    cluster.until_running_of("more", 1).await;
    assert_eq!(
        writes(&second_log),
        Vec::<String>::new(),
        "the standby has written"
    );
    assert!(!writes(&first_log).is_empty());
    // The leader loses the network; nothing it had in hand may reach the server once the other leads.
    let before = writes(&first_log).len();
    cluster.gate.cut.store(true, Ordering::Relaxed);
    cluster.deploy("last", 1, "6").await;
    cluster.until_running_of("last", 1).await;
    assert!(!writes(&second_log).is_empty(), "the standby has taken over");
    cluster.gate.cut.store(false, Ordering::Relaxed);
    let ended = tokio::time::timeout(Duration::from_secs(60), first.task).await;
    assert!(
        matches!(ended, Ok(Ok(Err(_)))),
        "the deposed leader ends by itself: {ended:?}"
    );
    let after: Vec<String> = writes(&first_log).split_off(before);
    let claims_made = after
        .iter()
        .filter(|line| line.starts_with("POST") && line.contains("/nodeclaims"));
    assert!(claims_made.count() <= 1, "{after:?}");
    cluster.assert_no_leak().await;
    drop(second);
}
