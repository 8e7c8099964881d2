//! Convergence: consolidation judged over time, from creation times and the ledger of commands.
//!
//! Nodes that were launched rest, and so do those to which pods were moved: the longer, the more often they have been moved within a day. A NodePool that
//! grows again and again right after it has shrunk rests as a whole. What remains has to earn its restarts back in the time that savings of its
//! NodePool have lasted so far ([`Payback`]). Drift is never judged here.

use super::limits::{Detail, Left, Limit};
use super::memo::Memo;
use super::rules::{Scene, rule, selects};
use super::status;
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::disruption::{Disruption, DisruptionDecision, DisruptionPhase};
use spokeshave_api::disruption_policy::Convergence;
use spokeshave_api::{DisruptionReason, GoDuration};
use spokeshave_model::Price;
use spokeshave_model::snapshot::{NodeId, NodeView, PoolId, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// How far back the ledger is looked at.
pub(super) const DAY: SignedDuration = SignedDuration::from_hours(24);
const REST: SignedDuration = SignedDuration::from_mins(10);
const MAXIMUM_REST: SignedDuration = SignedDuration::from_hours(2);
const HORIZON: SignedDuration = SignedDuration::from_hours(4);
const RESTART_COST: Price = Price(5_000_000);
/// Empty nodes of a NodePool that rests are paid for and hold nothing: they rest so many times as long as one launch at most.
const MOST_FOR_EMPTY: i32 = 4;
/// Rests are doubled so many times at most.
const MOST_DOUBLINGS: u32 = 16;
/// How long after the end of a command its pods may still come back elsewhere.
const AFTERWARDS: SignedDuration = SignedDuration::from_secs(30);
/// So many times has a NodePool grown right after it had shrunk when that is more than chance.
const AGAIN: usize = 2;

/// The field under which oscillations are told.
pub const FIELD: &str = "spec.convergence";

/// What a policy asks for, with what is left out filled in.
struct Terms {
    rest: SignedDuration,
    maximum_rest: SignedDuration,
    restart_cost: Price,
    horizon: SignedDuration,
}

impl Terms {
    fn of(convergence: &Convergence) -> Self {
        let given = |duration: &Option<GoDuration>, otherwise: SignedDuration| {
            duration.as_ref().map_or(otherwise, GoDuration::to_signed)
        };
        let rest = given(&convergence.rest, REST);
        Terms {
            rest,
            maximum_rest: given(&convergence.maximum_rest, MAXIMUM_REST).max(rest),
            // What cannot be read is a fault, which stops all of it.
            restart_cost: restart_cost(convergence).unwrap_or(RESTART_COST),
            horizon: given(&convergence.horizon, HORIZON),
        }
    }

    /// After so many moves within a day.
    fn after(&self, moves: u32) -> SignedDuration {
        let doublings = moves.saturating_sub(1).min(MOST_DOUBLINGS);
        let rest = self
            .rest
            .checked_mul(1_i32 << doublings)
            .unwrap_or(SignedDuration::MAX);
        rest.min(self.maximum_rest)
    }
}

/// What a restart costs; `None` where that is no amount.
pub(super) fn restart_cost(convergence: &Convergence) -> Option<Price> {
    match &convergence.restart_cost {
        None => Some(RESTART_COST),
        Some(text) => text.parse().ok(),
    }
}

/// Pods that came to a node.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Timestamp,
    /// How often they have been moved within the day, this time included.
    moves: u32,
    /// The node came for one of the same type, or of a type on which its pods were before.
    is_swap: bool,
}

/// What the ledger and creation times tell, whatever policies ask for.
#[derive(Debug, Default)]
pub(super) struct Facts {
    arrivals: BTreeMap<NodeId, Arrival>,
    /// By name of NodePool: for how long each replacement of the day has stood until it was consolidated itself; none for those that still stand.
    stood: BTreeMap<String, Vec<Option<SignedDuration>>>,
    /// By name of NodePool: when commands deleted nodes for which nothing came.
    shrunk: BTreeMap<String, Vec<Timestamp>>,
    /// By name of NodePool: when nodes were launched that replace nothing, in order.
    grown: BTreeMap<String, Vec<Timestamp>>,
    /// From when until when pods of a command came back elsewhere.
    moving: Vec<(Timestamp, Timestamp)>,
}

