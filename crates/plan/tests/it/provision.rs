//! Provisioning as a decision: which pods count, what is planned, and the NodeClaim that comes of it.

use serde_json::{Value, json};
use spokeshave_example::{bound, epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::Pod;
use spokeshave_model::scheduler_profiles::SchedulerProfiles;
use spokeshave_model::{ClusterState, InstanceType, Resources, labels, lower};
use spokeshave_plan::preferences::{Hindrance, hindrances};
use spokeshave_plan::{
    MinValuesPolicy, Policy, PreferencePolicy, limit_exceeded, nominated_event, provision, provision_by_zone,
    to_node_claim,
};
use spokeshave_schedule::{PackOptions, PackRequest, UnplacedPod, pack};
use std::sync::Arc;

const ZONES: [&str; 2] = ["a", "b"];

fn types() -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, 4, &ZONES),
        instance_type("large", 16, 32, &ZONES),
    ]
}

fn pod(name: &str, cpu: &str) -> Pod {
    pending_pod(name, cpu, "100Mi", &json!({}))
}

fn owned(mut pod: Pod, api_version: &str, kind: &str) -> Pod {
    let owner = json!([{"apiVersion": api_version, "kind": kind, "name": "x", "uid": "u"}]);
    pod.metadata.owner_references = serde_json::from_value(owner).ok();
    pod
}

fn with_status(mut pod: Pod, status: Value) -> Pod {
    pod.status = serde_json::from_value(status).ok();
    pod
}

#[test]
fn p_056_only_unschedulable_pods_of_ordinary_owners_count() {
    let unschedulable = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_node(node("default", "n", &types()[0], "a", "spot"))
        .with_pods([
            pod("yes", "1"),
            owned(pod("daemon", "1"), "apps/v1", "DaemonSet"),
            owned(pod("mirror", "1"), "v1", "Node"),
            with_status(
                pod("gated", "1"),
                json!({"phase": "Pending", "conditions": gated}),
            ),
            with_status(
                pod("nominated", "1"),
                json!({"phase": "Pending", "nominatedNodeName": "n", "conditions": unschedulable}),
            ),
        ]);
    let snapshot = lower(&state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    let names: Vec<String> = outcome.pods.iter().map(|pod| snapshot.pod(*pod).key()).collect();
    assert_eq!(names, ["default/yes"]);
    assert_eq!(outcome.placements.claims.len(), 1);
}

#[test]
fn p_057_invalid_pods_are_ignored_with_an_event_except_those_that_opted_out() {
    let required = |key: &str, operator: &str| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": operator}]}]}}}})
    };
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods([
            pending_pod(
                "opted-out",
                "1",
                "1Gi",
                &required("karpenter.sh/nodepool", "DoesNotExist"),
            ),
            pending_pod("broken", "1", "1Gi", &required("team", "Near")),
            pod("fine", "1"),
        ]);
    let snapshot = lower(&state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    assert_eq!((outcome.ignored.len(), outcome.placements.claims.len()), (2, 1));
    let events = outcome.events(&snapshot, &Policy::default());
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].object.name, "broken");
    assert_eq!(events[0].reason, "FailedScheduling");
    assert!(
        events[0]
            .message
            .starts_with("Failed to schedule pod, key team has an unsupported operator Near"),
        "{}",
        events[0].message
    );
    assert_eq!(events[0].dedupe_window_seconds, 300);
}

