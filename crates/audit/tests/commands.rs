//! Commands that are wrong in one way each: the audit must name it, and nothing else. And those that are right.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use spokeshave_api::{Budget, DisruptionReason, NodeClaim};
use spokeshave_audit::{CommandCheck, check_command};
use spokeshave_example::{bound, epoch, instance_type, labelled, node, node_pool, offering, pending_pod};
use spokeshave_model::placement::{Launch, Placements, PlannedClaim};
use spokeshave_model::snapshot::{NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::{
    ClusterState, InstanceType, Pod, Price, Requirement, ResourceName, Resources, labels, lower,
};
use std::sync::Arc;

/// What an hour of a `small` node costs in nano-dollars.
const SMALL: i64 = 80_000_000;

const PROTECTED: &str = "karpenter.sh/do-not-disrupt";

const NOTHING: [&str; 0] = [];

/// As large as `small`, at prices of its own on-demand and spot; without a price it is not to be had that way.
fn sold_at(name: &str, on_demand: Option<i64>, spot: Option<i64>) -> InstanceType {
    let mut kind = instance_type(name, 2, 4, &["a"]);
    kind.offerings = [("on-demand", on_demand), ("spot", spot)]
        .map(|(capacity_type, price)| {
            let mut one = offering("a", capacity_type, Price(price.unwrap_or(1)));
            one.available = price.is_some();
            one
        })
        .into();
    kind
}

/// Running pod `name` on a node.
fn pod(name: &str, on: &str, cpu: &str) -> Pod {
    let pod = labelled(pending_pod(name, cpu, "100Mi", &json!({})), &[("app", name)]);
    bound(pod, on)
}

/// Small nodes `a`, with pod `p` on it, and `b`, which has room for that; `types` are sold beside.
fn selling(types: Vec<InstanceType>) -> ClusterState {
    let mut pool = node_pool("default");
    pool.spec.disruption.budgets = Some(vec![Budget::always("100%")]);
    let small = instance_type("small", 2, 4, &["a"]);
    let mut all = vec![small.clone()];
    all.extend(types);
    ClusterState::default()
        .with_pool(pool, all)
        .with_node(node("default", "a", &small, "a", "on-demand"))
        .with_node(node("default", "b", &small, "a", "on-demand"))
        .with_pod(pod("p", "a", "1"))
}

fn two_nodes() -> ClusterState {
    selling(Vec::new())
}

fn edit_node(state: &mut ClusterState, name: &str, edit: impl Fn(&mut Node)) {
    for node in &mut state.nodes {
        if node.metadata.name.as_deref() == Some(name) {
            edit(Arc::make_mut(node));
        }
    }
}

fn edit_claim(state: &mut ClusterState, node: &str, edit: impl Fn(&mut NodeClaim)) {
    for claim in &mut state.node_claims {
        if claim.name() == format!("claim-{node}") {
            edit(Arc::make_mut(claim));
        }
    }
}

/// With pods that are annotated do-not-disrupt.
fn protected(mut state: ClusterState, value: &str) -> ClusterState {
    for pod in &mut state.pods {
        let annotations = Arc::make_mut(pod).metadata.annotations.get_or_insert_default();
        annotations.insert(PROTECTED.to_owned(), value.to_owned());
    }
    state
}

/// With a deadline for draining node `a`.
fn with_grace(mut state: ClusterState) -> ClusterState {
    edit_claim(&mut state, "a", |claim| {
        claim.spec.termination_grace_period = "1h".parse().ok();
    });
    state
}

fn not_ready(mut state: ClusterState, name: &str) -> ClusterState {
    edit_node(&mut state, name, |node| {
        let status = node.status.get_or_insert_default();
        for condition in status.conditions.iter_mut().flatten() {
            condition.status = "False".to_owned();
        }
    });
    state
}

fn not_initialized(mut state: ClusterState, name: &str) -> ClusterState {
    edit_node(&mut state, name, |node| {
        let labels = node.metadata.labels.get_or_insert_default();
        labels.remove(labels::INITIALIZED);
    });
    state
}

fn with_budgets(mut state: ClusterState, budgets: &Value) -> ClusterState {
    for pool in &mut state.node_pools {
        let budgets = serde_json::from_value(budgets.clone()).expect("budgets");
        Arc::make_mut(pool).spec.disruption.budgets = Some(budgets);
    }
    state
}

/// With a PodDisruptionBudget for pod `p`.
fn with_pod_budget(mut state: ClusterState, name: &str, allowed: i32) -> ClusterState {
    let budget = json!({"metadata": {"namespace": "default", "name": name},
        "spec": {"selector": {"matchLabels": {"app": "p"}}, "maxUnavailable": 1},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    let budget = serde_json::from_value(budget).expect("a budget");
    state.pod_disruption_budgets.push(Arc::new(budget));
    state
}

/// What comes: it would be launched as one of these types, in the order of `small` and those beside it.
fn claim(types: &[usize], capacity_types: &[&str], pods: &[u32]) -> PlannedClaim {
    let launch = |index: &usize| Launch {
        instance_type: *index,
        zone: None,
        capacity_type: None,
        // The audit believes offerings, not the plan.
        price: Price(1),
    };
    let allowed = Requirement::one_of(labels::CAPACITY_TYPE, capacity_types.iter().copied());
    PlannedClaim {
        pool: PoolId(0),
        pods: pods.iter().map(|pod| PodId(*pod)).collect(),
        launches: types.iter().map(launch).collect(),
        requirements: [allowed].into_iter().collect(),
        capacity_types: capacity_types.iter().map(ToString::to_string).collect(),
        requests: Resources::new(),
        min_values_relaxed: false,
    }
}

/// A command, with nodes by name and pods by number: pods are numbered in the order of their names.
struct Asked {
    nodes: &'static [&'static str],
    existing: &'static [(&'static str, u32)],
    claims: Vec<PlannedClaim>,
    reason: DisruptionReason,
    is_consolidation: bool,
    places_pods: bool,
    now: Timestamp,
}

