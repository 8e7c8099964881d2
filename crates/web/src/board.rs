//! The current view, shared by all readers; a bounded history of recent changes; cached what-ifs until the next revision.

use crate::coding::Packable;
use bytes::Bytes;
use serde::Serialize;
use spokeshave_story::explain::{Document, Story};
use spokeshave_view::{Difference, Judged, Supposition, Toggle, View, detail};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Number of changes kept; a reader that missed more reloads the view.
const CHANGES: usize = 64;
/// And of no more than this many bytes.
const CHANGES_BYTES: usize = 8 << 20;
/// What-ifs whose answers are remembered.
const ANSWERS: usize = 8;

/// A view with what it was drawn from.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The view.
    pub view: Arc<View>,
    /// What the decisions say.
    pub judged: Arc<Judged>,
}

/// What a what-if has answered: the world as it would be with the difference, or why it cannot be asked.
pub type Answer = Result<(Shown, Difference), String>;

#[derive(Default)]
struct State {
    shown: Option<Shown>,
    json: Option<Arc<Packable>>,
    changes: VecDeque<Change>,
    answers: VecDeque<(Supposition, Arc<Answer>)>,
    trouble: Option<String>,
}

struct Change {
    from: u64,
    until: u64,
    json: Bytes,
}

/// What readers of a stream get next.
pub(crate) enum News {
    /// They have the newest.
    None,
    /// What leads to the newest, in order, each with the revision that it leads to, and the newest one.
    Changes(Vec<(u64, Bytes)>, u64),
    /// Too much has changed: the whole is to be fetched.
    Reset(u64),
}

/// Where the newest view hangs. Clones are the same board.
#[derive(Clone, Default)]
pub struct Board {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Board")
    }
}

