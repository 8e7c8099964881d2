//! Whose pods, sets and claims are: controllers adopt what they select and nobody controls, and release what they do not select any more.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::plain::Cluster;
use crate::words::*;

/// The pods of an app that run.
async fn pods_of(cluster: &Cluster, app: &str) -> Vec<Pod> {
    let mut pods = cluster.running_pods().await;
    pods.retain(|pod| pod.labels().get("app").is_some_and(|value| value == app));
    pods
}

/// Their UIDs.
async fn uids(cluster: &Cluster, app: &str) -> BTreeSet<Option<String>> {
    pods_of(cluster, app).await.iter().map(Pod::uid).collect()
}

fn of_version(pod: &Pod, version: &str) -> bool {
    pod.annotations()
        .get("version")
        .is_some_and(|value| value == version)
}

/// `kubectl delete --cascade=orphan` and a new Deployment of the same name: no pod is replaced, and the next template rolls out.
#[tokio::test(start_paused = true)]
async fn a_deployment_adopts_the_sets_that_another_one_has_left() {
    let cluster = Cluster::undisturbed(201).await;
    cluster.run("web", 2, "100m").await;
    let before = uids(&cluster, "web").await;
    cluster.delete_alone::<Deployment>("web").await;
    cluster.until_gone::<Deployment>("web").await;
    cluster.deploy("web", 2, "100m").await;
    cluster
        .until("both pods are its own", async |cluster| {
            let status = cluster.get::<Deployment>("web").await.status.unwrap_or_default();
            (status.updated_replicas, status.available_replicas) == (Some(2), Some(2))
        })
        .await;
    assert_eq!(uids(&cluster, "web").await, before, "none was replaced");
    let sets = cluster.list::<ReplicaSet>().await;
    let owners: Vec<&str> = sets
        .iter()
        .flat_map(|set| set.owner_references().iter().map(|owner| owner.uid.as_str()))
        .collect();
    let own = cluster.get::<Deployment>("web").await.uid().unwrap();
    assert_eq!(owners, [own.as_str()]);
    // With another template the set that was left is an old one.
    cluster.delete_alone::<Deployment>("web").await;
    cluster.until_gone::<Deployment>("web").await;
    let template = template("web", "100m", second_version());
    cluster.deploy_with("web", 2, template).await;
    cluster
        .until("only pods of the new template are left", async |cluster| {
            let pods = pods_of(cluster, "web").await;
            pods.len() == 2 && pods.iter().all(|pod| of_version(pod, "2"))
        })
        .await;
    cluster.until_running(2).await;
}

/// A set whose labels are changed is nobody's, and its name is taken: the next set has another one.
#[tokio::test(start_paused = true)]
async fn a_deployment_releases_a_set_that_it_does_not_select_any_more() {
    let cluster = Cluster::undisturbed(202).await;
    cluster.run("web", 2, "100m").await;
    let set = cluster.names::<ReplicaSet>().await.remove(0);
    let patch = json!({"metadata": {"labels": {"app": "looked-into"}}});
    cluster.patch::<ReplicaSet>(&set, patch).await;
    cluster.until_running(4).await;
    assert!(
        cluster
            .get::<ReplicaSet>(&set)
            .await
            .owner_references()
            .is_empty()
    );
    assert_eq!(cluster.names::<ReplicaSet>().await.len(), 2);
    cluster
        .until("the new set is available", async |cluster| {
            let status = cluster.get::<Deployment>("web").await.status.unwrap_or_default();
            (status.replicas, status.available_replicas) == (Some(2), Some(2))
        })
        .await;
    let status = cluster.get::<Deployment>("web").await.status.unwrap();
    assert_eq!(status.collision_count, Some(1));
}

/// The way to change `volumeClaimTemplates`. A pod that is not its own any more keeps its name until it is deleted.
#[tokio::test(start_paused = true)]
async fn a_stateful_set_adopts_and_releases_the_pods_with_its_names() {
    let cluster = Cluster::undisturbed(203).await;
    let db = || template("db", "100m", json!({}));
    cluster.stateful_set("db", 2, db()).await;
    cluster.until_running_of("db", 2).await;
    let before = uids(&cluster, "db").await;
    cluster.delete_alone::<StatefulSet>("db").await;
    cluster.until_gone::<StatefulSet>("db").await;
    // Not a name that it gives.
    cluster
        .pod("other", "100m", json!({"metadata": {"labels": {"app": "db"}}}))
        .await;
    cluster.stateful_set("db", 2, db()).await;
    cluster
        .until("both pods are its own", async |cluster| {
            let status = cluster.get::<StatefulSet>("db").await.status.unwrap_or_default();
            status.ready_replicas == Some(2)
        })
        .await;
    cluster.until_running_of("db", 3).await;
    assert!(
        uids(&cluster, "db").await.is_superset(&before),
        "none was replaced"
    );
    assert!(cluster.get::<Pod>("other").await.owner_references().is_empty());
    let patch = json!({"metadata": {"labels": {"app": "looked-into"}}});
    cluster.patch::<Pod>("db-1", patch).await;
    cluster.pass(60).await;
    assert!(cluster.get::<Pod>("db-1").await.owner_references().is_empty());
    cluster.delete::<Pod>("db-1").await;
    cluster.until_running_of("db", 3).await;
    assert_eq!(cluster.get::<Pod>("db-1").await.owner_references()[0].name, "db");
}

