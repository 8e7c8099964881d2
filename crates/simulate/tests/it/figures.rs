//! Money, waiting and evictions of lives that are short enough to be computed by hand.

use std::sync::Arc;

use serde_json::json;
use spokeshave_scenario::{Budget, Change, OwnerKind, Timeline};
use spokeshave_simulate::{Model, Run, Watch, live, live_watched};

use crate::small::{HOUR, SECOND, expiring, owner, policy, pool, timeline, world};

/// One job of an hour.
fn one_job() -> Timeline {
    let begin = Change::Begin {
        pod: 0,
        runs_ms: Some(HOUR),
    };
    timeline(vec![owner(OwnerKind::Job, "job", "1")], vec![(0, 0, begin)])
}

/// The batching window is a second and the instance boots for a minute, so the pod waits 61 s and ends at 3,661 s. The node is consolidatable 30 s later; the
/// command waits 15 s for validation, the taint settles for a second and the drain lasts 5 s: the instance ends at 3,712 s and began at 1 s.
#[test]
fn p_050_d_039_d_086_d_312_a_node_for_one_job_costs_what_it_runs() {
    let run = live(&world(3), &one_job(), &policy(), 1);
    let measured = &run.measured;
    assert_eq!(measured.pending_born_ms, [61_000]);
    assert_eq!(measured.node_ms, u128::from(3_711 * SECOND));
    // $0.22 an hour for 3,711 s.
    assert_eq!(measured.cost_on_demand_micros, 226_783);
    assert_eq!((measured.cost_spot_micros, measured.cost_reserved_micros), (0, 0));
    assert_eq!(measured.pod_ms, u128::from(HOUR));
    // Of 3.9 allocatable cores one is requested, for an hour.
    assert_eq!(measured.bound_micros, 220_000 * 10 / 39);
    assert_eq!((measured.launches, measured.commands), (1, 1));
    assert_eq!(
        (measured.evictions_voluntary, measured.evictions_involuntary),
        (0, 0)
    );
    // Before the pod came and after it had ended the node held nothing.
    assert_eq!(measured.idle_node_ms, u128::from(111 * SECOND));
    assert_eq!((measured.peak_nodes, measured.peak_pods), (1, 1));
    assert_eq!(measured.span_ms, 3 * HOUR);
    // All of the first hour but a second, and 112 seconds of the second one.
    assert_eq!(run.curve.nodes_thousandths, [999, 31, 0]);
    assert_eq!(run.curve.cost_micros_per_hour, [219_938, 6_844, 0]);
}

/// Without voluntary disruption the node stays: $0.22 for each of the three hours but the first second.
#[test]
fn a_policy_that_never_removes_pays_to_the_end() {
    let mut never = policy();
    never.model = Model::None;
    let run = live(&world(3), &one_job(), &never, 1);
    assert_eq!(run.measured.node_ms, u128::from(3 * HOUR - SECOND));
    assert_eq!(run.measured.cost_on_demand_micros, 659_938);
    assert_eq!(run.measured.commands, 0);
}

#[test]
fn the_warm_up_is_lived_and_not_counted() {
    let mut world = world(3);
    world.warmup_ms = HOUR;
    let run = live(&world, &one_job(), &policy(), 1);
    assert_eq!(run.measured.span_ms, 2 * HOUR);
    assert_eq!(
        run.measured.node_ms,
        u128::from(112 * SECOND),
        "from 3,600 s to 3,712 s"
    );
    assert!(run.measured.pending_born_ms.is_empty(), "it was bound before");
    assert_eq!((run.measured.launches, run.measured.commands), (0, 1));
    assert_eq!(
        (run.measured.peak_nodes, run.measured.peak_pods),
        (1, 1),
        "both are still there at its end"
    );
    world.warmup_ms = 2 * HOUR;
    let later = live(&world, &one_job(), &policy(), 1).measured;
    assert_eq!(
        (later.peak_nodes, later.peak_pods),
        (0, 0),
        "both came and went in it"
    );
}

/// Two large pods hold two nodes; a small one sits beside each. When the large ones go, one node is enough, and one small pod has to move.
fn shrinking() -> Timeline {
    let owners = vec![
        owner(OwnerKind::Deployment, "large", "3"),
        owner(OwnerKind::Deployment, "small", "500m"),
    ];
    timeline(
        owners,
        vec![
            (0, 0, Change::Replicas(2)),
            (0, 1, Change::Replicas(2)),
            (HOUR, 0, Change::Replicas(0)),
        ],
    )
}

