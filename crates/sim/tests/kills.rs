//! Invariant 37: an operator that is killed at any write of a story, and started again, ends in the same state as one that lives on.
//!
//! Each story is told once without a kill, which counts its writes, and then once for each write: the write is carried out, and the
//! operator dies before it sees the answer's consequences. Writes to the cloud count as well, so that one of the kills falls between the
//! launch of an instance and the record of it. The checkers watch every telling.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Cluster, LIMIT};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, NodeClaim};
use spokeshave_sim::lab::LabOptions;

/// A story: what the cluster is like, what the user does after the operator has begun, and how many nodes and pods there are in the end.
struct Story {
    name: &'static str,
    pool: Value,
    /// Prepared before the mortal operator, with an immortal one that is stopped afterwards.
    prepare: fn(&Cluster) -> BoxFuture<'_>,
    act: fn(&Cluster) -> BoxFuture<'_>,
    /// What is left: pods that run, nodes.
    end: (usize, usize),
    /// Fewest writes that make the story worth telling.
    least_writes: u64,
}

type BoxFuture<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What is compared: names are drawn anew after a kill, so only kinds, owners and states count.
async fn state(cluster: &Cluster) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut count = |what: String| *counts.entry(what).or_insert(0) += 1;
    for node in cluster.list::<Node>().await {
        let spec = node.spec.unwrap_or_default();
        count(format!(
            "node ready={} taints={} cordoned={}",
            node.metadata
                .labels
                .is_some_and(|labels| labels.contains_key("karpenter.sh/initialized")),
            spec.taints.unwrap_or_default().len(),
            spec.unschedulable.unwrap_or(false)
        ));
    }
    for claim in cluster.list::<NodeClaim>().await {
        let conditions = claim.status.unwrap_or_default().conditions;
        let mut truths: Vec<String> = conditions
            .iter()
            .filter(|one| {
                one.status == "True" && one.type_ != "Consolidatable" && one.type_ != "ConsistentStateFound"
            })
            .map(|one| one.type_.clone())
            .collect();
        truths.sort();
        count(format!(
            "nodeclaim deleting={} {truths:?}",
            claim.metadata.deletion_timestamp.is_some()
        ));
    }
    for instance in cluster.list::<KWOKInstance>().await {
        count(format!(
            "instance {:?}",
            instance.status.unwrap_or_default().phase
        ));
    }
    for pod in cluster.list::<Pod>().await {
        count(format!("pod {:?}", pod.status.unwrap_or_default().phase));
    }
    for _ in cluster.list::<VolumeAttachment>().await {
        count("volumeattachment".to_owned());
    }
    counts
}

async fn settled(cluster: &Cluster, (pods, nodes): (usize, usize)) -> bool {
    cluster.running().await.len() == pods
        && cluster.list::<Pod>().await.len() == pods
        && cluster.list::<Node>().await.len() == nodes
        && cluster.list::<NodeClaim>().await.len() == nodes
        && cluster.list::<KWOKInstance>().await.len() == nodes
        && cluster
            .list::<NodeClaim>()
            .await
            .iter()
            .all(|claim| claim.metadata.deletion_timestamp.is_none())
}

/// Tells a story with a kill after so many writes; gives the end and whether the operator outlived it.
async fn tell(story: &Story, writes: u64) -> (BTreeMap<String, usize>, bool) {
    let mut cluster = Cluster::new(LabOptions::new(11), story.pool.clone()).await;
    cluster.lab.start("before");
    (story.prepare)(&cluster).await;
    cluster.lab.stop("before").await;
    let lifeline = cluster.lab.start_mortal("doomed", writes);
    (story.act)(&cluster).await;
    let start = cluster.clock.now();
    let mut calm = 0;
    while !lifeline.is_cut() && calm < 60 && cluster.clock.since(start) < LIMIT {
        calm = if settled(&cluster, story.end).await {
            calm + 1
        } else {
            0
        };
        cluster.clock.sleep(Duration::from_secs(1)).await;
    }
    let survived = !lifeline.is_cut();
    cluster.lab.kill("doomed").await;
    cluster.lab.start("again");
    let mut calm = 0;
    cluster
        .until(
            &format!("{} settles after a kill at write {writes}", story.name),
            async |cluster| {
                calm = if settled(cluster, story.end).await {
                    calm + 1
                } else {
                    0
                };
                calm > 60
            },
        )
        .await;
    let state = state(&cluster).await;
    cluster.assert_tidy().await;
    cluster.lab.end().await;
    (state, survived)
}

async fn at_every_write(story: Story) {
    let (expected, survived) = tell(&story, 1_000_000).await;
    assert!(survived, "{}: a million writes", story.name);
    let mut writes = 1;
    loop {
        let (state, survived) = tell(&story, writes).await;
        assert_eq!(state, expected, "{} after a kill at write {writes}", story.name);
        if survived {
            break;
        }
        writes += 1;
    }
    assert!(
        writes > story.least_writes,
        "{} has only {writes} writes",
        story.name
    );
}

fn two_nodes(cluster: &Cluster) -> BoxFuture<'_> {
    Box::pin(async {
        cluster.deploy("web", 2, "6").await;
        cluster.until_running(2).await;
    })
}

#[tokio::test(start_paused = true)]
async fn invariant_37_emptiness() {
    at_every_write(Story {
        name: "emptiness",
        pool: json!({}),
        prepare: two_nodes,
        act: |cluster| Box::pin(async { cluster.scale("web", 1).await }),
        end: (1, 1),
        least_writes: 5,
    })
    .await;
}
