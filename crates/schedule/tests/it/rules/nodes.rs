//! What is there already: nodes that come, run or belong to nobody, the daemons on them, their ports and volumes.

use serde_json::json;
use spokeshave_example::{node, node_pool};
use spokeshave_model::{ClusterState, labels};

use super::{pod, summary};
use crate::support::{run, types};

#[test]
fn p_062_daemon_overhead_from_the_newest_pod_with_the_templates_affinity() {
    let types = types();
    let pinned = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}});
    let mut running = spokeshave_example::bound(pod("agent-n", "1", pinned), "n");
    running.metadata.owner_references = serde_json::from_value(
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent"}]),
    )
    .ok();
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(node("default", "n", &types[0], "a", "spot"))
        .with_daemon_set(spokeshave_example::daemon_set(
            "agent",
            "100m",
            "10Mi",
            &json!({}),
        ))
        .with_pod(running)
        .with_pod(pod("p", "2", json!({})));
    let result = run(&state);
    assert_eq!(
        result.1.placements.claims[0].requests.get("cpu"),
        3000,
        "the live pod asks for more than the template"
    );
}

#[test]
fn p_095_example_18_daemon_overhead_once_per_node() {
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_daemon_set(spokeshave_example::daemon_set("agent", "2", "100Mi", &json!({})))
        .with_pods([pod("p1", "1", json!({})), pod("p2", "900m", json!({}))]);
    let result = run(&state);
    assert_eq!(summary(&result), ["default/medium: p1 p2"]);
    assert_eq!(result.1.placements.claims[0].requests.get("cpu"), 3900);
    assert_eq!(result.1.placements.claims[0].requests.get("pods"), 3);
}

#[test]
fn p_095_daemon_groups_differ_by_instance_type() {
    let only_large = json!({"nodeSelector": {"node.kubernetes.io/instance-type": "large"}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_daemon_set(spokeshave_example::daemon_set("agent", "2", "100Mi", &only_large))
        .with_pod(pod("p", "3800m", json!({})));
    let result = run(&state);
    assert_eq!(summary(&result), ["default/medium: p"]);
    assert_eq!(
        result.1.placements.claims[0].requests.get("cpu"),
        3800,
        "the least overhead of the groups"
    );
    assert_eq!(result.1.placements.claims[0].launches.len(), 2);
}

#[test]
fn p_096_remaining_daemon_overhead_on_existing_nodes() {
    let types = types();
    let daemon = spokeshave_example::daemon_set("agent", "1", "100Mi", &json!({}));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_daemon_set(daemon)
        .with_node(node("default", "n", &types[0], "a", "spot"))
        .with_pod(pod("p", "1", json!({})));
    // 1900m allocatable, of which the daemon will take 1000m.
    assert_eq!(summary(&run(&state)), ["default/medium: p"]);
    let mut running = spokeshave_example::bound(pod("agent-x", "1", json!({})), "n");
    running.metadata.owner_references = serde_json::from_value(
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent"}]),
    )
    .ok();
    let small = pod("q", "900m", json!({}));
    let mut state = state.with_pod(running).with_pod(small);
    state.pods.retain(|pod| pod.metadata.name.as_deref() != Some("p"));
    assert_eq!(
        summary(&run(&state)),
        ["n: q"],
        "the daemon that runs is not counted twice"
    );
}

#[test]
fn p_096_daemons_are_expected_on_nodes_with_soft_taints() {
    let types = types();
    let (mut object, claim) = node("default", "n", &types[0], "a", "spot");
    object.spec.get_or_insert_default().taints =
        serde_json::from_value(json!([{"key": "soft", "effect": "PreferNoSchedule"}])).ok();
    let daemon = spokeshave_example::daemon_set("agent", "1", "100Mi", &json!({}));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types)
        .with_node((object, claim));
    let tolerating = |cpu: &str| {
        let spec = json!({"tolerations": [{"key": "soft", "operator": "Exists"}]});
        state
            .clone()
            .with_daemon_set(daemon.clone())
            .with_pod(pod("p", cpu, spec))
    };
    // 1900m allocatable, of which the daemon, which does not tolerate the taint, will take 1000m.
    assert_eq!(summary(&run(&tolerating("1"))), ["default/medium: p"]);
    assert_eq!(summary(&run(&tolerating("900m"))), ["n: p"]);
}

#[test]
fn p_097_example_17_startup_and_ephemeral_taints_count_once_initialised() {
    let types = types();
    let taints = json!([{"key": "boot", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "readiness.k8s.io/cni", "effect": "NoSchedule"}]);
    let (mut object, mut claim) = node("default", "n", &types[1], "a", "spot");
    object.spec.get_or_insert_default().taints = serde_json::from_value(taints).ok();
    claim.spec.startup_taints =
        serde_json::from_value(json!([{"key": "boot", "effect": "NoSchedule"}])).expect("taints");
    let state = |initialized: bool| {
        let mut object = object.clone();
        if !initialized {
            object
                .metadata
                .labels
                .get_or_insert_default()
                .remove(labels::INITIALIZED);
        }
        ClusterState::default()
            .with_pool(node_pool("default"), types.clone())
            .with_node((object, claim.clone()))
            .with_pod(pod("p", "1", json!({})))
    };
    assert_eq!(summary(&run(&state(false))), ["n: p"]);
    assert_eq!(summary(&run(&state(true))), ["default/small: p"]);
}

#[test]
fn p_099_unmanaged_nodes_are_capacity_too() {
    let types = types();
    let (mut object, _) = node("default", "static", &types[2], "a", "on-demand");
    object
        .metadata
        .labels
        .get_or_insert_default()
        .retain(|key, _| !key.starts_with("karpenter"));
    object.spec.get_or_insert_default().provider_id = None;
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types)
        .with_pod(pod("p", "1", json!({})));
    state.nodes.push(std::sync::Arc::new(object));
    assert_eq!(summary(&run(&state)), ["static: p"]);
}

