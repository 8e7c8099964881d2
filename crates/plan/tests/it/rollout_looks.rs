//! Roll-outs as one look finds them: a status that says one thing, what has begun already, and what is no part of a wave.

use crate::rollouts::{asked, born, brought, command, drifts, look, pass, replaced, six};
use crate::support::{World, later, only};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_api::disruption_policy::{DisruptionPolicyStatus, RolloutPhase};
use spokeshave_api::labels as api_labels;
use spokeshave_plan::disrupt::Method;
use spokeshave_plan::disruption_policy::{status, status_with};
use std::sync::Arc;

/// Writes the status that the policy should have now, with what stands by the same look.
fn written(world: &mut World) -> DisruptionPolicyStatus {
    let policy = &world.state.disruption_policies[0];
    let after = status_with(policy, &world.snapshot(), &[], None, world.now);
    world.state.disruption_policies[0] = Arc::new(after.clone());
    after.status.expect("a status")
}

/// What stops drift is what the roll-out waits for, in the rule, in the list of policies and in the roll-out itself.
fn assert_agrees(status: &DisruptionPolicyStatus) {
    let message = status.rollouts[0].message.clone().expect("a text");
    let waits = format!("the roll-out waits: {message}");
    let active: Vec<&str> = status.active.iter().map(|rule| rule.message.as_str()).collect();
    assert_eq!(active, [waits.as_str()]);
    assert_eq!(status.summary.as_deref(), Some(waits.as_str()));
}

#[test]
fn a_status_says_one_thing_of_a_roll_out_that_comes_further() {
    let mut world = six(&json!({"soak": "10m", "approval": "Manual"}));
    assert!(
        written(&mut world).active.is_empty(),
        "there is room for the canary"
    );
    let mut world = replaced(world, "a", "new-a");
    let soaking = written(&mut world);
    assert_eq!(soaking.rollouts[0].phase, RolloutPhase::Soaking);
    assert_agrees(&soaking);
    pass(&mut world, 10);
    // Where nobody writes it, what stands goes by what decisions see.
    let policy = &world.state.disruption_policies[0];
    let seen = status(policy, &world.snapshot(), &[], world.now);
    assert_eq!(seen.status.expect("a status").active, soaking.active);
    let waiting = written(&mut world);
    assert_eq!(waiting.rollouts[0].phase, RolloutPhase::WaitingForApproval);
    assert_agrees(&waiting);
    let mut world = asked(world, |rollout| {
        rollout.approved = [("default".to_owned(), 2)].into();
    });
    let rolling = written(&mut world);
    assert_eq!(
        (rolling.rollouts[0].wave, rolling.active.len()),
        (2, 0),
        "{:?}",
        rolling.active
    );
}

/// It is written in whole seconds, so that it is a second later at most.
#[test]
fn the_end_of_a_soak_is_a_time_at_which_something_changes() {
    let mut world = six(&json!({"soak": "10m"}));
    assert_eq!(written(&mut world).next_change, None);
    let mut world = replaced(world, "a", "new-a");
    let end = world.now + SignedDuration::from_secs(601);
    assert_eq!(written(&mut world).next_change, Some(Time(end)));
    world.now = end;
    let next = written(&mut world);
    assert_eq!((next.rollouts[0].wave, next.next_change), (2, None));
}

#[test]
fn a_roll_out_that_begins_counts_what_has_begun() {
    let mut world = six(&json!({"soak": "10m"}));
    command(&mut world, "a", "Replacing", None);
    world.state.in_command.insert("kwok://a".to_owned());
    world.now += SignedDuration::from_secs(8);
    let status = written(&mut world);
    let first = &status.rollouts[0];
    assert_eq!((first.begun, first.remaining), (1, 5));
    assert_eq!(first.message.as_deref(), Some("wave 1: 1 of 1 have begun"));
    let active: Vec<&str> = status.active.iter().map(|rule| rule.message.as_str()).collect();
    assert_eq!(active, ["wave 1 is 1 node, 1 of which have begun"]);
}

