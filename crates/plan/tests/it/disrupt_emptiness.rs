//! Emptiness at its second look: what is left of a command when a node of it has to stay.

use crate::support::plain::{cluster, edit_claim, pool_with, running, types, unlimited};
use crate::support::{World, acts, later, on_demand_pool, pinned, text};
use serde_json::json;
use spokeshave_api::Budget;
use spokeshave_api::constants::COMMAND_NODES;
use spokeshave_example::epoch;
use spokeshave_example::node;
use spokeshave_example::pending_pod;
use spokeshave_model::ClusterState;
use spokeshave_model::Nomination;
use spokeshave_model::Price;
use spokeshave_model::lower;
use spokeshave_model::planned_node;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::Command;
use spokeshave_plan::disrupt::Decision;
use spokeshave_plan::disrupt::Frontier;
use spokeshave_plan::disrupt::Method;
use spokeshave_plan::disrupt::Outcome;
use spokeshave_plan::disrupt::Rejection;
use spokeshave_plan::disrupt::Validation;
use spokeshave_plan::disrupt::disrupt;
use spokeshave_plan::disrupt::judge;
use spokeshave_plan::disrupt::validate;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn d_089_w_36_a_command_that_loses_a_node_at_its_second_look_forgets_its_pods() {
    let cheap = "controller.kubernetes.io/pod-deletion-cost";
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .node("c", "large")
        .pod("p", "a", "1")
        .pod("q", "b", "1")
        .pod_with("r", "c", "100m", &pinned("c"))
        .annotate_pod("p", cheap, "-2147483647")
        .annotate_pod("q", cheap, "-2147483647");
    let command = world.command();
    assert_eq!(text(&command), "Emptiness delete [a, b]");
    assert_eq!(command.moves.len(), 2);
    let protected = world.annotate_node("a", "karpenter.sh/do-not-disrupt", "true");
    let snapshot = protected.snapshot();
    let second = validate(&command, &snapshot, &protected.policy, protected.now);
    let reduced = second.command.expect("what is left of it");
    assert_eq!(text(&reduced), "Emptiness delete [b]");
    let moved: Vec<&str> = reduced.moves.iter().map(|step| step.from.as_str()).collect();
    assert_eq!(moved, ["b"]);
    assert!(
        reduced.resolve(&snapshot).is_some(),
        "so that the audit finds every pod of it"
    );
}

/// An object has to fit into what etcd takes.
#[test]
fn d_129_more_nodes_than_one_object_holds_go_in_several_commands() {
    let cheap = "controller.kubernetes.io/pod-deletion-cost";
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .node("c", "large")
        .pod("p", "a", "1")
        .pod("q", "b", "1")
        .pod_with("r", "c", "100m", &pinned("c"))
        .annotate_pod("p", cheap, "-2147483647")
        .annotate_pod("q", cheap, "-2147483647");
    let command = world.command();
    assert_eq!(command.clone().in_parts(2), std::slice::from_ref(&command));
    let parts = command.clone().in_parts(1);
    let texts: Vec<String> = parts.iter().map(text).collect();
    assert_eq!(texts, ["Emptiness delete [a]", "Emptiness delete [b]"]);
    for part in &parts {
        assert_eq!(part.moves.len(), 1);
        assert_eq!(part.moves[0].from, part.nodes[0].node);
    }
    let price: Price = parts.iter().map(|part| part.price_before).sum();
    assert_eq!(price, command.price_before);

    let names = (0..=COMMAND_NODES).map(|index| format!("n{index:04}"));
    let empty = |world: World, name: String| world.node(&name, "small");
    let many = names.fold(World::new(on_demand_pool("default")), empty);
    let commands = many.pass().commands;
    let sizes: Vec<usize> = commands.iter().map(|command| command.nodes.len()).collect();
    assert_eq!(sizes, [COMMAND_NODES, 1]);
}

pub(crate) fn emptiness(snapshot: &Snapshot) -> Outcome {
    let mut policy = Policy::default();
    policy.disrupt.methods = [Method::Emptiness].into();
    disrupt(snapshot, &policy, epoch(), &Frontier::default())
}

