//! Pods that wait: one that fits gets a node in time (22); daemons are counted on new nodes and keep none (34).

use std::time::Duration;

use super::moves::allowance;
use super::view::{Claim, Node, Pod, View};
use super::{Checker, Expectations, Report, RequestInfo};

/// Marks pods of which the scenario knows that some NodePool can hold them, whatever else happens.
pub const FITS: &str = "sim.spokeshave.dev/fits";
/// A launch may time out once (5 minutes) and a registration once (15 minutes), and both again with the next machine.
const PLACED_WITHIN: Duration = Duration::from_secs(60 * 60);
/// What each further machine of the cloud that never joins costs, and how many of them may follow each other.
const JOINS_NOT_WITHIN: Duration = Duration::from_secs(16 * 60);
const UNJOINED_IN_A_ROW: usize = 6;
/// So many machines in a row that a pod could run on may come up without it: others were quicker, or its neighbours had moved.
const IN_VAIN: usize = 4;
/// consolidateAfter of a minute, the poll, the validation, and other nodes' turns.
const EMPTY_GOES_WITHIN: Duration = Duration::from_secs(30 * 60);

#[derive(Debug)]
pub(super) struct Waiting {
    expectations: Expectations,
    /// Empty nodes and since when.
    empty: std::collections::BTreeMap<String, jiff::Timestamp>,
}

impl Waiting {
    pub(super) fn new(expectations: Expectations) -> Self {
        Self {
            expectations,
            empty: std::collections::BTreeMap::new(),
        }
    }
}

impl Checker for Waiting {
    fn changed(
        &mut self,
        view: &View,
        change: &super::view::Change,
        _request: &RequestInfo,
        _report: &mut Report,
    ) {
        // Whatever happens to a node or on it restarts the time for which it has been empty.
        match change {
            super::view::Change::Pod(pair) => {
                let pod = pair.after.as_ref().or(pair.before.as_ref());
                if let Some(pod) = pod.filter(|pod| !pod.is_daemon() && !pod.shape.mirror) {
                    self.empty.remove(&pod.node);
                }
            }
            super::view::Change::Node(pair) => {
                if let Some(node) = &pair.after
                    && pair
                        .before
                        .as_ref()
                        .is_none_or(|before| before.ready != node.ready)
                {
                    self.empty.insert(node.name.clone(), view.now);
                }
            }
            _ => {}
        }
    }

    fn ticked(&mut self, view: &View, report: &mut Report) {
        for pod in view.pods.values() {
            if pod.shape.owner_kind == "DaemonSet" {
                overhead(view, pod, report);
            }
            self.served(view, pod, report);
        }
        for node in view.nodes.values() {
            self.leaves(view, node, report);
        }
        self.empty.retain(|name, _| view.nodes.contains_key(name));
    }
}

impl Waiting {
    /// 22.
    fn served(&self, view: &View, pod: &Pod, report: &mut Report) {
        let waits = pod.node.is_empty() && pod.deletion.is_none() && !pod.has_ended() && !pod.gated;
        let fits = pod.shape.fits;
        if !waits || !fits {
            return;
        }
        let object = format!("pod {}/{}", pod.key.0, pod.key.1);
        let since = pod.created;
        let within = self.expectations.launch_within + view.left_out;
        let is_late = |due_since| view.has_lasted(due_since, within);
        // Most have not waited for long, whatever has come since.
        if is_late(since) && is_late(launch_due_since(view, pod)) && !joins(view, pod) {
            report.fail(
                22,
                object,
                format!(
                    "fits, has waited since {since}, and no NodeClaim that it could run on was made: {}",
                    pod.message
                ),
            );
        } else if view.has_lasted(since, PLACED_WITHIN + view.left_out + unlucky(view, since)) {
            report.fail(
                22,
                object,
                format!("fits and has waited since {since}: {}", pod.message),
            );
        }
    }

