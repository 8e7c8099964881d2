//! Why consolidation comes to rest also when the scheduler does not put pods where the plan had them (invariant 17).
//!
//! A plan is trusted until it disappoints. The frontier keeps the lowest price that the cluster has had with its present pods. A command lowers the
//! price, unless pods scatter so that one of them needs a new node: then the price rises while the pods are the same. From then on, until the
//! pods change, only commands are started that cannot disappoint, in whatever order and wherever their pods are put. Trusted commands
//! lower the price each time but the last, safe commands lower it each time, and prices are finitely many: so moves end.
//!
//! Markets change prices, too, and no plan is to blame for that: what the nodes that were there before have become dearer or cheaper by is taken out of the
//! comparison, and after a tenth of the whole it is another market, in which plans are trusted again. Nor is a plan to blame for nodes that no command has taken
//! away, because they were interrupted, have expired or were deleted by somebody, and for what came in their place: from there it begins anew. A node that has come and
//! that no pod uses costs nothing here: it is what a command that was rolled back leaves, or what pods did not need after all, and it goes for being empty.
//!
//! A node that drifted or has expired is renewed whatever its successor costs: that, too, is nobody's disappointment, and ends none.
//!
//! The price says nothing while pods are on their way to their places. But some wait for ever: for a label that no node has, beyond a limit, for a node that never
//! comes up or is launched again and again. In a cluster with such a pod there would be no judgement at all, or one that never ends. So pods are waited for
//! so long and no longer; then they count neither for the workload nor, with what is launched for them in vain, for the price. A Job that makes such a pod again
//! and again changes nothing either. Pods that a command has moved and that have no places after all that time have been disappointed. A node that hangs while it
//! leaves is waited for as long, and then counts for nothing. Where there is always something younger than that, nothing is judged; what was known ends there after
//! an hour, if the pods are others by then.
//!
//! Pods of Jobs are gone for a while when they were moved, and without them the cluster looks like another. They are awaited as long, and then it is another.

use super::candidates::Candidate;
use super::command::{Command, Destination};
use super::ground::Ground;
use super::outcome::Calm;
use super::register::Register;
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::hash::{digest, digest_of};
use spokeshave_model::Price;
use spokeshave_model::snapshot::{NodeId, NodeView, PodId, PodView, Snapshot};
use spokeshave_model::vector::ResourceVector;
use spokeshave_model::{state_node, taint};
use std::collections::{BTreeMap, BTreeSet};

/// What is known about the price of the cluster after this Snapshot; unchanged while commands or pods are under way.
pub(super) fn observe(
    snapshot: &Snapshot,
    register: &Register,
    before: Option<&Calm>,
    now: Timestamp,
) -> Option<Calm> {
    let Some(given_up) = GivenUp::of(snapshot, register, before, now) else {
        let is_outdated = |calm: &Calm| {
            let is_old = now.duration_since(calm.at) >= OUTDATED;
            // What waits now did not have to wait then: those that have places may be the same.
            let has_others = || {
                let waiting: Vec<PodId> = waiting(snapshot, register).map(|(pod, _)| pod).collect();
                calm.workload != register.signature_without(snapshot, &waiting)
            };
            calm.disappointed && is_old && calm.whole != register.signature() && has_others()
        };
        return before.filter(|calm| !is_outdated(calm)).cloned();
    };
    let prices = used_prices(register, before, &given_up.nodes);
    let price: Price = prices.iter().map(|(_, price)| *price).sum();
    let anew = Calm {
        at: now,
        workload: register.signature_without(snapshot, &given_up.pods),
        whole: register.signature(),
        placed: register.entries().map(|(_, entry)| entry.reschedulable).sum(),
        lowest: (price, prices.len()),
        acted: false,
        taken: Vec::new(),
        renewed: Vec::new(),
        hanging: given_up.to_save.into_iter().collect(),
        awaits: None,
        disappointed: false,
        prices,
        shifted: Price::ZERO,
    };
    Some(match before {
        Some(calm) => judged(calm, anew, now),
        None => anew,
    })
}

