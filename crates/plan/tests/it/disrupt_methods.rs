//! Methods of consolidation: prices, policies, scores and searches, one test per behaviour or mended weakness.

use crate::disrupt_balanced::balanced;
use crate::disrupt_sets::many;
use crate::support::{
    World, acts, dollars, free_pool, on_demand_pool, only, pinned, text, three_types, zero_budget,
};
use serde_json::json;
use spokeshave_api::{ConsolidationPolicy, Operator, Requirement};
use spokeshave_example::instance_type;
use spokeshave_model::{CapacityType, InstanceType, Price};
use spokeshave_plan::disrupt::{Decision, Frontier, Method, Outcome, Rejection, disrupt, validate};

/// Under-used, and a smaller node would do.
pub(crate) fn replaceable() -> World {
    World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3")
}

#[test]
fn d_147_d_154_what_may_be_spot_is_pinned_to_spot() {
    let world = World::new(free_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3");
    let claim = &world.command().replacements[0].claim;
    let kinds: Vec<&str> = claim.capacity_types.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["spot"]);
    assert!(
        !claim
            .requirements
            .get("karpenter.sh/capacity-type")
            .has("on-demand")
    );
    // Spot to spot is pinned, too, and types without a spot offering fall out.
    let mut types: Vec<InstanceType> = (0..20)
        .map(|index| instance_type(&format!("t{index:02}"), 4 + index, 8, &["a"]))
        .collect();
    types[3]
        .offerings
        .retain(|offering| offering.capacity_type() != Some(CapacityType::Spot));
    let mut world = World::with_types(free_pool("default"), types)
        .node_in("default", "n", "t19", "spot")
        .pod("p", "n", "3");
    world.policy.disrupt.spot_to_spot = true;
    let command = world.command();
    assert!(!command.replacements[0].instance_types.contains(&"t03".to_owned()));
    assert_eq!(command.replacements[0].capacity_type, Some(CapacityType::Spot));
}

/// Spot is for sale, but not as anything that is cheaper than the node: pinned to spot, the replacement could be nothing at all.
#[test]
fn d_147_what_no_type_that_is_left_can_be_had_as_is_not_pinned_to_spot() {
    let mut types = vec![
        instance_type("mid", 4, 8, &["a"]),
        instance_type("large", 16, 32, &["a"]),
        instance_type("huge", 32, 64, &["a"]),
    ];
    for kind in &mut types {
        let is_huge = kind.name == "huge";
        for offering in &mut kind.offerings {
            if offering.capacity_type() == Some(CapacityType::Spot) {
                offering.available = is_huge;
                offering.price = dollars("9");
            }
        }
    }
    let world = World::with_types(free_pool("default"), types)
        .node("a", "large")
        .pod("p", "a", "3");
    let command = world.command();
    let replacement = &command.replacements[0];
    assert_eq!(replacement.instance_types, ["mid"]);
    assert_eq!(replacement.capacity_type, Some(CapacityType::OnDemand));
    assert_eq!(replacement.claim.launches.len(), 1);
    assert_eq!(command.savings(), dollars("0.48"));
    let validation = validate(&command, &world.snapshot(), &world.policy, world.now);
    assert_eq!(
        validation.command.as_ref(),
        Some(&command),
        "{}",
        validation.message
    );
}

#[test]
fn d_149_a_node_that_only_a_pending_pod_needs_is_no_replacement() {
    // Upstream has one new NodeClaim here, for the pending pod, and no pure delete.
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod("p", "a", "1")
        .pod_with("r", "b", "100m", &pinned("b"))
        .pending("huge", "15");
    let command = world.command();
    assert_eq!(
        (command.decision(), command.replacements.len()),
        (Decision::Delete, 0)
    );
}

#[test]
fn d_152_w_08_one_estimate_decides_scores_and_is_shown() {
    let command = replaceable().command();
    assert_eq!(command.savings(), dollars("0.48"));
    // Zone b makes the cheapest type dearer than it looks: the worst price counts in the filter and in what is shown.
    let mut types = vec![
        instance_type("mid", 4, 8, &["a", "b"]),
        instance_type("large", 16, 32, &["a"]),
    ];
    for offering in &mut types[0].offerings {
        if offering.zone() == Some("b") {
            offering.price = dollars("0.60");
        }
    }
    let world = World::with_types(on_demand_pool("default"), types)
        .node("a", "large")
        .pod("p", "a", "3");
    assert_eq!(world.command().savings(), dollars("0.04"));
    let deletes = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod("p", "a", "1")
        .pod_with("r", "b", "100m", &pinned("b"));
    assert_eq!(
        deletes.command().savings(),
        dollars("0.08"),
        "of a delete the whole price"
    );
}

