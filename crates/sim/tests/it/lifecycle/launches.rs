//! From a NodeClaim to a node that can run pods: launches that fail, hang or find no capacity, and nodes that do not join.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::{DisruptionPolicy, KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_controllers::{EvictionRate, Options as OperatorOptions};
use spokeshave_plan::MinValuesPolicy;
use spokeshave_ports::{CloudError, CloudFuture, HookAnswer, RegistrationHook};
use spokeshave_provider_kwok::KwokOptions;

use crate::faulty::{Cluster, Setup};
use crate::words::*;

/// Three nodes with a pod each go at once while launches take a minute, and pods are evicted one after the other. Gives how many launches followed.
async fn launches_for_three_nodes_that_go(seed: u64, eviction_rate: Option<EvictionRate>) -> u64 {
    let setup = Setup {
        kwok: KwokOptions {
            launch_delay: Duration::from_secs(60),
            ..KwokOptions::default()
        },
        options: OperatorOptions {
            eviction_rate,
            ..OperatorOptions::default()
        },
        ..Setup::default()
    };
    let (cluster, _operator) = Cluster::started_with(seed, json!({}), setup).await;
    let apart = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}}}});
    cluster.deploy_with("web", 3, template("web", "1", apart)).await;
    cluster.until_running_of("web", 3).await;
    if eviction_rate.is_none() {
        cluster.budget("web", json!({"minAvailable": 2})).await;
        cluster.pass(5).await;
    }
    let launches = || cluster.faults.launches.load(Ordering::Relaxed);
    assert_eq!(launches(), 3);
    for claim in cluster.names::<NodeClaim>().await {
        cluster.delete::<NodeClaim>(&claim).await;
    }
    cluster.pass(400).await;
    cluster.until_running_of("web", 3).await;
    cluster.assert_no_leak().await;
    launches() - 3
}

// P-054, P-058: pods that come in place of others, while the NodeClaims that were made for these launch, need no NodeClaims of their own.
#[tokio::test(start_paused = true)]
async fn p_054_p_058_evicted_pods_leave_their_nodeclaims_to_those_that_replace_them() {
    let slowly = EvictionRate {
        per_second: 0.2,
        burst: 1,
    };
    assert_eq!(launches_for_three_nodes_that_go(71, Some(slowly)).await, 3);
}

// P-054, P-058: pods that a budget keeps on a terminating node are planned for in every pass, and get one NodeClaim.
#[tokio::test(start_paused = true)]
async fn p_054_p_058_pods_that_stay_on_a_node_that_goes_get_one_nodeclaim() {
    assert_eq!(launches_for_three_nodes_that_go(72, None).await, 3);
}

// W-22, invariant 22: a launch that hangs, in one NodePool, delays no pod of another.
#[tokio::test(start_paused = true)]
async fn d_047_w_22_a_stuck_nodeclaim_delays_nobody_else() {
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
    // D-263: the hanging launch is abandoned and retried; when the cloud responds again the pod runs.
    cluster.pass(600).await;
    assert_eq!(cluster.running_of("stuck").await, 0);
    cluster.faults.hanging_pools.lock().unwrap().clear();
    cluster.until_running_of("stuck", 1).await;
    cluster.assert_no_leak().await;
}

