//! Drift of dynamic and static NodePools.

use crate::support;
use crate::support::executor::Executor;
use crate::support::{
    World, dollars, nodes_of, on_demand_pool, only, pinned, text, three_types, zero_budget,
};
use serde_json::json;
use spokeshave_model::lower;
use spokeshave_plan::disrupt::record::record;
use spokeshave_plan::disrupt::{Frontier, Method, disrupt, validate};
use spokeshave_plan::static_pools::template_claim;

#[test]
fn d_132_d_135_drift_replaces_at_any_price_and_whatever_the_policy() {
    let world = World::new(on_demand_pool("default"))
        .edit_pool("default", |pool| {
            pool.spec.disruption.consolidation_policy = spokeshave_api::ConsolidationPolicy::WhenEmpty;
            pool.spec.disruption.consolidate_after = serde_json::from_value(json!("Never")).expect("Never");
        })
        .node("a", "small")
        .pod("p", "a", "1");
    assert_eq!(world.pass().commands, []);
    let world = world.drifted("a", 0);
    let command = world.command();
    assert_eq!(text(&command), "Drift replace [a] by small|medium|large");
    assert_eq!(
        (command.price_before, command.price_after),
        (dollars("0.08"), dollars("0.08"))
    );
    assert_eq!(world.verdict_text("a"), "replace by Drift");
    assert_eq!(
        validate(&command, &world.snapshot(), &world.policy, world.now).command,
        Some(command)
    );
}

#[test]
fn d_133_more_than_one_replacement_is_allowed_and_none_when_pods_fit() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "8")
        .pod("q", "a", "7")
        .drifted("a", 0);
    let mut narrow = world.clone();
    narrow.state.instance_types.insert(
        "default".to_owned(),
        Ok(vec![spokeshave_example::instance_type("eight", 9, 16, &["a"])].into()),
    );
    assert_eq!(text(&narrow.command()), "Drift replace [a] by eight + eight");
    let roomy = world.node("b", "large");
    let mut policy = only(Method::Drift);
    std::mem::swap(&mut policy, &mut roomy.clone().policy);
    let mut roomy = roomy;
    roomy.policy = only(Method::Drift);
    assert_eq!(text(&roomy.command()), "Drift delete [a]");
}

#[test]
fn d_060_oldest_first_and_nodes_without_pods_in_front() {
    let mut world = World::new(on_demand_pool("default"))
        .node("old", "small")
        .node("older", "small")
        .node("empty", "small")
        .pod("p", "old", "1500m")
        .pod("q", "older", "1500m")
        .drifted("old", 20)
        .drifted("older", 10)
        .drifted("empty", 30);
    world.policy = only(Method::Drift);
    assert_eq!(text(&world.command()), "Drift delete [empty]");
    world
        .state
        .nodes
        .retain(|node| node.metadata.name.as_deref() != Some("empty"));
    world
        .state
        .node_claims
        .retain(|claim| claim.name() != "claim-empty");
    assert_eq!(world.command().nodes[0].node, "older");
}

#[test]
fn d_134_a_node_whose_pods_have_no_place_is_told_and_passed_over() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .node("b", "large")
        .pod_with("p", "a", "15", &pinned("a"))
        .pod("q", "b", "15")
        .drifted("a", 0)
        .drifted("b", 10);
    let command = world.command();
    assert_eq!(command.nodes[0].node, "b");
    let events = world.events("a");
    assert!(
        events
            .iter()
            .any(|event| event.starts_with("DisruptionBlocked: Not all pods would schedule, default/p => ")),
        "{events:?}"
    );
    assert_eq!(world.verdict_text("a"), "keep: Pod Pod default/p");
}

#[test]
fn d_029_d_136_a_grace_period_waives_blocking_pods_but_no_node_annotation() {
    let base = || {
        World::new(on_demand_pool("default"))
            .node("a", "small")
            .pod("p", "a", "1")
            .drifted("a", 0)
    };
    let protected = |world: World| world.annotate_pod("p", "karpenter.sh/do-not-disrupt", "true");
    assert_eq!(protected(base()).pass().commands, []);
    assert_eq!(
        protected(base()).verdict_text("a"),
        "keep: PodDoNotDisrupt Pod default/p"
    );
    // With the grace period it goes, and nothing is bought for the protected pod.
    let command = protected(base()).grace("a").command();
    assert_eq!(text(&command), "Drift delete [a]");
    // A budget with no disruptions left now still gets its pod a place.
    let budgeted = base()
        .grace("a")
        .budget("web", &json!({"matchLabels": {"app": "p"}}), 0)
        .command();
    assert_eq!(text(&budgeted), "Drift replace [a] by small|medium|large");
    let annotated = base()
        .grace("a")
        .annotate_node("a", "karpenter.sh/do-not-disrupt", "true");
    assert_eq!(annotated.pass().commands, []);
    assert_eq!(annotated.verdict_text("a"), "keep: NodeDoNotDisrupt Node a");
}

