//! Preemption: pods that matter less make room for one that fits nowhere, and the room is kept for it until they are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use spokeshave_runtime::Api;

use super::nominations::{named_host, nomination};
use super::{Host, Scheduler, priority, refusal};
use crate::attach_limits::{self, CsiVolume};
use crate::neighbours::{Leaving, Neighbours};
use crate::objects::{has_ended, is_deleting, key, name, namespace, uid};
use crate::quantities::{self, Amounts};
use crate::rules::{self, Labels};
use crate::volumes::Wanted;
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
        namespaces: &BTreeMap<String, Labels>,
    ) -> Option<usize> {
        if spec.preemption_policy.as_deref() == Some("Never") {
            return None;
        }
        let seeker = Seeker {
            pod,
            spec,
            requests: quantities::pod_requests(spec),
            ports: rules::host_ports(spec),
            volumes: Wanted::of(&self.world, pod),
            csi_volumes: attach_limits::volumes_of(&self.world, pod),
            neighbours,
            namespaces,
        };
        let victims = |host: &Host| {
            let others = self.world.pods_by_node.get(name(&host.node.metadata));
            seeker.victims(host, &others)
        };
        // Room is made on the node that it names already, and nobody else is to go meanwhile.
        if let Some(index) = named_host(pod, hosts)
            && victims(&hosts[index]).is_some_and(|victims| victims.iter().all(|one| is_leaving(one)))
        {
            return Some(index);
        }
        let mut best: Option<((i32, usize, usize), usize, Vec<Arc<Pod>>)> = None;
        for (index, host) in hosts.iter().enumerate() {
            let Some(victims) = victims(host) else { continue };
            let worst = victims
                .iter()
                .map(|victim| priority(victim))
                .max()
                .unwrap_or(i32::MIN);
            let to_ask = victims.iter().filter(|victim| !is_leaving(victim)).count();
            let cost = (worst, victims.len(), to_ask);
            if best.as_ref().is_none_or(|(known, ..)| cost < *known) {
                best = Some((cost, index, victims));
            }
        }
        let (_, index, victims) = best?;
        let node_name = name(&hosts[index].node.metadata);
        if nomination(pod) != Some(node_name) {
            self.nominate(pod, Some(node_name)).await;
        }
        for victim in victims.iter().filter(|victim| !is_leaving(victim)) {
            self.drive_out(victim, pod, node_name).await;
        }
        Some(index)
    }

    /// Deletes a pod that makes room for another.
    async fn drive_out(&self, victim: &Pod, pod: &Pod, node_name: &str) {
        let text = format!("Preempted by pod {} on node {node_name}", uid(&pod.metadata));
        self.tell(victim, "Normal", "Preempted", &text).await;
        let api: Api<Pod> = Api::namespaced(self.world.scheduler_client.clone(), namespace(&victim.metadata));
        match api.delete(name(&victim.metadata), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(error) if is_race(&error) => {}
            Err(error) => tracing::warn!(pod = key(&victim.metadata), %error, "preempting"),
        }
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

fn is_leaving(pod: &Pod) -> bool {
    is_deleting(&pod.metadata)
}

/// A pod that fits nowhere, and what is looked up once for all hosts on which room may be made for it.
struct Seeker<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    requests: Amounts,
    ports: Vec<(String, i32, String)>,
    volumes: Wanted,
    csi_volumes: Vec<CsiVolume>,
    neighbours: &'a Neighbours,
    namespaces: &'a BTreeMap<String, Labels>,
}

impl Seeker<'_> {
    /// Whether a host with these pods has what the pod asks of it, whoever its neighbours are.
    fn fits(&self, host: &Host, kept: &[Arc<Pod>]) -> bool {
        let mut trial = Host::empty(host.node.clone(), host.allocatable.clone());
        for spec in kept.iter().filter_map(|pod| pod.spec.as_ref()) {
            trial.take(spec);
        }
        refusal(self.spec, &trial, &self.requests, &self.ports).is_none()
    }

    /// The fewest pods of lower priority without which a host can have the pod, dearest spared first; `None` when no such pods help.
    fn victims(&self, host: &Host, others: &[Arc<Pod>]) -> Option<Vec<Arc<Pod>>> {
        // What keeps the pod from the host whoever is there.
        if self.volumes.refusal(&host.node).is_some()
            || attach_limits::are_exceeded(&host.volume_limits, &host.volumes, &self.csi_volumes)
        {
            return None;
        }
        let (mut gone, mut kept): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = others
            .iter()
            .filter(|other| !has_ended(other))
            .cloned()
            .partition(|other| priority(other) < priority(self.pod));
        if gone.is_empty() {
            return None;
        }
        let promised = host.promised.iter().filter(|one| one.is_kept_from(self.pod));
        kept.extend(promised.map(|one| Arc::clone(&one.pod)));
        let leaving =
            |gone: &[Arc<Pod>]| Leaving::new(self.pod, self.spec, &host.node, gone, self.namespaces);
        let is_welcome = |leaving: &Leaving| self.neighbours.refusal_without(leaving, &host.node).is_none();
        // Mostly nobody minds anybody, and then one look is enough.
        let all = if self.neighbours.is_free() {
            Leaving::default()
        } else {
            leaving(&gone)
        };
        if !is_welcome(&all) || !self.fits(host, &kept) {
            return None;
        }
        gone.sort_by_key(|other| (std::cmp::Reverse(priority(other)), key(&other.metadata)));
        let mut next = 0;
        while next < gone.len() {
            let spared = gone.remove(next);
            kept.push(Arc::clone(&spared));
            let may_stay = self.fits(host, &kept) && (all.is_nothing() || is_welcome(&leaving(&gone)));
            if !may_stay {
                kept.pop();
                gone.insert(next, spared);
                next += 1;
            }
        }
        (!gone.is_empty()).then_some(gone)
    }
}