/// To delete node `a` because pod `p` fits on `b`.
fn consolidation() -> Asked {
    Asked {
        nodes: &["a"],
        existing: &[("b", 0)],
        claims: Vec::new(),
        reason: DisruptionReason::Underutilized,
        is_consolidation: true,
        places_pods: true,
        now: epoch(),
    }
}

/// To delete node `a`, which has drifted, because pod `p` fits on `b`.
fn drift() -> Asked {
    Asked {
        reason: DisruptionReason::Drifted,
        is_consolidation: false,
        ..consolidation()
    }
}

/// The same without a place for any pod.
fn placing_nothing(asked: Asked) -> Asked {
    Asked {
        existing: &[],
        ..asked
    }
}

/// To replace `nodes` by these.
fn replacing(nodes: &'static [&'static str], claims: Vec<PlannedClaim>) -> Asked {
    Asked {
        nodes,
        claims,
        ..placing_nothing(consolidation())
    }
}

fn id(snapshot: &Snapshot, name: &str) -> NodeId {
    snapshot.find_node(name).expect("a node of that name")
}

fn found(state: &ClusterState, asked: &Asked) -> Vec<String> {
    let snapshot = lower(state);
    let nodes: Vec<NodeId> = asked.nodes.iter().map(|name| id(&snapshot, name)).collect();
    let mut placements = Placements {
        claims: asked.claims.clone(),
        ..Placements::default()
    };
    for (node, pod) in asked.existing {
        let pods = placements.existing.entry(id(&snapshot, node)).or_default();
        pods.push(PodId(*pod));
    }
    let check = CommandCheck {
        nodes: &nodes,
        placements: &placements,
        reason: asked.reason.clone(),
        is_consolidation: asked.is_consolidation,
        places_pods: asked.places_pods,
    };
    let violations = check_command(&snapshot, &check, asked.now);
    violations.iter().map(ToString::to_string).collect()
}

/// A command whose replacements are not cheaper.
fn dear(after: i64, before: i64) -> Vec<String> {
    vec![format!(
        "command: what comes could cost {after} n$/h, what goes costs {before} n$/h"
    )]
}

#[test]
fn a_right_command_passes() {
    assert_eq!(found(&two_nodes(), &consolidation()), NOTHING);
    assert_eq!(found(&two_nodes(), &drift()), NOTHING);
}

