//! Lives that begin where another one stood: nodes with their ages, and pods where they were.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::Requirement;
use spokeshave_scenario::import::inventory::Inventory;
use spokeshave_scenario::import::objects::Object;
use spokeshave_scenario::{Change, OwnerKind, Timeline};
use spokeshave_simulate::dumped::Dumped;
use spokeshave_simulate::left_out::{LeftOut, Why};
use spokeshave_simulate::{
    Line, Model, Objects, ObjectsAt, Policy, Run, Standing, Watch, World, live, live_watched,
};

use crate::promises::report::Entry;
use crate::small::{HOUR, SECOND, expiring, owner, policy, pool, timeline, world};

pub const MINUTE: u64 = 60 * SECOND;

/// The cluster of a life at a time.
pub fn objects_at(at_ms: u64, timeline: &Timeline, policy: &Policy) -> Objects {
    let mut found = None;
    let mut take = |all: &Objects| found = Some(all.clone());
    let watch = Watch {
        lines: None,
        objects: Some(ObjectsAt {
            at_ms,
            take: &mut take,
        }),
    };
    let world = world(9);
    live_watched(&world, timeline, policy, 1, &|| false, watch);
    found.unwrap()
}

pub fn dumped<'a>(
    objects: &'a Objects,
    nodes: &'a [Arc<Node>],
    node_claims: &'a [Arc<NodeClaim>],
) -> Dumped<'a> {
    Dumped {
        nodes,
        node_claims,
        node_pools: &objects.node_pools,
        taken_at: objects.now,
    }
}

/// The world and the workloads of a life that begins with these objects, of pods only those whose name begins so. It begins at the epoch again.
pub fn begun(objects: &Objects, hours: u64, policy: &Policy, pods: &str) -> (World, Timeline) {
    let mut world = world(hours);
    let dumped = dumped(objects, &objects.nodes, &objects.node_claims);
    let (standing, left_out) = Standing::of(&dumped, &world, std::slice::from_ref(policy));
    assert!(left_out.is_empty(), "{left_out:?}");
    world.standing = standing;
    let mut inventory = Inventory::default();
    for item in objects.to_list().unwrap()["items"].as_array().unwrap() {
        let is_meant = item["kind"] != "Pod" || item["metadata"]["name"].as_str().unwrap().starts_with(pods);
        if is_meant {
            inventory.add(Object::read(&item.to_string(), None).unwrap());
        }
    }
    let timeline = inventory.constant(world.start, world.duration_ms).unwrap();
    (world, timeline)
}

/// A life with its log.
pub fn told(world: &World, timeline: &Timeline, policy: &Policy) -> (Run, Vec<Entry>) {
    let mut log = Vec::new();
    let mut take = |line: Line<'_>| log.push(Entry::from(line));
    let watch = Watch {
        lines: Some(&mut take),
        objects: None,
    };
    let run = live_watched(world, timeline, policy, 1, &|| false, watch);
    (run, log)
}

pub fn count(log: &[Entry], what: &str) -> usize {
    log.iter().filter(|entry| entry.what == what).count()
}

/// Three pods that fill a node each.
pub fn full() -> Timeline {
    timeline(
        vec![owner(OwnerKind::Deployment, "web", "3")],
        vec![(0, 0, Change::Replicas(3))],
    )
}

/// Two nodes, each with a large pod and a small one.
pub fn pairs() -> Timeline {
    timeline(
        vec![
            owner(OwnerKind::Deployment, "filler", "3"),
            owner(OwnerKind::Deployment, "small", "400m"),
        ],
        vec![(0, 0, Change::Replicas(2)), (0, 1, Change::Replicas(2))],
    )
}

#[test]
fn a_life_goes_on_with_the_nodes_and_pods_of_the_dump_and_pays_for_them_from_the_start() {
    let policy = policy();
    let objects = objects_at(HOUR, &full(), &policy);
    let (world, timeline) = begun(&objects, 1, &policy, "web");
    assert_eq!((world.standing.nodes.len(), timeline.placements.len()), (3, 3));
    let (run, log) = told(&world, &timeline, &policy);
    let measured = &run.measured;
    assert_eq!(
        (measured.launches, run.work.launches, measured.commands),
        (0, 0, 0)
    );
    assert_eq!(
        measured.cost_on_demand_micros,
        3 * 220_000,
        "three nodes for an hour"
    );
    assert_eq!((measured.peak_nodes, measured.peak_pods), (3, 3));
    assert_eq!(measured.pod_ms, u128::from(3 * HOUR));
    assert!(measured.bound_micros > 0);
    assert_eq!(measured.pending_born_ms, [0; 0], "nobody has waited");
    assert_eq!((count(&log, "standing"), count(&log, "placed")), (3, 3));
    assert_eq!(count(&log, "bound"), 0);
}

