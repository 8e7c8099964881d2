//! What controllers write down, and under which name: events of what they do and cannot do, revisions, endpoints, owners of fields.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Endpoints, Event, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_cluster::{Clients, Options};
use spokeshave_ports::{Entropy, SharedClock, TokioClock};
use spokeshave_runtime::client::{ClientOptions, from_service};
use spokeshave_runtime::{Shutdown, TaskGroup};
use spokeshave_sim::lab::LabOptions;

use crate::plain::Cluster;
use crate::words::*;

/// A cluster like that of `up`, whose controllers keep records.
async fn recorded(seed: u64) -> Cluster {
    let mut options = LabOptions::new(seed);
    options.cluster = Options {
        records: true,
        ..Options::all()
    };
    let undisturbed = json!({"disruption": {"consolidateAfter": "Never"}});
    Cluster::new(options, undisturbed).await.with_operator()
}

/// Why there are no pods is on whoever is to make them, once, and not only in a log.
#[tokio::test(start_paused = true)]
async fn pods_that_are_refused_are_told_of_until_they_can_be_made() {
    let cluster = Cluster::undisturbed(211).await;
    let refused = json!({"spec": {"priorityClassName": "nope"}});
    cluster
        .deploy_with("web", 2, template("web", "100m", refused.clone()))
        .await;
    let mut once = template("j", "100m", refused.clone());
    once["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": once}});
    cluster.create::<Job>(job).await;
    cluster
        .stateful_set("db", 1, template("db", "100m", refused))
        .await;
    cluster.pass(60).await;
    let events = cluster.list::<Event>().await;
    for kind in ["ReplicaSet", "Job", "StatefulSet"] {
        let of_kind: Vec<&Event> = events
            .iter()
            .filter(|event| event.reason.as_deref() == Some("FailedCreate"))
            .filter(|event| event.involved_object.kind.as_deref() == Some(kind))
            .collect();
        assert_eq!(of_kind.len(), 1, "{kind}: equal events are counted: {of_kind:?}");
        let message = of_kind[0].message.as_deref().unwrap_or_default();
        assert!(message.contains("nope"), "{message}");
        assert!(of_kind[0].count > Some(1), "{kind}");
    }
    let failure = async |cluster: &Cluster| {
        let conditions = cluster.get::<Deployment>("web").await.status?.conditions?;
        let failure = conditions
            .into_iter()
            .find(|one| one.type_.as_deref() == Some("ReplicaFailure"))?;
        failure.reason
    };
    assert_eq!(failure(&cluster).await.as_deref(), Some("FailedCreate"));
    let status = cluster.get::<Job>("j").await.status.unwrap_or_default();
    assert!(status.start_time.is_some());
    let class = json!({"metadata": {"name": "nope"}, "value": 1});
    cluster.create::<PriorityClass>(class).await;
    cluster.until_running_of("web", 2).await;
    cluster.until_running_of("db", 1).await;
    cluster
        .until("nothing is said of it any more", async |cluster| {
            failure(cluster).await.is_none()
        })
        .await;
}

/// What `kubectl rollout history` shows of each revision.
#[tokio::test(start_paused = true)]
async fn why_a_deployment_was_made_is_on_its_sets() {
    let cluster = Cluster::undisturbed(212).await;
    cluster.run("web", 1, "100m").await;
    cluster
        .annotate::<Deployment>("web", "kubernetes.io/change-cause", "v1")
        .await;
    cluster.pass(5).await;
    let patch = json!({"metadata": {"annotations": {"kubernetes.io/change-cause": "v2"}}, "spec": {"template": second_version()}});
    cluster.patch::<Deployment>("web", patch).await;
    cluster.pass(60).await;
    let causes = async |cluster: &Cluster| {
        let annotation =
            |set: &ReplicaSet, key: &str| set.annotations().get(key).cloned().unwrap_or_default();
        let sets = cluster.list::<ReplicaSet>().await;
        let of = sets.iter().map(|set| {
            let revision = annotation(set, "deployment.kubernetes.io/revision");
            format!("{revision} {}", annotation(set, "kubernetes.io/change-cause"))
        });
        of.collect::<BTreeSet<String>>()
    };
    let expected = BTreeSet::from(["1 v1", "2 v2"].map(str::to_owned));
    assert_eq!(causes(&cluster).await, expected);
}

/// What `kubectl describe` shows of a good case, and that it is written only where it is wanted.
#[tokio::test(start_paused = true)]
async fn deeds_are_recorded_where_records_are_kept() {
    let cluster = recorded(213).await;
    cluster.run("web", 2, "100m").await;
    let scaled = cluster.told("ScalingReplicaSet").await;
    assert_eq!(scaled.len(), 1, "{scaled:?}");
    assert_eq!(scaled[0].0, "Deployment/web");
    assert!(scaled[0].1.ends_with("from 0 to 2"), "{scaled:?}");
    assert_eq!(cluster.told("SuccessfulCreate").await.len(), 2);
    cluster.scale("web", 1).await;
    cluster.until_running(1).await;
    assert_eq!(cluster.told("SuccessfulDelete").await.len(), 1);
    let silent = Cluster::undisturbed(213).await;
    silent.run("web", 2, "100m").await;
    assert!(silent.told("SuccessfulCreate").await.is_empty());
}

