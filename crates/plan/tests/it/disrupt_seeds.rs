//! Statements of the documents that describe disruption to users, each quoted where it is proved. Where they disagree with each other, or with
//! Karpenter as it is, D §10.2 says who wins; its topic is named then.

use crate::support::DELETE_A;
use crate::support::only;
use crate::support::{World, acts, free_pool, later, on_demand_pool, pair, pinned, zero_budget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_api::{Budget, ConsolidationPolicy, DisruptionReason, NodePool, hash};
use spokeshave_example::instance_type;
use spokeshave_plan::disrupt::{BudgetMapping, Decision, Method};

/// So many empty nodes under these budgets: how many may go for a reason.
fn allowed(budgets: &[Budget], nodes: usize, reason: &DisruptionReason) -> i64 {
    allowed_at(budgets, nodes, reason, 12 * 3600)
}

fn allowed_at(budgets: &[Budget], nodes: usize, reason: &DisruptionReason, second: i64) -> i64 {
    let mut pool = free_pool("default");
    pool.spec.disruption.budgets = Some(budgets.to_vec());
    remaining(&with_nodes(World::new(pool), nodes), reason, second)
}

fn with_nodes(world: World, nodes: usize) -> World {
    (0..nodes).fold(world, |world, index| world.node(&format!("n{index:02}"), "small"))
}

fn remaining(world: &World, reason: &DisruptionReason, second: i64) -> i64 {
    let snapshot = world.snapshot();
    let mapping = BudgetMapping::build(&snapshot, reason, later(second));
    mapping.remaining(snapshot.find_pool("default").expect("the pool"))
}

#[test]
fn seed_000_seed_004_one_method_at_a_time() {
    // "Karpenter disrupts nodes by executing one automated method at a time, first doing Drift then Consolidation." Emptiness comes before both
    // (topic 7).
    let all = pair().node("e", "small").drifted("b", 0);
    assert_eq!(acts(&all), ["Emptiness delete [e]"]);
    let busy = pair().drifted("a", 0);
    assert_eq!(busy.command().method, Method::Drift);
    // "If there are no disruptable nodes, continue to the next disruption method."
    assert_eq!(pair().command().method, Method::SingleNodeConsolidation);
}

#[test]
fn seed_000_seed_004_nodes_with_pods_that_cannot_be_evicted_are_passed_over() {
    // "If there are pods that cannot be evicted on the node, Karpenter will ignore the node and try disrupting it later."
    let stuck = pair().pod_with("q", "b", "100m", &pinned("b")).annotate_pod(
        "p",
        "karpenter.sh/do-not-disrupt",
        "true",
    );
    assert!(
        acts(&stuck).iter().all(|act| !act.contains("[a]")),
        "{:?}",
        acts(&stuck)
    );
    // "You can block Karpenter from voluntarily choosing to disrupt certain nodes by setting the karpenter.sh/do-not-disrupt: "true" annotation
    // on the node."
    let node = pair().annotate_node("a", "karpenter.sh/do-not-disrupt", "true");
    assert_eq!(node.verdict_text("a"), "keep: NodeDoNotDisrupt Node a");
}

#[test]
fn seed_000_three_mechanisms_in_order() {
    // "Empty Node Consolidation - Delete any entirely empty nodes in parallel"
    let empty = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "medium");
    assert_eq!(acts(&empty), ["Emptiness delete [b, a]"]);
    // "Multi Node Consolidation - Try to delete two or more nodes in parallel, possibly launching a single replacement whose price is lower than
    // that of all nodes being removed"
    let multi = World::new(on_demand_pool("default"))
        .node("a", "medium")
        .node("b", "medium")
        .pod("p", "a", "1500m")
        .pod("q", "b", "300m");
    let command = multi.command();
    assert_eq!((command.nodes.len(), command.replacements.len()), (2, 1));
    assert!(command.price_after < command.price_before);
    // "Single Node Consolidation - Try to delete any single node, possibly launching a single replacement whose price is lower than that of the
    // node being removed"
    let single = World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3");
    let command = single.command();
    assert_eq!((command.nodes.len(), command.replacements.len()), (1, 1));
    assert!(command.price_after < command.price_before);
}

