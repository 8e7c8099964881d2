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
fn w_07_a_launch_says_what_it_costs_unless_the_cloud_has_said_so_or_nobody_knows() {
    let noted = |said: Option<&str>, price: Price| {
        let mut instance = NodeClaim::new("c", NodeClaimSpec::default());
        let said = said.map(|price| (labels::PRICE_AT_LAUNCH.to_owned(), price.to_owned()));
        instance.metadata.annotations = said.map(|said| [said].into());
        let after = launched(&claim(), &priced(instance, price), at(5));
        after.annotation(labels::PRICE_AT_LAUNCH).map(str::to_owned)
    };
    let price = Price(192_000_000);
    assert_eq!(noted(None, price).as_deref(), Some("0.192"));
    assert_eq!(noted(Some("0.07"), price).as_deref(), Some("0.07"));
    assert_eq!(noted(None, Price::ZERO), None);
    assert_eq!(noted(None, Price::UNKNOWN), None);
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

fn registered(mut node: Node) -> Node {
    let own = node.metadata.labels.get_or_insert_default();
    own.insert(labels::REGISTERED.to_owned(), "true".to_owned());
    node
}

fn startup_taint() -> Taint {
    Taint {
        key: "agent".into(),
        effect: "NoSchedule".into(),
        value: None,
        time_added: None,
    }
}

/// With a startup taint, and initialised on a Node of another name.
fn initialised() -> NodeClaim {
    let mut claim = claim();
    claim.spec.startup_taints = vec![startup_taint()];
    claim.status.get_or_insert_default().node_name = Some("before".to_owned());
    claim.set_true(REGISTERED, at(0));
    claim.set_true(INITIALIZED, at(0));
    claim
}

/// What is written onto the Node, if anything is.
fn node_patch(plan: &Plan<Vec<Progress>>) -> serde_json::Value {
    let patch = plan.actions.iter().find_map(|action| match action {
        Action::Patch { target, patch, .. } if target.kind == ObjectKind::Node => Some(patch.clone()),
        _ => None,
    });
    patch.unwrap_or_default()
}

fn owned(mut node: Node, claim: &NodeClaim) -> Node {
    sync_node(claim, &mut node);
    node.spec.get_or_insert_default().taints = None;
    node
}

/// As a kubelet makes it whose Node was deleted with its finalizers.
#[test]
fn d_253_a_node_that_was_made_anew_gets_what_the_first_one_had() {
    let claim = initialised();
    let anew = node(false, &[labels::unregistered_taint()]);
    let plan = advance(&claim, &[Arc::new(anew)], None, &[], at(600));
    let patch = node_patch(&plan);
    assert_eq!(patch["metadata"]["finalizers"][0], TERMINATION_FINALIZER);
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "uid-c");
    assert_eq!(patch["metadata"]["labels"]["team"], "a");
    assert_eq!(patch["metadata"]["labels"][labels::REGISTERED], "true");
    assert_eq!(
        patch["metadata"]["labels"].get(labels::INITIALIZED),
        None,
        "it is not ready"
    );
    let taints = patch["spec"]["taints"].as_array().unwrap();
    assert_eq!(taints.len(), 1, "{taints:?}");
    assert_eq!(taints[0]["key"], "agent");
    assert_eq!(plan.report, [Progress::Rejoined { node: "n".to_owned() }]);
    let Some(Action::Patch { target, patch, .. }) = plan.actions.get(1) else {
        panic!("the name of its Node: {:?}", plan.actions)
    };
    assert_eq!(target.kind, ObjectKind::NodeClaim);
    assert_eq!(patch["status"], serde_json::json!({"nodeName": "n"}));
    // It can run pods again.
    let mut claim = claim;
    claim.status.get_or_insert_default().node_name = Some("n".to_owned());
    let ready = registered(owned(node(true, &[]), &claim));
    let plan = advance(&claim, &[Arc::new(ready)], None, &[], at(700));
    assert_eq!(
        node_patch(&plan)["metadata"]["labels"][labels::INITIALIZED],
        "true"
    );
    assert!(plan.actions.len() == 1 && plan.report.is_empty(), "{plan:?}");
}

