//! Nodes whose pods have volumes: which of them can go, and which are left alone because their pods had no places in the end.

use crate::support::{DELETE_A, World, acts, later, on_demand_pool, only, pair, pinned, text};
use serde_json::{Value, json};
use spokeshave_api::disruption::RollBackCause;
use spokeshave_example::instance_type;
use spokeshave_model::{InstanceType, Price, Snapshot};
use spokeshave_plan::disrupt::record::record;
use spokeshave_plan::disrupt::{Frontier, Kept, Method, Outcome, disrupt, disrupt_keeping};
use std::sync::Arc;

/// A claim of a StorageClass `disk`, bound to a volume of its name.
fn with_claim(mut world: World, name: &str, mut volume: Value) -> World {
    volume["metadata"] = json!({"name": name});
    let claim = json!({"metadata": {"namespace": "default", "name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"storageClassName": "disk", "volumeName": name}});
    let class = json!({"metadata": {"name": "disk"}, "provisioner": "disk.example", "volumeBindingMode": "WaitForFirstConsumer"});
    let objects = &mut world.state.volumes;
    let volume = serde_json::from_value(volume).expect("a volume");
    objects.volumes.insert(name.to_owned(), Arc::new(volume));
    let claim = serde_json::from_value(claim).expect("a claim");
    objects.claims.insert(format!("default/{name}"), Arc::new(claim));
    let class = serde_json::from_value(class).expect("a class");
    objects.storage_classes.insert("disk".to_owned(), Arc::new(class));
    world
}

fn with_limit(mut world: World, node: &str, count: i32) -> World {
    let limited = json!({"name": "disk.example", "nodeID": node, "allocatable": {"count": count}});
    let csi_node = json!({"metadata": {"name": node}, "spec": {"drivers": [limited]}});
    let csi_node = serde_json::from_value(csi_node).expect("a CSINode");
    let csi_nodes = &mut world.state.volumes.csi_nodes;
    csi_nodes.insert(node.to_owned(), Arc::new(csi_node));
    world
}

fn using(claim: &str) -> Value {
    json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]})
}

fn on(key: &str, value: &str) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}})
}

#[test]
fn p_116_a_node_with_a_local_volume_in_use_stays() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod_with("r", "b", "100m", &pinned("b"));
    let of = |volume: Value| {
        let world = with_claim(world.clone(), "data", volume);
        acts(&world.pod_with("p", "a", "1", &using("data")))
    };
    let csi = json!({"spec": {"csi": {"driver": "disk.example", "volumeHandle": "h"}}});
    assert_eq!(of(csi), [DELETE_A]);
    let local = json!({"spec": {"local": {"path": "/x"}, "nodeAffinity": on("kubernetes.io/hostname", "a")}});
    assert!(of(local).is_empty());
}

#[test]
fn p_116_a_drifted_node_goes_although_a_pod_has_an_ephemeral_volume_there() {
    let template = json!({"spec": {"storageClassName": "disk", "accessModes": ["ReadWriteOnce"]}});
    let scratch = json!({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]});
    let volume = json!({"spec": {"csi": {"driver": "disk.example", "volumeHandle": "h"}, "nodeAffinity": on("topology.example/node", "a")}});
    let mut world = with_claim(pair(), "q-scratch", volume)
        .label_node("a", "topology.example/node", "a")
        .label_node("b", "topology.example/node", "b")
        .pod_with("q", "a", "100m", &scratch)
        .drifted("a", 0);
    world.policy = only(Method::Drift);
    assert_eq!(acts(&world), ["Drift delete [a]"]);
}

/// Each node has its type's share of volumes; together they have more than one attaches, and more than is believed of a type that no node is of.
#[test]
fn p_117_two_nodes_do_not_become_one_that_cannot_attach_their_volumes() {
    let large = instance_type("large", 16, 32, &["a"]);
    let larger = instance_type("larger", 24, 48, &["a"]);
    let of = |types: Vec<InstanceType>, limit: i32| {
        let mut world = World::with_types(on_demand_pool("default"), types);
        for name in ["a", "b"] {
            world = with_limit(world.node(name, "large"), name, limit);
            for number in 0..15 {
                let claim = format!("{name}-{number}");
                let csi = json!({"spec": {"csi": {"driver": "disk.example", "volumeHandle": claim}}});
                world = with_claim(world, &claim, csi);
                world = world.pod_with(&claim, name, "100m", &using(&claim));
            }
        }
        acts(&world).len()
    };
    assert_eq!(of(vec![large.clone()], 40), 1);
    assert_eq!(of(vec![large.clone()], 20), 0);
    assert_eq!(of(vec![large, larger], 20), 0);
}