#[test]
fn seed_000_events_tell_why_a_node_cannot_be_consolidated() {
    // "If consolidation is enabled, Karpenter periodically reports events against nodes that indicate why the node can't be consolidated":
    // "pdb default/inflate-pdb prevents pod evictions", "can't replace with a lower-priced node", in today's words (topic 19).
    let budget = pair().budget("inflate-pdb", &json!({"matchLabels": {"app": "p"}}), 0);
    let blocked = "DisruptionBlocked: Pdb prevents pod evictions (PodDisruptionBudget=[default/inflate-pdb])";
    assert!(
        budget.events("a").contains(&blocked.to_owned()),
        "{:?}",
        budget.events("a")
    );
    let snug = World::new(on_demand_pool("default"))
        .node("a", "medium")
        .pod("p", "a", "3");
    let dear = "Unconsolidatable: Can't replace with a cheaper node";
    assert!(
        snug.events("a").contains(&dear.to_owned()),
        "{:?}",
        snug.events("a")
    );
}

#[test]
fn seed_000_spot_consolidation() {
    let spot = |cheaper: i64, gate: bool| {
        let types = (0..=cheaper)
            .map(|index| instance_type(&format!("t{index:02}"), 4 + index, 8, &["a"]))
            .collect();
        let mut world = World::with_types(free_pool("default"), types)
            .node_in("default", "n", &format!("t{cheaper:02}"), "spot")
            .pod("p", "n", "3");
        world.policy.disrupt.spot_to_spot = gate;
        world
    };
    // "For spot nodes, Karpenter has deletion consolidation enabled by default."
    let delete = spot(15, false)
        .node_in("default", "m", "t15", "spot")
        .pod_with("q", "m", "1", &pinned("m"));
    assert_eq!(delete.command().decision(), Decision::Delete);
    // "If you would like to enable replacement with spot consolidation, you need to enable the feature through the SpotToSpotConsolidation feature
    // flag."
    assert_eq!(acts(&spot(15, false)), Vec::<String>::new());
    assert_eq!(spot(15, true).command().decision(), Decision::Replace);
    // "Karpenter requires a minimum instance type flexibility of 15 instance types when performing single node spot-to-spot consolidations"
    assert_eq!(acts(&spot(14, true)), Vec::<String>::new());
    // "We shouldn't continually consolidate down to the lowest priced spot instance": the launch is limited to the fifteen that were counted.
    assert_eq!(spot(30, true).command().replacements[0].instance_types.len(), 15);
    // "It does not have the same instance type flexibility requirement for multi-node spot-to-spot consolidations (many nodes to 1 node)"
    let mut many = World::new(free_pool("default"))
        .node_in("default", "a", "medium", "spot")
        .node_in("default", "b", "medium", "spot")
        .pod("p", "a", "1500m")
        .pod("q", "b", "300m");
    many.policy.disrupt.spot_to_spot = true;
    assert_eq!(many.command().nodes.len(), 2);
}

#[test]
fn seed_000_seed_003_behavioral_fields_are_no_drift() {
    // "Behavioral Fields are treated as over-arching settings on the NodePool to dictate how Karpenter behaves. … behavioral fields are not
    // considered for Drift": weight, limits, disruption.
    let before = on_demand_pool("default");
    let same = |change: &dyn Fn(&mut NodePool)| {
        let mut after = before.clone();
        change(&mut after);
        hash::node_pool_hash(&after) == hash::node_pool_hash(&before)
    };
    assert!(same(&|pool| pool.spec.weight = Some(7)));
    assert!(same(&|pool| pool.spec.limits = Some(
        spokeshave_model::Resources::from_amounts([("cpu", 1)]).to_quantities()
    )));
    assert!(same(&|pool| pool.spec.disruption.budgets = Some(zero_budget("0"))));
    assert!(same(
        &|pool| pool.spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty
    ));
    // "values in the NodePool … are reflected in the NodeClaimTemplateSpec … in the same way that they're set"
    assert!(!same(&|pool| {
        pool.spec.template.metadata.labels = [("team".to_owned(), "b".to_owned())].into();
    }));
}

