//! A freeze at any moment of a command's life: it takes back what has deleted nothing, and leaves nothing half done.
//!
//! Each moment is a life of a whole cluster: the operator dies after so many writes, the freeze comes, and another operator finds both.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{DisruptionPolicy, NodeClaim};
use spokeshave_controllers::Options;
use spokeshave_provider_kwok::KwokOptions;

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

/// How far a command had come: its phase, and in `Starting` and `Replacing` whether its node is tainted and its replacement there.
fn moment(one: &Disruption, nodes: &[Node], claims: &[NodeClaim]) -> String {
    let is_tainted = nodes.iter().any(|node| {
        let spec = node.spec.as_ref();
        let mut taints = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
        taints.any(|taint| taint.key == "karpenter.sh/disrupted")
    });
    let replacements = one.spec.replacements.iter();
    let mut there =
        replacements.filter_map(|planned| claims.iter().find(|claim| claim.name() == planned.node_claim));
    let replacement = match there.next() {
        None => "none",
        Some(claim) if claim.provider_id().is_none() => "asked for",
        Some(_) => "launched",
    };
    match one.phase() {
        DisruptionPhase::Starting => format!("Starting, tainted {is_tainted}, replacement {replacement}"),
        DisruptionPhase::Replacing => format!("Replacing, replacement {replacement}"),
        other => other.to_string(),
    }
}

/// One run; returns the time of the freeze, or `None` if the command had ended before.
async fn life(writes: u64) -> Option<String> {
    let cluster = Cluster::new(251, at_once()).await;
    let first = cluster.operator();
    one_large_node(&cluster).await;
    cluster.pass(25).await;
    first.kill().await;
    without_large(&cluster).await;
    let (doomed, left) = cluster.mortal_operator(writes, KwokOptions::default(), Options::default());
    let start = cluster.clock.now();
    while left.load(Ordering::Relaxed) > 0 && cluster.clock.since(start).as_secs() < 300 {
        cluster.pass(1).await;
    }
    let is_over = left.load(Ordering::Relaxed) > 0;
    doomed.kill().await;
    if is_over {
        cluster.shutdown.request();
        return None;
    }
    let before = cluster.list::<Disruption>().await;
    let (nodes, claims) = (cluster.list::<Node>().await, cluster.list::<NodeClaim>().await);
    let moment = before
        .first()
        .map_or_else(|| "no command".to_owned(), |one| moment(one, &nodes, &claims));
    let object = json!({"metadata": {"name": "calm"}, "spec": {"freeze": {"reason": "incident 42"}}});
    let _: DisruptionPolicy = cluster.create(object).await;
    let _operator = cluster.operator();
    cluster
        .until(&format!("what had begun has ended ({moment})"), async |cluster| {
            cluster.ledger().await.iter().all(Disruption::is_finished)
        })
        .await;
    cluster.pass(60).await;
    let after = cluster.ledger().await;
    assert!(
        after.len() <= 1,
        "{moment}: nothing begins under a freeze: {:?}",
        cluster.ledger_text().await
    );
    for one in &after {
        // There is no rollback after the first NodeClaim was deleted.
        let had_deleted = before.iter().flat_map(|one| &one.spec.nodes).any(|node| {
            let mut claims = claims.iter();
            claims.all(|claim| claim.name() != node.node_claim || claim.is_deleting())
        });
        if had_deleted {
            assert_eq!(
                one.phase(),
                DisruptionPhase::Succeeded,
                "{moment}: there was no way back"
            );
            assert_eq!(cores(&cluster).await, [1], "{moment}");
        }
        if one.phase() == DisruptionPhase::RolledBack {
            // An initialized replacement is kept, and removed as an empty node once that is allowed.
            let left = cores(&cluster).await;
            assert!(
                left == [8] || left == [1, 8],
                "{moment}: its node stays: {left:?}"
            );
            let why = one
                .status
                .as_ref()
                .and_then(|status| status.message.clone())
                .unwrap_or_default();
            assert!(why.contains("incident 42"), "{moment}: {why}");
        }
    }
    cluster.assert_at_rest().await;
    cluster.delete::<DisruptionPolicy>("calm").await;
    cluster
        .until(&format!("thawed, it goes on ({moment})"), on_one_small_node)
        .await;
    cluster.shutdown.request();
    Some(moment)
}

/// Invariant 4: in every phase of a command, and at each write of it.
#[tokio::test(start_paused = true)]
async fn invariant_4_a_freeze_in_each_phase_of_a_command_leaves_nothing_half_done() {
    let mut moments = BTreeSet::new();
    for writes in 1.. {
        let Some(moment) = life(writes).await else { break };
        moments.insert(moment);
    }
    let all: Vec<&str> = moments.iter().map(String::as_str).collect();
    for wanted in [
        "no command",
        "Starting, tainted true",
        "replacement asked for",
        "Replacing, replacement launched",
        "Deleting",
        "Draining",
    ] {
        assert!(
            all.iter().any(|moment| moment.contains(wanted)),
            "{wanted:?} is not among {all:?}"
        );
    }
}