/// What is known now that the cluster is like this; `anew` is what would be known if nothing had been before.
fn judged(calm: &Calm, anew: Calm, now: Timestamp) -> Calm {
    if calm.workload != anew.workload && calm.whole != anew.whole {
        // Pods that are away are fewer.
        let is_awaited = anew.placed < calm.placed && calm.awaits.is_some_and(|until| now < until);
        return if is_awaited { calm.clone() } else { anew };
    }
    // A node that has come says nothing: it may be what the pods of a command needed in the end.
    let nodes = calm.prices.iter().map(|(node, _)| *node);
    let gone: Vec<u64> = nodes.filter(|node| !anew.knows(*node)).collect();
    if gone.iter().any(|node| calm.taken.binary_search(node).is_err()) {
        return anew;
    }
    let is_renewed = gone.iter().any(|node| calm.renewed.binary_search(node).is_ok());
    let waits_for_others = calm.workload != anew.workload;
    if is_renewed || waits_for_others {
        // The same pods. At what price they have places is another question: other ones are left out now, or a node was to be renewed at any price.
        let have_lost_places = calm.acted && waits_for_others && anew.placed < calm.placed;
        return Calm {
            disappointed: calm.disappointed || have_lost_places,
            ..anew
        };
    }
    let shift = Shift::between(&calm.prices, &anew.prices);
    let shifted = shift.size.saturating_add(calm.shifted);
    let (price, _) = anew.lowest;
    if i128::from(shifted.0) * ANOTHER_MARKET >= i128::from(price.0) && shifted > Price::ZERO {
        return anew;
    }
    // A node that hung had been left out; now that it is gone, what its pods have instead is compared with it.
    let hung: Vec<Price> = calm
        .hanging
        .iter()
        .filter(|(node, _)| !anew.hangs(*node))
        .map(|(_, price)| *price)
        .collect();
    let back = hung
        .iter()
        .fold(shift.sum, |sum, price| sum.saturating_add(*price));
    let lowest = (calm.lowest.0.saturating_add(back), calm.lowest.1 + hung.len());
    let acted = calm.acted || !hung.is_empty();
    let worse = anew.lowest > lowest || (acted && anew.lowest == lowest);
    let disappointed = calm.disappointed || worse;
    Calm {
        whole: calm.whole,
        lowest: lowest.min(anew.lowest),
        disappointed,
        shifted: if disappointed { shifted } else { Price::ZERO },
        ..anew
    }
}

/// So long is a pod waited for. What is launched for it has registered by then, or is given up (W-29).
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);

/// So long are plans distrusted in a cluster that never comes to rest and whose pods have changed: there is always a pod that is made or a node that leaves in it.
const OUTDATED: SignedDuration = SignedDuration::from_hours(1);

fn patience_ends(since: Timestamp) -> Timestamp {
    since.saturating_add(PATIENCE).unwrap_or(Timestamp::MAX)
}

/// What nobody waits for any more.
struct GivenUp {
    /// They count neither for the workload nor for what has to be cheap.
    pods: Vec<PodId>,
    /// Nodes that leave and hang, by hashes of their provider IDs: their prices do not count.
    nodes: BTreeSet<u64>,
    /// Of these, those that commands have taken to save something, each with what it cost.
    to_save: BTreeMap<u64, Price>,
}

impl GivenUp {
    /// `None` while something is waited for.
    fn of(snapshot: &Snapshot, register: &Register, before: Option<&Calm>, now: Timestamp) -> Option<Self> {
        let is_over = |until: Option<Timestamp>| until.is_some_and(|until| until <= now);
        let hanging: Option<Vec<NodeId>> = leaving(snapshot, register)
            .map(|(node, until)| is_over(until).then_some(node))
            .collect();
        let waiting: Option<Vec<PodId>> = waiting(snapshot, register)
            .map(|(pod, until)| is_over(until).then_some(pod))
            .collect();
        let (hanging, mut pods) = hanging.zip(waiting)?;
        let (mut nodes, mut to_save) = (BTreeSet::new(), BTreeMap::new());
        for view in hanging.into_iter().map(|node| snapshot.node(node)) {
            let node = digest(&view.provider_id);
            nodes.insert(node);
            if let Some(price) = before.and_then(|calm| calm.price_to_save(node)) {
                to_save.insert(node, price);
            } else {
                // What somebody else has deleted, or what was to be renewed, is to blame for nothing once its pods move.
                pods.extend(view.present_pods());
            }
        }
        Some(GivenUp { pods, nodes, to_save })
    }
}

/// Nodes that leave, each with until when it is waited for. A pod that nobody may evict keeps one for days; as long as it is not being deleted, its command waits for
/// replacements, and has limits of its own.
fn leaving<'s>(
    snapshot: &'s Snapshot,
    register: &'s Register,
) -> impl Iterator<Item = (NodeId, Option<Timestamp>)> + 's {
    register.leaving().map(move |node| {
        let view = snapshot.node(node);
        let claim = view.claim.as_ref().map(|claim| &claim.metadata);
        let meta = claim.or_else(|| view.node.as_ref().map(|node| &node.metadata));
        let since = meta.and_then(|meta| meta.deletion_timestamp.as_ref());
        (node, since.map(|since| patience_ends(since.0)))
    })
}

