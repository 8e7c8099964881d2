//! The models of Karpenter with and without a weighing of what a move saves (D §4.10).

use std::sync::Arc;

use spokeshave_api::ConsolidationPolicy;
use spokeshave_scenario::{Change, OwnerKind, Timeline};
use spokeshave_simulate::{Line, Model, Policy, Watch, World, live_watched};

use crate::small::{HOUR, SECOND, owner, pool, timeline, world};

/// Instances of one, three and four cores, which cost as much as they have.
fn sizes() -> World {
    let types = [("c1", 1, 4), ("c3", 3, 12), ("c4", 4, 16)];
    let types =
        types.map(|(name, cores, gib)| spokeshave_example::instance_type(name, cores, gib, &["zone-a"]));
    let mut world = world(3);
    world.instance_types = Arc::from(types);
    world
}

/// One node of four cores, of which this much is left in use after an hour.
fn shrinking(rest: &str, other: &str) -> Timeline {
    let owners = [("rest", rest), ("other", other)];
    let owners = owners.map(|(name, cpu)| owner(OwnerKind::Deployment, name, cpu));
    let events = vec![
        (0, 0, Change::Replicas(1)),
        (0, 1, Change::Replicas(1)),
        (HOUR, 1, Change::Replicas(0)),
    ];
    timeline(owners.into(), events)
}

/// A pod that needs three of the four cores: a smaller instance saves a quarter of what the pool costs, for all of its disruption.
fn saving_little() -> Timeline {
    shrinking("2500m", "1300m")
}

/// One that needs one of the four: it saves three quarters.
fn saving_much() -> Timeline {
    shrinking("500m", "3300m")
}

/// What was launched, and how many pods moved, under a model and NodePools of this policy. No command may be taken back at its second look.
fn lived(model: Model, consolidation_policy: ConsolidationPolicy, timeline: &Timeline) -> (Vec<String>, u64) {
    let mut pool = pool();
    pool.spec.disruption.consolidation_policy = consolidation_policy;
    let mut policy = Policy::new("model", vec![Arc::new(pool)]);
    policy.model = model;
    // The second look is that of the product: without rounds, it does not let what saves little wait (W-61).
    policy.settings.disrupt.rounds = false;
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
    let run = live_watched(&sizes(), timeline, &policy, 1, &|| false, watch);
    assert!(rejected.is_empty(), "{rejected:?}");
    (launched, run.measured.evictions_voluntary)
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
