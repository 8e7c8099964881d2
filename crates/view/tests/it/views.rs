//! A view says what the decisions say, adds up, and its changes lead from one to the next.

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED};
use spokeshave_example::{Shape, cluster, random_world};
use spokeshave_example::{bound, epoch, instance_type, labelled, node, node_pool, pending_pod};
use spokeshave_model::{ClusterState, Pod, Price, PriceFeed, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::judge;
use spokeshave_plan::in_flight::{Room, expected_on, stand_in, stand_in_id};
use spokeshave_story::verdict::told;
use spokeshave_view::{Difference, Dollars, History, Judged, Ledger, Missing, Phase, Place, Range};
use spokeshave_view::{Supposition, View, World, detail, pod_story, pool_story};
use std::sync::Arc;

pub(crate) fn judged(state: ClusterState) -> Judged {
    judged_at(state, epoch())
}

pub(crate) fn judged_at(state: ClusterState, now: Timestamp) -> Judged {
    let world = World {
        state,
        now,
        ..World::default()
    };
    Judged::of(world, &Policy::default())
}

/// A policy that freezes some NodePools.
pub(crate) fn freeze(name: &str, pools: &[&str]) -> Arc<DisruptionPolicy> {
    let spec = json!({"nodePools": {"names": pools}, "freeze": {"reason": "incident 42"}});
    let spec = serde_json::from_value(spec).expect("a spec");
    Arc::new(DisruptionPolicy::new(name, spec))
}

/// The same for a user who may not list a resource.
pub(crate) fn unread(state: ClusterState, resource: &str) -> Judged {
    let missing = vec![Missing {
        resource: resource.to_owned(),
        message: "forbidden".to_owned(),
    }];
    let world = World {
        state,
        missing,
        now: epoch(),
        ..World::default()
    };
    Judged::of(world, &Policy::default())
}

pub(crate) fn view(judged: &Judged, revision: u64) -> View {
    View::take(judged, &mut Ledger::default(), &mut History::default(), revision)
}

#[test]
fn what_is_said_of_a_node_is_what_disruption_says_of_it() {
    let (mut kept, mut waiting) = (0, 0);
    for seed in 0..200 {
        let judged = judged(random_world(seed));
        let nominated = judged
            .provisioned
            .nominate(&mut lower(&judged.world.state), epoch());
        let view = view(&judged, 1);
        for id in judged.snapshot.node_ids() {
            let node = judged.snapshot.node(id);
            let row = view.nodes.find(&node.name).expect("each node has a row");
            if !node.is_managed() {
                assert_eq!(row.verdict, None);
                continue;
            }
            let verdict = judge(&judged.snapshot, &judged.policy, epoch(), id);
            let verdict = told(&judged.snapshot, &judged.policy, verdict, &nominated);
            assert_eq!(
                row.verdict,
                Some(verdict.decision_text()),
                "seed {seed}: {}",
                node.name
            );
            let said: Vec<String> = row.reasons.iter().map(|reason| reason.message.clone()).collect();
            let blockers: Vec<String> = verdict.blockers.iter().map(|one| one.message.clone()).collect();
            assert_eq!(said, blockers, "seed {seed}: {}", node.name);
            assert_eq!(
                row.if_removed.clone().unwrap_or_default(),
                verdict.if_removed_text()
            );
            assert_eq!(row.waits, verdict.waits, "seed {seed}: {}", node.name);
            kept += usize::from(verdict.is_keep());
            waiting += usize::from(verdict.waits.is_some());
            let detail = detail(&judged, &node.name).expect("each node has a detail");
            if let Some(told) = detail.story.verdict {
                assert_eq!(told.decision, verdict.decision_text());
                assert_eq!(told.waits, verdict.waits);
                assert_eq!(told.blockers.len(), detail.toggles.len());
            }
        }
    }
    assert!(kept > 100, "{kept}: worlds in which nothing is kept prove little");
    assert!(
        waiting > 0,
        "no node that pending pods are sent to would go otherwise"
    );
}

#[test]
fn numbers_add_up_and_unknown_is_not_zero() {
    for seed in 0..100 {
        let judged = judged(random_world(seed));
        let view = view(&judged, 1);
        let header = &view.header;
        let sum: Price = view
            .nodes
            .0
            .iter()
            .filter(|row| row.verdict.is_some())
            .filter_map(|row| row.price)
            .map(|price| price.0)
            .sum();
        assert_eq!(header.price.0, sum, "seed {seed}");
        let phases = header.ready + header.coming + header.leaving + header.broken;
        assert_eq!(phases, header.nodes, "seed {seed}");
        let grouped: usize = view.pending.iter().map(|group| group.pods).sum();
        assert_eq!(grouped, header.pending + header.unplanned, "seed {seed}");
        let unplaced = judged.provisioned.left_over().count();
        let nowhere = view
            .pending
            .iter()
            .filter(|group| matches!(group.place, Place::Nowhere { .. }));
        assert_eq!(
            nowhere.map(|group| group.pods).sum::<usize>(),
            unplaced,
            "seed {seed}"
        );
        assert!(header.idle <= header.price, "seed {seed}");
        let unpriced = view
            .nodes
            .0
            .iter()
            .filter(|row| row.verdict.is_some() && row.price.is_none());
        assert_eq!(unpriced.count(), header.nodes_without_price, "seed {seed}");
    }
}

/// Offerings whose price nobody knows are chosen last, by a price that is none (Z4).
#[test]
fn z_024_a_price_that_nobody_knows_is_shown_nowhere_and_is_not_nothing_either() {
    let priced = cluster(Shape::Plain, 20, 10, 1);
    let mut unpriced = priced.clone();
    for types in unpriced.instance_types.values_mut() {
        let mut list = types.as_ref().unwrap().to_vec();
        for offering in list.iter_mut().flat_map(|it| &mut it.offerings) {
            offering.price = Price::UNKNOWN;
        }
        *types = Ok(list.into());
    }
    for claim in &mut unpriced.node_claims {
        let annotations = Arc::make_mut(claim).metadata.annotations.get_or_insert_default();
        annotations.insert("spokeshave.dev/price-at-launch".to_owned(), "999".to_owned());
    }
    let mut history = History::default();
    let mut ledger = Ledger::default();
    let without = judged(unpriced);
    let view = View::take(&without, &mut ledger, &mut history, 1);
    assert!(view.nodes.0.iter().all(|row| row.price.is_none()));
    assert_eq!(
        (view.header.price.0, view.header.nodes_without_price),
        (Price::ZERO, 20)
    );
    assert_eq!(without.provisioned.report.price, Price::ZERO);
    assert_eq!(history.samples(Range::Hour).count(), 0, "no line at nothing");
    let known = View::take(&judged(priced), &mut ledger, &mut history, 2)
        .header
        .price
        .0;
    assert!(known > Price::ZERO);
    View::take(&without, &mut ledger, &mut history, 3);
    let last = history.samples(Range::Hour).next_back().unwrap();
    assert_eq!(last.price, known, "what was known last holds");
}

/// Where there are no prices of spot, a spot node costs and saves what it cost when it was launched, or nobody knows what: never what one on demand does.
#[test]
fn a_054_a_spot_node_costs_what_it_did_at_its_launch_or_nobody_knows() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind.clone()])
        .with_node(node("default", "n", &kind, "a", "spot"));
    state.distress.prices = PriceFeed::WithoutSpot;
    let without = view(&judged(state.clone()), 1);
    let row = &without.nodes.0[0];
    assert_eq!((row.verdict, row.price, row.saves), (Some("delete"), None, None));
    assert_eq!(
        (without.header.price.0, without.header.nodes_without_price),
        (Price::ZERO, 1)
    );
    for claim in &mut state.node_claims {
        let annotations = Arc::make_mut(claim).metadata.annotations.get_or_insert_default();
        annotations.insert("spokeshave.dev/price-at-launch".to_owned(), "0.0321".to_owned());
    }
    let known = view(&judged(state), 1);
    let (row, price) = (&known.nodes.0[0], Dollars(Price::from_dollars(0.0321)));
    assert_eq!((row.price, row.saves), (Some(price), Some(price)));
    assert_eq!((known.header.price, known.header.next_saves), (price, price));
    assert_eq!(known.header.nodes_without_price, 0);
}

