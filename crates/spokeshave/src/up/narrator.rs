//! What `up` says: a line for each decision, and scenes of the demo. Standard output is data; connecting instructions go to standard error.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use owo_colors::OwoColorize as _;
use spokeshave_controllers::{Decision, DecisionKind};
use spokeshave_model::Price;
use spokeshave_view::price_change;

/// Prints lines. Clones share the last known price of the cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Narrator {
    price: Arc<Mutex<Price>>,
}

impl Narrator {
    /// One decision, as one line: when, what kind, which object, what, why, what it costs.
    pub(crate) fn decision(&self, decision: &Decision) {
        let time = decision.time.strftime("%H:%M:%S");
        let (verb, colour) = verb(decision.kind);
        let mut price = self.price.lock().unwrap_or_else(PoisonError::into_inner);
        let knows_price = !matches!(decision.kind, DecisionKind::Unschedulable | DecisionKind::Trouble);
        if knows_price {
            *price = decision.cluster_price;
        }
        let change = decision
            .price_change
            .filter(|change| change.0 != 0)
            .map(signed)
            .unwrap_or_default();
        let why = if decision.why.is_empty() {
            String::new()
        } else {
            format!(" — {}", decision.why)
        };
        let line = format!(
            "{}  {}  {}: {}{why}{change}  {}",
            time.dimmed(),
            format!("{verb:<9}").color(colour),
            decision.subject.bold(),
            decision.what,
            format!("[cluster {}/h]", dollars(*price)).dimmed()
        );
        say(&line);
    }

    /// The title of a scene.
    pub(crate) fn scene(&self, title: &str) {
        say(&format!("\n{}", format!("== {title}").bold()));
    }

    /// What the story waits for longer than it should.
    pub(crate) fn late(&self, missing: &str) {
        say(&format!("   still waiting for {missing}"));
    }

    /// The status of a DisruptionPolicy.
    pub(crate) fn policy(&self, policy: &str, text: &str) {
        let verb = format!("{:<9}", "policy");
        say(&format!("          {}  {}: {text}", verb.blue(), policy.bold()));
    }

    /// The state of the cluster.
    pub(crate) fn status(&self, text: &str) {
        let price = *self.price.lock().unwrap_or_else(PoisonError::into_inner);
        say(&format!("   {text}, {}/h", dollars(price)));
    }
}

/// Writes a line; a reader that has gone away is no reason to stop the cluster.
fn say(line: &str) {
    let mut out = anstream::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

fn verb(kind: DecisionKind) -> (&'static str, owo_colors::AnsiColors) {
    use owo_colors::AnsiColors::{Blue, Cyan, Green, Magenta, Red, Yellow};
    match kind {
        DecisionKind::Launch => ("launch", Cyan),
        DecisionKind::Launched => ("launched", Cyan),
        DecisionKind::Ready => ("ready", Green),
        DecisionKind::Place => ("place", Blue),
        DecisionKind::Unschedulable => ("stuck", Red),
        DecisionKind::Disrupt => ("disrupt", Magenta),
        DecisionKind::Drain => ("drain", Yellow),
        DecisionKind::Gone => ("gone", Yellow),
        DecisionKind::Trouble => ("trouble", Red),
    }
}

fn dollars(price: Price) -> String {
    format!("${:.3}", price.dollars())
}

fn signed(change: Price) -> String {
    let saved = Price(change.0.saturating_neg());
    format!(" ({})", price_change(saved, "-", dollars))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_reads_as_money() {
        assert_eq!(dollars(Price(1_234_500_000)), "$1.234");
        assert_eq!(signed(Price(-50_000_000)), " (-$0.050/h)");
        assert_eq!(signed(Price(50_000_000)), " (+$0.050/h)");
    }
}
