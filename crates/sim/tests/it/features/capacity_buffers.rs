//! CapacityBuffers (P §12): capacity is reserved, used at once, replaced, preserved by consolidation, and released with its buffer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodTemplate, Taint};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{CapacityBuffer, KWOKNodeClass, NodeClaim};
use spokeshave_controllers::FeatureGates;

use super::{consolidated, on_demand};
use crate::faulty;
use crate::plain::Cluster;
use crate::words::*;

/// A cluster of machines that take one pod of 1500m each, with the given feature gate.
async fn cluster(seed: u64, gate: bool) -> Cluster {
    let set = |gates: &mut FeatureGates| gates.capacity_buffer = gate;
    consolidated(seed, &["c-2x-amd64-linux"], set).await
}

async fn buffer(cluster: &impl Scene, name: &str, spec: Value) {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    cluster.create::<CapacityBuffer>(object).await;
}

/// Creates a PodTemplate whose pods carry `app` and ask for so much CPU.
async fn pod_template(cluster: &impl Scene, name: &str, app: &str, cpu: &str) {
    let object = json!({"metadata": {"name": name}, "template": template(app, cpu, json!({}))});
    cluster.create::<PodTemplate>(object).await;
}

fn of_web(more: Value) -> Value {
    let mut spec = json!({"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}});
    json_patch::merge(&mut spec, &more);
    spec
}

/// Status and reason of its conditions, by type, and its replicas.
async fn seen(cluster: &impl Scene, name: &str) -> (BTreeMap<String, (String, String)>, Option<i32>) {
    let buffer = cluster.get::<CapacityBuffer>(name).await;
    let status = buffer.status.unwrap_or_default();
    let conditions = status.conditions.into_iter();
    let conditions = conditions.map(|one| (one.type_, (one.status, one.reason)));
    (conditions.collect(), status.replicas)
}

/// Waits until a condition of a buffer has this reason.
async fn until_said(cluster: &impl Scene, name: &str, type_: &str, reason: &str) -> Duration {
    cluster
        .until(&format!("{name} is {reason}"), async |cluster| {
            let (conditions, _) = seen(cluster, name).await;
            conditions.get(type_).is_some_and(|(_, said)| said == reason)
        })
        .await
}

async fn until_nodes(cluster: &impl Scene, count: usize) -> Duration {
    cluster
        .until(&format!("{count} nodes"), async |cluster| {
            let nodes = cluster.list::<Node>().await;
            let ready = |node: &Node| {
                node.labels()
                    .get("karpenter.sh/initialized")
                    .is_some_and(|value| value == "true")
            };
            nodes.len() == count
                && nodes.iter().all(ready)
                && cluster.list::<NodeClaim>().await.len() == count
        })
        .await
}

/// Nothing of virtual pods is anywhere but in the operator's memory.
async fn assert_virtual(cluster: &Cluster) {
    for pod in cluster.list::<Pod>().await {
        assert!(!pod.name_any().contains("capacity-buffer"), "{}", pod.name_any());
    }
    for event in cluster.list::<Event>().await {
        let about = event.involved_object.name.unwrap_or_default();
        assert!(!about.contains("capacity-buffer"), "{about}: {:?}", event.message);
    }
    for one in cluster.list::<Disruption>().await {
        let text = serde_json::to_string(&one.spec).expect("JSON");
        assert!(!text.contains("capacity-buffer"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn d_369_d_370_p_185_p_186_room_is_held_used_rebuilt_and_given_up() {
    let cluster = cluster(185, true).await;
    cluster.deploy("web", 2, "1500m").await;
    cluster.until_running(2).await;
    buffer(&cluster, "b", of_web(json!({"replicas": 2}))).await;
    until_nodes(&cluster, 4).await;
    until_said(&cluster, "b", "Provisioning", "FitsExistingCapacity").await;
    let (conditions, replicas) = seen(&cluster, "b").await;
    assert_eq!(replicas, Some(2));
    assert_eq!(
        conditions["ReadyForProvisioning"],
        ("True".to_owned(), "Resolved".to_owned())
    );
    // D-371, D-373: consolidation leaves it alone, for long.
    let before = cluster.names::<Node>().await;
    cluster.pass(1800).await;
    assert_eq!(cluster.names::<Node>().await, before);
    assert_eq!(cluster.list::<Disruption>().await.len(), 0);
    // A scale-up lands on it without waiting for a machine, and the capacity is replaced.
    cluster.scale("web", 4).await;
    let took = cluster.until_running(4).await;
    assert!(took < Duration::from_secs(5), "the pods waited {took:?}");
    let took = until_nodes(&cluster, 6).await;
    assert!(took < Duration::from_secs(30), "the room came after {took:?}");
    until_said(&cluster, "b", "Provisioning", "FitsExistingCapacity").await;
    cluster.pass(600).await;
    assert_eq!(cluster.list::<Node>().await.len(), 6);
    assert_virtual(&cluster).await;
    // Without the buffer it is not needed.
    cluster.delete::<CapacityBuffer>("b").await;
    until_nodes(&cluster, 4).await;
    cluster.pass(300).await;
    assert_eq!(cluster.list::<Node>().await.len(), 4);
    assert_eq!(cluster.running().await, 4);
    for one in cluster.list::<Disruption>().await {
        assert!(one.spec.nodes.iter().all(|node| node.pods == 0), "{:?}", one.spec);
    }
    assert_virtual(&cluster).await;
    cluster.assert_tidy().await;
}

/// A new leader preserves the capacity from its first pass on, and does not launch it twice.
#[tokio::test(start_paused = true)]
async fn p_186_a_restart_in_the_middle_loses_no_room() {
    let mut cluster = cluster(186, true).await;
    cluster.deploy("web", 1, "1500m").await;
    cluster.until_running(1).await;
    buffer(&cluster, "b", of_web(json!({"replicas": 3}))).await;
    cluster
        .until("machines are under way", async |cluster| {
            cluster.list::<NodeClaim>().await.len() == 4
        })
        .await;
    cluster.lab.kill("a").await;
    cluster.lab.start("a");
    until_nodes(&cluster, 4).await;
    until_said(&cluster, "b", "Provisioning", "FitsExistingCapacity").await;
    cluster.lab.kill("a").await;
    cluster.pass(60).await;
    cluster.lab.start("a");
    cluster.pass(900).await;
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 4);
    assert_eq!(
        cluster.list::<Disruption>().await.len(),
        0,
        "never taken for empty"
    );
    cluster.assert_tidy().await;
}

/// A buffer's status that takes a minute to write, as with a webhook that hangs, delays no NodeClaim, neither of this pass nor of the next.
#[tokio::test(start_paused = true)]
async fn p_065_p_185_nodeclaims_do_not_wait_for_what_buffers_say() {
    let cluster = faulty::Cluster::new(194).await;
    cluster.pool("default", on_demand(&["c-2x-amd64-linux"])).await;
    let gates = FeatureGates {
        capacity_buffer: true,
        ..FeatureGates::default()
    };
    let _operator = cluster.operator(faulty::Setup::with_gates(gates));
    cluster.run("web", 1, "1500m").await;
    buffer(&cluster, "b", of_web(json!({"replicas": 1}))).await;
    until_nodes(&cluster, 2).await;
    until_said(&cluster, "b", "Provisioning", "FitsExistingCapacity").await;
    cluster.pass(30).await;
    let minute = Duration::from_secs(60);
    *cluster.gate.slow.lock().unwrap() = Some(("/capacitybuffers/b/status", minute));
    cluster.scale("web", 2).await;
    let took = cluster
        .until("new room is on its way", async |cluster| {
            cluster.list::<NodeClaim>().await.len() == 3
        })
        .await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    cluster.scale("web", 3).await;
    let took = cluster
        .until("more new room is on its way", async |cluster| {
            cluster.list::<NodeClaim>().await.len() == 4
        })
        .await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    until_said(&cluster, "b", "Provisioning", "RequiresNewCapacity").await;
    *cluster.gate.slow.lock().unwrap() = None;
    until_said(&cluster, "b", "Provisioning", "FitsExistingCapacity").await;
}

/// Nobody knows that its room is not needed any more, until it is deleted.
#[tokio::test(start_paused = true)]
async fn p_186_a_buffer_that_cannot_be_read_keeps_its_room() {
    let cluster = cluster(193, true).await;
    cluster.deploy("web", 2, "1500m").await;
    cluster.until_running(2).await;
    buffer(&cluster, "b", of_web(json!({"replicas": 2}))).await;
    until_nodes(&cluster, 4).await;
    until_said(&cluster, "b", "Provisioning", "FitsExistingCapacity").await;
    let before = cluster.names::<Node>().await;
    cluster.spoil::<CapacityBuffer>("b").await;
    cluster.pass(1800).await;
    assert_eq!(cluster.names::<Node>().await, before);
    cluster.mend::<CapacityBuffer>("b").await;
    until_said(&cluster, "b", "Provisioning", "FitsExistingCapacity").await;
    cluster.pass(300).await;
    assert_eq!(cluster.names::<Node>().await, before);
    assert_eq!(cluster.list::<Disruption>().await.len(), 0);
    // It goes while it cannot be read.
    cluster.spoil::<CapacityBuffer>("b").await;
    cluster.pass(60).await;
    let buffers = cluster.api::<CapacityBuffer>();
    drop(buffers.delete("b", &DeleteParams::default()).await);
    until_nodes(&cluster, 2).await;
    assert_eq!(cluster.running().await, 2);
    cluster.assert_tidy().await;
}

#[tokio::test(start_paused = true)]
async fn p_185_b_53_a_buffer_follows_what_it_names() {
    let cluster = cluster(187, true).await;
    cluster.deploy("web", 2, "1500m").await;
    cluster.until_running(2).await;
    // 50 % of two; and of what is not there yet.
    buffer(&cluster, "half", of_web(json!({"percentage": 50}))).await;
    buffer(
        &cluster,
        "chunk",
        json!({"podTemplateRef": {"name": "chunk"}, "limits": {"cpu": "2"}}),
    )
    .await;
    until_said(&cluster, "chunk", "ReadyForProvisioning", "PodTemplateNotFound").await;
    until_said(&cluster, "chunk", "Provisioning", "NotReadyForProvisioning").await;
    until_nodes(&cluster, 3).await;
    cluster.pass(40).await;
    cluster.scale("web", 4).await;
    let took = cluster
        .until("the buffer grows", async |cluster| {
            seen(cluster, "half").await.1 == Some(2)
        })
        .await;
    assert!(took < Duration::from_secs(2), "B-53: noticed after {took:?}");
    until_nodes(&cluster, 6).await;
    pod_template(&cluster, "chunk", "chunk", "1500m").await;
    let took = until_said(&cluster, "chunk", "ReadyForProvisioning", "Resolved").await;
    assert!(took < Duration::from_secs(2), "noticed after {took:?}");
    until_nodes(&cluster, 7).await;
    let of_chunk = async || {
        let buffer = cluster.get::<CapacityBuffer>("chunk").await;
        let status = buffer.status.unwrap_or_default();
        (
            status.replicas,
            status.pod_template_generation,
            status.pod_template_ref.map(|one| one.name),
        )
    };
    assert_eq!(of_chunk().await, (Some(1), Some(1), Some("chunk".to_owned())));
    // A smaller chunk fits twice into the limit, and both into one machine.
    let smaller = json!({"template": template("chunk", "900m", json!({}))});
    cluster.patch::<PodTemplate>("chunk", smaller).await;
    cluster
        .until("the shape is followed", async |_| {
            of_chunk().await == (Some(2), Some(2), Some("chunk".to_owned()))
        })
        .await;
    cluster.pass(300).await;
    until_nodes(&cluster, 7).await;
    until_said(&cluster, "chunk", "Provisioning", "FitsExistingCapacity").await;
    // The workload is removed, and with it the capacity.
    cluster.delete::<Deployment>("web").await;
    until_said(&cluster, "half", "ReadyForProvisioning", "ScalableRefNotFound").await;
    until_nodes(&cluster, 1).await;
    assert_virtual(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn p_185_buffers_add_up_and_mistakes_stall_nobody() {
    let cluster = cluster(188, true).await;
    cluster.deploy("web", 1, "1500m").await;
    cluster.until_running(1).await;
    buffer(&cluster, "one", of_web(json!({"replicas": 1}))).await;
    buffer(&cluster, "two", of_web(json!({"replicas": 2}))).await;
    buffer(&cluster, "none", of_web(json!({"replicas": 0}))).await;
    buffer(&cluster, "nothing", json!({"replicas": 3})).await;
    buffer(
        &cluster,
        "job",
        json!({"scalableRef": {"kind": "Job", "name": "web"}, "replicas": 3}),
    )
    .await;
    buffer(&cluster, "slip", of_web(json!({"replicas": 2_000_000_000}))).await;
    pod_template(&cluster, "huge", "huge", "64").await;
    buffer(
        &cluster,
        "huge",
        json!({"podTemplateRef": {"name": "huge"}, "replicas": 1}),
    )
    .await;
    until_nodes(&cluster, 4).await;
    for name in ["one", "two"] {
        until_said(&cluster, name, "Provisioning", "FitsExistingCapacity").await;
    }
    until_said(&cluster, "none", "Provisioning", "BufferEmpty").await;
    for name in ["nothing", "job", "slip"] {
        until_said(&cluster, name, "ReadyForProvisioning", "ResolutionFailed").await;
        until_said(&cluster, name, "Provisioning", "NotReadyForProvisioning").await;
    }
    until_said(&cluster, "huge", "Provisioning", "RequiresNewCapacity").await;
    cluster.pass(300).await;
    assert_eq!(
        cluster.list::<NodeClaim>().await.len(),
        4,
        "what fits nowhere buys nothing and stops nobody"
    );
    let said = cluster.events("FailedScheduling").await;
    assert!(
        said.iter()
            .any(|message| message.starts_with("Failed to schedule 1 virtual pod(s), ")),
        "B-52: {said:?}"
    );
    assert_virtual(&cluster).await;
    // At rest no status is written.
    let versions = async || {
        let buffers = cluster.list::<CapacityBuffer>().await;
        buffers
            .into_iter()
            .map(|one| one.metadata.resource_version)
            .collect::<Vec<_>>()
    };
    let before = versions().await;
    cluster.pass(1800).await;
    assert_eq!(versions().await, before);
}

#[tokio::test(start_paused = true)]
async fn p_014_without_the_gate_buffers_have_no_effect() {
    let cluster = cluster(189, false).await;
    cluster.deploy("web", 1, "1500m").await;
    cluster.until_running(1).await;
    buffer(&cluster, "b", of_web(json!({"replicas": 2}))).await;
    cluster.pass(300).await;
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 1);
    assert_eq!(seen(&cluster, "b").await, (BTreeMap::new(), None));
}

/// Pods and room that come together, room that is used at once, and a shape that changes: no machine is replaced for it.
#[tokio::test(start_paused = true)]
async fn p_186_w_06_room_that_is_needed_is_never_taken_for_empty() {
    for (seed, wait) in [(190, 1), (191, 6), (192, 14)] {
        let cluster = cluster(seed, true).await;
        // Machines come before kube-scheduler has looked again.
        let at_once = json!({"spec": {"nodeRegistrationDelay": "0s"}});
        cluster.patch::<KWOKNodeClass>("default", at_once).await;
        pod_template(&cluster, "chunk", "web", "1500m").await;
        buffer(
            &cluster,
            "b",
            json!({"podTemplateRef": {"name": "chunk"}, "replicas": 2}),
        )
        .await;
        cluster.deploy("web", 1, "1500m").await;
        until_nodes(&cluster, 3).await;
        until_said(&cluster, "b", "Provisioning", "FitsExistingCapacity").await;
        cluster.pass(wait).await;
        cluster.scale("web", 2).await;
        cluster.until_running(2).await;
        until_nodes(&cluster, 4).await;
        let other = json!({"template": {"metadata": {"labels": {"x": "y"}}}});
        cluster.patch::<PodTemplate>("chunk", other).await;
        cluster.pass(120).await;
        let commands = cluster.list::<Disruption>().await;
        let told: Vec<_> = commands
            .iter()
            .map(|one| (one.name_any(), &one.spec.nodes))
            .collect();
        assert!(told.is_empty(), "seed {seed}: {told:?}");
        assert_eq!(cluster.list::<NodeClaim>().await.len(), 4, "seed {seed}");
    }
}

/// So many seconds, in which something taints each new node. Gives the names of the NodeClaims that there were.
async fn pass_and_taint(cluster: &impl Scene, seconds: u64) -> BTreeSet<String> {
    let broken = Taint {
        key: "example.com/broken".to_owned(),
        effect: "NoExecute".to_owned(),
        ..Taint::default()
    };
    let mut claims = BTreeSet::new();
    for _ in 0..seconds {
        for node in cluster.list::<Node>().await {
            let name = node.name_any();
            let mut taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
            if !taints.iter().any(|taint| taint.key == broken.key) {
                taints.push(broken.clone());
                cluster
                    .patch::<Node>(&name, json!({"spec": {"taints": taints}}))
                    .await;
            }
        }
        cluster.pass(1).await;
        claims.extend(cluster.names::<NodeClaim>().await);
    }
    claims
}

/// A node that has no room for the pods of the buffer that it came for is removed as an empty one: the next ones come ever later.
#[tokio::test(start_paused = true)]
async fn p_186_nodes_that_come_up_in_vain_for_a_buffer_come_ever_later() {
    let cluster = cluster(195, true).await;
    pod_template(&cluster, "chunk", "chunk", "1500m").await;
    let chunk = json!({"podTemplateRef": {"name": "chunk"}, "replicas": 1});
    buffer(&cluster, "b", chunk).await;
    let made = pass_and_taint(&cluster, 1_800).await.len();
    assert!((3..=15).contains(&made), "{made} in half an hour");
    let told = cluster.told("NodesInVain").await;
    assert!(
        told.iter()
            .any(|(about, text)| about == "CapacityBuffer/b" && text.contains("none of them has room")),
        "{told:?}"
    );
    assert_virtual(&cluster).await;
    // Once nodes are good again there is room, and more of it waits for nothing.
    until_said(&cluster, "b", "Provisioning", "FitsExistingCapacity").await;
    cluster.pass(90).await;
    let more = json!({"spec": {"replicas": 2}});
    cluster.patch::<CapacityBuffer>("b", more).await;
    let took = until_nodes(&cluster, 2).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// A pod of a buffer that fits beside it makes no node come sooner.
#[tokio::test(start_paused = true)]
async fn p_186_a_buffer_takes_no_pod_the_pause_after_nodes_in_vain() {
    let cluster = faulty::Cluster::new(196).await;
    cluster.pool("default", on_demand(&["c-2x-amd64-linux"])).await;
    pod_template(&cluster, "chunk", "chunk", "100m").await;
    let chunk = json!({"podTemplateRef": {"name": "chunk"}, "replicas": 1});
    buffer(&cluster, "b", chunk).await;
    cluster.deploy("web", 1, "1").await;
    cluster.pass(5).await;
    let gates = FeatureGates {
        capacity_buffer: true,
        ..FeatureGates::default()
    };
    let _operator = cluster.operator(faulty::Setup::with_gates(gates));
    let made = pass_and_taint(&cluster, 1_800).await.len();
    assert!((3..=15).contains(&made), "{made} in half an hour");
    let told = cluster.events("NodesInVain").await;
    assert!(
        told.iter().any(|text| text.contains("runs on none of them")),
        "{told:?}"
    );
}