async fn revisions(cluster: &Cluster) -> Vec<(String, Option<i64>)> {
    let revisions = cluster.list::<ControllerRevision>().await;
    let mut revisions: Vec<(String, Option<i64>)> = revisions
        .into_iter()
        .map(|one| (one.name_any(), one.revision))
        .collect();
    revisions.sort_by_key(|(_, number)| *number);
    revisions
}

/// `kubectl rollout undo` patches with what an old revision says, and that revision is the newest again.
#[tokio::test(start_paused = true)]
async fn a_daemon_set_keeps_the_templates_that_it_has_had() {
    let cluster = recorded(214).await;
    let object = json!({"metadata": {"name": "d"}, "spec": {
        "revisionHistoryLimit": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template("d", "50m", json!({})),
    }});
    let first = cluster.create::<DaemonSet>(object).await.spec.template;
    cluster.pass(5).await;
    cluster
        .patch::<DaemonSet>("d", json!({"spec": {"template": second_version()}}))
        .await;
    cluster.pass(5).await;
    let two = revisions(&cluster).await;
    assert_eq!(
        two.iter().map(|(_, number)| *number).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    let old = cluster.get::<ControllerRevision>(&two[0].0).await;
    assert_eq!(old.data.0["spec"]["template"]["$patch"], "replace");
    let undo = Patch::Strategic(old.data.0);
    let api = cluster.api::<DaemonSet>();
    api.patch("d", &PatchParams::default(), &undo).await.unwrap();
    cluster.pass(5).await;
    assert_eq!(cluster.get::<DaemonSet>("d").await.spec.template, first);
    let expected = [(two[1].0.clone(), Some(2)), (two[0].0.clone(), Some(3))];
    assert_eq!(revisions(&cluster).await, expected);
    // A third template, and the oldest is forgotten.
    let third = json!({"spec": {"template": {"metadata": {"annotations": {"version": "3"}}}}});
    cluster.patch::<DaemonSet>("d", third).await;
    cluster.pass(5).await;
    let left = revisions(&cluster).await;
    assert_eq!(
        left.iter().map(|(_, number)| *number).collect::<Vec<_>>(),
        [Some(3), Some(4)]
    );
}

/// Below the partition a pod that is lost comes back as it was.
#[tokio::test(start_paused = true)]
async fn pods_below_the_partition_keep_the_old_template() {
    let cluster = recorded(215).await;
    cluster
        .stateful_set("db", 2, template("db", "100m", json!({})))
        .await;
    cluster.until_running(2).await;
    let partition =
        |partition: i32| json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}}});
    cluster.patch::<StatefulSet>("db", partition(1)).await;
    cluster
        .patch::<StatefulSet>("db", json!({"spec": {"template": second_version()}}))
        .await;
    let version = async |cluster: &Cluster, pod: &str| {
        let pod = cluster.find::<Pod>(pod).await?;
        Some(pod.annotations().contains_key("version"))
    };
    cluster
        .until("the last pod is new", async |cluster| {
            version(cluster, "db-1").await == Some(true) && cluster.running().await == 2
        })
        .await;
    cluster.delete::<Pod>("db-0").await;
    cluster.pass(60).await;
    cluster.until_running(2).await;
    assert_eq!(version(&cluster, "db-0").await, Some(false));
    let status = cluster.get::<StatefulSet>("db").await.status.unwrap();
    assert_ne!(status.current_revision, status.update_revision);
    assert_eq!(
        (status.current_replicas, status.updated_replicas),
        (Some(1), Some(1))
    );
    cluster.patch::<StatefulSet>("db", partition(0)).await;
    cluster
        .until("the rollout is over", async |cluster| {
            let status = cluster.get::<StatefulSet>("db").await.status.unwrap();
            status.current_revision == status.update_revision
        })
        .await;
    assert_eq!(version(&cluster, "db-0").await, Some(true));
}

/// Addresses of the slices that are ready, and of the Endpoints.
async fn addresses(cluster: &Cluster) -> (usize, usize) {
    let slices = cluster.list::<EndpointSlice>().await;
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    let is_ready = |conditions: &Value| conditions["ready"] == true;
    let ready = endpoints.filter(|endpoint| is_ready(&json!(endpoint.conditions)));
    let endpoints = cluster.find::<Endpoints>("web").await.unwrap_or_default();
    let subsets = endpoints.subsets.iter().flatten();
    let known = subsets.map(|subset| subset.addresses.as_ref().map_or(0, Vec::len));
    (ready.count(), known.sum())
}

