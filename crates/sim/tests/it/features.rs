//! What feature gates turn on and off, through the whole stack on virtual time: NodeOverlays, CapacityBuffers and reserved capacity.

mod node_overlays;

mod capacity_buffers;

mod reserved_capacity;

use crate::plain::Cluster;
use serde_json::{Value, json};
use spokeshave_controllers::FeatureGates;
use spokeshave_sim::lab::LabOptions;

/// A NodePool that may launch these on-demand instance types.
fn on_demand(types: &[&str]) -> Value {
    let requirements = json!([
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]);
    json!({"template": {"spec": {"requirements": requirements}}})
}

/// A cluster with an operator, which may launch these on-demand instance types, is consolidated, and has its feature gates as `set` leaves them.
async fn consolidated(seed: u64, types: &[&str], set: impl FnOnce(&mut FeatureGates)) -> Cluster {
    let mut options = LabOptions::new(seed);
    set(&mut options.operator.feature_gates);
    let mut change = on_demand(types);
    change["disruption"] = json!({"consolidationPolicy": "WhenEmptyOrUnderutilized"});
    Cluster::new(options, change).await.with_operator()
}
