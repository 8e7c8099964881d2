//! A cluster as plain objects: one NodePool, Nodes with their NodeClaims, and edits of either.

use serde_json::json;
use spokeshave_api::{Budget, NodePool};
use spokeshave_example::{bound, instance_type, node, node_pool, pending_pod};
use spokeshave_model::Pod;
use spokeshave_model::{ClusterState, InstanceType};
use std::sync::Arc;

pub(crate) fn types() -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, 4, &["a"]),
        instance_type("large", 16, 32, &["a"]),
    ]
}

pub(crate) fn pool_with(budgets: Vec<Budget>) -> NodePool {
    let mut pool = node_pool("default");
    pool.spec.disruption.budgets = Some(budgets);
    pool
}

pub(crate) fn cluster(pool: NodePool, names: &[&str]) -> ClusterState {
    let types = types();
    let state = ClusterState::default().with_pool(pool, types.clone());
    names.iter().fold(state, |state, name| {
        state.with_node(node("default", name, &types[0], "a", "on-demand"))
    })
}

pub(crate) fn unlimited() -> NodePool {
    pool_with(Vec::new())
}

pub(crate) fn running(name: &str, on: &str) -> Pod {
    bound(pending_pod(name, "100m", "10Mi", &json!({})), on)
}

pub(crate) fn edit_node(state: &mut ClusterState, edit: impl Fn(&mut k8s_openapi::api::core::v1::Node)) {
    for node in &mut state.nodes {
        edit(Arc::make_mut(node));
    }
}

pub(crate) fn edit_claim(state: &mut ClusterState, edit: impl Fn(&mut spokeshave_api::NodeClaim)) {
    for claim in &mut state.node_claims {
        edit(Arc::make_mut(claim));
    }
}
