//! Invariant 37 for disruption: the operator dies after any of its writes, another takes over, and everything ends as if nothing had happened.

mod cluster;

use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::Cluster;
use cluster::stories::*;
use serde_json::Value;
use spokeshave_provider_kwok::KwokOptions;

/// What the operators that die have to live with.
struct Doom {
    cloud: KwokOptions,
    /// Longest life.
    limit: Duration,
    /// A scenario with fewer writes does not show what it should.
    least_writes: u64,
}

impl Doom {
    fn after(least_writes: u64) -> Self {
        Doom {
            cloud: KwokOptions::default(),
            limit: Duration::from_secs(400),
            least_writes,
        }
    }
}

/// Invariant 37, one scenario: `up` makes the cluster, `change` is what a user then does, `done` says how it ends. The operator dies after every single
/// write that follows the change, another takes over, and the end is the same, with nothing left over.
async fn killed_at_any_write(
    seed: u64,
    disruption: Value,
    up: impl AsyncFn(&Cluster),
    change: impl AsyncFn(&Cluster),
    done: impl AsyncFn(&Cluster) -> bool,
    doom: Doom,
) {
    let rests = async |cluster: &Cluster| {
        done(cluster).await && cluster.ledger().await.iter().all(|one| one.is_finished())
    };
    let mut index = 1;
    loop {
        let cluster = Cluster::new(seed, disruption.clone()).await;
        let first = cluster.operator();
        up(&cluster).await;
        cluster.wait(25).await;
        first.kill().await;
        change(&cluster).await;
        let (doomed, writes_left) = cluster.mortal_operator(index, doom.cloud.clone());
        let alive = || writes_left.load(Ordering::Relaxed) > 0;
        let (start, mut quiet) = (cluster.clock.now(), 0);
        while alive() && quiet < 5 && cluster.clock.since(start) < doom.limit {
            cluster.wait(2).await;
            quiet = if rests(&cluster).await { quiet + 1 } else { 0 };
        }
        let survived = alive();
        doomed.kill().await;
        let _again = cluster.operator();
        cluster
            .until(&format!("the same end after a death at write {index}"), &rests)
            .await;
        cluster.wait(30).await;
        assert!(
            rests(&cluster).await,
            "after write {index}: {:?}",
            cluster.ledger_text().await
        );
        cluster.assert_at_rest().await;
        cluster.shutdown.request();
        if survived {
            break;
        }
        index += 1;
    }
    assert!(index > doom.least_writes, "the scenario has only {index} writes");
}

/// Emptiness: several nodes in one command.
#[tokio::test(start_paused = true)]
async fn invariant_37_emptiness_killed_at_any_write() {
    killed_at_any_write(
        11,
        at_once(),
        async |cluster| {
            cluster.deploy("web", 3, "6").await;
            cluster.until_running(3).await;
        },
        async |cluster| cluster.scale("web", 1).await,
        async |cluster| cluster.running().await == 1 && cores(cluster).await == [8],
        Doom::after(15),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn invariant_37_a_replace_killed_at_any_write() {
    killed_at_any_write(
        12,
        at_once(),
        one_large_node,
        without_large,
        on_one_small_node,
        Doom::after(25),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn invariant_37_several_nodes_killed_at_any_write() {
    killed_at_any_write(
        13,
        at_once(),
        three_large_nodes,
        without_large,
        three_pods_on_fewer_cores,
        Doom::after(35),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn invariant_37_drift_killed_at_any_write() {
    killed_at_any_write(
        14,
        for_drift("100%"),
        two_busy_nodes,
        new_team,
        two_nodes_of_the_new_team,
        Doom::after(40),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn invariant_37_a_command_taken_back_killed_at_any_write() {
    let doom = Doom {
        cloud: never_registers(),
        limit: Duration::from_secs(800),
        least_writes: 25,
    };
    killed_at_any_write(
        19,
        at_once(),
        one_large_node,
        without_large,
        on_one_small_node,
        doom,
    )
    .await;
}
