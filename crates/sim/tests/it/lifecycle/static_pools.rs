//! NodePools with a fixed number of nodes (D-353 to D-361).

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::json;
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_controllers::FeatureGates;

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

// D-353…D-359, D-361: static NodePools.
#[tokio::test(start_paused = true)]
async fn d_356_d_357_a_static_pool_keeps_its_number() {
    let cluster = Cluster::new(13).await;
    let setup = Setup::with_gates(FeatureGates {
        static_capacity: true,
        ..FeatureGates::default()
    });
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

fn with_static_pools() -> Setup {
    Setup::with_gates(FeatureGates {
        static_capacity: true,
        ..FeatureGates::default()
    })
}

/// How many NodeClaims were created so far.
fn created(operator: &Running) -> f64 {
    sum(&operator.metrics, "karpenter_nodeclaims_created_total")
}

/// Status, reason and message of a condition of a NodePool.
async fn pool_condition(cluster: &Cluster, pool: &str, kind: &str) -> Option<(String, String, String)> {
    let pool = cluster.get::<NodePool>(pool).await;
    let one = pool.condition(kind)?.clone();
    Some((one.status, one.reason, one.message))
}

const LAUNCHABLE: &str = "spokeshave.dev/Launchable";

// Invariant 24: unavailable offerings are not requested repeatedly, and the NodePool has the reason why it has no nodes.
#[tokio::test(start_paused = true)]
async fn invariant_24_d_356_a_static_pool_that_nothing_fits_asks_seldom_and_says_so() {
    let cluster = Cluster::new(96).await;
    let unsold = json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]});
    let change = json!({"replicas": 10, "template": {"spec": {"requirements": [unsold]}}});
    cluster.pool("fixed", change).await;
    let operator = cluster.operator(with_static_pools());
    cluster.pass(60).await;
    let (status, reason, message) = pool_condition(&cluster, "fixed", LAUNCHABLE).await.unwrap();
    assert_eq!((&*status, &*reason), ("False", "NoCompatibleInstanceTypes"));
    assert!(
        message.starts_with("NodePool requirements filtered out"),
        "{message}"
    );
    let told = cluster.told("NoCompatibleInstanceTypes").await;
    assert!(
        told.iter().any(|(about, _)| about == "NodePool/fixed"),
        "{told:?}"
    );
    cluster.pass(3_540).await;
    // All ten at first, then one at a time.
    assert!(
        (12.0..=27.0).contains(&created(&operator)),
        "{}",
        created(&operator)
    );
    let pool = cluster.get::<NodePool>("fixed").await;
    assert!(pool.is_true("Ready"), "as upstream's");
    // A changed request: at once.
    let sold = json!({"spec": {"template": {"spec": {"requirements": [
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
    ]}}}});
    cluster.patch::<NodePool>("fixed", sold).await;
    let took = cluster
        .until("ten nodes", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            claims.iter().filter(|claim| claim.is_true("Initialized")).count() == 10
        })
        .await;
    assert!(took < Duration::from_secs(400), "{took:?}");
    cluster.pass(60).await;
    assert_eq!(pool_condition(&cluster, "fixed", LAUNCHABLE).await, None);
}

// Invariant 24: after a shortage the first try that succeeds lets all others follow.
#[tokio::test(start_paused = true)]
async fn invariant_24_a_static_pool_is_whole_soon_after_a_shortage() {
    let cluster = Cluster::new(97).await;
    cluster.pool("fixed", json!({"replicas": 5})).await;
    let short = cluster.faults.short_pools.clone();
    short.lock().unwrap().insert("fixed".to_owned());
    let operator = cluster.operator(with_static_pools());
    cluster.pass(3_600).await;
    assert!(
        (7.0..=22.0).contains(&created(&operator)),
        "{}",
        created(&operator)
    );
    let (_, reason, message) = pool_condition(&cluster, "fixed", LAUNCHABLE).await.unwrap();
    assert_eq!(reason, "LaunchesFail");
    assert!(message.contains("none is left"), "{message}");
    short.lock().unwrap().clear();
    let took = cluster
        .until("five nodes", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            claims.iter().filter(|claim| claim.is_true("Initialized")).count() == 5
        })
        .await;
    assert!(took < Duration::from_secs(330), "{took:?}");
    cluster.pass(60).await;
    assert_eq!(pool_condition(&cluster, "fixed", LAUNCHABLE).await, None);
}