// D-243, D-244, D-266, D-267, D-268: the classes of errors at launch.
#[tokio::test(start_paused = true)]
async fn d_244_d_266_no_capacity_ends_the_claim_and_another_offering_is_tried() {
    let setup = Setup::with_cloud(KwokOptions {
        insufficient_capacity: vec!["*/*/spot".parse().unwrap(), "*/test-zone-a".parse().unwrap()],
        ..KwokOptions::default()
    });
    let (cluster, _operator) = Cluster::started_with(26, json!({}), setup).await;
    cluster.run("web", 1, "1").await;
    cluster.assert_no_leak().await;
    let starved = Cluster::new(27).await;
    starved.pool("default", json!({})).await;
    let setup = Setup::with_cloud(KwokOptions {
        insufficient_capacity: vec!["*".parse().unwrap()],
        ..KwokOptions::default()
    });
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
    let setup = Setup::with_cloud(KwokOptions {
        launch_errors: "first:2".parse().unwrap(),
        ..KwokOptions::default()
    });
    let (cluster, operator) = Cluster::started_with(28, json!({}), setup).await;
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
    let setup = Setup::with_cloud(KwokOptions {
        launch_errors: "1.0".parse().unwrap(),
        ..KwokOptions::default()
    });
    let (cluster, operator) = Cluster::started_with(29, json!({}), setup).await;
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

#[tokio::test(start_paused = true)]
async fn d_265_a_node_that_never_initialises_stays() {
    let starting = json!({"template": {"spec": {"startupTaints": [{"key": "example.com/prepare", "effect": "NoSchedule"}]}}});
    let (cluster, _operator) = Cluster::started(32, starting).await;
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

// P-182, D-269, P-169.
#[tokio::test(start_paused = true)]
async fn p_182_nodes_that_never_join_make_their_pool_unhealthy_until_one_does() {
    let setup = Setup::with_cloud(KwokOptions {
        never_register_failures: "first:1".parse().unwrap(),
        termination_delay: Duration::from_secs(3),
        ..KwokOptions::default()
    });
    let (cluster, doomed) = Cluster::started_with(14, json!({}), setup).await;
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
    doomed.end().await;
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

/// A hook that is ready on command, and until then fails, hangs or postpones.
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

// P-167: until every hook is ready the Node keeps its taint, and the NodeClaim names the pending hook; then it registers automatically.
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

// Invariant 24: launches that the cloud rejects at once are retried with back-off; invariant 22: pods of other NodePools are not delayed.
#[tokio::test(start_paused = true)]
async fn invariant_24_invariant_22_a_shortage_in_one_nodepool_is_asked_about_seldom_and_delays_no_other() {
    let cluster = Cluster::new(62).await;
    for team in ["a", "b"] {
        let labels = json!({"template": {"metadata": {"labels": {"team": team}}}});
        cluster.pool(team, labels).await;
    }
    let short = cluster.faults.short_pools.clone();
    short.lock().unwrap().insert("a".to_owned());
    let _operator = cluster.operator(Setup::default());
    let of = |team: &str| json!({"spec": {"nodeSelector": {"team": team}}});
    cluster
        .deploy_with("stuck", 3, template("stuck", "6", of("a")))
        .await;
    cluster.pass(1_800).await;
    let start = cluster.clock.now();
    cluster
        .deploy_with("free", 2, template("free", "1", of("b")))
        .await;
    cluster.until_running_of("free", 2).await;
    assert!(cluster.clock.since(start) < Duration::from_secs(40));
    cluster.pass(1_800).await;
    let asked = cluster.faults.launches.load(Ordering::Relaxed);
    assert!((6..=24).contains(&asked), "{asked} launches in an hour");
    short.lock().unwrap().clear();
    let took = cluster.until_running_of("stuck", 3).await;
    assert!(took < Duration::from_secs(360), "{took:?}");
    cluster.assert_no_leak().await;
}

// P-065: NodeClaims are created together, and one that fails stops no other.
#[tokio::test(start_paused = true)]
async fn p_065_a_hundred_nodeclaims_are_created_together() {
    let cluster = Cluster::new(63).await;
    cluster.pool("default", json!({})).await;
    let latency = Duration::from_millis(200);
    *cluster.gate.slow.lock().unwrap() = Some(("/nodeclaims", latency));
    cluster.gate.trip("/nodeclaims", 403, 1);
    let _operator = cluster.operator(Setup::default());
    cluster.deploy("web", 100, "6").await;
    cluster.until_running_of("web", 100).await;
    cluster.gate.assert_tripped();
    let claims = cluster.list::<NodeClaim>().await;
    let mut made: Vec<_> = claims
        .iter()
        .filter_map(|claim| claim.metadata.creation_timestamp.as_ref().map(|time| time.0))
        .collect();
    made.sort_unstable();
    assert_eq!(made.len(), 100);
    // All but the one that failed; one after the other they would need 20 s.
    let took = made[98].duration_since(made[0]);
    assert!(took.as_secs() <= 2, "{took:?}");
}

// NodeClaims that the API server fails to create are failed calls like any other: what provisioning writes counts for circuit breakers, too.
#[tokio::test(start_paused = true)]
async fn nodeclaims_that_cannot_be_created_trip_the_breaker_of_the_api_server() {
    let cluster = Cluster::new(64).await;
    cluster.pool("default", json!({})).await;
    let breaker = json!({"circuitBreakers": {"apiServer": {"count": 2, "within": "20m"}}});
    let _: DisruptionPolicy = cluster
        .create(json!({"metadata": {"name": "careful"}, "spec": breaker}))
        .await;
    cluster.gate.trip("/nodeclaims", 500, 2);
    let _operator = cluster.operator(Setup::default());
    cluster.run("web", 2, "6").await;
    cluster.gate.assert_tripped();
    cluster.pass(60).await;
    let policy: DisruptionPolicy = cluster.get("careful").await;
    let active = policy.status.map(|status| status.active).unwrap_or_default();
    let tripped = active
        .iter()
        .any(|rule| rule.field == "spec.circuitBreakers.apiServer" && rule.until.is_some());
    assert!(tripped, "{active:?}");
}

// A node that cannot take the pod it came for leaves the pod pending: the next ones come ever later, and others are not held up.
#[tokio::test(start_paused = true)]
async fn nodes_that_come_up_in_vain_come_ever_later() {
    let cluster = Cluster::new(64).await;
    cluster.pool("default", json!({})).await;
    let operator = cluster.operator(Setup::default());
    let made = || sum(&operator.metrics, "karpenter_nodeclaims_created_total");
    cluster.deploy("web", 1, "1").await;
    // A controller taints every new node at once, so the pod cannot use it.
    let taint = async |cluster: &Cluster| {
        for node in cluster.list::<Node>().await {
            let name = node.metadata.name.clone().unwrap_or_default();
            let mut taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
            if taints.iter().any(|taint| taint.key == "example.com/broken") {
                continue;
            }
            taints.push(k8s_openapi::api::core::v1::Taint {
                key: "example.com/broken".to_owned(),
                effect: "NoExecute".to_owned(),
                ..Default::default()
            });
            cluster
                .patch::<Node>(&name, json!({"spec": {"taints": taints}}))
                .await;
        }
    };
    let waits = || sum(&operator.metrics, "karpenter_scheduler_unschedulable_pods_count");
    let (mut by_second, mut gap, mut longest) = (Vec::new(), 0, 0);
    for _ in 0..1_800 {
        taint(&cluster).await;
        cluster.pass(1).await;
        by_second.push(made());
        gap = if waits() > 0.0 { 0 } else { gap + 1 };
        longest = longest.max(gap);
    }
    // The first two come at once. Later the pod is counted but for the moments in which another node comes up.
    assert!(longest < 120, "nobody was counted for {longest} s");
    assert!(
        by_second[60] >= 2.0,
        "the first two are not held up: {}",
        by_second[60]
    );
    assert!(by_second[300] <= 9.0, "{} in five minutes", by_second[300]);
    assert!(by_second[1_799] <= 15.0, "{} in half an hour", by_second[1_799]);
    let told = cluster.events("NodesInVain").await;
    assert!(
        told.iter().any(|text| text.contains("runs on none of them")),
        "{told:?}"
    );
    // Another workload waits for nothing, and once nodes are good again the pod runs.
    let start = cluster.clock.now();
    cluster.deploy("other", 1, "1").await;
    cluster.until_running_of("other", 1).await;
    assert!(cluster.clock.since(start) < Duration::from_secs(60));
    let took = cluster.until_running_of("web", 1).await;
    assert!(took < Duration::from_secs(360), "{took:?}");
}

// P-073: what was launched, for which NodePool, and whether its minValues had to be relaxed, which the NodeClaim says, too.
#[tokio::test(start_paused = true)]
async fn p_073_launches_are_counted_by_whether_min_values_were_relaxed() {
    let cluster = Cluster::new(104).await;
    let many = json!({"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 50});
    let few = json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["3"]});
    let requirements = json!({"template": {"spec": {"requirements": [many, few]}}});
    cluster.pool("choosy", requirements).await;
    let operator = cluster.operator(Setup::with_options(OperatorOptions {
        min_values_policy: MinValuesPolicy::BestEffort,
        ..OperatorOptions::default()
    }));
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    let labels = "min_values_relaxed=\"true\",nodepool=\"choosy\",reason=\"provisioned\"";
    assert_counted_once(&operator.metrics, "karpenter_nodeclaims_created_total", labels);
    let claims = cluster.list::<NodeClaim>().await;
    let annotation = claims[0].annotation("karpenter.sh/nodeclaim-min-values-relaxed");
    assert_eq!(annotation, Some("true"));
}

const PASSES: &str = "karpenter_scheduler_scheduling_duration_seconds_count";

// P-052: a pod that stays pending is planned for again every ten seconds, so it gets its node when the cloud has capacity again, of which there is no event; when it was
// first seen, and how long the first decision took, is recorded once.
#[tokio::test(start_paused = true)]
async fn p_052_a_pod_that_stays_pending_is_planned_for_every_ten_seconds() {
    let cluster = Cluster::new(125).await;
    *cluster.faults.catalog.lock().unwrap() = Some([].into());
    cluster.pool("default", json!({})).await;
    let operator = cluster.operator(Setup::default());
    cluster.deploy("web", 1, "1").await;
    cluster.pass(30).await;
    let before = sum(&operator.metrics, PASSES);
    cluster.pass(100).await;
    let passes = sum(&operator.metrics, PASSES) - before;
    assert!((7.0..=12.0).contains(&passes), "{passes} passes in 100 seconds");
    *cluster.faults.catalog.lock().unwrap() = None;
    let took = cluster
        .until("a NodeClaim", async |cluster| {
            !cluster.names::<NodeClaim>().await.is_empty()
        })
        .await;
    assert!(took <= Duration::from_secs(15), "{took:?}");
    cluster.until_running_of("web", 1).await;
    let decided = "karpenter_pods_scheduling_decision_duration_seconds_count";
    assert_eq!(sum(&operator.metrics, decided).to_string(), "1");
}

// P-053: a node that is being deleted triggers passes indefinitely, and none comes once it is gone.
#[tokio::test(start_paused = true)]
async fn p_053_a_disrupted_node_triggers_a_pass_every_ten_seconds() {
    let (cluster, operator, claim) = Cluster::one_node(126, json!({})).await;
    cluster.budget("web", json!({"maxUnavailable": 0})).await;
    cluster.pass(60).await;
    let quiet = sum(&operator.metrics, PASSES);
    cluster.pass(100).await;
    assert_eq!(
        sum(&operator.metrics, PASSES).to_string(),
        quiet.to_string(),
        "nothing triggers"
    );
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(30).await;
    let before = sum(&operator.metrics, PASSES);
    cluster.pass(100).await;
    let passes = sum(&operator.metrics, PASSES) - before;
    assert!((7.0..=12.0).contains(&passes), "{passes} passes in 100 seconds");
    cluster
        .patch::<k8s_openapi::api::policy::v1::PodDisruptionBudget>(
            "web",
            json!({"spec": {"maxUnavailable": 1}}),
        )
        .await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.pass(30).await;
    let after = sum(&operator.metrics, PASSES);
    cluster.pass(100).await;
    assert_eq!(
        sum(&operator.metrics, PASSES).to_string(),
        after.to_string(),
        "it is gone"
    );
}

// A pod of which packing believes that a node could be made for it, and the audit does not, holds up nobody else, not even who would share its node.
#[tokio::test(start_paused = true)]
async fn invariant_22_a_pod_whose_place_the_audit_refuses_holds_up_nobody_else() {
    let cluster = Cluster::new(127).await;
    cluster.pool("default", json!({})).await;
    // Larger than what is left of a node that is made for the other.
    let odd = template("odd", "5", without_place());
    cluster.deploy_with("odd", 3, odd).await;
    cluster.deploy("web", 1, "1").await;
    let operator = cluster.operator(Setup::default());
    let took = cluster.until_running_of("web", 1).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    let refused = cluster.told("FailedScheduling").await;
    let is_told = |(pod, message): &(String, String)| {
        pod.starts_with("Pod/odd-") && message.contains("the audit has refused the place planned for it")
    };
    assert!(refused.iter().any(is_told), "{refused:?}");
    assert!(sum(&operator.metrics, "spokeshave_audit_violations_total") > 0.0);
    assert_eq!(cluster.names::<NodeClaim>().await.len(), 1, "none for the others");
}