#[test]
fn only_a_managed_initialised_node_that_stays_otherwise_may_go() {
    let mut unmanaged = two_nodes();
    unmanaged.node_claims.retain(|claim| claim.name() != "claim-a");
    assert_eq!(
        found(&unmanaged, &consolidation()),
        ["a: goes although it has no NodeClaim"]
    );
    let mut leaving = two_nodes();
    leaving.marked_for_deletion.insert("kwok://a".to_owned());
    assert_eq!(
        found(&leaving, &consolidation()),
        ["a: goes although it is going already"]
    );
    assert_eq!(
        found(&not_initialized(two_nodes(), "a"), &consolidation()),
        ["a: goes although it is not initialized"]
    );
}

#[test]
fn d_009_a_node_that_is_annotated_do_not_disrupt_goes_for_no_reason() {
    let with = |value: &str| {
        let mut state = with_grace(two_nodes());
        edit_node(&mut state, "a", |node| {
            let annotations = node.metadata.annotations.get_or_insert_default();
            annotations.insert(PROTECTED.to_owned(), value.to_owned());
        });
        state
    };
    for asked in [consolidation(), drift()] {
        assert_eq!(
            found(&with("true"), &asked),
            ["a: goes although it is annotated do-not-disrupt"],
            "{}",
            asked.reason
        );
        assert_eq!(
            found(&with("True"), &asked),
            NOTHING,
            "it means nothing on a node"
        );
    }
}

/// A protected pod needs no place: it does not leave.
#[test]
fn d_011_d_029_a_protected_pod_keeps_its_node_unless_that_has_drifted_and_has_a_deadline() {
    const KEPT: [&str; 1] = ["a: pod default/p: is protected by do-not-disrupt"];
    let always = protected(two_nodes(), "true");
    let with_deadline = with_grace(always.clone());
    assert_eq!(found(&always, &placing_nothing(consolidation())), KEPT);
    assert_eq!(found(&with_deadline, &placing_nothing(consolidation())), KEPT);
    assert_eq!(found(&always, &placing_nothing(drift())), KEPT);
    assert_eq!(found(&with_deadline, &placing_nothing(drift())), NOTHING);

    let for_ten_minutes = protected(two_nodes(), "10m");
    let after = |seconds: i64, asked: Asked| {
        let now = epoch() + SignedDuration::from_secs(seconds);
        found(&for_ten_minutes, &Asked { now, ..asked })
    };
    assert_eq!(after(599, placing_nothing(consolidation())), KEPT);
    assert_eq!(after(600, consolidation()), NOTHING);

    let mut finished = always;
    for pod in &mut finished.pods {
        let status = Arc::make_mut(pod).status.get_or_insert_default();
        status.phase = Some("Succeeded".to_owned());
    }
    assert_eq!(found(&finished, &placing_nothing(consolidation())), NOTHING);
}

#[test]
fn d_018_d_019_d_029_a_pod_disruption_budget_keeps_the_node() {
    const KEPT: [&str; 1] = ["a: pod default/p: is kept by a PodDisruptionBudget"];
    assert_eq!(
        found(&with_pod_budget(two_nodes(), "one", 1), &consolidation()),
        NOTHING
    );
    let spent = with_pod_budget(two_nodes(), "one", 0);
    assert_eq!(found(&spent, &consolidation()), KEPT);
    assert_eq!(found(&spent, &drift()), KEPT);
    assert_eq!(found(&with_grace(spent.clone()), &consolidation()), KEPT);
    assert_eq!(found(&with_grace(spent), &drift()), NOTHING);
    let two = with_pod_budget(with_pod_budget(two_nodes(), "one", 1), "two", 1);
    assert_eq!(
        found(&two, &placing_nothing(consolidation())),
        KEPT,
        "Kubernetes refuses such an eviction"
    );
}

