//! Examples of D §8, minute by minute.

use super::*;
use k8s_openapi::api::core::v1::{NodeCondition, PodSpec, Toleration};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use spokeshave_api::NodeClaimSpec;
use spokeshave_api::conditions::{DRAINED, Status};
use spokeshave_api::constants::MINIMUM_DRAIN;
use spokeshave_model::Pod;
use std::collections::BTreeSet;
use std::sync::Arc;

fn at(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().unwrap()
}

fn pod(name: &str, grace: i64) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("shop".to_owned()),
            uid: Some(format!("uid-{name}")),
            ..ObjectMeta::default()
        },
        spec: Some(Arc::new(PodSpec {
            termination_grace_period_seconds: Some(grace),
            ..PodSpec::default()
        })),
        node_name: Some("n".to_owned()),
        status: None,
    }
}

fn critical(mut pod: Pod) -> Pod {
    pod.spec_mut().priority_class_name = Some("system-node-critical".to_owned());
    pod
}

fn daemon(mut pod: Pod) -> Pod {
    pod.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "DaemonSet".to_owned(),
        ..OwnerReference::default()
    }]);
    pod
}

fn claim() -> NodeClaim {
    let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
    claim.metadata.uid = Some("uid-c".to_owned());
    claim.metadata.deletion_timestamp = Some(Time(at("12:00:00")));
    claim.metadata.finalizers = Some(vec![TERMINATION_FINALIZER.to_owned()]);
    claim.status.get_or_insert_default().provider_id = Some("kwok://n".to_owned());
    claim
}

