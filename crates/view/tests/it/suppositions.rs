//! Assuming a blocker away gives the promised verdict, and changes nothing.

use crate::figures::mark;
use crate::views::{freeze, judged, unread, view};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use spokeshave_api::conditions::{Conditioned as _, LAUNCHABLE, READY, Status};
use spokeshave_api::{Budget, ConsolidationPolicy, NillableDuration};
use spokeshave_example::random_world;
use spokeshave_example::{bound, epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::{ClusterState, Price};
use spokeshave_plan::Policy;
use spokeshave_view::{Difference, Judged, MOST_SUPPOSED, NotLaunched, Supposition, World, detail};
use std::sync::Arc;

/// A generated cluster with more in the way: every rule that a change of an object removes.
pub(crate) fn hindered(seed: u64) -> ClusterState {
    let mut state = random_world(seed);
    let protect = |meta: &mut ObjectMeta| {
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned());
    };
    for (index, pod) in (seed..).zip(&mut state.pods) {
        if index % 7 == 0 {
            protect(&mut Arc::make_mut(pod).metadata);
        }
    }
    for (index, node) in (seed..).zip(&mut state.nodes) {
        if index % 5 == 0 {
            protect(&mut Arc::make_mut(node).metadata);
        }
    }
    for (index, pool) in (seed..).zip(&mut state.node_pools) {
        let disruption = &mut Arc::make_mut(pool).spec.disruption;
        match index % 4 {
            0 => disruption.budgets = Some(vec![Budget::always("0")]),
            1 => disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty,
            2 => disruption.consolidate_after = NillableDuration::NEVER,
            _ => {}
        }
    }
    if seed.is_multiple_of(3) {
        let budget = json!({"metadata": {"name": "all", "namespace": "default"}, "spec": {"maxUnavailable": 0, "selector": {}}, "status": {
            "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
        let budget = serde_json::from_value(budget).expect("a PodDisruptionBudget");
        state.pod_disruption_budgets.push(Arc::new(budget));
    }
    state
}

/// A blocker that was found by thinking it away is really away when its object is changed: the verdict is the one that `ifRemoved` promises.
#[test]
fn what_is_promised_without_the_blockers_is_what_happens_without_them() {
    let (mut asked, mut equal) = (0, 0);
    let mut others = Vec::new();
    for seed in 0..200 {
        let before = judged(hindered(seed));
        for id in before.snapshot.node_ids() {
            let name = before.snapshot.node(id).name.clone();
            let Some(then) = before.verdict(id).and_then(|verdict| verdict.if_removed.clone()) else {
                continue;
            };
            let toggles = detail(&before, &name).expect("it is there").toggles;
            let keys: Option<Vec<&str>> = toggles.iter().map(|toggle| toggle.without.as_deref()).collect();
            // A pod that fits nowhere is removed itself; then others can move as well.
            let Some(keys) =
                keys.filter(|keys| !keys.is_empty() && keys.iter().all(|key| !key.starts_with("Pod:")))
            else {
                continue;
            };
            let supposition = Supposition::parse(keys.iter().copied(), []).expect("keys are made for this");
            let (world, policy, _) = supposition
                .apply(&before.world, &before.policy)
                .expect("objects are there");
            let after = Judged::of(world, &policy);
            let id = after.snapshot.find_node(&name).expect("nodes stay");
            let verdict = after.verdict(id).expect("it is managed");
            asked += 1;
            if (verdict.decision, verdict.price_after) == (then.decision, then.price_after) {
                equal += 1;
            } else {
                others.push(format!(
                    "seed {seed} {name} {keys:?}: promised {:?}, came {:?} {:?}",
                    then.decision, verdict.decision, verdict.blockers
                ));
            }
        }
    }
    assert!(asked > 30, "{asked} what-ifs prove little");
    assert_eq!(equal, asked, "{others:#?}");
}

fn guarded() -> ClusterState {
    let kind = instance_type("small", 2, 8, &["a"]);
    let pod = |name: &str, annotation: &str| {
        let mut pod = bound(pending_pod(name, "100m", "64Mi", &json!({})), "one");
        pod.metadata.annotations = Some([(annotation.to_owned(), "true".to_owned())].into());
        pod
    };
    ClusterState::default()
        .with_pool(node_pool("default"), vec![kind.clone()])
        .with_node(node("default", "one", &kind, "a", "spot"))
        .with_node(node("default", "two", &kind, "a", "spot"))
        .with_pod(pod("guard", "karpenter.sh/do-not-disrupt"))
        .with_pod(pod("plain", "x"))
}

#[test]
fn a_guarded_node_goes_without_its_guard_and_the_cluster_stays_as_it_is() {
    let before = judged(guarded());
    let toggles = detail(&before, "one").unwrap().toggles;
    let keys: Vec<&str> = toggles
        .iter()
        .filter_map(|toggle| toggle.without.as_deref())
        .collect();
    assert_eq!(keys, ["PodDoNotDisrupt:Pod/default/guard"]);
    let supposition = Supposition::parse(keys, []).unwrap();
    let untouched = before.world.state.pods.clone();
    let (world, policy, _) = supposition.apply(&before.world, &before.policy).unwrap();
    let after = Judged::of(world, &policy);
    assert_eq!(before.world.state.pods, untouched);
    let difference = Difference::between(&before, &after);
    let one = difference
        .verdicts
        .iter()
        .find(|change| change.node == "one")
        .expect("it changes");
    assert_eq!((one.before, one.after), (Some("keep"), Some("delete")));
    assert!(difference.could_save_after > difference.could_save_before);
}

#[test]
fn the_pods_of_a_node_that_is_gone_come_back_and_wait() {
    let before = judged(guarded());
    let supposition = Supposition::parse([], ["Node/one", "Node/two"]).unwrap();
    let (world, policy, _) = supposition.apply(&before.world, &before.policy).unwrap();
    let after = Judged::of(world, &policy);
    assert!(after.snapshot.nodes.is_empty());
    let difference = Difference::between(&before, &after);
    assert_eq!((difference.launches, difference.unplaced_after), (1, 0));
    assert!(difference.price_after.0 > Price::ZERO && difference.price_after < difference.price_before);
    // A removed zone has no offerings either.
    let zone = Supposition::parse([], ["Zone/a"]).unwrap();
    let (world, policy, _) = zone.apply(&before.world, &before.policy).unwrap();
    let after = Judged::of(world, &policy);
    assert_eq!(Difference::between(&before, &after).unplaced_after, 2);
}

/// What is missing of a fixed number of nodes is made up for at once: to be without one of them saves nothing.
#[test]
fn d_356_a_node_of_a_fixed_number_that_is_gone_is_launched_again() {
    let (small, large) = (
        instance_type("small", 2, 8, &["a", "b"]),
        instance_type("large", 16, 64, &["a", "b"]),
    );
    let mut pool = node_pool("fixed");
    pool.spec.replicas = Some(2);
    let mut state = ClusterState::default().with_pool(pool, vec![large, small.clone()]);
    for name in ["one", "two"] {
        state = state.with_node(node("fixed", name, &small, "a", "spot"));
    }
    let gone = |before: &Judged, what: &str| {
        let supposition = Supposition::parse([], [what]).unwrap();
        let (world, policy, _) = supposition.apply(&before.world, &before.policy).unwrap();
        Difference::between(before, &Judged::of(world, &policy))
    };
    let known = judged(state.clone());
    assert_eq!(Difference::between(&known, &known).launches, 0, "there are two");
    // What forbids disruptions has no say in it; and what cannot be launched there any more comes in the other zone.
    let guarded = unread(state.clone(), "poddisruptionbudgets.policy");
    for (before, what, launches) in [
        (&known, "Node/one", 1),
        (&guarded, "Node/one", 1),
        (&known, "Zone/a", 2),
    ] {
        let difference = gone(before, what);
        assert_eq!(difference.launches, launches, "{what}");
        assert!(difference.price_before.0 > Price::ZERO);
        assert_eq!(difference.price_after, difference.price_before, "{what}");
        assert_eq!(difference.nodes_without_price_after, 0, "{what}");
    }
    // A price that nobody knows is none.
    for types in state.instance_types.values_mut() {
        let mut unpriced = types.as_ref().unwrap().to_vec();
        for offering in unpriced.iter_mut().flat_map(|one| &mut one.offerings) {
            offering.price = Price::UNKNOWN;
        }
        *types = Ok(unpriced.into());
    }
    let difference = gone(&judged(state), "Node/one");
    let unpriced = (
        difference.nodes_without_price_before,
        difference.nodes_without_price_after,
    );
    assert_eq!((difference.launches, unpriced), (1, (2, 2)));
}

/// A fixed number of nodes is no promise where nothing can be launched: what would then be missing is named with its reason, and costs nothing.
#[test]
fn invariant_24_d_356_a_node_of_a_fixed_number_that_cannot_be_launched_again_is_missing() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut pool = node_pool("fixed");
    pool.spec.replicas = Some(3);
    // One is missing as it is.
    let mut state = ClusterState::default().with_pool(pool.clone(), vec![kind.clone()]);
    for name in ["one", "two"] {
        state = state.with_node(node("fixed", name, &kind, "a", "spot"));
    }
    let gone = |state: &ClusterState, what: &str| {
        let before = judged(state.clone());
        let supposition = Supposition::parse([], [what]).unwrap();
        let (world, policy, _) = supposition.apply(&before.world, &before.policy).unwrap();
        Difference::between(&before, &Judged::of(world, &policy))
    };
    let again = gone(&state, "Node/one");
    assert_eq!((again.launches, again.not_launched), (1, Vec::new()));
    let zone = gone(&state, "Zone/a");
    assert_eq!((zone.launches, zone.price_after.0), (0, Price::ZERO));
    let [missing] = zone.not_launched.as_slice() else {
        panic!("{zone:?}");
    };
    assert_eq!((missing.node_pool.as_str(), missing.nodes), ("fixed", 3));
    assert!(
        missing.message.ends_with("has no available offering"),
        "{missing:?}"
    );
    // The operator tries in vain: what is missing already is not told as missing without the node.
    let why = "none is left; tried again at 2026-01-01T00:00:30Z";
    pool.set(LAUNCHABLE, Status::False, "LaunchesFail", why, epoch());
    pool.set(READY, Status::True, "Ready", "", epoch());
    state.node_pools = vec![Arc::new(pool)];
    let short = gone(&state, "Node/one");
    assert_eq!(short.launches, 0);
    assert!(short.price_after < short.price_before);
    let missing = NotLaunched {
        node_pool: "fixed".to_owned(),
        nodes: 1,
        message: why.to_owned(),
    };
    assert_eq!(short.not_launched, [missing]);
}

/// What has finished on a node asks for no place when the node is gone, and neither does what is being deleted.
#[test]
fn pods_that_have_finished_do_not_come_back() {
    let mut state = guarded();
    let node = "one".to_owned();
    for (name, phase, deleted) in [
        ("done", "Succeeded", false),
        ("broken", "Failed", false),
        ("last", "Running", true),
    ] {
        let mut pod = bound(pending_pod(name, "4", "1Gi", &json!({})), &node);
        pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        if deleted {
            pod.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(epoch()));
        }
        state.pods.push(Arc::new(pod));
    }
    let before = judged(state);
    let supposition = Supposition::parse([], ["Node/one", "Node/two"]).unwrap();
    let (world, policy, _) = supposition.apply(&before.world, &before.policy).unwrap();
    let names: Vec<String> = world
        .state
        .pods
        .iter()
        .map(|pod| spokeshave_model::pod::key(pod))
        .collect();
    for gone in ["done", "broken", "last"] {
        assert!(!names.iter().any(|name| name.ends_with(gone)), "{names:?}");
    }
    let after = Judged::of(world, &policy);
    assert_eq!(Difference::between(&before, &after).launches, 1);
}

#[test]
fn what_cannot_be_thought_away_is_named() {
    let world = World {
        state: guarded(),
        now: epoch(),
        ..World::default()
    };
    for wrong in [
        "",
        "Pod",
        "NotCheaper:Node/one",
        "PodDoNotDisrupt:Node/one",
        "PodDoNotDisrupt:Pod/",
    ] {
        let error = Supposition::parse([wrong], []).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{wrong:?}")) && error.contains("expected"),
            "{error}"
        );
    }
    assert!(Supposition::parse([], ["Moon/x"]).is_err());
    let many: Vec<String> = (0..=MOST_SUPPOSED)
        .map(|number| format!("Pod:Pod/default/p{number}"))
        .collect();
    let parse = |keys: &[String]| Supposition::parse(keys.iter().map(String::as_str), []);
    assert!(parse(&many).is_err());
    assert!(parse(&many[1..]).is_ok());
    for absent in [
        "Pod:Pod/default/none",
        "Budget:NodePool/none",
        "NodeDoNotDisrupt:Node/none",
        "PodDisruptionBudget:PodDisruptionBudget/a/b",
    ] {
        let supposition = Supposition::parse([absent], []).unwrap();
        let error = supposition
            .apply(&world, &Policy::default())
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("is not in the cluster (any more)"), "{error}");
    }
}

