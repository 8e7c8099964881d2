//! One screenful, as lines of pieces: pure, so that a test reads what a person would.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

use clap::ValueEnum;
use spokeshave_model::Price;
use spokeshave_story::prices;
use spokeshave_view::{NodeRow, Phase, View};
use spokeshave_web::Shown;

use super::columns::{Column, line, placed, titles};
use super::line::{Line, Tone, fit, piece};
use super::listing::Listing;
use super::panes::Told;
use super::selection::{Selected, Selection};
use super::without::Without;
use super::{panes, pools};
use crate::text::count;

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// What nodes are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Name
    #[default]
    Name,
    /// NodePool
    Pool,
    /// Instance type
    Type,
    /// Price, dearest first
    Price,
    /// Requested CPU, fullest first
    Cpu,
    /// Requested memory, fullest first
    Memory,
    /// Age, oldest first
    Age,
    /// What would be saved, most first
    Saves,
}

impl Sort {
    /// The next one, round and round.
    pub(super) fn next(self) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|one| *one == self).unwrap_or_default();
        all[(at + 1) % all.len()]
    }
}

/// What is shown beside or instead of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    None,
    Explain,
    Without,
    Pools,
    Pending,
    Budgets,
    Commands,
    Help,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// The columns in their order; the usual ones where there are none.
    pub(super) columns: Vec<Column>,
    pub(super) sort: Sort,
    pub(super) selection: Selection,
    /// The list that was worked out last.
    pub(super) listed: RefCell<Option<Arc<Listing>>>,
    /// The nodes that were selected last: reading the labels of thousands takes too long for every letter of a filter, and for every view.
    pub(super) selected: RefCell<Option<Selected>>,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    /// The chosen node, by name: it stays chosen when others come and go.
    pub(super) chosen: Option<String>,
    /// The first node on the screen that was drawn last.
    pub(super) first: Cell<usize>,
    /// How many nodes that screen had room for.
    pub(super) room: Cell<usize>,
    pub(super) pane: Pane,
    /// The first line of the pane that is asked for; the first one on the screen, once that is drawn.
    pub(super) pane_first: Cell<usize>,
    /// What was told there last.
    pub(super) told: RefCell<Option<Told>>,
    pub(super) is_ascii: bool,
    /// The last answer for the pane [`Pane::Without`].
    pub(super) without: Option<Without>,
}

impl Asked {
    /// The node of which it is asked what would happen without the things that keep it.
    pub(super) fn wants_without(&self) -> Option<&str> {
        self.chosen.as_deref().filter(|_| self.pane == Pane::Without)
    }

    /// The names of the nodes that the selector selects; none where there is no selector.
    pub(super) fn selected_names(&self, shown: &Shown) -> Option<Arc<BTreeSet<String>>> {
        if self.selection.is_empty() {
            return None;
        }
        let mut known = self.selected.borrow_mut();
        let selected = Selected::of(&self.selection, shown, known.take());
        Some(known.insert(selected).names())
    }

    /// Moves the screen as little as it takes to have the chosen node on it, and returns the first of those that are there.
    fn follow(&self, listing: &Listing, room: usize) -> usize {
        let mut first = self.first.get().min(listing.len().saturating_sub(1));
        if let Some(at) = self.chosen.as_deref().and_then(|name| listing.place(name)) {
            first = first.clamp((at + 1).saturating_sub(room.max(1)), at);
        }
        self.first.set(first);
        self.room.set(room);
        first
    }
}

pub(super) fn money(price: Price) -> String {
    let sign = if price.0 < 0 { "-" } else { "" };
    format!("{sign}${:.3}", price.dollars().abs())
}

/// A sum over nodes; a lower bound while the prices of some are not known, and no price at all while none is, or where what they depend on could not be read.
pub(super) fn known_sum(view: &View, price: Price, without_price: usize) -> String {
    if !view.header.knows("price") {
        return "$?/h".to_owned();
    }
    prices::known_sum(price, without_price, |price| format!("{}/h", money(price)))
}

