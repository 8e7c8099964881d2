//! Every kind of blocker: a world in which it alone keeps a node, named with an object; and what removing it leads to.

use crate::support;
use crate::support::{World, free_pool, on_demand_pool, pinned, zero_budget};
use serde_json::json;
use spokeshave_api::{ConsolidationPolicy, NodePool, Operator, Requirement};
use spokeshave_example::instance_type;
use spokeshave_model::Pod;
use spokeshave_model::{Nomination, Resources};
use spokeshave_plan::disrupt::record::record;
use spokeshave_plan::disrupt::{BlockerKind, Verdict, beyond_limits, judge};
use std::time::Duration;

const PROTECTED: &str = "karpenter.sh/do-not-disrupt";

/// Node `a` would be replaced.
fn free() -> World {
    World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3")
}

fn pool(change: impl Fn(&mut NodePool)) -> World {
    free().edit_pool("default", change)
}

fn limited(cpu: i64) -> World {
    pool(move |pool| pool.spec.limits = Some(Resources::from_amounts([("cpu", cpu)]).to_quantities()))
}

fn unlabelled(key: &'static str) -> World {
    free().edit_node("a", move |node| {
        let labels = node.metadata.labels.get_or_insert_default();
        labels.remove(key);
    })
}

/// A spot node with so many cheaper types.
fn spot(cheaper: i64, gate: bool) -> World {
    let types = (0..=cheaper)
        .map(|index| instance_type(&format!("t{index:02}"), 4 + index, 8, &["a"]))
        .collect();
    let mut world = World::with_types(free_pool("default"), types)
        .node_in("default", "a", &format!("t{cheaper:02}"), "spot")
        .pod("p", "a", "3");
    world.policy.disrupt.spot_to_spot = gate;
    world
}

fn flexible(types: i32) -> World {
    World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "1")
        .edit_pool("default", move |pool| {
            let mut requirement = Requirement::new(
                "node.kubernetes.io/instance-type",
                Operator::Exists,
                &[] as &[&str],
            );
            requirement.min_values = Some(types);
            pool.spec.template.spec.requirements.push(requirement);
        })
}

/// A cheap node among thirty dear ones.
fn scored(policy: ConsolidationPolicy) -> World {
    let mut world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .pod("p", "a", "1")
        .node("b", "small")
        .pod_with("r", "b", "100m", &pinned("b"))
        .edit_pool("default", move |pool| {
            pool.spec.disruption.consolidation_policy = policy.clone();
        });
    for index in 0..30 {
        let name = format!("rich{index}");
        world = world.node(&name, "large").annotate_node(&name, PROTECTED, "true");
    }
    world
}

/// `b`, which could take the pod of `a`, changed so many seconds ago.
fn restless(seconds: i64) -> World {
    World::new(on_demand_pool("default"))
        .edit_pool("default", |pool| {
            pool.spec.disruption.consolidate_after = serde_json::from_value(json!("10m")).expect("10m");
        })
        .node("a", "small")
        .node("b", "small")
        .pod("p", "a", "1")
        .pod_with("r", "b", "100m", &pinned("b"))
        .last_pod_event("a", -3600)
        .last_pod_event("b", -seconds)
}

/// A tenth would be saved for moving every pod there is, and none has come or gone for so many seconds.
fn patient(seconds: i64) -> World {
    let types = vec![
        instance_type("nine", 9, 18, &["a"]),
        instance_type("ten", 10, 20, &["a"]),
    ];
    let mut world = World::with_types(on_demand_pool("default"), types)
        .edit_pool("default", |pool| {
            pool.spec.disruption.consolidate_after = serde_json::from_value(json!("30s")).expect("30s");
        })
        .node("a", "ten")
        .pod("p", "a", "1")
        .pod("q", "a", "2")
        .last_pod_event("a", -seconds);
    world.policy.disrupt.rounds = true;
    world
}

fn apart(count: usize) -> World {
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"set": "db"}}, "topologyKey": "kubernetes.io/hostname"}]}}});
    (0..count).fold(
        World::new(on_demand_pool("default")).node("a", "large"),
        |world, index| {
            let name = format!("p{index}");
            world
                .pod_with(&name, "a", "1", &apart)
                .edit_pod(&name, |pod: &mut Pod| {
                    pod.metadata.labels = Some([("set".to_owned(), "db".to_owned())].into());
                })
        },
    )
}

fn fixed(limit: i64) -> World {
    let mut pool = on_demand_pool("default");
    pool.spec.replicas = Some(1);
    pool.spec.limits = Some(Resources::from_amounts([("nodes", limit)]).to_quantities());
    World::new(pool).node("a", "small").drifted("a", 0)
}

