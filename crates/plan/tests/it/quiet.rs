//! What workloads ask for by annotation: how long they are left alone, how many move within a day, and how a policy bounds it.

use crate::support::{DELETE_A, World, acts, later, on_demand_pool, pair};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::Ordinals;
use spokeshave_plan::disrupt::BlockerKind;
use spokeshave_plan::disrupt::record::record;
use spokeshave_plan::disruption_policy::status;
use std::sync::Arc;

const QUIET: &str = "spokeshave.dev/quiet-time";
const MOVES: &str = "spokeshave.dev/moves-per-day";
const WINDOWS: &str = "spokeshave.dev/move-windows";
const HOUR: i64 = 3600;

fn policy(workloads: &Value) -> Arc<DisruptionPolicy> {
    let spec = serde_json::from_value(json!({"workloads": workloads})).expect("a spec");
    Arc::new(DisruptionPolicy::new("quiet", spec))
}

/// The pair of nodes of which `a` can go, whose pod `p` came an hour ago, under a policy that hears workloads.
fn heard(workloads: &Value) -> World {
    let mut world = pair().edit_pod("p", |pod| {
        pod.metadata.creation_timestamp = Some(Time(later(-HOUR)))
    });
    world.state.disruption_policies.push(policy(workloads));
    world
}

fn said(world: &World) -> Value {
    let after = status(
        &world.state.disruption_policies[0],
        &world.snapshot(),
        &[],
        world.now,
    );
    serde_json::to_value(after.status).expect("JSON")
}

fn namespace(mut world: World, key: &str, value: &str) -> World {
    let object = json!({"metadata": {"name": "default", "annotations": {key: value}}});
    let object: Namespace = serde_json::from_value(object).expect("a Namespace");
    world.state.namespaces.push(Arc::new(object));
    world
}

#[test]
fn invariant_18_a_pod_rests_for_its_quiet_time_and_the_verdict_names_it() {
    let world = heard(&json!({})).annotate_pod("p", QUIET, "3h");
    assert_eq!(acts(&world), [""; 0]);
    let verdict = world.verdict("a");
    assert_eq!(verdict.blockers[0].kind, BlockerKind::DisruptionPolicy);
    let text = &verdict.blockers[0].message;
    let end = later(2 * HOUR).strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    for part in [
        "DisruptionPolicy quiet (spec.workloads)",
        "pod default/p came lately",
        QUIET,
        "is 3h",
        &end,
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(verdict.if_removed.is_some());
    assert_eq!(said(&world)["workloads"]["restingPods"], 1);
    let mut after = world.clone();
    after.now = later(2 * HOUR);
    assert_eq!(acts(&after), [DELETE_A], "it ends by itself");
    let mut unheard = world.clone();
    unheard.state.disruption_policies.clear();
    assert_eq!(acts(&unheard), [DELETE_A], "nobody hears it");
    let elsewhere = heard(&json!({})).annotate_pod("r", QUIET, "3h");
    assert_eq!(
        acts(&elsewhere),
        [DELETE_A],
        "a pod of another node keeps no node but its own"
    );
}

#[test]
fn the_nearest_annotation_counts_of_pod_owner_and_namespace() {
    let of_namespace = namespace(heard(&json!({})), QUIET, "3h");
    assert_eq!(acts(&of_namespace), [""; 0]);
    let text = of_namespace.verdict("a").blockers[0].message.clone();
    assert!(text.contains("of Namespace default is 3h"), "{text}");
    let own = of_namespace.clone().annotate_pod("p", QUIET, "30m");
    assert_eq!(acts(&own), [DELETE_A], "its own is nearer");
    let mut owned = of_namespace.edit_pod("p", |pod| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9", "uid": "u", "controller": true}]);
        pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert("pod-template-hash".to_owned(), "5d9".to_owned());
    });
    let annotations = [(QUIET.to_owned(), "30m".to_owned())];
    owned
        .state
        .owner_annotations
        .insert("Deployment/default/web".to_owned(), annotations.into());
    assert_eq!(
        acts(&owned),
        [DELETE_A],
        "its Deployment's is nearer than its namespace's"
    );
}

