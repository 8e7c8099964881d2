//! What runs took: beside the figures, and in no digest.

use serde_json::{Value, json};
use spokeshave_comparison::Comparison;
use spokeshave_simulate::{Run, WorkDone};

use crate::draws::{LEVEL, run, setting};

const POLICIES: [&str; 2] = ["now", "patient"];

/// Two policies under two seeds, each of which took this.
fn compared(work: WorkDone) -> Comparison {
    let of = |name: &str, luck: u64, seed: u64| Run {
        work,
        ..run(name, seed, luck, LEVEL)
    };
    // The order in which runs end is none that is shown.
    let runs = [
        of("patient", 2, 2),
        of("now", 1, 2),
        of("patient", 2, 1),
        of("now", 1, 1),
    ];
    Comparison::of(setting(&POLICIES), &runs, &[]).unwrap()
}

/// The JSON form before its section `took`, and the section.
fn cut(comparison: &Comparison) -> (String, Value) {
    let text = comparison.to_json();
    let (before, last) = text.split_once("\n  \"took\": ").unwrap();
    let last = last.strip_suffix("\n}\n").unwrap();
    (before.to_owned(), serde_json::from_str(last).unwrap())
}

#[test]
fn what_runs_took_is_the_last_section_and_changes_nothing_before_it() {
    let fast = WorkDone {
        launches: 5,
        failed_launches: 1,
        commands: 3,
        moves: 8,
        what_ifs: Some(70),
        api_writes: None,
        cpu_ms: Some(1_250),
    };
    let full = WorkDone {
        what_ifs: None,
        api_writes: Some(900),
        cpu_ms: None,
        ..fast
    };
    let (before, took) = cut(&compared(fast));
    let expected = |policy: &str, seed: u64| {
        json!({"policy": policy, "seed": seed, "launches": 5, "failedLaunches": 1, "commands": 3, "moves": 8,
            "whatIfs": 70, "cpuSeconds": 1.25})
    };
    let each = [("now", 1), ("now", 2), ("patient", 1), ("patient", 2)];
    let all: Vec<Value> = each
        .iter()
        .map(|(policy, seed)| expected(policy, *seed))
        .collect();
    assert_eq!(took, Value::from(all));
    let (other, took) = cut(&compared(full));
    assert_eq!(before, other, "figures and digests");
    assert!(before.contains("\n  \"digest\": "), "{before}");
    assert_eq!(
        took[0],
        json!({"policy": "now", "seed": 1, "launches": 5, "failedLaunches": 1, "commands": 3, "moves": 8, "apiWrites": 900}),
        "what was not counted is left out"
    );
}
