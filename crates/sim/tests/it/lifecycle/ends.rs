//! Termination of nodes (D §7.1–7.5, §8): what is deleted, in which order, what is counted and reported.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde_json::json;
use spokeshave_api::{KWOKInstance, NodeClaim, NodePool};
use spokeshave_controllers::{Decision, DecisionKind, DecisionLog};
use spokeshave_model::Price;
use spokeshave_provider_kwok::KwokOptions;

use crate::faulty::{Cluster, Setup};
use crate::killable;
use crate::killable::stories::{by_hand_only, one_busy_node};
use crate::words::*;

fn finalizers(claim: &NodeClaim) -> Vec<String> {
    claim.metadata.finalizers.clone().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn d_297_d_298_d_308_deleting_the_node_ends_its_claim_at_once_and_both_carry_the_finalizer() {
    let (cluster, _operator, name) = Cluster::one_node(21, json!({})).await;
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
    let claim = cluster.get::<NodeClaim>(&name).await;
    assert!(claim.is_deleting(), "at the beginning, not after the drain");
    cluster.until_gone::<NodeClaim>(&name).await;
    assert!(!cluster.exists::<Node>(&node).await);
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

/// What was under way is finished, and told: nobody who leads later tells it.
#[tokio::test(start_paused = true)]
async fn d_034_an_eviction_that_is_finished_at_shutdown_is_told() {
    let (cluster, operator, name) = Cluster::one_node(22, json!({})).await;
    *cluster.gate.slow.lock().unwrap() = Some(("/eviction", Duration::from_secs(8)));
    cluster.delete::<NodeClaim>(&name).await;
    cluster.pass(4).await;
    assert!(cluster.told("Evicted").await.is_empty());
    operator.end().await;
    assert_eq!(cluster.running_of("web").await, 0, "it was evicted");
    let told = cluster.told("Evicted").await;
    assert!(
        told.iter().any(|(about, _)| about.starts_with("Pod/web-")),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn d_310_a_node_on_its_way_out_takes_no_pods_and_no_traffic() {
    let (cluster, _operator, name) = Cluster::one_node(124, json!({})).await;
    cluster.budget("web", json!({"maxUnavailable": 0})).await;
    let node = cluster.node_of("web").await;
    cluster.delete::<NodeClaim>(&name).await;
    cluster.pass(5).await;
    let object = cluster.get::<Node>(&node).await;
    assert_eq!(
        object
            .labels()
            .get("node.kubernetes.io/exclude-from-external-load-balancers"),
        Some(&"karpenter".to_owned())
    );
    let taints = object.spec.unwrap_or_default().taints.unwrap_or_default();
    assert!(
        taints
            .iter()
            .any(|taint| (&*taint.key, &*taint.effect) == ("karpenter.sh/disrupted", "NoSchedule")),
        "{taints:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn d_316_d_332_d_333_d_350_the_end_of_a_node_is_counted_once_and_said() {
    let (cluster, operator, name) = Cluster::one_node(21, json!({})).await;
    let node = cluster.node_of("web").await;
    cluster.delete::<Node>(&node).await;
    cluster.until_gone::<NodeClaim>(&name).await;
    cluster.until_running_of("web", 1).await;
    for (family, labels) in [
        ("karpenter_nodes_terminated_total", "nodepool=\"default\""),
        ("karpenter_nodes_termination_duration_seconds_count", "default"),
        ("karpenter_nodes_lifetime_duration_seconds_count", "default"),
        ("karpenter_nodes_drained_total", "default"),
        ("karpenter_nodeclaims_terminated_total", "default"),
        (
            "karpenter_nodeclaims_termination_duration_seconds_count",
            "default",
        ),
        (
            "karpenter_nodeclaims_instance_termination_duration_seconds_count",
            "default",
        ),
        ("karpenter_pods_eviction_requests_total", "code=\"200\""),
        ("karpenter_pods_drained_total", "reason=\"Forceful Termination\""),
    ] {
        assert_counted_once(&operator.metrics, family, labels);
    }
    let told = cluster.told("Evicted").await;
    assert!(
        told.iter()
            .any(|(_, text)| text == "Evicted pod: Forceful Termination"),
        "{told:?}"
    );
    // P §17: changes of conditions and finalizers are reported.
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
    let (cluster, _operator, claim) = Cluster::one_node(22, json!({})).await;
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

#[tokio::test(start_paused = true)]
async fn d_249_d_309_a_node_whose_machine_is_gone_is_released_at_once() {
    let (cluster, _operator, claim) = Cluster::one_node(25, json!({})).await;
    // A pod that would block the drain indefinitely.
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

// The deadline through the whole stack: it is that of the NodeClaim as it was made, and is written when its deletion begins.
#[tokio::test(start_paused = true)]
async fn d_301_d_305_d_346_the_deadline_is_that_of_the_claim_as_it_was_made() {
    let grace = json!({"template": {"spec": {"terminationGracePeriod": "10m"}}});
    let (cluster, _operator, claim) = Cluster::one_node(30, grace).await;
    cluster.budget("web", json!({"minAvailable": 1})).await;
    let later = json!({"spec": {"template": {"spec": {"terminationGracePeriod": "5h"}}}});
    cluster.patch::<NodePool>("default", later).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(2).await;
    let object = cluster.get::<NodeClaim>(&claim).await;
    let deadline = object.annotation("karpenter.sh/nodeclaim-termination-timestamp");
    let deleted = object.metadata.deletion_timestamp.as_ref().unwrap().0;
    let expected = (deleted + Duration::from_secs(600)).to_string();
    assert_eq!(deadline, Some(expected.as_str()));
}

#[tokio::test(start_paused = true)]
async fn d_302_d_338_d_339_the_deadline_overrules_a_budget_and_says_so() {
    let grace = json!({"template": {"spec": {"terminationGracePeriod": "10m"}}});
    let (cluster, operator, claim) = Cluster::one_node(30, grace).await;
    cluster.budget("web", json!({"minAvailable": 1})).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(2).await;
    let object = cluster.get::<NodeClaim>(&claim).await;
    let deleted = object.metadata.deletion_timestamp.unwrap().0;
    let deadline = (deleted + Duration::from_secs(600)).to_string();
    let told = cluster.told("TerminationGracePeriodExpiring").await;
    for object in ["Node/", "NodeClaim/"] {
        assert!(
            told.iter()
                .any(|(about, text)| about.starts_with(object) && text.ends_with(&deadline)),
            "{told:?}"
        );
    }
    cluster.pass(500).await;
    assert_eq!(cluster.running_of("web").await, 1, "the budget holds until then");
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
    assert_counted_once(&operator.metrics, "karpenter_pods_drained_total", "reason");
    cluster.until_running_of("web", 1).await;
}

// D-199, D-314, D-348: an instance that is gone at the first poll uses no budget, whatever blocks its Node.
#[tokio::test(start_paused = true)]
async fn d_314_d_348_a_claim_whose_instance_is_gone_at_once_says_so_and_uses_up_no_budget() {
    let change = json!({"disruption": {
        "consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "1"}],
    }});
    let setup = Setup::with_cloud(KwokOptions {
        termination_delay: Duration::ZERO,
        ..KwokOptions::default()
    });
    let (cluster, _operator) = Cluster::started_with(94, change, setup).await;
    cluster.run("web", 2, "6").await;
    let node = cluster.node_of("web").await;
    let held = cluster.claim_of(&node).await.name().to_owned();
    let both = json!({"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/hold"]}});
    cluster.patch::<Node>(&node, both).await;
    cluster.scale("web", 0).await;
    cluster
        .until("the pods are gone", async |cluster| {
            cluster.names::<Pod>().await.is_empty()
        })
        .await;
    assert_eq!(
        cluster.names::<Node>().await.len(),
        2,
        "neither is consolidatable yet"
    );
    cluster.delete::<NodeClaim>(&held).await;
    cluster
        .until("the claim says that its instance ends", async |cluster| {
            let said = cluster.condition(&held, "InstanceTerminating").await;
            said.is_some_and(|(status, ..)| status == "True")
        })
        .await;
    // The budget of one node is free for the other.
    cluster
        .until("the other node goes, too", async |cluster| {
            cluster.names::<NodeClaim>().await == [held.clone()]
        })
        .await;
    assert!(cluster.exists::<Node>(&node).await, "somebody holds it");
    cluster.remove_finalizers::<Node>(&node).await;
    cluster.until_empty().await;
}

#[tokio::test(start_paused = true)]
async fn d_309_a_claim_whose_machine_vanished_says_so_while_somebody_holds_its_node() {
    let (cluster, _operator, claim) = Cluster::one_node(95, json!({})).await;
    let node = cluster.node_of("web").await;
    let both = json!({"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/hold"]}});
    cluster.patch::<Node>(&node, both).await;
    let instance = cluster.names::<KWOKInstance>().await.remove(0);
    cluster.delete::<KWOKInstance>(&instance).await;
    cluster
        .until("the claim says that its instance ends", async |cluster| {
            let said = cluster.condition(&claim, "InstanceTerminating").await;
            said.is_some_and(|(status, ..)| status == "True")
        })
        .await;
    assert!(cluster.exists::<Node>(&node).await, "somebody holds it");
    cluster.remove_finalizers::<Node>(&node).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
}

/// A pod is bound behind a watch of pods that stands still, to a node of which the operator knows no other: the API server is asked before the machine ends.
#[tokio::test(start_paused = true)]
async fn invariant_1_and_38_a_pod_behind_a_watch_that_stands_still_is_evicted_before_its_machine_ends() {
    let (cluster, _operator, claim) = Cluster::one_node(96, json!({})).await;
    cluster.scale("web", 0).await;
    cluster.until_running(0).await;
    cluster.pass(5).await;
    cluster.gate.still.lock().unwrap().insert("/pods");
    let here = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": claim}}});
    cluster.pod("late", "100m", here).await;
    cluster.until_running_of("late", 1).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_gone::<Pod>("late").await;
    let told = cluster.told("Evicted").await;
    assert!(told.iter().any(|(about, _)| about == "Pod/late"), "{told:?}");
    // As far as the operator has heard, it is still there.
    cluster.pass(60).await;
    let said = cluster.condition(&claim, "InstanceTerminating").await;
    assert!(
        said.as_ref().is_none_or(|(status, ..)| status != "True"),
        "{said:?}"
    );
    cluster.gate.still.lock().unwrap().clear();
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.assert_no_leak().await;
}

/// What the API server has cannot be read then, and what the watch has told decides.
#[tokio::test(start_paused = true)]
async fn d_319_a_pod_that_cannot_be_read_does_not_keep_the_machine_of_its_node() {
    let (cluster, _operator, claim) = Cluster::one_node(97, json!({})).await;
    cluster.gate.lists.are_spoilt.store(true, Ordering::Relaxed);
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

/// A whole NodePool goes at once: the API server is not asked for the pods of all its nodes in the same instant.
#[tokio::test(start_paused = true)]
async fn d_318_invariant_38_the_pods_of_many_drained_nodes_are_asked_for_a_few_nodes_at_a_time() {
    let (cluster, _operator) = Cluster::started(98, json!({})).await;
    cluster.run("web", 30, "6").await;
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 30);
    cluster.gate.lists.are_slow.store(true, Ordering::Relaxed);
    cluster.delete::<NodePool>("default").await;
    cluster.until_empty().await;
    let most = cluster.gate.lists.most_at_once.load(Ordering::Relaxed);
    assert!((2..=20).contains(&most), "{most}");
}

/// The behaviour of seeds 000, 003 and 004 about the termination of a node.
#[tokio::test(start_paused = true)]
async fn seed_000_seed_003_seed_004_how_a_node_goes() {
    let cluster = killable::Cluster::new(43, by_hand_only()).await;
    let _operator = cluster.operator();
    one_busy_node(&cluster).await;
    // "Karpenter sets a Kubernetes finalizer on each node and node claim it provisions."
    let node = cluster.list::<Node>().await.remove(0);
    let claim = cluster.list::<NodeClaim>().await.remove(0);
    let finalizer = "karpenter.sh/termination".to_owned();
    assert!(node.finalizers().contains(&finalizer) && claim.finalizers().contains(&finalizer));
    // "The finalizer blocks deletion of the node object while the Termination Controller taints and drains the node"; by hand as well: "Disruption
    // is triggered by the Disruption Controller, by the user through manual disruption". Budgets do not bound that.
    cluster.delete::<Node>(&node.name_any()).await;
    cluster.pass(1).await;
    let going: Node = cluster.get(&node.name_any()).await;
    let taints = going.spec.unwrap_or_default().taints.unwrap_or_default();
    // "tainted with karpenter.sh/disrupted:NoSchedule to prevent new pods being scheduled there" (D §10.2, topic 1).
    assert!(
        taints.iter().any(|taint| taint.key == "karpenter.sh/disrupted"
            && taint.effect == "NoSchedule"
            && taint.value.is_none()),
        "{taints:?}"
    );
    // "Finally the finalizer is removed from the node so the APIServer can remove it"
    cluster
        .until("the node is another one", async |cluster| {
            let names = cluster.names::<Node>().await;
            names.len() == 1 && names[0] != node.name_any() && cluster.running().await == 1
        })
        .await;
}

/// People are told what the end of a node saves, also where others have seen that it is gone before whoever released it.
#[tokio::test(start_paused = true)]
async fn what_a_node_has_cost_is_told_with_its_end() {
    let told: Arc<Mutex<Vec<Decision>>> = Arc::default();
    let listener = told.clone();
    let setup = Setup {
        decisions: DecisionLog::new(move |decision| listener.lock().unwrap().push(decision.clone())),
        ..Setup::default()
    };
    let (cluster, _operator) = Cluster::started_with(125, json!({}), setup).await;
    let claim = cluster.run_one_pod().await;
    let of_kind = |kind: DecisionKind| {
        let told = told.lock().unwrap();
        told.iter().find(|one| one.kind == kind).cloned()
    };
    let cost = of_kind(DecisionKind::Ready).unwrap().cluster_price;
    assert!(cost > Price::ZERO, "it is the only node");
    cluster.scale("web", 0).await;
    *cluster.gate.late.lock().unwrap() = Some((format!("/nodeclaims/{claim}"), Duration::from_secs(10)));
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    // The next pass looks at a cluster without it.
    cluster.deploy("other", 1, "1").await;
    cluster.pass(5).await;
    assert_eq!(of_kind(DecisionKind::Gone), None, "the answer is on its way");
    cluster.until_running_of("other", 1).await;
    cluster.pass(10).await;
    let gone = of_kind(DecisionKind::Gone).unwrap();
    assert_eq!((gone.subject, gone.price_change), (claim, Some(Price(-cost.0))));
}
