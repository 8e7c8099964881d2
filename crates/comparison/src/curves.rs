//! The course of a policy over time and the distribution of its waiting times, averaged over seeds and thinned to what a chart can show.
//!
//! Owns averaging only; what is drawn of it is the report's business.

use serde::Serialize;
use spokeshave_simulate::{Curve, Run};

use crate::metric::waits;

/// Points of a curve at most.
const POINTS: usize = 240;

/// Mean over the completed runs. A point is the mean of its stretch of time, so that points times their lengths are the integral.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeanCurve {
    /// Milliseconds per point; the first begins at the scenario's start, warm-up included.
    pub step_ms: u64,
    /// Milliseconds of the last point, which ends with the scenario and may be shorter.
    pub last_ms: u64,
    /// Dollars per hour.
    pub cost_per_hour: Vec<f64>,
    /// Lower bound, in dollars per hour.
    pub bound_per_hour: Vec<f64>,
    /// Nodes.
    pub nodes: Vec<f64>,
    /// Workload pods.
    pub pods: Vec<f64>,
    /// Pods that wait for a node.
    pub pending: Vec<f64>,
}

impl MeanCurve {
    pub(crate) fn of(runs: &[&Run]) -> Self {
        let curves: Vec<&Curve> = runs.iter().map(|run| &run.curve).collect();
        let Some(longest) = curves.iter().max_by_key(|curve| curve.cost_micros_per_hour.len()) else {
            return Self::default();
        };
        let length = longest.cost_micros_per_hour.len();
        let stretch = length.div_ceil(POINTS).max(1);
        let last: u64 = longest
            .lengths()
            .skip(length.saturating_sub(1) / stretch * stretch)
            .sum();
        let dollars = |of: fn(&Curve) -> &Vec<u64>| average(&curves, of, 1e6, stretch);
        let count = |of: fn(&Curve) -> &Vec<u64>| average(&curves, of, 1e3, stretch);
        Self {
            step_ms: longest.step_ms * stretch as u64,
            last_ms: last,
            cost_per_hour: dollars(|curve| &curve.cost_micros_per_hour),
            bound_per_hour: dollars(|curve| &curve.bound_micros_per_hour),
            nodes: count(|curve| &curve.nodes_thousandths),
            pods: count(|curve| &curve.pods_thousandths),
            pending: count(|curve| &curve.pending_thousandths),
        }
    }

    /// Begin and length of each point, in milliseconds since the scenario's start.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = (u64, u64)> {
        let points = self.cost_per_hour.len();
        (0..points).map(move |point| {
            let is_last = point + 1 == points;
            let length = if is_last { self.last_ms } else { self.step_ms };
            (point as u64 * self.step_ms, length)
        })
    }

    /// Milliseconds from the scenario's start to the end of the last point.
    pub(crate) fn length_ms(&self) -> u64 {
        self.stretches()
            .last()
            .map_or(0, |(begin, length)| begin + length)
    }
}

/// The mean of all runs in each stretch of so many points, in units of so many; values keep four digits after the point, which is a hundredth of a cent.
fn average(curves: &[&Curve], of: fn(&Curve) -> &Vec<u64>, unit: f64, stretch: usize) -> Vec<f64> {
    let mut sums: Vec<(f64, u32)> = Vec::new();
    for curve in curves {
        let means = thinned(curve, of(curve), stretch);
        if sums.len() < means.len() {
            sums.resize(means.len(), (0.0, 0));
        }
        for ((sum, seen), mean) in sums.iter_mut().zip(means) {
            *sum += mean / unit;
            *seen += 1;
        }
    }
    let means = sums.into_iter();
    means
        .map(|(sum, seen)| (sum / f64::from(seen.max(1)) * 1e4).round() / 1e4)
        .collect()
}

/// The means over so many points of a curve each.
fn thinned(curve: &Curve, points: &[u64], stretch: usize) -> Vec<f64> {
    let lengths: Vec<u64> = curve.lengths().collect();
    let parts = points.chunks(stretch).zip(lengths.chunks(stretch));
    parts
        .map(|(points, lengths)| {
            let pairs = points.iter().zip(lengths);
            let integral: f64 = pairs.map(|(point, length)| *point as f64 * *length as f64).sum();
            let length: u64 = lengths.iter().sum();
            integral / length.max(1) as f64
        })
        .collect()
}

/// The distribution of waiting times: which share of all pods had been bound after so many seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Seconds, ascending.
    pub seconds: Vec<f64>,
    /// Mean over seeds of the share of pods that waited no longer. Pods that still waited at the end, or left before they had a node, never
    /// count as bound.
    pub share: Vec<f64>,
    /// The smallest share of a seed.
    pub lowest: Vec<f64>,
    /// The largest share of a seed.
    pub highest: Vec<f64>,
}

