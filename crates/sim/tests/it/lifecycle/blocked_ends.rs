//! Blocked terminations: budgets, webhooks, finalizers, clouds, rate limits. Each blocker is reported as long as it exists, and nothing else is affected.

use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::conditions::{Conditioned as _, DRAINED, TERMINATION_BLOCKED};
use spokeshave_api::{DisruptionPolicy, NodeClaim};
use spokeshave_controllers::{EvictionRate, Options as OperatorOptions};
use spokeshave_provider_kwok::KwokOptions;

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

// W-22, issue 6: what blocks a drain is named with the arithmetic of the budget, and cleared when it no longer does.
#[tokio::test(start_paused = true)]
async fn d_331_w_28_a_blocked_drain_names_its_budget_and_says_since_when() {
    let (cluster, _operator) = Cluster::started(2, json!({})).await;
    cluster.run("web", 3, "1").await;
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

/// What is in the way of a drain changes; since when the drain waits does not, and what passes by is no event.
#[tokio::test(start_paused = true)]
async fn w_28_another_blocker_of_a_drain_dates_from_its_beginning_and_is_told_if_it_lasts() {
    let (cluster, _operator) = Cluster::started(40, json!({})).await;
    cluster.run("web", 3, "1").await;
    cluster.budget("web", json!({"minAvailable": 3})).await;
    cluster.pass(5).await;
    let pod = cluster.pod_of("web").await.name_any();
    let claim = cluster.claim_of_pod("web").await;
    let since = async |kind: &str| {
        let claim = cluster.get::<NodeClaim>(&claim).await;
        claim.condition(kind).unwrap().last_transition_time
    };
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_blocked(&claim, "PodDisruptionBudget").await;
    let begun = since(DRAINED).await;
    assert!(cluster.clock.since(begun) >= Duration::from_secs(30));
    assert_eq!(since(TERMINATION_BLOCKED).await, begun);
    cluster.pass(20).await;
    cluster.annotate::<Pod>(&pod, DO_NOT_DISRUPT, "true").await;
    cluster.delete::<PodDisruptionBudget>("web").await;
    cluster.until_blocked(&claim, "DoNotDisrupt").await;
    assert_eq!(since(DRAINED).await, begun);
    assert_eq!(since(TERMINATION_BLOCKED).await, begun);
    let told = async || {
        let mut told = cluster.events("TerminationBlocked").await;
        told.retain(|text| text.contains("carries karpenter.sh/do-not-disrupt"));
        told
    };
    cluster.pass(10).await;
    assert_eq!(told().await, Vec::<String>::new(), "it may be about to go");
    cluster.pass(40).await;
    let told = told().await;
    assert!(
        told.iter()
            .any(|text| text.ends_with(&format!(", since {begun}"))),
        "{told:?}"
    );
    cluster.annotate::<Pod>(&pod, DO_NOT_DISRUPT, Value::Null).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
}

#[tokio::test(start_paused = true)]
async fn d_331_two_budgets_over_one_pod_are_named_and_the_rest_drains() {
    let (cluster, _operator) = Cluster::started(3, json!({})).await;
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

// D-330: a webhook's 403 is quoted, retried with back-off, and delays no other pod.
#[tokio::test(start_paused = true)]
async fn d_324_d_330_an_eviction_that_a_webhook_forbids_is_told_and_tried_again_slowly() {
    let (cluster, operator) = Cluster::started(4, json!({})).await;
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

/// An eviction that the API server fails is a failed write; one that a webhook forbids is none, also where it answers 429, after which clients try again.
#[tokio::test(start_paused = true)]
async fn d_330_evictions_that_fail_trip_the_circuit_breaker_of_the_api_server() {
    let (cluster, _operator) = Cluster::started(68, json!({})).await;
    let breaker = json!({"circuitBreakers": {"apiServer": {"count": 5, "within": "20m"}}});
    let _: DisruptionPolicy = cluster
        .create(json!({"metadata": {"name": "careful"}, "spec": breaker}))
        .await;
    cluster.run("web", 1, "5").await;
    cluster.run("other", 1, "5").await;
    let has_tripped = async || {
        let policy: DisruptionPolicy = cluster.get("careful").await;
        let active = policy.status.map(|status| status.active).unwrap_or_default();
        active
            .iter()
            .any(|rule| rule.field == "spec.circuitBreakers.apiServer")
    };
    let pod = cluster.pod_of("web").await.name_any();
    let refuse = |code| cluster.gate.refused.lock().unwrap().insert(pod.clone(), code);
    refuse(403);
    let claim = cluster.claim_of_pod("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    for code in [403, 429] {
        refuse(code);
        cluster.pass(120).await;
        assert!(!has_tripped().await, "{code}");
        let told = cluster.told("EvictionRejected").await;
        let answer = format!("was answered {code}: admission webhook");
        assert!(told.iter().any(|(_, text)| text.contains(&answer)), "{told:?}");
    }
    let told = cluster.events("FailedDraining").await;
    assert!(
        !told.iter().any(|text| text.contains("violates a PDB")),
        "{told:?}"
    );
    cluster.gate.refused.lock().unwrap().insert(pod, 500);
    cluster
        .until("the breaker has tripped", async |_| has_tripped().await)
        .await;
    cluster.gate.refused.lock().unwrap().clear();
    cluster.until_gone::<NodeClaim>(&claim).await;
}

#[tokio::test(start_paused = true)]
async fn d_319_a_pod_that_never_ends_and_foreign_finalizers_are_told() {
    let (cluster, _operator) = Cluster::started(11, json!({})).await;
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
    // A minute after its grace period the drain continues without it; then the Node is blocked by another controller's finalizer.
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

#[tokio::test(start_paused = true)]
async fn d_303_an_unreadable_deadline_is_named_and_can_be_mended() {
    let (cluster, _operator, claim) = Cluster::one_node(10, json!({})).await;
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

// D-314, D-351: a cloud that cannot end an instance is named, for as long as it cannot.
#[tokio::test(start_paused = true)]
async fn d_314_d_351_a_cloud_that_fails_or_hangs_at_the_end_is_named() {
    let (cluster, _operator, claim) = Cluster::one_node(5, json!({})).await;
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
    // In the meantime others are launched and removed.
    cluster.run("late", 1, "6").await;
    cluster.faults.hang.store(false, Ordering::Relaxed);
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.assert_no_leak().await;
}

/// Why the cloud of these tests wants to be asked later.
const SHIFTED: &str = "zone test-zone-a has an active zonal shift";

// W-30: what the cloud postpones has not failed. The node is drained, its NodeClaim says what it waits for, and the instance ends after that.
#[tokio::test(start_paused = true)]
async fn w_30_a_drained_node_whose_end_the_cloud_postpones_says_so() {
    let (cluster, operator, claim) = Cluster::one_node(6, json!({})).await;
    *cluster.faults.postponed.lock().unwrap() = Some(SHIFTED.to_owned());
    cluster.delete::<NodeClaim>(&claim).await;
    let message = cluster.until_blocked(&claim, "TerminationPostponed").await;
    assert!(message.ends_with(SHIFTED), "{message}");
    cluster.until_running_of("web", 1).await;
    cluster.pass(30 * 60).await;
    assert!(cluster.names::<NodeClaim>().await.contains(&claim));
    let of = |family: &str| value(&operator.metrics, family, "Delete");
    let asked = of("karpenter_cloudprovider_duration_seconds_count");
    assert!(asked > 1.0, "the cloud is asked again and again");
    let failures = of("karpenter_cloudprovider_errors_total");
    assert_eq!(failures, 0.0, "nothing has failed");
    *cluster.faults.postponed.lock().unwrap() = None;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.assert_no_leak().await;
}

// W-30, D-309: a Node that is not ready is drained although the cloud does not say whether its instance still runs.
#[tokio::test(start_paused = true)]
async fn w_30_d_309_a_question_that_the_cloud_postpones_does_not_hold_up_the_drain() {
    let (cluster, operator, claim) = Cluster::one_node(8, json!({})).await;
    let node = cluster.get::<NodeClaim>(&claim).await.status.unwrap().node_name;
    *cluster.faults.postponed.lock().unwrap() = Some(SHIFTED.to_owned());
    cluster.say_ready(&node.unwrap(), "Unknown").await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.until_blocked(&claim, "TerminationPostponed").await;
    cluster.pass(600).await;
    let failures = value(
        &operator.metrics,
        "controller_runtime_reconcile_errors_total",
        "node.termination",
    );
    assert_eq!(failures, 0.0, "nothing has failed");
    *cluster.faults.postponed.lock().unwrap() = None;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.assert_no_leak().await;
}

// W-30: a NodeClaim without Node says it, too.
#[tokio::test(start_paused = true)]
async fn w_30_an_instance_that_never_joined_and_may_not_end_yet_says_so() {
    let setup = Setup::with_cloud(KwokOptions {
        registration_delay: Duration::from_secs(24 * 60 * 60),
        ..KwokOptions::default()
    });
    let (cluster, _operator) = Cluster::started_with(9, json!({}), setup).await;
    cluster.deploy("web", 1, "1").await;
    cluster
        .until("an instance", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            claims.iter().any(|claim| claim.provider_id().is_some())
        })
        .await;
    let claim = cluster.names::<NodeClaim>().await.into_iter().next().unwrap();
    *cluster.faults.postponed.lock().unwrap() = Some(SHIFTED.to_owned());
    cluster.scale("web", 0).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_blocked(&claim, "TerminationPostponed").await;
    *cluster.faults.postponed.lock().unwrap() = None;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.assert_no_leak().await;
}

/// The name of the annotation that protects a pod.
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// The name of the annotation that says when a node's time is over.
const DEADLINE: &str = "karpenter.sh/nodeclaim-termination-timestamp";

/// Pods are evicted one after the other, one a second.
fn one_a_second() -> Setup {
    let rate = EvictionRate {
        per_second: 1.0,
        burst: 1,
    };
    Setup::with_options(OperatorOptions {
        eviction_rate: Some(rate),
        ..OperatorOptions::default()
    })
}

/// How many evictions were accepted.
fn evicted(operator: &Running) -> f64 {
    let family = "karpenter_pods_eviction_requests_total";
    value(&operator.metrics, family, "code=\"200\"")
}

/// Pods on a node that are not asked to go.
async fn stay_on(cluster: &Cluster, node: &str) -> Vec<String> {
    let mut pods = cluster.list::<Pod>().await;
    pods.retain(|pod| {
        let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        on == Some(node) && pod.metadata.deletion_timestamp.is_none()
    });
    pods.iter().map(Pod::name_any).collect()
}

/// Waits until a node with some 30 pods is gone, of which one a second is evicted. Gives how many were.
async fn until_drained_slowly(cluster: &Cluster, operator: &Running, claim: &str) -> f64 {
    let (start, before) = (cluster.clock.now(), evicted(operator));
    while cluster.exists::<NodeClaim>(claim).await {
        let count = evicted(operator) - before;
        let seconds = cluster.clock.since(start).as_secs_f64();
        assert!(count <= seconds + 2.0, "{count} evictions in {seconds} s");
        cluster.pass(1).await;
        assert!(
            cluster.clock.since(start) < Duration::from_secs(150),
            "the drain goes on, and each try takes one turn"
        );
    }
    evicted(operator) - before
}

#[tokio::test(start_paused = true)]
async fn d_327_evictions_keep_to_the_rate_that_was_set() {
    let (cluster, operator) = Cluster::started_with(34, json!({}), one_a_second()).await;
    cluster.run("web", 30, "100m").await;
    let claim = cluster.claim_of_pod("web").await;
    let on_node = cluster.list::<Pod>().await.len();
    cluster.delete::<NodeClaim>(&claim).await;
    let evicted = until_drained_slowly(&cluster, &operator, &claim).await;
    assert!(on_node >= 30 && evicted >= 10.0, "{evicted} of {on_node}");
    cluster.until_running_of("web", 30).await;
}

// More pods wait for their turn than there are workers: deadlines are not up to the rate, and need a worker at once.
#[tokio::test(start_paused = true)]
async fn d_327_d_336_pods_that_wait_for_their_turn_hold_up_no_deadline() {
    let (cluster, _operator) = Cluster::started_with(35, json!({}), one_a_second()).await;
    cluster.run("web", 300, "10m").await;
    let crowded = cluster.names::<NodeClaim>().await;
    cluster.run("late", 1, "6").await;
    let claim = cluster.claim_of_pod("late").await;
    assert!(!crowded.contains(&claim), "it has another node");
    for one in &crowded {
        cluster.delete::<NodeClaim>(one).await;
    }
    cluster.pass(20).await;
    let over = async |claim: String| {
        let node = cluster.get::<NodeClaim>(&claim).await.status.unwrap().node_name;
        let now = cluster.clock.now().to_string();
        cluster.annotate::<NodeClaim>(&claim, DEADLINE, now).await;
        cluster.delete::<NodeClaim>(&claim).await;
        node.unwrap()
    };
    let node = over(claim).await;
    cluster.pass(5).await;
    assert_eq!(stay_on(&cluster, &node).await, Vec::<String>::new());
    // The same for one whose pods wait for their turn already.
    let mut fullest = (String::new(), 0);
    for one in crowded {
        let Some(found) = cluster.find::<NodeClaim>(&one).await else {
            continue;
        };
        let node = found.status.unwrap().node_name.unwrap();
        let pods = stay_on(&cluster, &node).await.len();
        if pods > fullest.1 {
            fullest = (one, pods);
        }
    }
    assert!(fullest.1 > 20, "some have minutes to wait: {fullest:?}");
    let node = over(fullest.0).await;
    cluster.pass(15).await;
    assert_eq!(stay_on(&cluster, &node).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn d_322_d_328_a_pod_that_is_protected_while_it_waits_for_its_turn_stays() {
    let (cluster, operator) = Cluster::started_with(36, json!({}), one_a_second()).await;
    cluster.run("web", 30, "100m").await;
    let claim = cluster.claim_of_pod("web").await;
    let node = cluster.node_of("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(5).await;
    let waiting = stay_on(&cluster, &node).await;
    let before = evicted(&operator);
    assert!(waiting.len() >= 5 && before >= 1.0, "{waiting:?}");
    for pod in &waiting {
        cluster.annotate::<Pod>(pod, DO_NOT_DISRUPT, "true").await;
    }
    cluster.pass(60).await;
    let meanwhile = evicted(&operator) - before;
    // One request may have been on its way.
    assert!(meanwhile <= 1.0, "{meanwhile} evictions of protected pods");
    // They have lost their turns: in the minute that has passed all of these would have come.
    let waiting = stay_on(&cluster, &node).await;
    for pod in &waiting {
        cluster.annotate::<Pod>(pod, DO_NOT_DISRUPT, Value::Null).await;
    }
    let evicted = until_drained_slowly(&cluster, &operator, &claim).await;
    assert!(evicted >= 4.0, "{evicted} of {waiting:?}");
    cluster.until_running_of("web", 30).await;
}

/// The network between the operator and the API server is cut, or there again.
fn cut(cluster: &Cluster, is_cut: bool) {
    cluster.invariants.disturb();
    cluster.gate.cut.store(is_cut, Ordering::Relaxed);
}

// Tries that failed come back within their longest pause: 300 at 10 a second, the rate of other controllers, would take half a minute.
#[tokio::test(start_paused = true)]
async fn d_327_evictions_go_on_at_once_after_an_outage() {
    let (cluster, operator) = Cluster::started(37, json!({})).await;
    cluster.run("web", 300, "10m").await;
    cluster.budget("web", json!({"maxUnavailable": 0})).await;
    cluster.pass(5).await;
    let nodes = cluster.names::<Node>().await;
    for claim in cluster.names::<NodeClaim>().await {
        cluster.delete::<NodeClaim>(&claim).await;
    }
    cluster.pass(20).await;
    assert_eq!(evicted(&operator), 0.0, "the budget refuses");
    cut(&cluster, true);
    cluster.pass(60).await;
    cluster.delete::<PodDisruptionBudget>("web").await;
    cut(&cluster, false);
    cluster.pass(13).await;
    for node in nodes {
        assert_eq!(stay_on(&cluster, &node).await, Vec::<String>::new());
    }
    assert!(evicted(&operator) >= 300.0);
    cluster.until_running_of("web", 300).await;
}

// D-334: the deadline less the pod's grace comes 30 s after the deletion, between two tries that are ten seconds apart by then.
#[tokio::test(start_paused = true)]
async fn d_328_d_334_a_deadline_is_kept_although_the_tries_before_it_failed() {
    let grace = json!({"template": {"spec": {"terminationGracePeriod": "1m"}}});
    let (cluster, _operator, claim) = Cluster::one_node(38, grace).await;
    cluster.budget("web", json!({"minAvailable": 1})).await;
    cluster.pass(5).await;
    let node = cluster.node_of("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(2).await;
    cut(&cluster, true);
    cluster.pass(26).await;
    cut(&cluster, false);
    assert_eq!(stay_on(&cluster, &node).await.len(), 1, "there is time left");
    cluster.pass(3).await;
    assert_eq!(stay_on(&cluster, &node).await, Vec::<String>::new());
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
}

// Another writer was quicker: the event is written with the next look.
#[tokio::test(start_paused = true)]
async fn d_036_a_pod_event_whose_write_meets_a_conflict_is_written_all_the_same() {
    let (cluster, _operator, claim) = Cluster::one_node(40, json!({})).await;
    let last = async || {
        let status = cluster.get::<NodeClaim>(&claim).await.status.unwrap();
        status.last_pod_event_time.unwrap().0
    };
    cluster.pass(60).await;
    let before = last().await;
    cluster.gate.trip("/nodeclaims/*/status", 409, 3);
    cluster.pod("first", "10m", json!({})).await;
    cluster.pass(15).await;
    cluster.gate.assert_tripped();
    assert!(last().await > before);
}

// W-42: upstream loses an event that comes soon after another, and consolidates the node as if it had been left alone.
#[tokio::test(start_paused = true)]
async fn d_036_w_42_a_pod_event_soon_after_another_is_written_late_and_once() {
    let (cluster, _operator, claim) = Cluster::one_node(39, json!({})).await;
    let last = async || {
        let status = cluster.get::<NodeClaim>(&claim).await.status.unwrap();
        status.last_pod_event_time.unwrap().0
    };
    cluster.pass(60).await;
    let before = last().await;
    cluster.pod("first", "10m", json!({})).await;
    cluster
        .until("the first event is written", async |_| last().await > before)
        .await;
    let first = last().await;
    cluster.pass(7).await;
    cluster.pod("second", "10m", json!({})).await;
    cluster
        .until("the second event is written", async |_| last().await > first)
        .await;
    let late = cluster.clock.since(first).as_secs();
    assert!((10..=12).contains(&late), "after the pause: {late} s");
    let second = last().await;
    let gap = second.duration_since(first).as_secs();
    assert!(
        (7..10).contains(&gap),
        "when it was, not when it is written: {gap} s"
    );
    let version = async || cluster.get::<NodeClaim>(&claim).await.resource_version();
    let written = version().await;
    cluster.pass(60).await;
    assert_eq!(written, version().await, "nothing more is written");
}
