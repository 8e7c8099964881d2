//! Formats of text that a schema may ask for, each as lenient as the one of a real server.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use regex::Regex;

/// A format that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    BsonObjectId,
    Byte,
    Cidr,
    CreditCard,
    Date,
    DateTime,
    Duration,
    Email,
    HexColor,
    Hostname,
    Ipv4,
    Ipv6,
    Isbn,
    Isbn10,
    Isbn13,
    LongName,
    Mac,
    Password,
    RgbColor,
    ShortName,
    Ssn,
    Uri,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
}

impl Format {
    /// The format of a name; hyphens do not count. `None` for an unknown name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name.replace('-', "").as_str() {
            "bsonobjectid" => Self::BsonObjectId,
            "byte" => Self::Byte,
            "cidr" => Self::Cidr,
            "creditcard" => Self::CreditCard,
            "date" => Self::Date,
            "datetime" => Self::DateTime,
            "duration" => Self::Duration,
            "email" => Self::Email,
            "hexcolor" => Self::HexColor,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "isbn" => Self::Isbn,
            "isbn10" => Self::Isbn10,
            "isbn13" => Self::Isbn13,
            "k8slongname" => Self::LongName,
            "mac" => Self::Mac,
            "password" => Self::Password,
            "rgbcolor" => Self::RgbColor,
            "k8sshortname" => Self::ShortName,
            "ssn" => Self::Ssn,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            "uuid3" => Self::Uuid3,
            "uuid4" => Self::Uuid4,
            "uuid5" => Self::Uuid5,
            _ => return None,
        })
    }

    /// Whether the text has this format.
    pub(crate) fn accepts(self, text: &str) -> bool {
        match self {
            Self::Password => true,
            Self::Ipv4 => lenient_ipv4(text),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => is_cidr(text),
            Self::Mac => is_mac(text),
            Self::Email => is_email(text),
            Self::Uri => is_request_uri(text),
            Self::Date => is_date(text),
            Self::DateTime => is_date_time(text),
            Self::Duration => is_duration(text),
            Self::Isbn => is_isbn10(text) || is_isbn13(text),
            Self::Isbn10 => is_isbn10(text),
            Self::Isbn13 => is_isbn13(text),
            Self::CreditCard => is_credit_card(text),
            Self::Hostname => text.len() <= 255 && self.pattern().is_match(text),
            Self::ShortName => text.len() <= 63 && self.pattern().is_match(text),
            Self::LongName => text.len() <= 253 && self.pattern().is_match(text),
            _ => self.pattern().is_match(text),
        }
    }

    fn pattern(self) -> &'static Regex {
        static PATTERNS: [OnceLock<Regex>; 12] = [const { OnceLock::new() }; 12];
        let (index, source) = match self {
            Self::BsonObjectId => (0, "^[0-9a-fA-F]{24}$"),
            Self::Byte => (
                1,
                "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$",
            ),
            Self::HexColor => (2, "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
            Self::RgbColor => (
                3,
                r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$",
            ),
            Self::Ssn => (4, r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
            Self::Uuid3 => (
                5,
                "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
            ),
            Self::Uuid4 => (
                6,
                "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
            ),
            Self::Uuid5 => (
                7,
                "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
            ),
            Self::Hostname => (
                8,
                r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\p{S}\p{L}-]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
            ),
            Self::ShortName => (9, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
            Self::LongName => (
                10,
                r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            ),
            _ => (
                11,
                "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
            ),
        };
        PATTERNS[index].get_or_init(|| Regex::new(source).expect("a constant of this file"))
    }
}

