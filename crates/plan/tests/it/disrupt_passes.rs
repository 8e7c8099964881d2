//! Passes and what-ifs of disruption, one test per behaviour: what a pass may look at, what it tells, and what it leaves to the next.

use crate::support::{
    DELETE_A, World, acts, dollars, later, on_demand_pool, pair, pinned, text, three_types, zero_budget,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_api::{Budget, ConsolidationPolicy};
use spokeshave_example::instance_type;
use spokeshave_plan::disrupt::record::record;
use spokeshave_plan::disrupt::words;
use spokeshave_plan::disrupt::{
    Destination, DisruptionClass, Frontier, Method, Outcome, candidate, disrupt, validate,
};

/// Names of the pods of node `a` for which a place is looked for.
fn moving(world: &World, class: DisruptionClass) -> Vec<String> {
    let snapshot = world.snapshot();
    let node = snapshot.find_node("a").expect("node a");
    let candidate = candidate(&snapshot, node, class, world.now).expect("a candidate");
    let moving = candidate.moving(&snapshot);
    let pods = moving.iter().map(|pod| snapshot.pod(*pod).key());
    pods.collect()
}

#[test]
fn d_008_d_020_capacity_is_planned_only_for_pods_that_will_leave() {
    let base = || pair().grace("a");
    let leaves = |world: &World| moving(world, DisruptionClass::Eventual) == ["default/p"];
    assert!(leaves(&base()));
    assert!(
        !leaves(&base().annotate_pod("p", "karpenter.sh/do-not-disrupt", "true")),
        "it stays until the deadline"
    );
    let under = |spec: serde_json::Value, allowed: i32| {
        let mut world = base().budget("web", &json!({"matchLabels": {"app": "p"}}), allowed);
        let budget = std::sync::Arc::make_mut(&mut world.state.pod_disruption_budgets[0]);
        let inner = budget.spec.as_mut().expect("a spec");
        inner.max_unavailable = serde_json::from_value(spec["maxUnavailable"].clone()).ok();
        inner.min_available = serde_json::from_value(spec["minAvailable"].clone()).ok();
        world
    };
    for never in [
        json!({"maxUnavailable": 0}),
        json!({"maxUnavailable": "0%"}),
        json!({"minAvailable": "100%"}),
    ] {
        assert!(!leaves(&under(never.clone(), 0)), "{never}");
        assert!(
            leaves(&under(never.clone(), 1)),
            "{never}: its workload was scaled down, so the API server lets a pod go now"
        );
    }
    for some_day in [
        json!({"maxUnavailable": 1}),
        json!({"maxUnavailable": "10%"}),
        json!({"minAvailable": 1}),
        json!({"minAvailable": "99%"}),
    ] {
        assert!(leaves(&under(some_day.clone(), 0)), "{some_day}");
    }
}

#[test]
fn d_033_methods_filter_candidates_and_totals_do_not() {
    // Node b takes no part in consolidation yet; the totals of policy Balanced count it all the same.
    let world = |extra: bool| {
        let base = World::new(on_demand_pool("default"))
            .node("a", "large")
            .pod("p", "a", "1");
        let base = if extra {
            base.node("b", "large")
                .pod("q", "b", "15500m")
                .not_consolidatable("b")
        } else {
            base
        };
        base.edit_pool("default", |pool| {
            pool.spec.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
        })
    };
    let scores = |extra: bool| world(extra).pass().reports.last().expect("single").scores[0].clone();
    let (alone, both) = (scores(false), scores(true));
    assert_eq!(alone.total_cost, dollars("0.64"));
    assert_eq!(both.total_cost, dollars("1.28"));
    assert!(both.total_disruption_cost > alone.total_disruption_cost);
    let reports = world(true).pass().reports;
    assert_eq!(reports.last().expect("single").eligible, 1, "b is filtered");
}

#[test]
fn d_040_whose_window_is_open() {
    let window = |value: &str| {
        let value = json!(value);
        pair()
            .edit_pool("default", move |pool| {
                pool.spec.disruption.consolidate_after =
                    serde_json::from_value(value.clone()).expect("a duration");
            })
            .last_pod_event("a", -3600)
            .last_pod_event("b", -60)
    };
    let withheld = |world: &World| world.verdict_text("a") == "keep: Neighbours Node b";
    assert!(withheld(&window("10m")));
    assert!(!withheld(&window("59s")), "it has passed");
    assert!(!withheld(&window("0s")));
    assert_ne!(window("Never").verdict_text("a"), "keep: Neighbours Node b");
    // Without an event the time of initialisation counts, and a node that is not initialised has no window.
    let fresh = window("10m").edit_claim("b", |claim| {
        let status = claim.status.get_or_insert_default();
        status.last_pod_event_time = None;
        for condition in &mut status.conditions {
            condition.last_transition_time = later(-30);
        }
    });
    assert!(withheld(&fresh));
    let uninitialised = fresh.edit_claim("b", |claim| {
        let conditions = &mut claim.status.get_or_insert_default().conditions;
        conditions.retain(|condition| condition.type_ != "Initialized");
    });
    assert!(!withheld(&uninitialised));
}

#[test]
fn d_065_w_23_what_one_method_cannot_do_stops_no_other() {
    // A drifted node whose NodePool has nothing to buy: upstream ends the pass with an error.
    let mut world = World::new(on_demand_pool("default"));
    world.state = world.state.with_pool(on_demand_pool("broken"), three_types());
    let world = world
        .node_in("broken", "x", "small", "on-demand")
        .drifted("x", 0)
        .edit_pool("broken", |pool| {
            let status = pool.status.get_or_insert_default();
            for condition in &mut status.conditions {
                condition.status = "False".to_owned();
            }
        })
        .pod_with("s", "x", "1", &pinned("x"))
        .node("a", "small")
        .node("b", "small")
        .pod("p", "a", "1")
        .pod_with("r", "b", "100m", &pinned("b"));
    let outcome = world.pass();
    let ran: Vec<Method> = outcome.reports.iter().map(|report| report.method).collect();
    assert!(ran.contains(&Method::SingleNodeConsolidation), "{ran:?}");
    assert_eq!(text(&outcome.commands[0]), DELETE_A);
    // Without any NodePool that is ready, empty nodes go all the same.
    let none = World::new(on_demand_pool("default"))
        .node("a", "small")
        .edit_pool("default", |pool| {
            let status = pool.status.get_or_insert_default();
            for condition in &mut status.conditions {
                condition.status = "False".to_owned();
            }
        });
    assert_eq!(acts(&none), ["Emptiness delete [a]"]);
}

#[test]
fn d_069_every_pass_names_the_budgets_that_cannot_be_evaluated() {
    let mut faulty = Budget::always("1");
    faulty.schedule = Some("@wrong".to_owned());
    faulty.duration = "1h".parse().ok();
    let world = pair().edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(vec![faulty.clone()])
    });
    for _ in 0..2 {
        let outcome = world.pass();
        let pools = outcome.budgets.iter().flat_map(|mapping| mapping.pools.values());
        let errors: Vec<_> = pools.filter_map(|budget| budget.error.clone()).collect();
        assert!(!errors.is_empty(), "{:?}", outcome.budgets);
        assert!(errors[0].to_string().contains("@wrong"), "{errors:?}");
        assert_eq!(outcome.commands, []);
    }
}

