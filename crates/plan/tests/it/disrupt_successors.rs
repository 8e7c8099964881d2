//! Pods that run and whose successors no other node could take: their nodes stay, and the verdict says for whom and why.

use crate::support::{DELETE_A, World, acts, on_demand_pool, pair, pinned};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};
use spokeshave_plan::disrupt::{Frontier, Kept, disrupt_keeping};
use spokeshave_plan::provision;
use std::sync::Arc;

/// `a` could go as far as room goes: its pod has this specification, and `b` has to stay.
fn pair_with(spec: &Value) -> World {
    World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod_with("p", "a", "1", spec)
        .pod_with("r", "b", "100m", &pinned("b"))
}

/// The pod of `a` uses a claim.
fn with_claim(claim: &Value) -> World {
    let mut world =
        pair_with(&json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}));
    set_claim(&mut world, claim);
    world
}

fn set_claim(world: &mut World, claim: &Value) {
    let claim: PersistentVolumeClaim = serde_json::from_value(claim.clone()).expect("a claim");
    let claims = &mut world.state.volumes.claims;
    claims.insert("default/data".to_owned(), Arc::new(claim));
}

fn there() -> Value {
    json!({"metadata": {}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}})
}

/// Protected for as long as a pod uses it: it goes with the pod, and the successor waits for it in vain.
fn going() -> Value {
    let mut claim = there();
    claim["metadata"] =
        json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]});
    claim
}

/// What keeps `a`, if anything does.
fn why_kept(world: &World) -> String {
    let verdict = world.verdict("a");
    assert_eq!(world.verdict_text("a"), "keep: Pod Pod default/p");
    verdict.blockers[0].message.clone()
}

#[test]
fn p_040_p_057_a_pod_that_asks_for_its_node_by_name_keeps_it() {
    let by = |operator: &str, node: &str| {
        let terms =
            json!([{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [node]}]}]);
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        pair_with(&json!({"affinity": {"nodeAffinity": required}}))
    };
    let world = by("In", "a");
    assert!(acts(&world).is_empty(), "{:?}", acts(&world));
    let why = why_kept(&world);
    assert!(
        why.contains("default/p => ") && why.contains("the name \"a\""),
        "{why}"
    );
    assert!(acts(&world.drifted("a", 0)).is_empty(), "nor can it be replaced");
    assert_eq!(acts(&by("NotIn", "c")), [DELETE_A]);
}

#[test]
fn p_115_a_pod_whose_claim_goes_with_it_keeps_its_node() {
    assert_eq!(acts(&pair()), [DELETE_A]);
    assert_eq!(acts(&with_claim(&there())), [DELETE_A]);
    let lost = json!({"metadata": {}, "spec": {"volumeName": "v"}, "status": {"phase": "Lost"}});
    for (claim, text) in [(going(), "is being deleted"), (lost, "is lost")] {
        let world = with_claim(&claim);
        assert!(acts(&world).is_empty(), "{:?}", acts(&world));
        let why = why_kept(&world);
        let expected = format!("default/p => persistentvolumeclaim \"default/data\", {text}");
        assert!(why.contains(&expected), "{why}");
        assert!(acts(&world.drifted("a", 0)).is_empty(), "nor can it be replaced");
    }
}

/// Nothing else about nodes and pods has changed, and yet the answer is another.
#[test]
fn p_115_what_was_found_out_before_a_claim_goes_does_not_outlast_it() {
    let mut world = with_claim(&there());
    let mut kept = Kept::default();
    for (claim, commands) in [(there(), 1), (going(), 0), (there(), 1)] {
        set_claim(&mut world, &claim);
        let (snapshot, fresh) = (world.snapshot(), Frontier::default());
        let outcome = disrupt_keeping(
            &snapshot,
            &world.policy,
            world.now,
            &fresh,
            &mut kept,
            &mut |_| {},
        );
        assert_eq!(outcome.commands.len(), commands, "{claim}");
    }
}

/// While its node goes anyway, no place is sought for what could not be there.
#[test]
fn p_058_p_115_no_node_is_planned_for_a_pod_whose_claim_goes_with_it() {
    let displaced = |claim: &Value| {
        let mut world = with_claim(claim);
        world.state.marked_for_deletion.insert("kwok://a".to_owned());
        let snapshot = world.snapshot();
        let outcome = provision(&snapshot, &world.policy, world.now);
        outcome.pods.len()
    };
    assert_eq!((displaced(&there()), displaced(&going())), (1, 0));
}
