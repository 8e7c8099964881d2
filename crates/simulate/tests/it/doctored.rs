//! The checker itself: for each promise a story that breaks it, and the checker finds that it does.

use std::collections::BTreeSet;

use spokeshave_scenario::{Budget, OwnerKind};

use crate::promises::Lived;
use crate::promises::report::Promise;
use crate::promises::worlds::{Force, Key, PoolBudget, Restriction, Rule, Scene, Shared};
use crate::story::{ANY, STORY, lived, scene};

/// No node may go in the first four minutes.
const SHUT: &[PoolBudget] = &[
    ANY,
    PoolBudget {
        nodes: "0",
        force: Force::Between(0, 240_000),
        ..ANY
    },
];

const UNREADABLE: &[PoolBudget] = &[PoolBudget {
    reasons: &["Underutilized"],
    force: Force::Unreadable,
    ..ANY
}];

/// What is made different from the story.
enum Doctor {
    /// The world promises something else.
    World(fn(&mut Scene)),
    /// Parts of the log are others.
    Log(&'static [(&'static str, &'static str)]),
    /// Both.
    Both(fn(&mut Scene), &'static [(&'static str, &'static str)]),
    /// What came of it is something else.
    Life(fn(&mut Lived)),
}

use Doctor::{Both, Life, Log, World};

fn restricted(scene: &mut Scene, restriction: Restriction) {
    scene.restriction = Some(restriction);
}

/// A budget over several workloads, of whose pods so many may be away.
fn shared(most: &str, over: &[usize]) -> Option<Shared> {
    Some(Shared {
        amount: Budget::MaxUnavailable(most.to_owned()),
        over: over.to_vec(),
    })
}

/// Promises, each with a story that breaks it.
fn cases() -> Vec<(Promise, Doctor)> {
    vec![
        (Promise::Log, Log(&[("0 born shop/w1-0\n", "")])),
        (
            Promise::Log,
            Log(&[("50000 started shop/w1-0\n", "49000 started shop/w1-0\n")]),
        ),
        (
            Promise::OneInstance,
            Log(&[("1000 nodeclaim default-b", "1000 nodeclaim default-a")]),
        ),
        (
            Promise::LaunchReason,
            Log(&[("nodeclaim default-c k1", "nodeclaim default-c k2")]),
        ),
        (
            Promise::LaunchReason,
            Log(&[(
                "200000 command k1",
                "60000 nodeclaim default-x\n60000 launched default-x fake-it-1 on-demand 0.566547048 test-zone-1\n200000 command k1",
            )]),
        ),
        (
            Promise::LaunchReason,
            World(|scene| scene.workloads.iter_mut().for_each(|one| one.millicores = 9_000)),
        ),
        (
            Promise::Price,
            Log(&[("0.566547048 test-zone-1", "0.56 test-zone-1")]),
        ),
        (
            Promise::Price,
            World(|scene| scene.pools[0].capacity_types = &["spot"]),
        ),
        (Promise::Shortage, World(|scene| scene.shortage = Some(3))),
        (
            Promise::Limits,
            World(|scene| scene.pools[0].limit_millicores = Some(3_000)),
        ),
        (
            Promise::Joins,
            Log(&[("6066000 gone default-d", "6900000 joined default-d")]),
        ),
        (Promise::EndReason, Log(&[("5600000 expired default-c\n", "")])),
        (
            Promise::EndsSoon,
            Log(&[
                ("5660000 ended default-c\n5660000 gone default-c\n", ""),
                ("6066000 gone default-d", "6066000 ended default-c"),
            ]),
        ),
        (
            Promise::Deadline,
            Log(&[("5660000 ended default-c\n5660000 gone default-c\n", "")]),
        ),
        (
            Promise::GoneLast,
            Log(&[(
                "256000 ended default-a\n256000 gone default-a",
                "256000 gone default-a\n256000 ended default-a",
            )]),
        ),
        (Promise::GoneLast, Log(&[("258000 gone default-b\n", "")])),
        (
            Promise::NoLeak,
            Life(|lived| lived.claims.push(("default-z".to_owned(), true))),
        ),
        (Promise::NoLeak, Log(&[("6066000 ended default-d\n", "")])),
        (
            Promise::BoundToStay,
            Log(&[(
                "247000 bound shop/w1-0 default-c",
                "247000 bound shop/w1-0 default-a",
            )]),
        ),
        (Promise::BoundToStay, Log(&[("45000 ready default-a\n", "")])),
        (
            Promise::Room,
            World(|scene| scene.workloads[1].millicores = 1_000),
        ),
        (
            Promise::Room,
            World(|scene| (scene.workloads[1].millicores, scene.has_daemons) = (850, true)),
        ),
        (
            Promise::Selectors,
            World(|scene| scene.workloads[1].rule = Rule::Zone("test-zone-2")),
        ),
        (Promise::Selectors, World(|scene| scene.pools[0].is_batch = true)),
        (
            Promise::Volumes,
            Log(&[(
                "202000 launched default-c fake-it-2 on-demand 0.849820581 test-zone-1",
                "202000 launched default-c fake-it-2 on-demand 0.94424509 test-zone-2",
            )]),
        ),
        (
            Promise::Spread,
            World(|scene| {
                scene.workloads[0].rule = Rule::Spread {
                    over: Key::Host,
                    most: 1,
                }
            }),
        ),
        (
            Promise::Spread,
            World(|scene| {
                scene.workloads[0].rule = Rule::Spread {
                    over: Key::Zone,
                    most: 1,
                }
            }),
        ),
        (
            Promise::Apart,
            World(|scene| scene.workloads[0].rule = Rule::Apart),
        ),
        (
            Promise::Near,
            World(|scene| scene.workloads[0].rule = Rule::Near(0)),
        ),
        (
            Promise::Placed,
            Log(&[("0 born shop/w1-0\n", "0 born shop/w1-0\n0 born shop/w1-1\n")]),
        ),
        (
            Promise::EvictionReason,
            Log(&[(
                "251000 evicted shop/w0-0000001 Underutilized",
                "251000 evicted shop/w0-0000001 ",
            )]),
        ),
        (
            Promise::EvictionReason,
            Log(&[(
                "251000 evicted shop/w0-0000001 Underutilized",
                "251000 evicted shop/w0-0000001 Empty",
            )]),
        ),
        (
            Promise::EvictionReason,
            Log(&[(
                "251000 evicted shop/w0-0000001 Underutilized",
                "251000 evicted shop/w0-0000001 Forceful Termination",
            )]),
        ),
        (
            Promise::EvictionReason,
            Log(&[("246000 phase k1 Draining\n", "")]),
        ),
        (
            Promise::EvictionReason,
            Log(&[("5600000 expired default-c\n", "")]),
        ),
        (
            Promise::Protected,
            World(|scene| scene.workloads[1].is_protected = true),
        ),
        (
            Promise::DisruptionBudget,
            Log(&[("250000 started shop/w0-0000002\n", "")]),
        ),
        (
            Promise::DisruptionBudget,
            World(|scene| scene.workloads[0].budget = Some(Budget::MinAvailable("51%".to_owned()))),
        ),
        (
            Promise::DisruptionBudget,
            World(|scene| {
                scene.workloads[0].budget = None;
                scene.shared = shared("1", &[0, 1]);
            }),
        ),
        (
            Promise::DisruptionBudget,
            World(|scene| scene.shared = shared("100%", &[0])),
        ),
        (
            Promise::Tiers,
            World(|scene| scene.workloads[0].is_critical = true),
        ),
        (
            Promise::CutShort,
            Log(&[(
                "5650000 evicted shop/w1-0 Forceful Termination",
                "5650000 killed shop/w1-0",
            )]),
        ),
        (
            Promise::DrainsAtOnce,
            Log(&[("5600000 expired default-c", "5600000 interrupted default-c")]),
        ),
        (
            Promise::Chosen,
            Log(&[(
                "command k2 Emptiness nodes=default-d",
                "command k2 Emptiness nodes=default-b",
            )]),
        ),
        (Promise::Budgets, World(|scene| scene.pools[0].budgets = None)),
        (
            Promise::Budgets,
            World(|scene| scene.pools[0].budgets = Some(SHUT)),
        ),
        (
            Promise::UnreadableBudget,
            World(|scene| scene.pools[0].budgets = Some(UNREADABLE)),
        ),
        (
            Promise::ConsolidateAfter,
            World(|scene| scene.pools[0].consolidate_after_ms = 160_000),
        ),
        (
            Promise::SecondLook,
            World(|scene| scene.pools[0].consolidate_after_ms = 50_000),
        ),
        (
            Promise::Empty,
            Log(&[("k1 MultiNodeConsolidation", "k1 Emptiness")]),
        ),
        (Promise::Empty, World(|scene| scene.pools[0].when_empty = true)),
        (
            Promise::EmptyGoes,
            Log(&[(
                "6055000 command k2 Emptiness nodes=default-d replacements= savings=0.849820581\n\
                 6055000 phase k2 Deleting\n\
                 6056000 phase k2 Draining\n\
                 6066000 ended default-d\n\
                 6066000 gone default-d\n\
                 6066000 phase k2 Succeeded\n",
                "",
            )]),
        ),
        (
            Promise::Settled,
            Log(&[("6056000 phase k2 Draining", "6055000 phase k2 Draining")]),
        ),
        (
            Promise::Settled,
            Log(&[(
                "202000 launched default-c",
                "201500 stopping shop/w1-0\n\
                 201500 left shop/w1-0\n\
                 201500 born shop/w1-0\n\
                 201500 bound shop/w1-0 default-a\n\
                 202000 launched default-c",
            )]),
        ),
        (
            Promise::Places,
            Log(&[(
                "fake-it-2 on-demand 0.849820581",
                "fake-it-0 on-demand 0.283273524",
            )]),
        ),
        (
            Promise::ReplacementsReady,
            Log(&[("245000 ready default-c\n", "")]),
        ),
        (
            Promise::ReplacementsKept,
            Log(&[(
                "245000 phase k1 Deleting",
                "245000 command k3 Emptiness nodes=default-c replacements= savings=0.849820581\n245000 phase k1 Deleting",
            )]),
        ),
        (
            Promise::NoOrphan,
            Log(&[(
                "240000 joined default-c",
                "230000 phase k1 RolledBack\n240000 joined default-c",
            )]),
        ),
        (
            Promise::Cheaper,
            Log(&[(
                "fake-it-2 on-demand 0.849820581",
                "fake-it-4 on-demand 1.416367638",
            )]),
        ),
        (
            Promise::Savings,
            Log(&[("replacements= savings=0.849820581", "replacements= savings=0.85")]),
        ),
        (
            Promise::Quiescence,
            Log(&[(
                "6055000 command k2",
                "6054000 command q1 Emptiness nodes=default-d replacements= savings=0\n\
                 6054000 command q2 Emptiness nodes=default-d replacements= savings=0\n\
                 6054000 command q3 Emptiness nodes=default-d replacements= savings=0\n\
                 6054000 command q4 Emptiness nodes=default-d replacements= savings=0\n\
                 6055000 command k2",
            )]),
        ),
        (
            Promise::Expiry,
            Log(&[("5600000 expired default-c", "5599000 expired default-c")]),
        ),
        (
            Promise::Freeze,
            World(|scene| restricted(scene, Restriction::Freeze { until_ms: 200_001 })),
        ),
        (
            Promise::Window,
            World(|scene| {
                restricted(
                    scene,
                    Restriction::Window {
                        from_ms: 200_001,
                        to_ms: 7_000_000,
                    },
                )
            }),
        ),
        (
            Promise::Window,
            World(|scene| {
                restricted(
                    scene,
                    Restriction::Window {
                        from_ms: 0,
                        to_ms: 6_055_000,
                    },
                )
            }),
        ),
        (
            Promise::Hold,
            World(|scene| restricted(scene, Restriction::Hold { duration_ms: 161_000 })),
        ),
        (
            Promise::PerHour,
            World(|scene| restricted(scene, Restriction::PerHour { nodes: 1 })),
        ),
        (
            Promise::PerZone,
            Both(
                |scene| restricted(scene, Restriction::PerZone { nodes: 1 }),
                &[(
                    "default-b fake-it-1 on-demand 0.62949672 test-zone-2",
                    "default-b fake-it-1 on-demand 0.566547048 test-zone-1",
                )],
            ),
        ),
        (
            Promise::OneZone,
            World(|scene| restricted(scene, Restriction::OneZone)),
        ),
        (
            Promise::SoftExpiry,
            Both(
                |scene| {
                    restricted(
                        scene,
                        Restriction::SoftExpiry {
                            percent: 30,
                            nodes: 1,
                        },
                    )
                },
                &[("k2 Emptiness", "k2 Expiry")],
            ),
        ),
        (
            Promise::QuietTime,
            World(|scene| {
                restricted(scene, Restriction::Workloads);
                scene.workloads[1].quiet_ms = Some(200_001);
            }),
        ),
        (
            Promise::OneMember,
            World(|scene| {
                restricted(scene, Restriction::Workloads);
                scene.workloads[0].kind = OwnerKind::StatefulSet;
            }),
        ),
        (
            Promise::OneMember,
            Both(
                |scene| restricted(scene, Restriction::Workloads),
                &[("50000 started shop/w1-0\n", "")],
            ),
        ),
        (
            Promise::Bill,
            Life(|lived| lived.run.measured.cost_on_demand_micros += 2),
        ),
        (Promise::Bill, Life(|lived| lived.run.measured.node_ms -= 1)),
        (
            Promise::Bound,
            Life(|lived| lived.run.measured.bound_micros = 1_482_457),
        ),
        (
            Promise::Bound,
            Life(|lived| {
                lived.run.curve.bound_micros_per_hour = vec![0, 12];
                lived.run.curve.cost_micros_per_hour = vec![0, 10];
            }),
        ),
        (Promise::Figures, Life(|lived| lived.run.measured.launches += 1)),
        (
            Promise::Figures,
            Life(|lived| lived.run.measured.evictions_voluntary -= 1),
        ),
        (
            Promise::Replicas,
            World(|scene| scene.workloads[0].events.truncate(1)),
        ),
    ]
}

/// Promises that the doctored story breaks.
fn broken(doctor: &Doctor) -> BTreeSet<Promise> {
    let (mut scene, mut log) = (scene(), STORY.to_owned());
    if let World(change) | Both(change, _) = doctor {
        change(&mut scene);
    }
    if let Log(changes) | Both(_, changes) = doctor {
        for (from, to) in *changes {
            assert!(log.contains(from), "{from}");
            log = log.replacen(from, to, 1);
        }
    }
    let mut lived = lived(&log);
    if let Life(change) = doctor {
        change(&mut lived);
    }
    let report = scene.judge(&lived);
    report.broken.iter().map(|one| one.promise).collect()
}

#[test]
fn a_story_that_breaks_nothing_breaks_nothing() {
    let report = scene().judge(&lived(STORY));
    let broken: Vec<String> = report.broken.iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn each_promise_is_found_broken_where_it_is() {
    for (number, (promise, doctor)) in cases().iter().enumerate() {
        let broken = broken(doctor);
        assert!(
            broken.contains(promise),
            "case {number}: {promise:?} is not among {broken:?}"
        );
    }
}

/// That two lives of one world are equal is nothing that a log tells.
#[test]
fn there_is_a_broken_story_for_each_promise() {
    let told: BTreeSet<Promise> = cases().iter().map(|(promise, _)| *promise).collect();
    let untold: Vec<_> = Promise::ALL
        .iter()
        .filter(|promise| !told.contains(*promise))
        .collect();
    assert_eq!(untold, [&Promise::Same]);
}
