//! Verdicts as conditions of NodeClaims: a few writes at a time, and only where a verdict has changed.
//!
//! It judges nothing. What it remembers (when it last wrote to whom) only makes it slower to write again.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_plan::disrupt::Verdict;
use spokeshave_plan::disrupt::condition::VerdictCondition;

use crate::shared::Shared;

/// Most conditions that one turn writes.
const WRITES: usize = 50;
/// A NodeClaim is not written to again within this time: a verdict that goes to and fro is worth one write a minute.
const PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// Conditions that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// By name of the NodeClaim.
    wanted: BTreeMap<String, VerdictCondition>,
    written: BTreeMap<String, Timestamp>,
}

impl Verdicts {
    /// Takes in what a pass has found.
    pub(crate) fn learn(&mut self, snapshot: &Snapshot, verdicts: &[Verdict]) {
        if verdicts.is_empty() {
            return;
        }
        self.wanted = verdicts
            .iter()
            .filter_map(|verdict| {
                let name = snapshot.node(verdict.node).claim_name()?;
                Some((name.to_owned(), VerdictCondition::of(verdict)?))
            })
            .collect();
    }

    /// Writes some of what is left, and returns how many writes there were.
    pub(crate) async fn write(&mut self, shared: &Arc<Shared>) -> u64 {
        let now = shared.now();
        self.written.retain(|_, at| now.duration_since(*at).abs() < PAUSE);
        let mut writes = 0;
        let names: Vec<String> = self
            .wanted
            .keys()
            .filter(|name| !self.written.contains_key(*name))
            .cloned()
            .collect();
        for name in names {
            if writes >= WRITES as u64 {
                break;
            }
            let Some(condition) = self.wanted.remove(&name) else {
                continue;
            };
            let Some(claim) = shared.stores.node_claims.get_named(&name) else {
                continue;
            };
            if claim.is_deleting() {
                continue;
            }
            let Some(action) = condition.action(&claim, now) else {
                continue;
            };
            match shared.execute.run(&action).await {
                Ok(()) => {
                    writes += 1;
                    self.written.insert(name, now);
                }
                Err(error) => {
                    tracing::debug!(NodeClaim = name, %error, "writing a verdict; the next pass tries again");
                }
            }
        }
        writes
    }
}
