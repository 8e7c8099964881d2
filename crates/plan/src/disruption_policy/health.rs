//! Whether what a roll-out has brought is healthy: nodes Ready, and their pods ready and not restarting.
//!
//! Only nodes that came since the roll-out began, and for the template that it rolls out, are looked at, and a workload that fails on older nodes as well proves
//! nothing against the new ones. What was wrong before a halt was cleared is forgiven; that the nodes were there then is not.

use super::convergence::claimed;
use super::hold::born;
use super::rollout_times::{begun, first_since};
use crate::drift::has_other_hash;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ContainerStatus;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED, INITIALIZED};
use spokeshave_api::disruption_policy::{Rollout, RolloutStatus};
use spokeshave_model::pod;
use spokeshave_model::snapshot::{NodeId, NodeView, PodView, PoolId, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

const RESTARTS: i64 = 3;
const READY_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// What is wrong, in words.
    pub(super) failure: Option<String>,
    /// Since when something is not ready that has time left, the first of it.
    pub(super) settling_since: Option<Timestamp>,
    /// Since when a node that shows what the roll-out brings is up, the first of them.
    pub(super) tried_since: Option<Timestamp>,
}

/// Something that is not as it should be.
struct Problem {
    since: Option<Timestamp>,
    /// In words, once its time is over.
    failure: Option<String>,
}

struct Look<'a> {
    snapshot: &'a Snapshot,
    pool: PoolId,
    since: Timestamp,
    begun: Timestamp,
    /// What was there before no roll-out of this NodePool has brought since one was completed.
    first_since: Timestamp,
    resumed: Option<Timestamp>,
    now: Timestamp,
    restarts: i64,
    ready_within: SignedDuration,
}

/// Looks at the nodes of a NodePool that came since its roll-out began, and at their pods.
pub(super) fn of(
    snapshot: &Snapshot,
    pool: PoolId,
    status: &RolloutStatus,
    rollout: &Rollout,
    now: Timestamp,
) -> Health {
    let wanted = rollout.health.clone().unwrap_or_default();
    let look = Look {
        snapshot,
        pool,
        since: status.since.0,
        begun: begun(status),
        first_since: first_since(status).0,
        resumed: status.resumed_at.as_ref().map(|time| time.0),
        now,
        restarts: wanted.restarts.unwrap_or(RESTARTS),
        ready_within: wanted
            .ready_within
            .as_ref()
            .map_or(READY_WITHIN, |time| time.to_signed()),
    };
    look.all()
}