fn tainted_node() -> Node {
    let mut node = Node {
        metadata: ObjectMeta {
            name: Some("n".to_owned()),
            uid: Some("uid-n".to_owned()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    node.spec.get_or_insert_default().taints = Some(vec![labels::disrupted_taint()]);
    node.metadata.labels = Some(
        [(
            labels::EXCLUDE_FROM_EXTERNAL_LOAD_BALANCERS.to_owned(),
            "karpenter".to_owned(),
        )]
        .into(),
    );
    node
}

fn step(node: &Node, claim: Option<&NodeClaim>, pods: &[Arc<Pod>], now: Timestamp) -> Plan<NodeStep> {
    let end = NodeEnd {
        node,
        claim,
        pods,
        attachments: &[],
        kept_volumes: &BTreeSet::new(),
    };
    node_step(&end, now).unwrap()
}

#[test]
fn d_301_p_170_the_deadline_is_written_once() {
    let mut claim = claim();
    claim.spec.termination_grace_period = Some("1h".parse().unwrap());
    let ClaimStep::Write(Plan { actions, events, .. }) = claim_step(&claim, &[]) else {
        panic!("a write")
    };
    let Action::Patch { patch, .. } = &actions[0] else {
        panic!("a patch")
    };
    assert_eq!(
        patch["metadata"]["annotations"][labels::TERMINATION_TIMESTAMP],
        "2026-01-01T13:00:00Z"
    );
    assert_eq!(
        events[0].message,
        "All pods will be deleted by 2026-01-01T13:00:00Z"
    );
    claim.metadata.annotations = Some(
        [(
            labels::TERMINATION_TIMESTAMP.to_owned(),
            "2026-01-01T12:30:00Z".to_owned(),
        )]
        .into(),
    );
    assert_eq!(
        claim_step(&claim, &[]),
        ClaimStep::TerminateInstance,
        "an existing value is never changed"
    );
}

#[test]
fn d_303_an_unreadable_deadline_stalls_with_a_clear_error() {
    let mut claim = claim();
    claim.metadata.annotations = Some([(labels::TERMINATION_TIMESTAMP.to_owned(), "soon".to_owned())].into());
    let error = deadline(&claim).unwrap_err();
    assert!(
        error.contains("NodeClaim c") && error.contains("\"soon\""),
        "{error}"
    );
}

#[test]
fn d_347_example_25_nodes_of_a_registered_claim_go_first_and_others_stay() {
    let mut claim = claim();
    let node = Arc::new(tainted_node());
    assert_eq!(
        claim_step(&claim, std::slice::from_ref(&node)),
        ClaimStep::TerminateInstance,
        "an unregistered claim leaves Nodes alone"
    );
    claim.set_true(REGISTERED, at("11:00:00"));
    assert_eq!(
        claim_step(&claim, std::slice::from_ref(&node)),
        ClaimStep::Write(Plan::writing(vec![Action::delete(node_ref(&node))]))
    );
    let mut going = tainted_node();
    going.metadata.deletion_timestamp = Some(Time(at("12:00:00")));
    assert_eq!(claim_step(&claim, &[Arc::new(going)]), ClaimStep::WaitForNodes);
    assert_eq!(claim_step(&claim, &[]), ClaimStep::TerminateInstance);
}

#[test]
fn d_349_a_claim_without_provider_id_terminates_no_instance() {
    let mut claim = claim();
    claim.status = None;
    assert_eq!(claim_step(&claim, &[]), ClaimStep::RemoveFinalizer);
}

#[test]
fn d_308_the_claim_is_deleted_at_the_beginning() {
    let mut claim = claim();
    claim.metadata.deletion_timestamp = None;
    let step = step(&tainted_node(), Some(&claim), &[], at("12:00:00"));
    assert_eq!(step.actions, [Action::delete(claim_ref(&claim))]);
}

#[test]
fn d_310_taint_and_label_replace_another_effect() {
    let mut node = tainted_node();
    node.spec.as_mut().unwrap().taints.as_mut().unwrap()[0].effect = "NoExecute".to_owned();
    let step = step(&node, Some(&claim()), &[], at("12:00:00"));
    let Action::Patch { patch, .. } = &step.actions[0] else {
        panic!("a patch")
    };
    assert_eq!(
        patch["spec"]["taints"],
        serde_json::json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])
    );
}

#[test]
fn d_320_tiers_one_after_the_other() {
    let pods: Vec<Arc<Pod>> = [
        critical(daemon(pod("d", 30))),
        critical(pod("c", 30)),
        daemon(pod("b", 30)),
        pod("a", 30),
    ]
    .into_iter()
    .map(Arc::new)
    .collect();
    let names = |pods: &[Arc<Pod>]| -> Vec<String> {
        step(&tainted_node(), Some(&claim()), pods, at("12:00:00"))
            .report
            .evict
            .into_iter()
            .map(|target| target.name)
            .collect()
    };
    assert_eq!(names(&pods), ["a"]);
    assert_eq!(names(&pods[..3]), ["b"]);
    assert_eq!(names(&pods[..2]), ["c"]);
    assert_eq!(names(&pods[..1]), ["d"]);
    let message = &step(&tainted_node(), Some(&claim()), &pods, at("12:00:00")).events[0].message;
    assert_eq!(
        message, "Failed to drain node, 4 pods are waiting to be evicted",
        "D-311"
    );
}

#[test]
fn the_largest_pods_of_a_tier_go_first() {
    let sized = |name: &str, cpu: &str| {
        let mut pod = pod(name, 30);
        let container = serde_json::json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        pod.spec_mut().containers = vec![serde_json::from_value(container).unwrap()];
        Arc::new(pod)
    };
    let large_daemon = Arc::new(daemon((*sized("daemon", "8")).clone()));
    let pods = [
        sized("a", "900m"),
        sized("b", "4"),
        large_daemon,
        sized("c", "10"),
    ];
    let step = step(&tainted_node(), Some(&claim()), &pods, at("12:00:00"));
    let names: Vec<String> = step.report.evict.into_iter().map(|target| target.name).collect();
    assert_eq!(names, ["c", "b", "a"]);
}

#[test]
fn d_312_a_drain_lasts_at_least_five_seconds() {
    let mut claim = claim();
    let first = step(&tainted_node(), Some(&claim), &[], at("12:00:00"));
    assert_eq!(first.report.next, NodeNext::Wait(MINIMUM_DRAIN));
    claim.set(DRAINED, Status::Unknown, "Draining", "Draining", at("12:00:00"));
    let later = step(&tainted_node(), Some(&claim), &[], at("12:00:05"));
    assert_eq!(
        (later.report.next, later.report.drained),
        (NodeNext::TerminateInstance, true)
    );
    assert_eq!(
        step(&tainted_node(), None, &[], at("12:00:00")).report.next,
        NodeNext::Release,
        "D-317: without a NodeClaim there is no instance to end"
    );
}

#[test]
fn d_334_the_worked_example() {
    let deadline = Some(at("13:00:00"));
    let decide = |pod: &Pod, now: &str| eviction_step(pod, deadline, at(now));
    let a = pod("a", 30);
    assert!(matches!(decide(&a, "12:59:30"), EvictionStep::Evict(_)));
    let EvictionStep::Delete(
        Action::Delete {
            grace_period_seconds, ..
        },
        event,
    ) = decide(&a, "12:59:31")
    else {
        panic!("a delete")
    };
    assert_eq!(grace_period_seconds, Some(29));
    assert!(
        event
            .message
            .contains("terminationTime 2026-01-01 13:00:00 +0000 UTC"),
        "{}",
        event.message
    );
    let mut b = pod("b", 600);
    b.metadata.annotations = Some([(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned())].into());
    assert_eq!(decide(&b, "12:50:00"), EvictionStep::Keep, "D-322");
    assert!(matches!(
        decide(&b, "12:50:01"),
        EvictionStep::Delete(
            Action::Delete {
                grace_period_seconds: Some(599),
                ..
            },
            _
        )
    ));
    let c = pod("c", 7200);
    assert!(matches!(
        decide(&c, "12:00:00"),
        EvictionStep::Delete(
            Action::Delete {
                grace_period_seconds: Some(3600),
                ..
            },
            _
        )
    ));
    let d = pod("d", 0);
    assert!(matches!(decide(&d, "13:00:00"), EvictionStep::Evict(_)));
    assert!(
        matches!(
            decide(&d, "13:00:01"),
            EvictionStep::Delete(
                Action::Delete {
                    grace_period_seconds: Some(1),
                    ..
                },
                _
            )
        ),
        "D-335: never 0"
    );
}

#[test]
fn d_334_a_refused_pod_is_looked_at_again_when_its_time_has_come() {
    let deadline = Some(at("13:00:00"));
    assert_eq!(
        delete_after(&pod("a", 30), deadline),
        deadline.map(|_| at("12:59:30"))
    );
    assert_eq!(delete_after(&pod("a", 30), None), None);
    let mut going = pod("a", 30);
    going.metadata.deletion_timestamp = Some(Time(at("12:30:00")));
    assert_eq!(delete_after(&going, deadline), None);
}

#[test]
fn d_310_the_look_that_taints_says_how_many_pods_are_to_go() {
    let mut node = tainted_node();
    node.spec = None;
    let pods = [Arc::new(pod("a", 30)), Arc::new(pod("b", 30))];
    assert_eq!(
        step(&node, Some(&claim()), &pods, at("12:00:00")).report.begins,
        Some(2)
    );
    assert_eq!(
        step(&tainted_node(), Some(&claim()), &pods, at("12:00:00"))
            .report
            .begins,
        None
    );
}

#[test]
fn d_319_pods_that_tolerate_the_taint_are_left_alone() {
    let mut tolerant = pod("t", 30);
    tolerant.spec_mut().tolerations = Some(vec![Toleration {
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    }]);
    let step = step(
        &tainted_node(),
        Some(&claim()),
        &[Arc::new(tolerant)],
        at("12:00:00"),
    );
    assert!(step.report.evict.is_empty());
}

#[test]
fn d_342_d_343_d_344_d_345_volumes_are_waited_for_until_the_deadline() {
    let mut attachment = VolumeAttachment::default();
    attachment.metadata.name = Some("va".to_owned());
    attachment.spec.source.persistent_volume_name = Some("pv".to_owned());
    let mut claim = claim();
    claim.set(DRAINED, Status::True, "Drained", "", at("12:00:00"));
    claim.metadata.annotations = Some(
        [(
            labels::TERMINATION_TIMESTAMP.to_owned(),
            "2026-01-01T13:00:00Z".to_owned(),
        )]
        .into(),
    );
    let attachments = [Arc::new(attachment)];
    let kept = BTreeSet::new();
    let node = tainted_node();
    let end = NodeEnd {
        node: &node,
        claim: Some(&claim),
        pods: &[],
        attachments: &attachments,
        kept_volumes: &kept,
    };
    let waiting = node_step(&end, at("12:30:00")).unwrap();
    assert_eq!(waiting.report.next, NodeNext::Wait(LONGEST_PAUSE));
    assert!(
        waiting
            .events
            .iter()
            .any(|event| event.message == "Awaiting deletion of bound volumeattachments (va)")
    );
    assert_eq!(
        node_step(&end, at("13:00:01")).unwrap().report.next,
        NodeNext::TerminateInstance
    );
    let kept = BTreeSet::from(["pv".to_owned()]);
    let end = NodeEnd {
        kept_volumes: &kept,
        ..end
    };
    assert_eq!(
        node_step(&end, at("12:30:00")).unwrap().report.next,
        NodeNext::TerminateInstance
    );
}

#[test]
fn d_309_the_cloud_is_asked_for_the_instance_of_a_node_that_is_not_ready_with_or_without_a_nodeclaim() {
    let asked = |claim: Option<&NodeClaim>, status: &str, id: &str| {
        let mut node = tainted_node();
        node.spec.get_or_insert_default().provider_id = Some(id.to_owned());
        node.status.get_or_insert_default().conditions = Some(vec![NodeCondition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            ..NodeCondition::default()
        }]);
        let end = NodeEnd {
            node: &node,
            claim,
            pods: &[],
            attachments: &[],
            kept_volumes: &BTreeSet::new(),
        };
        asked_for(&end).map(str::to_owned)
    };
    let going = claim();
    let mut staying = claim();
    staying.metadata.deletion_timestamp = None;
    assert_eq!(
        asked(Some(&going), "Unknown", "kwok://n").as_deref(),
        Some("kwok://n")
    );
    assert_eq!(asked(None, "Unknown", "kwok://n").as_deref(), Some("kwok://n"));
    assert_eq!(asked(None, "Unknown", ""), None);
    assert_eq!(asked(Some(&staying), "Unknown", "kwok://n"), None);
    for claim in [Some(&going), None] {
        assert_eq!(asked(claim, "True", "kwok://n"), None);
    }
}
