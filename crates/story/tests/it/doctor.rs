//! The doctor: budgets against an exhaustive search over everything that pods can be, and one cluster in which everything is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use proptest::prelude::*;
use serde_json::{Value, json};
use spokeshave_api::NodePool;
use spokeshave_api::conditions::{Conditioned as _, LAUNCHABLE, Status};
use spokeshave_example::{Dice, epoch, instance_type, node_pool};
use spokeshave_model::Pod;
use spokeshave_model::snapshot::InstanceTypesProblem;
use spokeshave_model::{ClusterState, lower};
use spokeshave_story::doctor::pdb::{Verdict, standing};
use spokeshave_story::doctor::{Finding, Level, doctor};

/// A pod of the small world.
#[derive(Clone, Debug)]
struct SmallPod {
    app: usize,
    color: usize,
    /// Its controller; all of whose pods are here.
    owner: Option<usize>,
    ready: bool,
    pending: bool,
}

/// A budget of the small world.
#[derive(Clone, Debug)]
struct SmallBudget {
    app: Option<usize>,
    color: Option<usize>,
    minimum: bool,
    number: i64,
    is_share: bool,
    always_unhealthy: bool,
}

impl SmallBudget {
    fn selects(&self, pod: &SmallPod) -> bool {
        self.app.is_none_or(|app| app == pod.app) && self.color.is_none_or(|color| color == pod.color)
    }
}

fn world(seed: u64) -> (Vec<SmallPod>, Vec<SmallBudget>) {
    let mut dice = Dice(seed);
    let pods = (0..1 + dice.below(5)).map(|_| SmallPod {
        app: dice.below(2),
        color: dice.below(2),
        owner: (dice.below(4) > 0).then(|| dice.below(2)),
        ready: dice.below(4) > 0,
        pending: dice.below(6) == 0,
    });
    let pods: Vec<SmallPod> = pods
        .map(|pod| SmallPod {
            ready: pod.ready && !pod.pending,
            ..pod
        })
        .collect();
    let budgets = (0..dice.below(4)).map(|_| SmallBudget {
        app: (dice.below(3) > 0).then(|| dice.below(2)),
        color: (dice.below(3) == 0).then(|| dice.below(2)),
        minimum: dice.below(2) == 0,
        number: 0,
        is_share: dice.below(2) == 0,
        always_unhealthy: dice.below(3) == 0,
    });
    let mut budgets: Vec<SmallBudget> = budgets.collect();
    for budget in &mut budgets {
        budget.number = if budget.is_share {
            *dice.pick(&[0, 1, 33, 50, 60, 75, 90, 99, 100])
        } else {
            i64::try_from(dice.below(6)).unwrap()
        };
    }
    (pods, budgets)
}

/// The Eviction API and the disruption controller, word by word: whether this pod may go while the pods are as they are.
fn admitted(pods: &[SmallPod], budgets: &[SmallBudget], index: usize) -> bool {
    let pod = &pods[index];
    if pod.pending {
        return true;
    }
    let over: Vec<&SmallBudget> = budgets.iter().filter(|budget| budget.selects(pod)).collect();
    let budget = match over[..] {
        [] => return true,
        [budget] => budget,
        _ => return false,
    };
    let own: Vec<&SmallPod> = pods.iter().filter(|pod| budget.selects(pod)).collect();
    // The scale of each controller that one of the pods has. Pods of one controller can differ in labels, so that a budget can see only some
    // of them; in this world a controller wants those that the budget sees.
    let owners: BTreeSet<usize> = own.iter().filter_map(|pod| pod.owner).collect();
    let scale: usize = owners
        .iter()
        .map(|owner| own.iter().filter(|pod| pod.owner == Some(*owner)).count())
        .sum();
    let up = |share: i64, whole: usize| {
        let exact = share as f64 * whole as f64 / 100.0;
        exact.ceil() as i64
    };
    let (expected, desired) = match (budget.minimum, budget.is_share) {
        (true, false) => (own.len() as i64, budget.number),
        (true, true) => (scale as i64, up(budget.number, scale)),
        (false, false) => (scale as i64, (scale as i64 - budget.number).max(0)),
        (false, true) => (scale as i64, (scale as i64 - up(budget.number, scale)).max(0)),
    };
    let healthy = own.iter().filter(|pod| pod.ready).count() as i64;
    let allowed = if expected <= 0 {
        0
    } else {
        (healthy - desired).max(0)
    };
    if !pod.ready {
        if budget.always_unhealthy {
            return true;
        }
        if healthy >= desired && desired > 0 {
            return true;
        }
    }
    allowed > 0
}

