//! What rests after the API server has refused a replacement, or the audit a command, and what goes on.

use crate::support::{World, later, on_demand_pool, only};
use jiff::Timestamp;
use spokeshave_api::disruption::{Disruption, RollBackCause};
use spokeshave_example::instance_type;
use spokeshave_plan::disrupt::record::record;
use spokeshave_plan::disrupt::{Command, Frontier, Method, disrupt};

/// Of a thousand nodes, each would have a command of its own, and each of these be refused.
#[test]
fn d_102_w_24_where_one_replacement_is_refused_those_of_other_nodes_wait_too() {
    let of = |node: &str| {
        World::new(on_demand_pool("default"))
            .node(node, "large")
            .pod("p", node, "3")
    };
    let (first, second) = (of("a"), of("b"));
    let snapshot = first.snapshot();
    let outcome = disrupt(&snapshot, &first.policy, first.now, &Frontier::default());
    let command = &outcome.commands[0];
    let mut ledger = record(&snapshot, command, &outcome.budgets, first.now);
    let tried_after = |ledger: &Disruption, now: Timestamp| {
        let mut frontier = Frontier::default();
        frontier.undone(command, Some(ledger), first.now);
        let next = disrupt(&second.snapshot(), &second.policy, now, &frontier);
        next.commands.len()
    };
    let status = ledger.status.get_or_insert_default();
    status.roll_back_cause = Some(RollBackCause::ReplacementLate);
    assert_eq!(tried_after(&ledger, first.now), 1, "that was about the node");
    let status = ledger.status.get_or_insert_default();
    status.roll_back_cause = Some(RollBackCause::ReplacementRefused);
    assert_eq!(tried_after(&ledger, first.now), 0);
    assert_eq!(tried_after(&ledger, later(61)), 1, "it is tried again");

    let empty = World::new(on_demand_pool("default")).node("c", "large");
    let mut frontier = Frontier::default();
    frontier.undone(command, Some(&ledger), first.now);
    let next = disrupt(&empty.snapshot(), &empty.policy, empty.now, &frontier);
    assert_eq!(next.commands.len(), 1, "a node without a replacement just goes");
}

/// Where a policy denies only what one node asks for, the next one has its turn while that node rests.
#[test]
fn d_102_w_10_w_24_a_node_whose_replacement_is_always_refused_leaves_others_their_turn() {
    let types = vec![
        instance_type("medium", 12, 24, &["a"]),
        instance_type("large", 16, 32, &["a"]),
    ];
    // Neither node has room for the pod of the other.
    let mut world = World::with_types(on_demand_pool("default"), types)
        .node("a", "large")
        .node("b", "large")
        .pod("p", "a", "10")
        .pod("q", "b", "10");
    world.policy = only(Method::SingleNodeConsolidation);
    let snapshot = world.snapshot();
    let mut frontier = Frontier::default();
    let mut tried: Vec<String> = Vec::new();
    for second in (0..180).step_by(10) {
        let now = later(second);
        let outcome = disrupt(&snapshot, &world.policy, now, &frontier);
        frontier = outcome.frontier;
        let Some(command) = outcome.commands.first() else {
            continue;
        };
        let node = command.nodes[0].node.clone();
        let is_other = tried.first().is_some_and(|first| *first != node);
        tried.push(node);
        if is_other {
            break;
        }
        let mut ledger = record(&snapshot, command, &outcome.budgets, now);
        let status = ledger.status.get_or_insert_default();
        status.roll_back_cause = Some(RollBackCause::ReplacementRefused);
        frontier.undone(command, Some(&ledger), now);
    }
    assert!(tried.len() > 1, "{tried:?}");
    assert_ne!(tried.first(), tried.last(), "others have their turn: {tried:?}");
}

/// What the audit refuses, it would refuse again, and oldest drift goes first: the others of its NodePool must not wait for it.
#[test]
fn w_10_w_24_a_drifted_node_whose_command_the_audit_refuses_leaves_others_their_turn() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .node("b", "large")
        .pod("p", "a", "10")
        .pod("q", "b", "10")
        .drifted("a", 0)
        .drifted("b", 10);
    let snapshot = world.snapshot();
    let next = |frontier: &Frontier, second: i64| {
        let outcome = disrupt(&snapshot, &world.policy, later(second), frontier);
        outcome.commands.into_iter().next()
    };
    let nodes = |command: &Command| {
        command
            .nodes
            .iter()
            .map(|node| node.node.clone())
            .collect::<Vec<_>>()
    };
    let mut frontier = Frontier::default();
    let first = next(&frontier, 20).expect("a command");
    assert_eq!(nodes(&first), ["a"]);
    frontier.refused(&first, later(20));
    let second = next(&frontier, 20).expect("the next in turn");
    assert_eq!(nodes(&second), ["b"]);
    let again = next(&frontier, 20 + 61).expect("a command");
    assert_eq!(nodes(&again), ["a"], "it is tried again");
    frontier.failed(&first, later(20));
    assert_eq!(
        next(&frontier, 20),
        None,
        "new nodes of the NodePool do not come up"
    );
}

/// A consolidation that failed says nothing of drift; what the audit has refused it would refuse again, whatever it is to go for.
#[test]
fn w_10_a_consolidation_that_failed_does_not_hold_up_the_drift_of_its_node() {
    let calm = World::new(on_demand_pool("default")).node("a", "small");
    let drifted = calm.clone().drifted("a", 0);
    let method = |world: &World, frontier: &Frontier| {
        let outcome = disrupt(&world.snapshot(), &world.policy, world.now, frontier);
        outcome.commands.first().map(|command| command.method)
    };
    let outcome = disrupt(&calm.snapshot(), &calm.policy, calm.now, &Frontier::default());
    let command = &outcome.commands[0];
    assert_eq!(command.method, Method::Emptiness);
    let (mut failed, mut refused) = (Frontier::default(), Frontier::default());
    failed.failed(command, calm.now);
    assert_eq!(method(&calm, &failed), None, "it rests");
    assert_eq!(method(&drifted, &failed), Some(Method::Drift));
    refused.refused(command, calm.now);
    assert_eq!(method(&calm, &refused), None);
    assert_eq!(method(&drifted, &refused), None, "whatever it was to go for");
}
