//! What a command has saved in fact, beside what was predicted.

use crate::support::command_world::{FOR_EVER, World, at, command};
use spokeshave_api::disruption::DisruptionPhase;

/// Invariant 19: the ledger says what was saved with the replacement as it was launched, beside what was predicted; nothing where nobody knows.
#[test]
fn invariant_19_the_end_of_a_command_says_what_was_saved_in_fact() {
    let ended = |price_after: Option<&str>| {
        let mut world = World::new(command(&["a"], &["x"], "SingleNodeConsolidation"));
        world.disruption.spec.price_before = "0.2".to_owned();
        world.disruption.spec.price_after = "0.05".to_owned();
        world.disruption.spec.savings = "0.15".to_owned();
        world.run(at(1), FOR_EVER);
        world.initialise("x");
        world.run(at(2), FOR_EVER);
        world.terminate();
        world.look(at(90), |present| {
            present.price_after = price_after.map(|text| text.parse().unwrap());
        });
        let status = world.disruption.status.unwrap();
        assert_eq!(status.phase, Some(DisruptionPhase::Succeeded));
        (status.realised_savings, status.message.unwrap())
    };
    let said = |realised: Option<&str>, message: &str| (realised.map(str::to_owned), message.to_owned());
    assert_eq!(
        ended(Some("0.08")),
        said(Some("0.12"), "1 node gone, 0.12 $/h saved, 0.15 $/h predicted"),
        "the cheapest offering was not to be had"
    );
    assert_eq!(
        ended(Some("0.05")),
        said(Some("0.15"), "1 node gone, 0.15 $/h saved")
    );
    assert_eq!(
        ended(Some("0.25")),
        said(Some("-0.05"), "1 node gone, -0.05 $/h saved, 0.15 $/h predicted")
    );
    assert_eq!(ended(None), said(None, "1 node gone, 0.15 $/h saved"));
}
