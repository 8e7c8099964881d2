//! Rules of disruption one by one, each named by its id, that no scenario elsewhere is named after.

use crate::support::{
    DELETE_A, World, acts, dollars, free_pool, later, on_demand_pool, only, pair, pinned, three_types,
};
use serde_json::json;
use spokeshave_api::ConsolidationPolicy;
use spokeshave_example::{instance_type, node, offering};
use spokeshave_model::pod::{EVICTION_COST_UNIT, eviction_cost};
use spokeshave_model::{Requirement, labels};
use spokeshave_plan::disrupt::{Decision, Frontier, Method, disrupt};
use std::sync::Arc;

fn owned(world: World, pod: &str, api_version: &str, kind: &str) -> World {
    world.edit_pod(pod, |pod| {
        pod.metadata.owner_references = serde_json::from_value(
            json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u"}]),
        )
        .ok();
    })
}

#[test]
fn d_001_d_002_d_003_only_reschedulable_pods_make_a_node_non_empty() {
    for (api_version, kind) in [("apps/v1", "DaemonSet"), ("v1", "Node")] {
        let world = owned(
            World::new(on_demand_pool("default"))
                .node("a", "small")
                .pod("p", "a", "1"),
            "p",
            api_version,
            kind,
        );
        assert_eq!(acts(&world), ["Emptiness delete [a]"], "{kind}");
    }
    let finished = World::new(on_demand_pool("default"))
        .node("a", "small")
        .pod("p", "a", "1")
        .edit_pod("p", |pod| {
            pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        });
    assert_eq!(acts(&finished), ["Emptiness delete [a]"]);
    let terminating = |kind: &str| {
        let world = World::new(on_demand_pool("default"))
            .node("a", "small")
            .pod("p", "a", "1");
        owned(world, "p", "apps/v1", kind).edit_pod("p", |pod| {
            pod.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(later(30)));
        })
    };
    assert_eq!(acts(&terminating("ReplicaSet")), ["Emptiness delete [a]"]);
    assert_eq!(
        acts(&terminating("StatefulSet")),
        Vec::<String>::new(),
        "its successor needs the room"
    );
}

#[test]
fn d_004_d_017_pods_that_tolerate_the_disrupted_taint_are_under_no_budget() {
    let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod_with("p", "a", "1", &tolerant)
        .pod_with("r", "b", "100m", &pinned("b"))
        .budget("web", &json!({"matchLabels": {"app": "p"}}), 0);
    assert_eq!(acts(&world), [DELETE_A]);
    let daemon = owned(pair().pod("d", "a", "100m"), "d", "apps/v1", "DaemonSet").budget(
        "d",
        &json!({"matchLabels": {"app": "d"}}),
        0,
    );
    assert_eq!(
        daemon.verdict_text("a"),
        "keep: PodDisruptionBudget PodDisruptionBudget default/d",
        "daemon pods are under budgets"
    );
}

#[test]
fn d_009_d_014_do_not_disrupt_on_nodes_and_on_every_active_pod() {
    let key = "karpenter.sh/do-not-disrupt";
    assert_eq!(
        pair().annotate_node("a", key, "true").verdict_text("a"),
        "keep: NodeDoNotDisrupt Node a"
    );
    for value in ["True", "false", "10m"] {
        assert_eq!(
            acts(&pair().annotate_node("a", key, value)),
            [DELETE_A],
            "{value} on a Node means nothing"
        );
    }
    let daemon =
        owned(pair().pod("d", "a", "100m"), "d", "apps/v1", "DaemonSet").annotate_pod("d", key, "true");
    assert_eq!(daemon.verdict_text("a"), "keep: PodDoNotDisrupt Pod default/d");
    let finished = daemon.edit_pod("d", |pod| {
        pod.status.get_or_insert_default().phase = Some("Failed".to_owned())
    });
    assert_eq!(acts(&finished), [DELETE_A]);
}

#[test]
fn d_011_protection_ends_with_its_duration() {
    let mut world = pair().annotate_pod("p", "karpenter.sh/do-not-disrupt", "10m");
    world.now = later(599);
    assert_eq!(world.verdict_text("a"), "keep: PodDoNotDisrupt Pod default/p");
    world.now = later(600);
    assert_eq!(acts(&world), [DELETE_A]);
}

