//! CronJobs of traces and dumps: those that are suspended, those whose schedule or time zone nobody can read, how long they run, and what they do about a run that
//! is not over.

use serde_json::{Value, json};
use spokeshave_scenario::{Change, Timeline};

use super::dumps::inventory;
use super::streams::{deployment, job, packed};
use super::{HOUR_MS, facts, read};

const EVERY: &str = "1 CronJobs have a schedule that is not simulated, the first of them shop/tick with \"@every 30m\": they never run";
const ZONE: &str = "1 CronJobs have a time zone that is not known, the first of them shop/tick with \"Mars/Olympus\": they run by UTC";

fn cron(schedule: &str, field: &str, value: Value) -> Value {
    let mut cron = json!({"kind": "CronJob", "metadata": {"namespace": "shop", "name": "tick"}, "spec": {"schedule": schedule,
        "jobTemplate": {"spec": {"parallelism": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}}}});
    cron["spec"][field] = value;
    cron
}

/// Four hours from 2026-03-02T10:00:00Z on, in which a Deployment of one pod is there and these objects are applied after so many minutes.
fn traced(applied: &[(u64, Value)]) -> (Timeline, Vec<String>) {
    let event = |minute: u64, objects: &[Value]| json!({"ts": 1_772_445_600 + 60 * minute, "applied_objs": objects, "deleted_objs": []});
    let mut events = vec![event(0, &[deployment("web", 1, "1")])];
    let applied = applied.iter();
    events.extend(applied.map(|(minute, object)| event(*minute, std::slice::from_ref(object))));
    events.push(event(240, &[]));
    let mut bytes = Vec::new();
    let trace = json!({"version": 2, "events": events});
    rmpv::encode::write_value(&mut bytes, &packed(&trace)).expect("memory");
    read("format: sktrace, file: x", &bytes).expect("readable")
}

#[test]
fn a_suspended_cron_job_of_a_trace_does_not_run() {
    let tick = |is_suspended: bool| cron("*/30 * * * *", "suspend", is_suspended.into());
    let within = |seconds: u64| {
        let mut tick = tick(false);
        tick["spec"]["startingDeadlineSeconds"] = seconds.into();
        tick
    };
    let every: Vec<u64> = (30..=240).step_by(30).collect();
    let cases: [(Vec<(u64, Value)>, &[u64]); 7] = [
        (vec![(0, tick(false))], &every),
        (vec![(0, tick(true))], &[]),
        // The controller makes up for the last that was missed, as soon as it may.
        (
            vec![(0, tick(false)), (55, tick(true)), (125, tick(false))],
            &[30, 125, 150, 180, 210, 240],
        ),
        (
            vec![(0, tick(true)), (55, tick(true)), (125, tick(false))],
            &[125, 150, 180, 210, 240],
        ),
        (
            vec![(0, tick(false)), (95, tick(true)), (115, tick(false))],
            &[30, 60, 90, 120, 150, 180, 210, 240],
        ),
        (
            vec![(0, tick(false)), (55, tick(true)), (125, within(300))],
            &[30, 125, 150, 180, 210, 240],
        ),
        (
            vec![(0, tick(false)), (55, tick(true)), (125, within(299))],
            &[30, 150, 180, 210, 240],
        ),
    ];
    for (applied, expected) in cases {
        let (found, _) = traced(&applied);
        let begins = found
            .events
            .iter()
            .filter(|event| matches!(event.change, Change::Begin { .. }));
        let minutes: Vec<u64> = begins.map(|event| event.at_ms / 60_000).collect();
        assert_eq!(minutes, expected, "{applied:?}");
    }
}

#[test]
fn cron_jobs_that_do_otherwise_than_they_say_are_named() {
    let every = cron("@every 30m", "suspend", false.into());
    let (found, notes) = traced(&[(0, every.clone())]);
    assert_eq!((facts(&found).1, notes), (0, vec![EVERY.to_owned()]));
    let there = cron("30 11 * * *", "timeZone", "Mars/Olympus".into());
    let (found, notes) = traced(&[(0, there.clone())]);
    assert_eq!((facts(&found).1, notes[0].as_str()), (1, ZONE));
    // The same of a dump.
    let start = "2026-03-02T10:00:00Z".parse().expect("an instant");
    for (tick, runs, expected) in [(every, 0, EVERY), (there, 1, ZONE)] {
        let dump = inventory(&[deployment("web", 1, "1"), tick]);
        let found = dump.constant(start, 4 * HOUR_MS).expect("small");
        assert_eq!(facts(&found).1, runs, "{expected}");
        let notes = dump.notes();
        assert_eq!(notes[0], expected);
        // What is taken to last ten minutes is what runs.
        assert_eq!(notes.len() as u64, 1 + runs, "{notes:?}");
    }
    // One that is suspended runs as it says.
    let off = cron("@every 30m", "suspend", true.into());
    assert_eq!(inventory(&[off]).notes(), [] as [String; 0]);
}