async fn daemon(cluster: &Cluster, strategy: Value) {
    let object = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}}, "template": template("d", "50m", json!({})), "updateStrategy": strategy,
    }});
    cluster.create::<DaemonSet>(object).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_adopts_the_daemons_that_another_one_has_left() {
    let cluster = Cluster::undisturbed(204).await;
    daemon(&cluster, json!({})).await;
    cluster.deploy("web", 3, "6").await;
    cluster.until_running(6).await;
    let before = uids(&cluster, "d").await;
    cluster.delete_alone::<DaemonSet>("d").await;
    cluster.until_gone::<DaemonSet>("d").await;
    daemon(&cluster, json!({})).await;
    cluster
        .until("all daemons are its own", async |cluster| {
            let status = cluster.get::<DaemonSet>("d").await.status.unwrap_or_default();
            status.number_ready == 3 && status.updated_number_scheduled == Some(3)
        })
        .await;
    assert_eq!(uids(&cluster, "d").await, before);
    cluster.until_running(6).await;
    // Of two on a node the older one stays.
    let node = pods_of(&cluster, "d").await[0].spec.clone().unwrap().node_name;
    let twin = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"nodeName": node}});
    cluster.pod("twin", "50m", twin).await;
    cluster.until_gone::<Pod>("twin").await;
    assert_eq!(uids(&cluster, "d").await, before);
}

/// With `maxSurge` a daemon goes when the one beside it is available, and not before.
#[tokio::test(start_paused = true)]
async fn a_daemon_set_with_surge_never_leaves_a_node_alone() {
    let cluster = Cluster::undisturbed(205).await;
    let rolling = json!({"maxSurge": 1, "maxUnavailable": 0});
    daemon(
        &cluster,
        json!({"type": "RollingUpdate", "rollingUpdate": rolling}),
    )
    .await;
    cluster.deploy("web", 3, "6").await;
    cluster.until_running(6).await;
    // Nothing but time makes a daemon available that is ready.
    cluster.pass(60).await;
    let patch = json!({"spec": {"minReadySeconds": 20, "template": second_version()}});
    cluster.patch::<DaemonSet>("d", patch).await;
    let (mut fewest, mut most) = (3, 3);
    // Those that are not running yet, too.
    let all = async |cluster: &Cluster| {
        let pods = cluster.list::<Pod>().await;
        let daemons = pods
            .iter()
            .filter(|pod| pod.labels().get("app").is_some_and(|app| app == "d"));
        daemons
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .count()
    };
    cluster
        .until("all daemons are of the new version", async |cluster| {
            let daemons = pods_of(cluster, "d").await;
            fewest = fewest.min(daemons.len());
            most = most.max(all(cluster).await);
            daemons.len() == 3 && daemons.iter().all(|pod| of_version(pod, "2"))
        })
        .await;
    assert_eq!((fewest, most), (3, 4), "one at a time, beside the old one");
    cluster.until_running(6).await;
}

/// A surge that nobody bounds, and which no number holds: everything moves at once.
#[tokio::test(start_paused = true)]
async fn a_deployment_with_a_surge_beyond_counting_rolls_at_once() {
    let cluster = Cluster::undisturbed(207).await;
    cluster.run("web", 3, "100m").await;
    let rolling = json!({"maxSurge": "999999999%", "maxUnavailable": i32::MAX});
    let patch = json!({"spec": {"strategy": {"rollingUpdate": rolling}, "template": second_version()}});
    cluster.patch::<Deployment>("web", patch).await;
    cluster
        .until("all pods are of the new version", async |cluster| {
            let pods = pods_of(cluster, "web").await;
            pods.len() == 3 && pods.iter().all(|pod| of_version(pod, "2"))
        })
        .await;
}

/// Claims go with the pods that a set does not want any more, and with the set, as its policy says; its pods have names in its domain.
#[tokio::test(start_paused = true)]
async fn claims_go_with_their_set_as_its_policy_says() {
    let cluster = Cluster::undisturbed(206).await;
    cluster.storage_class().await;
    let policy = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    let object = json!({"metadata": {"name": "pg"}, "spec": {
        "replicas": 2, "serviceName": "pg", "ordinals": {"start": 5}, "selector": {"matchLabels": {"app": "pg"}},
        "template": template("pg", "100m", json!({})), "volumeClaimTemplates": [volume_claim("data")], "persistentVolumeClaimRetentionPolicy": policy,
    }});
    cluster.create::<StatefulSet>(object).await;
    cluster.until_running(2).await;
    let spec = cluster.get::<Pod>("pg-5").await.spec.unwrap();
    assert_eq!(
        (spec.hostname.as_deref(), spec.subdomain.as_deref()),
        (Some("pg-5"), Some("pg"))
    );
    assert_eq!(claims(&cluster).await, ["data-pg-5", "data-pg-6"]);
    let scale = async |cluster: &Cluster, replicas: i32| {
        cluster
            .patch::<StatefulSet>("pg", json!({"spec": {"replicas": replicas}}))
            .await
    };
    scale(&cluster, 1).await;
    cluster
        .until("the claim of the last pod is gone", async |cluster| {
            claims(cluster).await == ["data-pg-5"]
        })
        .await;
    scale(&cluster, 2).await;
    cluster.until_running(2).await;
    assert_eq!(claims(&cluster).await.len(), 2);
    cluster.delete::<StatefulSet>("pg").await;
    cluster
        .until("no claim is left", async |cluster| {
            claims(cluster).await.is_empty()
        })
        .await;
}

async fn claims(cluster: &Cluster) -> Vec<String> {
    let mut names = cluster.names::<PersistentVolumeClaim>().await;
    names.sort();
    names
}
