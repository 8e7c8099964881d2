//! Where there is a choice: a pod whose first domain, or first place for its volumes, will not do gets another, and pods and domains count as for
//! kube-scheduler. At the end, small worlds are compared with an answer that tries every zone and every type.

mod further;

use std::sync::Arc;

use serde_json::{Value, json};
use spokeshave_api::NodePool;
use spokeshave_example::{Dice, bound, instance_type, labelled, node, node_pool};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{ClusterState, InstanceType, Pod, labels};
use spokeshave_schedule::Packing;

use super::{limited, pod, repelling, summary, zones};
use crate::support::{ZONES, run, types};

/// A spread over zones of the pods of an app, with more fields.
fn spread(app: &str, more: &Value) -> Value {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}}});
    if let (Some(into), Some(from)) = (constraint.as_object_mut(), more.as_object()) {
        into.extend(from.clone());
    }
    constraint
}

/// Required affinity or anti-affinity over zones to the pods of an app.
fn near(kind: &str, app: &str) -> Value {
    json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {"app": app}}}]}})
}

fn of_app(app: &str, name: &str, cpu: &str, spec: Value) -> Pod {
    labelled(pod(name, cpu, spec), &[("app", app)])
}

fn text(zones: &str) -> String {
    format!("topology.kubernetes.io/zone In [{zones}]")
}

/// What the planned claims ask of their zones, when every pod has a place on one.
fn planned(state: &ClusterState) -> Vec<String> {
    let result = run(state);
    assert!(result.1.unplaced.is_empty(), "{:?}", summary(&result));
    assert!(result.1.placements.existing.is_empty(), "{:?}", summary(&result));
    zones(&result)
}

/// How many pods were planned in each zone.
fn pods_by_zone((_, packing): &(Snapshot, Packing)) -> Vec<(String, usize)> {
    let claims = packing.placements.claims.iter();
    let mut pods: Vec<(String, usize)> = claims
        .map(|claim| (claim.requirements.get(labels::ZONE).to_string(), claim.pods.len()))
        .collect();
    pods.sort();
    pods
}

/// Small ones in every zone, large ones not in the first.
fn types_by_zone() -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, 4, &ZONES),
        instance_type("large", 16, 32, &ZONES[1..]),
    ]
}

/// With a node of 2 cores that is full of one pod.
fn with_full_node(state: ClusterState, name: &str, zone: &str, pod: Pod) -> ClusterState {
    let small = instance_type("small", 2, 4, &ZONES);
    state
        .with_node(node("default", name, &small, zone, "spot"))
        .with_pod(bound(pod, name))
}

/// A NodePool that asks for some values of a label.
fn asking(mut pool: NodePool, key: &str, values: &[&str]) -> NodePool {
    let requirement = json!([{"key": key, "operator": "In", "values": values}]);
    pool.spec.template.spec.requirements = serde_json::from_value(requirement).expect("requirements");
    pool
}

#[test]
fn p_101_p_108_p_109_p_110_a_spread_takes_a_domain_that_other_rules_admit() {
    let pool = ClusterState::default().with_pool(node_pool("default"), types());
    let web = |affinity: &Value| {
        let spec = json!({"topologySpreadConstraints": [spread("web", &json!({}))], "affinity": affinity});
        of_app("web", "new", "1", spec)
    };
    let beside = |zone: &str, other: Pod, affinity: &Value| {
        planned(&with_full_node(pool.clone(), "n", zone, other).with_pod(web(affinity)))
    };
    let plain = of_app("noisy", "noisy", "1900m", json!({}));
    let apart = near("podAntiAffinity", "noisy");
    assert_eq!(
        beside("a", plain.clone(), &json!({})),
        [text("a")],
        "of equal ones the first"
    );
    assert_eq!(beside("a", plain, &apart), [text("b")]);
    // It is the other one that does not want it.
    let shy = json!({"affinity": near("podAntiAffinity", "web")});
    assert_eq!(
        beside("a", of_app("noisy", "noisy", "1900m", shy), &json!({})),
        [text("b")]
    );
    let db = of_app("db", "db", "1900m", json!({}));
    assert_eq!(beside("c", db, &near("podAffinity", "db")), [text("c")]);
}

