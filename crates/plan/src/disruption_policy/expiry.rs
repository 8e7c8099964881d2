//! Soft ages: when a node is due to go inside budgets and windows, before `expireAfter` takes it; and the wave that is coming.
//!
//! When a node is due follows from its NodeClaim alone, so that a restart changes nothing and nodes that were born together do not go together
//! (invariant 27). Owns no clock, and never touches `expireAfter`: what has reached that goes whatever is said here.

use super::convergence::DAY;
use super::forecast::{PoolNodes, lanes};
use super::rules::{covers, selects};
use crate::calendar::{Interval, Window, calendar_with};
use crate::durations::signed;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::disruption_policy::{BudgetUnit, Expiry, ExpiryStatus};
use spokeshave_api::{DisruptionPolicy, DisruptionReason, NodeClaim, whole_seconds};
use spokeshave_model::snapshot::{NodeId, PoolId, Snapshot};
use std::collections::{BTreeMap, VecDeque};

/// How far ahead a forecast says that nodes will not go in time: more than a day, so that there is time to act.
pub const HORIZON: SignedDuration = SignedDuration::from_hours(3 * 24);
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// How long a replacement takes as long as the ledger does not know.
const USUAL: SignedDuration = SignedDuration::from_mins(10);

/// The soft age of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Soft {
    /// The DisruptionPolicy that says so.
    pub policy: String,
    /// When the node has reached it.
    pub due: Timestamp,
    /// When `expireAfter` takes it.
    pub deadline: Option<Timestamp>,
}

/// Whether any policy has a soft age.
pub fn is_wanted(snapshot: &Snapshot) -> bool {
    let mut policies = snapshot.disruption_policies.iter();
    policies.any(|policy| policy.spec.expiry.is_some())
}

/// When a node is due; of several policies the earliest. `None` where none says, or where `expireAfter` comes first anyway.
pub fn soft(snapshot: &Snapshot, node: NodeId) -> Option<Soft> {
    let view = snapshot.node(node);
    let (pool, claim) = (snapshot.pool(view.pool?), view.claim.as_ref()?);
    let none = BTreeMap::new();
    let labels = pool.object.metadata.labels.as_ref().unwrap_or(&none);
    soft_of(
        snapshot.disruption_policies.iter().map(|policy| &**policy),
        &pool.name,
        labels,
        claim,
    )
}

/// The same by objects.
pub fn soft_of<'a>(
    policies: impl IntoIterator<Item = &'a DisruptionPolicy>,
    pool: &str,
    labels: &BTreeMap<String, String>,
    claim: &NodeClaim,
) -> Option<Soft> {
    let mut first: Option<Soft> = None;
    for policy in policies {
        let Some(expiry) = policy.spec.expiry.as_ref() else {
            continue;
        };
        if !policy.selects(pool, labels) {
            continue;
        }
        let Some((due, deadline)) = times(expiry, claim) else {
            continue;
        };
        if first.as_ref().is_none_or(|known| due < known.due) {
            first = Some(Soft {
                policy: policy.name().to_owned(),
                due,
                deadline,
            });
        }
    }
    first
}

/// When a NodeClaim is due, and when `expireAfter` takes it.
fn times(expiry: &Expiry, claim: &NodeClaim) -> Option<(Timestamp, Option<Timestamp>)> {
    let created = claim.metadata.creation_timestamp.as_ref()?.0;
    let hard = claim.spec.expire_after.duration().map(signed);
    let (soft, spread) = ages(expiry, hard)?;
    // In milliseconds, so that products stay small.
    let millis = u128::try_from(spread.as_millis()).unwrap_or(0);
    let share = (millis * u128::from(fraction(claim.uid()))) >> 64;
    let jitter = SignedDuration::from_millis(i64::try_from(share).unwrap_or(i64::MAX));
    let due = created.saturating_add(soft).ok()?.saturating_add(jitter).ok()?;
    let deadline = hard.map(|hard| created.saturating_add(hard).unwrap_or(Timestamp::MAX));
    Some((due, deadline))
}

/// The age from which on nodes are due, and over how long those of one age are spread; `None` where no age is given, or `expireAfter` comes first anyway.
pub(super) fn ages(
    expiry: &Expiry,
    hard: Option<SignedDuration>,
) -> Option<(SignedDuration, SignedDuration)> {
    let soft = soft_age(expiry, hard)?;
    let room = match hard {
        Some(hard) if soft >= hard => return None,
        Some(hard) => Some(hard - soft),
        None => None,
    };
    let spread = expiry.jitter.as_ref().map_or_else(
        || room.map_or(soft / 10, |room| room / 2),
        |jitter| jitter.to_signed(),
    );
    let spread = room
        .map_or(spread, |room| spread.min(room))
        .max(SignedDuration::ZERO);
    Some((soft, spread))
}