#[test]
fn p_058_pods_of_nodes_that_go_away_are_placed_anew() {
    let types = types();
    let mut protected = bound(pod("protected", "1"), "leaving");
    protected.metadata.annotations =
        Some([("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned())].into());
    let guarded = spokeshave_example::labelled(bound(pod("guarded", "1"), "leaving"), &[("app", "db")]);
    let mut ending = owned(bound(pod("ending", "1"), "leaving"), "apps/v1", "StatefulSet");
    ending.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(epoch()));
    let budget = json!({"metadata": {"namespace": "default", "name": "db"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}}});
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(node("default", "leaving", &types[1], "a", "spot"))
        .with_pods([
            bound(pod("plain", "1"), "leaving"),
            owned(bound(pod("agent", "1"), "leaving"), "apps/v1", "DaemonSet"),
            protected,
            guarded,
            ending,
        ]);
    state
        .pod_disruption_budgets
        .push(Arc::new(serde_json::from_value(budget).expect("a budget")));
    let pods = |state: &ClusterState| {
        let snapshot = lower(state);
        let outcome = provision(&snapshot, &Policy::default(), epoch());
        outcome
            .pods
            .iter()
            .map(|pod| snapshot.pod(*pod).key())
            .collect::<Vec<_>>()
    };
    assert!(pods(&state).is_empty());
    state.marked_for_deletion.insert("kwok://leaving".to_owned());
    assert_eq!(pods(&state), ["default/ending", "default/plain"]);
}

#[test]
fn p_066_to_p_069_the_shape_of_a_node_claim() {
    let mut pool = node_pool("default");
    let template = &mut pool.spec.template;
    template.metadata.labels.insert("team".to_owned(), "a".to_owned());
    template
        .metadata
        .annotations
        .insert("note".to_owned(), "kept".to_owned());
    template.spec.taints =
        vec![serde_json::from_value(json!({"key": "t", "effect": "NoSchedule"})).expect("a taint")];
    template.spec.startup_taints =
        vec![serde_json::from_value(json!({"key": "s", "effect": "NoSchedule"})).expect("a taint")];
    template.spec.requirements = vec![
        spokeshave_api::Requirement::new("tier", spokeshave_api::Operator::In, &["gold", "silver"]),
        spokeshave_api::Requirement::new("rank", spokeshave_api::Operator::Gt, &["4"]),
    ];
    template.spec.termination_grace_period = "30s".parse().ok();
    let spec = json!({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"topology.kubernetes.io/zone": "b"}});
    let state = ClusterState::default()
        .with_pool(pool.clone(), types())
        .with_daemon_set(spokeshave_example::daemon_set(
            "agent",
            "100m",
            "50Mi",
            &json!({"tolerations": [{"operator": "Exists"}]}),
        ))
        .with_pod(pending_pod("p", "1", "100Mi", &spec));
    let snapshot = lower(&state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    let claim = to_node_claim(&snapshot, &outcome.placements.claims[0]);
    let value = serde_json::to_value(&claim).expect("a NodeClaim serialises");
    assert_eq!(value["metadata"]["generateName"], "default-");
    assert_eq!(value["metadata"].get("name"), None);
    assert_eq!(
        value["metadata"]["labels"],
        json!({"karpenter.kwok.sh/kwoknodeclass": "default", "karpenter.sh/nodepool": "default", "team": "a", "tier": "gold", "rank": "5"})
    );
    assert_eq!(value["metadata"]["annotations"]["note"], "kept");
    assert_eq!(
        value["metadata"]["annotations"]["karpenter.sh/nodepool-hash"],
        spokeshave_api::hash::node_pool_hash(&pool)
    );
    assert_eq!(
        value["metadata"]["annotations"]["karpenter.sh/nodeclaim-min-values-relaxed"],
        "false"
    );
    let owner = &value["metadata"]["ownerReferences"][0];
    assert_eq!(
        *owner,
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": "uid-default", "blockOwnerDeletion": true})
    );
    assert_eq!(
        value["spec"]["resources"]["requests"],
        json!({"cpu": "1100m", "memory": "150Mi", "pods": "2"})
    );
    assert_eq!(value["spec"]["terminationGracePeriod"], "30s");
    assert_eq!(value["spec"]["taints"][0]["key"], "t");
    assert_eq!(value["spec"]["startupTaints"][0]["key"], "s");
    let requirements: Vec<(String, String, Value)> = value["spec"]["requirements"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| {
            (
                entry["key"].as_str().unwrap_or("").to_owned(),
                entry["operator"].as_str().unwrap_or("").to_owned(),
                entry["values"].clone(),
            )
        })
        .collect();
    let expected = [
        ("karpenter.kwok.sh/kwoknodeclass", "In", json!(["default"])),
        ("karpenter.sh/capacity-type", "In", json!(["on-demand", "spot"])),
        ("karpenter.sh/nodepool", "In", json!(["default"])),
        (
            "node.kubernetes.io/instance-type",
            "In",
            json!(["large", "small"]),
        ),
        ("rank", "Gte", json!(["5"])),
        ("team", "In", json!(["a"])),
        ("tier", "In", json!(["gold", "silver"])),
        ("topology.kubernetes.io/zone", "In", json!(["b"])),
    ];
    assert_eq!(
        requirements,
        expected.map(|(key, operator, values)| (key.to_owned(), operator.to_owned(), values))
    );
}

#[test]
fn p_065_limits_are_checked_again_before_creation() {
    let types = types();
    let mut pool = node_pool("default");
    pool.spec.limits = Resources::parse([("cpu", "2")])
        .ok()
        .map(|limits| limits.to_quantities());
    let state = ClusterState::default()
        .with_pool(pool, types.clone())
        .with_node(node("default", "n", &types[1], "a", "spot"));
    let snapshot = lower(&state);
    let exceeded = limit_exceeded(&snapshot.pools[0].object, &snapshot.pools[0].usage)
        .map(|exceeded| exceeded.to_string());
    assert_eq!(
        exceeded.as_deref(),
        Some("resource usage exceeds limit (limit=2, resource-name=cpu, usage=16)")
    );
}

#[test]
fn p_071_nominated_events_name_what_is_known() {
    let types = types();
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(node("default", "n", &types[1], "a", "spot"))
        .with_pod(pod("p", "1"));
    let snapshot = lower(&state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    let events = outcome.events(&snapshot, &Policy::default());
    assert_eq!(events.len(), 1);
    assert_eq!(
        events[0].message,
        "Pod should schedule on: nodeclaim/claim-n, node/n"
    );
    assert!(events[0].rate_limited);
    let event = nominated_event(&snapshot, outcome.pods[0], Some("default-x"), None);
    assert_eq!(event.message, "Pod should schedule on: nodeclaim/default-x");
}

#[test]
fn p_061_b_50_pools_without_types_are_skipped_and_only_impossible_ones_get_an_event() {
    let mut impossible = node_pool("impossible");
    impossible.spec.template.spec.requirements = vec![spokeshave_api::Requirement::new(
        labels::ARCH,
        spokeshave_api::Operator::In,
        &["riscv"],
    )];
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pool(impossible, types())
        .with_pod(pod("p", "1"));
    state.node_pools.push(Arc::new(node_pool("unevaluated")));
    let snapshot = lower(&state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    assert_eq!(outcome.placements.claims.len(), 1);
    let events = outcome.events(&snapshot, &Policy::default());
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].object.name, "impossible");
    assert_eq!(
        events[0].message,
        "NodePool requirements filtered out all compatible available instance types"
    );
}

#[test]
fn p_116_b_45_a_volume_pins_the_node_to_its_zone_and_without_it_the_pod_goes_nowhere() {
    let spec = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pending_pod("p", "1", "1Gi", &spec));
    let claim = json!({"metadata": {"namespace": "default", "name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "pv"}});
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}]}}}});
    state.volumes.claims.insert(
        "default/data".to_owned(),
        Arc::new(serde_json::from_value(claim).expect("a claim")),
    );
    state.volumes.volumes.insert(
        "pv".to_owned(),
        Arc::new(serde_json::from_value(volume).expect("a volume")),
    );
    let snapshot = lower(&state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    assert_eq!(
        outcome.placements.claims[0]
            .requirements
            .get(labels::ZONE)
            .to_string(),
        "topology.kubernetes.io/zone In [b]"
    );
    // P-115: without the volume the pod is put aside, with the reason.
    state.volumes.volumes.clear();
    let snapshot = lower(&state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    assert_eq!(
        outcome.ignored[0].1.to_string(),
        "persistentvolumeclaim \"default/data\", persistentvolume \"pv\" not found"
    );
    assert_eq!((outcome.pods.len(), outcome.placements.claims.len()), (0, 0));
}

#[test]
fn b_46_each_node_claim_says_itself_whether_its_min_values_were_relaxed() {
    let mut pool = node_pool("default");
    let mut wanted =
        spokeshave_api::Requirement::new(labels::INSTANCE_TYPE, spokeshave_api::Operator::Exists, &[]);
    wanted.min_values = Some(2);
    pool.spec.template.spec.requirements = vec![wanted];
    let state = ClusterState::default()
        .with_pool(pool, types())
        .with_pods([pod("big", "15"), pod("little", "1500m")]);
    let snapshot = lower(&state);
    let policy = Policy {
        min_values: MinValuesPolicy::BestEffort,
        ..Policy::default()
    };
    let outcome = provision(&snapshot, &policy, epoch());
    let claims = outcome.placements.claims.iter().map(|planned| {
        let claim = to_node_claim(&snapshot, planned);
        let relaxed = claim.metadata.annotations.unwrap_or_default();
        let relaxed = relaxed.get(spokeshave_api::labels::MIN_VALUES_RELAXED).cloned();
        (snapshot.pod(planned.pods[0]).key(), relaxed.unwrap_or_default())
    });
    let said: std::collections::BTreeMap<String, String> = claims.collect();
    let expected = [("default/big", "true"), ("default/little", "false")];
    assert_eq!(
        said,
        expected
            .map(|(pod, relaxed)| (pod.to_owned(), relaxed.to_owned()))
            .into()
    );
}

#[test]
fn p_072_preferences_that_hinder_consolidation_are_named_unless_they_are_ignored() {
    let term = json!({"topologyKey": labels::HOSTNAME, "labelSelector": {}});
    let anti = json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}});
    let spread = |when: &str| json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": when, "labelSelector": {}}]});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods([
            pending_pod("a", "1", "1Mi", &anti),
            pending_pod("b", "1", "1Mi", &spread("ScheduleAnyway")),
            pending_pod("c", "1", "1Mi", &spread("DoNotSchedule")),
        ]);
    let snapshot = lower(&state);
    let pods: Vec<_> = snapshot.pod_ids().collect();
    let policy = Policy::default();
    let found = hindrances(&snapshot, &policy, &pods);
    assert_eq!(
        found,
        [
            (Hindrance::AntiAffinity, pods[0]),
            (Hindrance::TopologySpread, pods[1])
        ]
    );
    assert!(
        found[1]
            .0
            .text()
            .contains("TopologySpreadConstraint which can prevent consolidation")
    );
    let ignoring = Policy {
        preferences: PreferencePolicy::Ignore,
        ..policy
    };
    assert!(hindrances(&snapshot, &ignoring, &pods).is_empty());
}