#[test]
fn d_012_d_013_what_an_annotation_means_is_told() {
    let told = |value: &str, seconds: i64| {
        let mut world = pair().annotate_pod("p", "karpenter.sh/do-not-disrupt", value);
        world.now = later(seconds);
        let events = world.events("p");
        events.into_iter().next().unwrap_or_default()
    };
    assert_eq!(
        told("10m", 60),
        "DoNotDisruptUntil: The karpenter.sh/do-not-disrupt grace period will elapse at 2026-01-01T00:10:00Z"
    );
    assert_eq!(
        told("10m", 600),
        "DoNotDisruptGracePeriodElapsed: The karpenter.sh/do-not-disrupt grace period has elapsed, pod is now disruptable"
    );
    let invalid = told("-5m", 0);
    assert_eq!(
        invalid,
        "InvalidDoNotDisruptAnnotation: Invalid karpenter.sh/do-not-disrupt annotation: duration \"-5m\" must be positive, ignoring annotation"
    );
    assert_eq!(told("true", 0), "");
    // A pod that waits for a NodeClaim is on no node yet.
    let (_, mut claim) = node("default", "new", &three_types()[0], "a", "on-demand");
    claim.status.get_or_insert_default().provider_id = Some("in-flight://new".to_owned());
    let waits = pair().pod("w", "in-flight://new", "1");
    let mut waits = waits.annotate_pod("w", "karpenter.sh/do-not-disrupt", "-5m");
    waits.state.node_claims.push(Arc::new(claim));
    assert!(waits.events("w").is_empty(), "{:?}", waits.events("w"));
}

#[test]
fn d_018_d_019_d_021_budgets_of_pods() {
    let selector = json!({"matchLabels": {"app": "p"}});
    assert_eq!(acts(&pair().budget("x", &selector, 1)), [DELETE_A]);
    assert_eq!(
        pair().budget("x", &selector, 0).verdict_text("a"),
        "keep: PodDisruptionBudget PodDisruptionBudget default/x"
    );
    let two = pair().budget("x", &selector, 5).budget("y", &selector, 5);
    let verdict = two.verdict("a");
    assert_eq!(
        verdict.blockers[0].message,
        "eviction does not support multiple PDBs (PodDisruptionBudget(s)=[default/x default/y])"
    );
    let mut always = pair().budget("x", &selector, 0).edit_pod("p", |pod| {
        pod.status.get_or_insert_default().conditions =
            serde_json::from_value(json!([{"type": "Ready", "status": "False"}])).ok();
    });
    for budget in &mut always.state.pod_disruption_budgets {
        Arc::make_mut(budget)
            .spec
            .get_or_insert_default()
            .unhealthy_pod_eviction_policy = Some("AlwaysAllow".to_owned());
    }
    assert_eq!(acts(&always), [DELETE_A]);
}

#[test]
fn d_031_d_032_prices_come_from_the_nodes_own_pool_and_zone() {
    let mut dear = three_types();
    for kind in &mut dear {
        kind.offerings
            .iter_mut()
            .for_each(|offering| offering.price = dollars("9"));
    }
    let mut world = World::new(on_demand_pool("default"));
    world.state = world.state.with_pool(on_demand_pool("dear"), dear);
    let world = world
        .node_in("dear", "d", "small", "on-demand")
        .node("c", "small");
    let snapshot = world.snapshot();
    let price = |name: &str| snapshot.node(snapshot.find_node(name).expect("a node")).price;
    assert_eq!((price("d"), price("c")), (dollars("9"), dollars("0.08")));
}

#[test]
fn w_07_a_type_that_is_no_longer_sold_keeps_its_price_at_launch() {
    let gone = || {
        World::new(on_demand_pool("default"))
            .node("a", "large")
            .pod("p", "a", "1")
            .edit_node("a", |node| {
                drop(
                    node.metadata
                        .labels
                        .as_mut()
                        .and_then(|labels| labels.insert(labels::ZONE.to_owned(), "closed".to_owned())),
                )
            })
    };
    assert_eq!(gone().verdict_text("a"), "keep: UnknownPrice Node a");
    let known = gone().edit_claim("a", |claim| {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert("spokeshave.dev/price-at-launch".to_owned(), "0.64".to_owned());
    });
    assert_eq!(
        acts(&known),
        ["SingleNodeConsolidation replace [a] by small|medium"]
    );
    let unknown = gone().edit_claim("a", |claim| {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert("spokeshave.dev/price-at-launch".to_owned(), "999".to_owned());
    });
    assert_eq!(
        unknown.verdict_text("a"),
        "keep: UnknownPrice Node a",
        "999 is no price: nothing is known to be saved"
    );
    // Deleting never needs a price.
    let delete = gone().node("b", "small").pod_with("r", "b", "100m", &pinned("b"));
    assert_eq!(acts(&delete), [DELETE_A]);
}

