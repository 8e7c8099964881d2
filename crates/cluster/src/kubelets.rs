//! Kubelets of fake nodes: nodes become ready, pods start, run, end and stop. Which of their containers run is said in `containers`, how probes pass and fail in
//! `probes`, what statuses say in `pod_status`, and which pods a kubelet does not take in `admission`.
//!
//! A kubelet whose node's readiness is unknown is gone with its machine: it starts and stops nothing, and says nothing, until somebody says that it is back.

mod admission;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue, Shutdown, TaskGroup, WorkQueue};

use crate::attach_limits;
use crate::containers::{self, KILLED, WELL};
use crate::fake_nodes::is_fake;
use crate::heartbeats::Heartbeats;
use crate::objects::{
    condition, has_ended, is_deleting, is_node_ready, is_node_silent, key, name, namespace, node_of, phase,
    time, uid,
};
use crate::pace::Pace;
use crate::pod_status::{failed, is_told, status_of};
use crate::probes::{FAILING_PROBES, Failing};
use crate::stopping;
use crate::volumes;
use crate::world::{World, deletion_of, ignore_races, lock, noted};

/// How long the containers of a pod run before they end well; without it they run on.
const RUN_DURATION: &str = "sim.spokeshave.dev/run-duration";
/// How often a kubelet compares the status of its node with what it knows (`nodeStatusUpdateFrequency`).
const STATUS_PERIOD: Duration = Duration::from_secs(10);
/// Label of a pod in kwok's own clusters: `unhealthy` is never ready, like one whose readiness probe fails.
const STAGE: &str = "kwok.x-k8s.io/stage";
pub(crate) const VERSION: &str = "v1.36.0";
const WORKERS: usize = 64;
/// How long a pod waits before it looks again whether its claims have volumes, and whether another node has these.
const VOLUMES_PAUSE: Duration = Duration::from_secs(1);
/// Reason and message of a pod that has run for as long as it may.
const OVERDUE: (&str, &str) = (
    "DeadlineExceeded",
    "Pod was active on the node longer than the specified deadline",
);
const NAME: &str = crate::world::KUBELET;

/// What the probes of pods were last asked to do, by pod; only of pods that were ever asked.
type Asked = Arc<Mutex<BTreeMap<ObjectKey, Failing>>>;

/// Since when a kubelet that runs has had a node that is not ready, by its name.
type Noticed = Arc<Mutex<BTreeMap<String, Timestamp>>>;

/// All kubelets.
pub(crate) struct Kubelets {
    nodes: WorkQueue<String>,
    pods: WorkQueue<ObjectKey>,
    heartbeats: Option<Heartbeats>,
    asked: Asked,
}

impl Kubelets {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let this = Self {
            nodes: world.queue("kubelet.nodes"),
            pods: world.queue("kubelet.pods"),
            heartbeats: world.options.heartbeats.then(|| Heartbeats::new(world)),
            asked: Asked::default(),
        };
        let (nodes, pods, by_node) = (this.nodes.clone(), this.pods.clone(), world.pods_by_node.clone());
        world.nodes.on_change(move |change| {
            let Some(node) = change.object().filter(|node| is_fake(node)) else {
                return;
            };
            let node_name = name(&node.metadata).to_owned();
            // Pods that were bound before the node was ready have waited for it, and those that are to stop for a kubelet.
            let state = |node: &Node| (is_node_ready(node), is_node_silent(node));
            if change.old.as_deref().map(state) != change.new.as_deref().map(state) {
                for pod in by_node.get(&node_name) {
                    pods.add(ObjectKey::of(&*pod));
                }
            }
            nodes.add(node_name);
        });
        let (pods, asked) = (this.pods.clone(), this.asked.clone());
        world.pods.on_change(move |change| {
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            // What was asked of a pod is not asked of a successor of the same name.
            if old.is_some_and(|old| new.is_none_or(|new| uid(&new.metadata) != uid(&old.metadata))) {
                lock(&asked).remove(&change.key);
            }
            if new.is_some_and(|pod| !node_of(pod).is_empty()) {
                pods.add(change.key.clone());
            }
        });
        this
    }

    pub(crate) fn start(self, world: &Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let noticed = Noticed::default();
        let boot = move |world, node| boot(world, noticed.clone(), node);
        world.start(tasks, shutdown, "kubelet nodes", self.nodes, WORKERS, boot);
        let asked = self.asked;
        let sync = move |world, pod| sync_pod(world, asked.clone(), pod);
        world.start(tasks, shutdown, "kubelet pods", self.pods, WORKERS, sync);
        if let Some(heartbeats) = self.heartbeats {
            heartbeats.start(world, tasks, shutdown);
        }
    }
}