/// A replacement is priced by on-demand where prices of spot are not known: it costs no more than the same node that it comes for.
#[test]
fn a_054_a_spot_node_and_what_comes_instead_are_compared_by_the_same_prices() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut built = node("default", "n", &kind, "a", "spot");
    let annotations = built.1.metadata.annotations.get_or_insert_default();
    annotations.insert("spokeshave.dev/price-at-launch".to_owned(), "0.0321".to_owned());
    built.1.set_true(DRIFTED, epoch());
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind])
        .with_node(built)
        .with_pod(bound(pending_pod("web", "1", "1Gi", &json!({})), "n"));
    state.distress.prices = PriceFeed::WithoutSpot;
    let seen = view(&judged(state.clone()), 1);
    let (row, nothing) = (&seen.nodes.0[0], Dollars(Price::ZERO));
    assert_eq!(
        (row.verdict, row.price),
        (Some("replace"), Some(Dollars(Price::from_dollars(0.0321))))
    );
    assert_eq!((row.saves, seen.header.next_saves), (Some(nothing), nothing));
    // So is what would come once it may go.
    for pod in &mut state.pods {
        let annotations = Arc::make_mut(pod).metadata.annotations.get_or_insert_default();
        annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned());
    }
    let kept = view(&judged(state), 1);
    let row = &kept.nodes.0[0];
    assert_eq!((row.verdict, row.would_save), (Some("keep"), Some(nothing)));
}