#[test]
fn d_050_d_051_d_052_costs_of_pods_and_nodes() {
    let world = pair().annotate_pod("p", "controller.kubernetes.io/pod-deletion-cost", "134217728");
    let pod = world
        .state
        .pods
        .iter()
        .find(|pod| pod.metadata.name.as_deref() == Some("p"))
        .expect("p");
    assert_eq!(eviction_cost(pod), 2 * EVICTION_COST_UNIT);
    let snapshot = world.snapshot();
    let node = snapshot.find_node("a").expect("a");
    assert_eq!(
        snapshot.disruption_cost(node),
        3 * EVICTION_COST_UNIT,
        "one for the node"
    );
}

#[test]
fn d_054_d_058_more_savings_for_less_disturbance_goes_first() {
    // Equal prices: fewer pods first. Equal pods: the dearer first.
    let mut world = World::new(on_demand_pool("default"))
        .node("many", "medium")
        .node("few", "medium")
        .node("stay", "large")
        .pod("p1", "many", "100m")
        .pod("p2", "many", "100m")
        .pod("q", "few", "100m")
        .pod_with("r", "stay", "8", &pinned("stay"));
    world.policy = only(Method::SingleNodeConsolidation);
    assert_eq!(acts(&world), ["SingleNodeConsolidation delete [few]"]);
}

#[test]
fn d_063_the_first_method_with_a_command_ends_the_pass() {
    let world = pair().node("e", "small").drifted("a", 0);
    let outcome = world.pass();
    assert_eq!(outcome.commands.len(), 1);
    assert_eq!(outcome.commands[0].method, Method::Emptiness);
    assert_eq!(outcome.reports.len(), 1, "nothing after it ran");
    assert_eq!(
        outcome.eligible.keys().copied().collect::<Vec<_>>(),
        [Method::Emptiness]
    );
}

#[test]
fn d_073_d_081_uninitialised_and_leaving_nodes_take_no_pods() {
    let starting = pair().edit_node("b", |node| {
        drop(
            node.metadata
                .labels
                .as_mut()
                .and_then(|labels| labels.remove(labels::INITIALIZED)),
        )
    });
    assert_eq!(acts(&starting), Vec::<String>::new());
    let mut leaving = pair();
    leaving.state.marked_for_deletion.insert("kwok://b".to_owned());
    assert_eq!(acts(&leaving), Vec::<String>::new());
    // Unmanaged nodes do.
    let mut unmanaged = pair();
    unmanaged
        .state
        .node_claims
        .retain(|claim| claim.name() != "claim-b");
    assert_eq!(acts(&unmanaged), [DELETE_A]);
}

#[test]
fn d_075_pods_of_leaving_nodes_have_their_places_first() {
    let mut world = pair().node("going", "small").pod("g", "going", "1500m");
    world.state.marked_for_deletion.insert("kwok://going".to_owned());
    assert_eq!(acts(&world), Vec::<String>::new(), "the room on b is taken");
}

#[test]
fn d_078_the_capacity_of_candidates_counts_as_freed() {
    let limited = |cores: i64| {
        World::new(on_demand_pool("default"))
            .node("a", "large")
            .pod("p", "a", "1")
            .edit_pool("default", move |pool| {
                let limits = spokeshave_model::Resources::from_amounts([("cpu", cores * 1000)]);
                pool.spec.limits = Some(limits.to_quantities());
            })
    };
    assert_eq!(
        acts(&limited(16)),
        ["SingleNodeConsolidation replace [a] by small|medium"]
    );
    assert_eq!(limited(1).verdict_text("a"), "keep: Limits NodePool default");
    assert_eq!(
        limited(1).verdict("a").if_removed_text(),
        "if limits allowed a replacement: replace, saves $0.56/h"
    );
}

#[test]
fn d_016_a_budget_whose_selector_cannot_be_understood_protects_its_namespace() {
    let bogus = serde_json::json!({"matchExpressions": [{"key": "app", "operator": "Resembles"}]});
    assert_eq!(acts(&pair().budget("web", &bogus, 1)), Vec::<String>::new());
    assert_eq!(
        pair().budget("web", &bogus, 1).verdict_text("a"),
        "keep: PodDisruptionBudget PodDisruptionBudget default/web"
    );
    let nothing = serde_json::Value::Null;
    assert_eq!(
        acts(&pair().budget("web", &nothing, 0)),
        [DELETE_A],
        "no selector selects nothing"
    );
}

