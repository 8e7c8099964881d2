//! What a pod asks of a node and a node of a pod: labels, taints, resources and offerings; and what is said when nothing meets it.

use serde_json::{Value, json};
use spokeshave_example::{instance_type, node, node_pool};
use spokeshave_model::{ClusterState, InstanceType, Requirement, Resources, labels};
use spokeshave_schedule::{PackOptions, PreferencePolicy};

use super::{pod, summary, zones};
use crate::support::{run, run_with, types};

#[test]
fn p_033_older_label_keys_mean_the_canonical_ones() {
    let spec = json!({"nodeSelector": {"failure-domain.beta.kubernetes.io/zone": "b", "beta.kubernetes.io/os": "linux"}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "1", spec));
    let result = run(&state);
    assert_eq!(zones(&result), ["topology.kubernetes.io/zone In [b]"]);
}

#[test]
fn p_034_example_2_undefined_label() {
    let select = |operator: &str, values: Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "team", "operator": operator, "values": values}]}]}}}})
    };
    let state = |spec| {
        ClusterState::default()
            .with_pool(node_pool("default"), types())
            .with_pod(pod("p", "1", spec))
    };
    assert_eq!(
        summary(&run(&state(select("In", json!(["a"]))))),
        [r#"p: incompatible requirements, label "team" does not have known values (NodePool=default)"#]
    );
    assert_eq!(
        summary(&run(&state(select("NotIn", json!(["a"]))))),
        ["default/small: p"]
    );
    let mut labelled = node_pool("default");
    labelled
        .spec
        .template
        .metadata
        .labels
        .insert("team".to_owned(), "a".to_owned());
    let state = |spec| {
        ClusterState::default()
            .with_pool(labelled.clone(), types())
            .with_pod(pod("p", "1", spec))
    };
    assert_eq!(
        summary(&run(&state(select("Exists", json!(null))))),
        ["default/small: p"]
    );
    assert_eq!(
        summary(&run(&state(select("DoesNotExist", json!(null))))),
        ["p: incompatible requirements, key team, team DoesNotExist not in team In [a] (NodePool=default)"]
    );
}

#[test]
fn p_085_existing_nodes_need_defined_labels_and_tolerated_taints() {
    let types = types();
    let (mut tainted, claim) = node("default", "tainted", &types[2], "a", "spot");
    let taint = serde_json::from_value(json!({"key": "team", "value": "ml", "effect": "NoSchedule"}))
        .expect("a taint");
    tainted.spec.get_or_insert_default().taints = Some(vec![taint]);
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node((tainted, claim))
        .with_node(node("default", "zone-b", &types[0], "b", "spot"));
    let tolerating = pod(
        "p",
        "1",
        json!({"tolerations": [{"key": "team", "operator": "Exists"}]}),
    );
    assert_eq!(summary(&run(&state.clone().with_pod(tolerating))), ["tainted: p"]);
    let zone_a = pod(
        "p",
        "1",
        json!({"nodeSelector": {"topology.kubernetes.io/zone": "a"}}),
    );
    assert_eq!(
        summary(&run(&state.clone().with_pod(zone_a))),
        ["default/small: p"]
    );
    assert_eq!(
        summary(&run(&state.with_pod(pod("p", "1", json!({}))))),
        ["zone-b: p"]
    );
}

#[test]
fn p_034_no_node_is_launched_for_what_contradicts_itself() {
    let spec = json!({"nodeSelector": {"team": "a"}, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}]}}}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "1", spec));
    assert_eq!(
        summary(&run(&state)),
        [r#"p: incompatible requirements, label "team" does not have known values (NodePool=default)"#]
    );
}

#[test]
fn p_035_a_well_known_label_that_no_type_declares_is_on_no_node() {
    let told = |types: Vec<InstanceType>, key: &str| {
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types)
            .with_pod(pod("p", "1", json!({"nodeSelector": {key: "x"}})));
        summary(&run(&state))
    };
    for key in [labels::REGION, labels::WINDOWS_BUILD] {
        let told = told(types(), key);
        assert!(
            told[0].starts_with("p: no instance type met all requirements"),
            "{told:?}"
        );
    }
    let mut regional = types();
    for one in &mut regional {
        one.requirements.add(Requirement::is(labels::REGION, "x"));
    }
    assert_eq!(told(regional, labels::REGION), ["default/small: p"]);
}

#[test]
fn p_087_requirements_resources_and_offering_must_hold_for_one_type() {
    let mut large = instance_type("large", 16, 32, &["a"]);
    large.offerings.retain(|offering| offering.zone() != Some("b"));
    let state = ClusterState::default()
        .with_pool(
            node_pool("default"),
            vec![instance_type("small", 2, 4, &["b"]), large],
        )
        .with_pod(pod(
            "p",
            "8",
            json!({"nodeSelector": {"topology.kubernetes.io/zone": "b"}}),
        ));
    assert!(
        summary(&run(&state))[0].starts_with("p: no instance type"),
        "{:?}",
        summary(&run(&state))
    );
}