/// When a command deleted its nodes, unless it was taken back.
pub(super) fn deleted_at(one: &Disruption) -> Option<Timestamp> {
    let deleted = one.status.as_ref()?.deleted_at.as_ref()?.0;
    (one.phase() != DisruptionPhase::RolledBack).then_some(deleted)
}

fn is_consolidation(one: &Disruption) -> bool {
    matches!(
        one.spec.reason,
        DisruptionReason::Empty | DisruptionReason::Underutilized
    )
}

/// Instance type and capacity type.
type Sort<'a> = (&'a str, &'a str);

/// For each replacement of a single node, by its NodeClaim: what its pods were on before, as far back as they were moved from replacement to replacement.
fn types_left<'a>(ledger: &[(&'a Disruption, Timestamp)]) -> BTreeMap<&'a str, BTreeSet<Sort<'a>>> {
    let mut left: BTreeMap<&str, BTreeSet<Sort<'_>>> = BTreeMap::new();
    for (one, _) in ledger.iter().filter(|(one, _)| is_consolidation(one)) {
        let ([gone], [new]) = (one.spec.nodes.as_slice(), one.spec.replacements.as_slice()) else {
            continue;
        };
        let mut before = left.get(gone.node_claim.as_str()).cloned().unwrap_or_default();
        if let (Some(of), Some(capacity)) = (&gone.instance_type, &gone.capacity_type) {
            before.insert((of, capacity));
        }
        left.insert(&new.node_claim, before);
    }
    left
}

impl Facts {
    pub(super) fn of(snapshot: &Snapshot, now: Timestamp) -> Self {
        let mut ledger: Vec<(&Disruption, Timestamp)> = snapshot
            .disruptions
            .iter()
            .filter_map(|one| Some((&**one, deleted_at(one)?)))
            .filter(|(_, at)| now.duration_since(*at) < DAY)
            .collect();
        ledger.sort_by_key(|(one, at)| (*at, one.metadata.name.clone()));
        let mut facts = Facts::default();
        facts.follow(snapshot, &ledger);
        let mut replacements = BTreeSet::new();
        for one in &snapshot.disruptions {
            replacements.extend(one.spec.replacements.iter().map(|new| new.node_claim.as_str()));
        }
        for node in snapshot.nodes.iter().filter(|node| node.is_managed()) {
            let Some(pool) = &node.pool_name else { continue };
            if node.claim_name().is_none_or(|name| !replacements.contains(name))
                && let Some(born) = claimed(node)
            {
                facts.grew(pool, born);
            }
        }
        for (one, at) in &ledger {
            for gone in &one.spec.nodes {
                let created = gone.created_at.as_ref().map(|time| time.0);
                if let Some(born) = created.filter(|_| !replacements.contains(gone.node_claim.as_str())) {
                    facts.grew(&gone.node_pool, born);
                }
            }
            if is_consolidation(one) && one.spec.decision == DisruptionDecision::Delete {
                let pools: BTreeSet<&str> = one
                    .spec
                    .nodes
                    .iter()
                    .map(|node| node.node_pool.as_str())
                    .collect();
                for pool in pools {
                    facts.shrunk.entry(pool.to_owned()).or_default().push(*at);
                }
            }
            if one.spec.evictions > 0 {
                let finished = one.status.as_ref().and_then(|status| status.finished_at.as_ref());
                let end = finished.map_or(now, |time| time.0).saturating_add(AFTERWARDS);
                facts.moving.push((*at, end.unwrap_or(Timestamp::MAX)));
            }
        }
        facts.compare_replacements(&ledger);
        facts.grown.values_mut().for_each(|times| times.sort_unstable());
        facts
    }

    /// A replacement saves until it is taken away itself.
    fn compare_replacements(&mut self, ledger: &[(&Disruption, Timestamp)]) {
        let judged = || ledger.iter().filter(|(one, _)| is_consolidation(one));
        let mut ended: BTreeMap<&str, Timestamp> = BTreeMap::new();
        for (one, at) in judged() {
            ended.extend(one.spec.nodes.iter().map(|node| (node.node_claim.as_str(), *at)));
        }
        for (one, at) in judged() {
            for new in &one.spec.replacements {
                let end = ended.get(new.node_claim.as_str());
                let stood = end.map(|end| end.duration_since(*at));
                self.stood.entry(new.node_pool.clone()).or_default().push(stood);
            }
        }
    }