    /// 34: a node with only DaemonSet pods is empty, and is removed.
    fn leaves(&mut self, view: &View, node: &Node, report: &mut Report) {
        let Some(claim) = view.claim_of_node(node) else {
            return;
        };
        let Some(pool) = view.pools.get(&claim.pool) else {
            return;
        };
        let busy = view
            .pods_on(&node.name)
            .any(|pod| !pod.has_ended() && !pod.is_daemon() && !pod.shape.mirror);
        let protected = node.protected_since.is_some()
            || view
                .pods_on(&node.name)
                .any(|pod| pod.protected_since(view.now).is_some());
        let guarded = view
            .pods_on(&node.name)
            .any(|pod| view.budgets.values().any(|budget| budget.covers(pod)));
        let soon = super::view::duration(pool.disruption["consolidateAfter"].as_str().unwrap_or_default())
            .is_some_and(|after| after <= Duration::from_secs(60));
        let leaving = node.deletion.is_some() || node.disrupted_since.is_some() || claim.deletion.is_some();
        let holds_room = !busy && may_hold_room(view);
        // DisruptionPolicies may keep it for as long as they like.
        let kept = !view.policies.is_empty();
        if busy
            || kept
            || protected
            || guarded
            || leaving
            || holds_room
            || !soon
            || !node.is_initialized()
            || !node.ready
        {
            self.empty.insert(node.name.clone(), view.now);
            return;
        }
        let since = *self.empty.entry(node.name.clone()).or_insert(view.now);
        let nodes = view.nodes.values().filter(|other| other.pool() == node.pool());
        let (count, others) = nodes.fold((0, 0), |(count, others), other| {
            let counts = !other.ready || other.deletion.is_some() || other.disrupted_since.is_some();
            (
                count + usize::from(other.is_initialized()),
                others + usize::from(counts),
            )
        });
        if allowance(pool, "Empty", count, view.now) <= others {
            self.empty.insert(node.name.clone(), view.now);
        } else if view.has_lasted(since, EMPTY_GOES_WITHIN) {
            report.fail(
                34,
                format!("node {}", node.name),
                format!("has had nothing but daemons since {since}, and stays"),
            );
        }
    }
}

/// Whether there are no more nodes without pods than pods for which CapacityBuffers keep room.
fn may_hold_room(view: &View) -> bool {
    let room: i64 = view.room.values().sum();
    if room == 0 {
        return false;
    }
    let bare = view.nodes.values().filter(|node| {
        let mut pods = view.pods_on(&node.name);
        node.is_initialized() && !pods.any(|pod| !pod.has_ended() && !pod.is_daemon() && !pod.shape.mirror)
    });
    i64::try_from(bare.count()).is_ok_and(|bare| bare <= room)
}

/// 34: a new node has room for the daemons that were there before it.
fn overhead(view: &View, pod: &Pod, report: &mut Report) {
    let Some(name) = pod.shape.pinned_to.as_deref().filter(|_| pod.node.is_empty()) else {
        return;
    };
    let Some(node) = view
        .nodes
        .get(name)
        .filter(|node| node.ready && node.is_initialized())
    else {
        return;
    };
    // Made for an older node, a daemon finds what room there is; and others may be quicker than an ordinary one.
    let with_the_node = super::view::later(node.created, Duration::from_secs(60)) >= pod.created;
    if with_the_node
        && pod.deletion.is_none()
        && pod.shape.critical
        && view.has_lasted(pod.created, Duration::from_secs(5 * 60))
        && pod.message.contains("Insufficient")
    {
        report.fail(
            34,
            format!("pod {}/{}", pod.key.0, pod.key.1),
            format!("of a DaemonSet finds no room on node {name}: {}", pod.message),
        );
    }
}

/// Whether a machine is on its way on which a pod could run, as far as its NodeClaim says, also one that was launched before the pod was made: a Node that is
/// deleted before it is registered stays away for as long as registration may take. What others wait for does not help this pod.
fn joins(view: &View, pod: &Pod) -> bool {
    view.claims.values().any(|claim| {
        let is_young = |created| super::view::later(created, JOINS_NOT_WITHIN) >= view.now;
        let is_coming = claim.deletion.is_none() && !claim.is("Initialized", "True");
        is_coming && claim.created.is_some_and(is_young) && claim.may_hold(pod)
    })
}

/// When the time for a launch begins: when the pod is made, when the last machine that it could have run on is given up, or when one has come up without it,
/// though not as often as machines come up. Such a machine may have been launched before the pod was made, which then waited for it.
fn launch_due_since(view: &View, pod: &Pod) -> jiff::Timestamp {
    let since = pod.created;
    let mine = |claim: &Claim| claim.may_hold(pod);
    let after = |came_up: bool| {
        let settled = view.settled.iter();
        settled.filter(move |one| one.at >= since && one.came_up == came_up)
    };
    let given_up = after(false).rev().find(|one| mine(&one.claim));
    let come_up = after(true).filter(|one| mine(&one.claim)).take(IN_VAIN).last();
    let settled = given_up.into_iter().chain(come_up).map(|one| one.at);
    settled.fold(since, jiff::Timestamp::max)
}

/// What the cloud's machines that never joined have cost since then.
fn unlucky(view: &View, since: jiff::Timestamp) -> Duration {
    let unjoined = view.unjoined.iter().filter(|at| **at >= since).count();
    JOINS_NOT_WITHIN * u32::try_from(unjoined.min(UNJOINED_IN_A_ROW)).unwrap_or_default()
}
