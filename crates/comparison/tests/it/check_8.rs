//! False alarms and what is found: how often policies that are equal are called different, and a planted difference is seen.

use crate::draws::{LEVEL, Planted, run, setting};
use spokeshave_comparison::{Comparison, Verdict};
use spokeshave_simulate::Run;

const SEEDS: u64 = 10;

/// The verdicts on cost of every policy against the first.
fn verdicts(policies: &[&str], runs: &[Run]) -> Vec<Verdict> {
    let comparison = Comparison::of(setting(policies), runs, &[]).unwrap();
    comparison.policies[1..]
        .iter()
        .map(|policy| policy.values["cost"].against.as_ref().unwrap().verdict)
        .collect()
}

fn claimed(verdicts: &[Verdict]) -> bool {
    verdicts
        .iter()
        .any(|verdict| matches!(verdict, Verdict::Lower | Verdict::Higher))
}

/// Pairs of equal policies under ten seeds each, of which `shared` says whether both live the same months.
fn false_alarms(pairs: u64, shared: bool) -> usize {
    let alarms = (0..pairs).filter(|pair| {
        let runs: Vec<Run> = (0..SEEDS)
            .flat_map(|seed| {
                let month = pair * 1000 + seed;
                let mut other = run("b", if shared { month } else { month + 500 }, 2, LEVEL);
                other.seed = month;
                [run("a", month, 1, LEVEL), other]
            })
            .collect();
        claimed(&verdicts(&["a", "b"], &runs))
    });
    alarms.count()
}

#[test]
fn equal_policies_are_called_different_in_at_most_seven_of_a_hundred_pairs() {
    for shared in [false, true] {
        let alarms = false_alarms(200, shared);
        assert!(alarms <= 14, "{alarms} of 200 pairs, same months: {shared}");
        // An interval that is too wide raises none.
        assert!(alarms >= 3, "{alarms} of 200 pairs, same months: {shared}");
    }
}

#[test]
fn with_four_equal_policies_any_is_called_different_in_at_most_seven_of_a_hundred() {
    let names = ["a", "b", "c", "d", "e"];
    let alarms = (0..200_u64)
        .filter(|family| {
            let runs: Vec<Run> = (0..SEEDS)
                .flat_map(|seed| {
                    let month = family * 1000 + seed;
                    (1..)
                        .zip(names)
                        .map(move |(luck, name)| run(name, month, luck, LEVEL))
                })
                .collect();
            claimed(&verdicts(&names, &runs))
        })
        .count();
    assert!((1..=14).contains(&alarms), "{alarms} of 200");
}

#[test]
fn a_planted_two_per_cent_is_found_with_ten_seeds_in_nine_of_ten() {
    let dearer = Planted { cost: 1.02, ..LEVEL };
    let found = (0..200_u64)
        .filter(|pair| {
            let runs: Vec<Run> = (0..SEEDS)
                .flat_map(|seed| {
                    let month = pair * 1000 + seed;
                    [run("a", month, 1, LEVEL), run("b", month, 2, dearer)]
                })
                .collect();
            verdicts(&["a", "b"], &runs) == [Verdict::Higher]
        })
        .count();
    assert!(found >= 180, "{found} of 200");
    // Without pairing, months that differ by 3 % would hide it: the same runs, paired at random.
    let hidden = (0..200_u64)
        .filter(|pair| {
            let runs: Vec<Run> = (0..SEEDS)
                .flat_map(|seed| {
                    let month = pair * 1000 + seed;
                    let mut other = run("b", month + 500, 2, dearer);
                    other.seed = month;
                    [run("a", month, 1, LEVEL), other]
                })
                .collect();
            verdicts(&["a", "b"], &runs) == [Verdict::NoDifferenceShown]
        })
        .count();
    assert!(hidden >= 100, "{hidden} of 200");
}