/// Octets may have leading zeros, and an IPv6 address may end in dots.
fn lenient_ipv4(text: &str) -> bool {
    if text.contains(':') {
        return text.contains('.') && text.parse::<Ipv6Addr>().is_ok();
    }
    let stripped: Vec<&str> = text
        .split('.')
        .map(|octet| match octet.trim_start_matches('0') {
            "" if !octet.is_empty() => "0",
            other => other,
        })
        .collect();
    stripped.join(".").parse::<Ipv4Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let most = if lenient_ipv4(address) && !address.contains(':') {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    !length.is_empty()
        && length.bytes().all(|byte| byte.is_ascii_digit())
        && length.parse::<u32>().is_ok_and(|length| length <= most)
}

/// Six, eight or twenty octets in one of Go's three notations.
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len())
            && parts
                .iter()
                .all(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10])
}

/// `local@domain`, possibly after a display name in front of angle brackets.
fn is_email(text: &str) -> bool {
    let address = match (text.find('<'), text.ends_with('>')) {
        (Some(start), true) => &text[start + 1..text.len() - 1],
        (None, false) => text.trim(),
        _ => return false,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let plain = |text: &str| {
        !text.is_empty()
            && !text.starts_with('.')
            && !text.ends_with('.')
            && !text.contains([' ', '@', '<', '>', ',', ';', ':'])
            && !text.contains("..")
    };
    plain(local) && plain(domain)
}

/// An absolute path or an absolute URI.
fn is_request_uri(text: &str) -> bool {
    if text
        .bytes()
        .any(|byte| byte < 0x20 || byte == 0x7f || byte == b' ')
    {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return true;
    }
    let Some((scheme, _)) = text.split_once(':') else {
        return false;
    };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || "+-.".contains(one))
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else {
        return false;
    };
    let digits = |text: &str, most: &str| {
        text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()) && text <= most
    };
    let part = |range: std::ops::Range<usize>| time.get(range).unwrap_or_default();
    let clock = digits(part(0..2), "23")
        && part(2..3) == ":"
        && digits(part(3..5), "59")
        && part(5..6) == ":"
        && digits(part(6..8), "59");
    let rest = time.get(8..).unwrap_or_default();
    let zone = match rest.find(['z', '+', '-']) {
        Some(at) => {
            let fraction = &rest[..at];
            let fits = fraction.is_empty()
                || fraction.len() > 1 && fraction[1..].bytes().all(|byte| byte.is_ascii_digit());
            fits.then(|| &rest[at..])
        }
        None => None,
    };
    let zone = zone.is_some_and(|zone| {
        zone == "z"
            || zone.len() == 6
                && zone[3..].starts_with(':')
                && zone[1..3]
                    .bytes()
                    .chain(zone[4..].bytes())
                    .all(|byte| byte.is_ascii_digit())
    });
    is_date(date) && clock && zone
}

/// Go's durations, and Scala's such as `3 days`.
fn is_duration(text: &str) -> bool {
    is_go_duration(text) || is_scala_duration(text)
}

pub(crate) fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let end = rest
            .bytes()
            .position(|byte| !byte.is_ascii_digit() && byte != b'.')
            .unwrap_or(rest.len());
        let number = &rest[..end];
        if !number.bytes().any(|byte| byte.is_ascii_digit()) || number.matches('.').count() > 1 {
            return false;
        }
        rest = &rest[end..];
        let Some(unit) = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"]
            .iter()
            .find(|unit| rest.starts_with(**unit))
        else {
            return false;
        };
        rest = &rest[unit.len()..];
    }
    true
}

fn is_scala_duration(text: &str) -> bool {
    static MATCHER: OnceLock<Regex> = OnceLock::new();
    let matcher =
        MATCHER.get_or_init(|| Regex::new(r"(\d+)\s*([A-Za-zµ]+)").expect("a constant of this file"));
    let exact = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    let prefixes = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    matcher.captures_iter(text).any(|found| {
        let unit = found[2].to_lowercase();
        exact.contains(&unit.as_str()) || prefixes.iter().any(|prefix| unit.starts_with(prefix))
    })
}

