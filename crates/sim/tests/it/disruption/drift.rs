//! Nodes that are not what their NodePool or their cloud asks for any more, replaced as fast as budgets and limits allow.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::disruption::{DisruptionPhase, RollBackCause};
use spokeshave_api::{KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_provider_kwok::generated_instance_types;

use crate::faulty;
use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

/// Scenario 16: a changed template label drifts every node, a requirement that still allows them none.
#[tokio::test(start_paused = true)]
async fn g_1_16_template_changes_replace_nodes_and_loosened_requirements_do_not() {
    let cluster = Cluster::new(6, for_drift("1")).await;
    let _operator = cluster.operator();
    two_busy_nodes(&cluster).await;
    let looser = json!({"spec": {"template": {"spec": {"requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux", "windows"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "Exists"},
    ]}}}});
    cluster.patch::<NodePool>("default", looser).await;
    cluster.pass(120).await;
    cluster.assert_no_commands().await;
    new_team(&cluster).await;
    cluster
        .until("the first node is in a command", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    let old = cluster.list::<NodeClaim>().await;
    for claim in old.into_iter().filter(|claim| claim.label("team").is_none()) {
        let conditions = claim.status.unwrap_or_default().conditions;
        let drifted = conditions.iter().find(|one| one.type_ == "Drifted").unwrap();
        assert_eq!(
            (drifted.reason.as_str(), drifted.message.as_str()),
            ("NodePoolDrifted", "NodePoolDrifted")
        );
    }
    cluster
        .until("both nodes are new", two_nodes_of_the_new_team)
        .await;
    cluster.pass(30).await;
    cluster.assert_at_rest().await;
    assert_eq!(cluster.ended("Drifted", DisruptionPhase::Succeeded).await, 2);
    assert!(
        cluster
            .ledger()
            .await
            .iter()
            .all(|one| one.spec.budgets[0].allowed == 1)
    );
}

/// A template that is put right while a replacement by the wrong one comes: the node is what is asked for again, and stays.
#[tokio::test(start_paused = true)]
async fn drift_that_is_reverted_in_mid_command_keeps_the_node() {
    let cluster = Cluster::new(19, for_drift("100%")).await;
    let first = cluster.operator();
    one_busy_node(&cluster).await;
    let node = cluster.names::<Node>().await;
    first.kill().await;
    // It waits for as long as this test needs.
    let _operator = cluster.operator_with(never_registers());
    new_team(&cluster).await;
    until_replacing(&cluster).await;
    let put_right = json!({"spec": {"template": {"metadata": {"labels": {"team": null}}}}});
    cluster.patch::<NodePool>("default", put_right).await;
    let took = cluster
        .until("the command is rolled back", async |cluster| {
            cluster.ended("Drifted", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    let status = cluster.ledger().await[0].status.clone().unwrap();
    assert_eq!(status.roll_back_cause, Some(RollBackCause::NotDrifted));
    cluster
        .until("only the old node is left", async |cluster| {
            cluster.list::<NodeClaim>().await.len() == 1
        })
        .await;
    cluster.pass(120).await;
    assert_eq!(cluster.names::<Node>().await, node);
    assert_eq!(cluster.ledger().await.len(), 1, "nothing else is decided");
    cluster.assert_at_rest().await;
}

/// Scenario 17: hashes of another version are re-stamped, and nothing drifts.
#[tokio::test(start_paused = true)]
async fn g_1_17_d_224_another_hash_version_drifts_nothing() {
    let cluster = Cluster::new(7, for_drift("100%")).await;
    let first = cluster.operator();
    two_busy_nodes(&cluster).await;
    first.kill().await;
    let theirs = json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "1234", "karpenter.sh/nodepool-hash-version": "v3"}}});
    cluster.patch::<NodePool>("default", theirs.clone()).await;
    for name in cluster.names::<NodeClaim>().await {
        cluster.patch::<NodeClaim>(&name, theirs.clone()).await;
    }
    new_team(&cluster).await;
    let _again = cluster.operator();
    cluster.pass(600).await;
    cluster.assert_no_commands().await;
    for claim in cluster.list::<NodeClaim>().await {
        assert_eq!(
            claim.annotation("karpenter.sh/nodepool-hash-version"),
            Some(spokeshave_api::hash::VERSION)
        );
        assert_ne!(claim.annotation("karpenter.sh/nodepool-hash"), Some("1234"));
    }
}

