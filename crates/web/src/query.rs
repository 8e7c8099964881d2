//! The requested view: the query of the URL, so that every view of the page can be bookmarked and shared.

use jiff::{SignedDuration, Timestamp};
use spokeshave_view::MOST_SUPPOSED;
use std::borrow::Cow;
use std::fmt::Write as _;

/// A longer address is no link, and nothing of it is assumed away: every link of a page repeats it, and the server reads 32 KiB of a request's head.
pub(crate) const LONGEST_ADDRESS: usize = 24 << 10;
/// Bytes of the longest name, of an object with its kind and namespace. What is longer names nothing, and is cut.
const LONGEST_NAME: usize = 600;

macro_rules! choices {
    ($(#[$outer:meta])* $name:ident: $($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// Every choice, in order; the first is taken where nothing is said.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// Its value in the URL.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == text)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }
    };
}

choices! {
    /// What boxes are grouped by.
    Group:
    /// NodePool.
    Pool = "pool",
    /// Zone.
    Zone = "zone",
    /// Instance type.
    Type = "type",
    /// What is said of them.
    Verdict = "verdict",
}

choices! {
    /// What the area of a box shows.
    Size:
    /// Dollars per hour.
    Price = "price",
    /// CPU.
    Cpu = "cpu",
    /// Nothing.
    Equal = "equal",
}

choices! {
    /// What the table is sorted by.
    Sort:
    /// Name.
    Name = "name",
    /// NodePool.
    Pool = "pool",
    /// Instance type.
    Type = "type",
    /// Zone.
    Zone = "zone",
    /// Dollars per hour.
    Price = "price",
    /// Share of CPU that is requested.
    Cpu = "cpu",
    /// Share of memory that is requested.
    Memory = "memory",
    /// Pods.
    Pods = "pods",
    /// Age.
    Age = "age",
    /// What is said of it; those that save most first.
    Verdict = "verdict",
}

choices! {
    /// What the time axis spans.
    Span:
    /// An hour.
    Hour = "1h",
    /// A quarter of a day.
    SixHours = "6h",
    /// A day.
    Day = "24h",
    /// A week.
    Week = "7d",
    /// Thirty days, which is all that is remembered.
    Month = "30d",
}

impl Span {
    /// Its length.
    pub fn length(self) -> SignedDuration {
        SignedDuration::from_hours(match self {
            Span::Hour => 1,
            Span::SixHours => 6,
            Span::Day => 24,
            Span::Week => 7 * 24,
            Span::Month => 30 * 24,
        })
    }
}

/// A query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// What boxes are grouped by.
    pub group: Group,
    /// What their area shows.
    pub size: Size,
    /// What the table is sorted by.
    pub sort: Sort,
    /// The other way round.
    pub descending: bool,
    /// Nodes with this text in their row.
    pub find: String,
    /// The part of the table, from 0.
    pub part: usize,
    /// The node in detail.
    pub node: Option<String>,
    /// The pod in detail, as `namespace/name`.
    pub pod: Option<String>,
    /// What the time axis spans.
    pub range: Span,
    /// Where it ends, in whole seconds; now, if nothing is said.
    pub until: Option<Timestamp>,
    /// The NodePool whose budgets are behind it; all, if none is named.
    pub pool: Option<String>,
    /// Blockers that are assumed away.
    pub without: Vec<String>,
    /// What is thought to be gone.
    pub gone: Vec<String>,
    /// It was more than can be assumed away at once, so that nothing is.
    pub is_too_much: bool,
}

