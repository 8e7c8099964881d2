//! Instances of which no NodeClaim says that they run, because what the cloud has answered could not be written down.

use std::time::Duration;

use serde_json::json;
use spokeshave_api::{KWOKInstance, NodeClaim};

use crate::faulty::{Cluster, Setup};
use crate::words::*;

/// D-349: the cloud finds the instance by the NodeClaim's UID, and the finalizer stays until it has ended. Garbage collection, which might end it, does not hear
/// of it.
#[tokio::test(start_paused = true)]
async fn d_349_invariant_14_a_nodeclaim_goes_after_its_instance_although_it_does_not_know_of_it() {
    let cluster = Cluster::new(73).await;
    cluster.pool("default", json!({})).await;
    cluster.gate.trip("/nodeclaims/*/status", 500, u32::MAX);
    let _operator = cluster.operator(Setup::default());
    cluster.deploy("web", 1, "1").await;
    cluster
        .until("an instance", async |cluster| {
            !cluster.names::<KWOKInstance>().await.is_empty()
        })
        .await;
    let instance = cluster.names::<KWOKInstance>().await.remove(0);
    let id = format!("kwok://{instance}");
    cluster.faults.unlisted.lock().unwrap().insert(id);
    let claim = cluster.list::<NodeClaim>().await.remove(0);
    assert_eq!(claim.provider_id(), None, "it was not written");
    cluster.delete::<NodeClaim>(claim.name()).await;
    cluster.pass(1).await;
    cluster.gate.stumbles.lock().unwrap().clear();
    let took = cluster.until_gone::<NodeClaim>(claim.name()).await;
    assert!(!cluster.exists::<KWOKInstance>(&instance).await, "it runs on");
    assert!(took < Duration::from_secs(60), "{took:?}");
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}