#[test]
fn d_020_d_133_a_budget_of_everything_that_lets_pods_go_now_does_not_keep_them() {
    // Eight pods became three, under `minAvailable: 100%`: until the other five are gone, any of the eight may be evicted.
    let scaled_down = |allowed: i32| {
        let mut world = World::new(on_demand_pool("default"))
            .node("a", "small")
            .pod("p", "a", "1")
            .drifted("a", 0)
            .budget("web", &json!({"matchLabels": {"app": "p"}}), allowed);
        let budget = std::sync::Arc::make_mut(&mut world.state.pod_disruption_budgets[0]);
        let spec = budget.spec.as_mut().expect("a spec");
        spec.max_unavailable = None;
        spec.min_available = serde_json::from_value(json!("100%")).ok();
        world
    };
    assert_eq!(scaled_down(0).pass().commands, [], "nobody may leave");
    let command = scaled_down(5).command();
    assert_eq!(text(&command), "Drift replace [a] by small|medium|large");
}

#[test]
fn d_062_emptiness_comes_before_drift() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .drifted("a", 0);
    assert_eq!(text(&world.command()), "Emptiness delete [a]");
}

#[test]
fn w_24_a_pool_whose_replacements_fail_rests_and_the_other_goes_on() {
    let mut world = World::new(on_demand_pool("default"));
    world.state = world
        .state
        .with_pool(on_demand_pool("other"), support::three_types());
    let world = world
        .node("a", "small")
        .node_in("other", "b", "small", "on-demand")
        .pod("p", "a", "1500m")
        .pod("q", "b", "1500m")
        .drifted("a", 0)
        .drifted("b", 10);
    let snapshot = world.snapshot();
    let first = disrupt(&snapshot, &world.policy, world.now, &Frontier::default());
    assert_eq!(first.commands[0].nodes[0].node, "a");
    let mut frontier = first.frontier;
    frontier.failed(&first.commands[0], world.now);
    let second = disrupt(&snapshot, &world.policy, world.now, &frontier);
    assert_eq!(second.commands[0].nodes[0].node, "b");
    let third = disrupt(&snapshot, &world.policy, support::later(61), &frontier);
    assert_eq!(third.commands[0].nodes[0].node, "a");
}

fn static_world(replicas: i64, limit: Option<i64>) -> World {
    let mut pool = on_demand_pool("default");
    pool.spec.replicas = Some(replicas);
    pool.spec.limits =
        limit.map(|limit| spokeshave_model::Resources::from_amounts([("nodes", limit)]).to_quantities());
    World::new(pool)
        .node("a", "small")
        .node("b", "small")
        .node("c", "small")
        .drifted("a", 0)
        .drifted("b", 0)
        .drifted("c", 0)
}

#[test]
fn d_138_to_d_141_static_drift_is_one_for_one_within_headroom_and_budget() {
    let commands = |world: &World| world.pass().commands.iter().map(text).collect::<Vec<_>>();
    let line = |name: &str| format!("StaticDrift replace [{name}] by small|medium|large");
    assert_eq!(
        commands(&static_world(3, None)),
        [line("a"), line("b"), line("c")]
    );
    assert_eq!(
        commands(&static_world(3, Some(4))),
        [line("a")],
        "headroom of one"
    );
    assert_eq!(
        commands(&static_world(3, Some(3))),
        Vec::<String>::new(),
        "no headroom"
    );
    assert_eq!(
        static_world(3, Some(3)).verdict_text("a"),
        "keep: StaticHeadroom NodePool default"
    );
    assert_eq!(
        commands(&static_world(2, None)),
        Vec::<String>::new(),
        "a scale-down comes first"
    );
    let budgeted = static_world(3, None).edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(zero_budget("2"))
    });
    assert_eq!(commands(&budgeted).len(), 2, "D-205");
    // A static node that has not drifted stays, empty or not.
    let calm = World::new({
        let mut pool = on_demand_pool("default");
        pool.spec.replicas = Some(1);
        pool
    })
    .node("a", "large");
    assert_eq!(calm.pass().commands, []);
    assert_eq!(calm.verdict_text("a"), "keep: StaticNodePool NodePool default");
}

