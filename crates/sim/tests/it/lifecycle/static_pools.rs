//! NodePools with a fixed number of nodes (D-353 to D-361).

use serde_json::json;
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::FeatureGates;

use crate::faulty::{Cluster, Setup};
use crate::words::*;

// D-353…D-359, D-361: static NodePools.
#[tokio::test(start_paused = true)]
async fn d_356_d_357_a_static_pool_keeps_its_number() {
    let cluster = Cluster::new(13).await;
    let setup = Setup::with_gates(FeatureGates {
        static_capacity: true,
        ..FeatureGates::default()
    });
    cluster
        .pool("fixed", json!({"replicas": 3, "limits": {"nodes": "4"}}))
        .await;
    let _operator = cluster.operator(setup);
    let ready = async |cluster: &Cluster| {
        let claims = cluster.list::<NodeClaim>().await;
        let alive = claims.iter().filter(|claim| !claim.is_deleting());
        alive.filter(|claim| claim.is_true("Initialized")).count()
    };
    cluster
        .until("three nodes", async |cluster| ready(cluster).await == 3)
        .await;
    assert_eq!(cluster.names::<NodeClaim>().await.len(), 3);
    let victim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete::<NodeClaim>(&victim).await;
    cluster.until_gone::<NodeClaim>(&victim).await;
    cluster
        .until("three again", async |cluster| ready(cluster).await == 3)
        .await;
    let scale = async |replicas: i64| {
        let patch = json!({"spec": {"replicas": replicas}});
        cluster.patch::<NodePool>("fixed", patch).await;
    };
    scale(6).await;
    cluster.pass(120).await;
    assert_eq!(cluster.names::<NodeClaim>().await.len(), 4, "limits.nodes");
    scale(1).await;
    cluster
        .until("one is left", async |cluster| {
            cluster.names::<NodeClaim>().await.len() == 1
        })
        .await;
    cluster.pass(120).await;
    assert_eq!(ready(&cluster).await, 1);
    cluster.assert_no_leak().await;
}
