//! Drawn scenarios: some seeds to the end, and one seed twice.

use spokeshave_sim::soak::run;

/// Invariants 35 and 37 over a whole scenario: the same seed writes the same log, byte for byte.
#[test]
fn one_seed_is_one_run() {
    let first = run(8);
    assert!(first.log.len() > 10_000, "{} bytes", first.log.len());
    assert!(first.log == run(8).log, "two runs of seed 8 differ");
}

/// A few seeds as a first guard; `just soak` runs more.
#[test]
fn seeds_live_to_their_end() {
    for seed in [1, 8, 9] {
        let outcome = run(seed);
        assert!(
            outcome.is_clean(),
            "{}\n{:#?}\n{:?}\nagain: just soak 1 --first-seed {seed}",
            outcome.scenario,
            outcome.violations,
            outcome.stuck
        );
    }
}
