//! Pods of a node that a command removes are evicted by size, as the operator does it (W-63).

use spokeshave_scenario::{Change, OwnerKind, Timeline};
use spokeshave_simulate::{Line, Model, Watch, live_watched};

use crate::small::{HOUR, SECOND, owner, policy, timeline, world};

/// Two nodes with three pods each, of which the largest go after an hour: one node is enough then, and two pods of the other move.
fn shrinking() -> Timeline {
    let owners = [("filler", "2500m"), ("medium", "800m"), ("small", "400m")];
    let owners = owners.map(|(name, cpu)| owner(OwnerKind::Deployment, name, cpu));
    let begin = [0, 1, 2].map(|owner| (0, owner, Change::Replicas(2)));
    let mut events = Vec::from(begin);
    events.push((HOUR, 0, Change::Replicas(0)));
    timeline(owners.into(), events)
}

/// When the pods of the node were evicted, by name.
fn evictions(model: Model) -> Vec<(u64, String)> {
    let (world, timeline, mut policy) = (world(3), shrinking(), policy());
    policy.model = model;
    let mut evicted = Vec::new();
    let mut sink = |line: Line<'_>| {
        if line.what == "evicted" {
            evicted.push((line.at_ms, line.of.to_owned()));
        }
    };
    let watch = Watch {
        lines: Some(&mut sink),
        ..Watch::default()
    };
    let run = live_watched(&world, &timeline, &policy, 1, &|| false, watch);
    assert_eq!(run.measured.evictions_voluntary, 2, "{evicted:?}");
    evicted
}

#[test]
fn w_63_the_smaller_pod_of_a_node_goes_a_second_after_the_larger_one() {
    let evicted = evictions(Model::Ours);
    let [(first_at, first), (second_at, second)] = &evicted[..] else {
        panic!("{evicted:?}");
    };
    assert!(
        first.contains("medium") && second.contains("small"),
        "{evicted:?}"
    );
    assert_eq!(
        second_at - first_at,
        SECOND,
        "its replacement is scheduled meanwhile"
    );
}

#[test]
fn w_63_models_of_others_evict_all_at_once() {
    let evicted = evictions(Model::Karpenter);
    assert!(evicted.iter().all(|(at, _)| *at == evicted[0].0), "{evicted:?}");
}
