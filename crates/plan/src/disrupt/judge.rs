//! What is said about one node: what the first method that would act on it alone would do, and otherwise the smallest set of things in the way.
//!
//! Blockers are found by thinking hurdles away one after another until a method acts, and then putting back each one that is not needed.

use super::budgets::PoolBudget;
use super::candidates::{Candidate, DisruptionClass, checked};
use super::command::{Decision, Method};
use super::consolidate::{Alone, Brief};
use super::emptiness;
use super::evaluate::{self, price_after, qualifies};
use super::ground::{Ground, drifted_since};
use super::hurdle::{Hurdle, Lifted, Stop};
use super::simulate::WhatIf;
use super::verdict::{Blocker, Counterfactual, Verdict};
use super::{balanced, drift, render};
use spokeshave_api::DisruptionReason;
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use spokeshave_model::{Price, Resources};
use spokeshave_schedule::PackOptions;
use std::collections::BTreeSet;

/// The Snapshot as if no NodePool had limits; made when first needed.
pub(super) type Unlimited = std::sync::OnceLock<Snapshot>;

/// What a method would do to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Act {
    decision: Decision,
    price_after: Price,
    replacement: Option<String>,
}

impl Act {
    fn of(brief: Brief) -> Self {
        Act {
            decision: decision(brief.replacement.is_some()),
            price_after: brief.price_after,
            replacement: brief.replacement,
        }
    }
}

/// Judges nodes of one pass. One per thread.
pub(super) struct Judge<'g, 'a> {
    ground: &'g Ground<'a>,
    options: &'a PackOptions,
    unlimited: &'a Unlimited,
    /// As consolidation sees the cluster.
    settled: WhatIf<'a>,
    /// As drift sees it: nodes inside their consolidateAfter window take pods.
    open: Option<WhatIf<'a>>,
    /// Without limits.
    boundless: Option<WhatIf<'a>>,
    has_limits: bool,
}

impl<'g, 'a> Judge<'g, 'a> {
    pub(super) fn new(
        ground: &'g Ground<'a>,
        options: &'a PackOptions,
        unlimited: &'a Unlimited,
        settled: WhatIf<'a>,
    ) -> Self {
        let has_limits = ground.snapshot.pools.iter().any(|pool| !pool.limits.is_empty());
        Judge {
            ground,
            options,
            unlimited,
            settled,
            open: None,
            boundless: None,
            has_limits,
        }
    }

    /// What-ifs done so far.
    pub(super) fn statistics(&self) -> super::DisruptStatistics {
        let mut sum = self.settled.statistics;
        for other in [&self.open, &self.boundless].into_iter().flatten() {
            sum.add(other.statistics);
        }
        sum
    }

    /// The verdict on a node. `alone` is what consolidation has found out about it already.
    pub(super) fn verdict(&mut self, node: NodeId, alone: Option<&Alone<'_>>) -> Verdict {
        let view = self.ground.snapshot.node(node);
        let price = view.price;
        let mut refusals: Vec<(Method, Stop)> = Vec::new();
        for method in METHODS {
            let known = alone.filter(|_| method == Method::SingleNodeConsolidation);
            let nothing = Lifted::new();
            let answer = match known {
                Some(alone) => self.known(node, alone),
                None => self.act(method, node, &nothing),
            };
            match answer {
                Ok(act) => return acts(node, method, price, act),
                Err(stop) if stop.hurdle == Hurdle::NotApplicable => {}
                Err(stop) => refusals.push((method, stop)),
            }
        }
        let keep = |blockers: Vec<Blocker>, if_removed: Option<Counterfactual>| Verdict {
            node,
            decision: Decision::NoOp,
            method: None,
            price_before: price,
            price_after: price,
            replacement: None,
            blockers,
            waits: None,
            if_removed,
            by_on_demand: false,
            price_unknown: false,
        };
        let mut best: Option<(Vec<Stop>, Counterfactual)> = None;
        let mut fixed: Option<Stop> = None;
        for (method, stop) in refusals {
            match self.minimal(method, node, stop) {
                Ok((stops, act)) => {
                    if best.as_ref().is_none_or(|(known, _)| stops.len() < known.len()) {
                        best = Some((stops, counterfactual(method, price, act)));
                    }
                }
                Err(stop) => {
                    fixed.get_or_insert(stop);
                }
            }
        }
        match (best, fixed) {
            (Some((stops, then)), _) => {
                let blockers = stops
                    .iter()
                    .map(|stop| render::blocker(self.ground, node, stop))
                    .collect();
                keep(blockers, Some(then))
            }
            (None, Some(stop)) => keep(vec![render::blocker(self.ground, node, &stop)], None),
            (None, None) => keep(
                vec![render::blocker(self.ground, node, &Hurdle::StaticPool.into())],
                None,
            ),
        }
    }