// Nothing is tried any more, and there is no trouble; while something is, there is, though it may be under way.
#[tokio::test(start_paused = true)]
async fn d_356_a_static_pool_that_has_what_it_asks_for_says_nothing_of_what_was_refused() {
    let cluster = Cluster::new(129).await;
    cluster.pool("fixed", json!({"replicas": 2})).await;
    let _operator = cluster.operator(with_static_pools());
    cluster
        .until("two nodes", async |cluster| {
            ready_claims(cluster).await.len() == 2
        })
        .await;
    let short = cluster.faults.short_pools.clone();
    short.lock().unwrap().insert("fixed".to_owned());
    let scale = async |replicas: i64| {
        let patch = json!({"spec": {"replicas": replicas}});
        cluster.patch::<NodePool>("fixed", patch).await;
        cluster.pass(60).await;
    };
    scale(4).await;
    let (_, reason, _) = pool_condition(&cluster, "fixed", LAUNCHABLE).await.unwrap();
    assert_eq!(reason, "LaunchesFail");
    scale(2).await;
    assert_eq!(pool_condition(&cluster, "fixed", LAUNCHABLE).await, None);
    scale(3).await;
    assert!(pool_condition(&cluster, "fixed", LAUNCHABLE).await.is_some());
}

// Invariant 24: a try that the API server does not let through has not asked the cloud, and the next one does not wait for a whole pause. Where nobody knows whether
// it is under way, the next one does: there is one at a time.
#[tokio::test(start_paused = true)]
async fn invariant_24_a_try_that_is_not_created_costs_no_pause() {
    for (code, waits) in [(403, false), (429, false), (500, true)] {
        let cluster = Cluster::new(128).await;
        cluster.pool("fixed", json!({"replicas": 1})).await;
        let short = cluster.faults.short_pools.clone();
        short.lock().unwrap().insert("fixed".to_owned());
        let _operator = cluster.operator(with_static_pools());
        // Into the midst of a pause of five minutes.
        cluster.pass(1_700).await;
        assert!(cluster.names::<NodeClaim>().await.is_empty());
        short.lock().unwrap().clear();
        cluster.gate.trip("/nodeclaims", code, 1);
        cluster
            .until("the try is refused", async |cluster| {
                let stumbles = cluster.gate.stumbles.lock().unwrap();
                stumbles.iter().all(|(.., left)| *left == 0)
            })
            .await;
        let took = cluster
            .until("the node", async |cluster| ready_claims(cluster).await.len() == 1)
            .await;
        assert_eq!(took >= Duration::from_secs(120), waits, "{code}: {took:?}");
    }
}

// D-353: with the gate off such a NodePool gets no nodes, and its condition says so.
#[tokio::test(start_paused = true)]
async fn d_353_a_static_pool_says_that_the_gate_is_off() {
    let cluster = Cluster::new(98).await;
    cluster.pool("fixed", json!({"replicas": 1})).await;
    let _operator = cluster.operator(Setup::default());
    cluster.pass(60).await;
    let (status, reason, message) = pool_condition(&cluster, "fixed", LAUNCHABLE).await.unwrap();
    assert_eq!((&*status, &*reason), ("False", "StaticCapacityDisabled"));
    assert!(message.contains("StaticCapacity=true"), "{message}");
    assert!(cluster.names::<NodeClaim>().await.is_empty());
}

