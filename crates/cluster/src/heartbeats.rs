//! Signs of life of kubelets, as genuine ones give them: a Lease that is renewed every ten seconds, and a status that is reported again every five
//! minutes although nothing has changed.
//!
//! Owns the Leases and the heartbeat times, spread over time by chance so that kubelets do not speak all at once. What a status says is not decided
//! here: a kubelet whose node is not ready (any more) is taken for dead, and gives no sign.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_runtime::{Api, ReconcileError, Requeue, Shutdown, TaskGroup, WorkQueue};

use crate::fake_nodes::is_fake;
use crate::objects::{is_node_ready, name, time, uid};
use crate::world::{World, ignore_races, lock, noted};

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// How often a Lease is renewed (`nodeLeaseDurationSeconds` of 40 s, a quarter of it).
const LEASE_PERIOD: Duration = Duration::from_secs(10);
const LEASE_DURATION_SECONDS: i32 = 40;
/// How often an unchanged status is reported (`nodeStatusReportFrequency`).
const REPORT_PERIOD: Duration = Duration::from_secs(300);
/// Conditions that a kubelet reports.
const CONDITIONS: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
const WORKERS: usize = 64;

/// The Leases as their holders wrote them last, by node: each is written by one only.
type Held = Arc<Mutex<BTreeMap<String, Lease>>>;

/// The signs of life of all kubelets.
pub(crate) struct Heartbeats {
    leases: WorkQueue<String>,
    reports: WorkQueue<String>,
}

impl Heartbeats {
    pub(crate) fn new(world: &World) -> Self {
        let this = Self {
            leases: world.queue("kubelet.leases"),
            reports: world.queue("kubelet.reports"),
        };
        let (leases, reports) = (this.leases.clone(), this.reports.clone());
        let chance = world.entropy.child("heartbeats");
        world.nodes.on_change(move |change| {
            let Some(node) = change.new.as_deref().filter(|node| is_fake(node)) else {
                return;
            };
            if change.old.is_none() {
                let name = name(&node.metadata);
                leases.add_after(name.to_owned(), share(LEASE_PERIOD, chance.number(name)));
                reports.add_after(name.to_owned(), share(REPORT_PERIOD, chance.number(name)));
            }
        });
        this
    }

    pub(crate) fn start(self, world: &Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let held = Held::default();
        let renew = move |world, node| renew(world, held.clone(), node);
        world.start(tasks, shutdown, "kubelet leases", self.leases, WORKERS, renew);
        world.start(tasks, shutdown, "kubelet reports", self.reports, WORKERS, report);
    }
}

/// A part of a period, by chance.
fn share(period: Duration, chance: u64) -> Duration {
    let milliseconds = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(chance % milliseconds)
}

/// The node, while its kubelet lives.
fn living(world: &World, node_name: &str) -> Option<Arc<Node>> {
    let node = world.nodes.get_named(node_name)?;
    is_node_ready(&node).then_some(node)
}

/// Renews the Lease of a node, with the version that the kubelet wrote last, as kubelets do.
async fn renew(world: Arc<World>, held: Held, node_name: String) -> Result<Requeue, ReconcileError> {
    let Some(node) = living(&world, &node_name) else {
        lock(&held).remove(&node_name);
        let exists = world.nodes.get_named(&node_name).is_some();
        return Ok(if exists {
            Requeue::After(LEASE_PERIOD)
        } else {
            Requeue::Done
        });
    };
    let api: Api<Lease> = Api::namespaced(world.kubelet_client.clone(), LEASE_NAMESPACE);
    let known = lock(&held).remove(&node_name);
    let known = known.filter(|lease| owner(lease) == Some(uid(&node.metadata)));
    let mut lease = known.unwrap_or_else(|| first_lease(&node));
    let spec = lease.spec.get_or_insert_default();
    spec.renew_time = Some(MicroTime(world.clock.now()));
    let written = if lease.metadata.resource_version.is_some() {
        api.replace(&node_name, &PostParams::default(), &lease).await
    } else {
        api.create(&PostParams::default(), &lease).await
    };
    let written = match written {
        // A Lease of the time before is still there: its holder takes it over.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            api.get(&node_name).await.map(|old| Lease {
                metadata: ObjectMeta {
                    owner_references: lease.metadata.owner_references,
                    ..old.metadata
                },
                ..old
            })
        }
        other => other,
    };
    if let Some(lease) = ignore_races(written)? {
        lock(&held).insert(node_name, lease);
    }
    Ok(Requeue::After(LEASE_PERIOD))
}

fn owner(lease: &Lease) -> Option<&str> {
    let owner = lease.metadata.owner_references.as_ref()?.first()?;
    Some(owner.uid.as_str())
}

fn first_lease(node: &Node) -> Lease {
    let node_name = name(&node.metadata).to_owned();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node_name.clone(),
        uid: uid(&node.metadata).to_owned(),
        ..OwnerReference::default()
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(node_name.clone()),
            namespace: Some(LEASE_NAMESPACE.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(node_name),
            lease_duration_seconds: Some(LEASE_DURATION_SECONDS),
            ..LeaseSpec::default()
        }),
    }
}

/// Says again what the kubelet said last, at a later time.
async fn report(world: Arc<World>, node_name: String) -> Result<Requeue, ReconcileError> {
    let Some(node) = living(&world, &node_name) else {
        let exists = world.nodes.get_named(&node_name).is_some();
        return Ok(if exists {
            Requeue::After(REPORT_PERIOD)
        } else {
            Requeue::Done
        });
    };
    let now = time(world.clock.now());
    let reported = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let conditions: Vec<Value> = reported
        .filter(|condition| CONDITIONS.contains(&condition.type_.as_str()))
        .map(|condition| json!({"type": condition.type_, "lastHeartbeatTime": now}))
        .collect();
    let patch = json!({"metadata": {"uid": node.metadata.uid}, "status": {"conditions": conditions}});
    let api: Api<Node> = Api::all(world.kubelet_client.clone());
    let answer = api
        .patch_status(&node_name, &PatchParams::default(), &Patch::Strategic(patch))
        .await;
    noted(&world.nodes, answer)?;
    Ok(Requeue::After(REPORT_PERIOD))
}