#[test]
fn p_100_example_16_in_flight_capacity_counts() {
    let types = types();
    let (_, mut claim) = node("default", "n", &types[1], "a", "spot");
    if let Some(labels) = &mut claim.metadata.labels {
        labels.remove(labels::REGISTERED);
        labels.remove(labels::INITIALIZED);
    }
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types)
        .with_pod(pod("p", "1", json!({})));
    state.node_claims.push(std::sync::Arc::new(claim));
    assert_eq!(summary(&run(&state)), ["claim-n: p"]);
}

#[test]
fn p_114_host_ports() {
    let port = |name: &str| {
        pod(
            name,
            "100m",
            json!({"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}),
        )
    };
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods([port("p1"), port("p2")]);
    assert_eq!(summary(&run(&state)), ["default/small: p1", "default/small: p2"]);
}

#[test]
fn p_114_host_ports_of_sidecars_stay_taken_and_those_of_other_init_containers_do_not() {
    let pods = |policy: serde_json::Value| {
        let init = json!([{"name": "init", "restartPolicy": policy, "ports": [{"containerPort": 80, "hostPort": 80}]}]);
        ["p1", "p2"].map(|name| pod(name, "100m", json!({"initContainers": init})))
    };
    let state = ClusterState::default().with_pool(node_pool("default"), types());
    assert_eq!(
        summary(&run(&state.clone().with_pods(pods(json!("Always"))))),
        ["default/small: p1", "default/small: p2"]
    );
    assert_eq!(
        summary(&run(&state.with_pods(pods(json!(null))))),
        ["default/small: p1 p2"]
    );
}

#[test]
fn p_117_attach_limits_of_existing_nodes() {
    let types = types();
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(node("default", "n", &types[2], "a", "spot"));
    let csi_node = json!({"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "n", "allocatable": {"count": 2}}]}});
    state.volumes.csi_nodes.insert(
        "n".to_owned(),
        std::sync::Arc::new(serde_json::from_value(csi_node).expect("a CSINode")),
    );
    let class = json!({"metadata": {"name": "disk"}, "provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": "WaitForFirstConsumer"});
    state.volumes.storage_classes.insert(
        "disk".to_owned(),
        std::sync::Arc::new(serde_json::from_value(class).expect("a class")),
    );
    for claim in ["one", "two", "three"] {
        let object = json!({"metadata": {"namespace": "default", "name": claim}, "spec": {"storageClassName": "disk"}});
        state.volumes.claims.insert(
            format!("default/{claim}"),
            std::sync::Arc::new(serde_json::from_value(object).expect("a claim")),
        );
    }
    let using = |name: &str, claim: &str| {
        pod(
            name,
            "100m",
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}),
        )
    };
    let state = state.with_pod(spokeshave_example::bound(using("old", "one"), "n"));
    // The claim in use counts once; two fit, the third needs a new node.
    let result = run(&state.with_pods([using("p1", "one"), using("p2", "two"), using("p3", "three")]));
    assert_eq!(summary(&result), ["n: p1 p2", "default/small: p3"]);
}

/// A pod with required expressions and preferred ones.
fn wanting(required: &serde_json::Value, preferred: &serde_json::Value) -> spokeshave_model::Pod {
    let mut affinity = json!({});
    if !required.is_null() {
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [{"matchExpressions": required}]});
    }
    if !preferred.is_null() {
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!([{"weight": 1, "preference": {"matchExpressions": preferred}}]);
    }
    pod("p", "1", json!({"affinity": {"nodeAffinity": affinity}}))
}

