//! The scheduler: one pass over all waiting pods whenever something changed, with sums per node kept along the pass.

mod nominations;
#[cfg(test)]
mod planned;
mod preemption;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod, PodSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use serde_json::json;
use spokeshave_runtime::{Api, Shutdown};
use tokio::sync::Notify;

use crate::attach_limits::{self, CsiVolume};
use crate::neighbours::{Neighbours, Placed};
use crate::node_lifecycle::UNSCHEDULABLE;
use crate::objects::{
    condition, has_ended, is_deleting, is_node_ready, key, name, namespace, node_of, time, uid,
};
use crate::quantities::{self, Amounts};
use crate::rules::{self, Labels};
use crate::volumes::{self, Wanted};
use crate::world::{World, is_race};
use nominations::{Promise, named_host, nomination};

const NAME: &str = crate::world::SCHEDULER;
/// A pause is at least this many times as long as the preparation of the pass before, so that passes never take most of a processor when the
/// cluster's clock runs faster than the wall's.
const PAUSES_PER_PREPARATION: u32 = 3;
/// With nothing changed, waiting pods are tried again after this long.
const RETRY: Duration = Duration::from_secs(30);

/// The scheduler.
pub(crate) struct Scheduler {
    world: Arc<World>,
    dirty: Notify,
    /// Bindings that were written and that the watch has not shown yet, by pod UID.
    assumed: Mutex<BTreeMap<String, String>>,
}

/// A node during a pass.
struct Host {
    node: Arc<Node>,
    allocatable: Amounts,
    used: Amounts,
    ports: Vec<(String, i32, String)>,
    /// CSI volumes of its pods, and how many it can have.
    volumes: BTreeSet<CsiVolume>,
    volume_limits: BTreeMap<String, usize>,
    /// Waiting pods that name it as theirs.
    promised: Vec<Promise>,
}

impl Host {
    /// A node without pods.
    fn empty(node: Arc<Node>, allocatable: Amounts) -> Self {
        Self {
            node,
            allocatable,
            used: Amounts::new(),
            ports: Vec::new(),
            volumes: BTreeSet::new(),
            volume_limits: BTreeMap::new(),
            promised: Vec::new(),
        }
    }

    fn take(&mut self, spec: &PodSpec) {
        quantities::add(&mut self.used, &quantities::pod_requests(spec));
        self.ports.extend(rules::host_ports(spec));
    }

    /// It as a pod sees it for which the room of others is kept; `None` where none is.
    fn with_promises(&self, pod: &Pod) -> Option<Self> {
        let mut kept = self
            .promised
            .iter()
            .filter(|one| one.is_kept_from(pod))
            .peekable();
        kept.peek()?;
        let mut host = Host::empty(self.node.clone(), self.allocatable.clone());
        host.used.clone_from(&self.used);
        host.ports.clone_from(&self.ports);
        for spec in kept.filter_map(|one| one.pod.spec.as_ref()) {
            host.take(spec);
        }
        Some(host)
    }
}

/// Why nodes were refused, for the message.
type Refusals = BTreeMap<String, usize>;

