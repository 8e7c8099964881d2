//! Commands of the past and those under way, the newest first, as the page tells them. Pure.

use jiff::Timestamp;
use spokeshave_model::Price;
use spokeshave_plan::report::some_of;
use spokeshave_view::{Entry, View, price_change, time_format};

use super::frame::money;
use super::line::Tone;
use super::without::Lines;

/// What is said before the commands.
pub(super) fn before(view: &View) -> Lines {
    let text = if !view.header.knows_commands() {
        "? Disruptions could not be read: only commands seen before that are listed"
    } else if view.commands.is_empty() {
        "no command is known: only those whose Disruptions still exist, or that were seen since this program started, are listed"
    } else {
        return Lines::new();
    };
    vec![(text.to_owned(), Tone::Dim)]
}

/// The command at a place, counted from the newest.
pub(super) fn told(view: &View, at: usize) -> Option<(String, Tone)> {
    let entry = view.commands.iter().nth_back(at)?;
    Some((words(entry, view.header.now), tone(entry)))
}

fn tone(entry: &Entry) -> Tone {
    match (entry.phase.as_str(), entry.ended) {
        ("RolledBack", _) => Tone::Bad,
        (_, None) => Tone::Warn,
        _ => Tone::Plain,
    }
}

/// `06:44:08 replace 3 nodes by 1: underutilized, -$0.420/h predicted, 2 evictions; Succeeded; default-1, default-2 and 1 other`.
fn words(entry: &Entry, now: Timestamp) -> String {
    let why = entry.why().map(|why| format!(": {why}"));
    format!(
        "{} {}{}; {}",
        entry.decided.strftime(time_format(entry.decided, now)),
        entry.words("by", change),
        why.unwrap_or_default(),
        some_of(&entry.nodes, 3)
    )
}

/// What a saving does to the price.
fn change(saved: Price) -> String {
    price_change(saved, "-", money)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use spokeshave_view::{Dollars, Missing};

    use super::*;
    use crate::top::frame::{Asked, Pane, Size, draw};
    use crate::top::line::plain;
    use crate::top::tests::stuck;

    pub(in crate::top) fn entry(name: &str, decided: &str, phase: &str, saved: i64) -> Entry {
        Entry {
            name: name.to_owned(),
            decided: decided.parse().expect("a time"),
            ended: None,
            phase: phase.to_owned(),
            message: String::new(),
            method: "SingleNodeConsolidation".to_owned(),
            reason: "Underutilized".to_owned(),
            nodes: vec![format!("{name}-node")],
            replacements: Vec::new(),
            evictions: 2,
            before: Dollars::default(),
            predicted: Dollars(Price(saved)),
            realised: None,
        }
    }

    /// All that the pane tells.
    fn pane(view: &View) -> Lines {
        let commands = (0..).map_while(|at| told(view, at));
        before(view).into_iter().chain(commands).collect()
    }

    /// Oldest first, as a view has them.
    fn entries() -> Vec<Entry> {
        let began = entry("old", "2026-03-01T23:00:00Z", "Succeeded", 420_000_000);
        let old = Entry {
            ended: Some("2026-03-01T23:05:00Z".parse().expect("a time")),
            message: "done".to_owned(),
            nodes: ["a", "b", "c", "d"].map(str::to_owned).into(),
            replacements: vec!["new".to_owned()],
            realised: Some(Dollars(Price(400_000_000))),
            ..began
        };
        let back = Entry {
            ended: Some("2026-03-02T11:01:00Z".parse().expect("a time")),
            message: "no capacity".to_owned(),
            evictions: 1,
            ..entry("back", "2026-03-02T11:00:00Z", "RolledBack", -50_000_000)
        };
        vec![old, back, entry("now", "2026-03-02T11:59:00Z", "Draining", 0)]
    }

    #[test]
    fn commands_are_told_newest_first_with_time_change_of_price_and_phase() {
        let mut shown = stuck();
        Arc::make_mut(&mut shown.view).commands = entries();
        let told: Vec<(String, Tone)> = pane(&shown.view);
        let expected = [
            (
                "11:59:00 delete 1 node: underutilized, $0.000/h predicted, 2 evictions; Draining; now-node",
                Tone::Warn,
            ),
            (
                "11:00:00 delete 1 node: underutilized, +$0.050/h predicted, 1 eviction; RolledBack: no capacity; back-node",
                Tone::Bad,
            ),
            (
                "2026-03-01 23:00:00 replace 4 nodes by 1: underutilized, -$0.420/h predicted, -$0.400/h realised, \
                 2 evictions; Succeeded; a, b, c and 1 other",
                Tone::Plain,
            ),
        ];
        let expected = expected.map(|(text, tone)| (text.to_owned(), tone));
        assert_eq!(told, expected);
        let asked = Asked {
            pane: Pane::Commands,
            ..Asked::default()
        };
        let size = Size {
            width: 80,
            height: 24,
        };
        let text = plain(&draw(&shown, &asked, size, None));
        let at = |told: &str| text.find(told).unwrap_or_else(|| panic!("no {told}: {text}"));
        assert!(at("11:59:00 delete") < at("11:00:00 delete"), "{text}");
        assert!(
            at("11:00:00 delete") < at("2026-03-01 23:00:00 replace"),
            "{text}"
        );
    }

    /// Who may not list Disruptions is not told that there were none.
    #[test]
    fn commands_that_could_not_be_read_are_not_none() {
        let mut shown = stuck();
        let none = pane(&shown.view);
        assert!(none[0].0.starts_with("no command is known"), "{none:?}");
        let view = Arc::make_mut(&mut shown.view);
        view.commands = entries();
        view.header.missing.push(Missing {
            resource: "disruptions.spokeshave.dev".to_owned(),
            message: "forbidden".to_owned(),
        });
        let told = pane(view);
        assert_eq!(told.len(), 4);
        assert!(
            told[0].0.starts_with("? Disruptions could not be read"),
            "{told:?}"
        );
    }
}
