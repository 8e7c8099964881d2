//! The last look at a command before its nodes are deleted, with pods and PodDisruptionBudgets that were not there when it was decided.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_example as example;
use spokeshave_model::{ClusterState, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{LastLook, last_look};

use crate::support::command_world::command;

/// A node with one pod, room for it elsewhere, and these budgets over it.
fn state(grace: Option<&str>, budgets: &[(Value, i32)]) -> ClusterState {
    let types = vec![example::instance_type("large", 8, 32, &["a"])];
    let pod = example::pending_pod("web", "1", "1Gi", &json!({}));
    let pod = example::labelled(pod, &[("app", "web")]);
    let mut state = ClusterState::default()
        .with_pool(example::node_pool("default"), types.clone())
        .with_pod(example::bound(pod, "one"));
    for name in ["one", "two"] {
        let (node, mut claim) = example::node("default", name, &types[0], "a", "spot");
        claim.spec.termination_grace_period =
            grace.map(|grace| serde_json::from_value(json!(grace)).unwrap());
        state = state.with_node((node, claim));
    }
    for (number, (spec, allowed)) in budgets.iter().enumerate() {
        let mut spec = spec.clone();
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        let budget = json!({
            "metadata": {"name": format!("b-{number}"), "namespace": "default"}, "spec": spec,
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        });
        let budget = serde_json::from_value(budget).unwrap();
        state.pod_disruption_budgets.push(Arc::new(budget));
    }
    state.in_command.insert("kwok://one".to_owned());
    state.marked_for_deletion.insert("kwok://one".to_owned());
    state
}

fn of(method: &str) -> Disruption {
    let mut command = command(&["one"], &[], method);
    for node in &mut command.spec.nodes {
        node.provider_id = "kwok://one".to_owned();
    }
    command
}

#[test]
fn invariant_1_d_029_a_node_goes_only_if_budgets_will_let_its_pods_go() {
    let never = (json!({"maxUnavailable": 0}), 0);
    let not_now = (json!({"maxUnavailable": 1}), 0);
    let now = (json!({"maxUnavailable": 1}), 1);
    let grace = Some("30s");
    let methods = [
        "Emptiness",
        "MultiNodeConsolidation",
        "SingleNodeConsolidation",
        "Expiry",
        "StaticExpiry",
        "Drift",
        "StaticDrift",
    ];
    for method in methods {
        let is_drift = method.ends_with("Drift");
        let guarded = |grace: Option<&str>, budgets: &[(Value, i32)]| {
            let looked = last_look(
                &of(method),
                &lower(&state(grace, budgets)),
                &Policy::default(),
                Time(example::epoch()).0,
            );
            match looked {
                LastLook::Placed => false,
                LastLook::Guarded(why) => {
                    assert!(
                        why.starts_with("no eviction of pod default/web on node one is allowed"),
                        "{why}"
                    );
                    true
                }
                other => panic!("{method}: {other:?}"),
            }
        };
        assert!(!guarded(grace, &[]), "{method}: no budget");
        assert!(!guarded(grace, std::slice::from_ref(&now)), "{method}: it may go");
        assert!(
            !guarded(grace, std::slice::from_ref(&not_now)),
            "{method}: it may go later"
        );
        for forever in [vec![never.clone()], vec![now.clone(), now.clone()]] {
            assert!(guarded(None, &forever), "{method}: {forever:?} without end");
            assert_eq!(
                guarded(grace, &forever),
                !is_drift,
                "{method}: {forever:?}; drift goes on at the end of the grace period"
            );
        }
    }
}

/// Node `old` with pods of 2.8, 1.9 and 1.9 cores, of which `stays` has room for the first; `comes` has come for the others, and is asked first because of its name.
fn look_beside_a_replacement(cores: i64, replacements: &[&str]) -> LastLook {
    let types = vec![
        example::instance_type("eight", 8, 32, &["a"]),
        example::instance_type("four", 4, 32, &["a"]),
        example::instance_type("three", cores, 32, &["a"]),
    ];
    let pod = |name: &str, cpu: &str| example::pending_pod(name, cpu, "1Gi", &json!({}));
    let mut state = ClusterState::default().with_pool(example::node_pool("default"), types.clone());
    for (name, cpu, node) in [
        ("one", "1", "stays"),
        ("large", "2800m", "old"),
        ("two", "1900m", "old"),
        ("three", "1900m", "old"),
    ] {
        state = state.with_pod(example::bound(pod(name, cpu), node));
    }
    for (name, of) in [("comes", &types[2]), ("old", &types[0]), ("stays", &types[1])] {
        state = state.with_node(example::node("default", name, of, "a", "spot"));
    }
    state.in_command.insert("kwok://old".to_owned());
    state.marked_for_deletion.insert("kwok://old".to_owned());
    let mut disruption = command(&["old"], replacements, "SingleNodeConsolidation");
    disruption.spec.nodes[0].provider_id = "kwok://old".to_owned();
    last_look(
        &disruption,
        &lower(&state),
        &Policy::default(),
        Time(example::epoch()).0,
    )
}

#[test]
fn invariant_8_a_replacement_takes_the_pods_that_were_planned_on_it() {
    assert_eq!(look_beside_a_replacement(4, &["claim-comes"]), LastLook::Placed);
    let small = look_beside_a_replacement(3, &["claim-comes"]);
    assert!(matches!(small, LastLook::Lost(_)), "{small:?}");
    let by_name = look_beside_a_replacement(4, &[]);
    assert!(
        matches!(by_name, LastLook::Lost(_)),
        "asked first, it takes what fits elsewhere: {by_name:?}"
    );
}
