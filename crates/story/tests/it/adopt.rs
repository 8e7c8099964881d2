//! Takeover: blockers, drift, and notes.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_example::epoch;
use spokeshave_model::ClusterState;
use spokeshave_story::adopt::{
    Definition, Leader, NotExamined, OldObjects, Operator, Successor, Surroundings, TakeOver, Webhook, check,
};
use spokeshave_story::doctor::Level;

fn read<K: serde::de::DeserializeOwned>(object: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(object).expect("an object"))
}

fn pool(version: &str, hash: &str) -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "annotations": {"karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": version}},
        "spec": {"template": {"spec": {"requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}}})
}

/// A launched NodeClaim of upstream's making, changed by a closure.
fn claim(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut claim = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2025-12-31T00:00:00Z",
            "labels": {"karpenter.sh/nodepool": "default", "kubernetes.io/arch": "amd64"},
            "annotations": {"karpenter.sh/nodepool-hash": "123", "karpenter.sh/nodepool-hash-version": "v3"}},
        "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
        "status": {"providerID": format!("kwok://{name}"), "nodeName": name,
            "conditions": [{"type": "Launched", "status": "True", "reason": "Launched", "message": "", "lastTransitionTime": "2025-01-01T00:00:00Z"}]}});
    change(&mut claim);
    claim
}

fn node(name: &str, taints: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": format!("kwok://{name}"), "taints": taints}})
}

fn state(pool: Value, claims: Vec<Value>, nodes: Vec<Value>) -> ClusterState {
    ClusterState {
        node_pools: vec![read(pool)],
        node_claims: claims.into_iter().map(read).collect(),
        nodes: nodes.into_iter().map(read).collect(),
        ..ClusterState::default()
    }
}

fn successor(recorded: &[&str]) -> Successor {
    Successor {
        node_classes: vec![("karpenter.kwok.sh".to_owned(), "KWOKNodeClass".to_owned())],
        provider_id_prefix: "kwok://".to_owned(),
        recorded_instances: Some(recorded.iter().map(|name| (*name).to_owned()).collect()),
        adoptable_instances: Vec::new(),
        namespace: Some("karpenter".to_owned()),
    }
}

fn found(take_over: &TakeOver) -> Vec<(Level, &str)> {
    take_over
        .findings
        .iter()
        .map(|finding| (finding.level, finding.code))
        .collect()
}

#[test]
fn d_224_a_cluster_of_karpenter_drifts_nothing_and_is_stamped() {
    let claims = vec![claim("a", |_| {}), claim("b", |_| {})];
    let state = state(
        pool("v3", "999"),
        claims,
        vec![node("a", json!([])), node("b", json!([]))],
    );
    let take_over = check(&state, &Surroundings::default(), &successor(&["a", "b"]), epoch());
    assert_eq!(take_over.would_stamp, 3);
    assert_eq!((take_over.node_pools, take_over.node_claims), (1, 2));
    // The pool and its claims have one version, so upstream itself treats them as drifted.
    assert_eq!(take_over.would_drift, 2);
    let same = state_with_hash("123");
    let take_over = check(&same, &Surroundings::default(), &successor(&["a"]), epoch());
    assert_eq!(
        (take_over.would_drift, found(&take_over)),
        (0, vec![(Level::Note, "hashes-stamped")])
    );
    assert!(!take_over.is_blocked());
}

fn state_with_hash(hash: &str) -> ClusterState {
    state(
        pool("v3", hash),
        vec![claim("a", |_| {})],
        vec![node("a", json!([]))],
    )
}

#[test]
fn d_070_half_done_commands_ends_and_launches_are_named() {
    let taint = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
    let going = |claim: &mut Value| claim["metadata"]["deletionTimestamp"] = json!("2025-01-02T00:00:00Z");
    let unlaunched = |claim: &mut Value| claim["status"] = json!({});
    let claims = vec![
        claim("stray", |_| {}),
        claim("going", going),
        claim("new", unlaunched),
    ];
    let nodes = vec![node("stray", taint.clone()), node("going", taint)];
    let state = state(pool("v3", "123"), claims, nodes);
    let take_over = check(
        &state,
        &Surroundings::default(),
        &successor(&["stray", "going"]),
        epoch(),
    );
    assert_eq!(
        found(&take_over),
        [
            (Level::Warning, "launching"),
            (Level::Note, "hashes-stamped"),
            (Level::Note, "half-done-command"),
            (Level::Note, "ending"),
        ]
    );
    let half_done = &take_over.findings[2];
    assert_eq!(
        half_done.object, "Node stray",
        "the node that is being deleted is not half done"
    );
}

