//! The models of Karpenter with and without a weighing of what a move saves (D §4.10).

use std::sync::Arc;

use serde_json::json;
use spokeshave_api::labels::{DO_NOT_DISRUPT, POD_DELETION_COST};
use spokeshave_api::{ConsolidationPolicy, NodePool};
use spokeshave_scenario::{Change, Owner, OwnerKind, Timeline};
use spokeshave_simulate::{Line, Model, Policy, Watch, World, live_watched};

use crate::small::{HOUR, SECOND, owner, pool, timeline, world};

/// Workloads come so long after one another, so that no two share a node by chance.
const PAUSE: u64 = HOUR / 6;

/// Instances of so many cores, which cost as much as they have: `c4` has four, of which pods can have 3.9.
pub fn sold<const N: usize>(cores: [i64; N]) -> World {
    let types = cores.map(|cores| {
        let name = format!("c{cores}");
        spokeshave_example::instance_type(&name, cores, 4 * cores, &["zone-a"])
    });
    let mut world = world(3);
    world.instance_types = Arc::from(types);
    world
}

fn deployment(name: &str, cpu: &str) -> Owner {
    owner(OwnerKind::Deployment, name, cpu)
}

fn annotated(mut owner: Owner, key: &str, value: &str) -> Owner {
    let template = Arc::make_mut(&mut owner.template);
    let metadata = template.metadata.get_or_insert_default();
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
    owner
}

/// Moving a pod of it is as bad as moving ten others.
fn dear(owner: Owner) -> Owner {
    annotated(owner, POD_DELETION_COST, "2147483647")
}

/// Nodes with pods of it are no candidates, and count for what a NodePool costs.
fn firm(owner: Owner) -> Owner {
    annotated(owner, DO_NOT_DISRUPT, "true")
}

/// One node of four cores, of which this much is left in use after an hour.
fn shrinking(rest: &str, other: &str) -> Timeline {
    let owners = vec![deployment("rest", rest), deployment("other", other)];
    let events = vec![
        (0, 0, Change::Replicas(1)),
        (0, 1, Change::Replicas(1)),
        (HOUR, 1, Change::Replicas(0)),
    ];
    timeline(owners, events)
}

/// A pod that needs three of the four cores: a smaller instance saves a quarter of what the pool costs, for all of its disruption.
fn saving_little() -> Timeline {
    shrinking("2500m", "1300m")
}

/// One that needs one of the four: it saves three quarters.
fn saving_much() -> Timeline {
    shrinking("500m", "3300m")
}

/// A NodePool of which all nodes may go at once.
fn consolidating(consolidation_policy: ConsolidationPolicy) -> NodePool {
    let mut pool = pool();
    pool.spec.disruption.consolidation_policy = consolidation_policy;
    pool.spec.disruption.budgets = serde_json::from_value(json!([{"nodes": "100%"}])).unwrap();
    pool
}

/// What came of a life.
struct Life {
    /// Instance types, in order.
    launched: Vec<String>,
    commands: u64,
    moved: u64,
    /// How many pods moved of each owner, by its number.
    moved_of: Vec<(u32, u64)>,
    what_ifs: Option<u64>,
}

/// A life under a model. No command may be taken back at its second look.
fn life(world: &World, pools: Vec<NodePool>, model: Model, timeline: &Timeline) -> Life {
    let mut policy = Policy::new("model", pools.into_iter().map(Arc::new).collect());
    policy.model = model;
    let mut launched = Vec::new();
    let mut rejected = Vec::new();
    let mut sink = |line: Line<'_>| match line.what {
        "launched" => launched.push(line.more.split(' ').next().unwrap_or_default().to_owned()),
        "rejected" => rejected.push(format!("{} {}", line.at_ms / SECOND, line.more)),
        _ => {}
    };
    let watch = Watch {
        lines: Some(&mut sink),
        ..Watch::default()
    };
    let run = live_watched(world, timeline, &policy, 1, &|| false, watch);
    assert!(rejected.is_empty(), "{rejected:?}");
    Life {
        launched,
        commands: run.measured.commands,
        moved: run.measured.evictions_voluntary,
        moved_of: run.measured.evictions_by_owner,
        what_ifs: run.work.what_ifs,
    }
}

/// What was launched, and how many pods moved, under a model and a NodePool of this policy, of instances of one, three and four cores.
fn lived(model: Model, consolidation_policy: ConsolidationPolicy, timeline: &Timeline) -> (Vec<String>, u64) {
    let pools = vec![consolidating(consolidation_policy)];
    let found = life(&sold([1, 3, 4]), pools, model, timeline);
    (found.launched, found.moved)
}

fn told(launched: &[&str], moved: u64) -> (Vec<String>, u64) {
    (launched.iter().map(|name| (*name).to_owned()).collect(), moved)
}

