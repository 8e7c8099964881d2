//! What a life takes: counted from its start on, and by who decides.

use spokeshave_scenario::{Change, OwnerKind, Timeline};
use spokeshave_simulate::{Model, Run, live};

use crate::small::{HOUR, owner, policy, timeline, world};

/// Two nodes with three pods each, of which the largest go after an hour: one node is enough then, and two pods of the other move.
fn shrinking() -> Timeline {
    let owners = [("filler", "2500m"), ("medium", "800m"), ("small", "400m")];
    let owners = owners.map(|(name, cpu)| owner(OwnerKind::Deployment, name, cpu));
    let begin = [0, 1, 2].map(|owner| (0, owner, Change::Replicas(2)));
    let mut events = Vec::from(begin);
    events.push((HOUR, 0, Change::Replicas(0)));
    timeline(owners.into(), events)
}

fn lived(model: Model, warmup_ms: u64) -> Run {
    let (mut world, mut policy) = (world(3), policy());
    world.warmup_ms = warmup_ms;
    policy.model = model;
    live(&world, &shrinking(), &policy, 1)
}

#[test]
fn what_the_warm_up_took_is_work_and_no_figure() {
    let (whole, late) = (lived(Model::Ours, 0), lived(Model::Ours, 2 * HOUR));
    let (work, measured) = (whole.work, &whole.measured);
    assert_eq!(
        (work.launches, work.failed_launches, work.commands, work.moves),
        (
            measured.launches,
            measured.failed_launches,
            measured.commands,
            measured.evictions_voluntary
        )
    );
    assert_eq!((work.launches, work.moves), (2, 2), "{work:?}");
    assert!(work.commands > 0 && work.what_ifs > Some(0), "{work:?}");
    assert_eq!((work.api_writes, work.cpu_ms), (None, None), "{work:?}");
    assert_eq!(late.work, work);
    assert_eq!(
        (
            late.measured.launches,
            late.measured.commands,
            late.measured.evictions_voluntary
        ),
        (0, 0, 0)
    );
}

/// Who removes nothing tries nothing, and each model counts its own tries.
#[test]
fn what_ifs_are_those_of_who_decides() {
    let tried = |model: Model| lived(model, 0).work.what_ifs;
    assert_eq!(tried(Model::None), Some(0));
    for model in [
        Model::Karpenter,
        Model::KarpenterBalanced,
        Model::ClusterAutoscaler,
    ] {
        assert!(tried(model) > Some(0), "{model:?}");
    }
}
