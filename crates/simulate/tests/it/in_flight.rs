//! What becomes of a NodeClaim without an instance when the pod that it was made for is gone.

use spokeshave_scenario::{Change, OwnerKind, Spread};
use spokeshave_simulate::{Line, Watch, World, live, live_watched};

use crate::small::{SECOND, expiring, owner, policy, timeline, world};

/// The cloud answers a launch after half a minute.
fn slow() -> World {
    let mut world = world(1);
    world.delays.launch = Spread {
        median_ms: 30 * SECOND,
        p99_ms: 30 * SECOND,
    };
    world
}

/// How many instances are launched for two pods of which each fills a node: one comes at the start, the other after twelve seconds. The first may leave before.
fn launches(first_leaves: bool) -> u64 {
    let owners = ["first", "second"].map(|name| owner(OwnerKind::Deployment, name, "3"));
    let mut events = vec![(0, 0, Change::Replicas(1)), (12 * SECOND, 1, Change::Replicas(1))];
    if first_leaves {
        events.insert(1, (10 * SECOND, 0, Change::Replicas(0)));
    }
    let run = live(&slow(), &timeline(owners.into(), events), &policy(), 1);
    run.measured.launches
}

#[test]
fn what_is_launched_for_a_pod_that_is_gone_takes_the_one_that_comes_in_its_place() {
    assert_eq!(launches(true), 1);
}

#[test]
fn what_is_launched_for_a_pod_that_waits_takes_no_other() {
    assert_eq!(launches(false), 2);
}

/// The pod of a node that expires is planned for while it is there; its successor has the same name, comes when it is gone, and waits for nothing else.
#[test]
fn the_pod_of_a_stateful_set_gets_one_node_when_its_own_expires() {
    let mut world = slow();
    world.delays.pod_stop_ms = 5 * SECOND;
    let events = vec![(0, 0, Change::Replicas(1))];
    let timeline = timeline(vec![owner(OwnerKind::StatefulSet, "db", "3")], events);
    let mut expired = 0;
    let mut sink = |line: Line<'_>| expired += u64::from(line.what == "expired");
    let watch = Watch {
        lines: Some(&mut sink),
        ..Watch::default()
    };
    let run = live_watched(&world, &timeline, &expiring("10m"), 1, &|| false, watch);
    assert!(expired >= 4, "{expired}");
    assert_eq!(run.measured.launches, 1 + expired);
}
