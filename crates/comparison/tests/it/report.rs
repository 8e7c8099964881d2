//! The HTML report: one file that loads nothing, whose numbers are those of the JSON.

use crate::draws::{LEVEL, Planted, run, setting, with_curve};
use serde_json::Value;
use spokeshave_comparison::{Comparison, Expectation, Input};
use spokeshave_simulate::Run;

const POLICIES: [&str; 4] = ["now", "patient", "never", "karpenter-model"];

fn month(seeds: u64) -> Comparison {
    let planted = [
        LEVEL,
        Planted {
            cost: 1.012,
            noise: 0.004,
            evictions: 3_900.0,
        },
        Planted {
            cost: 1.3,
            noise: 0.004,
            evictions: 0.0,
        },
        Planted {
            cost: 1.135,
            noise: 0.008,
            evictions: 18_000.0,
        },
    ];
    let runs: Vec<Run> = (1..)
        .zip(POLICIES.iter().zip(planted))
        .flat_map(|(luck, (name, planted))| {
            (1..=seeds).map(move |seed| with_curve(run(name, seed, luck, planted)))
        })
        .collect();
    let mut setting = setting(&POLICIES);
    setting.policies[1].summary = Some("consolidateAfter: 10m".into());
    setting.alterations = vec!["CPU of services × 0.05".into()];
    setting.inputs = vec![Input {
        file: "pools.yaml".into(),
        format: "manifests".into(),
        sha256: "cd".repeat(32),
        licence: None,
    }];
    let expected = [
        "patient.cost <= 1.02 * now.cost",
        "patient.cost <= now.cost",
        "karpenter-model.cost < now.cost",
    ];
    let expected: Vec<Expectation> = expected
        .iter()
        .map(|text| Expectation::parse(text, &POLICIES).unwrap())
        .collect();
    Comparison::of(setting, &runs, &expected).unwrap()
}

/// The values of an attribute, in order.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!(" {name}=\"");
    html.split(begin.as_str())
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

#[test]
fn check_11_numbers_are_those_of_the_json() {
    let comparison = month(10);
    let (html, json) = (comparison.to_html(), comparison.to_json());
    let json: Value = serde_json::from_str(&json).unwrap();
    let names = attributes(&html, "data-of");
    let values: Vec<f64> = html
        .split(" data-of=\"")
        .skip(1)
        .map(|rest| attributes(rest, "value")[0].parse().unwrap())
        .collect();
    assert!(names.len() >= 80, "{}", names.len());
    for (name, value) in names.iter().zip(values) {
        let [policy, metric, field] = name.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{name}");
        };
        let policies = json["policies"].as_array().unwrap();
        let own = policies.iter().find(|one| one["name"] == policy).unwrap();
        let summary = &own["values"][metric];
        let expected = match field {
            "mean" => &summary["mean"],
            "relative" => &summary["against"]["relative"],
            "low" | "high" => &summary["against"]["relativeInterval"][field],
            other => panic!("{other}"),
        };
        let expected = expected.as_f64().unwrap();
        assert!(
            (value - expected).abs() <= 1e-9 * (1.0 + expected.abs()),
            "{name}: {value}, JSON says {expected}"
        );
    }
}

#[test]
fn check_11_lines_run_where_the_json_says() {
    let comparison = month(10);
    let html = comparison.to_html();
    for policy in &comparison.policies {
        let marked = format!(" data-course=\"{}\"", policy.name);
        let rest = html.split(marked.as_str()).nth(1).unwrap();
        let top: f64 = attributes(rest, "data-top")[0].parse().unwrap();
        let path = attributes(rest, "d")[0];
        let heights: Vec<f64> = path
            .split(['M', 'L'])
            .skip(1)
            .map(|point| point.split(' ').nth(1).unwrap().parse().unwrap())
            .collect();
        assert_eq!(heights.len(), policy.curve.cost_per_hour.len());
        for (height, value) in heights.iter().zip(&policy.curve.cost_per_hour) {
            // The chart is 242 units high; a coordinate is a tenth of a unit.
            let drawn = (250.0 - height) / 242.0 * top;
            assert!(
                (drawn - value).abs() <= top / 242.0 * 0.051,
                "{}: {drawn}, {value}",
                policy.name
            );
        }
    }
}

#[test]
fn check_11_it_is_one_small_file_that_loads_nothing_and_needs_no_script() {
    let html = month(30).to_html();
    assert!(html.len() <= 500_000, "{}", html.len());
    for foreign in [
        "http:",
        "https:",
        "<script",
        "url(",
        "@import",
        " src=",
        " href=",
        "<link",
        "javascript:",
    ] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(html.contains("default-src 'none'"));
    assert!(html.contains("prefers-color-scheme: dark"));
}