#[test]
fn p_034_p_085_a_node_without_the_label_takes_no_pod_that_demands_it() {
    let types = types();
    let mut pool = node_pool("default");
    let labels = &mut pool.spec.template.metadata.labels;
    labels.insert("team".to_owned(), "web".to_owned());
    labels.insert("generation".to_owned(), "5".to_owned());
    let (mut object, mut claim) = node("default", "n", &types[0], "a", "spot");
    for labels in [&mut object.metadata.labels, &mut claim.metadata.labels] {
        labels.get_or_insert_default().remove(labels::CAPACITY_TYPE);
    }
    let state = ClusterState::default()
        .with_pool(pool, types)
        .with_node((object, claim));
    let expression = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let nothing = json!(null);
    let placed = |required: serde_json::Value, preferred: &serde_json::Value| {
        summary(&run(&state.clone().with_pod(wanting(&required, preferred))))
    };
    let not_gpu = expression("team", "NotIn", &["gpu"]);
    assert_eq!(
        placed(json!([not_gpu]), &nothing),
        ["n: p"],
        "nothing demands the label"
    );
    assert_eq!(
        placed(json!([expression("team", "Exists", &[]), not_gpu]), &nothing),
        ["default/small: p"]
    );
    let newer = json!([
        expression("generation", "Gt", &["3"]),
        expression("generation", "NotIn", &["8"]),
    ]);
    assert_eq!(placed(newer, &nothing), ["default/small: p"]);
    let web = json!([expression("team", "In", &["web"])]);
    let not_web = json!([expression("team", "NotIn", &["web"])]);
    assert_eq!(
        placed(web, &not_web),
        ["default/small: p"],
        "a preference that contradicts what is required is given up"
    );
    let on_demand = json!([expression(labels::CAPACITY_TYPE, "In", &["on-demand"])]);
    let spot = json!([expression(labels::CAPACITY_TYPE, "In", &["spot"])]);
    assert_eq!(placed(on_demand, &spot), ["default/small: p"]);
}

#[test]
fn p_033_a_node_has_a_label_by_an_older_name_for_volumes_only() {
    let types = types();
    let (mut object, mut claim) = node("default", "n", &types[0], "a", "spot");
    for labels in [&mut object.metadata.labels, &mut claim.metadata.labels] {
        let labels = labels.get_or_insert_default();
        labels.remove(labels::ZONE);
        labels.insert("topology.ebs.csi.aws.com/zone".to_owned(), "a".to_owned());
    }
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types)
        .with_node((object, claim));
    let volume = json!({"metadata": {"name": "disk"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": ["a"]}]}]}}}});
    state.volumes.volumes.insert(
        "disk".to_owned(),
        std::sync::Arc::new(serde_json::from_value(volume).expect("a volume")),
    );
    let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let object = json!({"metadata": {"namespace": "default", "name": "data", "annotations": bound}, "spec": {"volumeName": "disk"}});
    state.volumes.claims.insert(
        "default/data".to_owned(),
        std::sync::Arc::new(serde_json::from_value(object).expect("a claim")),
    );
    let placed = |spec| summary(&run(&state.clone().with_pod(pod("p", "1", spec))));
    assert_eq!(
        placed(json!({"nodeSelector": {"topology.kubernetes.io/zone": "a"}})),
        ["default/small: p"]
    );
    assert_eq!(
        placed(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]})),
        ["n: p"]
    );
}