/// Any node says what its type attaches, also one that takes no pods and that nobody has asked: what is kept of others follows.
#[test]
fn p_117_an_answer_is_asked_again_when_nodes_say_something_else_of_what_their_type_attaches() {
    let mut world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .node("x", "small")
        .pod_with("full", "x", "1900m", &pinned("x"));
    for claim in ["first", "second"] {
        let csi = json!({"spec": {"csi": {"driver": "disk.example", "volumeHandle": claim}}});
        world = with_claim(world, claim, csi).pod_with(claim, "a", "500m", &using(claim));
    }
    world.policy = only(Method::SingleNodeConsolidation);
    let mut kept = Kept::default();
    let mut decided = |world: &World| -> Vec<String> {
        let (snapshot, frontier, policy) = (world.snapshot(), Frontier::default(), &world.policy);
        let outcome = disrupt_keeping(&snapshot, policy, world.now, &frontier, &mut kept, &mut |_| {});
        outcome.commands.iter().map(text).collect()
    };
    let replaced = ["SingleNodeConsolidation replace [a] by small|medium"];
    assert_eq!(decided(&world), replaced);
    let none: [&str; 0] = [];
    for (limit, expected) in [(1, &none[..]), (2, &replaced[..]), (1, &none[..])] {
        world = with_limit(world, "x", limit);
        assert_eq!(decided(&world), expected, "{limit}");
    }
    // The only one that says something goes.
    world
        .state
        .nodes
        .retain(|node| node.metadata.name.as_deref() != Some("x"));
    world.state.node_claims.retain(|claim| claim.name() != "claim-x");
    world
        .state
        .pods
        .retain(|pod| pod.node_name.as_deref() != Some("x"));
    assert_eq!(decided(&world), replaced);
}

/// What a pass decides some time after a command was taken back because the places of its pods were lost.
struct Aftermath {
    frontier: Frontier,
    second: i64,
}

impl Aftermath {
    fn of(world: &World, cause: RollBackCause) -> Self {
        let snapshot = world.snapshot();
        let outcome = world.pass();
        let command = &outcome.commands[0];
        let mut ledger = record(&snapshot, command, &outcome.budgets, world.now);
        ledger.status.get_or_insert_default().roll_back_cause = Some(cause);
        let mut frontier = outcome.frontier.clone();
        frontier.undone(command, Some(&ledger), world.now);
        Aftermath { frontier, second: 0 }
    }

    /// An hour later, when every back-off is over.
    fn decides(&mut self, world: &World, snapshot: &Snapshot) -> usize {
        self.second += 3_600;
        let Outcome {
            commands, frontier, ..
        } = disrupt(snapshot, &world.policy, later(self.second), &self.frontier);
        self.frontier = frontier;
        commands.len()
    }
}

#[test]
fn invariant_17_a_command_whose_pods_lost_their_places_is_not_decided_again_while_nothing_changes() {
    let world = pair();
    let snapshot = world.snapshot();
    let mut late = Aftermath::of(&world, RollBackCause::ReplacementLate);
    assert_eq!(
        late.decides(&world, &snapshot),
        1,
        "that may be otherwise next time"
    );

    let mut lost = Aftermath::of(&world, RollBackCause::PlaceLost);
    assert_eq!(lost.decides(&world, &snapshot), 0);
    // What the command has launched comes and goes without pods.
    let spare = world.clone().node("spare", "small");
    let spare = spare.annotate_node("spare", "karpenter.sh/do-not-disrupt", "true");
    assert_eq!(lost.decides(&spare, &spare.snapshot()), 0);
    assert_eq!(lost.decides(&world, &snapshot), 0, "nothing has changed");
    let more = world.clone().pod("q", "b", "100m");
    assert_eq!(lost.decides(&more, &more.snapshot()), 1, "a pod more");

    let mut lost = Aftermath::of(&world, RollBackCause::PlaceLost);
    assert_eq!(lost.decides(&world, &snapshot), 0);
    let cordoned = world.clone().edit_node("b", |node| {
        node.spec.get_or_insert_default().unschedulable = Some(true);
    });
    lost.decides(&cordoned, &cordoned.snapshot());
    assert_eq!(lost.decides(&world, &snapshot), 1, "a node takes pods again");

    let mut lost = Aftermath::of(&world, RollBackCause::PlaceLost);
    assert_eq!(lost.decides(&world, &snapshot), 0);
    let mut dear = snapshot.clone();
    for view in &mut dear.nodes {
        view.price = Price(view.price.0 * 2);
    }
    assert_eq!(lost.decides(&world, &dear), 1, "other prices");
}

/// A cluster with a pod that fits nowhere is never at rest, nor is a large one.
#[test]
fn invariant_17_nodes_whose_pods_lost_their_places_rest_and_rest_no_longer_while_pods_wait() {
    let world = pair().pending("huge", "1000");
    let mut lost = Aftermath::of(&world, RollBackCause::PlaceLost);
    assert_eq!(lost.decides(&world, &world.snapshot()), 0);
    assert_eq!(lost.decides(&world, &world.snapshot()), 0, "nothing has changed");
    let more = world.clone().pod("q", "b", "100m");
    assert_eq!(lost.decides(&more, &more.snapshot()), 1, "a pod more");

    // It becomes empty before anybody looks.
    let mut lost = Aftermath::of(&world, RollBackCause::PlaceLost);
    let empty = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod_with("r", "b", "100m", &pinned("b"))
        .pending("huge", "1000");
    assert_eq!(
        lost.decides(&empty, &empty.snapshot()),
        1,
        "it has no places to lose"
    );
}
