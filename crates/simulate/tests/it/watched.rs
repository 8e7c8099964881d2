//! Who watches a run sees what happened in it, and changes nothing.

use std::cell::Cell;
use std::collections::BTreeMap;

use serde_json::Value;
use spokeshave_model::{ClusterState, Pod, lower};
use spokeshave_scenario::{Change, OwnerKind, Timeline};
use spokeshave_simulate::perfetto::Trace;
use spokeshave_simulate::{Objects, ObjectsAt, Run, Watch, live, live_watched};

use crate::promises::report::Entry;
use crate::small::{HOUR, SECOND, owner, policy, timeline, world};

/// Six pods of three cores, of which two stay after an hour.
fn shrinking() -> Timeline {
    timeline(
        vec![owner(OwnerKind::Deployment, "web", "3")],
        vec![(0, 0, Change::Replicas(6)), (HOUR, 0, Change::Replicas(2))],
    )
}

/// The run with its log, its trace and its objects at a time.
fn watched(at_ms: u64) -> (Run, Vec<Entry>, Value, Option<Objects>) {
    let (world, timeline, policy) = (world(3), shrinking(), policy());
    let (mut log, mut trace, mut objects) = (Vec::new(), Trace::default(), None);
    let mut take = |line: spokeshave_simulate::Line<'_>| {
        trace.take(&line);
        log.push(Entry::from(line));
    };
    let mut show = |all: &Objects| objects = Some(all.clone());
    let watch = Watch {
        lines: Some(&mut take),
        objects: Some(ObjectsAt {
            at_ms,
            take: &mut show,
        }),
    };
    let run = live_watched(&world, &timeline, &policy, 1, &|| false, watch);
    (run, log, trace.finish(Some(world.duration_ms)), objects)
}

#[test]
fn a_watched_run_is_the_same_run() {
    let alone = live(&world(3), &shrinking(), &policy(), 1);
    for at_ms in [0, HOUR, HOUR + 90 * SECOND, 3 * HOUR, 9 * HOUR] {
        assert_eq!(watched(at_ms).0, alone, "{at_ms}");
    }
}

#[test]
fn a_trace_has_bars_and_curves_only_and_its_nodes_add_up_to_the_bill() {
    let (run, log, trace, _) = watched(0);
    let events = trace["traceEvents"].as_array().unwrap();
    let mut nanos_ms: u128 = 0;
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for event in events {
        *kinds.entry(event["ph"].as_str().unwrap()).or_default() += 1;
        if event["cat"] == "node" {
            let instance = event["args"]["instance"].as_str().unwrap();
            let price: spokeshave_model::Price = instance.split(' ').nth(2).unwrap().parse().unwrap();
            let lasted_ms = event["dur"].as_u64().unwrap() / 1_000;
            nanos_ms += u128::try_from(price.0).unwrap() * u128::from(lasted_ms);
        }
    }
    assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), ["C", "X"]);
    let bill = u128::from(run.measured.cost_on_demand_micros);
    let of_trace = nanos_ms / 3_600_000 / 1_000;
    assert!(of_trace.abs_diff(bill) <= 1, "{of_trace} against {bill}");
    let lines = |what: &str| log.iter().filter(|entry| entry.what == what).count();
    let bars = |kind: &str| events.iter().filter(|event| event["cat"] == kind).count();
    assert!(lines("launched") >= 6, "six nodes of one pod each");
    assert_eq!(bars("node"), lines("launched"));
    assert!(lines("command") > 0, "four nodes become empty");
    assert_eq!(bars("command"), lines("command"));
}

/// Nothing is known of what an interrupted run would have gone on to do: its bars end where it was interrupted.
#[test]
fn a_trace_of_an_interrupted_run_ends_with_it_and_says_so() {
    let (world, timeline, policy) = (world(3), shrinking(), policy());
    let (mut trace, last_ms) = (Trace::default(), Cell::new(0));
    let mut take = |line: spokeshave_simulate::Line<'_>| {
        trace.take(&line);
        last_ms.set(line.at_ms);
    };
    let watch = Watch {
        lines: Some(&mut take),
        objects: None,
    };
    let run = live_watched(&world, &timeline, &policy, 1, &|| last_ms.get() >= HOUR, watch);
    assert!(run.partial);
    let (trace, last_ms) = (trace.finish(None), last_ms.get());
    assert_eq!(trace["otherData"]["partial"], true);
    let events = trace["traceEvents"].as_array().unwrap();
    let bars = events.iter().filter(|event| event["ph"] == "X");
    let ends = bars.map(|event| {
        let number = |field: &str| event[field].as_u64().unwrap();
        number("ts") + number("dur")
    });
    assert_eq!(ends.max(), Some(last_ms * 1_000));
    assert!(last_ms < 3 * HOUR);
    let (.., whole, _) = watched(0);
    assert!(whole["otherData"].is_null());
}

