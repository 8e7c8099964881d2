//! Commands that the independent check refuses: nothing is done, somebody is told, and others go on.

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED};
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_sim::lab::REFUSED_COMMANDS;

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::plain;
use crate::promises::bind;
use crate::words::*;

/// A pod that a scheduler of somebody else's has put on a node, and with no place elsewhere.
async fn fits_nowhere_else(cluster: &impl Scene, name: &str, node: &str) {
    let mut change = without_place();
    change["spec"]["schedulerName"] = json!("elsewhere");
    cluster.pod(name, "500m", change).await;
    bind(cluster, name, node).await;
}

/// Nodes that have drifted, in the order in which they are to go.
async fn drifted(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for claim in cluster.list::<NodeClaim>().await {
        let since = claim
            .true_condition(DRIFTED)
            .map(|drifted| drifted.last_transition_time);
        let node = claim.status.and_then(|status| status.node_name);
        found.extend(since.zip(node));
    }
    found.sort_unstable();
    found.into_iter().map(|(_, node)| node).collect()
}

/// Two busy nodes that have drifted, with budgets open: one that may go, and one with a pod without a place, whose turn is `turn`.
async fn two_drifted_nodes(cluster: &Cluster, turn: usize) -> [String; 2] {
    two_busy_nodes(cluster).await;
    new_team(cluster).await;
    cluster
        .until("both nodes have drifted", async |cluster| {
            drifted(cluster).await.len() == 2
        })
        .await;
    let mut nodes = drifted(cluster).await;
    let (kept, other) = (nodes.remove(turn), nodes.remove(0));
    fits_nowhere_else(cluster, "odd", &kept).await;
    cluster.until_running(3).await;
    let open = json!({"spec": {"disruption": for_drift("100%")}});
    cluster.patch::<NodePool>("default", open).await;
    [other, kept]
}

#[tokio::test(start_paused = true)]
async fn invariant_8_a_command_that_the_audit_refuses_is_not_started_and_holds_up_no_other() {
    for turn in [0, 1] {
        only_the_other_goes(turn).await;
    }
}

async fn only_the_other_goes(turn: usize) {
    let cluster = Cluster::new(131, by_hand_only()).await;
    let operator = cluster.operator();
    let [other, kept] = two_drifted_nodes(&cluster, turn).await;
    let claim = cluster.claim_of(&kept).await.name().to_owned();
    cluster
        .until("the other node is replaced", async |cluster| {
            cluster.ended("Drifted", DisruptionPhase::Succeeded).await == 1
        })
        .await;
    cluster.pass(120).await;
    let refused = cluster.told("DisruptionRefused").await;
    let about = format!("NodeClaim/{claim}");
    let is_told = |(object, message): &(String, String)| {
        *object == about
            && message.starts_with("Disruption refused by an independent check: ")
            && message.contains("default/odd")
    };
    assert!(!refused.is_empty() && refused.iter().all(is_told), "{refused:?}");
    assert!(sum(&operator.metrics, REFUSED_COMMANDS) >= 1.0);
    let gone: Vec<String> = cluster
        .ledger()
        .await
        .into_iter()
        .flat_map(|one| one.spec.nodes)
        .map(|node| node.name)
        .collect();
    assert_eq!(gone, [other], "nothing else is even begun");
    assert!(cluster.exists::<Node>(&kept).await);
    assert!(!cluster.get::<NodeClaim>(&claim).await.is_deleting());
    cluster.assert_at_rest().await;
}

/// Seeds are lived in laboratories whose operators are killed and started again: what the audit of any of them has refused fails the seed.
#[tokio::test(start_paused = true)]
async fn a_laboratory_remembers_what_the_audit_of_its_operators_has_refused() {
    let mut cluster = plain::Cluster::started(133, json!({"disruption": for_drift("100%")})).await;
    cluster.run("web", 1, "6").await;
    let node = cluster.node_of("web").await;
    fits_nowhere_else(&cluster, "odd", &node).await;
    cluster.until_running(2).await;
    assert_eq!(cluster.lab.refused(), None);
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}});
    cluster.patch::<NodePool>("default", labels).await;
    cluster
        .until("the audit refuses a command", async |cluster| {
            cluster.lab.refused().is_some()
        })
        .await;
    cluster.lab.kill("a").await;
    let told = cluster.lab.refused().expect("it is not forgotten");
    assert!(
        told.starts_with("the audit has refused ") && told.contains(" for drift or age"),
        "{told}"
    );
    cluster.lab.start("a");
    assert_eq!(cluster.lab.refused(), Some(told), "the next one has refused none");
}
