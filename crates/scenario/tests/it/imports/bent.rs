//! Recordings bent to size: scaled, faster, side by side, again and again.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spokeshave_scenario::import::{Recorded, Recording, bend};
use spokeshave_scenario::{Change, Event, OwnerId, Timeline};

use super::dumps::inventory;
use super::streams::{audit_event, deployment, range, recorded};
use super::tables::DLRM;
use super::{HOUR_MS, facts, source, whole};

#[test]
fn recordings_are_bent_to_size() {
    let plain = whole("format: dlrm, file: x", DLRM.as_bytes()).expect("readable");
    let bent = |import: &str, duration: u64| {
        bend(
            plain.clone(),
            &source(&format!("format: dlrm, file: x, {import}")),
            duration,
        )
        .expect("small")
    };
    let long = 10_000_000;
    assert_eq!(facts(&bent("scaleCpu: 0.05", long)), (2, 3, 4, 7_400, 200_000));
    assert_eq!(facts(&bent("speed: 2", long)), (2, 3, 4, 148_000, 100_000));
    let copies = bent("copies: 3", long);
    assert_eq!(facts(&copies), (6, 9, 12, 444_000, 200_000));
    let names = copies
        .owners
        .iter()
        .map(|owner| (owner.namespace.as_str(), owner.name.as_str()));
    assert_eq!(names.collect::<BTreeSet<_>>().len(), copies.owners.len());
    // Two and a half times: i0 lives on, i1 is born again at each seam, and the two that came later end there.
    let repeated = bent("repeat: true", 500_000);
    assert_eq!(facts(&repeated), (2, 3 + 4 + 1, 4, 148_000, 450_002));
    assert_eq!(
        facts(&bent("copies: 1", 140_000)).4,
        120_000,
        "what is after the end is left out"
    );
    let much = bend(
        plain.clone(),
        &source("format: dlrm, file: x, repeat: true, copies: 10000"),
        2_592_000_000,
    );
    assert!(much.is_err_and(|error| error.to_string().contains("fit into memory")));
}

/// What is there on both sides of a seam lives across it, under whatever number the recording gives it there.
#[test]
fn a_pod_that_lives_across_the_seam_lives_on() {
    let columns = "columns: {start: begin, end: finish, cpu: cores}";
    let import = format!("format: csv, file: x, {columns}, repeat: true");
    let table = "begin,finish,cores\n,50,1\n20,,1\n60,70,1\n";
    let plain = whole(&import, table.as_bytes()).expect("readable");
    let found = bend(plain, &source(&import), 150_000).expect("small");
    let events: Vec<(u64, Change)> = found
        .events
        .iter()
        .map(|event| (event.at_ms, event.change.clone()))
        .collect();
    let begin = |pod| Change::Begin { pod, runs_ms: None };
    let end = |pod| Change::End { pod };
    // The table begins at its first time, 20; the seam is a millisecond after its last, 70.
    let expected = [
        (0, begin(0)),
        (0, begin(1)),
        (30_000, end(0)),
        (40_000, begin(2)),
        (50_000, end(2)),
        // Pod 1 is the first pod of this round, and ends as that one did; the second one is new.
        (50_001, begin(4)),
        (80_001, end(1)),
        (90_001, begin(5)),
        (100_001, end(5)),
        (100_002, begin(7)),
        (130_002, end(4)),
        (140_002, begin(8)),
    ];
    assert_eq!(events, expected);
}

#[test]
fn replicas_stay_across_the_seam() {
    let scale = |at_ms, replicas| Event {
        at_ms,
        owner: OwnerId(0),
        change: Change::Replicas(replicas),
    };
    let mut plain = whole("format: dlrm, file: x", DLRM.as_bytes()).expect("readable");
    let asked = source("format: dlrm, file: x, repeat: true");
    plain.timeline.events = vec![scale(0, 4), scale(10, 6)];
    let found = bend(plain.clone(), &asked, 20).expect("small");
    assert_eq!(found.events, [scale(0, 4), scale(10, 6), scale(11, 4)]);
    // An owner that comes later in the recording is not there before that in any round.
    plain.timeline.events = vec![scale(5, 6), scale(10, 5)];
    let found = bend(plain, &asked, 20).expect("small");
    assert_eq!(
        found.events,
        [scale(5, 6), scale(10, 5), scale(11, 0), scale(16, 6)]
    );
}

/// When the pods of the only owner become more, in hours.
fn rises(timeline: &Timeline) -> Vec<u64> {
    let mut before = 0;
    let mut hours = Vec::new();
    for event in &timeline.events {
        let Change::Replicas(count) = event.change else {
            panic!("{event:?}");
        };
        if count > before {
            hours.push(event.at_ms / HOUR_MS);
        }
        before = count;
    }
    hours
}

