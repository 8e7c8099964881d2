//! P-185, P-186 and App. E 22: replicas, conditions and virtual pods of CapacityBuffers, and how passes treat them.

use super::*;
use crate::disrupt::{Decision, Frontier, Method, disrupt};
use crate::{Policy, provision, to_node_claim};
use serde_json::{Value, json};
use spokeshave_api::{Quantity, WireForm};
use spokeshave_example::{bound, epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::{ClusterState, InstanceType, lower};

fn buffer(name: &str, spec: Value) -> CapacityBuffer {
    let spec = serde_json::from_value(spec).expect("a CapacityBuffer");
    let mut buffer = CapacityBuffer::new(name, spec);
    buffer.metadata.namespace = Some("default".to_owned());
    buffer.metadata.uid = Some(format!("uid-{name}"));
    buffer.metadata.generation = Some(1);
    buffer
}

/// A Deployment `web` of so many pods of one CPU, and a PodTemplate `chunk` of the same shape.
struct Known {
    replicas: Option<i32>,
    template: PodTemplateSpec,
}

fn known(replicas: Option<i32>) -> Known {
    known_with(replicas, json!({}))
}

fn known_with(replicas: Option<i32>, spec: Value) -> Known {
    let mut all =
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]});
    if let (Some(all), Some(more)) = (all.as_object_mut(), spec.as_object()) {
        all.extend(more.clone());
    }
    let template = json!({"metadata": {"labels": {"app": "web"}, "annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "spec": all});
    Known {
        replicas,
        template: serde_json::from_value(template).expect("a template"),
    }
}

impl Shapes for Known {
    fn pod_template(&self, namespace: &str, name: &str) -> Option<Arc<PodTemplate>> {
        let mut found = PodTemplate {
            template: Some(self.template.clone()),
            ..PodTemplate::default()
        };
        found.metadata.generation = Some(7);
        ((namespace, name) == ("default", "chunk")).then(|| Arc::new(found))
    }

    fn workload(&self, kind: WorkloadKind, namespace: &str, name: &str) -> Option<Workload> {
        let known = (kind, namespace, name) == (WorkloadKind::Deployment, "default", "web");
        known.then(|| Workload {
            template: self.template.clone(),
            replicas: self.replicas,
        })
    }
}

fn of_web(more: Value) -> CapacityBuffer {
    let mut spec = json!({"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}});
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    buffer("b", spec)
}

fn count(buffer: &CapacityBuffer, workload: Option<i32>) -> i32 {
    resolve(buffer, &known(workload))
        .map(|resolved| resolved.replicas)
        .expect("resolved")
}

#[test]
fn p_185_example_22_replicas_percentage_and_limits() {
    let all = json!({"replicas": 5, "percentage": 80, "limits": {"cpu": "4"}});
    assert_eq!(count(&of_web(all), Some(10)), 4);
    assert_eq!(count(&of_web(json!({"limits": {"cpu": "5"}})), Some(10)), 5);
    assert_eq!(count(&of_web(json!({"percentage": 20})), Some(0)), 0);
}

#[test]
fn p_185_the_arithmetic_of_replicas() {
    for (spec, workload, expected) in [
        (json!({"replicas": 5, "percentage": 80}), Some(10), 8),
        (json!({"replicas": 9, "percentage": 80}), Some(10), 9),
        (json!({"percentage": 1}), Some(3), 1),
        (json!({"percentage": 34}), Some(3), 2),
        (json!({"percentage": 0}), Some(3), 0),
        (json!({"percentage": 250}), Some(2), 5),
        // Absent replicas of a workload are one.
        (json!({"percentage": 100}), None, 1),
        (json!({"replicas": 3}), Some(0), 3),
        (json!({"replicas": 0}), Some(4), 0),
        // A workload at zero has a share of zero, which limits do not raise.
        (json!({"percentage": 20, "limits": {"cpu": "8"}}), Some(0), 0),
        (json!({"percentage": 20, "limits": {"cpu": "8"}}), Some(5), 1),
        (
            json!({"replicas": 2, "percentage": 20, "limits": {"cpu": "8"}}),
            Some(0),
            2,
        ),
        (json!({}), Some(4), 0),
        // The tightest limit counts; limits without a request in common count for nothing.
        (json!({"limits": {"cpu": "7", "memory": "3Gi"}}), Some(4), 3),
        (json!({"limits": {"cpu": "500m"}}), Some(4), 0),
        (
            json!({"replicas": 2, "limits": {"example.com/gpu": "1"}}),
            Some(4),
            2,
        ),
        (json!({"limits": {"example.com/gpu": "1"}}), Some(4), 0),
        // What older storage may hold.
        (json!({"replicas": -3}), Some(4), 0),
        (json!({"percentage": -20}), Some(4), 0),
        (json!({"limits": {"cpu": "-1"}}), Some(4), 0),
    ] {
        assert_eq!(count(&of_web(spec.clone()), workload), expected, "{spec}");
    }
    let chunk = json!({"podTemplateRef": {"name": "chunk"}, "replicas": 2, "percentage": 5000});
    assert_eq!(
        count(&buffer("b", chunk), Some(4)),
        2,
        "a PodTemplate has no replicas to take a share of"
    );
    let chunk = json!({"podTemplateRef": {"name": "chunk"}, "percentage": 20, "limits": {"cpu": "5"}});
    assert_eq!(
        count(&buffer("b", chunk), Some(4)),
        5,
        "nor does its percentage keep the limits from counting alone"
    );
}

#[test]
fn p_185_what_cannot_be_resolved_says_why() {
    for (spec, reason, message) in [
        (
            json!({}),
            "ResolutionFailed",
            "Neither podTemplateRef nor scalableRef is set",
        ),
        (
            json!({"podTemplateRef": {"name": "gone"}, "replicas": 1}),
            "PodTemplateNotFound",
            "PodTemplate \"gone\" not found",
        ),
        (
            json!({"scalableRef": {"kind": "Deployment", "name": "gone"}}),
            "ScalableRefNotFound",
            "Deployment.apps \"gone\" not found",
        ),
        (
            json!({"scalableRef": {"kind": "Job", "name": "web"}}),
            "ResolutionFailed",
            "unsupported kind \"Job\", expected Deployment, StatefulSet or ReplicaSet",
        ),
        (
            json!({"scalableRef": {"apiGroup": "example.com", "kind": "Deployment", "name": "web"}}),
            "ResolutionFailed",
            "unsupported scalableRef API group \"example.com\", expected apps",
        ),
        (
            json!({"scalableRef": {"kind": "Deployment", "name": "web"}, "limits": {"cpu": "four"}}),
            "ResolutionFailed",
            "spec.limits[cpu]: \"four\" is no quantity, expected one such as 4 or 8Gi",
        ),
        (
            json!({"scalableRef": {"kind": "Deployment", "name": "web"}, "replicas": 2_000_000_000}),
            "ResolutionFailed",
            "the buffer asks for 2000000000 virtual pods, expected at most 10000; lower replicas, percentage or limits",
        ),
    ] {
        let buffer = buffer("b", spec);
        let resolution = resolve(&buffer, &known(Some(1)));
        let expected = Unresolved {
            reason,
            message: message.to_owned(),
        };
        assert_eq!(resolution, Err(expected));
        let written = applied(&buffer, status_action(&buffer, &resolution, epoch()));
        assert_eq!(
            condition(&written, "ReadyForProvisioning"),
            ("False".to_owned(), reason.to_owned(), message.to_owned())
        );
        assert_eq!(
            status_action(&written, &resolution, epoch()),
            None,
            "it says so already"
        );
        assert_eq!(
            condition(
                &applied(&written, provisioning_action(&written, None, epoch())),
                "Provisioning"
            )
            .1,
            "NotReadyForProvisioning"
        );
    }
}

fn applied(buffer: &CapacityBuffer, action: Option<Action>) -> CapacityBuffer {
    let Some(Action::Patch { patch, target, .. }) = action else {
        panic!("a patch")
    };
    assert_eq!(
        (target.kind, target.namespace.as_str()),
        (ObjectKind::CapacityBuffer, "default")
    );
    let mut value = serde_json::to_value(buffer).expect("JSON");
    json_patch_merge(&mut value, &patch);
    serde_json::from_value(value).expect("a CapacityBuffer")
}

/// RFC 7386.
fn json_patch_merge(into: &mut Value, patch: &Value) {
    let (Some(into), Some(patch)) = (into.as_object_mut(), patch.as_object()) else {
        *into = patch.clone();
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            into.remove(key);
        } else {
            json_patch_merge(into.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn condition(buffer: &CapacityBuffer, type_: &str) -> (String, String, String) {
    let conditions = &buffer.status.as_ref().expect("a status").conditions;
    let one = conditions
        .iter()
        .find(|one| one.type_ == type_)
        .expect("the condition");
    (one.status.clone(), one.reason.clone(), one.message.clone())
}

#[test]
fn p_185_the_status_mirrors_what_is_in_force() {
    let chunk = buffer("b", json!({"podTemplateRef": {"name": "chunk"}, "replicas": 3}));
    let shapes = known(None);
    let written = applied(&chunk, status_action(&chunk, &resolve(&chunk, &shapes), epoch()));
    let status = written.status.clone().expect("a status");
    assert_eq!(status.replicas, Some(3));
    assert_eq!(
        status.pod_template_ref,
        Some(LocalReference {
            name: "chunk".to_owned()
        })
    );
    assert_eq!(status.pod_template_generation, Some(7));
    assert_eq!(
        status.provisioning_strategy.as_deref(),
        Some("buffer.x-k8s.io/active-capacity")
    );
    let expected = (
        "True".to_owned(),
        "Resolved".to_owned(),
        "Pod template resolved successfully".to_owned(),
    );
    assert_eq!(condition(&written, "ReadyForProvisioning"), expected);
    let tallied = |existing, launched, failed| {
        let tally = Tally {
            existing,
            launched,
            failed,
        };
        condition(
            &applied(&written, provisioning_action(&written, Some(tally), epoch())),
            "Provisioning",
        )
    };
    let text = |status: &str, reason: &str, message: &str| {
        (status.to_owned(), reason.to_owned(), message.to_owned())
    };
    assert_eq!(
        tallied(3, 0, 0),
        text(
            "True",
            "FitsExistingCapacity",
            "All 3 virtual pods fit on existing capacity"
        )
    );
    assert_eq!(
        tallied(1, 1, 1),
        text(
            "False",
            "RequiresNewCapacity",
            "1/3 virtual pods required new capacity, 1 failed"
        )
    );
    assert_eq!(
        provisioning_action(&written, None, epoch()),
        None,
        "nothing was found out"
    );
    let mut empty = written.clone();
    empty.status.as_mut().expect("a status").replicas = Some(0);
    let empty = applied(&empty, provisioning_action(&empty, None, epoch()));
    assert_eq!(
        condition(&empty, "Provisioning"),
        text("False", "BufferEmpty", "Buffer has zero desired replicas")
    );
    // From a PodTemplate to a workload: nothing of the old shape stays.
    let mut moved = written;
    moved.spec = of_web(json!({"replicas": 1})).spec;
    let moved = applied(&moved, status_action(&moved, &resolve(&moved, &shapes), epoch()));
    let status = moved.status.expect("a status");
    assert_eq!(
        (
            status.pod_template_ref,
            status.pod_template_generation,
            status.replicas
        ),
        (None, None, Some(1))
    );
}

#[test]
fn p_185_limits_stand_in_for_requests_as_the_api_server_has_it() {
    let shapes = known_with(
        None,
        json!({"containers": [
            {"name": "a", "image": "i", "resources": {"limits": {"cpu": "3", "memory": "1Gi"}, "requests": {"memory": "2Gi"}}},
            {"name": "b", "image": "i", "resources": {"limits": {"cpu": "500m"}}},
        ]}),
    );
    let pods = pods_of(&of_web(json!({"replicas": 1})), &shapes);
    let requests = spokeshave_model::pod::requests(&pods[0]);
    assert_eq!(requests.get("cpu"), 3500);
    assert_eq!(requests.get("memory"), 2 << 30);
}

/// Virtual pods of a buffer, as the operator adds them.
fn pods_of(buffer: &CapacityBuffer, shapes: &Known) -> Vec<spokeshave_model::Pod> {
    virtual_pods(buffer, &resolve(buffer, shapes).expect("resolved"))
}

#[test]
fn p_185_virtual_pods_are_what_the_template_says_without_what_only_pods_have() {
    let shapes = known_with(
        None,
        json!({
            "nodeName": "somewhere", "priorityClassName": "high",
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                {"name": "tmp", "emptyDir": {}},
            ],
        }),
    );
    let buffer = of_web(json!({"replicas": 2}));
    let pods = pods_of(&buffer, &shapes);
    let names: Vec<_> = pods
        .iter()
        .map(|pod| pod.metadata.name.clone().unwrap_or_default())
        .collect();
    assert_eq!(names, ["capacity-buffer-b-1", "capacity-buffer-b-2"]);
    let first = &pods[0];
    assert_eq!(first.metadata.uid.as_deref(), Some("uid-b-1"));
    assert_eq!(first.metadata.labels.as_ref().expect("labels")["app"], "web");
    let annotations = first.metadata.annotations.as_ref().expect("annotations");
    let annotations: Vec<_> = annotations
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        annotations,
        [
            ("karpenter.sh/capacity-buffer-fake-pod", "true"),
            ("karpenter.sh/capacity-buffer-name", "b"),
            ("karpenter.sh/capacity-buffer-namespace", "default"),
        ],
        "and none of the template's"
    );
    let spec = first.spec.as_ref().expect("a spec");
    assert_eq!((spec.node_name.as_deref(), spec.priority), (None, Some(i32::MIN)));
    let volumes: Vec<_> = spec
        .volumes
        .iter()
        .flatten()
        .map(|volume| volume.name.as_str())
        .collect();
    assert_eq!(volumes, [""; 0], "claims are gone, and so is what nobody reads");
    assert!(pod::is_virtual(first) && spokeshave_model::planned_node::is_provisionable(first));
    assert_eq!(
        pods,
        pods_of(&buffer, &shapes),
        "B-48: the same buffer gives the same pods"
    );
    // What somebody annotates a pod with does not make it vanish.
    let mut real = first.clone();
    real.metadata.resource_version = Some("1".to_owned());
    assert!(!pod::is_virtual(&real));
}

fn types() -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, 8, &["a"]),
        instance_type("large", 8, 32, &["a"]),
    ]
}

/// Nodes that may go at once, each with a pod of this many CPUs, or none.
fn cluster(nodes: &[(&str, usize, Option<&str>)], headroom: &[spokeshave_model::Pod]) -> ClusterState {
    let types = types();
    let mut pool = node_pool("default");
    pool.spec.disruption.budgets = Some(vec![
        serde_json::from_value(json!({"nodes": "100%"})).expect("a budget"),
    ]);
    let on_demand = json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]});
    pool.spec.template.spec.requirements = vec![serde_json::from_value(on_demand).expect("a requirement")];
    pool.spec.disruption.consolidate_after = serde_json::from_value(json!("0s")).expect("a duration");
    let mut state = ClusterState::default().with_pool(pool, types.clone());
    for (name, size, pod) in nodes {
        state = state.with_node(node("default", name, &types[*size], "a", "on-demand"));
        if let Some(cpu) = pod {
            let pod = pending_pod(&format!("on-{name}"), cpu, "1Gi", &json!({}));
            state = state.with_pod(bound(pod, name));
        }
    }
    state.with_pods(headroom.to_vec())
}

