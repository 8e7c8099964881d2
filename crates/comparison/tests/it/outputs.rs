//! The outputs: table, JSON, expectations, and the wording if there is little data.

use crate::draws::{LEVEL, Planted, run, setting, with_curve};
use serde_json::Value;
use spokeshave_comparison::{Answer, CompareError, Comparison, Expectation, Verdict, interval, mean};
use spokeshave_simulate::{Engine, Run};

const PATIENT: Planted = Planted {
    cost: 1.019,
    noise: 0.004,
    evictions: 3_900.0,
};
const MODEL: Planted = Planted {
    cost: 1.135,
    noise: 0.008,
    evictions: 18_000.0,
};
const POLICIES: [&str; 4] = ["now", "patient", "same", "karpenter-model"];

fn runs(seeds: u64) -> Vec<Run> {
    let all = [
        ("now", LEVEL),
        ("patient", PATIENT),
        ("same", LEVEL),
        ("karpenter-model", MODEL),
    ];
    (1..)
        .zip(all)
        .flat_map(|(luck, (name, planted))| {
            (1..=seeds).map(move |seed| with_curve(run(name, seed, luck, planted)))
        })
        .collect()
}

fn expectations(texts: &[&str]) -> Vec<Expectation> {
    texts
        .iter()
        .map(|text| Expectation::parse(text, &POLICIES).unwrap())
        .collect()
}

fn month(seeds: u64) -> Comparison {
    let expected = expectations(&[
        "patient.cost <= 1.03 * now.cost",
        "patient.evictionsPerPodDay < now.evictionsPerPodDay",
        "karpenter-model.cost <= now.cost",
        "same.cost < now.cost",
    ]);
    Comparison::of(setting(&POLICIES), &runs(seeds), &expected).unwrap()
}

#[test]
fn the_table_is_as_committed_at_every_width() {
    let comparison = month(10);
    let mut text = String::new();
    for width in [150, 100, 80, 40] {
        text += &format!("== {width} columns\n{}", comparison.to_text(width));
    }
    text += &format!("== 2 seeds\n{}", month(2).to_text(150));
    golden("table.txt", &text);
    for width in [150, 100, 80, 40] {
        let longest = comparison
            .to_text(width)
            .lines()
            .map(|line| line.chars().count())
            .max();
        assert!(longest <= Some(width), "{longest:?} of {width}");
    }
}

/// Compares with a committed file; `BLESS=1` writes it.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it")
        .join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, committed, "{}: BLESS=1 rewrites it", path.display());
}

#[test]
fn the_order_in_which_runs_end_changes_no_byte() {
    let forward = month(10).to_json();
    let mut reversed = runs(10);
    reversed.reverse();
    let expected = expectations(&[
        "patient.cost <= 1.03 * now.cost",
        "patient.evictionsPerPodDay < now.evictionsPerPodDay",
        "karpenter-model.cost <= now.cost",
        "same.cost < now.cost",
    ]);
    let other = Comparison::of(setting(&POLICIES), &reversed, &expected).unwrap();
    assert!(forward == other.to_json());
    let mut changed = runs(10);
    changed[3].digest = "different".into();
    let changed = Comparison::of(setting(&POLICIES), &changed, &[]).unwrap();
    assert_ne!(changed.digest, other.digest);
}

#[test]
fn anyone_can_redo_the_statistics_from_the_raw_values_of_the_json() {
    let json: Value = serde_json::from_str(&month(10).to_json()).unwrap();
    assert_eq!(json["apiVersion"], "comparison.simulate.spokeshave.dev/v1alpha1");
    let raw = |policy: &str, metric: &str| -> Vec<f64> {
        let runs = json["runs"].as_array().unwrap().iter();
        runs.filter(|run| run["policy"] == policy)
            .map(|run| run["values"][metric].as_f64().unwrap())
            .collect()
    };
    for policy in json["policies"].as_array().unwrap() {
        let name = policy["name"].as_str().unwrap();
        for (metric, summary) in policy["values"].as_object().unwrap() {
            let (own, base) = (raw(name, metric), raw("now", metric));
            // The reader of JSON may miss the last bit of a number.
            let same = |found: &Value, expected: f64| {
                let found = found.as_f64().unwrap();
                let close = (found - expected).abs() <= 1e-9 * (1.0 + expected.abs());
                assert!(close, "{name}.{metric}: {found}, again {expected}");
            };
            same(&summary["mean"], mean(&own).unwrap());
            let Some(against) = summary.get("against") else {
                assert_eq!(name, "now");
                continue;
            };
            let differences: Vec<f64> = own.iter().zip(&base).map(|(own, base)| own - base).collect();
            let expected = interval(&differences, 0.05 / 3.0).unwrap();
            same(&against["interval"]["low"], expected.low);
            same(&against["interval"]["high"], expected.high);
        }
    }
    // Every name in `values` is explained.
    let explained: Vec<&str> = json["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|metric| {
            metric["meaning"]
                .as_str()
                .is_some_and(|meaning| !meaning.is_empty())
        })
        .map(|metric| metric["name"].as_str().unwrap())
        .collect();
    let used = json["runs"][0]["values"].as_object().unwrap();
    assert!(used.keys().all(|name| explained.contains(&name.as_str())));
}

