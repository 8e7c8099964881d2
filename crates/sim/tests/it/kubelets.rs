//! What the simulated kubelets promise: pods that were made with their node, probes that pass and fail, limits of volumes, Leases.

use std::time::Duration;

use crate::plain::Cluster;
use crate::words::*;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use spokeshave_api::NodeClaim;

/// Status and reason of a pod's condition.
fn state(pod: &Pod, kind: &str) -> (String, String) {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let found = conditions.into_iter().find(|condition| condition.type_ == kind);
    found.map_or_else(Default::default, |condition| {
        (
            condition.status.clone(),
            condition.reason.clone().unwrap_or_default(),
        )
    })
}

fn is_ready(pod: &Pod) -> bool {
    state(pod, "Ready").0 == "True"
}

fn container(pod: &Pod) -> &ContainerStatus {
    &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0]
}

/// A pod that is created with a node name bypasses the scheduler, and runs anyway.
#[tokio::test(start_paused = true)]
async fn a_pod_made_with_its_node_is_started_there() {
    let cluster = Cluster::undisturbed(51).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    let node = cluster.node_of("web").await;
    cluster
        .pod("direct", "100m", json!({"spec": {"nodeName": node}}))
        .await;
    let took = cluster.until_running(2).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    let pod = cluster.get::<Pod>("direct").await;
    assert_eq!(state(&pod, "PodScheduled").0, "True");
    assert!(is_ready(&pod));
    assert!(
        !cluster
            .events("Scheduled")
            .await
            .iter()
            .any(|message| message.contains("direct")),
        "no scheduler has assigned it"
    );
}

/// One that the node has no room for, or that asks for another node, has failed, and takes nothing from those that come with it.
#[tokio::test(start_paused = true)]
async fn a_pod_made_with_a_node_that_cannot_have_it_is_refused_there() {
    let cluster = Cluster::undisturbed(50).await;
    cluster.run("web", 1, "1").await;
    let node = cluster.node_of("web").await;
    let there = json!({"spec": {"nodeName": node}});
    cluster.pod("huge", "500", there.clone()).await;
    cluster.pod("small", "100m", there).await;
    let strange = json!({"spec": {"nodeName": node, "nodeSelector": {"disk": "none"}}});
    cluster.pod("strange", "100m", strange).await;
    cluster.until_running_of("small", 1).await;
    cluster.pass(5).await;
    for (name, reason) in [("huge", "OutOfcpu"), ("strange", "NodeAffinity")] {
        let status = cluster.get::<Pod>(name).await.status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Failed"), "{name}");
        assert_eq!(status.reason.as_deref(), Some(reason));
        assert_eq!(cluster.events(reason).await.len(), 1);
    }
    assert_eq!(cluster.running().await, 2);
}

async fn with_probe(seed: u64, probes: Value) -> Cluster {
    let cluster = Cluster::undisturbed(seed).await;
    let mut template = template("web", "1", json!({}));
    for (name, probe) in probes.as_object().unwrap() {
        template["spec"]["containers"][0][name] = probe.clone();
    }
    cluster.deploy_with("web", 1, template).await;
    cluster.until_running(1).await;
    cluster
}

async fn fail(cluster: &Cluster, pod: &str, probes: Option<&str>) {
    cluster
        .annotate::<Pod>(pod, "sim.spokeshave.dev/failing-probes", probes)
        .await;
}

/// A pod is ready when its probe has passed, unready when it fails, and what looks at readiness follows.
#[tokio::test(start_paused = true)]
async fn readiness_follows_the_probe() {
    let probes = json!({
        "startupProbe": {"exec": {"command": ["true"]}, "initialDelaySeconds": 10},
        "readinessProbe": {"exec": {"command": ["true"]}, "initialDelaySeconds": 30, "periodSeconds": 5, "failureThreshold": 2},
    });
    let cluster = with_probe(52, probes).await;
    let pod = cluster.list::<Pod>().await.remove(0);
    assert_eq!(
        (container(&pod).started, container(&pod).ready),
        (Some(false), false)
    );
    assert_eq!(
        state(&pod, "Ready"),
        ("False".to_owned(), "ContainersNotReady".to_owned())
    );
    let ready = async |cluster: &Cluster| is_ready(&cluster.list::<Pod>().await[0]);
    let took = cluster.until("the pod is ready", ready).await;
    assert!((25..=31).contains(&took.as_secs()), "{took:?}");
    let name = pod.name_any();
    fail(&cluster, &name, Some("readiness")).await;
    let took = cluster
        .until("it is not", async |cluster| !ready(cluster).await)
        .await;
    assert!((9..=11).contains(&took.as_secs()), "two periods: {took:?}");
    cluster
        .until("the Deployment knows", async |cluster| {
            let web = cluster.get::<Deployment>("web").await;
            web.status.unwrap().available_replicas.unwrap_or(0) == 0
        })
        .await;
    assert_eq!(cluster.events("Unhealthy").await.len(), 1);
    fail(&cluster, &name, None).await;
    cluster.until("it is again", ready).await;
    let pod = &cluster.list::<Pod>().await[0];
    assert_eq!(container(pod).restart_count, 0);
}