/// Whether any state of the pods lets this one go while it is healthy.
fn ever_admitted(pods: &[SmallPod], budgets: &[SmallBudget], index: usize) -> bool {
    (0..1_u32 << pods.len()).any(|bits| {
        let mut tried = pods.to_vec();
        for (position, pod) in tried.iter_mut().enumerate() {
            pod.pending = false;
            pod.ready = bits >> position & 1 == 1;
        }
        tried[index].ready && admitted(&tried, budgets, index)
    })
}

fn state(pods: &[SmallPod], budgets: &[SmallBudget]) -> ClusterState {
    let pod = |(index, pod): (usize, &SmallPod)| {
        let owners: Vec<Value> = pod
            .owner
            .map(|owner| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("rs-{owner}"), "uid": format!("{owner}"), "controller": true}))
            .into_iter()
            .collect();
        let object: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": format!("p{index}"), "uid": format!("p{index}"),
                "labels": {"app": format!("{}", pod.app), "color": format!("{}", pod.color)}, "ownerReferences": owners},
            "spec": {"containers": []},
            "status": {"phase": if pod.pending { "Pending" } else { "Running" },
                "conditions": [{"type": "Ready", "status": if pod.ready { "True" } else { "False" }}]},
        }))
        .expect("a pod");
        Arc::new(object)
    };
    let budget = |(index, budget): (usize, &SmallBudget)| {
        let mut labels = json!({});
        if let Some(app) = budget.app {
            labels["app"] = json!(format!("{app}"));
        }
        if let Some(color) = budget.color {
            labels["color"] = json!(format!("{color}"));
        }
        let number = if budget.is_share {
            json!(format!("{}%", budget.number))
        } else {
            json!(budget.number)
        };
        let field = if budget.minimum {
            "minAvailable"
        } else {
            "maxUnavailable"
        };
        let mut spec = json!({"selector": {"matchLabels": labels}});
        spec[field] = number;
        if budget.always_unhealthy {
            spec["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        }
        let object: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": format!("b{index}")}, "spec": spec,
        }))
        .expect("a budget");
        Arc::new(object)
    };
    ClusterState {
        pods: pods.iter().enumerate().map(pod).collect(),
        pod_disruption_budgets: budgets.iter().enumerate().map(budget).collect(),
        ..ClusterState::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every pod that can never go is found, and no other: precision and recall are 1.
    #[test]
    fn d_018_d_020_verdicts_are_those_of_an_exhaustive_search(seed in any::<u64>()) {
        let (pods, budgets) = world(seed);
        let state = state(&pods, &budgets);
        let found = standing(&state, &BTreeMap::new());
        for index in 0..pods.len() {
            let expected = if !ever_admitted(&pods, &budgets, index) {
                Verdict::Never
            } else if admitted(&pods, &budgets, index) {
                Verdict::Free
            } else {
                Verdict::NotNow
            };
            prop_assert_eq!(found.verdicts[index], expected, "pod {} of {:?} under {:?}", index, pods, budgets);
        }
        // Findings speak of the same pods: some budget is an error exactly when some pod can never go.
        let snapshot = lower(&state);
        let errors = doctor(&state, &snapshot, &BTreeMap::new(), epoch())
            .into_iter()
            .any(|finding| finding.level == Level::Error && finding.code.starts_with("pdb-"));
        prop_assert_eq!(errors, found.verdicts.contains(&Verdict::Never));
    }
}

/// The search means something only if worlds hold every answer, and not one of them nearly always.
#[test]
fn small_worlds_hold_every_verdict() {
    let mut counts = [0_usize; 3];
    for seed in 0..500 {
        let (pods, budgets) = world(seed);
        for verdict in standing(&state(&pods, &budgets), &BTreeMap::new()).verdicts {
            counts[verdict as usize] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
}

fn of<'a>(findings: &'a [Finding], code: &str) -> Vec<&'a Finding> {
    findings.iter().filter(|finding| finding.code == code).collect()
}

fn small(app: usize, owner: Option<usize>, ready: bool) -> SmallPod {
    SmallPod {
        app,
        color: 0,
        owner,
        ready,
        pending: false,
    }
}

fn budget(minimum: bool, number: i64, is_share: bool) -> SmallBudget {
    SmallBudget {
        app: Some(0),
        color: None,
        minimum,
        number,
        is_share,
        always_unhealthy: false,
    }
}