#[test]
fn d_163_d_168_w_25_no_time_limit_and_every_candidate_in_every_pass() {
    let world = many(130);
    let outcome = world.pass();
    let report = outcome
        .reports
        .iter()
        .find(|report| report.method == Method::MultiNodeConsolidation)
        .expect("it ran");
    assert_eq!((report.eligible, report.evaluated), (130, 130));
    // The search over sets is bounded in steps, which are counted, so that its end depends on no clock.
    let mut short = world.clone();
    short.policy.disrupt.search_steps = 200;
    let (one, two) = (short.pass(), short.pass());
    assert_eq!(one, two);
    assert!(one.statistics.steps <= 400, "{:?}", one.statistics);
    assert_eq!(one.commands.len(), 1, "its best answer so far");
    // Nothing is remembered as fruitless before every seed had its turn.
    let full = (0..8).fold(World::new(on_demand_pool("default")), |world, index| {
        let name = format!("n{index}");
        world
            .node(&name, "small")
            .pod(&format!("p{index}"), &name, "1500m")
    });
    let mut frontier = Frontier::default().at(1);
    let mut passes = 0;
    while !frontier.is_settled(full.now) {
        frontier = disrupt(&full.snapshot(), &full.policy, full.now, &frontier).frontier;
        passes += 1;
        assert!(passes < 10);
    }
    assert!(passes > 1, "8 seeds take more than one pass");
}

#[test]
fn d_167_d_170_the_first_candidate_that_may_go_goes() {
    // The dearest cannot move; those behind it have their turn in the same pass.
    let mut world = World::new(on_demand_pool("default"))
        .node("stuck", "large")
        .pod_with("anchor", "stuck", "15500m", &pinned("stuck"))
        .node("a", "medium")
        .pod("p", "a", "1500m")
        .node("b", "medium")
        .pod("q", "b", "1500m");
    world.policy = only(Method::SingleNodeConsolidation);
    let outcome = world.pass();
    assert_eq!(outcome.reports[0].evaluated, 3);
    assert_eq!(outcome.commands.len(), 1);
    assert_eq!(outcome.commands[0].nodes[0].node, "a");
}

#[test]
fn d_057_d_172_w_38_w_39_w_58_totals_are_those_of_the_pass() {
    // Node b is no candidate: a mirror pod and a terminating pod of it count 1 each, besides 1 for the node.
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "1")
        .node("b", "large")
        .pod("q", "b", "1")
        .pod("mirror", "b", "1")
        .edit_pod("mirror", |pod| {
            pod.metadata.owner_references = serde_json::from_value(
                json!([{"apiVersion": "v1", "kind": "Node", "name": "b", "uid": "u", "controller": true}]),
            )
            .ok();
        })
        .annotate_node("b", "karpenter.sh/do-not-disrupt", "true")
        .edit_pool("default", balanced);
    let score = world.pass().reports.last().expect("single").scores[0].clone();
    assert_eq!(
        score.total_cost,
        dollars("1.28"),
        "from the nodes and prices of the pass"
    );
    let unit = spokeshave_model::pod::EVICTION_COST_UNIT;
    assert_eq!(score.disruption_cost, 2 * unit);
    assert_eq!(score.total_disruption_cost, 5 * unit, "2 of a, 3 of b");
    // A price that is another one in the next pass is another total.
    let mut dearer = world.clone();
    for types in dearer.state.instance_types.values_mut().flatten() {
        let mut all = types.to_vec();
        for offering in &mut all[2].offerings {
            offering.price = dollars("1");
        }
        *types = all.into();
    }
    let score = dearer.pass().reports.last().expect("single").scores[0].clone();
    assert_eq!(score.total_cost, dollars("2"));
}