/// Where the end of a Job is not in the recording, each of its pods is taken to last ten minutes: also one that came later than the others.
#[test]
fn pods_that_a_job_gets_later_end_later() {
    let train = |parallelism: u32| {
        let mut train = job("train", None, json!({}));
        train["spec"]["parallelism"] = parallelism.into();
        train
    };
    let (found, notes) = traced(&[(0, train(2)), (30, train(3))]);
    let minutes: Vec<u64> = found.events.iter().map(|event| event.at_ms / 60_000).collect();
    assert_eq!(minutes, [0, 0, 0, 10, 10, 30, 40]);
    assert_eq!(notes.len(), 1, "{notes:?}");
    // A Job that is suspended has none that would have to end.
    let (found, notes) = traced(&[(0, train(2)), (30, train(0))]);
    assert_eq!((found.events.len(), notes), (1 + 2 + 2, Vec::<String>::new()));
}

/// The Job that `tick` made at ten o'clock.
const RUN: &str = "tick-29540760";

/// That Job when it is over.
fn run(parallelism: u32, completions: u32, until: &str) -> Value {
    let status =
        json!({"startTime": "2026-03-02T10:00:00Z", "completionTime": format!("2026-03-02T{until}Z")});
    let mut run = job(RUN, Some("tick"), status);
    run["spec"]["parallelism"] = parallelism.into();
    run["spec"]["completions"] = completions.into();
    run
}

/// A pod of it, which still runs if it has no end.
fn pod(name: &str, phase: &str, from: &str, until: Option<&str>) -> Value {
    let ended = until.map(|until| format!("2026-03-02T{until}Z"));
    json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": name, "ownerReferences": [{"kind": "Job", "name": RUN, "controller": true}]},
        "spec": {"containers": [{"name": "a"}]}, "status": {"phase": phase, "startTime": format!("2026-03-02T{from}Z"),
            "containerStatuses": [{"state": {"terminated": ended.map(|ended| json!({"finishedAt": ended}))}}]}})
}

/// When pods begin in the two hours from eleven o'clock on, and for how long they run, both in minutes. `tick` runs at noon besides.
fn lengths(parallelism: u32, completions: u32, others: &[Value]) -> Vec<(u64, u64)> {
    let mut tick = cron("0 12 * * *", "suspend", false.into());
    let spec = &mut tick["spec"]["jobTemplate"]["spec"];
    spec["parallelism"] = parallelism.into();
    spec["completions"] = completions.into();
    let objects = [others, &[tick]].concat();
    let start = "2026-03-02T11:00:00Z".parse().expect("an instant");
    let found = inventory(&objects).constant(start, 2 * HOUR_MS).expect("small");
    let events = found.events.iter();
    let lengths = events.map(|event| match event.change {
        Change::Begin {
            runs_ms: Some(runs_ms),
            ..
        } => (event.at_ms / 60_000, runs_ms / 60_000),
        _ => panic!("{event:?}"),
    });
    lengths.collect()
}

/// Pods that run one after the other are one simulated pod, which has to run as long as they do together.
#[test]
fn a_run_of_pods_one_after_the_other_is_as_long_as_its_job() {
    let pods = [
        pod("a", "Succeeded", "10:00:00", Some("10:10:00")),
        pod("b", "Succeeded", "10:10:00", Some("10:20:00")),
        pod("c", "Succeeded", "10:20:00", Some("10:30:00")),
    ];
    let with = [pods.as_slice(), &[run(1, 3, "10:30:00")]].concat();
    for objects in [with.as_slice(), &pods, &[run(1, 3, "10:30:00")]] {
        assert_eq!(lengths(1, 3, objects), [(60, 30)], "{objects:?}");
    }
    // Without its Job nobody knows how long one takes that is not over.
    let mut running = pods;
    running[2] = pod("c", "Running", "10:20:00", None);
    assert_eq!(lengths(1, 3, &running), [(0, 10), (60, 10)]);
}

/// A Job begins when it is made, and its first pod when there is a node for it.
#[test]
fn what_a_job_waits_for_its_node_is_no_part_of_its_run() {
    let pods = [pod("a", "Succeeded", "10:02:00", Some("10:14:00"))];
    let with = [pods.as_slice(), &[run(1, 1, "10:15:00")]].concat();
    assert_eq!(lengths(1, 1, &with), [(60, 12)]);
    // Of three pods one after the other two are no longer there.
    let with = [pods.as_slice(), &[run(1, 3, "10:40:00")]].concat();
    assert_eq!(lengths(1, 3, &with), [(60, 40)]);
}

