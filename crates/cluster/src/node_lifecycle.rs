//! Taints that follow a node's conditions, the pods that do not tolerate them, pods for which nobody answers any more, and the end of pods whose node is gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use spokeshave_runtime::{Api, ReconcileError, Requeue, Shutdown, TaskGroup, WorkQueue};

use crate::objects::{
    has_ended, is_deleting, is_node_ready, is_node_silent, is_out_of_service, is_ready, name, namespace,
    node_condition, node_of, node_readiness, time, uid,
};
use crate::rules;
use crate::world::{World, deletion_of, ignore_races, lock, noted};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Conditions of a node that keep pods away from it while they are true, and by which taint.
const TROUBLES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];
const NAME: &str = "node-controller";
const WORKERS: usize = 16;

/// Since when the pods of nodes with a NoExecute taint, by node and UID, have been on such a node. Who has left it is not remembered.
#[derive(Debug, Default)]
struct Exposed(BTreeMap<String, BTreeMap<String, Timestamp>>);

impl Exposed {
    /// Since when each of these pods, which are all that there are on the node: now, where a pod was not there before.
    fn note<'a>(
        &mut self,
        node_name: &str,
        uids: impl IntoIterator<Item = &'a str>,
        now: Timestamp,
    ) -> Vec<Timestamp> {
        let before = self.0.remove(node_name).unwrap_or_default();
        let mut here = BTreeMap::new();
        let mut all = Vec::new();
        for uid in uids {
            let since = before.get(uid).copied().unwrap_or(now);
            here.insert(uid.to_owned(), since);
            all.push(since);
        }
        if !here.is_empty() {
            self.0.insert(node_name.to_owned(), here);
        }
        all
    }
}

/// The controller.
pub(crate) struct NodeLifecycle {
    queue: WorkQueue<String>,
}

fn no_execute(node: &Node) -> Vec<&Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let taints = taints.unwrap_or_default().iter();
    taints.filter(|taint| taint.effect == "NoExecute").collect()
}

impl NodeLifecycle {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let queue: WorkQueue<String> = world.queue("node.lifecycle");
        let keys = queue.clone();
        world.nodes.on_change(move |change| {
            if let Some(node) = change.object() {
                keys.add(name(&node.metadata).to_owned());
            }
        });
        let (keys, nodes) = (queue.clone(), world.nodes.clone());
        world.pods.on_change(move |change| {
            let Some(pod) = change.new.as_deref().filter(|pod| !node_of(pod).is_empty()) else {
                return;
            };
            let arrived = change.old.as_deref().is_none_or(|old| node_of(old).is_empty());
            let wanted = match nodes.get_named(node_of(pod)) {
                None => nodes.is_ready(),
                Some(node) => {
                    arrived && !no_execute(&node).is_empty()
                        || is_ready(pod) && is_node_silent(&node)
                        || is_abandoned(pod, &node)
                }
            };
            if wanted {
                keys.add(node_of(pod).to_owned());
            }
        });
        Self { queue }
    }

    pub(crate) fn start(self, world: &Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let exposed = Arc::new(Mutex::new(Exposed::default()));
        let sync = move |world, node| sync(world, exposed.clone(), node);
        world.start(tasks, shutdown, "node lifecycle", self.queue, WORKERS, sync);
    }
}

async fn sync(
    world: Arc<World>,
    exposed: Arc<Mutex<Exposed>>,
    node_name: String,
) -> Result<Requeue, ReconcileError> {
    let Some(node) = world.nodes.get_named(&node_name) else {
        lock(&exposed).0.remove(&node_name);
        collect(&world, world.pods_by_node.get(&node_name)).await?;
        return Ok(Requeue::Done);
    };
    let before = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    let wanted = wanted(&node, &before);
    if wanted == before {
        let mut pods = world.pods_by_node.get(&node_name);
        if is_node_silent(&node) {
            doubt(&world, &pods).await?;
        }
        pods.retain(|pod| is_abandoned(pod, &node));
        collect(&world, pods).await?;
        return drive_out(&world, &exposed, &node).await;
    }
    let patch =
        json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": wanted}});
    let api: Api<Node> = Api::all(world.client.clone());
    let answer = api
        .patch(&node_name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    noted(&world.nodes, answer)?;
    Ok(Requeue::Done)
}

/// Nobody answers for the pods of a node whose kubelet has fallen silent: they are not Ready, whatever it said last.
async fn doubt(world: &World, pods: &[Arc<Pod>]) -> Result<(), ReconcileError> {
    for pod in pods.iter().filter(|pod| is_ready(pod)) {
        let now = time(world.clock.now());
        let state = json!({"type": "Ready", "status": "False", "lastTransitionTime": now});
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [state]}});
        let is_written = world.write_pod_status(&world.client, pod, patch).await?;
        if is_written && world.keeps_records() {
            world
                .tell(NAME, pod, "Warning", "NodeNotReady", "Node is not ready")
                .await;
        }
    }
    Ok(())
}

