//! The nodes as boxes in groups: area, fill, and a verdict as colour, pattern and glyph. Pure: the same view gives the same drawing.

use crate::draw::{Look, count, dollars, known_sum, percent, verdict_words, why};
use crate::query::{Group, Query, Size};
use crate::treemap::{Rect, strips};
use maud::{Markup, PreEscaped, html};
use spokeshave_charts::units;
use spokeshave_view::{NodeRow, Total, View};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 430.0;
const TITLE: f64 = 20.0;
/// Boxes that are links with a text of their own; more are drawn as few shapes, and found by their place.
const MOST_LINKS: usize = 800;
/// And bytes of their addresses, each of which repeats what the query assumes away.
const MOST_ADDRESSES: usize = 4 << 20;
/// Boxes that bear a text.
const MOST_TEXTS: usize = 400;

/// A node and its place.
struct Placed<'a> {
    row: &'a NodeRow,
    rect: Rect,
}

/// A group with its nodes.
struct Area<'a> {
    title: String,
    rect: Rect,
    nodes: Vec<Placed<'a>>,
}

fn group_of(row: &NodeRow, group: Group) -> String {
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    match group {
        Group::Pool => row.pool_title().to_owned(),
        Group::Zone => known(&row.zone),
        Group::Type => known(&row.instance_type),
        Group::Verdict => Look::of(row).words().to_owned(),
    }
}

fn weight(row: &NodeRow, size: Size) -> f64 {
    match size {
        Size::Price => row.price.map_or(0.0, |price| price.0.dollars()),
        Size::Cpu => row.cpu.0 as f64,
        Size::Equal => 1.0,
    }
}

/// Nodes that a query asks for.
pub(crate) fn is_found(row: &NodeRow, find: &str) -> bool {
    if find.is_empty() {
        return true;
    }
    let find = find.to_lowercase();
    let texts = [
        Some(&row.name),
        row.pool.as_ref(),
        row.instance_type.as_ref(),
        row.capacity_type.as_ref(),
        row.zone.as_ref(),
    ];
    let in_texts = texts
        .into_iter()
        .flatten()
        .any(|text| text.to_lowercase().contains(&find));
    in_texts
        || verdict_words(row).to_lowercase().contains(&find)
        || row.reasons.iter().any(|reason| {
            reason.object.to_lowercase().contains(&find) || reason.message.to_lowercase().contains(&find)
        })
}

fn layout<'a>(view: &'a View, query: &Query) -> Vec<Area<'a>> {
    let mut groups: BTreeMap<String, Vec<&NodeRow>> = BTreeMap::new();
    for row in view.nodes.0.iter().filter(|row| is_found(row, &query.find)) {
        groups.entry(group_of(row, query.group)).or_default().push(row);
    }
    let room = Rect {
        x: 0.0,
        y: 0.0,
        width: WIDTH,
        height: HEIGHT,
    };
    let weights: Vec<f64> = groups
        .values()
        .map(|rows| rows.iter().map(|row| weight(row, query.size)).sum())
        .collect();
    let rects = strips(&weights, room);
    let areas = groups.into_iter().zip(rects).map(|((name, rows), rect)| {
        let rect = rect.inset(2.0);
        let weights: Vec<f64> = rows.iter().map(|row| weight(row, query.size)).collect();
        let boxes = strips(&weights, rect.below(TITLE).inset(1.0));
        Area {
            title: title(view, &name, &rows),
            rect,
            nodes: rows
                .into_iter()
                .zip(boxes)
                .map(|(row, rect)| Placed { row, rect })
                .collect(),
        }
    });
    areas.collect()
}

fn title(view: &View, name: &str, rows: &[&NodeRow]) -> String {
    let total = Total::of(rows.iter().copied());
    let price = if view.header.knows("price") {
        known_sum(total.price, total.without_price)
    } else {
        "price unknown".to_owned()
    };
    format!(
        "{name} · {} · {price} · cpu {} % · memory {} %",
        count(total.nodes, "node"),
        total.cpu.percent(),
        total.memory.percent()
    )
}

/// The node at a point of the drawing.
pub(crate) fn at(view: &View, query: &Query, x: f64, y: f64) -> Option<String> {
    let areas = layout(view, query);
    let mut nodes = areas.iter().flat_map(|area| &area.nodes);
    let found = nodes.find(|placed| placed.rect.contains(x, y))?;
    Some(found.row.name.clone())
}

