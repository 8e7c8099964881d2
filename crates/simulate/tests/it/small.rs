//! Small worlds for the tests of this crate.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::json;
use spokeshave_api::NodePool;
use spokeshave_model::InstanceType;
use spokeshave_scenario::{Change, Event, Owner, OwnerId, OwnerKind, Spread, Timeline};
use spokeshave_simulate::{Delays, Policy, World};

/// Milliseconds of a second and an hour.
pub const SECOND: u64 = 1_000;
pub const HOUR: u64 = 3_600_000;

/// A NodePool with on-demand capacity that consolidates after half a minute.
pub fn pool() -> NodePool {
    let mut pool = spokeshave_example::node_pool("default");
    let requirements =
        json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]);
    pool.spec.template.spec.requirements = serde_json::from_value(requirements).unwrap();
    pool.spec.disruption.consolidate_after = serde_json::from_value(json!("30s")).unwrap();
    pool
}

/// One type with 4 cores and 16 GiB at $0.22 an hour.
pub fn types() -> Arc<[InstanceType]> {
    vec![spokeshave_example::instance_type("c4", 4, 16, &["zone-a"])].into()
}

/// A world in which everything but the boot of an instance, a minute, takes no time.
pub fn world(hours: u64) -> World {
    let mut world = World::new(spokeshave_example::epoch(), hours * HOUR, types());
    world.delays = Delays::exactly(60 * SECOND);
    world
}

/// Spokeshave with that pool.
pub fn policy() -> Policy {
    Policy::new("now", vec![Arc::new(pool())])
}

/// The same where nodes expire after so long, whatever runs on them.
pub fn expiring(after: &str) -> Policy {
    let mut pool = pool();
    pool.spec.template.spec.expire_after = serde_json::from_value(json!(after)).unwrap();
    Policy::new("now", vec![Arc::new(pool)])
}

fn template(name: &str, cpu: &str, memory: &str) -> Arc<PodTemplateSpec> {
    let template = json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
    });
    Arc::new(serde_json::from_value(template).unwrap())
}

/// A workload whose pods are ready at once.
pub fn owner(kind: OwnerKind, name: &str, cpu: &str) -> Owner {
    Owner {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        kind,
        template: template(name, cpu, "256Mi"),
        ready: Spread {
            median_ms: 0,
            p99_ms: 0,
        },
        budget: None,
        later: Vec::new(),
        claims: Vec::new(),
    }
}

/// A timeline of these workloads.
pub fn timeline(owners: Vec<Owner>, events: Vec<(u64, u32, Change)>) -> Timeline {
    let events = events.into_iter().map(|(at_ms, owner, change)| Event {
        at_ms,
        owner: OwnerId(owner),
        change,
    });
    Timeline {
        owners,
        events: events.collect(),
        ..Timeline::default()
    }
}
