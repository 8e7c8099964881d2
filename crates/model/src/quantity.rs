//! Kubernetes quantities as scaled 64-bit integers: parsing rounds up to the base unit, formatting is canonical.
//!
//! This module owns the conversion between quantity text and integers at the edge of the model. It keeps no
//! unit of its own: the caller says how many decimal places the base unit has (3 for CPU in milli, 0 for the rest).

/// Why a quantity text was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantity {text:?} is not a Kubernetes quantity: {problem}; write for example 500m, 2, 1.5Gi or 3e9")]
pub struct QuantityError {
    /// The text as given.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// Parses a quantity into units of `10^-decimals`, rounding away from zero as Kubernetes does for sub-units.
/// Values beyond 64 bits saturate (as they do upstream), because a capped capacity is safer than a refused node.
pub fn parse_scaled(text: &str, decimals: u32) -> Result<i64, QuantityError> {
    let fail = |problem| QuantityError {
        text: text.to_owned(),
        problem,
    };
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let number_len = unsigned
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
        .count();
    let (number, suffix) = unsigned.split_at(number_len);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err(fail("more than one decimal point"));
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(fail("no digits"));
    }
    // value = digits * 10^-fraction.len() * 10^exponent * 2^shift
    let (exponent, shift) = suffix_scale(suffix).ok_or_else(|| fail("unknown suffix"))?;
    let mut digits: u128 = 0;
    let mut exponent = i64::from(exponent) + i64::from(decimals);
    let mut inexact = false;
    for (index, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let in_fraction = index >= whole.len();
        if digits >= 10u128.pow(27) {
            // Beyond every representable result: remember magnitude, and that something non-zero was dropped.
            inexact |= byte != b'0';
            if !in_fraction {
                exponent += 1;
            }
            continue;
        }
        digits = digits * 10 + u128::from(byte - b'0');
        if in_fraction {
            exponent -= 1;
        }
    }
    let scaled = scale(digits, exponent, shift, inexact);
    Ok(if negative { scaled.saturating_neg() } else { scaled })
}

fn suffix_scale(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (
                exponent.parse::<i32>().ok().filter(|value| value.abs() <= 1000)?,
                0,
            )
        }
    })
}

fn scale(digits: u128, exponent: i64, shift: u32, inexact: bool) -> i64 {
    if digits == 0 {
        return 0;
    }
    let limit = i64::MAX as u128;
    if exponent >= 0 {
        let mut value = digits;
        for _ in 0..exponent.min(40) {
            value = value.saturating_mul(10);
        }
        let value = value.saturating_add(u128::from(inexact));
        return if shift > 0 && value > limit >> shift {
            i64::MAX
        } else {
            i64::try_from(value << shift).unwrap_or(i64::MAX)
        };
    }
    // digits < 10^28 < 2^94, so shifting by up to 30 keeps the product exact; larger shifts divide first by 2-power of ten parts.
    let mut value = digits;
    let mut rest = inexact;
    let mut remaining_shift = shift;
    let mut tens = exponent.unsigned_abs();
    while tens > 0 || remaining_shift > 0 {
        if remaining_shift > 0 && value < 1 << 100 {
            let step = remaining_shift.min(20);
            value <<= step;
            remaining_shift -= step;
        } else if tens > 0 {
            rest |= !value.is_multiple_of(10);
            value /= 10;
            tens -= 1;
            if value == 0 && remaining_shift == 0 {
                break;
            }
        } else {
            return i64::MAX;
        }
    }
    i64::try_from(value.saturating_add(u128::from(rest))).unwrap_or(i64::MAX)
}

/// Formats milli-units in decimal notation: `1500` is `1500m`, `2000` is `2`.
pub fn format_milli(milli: i64) -> String {
    if milli % 1000 == 0 {
        (milli / 1000).to_string()
    } else {
        format!("{milli}m")
    }
}

/// Formats bytes with the largest binary suffix that divides them exactly: `268435456` is `256Mi`.
pub fn format_binary(bytes: i64) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut value = bytes;
    let mut index = 0;
    while value != 0 && value % 1024 == 0 && index + 1 < SUFFIXES.len() {
        value /= 1024;
        index += 1;
    }
    let mut text = value.to_string();
    text.push_str(SUFFIXES[index]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_to_their_base_unit_rounding_up() {
        for (text, decimals, expected) in [
            ("1", 3, 1000),
            ("100m", 3, 100),
            ("1500m", 0, 2),
            ("0.1", 3, 100),
            ("1.5Gi", 0, 1_610_612_736),
            ("0.5Ki", 0, 512),
            ("1e3", 0, 1000),
            ("1E3", 0, 1000),
            ("1E", 0, 1_000_000_000_000_000_000),
            ("12e-1", 0, 2),
            ("100n", 3, 1),
            ("-2Mi", 0, -2_097_152),
            ("+3", 0, 3),
            (".5", 3, 500),
            ("5.", 0, 5),
            ("9999999999999999999999999", 0, i64::MAX),
            ("8Ei", 0, i64::MAX),
            ("10000000Gi", 0, 10_000_000 << 30),
            ("0", 0, 0),
            ("0.000000000001", 0, 1),
        ] {
            assert_eq!(parse_scaled(text, decimals), Ok(expected), "{text}");
        }
        for text in ["", "x", "1.2.3", "1Kb", "--1", "1e", "1e99999", "Gi"] {
            assert!(parse_scaled(text, 0).is_err(), "{text}");
        }
    }

    #[test]
    fn formatting_is_canonical() {
        assert_eq!(format_milli(1500), "1500m");
        assert_eq!(format_milli(2000), "2");
        assert_eq!(format_binary(256 << 20), "256Mi");
        assert_eq!(format_binary(0), "0");
        assert_eq!(format_binary(1000), "1000");
    }
}
