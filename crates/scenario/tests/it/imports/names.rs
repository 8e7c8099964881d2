//! What is recorded without names: none stays, and everything means what it meant.

use serde_json::{Value, json};
use spokeshave_scenario::import::hash_names;
use spokeshave_scenario::import::inventory::Inventory;
use spokeshave_scenario::import::objects::Object;
use spokeshave_scenario::import::redact::redacted;
use spokeshave_scenario::{OwnerKind, Timeline};

use super::HOUR_MS;

/// What no name may hold afterwards.
const SECRET: &str = "hunter";

/// A hash that is good enough for tests: FNV-1a.
fn hash(text: &str) -> String {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let sum = text.bytes().fold(start, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("h{sum:016x}")
}

fn hashed(object: &Value) -> Value {
    let mut kept = redacted(object).expect("a kind that is read");
    hash_names(&mut kept, &hash);
    kept
}

/// A specification of pods that says everything that may be said of names.
fn spec() -> Value {
    let selector = json!({"matchLabels": {"app": "hunter-web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["hunter-1"]}]});
    let term = json!({"labelSelector": selector, "namespaces": ["hunter-shop"], "topologyKey": "topology.kubernetes.io/zone",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hunter-shop"}}});
    let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["hunter-node"]});
    let disk = json!({"key": "disk", "operator": "In", "values": ["ssd"]});
    let nodes = json!({"matchExpressions": [host, disk], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["hunter-node"]}]});
    json!({
        "containers": [{"name": "hunter-main", "image": "hunter.example/web", "ports": [{"name": "hunter-port", "hostPort": 80, "containerPort": 80}],
            "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "hunter-gpu", "request": "hunter-half"}]}}],
        "initContainers": [{"name": "hunter-init", "image": "hunter.example/init"}],
        "priorityClassName": "hunter-first", "runtimeClassName": "hunter-class", "schedulerName": "default-scheduler",
        "nodeSelector": {"team": "red", "kubernetes.io/hostname": "hunter-node"},
        "tolerations": [{"key": "team", "value": "red", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}],
        "volumes": [{"name": "hunter-data", "persistentVolumeClaim": {"claimName": "hunter-claim"}}],
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]},
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [nodes]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": nodes}],
            },
        },
    })
}

fn meta(name: &str, owner: Option<(&str, &str, &str)>) -> Value {
    let owners = owner.map(|(version, kind, name)| {
        json!([{"apiVersion": version, "kind": kind, "name": name, "uid": "hunter-uid", "controller": true}])
    });
    let annotations = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "hunter-data"});
    json!({"annotations": annotations, "name": name, "namespace": "hunter-shop", "generateName": "hunter-", "ownerReferences": owners,
        "creationTimestamp": "2026-03-02T00:00:00Z",
        "labels": {"app": "hunter-web", "tier": "hunter-1", "pod-template-hash": "5d4f8c7b9"}})
}

/// An object with a specification of its own beside a template.
fn workload(version: &str, kind: &str, meta: &Value, more: &Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": "hunter-web", "tier": "hunter-1"}}, "spec": spec()});
    let mut spec =
        json!({"replicas": 2, "selector": {"matchLabels": {"app": "hunter-web"}}, "template": template});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec})
}

fn pod(name: &str, owner: Option<(&str, &str, &str)>) -> Value {
    let mut spec = spec();
    spec["nodeName"] = json!("hunter-node");
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(name, owner), "spec": spec,
        "status": {"phase": "Running", "startTime": "2026-03-02T00:00:00Z"}})
}