#[test]
fn p_123_pending_pods_are_counted_by_the_zone_they_can_be_in() {
    let zones = |values: &[&str]| {
        let expression = json!({"key": labels::ZONE, "operator": "In", "values": values});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
    };
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {"app": "busy"}}}]}}});
    let mut state = ClusterState::default().with_pool(node_pool("default"), types());
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        let busy = spokeshave_example::labelled(
            pending_pod(&format!("busy-{name}"), "1", "1Mi", &json!({})),
            &[("app", "busy")],
        );
        state = state
            .with_node(node("default", name, &types()[0], zone, "spot"))
            .with_pod(bound(busy, name));
    }
    let in_both = {
        let mut both = zones(&["a"]);
        both["affinity"]["podAntiAffinity"] = apart["affinity"]["podAntiAffinity"].clone();
        both
    };
    let state = state.with_pods([
        pending_pod("anywhere", "1", "1Mi", &json!({})),
        pending_pod("one", "1", "1Mi", &json!({"nodeSelector": {labels::ZONE: "b"}})),
        pending_pod("two", "1", "1Mi", &zones(&["a", "b"])),
        pending_pod("nowhere", "1", "1Mi", &in_both),
    ]);
    let snapshot = lower(&state);
    let policy = Policy::default();
    let (outcome, zones) = provision_by_zone(&snapshot, &policy, epoch(), |_| true);
    assert_eq!(
        outcome,
        provision(&snapshot, &policy, epoch()),
        "to look for zones changes nothing"
    );
    let counts: Vec<(String, usize)> = zones.into_iter().map(|(zone, pods)| (zone, pods.len())).collect();
    let expected = [("b", 1), ("flexible", 2), ("none", 1)];
    assert_eq!(counts, expected.map(|(zone, count)| (zone.to_owned(), count)));
}