    /// The smallest set of hurdles whose absence lets the method act, with what it would do then; or the one that cannot be thought away.
    fn minimal(&mut self, method: Method, node: NodeId, first: Stop) -> Result<(Vec<Stop>, Act), Stop> {
        let mut stops: Vec<Stop> = Vec::new();
        let mut stop = first;
        let mut act = loop {
            if !stop.hurdle.is_removable() || stops.iter().any(|known| known.hurdle == stop.hurdle) {
                return Err(stop);
            }
            if let Some(found) = self.by_side_door(method, node, &mut stops, &stop) {
                break found;
            }
            stops.push(stop);
            match self.act(method, node, &lifted(&stops, None)) {
                Ok(act) => break act,
                Err(next) => stop = next,
            }
        };
        let mut index = 0;
        while stops.len() > 1 && index < stops.len() {
            match self.act(method, node, &lifted(&stops, Some(index))) {
                Ok(without) => {
                    act = without;
                    stops.remove(index);
                }
                Err(_) => index += 1,
            }
        }
        Ok((stops, act))
    }

    /// A node whose pods have no place, or no cheap one, may be kept by neighbours that may not take pods now, or by a limit: one thing to change
    /// instead of many.
    fn by_side_door(
        &mut self,
        method: Method,
        node: NodeId,
        stops: &mut Vec<Stop>,
        stop: &Stop,
    ) -> Option<Act> {
        let about_places = matches!(
            stop.hurdle,
            Hurdle::Pod(_) | Hurdle::NotCheaper | Hurdle::UnknownPrice | Hurdle::TooManyReplacements
        );
        if !about_places {
            return None;
        }
        let withheld = method == Method::SingleNodeConsolidation && !self.ground.withheld.is_empty();
        let doors = [
            (withheld, Hurdle::Neighbours),
            (
                self.has_limits && matches!(stop.hurdle, Hurdle::Pod(_)),
                Hurdle::Limits,
            ),
        ];
        for (_, hurdle) in doors.into_iter().filter(|(is_there, _)| *is_there) {
            if stops.iter().any(|known| known.hurdle == hurdle) {
                continue;
            }
            stops.push(hurdle.into());
            if let Ok(act) = self.act(method, node, &lifted(stops, None)) {
                return Some(act);
            }
            stops.pop();
        }
        None
    }

    /// What consolidation found out already, with the checks that it leaves to the caller.
    fn known(&self, node: NodeId, alone: &Alone<'_>) -> Result<Act, Stop> {
        let brief = alone.answer().map_err(Stop::clone)?.clone();
        self.within_budget(Method::SingleNodeConsolidation, node, &Lifted::new())?;
        Ok(Act::of(brief))
    }

    /// What a method would do to the node alone, as if the lifted hurdles were not there.
    fn act(&mut self, method: Method, node: NodeId, lifted: &Lifted) -> Result<Act, Stop> {
        match method {
            Method::Emptiness => self.empty(node, lifted),
            Method::StaticDrift | Method::StaticExpiry => self.static_replacement(method, node, lifted),
            Method::Drift | Method::Expiry => self.replacement(method, node, lifted),
            Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => {
                self.consolidate(node, lifted)
            }
        }
    }

    fn graceful(&self, node: NodeId, lifted: &Lifted) -> Result<Candidate, Stop> {
        let ground = self.ground;
        checked(
            ground.snapshot,
            node,
            DisruptionClass::Graceful,
            ground.now,
            lifted,
        )
        .map_err(Stop::from)
    }

