//! Commands that cannot be read, and commands about NodeClaims that cannot be, as a later version may have written them: neither is over or gone.

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_api::disruption::{Disruption, DisruptionPhase};

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

/// W-31: a command does not take a NodeClaim that cannot be read for one that is gone; it goes on as soon as it can be.
#[tokio::test(start_paused = true)]
async fn w_31_a_command_waits_for_a_claim_that_cannot_be_read() {
    for which in ["node", "replacement"] {
        let cluster = Cluster::new(44, at_once()).await;
        let _operator = cluster.operator();
        one_large_node(&cluster).await;
        without_large(&cluster).await;
        until_replacing(&cluster).await;
        let spec = cluster.ledger().await.remove(0).spec;
        let claim = match which {
            "node" => &spec.nodes[0].node_claim,
            _ => &spec.replacements[0].node_claim,
        };
        cluster.allow_any::<NodeClaim>().await;
        cluster.garble_claim(claim).await;
        cluster.pass(60).await;
        let ledger = cluster.ledger().await;
        assert_eq!(
            (ledger.len(), ledger[0].phase()),
            (1, DisruptionPhase::Replacing),
            "{which}: {:?}",
            cluster.ledger_text().await
        );
        cluster.restore_claim(claim).await;
        cluster
            .until(
                &format!("one small node once the {which} can be read"),
                on_one_small_node,
            )
            .await;
        cluster.pass(60).await;
        cluster.assert_at_rest().await;
        assert!(on_one_small_node(&cluster).await, "{which}");
    }
}

/// W-33, invariants 2 and 10: a command that cannot be read holds its node and waits for its replacement, and none is decided beside it.
#[tokio::test(start_paused = true)]
async fn w_33_a_command_that_cannot_be_read_is_not_cleaned_up_after() {
    let cluster = Cluster::new(45, at_once()).await;
    let first = cluster.operator();
    one_large_node(&cluster).await;
    first.kill().await;
    let _broken = cluster.operator_with(never_registers());
    without_large(&cluster).await;
    until_replacing(&cluster).await;
    let command = cluster.ledger().await.remove(0);
    let claims = cluster.names::<NodeClaim>().await;
    let set_evictions = async |evictions: serde_json::Value| {
        let patch = json!({"spec": {"evictions": evictions}});
        cluster.patch_any::<Disruption>(command.name(), patch).await;
    };
    cluster.allow_any::<Disruption>().await;
    set_evictions(json!("some")).await;
    cluster.pass(180).await;
    assert_eq!(
        cluster.names::<NodeClaim>().await,
        claims,
        "its replacement may still come"
    );
    let node = cluster.get::<Node>(&command.spec.nodes[0].name).await;
    let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
    assert!(
        taints.iter().any(|taint| taint.key == "karpenter.sh/disrupted"),
        "{taints:?}"
    );
    assert_eq!(cluster.list_values::<Disruption>().await.len(), 1);
    // It can be read again, and ends as it would have: D-114.
    set_evictions(json!(command.spec.evictions)).await;
    cluster
        .until("the command is rolled back", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    cluster.pass(10).await;
    cluster.assert_at_rest().await;
}