#[test]
fn d_074_a_candidate_that_is_deleted_meanwhile_is_left_out() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3");
    let command = world.command();
    let deleted = world.edit_claim("a", |claim| {
        claim.metadata.deletion_timestamp = Some(Time(later(0)))
    });
    assert_eq!(acts(&deleted), Vec::<String>::new());
    let again = validate(&command, &deleted.snapshot(), &deleted.policy, deleted.now);
    assert_eq!(again.command, None);
    assert_eq!(again.message, "node a is no candidate any more");
}

#[test]
fn d_076_new_nodes_come_from_ready_dynamic_pools_in_order_of_weight() {
    let world = |edit: &dyn Fn(&mut spokeshave_api::NodePool)| {
        let mut heavy = on_demand_pool("heavy");
        heavy.spec.weight = Some(50);
        edit(&mut heavy);
        let mut world = World::new(on_demand_pool("default"));
        world.state = world.state.with_pool(heavy, three_types());
        world.node("a", "large").pod("p", "a", "3")
    };
    let bought = |world: &World| world.command().replacements[0].pool.clone();
    assert_eq!(bought(&world(&|_| {})), "heavy");
    assert_eq!(
        bought(&world(&|pool| pool.spec.replicas = Some(1))),
        "default",
        "a static NodePool buys for nobody"
    );
    assert_eq!(
        bought(&world(&|pool| {
            for condition in &mut pool.status.get_or_insert_default().conditions {
                condition.status = "False".to_owned();
            }
        })),
        "default"
    );
    assert_eq!(
        bought(&world(
            &|pool| pool.metadata.deletion_timestamp = Some(Time(later(0)))
        )),
        "default"
    );
}