#[test]
fn p_101_p_104_two_spreads_agree_on_a_domain() {
    let four = ["a", "b", "c", "d"];
    let mut state =
        ClusterState::default().with_pool(node_pool("default"), vec![instance_type("small", 2, 4, &four)]);
    for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "c")] {
        let old = of_app("web", &format!("old-{name}"), "1900m", json!({}));
        state = with_full_node(state, name, zone, labelled(old, &[("rev", "1")]));
    }
    let both = [
        spread("web", &json!({})),
        spread("web", &json!({"matchLabelKeys": ["rev"]})),
    ];
    let new = of_app("web", "new", "1", json!({"topologySpreadConstraints": both}));
    // The second counts none anywhere, and names the first zone.
    assert_eq!(
        planned(&state.with_pod(labelled(new, &[("rev", "2")]))),
        [text("d")]
    );
}

#[test]
fn p_087_p_101_p_108_a_domain_is_one_in_which_something_large_enough_is_sold() {
    let state = ClusterState::default().with_pool(node_pool("default"), types_by_zone());
    let even = json!({"topologySpreadConstraints": [spread("web", &json!({}))]});
    let large = state.clone().with_pod(of_app("web", "p", "8", even.clone()));
    assert_eq!(planned(&large), [text("b")]);
    assert_eq!(summary(&run(&large)), ["default/large: p"]);
    let small = state.clone().with_pod(of_app("web", "p", "1", even));
    assert_eq!(planned(&small), [text("a")], "the first where that will do");
    let together = json!({"affinity": near("podAffinity", "web")});
    let pods = ["p1", "p2"].map(|name| of_app("web", name, "8", together.clone()));
    assert_eq!(planned(&state.with_pods(pods)), [text("b"), text("b")]);
}

#[test]
fn p_088_p_101_where_no_domain_will_do_the_first_is_told_of() {
    let even = json!({"topologySpreadConstraints": [spread("web", &json!({}))], "affinity": near("podAntiAffinity", "noisy")});
    let web = |cpu: &str| of_app("web", "p", cpu, even.clone());
    let only_c = vec![
        instance_type("small", 2, 4, &ZONES),
        instance_type("large", 16, 32, &ZONES[2..]),
    ];
    let state = ClusterState::default().with_pool(node_pool("default"), only_c);
    let noisy = of_app("noisy", "noisy", "1900m", json!({}));
    let beside = with_full_node(state.clone(), "n", "c", noisy);
    // Large ones are sold beside the noisy pod only.
    for (state, cpu) in [(beside, "8"), (state.clone(), "100")] {
        let told = summary(&run(&state.with_pod(web(cpu))));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("p: no instance type"), "{told:?}");
        assert!(told[0].contains(&text("a")), "{told:?}");
    }
    assert_eq!(planned(&state.with_pod(web("8"))), [text("c")]);
}

#[test]
fn p_086_p_101_a_claim_that_is_open_already_takes_a_pod_in_another_domain() {
    let ten = instance_type("ten", 10, 20, &ZONES);
    let sixteen = instance_type("sixteen", 16, 32, &ZONES[1..]);
    let even = json!({"topologySpreadConstraints": [spread("web", &json!({}))]});
    let pods = [pod("big", "7", json!({})), of_app("web", "web", "4", even)];
    let planned_on = |pool: NodePool| {
        let state = ClusterState::default().with_pool(pool, vec![ten.clone(), sixteen.clone()]);
        run(&state.with_pods(pods.clone()))
    };
    // The first domain is a, where nothing holds both; but there may be no second node.
    let result = planned_on(limited("default", &[("nodes", "1")]));
    assert_eq!(summary(&result), ["default/sixteen: big web"]);
    assert_eq!(zones(&result), [text("b")]);
    // Where there may, the first domain is good enough.
    let result = planned_on(node_pool("default"));
    assert_eq!(result.1.placements.claims.len(), 2, "{:?}", summary(&result));
    assert_eq!(zones(&result)[1], text("a"));
}