#[test]
fn p_186_virtual_pods_make_room_but_no_nominations_no_events_and_no_counts() {
    let buffer = of_web(json!({"replicas": 3}));
    let headroom = pods_of(&buffer, &known(None));
    let state = cluster(&[("n", 0, None)], &headroom);
    let snapshot = lower(&state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    assert_eq!((outcome.report.pending_pods, outcome.report.virtual_pods), (0, 3));
    assert!(outcome.real_pods(&snapshot).is_empty());
    assert_eq!(outcome.nominated_nodes(&snapshot), Vec::new());
    assert_eq!(outcome.events(&snapshot, &Policy::default()), Vec::new());
    let tally = tally(&snapshot, &outcome)["default/b"];
    assert_eq!(
        tally,
        Tally {
            existing: 1,
            launched: 2,
            failed: 0
        }
    );
    // What comes is as large as the room.
    let cpu = outcome.placements.claims.iter().map(|planned| {
        let claim = to_node_claim(&snapshot, planned);
        Quantity::from_wire(&claim.spec.resources.requests["cpu"])
            .expect("a quantity")
            .to_milli()
    });
    assert_eq!(cpu.sum::<i64>(), 2000);
    // Without a NodePool they fail, and only their buffer is told.
    let mut nowhere = cluster(&[], &headroom);
    nowhere.node_pools.clear();
    let snapshot = lower(&nowhere);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    assert_eq!(super::tally(&snapshot, &outcome)["default/b"].failed, 3);
    assert_eq!(outcome.events(&snapshot, &Policy::default()), Vec::new(), "B-52");
    let event = failed_event(&buffer, 3, "no");
    assert_eq!(
        (event.object.kind, event.reason.as_str()),
        (ObjectKind::CapacityBuffer, "FailedScheduling")
    );
}

#[test]
fn p_186_pods_that_exist_come_first_and_do_not_see_virtual_ones() {
    // One free CPU: the pod gets it although the virtual pod is as large and older, and although it must not share a host with its like.
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    let headroom = pods_of(&of_web(json!({"replicas": 1})), &known_with(None, apart.clone()));
    let mut real = pending_pod("web", "1", "1Gi", &apart);
    real.metadata.labels = Some(BTreeMap::from([("app".to_owned(), "web".to_owned())]));
    let mut state = cluster(&[("n", 0, None)], &headroom);
    state = state.with_pod(real);
    let snapshot = lower(&state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    let names = |pods: &[PodId]| {
        pods.iter()
            .map(|pod| snapshot.pod(*pod).key())
            .collect::<Vec<_>>()
    };
    let existing: Vec<_> = outcome
        .placements
        .existing
        .values()
        .flat_map(|pods| names(pods))
        .collect();
    assert_eq!(existing, ["default/web"]);
    let [claim] = outcome.placements.claims.as_slice() else {
        panic!("a node for the room, which does heed the pod")
    };
    assert_eq!(names(&claim.pods), ["default/capacity-buffer-b-1"]);
}

/// The decision on each node, and the moves.
fn decided(state: &ClusterState) -> Vec<(Method, Vec<String>, Decision, usize)> {
    let snapshot = lower(state);
    let outcome = disrupt(&snapshot, &Policy::default(), epoch(), &Frontier::default());
    let commands = outcome.commands.iter();
    commands
        .map(|command| {
            let nodes = command.nodes.iter().map(|node| node.node.clone()).collect();
            assert!(
                command
                    .moves
                    .iter()
                    .all(|step| !step.pod.contains("capacity-buffer"))
            );
            assert_eq!(
                command.evictions(),
                command.moves.len(),
                "nobody evicts virtual pods"
            );
            (command.method, nodes, command.decision(), command.moves.len())
        })
        .collect()
}

#[test]
fn d_127_d_371_w_06_a_node_that_holds_room_is_not_empty_while_nobody_else_has_it() {
    let one = pods_of(&of_web(json!({"replicas": 1})), &known(None));
    let alone = cluster(&[("n", 0, None)], &one);
    assert_eq!(decided(&alone), Vec::new());
    let snapshot = lower(&alone);
    let told = disrupt(&snapshot, &Policy::default(), epoch(), &Frontier::default()).events;
    assert!(
        told.iter()
            .any(|event| event.message == "Node \"n\" has buffer pods"),
        "D-128: {told:?}"
    );
    // Another node with room: one of them goes.
    let two = cluster(&[("m", 0, None), ("n", 0, None)], &one);
    let found = decided(&two);
    let [(Method::Emptiness, nodes, Decision::Delete, 0)] = found.as_slice() else {
        panic!("an empty node goes: {found:?}")
    };
    assert_eq!(nodes.len(), 1);
    // Without the buffer both go.
    let found = decided(&cluster(&[("m", 0, None), ("n", 0, None)], &[]));
    let [(_, nodes, _, _)] = found.as_slice() else {
        panic!("a command: {found:?}")
    };
    assert_eq!(nodes.len(), 2);
}

#[test]
fn p_186_nodes_for_pods_that_wait_are_not_taken_for_empty_beside_room() {
    let two = pods_of(&of_web(json!({"replicas": 2})), &known(None));
    let nodes = [("l", 0, None), ("m", 0, None), ("n", 0, None)];
    let waiting = cluster(&nodes, &two).with_pod(pending_pod("web", "1", "1Gi", &json!({})));
    assert_eq!(decided(&waiting), Vec::new());
    assert_eq!(
        decided(&cluster(&nodes, &two)).len(),
        1,
        "without it one node is too many"
    );
}

#[test]
fn d_373_d_374_room_is_not_consolidated_away_and_costs_nothing_to_move() {
    // Each node has a pod of 900m and one CPU free. Without room to keep, one of them goes.
    let nodes = [("m", 0, Some("900m")), ("n", 0, Some("900m"))];
    assert_eq!(decided(&cluster(&nodes, &[])).len(), 1);
    let two = pods_of(&of_web(json!({"replicas": 2})), &known(None));
    assert_eq!(decided(&cluster(&nodes, &two)), Vec::new());
    // A large node that only holds room for one is replaced by a small one (W-06).
    let one = pods_of(&of_web(json!({"replicas": 1})), &known(None));
    let found = decided(&cluster(&[("n", 1, None)], &one));
    assert_eq!(
        found,
        [(
            Method::SingleNodeConsolidation,
            vec!["n".to_owned()],
            Decision::Replace,
            0
        )]
    );
    // What never had a place keeps nothing alive (D-082).
    let shapes = known_with(None, json!({"nodeSelector": {"team": "red"}}));
    let impossible = pods_of(&of_web(json!({"replicas": 1})), &shapes);
    assert_eq!(decided(&cluster(&nodes, &impossible)).len(), 1);
}