#[test]
fn words_follow_the_interval() {
    let comparison = month(10);
    let verdict = |policy: usize, metric: &str| {
        let against = comparison.policies[policy].values[metric]
            .against
            .as_ref()
            .unwrap();
        (against.verdict, against.words)
    };
    assert_eq!(verdict(1, "cost"), (Verdict::Higher, "dearer"));
    assert_eq!(verdict(1, "evictionsPerPodDay"), (Verdict::Lower, "lower"));
    assert_eq!(
        verdict(2, "cost"),
        (Verdict::NoDifferenceShown, "no difference shown")
    );
    assert_eq!(verdict(3, "cost"), (Verdict::Higher, "dearer"));
    // The baseline is not compared with anything.
    assert!(comparison.policies[0].values["cost"].against.is_none());
}

#[test]
fn expectations_hold_are_contradicted_or_not_shown() {
    let answers: Vec<Answer> = month(10)
        .expectations
        .iter()
        .map(|expected| expected.answer)
        .collect();
    assert_eq!(
        answers,
        [
            Answer::Holds,
            Answer::Holds,
            Answer::Contradicted,
            Answer::NotShown
        ]
    );
    assert!(month(10).contradicted());
    let few = month(4);
    assert!(
        few.expectations
            .iter()
            .all(|expected| expected.answer == Answer::NotShown)
    );
    assert!(!few.contradicted());
}

#[test]
fn a_wait_that_has_not_ended_cannot_fulfil_a_limit_but_can_break_one() {
    let mut runs = runs(10);
    for run in &mut runs {
        run.measured.pending_at_end_ms = vec![200_000];
    }
    let judged = |text: &str| {
        let comparison = Comparison::of(setting(&POLICIES), &runs, &expectations(&[text])).unwrap();
        comparison.expectations[0].answer
    };
    assert_eq!(judged("now.pendingMax < 300"), Answer::NotShown);
    assert_eq!(judged("now.pendingMax < 100"), Answer::Contradicted);
    assert_eq!(judged("now.pendingMax > 100"), Answer::Holds);
    assert_eq!(judged("300 < now.pendingMax"), Answer::NotShown);
    assert_eq!(judged("now.unplaced <= 1"), Answer::Holds);
    assert_eq!(judged("now.unplaced < 1"), Answer::Contradicted);
    assert_eq!(judged("now.unplaced >= 1"), Answer::Holds);
}

/// Figures of waits count those that began after the warm-up. A pod that has waited all the time must not pass for none.
#[test]
fn a_wait_since_the_warm_up_cannot_fulfil_a_limit_of_waits() {
    let answers = |waiting: usize, left: usize, texts: &[&str]| -> Vec<(Answer, bool)> {
        let mut runs = runs(10);
        for run in &mut runs {
            run.measured.pending_born_ms = vec![70_000; 990];
            if run.policy == "now" {
                run.measured.waiting_since_warmup_ms = vec![7_200_000; waiting];
                run.measured.left_since_warmup_ms = vec![60_000; left];
            }
        }
        let comparison = Comparison::of(setting(&POLICIES), &runs, &expectations(texts)).unwrap();
        let expected = comparison.expectations.iter();
        expected.map(|one| (one.answer, one.why.is_some())).collect()
    };
    let (holds, open) = ((Answer::Holds, false), (Answer::NotShown, true));
    let texts = [
        "now.pendingMax < 100",
        "now.pendingP99 < 100",
        "now.pendingP50 < 100",
        "now.pendingMax <= patient.pendingMax",
        "patient.pendingMax < now.pendingMax",
        "now.pendingMax > 60",
        "patient.pendingMax < 100",
    ];
    let strict = (Answer::Contradicted, false);
    assert_eq!(
        answers(0, 0, &texts),
        [holds, holds, holds, holds, strict, holds, holds]
    );
    // Nine of 999 are no hundredth; with eleven of 1,001 the 99th of a hundred may be one of them.
    let expected = [open, holds, holds, open, open, holds, holds];
    assert_eq!(answers(9, 0, &texts), expected);
    assert_eq!(answers(0, 9, &texts), expected);
    let expected = [open, open, holds, open, open, holds, holds];
    assert_eq!(answers(5, 6, &texts), expected);
    // What was seen is enough to break a limit, and nothing that waits makes it shorter.
    assert_eq!(
        answers(1, 0, &["now.pendingMax < 60"]),
        [(Answer::Contradicted, false)]
    );
    assert_eq!(answers(1, 0, &["now.pendingMax > 100"]), [open]);
}