/// It would be first in order again, and take the room and the budget that others need.
#[test]
fn d_139_w_10_w_24_a_static_node_whose_command_the_audit_refuses_leaves_others_their_turn() {
    let tight = static_world(3, Some(4));
    let budgeted = static_world(3, None).edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(zero_budget("1"))
    });
    for world in [tight, budgeted] {
        let snapshot = world.snapshot();
        let going = |frontier: &Frontier, now| {
            let outcome = disrupt(&snapshot, &world.policy, now, frontier);
            nodes_of(&outcome.commands)
        };
        let first = world.pass().commands.remove(0);
        let mut frontier = Frontier::default();
        assert_eq!(going(&frontier, world.now), ["a"]);
        frontier.refused(&first, world.now);
        assert_eq!(going(&frontier, world.now), ["b"]);
        assert_eq!(going(&frontier, support::later(61)), ["a"], "it is tried again");
        frontier.failed(&first, world.now);
        assert!(going(&frontier, world.now).is_empty(), "its NodePool rests");
    }
}

/// NodeClaims are made and deleted by their label: without it a node is one of nobody's number, whatever the label of its Node says.
#[test]
fn d_355_d_139_a_node_that_was_taken_out_of_its_static_pool_neither_counts_nor_is_replaced_in_it() {
    let world = static_world(2, None).edit_claim("a", |claim| {
        let labels = claim.metadata.labels.get_or_insert_default();
        labels.insert("karpenter.sh/nodepool".to_owned(), "other".to_owned());
    });
    assert_eq!(nodes_of(&world.pass().commands), ["b", "c"]);
    let blocker = |world: &World| world.verdict("a").blockers.remove(0);
    let kept = blocker(&world);
    assert_eq!(kept.kind.to_string(), "StaticNodePool");
    assert_eq!(
        kept.message,
        "its NodePool is static, and the label of its NodeClaim takes it out of that"
    );
    let one_too_many = blocker(&static_world(2, None));
    assert_eq!(
        one_too_many.message,
        "its static NodePool has more nodes than replicas, and a scale-down comes first"
    );
    assert_eq!(
        one_too_many.condition,
        "its NodePool had no more nodes than replicas"
    );
    let at_limit = blocker(&static_world(3, Some(3)));
    assert_eq!(
        at_limit.message,
        "its static NodePool has no headroom for a replacement"
    );
    assert_eq!(at_limit.condition, "limits.nodes left room for one more");
}

#[test]
fn d_139_d_141_p_067_a_static_replacement_comes_from_the_template_and_the_cloud_chooses_its_type() {
    let world = static_world(3, None);
    let requirements = |world: &World| {
        let outcome = world.pass();
        let snapshot = world.snapshot();
        let command = outcome.commands.first().expect("a command");
        let written = record(&snapshot, command, &outcome.budgets, world.now);
        let spec = written.spec.replacements[0].spec.clone();
        let pool = &snapshot.pools[0];
        let template = template_claim(&pool.object, &pool.instance_types);
        assert_eq!(spec, template.spec, "as scale-up creates it");
        spec.requirements
            .into_iter()
            .map(|one| one.key)
            .collect::<Vec<_>>()
    };
    let keys = requirements(&world);
    assert!(
        !keys.contains(&"node.kubernetes.io/instance-type".to_owned()),
        "{keys:?}"
    );
    // Nothing is to be had at this moment: the cloud is asked all the same.
    let mut types = three_types();
    for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
        offering.available = false;
    }
    let mut short = world.clone();
    short
        .state
        .instance_types
        .insert("default".to_owned(), Ok(types.into()));
    assert_eq!(requirements(&short), keys);
    assert_eq!(short.pass().commands.len(), 3);
}

/// Nobody vouches for the place of a pod that spreads: where plans are distrusted, it does not move.
#[test]
fn invariant_17_a_drifted_node_that_is_replaced_at_the_same_price_costs_no_trust() {
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 9, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "p"}}}]});
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .node("old", "small")
        .drifted("old", -60)
        .pod_with("p", "a", "1", &spread)
        .pod_with("r", "b", "500m", &pinned("b"))
        .pod("w", "old", "1500m");
    let mut executor = Executor {
        state: world.state.clone(),
        types: world.types.clone(),
        scatter: false,
        born: 0,
    };
    let mut frontier = Frontier::default();
    for (method, node) in [(Method::Drift, "old"), (Method::SingleNodeConsolidation, "a")] {
        let snapshot = lower(&executor.state);
        let outcome = disrupt(&snapshot, &world.policy, world.now, &frontier);
        frontier = outcome.frontier;
        assert_eq!(nodes_of(&outcome.commands), [node]);
        assert_eq!(outcome.commands[0].method, method);
        executor.carry_out(&snapshot, &outcome.commands[0]);
    }
}