    fn empty(&mut self, node: NodeId, lifted: &Lifted) -> Result<Act, Stop> {
        if self.ground.snapshot.disruption_cost(node) > spokeshave_model::pod::EVICTION_COST_UNIT {
            return Err(Hurdle::NotApplicable.into());
        }
        let candidate = self.graceful(node, lifted)?;
        emptiness::empty(self.ground.snapshot, &candidate, lifted)?;
        self.within_budget(Method::Emptiness, node, lifted)?;
        let pods = left(self.ground.snapshot, &candidate, lifted);
        if !pods.is_empty() {
            self.settled
                .without(&[node], &pods, |moved| emptiness::places(moved, lifted))?;
        }
        Ok(Act {
            decision: Decision::Delete,
            price_after: Price::ZERO,
            replacement: None,
        })
    }

    /// Neither drifted nor old, as the method asks.
    fn is_out(&self, method: Method, node: NodeId) -> bool {
        let is_drift = method.reason() == DisruptionReason::Drifted;
        is_drift && drifted_since(self.ground.snapshot.node(node)).is_none() || !self.ground.has(method)
    }

    fn static_replacement(&self, method: Method, node: NodeId, lifted: &Lifted) -> Result<Act, Stop> {
        let snapshot = self.ground.snapshot;
        if self.is_out(method, node) {
            return Err(Hurdle::NotApplicable.into());
        }
        let candidate = drift::candidate(self.ground, method, node, lifted)?;
        let headroom = drift::static_headroom(self.ground, candidate.pool);
        if headroom <= 0 && !lifted.contains(&Hurdle::StaticHeadroom) {
            let text = if drift::has_excess(self.ground, candidate.pool) {
                "its static NodePool has more nodes than replicas, and a scale-down comes first"
            } else {
                "its static NodePool has no headroom for a replacement"
            };
            return Err(Stop::new(Hurdle::StaticHeadroom, text));
        }
        self.within_budget(method, node, lifted)?;
        let claim = drift::static_claim(snapshot, candidate.pool, 1);
        Ok(Act {
            decision: Decision::Replace,
            price_after: price_after(
                candidate.price,
                claim.launches.first().map(|launch| launch.price).into_iter(),
            ),
            replacement: first_type(snapshot, &claim),
        })
    }

    fn replacement(&mut self, method: Method, node: NodeId, lifted: &Lifted) -> Result<Act, Stop> {
        let snapshot = self.ground.snapshot;
        if self.is_out(method, node) {
            return Err(Hurdle::NotApplicable.into());
        }
        let candidate = drift::candidate(self.ground, method, node, lifted)?;
        self.within_budget(method, node, lifted)?;
        let pods = left(self.ground.snapshot, &candidate, lifted);
        let what_if = if lifted.contains(&Hurdle::Limits) {
            self.boundless()
        } else {
            self.open()
        };
        let plan = what_if.without(&[node], &pods, |moved| drift::evaluate(moved, &candidate))?;
        Ok(Act {
            decision: decision(!plan.claims.is_empty()),
            price_after: plan.price_after,
            replacement: plan.claims.first().and_then(|claim| first_type(snapshot, claim)),
        })
    }

    fn consolidate(&mut self, node: NodeId, lifted: &Lifted) -> Result<Act, Stop> {
        let ground = self.ground;
        let candidate = self.graceful(node, lifted)?;
        qualifies(ground.snapshot, &candidate, lifted)?;
        self.within_budget(Method::SingleNodeConsolidation, node, lifted)?;
        if !lifted.contains(&Hurdle::Score) && !balanced::best_case_passes(ground, &candidate) {
            let scores = balanced::scores(ground, &[&candidate], candidate.price);
            let text = scores.first().map(super::PoolScore::text).unwrap_or_default();
            return Err(Stop::new(Hurdle::Score, text));
        }
        let pods = left(self.ground.snapshot, &candidate, lifted);
        let what_if = if lifted.contains(&Hurdle::Limits) {
            self.boundless()
        } else if lifted.contains(&Hurdle::Neighbours) {
            self.open()
        } else {
            &mut self.settled
        };
        let brief = evaluate::what_if(
            ground,
            what_if,
            &[&candidate],
            &pods,
            lifted,
            &mut None,
            |_, plan| Brief::of(ground.snapshot, &plan),
        )?;
        Ok(Act::of(brief))
    }