fn objects() -> Vec<Value> {
    let set = ("apps/v1", "ReplicaSet", "hunter-web-5d4f8c7b9");
    let cron = ("batch/v1", "CronJob", "hunter-tick");
    let run = ("batch/v1", "Job", "hunter-tick-29012345");
    let claims = json!({"volumeClaimTemplates": [{"metadata": {"name": "hunter-data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]});
    let tick = json!({"schedule": "7 * * * *", "jobTemplate": {"spec": {"template": {"metadata": {}, "spec": spec()}}}});
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta("hunter-pdb", None),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "hunter-web"}}}});
    let labels = json!({"kubernetes.io/hostname": "hunter-node", "team": "red", "node.kubernetes.io/instance-type": "m5.large"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "hunter-node", "labels": labels,
            "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "hunter-claim", "uid": "u"}]},
        "spec": {"providerID": "aws:///zone/i-hunter", "taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]}});
    let claim = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "hunter-claim", "labels": labels,
            "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": "u"}]},
        "spec": {"requirements": []}, "status": {"providerID": "aws:///zone/i-hunter", "nodeName": "hunter-node"}});
    vec![
        budget,
        workload("apps/v1", "Deployment", &meta("hunter-web", None), &json!({})),
        workload(
            "apps/v1",
            "ReplicaSet",
            &meta(
                "hunter-web-5d4f8c7b9",
                Some(("apps/v1", "Deployment", "hunter-web")),
            ),
            &json!({}),
        ),
        workload("apps/v1", "StatefulSet", &meta("hunter-db", None), &claims),
        workload("batch/v1", "CronJob", &meta("hunter-tick", None), &tick),
        workload(
            "batch/v1",
            "Job",
            &meta("hunter-tick-29012345", Some(cron)),
            &json!({"parallelism": 1}),
        ),
        pod("hunter-web-5d4f8c7b9-abcde", Some(set)),
        pod("hunter-web-5d4f8c7b9-fghij", Some(set)),
        pod("hunter-db-1", Some(("apps/v1", "StatefulSet", "hunter-db"))),
        pod("hunter-tick-29012345-x", Some(run)),
        pod(
            "hunter-clones-0",
            Some(("hunter.example/v1", "HunterSet", "hunter-clones")),
        ),
        // Its ReplicaSet and its Job are in no list any more.
        pod(
            "hunter-lost-5d4f8c7b9-x",
            Some(("apps/v1", "ReplicaSet", "hunter-lost-5d4f8c7b9")),
        ),
        pod(
            "hunter-once-29012345-x",
            Some(("batch/v1", "Job", "hunter-once-29012345")),
        ),
        pod(
            "hunter-once-29012346-x",
            Some(("batch/v1", "Job", "hunter-once-29012346")),
        ),
        pod("hunter-alone", None),
        node,
        claim,
    ]
}

#[test]
fn no_name_is_left() {
    for object in objects() {
        let text = hashed(&object).to_string().to_lowercase();
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[test]
fn gates_are_still_there_under_other_names() {
    let mut gated = pod("hunter-alone", None);
    gated["spec"]["schedulingGates"] = json!([{"name": "hunter.example/queue"}]);
    let gates = hashed(&gated)["spec"]["schedulingGates"].clone();
    assert_eq!(gates, json!([{"name": hash("hunter.example/queue")}]));
}

#[test]
fn what_node_pools_may_require_is_left() {
    let pod = hashed(&pod("hunter-alone", None));
    let safe = &pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"];
    assert_eq!(safe, "false");
    let spec = &pod["spec"];
    assert_eq!(spec["nodeSelector"]["team"], "red");
    assert_eq!(spec["tolerations"][0]["value"], "red");
    let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        terms["nodeSelectorTerms"][0]["matchExpressions"][1]["values"],
        json!(["ssd"])
    );
    assert_eq!(spec["schedulerName"], "default-scheduler");
    let objects: Vec<Value> = objects().iter().map(hashed).collect();
    let [.., node, claim] = &objects[..] else {
        panic!("{objects:?}")
    };
    assert_eq!(node["metadata"]["labels"]["team"], "red");
    assert_eq!(node["spec"]["taints"][0]["value"], "red");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "default");
    assert_eq!(
        claim["metadata"]["labels"]["node.kubernetes.io/instance-type"],
        "m5.large"
    );
    // They are still of one instance, and pods are still on it.
    assert_eq!(node["spec"]["providerID"], claim["status"]["providerID"]);
    assert_eq!(node["metadata"]["name"], claim["status"]["nodeName"]);
    assert_eq!(node["metadata"]["name"], spec["nodeName"]);
    assert_eq!(
        node["metadata"]["name"],
        node["metadata"]["labels"]["kubernetes.io/hostname"]
    );
    assert_eq!(
        node["metadata"]["ownerReferences"][0]["name"],
        claim["metadata"]["name"]
    );
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {"limits": {"cpu": "4"}}});
    assert_eq!(hashed(&pool), redacted(&pool).expect("kept"));
    let system = json!({"kind": "Pod", "metadata": {"name": "dns", "namespace": "kube-system"}, "spec": {"priorityClassName": "system-node-critical"}});
    let system = hashed(&system);
    assert_eq!(system["metadata"]["namespace"], "kube-system");
    assert_eq!(system["spec"]["priorityClassName"], "system-node-critical");
}

fn timeline(objects: &[Value]) -> Timeline {
    let mut inventory = Inventory::default();
    for object in objects {
        inventory.add(Object::read(&object.to_string(), None).expect("readable"));
    }
    let start = "2026-03-02T00:00:00Z".parse().expect("an instant");
    inventory.constant(start, 3 * HOUR_MS).expect("small")
}