/// A run in which nothing waits but what has waited all the time has no figure: it must not drop out of the pairs as if it agreed with the others.
#[test]
fn a_run_of_which_no_wait_counts_does_not_let_the_others_fulfil_a_limit() {
    let mut all = runs(10);
    for run in all.iter_mut().filter(|run| run.policy == "now" && run.seed == 1) {
        run.measured.pending_born_ms.clear();
        run.measured.waiting_since_warmup_ms = vec![7_200_000];
    }
    let expected = expectations(&["now.pendingMax < 200", "now.pendingMax <= 2 * patient.pendingMax"]);
    let comparison = Comparison::of(setting(&POLICIES), &all, &expected).unwrap();
    for one in &comparison.expectations {
        assert_eq!(
            (one.answer, one.why.is_some()),
            (Answer::NotShown, true),
            "{one:?}"
        );
    }
}

/// A scale-down takes a few pods of hundreds away while they wait: however long they would have waited, most percentiles are known, or at least limited.
#[test]
fn a_few_pods_that_left_early_do_not_keep_percentiles_from_deciding() {
    let with_left = |left: usize| {
        let mut runs = runs(10);
        for run in &mut runs {
            let waits = [vec![70_000_u32; 980], vec![76_000; 12], vec![90_000; 8]];
            run.measured.pending_born_ms = waits.concat();
            run.measured.pending_left_ms = vec![3_000; left];
        }
        runs
    };
    let compared = |left: usize, texts: &[&str]| {
        Comparison::of(setting(&POLICIES), &with_left(left), &expectations(texts)).unwrap()
    };
    let judged = |left: usize, text: &str| compared(left, &[text]).expectations[0].answer;
    // With the one that left, the percentile is still one of those that waited for 76 s.
    assert_eq!(judged(1, "now.pendingP99 <= patient.pendingP99"), Answer::Holds);
    assert_eq!(judged(1, "now.pendingP99 < 80"), Answer::Holds);
    assert_eq!(judged(1, "now.pendingP99 > 80"), Answer::Contradicted);
    assert_eq!(judged(1, "now.pendingMax < 100"), Answer::NotShown);
    let is_at_least = |comparison: &Comparison, metric: &str| comparison.policies[0].values[metric].at_least;
    let one = compared(1, &[]);
    assert!(!is_at_least(&one, "pendingP50") && !is_at_least(&one, "pendingP99"));
    assert!(is_at_least(&one, "pendingMax"));
    // No column of the table is the longest wait.
    assert!(!one.to_text(160).contains('≥') && one.to_html().contains("≥: pods"));
    // With five it may also be one of those that waited for 90 s.
    assert_eq!(judged(5, "now.pendingP99 < 100"), Answer::Holds);
    assert_eq!(judged(5, "now.pendingP99 < 80"), Answer::NotShown);
    assert_eq!(judged(5, "now.pendingP99 < 75"), Answer::Contradicted);
    assert_eq!(judged(5, "now.pendingP99 > 80"), Answer::NotShown);
    assert_eq!(judged(5, "now.pendingP99 > 75"), Answer::Holds);
    let five = compared(5, &[]);
    assert!(!is_at_least(&five, "pendingP50") && is_at_least(&five, "pendingP99"));
    assert!(five.to_text(160).contains("≥ 76 s") && five.to_text(160).contains("≥: pods"));
    assert!(!five.to_text(80).contains('≥'));
    assert_eq!(five.runs[0].at_most["pendingP99"], Some(90.0));
    assert_eq!(five.runs[0].at_most["pendingMax"], None);
    assert!(!five.runs[0].at_most.contains_key("pendingP50"));
}

