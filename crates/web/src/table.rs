//! All nodes as a table: what the boxes show, for keyboards, screen readers and copying.

use crate::boxes::is_found;
use crate::draw::{Look, count, dollars, percent, verdict_words, why};
use crate::query::{Query, Sort};
use maud::{Markup, html};
use spokeshave_story::explain::age;
use spokeshave_view::{NodeRow, View, share};
use std::cmp::Ordering;

/// Rows of one part.
const ROWS: usize = 250;

/// The columns: title, and what they sort by.
const COLUMNS: [(&str, Option<Sort>, bool); 11] = [
    ("node", Some(Sort::Name), false),
    ("pool", Some(Sort::Pool), false),
    ("type", Some(Sort::Type), false),
    ("zone", Some(Sort::Zone), false),
    ("$/h", Some(Sort::Price), true),
    ("cpu", Some(Sort::Cpu), true),
    ("memory", Some(Sort::Memory), true),
    ("pods", Some(Sort::Pods), true),
    ("age", Some(Sort::Age), true),
    ("verdict", Some(Sort::Verdict), false),
    ("why", None, false),
];

fn order(left: &NodeRow, right: &NodeRow, sort: Sort) -> Ordering {
    // Numbers begin with the largest, texts with the first.
    let by = match sort {
        Sort::Name => Ordering::Equal,
        Sort::Pool => left.pool.cmp(&right.pool),
        Sort::Type => left.instance_type.cmp(&right.instance_type),
        Sort::Zone => left.zone.cmp(&right.zone),
        Sort::Price => right.price.cmp(&left.price),
        Sort::Cpu => share(right.cpu).cmp(&share(left.cpu)),
        Sort::Memory => share(right.memory).cmp(&share(left.memory)),
        Sort::Pods => right.pods.1.cmp(&left.pods.1),
        Sort::Age => left.created.cmp(&right.created),
        Sort::Verdict => (Look::of(left), right.saves).cmp(&(Look::of(right), left.saves)),
    };
    by.then_with(|| left.name.cmp(&right.name))
}

/// The rows that a query asks for, in its order.
pub(crate) fn rows<'a>(view: &'a View, query: &Query) -> Vec<&'a NodeRow> {
    let mut rows: Vec<&NodeRow> = view
        .nodes
        .0
        .iter()
        .filter(|row| is_found(row, &query.find))
        .collect();
    rows.sort_by(|left, right| order(left, right, query.sort));
    if query.descending {
        rows.reverse();
    }
    rows
}

/// The panel.
pub(crate) fn panel(view: &View, query: &Query) -> Markup {
    let rows = rows(view, query);
    let parts = rows.len().div_ceil(ROWS);
    let part = query.part.min(parts.saturating_sub(1));
    let first = part * ROWS;
    let shown = &rows[first..rows.len().min(first + ROWS)];
    html! {
        section #nodes .panel aria-labelledby="nodes-title" {
            header {
                h2 #nodes-title { "Table of nodes" }
                p .note {
                    (count(rows.len(), "node"))
                    @if parts > 1 { ", " (first + 1) " to " (first + shown.len()) }
                    @if !query.find.is_empty() { " that match “" (query.find) "”" }
                }
                @if parts > 1 {
                    nav .choice aria-label="part of the table" {
                        @if part > 0 { a href=(query.href(|query| query.part = part - 1)) rel="prev" { "previous" } }
                        @if part + 1 < parts { a href=(query.href(|query| query.part = part + 1)) rel="next" { "next" } }
                    }
                }
            }
            div .scroll tabindex="0" role="region" aria-labelledby="nodes-title" {
                table .rows aria-rowcount=(rows.len() + 1) {
                    thead { tr aria-rowindex="1" { @for (title, sort, is_number) in COLUMNS { (heading(title, sort, is_number, query)) } } }
                    tbody { @for (index, row) in shown.iter().enumerate() { (line(row, first + index + 2, view, query)) } }
                }
            }
        }
    }
}

fn heading(title: &str, sort: Option<Sort>, is_number: bool, query: &Query) -> Markup {
    let Some(sort) = sort else {
        return html! { th scope="col" { (title) } };
    };
    let is_now = query.sort == sort;
    let state = match (is_now, is_number != query.descending) {
        (false, _) => None,
        (true, true) => Some("descending"),
        (true, false) => Some("ascending"),
    };
    let href = query.href(|query| {
        query.descending = is_now && !query.descending;
        query.sort = sort;
        query.part = 0;
    });
    html! {
        th scope="col" aria-sort=[state] .number[is_number] {
            a href=(href) data-sort=(sort.as_str()) { (title) @if is_now { (if state == Some("ascending") { " ▲" } else { " ▼" }) } }
        }
    }
}

fn bar(thousandths: i64) -> Markup {
    html! {
        svg .bar viewBox="0 0 50 8" aria-hidden="true" { rect .room width="50" height="8" {} rect .fill width=(thousandths.clamp(0, 1000) / 20) height="8" {} }
        (percent(thousandths))
    }
}

fn line(row: &NodeRow, index: usize, view: &View, query: &Query) -> Markup {
    let look = Look::of(row);
    let is_chosen = query.node.as_deref() == Some(&row.name);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    html! {
        tr .(look.class()) .chosen[is_chosen] aria-rowindex=(index) aria-selected=[is_chosen.then_some("true")] {
            th scope="row" { a href=(query.href(|query| { query.node = Some(row.name.clone()); query.pod = None; })) data-row=(row.name) { (row.name) } }
            td { (text(&row.pool)) }
            td { (text(&row.instance_type)) @if let Some(kind) = &row.capacity_type { " " span .note { (kind) } } }
            td { (text(&row.zone)) }
            td .number { @match row.price { Some(price) => (dollars(price.0)), None => abbr title="the price is unknown: --catalog FILE or a NodeOverlay names it" { "?" } } }
            td .number { (bar(share(row.cpu))) }
            td .number { (bar(share(row.memory))) }
            td .number { (row.pods.1) }
            td .number { @if let Some(created) = row.created { (age(created, view.header.now)) } }
            td { span .look { (look.glyph()) } " " (verdict_words(row)) }
            td .why { (why(row)) }
        }
    }
}