#[test]
fn seed_000_seed_003_budgets_count_what_is_being_deleted_and_what_is_not_ready() {
    let drifted = DisruptionReason::Drifted;
    // "allowed_disruptions = roundup(total * percentage) - total_deleting - total_notready"
    let mut pool = free_pool("default");
    pool.spec.disruption.budgets = Some(zero_budget("20%"));
    let world = || with_nodes(World::new(pool.clone()), 19);
    assert_eq!(
        remaining(&world(), &drifted, 0),
        4,
        "\"rounding up from 19 * .2 = 3.8\""
    );
    let deleting = world().edit_claim("n00", |claim| {
        claim.metadata.deletion_timestamp = Some(Time(later(0)))
    });
    assert_eq!(remaining(&deleting, &drifted, 0), 3);
    let unready = deleting.edit_node("n01", |node| {
        for condition in node
            .status
            .iter_mut()
            .flat_map(|status| status.conditions.iter_mut().flatten())
        {
            condition.status = "False".to_owned();
        }
    });
    assert_eq!(remaining(&unready, &drifted, 0), 2);
    // "If otherwise defined as a non-percentage value …": the number itself, less those (topic 6).
    let number = unready.edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(zero_budget("5"))
    });
    assert_eq!(remaining(&number, &drifted, 0), 3);
    // "If undefined, Karpenter will default to one budget with nodes: 10%."
    let undefined = with_nodes(World::new(free_pool("default")), 20).edit_pool("default", |pool| {
        pool.spec.disruption.budgets = None;
    });
    assert_eq!(remaining(&undefined, &drifted, 0), 2);
}

#[test]
fn seed_000_three_budgets() {
    // "The first budget will only allow 20% of nodes owned by that NodePool to be disrupted if it's empty or drifted. … The second budget acts as a
    // ceiling to the previous budget, only allowing 5 disruptions when there are more than 25 nodes. The last budget only blocks disruptions during
    // the first 10 minutes of the day, where 0 disruptions are allowed, only applying to underutilized nodes."
    let budgets = [
        Budget {
            reasons: Some(vec![DisruptionReason::Empty, DisruptionReason::Drifted]),
            ..Budget::always("20%")
        },
        Budget::always("5"),
        Budget {
            schedule: Some("@daily".to_owned()),
            duration: "10m".parse().ok(),
            reasons: Some(vec![DisruptionReason::Underutilized]),
            ..Budget::always("0")
        },
    ];
    let (empty, drifted, used) = (
        DisruptionReason::Empty,
        DisruptionReason::Drifted,
        DisruptionReason::Underutilized,
    );
    assert_eq!(allowed(&budgets, 19, &drifted), 4);
    assert_eq!(allowed(&budgets, 19, &empty), 4);
    assert_eq!(allowed(&budgets, 30, &drifted), 5, "20 % of 30 would be 6");
    assert_eq!(
        allowed(&budgets, 30, &used),
        5,
        "\"the minimum of the budgets that have listed the reason or have left reasons undefined\""
    );
    assert_eq!(allowed_at(&budgets, 30, &used, 5 * 60), 0);
    assert_eq!(allowed_at(&budgets, 30, &used, 10 * 60), 5);
    assert_eq!(allowed_at(&budgets, 30, &drifted, 5 * 60), 5);
}

#[test]
fn seed_003_the_gradual_rollout() {
    // "Allow increasing disruption rates": 1 from 02:00 for two hours, 3 from 04:00 for four; in between and after nothing bounds it (topic 11).
    let window = |nodes: &str, schedule: &str, duration: &str| Budget {
        schedule: Some(schedule.to_owned()),
        duration: duration.parse().ok(),
        ..Budget::always(nodes)
    };
    let budgets = [window("1", "0 2 * * *", "2h"), window("3", "0 4 * * *", "4h")];
    let at = |hour: i64| allowed_at(&budgets, 10, &DisruptionReason::Drifted, hour * 3600);
    assert_eq!((at(2), at(3), at(4), at(7)), (1, 1, 3, 3));
    assert!(at(1) >= 10 && at(8) >= 10);
    // With what the document means to say: "0 from 08:00 for 18 h".
    let repaired = [
        budgets[0].clone(),
        budgets[1].clone(),
        window("0", "0 8 * * *", "18h"),
    ];
    assert_eq!(
        allowed_at(&repaired, 10, &DisruptionReason::Drifted, 24 * 3600 + 3600),
        0
    );
}

#[test]
fn seed_003_when_empty_or_underutilized_and_consolidate_after() {
    // "NAP considers all nodes for consolidation and attempts to remove or replace nodes when they're underutilized or empty"
    assert_eq!(acts(&pair()), ["SingleNodeConsolidation delete [a]"]);
    assert_eq!(acts(&pair().node("e", "small")), ["Emptiness delete [e]"]);
    // "Time to wait after discovering consolidation opportunity: consolidateAfter: 30s"
    assert_eq!(
        pair().not_consolidatable("a").verdict_text("a"),
        "keep: ConsolidateAfter Node a"
    );
}

