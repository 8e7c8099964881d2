//! The pane below the nodes: an explanation, a what-if, NodePools, pending pods, budgets, commands, keys. Pure.
//!
//! What a pane tells of a view is kept as far as it has been drawn: a redraw makes nothing that was made before, and nothing that lies below the screen.

use std::sync::Arc;

use spokeshave_story::explain::Story;
use spokeshave_view::{BudgetDay, BudgetNow, Group, Place, View, detail};
use spokeshave_web::Shown;

use super::frame::{Asked, Pane};
use super::line::{Line, Tone, piece};
use super::listing::Listing;
use super::without::Lines;
use super::{commands, pools};

#[cfg(test)]
thread_local! {
    /// Explanations that this thread has worked out.
    static STORIES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// Paragraphs that this thread has folded.
    static FOLDED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// What of a pane is on the screen.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// How many lines the pane takes, whichever of its lines is the first; none where it tells nothing.
    pub(super) height: usize,
    /// Its lines: no more than it takes.
    pub(super) lines: Vec<Line>,
}

/// The lines of the pane from the requested one on, as many as there is room for; its last ones where there are fewer than that.
pub(super) fn draw(shown: &Shown, listing: &Listing, asked: &Asked, width: usize, room: usize) -> Part {
    let mut kept = asked.told.borrow_mut();
    let known = kept.take();
    if asked.pane == Pane::None {
        // What was kept is let go with its view.
        return Part::default();
    }
    let width = width.clamp(20, 200);
    let known = known.filter(|told| told.answers(shown, asked, width));
    let told = kept.insert(known.unwrap_or_else(|| Told::new(shown, asked, width)));
    told.fold(asked.pane_first.get().saturating_add(room), listing);
    let first = asked.pane_first.get().min(told.lines.len().saturating_sub(room));
    // Whoever asks for more than there is does not ask for what will come.
    asked.pane_first.set(first);
    Part {
        height: told.lines.len().min(room),
        lines: told.lines.iter().skip(first).take(room).cloned().collect(),
    }
}

/// What a pane tells of a view, as far as it has been drawn.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// Kept, so that no other view can be taken for it.
    view: Arc<View>,
    pane: Pane,
    /// Of which node, where it is about one.
    node: Option<String>,
    width: usize,
    /// The first paragraphs: those that are not one of many.
    begin: Lines,
    /// How many paragraphs are folded.
    paragraphs: usize,
    lines: Vec<Line>,
}

impl Told {
    fn new(shown: &Shown, asked: &Asked, width: usize) -> Self {
        Self {
            view: Arc::clone(&shown.view),
            pane: asked.pane,
            node: asked.chosen.clone().filter(|_| asked.pane == Pane::Explain),
            width,
            begin: begin(shown, asked),
            paragraphs: 0,
            lines: Vec::new(),
        }
    }

    /// Whether this is what is asked for. The answer of a what-if comes from elsewhere and is short: it is told anew each time.
    fn answers(&self, shown: &Shown, asked: &Asked, width: usize) -> bool {
        let is_of_node = match asked.pane {
            Pane::Without => false,
            Pane::Explain => self.node == asked.chosen,
            _ => true,
        };
        is_of_node && Arc::ptr_eq(&self.view, &shown.view) && self.pane == asked.pane && self.width == width
    }

    /// Goes on until there are as many lines as wanted, or all.
    fn fold(&mut self, wanted: usize, listing: &Listing) {
        while self.lines.len() < wanted {
            let Some((text, tone)) = self.paragraph(listing) else {
                return;
            };
            #[cfg(test)]
            FOLDED.set(FOLDED.get() + 1);
            self.paragraphs += 1;
            let folded = crate::text::wrap_at(self.width, &text, 0, 2);
            self.lines
                .extend(folded.lines().map(|line| vec![piece(line, tone)]));
        }
    }

    /// The next paragraph.
    fn paragraph(&self, listing: &Listing) -> Option<(String, Tone)> {
        match self.paragraphs.checked_sub(self.begin.len()) {
            None => self.begin.get(self.paragraphs).cloned(),
            Some(at) => one_of_many(self.pane, &self.view, listing, at),
        }
    }
}

