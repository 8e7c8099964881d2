//! Invariant 37 for disruption: the operator dies after any of its writes, another takes over, and everything ends as if nothing had happened.
//!
//! Each write is a run of a whole cluster. `just deaths` runs them all; here every seventh is run, starting with a different one in each
//! scenario, so that each kind of write is among them. CI derives the first from the commit (`DEATHS_FROM`), so a few commits cover every write.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;
use kube::ResourceExt;
use serde_json::{Value, json};
use spokeshave_api::{DisruptionPolicy, NodePool};
use spokeshave_controllers::{FeatureGates, Options};
use spokeshave_provider_kwok::KwokOptions;

/// What the operators that die have to live with.
struct Doom {
    cloud: KwokOptions,
    /// Settings of all operators.
    options: Options,
    /// Longest life.
    limit: Duration,
    /// A scenario with fewer writes does not show what it should.
    least_writes: u64,
}

impl Doom {
    fn after(least_writes: u64) -> Self {
        Doom {
            cloud: KwokOptions::default(),
            options: Options::default(),
            limit: Duration::from_secs(400),
            least_writes,
        }
    }
}

/// Number of writes between two kills, unless all are requested.
pub const STRIDE: u64 = 7;

fn stride() -> u64 {
    let all = std::env::var_os("EVERY_WRITE").is_some();
    if all { 1 } else { STRIDE }
}

/// By how many writes the first kill is moved: none, unless `DEATHS_FROM` is set.
pub fn moved_by() -> u64 {
    let text = std::env::var_os("DEATHS_FROM").unwrap_or_else(|| "0".into());
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("DEATHS_FROM is {text:?}, expected a number"))
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
    let stride = stride();
    let mut index = 1 + (seed + moved_by()) % stride;
    let mut deaths = 0;
    loop {
        let survived = life(seed, &disruption, (&up, &change, &rests), index, &doom).await;
        if survived {
            break;
        }
        deaths += 1;
        index += stride;
    }
    assert!(index > doom.least_writes, "the scenario has only {index} writes");
    println!("{deaths} deaths, writes up to {index}");
}

/// One life: true when the operator did not come to the write that it was to die at.
async fn life(
    seed: u64,
    disruption: &Value,
    (up, change, rests): (
        &impl AsyncFn(&Cluster),
        &impl AsyncFn(&Cluster),
        &impl AsyncFn(&Cluster) -> bool,
    ),
    index: u64,
    doom: &Doom,
) -> bool {
    let cluster = Cluster::new(seed, disruption.clone()).await;
    let first = cluster.operator_set(doom.options.clone());
    up(&cluster).await;
    cluster.pass(25).await;
    first.kill().await;
    change(&cluster).await;
    let (doomed, writes_left) = cluster.mortal_operator(index, doom.cloud.clone(), doom.options.clone());
    let alive = || writes_left.load(Ordering::Relaxed) > 0;
    let (start, mut quiet) = (cluster.clock.now(), 0);
    while alive() && quiet < 5 && cluster.clock.since(start) < doom.limit {
        cluster.pass(2).await;
        quiet = if rests(&cluster).await { quiet + 1 } else { 0 };
    }
    let survived = alive();
    doomed.kill().await;
    let _again = cluster.operator_set(doom.options.clone());
    cluster
        .until(&format!("the same end after a death at write {index}"), rests)
        .await;
    cluster.pass(20).await;
    assert!(
        rests(&cluster).await,
        "after write {index}: {:?}",
        cluster.ledger_text().await
    );
    cluster.assert_at_rest().await;
    cluster.shutdown.request();
    survived
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
        options: Options::default(),
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

/// A pod that fits on the other node: a node is removed without replacement.
#[tokio::test(start_paused = true)]
async fn invariant_37_a_delete_that_moves_pods_killed_at_any_write() {
    killed_at_any_write(
        23,
        json!({"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}),
        async |cluster| two_nodes_and_web(cluster, ["one", "two"]).await,
        async |cluster| {
            let [beside, _] = beside_web_and_apart(cluster, ["one", "two"]).await;
            cluster.scale(beside, 0).await;
        },
        async |cluster| cluster.running().await == 2 && cores(cluster).await == [8],
        Doom::after(10),
    )
    .await;
}

/// Static drift: one for one.
#[tokio::test(start_paused = true)]
async fn invariant_37_static_drift_killed_at_any_write() {
    let doom = Doom {
        options: Options {
            feature_gates: FeatureGates {
                static_capacity: true,
                ..FeatureGates::default()
            },
            ..Options::default()
        },
        ..Doom::after(20)
    };
    killed_at_any_write(
        24,
        at_once(),
        async |cluster| {
            cluster
                .create::<NodePool>(json!({"metadata": {"name": "fixed"}, "spec": {
                    "replicas": 1,
                    "template": {"spec": {
                        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                        "requirements": [
                            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["3"]},
                        ],
                    }},
                    "disruption": {"budgets": [{"nodes": "100%"}]},
                }}))
                .await;
            cluster
                .until("the node is there", async |cluster| is_ready(cluster, None).await)
                .await;
        },
        async |cluster| {
            let labels = json!({"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}});
            cluster.patch::<NodePool>("fixed", labels).await;
        },
        async |cluster| is_ready(cluster, Some("blue")).await,
        doom,
    )
    .await;
}

/// One node, initialised, of a team or of none.
async fn is_ready(cluster: &Cluster, team: Option<&str>) -> bool {
    let nodes = cluster.list::<k8s_openapi::api::core::v1::Node>().await;
    nodes.len() == 1
        && nodes[0].labels().contains_key("karpenter.sh/initialized")
        && nodes[0].labels().get("team").map(String::as_str) == team
}

async fn under(cluster: &Cluster, spec: Value) {
    let object = json!({"metadata": {"name": "calm"}, "spec": spec});
    let _: DisruptionPolicy = cluster.create(object).await;
}

/// Waves, and one zone at a time: their progress is stored in the cluster, so no successor starts over or twice.
#[tokio::test(start_paused = true)]
async fn invariant_37_drift_in_waves_killed_at_any_write() {
    let doom = Doom {
        limit: Duration::from_secs(900),
        ..Doom::after(40)
    };
    killed_at_any_write(
        25,
        for_drift("100%"),
        async |cluster| {
            let budgets = json!([{"scope": "Zone", "oneAtATime": true}, {"perHour": 10}]);
            under(
                cluster,
                json!({"rollout": {"canary": 1, "soak": "20s"}, "budgets": budgets}),
            )
            .await;
            two_busy_nodes(cluster).await;
        },
        new_team,
        two_nodes_of_the_new_team,
        doom,
    )
    .await;
}

/// A hold, and moves that are judged over time: a successor knows what has to rest.
#[tokio::test(start_paused = true)]
async fn invariant_37_a_replace_under_hold_and_convergence_killed_at_any_write() {
    let doom = Doom {
        limit: Duration::from_secs(900),
        ..Doom::after(25)
    };
    killed_at_any_write(
        26,
        at_once(),
        async |cluster| {
            under(
                cluster,
                json!({"hold": {"duration": "1m"}, "convergence": {"rest": "1m"}}),
            )
            .await;
            one_large_node(cluster).await;
        },
        without_large,
        on_one_small_node,
        doom,
    )
    .await;
}
