//! Assuming things away is the same as changing their objects, or as waiting where only time removes them.

use crate::suppositions::hindered;
use crate::views::{freeze, judged, judged_at};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;
use spokeshave_api::conditions::{CONSOLIDATABLE, Conditioned as _, Status};
use spokeshave_api::{
    ConsolidationPolicy, NillableDuration, NodeClaim, NodePool, Operator, Requirement, labels,
};
use spokeshave_example::{bound, epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::ClusterState;
use spokeshave_plan::Policy;
use spokeshave_view::{Judged, Supposition, Toggle, detail};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A generated cluster with more in the way, also what rarely is: windows that have not passed, DisruptionPolicies, and, in NodePools that nothing else hinders,
/// scores, limits and minValues.
fn obstructed(seed: u64) -> ClusterState {
    let mut state = hindered(seed);
    for (index, claim) in (seed..).zip(&mut state.node_claims) {
        if index % 6 == 0 {
            Arc::make_mut(claim).set(CONSOLIDATABLE, Status::False, "NotConsolidatable", "", epoch());
        }
    }
    for (index, pool) in (seed..).zip(&mut state.node_pools) {
        let spec = &mut Arc::make_mut(pool).spec;
        match (index % 4, index / 4 % 3) {
            (3, 0) => spec.disruption.consolidation_policy = ConsolidationPolicy::Balanced,
            (3, 1) => spec.limits = serde_json::from_value(json!({"cpu": "1"})).expect("limits"),
            (3, _) => {
                let mut any_type = Requirement::new(labels::INSTANCE_TYPE, Operator::Exists, &[]);
                any_type.min_values = Some(3);
                spec.template.spec.requirements.push(any_type);
            }
            _ => {}
        }
    }
    if seed.is_multiple_of(4) {
        state.disruption_policies.push(freeze("freeze", &["pool-0"]));
    }
    state
}

fn pool<'a>(state: &'a mut ClusterState, name: &str) -> &'a mut NodePool {
    let mut pools = state.node_pools.iter_mut();
    let found = pools.find(|pool| pool.name() == name);
    Arc::make_mut(found.expect("it is there"))
}

/// consolidateAfter has passed on the nodes that are meant.
fn settle(state: &mut ClusterState, is_meant: impl Fn(&NodeClaim) -> bool) {
    let claims = state.node_claims.iter_mut().filter(|claim| is_meant(claim));
    claims.for_each(|claim| {
        Arc::make_mut(claim).set_true(CONSOLIDATABLE, epoch());
    });
}

/// Changes what a person would change to be rid of a blocker, and nothing else; false where no world of these tests has such a one.
fn edit(blocker: &Toggle, state: &mut ClusterState, policy: &mut Policy) -> bool {
    let (_, name) = blocker.object.split_once(' ').expect("a kind and a name");
    let is_it = |meta: &ObjectMeta| {
        let own = meta.name.as_deref().unwrap_or_default();
        let key = match &meta.namespace {
            Some(namespace) => format!("{namespace}/{own}"),
            None => own.to_owned(),
        };
        key == name
    };
    let unprotect = |meta: &mut ObjectMeta| {
        let annotations = meta.annotations.get_or_insert_default();
        annotations.remove("karpenter.sh/do-not-disrupt");
    };
    match blocker.code.as_str() {
        "PodDoNotDisrupt" => {
            let pods = state.pods.iter_mut().filter(|pod| is_it(&pod.metadata));
            pods.for_each(|pod| unprotect(&mut Arc::make_mut(pod).metadata));
        }
        "NodeDoNotDisrupt" => {
            let nodes = state.nodes.iter_mut().filter(|node| is_it(&node.metadata));
            nodes.for_each(|node| unprotect(&mut Arc::make_mut(node).metadata));
        }
        "Pod" => state.pods.retain(|pod| !is_it(&pod.metadata)),
        "PodDisruptionBudget" => state
            .pod_disruption_budgets
            .retain(|budget| !is_it(&budget.metadata)),
        "ConsolidationDisabled" => {
            let after = serde_json::from_value(json!("0s")).expect("a duration");
            pool(state, name).spec.disruption.consolidate_after = after;
            settle(state, |claim| claim.node_pool() == Some(name));
        }
        "ConsolidateAfter" => settle(state, |claim| claim.node_name() == Some(name)),
        "ConsolidationPolicy" | "Score" => {
            let when = serde_json::from_value(json!("WhenEmptyOrUnderutilized")).expect("a policy");
            pool(state, name).spec.disruption.consolidation_policy = when;
        }
        "Budget" => {
            let all = serde_json::from_value(json!([{"nodes": "100%"}])).expect("budgets");
            pool(state, name).spec.disruption.budgets = Some(all);
        }
        // Each world has one at most, which selects one NodePool.
        "DisruptionPolicy" => state.disruption_policies.clear(),
        "Limits" => pool(state, name).spec.limits = None,
        "MinValues" => {
            let requirements = &mut pool(state, name).spec.template.spec.requirements;
            requirements.iter_mut().for_each(|one| one.min_values = None);
        }
        "SpotToSpotDisabled" => policy.disrupt.spot_to_spot = true,
        _ => return false,
    }
    true
}

