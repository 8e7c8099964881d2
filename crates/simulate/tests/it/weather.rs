//! Shortages and interruptions.

use std::sync::Arc;

use serde_json::json;
use spokeshave_scenario::{Change, OwnerKind};
use spokeshave_simulate::{Run, Shortage, SpotInterruptions, live};

use crate::small::{HOUR, SECOND, owner, policy, pool, timeline, world};

/// The only type cannot be had for ten minutes: tries fail, ever more slowly, and the pod waits until the first that succeeds.
#[test]
fn a_shortage_delays_pods_until_it_is_over() {
    let mut world = world(1);
    world.shortages = vec![Shortage {
        at_ms: 0,
        for_ms: 600 * SECOND,
        cheapest: 1,
    }];
    let web = owner(OwnerKind::Deployment, "web", "1");
    let run = live(
        &world,
        &timeline(vec![web], vec![(0, 0, Change::Replicas(1))]),
        &policy(),
        1,
    );
    assert!(
        run.measured.failed_launches >= 2,
        "{}",
        run.measured.failed_launches
    );
    let waited = u64::from(run.measured.pending_born_ms[0]);
    assert!((660 * SECOND..1_100 * SECOND).contains(&waited), "{waited}");
    assert_eq!(run.measured.launches, 1);
    assert_eq!(run.work.failed_launches, run.measured.failed_launches);
}

/// Two days of a pod on spot instances of which one in ten is taken back each hour, so long after the notice.
fn on_spot(notice_ms: u64) -> Run {
    let mut pool = pool();
    let spot = json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]);
    pool.spec.template.spec.requirements = serde_json::from_value(spot).unwrap();
    let mut policy = policy();
    policy.node_pools = vec![Arc::new(pool)];
    let mut world = world(48);
    world.spot = Some(SpotInterruptions {
        per_million_node_hours: 100_000,
        notice_ms,
    });
    let web = owner(OwnerKind::Deployment, "web", "1");
    let timeline = timeline(vec![web], vec![(0, 0, Change::Replicas(1))]);
    live(&world, &timeline, &policy, 2)
}

/// A spot instance that is reclaimed after the notice costs until then, and its pod moves involuntarily.
#[test]
fn spot_instances_are_taken_back_and_replaced() {
    let run = on_spot(120 * SECOND);
    let measured = &run.measured;
    assert!(measured.evictions_involuntary >= 1);
    assert_eq!(measured.launches, measured.evictions_involuntary + 1);
    assert_eq!(measured.evictions_voluntary, 0);
    assert_eq!(measured.cost_on_demand_micros, 0);
    assert_eq!(measured.interruptions, measured.evictions_involuntary);
    assert_eq!(measured.pods_cut_short, 0, "two minutes are enough to stop");
    // $0.154 an hour for at least the time of the scenario.
    let least = 154_000 * (48 * HOUR - SECOND) / HOUR;
    assert!(measured.cost_spot_micros >= least && measured.cost_spot_micros < least * 11 / 10);
}

/// An instance that goes without a notice takes its pod along: an interruption is counted as one, and the pod as cut short.
#[test]
fn interruptions_are_of_instances_and_pods_are_cut_short() {
    let measured = on_spot(0).measured;
    assert!(measured.interruptions >= 1);
    assert!(
        (1..=measured.interruptions).contains(&measured.pods_cut_short),
        "{} of {}",
        measured.pods_cut_short,
        measured.interruptions
    );
}