#[test]
fn the_ceiling_bounds_what_may_be_asked_for() {
    let long = |workloads: &Value| heard(workloads).annotate_pod("p", QUIET, "1000h");
    assert_eq!(acts(&long(&json!({}))), [""; 0]);
    assert_eq!(acts(&long(&json!({"maximumQuietTime": "1h"}))), [DELETE_A]);
    let mut day = long(&json!({}));
    day.now = later(23 * HOUR);
    assert_eq!(acts(&day), [DELETE_A], "24 hours, where nothing is said");
    let never = |workloads: &Value| heard(workloads).annotate_pod("p", WINDOWS, "Thu 00:30-00:45");
    let world = never(&json!({}));
    assert_eq!(acts(&world), [""; 0], "within a week");
    assert_eq!(acts(&never(&json!({"maximumClosed": "1m"}))), [DELETE_A]);
    let no_moves = heard(&json!({})).annotate_pod("p", MOVES, "0");
    assert_eq!(acts(&no_moves), [DELETE_A], "one a day always");
}

#[test]
fn windows_of_pods_have_days_and_zones() {
    let at = |text: &str, value: &str| {
        let mut world = heard(&json!({})).annotate_pod("p", WINDOWS, value);
        world.now = text.parse().expect("a time");
        acts(&world)
    };
    // 2026-01-05 is a Monday.
    assert_eq!(
        at("2026-01-05T21:30:00Z", "Mon-Fri 22:00-06:00 Europe/Berlin"),
        [DELETE_A]
    );
    assert_eq!(
        at("2026-01-05T20:30:00Z", "Mon-Fri 22:00-06:00 Europe/Berlin"),
        [""; 0]
    );
    assert_eq!(
        at("2026-01-10T12:00:00Z", "Mon-Fri 22:00-06:00; Sat,Sun 00:00-24:00"),
        [DELETE_A]
    );
    assert_eq!(
        at("2026-01-09T12:00:00Z", "Mon-Fri 22:00-06:00; Sat,Sun 00:00-24:00"),
        [""; 0]
    );
    assert_eq!(
        at("2026-01-04T12:00:00Z", "Sat-Mon 10:00-14:00"),
        [DELETE_A],
        "over the end of the week"
    );
    // 2026-01-10 is a Saturday.
    for days in ["Sat Sun", "Sun Sat", "Sun Sat,Sun"] {
        let value = format!("{days} 00:00-24:00");
        assert_eq!(at("2026-01-10T10:00:00Z", &value), [DELETE_A], "{value}");
        assert_eq!(at("2026-01-11T10:00:00Z", &value), [DELETE_A], "{value}");
        assert_eq!(at("2026-01-09T10:00:00Z", &value), [""; 0], "{value}");
    }
}

/// `number` nodes, each with a pod of StatefulSet `db` beside room for it elsewhere; all of them have drifted.
fn members(number: usize, workloads: &Value) -> World {
    let mut world = World::new(on_demand_pool("default"));
    for index in 0..number {
        let (node, pod) = (format!("n{index}"), format!("db-{index}"));
        world = member(
            world.node(&node, "small").drifted(&node, -60),
            &pod,
            &node,
            "1500m",
        );
    }
    world.state.disruption_policies.push(policy(workloads));
    world
}

/// A Ready pod of StatefulSet `db` on a node.
fn member(world: World, pod: &str, node: &str, cpu: &str) -> World {
    world.pod(pod, node, cpu).edit_pod(pod, |pod| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": true}]);
        pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
        let ready = json!([{"type": "Ready", "status": "True"}]);
        pod.status.get_or_insert_default().conditions = serde_json::from_value(ready).unwrap();
    })
}

