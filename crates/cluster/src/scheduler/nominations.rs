//! Nodes that waiting pods name as theirs: each is tried first for its pod, and its room is kept from pods that matter no more.
//!
//! Who has named the node makes no difference: preemption does, and so may anybody who knows where pods will go.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::{Host, priority};
use crate::objects::{name, uid};

/// The node that a pod names.
pub(super) fn nomination(pod: &Pod) -> Option<&str> {
    let node = pod.status.as_ref()?.nominated_node_name.as_deref()?;
    (!node.is_empty()).then_some(node)
}

/// The host that a pod names.
pub(super) fn named_host(pod: &Pod, hosts: &[Host]) -> Option<usize> {
    let named = nomination(pod)?;
    hosts.iter().position(|host| name(&host.node.metadata) == named)
}

/// Room on a node for a pod that names it.
pub(super) struct Promise {
    pub(super) pod: Arc<Pod>,
}

impl Promise {
    /// Whether another pod must leave the room; one that matters more may take it, and the pod itself does.
    pub(super) fn is_kept_from(&self, other: &Pod) -> bool {
        uid(&self.pod.metadata) != uid(&other.metadata) && priority(&self.pod) >= priority(other)
    }
}

/// Notes on hosts which waiting pods name them.
pub(super) fn promise(hosts: &mut [Host], waiting: &[Arc<Pod>]) {
    let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in waiting {
        if let Some(node) = nomination(pod) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    if by_node.is_empty() {
        return;
    }
    for host in hosts {
        let named = by_node.get(name(&host.node.metadata)).into_iter().flatten();
        host.promised = named.map(|pod| Promise { pod: Arc::clone(pod) }).collect();
    }
}

/// A pod has a place: nothing is kept for it any more.
pub(super) fn redeem(hosts: &mut [Host], pod: &Pod) {
    if let Some(index) = named_host(pod, hosts) {
        hosts[index]
            .promised
            .retain(|promise| uid(&promise.pod.metadata) != uid(&pod.metadata));
    }
}

/// Room is made for a pod on a host: it is kept for it there, and nowhere else.
pub(super) fn keep(hosts: &mut [Host], index: usize, pod: &Arc<Pod>) {
    redeem(hosts, pod);
    hosts[index].promised.push(Promise { pod: Arc::clone(pod) });
}
