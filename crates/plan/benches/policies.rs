//! What ten DisruptionPolicies cost in a pass of disruption over 5,000 nodes, as a share of the same pass without: the fastest of many,
//! one with and one without in turn, so that whatever else the machine does disturbs neither more than the other.
//! Run with `cargo bench -p spokeshave-plan --bench policies`; numbers of nodes can be given as arguments.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs)]

use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_example::{Shape, cluster, epoch};
use spokeshave_model::ClusterState;
use spokeshave_model::lower;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{Frontier, disrupt};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAIRS: usize = 40;

/// Every part that a policy may have, and none of them in the way of a pass: it has to decide the same.
fn policies() -> Vec<Arc<DisruptionPolicy>> {
    let always = json!([{"from": "00:00", "to": "24:00"}]);
    let specs: [Value; 10] = [
        json!({"hold": {"duration": "20m", "maximum": "2h"}}),
        json!({"hold": {"duration": "20m", "scope": "NodePool", "triggers": ["Launch", "ScaleDown", "FailedLaunch"]}}),
        json!({"freeze": {"reason": "elsewhere"}, "nodePools": {"names": ["elsewhere"]}}),
        json!({"budgets": [{"limit": "100%", "windows": always}], "timeZone": "Europe/Kyiv"}),
        json!({"budgets": [{"limit": "100%", "scope": "Zone"}]}),
        json!({"budgets": [{"limit": "100%", "scope": "NodePool", "unit": "CPU"}]}),
        json!({"budgets": [{"limit": "100%", "unit": "Pods"}, {"perHour": 100_000}]}),
        json!({"rollout": {"canary": 10_000, "soak": "10m", "order": ["Zone", "Age", "Importance"]}}),
        json!({"circuitBreakers": {"notReady": {"percent": 100, "scope": "Zone"}, "failedLaunches": {"count": 200, "within": "15m"}}}),
        json!({"convergence": {"restartCost": "0", "rest": "1s"}}),
    ];
    let policy = |(index, spec): (usize, Value)| {
        let spec = serde_json::from_value(spec).expect("a spec");
        Arc::new(DisruptionPolicy::new(&format!("p{index}"), spec))
    };
    specs.into_iter().enumerate().map(policy).collect()
}

fn pass(snapshot: &Snapshot) -> (Duration, usize) {
    let policy = Policy::default();
    let later = epoch() + jiff::SignedDuration::from_hours(24);
    let started = Instant::now();
    let outcome = disrupt(snapshot, &policy, later, &Frontier::default().at(1));
    let commands: usize = outcome.commands.iter().map(|command| command.nodes.len()).sum();
    (started.elapsed(), commands)
}

fn main() {
    let arguments = std::env::args().skip(1);
    let given: Vec<usize> = arguments.filter_map(|argument| argument.parse().ok()).collect();
    let sizes = if given.is_empty() { vec![5000] } else { given };
    println!(
        "{:<24} {:>6} {:>11} {:>11} {:>8}",
        "shape", "nodes", "without ms", "with ten ms", "more"
    );
    for shape in [
        Shape::Plain,
        Shape::HostnameAntiAffinity,
        Shape::Spread,
        Shape::Full,
    ] {
        for nodes in &sizes {
            let state: ClusterState = cluster(shape, *nodes, nodes * 12, 42);
            let without = lower(&state);
            let with = lower(&ClusterState {
                disruption_policies: policies(),
                ..state
            });
            let (mut plain, mut ruled) = (Duration::MAX, Duration::MAX);
            for _ in 0..PAIRS {
                let ((one, first), (other, second)) = (pass(&without), pass(&with));
                assert_eq!(first, second, "policies that are not in the way change nothing");
                (plain, ruled) = (plain.min(one), ruled.min(other));
            }
            println!(
                "{:<24} {nodes:>6} {:>11.1} {:>11.1} {:>7.1}%",
                format!("{shape:?}"),
                plain.as_secs_f64() * 1e3,
                ruled.as_secs_f64() * 1e3,
                (ruled.as_secs_f64() / plain.as_secs_f64() - 1.0) * 100.0
            );
        }
    }
}