impl Scheduler {
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let this = Arc::new(Self {
            world: world.clone(),
            dirty: Notify::new(),
            assumed: Mutex::default(),
        });
        let woken = this.clone();
        world.pods.on_change(move |_| woken.dirty.notify_one());
        let woken = this.clone();
        world.nodes.on_change(move |_| woken.dirty.notify_one());
        let woken = this.clone();
        world.claims.on_change(move |_| woken.dirty.notify_one());
        let woken = this.clone();
        world.volumes.on_change(move |_| woken.dirty.notify_one());
        let woken = this.clone();
        world.csi_nodes.on_change(move |_| woken.dirty.notify_one());
        this
    }

    pub(crate) async fn run(self: Arc<Self>, shutdown: Shutdown) {
        self.dirty.notify_one();
        let shortest = self.world.options.scheduler_pause;
        let mut pause = shortest;
        loop {
            let wait = async {
                tokio::select! {
                    biased;
                    () = self.dirty.notified() => self.world.clock.sleep(pause).await,
                    () = self.world.clock.sleep(RETRY) => {}
                }
            };
            if shutdown.cut(wait).await.is_none() {
                return;
            }
            pause = shortest.max(self.pass().await * PAUSES_PER_PREPARATION);
        }
    }

    fn waiting(&self) -> Vec<Arc<Pod>> {
        let mut assumed = self.assumed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pods: Vec<Arc<Pod>> = self.world.pods.snapshot();
        let unbound: BTreeSet<&str> = pods
            .iter()
            .filter(|pod| node_of(pod).is_empty())
            .map(|pod| uid(&pod.metadata))
            .collect();
        assumed.retain(|pod_uid, _| unbound.contains(pod_uid.as_str()));
        pods.retain(|pod| {
            let spec = pod.spec.as_ref();
            let ours = spec.is_some_and(|spec| {
                spec.scheduler_name.as_deref().unwrap_or(NAME) == NAME
                    && spec.scheduling_gates.as_deref().unwrap_or_default().is_empty()
            });
            ours && node_of(pod).is_empty()
                && !has_ended(pod)
                && !is_deleting(&pod.metadata)
                && !assumed.contains_key(uid(&pod.metadata))
        });
        let order = |pod: &Pod| {
            let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
            (
                std::cmp::Reverse(priority),
                pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
                key(&pod.metadata),
            )
        };
        pods.sort_by_cached_key(|pod| order(pod));
        pods
    }

    /// Looks at every pod that waits. Returns how long the preparation took.
    async fn pass(&self) -> Duration {
        let began = self.world.clock.now();
        let waiting = self.waiting();
        if waiting.is_empty() {
            return self.world.clock.since(began);
        }
        let mut hosts = self.hosts();
        nominations::promise(&mut hosts, &waiting);
        let namespaces: BTreeMap<String, Labels> = self
            .world
            .namespaces
            .snapshot()
            .iter()
            .map(|one| {
                (
                    name(&one.metadata).to_owned(),
                    one.metadata.labels.clone().unwrap_or_default(),
                )
            })
            .collect();
        let mut placed = self.placed(&hosts);
        let mut shy: Vec<Placed> = placed.iter().filter(|(pod, _)| is_shy(pod)).cloned().collect();
        let lowest = placed.iter().map(|(pod, _)| priority(pod)).min();
        let took = self.world.clock.since(began);
        // What was refused last, and why; nothing was bound since.
        let mut refused: Option<(Arc<Pod>, String)> = None;
        for pod in waiting {
            let Some(spec) = &pod.spec else { continue };
            if let Some((other, text)) = &refused
                && are_alike(other, &pod)
                && nomination(&pod).is_none()
            {
                self.refuse(&pod, text).await;
                continue;
            }
            if let Some(why) = volumes::refusal_everywhere(&self.world, &pod) {
                let text = format!("0/{} nodes are available: {why}.", hosts.len());
                self.refuse(&pod, &text).await;
                continue;
            }
            let nodes: Vec<&Node> = hosts.iter().map(|host| &*host.node).collect();
            let neighbours = Neighbours::new(&pod, spec, &nodes, &placed, &shy, &namespaces);
            match choose(&self.world, &pod, spec, &hosts, &neighbours) {
                Ok(index) => {
                    let node = hosts[index].node.clone();
                    if self.bind(&pod, &node).await {
                        nominations::redeem(&mut hosts, &pod);
                        hosts[index].take(spec);
                        hosts[index]
                            .volumes
                            .extend(attach_limits::volumes_of(&self.world, &pod));
                        if is_shy(&pod) {
                            shy.push((pod.clone(), node.clone()));
                        }
                        placed.push((pod, node));
                        refused = None;
                    }
                }
                Err(refusals) => {
                    let text = message(hosts.len(), &refusals);
                    self.refuse(&pod, &text).await;
                    if lowest.is_some_and(|lowest| lowest < priority(&pod)) {
                        let made = self.preempt(&pod, spec, &hosts, &neighbours, &namespaces).await;
                        match made {
                            // Pods that come later in the queue matter no more than this one: they leave it the room that is made for it.
                            Some(index) => nominations::keep(&mut hosts, index, &pod),
                            None => self.forget_nomination(&pod).await,
                        }
                    } else {
                        self.forget_nomination(&pod).await;
                        refused = Some((pod, text));
                    }
                }
            }
        }
        took
    }

    fn hosts(&self) -> Vec<Host> {
        let assumed = self
            .assumed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut on_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in self.world.pods.snapshot() {
            let node = if node_of(&pod).is_empty() {
                assumed.get(uid(&pod.metadata)).cloned().unwrap_or_default()
            } else {
                node_of(&pod).to_owned()
            };
            if !node.is_empty() && !has_ended(&pod) {
                on_node.entry(node).or_default().push(pod);
            }
        }
        let host = |node: Arc<Node>| {
            let allocatable = quantities::amounts(
                node.status
                    .as_ref()
                    .and_then(|status| status.allocatable.as_ref()),
            );
            let node_name = name(&node.metadata).to_owned();
            let mut host = Host::empty(node, allocatable);
            host.volume_limits = attach_limits::limits(&self.world, &node_name);
            for pod in on_node.get(&node_name).into_iter().flatten() {
                if let Some(spec) = &pod.spec {
                    host.take(spec);
                }
                if !host.volume_limits.is_empty() {
                    host.volumes.extend(attach_limits::volumes_of(&self.world, pod));
                }
            }
            host
        };
        self.world.nodes.snapshot().into_iter().map(host).collect()
    }

    fn placed(&self, hosts: &[Host]) -> Vec<Placed> {
        let assumed = self
            .assumed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let nodes: BTreeMap<&str, &Arc<Node>> = hosts
            .iter()
            .map(|host| (name(&host.node.metadata), &host.node))
            .collect();
        self.world
            .pods
            .snapshot()
            .into_iter()
            .filter(|pod| !has_ended(pod))
            .filter_map(|pod| {
                let own = node_of(&pod);
                let node = if own.is_empty() {
                    assumed
                        .get(uid(&pod.metadata))
                        .map(String::as_str)
                        .unwrap_or_default()
                } else {
                    own
                };
                let node = (*nodes.get(node)?).clone();
                Some((pod, node))
            })
            .collect()
    }

    async fn bind(&self, pod: &Pod, node: &Node) -> bool {
        let (pod_name, node_name) = (name(&pod.metadata), name(&node.metadata));
        let selected = volumes::select_node(&self.world, pod, node).await;
        if let Err(error) = &selected
            && !is_race(error)
        {
            tracing::warn!(pod = key(&pod.metadata), node = node_name, %error, "choosing the node of a volume; the next pass tries again");
        }
        if !matches!(selected, Ok(true)) {
            self.dirty.notify_one();
            return false;
        }
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(pod_name.to_owned()),
                uid: pod.metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(node_name.to_owned()),
                ..ObjectReference::default()
            },
        };
        let api: Api<Pod> = Api::namespaced(self.world.scheduler_client.clone(), namespace(&pod.metadata));
        match api
            .create_subresource::<Binding, serde_json::Value>(
                "binding",
                pod_name,
                &PostParams::default(),
                &binding,
            )
            .await
        {
            Ok(_) => {
                self.assumed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(uid(&pod.metadata).to_owned(), node_name.to_owned());
                self.tell(
                    pod,
                    "Normal",
                    "Scheduled",
                    &format!("Successfully assigned {} to {node_name}", key(&pod.metadata)),
                )
                .await;
                true
            }
            Err(error) => {
                if !is_race(&error) {
                    tracing::warn!(pod = key(&pod.metadata), node = node_name, %error, "binding; the next pass tries again");
                    self.dirty.notify_one();
                }
                false
            }
        }
    }

    /// Says why a pod waits, once a reason.
    async fn refuse(&self, pod: &Pod, message: &str) {
        let known = condition(pod, "PodScheduled");
        let reason = known.and_then(|known| known.reason.as_deref());
        if reason == Some("Unschedulable")
            && known.and_then(|known| known.message.as_deref()) == Some(message)
        {
            return;
        }
        let since = known
            .filter(|known| known.status == "False")
            .and_then(|known| known.last_transition_time.clone());
        let state = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message, "lastProbeTime": null,
            "lastTransitionTime": since.unwrap_or_else(|| time(self.world.clock.now())),
        });
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [state]}});
        let client = &self.world.scheduler_client;
        match self.world.write_pod_status(client, pod, patch).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => tracing::warn!(pod = key(&pod.metadata), %error, "marking as unschedulable"),
        }
        if reason != Some("Unschedulable") {
            self.tell(pod, "Warning", "FailedScheduling", message).await;
        }
    }

    async fn tell(&self, pod: &Pod, kind: &str, reason: &str, message: &str) {
        self.world.tell(NAME, pod, kind, reason, message).await;
    }
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// Whether what is true of one waiting pod is true of another: they differ in nothing but their names.
fn are_alike(one: &Pod, other: &Pod) -> bool {
    one.metadata.namespace == other.metadata.namespace
        && one.metadata.labels == other.metadata.labels
        && one.spec == other.spec
        && volumes::claim_names(one).is_empty()
}