#[test]
fn p_088_error_table() {
    let bare = |mut instance_type: InstanceType| {
        for offering in &mut instance_type.offerings {
            offering.available = false;
        }
        instance_type
    };
    let selecting = |arch: &str, zone: &str| json!({"nodeSelector": {"kubernetes.io/arch": arch, "topology.kubernetes.io/zone": zone}});
    let message = |types: Vec<InstanceType>, cpu: &str, spec: Value| {
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types)
            .with_pod(pod("p", cpu, spec));
        let text = summary(&run(&state)).join("|");
        text.split(", requirements=")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        message(types(), "100", json!({})),
        "p: no instance type has enough resources"
    );
    assert_eq!(
        message(types(), "1", selecting("arm64", "a")),
        "p: no instance type met all requirements"
    );
    assert_eq!(
        message(types(), "100", selecting("arm64", "a")),
        "p: no instance type met the scheduling requirements or had enough resources"
    );
    // Zone d is declared by no type, so requirements and offering both fail.
    assert_eq!(
        message(types(), "100", selecting("amd64", "d")),
        "p: no instance type met the scheduling requirements or had enough resources or had a required offering"
    );
    // The big type has no offering left in any zone but the pod needs its size; the small one has.
    let scarce = vec![types().remove(0), bare(types().remove(2))];
    assert_eq!(
        message(scarce, "8", json!({})),
        "p: no instance type has enough resources"
    );
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "1000001", json!({})));
    let text = summary(&run(&state)).join("");
    assert!(
        text.contains(" (CPU request >= 1 Million, m vs M typo?)"),
        "{text}"
    );
    assert!(
        text.contains(r#"resources={"cpu":"1000001","memory":"100Mi","pods":"1"}"#),
        "{text}"
    );
}

#[test]
fn p_089_offering_overrides_are_groups_of_their_own() {
    let mut overridden = instance_type("small", 2, 4, &["a"]);
    let mut big = spokeshave_example::offering("a", "on-demand", spokeshave_model::Price(1));
    big.overrides = Some(spokeshave_model::Overrides {
        capacity: Resources::from_amounts([("example.com/gpu", 4)]),
        ..Default::default()
    });
    overridden.offerings.push(big);
    let spec = json!({"containers": [{"name": "main", "resources": {"requests": {"example.com/gpu": "2"}}}]});
    let state = ClusterState::default().with_pool(node_pool("default"), vec![overridden]);
    let result = run(&state.clone().with_pod(pod("p", "1", spec.clone())));
    assert_eq!(summary(&result), ["default/small: p"]);
    let spot =
        json!({"containers": spec["containers"], "nodeSelector": {"karpenter.sh/capacity-type": "spot"}});
    assert!(summary(&run(&state.with_pod(pod("p", "1", spot))))[0].starts_with("p: no instance type"));
}

#[test]
fn p_090_example_13_required_terms_are_alternatives() {
    let term = |value: &str| json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [value]}]});
    let terms = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    let state = |spec| {
        ClusterState::default()
            .with_pool(node_pool("default"), types())
            .with_pod(pod("p", "1", spec))
    };
    assert_eq!(
        summary(&run(&state(terms(json!([term("nowhere"), term("b")]))))),
        ["default/small: p"]
    );
    assert_eq!(summary(&run(&state(terms(json!([term("nowhere")]))))).len(), 1);
    assert!(summary(&run(&state(terms(json!([term("nowhere")])))))[0].starts_with("p: "));
}

#[test]
fn p_091_example_14_prefer_no_schedule() {
    let mut tainted = node_pool("tainted");
    tainted.spec.weight = Some(50);
    tainted.spec.template.spec.taints =
        vec![serde_json::from_value(json!({"key": "k", "effect": "PreferNoSchedule"})).expect("a taint")];
    let state = ClusterState::default()
        .with_pool(tainted, types())
        .with_pod(pod("p", "1", json!({})));
    assert_eq!(summary(&run(&state)), ["tainted/small: p"]);
    assert_eq!(
        summary(&run(&state.with_pool(node_pool("bare"), types()))),
        ["bare/small: p"]
    );
}

#[test]
fn p_092_preferences_respected_or_ignored() {
    let spec = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}]}}]}}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "1", spec));
    assert_eq!(summary(&run(&state)), ["default/large: p"]);
    let ignore = PackOptions {
        preferences: PreferencePolicy::Ignore,
        ..PackOptions::default()
    };
    assert_eq!(summary(&run_with(&state, &ignore)), ["default/small: p"]);
}

#[test]
fn p_037_p_069_keys_that_a_nodeclaim_may_not_have_do_not_reach_it_when_they_are_to_be_absent() {
    let term = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let preferring = |name: &str, preference: Value| {
        let terms = json!([{"weight": 1, "preference": preference}]);
        pod(
            name,
            "100m",
            json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}),
        )
    };
    let required = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [term("other-karpenter.sh/x", "DoesNotExist", json!(null))]}}}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods([
            preferring(
                "a",
                term("karpenter.sh/provisioner-name", "DoesNotExist", json!(null)),
            ),
            preferring("b", term("sub.karpenter.sh/x", "NotIn", json!(["y"]))),
            preferring("c", term("team", "DoesNotExist", json!(null))),
            pod("d", "100m", required),
        ]);
    let result = run(&state);
    assert_eq!(summary(&result), ["default/small: a b c d"]);
    let claim = &result.1.placements.claims[0];
    let keys: Vec<&str> = claim.requirements.iter().map(|one| one.key()).collect();
    let mut theirs = keys.iter().filter(|key| key.contains("karpenter.sh"));
    let allowed = ["karpenter.sh/nodepool", "karpenter.sh/capacity-type"];
    assert!(theirs.all(|key| allowed.contains(key)), "{keys:?}");
    assert!(keys.contains(&"team"), "{keys:?}");
}

#[test]
fn p_122_dynamic_resource_allocation_is_refused_in_the_open() {
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "1", spec));
    assert_eq!(
        summary(&run(&state)),
        ["p: pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter"]
    );
}
