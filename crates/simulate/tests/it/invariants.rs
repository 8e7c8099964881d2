//! Many small random worlds, each replayed by the independent checker.

use std::sync::Arc;

use serde_json::json;
use spokeshave_example::Dice;
use spokeshave_scenario::{Budget, Change, Event, OwnerId, OwnerKind, Spread, Timeline};
use spokeshave_simulate::{
    Delays, Line, Policy, Run, Scoring, Shortage, SpotInterruptions, Watch, World, live_watched,
};

use crate::checker::{Checker, Entry};
use crate::small::{HOUR, SECOND, owner};

struct Scene {
    world: World,
    timeline: Timeline,
    policy: Policy,
    budget: fn(usize) -> usize,
}

fn scene(seed: u64) -> Scene {
    let mut dice = Dice(seed);
    let hours = 4;
    let mut types = spokeshave_example::fake_instance_types(8);
    for one in &mut types {
        // Spot comes first. No two offerings of a type cost the same: the price of another one would be noticed.
        for (tenths, offering) in (7..).zip(&mut one.offerings) {
            offering.price.0 = offering.price.0 / 10 * tenths;
        }
    }
    let mut world = World::new(spokeshave_example::epoch(), hours * HOUR, types.into());
    world.delays = if dice.below(3) == 0 {
        Delays::exactly(40 * SECOND)
    } else {
        Delays::default()
    };
    world.scoring = *dice.pick(&[Scoring::LeastAllocated, Scoring::MostAllocated]);
    world.warmup_ms = if dice.below(2) == 0 { HOUR } else { 0 };
    if dice.below(3) == 0 {
        world.spot = Some(SpotInterruptions {
            per_million_node_hours: 100_000,
            notice_ms: 120 * SECOND,
        });
    }
    if dice.below(3) == 0 {
        world.shortages = vec![Shortage {
            at_ms: HOUR,
            for_ms: 900 * SECOND,
            cheapest: 1 + dice.below(4),
        }];
    }
    let mut owners = Vec::new();
    let mut events = Vec::new();
    for index in 0..2 + dice.below(4) as u32 {
        let kind = *dice.pick(&[
            OwnerKind::Deployment,
            OwnerKind::Deployment,
            OwnerKind::StatefulSet,
            OwnerKind::Job,
        ]);
        let cpu = *dice.pick(&["100m", "500m", "1", "2500m"]);
        let mut one = owner(kind, &format!("w{index}"), cpu);
        one.ready = Spread {
            median_ms: 5 * SECOND,
            p99_ms: 20 * SECOND,
        };
        one.budget = match dice.below(4) {
            0 => None,
            1 => Some(Budget::MaxUnavailable("1".to_owned())),
            2 => Some(Budget::MaxUnavailable("50%".to_owned())),
            _ => Some(Budget::MinAvailable("50%".to_owned())),
        };
        let mut template = (*one.template).clone();
        if dice.below(5) == 0 {
            let metadata = template.metadata.get_or_insert_default();
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned());
        }
        if dice.below(3) == 0 {
            let spread = json!([{
                "topologyKey": *dice.pick(&["topology.kubernetes.io/zone", "kubernetes.io/hostname"]),
                "maxSkew": 1 + dice.below(2), "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": one.name}},
            }]);
            let spec = template.spec.get_or_insert_default();
            spec.topology_spread_constraints = serde_json::from_value(spread).unwrap();
        }
        one.template = Arc::new(template);
        owners.push(one);
        for step in 0..6 {
            let at_ms = step * 2 * HOUR / 3 + dice.below(600) as u64 * SECOND;
            if kind == OwnerKind::Job {
                for nth in 0..dice.below(6) as u64 {
                    let runs_ms = Some(dice.below(3_000) as u64 * SECOND);
                    let pod = step * 10 + nth;
                    events.push((at_ms, index, Change::Begin { pod, runs_ms }));
                }
            } else {
                events.push((at_ms, index, Change::Replicas(dice.below(9) as u32)));
            }
        }
    }
    events.sort_by_key(|event| event.0);
    let events = events.into_iter().map(|(at_ms, owner, change)| Event {
        at_ms,
        owner: OwnerId(owner),
        change,
    });
    let mut pool = spokeshave_example::node_pool("default");
    let capacity_types = *dice.pick(&[&["on-demand"][..], &["spot"], &["spot", "on-demand"]]);
    let requirements =
        json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity_types}]);
    pool.spec.template.spec.requirements = serde_json::from_value(requirements).unwrap();
    let disruption = &mut pool.spec.disruption;
    disruption.consolidate_after = serde_json::from_value(json!(*dice.pick(&["0s", "30s", "5m"]))).unwrap();
    if dice.below(4) == 0 {
        pool.spec.template.spec.expire_after = serde_json::from_value(json!("90m")).unwrap();
    }
    let budget: fn(usize) -> usize = if dice.below(2) == 0 {
        disruption.budgets = Some(vec![serde_json::from_value(json!({"nodes": "2"})).unwrap()]);
        |_| 2
    } else {
        |nodes| nodes.div_ceil(10)
    };
    let mut policy = Policy::new("now", vec![Arc::new(pool)]);
    policy.settings.disrupt.rounds = dice.below(4) == 0;
    policy.settings.disrupt.spot_to_spot = dice.below(2) == 0;
    Scene {
        world,
        timeline: Timeline {
            owners,
            events: events.collect(),
        },
        policy,
        budget,
    }
}

fn lives(scene: &Scene, seed: u64) -> (Run, Vec<Entry>) {
    let mut log = Vec::new();
    let mut sink = |line: Line<'_>| {
        log.push(Entry {
            at_ms: line.at_ms,
            what: line.what.to_owned(),
            of: line.of.to_owned(),
            more: line.more.to_owned(),
        });
    };
    let Scene {
        world,
        timeline,
        policy,
        ..
    } = scene;
    let watch = Watch {
        lines: Some(&mut sink),
        ..Watch::default()
    };
    let run = live_watched(world, timeline, policy, seed, &|| false, watch);
    (run, log)
}

#[test]
fn what_happens_in_random_worlds_keeps_every_promise() {
    let mut totals = [0; 6];
    for seed in 0..10 {
        let scene = scene(seed);
        let (run, log) = lives(&scene, seed);
        let problems = Checker::new(&scene.world, &scene.timeline, scene.budget).check(&log, &run);
        assert!(problems.is_empty(), "seed {seed}:\n{}", problems.join("\n"));
        let measured = &run.measured;
        let counts = [
            measured.launches,
            measured.commands,
            measured.evictions_voluntary,
            measured.evictions_involuntary,
            measured.failed_launches,
            measured.budget_waits,
        ];
        totals
            .iter_mut()
            .zip(counts)
            .for_each(|(total, count)| *total += count);
    }
    // Worlds in which nothing happens would keep any promise.
    assert!(totals[..4].iter().all(|total| *total > 3), "{totals:?}");
}
