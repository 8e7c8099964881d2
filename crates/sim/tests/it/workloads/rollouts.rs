//! Deployments in the middle of a rollout: what `Recreate` waits for, and where pods go when another number is wanted.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::plain::Cluster;
use crate::words::*;

/// A Deployment `web` with a strategy.
async fn deploy(cluster: &Cluster, replicas: i32, strategy: Value, template: Value) {
    let object = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "strategy": strategy, "selector": {"matchLabels": {"app": "web"}}, "template": template,
        "revisionHistoryLimit": 0,
    }});
    cluster.create::<Deployment>(object).await;
}

/// Whether the Deployment is available, as its condition has it.
async fn availability(cluster: &Cluster) -> Option<String> {
    let conditions = cluster.get::<Deployment>("web").await.status?.conditions?;
    let mut conditions = conditions.into_iter();
    conditions
        .find(|one| one.type_.as_deref() == Some("Available"))?
        .status
}

/// All old pods are gone, and not only asked to go, before there is a new one; nobody calls that available.
#[tokio::test(start_paused = true)]
async fn a_deployment_that_recreates_makes_no_pod_beside_one_that_stops() {
    let cluster = Cluster::undisturbed(221).await;
    let slow = json!({
        "metadata": {"annotations": {"pod-delete.stage.kwok.x-k8s.io/delay": "60s"}},
        "spec": {"terminationGracePeriodSeconds": 120},
    });
    let strategy = json!({"type": "Recreate"});
    deploy(&cluster, 2, strategy, template("web", "100m", slow)).await;
    cluster.until_running(2).await;
    let is_available = async |cluster: &Cluster| availability(cluster).await.as_deref() == Some("True");
    cluster.until("it is available", is_available).await;
    let patch = json!({"spec": {"template": second_version()}});
    cluster.patch::<Deployment>("web", patch).await;
    cluster.pass(30).await;
    assert_eq!(cluster.running().await, 0, "both stop");
    assert_eq!(availability(&cluster).await.as_deref(), Some("False"));
    let mut most = 0;
    let took = cluster
        .until("two new pods run", async |cluster| {
            let pods = cluster.list::<Pod>().await;
            most = most.max(pods.len());
            let is_new = |pod: &Pod| {
                pod.annotations()
                    .get("version")
                    .is_some_and(|version| version == "2")
            };
            pods.iter().all(is_new) && cluster.running_of("web").await == 2
        })
        .await;
    assert_eq!(most, 2, "never a new pod beside an old one");
    assert!(
        took > Duration::from_secs(25),
        "the old ones took their time: {took:?}"
    );
}

/// The numbers of the sets with pods, the largest first.
async fn sizes(cluster: &Cluster) -> Vec<i32> {
    let sets = cluster.list::<ReplicaSet>().await;
    let asked = sets.iter().filter_map(|set| set.spec.replicas);
    let mut asked: Vec<i32> = asked.filter(|asked| *asked > 0).collect();
    asked.sort_unstable_by(|one, other| other.cmp(one));
    asked
}

/// A rollout that hangs stays where it is: each set has its part of what is wanted, so that the pods that serve follow the number as well.
#[tokio::test(start_paused = true)]
async fn a_number_that_changes_during_a_rollout_is_shared_by_old_and_new_pods() {
    let cluster = Cluster::undisturbed(222).await;
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
    deploy(&cluster, 10, strategy, template("web", "100m", json!({}))).await;
    cluster.until_running(10).await;
    let nowhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"example.com/nowhere": "yes"}}}}});
    cluster.patch::<Deployment>("web", nowhere).await;
    cluster.pass(60).await;
    assert_eq!(sizes(&cluster).await, [8, 5]);
    cluster.scale("web", 30).await;
    cluster.pass(120).await;
    assert_eq!(sizes(&cluster).await, [20, 13]);
    assert_eq!(cluster.running_of("web").await, 20);
    cluster.scale("web", 10).await;
    cluster.pass(120).await;
    assert_eq!(sizes(&cluster).await, [8, 5]);
    // And it goes on when it can.
    let anywhere = json!({"spec": {"template": {"spec": {"nodeSelector": null}}}});
    cluster.patch::<Deployment>("web", anywhere).await;
    cluster.until_running(10).await;
    assert_eq!(sizes(&cluster).await, [10]);
}

/// While a Deployment is paused the same holds, and nothing is rolled.
#[tokio::test(start_paused = true)]
async fn a_paused_rollout_is_scaled_as_it_is() {
    let cluster = Cluster::undisturbed(223).await;
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
    deploy(&cluster, 10, strategy, template("web", "100m", json!({}))).await;
    cluster.until_running(10).await;
    let nowhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"example.com/nowhere": "yes"}}}}});
    cluster.patch::<Deployment>("web", nowhere).await;
    cluster.pass(60).await;
    let pause = |paused: bool| json!({"spec": {"paused": paused, "replicas": 30}});
    cluster.patch::<Deployment>("web", pause(true)).await;
    cluster.pass(120).await;
    assert_eq!(sizes(&cluster).await, [20, 13]);
    cluster.patch::<Deployment>("web", pause(false)).await;
    cluster.pass(60).await;
    assert_eq!(sizes(&cluster).await, [20, 13], "it has all that it may");
}
