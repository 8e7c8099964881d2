//! Whether a run had settled: no drift of cost in its second half that the workload does not explain.
//!
//! Owns one regression. Neighbouring points of a curve are not independent, so the half is averaged into few blocks first; a drift has to be significant
//! and large enough to matter.

use spokeshave_simulate::Curve;

use crate::statistics::{mean, t_quantile};

/// Blocks into which the second half is averaged.
const BLOCKS: usize = 12;

/// A half that is shorter than a day shows a part of the daily course only, which looks like a drift where nodes follow pods late.
const SHORTEST_MS: u64 = 86_400_000;

/// A drift is called significant when chance makes as large a one in at most this share of settled runs.
const MISSES: f64 = 0.01;

/// A drift over the half that is a smaller share of the cost is not worth a word.
const SMALLEST: f64 = 0.01;

/// True when the cost of the second half of the counted time drifts with the workload held fixed: cost = a + b·pods + c·time, with c ≠ 0.
pub fn still_drifts(curve: &Curve, warmup_ms: u64) -> bool {
    let skipped = usize::try_from(warmup_ms.div_ceil(curve.step_ms.max(1))).unwrap_or(usize::MAX);
    let length = curve.cost_micros_per_hour.len().min(curve.pods_thousandths.len());
    let from = skipped.saturating_add(length.saturating_sub(skipped) / 2);
    let points = length.saturating_sub(from);
    if points < 2 * BLOCKS || points as u64 * curve.step_ms < SHORTEST_MS {
        return false;
    }
    let cost: Vec<f64> = blocks(
        curve.cost_micros_per_hour[from..length]
            .iter()
            .map(|value| *value as f64),
    );
    // The bound follows what pods request, which is more accurate than their number, if available.
    let bound = curve.bound_micros_per_hour.get(from..length);
    let workload = match bound.filter(|bound| bound.iter().any(|value| *value > 0)) {
        Some(bound) => blocks(bound.iter().map(|value| *value as f64)),
        None => blocks(
            curve.pods_thousandths[from..length]
                .iter()
                .map(|value| *value as f64),
        ),
    };
    drifts(&cost, &workload)
}

fn blocks(values: impl ExactSizeIterator<Item = f64>) -> Vec<f64> {
    let length = values.len();
    let all: Vec<f64> = values.collect();
    let bounds = (0..=BLOCKS)
        .map(|block| block * length / BLOCKS)
        .collect::<Vec<_>>();
    bounds
        .windows(2)
        .filter_map(|ends| mean(&all[ends[0]..ends[1]]))
        .collect()
}

/// Least squares after taking the workload out of both cost and time (Frisch, Waugh and Lovell).
fn drifts(cost: &[f64], workload: &[f64]) -> bool {
    let time: Vec<f64> = (0..cost.len()).map(|index| index as f64).collect();
    let level = mean(cost).unwrap_or_default();
    let (cost, time) = (without(cost, workload), without(&time, workload));
    let squares: f64 = time.iter().map(|value| value * value).sum();
    // An effect that is a function of the workload cannot be separated from it.
    if squares < 1e-6 * time.len() as f64 || level <= 0.0 {
        return false;
    }
    let slope = product(&time, &cost) / squares;
    let residual: f64 = cost
        .iter()
        .zip(&time)
        .map(|(cost, time)| (cost - slope * time) * (cost - slope * time))
        .sum();
    let degrees = cost.len() - 3;
    let error = (residual / degrees as f64 / squares).sqrt();
    let drift = (slope * cost.len() as f64 / level).abs();
    drift >= SMALLEST && slope.abs() > t_quantile(MISSES, degrees) * error
}

fn product(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

fn centred(values: &[f64]) -> Vec<f64> {
    let mean = mean(values).unwrap_or_default();
    values.iter().map(|value| value - mean).collect()
}

/// What a line through `by` does not explain of `values`.
fn without(values: &[f64], by: &[f64]) -> Vec<f64> {
    let (values, by) = (centred(values), centred(by));
    let squares = product(&by, &by);
    let slope = if squares > 0.0 {
        product(&values, &by) / squares
    } else {
        0.0
    };
    values
        .iter()
        .zip(&by)
        .map(|(value, by)| value - slope * by)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten days at a point every half hour: pods with a daily wave and growth, cost that follows them, drifts and jitters.
    fn curve(growth: f64, drift: f64, jitter: f64) -> Curve {
        let points: Vec<(u32, u64)> = (0..480_u32)
            .map(|index| {
                let days = f64::from(index) / 48.0;
                let wave = (days * std::f64::consts::TAU).sin();
                let pods = 1000.0 + 300.0 * wave + growth * days;
                let noise = f64::from(index.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 - 0.5;
                let cost = 20_000.0 * pods + 2e7 * drift * days + 2e7 * jitter * noise;
                (pods as u32, cost as u64)
            })
            .collect();
        Curve {
            step_ms: 1_800_000,
            cost_micros_per_hour: points.iter().map(|(_, cost)| *cost).collect(),
            pods_thousandths: points.iter().map(|(pods, _)| u64::from(*pods) * 1_000).collect(),
            ..Curve::default()
        }
    }

    #[test]
    fn cost_that_follows_a_growing_workload_has_settled_and_cost_that_drifts_has_not() {
        assert!(!still_drifts(&curve(0.0, 0.0, 0.05), 86_400_000));
        assert!(!still_drifts(&curve(50.0, 0.0, 0.05), 86_400_000));
        assert!(still_drifts(&curve(0.0, 0.02, 0.05), 86_400_000));
        assert!(still_drifts(&curve(0.0, -0.02, 0.05), 0));
        // Two thousandths over five days: measurable without noise, and not worth a word.
        assert!(!still_drifts(&curve(0.0, 0.0004, 0.0), 0));
    }

    #[test]
    fn a_short_or_empty_curve_says_nothing() {
        assert!(!still_drifts(&Curve::default(), 0));
        assert!(!still_drifts(&curve(0.0, 0.02, 0.0), 9 * 86_400_000 + 43_200_000));
        assert!(!still_drifts(&curve(0.0, 0.02, 0.0), u64::MAX));
        // Finer steps make half a day no longer.
        let mut fine = curve(0.0, 0.02, 0.0);
        fine.step_ms = 180_000;
        assert!(!still_drifts(&fine, 0));
    }

    #[test]
    fn a_drift_in_the_first_half_is_what_a_warm_up_is_for() {
        let mut falling = curve(0.0, 0.0, 0.02);
        for (index, cost) in falling.cost_micros_per_hour.iter_mut().enumerate().take(200) {
            *cost += (200 - index as u64) * 100_000;
        }
        assert!(!still_drifts(&falling, 0));
    }
}
