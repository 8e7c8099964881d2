//! Student's t on paired values: means, intervals, quantiles of a sample.
//!
//! Owns the arithmetic, in operations that IEEE 754 defines exactly (no platform's `sin` or `atan`), so a report has the same bytes on every platform. It never
//! knows what the numbers mean.

use serde::Serialize;

/// Below this many seeds a difference gets no interval: its width would be guesswork.
pub const FEWEST_SEEDS: usize = 5;

/// How often all intervals of one report together may miss, at most.
pub const MISSES: f64 = 0.05;

/// A confidence interval, ends included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The interval in another unit.
    pub fn scaled(self, factor: f64) -> Self {
        let (one, other) = (self.low * factor, self.high * factor);
        Self {
            low: one.min(other),
            high: one.max(other),
        }
    }
}

/// The arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Sample standard deviation (divisor n − 1); `None` of fewer than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The interval around the mean of independent values that misses the true mean with probability `misses`. `None` below [`FEWEST_SEEDS`] values.
pub fn interval(values: &[f64], misses: f64) -> Option<Interval> {
    if values.len() < FEWEST_SEEDS {
        return None;
    }
    let mean = mean(values)?;
    let error = standard_deviation(values)? / (values.len() as f64).sqrt();
    let half = t_quantile(misses, values.len() - 1) * error;
    Some(Interval {
        low: mean - half,
        high: mean + half,
    })
}

/// The `t` that the absolute value of a t-distributed variable exceeds with probability `misses`.
pub fn t_quantile(misses: f64, degrees_of_freedom: usize) -> f64 {
    let degrees = degrees_of_freedom.max(1);
    let wanted = 1.0 - misses.clamp(1e-9, 1.0);
    let (mut low, mut high) = (0.0, 1.0);
    while inside(high, degrees) < wanted && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..90 {
        let middle = (low + high) / 2.0;
        if inside(middle, degrees) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// P(|T| ≤ t) for a whole number of degrees of freedom: the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4.
fn inside(t: f64, degrees: usize) -> f64 {
    let n = degrees as f64;
    let root = (n + t * t).sqrt();
    let (sine, cosine) = (t / root, n.sqrt() / root);
    let odd = degrees % 2 == 1;
    let (mut term, mut sum) = (if odd { cosine } else { 1.0 }, 0.0);
    let mut power = if odd { 1 } else { 0 };
    while power + 2 <= degrees {
        sum += term;
        power += 2;
        term *= cosine * cosine * (power - 1) as f64 / power as f64;
    }
    if odd {
        2.0 / std::f64::consts::PI * (arc_tangent(t / n.sqrt()) + sine * sum)
    } else {
        sine * sum
    }
}

/// The arc tangent of a number that is not negative: halved four times, then by its series.
fn arc_tangent(x: f64) -> f64 {
    if x > 1.0 {
        return std::f64::consts::FRAC_PI_2 - arc_tangent(1.0 / x);
    }
    let mut reduced = x;
    for _ in 0..4 {
        reduced /= 1.0 + (1.0 + reduced * reduced).sqrt();
    }
    let square = reduced * reduced;
    let (mut power, mut sum) = (reduced, 0.0);
    for index in 0..12 {
        let term = power / (2 * index + 1) as f64;
        sum += if index % 2 == 0 { term } else { -term };
        power *= square;
    }
    16.0 * sum
}

/// The smallest value that at least `share` of a sorted sample do not exceed (nearest rank); `None` of nothing.
pub fn percentile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_t_are_those_of_the_printed_tables() {
        let printed = [
            (0.05, 1, 12.706),
            (0.05, 2, 4.303),
            (0.05, 4, 2.776),
            (0.05, 9, 2.262),
            (0.05, 29, 2.045),
            (0.01, 3, 5.841),
            (0.01, 9, 3.250),
            (0.01, 30, 2.750),
            (0.001, 10, 4.587),
            (0.1, 5, 2.015),
            (0.05, 1000, 1.962),
        ];
        for (misses, degrees, expected) in printed {
            let found = t_quantile(misses, degrees);
            assert!(
                (found - expected).abs() < 6e-4,
                "{misses} {degrees}: {found}, the tables say {expected}"
            );
        }
    }

    #[test]
    fn the_arc_tangent_is_right_to_fifteen_digits() {
        for step in 0..4000 {
            let x = f64::from(step) * 0.01;
            assert!((arc_tangent(x) - x.atan()).abs() < 2e-15, "{x}");
        }
    }

    #[test]
    fn an_interval_needs_five_values_and_is_a_point_where_nothing_varies() {
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0], 0.05), None);
        assert_eq!(interval(&[3.0; 5], 0.05), Some(Interval { low: 3.0, high: 3.0 }));
        // 2.776 × 1.5811 / √5 = 1.9633.
        let found = interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.05).unwrap();
        assert!((found.low - 1.0367).abs() < 1e-3 && (found.high - 4.9633).abs() < 1e-3);
        assert_eq!(found.scaled(-2.0).high, found.low * -2.0);
    }

    #[test]
    fn percentiles_go_by_the_nearest_rank() {
        let values: Vec<u32> = (1..=100).collect();
        assert_eq!(percentile(&values, 0.5), Some(50));
        assert_eq!(percentile(&values, 0.99), Some(99));
        assert_eq!(percentile(&values, 1.0), Some(100));
        assert_eq!(percentile(&[7], 0.5), Some(7));
        assert_eq!(percentile::<u32>(&[], 0.5), None);
    }
}