#[test]
fn d_173_a_move_that_saves_less_than_half_of_what_it_disturbs_is_made_only_where_nobody_weighs() {
    use ConsolidationPolicy::{Balanced, WhenEmptyOrUnderutilized as Any};
    let little = saving_little();
    assert_eq!(lived(Model::Karpenter, Any, &little), told(&["c4", "c3"], 1));
    assert_eq!(
        lived(Model::KarpenterBalanced, Any, &little),
        told(&["c4"], 0),
        "a quarter of the cost for the whole disruption"
    );
    // Who asks for it by the policy of its NodePool has it in every model of Karpenter.
    for model in [Model::Karpenter, Model::KarpenterBalanced] {
        assert_eq!(lived(model, Balanced, &little), told(&["c4"], 0), "{model:?}");
    }
}

#[test]
fn d_173_a_move_that_is_worth_its_disruption_is_made_by_both() {
    use ConsolidationPolicy::{Balanced, WhenEmptyOrUnderutilized as Any};
    let much = saving_much();
    for model in [Model::Karpenter, Model::KarpenterBalanced] {
        for policy in [Any, Balanced] {
            let found = lived(model, policy.clone(), &much);
            assert_eq!(found, told(&["c4", "c1"], 1), "{model:?}, {policy:?}");
        }
    }
}

/// D-182: a NodePool that only lets empty nodes go is none that consolidates, whoever weighs.
#[test]
fn d_182_what_only_empty_nodes_leave_is_not_weighed() {
    let found = lived(
        Model::KarpenterBalanced,
        ConsolidationPolicy::WhenEmpty,
        &saving_much(),
    );
    assert_eq!(found, told(&["c4"], 0));
}

/// Two nodes of four cores whose pods fit on one of five together after an hour, and on no other alone; and two full ones with pods that are dear to move.
fn half_empty() -> Timeline {
    let owners = vec![
        deployment("rest", "2100m"),
        deployment("other", "1700m"),
        dear(deployment("full", "3800m")),
    ];
    let events = vec![
        (0, 0, Change::Replicas(1)),
        (0, 1, Change::Replicas(1)),
        (PAUSE, 0, Change::Replicas(2)),
        (PAUSE, 1, Change::Replicas(2)),
        (2 * PAUSE, 2, Change::Replicas(1)),
        (3 * PAUSE, 2, Change::Replicas(2)),
        (HOUR, 1, Change::Replicas(0)),
    ];
    timeline(owners, events)
}

/// Of four candidates the search asks for three first. These save three of sixteen: as much as the first two, which have 4 of 26 of the disruption where three
/// have 15. A search that does not weigh takes three, and one that ends there takes none.
#[test]
fn d_176_the_longest_prefix_is_the_longest_that_is_worth_it() {
    use ConsolidationPolicy::{Balanced, WhenEmptyOrUnderutilized as Any};
    let (world, timeline) = (sold([4, 5, 9]), half_empty());
    let taken = |model: Model, policy: ConsolidationPolicy| {
        let found = life(&world, vec![consolidating(policy)], model, &timeline);
        assert_eq!(found.commands, 1);
        (found.launched, found.moved)
    };
    assert_eq!(
        taken(Model::Karpenter, Any),
        told(&["c4", "c4", "c4", "c4", "c9"], 3)
    );
    for (model, policy) in [(Model::Karpenter, Balanced), (Model::KarpenterBalanced, Any)] {
        let expected = told(&["c4", "c4", "c4", "c4", "c5"], 2);
        assert_eq!(taken(model, policy), expected, "{model:?}");
    }
}

/// A node that costs a third of its NodePool and has 11 of 15 of the disruption: it is not worth it even if all of its price were saved. It is never the only one
/// of its NodePool, so that no more is tried than where only empty nodes go.
#[test]
fn d_177_a_node_that_cannot_be_worth_it_is_not_tried() {
    use ConsolidationPolicy::{Balanced, WhenEmpty, WhenEmptyOrUnderutilized as Any};
    let owners = vec![
        firm(deployment("firm", "3800m")),
        dear(deployment("rest", "500m")),
        deployment("other", "3300m"),
    ];
    let events = vec![
        (0, 0, Change::Replicas(1)),
        (PAUSE, 0, Change::Replicas(2)),
        (2 * PAUSE, 1, Change::Replicas(1)),
        (2 * PAUSE, 2, Change::Replicas(1)),
        (HOUR, 2, Change::Replicas(0)),
    ];
    let (world, timeline) = (sold([1, 3, 4]), timeline(owners, events));
    let under = |policy| life(&world, vec![consolidating(policy)], Model::Karpenter, &timeline);
    let (empty, any, balanced) = (under(WhenEmpty), under(Any), under(Balanced));
    assert_eq!((any.launched, any.moved), told(&["c4", "c4", "c4", "c1"], 1));
    assert!(any.what_ifs > empty.what_ifs, "{:?}", any.what_ifs);
    assert_eq!((balanced.launched, balanced.moved), told(&["c4", "c4", "c4"], 0));
    assert_eq!(balanced.what_ifs, empty.what_ifs);
}

