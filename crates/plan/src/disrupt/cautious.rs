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

use super::candidates::Candidate;
use super::command::{Command, Destination};
use super::ground::Ground;
use super::outcome::Calm;
use super::register::Register;
use spokeshave_api::hash::{digest, digest_of};
use spokeshave_model::Price;
use spokeshave_model::snapshot::{NodeView, PodId, Snapshot};
use spokeshave_model::vector::ResourceVector;
use spokeshave_model::{state_node, taint};
use std::collections::{BTreeMap, BTreeSet};

/// What is known about the price of the cluster after this Snapshot; unchanged while commands or pods are under way.
pub(super) fn observe(snapshot: &Snapshot, register: &Register, before: Option<&Calm>) -> Option<Calm> {
    let mut waiting = register.restless(snapshot);
    let busy = register
        .entries()
        .any(|(_, entry)| entry.is_leaving() || !entry.is_initialized)
        || waiting
            .any(|(_, pod)| pod.provisionable && pod.active && pod.problem().is_none() && !pod.is_virtual);
    if busy {
        return before.cloned();
    }
    let workload = register.signature();
    let prices = used_prices(register, before);
    let price: Price = prices.iter().map(|(_, price)| *price).sum();
    let present = (price, prices.len());
    let fresh = |prices| Calm {
        workload,
        lowest: present,
        acted: false,
        taken: Vec::new(),
        disappointed: false,
        prices,
        shifted: Price::ZERO,
    };
    let Some(calm) = before.filter(|calm| calm.workload == workload) else {
        return Some(fresh(prices));
    };
    if has_other_nodes(calm, &prices) {
        return Some(fresh(prices));
    }
    let shift = Shift::between(&calm.prices, &prices);
    let shifted = shift.size.saturating_add(calm.shifted);
    if i128::from(shifted.0) * ANOTHER_MARKET >= i128::from(price.0) && shifted > Price::ZERO {
        return Some(fresh(prices));
    }
    let lowest = (calm.lowest.0.saturating_add(shift.sum), calm.lowest.1);
    let worse = present > lowest || (calm.acted && present == lowest);
    let disappointed = calm.disappointed || worse;
    Some(Calm {
        workload,
        lowest: lowest.min(present),
        acted: false,
        taken: Vec::new(),
        disappointed,
        prices,
        shifted: if disappointed { shifted } else { Price::ZERO },
    })
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

/// What the nodes cost, without those that have come since and that no pod uses.
fn used_prices(register: &Register, before: Option<&Calm>) -> Vec<(u64, Price)> {
    let prices = register.prices();
    let Some(calm) = before.filter(|calm| !calm.prices.is_empty()) else {
        return prices.to_vec();
    };
    if prices.iter().all(|(node, _)| calm.knows(*node)) {
        return prices.to_vec();
    }
    let unused: BTreeSet<u64> = register.unused().collect();
    let counts = |(node, _): &&(u64, Price)| calm.knows(*node) || !unused.contains(node);
    prices.iter().filter(counts).copied().collect()
}

/// Whether nodes are gone that no command has taken away. One that has come says nothing: it may be what the pods of a command needed in the end.
fn has_other_nodes(calm: &Calm, prices: &[(u64, Price)]) -> bool {
    let mut nodes = calm.prices.iter().map(|(node, _)| node);
    nodes.any(|node| {
        let is_gone = prices.binary_search_by_key(node, |(other, _)| *other).is_err();
        is_gone && calm.taken.binary_search(node).is_err()
    })
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
/// resource, some node stays open. Pods whose places depend on other pods are not vouched for.
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
}

fn accepts(snapshot: &Snapshot, view: &NodeView, pod: PodId) -> bool {
    let constraints = snapshot.constraints(pod);
    let kind = &snapshot.kinds[view.kind.index()];
    taint::first_untolerated(&kind.taints, &constraints.tolerations).is_none()
        && kind.requirements.satisfy(&constraints.strict_requirements())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use spokeshave_example::{Shape, cluster};
    use spokeshave_model::lower;

    fn snapshot() -> Snapshot {
        lower(&cluster(Shape::Plain, 40, 400, 1))
    }

    fn seen(snapshot: &Snapshot, before: Option<&Calm>) -> Calm {
        let register = Register::of(snapshot, Timestamp::UNIX_EPOCH);
        observe(snapshot, &register, before).expect("nothing is under way")
    }

    fn dearer(snapshot: &mut Snapshot, percent: i64) {
        for view in &mut snapshot.nodes {
            view.price = Price(view.price.0 * (100 + percent) / 100);
        }
    }

    /// Another node in place of one, which costs so much more.
    fn replaced(snapshot: &mut Snapshot, position: usize, more: i64) {
        let view = &mut snapshot.nodes[position];
        view.provider_id = format!("another-{position}");
        view.price = Price(view.price.0 + more);
    }

    /// A command has taken this node.
    fn acts_on(snapshot: &Snapshot, position: usize, calm: &mut Calm) {
        calm.acted = true;
        calm.taken.push(digest(&snapshot.nodes[position].provider_id));
        calm.taken.sort_unstable();
    }

    fn is_disappointed(snapshot: &Snapshot, calm: &mut Calm) -> bool {
        *calm = seen(snapshot, Some(calm));
        calm.disappointed
    }

    #[test]
    fn invariant_17_prices_that_change_by_themselves_are_no_disappointment() {
        let mut world = snapshot();
        let mut calm = seen(&world, None);
        for percent in [2, -2, 25, -20, 1] {
            dearer(&mut world, percent);
            assert!(!is_disappointed(&world, &mut calm), "{percent} percent");
        }
        // A command whose replacement is cheaper, while all others become a little dearer.
        acts_on(&world, 0, &mut calm);
        dearer(&mut world, 1);
        replaced(&mut world, 0, -10_000_000);
        assert!(!is_disappointed(&world, &mut calm));
        calm.acted = true;
        assert!(
            is_disappointed(&world, &mut calm),
            "a command that has saved nothing"
        );
    }

    #[test]
    fn invariant_17_what_has_disappointed_is_trusted_again_in_another_market() {
        let mut world = snapshot();
        let mut calm = seen(&world, None);
        acts_on(&world, 0, &mut calm);
        replaced(&mut world, 0, 1);
        assert!(is_disappointed(&world, &mut calm), "the same pods cost more");
        for percent in [2, -2, 2, -2] {
            assert!(is_disappointed(&world, &mut calm), "nothing has changed");
            dearer(&mut world, percent);
            assert!(is_disappointed(&world, &mut calm), "{percent} percent");
        }
        dearer(&mut world, 3);
        assert!(!is_disappointed(&world, &mut calm), "a tenth in sum");
        acts_on(&world, 1, &mut calm);
        replaced(&mut world, 1, 1);
        assert!(is_disappointed(&world, &mut calm), "trusted once");
    }

    #[test]
    fn invariant_17_nodes_that_others_have_taken_are_no_disappointment() {
        let mut world = snapshot();
        let mut calm = seen(&world, None);
        replaced(&mut world, 0, 50_000_000);
        assert!(
            !is_disappointed(&world, &mut calm),
            "an interruption, and what came for its pods"
        );
        acts_on(&world, 1, &mut calm);
        replaced(&mut world, 1, -1);
        replaced(&mut world, 2, 50_000_000);
        assert!(
            !is_disappointed(&world, &mut calm),
            "another one beside a command"
        );
        acts_on(&world, 3, &mut calm);
        replaced(&mut world, 3, 1);
        assert!(is_disappointed(&world, &mut calm), "the command's own");
        replaced(&mut world, 4, 1);
        assert!(
            !is_disappointed(&world, &mut calm),
            "and it begins anew with the next interruption"
        );
        acts_on(&world, 6, &mut calm);
        let mut more = world.nodes[5].clone();
        more.provider_id = "pods-have-scattered".to_owned();
        world.nodes.push(more);
        world.nodes[6].provider_id = "replacement".to_owned();
        assert!(is_disappointed(&world, &mut calm), "a node more after a command");
    }

    #[test]
    fn invariant_17_a_node_that_no_pod_uses_is_no_disappointment_until_one_does() {
        let mut world = snapshot();
        let mut calm = seen(&world, None);
        // A command is rolled back when its replacement is there.
        acts_on(&world, 0, &mut calm);
        calm.taken.clear();
        calm.acted = false;
        let mut spare = world.nodes[5].clone();
        spare.provider_id = "replacement".to_owned();
        spare.pods = Default::default();
        world.nodes.push(spare);
        assert!(!is_disappointed(&world, &mut calm), "it came");
        assert!(!is_disappointed(&world, &mut calm), "it stays");
        let spare = world.nodes.pop().unwrap();
        assert!(!is_disappointed(&world, &mut calm), "it went");
        world.nodes.push(NodeView {
            pods: world.nodes[5].pods.clone(),
            ..spare
        });
        assert!(is_disappointed(&world, &mut calm), "pods use it");
    }

    #[test]
    fn invariant_17_a_node_that_a_commands_pods_need_late_is_its_own() {
        let mut world = snapshot();
        let mut calm = seen(&world, None);
        acts_on(&world, 0, &mut calm);
        let gone = world.nodes.remove(0);
        assert!(!is_disappointed(&world, &mut calm), "it has saved something");
        let mut more = gone;
        more.provider_id = "late".to_owned();
        world.nodes.push(more);
        assert!(is_disappointed(&world, &mut calm), "and lost it again");
    }
}
