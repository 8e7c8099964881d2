//! What several policies and reasons ask of one snapshot, found once for all of them: five thousand nodes and their pods are far apart in memory.
//!
//! It follows from the snapshot and the time alone, and decides nothing.

use super::convergence::Facts;
use super::hold;
use jiff::Timestamp;
use spokeshave_model::labels;
use spokeshave_model::snapshot::{NodeId, NodeView, Snapshot};
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// Found when first asked for. One is good for one snapshot at one time.
#[derive(Debug)]
pub struct Memo<'a> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    facts: OnceCell<Facts>,
    pods: OnceCell<Vec<i64>>,
    born: OnceCell<Vec<Option<Timestamp>>>,
    /// The names of zones, and which of them each node is in.
    zones: OnceCell<(Vec<String>, Vec<Option<usize>>)>,
}

impl<'a> Memo<'a> {
    /// With nothing found yet.
    pub fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        Memo {
            snapshot,
            now,
            facts: OnceCell::new(),
            pods: OnceCell::new(),
            born: OnceCell::new(),
            zones: OnceCell::new(),
        }
    }

    /// What creation times and the ledger tell.
    pub(super) fn facts(&self) -> &Facts {
        self.facts.get_or_init(|| Facts::of(self.snapshot, self.now))
    }

    /// How many pods of a node have to move when it goes.
    pub(super) fn pods(&self, node: NodeId) -> i64 {
        let all = self.pods.get_or_init(|| {
            let count = |node: &NodeView| {
                let pods = node.pods.iter();
                let moving = pods.filter(|pod| self.snapshot.pod(**pod).reschedulable);
                i64::try_from(moving.count()).unwrap_or(i64::MAX)
            };
            self.snapshot.nodes.iter().map(count).collect()
        });
        all.get(node.index()).copied().unwrap_or_default()
    }

    /// When a node came.
    pub(super) fn born(&self, node: NodeId) -> Option<Timestamp> {
        let all = self
            .born
            .get_or_init(|| self.snapshot.nodes.iter().map(hold::born).collect());
        all.get(node.index()).copied().flatten()
    }

    /// The zone of a node.
    pub(super) fn zone(&self, node: NodeId) -> Option<&str> {
        let (names, of) = self.zones.get_or_init(|| {
            let mut known: BTreeMap<&str, usize> = BTreeMap::new();
            let of = self.snapshot.nodes.iter().map(|node| {
                let name = node.labels.get(labels::ZONE)?;
                let next = known.len();
                Some(*known.entry(name).or_insert(next))
            });
            let of: Vec<Option<usize>> = of.collect();
            let mut names = vec![String::new(); known.len()];
            for (name, index) in known {
                name.clone_into(&mut names[index]);
            }
            (names, of)
        });
        let index = of.get(node.index()).copied().flatten()?;
        names.get(index).map(String::as_str)
    }
}
