//! The pane below the nodes: an explanation, a what-if, NodePools, pending pods, budgets, keys. Pure.

use std::collections::BTreeMap;

use spokeshave_model::Price;
use spokeshave_story::explain::Story;
use spokeshave_view::{Place, View, detail, share};
use spokeshave_web::Shown;

use super::frame::{Asked, Pane, Without, known_sum, money};
use super::line::{Line, Tone, piece};

/// The lines of the pane.
pub(super) fn draw(shown: &Shown, asked: &Asked, width: usize) -> Vec<Line> {
    let view = &shown.view;
    let wide = width.clamp(20, 200);
    let lines: Vec<(String, Tone)> = match asked.pane {
        Pane::None => Vec::new(),
        Pane::Explain => match asked
            .chosen
            .as_deref()
            .and_then(|name| detail(&shown.judged, name))
        {
            Some(detail) => story(&detail.story),
            None => vec![("choose a node with j and k".to_owned(), Tone::Dim)],
        },
        Pane::Without => asked
            .chosen
            .as_deref()
            .map_or(Vec::new(), |name| known_without(shown, asked, name)),
        Pane::Pools => pools(view),
        Pane::Pending => pending(view),
        Pane::Budgets => budgets(view),
        Pane::Help => HELP.lines().map(|line| (line.to_owned(), Tone::Plain)).collect(),
    };
    let folded = lines.into_iter().flat_map(|(text, tone)| {
        let folded = crate::text::wrap_at(wide, &text, 0, 2);
        let lines: Vec<Line> = folded.lines().map(|line| vec![piece(line, tone)]).collect();
        lines
    });
    folded.collect()
}

const HELP: &str = "\
j k, arrows   move            PgUp PgDn     by a screenful      Home End  to the ends
Enter         explain         w             what would happen without the things that keep the node
/             filter          o             sort by the next column
g             NodePools       p             pending pods        b         disruption budgets
Esc           back            q, Ctrl-C     quit";

fn story(story: &Story) -> Vec<(String, Tone)> {
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

/// The answer for this view and node, which is worked out once.
fn known_without(shown: &Shown, asked: &Asked, name: &str) -> Vec<(String, Tone)> {
    let of = (shown.view.revision, name.to_owned());
    let mut last = asked.without.borrow_mut();
    if let Some(known) = last.as_ref().filter(|known| known.of == of) {
        return known.lines.clone();
    }
    let lines = without(shown, name);
    *last = Some(Without {
        of,
        lines: lines.clone(),
    });
    lines
}

/// What the product would say if what keeps a node were gone; worked out by the same functions as ever.
fn without(shown: &Shown, name: &str) -> Vec<(String, Tone)> {
    let Some(now) = detail(&shown.judged, name) else {
        return vec![("the node is gone".to_owned(), Tone::Dim)];
    };
    let keys: Vec<&str> = now
        .toggles
        .iter()
        .filter_map(|toggle| toggle.without.as_deref())
        .collect();
    if keys.is_empty() {
        let text = match now.toggles.first() {
            Some(toggle) => format!(
                "no change of an object removes {}: {}",
                toggle.object, toggle.message
            ),
            None if !shown.view.header.knows("verdict") => {
                "? what keeps it depends on something that could not be read".to_owned()
            }
            None => format!("nothing keeps {name}"),
        };
        return vec![(text, Tone::Dim)];
    }
    let mut lines = vec![(format!("{name} without {}", keys.join(" and ")), Tone::Bold)];
    let world = spokeshave_view::Supposition::parse(keys.iter().copied(), [])
        .and_then(|what| what.apply(&shown.judged.world, &shown.judged.policy));
    let (world, policy, _) = match world {
        Ok(found) => found,
        Err(error) => return vec![(error.to_string(), Tone::Bad)],
    };
    let then = spokeshave_view::Judged::of(world, &policy);
    let change = spokeshave_view::Difference::between(&shown.judged, &then);
    if change.verdicts.is_empty() {
        lines.push(("  no node would be judged differently".to_owned(), Tone::Plain));
    }
    for one in change.verdicts.iter().take(8) {
        let by = one
            .replacement
            .as_ref()
            .map(|by| format!(" by {by}"))
            .unwrap_or_default();
        let saves = one
            .saves
            .map(|saves| format!(", saves {}/h", money(saves.0)))
            .unwrap_or_default();
        let text = format!(
            "  {}: {} -> {}{by}{saves}",
            one.node,
            one.before.unwrap_or("-"),
            one.after.unwrap_or("gone")
        );
        lines.push((text, Tone::Good));
    }
    lines.push(("  nothing is changed in the cluster".to_owned(), Tone::Dim));
    lines
}

/// What the nodes of a NodePool amount to.
#[derive(Default)]
struct Sum {
    nodes: usize,
    price: Price,
    without_price: usize,
    room: i64,
    asked: i64,
}

fn pools(view: &View) -> Vec<(String, Tone)> {
    let mut pools: BTreeMap<&str, Sum> = BTreeMap::new();
    for row in &view.nodes.0 {
        let pool = row.pool.as_deref().unwrap_or("no NodePool");
        let sum = pools.entry(pool).or_default();
        sum.nodes += 1;
        sum.price = sum.price.saturating_add(row.price.unwrap_or_default().0);
        sum.without_price += usize::from(row.price.is_none());
        sum.room += row.cpu.0;
        sum.asked += row.cpu.1;
    }
    let line = |(name, sum): (&str, Sum)| {
        let text = format!(
            "{name}: {} nodes, {}, cpu {} %",
            sum.nodes,
            known_sum(sum.price, sum.without_price),
            share((sum.room, sum.asked)) / 10
        );
        (text, Tone::Plain)
    };
    pools.into_iter().map(line).collect()
}

fn pending(view: &View) -> Vec<(String, Tone)> {
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

fn budgets(view: &View) -> Vec<(String, Tone)> {
    if !view.header.knows("budgets") {
        let text = "? what budgets allow depends on something that could not be read";
        return vec![(text.to_owned(), Tone::Dim)];
    }
    let line = |now: &spokeshave_view::BudgetNow| {
        let (allowed, remaining) = now.of_nodes();
        let state = match (&now.error, allowed, remaining) {
            (Some(error), ..) => error.clone(),
            (None, Some(allowed), Some(remaining)) => {
                format!("{remaining} of {allowed} left, {} under way", now.disrupting)
            }
            (None, None, Some(remaining)) => format!("{remaining} left, {} under way", now.disrupting),
            _ => "no limit".to_owned(),
        };
        let policy = now.policy.as_ref().map(|policy| format!("; {policy}"));
        let tone = if remaining == Some(0) {
            Tone::Bad
        } else {
            Tone::Plain
        };
        let policy = policy.unwrap_or_default();
        (format!("{} {}: {state}{policy}", now.pool, now.reason), tone)
    };
    view.budgets.now.iter().map(line).collect()
}