/// A container whose liveness fails is restarted, ever later, and recovers.
#[tokio::test(start_paused = true)]
async fn liveness_restarts_containers() {
    let probes =
        json!({"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 10, "failureThreshold": 3}});
    let cluster = with_probe(53, probes).await;
    let name = cluster.list::<Pod>().await[0].name_any();
    fail(&cluster, &name, Some("liveness")).await;
    cluster
        .until("it is in a crash loop", async |cluster| {
            let pod = &cluster.list::<Pod>().await[0];
            let waiting = container(pod)
                .state
                .as_ref()
                .and_then(|state| state.waiting.as_ref());
            waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
        })
        .await;
    let pod = cluster.list::<Pod>().await.remove(0);
    assert_eq!((container(&pod).restart_count, is_ready(&pod)), (1, false));
    let ended = container(&pod).last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (137, Some("Error")));
    fail(&cluster, &name, None).await;
    cluster
        .until("it runs again", async |cluster| {
            is_ready(&cluster.list::<Pod>().await[0])
        })
        .await;
    let pod = cluster.list::<Pod>().await.remove(0);
    assert_eq!(container(&pod).restart_count, 2);
    cluster.pass(600).await;
    assert_eq!(
        cluster.list::<Pod>().await[0].metadata.resource_version,
        pod.metadata.resource_version,
        "and nothing more happens"
    );
}

/// A readiness gate holds a pod back until its condition is true.
#[tokio::test(start_paused = true)]
async fn readiness_gates_hold() {
    let cluster = Cluster::undisturbed(54).await;
    let gate = json!({"spec": {"readinessGates": [{"conditionType": "example.com/lit"}]}});
    cluster.deploy_with("web", 1, template("web", "1", gate)).await;
    cluster.until_running(1).await;
    let pod = cluster.list::<Pod>().await.remove(0);
    assert_eq!(
        state(&pod, "Ready"),
        ("False".to_owned(), "ReadinessGatesNotReady".to_owned())
    );
    let lit = json!({"status": {"conditions": [{"type": "example.com/lit", "status": "True"}]}});
    cluster
        .api::<Pod>()
        .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(lit))
        .await
        .unwrap();
    cluster
        .until("it is ready", async |cluster| {
            is_ready(&cluster.list::<Pod>().await[0])
        })
        .await;
}

/// Nodes take no more volumes of a driver than their CSINode allows.
#[tokio::test(start_paused = true)]
async fn volumes_are_spread_by_their_limit() {
    let cluster = Cluster::undisturbed(55).await;
    let driver = json!({"metadata": {"name": "disk.csi.example.com", "annotations": {"sim.spokeshave.dev/attach-limit": "2"}}, "spec": {"attachRequired": true}});
    cluster.create::<CSIDriver>(driver).await;
    cluster.storage_class().await;
    let volumes = json!({"spec": {"volumes": [ephemeral_volume("data")]}});
    cluster
        .deploy_with("db", 5, template("db", "100m", volumes))
        .await;
    cluster.until_running(5).await;
    let nodes = cluster.names::<Node>().await;
    let csi_nodes = cluster.names::<CSINode>().await;
    assert_eq!(nodes.len(), 3, "two volumes each: {nodes:?}");
    assert!(nodes.iter().all(|node| csi_nodes.contains(node)), "{csi_nodes:?}");
    for node in &nodes {
        let pods = cluster.list::<Pod>().await;
        let here = pods
            .iter()
            .filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node));
        assert!(here.count() <= 2, "{node}");
    }
    cluster.scale("db", 0).await;
    for node in nodes {
        let claim = cluster.claim_of(&node).await.name_any();
        cluster.delete::<NodeClaim>(&claim).await;
    }
    cluster.until_empty().await;
    cluster
        .until("CSINodes went with their Nodes", async |cluster| {
            cluster.names::<CSINode>().await.is_empty()
        })
        .await;
}