/// Pods that wait for a place, each with until when it is waited for: those that are seen to wait, and those on what stands in for a NodeClaim without an instance.
fn waiting<'s>(
    snapshot: &'s Snapshot,
    register: &'s Register,
) -> impl Iterator<Item = (PodId, Option<Timestamp>)> + 's {
    let restless = register.restless(snapshot);
    let seen = restless.filter(|(_, pod)| pod.provisionable && pod.active && !pod.is_virtual);
    let coming = register.entries().filter(|(_, entry)| !entry.is_initialized);
    let stand_ins = coming.map(move |(node, _)| snapshot.node(node));
    let stand_ins = stand_ins.filter(|view| view.is_stand_in());
    let pods = stand_ins.flat_map(|view| view.pods.iter().copied());
    let pods = pods.map(move |pod| (pod, snapshot.pod(pod)));
    let expected = pods.filter(|(_, pod)| pod.active && !pod.is_virtual);
    seen.chain(expected).map(|(id, pod)| {
        // Nobody seeks a place for one that has a problem.
        let waits_since = match pod.problem() {
            Some(_) => Some(Timestamp::MIN),
            None => pod.seniority.created(),
        };
        (id, waits_since.map(patience_ends))
    })
}

/// When nothing that is waited for is so any more: until then nothing is judged.
pub(super) fn end_of_patience(snapshot: &Snapshot, register: &Register, now: Timestamp) -> Option<Timestamp> {
    let pods = waiting(snapshot, register).map(|(_, until)| until);
    let mut ends = pods.chain(leaving(snapshot, register).map(|(_, until)| until));
    let last = ends.try_fold(Timestamp::MIN, |last, until| Some(last.max(until?)))?;
    (last > now).then_some(last)
}

/// Until when pods of these commands are awaited that are not there again at once.
pub(super) fn end_of_absence(snapshot: &Snapshot, commands: &[Command], now: Timestamp) -> Option<Timestamp> {
    let nodes = commands.iter().flat_map(|command| &command.nodes);
    let nodes: BTreeSet<&str> = nodes.map(|node| node.provider_id.as_str()).collect();
    let views = snapshot.nodes.iter();
    let views = views.filter(|view| nodes.contains(view.provider_id.as_str()));
    let mut pods = views
        .flat_map(NodeView::present_pods)
        .map(|pod| snapshot.pod(*pod));
    let is_awaited = pods.any(|pod| pod.reschedulable && comes_back_late(pod));
    is_awaited.then(|| patience_ends(now))
}

/// A Job makes a pod again after a back-off: by then others may have the place that it was to have.
fn comes_back_late(pod: &PodView) -> bool {
    let mut owners = pod.object.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && owner.kind == "Job")
}

/// What pods need places, and what the nodes with pods that would have to move are like, as far as it decides whether pods have places there and what these cost.
/// Other nodes are left out: an empty one that has come may be what the command that was taken back had launched.
pub(super) fn standing(snapshot: &Snapshot, register: &Register) -> u64 {
    let used = register.entries().filter(|(_, entry)| entry.reschedulable > 0);
    let facts = used.flat_map(|(node, entry)| {
        let view = snapshot.node(node);
        let is_cordoned = view.node.as_deref().is_some_and(state_node::is_cordoned);
        let limits = view.attach_limits.iter();
        let limits = limits.flat_map(|(driver, limit)| [digest(driver), limit.cast_unsigned()]);
        let own = [
            digest(&view.provider_id),
            entry.price.0.cast_unsigned(),
            entry.reschedulable as u64,
            u64::from(view.ready),
            u64::from(is_cordoned),
        ];
        own.into_iter().chain(limits)
    });
    let facts = std::iter::once(register.signature()).chain(facts);
    digest_of(facts.flat_map(u64::to_le_bytes))
}

/// What the nodes cost, without those that leave and hang, and those that no pod uses and that have come since, or have yet to come up.
fn used_prices(register: &Register, before: Option<&Calm>, hanging: &BTreeSet<u64>) -> Vec<(u64, Price)> {
    let prices = register.prices();
    let before = before.filter(|calm| !calm.prices.is_empty());
    let is_known = |node: u64| before.is_none_or(|calm| calm.knows(node));
    let mut left_out: BTreeSet<u64> = register.coming().collect();
    left_out.extend(hanging);
    if left_out.is_empty() && prices.iter().all(|(node, _)| is_known(*node)) {
        return prices.to_vec();
    }
    let unused: BTreeSet<u64> = register.unused().collect();
    let counts =
        |(node, _): &&(u64, Price)| !left_out.contains(node) && (is_known(*node) || !unused.contains(node));
    prices.iter().filter(counts).copied().collect()
}

/// Prices that have changed by one part in so many of the whole make another market.
const ANOTHER_MARKET: i128 = 10;