/// How [`ranged`] is read.
const REPEATED: &str = "format: prometheus, file: x, repeat: true";

/// A range of the replicas of one Deployment, by seconds after 2026-03-02T00:00:00Z.
fn ranged(points: &[(u64, &str)]) -> Recorded {
    let metric =
        json!({"__name__": "kube_deployment_spec_replicas", "namespace": "shop", "deployment": "web"});
    let start = 1_772_409_600;
    let points = points.iter().map(|&(second, count)| (start + second, count));
    let points: Vec<(u64, &str)> = points.collect();
    let answer = range(&[(metric, points.as_slice())]);
    whole(REPEATED, answer.as_bytes()).expect("readable")
}

/// A day is 24 hours, although the last thing that changes in it does so in the evening.
#[test]
fn a_recording_is_repeated_when_it_was_over_and_not_when_it_changed_last() {
    // A range without its end, and one with both of its ends.
    for hours in [24, 25] {
        let count = |hour: u64| if (8..18).contains(&hour) { "20" } else { "2" };
        let points: Vec<(u64, &str)> = (0..hours).map(|hour| (hour * 3_600, count(hour))).collect();
        let found = bend(ranged(&points), &source(REPEATED), 96 * HOUR_MS).expect("small");
        assert_eq!(rises(&found), [0, 8, 32, 56, 80], "{hours} points");
    }
    let night = ("2026-03-02T00:00:00Z", "applied", deployment("web", 2, "1"));
    let mut text = recorded(&[
        night.clone(),
        ("2026-03-02T08:00:00Z", "applied", deployment("web", 20, "1")),
        ("2026-03-02T18:00:00Z", "applied", deployment("web", 2, "1")),
    ]);
    let end = "{\"at\": \"2026-03-03T00:00:00Z\", \"what\": \"ended\"}\n";
    let import = "format: record, file: x, repeat: true";
    let repeated = |text: &str, more: &str| {
        let plain = whole(import, text.as_bytes()).expect("readable");
        bend(plain, &source(&format!("{import}{more}")), 96 * HOUR_MS).expect("small")
    };
    assert_eq!(
        rises(&repeated(&text, ""))[..3],
        [0, 8, 26],
        "an older one does not say when it was over"
    );
    text.push_str(end);
    assert_eq!(rises(&repeated(&text, "")), [0, 8, 32, 56, 80]);
    assert_eq!(rises(&repeated(&text, ", speed: 2"))[..3], [0, 4, 16]);
    let constant = recorded(&[night]) + end;
    assert_eq!(rises(&repeated(&constant, "")), [0], "nothing changes");
}

/// The first thing that happens to a workload is not the first event of the log, and neither is the last.
#[test]
fn an_audit_log_is_as_long_as_all_of_its_events() {
    let other = |at: &str| audit_event(at, "get", "secrets", "s", json!({}));
    let scaled = |at: &str, replicas: u32| {
        let scale = json!({"subresource": "scale", "responseObject": {"kind": "Scale", "spec": {"replicas": replicas}}});
        audit_event(at, "patch", "deployments", "web", scale)
    };
    let web = json!({"responseObject": deployment("web", 2, "1")});
    let events = [
        other("2026-03-02T00:00:00.000000Z"),
        audit_event("2026-03-02T08:00:00.000000Z", "create", "deployments", "", web),
        scaled("2026-03-02T12:00:00.000000Z", 20),
        scaled("2026-03-02T18:00:00.000000Z", 2),
        other("2026-03-03T00:00:00.000000Z"),
    ];
    let import = "format: audit, file: x, repeat: true";
    let plain = whole(import, events.join("\n").as_bytes()).expect("readable");
    assert_eq!(plain.recorded_ms, 24 * HOUR_MS);
    let found = bend(plain, &source(import), 72 * HOUR_MS).expect("small");
    assert_eq!(rises(&found), [0, 4, 28, 52]);
}

/// The last dump of a day stands for an hour as the others do, and that of the next midnight for nothing.
#[test]
fn a_day_of_dumps_is_24_hours() {
    let source = source("format: dumps, file: x, repeat: true");
    for hours in [24, 25] {
        let mut recording = Recording::new(&source);
        for hour in 0..hours {
            let count = if (8..18).contains(&hour) { 20 } else { 2 };
            let time = format!("2026-03-0{}T{:02}:00:00Z", 2 + hour / 24, hour % 24);
            let instant = time.parse().expect("an instant");
            let dump = inventory(&[deployment("web", count, "1")]);
            recording.dump(instant, &dump).expect("in order");
        }
        let plain = recording.finish().expect("dumps");
        let found = bend(plain, &source, 96 * HOUR_MS).expect("small");
        assert_eq!(rises(&found), [0, 8, 32, 56, 80], "{hours} dumps");
    }
}