#[test]
fn d_175_the_policy_of_the_pool_that_loses_the_node_counts() {
    // A score that is far too low: the pool is worth thousands.
    let world = |loser: ConsolidationPolicy, taker: ConsolidationPolicy| {
        let mut world = World::new(on_demand_pool("loser"));
        world.state = world.state.with_pool(on_demand_pool("taker"), three_types());
        let mut world = world
            .node_in("loser", "a", "small", "on-demand")
            .pod("p", "a", "1")
            .node_in("taker", "b", "small", "on-demand")
            .pod_with("r", "b", "100m", &pinned("b"));
        for index in 0..30 {
            let name = format!("rich{index}");
            world = world.node_in("loser", &name, "large", "on-demand");
            world = world.annotate_node(&name, "karpenter.sh/do-not-disrupt", "true");
        }
        world
            .edit_pool("loser", move |pool| {
                pool.spec.disruption.consolidation_policy = loser.clone()
            })
            .edit_pool("taker", move |pool| {
                pool.spec.disruption.consolidation_policy = taker.clone()
            })
    };
    use ConsolidationPolicy::{Balanced, WhenEmptyOrUnderutilized as Any};
    assert_eq!(
        world(Balanced, Any).verdict_text("a"),
        "keep: Score NodePool loser"
    );
    assert_eq!(
        world(Any, Balanced).verdict_text("a"),
        "delete by SingleNodeConsolidation"
    );
}

#[test]
fn d_182_what_each_policy_lets_go() {
    let with = |policy: &ConsolidationPolicy| {
        let policy = policy.clone();
        replaceable().edit_pool("default", move |pool| {
            pool.spec.disruption.consolidation_policy = policy.clone()
        })
    };
    assert_eq!(
        acts(&with(&ConsolidationPolicy::WhenEmptyOrUnderutilized)),
        ["SingleNodeConsolidation replace [a] by medium"],
        "any advantage"
    );
    assert_eq!(
        with(&ConsolidationPolicy::WhenEmpty).verdict_text("a"),
        "keep: ConsolidationPolicy NodePool default"
    );
}

#[test]
fn d_091_d_093_d_095_w_41_rejections_are_told_on_every_node() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "medium")
        .node("b", "medium")
        .pod("p", "a", "1200m")
        .pod("q", "b", "300m");
    let command = world.command();
    assert_eq!(command.nodes.len(), 2);
    // A pod that came after the decision is seen at the second look, as everything is: it is one Snapshot (D-091).
    let later = world.pod_with("new", "a", "100m", &json!({})).annotate_pod(
        "new",
        "karpenter.sh/do-not-disrupt",
        "true",
    );
    let second = validate(&command, &later.snapshot(), &later.policy, later.now);
    assert_eq!(
        (&second.command, second.rejection),
        (&None, Some(Rejection::Churn))
    );
    let told: Vec<(&str, &str)> = second
        .events
        .iter()
        .map(|event| (event.object.name.as_str(), event.reason.as_str()))
        .collect();
    let reason = "ConsolidationRejected";
    assert_eq!(
        told,
        [
            ("a", reason),
            ("claim-a", reason),
            ("b", reason),
            ("claim-b", reason)
        ]
    );
    assert_eq!(
        second.events[0].message,
        "Consolidation rejected: replace: [a] (part of 2-node consolidation), reason: churn (savings: $0.24)"
    );
    // Emptiness tells nothing.
    let empty = World::new(on_demand_pool("default")).node("a", "small");
    let command = empty.command();
    let filled = empty.pod("p", "a", "1");
    let second = validate(&command, &filled.snapshot(), &filled.policy, filled.now);
    assert!(second.command.is_none() && second.events.is_empty());
}

#[test]
fn d_205_d_206_d_207_budgets_of_drift_and_what_is_shown_of_them() {
    let mut pool = on_demand_pool("default");
    pool.spec.replicas = Some(2);
    pool.spec.disruption.budgets = Some(zero_budget("0"));
    let world = World::new(pool)
        .node("a", "small")
        .node("b", "small")
        .drifted("a", 0)
        .drifted("b", 0);
    let outcome = world.pass();
    assert_eq!(outcome.commands, [], "static NodePools obey budgets for Drifted");
    let mapping = outcome
        .budgets
        .iter()
        .find(|mapping| mapping.reason.to_string() == "Drifted")
        .expect("shown, with its capital letter");
    let budget = mapping.pools.values().next().expect("the pool");
    assert_eq!((budget.allowed, budget.disrupting, budget.nodes), (0, 0, 2));
    assert_eq!(
        world.events("default"),
        ["DisruptionBlocked: No allowed disruptions for disruption reason Drifted due to blocking budget"]
    );
    // Used up is not the same as zero.
    let mut busy = world.edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(zero_budget("1"));
    });
    busy.state.marked_for_deletion.insert("kwok://b".to_owned());
    assert_eq!(busy.events("default"), Vec::<String>::new());
    assert_eq!(acts(&busy), Vec::<String>::new());
}

