//! What a canary has to show before anything follows it: a node of what the NodePool asks for now, which was healthy for a soak.

use crate::rollouts::{arrives, asked, brought, command, drifts, gone, look, pass, replaced, six};
use crate::support::World;
use jiff::SignedDuration;
use serde_json::json;
use spokeshave_api::conditions::INITIALIZED;
use spokeshave_api::disruption_policy::RolloutPhase;
use spokeshave_api::{hash, labels as api_labels};
use std::sync::Arc;

/// The annotations of a NodePool with this template, and of NodeClaims that were made from it.
fn of_template(name: &str) -> [(String, String); 2] {
    [
        (api_labels::NODE_POOL_HASH.to_owned(), name.to_owned()),
        (
            api_labels::NODE_POOL_HASH_VERSION.to_owned(),
            hash::VERSION.to_owned(),
        ),
    ]
}

/// The NodePool asks for another template.
fn asks_for(world: World, template: &str) -> World {
    world.edit_pool("default", |pool| {
        let annotations = pool.metadata.annotations.get_or_insert_default();
        annotations.extend(of_template(template));
    })
}

/// A node was launched for a template.
fn launched_for(world: World, node: &str, template: &str) -> World {
    world.edit_claim(node, |claim| {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.extend(of_template(template));
    })
}

/// A command for drift of a node begins now, which launches another for a template.
fn begins(world: &mut World, old: &str, template: &str) {
    command(world, old, "Replacing", None);
    brought(world, &format!("new-{old}"));
    let last = world.state.disruptions.last_mut().expect("a command");
    let new = &mut Arc::make_mut(last).spec.replacements[0];
    new.metadata.annotations.extend(of_template(template));
}

/// A node is not there any more, and no command has taken it.
fn vanishes(world: &mut World, node: &str) {
    let (nodes, claims) = (&mut world.state.nodes, &mut world.state.node_claims);
    nodes.retain(|one| one.metadata.name.as_deref() != Some(node));
    claims.retain(|one| one.name() != format!("claim-{node}"));
}

/// Invariant 25: nodes that go and are replaced by none show nothing of what is rolled out, however many of them go.
#[test]
fn invariant_25_a_canary_that_has_launched_nothing_is_repeated() {
    let mut world = six(&json!({"waves": ["100%"], "soak": "10m"}));
    look(&mut world).expect("a roll-out");
    for node in ["a", "b"] {
        gone(&mut world, node);
        pass(&mut world, 1);
        let again = look(&mut world).expect("goes on");
        let is_rolling = again.phase == RolloutPhase::Rolling;
        assert_eq!((again.wave, again.begun, is_rolling), (1, 0, true), "{node}");
        assert_eq!(drifts(&world), 1, "{node}");
    }
    let mut only_deleted = world.clone();
    let mut world = replaced(world, "c", "new-c");
    assert_eq!(look(&mut world).expect("goes on").phase, RolloutPhase::Soaking);
    pass(&mut world, 9);
    assert_eq!(look(&mut world).expect("goes on").wave, 1);
    assert_eq!(drifts(&world), 0, "it soaks");
    pass(&mut world, 1);
    assert_eq!(look(&mut world).expect("goes on").wave, 2);

    for node in ["c", "d", "e", "f"] {
        gone(&mut only_deleted, node);
        pass(&mut only_deleted, 1);
        assert_eq!(look(&mut only_deleted).expect("goes on").wave, 1, "{node}");
    }
    pass(&mut only_deleted, 10);
    assert_eq!(look(&mut only_deleted), None, "nothing is left");
}