/// What is said of a node, and how it looks.
pub(super) fn verdict(row: &NodeRow) -> (String, Tone) {
    let of_itself = format!("Node {}", row.name);
    let reason = row.reasons.first().map(|reason| {
        // A rule of a DisruptionPolicy names itself; its object is the NodePool that it selects.
        if reason.object == of_itself || reason.code == "DisruptionPolicy" {
            reason.message.clone()
        } else {
            format!("{}: {}", reason.object, reason.message)
        }
    });
    let reason = reason.unwrap_or_default();
    let saves = row
        .saves
        .map(|saves| format!(": {}/h", money(Price(saves.0.0.saturating_neg()))))
        .unwrap_or_default();
    // It is too old, or of its NodePool there are too many nodes, and what keeps it from a command keeps it from nothing.
    let goes = row.waits.as_ref().filter(|_| row.verdict == Some("keep"));
    match (row.phase, row.verdict) {
        (Phase::Leaving, _) => ("leaving".to_owned(), Tone::Warn),
        (Phase::Unknown, _) | (Phase::Ready, Some("unknown")) => ("? unknown".to_owned(), Tone::Dim),
        (Phase::Coming, _) => {
            let goes = goes.map(|goes| format!("; {goes}")).unwrap_or_default();
            (format!("coming{goes}"), Tone::Dim)
        }
        (Phase::Broken, _) => (format!("not ready; {}", goes.unwrap_or(&reason)), Tone::Bad),
        (Phase::Ready, None) => ("not managed".to_owned(), Tone::Dim),
        (Phase::Ready, Some("keep")) => match (row.in_next, goes) {
            (_, Some(goes)) => (goes.clone(), Tone::Warn),
            (Some(others @ 1..), None) => {
                let others = count(others, "other");
                let text = format!("goes with {others}; alone it would stay: {reason}");
                (text, Tone::Good)
            }
            (Some(0), None) => (format!("goes next: {reason}"), Tone::Good),
            (None, None) => (format!("keep: {reason}"), Tone::Plain),
        },
        (Phase::Ready, Some(other)) => {
            let by = row
                .replacement
                .as_ref()
                .map(|by| format!(" by {by}"))
                .unwrap_or_default();
            let waits = row
                .waits
                .as_ref()
                .map(|waits| format!("; {waits}"))
                .unwrap_or_default();
            (format!("{other}{by}{saves}{waits}"), Tone::Good)
        }
    }
}

/// The first lines: the cluster, and its NodePools.
fn head(view: &View, listing: &Listing, width: usize) -> Vec<Line> {
    let header = &view.header;
    let month = Price(header.price.0.0.saturating_mul(730));
    let price = if header.has_managed_nodes() {
        known_sum(view, header.price.0, header.nodes_without_price)
    } else {
        "no managed node".to_owned()
    };
    let of_month = if header.is_priced() {
        format!(" (about ${:.0} a month)", month.dollars())
    } else {
        String::new()
    };
    let mut first = vec![
        piece(price, Tone::Bold),
        piece(of_month, Tone::Dim),
        piece(format!("  {}", count(header.nodes, "node")), Tone::Bold),
    ];
    // Which nodes are coming cannot be told where Nodes or NodeClaims could not be read.
    let coming = if header.knows("coming") { header.coming } else { 0 };
    for (number, name) in [
        (coming, "coming"),
        (header.leaving, "leaving"),
        (header.broken, "not ready"),
    ] {
        if number > 0 {
            first.push(piece(format!(" {number} {name}"), Tone::Warn));
        }
    }
    first.push(piece(format!("  {}", count(header.pods, "pod")), Tone::Bold));
    if header.pending > 0 {
        first.push(piece(format!(" {} pending", header.pending), Tone::Bad));
    }
    if header.unplanned > 0 {
        let text = format!(" {} not planned for", header.unplanned);
        first.push(piece(text, Tone::Dim));
    }
    first.push(piece(
        format!(
            "  cpu {} % mem {} %",
            header.cpu.percent(),
            header.memory.percent()
        ),
        Tone::Plain,
    ));
    let least = if header.nodes_without_price > 0 { ">= " } else { "" };
    let idle = if header.knows("idle") && header.is_priced() {
        format!("{least}{}/h", money(header.idle.0))
    } else {
        "?".to_owned()
    };
    first.push(piece(format!("  idle {idle}"), Tone::Plain));
    let is_partly_unknown = header.savings_without_price > 0;
    let least = if is_partly_unknown { ">= " } else { "" };
    let savings = header.possible_savings();
    if !header.knows("couldSave") || (is_partly_unknown && savings == Price::ZERO) {
        first.push(piece("  could save ?", Tone::Plain));
    } else if savings > Price::ZERO {
        let text = format!("  could save {least}{}/h", money(savings));
        first.push(piece(text, Tone::Good));
        if header.next_saves.0 > Price::ZERO {
            let text = format!(" next {least}{}/h", money(header.next_saves.0));
            first.push(piece(text, Tone::Good));
        }
    }
    let mut lines = pools::behind(first, view, listing.dearest(), width);
    if let Some(settings) = &view.settings {
        let told = settings.lines().into_iter();
        lines.extend(told.map(|line| fit(vec![piece(line, Tone::Dim)], width)));
    }
    for missing in &header.missing {
        let text = format!("? not observed: {} ({})", missing.resource, missing.message);
        lines.push(fit(vec![piece(text, Tone::Bad)], width));
    }
    lines
}