#[test]
fn without_standing_nodes_a_dump_begins_empty() {
    let policy = policy();
    let objects = objects_at(HOUR, &full(), &policy);
    let (mut world, timeline) = begun(&objects, 1, &policy, "web");
    world.standing = Standing::default();
    let (run, log) = told(&world, &timeline, &policy);
    assert_eq!(run.measured.launches, 3);
    assert_eq!((count(&log, "placed"), count(&log, "bound")), (0, 3));
}

/// Half empty nodes, as they are in a cluster that has shrunk: whoever consolidates makes one of two, and whoever does not goes on paying for both.
#[test]
fn the_first_hour_shows_what_becomes_of_half_empty_nodes() {
    let ours = policy();
    let objects = objects_at(2 * HOUR, &pairs(), &ours);
    let mut never = policy();
    never.model = Model::None;
    let [ours, never] = [ours, never].map(|policy| {
        let (world, timeline) = begun(&objects, 2, &policy, "small");
        assert_eq!((world.standing.nodes.len(), timeline.placements.len()), (2, 2));
        live(&world, &timeline, &policy, 1).measured
    });
    assert!(ours.commands > 0 && ours.evictions_voluntary == 1, "{ours:?}");
    assert_eq!((never.commands, never.evictions_voluntary), (0, 0));
    assert_eq!(never.cost_on_demand_micros, 2 * 2 * 220_000);
    assert!(ours.cost_on_demand_micros < never.cost_on_demand_micros);
    assert_eq!(
        (ours.short_lived_nodes, never.launches),
        (0, 0),
        "the node that goes is two hours old"
    );
}

#[test]
fn nodes_have_the_ages_that_they_had() {
    // They are 59 minutes old, of two hours.
    let policy = expiring("2h");
    let objects = objects_at(HOUR, &full(), &policy);
    let (world, timeline) = begun(&objects, 2, &policy, "web");
    let (_, log) = told(&world, &timeline, &policy);
    let first = log.iter().find(|entry| entry.what == "expired").unwrap();
    assert!(
        (HOUR - MINUTE..=HOUR + MINUTE).contains(&first.at_ms),
        "{}",
        first.at_ms
    );
}

#[test]
fn nodes_have_been_at_rest_for_as_long_as_they_were() {
    // Since half an hour but a minute, of an hour.
    let mut slow = pool();
    slow.spec.disruption.consolidate_after = serde_json::from_value(json!("1h")).unwrap();
    let policy = Policy::new("now", vec![Arc::new(slow)]);
    let objects = objects_at(HOUR / 2, &pairs(), &policy);
    let (world, timeline) = begun(&objects, 2, &policy, "small");
    let (_, log) = told(&world, &timeline, &policy);
    let first = log.iter().find(|entry| entry.what == "command").unwrap();
    let half = HOUR / 2;
    assert!(
        (half..half + 5 * MINUTE).contains(&first.at_ms),
        "{}",
        first.at_ms
    );
}

/// The nodes of the dump are what its NodePool made of them: a policy that changes the template replaces them, and one that does not leaves them alone.
#[test]
fn nodes_of_the_dump_drift_from_a_policy_that_changes_their_template() {
    let now = policy();
    let objects = objects_at(HOUR, &full(), &now);
    let mut red = pool();
    let own = &mut red.spec.template.metadata.labels;
    own.insert("team".to_owned(), "red".to_owned());
    let red = Policy::new("red", vec![Arc::new(red)]);
    for (policy, launches) in [(now, 0), (red, 3)] {
        let (world, timeline) = begun(&objects, 3, &policy, "web");
        let run = live(&world, &timeline, &policy, 1);
        assert_eq!(run.measured.launches.min(3), launches, "{}", policy.name);
    }
}

/// The ID of a zone is another one in each account. A dump without subnets says none, so that the catalog has an empty one.
#[test]
fn a_label_that_the_catalog_has_otherwise_makes_no_node_drift() {
    const ZONE_ID: &str = "example.com/zone-id";
    let policies = [policy()];
    let objects = objects_at(2 * HOUR, &full(), &policies[0]);
    let mut claims = objects.node_claims.clone();
    for claim in &mut claims {
        label(Arc::make_mut(claim), ZONE_ID, "az1");
    }
    let (mut world, timeline) = begun(&objects, 3, &policies[0], "web");
    let mut types = world.instance_types.to_vec();
    for offering in &mut types[0].offerings {
        offering.requirements.add(Requirement::is(ZONE_ID, ""));
    }
    world.instance_types = types.into();
    let (standing, left_out) = Standing::of(&dumped(&objects, &objects.nodes, &claims), &world, &policies);
    assert!(left_out.is_empty(), "{left_out:?}");
    world.standing = standing;
    let measured = live(&world, &timeline, &policies[0], 1).measured;
    assert_eq!((measured.launches, measured.commands), (0, 0));
}

