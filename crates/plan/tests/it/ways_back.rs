//! Commands under way (D §3.5, §3.6) that lose their reason, or their nodes to others: what is taken back, what then stands in the ledger, and where there is
//! nothing to take back any more.

use crate::support::command_world::{FOR_EVER, World, at, command, node};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_api::conditions::{Conditioned, DRIFTED, Status};
use spokeshave_api::disruption::{DisruptionPhase, DisruptionStatus, RollBackCause};
use spokeshave_model::Pod;
use spokeshave_plan::disrupt::advance::{Milestone, WaitsFor};

/// Somebody asks for the deletion of a NodeClaim.
fn delete(world: &mut World, name: &str) {
    world.claims.get_mut(name).unwrap().metadata.deletion_timestamp = Some(Time(at(2)));
}

fn is_to_go(world: &World, name: &str) -> bool {
    world.claims.get(name).is_none_or(|claim| claim.is_deleting())
}

fn status(world: &World) -> DisruptionStatus {
    world.disruption.status.clone().unwrap()
}

/// A template that is put right in mid-command: the replacement would be of the wrong one, and would have to be replaced itself.
#[test]
fn drift_that_is_reverted_keeps_the_node() {
    for method in ["Drift", "StaticDrift"] {
        for (replacements, writes, phase) in [
            (&["x"][..], 0, DisruptionPhase::Starting),
            (&["x"], FOR_EVER, DisruptionPhase::Replacing),
            // Taint, condition, status.
            (&[], 3, DisruptionPhase::Deleting),
        ] {
            let mut world = World::new(command(&["a"], replacements, method));
            world.run(at(1), writes);
            assert_eq!(world.disruption.phase(), phase, "{method}");
            world.claims.get_mut("a").unwrap().clear(DRIFTED);
            world.run(at(2), FOR_EVER);
            assert_eq!(
                world.disruption.phase(),
                DisruptionPhase::RolledBack,
                "{method} {phase}"
            );
            let status = status(&world);
            assert_eq!(status.roll_back_cause, Some(RollBackCause::NotDrifted));
            assert_eq!(status.message.as_deref(), Some("node a is not drifted any more"));
            assert!(!is_to_go(&world, "a"), "{method} {phase}");
            assert!(is_to_go(&world, "x"), "{method} {phase}");
            assert_eq!((world.tainted(), world.marked()), (0, 0), "{method} {phase}");
        }
    }
}

#[test]
fn drift_goes_on_where_nobody_has_said_that_it_is_reverted_or_a_node_is_deleted() {
    let mut unknown = World::new(command(&["a"], &["x"], "Drift"));
    unknown.run(at(1), FOR_EVER);
    let claim = unknown.claims.get_mut("a").unwrap();
    claim.set(DRIFTED, Status::Unknown, "Unknown", "", at(2));
    assert_eq!(unknown.run(at(2), FOR_EVER), 0);
    assert_eq!(unknown.disruption.phase(), DisruptionPhase::Replacing);

    // Taints, conditions, status.
    let mut half = World::new(command(&["a", "b"], &[], "Drift"));
    half.run(at(1), 5);
    delete(&mut half, "a");
    half.claims.get_mut("b").unwrap().clear(DRIFTED);
    half.run(at(3), FOR_EVER);
    assert_eq!(half.disruption.phase(), DisruptionPhase::Draining);
    assert!(is_to_go(&half, "b"), "nothing is left half done");
}

/// What the server has denied, it would deny again: nothing waits for the time that the first steps may take.
#[test]
fn d_102_a_replacement_that_is_refused_takes_the_command_back_at_once() {
    let mut world = World::new(command(&["a"], &["x", "y"], "SingleNodeConsolidation"));
    // Taint, condition, the first of the replacements.
    world.run(at(1), 3);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Starting);
    assert_eq!((world.tainted(), world.marked()), (1, 1));
    world.look(at(2), |present| {
        present.refused = Some("not in this house".to_owned());
    });
    assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack);
    let status = status(&world);
    assert_eq!(status.roll_back_cause, Some(RollBackCause::ReplacementRefused));
    assert_eq!(
        status.message.as_deref(),
        Some("the API server refuses a replacement: not in this house")
    );
    assert_eq!((world.tainted(), world.marked()), (0, 0));
    assert!(!is_to_go(&world, "a") && is_to_go(&world, "x"));
}

/// Rates, quotas and waves count what has a time of deletion, also among commands that were rolled back.
#[test]
fn invariant_3_a_command_that_deleted_nothing_has_no_time_of_deletion() {
    let protected = json!({"metadata": {"name": "job", "namespace": "batch", "annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "status": {"phase": "Running"}});
    let protected: Arc<Pod> = Arc::new(serde_json::from_value(protected).unwrap());
    for deleted in [&["a"][..], &[]] {
        let mut world = World::new(command(&["a", "b"], &[], "SingleNodeConsolidation"));
        world.run(at(1), 5);
        assert_eq!(world.disruption.phase(), DisruptionPhase::Deleting);
        assert!(status(&world).deleted_at.is_some());
        for name in deleted {
            delete(&mut world, name);
        }
        world.pods = vec![protected.clone()];
        world.run(at(3), FOR_EVER);
        assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack);
        let status = status(&world);
        assert_eq!(status.deleted_at.is_some(), !deleted.is_empty(), "{deleted:?}");
        assert!(status.finished_at.is_some());
    }
}

/// The node of the command is interrupted, expires or is deleted by hand while its replacement is registered and not ready yet: its pods need that one.
#[test]
fn invariant_8_a_replacement_that_is_not_up_is_kept_for_pods_of_nodes_that_others_deleted() {
    for waits_for in [None, Some(WaitsFor::Watch), Some(WaitsFor::Places)] {
        let mut command = command(&["a"], &["x"], "SingleNodeConsolidation");
        command.spec.destinations = vec!["x".to_owned()];
        let mut world = World::new(command);
        world.nodes.insert("x".to_owned(), node("x"));
        world.run(at(1), FOR_EVER);
        assert_eq!(world.disruption.phase(), DisruptionPhase::Replacing);
        delete(&mut world, "a");
        world.run(at(2), 1);
        assert_eq!(world.disruption.phase(), DisruptionPhase::Deleting);
        world.look(at(4), |present| present.waits_for = waits_for);
        assert_eq!(
            world.disruption.phase(),
            DisruptionPhase::Draining,
            "{waits_for:?}"
        );
        world.terminate();
        world.run(at(90), FOR_EVER);
        assert_eq!(world.disruption.phase(), DisruptionPhase::Succeeded);
        assert!(!is_to_go(&world, "x"), "{waits_for:?}");
        assert_eq!(world.said, [Milestone::Started, Milestone::Succeeded]);
    }
}