fn second_look(command: &Command, state: &ClusterState) -> Validation {
    validate(command, &lower(state), &Policy::default(), epoch())
}

fn said(snapshot: &Snapshot) -> Vec<String> {
    let line = |node| {
        let verdict = judge(snapshot, &Policy::default(), epoch(), node);
        let why: Vec<&str> = verdict
            .blockers
            .iter()
            .map(|blocker| blocker.message.as_str())
            .collect();
        format!(
            "{}: {} {}",
            snapshot.node(node).name,
            verdict.decision_text(),
            why.join(", ")
        )
    };
    snapshot.node_ids().map(line).collect()
}

pub(crate) fn taken(state: &ClusterState) -> Vec<String> {
    let mut outcome = emptiness(&lower(state));
    outcome
        .commands
        .pop()
        .map(|command| command.nodes.into_iter().map(|node| node.node).collect())
        .unwrap_or_default()
}

#[test]
fn d_127_d_129_empty_nodes_go_in_one_command_within_the_budget() {
    let state = cluster(pool_with(vec![Budget::always("2")]), &["c", "a", "b", "busy"])
        .with_pod(running("p", "busy"));
    assert_eq!(taken(&state), ["a", "b"]);
    let snapshot = lower(&state);
    let outcome = emptiness(&snapshot);
    let command = &outcome.commands[0];
    assert_eq!(command.decision(), Decision::Delete);
    assert_eq!(command.price_before, Price(160_000_000));
    assert_eq!(
        command.text("id"),
        "Empty/id: delete: nodepools=[default]: [a, b] (savings: $0.16)"
    );
    assert_eq!(outcome.eligible, [(Method::Emptiness, 3)].into());
    // Taken alone, each of the three could go; the fourth is too dear to replace and full elsewhere.
    let verdicts = said(&snapshot);
    assert_eq!(verdicts[0], "a: delete ");
    assert_eq!(verdicts[3], "c: delete ");
}

#[test]
fn d_058_the_dearest_nodes_go_first() {
    let types = types();
    let state = cluster(pool_with(vec![Budget::always("1")]), &["a"]).with_node(node(
        "default",
        "z",
        &types[1],
        "a",
        "on-demand",
    ));
    assert_eq!(taken(&state), ["z"]);
}

#[test]
fn d_053_pods_without_positive_eviction_cost_do_not_keep_a_node() {
    let mut worthless = running("p", "n");
    worthless.spec_mut().priority = Some(-1_000_000_000);
    // The other node is kept by a pod that may not be disturbed, and has room.
    let mut guard = running("guard", "other");
    guard.metadata.annotations = Some([("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned())].into());
    let state = cluster(unlimited(), &["n", "other"]).with_pods([worthless, guard]);
    assert_eq!(taken(&state), ["n"]);
    let mut daemon = running("d", "n");
    daemon.metadata.owner_references = serde_json::from_value(
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "u"}]),
    )
    .ok();
    assert_eq!(taken(&cluster(unlimited(), &["n"]).with_pod(daemon)), ["n"]);
}

#[test]
fn d_127_d_128_static_never_and_not_yet_consolidatable() {
    let keep = |state: &ClusterState| {
        let snapshot = lower(state);
        assert_eq!(emptiness(&snapshot).commands, []);
        said(&snapshot).remove(0)
    };
    let mut fixed = unlimited();
    fixed.spec.replicas = Some(1);
    assert_eq!(
        keep(&cluster(fixed, &["n"])),
        "n: keep its NodePool is static and the node has not drifted"
    );
    let mut never = unlimited();
    never.spec.disruption.consolidate_after = spokeshave_api::NillableDuration::NEVER;
    let state = cluster(never, &["n"]);
    assert_eq!(
        keep(&state),
        "n: keep NodePool \"default\" has consolidation disabled"
    );
    let events = emptiness(&lower(&state)).events;
    assert_eq!(
        events
            .iter()
            .map(|event| event.reason.as_str())
            .collect::<Vec<_>>(),
        ["Unconsolidatable", "Unconsolidatable"]
    );
    let mut young = cluster(unlimited(), &["n"]);
    edit_claim(&mut young, |claim| {
        claim
            .status
            .get_or_insert_default()
            .conditions
            .retain(|condition| condition.type_ != "Consolidatable");
    });
    assert_eq!(
        keep(&young),
        "n: keep consolidateAfter has not passed since the last change of its pods"
    );
}