/// StatefulSet `db` wants so many members, from this one on.
fn wants(mut world: World, start: u64, replicas: u64) -> World {
    let ordinals = Ordinals { start, replicas };
    Arc::make_mut(&mut world.state.stateful_sets).insert("StatefulSet/default/db".to_owned(), ordinals);
    world
}

/// Carries a command out as far as the ledger goes.
fn begun(world: &mut World, phase: &str) -> Disruption {
    let outcome = world.pass();
    let mut one = record(
        &world.snapshot(),
        &outcome.commands[0],
        &outcome.budgets,
        world.now,
    );
    one.status = serde_json::from_value(json!({"phase": phase})).expect("a status");
    world.state.disruptions.push(Arc::new(one.clone()));
    one
}

#[test]
fn invariant_18_a_workload_moves_no_more_than_its_quota_within_a_day() {
    let mut world = members(4, &json!({}));
    for index in 0..4 {
        world = world.annotate_pod(&format!("db-{index}"), MOVES, "2");
    }
    let mut gone = Vec::new();
    for _ in 0..2 {
        let one = begun(&mut world, "Succeeded");
        assert_eq!(one.spec.nodes[0].workloads[0].name, "StatefulSet/default/db");
        gone.push(one.spec.nodes[0].name.clone());
        world = world.edit_node(&gone[gone.len() - 1], |node| {
            node.metadata
                .labels
                .get_or_insert_default()
                .insert("moved".to_owned(), "yes".to_owned());
        });
        world.now = later(60 * i64::try_from(gone.len()).unwrap());
    }
    assert_eq!(acts(&world), [""; 0], "two of two");
    let text = world.verdict("n3").blockers[0].message.clone();
    assert!(
        text.contains("2 pods of StatefulSet/default/db may move within a day, and 2 have"),
        "{text}"
    );
    assert!(
        text.contains(&later(24 * HOUR).strftime("%Y-%m-%d %H:%M").to_string()),
        "{text}"
    );
    world.now = later(24 * HOUR);
    assert_eq!(acts(&world).len(), 1, "the first is a day ago");
    // What was taken back moved nobody.
    let taken_back = |one: &Arc<Disruption>| {
        let mut one = (**one).clone();
        one.status = serde_json::from_value(json!({"phase": "RolledBack"})).expect("a status");
        Arc::new(one)
    };
    world.now = later(300);
    world.state.disruptions = world.state.disruptions.iter().map(taken_back).collect();
    assert_eq!(acts(&world).len(), 1);
}

#[test]
fn invariant_28_one_member_of_a_stateful_set_at_a_time() {
    let one = json!({"statefulSets": "OneAtATime"});
    let world = members(3, &one);
    assert_eq!(acts(&world).len(), 1, "all are Ready");
    let unready = members(3, &one).edit_pod("db-1", |pod| {
        let ready = json!([{"type": "Ready", "status": "False"}]);
        pod.status.get_or_insert_default().conditions = serde_json::from_value(ready).unwrap();
    });
    assert_eq!(acts(&unready), [""; 0]);
    let text = unready.verdict("n0").blockers[0].message.clone();
    assert!(
        text.contains("one member of StatefulSet/default/db at a time, and pod default/db-1 is not Ready"),
        "{text}"
    );
    let mut missing = members(3, &one);
    missing
        .state
        .pods
        .retain(|pod| pod.metadata.name.as_deref() != Some("db-1"));
    let text = missing.verdict("n0").blockers[0].message.clone();
    assert!(text.contains("a member is not there"), "{text}");
    let mut leaving = members(3, &one);
    leaving.state.in_command.insert(
        leaving
            .snapshot()
            .node(leaving.snapshot().find_node("n2").unwrap())
            .provider_id
            .clone(),
    );
    assert_eq!(acts(&leaving), [""; 0], "one is on its way");
    let any = members(3, &json!({"statefulSets": "Any"})).edit_pod("db-1", |pod| pod.status = None);
    assert_eq!(acts(&any).len(), 1);
}