/// Whoever takes the gates off had done so: only pods that come later wait for it.
#[test]
fn pods_on_a_node_wait_for_no_gate_of_their_template() {
    let policy = policy();
    let objects = objects_at(HOUR, &full(), &policy);
    let (world, mut timeline) = begun(&objects, 1, &policy, "web");
    let template = Arc::make_mut(&mut timeline.owners[0].template);
    let spec = template.spec.get_or_insert_default();
    spec.scheduling_gates = serde_json::from_value(json!([{"name": "example.com/queue"}])).unwrap();
    let (run, log) = told(&world, &timeline, &policy);
    assert_eq!(count(&log, "placed"), 3);
    assert_eq!(run.measured.pending_at_end_ms, [0; 0]);
}

/// A Job's pod ends, a StatefulSet's keeps its ordinal, and what had no node gets one.
#[test]
fn pods_of_every_kind_go_on() {
    let mut policy = policy();
    policy.model = Model::None;
    let whole = timeline(
        vec![
            owner(OwnerKind::Job, "batch", "1"),
            owner(OwnerKind::StatefulSet, "db", "1"),
            owner(OwnerKind::Bare, "alone", "1"),
        ],
        vec![
            (
                0,
                0,
                Change::Begin {
                    pod: 0,
                    runs_ms: None,
                },
            ),
            (0, 1, Change::Replicas(2)),
            (
                0,
                2,
                Change::Begin {
                    pod: 0,
                    runs_ms: None,
                },
            ),
        ],
    );
    let objects = objects_at(HOUR, &whole, &policy);
    let (world, mut timeline) = begun(&objects, 1, &policy, "");
    assert_eq!(timeline.placements.len(), 4);
    timeline.placements.retain(|placement| placement.pod != 1);
    let (run, log) = told(&world, &timeline, &policy);
    assert_eq!(
        (count(&log, "placed"), count(&log, "bound")),
        (3, 1),
        "db-1 was on no node"
    );
    let left = log.iter().filter(|entry| entry.what == "left");
    let left: Vec<u64> = left.map(|entry| entry.at_ms).collect();
    assert_eq!(
        left,
        [10 * MINUTE],
        "the Job's pod has run for as long as is assumed"
    );
    assert_eq!(run.measured.owners, 3);
}

#[test]
fn what_cannot_be_gone_on_with_is_left_out_with_its_reason() {
    type Doctor = fn(&mut NodeClaim, &mut Node);
    let cases: [(Doctor, Why); 8] = [
        (
            |claim, _| drop(claim.metadata.labels.as_mut().unwrap().remove(labels::NODE_POOL)),
            Why::NoNodePool,
        ),
        (
            |claim, _| claim.metadata.deletion_timestamp = claim.metadata.creation_timestamp.clone(),
            Why::Deleting,
        ),
        (
            |_, node| node.metadata.deletion_timestamp = node.metadata.creation_timestamp.clone(),
            Why::Deleting,
        ),
        (
            |claim, _| {
                claim
                    .status
                    .as_mut()
                    .unwrap()
                    .conditions
                    .retain(|one| one.type_ != "Initialized")
            },
            Why::NotInitialized,
        ),
        (
            |_, node| node.status.as_mut().unwrap().conditions = None,
            Why::NotReady,
        ),
        (
            |claim, _| label(claim, "node.kubernetes.io/instance-type", "x1.strange"),
            Why::NotSold,
        ),
        (
            |claim, _| label(claim, "topology.kubernetes.io/zone", "zone-of-mars"),
            Why::NotSold,
        ),
        (
            |claim, _| label(claim, labels::CAPACITY_TYPE, "reserved"),
            Why::Reserved,
        ),
    ];
    let policy = policy();
    let objects = objects_at(HOUR, &full(), &policy);
    let policies = [policy];
    for (number, (doctor, why)) in cases.into_iter().enumerate() {
        let (mut nodes, mut claims) = (objects.nodes.clone(), objects.node_claims.clone());
        doctor(Arc::make_mut(&mut claims[0]), Arc::make_mut(&mut nodes[0]));
        let (standing, left_out) = Standing::of(&dumped(&objects, &nodes, &claims), &world(1), &policies);
        let expected = LeftOut {
            kind: "NodeClaim",
            name: claims[0].name().to_owned(),
            why,
        };
        assert_eq!(left_out, [expected], "case {number}");
        assert_eq!(standing.nodes.len(), 2, "case {number}: the others stand");
    }
}

