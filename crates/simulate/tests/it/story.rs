//! A story of a small cluster, as the fast engine might tell it: it breaks no promise.
//!
//! Owns the log, the world that it is of, and what comes of it, by hand.

use spokeshave_scenario::{Budget, Change, OwnerKind};
use spokeshave_simulate::{Curve, Engine, Measured, Run, WorkDone};

use crate::promises::Lived;
use crate::promises::report::Entry;
use crate::promises::worlds::{self, Force, MINUTE, Pool, PoolBudget, Rule, Scene, Workload};

/// Three pods on two nodes; a command puts them on one that is cheaper; that expires, and they move to another; they go, and it goes as empty.
pub const STORY: &str = "\
0 born shop/w0-0000000
0 born shop/w0-0000001
0 born shop/w1-0
1000 nodeclaim default-a
1000 nodeclaim default-b
2000 launched default-a fake-it-1 on-demand 0.566547048 test-zone-1
2000 launched default-b fake-it-1 on-demand 0.62949672 test-zone-2
40000 joined default-a
40000 joined default-b
45000 ready default-a
45000 bound shop/w0-0000000 default-a
45000 bound shop/w1-0 default-a
46000 ready default-b
46000 bound shop/w0-0000001 default-b
50000 started shop/w0-0000000
50000 started shop/w0-0000001
50000 started shop/w1-0
200000 command k1 MultiNodeConsolidation nodes=default-a,default-b replacements=default-c savings=0.346223187
200000 nodeclaim default-c k1
200000 phase k1 Replacing
202000 launched default-c fake-it-2 on-demand 0.849820581 test-zone-1
240000 joined default-c
245000 ready default-c
245000 phase k1 Deleting
246000 phase k1 Draining
246000 evicted shop/w0-0000000 Underutilized
246000 stopping shop/w0-0000000
246000 born shop/w0-0000002
246000 bound shop/w0-0000002 default-c
246000 evicted shop/w1-0 Underutilized
246000 stopping shop/w1-0
247000 left shop/w0-0000000
247000 left shop/w1-0
247000 born shop/w1-0
247000 bound shop/w1-0 default-c
250000 started shop/w0-0000002
250000 started shop/w1-0
251000 evicted shop/w0-0000001 Underutilized
251000 stopping shop/w0-0000001
251000 born shop/w0-0000003
251000 bound shop/w0-0000003 default-c
252000 left shop/w0-0000001
255000 started shop/w0-0000003
256000 ended default-a
256000 gone default-a
258000 ended default-b
258000 gone default-b
258000 phase k1 Succeeded
5600000 expired default-c
5600000 evicted shop/w0-0000002 Forceful Termination
5600000 stopping shop/w0-0000002
5600000 born shop/w0-0000004
5601000 left shop/w0-0000002
5601000 nodeclaim default-d
5603000 launched default-d fake-it-2 on-demand 0.849820581 test-zone-1
5640000 joined default-d
5645000 ready default-d
5645000 bound shop/w0-0000004 default-d
5650000 started shop/w0-0000004
5650000 evicted shop/w0-0000003 Forceful Termination
5650000 stopping shop/w0-0000003
5650000 born shop/w0-0000005
5650000 bound shop/w0-0000005 default-d
5650000 evicted shop/w1-0 Forceful Termination
5650000 stopping shop/w1-0
5651000 left shop/w0-0000003
5651000 left shop/w1-0
5651000 born shop/w1-0
5651000 bound shop/w1-0 default-d
5655000 started shop/w0-0000005
5655000 started shop/w1-0
5660000 ended default-c
5660000 gone default-c
6000000 stopping shop/w0-0000004
6000000 stopping shop/w0-0000005
6000000 stopping shop/w1-0
6001000 left shop/w0-0000004
6001000 left shop/w0-0000005
6001000 left shop/w1-0
6055000 command k2 Emptiness nodes=default-d replacements= savings=0.849820581
6055000 phase k2 Deleting
6056000 phase k2 Draining
6066000 ended default-d
6066000 gone default-d
6066000 phase k2 Succeeded
";

pub const ANY: PoolBudget = PoolBudget {
    nodes: "2",
    reasons: &[],
    force: Force::Always,
};

const TWO: &[PoolBudget] = &[ANY];

fn workload(name: &str, kind: OwnerKind, millicores: i64, replicas: u32) -> Workload {
    Workload {
        name: name.to_owned(),
        kind,
        millicores,
        budget: None,
        is_protected: false,
        quiet_ms: None,
        is_critical: false,
        is_batch: false,
        rule: Rule::None,
        has_volumes: false,
        events: vec![(0, Change::Replicas(replicas)), (6_000_000, Change::Replicas(0))],
    }
}

/// The world of the story.
pub fn scene() -> Scene {
    let mut web = workload("w0", OwnerKind::Deployment, 1_000, 2);
    web.budget = Some(Budget::MaxUnavailable("1".to_owned()));
    let mut db = workload("w1", OwnerKind::StatefulSet, 500, 1);
    db.has_volumes = true;
    let pool = Pool {
        name: "default",
        capacity_types: &["on-demand"],
        is_batch: false,
        consolidate_after_ms: 30_000,
        when_empty: false,
        expire_after_ms: Some(90 * MINUTE),
        termination_grace_ms: Some(10 * MINUTE),
        budgets: Some(TWO),
        limit_millicores: None,
    };
    Scene {
        types: worlds::types(),
        pools: vec![pool],
        restriction: None,
        workloads: vec![web, db],
        shared: None,
        warmup_ms: 0,
        shortage: None,
        has_interruptions: false,
        has_daemons: false,
        has_exact_delays: false,
        packs: false,
        spot_to_spot: false,
        rounds: true,
    }
}

/// The life that a log tells of. What it costs: 254 s of a, 256 s of b, 5,458 s of c and 463 s of d.
pub fn lived(log: &str) -> Lived {
    let lines = log.lines().map(|line| {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        Entry {
            at_ms: word().parse().unwrap(),
            what: word(),
            of: word(),
            more: word(),
        }
    });
    let measured = Measured {
        cost_on_demand_micros: 1_482_456,
        node_ms: 6_431_000,
        launches: 4,
        commands: 2,
        evictions_voluntary: 3,
        evictions_involuntary: 3,
        ..Measured::default()
    };
    let run = Run {
        policy: "now".to_owned(),
        seed: 1,
        engine: Engine::Fast,
        measured,
        curve: Curve::default(),
        digest: String::new(),
        work: WorkDone::default(),
        partial: false,
    };
    Lived {
        run,
        log: lines.collect(),
        claims: Vec::new(),
    }
}