    fn grew(&mut self, pool: &str, at: Timestamp) {
        match self.grown.get_mut(pool) {
            Some(times) => times.push(at),
            None => drop(self.grown.insert(pool.to_owned(), vec![at])),
        }
    }

    /// Follows pods from node to node: whoever takes those of a node that took others has taken them all.
    fn follow(&mut self, snapshot: &Snapshot, ledger: &[(&Disruption, Timestamp)]) {
        let mut by_name: BTreeMap<&str, Arrival> = BTreeMap::new();
        for (one, at) in ledger.iter().filter(|(one, _)| one.spec.evictions > 0) {
            let known = one.spec.nodes.iter().flat_map(|node| {
                let names = [node.name.as_str(), node.node_claim.as_str()];
                names.map(|name| by_name.get(name).map_or(0, |arrival| arrival.moves))
            });
            let moves = known.max().unwrap_or(0).saturating_add(1);
            let new = one.spec.replacements.iter().map(|new| new.node_claim.as_str());
            let old = one.spec.destinations.iter().map(String::as_str);
            for name in new.chain(old) {
                let arrival = by_name.entry(name).or_insert(Arrival {
                    at: *at,
                    moves,
                    is_swap: false,
                });
                (arrival.at, arrival.moves) = (*at, arrival.moves.max(moves));
            }
        }
        if by_name.is_empty() {
            return;
        }
        let left = types_left(ledger);
        for (id, node) in snapshot.node_ids().zip(&snapshot.nodes) {
            let names = [node.claim_name(), node.node_name()];
            let found = names.into_iter().flatten().filter_map(|name| by_name.get(name));
            let Some(mut arrival) = found.copied().max_by_key(|arrival| (arrival.moves, arrival.at)) else {
                continue;
            };
            let label = |key: &str| node.labels.get(key).map_or("", String::as_str);
            let own = (
                label(spokeshave_model::labels::INSTANCE_TYPE),
                label(spokeshave_model::labels::CAPACITY_TYPE),
            );
            let name = node.claim_name().unwrap_or_default();
            if left.get(name).is_some_and(|left| left.contains(&own)) {
                arrival.is_swap = true;
                arrival.moves = arrival.moves.saturating_add(1);
            }
            self.arrivals.insert(id, arrival);
        }
    }

    /// Launches of a NodePool within `within` of deletions, which they took back: how many, and when the last was. One counts once, however many deletions it
    /// came after: those of a round start together.
    fn regretted(&self, pool: &str, within: SignedDuration) -> (usize, Option<Timestamp>) {
        let shrunk = self.shrunk.get(pool).into_iter().flatten();
        let regrets = shrunk.filter_map(|at| {
            let next = self.next_growth(pool, *at)?;
            (next.duration_since(*at) < within).then_some(next)
        });
        let regrets: BTreeSet<Timestamp> = regrets.collect();
        (regrets.len(), regrets.last().copied())
    }

    /// From when until when pods of commands came back elsewhere, of those that were at it after `earliest`.
    fn moving_since(&self, earliest: Timestamp) -> Vec<(Timestamp, Timestamp)> {
        let all = self.moving.iter().copied();
        all.filter(|(_, until)| *until > earliest).collect()
    }

    fn next_growth(&self, pool: &str, after: Timestamp) -> Option<Timestamp> {
        let times = self.grown.get(pool)?;
        times.get(times.partition_point(|time| *time <= after)).copied()
    }

    /// How long savings of a NodePool have lasted: the middle one of the day's, none longer than the horizon.
    fn lasting(&self, pool: &str, horizon: SignedDuration) -> SignedDuration {
        let mut lasted: Vec<SignedDuration> = self
            .shrunk
            .get(pool)
            .into_iter()
            .flatten()
            .map(|at| {
                let ended = self.next_growth(pool, *at);
                ended.map_or(horizon, |ended| ended.duration_since(*at).min(horizon))
            })
            .collect();
        let stood = self.stood.get(pool).into_iter().flatten();
        lasted.extend(stood.map(|stood| stood.map_or(horizon, |stood| stood.min(horizon))));
        lasted.sort_unstable();
        lasted
            .get(lasted.len().saturating_sub(1) / 2)
            .copied()
            .unwrap_or(horizon)
    }
}

