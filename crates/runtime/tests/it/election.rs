//! Leader election against a live API server (P §15.2).

use std::time::Duration;

use crate::common::{Line, World};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use spokeshave_runtime::client::ClientOptions;
use spokeshave_runtime::{ElectionOutcome, LeaderElection, Leadership, LeaseOptions, NotLeader, Shutdown};
use tokio::task::JoinHandle;

struct Candidate {
    leadership: Leadership,
    shutdown: Shutdown,
    line: Line,
    task: JoinHandle<ElectionOutcome>,
}

fn candidate(world: &World, identity: &str) -> Candidate {
    let (line, shutdown) = (Line::default(), Shutdown::new());
    let client = world.client_on(
        &line,
        &ClientOptions {
            rate: None,
            ..ClientOptions::default()
        },
    );
    let options = LeaseOptions::new("kube-system", "karpenter-leader-election", identity);
    let election = LeaderElection::new(
        client,
        options,
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
    );
    let leadership = election.leadership();
    let task = tokio::spawn(election.run(shutdown.clone()));
    Candidate {
        leadership,
        shutdown,
        line,
        task,
    }
}

async fn spec(world: &World) -> LeaseSpec {
    let api: Api<Lease> = Api::namespaced(world.client(), "kube-system");
    api.get("karpenter-leader-election").await.unwrap().spec.unwrap()
}

#[tokio::test(start_paused = true)]
async fn p_204_one_leads_and_gives_the_lease_back() {
    let world = World::new(1);
    let first = candidate(&world, "first");
    let epoch = first.leadership.acquired().await;
    assert_eq!((epoch.transitions, epoch.holder.as_str()), (0, "first"));
    let second = candidate(&world, "second");
    world.pass(120).await;
    assert!(first.leadership.is_leader() && !second.leadership.is_leader());
    assert_eq!(spec(&world).await.lease_duration_seconds, Some(15));
    assert!(
        world
            .metrics
            .render()
            .contains(r#"leader_election_master_status{name="karpenter-leader-election"}"#)
    );

    first.shutdown.request();
    assert_eq!(first.task.await.unwrap(), ElectionOutcome::Stopped);
    assert!(!first.leadership.is_leader());
    let start = world.clock.now();
    let next = second.leadership.acquired().await;
    assert!(
        world.clock.since(start) < Duration::from_secs(6),
        "a lease that was given back need not run out"
    );
    assert_eq!((next.transitions, next.holder.as_str()), (1, "second"));
    assert_eq!(first.leadership.check(&epoch), Err(NotLeader::NotLeading));
    assert!(second.leadership.check(&epoch).is_err() && second.leadership.check(&next).is_ok());
}

/// Invariant 36: two replicas never both act.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_begins() {
    for seed in 0..20 {
        let world = World::new(seed);
        let first = candidate(&world, "first");
        let epoch = first.leadership.acquired().await;
        let second = candidate(&world, "second");
        world.pass(30 + seed % 3).await;
        first.line.set_cut(true);
        let cut = world.clock.now();
        first.leadership.lost(&epoch).await;
        assert!(world.clock.since(cut) <= Duration::from_secs(10));
        assert!(!second.leadership.is_leader(), "nobody leads between the terms");
        let next = second.leadership.acquired().await;
        let waited = world.clock.since(cut);
        assert!(
            (13..=22).contains(&waited.as_secs()),
            "another led after {waited:?}"
        );
        assert_eq!(next.transitions, 1);
        assert!(!first.leadership.is_leader());
        assert_eq!(first.task.await.unwrap(), ElectionOutcome::Lost);
        // What was on its way when the line was cut arrives, and is refused by its resourceVersion.
        first.line.set_cut(false);
        world.pass(5).await;
        assert_eq!(spec(&world).await.holder_identity.as_deref(), Some("second"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_silence_does_not_end_a_term() {
    let world = World::new(3);
    let only = candidate(&world, "only");
    let epoch = only.leadership.acquired().await;
    for _ in 0..5 {
        world.pass(20).await;
        only.line.set_cut(true);
        world.pass(6).await;
        only.line.set_cut(false);
    }
    world.pass(20).await;
    assert_eq!(
        only.leadership.epoch(),
        Some(epoch),
        "the same term, and it is held"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_by_hand_is_made_again() {
    let world = World::new(4);
    let only = candidate(&world, "only");
    only.leadership.acquired().await;
    let api: Api<Lease> = Api::namespaced(world.client(), "kube-system");
    api.delete("karpenter-leader-election", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    world.pass(20).await;
    assert!(only.leadership.is_leader());
    assert_eq!(spec(&world).await.holder_identity.as_deref(), Some("only"));
}
