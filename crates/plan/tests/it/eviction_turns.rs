//! Who waits for whom while nodes drain (W-63).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};
use spokeshave_api::conditions::{Conditioned as _, DISRUPTION_REASON, Status};
use spokeshave_api::{NodeClaim, NodeClaimSpec};
use spokeshave_model::Pod;
use spokeshave_plan::termination::{LONGEST_WAIT, Size, Turns, takes_turn};

fn at(milliseconds: u64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start + SignedDuration::from_millis(milliseconds.try_into().unwrap())
}

/// The NodeClaim of a node that a command removes.
fn removed() -> NodeClaim {
    let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
    claim.set(
        DISRUPTION_REASON,
        Status::True,
        "Underutilized",
        "Underutilized",
        at(0),
    );
    claim
}

fn pod(cpu: &str, memory: &str, change: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "shop", "uid": "uid-p", "ownerReferences": [owner("ReplicaSet")]},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
    });
    json_patch::merge(&mut pod, &change);
    serde_json::from_value(pod).unwrap()
}

fn owner(kind: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "uid-o", "controller": true})
}

fn size(cpu: &str, memory: &str) -> Size {
    let pod = pod(cpu, memory, json!({}));
    Size::of_turn(&pod, Some(&removed()), None, at(0)).unwrap()
}

fn large() -> Size {
    size("4", "0")
}

fn small() -> Size {
    size("1", "0")
}

const GO: Duration = Duration::ZERO;

#[test]
fn w_63_a_size_counts_processors_and_memory() {
    assert_eq!(size("1", "0"), size("1500m", "0"), "one power of two");
    assert!(size("2", "0") > size("1", "0"));
    assert!(size("100m", "32Gi") > size("4", "1Gi"), "mostly memory");
    assert_eq!(size("1", "0"), size("0", "4Gi"), "4 GiB a core");
    assert!(size("1m", "0") >= size("0", "0"));
}

#[test]
fn w_63_who_takes_turns() {
    let takes = |change: Value, claim: Option<&NodeClaim>, deadline: Option<Timestamp>| {
        Size::of_turn(&pod("1", "0", change), claim, deadline, at(0)).is_some()
    };
    let claim = removed();
    assert!(takes(json!({}), Some(&claim), None));
    assert!(!takes(json!({}), None, None), "no NodeClaim");
    let mut by_hand = removed();
    by_hand.clear(DISRUPTION_REASON);
    assert!(
        !takes(json!({}), Some(&by_hand), None),
        "deleted by hand, expired, interrupted"
    );
    for kind in ["DaemonSet", "StatefulSet", "Job"] {
        let owned = json!({"metadata": {"ownerReferences": [owner(kind)]}});
        assert!(!takes(owned, Some(&claim), None), "{kind}");
    }
    assert!(
        !takes(json!({"metadata": {"ownerReferences": null}}), Some(&claim), None),
        "nobody replaces it"
    );
    let rollout = json!({"metadata": {"ownerReferences": [owner("CloneSet")]}});
    assert!(takes(rollout, Some(&claim), None));
    let critical = json!({"spec": {"priorityClassName": "system-cluster-critical"}});
    assert!(!takes(critical, Some(&claim), None));
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    assert!(!takes(protected, Some(&claim), None));
    let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:10Z"}});
    assert!(!takes(terminating, Some(&claim), None));
    let graceful = |seconds: u64| json!({"spec": {"terminationGracePeriodSeconds": seconds}});
    let (limited, deadline) = (limited(), Some(at(60_000)));
    assert!(takes(graceful(30), Some(&limited), deadline));
    assert!(
        !takes(graceful(56), Some(&limited), deadline),
        "deleted in four seconds"
    );
}

/// The same as [`removed`], deleted at the start and with a minute to go.
fn limited() -> NodeClaim {
    let mut claim = removed();
    claim.metadata.deletion_timestamp = Some(Time(at(0)));
    claim.spec.termination_grace_period = serde_json::from_value(json!("60s")).unwrap();
    claim
}

/// The cloud has said when it takes the machine back, and that is not when the NodeClaim's own time is over.
#[test]
fn w_63_pods_of_a_node_that_is_interrupted_take_no_turns() {
    let takes = |claim: &NodeClaim, deadline: Option<Timestamp>| {
        let pod = pod("1", "0", json!({}));
        takes_turn(&pod, Some(claim), deadline, at(0))
    };
    let (removed, limited) = (removed(), limited());
    assert!(takes(&removed, None));
    assert!(!takes(&removed, Some(at(120_000))));
    assert!(takes(&limited, Some(at(60_000))));
    for other in [30_000, 120_000] {
        assert!(!takes(&limited, Some(at(other))), "{other}");
    }
}

#[test]
fn w_63_smaller_pods_wait_until_larger_ones_have_had_a_second() {
    let mut turns = Turns::default();
    turns.add("small", small(), at(0));
    turns.add("large", large(), at(100));
    assert_eq!(turns.wait("unknown", at(100)), GO, "whoever takes no turn");
    assert_eq!(
        turns.wait("large", at(100)),
        Duration::from_millis(500),
        "other nodes begin"
    );
    assert_eq!(turns.wait("large", at(600)), GO);
    assert!(turns.wait("small", at(600)) > GO, "the large one has yet to go");
    turns.accept("large", at(700));
    assert_eq!(turns.wait("small", at(700)), Duration::from_secs(1));
    assert_eq!(turns.wait("small", at(1_699)), Duration::from_millis(1));
    assert_eq!(turns.wait("small", at(1_700)), GO);
}

