//! Pods of nodes that disruption removes are evicted by size, across nodes (W-63): large ones find the room that was planned for them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::EvictionRate;
use spokeshave_sim::lab::{LabOptions, Rates};

use crate::plain::Cluster;
use crate::words::*;

/// Pods that fill a node each, and smaller ones that fill another together.
const LARGE: usize = 2;
const SMALL: usize = 3;

/// Nodes have four processors, and go only because they drift, all at once.
fn drifting(change: Value) -> Value {
    let mut pool = json!({
        "disruption": {"consolidateAfter": "Never"},
        "template": {"spec": {"requirements": [
            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]},
        ]}},
    });
    json_patch::merge(&mut pool, &change);
    pool
}

impl Cluster {
    /// Three nodes, of which each has pods of one size.
    async fn of_two_sizes(seed: u64, change: Value) -> Self {
        Self::of_two_sizes_with(LabOptions::new(seed), change).await
    }

    async fn of_two_sizes_with(mut options: LabOptions, change: Value) -> Self {
        options.operator.nominate_pods = true;
        let cluster = Self::new(options, drifting(change)).await.with_operator();
        cluster.deploy("large", LARGE.try_into().unwrap(), "3500m").await;
        cluster.deploy("small", SMALL.try_into().unwrap(), "1100m").await;
        cluster.until_running(LARGE + SMALL).await;
        assert_eq!(cluster.list::<NodeClaim>().await.len(), 3);
        cluster
    }

    async fn drift(&self) {
        let template = json!({"spec": {"template": {"metadata": {"labels": {"generation": "second"}}}}});
        self.patch::<NodePool>("default", template).await;
    }

    /// When evictions of an app's pods were asked for, in seconds since the start, and what the answer was.
    fn evictions(&self, app: &str) -> Vec<(f64, u16)> {
        let text = String::from_utf8_lossy(&self.lab.log.bytes()).into_owned();
        let of_app = |line: &&str| line.contains(&format!("/pods/{app}-")) && line.contains("/eviction");
        let when = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let status = words.iter().rev().find_map(|word| word.parse().ok())?;
            Some((words.first()?.parse().ok()?, status))
        };
        text.lines().filter(of_app).filter_map(when).collect()
    }

    async fn until_evicted(&self) {
        self.until("all pods are evicted", async |cluster| {
            let accepted = |app| {
                cluster
                    .evictions(app)
                    .iter()
                    .filter(|(_, status)| *status < 300)
                    .count()
            };
            accepted("large") >= LARGE && accepted("small") >= SMALL
        })
        .await;
    }
}

fn first(evictions: &[(f64, u16)]) -> f64 {
    evictions.iter().map(|(at, _)| *at).fold(f64::MAX, f64::min)
}

fn last(evictions: &[(f64, u16)]) -> f64 {
    evictions.iter().map(|(at, _)| *at).fold(0.0, f64::max)
}

#[tokio::test(start_paused = true)]
async fn w_63_large_pods_of_all_nodes_go_before_small_ones() {
    let cluster = Cluster::of_two_sizes(101, json!({})).await;
    cluster.drift().await;
    cluster.until_evicted().await;
    let (large, small) = (cluster.evictions("large"), cluster.evictions("small"));
    let gap = first(&small) - last(&large);
    assert!((1.0..1.5).contains(&gap), "{large:?} {small:?}");
    cluster.until_running(LARGE + SMALL).await;
    cluster.assert_kept();
}

#[tokio::test(start_paused = true)]
async fn w_63_nobody_waits_where_no_plan_has_found_places() {
    let cluster = Cluster::of_two_sizes(102, json!({})).await;
    let begin = cluster.lab.clock.now();
    for claim in cluster.names::<NodeClaim>().await {
        cluster.delete::<NodeClaim>(&claim).await;
    }
    cluster.until_evicted().await;
    let took = cluster.lab.clock.since(begin);
    assert!(took <= Duration::from_millis(500), "at the first look: {took:?}");
}

/// A second from the answer on, not from the request: here the second large pod waits for its turn under the bound on evictions.
#[tokio::test(start_paused = true)]
async fn w_63_the_second_begins_when_the_last_large_pod_was_accepted() {
    let mut options = LabOptions::new(105);
    options.operator.eviction_rate = Some(EvictionRate {
        per_second: 2.0,
        burst: 1,
    });
    let cluster = Cluster::of_two_sizes_with(options, json!({})).await;
    cluster.drift().await;
    cluster.until_evicted().await;
    let (large, small) = (cluster.evictions("large"), cluster.evictions("small"));
    assert!((0.5..0.6).contains(&(last(&large) - first(&large))), "{large:?}");
    assert!(first(&small) - last(&large) >= 1.0, "{large:?} {small:?}");
}

