//! NodePools with a fixed number of nodes: they have it whatever pods wait, within their limits, and whatever ends their nodes.

use std::sync::Arc;

use serde_json::json;
use spokeshave_api::NodePool;
use spokeshave_scenario::{Change, OwnerKind, Timeline};
use spokeshave_simulate::{Line, Model, Policy, Run, Shortage, Watch, live, live_watched};

use crate::small::{HOUR, SECOND, owner, policy, pool, timeline, world};

/// A NodePool of so many nodes.
fn fixed(replicas: i64) -> NodePool {
    let mut pool = pool();
    pool.metadata.name = Some("fixed".to_owned());
    pool.spec.replicas = Some(replicas);
    pool
}

/// Spokeshave with this NodePool alone.
fn only(pool: NodePool) -> Policy {
    Policy::new("now", vec![Arc::new(pool)])
}

/// An hour without any pod.
fn idle(policy: &Policy) -> Run {
    live(&world(1), &Timeline::default(), policy, 1)
}

/// Two nodes at $0.22 an hour, which nobody needs and nobody removes.
#[test]
fn d_356_d_142_nodes_are_launched_whatever_pods_wait_and_stay_under_every_model() {
    for model in [
        Model::Ours,
        Model::None,
        Model::Karpenter,
        Model::KarpenterBalanced,
        Model::ClusterAutoscaler,
    ] {
        let mut policy = only(fixed(2));
        policy.model = model;
        let measured = idle(&policy).measured;
        assert_eq!((measured.launches, measured.commands), (2, 0), "{model:?}");
        assert_eq!(measured.node_ms, u128::from(2 * HOUR), "{model:?}");
        assert_eq!(measured.cost_on_demand_micros, 440_000, "{model:?}");
    }
}

/// The pod fits on the node that is there without it, and nothing is launched for it; two more do not, and get a node of the other NodePool.
#[test]
fn d_356_pods_are_planned_on_such_nodes_first() {
    let policy = Policy::new("now", vec![Arc::new(pool()), Arc::new(fixed(1))]);
    let lived = |replicas| {
        let web = owner(OwnerKind::Deployment, "web", "1500m");
        let timeline = timeline(vec![web], vec![(0, 0, Change::Replicas(replicas))]);
        live(&world(1), &timeline, &policy, 1).measured
    };
    let one = lived(1);
    assert_eq!((one.launches, one.commands), (1, 0));
    assert_eq!(one.pending_born_ms, [60_000], "until it has booted");
    assert_eq!(lived(4).launches, 2);
}

/// Both nodes expire together after twenty minutes, and those that come instead as well: with a limit of three nodes the second one is replaced when the first is
/// gone, without a limit at once.
#[test]
fn d_140_d_356_expired_nodes_are_replaced_within_the_limit() {
    for (limit, most) in [(Some("3"), 3), (None, 4)] {
        let mut pool = fixed(2);
        pool.spec.template.spec.expire_after = serde_json::from_value(json!("20m")).unwrap();
        let limits = limit.map(|nodes| json!({"nodes": nodes}));
        pool.spec.limits = serde_json::from_value(json!(limits)).unwrap();
        let measured = idle(&only(pool)).measured;
        assert_eq!((measured.launches, measured.peak_nodes), (6, most), "{limit:?}");
    }
}

/// The only type cannot be had for ten minutes: single tries after 10, 30, 70, 150 and 310 seconds, and the one after 610 brings the other node at once.
#[test]
fn invariant_24_what_is_refused_is_tried_again_with_one_node_ever_more_rarely() {
    let mut world = world(1);
    world.shortages = vec![Shortage {
        at_ms: 0,
        for_ms: 600 * SECOND,
        cheapest: 1,
    }];
    let measured = live(&world, &Timeline::default(), &only(fixed(2)), 1).measured;
    assert_eq!((measured.failed_launches, measured.launches), (7, 2));
    assert_eq!(measured.node_ms, u128::from(2 * (HOUR - 610 * SECOND)));
}

/// A soft age of twenty minutes, under the default budget: one node after the other is replaced before it goes, and none comes to its hard age.
#[test]
fn d_139_a_policy_with_a_soft_age_replaces_such_nodes_one_for_one() {
    let mut pool = fixed(2);
    pool.spec.template.spec.expire_after = serde_json::from_value(json!("40m")).unwrap();
    let mut policy = only(pool);
    let soft = json!({
        "apiVersion": "spokeshave.dev/v1alpha1", "kind": "DisruptionPolicy", "metadata": {"name": "soft"},
        "spec": {"expiry": {"softPercent": 50}},
    });
    policy.disruption_policies = vec![Arc::new(serde_json::from_value(soft).unwrap())];
    let (mut commands, mut expired) = (Vec::new(), 0);
    let mut take = |line: Line<'_>| match line.what {
        "command" => commands.push(line.more.to_owned()),
        "expired" => expired += 1,
        _ => {}
    };
    let watch = Watch {
        lines: Some(&mut take),
        ..Watch::default()
    };
    let run = live_watched(&world(1), &Timeline::default(), &policy, 1, &|| false, watch);
    assert!(commands.len() >= 2, "{commands:?}");
    assert!(
        commands.iter().all(|more| more.starts_with("StaticExpiry ")),
        "{commands:?}"
    );
    assert_eq!(expired, 0);
    let measured = run.measured;
    assert_eq!(measured.launches, 2 + measured.commands);
    assert_eq!(measured.peak_nodes, 3, "its replacement comes first");
}

/// A node that comes again every five minutes is no scale-up, after which cluster-autoscaler would wait for ten minutes: the empty node of the other NodePool goes.
#[test]
fn what_keeps_a_number_is_no_scale_up_to_the_model_of_cluster_autoscaler() {
    let mut tainted = fixed(1);
    let template = &mut tainted.spec.template.spec;
    template.taints = serde_json::from_value(json!([{"key": "fixed", "effect": "NoSchedule"}])).unwrap();
    template.expire_after = serde_json::from_value(json!("5m")).unwrap();
    let mut policy = Policy::new("now", vec![Arc::new(pool()), Arc::new(tainted)]);
    policy.model = Model::ClusterAutoscaler;
    let begin = Change::Begin {
        pod: 0,
        runs_ms: Some(60 * SECOND),
    };
    let job = owner(OwnerKind::Job, "job", "1");
    let measured = live(&world(1), &timeline(vec![job], vec![(0, 0, begin)]), &policy, 1).measured;
    assert_eq!(measured.commands, 1);
}

#[test]
fn a_node_pool_without_a_fixed_number_launches_nothing_by_itself() {
    let measured = idle(&policy()).measured;
    assert_eq!((measured.launches, measured.node_ms), (0, 0));
}