/// Whichever it is: of those that are there nobody sees that the first or the last is not.
#[test]
fn invariant_28_no_member_is_moved_while_the_first_or_the_last_is_missing() {
    let one = json!({"statefulSets": "OneAtATime"});
    assert_eq!(acts(&wants(members(3, &one), 0, 3)).len(), 1, "all are there");
    for missing in ["db-0", "db-1", "db-2"] {
        let mut world = wants(members(3, &one), 0, 3);
        world
            .state
            .pods
            .retain(|pod| pod.metadata.name.as_deref() != Some(missing));
        for index in (0..3).filter(|index| format!("db-{index}") != missing) {
            let text = world.verdict(&format!("n{index}")).blockers[0].message.clone();
            assert!(text.contains("a member is not there"), "{missing}: {text}");
        }
    }
    let text = wants(members(3, &one), 1, 3).verdict("n0").blockers[0]
        .message
        .clone();
    assert!(
        text.contains("a member is not there"),
        "the last of 1 to 3: {text}"
    );
    assert_eq!(
        acts(&wants(members(3, &one), 0, 2)).len(),
        1,
        "one too many is on its way out"
    );
}

/// Whoever goes with its node goes at once with all others there, unless a PodDisruptionBudget lets go one only.
#[test]
fn invariant_28_members_of_one_node_are_moved_one_after_the_other_or_not_at_all() {
    let world = |number: usize| {
        let world = World::new(on_demand_pool("default"))
            .node("n", "small")
            .drifted("n", -60);
        let mut world = (0..number).fold(world, |world, index| {
            member(world, &format!("db-{index}"), "n", "500m")
        });
        world
            .state
            .disruption_policies
            .push(policy(&json!({"statefulSets": "OneAtATime"})));
        world
    };
    assert_eq!(acts(&world(1)).len(), 1);
    assert_eq!(acts(&world(2)), [""; 0]);
    let text = world(2).verdict("n").blockers[0].message.clone();
    assert!(text.contains("several are on this node"), "{text}");
    let under = |most_away: i32, allowed: i32| {
        let mut world = world(2).budget("db", &json!({}), allowed);
        let status = Arc::make_mut(&mut world.state.pod_disruption_budgets[0])
            .status
            .as_mut();
        let status = status.expect("a status");
        (status.expected_pods, status.desired_healthy) = (Some(6), Some(6 - most_away));
        acts(&world).len()
    };
    assert_eq!(under(1, 1), 1, "one after the other");
    assert_eq!(under(2, 2), 0, "both at once");
    assert_eq!(under(1, 2), 0, "both at once while there is a pod too many");
    assert_eq!(
        under(2, 1),
        0,
        "both at once as soon as another pod is healthy again"
    );
}

#[test]
fn a_broken_annotation_is_named_counts_as_the_ceiling_and_stops_nobody_else() {
    for (key, value) in [
        (QUIET, "soon"),
        (QUIET, "-3h"),
        (MOVES, "few"),
        (WINDOWS, "at night"),
        (WINDOWS, "22:00-06:00 Mars/Base"),
        (WINDOWS, ""),
        (WINDOWS, "Sat 08:00-12:00 20:00-23:00"),
        (WINDOWS, "Sat 08:00-12:00 UTC Europe/Kyiv"),
    ] {
        let world = heard(&json!({})).annotate_pod("p", key, value);
        let faults = said(&world)["workloads"]["faults"].clone();
        let text = faults[0].as_str().unwrap_or_default();
        assert!(
            text.contains(key) && text.contains("Pod default/p"),
            "{value:?}: {text}"
        );
        let other = heard(&json!({})).annotate_pod("r", key, value);
        assert_eq!(acts(&other), [DELETE_A], "{key}={value:?}");
    }
    let quiet = heard(&json!({})).annotate_pod("p", QUIET, "soon");
    assert_eq!(acts(&quiet), [""; 0], "it protects");
    let short = heard(&json!({"maximumQuietTime": "1h"})).annotate_pod("p", QUIET, "soon");
    assert_eq!(acts(&short), [DELETE_A], "and not for longer than any may");
    let shut = |workloads: &Value| heard(workloads).annotate_pod("p", WINDOWS, "at night");
    let world = shut(&json!({}));
    assert_eq!(acts(&world), [""; 0], "windows that nobody can read are shut");
    let text = world.verdict("a").blockers[0].message.clone();
    assert!(
        text.contains("pod default/p may not move now") && text.contains("cannot be read"),
        "{text}"
    );
    let mut week = world;
    week.now = later(167 * HOUR);
    assert_eq!(acts(&week), [DELETE_A], "for as long as windows may be, once");
    assert_eq!(acts(&shut(&json!({"maximumClosed": "1h"}))), [DELETE_A]);
}

