//! Launch, registration, initialisation, liveness: each step on small objects.

use super::*;
use k8s_openapi::api::core::v1::{NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use spokeshave_api::NodeClaimSpec;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn claim() -> NodeClaim {
    let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
    claim.metadata.uid = Some("uid-c".to_owned());
    claim.metadata.generation = Some(1);
    claim.metadata.creation_timestamp = Some(Time(at(0)));
    claim.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
    claim.set_true(LAUNCHED, at(0));
    claim.status.get_or_insert_default().provider_id = Some("kwok://n".to_owned());
    claim
}

fn node(ready: bool, taints: &[Taint]) -> Node {
    let condition = NodeCondition {
        type_: "Ready".to_owned(),
        status: if ready { "True" } else { "False" }.to_owned(),
        ..NodeCondition::default()
    };
    Node {
        metadata: ObjectMeta {
            name: Some("n".to_owned()),
            uid: Some("uid-n".to_owned()),
            resource_version: Some("7".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some("kwok://n".to_owned()),
            taints: Some(taints.to_vec()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            conditions: Some(vec![condition]),
            ..NodeStatus::default()
        }),
    }
}

fn status_of(plan: &Plan<Vec<Progress>>, type_: &str) -> (String, String) {
    let patch = plan
        .actions
        .iter()
        .find_map(|action| match action {
            Action::Patch {
                target,
                subresource: Subresource::Status,
                patch,
                ..
            } if target.kind == ObjectKind::NodeClaim => Some(patch),
            _ => None,
        })
        .expect("a status patch");
    let condition = patch["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|condition| condition["type"] == type_)
        .unwrap()
        .clone();
    (
        condition["status"].as_str().unwrap().to_owned(),
        condition["reason"].as_str().unwrap().to_owned(),
    )
}

#[test]
fn p_160_p_171_finalizer_and_class_label_come_first_and_once() {
    let mut claim = claim();
    claim.spec.node_class_ref = serde_json::from_value(
        serde_json::json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}),
    )
    .unwrap();
    let label = "karpenter.kwok.sh/kwoknodeclass";
    let Some(Action::Patch { patch, .. }) = prepare_action(&claim) else {
        panic!("a patch")
    };
    assert_eq!(patch["metadata"]["finalizers"][0], TERMINATION_FINALIZER);
    assert_eq!(patch["metadata"]["labels"][label], "default");
    claim.metadata.finalizers = Some(vec![TERMINATION_FINALIZER.to_owned()]);
    assert!(
        prepare_action(&claim).is_some(),
        "a claim made by hand has no label"
    );
    claim
        .metadata
        .labels
        .get_or_insert_default()
        .insert(label.to_owned(), "default".to_owned());
    assert_eq!(prepare_action(&claim), None);
    claim.set_true(REGISTERED, at(0));
    claim.set_true(INITIALIZED, at(0));
    let plan = advance(&claim, &[Arc::new(node(true, &[]))], None, &[], at(1));
    let Action::Patch { target, patch, .. } = &plan.actions[0] else {
        panic!("a patch")
    };
    assert_eq!(
        (target.kind, &patch["metadata"]["labels"][label]),
        (ObjectKind::Node, &"default".into())
    );
}

#[test]
fn conditions_are_written_under_a_lock_because_a_merge_patch_replaces_the_list() {
    let mut claim = claim();
    claim.metadata.resource_version = Some("3".to_owned());
    let plan = advance(&claim, &[], None, &[], at(1));
    let Action::Patch { resource_version, .. } = &plan.actions[0] else {
        panic!("a patch")
    };
    assert_eq!(resource_version.as_deref(), Some("3"));
}

#[test]
fn p_161_labels_of_the_claim_and_annotations_of_the_cloud_win() {
    let mut instance = NodeClaim::new("c", NodeClaimSpec::default());
    instance.metadata.labels = Some(
        [
            ("team".to_owned(), "cloud".to_owned()),
            ("zone".to_owned(), "z".to_owned()),
        ]
        .into(),
    );
    instance.metadata.annotations = Some([("x".to_owned(), "cloud".to_owned())].into());
    let mut before = claim();
    before.metadata.annotations = Some([("x".to_owned(), "claim".to_owned())].into());
    let after = launched(&before, &instance, at(5));
    assert_eq!(
        (after.label("team"), after.label("zone"), after.annotation("x")),
        (Some("a"), Some("z"), Some("cloud"))
    );
}

#[test]
fn p_164_no_node_and_many_nodes() {
    assert_eq!(
        status_of(&advance(&claim(), &[], None, &[], at(1)), REGISTERED),
        ("Unknown".into(), "NodeNotFound".into())
    );
    let two = [Arc::new(node(true, &[])), Arc::new(node(true, &[]))];
    assert_eq!(
        status_of(&advance(&claim(), &two, None, &[], at(1)), REGISTERED),
        ("False".into(), "MultipleNodesFound".into())
    );
}

#[test]
fn p_165_p_166_registration_writes_the_node_in_one_locked_patch() {
    let plan = advance(
        &claim(),
        &[Arc::new(node(false, &[labels::unregistered_taint()]))],
        None,
        &[],
        at(1),
    );
    let Action::Patch {
        target,
        patch,
        resource_version,
        ..
    } = &plan.actions[0]
    else {
        panic!("the Node first")
    };
    assert_eq!(
        (target.kind, resource_version.as_deref()),
        (ObjectKind::Node, Some("7"))
    );
    assert_eq!(patch["metadata"]["labels"]["team"], "a");
    assert_eq!(patch["metadata"]["labels"][labels::REGISTERED], "true");
    assert_eq!(patch["metadata"]["finalizers"][0], TERMINATION_FINALIZER);
    assert!(
        patch["spec"]["taints"].as_array().is_none_or(Vec::is_empty),
        "the unregistered taint goes"
    );
    assert_eq!(plan.report, [Progress::Registered { node: "n".to_owned() }]);
    assert_eq!(
        status_of(&plan, INITIALIZED),
        ("Unknown".into(), "NodeNotReady".into())
    );
    assert!(plan.events.is_empty());
    let untainted = advance(&claim(), &[Arc::new(node(false, &[]))], None, &[], at(1));
    assert_eq!(untainted.events[0].reason, "UnregisteredTaintMissing");
}

#[test]
fn p_167_a_pending_hook_keeps_the_taint_and_is_named_but_the_node_is_synced() {
    let nodes = [Arc::new(node(true, &[labels::unregistered_taint()]))];
    let pending = ["disks".to_owned(), "network".to_owned()];
    let plan = advance(&claim(), &nodes, None, &pending, at(1));
    assert_eq!(
        status_of(&plan, REGISTERED),
        ("Unknown".into(), "RegistrationHookPending".into())
    );
    let Action::Patch { target, patch, .. } = &plan.actions[0] else {
        panic!("the Node first")
    };
    assert_eq!(target.kind, ObjectKind::Node);
    assert_eq!(patch["metadata"]["labels"]["team"], "a");
    assert_eq!(patch["metadata"]["labels"].get(labels::REGISTERED), None);
    assert!(
        patch["spec"].get("taints").is_none(),
        "the unregistered taint stays"
    );
    let text = format!("{:?}", plan.actions);
    assert!(text.contains("\"disks, network\""), "{text}");
    assert!(plan.report.is_empty());
    let done = advance(&claim(), &nodes, None, &[], at(1));
    assert_eq!(status_of(&done, REGISTERED).0, "True");
}

#[test]
fn p_168_gates_in_order() {
    let startup = Taint {
        key: "agent".into(),
        effect: "NoSchedule".into(),
        value: None,
        time_added: None,
    };
    let not_ready = Taint {
        key: "node.kubernetes.io/not-ready".into(),
        effect: "NoSchedule".into(),
        value: None,
        time_added: None,
    };
    let mut claim = claim();
    claim.set_true(REGISTERED, at(0));
    claim.spec.startup_taints = vec![startup.clone()];
    claim.spec.resources.requests = [(
        "example.com/gpu".to_owned(),
        k8s_openapi::apimachinery::pkg::api::resource::Quantity("1".into()),
    )]
    .into();
    for (node, reason) in [
        (node(false, &[]), "NodeNotReady"),
        (node(true, &[startup]), "StartupTaintsExist"),
        (node(true, &[not_ready]), "KnownEphemeralTaintsExist"),
        (node(true, &[]), "ResourceNotRegistered"),
    ] {
        assert_eq!(
            status_of(&advance(&claim, &[Arc::new(node)], None, &[], at(1)), INITIALIZED),
            ("Unknown".into(), reason.into())
        );
    }
    claim.spec.resources.requests.clear();
    let done = advance(&claim, &[Arc::new(node(true, &[]))], None, &[], at(1));
    assert_eq!(status_of(&done, INITIALIZED).0, "True");
    assert_eq!(done.report, [Progress::Initialized { node: "n".to_owned() }]);
}

#[test]
fn p_169_d_263_d_264_w_48_b_57_timeouts_count_from_the_last_transition() {
    let mut fresh = NodeClaim::new("c", NodeClaimSpec::default());
    fresh.metadata.creation_timestamp = Some(Time(at(0)));
    fresh.initialize_conditions(at(0));
    assert_eq!(
        liveness(&fresh, at(299)),
        Liveness::Within(Duration::from_secs(1))
    );
    // One answer, also when the time for registration is over as well: a NodeClaim is counted once.
    for seconds in [300, 900, 5000] {
        assert_eq!(
            liveness(&fresh, at(seconds)),
            Liveness::TimedOut("launch_timeout")
        );
    }
    let mut launched = claim();
    launched.initialize_conditions(at(0));
    assert_eq!(
        liveness(&launched, at(899)),
        Liveness::Within(Duration::from_secs(1))
    );
    assert_eq!(
        liveness(&launched, at(900)),
        Liveness::TimedOut("registration_timeout")
    );
    launched.set_true(REGISTERED, at(10));
    assert_eq!(liveness(&launched, at(5000)), Liveness::Fine);
}

#[test]
fn d_245_d_246_p_174_expiry() {
    let mut claim = claim();
    claim.spec.expire_after = "1h".parse().unwrap();
    assert_eq!(until_expiry(&claim, at(600)), Some(Duration::from_secs(3000)));
    assert_eq!(until_expiry(&claim, at(4000)), Some(Duration::ZERO));
    claim.spec.expire_after = "Never".parse().unwrap();
    assert_eq!(until_expiry(&claim, at(4000)), None);
}
