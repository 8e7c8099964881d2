//! The random worlds: what each of them is like, as plain values. Its objects are made of them (`objects`), and what happens is judged by them.
//!
//! Owns the draw. Nothing is read back from an object, so that a mistake in reading objects cannot hide from whoever judges.

use std::sync::Arc;

use spokeshave_example::Dice;
use spokeshave_model::InstanceType;
use spokeshave_scenario::{Budget, Change, OwnerKind};

/// Milliseconds.
pub const SECOND: u64 = 1_000;
pub const MINUTE: u64 = 60 * SECOND;
pub const HOUR: u64 = 60 * MINUTE;
/// How long a world lives.
pub const LIFE: u64 = 4 * HOUR;
/// When offerings cannot be had, in worlds that know shortages.
pub const SHORTAGE: (u64, u64) = (80 * MINUTE, 130 * MINUTE);
/// What a pod is given to stop.
pub const GRACE: u64 = 30 * SECOND;
/// What a pod requests besides CPU.
pub const POD_MEMORY_MIB: i64 = 256;
/// What a DaemonSet requests of every node.
pub const DAEMON_MILLICORES: i64 = 100;
pub const DAEMON_MEMORY_MIB: i64 = 128;

/// When a budget of a NodePool is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    Always,
    /// By a schedule, in milliseconds since the start, which is a midnight.
    Between(u64, u64),
    /// Nobody can say: its schedule is none.
    Unreadable,
}

/// A budget of a NodePool.
#[derive(Clone, Copy, Debug)]
pub struct PoolBudget {
    pub nodes: &'static str,
    /// Which reasons it is for; all where there are none.
    pub reasons: &'static [&'static str],
    pub force: Force,
}

/// A NodePool.
#[derive(Clone, Debug)]
pub struct Pool {
    pub name: &'static str,
    pub capacity_types: &'static [&'static str],
    /// It has the label `tier: batch` and a taint of its own, and nobody else is on it than who selects that.
    pub is_batch: bool,
    pub consolidate_after_ms: u64,
    /// Only nodes without pods are consolidated.
    pub when_empty: bool,
    pub expire_after_ms: Option<u64>,
    pub termination_grace_ms: Option<u64>,
    /// Without any, one of 10 % stands.
    pub budgets: Option<&'static [PoolBudget]>,
    pub limit_millicores: Option<i64>,
}

/// What a DisruptionPolicy over all NodePools says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restriction {
    /// Nothing until then.
    Freeze { until_ms: u64 },
    /// Nothing outside.
    Window { from_ms: u64, to_ms: u64 },
    /// Nothing for so long after a node has come.
    Hold { duration_ms: u64 },
    /// So many nodes within any hour.
    PerHour { nodes: usize },
    /// So many nodes of each zone at once.
    PerZone { nodes: usize },
    /// One zone at a time.
    OneZone,
    /// Nodes go from this share of `expireAfter` on, so many at once.
    SoftExpiry { percent: u64, nodes: usize },
    /// Annotations of pods are heard, and members of a StatefulSet move one at a time.
    Workloads,
}

/// Over what the pods of a workload are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Zone,
    Host,
}

/// What the pods of a workload ask of their neighbours, and of the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    None,
    Spread {
        over: Key,
        most: i64,
    },
    /// No two on one node.
    Apart,
    /// In one zone with pods of the workload of this number, which may be itself.
    Near(usize),
    /// In this zone.
    Zone(&'static str),
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: String,
    pub kind: OwnerKind,
    pub millicores: i64,
    pub budget: Option<Budget>,
    /// `karpenter.sh/do-not-disrupt`.
    pub is_protected: bool,
    /// `spokeshave.dev/quiet-time`.
    pub quiet_ms: Option<u64>,
    /// Its pods leave a node last.
    pub is_critical: bool,
    /// It runs on nodes of batch, and on no others.
    pub is_batch: bool,
    pub rule: Rule,
    /// Its pods have volumes that stay in the zone in which they were made.
    pub has_volumes: bool,
    /// What happens to it, and when.
    pub events: Vec<(u64, Change)>,
}

impl Workload {
    /// Somebody says how many pods there are to be.
    pub fn is_scaled(&self) -> bool {
        matches!(self.kind, OwnerKind::Deployment | OwnerKind::StatefulSet)
    }
}

/// A PodDisruptionBudget over the pods of several workloads.
#[derive(Clone, Debug)]
pub struct Shared {
    pub amount: Budget,
    /// Which workloads, by their numbers.
    pub over: Vec<usize>,
}

