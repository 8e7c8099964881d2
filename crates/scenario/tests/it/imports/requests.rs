//! What pods request by series of Prometheus: of which pods, of which cluster, and when that changes.

use serde_json::{Value, json};
use spokeshave_scenario::import::{ImportError, Recording};

use super::streams::range;
use super::{facts, read, source};

/// 2026-03-02T10:00:00Z.
const START: u64 = 1_772_445_600;
const ASKED: &str = "format: prometheus, file: x";
const FIRST: &str = "web-5d4f8c7b9-abcde";
const SECOND: &str = "web-5d4f8c7b9-fghij";
const OTHER: &str = "web-6c8d9f7b5-klmno";

/// Values of a series and the minutes in which they were told.
type Points<'p> = &'p [(u64, &'p str)];

/// With these labels besides.
fn with(mut labels: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().into_iter().flatten() {
        labels[name] = value.clone();
    }
    labels
}

/// An answer with the four replicas of `web` for two hours, under these labels besides, and with what these pods request of the processor.
fn answer(counts: &Value, requests: &[(&str, Value, Points<'_>)]) -> String {
    let web = json!({"__name__": "kube_deployment_spec_replicas", "namespace": "shop", "deployment": "web"});
    let four: Points<'_> = &[(0, "4"), (60, "4"), (120, "4")];
    let mut series = vec![(with(web, counts), four)];
    for (pod, more, points) in requests {
        let labels = json!({"__name__": "kube_pod_container_resource_requests", "namespace": "shop", "pod": pod, "container": "main",
            "resource": "cpu", "unit": "core"});
        series.push((with(labels, more), *points));
    }
    let by_seconds = series.iter().map(|(labels, points)| {
        let points = points.iter().map(|(minute, value)| (START + 60 * minute, *value));
        (labels.clone(), points.collect::<Vec<_>>())
    });
    let by_seconds: Vec<(Value, Vec<(u64, &str)>)> = by_seconds.collect();
    let series = by_seconds
        .iter()
        .map(|(labels, points)| (labels.clone(), points.as_slice()));
    range(&series.collect::<Vec<_>>())
}

/// Thousandths of a core of its four pods, and the notes.
fn told(text: &str) -> Result<(u64, Vec<String>), ImportError> {
    read(ASKED, text.as_bytes()).map(|(found, notes)| (facts(&found).3, notes))
}

fn changed(minutes: u64) -> Vec<String> {
    vec![format!(
        "1 workloads change the specification of their pods, the first of them shop/web after {minutes} minutes: their pods are taken to stay as they were first"
    )]
}

/// A roll-out in the last ten minutes is none of what was there before.
#[test]
fn the_first_pods_tell_what_a_workload_requests() {
    let no = || json!({});
    let cases: [(&[(&str, Value, Points<'_>)], u64, Vec<String>); 5] = [
        (
            &[
                (FIRST, no(), &[(0, "0.1")]),
                (SECOND, no(), &[(0, "0.1")]),
                (OTHER, no(), &[(110, "0.1")]),
            ],
            400,
            Vec::new(),
        ),
        (
            &[
                (FIRST, no(), &[(0, "0.1"), (60, "0.1")]),
                (OTHER, no(), &[(110, "4")]),
            ],
            400,
            changed(110),
        ),
        (
            &[(OTHER, no(), &[(0, "4")]), (FIRST, no(), &[(110, "0.1")])],
            16_000,
            changed(110),
        ),
        // A pod that is resized.
        (
            &[(FIRST, no(), &[(0, "0.1"), (60, "4"), (90, "0.1")])],
            400,
            changed(60),
        ),
        // One that failed before the workload was changed is still there.
        (
            &[
                (FIRST, no(), &[(0, "0.1")]),
                (SECOND, no(), &[(0, "0.1")]),
                (OTHER, no(), &[(0, "4")]),
            ],
            400,
            changed(0),
        ),
    ];
    for (requests, milli, notes) in cases {
        assert_eq!(told(&answer(&no(), requests)), Ok((milli, notes)), "{requests:?}");
        let mut reversed = requests.to_vec();
        reversed.reverse();
        let text = answer(&no(), &reversed);
        assert_eq!(told(&text).map(|(milli, _)| milli), Ok(milli), "{requests:?}");
    }
}

/// The answer about the second hour may be read before that about the first.
#[test]
fn answers_come_in_any_order() {
    let early = answer(&json!({}), &[(FIRST, json!({}), &[(0, "0.1"), (50, "0.1")])]);
    let late = answer(&json!({}), &[(FIRST, json!({}), &[(60, "4"), (110, "4")])]);
    let asked = source("format: prometheus, files: [a, b]");
    for answers in [[&early, &late], [&late, &early]] {
        let mut recording = Recording::new(&asked);
        for text in answers {
            recording.read(text.as_bytes()).expect("readable");
        }
        let found = recording.finish().expect("a timeline");
        assert_eq!((facts(&found.timeline).3, found.notes), (400, changed(60)));
    }
}

#[test]
fn requests_of_two_clusters_are_refused() {
    let cluster = |name: &str| json!({"cluster": name, "instance": name});
    let no = json!({});
    for second in [FIRST, SECOND] {
        let (a, b) = (cluster("a"), cluster("b"));
        let small = (FIRST, a.clone(), [(0, "0.1")].as_slice());
        let large = (second, b, [(0, "8")].as_slice());
        for requests in [[small.clone(), large.clone()], [large, small]] {
            let error = told(&answer(&no, &requests)).expect_err("two clusters");
            let expected = "shop/web has pods with series of requests that differ in cluster \"a\" and \"b\"; expected those of one cluster";
            assert!(error.to_string().starts_with(expected), "{error}");
            // Which of them it is, the replica counts may say.
            assert_eq!(told(&answer(&a, &requests)), Ok((400, Vec::new())));
        }
    }
    // Where they were scraped says nothing.
    let scraped = |node: &str| json!({"cluster": "a", "node": node, "instance": node, "uid": node});
    let requests = [
        (FIRST, scraped("n1"), [(0, "0.1")].as_slice()),
        (FIRST, scraped("n2"), [(60, "0.1")].as_slice()),
    ];
    assert_eq!(told(&answer(&no, &requests)), Ok((400, Vec::new())));
}

/// As Prometheus calls labels that the scrape has as well, unless it is told to honour them.
#[test]
fn exported_labels_are_those_of_the_workload() {
    let series = |name: &str, more: Value| {
        let scraped = json!({"__name__": name, "namespace": "monitoring", "pod": "ksm-0", "container": "ksm", "exported_namespace": "shop"});
        with(scraped, &more)
    };
    let request = |pod: &str| json!({"exported_pod": pod, "exported_container": "main", "resource": "cpu"});
    let text = range(&[
        (
            series("kube_deployment_spec_replicas", json!({"deployment": "web"})),
            &[(START, "4")],
        ),
        (
            series("kube_pod_container_resource_requests", request(FIRST)),
            &[(START, "0.1")],
        ),
        (
            series("kube_pod_container_resource_requests", request("db-0")),
            &[(START, "8")],
        ),
    ]);
    let (found, notes) = read(ASKED, text.as_bytes()).expect("readable");
    assert_eq!((facts(&found).3, notes), (400, Vec::new()));
    assert_eq!(found.owners[0].namespace, "shop");
}

#[test]
fn values_that_are_no_requests_are_refused() {
    for value in ["NaN", "-1", "many"] {
        let points: Points<'_> = &[(0, value), (60, "1")];
        let error = told(&answer(&json!({}), &[(FIRST, json!({}), points)])).expect_err(value);
        let expected = format!("series 2: value {value:?} is not a request");
        assert_eq!(error.to_string(), expected);
    }
}

/// As of Thanos, when one of its stores is away: what that knows reads as if it had been gone.
#[test]
fn what_prometheus_warns_of_is_noted() {
    let whole = answer(&json!({}), &[(FIRST, json!({}), &[(0, "0.1")])]);
    let mut partial: Value = serde_json::from_str(&whole).expect("JSON");
    partial["warnings"] = json!(["no StoreAPI of eu-1"]);
    let note = "Prometheus warns of its answers (1), the first of them \"no StoreAPI of eu-1\": a workload that they lack is taken to have been gone";
    let asked = source("format: prometheus, files: [a, b]");
    let mut recording = Recording::new(&asked);
    for text in [&partial.to_string(), &whole] {
        recording.read(text.as_bytes()).expect("readable");
    }
    assert_eq!(recording.finish().expect("a timeline").notes, [note]);
    partial["warnings"] = Value::Null;
    assert_eq!(told(&partial.to_string()), Ok((400, Vec::new())));
    partial["isPartial"] = true.into();
    let whole_note = note.replace("no StoreAPI of eu-1", "isPartial");
    assert_eq!(told(&partial.to_string()), Ok((400, vec![whole_note])));
}