/// Whether a pod that is to stop is on a node that is known to run nothing any more: nobody will say that it has stopped.
fn is_abandoned(pod: &Pod, node: &Node) -> bool {
    is_deleting(&pod.metadata) && !is_node_ready(node) && is_out_of_service(node)
}

/// How long a pod tolerates a node's NoExecute taints: `None` without limit, the shortest `tolerationSeconds` otherwise, zero when it does not tolerate one. Of
/// several tolerations of a taint the first counts.
fn bears(pod: &Pod, node: &Node) -> Option<Duration> {
    let spec = pod.spec.as_ref()?;
    if rules::untolerated(spec, node, &["NoExecute"]).is_some() {
        return Some(Duration::ZERO);
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let seconds = no_execute(node).into_iter().filter_map(|taint| {
        let mut tolerations = tolerations.iter();
        let used = tolerations.find(|toleration| rules::tolerates(toleration, taint));
        used.and_then(|toleration| toleration.toleration_seconds)
    });
    let shortest = seconds.min()?;
    Some(Duration::from_secs(u64::try_from(shortest).unwrap_or(0)))
}

/// Pods that do not bear the node's taints any longer go, with their grace.
async fn drive_out(world: &World, exposed: &Mutex<Exposed>, node: &Node) -> Result<Requeue, ReconcileError> {
    let node_name = name(&node.metadata);
    let tainted = !no_execute(node).is_empty();
    let mut pods = world.pods_by_node.get(node_name);
    pods.retain(|pod| tainted && !is_deleting(&pod.metadata) && !has_ended(pod));
    let uids = pods.iter().map(|pod| uid(&pod.metadata));
    let since = lock(exposed).note(node_name, uids, world.clock.now());
    let mut wait: Option<Duration> = None;
    let mut due = Vec::new();
    for (pod, since) in pods.iter().zip(since) {
        let Some(limit) = bears(pod, node) else { continue };
        let left = limit.saturating_sub(world.clock.since(since));
        if left.is_zero() {
            due.push(pod);
        } else {
            wait = Some(wait.map_or(left, |wait| wait.min(left)));
        }
    }
    for pod in due {
        delete(world, pod, None).await?;
    }
    Ok(wait.map_or(Requeue::Done, Requeue::After))
}

/// Whether a taint follows from what the node says of itself. Those of conditions do so with one effect only.
fn is_ours(taint: &Taint) -> bool {
    let key = taint.key.as_str();
    let is_of_trouble = TROUBLES.iter().any(|(_, own)| *own == key);
    matches!(key, NOT_READY | UNREACHABLE | UNSCHEDULABLE) || is_of_trouble && taint.effect == "NoSchedule"
}

/// The node's taints with ours brought up to date.
fn wanted(node: &Node, before: &[Taint]) -> Vec<Taint> {
    let taint = |key: &str, effect: &str| Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    };
    let mut ours = Vec::new();
    match node_readiness(node) {
        Some("True") => {}
        Some("Unknown") => ours.extend([taint(UNREACHABLE, "NoSchedule"), taint(UNREACHABLE, "NoExecute")]),
        _ => ours.extend([taint(NOT_READY, "NoSchedule"), taint(NOT_READY, "NoExecute")]),
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        ours.push(taint(UNSCHEDULABLE, "NoSchedule"));
    }
    let in_trouble = TROUBLES
        .iter()
        .filter(|(kind, _)| node_condition(node, kind) == Some("True"));
    ours.extend(in_trouble.map(|(_, key)| taint(key, "NoSchedule")));
    let mut taints: Vec<Taint> = before
        .iter()
        .filter(|taint| {
            !is_ours(taint)
                || ours
                    .iter()
                    .any(|own| own.key == taint.key && own.effect == taint.effect)
        })
        .cloned()
        .collect();
    for own in ours {
        if !taints
            .iter()
            .any(|taint| taint.key == own.key && taint.effect == own.effect)
        {
            taints.push(own);
        }
    }
    taints
}