#[test]
fn check_11_charts_and_tables_say_what_they_are() {
    let html = month(10).to_html();
    for table in html.split("<table").skip(1) {
        let table = table.split("</table>").next().unwrap();
        assert!(table.contains("<caption>"));
        let mut headings = table
            .split("<th")
            .skip(1)
            .map(|rest| rest.split('>').next().unwrap());
        assert!(headings.all(|heading| heading == "ead" || heading.contains(" scope=\"")));
    }
    let charts: Vec<&str> = html.split("<figure>").skip(1).collect();
    assert_eq!(charts.len(), 4);
    for chart in charts {
        let chart = chart.split("</figure>").next().unwrap();
        assert!(chart.contains("role=\"img\"") && chart.contains("<desc") && chart.contains("<figcaption>"));
    }
    // Every other drawing is an ornament beside its name.
    let ornaments = html.matches("<svg class=\"swatch").count();
    assert_eq!(html.matches("<svg").count(), 4 + ornaments);
    assert!(html.matches("aria-hidden=\"true\"").count() >= ornaments);
    let mut ids = attributes(&html, "id");
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    let names = [
        attributes(&html, "aria-labelledby"),
        attributes(&html, "aria-describedby"),
    ]
    .concat();
    for name in names.iter().flat_map(|names| names.split(' ')) {
        assert!(ids.contains(&name), "{name}");
    }
}

#[test]
fn what_the_report_says_in_words_follows_the_intervals() {
    let html = month(10).to_html();
    for expected in [
        "<strong>dearer</strong> than now",
        "CPU of services × 0.05",
        "karpenter-model*",
        "a model of documented behaviour, not the product",
        "What is not modelled",
        &"cd".repeat(32),
        "<span class=\"badge\">contradicted</span>",
        "<span class=\"badge\">holds</span>",
        "consolidateAfter: 10m",
    ] {
        assert!(html.contains(expected), "{expected}");
    }
    let few = month(3).to_html();
    assert!(!few.contains("<strong>dearer</strong>") && few.contains("too few to tell it from chance"));
}

#[test]
fn names_from_files_cannot_break_out_of_the_text() {
    let mut setting = setting(&["now"]);
    setting.scenario = "<script>alert(1)</script>".into();
    setting.start = "no time".into();
    setting.inputs = vec![Input {
        file: "\"><img src=x>".into(),
        ..Input::default()
    }];
    let mut run = run("now", 1, 1, LEVEL);
    run.digest = "é".repeat(20);
    let html = Comparison::of(setting, &[run], &[]).unwrap().to_html();
    assert!(!html.contains("<script") && !html.contains("<img"));
    assert!(html.contains("One policy only"));
}

/// Of nothing, nothing is a share.
#[test]
fn differences_from_a_baseline_that_costs_nothing_are_in_dollars() {
    let life = |policy: &str, seed, micros| Run {
        policy: policy.to_owned(),
        seed,
        engine: spokeshave_simulate::Engine::Fast,
        measured: spokeshave_simulate::Measured {
            cost_on_demand_micros: micros,
            ..spokeshave_simulate::Measured::default()
        },
        curve: spokeshave_simulate::Curve::default(),
        digest: String::new(),
        work: spokeshave_simulate::WorkDone::default(),
        partial: false,
    };
    for (seeds, words) in [(6, "dearer, +$5.00 [+$5.00, +$5.00]"), (2, "+$5.00")] {
        let runs: Vec<Run> = (1..=seeds)
            .flat_map(|seed| [life("now", seed, 0), life("never", seed, 5_000_000)])
            .collect();
        let comparison = Comparison::of(setting(&["now", "never"]), &runs, &[]).unwrap();
        let (html, text) = (comparison.to_html(), comparison.to_text(150));
        assert!(text.contains(words), "{text}");
        assert!(html.contains("+$5.00") && !html.contains("now: ;") && !html.contains("now: ."));
    }
}

/// With `SAMPLE=report.html`, writes it for inspection (`e2e/web/report.py` does), with its JSON next to it.
#[test]
fn the_same_comparison_gives_the_same_bytes() {
    let html = month(10).to_html();
    assert!(html == month(10).to_html());
    if let Some(path) = std::env::var_os("SAMPLE") {
        let path = std::path::PathBuf::from(path);
        std::fs::write(path.with_extension("json"), month(10).to_json()).unwrap();
        std::fs::write(path, html).unwrap();
    }
}

#[test]
fn lives_in_which_nothing_happened_are_shown_too() {
    let nothing = |policy: &str, seed| Run {
        policy: policy.to_owned(),
        seed,
        engine: spokeshave_simulate::Engine::Full,
        measured: spokeshave_simulate::Measured::default(),
        curve: spokeshave_simulate::Curve::default(),
        digest: String::new(),
        work: spokeshave_simulate::WorkDone::default(),
        partial: false,
    };
    for seeds in [1, 6] {
        let runs: Vec<Run> = (1..=seeds)
            .flat_map(|seed| [nothing("now", seed), nothing("never", seed)])
            .collect();
        let comparison = Comparison::of(setting(&["now", "never"]), &runs, &[]).unwrap();
        let (html, text) = (comparison.to_html(), comparison.to_text(100));
        assert!(html.contains("$0.00") && text.contains("$0.00"), "{text}");
        assert!(
            !html.contains("NaN") && !html.contains("inf") && !text.contains("NaN"),
            "{text}"
        );
        assert!(text.contains("engine full"));
    }
}