#[test]
fn w_63_nobody_waits_for_pods_that_are_refused_or_gone_or_added_again() {
    let mut turns = Turns::default();
    for uid in ["refused", "gone", "accepted"] {
        turns.add(uid, large(), at(0));
    }
    turns.add("small", small(), at(0));
    turns.leave("refused");
    turns.leave("gone");
    turns.accept("accepted", at(600));
    turns.leave("accepted");
    turns.add("accepted", large(), at(700));
    turns.accept("accepted", at(900));
    assert_eq!(
        turns.wait("small", at(900)),
        Duration::from_millis(700),
        "a second from the first answer on"
    );
    assert_eq!(turns.wait("small", at(1_600)), GO);
    turns.accept("never added", at(1_600));
    assert_eq!(turns.wait("small", at(1_600)), GO);
}

#[test]
fn w_63_pods_that_keep_coming_hold_nobody_up_for_long() {
    let mut turns = Turns::default();
    turns.add("first", small(), at(0));
    for step in 1..40 {
        let now = step * 200;
        turns.add(&format!("alike-{step}"), small(), at(now));
        let wait = turns.wait("first", at(now));
        assert_eq!(wait.is_zero(), now >= 2_000, "after {now} ms: {wait:?}");
    }
}

#[test]
fn w_63_whoever_is_overdue_keeps_its_place_and_nobody_waits_for_it() {
    let mut turns = Turns::default();
    turns.add("large", large(), at(0));
    turns.add("small", small(), at(4_000));
    assert!(turns.wait("small", at(4_999)) > GO);
    assert_eq!(turns.wait("large", at(5_000)), GO);
    assert_eq!(
        turns.wait("small", at(5_000)),
        GO,
        "though the large one was not accepted"
    );
    turns.add("large", large(), at(6_000));
    assert_eq!(turns.wait("small", at(6_000)), GO, "it is known");
    turns.accept("large", at(6_000));
    assert_eq!(turns.wait("small", at(6_000)), GO);
    turns.leave("large");
    turns.add("large", large(), at(6_900));
    assert_eq!(
        turns.wait("small", at(6_900)),
        GO,
        "known until late news has come"
    );
    assert!(turns.contains("large", at(6_999)));
    assert!(!turns.contains("large", at(7_000)));
    assert!(turns.contains("small", at(60_000)), "until it has gone");
    turns.leave("small");
    assert!(!turns.contains("small", at(60_000)));
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, u8),
    Try(u8),
    Accept(u8),
    Refuse(u8),
    Pass(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..12_u8, 0..4_u8).prop_map(|(pod, size)| Step::Add(pod, size)),
        (0..12_u8).prop_map(Step::Try),
        (0..12_u8).prop_map(Step::Accept),
        (0..12_u8).prop_map(Step::Refuse),
        (0..2_500_u16).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..120)
}

/// What a pod that waits must wait for, worked out from all that has happened.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Standing {
    Waits { since: u64 },
    Accepted { at: u64 },
    AcceptedLate { at: u64 },
}

proptest! {
    /// Against the rules, read from the whole history: a pod goes exactly when nothing of it asks it to wait, and never later than after the longest wait.
    #[test]
    fn w_63_turns_are_what_the_rules_say(steps in steps()) {
        let sizes = [size("250m", "0"), small(), large(), size("32", "0")];
        let mut turns = Turns::default();
        let mut known: BTreeMap<u8, (u8, Standing)> = BTreeMap::new();
        let mut last_added = None;
        let mut now = 0_u64;
        for step in steps {
            known.retain(|_, (_, standing)| match *standing {
                Standing::Waits { .. } => true,
                Standing::Accepted { at } | Standing::AcceptedLate { at } => now - at < 1_000,
            });
            let is_overdue = |standing: &Standing| matches!(*standing, Standing::Waits { since } if now - since >= 5_000);
            let is_waited_for = |standing: &Standing| !is_overdue(standing) && !matches!(standing, Standing::AcceptedLate { .. });
            match step {
                Step::Pass(milliseconds) => now += u64::from(milliseconds),
                Step::Add(pod, size) => {
                    turns.add(&pod.to_string(), sizes[usize::from(size)], at(now));
                    known.entry(pod).or_insert_with(|| {
                        last_added = Some(now);
                        (size, Standing::Waits { since: now })
                    });
                }
                Step::Refuse(pod) => {
                    turns.leave(&pod.to_string());
                    if let Some((_, Standing::Waits { .. })) = known.get(&pod) {
                        known.remove(&pod);
                    }
                }
                Step::Accept(pod) => {
                    turns.accept(&pod.to_string(), at(now));
                    match known.get_mut(&pod) {
                        Some((_, standing)) if is_overdue(standing) => *standing = Standing::AcceptedLate { at: now },
                        Some((_, standing @ Standing::Waits { .. })) => *standing = Standing::Accepted { at: now },
                        Some(_) | None => {}
                    }
                }
                Step::Try(pod) => {
                    let wait = turns.wait(&pod.to_string(), at(now));
                    let must_wait = known.get(&pod).is_some_and(|(size, standing)| {
                        let Standing::Waits { since } = *standing else { return false };
                        let begins = last_added.is_some_and(|last| now - last < 500) && now - since < 2_000;
                        let larger = known.values().any(|(other, its)| other > size && is_waited_for(its));
                        !is_overdue(standing) && (begins || larger)
                    });
                    prop_assert_eq!(!wait.is_zero(), must_wait, "pod {} at {} ms of {:?}: {:?}", pod, now, known, wait);
                    prop_assert_eq!(turns.contains(&pod.to_string(), at(now)), known.contains_key(&pod));
                    if let Some((_, Standing::Waits { since })) = known.get(&pod) && must_wait {
                        prop_assert!(u128::from(now - since) + wait.as_millis() <= LONGEST_WAIT.as_millis());
                    }
                }
            }
        }
    }
}