#[test]
fn d_082_a_pod_that_can_never_be_placed_blocks_nobody_else() {
    assert_eq!(acts(&pair().pending("impossible", "500")), [DELETE_A]);
}

#[test]
fn d_126_reasons_of_methods() {
    let reasons = Method::ALL.map(|method| method.reason().to_string());
    assert_eq!(
        reasons,
        [
            "Empty",
            "Drifted",
            "Drifted",
            "Expired",
            "Expired",
            "Underutilized",
            "Underutilized"
        ]
    );
    let kinds = Method::ALL.map(Method::consolidation_type);
    assert_eq!(kinds, ["empty", "", "", "", "", "multi", "single"]);
    assert_eq!(
        Method::ALL.map(Method::is_validated),
        [true, false, false, false, false, true, true],
        "D-086"
    );
}

#[test]
fn d_127_d_130_emptiness_under_every_policy() {
    for policy in [
        ConsolidationPolicy::WhenEmpty,
        ConsolidationPolicy::WhenEmptyOrUnderutilized,
        ConsolidationPolicy::Balanced,
    ] {
        let world = World::new(on_demand_pool("default"))
            .node("a", "small")
            .edit_pool("default", |pool| {
                pool.spec.disruption.consolidation_policy = policy.clone();
            });
        assert_eq!(acts(&world), ["Emptiness delete [a]"], "{policy}");
    }
    let future = World::new(on_demand_pool("default"))
        .node("a", "small")
        .edit_pool("default", |pool| {
            pool.spec.disruption.consolidation_policy = ConsolidationPolicy::Other("Sometimes".to_owned());
        });
    assert_eq!(
        acts(&future),
        Vec::<String>::new(),
        "what a later version means by it is not known"
    );
    assert_eq!(
        future.verdict_text("a"),
        "keep: ConsolidationPolicy NodePool default"
    );
}

#[test]
fn d_148_reserved_capacity_is_nearly_free() {
    let mut types = three_types();
    let mut reserved = offering("a", "reserved", dollars("0.000001"));
    reserved
        .requirements
        .add(Requirement::is("example.com/reservation", "r-1"));
    reserved.reservation_id_label = Some("example.com/reservation".to_owned());
    reserved.reservation_capacity = 1;
    types[2].offerings.push(reserved);
    types[2]
        .requirements
        .add(Requirement::is("example.com/reservation", "r-1"));
    types[2].requirements.replace(Requirement::one_of(
        labels::CAPACITY_TYPE,
        ["on-demand", "spot", "reserved"],
    ));
    let world = World::with_types(free_pool("default"), types)
        .node("a", "small")
        .pod("p", "a", "1500m");
    let command = world.command();
    assert_eq!(command.decision(), Decision::Replace);
    let replacement = &command.replacements[0];
    assert_eq!(
        replacement.instance_types,
        ["large"],
        "larger, and cheaper because it is paid for"
    );
    assert_eq!(
        replacement
            .claim
            .capacity_types
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        ["reserved"]
    );
}

#[test]
fn d_151_replace_options_are_told_on_node_and_claim() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "large")
        .pod("p", "a", "3");
    let message =
        "ConsolidationCandidate: Consolidation candidate: replace: [a] -> [1 replacement] (savings: $0.48)";
    assert!(
        world.events("a").contains(&message.to_owned()),
        "{:?}",
        world.events("a")
    );
    assert!(world.events("claim-a").contains(&message.to_owned()));
    assert!(
        !pair()
            .events("a")
            .iter()
            .any(|event| event.starts_with("ConsolidationCandidate")),
        "deletes are not"
    );
}

