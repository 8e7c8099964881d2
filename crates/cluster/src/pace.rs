//! When things happen on fake nodes, where somebody else draws the instants.
//!
//! Kubernetes writes times in whole seconds, and a kubelet here reads from objects when something began: whoever needs instants to the millisecond, or
//! other delays for each pod and node, answers for them here.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};

/// A clockwork for fake nodes. Where it has no answer, kubelets go by their options.
pub trait Pace: Send + Sync + Debug {
    /// When the kubelet of a node is ready.
    fn node_ready(&self, node: &Node) -> Option<Timestamp>;
    /// When the containers of a pod are ready.
    fn pod_starts(&self, pod: &Pod) -> Option<Timestamp>;
    /// When the containers of a pod that runs end well.
    fn pod_ends(&self, pod: &Pod) -> Option<Timestamp>;
    /// When a deleted pod has stopped.
    fn pod_stops(&self, pod: &Pod) -> Option<Timestamp>;
}

/// A clockwork that parts share.
pub type SharedPace = Arc<dyn Pace>;