#[test]
fn seed_004_budgets_then_a_simulation_then_replacements() {
    // "The next step is to check the if the node respect the NodePool's disruption budget"
    let closed = pair().edit_pool("default", |pool| {
        pool.spec.disruption.budgets = Some(zero_budget("0"));
    });
    assert_eq!(acts(&closed), Vec::<String>::new());
    // "Then the disruption controller does a simulation to estimate if any replacement nodes are needed."
    assert!(pair().drifted("a", 0).command().replacements.is_empty());
    let full = pair()
        .pod_with("fill", "b", "1700m", &pinned("b"))
        .drifted("a", 0);
    assert_eq!(full.command().replacements.len(), 1);
    // "The number of candidates per reason is located in the karpenter_voluntary_disruption_eligible_nodes prometheus metric"
    assert_eq!(pair().pass().eligible[&Method::SingleNodeConsolidation], 2);
}

#[test]
fn seed_004_pods_under_a_budget_without_allowed_disruptions_or_annotated_block_their_node() {
    // "The disruption can be blocked here because of: Pods in the node affected by disruption buckets with 0 ALLOWED DISRUPTIONS …
    // Pods in the node with karpenter.sh/do-not-disrupt: "true" annotation. If the nodeclaim has terminationGracePeriod configured, it will still be
    // eligible for disruption via drift."
    let budget = || pair().budget("web", &json!({"matchLabels": {"app": "p"}}), 0);
    assert!(budget().verdict("a").is_keep());
    let annotated = || pair().annotate_pod("p", "karpenter.sh/do-not-disrupt", "true");
    assert!(annotated().verdict("a").is_keep());
    for world in [budget(), annotated()] {
        assert!(world.clone().drifted("a", 0).verdict("a").is_keep());
        assert_eq!(world.drifted("a", 0).grace("a").command().method, Method::Drift);
    }
    // "We can see that blocked nodes with kubectl get events … DisruptionBlocked"
    assert!(
        annotated().events("a")[0].starts_with("DisruptionBlocked: Pod has \"karpenter.sh/do-not-disrupt\"")
    );
}

#[test]
fn seed_000_deletion_and_replacement() {
    // "Deletion - A node is eligible for deletion if all of its pods can run on free capacity of other nodes in the cluster."
    assert_eq!(acts(&pair()), [DELETE_A]);
    // "Replace - A node can be replaced if all of its pods can run on a combination of free capacity of other nodes in the cluster and a single lower
    // price replacement node."
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .node("b", "small")
        .pod("big", "a", "3")
        .pod("little", "a", "1")
        .pod_with("r", "b", "100m", &pinned("b"));
    let command = world.command();
    assert_eq!(command.decision(), Decision::Replace);
    assert_eq!(command.replacements.len(), 1);
    assert!(command.price_after < command.price_before);
}

#[test]
fn seed_000_preferences() {
    // "preferring to terminate: nodes running fewer pods … nodes with lower priority pods"; expiry has no influence today (D §10.2, topic 20).
    let world = |priority: i32| {
        let mut world = World::new(on_demand_pool("default"))
            .node("n1", "medium")
            .node("n2", "medium")
            .node("stay", "large")
            .pod("p", "n1", "100m")
            .pod("q", "n2", "100m")
            .pod_with("r", "stay", "8", &pinned("stay"))
            .edit_pod("p", move |pod| pod.spec_mut().priority = Some(priority));
        world.policy = only(Method::SingleNodeConsolidation);
        world
    };
    assert_eq!(acts(&world(1_000_000)), ["SingleNodeConsolidation delete [n2]"]);
    assert_eq!(acts(&world(-1_000_000)), ["SingleNodeConsolidation delete [n1]"]);
}

#[test]
fn seed_000_a_budget_of_zero_disables_disruption_of_a_pool() {
    // "Setting a budget of zero nodes will prevent any of those nodes from being considered for voluntary disruption."
    let world = pair()
        .drifted("b", 0)
        .node("e", "small")
        .edit_pool("default", |pool| {
            pool.spec.disruption.budgets = Some(zero_budget("0"))
        });
    assert_eq!(acts(&world), Vec::<String>::new());
    for name in ["a", "b", "e"] {
        assert!(
            world.verdict_text(name).contains("Budget NodePool default"),
            "{}",
            world.verdict_text(name)
        );
    }
}

#[test]
fn seed_003_a_policy_of_when_empty_leaves_nodes_with_pods_alone() {
    // "WhenEmpty: only consider nodes for consolidation that contain no workload pods"
    let world = pair().edit_pool("default", |pool| {
        pool.spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty
    });
    assert_eq!(acts(&world), Vec::<String>::new());
    assert_eq!(acts(&world.node("e", "small")), ["Emptiness delete [e]"]);
}
