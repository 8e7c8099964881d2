//! Roll-outs in waves: what a wave lets go, and what its status says next.

use crate::support::{World, later, on_demand_pool};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::disruption_policy::{Rollout, RolloutPhase, RolloutStatus};
use spokeshave_api::{DisruptionPolicy, DisruptionReason};
use spokeshave_example::Dice;
use spokeshave_plan::disrupt::history::expired;
use spokeshave_plan::disruption_policy::{frozen, keep, limits, status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Six nodes that are there for a day, all of which have drifted.
pub(crate) fn six(rollout: &Value) -> World {
    let mut world = World::new(on_demand_pool("default"));
    for name in ["a", "b", "c", "d", "e", "f"] {
        world = world.node(name, "small").drifted(name, -60);
        world = born(world, name, later(-86_400));
    }
    let spec = serde_json::from_value(json!({"rollout": rollout})).expect("a spec");
    world
        .state
        .disruption_policies
        .push(Arc::new(DisruptionPolicy::new("waves", spec)));
    world
}

/// The same, where a node and its NodeClaim were created then.
pub(crate) fn born(world: World, node: &str, at: Timestamp) -> World {
    let at = Some(Time(at));
    let world = world.edit_node(node, |node| node.metadata.creation_timestamp.clone_from(&at));
    world.edit_claim(node, |claim| claim.metadata.creation_timestamp.clone_from(&at))
}

/// The same, where somebody has changed what the roll-out asks for.
pub(crate) fn asked(mut world: World, edit: impl Fn(&mut Rollout)) -> World {
    let mut policy = DisruptionPolicy::clone(&world.state.disruption_policies[0]);
    edit(policy.spec.rollout.as_mut().expect("a roll-out"));
    world.state.disruption_policies[0] = Arc::new(policy);
    world
}

/// How many nodes may go for a reason now.
fn room(world: &World, reason: &DisruptionReason) -> usize {
    let snapshot = world.snapshot();
    let mut left = limits(&snapshot, reason, world.now, &BTreeSet::new());
    snapshot.node_ids().filter(|node| left.take(*node)).count()
}

/// How many nodes may go for drift now.
pub(crate) fn drifts(world: &World) -> usize {
    room(world, &DisruptionReason::Drifted)
}

/// Writes the status that the policy should have now, as the controller does, and gives the roll-out.
pub(crate) fn look(world: &mut World) -> Option<RolloutStatus> {
    let after = status(
        &world.state.disruption_policies[0],
        &world.snapshot(),
        &[],
        world.now,
    );
    world.state.disruption_policies[0] = Arc::new(after.clone());
    after.status?.rollouts.into_iter().next()
}

/// A command for drift of one node in the ledger.
pub(crate) fn command(world: &mut World, node: &str, phase: &str, finished: Option<Timestamp>) {
    let spec = json!({
        "method": "Drift", "reason": "Drifted", "decision": "Replace", "decidedAt": format!("{:.6}", world.now),
        "nodes": [{"name": node, "nodeClaim": node, "nodeClaimUID": node, "providerID": format!("kwok://{node}"), "nodePool": "default", "price": "1", "pods": 1}],
        "priceBefore": "1", "priceAfter": "1", "savings": "0", "evictions": 1, "nodeSummary": "", "replacementSummary": "",
    });
    let mut one = Disruption::new(node, serde_json::from_value(spec).expect("a spec"));
    let mut status = json!({"phase": phase});
    if let Some(at) = finished {
        status["finishedAt"] = json!(format!("{at:.6}"));
        status["deletedAt"] = status["finishedAt"].clone();
    }
    one.status = serde_json::from_value(status).expect("a status");
    world.state.disruptions.retain(|known| known.name() != node);
    world.state.disruptions.push(Arc::new(one));
}

pub(crate) fn pass(world: &mut World, minutes: i64) {
    world.now += SignedDuration::from_mins(minutes);
}

/// The node of a finished command is gone.
pub(crate) fn gone(world: &mut World, node: &str) {
    let at = world.now;
    command(world, node, "Succeeded", Some(at));
    world
        .state
        .nodes
        .retain(|one| one.metadata.name.as_deref() != Some(node));
    world
        .state
        .node_claims
        .retain(|one| one.name() != format!("claim-{node}"));
}

#[test]
fn a_canary_then_twice_as_many_each_time_and_a_soak_between() {
    let mut world = six(&json!({"soak": "10m"}));
    assert_eq!(drifts(&world), 1, "before anything is written");
    assert_eq!(
        room(&world, &DisruptionReason::Empty),
        6,
        "other reasons do not wait"
    );
    let first = look(&mut world).expect("it begins");
    assert_eq!((first.wave, first.size, first.remaining), (1, 1, 6));
    assert_eq!(drifts(&world), 1);
    command(&mut world, "a", "Replacing", None);
    assert_eq!(drifts(&world), 0, "the canary is out");
    pass(&mut world, 2);
    assert_eq!(look(&mut world).expect("goes on").phase, RolloutPhase::Rolling);
    let mut world = replaced(world, "a", "new-a");
    assert_eq!(look(&mut world).expect("goes on").phase, RolloutPhase::Soaking);
    pass(&mut world, 9);
    let soaking = look(&mut world).expect("goes on");
    assert_eq!((soaking.wave, soaking.phase.clone()), (1, RolloutPhase::Soaking));
    assert!(soaking.eta.is_some(), "one command has shown how long it takes");
    assert_eq!(drifts(&world), 0);
    pass(&mut world, 1);
    let second = look(&mut world).expect("goes on");
    assert_eq!((second.wave, second.size), (2, 2));
    assert_eq!(drifts(&world), 2);
    for node in ["b", "c"] {
        gone(&mut world, node);
    }
    look(&mut world);
    pass(&mut world, 10);
    assert_eq!(look(&mut world).expect("goes on").size, 4);
    assert_eq!(drifts(&world), 4, "all that are left");
    for node in ["d", "e", "f"] {
        gone(&mut world, node);
    }
    look(&mut world);
    pass(&mut world, 10);
    assert_eq!(look(&mut world), None, "it is over");
}

/// The last command brought this node.
pub(crate) fn brought(world: &mut World, node: &str) {
    let last = world.state.disruptions.pop().expect("a command");
    let mut one = (*last).clone();
    let new = json!([{"nodeClaim": format!("claim-{node}"), "nodePool": "default", "price": "1",
        "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}]);
    one.spec.replacements = serde_json::from_value(new).expect("replacements");
    world.state.disruptions.push(Arc::new(one));
}

/// A node goes, and a healthy one comes for it.
pub(crate) fn replaced(mut world: World, old: &str, new: &str) -> World {
    gone(&mut world, old);
    brought(&mut world, new);
    arrives(world, new, true, 0)
}

/// What the policy says stops disruption of a node by drift now.
fn said(world: &World, node: &str) -> Option<String> {
    let snapshot = world.snapshot();
    let node = snapshot.find_node(node).expect("it is there");
    let left = limits(&snapshot, &DisruptionReason::Drifted, world.now, &BTreeSet::new());
    left.blocker(node).map(|rule| rule.message.clone())
}

/// What came of a roll-out that is over is no business of the next one, and while nothing has drifted there is nothing to hold back.
#[test]
fn a_roll_out_that_is_over_holds_back_nothing_and_the_next_has_a_canary_of_its_own() {
    let all = ["a", "b", "c", "d", "e", "f"];
    let mut world = six(&json!({"waves": ["100%"], "soak": "10m"}));
    for wave in [&all[..1], &all[1..]] {
        look(&mut world).expect("goes on");
        for node in wave {
            world = replaced(world, node, &format!("new-{node}"));
        }
        look(&mut world);
        pass(&mut world, 10);
    }
    assert_eq!(look(&mut world), None, "it is over");
    look(&mut world);
    let after = world.state.disruption_policies[0].status.clone();
    let active = after.expect("a status").active;
    assert!(active.is_empty(), "nothing is said of it: {active:?}");
    pass(&mut world, 30);
    let since = world.now.duration_since(later(0)).as_secs();
    for node in all {
        world = world.drifted(&format!("new-{node}"), since);
    }
    assert_eq!(drifts(&world), 1, "a canary");
    command(&mut world, "new-a", "Replacing", None);
    assert_eq!(drifts(&world), 0, "before anything is written");
    command(&mut world, "new-b", "Replacing", None);
    assert_eq!(
        said(&world, "new-c").as_deref(),
        Some("wave 1 is 1 node, 1 of which have begun"),
        "no more than there are"
    );
}

/// It changes no hash of the NodePool: what tells is that a node which the roll-out has brought has drifted itself.
#[test]
fn another_image_of_the_nodeclass_in_mid_roll_out_gets_a_canary_of_its_own() {
    let mut world = six(&json!({"soak": "10m"}));
    look(&mut world);
    let mut world = replaced(world, "a", "new-a");
    look(&mut world);
    pass(&mut world, 10);
    assert_eq!(look(&mut world).expect("goes on").wave, 2);
    let mut world = world.drifted("new-a", 0);
    let again = look(&mut world).expect("it begins again");
    assert_eq!((again.wave, again.size, again.remaining), (1, 1, 6));
    assert_eq!(drifts(&world), 1, "a canary");
    pass(&mut world, 1);
    let mut world = replaced(world, "b", "new-b");
    look(&mut world);
    assert_eq!(drifts(&world), 0);
    pass(&mut world, 10);
    let second = look(&mut world).expect("goes on");
    assert_eq!((second.wave, second.size), (2, 2), "the second image is healthy");
}

/// What the ledger has forgotten.
fn forget(world: &mut World) {
    let keeps = |one: &Disruption| keep(one, &world.state.disruption_policies, world.now);
    let all = world.state.disruptions.iter().map(|one| &**one);
    let gone = expired(all, Duration::from_secs(86_400), 200, keeps, world.now);
    let is_gone = |one: &Disruption| gone.iter().any(|target| target.name == one.name());
    world.state.disruptions.retain(|one| !is_gone(one));
}

/// A node that does not drain keeps its wave open for days, and by then the ledger knows no more what the waves before have brought.
#[test]
fn another_image_gets_its_canary_although_a_straggler_has_kept_a_wave_open_for_days() {
    let mut world = six(&json!({"waves": ["1"], "soak": "10m"}));
    look(&mut world);
    let mut world = replaced(world, "a", "new-a");
    look(&mut world);
    pass(&mut world, 10);
    assert_eq!(look(&mut world).expect("goes on").wave, 2);
    pass(&mut world, 1);
    command(&mut world, "b", "Deleting", None);
    pass(&mut world, 2 * 24 * 60);
    forget(&mut world);
    let known: Vec<&str> = world.state.disruptions.iter().map(|one| one.name()).collect();
    assert_eq!(known, ["b"]);
    let slow = look(&mut world).expect("goes on");
    assert_eq!(slow.wave, 2, "nothing else is asked for");
    let mut world = world.drifted("new-a", 2 * 86_400);
    let again = look(&mut world).expect("it begins again");
    assert_eq!((again.wave, again.size), (1, 1));
    assert_eq!(drifts(&world), 1, "a canary");
}

/// Of a NodeClaim that was made before the roll-out began, also where its Node came later, the old image is no news.
#[test]
fn a_node_that_was_on_its_way_when_the_roll_out_began_begins_nothing_again() {
    let mut world = six(&json!({"soak": "10m"}));
    look(&mut world);
    let world = replaced(world, "a", "new-a");
    let mut world = born(world.node("late", "small"), "late", later(-30)).drifted("late", 0);
    world = world.edit_node("late", |node| {
        node.metadata.creation_timestamp = Some(Time(later(30)))
    });
    look(&mut world);
    pass(&mut world, 10);
    assert_eq!(look(&mut world).expect("goes on").wave, 2);
    assert_eq!(look(&mut world).expect("goes on").wave, 2);
}

/// What was approved in one roll-out was not said of the next, and the same wave can be approved again.
#[test]
fn each_roll_out_is_approved_by_itself() {
    let approve = |world: World, wave: Option<i64>| {
        let approved = wave.map(|wave| ("default".to_owned(), wave));
        asked(world, |rollout| {
            rollout.approved = approved.clone().into_iter().collect()
        })
    };
    let mut world = six(&json!({"waves": ["100%"], "soak": "10m", "approval": "Manual"}));
    look(&mut world);
    let mut world = replaced(world, "a", "new-a");
    look(&mut world);
    pass(&mut world, 10);
    let waiting = look(&mut world).expect("goes on");
    assert_eq!(waiting.phase, RolloutPhase::WaitingForApproval);
    let mut world = approve(world, Some(2));
    assert_eq!(look(&mut world).expect("goes on").wave, 2);
    for node in ["b", "c", "d", "e", "f"] {
        world = replaced(world, node, &format!("new-{node}"));
    }
    look(&mut world);
    pass(&mut world, 10);
    assert_eq!(look(&mut world), None, "it is over");

    pass(&mut world, 60);
    for node in ["a", "b", "c", "d", "e", "f"] {
        world = world.drifted(&format!("new-{node}"), 4800);
    }
    look(&mut world).expect("the next begins");
    let mut world = replaced(world, "new-a", "newer-a");
    look(&mut world);
    pass(&mut world, 10);
    let waiting = look(&mut world).expect("goes on");
    assert_eq!(waiting.phase, RolloutPhase::WaitingForApproval);
    let message = waiting.message.expect("a text");
    let told = "spec.rollout.approved.default: 2; the 2 that stands there is from before it began, and does not count";
    assert!(message.ends_with(told), "{message}");
    // Another number, the same number for this roll-out, and the same number after it was taken back.
    let mut other = approve(world.clone(), Some(3));
    assert_eq!(look(&mut other).expect("goes on").wave, 2);
    let since = BTreeMap::from([("default".to_owned(), waiting.since)]);
    let mut meant = asked(world.clone(), |rollout| rollout.approved_for = since.clone());
    assert_eq!(look(&mut meant).expect("goes on").wave, 2);
    let mut none = approve(world, None);
    assert_eq!(look(&mut none).expect("goes on").wave, 1);
    let mut again = approve(none, Some(2));
    assert_eq!(look(&mut again).expect("goes on").wave, 2);
}

/// Nodes that drift as soon as they are there never get beyond canaries, one for each soak.
#[test]
fn nodes_that_drift_at_once_go_one_by_one() {
    let mut world = six(&json!({"soak": "10m"}));
    look(&mut world);
    for (old, new) in [("a", "new-a"), ("b", "new-b"), ("c", "new-c")] {
        assert_eq!(drifts(&world), 1, "{old}");
        world = replaced(world, old, new).drifted(new, 0);
        look(&mut world);
        assert_eq!(drifts(&world), 0, "{old} soaks");
        pass(&mut world, 11);
        assert_eq!(look(&mut world).expect("goes on").wave, 1, "{old}");
    }
}

#[test]
fn waves_have_the_sizes_that_are_written() {
    let mut world = six(&json!({"canary": 2, "waves": ["1", "40%"], "soak": "1m"}));
    let mut sizes = Vec::new();
    for nodes in [["a", "b"].as_slice(), &["c"], &["d", "e"]] {
        sizes.push(look(&mut world).expect("goes on").size);
        for node in nodes {
            gone(&mut world, node);
        }
        if sizes.len() == 1 {
            world = arrives(world, "new", true, 0);
        }
        look(&mut world);
        pass(&mut world, 1);
    }
    assert_eq!(sizes, [2, 1, 2], "40% of the four that are there, rounded up");
    let wrong = six(&json!({"waves": ["many"]}));
    assert_eq!(drifts(&wrong), 0, "on doubt nothing goes");
}

/// A pod on a node that came since the roll-out began.
pub(crate) fn arrives(world: World, node: &str, ready: bool, restarts: i32) -> World {
    let now = world.now;
    let name = format!("on-{node}");
    let world = world.node(node, "small").pod(&name, node, "1");
    let world = born(world, node, now);
    world.edit_pod(&name, |pod| {
        let word = if ready { "True" } else { "False" };
        let status = json!({"phase": "Running",
            "conditions": [{"type": "Ready", "status": word, "lastTransitionTime": now.to_string()}],
            "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": ready, "restartCount": restarts}]});
        pod.status = serde_json::from_value(status).expect("a status");
    })
}

pub(crate) fn after_the_canary(ready: bool, restarts: i32, minutes: i64) -> World {
    let mut world = six(&json!({"soak": "10m"}));
    look(&mut world);
    gone(&mut world, "a");
    let mut world = arrives(world, "new", ready, restarts);
    pass(&mut world, minutes);
    world
}

#[test]
fn what_is_not_healthy_halts_it_and_the_condition_says_what_was_seen() {
    for (ready, restarts, minutes, halts) in [
        (true, 0, 10, false),
        (true, 2, 10, false),
        (true, 3, 1, true),
        (false, 0, 4, false),
        (false, 0, 5, true),
    ] {
        let mut world = after_the_canary(ready, restarts, minutes);
        let status = look(&mut world).expect("goes on");
        let is_halted = status.phase == RolloutPhase::Halted;
        assert_eq!(is_halted, halts, "{ready} {restarts} {minutes}: {status:?}");
        if !halts {
            continue;
        }
        let text = status.message.expect("what was seen");
        assert!(text.contains("default/on-new on new node new"), "{text}");
        assert_eq!(drifts(&world), 0);
        assert_eq!(
            room(&world, &DisruptionReason::Underutilized),
            6,
            "only the roll-out halts"
        );
        let policy = world.state.disruption_policies[0].clone();
        let labels = BTreeMap::new();
        let word = |reason| frozen([&*policy], "default", Some(&labels), reason, world.now);
        assert!(word(&DisruptionReason::Drifted).is_some_and(|text| text.contains("on-new")));
        assert_eq!(word(&DisruptionReason::Empty), None);
        // Somebody says that it may go on: what came before is not looked at again.
        pass(&mut world, 1);
        let now = world.now;
        let mut world = asked(world, |rollout| rollout.resumed_at = Some(Time(now)));
        pass(&mut world, 10);
        assert_eq!(look(&mut world).expect("goes on").wave, 2);
    }
}

/// A wave whose pods are not ready when its soak is over waits for them.
#[test]
fn a_soak_does_not_end_before_pods_are_ready() {
    let mut world = after_the_canary(true, 0, 9);
    look(&mut world);
    let mut world = arrives(world, "newer", false, 0);
    pass(&mut world, 2);
    assert_eq!(look(&mut world).expect("goes on").wave, 1);
}

/// A workload that fails on old nodes as well proves nothing against the new ones.
#[test]
fn what_fails_everywhere_is_not_the_new_nodes_fault() {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true}]);
    let world = after_the_canary(false, 7, 6);
    let owned = |world: World, name: &str| {
        world.edit_pod(name, |pod| {
            pod.metadata.owner_references = serde_json::from_value(owner.clone()).expect("owners");
        })
    };
    let mut world = owned(world, "on-new").pod("old", "b", "1");
    world = owned(world, "old").edit_pod("old", |pod| {
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        pod.status = serde_json::from_value(status).expect("a status");
    });
    let alone = look(&mut world.clone()).expect("goes on");
    assert_eq!(alone.phase, RolloutPhase::Halted, "the old one is healthy");
    let mut world = world.edit_pod("old", |pod| {
        let status = json!({"phase": "Running",
            "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 9}]});
        pod.status = serde_json::from_value(status).expect("a status");
    });
    let both = look(&mut world).expect("goes on");
    assert_eq!(both.phase, RolloutPhase::Soaking, "{both:?}");
}

/// Pods of new nodes take up to just below the five minutes that they have, and restart up to twice on the way.
fn lives_to_its_end(seed: u64) {
    let mut dice = Dice(seed);
    let mut world = six(&json!({"soak": "6m"}));
    let mut old = ["a", "b", "c", "d", "e", "f"].into_iter();
    let mut settling: Vec<(String, i64)> = Vec::new();
    for minute in 0..120 {
        for _ in 0..drifts(&world) {
            let Some(node) = old.next() else { break };
            gone(&mut world, node);
            let restarts = i32::try_from(dice.below(3)).expect("a small number");
            world = arrives(world, &format!("new-{node}"), false, restarts);
            let wait = i64::try_from(dice.below(5)).expect("a small number");
            settling.push((format!("on-new-{node}"), minute + wait));
        }
        for (pod, _) in settling.iter().filter(|(_, at)| *at == minute) {
            world = world.edit_pod(pod, |pod| {
                let conditions = pod
                    .status
                    .get_or_insert_default()
                    .conditions
                    .get_or_insert_default();
                conditions[0].status = "True".to_owned();
            });
        }
        match look(&mut world) {
            None if minute > 0 => {
                assert_eq!(old.next(), None, "seed {seed}: all have gone");
                return;
            }
            status => {
                let halted = status.filter(|one| one.phase == RolloutPhase::Halted);
                assert_eq!(halted, None, "seed {seed}, minute {minute}");
            }
        }
        pass(&mut world, 1);
    }
    panic!("seed {seed}: not done after two hours");
}

#[test]
fn healthy_roll_outs_are_never_halted() {
    (0..1000).for_each(lives_to_its_end);
}

/// Invariant 25: what a wave has taken is remembered for as long as the wave lasts, however slowly its nodes drain.
#[test]
fn invariant_25_the_ledger_keeps_a_wave_that_lasts_for_days() {
    let mut world = six(&json!({"canary": 2, "soak": "1h"}));
    look(&mut world).expect("a roll-out");
    pass(&mut world, 1);
    gone(&mut world, "a");
    look(&mut world);
    pass(&mut world, 2 * 24 * 60);
    let forgotten = |world: &World| {
        let keeps = |one: &Disruption| keep(one, &world.state.disruption_policies, world.now);
        let all = world.state.disruptions.iter().map(|one| &**one);
        expired(all, Duration::from_secs(86_400), 200, keeps, world.now).len()
    };
    assert_eq!(forgotten(&world), 0, "two days later");
    assert_eq!(drifts(&world), 1, "of two");
    let mut over = world.clone();
    over.state.disruption_policies.clear();
    assert_eq!(forgotten(&over), 1, "once nobody counts it");
}
