//! Drifted nodes that cannot be drained: nothing is launched for them until the time that a policy names has come.

use crate::support::{World, acts, later, on_demand_pool};
use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_plan::disruption_policy::status;
use std::sync::Arc;

const HOUR: i64 = 3600;

/// A node with terminationGracePeriod that has drifted at the epoch, its pod under a budget that allows `allowed`, and the policy.
fn world(allowed: i32, spec: Option<&Value>) -> World {
    let mut world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .pod("p", "a", "1")
        .budget("web", &json!({"matchLabels": {"app": "p"}}), allowed)
        .not_consolidatable("a")
        .grace("a")
        .drifted("a", 0);
    if let Some(spec) = spec {
        let spec = serde_json::from_value(json!({"blockedDrains": spec})).expect("a spec");
        let policy = Arc::new(DisruptionPolicy::new("drains", spec));
        world.state.disruption_policies.push(policy);
    }
    world
}

fn at(mut world: World, seconds: i64) -> World {
    world.now = later(seconds);
    world
}

const REPLACE: &str = "Drift replace [a] by small|medium|large";

#[test]
fn nothing_is_launched_for_a_node_that_cannot_be_drained_until_it_escalates() {
    let escalate = json!({"escalateAfter": "72h"});
    assert_eq!(acts(&world(0, None)), [REPLACE], "as upstream does it, D-029");
    let blocked = world(0, Some(&escalate));
    assert_eq!(acts(&at(blocked.clone(), HOUR)), [""; 0]);
    assert_eq!(acts(&at(blocked.clone(), 72 * HOUR - 1)), [""; 0]);
    assert_eq!(
        acts(&at(blocked, 72 * HOUR)),
        [REPLACE],
        "the admin's time has come"
    );
    assert_eq!(
        acts(&at(world(0, Some(&json!({}))), 10_000 * HOUR)),
        [""; 0],
        "never, without a time"
    );
    assert_eq!(
        acts(&at(world(1, Some(&escalate)), HOUR)),
        [REPLACE],
        "what can be drained, is"
    );
}

#[test]
fn the_verdict_and_the_status_name_the_pod_what_keeps_it_and_until_when() {
    let blocked = at(world(0, Some(&json!({"escalateAfter": "72h"}))), HOUR);
    let verdict = blocked.verdict("a");
    let text = &verdict.blockers[0].message;
    assert!(
        text.contains("DisruptionPolicy drains (spec.blockedDrains): a drain would wait for pod default/p, which PodDisruptionBudget default/web keeps, until 2026-01-04 00:00:00Z"),
        "{text}"
    );
    let after = status(
        &blocked.state.disruption_policies[0],
        &blocked.snapshot(),
        &[],
        blocked.now,
    );
    let active = serde_json::to_value(after.status).expect("JSON")["active"].clone();
    assert_eq!(active[0]["field"], "spec.blockedDrains", "{active}");
    assert_eq!(active[0]["reasons"], json!(["Drifted"]));
    assert_eq!(
        active[0]["message"],
        "1 drifted node cannot be drained now; no replacement is launched"
    );
    assert_eq!(active[0]["until"], "2026-01-04T00:00:00Z");
    let never = at(world(0, Some(&json!({}))), HOUR);
    let text = &never.verdict("a").blockers[0].message;
    assert!(
        text.ends_with("which PodDisruptionBudget default/web keeps"),
        "{text}"
    );
}

#[test]
fn pods_that_protect_themselves_and_several_budgets_keep_it_as_well() {
    let escalate = json!({"escalateAfter": "72h"});
    let protected = world(1, Some(&escalate)).annotate_pod("p", "karpenter.sh/do-not-disrupt", "true");
    assert_eq!(acts(&at(protected.clone(), HOUR)), [""; 0]);
    assert_eq!(
        acts(&at(protected, 72 * HOUR)),
        ["Drift delete [a]"],
        "no place is looked for, because the pod stays until it is deleted"
    );
    let both = world(1, Some(&escalate)).budget("again", &json!({"matchLabels": {"app": "p"}}), 1);
    let text = both.verdict("a").blockers[0].message.clone();
    assert!(
        text.contains("more than one PodDisruptionBudget selects"),
        "{text}"
    );
    let bare = world(0, Some(&escalate)).edit_pod("p", |pod| {
        pod.metadata
            .labels
            .get_or_insert_default()
            .insert("app".to_owned(), "other".to_owned());
    });
    assert_eq!(
        acts(&at(bare, HOUR)),
        [REPLACE],
        "a budget of other pods keeps none of it"
    );
}
