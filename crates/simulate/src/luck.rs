//! Draws: delays of instances and pods by (seed, path), independent of the order of calls.
//!
//! Owns the mapping from a [`Spread`] and a path to a duration. Floating point is used only here, through `libm`, so every platform draws the same.

use rand::Rng as _;
use spokeshave_ports::Entropy;
use spokeshave_scenario::Spread;

/// The quantile of the standard normal distribution below which 99 of 100 draws lie.
const Z_99: f64 = 2.326_347_874_040_841;

/// A branch of the tree of draws.
#[derive(Debug, Clone)]
pub(crate) struct Luck(Entropy);

impl Luck {
    /// The luck of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Luck(Entropy::new(seed).child("simulate"))
    }

    /// The branch of this name.
    pub(crate) fn child(&self, name: &str) -> Self {
        Luck(self.0.child(name))
    }

    /// A lognormal duration in milliseconds. No draw is longer than four times the 99th percentile: tails beyond it are not what the two given quantiles
    /// tell about.
    pub(crate) fn duration_ms(&self, path: &str, spread: Spread) -> u64 {
        if spread.p99_ms <= spread.median_ms || spread.median_ms == 0 {
            return spread.median_ms;
        }
        let median = float(spread.median_ms);
        let sigma = libm::log(float(spread.p99_ms) / median) / Z_99;
        let drawn = median * libm::exp(sigma * self.normal(path));
        (drawn as u64).min(spread.p99_ms.saturating_mul(4))
    }

    /// An exponential waiting time in milliseconds for something that happens so many times per million hours; `None` if it never does.
    pub(crate) fn waiting_ms(&self, path: &str, per_million_hours: u64) -> Option<u64> {
        if per_million_hours == 0 {
            return None;
        }
        let mean_ms = 3_600_000.0 * 1_000_000.0 / float(per_million_hours);
        let (first, _) = self.uniform(path);
        Some((-libm::log(first) * mean_ms) as u64)
    }

    /// Letters for a generated name.
    pub(crate) fn suffix(&self, path: &str, length: usize) -> String {
        self.0.suffix(path, length)
    }

    /// A number that depends on the path only.
    pub(crate) fn number(&self, path: &str) -> u64 {
        self.0.number(path)
    }

    /// A draw of the standard normal distribution (Box-Muller).
    fn normal(&self, path: &str) -> f64 {
        let (first, second) = self.uniform(path);
        libm::sqrt(-2.0 * libm::log(first)) * libm::cos(2.0 * std::f64::consts::PI * second)
    }

    /// Two draws above zero and at most one.
    fn uniform(&self, path: &str) -> (f64, f64) {
        let mut rng = self.0.rng(path);
        let mut draw = || (float(rng.next_u64() >> 11) + 1.0) / 9_007_199_254_740_992.0;
        (draw(), draw())
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "what is converted is below 2^53, or its last bits do not matter"
)]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_two_quantiles_that_were_asked_for() {
        let luck = Luck::new(3).child("pods");
        let spread = Spread {
            median_ms: 10_000,
            p99_ms: 60_000,
        };
        let mut drawn: Vec<u64> = (0..20_000)
            .map(|nth| luck.duration_ms(&format!("{nth}"), spread))
            .collect();
        drawn.sort_unstable();
        let near = |found: u64, wanted: u64| found.abs_diff(wanted) * 100 < wanted * 5;
        assert!(near(drawn[10_000], 10_000), "median {}", drawn[10_000]);
        assert!(near(drawn[19_800], 60_000), "99th percentile {}", drawn[19_800]);
    }

    #[test]
    fn a_draw_depends_on_seed_and_path_and_a_spread_without_width_is_exact() {
        let spread = Spread {
            median_ms: 1_000,
            p99_ms: 9_000,
        };
        let draw = |seed: u64, path: &str| Luck::new(seed).duration_ms(path, spread);
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
        let exact = Spread {
            median_ms: 7,
            p99_ms: 7,
        };
        assert_eq!(Luck::new(1).duration_ms("a", exact), 7);
    }

    #[test]
    fn interruptions_come_as_often_as_they_should() {
        let luck = Luck::new(5);
        let total: u64 = (0..10_000)
            .filter_map(|nth| luck.waiting_ms(&format!("{nth}"), 10_000))
            .sum();
        let mean_hours = total / 10_000 / 3_600_000;
        assert!((95..=105).contains(&mean_hours), "{mean_hours} hours on average");
        assert_eq!(luck.waiting_ms("a", 0), None);
    }
}