#[test]
fn columns_are_equally_long_and_five_thousand_nodes_stay_below_a_mebibyte() {
    let mut state = cluster(Shape::Plain, 5000, 10_000, 1);
    for pod in state.pods.iter_mut().step_by(14) {
        let annotations = Arc::make_mut(pod).metadata.annotations.get_or_insert_default();
        annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned());
    }
    let judged = judged(state);
    let view = view(&judged, 1);
    let text = serde_json::to_string(&view).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let count = json["nodes"]["name"].as_array().unwrap().len();
    assert_eq!(count, 5000);
    for (name, column) in json["nodes"].as_object().unwrap() {
        let column = if column["of"].is_array() {
            &column["of"]
        } else {
            column
        };
        if name != "reasonTable" {
            assert_eq!(column.as_array().unwrap().len(), count, "{name}");
        }
    }
    let reasons = json["nodes"]["reasonTable"].as_array().unwrap().len() as u64;
    let ids = json["nodes"]["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|ids| ids.as_array().unwrap());
    assert!(ids.map(|id| id.as_u64().unwrap()).all(|id| id < reasons));
    assert!(
        reasons > 100 && text.len() <= 1 << 20,
        "{} bytes, {reasons} reasons",
        text.len()
    );
}

#[test]
fn an_old_view_with_the_changes_is_the_new_one() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let state = |nodes: &[&str], pods: usize| {
        let mut state = ClusterState::default().with_pool(node_pool("default"), vec![kind.clone()]);
        for name in nodes {
            state = state.with_node(node("default", name, &kind, "a", "spot"));
        }
        for pod in 0..pods {
            state = state.with_pod(pending_pod(&format!("p{pod}"), "99", "1Gi", &json!({})));
        }
        state
    };
    let old = view(&judged(state(&["a", "b", "c"], 0)), 1);
    let new = view(&judged(state(&["b", "c", "d"], 2)), 2);
    let changes = new.changes(&old);
    assert_eq!((changes.from, changes.revision), (1, 2));
    assert_eq!(changes.nodes.gone, ["a"]);
    let mut rows = old.nodes.0.clone();
    rows.retain(|row| {
        !changes.nodes.gone.contains(&row.name)
            && changes.nodes.changed.iter().all(|one| one.name != row.name)
    });
    rows.extend(changes.nodes.changed.clone());
    rows.sort_by(|left, right| left.name.cmp(&right.name));
    assert_eq!(rows, new.nodes.0);
    assert_eq!(changes.pending.as_ref(), Some(&new.pending));
    assert_eq!(changes.header, new.header);
    let none = new.changes(&new);
    assert!(none.nodes.changed.is_empty() && none.nodes.gone.is_empty() && none.pending.is_none());
}

#[test]
fn an_awaited_pod_is_pending_and_a_deleted_node_leaves() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut built = node("default", "n", &kind, "a", "spot");
    built.1.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(epoch()));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind])
        .with_node(built);
    assert_eq!(lower(&state).nodes.len(), 1);
    let waiting = expected_on(&pending_pod("w", "1", "1Gi", &json!({})), &stand_in_id("w"));
    let view = view(&judged(state.with_pod(waiting)), 1);
    assert_eq!(view.nodes.0[0].phase, Phase::Leaving);
    assert_eq!(
        (view.header.pending, &view.pending[0].place),
        (1, &Place::Awaited)
    );
}

