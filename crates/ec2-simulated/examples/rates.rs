//! What the shipped provider asks of EC2 for a thousand NodeClaims, and what an unchanged list of instance types costs:
//! `cargo run --release -p spokeshave-ec2-simulated --example rates`.
//!
//! The simulated EC2 limits calls as EC2 publishes it (A14.3): a call that it refuses would fail the run.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::json;
use spokeshave_api::labels;
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::CloudProvider as _;

#[path = "../tests/it/world.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod world;

use world::{CLUSTER, World, claim, pool};

const POOLS: usize = 20;
const CLAIMS: usize = 1_000;
const ROUNDS: u32 = 1_000;
const TYPES: [&str; 6] = [
    "m5.large",
    "m6i.large",
    "m7i.large",
    "c6i.large",
    "r6i.large",
    "m7g.large",
];

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the time that passes"
)]
fn now() -> Instant {
    Instant::now()
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let world = World::new(Options::new(CLUSTER)).await;
    for number in 0..POOLS {
        world.class(&format!("class-{number}"), json!({})).await;
    }
    let provider = world.provider();
    world.pass(300).await;
    let pools: Vec<_> = (0..POOLS)
        .map(|number| {
            let mut one = pool();
            one.spec.template.spec.node_class_ref.name = format!("class-{number}");
            one
        })
        .collect();
    let mut types = 0;
    for one in &pools {
        types = provider.instance_types(one).await.expect("types are known").len();
    }
    let start = now();
    for _ in 0..ROUNDS {
        for one in &pools {
            provider.instance_types(one).await.expect("types are known");
        }
    }
    let unchanged = start.elapsed() / ROUNDS;
    println!(
        "{types} instance types for {POOLS} NodePools, nothing changed: {:.3} ms",
        unchanged.as_secs_f64() * 1e3
    );

    let before = world.cloud.calls();
    let wanted: [(&str, &[&str]); 2] = [
        (labels::INSTANCE_TYPE, &TYPES),
        (labels::CAPACITY_TYPE, &["spot", "on-demand"]),
    ];
    let claims: Vec<_> = (0..CLAIMS)
        .map(|number| claim(&format!("claim-{number}"), &wanted))
        .collect();
    let start = now();
    let launched = futures::future::join_all(claims.iter().map(|claim| provider.create(claim))).await;
    let work = start.elapsed();
    let launched: Vec<_> = launched
        .into_iter()
        .map(|one| one.expect("EC2 refuses no call"))
        .collect();
    println!(
        "{} NodeClaims launched with {:.2} s of work: {}",
        launched.len(),
        work.as_secs_f64(),
        calls(&before, &world.cloud.calls())
    );
    world.pass(120).await;
    let before = world.cloud.calls();
    let ended = futures::future::join_all(launched.iter().map(|claim| provider.delete(claim))).await;
    assert!(ended.iter().all(Result::is_ok), "EC2 refuses no call");
    println!("and terminated: {}", calls(&before, &world.cloud.calls()));
}

/// Calls that launches and ends make, and how many.
fn calls(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> String {
    const OF_CLAIMS: [&str; 5] = [
        "CreateFleet",
        "CreateLaunchTemplate",
        "DescribeLaunchTemplates",
        "DescribeInstances",
        "TerminateInstances",
    ];
    let made = OF_CLAIMS.map(|call| {
        let of = |calls: &BTreeMap<String, u64>| calls.get(call).copied().unwrap_or_default();
        (call, of(after) - of(before))
    });
    let texts = made.iter().filter(|(_, count)| *count > 0);
    let texts: Vec<String> = texts.map(|(call, count)| format!("{count} {call}")).collect();
    texts.join(", ")
}
