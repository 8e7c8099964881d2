//! The pane below the nodes: an explanation, a what-if, NodePools, pending pods, budgets, commands, keys. Pure.

use spokeshave_story::explain::Story;
use spokeshave_view::{BudgetDay, BudgetNow, Place, View, detail};
use spokeshave_web::Shown;

use super::frame::{Asked, Pane};
use super::line::{Line, Tone, piece};
use super::listing::Listing;
use super::without::Lines;
use super::{commands, pools};

/// The lines of the pane.
pub(super) fn draw(shown: &Shown, listing: &Listing, asked: &Asked, width: usize) -> Vec<Line> {
    let view = &shown.view;
    let wide = width.clamp(20, 200);
    let lines: Lines = match asked.pane {
        Pane::None => Vec::new(),
        Pane::Explain => match asked
            .chosen
            .as_deref()
            .and_then(|name| detail(&shown.judged, name))
        {
            Some(detail) => story(&detail.story),
            None => choose(),
        },
        Pane::Without => match asked.chosen.as_deref() {
            Some(name) => told_without(shown, asked, name),
            None => choose(),
        },
        Pane::Pools => pools::pane(view, listing.totals()),
        Pane::Pending => pending(view),
        Pane::Budgets => budgets(view),
        Pane::Commands => commands::pane(view),
        Pane::Help => HELP.lines().map(|line| (line.to_owned(), Tone::Plain)).collect(),
    };
    let folded = lines.into_iter().flat_map(|(text, tone)| {
        let folded = crate::text::wrap_at(wide, &text, 0, 2);
        let lines: Vec<Line> = folded.lines().map(|line| vec![piece(line, tone)]).collect();
        lines
    });
    folded.collect()
}

fn choose() -> Lines {
    vec![("choose a node with j and k".to_owned(), Tone::Dim)]
}

const HELP: &str = "\
j k, arrows   move            PgUp PgDn     by a screenful      Home End  to the ends
Enter         explain         w             what would happen without the things that keep the node
/             filter          o             sort by the next column
g             NodePools       p             pending pods        b         disruption budgets
c             commands        Space         pane further down   Esc       back
q, Ctrl-C     quit";

fn story(story: &Story) -> Lines {
    let mut lines = vec![(
        format!("{} {}: {}", story.object_kind, story.name, story.summary),
        Tone::Bold,
    )];
    if let Some(verdict) = &story.verdict {
        for blocker in &verdict.blockers {
            lines.push((format!("  {}: {}", blocker.object, blocker.message), Tone::Warn));
        }
        if !verdict.if_removed.is_empty() {
            lines.push((format!("  {}", verdict.if_removed), Tone::Good));
        }
    }
    lines.extend(story.waits.iter().map(|wait| {
        (
            format!("  waits for {}: {}", wait.object, wait.message),
            Tone::Warn,
        )
    }));
    lines.extend(story.next.iter().map(|next| {
        let at = next.at.map(|at| format!("{at}: ")).unwrap_or_default();
        (format!("  next: {at}{}", next.what), Tone::Plain)
    }));
    lines.extend(
        story
            .hints
            .iter()
            .map(|hint| (format!("  try: {hint}"), Tone::Plain)),
    );
    lines.extend(
        story
            .facts
            .iter()
            .map(|fact| (format!("  {}: {}", fact.name, fact.value), Tone::Dim)),
    );
    lines.extend(
        story
            .pods
            .iter()
            .map(|pod| (format!("  {} {}", pod.pod, pod.message), Tone::Dim)),
    );
    lines
}

/// The answer about a node, or that it is being worked out. One about an earlier view stays until there is one about this.
fn told_without(shown: &Shown, asked: &Asked, name: &str) -> Lines {
    let known = asked.without.as_ref().filter(|known| known.of.1 == name);
    let dots = if asked.is_ascii { "..." } else { "…" };
    let Some(known) = known else {
        let text = format!("working out what would happen without what keeps {name} {dots}");
        return vec![(text, Tone::Dim)];
    };
    let mut lines = known.lines.clone();
    if known.of.0 != shown.view.revision {
        lines.push((format!("  working it out anew {dots}"), Tone::Dim));
    }
    lines
}

fn pending(view: &View) -> Lines {
    if view.pending.is_empty() {
        return vec![("every pod has a node".to_owned(), Tone::Dim)];
    }
    let line = |group: &spokeshave_view::Group| {
        let (place, tone) = match &group.place {
            Place::Awaited => ("a node is being made".to_owned(), Tone::Plain),
            Place::Unplanned { message } => (format!("no node is planned: {message}"), Tone::Dim),
            Place::Unknown => (
                "? depends on something that could not be read".to_owned(),
                Tone::Dim,
            ),
            Place::Node { name } => (format!("go to {name}"), Tone::Plain),
            Place::New { pool, instance_type } => {
                (format!("need a new {instance_type} of {pool}"), Tone::Warn)
            }
            Place::Nowhere {
                message, in_the_way, ..
            } if in_the_way.is_empty() => (format!("no place: {message}"), Tone::Bad),
            Place::Nowhere {
                message, in_the_way, ..
            } => (
                format!("no place: {message}; in the way: {}", in_the_way.join(" and ")),
                Tone::Bad,
            ),
        };
        (format!("{} x {}: {place}", group.pods, group.owner), tone)
    };
    view.pending.iter().map(line).collect()
}

fn budgets(view: &View) -> Lines {
    if !view.header.knows("budgets") {
        let text = "? what budgets allow depends on something that could not be read";
        return vec![(text.to_owned(), Tone::Dim)];
    }
    let line = |now: &BudgetNow| {
        let (allowed, remaining) = now.of_nodes();
        let day = view.budgets.day_of(now);
        let lacks_nodes = now.error.is_none() && day.is_some_and(BudgetDay::lacks_nodes_only);
        let state = match (&now.error, allowed, remaining) {
            (Some(error), ..) => error.clone(),
            _ if lacks_nodes => "no node to disrupt".to_owned(),
            (None, Some(allowed), Some(remaining)) => {
                format!("{remaining} of {allowed} left, {} under way", now.disrupting)
            }
            (None, None, Some(remaining)) => format!("{remaining} left, {} under way", now.disrupting),
            _ => "no limit".to_owned(),
        };
        let policy = now.policy.as_ref().map(|policy| format!("; {policy}"));
        let tone = if remaining == Some(0) && !lacks_nodes {
            Tone::Bad
        } else {
            Tone::Plain
        };
        let policy = policy.unwrap_or_default();
        (format!("{} {}: {state}{policy}", now.pool, now.reason), tone)
    };
    view.budgets.now.iter().map(line).collect()
}
