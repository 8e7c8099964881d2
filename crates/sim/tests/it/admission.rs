//! What an API server and a kubelet add to what users ask for, and what becomes of it: default StorageClasses, RuntimeClasses, resizes.

use crate::plain::Cluster;
use crate::words::*;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use spokeshave_cluster::quantities::milli;

/// A StatefulSet `db` whose claims name no class, as most charts have it.
async fn database(cluster: &Cluster) {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let mut set = json!({"metadata": {"name": "db"}, "spec": {
        "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db", "1", json!({})),
        "volumeClaimTemplates": [claim],
    }});
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}]);
    cluster.create::<StatefulSet>(set).await;
}

/// StorageClass `std`, for claims that name none.
async fn default_storage_class(cluster: &Cluster) {
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let class = json!({
        "metadata": {"name": "std", "annotations": annotations}, "provisioner": "disk.csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.create::<StorageClass>(class).await;
}

async fn class_of_the_claim(cluster: &Cluster) -> Option<String> {
    let claim = cluster.list::<PersistentVolumeClaim>().await.remove(0);
    claim.spec.unwrap().storage_class_name
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_that_names_no_storage_class_gets_a_node() {
    let cluster = Cluster::undisturbed(401).await;
    default_storage_class(&cluster).await;
    database(&cluster).await;
    cluster.until_running_of("db", 1).await;
    assert_eq!(class_of_the_claim(&cluster).await.as_deref(), Some("std"));
}

/// A claim that is older than the default class gets it, and its pod a node.
#[tokio::test(start_paused = true)]
async fn a_default_storage_class_that_comes_later_is_written_into_claims() {
    let cluster = Cluster::undisturbed(402).await;
    database(&cluster).await;
    cluster.pass(30).await;
    assert_eq!(class_of_the_claim(&cluster).await, None);
    assert!(
        cluster.names::<Node>().await.is_empty(),
        "nobody knows where the volume could be"
    );
    default_storage_class(&cluster).await;
    cluster.until_running_of("db", 1).await;
    assert_eq!(class_of_the_claim(&cluster).await.as_deref(), Some("std"));
}

/// What a sandbox takes for itself is part of what a node must have.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_runtime_class_gets_a_node_with_room_for_its_overhead() {
    let cluster = Cluster::undisturbed(403).await;
    let class =
        json!({"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "6"}}});
    cluster.create::<RuntimeClass>(class).await;
    let kata = json!({"spec": {"runtimeClassName": "kata"}});
    cluster.pod("sandboxed", "100m", kata).await;
    cluster.until_running(1).await;
    let node = cluster.node_of("sandboxed").await;
    let node = cluster.get::<Node>(&node).await;
    let allocatable = node.status.unwrap().allocatable.unwrap();
    assert!(milli(&allocatable["cpu"]) >= 6100, "{allocatable:?}");
}

async fn resize(cluster: &Cluster, pod: &str, cpu: &str) {
    let pods: kube::Api<Pod> = kube::Api::default_namespaced(cluster.client.clone());
    let patch = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
    let answer = pods
        .patch_subresource("resize", pod, &PatchParams::default(), &Patch::Strategic(patch))
        .await;
    answer.unwrap();
}

fn container(pod: &Pod) -> &ContainerStatus {
    &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0]
}

/// The CPU that the container of a pod has, as its status says.
fn cpu_of(pod: &Pod) -> Option<String> {
    let status = container(pod);
    let amount = status.resources.as_ref()?.requests.as_ref()?.get("cpu")?;
    let allocated = status.allocated_resources.as_ref()?.get("cpu")?;
    assert_eq!(amount, allocated);
    Some(amount.0.clone())
}

fn pending(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let pending = conditions.iter().find(|one| one.type_ == "PodResizePending")?;
    pending.reason.clone()
}

/// A resize is carried out where there is room, told where there is none now, and carried out once there is.
#[tokio::test(start_paused = true)]
async fn a_pod_is_resized_as_far_as_its_node_has_room() {
    let requirements = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-4x-amd64-linux"]}]);
    let change = json!({"disruption": {"consolidateAfter": "Never"}, "template": {"spec": {"requirements": requirements}}});
    let cluster = Cluster::started(404, change).await;
    cluster.run("web", 1, "1").await;
    cluster.run("other", 1, "1").await;
    assert_eq!(cluster.node_of("web").await, cluster.node_of("other").await);
    let name = cluster.pod_of("web").await.name_any();
    assert_eq!(cpu_of(&cluster.pod_of("web").await), None, "nobody has asked yet");
    resize(&cluster, &name, "1500m").await;
    cluster.pass(5).await;
    let pod = cluster.pod_of("web").await;
    assert_eq!((cpu_of(&pod).as_deref(), pending(&pod)), (Some("1500m"), None));
    assert_eq!(container(&pod).restart_count, 0);
    assert_eq!(
        pod.status.as_ref().unwrap().observed_generation,
        pod.metadata.generation
    );
    for (cpu, reason) in [("100", "Infeasible"), ("3200m", "Deferred")] {
        resize(&cluster, &name, cpu).await;
        cluster.pass(5).await;
        let pod = cluster.pod_of("web").await;
        assert_eq!(cpu_of(&pod).as_deref(), Some("1500m"), "{cpu}");
        assert_eq!(pending(&pod).as_deref(), Some(reason), "{cpu}");
    }
    cluster.scale("other", 0).await;
    cluster
        .until("there is room", async |cluster| {
            let pod = cluster.pod_of("web").await;
            cpu_of(&pod).as_deref() == Some("3200m") && pending(&pod).is_none()
        })
        .await;
}