// D-362: the deletion of NodeClaims may be observed long before that of their NodePool.
#[tokio::test(start_paused = true)]
async fn d_362_no_node_is_made_for_a_nodepool_that_is_being_deleted_though_no_watch_says_so_yet() {
    let cluster = Cluster::new(99).await;
    cluster.pool("fixed", json!({"replicas": 3})).await;
    let operator = cluster.operator(with_static_pools());
    cluster
        .until("three nodes", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            claims.iter().filter(|claim| claim.is_true("Initialized")).count() == 3
        })
        .await;
    // Something holds the NodePool, as foreground deletion does.
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    cluster.patch::<NodePool>("fixed", hold).await;
    cluster.pass(10).await;
    cluster.gate.still.lock().unwrap().insert("/nodepools");
    cluster.delete::<NodePool>("fixed").await;
    for claim in cluster.names::<NodeClaim>().await {
        cluster.delete::<NodeClaim>(&claim).await;
    }
    cluster.until_empty().await;
    cluster.pass(120).await;
    assert_eq!(created(&operator), 3.0, "none was replaced");
    cluster.gate.still.lock().unwrap().clear();
}

/// NodeClaims of a NodePool whose nodes can run pods.
async fn ready_claims(cluster: &Cluster) -> Vec<String> {
    let claims = cluster.list::<NodeClaim>().await;
    let ready = claims
        .iter()
        .filter(|claim| claim.is_true("Initialized") && !claim.is_deleting());
    ready.map(|claim| claim.name().to_owned()).collect()
}

// D-360, D-363: nodes of a static NodePool are never consolidated, however empty; pods get no node from it, only capacity on existing ones.
#[tokio::test(start_paused = true)]
async fn d_360_d_363_a_static_pool_neither_shrinks_nor_grows_with_pods() {
    let cluster = Cluster::new(100).await;
    // That empty nodes go is a promise for other NodePools.
    cluster.excuse(34);
    let eager = json!({"replicas": 2, "disruption": {"consolidateAfter": "0s"}});
    cluster.pool("fixed", eager).await;
    let operator = cluster.operator(with_static_pools());
    cluster
        .until("two nodes", async |cluster| {
            ready_claims(cluster).await.len() == 2
        })
        .await;
    let before = cluster.names::<NodeClaim>().await;
    cluster.pass(3_600).await;
    assert_eq!(
        cluster.names::<NodeClaim>().await,
        before,
        "empty for an hour, and kept"
    );
    // More pods than two nodes hold.
    cluster.deploy("web", 40, "100m").await;
    cluster.pass(600).await;
    assert_eq!(
        cluster.names::<NodeClaim>().await,
        before,
        "no node is added for pods"
    );
    let running = cluster.running_of("web").await;
    assert!(
        (1..40).contains(&running),
        "{running} of 40 run on the two nodes that are there"
    );
    assert_eq!(created(&operator).to_string(), "2");
    cluster.assert_no_commands().await;
}

// D-359: fewer replicas take nodes away whatever budgets and do-not-disrupt say, and it counts as no disruption.
#[tokio::test(start_paused = true)]
async fn d_359_scaling_down_asks_no_budget_and_is_no_disruption() {
    let cluster = Cluster::new(101).await;
    let closed = json!({"replicas": 2, "disruption": {"budgets": [{"nodes": "0"}]}});
    cluster.pool("fixed", closed).await;
    let operator = cluster.operator(with_static_pools());
    cluster
        .until("two nodes", async |cluster| {
            ready_claims(cluster).await.len() == 2
        })
        .await;
    for node in cluster.names::<Node>().await {
        let key = "karpenter.sh/do-not-disrupt";
        cluster.annotate::<Node>(&node, key, "true").await;
    }
    cluster
        .patch::<NodePool>("fixed", json!({"spec": {"replicas": 1}}))
        .await;
    cluster
        .until("one is left", async |cluster| {
            cluster.names::<NodeClaim>().await.len() == 1
        })
        .await;
    let disrupted = sum(&operator.metrics, "karpenter_nodeclaims_disrupted_total");
    assert!(disrupted.abs() < 0.5, "{disrupted}");
    assert!(cluster.told("DisruptionTerminating").await.is_empty());
    cluster.assert_no_commands().await;
}

