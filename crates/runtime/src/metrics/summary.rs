//! Quantiles over a sliding window.
//!
//! Owns the window: a ring of slices of time, each with a logarithmic sketch of what was observed in it. Memory is bounded by
//! the spread of the values (a few hundred entries), never by their number. The smallest and largest value are exact, values
//! between them within one per cent. It is deterministic, unlike a reservoir.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

/// Slices per window; Go's client has as many.
const SLICES: u32 = 5;
/// Largest relative error of a value between the extremes.
const ERROR: f64 = 0.01;
/// Values up to this count as zero.
const SMALLEST: f64 = 1e-9;

#[derive(Clone, Debug)]
pub(super) struct Window {
    slice: Duration,
    slices: VecDeque<(Timestamp, Sketch)>,
    count: u64,
    sum: f64,
}

#[derive(Clone, Debug, Default)]
struct Sketch {
    /// Number of observations by order of magnitude.
    counts: BTreeMap<i32, u64>,
    extremes: Option<(f64, f64)>,
}

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        Self {
            slice: length / SLICES,
            slices: VecDeque::new(),
            count: 0,
            sum: 0.0,
        }
    }

    pub(super) fn observe(&mut self, now: Timestamp, observation: f64) {
        self.count += 1;
        self.sum += observation;
        self.expire(now);
        let current = self
            .slices
            .back()
            .is_some_and(|(start, _)| age(now, *start) < self.slice);
        if !current {
            self.slices.push_back((now, Sketch::default()));
        }
        if let Some((_, sketch)) = self.slices.back_mut() {
            sketch.observe(observation);
        }
    }

    /// The values at `quantiles`; NaN when the window is empty.
    pub(super) fn quantiles(&self, now: Timestamp, quantiles: &[f64]) -> Vec<f64> {
        let mut all = Sketch::default();
        for (start, sketch) in &self.slices {
            if age(now, *start) < self.slice * SLICES {
                all.merge(sketch);
            }
        }
        quantiles.iter().map(|quantile| all.quantile(*quantile)).collect()
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn sum(&self) -> f64 {
        self.sum
    }

    fn expire(&mut self, now: Timestamp) {
        while self
            .slices
            .front()
            .is_some_and(|(start, _)| age(now, *start) >= self.slice * SLICES)
        {
            self.slices.pop_front();
        }
    }
}

fn age(now: Timestamp, start: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(start)).unwrap_or(Duration::ZERO)
}

impl Sketch {
    fn observe(&mut self, value: f64) {
        *self.counts.entry(bucket(value)).or_insert(0) += 1;
        let (low, high) = self.extremes.unwrap_or((value, value));
        self.extremes = Some((low.min(value), high.max(value)));
    }

    fn merge(&mut self, other: &Sketch) {
        for (bucket, count) in &other.counts {
            *self.counts.entry(*bucket).or_insert(0) += count;
        }
        if let Some((low, high)) = other.extremes {
            let (own_low, own_high) = self.extremes.unwrap_or((low, high));
            self.extremes = Some((own_low.min(low), own_high.max(high)));
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank among fewer than 2^52 observations"
    )]
    fn quantile(&self, quantile: f64) -> f64 {
        let Some((low, high)) = self.extremes else {
            return f64::NAN;
        };
        let total: u64 = self.counts.values().sum();
        let rank = (quantile * total as f64).ceil() as u64;
        if rank <= 1 {
            return if quantile <= 0.0 || total == 1 {
                low
            } else {
                self.value_at(1).clamp(low, high)
            };
        }
        if rank >= total {
            return high;
        }
        self.value_at(rank).clamp(low, high)
    }

    /// The value of the observation with this rank, counted from 1.
    fn value_at(&self, rank: u64) -> f64 {
        let mut seen = 0;
        for (bucket, count) in &self.counts {
            seen += count;
            if seen >= rank {
                return middle(*bucket);
            }
        }
        f64::NAN
    }
}

fn gamma_ln() -> f64 {
    ((1.0 + ERROR) / (1.0 - ERROR)).ln()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the logarithm of a finite f64 is small"
)]
fn bucket(value: f64) -> i32 {
    if value > SMALLEST {
        (value.ln() / gamma_ln()).ceil() as i32
    } else {
        i32::MIN
    }
}

fn middle(bucket: i32) -> f64 {
    if bucket == i32::MIN {
        return 0.0;
    }
    let upper = (f64::from(bucket) * gamma_ln()).exp();
    upper * (1.0 - ERROR)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every quantile is within one per cent of the observation of that rank.
        #[test]
        fn quantiles_are_close(mut values in proptest::collection::vec(0.001_f64..1e6, 1..300), quantile in 0.0_f64..=1.0) {
            let mut window = Window::new(Duration::from_secs(600));
            for value in &values {
                window.observe(Timestamp::UNIX_EPOCH, *value);
            }
            values.sort_by(f64::total_cmp);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a small rank")]
            let rank = ((quantile * values.len() as f64).ceil() as usize).max(1) - 1;
            let got = window.quantiles(Timestamp::UNIX_EPOCH, &[quantile])[0];
            prop_assert!((got - values[rank]).abs() <= values[rank] * 0.0101, "{got} is not {}", values[rank]);
        }
    }

    #[test]
    fn slices_leave_one_by_one() {
        let mut window = Window::new(Duration::from_secs(500));
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        window.observe(at(0), 1.0);
        window.observe(at(200), 2.0);
        assert!((window.quantiles(at(499), &[0.0])[0] - 1.0).abs() < f64::EPSILON);
        assert!((window.quantiles(at(500), &[0.0])[0] - 2.0).abs() < f64::EPSILON);
        assert!(window.quantiles(at(700), &[0.0])[0].is_nan());
        assert_eq!(window.count(), 2);
    }
}