#[tokio::test(start_paused = true)]
async fn services_have_the_addresses_of_their_pods() {
    let cluster = recorded(216).await;
    let object =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.create::<Service>(object).await;
    cluster.pass(5).await;
    let slices = cluster.list::<EndpointSlice>().await;
    assert_eq!(slices.len(), 1, "one without pods, too");
    assert_eq!(slices[0].labels()["kubernetes.io/service-name"], "web");
    for replicas in [3, 1] {
        let wanted = usize::try_from(replicas).unwrap();
        match wanted {
            3 => cluster.deploy("web", replicas, "100m").await,
            _ => cluster.scale("web", replicas).await,
        }
        cluster
            .until("the addresses are those of the pods", async |cluster| {
                addresses(cluster).await == (wanted, wanted)
            })
            .await;
    }
    let pod = cluster.pod_of("web").await;
    let endpoints = cluster.get::<Endpoints>("web").await.subsets.unwrap();
    let address = &endpoints[0].addresses.as_ref().unwrap()[0];
    assert_eq!(Some(&address.ip), pod.status.unwrap().pod_ip.as_ref());
    cluster.delete::<Service>("web").await;
    cluster
        .until("nothing is left of it", async |cluster| {
            cluster.list::<EndpointSlice>().await.is_empty() && !cluster.exists::<Endpoints>("web").await
        })
        .await;
}

/// Who owns fields of an object, and through which subresource.
fn managers(metadata: &ObjectMeta) -> BTreeSet<(String, String)> {
    let entries = metadata.managed_fields.iter().flatten();
    let named = |text: &Option<String>| text.clone().unwrap_or_default();
    entries
        .map(|entry| (named(&entry.manager), named(&entry.subresource)))
        .collect()
}

fn by(manager: &str, subresource: &str) -> (String, String) {
    (manager.to_owned(), subresource.to_owned())
}

/// Whoever reads `managedFields` is told of the components of a genuine cluster, and an autoscaler owns nothing but the number.
#[tokio::test(start_paused = true)]
async fn each_component_writes_under_its_own_name() {
    let clock: SharedClock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
    let time = clock.clone();
    let server = ApiServer::new(Config::new(Arc::new(move || time.now()), 1));
    let client_of = |program: &str| {
        let options = ClientOptions {
            rate: None,
            user_agent: program.to_owned(),
            ..ClientOptions::default()
        };
        from_service(server.service(), "default", &options, clock.clone())
    };
    let (shutdown, mut tasks) = (Shutdown::new(), TaskGroup::new());
    tasks.spawn(
        "cluster",
        spokeshave_cluster::run(
            Clients::named(client_of),
            clock.clone(),
            Entropy::new(1),
            Options::all(),
            shutdown.clone(),
        ),
    );
    let user = client_of("kubectl/v1.36.0");
    let deployments: kube::Api<Deployment> = kube::Api::default_namespaced(user.clone());
    let object = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "100m", json!({})),
    }});
    let object: Deployment = serde_json::from_value(object).unwrap();
    deployments.create(&PostParams::default(), &object).await.unwrap();
    // There is no node yet, and the scheduler says so.
    clock.sleep(Duration::from_secs(5)).await;
    let room = json!({"cpu": "8", "memory": "16Gi", "pods": "100"});
    let node = json!({
        "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": room, "allocatable": room},
    });
    let nodes: kube::Api<Node> = kube::Api::all(user.clone());
    let node: Node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = Patch::Merge(json!({"status": node.status}));
    nodes
        .patch_status("n", &PatchParams::default(), &status)
        .await
        .unwrap();
    let autoscalers: kube::Api<HorizontalPodAutoscaler> = kube::Api::default_namespaced(user.clone());
    let autoscaler = json!({"metadata": {"name": "web"}, "spec": {
        "minReplicas": 3, "maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    }});
    let autoscaler: HorizontalPodAutoscaler = serde_json::from_value(autoscaler).unwrap();
    autoscalers
        .create(&PostParams::default(), &autoscaler)
        .await
        .unwrap();
    clock.sleep(Duration::from_secs(120)).await;
    let pods: kube::Api<Pod> = kube::Api::default_namespaced(user);
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(pods.len(), 3);
    let all = pods.iter().flat_map(|pod| managers(&pod.metadata));
    let names: BTreeSet<String> = all.map(|(manager, _)| manager).collect();
    let expected = ["kube-controller-manager", "kube-scheduler", "kubelet"];
    assert_eq!(names, BTreeSet::from(expected.map(str::to_owned)));
    let web = deployments.get("web").await.unwrap();
    assert_eq!(web.spec.replicas, Some(3));
    let owners = managers(&web.metadata);
    assert!(
        owners.contains(&by("kube-controller-manager", "scale")),
        "{owners:?}"
    );
    let nodes = nodes.get("n").await.unwrap();
    assert!(managers(&nodes.metadata).contains(&by("kubelet", "status")));
    shutdown.request();
}
