//! The doctor on NodePools, pods and DisruptionPolicies, and on one cluster in which everything is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use spokeshave_api::NodePool;
use spokeshave_api::conditions::{Conditioned as _, LAUNCHABLE, Status};
use spokeshave_example::{bound, epoch, instance_type, labelled, node, node_pool, pending_pod};
use spokeshave_model::snapshot::InstanceTypesProblem;
use spokeshave_model::{ClusterState, lower};
use spokeshave_story::doctor::{Finding, Level, doctor};

/// The findings with a code.
pub(super) fn of<'a>(findings: &'a [Finding], code: &str) -> Vec<&'a Finding> {
    findings.iter().filter(|finding| finding.code == code).collect()
}

#[test]
fn nodepools_pods_and_daemons() {
    let pool = |name: &str, change: Value| {
        let mut pool = serde_json::to_value(node_pool(name)).expect("JSON");
        merge(&mut pool, &change);
        Arc::new(serde_json::from_value(pool).expect("a NodePool"))
    };
    let types: Arc<[_]> = Arc::from(vec![instance_type("small", 2, 4, &["a"])]);
    let names = ["full", "none", "shut", "plain"];
    let daemon = spokeshave_example::daemon_set("greedy", "4", "1Gi", &json!({"tolerations": []}));
    let mut state = ClusterState {
        node_pools: vec![
            pool("full", json!({"spec": {"limits": {"cpu": "1"}}})),
            pool(
                "none",
                json!({"spec": {"template": {"spec": {"requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["huge"]}]}}}}),
            ),
            pool(
                "shut",
                json!({"spec": {"disruption": {"budgets": [{"nodes": "0", "schedule": "0 0 31 2 *", "duration": "1h"}]}}}),
            ),
            pool("plain", json!({})),
        ],
        instance_types: names
            .iter()
            .map(|name| ((*name).to_owned(), Ok(types.clone())))
            .collect(),
        ..ClusterState::default()
    };
    let findings = doctor(&state, &lower(&state), &BTreeMap::new(), epoch());
    assert_eq!(of(&findings, "pool-unusable")[0].object, "NodePool none");
    assert_eq!(of(&findings, "limit-leaves-no-type")[0].object, "NodePool full");
    assert!(
        findings.iter().any(|finding| finding.object == "NodePool shut"),
        "{findings:#?}"
    );
    assert!(
        !findings.iter().any(|finding| finding.object == "NodePool plain"),
        "nothing is wrong with it: {findings:#?}"
    );
    state.daemon_sets = vec![Arc::new(daemon)];
    let findings = doctor(&state, &lower(&state), &BTreeMap::new(), epoch());
    let found = of(&findings, "daemons-fill-every-node");
    assert!(
        found.iter().any(|finding| finding.object == "NodePool plain"),
        "{findings:#?}"
    );
    state.pods = vec![Arc::new(
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "a", "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "spec": {"containers": [{"name": "main"}]}, "status": {"phase": "Running"},
        }))
        .expect("a pod"),
    )];
    let findings = doctor(&state, &lower(&state), &BTreeMap::new(), epoch());
    assert_eq!(of(&findings, "do-not-disrupt-for-ever")[0].object, "Pod shop/a");
    assert_eq!(of(&findings, "missing-requests")[0].object, "Pod shop/a");
}

/// What a Job has made ends on its own, and the drain with it; a deadline overrules its budget all the same.
#[test]
fn d_322_a_drain_that_waits_for_a_job_has_an_end() {
    let types = vec![instance_type("small", 2, 4, &["a"])];
    let told = |version: &str, kind: &str, period: Option<&str>| -> Vec<&'static str> {
        let mut pool = node_pool("default");
        pool.spec.template.spec.termination_grace_period =
            period.map(|period| period.parse().expect("a duration"));
        let mut pod = labelled(
            bound(pending_pod("a", "1", "1Gi", &json!({})), "n1"),
            &[("app", "a")],
        );
        let owner =
            json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": true}]);
        pod.metadata.owner_references = serde_json::from_value(owner).expect("references");
        let mut state = ClusterState::default()
            .with_pool(pool, types.clone())
            .with_node(node("default", "n1", &types[0], "a", "on-demand"))
            .with_pod(pod);
        let budget = json!({"metadata": {"namespace": "default", "name": "a"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
        state.pod_disruption_budgets = vec![Arc::new(serde_json::from_value(budget).expect("a budget"))];
        let findings = doctor(&state, &lower(&state), &BTreeMap::new(), epoch()).into_iter();
        let of_drains = ["drain-never-ends", "grace-period-overrules-pdb"];
        let codes = findings.map(|found| found.code);
        codes.filter(|code| of_drains.contains(code)).collect()
    };
    let (never, overruled) = ("drain-never-ends", "grace-period-overrules-pdb");
    assert_eq!(told("apps/v1", "ReplicaSet", None), [never]);
    assert_eq!(told("apps/v1", "ReplicaSet", Some("1h")), [overruled]);
    assert_eq!(told("batch/v1", "Job", None), [""; 0]);
    assert_eq!(told("batch/v1", "Job", Some("1h")), [overruled]);
}

#[test]
fn nodepools_that_are_not_ready_or_that_only_their_operator_knows() {
    let condition = |type_: &str, status: &str, message: &str| {
        json!({"type": type_, "status": status, "reason": "Why", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let pool = |name: &str, conditions: Value| {
        let mut pool = node_pool(name);
        pool.status.get_or_insert_default().conditions =
            serde_json::from_value(conditions).expect("conditions");
        Arc::new(pool)
    };
    let not_found = condition("NodeClassReady", "False", "NodeClass not found on cluster");
    let not_ready = condition("Ready", "False", "NodeClassReady=False");
    let ready = json!([condition("Ready", "True", "")]);
    let types: Arc<[_]> = Arc::from(vec![instance_type("small", 2, 4, &["a"])]);
    let state = ClusterState {
        node_pools: vec![
            pool("misspelt", json!([not_found, not_ready])),
            pool(
                "new",
                json!([condition("Ready", "Unknown", "object is awaiting reconciliation")]),
            ),
            pool("elsewhere", ready.clone()),
            pool("fine", ready),
        ],
        instance_types: [
            ("misspelt".to_owned(), Ok(types.clone())),
            ("new".to_owned(), Ok(types.clone())),
            ("elsewhere".to_owned(), Err(InstanceTypesProblem::KnownElsewhere)),
            ("fine".to_owned(), Ok(types)),
        ]
        .into(),
        ..ClusterState::default()
    };
    let findings = doctor(&state, &lower(&state), &BTreeMap::new(), epoch());
    let said: Vec<(Level, &str, &str)> = findings
        .iter()
        .map(|found| (found.level, found.code, found.object.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            (Level::Error, "pool-not-ready", "NodePool misspelt"),
            (Level::Note, "pool-types-unknown", "NodePool elsewhere"),
            (Level::Note, "pool-not-ready", "NodePool new"),
        ],
        "{findings:#?}"
    );
    assert_eq!(
        findings[0].proof,
        "condition NodeClassReady is False: NodeClass not found on cluster"
    );
    assert_eq!(
        findings[0].suggestion.as_deref(),
        Some("the name of a KWOKNodeClass that is there and Ready: `kubectl get kwoknodeclass` lists them")
    );
}

/// What is named is what has to be changed: the NodeClass, or the replicas of which the operator says that it does not launch them.
#[test]
fn d_353_a_nodepool_that_launches_nothing_says_what_to_change() {
    let fixed = |name: &str, reason: &str| {
        let mut pool = node_pool(name);
        pool.spec.replicas = Some(3);
        for dependent in NodePool::DEPENDENTS {
            pool.set_true(dependent, epoch());
        }
        pool.set(LAUNCHABLE, Status::False, reason, "no node is launched", epoch());
        Arc::new(pool)
    };
    let mut foreign = node_pool("foreign");
    foreign.spec.template.spec.node_class_ref.kind = "EC2NodeClass".to_owned();
    let kwok = node_pool("kwok").spec.template.spec.node_class_ref;
    let types: Arc<[_]> = Arc::from(vec![instance_type("small", 2, 4, &["a"])]);
    let mut gone = instance_type("small", 2, 4, &["a"]);
    for offering in &mut gone.offerings {
        offering.available = false;
    }
    let absent = InstanceTypesProblem::Failed("KWOKNodeClass \"absent\" is not in the file".to_owned());
    let state = ClusterState {
        node_pools: vec![
            fixed("a-gate", "StaticCapacityDisabled"),
            Arc::new(node_pool("b-absent")),
            Arc::new(foreign),
            fixed("later", "LaunchesFail"),
            fixed("nothing-fits", "NoCompatibleInstanceTypes"),
            Arc::new(node_pool("sold-out")),
        ],
        instance_types: [
            ("a-gate".to_owned(), Ok(types.clone())),
            ("b-absent".to_owned(), Err(absent)),
            ("foreign".to_owned(), Ok(types.clone())),
            ("later".to_owned(), Ok(types)),
            (
                "nothing-fits".to_owned(),
                Err(InstanceTypesProblem::KnownElsewhere),
            ),
            ("sold-out".to_owned(), Ok(Arc::from(vec![gone]))),
        ]
        .into(),
        supported_node_classes: vec![(kwok.group, kwok.kind)],
        ..ClusterState::default()
    };
    let findings = doctor(&state, &lower(&state), &BTreeMap::new(), epoch());
    let said: Vec<(Level, &str, Option<&str>, Option<&str>)> = of(&findings, "pool-unusable")
        .into_iter()
        .map(|found| {
            (
                found.level,
                found.object.as_str(),
                found.field.as_deref(),
                found.suggestion.as_deref(),
            )
        })
        .collect();
    let (class, replicas) = (Some("spec.template.spec.nodeClassRef"), Some("spec.replicas"));
    let correct = Some("correct what the condition names");
    assert_eq!(
        said,
        [
            (Level::Error, "NodePool a-gate", replicas, correct),
            (
                Level::Error,
                "NodePool b-absent",
                class,
                Some("add the class to the files, or correct the name")
            ),
            (
                Level::Error,
                "NodePool foreign",
                class,
                Some("name a class of a kind that the operator's provider knows")
            ),
            (Level::Warning, "NodePool later", replicas, correct),
            (Level::Warning, "NodePool nothing-fits", replicas, correct),
            (
                Level::Warning,
                "NodePool sold-out",
                Some("spec.template.spec.requirements"),
                Some("allow further instance types, zones or capacity types")
            ),
        ],
        "{findings:#?}"
    );
    assert_eq!(findings[0].proof, "no node is launched");
}

#[test]
fn policies_and_annotations_that_are_not_what_is_meant() {
    let policy = |name: &str, spec: Value| {
        let spec = serde_json::from_value(spec).expect("a spec");
        Arc::new(spokeshave_api::DisruptionPolicy::new(name, spec))
    };
    let pod = |name: &str, annotation: &str, value: &str| {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"namespace": "shop", "name": name, "annotations": {annotation: value}},
                "spec": {"containers": [{"name": "main"}]}, "status": {"phase": "Running"},
            }))
            .expect("a pod"),
        )
    };
    let mut pool = node_pool("default");
    pool.spec.template.spec.expire_after = "720h".parse().expect("a duration");
    let mut state = ClusterState {
        node_pools: vec![Arc::new(pool)],
        disruption_policies: vec![
            policy("late", json!({"expiry": {"softAfter": "720h"}})),
            policy("soon", json!({"expiry": {"softAfter": "719h"}})),
        ],
        pods: vec![
            pod("a", "spokeshave.dev/quiet-time", "tomorrow"),
            pod("b", "spokeshave.dev/quiet-time", "6h"),
            pod(
                "c",
                "spokeshave.dev/move-windows",
                "Mon-Fri 22:00-06:00 Europe/Atlantis",
            ),
            pod("d", "spokeshave.dev/moves-per-day", "-1"),
        ],
        ..ClusterState::default()
    };
    let asked = [("spokeshave.dev/moves-per-day".to_owned(), "few".to_owned())];
    state
        .owner_annotations
        .insert("Deployment/shop/web".to_owned(), asked.into());
    let findings = doctor(&state, &lower(&state), &BTreeMap::new(), epoch());
    let late = of(&findings, "soft-age-without-effect");
    assert_eq!(late.len(), 1, "{late:#?}");
    assert_eq!(late[0].object, "DisruptionPolicy late");
    assert_eq!(late[0].field.as_deref(), Some("spec.expiry.softAfter"));
    let unread = of(&findings, "workload-annotation-invalid");
    let objects: Vec<&str> = unread.iter().map(|finding| finding.object.as_str()).collect();
    assert_eq!(
        objects,
        ["Deployment shop/web", "Pod shop/a", "Pod shop/c", "Pod shop/d"]
    );
    assert!(unread[1].proof.contains("tomorrow"), "{unread:#?}");
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}
