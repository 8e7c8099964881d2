//! Drawn scenarios: some seeds to the end, and one seed twice.

use spokeshave_sim::soak::{RunOptions, run, run_with};

use crate::permissions::{assert_allowed, roles_of_seeds};

/// Invariants 35 and 37 over a whole scenario: the same seed writes the same log, byte for byte. Many tasks of this one wait for the same changes.
#[test]
fn one_seed_is_one_run() {
    let first = run(35);
    assert!(first.log.len() > 10_000, "{} bytes", first.log.len());
    assert!(first.log == run(35).log, "two runs of seed 35 differ");
}

/// A spinning run is aborted with an error, instead of hanging.
#[test]
fn a_run_that_makes_too_many_requests_is_given_up() {
    let options = RunOptions {
        request_limit: 100,
        ..RunOptions::default()
    };
    let outcome = run_with(8, options);
    assert!(!outcome.is_clean());
    assert_eq!(
        outcome.stuck.as_deref(),
        Some("given up after 100 requests: something spins")
    );
    // Requests that other tasks send in the same instant, heartbeats among them, still come through.
    assert!(
        (101..=120).contains(&outcome.requests),
        "{} requests",
        outcome.requests
    );
}

/// A few seeds as a first guard; `just soak` runs more.
#[test]
fn seeds_live_to_their_end() {
    for seed in [1, 8, 9] {
        let outcome = run(seed);
        assert!(
            outcome.is_clean(),
            "{}\n{:#?}\n{:?}\n{:?}\nagain: just soak 1 --first-seed {seed}",
            outcome.scenario,
            outcome.violations,
            outcome.refused,
            outcome.stuck
        );
        assert_allowed(&outcome.asked, &roles_of_seeds());
    }
}