fn digits_of(text: &str) -> String {
    text.chars().filter(|one| !matches!(one, '-' | ' ')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    let value = |(index, one): (usize, char)| match one {
        'X' if index == 9 => Some(10),
        one => one.to_digit(10),
    };
    let values: Option<Vec<u32>> = digits.chars().enumerate().map(value).collect();
    values.is_some_and(|values| {
        values.len() == 10
            && values
                .iter()
                .zip(1..)
                .map(|(value, weight)| value * weight)
                .sum::<u32>()
                % 11
                == 0
    })
}

fn is_isbn13(text: &str) -> bool {
    let values: Option<Vec<u32>> = digits_of(text).chars().map(|one| one.to_digit(10)).collect();
    values.is_some_and(|values| {
        values.len() == 13
            && values
                .iter()
                .zip([1, 3].into_iter().cycle())
                .map(|(value, weight)| value * weight)
                .sum::<u32>()
                % 10
                == 0
    })
}

/// Luhn's check.
fn is_credit_card(text: &str) -> bool {
    let values: Vec<u32> = text.chars().filter_map(|one| one.to_digit(10)).collect();
    let sum: u32 = values
        .iter()
        .rev()
        .enumerate()
        .map(|(index, value)| match (index % 2, value * 2) {
            (0, _) => *value,
            (_, doubled) => doubled / 10 + doubled % 10,
        })
        .sum();
    (13..=19).contains(&values.len()) && sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_as_strict_as_those_of_kubernetes() {
        for (name, good, bad) in [
            (
                "date-time",
                vec!["2026-01-01T00:00:00Z", "2026-01-01t00:00:00.5+02:00"],
                vec![
                    "x",
                    "2026-01-01",
                    "2026-01-01 00:00:00Z",
                    "2026-13-01T00:00:00Z",
                    "2026-01-01T24:00:00Z",
                ],
            ),
            ("date", vec!["2026-01-01"], vec!["2026-1-1", "2026-02-30"]),
            (
                "duration",
                vec!["1h", "1h30m", "-1.5s", "0", "1 day", "3 weeks"],
                vec!["x", "", "5", "1y"],
            ),
            (
                "uuid",
                vec![
                    "00000000-0000-0000-0000-000000000000",
                    "00000000000000000000000000000000",
                ],
                vec!["x"],
            ),
            (
                "ipv4",
                vec!["1.2.3.4", "010.0.0.1"],
                vec!["1.2.3", "::1", "1.2.3.400"],
            ),
            ("ipv6", vec!["::1"], vec!["1.2.3.4"]),
            (
                "cidr",
                vec!["10.0.0.0/8", "::/0"],
                vec!["10.0.0.0", "10.0.0.0/33"],
            ),
            ("hostname", vec!["a", "a.example"], vec!["a_b", "a.b"]),
            ("uri", vec!["http://x/y", "/x"], vec!["x", "http://a b"]),
            ("byte", vec!["YQ=="], vec!["%%", ""]),
            ("email", vec!["a@b.c", "A <a@b.c>"], vec!["x", "@b"]),
            (
                "mac",
                vec!["01:02:03:04:05:06", "0102.0304.0506"],
                vec!["x", "01:02"],
            ),
            ("isbn", vec!["0321751043", "978-0321751041"], vec!["0321751044"]),
            (
                "creditcard",
                vec!["4111-1111-1111-1111"],
                vec!["4111-1111-1111-1112"],
            ),
            ("k8s-short-name", vec!["a-b"], vec!["A_", "a.b"]),
            ("k8s-long-name", vec!["a.b"], vec!["a_", "a..b"]),
            ("hexcolor", vec!["#fff"], vec!["#ff"]),
            ("ssn", vec!["123-45-6789"], vec!["1"]),
        ] {
            let format = Format::named(name).expect(name);
            for text in good {
                assert!(format.accepts(text), "{name}: {text}");
            }
            for text in bad {
                assert!(!format.accepts(text), "{name}: {text}");
            }
        }
        assert_eq!(Format::named("my-own"), None);
    }
}
