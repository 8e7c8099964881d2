//! Consolidation of single nodes and of sets: what goes, what comes, and what is said when nothing does.

use crate::support;
use crate::support::{
    World, dollars, free_pool, nodes_of, on_demand_pool, pinned, text, three_types, zero_budget,
};
use serde_json::json;
use spokeshave_api::{ConsolidationPolicy, Operator, Requirement};
use spokeshave_example::{instance_type, node_pool};
use spokeshave_model::InstanceType;
use spokeshave_plan::disrupt::{Decision, Destination, Frontier, Method, Rejection, disrupt, validate};
use spokeshave_plan::to_node_claim;

#[test]
fn d_144_two_nodes_become_one_cheaper_node() {
    let world = World::new(free_pool("default"))
        .node("a", "medium")
        .node("b", "medium")
        .pod("p", "a", "1500m")
        .pod("q", "b", "300m");
    let command = world.command();
    assert_eq!(
        text(&command),
        "MultiNodeConsolidation replace [a, b] by small|medium"
    );
    // D-147: it may be spot or on-demand, so it is pinned to spot; large would cost 0.448, more than 0.32, and is not offered.
    let claim = &command.replacements[0].claim;
    assert_eq!(
        claim
            .capacity_types
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        ["spot"]
    );
    assert_eq!(command.price_before, dollars("0.32"));
}

#[test]
fn d_145_invariant_16_a_replacement_is_strictly_cheaper_in_the_worst_case() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3");
    let command = world.command();
    assert_eq!(text(&command), "SingleNodeConsolidation replace [a] by medium");
    assert_eq!(
        (command.price_before, command.price_after),
        (dollars("0.64"), dollars("0.16"))
    );
    assert_eq!(command.moves[0].to, Destination::Replacement(0));
    // Nothing is cheaper than the smallest node that fits.
    let snug = World::new(on_demand_pool("default"))
        .node("a", "medium")
        .pod("p", "a", "3");
    assert_eq!(snug.pass().commands, []);
    assert!(
        snug.events("a")
            .contains(&"Unconsolidatable: Can't replace with a cheaper node".to_owned()),
        "{:?}",
        snug.events("a")
    );
    assert_eq!(snug.verdict_text("a"), "keep: NotCheaper Node a");
}

#[test]
fn d_146_the_dearest_zone_decides() {
    let mut types = vec![
        instance_type("mid", 4, 8, &["a", "b"]),
        instance_type("large", 16, 32, &["a"]),
    ];
    // In zone b mid costs more than large; the provider might launch it there.
    for offering in &mut types[0].offerings {
        if offering.zone() == Some("b") {
            offering.price = dollars("2");
        }
    }
    let world = World::with_types(on_demand_pool("default"), types)
        .node("a", "large")
        .pod("p", "a", "3");
    assert_eq!(world.pass().commands, []);
    assert_eq!(world.verdict_text("a"), "keep: NotCheaper Node a");
}

#[test]
fn a_pod_that_fits_elsewhere_makes_a_delete_and_names_its_place() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod("p", "a", "1")
        .pod("q", "b", "500m")
        .pod_with("r", "b", "100m", &pinned("b"));
    let command = world.command();
    assert_eq!(text(&command), "SingleNodeConsolidation delete [a]");
    let place = Destination::Node {
        name: "b".to_owned(),
        provider_id: "kwok://b".to_owned(),
    };
    assert_eq!(command.moves[0].to, place);
    assert_eq!(command.evictions(), 1);
}

#[test]
fn w_05_a_pending_pod_never_turns_a_delete_into_a_replace() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod("p", "a", "1")
        .pod_with("r", "b", "100m", &pinned("b"));
    assert_eq!(text(&world.command()), "SingleNodeConsolidation delete [a]");
    let world = world.pending("huge", "15");
    assert_eq!(text(&world.command()), "SingleNodeConsolidation delete [a]");
    // A pending pod that will take the room is taken into account.
    let world = world.pending("first", "1500m");
    assert_eq!(world.pass().commands, []);
}

#[test]
fn w_01_one_node_that_cannot_move_hides_none_behind_it() {
    let world = World::new(on_demand_pool("default"))
        .node("stuck", "large")
        .node("m1", "medium")
        .node("m2", "medium")
        .node("rest", "medium")
        .pod_with("anchor", "stuck", "15500m", &pinned("stuck"))
        .pod("p", "m1", "500m")
        .pod("q", "m2", "500m")
        .pod_with("r", "rest", "100m", &pinned("rest"));
    let command = world.command();
    assert_eq!(text(&command), "MultiNodeConsolidation delete [m1, m2]");
}