/// A world.
#[derive(Clone, Debug)]
pub struct Scene {
    pub types: Arc<[InstanceType]>,
    pub pools: Vec<Pool>,
    pub restriction: Option<Restriction>,
    pub workloads: Vec<Workload>,
    /// A budget over several of them.
    pub shared: Option<Shared>,
    pub warmup_ms: u64,
    /// How many of the cheapest instance types the shortage takes.
    pub shortage: Option<usize>,
    /// The cloud takes spot instances back.
    pub has_interruptions: bool,
    pub has_daemons: bool,
    /// Booting takes always the same time, and everything else of the cloud none.
    pub has_exact_delays: bool,
    /// The scheduler fills nodes, and does not spread pods over them.
    pub packs: bool,
    /// Spot nodes may be replaced by spot nodes.
    pub spot_to_spot: bool,
    pub rounds: bool,
}

const ALL: PoolBudget = PoolBudget {
    nodes: "100%",
    reasons: &[],
    force: Force::Always,
};

const BUDGETS: [Option<&[PoolBudget]>; 6] = [
    None,
    Some(&[PoolBudget { nodes: "2", ..ALL }]),
    Some(&[
        PoolBudget { nodes: "50%", ..ALL },
        PoolBudget {
            nodes: "0",
            force: Force::Between(HOUR, HOUR + 45 * MINUTE),
            ..ALL
        },
    ]),
    Some(&[
        PoolBudget {
            nodes: "1",
            reasons: &["Underutilized"],
            ..ALL
        },
        PoolBudget {
            nodes: "50%",
            reasons: &["Empty", "Drifted"],
            ..ALL
        },
    ]),
    Some(&[PoolBudget { nodes: "30%", ..ALL }]),
    Some(&[
        ALL,
        PoolBudget {
            nodes: "5",
            reasons: &["Underutilized"],
            force: Force::Unreadable,
        },
    ]),
];

impl Scene {
    /// The world of a seed. What it is about goes by its number, so that of ten in a row each is about something else; the rest is chance.
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let turn = (seed % 10) as usize;
        let has_exact_delays = dice.below(3) == 0;
        let packs = dice.below(2) == 0;
        let warmup_ms = if dice.below(2) == 0 { HOUR } else { 0 };
        // Where nodes are to become old, none is taken back.
        let has_interruptions = (dice.below(2) == 0 || turn.is_multiple_of(5)) && turn != 8;
        let is_short = dice.below(3) == 0 || turn == 5;
        let shortage = Some(1 + dice.below(4)).filter(|_| is_short);
        let has_daemons = dice.below(2) == 0;
        let has_batch = dice.below(2) == 0;
        let mut pools = vec![pool(&mut dice, turn, has_interruptions, false)];
        if has_batch {
            pools.push(pool(&mut dice, turn, has_interruptions, true));
        }
        let count = 3 + dice.below(3);
        let workloads = (0..count).map(|index| workload(&mut dice, turn, index, has_batch));
        let mut workloads: Vec<Workload> = workloads.collect();
        let shared = shared(seed, &mut workloads);
        Scene {
            types: types(),
            pools,
            restriction: restriction(turn),
            workloads,
            shared,
            warmup_ms,
            shortage,
            has_interruptions,
            has_daemons,
            has_exact_delays,
            packs,
            rounds: dice.below(4) != 0,
            spot_to_spot: dice.below(2) == 0,
        }
    }
}

/// What is for sale. Of a type no two offerings cost the same: the price of another one would be noticed.
pub fn types() -> Arc<[InstanceType]> {
    let mut types = spokeshave_example::fake_instance_types(8);
    for one in &mut types {
        // Spot comes first.
        for (tenths, offering) in (7..).zip(&mut one.offerings) {
            offering.price.0 = offering.price.0 / 10 * tenths;
        }
    }
    types.into()
}

fn pool(dice: &mut Dice, turn: usize, has_interruptions: bool, is_batch: bool) -> Pool {
    static ANY: [&[&str]; 3] = [&["on-demand"], &["spot"], &["spot", "on-demand"]];
    let capacity_types = *dice.pick(&ANY[usize::from(has_interruptions)..]);
    let consolidate_after_ms = *dice.pick(&[0, 30 * SECOND, 5 * MINUTE]);
    let when_empty = dice.below(6) == 0;
    let expires = dice.below(4) == 0 || turn == 8;
    let has_grace = dice.below(2) == 0;
    let drawn = dice.below(BUDGETS.len());
    let budgets = BUDGETS[if is_batch { drawn } else { turn % BUDGETS.len() }];
    Pool {
        name: if is_batch { "batch" } else { "default" },
        capacity_types,
        is_batch,
        consolidate_after_ms,
        when_empty,
        expire_after_ms: expires.then_some(90 * MINUTE),
        termination_grace_ms: (expires && has_grace).then_some(10 * MINUTE),
        budgets,
        limit_millicores: (turn == 3).then_some(24_000),
    }
}

