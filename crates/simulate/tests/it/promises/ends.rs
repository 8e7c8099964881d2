//! What came of a life: the bill, the lower bound, the figures, and that nothing is left over.

use std::collections::{BTreeMap, BTreeSet};

use super::Lived;
use super::replay::State;
use super::report::{Promise, Report};
use super::worlds::HOUR;

pub fn judge(state: &State<'_>, lived: &Lived, report: &mut Report) {
    super::launches::at_the_end(state, report);
    super::places::at_the_end(state, report);
    leaks(state, lived, report);
    bill(state, lived, report);
    bound(lived, report);
    figures(state.scene.warmup_ms, lived, report);
    replicas(state, report);
}

/// Instances have NodeClaims, and NodeClaims that have an instance say so.
fn leaks(state: &State<'_>, lived: &Lived, report: &mut Report) {
    let alive: BTreeSet<&String> = state.alive().map(|(name, _)| name).collect();
    let claims: BTreeSet<&String> = lived.claims.iter().map(|(name, _)| name).collect();
    let launched = lived.claims.iter().filter(|(_, is_launched)| *is_launched);
    let launched: BTreeSet<&String> = launched.map(|(name, _)| name).collect();
    for name in &alive {
        report.judge_end(Promise::NoLeak, claims.contains(name), || {
            format!("{name} has no NodeClaim")
        });
    }
    for name in launched.difference(&alive) {
        report.judge_end(Promise::NoLeak, false, || format!("{name} has no instance"));
    }
}

/// What instances cost, by what they are: on demand and spot, each rounded down.
fn bill(state: &State<'_>, lived: &Lived, report: &mut Report) {
    let measured = &lived.run.measured;
    let (from_ms, to_ms) = (state.scene.warmup_ms, state.now_ms);
    let mut nanos_ms: BTreeMap<&str, u128> = BTreeMap::new();
    let mut node_ms: u128 = 0;
    for node in state.nodes.values() {
        let ended_ms = node.ended_ms.unwrap_or(to_ms);
        let lived_ms = u128::from(
            ended_ms
                .max(from_ms)
                .saturating_sub(node.launched_ms.max(from_ms)),
        );
        let price = u128::from(node.price_nanos.unsigned_abs());
        *nanos_ms.entry(&node.capacity_type).or_default() += price * lived_ms;
        node_ms += lived_ms;
    }
    for (capacity_type, said) in [
        ("on-demand", measured.cost_on_demand_micros),
        ("spot", measured.cost_spot_micros),
        ("reserved", measured.cost_reserved_micros),
    ] {
        let nanos_ms = nanos_ms.get(capacity_type).copied().unwrap_or(0);
        let micros = nanos_ms / u128::from(HOUR) / 1_000;
        let is_right = micros.abs_diff(u128::from(said)) <= 1;
        report.judge_end(Promise::Bill, is_right, || {
            format!("{capacity_type} instances cost {micros} micro-dollars, the run says {said}")
        });
    }
    let said = measured.node_ms;
    let why = || format!("nodes lived for {node_ms} ms, the run says {said}");
    report.judge_end(Promise::Bill, node_ms == said, why);
}

fn bound(lived: &Lived, report: &mut Report) {
    let measured = &lived.run.measured;
    let cost = measured.cost_on_demand_micros + measured.cost_spot_micros + measured.cost_reserved_micros;
    let bound = measured.bound_micros;
    report.judge_end(Promise::Bound, bound <= cost, || {
        format!("it is {bound} of {cost} micro-dollars")
    });
    let curve = &lived.run.curve;
    let points = curve
        .bound_micros_per_hour
        .iter()
        .zip(&curve.cost_micros_per_hour);
    for (minute, (bound, cost)) in points.enumerate() {
        // Costs are rounded down.
        let why = || format!("at minute {minute} it is {bound} of {cost} micro-dollars an hour");
        report.judge_end(Promise::Bound, *bound <= cost + 1, why);
    }
}

/// What happened after the warm-up, counted once more.
fn figures(warmup_ms: u64, lived: &Lived, report: &mut Report) {
    let (mut stopping, mut begun) = (BTreeSet::new(), BTreeSet::new());
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in &lived.log {
        let of = entry.of.as_str();
        let what = match entry.what.as_str() {
            "stopping" => {
                stopping.insert(of);
                continue;
            }
            "left" => {
                stopping.remove(of);
                continue;
            }
            "command" => {
                begun.insert(of);
                continue;
            }
            // A command counts when its first steps have been taken.
            "phase" if begun.remove(of) && entry.more != "RolledBack" => "commands",
            "launched" => "launches",
            "refused" => "failed launches",
            "interrupted" => "interruptions",
            "evicted" if of.starts_with("shop/") => "evictions",
            "killed" => "pods cut short",
            _ => continue,
        };
        if entry.at_ms < warmup_ms {
            continue;
        }
        *counted.entry(what).or_default() += 1;
        if entry.what == "killed" && !stopping.contains(of) {
            *counted.entry("evictions").or_default() += 1;
        }
    }
    let measured = &lived.run.measured;
    let evictions = measured.evictions_voluntary + measured.evictions_involuntary;
    for (what, said) in [
        ("launches", measured.launches),
        ("failed launches", measured.failed_launches),
        ("commands", measured.commands),
        ("evictions", evictions),
        ("pods cut short", measured.pods_cut_short),
    ] {
        let count = counted.get(what).copied().unwrap_or(0);
        let why = || format!("the log has {count} {what}, the run says {said}");
        report.judge_end(Promise::Figures, count == said, why);
    }
    // What goes already when it is announced has no line.
    let (count, said) = (
        counted.get("interruptions").copied().unwrap_or(0),
        measured.interruptions,
    );
    let why = || format!("the log has {count} interruptions, the run says {said}");
    report.judge_end(Promise::Figures, count <= said, why);
}

fn replicas(state: &State<'_>, report: &mut Report) {
    for (index, workload) in state.scene.workloads.iter().enumerate() {
        let pods = || state.pods.values().filter(|pod| pod.workload == index);
        // The successor of a member comes when it is gone.
        if workload.is_scaled() && !pods().any(|pod| pod.is_stopping) {
            let (count, wanted) = (pods().count(), state.replicas[index]);
            let why = || format!("{} has {count} pods and wants {wanted}", workload.name);
            report.judge_end(Promise::Replicas, count == wanted as usize, why);
        }
    }
}