#[test]
fn d_162_a_set_is_not_replaced_by_a_type_that_it_contains() {
    let types = vec![
        instance_type("small", 2, 4, &["a"]),
        instance_type("big", 8, 16, &["a"]),
    ];
    let world = World::with_types(on_demand_pool("default"), types)
        .node("b1", "big")
        .node("b2", "big")
        .node("s", "small")
        .pod("p", "b1", "300m")
        .pod("q", "b2", "300m")
        .pod("r", "s", "300m");
    assert_eq!(text(&world.command()), "MultiNodeConsolidation delete [b1, b2]");
}

fn ladder(count: usize) -> Vec<InstanceType> {
    (0..count)
        .map(|index| {
            instance_type(
                &format!("t{index:02}"),
                4 + i64::try_from(index).unwrap_or(0),
                8,
                &["a"],
            )
        })
        .collect()
}

#[test]
fn d_153_d_156_d_157_spot_to_spot_needs_the_gate_and_fifteen_cheaper_types() {
    let spot = |cheaper: usize, gate: bool| {
        let mut world = World::with_types(free_pool("default"), ladder(cheaper + 1))
            .node_in("default", "n", &format!("t{cheaper:02}"), "spot")
            .pod("p", "n", "3");
        world.policy.disrupt.spot_to_spot = gate;
        world
    };
    let closed = spot(15, false);
    assert_eq!(closed.pass().commands, []);
    let disabled = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node";
    assert!(
        closed
            .events("n")
            .contains(&format!("Unconsolidatable: {disabled}"))
    );
    assert_eq!(closed.verdict_text("n"), "keep: SpotToSpotDisabled Node n");
    let few = spot(14, true);
    assert_eq!(few.pass().commands, []);
    let got = "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got 14";
    assert!(
        few.events("n").contains(&format!("Unconsolidatable: {got}")),
        "{:?}",
        few.events("n")
    );
    assert_eq!(few.verdict_text("n"), "keep: SpotToSpotFlexibility Node n");
    let command = spot(20, true).command();
    assert_eq!(command.decision(), Decision::Replace);
    assert_eq!(command.replacements[0].instance_types.len(), 15, "D-157");
    // D-153: deleting a spot node never needs the gate.
    let delete = spot(15, false)
        .node_in("default", "m", "t15", "spot")
        .pod_with("q", "m", "1", &pinned("m"));
    assert_eq!(text(&delete.command()), "SingleNodeConsolidation delete [n]");
}

#[test]
fn d_150_min_values_hold_after_the_price_filter() {
    let flexible = |count: i32| {
        let mut pool = on_demand_pool("default");
        let mut types = Requirement::new(
            "node.kubernetes.io/instance-type",
            Operator::Exists,
            &[] as &[&str],
        );
        types.min_values = Some(count);
        pool.spec.template.spec.requirements.push(types);
        World::new(pool).node("a", "large").pod("p", "a", "1")
    };
    assert_eq!(
        text(&flexible(2).command()),
        "SingleNodeConsolidation replace [a] by small|medium"
    );
    let strict = flexible(3);
    assert_eq!(strict.pass().commands, []);
    let message = "Unconsolidatable: Filtering by price: minValues requirement is not met for label(s) (label(s)=[node.kubernetes.io/instance-type])";
    assert!(
        strict.events("a").contains(&message.to_owned()),
        "{:?}",
        strict.events("a")
    );
    assert_eq!(strict.verdict_text("a"), "keep: MinValues NodePool default");
}

#[test]
fn d_147_p_005_a_replacement_pinned_to_spot_asks_for_no_more_capacity_types_than_it_names() {
    const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
    let mut pool = free_pool("default");
    let mut both = Requirement::new(CAPACITY_TYPE, Operator::In, &["on-demand", "spot"]);
    both.min_values = Some(2);
    pool.spec.template.spec.requirements = vec![both];
    let world = World::new(pool).node("a", "large").pod("p", "a", "1");
    let command = world.command();
    let claim = &command.replacements[0].claim;
    let asked = to_node_claim(&world.snapshot(), claim).spec.requirements;
    let kinds = asked.into_iter().find(|one| one.key == CAPACITY_TYPE);
    let kinds = kinds.expect("a requirement");
    assert_eq!(kinds.values, ["spot"]);
    assert_eq!(kinds.min_values, Some(1));
    assert!(claim.min_values_relaxed, "and says so");
}