/// Whether a pod keeps others away.
fn is_shy(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .is_some_and(|spec| !rules::required_anti_affinity(spec).is_empty())
}

/// The best node for a pod, or why there is none.
fn choose(
    world: &World,
    pod: &Pod,
    spec: &PodSpec,
    hosts: &[Host],
    neighbours: &Neighbours,
) -> Result<usize, Refusals> {
    let requests = quantities::pod_requests(spec);
    let ports = rules::host_ports(spec);
    let (wanted_volumes, csi_volumes) = (Wanted::of(world, pod), attach_limits::volumes_of(world, pod));
    let obstacle = |host: &Host| {
        refusal(spec, host, &requests, &ports)
            .or_else(|| refusal(spec, &host.with_promises(pod)?, &requests, &ports))
            .or_else(|| neighbours.refusal(&host.node).map(str::to_owned))
            .or_else(|| wanted_volumes.refusal(&host.node).map(str::to_owned))
            .or_else(|| {
                attach_limits::are_exceeded(&host.volume_limits, &host.volumes, &csi_volumes)
                    .then(|| "node(s) exceed max volume count".to_owned())
            })
    };
    // The node that a pod names comes first, whatever its score.
    if let Some(index) = named_host(pod, hosts)
        && obstacle(&hosts[index]).is_none()
    {
        return Ok(index);
    }
    let mut refusals = Refusals::new();
    let mut best: Option<(i64, usize)> = None;
    for (index, host) in hosts.iter().enumerate() {
        if let Some(why) = obstacle(host) {
            *refusals.entry(why).or_insert(0) += 1;
            continue;
        }
        let most_allocated = world.options.most_allocated;
        let score = score(spec, host, &requests, most_allocated) + neighbours.score(&host.node) * 10;
        if best.is_none_or(|(known, _)| score > known) {
            best = Some((score, index));
        }
    }
    best.map(|(_, index)| index).ok_or(refusals)
}

