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

/// Most conditions that one turn tries to write.
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
    /// The NodeClaim whose write has ended a turn last: the next turns begin after it, so that one which is always denied stops no other for ever.
    failed: Option<String>,
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
                Some((name.to_owned(), VerdictCondition::in_pass(snapshot, verdict)?))
            })
            .collect();
    }

    /// Writes some of what is left, and returns how many writes there were. One that fails is tried again in a later turn; the first that does so for another
    /// reason than that its NodeClaim has changed or is gone ends the turn, because decisions wait for it and the next write may well fail, too.
    pub(crate) async fn write(&mut self, cluster: &Cluster, hands: &Hands) -> u64 {
        let now = cluster.now();
        self.written.retain(|_, at| now.duration_since(*at).abs() < PAUSE);
        let (mut tries, mut writes) = (0, 0);
        for name in self.next_names() {
            if tries >= WRITES {
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
            tries += 1;
            let Err(error) = hands.run(&action).await else {
                writes += 1;
                self.written.insert(name, now);
                continue;
            };
            tracing::debug!(NodeClaim = name, %error, "writing a verdict; a later turn tries again");
            if error.is_not_found() {
                continue;
            }
            self.wanted.insert(name.clone(), condition);
            if !error.is_conflict() {
                self.failed = Some(name);
                break;
            }
        }
        writes
    }

    /// NodeClaims whose turn it is, those after the one that failed first.
    fn next_names(&self) -> Vec<String> {
        let names = self.wanted.keys();
        let mut names: Vec<String> = names
            .filter(|name| !self.written.contains_key(*name))
            .cloned()
            .collect();
        let until_failed = names.partition_point(|name| Some(name) <= self.failed.as_ref());
        names.rotate_left(until_failed);
        names
    }
}
