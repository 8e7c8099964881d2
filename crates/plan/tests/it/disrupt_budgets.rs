//! What budgets allow, against a count made minute by minute.

use crate::support::acts;
use crate::support::pair;
use crate::support::three_types;
use crate::support::zero_budget;
use crate::support::{World, later, on_demand_pool};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::{Budget, DisruptionReason, NodePool};
use spokeshave_example::Dice;
use spokeshave_plan::disrupt::BudgetMapping;

/// A field of a schedule as the set of its values, written by hand from the rules of cron.
struct Field {
    text: String,
    values: Vec<i64>,
    is_star: bool,
}

fn field(dice: &mut Dice, low: i64, high: i64) -> Field {
    let span = usize::try_from(high - low + 1).unwrap_or(1);
    let value = |dice: &mut Dice| low + i64::try_from(dice.below(span)).unwrap_or(0);
    match dice.below(6) {
        0 | 1 => Field {
            text: "*".to_owned(),
            values: (low..=high).collect(),
            is_star: true,
        },
        2 => {
            let one = value(dice);
            Field {
                text: one.to_string(),
                values: vec![one],
                is_star: false,
            }
        }
        3 => {
            let (one, other) = (value(dice), value(dice));
            let (from, to) = (one.min(other), one.max(other));
            Field {
                text: format!("{from}-{to}"),
                values: (from..=to).collect(),
                is_star: false,
            }
        }
        4 => {
            let (one, other) = (value(dice), value(dice));
            Field {
                text: format!("{one},{other}"),
                values: vec![one, other],
                is_star: false,
            }
        }
        _ => {
            let step = 2 + i64::try_from(dice.below(5)).unwrap_or(0);
            Field {
                text: format!("*/{step}"),
                values: (low..=high).filter(|value| (value - low) % step == 0).collect(),
                is_star: false,
            }
        }
    }
}

struct Schedule {
    text: String,
    fields: [Field; 5],
}

impl Schedule {
    fn roll(dice: &mut Dice) -> Self {
        let fields = [
            field(dice, 0, 59),
            field(dice, 0, 23),
            field(dice, 1, 31),
            field(dice, 1, 12),
            field(dice, 0, 6),
        ];
        let texts: Vec<&str> = fields.iter().map(|field| field.text.as_str()).collect();
        Schedule {
            text: texts.join(" "),
            fields,
        }
    }

    fn fires(&self, at: Timestamp) -> bool {
        let time = at.to_zoned(jiff::tz::TimeZone::UTC);
        let has = |index: usize, value: i64| self.fields[index].values.contains(&value);
        let day = has(2, i64::from(time.day()));
        let weekday = has(4, i64::from(time.weekday().to_sunday_zero_offset()));
        let by_day = if self.fields[2].is_star || self.fields[4].is_star {
            day && weekday
        } else {
            day || weekday
        };
        has(0, i64::from(time.minute()))
            && has(1, i64::from(time.hour()))
            && has(3, i64::from(time.month()))
            && by_day
    }
}

/// In [hit, hit + duration) of any hit: looked for minute by minute, backwards.
fn is_active(schedule: &Schedule, minutes: i64, now: Timestamp) -> bool {
    let whole = now - SignedDuration::from_secs(now.as_second().rem_euclid(60));
    (0..=minutes).any(|ago| {
        let hit = whole - SignedDuration::from_secs(60 * ago);
        now.duration_since(hit) < SignedDuration::from_secs(60 * minutes) && schedule.fires(hit)
    })
}

fn pool_of(budgets: Vec<Budget>) -> NodePool {
    let mut pool = on_demand_pool("default");
    pool.spec.disruption.budgets = Some(budgets);
    pool
}

#[test]
fn d_193_d_195_d_196_allowance_against_a_count_minute_by_minute() {
    let reasons = [
        DisruptionReason::Empty,
        DisruptionReason::Drifted,
        DisruptionReason::Underutilized,
    ];
    let (mut open, mut shut) = (0, 0);
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let count = dice.below(12);
        let mut expected_parts: Vec<(Schedule, i64, i64, Vec<usize>)> = Vec::new();
        let mut budgets = Vec::new();
        for _ in 0..1 + dice.below(3) {
            let schedule = Schedule::roll(&mut dice);
            let minutes = 1 + i64::try_from(dice.below(600)).unwrap_or(0);
            let (nodes, allowed) = if dice.below(2) == 0 {
                let percent = dice.below(101);
                // Rounded up, counted out: the least whole number that is at least that share.
                let least = (0..=count)
                    .find(|whole| whole * 100 >= percent * count)
                    .unwrap_or(count);
                (format!("{percent}%"), least)
            } else {
                let number = dice.below(5);
                (number.to_string(), number)
            };
            let covered: Vec<usize> = (0..3).filter(|_| dice.below(2) == 0).collect();
            let listed: Vec<String> = covered.iter().map(|index| reasons[*index].to_string()).collect();
            let value = json!({"nodes": nodes, "reasons": listed, "schedule": schedule.text, "duration": format!("{minutes}m")});
            budgets.push(serde_json::from_value::<Budget>(value).expect("a budget"));
            expected_parts.push((schedule, minutes, i64::try_from(allowed).unwrap_or(0), covered));
        }
        let pool = pool_of(budgets);
        for _ in 0..6 {
            let now = later(i64::try_from(dice.below(90 * 86_400)).unwrap_or(0));
            for (index, reason) in reasons.iter().enumerate() {
                let limits = expected_parts
                    .iter()
                    .filter(|(schedule, minutes, _, covered)| {
                        covered.contains(&index) && is_active(schedule, *minutes, now)
                    })
                    .map(|(_, _, allowed, _)| *allowed);
                let expected = limits.min().unwrap_or(2_147_483_647);
                match pool.allowed_disruptions(reason, count, now) {
                    Ok(allowed) => {
                        assert_eq!(
                            allowed, expected,
                            "seed {seed} at {now} for {reason}: {:?}",
                            pool.spec.disruption.budgets
                        );
                        open += usize::from(allowed == 2_147_483_647);
                        shut += usize::from(allowed < 2_147_483_647);
                    }
                    // A schedule without any hit, such as 31 February, closes what it governs (D-194).
                    Err(error) => assert!(error.to_string().contains("never"), "seed {seed}: {error}"),
                }
            }
        }
    }
    assert!(open > 500 && shut > 500, "open {open}, shut {shut}");
}

