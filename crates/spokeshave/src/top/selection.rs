//! A label selector: which nodes are shown. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_apiserver::LabelSelector;
use spokeshave_model::snapshot::NodeView;
use spokeshave_view::View;
use spokeshave_web::Shown;

#[cfg(test)]
thread_local! {
    /// Nodes of which this thread has read the labels.
    static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

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

    /// Whether it selects a node by its labels; those of one that has not joined are its NodeClaim's.
    fn selects(&self, node: &NodeView) -> bool {
        #[cfg(test)]
        READ.set(READ.get() + 1);
        self.meaning.matches(&json!(node.labels))
    }
}

/// Which nodes of a view a selector selects. Labels are read of what has changed since the view before: of thousands of nodes that is a few.
#[derive(Clone, Debug)]
pub(super) struct Selected {
    /// Kept, so that no other view can be taken for it.
    view: Arc<View>,
    selection: Selection,
    names: Arc<BTreeSet<String>>,
    /// By the name of the node.
    answers: BTreeMap<String, Answer>,
}

/// Whether a node is selected.
#[derive(Clone, Debug)]
struct Answer {
    /// The objects that have its labels; kept, so that no others can be taken for them.
    node: Option<Arc<Node>>,
    claim: Option<Arc<NodeClaim>>,
    is_selected: bool,
}

impl Answer {
    /// Whether it is about a node as it is now. Nothing of an object changes as long as it is the same one.
    fn is_about(&self, node: &NodeView) -> bool {
        is_same(self.node.as_ref(), node.node.as_ref()) && is_same(self.claim.as_ref(), node.claim.as_ref())
    }
}

fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}

impl Selected {
    /// What is selected of a view, with what was selected `before`.
    pub(super) fn of(selection: &Selection, shown: &Shown, before: Option<Self>) -> Self {
        let before = before.filter(|before| before.selection == *selection);
        let known = match before {
            Some(before) if Arc::ptr_eq(&before.view, &shown.view) => return before,
            Some(before) => before.answers,
            None => BTreeMap::new(),
        };
        let (mut names, mut answers) = (BTreeSet::new(), BTreeMap::new());
        for node in &shown.judged.snapshot.nodes {
            let known = known.get(&node.name).filter(|answer| answer.is_about(node));
            let is_selected = match known {
                Some(answer) => answer.is_selected,
                None => selection.selects(node),
            };
            if is_selected {
                names.insert(node.name.clone());
            }
            let answer = Answer {
                node: node.node.clone(),
                claim: node.claim.clone(),
                is_selected,
            };
            answers.insert(node.name.clone(), answer);
        }
        Self {
            view: Arc::clone(&shown.view),
            selection: selection.clone(),
            names: Arc::new(names),
            answers,
        }
    }

    /// The names of the nodes that are selected.
    pub(super) fn names(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.names)
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_view::World;

    use super::*;
    use crate::top::frame::{Asked, Size, draw};
    use crate::top::line::plain;
    use crate::top::listing::Listing;
    use crate::top::tests::{STUCK, look, shown_of, stuck};

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
        // In the next view one of them has another label. That it is another view is not told by its number alone.
        let text = STUCK.replace("hostname: guarded}", "hostname: other}");
        let later = shown_of(&text);
        assert_eq!(later.view.revision, shown.view.revision);
        assert_eq!(names(&later, &selected), ["calm"]);
    }

    #[test]
    fn labels_are_read_of_what_has_changed_since_the_view_before() {
        let shown = stuck();
        let mut asked = Asked {
            selection: Selection::parse("kubernetes.io/hostname in (guarded, calm)").expect("a selector"),
            ..Asked::default()
        };
        // How many are listed, and of how many nodes labels were read for that.
        let listed = |shown: &Shown, asked: &Asked| {
            let before = READ.get();
            let listed = Listing::of(shown, asked).len();
            (listed, READ.get() - before)
        };
        assert_eq!(listed(&shown, &asked), (2, shown.judged.snapshot.nodes.len()));
        "guard".clone_into(&mut asked.filter);
        assert_eq!(listed(&shown, &asked), (1, 0), "another filter");
        asked.filter.clear();
        let world = &shown.judged.world;
        let same = look(World::clone(world));
        assert_eq!(listed(&same, &asked), (2, 0), "the next look at the same objects");
        let mut relabelled = World::clone(world);
        let nodes = &mut relabelled.state.nodes;
        let calm = nodes
            .iter_mut()
            .find(|node| node.metadata.name.as_deref() == Some("calm"));
        let labels = &mut Arc::make_mut(calm.expect("a node")).metadata.labels;
        let label = labels
            .as_mut()
            .and_then(|labels| labels.get_mut("kubernetes.io/hostname"));
        "other".clone_into(label.expect("a label"));
        assert_eq!(listed(&look(relabelled), &asked), (1, 1), "one of them");
        // What has gone and is back is read as well.
        let mut fewer = World::clone(world);
        fewer
            .state
            .nodes
            .retain(|node| node.metadata.name.as_deref() != Some("guarded"));
        fewer
            .state
            .node_claims
            .retain(|claim| claim.node_name() != Some("guarded"));
        assert_eq!(listed(&look(fewer), &asked), (1, 1), "calm is as it was");
        assert_eq!(
            listed(&look(World::clone(world)), &asked),
            (2, 1),
            "guarded is back"
        );
    }
}
