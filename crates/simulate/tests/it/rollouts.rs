//! Workloads that make their pods from another template at a time: a quarter at once, one after the other, or only those that begin later.

use std::sync::Arc;

use serde_json::json;
use spokeshave_scenario::{Change, Owner, OwnerKind, Timeline};
use spokeshave_simulate::{Line, Objects, ObjectsAt, Policy, Run, Watch, live_watched};

use crate::promises::report::Entry;
use crate::small::{HOUR, SECOND, expiring, owner, policy, timeline, world};

/// Pods of half a core at first, and of this later.
fn renewed(kind: OwnerKind, cpu: &str) -> Owner {
    let later = owner(kind, "web", cpu).template;
    Owner {
        later: vec![later],
        ..owner(kind, "web", "500m")
    }
}

/// Four pods that are made anew after an hour.
fn rolled(kind: OwnerKind, cpu: &str) -> Timeline {
    let events = vec![(0, 0, Change::Replicas(4)), (HOUR, 0, Change::Template(1))];
    timeline(vec![renewed(kind, cpu)], events)
}

/// The run, its log, and what the pods that are there at a time request.
fn lived(timeline: &Timeline, policy: &Policy, at_ms: u64) -> (Run, Vec<Entry>, Vec<String>) {
    let mut log = Vec::new();
    let mut take = |line: Line<'_>| log.push(Entry::from(line));
    let mut requests = Vec::new();
    let mut show = |all: &Objects| requests = all.pods.iter().map(|pod| cpu_of(pod)).collect();
    let watch = Watch {
        lines: Some(&mut take),
        objects: Some(ObjectsAt {
            at_ms,
            take: &mut show,
        }),
    };
    let run = live_watched(&world(4), timeline, policy, 1, &|| false, watch);
    requests.sort();
    (run, log, requests)
}

fn cpu_of(pod: &spokeshave_model::Pod) -> String {
    let pod = json!(pod.spec.as_deref());
    let cpu = &pod["containers"][0]["resources"]["requests"]["cpu"];
    cpu.as_str().unwrap_or_default().to_owned()
}

/// The fewest ready pods and the most pods from an hour on.
fn bounds(log: &[Entry]) -> (i64, i64) {
    let (mut there, mut ready) = (0, 0);
    let (mut fewest, mut most) = (i64::MAX, 0);
    for line in log {
        match line.what.as_str() {
            "born" => there += 1,
            "started" => ready += 1,
            "stopping" => (there, ready) = (there - 1, ready - 1),
            _ => {}
        }
        if line.at_ms >= HOUR {
            (fewest, most) = (fewest.min(ready), most.max(there));
        }
    }
    (fewest, most)
}

fn count(log: &[Entry], what: &str) -> usize {
    log.iter().filter(|line| line.what == what).count()
}

/// Of four pods one may be missing, and one more may be there; nobody has evicted any of those that went.
#[test]
fn a_deployment_replaces_a_quarter_of_its_pods_at_a_time() {
    let (run, log, requests) = lived(&rolled(OwnerKind::Deployment, "1"), &policy(), 2 * HOUR);
    assert_eq!(requests, ["1"; 4]);
    assert_eq!((count(&log, "born"), count(&log, "stopping")), (8, 4));
    assert_eq!(bounds(&log), (3, 5));
    let measured = &run.measured;
    assert_eq!(
        (measured.evictions_voluntary, measured.evictions_involuntary),
        (0, 0)
    );
    assert_eq!(
        measured.launches, 2,
        "the fourth core has no place on the first node"
    );
    let (before, _, _) = lived(&rolled(OwnerKind::Deployment, "500m"), &policy(), 2 * HOUR);
    assert!(
        measured.bound_micros > before.measured.bound_micros,
        "the bound counts what pods request by then"
    );
}

#[test]
fn a_stateful_set_replaces_its_pods_from_the_last_one_after_the_other() {
    let (run, log, requests) = lived(&rolled(OwnerKind::StatefulSet, "700m"), &policy(), 2 * HOUR);
    assert_eq!(requests, ["700m"; 4]);
    let gone = log.iter().filter(|line| line.what == "stopping");
    let gone: Vec<&str> = gone.map(|line| line.of.as_str()).collect();
    assert_eq!(gone, ["shop/web-3", "shop/web-2", "shop/web-1", "shop/web-0"]);
    assert_eq!(bounds(&log), (3, 4), "each is ready before the next one goes");
    assert_eq!(run.measured.evictions_voluntary, 0);
}