fn with(mut world: World, change: impl Fn(&mut spokeshave_model::ClusterState)) -> World {
    change(&mut world.state);
    world
}

/// A world in which this alone is in the way, and, where it can be thought away, the same world without.
fn case(kind: BlockerKind) -> (World, Option<World>) {
    let web = json!({"matchLabels": {"app": "p"}});
    match kind {
        BlockerKind::InCommand => {
            let world = with(free(), |state| state.in_command.extend(["kwok://a".to_owned()]));
            (world, None)
        }
        BlockerKind::NotManaged => (with(free(), |state| state.node_claims.clear()), None),
        BlockerKind::NoNode => (with(free(), |state| state.nodes.clear()), None),
        BlockerKind::NotInitialized => (unlabelled("karpenter.sh/initialized"), Some(free())),
        BlockerKind::Deleting => {
            let world = with(free(), |state| {
                state.marked_for_deletion.extend(["kwok://a".to_owned()])
            });
            (world, None)
        }
        BlockerKind::Nominated => {
            let until = support::later(0) + Duration::from_secs(20);
            let nomination = ("kwok://a".to_owned(), Nomination { until });
            let world = with(free(), |state| state.nominations.extend([nomination.clone()]));
            (world, Some(free()))
        }
        BlockerKind::NodeDoNotDisrupt => (free().annotate_node("a", PROTECTED, "true"), Some(free())),
        BlockerKind::MissingLabel => (unlabelled("topology.kubernetes.io/zone"), None),
        BlockerKind::NodePoolNotFound => (with(free(), |state| state.instance_types.clear()), None),
        BlockerKind::StaticNodePool => (pool(|pool| pool.spec.replicas = Some(1)), None),
        BlockerKind::PodDoNotDisrupt => (free().annotate_pod("p", PROTECTED, "true"), Some(free())),
        BlockerKind::PodDisruptionBudget => {
            (free().budget("web", &web, 0), Some(free().budget("web", &web, 1)))
        }
        BlockerKind::MultiplePodDisruptionBudgets => {
            let one = free().budget("one", &web, 1);
            (one.clone().budget("two", &web, 1), Some(one))
        }
        BlockerKind::ConsolidationDisabled => {
            let never = pool(|pool| {
                pool.spec.disruption.consolidate_after =
                    serde_json::from_value(json!("Never")).expect("Never");
            });
            (never, Some(free()))
        }
        BlockerKind::ConsolidateAfter => (free().not_consolidatable("a"), Some(free())),
        BlockerKind::ConsolidationPolicy => {
            let policy = ConsolidationPolicy::WhenEmpty;
            let world = pool(|pool| pool.spec.disruption.consolidation_policy = policy.clone());
            (world, Some(free()))
        }
        BlockerKind::Budget => {
            let world = |budget: &'static str| {
                pool(move |pool| pool.spec.disruption.budgets = Some(zero_budget(budget)))
            };
            (world("0"), Some(world("1")))
        }
        BlockerKind::DisruptionPolicy => {
            let frozen = with(free(), |state| {
                let spec = json!({"freeze": {"reason": "incident 42"}});
                let spec = serde_json::from_value(spec).expect("a spec");
                let policy = spokeshave_api::DisruptionPolicy::new("p", spec);
                state.disruption_policies.push(policy.into());
            });
            (frozen, Some(free()))
        }
        BlockerKind::UnknownInstanceType => (
            free().label_node("a", "node.kubernetes.io/instance-type", "gone"),
            None,
        ),
        BlockerKind::UnknownPrice => (
            free().label_node("a", "topology.kubernetes.io/zone", "z"),
            Some(free()),
        ),
        BlockerKind::Pod => {
            let nowhere = json!({"nodeSelector": {"rack": "none"}});
            let odd = free().pod_with("odd", "a", "1", &nowhere);
            (odd, Some(free()))
        }
        BlockerKind::Limits => (limited(3_000), Some(limited(4_000))),
        BlockerKind::Neighbours => (restless(60), Some(restless(3600))),
        BlockerKind::TooManyReplacements => (apart(2), Some(apart(1))),
        BlockerKind::NotCheaper => {
            let snug = |cpu: &str| {
                World::new(on_demand_pool("default"))
                    .node("a", "medium")
                    .pod("p", "a", cpu)
            };
            (snug("3"), Some(snug("1")))
        }
        BlockerKind::MinValues => (flexible(3), Some(flexible(1))),
        BlockerKind::SpotToSpotDisabled => (spot(15, false), Some(spot(15, true))),
        BlockerKind::SpotToSpotFlexibility => (spot(14, true), Some(spot(15, true))),
        BlockerKind::Score => (
            scored(ConsolidationPolicy::Balanced),
            Some(scored(ConsolidationPolicy::WhenEmptyOrUnderutilized)),
        ),
        BlockerKind::Patience => (patient(6_700), Some(patient(6_800))),
        BlockerKind::StaticHeadroom => (fixed(1), Some(fixed(2))),
    }
}