#[test]
fn d_131_nomination_protects_an_empty_node() {
    let mut state = cluster(unlimited(), &["n"]);
    state.nominations.insert(
        "kwok://n".to_owned(),
        Nomination {
            until: epoch() + Duration::from_secs(20),
        },
    );
    assert!(taken(&state).is_empty());
}

/// The node on which a scheduler is binding a pod, or making room for one, is neither empty nor to be disrupted, as long as it is the scheduler's word.
#[test]
fn d_131_p_056_a_node_that_a_scheduler_has_named_for_a_pod_stays() {
    let with = |node: &str, by_plan: bool| {
        let mut waits = pending_pod("db-0", "1", "10Mi", &json!({}));
        let status = waits.status.get_or_insert_default();
        status.nominated_node_name = Some(node.to_owned());
        if by_plan {
            let ours = planned_node::names(node, epoch());
            status.conditions.get_or_insert_default().push(ours);
        }
        cluster(unlimited(), &["n"]).with_pod(waits)
    };
    let named = with("n", false);
    assert!(taken(&named).is_empty());
    let said = said(&lower(&named)).remove(0);
    assert!(
        said.starts_with("n: keep node is nominated for a pending pod"),
        "{said}"
    );
    // What is decided already is dropped, as for every nomination.
    let command = emptiness(&lower(&cluster(unlimited(), &["n"])))
        .commands
        .remove(0);
    let validation = second_look(&command, &named);
    assert_eq!(validation.dropped, [("n".to_owned(), Rejection::Budget)]);
    for other in [with("gone", false), with("n", true)] {
        assert_eq!(taken(&other), ["n"], "only provisioning keeps it");
    }
}

#[test]
fn d_087_d_089_validation_reduces_and_rejects() {
    let state = cluster(pool_with(vec![Budget::always("3")]), &["a", "b", "c"]);
    let command = emptiness(&lower(&state)).commands.remove(0);
    assert_eq!(command.nodes.len(), 3);
    let same = second_look(&command, &state);
    assert_eq!(same.command.as_ref(), Some(&command));
    // Meanwhile a pod has come to a, b was nominated, and c's budget is gone.
    let mut later = state.with_pod(running("p", "a"));
    later.nominations.insert(
        "kwok://b".to_owned(),
        Nomination {
            until: epoch() + Duration::from_secs(20),
        },
    );
    let validation = second_look(&command, &later);
    assert_eq!(validation.command.map(|command| command.nodes.len()), Some(1));
    assert_eq!(
        validation.dropped,
        [
            ("a".to_owned(), Rejection::Churn),
            ("b".to_owned(), Rejection::Budget)
        ]
    );
    later.node_pools[0] = Arc::new(pool_with(vec![Budget::always("0")]));
    let validation = second_look(&command, &later);
    assert_eq!(validation.command, None);
    assert_eq!(validation.dropped.len(), 3);
}

#[test]
fn w_10_an_emptiness_command_that_did_not_stand_rests_too() {
    let world = World::new(on_demand_pool("default")).node("f", "small");
    let first = world.pass();
    let [command] = &first.commands[..] else {
        panic!("{:?}", acts(&world))
    };
    let mut frontier = Frontier::default();
    frontier.failed(command, world.now);
    let pass = |seconds| {
        disrupt(&world.snapshot(), &world.policy, later(seconds), &frontier)
            .commands
            .len()
    };
    assert_eq!((pass(0), pass(59), pass(61)), (0, 0, 1));
}