// D-361: expiry ends nodes of a static NodePool too, and their number is kept up.
#[tokio::test(start_paused = true)]
async fn d_361_an_expired_node_of_a_static_pool_is_replaced() {
    let cluster = Cluster::new(102).await;
    let aging = json!({"replicas": 2, "template": {"spec": {"expireAfter": "1h"}}});
    cluster.pool("fixed", aging).await;
    let _operator = cluster.operator(with_static_pools());
    cluster
        .until("two nodes", async |cluster| {
            ready_claims(cluster).await.len() == 2
        })
        .await;
    let first = ready_claims(&cluster).await;
    cluster.pass(3_600).await;
    cluster
        .until("two others", async |cluster| {
            let now = ready_claims(cluster).await;
            now.len() == 2 && now.iter().all(|name| !first.contains(name))
        })
        .await;
}

// D-354: `kubectl scale nodepool` works by the scale subresource, which shows the nodes that there are.
#[tokio::test(start_paused = true)]
async fn d_354_a_static_pool_is_scaled_by_its_scale_subresource() {
    let cluster = Cluster::new(103).await;
    cluster.pool("fixed", json!({"replicas": 1})).await;
    let _operator = cluster.operator(with_static_pools());
    cluster
        .until("one node", async |cluster| ready_claims(cluster).await.len() == 1)
        .await;
    let pools: kube::Api<NodePool> = kube::Api::all(cluster.client.clone());
    let patch = json!({"spec": {"replicas": 3}});
    let parameters = kube::api::PatchParams::default();
    let scaled = pools
        .patch_scale("fixed", &parameters, &kube::api::Patch::Merge(patch))
        .await
        .unwrap();
    assert_eq!(scaled.spec.and_then(|spec| spec.replicas), Some(3));
    cluster
        .until("three nodes, shown", async |cluster| {
            let scale = pools.get_scale("fixed").await.unwrap();
            scale.status.is_some_and(|status| status.replicas == 3) && ready_claims(cluster).await.len() == 3
        })
        .await;
}

// D-355: a NodeClaim that cannot be read is one of them, and no other is created in its place.
#[tokio::test(start_paused = true)]
async fn d_355_a_claim_that_cannot_be_read_counts() {
    let cluster = Cluster::new(105).await;
    cluster.pool("fixed", json!({"replicas": 2})).await;
    let _operator = cluster.operator(with_static_pools());
    cluster
        .until("two nodes", async |cluster| {
            ready_claims(cluster).await.len() == 2
        })
        .await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.allow_any::<NodeClaim>().await;
    cluster.garble_claim(&claim).await;
    cluster.pass(180).await;
    assert_eq!(cluster.list_values::<NodeClaim>().await.len(), 2);
    cluster.restore_claim(&claim).await;
    cluster.pass(60).await;
    assert_eq!(cluster.names::<NodeClaim>().await.len(), 2);
    assert!(cluster.exists::<NodeClaim>(&claim).await);
}

