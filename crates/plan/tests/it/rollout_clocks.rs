//! Roll-outs whose times lie ahead, because the clock that told them was set back, or another operator leads whose clock is right.

use crate::rollouts::{arrives, asked, command, drifts, gone, look, pass, replaced, six};
use crate::support::World;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_api::disruption_policy::RolloutPhase;
use spokeshave_plan::disruption_policy::{Keep, keep};

/// Writes the next status, and tells whether the roll-out is halted in it.
fn halts(world: &mut World) -> bool {
    look(world).expect("goes on").phase == RolloutPhase::Halted
}

/// Somebody says that what was halted before this may go on.
fn resumed(world: World, at: Timestamp) -> World {
    asked(world, |rollout| rollout.resumed_at = Some(Time(at)))
}

/// Invariant 25: what either clock has decided counts for the wave, and none begins before its time.
#[test]
fn invariant_25_a_wave_takes_no_more_than_its_size_after_the_clock_was_set_back() {
    let mut world = six(&json!({"soak": "10m"}));
    look(&mut world).expect("a roll-out");
    let mut world = replaced(world, "a", "new-a");
    look(&mut world);
    pass(&mut world, 10);
    assert_eq!(look(&mut world).expect("goes on").wave, 2);
    pass(&mut world, 1);
    command(&mut world, "b", "Replacing", None);
    pass(&mut world, -8);
    assert_eq!(drifts(&world), 0, "until its times are written again");
    let status = look(&mut world).expect("goes on");
    assert_eq!((status.wave, status.size, status.begun), (2, 2, 1));
    assert_eq!(status.wave_since, Time(world.now));
    assert_eq!(drifts(&world), 1, "of two");
    command(&mut world, "c", "Replacing", None);
    assert_eq!(drifts(&world), 0, "both have begun");
    pass(&mut world, 1);
    assert_eq!(look(&mut world).expect("goes on").begun, 2);
    for node in ["b", "c"] {
        world = replaced(world, node, &format!("new-{node}"));
    }
    assert_eq!(look(&mut world).expect("goes on").phase, RolloutPhase::Soaking);
    pass(&mut world, 9);
    assert_eq!(look(&mut world).expect("goes on").wave, 2);
    assert_eq!(drifts(&world), 0, "it soaks");
    pass(&mut world, 1);
    assert_eq!(look(&mut world).expect("goes on").wave, 3);
}

/// Invariant 25: a canary that only went, by the other clock, would fill each that starts before its time. None starts, and the status stays as it is, until then.
#[test]
fn invariant_25_a_canary_of_a_time_to_come_is_repeated_once_that_has_passed() {
    let mut world = six(&json!({"soak": "10m"}));
    look(&mut world).expect("a roll-out");
    pass(&mut world, 5);
    gone(&mut world, "a");
    pass(&mut world, -4);
    let first = look(&mut world).expect("goes on");
    assert_eq!((first.wave, first.phase), (1, RolloutPhase::Soaking));
    pass(&mut world, 2);
    let second = look(&mut world).expect("goes on");
    assert_eq!(second.phase, RolloutPhase::Soaking);
    assert_eq!(second.wave_since, first.wave_since);
    assert_eq!(drifts(&world), 0, "it is out");
    pass(&mut world, 3);
    let again = look(&mut world).expect("goes on");
    assert_eq!((again.wave, again.phase), (1, RolloutPhase::Rolling));
    assert_eq!(drifts(&world), 1, "another canary");
}

/// Invariant 25: a command that the wave counts once its status is written again is not forgotten before.
#[test]
fn invariant_25_the_ledger_keeps_what_a_wave_counts_after_the_clock_was_set_back() {
    let mut world = six(&json!({"soak": "10m"}));
    look(&mut world).expect("a roll-out");
    pass(&mut world, 5);
    let mut world = replaced(world, "a", "new-a");
    look(&mut world);
    pass(&mut world, 10);
    assert_eq!(look(&mut world).expect("goes on").wave, 2);
    pass(&mut world, -12);
    let kept = |world: &World| {
        let canary = &world.state.disruptions[0];
        keep(canary, &world.state.disruption_policies, world.now)
    };
    assert_eq!(kept(&world), Keep::Always);
    assert_eq!(look(&mut world).expect("goes on").begun, 1);
    assert_eq!(kept(&world), Keep::Always);
}

/// Invariant 25: a roll-out that begins, or has begun by the other clock, has its canary, which is judged.
#[test]
fn invariant_25_what_comes_after_the_clock_was_set_back_is_judged() {
    for is_written in [true, false] {
        let mut world = six(&json!({"soak": "10m"}));
        if is_written {
            look(&mut world).expect("a roll-out");
        }
        pass(&mut world, -10);
        assert_eq!(drifts(&world), 0, "until its times are written again");
        look(&mut world).expect("goes on");
        assert_eq!(drifts(&world), 1, "the canary");
        gone(&mut world, "a");
        assert_eq!(drifts(&world), 0, "it is out");
        let mut world = arrives(world, "new", true, 3);
        assert!(halts(&mut world), "{is_written}");
    }
}

/// Invariant 43: a resumption that is of a time to come clears the halt that it was said of, forgives what was seen until now, and no more.
#[test]
fn invariant_43_a_resumption_clears_no_later_halt_after_the_clock_was_set_back() {
    let mut world = six(&json!({"soak": "10m"}));
    look(&mut world).expect("a roll-out");
    gone(&mut world, "a");
    let mut world = arrives(world, "new", true, 3);
    assert!(halts(&mut world));
    pass(&mut world, 4);
    let now = world.now;
    let mut world = resumed(world, now);
    assert!(!halts(&mut world));
    pass(&mut world, -3);
    assert!(!halts(&mut world), "what came before is forgiven");
    pass(&mut world, 1);
    let mut world = arrives(world, "newer", true, 3);
    for minute in 2..6 {
        assert!(halts(&mut world), "at {minute}");
        pass(&mut world, 1);
    }

    // As `spokeshave rollout resume` does, by an operator whose clock is behind that of the halt.
    pass(&mut world, -3);
    let halted = look(&mut world).expect("goes on").halted_at.expect("a time");
    assert!(halted.0 > world.now, "{halted:?}");
    let mut world = resumed(world, halted.0 + SignedDuration::from_secs(1));
    let status = look(&mut world).expect("goes on");
    assert_eq!(status.phase, RolloutPhase::Soaking);
    assert_eq!(status.resumed_at, Some(Time(world.now)));
    let mut world = arrives(world, "newest", true, 3);
    for minute in 3..6 {
        assert!(halts(&mut world), "at {minute}");
        pass(&mut world, 1);
    }
}
