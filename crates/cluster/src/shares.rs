//! Numbers that may also be told as a percentage of others: the bounds of rollouts and of PodDisruptionBudgets.

use std::num::IntErrorKind;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Where a share goes that is no whole number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rounded {
    Up,
    Down,
}

/// A number, or a percentage of `of`; nothing where it is neither. Nobody bounds the surge of a Deployment, so that what is too large to be counted is as large
/// as can be counted.
pub(crate) fn share(value: &IntOrString, of: i32, rounded: Rounded) -> i32 {
    let text = match value {
        IntOrString::Int(number) => return *number,
        IntOrString::String(text) => text.trim_end_matches('%'),
    };
    let percent = match text.parse::<i64>() {
        Ok(percent) => percent,
        Err(problem) if *problem.kind() == IntErrorKind::PosOverflow => i64::MAX,
        Err(_) => 0,
    };
    percentage(percent, of, rounded)
}

/// So many hundredths of `of`.
pub(crate) fn percentage(percent: i64, of: i32, rounded: Rounded) -> i32 {
    let hundredths = i64::from(of).saturating_mul(percent);
    let whole = match rounded {
        Rounded::Up => hundredths.saturating_add(99) / 100,
        Rounded::Down => hundredths / 100,
    };
    i32::try_from(whole).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_and_end_where_numbers_do() {
        let both = |text: &str, of: i32| {
            let value = IntOrString::String(text.to_owned());
            (share(&value, of, Rounded::Up), share(&value, of, Rounded::Down))
        };
        assert_eq!(both("25%", 10), (3, 2));
        assert_eq!(both("50%", 0), (0, 0));
        assert_eq!(both("much", 10), (0, 0));
        assert_eq!(both("999999999%", 3), (30_000_000, 29_999_999));
        assert_eq!(both("999999999%", 1000), (i32::MAX, i32::MAX));
        assert_eq!(both("99999999999999999999%", 3), (i32::MAX, i32::MAX));
        assert_eq!(share(&IntOrString::Int(2), 10, Rounded::Up), 2);
    }
}
