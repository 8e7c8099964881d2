//! A node's end second by second (D §8.3–8.7): a small world with an Eviction API, kubelets and a cloud that do exactly what they are told, driven by
//! the pure decisions alone. It is looked at only when a decision asks for it or something changes, as the operator does.

use crate::support::draining::{World, at, guest, merge, plus};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::conditions::{DRAINED, INSTANCE_TERMINATING, VOLUMES_DETACHED};
use spokeshave_api::labels;
use spokeshave_model::Action;
use spokeshave_model::Pod;
use spokeshave_plan::termination::{EvictionStep, NodeEnd, eviction_step, node_step};

fn do_not_disrupt() -> Value {
    json!({"metadata": {"annotations": {labels::DO_NOT_DISRUPT: "true"}}})
}

fn daemon() -> Value {
    json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]}})
}

fn critical() -> Value {
    json!({"spec": {"priorityClassName": "system-cluster-critical"}})
}

/// The worked example of D §8.5: terminationGracePeriod 1h, deleted at 12:00:00, so T is 13:00:00.
#[test]
fn d_334_the_worked_example_minute_by_minute() {
    let mut blocked = guest("a", 30, json!({}));
    blocked.budget_blocks = true;
    blocked.stubborn = true;
    let mut protected = guest("b", 600, do_not_disrupt());
    protected.stubborn = true;
    let mut slow = guest("c", 7200, json!({}));
    slow.stubborn = true;
    let mut instant = guest("d", 0, do_not_disrupt());
    instant.stubborn = true;
    let mut world = World::new(Some("1h"), vec![blocked, protected, slow, instant]);

    world.run_until(at("12:00:05"));
    assert_eq!(world.order(), ["node deleted", "delete c with 3600 s"]);
    let text = world
        .claim
        .as_ref()
        .unwrap()
        .annotation(labels::TERMINATION_TIMESTAMP);
    assert_eq!(text, Some("2026-01-01T13:00:00Z"), "D-301");
    for minute in 1..50 {
        world.run_until(at(&format!("12:{minute:02}:00")));
        assert_eq!(
            world.log.len(),
            2,
            "nothing happens by minute {minute}: {:?}",
            world.log
        );
        assert_eq!(
            world.status(DRAINED),
            ("Unknown".to_owned(), "Draining".to_owned()),
            "D-312"
        );
    }
    world.run();
    // The comparison is strict and whole seconds are granted: half a second after T - 600 s, 599 are left.
    assert_eq!(world.times("delete b with 599 s"), ["12:50:00"]);
    assert_eq!(world.times("delete a with 29 s"), ["12:59:30"]);
    assert_eq!(world.times("delete d with 1 s"), ["13:00:00"], "D-335: never 0");
    for (pod, time) in [
        ("a", "13:00:00"),
        ("b", "13:00:00"),
        ("c", "13:00:00"),
        ("d", "13:00:02"),
    ] {
        let gone = world.times(&format!("{pod} is gone"));
        assert!(gone[0].as_str() <= time, "{pod} {gone:?}");
    }
    assert_eq!(world.status(DRAINED).0, "True");
    assert_eq!(world.status(VOLUMES_DETACHED).0, "True", "D-344");
    assert_eq!(world.status(INSTANCE_TERMINATING).0, "True", "D-314");
}

#[test]
fn d_312_d_319_d_320_d_321_four_tiers_and_the_slowest_pod_holds_the_next() {
    let mut slow = guest("app-slow", 120, json!({}));
    slow.stubborn = true;
    let mut critical_daemon = daemon();
    merge(&mut critical_daemon, &critical());
    let mut world = World::new(
        None,
        vec![
            guest("critical-daemon", 30, critical_daemon),
            guest("critical", 30, critical()),
            guest("daemon", 30, daemon()),
            guest("app", 30, json!({})),
            slow,
        ],
    );
    world.run();
    let evictions: Vec<&str> = world
        .order()
        .into_iter()
        .filter(|entry| entry.starts_with("evict"))
        .collect();
    assert_eq!(
        evictions,
        [
            "evict app",
            "evict app-slow",
            "evict daemon",
            "evict critical",
            "evict critical-daemon"
        ]
    );
    assert_eq!(
        world.times("evict daemon"),
        world.times("app-slow is gone"),
        "D-321"
    );
    assert_eq!(world.times("evict daemon"), ["12:02:00"]);
}

#[test]
fn d_336_deadline_deletes_know_no_tiers() {
    let mut blocked = guest("app", 60, json!({}));
    blocked.budget_blocks = true;
    let mut dns = guest("dns", 60, critical());
    dns.stubborn = true;
    let mut world = World::new(Some("10m"), vec![blocked, dns]);
    world.run();
    assert_eq!(world.times("delete app with 59 s"), ["12:09:00"]);
    assert_eq!(world.times("delete dns with 59 s"), ["12:09:00"]);
}