/// The panel.
pub(crate) fn panel(view: &View, query: &Query) -> Markup {
    let areas = layout(view, query);
    let placed = areas.iter().flat_map(|area| &area.nodes);
    let rows: Vec<&NodeRow> = placed.map(|placed| placed.row).collect();
    let (shown, all) = (rows.len(), view.nodes.0.len());
    let is_compact = shown > MOST_LINKS || shown * query.href(|_| ()).len() > MOST_ADDRESSES;
    html! {
        section #boxes .panel aria-labelledby="boxes-title" {
            header {
                h2 #boxes-title { "Nodes" }
                (choice("group by", Group::ALL, query.group, Group::as_str, |one| query.href(|query| query.group = one)))
                (choice("size by", Size::ALL, query.size, Size::as_str, |one| query.href(|query| query.size = one)))
                (find_form(query))
            }
            @if all == 0 {
                p .empty { "There is no node yet. Nodes come when pods need them; `spokeshave plan --live` shows which would." }
            } @else if shown == 0 {
                p .empty { "No node matches “" (query.find) "”. " a href=(query.href(|query| { query.find.clear(); query.part = 0; })) { "Show all " (all) } "." }
            } @else {
                svg #map viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="group" aria-label=(summary(view, &rows)) data-compact[is_compact] {
                    (patterns())
                    @for area in &areas {
                        (draw_area(area))
                        @if !is_compact { @for placed in &area.nodes { (draw_box(placed, query, shown)) } }
                    }
                    @if is_compact { (compact(&areas)) (chosen(&areas, query)) }
                }
                (legend(&rows, is_compact))
            }
        }
    }
}

/// What is told of the boxes that are drawn.
fn summary(view: &View, rows: &[&NodeRow]) -> String {
    let go = number_of(rows, Look::Go);
    let go = if view.header.knows("verdict") {
        format!("{go} could go")
    } else {
        "which could go is unknown".to_owned()
    };
    format!(
        "{} as boxes; {go}. The table below has the same.",
        count(rows.len(), "node")
    )
}

fn number_of(rows: &[&NodeRow], look: Look) -> usize {
    rows.iter().filter(|row| Look::of(row) == look).count()
}

pub(crate) fn choice<T: Copy + PartialEq>(
    label: &str,
    all: &[T],
    now: T,
    text: fn(T) -> &'static str,
    href: impl Fn(T) -> String,
) -> Markup {
    html! {
        nav .choice aria-label=(label) {
            span { (label) }
            @for one in all {
                a href=(href(*one)) aria-current=[(*one == now).then_some("true")] { (text(*one)) }
            }
        }
    }
}

fn find_form(query: &Query) -> Markup {
    html! {
        form .find method="get" action="/" role="search" {
            label for="find" { "find" }
            input #find name="find" type="search" value=(query.find) placeholder="name, type, zone, reason" autocomplete="off" spellcheck="false";
            @for (name, value) in query.pairs().iter().filter(|(name, _)| *name != "find") {
                input type="hidden" name=(name) value=(value);
            }
        }
    }
}

/// Each verdict has its own pattern, so that it can be recognized without color.
fn patterns() -> Markup {
    PreEscaped(
        r#"<defs><pattern id="p-go" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="stroke" d="M0 0V8"/></pattern><pattern id="p-leaving" width="6" height="6" patternUnits="userSpaceOnUse"><path class="stroke" d="M0 0V6"/></pattern><pattern id="p-coming" width="7" height="7" patternUnits="userSpaceOnUse"><circle class="dot" cx="2" cy="2" r="1.2"/></pattern><pattern id="p-broken" width="9" height="9" patternUnits="userSpaceOnUse"><path class="stroke" d="M0 0L9 9M9 0L0 9"/></pattern><pattern id="p-unknown" width="11" height="11" patternUnits="userSpaceOnUse"><path class="stroke" d="M0 5H11M5 0V11"/></pattern><pattern id="p-unmanaged" width="6" height="6" patternUnits="userSpaceOnUse"><path class="stroke" d="M0 0H6"/></pattern><pattern id="p-daemon" width="5" height="5" patternUnits="userSpaceOnUse"><path class="stroke" d="M0 5L5 0"/></pattern></defs>"#
            .to_owned(),
    )
}

fn draw_area(area: &Area<'_>) -> Markup {
    let rect = area.rect;
    // Seven units a letter at this size; what does not fit is truncated, with the full text in the title.
    let letters = (rect.width / 6.3) as usize;
    html! {
        g .area {
            title { (area.title) }
            rect .frame x=(units(rect.x)) y=(units(rect.y)) width=(units(rect.width)) height=(units(rect.height)) rx="3" {}
            text x=(units(rect.x + 5.0)) y=(units(rect.y + 14.0)) { (cut(&area.title, letters)) }
        }
    }
}

/// As many letters as there is room for.
fn cut(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars()
        .take(letters.saturating_sub(1))
        .chain(['…'])
        .collect()
}

