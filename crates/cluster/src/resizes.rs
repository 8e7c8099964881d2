//! Resizes of running pods: what the subresource `resize` asked for is what containers have, as soon as their node has room for it. No container restarts.
//!
//! Until then a container has what it had, which a kubelet remembers, or takes from the container's status if it has started anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod, ResourceRequirements};
use serde_json::{Value, json};
use spokeshave_runtime::{Change, ObjectKey, ReconcileError, Requeue, Shutdown, TaskGroup, WorkQueue};

use crate::fake_nodes::is_fake;
use crate::objects::{condition, has_ended, is_deleting, is_node_ready, name, node_of, phase, time, uid};
use crate::quantities::{self, Amounts, is_sidecar, pod_requests};
use crate::world::{World, lock};

/// The condition of a pod that waits for room.
const PENDING: &str = "PodResizePending";
/// How often room is looked for (`podResizePendingRetryInterval`).
const RETRY: Duration = Duration::from_secs(180);
/// Another look after another writer was faster.
const AFTER_A_RACE: Duration = Duration::from_secs(1);
const WORKERS: usize = 4;

/// Resources of containers and sidecars by their names.
type Resources = BTreeMap<String, ResourceRequirements>;
/// What the containers of pods had before somebody resized them.
type Before = Arc<Mutex<BTreeMap<ObjectKey, Resources>>>;

/// Why a pod does not get what it asks for: reason and message.
type Refusal = (&'static str, String);

/// The part of the kubelets.
pub(crate) struct Resizes {
    pods: WorkQueue<ObjectKey>,
    before: Before,
}

impl Resizes {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let this = Self {
            pods: world.queue("kubelet.resizes"),
            before: Before::default(),
        };
        let (pods, before) = (this.pods.clone(), this.before.clone());
        world.pods.on_change(move |change| {
            if is_of_interest(&before, change) {
                pods.add(change.key.clone());
            }
        });
        this
    }

    pub(crate) fn start(self, world: &Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let before = self.before;
        let sync = move |world, pod| sync_resize(world, before.clone(), pod);
        world.start(tasks, shutdown, "kubelet resizes", self.pods, WORKERS, sync);
    }
}

/// What a pod's containers and sidecars ask for.
fn resources(pod: &Pod) -> Resources {
    let Some(spec) = &pod.spec else {
        return Resources::new();
    };
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| is_sidecar(container));
    spec.containers
        .iter()
        .chain(sidecars)
        .filter_map(|container| Some((container.name.clone(), container.resources.clone()?)))
        .collect()
}

/// Whether a change is a resize. What the pod had before the first of several is remembered.
fn is_of_interest(before: &Before, change: &Change<Pod>) -> bool {
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let (Some(old), Some(new)) = (old, new) else {
        lock(before).remove(&change.key);
        // One that ran before this kubelet may have been resized while nobody looked.
        return new.is_some_and(|pod| pod.metadata.generation > Some(1) && phase(pod) == "Running");
    };
    if uid(&old.metadata) != uid(&new.metadata) {
        lock(before).remove(&change.key);
        return false;
    }
    let is_resize = old.metadata.generation != new.metadata.generation && resources(old) != resources(new);
    if is_resize {
        lock(before)
            .entry(change.key.clone())
            .or_insert_with(|| resources(old));
    }
    is_resize
}