#[test]
fn d_337_pods_that_nobody_waits_for_are_not_deleted_by_the_deadline() {
    let tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    let mirror = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]}});
    let finished = json!({"status": {"phase": "Succeeded"}});
    let mut world = World::new(
        Some("1m"),
        vec![
            guest("tolerant", 30, tolerant),
            guest("mirror", 30, mirror),
            guest("finished", 30, finished),
        ],
    );
    world.run();
    assert_eq!(world.guests.len(), 3, "{:?}", world.log);
    assert_eq!(
        world.times("instance asked to end"),
        ["12:00:05"],
        "D-312, D-319: five seconds"
    );
}

#[test]
fn d_340_a_pod_that_stops_too_slowly_is_told_again() {
    let mut slow = guest("slow", 7200, json!({}));
    slow.stubborn = true;
    slow.pod.metadata.deletion_timestamp = Some(Time(at("13:59:00")));
    let mut world = World::new(Some("10m"), vec![slow]);
    world.run();
    assert_eq!(
        world.times("delete slow with 600 s"),
        ["12:00:00"],
        "at once, not at T"
    );
    assert_eq!(world.times("slow is gone"), ["12:10:00"]);
}

#[test]
fn d_340_the_drain_ends_a_minute_after_the_deadline_at_the_latest() {
    let mut stuck = guest("stuck", 30, json!({}));
    stuck.stuck = true;
    let mut world = World::new(Some("10m"), vec![stuck]);
    world.run();
    let asked = &world.times("instance asked to end")[0];
    assert!(
        asked.as_str() <= "12:01:40",
        "a minute past its own end (12:00:30): {asked}"
    );
    let mut held = guest("held", 3600, json!({}));
    held.stuck = true;
    let mut world = World::new(Some("10m"), vec![held]);
    world.run();
    let asked = &world.times("instance asked to end")[0];
    assert!(("12:11:00"..="12:11:10").contains(&asked.as_str()), "{asked}");
}

#[test]
fn d_341_a_grace_of_nothing_deletes_everything_at_once() {
    let mut protected = guest("b", 600, do_not_disrupt());
    protected.budget_blocks = true;
    let mut world = World::new(Some("0s"), vec![guest("a", 30, json!({})), protected]);
    world.run();
    assert_eq!(world.times("delete a with 1 s"), ["12:00:00"]);
    assert_eq!(world.times("delete b with 1 s"), ["12:00:00"]);
}

#[test]
fn d_304_d_322_without_a_deadline_a_protected_pod_is_waited_for_for_ever() {
    let mut world = World::new(None, vec![guest("b", 30, do_not_disrupt())]);
    world.run_until(at("22:00:00"));
    assert_eq!(world.order(), ["node deleted"]);
    world.guest("b").pod.metadata.annotations = None;
    world.run();
    assert_eq!(world.times("evict b").len(), 1);
}

#[test]
fn d_322_a_protection_that_elapses_ends_on_time() {
    let hour = json!({"metadata": {"annotations": {labels::DO_NOT_DISRUPT: "1h"}}, "status": {"startTime": "2026-01-01T11:30:00Z"}});
    let mut world = World::new(None, vec![guest("b", 30, hour)]);
    world.run();
    assert_eq!(world.times("evict b"), ["12:30:00"]);
}

#[test]
fn d_323_do_not_disrupt_on_the_node_does_not_hold_the_drain() {
    let mut world = World::new(None, vec![guest("a", 30, json!({}))]);
    world.node.metadata.annotations = Some(BTreeMap::from([(
        labels::DO_NOT_DISRUPT.to_owned(),
        "true".to_owned(),
    )]));
    world.run();
    assert_eq!(world.times("evict a"), ["12:00:00"]);
}

#[test]
fn d_325_pods_that_come_during_the_drain_join_it() {
    let mut slow = guest("slow", 60, json!({}));
    slow.stubborn = true;
    let mut world = World::new(None, vec![slow]);
    world.run_until(at("12:00:30"));
    world.guests.push(guest("late", 30, json!({})));
    world.run();
    assert_eq!(world.times("evict late").len(), 1);
    assert!(world.times("evict late") < world.times("instance asked to end"));
}

#[test]
fn d_345_volumes_are_waited_for_until_the_deadline() {
    let attachment = json!({"metadata": {"name": "csi-1"}, "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv-1"}}});
    let attachment: VolumeAttachment = serde_json::from_value(attachment).unwrap();
    let mut world = World::new(Some("10m"), Vec::new());
    world.attachments.push(Arc::new(attachment.clone()));
    world.run_until(at("12:05:00"));
    assert_eq!(
        world.status(VOLUMES_DETACHED),
        ("Unknown".to_owned(), "AwaitingVolumeDetachment".to_owned())
    );
    world.run();
    assert_eq!(world.times("instance asked to end"), ["12:10:00"]);
    assert_eq!(
        world.status(VOLUMES_DETACHED),
        ("False".to_owned(), "TerminationGracePeriodElapsed".to_owned())
    );
    let mut world = World::new(None, Vec::new());
    world.attachments.push(Arc::new(attachment));
    world.run_until(at("20:00:00"));
    assert!(!world.done, "D-304: without a deadline for ever");
    world.attachments.clear();
    world.run();
}