/// The old pods stay as far as the new ones do not run, and going back takes the new ones away.
#[test]
fn a_version_that_has_no_place_leaves_the_old_pods_and_can_be_taken_back() {
    let stuck = rolled(OwnerKind::Deployment, "64");
    let (run, log, requests) = lived(&stuck, &policy(), 3 * HOUR);
    assert_eq!(requests, ["500m", "500m", "500m", "64", "64"]);
    assert_eq!(bounds(&log), (3, 5));
    assert_eq!(run.measured.evictions_voluntary, 0);
    let mut back = stuck;
    back.events
        .extend(timeline(Vec::new(), vec![(2 * HOUR, 0, Change::Template(0))]).events);
    let (_, log, requests) = lived(&back, &policy(), 3 * HOUR);
    assert_eq!(requests, ["500m"; 4]);
    assert_eq!(
        count(&log, "born"),
        4 + 2 + 1,
        "the three that stayed are those of before"
    );
}

/// More are wanted while the new pods have no place: both versions grow.
#[test]
fn a_deployment_that_is_scaled_in_the_middle_of_a_rollout_keeps_both_versions() {
    let mut scaled = rolled(OwnerKind::Deployment, "64");
    scaled
        .events
        .extend(timeline(Vec::new(), vec![(2 * HOUR, 0, Change::Replicas(8))]).events);
    let (_, _, requests) = lived(&scaled, &policy(), 3 * HOUR);
    // Of five there were three and two; of the ten that there may be now these are six and four.
    assert_eq!(
        requests,
        [
            "500m", "500m", "500m", "500m", "500m", "500m", "64", "64", "64", "64"
        ]
    );
    scaled
        .events
        .extend(timeline(Vec::new(), vec![(2 * HOUR + SECOND, 0, Change::Replicas(0))]).events);
    let (_, _, requests) = lived(&scaled, &policy(), 3 * HOUR);
    assert_eq!(requests, [""; 0]);
}

/// Nodes expire after an hour and a half: what is lost comes again as it was.
#[test]
fn a_job_keeps_the_template_that_it_began_with() {
    let begin = |pod| Change::Begin { pod, runs_ms: None };
    let events = vec![
        (0, 0, begin(0)),
        (HOUR, 0, Change::Template(1)),
        (HOUR + SECOND, 0, begin(1)),
    ];
    let jobs = timeline(vec![renewed(OwnerKind::Job, "1")], events);
    let (run, log, requests) = lived(&jobs, &expiring("90m"), 2 * HOUR);
    assert_eq!(requests, ["1", "500m"]);
    let born = log
        .iter()
        .filter(|line| line.what == "born" && line.at_ms < 2 * HOUR);
    assert_eq!(born.count(), 4, "both were lost with their node");
    assert_eq!(run.measured.evictions_voluntary, 0);
}

/// A number that no template has is passed over, as an owner is that is not there.
#[test]
fn a_template_that_is_not_there_changes_nothing() {
    let mut wrong = rolled(OwnerKind::Deployment, "1");
    wrong.events[1].change = Change::Template(7);
    let (_, log, requests) = lived(&wrong, &policy(), 2 * HOUR);
    assert_eq!(requests, ["500m"; 4]);
    assert_eq!(count(&log, "born"), 4);
}

/// By them a Deployment finds its pods of all versions, and so does a budget of its own.
#[test]
fn labels_that_all_versions_have_are_those_of_budgets() {
    let mut web = renewed(OwnerKind::Deployment, "1");
    let labels = json!({"app": "web", "version": "2"});
    let template = Arc::make_mut(&mut web.later[0]);
    template.metadata.get_or_insert_default().labels = serde_json::from_value(labels).unwrap();
    let common = spokeshave_simulate::owners::pod_labels(&web);
    assert_eq!(json!(common), json!({"app": "web"}));
    let of_later = spokeshave_simulate::owners::template_labels(&web.later[0], &common);
    assert_eq!(json!(of_later), json!({"app": "web", "version": "2"}));
}
