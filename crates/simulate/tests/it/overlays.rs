//! NodeOverlays: what is bought, and what it costs, goes by the prices and capacities that they say.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use spokeshave_api::NodeOverlay;
use spokeshave_api::labels::PRICE_OVERLAY_APPLIED;
use spokeshave_api::validation::LabelRules;
use spokeshave_model::labels::INSTANCE_TYPE;
use spokeshave_scenario::{Change, OwnerKind, Timeline};
use spokeshave_simulate::{Measured, Objects, ObjectsAt, Watch, World, live_watched};

use crate::small::{HOUR, owner, policy, timeline, world};

/// Two types of one size and one price.
fn twins() -> World {
    let types = ["a4", "b4"].map(|name| spokeshave_example::instance_type(name, 4, 16, &["zone-a"]));
    let mut world = world(3);
    world.instance_types = Arc::from(types);
    world
}

fn overlay(name: &str, mut spec: Value) -> Arc<NodeOverlay> {
    if spec["requirements"].is_null() {
        spec["requirements"] = json!([]);
    }
    let overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}, "spec": spec,
    });
    Arc::new(serde_json::from_value(overlay).unwrap())
}

/// Of the second of the two types alone.
fn of_b4(price: &str) -> Value {
    json!({"requirements": [{"key": INSTANCE_TYPE, "operator": "In", "values": ["b4"]}], "price": price})
}

/// One pod of an hour, which requests this much of an extended resource.
fn one_job(fpgas: Option<&str>) -> Timeline {
    let mut job = owner(OwnerKind::Job, "job", "1");
    if let Some(count) = fpgas {
        let template = Arc::make_mut(&mut job.template);
        let container = &mut template.spec.get_or_insert_default().containers[0];
        let resources = container.resources.get_or_insert_default();
        let requests = resources.requests.get_or_insert_default();
        requests.insert("example.com/fpga".to_owned(), Quantity(count.to_owned()));
    }
    let begin = Change::Begin {
        pod: 0,
        runs_ms: Some(HOUR),
    };
    timeline(vec![job], vec![(0, 0, begin)])
}

/// What a life of three hours measures, the instances that it launches, and what there is after half an hour.
fn lived(overlays: &[Arc<NodeOverlay>], timeline: &Timeline) -> (Measured, Vec<String>, Objects) {
    let world = twins();
    let policy = policy().under(&world, overlays, &LabelRules::default());
    let (mut launched, mut objects) = (Vec::new(), Objects::default());
    let mut take = |line: spokeshave_simulate::Line<'_>| {
        if line.what == "launched" {
            launched.push(line.more.to_owned());
        }
    };
    let mut show = |all: &Objects| objects = all.clone();
    let watch = Watch {
        lines: Some(&mut take),
        objects: Some(ObjectsAt {
            at_ms: HOUR / 2,
            take: &mut show,
        }),
    };
    let run = live_watched(&world, timeline, &policy, 1, &|| false, watch);
    (run.measured, launched, objects)
}

/// An instance for 3,711 seconds, as `figures` works out, at $0.22 an hour, or at $0.10, or at twice as much.
#[test]
fn p_187_what_is_bought_costs_what_overlays_say() {
    let twice = json!({"priceAdjustment": "+100%"});
    for (spec, bought, cost) in [
        (None, "a4 ", 226_783),
        (Some(of_b4("0.1")), "b4 on-demand 0.1", 103_083),
        (Some(of_b4("0.9")), "a4 ", 226_783),
        (Some(twice), "a4 on-demand 0.44", 453_566),
    ] {
        let is_corrected = spec.is_some();
        let overlays: Vec<_> = spec.iter().map(|spec| overlay("prices", spec.clone())).collect();
        let (measured, launched, objects) = lived(&overlays, &one_job(None));
        assert_eq!(launched.len(), 1, "{spec:?}");
        assert!(launched[0].starts_with(bought), "{spec:?}: {launched:?}");
        assert_eq!(measured.cost_on_demand_micros, cost, "{spec:?}");
        // It is told of a NodeClaim that may become a type which is corrected, whichever it becomes.
        let claim = &objects.node_claims[0];
        let annotation = claim.annotation(PRICE_OVERLAY_APPLIED);
        assert_eq!(annotation, is_corrected.then_some("true"), "{spec:?}");
    }
}

/// Of equal weight, the one whose name is last stands; a heavier one goes before it.
#[test]
fn p_187_of_overlays_that_disagree_one_counts() {
    let heavy = |price: &str| {
        let mut spec = of_b4(price);
        spec["weight"] = json!(7);
        spec
    };
    let light = [overlay("one", of_b4("0.1")), overlay("two", of_b4("0.05"))];
    let (measured, ..) = lived(&light, &one_job(None));
    assert_eq!(measured.cost_on_demand_micros, 51_541);
    let both = [overlay("one", heavy("0.1")), overlay("two", of_b4("0.05"))];
    let (measured, ..) = lived(&both, &one_job(None));
    assert_eq!(measured.cost_on_demand_micros, 103_083);
}

/// What a device plugin would add: pods that request it are planned, get a node and run there.
#[test]
fn p_187_extended_resources_that_overlays_add_take_pods() {
    let timeline = one_job(Some("2"));
    let adds = |count: &str| [overlay("fpga", json!({"capacity": {"example.com/fpga": count}}))];
    for (overlays, is_placed) in [
        (Vec::new(), false),
        (adds("1").to_vec(), false),
        (adds("2").to_vec(), true),
    ] {
        let (measured, launched, _) = lived(&overlays, &timeline);
        let waited: &[u32] = if is_placed { &[61_000] } else { &[] };
        assert_eq!(measured.pending_born_ms, waited, "{overlays:?}");
        assert_eq!(launched.len(), usize::from(is_placed), "{overlays:?}");
    }
}