/// A NodeClaim that may not be stamped keeps no other from it, and no status. Its NodePool is stamped after it, or it would never be.
#[tokio::test(start_paused = true)]
async fn d_224_a_nodeclaim_that_may_not_be_stamped_keeps_no_other_and_no_status() {
    let version = "karpenter.sh/nodepool-hash-version";
    let ours = Some(spokeshave_api::hash::VERSION);
    let cluster = faulty::Cluster::new(130).await;
    cluster.pool("default", json!({})).await;
    let operator = cluster.operator(faulty::Setup::default());
    cluster.run("web", 2, "6").await;
    cluster.pass(60).await;
    operator.end().await;
    let theirs = json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "1234", version: "v3"}}});
    cluster.patch::<NodePool>("default", theirs.clone()).await;
    let old = cluster.names::<NodeClaim>().await;
    for name in &old {
        cluster.patch::<NodeClaim>(name, theirs.clone()).await;
    }
    let stamped = async |name: &String| {
        let claim = cluster.get::<NodeClaim>(name).await;
        claim.annotation(version) == ours
    };
    let pool = async || cluster.get::<NodePool>("default").await;
    let denied = old.iter().min().unwrap();
    cluster
        .gate
        .trip(format!("/nodeclaims/{denied}").leak(), 403, u32::MAX);
    let _operator = cluster.operator(faulty::Setup::default());
    cluster.deploy("more", 1, "6").await;
    cluster.until_running_of("more", 1).await;
    cluster.pass(120).await;
    for name in &old {
        assert_eq!(stamped(name).await, name != denied, "{name}");
    }
    assert_eq!(pool().await.annotation(version), Some("v3"));
    assert_eq!(pool().await.status.unwrap().nodes, 3);
    cluster.gate.stumbles.lock().unwrap().clear();
    cluster
        .until("all are stamped", async |_| {
            stamped(denied).await && pool().await.annotation(version) == ours
        })
        .await;
    cluster.pass(600).await;
    cluster.assert_no_commands().await;
}

/// Scenario 11: ten drifted nodes and a budget of two.
#[tokio::test(start_paused = true)]
async fn g_1_11_never_more_nodes_under_way_than_the_budget_allows() {
    let cluster = Cluster::new(8, for_drift("2")).await;
    let _operator = cluster.operator();
    cluster.deploy("web", 10, "6").await;
    cluster.until_running(10).await;
    new_team(&cluster).await;
    let start = cluster.clock.now();
    loop {
        let claims = cluster.list::<NodeClaim>().await;
        let under_way = claims
            .iter()
            .filter(|claim| claim.is_true("DisruptionReason") && !claim.is_true("InstanceTerminating"))
            .count();
        assert!(
            under_way <= 2,
            "{under_way} nodes are under way: {:?}",
            cluster.ledger_text().await
        );
        if cluster.ended("Drifted", DisruptionPhase::Succeeded).await == 10 {
            break;
        }
        assert!(
            cluster.clock.since(start) < Cluster::LIMIT,
            "{:?}",
            cluster.ledger_text().await
        );
        cluster.clock.sleep(Duration::from_millis(500)).await;
    }
    cluster.until_running(10).await;
    cluster.pass(30).await;
    cluster.assert_at_rest().await;
}

