//! One node or pod: its explanation as in `spokeshave explain`, with its blockers as toggles.

use crate::draw::{dollars, moment, time};
use crate::query::{LONGEST_ADDRESS, Query};
use jiff::Timestamp;
use maud::{Markup, html};
use spokeshave_model::Price;
use spokeshave_story::explain::{Meaning, PodLine, StepState, Story};
use spokeshave_view::{Detail, MOST_SUPPOSED, Toggle};

/// Pods that are listed.
const PODS: usize = 40;

/// The panel; `before` has the actual blockers, where something is assumed away.
pub(crate) fn panel(
    query: &Query,
    now: Timestamp,
    node: Option<&Detail>,
    before: Option<&Detail>,
    pod: Option<&Story>,
) -> Markup {
    html! {
        section #detail .panel aria-labelledby="detail-title" tabindex="-1" {
            @match (node, pod, &query.node, &query.pod) {
                (Some(detail), ..) => { (title(&detail.story, query)) (toggles(detail, before, query)) (story(&detail.story, query, now)) },
                (None, Some(pod), ..) => { (title(pod, query)) (story(pod, query, now)) },
                (None, None, Some(name), _) => { (absent("Node", name, query)) },
                (None, None, None, Some(name)) => { (absent("Pod", name, query)) },
                _ => { header { h2 #detail-title { "Detail" } } (nothing()) },
            }
        }
    }
}

fn nothing() -> Markup {
    html! {
        p .empty { "Choose a node: a box, or its name in the table. Why it stays, what is in the way, and what would happen without that." }
    }
}

fn absent(kind: &str, name: &str, query: &Query) -> Markup {
    html! {
        header { h2 #detail-title { (kind) " " (name) } (close(query)) }
        p .empty { "It is not in the cluster (any more)." }
    }
}

fn close(query: &Query) -> Markup {
    html! { a #close href=(query.href(|query| { query.node = None; query.pod = None; })) { "close" } }
}

fn title(story: &Story, query: &Query) -> Markup {
    html! {
        header { h2 #detail-title { (story.object_kind) " " (story.name) } (close(query)) }
        p .summary { (story.summary) }
        @if let Some(price) = story.price_per_hour { p .note { (dollars(Price::from_dollars(price))) "/h" } }
    }
}

/// The blockers of the node; those assumed away stay on the list, so that they can be restored.
fn toggles(detail: &Detail, before: Option<&Detail>, query: &Query) -> Markup {
    let earlier = before.map(|before| before.toggles.as_slice()).unwrap_or_default();
    // Where nothing could be assumed away, nothing is.
    let is_lifted = |toggle: &&Toggle| {
        let key = toggle.without.as_ref().filter(|_| before.is_some());
        key.is_some_and(|key| query.without.contains(key))
    };
    let lifted: Vec<&Toggle> = earlier.iter().filter(is_lifted).collect();
    let left: Vec<&Toggle> = detail
        .toggles
        .iter()
        .filter(|toggle| !is_lifted(toggle))
        .collect();
    let all: Vec<&str> = left
        .iter()
        .filter_map(|toggle| toggle.without.as_deref())
        .collect();
    let then = detail
        .story
        .verdict
        .as_ref()
        .map(|verdict| verdict.if_removed.as_str())
        .unwrap_or_default();
    let gone = format!("Node/{}", detail.story.name);
    html! {
        @if !left.is_empty() || !lifted.is_empty() {
            h3 { "What keeps it" }
            ul .toggles {
                @for toggle in lifted { (line(toggle, true, query)) }
                @for toggle in &left { (line(toggle, false, query)) }
            }
            @if let Some(address) = all_away(&all, query).filter(|_| all.len() == left.len()) {
                p { a href=(address) { "think all of them away" } }
            }
            @if !then.is_empty() { p .then { (then) } }
        }
        @if detail.story.object_kind == "Node" && !query.gone.contains(&gone) {
            p .note { a href=(query.href(|query| query.gone.push(gone.clone()))) data-gone=(gone) { "what if this node were gone?" } }
        }
    }
}

/// Where several blockers are assumed away at once. Of more than anybody supposes, what would happen is said all the same.
fn all_away(all: &[&str], query: &Query) -> Option<String> {
    let together = all.len() + query.supposed();
    let further = all.iter().map(|one| (*one).to_owned());
    let address = query.href(|query| query.without.extend(further));
    (all.len() > 1 && together <= MOST_SUPPOSED && address.len() <= LONGEST_ADDRESS).then_some(address)
}

fn line(toggle: &Toggle, is_on: bool, query: &Query) -> Markup {
    html! {
        li {
            @match &toggle.without {
                Some(key) => {
                    a .toggle href=(query.toggled(key)) role="switch" aria-checked=(if is_on { "true" } else { "false" }) data-toggle=(key) {
                        span .box aria-hidden="true" { (if is_on { "☑" } else { "☐" }) } " "
                        @if is_on { s { (toggle.object) } } @else { b { (toggle.object) } }
                    }
                },
                None => b { (toggle.object) },
            }
            ": " (toggle.message)
            @if toggle.without.is_none() { span .note { " (no change of an object removes this)" } }
        }
    }
}

fn story(story: &Story, query: &Query, now: Timestamp) -> Markup {
    html! {
        @if let Some(verdict) = &story.verdict {
            p .verdict {
                b { (verdict.decision) }
                @if let Some(method) = &verdict.method { " by " (method) }
                @if let Some(by) = &verdict.replacement { ": " (by) " comes instead" }
                @if let Some(saves) = &verdict.by_on_demand { ", " (saves) }
                @else if verdict.decision != "keep" && verdict.price_before > 0.0 { ", " (dollars(Price::from_dollars(verdict.price_before))) "/h → " (dollars(Price::from_dollars(verdict.price_after))) "/h" }
                @if let Some(waits) = &verdict.waits { "; " (waits) }
            }
        }
        @if !story.steps.is_empty() {
            h3 { "On its way" }
            ol .steps { @for step in &story.steps { li .(state(step.state)) {
                span .mark aria-hidden="true" { (mark(step.state)) } " " (step.name)
                @if let Some(since) = step.since { " " (moment(since, now)) }
                @if !step.detail.is_empty() { span .note { " " (step.detail) } }
            } } }
        }
        @if !story.waits.is_empty() {
            h3 { "Waits for" }
            ul { @for wait in &story.waits { li { b { (wait.object) } ": " (wait.message) } } }
        }
        @if !story.next.is_empty() {
            h3 { "Next" }
            ul { @for next in &story.next { li { @if let Some(at) = next.at { (time(at, "%Y-%m-%d %H:%M:%S")) ": " } (next.what) } } }
        }
        @if !story.hints.is_empty() {
            h3 { "Try" }
            ul { @for hint in &story.hints { li { (hint) } } }
        }
        @if !story.facts.is_empty() {
            h3 { "Facts" }
            dl .facts { @for fact in &story.facts { div { dt { (fact.name) } dd { (fact.value) } } } }
        }
        @if !story.pods.is_empty() {
            h3 { "Pods" }
            ul .pods {
                @for pod in story.pods.iter().take(PODS) { (pod_line(pod, query)) }
                @if story.pods.len() > PODS { li .note { "and " (story.pods.len() - PODS) " more" } }
            }
        }
    }
}

fn pod_line(pod: &PodLine, query: &Query) -> Markup {
    let is_quiet = matches!(pod.meaning, Meaning::Daemon | Meaning::Static | Meaning::Finished);
    html! {
        li .note[is_quiet] {
            a href=(query.href(|query| { query.pod = Some(pod.pod.clone()); query.node = None; })) { (pod.pod) }
            @if !pod.message.is_empty() { span .bad[pod.blocks] { " " (pod.message) } }
        }
    }
}

fn state(state: StepState) -> &'static str {
    match state {
        StepState::Done => "done",
        StepState::Active => "active",
        StepState::Waiting => "waiting",
        StepState::Failed => "failed",
    }
}

fn mark(state: StepState) -> &'static str {
    match state {
        StepState::Done => "✓",
        StepState::Active => "▸",
        StepState::Waiting => "·",
        StepState::Failed => "✕",
    }
}
