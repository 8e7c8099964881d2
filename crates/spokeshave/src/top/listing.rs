//! Which nodes are listed, in which order and how wide, and the sums of NodePools. Pure.
//!
//! All of it goes through every node, so it is worked out once for a view and what is asked of it. A redraw takes of it what there is room for: of five thousand
//! nodes it costs what it costs of fifty.

use std::cmp::Ordering;
use std::sync::Arc;

use spokeshave_view::{NodeRow, Total, View, share};
use spokeshave_web::Shown;

use super::columns::{Column, Placed, measured};
use super::frame::{Asked, Sort, verdict};
use super::pools;
use super::selection::Selection;

/// The list of a view, with what was asked for.
#[derive(Debug)]
pub(super) struct Listing {
    /// Kept, so that no other view can be taken for it.
    view: Arc<View>,
    columns: Vec<Column>,
    sort: Sort,
    selection: Selection,
    filter: String,
    /// Positions among the view's nodes, in the order of the list.
    rows: Vec<usize>,
    /// Where each of the view's nodes is in the list.
    places: Vec<Option<usize>>,
    measured: Vec<Placed>,
    totals: Vec<(String, Total)>,
    dearest: Vec<(String, Total)>,
}

impl Listing {
    /// The list that is asked for: the one that was worked out last, if it still is.
    pub(super) fn of(shown: &Shown, asked: &Asked) -> Arc<Self> {
        let mut known = asked.listed.borrow_mut();
        if let Some(listing) = known.as_ref().filter(|listing| listing.answers(shown, asked)) {
            return Arc::clone(listing);
        }
        let listing = Arc::new(Self::new(shown, asked));
        *known = Some(Arc::clone(&listing));
        listing
    }

    fn answers(&self, shown: &Shown, asked: &Asked) -> bool {
        Arc::ptr_eq(&self.view, &shown.view)
            && self.sort == asked.sort
            && self.filter == asked.filter
            && self.columns == asked.columns
            && self.selection == asked.selection
    }

    fn new(shown: &Shown, asked: &Asked) -> Self {
        let view = Arc::clone(&shown.view);
        let nodes = &view.nodes.0;
        let rows = wanted(shown, asked);
        let mut places = vec![None; nodes.len()];
        for (place, at) in rows.iter().enumerate() {
            places[*at] = Some(place);
        }
        let listed: Vec<&NodeRow> = rows.iter().map(|at| &nodes[*at]).collect();
        let measured = measured(&listed, &view, &asked.columns);
        let totals = view.nodes.totals_by_pool().into_iter();
        let totals: Vec<(String, Total)> = totals.map(|(title, total)| (title.to_owned(), total)).collect();
        Self {
            columns: asked.columns.clone(),
            sort: asked.sort,
            selection: asked.selection.clone(),
            filter: asked.filter.clone(),
            rows,
            places,
            measured,
            dearest: pools::dearest(&totals),
            totals,
            view,
        }
    }

    /// How many nodes there are in it.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The node at a place.
    pub(super) fn row(&self, place: usize) -> Option<&NodeRow> {
        let at = self.rows.get(place)?;
        self.view.nodes.0.get(*at)
    }

    /// As many nodes as there is room for, from a place on.
    pub(super) fn rows(&self, first: usize, room: usize) -> impl Iterator<Item = &NodeRow> {
        let rows = self.rows.iter().skip(first).take(room);
        rows.map(|at| &self.view.nodes.0[*at])
    }

    /// The place of a node. A NodeClaim that has not joined may bear the name of a Node: it is the first place of either.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        let nodes = &self.view.nodes.0;
        let from = nodes.partition_point(|row| row.name.as_str() < name);
        let named = nodes[from..].iter().take_while(|row| row.name == name).count();
        self.places[from..from + named].iter().flatten().min().copied()
    }

    /// The columns, as wide as these nodes need them.
    pub(super) fn measured(&self) -> &[Placed] {
        &self.measured
    }

    /// The sums of each NodePool over all of its nodes, whatever is chosen; by name.
    pub(super) fn totals(&self) -> &[(String, Total)] {
        &self.totals
    }

    /// The same, dearest first.
    pub(super) fn dearest(&self) -> &[(String, Total)] {
        &self.dearest
    }
}

/// Positions of the nodes that are asked for, in order.
fn wanted(shown: &Shown, asked: &Asked) -> Vec<usize> {
    let nodes = &shown.view.nodes.0;
    let selected = asked.selected_names(shown);
    let is_selected = |row: &NodeRow| selected.as_ref().is_none_or(|names| names.contains(&row.name));
    let filter = asked.filter.to_lowercase();
    let mut rows: Vec<usize> = (0..nodes.len())
        .filter(|at| is_selected(&nodes[*at]) && has_text(&nodes[*at], &filter))
        .collect();
    rows.sort_by(|left, right| in_order(&nodes[*left], &nodes[*right], asked.sort));
    rows
}

/// Whether a text in small letters is in what is told of a node; an empty one is.
fn has_text(row: &NodeRow, text: &str) -> bool {
    if text.is_empty() {
        return true;
    }
    let texts = [
        Some(&row.name),
        row.pool.as_ref(),
        row.instance_type.as_ref(),
        row.capacity_type.as_ref(),
        row.zone.as_ref(),
    ];
    let mut texts = texts.into_iter().flatten();
    texts.any(|one| one.to_lowercase().contains(text)) || verdict(row).0.to_lowercase().contains(text)
}

