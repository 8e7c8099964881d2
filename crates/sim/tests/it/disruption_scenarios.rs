//! D App. G.1 through the whole stack on virtual time, continued: spot flexibility, budgets of pods, scores, windows, and what a user sees of each.

use std::time::Duration;

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use spokeshave_api::conditions::{Conditioned as _, VERDICT};
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::Options;

fn machine(family: &str, cores: u32, arch: &str) -> String {
    format!("{family}-{cores}x-{arch}-linux")
}

/// Types that cost less than `c-8x-amd64-linux`, so many of them.
fn cheaper(count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for cores in [1, 2, 4] {
        for family in ["c", "s", "m"] {
            for arch in ["amd64", "arm64"] {
                names.push(machine(family, cores, arch));
            }
        }
    }
    names.truncate(count);
    names.push(machine("c", 8, "amd64"));
    names
}

/// Scenario 5: 14 cheaper spot types are too few, of 15 all may be launched.
#[tokio::test(start_paused = true)]
async fn g_1_5_spot_to_spot_needs_fifteen_cheaper_types() {
    for (count, enough) in [(14, false), (15, true)] {
        let cluster = Cluster::new(
            30,
            json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}),
        )
        .await;
        cluster.sells_only(&cheaper(count), &["spot"]).await;
        let _operator = cluster.operator_set(Options {
            spot_to_spot_consolidation: true,
            ..Options::default()
        });
        one_large_node(&cluster).await;
        without_large(&cluster).await;
        if enough {
            cluster.until("one small node", on_one_small_node).await;
            let ledger = cluster.ledger().await;
            let requirements = serde_json::to_value(&ledger[0].spec.replacements[0].spec).unwrap();
            let types = requirements["requirements"]
                .as_array()
                .unwrap()
                .iter()
                .find(|one| one["key"] == "node.kubernetes.io/instance-type")
                .unwrap_or_else(|| panic!("{requirements}"));
            assert_eq!(types["values"].as_array().unwrap().len(), 15, "D-157");
        } else {
            cluster.pass(300).await;
            cluster.assert_no_commands().await;
            cluster.assert_said("Unconsolidatable", "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got 14").await;
        }
    }
}

/// Scenario 4: two large nodes and a small one whose pods all fit the small one: the large ones go, and nothing of the small one's kind is bought.
#[tokio::test(start_paused = true)]
async fn g_1_4_d_162_what_is_there_already_is_not_bought() {
    let cluster = Cluster::new(
        31,
        json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}),
    )
    .await;
    let types = [machine("c", 1, "amd64"), machine("c", 8, "amd64")];
    cluster.sells_only(&types, &["on-demand"]).await;
    let _operator = cluster.operator();
    cluster.deploy("large", 2, "7600m").await;
    cluster.until_running(2).await;
    cluster.deploy("web", 2, "150m").await;
    cluster.until_running(4).await;
    cluster.deploy("tiny", 1, "500m").await;
    cluster.until_running(5).await;
    assert_eq!(cores(&cluster).await, [1, 8, 8]);
    cluster.scale("large", 0).await;
    cluster.until_running(3).await;
    let open = json!({"spec": {"disruption": {"consolidateAfter": "0s"}}});
    cluster.patch::<NodePool>("default", open).await;
    cluster
        .until("one small node", async |cluster| {
            cluster.running().await == 3 && cores(cluster).await == [1]
        })
        .await;
    cluster.pass(60).await;
    cluster.assert_at_rest().await;
    for one in cluster.ledger().await {
        assert!(
            one.spec.replacements.is_empty(),
            "{:?}",
            cluster.ledger_text().await
        );
    }
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

