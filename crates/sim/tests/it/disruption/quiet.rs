//! What workloads ask for, through the whole stack: annotations on owners are honored, nothing is lost in a restart, and it ends automatically.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::{DisruptionPolicy, NodeClaim};

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

async fn policy(cluster: &Cluster, workloads: Value) {
    let object = json!({"metadata": {"name": "quiet"}, "spec": {"workloads": workloads}});
    let _: DisruptionPolicy = cluster.create(object).await;
}

/// A Deployment that asks for two hours is moved once after them, and its new pod rests again, although the operator is killed in between.
#[tokio::test(start_paused = true)]
async fn invariant_18_quiet_time_of_a_deployment_is_kept_over_a_restart() {
    let cluster = Cluster::new(241, at_once()).await;
    policy(&cluster, json!({})).await;
    let operator = cluster.operator();
    one_large_node(&cluster).await;
    let born = cluster.clock.now();
    cluster
        .annotate::<Deployment>("web", "spokeshave.dev/quiet-time", json!("2h"))
        .await;
    without_large(&cluster).await;
    cluster.pass(3600).await;
    assert_eq!(cores(&cluster).await, [8], "an hour");
    operator.kill().await;
    let _operator = cluster.operator();
    cluster.pass(3000).await;
    assert_eq!(
        cores(&cluster).await,
        [8],
        "an hour and fifty minutes, and another operator"
    );
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    let (status, _, message) = cluster
        .condition(&claim, "spokeshave.dev/Disruptable")
        .await
        .expect("a verdict");
    assert_eq!(status, "False");
    assert!(
        message.contains("rests (spokeshave.dev/quiet-time of Deployment default/web is 2h)"),
        "{message}"
    );
    cluster.until("it is moved", on_one_small_node).await;
    let took = cluster.clock.since(born).as_secs();
    assert!((7_100..=7_600).contains(&took), "{took} s after it came");
    // Its new pod is young again.
    cluster.pass(60).await;
    let policy: DisruptionPolicy = cluster.get("quiet").await;
    let resting = policy
        .status
        .and_then(|status| status.workloads)
        .map(|asked| asked.resting_pods);
    assert_eq!(resting, Some(1));
}

/// An invalid annotation of a namespace is reported, and its pods are not protected indefinitely; forceful disruption ignores it.
#[tokio::test(start_paused = true)]
async fn a_broken_annotation_is_told_and_deletion_by_hand_goes_on() {
    let cluster = Cluster::new(242, at_once()).await;
    policy(&cluster, json!({"maximumQuietTime": "30m"})).await;
    let _operator = cluster.operator();
    one_large_node(&cluster).await;
    cluster
        .annotate::<Namespace>("default", "spokeshave.dev/quiet-time", json!("some time"))
        .await;
    without_large(&cluster).await;
    cluster.pass(1200).await;
    assert_eq!(cores(&cluster).await, [8], "as long as any may ask for");
    let told = cluster.events("WorkloadAnnotationInvalid").await;
    assert!(
        told.iter()
            .any(|text| text.contains("quiet-time of Namespace default is \"some time\"")),
        "{told:?}"
    );
    cluster.until("it ends", on_one_small_node).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
}

/// Two moves a day, and four pods that drift: two go, however often the operator is killed.
#[tokio::test(start_paused = true)]
async fn invariant_18_a_quota_of_moves_is_kept_over_a_restart() {
    let cluster = Cluster::new(243, for_drift("100%")).await;
    policy(&cluster, json!({})).await;
    let mut operator = cluster.operator();
    let annotations = json!({"metadata": {"annotations": {"spokeshave.dev/moves-per-day": "2"}}});
    cluster
        .deploy_with("web", 4, template("web", "6", annotations))
        .await;
    cluster.until_running(4).await;
    new_team(&cluster).await;
    for _ in 0..4 {
        cluster.pass(1800).await;
        operator.kill().await;
        operator = cluster.operator();
    }
    assert_eq!(cluster.ended("Drifted", DisruptionPhase::Succeeded).await, 2);
    let nodes = cluster.list::<Node>().await;
    let blue = nodes
        .iter()
        .filter(|node| node.labels().get("team").is_some_and(|team| team == "blue"));
    assert_eq!(blue.count(), 2, "the others wait for the next day");
    assert_eq!(cluster.running().await, 4);
    drop(operator);
}