/// Invariant 25: a node that a canary has brought and that is lost before the soak is over shows nothing either. The next canary waits for the end of the soak, so
/// that where nodes die as soon as they are there, one goes for each soak.
#[test]
fn invariant_25_a_canary_whose_node_is_lost_is_repeated_after_its_soak() {
    let mut world = six(&json!({"waves": ["100%"], "soak": "10m"}));
    look(&mut world).expect("a roll-out");
    let mut world = replaced(world, "a", "new-a");
    look(&mut world);
    pass(&mut world, 5);
    vanishes(&mut world, "new-a");
    assert_eq!(look(&mut world).expect("goes on").phase, RolloutPhase::Soaking);
    assert_eq!(drifts(&world), 0, "it soaks");
    let mut other = arrives(world.clone(), "other", true, 0);
    pass(&mut world, 5);
    let again = look(&mut world).expect("goes on");
    assert_eq!((again.wave, again.phase), (1, RolloutPhase::Rolling));
    assert_eq!(drifts(&world), 1, "another canary");
    // One that came for another reason will do, once it has been there for a soak.
    pass(&mut other, 9);
    assert_eq!(look(&mut other).expect("goes on").phase, RolloutPhase::Soaking);
    pass(&mut other, 1);
    assert_eq!(look(&mut other).expect("goes on").wave, 2);
}

/// Invariant 25: where new nodes live shorter than a soak some young one is always there, and none for long enough. Nothing larger follows, and it does not wait
/// for ever.
#[test]
fn invariant_25_a_canary_is_repeated_after_two_soaks_where_no_node_lives_for_one() {
    let mut world = six(&json!({"waves": ["100%"], "soak": "10m"}));
    look(&mut world).expect("a roll-out");
    let mut world = replaced(world, "a", "young-0");
    look(&mut world);
    for number in 1..=4 {
        pass(&mut world, 5);
        vanishes(&mut world, &format!("young-{}", number - 1));
        world = arrives(world, &format!("young-{number}"), true, 0);
        let status = look(&mut world).expect("goes on");
        let (phase, left) = if number < 4 {
            (RolloutPhase::Soaking, 0)
        } else {
            (RolloutPhase::Rolling, 1)
        };
        assert_eq!((status.wave, status.phase), (1, phase), "{number}");
        assert_eq!(drifts(&world), left, "{number}");
    }
    let mut world = replaced(world, "b", "new-b");
    vanishes(&mut world, "young-4");
    look(&mut world);
    pass(&mut world, 10);
    assert_eq!(look(&mut world).expect("goes on").wave, 2, "this one lives");
}