/// What a launch has been asked for, and a pod that waits for it.
fn awaited() -> World {
    let kind = instance_type("small", 2, 8, &["a"]);
    let (_, mut claim) = node("default", "n", &kind, "a", "spot");
    claim.status = None;
    let id = stand_in_id(claim.uid());
    let claim = stand_in(&claim, std::slice::from_ref(&kind), Room::Taken);
    let mut state = ClusterState::default().with_pool(node_pool("default"), vec![kind]);
    state.node_claims.push(Arc::new(claim));
    let pod = expected_on(&pending_pod("w", "1", "1Gi", &json!({})), &id);
    World {
        state: state.with_pod(pod),
        now: epoch() + jiff::SignedDuration::from_mins(5),
        ..World::default()
    }
}

#[test]
fn p_107_a_pod_that_waits_for_a_nodeclaim_is_told_with_it_and_since_when() {
    let judged = Judged::of(awaited(), &Policy::default());
    let story = pod_story(&judged, "default/w").expect("it is pending");
    assert_eq!(
        story.summary,
        "waits for the node of NodeClaim claim-n, created 5m ago"
    );
    assert_eq!(story.hints, ["spokeshave explain nodeclaim claim-n"]);
    assert_eq!(pod_story(&judged, "default/none"), None);
}

/// The page decides as the operator does, and shows no pod where it is not yet.
#[test]
fn p_107_p_108_a_pod_that_waits_for_a_nodeclaim_counts_there_in_decisions_only() {
    let mut world = awaited();
    let waiting = world.state.pods.iter();
    let waiting = waiting.map(|pod| Arc::new(labelled(Pod::clone(pod), &[("app", "db")])));
    world.state.pods = waiting.collect();
    let selector = json!({"matchLabels": {"app": "db"}});
    let term = json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": selector});
    let near =
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    world.state = world.state.with_pod(pending_pod("near", "1", "1Gi", &near));
    let judged = Judged::of(world, &Policy::default());
    assert_eq!(judged.provisioned.unschedulable.len(), 0);
    assert_eq!(judged.provisioned.placements.claims.len(), 1);
    let view = view(&judged, 1);
    assert_eq!((view.header.pods, view.header.pending), (0, 2));
    assert_eq!(view.header.cpu.requested, 0);
    assert_eq!(view.nodes.0[0].pods.1, 0);
}

/// A machine that has not joined bears its NodeClaim's name, and what it was made for needs another one without it.
#[test]
fn p_107_a_machine_that_has_not_joined_can_be_thought_gone() {
    let before = Judged::of(awaited(), &Policy::default());
    assert_eq!(view(&before, 1).nodes.0[0].name, "claim-n");
    let gone = |what: &str| {
        let supposition = Supposition::parse([], [what]).unwrap();
        let (world, policy, _) = supposition.apply(&before.world, &before.policy).unwrap();
        Judged::of(world, &policy)
    };
    let without = gone("Node/claim-n");
    assert!(without.snapshot.nodes.is_empty() && without.world.awaited().next().is_none());
    assert_eq!(Difference::between(&before, &without).launches, 1);
    let without = gone("Zone/a");
    assert!(without.snapshot.nodes.is_empty());
    assert_eq!(Difference::between(&before, &without).unplaced_after, 1);
}

/// Nobody plans for a pod that is held by gates or that the scheduler has not looked at, and it has no node all the same.
#[test]
fn d_007_pods_without_a_node_that_no_one_plans_for_are_shown() {
    let gates = json!({"schedulingGates": [{"name": "example.com/q"}]});
    let mut gated = pending_pod("gated", "1", "1Gi", &gates);
    let mut new = pending_pod("new", "1", "1Gi", &json!({}));
    for pod in [&mut gated, &mut new] {
        pod.status.as_mut().expect("a status").conditions = None;
    }
    let state = ClusterState::default()
        .with_pod(gated)
        .with_pod(new)
        .with_pod(pending_pod("asked", "1", "1Gi", &json!({})));
    let view = view(&judged(state), 1);
    assert_eq!((view.header.pending, view.header.unplanned), (1, 2));
    let told = view.pending.iter().map(|group| match &group.place {
        Place::Unplanned { message } => (group.owner.as_str(), message.as_str()),
        _ => (group.owner.as_str(), ""),
    });
    let told: Vec<(&str, &str)> = told.collect();
    assert_eq!(
        told,
        [
            ("Pod default/asked", ""),
            ("Pod default/gated", "held by scheduling gates: example.com/q"),
            (
                "Pod default/new",
                "kube-scheduler has not said that they are unschedulable"
            ),
        ]
    );
}

