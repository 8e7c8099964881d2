//! When the status of a policy is written: soon after somebody has asked for something or a command has come further, not more often than once a second, and
//! never for nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption_policy::{DisruptionPolicyStatus, RolloutPhase};

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

/// So soon a status follows: a second after the one before, and what it takes to hear of something and to write it.
const SOON: u64 = 2;

async fn policy(cluster: &Cluster, spec: Value) {
    let object = json!({"metadata": {"name": "calm"}, "spec": spec});
    let _: DisruptionPolicy = cluster.create(object).await;
}

async fn ask(cluster: &Cluster, spec: Value) {
    cluster
        .patch::<DisruptionPolicy>("calm", json!({ "spec": spec }))
        .await;
}

async fn status(cluster: &Cluster) -> DisruptionPolicyStatus {
    let policy: DisruptionPolicy = cluster.get("calm").await;
    policy.status.unwrap_or_default()
}

/// Waits until the roll-out is in a phase, and gives the status that says so.
async fn until(cluster: &Cluster, phase: RolloutPhase) -> DisruptionPolicyStatus {
    let is_there = |status: &DisruptionPolicyStatus| status.rollouts.iter().any(|one| one.phase == phase);
    cluster
        .until(&format!("the roll-out is {phase}"), async |cluster| {
            is_there(&status(cluster).await)
        })
        .await;
    status(cluster).await
}

#[tokio::test(start_paused = true)]
async fn a_status_follows_commands_people_and_the_end_of_a_soak_within_two_seconds() {
    let cluster = Cluster::new(217, for_drift("100%")).await;
    let manual = json!({"soak": "47s", "approval": "Manual", "waves": ["100%"]});
    policy(&cluster, json!({"rollout": manual})).await;
    let _operator = cluster.operator();
    for number in 1..=3 {
        cluster.deploy(&format!("web{number}"), 1, "6500m").await;
        cluster.until_running(number).await;
    }
    new_team(&cluster).await;
    cluster
        .until("the canary begins", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    cluster.pass(SOON).await;
    let rolling = status(&cluster).await.rollouts;
    let begun: Vec<i64> = rolling.iter().map(|one| one.begun).collect();
    assert_eq!(begun, [1], "the command is there: {rolling:?}");

    let soaking = until(&cluster, RolloutPhase::Soaking).await;
    let end = soaking.next_change.expect("the end of the soak").0;
    let waiting = until(&cluster, RolloutPhase::WaitingForApproval).await;
    let late = cluster.clock.since(end).as_secs();
    assert!(late <= SOON, "{late} s after the soak");
    let message = waiting.rollouts[0].message.clone().unwrap_or_default();
    let active: Vec<&str> = waiting.active.iter().map(|rule| rule.message.as_str()).collect();
    assert_eq!(active, [format!("the roll-out waits: {message}")]);

    ask(&cluster, json!({"rollout": {"approved": {"default": 2}}})).await;
    cluster.pass(SOON).await;
    let approved = status(&cluster).await.rollouts;
    assert_eq!(approved[0].phase, RolloutPhase::Rolling, "{approved:?}");
    assert_eq!(approved[0].wave, 2, "{approved:?}");
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_once_a_second_at_most_and_never_for_nothing() {
    let cluster = Cluster::new(218, by_hand_only()).await;
    let (_operator, writes_left) = cluster.counted_operator();
    policy(&cluster, json!({"freeze": {"reason": "incident 0"}})).await;
    cluster.pass(120).await;
    let written = || u64::MAX - writes_left.load(Ordering::Relaxed);
    let before = written();
    cluster
        .annotate::<DisruptionPolicy>("calm", "example.com/owner", "nobody reads this")
        .await;
    cluster.pass(60).await;
    assert_eq!(written(), before, "nothing has changed");

    for number in 1..=20 {
        ask(
            &cluster,
            json!({"freeze": {"reason": format!("incident {number}")}}),
        )
        .await;
        cluster.clock.sleep(Duration::from_millis(100)).await;
    }
    cluster.pass(SOON).await;
    let burst = written() - before;
    assert!((2..=4).contains(&burst), "{burst} in four seconds");
    let summary = status(&cluster).await.summary.unwrap_or_default();
    assert!(summary.contains("incident 20"), "{summary}");
    cluster.pass(60).await;
    assert_eq!(written(), before + burst, "its own status is no news to it");
}