#[test]
fn p_105_p_106_domains_that_the_pods_cannot_reach_are_no_minimum() {
    let mut ml = asking(node_pool("ml"), labels::ZONE, &["a", "b"]);
    let template = &mut ml.spec.template;
    template
        .metadata
        .labels
        .insert("team".to_owned(), "ml".to_owned());
    let taint = json!([{"key": "ml", "effect": "NoSchedule"}]);
    template.spec.taints = serde_json::from_value(taint).expect("taints");
    let state = ClusterState::default()
        .with_pool(ml, types())
        .with_pool(node_pool("general"), types());
    let run_with = |state: &ClusterState, policy: &Value| {
        let spec = json!({"nodeSelector": {"team": "ml"}, "tolerations": [{"key": "ml", "operator": "Exists"}],
            "topologySpreadConstraints": [spread("ml", policy)]});
        let pods = ["p1", "p2", "p3", "p4"].map(|name| of_app("ml", name, "1500m", spec.clone()));
        run(&state.clone().with_pods(pods))
    };
    let evenly = [(text("a"), 2), (text("b"), 2)];
    for policy in [
        json!({}),
        json!({"nodeTaintsPolicy": "Honor"}),
        json!({"nodeAffinityPolicy": "Ignore"}),
    ] {
        let result = run_with(&state, &policy);
        assert_eq!(pods_by_zone(&result), evenly, "{policy}: {:?}", summary(&result));
    }
    // A node that they may not use counts where affinity is ignored, and makes zone c one of the domains.
    let other = pod("other", "1900m", json!({}));
    let state = with_full_node(state, "n", "c", other);
    let result = run_with(&state, &json!({"nodeAffinityPolicy": "Ignore"}));
    assert_eq!(result.1.unplaced.len(), 2, "{:?}", summary(&result));
    let result = run_with(&state, &json!({}));
    assert_eq!(pods_by_zone(&result), evenly, "{:?}", summary(&result));
}

#[test]
fn p_105_p_106_domains_are_those_where_the_types_are_sold_that_are_asked_for() {
    let types = types_by_zone();
    let even = json!([spread("web", &json!({}))]);
    let large = json!({"nodeSelector": {labels::INSTANCE_TYPE: "large"}, "topologySpreadConstraints": even});
    let mut state = ClusterState::default().with_pool(node_pool("default"), types.clone());
    for (name, zone) in [("nb", "b"), ("nc", "c")] {
        let old = of_app("web", &format!("old-{zone}"), "15", large.clone());
        state = state
            .with_node(node("default", name, &types[1], zone, "spot"))
            .with_pod(bound(old, name));
    }
    let new = of_app("web", "new", "15", large);
    assert_eq!(planned(&state.with_pod(new)), [text("b")]);
    // The same where it is the NodePool that asks.
    let pool = asking(node_pool("default"), labels::INSTANCE_TYPE, &["large"]);
    let spec = json!({"topologySpreadConstraints": even});
    let pods = ["p1", "p2", "p3"].map(|name| of_app("web", name, "15", spec.clone()));
    let state = ClusterState::default().with_pool(pool, types).with_pods(pods);
    assert_eq!(planned(&state), [text("b"), text("c"), text("b")]);
}