/// By how much the prices of nodes that are still there have changed.
struct Shift {
    sum: Price,
    /// Rises and falls added up.
    size: Price,
}

impl Shift {
    /// Both in order.
    fn between(before: &[(u64, Price)], now: &[(u64, Price)]) -> Self {
        let mut shift = Shift {
            sum: Price::ZERO,
            size: Price::ZERO,
        };
        let mut known = before.iter().peekable();
        for (node, price) in now {
            while known.next_if(|(other, _)| other < node).is_some() {}
            if let Some((_, old)) = known.next_if(|(other, _)| other == node) {
                let change = price.saturating_sub(*old);
                shift.sum = shift.sum.saturating_add(change);
                shift.size = shift.size.saturating_add(Price(change.0.saturating_abs()));
            }
        }
        shift
    }
}

/// Whether every pod of the command finds a place on what is left, in whatever order they come and wherever the others are put.
///
/// Others can keep a pod from a node only by filling some resource of it beyond what the pod leaves free. Per resource they have no more to
/// fill with than their sum. So when the shares of that sum which it would take to close each fitting node add up to more than one per
/// resource, some node stays open. Pods whose places depend on other pods are not vouched for, nor are those that come back late.
pub(super) fn is_safe(ground: &Ground<'_>, set: &[&Candidate], command: &Command) -> bool {
    let snapshot = ground.snapshot;
    let all_on_replacement = command
        .moves
        .iter()
        .all(|step| matches!(step.to, Destination::Replacement(_)));
    let pods: Vec<PodId> = set
        .iter()
        .flat_map(|candidate| candidate.moving(snapshot).into_owned())
        .collect();
    if pods.iter().any(|pod| !is_independent(snapshot, *pod)) {
        return false;
    }
    if all_on_replacement && !command.replacements.is_empty() {
        return true;
    }
    let width = snapshot.resources.width();
    let mut total = ResourceVector::zero(width);
    for pod in &pods {
        total.add(snapshot.requests(*pod));
    }
    let gone: BTreeSet<_> = set.iter().map(|candidate| candidate.node).collect();
    let staying: Vec<&NodeView> = snapshot
        .node_ids()
        .filter(|node| !gone.contains(node))
        .map(|node| snapshot.node(node))
        .filter(|view| view.initialized && view.ready && !view.marked_for_deletion && !view.in_command)
        .collect();
    let shapes: BTreeMap<_, PodId> = pods
        .iter()
        .map(|pod| ((snapshot.pod(*pod).class, snapshot.pod(*pod).request), *pod))
        .collect();
    shapes.values().all(|pod| {
        let request = snapshot.requests(*pod);
        let mut others = total.clone();
        others.subtract(request);
        stays_open(snapshot, &staying, *pod, request, &others)
    })
}

/// Shares are counted in millionths, rounded down.
const WHOLE: i128 = 1_000_000;

fn stays_open(
    snapshot: &Snapshot,
    staying: &[&NodeView],
    pod: PodId,
    request: &ResourceVector,
    others: &ResourceVector,
) -> bool {
    let used = others.0.iter().filter(|amount| **amount > 0).count();
    let needed = WHOLE * i128::try_from(used).unwrap_or(i128::MAX / WHOLE);
    let mut shares: i128 = 0;
    for view in staying.iter().filter(|view| accepts(snapshot, view, pod)) {
        let mut free = view.allocatable.clone();
        free.subtract(&view.requested);
        if !request.fits(&free) {
            continue;
        }
        let closing = (0..others.0.len())
            .filter(|index| others[*index] > 0)
            .map(|index| {
                let slack = i128::from(free[index]) - i128::from(request[index]) + 1;
                slack * WHOLE / i128::from(others[index])
            });
        match closing.min() {
            // Nobody else moves: one fitting node is enough.
            None => return true,
            Some(share) => shares += share,
        }
        if shares > needed {
            return true;
        }
    }
    false
}

fn is_independent(snapshot: &Snapshot, pod: PodId) -> bool {
    let constraints = snapshot.constraints(pod);
    constraints.spreads.is_empty()
        && constraints.affinity.is_empty()
        && constraints.anti_affinity.is_empty()
        && constraints.host_ports.is_empty()
        && constraints.volume_terms.is_empty()
        && constraints.required_terms.len() <= 1
        && !comes_back_late(snapshot.pod(pod))
}

fn accepts(snapshot: &Snapshot, view: &NodeView, pod: PodId) -> bool {
    let constraints = snapshot.constraints(pod);
    let kind = &snapshot.kinds[view.kind.index()];
    taint::first_untolerated(&kind.taints, &constraints.tolerations).is_none()
        && kind.requirements.satisfy(&constraints.strict_requirements())
}

#[cfg(test)]
mod tests;