/// However short a scenario is: how long it takes depends on its pods, and not on the hours that are simulated.
#[test]
fn a_run_is_interrupted_in_the_middle_of_an_hour() {
    let asked = Cell::new(0);
    let is_interrupted = || {
        asked.set(asked.get() + 1);
        asked.get() == 10
    };
    let (world, timeline, policy) = (world(1), shrinking(), policy());
    let run = live_watched(&world, &timeline, &policy, 1, &is_interrupted, Watch::default());
    assert!(run.partial);
    assert_eq!(asked.get(), 10, "nothing happens after it");
    assert!(run.measured.span_ms < HOUR, "{}", run.measured.span_ms);
}

#[test]
fn bars_of_one_row_do_not_overlap_and_curves_end_where_the_cluster_does() {
    let (_, _, trace, objects) = watched(3 * HOUR);
    let events = trace["traceEvents"].as_array().unwrap();
    let mut rows: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let number = |field: &str| event[field].as_u64().unwrap();
        let bars = rows.entry((number("pid"), number("tid"))).or_default();
        bars.push((number("ts"), number("ts") + number("dur")));
    }
    for bars in rows.values_mut() {
        bars.sort_unstable();
        assert!(bars.windows(2).all(|two| two[0].1 <= two[1].0), "{bars:?}");
    }
    let last = |name: &str| {
        let of_name = events.iter().filter(|event| event["name"] == name);
        let point = of_name.max_by_key(|event| event["ts"].as_u64()).unwrap();
        point["args"][name].as_f64().unwrap()
    };
    assert_eq!(last("waiting pods"), 0.0);
    assert_eq!(last("nodes"), objects.unwrap().nodes.len() as f64);
    let most = events.iter().filter_map(|event| event["args"]["nodes"].as_u64());
    assert!(most.max().unwrap() >= 6);
}

#[test]
fn objects_are_those_of_that_time_as_a_list_that_can_be_read_again() {
    let at_ms = HOUR + 90 * SECOND;
    let (_, log, _, objects) = watched(at_ms);
    let objects = objects.unwrap();
    let happened = |what: &str| {
        let before = log
            .iter()
            .filter(|entry| entry.at_ms <= at_ms && entry.what == what);
        before.map(|entry| entry.of.clone()).collect::<Vec<_>>()
    };
    let mut there = happened("born");
    for gone in happened("left") {
        let position = there.iter().position(|name| *name == gone).unwrap();
        there.remove(position);
    }
    there.sort();
    let mut pods: Vec<String> = objects
        .pods
        .iter()
        .map(|pod| spokeshave_model::pod::key(pod))
        .collect();
    pods.sort();
    assert_eq!(pods, there);
    assert_eq!(there.len(), 2, "four have left");
    assert_eq!(
        objects.nodes.len(),
        happened("joined").len() - happened("gone").len(),
        "every Node that has joined and is not gone"
    );
    let list = objects.to_list().unwrap();
    let of_kind = |kind: &str| -> Vec<Value> {
        let items = list["items"].as_array().unwrap().iter();
        items.filter(|item| item["kind"] == kind).cloned().collect()
    };
    let read: Vec<Pod> = of_kind("Pod")
        .into_iter()
        .map(|pod| serde_json::from_value(pod).unwrap())
        .collect();
    assert_eq!(
        read,
        objects.pods.iter().map(|pod| Pod::clone(pod)).collect::<Vec<_>>()
    );
    let state = |pods: Vec<std::sync::Arc<Pod>>| ClusterState {
        nodes: objects.nodes.clone(),
        node_claims: objects.node_claims.clone(),
        pods,
        ..ClusterState::default()
    };
    let again = lower(&state(read.into_iter().map(Into::into).collect()));
    assert_eq!(again, lower(&state(objects.pods.clone())));
    assert!(again.pods.iter().all(|pod| pod.node.is_some()), "every pod runs");
    assert_eq!(of_kind("NodePool").len(), 1);
    assert_eq!(of_kind("Node").len(), objects.nodes.len());
    assert_eq!(of_kind("NodeClaim").len(), objects.node_claims.len());
    assert!(
        !of_kind("Disruption").is_empty(),
        "empty nodes are on their way out"
    );
}