fn draw_box(placed: &Placed<'_>, query: &Query, shown: usize) -> Markup {
    let row = placed.row;
    let look = Look::of(row);
    let rect = placed.rect.inset(1.0);
    let fill = part(rect, row.dominant());
    let daemons = part(rect, row.daemons);
    let is_chosen = query.node.as_deref() == Some(&row.name);
    let has_text = shown <= MOST_TEXTS && rect.width > 42.0 && rect.height > 18.0;
    let letters = ((rect.width - 6.0) / 6.7) as usize;
    let kind = row.instance_type.as_deref().unwrap_or(&row.name);
    let text = format!("{} {kind}", look.glyph());
    let price = row
        .price
        .map_or("? $/h".to_owned(), |price| format!("{}/h", dollars(price.0)));
    html! {
        a .node .(look.class()) .chosen[is_chosen] href=(query.href(|query| { query.node = Some(row.name.clone()); query.pod = None; })) data-node=(row.name) tabindex="-1" {
            title { (hover(row)) }
            rect .room x=(units(rect.x)) y=(units(rect.y)) width=(units(rect.width)) height=(units(rect.height)) rx="2" {}
            rect .fill x=(units(fill.x)) y=(units(fill.y)) width=(units(fill.width)) height=(units(fill.height)) {}
            @if daemons.height >= 1.0 {
                rect .daemons x=(units(daemons.x)) y=(units(daemons.y)) width=(units(daemons.width)) height=(units(daemons.height)) {}
            }
            @if !matches!(look, Look::Keep) {
                rect .pattern x=(units(rect.x)) y=(units(rect.y)) width=(units(rect.width)) height=(units(rect.height)) fill=(format!("url(#p-{})", look.class())) {}
            }
            @if has_text {
                text x=(units(rect.x + 4.0)) y=(units(rect.y + 13.0)) { (cut(&text, letters)) }
                @if rect.height > 34.0 && rect.width > 58.0 {
                    text .small x=(units(rect.x + 4.0)) y=(units(rect.y + 27.0)) { (price) }
                }
            }
        }
    }
}

/// The lowest part of a box.
fn part(rect: Rect, thousandths: i64) -> Rect {
    let height = rect.height * thousandths.clamp(0, 1000) as f64 / 1000.0;
    Rect {
        y: rect.y + rect.height - height,
        height,
        ..rect
    }
}

/// What is said when a pointer rests on a box.
pub(crate) fn hover(row: &NodeRow) -> String {
    let mut text = format!("{}\n{}", row.name, verdict_words(row));
    let why = why(row);
    if !why.is_empty() {
        let _ = write!(text, ": {why}");
    }
    let kind = [&row.instance_type, &row.capacity_type, &row.zone];
    let kind: Vec<&str> = kind.into_iter().flatten().map(String::as_str).collect();
    let price = row.price.map_or("price unknown".to_owned(), |price| {
        format!("{}/h", dollars(price.0))
    });
    let _ = write!(
        text,
        "\n{} · {price}\ncpu {} · memory {} · {}",
        kind.join(" "),
        percent(spokeshave_view::share(row.cpu)),
        percent(spokeshave_view::share(row.memory)),
        count(usize::try_from(row.pods.1).unwrap_or_default(), "pod")
    );
    text
}

/// Thousands of boxes as a few shapes: one for each look, and one for what is requested of them.
fn compact(areas: &[Area<'_>]) -> Markup {
    let mut rooms: BTreeMap<Look, (String, String)> = BTreeMap::new();
    for placed in areas.iter().flat_map(|area| &area.nodes) {
        let rect = placed
            .rect
            .inset(placed.rect.width.min(placed.rect.height) * 0.06);
        let (room, fill) = rooms.entry(Look::of(placed.row)).or_default();
        outline(room, rect);
        outline(fill, part(rect, placed.row.dominant()));
    }
    html! {
        @for (look, (room, fill)) in &rooms {
            g .node .(look.class()) {
                path .room d=(room) {}
                path .fill d=(fill) {}
                @if *look != Look::Keep { path .pattern d=(room) fill=(format!("url(#p-{})", look.class())) {} }
            }
        }
    }
}

/// The chosen node among thousands.
fn chosen(areas: &[Area<'_>], query: &Query) -> Markup {
    let mut nodes = areas.iter().flat_map(|area| &area.nodes);
    let found = nodes.find(|placed| query.node.as_deref() == Some(&placed.row.name));
    html! {
        @if let Some(rect) = found.map(|placed| placed.rect) {
            rect .ring x=(units(rect.x)) y=(units(rect.y)) width=(units(rect.width)) height=(units(rect.height)) {}
        }
    }
}

fn outline(path: &mut String, rect: Rect) {
    let (x, y, width, height) = (
        units(rect.x),
        units(rect.y),
        units(rect.width),
        units(rect.height),
    );
    let _ = write!(path, "M{x} {y}h{width}v{height}h-{width}z");
}

fn legend(rows: &[&NodeRow], is_compact: bool) -> Markup {
    html! {
        ul .legend {
            @for look in Look::ALL {
                @let number = number_of(rows, look);
                @if number > 0 {
                    li {
                        svg .swatch .node .(look.class()) viewBox="0 0 16 12" aria-hidden="true" {
                            rect .room width="16" height="12" {}
                            rect .fill y="5" width="16" height="7" {}
                            @if look != Look::Keep { rect .pattern width="16" height="12" fill=(format!("url(#p-{})", look.class())) {} }
                        }
                        (look.glyph()) " " (look.words()) " " b { (number) }
                    }
                }
            }
            li .note {
                "Area: the size chosen above. Filled: requested, the larger of cpu and memory; hatched below: DaemonSets."
                @if rows.len() > MOST_TEXTS { " Names: point at a box, or press / and type." }
                @if is_compact { " Without JavaScript: the table." }
            }
        }
    }
}
