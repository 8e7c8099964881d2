//! Policy `Balanced`: is what a command saves worth the disruption (D §4.10). Integers only; scores are compared by cross-multiplication.

use super::candidates::Candidate;
use super::ground::Ground;
use super::outcome::PoolScore;
use super::register::Register;
use spokeshave_api::ConsolidationPolicy;
use spokeshave_model::Price;
use spokeshave_model::pod::EVICTION_COST_UNIT;
use spokeshave_model::snapshot::{NodeView, PoolId, Snapshot};
use std::collections::BTreeMap;

/// The threshold is one over this (D-173).
const K: i128 = 2;

/// What a whole NodePool costs, in money and in disruption (D-172).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) cost: Price,
    pub(super) disruption: i64,
}

/// Computed from the nodes and prices of the Snapshot (W-39, W-58).
pub(super) fn totals(register: &Register) -> BTreeMap<PoolId, Totals> {
    let mut totals: Vec<Option<Totals>> = Vec::new();
    for (node, entry) in register.entries() {
        let Some(pool) = entry.pool else { continue };
        if totals.len() <= pool.index() {
            totals.resize(pool.index() + 1, None);
        }
        let total = totals[pool.index()].get_or_insert_default();
        if entry.is_managed {
            total.cost = total.cost.saturating_add(entry.price);
        }
        total.disruption = total.disruption.saturating_add(register.disruption_of(node));
    }
    let known = (0..).map(PoolId).zip(totals);
    known.filter_map(|(pool, total)| Some((pool, total?))).collect()
}

/// D-057.
pub(super) fn cost_of_other(snapshot: &Snapshot, view: &NodeView) -> i64 {
    let pods = view.present_pods().iter().map(|pod| snapshot.pod(*pod));
    pods.filter(|pod| !pod.daemon && !pod.terminal)
        .map(|pod| i64::from(pod.eviction_cost.max(0)))
        .fold(EVICTION_COST_UNIT, i64::saturating_add)
}

/// The score of a command for every NodePool that it takes nodes from (D-173…D-175).
pub(super) fn scores(ground: &Ground<'_>, set: &[&Candidate], savings: Price) -> Vec<PoolScore> {
    let all: i128 = set.iter().map(|candidate| i128::from(candidate.price.0)).sum();
    let mut pools: BTreeMap<PoolId, (i128, i64)> = BTreeMap::new();
    for candidate in set {
        let (price, disruption) = pools.entry(candidate.pool).or_default();
        *price += i128::from(candidate.price.0);
        *disruption = disruption.saturating_add(candidate.disruption_cost);
    }
    let single = pools.len() == 1;
    let score = |(pool, (price, disruption_cost)): (PoolId, (i128, i64))| {
        let view = ground.snapshot.pool(pool);
        let policy = &view.object.spec.disruption.consolidation_policy;
        let totals = ground.totals.get(&pool).copied().unwrap_or_default();
        let share = if single || all == 0 {
            savings
        } else {
            Price(i64::try_from(i128::from(savings.0) * price / all).unwrap_or(i64::MAX))
        };
        let mut score = PoolScore {
            pool: view.name.clone(),
            policy: policy.as_str().to_owned(),
            approved: true,
            savings: share,
            total_cost: totals.cost,
            disruption_cost,
            total_disruption_cost: totals.disruption,
        };
        if *policy == ConsolidationPolicy::Balanced {
            score.approved = score.is_enough();
        }
        score
    };
    pools.into_iter().map(score).collect()
}

/// Whether the NodePool asks for a score.
pub(super) fn is_balanced(ground: &Ground<'_>, pool: PoolId) -> bool {
    let policy = &ground
        .snapshot
        .pool(pool)
        .object
        .spec
        .disruption
        .consolidation_policy;
    *policy == ConsolidationPolicy::Balanced
}

/// The score of one node without the names, which are not asked for.
pub(super) fn alone(ground: &Ground<'_>, candidate: &Candidate, savings: Price) -> PoolScore {
    let totals = ground.totals.get(&candidate.pool).copied().unwrap_or_default();
    PoolScore {
        pool: String::new(),
        policy: String::new(),
        approved: true,
        savings,
        total_cost: totals.cost,
        disruption_cost: candidate.disruption_cost,
        total_disruption_cost: totals.disruption,
    }
}

/// Whether the NodePool asks for a better score than one node has that goes.
pub(super) fn is_low(ground: &Ground<'_>, candidate: &Candidate, savings: Price) -> bool {
    is_balanced(ground, candidate.pool) && !alone(ground, candidate, savings).is_enough()
}

/// D-177: whether a candidate could pass even if it were deleted and all of its price saved. Passes when there is nothing to compare with.
pub(super) fn best_case_passes(ground: &Ground<'_>, candidate: &Candidate) -> bool {
    if !is_balanced(ground, candidate.pool) {
        return true;
    }
    let known = ground
        .totals
        .get(&candidate.pool)
        .is_some_and(|totals| totals.cost > Price::ZERO);
    !known || alone(ground, candidate, candidate.price).is_enough()
}

impl PoolScore {
    /// D-173: savings share / total cost against disruption / total disruption cost.
    fn is_enough(&self) -> bool {
        if self.savings <= Price::ZERO || self.total_cost <= Price::ZERO || self.total_disruption_cost <= 0 {
            return false;
        }
        let gain = i128::from(self.savings.0) * i128::from(self.total_disruption_cost);
        let loss = i128::from(self.total_cost.0) * i128::from(self.disruption_cost);
        K * gain >= loss
    }

    /// The score, for metrics and texts only.
    pub fn score(&self) -> f64 {
        let fraction = |part: i64, whole: i64| part as f64 / whole as f64;
        if self.savings <= Price::ZERO || self.total_cost <= Price::ZERO || self.total_disruption_cost <= 0 {
            return 0.0;
        }
        fraction(self.savings.0, self.total_cost.0)
            / fraction(self.disruption_cost, self.total_disruption_cost)
    }

    /// D-178: `score 0.62 >= threshold 0.50 (k: 2, savings 1.5%, disruption 2.4%)`.
    pub fn text(&self) -> String {
        let percent = |part: i64, whole: i64| {
            if whole > 0 {
                part as f64 / whole as f64 * 100.0
            } else {
                0.0
            }
        };
        format!(
            "score {:.2} {} threshold 0.50 (k: 2, savings {:.1}%, disruption {:.1}%)",
            self.score(),
            if self.is_enough() { ">=" } else { "<" },
            percent(self.savings.0, self.total_cost.0),
            percent(self.disruption_cost, self.total_disruption_cost)
        )
    }
}
