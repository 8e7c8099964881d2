//! Which nodes the model of kube-scheduler finds for pods.

use super::*;
use serde_json::{Value, json};

const A: u32 = 1;
const B: u32 = 2;

/// With the ready nodes [`A`] and [`B`], each its own zone.
fn scheduler(pods: &[Pod]) -> Scheduler {
    let mut scheduler = Scheduler::new(pods.iter(), std::iter::empty(), Scoring::LeastAllocated);
    for (machine, name) in [(A, "a"), (B, "b")] {
        let node = json!({"metadata": {"name": name, "labels": {"zone": name}}, "status": {
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}],
        }});
        scheduler.set_node(machine, &serde_json::from_value(node).unwrap());
    }
    scheduler
}

fn pod(labels: Value, affinity: Value) -> Pod {
    let object = json!({"metadata": {"namespace": "shop", "labels": labels}, "spec": {
        "affinity": affinity, "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
    }});
    serde_json::from_value(object).unwrap()
}

/// Terms that are met by different pods are not met: one pod has to be what all of them speak of.
#[test]
fn the_terms_of_an_affinity_speak_of_the_same_pods() {
    let (web, cache, both) = (
        json!({"app": "web"}),
        json!({"tier": "cache"}),
        json!({"app": "web", "tier": "cache"}),
    );
    let terms =
        [&web, &cache].map(|labels| json!({"topologyKey": "zone", "labelSelector": {"matchLabels": labels}}));
    let near = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    let mut scheduler = scheduler(&[
        pod(web, json!({})),
        pod(cache, json!({})),
        pod(json!({}), near.clone()),
        pod(both, near),
    ]);
    let (guest, first) = (2, 3);
    for shape in [0, 1] {
        scheduler.bind(shape, A);
    }
    assert_eq!(scheduler.choose(guest), None);
    assert_eq!(
        scheduler.choose(first),
        Some(B),
        "the first of its group, on the emptier node"
    );
    scheduler.bind(first, B);
    for _ in 0..3 {
        assert_eq!(scheduler.choose(guest), Some(B));
        scheduler.bind(guest, B);
    }
    assert_eq!(scheduler.choose(first), Some(B));
}

#[test]
fn p_040_affinity_to_a_name_is_for_the_node_of_that_name() {
    let named = |operator: &str, name: &str| {
        let field = json!({"key": "metadata.name", "operator": operator, "values": [name]});
        let terms = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        pod(
            json!({}),
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}),
        )
    };
    let mut scheduler = scheduler(&[named("In", "b"), named("NotIn", "a"), named("In", "c")]);
    for shape in [0, 1] {
        for _ in 0..2 {
            assert_eq!(scheduler.choose(shape), Some(B), "{shape}");
            scheduler.bind(shape, B);
        }
    }
    assert_eq!(scheduler.choose(2), None);
}

/// Versions of one workload count each other's pods, and its spread is not there once for each of them.
#[test]
fn rules_that_say_the_same_are_one_for_all_shapes() {
    let labels = json!({"app": "web"});
    let selector = json!({"matchLabels": labels});
    let versions: Vec<Pod> = (1..=200)
        .map(|version| {
            let anti = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "batch"}}});
            let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}});
            let mut pod = serde_json::to_value(pod(labels.clone(), affinity)).unwrap();
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{version}m"));
            pod["spec"]["topologySpreadConstraints"] = json!([
                {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector},
            ]);
            serde_json::from_value(pod).unwrap()
        })
        .collect();
    let mut scheduler = scheduler(&versions);
    assert_eq!(scheduler.rules.all.len(), 2, "the spread and the anti-affinity");
    assert!(scheduler.shapes.iter().all(|shape| shape.counted_by.len() == 1));
    scheduler.bind(0, A);
    assert_eq!(scheduler.choose(199), Some(B), "the first version counts");
    scheduler.bind(199, B);
    scheduler.release(0, A, false);
    assert_eq!(scheduler.choose(7), Some(A), "and does not once it is gone");
}