#[test]
fn invariant_2_the_budgets_of_the_nodepool_hold_for_the_reason() {
    let beyond = |reason: &str, disrupted: i64, allowed: i64| {
        vec![format!(
            "nodepool default: 1 node(s) would go as {reason} and {disrupted} are disrupted, but budgets allow {allowed}"
        )]
    };
    let of = |nodes: &str| with_budgets(two_nodes(), &json!([{ "nodes": nodes }]));
    assert_eq!(found(&of("0"), &consolidation()), beyond("Underutilized", 0, 0));
    assert_eq!(found(&of("1"), &consolidation()), NOTHING);
    assert_eq!(found(&of("50%"), &consolidation()), NOTHING, "of both nodes");
    assert_eq!(
        found(&not_ready(of("1"), "b"), &consolidation()),
        beyond("Underutilized", 1, 1)
    );
    let mut leaving = of("1");
    leaving.marked_for_deletion.insert("kwok://b".to_owned());
    // Not to `b`, which goes itself.
    let static_drift = Asked {
        places_pods: false,
        ..placing_nothing(drift())
    };
    assert_eq!(found(&leaving, &static_drift), beyond("Drifted", 1, 1));
    let no_drift = with_budgets(two_nodes(), &json!([{"nodes": "0", "reasons": ["Drifted"]}]));
    assert_eq!(found(&no_drift, &consolidation()), NOTHING);
    assert_eq!(found(&no_drift, &drift()), beyond("Drifted", 0, 0));
}

#[test]
fn invariant_8_every_pod_that_leaves_has_a_place() {
    const HOMELESS: [&str; 1] = ["command: pod default/p: would leave its node without having a place"];
    assert_eq!(found(&two_nodes(), &placing_nothing(consolidation())), HOMELESS);
    assert_eq!(found(&two_nodes(), &placing_nothing(drift())), HOMELESS);
    let static_drift = Asked {
        places_pods: false,
        ..placing_nothing(drift())
    };
    assert_eq!(found(&two_nodes(), &static_drift), NOTHING);
    let mut daemon = two_nodes();
    for pod in &mut daemon.pods {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]);
        Arc::make_mut(pod).metadata.owner_references = serde_json::from_value(owner).ok();
    }
    assert_eq!(
        found(&daemon, &placing_nothing(consolidation())),
        NOTHING,
        "the next node has one of its own"
    );
}

#[test]
fn d_073_d_081_pods_go_only_where_they_can_stay() {
    let onto_itself = Asked {
        existing: &[("a", 0)],
        ..consolidation()
    };
    assert_eq!(
        found(&two_nodes(), &onto_itself),
        [
            "a: receives pods although it goes",
            "a: receives pods while it is going away"
        ]
    );
    assert_eq!(
        found(&not_initialized(two_nodes(), "b"), &consolidation()),
        ["b: receives pods although it is not initialized"]
    );
    let mut leaving = two_nodes();
    leaving.marked_for_deletion.insert("kwok://b".to_owned());
    assert_eq!(
        found(&leaving, &consolidation()),
        ["b: receives pods while it is going away"]
    );
    let full = two_nodes().with_pod(pod("q", "b", "1100m"));
    assert_eq!(
        found(&full, &consolidation()),
        ["b: b needs cpu 2100m but b has 1900m"]
    );
}

#[test]
fn d_078_limits_hold_once_the_nodes_are_gone() {
    let limited = |cores: i64| {
        let mut state = selling(vec![sold_at("other", Some(SMALL / 2), None)]);
        for pool in &mut state.node_pools {
            let limits = Resources::from_amounts([(ResourceName::CPU, cores * 1000)]);
            Arc::make_mut(pool).spec.limits = Some(limits.to_quantities());
        }
        state
    };
    let asked = replacing(&["a"], vec![claim(&[1], &["on-demand"], &[0])]);
    assert_eq!(found(&limited(4), &asked), NOTHING, "two cores go, two come");
    assert_eq!(
        found(&limited(3), &asked),
        ["nodepool default: limit cpu 3 could be exceeded: 4"]
    );
}

