//! What a simulation begins with of the cluster that its dumps are of: which nodes, and what is left out, in words.
//!
//! Owns what is kept of a dump for that, and when the dump was written. Which nodes can be lived on is the business of the crate `simulate`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_plan::report::{count, some_of};
use spokeshave_scenario::Timeline;
use spokeshave_simulate::dumped::Dumped;
use spokeshave_simulate::left_out::{LeftOut, Why};
use spokeshave_simulate::{Policy, Standing, World};

use crate::plan::dump::Dump;
use crate::plan::files;

/// Objects that are named for each reason.
const MOST_NAMED: usize = 3;

/// What dumps have of nodes.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    nodes: Vec<Arc<Node>>,
    node_claims: Vec<Arc<NodeClaim>>,
    node_pools: Vec<Arc<NodePool>>,
    taken_at: Option<Timestamp>,
}

impl Nodes {
    /// Those of a dump; of two NodePools with one name the first is that of the cluster.
    pub(crate) fn of(dump: &Dump, node_pools: &[Arc<NodePool>]) -> Self {
        Nodes {
            nodes: dump.nodes.clone(),
            node_claims: dump.node_claims.clone(),
            node_pools: node_pools.to_vec(),
            taken_at: newest(dump),
        }
    }

    /// Those with which a recording begins, of a cluster with these NodePools.
    pub(crate) fn recorded(dump: &Dump, node_pools: &[Arc<NodePool>], begun: Timestamp) -> Self {
        Nodes {
            taken_at: Some(begun),
            ..Nodes::of(dump, node_pools)
        }
    }

    /// Those of files; none where they cannot be read, which whoever reads them for more will say.
    pub(crate) fn of_files(paths: &[PathBuf]) -> Self {
        let dump = files::read(paths).unwrap_or_default();
        Nodes::of(&dump, &dump.node_pools)
    }

    /// Whether there is a NodeClaim with its Node, so that a simulation is likely to begin with it.
    pub(crate) fn is_any(&self) -> bool {
        let ids = self.nodes.iter().filter_map(|node| node.spec.as_ref());
        let ids: BTreeSet<&str> = ids.filter_map(|spec| spec.provider_id.as_deref()).collect();
        let mut claims = self.node_claims.iter();
        claims.any(|claim| claim.provider_id().is_some_and(|id| ids.contains(id)))
    }

    /// The nodes that all of these policies begin with, and what is left out.
    pub(crate) fn stand(&self, world: &World, policies: &[Policy]) -> (Standing, Vec<LeftOut>) {
        let dumped = Dumped {
            nodes: &self.nodes,
            node_claims: &self.node_claims,
            node_pools: &self.node_pools,
            taken_at: self.taken_at.unwrap_or(world.start),
        };
        Standing::of(&dumped, world, policies)
    }
}

/// When a dump was written: no dump says so, but it is as old as the newest that it tells of nodes and pods. Kubelets report every few minutes.
fn newest(dump: &Dump) -> Option<Timestamp> {
    let of_nodes = dump.nodes.iter().flat_map(|node| {
        let status = node.status.iter();
        let conditions = status.flat_map(|status| status.conditions.iter().flatten());
        let seen = conditions.flat_map(|one| [&one.last_heartbeat_time, &one.last_transition_time]);
        let seen = seen.chain([&node.metadata.creation_timestamp]);
        seen.flatten().map(|time| time.0)
    });
    let of_claims = dump.node_claims.iter().flat_map(|claim| {
        let status = claim.status.iter();
        let conditions = status.clone().flat_map(|status| &status.conditions);
        let events = status.filter_map(|status| status.last_pod_event_time.as_ref());
        let created = claim.metadata.creation_timestamp.iter();
        let times = events.chain(created).map(|time| time.0);
        conditions.map(|one| one.last_transition_time).chain(times)
    });
    let of_pods = dump.pods.iter().flat_map(|pod| {
        let started = pod.status.iter().filter_map(|status| status.start_time.as_ref());
        let created = pod.metadata.creation_timestamp.iter();
        started.chain(created).map(|time| time.0)
    });
    of_nodes.chain(of_claims).chain(of_pods).max()
}

/// What is to be known of the beginning, with nodes of `whence`: a dump or a recording.
pub(crate) fn notes(
    whence: &str,
    standing: &Standing,
    left_out: &[LeftOut],
    timeline: &Timeline,
) -> Vec<String> {
    let mut notes = Vec::new();
    if !standing.is_empty() {
        let names = standing.node_names();
        let placements = timeline.placements.iter();
        let placed = placements
            .filter(|placement| names.contains(placement.node.as_str()))
            .count();
        let others = match timeline.placements.len() - placed {
            0 => String::new(),
            1 => format!("; 1 pod, on another node in the {whence}, begins without one"),
            others => format!("; {others} pods, on other nodes in the {whence}, begin without one"),
        };
        notes.push(format!(
            "every policy begins with {} of the {whence} as of {}, and with {} on them{others}",
            count(names.len(), "node"),
            standing.taken_at,
            count(placed, "pod"),
        ));
    }
    notes.extend(fixed(standing));
    notes.extend(said_of(whence, left_out));
    notes
}

