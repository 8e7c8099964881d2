//! When a command has disappointed, and when nothing is to blame: one cluster of forty nodes, changed between two looks.

use super::*;
use crate::disrupt::{Frontier, disrupt};
use crate::policy::Policy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_example::{Shape, bound, cluster, epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::{ClusterState, Pod, lower};
use std::sync::Arc;

fn state() -> ClusterState {
    cluster(Shape::Plain, 40, 400, 1)
}

fn snapshot() -> Snapshot {
    lower(&state())
}

/// So many minutes after the pods were created.
fn after(minutes: i64) -> Timestamp {
    epoch() + SignedDuration::from_mins(minutes)
}

fn observed(snapshot: &Snapshot, before: Option<&Calm>, now: Timestamp) -> Option<Calm> {
    observe(snapshot, &Register::of(snapshot, now), before, now)
}

fn seen(snapshot: &Snapshot, before: Option<&Calm>) -> Calm {
    observed(snapshot, before, after(60)).expect("nothing is under way")
}

/// It fits nowhere.
fn huge() -> Pod {
    pending_pod("huge", "1000", "1Gi", &json!({}))
}

fn dearer(snapshot: &mut Snapshot, percent: i64) {
    for view in &mut snapshot.nodes {
        view.price = Price(view.price.0 * (100 + percent) / 100);
    }
}

/// Another node in place of one, which costs so much more.
fn replaced(snapshot: &mut Snapshot, position: usize, more: i64) {
    let view = &mut snapshot.nodes[position];
    view.provider_id = format!("another-{position}");
    view.price = Price(view.price.0 + more);
}

/// A command has taken this node.
fn acts_on(snapshot: &Snapshot, position: usize, calm: &mut Calm) {
    calm.acted = true;
    calm.taken.push(digest(&snapshot.nodes[position].provider_id));
    calm.taken.sort_unstable();
}

/// A command for drift or expiry has taken this node.
fn renews(snapshot: &Snapshot, position: usize, calm: &mut Calm) {
    let node = digest(&snapshot.nodes[position].provider_id);
    for nodes in [&mut calm.taken, &mut calm.renewed] {
        nodes.push(node);
        nodes.sort_unstable();
    }
}

/// A node is being deleted since then.
fn leaves(snapshot: &mut Snapshot, position: usize, since: Timestamp) {
    let view = &mut snapshot.nodes[position];
    view.marked_for_deletion = true;
    let claim = view.claim.as_mut().expect("a NodeClaim");
    Arc::make_mut(claim).metadata.deletion_timestamp = Some(Time(since));
}

fn owned_by(kind: &str, mut pod: Pod) -> Pod {
    let owner = json!([{"apiVersion": "v1", "kind": kind, "name": "own", "uid": "u", "controller": true}]);
    pod.metadata.owner_references = serde_json::from_value(owner).expect("an owner");
    pod
}

fn is_disappointed(snapshot: &Snapshot, calm: &mut Calm) -> bool {
    *calm = seen(snapshot, Some(calm));
    calm.disappointed
}

#[test]
fn invariant_17_prices_that_change_by_themselves_are_no_disappointment() {
    let mut world = snapshot();
    let mut calm = seen(&world, None);
    for percent in [2, -2, 25, -20, 1] {
        dearer(&mut world, percent);
        assert!(!is_disappointed(&world, &mut calm), "{percent} percent");
    }
    // A command whose replacement is cheaper, while all others become a little dearer.
    acts_on(&world, 0, &mut calm);
    dearer(&mut world, 1);
    replaced(&mut world, 0, -10_000_000);
    assert!(!is_disappointed(&world, &mut calm));
    calm.acted = true;
    assert!(
        is_disappointed(&world, &mut calm),
        "a command that has saved nothing"
    );
}

#[test]
fn invariant_17_what_has_disappointed_is_trusted_again_in_another_market() {
    let mut world = snapshot();
    let mut calm = seen(&world, None);
    acts_on(&world, 0, &mut calm);
    replaced(&mut world, 0, 1);
    assert!(is_disappointed(&world, &mut calm), "the same pods cost more");
    for percent in [2, -2, 2, -2] {
        assert!(is_disappointed(&world, &mut calm), "nothing has changed");
        dearer(&mut world, percent);
        assert!(is_disappointed(&world, &mut calm), "{percent} percent");
    }
    dearer(&mut world, 3);
    assert!(!is_disappointed(&world, &mut calm), "a tenth in sum");
    acts_on(&world, 1, &mut calm);
    replaced(&mut world, 1, 1);
    assert!(is_disappointed(&world, &mut calm), "trusted once");
}

#[test]
fn invariant_17_nodes_that_others_have_taken_are_no_disappointment() {
    let mut world = snapshot();
    let mut calm = seen(&world, None);
    replaced(&mut world, 0, 50_000_000);
    assert!(
        !is_disappointed(&world, &mut calm),
        "an interruption, and what came for its pods"
    );
    acts_on(&world, 1, &mut calm);
    replaced(&mut world, 1, -1);
    replaced(&mut world, 2, 50_000_000);
    assert!(
        !is_disappointed(&world, &mut calm),
        "another one beside a command"
    );
    acts_on(&world, 3, &mut calm);
    replaced(&mut world, 3, 1);
    assert!(is_disappointed(&world, &mut calm), "the command's own");
    replaced(&mut world, 4, 1);
    assert!(
        !is_disappointed(&world, &mut calm),
        "and it begins anew with the next interruption"
    );
    acts_on(&world, 6, &mut calm);
    let mut more = world.nodes[5].clone();
    more.provider_id = "pods-have-scattered".to_owned();
    world.nodes.push(more);
    world.nodes[6].provider_id = "replacement".to_owned();
    assert!(is_disappointed(&world, &mut calm), "a node more after a command");
}

#[test]
fn invariant_17_a_node_that_no_pod_uses_is_no_disappointment_until_one_does() {
    let mut world = snapshot();
    let mut calm = seen(&world, None);
    // A command is rolled back when its replacement is there.
    acts_on(&world, 0, &mut calm);
    calm.taken.clear();
    calm.acted = false;
    let mut spare = world.nodes[5].clone();
    spare.provider_id = "replacement".to_owned();
    spare.pods = Default::default();
    world.nodes.push(spare);
    assert!(!is_disappointed(&world, &mut calm), "it came");
    assert!(!is_disappointed(&world, &mut calm), "it stays");
    let spare = world.nodes.pop().unwrap();
    assert!(!is_disappointed(&world, &mut calm), "it went");
    world.nodes.push(NodeView {
        pods: world.nodes[5].pods.clone(),
        ..spare
    });
    assert!(is_disappointed(&world, &mut calm), "pods use it");
}

#[test]
fn invariant_17_a_node_that_a_commands_pods_need_late_is_its_own() {
    let mut world = snapshot();
    let mut calm = seen(&world, None);
    acts_on(&world, 0, &mut calm);
    let gone = world.nodes.remove(0);
    assert!(!is_disappointed(&world, &mut calm), "it has saved something");
    let mut more = gone;
    more.provider_id = "late".to_owned();
    world.nodes.push(more);
    assert!(is_disappointed(&world, &mut calm), "and lost it again");
}

#[test]
fn invariant_17_a_pod_that_waits_for_ever_neither_stops_nor_keeps_the_judgement() {
    let mut world = lower(&state().with_pod(huge()));
    assert_eq!(observed(&world, None, after(14)), None, "it may get its place");
    let mut calm = observed(&world, None, after(15)).expect("it gets none");
    acts_on(&world, 0, &mut calm);
    replaced(&mut world, 0, 1);
    assert!(is_disappointed(&world, &mut calm), "the same pods cost more");

    // Its Job takes it away and makes it again.
    let mut without = snapshot();
    replaced(&mut without, 0, 1);
    assert!(is_disappointed(&without, &mut calm), "the others are the same");
    assert_eq!(
        observed(&world, Some(&calm), after(1)),
        Some(calm.clone()),
        "it waits anew"
    );
    assert!(is_disappointed(&world, &mut calm), "for ever");

    let mut less = state().with_pod(huge());
    less.pods.drain(..200);
    let mut less = lower(&less);
    replaced(&mut less, 0, 1);
    assert!(!is_disappointed(&less, &mut calm), "the pods have changed");
}

/// Each of many pods would otherwise bring a pass that can judge nothing.
#[test]
fn what_waits_is_looked_at_again_once_nothing_is_waited_for() {
    let mut late = pending_pod("late", "1000", "1Gi", &json!({}));
    late.metadata.creation_timestamp = Some(Time(after(5)));
    let world = lower(&state().with_pod(huge()).with_pod(late));
    let end = |minutes: i64| {
        let now = after(minutes);
        end_of_patience(&world, &Register::of(&world, now), now)
    };
    assert_eq!(end(1), Some(after(20)));
    assert_eq!(end(16), Some(after(20)), "one of them is still waited for");
    assert_eq!(end(20), None);
}

#[test]
fn invariant_17_a_pod_that_has_its_place_after_all_is_no_disappointment() {
    let (waits, runs) = with_another();
    let mut calm = seen(&waits, None);
    let mut dear = runs.clone();
    let mut more = dear.nodes[5].clone();
    more.provider_id = "its-own".to_owned();
    dear.nodes.push(more);
    assert!(!is_disappointed(&dear, &mut calm), "a node has come for it");
    assert!(!is_disappointed(&dear, &mut calm), "and stays");
}

#[test]
fn invariant_17_a_pod_that_has_no_place_any_more_after_a_command_is_a_disappointment() {
    let (waits, runs) = with_another();
    let mut calm = seen(&runs, None);
    assert!(!is_disappointed(&waits, &mut calm), "no command has moved it");
    assert!(!is_disappointed(&runs, &mut calm));
    acts_on(&runs, 0, &mut calm);
    assert!(is_disappointed(&waits, &mut calm), "a command has");
    assert!(is_disappointed(&runs, &mut calm), "they are the same pods");
}

/// One pod more, without a place and with one.
fn with_another() -> (Snapshot, Snapshot) {
    let pod = || pending_pod("another", "1m", "1Mi", &json!({}));
    let name = state().nodes[0].metadata.name.clone().expect("a name");
    let runs = state().with_pod(bound(pod(), &name));
    (lower(&state().with_pod(pod())), lower(&runs))
}

#[test]
fn invariant_17_a_node_that_never_comes_up_neither_stops_the_judgement_nor_costs_anything() {
    let mut world = snapshot();
    let mut stuck = world.nodes[5].clone();
    stuck.initialized = false;
    stuck.pods = Default::default();
    let of_number = |number: usize| NodeView {
        provider_id: format!("stuck-{number}"),
        ..stuck.clone()
    };
    world.nodes.push(of_number(0));
    let mut calm = seen(&world, None);
    assert_eq!(calm.prices.len(), 40);
    // It is given up and launched again while a command makes things worse.
    acts_on(&world, 0, &mut calm);
    replaced(&mut world, 0, 1);
    world.nodes[40] = of_number(1);
    assert!(is_disappointed(&world, &mut calm), "the command is to blame");
    world.nodes[40].pods = world.nodes[5].pods.clone();
    assert_eq!(seen(&world, Some(&calm)).prices.len(), 41, "pods use it");
}

#[test]
fn invariant_17_a_node_that_is_renewed_is_no_disappointment_and_ends_none() {
    let mut world = snapshot();
    let mut calm = seen(&world, None);
    for (position, more) in [(0, 0), (1, 50_000_000), (2, -1)] {
        renews(&world, position, &mut calm);
        replaced(&mut world, position, more);
        assert!(!is_disappointed(&world, &mut calm), "{more}");
    }
    acts_on(&world, 3, &mut calm);
    replaced(&mut world, 3, 1);
    assert!(is_disappointed(&world, &mut calm), "what has to save something");
    renews(&world, 4, &mut calm);
    replaced(&mut world, 4, -1);
    assert!(is_disappointed(&world, &mut calm), "they are the same pods");
}

#[test]
fn invariant_17_a_node_that_hangs_while_it_is_renewed_is_no_disappointment_in_the_end() {
    let mut world = snapshot();
    let mut calm = seen(&world, None);
    renews(&world, 5, &mut calm);
    let mut hung = world.clone();
    leaves(&mut hung, 5, after(45));
    assert!(!is_disappointed(&hung, &mut calm), "it hangs");
    assert!(!is_disappointed(&hung, &mut calm), "still");
    replaced(&mut world, 5, 50_000_000);
    assert!(
        !is_disappointed(&world, &mut calm),
        "its pods are on a dearer one"
    );
}

#[test]
fn invariant_17_a_node_that_hangs_while_it_leaves_does_not_stop_the_judgement() {
    let mut world = snapshot();
    leaves(&mut world, 3, after(46));
    assert_eq!(observed(&world, None, after(60)), None, "it may be gone soon");
    let end = end_of_patience(&world, &Register::of(&world, after(60)), after(60));
    assert_eq!(end, Some(after(61)));
    leaves(&mut world, 3, after(45));
    let mut calm = seen(&world, None);
    assert_eq!(calm.prices.len(), 39);
    acts_on(&world, 0, &mut calm);
    replaced(&mut world, 0, 1);
    assert!(is_disappointed(&world, &mut calm), "another command");
}

#[test]
fn invariant_17_pods_of_a_node_that_hung_are_judged_if_a_command_has_taken_it() {
    let mut elsewhere = snapshot();
    replaced(&mut elsewhere, 3, 0);
    for by_command in [true, false] {
        let mut world = snapshot();
        let mut calm = seen(&world, None);
        if by_command {
            acts_on(&world, 3, &mut calm);
        }
        leaves(&mut world, 3, after(45));
        assert!(!is_disappointed(&world, &mut calm), "as good as gone");
        assert!(!is_disappointed(&world, &mut calm), "still");
        assert_eq!(
            is_disappointed(&elsewhere, &mut calm),
            by_command,
            "they needed a node of their own"
        );
    }
}

/// What the pods of a node that hung have in the end is compared with what they had.
#[test]
fn invariant_17_a_node_that_hung_is_judged_by_what_has_come_for_it() {
    for (more, disappoints) in [(-1, false), (1, true)] {
        let mut world = snapshot();
        let mut calm = seen(&world, None);
        acts_on(&world, 3, &mut calm);
        leaves(&mut world, 3, after(45));
        for _ in 0..2 {
            assert!(!is_disappointed(&world, &mut calm), "as good as gone");
        }
        let mut elsewhere = snapshot();
        replaced(&mut elsewhere, 3, more);
        assert_eq!(is_disappointed(&elsewhere, &mut calm), disappoints, "{more}");
    }
}

/// There is always a node that leaves, or a pod that is younger than what is waited for.
#[test]
fn invariant_17_a_cluster_that_is_always_busy_is_trusted_again_once_its_pods_have_changed() {
    let mut world = snapshot();
    let mut calm = seen(&world, None);
    acts_on(&world, 0, &mut calm);
    replaced(&mut world, 0, 1);
    assert!(is_disappointed(&world, &mut calm));
    let busy = |state: &ClusterState| {
        let mut world = lower(state);
        world.nodes[3].marked_for_deletion = true;
        world
    };
    let known = Some(calm.clone());
    let look = |world: &Snapshot, minutes: i64| observed(world, Some(&calm), after(minutes));
    assert_eq!(look(&busy(&state()), 600), known, "the same pods");
    let mut young = huge();
    young.metadata.creation_timestamp = Some(Time(after(599)));
    let waits = lower(&state().with_pod(young));
    assert_eq!(look(&waits, 600), known, "only what waits has come");
    let mut less = state();
    less.pods.drain(..200);
    assert_eq!(look(&busy(&less), 119), known, "for less than an hour");
    assert_eq!(look(&busy(&less), 120), None);
    let mut young = huge();
    young.metadata.creation_timestamp = Some(Time(after(119)));
    assert_eq!(look(&lower(&less.with_pod(young)), 120), None);
}

#[test]
fn invariant_17_pods_of_jobs_are_awaited_before_a_move_of_them_is_judged() {
    let world = snapshot();
    let mut calm = seen(&world, None);
    acts_on(&world, 0, &mut calm);
    calm.awaits = Some(after(75));
    let mut less = state();
    less.pods.pop();
    let mut away = lower(&less);
    away.nodes.remove(0);
    let known = Some(calm.clone());
    assert_eq!(observed(&away, known.as_ref(), after(74)), known, "it is away");
    let end = observed(&away, known.as_ref(), after(75)).expect("nothing is under way");
    assert!(!end.disappointed && end.prices.len() == 39, "it does not come");
    let mut back = world;
    replaced(&mut back, 0, 0);
    assert!(is_disappointed(&back, &mut calm), "it needs a node again");
    assert_eq!(calm.awaits, None);
}

#[test]
fn invariant_17_nobody_vouches_for_the_place_of_a_pod_that_comes_back_late() {
    for (kind, is_vouched_for) in [("ReplicaSet", true), ("Job", false)] {
        let pod = owned_by(kind, pending_pod("p", "1m", "1Mi", &json!({})));
        let world = lower(&ClusterState::default().with_pod(pod));
        let pod = world.pod_ids().next().expect("a pod");
        assert_eq!(is_independent(&world, pod), is_vouched_for, "{kind}");
    }
}

#[test]
fn a_command_that_moves_pods_of_jobs_has_them_awaited() {
    let small = instance_type("small", 2, 4, &["a"]);
    let mut pool = node_pool("default");
    pool.spec.disruption.budgets = Some(Vec::new());
    let moved = |kind: &str| {
        let pod =
            |name: &str, on: &str| bound(owned_by(kind, pending_pod(name, "500m", "1Mi", &json!({}))), on);
        let node = |name: &str| node("default", name, &small, "a", "on-demand");
        let state = ClusterState::default()
            .with_pool(pool.clone(), vec![small.clone()])
            .with_node(node("a"))
            .with_node(node("b"))
            .with_pod(pod("p", "a"))
            .with_pod(pod("r", "b"));
        let outcome = disrupt(&lower(&state), &Policy::default(), epoch(), &Frontier::default());
        assert!(!outcome.commands.is_empty(), "one of the nodes can go");
        outcome.frontier.calm.expect("nothing was under way").awaits
    };
    assert_eq!(moved("ReplicaSet"), None);
    assert_eq!(moved("Job"), Some(after(15)));
}
