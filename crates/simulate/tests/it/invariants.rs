//! Many small random worlds, each judged by the independent checker of its log.
//!
//! `just engine-seeds N` lives N of them in a release build.

use crate::promises;
use crate::promises::report::{never_judged, tally};

/// The first ten worlds have all that there is to judge.
const SEEDS: u64 = 10;

#[test]
fn what_happens_in_random_worlds_keeps_every_promise() {
    let mut reports = Vec::new();
    for seed in 1..=SEEDS {
        let (_, report) = promises::judge(seed);
        let broken: Vec<String> = report.broken.iter().map(ToString::to_string).collect();
        assert!(broken.is_empty(), "seed {seed}:\n{}", broken.join("\n"));
        reports.push(report);
    }
    let never = never_judged(&tally(&reports));
    assert!(never.is_empty(), "never judged: {never:?}");
}
