//! How fast the engine lives: 15 standing pods a node, 20 births a node and day, one policy, one seed.
//! Run with `cargo bench -p spokeshave-simulate --bench month -- NODES DAYS`; without arguments, 100 nodes for a day. Days may be a fraction: `0.25` is six hours.

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and its arguments"
)]
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::json;
use spokeshave_scenario::{Budget, Change, Event, Owner, OwnerId, OwnerKind, Spread, Timeline};
use spokeshave_simulate::{Policy, World, live};

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HOUR: u64 = 3_600_000;

fn owner(kind: OwnerKind, name: String, cpu: &str, memory: &str) -> Owner {
    let template = json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
    });
    Owner {
        namespace: "shop".to_owned(),
        kind,
        template: Arc::new(serde_json::from_value::<PodTemplateSpec>(template).unwrap_or_default()),
        ready: Spread {
            median_ms: 8_000,
            p99_ms: 40_000,
        },
        budget: (kind == OwnerKind::Deployment).then(|| Budget::MaxUnavailable("10%".to_owned())),
        later: Vec::new(),
        claims: Vec::new(),
        name,
    }
}

/// Deployments that follow the hour of the day, and jobs of half an hour, evenly over the day.
fn timeline(nodes: u64, hours: u64) -> Timeline {
    let mut owners = Vec::new();
    let mut events = Vec::new();
    let deployments = 40;
    let each = nodes * 15 / deployments;
    for index in 0..deployments {
        let cpu = ["250m", "500m", "1"][index as usize % 3];
        owners.push(owner(OwnerKind::Deployment, format!("web-{index}"), cpu, "512Mi"));
        for hour in 0..hours {
            // From 75 % at night to 100 % by day.
            let by_day = [
                0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5, 4, 4, 3, 2, 1, 1, 0,
            ][hour as usize % 24];
            let replicas = each * (15 + by_day) / 20;
            events.push(Event {
                at_ms: hour * HOUR + index * 60_000,
                owner: OwnerId(index as u32),
                change: Change::Replicas(u32::try_from(replicas).unwrap_or(u32::MAX)),
            });
        }
    }
    owners.push(owner(OwnerKind::Job, "batch".to_owned(), "1", "1Gi"));
    let births = nodes * 20 * hours / 24;
    for birth in 0..births {
        events.push(Event {
            at_ms: birth * hours * HOUR / births,
            owner: OwnerId(deployments as u32),
            change: Change::Begin {
                pod: birth,
                runs_ms: Some(HOUR / 2),
            },
        });
    }
    events.sort_by_key(|event| event.at_ms);
    Timeline {
        owners,
        events,
        ..Timeline::default()
    }
}

fn main() {
    let given: Vec<f64> = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let nodes = given.first().map_or(100, |nodes| *nodes as u64);
    let days = given.get(1).copied().unwrap_or(1.0);
    let hours = (days * 24.0) as u64;
    let types = spokeshave_example::fake_instance_types(16);
    let world = World::new(spokeshave_example::epoch(), hours * HOUR, types.into());
    let timeline = timeline(nodes, hours);
    let mut pool = spokeshave_example::node_pool("default");
    let consolidate_after = serde_json::from_value(json!("1m"));
    pool.spec.disruption.consolidate_after = consolidate_after.unwrap_or_default();
    let policy = Policy::new("now", vec![Arc::new(pool)]);
    let started = Instant::now();
    let run = live(&world, &timeline, &policy, 1);
    let measured = &run.measured;
    println!(
        "{nodes} nodes, {days} days: {:.1} s; peak {} nodes, {} pods; {} born, {} launches, {} commands, {} evictions; ${:.2}",
        started.elapsed().as_secs_f64(),
        measured.peak_nodes,
        measured.peak_pods,
        measured.pending_born_ms.len(),
        measured.launches,
        measured.commands,
        measured.evictions_voluntary,
        measured.cost_on_demand_micros as f64 / 1e6,
    );
    println!("digest {}", run.digest);
}
