//! What is forceful never waits for a policy: whatever policies there are, `expireAfter`, interruption and deletion by hand take a node as soon as without any.

use serde_json::{Value, json};
use spokeshave_api::{DisruptionPolicy, KWOKInstance, NodeClaim, NodePool};
use spokeshave_provider_kwok::keys::MESSAGE;

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

/// A policy of parts that are drawn, some of them broken; each of them stops something.
fn drawn(seed: u64) -> Value {
    let parts = [
        json!({"freeze": {"reason": "incident"}}),
        json!({"freeze": {"reason": "for ever", "until": "2999-01-01T00:00:00Z"}}),
        json!({"hold": {"duration": "100h"}}),
        json!({"budgets": [{"limit": "0"}]}),
        json!({"budgets": [{"perHour": 0}]}),
        json!({"budgets": [{"windows": [{"dates": ["2020-01-01"], "from": "00:00", "to": "01:00"}]}]}),
        json!({"timeZone": "Mars/Base"}),
        json!({"rollout": {"paused": true}}),
        json!({"expiry": {"softPercent": 99}}),
        json!({"workloads": {"statefulSets": "OneAtATime"}}),
        json!({"circuitBreakers": {"notReady": {"percent": 1, "scope": "Zone"}, "prices": {"olderThan": "1s"}}}),
    ];
    let mut spec = json!({});
    let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
    for part in &parts {
        if bits & 1 == 1 {
            json_patch::merge(&mut spec, part);
        }
        bits >>= 1;
    }
    if spec
        .as_object()
        .is_none_or(|spec| spec.keys().all(|key| key == "timeZone"))
    {
        json_patch::merge(&mut spec, &parts[0]);
    }
    spec
}

/// How long each of three nodes takes to go: one that expires, one that is interrupted, one that is deleted by hand.
async fn times(seed: u64, policies: &[Value]) -> Vec<u64> {
    let cluster = Cluster::new(seed, by_hand_only()).await;
    for (index, spec) in policies.iter().enumerate() {
        let object = json!({"metadata": {"name": format!("p{index}")}, "spec": spec});
        let _: DisruptionPolicy = cluster.create(object).await;
    }
    let quiet = json!({"metadata": {"annotations": {"spokeshave.dev/quiet-time": "24h", "spokeshave.dev/moves-per-day": "0"}}});
    let _operator = cluster.operator();
    cluster.deploy_with("web", 2, template("web", "6", quiet)).await;
    cluster.until_running(2).await;
    let born = cluster.clock.now();
    let claims = cluster.names::<NodeClaim>().await;
    let mut took = Vec::new();
    // What comes from now on expires after twenty minutes.
    let expiring = json!({"spec": {"template": {"spec": {"expireAfter": "20m"}}}});
    cluster.patch::<NodePool>("default", expiring).await;
    cluster.delete::<NodeClaim>(&claims[0]).await;
    took.push(cluster.until_gone::<NodeClaim>(&claims[0]).await.as_secs());
    let instances = cluster.list::<KWOKInstance>().await;
    let second = cluster.get::<NodeClaim>(&claims[1]).await;
    let provider_id = second.provider_id().expect("an instance").to_owned();
    let instance = instances
        .iter()
        .find(|instance| provider_id.ends_with(instance.name()))
        .expect("its instance");
    cluster
        .annotate::<KWOKInstance>(instance.name(), MESSAGE, json!("spot_interrupted"))
        .await;
    took.push(cluster.until_gone::<NodeClaim>(&claims[1]).await.as_secs());
    cluster.until_running(2).await;
    let young = cluster.list::<NodeClaim>().await;
    let expires = young
        .iter()
        .find(|claim| {
            claim
                .spec
                .expire_after
                .duration()
                .is_some_and(|age| age.as_secs() == 1200)
        })
        .expect("one that expires");
    let name = expires.name().to_owned();
    let created = expires.metadata.creation_timestamp.clone().expect("a time").0;
    while cluster.exists::<NodeClaim>(&name).await {
        cluster.pass(5).await;
        assert!(
            cluster.clock.since(born).as_secs() < 4000,
            "it has not expired under {policies:?}"
        );
    }
    took.push(cluster.clock.since(created).as_secs());
    cluster.shutdown.request();
    took
}

#[tokio::test(start_paused = true)]
async fn what_is_forceful_never_waits_for_any_policy() {
    let without = times(261, &[]).await;
    for seed in 0..12 {
        let policies = [drawn(seed), drawn(seed + 100)];
        let with = times(261, &policies).await;
        for (without, with) in without.iter().zip(&with) {
            assert!(
                with.abs_diff(*without) <= 30,
                "{with} s instead of {without} s under {policies:?}"
            );
        }
    }
}