/// Runs of two policies: the second costs so much of the first, and of each so many pods wait in vain.
fn with_left_out(cost: f64, [now, patient]: [usize; 2], seeds: u64) -> Vec<Run> {
    let of = |name: &str, luck: u64, cost: f64, left: usize| -> Vec<Run> {
        let planted = Planted { cost, ..LEVEL };
        let mut runs: Vec<Run> = (1..=seeds).map(|seed| run(name, seed, luck, planted)).collect();
        for run in &mut runs {
            run.measured.waiting_since_warmup_ms = vec![7_200_000; left];
            // As everywhere, some have come a moment before the end.
            run.measured.pending_at_end_ms = vec![20_000; 3];
        }
        runs
    };
    let mut runs = of("now", 1, 1.0, now);
    runs.extend(of("patient", 2, cost, patient));
    runs
}

/// The easiest way to save is not to run what is dear: one pod of thousands may be half the bill.
#[test]
fn a_policy_that_leaves_pods_without_a_node_is_never_cheaper() {
    let texts = [
        "patient.cost <= now.cost",
        "patient.gap <= now.gap",
        "patient.cost < 1e9",
        "now.cost <= patient.cost",
        "patient.unplaced <= now.unplaced",
        "patient.cost >= 0",
        "now.cost < 1e9",
    ];
    let comparison = Comparison::of(
        setting(&["now", "patient"]),
        &with_left_out(0.5, [0, 1], 10),
        &expectations(&texts),
    )
    .unwrap();
    let patient = &comparison.policies[1];
    for name in ["cost", "costSpot", "bound", "gap", "wastedNodeHours"] {
        let against = patient.values[name].against.as_ref().unwrap();
        assert_eq!(
            (against.verdict, against.words),
            (Verdict::PodsLeftOut, "pods left out"),
            "{name}"
        );
    }
    let answers: Vec<Answer> = comparison.expectations.iter().map(|one| one.answer).collect();
    assert_eq!(
        answers,
        [
            Answer::NotShown,
            Answer::NotShown,
            Answer::NotShown,
            Answer::NotShown,
            Answer::Contradicted,
            Answer::Holds,
            Answer::Holds,
        ]
    );
    assert!(comparison.expectations[..4].iter().all(|one| one.why.is_some()));
    for width in [150, 80, 40] {
        let text = comparison.to_text(width);
        let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("pods left out, −"), "{text}");
        assert!(
            words.contains("patient: 1 pod a run was left without a node, none under now: "),
            "{text}"
        );
        assert!(!words.contains("cheaper"), "{text}");
    }
    let html = comparison.to_html();
    assert!(html.contains("<strong>leaves pods without a node</strong>") && html.contains("and no saving."));
    assert!(
        html.contains("<strong>patient</strong>: pods were left without a node"),
        "in the charts"
    );
    let json: Value = serde_json::from_str(&comparison.to_json()).unwrap();
    assert_eq!(
        json["policies"][1]["values"]["cost"]["against"]["verdict"],
        "podsLeftOut"
    );
    assert_eq!(
        (&json["policies"][1]["work"], &json["policies"][1]["leftOut"]),
        (&"less".into(), &1.0.into())
    );
    assert_eq!(
        (&json["runs"][0]["leftOut"], &json["runs"][10]["leftOut"]),
        (&0.into(), &1.into())
    );
    assert!(json["method"]["leftOutAfterMs"].as_u64() > Some(60_000));
}

#[test]
fn what_leaves_fewer_pods_out_is_not_dearer_and_what_costs_more_for_less_is() {
    let verdict = |cost: f64, left: [usize; 2], seeds: u64| {
        let runs = with_left_out(cost, left, seeds);
        let comparison = Comparison::of(setting(&["now", "patient"]), &runs, &[]).unwrap();
        let against = comparison.policies[1].values["cost"].against.as_ref().unwrap();
        (against.verdict, comparison.to_text(150))
    };
    let (more, text) = verdict(2.0, [3, 1], 10);
    assert_eq!(more, Verdict::MorePodsPlaced);
    assert!(
        text.contains("more pods placed, +") && !text.contains("dearer"),
        "{text}"
    );
    assert!(
        text.contains("now: 3 pods a run were left without a node, 1 under patient: "),
        "{text}"
    );
    assert_eq!(
        verdict(0.5, [3, 1], 10).0,
        Verdict::Lower,
        "cheaper although it does more"
    );
    assert_eq!(
        verdict(2.0, [1, 3], 10).0,
        Verdict::Higher,
        "dearer although it does less"
    );
    assert_eq!(
        verdict(0.5, [2, 2], 10).0,
        Verdict::Lower,
        "what fits nowhere is left out by both"
    );
    // Nor are three seeds said to show a saving.
    let (few, text) = verdict(0.5, [0, 1], 3);
    assert_eq!(few, Verdict::PodsLeftOut);
    assert!(text.contains("pods left out, −"), "{text}");
}