/// Scenario 28: what little it saves is not worth moving every pod of the pool under `Balanced`; under the policy that takes any advantage it is.
#[tokio::test(start_paused = true)]
async fn g_1_28_d_173_d_179_d_180_a_small_saving_is_not_worth_all_pods() {
    for (policy, goes) in [("Balanced", false), ("WhenEmptyOrUnderutilized", true)] {
        let disruption =
            json!({"consolidateAfter": "0s", "consolidationPolicy": policy, "budgets": [{"nodes": "100%"}]});
        let cluster = Cluster::new(34, disruption).await;
        // Only the machine with much memory is sold at first.
        cluster
            .sells_only(&[machine("m", 8, "amd64")], &["on-demand"])
            .await;
        let operator = cluster.operator();
        cluster.deploy("web", 1, "6").await;
        cluster.until_running(1).await;
        let both = [machine("m", 8, "amd64"), machine("s", 8, "amd64")];
        cluster.sells_only(&both, &["on-demand"]).await;
        if goes {
            cluster
                .until("the cheaper machine", async |cluster| {
                    cluster.ended("Underutilized", DisruptionPhase::Succeeded).await == 1
                })
                .await;
        } else {
            cluster.pass(300).await;
            cluster.assert_no_commands().await;
            let claim = cluster.list::<NodeClaim>().await.remove(0);
            let verdict = claim.condition(VERDICT).unwrap();
            assert!(verdict.message.starts_with("score 0."), "{}", verdict.message);
        }
        let decision = if goes { "approved" } else { "rejected" };
        let labels = format!("{{decision=\"{decision}\",nodepool=\"default\",policy=\"{policy}\"}}");
        let metrics = operator.metrics.render();
        assert!(
            metrics.contains(&format!("karpenter_consolidation_moves_total{labels} ")),
            "{labels}"
        );
        let scored = metrics.contains(&format!("karpenter_consolidation_score_count{labels} "));
        assert_eq!(
            scored,
            policy == "Balanced",
            "D-180: only where the policy asks for a score"
        );
    }
}

/// Scenario 29: a neighbour whose pods have just changed takes no pods of consolidation, and does take those of drift.
#[tokio::test(start_paused = true)]
async fn g_1_29_d_044_a_restless_neighbour_takes_pods_of_drift_only() {
    let cluster = Cluster::new(
        35,
        json!({"consolidateAfter": "10m", "budgets": [{"nodes": "100%"}]}),
    )
    .await;
    cluster
        .sells_only(&[machine("c", 8, "amd64")], &["on-demand"])
        .await;
    let _operator = cluster.operator();
    // One after the other, so that each has a node of its own.
    cluster.deploy("left", 1, "6500m").await;
    cluster.until_running(1).await;
    cluster.deploy("right", 1, "6500m").await;
    cluster.until_running(2).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(3).await;
    let quiet = cluster.node_of("web").await;
    let (emptied, other) = if cluster.node_of("left").await == quiet {
        ("left", "right")
    } else {
        ("right", "left")
    };
    let restless = cluster.node_of(other).await;
    assert_ne!(quiet, restless);
    cluster.scale(emptied, 0).await;
    for round in 0..5 {
        let pod = json!({"metadata": {"name": format!("tick-{round}")}, "spec": {
            "nodeName": restless, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}]}});
        cluster.create::<Pod>(pod).await;
        cluster.pass(4 * 60).await;
    }
    cluster.assert_no_commands().await;
    let claims = cluster.list::<NodeClaim>().await;
    let verdicts: Vec<&String> = claims
        .iter()
        .filter_map(|claim| Some(&claim.condition(VERDICT)?.message))
        .collect();
    assert!(
        verdicts.iter().any(|text| text.contains("consolidateAfter")),
        "{verdicts:?}"
    );
    new_team(&cluster).await;
    cluster
        .until("drift moves pods to a neighbour", async |cluster| {
            cluster
                .ledger()
                .await
                .iter()
                .any(|one| one.spec.reason.as_str() == "Drifted" && one.spec.replacements.is_empty())
        })
        .await;
}

