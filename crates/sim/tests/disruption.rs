//! Voluntary disruption through the whole stack on virtual time: what a user does, what the ledger says, and what is left; also when the operator dies
//! at any write.

mod cluster;

use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::Cluster;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};
use spokeshave_api::NodeClaim;
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_provider_kwok::KwokOptions;

/// D App. G.1, scenario 1: the pod leaves at t, consolidateAfter is 30 s, validation takes 15 s.
#[tokio::test(start_paused = true)]
async fn g_1_1_an_empty_node_goes_after_its_window_and_the_second_look() {
    let cluster = Cluster::new(
        1,
        json!({"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}),
    )
    .await;
    let _operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
    cluster.wait(60).await;
    cluster.scale("web", 0).await;
    cluster
        .until("no pod is left", async |cluster| cluster.running().await == 0)
        .await;
    let left = cluster.clock.now();
    cluster
        .until("the node is told to go", async |cluster| {
            cluster
                .list::<NodeClaim>()
                .await
                .iter()
                .all(NodeClaim::is_deleting)
        })
        .await;
    let took = cluster.clock.since(left).as_secs();
    assert!((40..=62).contains(&took), "deleted {took} s after its pod");
    cluster.until_empty().await;
    cluster.wait(10).await;
    let ledger = cluster.ledger().await;
    assert_eq!(ledger.len(), 1, "{:?}", cluster.ledger_text().await);
    let spec = &ledger[0].spec;
    assert_eq!(
        (
            spec.reason.as_str(),
            spec.decision.as_str(),
            spec.replacements.len(),
            spec.evictions
        ),
        ("Empty", "Delete", 0, 0)
    );
    assert_eq!(ledger[0].phase(), DisruptionPhase::Succeeded);
    assert_eq!(spec.price_after, "0");
    assert_eq!(spec.savings, spec.price_before);
    assert_eq!((spec.budgets[0].allowed, spec.budgets[0].charged), (1, 1));
    assert!(
        cluster
            .events("DisruptionTerminating")
            .await
            .contains(&"Disrupting Node: Empty".to_owned())
    );
    cluster.assert_at_rest().await;
}

/// Scenario 2: a pod comes back during the wait; nothing is touched.
#[tokio::test(start_paused = true)]
async fn g_1_2_a_pod_that_comes_back_keeps_the_node() {
    let cluster = Cluster::new(
        2,
        json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}),
    )
    .await;
    let operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
    cluster.scale("web", 0).await;
    cluster
        .until("no pod is left", async |cluster| cluster.running().await == 0)
        .await;
    cluster.wait(8).await;
    cluster.scale("web", 1).await;
    cluster.until_running(1).await;
    cluster.wait(60).await;
    assert!(
        cluster.ledger().await.is_empty(),
        "{:?}",
        cluster.ledger_text().await
    );
    assert_eq!(cluster.list::<Node>().await.len(), 1);
    let text = operator.metrics.render();
    assert!(
        text.lines().any(|line| line.starts_with(
            "karpenter_voluntary_disruption_failed_validations_total{consolidation_type=\"empty\"} 1"
        )),
        "D-094: {}",
        text.lines()
            .filter(|line| line.contains("failed_validations"))
            .collect::<String>()
    );
}

/// Invariant 37, one scenario: `up` makes the cluster, `change` is what a user then does, `done` says how it ends. The operator dies after every single
/// write that follows the change, another takes over, and the end is the same, with nothing left over.
async fn killed_at_any_write(
    seed: u64,
    disruption: Value,
    up: impl AsyncFn(&Cluster),
    change: impl AsyncFn(&Cluster),
    done: impl AsyncFn(&Cluster) -> bool,
    least_writes: u64,
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
        let (doomed, writes_left) = cluster.mortal_operator(index, KwokOptions::default());
        let alive = || writes_left.load(Ordering::Relaxed) > 0;
        let (start, mut quiet) = (cluster.clock.now(), 0);
        while alive() && quiet < 5 && cluster.clock.since(start) < Duration::from_secs(400) {
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
    assert!(index > least_writes, "the scenario has only {index} writes");
}

fn at_once() -> Value {
    json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]})
}

/// Cores of each node, sorted.
async fn cores(cluster: &Cluster) -> Vec<i64> {
    let mut cores: Vec<i64> = cluster
        .list::<Node>()
        .await
        .iter()
        .map(|node| {
            let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
            capacity.map_or(0, |all| all["cpu"].0.parse().unwrap_or(0))
        })
        .collect();
    cores.sort_unstable();
    cores
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
        15,
    )
    .await;
}

/// The ledger is short: what has ended is kept for a day.
#[tokio::test(start_paused = true)]
async fn the_ledger_forgets_after_a_day() {
    let cluster = Cluster::new(
        3,
        json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}),
    )
    .await;
    let operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
    cluster.scale("web", 0).await;
    cluster.until_empty().await;
    cluster.wait(5).await;
    let names = cluster.names::<spokeshave_api::disruption::Disruption>().await;
    assert!(
        names.len() == 1 && names[0].starts_with("20260101-0"),
        "{names:?}"
    );
    // The one who forgets need not be the one who wrote.
    operator.kill().await;
    let _again = cluster.operator();
    cluster.wait(23 * 3600).await;
    assert_eq!(cluster.ledger().await.len(), 1);
    cluster.wait(3700).await;
    assert!(cluster.ledger().await.is_empty());
    assert!(
        cluster
            .list::<Node>()
            .await
            .iter()
            .all(|node| node.name_any().is_empty())
    );
}