#[test]
fn a_pod_that_is_moved_is_one_eviction_and_waits_no_longer_than_it_must() {
    let run = live(&world(3), &shrinking(), &policy(), 1);
    let measured = &run.measured;
    let nodes = &run.curve.nodes_thousandths;
    assert_eq!((nodes.len(), nodes[0], nodes[2]), (3, 1_999, 1_000));
    assert!(
        (1_000..1_100).contains(&nodes[1]),
        "soon after the hour: {nodes:?}"
    );
    assert_eq!(measured.evictions_voluntary, 1);
    assert_eq!(measured.evictions_by_owner, [(1, 1)]);
    assert_eq!(measured.pending_moved_ms, [0], "the other node has room at once");
    assert_eq!(
        (measured.commands, measured.moved_again, measured.pods_cut_short),
        (1, 0, 0)
    );
    assert_eq!((measured.short_lived_nodes, measured.savings_lost), (0, 0));
}

/// A pod that tolerates every taint is not evicted: it is lost with its instance, which disruption that could have waited has ended.
#[test]
fn d_319_a_pod_that_tolerates_the_taint_is_moved_by_what_removes_its_node() {
    let mut timeline = shrinking();
    let mut template = (*timeline.owners[1].template).clone();
    let tolerations = json!([{"operator": "Exists"}]);
    template.spec.get_or_insert_default().tolerations = serde_json::from_value(tolerations).unwrap();
    timeline.owners[1].template = Arc::new(template);
    let measured = live(&world(3), &timeline, &policy(), 1).measured;
    assert_eq!(
        (measured.evictions_voluntary, measured.evictions_involuntary),
        (1, 0)
    );
    assert_eq!(measured.evictions_by_owner, [(1, 1)]);
    assert_eq!(measured.pods_cut_short, 1);
}

/// Neither a scale-down nor the end of a job hides that its pods waited for an hour in vain.
#[test]
fn pods_that_leave_without_a_node_have_waited_at_least_until_then() {
    let owners = vec![
        owner(OwnerKind::Deployment, "web", "64"),
        owner(OwnerKind::Job, "job", "64"),
    ];
    let begin = Change::Begin {
        pod: 0,
        runs_ms: None,
    };
    let changes = vec![
        (0, 0, Change::Replicas(3)),
        (0, 1, begin),
        (HOUR, 0, Change::Replicas(1)),
        (HOUR + SECOND, 1, Change::End { pod: 0 }),
    ];
    let measured = live(&world(2), &timeline(owners, changes), &policy(), 1).measured;
    assert_eq!(measured.pending_left_ms, [3_600_000, 3_600_000, 3_601_000]);
    assert_eq!(measured.pending_at_end_ms, [7_200_000]);
    assert!(measured.pending_born_ms.is_empty());
}

#[test]
fn d_017_a_budget_that_allows_nothing_keeps_both_nodes() {
    let mut timeline = shrinking();
    timeline.owners[1].budget = Some(Budget::MaxUnavailable("0".to_owned()));
    let run = live(&world(3), &timeline, &policy(), 1);
    assert_eq!(run.curve.nodes_thousandths, [1_999, 2_000, 2_000]);
    assert_eq!(run.measured.evictions_voluntary, 0);
}

/// `expireAfter` is forceful: the pod is evicted at one hour of age, its successor waits for a second node, and the first costs exactly its drain more.
#[test]
fn d_245_expiry_evicts_and_another_node_comes() {
    let web = owner(OwnerKind::Deployment, "web", "1");
    let timeline = timeline(vec![web], vec![(0, 0, Change::Replicas(1))]);
    let mut world = world(2);
    world.duration_ms = HOUR + HOUR / 2;
    let run = live(&world, &timeline, &expiring("1h"), 1);
    let measured = &run.measured;
    assert_eq!(
        (measured.evictions_voluntary, measured.evictions_involuntary),
        (0, 1)
    );
    assert_eq!(measured.pending_moved_ms, [61_000]);
    assert_eq!(measured.single_replica_down_ms, 61_000);
    assert_eq!(measured.launches, 2);
}

/// What must not be disrupted stays until the deadline of its node leaves it no more than its grace: ten minutes from 3,601 s, less the 30 s that an API server
/// gives a pod which does not say how long it takes.
#[test]
fn d_245_d_334_a_protected_pod_goes_with_the_deadline_of_its_node() {
    let mut pool = pool();
    let template = &mut pool.spec.template.spec;
    template.expire_after = serde_json::from_value(json!("1h")).unwrap();
    template.termination_grace_period = serde_json::from_value(json!("10m")).unwrap();
    let mut policy = policy();
    policy.node_pools = vec![Arc::new(pool)];
    let mut web = owner(OwnerKind::Deployment, "web", "1");
    let mut template = (*web.template).clone();
    let metadata = template.metadata.get_or_insert_default();
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned());
    web.template = Arc::new(template);
    let timeline = timeline(vec![web], vec![(0, 0, Change::Replicas(1))]);
    let mut evicted = Vec::new();
    let mut sink = |line: spokeshave_simulate::Line<'_>| {
        if line.what == "evicted" {
            evicted.push(line.at_ms);
        }
    };
    let watch = Watch {
        lines: Some(&mut sink),
        ..Watch::default()
    };
    let mut world = world(2);
    world.duration_ms = HOUR + HOUR / 2;
    live_watched(&world, &timeline, &policy, 1, &|| false, watch);
    let [at_ms] = evicted[..] else {
        panic!("{evicted:?}");
    };
    assert!((4_171 * SECOND..4_172 * SECOND).contains(&at_ms), "{at_ms}");
}

