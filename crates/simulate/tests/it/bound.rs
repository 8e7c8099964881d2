//! The lower bound of cost: equal to a linear programme's solver, and never above what is really available.

use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOutcome};
use spokeshave_model::{
    CapacityType, InstanceType, Offering, Price, Requirement, Requirements, Resources, labels,
};
use spokeshave_simulate::bound::{Amounts, Bound, Mix, Offer};

/// SplitMix64: every draw is a function of its seed.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A catalogue: families that are priced by a common formula, so many planes of the dual meet in one point, and offerings that deviate from it.
fn catalogue(draws: &mut Draws) -> Vec<Offer> {
    let count = 3 + draws.below(30);
    (0..count)
        .map(|_| {
            let cpu = f64::from(1_u32 << draws.below(7)) * 1000.0;
            let memory = cpu / 1000.0 * [1.0, 2.0, 4.0, 8.0][draws.below(4) as usize] * 1024.0;
            let pods = [110.0, 58.0, 234.0, 15.0][draws.below(4) as usize];
            let list = 0.025 * cpu / 1000.0 + 0.003 * memory / 1024.0;
            let odd = if draws.below(2) == 0 {
                1.0
            } else {
                0.5 + draws.share()
            };
            let limited = draws.below(6) == 0;
            Offer {
                capacity: [cpu - 80.0, memory - 255.0, pods - 4.0],
                price: if limited && draws.below(3) == 0 {
                    0.0
                } else {
                    list * odd
                },
                limit: limited.then(|| draws.below(5) as u32),
            }
        })
        .chain([Offer {
            // Something that can always be had.
            capacity: [15_900.0, 64_000.0, 100.0],
            price: 0.9,
            limit: None,
        }])
        .collect()
}

fn demand(draws: &mut Draws) -> Amounts {
    let size = 10_f64.powf(draws.share() * 4.0);
    [
        size * 500.0 * draws.share(),
        size * 2_000.0 * draws.share(),
        (size * draws.share()).ceil(),
    ]
}