impl Board {
    /// An empty board.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hangs up a view in place of the last.
    pub fn publish(&self, shown: Shown) {
        let before = self.state().shown.clone();
        let change = before.map(|before| {
            let changes = shown.view.changes(&before.view);
            Change {
                from: changes.from,
                until: changes.revision,
                json: serde_json::to_vec(&changes).unwrap_or_default().into(),
            }
        });
        let mut state = self.state();
        state.changes.extend(change);
        let bytes = |changes: &VecDeque<Change>| changes.iter().map(|one| one.json.len()).sum::<usize>();
        while state.changes.len() > CHANGES || bytes(&state.changes) > CHANGES_BYTES {
            state.changes.pop_front();
        }
        state.shown = Some(shown);
        state.json = None;
        state.trouble = None;
        state.answers.clear();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Says why the view is not up to date; it stays as it is.
    pub fn trouble(&self, why: String) {
        let mut state = self.state();
        if state.trouble.as_ref() != Some(&why) {
            state.trouble = Some(why);
            state.json = None;
        }
    }

    /// What is shown, if anything was ever.
    #[must_use]
    pub fn shown(&self) -> Option<Shown> {
        self.state().shown.clone()
    }

    /// Why the view is not up to date, if it is not.
    #[must_use]
    pub fn why_not(&self) -> Option<String> {
        self.state().trouble.clone()
    }

    /// The view as JSON, if it has been requested since it was published or ceased to be up to date.
    pub(crate) fn written(&self) -> Option<Arc<Packable>> {
        self.state().json.clone()
    }

    /// The view as JSON, made once a revision, and once more when it ceases to be up to date.
    pub(crate) fn json(&self) -> Option<Arc<Packable>> {
        let (written, shown, trouble) = {
            let state = self.state();
            (state.json.clone(), state.shown.clone()?, state.trouble.clone())
        };
        if written.is_some() {
            return written;
        }
        let json = match &trouble {
            None => serde_json::to_vec(&*shown.view),
            Some(why) => {
                let mut view = View::clone(&shown.view);
                view.header.not_up_to_date = Some(why.clone());
                serde_json::to_vec(&view)
            }
        };
        let json = Arc::new(Packable::of(json.ok()?.into()));
        let mut state = self.state();
        let is_newest = state
            .shown
            .as_ref()
            .is_some_and(|now| now.view.revision == shown.view.revision);
        if is_newest && state.trouble == trouble {
            state.json = Some(json.clone());
        }
        Some(json)
    }

    /// Completes at the next publication after this call.
    pub fn next(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// What a reader at revision `known` has missed.
    pub(crate) fn news(&self, known: Option<u64>) -> News {
        let state = self.state();
        let Some(newest) = state.shown.as_ref().map(|shown| shown.view.revision) else {
            return News::None;
        };
        if known == Some(newest) {
            return News::None;
        }
        let begin = known.and_then(|known| state.changes.iter().position(|change| change.from == known));
        match begin {
            Some(begin) => {
                let missed = state
                    .changes
                    .iter()
                    .skip(begin)
                    .filter(|change| change.until <= newest);
                News::Changes(
                    missed.map(|change| (change.until, change.json.clone())).collect(),
                    newest,
                )
            }
            None => News::Reset(newest),
        }
    }

    /// Answers a what-if; takes as long as deciding does.
    pub(crate) fn suppose(&self, shown: &Shown, supposition: &Supposition) -> Arc<Answer> {
        let known = self
            .state()
            .answers
            .iter()
            .find(|(known, _)| known == supposition)
            .cloned();
        if let Some((_, answer)) = known {
            return answer;
        }
        let answer: Arc<Answer> = Arc::new(answer(shown, supposition));
        let mut state = self.state();
        let is_newest = state
            .shown
            .as_ref()
            .is_some_and(|now| now.view.revision == shown.view.revision);
        if is_newest {
            state.answers.push_back((supposition.clone(), answer.clone()));
            while state.answers.len() > ANSWERS {
                state.answers.pop_front();
            }
        }
        answer
    }
}

fn answer(shown: &Shown, supposition: &Supposition) -> Answer {
    let judged = &shown.judged;
    let (world, policy, absent) = supposition
        .apply(&judged.world, &judged.policy)
        .map_err(|error| error.to_string())?;
    let then = Judged::of(world, &policy);
    let difference = Difference {
        absent,
        ..Difference::between(judged, &then)
    };
    let view = shown.view.supposed(&then);
    let shown = Shown {
        view: Arc::new(view),
        judged: Arc::new(then),
    };
    Ok((shown, difference))
}

/// A node in detail: what `spokeshave explain -o json` prints of it, and its blockers.
#[derive(Serialize)]
struct NodeDocument<'a> {
    #[serde(flatten)]
    document: Document<'a>,
    toggles: &'a [Toggle],
    /// Once more, for programs that look for it here.
    story: &'a Story,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    absent: Vec<String>,
}

/// The story of another object, and what of a what-if is not there any more.
#[derive(Serialize)]
struct StoryDocument<'a> {
    #[serde(flatten)]
    document: Document<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    absent: Vec<String>,
}

/// A node in detail as JSON; of a what-if, with what was not assumed away.
pub(crate) fn node_json(shown: &Shown, name: &str, absent: Vec<String>) -> Option<Vec<u8>> {
    let detail = detail(&shown.judged, name)?;
    let document = NodeDocument {
        document: Document::of(&detail.story, shown.judged.world.now),
        toggles: &detail.toggles,
        absent,
        story: &detail.story,
    };
    serde_json::to_vec(&document).ok()
}

/// The story of another object as JSON, as `spokeshave explain -o json` prints it; of a what-if, with what was not assumed away.
pub(crate) fn story_json(shown: &Shown, story: &Story, absent: Vec<String>) -> Option<Vec<u8>> {
    let document = Document::of(story, shown.judged.world.now);
    serde_json::to_vec(&StoryDocument { document, absent }).ok()
}

pub(crate) fn difference_json(difference: &Difference) -> Vec<u8> {
    serde_json::to_vec(difference).unwrap_or_default()
}
