//! Putting a [`ClusterState`] together object by object.

use super::ClusterState;
use crate::Pod;
use crate::instance_type::InstanceType;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::{NodeClaim, NodePool};
use std::sync::Arc;

impl ClusterState {
    /// Adds a NodePool with its instance types.
    #[must_use]
    pub fn with_pool(mut self, pool: NodePool, types: Vec<InstanceType>) -> Self {
        self.instance_types
            .insert(pool.name().to_owned(), Ok(Arc::from(types)));
        self.node_pools.push(Arc::new(pool));
        self
    }

    /// Adds a pod.
    #[must_use]
    pub fn with_pod(mut self, pod: Pod) -> Self {
        self.pods.push(Arc::new(pod));
        self
    }

    /// Adds pods.
    #[must_use]
    pub fn with_pods(mut self, pods: impl IntoIterator<Item = Pod>) -> Self {
        self.pods.extend(pods.into_iter().map(Arc::new));
        self
    }

    /// Adds a node and its NodeClaim.
    #[must_use]
    pub fn with_node(mut self, node: (Node, NodeClaim)) -> Self {
        self.nodes.push(Arc::new(node.0));
        self.node_claims.push(Arc::new(node.1));
        self
    }

    /// Adds a DaemonSet.
    #[must_use]
    pub fn with_daemon_set(mut self, daemon_set: DaemonSet) -> Self {
        self.daemon_sets.push(Arc::new(daemon_set));
        self
    }
}