/// With a step of a day every range is one of whole days, and its last point is a day as well.
#[test]
fn a_week_of_daily_points_is_seven_days() {
    let count = |day: u64| if (1..6).contains(&day) { "20" } else { "2" };
    let points: Vec<(u64, &str)> = (0..7).map(|day| (day * 86_400, count(day))).collect();
    let found = bend(ranged(&points), &source(REPEATED), 21 * 24 * HOUR_MS).expect("small");
    assert_eq!(rises(&found), [0, 24, 8 * 24, 15 * 24]);
}

/// At the instant at which a recording is over the next round begins: what it says last of all would be there for a millisecond.
#[test]
fn what_changes_when_a_recording_is_over_is_not_played_before_the_next_round() {
    let at = |at_ms, change| Event {
        at_ms,
        owner: OwnerId(0),
        change,
    };
    let scale = |hour: u64, replicas| at(hour * HOUR_MS, Change::Replicas(replicas));
    let count = |hour: u64| if (8..18).contains(&hour) { "20" } else { "2" };
    let points = (0..24).map(|hour| (hour * 3_600, count(hour)));
    let points: Vec<(u64, &str)> = points.chain([(24 * 3_600, "30")]).collect();
    let mut plain = ranged(&points);
    let found = bend(plain.clone(), &source(REPEATED), 48 * HOUR_MS).expect("small");
    let day = |from: u64| [scale(from, 2), scale(from + 8, 20), scale(from + 18, 2)];
    assert_eq!(found.events, [day(0), day(24)].concat());
    let begin = |at_ms, pod| at(at_ms, Change::Begin { pod, runs_ms: None });
    let end = |at_ms, pod| at(at_ms, Change::End { pod });
    // What ends then ends, and what was there only at that instant was not there.
    plain.recorded_ms = 10;
    plain.timeline.events = vec![begin(0, 0), end(10, 0)];
    let last = [begin(10, 1), end(10, 1), begin(10, 2)];
    plain.timeline.events.extend(last);
    let found = bend(plain.clone(), &source(REPEATED), 20).expect("small");
    assert_eq!(found.events, [begin(0, 0), end(10, 0), begin(10, 1)]);
    // One that ends later, because its end is assumed, makes the round longer.
    plain.timeline.events = vec![begin(0, 0), begin(10, 1), end(15, 1)];
    let found = bend(plain, &source(REPEATED), 20).expect("small");
    assert_eq!(found.events, [begin(0, 0), begin(10, 1), end(15, 1)]);
}

/// Selectors are for one namespace, so that each copy has its own: hosts are kept apart within a copy, and not among all copies.
#[test]
fn selectors_of_one_copy_do_not_find_the_pods_of_another() {
    let mut web = deployment("web", 4, "1");
    let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname", "namespaces": ["shop", "kube-system"]});
    web["spec"]["template"]["spec"]["affinity"] =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let text = recorded(&[
        ("2026-03-02T00:00:00Z", "applied", web),
        ("2026-03-02T00:00:00Z", "applied", deployment("api", 1, "1")),
    ]);
    let import = "format: record, file: x, copies: 3";
    let plain = whole(import, text.as_bytes()).expect("readable");
    let found = bend(plain, &source(import), HOUR_MS).expect("small");
    assert_eq!(facts(&found).0, 15);
    let webs = found.owners.iter().filter(|owner| owner.name == "web");
    let told = webs.map(|owner| {
        let template = serde_json::to_value(owner.template.as_ref()).expect("JSON");
        let terms = "podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        let namespaces = template.pointer(&format!("/spec/affinity/{terms}/0/namespaces"));
        (owner.namespace.clone(), namespaces.cloned().unwrap_or_default())
    });
    // What was not recorded is not copied.
    let expected = ["shop", "shop-copy2", "shop-copy3"]
        .map(|namespace| (namespace.to_owned(), json!([namespace, "kube-system"])));
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

/// A selector of namespaces finds those of the other copies as well, if it asks for all of them or for one by its name.
#[test]
fn selectors_of_namespaces_stay_within_a_copy() {
    let all = json!({"namespaceSelector": {}, "topologyKey": "zone"});
    let by_name = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}, "topologyKey": "zone"});
    let among =
        json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["kube-system", "shop"]});
    let among = json!({"namespaceSelector": {"matchExpressions": [among]}, "topologyKey": "zone"});
    let mut web = deployment("web", 1, "1");
    web["spec"]["template"]["spec"]["affinity"] =
        json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [all, by_name, among]}});
    let mut api = deployment("api", 1, "1");
    api["metadata"]["namespace"] = "back".into();
    let text = recorded(&[
        ("2026-03-02T00:00:00Z", "applied", web),
        ("2026-03-02T00:00:00Z", "applied", api),
    ]);
    let import = "format: record, file: x, copies: 2";
    let plain = whole(import, text.as_bytes()).expect("readable");
    let terms = |timeline: &Timeline| -> Vec<Value> {
        let webs = timeline.owners.iter().filter(|owner| owner.name == "web");
        let told = webs.map(|owner| {
            let template = serde_json::to_value(owner.template.as_ref()).expect("JSON");
            let required = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution";
            template.pointer(required).cloned()
        });
        told.map(Option::unwrap_or_default).collect()
    };
    let found = bend(plain.clone(), &source(import), HOUR_MS).expect("small");
    let expected = ["", "-copy2"].map(|copy| {
        let (back, shop) = (format!("back{copy}"), format!("shop{copy}"));
        let among =
            json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["kube-system", shop]});
        json!([
            {"namespaces": [back, shop], "topologyKey": "zone"},
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": shop}}, "topologyKey": "zone"},
            {"namespaceSelector": {"matchExpressions": [among]}, "topologyKey": "zone"},
        ])
    });
    assert_eq!(terms(&found), expected);
    let one = "format: record, file: x";
    let before = terms(&plain.timeline);
    let found = bend(plain, &source(one), HOUR_MS).expect("small");
    assert_eq!(terms(&found), before, "of one copy nothing is changed");
}