/// The paragraphs that a pane begins with; all of them, where none of it is a list of what there is in the cluster.
fn begin(shown: &Shown, asked: &Asked) -> Lines {
    let view = &shown.view;
    let dim = |text: &str| vec![(text.to_owned(), Tone::Dim)];
    match (asked.pane, asked.chosen.as_deref()) {
        (Pane::Explain | Pane::Without, None) => choose(),
        (Pane::Explain, Some(name)) => explained(shown, name),
        (Pane::Without, Some(name)) => told_without(shown, asked, name),
        (Pane::Pending, _) if view.pending.is_empty() => dim("every pod has a node"),
        (Pane::Budgets, _) if !view.header.knows("budgets") => {
            dim("? what budgets allow depends on something that could not be read")
        }
        (Pane::Commands, _) => commands::before(view),
        (Pane::Help, _) => HELP.lines().map(|line| (line.to_owned(), Tone::Plain)).collect(),
        _ => Lines::new(),
    }
}

/// A paragraph about one of many, by its place among them.
fn one_of_many(pane: Pane, view: &View, listing: &Listing, at: usize) -> Option<(String, Tone)> {
    match pane {
        Pane::Pools => listing.totals().get(at).map(|one| pools::told(view, one)),
        Pane::Pending => view.pending.get(at).map(waiting),
        Pane::Budgets if view.header.knows("budgets") => {
            view.budgets.now.get(at).map(|now| budget(view, now))
        }
        Pane::Commands => commands::told(view, at),
        _ => None,
    }
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

fn explained(shown: &Shown, name: &str) -> Lines {
    #[cfg(test)]
    STORIES.set(STORIES.get() + 1);
    match detail(&shown.judged, name) {
        Some(detail) => story(&detail.story),
        None => choose(),
    }
}

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

fn waiting(group: &Group) -> (String, Tone) {
    let (place, tone) = match &group.place {
        Place::Awaited => ("a node is being made".to_owned(), Tone::Plain),
        Place::Unplanned { message } => (format!("no node is planned: {message}"), Tone::Dim),
        Place::Unknown => (
            "? depends on something that could not be read".to_owned(),
            Tone::Dim,
        ),
        Place::Node { name } => (format!("go to {name}"), Tone::Plain),
        Place::New { pool, instance_type } => (format!("need a new {instance_type} of {pool}"), Tone::Warn),
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
}

fn budget(view: &View, now: &BudgetNow) -> (String, Tone) {
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
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crossterm::event::KeyCode;
    use spokeshave_view::NodeRow;

    use super::*;
    use crate::top::commands::tests::entry;
    use crate::top::frame::{Size, draw};
    use crate::top::line::plain;
    use crate::top::tests::{hear, stuck};

    const SIZE: Size = Size {
        width: 100,
        height: 30,
    };

    /// So many NodePools with a node and a budget each, groups of pending pods, and commands.
    fn many(number: usize) -> Shown {
        let mut shown = stuck();
        let view = Arc::make_mut(&mut shown.view);
        let like = view.nodes.0[0].clone();
        let node = |index: usize| NodeRow {
            name: format!("web-{index:04}"),
            pool: Some(format!("pool-{index:04}")),
            ..like.clone()
        };
        view.nodes.0 = (0..number).map(node).collect();
        let now = |index: usize| BudgetNow {
            pool: format!("pool-{index:04}"),
            reason: "Empty".to_owned(),
            nodes: 1,
            disrupting: 0,
            allowed: None,
            remaining: None,
            policy: None,
            error: None,
        };
        view.budgets.now = (0..number).map(now).collect();
        let group = |index: usize| Group {
            owner: format!("ReplicaSet shop/web-{index:04}"),
            pods: 1,
            example: format!("shop/web-{index:04}-a"),
            since: None,
            requests: BTreeMap::new(),
            place: Place::Awaited,
        };
        view.pending = (0..number).map(group).collect();
        let command = |index: usize| entry(&format!("c-{index:04}"), "2026-03-02T11:00:00Z", "Draining", 0);
        view.commands = (0..number).map(command).collect();
        shown
    }

    /// How many paragraphs it takes to draw.
    fn folds(shown: &Shown, asked: &Asked, trouble: Option<&str>) -> usize {
        let before = FOLDED.get();
        draw(shown, asked, SIZE, trouble);
        FOLDED.get() - before
    }

    #[test]
    fn a_pane_makes_what_there_is_room_for_and_nothing_twice() {
        for pane in [Pane::Pools, Pane::Pending, Pane::Budgets, Pane::Commands] {
            let costs = [50, 5000].map(|number| {
                let shown = many(number);
                let mut asked = Asked {
                    pane,
                    ..Asked::default()
                };
                let room = folds(&shown, &asked, None);
                assert!((1..SIZE.height).contains(&room), "{pane:?}: {room} of {number}");
                for code in [
                    KeyCode::Down,
                    KeyCode::End,
                    KeyCode::Char('/'),
                    KeyCode::Char('w'),
                    KeyCode::Esc,
                ] {
                    hear(&mut asked, code, &shown);
                    assert_eq!(folds(&shown, &asked, None), 0, "{pane:?}, {code:?}");
                }
                assert_eq!(folds(&shown, &asked, Some("refused")), 0, "{pane:?}");
                hear(&mut asked, KeyCode::Char(' '), &shown);
                assert_eq!(folds(&shown, &asked, None), 5, "{pane:?}: what comes from below");
                // Of the next view, what is on the screen and above it.
                let mut next = shown.clone();
                Arc::make_mut(&mut next.view).revision += 1;
                assert_eq!(folds(&next, &asked, None), room + 5, "{pane:?}");
                room
            });
            assert_eq!(costs[0], costs[1], "{pane:?}");
        }
    }

    #[test]
    fn an_explanation_is_worked_out_once_for_a_view_and_a_node() {
        let shown = stuck();
        let mut asked = Asked {
            pane: Pane::Explain,
            chosen: Some("guarded".to_owned()),
            ..Asked::default()
        };
        // How many were worked out, where the pane is about the chosen node.
        let stories = |shown: &Shown, asked: &Asked| {
            let before = STORIES.get();
            let text = plain(&draw(shown, asked, SIZE, None));
            let about = format!("Node {}: ", asked.chosen.as_deref().unwrap_or_default());
            assert!(text.contains(&about), "no {about}: {text}");
            STORIES.get() - before
        };
        assert_eq!(stories(&shown, &asked), 1);
        for code in [KeyCode::Char('o'), KeyCode::Char('/'), KeyCode::Esc] {
            hear(&mut asked, code, &shown);
            assert_eq!(stories(&shown, &asked), 0, "{code:?}");
        }
        hear(&mut asked, KeyCode::Up, &shown);
        assert_eq!(asked.chosen.as_deref(), Some("calm"));
        assert_eq!((stories(&shown, &asked), stories(&shown, &asked)), (1, 0));
        let mut next = shown.clone();
        Arc::make_mut(&mut next.view).revision += 1;
        assert_eq!((stories(&next, &asked), stories(&next, &asked)), (1, 0));
        // A pane that is closed holds no view.
        hear(&mut asked, KeyCode::Esc, &next);
        draw(&next, &asked, SIZE, None);
        assert!(asked.told.borrow().is_none());
        hear(&mut asked, KeyCode::Enter, &next);
        assert_eq!(stories(&next, &asked), 1);
    }

    /// What is drawn in parts is the whole, in order. At its end it stays where it is, also when more comes below.
    #[test]
    fn a_pane_goes_down_to_its_last_line_and_no_further() {
        const GROUPS: usize = 33;
        let (shown, more) = (many(GROUPS), many(2 * GROUPS));
        let mut asked = Asked {
            pane: Pane::Pending,
            ..Asked::default()
        };
        // The lines between the rule above the pane and the keys below it.
        let lines = |shown: &Shown, asked: &Asked| -> Vec<String> {
            let text = plain(&draw(shown, asked, SIZE, None));
            let (_, pane) = text.split_once("─\n").expect("a rule");
            let mut lines: Vec<String> = pane.lines().map(str::to_owned).collect();
            lines.pop();
            lines
        };
        let height = lines(&shown, &asked).len();
        assert!((1..GROUPS).contains(&height), "{height}");
        let told = |first: usize| -> Vec<String> {
            let told = |index: usize| format!("1 x ReplicaSet shop/web-{index:04}: a node is being made");
            (first..first + height).map(told).collect()
        };
        let last = GROUPS - height;
        for step in 0..20 {
            let first = last.min(5 * step);
            assert_eq!(lines(&shown, &asked), told(first), "{first}");
            hear(&mut asked, KeyCode::Char(' '), &shown);
        }
        assert_eq!(lines(&shown, &asked), told(last));
        assert_eq!(lines(&more, &asked), told(last));
        hear(&mut asked, KeyCode::Char(' '), &more);
        assert_eq!(lines(&more, &asked), told(last + 5));
    }

    /// Nothing is below what there is room for.
    #[test]
    fn a_pane_that_is_on_the_screen_as_a_whole_stays_there() {
        let shown = many(3);
        let mut asked = Asked {
            pane: Pane::Pending,
            ..Asked::default()
        };
        let before = draw(&shown, &asked, SIZE, None);
        hear(&mut asked, KeyCode::Char(' '), &shown);
        assert_eq!(draw(&shown, &asked, SIZE, None), before);
    }
}
