//! Kubelets of fake nodes: nodes become ready, pods start, run, end and stop.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use spokeshave_runtime::{
    ControllerMetrics, ObjectKey, ReconcileError, Requeue, Shutdown, TaskGroup, WorkQueue, run_controller,
};

use crate::objects::{
    condition, has_ended, is_deleting, is_node_ready, key, name, namespace, node_of, phase, time, uid,
};
use crate::world::{World, is_race};

/// Marks a node without a machine, as label or annotation.
const FAKE_NODE: &str = "kwok.x-k8s.io/node";
/// How long the containers of a pod run before they end well; without it they run on.
const RUN_DURATION: &str = "sim.spokeshave.dev/run-duration";
const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_PERIOD: Duration = Duration::from_secs(10);
const VERSION: &str = "v1.36.0";
const WORKERS: usize = 64;

/// All kubelets.
pub(crate) struct Kubelets {
    nodes: WorkQueue<String>,
    pods: WorkQueue<ObjectKey>,
    leases: WorkQueue<String>,
}

fn is_fake(node: &Node) -> bool {
    let marked = |map: Option<&std::collections::BTreeMap<String, String>>| {
        map.is_some_and(|map| map.get(FAKE_NODE).is_some_and(|value| value == "fake"))
    };
    marked(node.metadata.labels.as_ref()) || marked(node.metadata.annotations.as_ref())
}

impl Kubelets {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let this = Self {
            nodes: world.queue("kubelet.nodes"),
            pods: world.queue("kubelet.pods"),
            leases: world.queue("kubelet.leases"),
        };
        let (nodes, leases, pods, by_node) = (
            this.nodes.clone(),
            this.leases.clone(),
            this.pods.clone(),
            world.pods_by_node.clone(),
        );
        let with_leases = world.options.leases;
        world.nodes.on_change(move |change| {
            let Some(node) = change.object().filter(|node| is_fake(node)) else {
                return;
            };
            let node_name = name(&node.metadata).to_owned();
            if change.old.is_none() && with_leases {
                leases.add(node_name.clone());
            }
            // Pods that were bound before the node was ready have waited for it.
            let was_ready = change.old.as_deref().is_some_and(is_node_ready);
            let is_ready = change.new.as_deref().is_some_and(is_node_ready);
            if change.old.is_none() || change.new.is_none() || was_ready != is_ready {
                for pod in by_node.get(&node_name) {
                    pods.add(ObjectKey::of(&*pod));
                }
            }
            nodes.add(node_name);
        });
        let pods = this.pods.clone();
        world.pods.on_change(move |change| {
            if let Some(pod) = change.new.as_deref().filter(|pod| !node_of(pod).is_empty()) {
                pods.add(ObjectKey::of(pod));
            }
        });
        this
    }

    pub(crate) fn start(self, world: &Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let metrics = ControllerMetrics::new(&world.metrics);
        let shared = world.clone();
        let work = move |node| boot(shared.clone(), node);
        tasks.spawn(
            "kubelet nodes",
            run_controller(
                "kubelet.nodes",
                self.nodes,
                WORKERS,
                work,
                shutdown.clone(),
                metrics.clone(),
            ),
        );
        let shared = world.clone();
        let work = move |pod| sync_pod(shared.clone(), pod);
        tasks.spawn(
            "kubelet pods",
            run_controller(
                "kubelet.pods",
                self.pods,
                WORKERS,
                work,
                shutdown.clone(),
                metrics.clone(),
            ),
        );
        let shared = world.clone();
        let work = move |node| renew(shared.clone(), node);
        tasks.spawn(
            "kubelet leases",
            run_controller(
                "kubelet.leases",
                self.leases,
                WORKERS,
                work,
                shutdown.clone(),
                metrics,
            ),
        );
    }
}

fn quiet(result: Result<(), kube::Error>) -> Result<Requeue, ReconcileError> {
    match result {
        Err(error) if !is_race(&error) => Err(Box::new(error)),
        _ => Ok(Requeue::Done),
    }
}

fn wait_until(world: &World, start: Timestamp, delay: Duration) -> Option<Duration> {
    let due = start
        .saturating_add(SignedDuration::try_from(delay).unwrap_or(SignedDuration::ZERO))
        .ok()?;
    let left = world.clock.until(due);
    (!left.is_zero()).then_some(left)
}