/// The same optimum by the simplex method.
fn solved(offers: &[Offer], demand: &Amounts) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let variables: Vec<_> = offers
        .iter()
        .map(|offer| problem.add_var(offer.price, (0.0, offer.limit.map_or(f64::INFINITY, f64::from))))
        .collect();
    for (resource, least) in demand.iter().enumerate() {
        let row: Vec<_> = variables
            .iter()
            .zip(offers)
            .map(|(variable, offer)| (*variable, offer.capacity[resource].max(0.0)))
            .collect();
        problem.add_constraint(&row, ComparisonOp::Ge, *least);
    }
    match problem.solve().unwrap() {
        SolveOutcome::Solution(solution) => solution.objective(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn check_6_vertices_give_what_a_solver_gives_for_ten_thousand_demands() {
    let mut draws = Draws(6);
    let mut limited = 0;
    for _ in 0..200 {
        let offers = catalogue(&mut draws);
        limited += offers
            .iter()
            .filter(|offer| offer.limit.is_some_and(|limit| limit > 0))
            .count();
        let mix = Mix::of(&offers);
        for _ in 0..50 {
            let demand = demand(&mut draws);
            let (found, expected) = (mix.at(&demand), solved(&offers, &demand));
            assert!(
                (found - expected).abs() <= 1e-6 * expected.max(1e-3),
                "{found} by vertices, {expected} by the solver; {demand:?} of {offers:?}"
            );
        }
    }
    assert!(limited > 200, "{limited}");
}

/// Small worlds: pods and offers as whole things. The exact optimum by dynamic programming over sets of pods.
fn optimum(offers: &[Offer], pods: &[Amounts]) -> Option<f64> {
    let all = (1_usize << pods.len()) - 1;
    let sums: Vec<Amounts> = (0..=all)
        .map(|set| {
            let inside = (0..pods.len()).filter(|pod| set & (1 << pod) != 0);
            inside.fold([0.0; 3], |sum, pod| {
                std::array::from_fn(|index| sum[index] + pods[pod][index])
            })
        })
        .collect();
    let fits = |offer: &Offer, set: usize| {
        sums[set]
            .iter()
            .zip(&offer.capacity)
            .all(|(sum, room)| sum <= room)
    };
    // Only one offer of these worlds is limited: states are the pods placed and how many of it are used.
    let most = offers.iter().find_map(|offer| offer.limit).unwrap_or(0) as usize;
    let cheapest = |set: usize, limited: bool| {
        offers
            .iter()
            .filter(|offer| offer.limit.is_some() == limited && fits(offer, set))
            .map(|offer| offer.price)
            .reduce(f64::min)
    };
    let nodes: Vec<[Option<f64>; 2]> = (0..=all)
        .map(|set| [cheapest(set, false), cheapest(set, true)])
        .collect();
    let mut best = vec![vec![f64::INFINITY; most + 1]; all + 1];
    best[0] = vec![0.0; most + 1];
    for set in 1..=all {
        let first = set & set.wrapping_neg();
        for used in 0..=most {
            let mut node = set;
            while node > 0 {
                if node & first != 0 {
                    if let Some(price) = nodes[node][0] {
                        best[set][used] = best[set][used].min(price + best[set ^ node][used]);
                    }
                    if let (Some(price), true) = (nodes[node][1], used > 0) {
                        best[set][used] = best[set][used].min(price + best[set ^ node][used - 1]);
                    }
                }
                node = (node - 1) & set;
            }
        }
    }
    Some(best[all][most]).filter(|price| price.is_finite())
}

#[test]
fn check_6_the_bound_is_never_above_the_exact_optimum_of_a_thousand_small_worlds() {
    let mut draws = Draws(66);
    let (mut worlds, mut gaps) = (0, Vec::new());
    while worlds < 1000 {
        let mut offers: Vec<Offer> = (0..6)
            .map(|_| {
                let cpu = f64::from(1_u32 << draws.below(5)) * 1000.0;
                let memory = cpu * [2.0, 4.0, 8.0][draws.below(3) as usize];
                Offer {
                    capacity: [cpu - 100.0, memory - 200.0, 8.0],
                    price: (0.02 * cpu + 0.003 * memory) / 1000.0 * (0.7 + 0.6 * draws.share()),
                    limit: None,
                }
            })
            .collect();
        if draws.below(2) == 0 {
            offers[0].limit = Some(1 + draws.below(2) as u32);
            offers[0].price *= 0.2;
        }
        let pods: Vec<Amounts> = (0..3 + draws.below(6))
            .map(|_| {
                [
                    100.0 + draws.share() * 3000.0,
                    200.0 + draws.share() * 9000.0,
                    1.0,
                ]
            })
            .collect();
        let Some(best) = optimum(&offers, &pods) else {
            continue;
        };
        worlds += 1;
        let sum = |index: usize| pods.iter().map(|pod| pod[index]).sum::<f64>();
        let bound = Mix::of(&offers).at(&[sum(0), sum(1), sum(2)]);
        assert!(
            bound <= best * (1.0 + 1e-9),
            "bound {bound}, optimum {best}: {offers:?} {pods:?}"
        );
        gaps.push(best / bound - 1.0);
    }
    gaps.sort_by(f64::total_cmp);
    // A bound of nothing would pass as well. So few whole pods on whole nodes cost half as much again as their bound.
    let median = gaps[gaps.len() / 2];
    assert!(median < 0.6, "median gap {median}");
}

fn instance_type(
    name: &str,
    capacity: &[(&str, i64)],
    offerings: &[(CapacityType, i64, i64)],
) -> InstanceType {
    InstanceType {
        name: name.into(),
        capacity: Resources::from_amounts(capacity.iter().copied()),
        offerings: offerings
            .iter()
            .map(|(capacity_type, nanos, count)| Offering {
                requirements: Requirements::from_iter([Requirement::is(
                    labels::CAPACITY_TYPE,
                    capacity_type.as_str(),
                )]),
                price: Price(*nanos),
                available: true,
                reservation_capacity: *count,
                ..Offering::default()
            })
            .collect(),
        ..InstanceType::default()
    }
}

const DOLLAR: i64 = 1_000_000_000;

#[test]
fn daemons_come_off_every_instance_and_reservations_are_limited() {
    let types = [instance_type(
        "m-4x",
        &[("cpu", 4_000), ("memory", 16 << 30), ("pods", 110)],
        &[
            (CapacityType::OnDemand, DOLLAR, 0),
            (CapacityType::Reserved, 0, 2),
        ],
    )];
    let plain = Bound::of(&types, |_| Resources::new());
    let at = |bound: &Bound, cpu: i64| {
        let mut demand = bound.nothing();
        demand.add(&bound.load(&Resources::from_amounts([("cpu", cpu)]), false));
        bound.at(&demand)
    };
    // Two are free; each further core costs a quarter of a dollar.
    assert_eq!(at(&plain, 8_000), 0);
    assert_near(at(&plain, 12_000), 1_000_000);
    assert_near(at(&plain, 10_000), 500_000);
    // With a fifth of each taken by daemons: 2 × 3.2 cores for nothing, then 1/3.2 dollars a core.
    let daemons = Bound::of(&types, |_| Resources::from_amounts([("cpu", 800)]));
    assert_near(at(&daemons, 12_800), 2_000_000);
}

fn assert_near(found: u64, expected: u64) {
    assert!(
        found <= expected && expected - found <= 1,
        "{found} instead of {expected}"
    );
}

#[test]
fn pods_that_cannot_use_everything_are_bounded_by_what_they_can_use() {
    let types = [
        instance_type(
            "c-4x",
            &[("cpu", 4_000), ("memory", 8 << 30), ("pods", 110)],
            &[
                (CapacityType::OnDemand, DOLLAR, 0),
                (CapacityType::Spot, DOLLAR / 4, 0),
            ],
        ),
        instance_type(
            "g-4x",
            &[
                ("cpu", 4_000),
                ("memory", 16 << 30),
                ("pods", 110),
                ("nvidia.com/gpu", 1),
            ],
            &[(CapacityType::Spot, 3 * DOLLAR, 0)],
        ),
    ];
    let bound = Bound::of(&types, |_| Resources::new());
    let web = bound.load(&Resources::from_amounts([("cpu", 1_000)]), false);
    let stays = bound.load(&Resources::from_amounts([("cpu", 1_000)]), true);
    let learns = bound.load(
        &Resources::from_amounts([("cpu", 500), ("nvidia.com/gpu", 1)]),
        false,
    );
    let mut demand = bound.nothing();
    demand.add(&web);
    assert_near(bound.at(&demand), 62_500);
    demand.add(&stays);
    assert_near(bound.at(&demand), 250_000);
    demand.add(&learns);
    assert_near(bound.at(&demand), 3_000_000);
    demand.remove(&learns);
    demand.remove(&stays);
    demand.remove(&web);
    assert_eq!(demand, bound.nothing());
    assert_eq!(bound.at(&demand), 0);
}

#[test]
fn what_nothing_offers_or_is_free_costs_nothing_and_nothing_panics() {
    let empty = Bound::of(&[], |_| Resources::new());
    assert_eq!(empty.at(&empty.nothing()), 0);
    let offers = [
        Offer {
            capacity: [1.0, 0.0, -3.0],
            price: 1.0,
            limit: None,
        },
        Offer {
            capacity: [0.0, 5.0, 0.0],
            price: 0.0,
            limit: None,
        },
        Offer {
            capacity: [9.0, 9.0, 9.0],
            price: 0.0,
            limit: Some(0),
        },
        Offer {
            capacity: [0.0; 3],
            price: 1.0,
            limit: None,
        },
    ];
    let mix = Mix::of(&offers);
    assert!((mix.at(&[2.0, 100.0, 7.0]) - 2.0).abs() < 1e-12);
    assert_eq!(mix.at(&[-2.0, 0.0, 0.0]), 0.0);
    // Demand beyond what there is of a resource is priced as if there were more of the same.
    let reserved = [Offer {
        capacity: [4.0, 0.0, 0.0],
        price: 0.5,
        limit: Some(2),
    }];
    assert!((Mix::of(&reserved).at(&[80.0, 0.0, 0.0]) - 10.0).abs() < 1e-12);
}
