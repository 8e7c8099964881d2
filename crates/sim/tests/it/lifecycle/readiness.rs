//! When an operator calls itself ready (P-204): its kinds are served and its caches are filled, each said apart.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

async fn until_ready(cluster: &Cluster, operator: &Running) {
    cluster
        .until("the operator is ready", async |_| operator.readiness.is_ready())
        .await;
}

#[tokio::test(start_paused = true)]
async fn p_204_an_operator_is_ready_once_its_kinds_are_served_and_its_caches_are_filled() {
    let cluster = Cluster::new(57).await;
    let name = "nodeclaims.karpenter.sh";
    cluster.delete::<CustomResourceDefinition>(name).await;
    cluster.until_gone::<CustomResourceDefinition>(name).await;
    let operator = cluster.operator(Setup::default());
    cluster.pass(30).await;
    assert_eq!(operator.readiness.pending(), ["crd", "manager"]);
    let mut definitions = spokeshave_api::crds::crds().into_iter();
    let definition = definitions.find(|one| one.metadata.name.as_deref() == Some(name));
    cluster
        .create::<CustomResourceDefinition>(json!(definition.unwrap()))
        .await;
    until_ready(&cluster, &operator).await;
    let conditions = operator.readiness.conditions();
    assert_eq!(
        conditions,
        [("crd".to_owned(), true), ("manager".to_owned(), true)]
    );
    cluster.pool("default", json!({})).await;
    cluster.run("web", 1, "1").await;
}

/// A standby is ready although it watches nothing: a rollout must not wait for the leader to go. It becomes ready again after it has taken over.
#[tokio::test(start_paused = true)]
async fn p_204_a_standby_is_ready() {
    let cluster = Cluster::new(58).await;
    let leader = cluster.operator(Setup::candidate("a"));
    until_ready(&cluster, &leader).await;
    cluster.pass(10).await;
    let standby = cluster.operator(Setup::candidate("b"));
    cluster.clock.sleep(Duration::from_secs(5)).await;
    assert!(standby.readiness.is_ready(), "{:?}", standby.readiness.pending());
    leader.end().await;
    cluster.pool("default", json!({})).await;
    cluster.run("web", 1, "1").await;
    assert!(standby.readiness.is_ready(), "{:?}", standby.readiness.pending());
}