impl Waiting {
    pub(crate) fn of(runs: &[&Run]) -> Self {
        let samples: Vec<(Vec<u32>, usize)> = runs
            .iter()
            .map(|run| {
                let mut ended = run.measured.pending_born_ms.clone();
                ended.extend(&run.measured.pending_moved_ms);
                // Two sorted runs, which the stable sort merges.
                ended.sort();
                (ended, waits(&run.measured).len())
            })
            .filter(|(_, all)| *all > 0)
            .collect();
        if samples.is_empty() {
            return Self::default();
        }
        let mut waiting = Self::default();
        for milliseconds in steps() {
            let shares: Vec<f64> = samples
                .iter()
                .map(|(ended, all)| {
                    let within = ended.partition_point(|wait| u64::from(*wait) <= milliseconds);
                    within as f64 / *all as f64
                })
                .collect();
            let round = |share: f64| (share * 1e5).round() / 1e5;
            waiting.seconds.push(milliseconds as f64 / 1000.0);
            waiting
                .share
                .push(round(shares.iter().sum::<f64>() / shares.len() as f64));
            waiting
                .lowest
                .push(round(shares.iter().copied().fold(1.0, f64::min)));
            waiting
                .highest
                .push(round(shares.iter().copied().fold(0.0, f64::max)));
            let longest = samples
                .iter()
                .filter_map(|(ended, _)| ended.last())
                .max()
                .copied()
                .unwrap_or_default();
            if milliseconds >= u64::from(longest) {
                break;
            }
        }
        waiting
    }
}

/// 100 ms to eleven days, in steps of roughly a ninth: what an axis of powers of ten can show.
fn steps() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(100_u64), |step| Some(step + (step / 9).max(1)))
        .take_while(|step| *step < 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_simulate::{Engine, Measured, WorkDone};

    fn run(cost: Vec<u64>, measured: Measured) -> Run {
        Run {
            policy: "now".into(),
            seed: 1,
            engine: Engine::Fast,
            measured,
            curve: Curve {
                step_ms: 60_000,
                last_ms: 60_000,
                cost_micros_per_hour: cost,
                ..Curve::default()
            },
            digest: String::new(),
            work: WorkDone::default(),
            partial: false,
        }
    }

    #[test]
    fn a_curve_is_thinned_by_means_that_keep_its_integral() {
        let cost: Vec<u64> = (0..1000).map(|index| index * 1_000_000).collect();
        let other: Vec<u64> = (0..1000).map(|index| index * 3_000_000).collect();
        let runs = [run(cost, Measured::default()), run(other, Measured::default())];
        let curve = MeanCurve::of(&runs.iter().collect::<Vec<_>>());
        assert_eq!(curve.step_ms, 5 * 60_000);
        assert_eq!(curve.cost_per_hour.len(), 200);
        assert_eq!(curve.cost_per_hour[0], 4.0);
        assert_eq!(curve.cost_per_hour.iter().sum::<f64>() * 5.0, 2.0 * 499_500.0);
        assert_eq!((curve.last_ms, curve.length_ms()), (5 * 60_000, 60_000_000));
    }

    #[test]
    fn a_shorter_point_at_the_end_counts_for_as_long_as_it_lasts() {
        // Three minutes for each point, of which the last has one and a quarter.
        let mut cost = vec![3_000_000; 482];
        cost[481] = 8_000_000;
        let mut run = run(cost, Measured::default());
        run.curve.last_ms = 15_000;
        let curve = MeanCurve::of(&[&run]);
        assert_eq!((curve.step_ms, curve.cost_per_hour.len()), (180_000, 161));
        assert_eq!(curve.last_ms, 75_000);
        assert_eq!(curve.cost_per_hour[160], 4.0);
        let points = curve.cost_per_hour.iter().zip(curve.stretches());
        let whole: f64 = points.map(|(dollars, (_, length))| dollars * length as f64).sum();
        assert_eq!(whole, 481.0 * 60_000.0 * 3.0 + 15_000.0 * 8.0);
    }

    #[test]
    fn pods_that_never_got_a_node_keep_the_share_below_one() {
        let measured = Measured {
            pending_born_ms: vec![1_000, 1_000],
            pending_moved_ms: vec![30_000],
            pending_left_ms: vec![3_600_000],
            pending_at_end_ms: vec![500],
            ..Measured::default()
        };
        let waiting = Waiting::of(&[&run(Vec::new(), measured)]);
        let at = |seconds: f64| {
            let index = waiting
                .seconds
                .iter()
                .position(|value| *value >= seconds)
                .unwrap();
            waiting.share[index]
        };
        assert_eq!(at(0.1), 0.0);
        assert_eq!(at(1.0), 0.4);
        assert_eq!(waiting.share.last(), Some(&0.6));
        assert!(*waiting.seconds.last().unwrap() >= 30.0);
        assert_eq!(Waiting::of(&[]), Waiting::default());
    }
}
