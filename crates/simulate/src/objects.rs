//! The cluster of a run at one instant, as objects that `kubectl` could have listed.
//!
//! Owns which objects there are, and their order. It changes nothing: observing a run does not affect it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodePool};
use spokeshave_model::Pod;

/// The objects of a simulated cluster.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// The simulated time.
    pub now: Timestamp,
    /// NodePools, by name.
    pub node_pools: Vec<Arc<NodePool>>,
    /// NodeClaims, the oldest first.
    pub node_claims: Vec<Arc<NodeClaim>>,
    /// Nodes, the oldest first.
    pub nodes: Vec<Arc<Node>>,
    /// Pods of workloads and DaemonSets.
    pub pods: Vec<Arc<Pod>>,
    /// DaemonSets.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// PodDisruptionBudgets: those of single workloads in their order, then the others by namespace and name.
    pub pod_disruption_budgets: Vec<Arc<PodDisruptionBudget>>,
    /// DisruptionPolicies.
    pub disruption_policies: Vec<Arc<DisruptionPolicy>>,
    /// Commands that are under way or have ended lately, the oldest first.
    pub disruptions: Vec<Arc<Disruption>>,
}

impl Objects {
    /// All of them as one `List`, as `kubectl get … -o json` writes it.
    ///
    /// # Errors
    /// An object cannot be written as JSON.
    pub fn to_list(&self) -> serde_json::Result<Value> {
        let mut items = Vec::new();
        add(&mut items, &self.node_pools)?;
        add(&mut items, &self.disruption_policies)?;
        add(&mut items, &self.daemon_sets)?;
        add(&mut items, &self.pod_disruption_budgets)?;
        add(&mut items, &self.node_claims)?;
        add(&mut items, &self.nodes)?;
        add(&mut items, &self.disruptions)?;
        add(&mut items, &self.pods)?;
        Ok(json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
    }
}

fn add<T: Serialize>(items: &mut Vec<Value>, objects: &[Arc<T>]) -> serde_json::Result<()> {
    for object in objects {
        items.push(serde_json::to_value(&**object)?);
    }
    Ok(())
}
