//! Verdicts as conditions of NodeClaims: now and then, a few writes at a time, and only where a verdict has changed.
//!
//! It judges nothing. What it remembers (when it last wrote to whom) only makes it slower to write again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_plan::disrupt::Verdict;
use spokeshave_plan::disrupt::condition::VerdictCondition;

use crate::act::hands::Hands;
use crate::state::cluster::Cluster;

/// Most conditions that one turn writes.
const WRITES: usize = 50;
/// A NodeClaim is not written to again within this time: a verdict that goes to and fro is worth one write a minute.
const PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// Nodes are judged this long after the last time at the earliest: while a cluster changes with every pass, judging all of its nodes in each of
/// them would cost more than the decisions.
const JUDGED_EVERY: SignedDuration = SignedDuration::from_secs(30);

/// Conditions that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    judged: Option<Timestamp>,
    /// By name of the NodeClaim.
    wanted: BTreeMap<String, VerdictCondition>,
    written: BTreeMap<String, Timestamp>,
}

impl Verdicts {
    /// From when nodes are worth to be judged again.
    pub(crate) fn judged_again(&self, now: Timestamp) -> Timestamp {
        let again = self.judged.map(|judged| judged.saturating_add(JUDGED_EVERY));
        again.map_or(now, |again| again.unwrap_or(now))
    }

    /// Takes in what a pass has found.
    pub(crate) fn learn(&mut self, snapshot: &Snapshot, verdicts: &[Verdict], now: Timestamp) {
        if verdicts.is_empty() {
            return;
        }
        self.judged = Some(now);
        self.wanted = verdicts
            .iter()
            .filter_map(|verdict| {
                let name = snapshot.node(verdict.node).claim_name()?;
                Some((name.to_owned(), VerdictCondition::of(verdict)?))
            })
            .collect();
    }

    /// Writes some of what is left, and returns how many writes there were.
    pub(crate) async fn write(&mut self, cluster: &Cluster, hands: &Hands) -> u64 {
        let now = cluster.now();
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
            let Some(claim) = cluster.stores.node_claims.get_named(&name) else {
                continue;
            };
            if claim.is_deleting() {
                continue;
            }
            let Some(action) = condition.action(&claim, now) else {
                continue;
            };
            match hands.run(&action).await {
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
