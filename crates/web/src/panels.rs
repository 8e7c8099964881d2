//! The header, the banner of what-ifs, and the pods that wait.

use crate::draw::{change, count, dollars, known_saving, known_sum, percent, time};
use crate::query::Query;
use maud::{Markup, html};
use spokeshave_model::Price;
use spokeshave_story::explain::age;
use spokeshave_view::{Account, Difference, Group, Header, Place, View};
use std::borrow::Cow;

/// Verdicts that the banner names.
const NAMED: usize = 12;
/// Groups of pods that are shown.
const GROUPS: usize = 40;
/// What the numbers of the header count.
const NODES: &str = "Nodes, those on their way in and out included.";
const PODS: &str =
    "Pods with a node that have not ended, those that wait for one, and those for which none is planned.";
const REQUESTED: &str = "Requests of pods, of what nodes can give.";
const IDLE: &str = "The part of the price that no pod asks for, by the larger of cpu and memory.";
const COULD_SAVE: &str = "What the nodes that may go would save, each judged alone, or the next commands together, whichever is more. Next: those commands.";
const SUPPOSED: &str = "What the address of this page assumes away.";

/// The numbers that come first; `trouble` says why they are not up to date, if they are not.
pub(crate) fn header(view: &View, query: &Query, source: &str, trouble: Option<&str>) -> Markup {
    let header = &view.header;
    let numbers = numbers(header, query);
    html! {
        header #top {
            h1 { a href="/" { "Spokeshave" } span .source { (source) } }
            div {
                dl .numbers { @for (name, value, title) in &numbers { div title=(title) { dt { (name) } dd { (value) } } } }
                // Titles are for those who point.
                details #counted {
                    summary { "what is counted" }
                    dl .facts { @for (name, _, title) in &numbers { div { dt { (name) } dd { (title) } } } }
                }
            }
            p .when {
                "at " (time(header.now, "%Y-%m-%d %H:%M:%S UTC"))
                // No live region: each drawing would be one more thing that a screen reader reads out.
                span #live .off[trouble.is_some()] { @if trouble.is_some() { "not up to date" } }
                button #zone type="button" hidden { "UTC" }
                button #help type="button" hidden { "?" }
            }
            @if let Some(why) = trouble {
                p .missing { "? not up to date since " (time(header.now, "%Y-%m-%d %H:%M:%S UTC")) ": " (why) }
            }
            @if let Some(settings) = &view.settings {
                @for line in settings.lines() { p .settings { (line) } }
            }
            @for missing in &header.missing {
                p .missing { "? not observed: " code { (missing.resource) } " — " (missing.message) "." }
            }
            @if !header.missing.is_empty() && !header.unknown.is_empty() {
                p .missing { "What depends on what was not observed is unknown." }
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

/// The numbers: names, values, and what is counted.
fn numbers(header: &Header, query: &Query) -> Vec<(&'static str, Markup, Cow<'static, str>)> {
    let nodes = html! { b { (header.nodes) } (shares(header)) };
    let pods = html! {
        b { (header.pods) }
        @if header.pending > 0 { span .bad { " " (header.pending) " pending" } }
        @if header.unplanned > 0 { " (" (header.unplanned) " not planned for)" }
    };
    let requested = html! {
        b { "cpu " (percent(header.cpu.percent() * 10)) } " memory " (percent(header.memory.percent() * 10))
    };
    let cost = money(header, "price", cost(header));
    let idle = money(header, "idle", html! { b { (idle(header)) } });
    let could_save = money(header, "couldSave", could_save(header));
    let mut numbers = vec![
        ("cost", cost, of_month(header).into()),
        ("nodes", nodes, NODES.into()),
        ("pods", pods, PODS.into()),
        ("requested", requested, REQUESTED.into()),
        ("idle", idle, IDLE.into()),
        ("could save", could_save, COULD_SAVE.into()),
    ];
    if query.supposed() > 0 || query.is_too_much {
        let clear = query.href(|query| {
            query.without.clear();
            query.gone.clear();
        });
        let supposed = html! {
            b { @if query.is_too_much { "too much" } @else { (query.supposed()) } }
            " " a href=(clear) { "clear" }
        };
        numbers.push(("what if", supposed, SUPPOSED.into()));
    }
    numbers
}

fn cost(header: &Header) -> Markup {
    html! {
        b { (cost_words(header)) }
        @if header.is_priced() { (day_ago(header)) }
    }
}

/// What managed nodes cost, where there are any.
pub(crate) fn cost_words(header: &Header) -> String {
    if header.has_managed_nodes() {
        known_sum(header.price.0, header.nodes_without_price)
    } else {
        "no managed node".to_owned()
    }
}

fn of_month(header: &Header) -> String {
    if !header.has_managed_nodes() {
        return "What nodes cost that are not managed is not known.".to_owned();
    }
    if !header.is_priced() {
        return "No price of a managed node is known.".to_owned();
    }
    let month = dollars(Price(header.price.0.0.saturating_mul(730)));
    let moved = header.account.as_ref().map(moved).unwrap_or_default();
    format!("About {month} a month. Managed nodes whose price is known.{moved}")
}

/// What has changed the price since the program looks, in a sentence; nothing where nothing has.
fn moved(account: &Account) -> String {
    let all = [
        account.launched,
        account.replacements,
        account.ended_by_commands,
        account.ended_otherwise,
    ];
    let repriced = account.repriced.0;
    if repriced == Price::ZERO && all.iter().all(|sum| sum.0 == Price::ZERO) {
        return String::new();
    }
    let [launched, replacements, by_commands, otherwise] = all.map(|sum| dollars(sum.0));
    let by_prices = if repriced == Price::ZERO {
        String::new()
    } else {
        format!("; {} by other prices", change(Price(repriced.0.saturating_neg())))
    };
    format!(
        " Since the program looks, an hour: {launched} launched, {replacements} of replacements; ended {by_commands} by commands, {otherwise} otherwise{by_prices}."
    )
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

/// Of nodes whose price is not known nobody knows what they would save.
fn could_save(header: &Header) -> Markup {
    let (possible, unknown) = (header.possible_savings(), header.savings_without_price);
    let is_some = possible > Price::ZERO;
    html! {
        @if is_some || (header.is_priced() && unknown == 0) {
            b .good[is_some] { (known_saving(possible, unknown, true)) "/h" }
        } @else { b { "?" } }
        @if header.next_saves.0 > Price::ZERO { " next " (known_saving(header.next_saves.0, unknown, true)) }
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
                    @match answer {
                        Ok(_) => p { "Everything below is drawn as if these things were gone. " b { "Nothing is changed in the cluster." } " The address of this page is the argument: send it." },
                        Err(error) => p .bad role="alert" { "Nothing of this is assumed: " (error) ". Everything below is the cluster as it is." },
                    }
                }
                (switches(query, answer.as_ref().ok()))
                @if let Ok(difference) = answer { (told(difference, query)) }
            }
        }
    }
}