/// When the NodeClaim of a node was created.
pub(crate) fn claimed(node: &NodeView) -> Option<Timestamp> {
    let claim = node.claim.as_ref()?;
    claim.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// Nodes that rest, each until its own time.
#[derive(Default)]
struct Resting {
    details: BTreeMap<NodeId, Detail>,
}

impl Resting {
    /// Rests a node until `until`, if that is still to come and later than what it knows already.
    fn add(&mut self, now: Timestamp, node: NodeId, until: Timestamp, message: &str) {
        let is_later = self.details.get(&node).is_none_or(|known| known.until < until);
        if until > now && is_later {
            let message = message.to_owned();
            drop(self.details.insert(node, Detail { until, message }));
        }
    }

    /// As one rule, which stands until the first of them has rested.
    fn limit(self, scene: &Scene<'_>, field: &str, domain: Option<&str>, what: &str) -> Option<Limit> {
        let first = self.details.values().map(|detail| detail.until).min()?;
        let nodes = crate::report::count(self.details.len(), "node");
        let message = match domain {
            Some(_) => what.to_owned(),
            None => format!("at rest: {nodes} {what}"),
        };
        let mut stands = rule(
            scene,
            field,
            &message,
            scene.only(|node| self.details.contains_key(&node)),
        );
        stands.domain = domain.map(str::to_owned);
        stands.until = Some(first);
        stands.details = self.details;
        Some(Limit {
            rule: stands.into(),
            left: Left::Nothing,
        })
    }
}

/// Adds what rests now: empty nodes, or those whose pods have to move.
pub(super) fn add(
    scene: &Scene<'_>,
    convergence: &Convergence,
    facts: &Facts,
    is_empty: bool,
    limits: &mut Vec<Limit>,
) {
    let terms = Terms::of(convergence);
    let end = |at: Timestamp, rest: SignedDuration| at.saturating_add(rest).unwrap_or(Timestamp::MAX);
    let moving = facts.moving_since(scene.now.saturating_sub(terms.rest).unwrap_or(Timestamp::MIN));
    let (mut fresh, mut again) = (Resting::default(), Resting::default());
    for node in scene.snapshot.node_ids().filter(|node| scene.covers(*node)) {
        if let Some(born) = scene.memo.born(node) {
            fresh.add(scene.now, node, end(born, terms.rest), "it was launched recently");
        }
        let arrival = facts.arrivals.get(&node).filter(|_| !is_empty);
        if let Some(arrival) = arrival {
            let until = end(arrival.at, terms.after(arrival.moves));
            if arrival.is_swap {
                let text = "its pods were moved from its instance type to the same again, so that they rest";
                again.add(scene.now, node, until, text);
            } else if arrival.moves > 1 {
                let text = format!(
                    "its pods were moved {} times within a day, so that they rest",
                    arrival.moves
                );
                again.add(scene.now, node, until, &text);
            } else {
                fresh.add(scene.now, node, until, "pods were moved to it lately");
            }
        }
        if let Some(at) = came(scene, &moving, node).filter(|_| !is_empty) {
            fresh.add(
                scene.now,
                node,
                end(at, terms.rest),
                "pods were moved to it lately",
            );
        }
    }
    let rests = "launched recently, or with pods that were moved recently";
    limits.extend(fresh.limit(scene, &format!("{FIELD}.rest"), None, rests));
    limits.extend(again.limit(scene, FIELD, None, "with pods that are moved again and again"));
    let pools = scene.snapshot.pools.iter();
    for pool in pools.filter(|pool| selects(scene.policy, pool)) {
        limits.extend(to_and_fro(scene, &terms, facts, &pool.name, is_empty));
    }
}

/// When the last pod came to a node while pods of some command came back: pods are not known by name any more when they come back.
fn came(scene: &Scene<'_>, moving: &[(Timestamp, Timestamp)], node: NodeId) -> Option<Timestamp> {
    if moving.is_empty() {
        return None;
    }
    let pods = scene
        .snapshot
        .node(node)
        .pods
        .iter()
        .map(|pod| scene.snapshot.pod(*pod));
    let born = pods
        .filter(|pod| pod.reschedulable && !pod.is_virtual)
        .filter_map(|pod| pod.seniority.created())
        .filter(|born| moving.iter().any(|(from, until)| from <= born && born <= until));
    born.max()
}

/// A NodePool that has grown again and again right after it had shrunk rests as a whole.
fn to_and_fro(scene: &Scene<'_>, terms: &Terms, facts: &Facts, pool: &str, is_empty: bool) -> Option<Limit> {
    let (count, last) = facts.regretted(pool, terms.rest);
    let last = last.filter(|_| count >= AGAIN)?;
    let mut rest = terms.after(u32::try_from(count).unwrap_or(u32::MAX));
    if is_empty {
        rest = rest.min(terms.rest.saturating_mul(MOST_FOR_EMPTY));
    }
    let until = last.saturating_add(rest).unwrap_or(Timestamp::MAX);
    let text = format!(
        "NodePool {pool:?} was launching nodes again within {} after nodes had been taken away, {count} times within a day, so that it rests",
        status::minutes(terms.rest)
    );
    let mut resting = Resting::default();
    for node in scene.snapshot.node_ids().filter(|node| scene.covers(*node)) {
        if scene.snapshot.node(node).pool_name.as_deref() == Some(pool) {
            resting.add(scene.now, node, until, &text);
        }
    }
    resting.limit(scene, FIELD, Some(pool), &text)
}

/// What moves of one NodePool have to earn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payback {
    policy: String,
    restart_cost: Price,
    lasting: SignedDuration,
}