/// The soft age; `None` where it is a share of nothing.
fn soft_age(expiry: &Expiry, hard: Option<SignedDuration>) -> Option<SignedDuration> {
    match (&expiry.soft_after, expiry.soft_percent) {
        (Some(age), None) => Some(age.to_signed()),
        (None, Some(percent)) => {
            let millis = hard?.as_millis().checked_mul(i128::from(percent.clamp(1, 99)))? / 100;
            Some(SignedDuration::from_millis(
                i64::try_from(millis).unwrap_or(i64::MAX),
            ))
        }
        // Both or none is a fault.
        _ => None,
    }
}

/// A number that looks drawn by chance and only depends on the text. FNV-1a with a finish that spreads it over all bits.
fn fraction(text: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The coming waves of the NodePools that a policy with a soft age selects, by name. NodePools without nodes that come due are left out.
pub fn forecast(policy: &DisruptionPolicy, snapshot: &Snapshot, now: Timestamp) -> Vec<ExpiryStatus> {
    if policy.spec.expiry.is_none() {
        return Vec::new();
    }
    let pools = PoolNodes::counted(snapshot);
    let mut waves = Vec::new();
    for (index, pool) in snapshot.pools.iter().enumerate() {
        if selects(policy, pool) {
            let wave = Forecast {
                snapshot,
                pools: &pools,
                pool: PoolId::from(index),
                now,
            };
            waves.extend(wave.status());
        }
    }
    waves.sort_by(|left, right| left.node_pool.cmp(&right.node_pool));
    waves
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn after(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// One NodePool.
struct Forecast<'a> {
    snapshot: &'a Snapshot,
    pools: &'a [PoolNodes],
    pool: PoolId,
    now: Timestamp,
}

impl Forecast<'_> {
    fn status(&self) -> Option<ExpiryStatus> {
        let mut all: Vec<Soft> = self
            .snapshot
            .node_ids()
            .filter(|node| {
                let view = self.snapshot.node(*node);
                view.pool == Some(self.pool) && !view.marked_for_deletion && !view.in_command
            })
            .filter_map(|node| soft(self.snapshot, node))
            .collect();
        if all.is_empty() {
            return None;
        }
        all.sort_by_key(|soft| (soft.due, soft.deadline));
        let due = all.iter().filter(|soft| soft.due <= self.now).count();
        let tomorrow = after(self.now, DAY);
        let soon = all.iter().filter(|soft| soft.due <= tomorrow).count();
        let late = self.late(&all);
        Some(ExpiryStatus {
            node_pool: self.snapshot.pool(self.pool).name.clone(),
            due: count(due),
            within_day: count(soon - due),
            next_due: all.get(due).map(|soft| Time(whole_seconds(soft.due))),
            late: count(late.len()),
            first_late: late.iter().min().map(|at| Time(whole_seconds(*at))),
        })
    }

    /// The deadlines of nodes that cannot go before them, as far as the horizon tells: in order of their due times, as many at once as budgets allow
    /// and as many an hour as rates do, each for as long as replacements have taken so far. Other NodePools and other reasons are left out, so that it
    /// may be more.
    fn late(&self, all: &[Soft]) -> Vec<Timestamp> {
        let range = Window {
            from: self.now,
            until: after(self.now, HORIZON),
        };
        let pool = &self.pools[self.pool.index()];
        let policies = || self.snapshot.disruption_policies.iter().map(|policy| &**policy);
        let lanes = lanes(policies(), self.pools, pool, &DisruptionReason::Expired, range);
        let calendar = calendar_with(
            &pool.budgets,
            lanes,
            &DisruptionReason::Expired,
            pool.nodes,
            range,
        );
        let mut line = Line {
            intervals: &calendar.intervals,
            rate: self.rate(),
            takes: self.takes(),
            starts: VecDeque::new(),
        };
        let mut late = Vec::new();
        for soft in all.iter().filter(|soft| soft.due < range.until) {
            let start = line.next(soft.due.max(self.now));
            let end = start.map(|start| after(start, line.takes));
            let Some(deadline) = soft.deadline.filter(|deadline| *deadline <= range.until) else {
                line.starts.extend(start);
                continue;
            };
            if end.is_some_and(|end| end <= deadline) {
                line.starts.extend(start);
            } else {
                // It is taken by force, and takes no place.
                late.push(deadline);
            }
        }
        late
    }

    /// The strictest rate an hour that counts nodes.
    fn rate(&self) -> Option<usize> {
        let pool = &self.pools[self.pool.index()];
        let policies = self.snapshot.disruption_policies.iter();
        let selecting = policies.filter(|policy| policy.selects(&pool.name, &pool.labels));
        let budgets = selecting.flat_map(|policy| &policy.spec.budgets);
        let counting = budgets.filter(|budget| {
            let covers = covers(budget.reasons.as_ref(), &DisruptionReason::Expired);
            covers && matches!(budget.unit, None | Some(BudgetUnit::Nodes))
        });
        let rates = counting.filter_map(|budget| budget.per_hour);
        rates.min().map(|rate| usize::try_from(rate).unwrap_or(0))
    }

    /// How long replacements of this NodePool's nodes have taken, from decision to end: the median of the ledger.
    fn takes(&self) -> SignedDuration {
        let name = &self.snapshot.pool(self.pool).name;
        let mut took: Vec<SignedDuration> = Vec::new();
        for one in &self.snapshot.disruptions {
            let is_like = matches!(
                one.spec.reason,
                DisruptionReason::Expired | DisruptionReason::Drifted
            ) && one.phase() == DisruptionPhase::Succeeded
                && one.spec.nodes.iter().any(|node| node.node_pool == *name);
            let finished = one.status.as_ref().and_then(|status| status.finished_at.as_ref());
            if let Some(finished) = finished.filter(|_| is_like) {
                took.push(finished.0.duration_since(one.spec.decided_at.0));
            }
        }
        took.sort_unstable();
        took.get(took.len() / 2).copied().unwrap_or(USUAL)
    }
}

/// Nodes that go one after the other.
struct Line<'a> {
    intervals: &'a [Interval],
    rate: Option<usize>,
    takes: SignedDuration,
    /// When those that go have begun, in order.
    starts: VecDeque<Timestamp>,
}

