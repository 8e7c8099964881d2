//! The header, the banner of what-ifs, and the pods that wait.

use crate::draw::{change, count, dollars, known_sum, percent, time};
use crate::query::Query;
use maud::{Markup, html};
use spokeshave_model::Price;
use spokeshave_story::explain::age;
use spokeshave_view::{Difference, Group, Header, Place, View};

/// Verdicts that the banner names.
const NAMED: usize = 12;
/// Groups of pods that are shown.
const GROUPS: usize = 40;

/// The numbers that come first.
pub(crate) fn header(view: &View, query: &Query, source: &str) -> Markup {
    let header = &view.header;
    let toggles = query.without.len() + query.gone.len();
    html! {
        header #top {
            h1 { a href="/" { "Spokeshave" } span .source { (source) } }
            dl .numbers {
                (number("cost", money(header, "price", cost(header)), &of_month(header)))
                (number("nodes", html! { b { (header.nodes) } (shares(header)) }, "Nodes, those on their way in and out included."))
                (number("pods", html! { b { (header.pods) } @if header.pending > 0 { span .bad { " " (header.pending) " pending" } } @if header.unplanned > 0 { " (" (header.unplanned) " not planned for)" } }, "Pods with a node that have not ended, those that wait for one, and those for which none is planned."))
                (number("requested", html! { b { "cpu " (percent(header.cpu.percent() * 10)) } " memory " (percent(header.memory.percent() * 10)) }, "Requests of pods, of what nodes can give."))
                (number("idle", money(header, "idle", html! { b { (idle(header)) } }), "The part of the price that no pod asks for, by the larger of cpu and memory."))
                (number("could save", money(header, "couldSave", could_save(header)), "What the nodes that may go would save, each judged alone; together it may be less."))
                @if toggles > 0 { (number("what if", html! { b { (toggles) } " " a href=(query.href(|query| { query.without.clear(); query.gone.clear(); })) { "clear" } }, "Blockers that are assumed away.")) }
            }
            p .when {
                "at " (time(header.now, "%Y-%m-%d %H:%M:%S UTC"))
                span #live role="status" {}
                button #zone type="button" hidden { "UTC" }
                button #help type="button" hidden { "?" }
            }
            @for missing in &header.missing {
                p .missing { "? not observed: " code { (missing.resource) } " — " (missing.message) ". What depends on it is unknown." }
            }
        }
    }
}

/// A figure, or a question mark where what it depends on was not read.
fn money(header: &Header, field: &str, known: Markup) -> Markup {
    if header.knows(field) {
        known
    } else {
        html! { b { "?" } }
    }
}

fn number(name: &str, value: Markup, title: &str) -> Markup {
    html! { div title=(title) { dt { (name) } dd { (value) } } }
}

fn cost(header: &Header) -> Markup {
    html! {
        b { (known_sum(header.price.0, header.nodes_without_price)) }
        @if header.is_priced() { (day_ago(header)) }
    }
}

fn of_month(header: &Header) -> String {
    if !header.is_priced() {
        return "No price of a managed node is known.".to_owned();
    }
    let month = dollars(Price(header.price.0.0.saturating_mul(730)));
    format!("About {month} a month. Managed nodes whose price is known.")
}

/// A part of the price is as much of a lower bound as the price.
fn idle(header: &Header) -> String {
    if !header.is_priced() {
        return "?".to_owned();
    }
    let least = if header.nodes_without_price > 0 {
        "≥ "
    } else {
        ""
    };
    format!("{least}{}/h", dollars(header.idle.0))
}

/// An upper bound, unless there are nodes of which nobody knows what they would save.
fn could_save(header: &Header) -> Markup {
    let is_some = header.could_save.0 > Price::ZERO;
    html! {
        @if is_some || header.is_priced() {
            b .good[is_some] { @if is_some && header.nodes_without_price == 0 { "≤ " } (dollars(header.could_save.0)) "/h" }
        } @else { b { "?" } }
        @if header.next_saves.0 > Price::ZERO { " next " (dollars(header.next_saves.0)) }
    }
}

fn day_ago(header: &Header) -> Markup {
    let Some(before) = header.price_a_day_ago else {
        return html! {};
    };
    let difference = header.price.0.saturating_sub(before.0);
    let sign = if difference.0 <= 0 { "▼" } else { "▲" };
    html! { " " (sign) (dollars(Price(difference.0.saturating_abs()))) " since 24 h" }
}

fn shares(header: &Header) -> Markup {
    let known = |field: &str, number: usize| if header.knows(field) { number } else { 0 };
    let parts = [
        (known("coming", header.coming), "coming"),
        (header.leaving, "leaving"),
        (header.broken, "not ready"),
        (known("unmanaged", header.unmanaged), "not managed"),
    ];
    let unpriced = known("nodesWithoutPrice", header.nodes_without_price);
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, name)| format!("{number} {name}"))
        .collect();
    html! { @if !parts.is_empty() { " (" (parts.join(", ")) ")" } @if unpriced > 0 { " " span .bad { (unpriced) " without a price" } } }
}

