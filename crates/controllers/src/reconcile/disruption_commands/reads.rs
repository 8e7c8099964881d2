//! What a command asks for right before its nodes are deleted, of what the watch has told and of the API server.
//!
//! Owns how the pods and nodes are read. What follows from them is decided in `plan::disrupt`.

use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::Pod;
use spokeshave_plan::disrupt::advance::{Present, PresentNode, WaitsFor};
use spokeshave_plan::disrupt::{LastLook, last_look};

use super::Commands;
use crate::act::error::ExecuteError;

/// So many nodes' pods are listed at the same time.
const LISTS_AT_ONCE: usize = 20;

impl Commands {
    /// Whether a command waits for places that another is to make, as far as the watch has told: nothing that the API server has would let its nodes go now,
    /// so that it need not be asked for them in every look.
    pub(super) async fn waits_for_places(&self, disruption: &Disruption, now: Timestamp) -> bool {
        let by_node = &self.cluster.stores.disruptions_by_node;
        let is_others = |other: &Arc<Disruption>| other.name() != disruption.name() && other.holds_nodes();
        let mut destinations = disruption.spec.destinations.iter();
        let is_taken = destinations.any(|name| by_node.get(name).iter().any(is_others));
        is_taken && self.last_look(disruption, now).await == LastLook::NotYet
    }

    /// Invariants 8 and 38: the last look, on what the API server has. The Snapshot is made after it has answered, so that what the watch has told of by then
    /// is in it.
    pub(super) async fn look_at_server(
        &self,
        disruption: &Disruption,
        present: &mut Present,
        now: Timestamp,
    ) {
        if self.knows(disruption, present).await {
            present.look_finds(self.last_look(disruption, now).await);
        } else {
            present.waits_for = Some(WaitsFor::Watch);
        }
    }

    async fn last_look(&self, disruption: &Disruption, now: Timestamp) -> LastLook {
        let snapshot = self.cluster.snapshot_with(&[]).await;
        last_look(disruption, &snapshot, &self.cluster.policy, now)
    }

    /// Reads from the API server which pods are where. False where the watch knows less, or the server does not answer: the command waits for it, but not for ever.
    async fn knows(&self, disruption: &Disruption, present: &mut Present) -> bool {
        let own = self.list_pods(disruption, present).await;
        let others = self.read_destinations(present).await;
        for error in [own.as_ref().err(), others.as_ref().err()].into_iter().flatten() {
            if self.is_line_due(format!("{}: {error}", disruption.name())) {
                tracing::warn!(Disruption = disruption.name(), %error, "its pods and nodes could not be read");
            }
        }
        own.unwrap_or(false) && others.unwrap_or(false)
    }

    /// Asks the API server for the pods of the nodes that are still to go; one after the other would take longer than the taints of a large
    /// command take to settle. False when the watch has not told of one of them yet: what the Snapshot knows of these nodes is not all.
    async fn list_pods(&self, disruption: &Disruption, present: &mut Present) -> Result<bool, ExecuteError> {
        let live = present
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, there)| there.is_live());
        let list = |(index, _): (usize, &PresentNode)| {
            let (hands, node) = (self.hands.clone(), disruption.spec.nodes[index].name.clone());
            async move { (index, hands.pods_on(&node).await) }.boxed()
        };
        let lists: Vec<_> = live.map(list).collect();
        let mut lists = stream::iter(lists).buffered(LISTS_AT_ONCE);
        let mut up_to_date = true;
        while let Some((index, pods)) = lists.next().await {
            let pods = pods?;
            up_to_date &= knows_all(&present.nodes[index].pods, &pods);
            present.nodes[index].pods = pods;
        }
        Ok(up_to_date)
    }

    /// Invariants 8 and 38: asks the API server for the nodes that are to take pods, and whether the watch has told of every pod that is on them. A watch that
    /// stands still tells of no node that has gone, and places are not what they seem until it has told of all pods.
    async fn read_destinations(&self, present: &mut Present) -> Result<bool, ExecuteError> {
        let read = |(index, (name, _)): (usize, &(String, Option<Arc<Node>>))| {
            let (cluster, hands, name) = (self.cluster.clone(), self.hands.clone(), name.clone());
            async move {
                let known = cluster.stores.pods_by_node.get(&name);
                let (node, pods) = futures::try_join!(hands.get::<Node>(&name), hands.pods_on(&name))?;
                Ok::<_, ExecuteError>((index, node, knows_all(&known, &pods)))
            }
            .boxed()
        };
        let there = present.destinations.iter().enumerate();
        let reads: Vec<_> = there.filter(|(_, (_, node))| node.is_some()).map(read).collect();
        let mut reads = stream::iter(reads).buffered(LISTS_AT_ONCE);
        let mut all_known = true;
        while let Some(read) = reads.next().await {
            let (index, node, knows_pods) = read?;
            all_known &= knows_pods;
            present.destinations[index].1 = node.map(Arc::new);
        }
        Ok(all_known)
    }
}

/// Whether the watch has told of every pod that takes room, of those that the API server has.
fn knows_all(known: &[Arc<Pod>], pods: &[Arc<Pod>]) -> bool {
    let is_known = |pod: &Arc<Pod>| known.iter().any(|one| one.metadata.uid == pod.metadata.uid);
    let mut active = pods.iter().filter(|pod| !spokeshave_model::pod::is_terminal(pod));
    active.all(is_known)
}