#[test]
fn d_142_d_143_the_common_filter_and_its_words() {
    let base = || {
        World::new(on_demand_pool("default"))
            .node("a", "large")
            .pod("p", "a", "1")
    };
    assert_eq!(
        text(&base().command()),
        "SingleNodeConsolidation replace [a] by small|medium"
    );
    let cases: Vec<(World, &str, &str)> = vec![
        (
            base().label_node("a", "node.kubernetes.io/instance-type", "gone"),
            "Unconsolidatable: Instance Type \"gone\" not found",
            "keep: UnknownInstanceType Node a",
        ),
        (
            base().edit_node("a", |node| {
                drop(
                    node.metadata
                        .labels
                        .as_mut()
                        .and_then(|labels| labels.remove("topology.kubernetes.io/zone")),
                )
            }),
            "Unconsolidatable: Node does not have label \"topology.kubernetes.io/zone\"",
            "keep: MissingLabel Node a",
        ),
        (
            base().edit_pool("default", |pool| {
                pool.spec.disruption.consolidate_after =
                    serde_json::from_value(json!("Never")).expect("Never")
            }),
            "Unconsolidatable: NodePool \"default\" has consolidation disabled",
            "keep: ConsolidationDisabled NodePool default",
        ),
        (
            base().edit_pool("default", |pool| {
                pool.spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty
            }),
            "Unconsolidatable: NodePool \"default\" has consolidation policy WhenEmpty, but node is not empty",
            "keep: ConsolidationPolicy NodePool default",
        ),
        (
            base().edit_pool("default", |pool| {
                pool.spec.disruption.consolidation_policy = ConsolidationPolicy::Other("Yearly".to_owned())
            }),
            "Unconsolidatable: NodePool \"default\" has consolidation policy Yearly, but node is not empty",
            "keep: ConsolidationPolicy NodePool default",
        ),
    ];
    for (world, message, verdict) in cases {
        assert_eq!(world.pass().commands, [], "{message}");
        assert!(
            world.events("a").contains(&message.to_owned()),
            "{message}: {:?}",
            world.events("a")
        );
        assert_eq!(world.verdict_text("a"), verdict);
    }
    let waiting = base().not_consolidatable("a");
    assert_eq!(waiting.pass().commands, []);
    assert!(
        waiting.events("a").is_empty(),
        "silent: {:?}",
        waiting.events("a")
    );
    assert_eq!(waiting.verdict_text("a"), "keep: ConsolidateAfter Node a");
    let verdict = waiting.verdict("a");
    assert_eq!(
        verdict.if_removed_text(),
        "if consolidateAfter had passed: replace, saves $0.56/h"
    );
}

#[test]
fn d_044_neighbours_inside_their_window_take_no_pods_of_consolidation() {
    let world = World::new(on_demand_pool("default"))
        .edit_pool("default", |pool| {
            pool.spec.disruption.consolidate_after = serde_json::from_value(json!("10m")).expect("10m")
        })
        .node("a", "small")
        .node("b", "small")
        .pod("p", "a", "1")
        .pod_with("r", "b", "100m", &pinned("b"))
        .last_pod_event("a", -3600);
    let mut calm = world.clone().last_pod_event("b", -3600);
    calm.now = support::later(0);
    assert_eq!(text(&calm.command()), "SingleNodeConsolidation delete [a]");
    let fresh = world.clone().last_pod_event("b", -60);
    assert_eq!(fresh.pass().commands, []);
    assert_eq!(fresh.verdict_text("a"), "keep: Neighbours Node b");
    // Drift is not held up by it.
    let drifted = fresh.drifted("a", 0);
    assert_eq!(text(&drifted.command()), "Drift delete [a]");
}

