//! What budgets allow, computed by hand.

use serde_json::json;
use spokeshave_scenario::{DisruptionBudget, Spread};

use super::*;
use crate::pods::PodId;

fn owner(kind: OwnerKind, name: &str, labels: &[(&str, &str)]) -> Owner {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    let template = json!({"metadata": {"labels": labels}});
    Owner {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        kind,
        template: Arc::new(serde_json::from_value(template).unwrap()),
        ready: Spread {
            median_ms: 0,
            p99_ms: 0,
        },
        budget: None,
        later: Vec::new(),
        claims: Vec::new(),
    }
}

fn most(text: &str) -> Budget {
    Budget::MaxUnavailable(text.to_owned())
}

fn least(text: &str) -> Budget {
    Budget::MinAvailable(text.to_owned())
}

/// Over the pods of `shop` that have these labels.
fn over(labels: &[(&str, &str)], amount: Budget) -> DisruptionBudget {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    DisruptionBudget {
        selector: LabelSelector {
            match_labels: Some(labels.collect()),
            ..LabelSelector::default()
        },
        amount: Some(amount),
    }
}

fn timeline(owners: Vec<Owner>, budgets: Vec<(&str, DisruptionBudget)>) -> Timeline {
    let named = |(name, budget): (&str, DisruptionBudget)| (("shop".to_owned(), name.to_owned()), budget);
    Timeline {
        owners,
        budgets: budgets.into_iter().map(named).collect(),
        ..Timeline::default()
    }
}

/// Owners during a run, with their budgets.
struct Cluster {
    owners: Vec<OwnerState>,
    budgets: Budgets,
}

impl Cluster {
    fn new(timeline: &Timeline) -> Self {
        let owners = timeline.owners.iter().enumerate();
        Cluster {
            owners: owners
                .map(|(index, owner)| OwnerState::new(owner, index))
                .collect(),
            budgets: Budgets::new(timeline, &[]),
        }
    }

    /// An owner that wants so many pods has as many, of which so many are ready. The budgets that allow something else since are told.
    fn has(&mut self, owner: u32, pods: u32, ready: u32) -> Vec<u32> {
        let state = &mut self.owners[owner as usize];
        let ids = (0..pods).map(|slot| (u64::from(slot), PodId { slot, life: 0 }));
        state.active = ids.collect();
        state.ready = ready;
        if matches!(state.kind, OwnerKind::Deployment | OwnerKind::StatefulSet) {
            state.replicas = pods;
        }
        self.budgets.count(owner, state)
    }

    /// Expected, desired and healthy pods, and disruptions allowed, of each budget by its name.
    fn told(&self) -> Vec<(String, [i32; 4])> {
        let objects = self.budgets.counted_objects();
        let told = objects.iter().map(|object| {
            let status = object.status.clone().unwrap();
            let numbers = [
                status.expected_pods,
                status.desired_healthy,
                status.current_healthy,
                status.disruptions_allowed,
            ];
            (object.metadata.name.clone().unwrap(), numbers.map(Option::unwrap))
        });
        told.collect()
    }
}

/// What a budget of its own allows an owner that wants so many pods.
fn allowed(kind: OwnerKind, budget: Budget, pods: u32, ready: u32) -> i32 {
    let mut owner = owner(kind, "web", &[("app", "web")]);
    owner.budget = Some(budget);
    let mut cluster = Cluster::new(&timeline(vec![owner], Vec::new()));
    cluster.has(0, pods, ready);
    let told = cluster.told();
    assert_eq!(
        cluster.budgets.allow(0),
        told[0].1[3] > 0,
        "what is read is what is allowed"
    );
    told[0].1[3]
}

#[test]
fn a_budget_allows_as_kubernetes_counts() {
    let web = |budget: Budget, pods: u32, ready: u32| allowed(OwnerKind::Deployment, budget, pods, ready);
    assert_eq!(web(most("2"), 10, 10), 2);
    assert_eq!(web(most("2"), 10, 9), 1);
    assert_eq!(web(most("2"), 10, 7), 0);
    assert_eq!(web(most("25%"), 10, 10), 3, "rounded up");
    assert_eq!(web(most("25%"), 0, 0), 0, "nobody is there");
}

/// What has to stay is not what may go, taken from the whole: both are rounded up, and a number stays what it is when the replicas change.
#[test]
fn what_has_to_stay_is_rounded_up_as_well() {
    for (budget, replicas, expected) in [
        ("50%", 1, 0),
        ("50%", 3, 1),
        ("51%", 3, 1),
        ("50%", 4, 2),
        ("5", 40, 35),
        ("5", 7, 2),
        ("5", 4, 0),
        ("0", 4, 4),
    ] {
        let found = allowed(OwnerKind::Deployment, least(budget), replicas, replicas);
        assert_eq!(found, expected, "{budget} of {replicas}");
    }
}

/// Of Jobs and bare pods only a number that has to stay can be counted. Other controllers have a scale, which is what there is.
#[test]
fn a_budget_of_pods_that_nobody_scales_counts_a_minimum_only() {
    let cases = [
        (most("1"), 1, [0, 1]),
        (most("50%"), 4, [0, 2]),
        (most("100%"), 4, [0, 4]),
        (least("0%"), 4, [0, 4]),
        (least("1"), 2, [1, 1]),
        (least("0"), 3, [3, 3]),
        (least("0"), 0, [0, 0]),
    ];
    for (budget, pods, [unscaled, scaled]) in cases {
        for (kind, expected) in [
            (OwnerKind::Job, unscaled),
            (OwnerKind::Bare, unscaled),
            (OwnerKind::Other, scaled),
        ] {
            let found = allowed(kind, budget.clone(), pods, pods);
            assert_eq!(found, expected, "{kind:?}: {budget:?} of {pods}");
        }
    }
}