#[test]
fn d_174_savings_are_shared_by_price_between_pools() {
    // Balanced pool A: 5 nodes at 2.00, 4 pods each; pool B at 1.00; one of each goes, 1.50 comes: A's score is exactly 0.50.
    let sized = |name: &str, price: &str, cores: i64| {
        let mut kind = instance_type(name, cores, 64, &["a"]);
        kind.offerings
            .iter_mut()
            .for_each(|offering| offering.price = dollars(price));
        kind
    };
    let sold_out = |mut kind: spokeshave_model::InstanceType| {
        kind.offerings
            .iter_mut()
            .for_each(|offering| offering.available = false);
        kind
    };
    for (price, approved) in [("1.5", true), ("1.51", false)] {
        let types = vec![
            sold_out(sized("two", "2", 16)),
            sold_out(sized("one", "1", 16)),
            sized("new", price, 16),
        ];
        let mut balanced = on_demand_pool("a-pool");
        balanced.spec.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
        let mut world = World::with_types(balanced, types.clone());
        world.state = world.state.with_pool(on_demand_pool("b-pool"), types);
        for index in 0..5 {
            let name = format!("a{index}");
            world = world.node_in("a-pool", &name, "two", "on-demand");
            for pod in 0..4 {
                let cpu = if index == 0 { "1" } else { "3950m" };
                let spec = if index == 0 { json!({}) } else { pinned(&name) };
                world = world.pod_with(&format!("{name}-{pod}"), &name, cpu, &spec);
            }
        }
        world = world
            .node_in("b-pool", "b0", "one", "on-demand")
            .pod("b-0", "b0", "11");
        world.policy = only(Method::MultiNodeConsolidation);
        let outcome = world.pass();
        assert_eq!(
            outcome.commands.len(),
            usize::from(approved),
            "replacement at {price}: {outcome:#?}"
        );
        if approved {
            let scores = &outcome.reports[0].scores;
            // NodePools are in the order in which they are tried.
            assert_eq!(scores[1].pool, "a-pool");
            assert_eq!(
                scores[1].text(),
                "score 0.50 >= threshold 0.50 (k: 2, savings 10.0%, disruption 20.0%)"
            );
            assert!(scores[0].approved, "D-175: other policies are not scored");
        }
    }
}

#[test]
fn d_097_a_command_in_flight_is_not_chosen_again_and_its_nodes_take_nothing() {
    let mut world = pair();
    world.state.in_command.insert("kwok://b".to_owned());
    assert_eq!(acts(&world), Vec::<String>::new(), "b may be gone soon");
    let mut own = pair();
    own.state.in_command.insert("kwok://a".to_owned());
    assert_eq!(acts(&own), Vec::<String>::new());
    assert_eq!(own.verdict_text("a"), "keep: InCommand Node a");
    assert_eq!(own.verdict("a").if_removed, None);
}

#[test]
fn a_node_deleted_or_cordoned_by_hand_is_left_to_those_who_did_it() {
    let gone = pair().edit_claim("a", |claim| {
        claim.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(later(0)));
    });
    assert_eq!(acts(&gone), Vec::<String>::new());
    assert_eq!(gone.verdict_text("a"), "keep: Deleting Node a");
    // A cordoned node may still be consolidated, and takes no pods.
    let cordoned = pair().edit_node("b", |node| {
        node.spec.get_or_insert_default().unschedulable = Some(true)
    });
    assert_eq!(acts(&cordoned), Vec::<String>::new());
    let source = pair().edit_node("a", |node| {
        node.spec.get_or_insert_default().unschedulable = Some(true)
    });
    assert_eq!(acts(&source), [DELETE_A]);
}

#[test]
fn clocks_that_jump_open_nothing() {
    let guarded = pair().edit_pool("default", |pool| {
        pool.spec.disruption.budgets =
            serde_json::from_value(json!([{"nodes": "0", "schedule": "@daily", "duration": "24h"}])).ok();
    });
    for seconds in [i64::from(i32::MIN), -1, 0, 1, i64::from(i32::MAX)] {
        let mut world = guarded.clone();
        world.now = later(seconds);
        assert_eq!(acts(&world), Vec::<String>::new(), "{seconds}");
    }
    let mut frontier = Frontier::default();
    let world = pair();
    let command = world.command();
    frontier.failed(&command, later(0));
    let back = disrupt(&world.snapshot(), &world.policy, later(-1_000_000), &frontier);
    assert_eq!(
        back.commands,
        [],
        "a back-off is not over because the clock went back"
    );
}

#[test]
fn a_second_node_object_with_the_same_claim_never_counts_twice() {
    let mut world = pair();
    let (twin, _) = node("default", "twin", &three_types()[0], "a", "on-demand");
    let mut twin = twin;
    twin.spec.get_or_insert_default().provider_id = Some("kwok://a".to_owned());
    world.state.nodes.push(Arc::new(twin));
    let snapshot = world.snapshot();
    assert_eq!(
        snapshot
            .nodes
            .iter()
            .filter(|view| view.provider_id == "kwok://a")
            .count(),
        1
    );
    drop(world.pass());
}
