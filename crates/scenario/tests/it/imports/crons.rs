//! CronJobs of traces and dumps: those that are suspended, and those whose schedule or time zone nobody can read.

use serde_json::{Value, json};
use spokeshave_scenario::Timeline;

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
    for (applied, runs) in [
        (vec![(0, tick(false))], 8),
        (vec![(0, tick(true))], 0),
        // At 30, 60 and 90 minutes, and from 150 minutes on.
        (
            vec![(0, tick(false)), (95, tick(true)), (125, tick(false))],
            3 + 4,
        ),
    ] {
        let (found, _) = traced(&applied);
        assert_eq!(facts(&found).1, runs, "{applied:?}");
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