impl Look<'_> {
    fn all(&self) -> Health {
        let mut health = Health::default();
        let new: Vec<NodeId> = self
            .snapshot
            .node_ids()
            .filter(|node| self.is_new(self.snapshot.node(*node)))
            .collect();
        if new.is_empty() {
            return health;
        }
        let tries = new.iter().map(|node| self.snapshot.node(*node));
        let tries = tries.filter(|node| self.is_try(node));
        health.tried_since = tries.filter_map(|node| self.up_since(node)).min();
        let failing_anyway = self.failing_elsewhere();
        for node in new {
            let view = self.snapshot.node(node);
            let pods = view.present_pods().iter();
            let pods = pods.map(|pod| self.snapshot.pod(*pod));
            let pods = pods.filter(|pod| owner(pod).is_none_or(|owner| !failing_anyway.contains(owner)));
            let of_pods = pods.flat_map(|pod| self.pod(pod, &view.name));
            let problems = self.node(view).into_iter().chain(of_pods);
            for problem in problems.filter(|problem| !self.is_forgiven(problem)) {
                match problem.failure {
                    None => {
                        let since = problem.since.unwrap_or(Timestamp::MIN);
                        let first = health.settling_since.unwrap_or(since);
                        health.settling_since = Some(first.min(since));
                    }
                    Some(text) => {
                        health.failure.get_or_insert(text);
                    }
                }
            }
        }
        health
    }

    fn is_new(&self, node: &NodeView) -> bool {
        node.pool == Some(self.pool)
            && !node.marked_for_deletion
            && born(node) >= Some(self.since)
            && !self.is_of_another(node)
    }

    /// Whether a node was launched for another template than the present one, the one before for example, and says nothing of this one.
    fn is_of_another(&self, node: &NodeView) -> bool {
        let pool = &self.snapshot.pool(self.pool).object;
        node.claim
            .as_ref()
            .is_some_and(|claim| has_other_hash(claim, pool))
    }

    /// Whether a new node shows what the roll-out brings: it has come up. One that has drifted and was launched before the roll-out began may be of an image that
    /// was there before.
    fn is_try(&self, node: &NodeView) -> bool {
        let Some(claim) = &node.claim else {
            return false;
        };
        node.initialized && (!claim.is_true(DRIFTED) || claimed(node) >= Some(self.begun))
    }

    /// Since when a node that has come up is there and up.
    fn up_since(&self, node: &NodeView) -> Option<Timestamp> {
        let claim = node.claim.as_ref()?;
        let up = claim.true_condition(INITIALIZED);
        // Where the label of the Node is ahead of its NodeClaim it has just come up.
        let up = up.map_or(self.now, |one| one.last_transition_time);
        born(node).map(|born| born.max(up))
    }

    /// Since when nodes of a NodePool were brought by a roll-out that is not completed, or by one that it took the place of.
    fn brought_since(&self) -> BTreeMap<&str, Timestamp> {
        let policies = self.snapshot.disruption_policies.iter();
        let statuses = policies.filter_map(|policy| policy.status.as_ref());
        let mut brought: BTreeMap<&str, Timestamp> = BTreeMap::new();
        for one in statuses.flat_map(|status| &status.rollouts) {
            let since = first_since(one).0;
            let known = brought.entry(one.node_pool.as_str()).or_insert(since);
            *known = since.min(*known);
        }
        brought
    }

    /// Whether a node was there before this roll-out, and no other has brought it: the nodes of several NodePools, and of several roll-outs of one, may get the
    /// same bad image.
    fn is_older(&self, node: &NodeView, brought_since: &BTreeMap<&str, Timestamp>) -> bool {
        let born = born(node);
        let pool = node.pool_name.as_deref();
        let brought = pool.and_then(|pool| brought_since.get(pool));
        born < Some(self.first_since) && brought.is_none_or(|since| born < Some(*since))
    }

    /// Whether it began before the halt was cleared.
    fn is_forgiven(&self, problem: &Problem) -> bool {
        let times = problem.since.zip(self.resumed);
        times.is_some_and(|(since, resumed)| since < resumed)
    }

    /// Controllers of pods that fail on nodes which were there before.
    fn failing_elsewhere(&self) -> BTreeSet<&str> {
        let brought_since = self.brought_since();
        let nodes = self.snapshot.nodes.iter();
        let nodes = nodes.filter(|node| self.is_older(node, &brought_since));
        let pods = nodes.flat_map(|node| node.present_pods().iter());
        let pods = pods.map(|pod| self.snapshot.pod(*pod));
        let fails = |pod: &&PodView| self.pod(pod, "").iter().any(|one| one.failure.is_some());
        pods.filter(fails).filter_map(owner).collect()
    }

    fn node(&self, node: &NodeView) -> Option<Problem> {
        if !node.initialized || node.ready {
            // One that does not come up is the business of launches, and its command waits for it.
            return None;
        }
        let conditions = node
            .node
            .as_ref()
            .and_then(|node| node.status.as_ref()?.conditions.as_ref());
        let ready = conditions.and_then(|all| all.iter().find(|one| one.type_ == "Ready"));
        let since = ready
            .and_then(|one| one.last_transition_time.as_ref())
            .map(|time| time.0);
        Some(self.late(since, || format!("node {} is not Ready", node.name)))
    }

    /// What is wrong with a pod: that it restarts, and that it is not ready.
    fn pod(&self, pod: &PodView, node: &str) -> Vec<Problem> {
        let object = &pod.object;
        // One that is promised the node has not run there yet.
        let is_elsewhere = pod.is_virtual || pod.promised;
        if pod.terminal || object.metadata.deletion_timestamp.is_some() || is_elsewhere {
            return Vec::new();
        }
        let whose = || format!("pod {} on new node {node}", pod.key());
        let status = object.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let ready = conditions
            .unwrap_or_default()
            .iter()
            .find(|one| one.type_ == "Ready");
        let changed = ready.and_then(|one| one.last_transition_time.as_ref());
        let created = object.metadata.creation_timestamp.as_ref();
        // Until its kubelet has written of it for the first time, it is there since it was bound: it may have waited for a node for long.
        let bound = || pod::true_since(object, "PodScheduled");
        let since = changed.map(|time| time.0).or_else(bound);
        let since = since.or(created.map(|time| time.0));
        let mut problems = Vec::new();
        let containers = status.and_then(|status| status.container_statuses.as_deref());
        let restarting = containers.unwrap_or_default().iter();
        let restarting = restarting.filter(|one| i64::from(one.restart_count) >= self.restarts);
        if let Some(worst) = restarting.clone().max_by_key(|one| one.restart_count) {
            let times = usize::try_from(worst.restart_count).unwrap_or(0);
            let times = crate::report::count(times, "time");
            problems.push(Problem {
                since: restarting.filter_map(ended).max().or(since),
                failure: Some(format!("{} has restarted {times}", whose())),
            });
        }
        if ready.is_none_or(|one| one.status != "True") {
            problems.push(self.late(since, || format!("{} is not ready", whose())));
        }
        problems
    }

    /// Not ready since a time: it has a while.
    fn late(&self, since: Option<Timestamp>, text: impl Fn() -> String) -> Problem {
        let waited = since.map(|since| self.now.duration_since(since));
        let over = waited.filter(|waited| *waited >= self.ready_within);
        Problem {
            since,
            failure: over.map(|waited| format!("{} for {} minutes", text(), waited.as_mins())),
        }
    }
}

/// When a container ended last.
fn ended(container: &ContainerStatus) -> Option<Timestamp> {
    let states = [&container.state, &container.last_state].into_iter().flatten();
    let ended = states.filter_map(|state| state.terminated.as_ref());
    let times = ended.filter_map(|ended| Some(ended.finished_at.as_ref()?.0));
    times.max()
}

fn owner(pod: &PodView) -> Option<&str> {
    let mut owners = pod.object.metadata.owner_references.iter().flatten();
    owners.next().map(|owner| owner.uid.as_str())
}
