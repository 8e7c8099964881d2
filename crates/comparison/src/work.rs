//! Whether policies do the same work: what pods without a node would cost, a policy saves that leaves them so.
//!
//! Owns which pods count as left out, and when a policy leaves out more than another. It never looks at a cost.

use std::collections::BTreeMap;

use serde::Serialize;
use spokeshave_simulate::{Measured, Run};

use crate::statistics::interval;

/// A wait that is shorter was never in vain: an instance takes so long to come.
const SHORTEST_MS: u32 = 60_000;

/// No wait has to be longer: an instance that has not joined by then is given up.
const LONGEST_MS: u32 = 900_000;

/// Whether as many pods got a node as under another policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// As far as is shown.
    Same,
    /// More of them were left out.
    Less,
    /// Fewer of them were left out.
    More,
}

impl Work {
    /// What a policy does, against another: pods that each left out, by seed, at the level of the comparisons with the baseline.
    pub(crate) fn of(own: &BTreeMap<u64, f64>, other: &BTreeMap<u64, f64>, misses: f64) -> Self {
        if leaves_out_more(own, other, misses) {
            Work::Less
        } else if leaves_out_more(other, own, misses) {
            Work::More
        } else {
            Work::Same
        }
    }
}

/// Where the other left out none, one pod more is enough; where neither has room for all, chance decides about a few.
fn leaves_out_more(own: &BTreeMap<u64, f64>, other: &BTreeMap<u64, f64>, misses: f64) -> bool {
    let pairs = own
        .iter()
        .filter_map(|(seed, count)| Some((*count, *other.get(seed)?)));
    let (own, other): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let differences: Vec<f64> = own.iter().zip(&other).map(|(own, other)| own - other).collect();
    let more: f64 = differences.iter().sum();
    let by_far = more > 0.1 * other.iter().sum::<f64>();
    let is_shown = || interval(&differences, misses).is_some_and(|interval| interval.low > 0.0);
    more > 0.0 && (by_far || is_shown())
}

/// How long a pod has to have waited to count as left out, in milliseconds: longer than any that got a node in these runs. Those of all policies: where one batches
/// longer than another, its pods are late, and some are at the end, but they are not left out.
pub(crate) fn patience_ms<'a>(runs: impl Iterator<Item = &'a Run>) -> u32 {
    let waits = runs.flat_map(|run| {
        let measured = &run.measured;
        [measured.pending_born_ms.last(), measured.pending_moved_ms.last()]
    });
    let longest = waits.flatten().max().copied().unwrap_or_default();
    longest.clamp(SHORTEST_MS, LONGEST_MS)
}

/// Pods that were left out: they had no node at the end, or when they were deleted, after having waited for longer than this.
pub(crate) fn left_out(measured: &Measured, patience_ms: u32) -> u64 {
    let lists = [
        &measured.pending_left_ms,
        &measured.pending_at_end_ms,
        &measured.left_since_warmup_ms,
        &measured.waiting_since_warmup_ms,
    ];
    let waits = lists.into_iter().flatten();
    waits.filter(|waited| **waited > patience_ms).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(counts: &[u32]) -> BTreeMap<u64, f64> {
        (1..).zip(counts.iter().copied().map(f64::from)).collect()
    }

    #[test]
    fn one_pod_more_is_less_work_and_chance_among_many_is_not() {
        let judged = |own: &[u32], other: &[u32]| Work::of(&seeds(own), &seeds(other), 0.05);
        assert_eq!(judged(&[0; 5], &[0; 5]), Work::Same);
        // In one of five seeds, or in the only one.
        assert_eq!(judged(&[0, 0, 1, 0, 0], &[0; 5]), Work::Less);
        assert_eq!(judged(&[0; 5], &[0, 0, 1, 0, 0]), Work::More);
        assert_eq!(judged(&[1], &[0]), Work::Less);
        // Pods that fit nowhere are left out by both.
        assert_eq!(judged(&[20; 5], &[20; 5]), Work::Same);
        assert_eq!(judged(&[21; 5], &[20; 5]), Work::Less);
        // Too small a cluster for all: a few more or less are chance, many are not.
        assert_eq!(judged(&[103, 96, 104, 99, 101], &[100; 5]), Work::Same);
        assert_eq!(judged(&[180, 96, 104, 99, 101], &[100; 5]), Work::Less);
        // Only what both have lived is compared.
        assert_eq!(judged(&[0, 0, 7], &[0, 0]), Work::Same);
    }

    #[test]
    fn a_pod_is_left_out_that_waited_longer_than_any_that_got_a_node() {
        let run = |born: &[u32], moved: &[u32]| Run {
            policy: "now".into(),
            seed: 1,
            engine: spokeshave_simulate::Engine::Fast,
            measured: Measured {
                pending_born_ms: born.to_vec(),
                pending_moved_ms: moved.to_vec(),
                ..Measured::default()
            },
            curve: spokeshave_simulate::Curve::default(),
            digest: String::new(),
            work: spokeshave_simulate::WorkDone::default(),
            partial: false,
        };
        let patience = |runs: &[Run]| patience_ms(runs.iter());
        assert_eq!(patience(&[]), 60_000);
        assert_eq!(patience(&[run(&[0, 9_000], &[])]), 60_000);
        assert_eq!(
            patience(&[run(&[9_000, 70_000], &[5]), run(&[], &[86_000])]),
            86_000
        );
        assert_eq!(patience(&[run(&[7_200_000], &[])]), 900_000);
        let measured = Measured {
            pending_left_ms: vec![3_000, 86_001],
            pending_at_end_ms: vec![20_000, 86_000, 90_000],
            left_since_warmup_ms: vec![7_200_000],
            waiting_since_warmup_ms: vec![7_200_000, 7_200_000],
            ..Measured::default()
        };
        assert_eq!(left_out(&measured, 86_000), 5);
    }
}
