//! A full pass of disruption: all candidates, all methods, sets included, on four shapes of clusters; and a pass when nothing changed.
//! Run with `cargo bench -p spokeshave-plan`; numbers of nodes can be given as arguments, and `verdicts` judges every node as well.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs)]

use spokeshave_example::{Shape, cluster, epoch};
use spokeshave_model::lower;
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{Frontier, Method, Stage, decide_each_alone, disrupt};
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given: Vec<usize> = arguments
        .iter()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let sizes = if given.is_empty() {
        vec![100, 1000, 5000]
    } else {
        given
    };
    let verdicts = arguments.iter().any(|argument| argument == "verdicts");
    println!(
        "{:<24} {:>6} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "shape",
        "nodes",
        "pods",
        "lower ms",
        "pass ms",
        "begin ms",
        "alone ms",
        "idle us",
        "judged",
        "what-ifs",
        "steps"
    );
    for shape in [
        Shape::Plain,
        Shape::HostnameAntiAffinity,
        Shape::Spread,
        Shape::Full,
    ] {
        for nodes in &sizes {
            let started = Instant::now();
            let snapshot = lower(&cluster(shape, *nodes, nodes * 12, 42));
            let lowered = started.elapsed();
            let mut policy = Policy::default();
            policy.disrupt.verdicts = verdicts;
            let started = Instant::now();
            let outcome = disrupt(&snapshot, &policy, epoch(), &Frontier::default().at(1));
            let passed = started.elapsed();
            // Of which: what all candidates share, and each candidate alone.
            let started = Instant::now();
            let mut begun = started.elapsed();
            decide_each_alone(&snapshot, &policy, epoch(), |stage| {
                if stage == Stage::Begun {
                    begun = started.elapsed();
                }
            });
            let alone = started.elapsed() - begun;
            // What a pass does once everything is known to be fruitless.
            policy.disrupt.verdicts = false;
            policy.disrupt.methods = [Method::Emptiness].into();
            let mut frontier = Frontier::default().at(1);
            for _ in 0..8 {
                frontier = disrupt(&snapshot, &policy, epoch(), &frontier).frontier;
            }
            let started = Instant::now();
            let idle = disrupt(&snapshot, &policy, epoch(), &frontier);
            let idled = started.elapsed();
            let judged: usize = outcome
                .reports
                .iter()
                .find(|report| report.method == Method::MultiNodeConsolidation)
                .map_or(0, |report| report.evaluated);
            println!(
                "{:<24} {nodes:>6} {:>7} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {judged:>9} {:>9} {:>9}{}",
                format!("{shape:?}"),
                snapshot.pods.len(),
                lowered.as_secs_f64() * 1e3,
                passed.as_secs_f64() * 1e3,
                begun.as_secs_f64() * 1e3,
                alone.as_secs_f64() * 1e3,
                idled.as_secs_f64() * 1e6,
                outcome.statistics.what_ifs,
                outcome.statistics.steps,
                if idle.statistics.idle { "" } else { " (not idle)" }
            );
        }
    }
}
