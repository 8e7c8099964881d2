//! The doctor on PodDisruptionBudgets, against an exhaustive search over everything that pods can be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use proptest::prelude::*;
use serde_json::{Value, json};
use spokeshave_example::{Dice, epoch};
use spokeshave_model::Pod;
use spokeshave_model::{ClusterState, lower};
use spokeshave_story::doctor::pdb::{Verdict, standing};
use spokeshave_story::doctor::{Finding, Level, doctor};

use super::doctor::of;

/// Controllers of pods, by API version, kind and name; the last two have no scale.
const OWNERS: [(&str, &str, &str); 4] = [
    ("apps/v1", "ReplicaSet", "rs-0"),
    ("apps/v1", "ReplicaSet", "rs-1"),
    ("batch/v1", "Job", "once"),
    ("apps/v1", "DaemonSet", "agent"),
];

/// How many of them have a scale.
const SCALED: usize = 2;

/// A pod of the small world.
#[derive(Clone, Debug)]
struct SmallPod {
    app: usize,
    color: usize,
    /// Its controller, one of `OWNERS`; all of whose pods are here.
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
    /// It has neither field.
    is_empty: bool,
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
        owner: match dice.below(16) {
            0..4 => None,
            4 => Some(SCALED),
            5 => Some(SCALED + 1),
            other => Some(other % SCALED),
        },
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
        is_empty: dice.below(8) == 0,
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
    let is_counted = owners.iter().all(|owner| *owner < SCALED) || (budget.minimum && !budget.is_share);
    let (expected, desired) = match (budget.minimum, budget.is_share) {
        // It asks for nobody, or the sync of the budget fails.
        _ if budget.is_empty || !is_counted => (0, 0),
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
            .map(|owner| {
                let (version, kind, name) = OWNERS[owner];
                json!({"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": true})
            })
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
        if !budget.is_empty {
            spec[field] = number;
        }
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
    for seed in 0..1000 {
        let (pods, budgets) = world(seed);
        for verdict in standing(&state(&pods, &budgets), &BTreeMap::new()).verdicts {
            counts[verdict as usize] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
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
        is_empty: false,
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

/// Both let nothing go, and say so to nobody: a budget without either field, and one that is relative to the scale of what has none.
#[test]
fn d_018_budgets_that_expect_nobody_or_cannot_be_synced_never_allow_anything() {
    let told = |pods: &[SmallPod], budget: SmallBudget| {
        let findings = examined(pods, &[budget]);
        let mut found = findings
            .into_iter()
            .filter(|found| found.code.starts_with("pdb-"));
        let first = found.next().expect("a finding");
        assert_eq!(
            (first.level, found.count()),
            (Level::Error, 0),
            "{}",
            first.message
        );
        (first.code, first.message, first.suggestion.unwrap_or_default())
    };
    let pods = |owners: &[Option<usize>]| -> Vec<SmallPod> {
        owners.iter().map(|owner| small(0, *owner, true)).collect()
    };
    let empty = || SmallBudget {
        is_empty: true,
        ..budget(false, 1, false)
    };
    let (code, message, suggestion) = told(&pods(&[Some(0), Some(0)]), empty());
    assert_eq!(
        (code, suggestion.as_str()),
        ("pdb-never-allows", "maxUnavailable: 1")
    );
    assert!(message.contains("neither how many pods must stay"), "{message}");
    // What is relative to a scale would not help these.
    for owners in [&[None, None][..], &[Some(SCALED), Some(0)]] {
        let (_, _, suggestion) = told(&pods(owners), empty());
        assert_eq!(suggestion, "minAvailable: 1");
    }
    for (owner, kind) in [(SCALED, "a Job,"), (SCALED + 1, "a DaemonSet,")] {
        for budget in [
            budget(false, 1, false),
            budget(false, 50, true),
            budget(true, 50, true),
        ] {
            // One such pod among others is enough.
            for owners in [&[Some(owner)][..], &[Some(0), Some(owner), None]] {
                let (code, message, suggestion) = told(&pods(owners), budget.clone());
                assert_eq!(code, "pdb-without-controller");
                assert!(message.contains(&format!("1 pod of {kind}")), "{message}");
                let number = format!("minAvailable: {}, or a selector", owners.len() - 1);
                assert!(suggestion.starts_with(&number), "{suggestion}");
            }
        }
        // A number is relative to nothing.
        let two = pods(&[Some(owner), Some(owner)]);
        assert!(
            examined(&two, &[budget(true, 1, false)])
                .iter()
                .all(|one| !one.code.starts_with("pdb-"))
        );
    }
    // The controller asks for the scale of a pod that has finished, too.
    let mut state = state(
        &pods(&[Some(0), Some(0), Some(SCALED)]),
        &[budget(false, 1, false)],
    );
    let finished = Arc::make_mut(&mut state.pods[2]);
    finished.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
    let found = standing(&state, &BTreeMap::new());
    assert_eq!(found.verdicts[..2], [Verdict::Never, Verdict::Never]);
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