fn label(claim: &mut NodeClaim, key: &str, value: &str) {
    let own = claim.metadata.labels.as_mut().unwrap();
    own.insert(key.to_owned(), value.to_owned());
}

#[test]
fn nodes_and_claims_without_each_other_are_left_out() {
    let policy = policy();
    let objects = objects_at(HOUR, &full(), &policy);
    let policies = [policy];
    let (mut nodes, mut claims) = (objects.nodes.clone(), objects.node_claims.clone());
    let (lost, alone) = (nodes.remove(0), claims.remove(2));
    let mut foreign = Node::clone(&lost);
    foreign.metadata.name = Some("managed".to_owned());
    foreign.metadata.labels = None;
    foreign.spec = None;
    nodes.push(Arc::new(foreign));
    // Of two objects with one name the later one counts, and of two with one instance the first.
    claims.push(Arc::clone(&claims[1]));
    let mut twin = NodeClaim::clone(&claims[1]);
    twin.metadata.name = Some("twin".to_owned());
    claims.push(Arc::new(twin));
    let (standing, left_out) = Standing::of(&dumped(&objects, &nodes, &claims), &world(1), &policies);
    let mut told: Vec<(&str, &str, Why)> = left_out
        .iter()
        .map(|one| (one.kind, one.name.as_str(), one.why))
        .collect();
    told.sort_by_key(|(.., why)| *why);
    assert_eq!(
        told,
        [
            ("Node", alone.name(), Why::NoNodeClaim),
            ("NodeClaim", lost.metadata.name.as_deref().unwrap(), Why::NoNode),
            ("NodeClaim", "twin", Why::Twin),
        ]
    );
    assert_eq!(standing.nodes.len(), 1);
    assert_eq!(standing.fixed_names().collect::<Vec<_>>(), ["managed"]);
}

/// It has worked for six minutes of the ten, and its node has two minutes left: what comes in its place begins anew.
#[test]
fn a_pod_goes_on_for_the_rest_of_its_time_and_its_successor_for_all_of_it() {
    let begin = Change::Begin {
        pod: 0,
        runs_ms: None,
    };
    let whole = timeline(vec![owner(OwnerKind::Job, "batch", "1")], vec![(0, 0, begin)]);
    for (policy, is_moved) in [(policy(), false), (expiring("62m"), true)] {
        let objects = objects_at(HOUR, &whole, &policy);
        let (world, mut timeline) = begun(&objects, 1, &policy, "batch");
        let [placement] = &mut timeline.placements[..] else {
            panic!("{:?}", timeline.placements);
        };
        assert_eq!(
            placement.works_since, None,
            "no finished pod tells how long they take"
        );
        let six = jiff::SignedDuration::from_mins(6);
        placement.works_since = Some(objects.now.saturating_sub(six).unwrap());
        let (_, log) = told(&world, &timeline, &policy);
        let last = |what: &str| {
            log.iter()
                .rev()
                .find(|entry| entry.what == what)
                .map(|entry| entry.at_ms)
        };
        let expected = match is_moved {
            false => 4 * MINUTE,
            true => last("started").unwrap() + 10 * MINUTE,
        };
        assert_eq!(last("left"), Some(expected));
        assert_eq!(count(&log, "evicted"), usize::from(is_moved));
    }
}

/// What was under way in the cluster is not in the simulation: nobody would end it.
#[test]
fn what_a_command_has_left_on_a_node_is_taken_off() {
    let policy = policy();
    let objects = objects_at(HOUR, &full(), &policy);
    let (mut nodes, mut claims) = (objects.nodes.clone(), objects.node_claims.clone());
    let taints = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}, {"key": "own", "effect": "NoSchedule"}]);
    let node = Arc::make_mut(&mut nodes[0]);
    node.spec.as_mut().unwrap().taints = serde_json::from_value(taints).unwrap();
    let claim = Arc::make_mut(&mut claims[0]);
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::DISRUPTION.to_owned(), "gone".to_owned());
    let (standing, _) = Standing::of(&dumped(&objects, &nodes, &claims), &world(1), &[policy]);
    let mut found = standing.nodes.iter();
    let found = found.find(|one| one.claim.name() == claims[0].name()).unwrap();
    let taints = found.node.spec.as_ref().unwrap().taints.as_ref().unwrap();
    assert_eq!(
        taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(),
        ["own"]
    );
    assert_eq!(found.claim.annotation(labels::DISRUPTION), None);
}