fn examined(pods: &[SmallPod], budgets: &[SmallBudget]) -> Vec<Finding> {
    let state = state(pods, budgets);
    doctor(&state, &lower(&state), &BTreeMap::new(), epoch())
}

#[test]
fn budgets_are_proved_by_their_arithmetic() {
    let five: Vec<SmallPod> = (0..5).map(|_| small(0, Some(0), true)).collect();
    for (budget, proof, suggestion) in [
        (
            budget(true, 5, false),
            "minAvailable 5 of 5: 5 must stay; at best 5 are healthy, and 5 - 5 = 0 may go",
            "minAvailable: 4",
        ),
        (
            budget(true, 90, true),
            "minAvailable 90% of 5: 90% of 5 is 4.5, rounded up 5; at best 5 are healthy, and 5 - 5 = 0 may go",
            "maxUnavailable: 1",
        ),
        (
            budget(false, 0, false),
            "maxUnavailable 0 of 5: 5 - 0 = 5 must stay; at best 5 are healthy, and 5 - 5 = 0 may go",
            "maxUnavailable: 1",
        ),
        (
            budget(true, 7, false),
            "minAvailable 7 of 5: 7 must stay; at best 5 are healthy, and 5 - 7 < 0: 0 may go",
            "minAvailable: 4",
        ),
    ] {
        let findings = examined(&five, std::slice::from_ref(&budget));
        let found = of(&findings, "pdb-never-allows");
        assert_eq!(found.len(), 1, "{findings:#?}");
        assert_eq!(found[0].proof, proof);
        assert_eq!(found[0].suggestion.as_deref(), Some(suggestion));
    }
    // Any share above 0 is rounded up to a pod.
    assert!(of(&examined(&five, &[budget(false, 1, true)]), "pdb-never-allows").is_empty());
    let lone: Vec<SmallPod> = (0..2).map(|_| small(0, None, true)).collect();
    let findings = examined(&lone, &[budget(false, 1, false)]);
    assert_eq!(of(&findings, "pdb-without-controller").len(), 1, "{findings:#?}");
    let findings = examined(&five, &[budget(true, 1, false), budget(false, 1, false)]);
    assert_eq!(of(&findings, "pdb-overlap").len(), 1, "{findings:#?}");
}

/// With the pods that a HorizontalPodAutoscaler may add some may go: a budget that allows none of what is there is not closed for ever.
#[test]
fn d_018_a_workload_that_may_be_scaled_up_is_not_told_never() {
    let said = |budget: SmallBudget, most: i64| {
        let state = state(&[small(0, Some(0), true)], &[budget]);
        let most = BTreeMap::from([("ReplicaSet/default/rs-0".to_owned(), most)]);
        let findings = doctor(&state, &lower(&state), &most, epoch());
        let found = findings.into_iter().find(|found| found.code.starts_with("pdb-"));
        found.map(|found| (found.code, found.proof)).expect("a finding")
    };
    let all = || budget(true, 1, false);
    assert_eq!(said(all(), 1).0, "pdb-never-allows");
    let proof = "minAvailable 1 of 1: 1 must stay; at maxReplicas 2 may go".to_owned();
    assert_eq!(said(all(), 3), ("pdb-not-now", proof));
    assert_eq!(said(budget(true, 90, true), 9).0, "pdb-never-allows");
    assert_eq!(said(budget(true, 90, true), 10).0, "pdb-not-now");
    assert_eq!(said(budget(false, 0, false), 3).0, "pdb-never-allows");
}

#[test]
fn what_only_cannot_go_now_has_a_forecast() {
    let pods = [
        small(0, Some(0), true),
        small(0, Some(0), true),
        small(0, Some(0), false),
    ];
    let findings = examined(&pods, &[budget(true, 2, false)]);
    let found = of(&findings, "pdb-not-now");
    assert_eq!(found.len(), 1, "{findings:#?}");
    assert_eq!(
        found[0].message,
        "it allows no eviction now, and one again once 1 more pod is Ready; not Ready: default/p2"
    );
    assert_eq!(found[0].level, Level::Note);
    assert!(of(&findings, "pdb-never-allows").is_empty());
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
    let absent = InstanceTypesProblem::Failed("KWOKNodeClass \"absent\" is not in the file".to_owned());
    let state = ClusterState {
        node_pools: vec![
            fixed("a-gate", "StaticCapacityDisabled"),
            Arc::new(node_pool("b-absent")),
            Arc::new(foreign),
            fixed("later", "LaunchesFail"),
            fixed("nothing-fits", "NoCompatibleInstanceTypes"),
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