fn remaining(world: &World, reason: &DisruptionReason, at: Timestamp) -> i64 {
    let snapshot = world.snapshot();
    let pool = snapshot.find_pool("default").expect("the pool");
    BudgetMapping::build(&snapshot, reason, at).remaining(pool)
}

fn nodes(pool: NodePool, count: usize) -> World {
    (0..count).fold(World::new(pool), |world, index| {
        world.node(&format!("n{index:02}"), "small")
    })
}

fn budgets(value: &serde_json::Value) -> Vec<Budget> {
    serde_json::from_value(value.clone()).expect("budgets")
}

#[test]
fn g_1_12_d_199_d_200_worked_examples_of_remaining_disruptions() {
    let noon = later(12 * 3600);
    let window = later(300);
    let mut default_pool = on_demand_pool("default");
    default_pool.spec.disruption.budgets = None;
    assert_eq!(
        remaining(&nodes(default_pool, 19), &DisruptionReason::Empty, noon),
        2
    );
    let b = json!([
        {"nodes": "20%", "reasons": ["Empty", "Drifted"]},
        {"nodes": "5"},
        {"nodes": "0", "schedule": "@daily", "duration": "10m", "reasons": ["Underutilized"]},
    ]);
    let unready = |world: World| {
        world.edit_node("n00", |node| {
            node.status.get_or_insert_default().conditions = None
        })
    };
    let world = unready(nodes(pool_of(budgets(&b)), 19));
    assert_eq!(remaining(&world, &DisruptionReason::Empty, noon), 3);
    assert_eq!(remaining(&world, &DisruptionReason::Underutilized, noon), 4);
    assert_eq!(remaining(&world, &DisruptionReason::Underutilized, window), 0);
    assert_eq!(
        remaining(&nodes(pool_of(budgets(&b)), 30), &DisruptionReason::Empty, noon),
        5
    );
    let mut all = nodes(pool_of(budgets(&json!([{"nodes": "100%"}]))), 3);
    all.state
        .marked_for_deletion
        .extend((0..3).map(|index| format!("kwok://n{index:02}")));
    assert_eq!(remaining(&all, &DisruptionReason::Drifted, noon), 0);
    let mut free = nodes(pool_of(Vec::new()), 10);
    free.state
        .marked_for_deletion
        .extend((0..4).map(|index| format!("kwok://n{index:02}")));
    assert_eq!(remaining(&free, &DisruptionReason::Drifted, noon), 2_147_483_643);
}

#[test]
fn d_201_an_instance_that_is_being_terminated_counts_neither_as_a_node_nor_as_disrupting() {
    let ending = |world: World, ending: bool| {
        world.edit_claim("n00", move |claim| {
            claim.metadata.deletion_timestamp = Some(Time(later(0)));
            if ending {
                claim.set_true("InstanceTerminating", later(0));
            }
        })
    };
    let ten = || nodes(pool_of(budgets(&json!([{"nodes": "50%"}]))), 10);
    assert_eq!(remaining(&ten(), &DisruptionReason::Empty, later(1)), 5);
    assert_eq!(
        remaining(&ending(ten(), false), &DisruptionReason::Empty, later(1)),
        4,
        "it drains"
    );
    // Half of nine, rounded up, and none is under way.
    assert_eq!(
        remaining(&ending(ten(), true), &DisruptionReason::Empty, later(1)),
        5,
        "its instance ends"
    );
    let two = || nodes(pool_of(budgets(&json!([{"nodes": "1"}]))), 2);
    assert_eq!(
        remaining(&ending(two(), false), &DisruptionReason::Drifted, later(1)),
        0
    );
    assert_eq!(
        remaining(&ending(two(), true), &DisruptionReason::Drifted, later(1)),
        1
    );
}