/// A node's kubelet has started: the node says what it is, and that it is ready.
async fn boot(world: Arc<World>, node_name: String) -> Result<Requeue, ReconcileError> {
    let Some(node) = world.nodes.get_named(&node_name) else {
        return Ok(Requeue::Done);
    };
    // Only a kubelet that never reported becomes ready by itself: Unknown is said of machines that are gone.
    let lost = node
        .status
        .iter()
        .filter_map(|status| status.conditions.as_ref())
        .flatten()
        .any(|one| one.type_ == "Ready" && one.status == "Unknown");
    if is_node_ready(&node) || is_deleting(&node.metadata) || lost {
        return Ok(Requeue::Done);
    }
    let created = node
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or_else(|| world.clock.now(), |time| time.0);
    if let Some(left) = wait_until(&world, created, world.options.node_ready_delay) {
        return Ok(Requeue::After(left));
    }
    let now = time(world.clock.now());
    let state = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now});
    let label = |key: &str| {
        node.metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(key))
            .cloned()
            .unwrap_or_default()
    };
    let patch = json!({"status": {
        "conditions": [
            state("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            state("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            state("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            state("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "addresses": [{"type": "InternalIP", "address": address(&node_name, 10)}, {"type": "Hostname", "address": node_name}],
        "nodeInfo": {
            "architecture": label("kubernetes.io/arch"), "operatingSystem": label("kubernetes.io/os"), "bootID": "", "machineID": "", "systemUUID": "",
            "containerRuntimeVersion": "fake://1.0", "kernelVersion": "fake", "kubeProxyVersion": VERSION, "kubeletVersion": VERSION, "osImage": "fake",
        },
        "phase": null,
    }});
    let api: Api<Node> = Api::all(world.client.clone());
    quiet(
        api.patch_status(&node_name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .map(|node| world.nodes.note_written(node)),
    )
}

/// An address that depends on the name only.
fn address(name: &str, first: u8) -> String {
    let hash = name.bytes().fold(2_166_136_261_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    let [_, b, c, d] = hash.to_be_bytes();
    format!("{first}.{b}.{c}.{}", d.max(1))
}

async fn sync_pod(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(pod) = world.pods.get(&key) else {
        return Ok(Requeue::Done);
    };
    let Some(node) = world.nodes.get_named(node_of(&pod)) else {
        return Ok(Requeue::Done);
    };
    if !is_fake(&node) {
        return Ok(Requeue::Done);
    }
    if let Some(deleted) = &pod.metadata.deletion_timestamp {
        return stop(&world, &pod, deleted.0).await;
    }
    if has_ended(&pod) || !is_node_ready(&node) {
        return Ok(Requeue::Done);
    }
    if phase(&pod) == "Running" {
        finish(&world, &pod).await
    } else {
        begin(&world, &pod).await
    }
}

/// A deleted pod stops after its time, at the latest when its grace is over.
async fn stop(world: &World, pod: &Pod, deleted: Timestamp) -> Result<Requeue, ReconcileError> {
    let grace = Duration::from_secs(
        u64::try_from(pod.metadata.deletion_grace_period_seconds.unwrap_or(0)).unwrap_or(0),
    );
    let asked = deleted
        .saturating_sub(SignedDuration::try_from(grace).unwrap_or(SignedDuration::ZERO))
        .unwrap_or(deleted);
    if let Some(left) = wait_until(world, asked, grace.min(world.options.pod_stop_time)) {
        return Ok(Requeue::After(left));
    }
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let api: Api<Pod> = Api::namespaced(world.client.clone(), namespace(&pod.metadata));
    quiet(api.delete(name(&pod.metadata), &parameters).await.map(drop))
}

async fn begin(world: &World, pod: &Pod) -> Result<Requeue, ReconcileError> {
    let bound = condition(pod, "PodScheduled")
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map_or_else(|| world.clock.now(), |time| time.0);
    if let Some(left) = wait_until(world, bound, world.options.pod_start_delay) {
        return Ok(Requeue::After(left));
    }
    let now = time(world.clock.now());
    let mut status = container_statuses(pod, &json!({"running": {"startedAt": now}}), true);
    status["phase"] = json!("Running");
    status["startTime"] = json!(now);
    status["podIP"] = json!(address(&key(&pod.metadata), 100));
    status["podIPs"] = json!([{"ip": address(&key(&pod.metadata), 100)}]);
    status["hostIP"] = json!(address(node_of(pod), 10));
    status["conditions"] = conditions(pod, true, "", &now);
    write_status(world, pod, status).await
}

/// Pods that are told how long they run end well after that.
async fn finish(world: &World, pod: &Pod) -> Result<Requeue, ReconcileError> {
    let annotations = pod.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|annotations| annotations.get(RUN_DURATION)) else {
        return Ok(Requeue::Done);
    };
    let Ok(runs) = text.parse::<spokeshave_api::GoDuration>() else {
        tracing::warn!(
            pod = key(&pod.metadata),
            value = text,
            "annotation {RUN_DURATION} is not a duration; the pod runs on"
        );
        return Ok(Requeue::Done);
    };
    if pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref())
        .unwrap_or("Always")
        == "Always"
    {
        return Ok(Requeue::Done);
    }
    let started = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref())
        .map_or_else(|| world.clock.now(), |time| time.0);
    if let Some(left) = wait_until(world, started, runs.to_std().unwrap_or_default()) {
        return Ok(Requeue::After(left));
    }
    let now = time(world.clock.now());
    let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": time(started), "finishedAt": now}});
    let mut status = container_statuses(pod, &ended, false);
    status["phase"] = json!("Succeeded");
    status["conditions"] = conditions(pod, false, "PodCompleted", &now);
    write_status(world, pod, status).await
}

fn container_statuses(pod: &Pod, state: &Value, running: bool) -> Value {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let statuses: Vec<Value> = containers
        .map(|container| {
            json!({
                "name": container.name, "image": container.image.clone().unwrap_or_default(), "imageID": "", "containerID": format!("fake://{}", uid(&pod.metadata)),
                "ready": running, "started": running, "restartCount": 0, "state": state,
            })
        })
        .collect();
    json!({"containerStatuses": statuses})
}

fn conditions(pod: &Pod, ready: bool, reason: &str, now: &impl serde::Serialize) -> Value {
    let state = |kind: &str, holds: bool| {
        let mut value = json!({"type": kind, "status": if holds { "True" } else { "False" }, "lastProbeTime": null, "lastTransitionTime": now});
        if !reason.is_empty() && !holds {
            value["reason"] = json!(reason);
        }
        value
    };
    let mut list = vec![
        state("PodReadyToStartContainers", ready),
        state("Initialized", true),
        state("Ready", ready),
        state("ContainersReady", ready),
    ];
    // A pod that was made with its node never met a scheduler.
    list.push(
        condition(pod, "PodScheduled")
            .map_or_else(|| state("PodScheduled", true), |scheduled| json!(scheduled)),
    );
    json!(list)
}

async fn write_status(world: &World, pod: &Pod, status: Value) -> Result<Requeue, ReconcileError> {
    let api: Api<Pod> = Api::namespaced(world.client.clone(), namespace(&pod.metadata));
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    match api
        .patch_status(
            name(&pod.metadata),
            &PatchParams::default(),
            &Patch::Strategic(patch),
        )
        .await
    {
        Ok(written) => {
            world.pods.note_written(written);
            Ok(Requeue::After(Duration::ZERO))
        }
        Err(error) if is_race(&error) => Ok(Requeue::Done),
        Err(error) => Err(Box::new(error)),
    }
}

/// A sign of life, for a node lifecycle controller that wants one.
async fn renew(world: Arc<World>, node_name: String) -> Result<Requeue, ReconcileError> {
    let Some(node) = world.nodes.get_named(&node_name) else {
        return Ok(Requeue::Done);
    };
    let api: Api<Lease> = Api::namespaced(world.client.clone(), LEASE_NAMESPACE);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node_name, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": uid(&node.metadata)}]},
        "spec": {"holderIdentity": node_name, "leaseDurationSeconds": 40, "renewTime": MicroTime(world.clock.now())},
    });
    match api
        .patch(
            &node_name,
            &PatchParams::apply("spokeshave-kubelet").force(),
            &Patch::Apply(lease),
        )
        .await
    {
        Ok(_) => Ok(Requeue::After(LEASE_PERIOD)),
        Err(error) if is_race(&error) => Ok(Requeue::After(LEASE_PERIOD)),
        Err(error) => Err(Box::new(error)),
    }
}
