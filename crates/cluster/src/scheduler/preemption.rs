//! Preemption: pods that matter less make room for one that fits nowhere, and the room is kept for it until they are gone.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use spokeshave_runtime::Api;

use super::nominations::nomination;
use super::{Host, Scheduler, priority, refusal};
use crate::attach_limits;
use crate::neighbours::Neighbours;
use crate::objects::{has_ended, is_deleting, key, name, namespace, uid};
use crate::quantities;
use crate::rules;
use crate::volumes;
use crate::world::is_race;

impl Scheduler {
    /// Makes room for a pod by the end of pods that matter less, on the node where that costs least.
    /// Returns the host on which room is made, now or already.
    pub(super) async fn preempt(
        &self,
        pod: &Pod,
        spec: &PodSpec,
        hosts: &[Host],
        neighbours: &Neighbours,
    ) -> Option<usize> {
        if spec.preemption_policy.as_deref() == Some("Never") {
            return None;
        }
        let csi_volumes = attach_limits::volumes_of(&self.world, pod);
        let mut best: Option<((i32, usize), usize, Vec<Arc<Pod>>)> = None;
        for (index, host) in hosts.iter().enumerate() {
            let others = self.world.pods_by_node.get(name(&host.node.metadata));
            let allowed = neighbours.refusal(&host.node).is_none()
                && volumes::refusal(&self.world, pod, &host.node).is_none()
                && !attach_limits::are_exceeded(&host.volume_limits, &host.volumes, &csi_volumes);
            let Some(victims) = allowed.then(|| victims(pod, spec, host, &others)).flatten() else {
                continue;
            };
            // They are terminating already, and will free the capacity.
            if victims.iter().any(|victim| is_deleting(&victim.metadata)) {
                return Some(index);
            }
            let worst = victims
                .iter()
                .map(|victim| priority(victim))
                .max()
                .unwrap_or(i32::MIN);
            let cost = (worst, victims.len());
            if best.as_ref().is_none_or(|(known, ..)| cost < *known) {
                best = Some((cost, index, victims));
            }
        }
        let (_, index, victims) = best?;
        let node_name = name(&hosts[index].node.metadata);
        self.nominate(pod, Some(node_name)).await;
        for victim in victims {
            let text = format!("Preempted by pod {} on node {node_name}", uid(&pod.metadata));
            self.tell(&victim, "Normal", "Preempted", &text).await;
            let api: Api<Pod> =
                Api::namespaced(self.world.scheduler_client.clone(), namespace(&victim.metadata));
            match api.delete(name(&victim.metadata), &DeleteParams::default()).await {
                Ok(_) => {}
                Err(error) if is_race(&error) => {}
                Err(error) => tracing::warn!(pod = key(&victim.metadata), %error, "preempting"),
            }
        }
        Some(index)
    }

    /// A pod for which no room is made waits for a new node like any other. As the kube-scheduler does, whoever has named a node.
    pub(super) async fn forget_nomination(&self, pod: &Pod) {
        if nomination(pod).is_some() {
            self.nominate(pod, None).await;
        }
    }

    async fn nominate(&self, pod: &Pod, node: Option<&str>) {
        let api: Api<Pod> = Api::namespaced(self.world.scheduler_client.clone(), namespace(&pod.metadata));
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node}});
        if let Ok(written) = api
            .patch_status(name(&pod.metadata), &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            self.world.pods.note_written(written);
        }
    }
}

/// The fewest pods of lower priority without which a host can have the pod, dearest spared first; `None` when no such pods help.
fn victims(pod: &Pod, spec: &PodSpec, host: &Host, others: &[Arc<Pod>]) -> Option<Vec<Arc<Pod>>> {
    let (mut lower, rest): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = others
        .iter()
        .filter(|other| !has_ended(other))
        .cloned()
        .partition(|other| priority(other) < priority(pod));
    if lower.is_empty() {
        return None;
    }
    let (requests, ports) = (quantities::pod_requests(spec), rules::host_ports(spec));
    let fits = |kept: &[Arc<Pod>]| {
        let mut trial = Host::empty(host.node.clone(), host.allocatable.clone());
        for spec in kept.iter().filter_map(|pod| pod.spec.as_ref()) {
            trial.take(spec);
        }
        refusal(spec, &trial, &requests, &ports).is_none()
    };
    let mut kept = rest;
    let promised = host.promised.iter().filter(|one| one.is_kept_from(pod));
    kept.extend(promised.map(|one| Arc::clone(&one.pod)));
    if !fits(&kept) {
        return None;
    }
    lower.sort_by_key(|other| (std::cmp::Reverse(priority(other)), key(&other.metadata)));
    let mut victims = Vec::new();
    for other in lower {
        kept.push(other.clone());
        if !fits(&kept) {
            kept.pop();
            victims.push(other);
        }
    }
    (!victims.is_empty()).then_some(victims)
}