#[test]
fn d_066_d_088_budgets_bound_sets_and_singles() {
    let three = |budget: &str| {
        let budget = zero_budget(budget);
        World::new(on_demand_pool("default"))
            .edit_pool("default", move |pool| {
                pool.spec.disruption.budgets = Some(budget.clone())
            })
            .node("m1", "medium")
            .node("m2", "medium")
            .node("m3", "medium")
            .node("rest", "medium")
            .pod("p", "m1", "500m")
            .pod("q", "m2", "500m")
            .pod("s", "m3", "500m")
            .pod_with("r", "rest", "100m", &pinned("rest"))
    };
    assert_eq!(
        text(&three("100%").command()),
        "MultiNodeConsolidation delete [m1, m2, m3]"
    );
    assert_eq!(
        text(&three("2").command()),
        "MultiNodeConsolidation delete [m1, m2]"
    );
    assert_eq!(text(&three("1").command()), "SingleNodeConsolidation delete [m1]");
    let none = three("0");
    assert_eq!(none.pass().commands, []);
    assert_eq!(none.verdict_text("m1"), "keep: Budget NodePool default");
    let text = none.verdict("m1").if_removed_text();
    assert_eq!(
        text,
        "if its NodePool's budgets allowed 1 more: delete, saves $0.16/h"
    );
    let blocked = "DisruptionBlocked: No allowed disruptions for disruption reason Underutilized due to blocking budget";
    assert!(none.events("default").contains(&blocked.to_owned()));
}

#[test]
fn d_059_pools_take_turns() {
    // Pool `rich` has the three best candidates; `poor` still comes second.
    let mut world = World::new(on_demand_pool("rich"));
    world.state = world.state.with_pool(on_demand_pool("poor"), three_types());
    let world = world
        .node_in("rich", "r1", "large", "on-demand")
        .node_in("poor", "p1", "medium", "on-demand")
        .pod("p", "r1", "15500m")
        .pod("q", "p1", "500m");
    // r1 needs all of its type; p1 can be replaced by a small one.
    assert_eq!(
        text(&world.command()),
        "SingleNodeConsolidation replace [p1] by small"
    );
}

#[test]
fn w_36_pods_that_nobody_minds_to_lose_still_need_a_place() {
    let cheap =
        |world: World| world.annotate_pod("p", "controller.kubernetes.io/pod-deletion-cost", "-2147483647");
    let fits = cheap(
        World::new(on_demand_pool("default"))
            .node("a", "small")
            .node("b", "small")
            .pod("p", "a", "1")
            .pod_with("r", "b", "100m", &pinned("b")),
    );
    let command = fits.command();
    assert_eq!(text(&command), "Emptiness delete [a]");
    assert_eq!(command.moves.len(), 1);
    let full = cheap(
        World::new(on_demand_pool("default"))
            .node("a", "small")
            .node("b", "small")
            .pod("p", "a", "1")
            .pod_with("r", "b", "1500m", &pinned("b")),
    );
    assert_eq!(full.pass().commands, []);
}

#[test]
fn d_088_d_090_w_35_validation_is_the_same_evaluation_on_a_later_snapshot() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3");
    let command = world.command();
    let same = validate(&command, &world.snapshot(), &world.policy, world.now);
    assert_eq!(same.command.as_ref(), Some(&command));
    // It is in a command by now, its own.
    let mut marked = world.clone();
    marked.state.in_command.insert("kwok://a".to_owned());
    assert!(
        validate(&command, &marked.snapshot(), &world.policy, world.now)
            .command
            .is_some()
    );
    let reject = |world: &World| {
        let validation = validate(&command, &world.snapshot(), &world.policy, world.now);
        assert_eq!(validation.command, None);
        assert!(!validation.message.is_empty());
        validation.rejection.expect("a rejection")
    };
    let annotated = world
        .clone()
        .annotate_pod("p", "karpenter.sh/do-not-disrupt", "true");
    assert_eq!(reject(&annotated), Rejection::Churn);
    let grown = world.clone().pod("q", "a", "5");
    assert_eq!(reject(&grown), Rejection::Scheduling, "a medium no longer does");
    let closed = world.clone().edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(zero_budget("0"))
    });
    assert_eq!(reject(&closed), Rejection::Budget);
    let mut gone = world.clone();
    gone.state.nodes.clear();
    assert_eq!(reject(&gone), Rejection::Churn);
    let mut dearer = world.clone();
    let mut types = three_types();
    for offering in &mut types[1].offerings {
        offering.price = dollars("0.5");
    }
    dearer.state = dearer.state.with_pool(on_demand_pool("default"), types);
    dearer.state.node_pools.remove(0);
    assert_eq!(reject(&dearer), Rejection::Scheduling, "dearer");
    let validation = validate(&command, &annotated.snapshot(), &world.policy, world.now);
    let messages: Vec<&str> = validation
        .events
        .iter()
        .map(|event| event.message.as_str())
        .collect();
    assert_eq!(
        messages,
        ["Consolidation rejected: replace: [a] -> [1 replacement], reason: churn (savings: $0.48)"; 2]
    );
}

