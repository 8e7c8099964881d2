//! Draws that are the same on every machine: normal and lognormal values, waits, from bits that a seeded generator gave.
//!
//! Owns the mathematics only, on `libm`, because the platform's own logarithm differs in its last bit between systems. It never holds a generator: who draws
//! names the stream by seed and path.

use crate::timeline::Spread;

/// The normal value below which 99 of 100 draws are.
const NORMAL_P99: f64 = 2.326_347_874_040_841;

/// A uniform number strictly between 0 and 1, from 64 random bits.
#[must_use]
pub fn uniform(bits: u64) -> f64 {
    // 52 bits and a half: neither 0 nor 1 can come out, and each value is exact.
    ((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

/// A draw of the standard normal distribution, from 64 random bits; it grows with them.
#[must_use]
pub fn normal(bits: u64) -> f64 {
    quantile(uniform(bits))
}

/// The wait until the next of events that come by chance, `mean` apart on average.
#[must_use]
pub fn wait(mean: f64, bits: u64) -> f64 {
    -mean * libm::log(uniform(bits))
}

impl Spread {
    /// Always the same duration.
    #[must_use]
    pub const fn exactly(milliseconds: u64) -> Self {
        Self {
            median_ms: milliseconds,
            p99_ms: milliseconds,
        }
    }

    /// A draw in milliseconds, from 64 random bits; it grows with them.
    #[must_use]
    pub fn draw(self, bits: u64) -> u64 {
        if self.median_ms == 0 || self.p99_ms <= self.median_ms {
            return self.median_ms;
        }
        let sigma = libm::log(self.p99_ms as f64 / self.median_ms as f64) / NORMAL_P99;
        // The cast saturates.
        libm::round(self.median_ms as f64 * libm::exp(sigma * normal(bits))) as u64
    }
}

/// The normal value below which a share `p` of all draws is: Wichura's algorithm AS 241 (PPND16), exact to about one part in 10¹⁶.
fn quantile(p: f64) -> f64 {
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180_625 - q * q;
        return q * ratio(&CENTRE, r);
    }
    let tail = if q < 0.0 { p } else { 1.0 - p };
    let r = libm::sqrt(-libm::log(tail));
    let value = if r <= 5.0 {
        ratio(&FLANK, r - 1.6)
    } else {
        ratio(&TAIL, r - 5.0)
    };
    if q < 0.0 { -value } else { value }
}

/// Numerator and denominator, from the highest power down.
type Ratio = ([f64; 8], [f64; 8]);

fn ratio((above, below): &Ratio, r: f64) -> f64 {
    let horner = |terms: &[f64; 8]| terms.iter().fold(0.0, |sum, term| sum * r + term);
    horner(above) / horner(below)
}

const CENTRE: Ratio = (
    [
        2.509_080_928_730_122_6e3,
        3.343_057_558_358_813e4,
        6.726_577_092_700_87e4,
        4.592_195_393_154_987e4,
        1.373_169_376_550_946e4,
        1.971_590_950_306_551_3e3,
        1.331_416_678_917_843_8e2,
        3.387_132_872_796_366_5,
    ],
    [
        5.226_495_278_852_854e3,
        2.872_908_573_572_194_3e4,
        3.930_789_580_009_271e4,
        2.121_379_430_158_66e4,
        5.394_196_021_424_751e3,
        6.871_870_074_920_579e2,
        4.231_333_070_160_091e1,
        1.0,
    ],
);

const FLANK: Ratio = (
    [
        7.745_450_142_783_414e-4,
        2.272_384_498_926_918_4e-2,
        2.417_807_251_774_506e-1,
        1.270_458_252_452_368_4,
        3.647_848_324_763_204_5,
        5.769_497_221_460_691,
        4.630_337_846_156_546,
        1.423_437_110_749_683_5,
    ],
    [
        1.050_750_071_644_416_9e-9,
        5.475_938_084_995_345e-4,
        1.519_866_656_361_645_7e-2,
        1.481_039_764_274_800_8e-1,
        6.897_673_349_851e-1,
        1.676_384_830_183_803_8,
        2.053_191_626_637_759,
        1.0,
    ],
);

const TAIL: Ratio = (
    [
        2.010_334_399_292_288_1e-7,
        2.711_555_568_743_487_6e-5,
        1.242_660_947_388_078_4e-3,
        2.653_218_952_657_612_4e-2,
        2.965_605_718_285_048_7e-1,
        1.784_826_539_917_291_3,
        5.463_784_911_164_114,
        6.657_904_643_501_103,
    ],
    [
        2.044_263_103_389_939_8e-15,
        1.421_511_758_316_446e-7,
        1.846_318_317_510_054_7e-5,
        7.868_691_311_456_133e-4,
        1.487_536_129_085_061_5e-2,
        1.369_298_809_227_358e-1,
        5.998_322_065_558_879e-1,
        1.0,
    ],
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Python's `statistics.NormalDist().inv_cdf`.
    #[test]
    fn quantiles_are_those_of_the_normal_distribution() {
        for (share, expected) in [
            (0.5, 0.0),
            (0.99, 2.326_347_874_040_841),
            (0.01, -2.326_347_874_040_841),
            (0.6, 0.253_347_103_135_799_7),
            (0.975, 1.959_963_984_540_054),
            (1e-12, -7.034_483_825_301_131),
            (0.93, 1.475_791_028_179_171),
        ] {
            let found = quantile(share);
            assert!((found - expected).abs() < 1e-9, "{share}: {found}");
        }
    }

    #[test]
    fn a_spread_has_the_quantiles_that_it_was_given() {
        let spread = Spread {
            median_ms: 720_000,
            p99_ms: 7_200_000,
        };
        let count = 10_001_u64;
        let mut draws: Vec<u64> = (0..count)
            .map(|index| spread.draw((u64::MAX / count) * index + u64::MAX / count / 2))
            .collect();
        assert!(draws.is_sorted(), "a draw grows with its bits");
        draws.sort_unstable();
        let at = |share: f64| draws[(share * (count - 1) as f64) as usize] as f64;
        assert!((at(0.5) / 720_000.0 - 1.0).abs() < 0.001, "{}", at(0.5));
        assert!((at(0.99) / 7_200_000.0 - 1.0).abs() < 0.01, "{}", at(0.99));
    }

    #[test]
    fn extreme_bits_and_spreads_have_a_value() {
        let wide = Spread {
            median_ms: 1,
            p99_ms: u64::MAX,
        };
        let extremes = [0, 1 << 12, u64::MAX];
        assert!(extremes.map(|bits| wide.draw(bits)).is_sorted());
        for bits in extremes {
            assert!(normal(bits).is_finite() && wait(1.0, bits).is_finite());
            assert_eq!(Spread::exactly(5_000).draw(bits), 5_000);
        }
        assert!(uniform(0) > 0.0 && uniform(u64::MAX) < 1.0);
        assert_eq!(
            Spread {
                median_ms: 0,
                p99_ms: 9
            }
            .draw(u64::MAX),
            0
        );
    }

    #[test]
    fn draws_never_change_between_releases() {
        // A digest that was published must be found again: these values are part of the interface.
        let spread = Spread {
            median_ms: 35_000,
            p99_ms: 90_000,
        };
        let bits = [
            0x0123_4567_89ab_cdef,
            0x8000_0000_0000_0000,
            0xfedc_ba98_7654_3210,
        ];
        assert_eq!(bits.map(|bits| spread.draw(bits)), [12_100, 35_000, 101_243]);
    }
}