/// What is told of each owner but its name, in an order that does not depend on names.
fn lives(timeline: &Timeline, of_node: impl Fn(&str) -> String) -> Vec<String> {
    let mut lives: Vec<String> = (0_u32..)
        .zip(&timeline.owners)
        .map(|(id, owner)| {
            let events = timeline.events.iter().filter(|event| event.owner.0 == id);
            let events: Vec<_> = events.map(|event| (event.at_ms, &event.change)).collect();
            let placements = timeline.placements.iter().filter(|one| one.owner.0 == id);
            let placements: Vec<_> = placements.map(|one| (one.pod, of_node(&one.node))).collect();
            format!("{:?} {events:?} {placements:?}", owner.kind)
        })
        .collect();
    lives.sort();
    lives
}

#[test]
fn workloads_without_names_have_the_same_pods() {
    let plain: Vec<Value> = objects()
        .iter()
        .map(|object| redacted(object).expect("kept"))
        .collect();
    let without: Vec<Value> = objects().iter().map(hashed).collect();
    let (plain, without) = (timeline(&plain), timeline(&without));
    let expected = lives(&plain, hash);
    assert_eq!(expected.len(), 7, "{expected:?}");
    assert_eq!(lives(&without, str::to_owned), expected);
}

#[test]
fn selectors_without_names_select_the_same_pods() {
    let objects: Vec<Value> = objects().iter().map(hashed).collect();
    let found = timeline(&objects);
    let web = hash("hunter-web");
    let mut owners = found.owners.iter();
    let is_web = |kind: OwnerKind, name: &str| kind == OwnerKind::Deployment && name == web;
    let owner = owners
        .find(|owner| is_web(owner.kind, &owner.name))
        .expect("by its name");
    let template = serde_json::to_value(&*owner.template).expect("JSON");
    let spec = &template["spec"];
    let term = &spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    let budget = &found.budgets[&(hash("hunter-shop"), hash("hunter-pdb"))];
    let budget = serde_json::to_value(&budget.selector).expect("JSON");
    for selector in [
        &term["labelSelector"],
        &spec["topologySpreadConstraints"][0]["labelSelector"],
        &budget,
    ] {
        assert_eq!(
            selector["matchLabels"]["app"],
            template["metadata"]["labels"]["app"]
        );
    }
    let selected = &term["labelSelector"]["matchExpressions"][0]["values"];
    assert_eq!(selected[0], template["metadata"]["labels"]["tier"]);
    assert_eq!(owner.namespace, term["namespaces"][0]);
    let by_name = &term["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"];
    assert_eq!(*by_name, owner.namespace.as_str());
}

#[test]
fn a_node_class_of_ec2_names_no_account_and_no_network() {
    let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}, "spec": {
            "role": "hunter-role", "amiSelectorTerms": [{"alias": "al2023@latest"}, {"id": "ami-0hunter"}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "hunter-cluster", "kubernetes.io/cluster/hunter-cluster": "*"}}, {"id": "subnet-0hunter"}],
            "placementGroupSelector": {"name": "hunter-near"},
            "securityGroupSelectorTerms": [{"name": "hunter-group"}], "kubelet": {"maxPods": 58},
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi", "kmsKeyID": "arn:aws:kms:hunter"}}]},
        "status": {"subnets": [{"id": "subnet-0hunter", "zone": "eu-central-1a"}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "NotAuthorized", "message": "hunter-role may not",
                "lastTransitionTime": "2026-03-02T00:00:00Z"}]}});
    let found = hashed(&class);
    let text = found.to_string();
    assert!(!text.contains(SECRET), "{text}");
    assert_eq!(found["metadata"]["name"], "default");
    let spec = &found["spec"];
    assert_eq!(spec["amiSelectorTerms"][0]["alias"], "al2023@latest");
    let tags = &spec["subnetSelectorTerms"][0]["tags"];
    assert_eq!(tags["karpenter.sh/discovery"], hash("hunter-cluster"));
    assert_eq!(found["status"]["conditions"][0]["reason"], "NotAuthorized");
    assert_eq!(
        (
            &spec["kubelet"]["maxPods"],
            &spec["blockDeviceMappings"][0]["ebs"]["volumeSize"]
        ),
        (&json!(58), &json!("20Gi"))
    );
    let subnet = &found["status"]["subnets"][0];
    assert_eq!(
        (&subnet["zone"], &subnet["id"]),
        (&json!("eu-central-1a"), &spec["subnetSelectorTerms"][1]["id"])
    );
}
