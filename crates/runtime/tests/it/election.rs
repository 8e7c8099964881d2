//! Leader election against a live API server (P §15.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::common::{Line, World};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::PostParams;
use spokeshave_apiserver::{ApiServer, Commit, Config};
use spokeshave_ports::{Entropy, SystemClock, TokioClock};
use spokeshave_runtime::client::ClientOptions;
use spokeshave_runtime::{
    ElectionOutcome, LeaderElection, Leadership, LeaseOptions, Metrics, NotLeader, Shutdown,
};
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

/// Invariant 36: so it is after a suspend, during which another has begun to lead and of which the timer knows nothing.
#[tokio::test(start_paused = true)]
async fn a_leader_that_sees_another_holder_stops_at_once() {
    let world = World::new(6);
    let first = candidate(&world, "first");
    let epoch = first.leadership.acquired().await;
    // Between two renewals.
    world.pass(31).await;
    let api: Api<Lease> = Api::namespaced(world.client(), "kube-system");
    let mut lease = api.get("karpenter-leader-election").await.unwrap();
    let held = lease.spec.get_or_insert_default();
    held.holder_identity = Some("second".to_owned());
    held.lease_transitions = Some(1);
    api.replace("karpenter-leader-election", &PostParams::default(), &lease)
        .await
        .unwrap();
    let taken = world.clock.now();
    first.leadership.lost(&epoch).await;
    let waited = world.clock.since(taken);
    assert!(
        waited <= Duration::from_secs(3),
        "at its next renewal, not at its deadline: {waited:?}"
    );
    assert!(!first.leadership.is_leader());
    assert_eq!(first.task.await.unwrap(), ElectionOutcome::Lost);
    assert_eq!(spec(&world).await.holder_identity.as_deref(), Some("second"));
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

/// Others measure the term too, each by its own timer.
#[tokio::test(start_paused = true)]
async fn a_system_clock_that_is_set_neither_ends_a_term_nor_prolongs_it() {
    let mut world = World::new(5);
    let off_seconds = Arc::new(AtomicI64::new(0));
    let (right, off) = (world.clock.clone(), off_seconds.clone());
    let system = move || right.now() + jiff::SignedDuration::from_secs(off.load(Ordering::Relaxed));
    world.clock = SystemClock::reading(system).shared();
    let only = candidate(&world, "only");
    let epoch = only.leadership.acquired().await;
    world.pass(30).await;
    let before = world.clock.now();
    // Near enough that cluster time follows, and far more than a term.
    off_seconds.store(50, Ordering::Relaxed);
    assert_eq!(world.clock.since(before), Duration::from_secs(50));
    assert_eq!(only.leadership.epoch(), Some(epoch.clone()), "set forward");
    world.pass(30).await;
    assert_eq!(only.leadership.epoch(), Some(epoch.clone()), "and renewed");
    let before = world.clock.now();
    off_seconds.store(-3600, Ordering::Relaxed);
    only.line.set_cut(true);
    let cut = tokio::time::Instant::now();
    only.leadership.lost(&epoch).await;
    let shown = world.clock.since(before);
    assert!(shown < cut.elapsed(), "cluster time is slow: {shown:?}");
    assert!(
        cut.elapsed() <= Duration::from_secs(10),
        "set back: {:?}",
        cut.elapsed()
    );
    assert!(!only.leadership.is_leader());
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

/// Also where others have led before it: what was decided in a term is still the leader's to carry out.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_is_deleted_goes_on_in_its_term() {
    let world = World::new(7);
    let first = candidate(&world, "first");
    first.leadership.acquired().await;
    first.shutdown.request();
    assert_eq!(first.task.await.unwrap(), ElectionOutcome::Stopped);
    let second = candidate(&world, "second");
    let epoch = second.leadership.acquired().await;
    assert_eq!(epoch.transitions, 1);
    let before = spec(&world).await;
    let api: Api<Lease> = Api::namespaced(world.client(), "kube-system");
    api.delete("karpenter-leader-election", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    world.pass(20).await;
    assert_eq!(second.leadership.check(&epoch), Ok(()));
    let after = spec(&world).await;
    assert_eq!(after.lease_transitions, Some(1));
    assert_eq!(after.acquire_time, before.acquire_time);
    // With nobody to lead, counting begins anew.
    second.shutdown.request();
    assert_eq!(second.task.await.unwrap(), ElectionOutcome::Stopped);
    api.delete("karpenter-leader-election", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    let third = candidate(&world, "third");
    assert_eq!(third.leadership.acquired().await.transitions, 0);
}

/// The Lease is renewed even if other threads are busy: here the main runtime is blocked for the length of five renewals.
#[test]
fn a_lease_on_a_thread_of_its_own_outlives_a_main_runtime_that_stands_still() {
    // A deadline for a failure only: what is waited for are events.
    const NEVER: Duration = Duration::from_secs(120);
    let main = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    main.block_on(async {
        let clock = TokioClock::wall(1.0).shared();
        let (renewed, renewals) = std::sync::mpsc::channel();
        let now = clock.clone();
        let server = ApiServer::new(Config {
            observer: Some(Arc::new(move |commit: &Commit<'_>| {
                if commit.plural == "leases" {
                    renewed.send(commit.old.is_some()).unwrap();
                }
            })),
            ..Config::new(Arc::new(move || now.now()), 1)
        });
        let election = LeaderElection::new(
            kube::Client::new(server.service(), "default"),
            LeaseOptions {
                retry_period: Duration::from_millis(20),
                ..LeaseOptions::new("kube-system", "karpenter-leader-election", "apart")
            },
            clock.clone(),
            &Entropy::new(1),
            &Metrics::new(clock),
        );
        let (leadership, shutdown) = (election.leadership(), Shutdown::new());
        let connect = move || Ok(kube::Client::new(server.service(), "default"));
        let thread = election.start_apart(connect, shutdown.clone()).await.unwrap();
        leadership.acquired().await;
        assert!(!renewals.recv_timeout(NEVER).unwrap(), "the Lease is made");
        // No task of this runtime is polled during this time.
        for _ in 0..5 {
            assert!(renewals.recv_timeout(NEVER).unwrap(), "and renewed");
        }
        assert!(leadership.is_leader());
        shutdown.request();
        assert_eq!(thread.ended().await, ElectionOutcome::Stopped);
        assert!(!leadership.is_leader());
    });
}

#[tokio::test]
async fn an_election_without_a_client_says_so() {
    let world = World::new(1);
    let election = LeaderElection::new(
        world.client(),
        LeaseOptions::new("kube-system", "karpenter-leader-election", "apart"),
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
    );
    let connect = || Err("the kubeconfig is gone".to_owned());
    let error = election.start_apart(connect, Shutdown::new()).await.unwrap_err();
    assert_eq!(error, "the kubeconfig is gone");
}