/// Pods that no kubelet is left to stop are removed, as those of a removed node.
async fn collect(world: &World, pods: Vec<Arc<Pod>>) -> Result<(), ReconcileError> {
    for pod in pods {
        delete(world, &pod, Some(0)).await?;
    }
    Ok(())
}

/// Deletes a pod, and none that has come since under its name.
async fn delete(world: &World, pod: &Pod, grace_period_seconds: Option<u32>) -> Result<(), ReconcileError> {
    let api: Api<Pod> = Api::namespaced(world.client.clone(), namespace(&pod.metadata));
    let parameters = deletion_of(&pod.metadata, grace_period_seconds);
    ignore_races(api.delete(name(&pod.metadata), &parameters).await)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_have_left_a_node_are_forgotten() {
        let mut exposed = Exposed::default();
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        assert_eq!(exposed.note("n", ["a", "b"], at(1)), [at(1), at(1)]);
        assert_eq!(exposed.note("n", ["b", "c"], at(2)), [at(1), at(2)]);
        assert_eq!(exposed.note("m", ["d"], at(3)), [at(3)]);
        assert_eq!(exposed.0["n"].keys().collect::<Vec<_>>(), ["b", "c"]);
        // Without taints, or without pods.
        assert!(exposed.note("n", [], at(4)).is_empty());
        assert_eq!(exposed.0.keys().collect::<Vec<_>>(), ["m"]);
        assert_eq!(exposed.note("n", ["b"], at(5)), [at(5)], "it has begun anew");
    }

    fn node(taints: &serde_json::Value, conditions: &serde_json::Value) -> Node {
        serde_json::from_value(json!({"spec": {"taints": taints}, "status": {"conditions": conditions}}))
            .unwrap()
    }

    #[test]
    fn the_first_toleration_of_a_taint_says_for_how_long() {
        let taints =
            json!([{"key": NOT_READY, "effect": "NoExecute"}, {"key": "own", "effect": "NoExecute"}]);
        let node = node(&taints, &json!([]));
        let all = json!({"operator": "Exists"});
        let short =
            json!({"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30});
        let own = json!({"key": "own", "operator": "Exists", "tolerationSeconds": 60});
        for (tolerations, expected) in [
            (json!([all, short]), None),
            (json!([short, all]), Some(30)),
            (json!([own, short, all]), Some(30)),
            (json!([own, all, short]), Some(60)),
            (json!([own]), Some(0)),
        ] {
            let spec = json!({"containers": [], "tolerations": tolerations});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(
                bears(&pod, &node),
                expected.map(Duration::from_secs),
                "{tolerations}"
            );
        }
    }

    #[test]
    fn taints_follow_conditions() {
        let told = |taints: serde_json::Value, conditions: serde_json::Value| {
            let node = node(&taints, &conditions);
            let before = node.spec.as_ref().unwrap().taints.clone().unwrap();
            let after = wanted(&node, &before).into_iter();
            after
                .map(|taint| format!("{}:{}", taint.key, taint.effect))
                .collect::<Vec<_>>()
        };
        let is = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let (well, full) = (is("Ready", "True"), is("DiskPressure", "True"));
        let disk = "node.kubernetes.io/disk-pressure";
        let before = json!([{"key": disk, "effect": "NoSchedule"}, {"key": disk, "effect": "NoExecute"}, {"key": "own", "effect": "NoSchedule"}]);
        assert_eq!(
            told(json!([]), json!([well, full, is("MemoryPressure", "False")])),
            [format!("{disk}:NoSchedule")]
        );
        assert_eq!(
            told(before, json!([well, is("DiskPressure", "False")])),
            [format!("{disk}:NoExecute"), "own:NoSchedule".to_owned()],
            "what somebody else has set stays"
        );
        assert_eq!(
            told(
                json!([]),
                json!([is("Ready", "False"), is("NetworkUnavailable", "True")])
            ),
            [
                format!("{NOT_READY}:NoSchedule"),
                format!("{NOT_READY}:NoExecute"),
                "node.kubernetes.io/network-unavailable:NoSchedule".to_owned(),
            ]
        );
    }
}