/// A percentage is one of all nodes; that which the canary has brought is none that is left.
#[test]
fn a_wave_is_told_as_no_larger_than_what_is_left() {
    let mut world = six(&json!({"waves": ["100%"], "soak": "10m"}));
    look(&mut world);
    let mut world = replaced(world, "a", "new-a");
    look(&mut world);
    pass(&mut world, 10);
    let second = look(&mut world).expect("goes on");
    assert_eq!((second.wave, second.size, second.remaining), (2, 6, 5));
    assert_eq!(second.message.as_deref(), Some("wave 2: 0 of 5 have begun"));
    for node in ["b", "c", "d", "e", "f"] {
        command(&mut world, node, "Replacing", None);
        world.state.in_command.insert(format!("kwok://{node}"));
    }
    let all = look(&mut world).expect("goes on");
    assert_eq!((all.begun, all.remaining), (5, 0));
    assert_eq!(all.message.as_deref(), Some("wave 2: 5 of 5 have begun"));
}

/// Its `since` is a minute earlier, for the sake of what was launched right before.
#[test]
fn a_deadline_counts_from_when_the_roll_out_began() {
    let mut world = six(&json!({"soak": "10m", "deadline": "30m"}));
    look(&mut world);
    let is_late = |world: &mut World| {
        let message = look(world).expect("goes on").message.expect("a text");
        message.contains("its deadline has passed")
    };
    world.now += SignedDuration::from_secs(30 * 60 - 1);
    assert!(!is_late(&mut world));
    world.now += SignedDuration::from_secs(1);
    assert!(is_late(&mut world));
}

/// Invariant 25: of all commands those for drift are a wave's, also while others wait for their second look. Where nobody writes the roll-out down, what may be
/// for drift counts.
#[test]
fn invariant_25_what_waits_to_go_for_another_reason_takes_nothing_of_a_wave() {
    let mut world = six(&json!({"soak": "10m"}));
    for node in ["a", "b", "c", "d", "e"] {
        world = world.pod(&format!("on-{node}"), node, "1");
    }
    let world = world.node("calm", "small").pod("on-calm", "calm", "1");
    let mut world = born(world, "calm", later(-86_400));
    for is_written in [false, true] {
        if is_written {
            look(&mut world).expect("a roll-out");
        }
        let beside = |waiting: &str| {
            let mut world = world.clone();
            world.state.in_command.insert(format!("kwok://{waiting}"));
            world
        };
        for waiting in ["f", "calm"] {
            let mut world = beside(waiting);
            assert_eq!(drifts(&world), 1, "beside {waiting}");
            world.policy = only(Method::Drift);
            assert_eq!(world.command().method, Method::Drift, "beside {waiting}");
        }
        let room = usize::from(is_written);
        assert_eq!(drifts(&beside("a")), room, "consolidation, or drift");
        let rests = beside("f").not_consolidatable("f");
        assert_eq!(drifts(&rests), room, "emptiness would not take it");
    }
}

/// The NodePool asks for another template.
fn asks_for(world: World, template: &str) -> World {
    world.edit_pool("default", |pool| {
        let annotations = pool.metadata.annotations.get_or_insert_default();
        annotations.insert(api_labels::NODE_POOL_HASH.to_owned(), template.to_owned());
    })
}

/// A command for drift of a node begins now, which launches another for a template.
fn begins(world: &mut World, old: &str, template: &str) {
    command(world, old, "Replacing", None);
    brought(world, &format!("new-{old}"));
    let last = world.state.disruptions.last_mut().expect("a command");
    let new = &mut Arc::make_mut(last).spec.replacements[0];
    let annotations = &mut new.metadata.annotations;
    annotations.insert(api_labels::NODE_POOL_HASH.to_owned(), template.to_owned());
}

/// Nobody has written down yet that another roll-out begins, and `plan` of a file may never: its canary has room all the same, and no more than one.
#[test]
fn commands_for_the_template_before_take_nothing_of_the_next_canary() {
    let mut world = asks_for(six(&json!({"soak": "10m"})), "second");
    look(&mut world).expect("a roll-out");
    pass(&mut world, 5);
    begins(&mut world, "a", "second");
    world.now += SignedDuration::from_millis(400);
    let mut world = asks_for(world, "third");
    assert_eq!(drifts(&world), 1, "a canary of its own");
    begins(&mut world, "b", "third");
    assert_eq!(drifts(&world), 0, "in the same second");
}