#[test]
fn p_090_p_105_a_spread_counts_where_any_term_of_node_affinity_holds() {
    let types = types();
    let term =
        |zone: &str| json!({"matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": [zone]}]});
    let spec = json!({"topologySpreadConstraints": [spread("web", &json!({}))], "affinity": {"nodeAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term("a"), term("b")]}}}});
    let new = of_app("web", "new", "500m", spec);
    let crowded = |pool: NodePool, crowd: &str, empty: &str| {
        let state = ClusterState::default()
            .with_pool(pool, types.clone())
            .with_node(node("default", "roomy", &types[2], crowd, "spot"))
            .with_pods(["w1", "w2"].map(|name| bound(of_app("web", name, "500m", json!({})), "roomy")));
        let filler = pod("filler", "1900m", json!({}));
        run(&with_full_node(state, "full", empty, filler).with_pod(new.clone()))
    };
    let result = crowded(node_pool("default"), "a", "b");
    assert_eq!(zones(&result), [text("b")], "{:?}", summary(&result));
    // The zone of the term that was given up counts, too.
    let only_b = asking(node_pool("default"), labels::ZONE, &["b"]);
    let result = crowded(only_b, "b", "a");
    assert_eq!(result.1.unplaced.len(), 1, "{:?}", summary(&result));
}

#[test]
fn p_108_a_pod_counts_for_affinity_of_several_terms_if_all_of_them_select_it() {
    let types = types();
    let of_label = |key: &str, label: &str, value: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {label: value}}});
    let both = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        of_label(labels::ZONE, "app", "db"), of_label(labels::HOSTNAME, "tier", "cache")]}}});
    let running = |name: &str, labels: &[(&str, &str)], node: &str| {
        bound(labelled(pod(name, "100m", json!({})), labels), node)
    };
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(node("default", "n", &types[2], "a", "spot"))
        .with_pods([
            running("db", &[("app", "db")], "n"),
            running("cache", &[("tier", "cache")], "n"),
        ]);
    let web = state.clone().with_pod(pod("web", "1", both.clone()));
    let told = summary(&run(&web));
    assert!(
        told[0].contains("unsatisfiable topology constraint for pod affinity"),
        "{told:?}"
    );
    // One that both select, elsewhere.
    let web = web
        .with_node(node("default", "o", &types[2], "b", "spot"))
        .with_pod(running("both", &[("app", "db"), ("tier", "cache")], "o"));
    assert_eq!(summary(&run(&web)), ["o: web"]);
    // Who is selected by all terms itself may be the first.
    let own = labelled(pod("own", "1", both), &[("app", "db"), ("tier", "cache")]);
    assert_eq!(summary(&run(&state.with_pod(own))), ["n: own"]);
}

#[test]
fn p_107_pods_that_take_long_to_leave_repel_and_attract_until_they_are_gone() {
    let types = types();
    let leaving_within = |seconds: i64, mut leaving: Pod, new: Pod| {
        leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
        leaving.metadata.deletion_grace_period_seconds = Some(seconds);
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types.clone())
            .with_node(node("default", "n", &types[2], "c", "spot"))
            .with_pods([bound(leaving, "n"), new]);
        run(&state)
    };
    let beside = |leaving: Pod, new: Pod| leaving_within(7200, leaving, new);
    let plain = |name: &str| of_app("web", name, "500m", json!({}));
    let elsewhere = ["default/small: new"];
    // Each does not want the other, one of them does not, or the other.
    assert_eq!(
        summary(&beside(repelling("old", "500m"), repelling("new", "500m"))),
        elsewhere
    );
    assert_eq!(
        summary(&beside(repelling("old", "500m"), plain("new"))),
        elsewhere
    );
    assert_eq!(
        summary(&beside(plain("old"), repelling("new", "500m"))),
        elsewhere
    );
    // No node comes sooner than the other has gone.
    for old in [repelling("old", "500m"), plain("old")] {
        let result = leaving_within(30, old, repelling("new", "500m"));
        assert_eq!(summary(&result), ["n: new"]);
    }
    let result = leaving_within(30, repelling("old", "500m"), plain("new"));
    assert_eq!(summary(&result), ["n: new"]);
    let together = json!({"affinity": near("podAffinity", "web")});
    let new = of_app("other", "new", "15500m", together);
    let result = beside(plain("old"), new.clone());
    assert_eq!(zones(&result), [text("c")], "{:?}", summary(&result));
    let result = leaving_within(30, plain("old"), new);
    assert_eq!(result.1.unplaced.len(), 1, "{:?}", summary(&result));
    // A spread does not count it, so that zone c is as empty as the others.
    let even = json!({"topologySpreadConstraints": [spread("web", &json!({}))]});
    let new = of_app("web", "new", "500m", even);
    assert_eq!(summary(&beside(plain("old"), new)), ["n: new"]);
}

