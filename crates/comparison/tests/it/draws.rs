//! Runs drawn from seeds: a month of workload whose size is the seed's, and a policy's own luck on top.

use spokeshave_comparison::{Policy, Setting};
use spokeshave_simulate::{Curve, Engine, Measured, Run, WorkDone};

/// SplitMix64: every draw is a function of its seed.
pub struct Draws(u64);

impl Draws {
    pub fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Uniform in [0, 1).
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Roughly normal, by the sum of twelve uniform draws.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}

/// In what a drawn policy differs.
#[derive(Clone, Copy)]
pub struct Planted {
    /// Factor on the cost.
    pub cost: f64,
    /// Relative noise of the cost that is not the seed's.
    pub noise: f64,
    /// Evictions in the month.
    pub evictions: f64,
}

pub const LEVEL: Planted = Planted {
    cost: 1.0,
    noise: 0.008,
    evictions: 9_000.0,
};

/// One run. The month belongs to `seed`, the rest to (`seed`, `luck`).
pub fn run(policy: &str, seed: u64, luck: u64, planted: Planted) -> Run {
    let mut month = Draws::of(seed);
    let mut own = Draws::of(seed.wrapping_mul(1_000_003) + luck);
    let size = 1.0 + 0.03 * month.normal();
    let bound = 19_500e6 * size;
    let cost = bound * 1.12 * planted.cost * (1.0 + planted.noise * own.normal());
    let evictions = planted.evictions * (1.0 + 0.05 * own.normal());
    let mut born: Vec<u32> = (0..400)
        .map(|_| 4_000 + (own.share().powi(6) * 90_000.0) as u32)
        .collect();
    born.sort_unstable();
    Run {
        policy: policy.to_owned(),
        seed,
        engine: Engine::Fast,
        measured: Measured {
            span_ms: 29 * 86_400_000,
            cost_on_demand_micros: (cost * 0.7) as u64,
            cost_spot_micros: (cost * 0.3) as u64,
            bound_micros: bound as u64,
            evictions_voluntary: evictions as u64,
            pod_ms: 29 * 86_400_000 * 15_000,
            owners: 60,
            pending_born_ms: born,
            wasted_node_ms_thousandths: (9_800.0 * size * 3_600_000.0 * 1000.0) as u128,
            commands: (evictions / 9.0) as u64,
            moved_again: (evictions * 0.012) as u64,
            ..Measured::default()
        },
        curve: Curve::default(),
        digest: format!("{policy}-{seed}"),
        work: WorkDone::default(),
        partial: false,
    }
}

/// The same with a course over the month: a daily wave, and jitter of the cost.
pub fn with_curve(run: Run) -> Run {
    let mut own = Draws::of(run.seed ^ 77);
    let measured = &run.measured;
    let cost = (measured.cost_on_demand_micros + measured.cost_spot_micros) as f64;
    let steps = 30 * 24;
    let wave = |level: f64| {
        (0..steps)
            .map(move |hour| level * (1.0 + 0.3 * (f64::from(hour) / 24.0 * std::f64::consts::TAU).sin()))
    };
    let curve = Curve {
        step_ms: 3_600_000,
        last_ms: 3_600_000,
        cost_micros_per_hour: wave(cost / 720.0)
            .map(|value| (value * (1.0 + 0.02 * own.normal())) as u64)
            .collect(),
        bound_micros_per_hour: wave(measured.bound_micros as f64 / 720.0)
            .map(|value| value as u64)
            .collect(),
        nodes_thousandths: wave(210_000.0).map(|value| value as u64).collect(),
        pods_thousandths: wave(15_000_000.0).map(|value| value as u64).collect(),
        pending_thousandths: vec![3_000; 720],
    };
    Run { curve, ..run }
}

/// A scenario with these policies; the first is the baseline.
pub fn setting(policies: &[&str]) -> Setting {
    Setting {
        scenario: "shop-month".into(),
        scenario_sha256: "ab".repeat(32),
        start: "2026-03-02T00:00:00Z".into(),
        duration_ms: 30 * 86_400_000,
        warmup_ms: 86_400_000,
        version: "0.1.0".into(),
        policies: policies
            .iter()
            .map(|name| Policy {
                name: (*name).to_owned(),
                model: name.ends_with("-model").then(|| "karpenter-1.14".to_owned()),
                summary: None,
            })
            .collect(),
        baseline: policies[0].to_owned(),
        ..Setting::default()
    }
}