#[test]
fn nodes_that_the_provider_would_not_know_stand_in_the_way() {
    let other_class = |claim: &mut Value| claim["spec"]["nodeClassRef"]["kind"] = json!("EC2NodeClass");
    let other_cloud = |claim: &mut Value| claim["status"]["providerID"] = json!("aws:///us-east-1a/i-1");
    let claims = vec![
        claim("known", |_| {}),
        claim("unrecorded", |_| {}),
        claim("elsewhere", other_cloud),
        claim("class", other_class),
    ];
    let state = state(pool("v3", "123"), claims, vec![]);
    let take_over = check(&state, &Surroundings::default(), &successor(&["known"]), epoch());
    assert!(take_over.is_blocked());
    let object = |code: &str| {
        let finding = take_over.findings.iter().find(|finding| finding.code == code);
        finding.map(|finding| finding.object.as_str())
    };
    assert_eq!(object("other-provider"), Some("NodeClaim class"));
    assert_eq!(
        object("unknown-instance"),
        Some("NodeClaim elsewhere, unrecorded")
    );
}

fn definition(name: &str) -> Definition {
    Definition {
        name: name.to_owned(),
        served: vec!["v1".to_owned()],
        stored: vec!["v1".to_owned()],
        has_conversion_webhook: false,
        release: None,
    }
}

fn leader(namespace: &str, renewed_at: Timestamp) -> Leader {
    Leader {
        namespace: namespace.to_owned(),
        name: "karpenter-leader-election".to_owned(),
        holder: "karpenter-1".to_owned(),
        renewed_at: Some(renewed_at),
        duration_seconds: 15,
    }
}

#[test]
fn two_operators_never_lead_at_once() {
    let now = epoch();
    let around = |leaders: Vec<Leader>, replicas: usize| Surroundings {
        leaders,
        operators: vec![Operator {
            namespace: "karpenter".to_owned(),
            name: "karpenter".to_owned(),
            replicas,
            image: "public.ecr.aws/karpenter/controller:1.14.0".to_owned(),
        }],
        ..Surroundings::default()
    };
    let said = |around: &Surroundings| {
        let take_over = check(&ClusterState::default(), around, &successor(&[]), now);
        take_over
            .findings
            .iter()
            .map(|finding| (finding.level, finding.code))
            .collect::<Vec<_>>()
    };
    let ago = |seconds: i64| now - SignedDuration::from_secs(seconds);
    assert_eq!(
        said(&around(vec![leader("karpenter", ago(5))], 2)),
        [(Level::Error, "operator-running"), (Level::Note, "leader-active")]
    );
    // In another namespace the operator does not wait for the Lease.
    assert_eq!(
        said(&around(vec![leader("other", ago(14))], 0)),
        [(Level::Error, "leader-active")]
    );
    assert!(
        said(&around(vec![leader("other", ago(15))], 0)).is_empty(),
        "it has run out"
    );
}