/// An address that was sent goes on telling what it can: what has gone since is named, and the rest is assumed away.
#[test]
fn what_is_gone_meanwhile_is_named_and_the_rest_is_assumed_away() {
    let before = judged(guarded());
    let guard = "PodDoNotDisrupt:Pod/default/guard";
    let supposition = Supposition::parse([guard, "Pod:Pod/default/none"], ["Zone/moon"]).unwrap();
    let (world, policy, absent) = supposition.apply(&before.world, &before.policy).unwrap();
    assert_eq!(absent, ["Pod:Pod/default/none", "Zone/moon"]);
    let difference = Difference::between(&before, &Judged::of(world, &policy));
    let mut verdicts = difference.verdicts.iter();
    assert!(verdicts.any(|one| one.node == "one" && one.after == Some("delete")));
}

/// The switch is that of one NodePool: policies of others stand.
#[test]
fn policies_are_lifted_for_the_nodepool_of_the_switch() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut state = ClusterState::default();
    for name in ["one", "two", "three"] {
        state = state
            .with_pool(node_pool(name), vec![kind.clone()])
            .with_node(node(name, &format!("n-{name}"), &kind, "a", "spot"));
    }
    state.disruption_policies = vec![freeze("first", &["one", "three"]), freeze("second", &["two"])];
    let before = judged(state);
    let key = "DisruptionPolicy:NodePool/one";
    let toggles = detail(&before, "n-one").unwrap().toggles;
    let toggle = toggles.iter().find(|one| one.without.as_deref() == Some(key));
    let said = &toggle.expect("it is frozen").message;
    let too = "the policies that select it are lifted for three too)";
    assert!(said.ends_with(too), "{said}");
    let supposition = Supposition::parse([key], []).unwrap();
    let (world, policy, _) = supposition.apply(&before.world, &before.policy).unwrap();
    let left = world.state.disruption_policies.iter();
    let left: Vec<&str> = left.map(|policy| policy.name()).collect();
    assert_eq!(left, ["second"]);
    let difference = Difference::between(&before, &Judged::of(world, &policy));
    let mut changed: Vec<&str> = difference.verdicts.iter().map(|one| one.node.as_str()).collect();
    changed.sort_unstable();
    assert_eq!(changed, ["n-one", "n-three"]);
    let none = Supposition::parse(["DisruptionPolicy:NodePool/none"], []).unwrap();
    assert!(none.apply(&before.world, &before.policy).is_err());
}

