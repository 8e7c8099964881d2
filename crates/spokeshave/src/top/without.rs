//! What would happen without the things that keep a node. Deciding that takes too long for the loop that reads keys: it is worked out beside it.
//!
//! Owns the thread, and the one question that waits for it: a newer one takes its place, because nobody looks at the answer of an older one any more. A panic costs
//! an answer, and nobody waits for the thread when the program ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};
use spokeshave_view::{Difference, Judged, Supposition, detail};
use spokeshave_web::Shown;
use tokio::sync::mpsc;

use super::frame::money;
use super::line::Tone;

/// Lines, each of one tone.
pub(super) type Lines = Vec<(String, Tone)>;

/// Where working it out has panicked.
const DEFECT: &str = "it cannot be worked out: this is a defect of Spokeshave";

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Without {
    /// Of which view and node.
    pub(super) of: (u64, String),
    pub(super) lines: Lines,
}

struct Question {
    shown: Shown,
    node: String,
}

impl Question {
    fn of(&self) -> (u64, String) {
        (self.shown.view.revision, self.node.clone())
    }
}

/// Where a question waits.
#[derive(Default)]
struct Desk {
    waiting: Mutex<Waiting>,
    news: Condvar,
}

#[derive(Default)]
struct Waiting {
    question: Option<Question>,
    is_over: bool,
}

impl Desk {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, question: Question) {
        self.waiting().question = Some(question);
        self.news.notify_one();
    }

    fn close(&self) {
        self.waiting().is_over = true;
        self.news.notify_one();
    }

    /// The next question, as soon as there is one; none when it is over.
    fn next(&self) -> Option<Question> {
        let has_nothing = |waiting: &mut Waiting| waiting.question.is_none() && !waiting.is_over;
        let waiting = self.news.wait_while(self.waiting(), has_nothing);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        if waiting.is_over {
            return None;
        }
        waiting.question.take()
    }
}

/// Works out answers on a thread of its own, until it is dropped.
pub(super) struct Worker {
    desk: Arc<Desk>,
    answers: mpsc::Receiver<Without>,
    /// What was asked last.
    asked: Option<(u64, String)>,
}

impl Worker {
    /// Starts.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start() -> Result<Self> {
        Self::with(without)
    }

    fn with(work: impl Fn(&Shown, &str) -> Lines + Send + 'static) -> Result<Self> {
        let desk = Arc::<Desk>::default();
        let (answered, answers) = mpsc::channel(1);
        let asked = Arc::clone(&desk);
        let run = move || {
            while let Some(question) = asked.next() {
                let lines = catch_unwind(AssertUnwindSafe(|| work(&question.shown, &question.node)));
                let answer = Without {
                    of: question.of(),
                    lines: lines.unwrap_or_else(|_| vec![(DEFECT.to_owned(), Tone::Bad)]),
                };
                if answered.blocking_send(answer).is_err() {
                    // Nobody looks any more.
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("what-if".to_owned());
        thread.spawn(run).context("no thread can be started")?;
        Ok(Self {
            desk,
            answers,
            asked: None,
        })
    }

    /// Asks about a node of a view, unless that is what was asked last.
    pub(super) fn ask(&mut self, shown: &Shown, node: &str) {
        let question = Question {
            shown: shown.clone(),
            node: node.to_owned(),
        };
        let of = Some(question.of());
        if self.asked != of {
            self.asked = of;
            self.desk.put(question);
        }
    }

    /// The next answer; none once no more will come.
    pub(super) async fn answer(&mut self) -> Option<Without> {
        self.answers.recv().await
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.desk.close();
    }
}

/// What the product would say if what keeps a node were gone; worked out by the same functions as ever.
pub(super) fn without(shown: &Shown, name: &str) -> Lines {
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
    let world = Supposition::parse(keys.iter().copied(), [])
        .and_then(|what| what.apply(&shown.judged.world, &shown.judged.policy));
    let (world, policy, _) = match world {
        Ok(found) => found,
        Err(error) => return vec![(error.to_string(), Tone::Bad)],
    };
    let then = Judged::of(world, &policy);
    let change = Difference::between(&shown.judged, &then);
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::top::tests::stuck;

    /// Whoever waits for what never comes does not wait for ever.
    const LIMIT: Duration = Duration::from_secs(60);

    /// Work that says when it begins, and ends when it may.
    struct Held {
        worker: Worker,
        begun: Receiver<String>,
        may_end: Sender<()>,
    }

    impl Held {
        fn new() -> Self {
            let (begins, begun) = channel();
            let (may_end, ends) = channel::<()>();
            let work = move |_: &Shown, node: &str| -> Lines {
                begins.send(node.to_owned()).expect("somebody listens");
                ends.recv_timeout(LIMIT).expect("it may end");
                vec![(format!("of {node}"), Tone::Plain)]
            };
            Self {
                worker: Worker::with(work).expect("a thread"),
                begun,
                may_end,
            }
        }

        fn begins(&self) -> String {
            self.begun.recv_timeout(LIMIT).expect("it begins")
        }

        /// The node of the next answer.
        fn answered(&mut self) -> String {
            self.may_end.send(()).expect("it is at work");
            self.worker.answers.blocking_recv().expect("an answer").of.1
        }
    }

    #[test]
    fn of_questions_that_wait_the_newest_is_answered() {
        let (shown, mut held) = (stuck(), Held::new());
        held.worker.ask(&shown, "first");
        assert_eq!(held.begins(), "first");
        for node in ["second", "third", "fourth"] {
            held.worker.ask(&shown, node);
        }
        assert_eq!(held.answered(), "first");
        assert_eq!(held.begins(), "fourth");
        assert_eq!(held.answered(), "fourth");
    }

    /// Every redraw asks.
    #[test]
    fn a_question_is_asked_once_a_view() {
        let (shown, mut held) = (stuck(), Held::new());
        held.worker.ask(&shown, "first");
        assert_eq!(held.begins(), "first");
        held.worker.ask(&shown, "first");
        assert!(held.worker.desk.waiting().question.is_none());
        let mut later = shown.clone();
        Arc::make_mut(&mut later.view).revision += 1;
        held.worker.ask(&later, "first");
        assert!(held.worker.desk.waiting().question.is_some());
    }

    #[test]
    fn a_panic_costs_an_answer_and_no_other() {
        let work = |_: &Shown, node: &str| -> Lines {
            assert_ne!(node, "bad", "injected");
            vec![(node.to_owned(), Tone::Plain)]
        };
        let mut worker = Worker::with(work).expect("a thread");
        let shown = stuck();
        for (node, said) in [("bad", DEFECT), ("good", "good")] {
            worker.ask(&shown, node);
            let answer = worker.answers.blocking_recv().expect("an answer");
            assert_eq!((answer.of.1.as_str(), answer.lines[0].0.as_str()), (node, said));
        }
    }

    /// Who quits does not wait for an answer that nobody will read.
    #[test]
    fn nobody_waits_for_work_at_the_end() {
        let (shown, mut held) = (stuck(), Held::new());
        held.worker.ask(&shown, "first");
        assert_eq!(held.begins(), "first");
        let Held {
            worker,
            begun,
            may_end,
        } = held;
        drop(worker);
        may_end.send(()).expect("it is at work still");
        // And then it ends.
        assert!(begun.recv_timeout(LIMIT).is_err());
    }
}
