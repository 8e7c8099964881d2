//! Voluntary disruption: budgets of NodePools (2), do-not-disrupt (6), a place for every pod (8), which is kept for it (9), and nothing left of
//! commands that were rolled back (10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::places::{self, Leaving};
use super::view::{Change, Claim, DISRUPTED, Node, Pair, Pod, Pool, RECENT, View, duration, later};
use super::{Checker, Report, RequestInfo, windows};

/// A taint or condition that is set for this long without a deletion belongs to no command any more: a replacement may take a launch and a
/// registration time-out to fail.
const LEFT_OVER: Duration = Duration::from_secs(40 * 60);

/// For how long replacements are kept while the nodes that they came for drain: ten minutes, of which the last is for clocks and decisions.
const KEPT_WHILE_DRAINING: Duration = Duration::from_secs(9 * 60);

/// Nodes that an operator has begun to disrupt.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Node name → what was so when it was tainted for a command.
    started: BTreeMap<String, Started>,
}

/// A node when it was tainted.
#[derive(Debug)]
struct Started {
    since: Timestamp,
    /// Up to when operators must have known then what was written.
    known_until: Timestamp,
    /// UIDs of the pods on it that a budget covered.
    guarded: BTreeSet<String>,
    /// UIDs of protected pods on it; for some the protection may have ended by the time the node is deleted.
    protected: BTreeSet<String>,
}

impl Checker for Moves {
    fn changed(&mut self, view: &View, change: &Change, request: &RequestInfo, report: &mut Report) {
        match change {
            Change::Node(pair) => self.node_changed(view, pair, request, report),
            Change::Claim(pair) => self.claim_changed(view, pair, request, report),
            _ => {}
        }
    }

    fn ticked(&mut self, view: &View, report: &mut Report) {
        for node in view.nodes.values().filter(|node| node.deletion.is_none()) {
            let deleting = view
                .claim_of_node(node)
                .is_some_and(|claim| claim.deletion.is_some());
            if let Some(since) = node.disrupted_since
                && !deleting
                && node.is_registered()
                && view.has_lasted(since, LEFT_OVER)
            {
                report.fail(
                    10,
                    format!("node {}", node.name),
                    format!("has had the taint {DISRUPTED} since {since}, and nobody deletes it"),
                );
            }
        }
        for claim in view.claims.values().filter(|claim| claim.deletion.is_none()) {
            if let Some(since) = claim.since("DisruptionReason")
                && view.has_lasted(since, LEFT_OVER)
            {
                report.fail(
                    10,
                    format!("nodeclaim {}", claim.name),
                    format!("has had the condition DisruptionReason since {since}, and nobody deletes it"),
                );
            }
        }
    }
}

impl Moves {
    fn node_changed(&mut self, view: &View, pair: &Pair<Node>, request: &RequestInfo, report: &mut Report) {
        let Some(node) = &pair.after else {
            if let Some(before) = &pair.before {
                self.started.remove(&before.name);
            }
            return;
        };
        let was = pair.before.as_ref().and_then(|before| before.disrupted_since);
        if node.disrupted_since.is_none() {
            self.started.remove(&node.name);
        }
        if node.disrupted_since.is_none() || was.is_some() || !request.by_operator() {
            return;
        }
        let staying = |claim: &&Arc<Claim>| node.deletion.is_none() && claim.deletion.is_none();
        let Some(claim) = view.claim_of_node(node).filter(staying) else {
            return;
        };
        let covered = |pod: &Pod| view.budgets.values().any(|budget| budget.covers(pod));
        let such = |holds: &dyn Fn(&Pod) -> bool| {
            let pods = view.pods_on(&node.name).filter(|pod| holds(pod));
            pods.map(|pod| pod.uid.clone()).collect()
        };
        let started = Started {
            since: view.now,
            known_until: view.known_until(),
            guarded: such(&covered),
            protected: such(&|pod| pod.protected_since(view.now).is_some()),
        };
        self.started.insert(node.name.clone(), started);
        undisturbed(view, node, claim, report);
        not_awaited(view, node, claim, report);
    }