#[test]
fn d_077_what_ifs_keep_to_the_policies_of_the_operator() {
    use spokeshave_plan::PreferencePolicy;
    let preferring = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}}]}}});
    let types = vec![
        instance_type("small", 2, 4, &["a", "b"]),
        instance_type("large", 16, 32, &["a", "b"]),
    ];
    let mut world = World::with_types(on_demand_pool("default"), types)
        .node("a", "large")
        .pod_with("p", "a", "1", &preferring);
    let zones = |world: &World| {
        let claim = &world.command().replacements[0].claim;
        claim.requirements.get("topology.kubernetes.io/zone").has("b")
    };
    assert!(!zones(&world), "preferences are respected");
    world.policy.preferences = PreferencePolicy::Ignore;
    assert!(zones(&world));
}

#[test]
fn d_079_a_replacement_keeps_only_its_cheapest_types() {
    let mut world = World::with_types(
        on_demand_pool("default"),
        (1..=20)
            .map(|cores| instance_type(&format!("t{cores:02}"), cores, 64, &["a"]))
            .collect(),
    )
    .node("a", "t20")
    .pod("p", "a", "1500m");
    world.policy.instance_types_per_claim = 3;
    assert_eq!(
        world.command().replacements[0].instance_types,
        ["t02", "t03", "t04"]
    );
    let policy = spokeshave_plan::Policy::default();
    assert_eq!(policy.instance_types_per_claim, 600);
}

#[test]
fn d_080_existing_nodes_take_pods_first_by_name_and_the_largest_pod_is_placed_first() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "medium")
        .node("c", "small")
        .node("b", "small")
        .pod("little", "a", "200m")
        .pod("big", "a", "1700m")
        .pod_with("r", "b", "100m", &pinned("b"))
        .pod_with("s", "c", "100m", &pinned("c"));
    let command = world.command();
    assert_eq!(text(&command), DELETE_A);
    let places: Vec<(String, String)> = command
        .moves
        .iter()
        .map(|one| match &one.to {
            Destination::Node { name, .. } => (one.pod.clone(), name.clone()),
            Destination::Replacement(_) => (one.pod.clone(), "new".to_owned()),
        })
        .collect();
    assert_eq!(
        places,
        [
            ("default/big".to_owned(), "b".to_owned()),
            ("default/little".to_owned(), "c".to_owned())
        ]
    );
}

#[test]
fn d_083_the_reason_names_five_pods_and_counts_the_others() {
    let mut world = World::new(on_demand_pool("default")).node("a", "large");
    for index in 0..7 {
        let nowhere = json!({"nodeSelector": {"rack": "none"}});
        world = world.pod_with(&format!("p{index}"), "a", "1", &nowhere);
    }
    let events = world.events("a");
    let event = events
        .iter()
        .find(|event| event.starts_with("Unconsolidatable: Not all pods would schedule, "))
        .unwrap_or_else(|| panic!("{events:?}"));
    assert_eq!(event.matches(" => ").count(), 5, "{event}");
    assert!(event.ends_with(" and 2 other(s)"), "{event}");
    assert!(event.contains("default/p0 => "), "{event}");
}

#[test]
fn d_084_pods_with_resource_claims_keep_their_node() {
    let claims = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]});
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod_with("p", "a", "1", &claims)
        .pod_with("r", "b", "100m", &pinned("b"));
    assert_eq!(acts(&world), Vec::<String>::new());
    assert_eq!(world.verdict_text("a"), "keep: Pod Pod default/p");
    assert_eq!(acts(&world.drifted("a", 0)), Vec::<String>::new(), "nor drift");
}

#[test]
fn d_085_what_ifs_say_nothing_about_pending_pods_and_leave_no_trace() {
    let world = pair().pending("impossible", "500");
    let snapshot = world.snapshot();
    let twice: Vec<Outcome> = (0..2)
        .map(|_| disrupt(&snapshot, &world.policy, world.now, &Frontier::default()))
        .collect();
    assert_eq!(twice[0], twice[1]);
    assert!(
        twice[0]
            .events
            .iter()
            .all(|event| event.object.name != "impossible"),
        "{:?}",
        twice[0].events
    );
}