#[test]
fn d_119_w_10_g_1_30_a_command_that_fails_lets_others_have_their_turn() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3")
        .node("b", "large")
        .pod("q", "b", "15")
        .node("c", "medium")
        .pod_with("r", "c", "500m", &json!({}));
    let mut world = world;
    world.policy.disrupt.methods = [Method::SingleNodeConsolidation].into();
    let snapshot = world.snapshot();
    let mut frontier = Frontier::default();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let outcome = disrupt(&snapshot, &world.policy, world.now, &frontier);
        frontier = outcome.frontier;
        let Some(command) = outcome.commands.first() else {
            break;
        };
        seen.push(command.nodes[0].node.clone());
        frontier.failed(command, world.now);
    }
    assert_eq!(seen, ["a", "c"]);
    let after = disrupt(&snapshot, &world.policy, support::later(61), &frontier);
    assert_eq!(
        after.commands[0].nodes[0].node, "a",
        "after its back-off it has its turn again"
    );
}

#[test]
fn an_idle_pass_over_a_known_version_does_nothing() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .pod("p", "a", "1");
    let snapshot = world.snapshot();
    let mut frontier = Frontier::default().at(7);
    let first = disrupt(&snapshot, &world.policy, world.now, &frontier);
    assert!(first.commands.is_empty() && !first.statistics.idle && first.statistics.what_ifs > 0);
    frontier = first.frontier;
    let second = disrupt(&snapshot, &world.policy, world.now, &frontier);
    assert!(second.statistics.idle && second.statistics.what_ifs == 0);
    let changed = disrupt(&snapshot, &world.policy, world.now, &frontier.clone().at(8));
    assert!(!changed.statistics.idle);
}

#[test]
fn bad_input_keeps_its_own_node_and_no_other() {
    let base = || {
        World::new(on_demand_pool("default"))
            .node("good", "large")
            .pod("p", "good", "1")
            .node("odd", "large")
            .pod("q", "odd", "1")
    };
    let acts = |world: &World| nodes_of(&world.pass().commands);
    assert_eq!(acts(&base()), ["good", "odd"]);
    let bare = base().edit_node("odd", |node| {
        node.metadata.labels = Some(
            [
                ("karpenter.sh/nodepool".to_owned(), "default".to_owned()),
                ("karpenter.sh/initialized".to_owned(), "true".to_owned()),
                ("karpenter.sh/registered".to_owned(), "true".to_owned()),
            ]
            .into(),
        )
    });
    assert_eq!(acts(&bare), ["good"]);
    let everything = base()
        .budget("all", &json!({}), 0)
        .edit_pod("p", |pod| pod.metadata.namespace = Some("other".to_owned()));
    assert_eq!(
        acts(&everything),
        ["good"],
        "a PodDisruptionBudget that matches everything of its namespace"
    );
    let unreadable = base().budget(
        "bad",
        &json!({"matchExpressions": [{"key": "app", "operator": "Near", "values": ["q"]}]}),
        0,
    );
    drop(unreadable.pass());
    let mut two = base();
    let mut broken = on_demand_pool("broken");
    broken.spec.disruption.budgets = Some(vec![
        serde_json::from_value(json!({"nodes": "many", "schedule": "whenever", "duration": "1h"}))
            .expect("a budget"),
    ]);
    two.state = two.state.with_pool(broken, three_types());
    let two = two
        .node_in("broken", "shut", "large", "on-demand")
        .pod("s", "shut", "1");
    assert_eq!(acts(&two), ["good", "odd"]);
    assert_eq!(two.verdict_text("shut"), "keep: Budget NodePool broken");
    let worthless = {
        let mut world = base();
        let mut pool = on_demand_pool("default");
        pool.metadata = node_pool("default").metadata;
        world.now = jiff::Timestamp::MIN;
        world
    };
    drop(worthless.pass());
}
