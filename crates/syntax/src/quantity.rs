//! Exact Kubernetes quantities: parsed without rounding, compared by value, printed in Go's canonical form.
//!
//! Owns the only reading and the only spelling of quantities in this workspace; judges that must not share our mistakes (audit, upstream) have their own.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantity {text:?} is not valid: {problem}; expected a number with an optional suffix, such as 500m, 2, 1.5Gi or 3e9"
)]
pub struct QuantityError {
    text: String,
    problem: &'static str,
}

/// The family of suffixes that a quantity was written with; it is kept on output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Format {
    /// `n u m (none) k M G T P E`
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`
    BinarySi,
    /// `e3`
    DecimalExponent,
}

/// An exact quantity, in nanos (10⁻⁹) of the base unit. Finer values are rounded up, as Kubernetes does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;
/// Beyond this magnitude a value is cut, far above what Kubernetes can represent (2⁶³ units).
const LIMIT_NANOS: i128 = (1_i128 << 120) - 1;
/// Quantities with a binary suffix end here, as in Kubernetes: 2⁶³ − 1 units.
const BINARY_LIMIT_NANOS: i128 = (i64::MAX as i128) * NANO;

/// Kubernetes' message about text that is not a quantity.
pub const NOT_A_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

impl Quantity {
    /// So many base units.
    #[must_use]
    pub fn from_units(units: i64) -> Self {
        Self {
            nanos: i128::from(units) * NANO,
            format: Format::DecimalSi,
        }
    }

    /// So many thousandths of the base unit.
    #[must_use]
    pub fn from_milli(milli: i64) -> Self {
        Self {
            nanos: i128::from(milli) * (NANO / 1000),
            format: Format::DecimalSi,
        }
    }

    /// Base units, rounded away from zero as Go's `Value()` does; saturating.
    #[must_use]
    pub fn to_units(self) -> i64 {
        saturate(divide_away(self.nanos, NANO))
    }

    /// Thousandths of the base unit, rounded away from zero as Go's `MilliValue()` does; saturating.
    #[must_use]
    pub fn to_milli(self) -> i64 {
        saturate(self.milli())
    }

    /// Thousandths of the base unit, rounded away from zero; all that there are.
    #[must_use]
    pub fn milli(self) -> i128 {
        divide_away(self.nanos, NANO / 1000)
    }

    /// True for zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Sum, in the format of `self` unless that is zero; saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.nanos == 0 {
            other.format
        } else {
            self.format
        };
        Self {
            nanos: clamp(self.nanos.saturating_add(other.nanos)),
            format,
        }
    }

    /// Difference, in the format of `self` unless that is zero; saturating.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self {
            nanos: -other.nanos,
            format: other.format,
        })
    }

    /// Billionths of the base unit.
    #[must_use]
    pub fn nanos(self) -> i128 {
        self.nanos
    }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value > 0 { i64::MAX } else { i64::MIN })
}

fn clamp(value: i128) -> i128 {
    value.clamp(-LIMIT_NANOS, LIMIT_NANOS)
}

/// Quotient rounded away from zero.
fn divide_away(value: i128, divisor: i128) -> i128 {
    value / divisor + (value % divisor).signum()
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let fail = |problem| QuantityError {
            text: text.to_owned(),
            problem,
        };
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let number_end = unsigned
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
            .count();
        let (number, suffix) = unsigned.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') {
            return Err(fail("it has more than one decimal point"));
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(fail("it has no digits"));
        }
        let (format, multiplier, exponent) =
            suffix_of(suffix).ok_or_else(|| fail("its suffix is unknown"))?;
        let magnitude = scaled(whole, fraction, multiplier, exponent);
        let magnitude = match format {
            Format::BinarySi => magnitude.min(BINARY_LIMIT_NANOS),
            Format::DecimalSi | Format::DecimalExponent => magnitude,
        };
        let nanos = if negative { -magnitude } else { magnitude };
        Ok(Self {
            nanos: clamp(nanos),
            format,
        })
    }
}

/// Format, binary multiplier and decimal exponent of a suffix.
fn suffix_of(suffix: &str) -> Option<(Format, i128, i32)> {
    let binary = |power: u32| Some((Format::BinarySi, 1_i128 << (10 * power), 0));
    let decimal = |exponent: i32| Some((Format::DecimalSi, 1, exponent));
    match suffix {
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let value = digits.parse::<i32>().unwrap_or(i32::MAX / 2).min(1000);
            Some((
                Format::DecimalExponent,
                1,
                if exponent.starts_with('-') { -value } else { value },
            ))
        }
    }
}

/// `whole.fraction × multiplier × 10^exponent` in nanos, rounded up, cut at the limit.
fn scaled(whole: &str, fraction: &str, multiplier: i128, exponent: i32) -> i128 {
    let mut digits: i128 = 0;
    let mut power = exponent + 9;
    let mut dropped = false;
    for (index, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let in_fraction = index >= whole.len();
        if digits >= 10_i128.pow(19) {
            dropped |= byte != b'0';
            power += i32::from(!in_fraction);
            continue;
        }
        digits = digits * 10 + i128::from(byte - b'0');
        power -= i32::from(in_fraction);
    }
    if digits == 0 && !dropped {
        return 0;
    }
    let mut value = digits.saturating_mul(multiplier).min(i128::MAX / 4);
    while power > 0 && value <= LIMIT_NANOS {
        value *= 10;
        power -= 1;
    }
    while power < 0 && value > 0 {
        dropped |= value % 10 != 0;
        value /= 10;
        power += 1;
    }
    value.saturating_add(i128::from(dropped)).min(LIMIT_NANOS)
}

impl fmt::Display for Quantity {
    /// Go's canonical form: no fraction, the largest suffix that allows that, the family as written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos % NANO == 0;
        let units = self.nanos / NANO;
        if self.format == Format::BinarySi && whole && units.abs() >= 1024 {
            let (mut value, mut power) = (units, 0_usize);
            while value % 1024 == 0 && power < 6 {
                value /= 1024;
                power += 1;
            }
            return write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut value, mut exponent) = (self.nanos, -9_i32);
        // There is no suffix beyond E; exponents have no end.
        while value % 1000 == 0 && (exponent < 18 || self.format == Format::DecimalExponent) {
            value /= 1000;
            exponent += 3;
        }
        if self.format == Format::DecimalExponent {
            return if exponent == 0 {
                write!(f, "{value}")
            } else {
                write!(f, "{value}e{exponent}")
            };
        }
        let suffix = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            0 => "",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            _ => "E",
        };
        write!(f, "{value}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prints_as_go_does() {
        // Most of these were read back from a kube-apiserver, or from its library of quantities (k8s.io/apimachinery 0.37.2).
        for (text, shown) in [
            ("8Ei", "9223372036854775807"),
            ("1024Mi", "1Gi"),
            ("100", "100"),
            ("0", "0"),
            ("0Mi", "0"),
            ("1Ki", "1Ki"),
            ("512", "512"),
            ("-1", "-1"),
            ("+2", "2"),
            ("0.0001", "100u"),
            ("0.0000000001", "1n"),
            ("1025", "1025"),
            ("2048Ki", "2Mi"),
            ("0.5Ki", "512"),
            (".5", "500m"),
            ("5.", "5"),
            ("1E", "1E"),
            ("123456789", "123456789"),
            ("8388608Ti", "9223372036854775807"),
            ("1e21", "1e21"),
            ("1e22", "10e21"),
            ("1e20", "100e18"),
            ("1.1Ki", "1126400m"),
            ("1.5Ki", "1536"),
            ("1e2", "100"),
            ("10e2", "1e3"),
            ("0.5e3", "500"),
            ("1e-3", "1e-3"),
            ("12345678901234567890", "12345678901234567890"),
            ("123456789012345678k", "123456789012345678k"),
            ("99999999999999999999Ki", "9223372036854775807"),
            ("0.0000000000000000000000001", "1n"),
            ("1.5e-12", "1e-9"),
            ("1000Ki", "1000Ki"),
            ("1025Mi", "1025Mi"),
            ("1000m", "1"),
            ("1.5Gi", "1536Mi"),
            ("1Ei", "1Ei"),
            ("12E", "12E"),
            ("7Ei", "7Ei"),
            ("10Ei", "9223372036854775807"),
            ("100E", "100E"),
            ("1.1Gi", "1181116006400m"),
            ("1e4", "10e3"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("1e3", "1e3"),
            ("100e-3", "100e-3"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("1024Ki", "1Mi"),
            ("0Gi", "0"),
            ("-1.5", "-1500m"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("3e9", "3e9"),
            ("1E3", "1e3"),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn refuses_what_kubernetes_refuses() {
        for bad in [
            "", "m", "1.2.3", "1 Gi", "1gi", "Gi", "--1", "1e", "1ee3", "0x10", "１", "1KiB", "x", "1x", "-",
            ".", "1Kb",
        ] {
            let error = bad.parse::<Quantity>().expect_err(bad).to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn rounds_up_as_value_and_milli_value_do() {
        let quantity: Quantity = "1.0001".parse().unwrap();
        assert_eq!((quantity.to_units(), quantity.to_milli()), (2, 1001));
        let negative: Quantity = "-1.5".parse().unwrap();
        assert_eq!((negative.to_units(), negative.to_milli()), (-2, -1500));
        assert_eq!("100E".parse::<Quantity>().unwrap().to_units(), i64::MAX);
    }

    /// The value of a quantity's text, in nanos, computed independently: numerator and denominator as whole numbers.
    fn oracle(whole: u32, fraction: &str, suffix: &str) -> i128 {
        let (numerator, denominator): (i128, i128) = match suffix {
            "n" => (1, NANO),
            "u" => (1, 1_000_000),
            "m" => (1, 1000),
            "" => (1, 1),
            "k" | "e3" | "E3" | "e+3" => (1000, 1),
            "M" => (1_000_000, 1),
            "G" | "e9" => (NANO, 1),
            "e-3" => (1, 1000),
            "Ki" => (1 << 10, 1),
            "Mi" => (1 << 20, 1),
            "Gi" => (1 << 30, 1),
            _ => (1 << 40, 1),
        };
        let digits: i128 = format!("{whole}{fraction}").parse().unwrap();
        let denominator = denominator * 10_i128.pow(u32::try_from(fraction.len()).unwrap());
        let product = digits * numerator * NANO;
        product / denominator + i128::from(product % denominator != 0)
    }

    proptest! {
        #[test]
        fn values_are_those_of_whole_number_arithmetic(
            negative in any::<bool>(),
            whole in any::<u32>(),
            fraction in "[0-9]{0,6}",
            suffix in prop::sample::select(vec!["n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e3", "E3", "e+3", "e-3", "e9"]),
            other in any::<i32>(),
        ) {
            let sign = if negative { "-" } else { "" };
            let point = if fraction.is_empty() { "" } else { "." };
            let quantity: Quantity = format!("{sign}{whole}{point}{fraction}{suffix}").parse().unwrap();
            let magnitude = oracle(whole, &fraction, suffix);
            let magnitude = if suffix.ends_with('i') { magnitude.min(BINARY_LIMIT_NANOS) } else { magnitude };
            let nanos = magnitude * if negative { -1 } else { 1 };
            prop_assert_eq!(quantity.nanos, nanos);
            prop_assert_eq!(quantity.cmp(&Quantity::from_units(other.into())), nanos.cmp(&(i128::from(other) * NANO)));
            let away = |unit: i128| nanos / unit + (nanos % unit).signum();
            prop_assert_eq!(i128::from(quantity.to_milli()), away(NANO / 1000).clamp(i64::MIN.into(), i64::MAX.into()));
            prop_assert_eq!(i128::from(quantity.to_units()), away(NANO).clamp(i64::MIN.into(), i64::MAX.into()));
            let shown = quantity.to_string();
            prop_assert!(!shown.contains('.'), "{}", shown);
            let digits = shown.trim_start_matches('-').bytes().take_while(u8::is_ascii_digit).count();
            let number = &shown[..digits + usize::from(shown.starts_with('-'))];
            let binary = shown.ends_with('i');
            prop_assert!(binary || nanos == 0 || !number.ends_with("000") || quantity.format == Format::BinarySi, "{} could be shorter", shown);
        }

        #[test]
        fn printing_and_reading_again_keeps_the_value(mantissa in -1_000_000_000_000_i64..1_000_000_000_000, suffix in prop::sample::select(vec!["n", "u", "m", "", "k", "M", "Ki", "Mi", "Gi", "e3", "e-3"])) {
            let quantity: Quantity = format!("{mantissa}{suffix}").parse().unwrap();
            let again: Quantity = quantity.to_string().parse().unwrap();
            prop_assert_eq!(quantity, again);
            prop_assert_eq!(quantity.to_string(), again.to_string());
        }

        #[test]
        fn order_is_that_of_the_numbers(a in -1_000_000_i64..1_000_000, b in -1_000_000_i64..1_000_000) {
            let (left, right): (Quantity, Quantity) = (format!("{a}m").parse().unwrap(), format!("{}", b).parse().unwrap());
            prop_assert_eq!(left.cmp(&right), a.cmp(&(b * 1000)));
            prop_assert_eq!(left.plus(right).minus(right), left);
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,40}") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn arbitrary_numbers_never_panic(text in "[-+]?[0-9]{0,60}(\\.[0-9]{0,60})?(Ei|E|n|[eE][-+]?[0-9]{0,12})?") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                let _ = (quantity.to_string(), quantity.to_units(), quantity.to_milli());
            }
        }
    }
}