#[test]
fn definitions_webhooks_and_old_objects_are_judged() {
    let pools = Definition {
        served: vec!["v1beta1".to_owned()],
        stored: vec!["v1beta1".to_owned()],
        has_conversion_webhook: true,
        release: Some("karpenter-crd".to_owned()),
        ..definition("nodepools.karpenter.sh")
    };
    let around = Surroundings {
        definitions: Some(vec![pools]),
        webhooks: vec![Webhook {
            kind: "ValidatingWebhookConfiguration".to_owned(),
            name: "validation.webhook.karpenter.sh".to_owned(),
            groups: vec!["karpenter.sh".to_owned()],
        }],
        old_objects: vec![OldObjects {
            kind: "Provisioner".to_owned(),
            version: "karpenter.sh/v1alpha5".to_owned(),
            names: vec!["default".to_owned()],
            source: "--live",
        }],
        ..Surroundings::default()
    };
    let take_over = check(&ClusterState::default(), &around, &successor(&[]), epoch());
    assert_eq!(
        found(&take_over),
        [
            (Level::Error, "definition-missing"),
            (Level::Error, "definition-version"),
            (Level::Error, "definition-conversion"),
            (Level::Error, "definition-stored"),
            (Level::Error, "old-objects"),
            (Level::Warning, "definition-release"),
            (Level::Warning, "webhook"),
        ]
    );
    // Helm 3 deletes what the record of the release lists, whoever owns it by then.
    let release = take_over
        .findings
        .iter()
        .find(|one| one.code == "definition-release");
    let suggestion = release.and_then(|one| one.suggestion.as_deref());
    for words in [
        "do not uninstall karpenter-crd as it is",
        "upgrade it with helm.sh/resource-policy: keep",
        "delete secret -l owner=helm,name=karpenter-crd",
    ] {
        assert!(
            suggestion.is_some_and(|text| text.contains(words)),
            "{words}: {suggestion:?}"
        );
    }
    let old = take_over.findings.iter().find(|one| one.code == "old-objects");
    // `-o` is a format there: manifests go to standard output.
    assert_eq!(
        old.and_then(|one| one.suggestion.as_deref()),
        Some("spokeshave convert --live > old-as-v1.yaml, and apply what it writes")
    );
    let fine = ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh"].map(definition);
    let around = Surroundings {
        definitions: Some(fine.to_vec()),
        ..Surroundings::default()
    };
    assert!(
        check(&ClusterState::default(), &around, &successor(&[]), epoch())
            .findings
            .is_empty()
    );
}