/// Under a policy that batches longer pods are late, and some still wait at the end: these are not left out.
#[test]
fn who_has_waited_no_longer_than_one_that_got_a_node_is_not_left_out() {
    let mut runs = with_left_out(0.5, [0, 0], 10);
    for run in runs.iter_mut().filter(|run| run.policy == "patient") {
        run.measured.pending_born_ms.push(150_000);
        run.measured.pending_at_end_ms.push(120_000);
    }
    let comparison = Comparison::of(setting(&["now", "patient"]), &runs, &[]).unwrap();
    let patient = &comparison.policies[1];
    let against = patient.values["cost"].against.as_ref().unwrap();
    assert_eq!((patient.left_out, against.verdict), (0.0, Verdict::Lower));
    assert_eq!(comparison.method.left_out_after_ms, 150_000);
}

#[test]
fn what_is_known_of_the_cluster_is_beside_its_figures() {
    let mut setting = setting(&["now", "patient"]);
    setting.notes = vec!["no NodePool takes the pods of shop/dns (2 pods)".into()];
    let comparison = Comparison::of(setting, &with_left_out(1.0, [2, 2], 6), &[]).unwrap();
    let expected = "no NodePool takes the pods of shop/dns (2 pods).";
    assert!(comparison.to_text(150).contains(expected) && comparison.to_html().contains(expected));
}

#[test]
fn interrupted_and_missing_runs_are_marked_and_in_no_mean() {
    let mut runs = runs(6);
    runs[0].partial = true;
    runs[0].measured.cost_on_demand_micros = 1;
    runs.pop();
    let comparison = Comparison::of(setting(&POLICIES), &runs, &[]).unwrap();
    assert!(comparison.partial);
    assert_eq!(comparison.policies[0].seeds, [2, 3, 4, 5, 6]);
    assert!(comparison.policies[0].values["cost"].minimum > 10_000.0);
    let pairs = |policy: usize| {
        comparison.policies[policy].values["cost"]
            .against
            .as_ref()
            .unwrap()
            .pairs
    };
    assert_eq!((pairs(1), pairs(3)), (5, 4));
    assert_eq!(comparison.runs.len(), 23);
    assert!(comparison.to_text(120).contains("PARTIAL"));
}

/// After an interrupt every policy may have the same few seeds.
#[test]
fn seeds_that_no_policy_has_run_under_make_it_partial_too() {
    let mut wanted = setting(&POLICIES);
    wanted.seeds = 6;
    let comparison = Comparison::of(wanted.clone(), &runs(5), &[]).unwrap();
    assert!(comparison.partial && comparison.to_text(120).contains("PARTIAL"));
    assert!(comparison.to_html().contains("PARTIAL"));
    assert!(!Comparison::of(wanted, &runs(6), &[]).unwrap().partial);
}

#[test]
fn runs_that_do_not_belong_together_are_refused() {
    let of = |runs: &[Run], policies: &[&str]| Comparison::of(setting(policies), runs, &[]).unwrap_err();
    assert_eq!(of(&[], &POLICIES), CompareError::Nothing);
    assert_eq!(
        of(&runs(1), &["now"]),
        CompareError::UnknownPolicy("patient".into())
    );
    let mut twice = runs(1);
    twice.push(twice[0].clone());
    assert_eq!(of(&twice, &POLICIES), CompareError::Twice("now".into(), 1));
    let mut mixed = runs(1);
    mixed[2].engine = Engine::Full;
    assert_eq!(of(&mixed, &POLICIES), CompareError::Engines);
    let mut baseline = setting(&POLICIES);
    baseline.baseline = "nwo".into();
    let error = Comparison::of(baseline, &runs(1), &[]).unwrap_err();
    assert!(
        error.to_string().contains("karpenter-model, now, patient, same"),
        "{error}"
    );
}