async fn sync_resize(world: Arc<World>, before: Before, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(pod) = world.pods.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&pod.metadata) || phase(&pod) != "Running" {
        // What has not begun begins with what it asks for now.
        lock(&before).remove(&key);
        return Ok(Requeue::Done);
    }
    let Some(node) = world.nodes.get_named(node_of(&pod)).filter(|node| is_fake(node)) else {
        return Ok(Requeue::Done);
    };
    if !is_node_ready(&node) {
        return Ok(Requeue::After(RETRY));
    }
    let refusal = refusal(&world, &pod, &node);
    let mut granted = resources(&pod);
    if refusal.is_some() {
        let known = lock(&before).get(&key).cloned();
        granted.extend(known.unwrap_or_else(|| had(&pod)));
    }
    if let Some(status) = status(&world, &pod, &granted, refusal.as_ref()) {
        let metadata = json!({"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
        let patch = json!({"metadata": metadata, "status": status});
        let client = &world.kubelet_client;
        if !world.write_pod_status(client, &pod, patch).await? {
            return Ok(Requeue::After(AFTER_A_RACE));
        }
    }
    if refusal.is_some() {
        return Ok(Requeue::After(RETRY));
    }
    lock(&before).remove(&key);
    Ok(Requeue::Done)
}

fn statuses(pod: &Pod) -> [(&'static str, Option<&Vec<ContainerStatus>>); 2] {
    let status = pod.status.as_ref();
    [
        (
            "containerStatuses",
            status.and_then(|status| status.container_statuses.as_ref()),
        ),
        (
            "initContainerStatuses",
            status.and_then(|status| status.init_container_statuses.as_ref()),
        ),
    ]
}

/// What containers have, as far as their statuses say.
fn had(pod: &Pod) -> Resources {
    let all = statuses(pod).into_iter().filter_map(|(_, list)| list).flatten();
    all.filter_map(|status| Some((status.name.clone(), status.resources.clone()?)))
        .collect()
}

/// The change of a pod's status by which it says what its containers have, and why not what they ask for. `None` if it says so.
fn status(world: &World, pod: &Pod, granted: &Resources, refusal: Option<&Refusal>) -> Option<Value> {
    let generation = pod.metadata.generation;
    let mut change = json!({});
    for (field, list) in statuses(pod) {
        let Some(list) = list else { continue };
        let mut new = list.clone();
        for status in &mut new {
            if let Some(resources) = granted.get(&status.name) {
                status.allocated_resources = resources.requests.clone();
                status.resources = Some(resources.clone());
            }
        }
        if new != *list {
            change[field] = json!(new);
        }
    }
    let known = condition(pod, PENDING);
    match (refusal, known) {
        (Some((reason, message)), _) => {
            let is_said = known.is_some_and(|known| {
                known.reason.as_deref() == Some(*reason) && known.message.as_ref() == Some(message)
            });
            if !is_said {
                let since = known.and_then(|known| known.last_transition_time.clone());
                let since = since.unwrap_or_else(|| time(world.clock.now()));
                change["conditions"] = json!([{"type": PENDING, "status": "True", "reason": reason, "message": message,
                    "lastProbeTime": null, "lastTransitionTime": since, "observedGeneration": generation}]);
            }
        }
        (None, Some(_)) => change["conditions"] = json!([{"$patch": "delete", "type": PENDING}]),
        (None, None) => {}
    }
    let observed = pod.status.as_ref().and_then(|status| status.observed_generation);
    if observed != generation {
        change["observedGeneration"] = json!(generation);
    }
    (change != json!({})).then_some(change)
}

/// Why a node does not give a pod what it asks for now.
fn refusal(world: &World, pod: &Pod, node: &Node) -> Option<Refusal> {
    let mut used = Amounts::new();
    for other in world.pods_by_node.get(name(&node.metadata)) {
        if uid(&other.metadata) != uid(&pod.metadata)
            && !has_ended(&other)
            && let Some(spec) = &other.spec
        {
            quantities::add(&mut used, &pod_requests(spec));
        }
    }
    let status = node.status.as_ref();
    let allocatable = quantities::amounts(status.and_then(|status| status.allocatable.as_ref()));
    let wanted = pod_requests(pod.spec.as_ref()?);
    lack(&wanted, &used, &allocatable)
}

/// What is lacking, in the words of a kubelet: forever, or as long as other pods are there.
fn lack(wanted: &Amounts, used: &Amounts, allocatable: &Amounts) -> Option<Refusal> {
    // Amounts are thousandths; kubelets count thousandths of cores, and bytes.
    let each = [("memory", 1000), ("cpu", 1)].map(|(resource, unit)| {
        let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or(0) / unit;
        (resource, of(wanted), of(used), of(allocatable))
    });
    let never = each.iter().find(|(_, wanted, _, capacity)| wanted > capacity);
    if let Some((resource, wanted, _, capacity)) = never {
        let message = format!(
            "Node didn't have enough capacity: {resource}, requested: {wanted}, capacity: {capacity}"
        );
        return Some(("Infeasible", message));
    }
    let now = each
        .iter()
        .find(|(_, wanted, used, capacity)| used + wanted > *capacity);
    now.map(|(resource, wanted, used, capacity)| {
        let message = format!(
            "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
        );
        ("Deferred", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: i128, memory: i128) -> Amounts {
        [("cpu".to_owned(), cpu), ("memory".to_owned(), memory * 1000)].into()
    }

    #[test]
    fn what_a_node_never_has_is_told_from_what_others_have_now() {
        let (node, others) = (amounts(2000, 4096), amounts(1500, 1024));
        for (wanted, reason) in [
            (amounts(500, 3072), None),
            (amounts(501, 1), Some("Deferred")),
            (amounts(1, 3073), Some("Deferred")),
            (amounts(2001, 1), Some("Infeasible")),
            (amounts(501, 4097), Some("Infeasible")),
        ] {
            let refusal = lack(&wanted, &others, &node);
            assert_eq!(refusal.map(|(reason, _)| reason), reason, "{wanted:?}");
        }
        let (_, message) = lack(&amounts(600, 1), &others, &node).unwrap();
        assert_eq!(
            message,
            "Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000"
        );
    }
}