/// D-010: an annotation of the template protects the nodes that come, and makes those that are there drift.
#[tokio::test(start_paused = true)]
async fn d_010_d_226_an_annotation_of_the_template_reaches_new_nodes_only() {
    let cluster = Cluster::new(36, for_drift("100%")).await;
    let _operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
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

/// D-043, D-064: a change of the NodePool reaches the condition at once, and a pass that found nothing is followed by one ten seconds later.
#[tokio::test(start_paused = true)]
async fn d_043_d_064_changes_of_the_nodepool_are_seen_at_once_and_acted_on_within_ten_seconds() {
    let cluster = Cluster::new(37, json!({"consolidateAfter": "1h", "budgets": [{"nodes": "0"}]})).await;
    let _operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
    cluster.scale("web", 0).await;
    cluster.pass(60).await;
    let consolidatable = async || cluster.list::<NodeClaim>().await[0].is_true("Consolidatable");
    assert!(!consolidatable().await);
    let short = json!({"spec": {"disruption": {"consolidateAfter": "30s"}}});
    cluster.patch::<NodePool>("default", short).await;
    cluster.pass(2).await;
    assert!(consolidatable().await);
    cluster.pass(60).await;
    cluster.assert_no_commands().await;
    let open = json!({"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}});
    let start = cluster.clock.now();
    cluster.patch::<NodePool>("default", open).await;
    cluster
        .until("the command is written", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    let took = cluster.clock.since(start);
    // Ten seconds to the next pass at most, fifteen to the second look.
    assert!(
        (Duration::from_secs(15)..=Duration::from_secs(27)).contains(&took),
        "{took:?}"
    );
}

/// D-086, D-096: a command that waits for its second look when the operator ends was never there.
#[tokio::test(start_paused = true)]
async fn d_086_d_096_w_11_a_command_that_waits_ends_with_its_operator() {
    let cluster = Cluster::new(38, at_once()).await;
    let operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
    cluster.scale("web", 0).await;
    cluster
        .until("no pod is left", async |cluster| cluster.running().await == 0)
        .await;
    cluster.pass(10).await;
    operator.kill().await;
    cluster.pass(60).await;
    cluster.assert_no_commands().await;
    cluster.assert_tidy().await;
    assert_eq!(cluster.list::<Node>().await.len(), 1);
    let _again = cluster.operator();
    cluster.until_empty().await;
}

/// D-049, D-067, D-104…D-106, D-118: what can be read off a replace and a delete.
#[tokio::test(start_paused = true)]
async fn d_049_d_067_d_104_d_105_d_118_metrics_and_nominations_of_commands() {
    let cluster = Cluster::new(39, at_once()).await;
    let operator = cluster.operator();
    three_large_nodes(&cluster).await;
    without_large(&cluster).await;
    cluster
        .until("three pods on fewer cores", three_pods_on_fewer_cores)
        .await;
    cluster.pass(60).await;
    let metrics = &operator.metrics;
    let value = |family: &str, labels: &str| {
        reading(metrics, family, labels).unwrap_or_else(|| panic!("{family} is not among the metrics"))
    };
    assert!((value("karpenter_cluster_state_synced", "") - 1.0).abs() < 1e-9);
    assert!(value("karpenter_cluster_state_unsynced_time_seconds", "") < 1.0);
    let nodes = cluster.list::<Node>().await.len();
    assert_eq!(value("karpenter_cluster_state_node_count", "") as usize, nodes);
    assert!(
        value(
            "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count",
            "{consolidation_type=\"multi\",reason=\"underutilized\"}"
        ) > 0.0
    );
    let commands = cluster.ledger().await.len();
    let decisions = sum(metrics, "karpenter_voluntary_disruption_decisions_total");
    assert_eq!(decisions as usize, commands, "{:?}", cluster.ledger_text().await);
    let by_pool = sum(
        metrics,
        "karpenter_voluntary_disruption_decisions_by_nodepool_total",
    );
    assert_eq!(by_pool as usize, commands, "one NodePool");
    assert!(
        cluster
            .events("Nominated")
            .await
            .iter()
            .any(|message| message.starts_with("Pod should schedule on: ")),
        "{:?}",
        cluster.events("Nominated").await
    );
    for one in cluster.ledger().await {
        assert_eq!(one.phase(), DisruptionPhase::Succeeded);
    }
}

/// D-214, D-218, D-219, D-223: hashes are stamped, a change of the NodePool is judged at once, and the condition survives others' writes.
#[tokio::test(start_paused = true)]
async fn d_214_d_218_d_219_d_223_hashes_and_the_drift_condition() {
    let cluster = Cluster::new(
        40,
        json!({"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}),
    )
    .await;
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
    // Somebody else writes to a NodeClaim at the same time.
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

/// W-31: a command outlives the objects it names; W-56: nobody is told or counted twice.
#[tokio::test(start_paused = true)]
async fn w_31_w_56_a_command_whose_first_node_vanishes_ends() {
    let cluster = Cluster::new(41, at_once()).await;
    let operator = cluster.operator();
    cluster.deploy("web", 3, "6").await;
    cluster.until_running(3).await;
    cluster.scale("web", 0).await;
    cluster
        .until("the command is written", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    let first = cluster.ledger().await[0].spec.nodes[0].node_claim.clone();
    cluster.remove_finalizers::<NodeClaim>(&first).await;
    // It may be gone with them.
    let claims = cluster.api::<NodeClaim>();
    claims.delete(&first, &DeleteParams::default()).await.ok();
    cluster
        .until("the command ends", async |cluster| {
            cluster.ledger().await.iter().all(|one| one.is_finished())
        })
        .await;
    cluster.until_empty().await;
    let disrupted = sum(&operator.metrics, "karpenter_nodeclaims_disrupted_total");
    assert!(disrupted <= 3.0, "{disrupted}");
    let told = cluster.events("DisruptionTerminating").await.len();
    assert!(told <= 6, "once for each Node and each NodeClaim: {told}");
}

/// An upgrade that brings the operator before its definitions: it is not ready and does nothing, and goes on by itself once they are there.
#[tokio::test(start_paused = true)]
async fn without_the_definition_of_disruptions_nothing_begins_and_with_it_everything_goes_on() {
    let cluster = Cluster::new(42, at_once()).await;
    let name = "disruptions.spokeshave.dev";
    cluster.delete::<CustomResourceDefinition>(name).await;
    let operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.pass(60).await;
    assert!(
        cluster.list::<NodeClaim>().await.is_empty(),
        "nothing is decided in the dark"
    );
    let failures = operator.metrics.render();
    assert!(
        failures.contains("kind=\"Disruption\""),
        "the kind that is missing is counted by name"
    );
    let definition = spokeshave_api::crds::crds()
        .into_iter()
        .find(|one| one.name_any() == name)
        .unwrap();
    cluster
        .create::<CustomResourceDefinition>(json!(definition))
        .await;
    cluster.until_running(1).await;
    cluster.scale("web", 0).await;
    cluster.until_empty().await;
}

/// What seeds 000, 003 and 004 say about how a node goes, in their words.
#[tokio::test(start_paused = true)]
async fn seed_000_seed_003_seed_004_how_a_node_goes() {
    let cluster = Cluster::new(
        43,
        json!({"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}),
    )
    .await;
    let _operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
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

/// "Automated forceful methods will begin draining nodes as soon as the condition is met. Note that these methods blow past NodePool Disruption Budgets,
/// and do not wait for a pre-spin replacement node to be healthy" (seed 000; 004 alike; of 003, which has budgets bind expiry, D §10.2 topic 3 says
/// that it is wrong).
#[tokio::test(start_paused = true)]
async fn seed_000_seed_003_seed_004_expiry_asks_no_budget_and_waits_for_no_replacement() {
    let cluster = Cluster::new(
        44,
        json!({"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}),
    )
    .await;
    let expire = json!({"spec": {"template": {"spec": {"expireAfter": "10m"}}}});
    cluster.patch::<NodePool>("default", expire).await;
    let _operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
    let first = cluster.names::<NodeClaim>().await.remove(0);
    cluster
        .until("the first claim is told to go", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            claims
                .iter()
                .all(|claim| claim.name_any() != first || claim.is_deleting())
        })
        .await;
    assert_eq!(cluster.list::<Node>().await.len(), 1, "nothing came before");
    assert!(
        cluster.ledger().await.is_empty(),
        "no command: it is not voluntary"
    );
    cluster
        .until("another node has the pod", async |cluster| {
            let names = cluster.names::<NodeClaim>().await;
            cluster.running().await == 1 && names.len() == 1 && names[0] != first
        })
        .await;
}