/// How long a pod of this template takes to terminate after its deletion was requested.
async fn takes_to_stop(seed: u64, change: Value) -> u64 {
    let cluster = Cluster::undisturbed(seed).await;
    cluster.deploy_with("web", 1, template("web", "1", change)).await;
    cluster.until_running(1).await;
    let name = cluster.list::<Pod>().await.remove(0).name_any();
    cluster.delete::<Pod>(&name).await;
    cluster.until_gone::<Pod>(&name).await.as_secs()
}

/// Hooks run before containers are asked to stop, and the grace period bounds both.
#[tokio::test(start_paused = true)]
async fn pods_stop_after_their_hooks_and_within_their_grace() {
    let hook = |command: Value, grace: i64| {
        json!({"spec": {"terminationGracePeriodSeconds": grace, "containers": [
            {"name": "web", "image": "example.com/app:1", "lifecycle": {"preStop": command}}]}})
    };
    let shell = json!({"exec": {"command": ["/bin/sh", "-c", "sleep 20"]}});
    for (seed, change, seconds) in [
        (61, json!({}), 2..=4),
        (62, hook(json!({"sleep": {"seconds": 15}}), 60), 16..=18),
        (63, hook(shell.clone(), 60), 21..=23),
        (64, hook(shell, 10), 9..=11),
        (
            65,
            json!({"metadata": {"annotations": {"pod-delete.stage.kwok.x-k8s.io/delay": "12s"}}}),
            13..=15,
        ),
        (66, json!({"spec": {"terminationGracePeriodSeconds": 0}}), 0..=1),
    ] {
        let took = takes_to_stop(seed, change.clone()).await;
        assert!(seconds.contains(&took), "{change}: {took} s");
    }
}

/// kwok's label for pods that never become ready does what it does there.
#[tokio::test(start_paused = true)]
async fn a_pod_in_kwoks_unhealthy_stage_is_never_ready() {
    let cluster = Cluster::undisturbed(67).await;
    let change = json!({"metadata": {"labels": {"kwok.x-k8s.io/stage": "unhealthy"}}});
    let mut template = template("web", "1", change);
    template["spec"]["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["true"]}});
    cluster.deploy_with("web", 1, template).await;
    cluster.until_running(1).await;
    cluster.pass(120).await;
    let pod = &cluster.list::<Pod>().await[0];
    assert!(!is_ready(pod), "{:?}", pod.status);
}

/// A node status set by another client is kept until its kubelet next syncs its status, ten seconds later.
#[tokio::test(start_paused = true)]
async fn a_condition_from_outside_stays_until_the_next_report() {
    let cluster = Cluster::undisturbed(68).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    let node = cluster.node_of("web").await;
    let since = cluster.clock.now().to_string();
    let broken = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "Broken", "message": "", "lastTransitionTime": since}]});
    cluster.patch_status::<Node>(&node, broken).await;
    let reason = async |cluster: &Cluster| {
        let conditions = cluster
            .get::<Node>(&node)
            .await
            .status
            .unwrap()
            .conditions
            .unwrap();
        let ready = conditions.into_iter().find(|one| one.type_ == "Ready");
        ready.unwrap().reason.unwrap_or_default()
    };
    cluster.pass(8).await;
    assert_eq!(reason(&cluster).await, "Broken");
    cluster.pass(4).await;
    assert_eq!(reason(&cluster).await, "KubeletReady");
}

/// A pod runs once its sidecars have started, is ready with them, and ends without them.
#[tokio::test(start_paused = true)]
async fn sidecars_start_before_the_pod_runs_and_end_with_it() {
    let cluster = Cluster::undisturbed(69).await;
    let slow = json!({"exec": {"command": ["true"]}, "initialDelaySeconds": 20});
    let proxy = json!({"name": "proxy", "image": "i", "restartPolicy": "Always", "startupProbe": slow,
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 5}});
    let change = json!({"metadata": {"annotations": {"sim.spokeshave.dev/run-duration": "5m"}}, "spec": {
        "restartPolicy": "Never", "initContainers": [{"name": "setup", "image": "i"}, proxy],
    }});
    cluster.pod("job", "100m", change).await;
    let first = |pod: &Pod| {
        pod.status
            .clone()
            .unwrap_or_default()
            .init_container_statuses
            .unwrap_or_default()
    };
    cluster
        .until("it has begun", async |cluster| {
            !first(&cluster.get::<Pod>("job").await).is_empty()
        })
        .await;
    let pod = cluster.get::<Pod>("job").await;
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(
        state(&pod, "Initialized"),
        ("False".to_owned(), "ContainersNotInitialized".to_owned())
    );
    let is_completed = |status: &ContainerStatus| {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.reason.as_deref() == Some("Completed"))
    };
    assert_eq!(
        first(&pod).iter().map(is_completed).collect::<Vec<_>>(),
        [true, false]
    );
    let took = cluster.until_running(1).await;
    assert!((19..=21).contains(&took.as_secs()), "{took:?}");
    assert!(is_ready(&cluster.get::<Pod>("job").await));
    fail(&cluster, "job", Some("proxy/readiness")).await;
    cluster
        .until("a sidecar that is not ready takes it out", async |cluster| {
            !is_ready(&cluster.get::<Pod>("job").await)
        })
        .await;
    let phase = async |cluster: &Cluster| cluster.get::<Pod>("job").await.status.unwrap().phase.unwrap();
    cluster
        .until("it has succeeded", async |cluster| {
            phase(cluster).await == "Succeeded"
        })
        .await;
    let pod = cluster.get::<Pod>("job").await;
    assert!(first(&pod).iter().all(is_completed), "the sidecar, too");
    cluster.pass(60).await;
    let later = cluster.get::<Pod>("job").await;
    assert_eq!(later.metadata.resource_version, pod.metadata.resource_version);
}

