//! Circuit breakers: what trips them, what they say, and when they end by themselves.

use crate::support::{DELETE_A, World, acts, later, pair};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_model::{Distress, PriceFeed};
use spokeshave_plan::disruption_policy::status;
use std::sync::Arc;

fn under(breakers: &Value, distress: Distress) -> World {
    let mut world = pair();
    let spec = serde_json::from_value(json!({"circuitBreakers": breakers})).expect("a spec");
    world
        .state
        .disruption_policies
        .push(Arc::new(DisruptionPolicy::new("calm", spec)));
    world.state.distress = distress;
    world
}

fn at(seconds: &[i64]) -> Vec<Timestamp> {
    seconds.iter().map(|seconds| later(*seconds)).collect()
}

fn active(world: &World) -> Value {
    let after = status(
        &world.state.disruption_policies[0],
        &world.snapshot(),
        &[],
        world.now,
    );
    serde_json::to_value(after.status).expect("JSON")["active"][0].clone()
}

#[test]
fn failures_of_cloud_and_api_server_trip_and_fade() {
    for (field, distress) in [
        (
            "cloud",
            Distress {
                cloud: at(&[-500, -100, -50, -10]),
                ..Distress::default()
            },
        ),
        (
            "apiServer",
            Distress {
                api_server: at(&[-500, -100, -50, -10]),
                ..Distress::default()
            },
        ),
    ] {
        let breaker = |count: i64| json!({field: {"count": count, "within": "5m"}});
        assert_eq!(acts(&under(&breaker(4), distress.clone())), [DELETE_A], "{field}");
        let world = under(&breaker(3), distress.clone());
        assert_eq!(acts(&world), [""; 0], "{field}");
        let said = active(&world);
        assert_eq!(said["field"], format!("spec.circuitBreakers.{field}"));
        assert_eq!(
            said["until"],
            json!(later(200).to_string()),
            "the oldest of three fades: {said}"
        );
        assert!(
            said["message"].as_str().unwrap().starts_with("3 calls of the"),
            "{said}"
        );
        let mut calm = world;
        calm.now = later(200);
        assert_eq!(acts(&calm), [DELETE_A], "it ends by itself");
        let other = json!({"prices": {"olderThan": "1h"}, "failedLaunches": {"count": 1, "within": "1h"}});
        assert_eq!(acts(&under(&other, distress)), [DELETE_A], "another breaker");
    }
}

/// An operator that begins has counted nothing yet: what the last one wrote into the status stands until its end, unless the policy was changed since.
#[test]
fn a_breaker_that_has_tripped_stands_through_a_restart() {
    let distress = Distress {
        cloud: at(&[-100, -50, -10]),
        ..Distress::default()
    };
    let breaker = json!({"cloud": {"count": 3, "within": "5m"}});
    let mut world = under(&breaker, distress);
    let written = status(
        &world.state.disruption_policies[0],
        &world.snapshot(),
        &[],
        world.now,
    );
    world.state.disruption_policies[0] = Arc::new(written.clone());
    world.state.distress = Distress::default();
    assert_eq!(acts(&world), [""; 0], "it was tripped before the restart");
    let said = active(&world);
    assert_eq!(said["until"], json!(later(200).to_string()), "{said}");
    assert!(
        said["message"]
            .as_str()
            .unwrap()
            .starts_with("3 calls of the cloud"),
        "{said}"
    );
    world.now = later(199);
    assert_eq!(acts(&world), [""; 0]);
    world.now = later(200);
    assert_eq!(acts(&world), [DELETE_A], "it ends when it would have ended");
    world.now = later(0);
    world.state.distress.cloud = at(&[-5, -4, -3]);
    assert_eq!(
        active(&world)["until"],
        json!(later(295).to_string()),
        "what fails now counts as well"
    );
    world.state.distress = Distress::default();
    let mut changed = written;
    changed.metadata.generation = Some(2);
    world.state.disruption_policies[0] = Arc::new(changed);
    assert_eq!(
        acts(&world),
        [DELETE_A],
        "a changed policy is judged by what is counted now"
    );
}

#[test]
fn prices_that_were_not_read_for_long_stop_and_fixed_ones_never_do() {
    let breaker = json!({"prices": {"olderThan": "1h"}});
    let fed = |prices| {
        under(
            &breaker,
            Distress {
                prices,
                ..Distress::default()
            },
        )
    };
    assert_eq!(acts(&fed(PriceFeed::Fixed)), [DELETE_A]);
    assert_eq!(acts(&fed(PriceFeed::Since(later(-3599)))), [DELETE_A]);
    let lost = fed(PriceFeed::Since(later(-5400)));
    assert_eq!(acts(&lost), [""; 0]);
    let said = active(&lost);
    assert_eq!(
        said["message"],
        "prices are 90 minutes old, 1h0m0s or more; ends when they are read again"
    );
}

proptest! {
    /// Whatever the times, a breaker stands exactly until enough of them have faded, also by a clock that was set back.
    #[test]
    fn a_breaker_stands_exactly_until_enough_have_faded(
        times in prop::collection::vec(-400_i64..200, 0..8),
        count in 1_i64..5,
    ) {
        let distress = Distress { cloud: at(&times), ..Distress::default() };
        let mut world = under(&json!({"cloud": {"count": count, "within": "5m"}}), distress);
        let stands = |now: i64| times.iter().filter(|at| now - **at < 300).count() >= usize::try_from(count).unwrap();
        let until = active(&world)["until"].as_str().map(|text| text.parse::<Timestamp>().unwrap());
        prop_assert_eq!(until.is_some(), stands(0));
        if let Some(until) = until {
            let end = until.duration_since(later(0)).as_secs();
            prop_assert!(stands(end - 1) && !stands(end), "{}", end);
            world.now = until;
            prop_assert_eq!(acts(&world), [DELETE_A]);
        }
    }
}