/// What a what-if changes.
pub(crate) fn what_if(query: &Query, answer: Option<&Result<Difference, String>>) -> Markup {
    html! {
        section #whatif .panel .whatif hidden[answer.is_none()] aria-labelledby="whatif-title" {
            @if let Some(answer) = answer {
                header {
                    h2 #whatif-title { "What if" }
                    p { "Everything below is drawn as if these things were gone. " b { "Nothing is changed in the cluster." } " The address of this page is the argument: send it." }
                }
                ul .toggles {
                    @for one in &query.without { li { a href=(query.toggled(one)) role="switch" aria-checked="true" { "✓ without " (one) } } }
                    @for one in &query.gone { li { a href=(query.href(|query| query.gone.retain(|other| other != one))) role="switch" aria-checked="true" { "✓ gone " (one) } } }
                }
                @match answer {
                    Ok(difference) => (told(difference, query)),
                    Err(error) => p .bad role="alert" { (error) },
                }
            }
        }
    }
}

/// What nodes would save, of which so many have no price.
fn saving(price: Price, without_price: usize) -> String {
    if price == Price::ZERO && without_price > 0 {
        return "?".to_owned();
    }
    dollars(price)
}

fn told(difference: &Difference, query: &Query) -> Markup {
    let knows = |part: &str| !difference.unknown.contains(&part);
    let (unpriced, unpriced_then) = (
        difference.nodes_without_price_before,
        difference.nodes_without_price_after,
    );
    let saved = difference.price_before.0.saturating_sub(difference.price_after.0);
    // What comes and goes without a price is in no difference of prices.
    let is_told = saved.0 != 0 && unpriced == 0 && unpriced_then == 0;
    html! {
        dl .numbers {
            div { dt { "could save" } dd {
                @if knows("couldSave") {
                    (saving(difference.could_save_before.0, unpriced)) " → " b { (saving(difference.could_save_after.0, unpriced_then)) "/h" }
                } @else { b { "?" } }
            } }
            div { dt { "cost, with launches" } dd {
                @if knows("price") {
                    (known_sum(difference.price_before.0, unpriced)) " → " b { (known_sum(difference.price_after.0, unpriced_then)) }
                    @if is_told { " (" (change(saved)) ")" }
                } @else { b { "?" } }
            } }
            @if difference.launches > 0 { div { dt { "launched at once" } dd { b { (count(difference.launches, "node")) } } } }
            @if difference.unplaced_after != difference.unplaced_before {
                div { dt { "pods without a place" } dd { (difference.unplaced_before) " → " b .bad { (difference.unplaced_after) } } }
            }
        }
        @if difference.verdicts.is_empty() && !knows("verdict") {
            p { "What would be said of nodes depends on something that could not be read." }
        } @else if difference.verdicts.is_empty() {
            p { "No node would be judged differently: something else keeps each of them." }
        } @else {
            ul .changes {
                @for one in difference.verdicts.iter().take(NAMED) {
                    li {
                        a href=(query.href(|query| query.node = Some(one.node.clone()))) { (one.node) } ": "
                        (one.before.unwrap_or("not judged")) " → "
                        b { (one.after.unwrap_or("gone")) }
                        @if let Some(by) = &one.replacement { " by " (by) }
                        @if let Some(saves) = one.saves { ", " (change(saves.0)) }
                    }
                }
                @if difference.verdicts.len() > NAMED { li { "and " (difference.verdicts.len() - NAMED) " more" } }
            }
        }
    }
}

/// Pods without a node.
pub(crate) fn pending(view: &View, query: &Query) -> Markup {
    let pods: usize = view.pending.iter().map(|group| group.pods).sum();
    html! {
        section #pending .panel aria-labelledby="pending-title" {
            header { h2 #pending-title { "Pending pods" } @if pods > 0 { p .note { (count(pods, "pod")) " in " (count(view.pending.len(), "group")) } } }
            @if view.header.pools == 0 && view.header.missing.is_empty() {
                p .empty { "There is no NodePool, so nothing is launched. A first one: " code { "spokeshave crds | kubectl apply --server-side -f -" } ", then a NodePool as in docs/operations.md." }
            }
            @if view.pending.is_empty() {
                p .empty { "Every pod has a node." }
            } @else {
                ul .groups { @for group in view.pending.iter().take(GROUPS) { (group_line(group, view, query)) } }
                @if view.pending.len() > GROUPS { p .note { "and " (view.pending.len() - GROUPS) " groups more" } }
            }
        }
    }
}

fn group_line(group: &Group, view: &View, query: &Query) -> Markup {
    let requests: Vec<String> = group
        .requests
        .iter()
        .map(|(name, amount)| format!("{name} {amount}"))
        .collect();
    let is_stuck = matches!(group.place, Place::Nowhere { .. });
    html! {
        li .stuck[is_stuck] {
            b { (group.pods) " × " } a href=(query.href(|query| { query.pod = Some(group.example.clone()); query.node = None; })) { (group.owner) }
            @if !requests.is_empty() { span .note { " " (requests.join(", ")) } }
            @if let Some(since) = group.since { span .note { " for " (age(since, view.header.now)) } }
            br;
            @match &group.place {
                Place::Awaited => "a node is being made for them",
                Place::Unplanned { message } => { "no node is planned: " (message) },
                Place::Unknown => "where they will run depends on something that could not be read",
                Place::Node { name } => { "go to " a href=(query.href(|query| { query.node = Some(name.clone()); query.pod = None; })) { (name) } },
                Place::New { pool, instance_type } => { "need a new node: " (instance_type) " of NodePool " (pool) },
                Place::Nowhere { message, in_the_way, hints } => {
                    span .bad { "no place: " } (message)
                    @if !in_the_way.is_empty() { br; "in the way: " b { (in_the_way.join(" and ")) } }
                    @for hint in hints { br; span .note { "try: " (hint) } }
                },
            }
        }
    }
}
