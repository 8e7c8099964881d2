//! Generated workloads: counts that can be worked out by hand, draws that go by seed and path.

use std::collections::BTreeMap;

use spokeshave_scenario::generate::{Excess, MOST_EVENTS, check_size, owners};
use spokeshave_scenario::{Budget, Change, Event, Facts, OwnerId, OwnerKind, Timeline, generate};

use super::scenario;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

fn timeline(duration: &str, workloads: &str, seed: u64) -> Timeline {
    generate(&scenario(duration, workloads), seed, &BTreeMap::new()).expect("small enough")
}

/// The replica count of an owner at an instant.
fn replicas_at(timeline: &Timeline, name: &str, at_ms: u64) -> u32 {
    let events = timeline
        .events
        .iter()
        .filter(|event| event.at_ms <= at_ms && timeline.owners[event.owner.0 as usize].name == name);
    let mut counts = events.filter_map(|event| match event.change {
        Change::Replicas(count) => Some(count),
        _ => None,
    });
    counts.next_back().expect("a count from the start")
}

#[test]
fn constant_replicas_are_one_event_each_and_sizes_are_taken_in_turn() {
    let found = timeline(
        "7d",
        "  - name: web\n    deployments: {count: 5, cpu: [250m, 1], memory: 512Mi}\n    replicas: 4",
        1,
    );
    assert_eq!(found.owners_of(OwnerKind::Deployment), 5);
    assert_eq!(found.events.len(), 5);
    let facts = Facts::of(&found);
    // Three owners have pods of 250m, two of 1.
    assert_eq!(facts.peak_cpu_milli, 4 * (3 * 250 + 2 * 1_000));
    assert_eq!(facts.peak_memory_bytes, 20 * (512 << 20));
    assert_eq!((facts.at_start, facts.births, facts.peak_pods), (20, 0, 20));
}

/// A size that comes back is the one that it was; owners take those of a change in turn as well.
#[test]
fn sizes_change_at_their_times() {
    let changes = "[{at: 1d, cpu: 500m}, {at: 2d, memory: 1Gi}, {at: 3d, cpu: [250m, 1], memory: 512Mi}]";
    let found = timeline(
        "7d",
        &format!(
            "  - name: web\n    deployments: {{count: 2, cpu: [250m, 1], memory: 512Mi, changes: {changes}}}\n    replicas: 4"
        ),
        1,
    );
    for (index, owner) in (0..).zip(&found.owners) {
        let own = found.events.iter().filter(|event| event.owner == OwnerId(index));
        let own: Vec<(u64, Change)> = own
            .map(|event| (event.at_ms / DAY_MS, event.change.clone()))
            .collect();
        let expected = [
            (0, Change::Replicas(4)),
            (1, Change::Template(1)),
            (2, Change::Template(2)),
            (3, Change::Template(0)),
        ];
        assert_eq!(own, expected, "{}", owner.name);
        let cpu = owner.templates().map(|template| {
            let template = serde_json::to_value(template.as_ref()).expect("JSON");
            template["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone()
        });
        let first = ["250m", "1"][index as usize];
        assert_eq!(cpu.collect::<Vec<_>>(), [first, "500m", "500m"]);
    }
    let facts = Facts::of(&found);
    assert_eq!(facts.peak_cpu_milli, 4 * (250 + 1_000), "at first and at last");
    assert_eq!(
        facts.peak_memory_bytes,
        8 << 30,
        "from the second day to the third"
    );
    // All eight are made anew three times.
    assert_eq!((facts.at_start, facts.births, facts.peak_pods), (8, 24, 8));
}

/// Pods of Jobs are made from what holds when they come.
#[test]
fn jobs_that_come_later_are_of_another_size() {
    let found = timeline(
        "2d",
        "  - name: nightly\n    jobs: {cron: \"0 1 * * *\", cpu: 2, memory: 1Gi, runs: 10m, changes: [{at: 1d, cpu: 8}]}",
        1,
    );
    let events: Vec<(u64, bool)> = found
        .events
        .iter()
        .map(|event| (event.at_ms / HOUR_MS, matches!(event.change, Change::Template(1))))
        .collect();
    assert_eq!(events, [(1, false), (24, true), (25, false)]);
    assert_eq!(Facts::of(&found).peak_cpu_milli, 8_000);
}

#[test]
fn a_curve_peaks_when_it_should_and_rests_at_weekends() {
    let found = timeline(
        "7d",
        "  - name: web\n    deployments: {cpu: 1, memory: 1Gi}\n    replicas: {low: 6, high: 40, peakAt: \"14:00\", weekend: 0.5}",
        1,
    );
    // 2 March 2026 is a Monday, so day 5 is a Saturday.
    for (hours, expected) in [
        (14, 40),
        (2, 6),
        (8, 23),
        (5 * 24 + 14, 20),
        (5 * 24 + 2, 3),
        (4 * 24 + 14, 40),
    ] {
        assert_eq!(
            replicas_at(&found, "web", hours * HOUR_MS),
            expected,
            "hour {hours}"
        );
    }
    let facts = Facts::of(&found);
    assert_eq!(facts.peak_pods, 40);
    assert_eq!(facts.peak_cpu_milli, 40_000);
}

#[test]
fn births_are_rises_of_the_replica_count() {
    let found = timeline(
        "1d",
        "  - name: web\n    deployments: {cpu: 1, memory: 1Gi}\n    replicas: {low: 10, high: 20, peakAt: \"12:00\"}",
        1,
    );
    let facts = Facts::of(&found);
    assert_eq!((facts.at_start, facts.births, facts.peak_pods), (10, 10, 20));
}

#[test]
fn noise_has_the_deviation_that_it_was_given_and_a_memory() {
    let found = timeline(
        "30d",
        "  - name: web\n    deployments: {cpu: 1, memory: 1Gi}\n    replicas: {low: 1000, high: 1000, noise: 0.1, every: 1h}",
        7,
    );
    let counts: Vec<f64> = (0..30 * 24)
        .map(|hour| f64::from(replicas_at(&found, "web", hour * HOUR_MS)))
        .collect();
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
    let neighbours = counts.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean));
    let correlation = neighbours.sum::<f64>() / (counts.len() - 1) as f64 / variance;
    assert!((mean - 1_000.0).abs() < 20.0, "mean {mean}");
    assert!(
        (variance.sqrt() - 100.0).abs() < 15.0,
        "deviation {}",
        variance.sqrt()
    );
    // e⁻¹ from one hour to the next.
    assert!((correlation - 0.368).abs() < 0.12, "correlation {correlation}");
}