impl Query {
    /// Reads the part of an address after `?`. What it does not know it passes over.
    pub fn parse(text: &str) -> Self {
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value);
            match name {
                "group" => query.group = Group::parse(&value).unwrap_or_default(),
                "size" => query.size = Size::parse(&value).unwrap_or_default(),
                "sort" => query.sort = Sort::parse(&value).unwrap_or_default(),
                "desc" => query.descending = true,
                "find" => query.find = value.trim().chars().take(200).collect(),
                "part" => query.part = value.parse().unwrap_or_default(),
                "node" if !value.is_empty() => query.node = Some(name_of(value)),
                "pod" if !value.is_empty() => query.pod = Some(name_of(value)),
                "range" => query.range = Span::parse(&value).unwrap_or_default(),
                "until" => query.until = value.parse().ok().map(whole_second),
                "pool" if !value.is_empty() => query.pool = Some(name_of(value)),
                "without" if !query.is_full() => add(&mut query.without, name_of(value)),
                "gone" if !query.is_full() => add(&mut query.gone, name_of(value)),
                _ => {}
            }
        }
        if query.is_full() || (query.supposed() > 0 && query.href(|_| ()).len() > LONGEST_ADDRESS) {
            query.is_too_much = true;
            query.without.clear();
            query.gone.clear();
        }
        query
    }

    /// How many things are assumed away.
    pub fn supposed(&self) -> usize {
        self.without.len() + self.gone.len()
    }

    /// More is assumed away than can be; how much more does not matter.
    fn is_full(&self) -> bool {
        self.supposed() > MOST_SUPPOSED
    }

    /// Name and value of everything that differs from the default, in a fixed order.
    pub fn pairs(&self) -> Vec<(&'static str, Cow<'_, str>)> {
        let mut pairs: Vec<(&'static str, Cow<'_, str>)> = Vec::new();
        let mut add = |name, value, is_default: bool| {
            if !is_default {
                pairs.push((name, value));
            }
        };
        add(
            "group",
            self.group.as_str().into(),
            self.group == Group::default(),
        );
        add("size", self.size.as_str().into(), self.size == Size::default());
        add("sort", self.sort.as_str().into(), self.sort == Sort::default());
        add("desc", "1".into(), !self.descending);
        add("find", self.find.as_str().into(), self.find.is_empty());
        add("range", self.range.as_str().into(), self.range == Span::default());
        let until = self.until.map(|until| until.to_string());
        add("until", until.unwrap_or_default().into(), self.until.is_none());
        for (name, value) in [("pool", &self.pool), ("node", &self.node), ("pod", &self.pod)] {
            add(name, value.as_deref().unwrap_or_default().into(), value.is_none());
        }
        for one in &self.without {
            add("without", one.as_str().into(), false);
        }
        for one in &self.gone {
            add("gone", one.as_str().into(), false);
        }
        pairs
    }

    /// The address of this query with a change. One of the rows of the table, or of their order, leads to the first part of them again.
    pub fn href(&self, change: impl FnOnce(&mut Query)) -> String {
        let mut query = self.clone();
        change(&mut query);
        let mut text = String::new();
        for (name, value) in query.pairs() {
            text.push(if text.is_empty() { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            text.push_str(&encoded(&value));
        }
        if query.part > 0 {
            let sign = if text.is_empty() { '?' } else { '&' };
            let _ = write!(text, "{sign}part={}", query.part);
        }
        format!("/{text}")
    }

    /// The address of this query with a time axis that ends at a time, or now.
    pub fn ending(&self, until: Option<Timestamp>) -> String {
        self.href(|query| query.until = until.map(whole_second))
    }

    /// The URL with a blocker toggled.
    pub fn toggled(&self, without: &str) -> String {
        self.href(
            |query| match query.without.iter().position(|one| one == without) {
                Some(position) => drop(query.without.remove(position)),
                None => query.without.push(without.to_owned()),
            },
        )
    }
}

fn add(values: &mut Vec<String>, value: String) {
    if !values.contains(&value) {
        values.push(value);
    }
}

/// As much of a value as a name can be.
fn name_of(mut value: String) -> String {
    value.truncate(value.floor_char_boundary(LONGEST_NAME));
    value
}

/// Without the part of a second.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Percent-encodes a value.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/' | b':') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Undoes percent-encoding and `+`; a broken escape stays as it is.
pub(crate) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = bytes
            .get(at + 1..at + 3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let escape = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], escape) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (b'+', _) => {
                out.push(b' ');
                at += 1;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_the_query_that_it_was_made_from() {
        let query = Query {
            group: Group::Verdict,
            size: Size::Equal,
            sort: Sort::Price,
            descending: true,
            find: "a&b=c %\u{e9}".to_owned(),
            part: 3,
            node: Some("n 1".to_owned()),
            pod: Some("shop/web-1".to_owned()),
            range: Span::Week,
            until: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            pool: Some("default".to_owned()),
            without: vec![
                "PodDoNotDisrupt:Pod/shop/web-1".to_owned(),
                "Budget:NodePool/x".to_owned(),
            ],
            gone: vec!["Zone/a".to_owned()],
            is_too_much: false,
        };
        let href = query.href(|_| ());
        assert_eq!(Query::parse(href.trim_start_matches("/?")), query);
        assert_eq!(Query::default().href(|_| ()), "/");
        let there = Query::default().toggled("Budget:NodePool/x");
        assert_eq!(there, "/?without=Budget:NodePool/x");
        assert_eq!(Query::parse(&there[2..]).toggled("Budget:NodePool/x"), "/");
        let shared = "/?range=24h&until=2026-01-02T03:04:05Z&pool=default";
        let parsed = Query::parse("pool=default&until=2026-01-02T04:04:05.678%2B01:00&range=24h");
        assert_eq!(parsed.href(|_| ()), shared);
    }

    #[test]
    fn nonsense_is_passed_over() {
        let query = Query::parse("group=x&&=&part=-1&%ff&find=%zz%e9&node=&desc&range=2h&until=soon&pool=");
        assert_eq!(query.find, "%zz\u{fffd}");
        assert!(query.descending && query.node.is_none() && query.part == 0);
        assert_eq!((query.range, query.until, query.pool), (Span::Hour, None, None));
    }

    /// Every link repeats what is assumed away.
    #[test]
    fn more_than_can_be_assumed_away_is_nothing() {
        let many = |number: usize| {
            let pairs: Vec<String> = (0..number).map(|index| format!("gone=Node/n{index}")).collect();
            Query::parse(&pairs.join("&"))
        };
        let most = many(MOST_SUPPOSED);
        assert_eq!((most.supposed(), most.is_too_much), (MOST_SUPPOSED, false));
        for number in [MOST_SUPPOSED + 1, 3000] {
            let more = many(number);
            assert_eq!((more.supposed(), more.is_too_much), (0, true), "{number}");
            assert_eq!(more.href(|_| ()), "/");
        }
        // What is said twice is assumed once.
        let twice = "gone=Node/n&".repeat(2 * MOST_SUPPOSED);
        assert_eq!(Query::parse(&twice).supposed(), 1);
        // Nor may a few be long together: each of these letters takes three bytes in an address.
        let long: Vec<String> = (0..20)
            .map(|index| format!("without=Pod:Pod/{index}{}", "(".repeat(580)))
            .collect();
        let long = Query::parse(&long.join("&"));
        assert_eq!((long.supposed(), long.is_too_much), (0, true));
    }

    #[test]
    fn a_name_is_no_longer_than_names_are() {
        let long = "\u{e9}".repeat(5000);
        let query = Query::parse(&format!("node={long}&pod={long}&pool={long}&gone={long}"));
        let cut = Some("\u{e9}".repeat(300));
        assert_eq!([&query.node, &query.pod, &query.pool], [&cut, &cut, &cut]);
        assert_eq!(query.gone.first(), cut.as_ref());
        let name = "x".repeat(LONGEST_NAME);
        assert_eq!(Query::parse(&format!("node={name}y")).node, Some(name));
    }
}
