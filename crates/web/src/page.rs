//! The whole page as one document.

use crate::assets;
use crate::board::{Answer, Shown};
use crate::query::Query;
use crate::{boxes, budgets, detail, panels, table, timeline};
use maud::{DOCTYPE, Markup, html};
use spokeshave_view::{detail as detail_of, pod_story};

/// Draws the page of what is shown. `answer` is set if the query assumes something away; `trouble` says why what is shown is not up to date, if it is not.
pub fn render(
    shown: &Shown,
    query: &Query,
    answer: Option<&Answer>,
    source: &str,
    trouble: Option<&str>,
) -> String {
    let supposed = answer.and_then(|answer| answer.as_ref().ok());
    let drawn = supposed.map_or(shown, |(drawn, _)| drawn);
    let difference = answer.map(|answer| match answer {
        Ok((_, difference)) => Ok(difference.clone()),
        Err(error) => Err(error.clone()),
    });
    let node = query.node.as_deref();
    let now = node.and_then(|name| detail_of(&drawn.judged, name));
    let before = node
        .filter(|_| supposed.is_some())
        .and_then(|name| detail_of(&shown.judged, name));
    let pod = query.pod.as_deref().and_then(|key| pod_story(&drawn.judged, key));
    let view = &drawn.view;
    let body = html! {
        (panels::header(view, query, source, trouble))
        main {
            (panels::what_if(query, difference.as_ref()))
            (timeline::panel(view, query))
            div .columns {
                (boxes::panel(view, query))
                (detail::panel(query, view.header.now, now.as_ref(), before.as_ref(), pod.as_ref()))
            }
            div .halves {
                (panels::pending(view, query))
                (budgets::panel(view, query))
            }
            (table::panel(view, query))
        }
        (help())
        p #announce .hidden-text aria-live="polite" {}
        div #tip role="tooltip" hidden {}
    };
    document("Spokeshave", view.revision, body).into_string()
}

/// A page that says one thing, for what cannot be shown.
pub(crate) fn message(title: &str, text: &str) -> String {
    let body = html! { main { section .panel { h1 { (title) } p { (text) } } } };
    document(title, 0, body).into_string()
}

fn document(title: &str, revision: u64, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-revision=(revision) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href=(assets::address("icon.svg"));
                link rel="stylesheet" href=(assets::address("page.css"));
                script type="module" src=(assets::address("page.js")) {}
            }
            body { a .skip href="#nodes" { "Skip to the table of nodes" } (body) }
        }
    }
}

fn help() -> Markup {
    let keys = [
        ("/", "find a node"),
        ("g", "group by the next thing"),
        ("s", "size by the next thing"),
        ("z", "the next span of the time axis"),
        ("[ ]", "earlier, later"),
        (".", "to the newest"),
        ("arrows", "move between boxes"),
        ("Enter", "open the box"),
        ("w", "assume the first blocker away, or put it back"),
        ("b", "to the boxes"),
        ("p", "to the pending pods"),
        ("t", "to the table"),
        ("Esc", "back"),
        ("?", "these keys"),
    ];
    html! {
        dialog #keys aria-labelledby="keys-title" {
            h2 #keys-title { "Keys" }
            dl .facts { @for (key, what) in keys { div { dt { kbd { (key) } } dd { (what) } } } }
            form method="dialog" { button { "close" } }
        }
    }
}