fn in_order(left: &NodeRow, right: &NodeRow, sort: Sort) -> Ordering {
    let by = match sort {
        Sort::Name => Ordering::Equal,
        Sort::Pool => left.pool.cmp(&right.pool),
        Sort::Type => left.instance_type.cmp(&right.instance_type),
        Sort::Price => right.price.cmp(&left.price),
        Sort::Cpu => share(right.cpu).cmp(&share(left.cpu)),
        Sort::Memory => share(right.memory).cmp(&share(left.memory)),
        Sort::Age => left.created.cmp(&right.created),
        Sort::Saves => right.saves.cmp(&left.saves),
    };
    by.then_with(|| left.name.cmp(&right.name))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use crossterm::event::KeyCode;

    use super::*;
    use crate::top::columns::cells_made;
    use crate::top::frame::{Pane, Size, draw};
    use crate::top::tests::{crowd, hear};

    const SIZE: Size = Size {
        width: 160,
        height: 30,
    };

    /// So many nodes, which are alike.
    fn many(number: usize) -> Shown {
        let mut shown = crowd(&[]);
        let view = Arc::make_mut(&mut shown.view);
        let like = view.nodes.0[0].clone();
        let node = |index: usize| NodeRow {
            name: format!("web-{index:05}"),
            ..like.clone()
        };
        view.nodes.0 = (0..number).map(node).collect();
        shown
    }

    /// A redraw makes the texts of what there is room for. What goes through every node is done once a view, and once more where another sort or filter is asked for.
    #[test]
    fn a_redraw_costs_what_is_on_the_screen_however_many_nodes_there_are() {
        let most = SIZE.height * Column::value_variants().len();
        let keys = [
            KeyCode::Down,
            KeyCode::PageDown,
            KeyCode::Char('g'),
            KeyCode::End,
            KeyCode::Up,
            KeyCode::Esc,
            KeyCode::Home,
        ];
        let costs = [50, 5000].map(|number| {
            let shown = many(number);
            let mut asked = Asked::default();
            let before = cells_made();
            draw(&shown, &asked, SIZE, None);
            assert!(
                cells_made() - before > number,
                "columns are measured by all nodes"
            );
            keys.map(|code| {
                hear(&mut asked, code, &shown);
                let before = cells_made();
                draw(&shown, &asked, SIZE, None);
                let made = cells_made() - before;
                assert!(
                    (1..=most).contains(&made),
                    "{code:?}: {made} cells of {number} nodes"
                );
                made
            })
        });
        assert_eq!(costs[0], costs[1]);
    }

    #[test]
    fn nodes_are_listed_once_for_a_view_and_what_is_asked_of_it() {
        let shown = many(100);
        let mut asked = Asked::default();
        let first = Listing::of(&shown, &asked);
        assert_eq!(first.len(), 100);
        for code in [
            KeyCode::Down,
            KeyCode::End,
            KeyCode::PageUp,
            KeyCode::Char('g'),
            KeyCode::Char('c'),
        ] {
            hear(&mut asked, code, &shown);
            draw(&shown, &asked, SIZE, Some("refused"));
            let same = Listing::of(&shown, &asked);
            assert!(Arc::ptr_eq(&first, &same), "{code:?}");
        }
        assert_eq!(asked.pane, Pane::Commands);
        hear(&mut asked, KeyCode::Char('o'), &shown);
        let sorted = Listing::of(&shown, &asked);
        assert!(!Arc::ptr_eq(&first, &sorted), "by NodePool");
        "web-00042".clone_into(&mut asked.filter);
        let filtered = Listing::of(&shown, &asked);
        assert_eq!(
            (
                filtered.len(),
                filtered.place("web-00042"),
                filtered.place("web-00041")
            ),
            (1, Some(0), None)
        );
        // Another view with the same revision is another one all the same.
        asked.filter.clear();
        let other = many(10);
        assert_eq!(other.view.revision, shown.view.revision);
        assert_eq!(Listing::of(&shown, &asked).len(), 100);
        assert_eq!(Listing::of(&other, &asked).len(), 10);
    }

    /// Places and rows agree in every order.
    #[test]
    fn a_node_is_found_where_it_is_listed() {
        let shown = crate::top::tests::stuck();
        for sort in Sort::value_variants() {
            let asked = Asked {
                sort: *sort,
                ..Asked::default()
            };
            let listing = Listing::of(&shown, &asked);
            assert_eq!(listing.len(), shown.view.nodes.0.len());
            for (place, row) in listing.rows(0, usize::MAX).enumerate() {
                assert_eq!(listing.place(&row.name), Some(place), "{sort:?}");
                assert_eq!(listing.row(place), Some(row), "{sort:?}");
            }
            assert_eq!(listing.place("nobody"), None);
        }
    }

    /// Of two with one name, the one that is listed is found.
    #[test]
    fn a_node_with_the_name_of_another_is_found_if_it_is_listed() {
        for at in [0, 1] {
            let mut shown = many(2);
            let view = Arc::make_mut(&mut shown.view);
            view.nodes.0[1].name = view.nodes.0[0].name.clone();
            view.nodes.0[at].zone = Some("elsewhere".to_owned());
            let mut asked = Asked::default();
            assert_eq!(Listing::of(&shown, &asked).place("web-00000"), Some(0));
            "elsewhere".clone_into(&mut asked.filter);
            let listing = Listing::of(&shown, &asked);
            assert_eq!((listing.len(), listing.place("web-00000")), (1, Some(0)));
        }
    }
}