    fn claim_changed(&mut self, view: &View, pair: &Pair<Claim>, request: &RequestInfo, report: &mut Report) {
        let (Some(before), after) = (&pair.before, &pair.after) else {
            return;
        };
        if !request.by_operator() {
            return;
        }
        if let Some(after) = after
            && after.deletion.is_none()
            && after.is("DisruptionReason", "True")
            && !before.is("DisruptionReason", "True")
        {
            within_budget(view, after, report);
        }
        let deleted =
            before.deletion.is_none() && after.as_ref().is_none_or(|after| after.deletion.is_some());
        if deleted
            && before.is("DisruptionReason", "True")
            && let Some(node) = view.node_of_claim(before)
            && !is_forced(view, before, node)
            && !seeks_no_places(view, before)
            && let Some(leaving) = self.leaving(view, before, node)
        {
            let others = self.beside(view, before);
            places::found(view, &leaving, &others, report);
        }
    }

    /// A node that goes for a command, with those who need another place.
    fn leaving<'a>(&self, view: &'a View, claim: &Claim, node: &'a Node) -> Option<Leaving<'a>> {
        let started = self.started.get(&node.name)?;
        // Those whom a budget keeps stay until the deadline then.
        let keeps_guarded = asks_no_pods(view, claim);
        let guarded = |pod: &Pod| keeps_guarded && started.guarded.contains(&pod.uid);
        let pods = view
            .pods_on(&node.name)
            .map(|pod| &**pod)
            // What protects itself is not evicted before the deadline of its node.
            .filter(|pod| pod.protected_since(view.now).is_none())
            .filter(|pod| !started.protected.contains(&pod.uid) && !guarded(pod))
            .filter(|pod| pod.moves() && pod.bound.is_some_and(|bound| bound < started.since));
        Some(Leaving {
            node,
            pods: pods.collect(),
            since: started.since,
            known_until: started.known_until,
        })
    }

    /// Nodes of the same command that are still to go. Whatever is deleted already has been judged, with this one beside it.
    fn beside<'a>(&self, view: &'a View, claim: &Claim) -> Vec<Leaving<'a>> {
        let chosen = view.chosen_by(claim);
        let others = chosen.into_iter().flat_map(|chosen| &chosen.claims);
        others
            .filter_map(|uid| view.claim_with_uid(uid))
            .filter(|other| other.uid != claim.uid && other.deletion.is_none())
            .filter_map(|other| {
                let node = view.node_of_claim(other)?;
                (!is_forced(view, other, node)).then(|| self.leaving(view, other, node))?
            })
            .collect()
    }
}

/// Whether a node is removed for a reason that does not require places, even if a command chose it before. It has expired (D-209, D-241),
/// the cloud is reclaiming its instance (invariant 33: its pods have the remaining time) or has reclaimed it, or it is dead. Another client may have
/// begun to delete it: the rest follows. Of a cloud that nobody asks it may be that.
fn is_forced(view: &View, claim: &Claim, node: &Node) -> bool {
    let expired = claim.expiry.is_some_and(|expiry| expiry <= view.now);
    let instance = view.instances.get(claim.instance());
    let taken = instance.is_none_or(|instance| instance.is_going());
    expired || taken || node.deletion.is_some() || !node.ready
}

/// D-029, D-136: with a terminationGracePeriod, drift asks neither pods nor their budgets. Commands for other reasons do, also when the node has drifted. Who
/// finds no command does not know what it was for.
fn asks_no_pods(view: &View, claim: &Claim) -> bool {
    let is_drift = view
        .chosen_by(claim)
        .is_none_or(|chosen| chosen.reason == "Drifted");
    claim.termination_grace.is_some() && claim.is("Drifted", "True") && is_drift
}

/// D-141: nodes of a fixed number are replaced one for one, whatever runs on them: what becomes of their pods such a command does not ask.
fn seeks_no_places(view: &View, claim: &Claim) -> bool {
    let chosen = view.chosen_by(claim);
    chosen.is_some_and(|chosen| chosen.method.starts_with("Static"))
}

/// 9: no node goes as empty while the pods that it came for are still to come: as long as its command is under way, but not for as long as a drain hangs.
fn not_awaited(view: &View, node: &Node, claim: &Claim, report: &mut Report) {
    let goes_as_empty = view
        .chosen_by(claim)
        .is_some_and(|chosen| chosen.reason == "Empty");
    let Some(command) = view.commands.get(&claim.command).filter(|_| goes_as_empty) else {
        return;
    };
    let is_kept = command
        .deleted
        .is_none_or(|deleted| view.now < later(deleted, KEPT_WHILE_DRAINING));
    if is_kept && !view.is_news(command.since) {
        report.fail(
            9,
            format!("node {}", node.name),
            format!(
                "is chosen as empty while disruption {}, which it came for, is under way",
                claim.command
            ),
        );
    }
}

