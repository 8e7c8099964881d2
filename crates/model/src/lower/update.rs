//! One changed pod in an existing Snapshot, where that changes nothing else.

use super::intern::pod_view;
use super::{meta_key, pods};
use crate::Pod;
use crate::pod;
use crate::snapshot::{NodeId, NodeView, PodId, Snapshot};
use crate::vector::ResourceVector;
use std::sync::Arc;

/// Changed pods beyond which making a Snapshot anew is not much dearer.
const MOST_CHANGED_PODS: usize = 1_000;

impl Snapshot {
    /// Takes the pods as they are now in, all of them, in order of namespace and name. True when the Snapshot then equals what `lower` would make;
    /// when false it must be made anew, and this one forgotten. O(pods) comparisons of pointers, and what each changed pod costs.
    pub fn replace_pods(&mut self, pods: &[Arc<Pod>]) -> bool {
        if pods.len() != self.pods.len() {
            return false;
        }
        let pairs = self.pods.iter().zip(pods);
        let changed = pairs.filter(|(view, pod)| !Arc::ptr_eq(&view.object, pod));
        let changed: Vec<Arc<Pod>> = changed.map(|(_, pod)| Arc::clone(pod)).collect();
        changed.len() <= MOST_CHANGED_PODS && changed.iter().all(|pod| self.replace_pod(pod))
    }

    /// Takes a new version of a pod in, if that gives the same Snapshot as `lower` would make of all objects: the pod is known, and neither its
    /// constraints and requests nor its volumes have changed. That covers a pod that is bound, starts, ends or is being deleted. False, and
    /// nothing is changed, when the Snapshot must be made anew. O(log pods + pods of its nodes).
    pub fn replace_pod(&mut self, object: &Arc<Pod>) -> bool {
        let key = meta_key(&object.metadata);
        let position = self
            .pods
            .binary_search_by(|view| meta_key(&view.object.metadata).cmp(&key));
        let Ok(position) = position else { return false };
        let old = &self.pods[position];
        // Validation, and DaemonSets that take their newest pod as a model, look at more than this pod.
        let known = pods::is_replica(&old.object, object)
            && old.problem.is_none()
            && old.node == self.find_bound(&old.object)
            && (old.provisionable || !pod::is_provisionable(object));
        if !known || old.daemon || pod::is_daemon(object) {
            return false;
        }
        let mut view = pod_view(object, old.class, old.request, old.budgets.clone());
        view.node = self.find_bound(object);
        let (before, after) = (old.node, view.node);
        self.pods[position] = view;
        for node in [before, after].into_iter().flatten() {
            let pods = &mut self.nodes[node.index()].pods;
            if let Ok(index) = pods.binary_search(&PodId::from(position)) {
                pods.remove(index);
            }
        }
        if let Some(node) = after {
            let pods = &mut self.nodes[node.index()].pods;
            if let Err(index) = pods.binary_search(&PodId::from(position)) {
                pods.insert(index, PodId::from(position));
            }
        }
        for node in [before, after].into_iter().flatten() {
            let width = self.resources.width();
            let view = &mut self.nodes[node.index()];
            view.requested = ResourceVector::zero(width);
            for pod in view.pods.iter().map(|pod| &self.pods[pod.index()]) {
                if !pod.terminal {
                    view.requested.add(&self.requests[pod.request.index()]);
                }
            }
        }
        true
    }

    /// The node a pod is bound to.
    fn find_bound(&self, object: &Pod) -> Option<NodeId> {
        let name = pod::node_name(object)?;
        // Two runs in order of name, initialised nodes first; a node's name is that of its Node once it is registered.
        let split = self.nodes.partition_point(|node| node.initialized);
        let (first, second) = self.nodes.split_at(split);
        let find = |nodes: &[NodeView]| nodes.binary_search_by(|node| node.name.as_str().cmp(name));
        let found = find(first).or_else(|_| find(second).map(|index| index + split));
        let found = found
            .ok()
            .filter(|index| self.nodes[*index].node_name() == Some(name));
        let found = found.or_else(|| self.nodes.iter().position(|node| node.node_name() == Some(name)));
        found.map(NodeId::from)
    }
}