/// A NodePool whose nodes are labelled with its name.
fn team(name: &str, consolidation_policy: ConsolidationPolicy) -> NodePool {
    let mut pool = consolidating(consolidation_policy);
    pool.metadata.name = Some(name.to_owned());
    pool.metadata.uid = Some(format!("uid-{name}"));
    pool.spec.weight = Some(10);
    let labels = &mut pool.spec.template.metadata.labels;
    labels.insert("team".to_owned(), name.to_owned());
    pool
}

/// The NodePool to which pods of others move when it has room. It comes last, and keeps its node.
fn home() -> NodePool {
    let mut pool = team("home", ConsolidationPolicy::WhenEmpty);
    pool.spec.weight = None;
    pool.spec.disruption.consolidate_after = serde_json::from_value(json!("Never")).unwrap();
    pool
}

/// Its pods run on nodes of these NodePools only.
fn on(pools: &[&str], mut owner: Owner) -> Owner {
    let terms = json!([{"matchExpressions": [{"key": "team", "operator": "In", "values": pools}]}]);
    let affinity = json!({
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
    });
    let spec = Arc::make_mut(&mut owner.template).spec.get_or_insert_default();
    spec.affinity = serde_json::from_value(affinity).unwrap();
    owner
}

/// The node of `home`, of twenty cores, is full for an hour, and has room for all that may move then. Of the first of these owners, which have the numbers 2 to 4,
/// there are so many pods, of the others one each, and each pod has a node of its own.
fn until_home_has_room(owners: [Owner; 3], firm: u32) -> Timeline {
    let at_home = [("anchor", "1"), ("filler", "18500m")];
    let at_home = at_home.map(|(name, cpu)| on(&["home"], deployment(name, cpu)));
    let mut events = vec![(0, 0, Change::Replicas(1)), (0, 1, Change::Replicas(1))];
    let after = |pauses: u32| u64::from(pauses) * PAUSE;
    events.extend((1..=firm).map(|count| (after(count), 2, Change::Replicas(count))));
    events.push((after(firm + 1), 3, Change::Replicas(1)));
    events.push((after(firm + 2), 4, Change::Replicas(1)));
    events.push((HOUR, 1, Change::Replicas(0)));
    timeline(at_home.into_iter().chain(owners).collect(), events)
}

/// The same under NodePools `a` and `b` of these policies: what was launched, how many commands there were, and how many pods moved of each owner.
fn spanning(policies: [ConsolidationPolicy; 2], timeline: &Timeline) -> (Vec<String>, u64, Vec<(u32, u64)>) {
    let [a, b] = policies;
    let pools = vec![team("a", a), team("b", b), home()];
    let found = life(&sold([5, 9, 20]), pools, Model::Karpenter, timeline);
    (found.launched, found.commands, found.moved_of)
}

/// A node of `a` costs five, a third of its NodePool, and has 11 of 15 of the disruption; the only one of `b` costs nine. Whoever counts more than its own five for
/// `a`, be it all of the fourteen or half of them, lets both go together.
#[test]
fn d_174_a_node_pool_is_not_credited_with_what_the_nodes_of_another_save() {
    use ConsolidationPolicy::{Balanced, WhenEmptyOrUnderutilized as Any};
    let owners = [
        firm(on(&["a"], deployment("firm", "4800m"))),
        dear(on(&["a", "home"], deployment("dear", "4800m"))),
        on(&["b", "home"], deployment("plain", "8800m")),
    ];
    let timeline = until_home_has_room(owners, 2);
    let (both, one) = (vec![(3, 1), (4, 1)], vec![(4, 1)]);
    for (policies, moved_of) in [
        ([Any, Any], &both),
        ([Balanced, Balanced], &one),
        // Only the policy of the NodePool that loses by it matters (D-175).
        ([Balanced, Any], &one),
        ([Any, Balanced], &both),
    ] {
        let (launched, commands, moved) = spanning(policies.clone(), &timeline);
        assert_eq!(launched, ["c20", "c5", "c5", "c5", "c9"], "{policies:?}");
        assert_eq!((commands, &moved), (1, moved_of), "{policies:?}");
    }
}

/// A node of `b` costs nine, half of its NodePool, and has 11 of 13 of the disruption; the only one of `a` costs five. Each is worth it for what it costs itself:
/// `b` would not be for half of the fourteen, and `a` not for its part of the disruption, 2 of 13. One after the other they would be two commands.
#[test]
fn d_174_a_node_pool_is_credited_with_all_that_its_own_nodes_save() {
    use ConsolidationPolicy::{Balanced, WhenEmptyOrUnderutilized as Any};
    let owners = [
        firm(on(&["b"], deployment("firm", "8800m"))),
        dear(on(&["b", "home"], deployment("dear", "8800m"))),
        on(&["a", "home"], deployment("plain", "4800m")),
    ];
    let timeline = until_home_has_room(owners, 1);
    for policies in [[Any, Any], [Balanced, Balanced]] {
        let (launched, commands, moved) = spanning(policies.clone(), &timeline);
        assert_eq!(launched, ["c20", "c9", "c9", "c5"], "{policies:?}");
        assert_eq!((commands, moved), (1, vec![(3, 1), (4, 1)]), "{policies:?}");
    }
}