#[test]
fn invariant_16_d_145_d_146_what_comes_is_cheaper_whatever_it_is_launched_as() {
    let on_demand = |price: i64| sold_at("other", Some(price), None);
    let one = replacing(&["a"], vec![claim(&[1], &["on-demand"], &[0])]);
    let at = |price: i64| found(&selling(vec![on_demand(price)]), &one);
    assert_eq!(at(SMALL), dear(SMALL, SMALL), "as dear is not cheaper");
    assert_eq!(at(SMALL - 1), NOTHING);
    let because_of_drift = Asked {
        claims: one.claims.clone(),
        ..placing_nothing(drift())
    };
    let as_dear = selling(vec![on_demand(SMALL)]);
    assert_eq!(found(&as_dear, &because_of_drift), NOTHING);

    // The dearest of the types counts, wherever it stands.
    let two_types = selling(vec![
        sold_at("dear", Some(SMALL + 5), None),
        sold_at("cheap", Some(1000), None),
    ]);
    for types in [[1, 2], [2, 1]] {
        let either = replacing(&["a"], vec![claim(&types, &["on-demand"], &[0])]);
        assert_eq!(found(&two_types, &either), dear(SMALL + 5, SMALL));
    }

    // Spot is bought before on-demand, if it may be and is to be had.
    let both = replacing(&["a"], vec![claim(&[1], &["on-demand", "spot"], &[0])]);
    let with_spot = selling(vec![sold_at("other", Some(SMALL + 7), Some(1000))]);
    assert_eq!(found(&with_spot, &both), NOTHING);
    assert_eq!(found(&with_spot, &one), dear(SMALL + 7, SMALL));
    let without_spot = selling(vec![on_demand(SMALL + 7)]);
    assert_eq!(found(&without_spot, &both), dear(SMALL + 7, SMALL));
}

#[test]
fn invariant_16_d_145_all_that_comes_counts_against_all_that_goes() {
    let two_pods = |price: i64| {
        let other = sold_at("other", Some(price), None);
        selling(vec![other]).with_pod(pod("q", "a", "100m"))
    };
    let coming = vec![
        claim(&[1], &["on-demand"], &[0]),
        claim(&[1], &["on-demand"], &[1]),
    ];
    let one_goes = replacing(&["a"], coming.clone());
    assert_eq!(found(&two_pods(SMALL / 2), &one_goes), dear(SMALL, SMALL));
    assert_eq!(found(&two_pods(SMALL / 2 - 1), &one_goes), NOTHING);
    let both_go = replacing(&["a", "b"], coming);
    assert_eq!(found(&two_pods(SMALL), &both_go), dear(2 * SMALL, 2 * SMALL));
    assert_eq!(found(&two_pods(SMALL - 1), &both_go), NOTHING);
}

#[test]
fn w_07_a_node_whose_type_is_not_sold_any_more_costs_what_it_did_at_launch() {
    let mut state = selling(vec![sold_at("other", Some(SMALL / 2), None)]);
    edit_node(&mut state, "a", |node| {
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert(labels::ZONE.to_owned(), "closed".to_owned());
    });
    edit_claim(&mut state, "a", |claim| {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert("spokeshave.dev/price-at-launch".to_owned(), "0.03".to_owned());
    });
    let asked = replacing(&["a"], vec![claim(&[1], &["on-demand"], &[0])]);
    assert_eq!(found(&state, &asked), dear(SMALL / 2, 30_000_000));
}

#[test]
fn w_07_d_364_a_price_of_nothing_is_one_where_something_is_sold_for_it_or_an_overlay_says_so() {
    let asked = replacing(&["a"], vec![claim(&[1], &["on-demand"], &[0])]);
    for (is_sold, is_overlaid, before) in [
        (true, false, 0),
        (false, true, 0),
        // Nobody knows what it costs.
        (false, false, 30_000_000),
    ] {
        let mut state = selling(Vec::new());
        let mut small = instance_type("small", 2, 4, &["a"]);
        for offering in &mut small.offerings {
            (offering.price, offering.available) = (Price::ZERO, is_sold);
            offering.overlaid = is_overlaid;
        }
        // Of another offering an overlay says something in each case.
        small.overlaid.price = true;
        let types: Vec<InstanceType> = vec![small, sold_at("other", Some(SMALL / 2), None)];
        state
            .instance_types
            .insert("default".to_owned(), Ok(types.into()));
        edit_claim(&mut state, "a", |claim| {
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert("spokeshave.dev/price-at-launch".to_owned(), "0.03".to_owned());
        });
        assert_eq!(found(&state, &asked), dear(SMALL / 2, before));
    }
}