#[test]
fn nodes_of_waiting_commands_use_budget_up() {
    let mut world = nodes(pool_of(budgets(&json!([{"nodes": "2"}]))), 10);
    assert_eq!(remaining(&world, &DisruptionReason::Empty, later(0)), 2);
    world.state.in_command.insert("kwok://n00".to_owned());
    assert_eq!(remaining(&world, &DisruptionReason::Empty, later(0)), 1);
}

#[test]
fn w_45_a_faulty_budget_closes_what_it_would_have_governed_and_no_more() {
    let faulty = json!([{"nodes": "10%"}, {"nodes": "5", "schedule": "* * * * 7", "duration": "1h", "reasons": ["Drifted"]}]);
    let world = nodes(pool_of(budgets(&faulty)), 10);
    assert_eq!(remaining(&world, &DisruptionReason::Drifted, later(0)), 0);
    assert_eq!(remaining(&world, &DisruptionReason::Empty, later(0)), 1);
    let all = json!([{"nodes": "lots"}]);
    let world = nodes(pool_of(budgets(&all)), 10);
    for reason in [
        DisruptionReason::Empty,
        DisruptionReason::Drifted,
        DisruptionReason::Underutilized,
    ] {
        assert_eq!(remaining(&world, &reason, later(0)), 0);
    }
    // A reason that this version does not know might be one that it does: nothing is disrupted on doubt.
    let unknown = json!([{"nodes": "0", "reasons": ["empty"]}]);
    let world = nodes(pool_of(budgets(&unknown)), 10);
    assert_eq!(remaining(&world, &DisruptionReason::Empty, later(0)), 0);
    for absurd in ["-3", "999999999999999999999", "101%"] {
        let world = nodes(pool_of(budgets(&json!([{"nodes": absurd}]))), 10);
        let left = remaining(&world, &DisruptionReason::Empty, later(0));
        assert!(left == 0 || absurd.starts_with('9'), "{absurd}: {left}");
    }
}

#[test]
fn seed_003_the_weekend_example_never_allows_anything_and_the_corrected_one_does() {
    // "nodes: 50% on weekends, plus an unscheduled 0": the 0 always wins (D §10.2, topic 10).
    let example = json!([{"nodes": "50%", "schedule": "0 0 * * 6", "duration": "48h"}, {"nodes": "0"}]);
    let world = nodes(pool_of(budgets(&example)), 10);
    let saturday = later(2 * 86_400 + 3600);
    let monday = later(4 * 86_400 + 3600);
    assert_eq!(remaining(&world, &DisruptionReason::Empty, saturday), 0);
    assert_eq!(remaining(&world, &DisruptionReason::Empty, monday), 0);
    let correct = json!([{"nodes": "0", "schedule": "0 0 * * 1", "duration": "120h"}, {"nodes": "50%"}]);
    let world = nodes(pool_of(budgets(&correct)), 10);
    assert_eq!(remaining(&world, &DisruptionReason::Empty, saturday), 5);
    assert_eq!(remaining(&world, &DisruptionReason::Empty, monday), 0);
}

#[test]
fn seed_003_the_business_hours_example() {
    // "30s consolidateAfter, 10% always, 0 on weekdays from 09:00 for 8h" (D-390).
    let example = json!([{"nodes": "10%"}, {"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"}]);
    let world = nodes(pool_of(budgets(&example)), 10);
    // The epoch is a Thursday.
    assert_eq!(
        remaining(&world, &DisruptionReason::Underutilized, later(10 * 3600)),
        0
    );
    assert_eq!(
        remaining(&world, &DisruptionReason::Underutilized, later(17 * 3600)),
        1
    );
    assert_eq!(
        remaining(
            &world,
            &DisruptionReason::Underutilized,
            later(2 * 86_400 + 10 * 3600)
        ),
        1
    );
}

#[test]
fn d_198_d_202_d_204_budgets_are_per_pool_and_shared_by_reasons() {
    let mut world = World::new(on_demand_pool("default")).edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(zero_budget("1"))
    });
    world.state = world.state.with_pool(on_demand_pool("other"), three_types());
    let world = world
        .node("a", "small")
        .node("b", "small")
        .node_in("other", "c", "small", "on-demand");
    assert_eq!(
        acts(&world),
        ["Emptiness delete [a, c]"],
        "one of two in the first pool, all of the second"
    );
    let mut going = world;
    going.state.marked_for_deletion.insert("kwok://a".to_owned());
    let snapshot = going.snapshot();
    for reason in [
        DisruptionReason::Empty,
        DisruptionReason::Drifted,
        DisruptionReason::Underutilized,
    ] {
        let pool = snapshot.find_pool("default").expect("the pool");
        assert_eq!(
            BudgetMapping::build(&snapshot, &reason, going.now).remaining(pool),
            0,
            "{reason}"
        );
    }
}

#[test]
fn d_208_budgets_are_shown_only_for_reasons_with_candidates() {
    assert_eq!(pair().pass().budgets.len(), 1);
    assert_eq!(World::new(on_demand_pool("default")).pass().budgets, []);
}