/// A pod to which a scheduler has promised a node is not there yet; its room is gone, and no node is planned for it.
#[test]
fn p_056_a_pod_that_is_promised_a_node_waits_for_that() {
    let large = instance_type("large", 16, 32, &["a"]);
    let mut pod = pending_pod("db", "1", "1Gi", &json!({}));
    pod.status.as_mut().expect("a status").nominated_node_name = Some("n".to_owned());
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![large.clone()])
        .with_node(node("default", "n", &large, "a", "spot"))
        .with_pod(pod);
    let view = view(&judged(state), 1);
    let header = &view.header;
    assert_eq!((header.pods, header.pending, header.unplanned), (0, 0, 1));
    assert_eq!(header.cpu.requested, 1000);
    let message = "kube-scheduler is making room on n, or is about to bind them there";
    let expected = Place::Unplanned {
        message: message.to_owned(),
    };
    assert_eq!(view.pending[0].place, expected);
}

/// Figures that depend on a kind which may not be read are unknown, not nothing.
#[test]
fn what_depends_on_something_unread_is_unknown() {
    let seen = |resource: &str| view(&unread(random_world(3), resource), 1).header.unknown;
    let priced = ["price", "nodesWithoutPrice", "idle", "couldSave", "nextSaves"];
    let with = |others: &[&'static str]| [&priced[..], others].concat();
    assert_eq!(
        seen("nodeclaims.karpenter.sh"),
        with(&["coming", "unmanaged", "verdict", "budgets", "place"])
    );
    assert_eq!(
        seen("nodepools.karpenter.sh"),
        with(&["pools", "verdict", "budgets", "place"])
    );
    assert_eq!(seen("nodeoverlays.karpenter.sh"), with(&["verdict", "place"]));
    let may_forbid = ["couldSave", "nextSaves", "verdict"];
    assert_eq!(seen("poddisruptionbudgets.policy"), may_forbid);
    // They leave less of budgets, too.
    let may_limit = ["couldSave", "nextSaves", "verdict", "budgets"];
    assert_eq!(seen("disruptionpolicies.spokeshave.dev"), may_limit);
    for resource in ["persistentvolumes", "daemonsets.apps", "namespaces"] {
        assert_eq!(
            seen(resource),
            ["couldSave", "nextSaves", "verdict", "place"],
            "{resource}"
        );
    }
    // Of classes only those count that a NodePool names.
    assert_eq!(
        seen("kwoknodeclasses.karpenter.kwok.sh"),
        with(&["verdict", "place"])
    );
    assert_eq!(seen("ec2nodeclasses.karpenter.k8s.aws"), [""; 0]);
    assert_eq!(seen("events"), [""; 0]);
    // Past commands decide where a policy goes by them.
    assert_eq!(seen("disruptions.spokeshave.dev"), [""; 0]);
    let spec = serde_json::from_value(json!({"freeze": {"reason": "incident 42"}})).expect("a spec");
    let mut governed = random_world(3);
    governed.disruption_policies = vec![Arc::new(DisruptionPolicy::new("freeze", spec))];
    let judged = unread(governed, "disruptions.spokeshave.dev");
    assert_eq!(view(&judged, 1).header.unknown, may_limit);
    // An operator disrupts nothing while it cannot read one.
    let mut world = unread(random_world(3), "disruptions.spokeshave.dev").world;
    world.is_of_operator = true;
    let judged = Judged::of(world, &Policy::default());
    assert_eq!(view(&judged, 1).header.unknown, may_limit);
}

#[test]
fn what_was_decided_without_something_unread_is_no_verdict() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind.clone()])
        .with_node(node("default", "n", &kind, "a", "spot"));
    let all = view(&judged(state.clone()), 1);
    assert_eq!(all.nodes.0[0].verdict, Some("delete"));
    assert_eq!((all.budgets.now.len(), all.header.unmanaged), (3, 0));
    // Its pods may be guarded by what was not read.
    let judged = unread(state.clone(), "poddisruptionbudgets.policy");
    assert!(judged.disrupted.verdicts.is_empty());
    let seen = view(&judged, 1);
    assert_eq!(
        (seen.nodes.0[0].verdict, seen.nodes.0[0].saves),
        (Some("unknown"), None)
    );
    assert_eq!(seen.budgets, all.budgets);
    let told = detail(&judged, "n").expect("it is there");
    assert!(told.story.verdict.is_none() && told.toggles.is_empty());
    assert!(told.story.summary.ends_with("could not be read"), "{told:?}");
    assert_eq!(
        told.story.facts[0].value,
        "poddisruptionbudgets.policy; what depends on it is unknown"
    );
    // Nobody knows which nodes are managed, what they cost, and how many a percentage is of.
    let mut unclaimed = state.clone();
    unclaimed.node_claims.clear();
    let judged = unread(unclaimed, "nodeclaims.karpenter.sh");
    let mut history = History::default();
    let seen = View::take(&judged, &mut Ledger::default(), &mut history, 1);
    assert_eq!(seen.nodes.0[0].verdict, Some("unknown"));
    assert!(seen.budgets.now.is_empty() && seen.budgets.calendar.len() == 1);
    let mut days = seen.budgets.calendar[0].reasons.iter();
    assert!(days.all(|day| day.intervals.is_empty()));
    assert_eq!(history.samples(Range::Hour).count(), 0, "no line at nothing");
    let story = pool_story(&judged, "default").expect("it is there");
    assert_eq!(story.price_per_hour, None);
    assert!(story.facts.iter().all(|fact| fact.name != "nodes"), "{story:?}");
    // Without NodePools it is not said that there is no place.
    let mut poolless = state.with_pod(pending_pod("w", "1", "1Gi", &json!({})));
    poolless.node_pools.clear();
    let seen = view(&unread(poolless, "nodepools.karpenter.sh"), 1);
    assert_eq!(seen.pending[0].place, Place::Unknown);
}

