//! Nodes that were made anew after their NodeClaims had been initialised: somebody had taken the first ones away, and their machines ran on.

use crate::support::{World, later, on_demand_pool};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_model::labels;
use spokeshave_plan::provision;

/// An empty node that says of itself that it is registered and no more, made so many seconds after its NodeClaim was initialised, with these taints; and
/// how many nodes are launched for a pod that it has room for.
fn launches(seconds: i64, taints: &Value) -> usize {
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .edit_node("a", |node| {
            node.metadata.creation_timestamp = Some(Time(later(seconds)));
            let own = node.metadata.labels.get_or_insert_default();
            own.remove(labels::INITIALIZED);
            node.spec.get_or_insert_default().taints = serde_json::from_value(taints.clone()).ok();
        })
        .pending("p", "1");
    let outcome = provision(&world.snapshot(), &world.policy, later(600));
    assert!(outcome.unschedulable.is_empty());
    outcome.placements.claims.len()
}

/// Whether a machine that starts for the second time gets that far is not known, and no time limit ends it.
#[test]
fn d_253_no_pod_waits_for_a_node_that_comes_back_and_is_not_ready() {
    let not_ready = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    assert_eq!(launches(300, &not_ready), 1);
    assert_eq!(launches(300, &json!([])), 0, "it is about to be initialised");
    assert_eq!(
        launches(-60, &not_ready),
        0,
        "the first one is launched for its pods"
    );
}