/// Draws a screenful. `trouble` says why what is shown is not up to date.
pub(super) fn draw(shown: &Shown, asked: &Asked, size: Size, trouble: Option<&str>) -> Vec<Line> {
    let view = &shown.view;
    let is_screen = size.height != usize::MAX;
    let listing = Listing::of(shown, asked);
    let mut lines = head(view, &listing, size.width);
    if let Some(trouble) = trouble {
        lines.push(fit(
            vec![piece(format!("not up to date: {trouble}"), Tone::Bad)],
            size.width,
        ));
    }
    let left = size.height.saturating_sub(lines.len() + 2);
    // With the rule above it.
    let most = left.saturating_mul(2) / 3;
    let pane = panes::draw(shown, &listing, asked, size.width, most.saturating_sub(1));
    let for_pane = match pane.height {
        0 => 0,
        height => height + 1,
    };
    let room = left.saturating_sub(for_pane);
    let columns = placed(listing.measured(), &asked.columns, size.width);
    let titles = piece(titles(&columns, asked.is_ascii), Tone::Dim);
    lines.push(fit(vec![titles], size.width));
    let first = if is_screen {
        asked.follow(&listing, room)
    } else {
        0
    };
    for row in listing.rows(first, room) {
        lines.push(line(row, view, &columns, asked, size.width, is_screen));
    }
    if listing.len() == 0 {
        let text = match (asked.selection.is_empty(), asked.filter.is_empty()) {
            _ if view.nodes.0.is_empty() => "there is no node yet",
            (true, _) => "no node matches the filter",
            (false, true) => "no node matches the selector",
            (false, false) => "no node matches the selector and the filter",
        };
        lines.push(fit(vec![piece(text, Tone::Dim)], size.width));
    }
    if !is_screen {
        return lines;
    }
    let until = size.height.saturating_sub(1);
    while lines.len() < until.saturating_sub(for_pane) {
        lines.push(Vec::new());
    }
    if for_pane > 0 {
        let rule = if asked.is_ascii { "-" } else { "─" };
        lines.push(vec![piece(rule.repeat(size.width), Tone::Dim)]);
        // A word that is longer than the screen is wide is not folded.
        lines.extend(pane.lines.into_iter().map(|line| fit(line, size.width)));
    }
    lines.truncate(until);
    lines.resize(until, Vec::new());
    lines.push(fit(foot(asked, view), size.width));
    lines
}

fn foot(asked: &Asked, view: &View) -> Line {
    if asked.is_typing {
        return vec![
            piece("filter: ", Tone::Bold),
            piece(asked.filter.clone(), Tone::Plain),
            piece("_", Tone::Dim),
        ];
    }
    let separator = if asked.is_ascii { "|" } else { "·" };
    let told = |name: &str, text: &str| match text {
        "" => String::new(),
        text => format!("{name} {text:?} {separator} "),
    };
    let selector = told("selector", asked.selection.text());
    let filter = told("filter", &asked.filter);
    let keys = [
        "? keys",
        "q quit",
        "j/k move",
        "enter explain",
        "w without what keeps it",
        "/ filter",
        "o sort",
        "g pools",
        "p pending",
        "b budgets",
        "c commands",
    ];
    let sort = asked
        .sort
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
    let text = format!(
        "{selector}{filter}by {sort} {separator} {}",
        keys.join(&format!(" {separator} "))
    );
    let now = view.header.now.strftime("%H:%M:%S").to_string();
    vec![piece(format!("{now} "), Tone::Dim), piece(text, Tone::Dim)]
}