/// Where objects may be stored in a version that ours lacks, the API server refuses ours, and Karpenter has been stopped by then.
#[test]
fn a_definition_that_ours_cannot_replace_is_a_blocker_of_whatever_kind() {
    let stored = |name: &str, versions: &[&str]| {
        let mut definitions = ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh", name].map(definition);
        definitions[2].stored = versions.iter().map(|version| (*version).to_owned()).collect();
        let around = Surroundings {
            definitions: Some(definitions.to_vec()),
            ..Surroundings::default()
        };
        check(&ClusterState::default(), &around, &successor(&[]), epoch())
    };
    let take_over = stored("ec2nodeclasses.karpenter.k8s.aws", &["v1beta1", "v1"]);
    assert_eq!(found(&take_over), [(Level::Error, "definition-stored")]);
    assert!(take_over.is_blocked());
    let suggestion = take_over.findings[0].suggestion.as_deref();
    assert!(
        suggestion.is_some_and(|text| text.ends_with(r#"-p '{"status":{"storedVersions":["v1"]}}'"#)),
        "{suggestion:?}"
    );
    // Ours of Azure is v1beta1, and of what ours has not, nothing is replaced.
    for (name, versions, is_blocked) in [
        ("aksnodeclasses.karpenter.azure.com", &["v1beta1"][..], false),
        (
            "aksnodeclasses.karpenter.azure.com",
            &["v1alpha2", "v1beta1"],
            true,
        ),
        ("nodeoverlays.karpenter.sh", &["v1alpha1"], false),
        ("awsnodetemplates.karpenter.k8s.aws", &["v1alpha1"], false),
    ] {
        let take_over = stored(name, versions);
        let found = found(&take_over);
        assert_eq!(take_over.is_blocked(), is_blocked, "{name}: {found:?}");
    }
}

/// Karpenter 1.0 launches with them, and nothing else does.
#[test]
fn kubelet_settings_in_an_annotation_are_a_blocker() {
    let key = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";
    let mut pool = pool("v3", "123");
    pool["metadata"]["annotations"][key] = json!(r#"{"maxPods": 110}"#);
    let state = state(pool, vec![], vec![]);
    let take_over = check(&state, &Surroundings::default(), &successor(&[]), epoch());
    assert_eq!(
        found(&take_over),
        [
            (Level::Error, "kubelet-in-annotation"),
            (Level::Note, "hashes-stamped")
        ]
    );
    let finding = &take_over.findings[0];
    assert_eq!(finding.object, "NodePool default");
    assert!(finding.proof.contains(key), "{}", finding.proof);
    let suggestion = finding.suggestion.as_deref().unwrap_or_default();
    assert!(
        suggestion.contains(&format!("kubectl annotate nodepools --all {key}-")),
        "what is applied keeps the annotation, and the finding: {suggestion}"
    );
}

/// What nobody has looked at may be there: who lacks a right is told which one, and who does not, to ask again.
#[test]
fn what_was_not_looked_at_is_a_blocker() {
    let told = |is_forbidden: bool| {
        let around = Surroundings {
            not_examined: vec![NotExamined {
                resource: "deployments.apps".to_owned(),
                unknown: "whether Karpenter runs",
                why: "sam may not do this".to_owned(),
                is_forbidden,
            }],
            ..Surroundings::default()
        };
        let take_over = check(&ClusterState::default(), &around, &successor(&[]), epoch());
        assert!(take_over.is_blocked());
        assert_eq!(found(&take_over), [(Level::Error, "not-examined")]);
        let finding = take_over.findings[0].clone();
        assert_eq!(
            (finding.object.as_str(), finding.proof.as_str()),
            ("deployments.apps", "sam may not do this")
        );
        finding.suggestion.unwrap_or_default()
    };
    assert!(told(true).contains("list deployments.apps"), "{}", told(true));
    assert_eq!(told(false), "run this again");
}

#[test]
fn an_autoscaler_and_a_node_holder_are_told_and_stand_in_nobodys_way() {
    let around = Surroundings {
        autoscalers: vec!["kube-system/autoscaler".to_owned()],
        holders: vec!["kube-tools/holder".to_owned()],
        ..Surroundings::default()
    };
    let take_over = check(&ClusterState::default(), &around, &successor(&[]), epoch());
    assert_eq!(
        found(&take_over),
        [
            (Level::Warning, "autoscaler-running"),
            (Level::Warning, "node-holder")
        ]
    );
    let objects: Vec<&str> = take_over.findings.iter().map(|one| one.object.as_str()).collect();
    assert_eq!(
        objects,
        [
            "Deployment kube-system/autoscaler",
            "Deployment kube-tools/holder"
        ]
    );
}

#[test]
fn instances_of_karpenters_kwok_provider_get_a_record_and_stand_in_nobodys_way() {
    let claims = vec![
        claim("known", |_| {}),
        claim("theirs", |_| {}),
        claim("vanished", |_| {}),
    ];
    let state = state(pool("v3", "123"), claims, vec![]);
    let successor = Successor {
        adoptable_instances: vec!["theirs".to_owned(), "known".to_owned()],
        ..successor(&["known"])
    };
    let take_over = check(&state, &Surroundings::default(), &successor, epoch());
    let object = |code: &str| {
        let finding = take_over.findings.iter().find(|finding| finding.code == code);
        finding.map(|finding| (finding.level, finding.object.as_str()))
    };
    assert_eq!(
        object("instances-recorded"),
        Some((Level::Note, "NodeClaim theirs"))
    );
    assert_eq!(
        object("unknown-instance"),
        Some((Level::Error, "NodeClaim vanished"))
    );
}

/// D-247: all of them go together; what the provider does not look after stays.
#[test]
fn d_247_nodeclaims_that_are_too_old_go_in_the_first_seconds() {
    let created = |at: &str, claim: &mut Value| claim["metadata"]["creationTimestamp"] = json!(at);
    // The default of `expireAfter` is 720h.
    let old = |claim: &mut Value| created("2025-12-02T00:00:00Z", claim);
    let claims = vec![
        claim("young", |claim| created("2025-12-02T00:00:01Z", claim)),
        claim("old", old),
        claim("for-ever", |claim| {
            old(claim);
            claim["spec"]["expireAfter"] = json!("Never");
        }),
        claim("going", |claim| {
            old(claim);
            claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
        claim("foreign", |claim| {
            old(claim);
            claim["spec"]["nodeClassRef"]["kind"] = json!("EC2NodeClass");
        }),
    ];
    let state = state(pool("v3", "123"), claims, vec![]);
    let names = ["young", "old", "for-ever", "going", "foreign"];
    let take_over = check(&state, &Surroundings::default(), &successor(&names), epoch());
    assert_eq!(take_over.would_expire, 1);
    let told = take_over.findings.iter().find(|one| one.code == "expired");
    let told = told.map(|one| (one.level, one.object.as_str(), one.proof.as_str()));
    let proof =
        "the oldest, old, was created 2025-12-02 00:00:00Z, expireAfter 720h; none of them is being deleted";
    assert_eq!(told, Some((Level::Warning, "NodeClaim old", proof)));
}