#[test]
fn a_policy_says_nothing_of_pods_in_nodepools_that_it_does_not_select() {
    let world = |pool: &str| {
        let mut world = heard(&json!({})).annotate_pod("p", QUIET, "3h");
        world = world.annotate_pod("r", WINDOWS, "at night");
        let mut own = (*world.state.disruption_policies[0]).clone();
        own.spec.node_pools = serde_json::from_value(json!({"names": [pool]})).expect("a selector");
        world.state.disruption_policies[0] = Arc::new(own);
        world
    };
    let own = said(&world("default"))["workloads"].clone();
    assert_eq!(own["restingPods"], 2);
    assert_eq!(own["faults"].as_array().map(Vec::len), Some(1));
    let none = json!({"restingPods": 0, "restingNodes": 0});
    assert_eq!(said(&world("other"))["workloads"], none);
}

/// Whoever may annotate a pod must not keep the operator busy with it: as many windows as a budget may have are read, and no more.
#[test]
fn more_windows_than_a_budget_may_have_are_refused() {
    let faults = |value: &str| {
        let world = heard(&json!({})).annotate_pod("p", WINDOWS, value);
        said(&world)["workloads"]["faults"].clone()
    };
    let windows = |count: usize| vec!["Mon 22:00-23:00"; count].join("; ");
    assert_eq!(faults(&windows(50)), Value::Null);
    for value in [windows(51), format!("{}22:00-23:00", " ".repeat(2048))] {
        let found = faults(&value);
        let text = found[0].as_str().unwrap_or_default();
        assert!(
            text.ends_with("write at most 50 windows, in at most 2048 bytes"),
            "{text}"
        );
        assert!(text.len() < 300, "it quotes not all of it: {text}");
    }
}

/// Of a value that is longer than any duration or number needs to be, nothing is read and little is told.
#[test]
fn longer_durations_and_numbers_than_anybody_needs_are_refused() {
    for (key, value) in [(QUIET, "0h".repeat(100_000)), (MOVES, "0".repeat(200_000))] {
        let world = heard(&json!({})).annotate_pod("p", key, &value);
        let text = said(&world).to_string();
        assert!(text.contains("which cannot be read: write a "), "{key}");
        assert!(text.len() < 3000, "it quotes not all of it: {}", text.len());
        let blockers = world.verdict("a").blockers;
        let told: usize = blockers.iter().map(|one| one.message.len()).sum();
        assert!(told < 1000, "{key}: {told}");
    }
}

#[test]
fn until_owners_are_read_nothing_is_disrupted_on_doubt() {
    let mut world = heard(&json!({}));
    world.state.owners_unknown = true;
    assert_eq!(acts(&world), [""; 0]);
    let text = world.verdict("a").blockers[0].message.clone();
    assert!(text.contains("have not been read yet"), "{text}");
}

#[test]
fn invariant_43_a_clock_that_was_set_back_ends_no_quiet_time_early() {
    let mut world = heard(&json!({})).annotate_pod("p", QUIET, "3h");
    world.now = later(-10 * HOUR);
    assert_eq!(acts(&world), [""; 0], "it came in the future");
}