#[test]
fn w_06_w_37_one_definition_of_empty() {
    // Every candidate is emptiness's affair or consolidation's, whatever its pods cost to evict; never both, never neither.
    for cost in ["-2147483647", "-134217728", "-1", "0", "1", "2147483647"] {
        let world = World::new(on_demand_pool("default"))
            .node("a", "large")
            .pod("p", "a", "3")
            .annotate_pod("p", "controller.kubernetes.io/pod-deletion-cost", cost);
        let reports = world.pass().reports;
        let eligible = |method: Method| {
            let report = reports.iter().find(|report| report.method == method);
            report.map_or(0, |report| report.eligible)
        };
        let single = eligible(Method::SingleNodeConsolidation).max(eligible(Method::MultiNodeConsolidation));
        assert_eq!(
            eligible(Method::Emptiness) + single,
            1,
            "eviction cost {cost}: {reports:?}"
        );
    }
}

#[test]
fn w_09_d_156_d_157_g_1_5_fifteen_types_and_in_more_than_one_zone() {
    // The n-th type is sold in the n-th of these lists of zones, the last list for all that follow.
    let world = |cheaper: i64, zones: &[&[&str]]| {
        let zones_of = |index: i64| {
            let index = usize::try_from(index).unwrap();
            zones[index.min(zones.len() - 1)]
        };
        let types = (0..=cheaper)
            .map(|index| instance_type(&format!("t{index:02}"), 4 + index, 8, zones_of(index)))
            .collect();
        let mut world = World::with_types(free_pool("default"), types)
            .node_in("default", "n", &format!("t{cheaper:02}"), "spot")
            .pod("p", "n", "3");
        world.policy.disrupt.spot_to_spot = true;
        world
    };
    let names = |world: &World| world.command().replacements[0].instance_types.len();
    let few = |got: usize| {
        format!(
            "Unconsolidatable: SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got {got}"
        )
    };
    for zones in [&["a"][..], &["a", "b", "c", "d"]] {
        for cheaper in [4, 5, 14] {
            let world = world(cheaper, &[zones]);
            assert_eq!(world.pass().commands, [], "{cheaper} types in {zones:?}");
            let got = few(usize::try_from(cheaper).unwrap());
            assert!(world.events("n").contains(&got), "{:?}", world.events("n"));
        }
        assert_eq!(names(&world(15, &[zones])), 15);
        assert_eq!(
            names(&world(20, &[zones])),
            15,
            "and no dearer ones: otherwise it goes down step by step"
        );
    }
    // Fifteen types in one zone may run out together where there are others: types are named until a second zone is among them.
    let mixed = |second: usize| -> Vec<&[&str]> {
        let mut zones: Vec<&[&str]> = vec![&["a"]; second];
        zones.push(&["a", "b"]);
        zones
    };
    assert_eq!(names(&world(20, &mixed(10))), 15);
    assert_eq!(names(&world(20, &mixed(17))), 18);
    let alone = world(20, &mixed(20));
    assert_eq!(alone.pass().commands, []);
    let one = "Unconsolidatable: SpotToSpotConsolidation requires cheaper instance type options in more than one zone, got 20 in zone \"a\"";
    assert!(
        alone.events("n").iter().any(|event| event == one),
        "{:?}",
        alone.events("n")
    );
    // A pod that must be in a zone leaves no other.
    let bound = world(20, &mixed(20)).edit_pod("p", |pod| {
        let zone = [("topology.kubernetes.io/zone".to_owned(), "a".to_owned())];
        pod.spec_mut().node_selector = Some(zone.into());
    });
    assert_eq!(names(&bound), 15);
}