/// A pod on this node has been replaced by another, which started ten seconds ago and is not ready yet.
fn has_just_started(world: World, node: &str) -> World {
    let started = world.now - SignedDuration::from_secs(10);
    world.edit_pod(&format!("on-{node}"), |pod| {
        let status = json!({"phase": "Running",
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": started.to_string()}]});
        pod.status = serde_json::from_value(status).expect("a status");
    })
}

/// Invariant 25: where the pod of some job is always just starting, what was not ready before a soak was over is waited for, and nothing that came later.
#[test]
fn invariant_25_a_wave_ends_although_at_each_look_another_pod_has_just_started() {
    let mut world = six(&json!({"waves": ["100%"], "soak": "10m"}));
    look(&mut world).expect("a roll-out");
    let mut world = replaced(world, "a", "new-a");
    for minute in 1..=11 {
        pass(&mut world, 1);
        world = has_just_started(world, "new-a");
        let wave = if minute < 11 { 1 } else { 2 };
        assert_eq!(look(&mut world).expect("goes on").wave, wave, "{minute}");
    }
    for node in ["b", "c", "d", "e", "f"] {
        world = replaced(world, node, &format!("new-{node}"));
    }
    for minute in 1..=11 {
        pass(&mut world, 1);
        world = has_just_started(world, "new-a");
        assert_eq!(look(&mut world).is_none(), minute == 11, "{minute}");
    }
}

/// Where nothing is left that a next wave could take, no node has to be there for a soak.
#[test]
fn a_roll_out_ends_a_soak_after_its_last_command_although_nodes_come_and_go() {
    let mut world = six(&json!({"soak": "10m"}));
    look(&mut world).expect("a roll-out");
    for node in ["b", "c", "d", "e", "f"] {
        vanishes(&mut world, node);
    }
    let mut world = replaced(world, "a", "new-a");
    look(&mut world);
    pass(&mut world, 5);
    vanishes(&mut world, "new-a");
    let mut world = arrives(world, "other", true, 0);
    assert_eq!(look(&mut world).expect("goes on").phase, RolloutPhase::Soaking);
    pass(&mut world, 5);
    assert_eq!(look(&mut world), None, "it is over");
}

/// Invariant 25: a machine of another NodePool shows nothing of what this one asks for, but it may be bad: a soak passes before the next is brought.
#[test]
fn invariant_25_a_canary_that_is_replaced_in_another_nodepool_is_repeated_after_its_soak() {
    let mut world = six(&json!({"waves": ["100%"], "soak": "10m"}));
    look(&mut world).expect("a roll-out");
    for node in ["a", "b"] {
        gone(&mut world, node);
        brought(&mut world, &format!("new-{node}"));
        let last = world.state.disruptions.last_mut().expect("a command");
        let new = &mut Arc::make_mut(last).spec.replacements[0];
        new.node_pool = "other".to_owned();
        pass(&mut world, 9);
        let soaking = look(&mut world).expect("goes on");
        assert_eq!(soaking.phase, RolloutPhase::Soaking, "{node}");
        assert_eq!(drifts(&world), 0, "{node}");
        pass(&mut world, 1);
        let again = look(&mut world).expect("goes on");
        assert_eq!((again.wave, again.phase), (1, RolloutPhase::Rolling), "{node}");
        assert_eq!(drifts(&world), 1, "{node}");
    }
}

/// Invariant 25: the soak of a node that came for another reason begins when it is up, not when its Node is created.
#[test]
fn invariant_25_a_node_is_tried_from_when_it_has_come_up() {
    let mut world = six(&json!({"waves": ["100%"], "soak": "10m"}));
    look(&mut world).expect("a roll-out");
    let world = arrives(world, "slow", true, 0);
    let mut world = replaced(world, "a", "new-a");
    pass(&mut world, 5);
    vanishes(&mut world, "new-a");
    let now = world.now;
    let mut world = world.edit_claim("slow", |claim| {
        let conditions = claim.status.get_or_insert_default().conditions.iter_mut();
        conditions
            .filter(|one| one.type_ == INITIALIZED)
            .for_each(|one| one.last_transition_time = now);
    });
    look(&mut world);
    pass(&mut world, 5);
    assert_eq!(look(&mut world).expect("goes on").phase, RolloutPhase::Soaking);
    pass(&mut world, 5);
    assert_eq!(look(&mut world).expect("goes on").wave, 2);
}

/// Nobody has approved a second canary: what was healthy for a soak is so, whatever becomes of its node while people take their time.
#[test]
fn a_canary_that_waits_for_approval_is_not_repeated() {
    let mut world = six(&json!({"waves": ["100%"], "soak": "10m", "approval": "Manual"}));
    look(&mut world).expect("a roll-out");
    let mut world = replaced(world, "a", "new-a");
    look(&mut world);
    pass(&mut world, 10);
    let waiting = look(&mut world).expect("goes on");
    assert_eq!(waiting.phase, RolloutPhase::WaitingForApproval);
    vanishes(&mut world, "new-a");
    pass(&mut world, 60);
    let waiting = look(&mut world).expect("goes on");
    assert_eq!(waiting.phase, RolloutPhase::WaitingForApproval);
    let text = waiting.message.expect("a text");
    assert!(text.contains("is through and healthy"), "{text}");
    assert_eq!(drifts(&world), 0);
    // A pod of a new node has a while, or another object does not agree: that tells nothing against what was healthy.
    let settling = arrives(world.clone(), "late", false, 0);
    let object = json!({"apiVersion": "v1", "resource": "namespaces", "name": "shop", "expression": "true"});
    let lagging = asked(world.clone(), |rollout| {
        let health = json!({"objects": [object]});
        rollout.health = serde_json::from_value(health).expect("a health check");
    });
    for mut unsettled in [settling, lagging] {
        let waiting = look(&mut unsettled).expect("goes on");
        assert_eq!(waiting.phase, RolloutPhase::WaitingForApproval);
        let text = waiting.message.expect("a text");
        assert!(!text.contains("healthy"), "{text}");
        let after = asked(unsettled, |rollout| rollout.health = None);
        world.state.disruption_policies = after.state.disruption_policies;
        let waiting = look(&mut world).expect("goes on");
        assert_eq!(waiting.phase, RolloutPhase::WaitingForApproval);
        assert_eq!(drifts(&world), 0);
    }
    let mut world = asked(world, |rollout| {
        rollout.approved = [("default".to_owned(), 2)].into();
    });
    assert_eq!(look(&mut world).expect("goes on").wave, 2);
}

/// The template is changed again in mid-roll-out: the last command for the one before is no canary of the next, and the first for the next is.
#[test]
fn a_command_for_the_template_before_is_no_canary_of_the_next() {
    let mut world = asks_for(six(&json!({"soak": "10m"})), "second");
    look(&mut world).expect("a roll-out");
    pass(&mut world, 5);
    begins(&mut world, "a", "second");
    world.now += SignedDuration::from_secs(20);
    let world = asks_for(world, "third");
    let mut late = world.clone();
    assert_eq!(look(&mut late).expect("another begins").wave, 1);
    assert_eq!(drifts(&late), 1, "a canary of its own");
    let mut early = world;
    begins(&mut early, "b", "third");
    look(&mut early).expect("another begins");
    assert_eq!(drifts(&early), 0, "it has begun");
    pass(&mut early, 1);
    assert_eq!(look(&mut early).expect("goes on").begun, 1);
}

/// A bad template is mended while its last nodes are on their way: what fails on those neither halts what mends it nor is a canary of it.
#[test]
fn nodes_of_the_template_before_are_not_judged() {
    let mut world = asks_for(six(&json!({"soak": "10m"})), "bad");
    look(&mut world).expect("a roll-out");
    pass(&mut world, 30);
    let mut world = asks_for(world, "good");
    look(&mut world).expect("another begins");
    let mut world = launched_for(arrives(world, "late", false, 3), "late", "bad");
    gone(&mut world, "a");
    pass(&mut world, 6);
    let status = look(&mut world).expect("goes on");
    assert_eq!((status.wave, status.phase), (1, RolloutPhase::Rolling));
    assert_eq!(drifts(&world), 1, "a canary");
    let mut world = launched_for(arrives(world, "new", true, 3), "new", "good");
    let status = look(&mut world).expect("goes on");
    assert_eq!(status.phase, RolloutPhase::Halted);
    let text = status.message.expect("what was seen");
    assert!(text.contains("default/on-new on new node new"), "{text}");
}

/// A node for the template before that was launched although the next was written down has drifted for that alone, and begins nothing again in any wave.
#[test]
fn a_late_node_of_the_template_before_begins_nothing_again() {
    let mut world = asks_for(six(&json!({"soak": "10m"})), "second");
    look(&mut world).expect("a roll-out");
    let world = replaced(world, "a", "new-a");
    let mut world = launched_for(world, "new-a", "second");
    look(&mut world);
    pass(&mut world, 1);
    let world = launched_for(arrives(world, "late", true, 0), "late", "first");
    let mut world = world.drifted("late", 60);
    pass(&mut world, 9);
    for _ in 0..2 {
        assert_eq!(look(&mut world).expect("goes on").wave, 2);
    }
    let mut world = world.drifted("new-a", 600);
    let again = look(&mut world).expect("it begins again");
    assert_eq!(again.wave, 1, "another image for the present template");
}
