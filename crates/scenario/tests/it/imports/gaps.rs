//! Series of Prometheus in which points are missing: of workloads that were gone, and of times in which nobody was asked.

use serde_json::{Value, json};
use spokeshave_scenario::Change;
use spokeshave_scenario::import::Recording;

use super::source;
use super::streams::range;

/// What the Deployment `preview` wants, by the minute. Each answer has Deployments of ten pods with points in these minutes.
fn preview(answers: &[&[(&str, &[u64])]]) -> Vec<(u64, u32)> {
    let asked = source("format: prometheus, files: [a, b]");
    let mut recording = Recording::new(&asked);
    for answer in answers {
        let series = answer.iter().map(|(name, minutes)| {
            let metric =
                json!({"__name__": "kube_deployment_spec_replicas", "namespace": "shop", "deployment": name});
            let points = minutes.iter().map(|&minute| (1_772_445_600 + 60 * minute, "10"));
            let points: Vec<(u64, &str)> = points.collect();
            (metric, points)
        });
        let series: Vec<(Value, Vec<(u64, &str)>)> = series.collect();
        let series = series
            .iter()
            .map(|(metric, points)| (metric.clone(), points.as_slice()));
        let text = range(&series.collect::<Vec<_>>());
        recording.read(text.as_bytes()).expect("readable");
    }
    let found = recording.finish().expect("a timeline").timeline;
    let events = found.events.iter();
    let own = events.filter(|event| found.owners[event.owner.0 as usize].name == "preview");
    own.map(|event| match event.change {
        Change::Replicas(count) => (event.at_ms / 60_000, count),
        _ => panic!("{event:?}"),
    })
    .collect()
}

/// A point stands for the time until the next one would have come.
#[test]
fn a_workload_is_there_as_long_as_it_has_points() {
    let all: Vec<u64> = (0..=240).collect();
    let away: Vec<u64> = (0..5).chain(200..=240).collect();
    let almost: Vec<u64> = (0..=240).filter(|minute| *minute != 100).collect();
    let cases: [(&[u64], &[(u64, u32)]); 5] = [
        (&[1], &[(1, 10), (2, 0)]),
        (&[1, 2], &[(1, 10), (3, 0)]),
        (&away, &[(0, 10), (5, 0), (200, 10)]),
        // There for less than a step each time, so that no two of its points are neighbours.
        (&[10, 130], &[(10, 10), (11, 0), (130, 10), (131, 0)]),
        // One point is missed easily.
        (&almost, &[(0, 10)]),
    ];
    for (minutes, expected) in cases {
        let found = preview(&[&[("web", &all), ("preview", minutes)]]);
        assert_eq!(found, expected, "{minutes:?}");
    }
}

/// When Prometheus is away all series have the same gap, and a series that was asked for less often has none.
#[test]
fn where_nobody_was_asked_nobody_was_gone() {
    let all: Vec<u64> = (0..=240).collect();
    let down: Vec<u64> = (0..5).chain(60..=240).collect();
    let found = preview(&[&[("web", &down), ("preview", &down)]]);
    assert_eq!(found, [(0, 10)]);
    let seldom: Vec<u64> = (0..=240).step_by(5).collect();
    let found = preview(&[&[("web", &all)], &[("preview", &seldom)]]);
    assert_eq!(found, [(0, 10)]);
}