/// The kwok catalogue's m-8x and m-16x: one costs exactly twice as much as the other, but not when both are rounded to nano-dollars.
#[test]
fn d_145_rounding_makes_no_saving() {
    let world = |big: f64| {
        let priced = |name: &str, cores: i64, price: f64| {
            let mut priced = instance_type(name, cores, cores * 8, &["a"]);
            for offering in &mut priced.offerings {
                offering.price = Price::from_dollars(price);
            }
            priced
        };
        let types = vec![priced("m-8x", 8, 0.268_719_476_736), priced("m-16x", 16, big)];
        // No node has room for more than its own pods.
        World::with_types(on_demand_pool("default"), types)
            .node_in("default", "one", "m-8x", "on-demand")
            .node_in("default", "two", "m-8x", "on-demand")
            .pod("p", "one", "6")
            .pod("q", "two", "6")
    };
    assert_eq!(world(0.537_438_953_472).pass().commands, []);
    assert_eq!(
        text(&world(0.537_438_952).command()),
        "MultiNodeConsolidation replace [one, two] by m-16x"
    );
}

#[test]
fn w_14_w_15_candidates_cost_their_own_pods_on_any_number_of_threads() {
    let mut world = many(130);
    world.policy.disrupt.verdicts = true;
    let snapshot = world.snapshot();
    let outcomes: Vec<Outcome> = [1, 2, 8]
        .map(|threads| {
            world.policy.disrupt.threads = threads;
            disrupt(&snapshot, &world.policy, world.now, &Frontier::default())
        })
        .into();
    assert_eq!(format!("{:?}", outcomes[0]), format!("{:?}", outcomes[1]));
    assert_eq!(format!("{:?}", outcomes[0]), format!("{:?}", outcomes[2]));
    // A candidate costs its own pods: 130 candidates of one pod each, looked at once for both methods, and the search.
    let statistics = outcomes[0].statistics;
    assert!(
        statistics.pods < 130 * 3 + 2 * statistics.steps + 130 * 20,
        "{statistics:?}"
    );
}

#[test]
fn w_43_another_reason_is_another_event_and_objects_are_told_apart_by_uid() {
    let blocked = |value: &World| {
        let outcome = value.pass();
        let events = outcome
            .events
            .iter()
            .filter(|event| event.reason == "DisruptionBlocked");
        events.map(|event| event.key()).collect::<Vec<_>>()
    };
    let base = replaceable();
    let annotated = blocked(
        &base
            .clone()
            .annotate_node("a", "karpenter.sh/do-not-disrupt", "true"),
    );
    let pod = blocked(&base.annotate_pod("p", "karpenter.sh/do-not-disrupt", "true"));
    assert!(!annotated.is_empty() && annotated.len() == pod.len());
    assert_ne!(annotated, pod, "the message is part of what makes them equal");
    assert!(
        annotated[0].iter().any(|value| value.starts_with("uid")),
        "{annotated:?}"
    );
}

#[test]
fn d_094_w_59_every_way_to_be_rejected_has_a_reason() {
    let base = || replaceable();
    let command = base().command();
    let rejected = |world: &World| {
        let second = validate(&command, &world.snapshot(), &world.policy, world.now);
        (second.rejection.map(Rejection::as_str), second.message)
    };
    assert_eq!(
        rejected(&base().annotate_node("a", "karpenter.sh/do-not-disrupt", "true")).0,
        Some("churn")
    );
    let closed = base().edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(zero_budget("0"))
    });
    assert_eq!(rejected(&closed).0, Some("budget"));
    // The pod has grown out of what was chosen: found by the evaluation, and counted as well.
    let grown = base().pod("q", "a", "12");
    assert_eq!(rejected(&grown).0, Some("scheduling"));
    let gone = World::new(on_demand_pool("default"));
    assert_eq!(rejected(&gone).0, Some("churn"));
}

#[test]
fn d_216_d_227_an_operator_of_the_future_moves_nothing() {
    let world = replaceable().edit_pool("default", |pool| {
        pool.spec.template.spec.requirements.push(Requirement::new(
            "rack",
            Operator::Other("Resembles".to_owned()),
            &["a"],
        ));
    });
    assert_eq!(acts(&world), Vec::<String>::new());
}