/// What is said of every node, with its price and what it would cost then, and what would be launched.
fn all_said(judged: &Judged) -> Vec<String> {
    let snapshot = &judged.snapshot;
    let nodes = snapshot.node_ids().map(|id| {
        let name = &snapshot.node(id).name;
        let said = judged.verdict(id).map(|verdict| {
            let blockers = verdict.blockers.iter();
            let blockers: Vec<String> = blockers.map(|one| one.message.clone()).collect();
            let (before, after) = (verdict.price_before, verdict.price_after);
            let decision = verdict.decision_text();
            let then = verdict.if_removed_text();
            format!("{decision} {before} {after} {blockers:?} {then}")
        });
        format!("{name}: {said:?}")
    });
    let launches = format!("launched for {}", judged.provisioned.report.price);
    nodes.chain([launches]).collect()
}

/// What may be assumed away of each node: every blocker by itself, and all that have a switch together.
fn switches(judged: &Judged) -> Vec<Vec<Toggle>> {
    let mut sets = Vec::new();
    for id in judged.snapshot.node_ids() {
        let name = &judged.snapshot.node(id).name;
        let mut blockers = detail(judged, name).expect("it is there").toggles;
        blockers.retain(|blocker| blocker.without.is_some());
        sets.extend(blockers.iter().map(|blocker| vec![blocker.clone()]));
        if blockers.len() > 1 {
            sets.push(blockers);
        }
    }
    sets
}

/// Switches do what changing their objects does, on all nodes: neither less nor more, each by itself and those of a node together.
#[test]
fn what_is_assumed_away_is_what_editing_the_objects_makes_of_it() {
    let mut changed: BTreeMap<String, usize> = BTreeMap::new();
    let mut together = 0;
    for seed in 0..200 {
        let before = judged(obstructed(seed));
        let said = all_said(&before);
        let mut known = BTreeSet::new();
        for blockers in switches(&before) {
            let keys = blockers.iter().filter_map(|blocker| blocker.without.clone());
            let keys: Vec<String> = keys.collect();
            let (mut world, mut policy) = (before.world.clone(), before.policy.clone());
            let mut edits = blockers.iter();
            if !known.insert(keys.clone())
                || !edits.all(|blocker| edit(blocker, &mut world.state, &mut policy))
            {
                continue;
            }
            let edited = all_said(&Judged::of(world, &policy));
            let supposition =
                Supposition::parse(keys.iter().map(String::as_str), []).expect("keys are made for this");
            let (world, policy, absent) = supposition
                .apply(&before.world, &before.policy)
                .expect("objects are there");
            assert!(absent.is_empty(), "{absent:?}");
            let assumed = all_said(&Judged::of(world, &policy));
            assert_eq!(assumed, edited, "seed {seed}: {keys:?}");
            // All of no nodes are none: a budget of a NodePool whose nodes are not initialized changes nothing.
            match blockers.as_slice() {
                _ if assumed == said => {}
                [alone] => *changed.entry(alone.code.clone()).or_default() += 1,
                _ => together += 1,
            }
        }
    }
    for (code, least) in [
        ("PodDoNotDisrupt", 3),
        ("Pod", 3),
        ("PodDisruptionBudget", 3),
        ("NodeDoNotDisrupt", 3),
        ("ConsolidationDisabled", 3),
        ("ConsolidationPolicy", 3),
        ("Score", 3),
        ("ConsolidateAfter", 3),
        ("Budget", 3),
        ("DisruptionPolicy", 3),
        ("Limits", 1),
        ("MinValues", 1),
        ("SpotToSpotDisabled", 3),
    ] {
        let times = changed.get(code).copied().unwrap_or_default();
        assert!(
            times >= least,
            "{code} made a difference {times} times: {changed:?}"
        );
    }
    assert!(together > 100, "{together} sets of switches prove little");
}

fn later(seconds: i64) -> Timestamp {
    epoch() + SignedDuration::from_secs(seconds)
}