    fn within_budget(&self, method: Method, node: NodeId, lifted: &Lifted) -> Result<(), Stop> {
        let pool = self.ground.snapshot.node(node).pool;
        let budget = self.ground.budget(&method.reason());
        if lifted.contains(&Hurdle::Budget) || pool.is_some_and(|pool| budget.remaining(pool) > 0) {
            let rule = budget.policies.blocker(node);
            let rule = rule.filter(|_| !lifted.contains(&Hurdle::DisruptionPolicy));
            return rule.map_or(Ok(()), |rule| {
                Err(Stop::new(Hurdle::DisruptionPolicy, rule.text(node)))
            });
        }
        let text = pool
            .and_then(|pool| budget.pools.get(&pool))
            .map(|budget| budget_text(budget, &method.reason().to_string()))
            .unwrap_or_default();
        Err(Stop::new(Hurdle::Budget, text))
    }

    fn open(&mut self) -> &mut WhatIf<'a> {
        let (ground, options) = (self.ground, self.options);
        self.open
            .get_or_insert_with(|| WhatIf::new(ground.snapshot, options, ground.now, &BTreeSet::new()))
    }

    fn boundless(&mut self) -> &mut WhatIf<'a> {
        let (ground, options) = (self.ground, self.options);
        let snapshot = self.unlimited.get_or_init(|| {
            let mut snapshot = ground.snapshot.clone();
            for pool in &mut snapshot.pools {
                pool.limits = Resources::new();
            }
            snapshot
        });
        self.boundless
            .get_or_insert_with(|| WhatIf::new(snapshot, options, ground.now, &ground.withheld))
    }
}

/// The methods that act on single nodes, in order.
const METHODS: [Method; 6] = [
    Method::Emptiness,
    Method::StaticDrift,
    Method::Drift,
    Method::StaticExpiry,
    Method::Expiry,
    Method::SingleNodeConsolidation,
];

fn budget_text(budget: &PoolBudget, reason: &str) -> String {
    match &budget.error {
        Some(error) => format!("a budget cannot be evaluated, so nothing is disrupted as {reason}: {error}"),
        None => format!(
            "budgets allow {} of {} to be disrupted as {reason} now, {} already are",
            budget
                .allowed
                .min(i64::try_from(budget.nodes).unwrap_or(i64::MAX)),
            crate::report::count(budget.nodes, "node"),
            budget.disrupting
        ),
    }
}

fn acts(node: NodeId, method: Method, price: Price, act: Act) -> Verdict {
    Verdict {
        node,
        decision: act.decision,
        method: Some(method),
        price_before: price,
        price_after: act.price_after,
        replacement: act.replacement,
        blockers: Vec::new(),
        waits: None,
        if_removed: None,
        by_on_demand: false,
        price_unknown: false,
    }
}

fn counterfactual(method: Method, price: Price, act: Act) -> Counterfactual {
    Counterfactual {
        decision: act.decision,
        method,
        price_before: price,
        price_after: act.price_after,
        replacement: act.replacement,
    }
}

fn decision(has_replacement: bool) -> Decision {
    if has_replacement {
        Decision::Replace
    } else {
        Decision::Delete
    }
}

fn first_type(snapshot: &Snapshot, claim: &spokeshave_model::placement::PlannedClaim) -> Option<String> {
    let launch = claim.launches.first()?;
    Some(
        snapshot.pool(claim.pool).instance_types[launch.instance_type]
            .name
            .clone(),
    )
}

/// All hurdles but one.
fn lifted(stops: &[Stop], but: Option<usize>) -> Lifted {
    let others = stops.iter().enumerate().filter(|(index, _)| Some(*index) != but);
    others.map(|(_, stop)| stop.hurdle).collect()
}

/// The pods that need a place, without those that are thought away.
fn left(snapshot: &Snapshot, candidate: &Candidate, lifted: &Lifted) -> Vec<PodId> {
    let pods = candidate.moving(snapshot).into_owned().into_iter();
    pods.filter(|pod| !lifted.contains(&Hurdle::Pod(*pod))).collect()
}