#[test]
fn jobs_come_with_their_schedule_and_last_as_long_as_they_should() {
    let found = timeline(
        "10d",
        "  - name: nightly\n    jobs: {cron: \"0 1 * * *\", count: 800, cpu: 2, memory: 4Gi, runs: {median: 12m, p99: 2h}}",
        3,
    );
    assert_eq!(found.owners.len(), 1);
    assert_eq!(found.events.len(), 8_000);
    let mut runs: Vec<u64> = Vec::new();
    let mut numbers = std::collections::BTreeSet::new();
    for event in &found.events {
        assert_eq!(event.at_ms % DAY_MS, HOUR_MS);
        let Change::Begin {
            pod,
            runs_ms: Some(length),
        } = event.change
        else {
            panic!("{event:?}");
        };
        assert!(numbers.insert(pod), "pod {pod} twice");
        runs.push(length);
    }
    runs.sort_unstable();
    let (median, p99) = (runs[4_000] as f64, runs[7_920] as f64);
    assert!((median / 720_000.0 - 1.0).abs() < 0.05, "median {median}");
    assert!((p99 / 7_200_000.0 - 1.0).abs() < 0.15, "p99 {p99}");
    let facts = Facts::of(&found);
    assert_eq!(
        (facts.births, facts.peak_pods, facts.peak_cpu_milli),
        (8_000, 800, 1_600_000)
    );
    assert!((facts.births_per_day(10 * DAY_MS) - 800.0).abs() < 1e-9);
}

