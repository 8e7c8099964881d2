//! A label selector: which nodes are shown. Pure.

use std::collections::BTreeSet;

use serde_json::json;
use spokeshave_apiserver::LabelSelector;
use spokeshave_web::Shown;

/// A selector as it was typed, and what it means. An empty one selects every node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    text: String,
    meaning: LabelSelector,
}

impl Selection {
    /// Reads a selector as an API server does: `team=shop,gpu in (a,b),!spot`.
    ///
    /// # Errors
    /// It is none, in an API server's words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let meaning = LabelSelector::parse(text).map_err(|error| error.message)?;
        Ok(Self {
            text: text.trim().to_owned(),
            meaning,
        })
    }

    /// It selects every node.
    pub(super) fn is_empty(&self) -> bool {
        self.meaning.is_empty()
    }

    /// As it was typed.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The names of the nodes that it selects by their labels; those of one that has not joined are its NodeClaim's.
    pub(super) fn names(&self, shown: &Shown) -> BTreeSet<String> {
        let nodes = shown.judged.snapshot.nodes.iter();
        let selected = nodes.filter(|node| self.meaning.matches(&json!(node.labels)));
        selected.map(|node| node.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::top::frame::{Asked, Size, draw};
    use crate::top::line::plain;
    use crate::top::listing::Listing;
    use crate::top::tests::{STUCK, shown_of, stuck};

    #[test]
    fn a_selector_that_is_none_is_refused_in_an_api_servers_words() {
        for (text, said) in [
            (
                "zone in a",
                "unable to parse requirement: found 'a' expected: '('",
            ),
            ("zone=a,", "found '', expected: identifier after ','"),
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ] {
            assert_eq!(Selection::parse(text), Err(said.to_owned()), "{text}");
        }
        for text in ["", " "] {
            let everything = Selection::parse(text);
            assert_eq!(everything.map(|one| one.is_empty()), Ok(true), "{text:?}");
        }
    }

    /// Together with a filter; and sums are of all nodes, as with a filter.
    #[test]
    fn a_selector_chooses_nodes_by_their_labels() {
        let shown = stuck();
        let asked = |selector: &str, filter: &str| Asked {
            selection: Selection::parse(selector).expect("a selector"),
            filter: filter.to_owned(),
            ..Asked::default()
        };
        let names = |shown: &Shown, asked: &Asked| -> Vec<String> {
            let listing = Listing::of(shown, asked);
            let rows = listing.rows(0, usize::MAX);
            rows.map(|row| row.name.clone()).collect()
        };
        let some = "kubernetes.io/hostname in (guarded, calm)";
        let selected = asked(some, "");
        assert_eq!(names(&shown, &selected), ["calm", "guarded"]);
        assert_eq!(names(&shown, &asked(some, "guard")), ["guarded"]);
        let all = shown.view.nodes.0.len();
        assert_eq!(
            names(&shown, &asked("!gpu,kubernetes.io/hostname!=calm", "")).len(),
            all - 1
        );
        let size = Size {
            width: 200,
            height: 40,
        };
        let draw_it = |asked: &Asked| plain(&draw(&shown, asked, size, None));
        let (whole, nobody) = (draw_it(&asked("", "")), draw_it(&asked("gpu", "")));
        assert_eq!(whole.lines().next(), nobody.lines().next());
        for told in ["no node matches the selector\n", " selector \"gpu\" · by name"] {
            assert!(nobody.contains(told), "{nobody}");
        }
        // In the next view one of them has another label.
        let text = STUCK.replace("hostname: guarded}", "hostname: other}");
        let mut later = shown_of(&text);
        Arc::make_mut(&mut later.view).revision = shown.view.revision + 1;
        assert_eq!(names(&later, &selected), ["calm"]);
    }
}