#[test]
fn d_317_a_node_without_claim_is_drained_and_its_instance_left_alone() {
    let mut world = World::new(None, vec![guest("a", 30, json!({}))]);
    world.claim = None;
    world.node.metadata.deletion_timestamp = Some(Time(at("12:00:00")));
    world.run();
    assert_eq!(world.order(), ["evict a", "a is gone", "node released"]);
}

#[test]
fn d_302_d_311_every_look_with_a_deadline_says_so() {
    let mut world = World::new(Some("1h"), vec![guest("a", 30, do_not_disrupt())]);
    world.run_until(at("12:00:10"));
    let pods: Vec<Arc<Pod>> = world
        .guests
        .iter()
        .map(|guest| Arc::new(guest.pod.clone()))
        .collect();
    let end = NodeEnd {
        node: &world.node,
        claim: world.claim.as_ref(),
        pods: &pods,
        attachments: &[],
        kept_volumes: &BTreeSet::new(),
    };
    let step = node_step(&end, world.now).unwrap();
    let told: Vec<&str> = step.events.iter().map(|event| event.message.as_str()).collect();
    assert!(
        told.contains(&"All pods will be deleted by 2026-01-01T13:00:00Z"),
        "{told:?}"
    );
    assert!(
        told.contains(&"Failed to drain node, 1 pods are waiting to be evicted"),
        "D-311: {told:?}"
    );
    assert!(step.events.iter().all(|event| event.dedupe_window_seconds == 120));
}

#[test]
fn d_315_looking_twice_writes_once() {
    let mut world = World::new(None, vec![guest("a", 30, do_not_disrupt())]);
    world.run_until(at("12:00:10"));
    let pods: Vec<Arc<Pod>> = world
        .guests
        .iter()
        .map(|guest| Arc::new(guest.pod.clone()))
        .collect();
    let end = NodeEnd {
        node: &world.node,
        claim: world.claim.as_ref(),
        pods: &pods,
        attachments: &[],
        kept_volumes: &BTreeSet::new(),
    };
    let step = node_step(&end, plus(world.now, 3600)).unwrap();
    assert!(step.actions.is_empty(), "{:?}", step.actions);
}

// D-306, D-313, D-314: each step only after the one before.
#[test]
fn d_306_d_313_d_314_the_steps_come_in_order() {
    let attachment = json!({"metadata": {"name": "csi-1"}, "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv-1"}}});
    let mut world = World::new(None, vec![guest("a", 30, json!({}))]);
    world
        .attachments
        .push(Arc::new(serde_json::from_value(attachment).unwrap()));
    world.run_until(at("12:01:00"));
    assert_eq!(world.order(), ["node deleted", "evict a", "a is gone"]);
    assert!(world.node.spec.as_ref().unwrap().taints.as_ref().unwrap()[0].key == labels::DISRUPTED_TAINT_KEY);
    assert_eq!(world.status(DRAINED).0, "True");
    assert_eq!(world.status(VOLUMES_DETACHED).0, "Unknown");
    world.attachments.clear();
    world.run();
    assert_eq!(
        world.order()[3..],
        ["instance asked to end", "node released"],
        "D-314: released only when the cloud says that it is gone"
    );
    let asked = world.log[3].0;
    let released = world.log[4].0;
    assert!(released.duration_since(asked) >= SignedDuration::from_secs(7));
}

// D-326, D-328, D-329, D-335: what the eviction queue does with one pod.
#[test]
fn d_326_d_328_d_329_d_335_p_146_the_deadline_is_tested_first_then_the_pod() {
    let now = at("12:59:45");
    let deadline = Some(at("13:00:00"));
    let pod = |change: Value| guest("a", 30, change).pod;
    let EvictionStep::Delete(
        Action::Delete {
            target,
            grace_period_seconds,
        },
        event,
    ) = eviction_step(&pod(do_not_disrupt()), deadline, now)
    else {
        panic!("the deadline rule comes first")
    };
    assert_eq!(
        (target.uid.as_str(), grace_period_seconds),
        ("uid-a", Some(15)),
        "D-335, by UID"
    );
    assert_eq!(
        event.message,
        "Deleting the pod to accommodate the terminationTime 2026-01-01 13:00:00 +0000 UTC of the node. The pod was granted 15 seconds of grace-period of its 30 terminationGracePeriodSeconds. This bypasses the PDB of the pod and the do-not-disrupt annotation.",
        "D-338"
    );
    assert_eq!(
        eviction_step(&pod(do_not_disrupt()), None, now),
        EvictionStep::Keep
    );
    let finished = json!({"status": {"phase": "Succeeded"}});
    assert_eq!(eviction_step(&pod(finished), None, now), EvictionStep::Drop);
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T12:59:50Z"}});
    assert_eq!(eviction_step(&pod(going), deadline, now), EvictionStep::Drop);
    let EvictionStep::Evict(Action::EvictPod {
        target,
        grace_period_seconds,
    }) = eviction_step(&pod(json!({})), None, now)
    else {
        panic!("an eviction")
    };
    assert_eq!(
        (target.uid.as_str(), grace_period_seconds),
        ("uid-a", None),
        "D-329"
    );
}