fn restriction(turn: usize) -> Option<Restriction> {
    Some(match turn {
        1 => Restriction::Freeze { until_ms: HOUR },
        2 => Restriction::Window {
            from_ms: 30 * MINUTE,
            to_ms: 3 * HOUR,
        },
        4 => Restriction::Hold {
            duration_ms: 10 * MINUTE,
        },
        5 => Restriction::PerHour { nodes: 4 },
        6 => Restriction::PerZone { nodes: 1 },
        7 => Restriction::OneZone,
        8 => Restriction::SoftExpiry {
            percent: 30,
            nodes: 1,
        },
        9 => Restriction::Workloads,
        _ => return None,
    })
}

fn workload(dice: &mut Dice, turn: usize, index: usize, has_batch: bool) -> Workload {
    let drawn = *dice.pick(&[
        OwnerKind::Deployment,
        OwnerKind::Deployment,
        OwnerKind::StatefulSet,
        OwnerKind::Job,
    ]);
    let is_set = (turn, index) == (9, 0);
    let kind = if is_set { OwnerKind::StatefulSet } else { drawn };
    let millicores = *dice.pick(&[100, 500, 1_000, 2_500]);
    let budget = budget(kind, dice.below(4));
    let is_protected = dice.below(6) == 0;
    let is_quiet = dice.below(2) == 0 || index == 1;
    let is_critical = dice.below(4) == 0;
    let is_batch = dice.below(3) == 0 && has_batch;
    let rule = rule(dice, turn, index);
    let has_volumes = dice.below(2) == 0 && kind == OwnerKind::StatefulSet;
    let mut events = Vec::new();
    for step in 0..5 {
        let at_ms = step * 40 * MINUTE + dice.below(600) as u64 * SECOND;
        if kind == OwnerKind::Job {
            for nth in 0..dice.below(6) as u64 {
                let runs_ms = Some(dice.below(3_000) as u64 * SECOND);
                let pod = step * 10 + nth;
                events.push((at_ms, Change::Begin { pod, runs_ms }));
            }
        } else {
            events.push((at_ms, Change::Replicas(dice.below(9) as u32)));
        }
    }
    Workload {
        name: format!("w{index}"),
        kind,
        millicores,
        budget,
        is_protected,
        quiet_ms: (turn == 9 && is_quiet).then_some(30 * MINUTE),
        is_critical,
        is_batch,
        rule,
        has_volumes,
        events,
    }
}

/// Of a Job nobody knows how many pods there are to be: only a number that has to stay lets any go.
fn budget(kind: OwnerKind, drawn: usize) -> Option<Budget> {
    let most = |text: &str| Some(Budget::MaxUnavailable(text.to_owned()));
    let least = |text: &str| Some(Budget::MinAvailable(text.to_owned()));
    match (kind, drawn) {
        (OwnerKind::Job, 3) => least("1"),
        (OwnerKind::Job, _) | (_, 0) => None,
        (_, 1) => most("1"),
        (_, 2) => most("50%"),
        _ => least("50%"),
    }
}

/// In one world of ten, two workloads or three have one budget. In some of these one has its own as well, and none of its pods may be evicted. The dice are
/// others, so that the rest of the world does not depend on them.
fn shared(seed: u64, workloads: &mut [Workload]) -> Option<Shared> {
    const OTHER_DICE: u64 = 0x5ba2_ed07;
    if seed % 10 != 3 {
        return None;
    }
    let mut dice = Dice(seed ^ OTHER_DICE);
    let amounts = [
        Budget::MaxUnavailable("1".to_owned()),
        Budget::MaxUnavailable("50%".to_owned()),
        Budget::MinAvailable("2".to_owned()),
        Budget::MinAvailable("50%".to_owned()),
    ];
    let amount = dice.pick(&amounts).clone();
    let over: Vec<usize> = (0..2 + dice.below(2)).collect();
    let keeps_own = dice.below(4) == 0;
    for one in &over[usize::from(keeps_own)..] {
        workloads[*one].budget = None;
    }
    Some(Shared { amount, over })
}

fn rule(dice: &mut Dice, turn: usize, index: usize) -> Rule {
    let drawn = dice.below(7);
    let most = 1 + dice.below(2) as i64;
    // Spot capacity is for sale in no other.
    let zone = *dice.pick(&["test-zone-1", "test-zone-2"]);
    let is_near_first = dice.below(2) == 0;
    let which = if index == 0 { turn % 5 } else { drawn };
    match which {
        0 => Rule::Spread {
            over: Key::Zone,
            most,
        },
        1 => Rule::Spread {
            over: Key::Host,
            most,
        },
        2 => Rule::Apart,
        3 => Rule::Near(if is_near_first { 0 } else { index }),
        4 => Rule::Zone(zone),
        _ => Rule::None,
    }
}