/// A node of unknown price counts in the difference of a what-if as one without a price.
#[test]
fn z_024_a_what_if_says_how_many_prices_it_lacks() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let other = instance_type("other", 2, 8, &["a"]);
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind.clone()])
        .with_node(node("default", "known", &kind, "a", "spot"))
        .with_node(node("default", "unknown", &other, "a", "spot"));
    let before = judged(state);
    let supposition = Supposition::parse([], ["Node/unknown"]).unwrap();
    let (world, policy, _) = supposition.apply(&before.world, &before.policy).unwrap();
    let difference = Difference::between(&before, &Judged::of(world, &policy));
    assert_eq!(difference.price_before, difference.price_after);
    assert_eq!(
        (
            difference.nodes_without_price_before,
            difference.nodes_without_price_after
        ),
        (1, 0)
    );
}

/// They go without a command, as `plan` says; and none is said to go while nobody sees the commands, one of which may be replacing it.
#[test]
fn d_357_d_358_nodes_that_a_fixed_number_has_too_many_of_are_told_to_go() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut pool = node_pool("default");
    pool.spec.replicas = Some(1);
    let mut state = ClusterState::default().with_pool(pool, vec![kind.clone()]);
    for name in ["a", "b"] {
        state = state.with_node(node("default", name, &kind, "a", "on-demand"));
    }
    let state = state.with_pod(bound(pending_pod("web", "1", "1Gi", &json!({})), "a"));
    let waits = |judged: &Judged| -> Vec<Option<String>> {
        let rows = view(judged, 1).nodes.0.into_iter();
        rows.map(|row| row.waits).collect()
    };
    let seen = judged(state.clone());
    let goes = "goes without a command: NodePool default has more nodes than spec.replicas";
    assert_eq!(waits(&seen), [None, Some(goes.to_owned())]);
    assert_eq!(detail(&seen, "b").expect("it is there").story.summary, goes);
    let unseen = unread(state, "disruptions.spokeshave.dev");
    assert_eq!(waits(&unseen), [None::<String>, None]);
}