/// Pods that come and go on a node bring looks at it; whoever waits keeps waiting.
#[tokio::test(start_paused = true)]
async fn w_63_what_else_happens_on_a_node_hurries_nobody() {
    let cluster = Cluster::of_two_sizes(106, json!({})).await;
    cluster.drift().await;
    cluster
        .until("a large pod is evicted", async |cluster| {
            !cluster.evictions("large").is_empty()
        })
        .await;
    for step in 0..4 {
        for pod in cluster.list::<Pod>().await {
            cluster
                .annotate::<Pod>(&pod.name_any(), "example.com/step", step.to_string())
                .await;
        }
    }
    cluster.until_evicted().await;
    let (large, small) = (cluster.evictions("large"), cluster.evictions("small"));
    assert!(first(&small) - last(&large) >= 1.0, "{large:?} {small:?}");
    assert_eq!((large.len(), small.len()), (LARGE, SMALL), "each once");
}

/// The drain begins although a budget that came late refuses the large pods, because there is a terminationGracePeriod.
#[tokio::test(start_paused = true)]
async fn w_63_nobody_waits_for_a_pod_that_is_refused() {
    let patient = json!({"template": {"spec": {"terminationGracePeriod": "1h"}}});
    let cluster = Cluster::of_two_sizes(103, patient).await;
    cluster.drift().await;
    cluster
        .until("all commands are there", async |cluster| {
            cluster.list::<Disruption>().await.len() == 3
        })
        .await;
    cluster.budget("large", json!({"maxUnavailable": 0})).await;
    cluster
        .until("the small pods are evicted", async |cluster| {
            cluster.evictions("small").len() >= SMALL
        })
        .await;
    let (large, small) = (cluster.evictions("large"), cluster.evictions("small"));
    assert!(large.iter().all(|(_, status)| *status == 429), "{large:?}");
    let gap = first(&small) - first(&large);
    assert!((0.0..1.0).contains(&gap), "{large:?} {small:?}");
}

/// A server that is busy refuses everybody: a large pod is still to go, and the small ones wait for it, though never longer than the longest wait.
#[tokio::test(start_paused = true)]
async fn w_63_a_busy_server_is_no_refusal() {
    let mut options = LabOptions::new(107);
    options.operator.eviction_rate = Some(EvictionRate {
        per_second: 1.0,
        burst: 1,
    });
    let mut cluster = Cluster::of_two_sizes_with(options, json!({})).await;
    let weather = cluster.lab.weather("a");
    cluster.drift().await;
    cluster
        .until("the first large pod is evicted", async |cluster| {
            !cluster.evictions("large").is_empty()
        })
        .await;
    // The turn of the second comes a second later.
    weather.set(Rates {
        too_many: 1.0,
        ..Rates::default()
    });
    cluster
        .until(
            "the eviction of a large pod finds the server busy",
            async |cluster| {
                let text = String::from_utf8_lossy(&cluster.lab.log.bytes()).into_owned();
                let busy = |line: &str| line.contains("TooMany") && line.contains("/pods/large-");
                text.lines().any(busy)
            },
        )
        .await;
    weather.set(Rates::default());
    cluster.until_evicted().await;
    let (large, small) = (cluster.evictions("large"), cluster.evictions("small"));
    assert!(
        last(&large) - first(&large) >= 2.0,
        "a second, and what a busy server asks for: {large:?}"
    );
    assert!(first(&small) - last(&large) >= 1.0, "{large:?} {small:?}");
    cluster.until_running(LARGE + SMALL).await;
    cluster.assert_kept();
}

#[tokio::test(start_paused = true)]
async fn w_63_the_drain_goes_on_after_a_restart() {
    let mut cluster = Cluster::of_two_sizes(104, json!({})).await;
    cluster.drift().await;
    cluster
        .until("the first large pod is evicted", async |cluster| {
            !cluster.evictions("large").is_empty()
        })
        .await;
    assert!(cluster.evictions("small").is_empty(), "they wait");
    cluster.lab.kill("a").await;
    cluster.lab.start("b");
    cluster.until_evicted().await;
    cluster.until_running(LARGE + SMALL).await;
    cluster.pass(120).await;
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 3);
    cluster.assert_kept();
}