#[test]
fn jobs_at_a_rate_come_when_most_of_them_should() {
    let found = timeline(
        "14d",
        "  - name: builds\n    jobs: {perDay: 2000, peakAt: \"15:00\", weekend: 0.25, cpu: 2, memory: 4Gi, runs: 5m}",
        3,
    );
    let of =
        |keep: &dyn Fn(u64) -> bool| found.events.iter().filter(|event| keep(event.at_ms)).count() as f64;
    let weekday = |at: u64| !matches!(at / DAY_MS % 7, 5 | 6);
    let on_weekdays = of(&weekday) / 10.0;
    let at_weekends = of(&|at| !weekday(at)) / 4.0;
    assert!((on_weekdays / 2_000.0 - 1.0).abs() < 0.05, "{on_weekdays}");
    assert!((at_weekends / 500.0 - 1.0).abs() < 0.1, "{at_weekends}");
    let by_day = of(&|at| (9..21).contains(&(at / HOUR_MS % 24)));
    let by_night = of(&|at| !(9..21).contains(&(at / HOUR_MS % 24)));
    // 1 + cos over the half around the peak against the other half: (π + 2) : (π − 2).
    assert!((by_day / by_night - 4.50).abs() < 0.5, "{}", by_day / by_night);
    assert!(found.events.is_sorted_by_key(|event| event.at_ms));
    assert!(found.events.iter().all(|event| matches!(
        event.change,
        Change::Begin {
            runs_ms: Some(300_000),
            ..
        }
    )));
}