impl Line<'_> {
    /// When a node may begin to go, at `from` at the earliest.
    fn next(&mut self, from: Timestamp) -> Option<Timestamp> {
        let mut at = self.starts.back().map_or(from, |last| from.max(*last));
        // What neither runs nor counts any more is forgotten, so that a long line stays cheap.
        let counts_for = self.takes.max(HOUR);
        while self
            .starts
            .front()
            .is_some_and(|first| after(*first, counts_for) <= at)
        {
            self.starts.pop_front();
        }
        // Each turn moves on to the end of an interval, of a replacement, or of an hour.
        for _ in 0..self.intervals.len() + self.starts.len() + 2 {
            let interval = self
                .intervals
                .iter()
                .find(|one| one.from <= at && at < one.until)?;
            let allowed = usize::try_from(interval.allowed).unwrap_or(0);
            let gone_by = |time: &Timestamp, by: SignedDuration| after(*time, by) <= at;
            let mut running = self.starts.iter().filter(|start| !gone_by(start, self.takes));
            let mut recent = self.starts.iter().filter(|start| !gone_by(start, HOUR));
            if allowed == 0 {
                at = interval.until;
            } else if running.clone().count() >= allowed {
                at = after(*running.next()?, self.takes);
            } else if self.rate.is_some_and(|rate| recent.clone().count() >= rate) {
                at = after(*recent.next()?, HOUR);
            } else {
                return Some(at);
            }
        }
        None
    }
}

/// A coming wave in a sentence.
pub fn text(wave: &ExpiryStatus) -> String {
    let pool = &wave.node_pool;
    let mut text = format!(
        "NodePool {pool}: {} past the soft age, {} more within a day",
        crate::report::count(usize::try_from(wave.due).unwrap_or(0), "node"),
        wave.within_day
    );
    if let Some(late) = late_text(wave) {
        text.push_str("; ");
        text.push_str(&late);
    }
    text
}

/// What will not go in time, in a sentence.
pub(super) fn late_text(wave: &ExpiryStatus) -> Option<String> {
    let first = wave.first_late.as_ref()?.0.strftime("%Y-%m-%d %H:%MZ");
    Some(format!(
        "{} will not have gone when expireAfter comes, the first at {first}: allow more at once, open windows longer, or lower the soft age",
        crate::report::count(usize::try_from(wave.late).unwrap_or(0), "node")
    ))
}
