//! Words that the page, `top` and `up` share: of a command, of what a saving does to the price, and how a time is told. How they look is up to each: signs, digits
//! of a price, colours.

use crate::ledger::{Entry, SUCCEEDED};
use jiff::Timestamp;
use spokeshave_model::Price;
use spokeshave_plan::report::count;

impl Entry {
    /// `replace 3 nodes by 1: underutilized, -$0.420/h predicted, -$0.400/h realised, 2 evictions; Succeeded`. `by` is that word, or a sign for it; `change` says what
    /// a saving does to the price.
    pub fn words(&self, by: &str, change: impl Fn(Price) -> String) -> String {
        let nodes = count(self.nodes.len(), "node");
        let what = match self.replacements.len() {
            0 => format!("delete {nodes}"),
            replacements => format!("replace {nodes} {by} {replacements}"),
        };
        let realised = match self.realised {
            Some(realised) if realised != self.predicted => format!(", {} realised", change(realised.0)),
            _ => String::new(),
        };
        format!(
            "{what}: {}, {} predicted{realised}, {}; {}",
            self.reason.to_lowercase(),
            change(self.predicted.0),
            count(usize::try_from(self.evictions).unwrap_or_default(), "eviction"),
            self.phase
        )
    }

    /// What it waits for, or why it ended as it did; none where there is nothing to say, or it has succeeded.
    pub fn why(&self) -> Option<&str> {
        let is_told = self.phase != SUCCEEDED && !self.message.is_empty();
        is_told.then_some(self.message.as_str())
    }
}

/// `-$0.420/h` for what is saved, `+$0.050/h` for what costs more, `$0.000/h` where the price stays. `minus` is the sign of the first, `money` how an amount is
/// told.
pub fn price_change(saved: Price, minus: &str, money: impl Fn(Price) -> String) -> String {
    let sign = match saved.0 {
        1.. => minus,
        0 => "",
        _ => "+",
    };
    format!("{sign}{}/h", money(Price(saved.0.saturating_abs())))
}

/// How a time is told, as `strftime` has it: one of today without its date, any other with it; in UTC.
pub fn time_format(at: Timestamp, now: Timestamp) -> &'static str {
    let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    if day(at) == day(now) {
        "%H:%M:%S"
    } else {
        "%Y-%m-%d %H:%M:%S"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_saves_nothing_neither_lowers_nor_raises_the_price() {
        let told = |saved: i64| price_change(Price(saved), "−", |price| format!("${}", price.0));
        assert_eq!([42, 0, -5].map(told), ["−$42/h", "$0/h", "+$5/h"]);
        assert_eq!(told(i64::MIN), format!("+${}/h", i64::MAX));
    }
}