/// A claim that is bound to a volume which can be reached in some zones, each a term of its own.
fn with_volume(mut state: ClusterState, zones: &[&str]) -> ClusterState {
    let claim = json!({"metadata": {"namespace": "default", "name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "pv"}});
    let terms: Vec<Value> = zones
        .iter()
        .map(|zone| json!({"matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": [zone]}]}))
        .collect();
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    let claim = Arc::new(serde_json::from_value(claim).expect("a claim"));
    let volume = Arc::new(serde_json::from_value(volume).expect("a volume"));
    state.volumes.claims.insert("default/data".to_owned(), claim);
    state.volumes.volumes.insert("pv".to_owned(), volume);
    state
}

fn volumes() -> Value {
    json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
}

#[test]
fn p_116_of_several_places_for_a_volume_one_will_do_in_which_something_is_sold() {
    let state = ClusterState::default().with_pool(node_pool("default"), types_by_zone());
    let state = with_volume(state, &["a", "b"]);
    let with = |cpu: &str, spreads: &Value| {
        let spec = json!({"volumes": volumes(), "topologySpreadConstraints": spreads});
        planned(&state.clone().with_pod(of_app("web", "p", cpu, spec)))
    };
    for spreads in [json!([]), json!([spread("web", &json!({}))])] {
        assert_eq!(with("1", &spreads), [text("a")], "the first where that will do");
        assert_eq!(with("8", &spreads), [text("b")]);
    }
    // Nothing of that size is sold where the volume is.
    let state = with_volume(state, &["a"]);
    let spec = json!({"volumes": volumes()});
    let result = run(&state.with_pod(pod("p", "8", spec)));
    assert_eq!(result.1.unplaced.len(), 1, "{:?}", summary(&result));
}

/// A pod that waits, nodes that are full, and a NodePool; and whether there is a zone with a type for the pod, found by trying each.
struct Small {
    /// Zones in which small types are sold, and large ones.
    sold: [Vec<&'static str>; 2],
    /// Zone and app of each pod that runs, and the app that it keeps away.
    running: Vec<(&'static str, &'static str, Option<&'static str>)>,
    app: &'static str,
    is_large: bool,
    spreads: Vec<(&'static str, u32)>,
    apart: Option<&'static str>,
    together: Option<&'static str>,
    volume: Vec<&'static str>,
}

const FOUR: [&str; 4] = ["a", "b", "c", "d"];
const APPS: [&str; 2] = ["db", "web"];

impl Small {
    fn random(dice: &mut Dice) -> Self {
        let some_zones = |dice: &mut Dice| {
            let mut zones = FOUR.to_vec();
            zones.retain(|_| dice.below(2) == 0);
            zones
        };
        let maybe_app = |dice: &mut Dice, one_in: usize| (dice.below(one_in) == 0).then(|| *dice.pick(&APPS));
        let running = (0..dice.below(5))
            .map(|_| (*dice.pick(&FOUR), *dice.pick(&APPS), maybe_app(dice, 4)))
            .collect();
        Small {
            sold: [some_zones(dice), some_zones(dice)],
            running,
            app: dice.pick::<&str>(&APPS),
            is_large: dice.below(2) == 0,
            spreads: (0..dice.below(3))
                .map(|_| (*dice.pick(&APPS), 1 + dice.below(2) as u32))
                .collect(),
            apart: maybe_app(dice, 3),
            together: maybe_app(dice, 3),
            volume: if dice.below(3) == 0 {
                some_zones(dice)
            } else {
                Vec::new()
            },
        }
    }

    fn state(&self) -> ClusterState {
        let types = vec![
            instance_type("small", 2, 4, &self.sold[0]),
            instance_type("large", 16, 32, &self.sold[1]),
        ];
        let mut state = ClusterState::default().with_pool(node_pool("default"), types);
        for (index, (zone, app, keeps_away)) in self.running.iter().enumerate() {
            let affinity = keeps_away.map(|app| near("podAntiAffinity", app));
            let other = of_app(
                app,
                &format!("old-{index}"),
                "1900m",
                json!({"affinity": affinity}),
            );
            state = with_full_node(state, &format!("n{index}"), zone, other);
        }
        let mut spec = json!({"affinity": {}});
        let spreads = self.spreads.iter();
        let spreads: Vec<Value> = spreads
            .map(|(app, skew)| spread(app, &json!({"maxSkew": skew})))
            .collect();
        spec["topologySpreadConstraints"] = json!(spreads);
        for (kind, app) in [("podAntiAffinity", self.apart), ("podAffinity", self.together)] {
            if let Some(app) = app {
                spec["affinity"][kind] = near(kind, app)[kind].clone();
            }
        }
        if !self.volume.is_empty() {
            state = with_volume(state, &self.volume);
            spec["volumes"] = volumes();
        }
        let cpu = if self.is_large { "8" } else { "1" };
        state.with_pod(of_app(self.app, "new", cpu, spec))
    }

    fn count(&self, app: &str, zone: &str) -> u32 {
        let there = self.running.iter();
        let there = there.filter(|(its_zone, its_app, _)| *its_zone == zone && *its_app == app);
        there.count() as u32
    }

    /// Whether rules admit the pod in a zone.
    fn admits(&self, zone: &str) -> bool {
        let is_domain = |zone: &&str| {
            let has_node = self.running.iter().any(|(its_zone, ..)| its_zone == zone);
            has_node || self.sold.iter().flatten().any(|sold| sold == zone)
        };
        let is_even = |(app, skew): &(&str, u32)| {
            let domains = FOUR.iter().filter(|zone| is_domain(zone));
            let least = domains.map(|zone| self.count(app, zone)).min().unwrap_or(0);
            let own = u32::from(*app == self.app);
            self.count(app, zone) + own <= least + skew
        };
        let runs = |app: &str| self.running.iter().any(|(_, its_app, _)| *its_app == app);
        let is_near = |app: &str| self.count(app, zone) > 0 || (!runs(app) && app == self.app);
        let mut others = self.running.iter();
        self.spreads.iter().all(is_even)
            && self.apart.is_none_or(|app| self.count(app, zone) == 0)
            && self.together.is_none_or(is_near)
            && others.all(|(its_zone, _, keeps_away)| *its_zone != zone || *keeps_away != Some(self.app))
            && (self.volume.is_empty() || self.volume.contains(&zone))
    }

    /// Whether a type that holds the pod is sold in a zone.
    fn sells(&self, zone: &str) -> bool {
        let enough = if self.is_large { 1..2 } else { 0..2 };
        self.sold[enough].iter().flatten().any(|sold| *sold == zone)
    }
}

#[test]
fn p_087_p_101_p_108_p_110_p_116_a_pod_has_a_place_where_some_zone_has_one() {
    let (mut placed, mut refused, mut moved) = (0, 0, 0);
    for seed in 0..600 {
        let world = Small::random(&mut Dice(seed));
        let result = run(&world.state());
        let good = |zone: &&&str| world.admits(zone) && world.sells(zone);
        let expected: Vec<&str> = FOUR.iter().filter(good).copied().collect();
        let told = summary(&result);
        let has_place = result.1.unplaced.is_empty();
        assert_eq!(has_place, !expected.is_empty(), "seed {seed}: {told:?}");
        let Some(claim) = result.1.placements.claims.first() else {
            refused += 1;
            continue;
        };
        placed += 1;
        let asked = claim.requirements.get(labels::ZONE);
        let goes: Vec<&str> = FOUR
            .iter()
            .filter(|zone| asked.has(zone) && world.sells(zone))
            .copied()
            .collect();
        assert!(!goes.is_empty(), "seed {seed}: {told:?}");
        assert!(
            goes.iter().all(|zone| expected.contains(zone)),
            "seed {seed}: {goes:?} is not among {expected:?}: {told:?}"
        );
        let is_sold = |zone: &&&str| world.sold.iter().flatten().any(|sold| sold == *zone);
        let first = FOUR.iter().find(is_sold);
        moved += usize::from(!first.is_some_and(|first| goes.contains(first)));
    }
    assert!(
        placed > 100 && refused > 50 && moved > 50,
        "{placed} placed, {refused} refused, {moved} not in the first zone"
    );
}
