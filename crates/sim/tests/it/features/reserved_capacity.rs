//! Reserved capacity (P §6.12), which the feature gate ReservedCapacity turns off.

use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_provider_kwok::{Catalog, KwokOptions};
use spokeshave_sim::lab::LabOptions;

use crate::plain::Cluster;
use crate::words::*;

/// One type, of which two instances are reserved.
fn catalog() -> Catalog {
    let offering = |capacity_type: &str, price: f64| {
        json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]},
        ]})
    };
    let mut reserved = offering("reserved", 1e-7);
    reserved["ReservationCapacity"] = json!(2);
    let id = json!({"key": "karpenter.kwok.sh/reservation-id", "operator": "In", "values": ["cr-1"]});
    reserved["Requirements"].as_array_mut().unwrap().push(id);
    let types = json!([{
        "name": "r.2x", "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "110"},
        "offerings": [offering("on-demand", 0.1), reserved],
    }]);
    Catalog::from_json("reserved", &types.to_string()).unwrap()
}

/// Capacity types and reservations of the NodeClaims of three pods that need a node each.
async fn bought(gate: bool) -> Vec<(String, bool)> {
    let mut options = LabOptions::new(71);
    options.cloud = KwokOptions {
        catalog: catalog(),
        ..options.cloud
    };
    options.operator.feature_gates.reserved_capacity = gate;
    let cluster = Cluster::new(options, json!({})).await.with_operator();
    cluster.deploy("web", 3, "1500m").await;
    cluster.until_running(3).await;
    let claims = cluster.list::<NodeClaim>().await;
    let of = |claim: &NodeClaim| {
        let capacity_type = claim.label("karpenter.sh/capacity-type").unwrap_or_default();
        let pinned = claim
            .spec
            .requirements
            .iter()
            .any(|one| one.key == "karpenter.kwok.sh/reservation-id" && !one.values.is_empty());
        (capacity_type.to_owned(), pinned)
    };
    let mut bought: Vec<_> = claims.iter().map(of).collect();
    bought.sort();
    bought
}

#[tokio::test(start_paused = true)]
async fn p_203_reserved_capacity_is_used_where_its_gate_is_on() {
    let of = |capacity_type: &str, pinned| (capacity_type.to_owned(), pinned);
    assert_eq!(
        bought(true).await,
        [of("on-demand", false), of("reserved", true), of("reserved", true)]
    );
    assert_eq!(
        bought(false).await,
        [
            of("on-demand", false),
            of("on-demand", false),
            of("on-demand", false)
        ]
    );
}