#[test]
fn namespaces_of_copies_are_none_that_were_recorded() {
    let recorded_in = |namespaces: &[&str]| {
        let objects = namespaces.iter().map(|namespace| {
            let mut web = deployment("web", 1, "1");
            web["metadata"]["namespace"] = (*namespace).into();
            ("2026-03-02T00:00:00Z", "applied", web)
        });
        let text = recorded(&objects.collect::<Vec<_>>());
        whole("format: record, file: x", text.as_bytes()).expect("readable")
    };
    let asked = source("format: record, file: x, copies: 2");
    let namespaces = |namespaces: &[&str]| -> Vec<String> {
        let found = bend(recorded_in(namespaces), &asked, HOUR_MS).expect("small");
        found.owners.into_iter().map(|owner| owner.namespace).collect()
    };
    let expected = ["shop", "shop-copy2", "shop-copy-copy2", "shop-copy2-copy-copy2"];
    assert_eq!(namespaces(&["shop", "shop-copy2"]), expected);
    // There is no third copy of it.
    let expected = ["shop", "shop-copy3", "shop-copy2", "shop-copy3-copy2"];
    assert_eq!(namespaces(&["shop", "shop-copy3"]), expected);
    let long = "n".repeat(57);
    assert_eq!(namespaces(&[long.as_str()])[1].len(), 63);
    let long = "n".repeat(58);
    let error = bend(recorded_in(&[long.as_str()]), &asked, HOUR_MS).expect_err("too long");
    let expected = "a namespace has at most 63 characters; expected one of at most 57: leave out `copies`";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn everything_that_a_pod_requests_is_scaled() {
    let mut web = deployment("web", 1, "1");
    let amounts = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    let spec = &mut web["spec"]["template"]["spec"];
    spec["initContainers"] = json!([
        {"name": "first", "resources": amounts("4", "1Gi")},
        {"name": "proxy", "restartPolicy": "Always", "resources": amounts("200m", "64Mi")},
    ]);
    spec["overhead"] = json!({"cpu": "100m", "memory": "32Mi"});
    spec["resources"] = json!({"requests": {"cpu": "6", "memory": "4Gi"}, "limits": {"cpu": "8"}});
    let text = recorded(&[("2026-03-02T00:00:00Z", "applied", web)]);
    let import = "format: record, file: x, scaleCpu: 0.5, scaleMemory: 2";
    let plain = whole(import, text.as_bytes()).expect("readable");
    let found = bend(plain, &source(import), HOUR_MS).expect("small");
    let template = serde_json::to_value(found.owners[0].template.as_ref()).expect("JSON");
    let at = |pointer: &str| template.pointer(pointer).cloned().unwrap_or_default();
    for (place, cpu) in [
        ("containers/0/resources/requests", "500m"),
        ("initContainers/0/resources/requests", "2"),
        ("initContainers/1/resources/requests", "100m"),
        ("overhead", "50m"),
        ("resources/requests", "3"),
        ("resources/limits", "4"),
    ] {
        assert_eq!(at(&format!("/spec/{place}/cpu")), cpu, "{place}");
    }
    for (place, bytes) in [
        ("initContainers/1/resources/requests", 128_i64 << 20),
        ("overhead", 64 << 20),
        ("resources/requests", 8 << 30),
    ] {
        assert_eq!(at(&format!("/spec/{place}/memory")), bytes.to_string(), "{place}");
    }
}