#[test]
fn attempts_that_failed_are_no_runs() {
    let pods = [
        pod("a", "Failed", "10:00:00", Some("10:00:05")),
        pod("b", "Failed", "10:00:10", Some("10:00:15")),
        pod("c", "Succeeded", "10:01:00", Some("10:50:00")),
    ];
    let with = [pods.as_slice(), &[run(1, 1, "10:50:00")]].concat();
    for objects in [with.as_slice(), &pods] {
        assert_eq!(lengths(1, 1, objects), [(60, 50)], "{objects:?}");
    }
    assert_eq!(lengths(1, 1, &pods[..2]), [(60, 10)], "as if none were known");
}

/// Their Job takes as long as the slowest of them.
#[test]
fn pods_that_run_at_the_same_time_run_as_long_as_each_did() {
    let pods = [
        pod("a", "Succeeded", "10:00:00", Some("10:10:00")),
        pod("b", "Failed", "10:00:00", Some("10:00:05")),
        pod("c", "Succeeded", "10:00:00", Some("10:40:00")),
    ];
    let with = [pods.as_slice(), &[run(2, 2, "10:40:00")]].concat();
    for objects in [with.as_slice(), &pods] {
        assert_eq!(lengths(2, 2, objects), [(60, 10), (60, 40)], "{objects:?}");
    }
    assert_eq!(lengths(2, 2, &[run(2, 2, "10:40:00")]), [(60, 40), (60, 40)]);
}

/// When pods begin and end in the hour from eleven o'clock on, by the second. `tick` is due every five minutes and runs for twelve.
fn overlapping(policy: &str, deadline: Option<u64>, others: &[Value]) -> (Timeline, Vec<u64>, Vec<u64>) {
    let mut tick = cron("*/5 * * * *", "concurrencyPolicy", policy.into());
    tick["spec"]["startingDeadlineSeconds"] = deadline.into();
    let objects = [others, &[tick, run(1, 1, "10:12:00")]].concat();
    let start = "2026-03-02T11:00:00Z".parse().expect("an instant");
    let found = inventory(&objects).constant(start, HOUR_MS).expect("small");
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    for event in &found.events {
        match event.change {
            Change::Begin { .. } => begins.push(event.at_ms / 1_000),
            _ => ends.push(event.at_ms / 1_000),
        }
    }
    (found, begins, ends)
}

/// A run takes twelve minutes, and five seconds until it is ready.
#[test]
fn a_cron_job_that_forbids_it_runs_once_at_a_time() {
    let every: Vec<u64> = (0..3_600).step_by(300).collect();
    let (found, begins, _) = overlapping("Allow", None, &[]);
    assert_eq!((begins, facts(&found).2), (every, 3));
    // The controller makes up for what was missed as soon as it may.
    let (found, begins, ends) = overlapping("Forbid", None, &[]);
    assert_eq!((begins, ends.len()), (vec![0, 725, 1_450, 2_175, 2_900], 0));
    assert_eq!(facts(&found).2, 1);
    // It is late by 125 seconds, then by 250, 75 and 200.
    for (deadline, expected) in [
        (250, [0, 725, 1_450, 2_175, 2_900].as_slice()),
        (125, [0, 725, 1_500, 2_225, 3_000].as_slice()),
        (100, [0, 900, 1_800, 2_700].as_slice()),
    ] {
        let (_, begins, _) = overlapping("Forbid", Some(deadline), &[]);
        assert_eq!(begins, expected, "{deadline} seconds");
    }
    // What runs at the start is a run, too.
    let running = pod("a", "Running", "10:55:00", None);
    let (_, begins, _) = overlapping("Forbid", None, &[running]);
    assert_eq!(begins, [0, 725, 1_450, 2_175, 2_900]);
}

#[test]
fn a_cron_job_that_replaces_its_runs_ends_the_last_one() {
    let every: Vec<u64> = (0..3_600).step_by(300).collect();
    let (found, begins, ends) = overlapping("Replace", None, &[]);
    assert_eq!((begins, ends.as_slice()), (every.clone(), &every[1..]));
    assert_eq!(facts(&found).2, 1);
}

/// Each run of a trace is taken to last ten minutes.
#[test]
fn cron_jobs_of_a_trace_mind_their_last_run() {
    for (policy, births, peak) in [("Allow", 48, 3), ("Forbid", 24, 2), ("Replace", 48, 2)] {
        let tick = cron("*/5 * * * *", "concurrencyPolicy", policy.into());
        let (found, _) = traced(&[(0, tick.clone())]);
        let (_, born, most, ..) = facts(&found);
        assert_eq!((born, most), (births, peak), "{policy}");
        // One that is applied again, or was suspended between two times, has begun what it had begun.
        let mut off = tick.clone();
        off["spec"]["suspend"] = true.into();
        for applied in [
            vec![(0, tick.clone()), (7, tick.clone())],
            vec![(0, tick.clone()), (6, off), (8, tick.clone())],
        ] {
            let (found, _) = traced(&applied);
            let (_, born, most, ..) = facts(&found);
            assert_eq!((born, most), (births, peak), "{policy} {applied:?}");
        }
    }
}