const KINDS: [BlockerKind; 31] = [
    BlockerKind::InCommand,
    BlockerKind::NotManaged,
    BlockerKind::NoNode,
    BlockerKind::NotInitialized,
    BlockerKind::Deleting,
    BlockerKind::Nominated,
    BlockerKind::NodeDoNotDisrupt,
    BlockerKind::MissingLabel,
    BlockerKind::NodePoolNotFound,
    BlockerKind::StaticNodePool,
    BlockerKind::PodDoNotDisrupt,
    BlockerKind::PodDisruptionBudget,
    BlockerKind::MultiplePodDisruptionBudgets,
    BlockerKind::ConsolidationDisabled,
    BlockerKind::ConsolidateAfter,
    BlockerKind::ConsolidationPolicy,
    BlockerKind::Budget,
    BlockerKind::DisruptionPolicy,
    BlockerKind::UnknownInstanceType,
    BlockerKind::UnknownPrice,
    BlockerKind::Pod,
    BlockerKind::Limits,
    BlockerKind::Neighbours,
    BlockerKind::TooManyReplacements,
    BlockerKind::NotCheaper,
    BlockerKind::MinValues,
    BlockerKind::SpotToSpotDisabled,
    BlockerKind::SpotToSpotFlexibility,
    BlockerKind::Score,
    BlockerKind::Patience,
    BlockerKind::StaticHeadroom,
];

/// On the node of claim `claim-a`.
fn verdict(world: &World) -> Verdict {
    let snapshot = world.snapshot();
    let id = snapshot.find_node("a").or_else(|| snapshot.node_ids().next());
    judge(&snapshot, &world.policy, world.now, id.expect("a node"))
}

#[test]
fn every_kind_alone_keeps_a_node_and_without_it_the_node_goes() {
    for kind in KINDS {
        let (kept, without) = case(kind);
        let before = verdict(&kept);
        assert!(before.is_keep(), "{kind}: {before:?}");
        let kinds: Vec<BlockerKind> = before.blockers.iter().map(|blocker| blocker.kind).collect();
        assert_eq!(kinds, [kind], "{before:?}");
        let blocker = &before.blockers[0];
        let words = [
            &blocker.object.kind.to_owned(),
            &blocker.object.name,
            &blocker.message,
            &blocker.condition,
        ];
        assert!(words.iter().all(|word| !word.is_empty()), "{blocker:?}");
        match without {
            None => assert_eq!(before.if_removed, None, "{kind} cannot be thought away"),
            Some(world) => {
                let after = verdict(&world);
                assert!(!after.is_keep(), "without {kind}: {after:?}");
                let then = before.if_removed.as_ref().expect("a counterfactual");
                if kind != BlockerKind::Pod {
                    assert_eq!(
                        then.decision,
                        after.decision,
                        "{kind}: {}",
                        before.if_removed_text()
                    );
                }
            }
        }
    }
}

#[test]
fn invariant_15_the_room_under_a_limit_is_looked_for_again_before_replacements_are_made() {
    let world = limited(8_000);
    let disruption = record(&world.snapshot(), &world.command(), &[], world.now);
    assert_eq!(disruption.spec.replacements.len(), 1);
    let none = |_: &str| None;
    // `b` and the replacement, which stands there as a node on its way, have 4 each; `a` has 8.
    let later = |limit: i64, going: &[&str]| {
        let mut world = limited(limit)
            .node("b", "medium")
            .pod_with("q", "b", "3", &pinned("b"))
            .node("stand-in", "medium");
        let going = going.iter().map(|name| format!("kwok://{name}"));
        world.state.marked_for_deletion.extend(going);
        world.snapshot()
    };
    // It was decided as if `b` were going, too; then what took `b` was rolled back.
    assert_eq!(
        beyond_limits(&disruption, &[false], &later(4_000, &["a", "b"]), none),
        None
    );
    assert_eq!(
        beyond_limits(&disruption, &[false], &later(4_000, &["a"]), none).as_deref(),
        Some(
            "NodePool default has no room for its replacements: resource usage exceeds limit (limit=4, resource-name=cpu, usage=8)"
        )
    );
    assert_eq!(
        beyond_limits(&disruption, &[false], &later(8_000, &["a"]), none),
        None
    );
    assert_eq!(
        beyond_limits(&disruption, &[true], &later(4_000, &["a"]), none),
        None,
        "what exists is not made once more"
    );
}