/// 6: neither the node nor a pod on it asks to be left alone.
fn undisturbed(view: &View, node: &Node, claim: &Claim, report: &mut Report) {
    if let Some(since) = node.protected_since.filter(|since| view.is_known(*since)) {
        report.fail(
            6,
            format!("node {}", node.name),
            format!("is chosen although it has said do-not-disrupt since {since}"),
        );
    }
    if asks_no_pods(view, claim) {
        return;
    }
    for pod in view.pods_on(&node.name) {
        let protected = pod.protected_since(view.now);
        if let (Some(since), Some(bound)) = (protected, pod.bound)
            && view.is_known(since.max(bound))
        {
            report.fail(
                6,
                format!("node {}", node.name),
                format!(
                    "is chosen although pod {}/{} says do-not-disrupt",
                    pod.key.0, pod.key.1
                ),
            );
        }
    }
}

/// D-195, D-196: what the budgets allow at an instant, of so many nodes.
pub(super) fn allowance(pool: &Pool, reason: &str, nodes: usize, now: Timestamp) -> usize {
    let budgets = pool.disruption["budgets"].as_array();
    let Some(budgets) = budgets else {
        return (nodes * 10).div_ceil(100);
    };
    let applies = |budget: &&serde_json::Value| {
        let reasons = budget["reasons"].as_array();
        reasons.is_none_or(|reasons| reasons.iter().any(|one| one == reason))
    };
    let allowed = |budget: &serde_json::Value| {
        if let Some(schedule) = budget["schedule"].as_str() {
            let length = duration(budget["duration"].as_str().unwrap_or_default());
            match length.and_then(|length| windows::is_open(schedule, length, now)) {
                Some(true) => {}
                Some(false) => return usize::MAX,
                // D-197: what cannot be read allows nothing.
                None => return 0,
            }
        }
        let text = budget["nodes"].as_str().unwrap_or("10%");
        match text.strip_suffix('%') {
            Some(percent) => percent
                .parse::<usize>()
                .map_or(0, |percent| (nodes * percent).div_ceil(100)),
            None => text.parse().unwrap_or(0),
        }
    };
    budgets
        .iter()
        .filter(applies)
        .map(allowed)
        .min()
        .unwrap_or(usize::MAX)
}

/// 2: with this one, no more are in progress than the budgets allow. Commands that were decided together are executed in parallel, so that
/// the first writes of one may come before those of another that was decided earlier: what counts is the order of the decisions. A NodeClaim
/// of an earlier command counts although nothing was done to it yet, one of a later command does not count here, but is counted in its turn.
fn within_budget(view: &View, claim: &Claim, report: &mut Report) {
    let reason = &claim.conditions["DisruptionReason"].reason;
    let of_pool = |node: &&Arc<Node>| node.pool() == claim.pool && node.is_initialized();
    let ended = view
        .ended_nodes
        .iter()
        .filter(|(node, at)| of_pool(&node) && later(*at, RECENT) >= view.now)
        .count();
    let nodes: Vec<_> = view
        .nodes
        .values()
        .filter(of_pool)
        .filter_map(|node| Some((node, view.claim_of_node(node)?)))
        .collect();
    let own = view.chosen_by(claim).map(|chosen| chosen.number);
    let leaving = |claim: &Claim| {
        let asked = claim.deletion.is_some_and(|asked| view.is_known(asked));
        match (own, view.chosen_by(claim)) {
            (Some(own), Some(chosen)) => chosen.number <= own,
            _ => asked || claim.is("DisruptionReason", "True"),
        }
    };
    let in_flight = nodes
        .iter()
        .filter(|(_, claim)| !claim.is("InstanceTerminating", "True") && leaving(claim))
        .count();
    let versions = view.recent_pools(&claim.pool);
    // A decision is a little older than its first write.
    let instants = [view.now, view.now.saturating_sub(RECENT).unwrap_or(view.now)];
    let allowed = versions
        .iter()
        .flat_map(|pool| instants.map(|at| allowance(pool, reason, nodes.len() + ended, at)))
        .max()
        .unwrap_or(0);
    if in_flight > allowed {
        report.fail(
            2,
            format!("nodeclaim {}", claim.name),
            format!(
                "is disrupted ({reason}) as number {in_flight} of nodepool {}, whose budgets allow {allowed} of {} nodes",
                claim.pool,
                nodes.len() + ended
            ),
        );
    }
}