fn claim<'a>(state: &'a mut ClusterState, node: &str) -> &'a mut NodeClaim {
    let mut claims = state.node_claims.iter_mut();
    let found = claims.find(|claim| claim.node_name() == Some(node));
    Arc::make_mut(found.expect("it is there"))
}

/// The pod of `a`, which has rested for an hour, fits on `b` only, which has to stay and is inside its consolidateAfter of ten minutes: the last pod came to it
/// then, or none since it was initialised. `c` is never consolidated.
fn restless(last_pod_event: Option<i64>) -> ClusterState {
    let small = instance_type("small", 2, 4, &["a"]);
    let pool = |name: &str, consolidate_after: NillableDuration| {
        let mut pool = node_pool(name);
        let on_demand = Requirement::new(labels::CAPACITY_TYPE, Operator::In, &["on-demand"]);
        pool.spec.template.spec.requirements = vec![on_demand];
        pool.spec.disruption.budgets = Some(Vec::new());
        pool.spec.disruption.consolidate_after = consolidate_after;
        pool
    };
    let ten_minutes = "10m".parse().expect("a duration");
    let of_waits = json!({"nodeSelector": {(labels::NODE_POOL): "waits"}});
    let of_b = json!({"nodeSelector": {(labels::HOSTNAME): "b"}});
    let mut state = ClusterState::default()
        .with_pool(pool("waits", ten_minutes), vec![small.clone()])
        .with_pool(pool("never", NillableDuration::NEVER), vec![small.clone()])
        .with_node(node("waits", "a", &small, "a", "on-demand"))
        .with_node(node("waits", "b", &small, "a", "on-demand"))
        .with_node(node("never", "c", &small, "a", "on-demand"))
        .with_pod(bound(pending_pod("moves", "1", "10Mi", &of_waits), "a"))
        .with_pod(bound(pending_pod("stays", "100m", "10Mi", &of_b), "b"));
    let event = |seconds| Time(later(seconds));
    let status = claim(&mut state, "a").status.get_or_insert_default();
    status.last_pod_event_time = Some(event(-3600));
    let status = claim(&mut state, "b").status.get_or_insert_default();
    status.last_pod_event_time = last_pod_event.map(event);
    for name in ["b", "c"] {
        claim(&mut state, name).clear(CONSOLIDATABLE);
    }
    state
}

fn decision(judged: &Judged, node: &str) -> &'static str {
    let id = judged.snapshot.find_node(node).expect("it is there");
    let verdict = judged.verdict(id).expect("it is managed");
    verdict.decision_text()
}

/// A node that is kept because its neighbour changed too recently goes once time has passed; the switch says so before, and says of no other node anything else than
/// is said then.
#[test]
fn d_044_that_neighbours_have_rested_is_assumed_as_it_is_once_they_have() {
    // When the last pod came to the neighbour, which may be in the future of a clock that was set back, and when its window closes.
    for (last_pod_event, closes) in [(Some(-60), 540), (None, 600), (Some(30), 630)] {
        let state = restless(last_pod_event);
        let before = judged(state.clone());
        assert_eq!(decision(&before, "a"), "keep");
        let toggles = detail(&before, "a").expect("it is there").toggles;
        let keys: Vec<&str> = toggles.iter().filter_map(|one| one.without.as_deref()).collect();
        assert_eq!((keys.as_slice(), toggles.len()), (&["Neighbours:Node/b"][..], 1));
        // Time alone: nothing of the objects has changed.
        let at = |seconds| decision(&judged_at(state.clone(), later(seconds)), "a");
        assert_eq!((at(closes - 1), at(closes)), ("keep", "delete"));
        // And what the controller writes then.
        let mut rested = state.clone();
        claim(&mut rested, "b").set_true(CONSOLIDATABLE, later(closes));
        let then = all_said(&judged_at(rested, later(closes)));
        // `b` takes pods, too, where its own consolidateAfter is assumed to have passed.
        for key in [keys[0], "ConsolidateAfter:Node/b"] {
            let supposition = Supposition::parse([key], []).expect("a switch");
            assert_eq!(supposition.without(), [key], "the address says it again");
            let (world, policy, absent) = supposition
                .apply(&before.world, &before.policy)
                .expect("objects are there");
            assert!(absent.is_empty(), "{absent:?}");
            let assumed = Judged::of(world, &policy);
            assert_eq!(decision(&assumed, "a"), "delete", "{key} {last_pod_event:?}");
            assert_eq!(all_said(&assumed), then, "{key} {last_pod_event:?}");
        }
    }
}