/// A sentence about nodes that no NodePool owns, if there are any.
fn fixed(standing: &Standing) -> Option<String> {
    let names: Vec<&str> = standing.fixed_names().collect();
    (!names.is_empty()).then(|| {
        format!(
            "of these nodes, no NodePool owns {} ({}): room for pods that is there to the end under every policy, and in no cost and no figure of nodes",
            names.len(),
            some_of(&names, MOST_NAMED)
        )
    })
}

/// A sentence about what is left out, if anything is.
fn said_of(whence: &str, left_out: &[LeftOut]) -> Option<String> {
    let mut groups: BTreeMap<(Why, &str), Vec<&str>> = BTreeMap::new();
    for one in left_out {
        groups.entry((one.why, one.kind)).or_default().push(&one.name);
    }
    let groups = groups.iter().map(|((why, kind), names)| {
        let (number, named) = (count(names.len(), kind), some_of(names, MOST_NAMED));
        format!("{number} {} ({named})", why.text())
    });
    let groups: Vec<String> = groups.collect();
    (!groups.is_empty()).then(|| {
        format!(
            "no policy begins with these of the {whence}, and pods on them begin without a node: {}",
            groups.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use spokeshave_scenario::{OwnerId, Placement};
    use spokeshave_simulate::StandingNode;

    use super::*;

    fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).expect("an object"))
    }

    fn node(name: &str, heartbeat: &str) -> Arc<Node> {
        from(json!({
            "metadata": {"name": name, "creationTimestamp": "2026-03-01T00:00:00Z"},
            "spec": {"providerID": format!("cloud://{name}")},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]},
        }))
    }

    fn claim(name: &str, node: &str) -> Arc<NodeClaim> {
        from(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "creationTimestamp": "2026-03-01T00:00:00Z"},
            "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []},
            "status": {"providerID": format!("cloud://{node}"), "lastPodEventTime": "2026-03-02T08:00:00Z"},
        }))
    }

    #[test]
    fn a_dump_is_as_old_as_the_newest_that_it_tells() {
        let mut dump = Dump::default();
        assert_eq!(newest(&dump), None);
        dump.nodes = vec![node("a", "2026-03-02T07:00:00Z")];
        dump.node_claims = vec![claim("one", "a")];
        let told = |dump: &Dump| newest(dump).map(|time| time.to_string());
        assert_eq!(
            told(&dump).as_deref(),
            Some("2026-03-02T08:00:00Z"),
            "a pod event"
        );
        dump.nodes.push(node("b", "2026-03-02T09:00:00Z"));
        assert_eq!(
            told(&dump).as_deref(),
            Some("2026-03-02T09:00:00Z"),
            "a heartbeat"
        );
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"startTime": "2026-03-02T10:00:00Z"}});
        dump.pods = vec![from(pod)];
        assert_eq!(told(&dump).as_deref(), Some("2026-03-02T10:00:00Z"), "a pod");
    }

    #[test]
    fn a_claim_counts_with_its_node_alone() {
        let mut nodes = Nodes {
            node_claims: vec![claim("one", "a")],
            ..Nodes::default()
        };
        assert!(!nodes.is_any());
        nodes.nodes = vec![node("b", "2026-03-02T07:00:00Z")];
        assert!(!nodes.is_any(), "the Node of another one");
        nodes.nodes.push(node("a", "2026-03-02T07:00:00Z"));
        assert!(nodes.is_any());
    }

    #[test]
    fn the_beginning_is_told_with_what_is_left_out() {
        let standing = Standing {
            taken_at: "2026-03-02T09:00:00Z".parse().expect("an instant"),
            nodes: vec![StandingNode {
                claim: claim("one", "a"),
                node: node("a", "2026-03-02T09:00:00Z"),
                price: spokeshave_model::Price::ZERO,
                capacity_type: spokeshave_model::CapacityType::OnDemand,
            }],
            fixed: vec![node("system-1", "2026-03-02T09:00:00Z")],
        };
        let on = |pod: u64, node: &str| Placement {
            owner: OwnerId(0),
            pod,
            node: node.to_owned(),
            since: None,
            works_since: None,
        };
        let timeline = Timeline {
            placements: vec![on(0, "a"), on(1, "system-1"), on(2, "elsewhere")],
            ..Timeline::default()
        };
        let left = |kind: &'static str, name: &str, why: Why| LeftOut {
            kind,
            name: name.to_owned(),
            why,
        };
        let left_out = [
            left("NodeClaim", "old", Why::NoNode),
            left("Node", "system-2", Why::NotReady),
            left("Node", "system-3", Why::NotReady),
        ];
        let told = notes("dump", &standing, &left_out, &timeline);
        assert_eq!(
            told,
            [
                "every policy begins with 2 nodes of the dump as of 2026-03-02T09:00:00Z, and with 2 pods on them; 1 pod, on another node in the dump, begins without one",
                "of these nodes, no NodePool owns 1 (system-1): room for pods that is there to the end under every policy, and in no cost and no figure of nodes",
                "no policy begins with these of the dump, and pods on them begin without a node: 1 NodeClaim without a Node (old); 2 Nodes not ready (system-2, system-3)",
            ]
        );
        let recorded = notes("recording", &standing, &left_out, &timeline);
        for (recorded, told) in recorded.iter().zip(&told) {
            assert_eq!(*recorded, told.replace("the dump", "the recording"));
        }
        assert_eq!(notes("dump", &Standing::default(), &[], &timeline), [""; 0]);
    }
}