/// Brokers that are a StatefulSet each, and a canary beside its Deployment.
#[test]
fn a_budget_counts_the_pods_of_all_owners_that_it_selects() {
    let broker = |name: &str| {
        owner(
            OwnerKind::StatefulSet,
            name,
            &[("app", "kafka"), ("broker", name)],
        )
    };
    let web = owner(OwnerKind::Deployment, "web", &[("app", "web")]);
    let canary = owner(
        OwnerKind::Deployment,
        "canary",
        &[("app", "web"), ("track", "canary")],
    );
    let owners = vec![
        broker("kafka-0"),
        broker("kafka-1"),
        broker("kafka-2"),
        web,
        canary,
    ];
    let budgets = vec![
        ("kafka", over(&[("app", "kafka")], most("1"))),
        ("web", over(&[("app", "web")], least("3"))),
    ];
    let mut cluster = Cluster::new(&timeline(owners, budgets));
    let mut changes: Vec<Vec<u32>> = Vec::new();
    for (owner, pods) in [(0, 1), (1, 1), (2, 1), (3, 4), (4, 1)] {
        changes.push(cluster.has(owner, pods, pods));
    }
    assert_eq!(changes, [vec![0], vec![], vec![], vec![1], vec![1]]);
    let expected = [("kafka", [3, 2, 3, 1]), ("web", [5, 3, 5, 2])];
    assert_eq!(
        cluster.told(),
        expected.map(|(name, told)| (name.to_owned(), told))
    );
    assert_eq!(cluster.has(1, 1, 0), [0], "one broker is away");
    assert!((0..3).all(|broker| !cluster.budgets.allow(broker)));
    assert_eq!(cluster.has(1, 1, 0), [] as [u32; 0], "nothing has changed since");
    assert!(
        cluster.budgets.allow(4),
        "the canary may go, since four of web stay"
    );
}

/// The scale of each controller counts, and one without a scale spoils the sum as long as it has pods. Pods without a controller count among the ready ones
/// only.
#[test]
fn a_budget_over_owners_of_several_kinds_asks_for_a_scale_of_each() {
    let of_kind = |kind: OwnerKind, name: &str| owner(kind, name, &[("app", name), ("team", "a")]);
    let owners = vec![
        of_kind(OwnerKind::Deployment, "web"),
        of_kind(OwnerKind::Other, "rollout"),
        of_kind(OwnerKind::Bare, "debug"),
        of_kind(OwnerKind::Job, "nightly"),
    ];
    let budgets = vec![("team", over(&[("team", "a")], most("50%")))];
    let mut cluster = Cluster::new(&timeline(owners, budgets));
    for (owner, pods, told) in [
        (0, 4, [4, 2, 4, 2]),
        (1, 2, [6, 3, 6, 3]),
        (2, 1, [6, 3, 7, 4]),
        (3, 1, [0, 0, 8, 0]),
        (3, 0, [6, 3, 7, 4]),
    ] {
        cluster.has(owner, pods, pods);
        assert_eq!(cluster.told(), [("team".to_owned(), told)], "{owner}: {pods}");
    }
}

/// The Eviction API does not support it, and which of the two has something left does not matter.
#[test]
fn d_018_pods_under_two_budgets_may_not_be_evicted() {
    let mut web = owner(OwnerKind::Deployment, "web", &[("app", "web")]);
    web.budget = Some(most("100%"));
    let api = owner(OwnerKind::Deployment, "api", &[("app", "api")]);
    let budgets = vec![("all", over(&[], most("100%")))];
    let mut cluster = Cluster::new(&timeline(vec![web, api], budgets));
    cluster.has(0, 2, 2);
    cluster.has(1, 2, 2);
    assert_eq!(
        (cluster.budgets.allow(0), cluster.budgets.allow(1)),
        (false, true)
    );
}

#[test]
fn a_budget_of_an_owner_gives_way_to_one_of_its_name_and_one_without_pods_is_left_out() {
    let mut web = owner(OwnerKind::Deployment, "web", &[("app", "web")]);
    web.budget = Some(most("1"));
    let api = owner(OwnerKind::Deployment, "api", &[("app", "api")]);
    let others = vec![
        ("gone", over(&[("app", "gone")], most("1"))),
        ("web", over(&[("app", "api")], most("2"))),
    ];
    let found = budgets(&timeline(vec![web, api], others));
    let told: Vec<(Option<String>, Vec<u32>)> = found
        .into_iter()
        .map(|(budget, owners)| (budget.metadata.name, owners))
        .collect();
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(told, [(named("web-own"), vec![0]), (named("web"), vec![1])]);
}

/// A DaemonSet has no scale: a budget over its pods, too, allows nothing where it asks for one.
#[test]
fn a_budget_over_daemons_has_no_scale() {
    let web = owner(OwnerKind::Deployment, "web", &[("app", "web")]);
    let timeline = timeline(vec![web.clone()], vec![("all", over(&[], most("1")))]);
    for (namespace, expected) in [("shop", false), ("kube-system", true)] {
        let set = json!({"metadata": {"namespace": namespace, "name": "agent"}, "spec": {"selector": {},
            "template": {"metadata": {"labels": {"app": "agent"}}}}});
        let set: DaemonSet = serde_json::from_value(set).unwrap();
        let mut budgets = Budgets::new(&timeline, &[Arc::new(set)]);
        let mut state = OwnerState::new(&web, 0);
        (state.replicas, state.ready) = (3, 3);
        budgets.count(0, &state);
        assert_eq!(budgets.allow(0), expected, "{namespace}");
    }
}
