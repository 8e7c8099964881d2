//! The writes of a command: many at once where they do not depend on each other, and never one before what it follows.
//!
//! Owns which writes go together. Which writes there are, and in what order, is decided in `plan::disrupt::advance`.

use std::mem::{Discriminant, discriminant};
use std::ops::Range;

use futures::future::join_all;
use spokeshave_model::{Action, ObjectKind, Plan, Subresource};
use spokeshave_plan::disrupt::advance::Advance;

use crate::act::error::ExecuteError;
use crate::act::hands::{AT_ONCE, Hands};

/// How far a step of a command was carried out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// To its end.
    Whole,
    /// An object has changed meanwhile or is gone: a fresh look is on its way.
    Stale,
    /// The API server does not create a NodeClaim as it is, and says why: asking again would not change that.
    Refused(String),
}

impl Hands {
    /// Makes a step of a command true: records its events, then carries out its actions, of which those of one sort go together and whatever follows them
    /// waits for all. `done` is called with the index of each action that has succeeded. A deletion of what is gone already has. One that fails does not keep
    /// others from being asked for (D-111); what is no deletion follows it only where the command `goes_on`.
    ///
    /// # Errors
    /// Any other failure, the first.
    pub(crate) async fn carry_out_each(
        &self,
        plan: &Plan<Advance>,
        done: impl Fn(usize),
    ) -> Result<Carried, ExecuteError> {
        for event in &plan.events {
            self.tell(event);
        }
        let mut failed = None;
        for turn in turns(&plan.actions) {
            let actions = &plan.actions[turn.clone()];
            let deletes = matches!(actions, [Action::Delete { .. }, ..]);
            let creates = matches!(actions, [Action::CreateNodeClaim { .. }, ..]);
            if failed.is_some() && !deletes && !plan.report.goes_on {
                break;
            }
            let answers = join_all(actions.iter().map(|action| self.request(action))).await;
            let (mut is_stale, mut broken, mut refused) = (false, None, None);
            for (index, answer) in turn.zip(answers) {
                // One after the other, the first failure would have kept the others from being asked for: together they are one for circuit breakers. Of
                // deletions, which go on after a failure, each is one.
                if broken.is_none() {
                    self.note_failure(&answer);
                }
                if creates && refused.is_none() {
                    refused = answer.as_ref().err().and_then(ExecuteError::refusal);
                }
                match answer {
                    Err(error) if error.is_not_found() && deletes => done(index),
                    Err(error) if error.is_conflict() || error.is_not_found() => {
                        tracing::debug!(%error, "will be looked at again");
                        is_stale = true;
                    }
                    Err(error) if deletes => _ = failed.get_or_insert(error),
                    Err(error) => _ = broken.get_or_insert(error),
                    Ok(()) => done(index),
                }
            }
            if let Some(why) = refused {
                return Ok(Carried::Refused(why));
            }
            if let Some(error) = broken {
                return Err(error);
            }
            if is_stale {
                return failed.map_or(Ok(Carried::Stale), Err);
            }
        }
        failed.map_or(Ok(Carried::Whole), Err)
    }
}

/// Which actions go together: those of one sort that follow each other, up to so many.
fn turns(actions: &[Action]) -> Vec<Range<usize>> {
    let mut turns = Vec::new();
    let mut from = 0;
    for alike in actions.chunk_by(|one, other| sort(one) == sort(other)) {
        for turn in alike.chunks(AT_ONCE) {
            turns.push(from..from + turn.len());
            from += turn.len();
        }
    }
    turns
}

/// What an action does to which kind of object.
fn sort(action: &Action) -> (Discriminant<Action>, Option<(ObjectKind, Option<Subresource>)>) {
    let what = match action {
        Action::Patch {
            target, subresource, ..
        } => Some((target.kind, Some(*subresource))),
        Action::Delete { target, .. } => Some((target.kind, None)),
        _ => None,
    };
    (discriminant(action), what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use spokeshave_model::ObjectRef;

    #[test]
    fn d_098_what_follows_waits_for_all_that_it_follows() {
        let patch = |kind: ObjectKind, name: String, subresource: Subresource| Action::Patch {
            target: ObjectRef::cluster(kind, &name, "u"),
            subresource,
            patch: json!({}),
            resource_version: None,
        };
        let taint = |number: usize| patch(ObjectKind::Node, format!("n-{number}"), Subresource::Main);
        let mark = |number: usize| patch(ObjectKind::NodeClaim, format!("c-{number}"), Subresource::Status);
        let delete = |number: usize| {
            Action::delete(ObjectRef::cluster(
                ObjectKind::NodeClaim,
                &format!("c-{number}"),
                "u",
            ))
        };
        let status = || patch(ObjectKind::Disruption, "d".to_owned(), Subresource::Status);
        let marks = (0..70).map(taint).chain((0..2).map(mark));
        let begin: Vec<Action> = marks.chain([status()]).collect();
        assert_eq!(turns(&begin), [0..50, 50..70, 70..72, 72..73]);
        // A command that is taken back: its replacements, the ledger, the marks.
        let end = [delete(1), status(), taint(1), taint(2), mark(1)];
        assert_eq!(turns(&end), [0..1, 1..2, 2..4, 4..5]);
        assert!(turns(&[]).is_empty());
    }
}