#[test]
fn seeds_differ_and_workloads_do_not_disturb_each_other() {
    let web = "  - name: web\n    deployments: {count: 3, cpu: 1, memory: 1Gi}\n    replicas: {low: 5, high: 50, noise: 0.2}";
    let jobs = "  - name: builds\n    jobs: {perDay: 100, cpu: 2, memory: 4Gi, runs: {median: 5m, p99: 1h}}";
    let (one, again, other) = (
        timeline("2d", web, 1),
        timeline("2d", web, 1),
        timeline("2d", web, 2),
    );
    assert_eq!(one, again);
    assert_ne!(one.events, other.events);
    let both = timeline("2d", &format!("{jobs}\n{web}"), 1);
    let of_web = |timeline: &Timeline| {
        let of = timeline
            .events
            .iter()
            .filter(|event| timeline.owners[event.owner.0 as usize].name.starts_with("web"));
        of.map(|event| {
            (
                event.at_ms,
                timeline.owners[event.owner.0 as usize].name.clone(),
                event.change.clone(),
            )
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(
        of_web(&both),
        of_web(&one),
        "another workload does not change the draws of this one"
    );
}

#[test]
fn what_pods_ask_for_is_in_their_template() {
    let found = timeline(
        "1d",
        "  - name: db\n    statefulSets: {count: 2, replicas: 3, cpu: 4, memory: 32Gi, gpu: 1, volume: zonal, doNotDisrupt: true, \
         spread: [zone, host], maxUnavailable: 1, nodeSelector: {disk: ssd}, pod: {priorityClassName: high, tolerations: [{key: db, operator: Exists}]}}",
        1,
    );
    assert_eq!(found.owners_of(OwnerKind::StatefulSet), 2);
    let owner = &found.owners[1];
    assert_eq!(
        (owner.name.as_str(), &owner.budget),
        ("db-1", &Some(Budget::MaxUnavailable("1".to_owned())))
    );
    assert_eq!(owner.claims.len(), 1);
    let template = serde_json::to_value(owner.template.as_ref()).expect("JSON");
    let at = |pointer: &str| template.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(at("/metadata/annotations/karpenter.sh~1do-not-disrupt"), "true");
    assert_eq!(at("/spec/containers/0/resources/requests/cpu"), "4");
    assert_eq!(at("/spec/containers/0/resources/requests/memory"), "34359738368");
    assert_eq!(at("/spec/containers/0/resources/limits/nvidia.com~1gpu"), "1");
    assert_eq!(
        at("/spec/topologySpreadConstraints/0/topologyKey"),
        "topology.kubernetes.io/zone"
    );
    assert_eq!(
        at("/spec/topologySpreadConstraints/1/labelSelector/matchLabels/app"),
        "db-1"
    );
    assert_eq!(at("/spec/nodeSelector/disk"), "ssd");
    assert_eq!(at("/spec/tolerations/0/key"), "db");
    assert_eq!(at("/spec/priorityClassName"), "high");
}

/// Who compares the names of owners need not draw what they do.
#[test]
fn owners_are_known_before_anything_is_drawn() {
    let workloads = "  - name: web\n    deployments: {count: 3, cpu: 1, memory: 1Gi}\n    replicas: 2\n  \
         - name: db\n    statefulSets: {replicas: 2, cpu: 1, memory: 1Gi}\n  \
         - name: work\n    jobs: {perDay: 24, cpu: [1, 2], memory: 1Gi, runs: 1m}";
    let scenario = scenario("1d", workloads);
    let told: Vec<(OwnerKind, String)> = scenario.workloads.iter().flat_map(owners).collect();
    let drawn = timeline("1d", workloads, 1);
    let drawn = drawn.owners.iter().map(|owner| (owner.kind, owner.name.clone()));
    assert_eq!(told, drawn.collect::<Vec<_>>());
    assert_eq!(told.len(), 3 + 1 + 2);
}

#[test]
fn what_does_not_fit_into_memory_is_refused_before_it_is_drawn() {
    let much = scenario(
        "366d",
        "  - name: storm\n    jobs: {cron: \"* * * * *\", count: 100000, cpu: 1, memory: 1Gi, runs: 1m}",
    );
    let error = generate(&much, 1, &BTreeMap::new()).expect_err("52 thousand million events");
    assert_eq!(error.workload, "storm");
    assert!(matches!(error.excess, Excess::Events(events) if events > MOST_EVENTS));
    assert!(error.to_string().contains("shorten duration"), "{error}");
    // One event each, and more pods than any cluster has.
    let many = scenario(
        "1h",
        "  - name: web\n    deployments: {count: 1000, cpu: 1, memory: 1Gi}\n    replicas: 1000\n  \
         - name: last\n    deployments: {count: 1000, cpu: 1, memory: 1Gi}\n    replicas: {low: 1, high: 600, peakAt: \"14:00\"}",
    );
    let error = generate(&many, 1, &BTreeMap::new()).expect_err("1.6 million pods");
    assert_eq!(
        (error.workload.as_str(), error.excess),
        ("last", Excess::Pods(1_600_000))
    );
    assert!(
        error.to_string().contains("lower its count or its replicas"),
        "{error}"
    );
    let changes = [1, 2, 3, 4, 5, 6].map(|hour| format!("{{at: {hour}h, cpu: {hour}}}"));
    let renewed = scenario(
        "1d",
        &format!(
            "  - name: web\n    deployments: {{count: 100000, cpu: 500m, memory: 1Gi, changes: [{}]}}\n    replicas: 1",
            changes.join(", ")
        ),
    );
    let error = generate(&renewed, 1, &BTreeMap::new()).expect_err("600 thousand templates");
    assert_eq!(error.excess, Excess::Templates(600_000));
    assert!(error.to_string().contains("or its changes"), "{error}");
}

/// A weekend may be busier than the week, Jobs run beside each other, and recordings count as well.
#[test]
fn weekends_jobs_and_recordings_are_counted_before_they_are_lived() {
    let asked = |duration: &str, workloads: &str| {
        let scenario = scenario(duration, workloads);
        let told = check_size(&scenario, &BTreeMap::new());
        told.map_err(|error| (error.field, error.excess))
    };
    let web = |weekend: u32| {
        format!(
            "  - name: web\n    deployments: {{count: 10, cpu: 1, memory: 1Gi}}\n    replicas: {{low: 1, high: 20000, weekend: {weekend}}}"
        )
    };
    // The scenario begins on a Monday.
    assert_eq!(asked("7d", &web(1)), Ok(()));
    assert_eq!(asked("5d", &web(10)), Ok(()));
    let much = Excess::Pods(2_000_000);
    assert_eq!(asked("7d", &web(10)), Err(("spec.workloads[0]".to_owned(), much)));
    let jobs = |weekend: u32| {
        format!(
            "  - name: work\n    jobs: {{perDay: 2000000, weekend: {weekend}, cpu: 1, memory: 1Gi, runs: 1m}}"
        )
    };
    assert_eq!(asked("7d", &jobs(1)), Ok(()));
    let much = Excess::Events(2_000_000 * (5 + 2 * 10));
    assert_eq!(
        asked("7d", &jobs(10)),
        Err(("spec.workloads[0]".to_owned(), much))
    );
    let long =
        "  - name: work\n    jobs: {cron: \"0 * * * *\", count: 20000, cpu: 1, memory: 1Gi, runs: 10d}";
    assert!(matches!(asked("7d", long), Err((_, Excess::Pods(_)))));

    let many = timeline(
        "1h",
        "  - name: web\n    deployments: {cpu: 1, memory: 1Gi}\n    replicas: 1000000",
        1,
    );
    let imports = scenario(
        "1h",
        "  - name: rec\n    import: {format: record, file: x}\n  - name: more\n    import: {format: record, file: z}",
    );
    let mut read = BTreeMap::from([("rec".to_owned(), many.clone())]);
    assert_eq!(check_size(&imports, &read), Ok(()));
    read.insert("more".to_owned(), many.clone());
    let error = check_size(&imports, &read).expect_err("two million pods");
    assert_eq!(
        error.to_string(),
        "with workload \"more\" there would be about 2000000 pods at once, and at most 1500000 fit; lower its copies or its replicas, of which default/web has the most, 1000000"
    );
    read.remove("more");
    read.insert(String::new(), many);
    let error = check_size(&imports, &read).expect_err("a dump counts, too");
    assert_eq!(error.field, "spec.cluster.snapshot");
}

/// As Jobs of a batch cluster, each of which is a workload of its own.
#[test]
fn what_was_recorded_one_after_the_other_is_not_there_at_once() {
    let mut found = timeline(
        "1h",
        "  - name: web\n    deployments: {count: 2, cpu: 1, memory: 1Gi}\n    replicas: 1",
        1,
    );
    let event = |at_ms: u64, owner: u32, replicas: u32| Event {
        at_ms,
        owner: OwnerId(owner),
        change: Change::Replicas(replicas),
    };
    let imports = scenario("1h", "  - name: rec\n    import: {format: record, file: x}");
    let mut told = |events: Vec<Event>| {
        found.events = events;
        let read = BTreeMap::from([("rec".to_owned(), found.clone())]);
        check_size(&imports, &read).map_err(|error| error.excess)
    };
    let (first, second) = (event(0, 0, 1_000_000), event(10, 1, 1_000_000));
    let ends = event(10, 0, 0);
    assert_eq!(told(vec![first.clone(), ends, second.clone()]), Ok(()));
    let much = Excess::Pods(2_000_000);
    assert_eq!(told(vec![first, second, event(20, 0, 0)]), Err(much));
}

#[test]
fn facts_count_what_the_scheduler_counts() {
    use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    let mut found = timeline(
        "1d",
        "  - name: web\n    deployments: {cpu: 2, memory: 1Gi}\n    replicas: 3",
        1,
    );
    let asks = |name: &str, cpu: &str, restarts: Option<&str>| Container {
        name: name.to_owned(),
        resources: Some(ResourceRequirements {
            requests: Some([("cpu".to_owned(), Quantity(cpu.to_owned()))].into()),
            ..ResourceRequirements::default()
        }),
        restart_policy: restarts.map(str::to_owned),
        ..Container::default()
    };
    let template = std::sync::Arc::make_mut(&mut found.owners[0].template);
    let spec = template.spec.as_mut().expect("a pod");
    // A side-car runs beside what follows it; the peak of starting is above what runs later; overhead comes on top.
    spec.init_containers = Some(vec![
        asks("proxy", "500m", Some("Always")),
        asks("migrate", "3", None),
    ]);
    spec.overhead = Some([("cpu".to_owned(), Quantity("250m".to_owned()))].into());
    assert_eq!(Facts::of(&found).peak_cpu_milli, 3 * (500 + 3_000 + 250));
}

#[test]
fn facts_follow_pods_to_their_ends() {
    use spokeshave_scenario::{Event, OwnerId};
    let mut found = timeline(
        "1d",
        "  - name: web\n    deployments: {cpu: 2, memory: 1Gi}\n    replicas: 0",
        1,
    );
    found.events.clear();
    let event = |at_ms, change| Event {
        at_ms,
        owner: OwnerId(0),
        change,
    };
    let begin = |pod, runs_ms| Change::Begin { pod, runs_ms };
    found.owners[0].ready.median_ms = 1_000;
    found.events = vec![
        event(0, begin(1, Some(9_000))),
        event(5_000, begin(2, None)),
        // The first has just ended, so there are two again and not three.
        event(10_000, begin(3, Some(1_000))),
        event(20_000, Change::End { pod: 2 }),
        event(20_000, Change::End { pod: 2 }),
        event(30_000, begin(4, None)),
    ];
    let facts = Facts::of(&found);
    assert_eq!((facts.at_start, facts.births), (1, 3));
    assert_eq!(
        (facts.peak_pods, facts.peak_cpu_milli, facts.span_ms),
        (2, 4_000, 30_000)
    );
}
