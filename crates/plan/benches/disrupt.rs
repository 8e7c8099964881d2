//! A full pass of disruption: all candidates, all methods, sets included, on four shapes of clusters; and a pass when nothing changed.
//! Then passes after one pod has changed, which keep answers of the pass before.
//! Run with `cargo bench -p spokeshave-plan`; numbers of nodes can be given as arguments, and `verdicts` judges every node as well. `changed` leaves out all
//! but passes after a change, and the name of a shape all other shapes; `x20` makes twenty times as many of these passes, for a profile.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs)]

use spokeshave_example::{Shape, cluster, epoch};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Change, LiveSnapshot, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{
    Frontier, Kept, Method, Outcome, Stage, decide_each_alone, disrupt, disrupt_keeping,
};
use std::time::{Duration, Instant};

/// For how long this thread has run: the cores may be shared. The clock where the kernel does not say.
fn busy() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let began = BEGAN.get_or_init(Instant::now);
    nanoseconds.map_or_else(|| began.elapsed(), Duration::from_nanos)
}

/// Passes that are timed after one pod has gone or come back.
const CHANGES: usize = 21;

/// A pass that has one before it, by a name of its own: profiles ask for it.
#[inline(never)]
fn pass_after_change(snapshot: &Snapshot, policy: &Policy, frontier: &Frontier, kept: &mut Kept) -> Outcome {
    disrupt_keeping(snapshot, policy, epoch(), frontier, kept, &mut |_| {})
}

/// Times passes that follow each other, with one pod gone or back between two: the middle one, with what it asked anew and what it kept.
fn after_one_pod_changed(shape: Shape, nodes: usize, changes: usize) {
    let mut live = LiveSnapshot::new(cluster(shape, nodes, nodes * 12, 42));
    let policy = Policy::default();
    let (mut frontier, mut kept) = (Frontier::default(), Kept::default());
    let mut gone: Option<std::sync::Arc<spokeshave_model::Pod>> = None;
    let mut rows = Vec::new();
    let mut dice = spokeshave_example::Dice(7);
    for version in 0..changes as u64 {
        let known = frontier.at(version);
        let started = busy();
        let outcome = if version == 0 {
            disrupt_keeping(live.snapshot(), &policy, epoch(), &known, &mut kept, &mut |_| {})
        } else {
            pass_after_change(live.snapshot(), &policy, &known, &mut kept)
        };
        let passed = busy().saturating_sub(started);
        let statistics = outcome.statistics;
        if version > 0 {
            rows.push((passed, statistics.what_ifs, statistics.steps, statistics.kept));
        }
        frontier = outcome.frontier;
        let change = match gone.take() {
            Some(pod) => Change::Pod(pod),
            None => {
                let pods = &live.snapshot().pods;
                let pod = pods[dice.below(pods.len())].object.clone();
                let (namespace, name) = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
                gone = Some(pod);
                Change::PodGone {
                    namespace: namespace.unwrap_or_default(),
                    name: name.unwrap_or_default(),
                    is_virtual: false,
                }
            }
        };
        live.apply([change]);
    }
    rows.sort_unstable();
    let (middle, what_ifs, steps, kept) = rows[rows.len() / 2];
    let (least, most) = (rows[0].0, rows[rows.len() - 1].0);
    println!(
        "{:<24} {nodes:>6} {:>9.1} {:>9.1} {:>9.1} {what_ifs:>9} {steps:>9} {kept:>9}",
        format!("{shape:?}"),
        middle.as_secs_f64() * 1e3,
        least.as_secs_f64() * 1e3,
        most.as_secs_f64() * 1e3,
    );
}

const SHAPES: [Shape; 4] = [
    Shape::Plain,
    Shape::HostnameAntiAffinity,
    Shape::Spread,
    Shape::Full,
];

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
    let times = arguments
        .iter()
        .find_map(|argument| argument.strip_prefix('x')?.parse().ok());
    let changes = 1 + (CHANGES - 1) * times.unwrap_or(1);
    let named = |shape: &Shape| arguments.contains(&format!("{shape:?}"));
    let shapes: Vec<Shape> = if SHAPES.iter().any(named) {
        SHAPES.into_iter().filter(named).collect()
    } else {
        SHAPES.into()
    };
    if !arguments.iter().any(|argument| argument == "changed") {
        whole_passes(&shapes, &sizes, verdicts);
    }
    println!(
        "\nafter one pod changed\n{:<24} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "shape", "nodes", "pass ms", "least", "most", "what-ifs", "steps", "kept"
    );
    for shape in shapes {
        sizes
            .iter()
            .for_each(|nodes| after_one_pod_changed(shape, *nodes, changes));
    }
}

/// Times passes that know nothing of the one before.
fn whole_passes(shapes: &[Shape], sizes: &[usize], verdicts: bool) {
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
    for shape in shapes.iter().copied() {
        for nodes in sizes {
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