/// D-010: an annotation of the template protects new nodes, and causes drift of existing ones.
#[tokio::test(start_paused = true)]
async fn d_010_d_226_an_annotation_of_the_template_reaches_new_nodes_only() {
    let cluster = Cluster::new(36, for_drift("100%")).await;
    let _operator = cluster.operator();
    one_busy_node(&cluster).await;
    let old = cluster.names::<Node>().await;
    let annotation = json!({"spec": {"template": {
        "metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "spec": {"expireAfter": "1000h"}}}});
    cluster.patch::<NodePool>("default", annotation).await;
    cluster.pass(2).await;
    let claim = cluster.list::<NodeClaim>().await.remove(0);
    assert_ne!(
        serde_json::to_value(&claim.spec).unwrap()["expireAfter"],
        "1000h",
        "D-226: what is there keeps what it was made with"
    );
    cluster
        .until("the node is replaced by a protected one", async |cluster| {
            let nodes = cluster.list::<Node>().await;
            nodes.len() == 1
                && cluster.running().await == 1
                && nodes[0].name_any() != old[0]
                && nodes[0]
                    .annotations()
                    .get("karpenter.sh/do-not-disrupt")
                    .is_some_and(|value| value == "true")
        })
        .await;
    // And protected it is.
    new_team(&cluster).await;
    cluster.pass(300).await;
    assert_eq!(
        cluster.ledger().await.len(),
        1,
        "{:?}",
        cluster.ledger_text().await
    );
}

/// D-214, D-218, D-219, D-223: hashes are stamped, a change of the NodePool is judged at once, and the condition survives others' writes.
#[tokio::test(start_paused = true)]
async fn d_214_d_218_d_219_d_223_hashes_and_the_drift_condition() {
    let cluster = Cluster::new(40, by_hand_only()).await;
    let _operator = cluster.operator();
    two_busy_nodes(&cluster).await;
    let hashes = async || {
        let pool = cluster.list::<NodePool>().await.remove(0);
        let mut all = vec![pool.annotations().clone()];
        all.extend(
            cluster
                .list::<NodeClaim>()
                .await
                .iter()
                .map(|claim| claim.annotations().clone()),
        );
        let mut pairs: Vec<(Option<String>, Option<String>)> = all
            .iter()
            .map(|annotations| {
                let get = |key: &str| annotations.get(key).cloned();
                (
                    get("karpenter.sh/nodepool-hash"),
                    get("karpenter.sh/nodepool-hash-version"),
                )
            })
            .collect();
        pairs.dedup();
        pairs
    };
    let before = hashes().await;
    assert_eq!(
        before.len(),
        1,
        "the NodePool and its NodeClaims agree: {before:?}"
    );
    assert_eq!(before[0].1.as_deref(), Some(spokeshave_api::hash::VERSION));
    new_team(&cluster).await;
    // Another client writes to a NodeClaim at the same time.
    let name = cluster.names::<NodeClaim>().await.remove(0);
    cluster.annotate::<NodeClaim>(&name, "note", "mine").await;
    cluster.pass(3).await;
    let after = hashes().await;
    assert_ne!(after[0].0, before[0].0, "the NodePool has another hash");
    for claim in cluster.list::<NodeClaim>().await {
        let drifted = claim.condition("Drifted").unwrap();
        assert_eq!(
            (drifted.status.as_str(), drifted.reason.as_str()),
            ("True", "NodePoolDrifted")
        );
    }
    let claim = cluster.get::<NodeClaim>(&name).await;
    assert_eq!(claim.annotation("note"), Some("mine"));
}

/// Two commands are decided in one instant: the second leaves room for the replacement that the first has yet to make.
#[tokio::test(start_paused = true)]
async fn invariant_15_a_limit_holds_for_replacements_that_are_decided_together() {
    let cluster = Cluster::new(41, for_drift("100%")).await;
    let _operator = cluster.operator();
    two_busy_nodes(&cluster).await;
    cluster.disrupted_pool("small", for_drift("100%")).await;
    // It is preferred, and has room for one of the two.
    let small = json!({"spec": {"weight": 10, "limits": {"cpu": "8"}}});
    cluster.patch::<NodePool>("small", small).await;
    cluster.pass(60).await;
    new_team(&cluster).await;
    let mut most = 0;
    cluster
        .until("both nodes are replaced", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            let in_small = claims
                .iter()
                .filter(|claim| claim.label("karpenter.sh/nodepool") == Some("small"));
            most = most.max(in_small.count());
            cluster.ended("Drifted", DisruptionPhase::Succeeded).await == 2
        })
        .await;
    assert_eq!(most, 1, "{:?}", cluster.ledger_text().await);
}

// D-233: as the last check the cloud is asked, and what it answers is the reason, in its words; an error is no drift; kwok never drifts.
#[tokio::test(start_paused = true)]
async fn d_233_what_the_cloud_says_is_the_reason() {
    let closed = json!({"disruption": {"budgets": [{"nodes": "0"}]}});
    let (cluster, _operator, name) = faulty::Cluster::one_node(16, closed).await;
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

/// D-230, D-231: a node that is an hour old drifts when its type is not sold any more. An answer without a single type is a fault of the catalogue, not of every
/// node.
#[tokio::test(start_paused = true)]
async fn d_230_d_231_an_old_node_drifts_with_its_type_and_not_with_an_empty_catalogue() {
    let open = json!({"disruption": {"budgets": [{"nodes": "100%"}]}});
    let (cluster, _operator, name) = faulty::Cluster::one_node(18, open).await;
    let stays = async |name: &str, minutes: u32| {
        for minute in 0..minutes {
            cluster.pass(60).await;
            assert_eq!(cluster.names::<NodeClaim>().await, [name], "minute {minute}");
            assert_eq!(cluster.condition(name, "Drifted").await, None, "minute {minute}");
        }
    };
    let drifts = async |name: &str, reason: &str| {
        let took = cluster
            .until(&format!("{name} drifts: {reason}"), async |cluster| {
                let said = cluster.condition(name, "Drifted").await;
                said.is_some_and(|(status, said, _)| (&*status, &*said) == ("True", reason))
            })
            .await;
        assert!(took <= Duration::from_secs(310), "every five minutes: {took:?}");
    };
    let sells = |types| *cluster.faults.catalog.lock().unwrap() = types;
    stays(&name, 62).await;
    sells(Some([].into()));
    stays(&name, 30).await;
    sells(None);
    stays(&name, 30).await;
    let claim = cluster.get::<NodeClaim>(&name).await;
    let own = claim.label("node.kubernetes.io/instance-type").unwrap();
    let mut others = generated_instance_types();
    others.retain(|one| one.name != own);
    sells(Some(others.into()));
    drifts(&name, "InstanceTypeNotFound").await;
    cluster.until_gone::<NodeClaim>(&name).await;
    cluster.until_running_of("web", 1).await;
    // Of one that is as old and still sold, the cloud has the last word.
    let next = cluster.claim_of_pod("web").await;
    stays(&next, 62).await;
    *cluster.faults.drift.lock().unwrap() = Some("ImageDrift".to_owned());
    drifts(&next, "ImageDrift").await;
}

/// D-233: the cloud is shown the class as it is after the change for which it is asked, and so drift is seen at once and not five minutes later.
#[tokio::test(start_paused = true)]
async fn d_233_the_cloud_judges_by_the_class_that_has_just_changed() {
    const KEY: &str = "example.com/launched-from";
    let closed = json!({"disruption": {"budgets": [{"nodes": "0"}]}});
    let (cluster, _operator, name) = faulty::Cluster::one_node(17, closed).await;
    let marked = async |value: Value| {
        let patch = json!({"metadata": {"annotations": {KEY: value}}});
        cluster.patch::<KWOKNodeClass>("default", patch).await;
    };
    marked(json!("yes")).await;
    *cluster.faults.launched_from.lock().unwrap() = Some(KEY.to_owned());
    cluster.pass(310).await;
    assert_eq!(cluster.condition(&name, "Drifted").await, None);
    marked(Value::Null).await;
    cluster.pass(2).await;
    let (status, reason, _) = cluster.condition(&name, "Drifted").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "NodeClassDrift"));
    marked(json!("again")).await;
    cluster.pass(2).await;
    assert_eq!(cluster.condition(&name, "Drifted").await, None);
}

/// W-21: pods that come and go do not make the cloud be asked about drift; a changed NodePool does.
#[tokio::test(start_paused = true)]
async fn w_21_pods_that_come_and_go_ask_the_cloud_nothing() {
    let (cluster, _operator, _claim) = faulty::Cluster::one_node(124, json!({})).await;
    let questions = || {
        let asked = &cluster.faults.drift_questions;
        asked.load(std::sync::atomic::Ordering::Relaxed)
    };
    cluster.pass(301).await;
    let before = questions();
    assert!(before > 0, "every five minutes it is asked");
    for round in 0..8 {
        cluster.deploy(&format!("job-{round}"), 2, "100m").await;
        cluster.pass(15).await;
        cluster.scale(&format!("job-{round}"), 0).await;
        cluster.pass(15).await;
    }
    let periodic = questions() - before;
    assert!(periodic <= 1, "{periodic} questions in four minutes");
    let label = json!({"spec": {"weight": 7}});
    cluster.patch::<NodePool>("default", label).await;
    cluster.pass(2).await;
    assert!(
        questions() > before + periodic,
        "another NodePool is another answer"
    );
}