/// What a pod runs for counts from when its containers run, and it does not end before.
#[tokio::test(start_paused = true)]
async fn a_pod_runs_for_its_time_once_its_sidecars_have_started() {
    let cluster = Cluster::undisturbed(72).await;
    let slow = json!({"exec": {"command": ["true"]}, "initialDelaySeconds": 20});
    let proxy = json!({"name": "proxy", "image": "i", "restartPolicy": "Always", "startupProbe": slow});
    let change = json!({"metadata": {"annotations": {"sim.spokeshave.dev/run-duration": "5s"}},
        "spec": {"restartPolicy": "Never", "initContainers": [proxy]}});
    cluster.pod("short", "100m", change).await;
    cluster.until_running(1).await;
    let took = cluster
        .until("it has succeeded", async |cluster| {
            let pod = cluster.get::<Pod>("short").await;
            pod.status.unwrap().phase.as_deref() == Some("Succeeded")
        })
        .await;
    assert!((4..=6).contains(&took.as_secs()), "{took:?}");
}

/// A pod that has run for as long as it may fails, whatever its restart policy; one that ends before does not.
#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_longer_than_it_may_fails() {
    let cluster = Cluster::undisturbed(70).await;
    cluster
        .pod("lasting", "100m", json!({"spec": {"activeDeadlineSeconds": 30}}))
        .await;
    let short = json!({"metadata": {"annotations": {"sim.spokeshave.dev/run-duration": "20s"}},
        "spec": {"activeDeadlineSeconds": 30, "restartPolicy": "Never"}});
    cluster.pod("short", "100m", short).await;
    cluster.until_running(2).await;
    let phase = async |name: &str| cluster.get::<Pod>(name).await.status.unwrap().phase.unwrap();
    let took = cluster
        .until("its time is over", async |_| phase("lasting").await == "Failed")
        .await;
    assert!((28..=31).contains(&took.as_secs()), "{took:?}");
    assert_eq!(phase("short").await, "Succeeded");
    let pod = cluster.get::<Pod>("lasting").await;
    let status = pod.status.as_ref().unwrap();
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(state(&pod, "Ready"), ("False".to_owned(), "PodFailed".to_owned()));
    assert_eq!(cluster.events("DeadlineExceeded").await.len(), 1);
}

/// As genuine ones do: whoever reads Leases, as the node lifecycle controller of a genuine cluster, finds a node alive.
#[tokio::test(start_paused = true)]
async fn a_kubelet_renews_its_lease_every_ten_seconds() {
    let cluster = Cluster::undisturbed(70).await;
    cluster.run("web", 1, "1").await;
    let node = cluster.node_of("web").await;
    // The first one comes within a period after the node is ready.
    cluster.pass(30).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    let mut renewals = Vec::new();
    for _ in 0..60 {
        let lease = leases.get(&node).await.unwrap();
        let owner = lease.owner_references().first().map(|owner| owner.name.clone());
        assert_eq!(owner.as_deref(), Some(&*node));
        let spec = lease.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some(&*node));
        assert_eq!(spec.lease_duration_seconds, Some(40));
        renewals.push(spec.renew_time.unwrap().0);
        cluster.pass(1).await;
    }
    renewals.dedup();
    assert!((6..=7).contains(&renewals.len()), "{renewals:?}");
    for pair in renewals.windows(2) {
        let pause = pair[1].duration_since(pair[0]).as_secs_f64();
        assert!((9.5..=10.5).contains(&pause), "{pause} s: {renewals:?}");
    }
}