/// A node that is on its way out saves nothing more, with switches or without.
#[test]
fn nodes_that_leave_count_in_no_saving_of_a_what_if() {
    let mut state = guarded();
    mark(&mut state, "two");
    let before = judged(state);
    let seen = view(&before, 1);
    let difference = Difference::between(&before, &before);
    let possible = seen.header.possible_savings();
    assert_eq!(difference.could_save_before.0, possible);
    assert_eq!(difference.could_save_after.0, possible);
}

/// What only another switch has removed was there: it is no error of who asks, and nothing that has gone meanwhile.
#[test]
fn what_only_another_switch_removes_is_not_absent() {
    let kind = instance_type("small", 2, 8, &["a", "b"]);
    let mut state = ClusterState::default();
    for (name, zone) in [("one", "a"), ("two", "b")] {
        state = state
            .with_pool(node_pool(name), vec![kind.clone()])
            .with_node(node(name, &format!("n-{name}"), &kind, zone, "spot"));
    }
    state.disruption_policies = vec![freeze("both", &["one", "two"])];
    let before = judged(state);
    let switches = ["DisruptionPolicy:NodePool/one", "DisruptionPolicy:NodePool/two"];
    let machines = ["Node/n-one", "Zone/a", "Zone/moon"];
    let supposition = Supposition::parse(switches, machines).unwrap();
    let (world, _, absent) = supposition.apply(&before.world, &before.policy).unwrap();
    assert_eq!(absent, ["Zone/moon"]);
    assert!(world.state.disruption_policies.is_empty());
    let names = world.state.nodes.iter().map(|node| node.metadata.name.as_deref());
    assert_eq!(names.collect::<Vec<_>>(), [Some("n-two")]);
    // Nothing comes there either, as without the switch of its machine.
    let zone = Supposition::parse([], ["Zone/a"]).unwrap();
    let (alone, _, _) = zone.apply(&before.world, &before.policy).unwrap();
    assert_eq!(world.state.instance_types, alone.state.instance_types);
    assert_ne!(world.state.instance_types, before.world.state.instance_types);
}