#[test]
fn p_121_pods_without_topology_spread_get_the_default_one() {
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods((0..6).map(|index| {
            spokeshave_example::labelled(pod(&format!("web-{index}"), "100m"), &[("app", "web")])
        }));
    let zones = |state: &ClusterState| {
        let snapshot = lower(state);
        let outcome = provision(&snapshot, &Policy::default(), epoch());
        assert!(outcome.unschedulable.is_empty());
        outcome.placements.claims.len()
    };
    assert_eq!(zones(&state), 1, "together on one node");
    let constraint =
        json!({"maxSkew": 1, "topologyKey": labels::HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"});
    let constraints = vec![serde_json::from_value(constraint).expect("a constraint")];
    state.scheduler_profiles = Arc::new(SchedulerProfiles::of_all(constraints));
    assert_eq!(zones(&state), 1, "nothing tells which pods belong together");
    let service =
        json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}});
    state.default_spread.services = vec![Arc::new(serde_json::from_value(service).expect("a Service"))];
    assert_eq!(zones(&state), 6, "one on each host");
}

/// The list of bad input: a pod whose requests are no amounts gets its own reason.
#[test]
fn p_057_requests_that_are_negative_or_malformed_are_refused_with_a_reason() {
    let cases = [
        (
            json!({"containers": [{"name": "m", "resources": {"requests": {"cpu": "-1"}}}]}),
            "container \"m\" requests cpu \"-1\"",
        ),
        (
            json!({"containers": [{"name": "m", "resources": {"requests": {"memory": "lots"}}}]}),
            "container \"m\" requests memory \"lots\"",
        ),
        (
            json!({"containers": [], "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "-2m"}}}]}),
            "container \"i\" requests cpu \"-2m\"",
        ),
        (
            json!({"containers": [], "overhead": {"cpu": "-2m"}}),
            "overhead requests cpu \"-2m\"",
        ),
        (
            json!({"containers": [], "resources": {"requests": {"cpu": ""}}}),
            "the pod requests cpu \"\"",
        ),
    ];
    for (spec, expected) in cases {
        let mut bad = pod("bad", "1");
        bad.spec = serde_json::from_value(spec).ok().map(Arc::new);
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types())
            .with_pods([bad, pod("good", "1")]);
        let snapshot = lower(&state);
        let outcome = provision(&snapshot, &Policy::default(), epoch());
        let problems: Vec<String> = outcome
            .ignored
            .iter()
            .map(|(_, problem)| problem.to_string())
            .collect();
        assert_eq!(problems.len(), 1, "{expected}");
        assert!(problems[0].starts_with(expected), "{problems:?}");
        assert!(problems[0].contains("expected a quantity of zero or more"));
        assert_eq!(outcome.placements.claims.len(), 1, "the other pod is planned for");
    }
    // Zero is an amount.
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("zero", "0"));
    assert_eq!(
        provision(&lower(&state), &Policy::default(), epoch())
            .placements
            .claims
            .len(),
        1
    );
}

