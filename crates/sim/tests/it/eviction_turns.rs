//! Pods of nodes that disruption removes are evicted by size, across nodes (W-63): large ones find the room that was planned for them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{KWOKInstance, NodeClaim, NodePool};
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

    /// How often a controller has looked at something.
    fn looks_of(&self, controller: &str) -> f64 {
        let label = format!("controller=\"{controller}\"");
        let metrics = self.lab.metrics("a").expect("it runs");
        sum_of(metrics, "controller_runtime_reconcile_total", &label)
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

/// Pods that come and go on a node bring looks at it; whoever waits keeps waiting, and is not looked at with it.
#[tokio::test(start_paused = true)]
async fn w_63_what_else_happens_on_a_node_hurries_nobody() {
    let cluster = Cluster::of_two_sizes(106, json!({})).await;
    cluster.drift().await;
    cluster
        .until("a large pod is evicted", async |cluster| {
            !cluster.evictions("large").is_empty()
        })
        .await;
    let looks = || {
        (
            cluster.looks_of("node.termination"),
            cluster.looks_of("eviction-queue"),
        )
    };
    let before = looks();
    for step in 0..4 {
        for pod in cluster.list::<Pod>().await {
            // Of annotations the operator keeps only those that it reads.
            let labels = json!({"metadata": {"labels": {"step": step.to_string()}}});
            cluster.patch::<Pod>(&pod.name_any(), labels).await;
        }
        cluster.clock.sleep(Duration::from_millis(20)).await;
    }
    let (of_nodes, of_pods) = looks();
    let (of_nodes, of_pods) = (of_nodes - before.0, of_pods - before.1);
    assert!(of_nodes >= 4.0, "one at each step: {of_nodes}");
    assert!(of_pods <= 6.0, "not three at each step: {of_pods}");
    cluster.until_evicted().await;
    let (large, small) = (cluster.evictions("large"), cluster.evictions("small"));
    assert!(first(&small) - last(&large) >= 1.0, "{large:?} {small:?}");
    assert_eq!((large.len(), small.len()), (LARGE, SMALL), "each once");
}

#[tokio::test(start_paused = true)]
async fn w_63_an_interrupted_node_waits_for_nobody() {
    the_smallest_pods_go_at_once(108, "spot_interrupted").await;
}

/// Nothing on the NodeClaim tells of such a message.
#[tokio::test(start_paused = true)]
async fn w_63_a_node_that_is_interrupted_without_a_deadline_waits_for_nobody() {
    the_smallest_pods_go_at_once(109, "instance_stopped").await;
}

/// The cloud takes the machine of the smallest pods back while these wait for all others.
async fn the_smallest_pods_go_at_once(seed: u64, message: &str) {
    let cluster = Cluster::of_two_sizes(seed, json!({})).await;
    cluster.deploy("tiny", 4, "800m").await;
    cluster.until_running(LARGE + SMALL + 4).await;
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 4);
    let node = cluster.node_of("tiny").await;
    cluster.drift().await;
    cluster
        .until("a large pod is evicted", async |cluster| {
            !cluster.evictions("large").is_empty()
        })
        .await;
    assert!(cluster.evictions("tiny").is_empty(), "they wait");
    cluster
        .annotate::<KWOKInstance>(&node, "kwok.spokeshave.dev/message", message)
        .await;
    cluster
        .until("the pods of its node are evicted", async |cluster| {
            cluster.evictions("tiny").len() >= 4
        })
        .await;
    cluster.until_evicted().await;
    let [large, small, tiny] = ["large", "small", "tiny"].map(|app| cluster.evictions(app));
    let gap = last(&tiny) - last(&large);
    assert!(gap < 1.5, "two seconds otherwise: {large:?} {small:?} {tiny:?}");
    assert!(first(&small) - last(&large) >= 1.0, "{large:?} {small:?}");
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
    // The log has thousandths.
    assert!(
        last(&large) - first(&large) >= 1.999,
        "a second, and what a busy server asks for: {large:?}"
    );
    assert!(first(&small) - last(&large) >= 0.999, "{large:?} {small:?}");
    cluster.until_running(LARGE + SMALL).await;
    let told = cluster.events("FailedDraining").await;
    let blamed = told.iter().any(|message| message.contains("PDB"));
    assert!(!blamed, "no pod has a budget: {told:?}");
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
