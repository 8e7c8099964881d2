//! Check 8 on lives that the engine itself has simulated: equal policies are seldom called different, and 2 % is found.

use std::sync::Arc;

use crate::draws::{Draws, setting};
use serde_json::json;
use spokeshave_api::NodePool;
use spokeshave_comparison::{Comparison, Verdict};
use spokeshave_model::Price;
use spokeshave_scenario::{Change, Event, Owner, OwnerId, OwnerKind, Spread, Timeline};
use spokeshave_simulate::{Policy, Run, SpotInterruptions, World, live};

const HOUR_MS: u64 = 3_600_000;
const HOURS: u64 = 12;
const SEEDS: u64 = 10;
const OWNERS: u32 = 4;

fn pool() -> NodePool {
    let mut pool = spokeshave_example::node_pool("default");
    let any =
        json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}]);
    pool.spec.template.spec.requirements = serde_json::from_value(any).unwrap();
    pool.spec.disruption.consolidate_after = serde_json::from_value(json!("30s")).unwrap();
    pool
}

/// Half a day in which spot instances are reclaimed; prices times `dearer`, in thousandths.
fn world(dearer: i64) -> World {
    let types = [("c2", 2, 8), ("c4", 4, 16), ("c8", 8, 32)];
    let types = types.map(|(name, cpu, memory)| {
        let mut one = spokeshave_example::instance_type(name, cpu, memory, &["zone-a", "zone-b"]);
        for offering in &mut one.offerings {
            offering.price = Price(offering.price.0 * dearer / 1000);
        }
        one
    });
    let mut world = World::new(spokeshave_example::epoch(), HOURS * HOUR_MS, Arc::from(types));
    world.warmup_ms = HOUR_MS;
    world.spot = Some(SpotInterruptions {
        per_million_node_hours: 30_000,
        notice_ms: 120_000,
    });
    world
}

/// The workload of a seed: Deployments that are scaled at times and to sizes that depend on the seed.
fn timeline(seed: u64) -> Timeline {
    let mut draws = Draws::of(seed);
    let owners = (0..OWNERS).map(|number| {
        let cpu = ["250m", "500m", "1", "1500m"][number as usize];
        let template = json!({
            "metadata": {"labels": {"app": format!("app-{number}")}},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}}}]},
        });
        Owner {
            namespace: "shop".into(),
            name: format!("app-{number}"),
            kind: OwnerKind::Deployment,
            template: Arc::new(serde_json::from_value(template).unwrap()),
            ready: Spread {
                median_ms: 8_000,
                p99_ms: 40_000,
            },
            budget: None,
            later: Vec::new(),
            claims: Vec::new(),
        }
    });
    let owners = owners.collect();
    let mut events = Vec::new();
    for hour in 0..HOURS {
        for owner in 0..OWNERS {
            if hour == 0 || draws.share() < 0.25 {
                events.push(Event {
                    at_ms: if hour == 0 {
                        0
                    } else {
                        hour * HOUR_MS + draws.next() % HOUR_MS
                    },
                    owner: OwnerId(owner),
                    change: Change::Replicas(2 + (draws.next() % 7) as u32),
                });
            }
        }
    }
    events.sort_by_key(|event| event.at_ms);
    Timeline {
        owners,
        events,
        ..Timeline::default()
    }
}

fn life(name: &str, world: &World, seed: u64) -> Run {
    let policy = Policy::new(name, vec![Arc::new(pool())]);
    live(world, &timeline(seed), &policy, seed)
}

fn verdict(runs: &[Run]) -> Verdict {
    let mut setting = setting(&["a", "b"]);
    setting.warmup_ms = HOUR_MS;
    let comparison = Comparison::of(setting, runs, &[]).unwrap();
    comparison.policies[1].values["cost"]
        .against
        .as_ref()
        .unwrap()
        .verdict
}

/// So many lives of one policy, and what is drawn from them: lives are dear, pairs of samples are not.
const LIVES: u64 = 24;

/// The first lives of a shuffled order.
fn sample(draws: &mut Draws, lives: u64, size: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lives as usize).collect();
    for place in 0..size as usize {
        let other = place + (draws.next() % (lives - place as u64)) as usize;
        order.swap(place, other);
    }
    order.truncate(size as usize);
    order
}

#[test]
fn check_8_equal_policies_under_other_seeds_are_called_different_in_at_most_seven_of_a_hundred_pairs() {
    let world = world(1000);
    let lives: Vec<Run> = (1..=LIVES).map(|seed| life("a", &world, seed)).collect();
    let mut draws = Draws::of(8);
    let alarms = (0..200)
        .filter(|_| {
            let order = sample(&mut draws, LIVES, 2 * SEEDS);
            let runs: Vec<Run> = (0..SEEDS)
                .flat_map(|seed| {
                    let of = |policy: &str, place: u64| Run {
                        policy: policy.to_owned(),
                        seed,
                        ..lives[order[place as usize]].clone()
                    };
                    [of("a", seed), of("b", SEEDS + seed)]
                })
                .collect();
            verdict(&runs) != Verdict::NoDifferenceShown
        })
        .count();
    assert!((1..=14).contains(&alarms), "{alarms} of 200");
}

#[test]
fn check_8_prices_that_are_two_per_cent_higher_are_found_with_ten_seeds_in_nine_of_ten() {
    let (same, dearer) = (world(1000), world(1020));
    let pairs: Vec<[Run; 2]> = (1..=12)
        .map(|seed| [life("a", &same, seed), life("b", &dearer, seed)])
        .collect();
    // Months differ by far more than the 2 %.
    let costs = pairs
        .iter()
        .map(|[run, _]| run.measured.cost_spot_micros + run.measured.cost_on_demand_micros);
    assert!(costs.clone().max() > costs.min().map(|least| least * 11 / 10));
    let mut draws = Draws::of(88);
    let found = (0..50)
        .filter(|_| {
            let chosen = sample(&mut draws, 12, SEEDS);
            let runs: Vec<Run> = chosen.iter().flat_map(|place| pairs[*place].clone()).collect();
            verdict(&runs) == Verdict::Higher
        })
        .count();
    assert!(found >= 45, "{found} of 50");
}