/// What the address assumes away, as far as it was assumed.
fn switches(query: &Query, difference: Option<&Difference>) -> Markup {
    let is_absent = |one: &String| difference.is_some_and(|difference| difference.absent.contains(one));
    // The script finds by them what a switch is of.
    let switch = |word: &str, one: &String, href: String| {
        let is_on = difference.is_some() && !is_absent(one);
        let [toggle, gone] = ["without", "gone"].map(|name| (name == word).then_some(one));
        html! {
            li {
                a href=(href) role="switch" aria-checked=(if is_on { "true" } else { "false" }) data-toggle=[toggle] data-gone=[gone] { @if is_on { "✓ " } (word) " " (one) }
                @if is_absent(one) { span .note { " (not there any more)" } }
            }
        }
    };
    html! {
        ul .toggles {
            @for one in &query.without { (switch("without", one, query.toggled(one))) }
            @for one in &query.gone { (switch("gone", one, query.href(|query| query.gone.retain(|other| other != one)))) }
        }
    }
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
    let is_priced = |price: Price, unpriced: usize| price > Price::ZERO || unpriced == 0;
    let could_save = known_saving(
        difference.could_save_before.0,
        difference.savings_without_price_before,
        is_priced(difference.price_before.0, unpriced),
    );
    let could_save_then = known_saving(
        difference.could_save_after.0,
        difference.savings_without_price_after,
        is_priced(difference.price_after.0, unpriced_then),
    );
    html! {
        dl .numbers {
            div { dt { "could save" } dd {
                @if knows("couldSave") {
                    (could_save) " → " b { (could_save_then) "/h" }
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
        @for one in &difference.not_launched {
            p { b .bad { (count(one.nodes, "node")) } " of NodePool " (one.node_pool) " would be missing, and not be launched: " (one.message) }
        }
        @if difference.verdicts.is_empty() && !knows("verdict") {
            p { "What would be said of nodes depends on something that could not be read." }
        } @else if difference.verdicts.is_empty() && difference.regrouped.is_empty() {
            p { "No node would be judged differently: something else keeps each of them." }
        } @else if !difference.verdicts.is_empty() {
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
        @if knows("verdict") { (regrouped(difference, query)) }
    }
}

/// Nodes of which the same would be said, and that would go in other commands.
fn regrouped(difference: &Difference, query: &Query) -> Markup {
    if difference.regrouped.is_empty() {
        return html! {};
    }
    html! {
        p {
            @if difference.verdicts.is_empty() { "No node would be judged differently by itself, but which" } @else { "Besides, which" }
            " nodes go next, or with how many others, would change: "
            @for (index, node) in difference.regrouped.iter().take(NAMED).enumerate() {
                @if index > 0 { ", " }
                a href=(query.href(|query| query.node = Some(node.clone()))) { (node) }
            }
            @if difference.regrouped.len() > NAMED { " and " (difference.regrouped.len() - NAMED) " more" }
        }
    }
}

/// Pods without a node.
pub(crate) fn pending(view: &View, query: &Query) -> Markup {
    let pods: usize = view.pending.iter().map(|group| group.pods).sum();
    html! {
        section #pending .panel aria-labelledby="pending-title" tabindex="-1" {
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
            b { (group.pods) " × " } a href=(query.href(|query| { query.pod = Some(group.example.clone()); query.node = None; })) data-pod=(group.example) { (group.owner) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_view::{Dollars, NotLaunched, VerdictChange};

    /// Why the price is another one is told once it is.
    #[test]
    fn capability_21_what_has_changed_the_price_is_told_beside_it() {
        let mut account = Account {
            price_then: Dollars(Price::from_dollars(2.0)),
            ..Account::default()
        };
        assert_eq!(moved(&account), "");
        account.launched = Dollars(Price::from_dollars(1.5));
        account.replacements = Dollars(Price::from_dollars(0.2));
        account.ended_by_commands = Dollars(Price::from_dollars(1.25));
        let told = " Since the program looks, an hour: $1.50 launched, $0.200 of replacements; ended $1.25 by commands, $0.00 otherwise";
        assert_eq!(moved(&account), format!("{told}."));
        account.repriced = Dollars(Price(-300_000_000));
        assert_eq!(moved(&account), format!("{told}; −$0.300/h by other prices."));
    }

    /// Nodes of a fixed number that would not come again are none that are launched.
    #[test]
    fn invariant_24_d_356_what_cannot_be_launched_again_is_told_as_missing() {
        let missing = NotLaunched {
            node_pool: "fixed".to_owned(),
            nodes: 2,
            message: "none is left".to_owned(),
        };
        let difference = Difference {
            not_launched: vec![missing],
            ..Difference::default()
        };
        let text = told(&difference, &Query::default()).into_string();
        let says = "2 nodes</b> of NodePool fixed would be missing, and not be launched: none is left</p>";
        assert!(
            text.contains(says) && !text.contains("launched at once"),
            "{text}"
        );
    }

    /// Nodes that would go in other commands are named beside those of which something else would be said.
    #[test]
    fn w_02_what_goes_in_other_commands_is_told_besides_verdicts() {
        let change = VerdictChange {
            node: "n-one".to_owned(),
            before: Some("keep"),
            after: Some("delete"),
            saves: None,
            replacement: None,
        };
        let mut difference = Difference {
            verdicts: vec![change],
            regrouped: vec!["n-two".to_owned()],
            ..Difference::default()
        };
        let words = "which nodes go next, or with how many others, would change";
        let both = told(&difference, &Query::default()).into_string();
        assert!(both.contains("n-one") && both.contains("n-two"), "{both}");
        assert!(both.contains(&format!("Besides, {words}")), "{both}");
        difference.verdicts.clear();
        let alone = told(&difference, &Query::default()).into_string();
        assert!(alone.contains(&format!("by itself, but {words}")), "{alone}");
        difference.regrouped.clear();
        let none = told(&difference, &Query::default()).into_string();
        assert!(
            none.contains("something else keeps each of them") && !none.contains(words),
            "{none}"
        );
    }
}
