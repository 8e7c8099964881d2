//! Whether what a roll-out has brought is healthy: nodes Ready, and their pods ready and not restarting.
//!
//! Only nodes that came since a time are looked at, and a workload that fails on older nodes as well proves nothing against the new ones.

use super::hold::born;
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::disruption_policy::Rollout;
use spokeshave_model::snapshot::{NodeId, NodeView, PodView, PoolId, Snapshot};
use std::collections::BTreeSet;

const RESTARTS: i64 = 3;
const READY_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// What is wrong, in words.
    pub(super) failure: Option<String>,
    /// Something is not ready and has time left.
    pub(super) is_settling: bool,
}

enum Sight {
    Healthy,
    Settling,
    Failed(String),
}

struct Look<'a> {
    snapshot: &'a Snapshot,
    pool: PoolId,
    since: Timestamp,
    now: Timestamp,
    restarts: i64,
    ready_within: SignedDuration,
}

/// Looks at the nodes of a NodePool that came since a time, and at their pods.
pub(super) fn of(
    snapshot: &Snapshot,
    pool: PoolId,
    since: Timestamp,
    rollout: &Rollout,
    now: Timestamp,
) -> Health {
    let wanted = rollout.health.clone().unwrap_or_default();
    let look = Look {
        snapshot,
        pool,
        since,
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
        let failing_anyway = self.failing_elsewhere();
        for node in new {
            let view = self.snapshot.node(node);
            let pods = view.pods.iter().map(|pod| self.snapshot.pod(*pod));
            let pods = pods.filter(|pod| owner(pod).is_none_or(|owner| !failing_anyway.contains(owner)));
            let sights = std::iter::once(self.node(view)).chain(pods.map(|pod| self.pod(pod, &view.name)));
            for sight in sights {
                match sight {
                    Sight::Healthy => {}
                    Sight::Settling => health.is_settling = true,
                    Sight::Failed(text) => {
                        health.failure.get_or_insert(text);
                    }
                }
            }
        }
        health
    }

    fn is_new(&self, node: &NodeView) -> bool {
        node.pool == Some(self.pool) && !node.marked_for_deletion && born(node) >= Some(self.since)
    }

    /// Controllers of pods that fail on nodes which were there before.
    fn failing_elsewhere(&self) -> BTreeSet<&str> {
        let nodes = self.snapshot.nodes.iter().filter(|node| !self.is_new(node));
        let pods = nodes.flat_map(|node| node.pods.iter().map(|pod| self.snapshot.pod(*pod)));
        pods.filter(|pod| matches!(self.pod(pod, ""), Sight::Failed(_)))
            .filter_map(owner)
            .collect()
    }

    fn node(&self, node: &NodeView) -> Sight {
        if !node.initialized || node.ready {
            // One that does not come up is the business of launches, and its command waits for it.
            return Sight::Healthy;
        }
        let conditions = node
            .node
            .as_ref()
            .and_then(|node| node.status.as_ref()?.conditions.as_ref());
        let ready = conditions.and_then(|all| all.iter().find(|one| one.type_ == "Ready"));
        let since = ready
            .and_then(|one| one.last_transition_time.as_ref())
            .map(|time| time.0);
        self.late(since, || format!("node {} is not Ready", node.name))
    }

    fn pod(&self, pod: &PodView, node: &str) -> Sight {
        let object = &pod.object;
        if pod.terminal || object.metadata.deletion_timestamp.is_some() || pod.is_virtual {
            return Sight::Healthy;
        }
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let status = object.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_deref());
        let restarts = containers.unwrap_or_default().iter().map(|one| one.restart_count);
        let restarts = i64::from(restarts.max().unwrap_or(0));
        if restarts >= self.restarts {
            return Sight::Failed(format!(
                "pod {namespace}/{name} on new node {node} has restarted {}",
                crate::report::count(usize::try_from(restarts).unwrap_or(0), "time")
            ));
        }
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let ready = conditions
            .unwrap_or_default()
            .iter()
            .find(|one| one.type_ == "Ready");
        if ready.is_some_and(|one| one.status == "True") {
            return Sight::Healthy;
        }
        let changed = ready.and_then(|one| one.last_transition_time.as_ref());
        let created = object.metadata.creation_timestamp.as_ref();
        let since = changed.or(created).map(|time| time.0);
        self.late(since, || {
            format!("pod {namespace}/{name} on new node {node} is not ready")
        })
    }

    /// Not ready since a time: it has a while.
    fn late(&self, since: Option<Timestamp>, text: impl Fn() -> String) -> Sight {
        let waited = since.map(|since| self.now.duration_since(since));
        match waited.filter(|waited| *waited >= self.ready_within) {
            None => Sight::Settling,
            Some(waited) => Sight::Failed(format!("{} for {} minutes", text(), waited.as_mins())),
        }
    }
}

fn owner(pod: &PodView) -> Option<&str> {
    let mut owners = pod.object.metadata.owner_references.iter().flatten();
    owners.next().map(|owner| owner.uid.as_str())
}
