//! What the figures of a scenario cannot show, whatever its policies say: told before anything is simulated.
//!
//! Owns the sentences. That pods have no place in any NodePool is not its business.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::CapacityBuffer;
use spokeshave_plan::report::some_of;
use spokeshave_scenario::pods::has_gates;
use spokeshave_scenario::{Change, Owner, Timeline};
use spokeshave_simulate::{Policy, World};

/// Workloads that are named.
const MOST_NAMED: usize = 5;

/// What is not taken over from a dump.
pub(crate) const NODES: &str = "no node of the dump is taken over, which takes Nodes with their NodeClaims in it, and a scenario without `nodes: none`: every policy begins without nodes and launches its own, which are full where those of the cluster may be half empty, so that what removing these would save is in no figure; `spokeshave plan` says that of the cluster as it is";

/// Why policies may differ in nothing.
pub(crate) const STILL: &str = "no workload changes after the warm-up, so that nodes stay as full as they were launched: policies that differ only in how they disrupt, such as consolidateAfter, hardly differ; workloads with a daily curve, jobs, a recording, interruptions or expireAfter give them something to do";

/// A sentence for each thing that cannot be seen; the scenario begins with workloads of dumps that are packed anew, or not, and nodes end by themselves or not.
pub(crate) fn notes(timeline: &Timeline, is_packed: bool, nodes_end: bool, warmup_ms: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if is_packed {
        notes.push(NODES.to_owned());
        if !nodes_end && is_still(timeline, warmup_ms) {
            notes.push(STILL.to_owned());
        }
    }
    notes.extend(gated(timeline));
    notes
}

/// Nodes end whatever their pods do: spot instances are interrupted, or those of a NodePool expire before the simulation is over.
pub(crate) fn nodes_end(world: &World, policies: &[Policy]) -> bool {
    let is_interrupted = world.spot.is_some_and(|spot| spot.per_million_node_hours > 0);
    let duration = Duration::from_millis(world.duration_ms);
    let mut pools = policies.iter().flat_map(|policy| &policy.node_pools);
    let expires = pools.any(|pool| {
        let after = pool.spec.template.spec.expire_after.duration();
        after.is_some_and(|after| after < duration)
    });
    is_interrupted || expires
}

/// Nothing comes or goes once the warm-up is over.
pub(crate) fn is_still(timeline: &Timeline, warmup_ms: u64) -> bool {
    let stays = |change: &Change| !matches!(change, Change::Begin { runs_ms: Some(_), .. });
    let mut events = timeline.events.iter();
    events.all(|event| event.at_ms <= warmup_ms && stays(&event.change))
}

/// CapacityBuffers, for which neither engine keeps room.
pub(crate) fn buffers(buffers: &[Arc<CapacityBuffer>]) -> Option<String> {
    let name = |buffer: &Arc<CapacityBuffer>| {
        let namespace = buffer.metadata.namespace.as_deref().unwrap_or("default");
        format!("{namespace}/{}", buffer.name())
    };
    let names: BTreeSet<String> = buffers.iter().map(name).collect();
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| {
        format!(
            "a simulation keeps no room for CapacityBuffers, as with the feature gate CapacityBuffer off: the nodes that {} would keep are in no cost",
            some_of(&names, MOST_NAMED)
        )
    })
}

/// Workloads whose pods have scheduling gates, which some other controller would take off.
fn gated(timeline: &Timeline) -> Option<String> {
    let is_gated = |owner: &&Owner| {
        let mut specs = owner.templates().filter_map(|template| template.spec.as_ref());
        specs.any(has_gates)
    };
    let found = timeline.owners.iter().filter(is_gated);
    let names: Vec<String> = found
        .map(|owner| format!("{}/{}", owner.namespace, owner.name))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "the pods of {} have schedulingGates, which nobody takes off in a simulation: they wait as long as they are there, and no node is launched for them; without the gates in the files they would run at once",
            some_of(&names, MOST_NAMED)
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use spokeshave_scenario::{Event, OwnerId, OwnerKind, Spread};

    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    fn timeline(spec: &serde_json::Value, events: &[(u64, Change)]) -> Timeline {
        let owner = Owner {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            kind: OwnerKind::Deployment,
            template: Arc::new(serde_json::from_value(json!({"spec": spec})).expect("a template")),
            ready: Spread {
                median_ms: 0,
                p99_ms: 0,
            },
            budget: None,
            later: Vec::new(),
            claims: Vec::new(),
        };
        let events = events.iter().map(|(at_ms, change)| Event {
            at_ms: *at_ms,
            owner: OwnerId(0),
            change: change.clone(),
        });
        Timeline {
            owners: vec![owner],
            events: events.collect(),
            ..Timeline::default()
        }
    }

    #[test]
    fn a_dump_of_workloads_that_stay_as_they_are_is_said_to_show_little() {
        let plain = json!({"containers": []});
        let start = (0, Change::Replicas(3));
        let still = timeline(&plain, std::slice::from_ref(&start));
        assert_eq!(notes(&still, true, false, HOUR_MS), [NODES, STILL]);
        assert_eq!(notes(&still, true, true, HOUR_MS), [NODES]);
        assert_eq!(notes(&still, false, false, HOUR_MS), [""; 0]);
        let later = (HOUR_MS + 1, Change::Replicas(4));
        let filling = (HOUR_MS, Change::Replicas(4));
        let ends = Change::Begin {
            pod: 0,
            runs_ms: Some(1),
        };
        for (events, is_still) in [
            ([start.clone(), filling], true),
            ([start.clone(), later], false),
            ([start, (0, ends)], false),
        ] {
            let said = notes(&timeline(&plain, &events), true, false, HOUR_MS);
            assert_eq!(said.len(), 1 + usize::from(is_still), "{said:?}");
        }
    }

    /// Of two with one name, as of a dump and of a manifest, one is told.
    #[test]
    fn buffers_are_named_as_keeping_no_room() {
        let buffer = |name: &str| {
            let value = json!({
                "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": name, "namespace": "shop"},
                "spec": {"podTemplateRef": {"name": "web"}, "replicas": 2},
            });
            Arc::new(serde_json::from_value::<CapacityBuffer>(value).expect("a CapacityBuffer"))
        };
        assert_eq!(buffers(&[]), None);
        let said = buffers(&["web", "web", "batch"].map(buffer)).expect("a sentence");
        assert!(said.contains("keeps no room"), "{said}");
        assert!(
            said.contains("shop/batch") && said.matches("shop/web").count() == 1,
            "{said}"
        );
    }

    #[test]
    fn workloads_with_gates_are_named() {
        let spec = json!({"containers": [], "schedulingGates": [{"name": "example.com/queue"}]});
        let said = notes(&timeline(&spec, &[]), false, false, 0);
        let [gates] = &said[..] else { panic!("{said:?}") };
        assert!(
            gates.starts_with("the pods of shop/web have schedulingGates, "),
            "{gates}"
        );
        let none = json!({"containers": [], "schedulingGates": []});
        assert_eq!(notes(&timeline(&none, &[]), false, false, 0), [""; 0]);
    }
}