/// The Node was written, and the write of its name came to nothing.
#[test]
fn d_253_the_name_of_a_node_that_came_back_is_written_later_too() {
    let claim = initialised();
    let mut node = registered(owned(node(true, &[]), &claim));
    let own = node.metadata.labels.get_or_insert_default();
    own.insert(labels::INITIALIZED.to_owned(), "true".to_owned());
    let class = node_class_label(&claim);
    own.insert(class.0, class.1.to_owned());
    let plan = advance(&claim, &[Arc::new(node)], None, &[], at(600));
    let [Action::Patch { target, patch, .. }] = &plan.actions[..] else {
        panic!("nothing but the name: {:?}", plan.actions)
    };
    assert_eq!(target.kind, ObjectKind::NodeClaim);
    assert_eq!(patch["status"], serde_json::json!({"nodeName": "n"}));
}

/// The taint of its command was on the first one.
#[test]
fn d_253_no_pod_may_come_to_a_node_that_comes_back_while_it_is_to_go() {
    let mut claim = initialised();
    claim.spec.startup_taints.clear();
    claim.set(DISRUPTION_REASON, Status::True, "Drifted", "Drifted", at(0));
    let keys = |claim: &NodeClaim, taints: Vec<Taint>| {
        let plan = advance(claim, &[Arc::new(node(false, &taints))], None, &[], at(600));
        let written = node_patch(&plan)["spec"]["taints"].clone();
        let taints = serde_json::from_value::<Vec<Taint>>(written).unwrap();
        taints.into_iter().map(|taint| taint.key).collect::<Vec<_>>()
    };
    let anew = || vec![labels::unregistered_taint()];
    let marked = || vec![labels::unregistered_taint(), labels::disrupted_taint()];
    assert_eq!(keys(&claim, anew()), [labels::DISRUPTED_TAINT_KEY]);
    assert_eq!(keys(&claim, marked()), [labels::DISRUPTED_TAINT_KEY], "once");
    claim.clear(DISRUPTION_REASON);
    assert!(keys(&claim, anew()).is_empty());
}

#[test]
fn d_253_a_label_that_somebody_took_away_comes_back_without_startup_taints() {
    let claim = initialised();
    let edited = owned(node(true, &[]), &claim);
    let plan = advance(&claim, &[Arc::new(edited)], None, &[], at(600));
    let patch = node_patch(&plan);
    for label in [labels::REGISTERED, labels::INITIALIZED] {
        assert_eq!(patch["metadata"]["labels"][label], "true");
    }
    assert_eq!(patch.get("spec"), None, "whoever removes them has long done so");
}

#[test]
fn d_253_neither_a_node_on_its_way_out_nor_one_of_two_is_registered_again() {
    let claim = initialised();
    let anew = || node(true, &[labels::unregistered_taint()]);
    let mut going = anew();
    going.metadata.deletion_timestamp = Some(Time(at(1)));
    for nodes in [vec![going], vec![anew(), anew()]] {
        let nodes: Vec<Arc<Node>> = nodes.into_iter().map(Arc::new).collect();
        let plan = advance(&claim, &nodes, None, &[], at(600));
        let patch = node_patch(&plan);
        assert_eq!(patch["metadata"].get("finalizers"), None);
        assert_eq!(patch["metadata"]["labels"].get(labels::REGISTERED), None);
        assert!(plan.report.is_empty());
    }
}

#[test]
fn p_168_gates_in_order() {
    let startup = startup_taint();
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
            status_of(
                &advance(&claim, &[Arc::new(registered(node))], None, &[], at(1)),
                INITIALIZED
            ),
            ("Unknown".into(), reason.into())
        );
    }
    claim.spec.resources.requests.clear();
    let ready = registered(node(true, &[]));
    let done = advance(&claim, &[Arc::new(ready)], None, &[], at(1));
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

/// Nobody was there to launch it for an hour: what it costs is not spent in vain.
#[test]
fn p_169_a_late_launch_leaves_its_node_as_long_as_one_at_the_last_moment() {
    for (launched_at, until) in [(299, 900), (300, 900), (360, 960), (3600, 4200)] {
        let mut late = claim();
        late.clear(LAUNCHED);
        late.initialize_conditions(at(0));
        late.set_true(LAUNCHED, at(launched_at));
        assert_eq!(
            liveness(&late, at(until - 1)),
            Liveness::Within(Duration::from_secs(1)),
            "launched at {launched_at}"
        );
        assert_eq!(
            liveness(&late, at(until)),
            Liveness::TimedOut("registration_timeout")
        );
    }
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