// D-357: a command that cannot be read may be replacing some of the nodes; none of them counts as one too many.
#[tokio::test(start_paused = true)]
async fn d_357_beside_a_command_that_cannot_be_read_no_node_is_too_many() {
    let cluster = Cluster::new(104).await;
    cluster.pool("fixed", json!({"replicas": 2})).await;
    let _operator = cluster.operator(with_static_pools());
    let ready = async |cluster: &Cluster| ready_claims(cluster).await.len();
    cluster
        .until("two nodes", async |cluster| ready(cluster).await == 2)
        .await;
    cluster.allow_any::<Disruption>().await;
    let kind = kube::api::ApiResource::erase::<Disruption>(&());
    let commands: kube::Api<DynamicObject> = kube::Api::all_with(cluster.client.clone(), &kind);
    let garbled = DynamicObject::new("garbled", &kind).data(json!({"spec": "later"}));
    commands.create(&PostParams::default(), &garbled).await.unwrap();
    cluster
        .patch::<NodePool>("fixed", json!({"spec": {"replicas": 1}}))
        .await;
    cluster.pass(120).await;
    assert_eq!(ready(&cluster).await, 2);
    commands
        .delete("garbled", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .until("one node", async |cluster| ready(cluster).await == 1)
        .await;
}

// D-357: of nodes that are too many, one that may not be deleted keeps none of the others.
#[tokio::test(start_paused = true)]
async fn d_357_a_node_that_may_not_be_deleted_keeps_none_of_the_others() {
    let cluster = Cluster::new(129).await;
    cluster.pool("fixed", json!({"replicas": 4})).await;
    let _operator = cluster.operator(with_static_pools());
    cluster
        .until("four nodes", async |cluster| {
            ready_claims(cluster).await.len() == 4
        })
        .await;
    // All are as good, so the first by name goes first.
    let first = ready_claims(&cluster).await.into_iter().min().unwrap();
    cluster
        .gate
        .trip(format!("/nodeclaims/{first}").leak(), 403, u32::MAX);
    cluster
        .patch::<NodePool>("fixed", json!({"spec": {"replicas": 1}}))
        .await;
    cluster
        .until("two of the others are gone", async |cluster| {
            cluster.names::<NodeClaim>().await.len() == 2
        })
        .await;
    cluster.pass(120).await;
    let left = cluster.names::<NodeClaim>().await;
    assert_eq!(left.len(), 2);
    assert!(left.contains(&first));
    cluster.gate.stumbles.lock().unwrap().clear();
    cluster.until_gone::<NodeClaim>(&first).await;
    assert_eq!(ready_claims(&cluster).await.len(), 1);
}

// App. G.1-27: one replica fewer, and of three nodes the empty one is removed (D-358).
#[tokio::test(start_paused = true)]
async fn g_1_27_of_three_nodes_the_empty_one_goes() {
    let cluster = Cluster::new(122).await;
    cluster.pool("fixed", json!({"replicas": 3})).await;
    let _operator = cluster.operator(with_static_pools());
    cluster
        .until("three nodes", async |cluster| {
            ready_claims(cluster).await.len() == 3
        })
        .await;
    // Pods of one app on two of the three nodes.
    let apart = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"},
    ]}}}});
    cluster
        .deploy_with("web", 2, template("web", "100m", apart))
        .await;
    cluster.until_running_of("web", 2).await;
    let mut busy = Vec::new();
    for pod in cluster.running_pods().await {
        let node = pod.spec.and_then(|spec| spec.node_name).unwrap();
        busy.push(cluster.claim_of(&node).await.name().to_owned());
    }
    busy.sort();
    cluster
        .patch::<NodePool>("fixed", json!({"spec": {"replicas": 2}}))
        .await;
    cluster
        .until("two are left", async |cluster| {
            cluster.names::<NodeClaim>().await.len() == 2
        })
        .await;
    assert_eq!(cluster.names::<NodeClaim>().await, busy);
    assert!(cluster.told("Evicted").await.is_empty(), "no pod had to move");
}

