//! Quantities in the one spelling that a server stores: `0.5` is `500m`, `1024Mi` is `1Gi`.

/// Kubernetes' message about text that is not a quantity.
pub(crate) const NOT_A_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// A quantity as an exact number of billionths.
#[derive(Clone, Copy)]
struct Quantity {
    nanos: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;
/// Largest magnitude that Kubernetes keeps: 2⁶³−1 units.
const LARGEST: i128 = i64::MAX as i128 * NANO;
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn parse(text: &str) -> Option<Quantity> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned
        .bytes()
        .position(|byte| !byte.is_ascii_digit() && byte != b'.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (format, multiplier, exponent) = scale(suffix)?;
    // Beyond eighteen decimals nothing changes a billionth, but it still rounds up.
    let kept = &fraction[..fraction.len().min(18)];
    let lost = fraction[kept.len()..].bytes().any(|byte| byte != b'0');
    let digits = format!("{whole}{kept}");
    let digits = digits.trim_start_matches('0');
    let mantissa: i128 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok().unwrap_or(i128::MAX)
    };
    let power = exponent - i32::try_from(kept.len()).ok()? + 9;
    let product = mantissa.saturating_mul(multiplier);
    let nanos = if power >= 0 {
        10_i128
            .checked_pow(power.unsigned_abs())
            .map_or(if product == 0 { 0 } else { i128::MAX }, |factor| {
                product.saturating_mul(factor)
            })
    } else {
        10_i128
            .checked_pow(power.unsigned_abs())
            .map_or(i128::from(product > 0), |factor| {
                product / factor + i128::from(product % factor != 0 || lost)
            })
    };
    // Few decimal digits are kept whatever their magnitude; everything else has a limit.
    let significant = whole.trim_start_matches('0').len() + fraction.len();
    let short = format != Format::BinarySi && significant <= 18 && nanos < i128::MAX / 10;
    let nanos = if short { nanos } else { nanos.min(LARGEST) };
    Some(Quantity {
        nanos: if negative { -nanos } else { nanos },
        format,
    })
}

/// `(format, multiplier, power of ten)` of a suffix.
fn scale(suffix: &str) -> Option<(Format, i128, i32)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((Format::DecimalSi, 1, *power));
    }
    if let Some(index) = BINARY.iter().position(|known| *known == suffix) {
        return Some((Format::BinarySi, 1 << (10 * (index + 1)), 0));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (exponent.abs() <= 100).then_some((Format::DecimalExponent, 1, exponent))
}

/// The stored spelling of a quantity; `None` when the text is no quantity.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let Quantity { nanos, format } = parse(text)?;
    if nanos == 0 {
        return Some("0".to_owned());
    }
    let whole = nanos % NANO == 0;
    if format == Format::BinarySi && whole && nanos.abs() >= 1024 * NANO {
        let mut units = nanos / NANO;
        let mut power = 0;
        while power < BINARY.len() && units % 1024 == 0 {
            units /= 1024;
            power += 1;
        }
        return Some(format!(
            "{units}{}",
            if power == 0 { "" } else { BINARY[power - 1] }
        ));
    }
    let (mut number, mut power) = (nanos, -9);
    while power < 18 && number % 1000 == 0 {
        number /= 1000;
        power += 3;
    }
    if format == Format::DecimalExponent {
        return Some(if power == 0 {
            number.to_string()
        } else {
            format!("{number}e{power}")
        });
    }
    let suffix = DECIMAL
        .iter()
        .find(|(_, known)| *known == power)
        .map_or("", |(suffix, _)| suffix);
    Some(format!("{number}{suffix}"))
}

/// A quantity in billionths, for comparing.
pub(crate) fn nanos(text: &str) -> Option<i128> {
    parse(text).map(|quantity| quantity.nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spellings_are_those_of_kubernetes() {
        for (text, stored) in [
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1000m", "1"),
            ("1000", "1k"),
            ("1500m", "1500m"),
            ("100", "100"),
            ("1.5Gi", "1536Mi"),
            ("0", "0"),
            ("0Mi", "0"),
            ("1Ki", "1Ki"),
            ("512", "512"),
            ("1e3", "1e3"),
            ("12E", "12E"),
            ("10Ei", "9223372036854775807"),
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
        ] {
            assert_eq!(canonical(text).as_deref(), Some(stored), "{text}");
        }
        for bad in ["", "x", "1x", "1.2.3", "-", ".", "1 Gi", "1e", "Ki", "1e1000"] {
            assert_eq!(canonical(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_stored_spelling_is_stable(text in "[+-]?[0-9]{0,24}(\\.[0-9]{0,24})?([numkMGTPE]|[KMGTPE]i|e[-+]?[0-9]{1,4})?") {
            if let Some(stored) = canonical(&text) {
                // Short decimals beyond the limit are kept once and cut when their long spelling is read again, in Kubernetes as here.
                prop_assume!(parse(&text).is_some_and(|quantity| quantity.nanos.abs() <= LARGEST));
                prop_assert_eq!(canonical(&stored), Some(stored.clone()));
                prop_assert_eq!(nanos(&stored), nanos(&text));
            }
        }
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,40}") {
            let _ = canonical(&text);
        }
    }
}
