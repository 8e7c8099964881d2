//! What a what-if says about nodes that go together, before anything is weighed: where their pods would go, and what would come instead.
//!
//! It depends on the nodes, their pods and the room that these find, and on neither totals of NodePools, budgets nor the time; so it can be kept for as long as
//! these stay what they are. What is decided from it is the callers'.

use super::candidates::Candidate;
use super::evaluate::{self, Exchange};
use super::ground::Ground;
use super::hurdle::{Hurdle, Lifted, Stop};
use super::kept::Reads;
use super::outcome::PoolScore;
use super::simulate::{Moved, WhatIf};
use spokeshave_model::Price;
use spokeshave_model::snapshot::PodId;

/// What a what-if says. `T` is what is remembered of a plan.
#[derive(Clone, Debug)]
pub(super) struct Bare<T> {
    /// What the first NodePool refused, where others were asked after it (W-04).
    first: Option<Stop>,
    /// The plan, unless there is none.
    pub(super) found: Result<T, Stop>,
    /// How many new NodeClaims the pods need; none when one has no place at all.
    pub(super) claims: Option<usize>,
    /// What it has read of the cluster.
    pub(super) reads: Reads,
}

/// What names pods by their numbers in one Snapshot.
pub(super) trait Numbered {
    /// Takes the numbers of another Snapshot; none when one of the pods is not there any more.
    fn renumber(&mut self, new: &impl Fn(PodId) -> Option<PodId>) -> Option<()>;
}

impl Numbered for Stop {
    fn renumber(&mut self, new: &impl Fn(PodId) -> Option<PodId>) -> Option<()> {
        if let Hurdle::Pod(pod) = &mut self.hurdle {
            *pod = new(*pod)?;
        }
        Some(())
    }
}

impl<T: Numbered> Numbered for Bare<T> {
    fn renumber(&mut self, new: &impl Fn(PodId) -> Option<PodId>) -> Option<()> {
        if let Some(first) = &mut self.first {
            first.renumber(new)?;
        }
        match &mut self.found {
            Ok(found) => found.renumber(new),
            Err(stop) => stop.renumber(new),
        }
    }
}

impl<T> Bare<T> {
    /// Removes the nodes and places their pods; `write` sees the plan before everything is put back.
    pub(super) fn ask<'a>(
        ground: &Ground<'a>,
        what_if: &mut WhatIf<'a>,
        set: &[&Candidate],
        mut write: impl FnMut(&mut Moved<'_, 'a>, Exchange) -> T,
    ) -> Self {
        let (mut first, mut claims, mut reads) = (None, None, Reads::default());
        let pods: Vec<PodId> = set
            .iter()
            .flat_map(|candidate| candidate.moving(ground.snapshot).into_owned())
            .collect();
        let found = evaluate::ask(ground, what_if, set, &pods, |moved, refused| {
            first = refused.cloned();
            reads.add(moved.nodes(), moved.in_vain());
            if moved.unplaced.is_empty() {
                claims.get_or_insert(moved.claim_count());
            }
            let plan = evaluate::priced(ground, moved, set, &Lifted::new())?;
            Ok(write(moved, plan))
        });
        Bare {
            first,
            found,
            claims,
            reads,
        }
    }

    /// Whether one of its refusals is about a pod.
    pub(super) fn names_pods(&self) -> bool {
        let is_pod = |stop: &Stop| matches!(stop.hurdle, Hurdle::Pod(_));
        self.first.as_ref().is_some_and(is_pod) || self.found.as_ref().err().is_some_and(is_pod)
    }

    /// What the first NodePool was refused for, and the node in the end.
    #[cfg(debug_assertions)]
    pub(super) fn hurdles(&self) -> [Option<&Hurdle>; 2] {
        let stops = [self.first.as_ref(), self.found.as_ref().err()];
        stops.map(|stop| stop.map(|stop| &stop.hurdle))
    }

    /// Whether what the plan saves is worth it now, with its scores.
    pub(super) fn approved(
        &self,
        ground: &Ground<'_>,
        set: &[&Candidate],
        savings: Price,
        replaces: bool,
    ) -> Result<Vec<PoolScore>, Stop> {
        let approved = evaluate::approved(ground, set, savings, replaces, &Lifted::new());
        approved.map_err(|stop| self.first.clone().unwrap_or(stop))
    }
}