fn wait_until(world: &World, start: Timestamp, delay: Duration) -> Option<Duration> {
    let due = start
        .saturating_add(SignedDuration::try_from(delay).unwrap_or(SignedDuration::ZERO))
        .ok()?;
    let left = world.clock.until(due);
    (!left.is_zero()).then_some(left)
}

/// How long it is until something happens: as the clockwork says, or so long after a start.
fn left_until(
    world: &World,
    paced: impl FnOnce(&dyn Pace) -> Option<Timestamp>,
    start: Timestamp,
    delay: Duration,
) -> Option<Duration> {
    let pace = world.options.pace.as_deref();
    match pace.and_then(paced) {
        Some(due) => wait_until(world, due, Duration::ZERO),
        None => wait_until(world, start, delay),
    }
}

/// A node's kubelet has started: the node says what it is, and that it is ready.
async fn boot(world: Arc<World>, noticed: Noticed, node_name: String) -> Result<Requeue, ReconcileError> {
    let Some(node) = world.nodes.get_named(&node_name) else {
        lock(&noticed).remove(&node_name);
        return Ok(Requeue::Done);
    };
    // Only a kubelet that never reported becomes ready on its own: Unknown is set for lost machines.
    if is_node_ready(&node) || is_deleting(&node.metadata) || is_node_silent(&node) {
        lock(&noticed).remove(&node_name);
        return Ok(Requeue::Done);
    }
    // If another client marks a running kubelet's node as not ready, this is kept until the kubelet next syncs its status.
    if has_reported(&node) {
        let since = *lock(&noticed)
            .entry(node_name.clone())
            .or_insert_with(|| world.clock.now());
        if let Some(left) = wait_until(&world, since, STATUS_PERIOD) {
            return Ok(Requeue::After(left));
        }
        lock(&noticed).remove(&node_name);
    }
    let created = node
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or_else(|| world.clock.now(), |time| time.0);
    let delay = longer(&world, world.options.node_ready_delay, &node_name);
    let left = left_until(&world, |pace| pace.node_ready(&node), created, delay);
    if let Some(left) = left {
        return Ok(Requeue::After(left));
    }
    if world.options.volumes {
        attach_limits::publish(&world, &node).await?;
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
    let api: Api<Node> = Api::all(world.kubelet_client.clone());
    let answer = api
        .patch_status(&node_name, &PatchParams::default(), &Patch::Strategic(patch))
        .await;
    noted(&world.nodes, answer)?;
    Ok(Requeue::Done)
}

/// An address that depends on the name only.
fn address(name: &str, first: u8) -> String {
    let hash = name.bytes().fold(2_166_136_261_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    let [_, b, c, d] = hash.to_be_bytes();
    format!("{first}.{b}.{c}.{}", d.max(1))
}

async fn sync_pod(world: Arc<World>, asked: Asked, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(pod) = world.pods.get(&key) else {
        return Ok(Requeue::Done);
    };
    let Some(node) = world.nodes.get_named(node_of(&pod)) else {
        return Ok(Requeue::Done);
    };
    // Nobody is left on a lost machine who could stop a pod, or say that it has stopped.
    if !is_fake(&node) || is_node_silent(&node) {
        return Ok(Requeue::Done);
    }
    if let Some(deleted) = &pod.metadata.deletion_timestamp {
        return stop(&world, &pod, deleted.0).await;
    }
    if has_ended(&pod) || !is_node_ready(&node) {
        return Ok(Requeue::Done);
    }
    let failing = failing(&asked, &key, &pod, world.clock.now());
    if has_begun(&pod) {
        keep_running(&world, &pod, &failing).await
    } else {
        begin(&world, &pod, &node, &failing).await
    }
}

/// A deleted pod stops after its hooks and its own time, at the latest when its grace is over.
async fn stop(world: &World, pod: &Pod, deleted: Timestamp) -> Result<Requeue, ReconcileError> {
    let grace = Duration::from_secs(
        u64::try_from(pod.metadata.deletion_grace_period_seconds.unwrap_or(0)).unwrap_or(0),
    );
    let asked = deleted
        .saturating_sub(SignedDuration::try_from(grace).unwrap_or(SignedDuration::ZERO))
        .unwrap_or(deleted);
    let needed = stopping::hooks(pod).saturating_add(longer(
        world,
        world.options.pod_stop_time,
        &format!("stop/{}", uid(&pod.metadata)),
    ));
    let left = left_until(world, |pace| pace.pod_stops(pod), asked, grace.min(needed));
    if let Some(left) = left {
        return Ok(Requeue::After(left));
    }
    let parameters = deletion_of(&pod.metadata, Some(0));
    let api: Api<Pod> = Api::namespaced(world.kubelet_client.clone(), namespace(&pod.metadata));
    ignore_races(api.delete(name(&pod.metadata), &parameters).await)?;
    Ok(Requeue::Done)
}

/// How long something takes that is not always as fast.
fn longer(world: &World, least: Duration, name: &str) -> Duration {
    let spread = u64::try_from(world.options.spread.as_millis()).unwrap_or(u64::MAX);
    if spread == 0 {
        return least;
    }
    let more = world.entropy.child("spread").number(name) % spread;
    least.saturating_add(Duration::from_millis(more))
}

/// True when the kubelet has said before what its node is.
fn has_reported(node: &Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.is_some_and(|info| !info.kubelet_version.is_empty())
}

/// The probes that a pod's annotation lets fail, and since when if that changed while it ran.
fn failing(asked: &Asked, key: &ObjectKey, pod: &Pod, now: Timestamp) -> Failing {
    let annotations = pod.metadata.annotations.as_ref();
    let text = annotations.and_then(|annotations| annotations.get(FAILING_PROBES));
    let labels = pod.metadata.labels.as_ref();
    let stage = labels.and_then(|labels| labels.get(STAGE));
    let text = match text {
        Some(text) => text.as_str(),
        None if stage.is_some_and(|stage| stage == "unhealthy") => "readiness",
        None => "",
    };
    let mut asked = lock(asked);
    match asked.get(key) {
        Some(known) if known.text == text => return known.clone(),
        None if text.is_empty() => return Failing::default(),
        _ => {}
    }
    let failing = Failing {
        text: text.to_owned(),
        since: has_begun(pod).then_some(now),
    };
    asked.insert(key.clone(), failing.clone());
    failing
}

/// Whether a pod was started here: one whose init containers are not through is not Running yet.
fn has_begun(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    phase(pod) == "Running" || status.is_some_and(|status| status.pod_ip.is_some())
}

async fn begin(world: &World, pod: &Pod, node: &Node, failing: &Failing) -> Result<Requeue, ReconcileError> {
    // A pod that was made with its node never met a scheduler: it starts from its creation.
    let bound = condition(pod, "PodScheduled")
        .and_then(|condition| condition.last_transition_time.as_ref())
        .or(pod.metadata.creation_timestamp.as_ref())
        .map_or_else(|| world.clock.now(), |time| time.0);
    let delay = longer(world, world.options.pod_start_delay, uid(&pod.metadata));
    if let Some(left) = left_until(world, |pace| pace.pod_starts(pod), bound, delay) {
        return Ok(Requeue::After(left));
    }
    if let Some(rejection) = admission::rejection(world, pod, node) {
        return reject(world, pod, &rejection).await;
    }
    if world.options.volumes && (volumes::are_unbound(world, pod) || volumes::are_elsewhere(world, pod)) {
        return Ok(Requeue::After(VOLUMES_PAUSE));
    }
    let now = world.clock.now();
    let mut status = status_of(pod, &containers::look(pod, failing, now), now);
    status["startTime"] = json!(time(now));
    let own = address(&key(&pod.metadata), 100);
    status["podIP"] = json!(own);
    status["podIPs"] = json!([{"ip": own}]);
    status["hostIP"] = json!(address(node_of(pod), 10));
    write_status(world, pod, status).await
}

/// A pod that runs: its probes pass or fail, and it terminates when requested.
async fn keep_running(world: &World, pod: &Pod, failing: &Failing) -> Result<Requeue, ReconcileError> {
    let end = end_of(world, pod);
    let deadline = deadline_of(pod).filter(|deadline| end.is_none_or(|end| *deadline < end));
    let has_come = |at: Option<Timestamp>| at.is_some_and(|at| world.clock.until(at).is_zero());
    if has_come(deadline) {
        return give_up(world, pod).await;
    }
    if has_come(end) {
        return finish(world, pod).await;
    }
    let now = world.clock.now();
    let findings = containers::look(pod, failing, now);
    if !is_told(pod, &findings) {
        for (kind, reason, message) in &findings.events {
            world.tell(NAME, pod, kind, reason, message).await;
        }
        return write_status(world, pod, status_of(pod, &findings, now)).await;
    }
    let next = findings.next.into_iter().chain(end).chain(deadline).min();
    Ok(next.map_or(Requeue::Done, |next| Requeue::After(world.clock.until(next))))
}

/// When a pod with a configured run time ends; those that always restart do not, and none before its init containers let it run.
fn end_of(world: &World, pod: &Pod) -> Option<Timestamp> {
    if phase(pod) != "Running" {
        return None;
    }
    let pace = world.options.pace.as_ref();
    if let Some(end) = pace.and_then(|pace| pace.pod_ends(pod)) {
        return Some(end);
    }
    let text = pod.metadata.annotations.as_ref()?.get(RUN_DURATION)?;
    let Ok(runs) = text.parse::<spokeshave_api::GoDuration>() else {
        tracing::warn!(
            pod = key(&pod.metadata),
            value = text,
            "annotation {RUN_DURATION} is not a duration; the pod runs on"
        );
        return None;
    };
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    if policy.unwrap_or("Always") == "Always" {
        return None;
    }
    let runs = SignedDuration::try_from(runs.to_std().unwrap_or_default()).ok()?;
    started_at(world, pod).saturating_add(runs).ok()
}

/// Since when the containers of a pod run: its init containers were through then.
fn started_at(world: &World, pod: &Pod) -> Timestamp {
    let initialized = condition(pod, "Initialized").filter(|condition| condition.status == "True");
    let initialized = initialized.and_then(|condition| condition.last_transition_time.as_ref());
    let status = pod.status.as_ref();
    initialized
        .or_else(|| status.and_then(|status| status.start_time.as_ref()))
        .map_or_else(|| world.clock.now(), |time| time.0)
}

/// When a pod has run for as long as it may.
fn deadline_of(pod: &Pod) -> Option<Timestamp> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    let start = pod.status.as_ref()?.start_time.as_ref()?.0;
    start.saturating_add(SignedDuration::from_secs(seconds)).ok()
}

/// All containers end well.
async fn finish(world: &World, pod: &Pod) -> Result<Requeue, ReconcileError> {
    let now = world.clock.now();
    let findings = containers::ended(pod, WELL, now);
    write_status(world, pod, status_of(pod, &findings, now)).await
}

/// A pod has run for as long as it may: its containers are killed, and it has failed.
async fn give_up(world: &World, pod: &Pod) -> Result<Requeue, ReconcileError> {
    let now = world.clock.now();
    let findings = containers::ended(pod, KILLED, now);
    let (reason, message) = OVERDUE;
    world.tell(NAME, pod, "Normal", reason, message).await;
    write_status(world, pod, failed(pod, &findings, OVERDUE, now)).await
}

/// A pod that the node does not take has failed before anything of it ran.
async fn reject(
    world: &World,
    pod: &Pod,
    (reason, message): &admission::Rejection,
) -> Result<Requeue, ReconcileError> {
    world.tell(NAME, pod, "Warning", reason, message).await;
    let status = json!({
        "phase": "Failed", "reason": reason, "message": format!("Pod was rejected: {message}"), "startTime": time(world.clock.now()),
    });
    write_status(world, pod, status).await
}

async fn write_status(world: &World, pod: &Pod, status: Value) -> Result<Requeue, ReconcileError> {
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let is_written = world.write_pod_status(&world.kubelet_client, pod, patch).await?;
    Ok(if is_written {
        Requeue::After(Duration::ZERO)
    } else {
        Requeue::Done
    })
}