// W-44: the limit reserved for a failed replacement is released, so drift continues once there is capacity; `limits.nodes` is respected all the time.
#[tokio::test(start_paused = true)]
async fn w_44_a_replacement_that_fails_keeps_no_room() {
    let cluster = Cluster::new(123).await;
    let tight =
        json!({"replicas": 1, "limits": {"nodes": "2"}, "disruption": {"budgets": [{"nodes": "100%"}]}});
    cluster.pool("fixed", tight).await;
    let _operator = cluster.operator(with_static_pools());
    cluster
        .until("one node", async |cluster| ready_claims(cluster).await.len() == 1)
        .await;
    let old = ready_claims(&cluster).await.remove(0);
    let short = cluster.faults.short_pools.clone();
    short.lock().unwrap().insert("fixed".to_owned());
    let newer = json!({"spec": {"template": {"metadata": {"labels": {"team": "new"}}}}});
    cluster.patch::<NodePool>("fixed", newer).await;
    for _ in 0..240 {
        cluster.pass(15).await;
        assert!(cluster.names::<NodeClaim>().await.len() <= 2, "limits.nodes");
        assert_eq!(
            ready_claims(&cluster).await,
            [old.as_str()],
            "it stays until another is there"
        );
    }
    let tries = cluster.ended("Drifted", DisruptionPhase::RolledBack).await;
    assert!(
        tries >= 2,
        "the room of the first try was free for the second: {tries}"
    );
    short.lock().unwrap().clear();
    cluster
        .until("the new node alone", async |cluster| {
            let ready = ready_claims(cluster).await;
            cluster.names::<NodeClaim>().await.len() == 1 && ready.len() == 1 && ready[0] != old
        })
        .await;
}

// D-357, D-358: scaled down while a drifted node is being replaced, that node goes, then its replacement, which nobody needs: no other is touched, and no launch
// has failed.
#[tokio::test(start_paused = true)]
async fn d_357_d_358_scaled_down_in_mid_drift_the_drifted_node_goes_and_no_other() {
    let cluster = Cluster::new(124).await;
    cluster.pool("fixed", json!({"replicas": 3})).await;
    let _operator = cluster.operator(with_static_pools());
    cluster
        .until("three nodes", async |cluster| {
            ready_claims(cluster).await.len() == 3
        })
        .await;
    let before = cluster.names::<NodeClaim>().await;
    for node in cluster.names::<Node>().await {
        let there = json!({"spec": {"nodeName": node}});
        cluster.pod(&format!("on-{node}"), "100m", there).await;
    }
    cluster.until_running(3).await;
    // What comes now comes late.
    let late = json!({"spec": {"nodeRegistrationDelay": "4m"}});
    cluster.patch::<KWOKNodeClass>("default", late).await;
    let newer = json!({"spec": {"template": {"metadata": {"labels": {"team": "new"}}}}});
    cluster.patch::<NodePool>("fixed", newer).await;
    cluster
        .until("one is being replaced", async |cluster| {
            let ledger = cluster.ledger().await;
            ledger.len() == 1 && ledger[0].phase() == DisruptionPhase::Replacing
        })
        .await;
    let spec = cluster.ledger().await.remove(0).spec;
    let (old, new) = (&spec.nodes[0].node_claim, &spec.replacements[0].node_claim);
    cluster.pass(30).await;
    assert!(cluster.get::<NodeClaim>(new).await.provider_id().is_some());
    cluster
        .patch::<NodePool>("fixed", json!({"spec": {"replicas": 2}}))
        .await;
    cluster.until_gone::<NodeClaim>(old).await;
    cluster.until_gone::<NodeClaim>(new).await;
    let staying: Vec<String> = before.into_iter().filter(|name| name != old).collect();
    let mut ready = ready_claims(&cluster).await;
    ready.sort();
    assert_eq!(ready, staying);
    // Those two have drifted, too, and are replaced in their turn.
    cluster
        .until("two new nodes", async |cluster| {
            let ready = ready_claims(cluster).await;
            let are_new = ready.iter().all(|name| !staying.contains(name));
            are_new && ready.len() == 2 && cluster.names::<NodeClaim>().await.len() == 2
        })
        .await;
    assert_eq!(cluster.ended("Drifted", DisruptionPhase::RolledBack).await, 0);
    cluster.assert_no_leak().await;
}