#[test]
fn a_run_depends_on_its_seed_and_on_nothing_else() {
    let mut world = world(3);
    world.delays = spokeshave_simulate::Delays::default();
    let timeline = shrinking();
    let lives = |seed: u64| live(&world, &timeline, &policy(), seed);
    let first = lives(1);
    let elsewhere: Vec<Run> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=3)
            .map(|seed| scope.spawn(move || live(&world_of(), &shrinking(), &policy(), seed)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(first, elsewhere[0]);
    assert_ne!(first.digest, elsewhere[1].digest);
    assert_ne!(
        first.measured.pending_born_ms,
        elsewhere[2].measured.pending_born_ms
    );
}

fn world_of() -> spokeshave_simulate::World {
    let mut world = world(3);
    world.delays = spokeshave_simulate::Delays::default();
    world
}

/// The model of Karpenter finds the same node as Spokeshave; the one of cluster-autoscaler finds it, too, but leaves it alone for ten minutes more.
#[test]
fn models_of_others_shrink_the_cluster_in_their_own_time() {
    let lives = |model: Model| {
        let mut policy = policy();
        policy.model = model;
        live(&world(3), &shrinking(), &policy, 1)
    };
    let ours = lives(Model::Ours);
    let karpenter = lives(Model::Karpenter);
    let autoscaler = lives(Model::ClusterAutoscaler);
    assert_eq!(karpenter.measured.evictions_voluntary, 1);
    let last = |run: &Run| run.curve.nodes_thousandths.last().copied();
    assert_eq!((last(&ours), last(&karpenter)), (Some(1_000), Some(1_000)));
    assert_eq!(autoscaler.measured.evictions_voluntary, 1);
    assert_eq!(last(&autoscaler), Some(1_000));
    let later = autoscaler.measured.node_ms - ours.measured.node_ms;
    // Ten minutes from the first look, against half a minute of consolidateAfter and a quarter for validation.
    assert!((500_000..=600_000).contains(&later), "{later} ms");
}

/// Two ordinals that may not share a zone keep theirs: when both nodes expire, each comes back where its volume is.
#[test]
fn pods_with_volumes_stay_in_their_zone() {
    let mut db = owner(OwnerKind::StatefulSet, "db", "3");
    let mut template = (*db.template).clone();
    let spread = json!([{"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}}}]);
    let spec = template.spec.get_or_insert_default();
    spec.topology_spread_constraints = serde_json::from_value(spread).unwrap();
    db.template = Arc::new(template);
    db.claims = vec![Default::default()];
    let mut world = world(4);
    world.instance_types = vec![spokeshave_example::instance_type(
        "c4",
        4,
        16,
        &["zone-a", "zone-b", "zone-c"],
    )]
    .into();
    let timeline = timeline(vec![db], vec![(0, 0, Change::Replicas(2))]);
    let mut zones: std::collections::BTreeMap<String, std::collections::BTreeSet<String>> =
        Default::default();
    let mut launched: std::collections::BTreeMap<String, String> = Default::default();
    let mut sink = |line: spokeshave_simulate::Line<'_>| match line.what {
        "launched" => {
            let zone = line.more.rsplit(' ').next().unwrap_or_default();
            launched.insert(line.of.to_owned(), zone.to_owned());
        }
        "bound" => {
            zones
                .entry(line.of.to_owned())
                .or_default()
                .insert(launched[line.more].clone());
        }
        _ => {}
    };
    let watch = Watch {
        lines: Some(&mut sink),
        ..Watch::default()
    };
    let run = live_watched(&world, &timeline, &expiring("1h"), 3, &|| false, watch);
    assert!(
        run.measured.evictions_involuntary >= 4,
        "{}",
        run.measured.evictions_involuntary
    );
    assert_eq!(zones.len(), 2);
    assert!(zones.values().all(|zones| zones.len() == 1), "{zones:?}");
    assert_ne!(zones["shop/db-0"], zones["shop/db-1"]);
}