/// What another version is, is for the caller to know: tests of `sim` show it of every kind of object (`d_121_…`), of prices and of offerings (`w_27_…`).
#[test]
fn d_120_d_166_d_171_w_13_a_fruitless_pass_over_one_version_is_not_repeated() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .pod("p", "a", "1");
    let snapshot = world.snapshot();
    let first = disrupt(&snapshot, &world.policy, world.now, &Frontier::default().at(7));
    assert!(first.commands.is_empty() && first.statistics.what_ifs > 0);
    // Nothing at all is computed again for what was seen, before any candidate is built (W-13).
    let second = disrupt(&snapshot, &world.policy, world.now, &first.frontier);
    assert!(second.statistics.idle && second.reports.is_empty() && second.budgets.is_empty());
    for other in [6, 8] {
        let changed = disrupt(
            &snapshot,
            &world.policy,
            world.now,
            &first.frontier.clone().at(other),
        );
        assert!(!changed.statistics.idle && !first.frontier.clone().at(other).is_refresh());
    }
}

fn settled(world: &World) -> Frontier {
    let frontier = Frontier::default().at(1);
    disrupt(&world.snapshot(), &world.policy, world.now, &frontier).frontier
}

/// A node that is needed.
fn full() -> World {
    World::new(on_demand_pool("default"))
        .node("a", "small")
        .pod("p", "a", "1500m")
}

#[test]
fn d_123_what_was_found_fruitless_is_looked_at_again_after_five_minutes() {
    // A candidate that only a budget holds up is no reason to look again sooner: a budget that opens is a change of an object or of the hour.
    let constrained = pair().edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(zero_budget("0"))
    });
    for world in [full(), constrained] {
        let frontier = settled(&world);
        assert!(frontier.is_settled(later(299)) && !frontier.is_settled(later(300)));
        assert!(frontier.is_refresh(), "nothing will have changed by then");
        let mut again = world;
        again.now = later(300);
        let outcome = disrupt(&again.snapshot(), &again.policy, again.now, &frontier);
        assert!(!outcome.statistics.idle && outcome.frontier.is_settled(later(599)));
        assert!(!outcome.frontier.is_settled(later(600)), "and again");
    }
    let protected = settled(&full().annotate_pod("p", "karpenter.sh/do-not-disrupt", "10m"));
    assert!(
        protected.is_refresh() && protected.is_repeated(later(599)) && !protected.is_repeated(later(600))
    );
    let mut judged = settled(&full());
    judged.rest_until(later(30));
    assert!(
        !judged.is_settled(later(30)) && judged.is_refresh(),
        "what the caller left for later is no news"
    );
}

#[test]
fn d_124_p_148_the_clock_ends_what_only_the_clock_can_change() {
    let at_night = Budget {
        schedule: Some("0 3 * * *".to_owned()),
        duration: "1h".parse().ok(),
        ..Budget::always("0")
    };
    let scheduled = full().edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(vec![at_night.clone()])
    });
    let frontier = settled(&scheduled);
    assert!(frontier.is_settled(later(30)) && !frontier.is_settled(later(61)));
    assert!(!frontier.is_refresh(), "an hour may have begun");
    let protected = full().annotate_pod("p", "karpenter.sh/do-not-disrupt", "2m");
    let frontier = settled(&protected);
    assert!(
        frontier.is_settled(later(119)) && !frontier.is_settled(later(120)),
        "the protection ends"
    );
    assert!(!frontier.is_refresh());
}

#[test]
fn d_125_what_is_shown_is_kept_while_nothing_changes() {
    let outcome = {
        let world = pair();
        disrupt(
            &world.snapshot(),
            &world.policy,
            world.now,
            &Frontier::default().at(1),
        )
    };
    assert!(
        outcome.eligible[&Method::Emptiness] == 0 && outcome.eligible[&Method::MultiNodeConsolidation] == 2
    );
    assert_eq!(outcome.reports.len(), 5, "every method says what it looked at");
}

#[test]
fn d_137_one_drifted_node_per_pass_and_the_next_at_once() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod("p", "a", "1500m")
        .pod("q", "b", "1500m")
        .drifted("a", 0)
        .drifted("b", 1);
    let first = world.pass();
    assert_eq!(first.commands.len(), 1);
    assert_eq!(first.commands[0].nodes[0].node, "a");
    // The next pass follows on the state that has the first command in it.
    let mut next = world;
    next.state.in_command.insert("kwok://a".to_owned());
    assert_eq!(next.command().nodes[0].node, "b");
    assert!(!Method::Drift.is_validated(), "it starts at once");
}

#[test]
fn d_061_static_drift_has_no_favourites() {
    let mut pool = on_demand_pool("default");
    pool.spec.replicas = Some(2);
    pool.spec.disruption.budgets = Some(zero_budget("1"));
    let world = World::new(pool)
        .node("a", "small")
        .node("b", "small")
        .drifted("a", 100)
        .drifted("b", 0);
    let commands = world.pass().commands;
    assert_eq!(
        commands.len(),
        1,
        "as many as the budget allows, whichever they are"
    );
    assert_eq!(commands[0].method, Method::StaticDrift);
}