/// Two nodes are all that limits leave. Upstream's order gives each of them one of the small pods, and neither has room for the last one then; another order puts
/// both on one node. That there is to be room for more pods than that is tried with changes nothing of it.
#[test]
fn p_186_no_number_of_virtual_pods_leaves_fewer_orders_to_pods_that_exist() {
    let mut pool = node_pool("default");
    let limits = Resources::parse([("nodes", "2")]).expect("limits");
    pool.spec.limits = Some(limits.to_quantities());
    let real = [
        ("a", "3", "5Gi"),
        ("b", "2900m", "5Gi"),
        ("c", "1", "1Gi"),
        ("d", "900m", "1Gi"),
        ("e", "800m", "3300Mi"),
    ];
    let state = ClusterState::default()
        .with_pool(pool, vec![instance_type("nine", 9, 9, &ZONES)])
        .with_pods(real.map(|(name, cpu, memory)| pending_pod(name, cpu, memory, &json!({}))));
    let with_room = |count: usize| {
        let room = (0..count).map(|number| {
            let mut one = pending_pod(&format!("room-{number}"), "500m", "500Mi", &json!({}));
            let annotations = one.metadata.annotations.get_or_insert_default();
            annotations.insert(
                "karpenter.sh/capacity-buffer-fake-pod".to_owned(),
                "true".to_owned(),
            );
            one
        });
        lower(&state.clone().with_pods(room.collect::<Vec<_>>()))
    };
    for count in [0, 10, 500, 2_001] {
        let snapshot = with_room(count);
        let left = |unplaced: &[UnplacedPod]| {
            let left = unplaced.iter().map(|left| snapshot.pod(left.pod));
            let real = left.filter(|view| !view.is_virtual);
            real.map(|view| view.key()).collect::<Vec<_>>()
        };
        let request = PackRequest {
            pods: snapshot.pod_ids().collect(),
            ..PackRequest::default()
        };
        let plain = pack(&snapshot, &request, &PackOptions::default());
        assert_eq!(left(&plain.unplaced), ["default/e"], "in upstream's order");
        let outcome = provision(&snapshot, &Policy::default(), epoch());
        assert_eq!(left(&outcome.unschedulable), Vec::<String>::new(), "{count}");
        assert_eq!(outcome.report.virtual_pods, count);
    }
}