impl Payback {
    /// Whether a saving an hour is worth so many restarts; what is said otherwise.
    pub(crate) fn check(&self, savings: Price, restarts: usize) -> Result<(), String> {
        let earned = i128::from(savings.0) * i128::from(self.lasting.as_secs()) / 3600;
        let cost = i128::from(self.restart_cost.0) * i128::try_from(restarts).unwrap_or(i128::MAX);
        if earned >= cost {
            return Ok(());
        }
        // Restarts cost less than a cent: four decimals.
        let price = |nanos: i128| Price(i64::try_from(nanos - nanos % 100_000).unwrap_or(i64::MAX));
        Err(format!(
            "DisruptionPolicy {} ({FIELD}): moving {} costs ${}, and the saving earns ${} in the {} that savings of its NodePool last",
            self.policy,
            crate::report::count(restarts, "pod"),
            price(cost),
            price(earned),
            status::minutes(self.lasting)
        ))
    }
}

/// What moves have to earn, by NodePool; empty where no policy judges over time. Of several policies the dearest decides.
pub(crate) fn paybacks(snapshot: &Snapshot, memo: &Memo<'_>) -> BTreeMap<PoolId, Payback> {
    let judging = snapshot
        .disruption_policies
        .iter()
        .filter_map(|policy| Some((policy, policy.spec.convergence.as_ref()?)));
    let mut paybacks: BTreeMap<PoolId, Payback> = BTreeMap::new();
    for (policy, convergence) in judging {
        let facts = memo.facts();
        let terms = Terms::of(convergence);
        for (index, pool) in snapshot.pools.iter().enumerate() {
            if !selects(policy, pool) {
                continue;
            }
            let own = Payback {
                policy: policy.name().to_owned(),
                restart_cost: terms.restart_cost,
                lasting: facts.lasting(&pool.name, terms.horizon),
            };
            let weight = |payback: &Payback| {
                let seconds = i128::from(payback.lasting.as_secs().max(1));
                // Dollars an hour that one restart asks for, in a scale that keeps small ones apart.
                i128::from(payback.restart_cost.0) * 1_000_000 / seconds
            };
            let known = paybacks.get(&PoolId::from(index));
            if known.is_none_or(|known| weight(known) < weight(&own)) {
                paybacks.insert(PoolId::from(index), own);
            }
        }
    }
    paybacks
}

/// Whether some policy judges a NodePool over time, so that the ledger keeps when its nodes were created.
pub(crate) fn is_judged(snapshot: &Snapshot, pool: &str) -> bool {
    let empty = BTreeMap::new();
    let found = snapshot.pools.iter().find(|view| view.name == pool);
    let labels = found.and_then(|view| view.object.metadata.labels.as_ref());
    let labels = labels.unwrap_or(&empty);
    let mut policies = snapshot.disruption_policies.iter();
    policies.any(|policy| policy.spec.convergence.is_some() && policy.selects(pool, labels))
}
