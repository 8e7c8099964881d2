//! Taints that follow a node's readiness, and the end of pods whose node is gone.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use spokeshave_runtime::{
    ControllerMetrics, ReconcileError, Requeue, Shutdown, TaskGroup, WorkQueue, run_controller,
};

use crate::objects::{is_node_ready, name, namespace, node_of};
use crate::world::{World, is_race};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The controller.
pub(crate) struct NodeLifecycle {
    queue: WorkQueue<String>,
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
            if let Some(pod) = change.new.as_deref().filter(|pod| {
                !node_of(pod).is_empty() && nodes.is_ready() && nodes.get_named(node_of(pod)).is_none()
            }) {
                keys.add(node_of(pod).to_owned());
            }
        });
        Self { queue }
    }

    pub(crate) fn start(self, world: &Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let shared = world.clone();
        let work = move |node| sync(shared.clone(), node);
        tasks.spawn(
            "node lifecycle",
            run_controller(
                "node.lifecycle",
                self.queue,
                16,
                work,
                shutdown.clone(),
                ControllerMetrics::new(&world.metrics),
            ),
        );
    }
}

async fn sync(world: Arc<World>, node_name: String) -> Result<Requeue, ReconcileError> {
    let Some(node) = world.nodes.get_named(&node_name) else {
        return collect(&world, &node_name).await;
    };
    let before = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    let wanted = wanted(&node, &before);
    if wanted == before {
        return Ok(Requeue::Done);
    }
    let patch =
        json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": wanted}});
    let api: Api<Node> = Api::all(world.client.clone());
    match api
        .patch(&node_name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(written) => {
            world.nodes.note_written(written);
            Ok(Requeue::Done)
        }
        Err(error) if is_race(&error) => Ok(Requeue::Done),
        Err(error) => Err(Box::new(error)),
    }
}

/// The node's taints with ours brought up to date.
fn wanted(node: &Node, before: &[Taint]) -> Vec<Taint> {
    let state = node
        .status
        .iter()
        .filter_map(|status| status.conditions.as_ref())
        .flatten()
        .find(|one| one.type_ == "Ready")
        .map(|one| one.status.as_str());
    let taint = |key: &str, effect: &str| Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    };
    let mut ours = Vec::new();
    match state {
        _ if is_node_ready(node) => {}
        Some("Unknown") => ours.extend([taint(UNREACHABLE, "NoSchedule"), taint(UNREACHABLE, "NoExecute")]),
        _ => ours.extend([taint(NOT_READY, "NoSchedule"), taint(NOT_READY, "NoExecute")]),
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        ours.push(taint(UNSCHEDULABLE, "NoSchedule"));
    }
    let mut taints: Vec<Taint> = before
        .iter()
        .filter(|taint| {
            !matches!(taint.key.as_str(), NOT_READY | UNREACHABLE | UNSCHEDULABLE)
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

/// Pods of a node that is gone go too: nobody is left to stop them.
async fn collect(world: &World, node_name: &str) -> Result<Requeue, ReconcileError> {
    for pod in world.pods_by_node.get(node_name) {
        let api: Api<Pod> = Api::namespaced(world.client.clone(), namespace(&pod.metadata));
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        match api.delete(name(&pod.metadata), &parameters).await {
            Ok(_) => {}
            Err(error) if is_race(&error) => {}
            Err(error) => return Err(Box::new(error)),
        }
    }
    Ok(Requeue::Done)
}