fn refusal(
    spec: &PodSpec,
    host: &Host,
    requests: &Amounts,
    ports: &[(String, i32, String)],
) -> Option<String> {
    let node = &host.node;
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) && !tolerates_cordon(spec) {
        return Some("node(s) were unschedulable".to_owned());
    }
    if let Some(taint) = rules::untolerated(spec, node, &["NoSchedule", "NoExecute"]) {
        return Some(format!(
            "node(s) had untolerated taint {{{}: {}}}",
            taint.key,
            taint.value.as_deref().unwrap_or_default()
        ));
    }
    if !rules::accepts_node(spec, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    if ports
        .iter()
        .any(|port| host.ports.iter().any(|used| rules::ports_conflict(port, used)))
    {
        return Some("node(s) didn't have free ports for the requested pod ports".to_owned());
    }
    for (name, wanted) in requests {
        let free =
            host.allocatable.get(name).copied().unwrap_or(0) - host.used.get(name).copied().unwrap_or(0);
        if *wanted > 0 && *wanted > free {
            return Some(if name == "pods" {
                "Too many pods".to_owned()
            } else {
                format!("Insufficient {name}")
            });
        }
    }
    if !is_node_ready(node) {
        return Some("node(s) were not ready".to_owned());
    }
    None
}

/// Whether a pod may go to a cordoned node: as if it tolerated the taint of one, which comes a moment later.
fn tolerates_cordon(spec: &PodSpec) -> bool {
    let cordon = Taint {
        key: UNSCHEDULABLE.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let mut tolerations = spec.tolerations.iter().flatten();
    tolerations.any(|toleration| rules::tolerates(toleration, &cordon))
}

/// Most free first, or most used; preferences before that.
fn score(spec: &PodSpec, host: &Host, requests: &Amounts, most_allocated: bool) -> i64 {
    let free = |name: &str| {
        let total = host.allocatable.get(name).copied().unwrap_or(0);
        let used = host.used.get(name).copied().unwrap_or(0) + requests.get(name).copied().unwrap_or(0);
        if total > 0 {
            let counted = if most_allocated {
                used.min(total)
            } else {
                (total - used).max(0)
            };
            i64::try_from(counted * 100 / total).unwrap_or(0)
        } else {
            0
        }
    };
    let soft = if rules::untolerated(spec, &host.node, &["PreferNoSchedule"]).is_some() {
        -1000
    } else {
        0
    };
    rules::preference(spec, &host.node) * 10 + soft + (free("cpu") + free("memory")) / 2
}

fn message(nodes: usize, refusals: &Refusals) -> String {
    let mut parts: Vec<String> = refusals
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    parts.sort();
    if parts.is_empty() {
        return format!("0/{nodes} nodes are available.");
    }
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cordon_is_tolerated_as_its_taint_is() {
        const KEY: &str = "node.kubernetes.io/unschedulable";
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": KEY, "operator": "Exists"}), true),
            (json!({"key": KEY, "effect": "NoSchedule"}), true),
            (json!({"key": KEY, "value": "yes"}), false),
            (
                json!({"key": KEY, "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            let spec = json!({"containers": [], "tolerations": [toleration]});
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(tolerates_cordon(&spec), expected, "{:?}", spec.tolerations);
        }
    }
}