#[test]
fn d_005_d_006_which_pods_a_drain_waits_for() {
    use spokeshave_model::pod::{is_drainable, is_waited_for_in_drain};
    let pod = |value: serde_json::Value| {
        let mut whole = json!({"metadata": {"name": "p"}, "spec": {"containers": []}});
        json_patch(&mut whole, &value);
        serde_json::from_value::<spokeshave_model::Pod>(whole).expect("a pod")
    };
    let plain = pod(json!({}));
    assert!(is_drainable(&plain, later(0)) && is_waited_for_in_drain(&plain, later(0)));
    let protected = pod(json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}));
    assert!(
        is_waited_for_in_drain(&protected, later(0)),
        "waited for, though never evicted"
    );
    let tolerant =
        pod(json!({"spec": {"tolerations": [{"key": "karpenter.sh/disrupted", "operator": "Exists"}]}}));
    assert!(!is_drainable(&tolerant, later(0)));
    let mirror = pod(
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}}),
    );
    assert!(!is_drainable(&mirror, later(0)));
    let terminal = pod(json!({"status": {"phase": "Succeeded"}}));
    assert!(is_drainable(&terminal, later(0)) && !is_waited_for_in_drain(&terminal, later(0)));
    let going = pod(json!({"metadata": {"deletionTimestamp": later(0).to_string()}}));
    assert!(is_waited_for_in_drain(&going, later(60)));
    assert!(!is_waited_for_in_drain(&going, later(61)), "stuck");
}

fn json_patch(into: &mut serde_json::Value, from: &serde_json::Value) {
    match (into, from) {
        (serde_json::Value::Object(into), serde_json::Value::Object(from)) => {
            for (key, value) in from {
                json_patch(into.entry(key.clone()).or_insert(serde_json::Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

#[test]
fn d_103_no_replacement_from_a_pool_that_is_beyond_its_limits() {
    use spokeshave_plan::limit_exceeded;
    let world = |cpu: i64| {
        World::new(on_demand_pool("default"))
            .edit_pool("default", move |pool| {
                let limits = spokeshave_model::Resources::from_amounts([("cpu", cpu)]);
                pool.spec.limits = Some(limits.to_quantities());
            })
            .node("a", "large")
            .pod("p", "a", "3")
    };
    let exceeded = |cpu: i64| {
        let snapshot = world(cpu).snapshot();
        let pool = snapshot.pools.first().expect("a pool");
        limit_exceeded(&pool.object, &pool.usage).map(|found| found.to_string())
    };
    assert_eq!(exceeded(16_000), None);
    let text = exceeded(15_000).expect("16 of 15 cores");
    assert!(text.contains("cpu"), "{text}");
}

#[test]
fn d_106_the_words_of_a_command() {
    let replace = World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3")
        .command();
    assert_eq!(
        replace.text("id"),
        "Underutilized/id: replace: nodepools=[default]: [a] -> [1 replacement] (savings: $0.48)"
    );
    let delete = pair().command();
    assert_eq!(
        delete.text("id"),
        "Underutilized/id: delete: nodepools=[default]: [a] (savings: $0.08)"
    );
}

/// What the log says of a command is read from its object, and is the same as of the command itself.
#[test]
fn d_106_the_log_names_nodes_and_replacements_with_their_types() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3");
    let (snapshot, command) = (world.snapshot(), world.command());
    let object = record(&snapshot, &command, &[], world.now);
    assert_eq!(words::text(&object), command.text(object.name()));
    let node = &object.spec.nodes[0];
    let wanted = serde_json::json!([{
        "Node": {"name": "a"}, "NodeClaim": {"name": node.node_claim}, "capacity-type": "on-demand", "instance-type": "large",
    }]);
    assert_eq!(words::disrupted_nodes(&object.spec), wanted);
    let types = |count: usize| {
        let mut spec = object.spec.clone();
        let requirement = spec.replacements[0]
            .spec
            .requirements
            .iter_mut()
            .find(|requirement| requirement.key == "node.kubernetes.io/instance-type");
        requirement.expect("types").values = (1..=count).map(|number| format!("t{number}")).collect();
        words::replacement_nodes(&spec)
    };
    assert_eq!(
        types(5),
        serde_json::json!([{"capacity-type": "on-demand", "instance-types": "t1, t2, t3, t4, t5"}])
    );
    assert_eq!(
        types(7),
        serde_json::json!([{"capacity-type": "on-demand", "instance-types": "t1, t2, t3, t4, t5 and 2 other(s)"}])
    );
}
